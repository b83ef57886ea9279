"""Shared parts of `prefetch`: patterns, stores, computing between reads, processes.

All elements of a chunk have the number of the chunk, so that the first and the last element of a
read identify it. A loop computes by the clock: it hashes without the GIL until the time is over.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness.options import Options

RATIOS = (0.5, 1.0, 2.0)
#: Accesses that no pattern can predict: 3, 2 more per depth, twice the steps and 1.
MISSES = {
    "contiguous": 3,
    "simple-strided": 3,
    "nested": 5,
    "tiled": 5,
    "segmented": 3,
    "random-strided": 9,
    "climate hours": 9,
}
#: Bytes of a read, and the number of chunks per shard, which equals that of shards.
SIZES = {"128 KiB": (1 << 17, 24), "1 MiB": (1 << 20, 24), "16 MiB": (1 << 24, 8)}
#: Most reads of a loop, since a read of the slow store takes long.
READS = {
    "disk": {"128 KiB": 100, "1 MiB": 48, "16 MiB": 16},
    "slow store": {"128 KiB": 60, "1 MiB": 32, "16 MiB": 12},
}
#: Promised share of the bound, after subtracting the misses.
SHARE_MIN = 0.85
HASHED_BYTES = 1 << 12
#: Computing between the reads that only load the library's code.
TOUCHED_SECONDS = 1e-4


def places(pattern: str, edge: int, reads: int) -> list[int]:
    """Returns the chunks that a pattern reads, in order, in a row of `edge` times `edge` chunks.

    >>> places("nested", 4, 100)
    [0, 3, 8, 11]
    """
    count = edge * edge
    flat: Iterator[int] | range | list[int]
    match pattern:
        case "contiguous":
            flat = range(count)
        case "simple-strided":
            flat = range(0, count, 3)
        case "segmented":
            flat = range(count // 2, count)
        case "nested":
            flat = [row * edge + at for row in range(0, edge, 2) for at in range(0, edge, 3)]
        case "tiled":
            flat = [row * edge + at for row in range(edge) for at in range(edge // 4, edge // 2)]
        case "random-strided":
            steps = np.cumsum([0, *[3, 1, 7, 2] * count])
            flat = [int(step) for step in steps[steps < count]]
        case "climate hours":
            hours = [24 * day + hour for day in range(count) for hour in (5, 6, 14, 15)]
            flat = [hour for hour in hours if hour < count]
        case _:
            flat = [int(at) for at in np.random.default_rng(1).permutation(count)]
    return list(flat)[:reads]


def build(path: Path, size: int, rows: int, columns: int) -> None:
    """Writes a store of one array: `rows` shards in a row, of chunks of `size` bytes."""
    import bedform as bf

    length = size // 4
    with bf.create(path) as store:
        array = store.create_array(
            "v",
            (rows * columns, length),
            "f4",
            dims=("number", "element"),
            chunks=(1, length),
            shards=(columns, length),
            codecs=[],
        )
        for first in range(0, rows * columns, columns):
            numbers = np.arange(first, first + columns, dtype="f4")
            array[first : first + columns] = np.broadcast_to(numbers[:, None], (columns, length))


def touch_code(path: str) -> None:
    """Reads a store in all ways, so that no measured read waits for the library's code.

    Code that no process has run is dropped from memory with the pages of data: the first followed
    read waited 6 ms for it. The parent runs the code, and its children inherit its pages.
    """
    import bedform as bf

    for prefetch in (False, "auto"):
        array = bf.open(path, prefetch=prefetch)["v"]
        for at in [*range(0, array.shape[0], 2), *range(array.shape[0])]:
            number_of(array[at])
            compute(TOUCHED_SECONDS)


def number_of(values: Any) -> float:
    """Returns the number of the chunk that was read, or -1 if its ends differ."""
    return float(values[0]) if values[0] == values[-1] else -1.0


def compute(seconds: float) -> None:
    """Keeps a core busy, without the GIL."""
    block, end = bytes(HASHED_BYTES), time.perf_counter() + seconds
    while time.perf_counter() < end:
        hashlib.sha256(block).digest()


def in_process(part: str, job: Any, throttle: str = "", **environment: str) -> Any:
    """Runs the worker of a part, which prints JSON, in a process with this throttle."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", f"benchmarks.reads_ahead.{part}", json.dumps(job)],
        cwd=data.ROOT.parent,
        env={**os.environ, "BEDFORM_THROTTLE": throttle, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def rounds_of(options: Options, is_long: bool = False) -> int:
    """Returns the number of rounds: a third for long runs, which vary less."""
    return max(3, options.rounds // 3 if is_long else options.rounds)


def used_share(counted: list[dict[str, Any]]) -> float | None:
    """Returns the used share of the bytes that were read ahead; None without any."""
    prefetched: int = sum(one["prefetched_bytes"] for one in counted)
    return sum(one["used_bytes"] for one in counted) / prefetched if prefetched else None


def shown_share(share: float | None) -> str:
    """Returns a share as tables show it."""
    return "none" if share is None else f"{share:.1%}"


def is_foreseen(pattern: str, edge: int, reads: int) -> bool:
    """Whether a pattern has enough reads to be predicted."""
    return len(places(pattern, edge, reads)) >= 2 * MISSES.get(pattern, 0)


def cut_wanted(ratio: float, misses: int, reads: int) -> float:
    """Returns the promised cut of the time: a share of the bound, less the misses."""
    return SHARE_MIN * bound(ratio) * max(0.0, 1 - misses / reads)


def bound(ratio: float) -> float:
    """Returns the most that overlap alone can cut, with computing `ratio` times as long as reading.

    >>> [round(bound(ratio), 2) for ratio in RATIOS]
    [0.33, 0.5, 0.33]
    """
    return min(ratio, 1) / (1 + ratio)
