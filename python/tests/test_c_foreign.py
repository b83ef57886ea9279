"""Foreign files through C and Fortran, against the libraries of their formats."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from foreign_files import load, write_hdf5, write_netcdf
from native import PROGRAMS, build, flags, needed, prefix, run

import bedform as bf

__all__ = ["prefix"]

GOLDEN = Path(__file__).parents[2] / "crates" / "bedform-format" / "golden"


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("program") / "foreign"
    return build(prefix, PROGRAMS / "foreign.c", place, mpi=False)


def check_elements(
    program: Path, path: Path, out: Path, values: dict[str, np.ndarray[Any, Any]]
) -> None:
    """C gives the elements of all variables, in the machine's byte order."""
    lines = run(program, "read", path, out, *values).splitlines()
    data = out.read_bytes()
    assert len(lines) == len(values)
    for said, (name, expected) in zip(lines, values.items(), strict=True):
        native = expected.astype(expected.dtype.newbyteorder("="))
        found = np.frombuffer(data[: native.nbytes], native.dtype).reshape(native.shape)
        np.testing.assert_array_equal(found, native, err_msg=name)
        if native.dtype.kind in "iuf":
            assert said == native.dtype.name, name
        data = data[native.nbytes :]
    assert not data


@pytest.mark.parametrize("write", [write_netcdf, write_hdf5])
def test_c_reads_what_hdf5_reads(program: Path, tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "file.h5")
    arrays = load(path).arrays
    native = [name for name, array in arrays.items() if "native" in array["storage"]]
    said = run(program, "read", path, tmp_path / "out", *native)
    assert said.split() == ["Unsupported"] * len(native)
    values = {}
    with h5py.File(path) as file:
        for name in arrays.keys() - set(native):
            stored = file.get(f"_nc4_non_coord_{name}") or file[name]
            values[name] = np.full(arrays[name]["shape"], stored.fillvalue, stored.dtype)
            values[name][tuple(slice(0, size) for size in stored.shape)] = stored[...]
    assert len(values) > 10
    check_elements(program, path, tmp_path / "out", values)
    assert run(program, "read", path, tmp_path / "out", "any").startswith("NotFound")


def test_c_says_what_to_do_with_a_file_that_only_the_library_understands(
    program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", driver="split", meta_ext=b"", raw_ext=b"-r"):
        pass
    said = run(program, "read", path, tmp_path / "out", "any")
    assert said.startswith("Unsupported: ")
    assert "bedform info" in said


@pytest.mark.parametrize("version", [1, 2, 5])
def test_c_reads_what_the_netcdf_library_reads_of_classic_files(
    program: Path, tmp_path: Path, version: int
) -> None:
    path = GOLDEN / f"classic-{version}.nc"
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        values = {name: np.asarray(variable[...]) for name, variable in file.variables.items()}
    check_elements(program, path, tmp_path / "out", values)


def test_c_describes_a_file_with_the_words_of_python(program: Path, tmp_path: Path) -> None:
    path = write_netcdf(tmp_path / "file.nc")
    lines = run(program, "describe", path, "packed").splitlines()
    nodes, root, attributes, described, plan = (json.loads(line) for line in lines[:5])
    assert lines[5] == "x 1"
    opened = bf.open(path)
    assert {name for name, kind in nodes.items() if kind == "array"} == set(opened.arrays())
    assert {name for name, kind in nodes.items() if kind == "group"} == set(opened.groups())
    assert root["Conventions"] == "CF-1.8"
    assert root["numbers"] == [0.0, 1.0, 2.0]
    array = opened["packed"]
    assert attributes.keys() == array.attributes.keys()
    assert attributes["_FillValue"] == -9
    assert attributes["scale_factor"] == 2.0
    assert attributes["flags"] == [1, 2]
    assert attributes["texts"] == ["a", "bb"]
    assert described["shape"] == list(array.shape)
    assert described["chunks"] == [2, 4]
    assert described["dims"] == ["time", "x"]
    assert described["attributes"] == attributes
    explained = array.explain().to_dict()
    for key in ("objects", "requests", "bytes", "chunks", "decoded_bytes"):
        assert plan[key] == explained[key], key
    # A variable that only the library reads has its attributes all the same.
    assert "Unsupported" in run(program, "describe", path, "texts").splitlines()[-1]


def test_c_converts_a_foreign_file(program: Path, tmp_path: Path) -> None:
    path, target = tmp_path / "file.nc", tmp_path / "file.zarr"
    values = np.random.default_rng(5).normal(size=(24, 30, 40)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 30, 40), compression="gzip")
        file["t"].attrs["units"] = "K"
        file["text"] = ["a", "b"]
        file["outside"] = h5py.ExternalLink("other.h5", "/t")
    said = run(program, "convert", path, target, "{}")
    assert said.startswith("InvalidArgument: ")
    assert "only the library of its format reads array 'text'" in said
    assert run(program, "convert", path, target, '{"excluded": []}').startswith("InvalidArgument: ")
    options = {
        "reads": {"phony_dim_1,phony_dim_2": 0.5, "phony_dim_0": 0.5},
        "memory_bytes": "64 MiB",
        "exclude": ["text"],
        "verify": True,
        "layout": {"chunks": [24, 10, 10]},
    }
    lines = run(program, "convert", path, target, json.dumps(options)).splitlines()
    assert lines[-1] == f"{values.nbytes} of {values.nbytes}"
    assert any(line.startswith("warning: ") and "outside" in line for line in lines)
    store = bf.open(target)
    np.testing.assert_array_equal(store["t"][...], values)
    assert store["t"].chunks == (24, 10, 10)
    assert store["t"].attributes["units"] == "K"
    assert run(program, "convert", path, target, "{}").startswith("Exists: ")


def test_a_conversion_that_c_stops_goes_on_when_the_call_is_made_again(
    program: Path, tmp_path: Path
) -> None:
    source = bf.create(tmp_path / "source.zarr")
    array = source.create_array("t", (40, 50, 60), "f8", ("t", "y", "x"))
    array[...] = np.arange(120_000.0).reshape(40, 50, 60)
    target = tmp_path / "target.zarr"
    said = run(program, "stop", tmp_path / "source.zarr", target)
    assert said.splitlines() == ["Interrupted", "asked"]
    np.testing.assert_array_equal(bf.open(target)["t"][...], array[...])


def test_fortran_reads_explains_and_converts_a_foreign_file(prefix: Path, tmp_path: Path) -> None:
    compiler = needed("gfortran", "apt-get install gfortran")
    path, target = tmp_path / "file.nc", tmp_path / "file.zarr"
    values = np.arange(24.0).reshape(2, 3, 4)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 3, 4), compression="gzip")
    source = """
program foreign
  use bedform
  implicit none
  type(bf_store) :: store
  type(bf_array) :: t
  real(8) :: plane(4, 3)
  character(:), allocatable :: text
  character(1000) :: path, target
  integer :: status
  call get_command_argument(1, path)
  call get_command_argument(2, target)
  call bf_open(path, "r", store)
  call bf_list(store, text)
  print "(a)", text
  call bf_open_array(store, "t", t)
  call bf_read(t, [1_bf_index, 1_bf_index, 2_bf_index], plane)
  print "(12f6.1)", plane
  call bf_array_explain(t, [1_bf_index, 1_bf_index, 2_bf_index], [4_bf_index, 3_bf_index], text)
  print "(a)", text
  call bf_write(t, [1_bf_index, 1_bf_index, 2_bf_index], plane, status=status)
  if (status /= BF_READ_ONLY) error stop "written"
  call bf_convert(path, target, '{"verify": true}')
end program
"""
    file, program = tmp_path / "foreign.f90", tmp_path / "foreign"
    file.write_text(source)
    modules = prefix / "share" / "bedform" / "fortran"
    files = [modules / "bedform_interfaces.f90", modules / "bedform.f90", file]
    options = ["-O1", f"-I{modules}", f"-J{tmp_path}"]
    run(compiler, *options, *files, *flags(prefix), "-o", program)
    listed, numbers, plan = run(program, path, target).splitlines()
    assert json.loads(listed) == {"t": "array"}
    assert [float(number) for number in numbers.split()] == values[1].ravel().tolist()
    assert json.loads(plan)["chunks"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(bf.open(target)["t"][...], values)
