"""`prefetch`: loops of reads and computing, with readahead, without, and double-buffered.

The patterns are those of PIO-Bench (contiguous, simple-strided, nested, tiled, segmented and
random-strided), and of the paper's climate kernel: the hours 5, 6, 14 and 15 of each day. A read is
of one chunk, cold, from the disk and from a store as slow as a busy parallel file system. Between
reads the program computes for 0.5, 1 and 2 times the duration of a read. *loop* is a hand-written
double buffer: a thread reads the next chunk, known in advance, while the program computes. The
*bound* is the most that overlap alone can save: the smaller of reading and computing, over both.

The parts, each a module of `reads_ahead`: patterns, training over shuffled samples, the climate
kernel of many processes, other readers, any program under `bedform run`, the cost of following and
tracing reads, accesses that are missed, and the logs of Darshan.

The paper's figure (Table 1 and section 2.4): with computing as long as reading, up to 26 % saved.
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
    """Runs the requested lines, part by part."""
    data.ROOT.mkdir(exist_ok=True)
    rounds = f"{rounds_of(options)}, {rounds_of(options, is_long=True)} of long runs"
    lines = {"lines": ", ".join(options.only)} if options.only else {}
    settings = {"rounds": rounds, **lines}
    report = Report(NAME, options.command, settings)
    report.settings["slow store"] = THROTTLES["slow store"]
    for part in PARTS:
        part.run(options, report)
    return report
