"""`burst`: a fast tier before a slow one; times until a commit returns, and until all is drained.

Each line is a pattern of 1 GiB, with three writers in interleaved rounds. The *device* of the burst
tier writes the same bytes, synced, one file per process: the limit of the tier. *Bedform* uses a
session with the burst tier and `durability="node"`. *direct* writes to the slow tier, each byte at
its final place.

The slow tier has a quarter of the device's bandwidth, measured first and shared evenly by the
processes, and takes 5 ms per request. BEDFORM_THROTTLE applies that to Bedform; the driver of
direct writes follows the same rule. *Returned* is the time from the first write until the commit
returns; *drained* until all of it is durable in the slow tier, and visible. Arrays are created and
looked up in the slow tier once for all steps of a program: the column *create* has that time, the
ratios exclude it.

Direct writes model programs without a layer between: one request for each contiguous run of bytes
of a process. Two-phase I/O needs fewer requests; its limit is the column *bound*, all bytes at the
slow tier's bandwidth. Draining can only beat *direct* by the ratio of *direct* to *bound*. Longer
transfers leave no gain, so no promise covers them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import log_flash
from benchmarks.harness import data
from benchmarks.harness.burst_writers import (
    DIRECT,
    BurstWriter,
    DirectWriter,
    Pace,
    capacity_place,
)
from benchmarks.harness.decomposition import Blocks
from benchmarks.harness.log_report import DEVICE_SHARE
from benchmarks.harness.parallel import (
    DEVICE,
    OURS,
    ROOT,
    DeviceWriter,
    Job,
    Results,
    Rounds,
)
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.statistics import Ratio, median, paired_ratio
from benchmarks.harness.workload import Variable, Workload, write_plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.options import Options

NAME = "burst"
STRIDED = "ior strided 64 KiB"
BYTES, QUICK_BYTES = 1 << 30, 64 << 20
PROBES = 3
SHARE_OF_TIER, LATENCY = 0.25, 0.005
SOONER = 4.0
KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
BTIO_EDGE, BTIO_VALUES = 128, 5
Parts = tuple[tuple[Blocks, ...], tuple[Variable, ...]]


def transfers(ranks: int, transfer: int) -> Parts:
    """Returns a record with one transfer of each process, one after the other."""
    length = transfer // 8
    corners = tuple(np.array([[rank * length]]) for rank in range(ranks))
    blocks = Blocks((ranks * length,), corners, (np.array([[length]]),) * ranks)
    return (blocks,), (Variable("data", "float64", blocks.shape, 0, has_record=True),)


def multipartition(ranks: int, edge: int) -> Blocks:
    """Return the cells of each process: q of q^3, on a diagonal, for q^2 processes.

    >>> multipartition(4, 4).owners()[:, :, 0, 0].tolist()
    [[0, 0, 2, 2], [0, 0, 2, 2], [3, 3, 1, 1], [3, 3, 1, 1]]
    """
    count = int(ranks**0.5)
    if count * count != ranks or edge % count:
        raise ValueError(f"BTIO needs a square number of processes that divides {edge}^2")
    size = edge // count
    corners = []
    for rank in range(ranks):
        x, y = rank % count, rank // count
        cells = [(at, (y + at) % count, (x + at) % count) for at in range(count)]
        corners.append(np.array([[*(size * place for place in cell), 0] for cell in cells]))
    shapes = np.array([[size, size, size, BTIO_VALUES]] * count)
    return Blocks((edge, edge, edge, BTIO_VALUES), tuple(corners), (shapes,) * ranks)


def btio(ranks: int) -> Parts:
    """Return a step of BTIO: a cube of vectors, in the multi-partition of the solver."""
    blocks = multipartition(ranks, BTIO_EDGE)
    return (blocks,), (Variable("solution", "float64", blocks.shape, 0, has_record=True),)


PATTERNS: dict[str, Callable[[int], Parts]] = {
    "ior contiguous 8 MiB": lambda ranks: transfers(ranks, 8 * MEBIBYTE),
    STRIDED: lambda ranks: transfers(ranks, 64 * KIBIBYTE),
    "ior strided 256 KiB": lambda ranks: transfers(ranks, 256 * KIBIBYTE),
    "btio 128^3": btio,
    "flash": log_flash.parts,
}


def job_of(name: str, parts: Parts, options: Options) -> Job:
    """Returns the job with as many records as its size needs."""
    one = Workload(name, options.processes, 1, *parts)
    records = max((QUICK_BYTES if options.quick else BYTES) // one.bytes(), 1)
    workload = Workload(name, options.processes, records, *parts)
    folder = ROOT / "plans"
    data.remove(folder)
    return Job(workload, tuple(write_plans(workload, folder)))


class BurstReport:
    """A report that gets its lines one by one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        place = capacity_place(options.capacity)
        self.ours = BurstWriter(options.bedform or os.environ.get("BEDFORM_PREFIX"), place)
        self.direct = DirectWriter(place)
        self.device = DeviceWriter()
        self.place = place
        self.report = Report(NAME, options.command, {"rounds": str(options.rounds)})
        self.report.settings |= {"processes": str(options.processes), "slow tier": str(place)}
        if options.only:
            self.report.settings["lines"] = ", ".join(options.only)
        self.returned = Table(
            "Until a commit returns, durable in the burst tier; MiB/s and the share of the device",
            ["line", "MiB", "device", "bedform", "share", "create ms", "write ms", "commit ms"],
        )
        self.drained = Table(
            "Until all is in the slow tier; seconds, and how many times sooner than direct writes",
            ["line", "requests", "bound", "direct", "after the commit", "drained", "sooner"],
            note="Direct writes of many requests: the first records, in proportion.",
        )

    def missing(self) -> str:
        """Returns the programs that are missing for a run."""
        return self.ours.missing() or self.direct.missing()

    def measure(self, line: str, job: Job) -> None:
        """Run the rounds of one line."""
        only_device = Rounds(job, {DEVICE: self.device}, PROBES).run(self.options.quick)
        rate = SHARE_OF_TIER * job.workload.bytes() / median(only_device.samples[DEVICE])
        self.ours.pace = self.direct.pace = Pace(rate, LATENCY)
        writers = {DEVICE: self.device, OURS: self.ours, DIRECT: self.direct}
        results = Rounds(job, writers, self.options.rounds).run(self.options.quick)
        self.report.samples[line] = results.to_dict() | {"slow tier": rate}
        self.add_rows(line, job, results, rate)
        for table in (self.returned, self.drained):
            sys.stderr.write(" | ".join(table.rows[-1]) + "\n")

    def add_rows(self, line: str, job: Job, results: Results, rate: float) -> None:
        """Adds a line to the tables, and the results of its promises."""
        total = job.workload.bytes()
        share = ratio(results.samples[DEVICE], results.samples[OURS])
        ends = results.details[OURS]["drained"]
        sooner = ratio(results.samples[DIRECT], ends)
        speeds = [
            f"{total / MEBIBYTE / median(results.samples[name]):.0f}" for name in (DEVICE, OURS)
        ]
        costs = [
            f"{(results.detail(OURS, key) or 0) * 1000:.0f}"
            for key in ("create", "write", "commit")
        ]
        self.returned.rows.append(
            [line, f"{total / MEBIBYTE:.0f}", *speeds, share.describe(), *costs]
        )
        times = [total / rate, median(results.samples[DIRECT])]
        times += [median(results.details[OURS]["drain"]), median(ends)]
        self.drained.rows.append(
            [
                line,
                str(job.workload.requests()),
                *(f"{time:.2f}" for time in times),
                sooner.describe(),
            ]
        )
        promise = f"{line}: the commit returns at 85 % of the tier"
        held = share.median >= DEVICE_SHARE
        self.report.verdicts.append(Verdict(promise, share.describe(), held))
        if line == STRIDED:
            promise = f"{line}: drained {SOONER:.0f} times sooner than direct writes"
            held = sooner.median >= SOONER
            self.report.verdicts.append(Verdict(promise, sooner.describe(), held))

    def finish(self) -> Report:
        """Close the writers and return the report."""
        for one in (self.ours, self.direct, self.device):
            self.report.settings[one.name] = one.version()
            one.close()
        data.remove(ROOT)
        data.remove(self.place)
        self.report.tables += [self.returned, self.drained]
        return self.report


def ratio(theirs: list[float], ours: list[float]) -> Ratio:
    """Returns the ratio of their time to ours, over the rounds of both."""
    rounds = min(len(theirs), len(ours))
    return paired_ratio(theirs[:rounds], ours[:rounds])


def run(options: Options) -> Report:
    """Measure each pattern."""
    report = BurstReport(options)
    if missing := report.missing():
        report.report.settings["not run"] = f"it needs {missing}"
        return report.report
    for line, parts_of in PATTERNS.items():
        if options.wants(line):
            report.measure(line, job_of(line, parts_of(options.processes), options))
    return report.finish()
