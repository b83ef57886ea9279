"""``bedform learn``: the patterns of reads that were recorded."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._text import format_bytes
from ._output import JsonOption, cell, emit, help_of, paragraph

_FILES_SHOWN = 20
_PATH_SHOWN = 28


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("learn", help=help_of(learn))(learn)


def learn(
    darshan: Annotated[
        str | None, typer.Option(help="A Darshan log with DXT records.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    r"""Say which patterns recorded reads have, and how many would have been predicted.

    The reads of each file and rank are followed in the order in which they began. A read counts as
    predicted if a pattern of the reads before it said that it would come. Needs the package
    darshan: pip install 'bedform\[darshan]'.

    Example: [bold]bedform learn --darshan run.darshan[/bold]
    """
    from .._darshan import learn_darshan

    if darshan is None:
        raise ValueError("nothing to learn from: name a log with --darshan FILE")
    learned = learn_darshan(darshan)
    emit(learned, _render_darshan(learned), as_json)


def _render_darshan(learned: dict[str, Any]) -> Group:
    if not learned["reads"]:
        return Group(paragraph(f"{learned['log']}: no reads were recorded (DXT)"))
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
    """The end of a path, which is what tells files apart."""
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
    """What was not predicted, and why."""
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
