"""Variables of a data set, paired with the arrays that take their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import BedformError

if TYPE_CHECKING:
    from bedform import _internal
    from bedform._array import Array
    from bedform._dataset_encoding import Encoded

# Arrays below this size are coordinates or flags, stored as one chunk.
SMALL_ARRAY_BYTES = 1 << 20


@dataclass
class VariableWrite:
    """A variable to write, with its array in the store."""

    encoded: Encoded
    #: The existing array; None for a new one.
    array: Array | None
    #: The axis along which the array grows; None if it does not.
    axis: int | None

    @property
    def name(self) -> str:
        return self.encoded.name

    @property
    def length(self) -> int:
        """Number of elements to append along the growing axis."""
        return 0 if self.axis is None else self.encoded.variable.shape[self.axis]


def growths(parts: list[VariableWrite]) -> list[tuple[_internal.Array, int, int]]:
    """Returns the growing arrays with axis and length, for the engine."""
    return [
        (part.array._inner, part.axis, part.length)
        for part in parts
        if part.array is not None and part.axis is not None
    ]


def appended(parts: list[VariableWrite]) -> list[tuple[_internal.Array, int, list[int], Any]]:
    """Returns the growing arrays with axis and values in memory, for the engine."""
    taken = []
    for part in parts:
        if part.array is not None and part.axis is not None:
            data = part.array._converted(part.encoded.variable.data)
            values = part.array._elements(data)
            taken.append((part.array._inner, part.axis, list(data.shape), values))
    return taken


def is_stored(array: Array, data: Any) -> bool:
    """Whether a small array equals the values bitwise; appends repeat all coordinates."""
    if data.shape != array.shape or data.dtype.hasobject or data.nbytes > SMALL_ARRAY_BYTES:
        return False
    try:
        stored = array[...]
    except BedformError:
        # An unreadable array must be replaced.
        return False
    return bool(stored.dtype == data.dtype and np.asarray(stored).tobytes() == data.tobytes())
