"""``bedform calibrate``: measure the storage at hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .._text import format_bytes, format_seconds
from ._output import JsonOption, emit, help_of, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate", help=help_of(calibrate))(calibrate)


def calibrate(
    path: Annotated[str, typer.Argument(help="A directory on the storage to measure.")] = ".",
    as_json: JsonOption = False,
) -> None:
    """Measure the storage under a directory and keep the profile.

    Bandwidth with one and many streams, latency with one and many requests in flight, the cost of
    a request and the gap up to which reads are worth merging. Takes seconds; later commands use
    the profile that was kept.

    Example: [bold]bedform calibrate /data[/bold]
    """
    import bedform as bf

    with progress("measuring", is_bytes=False) as report:
        profile = bf.calibrate(path, progress=lambda _, done: report(round(done * 100), 100))
    facts = profile.to_dict()
    emit(facts, _render(path, facts), as_json)


def _render(path: str, facts: dict[str, Any]) -> Table:
    table = Table(title=f"profile of {path}", box=None, show_header=False, title_justify="left")
    for key, value in facts.items():
        table.add_row(Text(key.replace("_", " ")), Text(_show(key, value)))
    return table


def _show(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if "per_second" in key or "bandwidth" in key:
        return f"{format_bytes(value)}/s"
    if "second" in key or "latency" in key:
        return format_seconds(value)
    return format_bytes(value) if "bytes" in key or "gap" in key else f"{value:g}"
