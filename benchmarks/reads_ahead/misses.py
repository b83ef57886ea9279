"""Lines `misses/*` and `darshan/*`: counts of predicted reads, without times.

A loop reads chunks in a new pattern from a slow place, computes longer than a read takes, and gets
the number of unpredicted reads from the store. Then the recorded reads are learnt, and another
process counts again. The logs come from the package `darshan` and are those of real programs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table, bytes_in_words
from benchmarks.reads_ahead.loops import MISSES, build, compute, in_process, places

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

#: Number of chunks per shard and of shards; axes of a grid of chunks; elements of a chunk.
EDGE, GRID, LENGTH = 24, (4, 12, 12), 4096
THROTTLE, SECONDS = "1 GB/s, 2 ms", 0.012
READS, QUICK_READS = 60, 40
THREE_AXES = "nested, three axes"
QUICK_PATTERNS = ("simple-strided", "climate hours")
LOADED_MAX = 1
LOG, LOG_SHARE_MIN = "dxt.darshan", 0.6


def wanted_of(pattern: str, reads: int) -> list[int]:
    """Return the numbers of the chunks that a pattern reads."""
    if pattern != THREE_AXES:
        return places(pattern, EDGE, reads)
    layers, rows, columns = np.ogrid[0:4, 0:12:3, 0:12:3]
    return [int(at) for at in np.ravel_multi_index((layers, rows, columns), GRID).ravel()[:reads]]


def expected_misses(pattern: str) -> int:
    """Returns the promised number of missed accesses of a pattern."""
    return 3 + 2 * 2 if pattern == THREE_AXES else MISSES[pattern]


def count(job: dict[str, Any]) -> dict[str, Any]:
    """Reads and computes; returns the store's counts of its reads."""
    store = bf.open(job["path"], prefetch="auto")
    array = store["v"]
    for number in job["wanted"]:
        place = np.unravel_index(number, array.shape[:-1])
        if not (array[tuple(map(int, place))] == number).all():
            raise RuntimeError("a wrong answer")
        compute(SECONDS)
    counted: dict[str, Any] = store.stats()["prefetch"]
    return counted


def build_grid(path: Path) -> None:
    """Writes an array with a grid of three axes of chunks, one shard per layer."""
    numbers = np.arange(np.prod(GRID), dtype="f4").reshape(*GRID, 1)
    with bf.create(path) as store:
        values = np.broadcast_to(numbers, (*GRID, LENGTH))
        shards = (1, *GRID[1:], LENGTH)
        store.create_array("v", data=values, chunks=(1, 1, 1, LENGTH), shards=shards, codecs=[])


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    run_misses(options, report)
    run_logs(options, report)


def run_misses(options: Options, report: Report) -> None:
    """Count the misses of each pattern, new and learnt."""
    reads = QUICK_READS if options.quick else READS
    heads = ["line", "reads", "missed", "promised", "missed once learnt", "read ahead, used"]
    table = Table("Reads that were not foreseen", heads)
    new = Promise("misses of a new pattern: 3, 2 more for each depth, twice the steps and 1")
    loaded = Promise(f"misses of a learnt pattern: {LOADED_MAX}")
    for pattern in [*MISSES, THREE_AXES]:
        name = f"misses/{pattern}"
        if not options.wants(name) or (options.quick and pattern not in QUICK_PATTERNS):
            continue
        with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
            path = Path(directory) / "s.zarr"
            if pattern == THREE_AXES:
                build_grid(path)
            else:
                build(path, 4 * LENGTH, EDGE, EDGE)
            bf.watch(path)
            job = {"path": str(path), "wanted": wanted_of(pattern, reads)}
            counted = [in_process("misses", job, THROTTLE)]
            bf.learn(path)
            counted.append(in_process("misses", job, THROTTLE))
        missed, learnt = (one["reads"] - one["foreseen"] for one in counted)
        promised_misses = expected_misses(pattern)
        used = f"{counted[0]['used']} of {counted[0]['reads']}"
        numbers = [counted[0]["reads"], missed, promised_misses, learnt]
        table.rows.append([name, *map(str, numbers), used])
        new.add(name, missed <= promised_misses, f"{missed} for {promised_misses}")
        loaded.add(name, learnt <= LOADED_MAX, str(learnt))
        report.samples[name] = counted
    conclude(report, table, [new, loaded])


def run_logs(options: Options, report: Report) -> None:
    """Reports the predictable part of each log."""
    found = importlib.util.find_spec("darshan")
    if found is None or found.origin is None:
        if options.wants("darshan/*"):
            report.settings["not run"] = "lines darshan/*, for want of the package darshan"
        return
    heads = ["line", "reads", "bytes", "of reads", "of bytes"]
    table = Table("Predicted of what Darshan recorded", heads)
    loads = Promise("every log of the package darshan loads")
    share = Promise(f"at least {LOG_SHARE_MIN:.0%} of the bytes of {LOG} are predicted")
    for log in sorted(Path(found.origin).parent.rglob("*.darshan")):
        name = f"darshan/{log.stem}"
        if not options.wants(name) or (options.quick and log.name != LOG):
            continue
        learned = learnt_of(log)
        loads.add(name, learned is not None, "loads" if learned else "does not load")
        if learned is None:
            continue
        shares = [learned["share_of_reads"], learned["share_of_bytes"]]
        counts = [f"{learned['reads']:,}", bytes_in_words(learned["bytes"])]
        cells = [f"{one:.1%}" if learned["reads"] else "-" for one in shares]
        table.rows.append([name, *counts, *cells])
        report.samples[name] = {key: one for key, one in learned.items() if key != "files"}
        if log.name == LOG:
            share.add(name, learned["share_of_bytes"] >= LOG_SHARE_MIN, f"{shares[1]:.1%}")
    conclude(report, table, [loads, share])


def learnt_of(log: Path) -> dict[str, Any] | None:
    """Returns the command's result for a log, or None if it refuses the log."""
    command = [sys.executable, "-m", "bedform", "learn", "--darshan", str(log), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    learned: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return learned


if __name__ == "__main__":
    sys.stdout.write(json.dumps(count(json.loads(sys.argv[1]))))
