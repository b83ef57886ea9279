"""What starts the command line in tests, with the engine that they have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bedform

# Snapshots and error lines must not depend on the terminal that runs the tests.
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "BEDFORM_DEBUG": "",
    "COLUMNS": "88",
    "TERMINAL_WIDTH": "88",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONPATH": str(Path(__file__).parent),
}
ENGINE = "import bedform"
if not hasattr(bedform, "open"):
    import stand_in

    ENGINE = "import bedform, stand_in; "
    for name in ("create", "advise", "calibrate", "Regular"):
        setattr(bedform, name, getattr(stand_in, name))
        ENGINE += f"bedform.{name} = stand_in.{name}; "
    bedform.open = stand_in.open_  # type: ignore[attr-defined]
    from bedform._convert import convert

    bedform.convert = convert  # type: ignore[attr-defined]
    ENGINE += "bedform.open = stand_in.open_"


def command_line() -> list[str]:
    """What starts the command line, with the engine that these tests have."""
    return [sys.executable, "-c", f"{ENGINE}\nfrom bedform.cli import main\nmain()"]
