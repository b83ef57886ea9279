"""Plans of sources with very many arrays: the lines that are shown."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

import bedform as bf
from bedform.cli import optimize as command

MANY = 300


def read(number: int) -> dict[str, Any]:
    """A kind of reads of an array of its own; later ones save more."""
    return {
        "array": f"v{number:03}",
        "dims": ["x"],
        "shape": [10],
        "start": [0],
        "end": [100],
        "reads": 1.0,
        "seconds_of_source": 1.0,
        "seconds_now": 1.0,
        "seconds_then": 1.0 - number / (2 * MANY),
    }


def replica(number: int) -> dict[str, Any]:
    expected = {"reads": 1.0, "seconds_without": 1.0, "seconds_with": 1.0 - number / (2 * MANY)}
    return {
        "id": f"{number:016x}",
        "array": f"v{number:03}",
        "shape": [100],
        "chunks": [10],
        "order": "row-major",
        "bytes": 1000,
        "expected": [expected],
    }


def replicas(count: int) -> bf.Optimization:
    plan = {
        "source_bytes": 10**6,
        "bytes": 1000 * count,
        "reads": [read(number) for number in range(count)],
        "queries": [],
        "indexes": {"make": [], "keep": [], "drop": []},
        "make": [replica(number) for number in range(count)],
        "keep": [],
        "drop": [],
        "notes": [f"v{number:03}: its shape has changed" for number in range(count)],
    }
    return bf.Optimization(plan, None)


def layouts(count: int) -> bf.Reorganization:
    layout = {"chunk_shape": [10], "shard_shape": [100], "order": "row-major"}
    arrays = [
        {
            "array": f"v{number:03}",
            "is_changed": number % 2 == 1,
            "now": layout,
            "then": layout,
            "bytes": 1000,
            "kept": None if number % 2 else "another would save too little",
        }
        for number in range(count)
    ]
    reads = [read(number) for number in range(count)]
    return bf.Reorganization(
        {"arrays": arrays, "reads": reads, "notes": [], "bytes": 10**6, "others": 7}, None
    )


def lines_of(rendered: Any) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(rendered)
    return captured.get().splitlines()


def shown(lines: list[str], first: str) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith(first)]


def test_of_very_many_reads_and_replicas_those_are_shown_that_save_most() -> None:
    done = replicas(MANY)
    lines = lines_of(command._render(done))
    best = [f"v{number:03}" for number in range(MANY - 20, MANY)]
    assert shown(lines, "v") == best
    assert shown(lines, "0") == [f"{number:016x}" for number in range(MANY - 20, MANY)]
    said = "\n".join(lines)
    for what in ("kinds of reads", "replicas"):
        assert f"280 more {what}, with less benefit: --json has all" in said
    assert said.count("its shape has changed") == 20
    assert "note: 280 more notes: --json has all" in said
    assert len(done.to_dict()["plan"]["reads"]) == MANY
    text = str(done).splitlines()
    assert shown(text, "v") == [f"{name}:" for name in best] * 2
    assert "and 280 more kinds of reads" in text and "and 280 more replicas" in text


def test_of_very_many_layouts_those_are_shown_that_save_most() -> None:
    done = layouts(MANY)
    lines = lines_of(command._render_layouts(done))
    best = [f"v{number:03}" for number in range(MANY - 20, MANY)]
    assert shown(lines, "v") == [*best, *best]
    said = "\n".join(lines)
    for what in ("arrays", "kinds of reads"):
        assert f"280 more {what}, with less benefit: --json has all" in said
    assert "note: 130 more arrays keep their layouts: --json has all" in said
    assert "7 arrays without recorded reads keep their layouts" in said
    assert "and 280 more arrays" in str(done).splitlines()


@pytest.mark.parametrize("count", [0, 1, 20])
def test_of_a_few_all_are_shown(count: int) -> None:
    for said in (
        *lines_of(command._render(replicas(count))),
        *lines_of(command._render_layouts(layouts(count))),
        *str(replicas(count)).splitlines(),
        *str(layouts(count)).splitlines(),
    ):
        assert " more " not in said
