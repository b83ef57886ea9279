"""Attributes of foreign files: shown, refused by name, or kept to the byte; never lost."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import bedform as bf
from bedform._export import _attribute, export
from bedform._foreign import chunk_map
from bedform.xarray_backend import LeftOutWarning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: h5py's text for Latin-1 bytes in place of UTF-8.
CAFE = "caf\udce9"


def write_odd(path: Path, *, is_netcdf: bool) -> Path:
    """A file with attributes of every kind that is not shown."""
    with h5py.File(path, "w") as file:
        x = file.create_dataset("group/x", data=np.arange(3.0))
        if is_netcdf:
            x.make_scale("x")
        x.attrs["units"] = "m"
        x.attrs["flag"] = True
        x.attrs["phase"] = 1 + 2j
        x.attrs["record"] = np.zeros(1, [("a", "i4"), ("b", "f4")])
        x.attrs["reference"] = x.ref
        ragged = np.empty(2, object)
        ragged[:] = [np.arange(2, dtype="i4"), np.arange(3, dtype="i4")]
        x.attrs.create("ragged", ragged, dtype=h5py.vlen_dtype("i4"))
        x.attrs["opaque"] = np.void(b"abc")
        file["group"].attrs["record"] = np.zeros(2, [("a", "i4")])
        file.attrs["record"] = np.zeros(2, [("a", "i4")])
    return path


@pytest.mark.parametrize("is_netcdf", [False, True])
def test_attributes_that_are_not_shown_are_refused_by_name(tmp_path: Path, is_netcdf: bool) -> None:
    path = write_odd(tmp_path / "file.h5", is_netcdf=is_netcdf)
    with bf.open(path) as store:
        shown = {"units"} if is_netcdf else {"units", "flag", "phase"}
        assert set(store["group/x"].attributes) == shown
        refused = store.refused()
        by_h5py = json.loads(chunk_map(path).description)
        assert json.loads(store._opened.description())["groups"] == by_h5py["groups"]
    expected = {
        ":record": "an attribute of records, which h5py reads",
        "group/:record": "an attribute of records, which h5py reads",
        "group/x:record": "an attribute of records, which h5py reads",
        "group/x:reference": "an attribute of references, which h5py reads",
        "group/x:ragged": "an attribute of lists of any length, which h5py reads",
        "group/x:opaque": "an attribute of opaque bytes, which h5py reads",
    }
    if is_netcdf:
        expected["group/x:flag"] = "an attribute of type bool, which NetCDF does not have"
        expected["group/x:phase"] = "an attribute of type complex128, which NetCDF does not have"
    assert refused == expected


def test_a_conversion_says_which_attributes_it_leaves_out_in_a_line_each(tmp_path: Path) -> None:
    path = write_odd(tmp_path / "file.nc", is_netcdf=True)
    done = bf.convert(path, tmp_path / "a.zarr")
    assert len(done.warnings) == 8
    assert "'group/x:flag' is left out: an attribute of type bool" in " ".join(done.warnings)
    with h5py.File(path, "a") as file:
        for number in range(50):
            file["group/x"].attrs[f"record{number}"] = np.zeros(1, [("a", "i4")])
    many = bf.convert(path, tmp_path / "b.zarr").warnings
    assert len(many) == 21
    assert many[-1] == "38 more are left out: bedform info lists them with the reasons"


def write_latin1(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=np.arange(3.0))
        x.make_scale("x")
        x.attrs["fixed"] = np.bytes_(b"caf\xe9")
        x.attrs.create("any length", b"caf\xe9", dtype=h5py.string_dtype())
        x.attrs.create("list", [b"caf\xe9", b"tea"], dtype=h5py.string_dtype())
        x.attrs["caf\u00e9"] = "caf\u00e9"
    return path


def test_text_that_is_not_utf8_comes_back_to_the_byte(tmp_path: Path) -> None:
    expected = {
        "fixed": CAFE,
        "any length": CAFE,
        "list": [CAFE, "tea"],
        "caf\u00e9": "caf\u00e9",
    }
    path = write_latin1(tmp_path / "a.nc")
    with bf.open(path) as file:
        assert dict(file["x"].attributes) == expected
    bf.convert(path, tmp_path / "a.zarr")
    assert dict(zarr.open_group(tmp_path / "a.zarr", mode="r")["x"].attrs) == expected
    with bf.open(tmp_path / "a.zarr") as store:
        assert dict(store["x"].attributes) == expected
        for suffix in ("nc", "h5"):
            export(store, tmp_path / f"b.{suffix}")
            with h5py.File(tmp_path / f"b.{suffix}") as back:
                attributes = back["x"].attrs
                assert attributes["fixed"].encode("utf-8", "surrogateescape") == b"caf\xe9"
                assert list(attributes["list"]) == [CAFE, "tea"]


def test_classic_text_that_is_not_utf8_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "classic.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.title = "caf@"
    path.write_bytes(path.read_bytes().replace(b"caf@", b"caf\xe9"))
    with bf.open(path) as store:
        assert store.attributes["title"] == CAFE


def test_xarray_shows_such_text_as_its_own_engine_does_and_says_so(tmp_path: Path) -> None:
    path = write_latin1(tmp_path / "a.nc")
    with pytest.warns(LeftOutWarning, match="not UTF-8 have U\\+FFFD") as caught:
        dataset = xr.open_dataset(path, engine="bedform")
    assert len(caught) == 1
    with xr.open_dataset(path, engine="netcdf4") as expected:
        assert dataset["x"].attrs == expected["x"].attrs
    repr(dataset["x"]).encode()


def test_lists_of_lists_are_attributes_of_hdf5_and_refused_for_netcdf(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "a.zarr")
    t = store.create_array("t", data=np.arange(3.0))
    t.attributes["matrix"] = [[1, 2], [3, 4]]
    export(store, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["t"].attrs["matrix"].tolist() == [[1, 2], [3, 4]]
    with bf.open(tmp_path / "a.h5") as file:
        assert np.asarray(file["t"].attributes["matrix"]).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(bf.UnsupportedError, match=r"'matrix' has lists in a list.*write an \.h5"):
        export(store, tmp_path / "a.nc")
    t.attributes["matrix"] = [[1, 2], [3]]
    with pytest.raises(bf.UnsupportedError, match="'matrix': its lists differ in length"):
        export(store, tmp_path / "b.h5")
    with pytest.raises(bf.UnsupportedError, match="half a pair of UTF-16"):
        _attribute("\ud800")


def test_the_command_line_lists_refused_attributes(
    tmp_path: Path, bedform_command: Callable[..., Any]
) -> None:
    path = write_odd(tmp_path / "file.nc", is_netcdf=True)
    shown = bedform_command("info", str(path)).stdout
    assert "refused: group/x:flag" in shown
    done = bedform_command("convert", str(path), str(tmp_path / "a.zarr"))
    assert "warning: 'group/x:reference' is left out: an attribute of references" in done.stdout


def test_opening_a_file_with_plain_attributes_warns_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title = "caf\u00e9"
        file.numbers = np.arange(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xr.open_dataset(path, engine="bedform").attrs["title"] == "caf\u00e9"
    assert bf.open(path).refused() == {}
