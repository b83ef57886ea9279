"""Dask blocks of an array with a replica of its most frequent reads.

A replica has a layout for learnt reads. Blocks that follow its chunks are read fast, and a task
that computes along the axis of these reads finds all of it in one block. So ``chunks={}`` follows
the replica that saves most time, if it holds at least half of the array. The rest of the array is
read in the same blocks, which do not match its chunks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from bedform._catalogue import current_replicas_of
from bedform._dask_blocks import PreferredChunks, block_shape
from bedform._errors import BedformError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["hot_blocks", "hot_replicas"]

_SHARE_MIN: Final = 0.5


def hot_replicas(where: str) -> dict[str, dict[str, Any]]:
    """Returns for each array the box-shaped replica that saves most time of its reads."""
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    try:
        replicas = current_replicas_of(where)
    except (BedformError, OSError):
        return {}
    for replica in replicas:
        saved = sum(
            one["reads"] * (one["seconds_without"] - one["seconds_with"])
            for one in replica["expected"]
        )
        is_box = all(len(runs) == 1 for runs in replica["held"].get("runs", [(), ()]))
        best = found.get(replica["array"], (0.0, {}))[0]
        if is_box and replica["chunks"] is not None and saved > best:
            found[replica["array"]] = (saved, replica)
    return {name: replica for name, (_, replica) in found.items()}


def hot_blocks(
    replica: Mapping[str, Any],
    dims: Sequence[str],
    shape: tuple[int, ...],
    item_size: int,
) -> PreferredChunks | None:
    """Returns the blocks that follow a replica; None if it holds too little of the array.

    >>> replica = {"held": {"runs": [[[0, 100]], [[3, 7]]]}, "chunks": [100, 2], "shards": [100, 7]}
    >>> dict(hot_blocks(replica, ("t", "x"), (100, 10), 4 << 20))
    {'t': 100, 'x': (1, 2, 2, 2, 2, 1)}
    """
    runs = [axis[0] for axis in replica["held"]["runs"]]
    if len(runs) != len(shape) or math.prod(count for _, count in runs) < _SHARE_MIN * math.prod(
        shape
    ):
        return None
    held = tuple(count for _, count in runs)
    blocks = block_shape(held, item_size, tuple(replica["chunks"]), tuple(replica["shards"]))
    firsts = (first for first, _ in runs)
    lengths = [_lengths(*axis) for axis in zip(shape, blocks, firsts, strict=True)]
    # A caller's blocks are never warned about: they cut chunks of the array or of the replica.
    return PreferredChunks(dims, lengths, [1] * len(shape))


def _lengths(size: int, block: int, first: int) -> int | tuple[int, ...]:
    """Returns blocks along an axis with a border at ``first``; one length if all are equal."""
    before = first % block
    if before == 0:
        return block
    whole, rest = divmod(size - before, block)
    return (before, *[block] * whole, *([rest] if rest else []))
