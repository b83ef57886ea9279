"""`foreign-url`: a NetCDF-4 file on a web server, with 30 ms per request and 80 MB/s per stream.

Each sample opens the file and reads, as a user would. h5netcdf reads over fsspec, with each of its
caches and block sizes; the comparison is with the best of them. Nothing is kept between samples.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.slow_files import BYTES_PER_SECOND, SECONDS, slow_files
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "foreign-url"
VARIABLE = "t"
CHUNK = (12, 61, 120)
#: fsspec's caches that read in blocks, each with these block sizes.
CACHES = ("bytes", "readahead", "blockcache", "background")
BLOCK_BYTES = (256 << 10, 1 << 20, 4 << 20)


def shape_of(options: Options) -> tuple[int, int, int]:
    """Return steps on a grid of one degree; fewer in a quick run."""
    return (96, 181, 360) if options.quick else (1440, 181, 360)


def make(path: Path, shape: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """Writes the file with netCDF4, as its users do; returns the values."""
    import netCDF4

    random = np.random.default_rng(5)
    values = np.empty(shape, np.float32)
    for step, field in enumerate(values):
        field[...] = np.round(random.standard_normal(shape[1:]) + 280 + step % 24, 1)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(("time", "lat", "lon"), shape, strict=True):
            file.createDimension(name, length)
            file.createVariable(name, "f8", (name,))[:] = np.arange(length)
        for name in (VARIABLE, "u"):
            variable = file.createVariable(
                name, "f4", ("time", "lat", "lon"), zlib=True, shuffle=True, chunksizes=CHUNK
            )
            variable[:] = values
    return values


def variants(options: Options) -> list[str]:
    """Return fsspec's caches with their block sizes."""
    return options.some([f"{cache} {size}" for cache in CACHES for size in BLOCK_BYTES])


def read_by_h5netcdf(url: str, variant: str, key: Any) -> Any:
    """Open and read through fsspec."""
    import fsspec
    import h5netcdf

    cache, size = variant.split()
    how = {"cache_type": cache, "block_size": int(size)}
    with (
        fsspec.filesystem("http", skip_instance_cache=True).open(url, **how) as remote,
        h5netcdf.File(remote, "r") as file,
    ):
        return file[VARIABLE][key]


def read_by_bedform(url: str, key: Any) -> Any:
    """Open and read."""
    import bedform as bf

    return bf.open(url, cache=0)[VARIABLE][key]


def timed(read: Callable[[], Any], expected: np.ndarray[Any, Any]) -> float:
    """Returns the seconds of a read, after a check of its answer."""
    began = time.perf_counter()
    found = read()
    seconds = time.perf_counter() - began
    if not np.array_equal(found, expected):
        raise RuntimeError("a wrong answer")
    return seconds


def lines_of(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the reads."""
    middle = [length * 3 // 7 for length in shape]
    return {
        "series": np.s_[:, middle[1], middle[2]],
        "map": np.s_[middle[0]],
        "series of a region": np.s_[:, middle[1] : middle[1] + 10, middle[2] : middle[2] + 20],
    }


def run(options: Options) -> Report:
    """Runs the requested lines."""
    import h5netcdf

    import bedform as bf

    shape = shape_of(options)
    report = Report(NAME, options.command, {"array": "x".join(map(str, shape)) + " float32"})
    report.settings |= {
        "chunks": "x".join(map(str, CHUNK)),
        "rounds": str(options.rounds),
        "server": f"{SECONDS * 1e3:.0f} ms, {BYTES_PER_SECOND / 1e6:.0f} MB/s a stream",
        "bedform": bf.__version__,
        "h5netcdf": h5netcdf.__version__,
    }
    place = data.ROOT / "foreign-url"
    place.mkdir(parents=True, exist_ok=True)
    values = make(place / "a.nc", shape)
    table = Table(
        "Open and read; milliseconds",
        ["read", "bedform", "h5netcdf", "its cache", "bedform / h5netcdf"],
    )
    lost = []
    with slow_files(place) as address:
        url = f"{address}/a.nc"
        for line, key in lines_of(shape).items():
            if not options.wants(line):
                continue
            expected = values[key]

            def theirs(variant: str, key: Any = key, expected: Any = expected) -> float:
                return timed(lambda: read_by_h5netcdf(url, variant, key), expected)

            best = fastest_variant(variants(options), 2, theirs)

            def once(
                name: str, best: str = best, key: Any = key, expected: Any = expected
            ) -> float:
                if name == "bedform":
                    return timed(lambda: read_by_bedform(url, key), expected)
                return theirs(best, key, expected)

            samples = interleave(["bedform", "h5netcdf"], options.rounds, once)
            ratio = paired_ratio(samples["bedform"], samples["h5netcdf"])
            medians = [milliseconds(median(samples[name])) for name in ("bedform", "h5netcdf")]
            table.rows.append([line, *medians, best, ratio.describe()])
            report.samples[line] = {"seconds": samples, "cache": best}
            if ratio.is_loss():
                lost.append(line)
    report.tables.append(table)
    said = ", ".join(lost) or "none"
    report.verdicts.append(Verdict("ahead of h5netcdf over fsspec", f"lost: {said}", not lost))
    return report
