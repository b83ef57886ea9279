"""`chunk-planar`: planes of three directions, cold, from common layouts.

The raw field as contiguous HDF5 (the output of a simulation), as HDF5 with h5py's default chunks,
as HDF5 in 64^3 chunks, as Zarr in 64^3 chunks and in the advised layout. TensorStore also reads the
last one, to show the layout without the engine. The figure of the issue is the slowest plane of
contiguous HDF5 over the slowest of the advised layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import cold, data
from benchmarks.harness.bedform_engine import is_installed
from benchmarks.harness.comparison import OURS
from benchmarks.harness.options import BASELINE, PEERS
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.rounds import Samples, fastest_variant, interleave
from benchmarks.harness.selections import named_selections
from benchmarks.harness.statistics import Ratio, median, paired_ratio
from benchmarks.harness.worker import WorkerProcess, checksum, stop_workers

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "chunk-planar"
PLANES = ("plane i", "plane j", "plane k")
CONTIGUOUS = "HDF5 contiguous"
ADVISED = "Zarr advised"
GAIN, SPREAD = 12.0, 1.5


@dataclass(frozen=True)
class Entry:
    """A file and the engine that reads it."""

    name: str
    engine: str
    path: Path


def entries(options: Options) -> list[Entry]:
    """Return the files, built where they are missing."""
    size = options.size
    cube = (max(size // 8, 4),) * 3
    standard, advised = data.standard_layout(size), data.advised_layout(size)
    zarr = data.zarr_store(size, standard, "raw")
    best = data.zarr_store(size, advised, "raw")
    found = [
        Entry(CONTIGUOUS, "hdf5", data.hdf5_file(size, "contiguous", None)),
        Entry("HDF5 default chunks", "hdf5", data.hdf5_file(size, "default", True)),
        Entry(f"HDF5 {cube[0]}^3", "hdf5", data.hdf5_file(size, "chunked", cube)),
        Entry(f"Zarr {standard.describe()}", "tensorstore", zarr),
        Entry(f"{ADVISED} {advised.describe()}", "tensorstore", best),
    ]
    if is_installed():
        older = [BASELINE] if BASELINE in PEERS else []
        found += [Entry(f"{ADVISED} {advised.describe()}", one, best) for one in (*older, OURS)]
    return [one for one in found if options.wants(label(one))]


def label(entry: Entry) -> str:
    """Return the name of an entry with its reader."""
    return f"{entry.name} ({entry.engine})"


def measure(
    options: Options, files: dict[str, Entry], workers: dict[str, WorkerProcess], plane: str
) -> Samples:
    """Run the rounds of one plane; every file is read once per round, from the cold device."""
    selection = named_selections(options.size)[plane]
    expected = checksum(data.truth(options.size)[selection])

    def read(name: str, key: str) -> float:
        cold.make_cold(files[name].path)
        seconds: float = workers[name].call("read", key, expected)
        return seconds

    def attempt(name: str, variant: str) -> float:
        workers[name].call("prepare", variant, selection, variant)
        return read(name, variant)

    for name, worker in workers.items():
        variants = options.some(list(worker.call("describe")["read"]))
        best = fastest_variant(variants, 1 if options.quick else 2, partial(attempt, name))
        worker.call("prepare", plane, selection, best)
    return interleave(list(files), options.rounds, lambda name: read(name, plane))


def run(options: Options) -> Report:
    """Read the three planes of every file."""
    report = Report(NAME, options.command, options.settings())
    files = {label(entry): entry for entry in entries(options)}
    workers = {name: WorkerProcess(entry.engine) for name, entry in files.items()}
    try:
        for name, worker in workers.items():
            worker.call("open", files[name].path)
            report.settings[files[name].engine] = worker.call("describe")["version"]
        planes = {plane: measure(options, files, workers, plane) for plane in PLANES}
    finally:
        stop_workers(workers)
    columns = ["file", *PLANES, "slowest / fastest", "contiguous slowest / slowest"]
    table = Table("Planes, raw, cold; milliseconds", columns)
    base = next(name for name in files if name.startswith(CONTIGUOUS))
    for name in files:
        medians = [median(planes[plane][name]) for plane in PLANES]
        row = [name, *map(milliseconds, medians), f"{max(medians) / min(medians):.2f}"]
        table.rows.append([*row, gain(planes, base, name).describe()])
    table.note = "The issue's figures are the last two columns of the advised layout."
    report.tables.append(table)
    report.verdicts = verdicts(planes, base, list(files))
    report.samples = {plane: {"seconds": samples} for plane, samples in planes.items()}
    return report


def slowest(planes: dict[str, Samples], name: str) -> list[float]:
    """Returns the times, per round, of the plane with the largest median."""
    plane = max(planes, key=lambda plane: median(planes[plane][name]))
    return planes[plane][name]


def gain(planes: dict[str, Samples], base: str, name: str) -> Ratio:
    """Returns the speedup of the slowest plane over the base, round by round."""
    return paired_ratio(slowest(planes, base), slowest(planes, name))


def verdicts(planes: dict[str, Samples], base: str, names: list[str]) -> list[Verdict]:
    """Returns the promises for the advised layout, compared with the measurements."""
    promises = (
        f"slowest plane at least {GAIN:.0f} times faster than contiguous",
        f"three planes within {SPREAD} times of each other",
    )
    ours = next((name for name in names if name.endswith(f"({OURS})")), None)
    if ours is None:
        return [Verdict(promise, "-", None) for promise in promises]
    gained = gain(planes, base, ours)
    medians = [median(planes[plane][ours]) for plane in PLANES]
    spread = max(medians) / min(medians)
    return [
        Verdict(promises[0], gained.describe(), gained.median >= GAIN),
        Verdict(promises[1], f"{spread:.2f}", spread <= SPREAD),
    ]
