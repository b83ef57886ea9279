"""`convert-dask`: conversions by the workers of a local Dask cluster, and without Dask.

A field of float32, written as maps by `to_netcdf` and by `to_zarr`, is converted to a store for
series. Without Dask one process converts with all cores. With Dask there are as many single-thread
workers as cores, started before the clock, as in a cluster. Both targets are synced. After each
round the copies are compared with the field bit by bit.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "convert-dask"
SLOWER_MAX = 1.1
STEPS, QUICK_STEPS = 1460, 240
MAP = (181, 360)
READS = {("time",): 1.0}
MEMORY = "128 MiB"
WAYS = ("without", "dask")


def field(steps: int) -> np.ndarray[Any, Any]:
    """Returns smooth moving waves with noise: one map per step."""
    generator = np.random.default_rng(7)
    across = np.linspace(0, 2 * np.pi, MAP[0])[:, None]
    along = np.linspace(0, 6 * np.pi, MAP[1])[None]
    values = np.empty((steps, *MAP), "f4")
    for step in range(steps):
        waves = np.sin(along + step / 40) * np.cos(across - step / 90)
        values[step] = 280 + 15 * waves + 0.05 * generator.standard_normal(MAP)
    return values


def make(place: Path, values: np.ndarray[Any, Any]) -> dict[str, Path]:
    """Write the sources."""
    import xarray as xr

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    dataset = xr.Dataset({"t": (("time", "lat", "lon"), values)})
    netcdf = {"chunksizes": (1, *MAP), "zlib": True, "complevel": 4, "shuffle": True}
    paths = {"netcdf-4": place / "maps.nc", "zarr": place / "maps.zarr"}
    dataset.to_netcdf(paths["netcdf-4"], engine="h5netcdf", encoding={"t": netcdf})
    dataset.to_zarr(paths["zarr"], encoding={"t": {"chunks": (1, *MAP)}}, consolidated=False)
    return paths


def run(options: Options) -> Report:
    """Convert each source both ways, round by round."""
    import distributed

    cores = os.cpu_count() or 1
    values = field(QUICK_STEPS if options.quick else STEPS)
    size = f"{values.nbytes >> 20} MiB"
    settings = {"size": size, "memory": MEMORY, "workers": str(cores)}
    report = Report(NAME, options.command, {**settings, "rounds": str(options.rounds)})
    table = Table("Seconds to convert", ["source", *WAYS, "dask / without"])
    place = data.ROOT / "convert-dask"
    sources = make(place, values)
    cluster = distributed.LocalCluster(
        n_workers=cores, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        for name, source in sources.items():
            if not options.wants(name):
                continue

            def convert(way: str, name: str = name, source: Path = source) -> float:
                target = place / "target.zarr"
                dask = client if way == "dask" else None
                began = time.perf_counter()
                bf.convert(source, target, reads=READS, memory=MEMORY, dask=dask)
                took = time.perf_counter() - began
                with bf.open(target) as store:
                    found = store["t"][...]
                if found.tobytes() != values.tobytes():
                    raise AssertionError(f"{name}, {way}: the copy differs")
                shutil.rmtree(target)
                return took

            for way in WAYS:
                convert(way)  # Warms the page cache and the workers' imports.
            samples = interleave(list(WAYS), options.rounds, convert)
            ratio = paired_ratio(samples["dask"], samples["without"])
            cells = [f"{median(samples[way]):.2f}" for way in WAYS]
            table.rows.append([name, *cells, ratio.describe()])
            report.samples[name] = {"seconds": samples}
            promise = f"{name}: with Dask at most {SLOWER_MAX} times as long"
            holds = ratio.median <= SLOWER_MAX
            report.verdicts.append(Verdict(promise, ratio.describe(), holds))
    shutil.rmtree(place, ignore_errors=True)
    report.tables.append(table)
    return report
