"""Refined meshes: levels of boxes, read as uniform arrays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from bedform._errors import InvalidArgumentError, NotFoundError, OutOfBoundsError
from bedform._integers import integer
from bedform._mesh_component import MeshComponent
from bedform._mesh_sizes import mesh_sizes
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import xarray as xr

    from bedform import _internal
    from bedform._foreign_store import ForeignStore
    from bedform._store import Store

AXES = ("x", "y", "z")
#: Names that an error lists.
_NAMES_SHOWN = 8
#: The part of a cell within which a coordinate lies on a face: more than floats round.
_ON_FACE = 1e-6


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
        from bedform._mesh_opening import mesh_at_step

        return mesh_at_step(cast("Store", self._store), name, self._steps)

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

    def region(
        self, lower: Sequence[float], upper: Sequence[float], *, level: int
    ) -> tuple[slice, ...]:
        """Return the cells of a level that have a part in a box, as slices for reads.

        A part thinner than a millionth of a cell does not count, so that a bound on a face, rounded
        or not, takes no cell behind it. Where ``lower`` and ``upper`` are equal, the result has the
        one cell there.

        Parameters
        ----------
        lower, upper
            The corners of the box in the units of the simulation, with a coordinate for each axis.
            The result ends at the domain; ``-inf`` and ``inf`` take all cells along an axis. For a
            box outside of the domain it is empty.
        level
            The level, 0 for the coarsest.

        Raises
        ------
        InvalidArgumentError
            The rank is wrong, a coordinate is not a number, or ``lower`` is above ``upper``.

        Examples
        --------
        >>> import bedform as bf
        >>> from bedform._mesh_example import plotfile
        >>> mesh = bf.open(plotfile())
        >>> region = mesh.region((0.3, 0.5), (0.6, 0.625), level=1)
        >>> region
        (slice(2, 5, None), slice(4, 5, None))
        >>> mesh["density"].read(region, level=1).shape
        (3, 1)
        """
        corners = self._coordinates("lower", lower), self._coordinates("upper", upper)
        for dim, low, high in zip(self.dims, *corners, strict=True):
            if low > high:
                raise InvalidArgumentError(f"{dim}: lower {low} is above upper {high}")
        counts = self.domain(level)[1]
        start, stop = (self._faces(corner, level) for corner in corners)
        first = np.floor(start)
        # The upper bound of the domain belongs to the last cell, as in `slice`.
        at_end = (start == stop) & (first == counts)
        first = np.clip(np.where(at_end, counts - 1, first), 0, counts)
        last = np.clip(np.maximum(np.ceil(stop), np.floor(start) + 1), first, counts)
        return tuple(map(slice, first.astype("i8").tolist(), last.astype("i8").tolist()))

    def _faces(self, point: npt.NDArray[np.float64], level: int) -> npt.NDArray[np.float64]:
        """Returns a point in cells of a level, from the lower corner on; whole on a face."""
        found = (point - self.bounds[0]) / self.spacing(level)
        face = np.rint(found)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(found - face) <= _ON_FACE
        whole: npt.NDArray[np.float64] = np.where(is_near, face, found)
        return whole

    def _cell_at(self, axis: int, at: float, level: int) -> int:
        """Returns the cell of a level at a coordinate along an axis."""
        lower, upper = self.bounds
        if not lower[axis] <= at <= upper[axis]:
            raise OutOfBoundsError(
                f"{self.dims[axis]}={at}: the domain reaches from {lower[axis]} to {upper[axis]}"
            )
        point = np.array(lower)
        point[axis] = at
        return min(int(self._faces(point, level)[axis]), int(self.domain(level)[1, axis]) - 1)

    def _coordinates(self, name: str, given: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns a given point: a number for each axis."""
        try:
            found = np.asarray(given, "f8")
        except (TypeError, ValueError):
            found = np.empty(0)
        if found.shape != (len(self.dims),):
            raise InvalidArgumentError(
                f"{name}={given!r:.100}: a point has {len(self.dims)} coordinates"
            )
        if np.isnan(found).any():
            raise InvalidArgumentError(f"{name}={given!r:.100}: a coordinate is not a number")
        return found

    def refused(self) -> dict[str, str]:
        """Return the reason for each part of a plotfile that is not read, by its name."""
        if self._store is not None:
            return {}
        levels = {f"Level_{number}" for number in range(self.levels)}
        with os.scandir(self._where) as entries:
            names = sorted(one.name for one in entries if one.is_dir() and one.name not in levels)
        return {name: _refusal(Path(self._where) / name) for name in names}

    def info(self) -> dict[str, Any]:
        """Return what is known of the mesh, without elements.

        ``stored_bytes`` has the bytes of the plotfile, file or store, ``step_bytes`` those in the
        directory of each step, and ``log_bytes`` those of commits that are not settled. Where files
        are not counted, at a URL or if they are more than 10,000, ``stored_bytes`` is None and
        ``not_counted`` has the reason. ``replicas`` has those that :func:`bedform.optimize` has
        made.
        """
        written = "amrex-plotfile" if self._store is None else "chombo-hdf5"
        place, paths, log = self._where, [""], 0
        if self._steps is not None:
            store = cast("Store", self._store)
            written = f"zarr v{store._call(store._inner.zarr_format)()}"
            place, paths = store.store_path, list(self._steps)
            log = int(json.loads(store._call(store._inner.log_summary)())["bytes"])
        sizes = mesh_sizes(place, paths)
        known = {"kind": self.kind, "format": written, "steps": self.steps, **self._facts}
        if sizes.total is None:
            known |= {"stored_bytes": None, "not_counted": sizes.not_counted}
        else:
            by_step = dict(zip(self.steps, sizes.steps.values(), strict=True))
            known |= {"stored_bytes": sizes.total + log, "log_bytes": log, "step_bytes": by_step}
        from bedform._mesh_jobs import replicas_with_states

        known["replicas"] = replicas_with_states(self, place)
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
        from bedform._mesh_opening import opened_again

        where = self._where if is_url(self._where) else os.path.abspath(self._where)  # noqa: PTH100
        return (opened_again, (where, self._facts))

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
