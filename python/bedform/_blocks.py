"""Arrays in pieces: boxes of a grid, chunk indexing, and type conversion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _selection
from bedform._errors import InvalidSelectionError, OutOfBoundsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedform._elements import AnyArray
    from bedform._reads import BasicReads

# Bytes that iteration over an array reads at once.
_AT_ONCE_BYTES = 16 << 20


def boxes(
    shape: Sequence[int], cells: Sequence[int], within: Sequence[tuple[int, int]] | None = None
) -> Iterator[tuple[slice, ...]]:
    """Iterates over the boxes of a grid of ``cells`` over ``shape``, in C order, as slices.

    With ``within`` (start and stop of each axis), only over boxes that intersect it, cut to it.
    """
    bounds = [(0, size) for size in shape] if within is None else within
    return _boxes_of([(*ends, cell) for ends, cell in zip(bounds, cells, strict=True)])


def _boxes_of(axes: list[tuple[int, int, int]]) -> Iterator[tuple[slice, ...]]:
    """Iterates over the boxes of axes with low end, high end and cell; an axis may have any."""
    if not axes:
        yield ()
        return
    (low, high, cell), *rest = axes
    for start in range(low // cell * cell, high, cell):
        part = slice(max(start, low), min(start + cell, high), 1)
        for others in _boxes_of(rest):
            yield (part, *others)


def bounds_of(key: Any, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Returns start and stop of each axis of a selection without steps.

    Raises
    ------
    InvalidSelectionError
        The selection has steps.
    """
    selected = _selection.basic(key, shape)
    if any(step != 1 for _, step, _ in selected.engine[1]):
        raise InvalidSelectionError("a part that is walked by chunks has no steps: use slices a:b")
    return [(start, start + count) for start, _, count in selected.engine[1]]


def rows_at_once(array: BasicReads) -> int:
    """Returns the number of rows per read of an iteration: whole chunks, in bounded memory."""
    row_bytes = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    rows = max(1, _AT_ONCE_BYTES // row_bytes)
    chunk = (array.chunks or (1,))[0]
    return rows if rows < chunk else rows // chunk * chunk


class BlockIndex:
    """``array.blocks[i, j]``: chunks by their index in the chunk grid.

    Integers and slices count chunks; the result has the elements of all selected chunks.
    """

    def __init__(self, array: BasicReads) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return self._array.cdata_shape

    def __getitem__(self, key: Any) -> Any:
        return self._array[self._elements_of(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array._set(_selection.basic(self._elements_of(key), self._array.shape), value)

    def _elements_of(self, key: Any) -> tuple[slice, ...]:
        array, grid = self._array, self.shape
        cells = array.chunks or array.shape
        try:
            chosen = bounds_of(key, grid)
        except OutOfBoundsError as error:
            raise OutOfBoundsError(f"{error}, counted in chunks") from None
        return tuple(
            slice(low * cell, min(high * cell, size))
            for (low, high), cell, size in zip(chosen, cells, array.shape, strict=True)
        )


class AsType:
    """``array.astype(dtype)[...]``: reads with conversion to another type."""

    def __init__(self, array: BasicReads, dtype: np.dtype[Any]) -> None:
        self._array, self.dtype = array, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        return np.asanyarray(self._array[key]).astype(self.dtype)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.asarray(self[...], dtype=dtype)

    def __repr__(self) -> str:
        return f"<{self._array!r} as {self.dtype}>"
