"""Pictures of planes of refined meshes, drawn by matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from bedform._errors import InvalidArgumentError, UnsupportedError
from bedform._shown import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedform._mesh import RefinedMesh
    from bedform._mesh_component import MeshComponent

    Values = np.ndarray[Any, Any]
    #: The lower and the upper bound along one axis.
    Reach = tuple[float, float]

#: The most cells of a picture whose level nobody has named.
CELLS_MAX: Final = 4_000_000
#: The name of the program in the pictures, by which they are recognized.
SOFTWARE: Final = "bedform render"
#: Inches of the longer side of the plane, and of the shorter one at least.
_SIDE: Final = 6.0
_SIDE_MIN: Final = 1.2
#: Dots per inch; more if a cell would have none.
_DPI: Final = 150
_DPI_MAX: Final = 600
#: The colours of the outlines of boxes, by level in turn, on a dark seam.
_OUTLINES: Final = ("white", "#ff9f1c", "#ff4fa3", "#5ce1ff", "#b8f34b")
#: Inches left of the plane, and of a letter of the title.
_MARGIN: Final = 0.95
_LETTER: Final = 0.12
#: So many boxes of a level get thin outlines.
_BOXES_MANY: Final = 200


@dataclass(frozen=True)
class MeshPlane:
    """A plane of a component, or a part of it: elements with two axes, and their place."""

    component: MeshComponent
    level: int
    #: The numbers of the axes across and up.
    across: int
    up: int
    #: The number of the axis that the plane is normal to, and its place there, if there is one.
    normal: int | None
    at: float | None
    values: Values
    #: The bounds of the cells of ``values`` across and up, in the units of the simulation.
    cells: tuple[Reach, Reach]
    #: The bounds of the picture across and up.
    shown: tuple[Reach, Reach]


def read_plane(
    component: MeshComponent,
    axis: str | None,
    at: float | None,
    level: int | None,
    zoom: tuple[Reach, Reach] | None = None,
) -> MeshPlane:
    """Reads a plane of a mesh of three axes, or a mesh of two, or the part of it in ``zoom``.

    Without ``axis`` and ``at`` it is the plane in the middle of the last axis; without ``level``
    the finest one with ``CELLS_MAX`` cells at most, or else level 0. ``zoom`` has the bounds across
    and up, which may be infinite.

    Raises
    ------
    InvalidArgumentError
        A mesh of two axes has no plane to choose, or the mesh lacks the axis, or ``zoom`` has no
        cells.
    OutOfBoundsError
        The domain does not reach ``at``.
    UnsupportedError
        The mesh has one axis.
    """
    mesh = component.mesh
    rank = len(mesh.dims)
    if rank == 1:
        raise UnsupportedError(f"{mesh.path} has one axis: a picture has two")
    if rank == 2 and (axis is not None or at is not None):
        raise InvalidArgumentError(
            f"{mesh.path} has two axes, x and y, which the picture shows: leave out the plane"
        )
    normal = _normal(mesh, axis) if rank == 3 else None
    across, up = (number for number in range(rank) if number != normal)
    lower, upper = map(list, mesh.bounds)
    for number, reach in zip((across, up), zoom or (), strict=False):
        lower[number], upper[number] = _reach_within(mesh, number, reach)
    shown = ((lower[across], upper[across]), (lower[up], upper[up]))
    place = None
    if normal is not None:
        place = (lower[normal] + upper[normal]) / 2 if at is None else at
        # Fails outside of the domain.
        mesh._cell_at(normal, place, 0)
        lower[normal] = upper[normal] = place
    chosen = finest_level(mesh, lower, upper) if level is None else level
    region = mesh.region(lower, upper, level=chosen)
    values = component.read(region, level=chosen)
    if normal is not None:
        values = values.squeeze(normal)
    bounds = tuple(_reach_of(mesh, number, chosen, region[number]) for number in (across, up))
    cells = (bounds[0], bounds[1])
    return MeshPlane(component, chosen, across, up, normal, place, values, cells, shown)


def _reach_within(mesh: RefinedMesh, axis: int, reach: Reach) -> Reach:
    """Returns the part of a range of coordinates that lies in the domain."""
    domain = mesh.bounds[0][axis], mesh.bounds[1][axis]
    low, high = max(reach[0], domain[0]), min(reach[1], domain[1])
    if not low < high:
        raise InvalidArgumentError(
            f"--region: {mesh.dims[axis]} from {reach[0]:g} to {reach[1]:g}: give a lower and an "
            f"upper bound in the domain, which reaches from {domain[0]:g} to {domain[1]:g}"
        )
    return low, high


def _reach_of(mesh: RefinedMesh, axis: int, level: int, cells: slice) -> Reach:
    """Returns the coordinates of the first and the last face of cells of a level."""
    lower, spacing = mesh.bounds[0][axis], mesh.spacing(level)[axis]
    return lower + cells.start * spacing, lower + cells.stop * spacing


def _normal(mesh: RefinedMesh, axis: str | None) -> int:
    """Returns the number of the axis that the plane is normal to."""
    if axis is None:
        return len(mesh.dims) - 1
    if axis not in mesh.dims:
        raise InvalidArgumentError(f"axis {axis!r}: the axes are {', '.join(mesh.dims)}")
    return mesh.dims.index(axis)


def finest_level(mesh: RefinedMesh, lower: Sequence[float], upper: Sequence[float]) -> int:
    """Returns the finest level of which a box has ``CELLS_MAX`` cells at most, or else 0."""
    fitting = []
    for level in range(mesh.levels):
        region = mesh.region(lower, upper, level=level)
        if math.prod(part.stop - part.start for part in region) <= CELLS_MAX:
            fitting.append(level)
    return max(fitting, default=0)


def picture_of(
    plane: MeshPlane,
    *,
    log: bool,
    cmap: str,
    boxes: bool,
    limits: tuple[float | None, float | None] = (None, None),
) -> bytes:
    """Draws a plane as a PNG.

    ``limits`` are the elements of the first and the last colour; without them the least and the
    greatest element of the plane.

    Raises
    ------
    UnsupportedError
        matplotlib is missing.
    InvalidArgumentError
        There is no such colour map, the limits are no range of colours, or ``log`` is given and no
        element is above zero.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "pictures are drawn by the package matplotlib: pip install 'bedform[plots]'"
        ) from None
    if cmap not in mpl.colormaps:
        raise InvalidArgumentError(
            f"no colour map {cmap!r}: matplotlib has viridis, magma, cividis, coolwarm and others"
        )
    colours = mpl.colormaps[cmap].with_extremes(bad="0.85")
    with warnings.catch_warnings():
        # A font may lack a character of a name.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        size, sides = _sizes(plane)
        figure = Figure(size)
        FigureCanvasAgg(figure)
        _draw(plane, figure, (size, sides), _norm(plane, limits, log=log), colours)
        if boxes:
            _draw_boxes(plane, figure.axes[0])
        dpi = min(max(_DPI, *(np.array(plane.values.shape) / sides)), _DPI_MAX)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": SOFTWARE})
    return file.getvalue()


def _norm(plane: MeshPlane, limits: tuple[float | None, float | None], *, log: bool) -> Any:
    """Returns the range of the colours."""
    from matplotlib.colors import LogNorm, Normalize

    least, most = limits
    _check_limits(least, most, log=log)
    finite = plane.values[np.isfinite(plane.values)]
    if log:
        finite = finite[finite > 0]
        if not finite.size:
            raise InvalidArgumentError(
                f"{plane.component.name}: no element of the plane is above zero: leave out --log"
            )
    if finite.size:
        lowest, highest = float(finite.min()), float(finite.max())
    else:
        # Any range does, but a limit that is given is kept.
        lowest, highest = (0.0 if most is None else most - 1), (1.0 if least is None else least + 1)
    if least is not None and most is None and least >= highest:
        raise InvalidArgumentError(
            f"--vmin {least:g} is not below the greatest element, {highest:g}: give --vmax, too"
        )
    if most is not None and least is None and most <= lowest:
        raise InvalidArgumentError(
            f"--vmax {most:g} is not above the least element, {lowest:g}: give --vmin, too"
        )
    lowest, highest = (lowest if least is None else least), (highest if most is None else most)
    return (LogNorm if log else Normalize)(lowest, highest)


def _check_limits(least: float | None, most: float | None, *, log: bool) -> None:
    """Fails for limits that are no range of colours for any plane."""
    for name, limit in (("--vmin", least), ("--vmax", most)):
        if limit is not None and not math.isfinite(limit):
            raise InvalidArgumentError(f"{name} {limit} is not a finite number")
        if limit is not None and log and limit <= 0:
            raise InvalidArgumentError(f"{name} {limit:g}: with --log colours begin above 0")
    if least is not None and most is not None and least >= most:
        raise InvalidArgumentError(f"--vmin {least:g} is not below --vmax {most:g}")


def _cut_ends(plane: MeshPlane, norm: Any) -> Literal["neither", "both", "min", "max"]:
    """Returns the ends of the colour bar behind which the plane has elements."""
    finite = plane.values[np.isfinite(plane.values)]
    has_lower, has_higher = bool((finite < norm.vmin).any()), bool((finite > norm.vmax).any())
    if has_lower and has_higher:
        return "both"
    return "min" if has_lower else "max" if has_higher else "neither"


def _sizes(plane: MeshPlane) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the inches of the figure, and of the plane in it, across and up."""
    width, height = (high - low for low, high in plane.shown)
    scale = _SIDE / max(width, height)
    # A long and thin plane is drawn wider than it is.
    sides = (max(width * scale, _SIDE_MIN), max(height * scale, _SIDE_MIN))
    return (max(sides[0] + 2.3, 5.0), sides[1] + 1.35), sides


def _draw(
    plane: MeshPlane,
    figure: Any,
    sizes: tuple[tuple[float, float], tuple[float, float]],
    norm: Any,
    colours: Any,
) -> None:
    """Draws the elements, the axes in the units of the simulation, and the colour bar."""
    (width, height), (across, up) = sizes
    mesh = plane.component.mesh
    left, bottom = _MARGIN + (width - across - 2.3) / 2, 0.6
    axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
    image = axes.imshow(
        np.ma.masked_invalid(plane.values.T),
        origin="lower",
        extent=(*plane.cells[0], *plane.cells[1]),
        aspect="auto",
        # Larger planes than the picture are averaged, smaller ones keep their cells.
        interpolation="auto",
        interpolation_stage="data",
        cmap=colours,
        norm=norm,
    )
    axes.set(xlabel=mesh.dims[plane.across], ylabel=mesh.dims[plane.up])
    axes.set(xlim=plane.shown[0], ylim=plane.shown[1])
    axes.ticklabel_format(style="sci", scilimits=(-3, 4), useMathText=False)
    axes.tick_params(direction="out", labelsize=9)
    bar = figure.add_axes(
        ((left + across + 0.12) / width, bottom / height, 0.16 / width, up / height)
    )
    figure.colorbar(image, cax=bar, extend=_cut_ends(plane, norm))
    bar.tick_params(which="both", labelsize=9)
    bar.yaxis.set_offset_position("left")
    _write_titles(plane, figure, bottom + up)


def _write_titles(plane: MeshPlane, figure: Any, top: float) -> None:
    """Writes the component, and the place and time, above the plane, which reaches to ``top``."""
    width, height = figure.get_size_inches()
    name = printable(plane.component.name, int((width - _MARGIN) / _LETTER))
    texts = ((0.42, name, 13, "bold", "0.0"), (0.19, _subtitle(plane), 9, "normal", "0.35"))
    for above, text, size, weight, colour in texts:
        figure.text(
            _MARGIN / width,
            (top + above) / height,
            text,
            fontsize=size,
            weight=weight,
            color=colour,
            # A name is a text as it stands, without mathematics between dollars.
            parse_math=False,
        )


def _subtitle(plane: MeshPlane) -> str:
    """Returns the time of the simulation, the place of the plane, and the level."""
    mesh = plane.component.mesh
    said = [f"time {mesh.time:.6g}"]
    if plane.normal is not None and plane.at is not None:
        said.append(f"{mesh.dims[plane.normal]} = {plane.at:.6g}")
    levels = "level 0" if plane.level == 0 else f"levels 0 to {plane.level}"
    is_finest = plane.level + 1 == mesh.levels
    said.append(levels if is_finest else f"{levels} of {mesh.levels}")
    return "   ".join(said)


def _draw_boxes(plane: MeshPlane, axes: Any) -> None:
    """Draws the outlines of the boxes in the picture, coarsest first, with a legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patheffects import Normal, Stroke

    mesh = plane.component.mesh
    drawn = []
    for level in range(plane.level + 1):
        corners = _outlines(plane, level)
        if not len(corners):
            continue
        is_thin = len(corners) > _BOXES_MANY
        width, seam = (0.5, 0.3) if is_thin else (1.3, 0.8)
        lines = PolyCollection(
            list(corners),
            facecolors="none",
            edgecolors=_OUTLINES[level % len(_OUTLINES)],
            linewidths=width,
            label=f"level {level}",
            path_effects=[Stroke(linewidth=width + seam, foreground="0.15"), Normal()],
        )
        drawn.append(axes.add_collection(lines, autolim=False))
    if drawn and mesh.levels > 1:
        axes.legend(
            handles=drawn,
            loc="upper right",
            fontsize=8,
            facecolor="0.3",
            labelcolor="white",
            framealpha=0.8,
            handlelength=1.2,
        )


def _outlines(plane: MeshPlane, level: int) -> Values:
    """Returns the corners of a level's boxes that the picture shows, of shape ``(n, 4, 2)``."""
    mesh = plane.component.mesh
    lower, spacing, boxes = mesh.bounds[0], mesh.spacing(level), mesh.boxes(level)
    if plane.normal is not None and plane.at is not None:
        cell = mesh._cell_at(plane.normal, plane.at, level)
        cut = (boxes[:, 0, plane.normal] <= cell) & (cell < boxes[:, 1, plane.normal])
        boxes = boxes[cut]
    edges = np.add(lower, boxes * spacing)[:, :, [plane.across, plane.up]]
    first, last = np.transpose(plane.shown)
    edges = edges[((edges[:, 0] < last) & (edges[:, 1] > first)).all(axis=1)]
    (left, bottom), (right, top) = (edges[:, end].T for end in (0, 1))
    corners = [(left, bottom), (right, bottom), (right, top), (left, top)]
    return np.array(corners).transpose(2, 0, 1)
