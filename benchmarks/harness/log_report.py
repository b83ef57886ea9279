"""Tables and promises of the `log-*` benchmarks: times of the writers, costs of a commit.

Each line has two rows. `committed` is Bedform's time until the commit returns; `settled` adds the
time of `settle`, after which the array lies in shards, ready for readers. The peers' times are the
same in both, since their files are finished.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness import calls, data
from benchmarks.harness.parallel import DEVICE, OURS, ROOT, Results, Rounds, Writer, mpiexec
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.options import Options
    from benchmarks.harness.parallel import Job

MEBIBYTE = 1 << 20
DEVICE_SHARE = 0.85
# The measurement in words, and whether the promise holds; None if a writer did not run.
Judgement = tuple[str, bool] | None
PHASES = ("create", "declare", "write", "commit", "settle")
COMMITTED, SETTLED = "committed", "settled"


@dataclass(frozen=True)
class Promise:
    """A promised figure."""

    text: str
    judge: Callable[[Results], Judgement]

    def verdict(self, line: str, results: Results) -> Verdict:
        """Returns the result of the promise."""
        found = self.judge(results)
        text = f"{line}: {self.text}"
        return Verdict(text, *found) if found else Verdict(text, "-", None)


def times_faster(results: Results, peer: str) -> tuple[str, float] | None:
    """Returns our speedup over a peer, in words and as a number."""
    ratio = results.ratio(peer, OURS)
    return (ratio.describe(), ratio.median) if ratio else None


def at_least(peer: str, times: float) -> Callable[[Results], Judgement]:
    """Promises a speedup over a peer."""

    def judge(results: Results) -> Judgement:
        found = times_faster(results, peer)
        return (found[0], found[1] >= times) if found else None

    return judge


def share_of_device(results: Results) -> Judgement:
    """Promises a share of the device's bandwidth."""
    found = times_faster(results, DEVICE)
    return (found[0], found[1] >= DEVICE_SHARE) if found else None


def at_most(detail: str, limit: float) -> Callable[[Results], Judgement]:
    """Promises that a detail of our writer stays under a limit."""

    def judge(results: Results) -> Judgement:
        value = results.detail(OURS, detail)
        return None if value is None else (f"{value:.2%}", value < limit)

    return judge


def settled_ahead(peer: str) -> Callable[[Results], Judgement]:
    """Promise that writing and settling together are faster than the peer's write."""

    def judge(results: Results) -> Judgement:
        return at_least(peer, 1.0)(results.with_settling())

    return judge


class LogReport:
    """A report that gets its lines one by one, and prints its state on standard error."""

    def __init__(self, name: str, options: Options, writers: list[Writer]) -> None:
        self.options = options
        self.report = Report(name, options.command, {"rounds": str(options.rounds)})
        if options.only:
            self.report.settings["lines"] = ", ".join(options.only)
        self.writers = {}
        for writer in writers:
            missing = writer.missing()
            if missing:
                self.report.settings[writer.name] = f"not run, it needs {missing}"
                sys.stderr.write(f"{writer.name} does not run, it needs {missing}\n")
            else:
                self.writers[writer.name] = writer
        names = [writer.name for writer in writers]
        columns = ["line", "MiB", "runs", "bedform until", *names]
        self.speeds = Table("Written and synced; MiB/s", columns)
        self.peers = [name for name in names if name != OURS]
        self.ratios = Table(
            "Times as fast as each writer; the device's is our share of it",
            ["line", "bedform until", *self.peers],
        )
        self.settings = Table("Fastest settings, which the rounds use", ["line", *self.peers])
        columns = ["line", *(f"{phase} ms" for phase in PHASES), "files", "overhead"]
        self.costs = Table("Bedform: the parts of the time, and what is not data", columns)
        columns = ["line", "writer", "writes", "bytes a write", "files made", "syncs"]
        self.counts = Table("Calls on the output's files, all processes", columns)

    def measure(self, line: str, job: Job, promises: list[Promise]) -> None:
        """Run the rounds of one line."""
        writers = {name: one for name, one in self.writers.items() if one.can_write(job)}
        results = Rounds(job, writers, self.options.rounds).run(self.options.quick)
        self.report.samples[line] = results.to_dict()
        self.add_rows(line, job, results)
        self.report.verdicts += [promise.verdict(line, results) for promise in promises]
        for table in (self.speeds, self.ratios, self.costs, self.settings):
            for row in [row for row in table.rows if row[0] == line]:
                sys.stderr.write(" | ".join(row) + "\n")
        self.count_calls(line, job, results.variants)

    def add_rows(self, line: str, job: Job, results: Results) -> None:
        """Add a line to the tables."""
        for until, found in ((COMMITTED, results), (SETTLED, results.with_settling())):
            self.add_comparison(line, until, job, found)
        chosen = [results.variants.get(name) for name in self.peers]
        self.settings.rows.append([line, *(f"`{one}`" if one else "-" for one in chosen)])
        costs = [results.detail(OURS, phase) for phase in PHASES]
        row = [line, *("-" if cost is None else f"{cost * 1000:.0f}" for cost in costs)]
        files, overhead = (results.detail(OURS, key) for key in ("files", "overhead"))
        row += ["-" if files is None else f"{files:.0f}"]
        self.costs.rows.append([*row, "-" if overhead is None else f"{overhead:.2%}"])

    def add_comparison(self, line: str, until: str, job: Job, results: Results) -> None:
        """Adds the comparison of times until the commit has returned, or until all is settled."""
        if not results.samples.get(OURS) and until == SETTLED:
            return
        mebibytes = job.workload.bytes() / MEBIBYTE
        row = [line, f"{mebibytes:.0f}", str(job.workload.requests()), until]
        for name in self.speeds.columns[len(row) :]:
            samples = results.samples.get(name)
            row.append(f"{mebibytes / median(samples):.0f}" if samples else "-")
        self.speeds.rows.append(row)
        ratios = [line, until]
        for name in self.peers:
            found = times_faster(results, name)
            # No share of the device is promised for settling.
            is_device = name == DEVICE
            limit = (0.0 if until == SETTLED else DEVICE_SHARE) if is_device else 1.0
            is_loss = found is not None and found[1] < limit
            ratios.append((found[0] if found else "-") + (" LOSS" if is_loss else ""))
        self.ratios.rows.append(ratios)

    def count_calls(self, line: str, job: Job, chosen: dict[str, str]) -> None:
        """Runs the MPI writers once more, traced."""
        if not calls.is_here():
            return
        for name, writer in self.writers.items():
            folder = ROOT / "traced"
            data.remove(folder)
            (folder / "output").mkdir(parents=True)
            if not writer.can_write(job):
                continue
            command = writer.command(job, folder / "output", chosen[name])
            if command is None:
                continue
            traced = calls.traced(command, folder / "calls")
            mpiexec(job.workload.ranks, traced, writer.environment(chosen[name]))
            found = calls.count(folder / "calls", folder / "output")
            average = found.bytes // max(found.writes, 1)
            cells = [found.writes, average, found.files, found.syncs]
            self.counts.rows.append([line, name, *map(str, cells)])
            data.remove(folder)

    def finish(self) -> Report:
        """Close the writers and return the report."""
        for name, writer in self.writers.items():
            self.report.settings[name] = writer.version()
            writer.close()
        data.remove(ROOT)
        self.report.tables += [self.speeds, self.ratios, self.costs, self.settings]
        if self.counts.rows:
            self.counts.note = "Peers leave the syncs to the benchmark."
            self.report.tables.append(self.counts)
        return self.report
