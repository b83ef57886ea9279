"""``bedform watch``: record the reads of stores or files."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from .._traces import watch as watch_reads
from ._output import JsonOption, emit, help_of, paragraph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", help=help_of(watch))(watch)


def watch(
    paths: Annotated[
        list[str],
        typer.Argument(help="Stores, NetCDF or HDF5 files, or URLs.", metavar="PATH"),
    ],
    off: Annotated[bool, typer.Option("--off", help="Record no more.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Record which reads are made of stores or files.

    From the next open on, every process of yours writes which elements it reads, when, and how
    long that takes: no values, no names of users or machines. 'bedform learn' finds the patterns
    in it, which later runs then foresee from their second read on. BEDFORM_TRACE=1 records the
    reads of one process, of whatever it opens.

    Example: [bold]bedform watch era5.nc[/bold]
    """
    watched, lines = [], []
    for path in paths:
        directory = watch_reads(path, on=not off)
        said = "are no longer recorded" if off else f"are recorded in {directory}"
        watched.append({"path": path, "on": not off, "directory": directory})
        lines.append(paragraph(f"reads of {path} {said}"))
    emit(watched[0] if len(watched) == 1 else watched, Group(*lines), as_json)
