"""The variables of a data set beside the arrays that their values go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import BedformError

if TYPE_CHECKING:
    from bedform import _internal
    from bedform._array import Array
    from bedform._dataset_encoding import Encoded

# Under this size an array is a coordinate or a flag: one chunk.
SMALL_ARRAY_BYTES = 1 << 20


@dataclass
class Part:
    """Values and where they go."""

    encoded: Encoded
    #: The array as it is in the store; none for a new one.
    array: Array | None
    #: The axis along which it grows.
    axis: int | None

    @property
    def name(self) -> str:
        return self.encoded.name

    @property
    def length(self) -> int:
        """How far it grows."""
        return 0 if self.axis is None else self.encoded.variable.shape[self.axis]


def growths(parts: list[Part]) -> list[tuple[_internal.Array, int, int]]:
    """Arrays that grow, their axes, and how far, as the engine takes them."""
    return [
        (part.array._inner, part.axis, part.length)
        for part in parts
        if part.array is not None and part.axis is not None
    ]


def appended(parts: list[Part]) -> list[tuple[_internal.Array, int, list[int], Any]]:
    """The same with the values, which are in memory."""
    taken = []
    for part in parts:
        if part.array is not None and part.axis is not None:
            data = part.array._converted(part.encoded.variable.data)
            values = part.array._elements(data)
            taken.append((part.array._inner, part.axis, list(data.shape), values))
    return taken


def is_stored(array: Array, data: Any) -> bool:
    """Whether a small array has these values, bit by bit: appends bring all coordinates again."""
    if data.shape != array.shape or data.dtype.hasobject or data.nbytes > SMALL_ARRAY_BYTES:
        return False
    try:
        stored = array[...]
    except BedformError:
        # What cannot be read is to be replaced all the more.
        return False
    return bool(stored.dtype == data.dtype and np.asarray(stored).tobytes() == data.tobytes())
