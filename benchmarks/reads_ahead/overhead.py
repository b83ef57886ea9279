"""Lines `overhead/*`: the cost of following and recording reads that gain nothing.

One process, files in the page cache, reads one after the other. It alternates between short turns
without prefetch and traces, with traces, and with prefetch. Processor time includes background
threads. A million accesses in a regular order are recorded once.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table, bytes_in_words
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.reads_ahead.loops import build, in_process, number_of

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

#: Bytes of a read, and the number of chunks per shard and of shards; less than the cache in total.
SIZES = {"4 KiB": (1 << 12, 64), "64 KiB": (1 << 16, 32), "1 MiB": (1 << 20, 12)}
ORDERS = ("regular", "random")
READS, QUICK_READS = 20_000, 4_000
#: Fewer reads of 1 MiB: one takes as long as ten of 64 KiB.
LONG_READS_SHARE = 10
#: Reads of a turn: the first ones find the processor's caches full of another store.
TURN_READS = {"4 KiB": 250, "64 KiB": 250, "1 MiB": 25}
#: Lines with reads so long that a microsecond more is not measurable.
LONG = "overhead/1 MiB/"
VARIANTS = ("plain", "traced", "auto")
ACCESSES, QUICK_ACCESSES = 1_000_000, 100_000
RATIO_MAX, MICROSECONDS_MAX = 1.03, 1.0
TRACE_BYTES_MAX, PATTERN_BYTES_MAX = 64 << 20, 1 << 20


def opened(path: str) -> dict[str, Any]:
    """Opens a store in each way; the recording one while the store is watched."""
    stores = {"plain": bf.open(path, prefetch=False), "auto": bf.open(path, prefetch="auto")}
    bf.watch(path)
    stores["traced"] = bf.open(path, prefetch=False)
    bf.watch(path, on=False)
    return stores


def order_of(name: str, count: int, reads: int) -> list[int]:
    """Returns the chunks to read, repeated from the start if necessary."""
    if name == "random":
        return [int(at) for at in np.random.default_rng(2).integers(0, count, reads)]
    return [at % count for at in range(reads)]


def turns(job: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Reads in turns; returns seconds and processor seconds of each turn and variant."""
    cold.make_warm(Path(job["path"]))
    edge, stores = job["edge"], opened(job["path"])
    order = order_of(job["order"], edge * edge, job["reads"])
    arrays = {variant: store["v"] for variant, store in stores.items()}
    length = job["turn"]
    pieces = [order[first : first + length] for first in range(0, len(order), length)]
    taken: dict[str, list[tuple[float, float]]] = {variant: [] for variant in VARIANTS}
    shuffled = random.Random(3)  # noqa: S311 (a shuffle, not a secret)
    for array in arrays.values():
        check(array, pieces[0] + pieces[-1])
    for piece in pieces:
        for variant in shuffled.sample(VARIANTS, len(VARIANTS)):
            array = arrays[variant]
            began, worked = time.perf_counter(), time.process_time()
            for at in piece:
                values = array[at]
            taken[variant].append((time.perf_counter() - began, time.process_time() - worked))
            if number_of(values) != piece[-1]:
                raise RuntimeError("a wrong answer")
    return taken


def check(array: Any, wanted: list[int]) -> None:
    """Compares reads with the written values, outside the measured time."""
    for at in wanted:
        if not (array[at] == at).all():
            raise RuntimeError("a wrong answer")


def record(job: dict[str, Any]) -> int:
    """Reads in a regular order, watched; returns the number of reads."""
    array = bf.open(job["path"], prefetch=False)["v"]
    edge = job["edge"]
    for number in range(job["accesses"]):
        array[number % (edge * edge)]
    return int(job["accesses"])


def worker(job: dict[str, Any]) -> Any:
    """Runs the task of the job."""
    return record(job) if "accesses" in job else turns(job)


def wanted_lines(options: Options) -> dict[str, tuple[str, str]]:
    """Returns the requested lines, with size and order."""
    lines = {f"overhead/{size}/{order}": (size, order) for size in SIZES for order in ORDERS}
    return {
        name: line
        for name, line in lines.items()
        if options.wants(name) and not (options.quick and name.startswith(LONG))
    }


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    lines = wanted_lines(options)
    heads = ["line", "plain", "traced / plain", "more", "auto / plain", "more"]
    table = Table("Overhead, warm reads: microseconds, and processor time beyond plain", heads)
    table.note = "Ratios and differences turn by turn, medians."
    promises = [
        Promise(f"warm reads, traced: at most {RATIO_MAX} times"),
        Promise(f"warm random reads, followed: at most {RATIO_MAX} times"),
        Promise(f"warm reads, traced or followed: under {MICROSECONDS_MAX:g} us of a core more"),
    ]
    with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
        for name, (size_name, order) in lines.items():
            size, edge = SIZES[size_name]
            path = Path(directory) / size_name.replace(" ", "-")
            if not path.exists():
                build(path, size, edge, edge)
            reads = QUICK_READS if options.quick else READS
            reads //= LONG_READS_SHARE if size >= 1 << 20 else 1
            job = {"path": str(path), "edge": edge, "order": order, "reads": reads}
            job["turn"] = TURN_READS[size_name]
            taken = in_process("overhead", job)
            table.rows.append(row(name, taken, TURN_READS[size_name], promises))
            report.samples[name] = taken
        if options.wants("overhead/million"):
            traces(options, report, Path(directory) / "watched.zarr")
    conclude(report, table, promises)


def row(
    name: str, taken: dict[str, list[list[float]]], reads: int, promises: list[Promise]
) -> list[str]:
    """Returns the row of the line, and adds it to the promises."""
    seconds = {variant: [one for one, _ in turns] for variant, turns in taken.items()}
    worked = {variant: [one for _, one in turns] for variant, turns in taken.items()}
    cells = [name, f"{median(seconds['plain']) / reads * 1e6:.1f}"]
    for variant, promise in zip(("traced", "auto"), promises, strict=False):
        ratio = paired_ratio(seconds[variant], seconds["plain"])
        differences = np.subtract(worked[variant], worked["plain"]) / reads * 1e6
        more = median(list(differences))
        cells += [ratio.describe(), f"{more:.2f}"]
        if variant == "auto" and "/regular" in name:
            continue  # It reads ahead, which may take a core.
        promise.add(name, ratio.high <= RATIO_MAX, ratio.describe())
        if not name.startswith(LONG):
            promises[2].add(f"{name}, {variant}", more < MICROSECONDS_MAX, f"{more:.2f} us")
    return cells


def traces(options: Options, report: Report, path: Path) -> None:
    """Records many regular accesses, learns from them, and measures the files."""
    size, edge = SIZES["4 KiB"]
    build(path, size, edge, edge)
    where = Path(bf.watch(path))
    accesses = QUICK_ACCESSES if options.quick else ACCESSES
    in_process("overhead", {"path": str(path), "edge": edge, "accesses": accesses})
    trace_bytes = sum(file.stat().st_size for file in data.files_under(where))
    began = time.perf_counter()
    learned = bf.learn(path)["knowledge"]["arrays"]["v"]
    seconds = time.perf_counter() - began
    sidecar = where.parent
    kept = sum(file.stat().st_size for file in data.files_under(sidecar)) - trace_bytes
    heads = ["line", "accesses", "traces", "knowledge", "predicted", "learnt in"]
    predicted = sum(kind["reads"] for kind in learned["predicted"].values())
    share = predicted / learned["read"]["reads"]
    sizes = [bytes_in_words(trace_bytes), bytes_in_words(kept)]
    cells = ["overhead/million", f"{accesses:,}", *sizes, f"{share:.2%}", f"{seconds:.1f} s"]
    table = Table("Traces of regular accesses", heads, [cells])
    report.samples["overhead/million"] = {"traces": trace_bytes, "knowledge": kept}
    small = Promise("a million regular accesses: patterns under 1 MiB")
    small.add("overhead/million", kept < PATTERN_BYTES_MAX, sizes[1])
    bounded = Promise("a million regular accesses: traces of a process at most 64 MiB")
    bounded.add("overhead/million", trace_bytes <= TRACE_BYTES_MAX, sizes[0])
    conclude(report, table, [small, bounded])


if __name__ == "__main__":
    os.environ.pop("BEDFORM_TRACE", None)
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
