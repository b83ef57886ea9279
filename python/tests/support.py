"""What several tests need."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Snapshots and error lines must not depend on the terminal that runs the tests.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "BEDFORM_DEBUG": "",
    "COLUMNS": "88",
    "TERMINAL_WIDTH": "88",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
}


def without_blocks(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """An encoding as engines say it of the same data; blocks for Dask are each engine's own."""
    return {name: value for name, value in encoding.items() if name != "preferred_chunks"}


def command_line() -> list[str]:
    """What starts the command line."""
    return [sys.executable, "-m", "bedform"]
