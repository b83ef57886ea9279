"""`xarray`: common tasks of xarray users, against the engines `netcdf4` and `zarr` with defaults.

*Dask*: a climatology (`groupby("time.month").mean`) and 100 stations (`isel` of points), each from
opening with `chunks={}` to the values. Every engine reads a file or store of the same data that it
wrote with its defaults, and `netcdf4` also a compressed file with one map per chunk; Bedform reads
all of them.

*Append*: 36 months, each with one call, `append_dim="time"`. Bedform's are durable, and once more
with `durability="process"`, the guarantee of `to_zarr`.

*Open*: a store of 2,000 arrays, `zarr` with consolidated metadata.

Page caches are warm; caches of the engines are off. Answers are compared with NumPy's.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.parallel import ROOT
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.harness.rounds import Samples

NAME = "xarray"
FULL = (2557, 72, 144)
QUICK = (400, 18, 36)
STATIONS = 100
MONTHS = 36
ARRAYS = 2000
SLOWER_MOST = 1.1


def place_of(name: str) -> Path:
    """Returns an unused place."""
    place: Path = ROOT / name
    ROOT.mkdir(parents=True, exist_ok=True)
    for old in (place, place.with_name(f"{name}.bedform-log")):
        data.remove(old)
    return place


def temperatures(shape: tuple[int, ...], start: str, seed: int) -> xr.Dataset:
    """Return days of a field with a season, a gradient and noise."""
    days, lats, lons = shape
    lat = np.linspace(-88, 88, lats)
    time = np.datetime64(start, "ns") + np.arange(days) * np.timedelta64(1, "D")
    season = 10 * np.sin(2 * np.pi * np.arange(days) / 365.25)
    noise = np.round(np.random.default_rng(seed).normal(0, 2, shape), 2)
    values = 280 + 20 * np.cos(np.deg2rad(lat))[:, None] + season[:, None, None] + noise
    return xr.Dataset(
        {"t": (("time", "lat", "lon"), values.astype("f4"), {"units": "K"})},
        coords={"time": time, "lat": lat, "lon": np.linspace(0, 360, lons, endpoint=False)},
    )


def compare(report: Report, table: Table, line: str, samples: Samples, peers: list[str]) -> None:
    """Adds a row for each engine, and our ratio to the fastest peer."""
    fastest = min(peers, key=lambda name: median(samples[name]))
    for name, seconds in samples.items():
        ratio = paired_ratio(seconds, samples[fastest])
        is_ours = name not in peers
        cells = [line, name, f"{median(seconds):.3f}"]
        table.rows.append([*cells, ratio.describe() if is_ours else "-"])
        if is_ours:
            promise = f"{line}: {name} within {SLOWER_MOST} of the fastest peer ({fastest})"
            holds = ratio.median <= SLOWER_MOST
            report.verdicts.append(Verdict(promise, ratio.describe(), holds))
    report.samples[line] = samples


@dataclass(frozen=True)
class Source:
    """A file or store, with the engine that opens it."""

    engine: str
    place: Path

    def open(self, **options: Any) -> xr.Dataset:
        """Opens it, without Bedform's cache."""
        if self.engine == "bedform":
            options["chunk_cache"] = 0
        return xr.open_dataset(self.place, engine=self.engine, **options)


def sources(dataset: xr.Dataset) -> dict[str, Source]:
    """Writes the data in each way; returns the sources by name."""
    names = ("plain.nc", "maps.nc", "theirs.zarr", "ours.zarr")
    plain, maps, theirs, ours = (place_of(name) for name in names)
    dataset.to_netcdf(plain, engine="netcdf4")
    _, lats, lons = dataset["t"].shape
    packed = {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": (1, lats, lons)}
    dataset.to_netcdf(maps, engine="netcdf4", encoding={"t": packed})
    dataset.to_zarr(theirs, consolidated=True)
    bf.write_dataset(dataset, ours)
    return {
        "netcdf4": Source("netcdf4", plain),
        "netcdf4, compressed": Source("netcdf4", maps),
        "zarr": Source("zarr", theirs),
        "bedform, its store": Source("bedform", ours),
        "bedform, the file": Source("bedform", plain),
        "bedform, the compressed file": Source("bedform", maps),
        "bedform, the store of zarr": Source("bedform", theirs),
    }


def add_dask(report: Report, options: Options) -> None:
    """Measures Dask computations in the blocks of each engine."""
    dataset = temperatures(QUICK if options.quick else FULL, "2001-01-01", 1)
    opened = sources(dataset)
    generator = np.random.default_rng(3)
    at = {
        dim: xr.DataArray(generator.integers(0, dataset.sizes[dim], STATIONS), dims="station")
        for dim in ("lat", "lon")
    }
    work: dict[str, Callable[[xr.Dataset], xr.DataArray]] = {
        "climatology": lambda ds: ds["t"].groupby("time.month").mean(),
        "100 stations": lambda ds: ds["t"].isel(at),
    }
    size = dataset["t"].nbytes >> 20
    table = Table(f"Dask, chunks={{}}, {size} MiB; seconds", ["line", "engine", "median", "ratio"])
    peers = [name for name, source in opened.items() if source.engine != "bedform"]
    for line, compute in work.items():
        expected = compute(dataset)

        def once(
            name: str,
            compute: Callable[[xr.Dataset], xr.DataArray] = compute,
            expected: xr.DataArray = expected,
        ) -> float:
            begin = time.perf_counter()
            found = compute(opened[name].open(chunks={})).compute()
            seconds = time.perf_counter() - begin
            xr.testing.assert_allclose(found, expected, rtol=1e-5)
            return seconds

        samples = interleave(list(opened), options.rounds, once)
        compare(report, table, line, samples, peers)
    report.tables.append(table)


def add_append(report: Report, options: Options) -> None:
    """Measures a record that grows by one month per call."""
    months = 6 if options.quick else MONTHS
    shape = QUICK if options.quick else FULL
    whole = temperatures((months * 30, *shape[1:]), "2001-01-01", 2)
    parts = [whole.isel(time=slice(start, start + 30)) for start in range(0, months * 30, 30)]

    def with_zarr(part: xr.Dataset, place: Path, **how: Any) -> None:
        part.to_zarr(place, **how)

    def durably(part: xr.Dataset, place: Path, **how: Any) -> None:
        bf.write_dataset(part, place, **how)

    def in_process(part: xr.Dataset, place: Path, **how: Any) -> None:
        bf.write_dataset(part, place, durability="process", **how)

    ways = {"to_zarr": with_zarr, "bedform": durably, "bedform, process": in_process}

    def once(name: str) -> float:
        place = place_of("grows.zarr")
        begin = time.perf_counter()
        for number, part in enumerate(parts):
            ways[name](part, place, **({"append_dim": "time"} if number else {}))
        seconds = time.perf_counter() - begin
        xr.testing.assert_equal(xr.open_zarr(place, chunks=None)["t"], whole["t"])
        return seconds

    size = whole["t"].nbytes >> 20
    title = f"{months} appends, {size} MiB in all; seconds"
    table = Table(title, ["line", "engine", "median", "ratio"])
    samples = interleave(list(ways), max(3, options.rounds // 3), once)
    compare(report, table, "append", samples, ["to_zarr"])
    report.tables.append(table)


def add_open(report: Report, options: Options) -> None:
    """Measures opening a store of many arrays."""
    count = 100 if options.quick else ARRAYS
    many = xr.Dataset({f"v{n:04}": ("x", np.full(4, n, "f4"), {"n": n}) for n in range(count)})
    place = place_of("many.zarr")
    bf.write_dataset(many, place)

    def once(engine: str) -> float:
        begin = time.perf_counter()
        opened = xr.open_dataset(place, engine=engine)
        seconds = time.perf_counter() - begin
        if len(opened) != count or opened[f"v{count - 1:04}"].attrs["n"] != count - 1:
            raise AssertionError(f"{engine} opened something else")
        return seconds

    table = Table(f"opening {count:,} arrays; seconds", ["line", "engine", "median", "ratio"])
    samples = interleave(["zarr", "bedform"], options.rounds, once)
    compare(report, table, "open", samples, ["zarr"])
    report.tables.append(table)


PARTS = {"dask": add_dask, "append": add_append, "open": add_open}


def run(options: Options) -> Report:
    """Runs the requested parts (`--only`)."""
    report = Report(NAME, options.command, {"rounds": str(options.rounds)})
    for name in ("xarray", "dask", "zarr", "netCDF4"):
        report.settings[name] = str(__import__(name).__version__)
    with warnings.catch_warnings():
        # Ignores warnings of zarr-python about consolidated metadata, and about foreign files.
        warnings.simplefilter("ignore")
        for name, add in PARTS.items():
            if options.wants(name):
                add(report, options)
    data.remove(ROOT)
    return report
