"""`settle`: settling a log of 16 writers into shards of the advised layout, against the device.

Each writer has a 4 x 2 x 2 part of the cube, written in slabs of eight planes, with a commit and a
segment of its own. The log is cold when settling begins. Settling ends when all data are durable
and the log is gone. The bound is the device's time to read the log, in its fastest way, and then to
write files with the lengths of the shards, synced. Settling and bound alternate in rounds. Memory
is the growth of the peak of a fresh process. The store is compared with the field after each round.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import cold, data
from benchmarks.harness.comparison import OURS, Comparison
from benchmarks.harness.options import BASELINE, PEERS
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words, milliseconds
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.data import Layout
    from benchmarks.harness.options import Options

NAME = "settle"
GRID = (4, 2, 2)
PLANES = 8
DEVICE = "device"
SHARE_MIN = 0.60
MEMORY, QUICK_MEMORY = 256 << 20, 64 << 20
#: Base memory of a process beside the limit, as in the guide.
BESIDE = 100 << 20
READ_VARIANTS = ("buffered 4 4096", "direct 4 4096", "direct 16 4096")


class Settling:
    """One codec: writes logs, settles, compares and deletes them."""

    def __init__(self, options: Options, codec: str, device: WorkerProcess) -> None:
        self.options, self.codec, self.device = options, codec, device
        self.memory = QUICK_MEMORY if options.quick else MEMORY
        self.layout: Layout = data.advised_layout(options.size)
        self.values = np.asarray(data.truth(options.size))
        self.place = data.ROOT / "settle"
        self.found: list[dict[str, float]] = []
        self.lengths: list[int] = []

    def write_log(self) -> Path:
        """Makes a store with all elements in its log, and drops the log from the page cache."""
        import bedform as bf

        data.remove(self.place)
        self.place.mkdir(parents=True)
        path = self.place / "run.zarr"
        store = bf.create(str(path))
        layout = bf.Regular(
            chunks=self.layout.chunk, shards=self.layout.shard, order=self.layout.order
        )
        store.create_array(
            data.ARRAY,
            shape=self.values.shape,
            dtype="float64",
            dims=data.DIMS,
            layout=layout,
            codecs=[{"name": "zstd", "configuration": {"level": data.ZSTD_LEVEL}}]
            if self.codec == "zstd"
            else [],
        )
        with ExitStack() as stack:
            for at in np.ndindex(*GRID):
                session = stack.enter_context(store.session(settle="later"))
                lengths = [n // count for n, count in zip(self.values.shape, GRID, strict=True)]
                first = [place * n for place, n in zip(at, lengths, strict=True)]
                for plane in range(first[0], first[0] + lengths[0], PLANES):
                    planes = min(PLANES, first[0] + lengths[0] - plane)
                    rows = slice(first[1], first[1] + lengths[1])
                    columns = slice(first[2], first[2] + lengths[2])
                    values = self.values[plane : plane + planes, rows, columns]
                    session.write(data.ARRAY, values, start=(plane, *first[1:]))
        os.sync()
        cold.make_cold(self.place)
        return path

    def settle(self, engine: str = OURS) -> float:
        """Measures settling in a fresh process, and compares the result."""
        path = self.write_log()
        with WorkerProcess(engine) as worker:
            done: dict[str, float] = worker.call("settle", path, self.memory)
        if engine == OURS:
            self.found.append(done)
        self.check(path)
        self.lengths = [file.stat().st_size for file in data.files_under(path)]
        data.remove(self.place)
        return done["seconds"]

    def check(self, path: Path) -> None:
        """Fails unless the store is plain Zarr and holds the field."""
        import bedform as bf

        if path.with_name("run.zarr.bedform-log").exists():
            raise ValueError("the log is still there")
        array = bf.open(str(path), cache=0)[data.ARRAY]
        step = max(self.values.shape[0] // 8, 1)
        for first in range(0, self.values.shape[0], step):
            if not np.array_equal(array[first : first + step], self.values[first : first + step]):
                raise ValueError(f"the settled store differs from plane {first} on")

    def bound(self, variants: tuple[str, str]) -> float:
        """Measures the device: reads the cold log, then writes synced files like the shards."""
        self.write_log()
        log = self.place / "run.zarr.bedform-log"
        seconds: float = self.device.call("read_like", log, variants[0])
        model = self.place / "like"
        model.mkdir()
        for number, length in enumerate(self.lengths):
            with (model / str(number)).open("wb") as file:
                file.truncate(length)
        os.sync()
        written = self.place / "written"
        seconds += self.device.call("write_like", written, model, variants[1])
        data.remove(self.place)
        return seconds

    def measure(self) -> Comparison:
        """Run the rounds."""
        self.settle()
        self.found.clear()
        described = self.device.call("describe")
        read = self.options.some(list(READ_VARIANTS))
        write = self.options.some(list(described["write"]))
        read_best = fastest_variant(read, 1, lambda one: self.bound((one, write[0])))
        best = fastest_variant(write, 1, lambda one: self.bound((read_best, one)))
        runs = {OURS: self.settle, DEVICE: lambda: self.bound((read_best, best))}
        if BASELINE in PEERS:
            runs[BASELINE] = lambda: self.settle(BASELINE)
        samples = interleave(list(runs), self.options.rounds, lambda name: runs[name]())
        return Comparison(
            self.codec,
            samples,
            {OURS: "settle", BASELINE: "settle", DEVICE: f"{read_best}, then {best}"},
        )


def run(options: Options) -> Report:
    """Settles into raw and into compressed shards."""
    report = Report(NAME, options.command, options.settings())
    columns = ["codec", "log", "shards", "settle ms", "device ms", "device / settle", "rounds"]
    columns += ["log read", "memory limit", "peak"]
    columns += [f"settle / {BASELINE}"] if BASELINE in PEERS else []
    layout = data.advised_layout(options.size)
    table = Table(f"A log of 16 writers, settled into {layout.describe()}, cold, synced", columns)
    with WorkerProcess(DEVICE) as device:
        for codec in options.some(["raw", "zstd"]):
            if not options.wants(codec):
                continue
            settling = Settling(options, codec, device)
            one = settling.measure()
            table.rows.append(row(settling, one))
            # The device does not compress.
            report.verdicts += verdicts(settling, one)[codec == "zstd" :]
            report.samples[codec] = {**one.to_dict(), "settled": settling.found}
            report.settings[f"device, {codec}"] = one.variants[DEVICE]
    data.remove(data.ROOT / "settle")
    report.tables.append(table)
    return report


def row(settling: Settling, one: Comparison) -> list[str]:
    """Return the figures of one codec."""
    ratio = one.ratio(DEVICE, OURS)
    last = settling.found[-1]
    older = [one.ratio_cell(BASELINE)] if BASELINE in PEERS else []
    return [
        settling.codec,
        bytes_in_words(settling.values.nbytes),
        bytes_in_words(sum(settling.lengths)),
        milliseconds(median(one.samples[OURS])),
        milliseconds(median(one.samples[DEVICE])),
        ratio.describe() if ratio else "-",
        f"{last['rounds']:.0f}",
        bytes_in_words(int(last["read_bytes"])),
        bytes_in_words(settling.memory),
        bytes_in_words(int(median([done["growth"] for done in settling.found]))),
        *older,
    ]


def verdicts(settling: Settling, one: Comparison) -> list[Verdict]:
    """Returns the promises and their results."""
    ratio = one.ratio(DEVICE, OURS)
    promise = f"{settling.codec}: {SHARE_MIN:.0%} of the device's read and write"
    speed = Verdict(promise, "-", None)
    if ratio is not None:
        speed = Verdict(promise, f"{ratio.median:.0%}", ratio.median >= SHARE_MIN)
    peak = max(done["growth"] for done in settling.found)
    limit = f"{settling.codec}: memory under the limit + {bytes_in_words(BESIDE)}"
    over = f"{bytes_in_words(int(peak))} at {bytes_in_words(settling.memory)}"
    return [speed, Verdict(limit, over, peak <= settling.memory + BESIDE)]
