"""``bedform check``: tests of the file system functions that Bedform needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import _place_check
from .._errors import BedformError
from ._output import EXIT_ERROR, EXIT_NO, JsonOption, emit, help_of, paragraph

if TYPE_CHECKING:
    from .._place_check import FunctionTest


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", help=help_of(check))(check)


def check(
    directory: Annotated[Path, typer.Argument(help="A directory on the file system to try.")],
    as_json: JsonOption = False,
) -> None:
    """Try in a directory what Bedform needs of a file system: locks, names, durable writes.

    Exit code 0 if all that is needed works, 1 if something does not. Started by mpiexec or srun on
    several nodes, it tries across them, too. What it makes in the directory it removes.

    Example: [bold]bedform check /scratch/me[/bold]; across nodes: [bold]mpiexec -n 4 bedform check
    /scratch/me[/bold]
    """
    together = _place_check.members()
    try:
        trials, facts = _place_check.check(directory, together)
    except BedformError:
        if together.rank == 0:
            raise
        raise typer.Exit(EXIT_ERROR) from None
    lacks = [trial for trial in trials if trial.needed and not trial.works]
    if together.rank == 0:
        value = {
            "directory": str(directory),
            "works": not lacks,
            "trials": [asdict(trial) for trial in trials],
            **facts,
        }
        lines = [line for trial in trials for line in _lines(trial)]
        verdict = "something that is needed does not work" if lacks else "all that is needed works"
        lines.append(f"{directory}: {verdict} ({_tried_by(facts)})")
        emit(value, paragraph("\n".join(lines)), as_json)
    if lacks:
        raise typer.Exit(EXIT_NO)


def _lines(trial: FunctionTest) -> list[str]:
    word = "yes" if trial.works else "NO " if trial.needed else "no "
    line = f"{word}  {trial.what}"
    return [line] if trial.works else [line, f"     {trial.says}"]


def _tried_by(facts: dict[str, Any]) -> str:
    processes, nodes = facts["processes"], facts["nodes"]
    said = f"{processes} process{'es' if processes > 1 else ''}"
    said += f" on {nodes} node{'s' if nodes > 1 else ''}"
    return f"{said}; a sync takes {facts['sync_ms']} ms" if "sync_ms" in facts else said
