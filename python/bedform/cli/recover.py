"""``bedform recover``: recovery of the writes of dead writers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from .._errors import InvalidArgumentError
from .._text import format_bytes
from ._output import EXIT_NO, JsonOption, emit, help_of, open_store, paragraph

Leftover = Literal["keep", "commit", "discard"]
_NOTHING = (
    "nothing to recover: committed data are visible, and data that had not reached the log are "
    "lost with their writer"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recover", help=help_of(recover))(recover)


def recover(
    store: Annotated[str, typer.Argument(help="The store.")],
    burst: Annotated[
        str | None,
        typer.Option(help="The burst tier's directory, if BEDFORM_BURST does not name it."),
    ] = None,
    commit: Annotated[
        bool,
        typer.Option(
            "--commit",
            help="Make writes that no commit has visible, over what was committed since; not "
            "where others have appended since.",
        ),
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Give up writes that no commit has.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the remains of dead writers, in the log and in the burst tier.

    Committed data need no recovery. Commits that a burst tier has promised become visible. Writes
    without a commit are listed, and stay until --commit or --discard; --discard also gives up
    promises that cannot be kept. Live writers are not touched. On a cluster run the command on
    every node whose burst tier may hold data.

    Exit code 1 if a promised commit is damaged and waits for a decision: the commits before it are
    visible.

    Example: [bold]bedform recover run42.zarr[/bold]
    """
    if commit and discard:
        raise InvalidArgumentError("--commit and --discard exclude each other")
    leftover: Leftover = "commit" if commit else "discard" if discard else "keep"
    with open_store(store, "r+") as opened:
        done = opened.recover(leftover=leftover, burst=burst)
    lines = "\n".join(f"{store}: {line}" for line in _lines(done, leftover))
    emit({"path": store, **done}, paragraph(lines), as_json)
    if done["damaged"] and not discard:
        raise typer.Exit(EXIT_NO)


def _lines(done: dict[str, Any], leftover: str) -> list[str]:
    lines = []
    if done["drained_bytes"]:
        lines.append(f"{format_bytes(done['drained_bytes'])} came from the burst tier")
    if done["completed"]:
        lines.append(f"{_count(done['completed'], 'promised commit')} became visible")
    if done["live"]:
        lines.append(f"{_count(done['live'], 'segment')} left alone: somebody writes there")
    what = "a writer that died may have promised more, through the burst tier"
    then = (
        "it is given up"
        if leftover == "discard"
        else "run this there with --burst; if nothing is there any more, --discard gives it up"
    )
    lines += [f"{what} {tier}: {then}" for tier in done["tiers"]]
    wait = (
        "given up"
        if leftover == "discard"
        else "nothing else is written before that is decided: bring what is damaged back to its "
        "place and run this again, or --discard gives it and the later commits of its session up"
    )
    lines += [f"{damage}: {wait}" for damage in done["damaged"]]
    if done["given_up"]:
        lines.append(f"{_count(done['given_up'], 'promised commit')} given up")
    for found in done["found"]:
        where = ", ".join(found["arrays"]) or "arrays that are gone"
        lines.append(
            f"{_count(found['writes'], 'write')} of {format_bytes(found['bytes'])} to {where} "
            f"by rank {found['rank']} of session {found['session'][:8]} "
            f"{'was' if found['writes'] == 1 else 'were'} never committed"
        )
    if done["found"]:
        lines.append(
            {
                "keep": "they stay: --commit makes them visible, --discard gives them up",
                "commit": f"{_count(done['committed'], 'commit')} made of them",
                "discard": "they are given up",
            }[leftover]
        )
    return lines or [_NOTHING]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
