"""The blocks that Dask reads an array in, where its caller leaves them to the engine.

Chunks are of a size for single reads, 20 KiB to 4 MiB, and a task of Dask costs about a
millisecond. So a block is as many whole chunks, or whole shards, as make 16 to 32 MiB. It grows
along the longest axis of the chunk first, since reads along that axis are those that the chunks
were made for.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# The largest block that is put together.
BLOCK_BYTES_MAX = 32 << 20

_NOT_GIVEN: Any = object()


class PreferredChunks(dict[str, "int | tuple[int, ...]"]):
    """The lengths of blocks by dimension, as xarray takes them from ``preferred_chunks``.

    xarray asks twice. With a default, ``get(dim, size)``, it asks for the lengths of blocks.
    Without one, ``get(dim)``, it asks for borders that a caller's blocks should not cut, and warns
    of blocks that do: these are the borders of chunks.

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
        """The length of a block with a default, that of a chunk without."""
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
    """The lengths of a block: whole shards where they are small enough, else whole chunks.

    Chunks of more than 32 MiB are blocks themselves.

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
    """What a block is a multiple of."""

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
        #: The axes in which a block grows: the longest of the chunk first, of equal ones the last.
        self.order = order or sorted(range(len(lengths)), key=lambda axis: (-lengths[axis], -axis))

    def bytes_of(self, lengths: Sequence[int]) -> int:
        """The bytes of a block as far as it lies in the array."""
        clipped = (min(pair) for pair in zip(lengths, self.shape, strict=True))
        return math.prod(clipped) * self.item_size

    def grown(self, most: list[int]) -> tuple[int, ...]:
        """The block, grown along one axis after the other, to no more than ``most``."""
        block = list(self.lengths)
        for axis in self.order:
            count = -(-min(most[axis], self.shape[axis]) // block[axis])
            block[axis] *= _factor(count, BLOCK_BYTES_MAX // self.bytes_of(block))
        return tuple(min(pair) for pair in zip(block, self.shape, strict=True))


def _factor(count: int, most: int) -> int:
    """How many of ``count`` units to take together, at most ``most``, in blocks of equal length.

    >>> _factor(72, 23), _factor(72, 100), _factor(7, 0)
    (18, 72, 1)
    """
    if most <= 1:
        return 1
    return -(-count // -(-count // min(count, most)))
