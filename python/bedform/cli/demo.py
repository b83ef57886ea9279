"""``bedform demo``: replicas or a conversion of real data, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._text import parse_bytes
from ._output import JsonOption, emit, help_of, note, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo", help=help_of(demo))(demo)


def demo(
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A NetCDF-4 or HDF5 file of your own.")
    ] = None,
    variable: Annotated[
        str | None, typer.Option(help="Which variable of --input; else the largest.")
    ] = None,
    size: Annotated[str, typer.Option(help="How large the built-in field is grown.")] = "384MiB",
    convert: Annotated[
        bool,
        typer.Option("--convert", help="Lay the field out as a new store instead, and compare it."),
    ] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where the data and the picture go.")
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep the data for the next demo; else only the picture.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Make the reads of a real ocean field fast, and leave its file as it is.

    Builds a NetCDF-4 file as its producer would write it. Maps, series, planes and boxes are read
    once while 'watch' records them, 'learn' finds their patterns, and 'optimize' makes replicas.
    The same reads follow, cold: h5py on the file, Bedform before and after. Every answer is
    checked. First for the whole domain with a budget of 100%, then for an eighth with 20%.

    A file of your own stays as it is, and so does its sidecar: the demo writes in --dir alone.

    With --convert the demo lays the field out as a new Zarr store, and compares h5py on the file
    with zarr-python and Bedform on the store.

    Example: [bold]bedform demo --size 256MiB[/bold]
    """
    from .. import demo as demonstration

    size_bytes = parse_bytes(size)
    with progress("demo", is_bytes=False) as report:
        request = demonstration.DemoOptions(
            input_file=input_file,
            variable=variable,
            size=size_bytes,
            directory=directory,
            keep=keep,
            say=note,
            progress=report,
        )
        run = demonstration.convert if convert else demonstration.replicate
        result = run(request)
    emit(result.to_dict(), result.render(), as_json)
