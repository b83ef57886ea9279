"""The cells of stored boxes that a selector of yt takes, and the smallest boxes that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from yt.geometry.selection_routines import (
    AlwaysSelector,
    GridSelector,
    OrthoRaySelector,
    RaySelector,
    RegionSelector,
    SliceSelector,
)

from bedform.yt_frontend._ray import cells_of_a_ray

if TYPE_CHECKING:
    import numpy.typing as npt

    from bedform.yt_frontend._index import MeshIndex

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

#: Cells of a ray that are read at once, by the box that holds them.
_RAY_CELLS = 8


class Selected(NamedTuple):
    """Selected cells of one level, in the order in which yt lists them.

    ``grids`` are the stored boxes, by their numbers on the level, that the boxes of ``boxes``, of
    shape ``(n, 2, 3)``, lie in. A mask says which cells of a box are taken, in the order of rows;
    None stands for all. ``times`` has, for a ray, where it enters each cell and how long it stays.
    """

    grids: Numbers
    boxes: Numbers
    masks: list[Mask | None]
    times: npt.NDArray[np.float64] | None = None

    def counts(self) -> list[int]:
        """Return the number of cells that each box takes."""
        sizes = (self.boxes[:, 1] - self.boxes[:, 0]).prod(axis=1).tolist()
        return [
            size if mask is None else int(np.count_nonzero(mask))
            for size, mask in zip(sizes, self.masks, strict=True)
        ]


def select(selector: Any, index: MeshIndex, level: int, grids: Numbers) -> Selected:
    """Return the cells that a selector takes of stored boxes, by their numbers on a level.

    They are those of yt's own masks, cell by cell: slices, regions, and rays along an axis are
    bounded by the same arithmetic, rays walk as yt's, and other selectors make their masks.
    """
    whole = index.boxes(level)[grids]
    if isinstance(selector, GridSelector):
        return Selected(grids, whole, [None] * len(grids))
    shown = not index.is_refined(level, selector.max_level)
    if isinstance(selector, RaySelector):
        return _of_a_ray(selector, index, level, grids, shown)
    bounds = _bounds(selector, index, level, whole)
    if bounds is None:
        return _by_masks(selector, index, level, grids, shown)
    kept = (bounds[:, 0] < bounds[:, 1]).all(axis=1)
    found = Selected(grids[kept], bounds[kept], [None] * int(kept.sum()))
    return found if shown else _uncovered(found, index, level)


def _bounds(selector: Any, index: MeshIndex, level: int, whole: Numbers) -> Numbers | None:
    """Returns the box of taken cells of each stored box, or None where they are no boxes."""
    if isinstance(selector, AlwaysSelector):
        return whole
    if isinstance(selector, RegionSelector):
        lower = index.ds.domain_left_edge.d
        # A region that passes the end of a periodic domain takes cells at both ends.
        if any(np.asarray(selector.right_edge_shift) > lower):
            return None
        return _of_a_region(selector, index, level, whole)
    if isinstance(selector, SliceSelector):
        return _at(index, level, whole, [(selector.axis, selector.coord)])
    if isinstance(selector, OrthoRaySelector):
        pairs = [(selector.px_ax, selector.px), (selector.py_ax, selector.py)]
        return _at(index, level, whole, pairs)
    return None


def _at(
    index: MeshIndex, level: int, whole: Numbers, coordinates: list[tuple[int, float]]
) -> Numbers:
    """Returns the boxes of the cells at coordinates along some axes."""
    found = whole.copy()
    width, left = index.spacing(level), index.left_edges(level, whole)
    for axis, at in coordinates:
        cells = ((at - left[:, axis]) / width[axis]).astype("i8")
        last = whole[:, 1, axis] - whole[:, 0, axis] - 1
        found[:, 0, axis] += np.clip(cells, 0, last)
        found[:, 1, axis] = found[:, 0, axis] + 1
    return found


def _of_a_region(selector: Any, index: MeshIndex, level: int, whole: Numbers) -> Numbers:
    """Returns the boxes of the cells whose middles, or any parts, lie in a region."""
    found = whole.copy()
    width, left = index.spacing(level), index.left_edges(level, whole)
    half = 0.5 if selector.loose_selection else 0.0
    for axis in range(3):
        low, high, by = selector.left_edge[axis], selector.right_edge[axis], width[axis]
        edge, size = left[:, axis], whole[:, 1, axis] - whole[:, 0, axis]
        reach = half * by
        first = np.clip(((low - edge) / by).astype("i8") - 2, 0, size)
        last = np.clip(((high - edge) / by).astype("i8") + 3, 0, size)
        for _ in range(5):
            first += (first < size) & (edge + (first + 0.5) * by + reach < low)
            last -= (last > 0) & (edge + (last - 1 + 0.5) * by - reach >= high)
        found[:, 0, axis] += first
        found[:, 1, axis] = whole[:, 0, axis] + last
    return found


def _uncovered(found: Selected, index: MeshIndex, level: int) -> Selected:
    """Returns cells without those that the next level has, too."""
    if not len(found.grids):
        return found
    pairs = index.covered(level, found.boxes)
    sizes = (found.boxes[:, 1] - found.boxes[:, 0]).prod(axis=1)
    shared = (pairs.stop - pairs.start).prod(axis=1)
    covered = np.bincount(pairs.query, shared, len(sizes)).astype("i8")
    begins = np.searchsorted(pairs.query, np.arange(len(sizes) + 1))
    boxes = found.boxes.copy()
    masks: list[Mask | None] = [None] * len(sizes)
    for number in np.flatnonzero((covered > 0) & (covered < sizes)).tolist():
        first, stop = boxes[number]
        mask = np.ones(stop - first, bool)
        one = slice(begins[number], begins[number + 1])
        starts, stops = (pairs.start[one] - first).tolist(), (pairs.stop[one] - first).tolist()
        for (a, b, c), (d, e, f) in zip(starts, stops, strict=True):
            mask[a:d, b:e, c:f] = False
        low, mask = _shrunk(mask)
        boxes[number, 0] += low
        boxes[number, 1] = boxes[number, 0] + mask.shape
        masks[number] = mask.reshape(-1)
    kept = np.flatnonzero(covered < sizes)
    return Selected(found.grids[kept], boxes[kept], [masks[number] for number in kept.tolist()])


def _shrunk(mask: Mask) -> tuple[Numbers, Mask]:
    """Returns the first cell and the mask of the smallest box that holds the taken cells."""
    if mask.all():
        return np.zeros(3, "i8"), mask
    low, bounds = [], []
    for axis in range(3):
        taken = np.flatnonzero(mask.any(axis=tuple(other for other in range(3) if other != axis)))
        low.append(taken[0])
        bounds.append(slice(taken[0], taken[-1] + 1))
    return np.array(low, "i8"), mask[tuple(bounds)]


def _by_masks(selector: Any, index: MeshIndex, level: int, grids: Numbers, shown: bool) -> Selected:
    """Returns the cells that a selector's own masks take, one stored box at a time."""
    kept, boxes = [], []
    masks: list[Mask | None] = []
    for grid in grids.tolist():
        patch = index.patch(level, grid)
        with patch.without_children(shown):
            mask, count = selector.fill_mask_regular_grid(patch)
        if not count:
            continue
        low, mask = _shrunk(mask)
        first = patch.start_index + low
        kept.append(grid)
        boxes.append(np.stack([first, first + mask.shape]))
        masks.append(mask.reshape(-1))
    return Selected(np.array(kept, "i8"), np.array(boxes, "i8").reshape(-1, 2, 3), masks)


def _of_a_ray(selector: Any, index: MeshIndex, level: int, grids: Numbers, shown: bool) -> Selected:
    """Returns the cells that a ray crosses, some of them in each box."""
    kept, boxes = [], []
    masks: list[Mask | None] = []
    whole = index.boxes(level)[grids]
    left, right = index.left_edges(level, whole), index.right_edges(level, whole)
    found: list[tuple[Numbers, npt.NDArray[np.float64]]] = [
        cells_of_a_ray(
            (edge.tolist(), end.tolist()),
            index.spacing(level).tolist(),
            (box[1] - box[0]).tolist(),
            list(selector.p1),
            list(selector.vec),
        )
        for edge, end, box in zip(left, right, whole, strict=True)
    ]
    counts = [len(cells) for cells, _ in found]
    cells = np.concatenate([np.empty((0, 3), "i8"), *(cells for cells, _ in found)])
    times = np.concatenate([np.empty((0, 2)), *(times for _, times in found)])
    number = np.arange(len(grids)).repeat(counts)
    cells = cells + whole[number, 0]
    if not shown and len(cells):
        free = np.ones(len(cells), bool)
        free[index.covered(level, np.stack([cells, cells + 1], axis=1)).query] = False
        number, cells, times = number[free], cells[free], times[free]
    order = np.lexsort([cells[:, 2], cells[:, 1], cells[:, 0], number])
    number, cells, times = number[order], cells[order], times[order]
    ends = np.searchsorted(number, np.arange(len(grids) + 1))
    for grid in np.unique(number).tolist():
        for at in range(ends[grid], ends[grid + 1], _RAY_CELLS):
            block = cells[at : min(at + _RAY_CELLS, ends[grid + 1])]
            first, stop = block.min(axis=0), block.max(axis=0) + 1
            mask = np.zeros(stop - first, bool)
            mask[tuple((block - first).T)] = True
            kept.append(grids[grid])
            boxes.append(np.stack([first, stop]))
            masks.append(mask.reshape(-1))
    return Selected(np.array(kept, "i8"), np.array(boxes, "i8").reshape(-1, 2, 3), masks, times)
