"""What several tests need."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import hypothesis
from format_reader import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
}


#: Seconds that a test waits for another thread or process; only a hang takes so long.
PATIENCE = 600


def wait_until(condition: Callable[[], object], awaited: str) -> None:
    """Wait until a condition holds, for minutes at most; `awaited` names the condition."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"waited in vain until {awaited}"
        time.sleep(0.01)


def fewer_examples(share: int) -> hypothesis.settings:
    """A share of the examples of the profile.

    For properties that a test in Rust tries on many cases: what is left to test here are arguments,
    buffers, types and errors. And for those that ask several libraries.
    """
    default = hypothesis.settings.default
    assert default is not None
    return hypothesis.settings(max_examples=default.max_examples // share)


def without_blocks(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """An encoding as engines say it of the same data; blocks for Dask are each engine's own."""
    return {name: value for name, value in encoding.items() if name != "preferred_chunks"}


def sealed(document: Mapping[str, Any]) -> bytes:
    """A helper file of JSON with its seal, its length and checksum, made right."""
    members = {"seal": "0000000000:00000000", **{k: v for k, v in document.items() if k != "seal"}}
    data = json.dumps(members, separators=(",", ":")).encode()
    data = data.replace(b"0000000000", f"{len(data):010}".encode(), 1)
    return data.replace(b":00000000", f":{crc32c(data):08x}".encode(), 1)


def command_line() -> list[str]:
    """What starts the command line."""
    return [sys.executable, "-m", "bedform"]
