"""Replicas made, and stores reorganized, by the workers of a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

from dask_clusters import Killer, cluster  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import bedform as bf  # noqa: E402
from bedform import _dask_regions  # noqa: E402
from bedform.cli import app  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (300, 60, 70)
SERIES: dict[str, Any] = {"reads": {"time": 1}}


def values(seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 10_000, SHAPE).astype("f4")


def write_file(path: Path, seed: int = 1) -> Path:
    with h5py.File(path, "w") as target:
        t = target.create_dataset("t", data=values(seed), chunks=(1, 60, 70), compression="gzip")
        for axis, name in enumerate(("time", "lat", "lon")):
            # Times of a file follow those of the file before.
            first = (seed - 1) * SHAPE[0] if name == "time" else 0
            scale = target.create_dataset(name, data=first + np.arange(SHAPE[axis]))
            scale.make_scale(name)
            t.dims[axis].attach_scale(scale)
    return path


def write_store(path: Path) -> Path:
    maps = bf.Regular(chunks=(1, 60, 70), shards=(20, 60, 70))
    with bf.create(path) as store:
        store.create_array("t", data=values(), dims=("time", "lat", "lon"), layout=maps)
    return path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list of the numbers of submitted tasks."""
    counts: list[int] = []
    exchange = _dask_regions.RegionPool.exchange

    def counted(self: Any, place: str, tasks: list[str]) -> Any:
        counts.append(len(tasks))
        return exchange(self, place, tasks)

    monkeypatch.setattr(_dask_regions.RegionPool, "exchange", counted)
    return counts


def check_replicas(place: Any, expected: Any) -> None:
    with bf.open(place, cache=0) as store:
        t = store["t"]
        for at in (np.s_[:, 3, 5], np.s_[:, 59, 69], np.s_[7], np.s_[5:250, 2:9, 11:30]):
            np.testing.assert_array_equal(t[at], expected[at])
        used = [one for one in store.stats()["replicas"] if one["reads"]]
    assert used
    assert not any(one["is_broken"] for one in used)


@pytest.mark.parametrize("kind", ["file", "store"])
def test_workers_make_the_replicas_of_a_part(
    tmp_path: Path, client: Any, told: list[int], kind: str
) -> None:
    make = write_file if kind == "file" else write_store
    path = make(tmp_path / f"source.{'h5' if kind == 'file' else 'zarr'}")
    part: dict[str, Any] = {"region": {"lat": (2, 60), "lon": (3, 70)}}
    done = bf.optimize(path, "900%", **SERIES, **part, dask=client)
    assert done.made
    assert sum(told) > 0
    check_replicas(path, values())
    # This process would have made the same replicas.
    assert bf.optimize(path, "900%", **SERIES, **part).made == []


def test_workers_make_replicas_of_many_files(tmp_path: Path, client: Any, told: list[int]) -> None:
    paths = [write_file(tmp_path / f"a{seed}.h5", seed) for seed in (1, 2)]
    done = bf.optimize(paths, "900%", concat_dim="time", **SERIES, dask=client)
    assert done.made
    assert sum(told) > 0
    with bf.open(paths, concat_dim="time", cache=0) as store:
        expected = np.concatenate([values(1), values(2)])
        np.testing.assert_array_equal(store["t"][:, 3, 5], expected[:, 3, 5])
        assert any(one["reads"] for one in store.stats()["replicas"])


def test_workers_make_replicas_of_rows_and_this_process_those_of_points(
    tmp_path: Path, client: Any
) -> None:
    path = write_file(tmp_path / "source.h5")
    generator = np.random.default_rng(3)
    rows = np.flatnonzero(generator.random(SHAPE[0]) < 0.2)
    points = tuple(generator.integers(0, length, 500) for length in SHAPE)
    bf.optimize(path, "900%", selections={"t": [rows, {"points": points}]}, dask=client)
    with bf.open(path, cache=0) as store:
        np.testing.assert_array_equal(store["t"].oindex[rows], values()[rows])
        np.testing.assert_array_equal(store["t"].vindex[points], values()[points])


def test_workers_that_die_cost_their_tasks_alone(tmp_path: Path) -> None:
    path = write_file(tmp_path / "source.h5")
    with cluster() as own, Killer(own, 2, seconds=0.8):
        assert bf.optimize(path, "900%", **SERIES, memory="8MiB", dask=own).made
    check_replicas(path, values())


def test_workers_reorganize_a_store(tmp_path: Path, client: Any, told: list[int]) -> None:
    path = write_store(tmp_path / "run.zarr")
    done = bf.optimize(path, reorganize=True, **SERIES, memory="8MiB", dask=client)
    assert done.changed == ["t"]
    assert sum(told) > 0
    with bf.open(path) as store:
        assert store["t"].chunks[0] > 1
        np.testing.assert_array_equal(store["t"][...], values())
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


class StopError(Exception):
    pass


def test_what_was_begun_alone_goes_on_with_workers(tmp_path: Path, client: Any) -> None:
    path, seen = write_store(tmp_path / "run.zarr"), [0]

    def stop(_done: int, _total: int) -> None:
        seen[0] += 1
        if seen[0] > 1:
            raise StopError

    with pytest.raises(StopError):
        bf.optimize(path, reorganize=True, **SERIES, memory="3MiB", progress=stop)
    done = bf.optimize(path, reorganize=True, **SERIES, memory="3MiB", dask=client)
    assert done.done is not None
    assert done.done["resumed_bytes"] > 0
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], values())


def test_the_command_takes_the_address_of_a_scheduler(
    tmp_path: Path, client: Any, told: list[int]
) -> None:
    path = write_file(tmp_path / "source.h5")
    arguments = ["optimize", str(path), "--reads", "time=1", "--budget", "900%"]
    address = client.scheduler.address
    result = CliRunner().invoke(app, [*arguments, "--dask", address])
    assert result.exit_code == 0, result.output
    assert sum(told) > 0
    check_replicas(path, values())
    wrong = CliRunner().invoke(app, [*arguments, "--dask", "nowhere://1"])
    assert wrong.exit_code != 0
