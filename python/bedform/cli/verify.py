"""``bedform verify``: read everything and check it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from bedform._store import Store

from ._output import EXIT_NO, JsonOption, emit, help_of, open_source, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", help=help_of(verify))(verify)


def verify(
    path: Annotated[str, typer.Argument(help="A store or file.")],
    as_json: JsonOption = False,
) -> None:
    """Read everything that is stored, check every checksum, name every bad object.

    Exit code 0 if all is well, 1 if something is not. Shards that are not there are counted, and
    are no error: never written, all fill value, or lost, plain Zarr does not tell which.

    Example: [bold]bedform verify run42.zarr && echo whole[/bold]
    """
    with open_source(path) as store, progress("verifying") as report:
        problems = list(store.verify(progress=report))
        absent = _absent(store)
    lines = [str(problem) for problem in problems]
    notes = [
        f"{name}: {missing} of {room} objects are not there: never written, all fill value, or lost"
        for name, (missing, room) in absent.items()
    ]
    whole = f"{path}: everything that is stored is whole"
    verdict = f"{path}: {len(lines)} bad objects" if lines else whole
    value = {
        "path": path,
        "whole": not lines,
        "problems": [_as_value(problem) for problem in problems],
        "absent": {name: {"objects": missing, "of": of} for name, (missing, of) in absent.items()},
    }
    emit(value, Text("\n".join([*lines, *notes, verdict])), as_json)
    if lines:
        raise typer.Exit(EXIT_NO)


def _absent(store: Any) -> dict[str, tuple[int, int]]:
    """How many objects of each array are not there, of how many; only where some are not."""
    if not isinstance(store, Store):
        return {}
    counts = {name: array.stored_objects() for name, array in store.arrays().items()}
    return {name: (room - stored, room) for name, (stored, room) in counts.items() if stored < room}


def _as_value(problem: object) -> object:
    """One problem as plain values where it has them, else its text."""
    to_dict = getattr(problem, "to_dict", None)
    if to_dict is not None:
        return to_dict()
    return problem if isinstance(problem, dict) else str(problem)
