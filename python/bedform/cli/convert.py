"""``bedform convert``: conversion of any readable input to a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._text import format_bytes, format_seconds, format_shape, parse_reads
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    cell,
    emit,
    help_of,
    memory_of,
    note,
    open_source,
    paragraph,
    progress,
    readers_of,
)

if TYPE_CHECKING:
    from .._convert import Conversion
    from .._mesh_convert import MeshConversion


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert", help=help_of(convert))(convert)


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A store, file or plotfile, or a step of meshes: run.zarr/plt00010; or many: "
            '"era5_*.nc", "plt*".'
        ),
    ],
    target: Annotated[
        str, typer.Argument(help="The store to make, a path or URL; only of meshes may it exist.")
    ],
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    reads: Annotated[
        list[str] | None,
        typer.Option(help="Dimensions that a read spans, and its weight: lat,lon=0.7. Repeat it."),
    ] = None,
    readers: Annotated[
        list[str] | None,
        typer.Option(
            help="Which program reads it: any (the default), bedform, zarr-python. Repeat it."
        ),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Limit for blocks in flight; small ones make smaller shards.")
    ] = "512MiB",
    codec: Annotated[
        list[str] | None,
        typer.Option(help="auto, or a codec for all arrays, as zstd or blosc. Repeat it."),
    ] = None,
    codecs_beyond_zarr: Annotated[
        bool,
        typer.Option("--codecs-beyond-zarr", help="Let auto take codecs that Zarr's core lacks."),
    ] = False,
    exclude: Annotated[
        list[str] | None, typer.Option(help="An array to leave out. Repeat it.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every byte afterwards.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what an unfinished run left.")
    ] = False,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler whose workers do it."),
    ] = None,
    index: Annotated[
        bool, typer.Option("--index", help="Build the value index of the new arrays, for queries.")
    ] = False,
    order: Annotated[
        str | None,
        typer.Option(help="Of refined meshes: auto, hilbert, z, clusters or given."),
    ] = None,
    sub_box: Annotated[
        str | None,
        typer.Option("--sub-box", help="Of refined meshes: most cells of a part of a box: 16,16."),
    ] = None,
    component: Annotated[
        list[str] | None,
        typer.Option("--component", help="Of refined meshes: a component to store; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a store whose layouts fit the reads, from any file that can be read.

    The target, a directory or URL, appears when it is complete. Stop it whenever you like: the same
    command goes on where it stopped, at a URL from the beginning.

    Plotfiles of AMReX become steps of a store of meshes, which may be there already.

    Example: [bold]bedform convert era5.nc era5.zarr --reads lat,lon=0.7 --reads time=0.3[/bold]
    """
    from .. import _convert
    from .._mesh_convert import are_meshes
    from .._remote import is_url

    memory_bytes = memory_of(memory)
    kinds = parse_reads(reads or ()) or None
    if not are_meshes(source):
        with open_source(source, concat_dim, compat):
            pass
    started = time.monotonic()
    try:
        with progress("converting", then="comparing") as report:
            done = _convert.convert(
                source,
                target,
                concat_dim=concat_dim,
                compat=cast("Any", compat),
                reads=kinds,
                readers=readers_of(readers),
                memory=memory_bytes,
                codecs="auto" if codec in (None, ["auto"]) else codec or "auto",
                codecs_beyond_zarr=codecs_beyond_zarr,
                exclude=exclude or (),
                verify=verify,
                restart=restart,
                dry_run=dry_run,
                dask=dask,
                index=index,
                order=cast("Any", order),
                sub_box=None if sub_box is None else _lengths(sub_box),
                components=component,
                progress=report,
            )
    except KeyboardInterrupt:
        if is_url(target):
            note("nothing is kept in an object store: run the same command again to begin anew")
        else:
            note("what is done is kept: run the same command again to go on")
        raise
    seconds = time.monotonic() - started
    rendered = _render if isinstance(done, _convert.Conversion) else _render_meshes
    emit({**done.to_dict(), "seconds": seconds}, rendered(cast("Any", done), seconds), as_json)


def _lengths(text: str) -> list[int]:
    """Parses the lengths of a sub-box."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r}: numbers with commas, as 16,16,16") from None


def _render_meshes(done: MeshConversion, seconds: float) -> Group:
    """Renders a conversion of refined meshes."""
    size = format_bytes(done.byte_count)
    steps = "1 step" if len(done.steps) == 1 else f"{len(done.steps)} steps"
    kept = f"; {len(done.kept)} were there" if done.kept else ""
    skipped = [
        paragraph(f"warning: {name} is skipped: {why}") for name, why in done.skipped.items()
    ]
    if not done.complete:
        plan = f"plan for {done.target}: {steps}, {size}{kept}; nothing was written"
        return Group(*skipped, paragraph(plan))
    compared = ", every byte compared" if done.verified else ""
    told = f"{done.target}: {steps}, {size} in {format_seconds(seconds)}{kept}{compared}"
    return Group(*skipped, paragraph(told))


def _named(dtype: str) -> str:
    """Returns a numeric type's name as ``bedform info`` shows it: float32 for <f4."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        return dtype
    return found.name if found.kind in "biufc" else dtype


def _render(done: Conversion, seconds: float) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("array", "shape", "dtype", "source chunks", "chunks", "shards", "order"):
        table.add_column(column)
    table.add_column("bytes", justify="right")
    for array in done.arrays:
        lengths = (array.source_chunks, array.chunks, array.shards)
        table.add_row(
            cell(array.name),
            format_shape(array.shape),
            cell(_named(array.dtype)),
            *("-" if part is None else format_shape(part) for part in lengths),
            cell(array.order),
            format_bytes(array.byte_count),
        )
    if not done.complete:
        verdict = f"plan for {done.target}: {format_bytes(done.byte_count)}; nothing was written"
    else:
        verdict = (
            f"{done.target}: {format_bytes(done.byte_count)} in {format_seconds(seconds)}"
            + (
                f", {format_bytes(done.resumed_bytes)} of them earlier"
                if done.resumed_bytes
                else ""
            )
            + (", every byte compared" if done.verified else "")
        )
    warnings = [paragraph(f"warning: {line}") for line in done.warnings]
    return Group(table, Text(""), *warnings, paragraph(verdict))
