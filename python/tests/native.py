"""Building and starting programs in C and Fortran, alone and under MPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "c_programs"
STRICT = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]
# A hung collective call must not hang the tests.
TIMEOUT = PATIENCE


def run(*command: str | Path, check: bool = True, **environment: str) -> str:
    """Runs a command; returns its output, or shows all of it on failure."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    if check and done.returncode != 0:
        pytest.fail(
            f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}", pytrace=False
        )
    return done.stdout if check else f"{done.returncode}\n{done.stdout}{done.stderr}"


def mpiexec(processes: int, *command: str | Path, check: bool = True) -> str:
    """Runs a command in several processes, by the MPI of the test environment."""
    return run(*launched(processes), *command, check=check)


def launched(processes: int) -> list[str]:
    """Returns the command line that starts a command in several processes."""
    return [needed(BIN / "mpiexec"), "-n", str(processes)]


def needed(tool: str | Path, how: str = "pip install mpich") -> str:
    """Returns the path of a tool; if it is missing, skips the test with installation advice."""
    found = shutil.which(str(tool))
    if found is None:
        pytest.skip(f"{tool} is missing here; to run this: {how}")
    return found


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bedform's C library, installed as a user would; BEDFORM_TEST_PREFIX names another one."""
    if installed := os.environ.get("BEDFORM_TEST_PREFIX"):
        return Path(installed)
    place = tmp_path_factory.mktemp("prefix")
    run("make", "--no-print-directory", "-C", ROOT, "install", f"PREFIX={place}", "LIBS=shared")
    return place


def flags(prefix: Path) -> list[str]:
    """Returns pkg-config's compiler flags, and an rpath to the library."""
    where = str(prefix / "lib" / "pkgconfig")
    tool = needed("pkg-config", "apt-get install pkg-config")
    said = run(tool, "--cflags", "--libs", "bedform", PKG_CONFIG_PATH=where)
    return [*said.split(), f"-Wl,-rpath,{prefix / 'lib'}"]


def build(prefix: Path, source: Path, program: Path, *, mpi: bool = True) -> Path:
    """Compiles a C program."""
    compiler = needed(BIN / "mpicc") if mpi else needed("cc", "apt-get install gcc")
    run(compiler, *STRICT, source, *flags(prefix), "-o", program)
    return program
