"""Lines `processes/*`: a climate kernel of 4, 8 and 16 processes, on a slow store that they share.

The kernel reads the hours 5, 6, 14 and 15 of each of 30 days, each process its slab of every map:
some rows, or some columns. Chunks are rows of the map, or blocks. All processes begin together, and
the last one's time counts. Each has its share of the store's bandwidth.

This machine has fewer cores than there are processes, so they compute by sleeping. The processor
time of readahead is therefore not visible here, but in the lines of one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table
from benchmarks.harness.slow_store import BYTES_PER_SECOND, WAIT
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.reads_ahead.loops import (
    MISSES,
    SHARE_MIN,
    bound,
    cut_wanted,
    rounds_of,
    shown_share,
    used_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

PROCESSES, QUICK_PROCESSES = (4, 8, 16), (4,)
DAYS, QUICK_DAYS = 30, 6
HOURS = (5, 6, 14, 15)
EDGE = 256
#: Chunks of equal size in bytes: rows of the map, and blocks of it.
CHUNKS = {"row layout": (1, EDGE // 16, EDGE), "block layout": (1, EDGE // 4, EDGE // 4)}
DECOMPOSITIONS = ("rows", "columns")
RATIO = 1.0
CLIMATE_MIN, USED_MIN = 0.26, 0.95
#: Seconds from the request to the common start.
START_SECONDS = 0.1


def hours_of(days: int) -> list[int]:
    """Returns the hours to read."""
    return [24 * day + hour for day in range(days) for hour in HOURS]


def build_maps(path: Path, chunks: tuple[int, ...], days: int) -> None:
    """Writes the maps of all days, one shard each; an element is the index of its place."""
    place = np.arange(EDGE * EDGE, dtype="i4").reshape(EDGE, EDGE)
    with bf.create(path) as store:
        array = store.create_array(
            "t",
            (24 * days, EDGE, EDGE),
            "i4",
            dims=("time", "lat", "lon"),
            chunks=chunks,
            shards=(24, EDGE, EDGE),
            codecs=[],
        )
        for day in range(days):
            hours = np.arange(24 * day, 24 * (day + 1), dtype="i4")
            array[24 * day : 24 * (day + 1)] = place + hours[:, None, None] * place.size


def slabs(decomposition: str, processes: int) -> list[list[list[int]]]:
    """Returns rows and columns, begin and end, of each process.

    >>> slabs("rows", 2)
    [[[0, 128], [0, 256]], [[128, 256], [0, 256]]]
    """
    cuts = [[EDGE * at // processes, EDGE * (at + 1) // processes] for at in range(processes)]
    whole = [0, EDGE]
    return [[cut, whole] if decomposition == "rows" else [whole, cut] for cut in cuts]


def kernel(job: dict[str, Any], start: float) -> dict[str, Any]:
    """Reads and computes from `start` on; returns the end time, and the counts of readahead."""
    rows, columns = (slice(*cut) for cut in job["slab"])
    store = bf.open(job["path"], prefetch="auto" if job["reader"] == "auto" else False)
    array, found = store["t"], []
    time.sleep(max(0.0, start - time.perf_counter()))
    for hour in job["hours"]:
        found.append(array[hour, rows, columns])
        time.sleep(job["seconds"])
    end = time.perf_counter()
    place = np.arange(EDGE * EDGE, dtype="i4").reshape(EDGE, EDGE)[rows, columns]
    for hour, values in zip(job["hours"], found, strict=True):
        if not np.array_equal(values, place + hour * EDGE * EDGE):
            raise RuntimeError("a wrong answer")
    return {"end": end, **store.stats()["prefetch"]}


def serve() -> None:
    """Runs a kernel in a child for each line of the input, and prints its result."""
    for line in sys.stdin:
        job = json.loads(line)
        sys.stdout.write(json.dumps(in_child(kernel, job, job["start"])) + "\n")
        sys.stdout.flush()


class Ranks:
    """The processes, each with its share of the throttle, which is read at the first call."""

    def __init__(self, processes: int) -> None:
        throttle = f"{BYTES_PER_SECOND // processes} B/s, {WAIT}"
        command = [sys.executable, "-m", "benchmarks.reads_ahead.processes"]
        self.started = [
            subprocess.Popen(  # noqa: S603
                command,
                cwd=data.ROOT.parent,
                env={**os.environ, "BEDFORM_THROTTLE": throttle},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(processes)
        ]

    def run(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        """Runs a kernel on all; returns the time of the last one, and the bytes of all."""
        start = time.perf_counter() + START_SECONDS
        for one, job in zip(self.started, jobs, strict=True):
            if one.stdin is None:
                raise RuntimeError("a process has no input")
            one.stdin.write(json.dumps({**job, "start": start}) + "\n")
            one.stdin.flush()
        answers = [json.loads(line) for line in self.lines()]
        counted = ("reads", "used", "used_bytes", "prefetched_bytes")
        totals = {name: sum(one[name] for one in answers) for name in counted}
        return {"seconds": max(one["end"] for one in answers) - start, **totals}

    def lines(self) -> Iterator[str]:
        """Yields a line of each process."""
        for one in self.started:
            line = one.stdout.readline() if one.stdout is not None else ""
            if not line:
                raise RuntimeError("a process of the kernel failed")
            yield line

    def close(self) -> None:
        """End the processes."""
        for one in self.started:
            one.communicate()


def measure(ranks: Ranks, path: Path, decomposition: str, days: int, rounds: int) -> dict[str, Any]:
    """Run the rounds of a line."""
    hours = hours_of(days)

    def once(reader: str, seconds: float) -> dict[str, Any]:
        cold.make_cold(path)
        shared = {"path": str(path), "reader": reader, "hours": hours, "seconds": seconds}
        cuts = slabs(decomposition, len(ranks.started))
        return ranks.run([{**shared, "slab": slab} for slab in cuts])

    # The faster of two, since a disturbance of one process delays all of them.
    alone = min(once("plain", 0)["seconds"] for _ in range(2)) / len(hours)
    taken = [
        {reader: once(reader, RATIO * alone) for reader in ("plain", "auto")} for _ in range(rounds)
    ]
    return {"alone": alone, "rounds": taken, "reads": len(hours)}


def row(name: str, line: dict[str, Any], promises: list[Promise]) -> list[str]:
    """Returns the row of the line, and adds it to the promises."""
    seconds = {
        reader: [one[reader]["seconds"] for one in line["rounds"]] for reader in ("plain", "auto")
    }
    against = paired_ratio(seconds["auto"], seconds["plain"])
    cut, wanted = 1 - against.median, cut_wanted(RATIO, MISSES["climate hours"], line["reads"])
    promises[0].add(name, cut >= wanted, f"{cut:.0%} of {wanted:.0%}")
    promises[1].add(name, cut >= CLIMATE_MIN, f"{cut:.0%}")
    share = used_share([one["auto"] for one in line["rounds"]])
    if share is not None:
        promises[2].add(name, share >= USED_MIN, shown_share(share))
    cells = [name, f"{line['alone'] * 1e3:.2f}"]
    cells += [f"{median(seconds[reader]) * 1e3:.0f}" for reader in ("plain", "auto")]
    shown = [f"{cut:.0%}", f"{bound(RATIO):.0%}", against.describe()]
    return [*cells, *shown, shown_share(share)]


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    counts = QUICK_PROCESSES if options.quick else PROCESSES
    days = QUICK_DAYS if options.quick else DAYS
    wanted = {
        (layout, decomposition, count): f"processes/{layout}/{decomposition}/{count}"
        for layout in CHUNKS
        for decomposition in DECOMPOSITIONS
        for count in counts
    }
    wanted = {
        line: name
        for line, name in wanted.items()
        if options.wants(name) and (line[0] == "block layout" or not options.quick)
    }
    heads = ["line", "a read", "plain", "auto", "cut", "bound", "auto / plain", "used"]
    table = Table(f"Climate kernel of {days} days, many processes, in milliseconds", heads)
    table.note = (
        "Ratio 1, slow store: its bandwidth is divided by the processes; they compute by sleep."
    )
    promises = [
        Promise(f"processes: {SHARE_MIN:.0%} of the bound, less the misses"),
        Promise(f"processes, ratio 1: at least {CLIMATE_MIN:.0%} cut"),
        Promise(f"processes: {USED_MIN:.0%} of what was read ahead is used"),
    ]
    with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
        paths = {layout: Path(directory) / layout.replace(" ", "-") for layout in CHUNKS}
        for layout in {layout for layout, _, _ in wanted}:
            build_maps(paths[layout], CHUNKS[layout], days)
        for count in counts:
            lines = {line: name for line, name in wanted.items() if line[2] == count}
            if not lines:
                continue
            ranks = Ranks(count)
            try:
                for (layout, decomposition, _), name in lines.items():
                    rounds = rounds_of(options, is_long=True)
                    line = measure(ranks, paths[layout], decomposition, days, rounds)
                    table.rows.append(row(name, line, promises))
                    report.samples[name] = line["rounds"]
            finally:
                ranks.close()
    conclude(report, table, promises)


if __name__ == "__main__":
    serve()
