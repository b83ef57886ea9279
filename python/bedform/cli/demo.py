"""``bedform demo``: the main job on real data."""

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
    size: Annotated[str, typer.Option(help="How large the built-in field is grown.")] = "1GiB",
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where the data and the picture go.")
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep the data for the next demo; else only the picture.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Lay a real ocean field out for its reads, and race three readers over it.

    Builds a NetCDF-4 file as its producer would write it, converts it, then reads maps, series,
    planes and boxes cold with h5py, zarr-python and Bedform. Every answer is checked.

    Example: [bold]bedform demo --size 256MiB[/bold]
    """
    from .. import demo as demonstration

    size_bytes = parse_bytes(size)
    with progress("demo", is_bytes=False) as report:
        result = demonstration.run(
            input_file=input_file,
            variable=variable,
            size=size_bytes,
            directory=directory,
            keep=keep,
            say=note,
            progress=report,
        )
    emit(result.to_dict(), demonstration.render(result), as_json)
