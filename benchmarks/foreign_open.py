"""`foreign-open`: the first open of NetCDF-4 files, alone and 200 of them by `xr.open_mfdataset`.

Every sample is a fresh process that imports everything before its clock starts, and opens new
files, for which no chunk map is kept. "Again" opens the same files once more in the same process.
The files are in the page cache, for all engines alike.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "foreign-open"
ENGINES = ("bedform", "netcdf4", "h5netcdf")
FILES, STEPS = 200, 24
#: The program of a fresh process; arguments: engine, task, files. It prints its seconds.
PROGRAM = """
import json, sys, time, warnings
import netCDF4, h5netcdf, xarray as xr, dask.array, bedform as bf, bedform.xarray_backend
warnings.simplefilter("ignore")
engine, what, steps, *paths = sys.argv[1:]
steps = int(steps)
xr.open_dataset(paths[0], engine=engine).close()  # imports that wait for a first use
paths = paths[1:]

def bare(path):
    if engine == "bedform":
        return bf.open(path)["t"].shape
    if engine == "netcdf4":
        with netCDF4.Dataset(path) as file:
            return file["t"].shape
    with h5netcdf.File(path) as file:
        return file["t"].shape

def many():
    joined = xr.open_mfdataset(
        paths, engine=engine, combine="nested", concat_dim="time", data_vars="minimal",
        coords="minimal", compat="override")
    assert joined["t"].shape[0] == steps * len(paths), joined
    assert float(joined["t"][5, 3, 4]) == 5.0
    joined.close()

def one():
    for path in paths:
        assert bare(path)[0] == steps

work, found = {"open": one, "many": many}[what], []
for _ in range(2):
    began = time.perf_counter()
    work()
    found.append(time.perf_counter() - began)
print(json.dumps(found))
"""


def make(place: Path, count: int) -> list[Path]:
    """Write the files: two variables in compressed chunks, coordinates, attributes."""
    import netCDF4

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    paths = [place / f"{number:03}.nc" for number in range(count)]
    values = np.broadcast_to(np.arange(STEPS, dtype="f4")[:, None, None], (STEPS, 46, 90))
    for number, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            for name, length in (("time", None), ("lat", 46), ("lon", 90)):
                file.createDimension(name, length)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "hours since 2000-01-01"
            time[:] = np.arange(STEPS) + STEPS * number
            for name, length in (("lat", 46), ("lon", 90)):
                axis = file.createVariable(name, "f8", (name,))
                axis.units = f"degrees_{'north' if name == 'lat' else 'east'}"
                axis[:] = np.arange(length)
            for name in ("t", "u"):
                variable = file.createVariable(name, "f4", ("time", "lat", "lon"), zlib=True)
                variable.units, variable.long_name = "K", f"the variable {name}"
                variable[:] = values
    return paths


def run(options: Options) -> Report:
    """Runs both lines."""
    count = 20 if options.quick else FILES
    report = Report(NAME, options.command, {"files": str(count), "rounds": str(options.rounds)})
    place = data.ROOT / "foreign-open"
    table = Table(
        "Milliseconds; of one file alone those of each, in the median",
        ["what", *ENGINES, "bedform / netcdf4"],
    )
    verdicts = []
    for what, label, limit in [
        ("open", "first open", None),
        ("open", "again", None),
        ("many", "open_mfdataset", 1.5),
        ("many", "open_mfdataset again", 1.0),
    ]:
        if not options.wants(label):
            continue
        nth = 1 if label.endswith("again") else 0
        each = count if what == "open" else 1

        def sample(engine: str, what: str = what, nth: int = nth, each: int = each) -> float:
            # New files for each sample: chunk maps of others are of no use.
            paths = make(place, count + 1)
            command = [sys.executable, "-c", PROGRAM, engine, what, str(STEPS), *map(str, paths)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            found: list[float] = json.loads(done.stdout.splitlines()[-1])
            return found[nth] / each

        samples = interleave(list(ENGINES), options.rounds, sample)
        ratio = paired_ratio(samples["bedform"], samples["netcdf4"])
        cells: list[Any] = [milliseconds(median(samples[engine])) for engine in ENGINES]
        table.rows.append([label, *cells, ratio.describe()])
        report.samples[label] = {"seconds": samples}
        ours, theirs = (median(samples[engine]) for engine in ("bedform", "netcdf4"))
        if limit is None:
            said = f"{ours * 1e3:.2f} ms, netcdf4 {theirs * 1e3:.2f} ms"
            promise = f"{label} within 2 times netcdf4 + 20 ms"
            verdicts.append(Verdict(promise, said, ours <= 2 * theirs + 0.020))
        else:
            promise = f"{label} within {limit} times netcdf4"
            verdicts.append(Verdict(promise, f"{ours / theirs:.2f}", ours <= limit * theirs))
    shutil.rmtree(place, ignore_errors=True)
    report.tables.append(table)
    report.verdicts = verdicts
    return report
