"""`explain()` and `stats()` of lazy objects of xarray: the bytes that their computation reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pytest
import xarray as xr

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPRESSIONS = 50
SHAPE = {"time": 60, "lat": 40, "lon": 50}
CHUNKS = {"t": (5, 40, 50), "u": (60, 10, 10)}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A NetCDF-4 file with maps of packed numbers, and series."""
    random = np.random.default_rng(3)
    values = random.normal(280, 9, tuple(SHAPE.values())).astype("f4")
    names = [f"s{number}" for number in range(SHAPE["lat"])]
    dataset = xr.Dataset(
        {"t": (tuple(SHAPE), values), "u": (tuple(SHAPE), values), "name": ("lat", names)},
        coords={"time": np.arange(60), "lat": np.linspace(-60, 60, 40)},
    )
    path = str(tmp_path / "fields.nc")
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    encoding = {
        "t": {**packed, "zlib": True, "chunksizes": CHUNKS["t"]},
        "u": {"zlib": True, "shuffle": True, "chunksizes": CHUNKS["u"]},
        "name": {"dtype": "S1"},
    }
    dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
    return path


@pytest.fixture
def lazy(file: str) -> Iterator[xr.Dataset]:
    with xr.open_dataset(file, engine="bedform") as dataset:
        yield dataset


@pytest.fixture
def by_dask(file: str) -> Iterator[xr.Dataset]:
    with xr.open_dataset(file, engine="bedform", chunks={"time": 20}) as dataset:
        yield dataset


pytestmark = pytest.mark.filterwarnings("ignore:The specified chunks separate:UserWarning")


def arrays_of(found: Any) -> dict[str, dict[str, Any]]:
    """Returns the facts of each array, without a plan of replicas."""
    facts = found.bedform.explain(optimize=False).to_dict()
    return {one["array"]: one for one in facts["arrays"]}


def test_predicted_bytes_are_those_that_the_process_reads(tmp_path: Path) -> None:
    script = Path(__file__).with_name("lazy_expressions.py")
    where = os.pathsep.join(filter(None, [str(script.parent.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(EXPRESSIONS), "0"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": where},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == EXPRESSIONS
    off = [one for one in found if abs(one["predicted"] - one["read"]) > 0.1 * one["read"]]
    assert not off
    assert sum(one["reads"] > 1 for one in found) >= EXPRESSIONS // 4


def test_a_selection_needs_its_elements_and_reads_their_chunks(lazy: xr.Dataset) -> None:
    series = lazy["t"].isel(lat=3, lon=4)
    expected = bf.open(lazy.encoding["source"])["t"].explain(np.s_[:, 3, 4]).to_dict()
    facts = arrays_of(series)
    assert list(facts) == ["t"]
    assert facts["t"]["needed_bytes"] == 60 * 2
    assert facts["t"]["bytes"] == expected["bytes"]
    assert facts["t"]["chunks"] == 12
    assert facts["t"]["predicted_cold_seconds"] == expected["predicted_cold_seconds"]


def test_labels_steps_and_lists_compose_with_earlier_selections(lazy: xr.Dataset) -> None:
    found = lazy["u"].sel(lat=slice(-60, 0)).isel(time=slice(0, 40, 4), lon=[3, 4, 45]).isel(lat=0)
    facts = arrays_of(found)["u"]
    assert facts["needed_bytes"] == found.size * 4
    assert facts["chunks"] == 2


def test_transposed_and_pointwise_selections_are_explained(lazy: xr.Dataset) -> None:
    part = lazy["t"].isel(time=slice(0, 7), lat=[1, 5])
    assert arrays_of(part.transpose("lon", "time", "lat")) == arrays_of(part)
    where = xr.DataArray([1, 39], dims="k")
    points = lazy["u"].isel(time=0, lat=where, lon=where)
    assert arrays_of(points)["u"]["needed_bytes"] == 2 * 4
    assert arrays_of(points)["u"]["chunks"] == 2


def test_texts_of_characters_are_read_along_their_last_axis(lazy: xr.Dataset) -> None:
    assert arrays_of(lazy["name"].isel(lat=slice(2, 5)))["name"]["needed_bytes"] == 3 * 3


def test_values_in_memory_need_no_reads(lazy: xr.Dataset) -> None:
    part = lazy[["t"]].isel(time=0)
    assert list(arrays_of(part)) == ["t"]
    assert part.bedform.explain().to_dict()["loaded"] == ["time", "lat"]
    # Without Dask arithmetic loads its operands.
    facts = (part + 1).bedform.explain().to_dict()
    assert (facts["bytes"], facts["arrays"]) == (0, [])
    assert arrays_of(part) == {}
    assert "in memory already: " in str(part.bedform.explain())


def test_of_a_graph_only_needed_tasks_count_and_slices_reach_the_file(by_dask: xr.Dataset) -> None:
    part = by_dask.isel(lat=slice(3, 4))
    facts = arrays_of((part["t"] - part["u"]).isel(time=slice(0, 20)).mean("time"))
    assert facts["t"]["needed_bytes"] == 20 * 50 * 2
    assert facts["u"]["needed_bytes"] == 20 * 50 * 4
    assert facts["u"]["reads"] == 1


def test_a_task_that_several_expressions_share_counts_once(by_dask: xr.Dataset) -> None:
    anomaly = by_dask["t"] - by_dask["t"].mean("time")
    alone = arrays_of(by_dask["t"])["t"]
    assert arrays_of(anomaly)["t"] == alone
    # Here Dask fuses the reads into both expressions: the second ones find the chunks in the cache.
    both = xr.Dataset({"one": by_dask["t"], "other": by_dask["t"] * 2})
    with dask.config.set(scheduler="synchronous"):
        again = arrays_of(both)["t"]
    assert (again["bytes"], again["needed_bytes"]) == (alone["bytes"], alone["needed_bytes"])


def test_chunks_that_blocks_cut_count_once_where_the_cache_has_them(file: str) -> None:
    blocks = {"time": 20, "lat": 40, "lon": 50}
    with dask.config.set(scheduler="synchronous"):
        cached = arrays_of(xr.open_dataset(file, engine="bedform", chunks=blocks)["u"])["u"]
        options: Any = {"engine": "bedform", "chunks": blocks, "chunk_cache": 0}
        without = arrays_of(xr.open_dataset(file, **options)["u"])["u"]
    assert cached["chunks_touched"] == 3 * cached["chunks"]
    assert cached["bytes"] == cached["bytes_once"]
    assert without["bytes"] == 3 * without["bytes_once"]
    assert "read 3.0 times" in "\n".join(_notes(file, blocks, chunk_cache=0))


def _notes(file: str, blocks: Any, **options: Any) -> list[str]:
    found = xr.open_dataset(file, engine="bedform", chunks=blocks, **options)
    return str(found["u"].bedform.explain(optimize=False)).splitlines()


def test_tasks_that_run_at_once_each_decode_a_chunk_that_they_share(file: str) -> None:
    data = xr.open_dataset(file, engine="bedform", chunks={"time": 20, "lat": 40, "lon": 50})["u"]
    with dask.config.set(scheduler="threads", num_workers=2):
        facts = arrays_of(data)["u"]
    assert facts["bytes"] == 2 * facts["bytes_once"]


def test_better_chunks_are_suggested_and_take_each_chunk_once(file: str) -> None:
    def series(chunks: Any) -> Any:
        return xr.open_dataset(file, engine="bedform", chunks=chunks)["u"].isel(lat=slice(0, 20))

    found = series({"time": 1, "lat": 1}).bedform.explain(optimize=False)
    assert found.chunks is not None
    better = arrays_of(series(found.chunks))["u"]
    assert better["chunks_touched"] == better["chunks"]
    assert better["reads"] < 4
    assert series(found.chunks).bedform.explain(optimize=False).chunks is None
    assert f"chunks={found.chunks} would be better" in str(found)
    assert series(None).bedform.explain(optimize=False).chunks is None


def test_what_replicas_would_save_is_said_with_the_command(tmp_path: Path) -> None:
    path = str(tmp_path / "maps.nc")
    values = np.random.default_rng(1).normal(0, 1, (400, 60, 60)).astype("f4")
    dataset = xr.Dataset({"t": (("time", "lat", "lon"), values)})
    dataset.to_netcdf(path, encoding={"t": {"zlib": True, "chunksizes": (1, 60, 60)}})
    with xr.open_dataset(path, engine="bedform") as lazy:
        series = lazy["t"].isel(lat=3, lon=4)
        (saved,) = series.bedform.explain().to_dict()["optimize"]
        planned = bf.optimize(path, reads={"time": 1}, dry_run=True).plan
        assert saved["command"] == f"bedform optimize {path} --reads time=1"
        assert saved["seconds_now"] == planned["reads"][0]["seconds_now"]
        if planned["make"]:
            assert saved["seconds_then"] < saved["seconds_now"]
        else:
            assert saved["reason"] == planned["notes"][0]
        (box,) = lazy["t"].isel(lat=slice(3, 9), lon=4).bedform.explain().to_dict()["optimize"]
        assert box["seconds_then"] < box["seconds_now"]
        assert not Path(f"{path}.bedform").exists()


def test_stores_and_archives_are_planned_for_too(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(0, 1, (200, 40, 40)).astype("f4")
    dataset = xr.Dataset({"t": (("time", "y", "x"), values)}, coords={"time": np.arange(200)})
    store = str(tmp_path / "maps.zarr")
    bf.write_dataset(dataset, store, encoding={"t": {"chunks": (1, 40, 40)}})
    for number, part in enumerate((slice(0, 100), slice(100, 200))):
        encoding = {"t": {"zlib": True, "chunksizes": (1, 40, 40)}}
        dataset.isel(time=part).to_netcdf(tmp_path / f"p{number}.nc", encoding=encoding)
    for place in (store, str(tmp_path / "p*.nc")):
        with xr.open_dataset(place, engine="bedform") as lazy:
            box = lazy["t"].isel(y=slice(3, 5), x=7)
            (saved,) = box.bedform.explain().to_dict()["optimize"]
        assert saved["source"] == place
        assert saved["seconds_then"] < saved["seconds_now"], saved


def test_bytes_are_told_by_file_of_an_archive(tmp_path: Path) -> None:
    for number in range(3):
        steps = np.arange(4) + 4 * number
        values = np.random.default_rng(number).normal(0, 1, (4, 30, 30))
        part = xr.Dataset({"t": (("time", "x", "y"), values)}, coords={"time": steps})
        encoding = {"t": {"zlib": True, "chunksizes": (1, 30, 30)}}
        part.to_netcdf(tmp_path / f"p{number}.nc", encoding=encoding)
    with xr.open_dataset(str(tmp_path / "p*.nc"), engine="bedform", chunks={}) as lazy:
        files = arrays_of(lazy["t"].isel(time=slice(3, 6)))["t"]["files"]
        shown = str(lazy["t"].isel(time=slice(3, 6)).bedform.explain(optimize=False))
    expected = {
        f"p{number}.nc": bf.open(tmp_path / f"p{number}.nc")["t"].explain(part).to_dict()["bytes"]
        for number, part in ((0, np.s_[3:]), (1, np.s_[:2]))
    }
    assert {Path(one["file"]).name: one["bytes"] for one in files} == expected
    assert "p0.nc" in shown and "p1.nc" in shown and "p2.nc" not in shown


def test_other_engines_are_named_and_not_counted(file: str) -> None:
    with (
        xr.open_dataset(file, engine="h5netcdf") as opened,
        xr.open_dataset(file, engine="bedform") as lazy,
    ):
        other = opened[["u"]].rename(u="v")
        explained = lazy[["t"]].merge(other).bedform.explain(optimize=False)
    assert explained.to_dict()["foreign"] == ["v"]
    assert "another engine of xarray reads it: v" in str(explained)


def test_counts_of_reads_survive_selections_and_arithmetic(file: str) -> None:
    with xr.open_dataset(file, engine="bedform") as lazy:
        parts = [
            lazy.sel(lat=slice(-20, 20)),
            lazy[["t"]],
            lazy["t"],
            lazy["t"].isel(time=3),
            lazy.assign(v=lazy["u"]),
        ]
        lazy["t"].isel(time=1).load()
        expected = lazy.bedform.stats()
        assert [part.bedform.stats() for part in parts] == [expected] * len(parts)
        loaded = lazy[["t"]].sel(lat=slice(-20, 20)).load()
        with pytest.raises(bf.UnsupportedError, match="all of it is in memory"):
            loaded.bedform.stats()
    with xr.open_dataset(file, engine="bedform", chunks={}) as by_dask:
        assert (by_dask["t"] + 1).mean().bedform.stats() == by_dask.bedform.stats()


def test_counts_of_combined_data_sets_are_sums(file: str, tmp_path: Path) -> None:
    store = str(tmp_path / "s.zarr")
    bf.write_dataset(xr.Dataset({"v": ("x", np.arange(9))}), store)
    with (
        xr.open_dataset(file, engine="bedform") as one,
        xr.open_dataset(store, engine="bedform") as other,
    ):
        merged = one[["t"]].merge(other)
        one["t"].isel(time=0).load()
        other["v"].isel(x=0).load()
        added = merged.bedform.stats()["prefetch"]["reads"]
        parts = [part.bedform.stats()["prefetch"]["reads"] for part in (one, other)]
    assert added == sum(parts)
