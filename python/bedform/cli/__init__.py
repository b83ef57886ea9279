"""The command line: ``bedform COMMAND``.

Promises
--------
- Data go to stdout, everything else to stderr; ``--json`` makes the data one JSON document.
- Exit code 0 means yes, 1 no or bad data found, 2 an error in use or environment, 130 Ctrl-C.
- An error is one line: what happened, to which object, what to do. ``BEDFORM_DEBUG=1`` adds the
  traceback.
- A reader of our output that goes away (``| head``) is not an error.

Each command is a module of its own with a ``register(app)``; the logic is the public Python API's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main", "run"]


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # Here, since most of the time until a command begins goes into imports: Ctrl-C then is
        # as it is later.
        from ._app import run as run_command
    except KeyboardInterrupt:
        return 130
    return run_command(arguments)


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))


def __getattr__(name: str) -> Any:
    if name == "app":
        from ._app import app

        return app
    raise AttributeError(name)
