"""``bedform index``: least and greatest values of the blocks of arrays."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._errors import InvalidArgumentError
from .._index import Bins, IndexReport, index_opened
from .._index import index as build_index
from .._text import format_bytes
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    cell,
    emit,
    help_of,
    note,
    open_source,
    paragraph,
    progress,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("index", help=help_of(index))(index)


def index(
    path: Annotated[str, typer.Argument(help="A file or store, or a pattern of files, quoted.")],
    array: Annotated[
        list[str] | None,
        typer.Option(help="An array to index; without it all of numbers. Repeat it."),
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option(
            help="Bins of values: a number, 'auto', 'width:20', values between bins such as "
            "'273.15,310' ('310,' for one), or 'none'. Without it those of the present index."
        ),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Read everything again, also what is unchanged.")
    ] = False,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler whose workers build it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Note the least and greatest values of parts of each array, so that queries skip the rest.

    The index lies in the sidecar beside the source, which stays as it is, and takes about a
    thousandth of its bytes. Run the command again after the data have changed: it reads only the
    files and shards that were written since. Delete the index whenever you like: nothing but speed
    is lost.

    Where the source lies in a directory that you may not write, BEDFORM_SIDECAR names a directory
    for the index.

    Bins make the index larger, up to a tenth of the bytes of an array of 64-bit numbers: with them
    queries that compare with a value between two bins read the index alone.

    Example: [bold]bedform index era5.nc --array t2m --bins 273.15,310[/bold]
    """
    try:
        with (
            open_source(path, concat_dim, compat) as store,
            progress("indexing") as report,
        ):
            if dask is None:
                done = index_opened(store, array, bins_of(bins), anew=anew, progress=report)
            else:
                done = build_index(
                    path,
                    array,
                    bins_of(bins),
                    anew=anew,
                    concat_dim=concat_dim,
                    compat=compat,  # type: ignore[arg-type]
                    dask=dask,
                    progress=report,
                )
    except KeyboardInterrupt:
        note("arrays that are done are kept; the one in progress has its earlier index, if any")
        raise
    without = [one["array"] for one in done.arrays if not one["bins"]] if bins == "auto" else []
    if without:
        names = ", ".join([*without[:9], *(["..."] if len(without) > 9 else [])])
        note(
            f"no bins for {names}: they would take more than 15 % of the stored bytes; --bins 20 "
            "makes them all the same"
        )
    emit({"path": path, **done.to_dict()}, _render(path, done), as_json)


def bins_of(text: str | None) -> Bins:
    """Returns the bins that an option names."""
    if text is None or text == "auto" or text.startswith("width:"):
        return text
    if text == "none":
        return False
    if text.lstrip("+-").isdecimal() and len(text) < 10:
        return int(text)
    try:
        return [float(edge) for edge in text.rstrip(",").split(",")]
    except ValueError:
        raise InvalidArgumentError(
            f"--bins {text!r:.60}: a number, 'auto', 'width:20', values between bins such as "
            "'273.15,310' ('310,' for one), or 'none'"
        ) from None


def _render(path: str, done: IndexReport) -> Group:
    """Renders the arrays, and their sums."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("array")
    for column in ("blocks", "read", "index"):
        table.add_column(column, justify="right")
    for one in done.arrays:
        counts = (f"{one['blocks']:,}", f"{one['blocks_read']:,}", format_bytes(one["bytes"]))
        table.add_row(cell(one["array"] or "(the root)"), *counts)
    lines = [paragraph(f"{path}: {done}")]
    left_out = sum(one["objects_left_out"] for one in done.arrays)
    if left_out:
        lines.append(
            paragraph(
                f"note: {left_out:,} objects were being written, or have unsettled commits over "
                "them, and are not in the index: run 'bedform settle' and this command again"
            )
        )
    return Group(table, Text(""), *lines) if done.arrays else Group(*lines)
