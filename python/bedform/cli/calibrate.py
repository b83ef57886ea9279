"""``bedform calibrate``: measurement of a storage system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .. import _shown
from ._output import JsonOption, emit, help_of, note, paragraph, progress

if TYPE_CHECKING:
    from .._advise import Profile


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate", help=help_of(calibrate))(calibrate)


def calibrate(
    path: Annotated[
        str,
        typer.Argument(help="A directory on the storage to measure, or a URL: s3://bucket/prefix."),
    ] = ".",
    show: Annotated[
        bool, typer.Option("--show", help="Print the profile that is kept; measure nothing.")
    ] = False,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Forget what reads have taught since; measure nothing."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the storage under a directory, or an object store, and keep the profile.

    Bandwidth with one and many streams, latency with one and many requests in flight, the cost of
    a request and the gap up to which reads are worth merging; cold reads through the engine;
    codecs, copies and chunks on this machine. Takes seconds; later commands use the profile that
    was kept. Of an object store, objects that are there are read; where there are none, some are
    written, and deleted again.

    Reads refine a kept profile: it records the ratio of measured to predicted time for each codec.
    --show prints the ratios; --reset removes them, and so does measuring again.

    Example: [bold]bedform calibrate /data[/bold]
    """
    import bedform as bf

    if show or reset:
        _show(path, is_reset=reset, as_json=as_json)
        return
    with progress("measuring", is_bytes=False) as report:
        profile = bf.calibrate(
            path, keep=False, progress=lambda _, done: report(round(done * 100), 100)
        )
    place = _keep(profile, path)
    table = f"profile of {profile.name}, measured {profile.measured_at}\n\n{profile}"
    if place is not None:
        table += f"\n\nkept in {place}"
    emit(profile.to_dict(), paragraph(table), as_json)


def _show(path: str, *, is_reset: bool, as_json: bool) -> None:
    """Prints the kept profile, without its refinement if ``is_reset``."""
    import bedform as bf

    profile = bf.Profile.for_path(path)
    if profile is None:
        command = f"bedform calibrate {_shown.shell_path(path)}"
        raise bf.NotFoundError(f"{path}: no profile is kept: run {command}")
    if is_reset:
        profile = profile.without_refinement()
        profile.keep(path)
    table = f"profile of {profile.name}, measured {profile.measured_at}\n\n{profile}"
    emit(profile.to_dict(), paragraph(table), as_json)


def _keep(profile: Profile, path: str) -> str | None:
    """Keeps the profile and returns its file; a failure is a note, since measuring took seconds."""
    from .._advise import not_kept
    from .._errors import BedformError

    try:
        return profile.keep(path)
    except BedformError as error:
        note(f"bedform: {not_kept(error)}")
        return None
