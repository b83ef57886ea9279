"""Data sets and logs written by the workers of a Dask cluster: each shard once, despite deaths."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

distributed = pytest.importorskip("distributed")

from dask_clusters import Killer, cluster  # noqa: E402
from support import cases  # noqa: E402

import bedform as bf  # noqa: E402
from bedform import _dask_cluster, _internal  # noqa: E402
from bedform._chunked_values import ChunkTarget  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (120, 200, 180)
LAYOUT = bf.Regular(chunks=(20, 20, 20), shards=(40, 100, 60))


def fields() -> xr.Dataset:
    generator = np.random.default_rng(2)
    data = np.cumsum(generator.normal(size=SHAPE).astype("f4"), axis=0)
    return xr.Dataset({"t": (("time", "lat", "lon"), data), "x": ("x", np.arange(5.0))})


def lazy(place: Path, **chunks: int) -> xr.Dataset:
    """Returns the same data in Dask chunks, and writes the source if it is missing."""
    path = place / "source.zarr"
    if not path.exists():
        encoding = {"t": {"chunks": (1, *SHAPE[1:])}}
        fields().to_zarr(path, encoding=encoding, consolidated=False)
    return xr.open_zarr(path, chunks={}, consolidated=False).drop_encoding().chunk(chunks)


def test_one_task_writes_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds for any chunks of the values: here the Dask chunks cross all borders."""
    writers: dict[tuple[int, ...], int] = {}
    write = ChunkTarget.__setitem__

    def note(target: ChunkTarget, key: Any, values: Any) -> None:
        if target.ndim == 3:
            axes = zip(key, LAYOUT.shards or (), strict=True)
            spans = [range(part.start // n, -(-part.stop // n)) for part, n in axes]
            for shard in np.ndindex(*(len(span) for span in spans)):
                place = tuple(span[at] for span, at in zip(spans, shard, strict=True))
                writers[place] = writers.get(place, 0) + 1
        write(target, key, values)

    monkeypatch.setattr(ChunkTarget, "__setitem__", note)
    dataset = fields().chunk({"time": 7, "lat": 33, "lon": 180})
    bf.write_dataset(dataset, tmp_path / "a.zarr", layout=LAYOUT)
    assert len(writers) == 3 * 2 * 3
    assert set(writers.values()) == {1}


@pytest.mark.reliability
def test_workers_write_a_data_set_while_others_of_them_are_killed(tmp_path: Path) -> None:
    expected = fields()
    dataset = lazy(tmp_path, time=7, lat=33)
    with cluster() as client, Killer(client, 1_000_000, seconds=3, seed=time.time_ns()) as killer:
        for case in cases(0.25):
            path = tmp_path / f"{case.number}.zarr"
            with case:
                bf.write_dataset(dataset, path, layout=LAYOUT, dask=client)
                written = xr.open_dataset(path, engine="bedform").load()
                xr.testing.assert_identical(written, expected)
                assert bf.open(path).verify() == []
            killer.note_progress()
    sys.stdout.write(f"COUNT dask-write-kills {killer.kills}\n")


def test_workers_append(client: distributed.Client, tmp_path: Path) -> None:
    expected, path = fields(), tmp_path / "a.zarr"
    for part in (slice(0, 50), slice(50, 120)):
        piece = lazy(tmp_path, time=7).isel(time=part)
        if part.start:
            bf.write_dataset(piece, path, append_dim="time", dask=client.scheduler.address)
        else:
            bf.write_dataset(piece, path, layout=LAYOUT, dask=client)
    xr.testing.assert_identical(xr.open_dataset(path, engine="bedform").load(), expected)


def test_a_worker_of_another_version_writes_nothing(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lazy(tmp_path, time=40)
    monkeypatch.setattr(_internal, "__version__", "0.0.1")
    with pytest.raises(bf.UnsupportedError, match=r"and 0\.0\.1 at the client: install the same"):
        bf.write_dataset(dataset, tmp_path / "a.zarr", layout=LAYOUT, dask=client)
    assert [path.name for path in tmp_path.iterdir()] == ["source.zarr"]


def test_a_worker_that_does_not_see_the_store_says_so(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce = ChunkTarget.__reduce__

    def reduce_elsewhere(target: ChunkTarget) -> tuple[Any, ...]:
        kind, (_, *others) = reduce(target)
        return kind, ("/nowhere/a.zarr", *others)

    monkeypatch.setattr(ChunkTarget, "__reduce__", reduce_elsewhere)
    with pytest.raises(bf.NotFoundError, match=r"/nowhere/a\.zarr is not seen by a"):
        bf.write_dataset(lazy(tmp_path, time=40), tmp_path / "a.zarr", layout=LAYOUT, dask=client)
    assert [path.name for path in tmp_path.iterdir()] == ["source.zarr"]


def log_of(path: Path) -> np.ndarray[Any, Any]:
    """Creates a store with commits that cross all shards; returns the values."""
    data = fields()["t"].values
    store = bf.create(path)
    store.create_array("t", SHAPE, "f4", layout=LAYOUT, codecs=["zstd"])
    with store.session(settle="later") as session:
        for start in range(0, SHAPE[0], 9):
            session.write("t", data[start : start + 9], start=(start, 0, 0))
            session.commit()
    return data


def test_workers_settle_and_progress_is_of_the_whole(
    client: distributed.Client, tmp_path: Path
) -> None:
    data = log_of(tmp_path / "a.zarr")
    with bf.open(tmp_path / "a.zarr", mode="r+") as store:
        seen: list[tuple[int, int]] = []
        done = store.settle(dask=client, progress=lambda *step: seen.append(step))
        assert done["commits"] == 14
        assert done["objects"] == 3 * 2 * 3
        assert store.info()["log"]["commits"] == 0
        assert seen == sorted(seen)
        assert len(seen) > 2
        assert seen[-1][0] == seen[-1][1] > 0
        assert store["t"][...].tobytes() == data.tobytes()


@pytest.mark.reliability
def test_workers_settle_while_others_of_them_are_killed(tmp_path: Path) -> None:
    with cluster() as client, Killer(client, 1_000_000, seconds=3, seed=time.time_ns()) as killer:
        for case in cases(0.25):
            path = tmp_path / f"{case.number}.zarr"
            data = log_of(path)
            with case, bf.open(path, mode="r+") as store:
                store.settle(dask=client)
                assert store.info()["log"]["commits"] == 0
                assert store["t"][...].tobytes() == data.tobytes()
                assert store.verify() == []
            killer.note_progress()
    sys.stdout.write(f"COUNT dask-settle-kills {killer.kills}\n")


def test_a_number_of_shares_is_for_whatever_runs_tasks(tmp_path: Path) -> None:
    data = log_of(tmp_path / "a.zarr")
    with bf.open(tmp_path / "a.zarr", mode="r+") as store:
        assert store.settle(dask=5)["objects"] == 3 * 2 * 3
        assert store["t"][...].tobytes() == data.tobytes()


def test_a_worker_has_as_many_threads_of_the_engine_as_of_its_own(
    client: distributed.Client,
) -> None:
    assert _dask_cluster.threads_of_any_worker() is None
    assert client.submit(_dask_cluster.threads_of_any_worker).result() == 1
