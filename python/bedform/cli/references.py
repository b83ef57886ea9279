"""``bedform references``: references to the chunks of files, for other libraries."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._text import format_bytes, format_seconds, format_shape
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    cell,
    emit,
    help_of,
    note,
    paragraph,
    progress,
)

if TYPE_CHECKING:
    from .._referencing import MadeReferences


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("references", help=help_of(references))(references)


def references(
    source: Annotated[
        str, typer.Argument(help='A NetCDF or HDF5 file or URL, or files: "era5/*.nc".')
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The set to make: x.json and x.parquet are kerchunk's, x.icechunk is the "
            "directory of an Icechunk repository.",
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option("--as", help="json, parquet or icechunk, whatever the suffix."),
    ] = None,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    names: Annotated[
        str,
        typer.Option(
            help="Names of the files in the set: absolute (the default), relative (to the set's "
            "directory), or a URL below which they are.",
        ),
    ] = "absolute",
    inline: Annotated[
        str,
        typer.Option(help="The largest variable that is stored in the set; 0B: none that fits."),
    ] = "16KiB",
    exclude: Annotated[
        list[str] | None, typer.Option(help="A variable to leave out. Repeat it.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a set of that name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make references to the chunks of files: one Zarr store for kerchunk, VirtualiZarr, Icechunk.

    The files stay as they are. Many files are joined as everywhere in Bedform. The set, a file or
    directory, appears when it is complete.

    Example: [bold]bedform references "era5/*.nc" --to era5.json[/bold]
    """
    from .. import _referencing
    from .._left_out import LeftOutWarning

    started = time.monotonic()
    with (
        warnings.catch_warnings(),
        progress("opening", then="finding chunks", is_bytes=False) as report,
    ):
        # The result names them.
        warnings.simplefilter("ignore", LeftOutWarning)
        if _referencing.form_of(to, form) == "icechunk":
            _silence_icechunk()
        made = _referencing.references(
            source,
            to,
            form=cast("Any", form),
            concat_dim=concat_dim,
            compat=cast("Any", compat),
            names=names,
            inline=inline,
            exclude=exclude or (),
            overwrite=overwrite,
            progress=report,
        )
    seconds = time.monotonic() - started
    for path, reason in made.left_out.items():
        note(f"warning: left out: {path!r}: {reason}")
    emit({**made.to_dict(), "seconds": seconds}, _render(made, seconds), as_json)


def _silence_icechunk() -> None:
    """Keeps the log lines of Icechunk, which it prints to stdout, out of the result."""
    try:
        import icechunk
    except ImportError:
        return
    icechunk.set_logs_filter("error")


def _render(made: MadeReferences, seconds: float) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("array", "shape", "dtype", "chunks"):
        table.add_column(column)
    table.add_column("references", justify="right")
    table.add_column("stored", justify="right")
    for array in made.arrays:
        table.add_row(
            cell(array.path),
            format_shape(array.shape),
            cell(array.dtype),
            format_shape(array.chunks),
            f"{array.references:,}",
            format_bytes(array.stored_bytes) if array.stored_bytes else "-",
        )
    files = "1 file" if made.files == 1 else f"{made.files:,} files"
    verdict = (
        f"{made.target}: {made.references:,} references to {files} in {format_seconds(seconds)}"
    )
    return Group(table, Text(""), paragraph(verdict))
