"""``bedform gc``: removal of unneeded segments and roots of a log, and of registry entries."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from .. import _internal
from .._settle import seconds_of
from .._text import format_bytes
from ._output import JsonOption, emit, help_of, open_store, paragraph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gc", help=help_of(gc))(gc)


def gc(
    store: Annotated[str, typer.Argument(help="The store.")],
    grace: Annotated[
        str, typer.Option(help="Keep what readers that began so long ago may need: 30min, 1h.")
    ] = "1min",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove from a store's log what no commit needs any more.

    Those are segments whose commits are all settled and whose writers are gone. Data that are
    committed and not settled always stay: 'bedform settle' moves them into the store. The
    remains of a dead writer stay, too: 'bedform recover' handles them.

    Also removes, of all stores and files, the entries of sidecars in your registry that this
    machine has made, and whose sidecar is gone, or whose data are gone for a day.

    Example: [bold]bedform gc run42.zarr --dry-run[/bold]
    """
    seconds = seconds_of(grace)
    with open_store(store, "r+") as opened:
        done = opened.collect_log(grace=seconds, dry_run=dry_run)
    verb = "would go" if dry_run else "went"
    segments = "1 segment" if done["segments"] == 1 else f"{done['segments']} segments"
    line = f"{store}: {segments} of {format_bytes(done['bytes'])} {verb}"
    if done["segments_kept"]:
        line += (
            f"; {done['segments_kept']} stay: they are needed, or somebody writes or has died there"
        )
    elif done["is_gone"]:
        line += "; nothing is left of the log"
    lines = [paragraph(line)]
    if entries := _internal.prune_registry(dry_run):
        said = "1 entry" if entries == 1 else f"{entries:,} entries"
        lines.append(paragraph(f"registry of sidecars: {said} of deleted sidecars or data {verb}"))
    value = {"path": store, "dry_run": dry_run, **done, "registry_entries": entries}
    emit(value, Group(*lines), as_json)
