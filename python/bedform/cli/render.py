"""``bedform render``: a picture of a plane of a refined mesh."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any

import numpy as np
import typer

from .._errors import InvalidArgumentError, UnsupportedError
from .._mesh_opening import mesh_at
from .._mesh_picture import SOFTWARE, MeshPlane, picture_of, read_plane
from .._output_file import OutputFile
from .._text import format_bytes, format_shape
from ._output import JsonOption, check_there, emit, help_of, paragraph

#: The first bytes of a PNG.
_PNG = b"\x89PNG\r\n\x1a\n"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("render", help=help_of(render))(render)


def render(
    path: Annotated[
        str,
        typer.Argument(
            help="A refined mesh: a plotfile of AMReX, a file of Chombo, a store of meshes, or a "
            "step of it: run.zarr/plt00010."
        ),
    ],
    component: Annotated[str, typer.Argument(help="The component to show.")],
    axis: Annotated[
        str | None,
        typer.Option(help="The axis that the plane is normal to: x, y or z. Without it z."),
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(
            help="Where the plane lies on the axis, in the units of the simulation. Without it in "
            "the middle."
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            help="The finest level to show, 0 for the coarsest. Without it the finest of which the "
            "picture has at most 4 million cells."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the picture goes, as PNG. Without it NAME.COMPONENT.png, here.",
            metavar="FILE",
        ),
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Colours by the logarithm, of elements above zero.")
    ] = False,
    cmap: Annotated[
        str, typer.Option(help="A colour map of matplotlib.", metavar="NAME")
    ] = "viridis",
    vmin: Annotated[
        float | None,
        typer.Option(help="The element of the first colour. Without it the least of the picture."),
    ] = None,
    vmax: Annotated[
        float | None,
        typer.Option(help="The element of the last colour. Without it the greatest."),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="The part of the plane to show, as coordinates of its two axes: 0:0.5,0.2:0.8. A "
            "bound that is left out is that of the domain.",
            metavar="BOUNDS",
        ),
    ] = None,
    boxes: Annotated[
        bool, typer.Option("--boxes", help="Draw the outlines of the boxes of each level.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace FILE even if it is no picture of this command.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw a plane of a refined mesh, each cell with the finest element that is there.

    A mesh of two axes is drawn whole. The extra "plots" of the package brings matplotlib, which
    draws.

    Example: [bold]bedform render plt00100 density --axis z --at 0.5 --boxes[/bold]
    """
    check_there(path)
    mesh = mesh_at(path)
    if mesh is None:
        raise UnsupportedError(
            f"{path} is no refined mesh: pictures are made of plotfiles and of stores of meshes"
        )
    shown = mesh[component]
    target = output or _default_output(path, component)
    if not target.lower().endswith(".png"):
        raise InvalidArgumentError(f"-o {target!r}: the picture is a PNG: name it with .png")
    file = OutputFile(target, "picture of 'bedform render'", _is_own, "--force", replaces_any=force)
    file.check()
    zoom = None if region is None else _zoom(region)
    plane = read_plane(shown, axis, at, level, zoom)
    picture = picture_of(plane, log=log, cmap=cmap, boxes=boxes, limits=(vmin, vmax))
    file.write_bytes(picture)
    facts = _facts(plane, target)
    emit(facts, paragraph(_said(facts, len(picture))), as_json)


def _zoom(text: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Parses the bounds of a picture across and up."""
    pairs = [part.split(":") for part in text.split(",")]
    try:
        across, up = (
            (float(low.strip() or "-inf"), float(high.strip() or "inf")) for low, high in pairs
        )
    except ValueError:
        raise InvalidArgumentError(
            f"--region {text!r}: give the bounds of both axes of the picture, as 0:0.5,0.2:0.8"
        ) from None
    return across, up


def _default_output(path: str, component: str) -> str:
    """Returns the name of the picture: those of the mesh and the component."""
    plain = re.sub(r"[^\w().+-]", "_", component)[:60]
    return f"{PurePath(path.rstrip('/')).name or 'mesh'}.{plain}.png"


def _is_own(head: bytes) -> bool:
    return head.startswith(_PNG) and SOFTWARE.encode() in head


def _facts(plane: MeshPlane, target: str) -> dict[str, Any]:
    """Returns the facts of a picture."""
    mesh = plane.component.mesh
    finite = plane.values[np.isfinite(plane.values)]
    return {
        "output": target,
        "component": plane.component.name,
        "time": mesh.time,
        "axis": None if plane.normal is None else mesh.dims[plane.normal],
        "at": plane.at,
        "level": plane.level,
        "levels": mesh.levels,
        "region": [list(reach) for reach in plane.shown],
        "shape": list(plane.values.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
    }


def _said(facts: dict[str, Any], size: int) -> str:
    """Returns the line about a picture."""
    place = "" if facts["axis"] is None else f" at {facts['axis']} = {facts['at']:g}"
    said = f"{facts['component']}{place} is in {facts['output']} ({format_bytes(size)}): "
    said += f"{format_shape(facts['shape'])} cells of level {facts['level']}"
    if facts["level"] + 1 < facts["levels"]:
        said += f", of levels 0 to {facts['levels'] - 1}"
    if facts["min"] is not None:
        said += f", {facts['min']:g} to {facts['max']:g}"
    return said
