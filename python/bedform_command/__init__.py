"""The entry point of the script ``bedform``, outside the package.

Imports take most of the time until a command begins, and the package imports NumPy first. So the
code that turns an early Ctrl-C into one line cannot lie in the package.
"""

from __future__ import annotations

import sys

__all__ = ["interrupted", "main"]

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the console script."""
    sys.exit(_run())


def _run() -> int:
    try:
        from bedform.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return interrupted()


def interrupted() -> int:
    """Say that Ctrl-C has ended the command; give its exit code."""
    # Nothing is left to do when stderr itself is gone.
    try:
        sys.stderr.write("bedform: interrupted; nothing half done is visible\n")
        sys.stderr.flush()
    except OSError:
        pass
    return _EXIT_INTERRUPTED
