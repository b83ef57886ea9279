"""`h5-read`: unmodified programs of h5py, netCDF4 and xarray, through the connector of HDF5.

Each program opens a NetCDF-4 file of 2 GiB and reads 64 time series at points of a region, each in
a process of its own, cold. The file is as its producer wrote it, without chunks or deflated in
chunks of one map. Three ways: the file alone; with the connector, after `bedform watch`, one run,
`bedform learn` and `bedform optimize --budget 20%`; and a copy in chunks for series, as `nccopy -c`
makes it. The time of the first series counts everything from the start of HDF5, the loading of the
connector with it. Maps are read as well, which no replica serves: they must not become slower.
`open_mfdataset` reads the same series from four files, each with replicas of its own.

A series of a deflated file takes seconds, since all of it is decoded. There four series are read of
the file alone, and their mean stands for the others.

The answers to the first four reads are compared by digest with those of the file alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from bedform import _hdf5
from benchmarks.harness import cold, data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "h5-read"
PROGRAM = Path(__file__).parent / "drivers" / "h5_series.py"
SERIES = 64
FEW = 4
FILES = 4
FASTER = 20.0
MAPS_SLOWER = 1.05
VARIABLE = "t2m"
LIBRARIES = ("h5py", "netCDF4", "xarray", "open_mfdataset")
FORMS = {"contiguous": {}, "deflated": {"zlib": True, "complevel": 2, "shuffle": True}}


def shape_of(options: Options) -> tuple[int, int, int]:
    """Returns the shape of the file: 2 GiB of float32, or less in a quick run."""
    return (128, 64, 128) if options.quick else (2048, 512, 512)


def written(path: Path, shape: tuple[int, int, int], form: dict[str, Any], first: int = 0) -> None:
    """Writes maps one after the other, smooth with noise."""
    import netCDF4

    chunks = (1, *shape[1:]) if form else None
    axes = np.meshgrid(*(np.linspace(0, 9, n) for n in shape[1:]), indexing="ij", sparse=True)
    smooth = np.asarray(sum(np.sin(axis) for axis in axes))
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(("time", "lat", "lon"), shape, strict=True):
            file.createDimension(name, length)
        made = file.createVariable(
            VARIABLE, "f4", ("time", "lat", "lon"), contiguous=not form, chunksizes=chunks, **form
        )
        for at in range(shape[0]):
            noise = np.random.default_rng(first + at).normal(0, 0.1, shape[1:])
            made[at] = (280 + 9 * smooth + noise).astype("f4")


def chunked(path: Path, target: Path, form: dict[str, Any]) -> None:
    """Copies a file in chunks for series, as `nccopy -c` does."""
    import netCDF4

    with netCDF4.Dataset(path) as file, netCDF4.Dataset(target, "w") as copy:
        source = file[VARIABLE]
        for name, dimension in file.dimensions.items():
            copy.createDimension(name, len(dimension))
        chunks = (min(512, source.shape[0]), 8, 8)
        made = copy.createVariable(
            VARIABLE, "f4", source.dimensions, chunksizes=chunks, fill_value=None, **form
        )
        for row in range(0, source.shape[1], 64):
            made[:, row : row + 64] = source[:, row : row + 64]


def run_program(
    library: str, files: list[Path], kind: str, count: int, connected: bool
) -> dict[str, Any]:
    """Runs a program cold; returns its seconds and the digest of its answers."""
    for file in files:
        cold.make_cold(file)
        sidecar = Path(f"{file}.bedform")
        if connected and sidecar.exists():
            cold.make_cold(sidecar)
    environment = _hdf5.native_environment()
    if connected:
        environment |= _hdf5.environment(environment, [sys.executable])
    command = [sys.executable, str(PROGRAM), library, kind, str(count), *map(str, files)]
    done = subprocess.run(  # noqa: S603
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def alone(library: str, files: list[Path], form: str) -> dict[str, Any]:
    """Runs a program without the connector; of a deflated file it reads a few series alone."""
    count = FEW if form == "deflated" else SERIES
    found = run_program(library, files, "series", count, False)
    later = (found["all"] - found["first"]) / (count - 1)
    return {**found, "all": found["first"] + later * (SERIES - 1)}


def replicas_made(files: list[Path], form: str, shape: tuple[int, int, int]) -> float:
    """Has one run recorded, and makes replicas for it; returns their share of the files.

    Of deflated files the reads are named, since the run would take a quarter of an hour.
    """
    is_recorded = form != "deflated"
    if is_recorded:
        for file in files:
            bf.watch(file)
        run_program("h5py" if len(files) == 1 else "open_mfdataset", files, "series", SERIES, True)
    region = {"lat": (0, shape[1] // 4), "lon": (0, shape[2] // 4)}
    kept = 0
    for file in files:
        if is_recorded:
            bf.learn(file)
            bf.optimize(file, "20%")
            bf.watch(file, False)
        else:
            bf.optimize(file, "20%", reads={"time": 1}, region=region)
        replicas = Path(f"{file}.bedform") / "replicas"
        kept += sum(one.stat().st_size for one in replicas.rglob("*") if one.is_file())
    return kept / sum(file.stat().st_size for file in files)


def measured(options: Options, form: str, report: Report) -> Table:
    """Measures all libraries on a file of this form."""
    shape, root = shape_of(options), data.ROOT / "h5-read"
    root.mkdir(parents=True, exist_ok=True)
    whole, copy = root / f"{form}.nc", root / f"{form}-series.nc"
    parts = [root / f"{form}-{number}.nc" for number in range(FILES)]
    length = shape[0] // FILES
    written(whole, shape, FORMS[form])
    chunked(whole, copy, FORMS[form])
    for number, part in enumerate(parts):
        written(part, (length, *shape[1:]), FORMS[form], number * length)
    os.sync()
    shares = [replicas_made(files, form, shape) for files in ([whole], parts)]
    os.sync()
    report.settings[f"replicas of the {form} files"] = ", ".join(f"{one:.0%}" for one in shares)
    table = Table(
        f"A {form} file: milliseconds",
        [
            "program",
            "first",
            "connected",
            "ratio",
            "all",
            "connected",
            "ratio",
            "in chunks",
            "maps",
        ],
    )
    rounds = 1 if options.quick else max(3, options.rounds // 5)
    for library in LIBRARIES:
        files = parts if library == "open_mfdataset" else [whole]
        if not options.wants(f"{form}/{library}"):
            continue
        times: dict[str, list[dict[str, Any]]] = {"alone": [], "connected": [], "copy": []}
        maps: dict[str, list[float]] = {"alone": [], "connected": []}
        for _ in range(rounds):
            times["alone"].append(alone(library, files, form))
            times["connected"].append(run_program(library, files, "series", SERIES, True))
            if len(files) == 1:
                times["copy"].append(run_program(library, [copy], "series", SERIES, False))
            for name in maps:
                found = run_program(library, files, "maps", SERIES, name == "connected")
                maps[name].append(found["all"])
        digests = {found["digest"] for runs in times.values() for found in runs}
        if len(digests) != 1:
            raise ValueError(f"{form}, {library}: answers differ")
        middle = {
            (name, part): median([found[part] for found in runs])
            for name, runs in times.items()
            for part in ("first", "all")
            if runs
        }
        row = [library]
        for part in ("first", "all"):
            ratio = middle["alone", part] / middle["connected", part]
            row += [*(milliseconds(middle[name, part]) for name in ("alone", "connected"))]
            row.append(f"{ratio:.1f}")
            line = f"{form}, {library}, {part}: at least {FASTER:.0f} times faster"
            report.verdicts.append(Verdict(line, f"{ratio:.1f} times", ratio >= FASTER))
        slower = median(maps["connected"]) / median(maps["alone"])
        row += [milliseconds(middle["copy", "all"]) if ("copy", "all") in middle else ""]
        table.rows.append([*row, f"{slower:.2f}"])
        line = f"{form}, {library}: maps at most {MAPS_SLOWER} times as long"
        report.verdicts.append(Verdict(line, f"{slower:.2f}", slower <= MAPS_SLOWER))
        report.samples[f"{form}, {library}"] = [
            middle["alone", "all"],
            middle["connected", "all"],
        ]
    for file in [whole, copy, *parts]:
        data.remove(file)
        data.remove(Path(f"{file}.bedform"))
    return table


def run(options: Options) -> Report:
    """Measures contiguous and deflated files."""
    report = Report(NAME, options.command, {"series": str(SERIES)})
    for form in FORMS:
        if any(options.wants(f"{form}/{library}") for library in LIBRARIES):
            report.tables.append(measured(options, form, report))
    report.settings["load at the end"] = f"{os.getloadavg()[0]:.1f}"
    return report
