"""The byte ranges of shards that a read needs, as the bound for the device.

This module reads the shard indexes itself, so that no engine influences its bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.data import ARRAY
from benchmarks.harness.selections import Selection, bounds

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MISSING = np.uint64(2**64 - 1)
CHECKSUM_BYTES = 4
ENTRY_BYTES = 16


@dataclass(frozen=True)
class Extent:
    """A byte range of one file."""

    path: Path
    start: int
    length: int


def needed_extents(store: Path, selection: Selection) -> list[Extent]:
    """Return the extents of the inner chunks that `selection` touches, adjacent ones merged."""
    chunk_shape, _ = shapes(store)
    grid = inner_grid(store)
    shards: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    ranges = [
        range(low // chunk, -(-high // chunk))
        for (low, high), chunk in zip(bounds(selection), chunk_shape, strict=True)
    ]
    for chunk in product(*ranges):
        shard = tuple(index // count for index, count in zip(chunk, grid, strict=True))
        inner = tuple(index % count for index, count in zip(chunk, grid, strict=True))
        shards.setdefault(shard, []).append(inner)
    extents: list[Extent] = []
    for shard, chunks in shards.items():
        path = store / ARRAY / "c" / "/".join(map(str, shard))
        index = read_index(path, grid)
        entries = [(int(start), int(length)) for start, length in (index[c] for c in chunks)]
        extents += [Extent(path, *entry) for entry in merge_adjacent(entries)]
    return extents


def shapes(store: Path) -> tuple[list[int], list[int]]:
    """Return the shapes of chunk and shard that the metadata of the array states."""
    metadata = json.loads((store / ARRAY / "zarr.json").read_text())
    shard_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    return metadata["codecs"][0]["configuration"]["chunk_shape"], shard_shape


def inner_grid(store: Path) -> list[int]:
    """Returns the number of chunks of a shard along each axis."""
    chunk_shape, shard_shape = shapes(store)
    return [shard // chunk for shard, chunk in zip(shard_shape, chunk_shape, strict=True)]


def read_index(path: Path, grid: list[int]) -> NDArray[np.uint64]:
    """Return the index at the end of a shard: offset and length for each inner chunk."""
    index_bytes = ENTRY_BYTES * int(np.prod(grid)) + CHECKSUM_BYTES
    with path.open("rb") as shard:
        shard.seek(-index_bytes, 2)
        raw = shard.read(index_bytes - CHECKSUM_BYTES)
    index = np.frombuffer(raw, "<u8").reshape(*grid, 2)
    if (index == MISSING).any():
        raise ValueError(f"{path} lacks inner chunks; the benchmark data are all present")
    return index


def merge_adjacent(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the entries in file order, with adjacent ones merged.

    >>> merge_adjacent([(10, 5), (0, 10), (20, 1)])
    [(0, 15), (20, 1)]
    """
    merged: list[tuple[int, int]] = []
    for start, length in sorted(entries):
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        else:
            merged.append((start, length))
    return merged
