"""``bedform watch``: record the reads of a store or file."""

from __future__ import annotations

from typing import Annotated

import typer

from .._traces import watch as watch_reads
from ._output import JsonOption, emit, help_of, paragraph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", help=help_of(watch))(watch)


def watch(
    path: Annotated[str, typer.Argument(help="A store, a NetCDF or HDF5 file, or a URL.")],
    off: Annotated[bool, typer.Option("--off", help="Record no more.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Record which reads are made of a store or file.

    From the next open on, every process of yours writes which elements it reads, when, and how
    long that takes: no values, no names of users or machines. 'bedform learn' finds the patterns
    in it, which later runs then foresee from their second read on. BEDFORM_TRACE=1 records the
    reads of one process, of whatever it opens.

    Example: [bold]bedform watch era5.nc[/bold]
    """
    directory = watch_reads(path, on=not off)
    said = "are no longer recorded" if off else f"are recorded in {directory}"
    emit(
        {"path": path, "on": not off, "directory": directory},
        paragraph(f"reads of {path} {said}"),
        as_json,
    )
