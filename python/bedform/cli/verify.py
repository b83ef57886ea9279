"""``bedform verify``: read everything and check it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ._output import EXIT_NO, JsonOption, emit, help_of, open_source, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", help=help_of(verify))(verify)


def verify(
    path: Annotated[str, typer.Argument(help="A store or file.")],
    as_json: JsonOption = False,
) -> None:
    """Read everything, check every checksum, name every bad object.

    Exit code 0 if all is well, 1 if something is not.

    Example: [bold]bedform verify run42.zarr && echo whole[/bold]
    """
    with open_source(path) as store, progress("verifying") as report:
        problems = list(store.verify(progress=report))
    lines = [str(problem) for problem in problems]
    verdict = f"{path}: {len(lines)} bad objects" if lines else f"{path}: everything is whole"
    value = {
        "path": path,
        "whole": not lines,
        "problems": [_as_value(problem) for problem in problems],
    }
    emit(value, Text("\n".join([*lines, verdict])), as_json)
    if lines:
        raise typer.Exit(EXIT_NO)


def _as_value(problem: object) -> object:
    """One problem as plain values where it has them, else its text."""
    to_dict = getattr(problem, "to_dict", None)
    if to_dict is not None:
        return to_dict()
    return problem if isinstance(problem, dict) else str(problem)
