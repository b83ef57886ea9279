"""The headers and the Fortran modules under every standard and compiler, without a warning."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from native import BIN, PROGRAMS, ROOT, build, flags, mpiexec, needed, prefix, run

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["prefix"]

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}"]
STANDARDS = {
    "gcc": ["c99", "c11", "c17", "c2x", "gnu99", "gnu11", "gnu17"],
    "g++": ["c++98", "c++03", "c++11", "c++14", "c++17", "c++20", "gnu++98", "gnu++20"],
}
STANDARDS["clang"], STANDARDS["clang++"] = STANDARDS["gcc"], STANDARDS["g++"]
CASES = [(compiler, standard) for compiler, all_of in STANDARDS.items() for standard in all_of]


def strict(compiler: str, standard: str, source: Path, *more: str) -> None:
    language = "c++" if compiler.endswith("++") else "c"
    tool = needed(compiler, f"apt-get install {compiler.replace('clang++', 'clang')}")
    run(tool, f"-x{language}", f"-std={standard}", *STRICT, *more, source)


@pytest.mark.parametrize(("compiler", "standard"), CASES)
def test_programs_compile_without_a_warning(tmp_path: Path, compiler: str, standard: str) -> None:
    for name in ("standard", "queries"):
        strict(compiler, standard, PROGRAMS / f"{name}.c")
    if standard not in ("c99", "gnu99"):
        strict(compiler, standard, PROGRAMS / "types.c")
    # The headers of MPI themselves are not the test's.
    said = run(needed(BIN / "mpicc"), "-show")
    include = [f"-isystem{path}" for path in re.findall(r"-I(\S+)", said)]
    program = tmp_path / "mpi.c"
    program.write_text(
        "#include <bedform_mpi.h>\n"
        "int main(void) {\n"
        "  bf_comm comm;\n"
        "  if (bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) return 1;\n"
        "  return (int)bf_comm_free(&comm);\n"
        "}\n"
    )
    strict(compiler, standard, program, *include)


@pytest.mark.parametrize("standard", ["gnu", "f2018", "f2008ts"])
def test_the_fortran_modules_compile_without_a_warning(tmp_path: Path, standard: str) -> None:
    tool = needed("gfortran", "apt-get install gfortran")
    names = ("bedform_interfaces", "bedform", "bedform_mpi")
    sources = [ROOT / "fortran" / f"{name}.f90" for name in names]
    options = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fimplicit-none", f"-J{tmp_path}"]
    run(tool, f"-std={standard}", *options, "-fsyntax-only", *sources)


def test_fortran_has_every_call_of_the_header() -> None:
    header = (ROOT / "include" / "bedform.h").read_text()
    interfaces = (ROOT / "fortran" / "bedform_interfaces.f90").read_text()
    module = (ROOT / "fortran" / "bedform.f90").read_text()
    calls = set(re.findall(r"\b(bf_\w+)\(", header)) - {"bf_comm_from_mpi"}
    bound = set(re.findall(r'name="(bf_\w+)"', interfaces))
    # Fortran always passes the type of the data.
    plain = {call for call in calls if f"{call}_as" not in calls}
    assert bound == plain
    public = set(re.findall(r"\bbf_\w+", " ".join(re.findall(r"public ::(?:.*&\n)*.*", module))))
    assert {call.removesuffix("_as") for call in calls} <= public


def test_plain_c_names_types_and_other_c_passes_them(prefix: Path, tmp_path: Path) -> None:
    """The program of C99 names what C11 finds by itself: both get the same."""
    for standard in ("c99", "c11", "gnu17"):
        place = tmp_path / f"{standard}.zarr"
        bf.create(place).create_array("t", (2, 3), "float64")
        program = tmp_path / standard
        tool = needed("gcc", "apt-get install gcc")
        source = PROGRAMS / "standard.c"
        run(tool, f"-std={standard}", source, *flags(prefix), "-o", program)
        said = run(program, place)
        assert "t holds float64 and the data are int64" in said
        assert bf.open(place)["t"][...].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("processes", [1, 2])
def test_decompositions_that_are_freed_leave_no_memory_behind(
    prefix: Path, tmp_path: Path, processes: int
) -> None:
    """Regression: 32 bytes stayed for each box of two axes until the end of the session."""
    program = build(prefix, PROGRAMS / "declares.c", tmp_path / "declares")
    said = mpiexec(processes, program, tmp_path / "s.zarr")
    grown = int(re.findall(r"grown by (-?\d+) KiB", said)[0])
    # 32 bytes a box would be 28,000 KiB.
    assert grown < 4000, said


def test_a_run_goes_on_where_it_was_killed(prefix: Path, tmp_path: Path) -> None:
    program = build(prefix, ROOT / "examples" / "c" / "restart.c", tmp_path / "restart")
    place = tmp_path / "run.zarr"
    assert "goes on at step 0" in mpiexec(2, program, place, "3")
    # A process that dies between its write and the commit.
    source = (ROOT / "examples" / "c" / "restart.c").read_text()
    dying = tmp_path / "dying.c"
    commit = "check(bf_session_commit(session, NULL));"
    assert source.count(commit) == 1
    dying.write_text(source.replace(commit, f"if (step == 5) _Exit(9);\n    {commit}"))
    assert mpiexec(2, build(prefix, dying, tmp_path / "dying"), place, "8", check=False)[0] != "0"
    assert bf.open(place)["u"].shape == (5, 20, 20)
    assert "goes on at step 5" in mpiexec(2, program, place, "7")
    u = bf.open(place)["u"][...]
    steps = np.arange(1, 8)[:, np.newaxis, np.newaxis]
    expected = np.concatenate([np.broadcast_to(steps * by, (7, 10, 20)) for by in (1, 2)], axis=1)
    assert np.array_equal(u, expected)


def test_the_program_of_the_installation_keeps_a_store_in_order(
    prefix: Path, tmp_path: Path
) -> None:
    tool, place = prefix / "bin" / "bedform", tmp_path / "s.zarr"
    store = bf.create(place)
    store.create_array("t", (4, 6), "int32", dims=("y", "x"), chunks=(2, 3))
    with store.session(settle="later") as session:
        session.write("t", np.arange(24).reshape(4, 6))
    assert "t: 4 x 6 of int32, chunks 2 x 3" in run(tool, "info", place)
    assert "1 commit to settle" in run(tool, "info", place)
    found = json.loads(run(tool, "info", place, "--json"))
    assert found["arrays"]["t"]["shape"] == [4, 6]
    assert found["log"]["commits"] == 1
    assert "nothing to recover" in run(tool, "recover", place)
    assert "everything that is stored is whole" in run(tool, "verify", place)
    assert "1 commit settled" in run(tool, "settle", place, "--memory=64MiB")
    assert "nothing to settle" in run(tool, "settle", place)
    assert not place.with_name("s.zarr.bedform-log").exists()
    assert np.array_equal(bf.open(place)["t"][...], np.arange(24).reshape(4, 6))

    session = bf.open(place, "r+").session(settle="later")
    session.write("t", np.full((1, 6), 99), start=(0, 0))
    session.flush()
    session._inner.close()
    shard = next(path for path in (place / "t" / "c").rglob("*") if path.is_file())
    shard.write_bytes(shard.read_bytes()[:-9])
    assert run(tool, "verify", place, check=False).startswith("1\n")
    for wrong in (["settel", place], ["settle"], ["settle", place, "--memory", "much"]):
        said = run(tool, *wrong, check=False)
        assert said.startswith("2\nbedform: ")
        assert said.count("\n") == 2
    assert run(tool, "info", tmp_path / "none.zarr", check=False).startswith("2\nbedform: ")


def test_python_and_the_program_of_the_installation_have_the_same_options(prefix: Path) -> None:
    for command in ("recover", "settle", "info", "verify"):
        own = set(re.findall(r"--\w+", run(prefix / "bin" / "bedform", command, "--help")))
        python = run(sys.executable, "-m", "bedform", command, "--help", COLUMNS="200")
        assert own - {"--help"} <= set(re.findall(r"--\w+", python)), command
