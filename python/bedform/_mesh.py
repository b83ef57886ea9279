"""Refined meshes: levels of boxes, read as uniform arrays."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex

import numpy as np

from bedform import _internal
from bedform._errors import (
    InvalidArgumentError,
    InvalidSelectionError,
    LimitExceededError,
    NotFoundError,
    OutOfBoundsError,
    engine_call,
)
from bedform._integers import byte_count
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

AXES = ("x", "y", "z")
#: Cells of a ray that are read at once, by the region that holds them.
_RAY_CELLS = 32
#: Bytes of finer cells whose means are calculated at once, beyond one row.
_MEAN_BYTES = 64 << 20


class MeshPiece(NamedTuple):
    """The cells of one box of a level that lie in a region.

    ``start`` is the first cell, in cells of ``level``; ``data`` has an axis for each of x, y, z;
    ``covered`` is True for cells that a finer level of the read has, too.
    """

    level: int
    start: tuple[int, ...]
    data: np.ndarray[Any, Any]
    covered: npt.NDArray[np.bool_]


class RefinedMesh:
    """A refined mesh: levels of boxes, each finer than the one before.

    ``bf.open`` returns it for a plotfile of AMReX. Axes are x, y, z. Cells are counted from the
    lower corner of the domain. The texts of the plotfile are read at once, elements when they are
    asked for.

    Examples
    --------
    >>> import bedform as bf
    >>> from bedform._mesh_example import plotfile
    >>> mesh = bf.open(plotfile())
    >>> mesh.levels, list(mesh), mesh.boxes(1).tolist()
    (2, ['density'], [[[2, 2], [6, 6]]])
    >>> mesh["density"].read(level=0).shape
    (4, 4)
    """

    kind = "amr"

    def __init__(self, inner: _internal.EngineMesh, where: str) -> None:
        self._inner = inner
        self._where = where
        self._facts: dict[str, Any] = json.loads(inner.facts())

    @property
    def path(self) -> str:
        """The path of the plotfile."""
        return self._where

    @property
    def levels(self) -> int:
        """The number of levels; level 0 is the coarsest."""
        return len(self._facts["levels"])

    @property
    def time(self) -> float:
        """The time of the simulation."""
        return float(self._facts["time"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        name: str = self._facts["dtype"]
        return np.dtype(name)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes."""
        return AXES[: len(self._facts["lower"])]

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lower and the upper corner of the domain, in the units of the simulation."""
        return tuple(self._facts["lower"]), tuple(self._facts["upper"])

    def boxes(self, level: int) -> npt.NDArray[np.int64]:
        """Return start and stop of each box of a level, of shape ``(n, 2, dim)``, in its cells."""
        self._level(level)
        bounds = np.frombuffer(self._inner.boxes(level), "i8")
        return bounds.reshape(-1, 2, len(self.dims)).copy()

    def grids(self, level: int) -> npt.NDArray[np.int64]:
        """Return the boxes in which the elements of a level are stored, as :meth:`boxes` does.

        A plotfile stores its boxes as they are.
        """
        return self.boxes(level)

    def domain(self, level: int) -> npt.NDArray[np.int64]:
        """Return start and stop of the domain, of shape ``(2, dim)``, in cells of a level."""
        shape = self._level(level)["shape"]
        return np.array([[0] * len(shape), shape], "i8")

    def ratio(self, level: int) -> tuple[int, ...]:
        """Return how many cells of the next level a cell of a level has along each axis.

        Raises
        ------
        InvalidArgumentError
            There is no next level.
        """
        found = self._level(level)["ratio"]
        if not found:
            raise InvalidArgumentError(f"{self._where}: level {level} is the finest one")
        return tuple(found)

    def spacing(self, level: int) -> tuple[float, ...]:
        """Return the size of a cell of a level along each axis, in the units of the simulation."""
        return tuple(self._level(level)["spacing"])

    def info(self) -> dict[str, Any]:
        """Return what is known of the mesh, without elements."""
        return {"kind": self.kind, "format": "amrex-plotfile", **self._facts}

    def close(self) -> None:
        """Do nothing: no file stays open between reads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts["components"])

    def __len__(self) -> int:
        return len(self._facts["components"])

    def __contains__(self, name: object) -> bool:
        return name in self._facts["components"]

    def keys(self) -> list[str]:
        """Return the names of the components."""
        return list(self)

    def __getitem__(self, name: str) -> MeshComponent:
        if name not in self:
            near = _near(str(name), list(self))
            raise NotFoundError(f"{self._where}: no component {name!r}{near}")
        return MeshComponent(self, name)

    def __repr__(self) -> str:
        finest = self._facts["levels"][-1]["shape"]
        shape = " x ".join(map(str, finest))
        return (
            f"<bedform.RefinedMesh {self._where}: {self.levels} levels, {shape} cells at the "
            f"finest, {len(self)} components>"
        )

    def _level(self, level: int) -> dict[str, Any]:
        levels: list[dict[str, Any]] = self._facts["levels"]
        if not 0 <= level < len(levels):
            raise InvalidArgumentError(
                f"{self._where}: level {level!r}; its levels are 0 to {len(levels) - 1}"
            )
        return levels[level]


class MeshComponent:
    """A component of a refined mesh."""

    def __init__(self, mesh: RefinedMesh, name: str) -> None:
        self.mesh = mesh
        self.name = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.mesh.dtype

    def read(
        self,
        region: Any = ...,
        *,
        level: int,
        coarsen: Literal["stored", "mean"] = "stored",
        fill: float = np.nan,
        max_bytes: int | str = "4 GiB",
    ) -> np.ndarray[Any, Any]:
        """Read a region as a uniform array in cells of a level.

        Each cell has the element of the finest level up to ``level`` that has it; elements of
        coarser levels are repeated.

        Parameters
        ----------
        region
            Numbers and slices with step 1, as of ``np.s_``, in cells of ``level``; a number drops
            its axis. The default is the domain.
        level
            The level, 0 for the coarsest.
        coarsen
            Where finer levels have a cell, too: ``"stored"`` takes the element that is stored on
            ``level``, ``"mean"`` the mean of all finer cells in it, by volume.
        fill
            The element where no level has a cell.
        max_bytes
            Limit of the result, as a number or a text such as ``"512 MiB"``.

        Raises
        ------
        LimitExceededError
            The result has more bytes than ``max_bytes``.
        OutOfBoundsError
            The region leaves the domain.
        ConflictError
            A file has changed since the mesh was opened.
        """
        start, stop, dropped = self._region(region, level)
        shape = [to - at for at, to in zip(start, stop, strict=True)]
        most = byte_count(max_bytes, "max_bytes")
        size = self.dtype.itemsize * int(np.prod(shape, dtype=object))
        if size > most:
            raise LimitExceededError(
                f"{self.mesh.path}/{self.name}: {' x '.join(map(str, shape))} cells of level "
                f"{level} take {size} bytes, over max_bytes={max_bytes!r}: read a smaller region, "
                "or a coarser level"
            )
        if coarsen not in ("stored", "mean"):
            raise InvalidArgumentError(f"coarsen={coarsen!r}: 'stored' or 'mean'")
        found = np.empty(shape, self.dtype)
        if found.size and coarsen == "mean" and level + 1 < self.mesh.levels:
            self._read_mean(start, level, found)
            found[np.isnan(found)] = fill
        elif found.size:
            self._read_into(start, level, fill, found)
        return found[tuple(0 if drops else slice(None) for drops in dropped)]

    def pieces(
        self, region: Any = ..., *, level: int, max_bytes: int | str = "4 GiB"
    ) -> Iterator[MeshPiece]:
        """Return the cells of each level up to ``level`` that lie in a region, box by box.

        Every cell comes once. ``region`` is in cells of ``level``, as in :meth:`read`; the cells of
        coarser levels are those with a part in it.
        """
        start, stop, _ = self._region(region, level)
        most = byte_count(max_bytes, "max_bytes")
        found = engine_call(self.mesh._inner.pieces, self.mesh.path)(
            self.name, (start, stop), level, most
        )
        for number, (pieces, data) in enumerate(found):
            whole = self._covered_cells(number) if number < level and pieces else None
            for first, shape, place in pieces:
                count = int(np.prod(shape))
                values = np.frombuffer(data, self.dtype, count, place).reshape(shape)
                covered = np.zeros(shape, bool)
                if whole is not None:
                    for low, high in _within(whole, first, shape):
                        covered[tuple(map(slice, low, high))] = True
                yield MeshPiece(number, tuple(first), values, covered)

    def parts(
        self,
        level: int,
        numbers: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
    ) -> list[np.ndarray[Any, Any]]:
        """Read boxes of one level, each in a stored box of that level.

        Parameters
        ----------
        level
            The level, 0 for the coarsest.
        numbers
            The number of the stored box, as :meth:`RefinedMesh.grids` lists them, of each box.
        starts, stops
            The first cell of each box and the one after the last, of shape ``(n, dim)``, in cells
            of ``level``.

        Raises
        ------
        OutOfBoundsError
            A box leaves its stored box.
        """
        whole = self.mesh.grids(level)[numbers]
        if ((starts < whole[:, 0]) | (stops > whole[:, 1]) | (starts > stops)).any():
            raise OutOfBoundsError(f"{self.mesh.path}: a part leaves its stored box")
        found = []
        # One call of the engine a box, until it takes them all in one.
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            part = np.empty([to - at for at, to in zip(start, stop, strict=True)], self.dtype)
            if part.size:
                self._read_into(start, level, np.nan, part)
            found.append(part)
        return found

    def slice(
        self, *, axis: SupportsIndex | str, at: float, level: int, fill: float = np.nan
    ) -> np.ndarray[Any, Any]:
        """Read the plane of cells at a coordinate along one axis.

        Parameters
        ----------
        axis
            The axis that the plane is normal to, as a number or a name.
        at
            A coordinate in the units of the simulation, within the domain.
        level, fill
            As in :meth:`read`.
        """
        dims = self.mesh.dims
        if isinstance(axis, str):
            if axis not in dims:
                raise InvalidArgumentError(f"axis={axis!r}: the axes are {', '.join(dims)}")
            number = dims.index(axis)
        else:
            number = axis.__index__()
            if not 0 <= number < len(dims):
                raise InvalidArgumentError(f"axis={number}: the mesh has {len(dims)} axes")
        lower, upper = self.mesh.bounds
        if not lower[number] <= at <= upper[number]:
            raise OutOfBoundsError(
                f"{dims[number]}={at}: the domain reaches from {lower[number]} to {upper[number]}"
            )
        cells = int(self.mesh.domain(level)[1, number])
        cell = min(int((at - lower[number]) / self.mesh.spacing(level)[number]), cells - 1)
        region = [slice(None)] * len(dims)
        return self.read((*region[:number], cell, *region[number + 1 :]), level=level, fill=fill)

    def ray(
        self, a: Sequence[float], b: Sequence[float], *, level: int, fill: float = np.nan
    ) -> tuple[npt.NDArray[np.float64], np.ndarray[Any, Any]]:
        """Read the cells of a level that the line from ``a`` to ``b`` crosses.

        Parameters
        ----------
        a, b
            Different points of the domain, in the units of the simulation.
        level, fill
            As in :meth:`read`.

        Returns
        -------
        tuple of numpy.ndarray
            For each cell in order the length along the line, from ``a`` to the middle of its part
            in the cell, and the element.
        """
        ends = [self._point(a), self._point(b)]
        length = float(np.linalg.norm(np.subtract(b, a)))
        if length == 0:
            raise InvalidArgumentError(f"{tuple(a)} to {tuple(b)}: a line has two different ends")
        shape = self.mesh.domain(level)[1]
        first, last = (point / self.mesh.spacing(level) for point in ends)
        parts = _crossings(first, last)
        middles = (parts[1:] + parts[:-1]) / 2
        cells = np.floor(first + middles[:, None] * (last - first)).astype("i8")
        cells = np.clip(cells, 0, shape - 1)
        found = np.empty(len(cells), self.dtype)
        for at in range(0, len(cells), _RAY_CELLS):
            block = cells[at : at + _RAY_CELLS]
            low, high = block.min(axis=0), block.max(axis=0) + 1
            values = self.read(tuple(map(slice, low, high)), level=level, fill=fill)
            found[at : at + _RAY_CELLS] = values[tuple((block - low).T)]
        return middles * length, found

    def _point(self, point: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns a point of the domain, from the lower corner on."""
        lower, upper = self.mesh.bounds
        given = np.asarray(point, "f8")
        if given.shape != (len(lower),):
            raise InvalidArgumentError(f"{point!r}: a point has {len(lower)} coordinates")
        if not ((given >= lower) & (given <= upper)).all():
            raise OutOfBoundsError(
                f"{tuple(given.tolist())}: the domain reaches from {lower} to {upper}"
            )
        return given - lower

    def __repr__(self) -> str:
        return f"<bedform.MeshComponent {self.name!r} of {self.mesh.path}>"

    def _read_into(
        self, start: list[int], level: int, fill: float, found: np.ndarray[Any, Any]
    ) -> None:
        """Reads the region at ``start`` with the shape of ``found``."""
        stop = [at + length for at, length in zip(start, found.shape, strict=True)]
        element = np.array(fill, self.dtype).tobytes()
        read = engine_call(self.mesh._inner.read, self.mesh.path)
        read(self.name, (start, stop), level, element, found)

    def _read_mean(self, start: list[int], level: int, found: np.ndarray[Any, Any]) -> None:
        """Reads the mean of the finest cells, some rows at a time; NaN where there are none."""
        finest = self.mesh.levels - 1
        ratio = np.ones(found.ndim, int)
        for other in range(level, finest):
            ratio *= self.mesh.ratio(other)
        row = self.dtype.itemsize * int(np.prod(found.shape[1:])) * int(np.prod(ratio))
        rows = max(_MEAN_BYTES // row, 1)
        for at in range(0, len(found), rows):
            part = found[at : at + rows]
            fine = np.empty(part.shape * ratio, self.dtype)
            first = np.multiply([start[0] + at, *start[1:]], ratio).tolist()
            self._read_into(first, finest, np.nan, fine)
            pairs = zip(part.shape, ratio, strict=True)
            cells = fine.reshape([length for pair in pairs for length in pair])
            part[...] = cells.mean(tuple(range(1, 2 * found.ndim, 2)), dtype="f8")

    def _region(self, region: Any, level: int) -> tuple[list[int], list[int], list[bool]]:
        """Returns the first cells, those after the last, and whether an axis is dropped."""
        shape = self.mesh._level(level)["shape"]
        given = region if isinstance(region, tuple) else (region,)
        if sum(part is ... for part in given) > 1:
            raise InvalidSelectionError("a region has at most one '...'")
        if ... in given:
            at = given.index(...)
            missing = max(len(shape) - len(given) + 1, 0)
            given = (*given[:at], *[slice(None)] * missing, *given[at + 1 :])
        if len(given) > len(shape):
            raise InvalidSelectionError(
                f"a region of {len(given)} axes: {self.mesh.path} has {len(shape)}"
            )
        given = (*given, *[slice(None)] * (len(shape) - len(given)))
        start, stop, dropped = [], [], []
        for axis, (part, length) in enumerate(zip(given, shape, strict=True)):
            if isinstance(part, slice):
                first, end, step = part.indices(length)
                if step != 1:
                    raise InvalidSelectionError(f"step {step}: regions of a mesh have step 1")
                start.append(first)
                stop.append(max(first, end))
            elif isinstance(part, SupportsIndex):
                number = part.__index__()
                if not -length <= number < length:
                    raise OutOfBoundsError(
                        f"cell {number} along {self.mesh.dims[axis]}, which has {length} on level "
                        f"{level}"
                    )
                start.append(number % length)
                stop.append(number % length + 1)
            else:
                raise InvalidSelectionError(f"{part!r}: a region has numbers and slices")
            dropped.append(not isinstance(part, slice))
        return start, stop, dropped

    def _covered_cells(self, level: int) -> npt.NDArray[np.int64]:
        """Returns the cells of a level of which one box of the next level has all, as boxes."""
        ratio = np.array(self.mesh.ratio(level))
        boxes = self.mesh.boxes(level + 1)
        return np.stack([-(-boxes[:, 0] // ratio), boxes[:, 1] // ratio], axis=1)


def _crossings(
    first: npt.NDArray[np.float64], last: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns where a line crosses faces of cells, from 0 at its first end to 1 at its last."""
    parts = [np.array([0.0, 1.0])]
    for start, end in zip(first, last, strict=True):
        low, high = min(start, end), max(start, end)
        if low < high:
            faces = np.arange(np.floor(low) + 1, np.ceil(high))
            parts.append((faces - start) / (end - start))
    return np.unique(np.concatenate(parts))


def _within(
    boxes: npt.NDArray[np.int64], first: list[int], shape: list[int]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Returns the bounds of the parts of boxes in a piece, from its first cell on."""
    start = np.maximum(boxes[:, 0], first) - first
    stop = np.minimum(boxes[:, 1], np.add(first, shape)) - first
    inside = (start < stop).all(axis=1)
    return zip(start[inside], stop[inside], strict=True)


def _near(name: str, names: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, names, 3)
    return f"; near ones: {', '.join(map(repr, found))}" if found else f"; it has {len(names)}"


def mesh_at(path: str) -> RefinedMesh | None:
    """Opens the plotfile at a path; returns None for anything else."""
    if is_url(path) or not os.path.isdir(path):  # noqa: PTH112 - a text, perhaps not a path
        return None
    if engine_call(_internal.place_kind, path)(path)[0] != "plotfile":
        return None
    return open_mesh(path, {})


def open_mesh(where: str, options: dict[str, Any]) -> RefinedMesh:
    """Opens the plotfile at a path."""
    opened = engine_call(_internal.EngineMesh.open, where)(where, json.dumps(options))
    return RefinedMesh(opened, where)
