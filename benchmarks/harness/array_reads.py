"""Array reads of a throttled store: the workloads of `Array.workload`, and the measured seconds.

Run as `python -m benchmarks.harness.array_reads STORE ROUNDS` with `BEDFORM_THROTTLE` set, which a
process reads at its first call. The output is JSON, a list of `Read`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bedform as bf
from benchmarks.harness.data import files_under

SHAPE = (64, 256, 256)
# Large chunks in row-major order; small ones along the Hilbert curve; one chunk per shard.
LAYOUTS = {
    "maps": bf.Regular(chunks=(1, 256, 256), shards=(16, 256, 256)),
    "boxes": bf.Regular(chunks=(8, 32, 32), shards=(32, 128, 128), order="hilbert"),
    "single": bf.Regular(chunks=(16, 64, 64), shards=(16, 64, 64)),
}
READS = {
    "map": np.s_[20],
    "rows": np.s_[:, 100],
    "columns": np.s_[:, :, 100],
    "series": np.s_[:, 100, 100],
    "box": np.s_[10:40, 60:130, 60:130],
}
IN_FLIGHT = (1, 4)
# Reads that decode at most this many bytes stay on their caller's thread.
ALONE_BYTES = 256 << 10


@dataclass(frozen=True)
class Read:
    """A read of an array: its workload, and seconds of each round."""

    name: str
    workload: dict[str, Any]
    seconds: list[float]


def build(path: Path) -> None:
    """Write the arrays, durably and without compression."""
    store = bf.create(path)
    values = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
    for name, layout in LAYOUTS.items():
        store.create_array(name, SHAPE, "float32", layout=layout, codecs=[])[...] = values


def forget(path: Path) -> None:
    """Drops the files from the page cache, so that reads wait for the storage."""
    for file in files_under(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def reads_of(path: Path, rounds: int, in_flight: int) -> list[Read]:
    """Measures all reads with this number of requests in flight."""
    facts = bf.Profile.default().to_dict()
    facts["profile"]["requests_in_flight"] = in_flight
    profile = bf.Profile(facts)
    options: dict[str, Any] = {"cache": 0, "freshness": "never", "threads": 1, "profile": profile}
    store = bf.open(path, direct_reads=False, **options)
    found = []
    for name in LAYOUTS:
        array = store[name]
        for what, selection in READS.items():
            expected = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)[selection]
            seconds = []
            for _ in range(rounds):
                forget(path)
                began = time.perf_counter()
                values = array[selection]
                seconds.append(time.perf_counter() - began)
                if not np.array_equal(values, expected):
                    raise AssertionError(f"{name}: {what} is wrong")
            is_alone = array.explain(selection).to_dict()["decoded_bytes"] <= ALONE_BYTES
            workload = array.workload(selection, clients=1 if is_alone else in_flight)
            found.append(Read(f"{name}: {what}, {in_flight} in flight", workload, seconds))
    return found


def main() -> None:
    """Prints the seconds of all reads."""
    path, rounds = Path(sys.argv[1]), int(sys.argv[2])
    reads = [read for in_flight in IN_FLIGHT for read in reads_of(path, rounds, in_flight)]
    sys.stdout.write(json.dumps([asdict(read) for read in reads]))


if __name__ == "__main__":
    main()
