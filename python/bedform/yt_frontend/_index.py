"""The index of a refined mesh for yt: arrays of stored boxes, and their objects on demand."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from yt.data_objects.field_data import YTFieldData
from yt.data_objects.index_subobjects.grid_patch import AMRGridPatch
from yt.geometry.geometry_handler import YTDataChunk
from yt.geometry.grid_geometry_handler import GridIndex

from bedform.yt_frontend._boxes import BoxBins, BoxPairs, of_three_axes
from bedform.yt_frontend._selected import Selected, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

#: Cells of the stored boxes that are selected and read together.
_SET_CELLS = 1 << 23


class MeshPatch(AMRGridPatch):
    """One stored box, for the parts of yt that take boxes one at a time."""

    _id_offset = 0

    def __init__(self, index: MeshIndex, number: int) -> None:
        super().__init__(number, filename=None, index=index)
        self.mesh_level, self.mesh_number = index.place(number)
        self.Level = index.level_numbers[self.mesh_level]
        self.ActiveDimensions = index.grid_dimensions[number]
        self.LeftEdge = index.grid_left_edge[number]
        self.RightEdge = index.grid_right_edge[number]
        self.NumberOfParticles = 0
        self.box = index.boxes(self.mesh_level)[self.mesh_number]
        self.start_index = self.box[0]
        self._has_children = True
        self._setup_dx()

    def get_global_startindex(self) -> Numbers:
        """Return the first cell, in cells of the level."""
        start: Numbers = self.box[0]
        return start

    @property
    def Parent(self) -> list[MeshPatch] | None:  # noqa: N802 - a name of yt
        """The boxes of the level before that have cells of this one; None without any."""
        return self._index.parents_of(self) or None

    @property
    def Children(self) -> list[MeshPatch]:  # noqa: N802 - a name of yt
        """The boxes of the next level that lie in this one."""
        found: list[MeshPatch] = self._index.children_of(self)
        return found

    @property
    def child_mask(self) -> npt.NDArray[np.bool_]:
        """False for cells that a box of the next level has, too."""
        mask = np.ones(self.box[1] - self.box[0], bool)
        if self._has_children:
            pairs = self._index.covered(self.mesh_level, self.box[None])
            for start, stop in zip(
                pairs.start - self.box[0], pairs.stop - self.box[0], strict=True
            ):
                mask[tuple(map(slice, start, stop))] = False
        return mask

    @contextmanager
    def without_children(self, is_without: bool) -> Iterator[None]:
        """Leave the boxes of the next level out of ``child_mask`` for some time."""
        self._has_children = not is_without
        yield
        self._has_children = True

    def selected(self, selector: Any) -> Selected:
        """Return the cells that a selector takes."""
        return select(selector, self._index, self.mesh_level, np.array([self.mesh_number]))

    def patches(self) -> list[MeshPatch]:
        """Return the box itself, as a set of one."""
        return [self]

    def _setup_dx(self) -> None:
        self.dds = self.ds.arr(self._index.spacing(self.mesh_level), "code_length")

    def _fill_child_mask(self, child: MeshPatch, mask: Any, tofill: Any, dlevel: int = 1) -> None:
        ratio = self._index.ratio(self.mesh_level) ** dlevel
        start = np.maximum(-(-child.box[0] // ratio), self.box[0]) - self.box[0]
        stop = np.minimum(child.box[1] // ratio, self.box[1]) - self.box[0]
        mask[tuple(map(slice, start, np.maximum(start, stop)))] = tofill


class PatchSet:
    """Stored boxes of one level, which are selected and read together.

    It stands in the chunks of yt where other frontends have one object a box.
    """

    filename = None

    def __init__(self, index: MeshIndex, level: int, numbers: Numbers) -> None:
        self._index = index
        self.mesh_level = level
        self.numbers = numbers
        self.id = index.first_numbers[level] + int(numbers[0])
        self.Level = index.level_numbers[level]
        self.field_data = YTFieldData()
        self.field_parameters: dict[str, Any] = {}
        self._last: tuple[int, Selected] | None = None

    def selected(self, selector: Any) -> Selected:
        """Return the cells that a selector takes; the last answer is kept."""
        key = hash(selector)
        if self._last is None or self._last[0] != key:
            self._last = key, select(selector, self._index, self.mesh_level, self.numbers)
        return self._last[1]

    def patches(self) -> list[MeshPatch]:
        """Return the boxes as objects."""
        return [self._index.patch(self.mesh_level, number) for number in self.numbers.tolist()]

    def count(self, selector: Any) -> int:
        """Return the number of cells that a selector takes."""
        return sum(self.selected(selector).counts())

    def select_icoords(self, dobj: Any) -> Any:
        """Return the taken cells, in cells of the level."""
        found = self.selected(dobj.selector)
        axes = [
            [np.arange(at, to) for at, to in zip(*box, strict=True)] for box in found.boxes.tolist()
        ]
        return _points(found, axes, "i8")

    def select_fcoords(self, dobj: Any) -> Any:
        """Return the middles of the taken cells."""
        found = self.selected(dobj.selector)
        whole = self._index.boxes(self.mesh_level)[found.grids]
        left = self._index.left_edges(self.mesh_level, whole)
        width = self._index.spacing(self.mesh_level).tolist()
        inside = (found.boxes - whole[:, :1]).tolist()
        axes = [
            [
                (np.arange(at, to) + 0.5) * by + edge
                for at, to, by, edge in zip(*box, width, edges, strict=True)
            ]
            for box, edges in zip(inside, left.tolist(), strict=True)
        ]
        return _points(found, axes, "f8")

    def select_fwidth(self, dobj: Any) -> npt.NDArray[np.float64]:
        """Return the size of each taken cell."""
        count = self.count(dobj.selector)
        return np.broadcast_to(self._index.spacing(self.mesh_level), (count, 3))

    def select_ires(self, dobj: Any) -> Numbers:
        """Return the level of each taken cell."""
        return np.full(self.count(dobj.selector), self.Level, "i8")

    def select_tcoords(self, dobj: Any) -> tuple[Any, Any]:
        """Return how long a ray stays in each taken cell, and when it enters it."""
        times = self.selected(dobj.selector).times
        if times is None:
            raise NotImplementedError(f"{type(dobj.selector).__name__} has no times")
        return times[:, 1], times[:, 0]

    def select_blocks(self, selector: Any) -> Iterator[tuple[MeshPatch, Any]]:
        """Return each box with the mask of the cells that a selector takes."""
        for patch in self.patches():
            yield from patch.select_blocks(selector)


def _points(found: Selected, axes: list[list[Any]], dtype: str) -> Any:
    """Returns the taken cells of boxes, whose coordinates are given by axis."""
    counts = found.counts()
    points, at = np.empty((sum(counts), 3), dtype), 0
    for (x, y, z), mask, count in zip(axes, found.masks, counts, strict=True):
        shape = (len(x), len(y), len(z), 3)
        here = points[at : at + count]
        whole = here.reshape(shape) if mask is None else np.empty(shape, dtype)
        whole[..., 0] = x[:, None, None]
        whole[..., 1] = y[:, None]
        whole[..., 2] = z
        if mask is not None:
            here[...] = whole.reshape(-1, 3)[mask]
        at += count
    return points


class Patches:
    """All stored boxes, as the sequence ``index.grids``; objects are made when asked for."""

    def __init__(self, index: MeshIndex) -> None:
        self._index = weakref.ref(index)
        self._made: dict[int, MeshPatch] = {}

    def __len__(self) -> int:
        return int(self._owner().num_grids)

    def __getitem__(self, key: Any) -> Any:
        numbers = np.arange(len(self))[key]
        if not isinstance(numbers, np.ndarray):
            return self._one(int(numbers))
        found = np.empty(numbers.shape, "O")
        for place, number in np.ndenumerate(numbers):
            found[place] = self._one(int(number))
        return found

    def __iter__(self) -> Iterator[MeshPatch]:
        return (self._one(number) for number in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self[:], name)

    def _one(self, number: int) -> MeshPatch:
        if number not in self._made:
            self._made[number] = MeshPatch(self._owner(), number)
        return self._made[number]

    def _owner(self) -> MeshIndex:
        index = self._index()
        if index is None:
            raise ReferenceError("the data set of these boxes is gone")
        return index


class MeshIndex(GridIndex):
    """The stored boxes of all levels of a refined mesh.

    Levels have the numbers of the mesh here, and others for yt where ratios differ: see
    :func:`~bedform.yt_frontend._refinement.refinement`.
    """

    grid = MeshPatch

    def __init__(self, ds: Any, dataset_type: str = "bedform") -> None:
        self.dataset_type = dataset_type
        self.dataset = weakref.proxy(ds)
        self.directory = ds.directory
        self.mesh = ds.mesh
        self.level_numbers: list[int] = ds.level_numbers
        self._covered: dict[int, BoxBins] = {}
        self._boxes = [of_three_axes(self.mesh.grids(level)) for level in range(self.mesh.levels)]
        counts = [len(boxes) for boxes in self._boxes]
        self.first_numbers = np.concatenate([[0], np.cumsum(counts)])[:-1].tolist()
        self._lower = np.array(ds.domain_left_edge.d)
        missing = 3 - len(self.mesh.dims)
        width = np.array(ds.domain_width.d).tolist()
        self._spacing = [
            np.array([*self.mesh.spacing(level), *width[3 - missing :]])
            for level in range(self.mesh.levels)
        ]
        super().__init__(ds, dataset_type)

    def boxes(self, level: int) -> Numbers:
        """Return the stored boxes of a level, of shape ``(n, 2, 3)``."""
        return self._boxes[level]

    def spacing(self, level: int) -> npt.NDArray[np.float64]:
        """Return the size of a cell of a level."""
        return self._spacing[level]

    def ratio(self, level: int) -> Numbers:
        """Return how many cells of the next level a cell has along each axis."""
        return np.array([*self.mesh.ratio(level), 1, 1][:3])

    def left_edges(self, level: int, boxes: Numbers) -> npt.NDArray[np.float64]:
        """Return the lower corners of boxes of a level."""
        edges: npt.NDArray[np.float64] = self._lower + boxes[:, 0] * self._spacing[level]
        return edges

    def right_edges(self, level: int, boxes: Numbers) -> npt.NDArray[np.float64]:
        """Return the upper corners of boxes of a level."""
        edges: npt.NDArray[np.float64] = self._lower + boxes[:, 1] * self._spacing[level]
        return edges

    def place(self, number: int) -> tuple[int, int]:
        """Return the level of a box and its number there."""
        level = int(np.searchsorted(self.first_numbers, number, "right")) - 1
        return level, number - self.first_numbers[level]

    def patch(self, level: int, number: int) -> MeshPatch:
        """Return the box of a number on a level as an object."""
        found: MeshPatch = self.grids[self.first_numbers[level] + number]
        return found

    def is_refined(self, level: int, finest: int) -> bool:
        """Whether a level has a next one, up to a level by its number for yt."""
        return level + 1 < self.mesh.levels and self.level_numbers[level + 1] <= finest

    def covered(self, level: int, queries: Numbers) -> BoxPairs:
        """Return the cells of a level, in boxes, of which one box of the next level has all."""
        if level + 1 >= self.mesh.levels:
            none = np.empty(0, "i8")
            return BoxPairs(none, none, none.reshape(0, 3), none.reshape(0, 3))
        if level not in self._covered:
            finer, ratio = self._boxes[level + 1], self.ratio(level)
            whole = np.stack([-(-finer[:, 0] // ratio), finer[:, 1] // ratio], axis=1)
            self._covered[level] = BoxBins(whole)
        return self._covered[level].meeting(queries)

    def children_of(self, patch: MeshPatch) -> list[MeshPatch]:
        """Return the boxes of the next level that lie in a box."""
        pairs = self.covered(patch.mesh_level, patch.box[None])
        return [self.patch(patch.mesh_level + 1, number) for number in pairs.box.tolist()]

    def parents_of(self, patch: MeshPatch) -> list[MeshPatch]:
        """Return the boxes of the level before that a box lies in."""
        level = patch.mesh_level - 1
        if level < 0:
            return []
        ratio, boxes = self.ratio(level), self._boxes[level]
        low, high = patch.box[0] // ratio, -(-patch.box[1] // ratio)
        inside = ((boxes[:, 0] < high) & (boxes[:, 1] > low)).all(axis=1)
        return [self.patch(level, number) for number in np.flatnonzero(inside).tolist()]

    def select_grids(self, level: int) -> Any:
        """Return the boxes of a level, by its number for yt, as objects."""
        return self.grids[self.grid_levels[:, 0] == level]

    def get_smallest_dx(self) -> Any:
        """Return the shortest side of a cell."""
        return self.ds.quan(min(width.min() for width in self._spacing), "code_length")

    def _count_grids(self) -> None:
        self.num_grids = sum(map(len, self._boxes))

    def _parse_index(self) -> None:
        for level, boxes in enumerate(self._boxes):
            here = slice(self.first_numbers[level], self.first_numbers[level] + len(boxes))
            self.grid_left_edge.d[here] = self.left_edges(level, boxes)
            self.grid_right_edge.d[here] = self.right_edges(level, boxes)
            self.grid_dimensions[here] = boxes[:, 1] - boxes[:, 0]
            self.grid_levels[here] = self.level_numbers[level]
        self.max_level = self.level_numbers[-1]

    def _populate_grid_objects(self) -> None:
        self.grids = Patches(self)

    def _detect_output_fields(self) -> None:
        self.field_list = [("bedform", name) for name in self.mesh]

    def _split_fields(self, fields: list[Any]) -> tuple[list[Any], list[Any]]:
        on_disk = set(self.field_list)
        stored = [field for field in fields if field in on_disk]
        rest = [field for field in fields if field not in on_disk]
        known = [field for field in rest if field in self.ds.field_info]
        _, other = super()._split_fields([field for field in rest if field not in known])
        return stored, known + other

    def _identify_base_chunk(self, dobj: Any) -> None:
        if dobj._type_name == "grid":
            _set_chunk_info(dobj, [weakref.proxy(dobj)])
        elif getattr(dobj, "_grids", None) is None:
            edges = self.grid_left_edge, self.grid_right_edge
            taken = dobj.selector.select_grids(*edges, self.grid_levels)
            _set_chunk_info(dobj, self._sets(np.flatnonzero(taken)))
        if getattr(dobj, "size", None) is None:
            dobj.size = self._count_selection(dobj)
        if getattr(dobj, "shape", None) is None:
            dobj.shape = (dobj.size,)
        (dobj._current_chunk,) = self._chunk_all(dobj, cache=False)

    def _sets(self, numbers: Numbers) -> list[PatchSet]:
        """Returns boxes of all levels as sets, each with a bounded number of cells."""
        found = []
        ends = [*self.first_numbers[1:], self.num_grids]
        for level, (first, end) in enumerate(zip(self.first_numbers, ends, strict=True)):
            here = numbers[(numbers >= first) & (numbers < end)] - first
            boxes = self._boxes[level][here]
            cells = np.cumsum((boxes[:, 1] - boxes[:, 0]).prod(axis=1))
            cuts = np.flatnonzero(np.diff(cells // _SET_CELLS)) + 1
            found += [PatchSet(self, level, part) for part in np.split(here, cuts) if len(part)]
        return found

    def _chunk_spatial(
        self, dobj: Any, ngz: int, sort: str | None = None, **_: object
    ) -> Iterator[Any]:
        patches = [patch for one in _chunk_objects(dobj) for patch in one.patches()]
        if sort is not None:
            patches.sort(key=lambda patch: patch.Level, reverse=sort == "-level")
        for patch in patches:
            size = self._count_selection(dobj, [patch])
            if size:
                shown = patch.retrieve_ghost_zones(ngz, [], smoothed=True) if ngz else patch
                yield YTDataChunk(dobj, "spatial", [shown], size, cache=False)

    def _chunk_io(self, dobj: Any, cache: bool = True, **_: object) -> Iterator[Any]:
        for one in _chunk_objects(dobj):
            yield YTDataChunk(dobj, "io", [one], self._count_selection(dobj, [one]), cache=cache)


def _set_chunk_info(dobj: Any, objects: list[Any]) -> None:
    dobj._chunk_info = np.empty(len(objects), "O")
    for number, one in enumerate(objects):
        dobj._chunk_info[number] = one


def _chunk_objects(dobj: Any) -> Any:
    """Returns the sets or boxes of the chunk that a data object has at hand."""
    return getattr(dobj._current_chunk, "objs", dobj._chunk_info)
