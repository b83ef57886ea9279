"""The command that starts a process of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def python_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `_main` of a module of this package, without a shell.

    Unlike ``python -m`` it does not search the working directory for modules, since that may be the
    directory of the data: files beside data must not run.
    """
    start = (
        "import sys; home = sys.argv.pop(1); home in sys.path or sys.path.insert(0, home); "
        f"from {module} import _main; sys.exit(_main())"
    )
    home = str(Path(__file__).resolve().parents[1])
    return [sys.executable, "-P", "-c", start, home, *arguments]
