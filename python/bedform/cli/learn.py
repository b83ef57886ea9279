"""``bedform learn``: patterns of recorded reads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._errors import NotFoundError
from .._paths import paths_of
from .._remote import is_url
from .._text import format_bytes, format_seconds
from .._traces import learn as learn_reads
from ._output import JsonOption, cell, emit, help_of, paragraph, progress

_FILES_SHOWN = 20
_PATH_SHOWN = 28
_PATTERNS_SHOWN = 5
# Divisions of a shared pattern among the processes of a run, in words.
_DEALT_OUT = {
    "blocks": "each process takes a run of them",
    "cyclic": "processes take them in turn",
    "pieces": "each process takes a piece",
}
_NO_DXT = "no reads were recorded by DXT: run the program again with DXT_ENABLE_IO_TRACE=1"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("learn", help=help_of(learn))(learn)


def learn(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Stores, files or URLs whose reads were recorded.", metavar="PATH"),
    ] = None,
    darshan: Annotated[
        str | None, typer.Option(help="A Darshan log with DXT records.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Say which patterns recorded reads have, and how many of them they predict.

    Merges what 'bedform watch' has had recorded of each store or file, queries by value too, and
    keeps it for later runs: they foresee a known pattern from its second read on. The blocks of
    one computation of Dask count as the one read that you made. Reads that the processes of an
    MPI run share out are predicted for a run of any number of processes.

    With --darshan the reads of each file and rank of a Darshan log are followed in the order in
    which they began. A read counts as predicted if a pattern of the reads before it said that it
    would come. Needs the package darshan: pip install 'bedform\[darshan]'.

    Example: [bold]bedform learn era5.nc[/bold]
    """
    if paths and darshan is None:
        known = _learn_each(paths)
        documents = [{"path": path, **found} for path, found in known.items()]
        tables = [_render_known(path, found) for path, found in known.items()]
        spaced = [part for table in tables for part in (Text(""), table)][1:]
        emit(documents[0] if len(documents) == 1 else documents, Group(*spaced), as_json)
    elif darshan is not None and not paths:
        from .._darshan import learn_darshan

        learned = learn_darshan(darshan)
        emit(learned, _render_darshan(learned), as_json)
    else:
        raise ValueError("name a store or file that was watched, or a log with --darshan FILE")


def _learn_each(paths: list[str]) -> dict[str, dict[str, Any]]:
    """Returns the knowledge of each path; some may lack reads, but not all."""
    known: dict[str, dict[str, Any]] = {}
    unread: NotFoundError | None = None
    for path in paths:
        try:
            with progress("learning", is_bytes=False) as tell:
                known[path] = learn_reads(path, tell)
        except NotFoundError as error:
            if not (is_url(path) or Path(path).exists() or paths_of(path)):
                raise
            unread = unread or error
            known[path] = {"traces": 0, "left_out": 0, "ignored": 0, "knowledge": {"arrays": {}}}
    if unread is not None and not any(found["knowledge"]["arrays"] for found in known.values()):
        raise unread
    return known


def _render_known(path: str, learned: dict[str, Any]) -> Group:
    """Renders the knowledge of each array's reads."""
    arrays = learned["knowledge"]["arrays"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("array", overflow="fold")
    for column in ("reads", "bytes", "time", "predicted", "of bytes"):
        table.add_column(column, justify="right")
    table.add_column("by")
    patterns = Table(box=None, pad_edge=False, header_style="bold")
    patterns.add_column("array", overflow="fold")
    patterns.add_column("pattern")
    # The reads that a query makes count as the query.
    read = [name for name in arrays if arrays[name]["read"]["reads"]]
    shown = sorted(read or arrays, key=lambda name: -arrays[name]["read"]["bytes"])
    for name in shown[:_FILES_SHOWN]:
        array = arrays[name]
        kinds = sorted(array["predicted"], key=lambda kind: -array["predicted"][kind]["bytes"])
        predicted = [
            sum(array["predicted"][kind][of] for kind in kinds) for of in ("reads", "bytes")
        ]
        table.add_row(
            cell(name or "/"),
            f"{array['read']['reads']:,}",
            format_bytes(array["read"]["bytes"]),
            format_seconds(array["seconds"]),
            f"{predicted[0] / max(array['read']['reads'], 1):.1%}",
            f"{predicted[1] / max(array['read']['bytes'], 1):.1%}",
            ", ".join(kinds),
        )
        told = _patterns_of(array)
        for said in told[:_PATTERNS_SHOWN]:
            patterns.add_row(cell(name or "/"), cell(said))
        if (more := len(told) - _PATTERNS_SHOWN) > 0:
            patterns.add_row(cell(name or "/"), f"{more} more, of fewer reads: --json has them")
    news = learned["traces"]
    head = f"{path}: {news} new {'trace' if news == 1 else 'traces'}"
    if learned["left_out"]:
        head += f", {learned['left_out']} left out: damaged, or somebody else's"
    if learned["ignored"]:
        head += f"; {learned['ignored']:,} reads ignored: of another store that was here"
    if not arrays:
        return Group(paragraph(f"{head}: no reads are recorded yet"))
    parts: list[Any] = [paragraph(head), Text(""), table]
    if (more := len(shown) - _FILES_SHOWN) > 0:
        parts.append(paragraph(f"{more} more, with fewer bytes: --json has them"))
    if patterns.row_count:
        parts += [Text(""), patterns]
    selections = _render_selections({name: arrays[name] for name in shown})
    return Group(*parts, *selections, *_render_queries(arrays))


def _render_queries(arrays: dict[str, dict[str, Any]]) -> list[Any]:
    """Renders the conditions of queries of each array; nothing without any."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("array", overflow="fold")
    table.add_column("query", overflow="fold")
    for column in ("queries", "bytes", "time", "blocks left out"):
        table.add_column(column, justify="right")
    queried = [name for name in arrays if arrays[name].get("queries", {}).get("queries")]
    for name in sorted(queried, key=lambda name: -arrays[name]["queries"]["seconds"]):
        known = arrays[name]["queries"]
        conditions = sorted(known["conditions"], key=lambda one: -one["seconds"])
        for one in conditions[:_PATTERNS_SHOWN]:
            table.add_row(
                cell(name or "/"),
                cell(one["condition"] or "(too long)"),
                f"{one['queries']:,}",
                format_bytes(one["bytes"]),
                format_seconds(one["seconds"]),
                f"{one['blocks_left_out'] / max(one['blocks'], 1):.1%}",
            )
        if (more := len(conditions) - _PATTERNS_SHOWN) > 0:
            table.add_row(cell(name or "/"), f"{more} more, in less time: --json has them")
    return [Text(""), table] if table.row_count else []


def _render_selections(arrays: dict[str, dict[str, Any]]) -> list[Any]:
    """Renders the lists and points that were read, and notes on those with known box only."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("array", overflow="fold")
    table.add_column("lists and points within")
    for column in ("reads", "elements", "time"):
        table.add_column(column, justify="right")
    notes = []
    for name, array in arrays.items():
        known = array.get("selections", [])
        kept = [one for one in known if one["is_kept"]]
        for one in kept[:_PATTERNS_SHOWN]:
            box = [
                bound for bounds in zip(one["start"], one["end"], strict=False) for bound in bounds
            ]
            elements = one["bytes"] // max(one["reads"] * array["item_size"], 1)
            seconds = format_seconds(one["seconds"])
            row = (_box(box), f"{one['reads']:,}", f"{elements:,}", seconds)
            table.add_row(cell(name or "/"), *row)
        if (more := len(kept) - _PATTERNS_SHOWN) > 0:
            table.add_row(cell(name or "/"), f"{more} more: --json has them")
        if unknown := array["lists"]["reads"] - sum(one["reads"] for one in kept):
            notes.append(
                paragraph(
                    f"{name or '/'}: of {unknown:,} reads of lists or points the box alone is "
                    "known: they are unions of boxes, too large to be kept, too many, or of an "
                    "earlier version"
                )
            )
    parts: list[Any] = [Text(""), table] if table.row_count else []
    return [*parts, Text(""), *notes] if notes else parts


def _patterns_of(array: dict[str, Any]) -> list[str]:
    """Returns the patterns in words: first those of processes together, then those of each."""
    shared = [
        f"{described({**one['walk'], 'kind': 'walk'})}; {_dealt_out(one)}"
        for one in reversed(array["global"])
        if one["decomposition"] in _DEALT_OUT
    ]
    own = map(described, most_telling(array["patterns"]))
    return [*shared, *filter(None, own)]


def _dealt_out(shared: dict[str, Any]) -> str:
    """Describes how processes share a pattern, and their number where it is known."""
    said = _DEALT_OUT[shared["decomposition"]]
    processes = shared.get("processes")
    return f"{said} ({processes:,} processes)" if processes else said


def most_telling(patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns patterns by descending reads, without those that repeat a longer one.

    The reads of one loop are known as a walk, as a sequence of one step, and as a row of boxes.
    """
    walked = {
        (tuple(level["step"]), tuple(pattern["start"]))
        for pattern in patterns
        if pattern["kind"] == "walk"
        for level in pattern["levels"]
    }

    def says_more(pattern: dict[str, Any]) -> bool:
        start = tuple(pattern.get("start", ()))
        match pattern["kind"]:
            case "sequence" if len(pattern["steps"]) == 1:
                return (tuple(pattern["steps"][0]), start) not in walked
            case "contiguous":
                step = [0] * len(start)
                axis, size = pattern["axis"], pattern["size"]
                step[2 * axis : 2 * axis + 2] = [size, size]
                return (tuple(step), start) not in walked
            case _:
                return True

    return sorted(filter(says_more, patterns), key=_reads_of, reverse=True)


def _reads_of(pattern: dict[str, Any]) -> float:
    """Returns the number of reads of a pattern; infinite for a repeating sequence."""
    match pattern["kind"]:
        case "walk":
            return float(math.prod(level["count"] for level in pattern["levels"]))
        case "contiguous":
            return float(pattern["accesses"])
        case "correlated":
            return 0
        case _:
            return math.inf


def described(pattern: dict[str, Any]) -> str:
    """Returns a pattern in words; empty for an unknown kind."""
    match pattern["kind"]:
        case "walk":
            levels = [
                f"{level['count']} times {_step(level['step'])}" for level in pattern["levels"]
            ]
            return f"from {_box(pattern['start'])}: {', then '.join(levels)}"
        case "sequence":
            return f"from {_box(pattern['start'])}, again and again: {_steps(pattern['steps'])}"
        case "rows":
            row = described({**pattern["row"], "kind": "walk"})
            return f"{row}; such rows, again and again: {_steps(pattern['steps'])}"
        case "contiguous":
            count, size = pattern["accesses"], pattern["size"]
            return f"from {_box(pattern['start'])}: {count} in a row, of {size} or so"
        case "correlated":
            return f"after {_box(pattern['entry'])}: {', '.join(map(_box, pattern['followers']))}"
        case _:
            return ""


def _box(place: list[int]) -> str:
    bounds = zip(place[::2], place[1::2], strict=True)
    return "[" + ", ".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in bounds) + "]"


def _steps(steps: list[list[int]]) -> str:
    said = [_step(step) for step in steps[:_PATTERNS_SHOWN]]
    return ", ".join([*said, "..."] if len(steps) > len(said) else said)


def _step(step: list[int]) -> str:
    """Formats a step: the moves of the box along each axis, of both ends where it grows."""
    moves = zip(step[::2], step[1::2], strict=True)
    said = [f"{a:+d}" if a == b else f"{a:+d}..{b:+d}" for a, b in moves]
    return "(" + ", ".join("0" if move == "+0" else move for move in said) + ")"


def _render_darshan(learned: dict[str, Any]) -> Group:
    if not learned["reads"]:
        return Group(paragraph(f"{learned['log']}: {_NO_DXT}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    for column in ("rank", "reads", "bytes", "predicted", "of bytes"):
        table.add_column(column, justify="right")
    table.add_column("by")
    shown = learned["files"][:_FILES_SHOWN]
    for entry in shown:
        table.add_row(cell(_end(entry["file"])), str(entry["rank"]), *_cells(entry))
    table.add_row(cell("all", style="bold"), "", *_cells(learned))
    parts: list[Any] = [table]
    if (more := len(learned["files"]) - len(shown)) > 0:
        parts.append(paragraph(f"{more} more, with fewer bytes: --json has them"))
    return Group(*parts, Text(""), *_render_missing(learned))


def _end(path: str) -> str:
    """Returns the end of a path, which distinguishes files."""
    return path if len(path) <= _PATH_SHOWN else f"...{path[3 - _PATH_SHOWN :]}"


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    kinds = sorted(entry["kinds"], key=lambda kind: -entry["kinds"][kind]["bytes"])
    return (
        f"{entry['reads']:,}",
        format_bytes(entry["bytes"]),
        f"{entry['share_of_reads']:.1%}",
        f"{entry['share_of_bytes']:.1%}",
        ", ".join(kinds),
    )


def _render_missing(learned: dict[str, Any]) -> list[Any]:
    """Renders the reads that were not predicted, with reasons."""
    if not learned["missing"]:
        return []
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("not predicted")
    for column in ("reads", "bytes", "share of bytes"):
        table.add_column(column, justify="right")
    for reason, entry in sorted(learned["missing"].items(), key=lambda item: -item[1]["bytes"]):
        share = entry["bytes"] / learned["bytes"]
        table.add_row(reason, f"{entry['reads']:,}", format_bytes(entry["bytes"]), f"{share:.1%}")
    return [table]
