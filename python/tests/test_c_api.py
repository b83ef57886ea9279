"""The C library as its users meet it: installed, found, compiled against, run under MPI."""

from __future__ import annotations

import ctypes
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from native import BIN, PROGRAMS, ROOT, STRICT, build, flags, mpiexec, needed, prefix, run

import bedform as bf
from bedform import _internal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["prefix"]

HEADER = (ROOT / "include" / "bedform.h").read_text()
GUIDE = (ROOT / "docs" / "c-api.md").read_text()
PRINTS = re.compile(r"^(?://|!) prints: (.*)$", re.MULTILINE)


def programs_of_the_guide(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def declared() -> set[str]:
    """Returns the functions of the header."""
    return set(re.findall(r"\b(bf_\w+)\(", HEADER)) - {"bf_comm_from_mpi"}


def heat(steps: int = 6, height: int = 48, width: int = 64) -> np.ndarray:
    """Returns the results of the examples, step by step."""
    cells = np.zeros((height + 2, width + 2))
    cells[1:-1, 1:-1][height // 4 + 1 : height // 2, width // 4 + 1 : width // 2] = 100
    planes = []
    for _ in range(steps):
        planes.append(cells[1:-1, 1:-1].copy())
        around = cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]
        cells[1:-1, 1:-1] += 0.2 * (around - 4 * cells[1:-1, 1:-1])
    return np.stack(planes)


def check_heat(place: Path) -> None:
    store = bf.open(place)
    assert np.allclose(store["t"][...], heat(), rtol=1e-12)
    assert store["t"].dims == ("step", "y", "x")
    assert not place.with_name(place.name + ".bedform-log").exists(), "settled at the end"


def test_the_header_names_what_the_library_has(prefix: Path) -> None:
    library = prefix / "lib" / "libbedform.so"
    tool = needed("nm", "apt-get install binutils")
    listed = run(tool, "-D", "--defined-only", library)
    names = {line.split()[-1] for line in listed.splitlines()}
    calls = (ROOT / "vol" / "engine.c").read_text()
    connector = set(re.findall(r'"(bf_hdf5_\w+)"', calls))
    assert len(connector) > 4
    assert names == declared() | connector
    assert (prefix / "lib" / "bedform" / "hdf5" / "libbedform_hdf5.so").exists()
    tool = needed("readelf", "apt-get install binutils")
    assert "[libbedform.so.0]" in run(tool, "-d", library)
    needs = set(re.findall(r"NEEDED.*\[(.*)\]", run(tool, "-d", library)))
    assert not {name for name in needs if "mpi" in name}, "one build serves every MPI"


def test_statuses_have_the_numbers_of_the_header_and_the_names_of_the_engine(prefix: Path) -> None:
    library = ctypes.CDLL(str(prefix / "lib" / "libbedform.so"))
    library.bf_status_name.restype = ctypes.c_char_p
    library.bf_version.restype = ctypes.c_char_p
    assert library.bf_version().decode() == _internal.__version__
    numbers = {name: int(number) for name, number in re.findall(r"BF_([A-Z_]+) = (\d+),? ", HEADER)}
    kinds = {library.bf_status_name(number).decode(): number for number in (*range(1, 16), 100)}
    assert set(kinds) == set(_internal.error_kinds())
    spelled = {re.sub("(?<=[a-z])(?=[A-Z])", "_", kind).upper(): n for kind, n in kinds.items()}
    assert spelled.items() <= numbers.items()


@pytest.mark.parametrize(("compiler", "options"), [("cc", ["-xc", "-std=c99"]), ("c++", ["-xc++"])])
def test_the_header_is_plain_c_and_c_plus_plus(compiler: str, options: list[str]) -> None:
    tool = needed(compiler, "apt-get install g++")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    run(tool, *options, *strict, ROOT / "include" / "bedform.h")


def test_the_example_in_c_is_built_with_pkg_config_and_run_by_four(
    prefix: Path, tmp_path: Path
) -> None:
    program = build(prefix, ROOT / "examples" / "c" / "heat.c", tmp_path / "heat")
    place = tmp_path / "heat.zarr"
    assert "the last plane is right" in mpiexec(4, program, place)
    check_heat(place)
    # Without a launcher, which may lose the output of a process that aborts.
    said = run(program, place, check=False)
    assert "EXISTS" in said.upper(), "a second time it says why not"
    assert not mpiexec(2, program, place, check=False).startswith("0\n")


def test_the_example_in_c_is_built_with_cmake(prefix: Path, tmp_path: Path) -> None:
    tool = needed("cmake", "apt-get install cmake")
    settings = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMPI_C_COMPILER={needed(BIN / 'mpicc')}"]
    run(tool, "-S", ROOT / "examples" / "c", "-B", tmp_path / "build", *settings)
    run(tool, "--build", tmp_path / "build")
    place = tmp_path / "heat.zarr"
    assert "the last plane is right" in mpiexec(4, tmp_path / "build" / "heat", place)
    check_heat(place)


@pytest.fixture(scope="session")
def static_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The static library alone."""
    place = tmp_path_factory.mktemp("static")
    run("make", "--no-print-directory", "-C", ROOT, "install", f"PREFIX={place}", "LIBS=static")
    return place


def test_the_example_in_c_is_linked_statically_and_run_by_four(
    static_prefix: Path, tmp_path: Path
) -> None:
    tool = needed("pkg-config", "apt-get install pkg-config")
    where = str(static_prefix / "lib" / "pkgconfig")
    said = run(tool, "--static", "--cflags", "--libs", "bedform", PKG_CONFIG_PATH=where)
    program, place = tmp_path / "heat", tmp_path / "heat.zarr"
    source = ROOT / "examples" / "c" / "heat.c"
    run(needed(BIN / "mpicc"), *STRICT, source, *said.split(), "-o", program)
    assert "the last plane is right" in mpiexec(4, program, place)
    check_heat(place)
    tool = needed("readelf", "apt-get install binutils")
    assert "bedform" not in run(tool, "-d", program)


def test_the_static_library_has_the_symbols_of_the_header_alone(static_prefix: Path) -> None:
    tool = needed("nm", "apt-get install binutils")
    listed = run(tool, "-g", "--defined-only", static_prefix / "lib" / "libbedform.a").splitlines()
    assert {line.split()[-1] for line in listed if len(line.split()) == 3} == declared()


def test_the_example_in_c_is_linked_statically_by_cmake(
    static_prefix: Path, tmp_path: Path
) -> None:
    tool = needed("cmake", "apt-get install cmake")
    settings = [f"-DCMAKE_PREFIX_PATH={static_prefix}", f"-DMPI_C_COMPILER={needed(BIN / 'mpicc')}"]
    run(tool, "-S", ROOT / "examples" / "c", "-B", tmp_path / "build", *settings)
    run(tool, "--build", tmp_path / "build")
    place = tmp_path / "heat.zarr"
    assert "the last plane is right" in mpiexec(2, tmp_path / "build" / "heat", place)
    check_heat(place)


def mpi_fortran(prefix: Path, source: Path, program: Path) -> str:
    """Compiles a Fortran program with MPI; returns the launcher."""
    # The wheel of MPICH has no Fortran, so the system's MPICH is used with its own mpiexec; the
    # library is the same.
    how = "apt-get install mpich gfortran"
    compiler, mpicc, launcher = (
        needed(f"/usr/bin/{name}", how) for name in ("mpifort", "mpicc", "mpiexec")
    )
    sources = prefix / "share" / "bedform" / "fortran"
    modules = [sources / f"bedform{part}.f90" for part in ("_interfaces", "", "_mpi")]
    shim = program.with_name("shim.o")
    run(mpicc, "-Wall", "-c", sources / "bedform_mpi_fortran.c", *flags(prefix)[:1], "-o", shim)
    options = [
        f"-I{sources}",
        f"-J{program.parent}",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-Wno-compare-reals",
    ]
    run(compiler, *options, *modules, source, shim, *flags(prefix), "-o", program)
    return launcher


def test_the_example_in_fortran_is_built_and_run_by_four(prefix: Path, tmp_path: Path) -> None:
    program, place = tmp_path / "heat", tmp_path / "heat.zarr"
    launcher = mpi_fortran(prefix, ROOT / "examples" / "fortran" / "heat.f90", program)
    assert "the last plane is right" in run(launcher, "-n", "4", program, place)
    check_heat(place)


def test_the_example_in_python_runs_in_four_processes(tmp_path: Path) -> None:
    place = tmp_path / "heat.zarr"
    example = ROOT / "examples" / "python" / "heat.py"
    assert "the last plane is right" in mpiexec(4, sys.executable, example, place)
    check_heat(place)


@pytest.mark.parametrize("program", ["messages", "failures"])
def test_programs_under_mpi_say_ok(prefix: Path, tmp_path: Path, program: str) -> None:
    place = tmp_path / "s.zarr"
    bf.create(place).create_array("t", (4, 8), "float32")
    built = build(prefix, PROGRAMS / f"{program}.c", tmp_path / program)
    for processes in (1, 5) if program == "messages" else (4,):
        assert mpiexec(processes, built, place) == "ok\n"


def test_a_process_that_does_not_come_is_named_by_those_that_are_there(
    prefix: Path, tmp_path: Path
) -> None:
    place = tmp_path / "s.zarr"
    bf.create(place).create_array("t", (4, 8), "float32")
    built = build(prefix, PROGRAMS / "missing.c", tmp_path / "missing")
    said = mpiexec(4, built, place, check=False)
    missed = r"rank 0 has waited \d s in commit\(\) for rank 3, which has not made this call"
    assert len(re.findall(rf"^bedform: {missed}$", said, re.MULTILINE)) == 1, said
    assert len(re.findall(rf"^\d Poisoned: {missed}; it is not", said, re.MULTILINE)) == 4, said
    assert not np.asarray(bf.open(place)["t"][...]).any()


def test_the_programs_of_the_guide_run(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = programs_of_the_guide("c")
    assert len(programs) == 3
    for number, source in enumerate(programs):
        file = tmp_path / f"guide{number}.c"
        file.write_text(source)
        mpi = "bedform_mpi.h" in source
        program = build(prefix, file, tmp_path / f"guide{number}", mpi=mpi)
        said = mpiexec(4, program) if mpi else run(program)
        for line in PRINTS.findall(source):
            assert line in said
    u = bf.open("run.zarr")["u"]
    assert u.shape == (3, 400, 200)
    assert np.allclose(u[:, ::100, 7], [[s + r / 10 for r in range(4)] for s in range(3)])


def fortran(prefix: Path, directory: Path, source: str) -> Path:
    """A program in Fortran, without MPI."""
    compiler = needed("gfortran", "apt-get install gfortran")
    file, program = directory / "first.f90", directory / "first"
    file.write_text(source)
    modules = prefix / "share" / "bedform" / "fortran"
    files = [modules / "bedform_interfaces.f90", modules / "bedform.f90", file]
    run(compiler, "-O1", f"-I{modules}", f"-J{directory}", *files, *flags(prefix), "-o", program)
    return program


def test_the_program_of_the_guide_in_fortran_runs_without_mpi(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, _ = programs_of_the_guide("fortran")
    said = run(fortran(prefix, tmp_path, source))
    for line in PRINTS.findall(source):
        assert line in said
    assert bf.open("fortran.zarr")["t"][5, 0, 0] == 286


def test_the_simulation_of_the_guide_in_fortran_is_run_by_four(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, source = programs_of_the_guide("fortran")
    file, program = tmp_path / "run.f90", tmp_path / "run"
    file.write_text(source)
    said = run(mpi_fortran(prefix, file, program), "-n", "4", program)
    for line in PRINTS.findall(source):
        assert line in said
    u = bf.open("fields.zarr")["u"]
    assert (u.dims, u.shape) == (("step", "y", "x"), (3, 400, 200))
    assert np.array_equal(u[:, ::100, 7], [[10 * s + r for r in range(4)] for s in range(3)])
    assert not (tmp_path / "fields.zarr.bedform-log").exists(), "settled at the end"


def test_a_start_of_0_in_fortran_is_told_where_indices_start(prefix: Path, tmp_path: Path) -> None:
    """Regression: index 0 became -1 in C, and the message had 18446744073709551615."""
    source = """
program first
  use bedform
  implicit none
  integer, parameter :: i8 = bf_index
  type(bf_store) :: store
  type(bf_array) :: t
  type(bf_session) :: session
  type(bf_decomposition) :: parts
  integer :: values(1) = 7, status(4)
  character(1000) :: path
  call get_command_argument(1, path)
  call bf_create(path, store)
  call bf_create_array(store, "t", "int32", [4_i8, 3_i8], array=t)
  call bf_session_begin(store, session)
  call bf_write(t, [0_i8, 1_i8], values, status=status(1))
  call bf_read(t, [1_i8, 0_i8], values, status=status(2))
  call bf_session_write(session, "t", [0_i8, 0_i8], values, status=status(3))
  call bf_decomposition_declare(reshape([0_i8], [1, 1]), reshape([1_i8], [1, 1]), parts, status(4))
  print "(a)", bf_last_error()
  if (any(status /= BF_INVALID_ARGUMENT)) error stop "another status"
end program
"""
    said = run(fortran(prefix, tmp_path, source), tmp_path / "s.zarr")
    assert "1 before the first; indices start at 0 in C, at 1 in Fortran" in said


def test_fortran_drains_and_settles_with_options(prefix: Path, tmp_path: Path) -> None:
    source = """
program first
  use bedform
  implicit none
  integer, parameter :: i8 = bf_index
  type(bf_store) :: store
  type(bf_session) :: session
  integer(bf_index) :: committed, drained
  integer :: status
  character(1000) :: path
  call get_command_argument(1, path)
  call bf_create(path, store)
  call bf_create_array(store, "t", "int32", [4_i8, 3_i8])
  call bf_session_begin(store, session, options='{"settle": "later"}')
  call bf_session_write(session, "t", [1_i8, 1_i8], reshape([1, 2, 3, 4], [4, 1]))
  call bf_session_commit(session, committed)
  call bf_session_drain(session, drained)
  call bf_session_end(session)
  call bf_settle_together(store, options='{"grace": 1}', status=status)
  print "(a)", bf_last_error()
  call bf_settle_together(store, options='{"memory_bytes": "64 MiB", "grace_seconds": 0}')
  if (drained /= committed .or. status /= BF_INVALID_ARGUMENT) error stop "another number"
end program
"""
    place = tmp_path / "s.zarr"
    assert 'no option "grace"' in run(fortran(prefix, tmp_path, source), place)
    assert bf.open(place)["t"][0].tolist() == [1, 2, 3, 4]
    assert not place.with_name("s.zarr.bedform-log").exists()
