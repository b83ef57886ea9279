"""`zarr-read`: the same Zarr v3 bytes read by four engines, warm and cold.

Warm: the page cache holds the store, the caches of the engines are empty, the array handle is open.
Cold: the page cache is dropped before every single read; the device, measured in the same rounds,
reads just the inner chunks that the read needs. The marker `!` is on engines that did not detect a
changed bit in a chunk that this read touches: they do less work than the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from benchmarks.harness import cold, data
from benchmarks.harness.comparison import OURS, UNVERIFIED, Comparison
from benchmarks.harness.corrupt import corrupt_store
from benchmarks.harness.options import PEERS, REFERENCE, Options, engines
from benchmarks.harness.report import Report, Table, Verdict, bandwidth, bytes_in_words
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.selections import Selection, named_selections
from benchmarks.harness.shards import needed_extents
from benchmarks.harness.statistics import geometric_mean, median
from benchmarks.harness.worker import (
    WorkerProcess,
    checksum,
    start_workers,
    stop_workers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "zarr-read"
DEVICE = "device"
RAW_GAIN, ZSTD_GAIN, DEVICE_SHARE = 2.5, 1.5, 0.90
QUICK_LINES = ("plane k", "centre box", "series i")
NOTE = f"{UNVERIFIED} does not verify the checksum of what this read returns."


@dataclass(frozen=True)
class Case:
    """One table: a store, warm or cold."""

    layout: data.Layout
    codec: str
    is_cold: bool

    @property
    def prefix(self) -> str:
        """Returns the prefix of the names of its lines."""
        return f"{self.layout.name}/{self.codec}/{'cold' if self.is_cold else 'warm'}/"


class Session:
    """The workers with one store open: tunes, runs rounds, tests with a corrupt copy."""

    def __init__(self, workers: dict[str, WorkerProcess], options: Options, case: Case) -> None:
        self.options, self.case = options, case
        self.workers = {
            name: worker for name, worker in workers.items() if case.is_cold or name != DEVICE
        }
        self.store = data.zarr_store(options.size, case.layout, case.codec)
        self.open(self.store)
        cold.make_warm(self.store)

    def open(self, store: Path) -> None:
        """Open a store in every worker, caches off."""
        for worker in self.workers.values():
            worker.call("open", store)

    def read(self, name: str, key: str, expected: int | None) -> float:
        """Measures one prepared read, warm or cold as the case says."""
        if self.case.is_cold:
            cold.make_cold(self.store)
        answer = None if name == DEVICE else expected
        seconds: float = self.workers[name].call("read", key, answer)
        return seconds

    def tune(self, name: str, selection: Selection) -> str:
        """Returns the fastest variant of an engine for one read."""
        worker = self.workers[name]

        def attempt(variant: str) -> float:
            worker.call("prepare", variant, selection, variant)
            if not self.case.is_cold:
                worker.call("read", variant, None)
            seconds = self.read(name, variant, None)
            worker.call("forget", variant)
            return seconds

        variants = self.options.some(list(worker.call("describe")["read"]))
        return fastest_variant(variants, self.options.tries(), attempt)

    def measure(self, line: str, selection: Selection, expected: int) -> Comparison:
        """Run the rounds of one line."""
        chosen = {name: self.tune(name, selection) for name in self.workers}
        for name, worker in self.workers.items():
            worker.call("prepare", line, selection, chosen[name])
            worker.call("read", line, None if name == DEVICE else expected)
        samples = interleave(
            list(self.workers),
            self.options.rounds,
            lambda name: self.read(name, line, expected),
        )
        for worker in self.workers.values():
            worker.call("forget", line)
        return Comparison(self.case.prefix + line, samples, chosen)

    def unverified(self, selection: Selection, chosen: dict[str, str]) -> frozenset[str]:
        """Returns the engines that read changed bits without an error in the corrupt store."""
        return frozenset(
            name
            for name, worker in self.workers.items()
            if name != DEVICE and not worker.call("notices", selection, chosen[name])
        )


def cases(options: Options) -> Iterator[tuple[Case, dict[str, Selection]]]:
    """Yields the tables with the requested lines."""
    layouts = options.some([data.standard_layout(options.size), data.advised_layout(options.size)])
    for layout, codec, is_cold in product(layouts, ("raw", "zstd"), (False, True)):
        case = Case(layout, codec, is_cold)
        lines = {
            line: selection
            for line, selection in named_selections(options.size).items()
            if options.wants(case.prefix + line) and (not options.quick or line in QUICK_LINES)
        }
        if lines:
            yield case, lines


def run(options: Options) -> Report:
    """Runs the requested lines."""
    report = Report(NAME, options.command, options.settings())
    truth = data.truth(options.size)
    results: list[Comparison] = []
    workers = start_workers([*engines(), DEVICE])
    try:
        for name, worker in workers.items():
            report.settings[name] = worker.call("describe")["version"]
        for case, lines in cases(options):
            session = Session(workers, options, case)
            compared = {
                line: session.measure(line, selection, checksum(truth[selection]))
                for line, selection in lines.items()
            }
            session.open(corrupt_store(session.store))
            for line, one in compared.items():
                one.unverified = session.unverified(lines[line], one.variants)
            report.tables.append(make_table(session, compared, lines))
            results += compared.values()
    finally:
        stop_workers(workers)
    report.verdicts = verdicts(results)
    report.samples = {one.line: one.to_dict() for one in results}
    return report


def make_table(
    session: Session, compared: dict[str, Comparison], lines: dict[str, Selection]
) -> Table:
    """Return the rows of one case."""
    case = session.case
    names = [name for name in [*PEERS, REFERENCE, OURS] if name in session.workers]
    columns = [
        "read",
        "moves",
        *names,
        "fastest",
        "bedform / fastest",
        "bedform / verifying",
    ]
    if case.is_cold:
        columns += ["device", "device MiB/s", "fastest / device", "bedform / device"]
    state = "cold" if case.is_cold else "warm"
    title = f"{case.layout.name}: {case.layout.describe()}; {case.codec}; {state}; milliseconds"
    table = Table(title, columns, note=NOTE)
    for line, one in compared.items():
        moved = sum(extent.length for extent in needed_extents(session.store, lines[line]))
        fastest = one.fastest_peer()
        row = [
            line,
            bytes_in_words(moved),
            *(one.cell(name) for name in names),
            one.way(fastest),
        ]
        row += [
            one.ratio_cell(fastest),
            one.ratio_cell(one.fastest_peer(verified=True)),
        ]
        if case.is_cold:
            device = median(one.samples[DEVICE])
            over = one.ratio(fastest, DEVICE)
            row += [one.cell(DEVICE), bandwidth(moved, device)]
            row += [
                over.describe() if over else "-",
                one.ratio_cell(DEVICE, marks_loss=False),
            ]
        table.rows.append(row)
    return table


def verdicts(results: list[Comparison]) -> list[Verdict]:
    """Returns the promises of this benchmark and their results."""
    ours = [one for one in results if OURS in one.samples]
    found = [
        slower_lines("no line slower than 1.05 x the fastest peer", ours, verified=False),
        slower_lines("the same, of peers that verify what they read", ours, verified=True),
    ]
    for codec, gain in (("raw", RAW_GAIN), ("zstd", ZSTD_GAIN)):
        lines = [one for one in ours if f"/{codec}/warm/" in one.line]
        for name in ("tensorstore", REFERENCE):
            promise = f"warm {codec} lines: geometric mean of {name} / bedform at least {gain}"
            found.append(mean_gain(promise, lines, name, gain))
    cold_lines = [one for one in ours if DEVICE in one.samples]
    promise = "cold: 90 % of what the device gives (worst line)"
    shares = {one.line: 1 / ratio.median for one in cold_lines if (ratio := one.against(DEVICE))}
    if not shares:
        return [*found, Verdict(promise, "-", None)]
    worst = min(shares, key=lambda line: shares[line])
    measured = f"{shares[worst]:.0%} on {worst}"
    return [*found, Verdict(promise, measured, shares[worst] >= DEVICE_SHARE)]


def slower_lines(promise: str, ours: list[Comparison], verified: bool) -> Verdict:
    """Counts the lines that are lost."""
    if not ours:
        return Verdict(promise, "-", None)
    lost = [one.line for one in ours if one.is_loss(verified)]
    listed = f": {', '.join(lost)}" if lost else ""
    return Verdict(promise, f"{len(lost)} of {len(ours)} lines{listed}", not lost)


def mean_gain(promise: str, lines: list[Comparison], name: str, gain: float) -> Verdict:
    """Returns the mean speedup over `name` of all lines."""
    gains = [1 / ratio.median for one in lines if (ratio := one.against(name))]
    if not gains:
        return Verdict(promise, "-", None)
    mean = geometric_mean(gains)
    return Verdict(promise, f"{mean:.2f} over {len(gains)} lines", mean >= gain)
