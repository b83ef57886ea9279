"""The xarray backend on NetCDF files, compared with xarray's own backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iris_sample_data
import netCDF4
import numpy as np
import pytest
import xarray as xr
from support import without_blocks

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
