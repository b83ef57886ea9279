"""The writers of `burst`: through the tier into the log, and directly to the final places.

The slow tier is a directory in memory, if there is one, throttled by `Pace`. So draining does not
use the device of the burst tier, as on a machine with two devices.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.log_writer import CHECKOUT, LogWriter, compiler
from benchmarks.harness.parallel import (
    ROOT,
    Job,
    Outcome,
    Writer,
    launcher_missing,
    mpiexec,
)

DIRECT = "direct"
DIRECT_SOURCE = CHECKOUT / "benchmarks" / "drivers" / "direct_write.c"
DIRECT_SECONDS = 8.0
MEMORY = Path("/dev/shm")  # noqa: S108 (the place is the point: it takes no part of the device)


@dataclass(frozen=True)
class Pace:
    """The throttle of the slow tier, for all processes together."""

    bytes_per_second: float
    latency: float

    def share(self, processes: int) -> int:
        """Returns the bytes per second of one process."""
        return max(int(self.bytes_per_second / processes), 1)

    def throttle(self, processes: int) -> str:
        """Returns the share of one process as a value of BEDFORM_THROTTLE.

        >>> Pace(4e9, 0.005).throttle(2)
        '2000000000 B/s, 5000 us'
        """
        return f"{self.share(processes)} B/s, {self.latency * 1e6:.0f} us"


def capacity_place(given: Path | None) -> Path:
    """Returns the directory of the slow tier: the given one, else in memory, else on the disk."""
    parent = given or (MEMORY if MEMORY.is_dir() else ROOT)
    return parent / "bedform-benchmarks"


class BurstWriter(LogWriter):
    """A session whose commit returns when all data are durable in the burst tier."""

    def __init__(self, prefix: str | None, place: Path) -> None:
        super().__init__(prefix)
        self.place = place
        self.pace = Pace(1e9, 0)

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Run the driver: the store in the slow tier, the burst tier in the folder."""
        data.remove(self.place)
        self.place.mkdir(parents=True)
        burst = folder / "burst"
        environment = {
            "BEDFORM_BURST": str(burst),
            "BEDFORM_THROTTLE": self.pace.throttle(job.workload.ranks),
        }
        command = [*self.command(job, self.place, variant)[:-1], "node"]
        printed = mpiexec(job.workload.ranks, command, environment)
        spans: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
        seconds = spans.pop("seconds")
        if any(entry.is_file() for entry in burst.rglob("*")):
            raise ValueError("something was left in the burst tier")
        return Outcome(seconds, spans | {"drained": seconds + spans["drain"]})

    def check(self, job: Job, folder: Path) -> None:  # noqa: ARG002
        """Read back over the log, without the throttle."""
        super().check(job, self.place)

    def after(self, job: Job, folder: Path) -> dict[str, float]:  # noqa: ARG002
        """Does not settle."""
        return {}


class DirectWriter(Writer):
    """Writer of each process's runs to their final places in one file of the slow tier, synced.

    If that takes too long, it writes only the first records, and the time is scaled, since all
    records are alike.
    """

    name = DIRECT

    def __init__(self, place: Path) -> None:
        self.place = place
        self.pace = Pace(1e9, 0)
        self.driver: Path | None = None

    def version(self) -> str:
        """Returns its way of writing."""
        return "runs of each process, one at a time, in one flat file; nothing is exchanged"

    def missing(self) -> str:
        """Returns the missing requirements of this writer."""
        if not shutil.which(compiler()):
            return "mpicc of an MPI (or name it in MPICC)"
        return launcher_missing()

    def program(self) -> Path:
        """Return the compiled driver."""
        if self.driver is None:
            folder = ROOT / "direct"
            folder.mkdir(parents=True, exist_ok=True)
            self.driver = folder / "direct_write"
            command = [compiler(), "-O2", "-w", str(DIRECT_SOURCE), "-o", str(self.driver)]
            subprocess.run(command, check=True)  # noqa: S603
        return self.driver

    def records(self, job: Job) -> int:
        """Returns the number of written records."""
        workload = job.workload
        requests = workload.requests() / workload.ranks * self.pace.latency
        seconds = requests + workload.bytes() / self.pace.bytes_per_second
        return min(workload.records, max(int(workload.records * DIRECT_SECONDS / seconds), 1))

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:  # noqa: ARG002
        """Run the driver."""
        data.remove(self.place)
        self.place.mkdir(parents=True)
        prefix = str(job.plans[0]).removesuffix("-0.plan")
        records, share = self.records(job), self.pace.share(job.workload.ranks)
        numbers = [str(share), str(self.pace.latency), str(records)]
        command = [str(self.program()), str(self.place / "flat"), prefix, *numbers]
        spans: dict[str, Any] = json.loads(mpiexec(job.workload.ranks, command).splitlines()[-1])
        times = job.workload.records / records
        return Outcome(spans["seconds"] * times, {"records": records})

    def check(self, job: Job, folder: Path) -> None:  # noqa: ARG002
        """Compare samples of the variables in the last record that was written."""
        workload = job.workload
        lengths = [int(np.prod(one.shape)) * one.item for one in workload.variables]
        starts = np.cumsum([0, *lengths]) + sum(lengths) * (self.records(job) - 1)
        for number in workload.samples():
            one = workload.variables[number]
            found = np.memmap(self.place / "flat", one.dtype, "r", int(starts[number]), one.shape)
            if not np.all(found == workload.expected(number)):
                raise ValueError(f"{one.name} has wrong values")
        data.remove(self.place)
