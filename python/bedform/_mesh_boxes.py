"""The stored elements of the boxes of a refined mesh, read within a budget of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform._errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from bedform._mesh import RefinedMesh
    from bedform._mesh_component import MeshComponent

    Bounds = npt.NDArray[np.int64]

#: Bytes of elements that are read together. The engine and the writers hold up to four copies.
BATCH_BYTES: Final = 64 << 20


def chosen_components(
    mesh: RefinedMesh, names: str | Iterable[str] | None
) -> dict[str, MeshComponent]:
    """Returns the named components of a mesh in the given order, or all of them.

    Raises
    ------
    NotFoundError
        The mesh has no such component.
    InvalidArgumentError
        No name is given, or a name twice.
    """
    if names is None:
        return {name: mesh[name] for name in mesh}
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted:
        raise InvalidArgumentError(f"{mesh.path}: components=[]: name one, or leave it out for all")
    found = {name: mesh[name] for name in wanted}
    if len(found) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise InvalidArgumentError(f"{mesh.path}: components has {twice!r} twice")
    return found


def stored_parts(
    component: MeshComponent, level: int, bounds: Bounds
) -> list[np.ndarray[Any, Any]]:
    """Reads the elements that a level stores in parts of its boxes.

    ``bounds`` has start and stop of each part, of shape ``(n, 2, dim)``; a box has all of it.
    """
    # The caller bounds the bytes. The box has every cell of the part, so that no element of a
    # coarser level stays.
    limit = int(cell_counts(bounds).max()) * component.dtype.itemsize
    return [
        component.read(tuple(map(slice, start, stop)), level=level, max_bytes=limit)
        for start, stop in bounds.tolist()
    ]


def cell_counts(bounds: Bounds) -> npt.NDArray[np.int64]:
    """Returns the number of cells of each box."""
    counts: npt.NDArray[np.int64] = np.prod(bounds[:, 1] - bounds[:, 0], axis=1)
    return counts


def cell_count(mesh: RefinedMesh) -> int:
    """Returns the number of cells of all boxes of a mesh."""
    return sum(int(cell_counts(mesh.boxes(level)).sum()) for level in range(mesh.levels))


def box_batches(bounds: Bounds, cells_max: int) -> Iterator[Bounds]:
    """Yields consecutive boxes that have at most so many cells together, or one larger box."""
    ends = np.cumsum(cell_counts(bounds))
    first, done = 0, 0
    while first < len(bounds):
        last = max(int(np.searchsorted(ends, done + cells_max, side="right")), first + 1)
        yield bounds[first:last]
        first, done = last, int(ends[last - 1])


def parts_of_box(start: Bounds, stop: Bounds, cells_max: int) -> Iterator[Bounds]:
    """Yields start and stop of parts of a box that follow each other in Fortran order."""
    shape = stop - start
    if np.prod(shape) <= cells_max:
        yield np.stack([start, stop])
        return
    axis = int(np.flatnonzero(shape > 1)[-1])
    step = max(cells_max // int(np.prod(shape[:axis])), 1)
    for at in range(int(start[axis]), int(stop[axis]), step):
        low, high = start.copy(), stop.copy()
        low[axis], high[axis] = at, min(at + step, int(stop[axis]))
        yield from parts_of_box(low, high, cells_max)


def ordered_parts(bounds: Bounds, cells_max: int) -> Iterator[Bounds]:
    """Yields some boxes, or a part of a large one, at a time: in Fortran order box after box."""
    for batch in box_batches(bounds, cells_max):
        start, stop = batch[0]
        if cell_counts(batch).sum() <= cells_max:
            yield batch
        else:
            yield from (part[np.newaxis] for part in parts_of_box(start, stop, cells_max))


def covered_cells(mesh: RefinedMesh, level: int) -> Bounds:
    """Returns the cells of a level of which one box of a finer level has all, as boxes."""
    found = []
    for finer in range(level + 1, mesh.levels):
        ratio, boxes = mesh._ratio_between(level, finer), mesh.boxes(finer)
        found.append(np.stack([-(-boxes[:, 0] // ratio), boxes[:, 1] // ratio], axis=1))
    return np.concatenate(found)


def overlaps(
    boxes: Bounds, first: Sequence[int] | Bounds, shape: Sequence[int] | Bounds
) -> Iterator[tuple[Bounds, Bounds]]:
    """Returns the bounds of the parts of boxes in a region, from its first cell on."""
    start = np.maximum(boxes[:, 0], first) - first
    stop = np.minimum(boxes[:, 1], np.add(first, shape)) - first
    inside = (start < stop).all(axis=1)
    return zip(start[inside], stop[inside], strict=True)


def flat_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Returns for each name one without slashes, which HDF5 and trees read as groups.

    A name that is taken, or that two names would get, ends with a number.
    """
    found: dict[str, str] = {}
    used = set(taken) | {".", ".."}
    given = list(names)
    # Names that stay as they are come first.
    for name in sorted(given, key=lambda name: "/" in name):
        plain = flat = name.replace("/", "_")
        number = 2
        while flat in used:
            flat, number = f"{plain}_{number}", number + 1
        used.add(flat)
        found[name] = flat
    return {name: found[name] for name in given}
