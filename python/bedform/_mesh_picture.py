"""Pictures of planes of refined meshes, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform._errors import InvalidArgumentError, UnsupportedError
from bedform._shown import printable

if TYPE_CHECKING:
    from bedform._mesh import MeshComponent, RefinedMesh

    Values = np.ndarray[Any, Any]

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
    """A plane of a component: elements with two axes, and the place of the plane."""

    component: MeshComponent
    level: int
    #: The numbers of the axes across and up.
    across: int
    up: int
    #: The number of the axis that the plane is normal to, and its place there, if there is one.
    normal: int | None
    at: float | None
    values: Values


def read_plane(
    component: MeshComponent, axis: str | None, at: float | None, level: int | None
) -> MeshPlane:
    """Reads a plane of a mesh of three axes, or the whole of one of two.

    Without ``axis`` and ``at`` it is the plane in the middle of the last axis; without ``level``
    the finest one with ``CELLS_MAX`` cells at most, or else level 0.

    Raises
    ------
    InvalidArgumentError
        A mesh of two axes has no plane to choose, or the mesh lacks the axis.
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
    chosen = finest_level(mesh, across, up) if level is None else level
    if normal is None:
        return MeshPlane(component, chosen, across, up, None, None, component.read(level=chosen))
    lower, upper = (corner[normal] for corner in mesh.bounds)
    place = (lower + upper) / 2 if at is None else at
    values = component.slice(axis=normal, at=place, level=chosen)
    return MeshPlane(component, chosen, across, up, normal, place, values)


def _normal(mesh: RefinedMesh, axis: str | None) -> int:
    """Returns the number of the axis that the plane is normal to."""
    if axis is None:
        return len(mesh.dims) - 1
    if axis not in mesh.dims:
        raise InvalidArgumentError(f"axis {axis!r}: the axes are {', '.join(mesh.dims)}")
    return mesh.dims.index(axis)


def finest_level(mesh: RefinedMesh, across: int, up: int) -> int:
    """Returns the finest level of which a plane has ``CELLS_MAX`` cells at most, or else 0."""
    shapes = (mesh.domain(level)[1] for level in range(mesh.levels))
    fitting = [
        level for level, shape in enumerate(shapes) if shape[across] * shape[up] <= CELLS_MAX
    ]
    return max(fitting, default=0)


def picture_of(plane: MeshPlane, *, log: bool, cmap: str, boxes: bool) -> bytes:
    """Draws a plane as a PNG.

    Raises
    ------
    UnsupportedError
        matplotlib is missing.
    InvalidArgumentError
        There is no such colour map, or ``log`` is given and no element is above zero.
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
        _draw(plane, figure, (size, sides), _norm(plane, log=log), colours)
        if boxes:
            _draw_boxes(plane, figure.axes[0])
        dpi = min(max(_DPI, *(np.array(plane.values.shape) / sides)), _DPI_MAX)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": SOFTWARE})
    return file.getvalue()


def _norm(plane: MeshPlane, *, log: bool) -> Any:
    """Returns the range of the colours."""
    from matplotlib.colors import LogNorm, Normalize

    finite = plane.values[np.isfinite(plane.values)]
    if log:
        finite = finite[finite > 0]
        if not finite.size:
            raise InvalidArgumentError(
                f"{plane.component.name}: no element of the plane is above zero: leave out --log"
            )
    if not finite.size:
        return Normalize(0, 1)
    least, most = float(finite.min()), float(finite.max())
    return (LogNorm if log else Normalize)(least, most)


def _extents(plane: MeshPlane) -> list[tuple[float, float]]:
    """Returns the bounds of the domain across and up."""
    lower, upper = plane.component.mesh.bounds
    return [(lower[axis], upper[axis]) for axis in (plane.across, plane.up)]


def _sizes(plane: MeshPlane) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the inches of the figure, and of the plane in it, across and up."""
    width, height = (high - low for low, high in _extents(plane))
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
    bounds = _extents(plane)
    image = axes.imshow(
        np.ma.masked_invalid(plane.values.T),
        origin="lower",
        extent=(*bounds[0], *bounds[1]),
        aspect="auto",
        # Larger planes than the picture are averaged, smaller ones keep their cells.
        interpolation="auto",
        interpolation_stage="data",
        cmap=colours,
        norm=norm,
    )
    axes.set(xlabel=mesh.dims[plane.across], ylabel=mesh.dims[plane.up])
    axes.ticklabel_format(style="sci", scilimits=(-3, 4), useMathText=False)
    axes.tick_params(direction="out", labelsize=9)
    bar = figure.add_axes(
        ((left + across + 0.12) / width, bottom / height, 0.16 / width, up / height)
    )
    figure.colorbar(image, cax=bar)
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
    """Draws the outlines of the boxes that the plane cuts, coarsest first, with a legend."""
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
    """Returns the corners of a level's boxes that the plane cuts, of shape ``(n, 4, 2)``."""
    mesh = plane.component.mesh
    lower, spacing, boxes = mesh.bounds[0], mesh.spacing(level), mesh.boxes(level)
    if plane.normal is not None and plane.at is not None:
        cells = int(mesh.domain(level)[1, plane.normal])
        cell = min(int((plane.at - lower[plane.normal]) / spacing[plane.normal]), cells - 1)
        cut = (boxes[:, 0, plane.normal] <= cell) & (cell < boxes[:, 1, plane.normal])
        boxes = boxes[cut]
    edges = np.add(lower, boxes * spacing)
    (left, bottom), (right, top) = (edges[:, end][:, [plane.across, plane.up]].T for end in (0, 1))
    corners = [(left, bottom), (right, bottom), (right, top), (left, top)]
    return np.array(corners).transpose(2, 0, 1)
