"""Joint reads of a run's processes, learnt and predicted for another number of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import PATIENCE

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 60

PART = """
import os, sys, time
from pathlib import Path
import bedform as bf

place, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
first, end = {part}
with bf.open(place) as store:
    # All are there before any has ended.
    Path(f"{{place}}-{{size}}-{{rank}}").touch()
    while len(list(Path(place).parent.glob(f"*-{{size}}-*"))) < size:
        time.sleep(0.01)
    for row in range(first, end, {step}):
        assert store["t"][row].shape == (16, 32)
        time.sleep(0.002)
    while not all(Path(f"{{place}}-{{size}}-{{other}}").exists() for other in range(size)):
        time.sleep(0.01)
    print(store.stats()["prefetch"]["foreseen"])
"""
BLOCKS = PART.format(part="60 * rank // size, 60 * (rank + 1) // size", step=1)
HALF = """
import sys
import bedform as bf

first = 30 * int(sys.argv[2])
with bf.open(sys.argv[1]) as store:
    for row in range(first, first + 30):
        store["t"][row]
"""
CYCLIC = PART.format(part="rank, 60", step="size")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("BEDFORM_SIDECAR", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "s.zarr"
    data = np.zeros((ROWS, 16, 32), "f4")
    bf.create(path).create_array("t", data=data, chunks=(1, 16, 32))
    bf.watch(path)
    return path


def run(script: str, place: Path, size: int, *, are_told: bool) -> list[int]:
    """Runs a program with `size` processes; returns the predicted reads of each."""
    for mark in place.parent.glob("*.zarr-*"):
        mark.unlink()

    def start(rank: int) -> subprocess.Popen[str]:
        told = {"PMI_RANK": str(rank), "PMI_SIZE": str(size)} if are_told else {}
        return subprocess.Popen(
            [sys.executable, "-c", script, str(place), str(rank), str(size)],
            env={**os.environ, **told, "BEDFORM_THROTTLE": "1 GB/s, 2 ms"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    foreseen = []
    for process in [start(rank) for rank in range(size)]:
        said, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        foreseen.append(int(said))
    return foreseen


def learned(place: Path) -> dict[str, Any]:
    known: dict[str, Any] = bf.learn(place)["knowledge"]["arrays"]["t"]
    return known


def test_six_processes_foresee_their_parts_of_what_four_have_read(place: Path):
    run(BLOCKS, place, 4, are_told=False)
    (found,) = learned(place)["global"]
    assert found["decomposition"] == "blocks"
    assert found["walk"]["start"] == [0, 1, 0, 16, 0, 32]
    assert found["walk"]["levels"] == [{"step": [1, 1, 0, 0, 0, 0], "count": ROWS}]
    bf.watch(place, on=False)
    # The first of ten reads identifies the process's part.
    assert run(BLOCKS, place, 6, are_told=True) == [9] * 6
    untold = run(BLOCKS, place, 6, are_told=False)
    # In the earlier run processes also began at 0 and 30.
    assert max(untold[rank] for rank in (1, 2, 4, 5)) <= 7


def test_processes_that_take_rows_in_turn_foresee_their_own(place: Path):
    run(CYCLIC, place, 4, are_told=False)
    (found,) = learned(place)["global"]
    assert found["decomposition"] == "cyclic"
    assert found["walk"]["levels"] == [{"step": [1, 1, 0, 0, 0, 0], "count": ROWS}]
    bf.watch(place, on=False)
    assert run(CYCLIC, place, 6, are_told=True) == [9] * 6


def test_runs_one_after_the_other_are_not_put_together(place: Path):
    for half in ("0", "1"):
        subprocess.run([sys.executable, "-c", HALF, str(place), half], timeout=PATIENCE, check=True)
    known = learned(place)
    assert known["read"]["reads"] == ROWS
    assert known["global"] == []


def test_the_command_says_what_processes_read_together(place: Path):
    run(BLOCKS, place, 4, are_told=False)
    shown = subprocess.run(
        [sys.executable, "-m", "bedform", "learn", str(place)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout
    assert "60 times (+1, 0, 0); each process takes a run of them" in " ".join(shown.split())
