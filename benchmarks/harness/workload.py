"""The output of a parallel program: its variables, their division among processes, and the values.

A workload is the same for all writers. Our driver in C gets one plan file per process
(`write_plans`), so that it needs no library to read it. Every element of a variable has the value
`value_of(owner, variable)`, which every type represents exactly. So each answer can be checked
without a second copy of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.decomposition import Blocks, Decomposition

MAGIC = 0x0001_4E41_4C50_4642
NAME_BYTES = 64
RANK_STEP = 1
VARIABLE_STEP = 64
TYPES = ("uint8", "int32", "float32", "float64")
ALONE = -1


@dataclass(frozen=True)
class Variable:
    """A variable; `shape` excludes records, `decomposition` is `ALONE` if process 0 has all."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    decomposition: int
    has_record: bool

    @property
    def item(self) -> int:
        """Return the bytes of an element."""
        return np.dtype(self.dtype).itemsize

    def full_shape(self, records: int) -> tuple[int, ...]:
        """Return the shape with the records."""
        return (records, *self.shape) if self.has_record else self.shape


@dataclass(frozen=True)
class Workload:
    """The data that a number of processes write in one run."""

    name: str
    ranks: int
    records: int
    decompositions: tuple[Decomposition, ...] | tuple[Blocks, ...]
    variables: tuple[Variable, ...]

    def elements(self, variable: Variable, rank: int) -> int:
        """Returns the number of elements of a process in a record of a variable."""
        if variable.decomposition == ALONE:
            return int(np.prod(variable.shape)) if rank == 0 else 0
        return self.decompositions[variable.decomposition].elements(rank)

    def rank_bytes(self, rank: int) -> int:
        """Returns the bytes that a process writes."""
        return sum(
            self.elements(one, rank) * one.item * (self.records if one.has_record else 1)
            for one in self.variables
        )

    def bytes(self) -> int:
        """Returns the bytes that all processes write."""
        return sum(map(self.rank_bytes, range(self.ranks)))

    def requests(self) -> int:
        """Return the number of runs of all variables and records."""
        counts = [one.runs for one in self.decompositions]
        return sum(
            (1 if one.decomposition == ALONE else counts[one.decomposition])
            * (self.records if one.has_record else 1)
            for one in self.variables
        )

    def expected(self, number: int, fill: int = 0) -> NDArray[np.generic]:
        """Returns the expected values of one record of variable `number`."""
        one = self.variables[number]
        if one.decomposition == ALONE:
            owners = np.zeros(one.shape, np.int32)
        else:
            owners = self.decompositions[one.decomposition].owners()
        values = np.where(owners < 0, fill, value_of(owners, number, one.dtype))
        return values.astype(one.dtype)

    def samples(self) -> list[int]:
        """Return variables to check: first and last of each decomposition, type and kind."""
        kinds: dict[tuple[object, ...], list[int]] = {}
        for number, one in enumerate(self.variables):
            key = (one.decomposition, one.dtype, one.has_record)
            kinds.setdefault(key, []).append(number)
        return sorted({number for found in kinds.values() for number in (found[0], found[-1])})


def value_of(rank: NDArray[np.int32] | int, variable: int, dtype: str) -> NDArray[np.int64]:
    """Returns the value of the elements of a variable that belong to a process.

    >>> int(value_of(3, 2, "float64")), int(value_of(3, 300, "uint8"))
    (131, 127)
    """
    value = np.asarray(rank, np.int64) * RANK_STEP + variable * VARIABLE_STEP
    return value % 251 if dtype == "uint8" else value


def write_plans(workload: Workload, folder: Path) -> list[Path]:
    """Writes the plan of each process: 64-bit little-endian integers, as `drivers/plan.h` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(workload.ranks):
        path = folder / f"{workload.name.replace(' ', '-')}-{workload.ranks}-{rank}.plan"
        head = [MAGIC, rank, workload.ranks, workload.records]
        parts = [[*head, len(workload.decompositions), len(workload.variables)]]
        with path.open("wb") as file:
            file.write(np.array(parts, "<i8").tobytes())
            for one in workload.decompositions:
                corners, shapes = one.boxes(rank)
                file.write(np.array([len(one.shape), *one.shape, len(corners)], "<i8").tobytes())
                file.write(corners.astype("<i8").tobytes())
                file.write(shapes.astype("<i8").tobytes())
            for one in workload.variables:
                file.write(one.name.encode().ljust(NAME_BYTES, b"\0"))
                numbers = [TYPES.index(one.dtype), one.has_record, one.decomposition]
                file.write(np.array([*numbers, len(one.shape), *one.shape], "<i8").tobytes())
        paths.append(path)
    return paths
