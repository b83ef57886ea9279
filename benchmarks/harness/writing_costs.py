"""The computing time of processes before they write, in seconds, measured here with NumPy.

The simulated ways of writing (`docs/simulation.md`) need it, and no published machine has figures.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import e3sm

REQUESTS = 1 << 22
LISTS = 1 << 12
STRIPE_BYTES = 1 << 24
DATASETS = 400
ROUNDS = 9


@dataclass(frozen=True)
class Costs:
    """Per request: seconds to list (X), merge (Y), place (E), hash (J) and compress it (I).

    Also the copied bytes per second (Z), the bytes of a compressed request (i), and the seconds to
    create a dataset of HDF5 (K).
    """

    listing: float
    merging: float
    copying: float
    placing: float
    hashing: float
    compressing: float
    compressed_bytes: float
    creating: float

    def describe(self) -> dict[str, str]:
        """Returns the costs for the report."""
        requests = {
            "X": self.listing,
            "Y": self.merging,
            "E": self.placing,
            "J": self.hashing,
            "I": self.compressing,
        }
        found = {letter: f"{seconds * 1e9:.1f} ns" for letter, seconds in requests.items()}
        found["i"] = f"{self.compressed_bytes:.1f} bytes"
        return found | {"Z": f"{self.copying / 1e9:.1f} GB/s", "K": f"{self.creating * 1e6:.0f} us"}


def measure_costs() -> Costs:
    """Measures all costs."""
    draw = np.random.default_rng(6)
    starts = draw.integers(0, 1 << 40, REQUESTS)
    merged = np.sort(starts.reshape(LISTS, -1), axis=1).ravel()
    pairs = np.empty((REQUESTS, 2), "i8")
    block, copy = np.ones(1 << 27, "u1"), np.zeros(1 << 27, "u1")
    stripe = np.zeros(STRIPE_BYTES // 8, "i8")
    places = draw.permutation(stripe.size)
    offsets, lengths = pattern()

    def list_requests() -> None:
        np.multiply(starts, 4, out=pairs[:, 0])
        pairs[:, 1] = 4

    def hash_requests() -> None:
        list_requests()
        zlib.crc32(pairs)

    def compress() -> int:
        return len(zlib.compress(offsets)) + len(zlib.compress(lengths))

    return Costs(
        listing=seconds_of(list_requests) / REQUESTS,
        # A merge sort, which detects the sorted lists and merges them.
        merging=seconds_of(lambda: np.argsort(merged, kind="stable")) / REQUESTS,
        copying=block.nbytes / seconds_of(lambda: np.copyto(copy, block)),
        placing=seconds_of(lambda: np.put(stripe, places, places)) / places.size,
        hashing=seconds_of(hash_requests) / REQUESTS,
        compressing=seconds_of(compress) / offsets.size,
        compressed_bytes=compress() / offsets.size,
        creating=seconds_of(create_datasets) / DATASETS,
    )


def seconds_of(work: Any) -> float:
    """Returns the processor time of `work`: the least of some rounds, since noise only adds."""
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


def pattern() -> tuple[Any, Any]:
    """Return offsets and lengths of a process's requests for a variable of the atmosphere."""
    deep = e3sm.synthetic_map("f", 16)[-1]
    return deep.starts[0].astype("<i8"), deep.lengths[0].astype("<i8")


def create_datasets() -> None:
    """Create scalar datasets in a file in memory, each with two shapes as attributes."""
    import h5py

    shape = np.array([1, 72, 866])
    scalar, vector = h5py.h5s.create(h5py.h5s.SCALAR), h5py.h5s.create_simple((3,))
    kinds = h5py.h5t.IEEE_F32LE, h5py.h5t.STD_I64LE
    with h5py.File("costs.h5", "w", driver="core", backing_store=False) as file:
        for number in range(DATASETS):
            made = h5py.h5d.create(file.id, b"v%d" % number, kinds[0], scalar)
            for name in (b"shape", b"largest"):
                h5py.h5a.create(made, name, kinds[1], vector).write(shape)
