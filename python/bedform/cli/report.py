"""``bedform report``: a page about a store or file and its reads."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import Annotated, Any, cast

import typer

from .._errors import InvalidArgumentError
from .._output_file import OutputFile
from .._paths import paths_of
from .._text import format_bytes
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    ReaderGone,
    emit,
    help_of,
    paragraph,
    progress,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", help=help_of(report))(report)


def report(
    path: Annotated[
        str,
        typer.Argument(
            help="A store, a NetCDF or HDF5 file, a URL, or a pattern of files, quoted."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the page goes; - for stdout. Without it NAME.report.html, here.",
            metavar="FILE",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="What replicas of the plan may take: a share of the file, or a size. Without it "
            "20%, or the bytes of the replicas that exist, if these are more."
        ),
    ] = None,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    force: Annotated[
        bool, typer.Option("--force", help="Replace FILE even if it is no report.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a page about a store or file: where it is read, how fast, and what to do about it.

    The page is one HTML file for any browser, without scripts, that needs no network. It shows
    where the recorded reads fall as heat maps, which patterns they have, how long they took and
    should take, which replicas there are, and how much faster each budget of replicas would make
    them. At its top it says what to do next.

    Reads are recorded once 'bedform watch PATH' has turned that on; the report learns what is new.
    It makes no replicas, and reads no elements. With --json the facts are printed, and no page is
    written unless -o says where.

    Example: [bold]bedform report era5.nc -o era5.html[/bold]

    All of it: [bold]bedform watch era5.nc[/bold], run your programs, [bold]bedform report
    era5.nc[/bold]
    """
    from .. import _report, _report_page

    if as_json and output == "-":
        raise InvalidArgumentError("--json and -o - both write to stdout: leave one of them out")
    target = None if as_json and output is None else output or _default_output(path)
    file = None
    if target is not None and target != "-":
        file = OutputFile(target, "report", _is_report, "--force", replaces_any=force)
        file.check()
    with progress("reading what is known", is_bytes=False) as tell:
        facts = _report.gather_facts(
            path, budget, tell, concat_dim=concat_dim, compat=cast("Any", compat)
        )
    page = "" if target is None else _report_page.page_of(facts)
    if target == "-":
        _print(page)
        return
    if file is not None:
        file.write(page)
    if as_json:
        emit(facts, "", True)
        return
    size = format_bytes(len(page.encode()))
    lines = [f"report of {path} is in {target} ({size})", facts["next"]["text"]]
    if facts["next"]["command"] is not None:
        lines.append(f"  {facts['next']['command']}")
    emit(facts, paragraph("\n".join(lines)), False)


def _default_output(path: str) -> str:
    """Returns the name of the page: that of the path, or of the directory of a pattern's files."""
    paths = paths_of(path)
    if paths is None:
        name = PurePath(path.rstrip("/")).name.partition("?")[0]
    else:
        name = Path(paths[0]).absolute().parent.name
    return f"{name or 'bedform'}.report.html"


def _print(page: str) -> None:
    try:
        sys.stdout.write(page)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def _is_report(head: bytes) -> bool:
    from .._report_page import GENERATOR

    return head.startswith(b"<!DOCTYPE html>") and GENERATOR.encode() in head
