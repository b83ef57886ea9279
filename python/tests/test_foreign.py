"""Foreign files: chunk maps against h5py's results, and the words of xarray's backends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from foreign_files import Map, load, read, write_hdf5, write_netcdf
from support import without_blocks
from xarray.backends import H5NetCDFStore, NetCDF4DataStore

import bedform as bf
from bedform import _foreign_encoding as words
from bedform._foreign import ForeignFileError, _as_one_line, chunk_map, file_kind, read_native
from bedform._foreign_child import isolated_chunk_map


@pytest.fixture(scope="module")
def netcdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_netcdf(tmp_path_factory.mktemp("netcdf") / "file.nc")


@pytest.fixture(scope="module")
def hdf5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hdf5(tmp_path_factory.mktemp("hdf5") / "file.h5")


def check_bytes(path: Path, native: set[str]) -> Map:
    """Checks that non-native variables have h5py's bytes, and which are native."""
    file_map = load(path)
    assert {p for p, a in file_map.arrays.items() if "native" in a["storage"]} == native
    with h5py.File(path) as file:
        for name, array in file_map.arrays.items():
            if name in native:
                continue
            stored = file.get(f"_nc4_non_coord_{name}") or file[name]
            expected = np.full(array["shape"], stored.fillvalue, stored.dtype)
            expected[tuple(slice(0, size) for size in stored.shape)] = stored[...]
            result = read(path, file_map, name)
            assert result.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
            np.testing.assert_array_equal(result, expected, err_msg=name)
    return file_map


def test_the_bytes_of_every_hdf5_dataset_are_where_the_map_says(hdf5: Path) -> None:
    native = {"lzf", "texts", "compound", "reference", "terminated"}
    file_map = check_bytes(hdf5, native)
    assert "filter 32000" in file_map.reason("lzf")
    assert file_map.reason("texts") == "text of any length"
    kinds = {name: array["storage"] for name, array in file_map.arrays.items()}
    assert kinds["empty"] == kinds["never"] == "empty"
    assert set(kinds["compact"]) == {"compact"}
    assert set(kinds["plain_f8"]) == {"contiguous"}
    assert file_map.tables["sparse"][0].tolist() == [4, 7]
    assert file_map.tables["skipped"][3].tolist() == [3, 2]
    assert file_map.arrays["growing"]["unlimited"] == [True, False]
    assert file_map.arrays["bool"]["data_type"] == "b1"
    assert file_map.description["format"] == "hdf5"


def test_the_bytes_of_every_netcdf_variable_are_where_the_map_says(netcdf: Path) -> None:
    file_map = check_bytes(netcdf, {"texts", "bzip2", "szip"})
    assert file_map.description["format"] == "netcdf4"
    assert file_map.arrays["never"]["shape"] == [5, 6]
    assert set(file_map.groups) == {"", "child", "child/deep"}


def test_a_map_of_one_group_has_the_groups_above_it_and_their_dimensions(netcdf: Path) -> None:
    file_map = load(netcdf, group="/child/deep")
    assert set(file_map.groups) == {"", "child", "child/deep"}
    assert "child/deep/more" in file_map.arrays
    with pytest.raises(ForeignFileError, match="no group 'nowhere'"):
        chunk_map(netcdf, group="nowhere")


def test_native_variables_are_read_through_hdf5(hdf5: Path, netcdf: Path) -> None:
    assert read_native(hdf5, "texts").tolist() == ["a", "b\u00e9"]
    assert read_native(hdf5, "lzf", np.s_[3:9:2]).tolist() == [3, 5, 7]
    assert read_native(hdf5, "terminated", 1) == b"ab"
    assert read_native(netcdf, "szip", np.s_[10:12]).tolist() == [1, 1]
    assert read_native(netcdf, "s").tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ForeignFileError, match="no variable 'nowhere'"):
        read_native(hdf5, "nowhere")


def netcdf4_store(path: Path, group: str | None = None) -> Any:
    return NetCDF4DataStore.open(str(path), group=group)  # type: ignore[no-untyped-call]


def same(left: Any, right: Any) -> bool:
    """Equal in type, dtype and value, NaN equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return bool(left == right)


def check_words(path: Path, store: Any, group: str, style: words.Style) -> None:
    """Checks the map, in a backend's words, against the backend's own words."""
    check_description(load(path).description, path, store, group, style)


def check_description(
    description: dict[str, Any], path: Path, store: Any, group: str, style: words.Style
) -> None:
    variables, attributes = store.load()
    arrays = {
        array["path"].rpartition("/")[2]: array
        for array in description["arrays"]
        if array["path"].rpartition("/")[0] == group
    }
    stored_group = next(item for item in description["groups"] if item["path"] == group)
    assert list(arrays) == list(variables)
    shown = words.group_attributes(stored_group, style)
    assert shown.keys() == attributes.keys()
    assert all(same(shown[name], attributes[name]) for name in shown)
    made_up = {item["name"] for item in stored_group["dimensions"] if item["phony"]}
    unlimited = words.unlimited_dimensions(stored_group)
    if style == "h5netcdf":
        # h5netcdf makes up other names; ours are those of the netCDF library, as in `netcdf4`.
        unlimited -= made_up
    assert unlimited == store.get_encoding()["unlimited_dims"]
    names = words.dimension_names(description, group)
    for name, variable in variables.items():
        array = arrays[name]
        dims = names[array["path"]]
        if style == "netcdf4" or not any(dim.startswith("phony_dim_") for dim in dims):
            assert dims == variable.dims, name
        assert tuple(array["shape"]) == variable.shape, name
        shown = words.variable_attributes(array, style)
        assert shown.keys() == variable.attrs.keys(), name
        for key, value in shown.items():
            assert same(value, variable.attrs[key]), (name, key, value, variable.attrs[key])
        encoding = words.variable_encoding(array, style, source=str(path), names=dims)
        assert without_blocks(encoding) == without_blocks(variable.encoding), name
        for key in ("enum", "enum_name"):
            expected = (getattr(variable.encoding["dtype"], "metadata", None) or {}).get(key)
            metadata = getattr(encoding["dtype"], "metadata", None) or {}
            assert metadata.get(key) == expected, name
        if array["data_type"] is not None:
            assert words.variable_dtype(array, style) == variable.dtype, name


@pytest.mark.parametrize("group", ["", "child", "child/deep"])
def test_netcdf_files_are_described_in_the_words_of_both_engines(netcdf: Path, group: str) -> None:
    for style, store in [
        ("netcdf4", netcdf4_store(netcdf, group)),
        ("h5netcdf", H5NetCDFStore.open(str(netcdf), group=group)),
    ]:
        check_words(netcdf, store, group, style)  # type: ignore[arg-type]
        store.close()
    assert words.style_of(load(netcdf).description) == "netcdf4"


@pytest.mark.parametrize("group", ["", "group"])
def test_hdf5_files_are_described_in_the_words_of_h5netcdf(tmp_path: Path, group: str) -> None:
    path = write_hdf5(tmp_path / "file.h5")
    with h5py.File(path, "r+") as file:
        # h5netcdf shows h5py objects for these; the map has no words for them.
        del file["plain_f8"].attrs["reference"], file["reference"], file["compound"]
    store = H5NetCDFStore.open(str(path), group=group, phony_dims="access")
    check_words(path, store, group, "h5netcdf")
    store.close()
    assert words.style_of(load(path).description) == "h5netcdf"


def test_made_up_dimensions_are_those_of_the_netcdf_library(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for name, shape in {
            "a": (3,),
            "b": (100,),
            "c": (3, 4),
            "d": (3, 3),
            "scalar": (),
            "zero": (0, 3),
            "z/y": (3, 5),
            "m/k": (100, 4, 2),
            "m/n/o": (4,),
        }.items():
            file[name] = np.zeros(shape)
        file.create_dataset("growing", (3,), "f4", maxshape=(None,), chunks=(2,))
    for group in ["", "z", "m", "m/n"]:
        store = netcdf4_store(path, group)
        check_words(path, store, group, "netcdf4")
        store.close()
        h5store = H5NetCDFStore.open(str(path), group=group, phony_dims="access")
        check_words(path, h5store, group, "h5netcdf")
        h5store.close()


def test_scales_made_with_h5py_name_the_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(3.0)
        file["x"] = np.arange(4.0)
        for name in ("time", "x"):
            file[name].make_scale(name)
        data = file.create_dataset("data", (3, 4), "f4", chunks=(2, 2), compression="gzip")
        data.dims[0].attach_scale(file["time"])
        data.dims[1].attach_scale(file["x"])
    for style, store in [
        ("netcdf4", netcdf4_store(path)),
        ("h5netcdf", H5NetCDFStore.open(str(path))),
    ]:
        check_words(path, store, "", style)  # type: ignore[arg-type]
        store.close()
    assert load(path).arrays["data"]["dimension_names"] == ["time", "x"]


def test_a_variable_shorter_than_its_dimension_has_fill_values_behind_its_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        for name, chunk in [("long", 4), ("even", 2), ("uneven", 3)]:
            file.createVariable(name, "f4", ("time",), chunksizes=(chunk,))
        file["long"][:] = np.arange(9)
        file["even"][:4] = np.arange(4)
        file["uneven"][:4] = np.arange(4)
    file_map = load(path)
    assert "inside a chunk" in file_map.reason("uneven")
    with xr.open_dataset(path, engine="netcdf4", decode_cf=False) as expected:
        for name in ("long", "even"):
            np.testing.assert_array_equal(read(path, file_map, name), expected[name].values)
        values = read_native(path, "uneven", np.s_[2:7], shape=(9,))
        np.testing.assert_array_equal(values, expected["uneven"].values[2:7])


def test_offsets_count_from_the_start_of_a_file_with_a_user_block(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["plain"] = np.arange(10)
        file.create_dataset("chunked", data=np.arange(10), chunks=(4,), compression="gzip")
    assert file_kind(path) == "hdf5"
    check_bytes(path, set())


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_every_index_of_chunks_gives_the_same_map(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "file.h5"
    values = np.arange(30 * 40).reshape(30, 40)
    with h5py.File(path, "w", libver=libver) as file:
        for name, maxshape in [("fixed", None), ("one", (None, 40)), ("two", (None, None))]:
            file.create_dataset(
                name, data=values, chunks=(7, 9), maxshape=maxshape, compression="gzip"
            )
        file.create_dataset("whole", data=values, chunks=values.shape)
    check_bytes(path, set())


def write_outside(directory: Path) -> Path:
    """Writes a file that refers to other files in all ways of HDF5."""
    with h5py.File(directory / "other.h5", "w") as other:
        other["secret"] = np.arange(4)
        other["group/inner"] = np.arange(2)
    (directory / "secret.txt").write_bytes(b"a secret text of 32 bytes exactly")
    path = directory / "file.h5"
    with h5py.File(path, "w") as file:
        file["own"] = np.arange(3)
        file["link"] = h5py.ExternalLink("other.h5", "/secret")
        file["group_link"] = h5py.ExternalLink("other.h5", "/group")
        file["through"] = h5py.SoftLink("/link")
        file["through_group"] = h5py.SoftLink("/group_link/inner")
        file["soft"] = h5py.SoftLink("/own")
        file["nowhere"] = h5py.SoftLink("/missing")
        file["circle"] = h5py.SoftLink("/circle")
        file["below/back"] = file["/"]
        external = [(str(directory / "secret.txt"), 0, 32)]
        file.create_dataset("text", (32,), "S1", external=external)
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(directory / "other.h5", "secret", (4,))
        file.create_virtual_dataset("virtual", layout)
    return path


def test_other_files_named_inside_a_file_are_refused(tmp_path: Path) -> None:
    path = write_outside(tmp_path)
    file_map = load(path)
    assert set(file_map.arrays) == {"own", "soft"}
    refused = file_map.refused()
    for name in ("link", "group_link", "through", "through_group"):
        assert "external link to 'other.h5'" in refused[name], name
    assert "external storage named inside the file is refused" in refused["text"]
    assert "virtual dataset" in refused["virtual"]
    assert "does not exist" in refused["nowhere"]
    assert "soft links" in refused["circle"]
    assert "a link back" in file_map.refused("below")["back"]
    for name in ("link", "through", "through_group", "text", "virtual", "group_link"):
        with pytest.raises(ForeignFileError, match="is refused"):
            read_native(path, name)


def test_other_files_are_read_natively_where_they_are_allowed(tmp_path: Path) -> None:
    path = write_outside(tmp_path)
    file_map = load(path, allow_external=True)
    for name in ("link", "text", "virtual", "through"):
        assert "native" in file_map.arrays[name]["storage"], name
    for name in ("link", "virtual", "through"):
        assert read_native(path, name, allow_external=True).tolist() == [0, 1, 2, 3]
    assert read_native(path, "text", 2, allow_external=True) == b"s"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"", "it is empty"),
        (b"GRIB\0\0\0", "a GRIB file: convert it"),
        (b"PK\x03\x04", "a zip archive"),
        (b"<html><title>Log in</title>", 'a web page, "Log in"'),
        (b"<Error><Code>AccessDenied</Code>", "an XML document"),
        (b"\x01\x02\x03", "unknown kind"),
        (b"CDF\x03", "unknown kind"),
    ],
)
def test_files_of_other_kinds_are_named_for_what_they_are(
    tmp_path: Path, start: bytes, said: str
) -> None:
    path = tmp_path / "file.nc"
    path.write_bytes(start)
    with pytest.raises(ForeignFileError, match=said) as caught:
        chunk_map(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_were_never_written_are_the_fill_value_as_netcdf4_reads_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stations.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 5)
        file.createVariable("y", "f4", ("t", "x"))[6] = 1
        for name, fill in (("plain", None), ("filled", "none"), ("accent", "n\u00e9ant")):
            chunks = {"chunksizes": (2, 3)}
            texts = file.createVariable(name, str, ("t", "x"), fill_value=fill, **chunks)
            texts[2, 1] = "one"
            texts[4, 4] = "other"
        file.createVariable("empty", str, ("t",), fill_value="none")
    keys = [np.s_[...], np.s_[0:2], np.s_[1:7:2, ::3], np.s_[6:7, 4:5], np.s_[2:3, 1:2]]
    with netCDF4.Dataset(path) as file:
        for name in ("plain", "filled", "accent", "empty"):
            variable = file[name]
            shape = (7, 5)[: variable.ndim]
            expected = np.full(shape, getattr(variable, "_FillValue", ""), object)
            stored = variable[...]
            expected[tuple(map(slice, stored.shape))] = stored
            for key in keys if variable.ndim == 2 else keys[:2]:
                assert read_native(path, name, key, shape=shape).tolist() == expected[key].tolist()
    with (
        pytest.warns(bf.NativeReadWarning),
        xr.open_dataset(path, engine="bedform") as found,
        xr.open_dataset(path, engine="netcdf4") as wanted,
    ):
        xr.testing.assert_equal(found.load(), wanted.load())


def test_missing_files_directories_and_classic_files_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="No such file") as caught:
        chunk_map(tmp_path / "missing.nc")
    assert caught.value.kind == "NotFound"
    with pytest.raises(ForeignFileError, match="directory"):
        chunk_map(tmp_path)
    path = tmp_path / "classic.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA"):
        pass
    assert file_kind(path) == "netcdf-classic-5"
    with pytest.raises(ForeignFileError, match="classic"):
        chunk_map(path)


def test_files_cut_short_are_errors_of_one_line(tmp_path: Path, hdf5: Path) -> None:
    data = hdf5.read_bytes()
    path = tmp_path / "cut.h5"
    for length in range(8, len(data) - 8, max(1, len(data) // 60)):
        path.write_bytes(data[:length])
        with pytest.raises(ForeignFileError, match=r"cut\.h5: HDF5 cannot read it") as caught:
            chunk_map(path)
        assert "\n" not in str(caught.value)


def test_names_that_no_path_can_have_are_shown_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for name in ["a\\b", "new\nline", "..", "100 %", "caf\u00e9"]:
            file[name] = np.arange(2)
        file["x" * 300] = 1
    file_map = load(path)
    assert set(file_map.arrays) == {"a%5Cb", "new%0Aline", "%2E%2E", "100 %", "caf\u00e9"}
    assert list(file_map.refused().values()) == ["a name that cannot be shown"]
    assert read_native(path, "new%0Aline").tolist() == [0, 1]


def test_a_map_of_a_hundred_thousand_chunks_has_each_once(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("many", (1000, 400), "i1", chunks=(2, 2))
        data[...] = np.arange(400_000).reshape(1000, 400) % 100
    file_map = load(path)
    indexes, *_ = file_map.tables["many"]
    assert len(indexes) == 100_000
    assert (np.diff(indexes.astype(np.int64)) == 1).all()


def test_a_map_made_in_a_child_process_is_the_same(tmp_path: Path, hdf5: Path) -> None:
    here, there = chunk_map(hdf5), isolated_chunk_map(hdf5)
    assert here.description == there.description
    for left, right in zip(here.tables, there.tables, strict=True):
        for ours, theirs in zip(left, right, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    path = tmp_path / "cut.h5"
    path.write_bytes(hdf5.read_bytes()[:5000])
    with pytest.raises(ForeignFileError, match=r"cut\.h5: HDF5 cannot read it"):
        isolated_chunk_map(path)
    with pytest.raises(ForeignFileError, match="no group 'nowhere'") as caught:
        isolated_chunk_map(hdf5, group="nowhere")
    assert caught.value.kind == "NotFound"


def test_a_child_process_that_does_not_end_or_crashes_is_an_error(
    hdf5: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ForeignFileError, match=r"did not come to an end in 0\.001 s"):
        isolated_chunk_map(hdf5, seconds=0.001)
    crash = "import os, signal; os.write(1, b'\\x01'); os.kill(os.getpid(), signal.SIGSEGV)"
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **options: real([command[0], "-c", crash], **options),
    )
    with pytest.raises(ForeignFileError, match="HDF5 crashed on it"):
        isolated_chunk_map(hdf5)


#: A child's code, the kind of the error, and part of its message.
ENDS = {
    "os.write(1, ready); os.kill(os.getpid(), signal.SIGKILL)": ("Io", "SIGKILL"),
    "os.write(1, ready); os.kill(os.getpid(), signal.SIGTERM)": ("Io", "SIGTERM"),
    "os.kill(os.getpid(), signal.SIGXCPU)": ("Io", "ulimit -t"),
    "os.kill(os.getpid(), signal.SIGSEGV)": ("Io", "could not be started"),
    "os.write(1, ready); os.kill(os.getpid(), signal.SIGABRT)": ("Corrupt", "it is damaged"),
    "raise MemoryError": ("LimitExceeded", "RLIMIT_AS"),
    "os.write(1, ready); raise MemoryError": ("LimitExceeded", "RLIMIT_AS"),
    "raise ImportError('a.so: failed to map segment from shared object')": (
        "LimitExceeded",
        "RLIMIT_AS",
    ),
    'raise RuntimeError("can\'t start new thread")': ("Io", "ulimit -u"),
    "raise OSError(24, 'Too many open files')": ("Io", "the process that reads it failed"),
    "sys.exit(1)": ("Io", "the process that reads it failed"),
    "print('Unsupported a\\x1bb', file=sys.stderr); sys.exit(3)": ("Unsupported", "a"),
}


@pytest.mark.parametrize("script", ENDS)
def test_a_child_that_the_system_ends_says_nothing_of_the_file(
    hdf5: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    kind, said = ENDS[script]
    real = subprocess.Popen
    whole = f"import os, signal, sys; ready = b'\\x01'; {script}"
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **options: real([command[0], "-c", whole], **options),
    )
    with pytest.raises(ForeignFileError) as caught:
        isolated_chunk_map(hdf5)
    assert (caught.value.kind, said in str(caught.value)) == (kind, True), caught.value
    assert ("damaged" in str(caught.value)) == (kind == "Corrupt")


def test_no_process_to_be_had_is_no_damage(hdf5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, said in ((11, "ulimit -u"), (12, "RLIMIT_AS"), (24, "ulimit -n"), (2, "gave none")):

        def fail(*_: object, code: int = code, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(subprocess, "Popen", fail)
        with pytest.raises(ForeignFileError, match="no process could be started") as caught:
            isolated_chunk_map(hdf5)
        assert said in str(caught.value)
        assert caught.value.kind == "Io"


def test_what_h5py_raises_is_told_apart_by_what_is_behind_it(hdf5: Path) -> None:
    def kind_of(error: Exception) -> str:
        with pytest.raises(ForeignFileError) as caught, _as_one_line(hdf5):
            raise error
        return caught.value.kind

    for error, kind in (
        (OSError("Can't read data (required filter 'blosc' is not registered)"), "Unsupported"),
        (OSError("Can't read data (can't open directory (/x/plugin))"), "Unsupported"),
        (TypeError("No NumPy equivalent for TypeBitfieldID exists"), "Unsupported"),
        (TypeError("No conversion path for dtype: dtype('<U5')"), "Unsupported"),
        (MemoryError(), "LimitExceeded"),
        (OSError("Unable to open (memory allocation failed for data buffer)"), "LimitExceeded"),
        (OSError(24, "Too many open files"), "Io"),
        (OSError("unable to open file: errno = 24, error message = 'Too many'"), "Io"),
        (OSError(28, "No space left on device"), "NoSpace"),
        (PermissionError(13, "Permission denied"), "PermissionDenied"),
        (FileNotFoundError(2, "No such file"), "NotFound"),
        (BlockingIOError(11, "unable to lock file"), "Conflict"),
        (OSError("Unable to open (errno = 11, unable to lock file)"), "Corrupt"),
        (OSError("Can't read data (inflate() failed)"), "Corrupt"),
        (OSError("Can't read data (filter returned failure during read)"), "Corrupt"),
        (RuntimeError("Unable to get group info (bad symbol table node signature)"), "Corrupt"),
        (KeyError("Unable to get link"), "Corrupt"),
    ):
        assert kind_of(error) == kind, error


def test_a_file_on_which_hdf5_loops_ends_by_the_setting_and_is_said_to_take_time(
    hdf5: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **options: real([command[0], "-c", "while True: pass"], **options),
    )
    monkeypatch.setenv("BEDFORM_MAP_TIME", "2.2 s")
    with (
        pytest.raises(bf.LimitExceededError, match=r"in 2\.2 s.*map_time= or BEDFORM_MAP_TIME"),
        pytest.warns(bf.SlowOpenWarning, match=r"2\.2 s at most"),
    ):
        bf.open(hdf5, allow_external=True)
    with pytest.raises(bf.LimitExceededError, match=r"in 0\.1 s"):
        bf.open(hdf5, allow_external=True, map_time=0.1)
    for wrong in ("never", "0", -1, float("nan")):
        with pytest.raises(bf.InvalidArgumentError, match="map_time"):
            bf.open(hdf5, allow_external=True, map_time=wrong)
    monkeypatch.setenv("BEDFORM_MAP_TIME", "soon")
    with pytest.raises(bf.InvalidArgumentError, match="BEDFORM_MAP_TIME"):
        bf.open(hdf5, allow_external=True)


def test_changed_bytes_are_an_error_or_a_map_but_never_another_exception(
    tmp_path: Path, hdf5: Path
) -> None:
    data = hdf5.read_bytes()
    rng = np.random.default_rng(11)
    path = tmp_path / "changed.h5"
    for _ in range(6):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), 40):
            changed[at] = rng.integers(0, 256)
        path.write_bytes(changed)
        with contextlib.suppress(ForeignFileError):
            isolated_chunk_map(path, seconds=10)


def test_names_that_are_not_utf8_are_shown_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file[b"caf\xe9"] = np.arange(2)
    assert set(load(path).arrays) == {"caf%E9"}
    assert read_native(path, "caf%E9").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        ("<f4", {}),
        (">f4", {}),
        ("u1", {"chunks": (1000,)}),
        (">i2", {"chunks": (4096,), "compression": "gzip"}),
        ("<f8", {"chunks": (1 << 17,), "shuffle": True, "compression": "gzip"}),
    ],
)
def test_lists_of_any_density_give_what_numpy_gives(
    tmp_path: Path, dtype: str, layout: dict[str, Any]
) -> None:
    random = np.random.default_rng(3)
    count = 3_000_000
    values = random.integers(0, 100, count).astype(dtype)
    with h5py.File(tmp_path / "lists.h5", "w") as file:
        file.create_dataset("x", data=values, **layout)
        file.create_dataset("rows", data=values.reshape(-1, 10))
    dense = np.flatnonzero(random.random(count) < 1 / 3)
    swarms = np.flatnonzero(np.repeat(random.random(count // 50) < 1 / 3, 50))
    lists = {
        "dense": dense,
        "swarms": swarms,
        "sparse": np.flatnonzero(random.random(count) < 1e-4),
        "all": np.arange(count),
        "dense, then one far away": np.append(np.arange(0, 1000, 3), count - 1),
        "some twice": np.sort(np.concatenate([dense[:5000], dense[:5000:7]])),
        "backwards": dense[::-1],
        "in any order": random.permutation(dense),
        "negative": dense - count,
        "one": np.array([count - 1]),
    }
    with bf.open(tmp_path / "lists.h5") as store:
        for name, at in lists.items():
            for read in (store["x"].oindex, store["x"].vindex):
                np.testing.assert_array_equal(read[at], values[at], err_msg=name)
        rows = dense[dense < count // 10]
        expected = values.reshape(-1, 10)
        np.testing.assert_array_equal(store["rows"].oindex[rows], expected[rows])
        np.testing.assert_array_equal(store["rows"].oindex[rows, 2:5], expected[rows, 2:5])
        at = (rows, random.integers(0, 10, len(rows)))
        np.testing.assert_array_equal(store["rows"].vindex[at], expected[at])


def test_a_file_is_only_read(tmp_path: Path, netcdf: Path) -> None:
    path = tmp_path / "file.nc"
    shutil.copy(netcdf, path)
    before = path.stat()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        chunk_map(path)
        read_native(path, "texts")
    finally:
        tmp_path.chmod(0o755)
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.nc"]


def test_classic_files_are_described_in_the_words_of_the_netcdf_library() -> None:
    golden = Path(__file__).parents[2] / "crates/bedform-format/golden"
    path = golden / "classic-5.nc"
    # The Rust tests make this description, and compare it with the parser.
    description = json.loads((golden / "classic-5-description.json").read_bytes())
    store = netcdf4_store(path)
    check_description(description, path, store, "", words.style_of(description))
    store.close()


def test_whatever_would_change_a_file_says_that_foreign_files_are_never_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("u", "f4", ("x",))[:] = [1, 2, 3]
    import bedform as bf

    store = bf.open(path)
    changes = [
        lambda: store["u"].__setitem__(0, 3.0),
        lambda: store.create_array("v", shape=(3,), dtype="float32"),
        lambda: store.session(),
        lambda: store.settle(),
        lambda: store.append({}, dim="x"),
    ]
    for change in changes:
        with pytest.raises(bf.ReadOnlyError, match="never written; convert it"):
            change()


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
@pytest.mark.parametrize("allow_external", [False, True])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_an_array_that_grows_along_any_axis_is_read_as_h5py_reads_it(
    tmp_path: Path, libver: str, allow_external: bool
) -> None:
    values = np.random.default_rng(1).random((4, 30))
    for number, most in enumerate([(4, None), (None, 30), (None, None), (4, 40)]):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("t", data=values, maxshape=most, chunks=(2, 7))
        with bf.open(path, allow_external=allow_external) as opened:
            np.testing.assert_array_equal(opened["t"][...], values, err_msg=str(most))


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_a_file_that_another_has_taken_the_place_of_is_a_conflict_also_to_who_does_not_look(
    tmp_path: Path, freshness: str
) -> None:
    path, other = tmp_path / "file.h5", tmp_path / "other.h5"
    for number, place in enumerate((path, other)):
        with h5py.File(place, "w") as file:
            file.create_dataset("t", data=np.arange(4.0) + number)
    opened = bf.open(path, freshness=freshness)
    assert opened["t"][1] == 1
    with h5py.File(path, "r+") as file:
        file.create_dataset("more", data=[1])
    assert opened["t"][2] == 2
    other.replace(path)
    with pytest.raises(bf.ConflictError, match="has changed since it was opened"):
        opened["t"][...]


def test_a_file_that_a_writer_has_marked_is_a_conflict_and_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("t", data=[1, 2])
        file.swmr_mode = True
        with pytest.raises(bf.ConflictError, match="open for writing"):
            bf.open(path)


def test_the_names_of_dimensions_are_found_once_for_all_variables_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for number in range(9):
            file.create_dataset(f"t{number}", data=np.zeros(number + 1))
    calls = []
    real = words.dimension_names
    monkeypatch.setattr(
        words, "dimension_names", lambda *given: calls.append(given) or real(*given)
    )
    with bf.open(path) as opened:
        assert len({array.dims for array in opened.arrays().values()}) == 9
    assert len(calls) == 1


@pytest.mark.parametrize("freshness", ["open", "never", "read"])
def test_a_handle_of_a_file_whose_chunks_were_moved_gives_no_other_chunk_and_caches_none(
    tmp_path: Path, freshness: str
) -> None:
    for seed in range(6):
        random = np.random.default_rng(seed)
        path = tmp_path / f"{seed}.h5"
        values = random.normal(size=(20, 30, 30)).astype("f4")
        values[10:] = np.round(values[10:], 1)
        with h5py.File(path, "w") as file:
            file.create_dataset("t", data=values, chunks=(1, 30, 30), compression="gzip")
        old = bf.open(path, freshness=freshness)
        old["t"][0]
        with h5py.File(path, "r+") as file:
            # Other sizes: HDF5 gives compressed chunks other places.
            for row in random.permutation(20)[:8]:
                values[row] = random.normal(size=(30, 30)).round(int(random.integers(0, 5)))
                file["t"][row] = values[row]
        if freshness == "read":
            # This handle opens the file again.
            np.testing.assert_array_equal(old["t"][1:], values[1:])
        else:
            with pytest.raises(bf.ConflictError, match="has changed since it was opened"):
                old["t"][1:]
        np.testing.assert_array_equal(bf.open(path)["t"][:], values)
