"""The HDF5 connector: programs that know nothing of Bedform read and write as without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from native import ROOT, needed, run

from bedform import _hdf5

PROGRAM = Path(__file__).parent / "hdf5_program.py"
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
NAMES = """
import ctypes, h5py, netCDF4, sys
h5py.File("a.h5", "w").close()
with h5py.File("a.h5") as file, netCDF4.Dataset("a.h5") as other:
    maps = open("/proc/self/maps").read().split()
    name = ctypes.create_string_buffer(64)
    library = ctypes.CDLL(next(path for path in maps if "h5py.libs/libhdf5-" in path))
    library.H5VLget_connector_name.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t]
    assert library.H5VLget_connector_name(file.id.id, name, 64) == 7
    assert len({path for path in maps if "/libhdf5-" in path}) == 2
    print(name.value.decode(), sum("libbedform_hdf5" in path for path in maps) > 0)
"""


def printed(directory: Path, *program: str | Path, **environment: str) -> str:
    """Returns the output of a Python program that runs in a new directory."""
    directory.mkdir()
    before = Path.cwd()
    os.chdir(directory)
    try:
        return run(sys.executable, *program, **environment)
    finally:
        os.chdir(before)


def with_connector() -> dict[str, str]:
    return _hdf5.environment({}, [sys.executable])


def test_the_sources_are_standard_c_without_a_warning() -> None:
    compiler = needed("cc", "apt-get install gcc")
    run(compiler, *STRICT, "-fsyntax-only", *sorted((ROOT / "vol").glob("*.c")))


def test_a_program_meets_the_same_with_the_connector_as_without(tmp_path: Path) -> None:
    """Both libraries of one process, all classes of objects, and errors with their numbers."""
    alone = printed(tmp_path / "alone", PROGRAM)
    assert len(alone) > 10_000
    assert printed(tmp_path / "connected", PROGRAM, **with_connector()) == alone


def test_one_connector_serves_two_libraries_of_a_process(tmp_path: Path) -> None:
    said = printed(tmp_path / "here", "-c", NAMES, **with_connector())
    assert said == "bedform True\n"


def test_the_connector_links_no_hdf5() -> None:
    said = run(needed("nm", "apt-get install binutils"), "-D", _hdf5.PLUGINS / "libbedform_hdf5.so")
    names = [line.split()[-1] for line in said.splitlines()]
    assert sorted(name for name in names if name.startswith("H5")) == [
        "H5PLget_plugin_info",
        "H5PLget_plugin_type",
    ]
