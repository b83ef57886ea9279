"""Arrays of boxes: which of them meet, and the cells that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

#: Bins that a box lies in, on average, at most.
_BINS_OF_A_BOX = 8


class BoxPairs(NamedTuple):
    """The pairs of a query and a box that share cells, in order of the queries.

    ``start`` and ``stop`` bound the shared cells of each pair.
    """

    query: Numbers
    box: Numbers
    start: Numbers
    stop: Numbers


class BoxBins:
    """An index of boxes, of shape ``(n, 2, 3)``, by equal bins of cells.

    Each box is listed in all bins that it meets. Bins are the smaller, the smaller the boxes are,
    so that a query looks at few boxes that it does not meet.
    """

    def __init__(self, boxes: Numbers) -> None:
        self._boxes = boxes
        self._bin = _bin_size(boxes)
        first, last = self._bins(boxes)
        self._counts = last.max(axis=0) + 1 if len(boxes) else np.ones(3, "i8")
        box, keys = self._listed(first, last)
        order = np.argsort(keys, kind="stable")
        self._keys, self._box = keys[order], box[order]

    def meeting(self, queries: Numbers) -> BoxPairs:
        """Return the pairs of a query, of shape ``(n, 2, 3)``, and a box that share cells."""
        first, last = self._bins(queries)
        query, keys = self._listed(first, np.minimum(last, self._counts - 1))
        begins = np.searchsorted(self._keys, keys, "left")
        lengths = np.searchsorted(self._keys, keys, "right") - begins
        box = self._box[_ranges(begins, lengths)]
        query, keys = query.repeat(lengths), keys.repeat(lengths)
        start = np.maximum(queries[query, 0], self._boxes[box, 0])
        stop = np.minimum(queries[query, 1], self._boxes[box, 1])
        # A pair that shares several bins counts in the bin of its first shared cell alone.
        kept = (start < stop).all(axis=1) & (self._key(start // self._bin) == keys)
        kept = np.flatnonzero(kept)
        kept = kept[np.argsort(query[kept], kind="stable")]
        return BoxPairs(query[kept], box[kept], start[kept], stop[kept])

    def _bins(self, boxes: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the first and the last bin of each box along each axis."""
        return boxes[:, 0] // self._bin, (boxes[:, 1] - 1) // self._bin

    def _listed(self, first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the number of a box and the key of a bin, for all bins of all boxes."""
        shape = np.maximum(last - first + 1, 0)
        sizes = shape.prod(axis=1)
        box = np.arange(len(first)).repeat(sizes)
        place = _ranges(np.zeros(len(first), "i8"), sizes)
        spans = shape[box]
        rest, third = np.divmod(place, spans[:, 2])
        lead, second = np.divmod(rest, spans[:, 1])
        return box, self._key(first[box] + np.stack([lead, second, third], axis=1))

    def _key(self, bins: Numbers) -> Numbers:
        keys: Numbers = (bins[:, 0] * self._counts[1] + bins[:, 1]) * self._counts[2] + bins[:, 2]
        return keys


def _bin_size(boxes: Numbers) -> Numbers:
    """Returns the length of a bin along each axis, in cells."""
    if not len(boxes):
        return np.ones(3, "i8")
    shape = boxes[:, 1] - boxes[:, 0]
    size: Numbers = np.maximum(np.median(shape, axis=0).astype("i8"), 1)
    while (-(-shape // size)).prod(axis=1).sum() > _BINS_OF_A_BOX * len(boxes):
        size *= 2
    return size


def _ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """Returns ``arange(start, start + length)`` of all starts, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: Numbers = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return found


def of_three_axes(boxes: Numbers) -> Numbers:
    """Returns boxes of 1, 2 or 3 axes as boxes of 3, of one cell along the others."""
    missing = 3 - boxes.shape[2]
    if not missing:
        return boxes
    around = np.zeros((len(boxes), 2, missing), "i8")
    around[:, 1] = 1
    return np.concatenate([boxes, around], axis=2)
