"""The default layout of zarr-python, and of xarray's `to_zarr` with it, for an array.

xarray requests `chunks="auto"` unless the data are a Dask array or have an encoding, and no shards.
zarr-python then halves one axis after the other, from the first, until a chunk is near a size that
grows with the array: 256 KiB for an array of 1 MiB, twice that for each factor of ten. A chunk is
stored with zstd at level 0 (the library's default, 3) and without a checksum.

The engine's search for layouts compares its candidates with such a store.
"""

from __future__ import annotations

import math

KIB, MIB = 1 << 10, 1 << 20
TARGET_OF_MIB = 256 * KIB
TARGET_MIN, TARGET_MAX = 128 * KIB, 64 * MIB


def default_chunks(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Return the chunks.

    >>> default_chunks((1460, 181, 360), 4)
    (183, 23, 90)
    """
    chunks = [max(1, length) for length in shape]
    whole = math.prod(chunks) * item_size
    target = TARGET_OF_MIB * 2 ** math.log10(whole / MIB)
    target = min(TARGET_MAX, max(TARGET_MIN, target))
    axis = 0
    while math.prod(chunks) > 1 and not is_near(math.prod(chunks) * item_size, target):
        at = axis % len(chunks)
        chunks[at] = -(-chunks[at] // 2)
        axis += 1
    return tuple(chunks)


def is_near(size: int, target: float) -> bool:
    """Whether zarr-python accepts a chunk of this size in bytes."""
    return size < TARGET_MAX and (size < target or abs(size - target) / target < 0.5)
