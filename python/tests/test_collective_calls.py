"""Collective calls that differ between processes: real ones, under mpiexec, through mpi4py.

F22: one process of four makes another call than the others, or the same with another array, axis,
type, option or store. All of them get one error that names the call of each. No process hangs, and
only earlier commits are visible. One job runs all cases, each in its own store.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from native import mpiexec
from support import is_night

import bedform as bf

PROGRAMS = Path(__file__).parent / "mpi_programs"


def lines_where_one_is_missing(
    tmp_path: Path, missing: int, event: str, timeout: str
) -> list[list[str]]:
    place = tmp_path / "s.zarr"
    bf.create(place).create_array("t", (4, 4), "int32")
    program = PROGRAMS / "missing_process.py"
    said = mpiexec(4, sys.executable, program, place, str(missing), event, timeout)
    return [line.split("|") for line in said.splitlines()]


def test_a_process_that_comes_late_is_named_and_waited_for(tmp_path: Path) -> None:
    lines = lines_where_one_is_missing(tmp_path, 2, "warned", "0")
    assert [line[0] for line in lines] == ["committed"] * 4
    warned = "s in commit() for rank 2, which has not made this call"
    assert len(lines[0]) == 2
    assert lines[0][1].endswith(warned), lines
    assert (np.asarray(bf.open(tmp_path / "s.zarr")["t"][...]) == 2).all()


def test_a_process_that_does_not_come_fails_the_call_of_the_others(tmp_path: Path) -> None:
    lines = lines_where_one_is_missing(tmp_path, 3, "given up", "6")
    named = "s in commit() for rank 3, which has not made this call; it is not known what became"
    for line in lines:
        assert line[0].startswith("rank 0 has waited "), lines
        assert named in line[0], lines
    assert len({line[0] for line in lines}) == 1, "all say the same"
    store = bf.open(tmp_path / "s.zarr", mode="r+")
    assert (np.asarray(store["t"][...]) == 1).all()
    store.settle()
    assert store.verify() == []


def checked(place: Path, odd_ranks: str) -> int:
    said = mpiexec(4, sys.executable, PROGRAMS / "different_calls.py", place, odd_ranks)
    return int(said.split()[-1])


def test_a_process_that_calls_something_else_is_named_to_all(tmp_path: Path) -> None:
    assert checked(tmp_path, "2") == 29


@pytest.mark.reliability
def test_each_process_in_turn_calls_something_else(tmp_path: Path) -> None:
    rounds, ranks = 1, "0,1,3"
    if is_night():
        rounds, ranks = 9, "0,1,2,3"
    count = 0
    for number in range(rounds):
        place = tmp_path / str(number)
        place.mkdir()
        count += checked(place, ranks)
    sys.stdout.write(f"COUNT different-calls {count}\n")
