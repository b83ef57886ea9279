"""``bedform report``: a page about a store or file and its reads."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, cast

import typer

from .._errors import ExistsError, InvalidArgumentError
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

#: Bytes at the start of a file that contain the mark of a report.
_HEAD_BYTES: Final = 4096


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
    if target is not None and target != "-":
        _check_target(target, force)
    with progress("reading what is known", is_bytes=False) as tell:
        facts = _report.gather_facts(
            path, budget, tell, concat_dim=concat_dim, compat=cast("Any", compat)
        )
    page = "" if target is None else _report_page.page_of(facts)
    if target == "-":
        _print(page)
        return
    if target is not None:
        _write(target, page, force)
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


def _check_target(target: str, force: bool) -> None:
    """Fails, before any work, if the target exists and is not a report."""
    where = Path(target)
    if where.is_dir():
        raise InvalidArgumentError(f"{target!r} is a directory: name a file, -o {target}/x.html")
    if not os.path.lexists(where):
        if not where.absolute().parent.is_dir():
            text = "no such directory: make it first, or choose another place"
            raise FileNotFoundError(errno.ENOENT, text, str(where.parent))
        return
    if where.exists() and not where.is_file():
        raise InvalidArgumentError(f"{target!r} is no file: -o - writes to stdout")
    if not force and not _is_report(where):
        raise ExistsError(f"{target!r} exists and is no report: choose another name, or --force")


def _is_report(where: Path) -> bool:
    from .._report_page import GENERATOR

    try:
        with where.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        # A dangling link: writing loses no data.
        return True
    return head.startswith(b"<!DOCTYPE html>") and GENERATOR.encode() in head


def _write(target: str, page: str, force: bool) -> None:
    """Writes a page that appears completely or not at all."""
    # A link is kept; the file at its end is replaced.
    where = Path(os.path.realpath(target))
    hidden = where.with_name(f".{where.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with hidden.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        # Another program may have created the target meanwhile.
        _check_target(target, force)
        hidden.replace(where)
    except OSError as error:
        # Report the name that the user knows.
        if error.filename == str(hidden):
            error.filename = target
        raise
    finally:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
