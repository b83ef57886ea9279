"""``bedform verify``: a complete read of a store or file with all checks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bedform._errors import NOT_CHECKED
from bedform._store import Store

from ._output import (
    EXIT_ERROR,
    EXIT_NO,
    JsonOption,
    emit,
    help_of,
    open_source,
    paragraph,
    progress,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", help=help_of(verify))(verify)


def verify(
    path: Annotated[str, typer.Argument(help="A store or file.")],
    as_json: JsonOption = False,
) -> None:
    """Read everything that is stored, check every checksum, name every bad object.

    Exit code 0 if all is well, 1 if something is damaged, 2 if nothing is, but something is of a
    kind that cannot be checked here. What is not settled is read in the log.
    Shards that are not there are counted, and are no error: their data are in the log, or they were
    never written, are all fill value, or lost, plain Zarr does not tell which.

    Example: [bold]bedform verify run42.zarr && echo whole[/bold]
    """
    with open_source(path) as store, progress("verifying", is_bytes=False) as report:
        problems, absent = _check(store, report)
    lines = [str(problem) for problem in problems]
    notes = [_note(*entry) for entry in absent]
    unchecked = sum(line.startswith(NOT_CHECKED) for line in lines)
    damaged = len(lines) - unchecked
    value = {
        "path": path,
        "whole": not lines,
        "damaged": damaged,
        "unchecked": unchecked,
        "problems": [_as_value(problem) for problem in problems],
        "absent": {
            name: {"objects": objects, "of": of, "in_log": in_log}
            for name, objects, of, in_log in absent
        },
    }
    verdict = _verdict(path, damaged, unchecked)
    emit(value, paragraph("\n".join([*lines, *notes, verdict])), as_json)
    if lines:
        raise typer.Exit(EXIT_NO if damaged else EXIT_ERROR)


def _verdict(path: str, damaged: int, unchecked: int) -> str:
    left = f"{unchecked} of what is stored cannot be checked"
    if damaged:
        rest = f", {left}" if unchecked else ""
        return f"{path}: {damaged} objects or parts of the log are damaged{rest}"
    if unchecked:
        return f"{path}: {left}, everything else is whole"
    return f"{path}: everything that is stored is whole"


def _check(store: Any, report: Any) -> tuple[list[Any], list[tuple[str, int, int, int]]]:
    """Returns the damages, and for missing objects: array, how many, of how many, in the log."""
    if isinstance(store, Store):
        return store._verify(report)
    return list(store.verify(progress=report)), []


def _note(name: str, objects: int, of: int, in_log: int) -> str:
    nowhere = "never written, all fill value, or lost"
    line = f"{name}: {objects} of {of} objects are not there"
    if not in_log:
        return f"{line}: {nowhere}"
    line = f"{line}: {in_log} of them have data in the log"
    return f"{line}, {objects - in_log} were {nowhere}" if in_log < objects else line


def _as_value(problem: object) -> object:
    """Returns a problem as plain values if it has them, else its text."""
    to_dict = getattr(problem, "to_dict", None)
    if to_dict is not None:
        return to_dict()
    return problem if isinstance(problem, dict) else str(problem)
