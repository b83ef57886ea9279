"""`prefetch`: loops that read and compute, with reads made ahead, without, and doubly buffered.

The patterns are those of PIO-Bench (contiguous, simple-strided, nested, tiled, segmented and
random-strided), and of the paper's climate kernel: the hours 5, 6, 14 and 15 of each day. A read is
of one chunk, cold, from the disk and from a store as slow as a busy parallel file system; between
two reads the program computes for 0.5, 1 and 2 times what a read takes. *loop* is what a user would
write: a thread reads the next chunk, which he knows, while the program computes. The *bound* of
what overlapping alone can cut is the smaller of reading and computing, over both.

Table 1 and section 2.4 of the paper: computing as long as reading, up to 26 % were cut.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import cold, data
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.options import Options

NAME = "prefetch"
THROTTLES = {"disk": "", "slow store": "300 MB/s, 5 ms"}
RATIOS = (0.5, 1.0, 2.0)
#: Bytes of a read, and the edge of the grid of chunks.
SIZES = {"128 KiB": (1 << 17, 24), "1 MiB": (1 << 20, 24), "16 MiB": (1 << 24, 8)}
READS = 100
#: Accesses that no pattern can have foreseen: 3, 2 more for each depth, twice the steps and 1.
MISSES = {
    "contiguous": 3,
    "simple-strided": 3,
    "nested": 5,
    "tiled": 5,
    "segmented": 3,
    "random-strided": 9,
    "climate hours": 9,
}
#: Of the bound, less what the misses cost.
SHARE_MIN = 0.85
LOOP_MAX, LOOP_GAINS_MIN = 1.05, 0.05
OVERHEAD_MAX = 1.03


def places(pattern: str, edge: int) -> list[tuple[int, int]]:
    """Return the chunks that a pattern reads, in its order."""
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
    return [divmod(at, edge) for at in list(flat)[:READS]]


def compute(seconds: float) -> None:
    """Keep a core busy, without the interpreter's lock."""
    block, end = bytes(1 << 16), time.perf_counter() + seconds
    while time.perf_counter() < end:
        hashlib.sha256(block).digest()


def timed(path: str, wanted: list[tuple[int, int]], seconds: float, reader: str) -> dict[str, Any]:
    """Read and compute; return what it took, and a sum that says what was read."""
    import bedform as bf

    cold.make_cold(Path(path))
    store = bf.open(path, prefetch="auto" if reader == "auto" else False)
    array, found = store["v"], []
    began = time.perf_counter()
    if reader == "loop":
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(array.__getitem__, wanted[0])
            for following_at in [*wanted[1:], None]:
                values = following.result()
                if following_at is not None:
                    following = pool.submit(array.__getitem__, following_at)
                found.append(float(values[0]))
                compute(seconds)
    else:
        for at in wanted:
            found.append(float(array[at][0]))
            compute(seconds)
    took = time.perf_counter() - began
    return {"seconds": took, "found": found, **store.stats()["prefetch"]}


def worker(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the times of one store, all patterns, in rounds."""
    lines = []
    for pattern in job["patterns"]:
        wanted = places(pattern, job["edge"])
        expected = [float(row * job["edge"] + at) for row, at in wanted]

        def once(seconds: float, reader: str, wanted: Any = wanted) -> dict[str, Any]:
            outcome = timed(job["path"], wanted, seconds, reader)
            if outcome.pop("found") != expected:  # noqa: B023 - called before the next pattern
                raise RuntimeError("a wrong answer")
            return outcome

        alone = min(once(0, "plain")["seconds"] for _ in range(3)) / len(wanted)
        ratios = (0.0,) if pattern == "random" else RATIOS
        for ratio in ratios:
            rounds = [
                {reader: once(ratio * alone, reader) for reader in ("plain", "auto", "loop")}
                for _ in range(job["rounds"])
            ]
            lines.append({"pattern": pattern, "ratio": ratio, "alone": alone, "rounds": rounds})
    return lines


def build(path: Path, size: int, edge: int) -> None:
    """Write a store of one array, whose chunks have their number all over."""
    import bedform as bf

    length = size // 4
    with bf.create(path) as store:
        chunks = (1, 1, length)
        array = store.create_array(
            "v", (edge, edge, length), "f4", chunks=chunks, shards=(1, edge, length), codecs=[]
        )
        for row in range(edge):
            numbers = np.arange(row * edge, (row + 1) * edge, dtype="f4")
            array[row] = np.broadcast_to(numbers[:, None], (edge, length))


def process(job: dict[str, Any], throttle: str) -> list[dict[str, Any]]:
    """Run the worker in a process of its own, which is as slow as told."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.prefetch", json.dumps(job)],
        cwd=data.ROOT.parent,
        env={**os.environ, "BEDFORM_THROTTLE": throttle},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


class Judge:
    """What the lines come to."""

    def __init__(self) -> None:
        self.overlapped, self.loops, self.used, self.random = [], [], [], []

    def row(self, name: str, line: dict[str, Any]) -> list[str]:
        """Return the line for the table, and count it."""
        rounds, ratio = line["rounds"], line["ratio"]
        seconds = {
            reader: [one[reader]["seconds"] for one in rounds]
            for reader in ("plain", "auto", "loop")
        }
        against = paired_ratio(seconds["auto"], seconds["plain"])
        beside = paired_ratio(seconds["auto"], seconds["loop"])
        cut = 1 - against.median
        loop_cut = 1 - paired_ratio(seconds["loop"], seconds["plain"]).median
        used = sum(one["auto"]["used_bytes"] for one in rounds)
        prefetched = sum(one["auto"]["prefetched_bytes"] for one in rounds)
        share = used / prefetched if prefetched else 1.0
        cells = [name, f"{line['alone'] * 1e3:.2f}", f"{median(seconds['plain']) * 1e3:.0f}"]
        if line["pattern"] == "random":
            self.random.append(against.high)
            return [*cells, f"{cut:.0%}", "", against.describe(), "", ""]
        reads = rounds[0]["auto"]["reads"]
        bound = min(ratio, 1) / (1 + ratio)
        wanted = SHARE_MIN * bound * (1 - MISSES[line["pattern"]] / reads)
        self.overlapped.append((cut >= wanted, cut - wanted))
        if loop_cut >= LOOP_GAINS_MIN:
            self.loops.append(beside.low <= LOOP_MAX)
        self.used.append(share >= 0.95)
        shown = [f"{cut:.0%}", f"{bound:.0%}", against.describe(), beside.describe()]
        return [*cells, *shown, f"{share:.1%}"]

    def verdicts(self) -> list[Verdict]:
        """Return the promises."""

        def of(outcomes: list[Any]) -> str:
            return f"{sum(map(bool, outcomes))} of {len(outcomes)}"

        reached = [one for one, _ in self.overlapped]
        return [
            Verdict(f"{SHARE_MIN:.0%} of the bound, less the misses", of(reached), all(reached)),
            Verdict("within 5 % of the loop with two buffers", of(self.loops), all(self.loops)),
            Verdict("95 % of what was read ahead is used", of(self.used), all(self.used)),
            Verdict(
                f"random reads at most {OVERHEAD_MAX} times",
                f"{max(self.random, default=1):.3f}",
                max(self.random, default=1) <= OVERHEAD_MAX,
            ),
        ]


def run(options: Options) -> Report:
    """Run the lines that were asked for."""
    rounds = 3 if options.quick else max(5, options.rounds // 3)
    report = Report(NAME, options.command, {"rounds": str(rounds), "reads": f"up to {READS}"})
    report.settings["slow store"] = THROTTLES["slow store"]
    heads = ["line", "a read", "plain", "cut", "bound", "auto / plain", "auto / loop", "used"]
    table, judge = Table("Milliseconds", heads), Judge()
    sizes = {"128 KiB": SIZES["128 KiB"]} if options.quick else SIZES
    for size_name, (size, edge) in sizes.items():
        with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
            path = Path(directory) / "s.zarr"
            build(path, size, edge)
            for place, throttle in THROTTLES.items():
                named = {one: f"{place}/{size_name}/{one}" for one in [*MISSES, "random"]}
                chosen = [one for one, name in named.items() if options.wants(name)]
                job = {"path": str(path), "edge": edge, "rounds": rounds, "patterns": chosen}
                for line in process(job, throttle) if chosen else []:
                    name = f"{named[line['pattern']]}, ratio {line['ratio']:g}"
                    table.rows.append(judge.row(name, line))
                    report.samples[name] = [one["auto"]["seconds"] for one in line["rounds"]]
    report.tables.append(table)
    report.verdicts += judge.verdicts()
    return report


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
