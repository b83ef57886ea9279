"""The xarray backend on NetCDF files, compared with xarray's own backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import iris_sample_data
import netCDF4
import numpy as np
import pytest
import xarray as xr
from support import without_blocks

import bedform as bf

SAMPLES = sorted(Path(iris_sample_data.path).rglob("*.nc"))


def assert_same(path: Path, **options: Any) -> None:
    """Asserts that the data set equals netcdf4's, including encodings."""
    with xr.open_dataset(path, engine="netcdf4", **options) as expected:
        found = xr.open_dataset(path, engine="bedform", **options)
        xr.testing.assert_identical(found.load(), expected.load())
        assert found.encoding == expected.encoding
        for name in expected.variables:
            encodings = [without_blocks(each[name].encoding) for each in (found, expected)]
            assert repr(sorted(encodings[0].items())) == repr(sorted(encodings[1].items())), name


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_real_file_is_identical_to_what_the_netcdf4_engine_gives(path: Path) -> None:
    assert_same(path)


def test_samples_are_there() -> None:
    assert len(SAMPLES) >= 10


@pytest.mark.parametrize(
    "kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4"]
)
def test_every_kind_of_netcdf_is_identical_raw_and_decoded(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "kind.nc"
    rng = np.random.default_rng(3)
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.title = "a file"
        file.createDimension("time", None)
        file.createDimension("x", 6)
        file.createDimension("name", 4)
        chunked = {"zlib": True, "chunksizes": (2, 3)} if kind == "NETCDF4" else {}
        packed = file.createVariable("t", "i2", ("time", "x"), fill_value=-99, **chunked)
        packed.scale_factor, packed.add_offset, packed.units = np.float32(0.5), np.float32(2), "K"
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2000-01-01"
        names = file.createVariable("label", "S1", ("x", "name"))
        packed[:] = rng.normal(size=(5, 6)) * 9
        time[:] = np.arange(5)
        names[:] = netCDF4.stringtochar(np.array(["ab", "c", "", "dddd", "e", "f"], "S4"))
    assert_same(path)
    assert_same(path, decode_cf=False)


def test_blocks_for_dask_are_many_chunks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "maps.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 800), ("y", 128), ("x", 128)):
            file.createDimension(name, size)
        file.createVariable("t", "f4", ("time", "y", "x"), zlib=True, chunksizes=(1, 128, 128))
    lazy = xr.open_dataset(path, engine="bedform", chunks={})
    assert lazy["t"].chunks == ((400, 400), (128,), (128,))


def test_foreign_data_are_read_lazily_and_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "lazy.nc"
    values = xr.Dataset({"v": (("a", "b"), np.arange(600.0).reshape(20, 30))})
    values.to_netcdf(path, engine="netcdf4")
    lazy = xr.open_dataset(path, engine="bedform", chunks={"a": 5})
    assert lazy["v"].chunks == ((5,) * 4, (30,))
    picked = lazy["v"].isel(a=slice(None, None, -3), b=[4, 1, 1]).compute()
    xr.testing.assert_equal(picked, values["v"].isel(a=slice(None, None, -3), b=[4, 1, 1]))


def test_the_groups_of_a_file_are_a_tree(tmp_path: Path) -> None:
    path = tmp_path / "groups.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        for group, values in (("forcing", [1, 2, 3]), ("forcing/deep", [4, 5, 6])):
            file.createGroup(group).createVariable("u", "f4", ("x",))[:] = values
    tree = xr.open_datatree(path, engine="bedform")
    assert set(tree.groups) == {"/", "/forcing", "/forcing/deep"}
    assert tree["/forcing/deep/u"].to_numpy().tolist() == [4, 5, 6]
    below = xr.open_datatree(path, engine="bedform", group="forcing")
    assert set(below.groups) == {"/", "/deep"}
    assert below["/u"].to_numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "engine"),
    [("NETCDF4", "netcdf4"), ("NETCDF4", "h5netcdf"), ("NETCDF3_64BIT", "netcdf4")],
)
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("is_archive", [False, True])
def test_a_data_set_that_is_saved_onto_its_own_file_is_told_to_load_first(
    tmp_path: Path, kind: Any, engine: Any, is_chunked: bool, is_archive: bool
) -> None:
    path = tmp_path / "own.nc"
    values = np.random.default_rng(1).normal(size=(6, 40, 40))
    dataset = xr.Dataset({"t": (("time", "y", "x"), values)}, {"time": np.arange(6.0)})
    is_chunked = is_chunked and kind == "NETCDF4"
    encoding = {"t": {"chunksizes": (1, 20, 20), "zlib": True}} if is_chunked else {}
    dataset.to_netcdf(path, format=kind, encoding=encoding)
    later = tmp_path / "own2.nc"
    dataset.assign_coords(time=dataset["time"] + 6).to_netcdf(later, format=kind)
    place = [str(path), str(later)] if is_archive else path
    how = {"concat_dim": "time"} if is_archive else {}
    with xr.open_dataset(place, engine="bedform", **how) as opened:
        loaded = opened.load().copy()
    lazy = xr.open_dataset(place, engine="bedform", **how).assign_attrs(title="edited")
    remedy = r"own\.nc was overwritten by this process while .* load\(\) a data set before"
    with pytest.raises(bf.ConflictError, match=remedy):
        lazy.to_netcdf(path, format=kind, engine=engine)
    # The reason stays when the writer has closed the file.
    with pytest.raises(bf.ConflictError, match=remedy):
        lazy["t"].values  # noqa: B018
    loaded.assign_attrs(title="edited").to_netcdf(path, format=kind, engine=engine)
    with xr.open_dataset(path, engine="bedform") as again:
        assert again.attrs["title"] == "edited"
        np.testing.assert_array_equal(again["t"], loaded["t"])


def test_a_file_that_this_process_is_writing_is_not_said_to_be_anothers(tmp_path: Path) -> None:
    path = tmp_path / "own.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["t"] = [1, 2]
        file.flush()
        with pytest.raises(bf.ConflictError, match="this process has it open for writing: close"):
            bf.open(path)


def text_file(path: Path) -> None:
    """A file with text and integers whose missing values need a decoder's care."""
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(4)
        file["x"].make_scale("x")
        variables = {
            "text": (np.array(["a", "", "none", "d"], h5py.string_dtype()), {"_FillValue": "none"}),
            "both": (
                np.array(["a", "", "none", "d"], h5py.string_dtype()),
                {"_FillValue": "none", "missing_value": "none"},
            ),
            "narrow": (np.array([1, 127, 200, 255], "u1"), {"_Unsigned": "false"}),
            "signed": (
                np.array([1, 127, 200, 255], "u1"),
                {"_Unsigned": "false", "_FillValue": np.uint8(255)},
            ),
            "unsigned": (
                np.array([1, 127, -56, -1], "i1"),
                {"_Unsigned": "true", "_FillValue": np.int8(-1)},
            ),
            "wide": (
                np.array([1, 2, 40_000, 65_535], "u2"),
                {"_Unsigned": "false", "_FillValue": np.uint16(40_000), "scale_factor": 0.5},
            ),
        }
        for name, (values, attributes) in variables.items():
            file[name] = values
            file[name].dims[0].attach_scale(file["x"])
            file[name].attrs.update(attributes)


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_what_is_converted_is_decoded_by_both_engines_as_the_file_is(tmp_path: Path) -> None:
    text_file(tmp_path / "file.nc")
    bf.convert(tmp_path / "file.nc", tmp_path / "copy.zarr")
    # Once more, from a store.
    bf.convert(tmp_path / "copy.zarr", tmp_path / "again.zarr")
    with xr.open_dataset(tmp_path / "file.nc", engine="h5netcdf") as file:
        expected = file.load()
    assert expected["text"].isnull().values.tolist() == [False, False, True, False]
    assert expected["signed"].values.tolist()[:3] == [1, 127, -56]
    for place in ("copy.zarr", "again.zarr"):
        for engine in ("bedform", "zarr"):
            with xr.open_dataset(tmp_path / place, engine=engine) as found:
                xr.testing.assert_equal(found.load(), expected)


def test_converted_characters_with_a_fill_value_are_opened_by_both_engines(tmp_path: Path) -> None:
    path = tmp_path / "file.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("n", 4)
        for name, encoding in (("bytes", None), ("text", "utf-8")):
            variable = file.createVariable(name, "S1", ("x", "n"), fill_value="x")
            variable.set_auto_chartostring(False)
            variable[:] = netCDF4.stringtochar(np.array(["ab", "xxxx", ""], "S4"))
            if encoding is not None:
                variable._Encoding = encoding
    bf.convert(path, tmp_path / "copy.zarr")
    with xr.open_dataset(path, engine="netcdf4") as file:
        expected = file.load()
    for engine in ("bedform", "zarr"):
        with xr.open_dataset(tmp_path / "copy.zarr", engine=engine) as found:
            xr.testing.assert_equal(found.load(), expected)


def test_a_data_set_with_such_values_is_written_for_both_engines(tmp_path: Path) -> None:
    text_file(tmp_path / "file.nc")
    with xr.open_dataset(tmp_path / "file.nc", engine="h5netcdf") as file:
        # xarray encodes no text with both attributes.
        expected = file.load().drop_vars("both")
    bf.write_dataset(expected, tmp_path / "written.zarr")
    for engine in ("bedform", "zarr"):
        with xr.open_dataset(tmp_path / "written.zarr", engine=engine) as found:
            xr.testing.assert_equal(found.load(), expected)
    more = expected.assign_coords(x=expected["x"] + 4)
    bf.write_dataset(more, tmp_path / "written.zarr", append_dim="x")
    with xr.open_dataset(tmp_path / "written.zarr", engine="zarr") as found:
        xr.testing.assert_equal(found.load(), xr.concat([expected, more], "x"))
