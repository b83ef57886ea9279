"""The output of E3SM as E3SM-IO writes it: five files of three cases, and decompositions.

`CASES` says of each file how many variables of which shape, type and decomposition it has; names
are our own. `synthetic_map` draws decompositions of any size: their runs are as long, and change
from process to process, as in E3SM-IO's maps of 16 processes, where the counts below were taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.decomposition import Decomposition, enlarge, merged, redistribute
from benchmarks.harness.workload import ALONE, Variable, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANKS = 16
SEED = 6
GIBIBYTE = 1 << 30
Counts = dict[int, int]


@dataclass(frozen=True)
class Group:
    """Variables that differ only in their names."""

    count: int
    dtype: str
    shape: tuple[int, ...]
    decomposition: int
    has_record: bool


@dataclass(frozen=True)
class Case:
    """One file: its map, its variables, and its largest number of records."""

    name: str
    letter: str
    groups: tuple[Group, ...]
    has_many_records: bool
    # The history file requested from E3SM-IO; empty if the case has only one.
    history: str = ""


def alone(count: int, dtype: str, *shape: int, record: bool = False) -> Group:
    """Returns variables of which process 0 writes everything."""
    return Group(count, dtype, shape, ALONE, record)


def fixed(count: int, dtype: str, number: int) -> Group:
    """Return variables without records, by the number of their decomposition."""
    return Group(count, dtype, (), number - 1, has_record=False)


def record(count: int, number: int) -> Group:
    """Return variables with records, by the number of their decomposition."""
    return Group(count, "float64", (), number - 1, has_record=True)


LEVELS, INTERFACES = 72, 73
ATMOSPHERE_FIXED = (
    alone(5, "int32"),
    alone(3, "float64", LEVELS),
    alone(1, "float64"),
    alone(3, "float64", INTERFACES),
    fixed(2, "float64", 2),
    fixed(1, "float64", 1),
    alone(2, "uint8", 8, record=True),
    alone(5, "int32", record=True),
    alone(7, "float64", record=True),
    alone(1, "float64", 2, record=True),
)
OCEAN = (
    fixed(2, "int32", 2),
    fixed(1, "int32", 4),
    fixed(1, "int32", 3),
    fixed(1, "int32", 5),
    fixed(1, "int32", 1),
    fixed(1, "float64", 1),
    alone(4, "float64", 100),
    alone(1, "uint8", 64, record=True),
    alone(6, "float64", record=True),
    record(4, 1),
    record(4, 6),
    record(24, 3),
    record(1, 4),
    record(1, 5),
)
LAND_FIXED = (
    fixed(2, "int32", 1),
    alone(2, "float64", 15),
    alone(1, "float64", 10),
    alone(1, "float64", 144),
    alone(1, "float64", 96),
    fixed(3, "float64", 1),
)
LAND_LEVELS = (fixed(6, "float64", 2), fixed(2, "float64", 3))
LAND_RECORD = (
    alone(2, "uint8", 16, record=True),
    alone(5, "int32", record=True),
    alone(1, "float64", 2, record=True),
    alone(1, "float64", record=True),
    record(460, 1),
    record(69, 2),
    record(2, 3),
    record(1, 4),
    record(1, 5),
)
CASES = {
    "F h0": Case("F h0", "f", (*ATMOSPHERE_FIXED, record(321, 2), record(63, 3)), False, "0"),
    "F h1": Case("F h1", "f", (*ATMOSPHERE_FIXED, record(20, 2), record(1, 3)), True, "1"),
    "G": Case("G", "g", OCEAN, True),
    "I h0": Case("I h0", "i", (*LAND_FIXED, *LAND_LEVELS, *LAND_RECORD), True, "0"),
    "I h1": Case("I h1", "i", (*LAND_FIXED, *LAND_RECORD), False, "1"),
}
# The axis along which each case's mesh grows, by number of axes of the decomposition.
GROWING_AXIS = {"f": -1, "g": 0, "i": -1}


@dataclass(frozen=True)
class Mesh:
    """The distribution of a mesh's elements over 16 processes, counted in a real map.

    `lengths` counts runs by their length. `steps` counts runs by the distance to the process of the
    next run, modulo the number of processes. `gaps` counts runs without a process.
    """

    cells: int
    lengths: Counts
    steps: Counts
    gaps: Counts | None = None


BLOCKS = Mesh(
    866,
    {9: 4, 10: 2, 12: 3, 15: 6, 16: 1, 18: 16, 20: 1, 21: 2, 24: 7, 27: 3, 33: 1, 36: 1},
    {-8: 1, -5: 2, -2: 6, -1: 14, 1: 15, 2: 6, 3: 2},
)
COLUMNS = Mesh(
    866,
    {1: 150, 2: 95, 3: 122, 4: 40},
    {-8: 26, -7: 13, -6: 26, -5: 40, -4: 28, -3: 96, -2: 14, 1: 13, 2: 27, 3: 55, 4: 14, 7: 54},
)
CELLS = Mesh(
    285,
    {1: 59, 2: 26, 3: 16, 4: 6, 5: 9, 6: 7, 7: 1, 8: 1},
    {-8: 3, -7: 2, -6: 18, -5: 8, -4: 1, -3: 7, -2: 9, -1: 20}
    | {1: 17, 2: 18, 3: 8, 4: 2, 5: 4, 6: 3, 7: 4},
)
EDGES = Mesh(
    879,
    {
        1: 63,
        2: 41,
        3: 26,
        4: 16,
        5: 14,
        6: 17,
        7: 12,
        8: 4,
        9: 4,
        11: 2,
        14: 2,
        15: 2,
        17: 5,
        21: 2,
    },
    {-8: 4, -7: 7, -6: 10, -5: 7, -4: 4, -3: 13, -2: 30, -1: 30}
    | {1: 34, 2: 20, 3: 13, 4: 5, 5: 10, 6: 19, 7: 7},
)
VERTICES = Mesh(
    593,
    {1: 7, 2: 2, 3: 2, 4: 6, 5: 7, 6: 34, 12: 12, 18: 4, 24: 1, 30: 1},
    {-8: 2, -6: 14, -5: 5, -3: 4, -2: 7, -1: 10, 1: 12, 2: 10, 3: 5, 4: 2, 5: 3, 6: 2, 7: 3},
)
LAND = Mesh(
    96 * 144,
    {1: 102, 2: 104, 3: 91, 4: 85, 5: 65, 6: 50, 7: 49, 8: 98, 9: 332},
    {0: 336, 1: 639},
    {
        1: 39,
        2: 27,
        3: 26,
        4: 21,
        5: 28,
        6: 25,
        8: 28,
        13: 20,
        19: 35,
        25: 36,
        34: 30,
        48: 30,
        64: 12,
    }
    | {108: 8, 144: 6},
)


def owners_of(mesh: Mesh, cells: int, seed: int) -> NDArray[np.int32]:
    """Returns the process of each of `cells` elements, drawn from the counts.

    Of two drawn steps it takes the one to the process with fewer elements, so that all have about
    as many, as in the real maps.
    """
    random = np.random.default_rng([SEED, seed])
    lengths = draw(random, mesh.lengths, cells)  # more than the number of runs
    steps = draw(random, mesh.steps, 2 * cells).reshape(-1, 2)
    gaps = np.zeros(cells, np.int64)
    if mesh.gaps:
        share = sum(mesh.gaps.values()) / sum(mesh.lengths.values())
        gaps = np.where(random.random(cells) < share, draw(random, mesh.gaps, cells), 0)
    owners = np.full(cells, -1, np.int32)
    held = [0] * RANKS
    at = rank = 0
    for length, (one, other), gap in zip(
        lengths.tolist(), steps.tolist(), gaps.tolist(), strict=True
    ):
        if at >= cells:
            break
        rank = min((rank + one) % RANKS, (rank + other) % RANKS, key=held.__getitem__)
        owners[at : at + length] = rank
        held[rank] += length
        at += length + gap
    return owners


def draw(random: np.random.Generator, counts: Counts, size: int) -> NDArray[np.int64]:
    """Draws values with the frequencies of their counts."""
    weights = np.array(list(counts.values()), float)
    return random.choice(np.array(list(counts), np.int64), size, p=weights / weights.sum())


def flat(owners: NDArray[np.int32], shape: tuple[int, ...]) -> Decomposition:
    """Returns the decomposition in which each element belongs to its owner."""
    whole = np.broadcast_to(owners, shape).reshape(-1)
    parts = []
    for rank in range(RANKS):
        elements = np.flatnonzero(whole == rank)
        parts.append(merged(elements, np.ones_like(elements), shape[-1]))
    return Decomposition(shape, tuple(p[0] for p in parts), tuple(p[1] for p in parts))


def synthetic_map(letter: str, times: int) -> list[Decomposition]:
    """Return decompositions of 16 processes on a mesh `times` as large as that of the real map."""
    if letter == "f":
        columns = COLUMNS.cells * times
        blocks = owners_of(BLOCKS, columns, 1)
        scattered = owners_of(COLUMNS, columns, 2)
        pairs = [(blocks, (columns,)), (scattered, (columns,)), (scattered, (LEVELS, columns))]
        return [flat(owners, shape) for owners, shape in pairs]
    if letter == "g":
        meshes = (CELLS, EDGES, VERTICES)
        cells, edges, vertices = (
            owners_of(mesh, mesh.cells * times, number) for number, mesh in enumerate(meshes)
        )
        found = [flat(owners, owners.shape) for owners in (cells, edges)]
        deep = ((cells, 100), (edges, 100), (vertices, 100), (cells, 101))
        return found + [flat(owners[:, None], (len(owners), levels)) for owners, levels in deep]
    land = owners_of(LAND, 96 * 144 * times, 1).reshape(96, 144 * times)
    return [flat(land, (*levels, *land.shape)) for levels in ((), (15,), (10,), (9,), (17,))]


def enlarged(letter: str, decompositions: list[Decomposition], times: int) -> list[Decomposition]:
    """Returns a map with `times` the mesh, and as many more runs of unchanged length."""
    axis = GROWING_AXIS[letter]
    return [enlarge(one, times, axis % len(one.shape)) for one in decompositions]


def variables_of(case: Case, decompositions: list[Decomposition]) -> tuple[Variable, ...]:
    """Returns the variables of a case: those without records first, the others well mixed."""
    fixed_ones = [group for group in case.groups if not group.has_record]
    others = [group for group in case.groups if group.has_record]
    ordered = [group for group in fixed_ones for _ in range(group.count)]
    places = [((n + 0.5) / group.count, group) for group in others for n in range(group.count)]
    ordered += [group for _, group in sorted(places, key=lambda place: place[0])]
    return tuple(
        Variable(
            f"{'r' if group.has_record else 'f'}{number:03}",
            group.dtype,
            group.shape if group.decomposition < 0 else decompositions[group.decomposition].shape,
            group.decomposition,
            group.has_record,
        )
        for number, group in enumerate(ordered)
    )


def workload_of(case: Case, whole: list[Decomposition], ranks: int, records: int) -> Workload:
    """Returns the data that `ranks` processes write of a case."""
    parts = tuple(redistribute(one, ranks) for one in whole)
    return Workload(case.name, ranks, records, parts, variables_of(case, whole))


def record_bytes(case: Case, whole: list[Decomposition]) -> tuple[int, int]:
    """Return the bytes of the variables without records, and of one record of the others."""
    sums = [0, 0]
    for group in case.groups:
        one = None if group.decomposition < 0 else whole[group.decomposition]
        elements = sum(map(one.elements, range(one.ranks))) if one else int(np.prod(group.shape))
        sums[group.has_record] += group.count * elements * np.dtype(group.dtype).itemsize
    return sums[0], sums[1]
