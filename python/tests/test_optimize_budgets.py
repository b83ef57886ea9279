"""Budgets of replicas: named by notes, too small for existing replicas, or left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

SERIES = {"phony_dim_0": 1}


def file_of(path: Path, seed: int, low: int, high: list[int]) -> tuple[int, ...]:
    """Writes an array of random shape, of hundredths, in maps; returns its shape."""
    random = np.random.default_rng(seed)
    shape = tuple(int(length) for length in random.integers(low, high))
    values = np.round(random.random(shape, dtype="f4"), 2)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(1, *shape[1:]), compression="gzip")
    return shape


def replicas_of(path: Path) -> set[str]:
    return {one.name for one in Path(f"{path}.bedform/replicas").glob("[0-9a-f]*")}


def stored_bytes(done: bf.Optimization) -> int:
    assert done.done is not None
    return int(done.done["bytes"])


def notes_of(done: bf.Optimization) -> str:
    return " ".join([*done.plan["notes"], *(done.done["warnings"] if done.done else [])])


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """A file of noise in maps: a replica of it takes more than 20 %."""
    path = tmp_path / "noise.nc"
    values = np.random.default_rng(0).random((200, 40, 40), dtype="f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 40, 40))
    return path


@pytest.fixture
def underestimated(tmp_path: Path) -> tuple[Path, set[str], str]:
    """A file, its replica, and a budget that holds a better one only by its predicted bytes."""
    path = tmp_path / "x.nc"
    shape = file_of(path, 230, 20, [300, 60, 60])
    region = {"phony_dim_1": (0, shape[1] // 3)}
    made = bf.optimize(path, "1000%", reads=SERIES, region=region)
    assert made.made
    better = bf.optimize(path, "1000%", reads=SERIES, dry_run=True).plan["make"]
    return path, replicas_of(path), f"{better[0]['bytes']} B"


def test_an_existing_replica_stays_if_the_better_one_is_larger_than_predicted(
    underestimated: tuple[Path, set[str], str],
) -> None:
    path, before, budget = underestimated
    done = bf.optimize(path, budget, reads=SERIES)
    assert set(done.plan["drop"]) == before
    assert not done.made
    assert "was removed" in notes_of(done)
    assert (replicas_of(path), done.done and done.done["dropped"]) == (before, [])
    with bf.open(path) as store:
        assert store["t"].explain(np.s_[:, 0, 0]).to_dict()["replicas"]


def test_the_command_counts_the_replica_that_stays_as_kept(
    underestimated: tuple[Path, set[str], str],
) -> None:
    path, _, budget = underestimated
    asked = ["optimize", str(path), "--reads", "phony_dim_0=1", "--budget", budget]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0
    assert "0 made, 1 kept, 0 dropped" in said.output


def test_the_budget_that_the_removal_names_replaces_the_existing_replica(
    underestimated: tuple[Path, set[str], str],
) -> None:
    path, before, budget = underestimated
    named = re.search(
        r"a budget of ([\d.]+ \w+) keeps", notes_of(bf.optimize(path, budget, reads=SERIES))
    )
    assert named
    done = bf.optimize(path, named[1], reads=SERIES)
    assert len(done.made) == 1
    assert replicas_of(path) == {done.made[0]["id"]} != before


@pytest.mark.parametrize("seed", [6, 8, *range(100, 112)])
def test_the_budget_that_a_note_names_makes_a_replica(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "x.nc"
    file_of(path, seed, 5, [400, 60, 60])
    notes = notes_of(bf.optimize(path, "2%", reads=SERIES))
    named = re.search(r"one of ([\d.]+ \w+)", notes)
    if named is None:
        assert "whatever the budget" in notes
        return
    done = bf.optimize(path, named[1], reads=SERIES)
    assert len(done.made) == 1, notes_of(done)


@pytest.mark.parametrize("read", ["phony_dim_0", "phony_dim_1"])
def test_a_budget_too_small_for_an_existing_replica_names_the_one_that_keeps_it(
    noise: Path, read: str
) -> None:
    made = bf.optimize(noise, "1000%", reads=SERIES)
    before = replicas_of(noise)
    planned: Any = bf.optimize(noise, "50%", reads={read: 1}, dry_run=True)
    assert set(planned.plan["drop"]) == before
    assert "whatever the budget" not in notes_of(planned)
    named = re.search(r"one of ([\d.]+ \w+) keeps them", notes_of(planned))
    assert named
    bf.optimize(noise, named[1], reads={read: 1})
    assert {one["id"] for one in made.made} == before <= replicas_of(noise)


def test_without_a_budget_existing_replicas_stay_beyond_the_default_of_20_percent(
    noise: Path,
) -> None:
    made = bf.optimize(noise, "1000%", reads=SERIES)
    before = replicas_of(noise)
    assert stored_bytes(made) > 0.2 * noise.stat().st_size
    again = bf.optimize(noise, reads=SERIES)
    assert (again.plan["budget_bytes"], again.plan["drop"]) == (stored_bytes(made), [])
    said = CliRunner().invoke(app, ["optimize", str(noise), "--reads", "phony_dim_0=1"])
    assert "0 made, 1 kept, 0 dropped" in said.output
    assert replicas_of(noise) == before
    explicit = bf.optimize(noise, "20%", reads=SERIES)
    assert (explicit.plan["drop"], replicas_of(noise)) == (list(before), set())


def test_without_a_budget_new_replicas_take_20_percent(noise: Path) -> None:
    plan = bf.optimize(noise, reads=SERIES, dry_run=True).plan
    assert plan["budget_bytes"] == int(0.2 * noise.stat().st_size)


def test_the_budget_that_would_have_kept_a_dropped_replica_makes_it_anew(noise: Path) -> None:
    bf.optimize(noise, "1000%", reads=SERIES)
    before = replicas_of(noise)
    dropped = bf.optimize(noise, "50%", reads=SERIES)
    assert replicas_of(noise) == set()
    named = re.search(r"one of ([\d.]+ \w+) keeps them", notes_of(dropped))
    assert named
    bf.optimize(noise, named[1], reads=SERIES)
    assert replicas_of(noise) == before
