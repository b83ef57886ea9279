"""``bedform settle``: settling of commits into shards, or export to a file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from .._errors import InvalidArgumentError
from .._settle import seconds_of
from .._text import format_bytes, format_seconds
from ._output import (
    EXIT_INTERRUPTED,
    JsonOption,
    emit,
    help_of,
    memory_of,
    note,
    open_store,
    paragraph,
    progress,
)

if TYPE_CHECKING:
    from .._export import Export


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settle", help=help_of(settle))(settle)


def settle(
    store: Annotated[str, typer.Argument(help="The store.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write a NetCDF-4 (.nc) or HDF5 (.h5) file instead; the store stays as it is.",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="Limit for what is in memory at a time.")] = "512MiB",
    array: Annotated[
        list[str] | None, typer.Option(help="Only this array. Repeat it for more.")
    ] = None,
    grace: Annotated[
        str, typer.Option(help="Keep what readers may need so long, for 'bedform gc': 30min, 1h.")
    ] = "0",
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler whose workers do it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn what sessions have committed into shards, so that the store is plain Zarr.

    Readers and writers may go on meanwhile. Stop it whenever you like: what is settled stays, and
    the same command goes on. 'bedform info' tells what is left to settle.

    Example: [bold]bedform settle run42.zarr --memory 2GiB[/bold]
    """
    memory_bytes, seconds = memory_of(memory), seconds_of(grace)
    started = time.monotonic()
    if to is not None:
        if dask is not None:
            raise InvalidArgumentError("--to writes one file from one process: leave out --dask")
        _write_file(store, to, memory_bytes, array, as_json)
        return
    try:
        with open_store(store, "r+") as opened, progress("settling") as report:
            done = opened.settle(
                memory=memory_bytes, arrays=array, dask=dask, grace=seconds, progress=report
            )
            left = opened.info()["log"]
    except KeyboardInterrupt:
        note("bedform: interrupted; what is settled stays: run the same command again to go on")
        # Not raised as an interruption, which would print another line.
        raise SystemExit(EXIT_INTERRUPTED) from None
    took = time.monotonic() - started
    value = {"path": store, **done, "left": left, "seconds": took}
    emit(value, paragraph(_say(store, done, left, took)), as_json)


def _say(path: str, done: dict[str, int], left: dict[str, int], seconds: float) -> str:
    if not done["objects"] and not done["commits"]:
        line = f"{path}: nothing to settle"
    else:
        line = (
            f"{path}: {_count(done['commits'], 'commit')} settled, "
            f"{_count(done['objects'], 'object')} of {format_bytes(done['bytes'])} written in "
            f"{_count(done['rounds'], 'round')}, {format_seconds(seconds)}"
        )
    if done["rewritten"]:
        line += (
            f"; {_count(done['rewritten'], 'object')} of them had been written by another program, "
            "and commits count over that"
        )
    if left["commits"]:
        verb = "is" if left["commits"] == 1 else "are"
        held = f"{_count(left['commits'], 'commit')} {verb} in the log"
        line += f"; {held}, {format_bytes(left['bytes'])}"
    if left["segments_open"]:
        line += (
            f"; {_count(left['segments_open'], 'segment')} may hold writes that no commit has: "
            "somebody writes there, or has died: 'bedform recover' tells"
        )
    return line


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _write_file(
    path: str, target: str, memory: int, arrays: list[str] | None, as_json: bool
) -> None:
    from .. import _export

    started = time.monotonic()
    with open_store(path, "r") as opened, progress("writing") as report:
        done = _export.export(opened, target, memory=memory, arrays=arrays, progress=report)
    took = time.monotonic() - started
    emit({**done.to_dict(), "seconds": took}, paragraph(_say_file(done, took)), as_json)


def _say_file(done: Export, seconds: float) -> str:
    return (
        f"{done.target}: {_count(len(done.arrays), 'array')} of {format_bytes(done.byte_count)} "
        f"in {format_seconds(seconds)}"
    )
