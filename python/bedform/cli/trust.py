"""``bedform trust``: accept a sidecar that came with the data."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group

from .._trust import trust as trust_sidecar
from ._output import JsonOption, emit, help_of, paragraph, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trust", help=help_of(trust))(trust)


def trust(
    paths: Annotated[
        list[str],
        typer.Argument(help="Stores, NetCDF or HDF5 files.", metavar="PATH"),
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare the sidecars beside stores or files with the data, and let them count.

    A sidecar beside the data counts only if you have made it here: an archive may bring one whose
    replicas have other values than the data. This command reads every replica and the same
    elements of the data. It keeps equal replicas and records of reads; all else is made anew.
    Watch the data again if their reads are to be recorded.

    Example: [bold]bedform trust era5.nc[/bold]
    """
    documents = []
    lines = []
    for path in paths:
        with progress("comparing") as tell:
            done = trust_sidecar(path, progress=tell)
        documents.append({"path": path, **done})
        lines.append(paragraph(_said_of(done)))
        lines += [
            paragraph(f"a replica of {one['array'] or '/'} was removed: {one['why']}")
            for one in done["refused"]
        ]
    emit(documents[0] if len(documents) == 1 else documents, Group(*lines), as_json)


def _said_of(done: dict[str, Any]) -> str:
    if done["was_trusted"]:
        return f"{done['directory']} counts already"
    said = [
        f"{len(done['accepted'])} replicas equal the data",
        f"{len(done['refused'])} were removed",
        f"reads of {done['learned_arrays']} arrays are known",
    ]
    return f"{done['directory']} counts now: {', '.join(said)}"
