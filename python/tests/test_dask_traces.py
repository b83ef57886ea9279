"""Recorded reads of Dask: the blocks of one computation count as one read of the user."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import pytest
import xarray as xr
from dask_clusters import cluster
from support import PATIENCE

import bedform as bf
from bedform import _computations, _internal

HOURS = 12
SHAPE = (HOURS, 16, 32)
PLANES = {"kind": "walk", "start": [0, 1, 0, 16, 0, 32]}
BLOCKS = {"time": 1, "y": 8, "x": 8}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    path = tmp_path / "s.zarr"
    data = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
    with bf.create(path) as store:
        store.create_array("t", data=data, dims=("time", "y", "x"), chunks=(1, 8, 8))
        hours = np.arange(float(HOURS))
        units = {"units": "hours since 2000-01-01", "calendar": "standard"}
        store.create_array("time", data=hours, dims=("time",), attributes=units)
    bf.watch(path)
    return path


def learned(place: Path, name: str = "t") -> dict[str, Any]:
    known: dict[str, Any] = bf.learn(place)["knowledge"]["arrays"][name]
    return known


def walks(known: dict[str, Any]) -> list[dict[str, Any]]:
    return [pattern for pattern in known["patterns"] if pattern["kind"] == "walk"]


def are_planes(known: dict[str, Any]) -> None:
    """Check that each hour was one read, and that they are one pattern."""
    assert known["read"] == {"reads": HOURS, "bytes": 4 * int(np.prod(SHAPE))}
    assert known["predicted"]["strided"]["reads"] == HOURS - 3
    (walk,) = walks(known)
    assert {**walk, "levels": []} == {**PLANES, "levels": []}
    assert walk["levels"] == [{"step": [1, 1, 0, 0, 0, 0], "count": HOURS}]


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_blocks_of_a_data_set_are_the_planes_that_were_computed(place: Path, scheduler: str):
    with xr.open_dataset(place, engine="bedform", chunks=BLOCKS) as data:
        for hour in range(HOURS):
            data.t[hour].mean().compute(scheduler=scheduler)
    are_planes(learned(place))


def test_blocks_of_an_array_are_the_planes_that_were_computed(place: Path):
    with bf.open(place) as store:
        array = dask.array.from_array(store["t"], chunks=(1, 8, 8))
        for hour in range(HOURS):
            array[hour].sum().compute(scheduler="threads")
    are_planes(learned(place))


def test_blocks_that_the_processes_of_a_cluster_read_are_the_planes_that_were_computed(
    place: Path,
):
    with cluster() as client, xr.open_dataset(place, engine="bedform", chunks=BLOCKS) as data:
        for hour in range(HOURS):
            data.t[hour].mean().compute(scheduler=client)
        client.run(_internal.keep_traces)
        readers = len(list(Path(f"{place}.bedform/traces").iterdir()))
    known = learned(place)
    assert readers >= 2
    are_planes(known)


def test_planes_of_one_block_are_seen_in_their_order_whichever_worker_reads_them(place: Path):
    with cluster() as client, xr.open_dataset(place, engine="bedform", chunks={"time": 1}) as data:
        for hour in range(HOURS):
            data.t[hour].mean().compute(scheduler=client)
        client.run(_internal.keep_traces)
    are_planes(learned(place))


def test_computing_a_graph_twice_is_two_reads(place: Path):
    with xr.open_dataset(place, engine="bedform", chunks=BLOCKS) as data:
        mean = data.t[3].mean()
        first, second = (mean.compute(scheduler="threads") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert learned(place)["read"] == {"reads": 2, "bytes": 2 * 16 * 32 * 4}


def test_planes_that_a_computation_compares_are_a_read_each(place: Path):
    with xr.open_dataset(place, engine="bedform", chunks=BLOCKS) as data:
        for hour in range(6):
            abs(data.t[hour] - data.t[hour + 6]).max().compute(scheduler="threads")
    assert learned(place)["read"]["reads"] == 12


def test_what_a_task_reads_piece_by_piece_stays_pieces(place: Path):
    def series(where: str) -> float:
        with bf.open(where) as store:
            return sum(float(store["t"][:, row, 0].sum()) for row in range(16))

    dask.delayed(series)(str(place)).compute(scheduler="threads")
    known = learned(place)
    assert known["read"]["reads"] == 16
    assert known["predicted"]["strided"]["reads"] == 13


def test_other_threads_that_read_while_dask_computes_read_for_themselves(place: Path):
    with bf.open(place) as store:
        array = dask.array.from_array(store["t"], chunks=(1, 8, 8))
        empty = np.empty((0, 0), "f4")

        def read_all(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(1) as pool:
                pool.submit(store["t"].__getitem__, np.s_[:, 3, 4]).result()
            return block

        array[5, :8, :8].map_blocks(read_all, meta=empty).compute(scheduler="threads")
    assert learned(place)["read"] == {"reads": 2, "bytes": 4 * (64 + HOURS)}


def test_coordinates_that_xarray_loads_at_open_have_no_pattern(place: Path):
    for _ in range(8):
        with xr.open_dataset(place, engine="bedform", chunks=BLOCKS) as data:
            assert data.time.size == HOURS
    known = learned(place, "time")
    assert known["read"]["reads"] >= 8
    assert known["patterns"] == []
    assert known["predicted"] == {}


def test_dask_is_not_imported_by_reads_that_are_recorded(place: Path):
    code = f"""
    import sys
    import bedform as bf
    store = bf.open({str(place)!r})
    store["t"][0]
    assert not [name for name in sys.modules if name.split(".")[0] in ("dask", "distributed")]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_reads_that_are_not_recorded_are_not_asked_for_their_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(_computations, "_of_local_scheduler", lambda: asked.append(1) or 0)
    bf.create(tmp_path / "s.zarr").create_array("t", data=np.zeros((4, 4)))
    with bf.open(tmp_path / "s.zarr") as store:
        store["t"][0]
    assert asked == []


def test_a_dask_that_is_another_fails_no_read(place: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> int:
        raise AttributeError("thread_state")

    monkeypatch.setattr(_computations, "_of_worker", fail)
    with bf.open(place) as store:
        assert store["t"][0].shape == SHAPE[1:]
    assert learned(place)["read"]["reads"] == 1
