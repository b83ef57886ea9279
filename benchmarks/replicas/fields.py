"""Arrays whose elements follow from their positions: written to files, known without reading them.

An element is the sum of a smooth part, with a term per axis, and noise from a hash of its number in
C order. The noise fills the mantissa like the output of a model: it hardly compresses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: The key of a read: along each axis a slice, an index, or a list of indexes.
Selection = tuple[Any, ...]

SLAB_BYTES = 64 << 20
NOISE = 2.0


@dataclass(frozen=True)
class Field:
    """An array of floats by a formula."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    seed: int = 0

    @property
    def byte_count(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @cached_property
    def smooth(self) -> list[NDArray[Any]]:
        """The term of each position along each axis."""
        return [
            (10 * np.sin(2 * np.pi * np.arange(length) / length + axis)).astype(self.dtype)
            for axis, length in enumerate(self.shape)
        ]

    def of(self, selection: Selection) -> NDArray[Any]:
        """Return the elements of a selection; lists combine as an outer product."""
        places = [np.arange(length)[one] for length, one in zip(self.shape, selection, strict=True)]
        number: Any = np.array([self.seed * 0x9E3779B9 & 0xFFFFFFFF], np.uint32)
        values: Any = np.full(1, 280, self.dtype)
        step = 1
        for axis in reversed(range(len(self.shape))):
            later = sum(np.ndim(place) for place in places[axis + 1 :])
            along = np.reshape(places[axis], np.shape(places[axis]) + (1,) * later)
            # Overflow is intended, as in a hash.
            number = number + (along.astype(np.uint64) * np.uint64(step)).astype(np.uint32)
            values = values + self.smooth[axis][along]
            step *= self.shape[axis]
        values = values + noise(number).astype(self.dtype) * np.dtype(self.dtype).type(NOISE)
        return np.asarray(values).reshape([len(one) for one in places if np.ndim(one)])

    def answers(self, selections: list[Selection]) -> list[NDArray[Any]]:
        """Return the elements of each selection."""
        return [self.of(selection) for selection in selections]

    def write(self, path: Path) -> None:
        """Writes a NetCDF-4 file as a producer does: contiguous, in slabs of rows."""
        import netCDF4

        rows = max(1, SLAB_BYTES * self.shape[0] // self.byte_count)
        with netCDF4.Dataset(path, "w") as file:
            for name, length in zip(self.dims, self.shape, strict=True):
                file.createDimension(name, length)
            variable = file.createVariable(self.name, self.dtype, self.dims, contiguous=True)
            rest = (slice(None),) * (len(self.shape) - 1)
            for first in range(0, self.shape[0], rows):
                slab = slice(first, min(first + rows, self.shape[0]))
                variable[slab] = self.of((slab, *rest))
        with path.open("rb+") as written:
            os.fsync(written.fileno())


def noise(number: Any) -> NDArray[Any]:
    """Return a hash of each number, from 0 to 1.

    >>> found = noise(np.arange(1000, dtype=np.uint32))
    >>> bool(0.45 < found.mean() < 0.55)
    True
    """
    mixed = np.array(number, dtype=np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    return np.asarray(mixed * np.float32(2**-32))
