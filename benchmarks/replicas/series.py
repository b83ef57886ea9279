"""`replica-series`: time series of a NetCDF-4 file that was written map by map.

One float32 variable (time, lat, lon), contiguous as from its producer: an hourly year of a region,
2 GiB. `watch` traces reads of maps and of random series in a hot region, an eighth of the domain;
`learn` and `optimize` with a budget of 20 % follow. Then the reads, cold, each opened and closed:
one series, one map, a hundred maps, 64 series in one call (8 rows by 8 columns). The last are
compared with single reads of h5py in one pass over boxes or whole maps, and with netCDF4's lists.
The slowest of 64 single series is compared with the peers, too. Dask through xarray is reported; a
Zarr store of maps is in `stores.py`.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.replicas import stores
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import OURS, PEERS, READERS
from benchmarks.replicas.trials import (
    Line,
    ReplicaTrial,
    Subject,
    faster,
    forget_replicas,
    heads,
    in_process,
    is_slower,
    job_of,
    peers_of,
    row,
    sidecar_bytes,
    sidecar_of,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Values

NAME = "replica-series"
BUDGET, SHARE_MAX = "20%", 0.2
FASTER_MIN = 100.0
#: Bytes that a peer reads into memory at once in a pass over the file.
PASS_BYTES = 64 << 20
TRACED_SERIES, TRACED_MAPS = 200, 40
DASK = {"dask, bedform": "bedform", "dask, netcdf4": "netcdf4"}
DASK_STEPS, DASK_ROUNDS = 1095, 3
#: Number of series and maps sampled for all readers; reads of each of the many series.
SAMPLED, EACH_READS = 3, 3
ALONE = "series/alone"


def field_of(is_quick: bool) -> Field:
    """Return the variable."""
    shape = (1460, 120, 128) if is_quick else (8760, 240, 256)
    return Field("t", ("time", "lat", "lon"), shape, "float32")


def hot_region(of: Field) -> tuple[range, range]:
    """Return its rows and columns: an eighth of the domain."""
    _, rows, columns = of.shape
    return range(rows * 5 // 12, rows * 3 // 4), range(columns // 4, columns * 5 // 8)


def random_series(of: Field, count: int, seed: int) -> list[Selection]:
    """Returns different series in the hot region."""
    rows, columns = hot_region(of)
    chosen = np.random.default_rng(seed).choice(len(rows) * len(columns), count, replace=False)
    return [
        (slice(None), rows[int(at) // len(columns)], columns[int(at) % len(columns)])
        for at in chosen
    ]


def grid_of_series(of: Field, seed: int) -> Selection:
    """Return 8 rows and 8 columns of the hot region."""
    random = np.random.default_rng(seed)
    lists = [sorted(map(int, random.choice(one, 8, replace=False))) for one in hot_region(of)]
    return (slice(None), *lists)


def passes(path: Path, name: Names, selections: list[Selection], is_whole: bool) -> Values:
    """Read by h5py in one pass: boxes around the lists, or whole maps, many steps at a time."""
    import h5py

    found = []
    with h5py.File(path, "r") as file:
        array: Any = file[name]
        steps, *space = array.shape
        for _, *lists in selections:
            ends = [(one[0], one[-1] + 1) for one in lists]
            if is_whole:
                ends = [(0, length) for length in space]
            box = tuple(slice(*end) for end in ends)
            picked = np.ix_(
                *([at - end[0] for at in one] for one, end in zip(lists, ends, strict=True))
            )
            size = math.prod(end - first for first, end in ends) * array.dtype.itemsize
            at_once = max(1, PASS_BYTES // size)
            values = np.empty((steps, *map(len, lists)), array.dtype)
            for first in range(0, steps, at_once):
                part = slice(first, min(first + at_once, steps))
                values[part] = array[(part, *box)][:, *picked]
            found.append(values)
    return found


def read_boxes(path: Path, name: Names, selections: list[Selection]) -> Values:
    """Read the boxes around the lists in one pass."""
    return passes(path, name, selections, is_whole=False)


def read_maps(path: Path, name: Names, selections: list[Selection]) -> Values:
    """Read whole maps in one pass."""
    return passes(path, name, selections, is_whole=True)


def lines_of(of: Field) -> dict[str, Line]:
    """Return the lines."""
    steps = np.random.default_rng(3).choice(of.shape[0] - 100, SAMPLED, replace=False)
    space = (slice(None), slice(None))
    grids = [[grid_of_series(of, seed)] for seed in range(SAMPLED)]
    in_one_pass = {"h5py, boxes": read_boxes, "h5py, maps": read_maps}
    alone = [[one] for one in random_series(of, SAMPLED, 2)]
    lines = [
        Line(ALONE, alone),
        Line("series/64 in one call", grids, in_one_pass, ("h5py", "xarray")),
        Line("maps/1", [[(int(at), *space)] for at in steps]),
        Line("maps/100", [[(slice(int(at), int(at) + 100), *space)] for at in steps]),
    ]
    return {line.name: line for line in lines}


def optimized(file: Subject[Field]) -> dict[str, Any]:
    """Traces, learns and optimizes; returns the decisions."""
    path, of = file.path, file.of
    forget_replicas(path)
    random = np.random.default_rng(1)
    steps = random.integers(0, of.shape[0], TRACED_MAPS)
    maps = [(int(at), slice(None), slice(None)) for at in steps]
    trace(path, of.name, [*random_series(of, TRACED_SERIES, 1), *maps])
    began = time.perf_counter()
    done = bf.optimize(path, BUDGET)
    return {
        "seconds": time.perf_counter() - began,
        "replicas": [f"{one['shape']} in {one['chunks']}" for one in done.plan["make"]],
        "file_bytes": path.stat().st_size,
        "sidecar_bytes": sidecar_bytes(path),
    }


def dask_series(engine: str, file: Subject[Field], series: list[Selection]) -> float:
    """Computes 64 series in one call of Dask; returns the seconds."""
    import dask.base
    import xarray as xr

    began = time.perf_counter()
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        xr.open_dataset(file.path, engine=engine, chunks={"time": DASK_STEPS}) as opened,
    ):
        picked = [opened[file.of.name][selection] for selection in series]
        found = dask.base.compute(*picked, scheduler="threads", pool=pool)
    seconds = time.perf_counter() - began
    for values, selection in zip(found, series, strict=True):
        if not np.array_equal(values, file.of.of(selection)):
            raise RuntimeError(f"wrong values of {selection}")
    return seconds


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines, in a separate process."""
    for module in ("h5py", "netCDF4", "xarray", "dask.array"):
        importlib.import_module(module)
    of, small = field_of(job["quick"]), Field("t", ("time", "lat", "lon"), (200, 48, 64), "float32")
    place = data.ROOT / NAME
    file = Subject(data.ensure(place / f"{of.shape[0]}.nc", of.write), of)
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    found: dict[str, Any] = {"decided": optimized(file), "lines": {}}
    optimized(little)
    trial = ReplicaTrial(file, little, lines_of(small))
    for name, line in lines_of(of).items():
        if name in job["lines"]:
            found["lines"][name] = trial.compare(line, job["rounds"])
    if "series/each" in job["lines"]:
        found["each"] = [
            [trial.once(READERS[OURS], [one], ALONE) for _ in range(EACH_READS)]
            for one in random_series(of, 16 if job["quick"] else 64, 5)
        ]
    if "series/dask" in job["lines"]:
        found["dask"] = dask_times(file, little)
    for one in (file, little):
        forget_replicas(one.path)
    names = [name for name in stores.LINES if name in job["lines"]]
    found["stores"] = stores.measure(place, names, job["quick"], job["rounds"])
    return found


def dask_times(file: Subject[Field], little: Subject[Field]) -> dict[str, list[float]]:
    """Measures 64 series through xarray and Dask."""
    few, series = random_series(little.of, 2, 6), random_series(file.of, 64, 6)

    def timed_in_child(engine: str) -> float:
        dask_series(engine, little, few)
        return dask_series(engine, file, series)

    def once(reader: str) -> float:
        for one in (file.path, sidecar_of(file.path)):
            cold.make_cold(one)
        return float(in_child(timed_in_child, DASK[reader]))

    return interleave(list(DASK), DASK_ROUNDS, once)


def run(options: Options) -> Report:
    """Runs the requested lines."""
    of = field_of(options.quick)
    named = [*lines_of(of), "series/each", "series/dask", *stores.LINES]
    wanted = [name for name in named if options.wants(name)]
    job = {**job_of(options), "lines": wanted}
    found = in_process("series", job)
    lines = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": str(job["rounds"]), **lines})
    decided = found["decided"]
    share = decided["sidecar_bytes"] / decided["file_bytes"]
    report.settings |= {
        "file": f"{'x'.join(map(str, of.shape))} {of.dtype}, {bytes_in_words(of.byte_count)}",
        "replicas": f"{'; '.join(decided['replicas'])}, made in {decided['seconds']:.0f} s",
    }
    report.samples = found
    peers = [*PEERS, "h5py, boxes", "h5py, maps"]
    table = Table("Cold: open, read, close; milliseconds", heads(peers))
    quick = Promise(f"each series at least {FASTER_MIN:.0f} times faster than the fastest peer")
    slower = Promise("maps, 64 series in one call against one pass, a Zarr store: none slower")
    small = Promise(f"replicas with all their metadata at most {SHARE_MAX:.0%} of the file")
    small.add("bytes", share <= SHARE_MAX, f"{share:.1%}")
    for name, line in found["lines"].items():
        table.rows.append(row(name, line, peers))
        ratio = faster(line)
        if name == ALONE:
            quick.add(name, ratio.median >= FASTER_MIN, ratio.describe())
        else:
            slower.add(name, not is_slower(ratio), ratio.describe())
    add_stores(report, found["stores"], slower)
    each(report, found, quick)
    conclude(report, table, [quick, slower, small])
    if "dask" in found:
        report.tables.append(dask_table(found["dask"]))
    return report


def add_stores(report: Report, lines: dict[str, Any], slower: Promise) -> None:
    """Add the lines of a Zarr store."""
    peers = [stores.ZARR_PYTHON, stores.TENSORSTORE]
    table = Table("A Zarr store of maps, cold: open, read, close; milliseconds", heads(peers))
    for name, line in lines.items():
        table.rows.append(row(name, line, peers))
        ratio = faster(line)
        slower.add(name, not is_slower(ratio), ratio.describe())
    if table.rows:
        report.tables.append(table)


def each(report: Report, found: dict[str, Any], promise: Promise) -> None:
    """Compares the slowest of many series with the fastest peer."""
    if "each" not in found or ALONE not in found["lines"]:
        return
    samples = found["lines"][ALONE]["samples"]
    fastest = min(median(samples[name]) for name in peers_of(samples))
    seconds = sorted(median(one) for one in found["each"])
    times = fastest / seconds[-1]
    promise.add("series/each", times >= FASTER_MIN, f"{times:.0f}, the slowest of {len(seconds)}")
    columns = ["line", "series", "fastest", "median", "slowest", "times faster, slowest"]
    shown = [milliseconds(one) for one in (seconds[0], median(seconds), seconds[-1])]
    cells = ["series/each", str(len(seconds)), *shown, f"{times:.0f}"]
    note = "The median of three reads of each, against the median of the fastest peer above."
    report.tables.append(Table("Series, each alone; milliseconds", columns, [cells], note))


def dask_table(samples: dict[str, list[float]]) -> Table:
    """Returns the times of 64 series through xarray and Dask."""
    ours, theirs = samples.values()
    cells = ["series/dask", *(milliseconds(median(samples[name])) for name in DASK)]
    columns = ["line", *DASK, "times faster"]
    title = f"64 series in one call of Dask, blocks of {DASK_STEPS} steps; milliseconds"
    return Table(title, columns, [[*cells, paired_ratio(theirs, ours).describe()]])
