"""`replica-overhead`: the cost of 16 replicas for reads that use none of them.

Replicas of series hold the northern half of each map. Boxes of 64 KiB and 1 MiB, rows of single
maps and 1,000 points are read in the southern half, at random places, warm, in turns: with
`replicas=False` and with the catalogue. Opening a file and its first read, which reads the
catalogue, are measured as well, cold.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, milliseconds
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import OURS, PEERS, WITHOUT
from benchmarks.replicas.trials import (
    Line,
    ReplicaTrial,
    Subject,
    forget_replicas,
    in_process,
    job_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.options import Options

NAME = "replica-overhead"
REPLICAS = 16
ROWS_OF_REPLICA = 8
POINTS = 1000
#: Reads of a turn, number of turns, and the allowed ratios.
BOX_TURN, POINT_TURN = 100, 10
TURNS, QUICK_TURNS = 200, 40
BOX_MAX, POINT_MAX = 1.01, 1.05
#: Steps, rows and columns of boxes.
BOXES = {"boxes/64 KiB": (4, 16, 256), "boxes/1 MiB": (16, 64, 256), "boxes/1 KiB": (1, 1, 256)}
LINES = (*BOXES, "points")
OPENING = "opening and first read"
VARIANTS = (WITHOUT, OURS)


def field_of(is_quick: bool) -> Field:
    """Return the variable."""
    steps = 128 if is_quick else 512
    return Field("t", ("time", "lat", "lon"), (steps, 256, 256), "float32")


def make_replicas(file: Subject[Field], count: int) -> None:
    """Make replicas of series, each of some rows of the northern half."""
    forget_replicas(file.path)
    for number in range(count):
        first = number * ROWS_OF_REPLICA
        region = {"lat": (first, first + ROWS_OF_REPLICA)}
        bf.optimize(file.path, "100%", reads={"time": 1}, region=region)
    made = list((file.path.parent / f"{file.path.name}.bedform" / "replicas").iterdir())
    if len(made) != count:
        raise RuntimeError(f"{len(made)} replicas instead of {count}")


def readers_of(name: str, of: Field, array: Any) -> Callable[[np.random.Generator], Any]:
    """Returns functions that read at a random place, and return selection and values."""
    steps, rows, columns = of.shape
    half = rows // 2

    def points(places: np.random.Generator) -> Any:
        at = [
            places.integers(first, end, POINTS)
            for first, end in ((0, steps), (half, rows), (0, columns))
        ]
        return at, array.vindex[tuple(at)]

    def box(places: np.random.Generator) -> Any:
        depth, height, width = BOXES[name]
        step = int(places.integers(0, steps - depth + 1))
        row = int(places.integers(half, rows - height + 1))
        at = (slice(step, step + depth), slice(row, row + height), slice(0, width))
        return at, array[at]

    return points if name == "points" else box


def check(of: Field, selection: Any, values: Any) -> None:
    """Compares a read with the written values: of a box, or of lists of points."""
    if isinstance(selection, list):
        points = zip(*(axis.tolist() for axis in selection), strict=True)
        is_right = np.array_equal(values, [of.of(point) for point in points])
    else:
        is_right = np.array_equal(values, of.of(selection))
    if not is_right:
        raise RuntimeError("wrong values")


def turns_of(name: str, file: Subject[Field], turns: int) -> dict[str, list[float]]:
    """Reads in turns of both ways; returns the seconds of each turn."""
    cold.make_warm(file.path)
    taken: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    stores = {
        variant: bf.open(file.path, replicas=variant == OURS, prefetch=False)
        for variant in VARIANTS
    }
    readers = {
        variant: readers_of(name, file.of, store[file.of.name]) for variant, store in stores.items()
    }
    for read in readers.values():
        check(file.of, *read(np.random.default_rng(0)))
    length = POINT_TURN if name == "points" else BOX_TURN
    shuffled = random.Random(3)  # noqa: S311 (a shuffle, not a secret)
    for turn in range(turns):
        for variant in shuffled.sample(VARIANTS, len(VARIANTS)):
            # The same places for both, with neither in the processor's caches.
            places, read = np.random.default_rng(turn), readers[variant]
            began = time.perf_counter()
            for _ in range(length):
                last = read(places)
            taken[variant].append((time.perf_counter() - began) / length)
        check(file.of, *last)
    for store in stores.values():
        store.close()
    return taken


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines, in a separate process."""
    of, small = field_of(job["quick"]), Field("t", ("time", "lat", "lon"), (32, 64, 64), "f4")
    place = data.ROOT / NAME
    file = Subject(data.ensure(place / f"{of.shape[0]}.nc", of.write), of)
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    make_replicas(file, REPLICAS)
    make_replicas(little, 2)
    found: dict[str, Any] = {"lines": {}}
    for name in job["lines"]:
        if name != OPENING:
            turns = QUICK_TURNS if job["quick"] else TURNS
            found["lines"][name] = turns_of(name, file, turns)
    if OPENING in job["lines"]:
        line, first = (
            Line(OPENING, [[(1, slice(rows // 2, None), slice(None))]], without=PEERS)
            for rows in (of.shape[1], small.shape[1])
        )
        trial = ReplicaTrial(file, little, {OPENING: first})
        found["opening"] = trial.compare(line, job["rounds"])["samples"]
    for one in (file, little):
        forget_replicas(one.path)
    return found


def run(options: Options) -> Report:
    """Runs the requested lines."""
    lines = {"lines": ", ".join(options.only)} if options.only else {}
    job = job_of(options)
    job["lines"] = [name for name in (*LINES, OPENING) if options.wants(name)]
    found = in_process("overhead", job)
    report = Report(NAME, options.command, {"rounds": str(job["rounds"]), **lines})
    report.samples = found
    heads = ["line", WITHOUT, f"{REPLICAS} replicas", "ratio"]
    table = Table("Warm reads of the other half: microseconds a read", heads)
    table.note = "Ratios turn by turn."
    boxes = Promise(f"boxes that no replica helps: at most {BOX_MAX} times")
    points = Promise(f"points that no replica helps: at most {POINT_MAX} times")
    for name, samples in found["lines"].items():
        ratio = paired_ratio(samples[OURS], samples[WITHOUT])
        shown = [f"{median(samples[variant]) * 1e6:.1f}" for variant in VARIANTS]
        table.rows.append([name, *shown, ratio.describe()])
        promise, most = (points, POINT_MAX) if name == "points" else (boxes, BOX_MAX)
        promise.add(name, ratio.median <= most, ratio.describe())
    conclude(report, table, [boxes, points])
    if "opening" in found:
        samples = found["opening"]
        shown = [milliseconds(median(samples[variant])) for variant in VARIANTS]
        ratio = paired_ratio(samples[OURS], samples[WITHOUT])
        title = "Cold: open, read half a map, close; milliseconds"
        report.tables.append(Table(title, heads, [[OPENING, *shown, ratio.describe()]]))
    return report
