"""Making references: every reader of them sees what netCDF4 and h5py see in the files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from range_server import serving

import bedform as bf
from bedform import _reference_repository, _referencing
from bedform.cli import run

RANDOM = np.random.default_rng(43)
#: The writer, and the reader of fsspec.
HAS_PARQUET = find_spec("pyarrow") is not None and find_spec("fastparquet") is not None
HAS_ICECHUNK = find_spec("icechunk") is not None
FORMS = [
    "json",
    pytest.param("parquet", marks=pytest.mark.skipif(not HAS_PARQUET, reason="no pyarrow")),
    pytest.param("icechunk", marks=pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")),
]

pytestmark = [
    # zarr-python warns of numcodecs' codecs and of texts of fixed size, which Zarr v3 lacks.
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr:UserWarning"),
    pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3"),
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own for each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BEDFORM_ALLOW_EXTERNAL", str(tmp_path))
    return tmp_path


def target_of(form: str, name: str = "refs") -> str:
    return name if form == "icechunk" else f"{name}.{form}"


def zarr_group(target: str) -> zarr.Group:
    """Opens a set with the library that its format is for."""
    if Path(target).is_dir() and not Path(target, ".zmetadata").exists():
        return zarr.open_group(icechunk_store(target), mode="r")
    return zarr.open_group(zarr_store(target), mode="r", zarr_format=2, use_consolidated=False)


def icechunk_store(target: str) -> Any:
    import icechunk

    storage = icechunk.local_filesystem_storage(str(Path(target).absolute()))
    config = icechunk.Repository.fetch_config(storage)
    allowed = dict.fromkeys(config.virtual_chunk_containers or ())
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return repository.readonly_session("main").store


def zarr_store(target: str) -> Any:
    given = str(Path(target).absolute())
    references = fsspec.filesystem("reference", fo=given, remote_protocol="file")
    return zarr.storage.FsspecStore.from_mapper(references.get_mapper(""))


def raw(variable: Any) -> Any:
    """Returns the stored values and attributes of a variable of netCDF4."""
    variable.set_auto_maskandscale(False)
    return variable[...]


def assert_same(found: Any, expected: Any) -> None:
    """The values are equal bit by bit, in any byte order."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, expected)


def attributes_of(array: Any) -> dict[str, Any]:
    hidden = ("_ARRAY_DIMENSIONS", "_FillValue")
    return {name: value for name, value in array.attrs.items() if name not in hidden}


def is_same_store(target: str, expected: dict[str, np.ndarray[Any, Any]]) -> None:
    """The library of the format and Bedform read these values, and no other arrays."""
    group = zarr_group(target)
    with bf.open(target) as store:
        assert sorted(store.arrays()) == sorted(expected)
        for name, values in expected.items():
            assert_same(group[name][...], values)
            assert_same(store[name][...], values)


def name_axis(array: h5py.Dataset, axis: int, name: str = "time") -> None:
    """Gives an axis the name of a dimension without a variable."""
    length = array.shape[axis]
    scale = array.file.require_dataset(name, (length,), "f4")
    scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{length:10}")
    array.dims[axis].attach_scale(scale)


# ---- One file --------------------------------------------------------------------------------


def write_all_kinds(path: str) -> dict[str, np.ndarray[Any, Any]]:
    """Writes variables of all storages and filters, and returns their stored values."""
    values: dict[str, np.ndarray[Any, Any]] = {}
    with h5py.File(path, "w") as file:

        def add(name: str, data: Any, **options: Any) -> None:
            file.create_dataset(name, data=data, **options)
            values[name] = np.asarray(data)

        floats = RANDOM.normal(size=(13, 9)).astype("f4")
        add("plain", floats)
        add("chunked", floats, chunks=(4, 5))
        add("deflated", floats, chunks=(4, 5), compression=4)
        add("shuffled", floats, chunks=(4, 5), compression=4, shuffle=True)
        add("checked", floats, chunks=(4, 5), compression=4, shuffle=True, fletcher32=True)
        add("big", floats.astype(">f8"), chunks=(4, 5), compression=1, shuffle=True)
        add("integers", RANDOM.integers(-9, 9, (6, 2)).astype(">i2"))
        add("unsigned", RANDOM.integers(0, 255, 70).astype("u1"), chunks=(64,))
        add("half", floats.astype("f2"), chunks=(13, 9))
        add("truth", floats > 0, chunks=(13, 3))
        add("complex", (floats + 1j).astype("c8"), chunks=(5, 9))
        add("scalar", np.float64(2.5))
        add("letters", np.array([b"ab", b"c"], "S3"))
        add("empty", np.zeros((0, 4), "i4"))
        add("inner/deep", np.arange(24, dtype="i8").reshape(2, 3, 4), chunks=(1, 3, 2))
        part = file.create_dataset("partly", (8, 8), "f4", chunks=(4, 4), fillvalue=7.0)
        part[:4, 4:] = 1.0
        values["partly"] = part[...]
        unwritten = file.create_dataset("unwritten", (5, 6), "i2", chunks=(5, 3))
        values["unwritten"] = unwritten[...]
        file["plain"].attrs["units"] = "K"
        file["plain"].attrs["valid_range"] = np.array([0.5, 2.0], "f4")
        file.attrs["title"] = "all kinds"
    return values


@pytest.mark.parametrize("inline", [0, "16 KiB"])
@pytest.mark.parametrize("form", FORMS)
def test_every_storage_and_filter_is_read_as_hdf5_reads_it(form: str, inline: int | str) -> None:
    values = write_all_kinds("all.h5")
    made = bf.references("all.h5", target_of(form), inline=inline)
    assert made.left_out == {} and made.files == 1
    assert {array.path for array in made.arrays} == set(values)
    is_same_store(target_of(form), values)
    group = zarr_group(target_of(form))
    assert attributes_of(group["plain"]) == {"units": "K", "valid_range": [0.5, 2.0]}
    assert dict(group.attrs) == {"title": "all kinds"}
    if inline == 0:
        # Readers of kerchunk's sets would take its fill value for a mask.
        stored = set() if form == "icechunk" else {"partly"}
        assert {array.path for array in made.arrays if array.stored_bytes} == stored


@pytest.mark.parametrize("by", ["Zstd()", "Blosc(shuffle=2)"])
@pytest.mark.parametrize("form", FORMS)
def test_zstandard_and_blosc_are_read(form: str, by: str) -> None:
    pytest.importorskip("hdf5plugin")
    values = RANDOM.integers(0, 9, (64, 32)).astype("i4")
    np.save("a.npy", values)
    # In a process without netCDF4, whose HDF5 has other plugins.
    program = (
        "import h5py, hdf5plugin as plugins, numpy as np\n"
        "with h5py.File('a.h5', 'w') as file:\n"
        "    values = np.load('a.npy')\n"
        f"    file.create_dataset('t', data=values, chunks=(32, 32), **plugins.{by})\n"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("this HDF5 does not take the plugin")
    bf.references("a.h5", target_of(form), inline=0)
    is_same_store(target_of(form), {"t": values})


@pytest.mark.parametrize("form", FORMS)
def test_classic_files_are_read_record_by_record(form: str) -> None:
    times = np.arange(6, dtype="i4")
    with netCDF4.Dataset("a.nc", "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        file.createVariable("time", "i4", ("time",))[:] = times
        file.createVariable("t", "f8", ("time", "x"))[:] = np.outer(times, np.arange(5.0))
        file.createVariable("x", "f4", ("x",))[:] = np.arange(5)
    made = bf.references("a.nc", target_of(form), inline=0)
    assert made.references == 13
    t = np.outer(times, np.arange(5.0))
    is_same_store(target_of(form), {"time": times, "t": t, "x": np.arange(5, dtype="f4")})


@pytest.mark.parametrize("form", FORMS)
def test_what_references_cannot_express_is_named_in_a_warning(form: str) -> None:
    with h5py.File("a.h5", "w") as file:
        file["names"] = ["one", "another"]
        file["pairs"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        file.create_dataset("scaled", data=np.arange(90), chunks=(30,), scaleoffset=0)
        file["t"] = np.arange(3.0)
    with pytest.warns(bf.LeftOutWarning) as caught:
        made = bf.references("a.h5", target_of(form))
    assert set(made.left_out) == {"names", "pairs", "scaled"}
    messages = sorted(str(warning.message) for warning in caught)
    assert len(messages) == 3 and all("\n" not in message for message in messages)
    assert "'scaled'" in messages[2] and "scaleoffset" in messages[2]
    is_same_store(target_of(form), {"t": np.arange(3.0)})


@pytest.mark.parametrize("form", FORMS)
def test_a_set_without_any_variable_is_an_error_that_says_why(form: str, place: Path) -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("t", data=np.arange(90), chunks=(30,), compression="lzf")
    before = sorted(place.iterdir())
    with pytest.raises(bf.UnsupportedError, match=r'a\.h5: no variable .*"t": its filter lzf'):
        bf.references("a.h5", target_of(form))
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("form", FORMS)
def test_names_of_documents_are_left_out_and_other_names_are_kept(form: str) -> None:
    documents = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
    names = ("c", "0", "0.0", "a.b", "t t", "\u00e9", "{{x}}", "a%20b", "q?#[1]*", "'s'", '"q"')
    with h5py.File("a.h5", "w") as file:
        for name in (*documents, *(f"group/{name}" for name in documents), *names):
            file[name] = np.arange(3.0)
        file["zarr.json.group/.zgroup/t"] = np.arange(3.0)
    with pytest.warns(bf.LeftOutWarning):
        made = bf.references("a.h5", target_of(form), inline=0)
    left_out = {*documents, *(f"group/{name}" for name in documents), "zarr.json.group/.zgroup/t"}
    assert set(made.left_out) == left_out
    is_same_store(target_of(form), dict.fromkeys(names, np.arange(3.0)))


@pytest.mark.parametrize("form", FORMS)
def test_a_shuffle_after_compression_is_undone_by_us_alone_and_stored(form: str) -> None:
    values = np.arange(33 * 17, dtype="i4").reshape(33, 17)
    with h5py.File("a.h5", "w") as file:
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        options.set_chunk((10, 7))
        options.set_deflate(4)
        options.set_shuffle()
        space = h5py.h5s.create_simple(values.shape)
        h5py.Dataset(h5py.h5d.create(file.id, b"t", h5py.h5t.STD_I4LE, space, options))[...] = (
            values
        )
    made = bf.references("a.h5", target_of(form), inline=0)
    assert made.arrays[0].stored_bytes == values.nbytes
    is_same_store(target_of(form), {"t": values})


def test_chunks_with_other_filters_than_their_neighbours_are_stored() -> None:
    values = np.arange(32, dtype="i4").reshape(4, 8)
    with h5py.File("a.h5", "w") as file:
        array = file.create_dataset("t", (4, 8), "i4", chunks=(2, 8), compression=1)
        array[:2] = values[:2]
        array.id.write_direct_chunk((2, 0), values[2:].tobytes(), filter_mask=1)
    made = bf.references("a.h5", "refs.json", inline=0)
    assert [array.stored_bytes for array in made.arrays] == [values.nbytes]
    is_same_store("refs.json", {"t": values})


def test_chunks_that_all_skip_a_filter_are_referenced_without_it() -> None:
    values = np.arange(32, dtype="i4").reshape(4, 8)
    with h5py.File("a.h5", "w") as file:
        array = file.create_dataset("t", (4, 8), "i4", chunks=(2, 8), compression=1)
        for row in (0, 2):
            array.id.write_direct_chunk((row, 0), values[row : row + 2].tobytes(), filter_mask=1)
    made = bf.references("a.h5", "refs.json", inline=0)
    assert made.references == 2
    is_same_store("refs.json", {"t": values})


def test_large_blocks_without_chunks_are_cut_into_whole_rows() -> None:
    values = np.arange(6 * (1 << 20), dtype="f8").reshape(6, 1 << 20)
    with h5py.File("a.h5", "w") as file:
        file["t"] = values
    made = bf.references("a.h5", "refs.json", inline=0)
    assert made.arrays[0].chunks == (2, 1 << 20) and made.references == 3
    is_same_store("refs.json", {"t": values})


# ---- Masks, packing, attributes --------------------------------------------------------------


def write_masked(path: str) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 10)
        options: dict[str, Any] = {"dimensions": ("x",), "chunksizes": (4,)}
        packed = file.createVariable("packed", "i2", fill_value=-9999, **options)
        packed.scale_factor, packed.add_offset = 0.5, 10.0
        packed[2:7] = np.arange(5) + 11.0
        nan = file.createVariable("nan", "f4", fill_value=np.nan, **options)
        nan[:5] = np.arange(5)
        zeros = file.createVariable("zeros", "i4", **options)
        zeros[:] = np.arange(10) - 5
        other = file.createVariable("other", "f8", fill_value=1e20, **options)
        other.missing_value = 1e20
        other[:] = np.arange(10.0)
        other[3] = 1e20
        byte = file.createVariable("byte", "i1", fill_value=np.int8(-1), **options)
        byte._Unsigned = "true"
        byte.set_auto_maskandscale(False)
        byte[:] = np.arange(10) - 5
        file.createVariable("time", "i4", ("x",)).units = "days since 2001-01-01"
        file["time"][:] = np.arange(10)


@pytest.mark.parametrize("inline", [0, "16 KiB"])
@pytest.mark.parametrize("form", FORMS)
def test_xarray_decodes_a_set_as_it_decodes_the_file(form: str, inline: int | str) -> None:
    write_masked("a.nc")
    target = target_of(form)
    bf.references("a.nc", target, inline=inline)
    expected = xr.load_dataset("a.nc", engine="netcdf4")
    store = icechunk_store(target) if form == "icechunk" else zarr_store(target)
    opened = {
        "zarr": xr.open_dataset(store, engine="zarr", consolidated=False),
        "bedform": xr.open_dataset(target, engine="bedform"),
    }
    for engine, found in opened.items():
        xr.testing.assert_equal(found.load(), expected)
        for name, variable in expected.variables.items():
            given = {**variable.attrs, **variable.encoding}
            own = {**found[name].attrs, **found[name].encoding}
            for key in ("_FillValue", "scale_factor", "add_offset", "units", "_Unsigned"):
                np.testing.assert_equal(own.get(key), given.get(key), f"{engine} {name} {key}")


@pytest.mark.parametrize("form", FORMS)
def test_a_fill_value_beside_another_mask_is_kept_or_stored(form: str) -> None:
    with h5py.File("a.h5", "w") as file:
        array = file.create_dataset("t", (8,), "f4", chunks=(4,), fillvalue=5.0)
        array[:4] = [1, 2, 5, 7]
        array.attrs["_FillValue"] = np.array([7.0], "f4")
    made = bf.references("a.h5", target_of(form), inline=0)
    assert bool(made.arrays[0].stored_bytes) == (form != "icechunk")
    is_same_store(target_of(form), {"t": np.array([1, 2, 5, 7, 5, 5, 5, 5], "f4")})
    found = xr.open_dataset(target_of(form), engine="bedform")["t"].values
    np.testing.assert_array_equal(found, [1, 2, 5, np.nan, 5, 5, 5, 5])


def write_fives(rows: int) -> None:
    """Writes fives where chunks were never written, and as values, in a file without a mask."""
    with h5py.File("a.h5", "w") as file:
        array = file.create_dataset("t", (4, rows), "f8", chunks=(1, rows), fillvalue=5.0)
        array[0] = np.arange(rows) % 7


@pytest.mark.parametrize("form", FORMS)
def test_a_fill_value_without_a_mask_masks_nothing(form: str) -> None:
    write_fives(70)
    target = target_of(form)
    made = bf.references("a.h5", target, inline=0)
    assert made.left_out == {}
    store = icechunk_store(target) if form == "icechunk" else zarr_store(target)
    expected = np.full((4, 70), 5.0)
    expected[0] = np.arange(70) % 7
    for found in (
        xr.load_dataset(store, engine="zarr", consolidated=False),
        xr.load_dataset(target, engine="bedform"),
    ):
        np.testing.assert_array_equal(found["t"].values, expected)


def test_a_fill_value_of_nan_needs_no_mask() -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("t", (8,), "f4", chunks=(4,), fillvalue=np.nan)[:4] = [0, 1, 2, 3]
    made = bf.references("a.h5", "refs.json", inline=0)
    assert made.references == 1 and made.left_out == {}
    found = xr.load_dataset(zarr_store("refs.json"), engine="zarr", consolidated=False)["t"]
    np.testing.assert_array_equal(found, [0, 1, 2, 3, *[np.nan] * 4])


def test_a_large_variable_whose_fill_value_is_masked_gets_a_warning() -> None:
    write_fives(1 << 20)
    with pytest.warns(bf.LeftOutWarning, match="'t:_FillValue'.*xarray masks"):
        made = bf.references("a.h5", "refs.json")
    assert made.references == 1 and made.arrays[0].stored_bytes == 0
    found = bf.open("refs.json")["t"]
    assert found[:, 5].tolist() == [5.0] * 4 and found[0, 6] == 6


def test_zeros_are_not_masked_where_chunks_are_missing() -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("t", (8,), "f4", chunks=(4,))[:4] = [0, 1, 0, 2]
    bf.references("a.h5", "refs.json", inline=0)
    found = xr.open_dataset(zarr_store("refs.json"), engine="zarr", consolidated=False)
    np.testing.assert_array_equal(found["t"].values, [0, 1, 0, 2, 0, 0, 0, 0])


@pytest.mark.parametrize("form", FORMS)
def test_attributes_that_json_lacks_are_kept_or_named(form: str) -> None:
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("x", 3)
        t = file.createVariable("t", "f4", ("x",))
        t.missing_value = np.float32(np.nan)
        t.limit = np.array([1.0, np.inf])
        t.note = 'a \u00e9 \\ " {{x}}'
        t[:] = [1, 2, np.nan]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        made = bf.references("a.nc", target_of(form))
    found = dict(zarr_group(target_of(form))["t"].attrs)
    assert found["note"] == 'a \u00e9 \\ " {{x}}'
    if form == "icechunk":
        assert set(made.left_out) == {"t:limit"}
    else:
        assert made.left_out == {} and found["limit"] == [1.0, np.inf]
        assert np.isnan(found["missing_value"])


# ---- Many files ------------------------------------------------------------------------------


def write_days(count: int = 4, days: int = 6, **encoding: Any) -> xr.Dataset:
    """Writes files of a few days each, and returns them joined."""
    parts = []
    for number in range(count):
        times = np.datetime64("2001-01-01") + np.arange(number * days, (number + 1) * days)
        data = RANDOM.normal(size=(days, 4, 5)).astype("f4")
        part = xr.Dataset(
            {"t": (("time", "y", "x"), data), "z": (("y", "x"), np.arange(20.0).reshape(4, 5))},
            coords={"time": times.astype("M8[ns]"), "y": np.arange(4.0), "x": np.arange(5.0)},
        )
        part["t"].encoding = {"chunksizes": (2, 4, 5), "zlib": True, **encoding}
        part["time"].encoding = {"units": "days since 2001-01-01", "dtype": "i4"}
        part.to_netcdf(f"day{number}.nc", unlimited_dims=["time"])
        parts.append(part)
    return xr.concat(parts, "time", data_vars="minimal")


@pytest.mark.parametrize("inline", [0, "1 KiB"])
@pytest.mark.parametrize("form", FORMS)
def test_many_files_are_joined_as_archives_are(form: str, inline: int | str) -> None:
    expected = write_days()
    target = target_of(form)
    made = bf.references("day*.nc", target, inline=inline)
    assert made.files == 4
    arrays = {array.path: array for array in made.arrays}
    assert arrays["t"].references == 12 and arrays["t"].chunks == (2, 4, 5)
    store = icechunk_store(target) if form == "icechunk" else zarr_store(target)
    xr.testing.assert_equal(xr.load_dataset(store, engine="zarr", consolidated=False), expected)
    xr.testing.assert_equal(xr.load_dataset(target, engine="bedform"), expected)
    # The coordinate of the joined dimension is stored: no reader opens all files for it.
    assert bool(arrays["time"].stored_bytes) == (inline != 0 or arrays["time"].references == 0)


def test_times_that_count_from_other_days_are_stored_in_the_units_of_the_first_file() -> None:
    write_days(2)
    for number in (0, 1):
        part = xr.load_dataset(f"day{number}.nc")
        part["time"].encoding["units"] = f"days since 2001-01-0{number + 1}"
        part.to_netcdf(f"day{number}.nc", unlimited_dims=["time"])
    made = bf.references("day*.nc", "refs.json", inline=0)
    assert {array.path for array in made.arrays if array.stored_bytes} == {"time"}
    assert zarr_group("refs.json")["time"][...].tolist() == list(range(12))


@pytest.mark.parametrize("lengths", [(31, 28, 31), (4, 4, 3), (1, 5, 2)])
def test_files_without_chunks_are_cut_at_a_common_length(lengths: tuple[int, ...]) -> None:
    parts = []
    for number, length in enumerate(lengths):
        parts.append(RANDOM.normal(size=(length, 40, 30)))
        with h5py.File(f"{number}.h5", "w") as file:
            name_axis(file.create_dataset("t", data=parts[-1]), 0)
    made = bf.references("?.h5", "refs.json", concat_dim="time", inline=0)
    assert made.arrays[0].chunks == (1, 40, 30) and made.references == sum(lengths)
    is_same_store("refs.json", {"t": np.concatenate(parts)})


@pytest.mark.parametrize("form", FORMS)
def test_variables_of_the_first_file_refer_to_the_file_that_labels_make_first(form: str) -> None:
    for number, name in enumerate(("z", "a", "m")):
        with netCDF4.Dataset(f"{name}.nc", "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 50)
            # So that chunks lie elsewhere in each file.
            file.createVariable(f"pad{number}", "f8", ("x",))[:] = RANDOM.normal(size=50)
            file.createVariable("z", "f8", ("x",), zlib=True)[:] = np.arange(50.0)
            file.createVariable("time", "f8", ("time",))[:] = np.arange(3) + 3 * number
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.LeftOutWarning)
        bf.references("*.nc", target_of(form), inline=0)
    group = zarr_group(target_of(form))
    assert group["time"][...].tolist() == list(range(9))
    assert group["z"][...].tolist() == list(range(50))


def test_a_file_without_records_needs_no_fill_value_of_its_own() -> None:
    for number, (length, fill) in enumerate(((4, 3.0), (0, 9.0), (4, 3.0))):
        with h5py.File(f"{number}.h5", "w") as file:
            options = {"chunks": (2, 5), "maxshape": (None, 5), "fillvalue": fill}
            array = file.create_dataset("t", (length, 5), "f4", **options)
            if length:
                array[:2] = number
            name_axis(array, 0)
    files = ["0.h5", "1.h5", "2.h5"]
    given: dict[str, Any] = {"concat_dim": "time", "compat": "override", "inline": 0}
    made = bf.references(files, "refs", form="json", **given)
    joined = np.concatenate([h5py.File(name)["t"][...] for name in files])
    is_same_store("refs", {"t": joined})
    assert made.files == 3


def test_files_are_joined_along_an_inner_axis() -> None:
    parts = [RANDOM.normal(size=(6, 4, 5)) for _ in range(3)]
    for number, part in enumerate(parts):
        with h5py.File(f"{number}.h5", "w") as file:
            for name, options in (("t", {"chunks": (4, 2, 5), "compression": 1}), ("u", {})):
                name_axis(file.create_dataset(name, data=part, **options), 1, "y")
    bf.references("?.h5", "refs.json", concat_dim="y", inline=0)
    joined = np.concatenate(parts, axis=1)
    is_same_store("refs.json", {"t": joined, "u": joined})


def write_pair(first: dict[str, Any], second: dict[str, Any], rows: int = 1 << 10) -> None:
    """Writes two files whose variable is too large to be stored in a set."""
    for number, options in enumerate((first, second)):
        length = options.pop("length", 12)
        data = np.zeros((length, rows, 1 << 8), options.pop("dtype", "f8"))
        with h5py.File(f"{number}.h5", "w") as file:
            name_axis(file.create_dataset("t", data=data, **options), 0)


CHUNKS = {"chunks": (4, 1 << 10, 1 << 8), "compression": 1}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (CHUNKS, {**CHUNKS, "chunks": (6, 1 << 10, 1 << 8)}, "1.h5 has chunks (6, 1024, 256)"),
        (CHUNKS, {**CHUNKS, "shuffle": True}, "1.h5 has other filters"),
        (CHUNKS, {**CHUNKS, "dtype": ">f8"}, "1.h5 has numbers of the other byte order"),
        ({**CHUNKS, "length": 11}, CHUNKS, "0.h5 has length 11"),
    ],
)
def test_files_that_do_not_fit_are_named(
    first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    write_pair({**first}, {**second})
    with pytest.raises(bf.InvalidArgumentError) as caught:
        bf.references(["0.h5", "1.h5"], "refs.json", concat_dim="time")
    message = str(caught.value)
    assert "\n" not in message and '"t"' in message and said in message
    assert "exclude" in message and not os.path.lexists("refs.json")


def test_the_last_file_may_be_shorter_and_levels_may_differ() -> None:
    chunks = {"chunks": (4, 16, 1 << 8), "compression": 1}
    write_pair({**chunks}, {**chunks, "length": 5, "compression": 4}, rows=16)
    for number in (0, 1):
        with h5py.File(f"{number}.h5", "a") as file:
            file["t"][...] = RANDOM.normal(size=file["t"].shape)
    made = bf.references(["0.h5", "1.h5"], "refs.json", concat_dim="time", inline=0)
    joined = np.concatenate([h5py.File(f"{number}.h5")["t"][...] for number in (0, 1)])
    assert made.references == 5
    is_same_store("refs.json", {"t": joined})


def test_a_variable_that_does_not_fit_can_be_left_out() -> None:
    write_pair({**CHUNKS}, {**CHUNKS, "shuffle": True})
    for number in (0, 1):
        with h5py.File(f"{number}.h5", "a") as file:
            file["u"] = np.arange(12.0) + 12 * number
            file["u"].dims[0].attach_scale(file["time"])
    files = ["0.h5", "1.h5"]
    bf.references(files, "refs.json", concat_dim="time", compat="override", exclude=["t"])
    assert zarr_group("refs.json")["u"][...].tolist() == list(range(24))
    with pytest.raises(bf.InvalidArgumentError, match='has no variable "v"'):
        bf.references(files, "other.json", concat_dim="time", exclude=["v"])


# ---- Names of files --------------------------------------------------------------------------


def targets_of(path: str) -> set[str]:
    refs = json.loads(Path(path).read_text())["refs"]
    return {value[0] for value in refs.values() if isinstance(value, list)}


def test_files_have_absolute_or_relative_names_or_urls(place: Path) -> None:
    (place / "data set/a").mkdir(parents=True)
    (place / "sets").mkdir()
    for name in ("a/1.nc", "2.nc"):
        with h5py.File(place / "data set" / name, "w") as file:
            name_axis(file.create_dataset("t", data=np.arange(3.0)), 0)
    files = ["data set/a/1.nc", "data set/2.nc"]
    given: dict[str, Any] = {"concat_dim": "time", "compat": "override", "inline": 0}
    bf.references(files, "sets/a.json", **given)
    assert targets_of("sets/a.json") == {str(place / name) for name in files}
    bf.references(files, "sets/b.json", names="relative", **given)
    assert targets_of("sets/b.json") == {f"../{name}" for name in files}
    values = bf.open("sets/b.json", allow_external=[str(place)])["t"][...]
    assert values.tolist() == [0, 1, 2, 0, 1, 2]
    bf.references(files, "sets/c.json", names="s3://bucket/era5/", **given)
    assert targets_of("sets/c.json") == {"s3://bucket/era5/a/1.nc", "s3://bucket/era5/2.nc"}
    bf.references(["data set/2.nc"], "sets/d.json", names="https://host/x", **given)
    assert targets_of("sets/d.json") == {"https://host/x/2.nc"}
    with pytest.raises(bf.InvalidArgumentError, match="names is"):
        bf.references(files, "sets/e.json", names="nearby", **given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a{{b}}.nc", "a{%b.nc", "a\nb.nc", "\udcff.nc"])
def test_a_name_that_readers_refuse_or_change_is_refused(form: str, name: str, place: Path) -> None:
    if form == "icechunk" and "{" in name:
        pytest.skip("Icechunk has no templates")
    with h5py.File("a.nc", "w") as file:
        file["t"] = np.arange(3.0)
    Path("a.nc").rename(name)
    with pytest.raises(bf.InvalidArgumentError) as caught:
        bf.references(name, target_of(form))
    assert "\n" not in str(caught.value) and any(
        said in str(caught.value) for said in ("as templates", "no control characters", "as UTF-8")
    )
    assert [entry.name for entry in place.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a b.nc", "\u00e9\u4e2d.nc", "a%20b.nc", "a?#b.nc", "a::b.nc"])
@pytest.mark.parametrize("form", FORMS[:2])
def test_files_of_any_name_are_read(form: str, name: str, place: Path) -> None:
    (place / "some where").mkdir()
    with h5py.File(place / "some where" / name, "w") as file:
        file["t"] = np.arange(3.0)
    bf.references(place / "some where" / name, target_of(form), inline=0)
    is_same_store(target_of(form), {"t": np.arange(3.0)})


def test_a_set_moves_with_its_files_if_their_names_are_relative(place: Path) -> None:
    (place / "old").mkdir()
    with h5py.File("old/a.nc", "w") as file:
        file["t"] = np.arange(3.0)
    bf.references("old/a.nc", "old/refs.json", names="relative", inline=0)
    Path("old").rename("new")
    assert bf.open("new/refs.json")["t"][...].tolist() == [0, 1, 2]


@pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")
def test_icechunk_reads_files_with_any_name(place: Path) -> None:
    names = ["a b.nc", "a%20b.nc", "\u00e9?#[1].nc"]
    (place / "some where").mkdir()
    for number, name in enumerate(names):
        with h5py.File(place / "some where" / name, "w") as file:
            name_axis(file.create_dataset("t", data=np.arange(3.0) + 3 * number), 0)
    files = [str(place / "some where" / name) for name in names]
    bf.references(files, "refs", concat_dim="time", compat="override", inline=0)
    assert zarr_group("refs")["t"][...].tolist() == list(range(9))


@pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")
def test_icechunk_reads_copies_that_are_newer_than_the_files(place: Path) -> None:
    for name in ("here", "there"):
        (place / name).mkdir()
    with h5py.File("here/a.nc", "w") as file:
        file["t"] = np.arange(3.0)
    bf.references("here/a.nc", "refs", names=(place / "there").as_uri(), inline=0)
    Path("here/a.nc").rename("there/a.nc")
    later = Path("there/a.nc").stat().st_mtime_ns + 10 * 10**9
    os.utime("there/a.nc", ns=(later, later))
    assert zarr_group("refs")["t"][...].tolist() == [0, 1, 2]


def test_a_file_at_a_url_is_referenced_by_its_url(place: Path) -> None:
    values = write_all_kinds("all.h5")
    with serving(place) as server:
        url = server.url("all.h5")
        for wrong, said in ((f"{url}?token=secret", "has a query"), (url, 'names is "absolute"')):
            names = "absolute" if wrong != url else "s3://bucket"
            with pytest.raises(bf.InvalidArgumentError, match=said) as caught:
                bf.references(wrong, "refs.json", names=names)
            assert "secret" not in str(caught.value).replace("a secret", "")
        bf.references(url, "refs.json", inline=0)
        assert targets_of("refs.json") == {url}
        with bf.open("refs.json", allow_external=[url.rpartition("/")[0]]) as store:
            for name, expected in values.items():
                assert_same(store[name][...], expected)


# ---- Targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_replaced_unless_it_is_a_set_and_asked_for(form: str, place: Path) -> None:
    write_days(2)
    target = target_of(form)
    bf.references("day0.nc", target)
    before = sorted(place.iterdir())
    with pytest.raises(bf.ExistsError, match="exists"):
        bf.references("day*.nc", target)
    assert bf.open(target)["t"].shape[0] == 6
    bf.references("day*.nc", target, overwrite=True)
    assert bf.open(target)["t"].shape[0] == 12
    assert sorted(place.iterdir()) == before
    (place / "mine").mkdir()
    (place / "mine/thesis.txt").write_text("words")
    (place / "mine.json").write_text('{"words": 3}')
    (place / "link").symlink_to(target)
    source = Path("day0.nc").read_bytes()
    for mine in ("mine", "mine/thesis.txt", "mine.json", "link", "day0.nc"):
        with pytest.raises(bf.ExistsError, match="is no set of references"):
            # The names of the files in the set are not those of the files.
            bf.references("day*.nc", mine, form=form, names="file:///else", overwrite=True)
    assert (place / "mine/thesis.txt").read_text() == "words"
    assert (place / "mine.json").read_text() == '{"words": 3}'
    assert Path("day0.nc").read_bytes() == source and (place / "link").is_symlink()


@pytest.mark.parametrize("form", FORMS)
def test_a_set_of_another_form_is_replaced(form: str) -> None:
    write_days(2)
    for other in (form, *(other for other in ("json", "icechunk") if other != form)):
        if other == "icechunk" and not HAS_ICECHUNK:
            continue
        bf.references("day*.nc", "refs", form=other, overwrite=True)
        assert bf.open("refs")["t"].shape[0] == 12


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_fails_leaves_nothing(form: str, place: Path) -> None:
    write_days(2)
    before = sorted(place.iterdir())

    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        bf.references("day*.nc", target_of(form), progress=stop)
    with pytest.raises(bf.NotFoundError):
        bf.references("day*.nc", f"missing/{target_of(form)}")
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_directory_that_cannot_be_written_is_an_error_of_one_line(
    form: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(1)
    before = sorted(place.iterdir())

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    for name in ("write_tables", "write_repository"):
        monkeypatch.setattr(_referencing, name, fail)
    with pytest.raises(bf.NoSpaceError, match=f"cannot write '{target_of(form)}'") as caught:
        bf.references("day0.nc", target_of(form))
    assert "\n" not in str(caught.value) and sorted(place.iterdir()) == before


@pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")
def test_icechunk_takes_a_few_references_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_days()
    monkeypatch.setattr(_reference_repository, "_AT_ONCE", 5)
    bf.references("day*.nc", "refs", inline=0)
    found = xr.load_dataset(icechunk_store("refs"), engine="zarr", consolidated=False)
    xr.testing.assert_equal(found, expected)


@pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")
def test_an_error_of_icechunk_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import icechunk

    write_days(1)
    before = sorted(place.iterdir())

    def refuse(*_: Any, **__: Any) -> None:
        raise icechunk.IcechunkError("no\nsuch\nthing")

    monkeypatch.setattr(icechunk.Repository, "create", refuse)
    with pytest.raises(bf.IoError, match="cannot write 'refs': Icechunk has refused") as caught:
        bf.references("day0.nc", "refs")
    assert "\n" not in str(caught.value) and sorted(place.iterdir()) == before


def test_inline_has_a_limit() -> None:
    write_days(1)
    with pytest.raises(bf.InvalidArgumentError, match="inline is at most 16 MiB"):
        bf.references("day0.nc", "refs.json", inline="17 MiB")


def test_the_suffix_or_the_form_decides(place: Path) -> None:
    write_days(1)
    assert bf.references("day0.nc", "refs", form="json").form == "json"
    assert json.loads(Path("refs").read_text())["version"] == 1
    with pytest.raises(bf.InvalidArgumentError, match="form is one of"):
        bf.references("day0.nc", "other", form="zip")  # type: ignore[arg-type]
    with pytest.raises(bf.InvalidArgumentError, match="the suffix says which form"):
        bf.references("day0.nc", "refs.jsn")
    with pytest.raises(bf.UnsupportedError, match="written to a path"):
        bf.references("day0.nc", "s3://bucket/refs.json")


@pytest.mark.parametrize(("form", "library"), [("parquet", "pyarrow"), ("icechunk", "icechunk")])
def test_a_missing_library_is_named(
    form: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(1)
    for name in (library, f"{library}.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(bf.UnsupportedError, match=f"pip install {library}"):
        bf.references("day0.nc", target_of(form))


@pytest.mark.skipif(not HAS_ICECHUNK, reason="no icechunk")
def test_icechunk_notices_a_file_that_was_changed() -> None:
    import icechunk

    write_days(2)
    bf.references("day*.nc", "refs", inline=0)
    status = Path("day1.nc").stat()
    os.utime("day1.nc", ns=(status.st_atime_ns, status.st_mtime_ns + 5 * 10**9))
    group = zarr_group("refs")
    group["t"][:6]
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        group["t"][6:]


def test_the_command_tells_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    write_days(3)
    with h5py.File("text.h5", "w") as file:
        file["names"] = ["one"]
        file["t"] = np.arange(3.0)
    assert run(["references", "day*.nc", "--to", "refs.json", "--inline", "0B", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == 3 and told["references"] >= 9 and told["form"] == "json"
    assert run(["references", "text.h5", "--to", "text.json"]) == 0
    shown = capsys.readouterr()
    assert "text.json" in shown.out and "left out: 'names'" in shown.err
    assert run(["references", "day*.nc", "--to", "refs.json"]) == 2
    assert "exists" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(place: Path) -> None:
    write_days(2)
    before = sorted(place.iterdir())
    program = (
        "import signal, bedform as bf\n"
        "stop = lambda done, total: signal.raise_signal(signal.SIGINT)\n"
        "bf.references('day*.nc', 'refs.json', progress=stop)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode != 0 and "KeyboardInterrupt" in done.stderr
    assert sorted(place.iterdir()) == before


# ---- Other readers ---------------------------------------------------------------------------


def test_virtualizarr_reads_what_is_not_stored_in_the_set(place: Path) -> None:
    pytest.importorskip("virtualizarr")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import KerchunkJSONParser

    expected = write_days()
    made = bf.references("day*.nc", "refs.json", inline=0)
    stored = [array.path for array in made.arrays if array.stored_bytes]
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parser = KerchunkJSONParser(skip_variables=stored)
    store = parser((place / "refs.json").as_uri(), registry)
    found = xr.load_dataset(store, engine="zarr", consolidated=False, zarr_format=3)
    for name in found.variables:
        np.testing.assert_array_equal(found[name].values, expected[name].values)
    assert "t" in found


def test_kerchunk_reads_a_set() -> None:
    pytest.importorskip("kerchunk")
    expected = write_days()
    bf.references("day*.nc", "refs.json")
    xr.testing.assert_equal(xr.load_dataset("refs.json", engine="kerchunk"), expected)


# ---- Any file --------------------------------------------------------------------------------


@st.composite
def variables(draw: st.DrawFn) -> dict[str, Any]:
    """Options of a dataset, with the lengths of its axes."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["<f4", ">f8", "i1", "<i2", ">i4", "u1", "<u8", "f2", "S3", "?"]))
    options: dict[str, Any] = {"shape": shape, "dtype": np.dtype(dtype)}
    if draw(st.booleans()):
        options["chunks"] = tuple(draw(st.integers(1, n + 2)) for n in shape)
        options["maxshape"] = tuple(draw(st.sampled_from([n + 2, None])) for n in shape)
        if draw(st.booleans()):
            options["compression"] = draw(st.integers(1, 9))
        options["shuffle"] = draw(st.booleans())
        options["fletcher32"] = draw(st.booleans())
    if options["dtype"].kind in "fiu" and draw(st.booleans()):
        options["fillvalue"] = draw(st.integers(0, 100))
    options["written"] = draw(st.floats(0, 1))
    return options


def write_variable(file: h5py.File, name: str, options: dict[str, Any], seed: int) -> None:
    options = dict(options)
    written = options.pop("written")
    array = file.create_dataset(name, **options)
    random = np.random.default_rng(seed)
    data = random.integers(0, 100, array.shape).astype(array.dtype)
    rows = round(array.shape[0] * written)
    if rows:
        array[:rows] = data[:rows]
    array.attrs["number"] = seed


@settings(deadline=None, max_examples=25)
@given(options=st.lists(variables(), min_size=1, max_size=4), seed=st.integers(0, 1 << 16))
@pytest.mark.parametrize("form", FORMS)
def test_any_file_is_read_back(form: str, options: list[dict[str, Any]], seed: int) -> None:
    target = target_of(form)
    for path in (Path("any.h5"), Path(target)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with h5py.File("any.h5", "w") as file:
        for number, one in enumerate(options):
            write_variable(file, f"v{number}", one, seed + number)
    bf.references("any.h5", target, inline=seed % 2 * 200)
    with h5py.File("any.h5") as file:
        is_same_store(target, {name: array[...] for name, array in file.items()})
        group = zarr_group(target)
        assert all(group[name].attrs["number"] == file[name].attrs["number"] for name in file)


@settings(deadline=None, max_examples=40)
@given(
    options=variables(),
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    seed=st.integers(0, 1 << 16),
)
def test_any_files_are_joined_and_read_back(
    options: dict[str, Any], lengths: list[int], seed: int
) -> None:
    for path in Path().glob("*"):
        path.unlink()
    parts = []
    for number, length in enumerate(lengths):
        own = {**options, "shape": (length, *options["shape"][1:])}
        if "maxshape" in own:
            own["maxshape"] = (None, *options["maxshape"][1:])
        with h5py.File(f"{number}.h5", "w") as file:
            write_variable(file, "t", own, seed + number)
            name_axis(file["t"], 0)
            parts.append(file["t"][...])
    files = [f"{number}.h5" for number in range(len(lengths))]
    bf.references(files, "refs.json", concat_dim="time", compat="override", inline=0)
    is_same_store("refs.json", {"t": np.concatenate(parts)})
