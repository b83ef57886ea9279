"""``bedform explain``: the plan and price of a read."""

from __future__ import annotations

from typing import Annotated

import typer

from .._mesh import RefinedMesh
from .._mesh_opening import mesh_in, plotfile_at
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
        str,
        typer.Argument(
            help="A store, file or plotfile, or a step of meshes: run.zarr/plt00010; or files as "
            'one: "era5_*.nc".'
        ),
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
    plotfile = plotfile_at(path)
    if plotfile is not None:
        _emit_plan(plotfile, array, selection, level, as_json=as_json)
        return
    with open_source(path, concat_dim, compat) as store:
        mesh = mesh_in(store)
        if isinstance(mesh, RefinedMesh) and (array in mesh or level is not None):
            _emit_plan(mesh, array, selection, level, as_json=as_json)
            return
        found = open_array(store, array, path)
        explanation = found.explain(parse_selection(selection, found.shape))
    emit(explanation.to_dict(), paragraph(str(explanation)), as_json)


def _emit_plan(
    mesh: RefinedMesh, component: str, selection: str, level: int | None, *, as_json: bool
) -> None:
    """Prints the plan of a read of a refined mesh, by default on its finest level."""
    number = mesh.levels - 1 if level is None else level
    shape = tuple(mesh.domain(number)[1].tolist())
    plan = mesh[component].explain(parse_selection(selection, shape), level=number)
    emit(plan.to_dict(), paragraph(str(plan)), as_json)
