"""`prefetch`: loops that read and compute, with reads made ahead, without, and doubly buffered.

The patterns are those of PIO-Bench (contiguous, simple-strided, nested, tiled, segmented and
random-strided), and of the paper's climate kernel: the hours 5, 6, 14 and 15 of each day. A read is
of one chunk, cold, from the disk and from a store as slow as a busy parallel file system; between
two reads the program computes for 0.5, 1 and 2 times what a read takes. *loop* is what a user would
write: a thread reads the next chunk, which he knows, while the program computes. The *bound* of
what overlapping alone can cut is the smaller of reading and computing, over both.

The parts, each a module of `reads_ahead`: patterns, training over shuffled samples, the climate
kernel of many processes, other readers, any program under `bedform run`, the cost of following and
tracing reads, accesses that are missed, and the logs of Darshan.

Table 1 and section 2.4 of the paper: computing as long as reading, up to 26 % were cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import data
from benchmarks.harness.report import Report
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.reads_ahead import misses, overhead, patterns, peers, preload, processes, training
from benchmarks.reads_ahead.loops import rounds_of

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "prefetch"
PARTS = (patterns, training, processes, peers, preload, overhead, misses)


def run(options: Options) -> Report:
    """Run the lines that were asked for, part by part."""
    data.ROOT.mkdir(exist_ok=True)
    rounds = f"{rounds_of(options)}, {rounds_of(options, is_long=True)} of long runs"
    lines = {"lines": ", ".join(options.only)} if options.only else {}
    settings = {"rounds": rounds, **lines}
    report = Report(NAME, options.command, settings)
    report.settings["slow store"] = THROTTLES["slow store"]
    for part in PARTS:
        part.run(options, report)
    return report
