"""Shared parts of `log-s3d` and `log-flash`: mesh blocks, written by 2, 4 and 16 processes.

The comparison is with ADIOS2 BP5 and the device. A line is a number of processes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.harness import data
from benchmarks.harness.adios import Adios
from benchmarks.harness.log_report import (
    LogReport,
    Promise,
    at_least,
    at_most,
    share_of_device,
)
from benchmarks.harness.log_writer import LogWriter
from benchmarks.harness.parallel import ROOT, DeviceWriter, Job
from benchmarks.harness.workload import Workload, write_plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.decomposition import Blocks
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report
    from benchmarks.harness.workload import Variable

BYTES = 1 << 30
Parts = tuple[tuple["Blocks", ...], tuple["Variable", ...]]
PROMISES = [
    Promise("85 % of the device's own synced write", share_of_device),
    Promise("ahead of ADIOS2", at_least(Adios.name, 1.0)),
    Promise("metadata and padding under 2 % of the data", at_most("overhead", 0.02)),
]


def job_of(name: str, parts: Parts, ranks: int, quick: bool) -> Job:
    """Returns the job with as many records as 1 GiB needs; two in a quick run."""
    one = Workload(name, ranks, 1, *parts)
    records = 2 if quick else max(-(-BYTES // one.bytes()), 1)
    workload = Workload(name, ranks, records, *parts)
    folder = ROOT / "plans"
    data.remove(folder)
    return Job(workload, tuple(write_plans(workload, folder)))


def measure(name: str, options: Options, parts_of: Callable[[int], Parts]) -> Report:
    """Measures each number of processes; `parts_of` returns the data for that many."""
    prefix = options.bedform or os.environ.get("BEDFORM_PREFIX")
    report = LogReport(name, options, [Adios(), LogWriter(prefix), DeviceWriter()])
    for ranks in options.ranks:
        line = str(ranks)
        if options.wants(line):
            report.measure(line, job_of(name, parts_of(ranks), ranks, options.quick), PROMISES)
    return report.finish()
