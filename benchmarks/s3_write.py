"""`s3-write`: 1 GiB written to a store with 30 ms per request and 80 MB/s per stream.

The server and the proxy of `s3-read`; uploads are as slow as answers. All engines have the same
chunks, shards and codecs. They write with one call, and region by region; Bedform also through a
session that is settled later. The clock covers writing the elements; creating the store has a line
of its own. zarr-python then reads back the server's files, which are in memory: the time of a disk
would be the server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.comparison import OURS, Comparison
from benchmarks.harness.options import FULL_ROUNDS
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.s3_server import (
    BYTES_PER_SECOND,
    SECONDS,
    SlowS3,
    set_environment,
    slow_s3,
)
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.harness.worker import WorkerProcess, checksum, start_workers, stop_workers
from benchmarks.s3_read import days_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.harness.selections import Selection

NAME = "s3-write"
ENGINES = {
    "zarr-python": "s3-zarr-python-writer",
    "tensorstore": "s3-tensorstore-writer",
    OURS: "s3-bedform-writer",
}
CHECKER = "zarr-python"
#: The default number of rounds, since each write takes seconds.
ROUNDS = 3
MEBIBYTE = 1 << 20
OVERHEAD_MAX = 256 * MEBIBYTE
CREATE, ONE_CALL, REGIONS = "create", "one call", "16 regions"


@dataclass(frozen=True)
class Shapes:
    """An array of float32, its chunks and its shards."""

    array: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...]

    def whole(self) -> list[Selection]:
        """Return the array as one piece."""
        return [tuple(slice(0, length) for length in self.array)]

    def regions(self) -> list[Selection]:
        """Return 16 pieces of two shards each."""
        planes, rows, columns = self.shards[0], self.shards[1], self.array[2]
        return [
            (slice(plane, plane + planes), slice(row, row + rows), slice(0, columns))
            for plane in range(0, self.array[0], planes)
            for row in range(0, self.array[1], rows)
        ]

    def metadata(self, codec: str, is_empty: bool = False) -> dict[str, Any]:
        """Returns the metadata document of the array, or of an empty one for appends."""
        layout = data.Layout("s3", self.chunks, self.shards)
        document = data.array_metadata(0, layout, codec)
        shape = (0, *self.array[1:]) if is_empty else self.array
        return {**document, "shape": list(shape), "data_type": "float32"}

    def describe(self) -> str:
        """Return chunks and shards in words."""
        chunk, shard = (
            bytes_in_words(int(np.prod(shape)) * 4) for shape in (self.chunks, self.shards)
        )
        return f"chunks of {chunk} in shards of {shard}"


FULL = Shapes((256, 1024, 1024), (16, 128, 128), (32, 512, 512))
QUICK = Shapes((64, 128, 128), (4, 32, 32), (8, 64, 64))


@dataclass(frozen=True)
class Attempt:
    """One write in a fresh process."""

    seconds: float
    growth: float
    asked: str


@dataclass
class Line:
    """The results of one line, and the first write of each engine in the chosen way."""

    comparison: Comparison
    first: dict[str, Attempt]


class Writing:
    """One codec: creates stores, writes, checks and removes them."""

    def __init__(
        self, server: SlowS3, workers: dict[str, WorkerProcess], source: Path, shapes: Shapes
    ) -> None:
        self.server, self.workers, self.source, self.shapes = server, workers, source, shapes
        values = np.load(source, mmap_mode="r")
        self.answer = checksum(np.asarray(values))
        self.created: dict[str, list[float]] = {name: [] for name in workers}
        self.asked: dict[str, str] = {}

    def create(
        self, name: str, worker: WorkerProcess, variant: str, codec: str, is_empty: bool = False
    ) -> None:
        """Creates a new store with an engine."""
        store = f"{name}.zarr"
        self.server.remove(store)
        before = self.server.counts()
        metadata = self.shapes.metadata(codec, is_empty)
        place = f"{self.server.proxy} {store}"
        self.created[name].append(worker.call("act", "create", place, metadata, variant))
        self.asked[name] = asked_since(self.server, before)

    def check(self, name: str) -> None:
        """Read the store back with zarr-python."""
        with WorkerProcess(CHECKER) as checker:
            checker.call("open", self.server.files(f"{name}.zarr"))
            checker.call("prepare", "check", self.shapes.whole()[0], "concurrent")
            checker.call("read", "check", self.answer)

    def write(self, name: str, variant: str, codec: str, pieces: list[Selection]) -> float:
        """Measures one write in the engine's process."""
        worker = self.workers[name]
        self.create(name, worker, variant, codec)
        figures = worker.call("act", "write_pieces", pieces)
        self.server.remove(f"{name}.zarr")
        seconds: float = figures["seconds"]
        return seconds

    def attempt(self, name: str, variant: str, codec: str, pieces: list[Selection]) -> Attempt:
        """Writes once in a fresh process, records its costs, and reads it back."""
        with WorkerProcess(ENGINES[name]) as worker:
            worker.call("act", "load", self.source)
            self.create(name, worker, variant, codec)
            before = self.server.counts()
            figures = worker.call("act", "write_pieces", pieces)
            asked = asked_since(self.server, before)
        self.check(name)
        self.server.remove(f"{name}.zarr")
        return Attempt(figures["seconds"], figures["growth"], asked)

    def measure(
        self,
        line: str,
        codec: str,
        pieces: list[Selection],
        variants: dict[str, list[str]],
        rounds: int,
    ) -> Line:
        """Try each variant once, each in a fresh process, and run the rounds with the fastest."""
        chosen, first = {}, {}
        for name in self.workers:
            tried = {one: self.attempt(name, one, codec, pieces) for one in variants[name]}
            chosen[name] = min(tried, key=lambda one, tried=tried: tried[one].seconds)
            first[name] = tried[chosen[name]]
        samples = interleave(
            list(self.workers), rounds, lambda name: self.write(name, chosen[name], codec, pieces)
        )
        return Line(Comparison(line, samples, chosen), first)

    def session(self, codec: str, options: Options) -> dict[str, list[float]]:
        """Appends through a session and settles, in a fresh process each time."""
        found: dict[str, list[float]] = {}
        for _ in range(rounds_of(options)):
            with WorkerProcess(ENGINES[OURS]) as worker:
                worker.call("act", "load", self.source)
                self.create(OURS, worker, "default", codec, is_empty=True)
                for stage in ("append_all", "settle"):
                    arguments = [self.shapes.shards[0]] if stage == "append_all" else []
                    before = self.server.counts()
                    figures = worker.call("act", stage, *arguments)
                    after = self.server.counts()
                    figures["requests"] = after["requests"] - before["requests"]
                    for key, value in figures.items():
                        found.setdefault(f"{stage} {key}", []).append(value)
            self.check(OURS)
            self.server.remove(f"{OURS}.zarr")
            self.server.remove(f"{OURS}.zarr.bedform-log")
        return found


def rounds_of(options: Options) -> int:
    """Return the number of rounds."""
    return ROUNDS if options.rounds == FULL_ROUNDS else options.rounds


def asked_since(server: SlowS3, before: dict[str, int]) -> str:
    """Returns the requests and the uploaded bytes since `before`."""
    after = server.counts()
    moved = bytes_in_words(after["received"] - before["received"])
    return f"{after['requests'] - before['requests']}, {moved}"


def run(options: Options) -> Report:
    """Runs the requested lines."""
    shapes = QUICK if options.quick else FULL
    report = Report(NAME, options.command, {"array": "x".join(map(str, shapes.array)) + " float32"})
    report.settings |= {"rounds": str(rounds_of(options)), "server": "versitygw"}
    report.settings["proxy"] = f"{SECONDS * 1e3:.0f} ms, {BYTES_PER_SECOND / 1e6:.0f} MB/s a stream"
    source = data.ROOT / "s3-write.npy"
    source.parent.mkdir(parents=True, exist_ok=True)
    np.save(source, days_of(shapes.array, 0, shapes.array[0]))
    set_environment()
    started = start_workers(list(ENGINES.values()))
    workers = {name: started[engine] for name, engine in ENGINES.items()}
    lines: list[Line] = []
    sessions: dict[str, dict[str, list[float]]] = {}
    try:
        for name, worker in workers.items():
            report.settings[name] = worker.call("describe")["version"]
            worker.call("act", "load", source)
        with slow_s3(in_memory=True) as server:
            writing = Writing(server, workers, source, shapes)
            for codec in ("raw", "zstd"):
                ways = {
                    name: options.some(list(worker.call("describe")["write"]))
                    for name, worker in workers.items()
                }
                for way, pieces in ((ONE_CALL, shapes.whole()), (REGIONS, shapes.regions())):
                    if options.wants(f"{codec}/{way}"):
                        line, rounds = f"{codec}, {way}", rounds_of(options)
                        lines.append(writing.measure(line, codec, pieces, ways, rounds))
                        # Regions are written in the way that was fastest for one call.
                        ways = {name: [one] for name, one in lines[-1].comparison.variants.items()}
                if options.wants(f"{codec}/session"):
                    sessions[codec] = writing.session(codec, options)
    finally:
        stop_workers(started)
        source.unlink()
    report.tables.append(table_of(lines, shapes))
    report.tables.append(create_table(writing))
    if sessions:
        report.tables.append(session_table(sessions, lines))
    report.samples = {line.comparison.line: line.comparison.to_dict() for line in lines}
    report.samples |= {f"{codec}, session": found for codec, found in sessions.items()}
    report.samples["create"] = writing.created
    report.verdicts = verdicts(lines, sessions)
    return report


def table_of(lines: list[Line], shapes: Shapes) -> Table:
    """Returns the times of the writes."""
    table = Table(
        f"{shapes.describe()}; milliseconds; MiB of memory above the array; requests, bytes",
        ["write", *ENGINES, "bedform / fastest", "fastest"]
        + [f"{name} memory" for name in ENGINES]
        + [f"{name} asks" for name in ENGINES],
    )
    for line in lines:
        one = line.comparison
        fastest = one.fastest_peer()
        cells = [one.cell(name) for name in ENGINES]
        memory = [f"{line.first[name].growth / MEBIBYTE:.0f}" for name in ENGINES]
        asked = [line.first[name].asked for name in ENGINES]
        row = [one.line, *cells, one.ratio_cell(fastest), one.way(fastest), *memory, *asked]
        table.rows.append(row)
    return table


def create_table(writing: Writing) -> Table:
    """Returns the time of creating a store with an array."""
    cells = [
        f"{milliseconds(median(times))}; {writing.asked[name]}" if times else "-"
        for name, times in writing.created.items()
    ]
    return Table(
        "A store and an array created; milliseconds; requests, bytes",
        ["", *writing.created],
        [[CREATE, *cells]],
    )


def session_table(sessions: dict[str, dict[str, list[float]]], lines: list[Line]) -> Table:
    """Returns the times of appending and settling, compared with one call."""
    columns = ["codec", "commit ms", "commit / one call", "requests", "memory"]
    columns += ["settle ms", "requests", "memory"]
    table = Table("Bedform: appended through a session, settled later", columns)
    once = {line.comparison.line: line.comparison.samples[OURS] for line in lines}
    for codec, found in sessions.items():
        whole = once.get(f"{codec}, {ONE_CALL}")
        ratio = paired_ratio(found["append_all seconds"], whole).describe() if whole else "-"
        row = [codec]
        for stage, between in (("append_all", [ratio]), ("settle", [])):
            row += [milliseconds(median(found[f"{stage} seconds"])), *between]
            row.append(f"{median(found[f'{stage} requests']):.0f}")
            row.append(f"{median(found[f'{stage} growth']) / MEBIBYTE:.0f}")
        table.rows.append(row)
    return table


def verdicts(lines: list[Line], sessions: dict[str, dict[str, list[float]]]) -> list[Verdict]:
    """Returns the promises and their results."""
    lost = [line.comparison.line for line in lines if line.comparison.is_loss()]
    listed = f": {'; '.join(lost)}" if lost else ""
    said = f"{len(lost)} of {len(lines)} lost{listed}"
    growths = [line.first[OURS].growth for line in lines]
    growths += [median(found["append_all growth"]) for found in sessions.values()]
    promise = f"memory at most {OVERHEAD_MAX // MEBIBYTE} MiB above the array"
    if not growths:
        return [Verdict("fastest on every line", "-", None), Verdict(promise, "-", None)]
    peak = max(growths)
    fastest = Verdict("fastest on every line", said, not lost) if lines else None
    memory = Verdict(promise, f"{peak / MEBIBYTE:.0f} MiB", peak <= OVERHEAD_MAX)
    return [*([fastest] if fastest else []), memory]
