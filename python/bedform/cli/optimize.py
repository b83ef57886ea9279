"""``bedform optimize``: replicas, or new layouts, for the reads of a file or store."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._errors import InvalidArgumentError
from .._plan_lines import (
    first_lines,
    foremost,
    gain_by_array,
    gain_of_query,
    gain_of_read,
    gain_of_replica,
    index_text,
    profile_line,
)
from .._text import format_bytes, format_seconds, format_shape, parse_reads, parse_selection
from .._traces import run_policy
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    cell,
    emit,
    help_of,
    memory_of,
    note,
    open_array,
    open_source,
    paragraph,
    progress,
    readers_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._optimize import Optimization
    from .._reorganize import Reorganization


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("optimize", help=help_of(optimize))(optimize)


def optimize(
    path: Annotated[str, typer.Argument(help="A file or store, or a pattern of files, quoted.")],
    budget: Annotated[
        str | None,
        typer.Option(
            help="The bytes of all replicas, and of indexes that it makes: a share of the file, or "
            "a size; without it 20%, or the bytes of those that exist, if these are more."
        ),
    ] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(help="Dimensions that reads span, and their weight: time=1. Repeat it."),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Where reads of --reads are: lat=100:200. Repeat it."),
    ] = None,
    selections: Annotated[
        str | None,
        typer.Option(help="What will be read, exactly: a JSON or .npz file.", metavar="FILE"),
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="Another source, whose learnt reads count.", metavar="PATH")
    ] = None,
    sidecar: Annotated[
        str | None,
        typer.Option(
            help="Where the replicas lie: a directory, which BEDFORM_SIDECAR names to programs.",
            metavar="DIR",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="Limit for blocks in flight.")] = "512MiB",
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    reorganize: Annotated[
        bool,
        typer.Option("--reorganize", help="Lay out the arrays of a store anew, in its place."),
    ] = False,
    readers: Annotated[
        list[str] | None,
        typer.Option(
            help="With --reorganize, which program reads it: any (the default), bedform, "
            "zarr-python. Repeat it."
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler whose workers copy."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    by_policy: Annotated[
        bool,
        typer.Option("--by-policy", help="Do what 'bedform watch --optimize-after' asked for."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make reads of a file or store fast: keep copies of parts of it, in layouts that fit.

    The reads, their places and counts come from 'bedform watch' and 'bedform learn', from --reads,
    or from another data set of the same form (--like). The copies, replicas, lie beside the
    source, which stays as it is. Every read by Bedform takes from them the elements that they give
    faster, and the rest from the source. Delete them whenever you like: nothing but speed is lost.

    Of arrays that recorded queries compare it makes value indexes, too, where they save time. An
    index of 'bedform index' is left alone.

    --selections names the reads exactly: a JSON file with a list for each array, as
    {"t": ["10,:,200:300"]}, or an .npz file of positions along the first axis, an array of them
    for each array. A replica then holds these elements alone.

    They lie beside the source; where a site file says so, in the place that all users of an archive
    read; or where --sidecar or BEDFORM_SIDECAR says. They go to no home directory unasked.

    When the budget is used up, replicas that save least are removed, once the new ones are made.
    Stop it whenever you like: the same command goes on where it stopped.

    --reorganize makes no replicas: each array of a store of Bedform gets the layout that costs
    least for its reads. The new store is written beside the old one, compared, and takes its
    place in one step; where the file system cannot do that, nothing is written. Programs that
    have the store open then are told to open it again.

    Example: [bold]bedform optimize era5.nc --budget 20%[/bold]
    """
    from .._optimize import optimize as optimize_path
    from .._reorganize import Reorganization

    if by_policy:
        _follow_policy(path, as_json)
        return
    kinds = parse_reads(reads or ()) or None
    where = dict(map(_parse_region, region or ()))
    memory_bytes = memory_of(memory)
    title = "reorganizing" if reorganize else "making replicas"
    try:
        with progress(title, then="comparing") as report:
            done = optimize_path(
                path,
                budget,
                reorganize=reorganize,
                readers=readers_of(readers),
                dask=dask,
                concat_dim=concat_dim,
                compat=cast("Any", compat),
                reads=kinds,
                region=where,
                like=like,
                sidecar=sidecar,
                selections=_selections_of(path, (concat_dim, compat), selections),
                memory=memory_bytes,
                dry_run=dry_run,
                progress=report,
            )
    except KeyboardInterrupt:
        note("what is done is kept: run the same command again to go on")
        raise
    if isinstance(done, Reorganization):
        emit(done.to_dict(), _render_layouts(done), as_json)
        return
    emit(done.to_dict(), _render(done), as_json)


def _follow_policy(path: str, as_json: bool) -> None:
    """Runs the policy of a source, as a background process does after enough reads."""
    outcome = run_policy(path)
    said = "another process does it" if outcome is None else outcome["verdict"]
    lines = [paragraph(f"{path}: {said}")]
    if outcome is not None and outcome["error"]:
        lines.append(paragraph(f"note: {outcome['error']}"))
    emit(outcome, Group(*lines), as_json)


def _selections_of(
    path: str, join: tuple[str | None, str], file: str | None
) -> dict[str, list[Any]] | None:
    """Reads the file of --selections."""
    if file is None:
        return None
    try:
        if file.endswith(".npz"):
            with np.load(file, allow_pickle=False) as archive:
                return {name: [archive[name]] for name in archive.files}
        document = json.loads(Path(file).read_text())
        items = {str(name): list(texts) for name, texts in document.items()}
    except EOFError:
        # An EOFError would count as Ctrl-D.
        raise InvalidArgumentError(f"--selections {file}: it is empty, or cut short") from None
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidArgumentError(f"--selections {file}: {error}") from None
    with open_source(path, *join) as store:
        shapes = {name: open_array(store, name, path).shape for name in items}
    return {
        name: [parse_selection(str(text), shapes[name]) for text in texts]
        for name, texts in items.items()
    }


def _parse_region(text: str) -> tuple[str, tuple[int, int]]:
    """Parses ``lat=100:200``."""
    name, _, bounds = text.partition("=")
    first, _, end = bounds.partition(":")
    try:
        return name.strip(), (int(first), int(end))
    except ValueError:
        raise InvalidArgumentError(
            f"region {text!r}: write a dimension, its first position and its end: lat=100:200"
        ) from None


def _render(done: Optimization) -> Group:
    """Renders the reads, the replicas, and their bytes."""
    plan = done.plan
    parts = _foremost_rows(_reads_table, plan["reads"], gain_of_read, "kinds of reads")
    if plan["queries"]:
        rows = _foremost_rows(_queries_table, plan["queries"], gain_of_query, "queries")
        parts += [Text(""), *rows]
    if plan["indexes"]["make"]:
        indexes = ", ".join(map(index_text, plan["indexes"]["make"]))
        said = f"to make: {indexes}" if done.done is None else indexes
        parts += [Text(""), paragraph(said)]
    if plan["make"]:
        rows = _foremost_rows(_replicas_table, plan["make"], gain_of_replica, "replicas")
        parts += [Text(""), *rows]
    share = plan["bytes"] / max(plan["source_bytes"], 1)
    said = f"{format_bytes(plan['bytes'])}, {share:.1%} of the file"
    if done.done is None:
        dropped = len(plan["drop"])
        would = f"; replicas that would be dropped: {dropped}" if dropped else ""
        verdict = f"plan: {said}{would}; nothing was written"
    else:
        made = len(done.made)
        took = done.done["bytes"]
        share = took / max(plan["source_bytes"], 1)
        woken = len(done.done["woken"])
        dropped = done.done["dropped"]
        # A planned drop stays if a new replica was too large.
        kept = len({*plan["keep"], *plan["drop"]}.difference(dropped))
        verdict = f"{made} made, {kept} kept, {len(dropped)} dropped: "
        verdict = f"{woken} woken, {verdict}" if woken else verdict
        verdict = f"{_indexes_text(plan, done.done)}{verdict}"
        verdict += f"{format_bytes(took)}, {share:.1%} of the file"
    parts += [Text(""), paragraph(verdict), *map(paragraph, profile_line(plan))]
    notes = [*first_lines(plan["notes"], "notes"), *(done.done["warnings"] if done.done else [])]
    parts += [paragraph(f"note: {text}") for text in notes]
    return Group(*parts)


def _indexes_text(plan: dict[str, Any], done: dict[str, Any]) -> str:
    """Returns the numbers of indexes, before those of replicas; nothing without indexes."""
    made, dropped = len(done["indexes"]["made"]), len(done["indexes"]["dropped"])
    kept = len({*plan["indexes"]["keep"], *plan["indexes"]["drop"]}) - dropped
    if not (made or kept or dropped):
        return ""
    return f"indexes: {made} made, {kept} kept, {dropped} dropped; replicas: "


def _foremost_rows(
    table: Callable[[list[dict[str, Any]]], Table],
    rows: list[dict[str, Any]],
    gain: Callable[[dict[str, Any]], float],
    what: str,
) -> list[Any]:
    """Renders the rows with most benefit, and the number of the others; nothing without rows."""
    shown, more = foremost(rows, gain)
    parts: list[Any] = [table(shown)] if shown else []
    if more:
        parts.append(paragraph(f"{more:,} more {what}, with less benefit: --json has all"))
    return parts


def _render_layouts(done: Reorganization) -> Group:
    """Renders the layouts, the reads, and the result."""
    plan = done.plan
    gains = gain_by_array(plan["reads"])
    parts = _foremost_rows(
        _layouts_table, plan["arrays"], lambda array: gains.get(array["array"], 0.0), "arrays"
    )
    if plan["reads"]:
        rows = _foremost_rows(_reads_table, plan["reads"], gain_of_read, "kinds of reads")
        parts += [Text(""), *rows]
    size = format_bytes(plan["bytes"])
    if not done.changed:
        verdict = "every array keeps its layout; nothing was written"
    elif done.done is None:
        verdict = f"plan: arrays to write anew: {len(done.changed)}, {size}; nothing was written"
    else:
        verdict = f"arrays written anew: {len(done.changed)}, {size}, every byte compared"
        resumed = done.done["resumed_bytes"]
        verdict += f"; {format_bytes(resumed)} copied earlier" if resumed else ""
    if done.done is not None and done.done["dropped"]:
        verdict += f"; replicas of the old layouts removed: {len(done.done['dropped'])}"
    parts += [Text(""), paragraph(verdict), *map(paragraph, profile_line(plan))]
    kept = [
        f"{array['array']} keeps its layout: {array['kept']}"
        for array in plan["arrays"]
        if array["kept"]
    ]
    others = plan["others"]
    notes = [
        *first_lines(kept, "arrays keep their layouts"),
        *([f"{others} arrays without recorded reads keep their layouts"] if others else []),
        *first_lines(plan["notes"], "notes"),
        *(done.done["warnings"] if done.done else []),
    ]
    parts += [paragraph(f"note: {text}") for text in notes]
    return Group(*parts)


def _layouts_table(arrays: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("array", "", "chunks", "shards", "order"):
        table.add_column(column)
    table.add_column("bytes", justify="right")
    for array in arrays:
        for when in ("now", "then") if array["is_changed"] else ("now",):
            layout = array[when]
            table.add_row(
                cell(array["array"] if when == "now" else ""),
                when if array["is_changed"] else "stays",
                format_shape(layout["chunk_shape"]),
                format_shape(layout["shard_shape"]),
                layout["order"],
                format_bytes(array["bytes"]) if when == "then" else "",
            )
    return table


def _reads_table(reads: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("array", "read", "where"):
        table.add_column(column)
    for column in ("reads", "now", "then"):
        table.add_column(column, justify="right")
    for read in reads:
        spans = ", ".join(
            f"{name} {first}:{end}"
            for name, first, end in zip(read["dims"], read["start"], read["end"], strict=False)
        )
        table.add_row(
            cell(read["array"]),
            format_shape(read["shape"]),
            cell(spans),
            f"{read['reads']:,.0f}",
            format_seconds(read["seconds_now"]),
            format_seconds(read["seconds_then"]),
        )
    return table


def _queries_table(queries: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", overflow="fold")
    for column in ("queries", "scan", "now", "then"):
        table.add_column(column, justify="right")
    for query in queries:
        seconds = (query[key] for key in ("seconds_of_source", "seconds_now", "seconds_then"))
        table.add_row(
            cell(query["condition"]), f"{query['queries']:,.0f}", *map(format_seconds, seconds)
        )
    return table


def _replicas_table(replicas: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("replica", "of", "shape", "chunks", "order"):
        table.add_column(column)
    table.add_column("bytes", justify="right")
    for replica in replicas:
        table.add_row(
            replica["id"],
            cell(replica["array"]),
            format_shape(replica["shape"]),
            format_shape(replica["chunks"]),
            replica["order"],
            format_bytes(replica["bytes"]),
        )
    return table
