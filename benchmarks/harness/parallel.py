"""Writers of many processes, and their rounds: shared parts of all `log-*` benchmarks.

A write is measured from creating the file or store to closing it, on all processes, until every
file and directory is synced: by the writer, or here. Filling buffers and reading the map or plan
are excluded for all writers. Each output of a round is read back before it is deleted. Before the
rounds each writer tries its settings, and the rounds use the fastest. A very slow writer runs in
the first rounds only; ratios are of the rounds of both.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.harness import data
from benchmarks.harness.device import sync_tree, tree_lengths
from benchmarks.harness.statistics import Ratio, median, paired_ratio
from benchmarks.harness.worker import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.workload import Workload

ROOT = data.ROOT / "parallel"
DEVICE = "device"
OURS = "bedform"
ORDER_SEED = 7
SLOW_SECONDS = 20.0
SLOW_ROUNDS = 3
AFTER_ROUNDS = 3
TIMEOUT_SECONDS = 1800.0
# A try ends at this multiple of the fastest one before it, plus some seconds.
TRY_TIMES, TRY_SECONDS = 1.2, 5.0
# Consecutive numbers of the outputs of a run.
OUTPUTS = itertools.count(1)


@dataclass(frozen=True)
class Job:
    """A workload, and the files that describe it to writers."""

    workload: Workload
    plans: tuple[Path, ...]
    # For E3SM-IO: the map, and the history file; empty for other workloads.
    map_file: Path | None = None
    history: str = ""


@dataclass
class Outcome:
    """One write: the seconds until all is durable, and figures of some writers only."""

    seconds: float
    details: dict[str, float] = field(default_factory=dict)


class TooSlowError(RuntimeError):
    """The processes of a write exceeded their time."""


class Writer:
    """A writer of workloads, with its version and its missing requirements."""

    name = ""
    # Time limit of a write in seconds.
    timeout_seconds = TIMEOUT_SECONDS

    def version(self) -> str:
        """Return the version for the report."""
        raise NotImplementedError

    def missing(self) -> str:
        """Returns the missing requirements of this writer, empty if it can run."""
        return ""

    def can_write(self, job: Job) -> bool:  # noqa: ARG002
        """Whether the writer supports this kind of workload."""
        return True

    def variants(self, job: Job) -> list[str]:  # noqa: ARG002
        """Returns the settings to try first."""
        return [""]

    def refinements(self, job: Job, best: str) -> list[str]:  # noqa: ARG002
        """Returns further settings to try, derived from the fastest; none ends the search."""
        return []

    def environment(self, variant: str) -> dict[str, str]:  # noqa: ARG002
        """Returns the environment variables of a setting."""
        return {}

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Write into an empty folder, durably."""
        raise NotImplementedError

    def check(self, job: Job, folder: Path) -> None:
        """Read back and compare; raises `ValueError` if anything is wrong."""
        raise NotImplementedError

    def command(self, job: Job, folder: Path, variant: str) -> list[str] | None:  # noqa: ARG002
        """Returns the command of each process, for counting its calls, if there is one."""
        return None

    def close(self) -> None:
        """Ends the processes that were started."""

    def after(self, job: Job, folder: Path) -> dict[str, float]:  # noqa: ARG002
        """Returns further measurements of an output after its check."""
        return {}


class DeviceWriter(Writer):
    """The device: one file per process with the same bytes, written in parallel."""

    name = DEVICE

    def __init__(self) -> None:
        self.worker: WorkerProcess | None = None

    def version(self) -> str:
        """Returns the way in which the device is driven."""
        return "synced sequential writes of the same bytes, a file for each process"

    def variants(self, job: Job) -> list[str]:  # noqa: ARG002
        """Returns numbers of threads and sizes of requests."""
        return ["buffered 2 4096", "direct 4 4096", "direct 16 4096"]

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Write one file for each process."""
        self.worker = self.worker or WorkerProcess(DEVICE)
        lengths = [max(job.workload.rank_bytes(rank), 1) for rank in range(job.workload.ranks)]
        return Outcome(self.worker.call("write_lengths", folder / "data", lengths, variant))

    def check(self, job: Job, folder: Path) -> None:
        """Checks only the lengths, since the bytes are meaningless."""
        if sum(tree_lengths(folder)) < job.workload.bytes():
            raise ValueError("the device wrote too little")

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()


def mpiexec(
    ranks: int,
    command: list[str],
    environment: dict[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    may_fail: bool = False,
) -> str:
    """Runs a program on several processes and returns its output; with `may_fail` also stderr.

    Raises
    ------
    TooSlowError
        It exceeded its time, and was killed.
    RuntimeError
        It failed; the message has its last lines.
    """
    launcher = os.environ.get("MPIEXEC", "mpiexec")
    whole = [launcher, "-n", str(ranks), *command]
    try:
        done = subprocess.run(  # noqa: S603 (a program that the user named)
            whole,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise TooSlowError(f"{whole} did not end in {timeout:.0f} seconds") from error
    if may_fail:
        return done.stdout + done.stderr
    if done.returncode != 0:
        raise RuntimeError(f"{whole} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def launcher_missing() -> str:
    """Returns the missing requirements for starting processes, empty if there are none."""
    if shutil.which(os.environ.get("MPIEXEC", "mpiexec")):
        return ""
    return "mpiexec of an MPI (a package mpich of the system or of pip; or name it in MPIEXEC)"


def synced(folder: Path) -> float:
    """Make everything in a folder durable and return the seconds it took."""
    start = time.perf_counter()
    sync_tree(folder)
    return time.perf_counter() - start


@dataclass
class Results:
    """The samples of one job."""

    samples: dict[str, list[float]]
    details: dict[str, dict[str, list[float]]]
    variants: dict[str, str]
    # The seconds of each tried setting; infinite if the try was stopped.
    tried: dict[str, dict[str, float]] = field(default_factory=dict)

    def ratio(self, name: str, other: str) -> Ratio | None:
        """Return the time of one writer over that of another, in the rounds of both."""
        ours, theirs = self.samples.get(name, []), self.samples.get(other, [])
        rounds = min(len(ours), len(theirs))
        return paired_ratio(ours[:rounds], theirs[:rounds]) if rounds else None

    def settled(self) -> list[float]:
        """Return the seconds of our write and of settling, of the rounds that settled."""
        settling = self.details.get(OURS, {}).get("settle", [])
        return [sum(pair) for pair in zip(self.samples.get(OURS, []), settling, strict=False)]

    def with_settling(self) -> Results:
        """Return these results with the time of settling in ours."""
        return Results({**self.samples, OURS: self.settled()}, self.details, self.variants)

    def detail(self, name: str, key: str) -> float | None:
        """Returns the median of a further figure, if the writer has it."""
        values = self.details.get(name, {}).get(key, [])
        return median(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything for the JSON file."""
        return {
            "seconds": self.samples,
            "details": self.details,
            "variants": self.variants,
            "tried": {
                name: {
                    one: seconds if seconds < math.inf else None for one, seconds in tries.items()
                }
                for name, tries in self.tried.items()
            },
        }


class Rounds:
    """Interleaved rounds of one job over some writers."""

    def __init__(self, job: Job, writers: dict[str, Writer], rounds: int) -> None:
        self.job, self.writers, self.rounds = job, writers, rounds
        self.details: dict[str, dict[str, list[float]]] = {name: {} for name in writers}
        self.tried: dict[str, dict[str, float]] = {}

    def once(self, name: str, variant: str, round_number: int | None) -> float:
        """Writes once into a new folder, checks and empties it; the device is idle before.

        Without a round number it is a try, which is not checked. Measurements after a write are
        made in the first rounds only.
        """
        folder = ROOT / "written" / f"{next(OUTPUTS)}-{name.replace(' ', '-')}"
        data.remove(folder)
        folder.mkdir(parents=True)
        os.sync()
        writer = self.writers[name]
        outcome = writer.write(self.job, folder, variant)
        if round_number is not None:
            writer.check(self.job, folder)
            details = outcome.details
            if round_number < AFTER_ROUNDS:
                details = details | writer.after(self.job, folder)
            for key, value in details.items():
                self.details[name].setdefault(key, []).append(value)
        data.empty(folder)
        return outcome.seconds

    def try_once(self, name: str, variant: str, fastest: float) -> float:
        """Returns the seconds of a setting; infinity if it is stopped, far behind the fastest."""
        writer = self.writers[name]
        writer.timeout_seconds = min(TRY_TIMES * fastest + TRY_SECONDS, TIMEOUT_SECONDS)
        try:
            return self.once(name, variant, None)
        except TooSlowError:
            if fastest == math.inf:
                raise
            return math.inf
        finally:
            writer.timeout_seconds = TIMEOUT_SECONDS

    def fastest(self, name: str, quick: bool) -> tuple[str, float]:
        """Try a writer's settings, and return the fastest and its seconds."""
        writer = self.writers[name]
        tried: dict[str, float] = {}
        waiting = writer.variants(self.job)[: 1 if quick else None]
        while waiting:
            for one in waiting:
                tried[one] = self.try_once(name, one, min(tried.values(), default=math.inf))
            best = min(tried, key=lambda one: tried[one])
            more = [] if quick else writer.refinements(self.job, best)
            waiting = [one for one in more if one not in tried]
        self.tried[name] = tried
        return best, tried[best]

    def run(self, quick: bool) -> Results:
        """Choose each writer's fastest setting, then run the rounds."""
        chosen: dict[str, str] = {}
        capped: set[str] = set()
        for name in self.writers:
            chosen[name], seconds = self.fastest(name, quick)
            if seconds > SLOW_SECONDS:
                capped.add(name)
        samples: dict[str, list[float]] = {name: [] for name in self.writers}
        order = random.Random(ORDER_SEED)  # noqa: S311 (a shuffle, not a secret)
        names = list(self.writers)
        for number in range(self.rounds):
            for name in order.sample(names, len(names)):
                if number < SLOW_ROUNDS or name not in capped:
                    samples[name].append(self.once(name, chosen[name], number))
        return Results(samples, self.details, chosen, self.tried)
