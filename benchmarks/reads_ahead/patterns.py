"""Lines `disk/*` and `slow store/*`: patterns of one process, with and without prefetch."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.reads_ahead.loops import (
    MISSES,
    RATIOS,
    READS,
    SHARE_MIN,
    SIZES,
    bound,
    build,
    compute,
    cut_wanted,
    in_process,
    is_foreseen,
    number_of,
    places,
    rounds_of,
    shown_share,
    touch_code,
    used_share,
)

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

QUICK_READS = 40
#: Reads of a store that only load the library's code.
TOUCHED_READS = 16
LONG_BYTES = 1 << 20
#: The ratio at which the loop by hand runs, too.
LOOP_RATIO = 1.0
RANDOM = "random"
LOOP_MAX, LOOP_GAINS_MIN = 1.05, 0.05
OVERHEAD_MAX = 1.03
USED_MIN, USED_READS_MIN = 0.95, 95
CLIMATE_MIN = 0.26


def timed(path: str, wanted: list[int], seconds: float, reader: str) -> dict[str, Any]:
    """Reads and computes; returns the time, and the numbers of the chunks."""
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
                found.append(number_of(values))
                compute(seconds)
    else:
        for at in wanted:
            found.append(number_of(array[at]))
            compute(seconds)
    took = time.perf_counter() - began
    return {"seconds": took, "found": found, **store.stats()["prefetch"]}


def worker(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures one store with all patterns, in rounds."""
    lines, order = [], random.Random(7)  # noqa: S311 (a shuffle, not a secret)
    touch_code(job["touched"])
    for pattern in job["patterns"]:
        wanted = places(pattern, job["edge"], job["reads"])

        def once(seconds: float, reader: str, wanted: Any = wanted) -> dict[str, Any]:
            outcome: dict[str, Any] = in_child(timed, job["path"], wanted, seconds, reader)
            if outcome.pop("found") != wanted:
                raise RuntimeError("a wrong answer")
            return outcome

        alone = median([once(0, "plain")["seconds"] for _ in range(3)]) / len(wanted)
        for ratio in (0.0,) if pattern == RANDOM else job["ratios"]:
            readers = ("plain", "auto", *(["loop"] if ratio == LOOP_RATIO else []))
            rounds = [
                {
                    reader: once(ratio * alone, reader)
                    for reader in order.sample(readers, len(readers))
                }
                for _ in range(job["rounds"])
            ]
            lines.append({"pattern": pattern, "ratio": ratio, "alone": alone, "rounds": rounds})
    return lines


class Judge:
    """The promises about the lines."""

    def __init__(self) -> None:
        self.overlapped = Promise(f"{SHARE_MIN:.0%} of the bound, less the misses")
        self.climate = Promise(f"hours of days, ratio 1: at least {CLIMATE_MIN:.0%} cut")
        self.loops = Promise("within 5 % of the loop with two buffers, but for the misses")
        self.used = Promise("95 % of what was read ahead is used, in 100 reads or so")
        self.random = Promise(f"random reads at most {OVERHEAD_MAX} times")

    def promises(self) -> list[Promise]:
        """Returns all promises."""
        return [self.overlapped, self.climate, self.loops, self.used, self.random]

    def row(self, name: str, line: dict[str, Any]) -> list[str]:
        """Returns the row of the line, and adds it to the promises."""
        rounds, ratio = line["rounds"], line["ratio"]
        seconds = {reader: [one[reader]["seconds"] for one in rounds] for reader in rounds[0]}
        against = paired_ratio(seconds["auto"], seconds["plain"])
        cut = 1 - against.median
        cells = [name, f"{line['alone'] * 1e3:.2f}", f"{median(seconds['plain']) * 1e3:.0f}"]
        if line["pattern"] == RANDOM:
            self.random.add(name, against.high <= OVERHEAD_MAX, against.describe())
            return [*cells, f"{cut:.0%}", "", against.describe(), "", ""]
        reads = rounds[0]["auto"]["reads"]
        wanted = cut_wanted(ratio, MISSES[line["pattern"]], reads)
        self.overlapped.add(name, cut >= wanted, f"{cut:.0%} of {wanted:.0%}")
        if line["pattern"] == "climate hours" and ratio == 1 and reads >= USED_READS_MIN:
            self.climate.add(name, cut >= CLIMATE_MIN, f"{cut:.0%}")
        beside = ""
        if "loop" in seconds:
            ratio_to_loop = paired_ratio(seconds["auto"], seconds["loop"])
            beside = ratio_to_loop.describe()
            if 1 - paired_ratio(seconds["loop"], seconds["plain"]).median >= LOOP_GAINS_MIN:
                limit = loop_limit(ratio, MISSES[line["pattern"]], reads)
                self.loops.add(name, ratio_to_loop.low <= limit, beside)
        share = used_share([one["auto"] for one in rounds])
        if reads >= USED_READS_MIN and share is not None:
            self.used.add(name, share >= USED_MIN, shown_share(share))
        shown = [f"{cut:.0%}", f"{bound(ratio):.0%}", against.describe(), beside]
        return [*cells, *shown, shown_share(share)]


def loop_limit(ratio: float, misses: int, reads: int) -> float:
    """Returns the limit of prefetch over the loop by hand, which knows all but one read.

    >>> round(loop_limit(1, 3, 100), 2), round(loop_limit(1, 5, 16), 2)
    (1.07, 1.3)
    """
    ours, theirs = (1 - bound(ratio) * (1 - one / reads) for one in (misses, 1))
    return LOOP_MAX * ours / theirs


def chosen(options: Options, named: dict[str, str], edge: int, reads: int) -> list[str]:
    """Returns the requested patterns that have enough reads to be predicted."""
    return [
        pattern
        for pattern, name in named.items()
        if options.wants(name)
        and is_foreseen(pattern, edge, reads)
        and (not options.quick or pattern in ("simple-strided", "climate hours", RANDOM))
    ]


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    heads = ["line", "a read", "plain", "cut", "bound", "auto / plain", "auto / loop", "used"]
    table, judge = Table("Patterns, in milliseconds", heads), Judge()
    sizes = {"128 KiB": SIZES["128 KiB"]} if options.quick else SIZES
    for size_name, (size, edge) in sizes.items():
        jobs = {}
        for place in THROTTLES:
            reads = QUICK_READS if options.quick else READS[place][size_name]
            named = {one: f"{place}/{size_name}/{one}" for one in [*MISSES, RANDOM]}
            jobs[place] = {
                "edge": edge,
                "reads": reads,
                "rounds": rounds_of(options, place == "slow store" or size > LONG_BYTES),
                "ratios": (1.0,) if options.quick else RATIOS,
                "patterns": chosen(options, named, edge, reads),
            }
        if not any(job["patterns"] for job in jobs.values()):
            continue
        with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
            path = Path(directory) / "s.zarr"
            build(path, size, edge, edge)
            touched = Path(directory) / "touched.zarr"
            build(touched, size, 1, TOUCHED_READS)
            for place, job in jobs.items():
                job = {**job, "path": str(path), "touched": str(touched)}
                lines = in_process("patterns", job, THROTTLES[place])
                for line in lines:
                    name = f"{place}/{size_name}/{line['pattern']}, ratio {line['ratio']:g}"
                    table.rows.append(judge.row(name, line))
                    report.samples[name] = [
                        {reader: one[reader]["seconds"] for reader in one} for one in line["rounds"]
                    ]
    conclude(report, table, judge.promises())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
