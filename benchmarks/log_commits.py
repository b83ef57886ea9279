"""`log-commits`: costs of commits after many others, and of work that overlaps them.

*Commits*: sessions of many commits of 8 KiB, as appended rows and as overwrites of one shard; with
the log left unsettled, and settled in the background within 16 MiB. The first 100 commits are
compared with the last 1,000 of the same run. Opening and reading one row of the middle alternate
with the same on a store of 10 commits.

*Variables*: 5,000 arrays of 10 commits, of fixed shape and growing.

*Overlap*: steps of 64 MiB, lent, with computing as long as a commit: computing alone, with
`commit_begin` and `commit_wait`, and with `commit`.

There are no peers: NetCDF, HDF5 and ADIOS2 have no atomic commits.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.parallel import ROOT
from benchmarks.harness.report import Report, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "log-commits"
ROW = 2048
FIRST, LAST = 100, 1000
LIMIT = 16 << 20
MEBIBYTE = 1 << 20
LINES = ("append", "overwrite")


def place_of(name: str) -> Path:
    """Returns an unused place, without a store or log."""
    place: Path = ROOT / f"{name}.zarr"
    for old in (place, place.with_name(place.name + ".bedform-log")):
        data.remove(old)
    ROOT.mkdir(parents=True, exist_ok=True)
    return place


def bytes_in(place: Path, directory: str = "") -> int:
    """Returns the bytes of the files of a store's log; files that vanish meanwhile count 0."""
    total = 0
    for path in place.with_name(place.name + ".bedform-log").joinpath(directory).rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def commits(line: str, count: int, **session: Any) -> tuple[Path, list[float], int]:
    """Makes `count` commits; returns the store, their seconds, and the most bytes of segments."""
    place = place_of(f"{line}-{count}")
    store = bf.create(place)
    rows = 0 if line == "append" else 64
    layout = bf.Regular(chunks=(64, ROW), shards=(64 if rows else 256, ROW))
    store.create_array("a", shape=(rows, ROW), dtype="float32", layout=layout)
    base = np.arange(ROW, dtype="float32")[None]
    seconds, most = [], 0
    with store.session(**session) as writer:
        for number in range(count):
            row = base + number
            begin = time.perf_counter()
            if line == "append":
                writer.append("a", row)
            else:
                writer.write("a", row, start=(0, 0))
            writer.commit()
            seconds.append(time.perf_counter() - begin)
            if number % 50 == 0:
                most = max(most, bytes_in(place, "segments"))
    return place, seconds, most


def seconds_of_a_row(line: str, place: Path, count: int) -> float:
    """Open the store and read a row of the middle, checked."""
    at, number = (count // 2, count // 2) if line == "append" else (0, count - 1)
    begin = time.perf_counter()
    row = bf.open(place)["a"][at]
    seconds = time.perf_counter() - begin
    if row[3] != 3 + number:
        raise AssertionError(f"row {at} of {place} has {row[3]}")
    return seconds


def add_commits(report: Report, options: Options) -> None:
    """Measure sessions of many commits."""
    count = 3 * LAST if options.quick else 10_000
    report.settings["commits"] = str(count)
    costs = Table(
        f"{count:,} commits of 8 KiB in one session; milliseconds",
        ["line", "settle", "mean", "first 100", "last 1,000", "ratio", "p99 / median"],
    )
    sizes = Table(
        "MiB of the log, and milliseconds to open the store and read one row",
        ["line", "data", "segments", "roots and tables", "10 commits", f"{count:,}", "ratio"],
        note="Segments are padded to 4 KiB at each of the two syncs of a commit.",
    )
    for line in LINES:
        small, _, _ = commits(line, 10, settle="later")
        place, seconds, _ = commits(line, count, settle="later")
        first, last = mean(seconds[:FIRST]), mean(seconds[-LAST:])
        share = quantiles(seconds, n=100)[98] / median(seconds)
        cells = [mean(seconds) * 1e3, first * 1e3, last * 1e3, last / first, share]
        costs.rows.append([line, "later", *(f"{cell:.2f}" for cell in cells)])
        report.verdicts += [
            Verdict(
                f"{line}: the last cost 1.5 times the first",
                f"{last / first:.2f}",
                last <= 1.5 * first,
            ),
            Verdict(f"{line}: 99th percentile 5 times the median", f"{share:.2f}", share <= 5),
        ]
        named = bytes_in(place, "roots") + bytes_in(place, "tables")
        total = count * ROW * 4
        held = named <= 0.05 * total + 4 * MEBIBYTE
        report.verdicts.append(
            Verdict(
                f"{line}: roots and tables 5 % of the data + 4 MiB",
                f"{named / MEBIBYTE:.2f} MiB",
                held,
            )
        )
        reads: dict[int, list[float]] = {10: [], count: []}
        for _ in range(max(options.rounds, 15)):
            for size, where in ((10, small), (count, place)):
                reads[size].append(seconds_of_a_row(line, where, size))
        few, many = (median(reads[size]) for size in (10, count))
        cells = [total / MEBIBYTE, bytes_in(place, "segments") / MEBIBYTE, named / MEBIBYTE]
        cells += [few * 1e3, many * 1e3, many / few]
        sizes.rows.append([line, *(f"{cell:.2f}" for cell in cells)])
        report.verdicts.append(
            Verdict(
                f"{line}: open and one row twice those of 10 commits",
                f"{many / few:.2f}",
                many <= 2 * few,
            )
        )
        bf.open(place, "r+").settle()
        # Alternating, since the device's speed drifts.
        plain, beside, most = [], [], 0
        for _ in range(3):
            plain += commits(line, count // 3, settle="later")[1]
            _, more, bytes_most = commits(line, count // 3, settle="background", settle_bytes=LIMIT)
            beside, most = beside + more, max(most, bytes_most)
        slower = mean(beside) / mean(plain)
        costs.rows.append([line, "background", f"{mean(beside) * 1e3:.2f}", "", "", "", ""])
        report.verdicts += [
            Verdict(
                f"{line}: settled beside, commits 1.2 times slower", f"{slower:.2f}", slower <= 1.2
            ),
            Verdict(
                f"{line}: settled beside, segments at most 1.25 times 16 MiB",
                f"{most / MEBIBYTE:.1f} MiB",
                most <= 1.25 * LIMIT,
            ),
        ]
    report.tables += [costs, sizes]


def variables(count: int, *, grows: bool) -> tuple[float, float, float]:
    """Returns the seconds of the first commit, of the others on average, and of settling."""
    place = place_of("variables")
    store = bf.create(place)
    names = [f"v{number:05}" for number in range(count)]
    layout = bf.Regular(chunks=(10, 128), shards=(10, 128))
    described = {"shape": (0 if grows else 10, 128), "dtype": "float32", "layout": layout}
    seconds = []
    with store.session(settle="later") as writer:
        writer.create_arrays(dict.fromkeys(names, described))
        for step in range(10):
            row = np.full((1, 128), step, "float32")
            for name in names:
                if grows:
                    writer.append(name, row)
                else:
                    writer.write(name, row, start=(step, 0))
            begin = time.perf_counter()
            writer.commit()
            seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    store.settle()
    settled = time.perf_counter() - begin
    last = bf.open(place)[names[-1]][...]
    if not np.array_equal(last, np.arange(10, dtype="float32")[:, None].repeat(128, 1)):
        raise AssertionError(f"{names[-1]} has {last[:, 0]}")
    return seconds[0], mean(seconds[1:]), settled


def add_variables(report: Report, options: Options) -> None:
    """Measure sessions of many variables."""
    count = 500 if options.quick else 5000
    table = Table(
        f"{count:,} variables, 10 commits; seconds",
        ["shape", "first commit", "later commits", "settle"],
    )
    for line, grows, limit in (("fixed", False, 5.0), ("growing", True, 8.0)):
        first, later, settled = variables(count, grows=grows)
        table.rows.append([line, *(f"{cell:.2f}" for cell in (first, later, settled))])
        report.verdicts += [
            Verdict(f"{line}: first commit within 3 s", f"{first:.2f} s", first <= 3),
            Verdict(f"{line}: settled within {limit:.0f} s", f"{settled:.2f} s", settled <= limit),
        ]
    report.tables.append(table)


def add_overlap(report: Report, options: Options) -> None:
    """Measures steps that compute while the previous one becomes durable."""
    steps = 4 if options.quick else 16
    size = 64 * MEBIBYTE // 4
    store = bf.create(place_of("overlap"))
    layout = bf.Regular(chunks=(1, MEBIBYTE), shards=(1, size))
    store.create_array("a", shape=(steps, size), dtype="float32", layout=layout)
    buffers = [np.ones((1, size), "float32") for _ in range(2)]
    square = np.random.default_rng(0).random((200, 200))
    with store.session(settle="later") as writer:

        def write(step: int) -> None:
            writer.write("a", buffers[step % 2], start=(step, 0), copy=False)

        def commit(step: int) -> None:
            write(step)
            writer.commit()

        products = 0

        def compute(_: int) -> None:
            multiply(square, products)

        def calibrate() -> None:
            """Sets the number of products so that computing takes as long as commits now."""
            nonlocal products
            trial = []
            for step in range(steps):
                compute(step)
                trial.append(timed(partial(commit, step)))
            products = max(int(mean(trial) / timed(lambda: multiply(square, 200)) * 200), 1)

        calibrate()

        def overlapped(step: int) -> None:
            write(step)
            writer.commit_begin()
            compute(step)
            writer.commit_wait()

        def one_after_the_other(step: int) -> None:
            commit(step)
            compute(step)

        ways: dict[str, Callable[[int], None]] = {
            "computing alone": compute,
            "commit_begin": overlapped,
            "commit": one_after_the_other,
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(max(options.rounds, 5)):
            calibrate()
            for way, run in ways.items():
                found[way].append(timed(lambda run=run: [run(step) for step in range(steps)]))
    alone = found["computing alone"]
    ratios = {
        way: median(one / other for one, other in zip(seconds, alone, strict=True))
        for way, seconds in found.items()
    }
    table = Table(f"{steps} steps of 64 MiB", ["way", "seconds", "to computing alone"])
    table.rows = [[way, f"{median(found[way]):.2f}", f"{ratios[way]:.2f}"] for way in ways]
    report.tables.append(table)
    share = ratios["commit_begin"]
    report.verdicts.append(
        Verdict("commit_begin: 1.1 times computing alone", f"{share:.2f}", share <= 1.1)
    )


def multiply(square: Any, times: int) -> None:
    """Computes in one thread, since OPENBLAS_NUM_THREADS=1."""
    for _ in range(times):
        square @ square


def timed(run: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


PARTS = {"commits": add_commits, "variables": add_variables, "overlap": add_overlap}


def run(options: Options) -> Report:
    """Runs the requested parts (`--only`)."""
    report = Report(NAME, options.command, {"rounds": str(options.rounds)})
    for name, add in PARTS.items():
        if options.wants(name):
            add(report, options)
    data.remove(ROOT)
    return report
