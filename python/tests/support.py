"""Shared helpers of the tests."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hypothesis
from format_reader import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: The registry of sidecars that this process's tests make beside data, instead of the user's.
_REGISTRY = tempfile.TemporaryDirectory(prefix="bedform-trust-")
# Snapshots and error lines must not depend on the terminal that runs the tests.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "BEDFORM_DEBUG": "",
    "BEDFORM_MAP_TIME": "10min",
    "COLUMNS": "88",
    "TERMINAL_WIDTH": "88",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "BEDFORM_TRUST": _REGISTRY.name,
}


#: Seconds that a test waits for another thread or process; only a hang exceeds them.
PATIENCE = 600


def wait_until(condition: Callable[[], object], awaited: str) -> None:
    """Waits until a condition holds, up to `PATIENCE`; `awaited` names the condition."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"waited in vain until {awaited}"
        time.sleep(0.01)


def fewer_examples(share: int) -> hypothesis.settings:
    """Returns settings with a share of the profile's examples.

    For properties that a Rust test covers with many cases: only arguments, buffers, types and
    errors remain to be tested here. And for properties that several libraries must compute.
    """
    default = hypothesis.settings.default
    assert default is not None
    return hypothesis.settings(max_examples=default.max_examples // share)


def without_blocks(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an encoding without Dask blocks, which each engine chooses itself."""
    return {name: value for name, value in encoding.items() if name != "preferred_chunks"}


def sealed(document: Mapping[str, Any]) -> bytes:
    """Returns a JSON helper file with a valid seal: length and checksum."""
    members = {"seal": "0000000000:00000000", **{k: v for k, v in document.items() if k != "seal"}}
    data = json.dumps(members, separators=(",", ":")).encode()
    data = data.replace(b"0000000000", f"{len(data):010}".encode(), 1)
    return data.replace(b":00000000", f":{crc32c(data):08x}".encode(), 1)


def command_line() -> list[str]:
    """Returns the command that starts the command line."""
    return [sys.executable, "-m", "bedform"]


def is_night() -> bool:
    """Whether the stages of ``EFFORT=night make reliability`` run."""
    return os.environ.get("BEDFORM_EFFORT") == "night"


@dataclass(frozen=True)
class Case:
    """A random case of a stage; as a context it tells how to repeat a failed case."""

    number: int
    seed: int

    @property
    def chance(self) -> random.Random:
        """Returns a random generator that follows from the seed and the case's number."""
        return random.Random(f"{self.seed} {self.number}")

    def kind(self, kinds: int) -> int:
        """Returns the case's kind; kinds alternate in an order by seed."""
        return random.Random(self.seed).sample(range(kinds), kinds)[self.number % kinds]

    def __enter__(self) -> Case:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            said = f"case {self.number} failed; to repeat: {_repeated(self.seed, self.number)}"
            sys.stdout.write(f"\n{said}\n")


def cases(share: float = 1, *, least: int = 1, most: int | None = None) -> Iterator[Case]:
    """Iterates over the random cases of a test, until its share of the stage's seconds is over.

    BEDFORM_STAGE_SECONDS is the time of the stage. The cases follow from a seed that differs from
    run to run; BEDFORM_SEED and BEDFORM_FROM continue another run. The first ``least`` cases run
    regardless of time, and no case after number ``most``.
    """
    seed = int(os.environ.get("BEDFORM_SEED", time.time_ns() % 1_000_000_007))
    first = number = int(os.environ.get("BEDFORM_FROM", "0"))
    end = time.monotonic() + share * float(os.environ.get("BEDFORM_STAGE_SECONDS", "5"))
    sys.stdout.write(f"\nseed {seed}; to repeat: {_repeated(seed, first)}\n")
    while number != most and (number < first + least or time.monotonic() < end):
        yield Case(number, seed)
        number += 1
    done = f"{number - first} cases; to continue: {_repeated(seed, number)}"
    sys.stdout.write(f"\n{done}\n")


def _repeated(seed: int, number: int) -> str:
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    return f"BEDFORM_SEED={seed} BEDFORM_FROM={number} pytest -s -m reliability {test}"
