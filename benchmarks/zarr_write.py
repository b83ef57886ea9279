"""`zarr-write`: the same array written by four engines, everything synced, against the device.

A write ends when every file and every directory of the store is synced, so engines that sync while
they write pay nothing twice. The device writes the same number of files with the same lengths as
the store of TensorStore, from prepared buffers. After each round TensorStore reads the store in a
separate process and compares it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from benchmarks.harness import data
from benchmarks.harness.comparison import OURS, Comparison
from benchmarks.harness.device import tree_lengths
from benchmarks.harness.options import PEERS, Options, engines
from benchmarks.harness.report import Report, Table, Verdict, bandwidth, bytes_in_words
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.selections import named_selections
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess, checksum, start_workers, stop_workers

if TYPE_CHECKING:
    from pathlib import Path

NAME = "zarr-write"
DEVICE = "device"
CHECKER = "tensorstore"
DEVICE_SHARE = 0.85


class Writing:
    """One codec: writes, syncs, checks, deletes."""

    def __init__(
        self,
        workers: dict[str, WorkerProcess],
        checker: WorkerProcess,
        options: Options,
        codec: str,
    ) -> None:
        self.workers, self.checker, self.options = workers, checker, options
        layout = data.standard_layout(options.size)
        self.codec = codec
        self.metadata: dict[str, Any] = data.array_metadata(options.size, layout, codec)
        self.model = data.zarr_store(options.size, layout, codec)
        self.whole = named_selections(options.size)["full"]
        self.expected = checksum(data.truth(options.size))
        self.variants: dict[str, str] = {}

    def write(self, name: str, variant: str) -> float:
        """Measures one write to a new place, deleted afterwards, with the device idle."""
        path = data.ROOT / "written" / f"{name}.zarr"
        data.remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.sync()
        worker = self.workers[name]
        if name == DEVICE:
            seconds: float = worker.call("write_like", path, self.model, variant)
        else:
            seconds = worker.call("write", path, self.metadata, variant)
            self.check(path)
        data.remove(path)
        return seconds

    def check(self, path: Path) -> None:
        """Reads the store in another process and compares; requires the checksum in metadata."""
        written = json.loads((path / data.ARRAY / "zarr.json").read_text())
        inner = written["codecs"][0]["configuration"]["codecs"]
        if inner[-1]["name"] != "crc32c":
            raise ValueError(f"{path} was written without checksums")
        self.checker.call("open", path)
        self.checker.call("prepare", "check", self.whole, "default into")
        self.checker.call("read", "check", self.expected)
        self.checker.call("forget", "check")

    def tune(self, name: str) -> str:
        """Returns the fastest variant of an engine for writes."""
        variants = self.options.some(list(self.workers[name].call("describe")["write"]))
        # One try each, since a write is long and its variants differ little.
        return fastest_variant(variants, 1, lambda variant: self.write(name, variant))

    def measure(self) -> Comparison:
        """Run the rounds."""
        chosen = {name: self.tune(name) for name in self.workers}
        samples = interleave(
            list(self.workers), self.options.rounds, lambda name: self.write(name, chosen[name])
        )
        return Comparison(self.codec, samples, chosen)


def run(options: Options) -> Report:
    """Write raw and compressed."""
    report = Report(NAME, options.command, options.settings())
    names = [name for name in engines() if name in (*PEERS, OURS)]
    workers = start_workers([*names, DEVICE])
    checker = WorkerProcess(CHECKER)
    results: list[Comparison] = []
    try:
        for name in names:
            report.settings[name] = workers[name].call("describe")["version"]
            workers[name].call("load_values", options.size)
        columns = ["codec", "bytes", *names, DEVICE, "device MiB/s", "fastest"]
        columns += ["bedform / fastest", "fastest / device", "bedform / device"]
        layout = data.standard_layout(options.size).describe()
        table = Table(f"Write of the whole array, {layout}, synced; milliseconds", columns)
        for codec in ("raw", "zstd"):
            if options.wants(codec):
                writing = Writing(workers, checker, options, codec)
                results.append(writing.measure())
                table.rows.append(make_row(results[-1], names, sum(tree_lengths(writing.model))))
    finally:
        stop_workers({**workers, "checker": checker})
        data.remove(data.ROOT / "written")
    report.tables.append(table)
    report.verdicts = [verdict for one in results for verdict in verdicts(one)]
    report.samples = {one.line: one.to_dict() for one in results}
    return report


def make_row(one: Comparison, names: list[str], byte_count: int) -> list[str]:
    """Return the row of one codec."""
    fastest = one.fastest_peer()
    over = one.ratio(fastest, DEVICE)
    row = [one.line, bytes_in_words(byte_count), *(one.cell(name) for name in names)]
    row += [one.cell(DEVICE), bandwidth(byte_count, median(one.samples[DEVICE])), one.way(fastest)]
    row += [one.ratio_cell(fastest), over.describe() if over else "-"]
    return [*row, one.ratio_cell(DEVICE, marks_loss=False)]


def verdicts(one: Comparison) -> list[Verdict]:
    """Returns the promises for writes and their results."""
    fastest, device = one.against(one.fastest_peer()), one.against(DEVICE)
    promises = f"{one.line}: fastest", f"{one.line}: 85 % of the device's own synced write"
    if fastest is None or device is None:
        return [Verdict(promise, "-", None) for promise in promises]
    share = 1 / device.median
    return [
        Verdict(promises[0], fastest.describe(), fastest.median <= 1.0),
        Verdict(promises[1], f"{share:.0%}", share >= DEVICE_SHARE),
    ]
