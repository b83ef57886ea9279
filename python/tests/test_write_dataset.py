"""Tests of ``bf.write_dataset``. The oracle is ``to_zarr``, read by xarray's backend."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from test_xarray import everything

import bedform as bf
from bedform import _internal
from bedform._chunked_values import align
from bedform._dataset_region import CoordinateWarning

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    # Warnings of zarr-python while it writes the stores for comparison.
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Object at .bedform-lock"),
    # xarray's, of encodings that have no room for NaN.
    pytest.mark.filterwarnings("ignore:saving variable"),
]


def write(dataset: xr.Dataset, path: Path | str, **options: Any) -> Any:
    return bf.write_dataset(dataset, path, durability="process", **options)


def opened(path: Path | str, **options: Any) -> xr.Dataset:
    """Reads a store by xarray's own backend."""
    return xr.open_zarr(str(path), chunks=None, **options).load()


def series(start: int, length: int, **attributes: Any) -> xr.Dataset:
    """A record with a dimension that grows, one that does not, and a variable without."""
    values = np.arange(start * 3, (start + length) * 3, dtype="f4").reshape(length, 3)
    return xr.Dataset(
        {"t": (("time", "x"), values), "mask": ("x", [1, 2, 3])},
        {"time": pd.date_range("2000-01-01", periods=length) + pd.Timedelta(start, "D")},
        attributes,
    )


def chunked(dataset: xr.Dataset, **chunks: int) -> xr.Dataset:
    return dataset.chunk(chunks)


def test_a_store_is_read_as_that_of_to_zarr(tmp_path: Path) -> None:
    dataset = everything()
    dataset.to_zarr(tmp_path / "theirs.zarr")
    write(dataset, tmp_path / "ours.zarr")
    for decode in (True, False):
        theirs = opened(tmp_path / "theirs.zarr", decode_cf=decode)
        ours = opened(tmp_path / "ours.zarr", decode_cf=decode)
        xr.testing.assert_identical(ours, theirs)
    xr.testing.assert_identical(
        xr.open_dataset(tmp_path / "ours.zarr", engine="bedform").load(),
        opened(tmp_path / "theirs.zarr"),
    )


KINDS = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[ns]"]


@settings(deadline=None, max_examples=25)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.lists(st.integers(0, 5), max_size=3),
    in_chunks=st.booleans(),
)
def test_every_type_and_shape_is_written_as_to_zarr_writes_it(
    tmp_path_factory: pytest.TempPathFactory, kind: str, shape: list[int], in_chunks: bool
) -> None:
    place = tmp_path_factory.mktemp("types")
    values = np.arange(int(np.prod(shape))).reshape(shape).astype("i8").astype(kind)
    dataset = xr.Dataset({"v": ([f"d{axis}" for axis in range(len(shape))], values)})
    dataset.to_zarr(place / "theirs.zarr")
    write(dataset.chunk(2) if in_chunks else dataset, place / "ours.zarr")
    theirs, ours = opened(place / "theirs.zarr"), opened(place / "ours.zarr")
    xr.testing.assert_identical(ours, theirs)
    assert ours["v"].dtype == theirs["v"].dtype


@pytest.mark.parametrize(
    "encoding",
    [
        {"missing_value": np.nan},
        {"missing_value": np.nan, "_FillValue": np.nan},
        {"missing_value": -9.0, "_FillValue": -9.0},
    ],
)
def test_missing_data_stay_missing(tmp_path: Path, encoding: dict[str, float]) -> None:
    dataset = xr.Dataset({"v": ("x", [1.0, np.nan])})
    dataset["v"].encoding = encoding
    write(dataset, tmp_path / "s.zarr")
    xr.testing.assert_identical(opened(tmp_path / "s.zarr"), dataset)
    write(dataset, tmp_path / "s.zarr", append_dim="x")
    assert np.isnan(opened(tmp_path / "s.zarr")["v"]).values.tolist() == [False, True] * 2


@pytest.mark.parametrize(
    ("kind", "fill"), [("U4", "none"), (object, "none"), ("S4", "none"), ("S4", b"none")]
)
def test_a_fill_value_of_text_is_read_by_both_engines(
    tmp_path: Path, kind: Any, fill: str | bytes
) -> None:
    values = np.array(["a", "none", ""], "U4").astype(kind)
    dataset = xr.Dataset({"v": ("x", values)})
    dataset["v"].encoding = {"_FillValue": fill}
    write(dataset, tmp_path / "s.zarr")
    found = [xr.open_dataset(tmp_path / "s.zarr", engine=one).load() for one in ("bedform", "zarr")]
    xr.testing.assert_identical(*found)
    if kind != "S4":
        assert found[0]["v"].isnull().values.tolist() == [False, True, False]


PACKED = {"dtype": "int16", "scale_factor": 0.004}
TOO_LARGE = (
    r"'v': values from 1 to 271 do not fit int16 with scale_factor 0.004, "
    r"which holds -131.072 to 131.068"
)


@pytest.mark.parametrize("is_given", [True, False])
def test_packed_values_that_overflow_are_warned_of_or_refused(
    tmp_path: Path, is_given: bool
) -> None:
    dataset = xr.Dataset({"v": ("x", np.array([1.0, np.nan, 271.0], "f4"))})
    encoding = {**PACKED, "_FillValue": -32768}
    if not is_given:
        dataset["v"].encoding = encoding
    options = {"encoding": {"v": encoding}} if is_given else {}
    with pytest.raises(bf.InvalidArgumentError, match=f"^{TOO_LARGE}: choose another dtype"):
        write(dataset, tmp_path / "s.zarr", on_overflow="error", **options)
    assert not list(tmp_path.iterdir())
    with pytest.warns(bf.ConversionWarning, match=f"^{TOO_LARGE}: other values are stored"):
        write(dataset, tmp_path / "s.zarr", **options)
    # xarray's cast wraps.
    np.testing.assert_allclose(opened(tmp_path / "s.zarr")["v"], [1, np.nan, 8.856], rtol=1e-6)
    with pytest.raises(bf.InvalidArgumentError, match="on_overflow must be 'warn' or 'error'"):
        write(dataset, tmp_path / "t.zarr", on_overflow="ignore")


def test_values_that_overflow_in_an_append_or_a_region_are_refused(tmp_path: Path) -> None:
    fits = xr.Dataset({"v": ("x", [1.0, 100.0])})
    write(fits, tmp_path / "s.zarr", encoding={"v": PACKED}, on_overflow="error")
    large = xr.Dataset({"v": ("x", [1.0, 271.0])})
    for place in ({"append_dim": "x"}, {"region": {"x": slice(0, 2)}}, {"mode": "a"}):
        with pytest.raises(bf.InvalidArgumentError, match=TOO_LARGE):
            write(large, tmp_path / "s.zarr", on_overflow="error", **place)
        xr.testing.assert_allclose(opened(tmp_path / "s.zarr"), fits)


def test_blocks_of_dask_that_overflow_are_warned_of_once_or_refused(tmp_path: Path) -> None:
    values = np.linspace(0, 500, 64).reshape(8, 8)
    dataset = xr.Dataset({"v": (("y", "x"), values)}).chunk({"y": 2})
    said = r"'v': some values do not fit int16 with scale_factor 0.004, which holds -131.072"
    options: dict[str, Any] = {"encoding": {"v": PACKED}}
    with pytest.raises(bf.InvalidArgumentError, match=said):
        write(dataset, tmp_path / "s.zarr", on_overflow="error", **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        write(dataset, tmp_path / "s.zarr", **options)
    [warning] = [one for one in caught if one.category is bf.ConversionWarning]
    assert str(warning.message).startswith(said.replace("\\", ""))
    later = write(dataset, tmp_path / "t.zarr", compute=False, on_overflow="error", **options)
    with pytest.raises(bf.InvalidArgumentError, match=said):
        later.compute()


@pytest.mark.parametrize(
    ("values", "encoding", "is_right"),
    [
        ([-32768.4, 32767.4], {"dtype": "int16"}, True),
        ([32767.6], {"dtype": "int16"}, False),
        ([-32768.6], {"dtype": "int16"}, False),
        ([32767.0], {"dtype": "int16", "add_offset": 1.0}, True),
        ([32767.0], {"dtype": "int16", "add_offset": -1.0}, False),
        ([-3276.8, 3276.7], {"dtype": "int16", "scale_factor": 0.1}, True),
        ([3276.8, -3276.7], {"dtype": "int16", "scale_factor": -0.1}, True),
        ([3276.9], {"dtype": "int16", "scale_factor": -0.1}, False),
        ([200.0, np.nan], {"dtype": "int8", "_Unsigned": "true", "_FillValue": -1}, True),
        ([-1.0], {"dtype": "int8", "_Unsigned": "true", "_FillValue": 5}, False),
        ([np.inf], {"dtype": "int32", "_FillValue": -1}, False),
        ([np.nan], {"dtype": "int32", "_FillValue": -1}, True),
        ([1e300, np.inf], {"dtype": "float32"}, False),
        ([3e38, np.inf, np.nan], {"dtype": "float32"}, True),
        ([300], {"dtype": "uint8"}, False),
        ([-1], {"dtype": "uint64"}, False),
        ([255], {"dtype": "uint8"}, True),
        ([], {"dtype": "uint8"}, True),
    ],
)
def test_values_at_the_ends_of_a_range_are_judged_as_they_are_read_back(
    tmp_path: Path, values: list[float], encoding: dict[str, Any], is_right: bool
) -> None:
    dataset = xr.Dataset({"v": ("x", np.array(values, "f8" if not values else None))})
    options: dict[str, Any] = {"encoding": {"v": encoding}}
    if not is_right:
        with pytest.raises(bf.InvalidArgumentError, match="do not fit"):
            write(dataset, tmp_path / "s.zarr", on_overflow="error", **options)
        return
    write(dataset, tmp_path / "s.zarr", on_overflow="error", **options)
    step = abs(encoding.get("scale_factor", 1.0)) if encoding["dtype"] != "float32" else 0
    found = opened(tmp_path / "s.zarr")["v"].astype("f8")
    np.testing.assert_allclose(found, values, atol=step / 2 * 1.001, rtol=1e-6)


def test_attributes_that_are_nan_or_infinite_are_what_to_zarr_writes(tmp_path: Path) -> None:
    attributes = {"valid_range": [-np.inf, np.inf], "offset": np.nan, "word": "NaN"}
    dataset = xr.Dataset({"v": ("x", [1.0, 2.0], attributes)}, attrs=attributes)
    write(dataset, tmp_path / "ours.zarr")
    dataset.to_zarr(tmp_path / "theirs.zarr")
    for found in (opened(tmp_path / "ours.zarr"), opened(tmp_path / "theirs.zarr")):
        assert repr(found.attrs) == repr(found["v"].attrs) == repr(attributes)


def test_modes_create_refuse_replace_and_add(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    first, second = xr.Dataset({"a": ("x", [1, 2])}), xr.Dataset({"b": ("x", [3, 4])})
    with pytest.raises(FileNotFoundError, match="no such store"):
        write(first, path, mode="r+")
    write(first, path)
    with pytest.raises(FileExistsError, match="exists already"):
        write(second, path)
    write(second.assign_attrs(n=1), path, mode="a")
    xr.testing.assert_identical(opened(path), first.merge(second).assign_attrs(n=1))
    write(second * 2, path, mode="r+")
    xr.testing.assert_identical(opened(path)["b"], second["b"] * 2)
    with pytest.raises(ValueError, match="non-pre-existing variables \\['c'\\]"):
        write(second.rename(b="c"), path, mode="r+")
    write(second, path, mode="w")
    xr.testing.assert_identical(opened(path), second)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]


def test_what_is_no_store_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is no store"):
        write(series(0, 2), tmp_path / "notes", mode="w")
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"


def test_groups_are_written_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path, group="/a/b")
    write(series(1, 3, k="v"), path, group="c", mode="w-")
    with pytest.raises(FileExistsError, match="c exists already"):
        write(series(1, 3), path, group="c", mode="w-")
    write(chunked(series(5, 1, k="w"), x=1), path, group="c", mode="w")
    xr.testing.assert_identical(opened(path, group="a/b"), series(0, 2))
    xr.testing.assert_identical(opened(path, group="c"), series(5, 1, k="w"))
    assert not [entry for entry in path.iterdir() if entry.name.startswith(".bedform")]


KILLED = """
import os, signal, sys
import dask.array, numpy as np, xarray as xr
import bedform as bf
def die(block):
    os.kill(os.getpid(), signal.SIGKILL)
path, group = sys.argv[1], sys.argv[2] or None
values = dask.array.zeros((4,), chunks=2).map_blocks(die, dtype="f8", meta=np.zeros(0))
bf.write_dataset(xr.Dataset({"v": ("x", values)}), path, mode="w", group=group)
"""


@pytest.mark.parametrize("group", ["", "g"])
def test_who_writes_next_removes_what_a_killed_process_was_writing(
    tmp_path: Path, group: str
) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path)
    write(series(0, 2), path, group="g")

    def left() -> list[str]:
        places = (path, tmp_path)
        names = [entry.name for place in places for entry in place.iterdir()]
        return sorted(name for name in names if name.startswith(".bedform"))

    killed = [sys.executable, "-c", KILLED, str(path), group]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    assert len(left()) == 1
    xr.testing.assert_identical(opened(path, group=group or None), series(0, 2))
    write(series(1, 3), path, mode="w", group=group or None)
    assert left() == []
    # A store that is being written stays.
    live: Any = (
        _internal.StagedGroup(bf.open(path, "r+")._inner, group)
        if group
        else _internal.StagedStore(path, True, "{}")
    )
    kept = left()
    write(series(2, 3), path, mode="w", group=group or None)
    assert left() == kept != []
    xr.testing.assert_identical(opened(path, group=group or None), series(2, 3))
    live.discard()
    assert left() == []


def test_a_group_that_is_replaced_takes_its_commits_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path)
    write(series(0, 2), path, group="g")
    store = bf.open(path, "r+")
    with store.session(settle="later") as session:
        session.write("g/t", np.full((1, 3), 9, "f4"), start=(0, 0))
        session.write("t", np.full((1, 3), 9, "f4"), start=(0, 0))
    write(series(5, 4), path, group="g", mode="w")
    xr.testing.assert_identical(opened(path, group="g"), series(5, 4))
    store.settle()
    xr.testing.assert_identical(opened(path, group="g"), series(5, 4))
    assert (opened(path)["t"][0] == 9).all()
    assert bf.open(path).verify() == []


def test_a_store_that_is_replaced_takes_its_log_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path)
    with bf.open(path, "r+").session(settle="later") as session:
        session.write("t", np.full((1, 3), 9, "f4"), start=(0, 0))
    write(series(5, 4), path, mode="w")
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]
    with bf.open(path, "r+").session() as session:
        session.write("t", np.full((1, 3), 8, "f4"), start=(1, 0))
    assert (opened(path)["t"][1] == 8).all()


@pytest.mark.parametrize("group", [None, "g"])
def test_an_empty_data_set_replaces_all_that_was_there(tmp_path: Path, group: str | None) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path, group=group)
    for title in ("none", "still none"):
        write(xr.Dataset(attrs={"title": title}), path, group=group, mode="w")
        found = opened(path, group=group)
        assert (len(found), found.attrs) == (0, {"title": title})
    write(series(1, 2), path, group=group, mode="w")
    xr.testing.assert_identical(opened(path, group=group), series(1, 2))


@pytest.mark.parametrize("dask", [False, True])
def test_an_append_grows_every_variable_as_to_zarr_does(tmp_path: Path, dask: bool) -> None:
    ours, theirs = tmp_path / "ours.zarr", tmp_path / "theirs.zarr"
    start = series(0, 4)
    start["time"].encoding = {"units": "hours since 1999-12-31", "dtype": "i4"}
    more = series(4, 3, title="longer")
    more["mask"] = more["mask"] * 2
    for function, path in ((write, ours), (xr.Dataset.to_zarr, theirs)):
        function(start, path)
        part = more.chunk({"time": 1}) if dask and path == ours else more
        function(part, path, append_dim="time")
    xr.testing.assert_identical(opened(ours), opened(theirs))
    assert opened(ours)["time"].encoding["units"] == "hours since 1999-12-31"


def test_mode_a_minus_leaves_variables_that_do_not_grow(tmp_path: Path) -> None:
    write(series(0, 2), tmp_path / "s.zarr")
    more = series(2, 2)
    more["mask"] = more["mask"] * 2
    write(more, tmp_path / "s.zarr", mode="a-", append_dim="time")
    xr.testing.assert_identical(opened(tmp_path / "s.zarr"), series(0, 4))


def broken(block: np.ndarray) -> np.ndarray:
    raise RuntimeError("the simulation crashed")


def breaking(dataset: xr.Dataset) -> xr.Dataset:
    data = dask.array.map_blocks(broken, dataset["t"].chunk({"x": 1}).data, dtype="f4")
    return dataset.assign(t=(("time", "x"), data))


def test_an_append_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path)
    with pytest.raises(RuntimeError, match="the simulation crashed"):
        write(breaking(series(2, 2)), path, append_dim="time")
    xr.testing.assert_identical(opened(path), series(0, 2))
    write(series(2, 1), path, append_dim="time")
    xr.testing.assert_identical(opened(path), series(0, 3))


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("mode", ["w-", "w", "a"])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, mode: Any, group: str | None
) -> None:
    path = tmp_path / "s.zarr"
    if mode != "w-":
        write(series(0, 2), path, group=group)
    failing = breaking(series(7, 2)).rename(t="u" if mode == "a" else "t")
    failing = failing[["u"]].drop_vars("time") if mode == "a" else failing
    with pytest.raises(RuntimeError, match="the simulation crashed"):
        write(failing, path, mode=mode, group=group)
    if mode == "w-":
        assert list(tmp_path.iterdir()) == []
    else:
        xr.testing.assert_identical(opened(path, group=group), series(0, 2))


def test_a_new_data_set_appears_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"

    def hidden(block: np.ndarray) -> np.ndarray:
        assert not path.exists()
        return block

    data = dask.array.ones((4, 3), chunks=(1, 3)).map_blocks(hidden, dtype="f8")
    write(xr.Dataset({"t": (("time", "x"), data)}), path)
    assert opened(path)["t"].sum() == 12


def test_new_variables_appear_together(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(xr.Dataset({"old": ("x", [1, 2])}), path)

    def hidden(block: np.ndarray) -> np.ndarray:
        assert set(bf.open(path)) == {"old"}
        return block

    data = dask.array.ones((2, 3), chunks=(1, 3)).map_blocks(hidden, dtype="f8")
    write(xr.Dataset({"a": (("x", "y"), data), "b": ("y", [1, 2, 3])}), path, mode="a")
    assert set(bf.open(path)) == {"old", "a", "b"}


def test_a_region_is_written_by_slices_or_found_by_its_coordinates(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 6), path)
    part = series(2, 2).drop_vars("mask") * -1
    expected = series(0, 6)
    expected["t"][2:4] *= -1
    write(part, path, region={"time": slice(2, 4)})
    xr.testing.assert_identical(opened(path), expected)
    write(part * 2, path, region="auto")
    write(chunked(part.isel(time=slice(1, 2)) * 3, x=2), path, region={"time": "auto"})
    expected["t"][2:4] = (part * 2)["t"].values
    expected["t"][3] = (part * 3)["t"][1].values
    xr.testing.assert_identical(opened(path), expected)


def test_a_region_with_other_coordinates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 6), path)
    part = series(2, 2).drop_vars("mask")
    with pytest.raises(ValueError, match="'time' differs from the store's"):
        write(part, path, region={"time": slice(0, 2)})
    with pytest.raises(KeyError, match="not all values of 'time' are in the store"):
        write(series(9, 2).drop_vars("mask"), path, region="auto")
    with pytest.raises(ValueError, match="has 3 of the 6 indices along 'time', the data set has 2"):
        write(part.drop_vars("time"), path, region={"time": slice(0, 3)})
    xr.testing.assert_identical(opened(path), series(0, 6))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda d: d.drop_vars("t"), {}, "t: in the store"),
        (lambda d: d.assign(new=("time", [1, 2])), {}, "new: not in the store"),
        (lambda d: d.isel(x=[0, 1]), {}, "different dimension sizes"),
        (lambda d: d.rename(x="y"), {}, "different dimension names"),
        (lambda d: d.assign(t=d["t"].astype("S")), {}, "Mismatched dtypes"),
        (lambda d: d, {"encoding": {"t": {"dtype": "f8"}}}, "encoding was provided"),
        (lambda d: d, {"append_dim": "depth"}, "does not match any existing"),
        (lambda d: d, {"mode": "w"}, "cannot set append_dim"),
    ],
)
def test_an_append_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, change: Any, options: dict[str, Any], message: str
) -> None:
    path = tmp_path / "s.zarr"
    write(series(0, 2), path)
    with pytest.raises(ValueError, match=message) as caught:
        write(change(series(2, 2)), path, **{"append_dim": "time", **options})
    assert "\n" not in str(caught.value)
    xr.testing.assert_identical(opened(path), series(0, 2))


def test_chunks_shards_and_compressors_of_the_caller_are_obeyed(tmp_path: Path) -> None:
    from zarr.codecs import BloscCodec, GzipCodec

    dataset = xr.Dataset({n: (("y", "x"), np.ones((40, 50))) for n in "abcd"})
    dataset["c"].encoding = {"chunks": (8, 10), "compressors": (GzipCodec(level=1),)}
    encoding = {
        "a": {"chunks": (10, 10), "shards": (20, 50), "compressors": [BloscCodec(cname="lz4")]},
        "b": {"compressors": None},
        "d": {"compressors": ({"name": "zstd", "configuration": {"level": 9}},)},
    }
    write(dataset, tmp_path / "s.zarr", encoding=encoding)
    store = bf.open(tmp_path / "s.zarr")
    codecs = {n: [c["name"] for c in store[n].info()["codecs"]][1:-1] for n in "abcd"}
    assert (store["a"].chunks, store["a"].shards) == ((10, 10), (20, 50))
    assert store["c"].chunks == (8, 10)
    assert codecs == {"a": ["blosc"], "b": [], "c": ["gzip"], "d": ["zstd"]}


def test_what_the_engine_cannot_encode_is_refused_only_if_asked_for(tmp_path: Path) -> None:
    import numcodecs

    dataset = xr.Dataset({"a": ("x", np.arange(5))})
    wishes = {"compressors": (numcodecs.LZMA(),)}
    with pytest.raises(NotImplementedError, match="'lzma' is not supported"):
        write(dataset, tmp_path / "s.zarr", encoding={"a": wishes})
    dataset["a"].encoding = wishes
    write(dataset, tmp_path / "s.zarr")
    xr.testing.assert_identical(opened(tmp_path / "s.zarr"), dataset)


def test_layouts_come_from_the_reads(tmp_path: Path) -> None:
    shape = (64, 64, 64)
    dataset = xr.Dataset(
        {"maps": (("time", "y", "x"), np.zeros(shape)), "flags": ("depth", np.zeros(64))}
    )
    reads = {("y", "x"): 1.0, ("depth",): 1.0}
    write(dataset, tmp_path / "maps.zarr", reads=reads, readers="bedform")
    assert bf.open(tmp_path / "maps.zarr")["maps"].chunks[0] == 1
    # zarr-python prefers larger chunks: a few whole maps.
    write(dataset, tmp_path / "any.zarr", reads=reads)
    assert bf.open(tmp_path / "any.zarr")["maps"].chunks[1:] == (64, 64)
    write(dataset, tmp_path / "series.zarr", reads={("time",): 1.0})
    assert bf.open(tmp_path / "series.zarr")["maps"].chunks[0] == 64
    regular = bf.Regular((8, 16, 32), (16, 32, 64), "hilbert")
    for name, layout in (("all", regular), ("one", {"maps": regular})):
        write(dataset, tmp_path / f"{name}.zarr", layout=layout, codecs=["gzip"])
        maps = bf.open(tmp_path / f"{name}.zarr")["maps"]
        assert (maps.chunks, maps.shards, maps.order) == ((8, 16, 32), (16, 32, 64), "hilbert")
        assert maps.info()["codecs"][1]["name"] == "gzip"


@given(
    axis=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    start=st.integers(0, 20),
    block=st.integers(1, 8),
)
def test_no_block_has_two_writers_after_alignment(axis: list[int], start: int, block: int) -> None:
    data = dask.array.zeros(sum(axis), chunks=(tuple(axis),))
    cut = align(data, [start], [block]).chunks[0]
    ends = np.cumsum([start, *cut])
    assert ends[-1] == start + sum(axis)
    assert all(end % block == 0 for end in ends[1:-1])


def test_advised_shards_fit_into_the_chunks_of_dask(tmp_path: Path) -> None:
    data = dask.array.ones((64, 64, 64), chunks=(4, 64, 64))
    write(xr.Dataset({"v": (("time", "y", "x"), data)}), tmp_path / "s.zarr")
    array = bf.open(tmp_path / "s.zarr")["v"]
    assert array.shards[0] == max(4, array.chunks[0])
    assert (array[...] == 1).all()


def test_chunks_are_not_put_together_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dask.array.zeros((64, 64), chunks=(4, 64))
    assert align(data, [0, 0], [32, 8]).chunks[0] == (32, 32)
    monkeypatch.setattr("bedform._chunked_values.PIECE_BYTES", 8 * 31 * 64)
    assert align(data, [0, 0], [32, 8]).chunks[0] == (4,) * 16


@pytest.mark.parametrize("safe_chunks", [True, False])
def test_dask_chunks_that_share_shards_are_written_right(tmp_path: Path, safe_chunks: bool) -> None:
    values = np.random.default_rng(3).normal(size=(23, 17))
    dataset = xr.Dataset({"v": (("y", "x"), values)})
    write(
        dataset.chunk({"y": 5, "x": 7}),
        tmp_path / "s.zarr",
        encoding={"v": {"chunks": (2, 3), "shards": (8, 6)}},
        safe_chunks=safe_chunks,
    )
    xr.testing.assert_identical(opened(tmp_path / "s.zarr"), dataset)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("processes", [False, True])
def test_workers_of_distributed_write_new_arrays_and_appends(
    tmp_path: Path, processes: bool
) -> None:
    distributed = pytest.importorskip("distributed")
    path = tmp_path / "s.zarr"
    with distributed.Client(
        processes=processes, n_workers=2, threads_per_worker=1, dashboard_address=None
    ):
        write(chunked(series(0, 4), time=2), path)
        write(chunked(series(4, 4), time=1), path, append_dim="time")
        extra = chunked(series(0, 8)[["t"]].rename(t="u"), x=1)
        write(extra, path, mode="a")
    xr.testing.assert_identical(opened(path), series(0, 8).assign(u=series(0, 8)["t"]))


def test_without_computing_arrays_are_there_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    dataset = series(0, 4)
    dataset["t"] = dataset["t"].chunk({"time": 2})
    later = write(dataset, path, compute=False)
    assert np.isnan(opened(path)["t"]).all()
    assert opened(path)["mask"].values.tolist() == [1, 2, 3]
    pickle.loads(pickle.dumps(later)).compute()  # noqa: S301 - our own
    xr.testing.assert_identical(opened(path), series(0, 4))
    more = write(chunked(series(4, 2), time=1), path, append_dim="time", compute=False)
    assert opened(path).sizes["time"] == 6
    more.compute()
    xr.testing.assert_identical(opened(path), series(0, 6))


@pytest.mark.parametrize("piece", [0, 1 << 30])
def test_what_was_opened_lazily_is_written_again(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedform._chunked_values.LAZY_BYTES", piece)
    write(everything(), tmp_path / "first.zarr")
    for engine in ("bedform", "zarr"):
        with xr.open_dataset(tmp_path / "first.zarr", engine=engine) as lazy:
            write(lazy, tmp_path / f"{engine}.zarr")
        xr.testing.assert_identical(
            opened(tmp_path / f"{engine}.zarr"), opened(tmp_path / "first.zarr")
        )


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        (xr.DataArray([1]), TypeError, "takes an xarray.Dataset, not DataArray"),
        (xr.Dataset({3: ("x", [1])}), TypeError, "the name 3 cannot be stored"),
        (xr.Dataset({"a/b": ("x", [1])}), ValueError, "write it with group='a'"),
        (xr.Dataset({"": ("x", [1])}), ValueError, "length 1 or longer"),
        (xr.Dataset(attrs={"a": object()}), TypeError, "'a' of the data set"),
        (xr.Dataset({"../v": ("x", [1])}), ValueError, r"\.\."),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is(
    tmp_path: Path, dataset: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        write(dataset, tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_values_that_zarr_has_no_type_for_are_refused_by_name(tmp_path: Path) -> None:
    lists = np.empty(2, object)
    lists[:] = [np.arange(2.0), np.arange(3.0)]
    for values in (lists, np.zeros(2, "longdouble"), np.zeros(2, [("a", "i4")])):
        with pytest.raises((bf.BedformError, TypeError, ValueError), match="odd"):
            bf.write_dataset(xr.Dataset({"odd": ("x", values)}), tmp_path / "s.zarr")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [{"append_dim": "time"}, {"mode": "a"}, {"mode": "r+"}])
def test_times_that_the_stores_unit_cannot_count_are_refused(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    def dataset(minutes: int) -> xr.Dataset:
        times = pd.date_range("2001-01-01", periods=4, freq="6h") + pd.Timedelta(minutes=minutes)
        return xr.Dataset({"t": ("time", np.arange(4.0))}, coords={"time": times})

    # As in real files; xarray itself writes the day as 2001-01-01.
    encoding = {"time": {"units": "hours since 2001-1-1", "dtype": "int64"}}
    path = tmp_path / "s.zarr"
    bf.write_dataset(dataset(0), path, encoding=encoding)
    with (
        pytest.warns(UserWarning, match="minutes"),
        pytest.raises(bf.InvalidArgumentError, match="no whole numbers of the store's unit"),
    ):
        bf.write_dataset(dataset(1470), path, **how)
    assert xr.open_dataset(path, engine="bedform").identical(
        xr.open_dataset(path, engine="zarr", consolidated=None)
    )
    later = dataset(24 * 60)
    bf.write_dataset(later, path, **how)
    found = xr.open_dataset(path, engine="bedform")
    assert (found.time.to_numpy()[-4:] == later.time.to_numpy()).all()


def objects_of(array: Path) -> dict[str, tuple[int, int]]:
    """Returns the stored objects of an array, with times that change when one is rewritten."""
    found = (path for path in (array / "c").rglob("*") if path.is_file())
    states = ((path, path.stat()) for path in found)
    return {str(p.relative_to(array)): (state.st_ino, state.st_mtime_ns) for p, state in states}


@pytest.mark.parametrize("is_lazy", [False, True])
def test_an_append_writes_no_shard_that_was_full_and_no_coordinate_again(
    tmp_path: Path, is_lazy: bool
) -> None:
    path = tmp_path / "s.zarr"
    # The shards extend beyond the end of x, which does not grow.
    layout = bf.Regular((1, 2), (2, 4))
    kept = xr.DataArray([1.5, np.nan, 3], dims="x")
    write(series(0, 4).assign_coords(x=kept), path, layout={"t": layout})
    before = {name: objects_of(path / name) for name in ("t", "x", "mask")}
    more = series(4, 2).assign_coords(x=kept)
    write(more.assign(t=more["t"].chunk(time=1)) if is_lazy else more, path, append_dim="time")
    after = {name: objects_of(path / name) for name in ("t", "x", "mask")}
    assert len(after["t"]) == 3
    assert before["t"].items() <= after["t"].items()
    assert (before["x"], before["mask"]) == (after["x"], after["mask"])
    changed = series(6, 1).assign_coords(x=kept).assign(mask=("x", [1, 2, 4]))
    write(changed, path, append_dim="time")
    assert objects_of(path / "x") == before["x"]
    assert opened(path)["mask"].values.tolist() == [1, 2, 4]
    xr.testing.assert_equal(opened(path)["t"].drop_vars("x"), series(0, 7)["t"])


def test_what_a_growing_axis_shows_was_never_there(tmp_path: Path) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array(
        "t", (4, 4), "i4", ("time", "x"), layout=bf.Regular((2, 2), (4, 4)), fill_value=-1
    )
    expected = np.arange(16).reshape(4, 4)
    array[...] = expected
    for shape in ((4, 3), (6, 3), (6, 6), (3, 6), (5, 8), (5, 2), (7, 7)):
        array.resize(shape)
        larger = np.full(np.maximum(shape, expected.shape), -1)
        larger[: expected.shape[0], : expected.shape[1]] = expected
        expected = larger[: shape[0], : shape[1]]
        np.testing.assert_array_equal(array[...], expected)


def test_an_append_with_another_coordinate_warns_unless_a_mode_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"

    def part(first: int, x: list[float]) -> xr.Dataset:
        data = np.full((2, 3), first, "f4")
        coords = {"time": [first, first + 1], "x": x}
        return xr.Dataset({"t": (("time", "x"), data)}, coords)

    bf.write_dataset(part(0, [1.0, 2.0, np.nan]), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CoordinateWarning)
        bf.write_dataset(part(2, [1.0, 2.0, np.nan]), path, append_dim="time")
        bf.write_dataset(part(4, [7.0, 8.0, 9.0]), path, append_dim="time", mode="a-")
        assert opened(path)["x"].values[0] == 1
        bf.write_dataset(part(6, [7.0, 8.0, 9.0]), path, append_dim="time", mode="a")
        assert opened(path)["x"].values[0] == 7
    with pytest.warns(CoordinateWarning, match="x: the append overwrites") as caught:
        bf.write_dataset(part(8, [4.0, 5.0, 6.0]), path, append_dim="time")
    assert caught[0].filename == __file__
    # Like to_zarr, which gives no warning.
    assert opened(path)["x"].values[0] == 4


def test_a_region_of_another_size_is_said_with_the_sizes(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    dataset = xr.Dataset({"t": (("time", "x"), np.zeros((4, 3)))})
    bf.write_dataset(dataset, path)
    said = "the region has 1 of the 4 indices along 'time', the data set has 2"
    with pytest.raises(bf.InvalidArgumentError, match=said):
        bf.write_dataset(dataset.isel(time=[0, 1]), path, region={"time": slice(3, 5)})
    for part in (slice(2**70, None), slice(None, -(2**70))):
        with pytest.raises(bf.InvalidArgumentError, match="has 0 of the 4 indices along 'time'"):
            bf.write_dataset(dataset.isel(time=[0, 1]), path, region={"time": part})
    for bound in ("2001-01-01", 1.5, True):
        with pytest.raises(bf.WrongTypeError, match="region of 'time': the slice takes positions"):
            bf.write_dataset(dataset, path, region={"time": slice(bound, None)})
