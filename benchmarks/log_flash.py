"""`log-flash`: FLASH's files: 80 to 82 blocks a process; 24 variables, and two plots of 4.

The checkpoint is double, with blocks of 16^3; the plots are single, of 16^3 and of 17^3 corners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.decomposition import Blocks
from benchmarks.harness.workload import Variable
from benchmarks.log_blocks import Parts, measure

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

NAME = "log-flash"
BLOCKS, MORE = 80, 3
CELLS, CORNERS = 16, 17
GROUPS = (("check", 24, "float64", 0), ("plot", 4, "float32", 0), ("corner", 4, "float32", 1))


def blocks(ranks: int, edge: int) -> Blocks:
    """Return the blocks of each process: neighbours along the first axis."""
    counts = [BLOCKS + rank % MORE for rank in range(ranks)]
    starts = np.cumsum([0, *counts])
    shape = (int(starts[-1]), edge, edge, edge)
    corners = tuple(np.array([[start, 0, 0, 0]]) for start in starts[:-1])
    return Blocks(shape, corners, tuple(np.array([[count, edge, edge, edge]]) for count in counts))


def parts(ranks: int) -> Parts:
    """Returns the data that `ranks` processes write of one output."""
    found = (blocks(ranks, CELLS), blocks(ranks, CORNERS))
    variables = [
        Variable(f"{group}{number:02}", dtype, found[at].shape, at, has_record=True)
        for group, count, dtype, at in GROUPS
        for number in range(count)
    ]
    return found, tuple(variables)


def run(options: Options) -> Report:
    """Measure each number of processes."""
    return measure(NAME, options, parts)
