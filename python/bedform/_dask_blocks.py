"""Sizes of Dask blocks of an array, if the caller does not choose them.

Chunks have sizes for single reads, 20 KiB to 4 MiB, while a Dask task costs about a millisecond. So
a block combines whole chunks, or whole shards, to 16 to 32 MiB. It grows first along the longest
axis of the chunk, since the chunks were made for reads along that axis.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# Most bytes of a combined block.
BLOCK_BYTES_MAX = 32 << 20

_NOT_GIVEN: Any = object()


class PreferredChunks(dict[str, "int | tuple[int, ...]"]):
    """The lengths of blocks by dimension, as the value of xarray's ``preferred_chunks``.

    xarray asks twice. ``get(dim, size)``, with a default, asks for lengths of blocks. ``get(dim)``
    asks for borders that a caller's blocks should not cut, and leads to warnings about blocks that
    do: these are the borders of chunks.

    >>> preferred = PreferredChunks(("time",), blocks=(400,), chunks=(10,))
    >>> preferred, preferred.get("time", 1000), preferred.get("time")
    ({'time': 400}, 400, 10)
    """

    def __init__(
        self,
        dims: Sequence[str],
        blocks: Sequence[int | tuple[int, ...]],
        chunks: Sequence[int],
    ) -> None:
        super().__init__(zip(dims, blocks, strict=True))
        self._chunks = dict(zip(dims, chunks, strict=True))

    def get(self, dim: str, default: Any = _NOT_GIVEN) -> Any:
        """Returns the length of a block with a default, that of a chunk without."""
        return self._chunks.get(dim) if default is _NOT_GIVEN else super().get(dim, default)

    def __reduce__(self) -> tuple[Any, ...]:
        dims = tuple(self)
        return (PreferredChunks, (dims, tuple(self.values()), tuple(self._chunks.values())))


@functools.lru_cache(maxsize=256)
def block_shape(
    shape: tuple[int, ...],
    item_size: int,
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Returns the lengths of a block: whole shards if they are small enough, else whole chunks.

    Chunks of more than 32 MiB are blocks of their own.

    >>> block_shape((8760, 721, 1440), 4, (1, 721, 1440))
    (8, 721, 1440)
    >>> block_shape((8760, 721, 1440), 4, (8760, 4, 4), (8760, 64, 64))
    (8760, 12, 64)
    """
    unit = _Unit(shape, item_size, [max(1, length) for length in chunks])
    if shards is None:
        return unit.grown(unit.shape)
    if unit.bytes_of(shards) <= BLOCK_BYTES_MAX:
        return _Unit(shape, item_size, list(shards), order=unit.order).grown(unit.shape)
    return unit.grown(list(shards))


class _Unit:
    """The smallest block, a chunk or shard; larger blocks are multiples of it."""

    def __init__(
        self,
        shape: Sequence[int],
        item_size: int,
        lengths: list[int],
        order: list[int] | None = None,
    ) -> None:
        self.shape = [max(1, length) for length in shape]
        self.item_size = max(1, item_size)
        self.lengths = lengths
        #: The axes in order of growth: the longest of the chunk first; of equal ones the last.
        self.order = order or sorted(range(len(lengths)), key=lambda axis: (-lengths[axis], -axis))

    def bytes_of(self, lengths: Sequence[int]) -> int:
        """Returns the bytes of a block inside the array."""
        clipped = (min(pair) for pair in zip(lengths, self.shape, strict=True))
        return math.prod(clipped) * self.item_size

    def grown(self, most: list[int]) -> tuple[int, ...]:
        """Returns the block, grown along one axis after the other, up to the lengths ``most``."""
        block = list(self.lengths)
        for axis in self.order:
            count = -(-min(most[axis], self.shape[axis]) // block[axis])
            block[axis] *= _factor(count, BLOCK_BYTES_MAX // self.bytes_of(block))
        return tuple(min(pair) for pair in zip(block, self.shape, strict=True))


def _factor(count: int, most: int) -> int:
    """Returns how many of ``count`` units, up to ``most``, make blocks of equal length.

    >>> _factor(72, 23), _factor(72, 100), _factor(7, 0)
    (18, 72, 1)
    """
    if most <= 1:
        return 1
    return -(-count // -(-count // min(count, most)))
