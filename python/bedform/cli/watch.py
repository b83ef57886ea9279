"""``bedform watch``: record the reads of stores or files."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group

from .._traces import watch as watch_reads
from .._traces import watch_state
from ._output import JsonOption, emit, help_of, paragraph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", help=help_of(watch))(watch)


def watch(
    paths: Annotated[
        list[str],
        typer.Argument(help="Stores, NetCDF or HDF5 files, or URLs.", metavar="PATH"),
    ],
    off: Annotated[bool, typer.Option("--off", help="Record no more.")] = False,
    optimize_after: Annotated[
        int | None,
        typer.Option(help="Make replicas after so many reads, and again; 0: never.", metavar="N"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="What these replicas may take: a share of the file, or a size; without it 20%, or "
            "the bytes of the replicas that exist, if these are more."
        ),
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Say how it stands; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record the reads of stores or files.

    From the next open on, every process of yours writes which elements it reads, when, and how
    long that takes: no values, no names of users or machines. 'bedform learn' finds the patterns
    in it, which later runs then foresee from their second read on. BEDFORM_TRACE=1 records the
    reads that one process makes of all stores and files.

    With --optimize-after, each time that so many more reads were recorded, a background process at
    the lowest priority learns their patterns and makes replicas where they save much. --state
    shows the outcome.

    Example: [bold]bedform watch era5.nc --optimize-after 1000 --budget 20%[/bold]
    """
    if off and optimize_after is not None:
        raise ValueError("--off ends --optimize-after, too: give one of them")
    watched: list[dict[str, Any]] = []
    lines = []
    for path in paths:
        if state:
            found = watch_state(path)
            watched.append({"path": path, **found})
            lines += [paragraph(f"reads of {path} {said_of(found)}")]
            continue
        directory = watch_reads(path, on=not off, optimize_after=optimize_after, budget=budget)
        said = "are no longer recorded" if off else f"are recorded in {directory}"
        if optimize_after:
            said += f"; replicas are made after {optimize_after:,}, within {_said_of(budget)}"
        watched.append({"path": path, "on": not off, "directory": directory})
        lines.append(paragraph(f"reads of {path} {said}"))
    emit(watched[0] if len(watched) == 1 else watched, Group(*lines), as_json)


def _said_of(budget: str | None) -> str:
    return budget or "20% or the bytes of those that exist"


def said_of(state: dict[str, Any]) -> str:
    """Describes the state of recording and optimizing."""
    said = "are recorded" if state["is_watched"] else "are not recorded"
    if (settings := state["settings"]) is None:
        return said
    after, budget = settings["optimize_after"], settings["budget"]
    said += f"; replicas are made after {after:,} ({state['reads']:,} so far)"
    said += f", within {_said_of(budget)}"
    if state["is_running"]:
        return f"{said}: they are made now"
    if (outcome := state["outcome"]) is None:
        return said
    if not outcome["ended"] and not outcome["error"]:
        return f"{said}: the last time it was stopped"
    if outcome["ended"]:
        said += f"; last at {datetime.fromtimestamp(outcome['ended']):%Y-%m-%d %H:%M}"
    words = [text for text in (outcome["verdict"], outcome["error"]) if text]
    return ": ".join([said, *words])
