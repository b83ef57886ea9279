"""`log-s3d`: checkpoints of S3D: blocks of 50^3 with 11 + 3 + 1 + 1 components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.decomposition import Blocks
from benchmarks.harness.workload import Variable
from benchmarks.log_blocks import Parts, measure

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

NAME = "log-s3d"
EDGE = 50
VARIABLES = {"species": 11, "velocity": 3, "temperature": 1, "pressure": 1}


def grid(ranks: int) -> tuple[int, int, int]:
    """Returns the number of processes along each axis, as equal as possible.

    >>> grid(2), grid(4), grid(16)
    ((2, 1, 1), (2, 2, 1), (4, 2, 2))
    """
    found = [(i, j, ranks // i // j) for i in range(1, ranks + 1) for j in range(1, i + 1)]
    sound = [one for one in found if np.prod(one) == ranks and one[1] >= one[2]]
    return min(sound, key=max)


def blocks(ranks: int, components: int) -> Blocks:
    """Return one block of all components for each process."""
    processes = grid(ranks)
    shape = [components, *(count * EDGE for count in processes)]
    places = np.stack(np.unravel_index(np.arange(ranks), processes), axis=1) * EDGE
    size = np.array([[components, EDGE, EDGE, EDGE]])
    corners = tuple(np.array([[0, *place]]) for place in places)
    return Blocks(tuple(shape), corners, (size,) * ranks)


def parts(ranks: int) -> Parts:
    """Returns the data that `ranks` processes write of a checkpoint."""
    counts = sorted(set(VARIABLES.values()))
    found = tuple(blocks(ranks, count) for count in counts)
    variables = [
        Variable(name, "float64", found[at].shape, at, has_record=True)
        for name, at in ((name, counts.index(count)) for name, count in VARIABLES.items())
    ]
    return found, tuple(variables)


def run(options: Options) -> Report:
    """Measure each number of processes."""
    return measure(NAME, options, parts)
