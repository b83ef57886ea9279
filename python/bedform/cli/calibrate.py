"""``bedform calibrate``: measure the storage at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

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
    as_json: JsonOption = False,
) -> None:
    """Measure the storage under a directory, or an object store, and keep the profile.

    Bandwidth with one and many streams, latency with one and many requests in flight, the cost of
    a request and the gap up to which reads are worth merging. Takes seconds; later commands use
    the profile that was kept. Of an object store, objects that are there are read; where there are
    none, some are written, and deleted again.

    Example: [bold]bedform calibrate /data[/bold]
    """
    import bedform as bf

    with progress("measuring", is_bytes=False) as report:
        profile = bf.calibrate(
            path, keep=False, progress=lambda _, done: report(round(done * 100), 100)
        )
    place = _keep(profile, path)
    table = f"profile of {profile.name}, measured {profile.measured_at}\n\n{profile}"
    if place is not None:
        table += f"\n\nkept in {place}"
    emit(profile.to_dict(), paragraph(table), as_json)


def _keep(profile: Profile, path: str) -> str | None:
    """Keep the profile and say where; a place that refuses it must not cost the measurement."""
    from .._advise import not_kept
    from .._errors import BedformError

    try:
        return profile.keep(path)
    except BedformError as error:
        note(f"bedform: {not_kept(error)}")
        return None
