"""Components of refined meshes: reads of regions, boxes, planes and rays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from bedform._errors import (
    InvalidArgumentError,
    InvalidSelectionError,
    LimitExceededError,
    OutOfBoundsError,
    engine_call,
)
from bedform._integers import byte_count, client_count
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from bedform._mesh import RefinedMesh

#: Cells of a ray that are read at once, by the region that holds them.
_RAY_CELLS = 32
#: Bytes of finer cells whose means are calculated at once, beyond one row.
_MEAN_BYTES = 64 << 20


class MeshPiece(NamedTuple):
    """The cells of one box of a level that have a part in a region.

    ``start`` is the first cell, in cells of ``level``; ``data`` has an axis for each of x, y, z;
    ``covered`` is True for cells that a finer level of the read has, too. ``inside`` has, along
    each axis, the part of each cell that lies in the region: less than 1 for coarse cells at its
    edge.
    """

    level: int
    start: tuple[int, ...]
    data: np.ndarray[Any, Any]
    covered: npt.NDArray[np.bool_]
    inside: tuple[npt.NDArray[np.float64], ...]

    def share(self) -> npt.NDArray[np.float64]:
        """Return the part of each cell to count in sums over the region.

        It is 0 for covered cells, and else the part of the cell that lies in the region. So
        ``sum((piece.data * piece.share()).sum() * volume[piece.level] for piece in pieces)`` is an
        integral, where ``volume`` has the volume of a cell of each level.
        """
        found = np.ones(())
        for along in self.inside:
            found = np.multiply.outer(found, along)
        shares: npt.NDArray[np.float64] = np.where(self.covered, 0.0, found)
        return shares


class MeshReadPlan:
    """The plan of a read of a refined mesh, with its price: ``str`` of it is a table."""

    def __init__(self, name: str, facts: dict[str, Any], grid: Literal["box", "sub-box"]) -> None:
        self._name, self._facts, self._grid = name, facts, grid

    def to_dict(self) -> dict[str, Any]:
        """Return all facts: of each level the grids, the bytes of elements, and its reads.

        Grids are the boxes of a plotfile, and the sub-boxes of a store.
        """
        levels = self._facts["levels"]
        sums = {
            key: sum(level["reads"][key] for level in levels)
            for key in ("requests", "bytes", "predicted_cold_seconds", "predicted_cached_seconds")
        }
        for key in ("predicted_cold_seconds", "predicted_cached_seconds"):
            sums[key] += self._facts["composing_seconds"]
        needed = sum(level["needed_bytes"] for level in levels)
        return {"array": self._name, "needed_bytes": needed, **sums, **self._facts}

    def __str__(self) -> str:
        facts = self.to_dict()
        lines = [
            f"array             {facts['array']}",
            f"result bytes      {format_bytes(facts['result_bytes'])}",
            f"bytes of elements {format_bytes(facts['needed_bytes'])}",
            f"bytes             {format_bytes(facts['bytes'])} in {facts['requests']} requests",
            f"predicted cold    {format_seconds(facts['predicted_cold_seconds'])}",
            f"predicted cached  {format_seconds(facts['predicted_cached_seconds'])}",
        ]
        if "replica" in facts:
            without = format_seconds(facts["predicted_cold_seconds_without"])
            lines.append(f"replica           {facts['replica']}; without it {without} cold")
        for level in facts["levels"]:
            reads = level["reads"]
            count = level["grids"]
            grids = f"{count} {self._grid}" if count == 1 else f"{count} {self._grid}es"
            lines.append(
                f"level {level['level']:<11} {grids}, {level['covered_grids']} more have finer "
                f"cells: {format_bytes(reads['bytes'])} in {reads['requests']} requests"
            )
        return "\n".join(lines)


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
        level: int | None = None,
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
            its axis. Slices end at the domain, as NumPy's do. The default is the domain.
        level
            The level, 0 for the coarsest; the finest by default.
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
            A number leaves the domain.
        ConflictError
            A file has changed since the mesh was opened.
        """
        level = self._or_finest(level)
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
        self, region: Any = ..., *, level: int | None = None, max_bytes: int | str = "4 GiB"
    ) -> Iterator[MeshPiece]:
        """Return the cells of each level up to ``level`` that lie in a region, box by box.

        Every cell comes once. ``region`` is in cells of ``level``, as in :meth:`read`; the cells of
        coarser levels are those with a part in it. For sums multiply by :meth:`MeshPiece.share`.
        """
        level = self._or_finest(level)
        start, stop, _ = self._region(region, level)
        most = byte_count(max_bytes, "max_bytes")
        found = engine_call(self.mesh._inner.pieces, self.mesh.path)(
            self.name, (start, stop), level, most
        )
        for number, (pieces, data, marks) in enumerate(found):
            ratio = self.mesh._ratio_between(number, level).tolist()
            insides = [_Insides(*sides) for sides in zip(ratio, start, stop, strict=True)]
            values = np.frombuffer(data, self.dtype)
            if number < level and pieces:
                marked = np.frombuffer(marks, bool)
            else:
                # All pieces share it.
                marked = np.broadcast_to(False, values.shape)
            item = self.dtype.itemsize
            for first, shape, place in pieces:
                at = place // item
                cells = slice(at, at + math.prod(shape))
                inside = tuple(map(_Insides.of, insides, first, shape))
                yield MeshPiece(
                    number,
                    tuple(first),
                    values[cells].reshape(shape),
                    marked[cells].reshape(shape),
                    inside,
                )

    def parts(
        self,
        level: int,
        numbers: Sequence[int] | npt.NDArray[np.int64],
        starts: Sequence[Sequence[int]] | npt.NDArray[np.int64],
        stops: Sequence[Sequence[int]] | npt.NDArray[np.int64],
        *,
        max_bytes: int | str = "4 GiB",
    ) -> list[np.ndarray[Any, Any]]:
        """Read the elements that a level stores in parts of its grids: boxes or sub-boxes.

        Parameters
        ----------
        level
            The level.
        numbers
            The number of the grid of each part, as :meth:`RefinedMesh.grids` lists them.
        starts, stops
            The first cell of each part and the one after its last, in cells of the level.
        max_bytes
            Limit of all elements.

        Raises
        ------
        OutOfBoundsError
            There is no such grid, or it does not have the cells.
        """
        self.mesh._level(level)
        read = engine_call(self.mesh._inner.read_parts, self.mesh.path)
        grids, low, high = (np.asarray(given, "i8").tolist() for given in (numbers, starts, stops))
        most = byte_count(max_bytes, "max_bytes")
        found, data, _ = read(self.name, level, grids, low, high, most)
        return [
            np.frombuffer(data, self.dtype, int(np.prod(shape)), place).reshape(shape)
            for _, shape, place in found
        ]

    def explain(self, region: Any = ..., *, level: int | None = None) -> MeshReadPlan:
        """Explain :meth:`read` without reading elements: requests, bytes and time, by level."""
        level = self._or_finest(level)
        start, stop, _ = self._region(region, level)
        explain = engine_call(self.mesh._inner.explain, self.mesh.path)
        facts = json.loads(explain(self.name, (start, stop), level))
        grid: Literal["box", "sub-box"] = "box" if self.mesh._steps is None else "sub-box"
        return MeshReadPlan(f"{self.mesh.path}/{self.name}", facts, grid)

    def workload(
        self, region: Any = ..., *, level: int | None = None, clients: int = 1
    ) -> dict[str, Any]:
        """Return the requests of :meth:`read` shared by ``clients``, for :func:`bedform.simulate`.

        The requests are those of the plans that :meth:`explain` prices, level after level; each
        object of a level is a file.

        Examples
        --------
        >>> import bedform as bf
        >>> from bedform._mesh_example import plotfile
        >>> requests = bf.open(plotfile())["density"].workload(level=1, clients=2)
        >>> bf.simulate("spider", requests).to_dict()["seconds"] > 0
        True
        """
        level = self._or_finest(level)
        start, stop, _ = self._region(region, level)
        requests = engine_call(self.mesh._inner.workload, self.mesh.path)
        text = requests(self.name, (start, stop), level, client_count(clients))
        found: dict[str, Any] = json.loads(text)
        return found

    def slice(
        self,
        *,
        axis: SupportsIndex | str,
        at: float,
        level: int | None = None,
        fill: float = np.nan,
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
        dims, level = self.mesh.dims, self._or_finest(level)
        if isinstance(axis, str):
            if axis not in dims:
                raise InvalidArgumentError(f"axis={axis!r}: the axes are {', '.join(dims)}")
            number = dims.index(axis)
        else:
            number = axis.__index__()
            if not 0 <= number < len(dims):
                raise InvalidArgumentError(f"axis={number}: the mesh has {len(dims)} axes")
        cell = self.mesh._cell_at(number, at, level)
        region = [slice(None)] * len(dims)
        return self.read((*region[:number], cell, *region[number + 1 :]), level=level, fill=fill)

    @overload
    def ray(
        self,
        a: Sequence[float],
        b: Sequence[float],
        *,
        level: int | None = None,
        widths: Literal[False] = False,
        fill: float = np.nan,
    ) -> tuple[npt.NDArray[np.float64], np.ndarray[Any, Any]]: ...

    @overload
    def ray(
        self,
        a: Sequence[float],
        b: Sequence[float],
        *,
        level: int | None = None,
        widths: Literal[True],
        fill: float = np.nan,
    ) -> tuple[npt.NDArray[np.float64], np.ndarray[Any, Any], npt.NDArray[np.float64]]: ...

    def ray(
        self,
        a: Sequence[float],
        b: Sequence[float],
        *,
        level: int | None = None,
        widths: bool = False,
        fill: float = np.nan,
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """Read the cells of a level that the line from ``a`` to ``b`` crosses.

        Parameters
        ----------
        a, b
            Different points of the domain, in the units of the simulation.
        level, fill
            As in :meth:`read`.
        widths
            Also return the length of the line in each cell, for integrals along the line.

        Returns
        -------
        tuple of numpy.ndarray
            For each cell in order the length along the line, from ``a`` to the middle of its part
            in the cell, and the element. With ``widths`` a third array has the length of that part;
            together they are as long as the line.

        Examples
        --------
        >>> import bedform as bf
        >>> from bedform._mesh_example import plotfile
        >>> density = bf.open(plotfile())["density"]
        >>> _, values, widths = density.ray((0, 0.1), (0.5, 0.1), level=0, widths=True)
        >>> values, widths, float((values * widths).sum())
        (array([0., 1.]), array([0.25, 0.25]), 0.25)
        """
        level = self._or_finest(level)
        ends = [self._point(name, point) for name, point in (("a", a), ("b", b))]
        length = float(np.linalg.norm(ends[1] - ends[0]))
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
        if widths:
            return middles * length, found, np.diff(parts) * length
        return middles * length, found

    def _or_finest(self, level: int | None) -> int:
        return self.mesh.levels - 1 if level is None else level

    def _point(self, name: str, point: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns a point of the domain, from the lower corner on."""
        lower, upper = self.mesh.bounds
        given = self.mesh._coordinates(name, point)
        if not ((given >= lower) & (given <= upper)).all():
            raise OutOfBoundsError(
                f"{tuple(given.tolist())}: the domain reaches from {lower} to {upper}"
            )
        return given - lower

    def __getitem__(self, key: Any) -> Any:
        finest = self.mesh.levels - 1
        raise InvalidSelectionError(
            f"{self.mesh.path}/{self.name}: say the level: read(np.s_[...], level={finest})"
        )

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
        ratio = self.mesh._ratio_between(level, finest)
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


class _Insides:
    """The parts of cells that lie in a region, along one axis: made once for all alike pieces."""

    def __init__(self, ratio: int, low: int, high: int) -> None:
        self._ratio, self._low, self._high = ratio, low, high
        self._known: dict[tuple[int, int], npt.NDArray[np.float64]] = {}

    def of(self, first: int, length: int) -> npt.NDArray[np.float64]:
        """Returns the parts of `length` cells from `first` on."""
        # Cells wholly inside are alike, wherever they are.
        last = (first + length) * self._ratio
        is_whole = first * self._ratio >= self._low and last <= self._high
        key = (-1, length) if is_whole else (first, length)
        found = self._known.get(key)
        if found is None:
            edges = np.arange(first, first + length + 1) * self._ratio
            parts = np.minimum(edges[1:], self._high) - np.maximum(edges[:-1], self._low)
            found = parts / self._ratio
            found.flags.writeable = False
            self._known[key] = found
        return found


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
