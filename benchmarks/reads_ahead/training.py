"""Lines `training/*`: shuffled samples in an order that the store is given.

A sample is one chunk of 4 MiB, read cold; the program computes one and a half times as long as a
read takes. The least time of such a loop is that of computing alone. On the slow store it ends
after a quarter of the samples.
"""

from __future__ import annotations

import json
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
from benchmarks.harness.report import Table, bytes_in_words
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.reads_ahead.loops import (
    build,
    compute,
    in_process,
    number_of,
    rounds_of,
    shown_share,
    used_share,
)

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

SAMPLE_BYTES, COLUMNS = 4 << 20, 16
ROWS, QUICK_ROWS = 32, 3
RATIO = 1.5
COMPUTING_MAX = 1.05
#: Reads of the loop that measures the time of one.
TRIED = 48


def epoch(path: str, order: list[int], seconds: float, is_listed: bool) -> dict[str, Any]:
    """Reads the samples in order and computes; returns seconds in total, and of computing."""
    cold.make_cold(Path(path))
    store = bf.open(path, prefetch="auto" if is_listed else False)
    array, found, computing = store["v"], [], 0.0
    began = time.perf_counter()
    if is_listed:
        store.prefetch([("v", sample) for sample in order])
    for sample in order:
        found.append(number_of(array[sample]))
        start = time.perf_counter()
        compute(seconds)
        computing += time.perf_counter() - start
    took = time.perf_counter() - began
    if found != order:
        raise RuntimeError("a wrong answer")
    return {"seconds": took, "computing": computing, **store.stats()["prefetch"]}


def worker(job: dict[str, Any]) -> dict[str, Any]:
    """Runs epochs, each in another order; one of them, in the first round, without the list."""
    random = np.random.default_rng(5)
    path, samples = job["path"], job["samples"]

    def order() -> list[int]:
        return [int(sample) for sample in random.permutation(samples)][: job["reads"]]

    tried = [in_child(epoch, path, order()[:TRIED], 0, False)["seconds"] for _ in range(3)]
    seconds = RATIO * (alone := median(tried) / min(TRIED, job["reads"]))
    plain = in_child(epoch, path, order(), seconds, False)
    rounds = [in_child(epoch, path, order(), seconds, True) for _ in range(job["rounds"])]
    return {"alone": alone, "plain": plain, "rounds": rounds}


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    named = {place: f"training/{place}" for place in THROTTLES}
    wanted = [place for place, name in named.items() if options.wants(name)]
    if not wanted:
        return
    rows = QUICK_ROWS if options.quick else ROWS
    size = bytes_in_words(rows * COLUMNS * SAMPLE_BYTES)
    heads = ["line", "a read", "not listed", "listed", "computing", "listed / computing", "used"]
    table = Table(f"Training over {size} of shuffled samples, in milliseconds", heads)
    promise = Promise("a known epoch within 5 % of computing alone, ratio 1.5")
    with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
        path = Path(directory) / "s.zarr"
        build(path, SAMPLE_BYTES, rows, COLUMNS)
        for place in wanted:
            samples = rows * COLUMNS
            job: dict[str, Any] = {"path": str(path), "samples": samples}
            job["reads"] = max(TRIED, samples // 4) if place == "slow store" else samples
            job["rounds"] = rounds_of(options, is_long=True)
            line = in_process("training", job, THROTTLES[place])
            seconds = [one["seconds"] for one in line["rounds"]]
            computing = [one["computing"] for one in line["rounds"]]
            ratio = paired_ratio(seconds, computing)
            times = [line["plain"]["seconds"], median(seconds), median(computing)]
            cells = [named[place], f"{line['alone'] * 1e3:.2f}"]
            cells += [f"{one * 1e3:.0f}" for one in times]
            share = shown_share(used_share(line["rounds"]))
            table.rows.append([*cells, ratio.describe(), share])
            promise.add(named[place], ratio.median <= COMPUTING_MAX, ratio.describe())
            report.samples[named[place]] = line
    conclude(report, table, [promise])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
