"""Lines `peers/*`: the same loops from the disk, by readers without readahead of their own.

h5py reads a contiguous dataset, with the kernel's readahead. TensorStore and xarray (engine `zarr`)
read the same store as Bedform. All compute for as long as a read of Bedform takes without prefetch.
Bedform's own loop without prefetch is included.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import LOSS_RATIO, median, paired_ratio
from benchmarks.reads_ahead.loops import (
    MISSES,
    READS,
    SIZES,
    build,
    compute,
    in_process,
    is_foreseen,
    number_of,
    places,
    rounds_of,
)

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

QUICK_PATTERNS = ("simple-strided",)
PEERS = ("h5py", "tensorstore", "xarray")
READERS = ("bedform", "no prefetch", *PEERS)
RATIO = 1.0


def array_of(reader: str, store: str, file: str) -> Any:
    """Open the array; its brackets take the number of a chunk."""
    match reader:
        case "h5py":
            import h5py

            return h5py.File(file)["v"]
        case "tensorstore":
            import tensorstore as ts

            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{store}/v/"}}
            return ts.open(spec, read=True).result()
        case "xarray":
            import xarray as xr

            return xr.open_dataset(store, engine="zarr", consolidated=False, chunks=None)["v"]
        case _:
            return bf.open(store, prefetch="auto" if reader == "bedform" else False)["v"]


def timed(reader: str, store: str, file: str, wanted: list[int], seconds: float) -> dict[str, Any]:
    """Reads and computes; returns the time, and the numbers of the chunks."""
    cold.make_cold(Path(file if reader == "h5py" else store))
    array, found = array_of(reader, store, file), []
    began = time.perf_counter()
    for at in wanted:
        found.append(number_of(np.asarray(array[at])))
        compute(seconds)
    return {"seconds": time.perf_counter() - began, "found": found}


def worker(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all readers, pattern by pattern, in rounds."""
    for module in ("h5py", "tensorstore", "xarray", "zarr"):
        importlib.import_module(module)
    lines = {}
    for pattern in job["patterns"]:
        wanted = places(pattern, job["edge"], job["reads"])

        def once(reader: str, seconds: float, wanted: Any = wanted) -> float:
            outcome = in_child(timed, reader, job["store"], job["file"], wanted, seconds)
            if outcome["found"] != wanted:
                raise RuntimeError(f"a wrong answer of {reader}")
            return float(outcome["seconds"])

        alone = median([once("no prefetch", 0) for _ in range(3)]) / len(wanted)
        computing = partial(once, seconds=RATIO * alone)
        samples = interleave(list(READERS), job["rounds"], computing)
        lines[pattern] = {"alone": alone, "samples": samples}
    return lines


def build_file(path: Path, size: int, edge: int) -> int:
    """Writes the same array as a contiguous dataset, durably; returns the offset of its bytes."""
    import h5py

    length = size // 4
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("v", (edge * edge, length), "f4")
        for number in range(edge * edge):
            dataset[number] = np.full(length, number, "f4")
        offset: int = dataset.id.get_offset()
    with path.open("rb+") as written:
        os.fsync(written.fileno())
    return offset


def patterns_of(options: Options, size_name: str, edge: int) -> list[str]:
    """Returns the requested patterns that have enough reads to be predicted."""
    return [
        pattern
        for pattern in MISSES
        if options.wants(f"peers/{size_name}/{pattern}")
        and is_foreseen(pattern, edge, READS["disk"][size_name])
        and (not options.quick or (pattern in QUICK_PATTERNS and size_name == "1 MiB"))
    ]


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    heads = ["line", "a read", *READERS, *(f"bedform / {peer}" for peer in PEERS)]
    table = Table("Other readers, disk, ratio 1, in milliseconds", heads)
    promise = Promise("disk: no reader is faster than Bedform with prefetch")
    for size_name, (size, edge) in SIZES.items():
        patterns = patterns_of(options, size_name, edge)
        if not patterns:
            continue
        with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
            store, file = Path(directory) / "s.zarr", Path(directory) / "f.h5"
            build(store, size, edge, edge)
            build_file(file, size, edge)
            job = {"store": str(store), "file": str(file), "edge": edge, "patterns": patterns}
            job |= {"reads": READS["disk"][size_name], "rounds": rounds_of(options, is_long=True)}
            for pattern, line in in_process("peers", job).items():
                name = f"peers/{size_name}/{pattern}"
                table.rows.append(row(name, line, promise))
                report.samples[name] = line["samples"]
    conclude(report, table, [promise])


def row(name: str, line: dict[str, Any], promise: Promise) -> list[str]:
    """Returns the row of the line, and adds it to the promises."""
    samples = line["samples"]
    cells = [name, f"{line['alone'] * 1e3:.2f}"]
    cells += [f"{median(samples[reader]) * 1e3:.0f}" for reader in READERS]
    for peer in PEERS:
        ratio = paired_ratio(samples["bedform"], samples[peer])
        promise.add(f"{name}, {peer}", not ratio.is_loss(LOSS_RATIO), ratio.describe())
        cells.append(ratio.describe())
    return cells


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
