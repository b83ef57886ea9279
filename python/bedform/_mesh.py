"""Refined meshes: levels of boxes, read as uniform arrays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex, cast

import numpy as np

from bedform import _internal
from bedform._errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidSelectionError,
    LimitExceededError,
    NotFoundError,
    OutOfBoundsError,
    engine_call,
)
from bedform._integers import byte_count, client_count, integer
from bedform._remote import is_url
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import xarray as xr

    from bedform._foreign_store import ForeignStore
    from bedform._store import Store

AXES = ("x", "y", "z")
#: Cells of a ray that are read at once, by the region that holds them.
_RAY_CELLS = 32
#: Names that an error lists.
_NAMES_SHOWN = 8
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

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self._name, self._facts = name, facts

    def to_dict(self) -> dict[str, Any]:
        """Return all facts: of each level the grids, the bytes of elements, and its reads."""
        levels = self._facts["levels"]
        sums = {
            key: sum(level["reads"][key] for level in levels)
            for key in ("requests", "bytes", "predicted_cold_seconds", "predicted_cached_seconds")
        }
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
        for level in facts["levels"]:
            reads = level["reads"]
            lines.append(
                f"level {level['level']:<11} {level['grids']} grids, {level['covered_grids']} more "
                f"have finer cells: {format_bytes(reads['bytes'])} in {reads['requests']} requests"
            )
        return "\n".join(lines)


class RefinedMesh:
    """A refined mesh: levels of boxes, each finer than the one before.

    ``bf.open`` returns it for a plotfile of AMReX, for an HDF5 file of Chombo or AMReX, and for a
    store of meshes (:func:`bedform.convert`), at the last time step. Axes are x, y, z. Cells are
    counted from the lower corner of the domain. Boxes are read at once, elements when they are
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

    def __init__(
        self,
        inner: _internal.EngineMesh,
        where: str,
        store: Store | ForeignStore | None = None,
        steps: Mapping[str, float] | None = None,
    ) -> None:
        self._inner = inner
        self._where = where
        self._store = store
        self._facts: dict[str, Any] = json.loads(inner.facts())
        self._steps = steps

    @property
    def path(self) -> str:
        """The path of the plotfile, or of the group of a store."""
        return self._where

    @property
    def steps(self) -> dict[str, float]:
        """The time of each step by its name; a plotfile has one step."""
        if self._steps is None:
            return {os.path.basename(self._where.rstrip("/")): self.time}  # noqa: PTH119 - a text
        return dict(self._steps)

    def step(self, name: str) -> RefinedMesh:
        """Return the mesh at a step.

        Raises
        ------
        NotFoundError
            There is no step of this name.
        """
        if name not in self.steps:
            raise NotFoundError(
                f"{self._where}: no step {name!r}{_near(str(name), list(self.steps))}"
            )
        if self._steps is None:
            return self
        return _mesh_of(cast("Store", self._store), name, self._steps)

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

    @property
    def coordinates(self) -> str:
        """The coordinates of the axes: ``"cartesian"``, ``"cylindrical"`` or ``"spherical"``."""
        found: str = self._facts["coordinates"]
        return found

    def boxes(self, level: int) -> npt.NDArray[np.int64]:
        """Return start and stop of each box of a level, of shape ``(n, 2, dim)``, in its cells."""
        self._level(level)
        return self._bounds(self._inner.boxes(level))

    def grids(self, level: int) -> npt.NDArray[np.int64]:
        """Return the boxes in which the elements of a level are stored, as :meth:`boxes` does.

        A store cuts boxes into sub-boxes; a plotfile stores each box as it is.
        """
        self._level(level)
        return self._bounds(self._inner.grids(level))

    def _bounds(self, given: bytes) -> npt.NDArray[np.int64]:
        return np.frombuffer(given, "i8").reshape(-1, 2, len(self.dims)).copy()

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

    def _ratio_between(self, coarse: int, fine: int) -> npt.NDArray[np.int64]:
        """Returns along each axis the cells of level ``fine`` in one of level ``coarse``."""
        found = np.ones(len(self.dims), "i8")
        for level in range(coarse, fine):
            found *= self.ratio(level)
        return found

    def spacing(self, level: int) -> tuple[float, ...]:
        """Return the size of a cell of a level along each axis, in the units of the simulation."""
        return tuple(self._level(level)["spacing"])

    def refused(self) -> dict[str, str]:
        """Return the reason for each part of a plotfile that is not read, by its name."""
        if self._store is not None:
            return {}
        levels = {f"Level_{number}" for number in range(self.levels)}
        with os.scandir(self._where) as entries:
            names = sorted(one.name for one in entries if one.is_dir() and one.name not in levels)
        return {name: _refusal(Path(self._where) / name) for name in names}

    def info(self) -> dict[str, Any]:
        """Return what is known of the mesh, without elements."""
        written = "amrex-plotfile" if self._store is None else "chombo-hdf5"
        if self._steps is not None:
            store = cast("Store", self._store)
            written = f"zarr v{store._call(store._inner.zarr_format)()}"
        known = {"kind": self.kind, "format": written, "steps": self.steps, **self._facts}
        return {**known, "refused": self.refused()}

    def to_plotfile(
        self,
        path: str | os.PathLike[str],
        *,
        components: str | Iterable[str] | None = None,
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write a plotfile of AMReX with the same boxes and elements, without ghost cells.

        The plotfile appears under its name when it is complete and durable. It is little-endian,
        its cells are counted from 0, and a level has at most 256 files. The writer takes at most
        256 MiB of memory.

        Parameters
        ----------
        path
            A path on this machine that does not exist yet.
        components
            Names of the components to write, in this order; all by default.
        overwrite
            Replace a plotfile that is there.
        progress
            Called with the bytes done and the total bytes.

        Raises
        ------
        ExistsError
            The path exists, and is no plotfile or ``overwrite`` is not given.
        ConflictError
            A file of this mesh has changed since it was opened.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> from bedform._mesh_example import plotfile
        >>> mesh, target = bf.open(plotfile()), f"{tempfile.mkdtemp()}/plt00001"
        >>> mesh.to_plotfile(target, components=["density"])
        >>> bf.open(target)["density"].read(level=1)[2, 2:6].tolist()
        [100.0, 104.0, 108.0, 112.0]
        """
        from bedform._mesh_plotfile import write_plotfile

        write_plotfile(self, path, components=components, overwrite=overwrite, progress=progress)

    def to_vtkhdf(
        self,
        path: str | os.PathLike[str],
        *,
        components: str | Iterable[str] | None = None,
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write a VTKHDF file of type ``OverlappingAMR``, for ParaView and VTK.

        The file appears under its name when it is complete and durable. A mesh of two axes becomes
        a plane of one cell; VTK before 9.7 crashes where levels or axes of a plane have different
        ratios. A slash in the name of a component becomes ``_``. The writer takes at most 256 MiB
        of memory.

        Parameters
        ----------
        path
            A path on this machine that does not exist yet; ParaView knows the suffix ``.vtkhdf``.
        components, progress
            As in :meth:`to_plotfile`.
        overwrite
            Replace a VTKHDF file that is there.

        Raises
        ------
        ExistsError
            The path exists, and is no VTKHDF file or ``overwrite`` is not given.
        UnsupportedError
            An axis has more cells than 32 bits can count, or the axes of a mesh of three are
            refined by different ratios.
        ConflictError
            A file of this mesh has changed since it was opened.

        Examples
        --------
        >>> import bedform as bf, h5py, tempfile
        >>> from bedform._mesh_example import plotfile
        >>> mesh, target = bf.open(plotfile()), f"{tempfile.mkdtemp()}/plt00000.vtkhdf"
        >>> mesh.to_vtkhdf(target)
        >>> with h5py.File(target) as file:
        ...     file["VTKHDF/Level1/AMRBox"][:].tolist(), file["VTKHDF/Level1/CellData/density"][:3]
        ([[2, 5, 2, 5, 0, 0]], array([100., 101., 102.]))
        """
        from bedform._mesh_vtkhdf import write_vtkhdf

        write_vtkhdf(self, path, components=components, overwrite=overwrite, progress=progress)

    def to_datatree(
        self,
        *,
        components: str | Iterable[str] | None = None,
        max_bytes: int | str = "4 GiB",
    ) -> xr.DataTree:
        """Return the mesh as a tree of xarray, with a node for each level.

        The node ``level_1`` has the domain in cells of level 1. As in :meth:`MeshComponent.read`
        each cell has the element of the finest level up to 1, and is not a number where no level
        has it. Coordinates are the centres of cells. Elements are read when they are asked for, and
        no others than those of the smallest region around them.

        Parameters
        ----------
        components
            Names of the components; all by default. A slash in a name becomes ``_`` in the name of
            the variable, whose attribute ``component`` has the whole name.
        max_bytes
            Limit of one read, as a number or a text such as ``"512 MiB"``.

        Examples
        --------
        >>> import bedform as bf
        >>> from bedform._mesh_example import plotfile
        >>> tree = bf.open(plotfile()).to_datatree()
        >>> tree["level_1"].sizes["x"], tree["level_1"].attrs["spacing"]
        (8, [0.125, 0.125])
        >>> tree["level_1/density"].sel(x=0.3, y=[0.3, 0.9], method="nearest").values
        array([100.,  13.])
        """
        from bedform._mesh_tree import tree_of

        return tree_of(self, components, max_bytes)

    def close(self) -> None:
        """Close the store, if the mesh lies in one."""
        if self._store is not None:
            self._store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        where = self._where if is_url(self._where) else os.path.abspath(self._where)  # noqa: PTH100
        return (_opened_again, (where, self._facts))

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
        level = integer(level, "the level")
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
            its axis. Slices end at the domain, as NumPy's do. The default is the domain.
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
            A number leaves the domain.
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
        coarser levels are those with a part in it. For sums multiply by :meth:`MeshPiece.share`.
        """
        start, stop, _ = self._region(region, level)
        most = byte_count(max_bytes, "max_bytes")
        found = engine_call(self.mesh._inner.pieces, self.mesh.path)(
            self.name, (start, stop), level, most
        )
        for number, (pieces, data, marks) in enumerate(found):
            ratio = self.mesh._ratio_between(number, level)
            marked = np.frombuffer(marks, bool) if number < level and pieces else None
            for first, shape, place in pieces:
                count = int(np.prod(shape))
                values = np.frombuffer(data, self.dtype, count, place).reshape(shape)
                at = place // self.dtype.itemsize
                if marked is None:
                    covered = np.zeros(shape, bool)
                else:
                    covered = marked[at : at + count].reshape(shape)
                inside = _inside(first, shape, ratio, (start, stop))
                yield MeshPiece(number, tuple(first), values, covered, inside)

    def parts(
        self,
        level: int,
        numbers: Sequence[int] | npt.NDArray[np.int64],
        starts: Sequence[Sequence[int]] | npt.NDArray[np.int64],
        stops: Sequence[Sequence[int]] | npt.NDArray[np.int64],
        *,
        max_bytes: int | str = "4 GiB",
    ) -> list[np.ndarray[Any, Any]]:
        """Read the elements that a level stores in parts of its grids.

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

    def explain(self, region: Any = ..., *, level: int) -> MeshReadPlan:
        """Explain :meth:`read` without reading elements: requests, bytes and time, by level."""
        start, stop, _ = self._region(region, level)
        explain = engine_call(self.mesh._inner.explain, self.mesh.path)
        facts = json.loads(explain(self.name, (start, stop), level))
        return MeshReadPlan(f"{self.mesh.path}/{self.name}", facts)

    def workload(self, region: Any = ..., *, level: int, clients: int = 1) -> dict[str, Any]:
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
        start, stop, _ = self._region(region, level)
        requests = engine_call(self.mesh._inner.workload, self.mesh.path)
        text = requests(self.name, (start, stop), level, client_count(clients))
        found: dict[str, Any] = json.loads(text)
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


def _inside(
    first: list[int], shape: list[int], ratio: npt.NDArray[Any], region: tuple[list[int], list[int]]
) -> tuple[npt.NDArray[np.float64], ...]:
    """Returns along each axis the part of each cell of a piece that lies in a region."""
    found = []
    for at, length, by, low, high in zip(first, shape, ratio.tolist(), *region, strict=True):
        edges = np.arange(at, at + length + 1) * by
        parts = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
        found.append(parts / by)
    return tuple(found)


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


def _refusal(part: Path) -> str:
    """Returns the reason for a directory of a plotfile that is not read."""
    try:
        with (part / "Header").open("rb") as file:
            line = file.readline(80)
    except OSError:
        line = b""
    if line.startswith(b"Version_"):
        return "particles, which Bedform does not read"
    if part.name.startswith("Level_"):
        return "a level that the Header does not count"
    return "no level of the mesh: face-centred or nodal data, perhaps, which Bedform does not read"


def _near(name: str, names: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, names, 3)
    if found:
        return f"; near ones: {', '.join(map(repr, found))}"
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"; it has {', '.join(map(repr, names[:_NAMES_SHOWN]))}{more}"


#: The attribute of the root of a store of meshes.
STEPS_ATTRIBUTE = "bedform_mesh_steps"
#: The attribute of the group of a mesh.
MESH_ATTRIBUTE = "bedform_mesh"


def plotfile_at(path: str) -> RefinedMesh | None:
    """Opens the plotfile at a local path; returns None for anything else."""
    return open_mesh(path, {}) if is_plotfile(path) else None


def is_plotfile(path: str) -> bool:
    """Whether a plotfile lies at a local path."""
    return _kind_at(path) == "plotfile"


def mesh_at(path: str) -> RefinedMesh | None:
    """Opens the mesh at a local path; returns None for anything else."""
    if _kind_at(path) not in ("plotfile", "zarr-v3", "hdf5"):
        return None
    import bedform

    opened = bedform.open(path)
    return opened if isinstance(opened, RefinedMesh) else None


def _kind_at(path: str) -> str:
    """Returns the kind of a local path, and nothing for others."""
    if is_url(path) or not os.path.exists(path):  # noqa: PTH110 - a text, perhaps not a path
        return ""
    kind: str = engine_call(_internal.place_kind, path)(path)[0]
    return kind


def _opened_again(where: str, facts: dict[str, Any]) -> RefinedMesh:
    """Opens a pickled mesh."""
    import bedform

    mesh = bedform.open(where)
    if not isinstance(mesh, RefinedMesh) or mesh._facts != facts:
        raise ConflictError(f"{where}: its Header has changed since it was opened: open it again")
    return mesh


def open_mesh(where: str, options: dict[str, Any]) -> RefinedMesh:
    """Opens the plotfile at a path."""
    opened = engine_call(_internal.EngineMesh.open, where)(where, json.dumps(options))
    return RefinedMesh(opened, where)


def mesh_in(opened: Any) -> Any:
    """Returns the mesh in an opened store or file, or the store or file if there is none."""
    from bedform._foreign_store import ForeignStore
    from bedform._store import Store

    if isinstance(opened, Store) and not opened._is_writable:
        return mesh_of(opened) or opened
    if isinstance(opened, ForeignStore):
        from bedform._chombo import chombo_mesh

        return chombo_mesh(opened) or opened
    return opened


def mesh_of(store: Store, step: str | None = None) -> RefinedMesh | None:
    """Opens a step of a store of meshes, by default the last one; None for another store."""
    attributes = store._attributes_of("")
    if MESH_ATTRIBUTE not in attributes and STEPS_ATTRIBUTE not in attributes:
        return None
    found = dict(store._call(_internal.EngineMesh.steps)(store._inner))
    if not found:
        return None
    return _mesh_of(store, next(reversed(found)) if step is None else step, found)


def _mesh_of(store: Store, step: str, steps: Mapping[str, float]) -> RefinedMesh:
    opened = store._call(_internal.EngineMesh.of_store)(store._inner, step)
    where = f"{store.store_path}/{step}" if step else store.store_path
    return RefinedMesh(opened, where, store, steps)
