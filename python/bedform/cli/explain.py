"""``bedform explain``: the plan and price of a read."""

from __future__ import annotations

from typing import Annotated

import typer

from .._mesh import mesh_at
from .._text import parse_selection
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    emit,
    help_of,
    open_array,
    open_source,
    paragraph,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain", help=help_of(explain))(explain)


def explain(
    path: Annotated[
        str, typer.Argument(help='A store, file or plotfile; or files as one: "era5_*.nc".')
    ],
    array: Annotated[str, typer.Argument(help="The array to read.")],
    selection: Annotated[
        str, typer.Argument(help="As inside NumPy's brackets: 10,:,200:300 (quote it).")
    ],
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    level: Annotated[
        int | None,
        typer.Option(help="Of a refined mesh: the level of the selection; the finest if absent."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the plan of a read: the objects, requests and bytes, and the price; reads no values.

    The price is the time of the read, cold and with its objects in the page cache: requests,
    bytes, decoding and copying, without opening the store.

    A scalar is read whole: "()" or "...". Put two dashes before a selection that begins with a
    minus sign.

    Example: [bold]bedform explain era5.zarr t2m ":,300,700"[/bold]
    """
    mesh = mesh_at(path)
    if mesh is not None and (mesh._store is None or array in mesh or level is not None):
        number = mesh.levels - 1 if level is None else level
        shape = tuple(mesh.domain(number)[1].tolist())
        plan = mesh[array].explain(parse_selection(selection, shape), level=number)
        emit(plan.to_dict(), paragraph(str(plan)), as_json)
        return
    with open_source(path, concat_dim, compat) as store:
        found = open_array(store, array, path)
        explanation = found.explain(parse_selection(selection, found.shape))
    emit(explanation.to_dict(), paragraph(str(explanation)), as_json)
