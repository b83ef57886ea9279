"""`log-read`: reads over a log of 16 writers, against the same reads after settling.

Each of ten steps of a cube is written by 16 writers, a 4 x 2 x 2 part each, with separate commits:
16 segments and 160 commits, more than with one commit per step. The settled twin has the same
elements in 64^3 chunks (of the full size), with one step per shard. Warm: the page cache holds both
stores, the caches of the engine are empty, the handles are open, and the log's metadata have been
read. Cold: the page cache is dropped before every read.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import cold, data
from benchmarks.harness.comparison import OURS, Comparison
from benchmarks.harness.options import BASELINE, PEERS
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.selections import Selection, named_selections, result_bytes
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess, checksum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.options import Options

NAME = "log-read"
STEPS = 10
GRID = (4, 2, 2)
LOG, SETTLED = "log", "settled"
RATIO_MAX = 3.0
#: The store and the engine of each reader. A baseline (`BEDFORM_BASELINE`) reads both as well.
READERS = {LOG: (LOG, OURS), SETTLED: (SETTLED, OURS)}
OLDER = {f"{BASELINE} {store}": (store, BASELINE) for store in (LOG, SETTLED) if BASELINE in PEERS}
READERS |= OLDER
#: The lines that the promise covers.
PROMISED = ("plane i", "plane j", "plane k", "centre box", "box of steps")
QUICK_LINES = ("plane k", "centre box", "series step")


def step_values(edge: int, step: int) -> NDArray[np.float64]:
    """Returns the cube of a step: the field, shifted by a few planes."""
    return np.roll(data.truth(edge), 3 * step, axis=0)


def parts(edge: int) -> Iterator[tuple[slice, ...]]:
    """Yield the part of each writer.

    >>> len(list(parts(8))), next(parts(8))
    (16, (slice(0, 2, None), slice(0, 4, None), slice(0, 4, None)))
    """
    for place in np.ndindex(*GRID):
        lengths = [edge // count for count in GRID]
        yield tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, lengths, strict=True))


def create(path: Path, edge: int, codec: str) -> Any:
    """Return a new store with an array for the steps."""
    import bedform as bf

    chunk = max(edge // 4, 4)
    store = bf.create(str(path))
    store.create_array(
        data.ARRAY,
        shape=(STEPS, *data.cube(edge)),
        dtype="float64",
        dims=("step", *data.DIMS),
        layout=bf.Regular(chunks=(1, *data.cube(chunk)), shards=(1, *data.cube(edge))),
        codecs=[{"name": "zstd", "configuration": {"level": data.ZSTD_LEVEL}}]
        if codec == "zstd"
        else [],
    )
    return store


def stores(edge: int, codec: str) -> Path:
    """Return a directory with two stores, one with all steps in its log, one with all settled."""

    def build(path: Path) -> None:
        path.mkdir()
        twin = create(path / SETTLED, edge, codec)
        store = create(path / LOG, edge, codec)
        with ExitStack() as stack:
            sessions = [
                stack.enter_context(store.session(settle="later")) for _ in range(np.prod(GRID))
            ]
            for step in range(STEPS):
                values = step_values(edge, step)
                twin[data.ARRAY][step] = values
                for session, part in zip(sessions, parts(edge), strict=True):
                    start = (step, *(axis.start for axis in part))
                    session.write(data.ARRAY, values[part][None], start=start)
                    session.commit()

    return data.ensure(data.ROOT / str(edge) / f"log-read-{codec}", build)


def lines_of(edge: int) -> dict[str, Selection]:
    """Return the reads, by name: those of a cube in a middle step, and over all steps."""
    step, eighth = STEPS // 2, edge // 8
    every = slice(0, STEPS)
    box = slice(2 * eighth, 3 * eighth)
    cube = named_selections(edge)
    found: dict[str, Selection] = {
        line: (step, *selection) for line, selection in cube.items() if line != "full"
    }
    found["series step"] = (every, *(int(0.3 * edge) + at for at in range(3)))
    found["box of steps"] = (every, box, box, box)
    found["step"] = (step, *cube["full"])
    found["whole"] = (every, *cube["full"])
    return found


def answer(edge: int, selection: Selection) -> int:
    """Returns the checksum of the expected answer."""
    first = selection[0]
    if isinstance(first, int):
        return checksum(step_values(edge, first)[selection[1:]])
    steps = range(first.start, first.stop)
    return checksum(np.stack([step_values(edge, step)[selection[1:]] for step in steps]))


class Case:
    """Both stores open, each in a process of its own; reads of one line, in interleaved rounds."""

    def __init__(self, options: Options, codec: str, is_cold: bool) -> None:
        self.options, self.is_cold = options, is_cold
        self.edge = options.size // 2
        self.prefix = f"{codec}/{'cold' if is_cold else 'warm'}/"
        self.codec = codec

    def lines(self) -> dict[str, Selection]:
        """Return the lines that were asked for."""
        return {
            line: selection
            for line, selection in lines_of(self.edge).items()
            if self.options.wants(self.prefix + line)
            and (not self.options.quick or line in QUICK_LINES)
        }

    def run(self) -> list[Comparison]:
        """Measure the lines."""
        if not self.lines():
            return []
        self.path = stores(self.edge, self.codec)
        cold.make_warm(self.path)
        with ExitStack() as stack:
            workers = {}
            for name, (store, engine) in READERS.items():
                workers[name] = stack.enter_context(WorkerProcess(engine))
                workers[name].call("open", self.path / store)
            return [self.measure(workers, *line) for line in self.lines().items()]

    def measure(
        self, workers: dict[str, WorkerProcess], line: str, selection: Selection
    ) -> Comparison:
        """Run the rounds of one line."""
        expected = answer(self.edge, selection)
        for worker in workers.values():
            worker.call("prepare", line, selection, "out")
            worker.call("read", line, expected)

        def read(name: str) -> float:
            if self.is_cold:
                cold.make_cold(self.path)
            seconds: float = workers[name].call("read", line, expected)
            return seconds

        samples = interleave(list(workers), self.options.rounds, read)
        for worker in workers.values():
            worker.call("forget", line)
        return Comparison(self.prefix + line, samples, dict.fromkeys(workers, "out"))


def run(options: Options) -> Report:
    """Runs the requested lines."""
    report = Report(NAME, options.command, options.settings())
    edge = options.size // 2
    report.settings["array"] = f"{STEPS} steps of {edge}^3 float64, 16 writers"
    results: list[Comparison] = []
    for codec, is_cold in product(options.some(["raw", "zstd"]), (False, True)):
        case = Case(options, codec, is_cold)
        found = case.run()
        if found:
            report.tables.append(make_table(case, found))
            results += found
    report.verdicts = [verdict(results, temperature) for temperature in ("warm", "cold")]
    report.samples = {one.line: one.to_dict() for one in results}
    return report


def make_table(case: Case, found: list[Comparison]) -> Table:
    """Return the rows of one case."""
    temperature = "cold" if case.is_cold else "warm"
    title = f"Chunks {case.codec}; {temperature}; milliseconds"
    older = [f"{store} / {name}" for name, (store, _) in OLDER.items()]
    table = Table(title, ["read", "result", "over the log", "settled", "log / settled", *older])
    selections = case.lines()
    for one in found:
        line = one.line.removeprefix(case.prefix)
        ratios = [
            one.ratio(LOG, SETTLED),
            *(one.ratio(store, name) for name, (store, _) in OLDER.items()),
        ]
        table.rows.append(
            [
                line,
                bytes_in_words(result_bytes(selections[line])),
                milliseconds(median(one.samples[LOG])),
                milliseconds(median(one.samples[SETTLED])),
                *(ratio.describe() if ratio else "-" for ratio in ratios),
            ]
        )
    return table


def verdict(results: list[Comparison], temperature: str) -> Verdict:
    """Returns the promise for planes and boxes, and its result."""
    promise = f"planes and boxes, {temperature}: at most {RATIO_MAX:.0f} times settled (worst line)"
    ratios = {
        one.line: ratio.median
        for one in results
        if f"/{temperature}/" in one.line
        and one.line.split("/")[-1] in PROMISED
        and (ratio := one.ratio(LOG, SETTLED))
    }
    if not ratios:
        return Verdict(promise, "-", None)
    worst = max(ratios, key=lambda line: ratios[line])
    return Verdict(promise, f"{ratios[worst]:.2f} on {worst}", ratios[worst] <= RATIO_MAX)
