"""What starts the command line in tests."""

from __future__ import annotations

import os
import sys

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


def command_line() -> list[str]:
    """What starts the command line."""
    return [sys.executable, "-m", "bedform"]
