"""Interleaved rounds: every engine once per round, in random order, one active at a time."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable

Samples = dict[str, list[float]]
ORDER_SEED = 7
# Shorter reads in memory are repeated for this time.
SHORT_SECONDS = 2e-3
OTHER_BYTES = np.zeros(1 << 20)


def interleave(engines: list[str], rounds: int, run: Callable[[str], float]) -> Samples:
    """Return the seconds of each engine, one per round; sample n of all belongs to round n.

    >>> interleave(["a", "b"], 2, lambda name: 1.0 if name == "a" else 2.0)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    samples: Samples = {name: [] for name in engines}
    order = random.Random(ORDER_SEED)  # noqa: S311 (a shuffle, not a secret)
    for _ in range(rounds):
        for name in order.sample(engines, len(engines)):
            samples[name].append(run(name))
    return samples


def fastest_variant(variants: list[str], tries: int, run: Callable[[str], float]) -> str:
    """Return the variant with the lowest median of `tries` runs, themselves interleaved."""
    if len(variants) == 1:
        return variants[0]
    samples = interleave(variants, tries, run)
    return min(variants, key=lambda variant: median(samples[variant]))


def seconds_in_memory(read: Callable[[], Any]) -> float:
    """Returns the mean seconds of a read in memory; short reads are repeated, as their times vary.

    Other bytes go through the core's caches between two reads: cached data lie in main memory.
    """
    taken: list[float] = []
    while sum(taken) < SHORT_SECONDS and len(taken) < 20:
        OTHER_BYTES[...] += 1
        began = time.perf_counter()
        read()
        taken.append(time.perf_counter() - began)
    return sum(taken) / len(taken)
