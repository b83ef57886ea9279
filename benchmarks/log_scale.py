"""`log-scale`: counted costs of commits of 20,160 processes on 240 nodes.

Every process is a real session, in a thread of one program
(`crates/bedform/examples/log_scale.rs`), with messages and storage in memory, and counted. Each
process writes 16 elements of 8 arrays per commit; a shard holds the elements of a node in a time
step. The lines with fewer nodes, and fewer processes per node, show how the figures scale.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.report import Report, Table, Verdict

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "log-scale"
CHECKOUT = Path(__file__).resolve().parents[1]
COMMITS = 2
# Nodes, and processes on each.
SIZES = ((240, 84), (240, 42), (120, 84))
QUICK_SIZES = ((24, 8), (24, 4), (12, 8))
WHOLE = "everything"
REGION = "region of one"
COLUMNS = {
    "creates": "files made",
    "opens": "opens",
    "syncs": "syncs",
    "locks": "locks",
    "reads": "reads",
    "read_bytes": "bytes read",
    "written_bytes": "bytes written",
    "messages": "messages",
    "message_bytes": "bytes of messages",
}
Found = dict[str, dict[str, Any]]


def ignore_faults() -> None:
    """Keeps the program from mapping a signal stack per thread, since mappings are limited."""
    for number in (signal.SIGSEGV, signal.SIGBUS):
        signal.signal(number, signal.SIG_IGN)


def simulate(nodes: int, per_node: int) -> Found:
    """Returns the costs of each step by its name."""
    command = ["cargo", "run", "--release", "--quiet", "-p", "bedform", "--example", "log_scale"]
    arguments = [str(number) for number in (nodes, per_node, COMMITS)]
    done = subprocess.run(  # noqa: S603
        [*command, "--", *arguments],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=ignore_faults,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("what"): line for line in lines}


def table_of(title: str, step: str, found: dict[str, Found], note: str = "") -> Table:
    """Returns the costs of a step for every size."""
    known = [name for name in COLUMNS if name in next(iter(found.values()))[step]]
    rows = [[line, *(f"{steps[step][name]:,}" for name in known)] for line, steps in found.items()]
    return Table(title, ["nodes x processes", *(COLUMNS[name] for name in known)], rows, note=note)


def run(options: Options) -> Report:
    """Simulate all sizes."""
    report = Report(NAME, options.command, {"commits": str(COMMITS)})
    found: dict[str, Found] = {}
    for nodes, per_node in QUICK_SIZES if options.quick else SIZES:
        found[f"{nodes} x {per_node}"] = simulate(nodes, per_node)
    commit = f"commit {COMMITS}"
    report.tables += [
        table_of("The session begins", "begin", found),
        table_of("A commit of all", commit, found, "The processes' data are written before it."),
        table_of("A reader: one step of one array, what one process has", REGION, found),
        table_of("A reader: one step of one array, whole", WHOLE, found),
    ]
    for (line, steps), (nodes, _) in zip(
        found.items(), QUICK_SIZES if options.quick else SIZES, strict=True
    ):
        segments, syncs = steps["data"]["segments"], steps[commit]["syncs"]
        report.verdicts += [
            Verdict(f"{line}: a file for each node", f"{segments:,}", segments == nodes),
            Verdict(f"{line}: a sync for each node, and 3", f"{syncs:,}", syncs <= nodes + 3),
        ]
    report.samples = dict(found)
    return report
