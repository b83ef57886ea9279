"""`price`: predictions of `explain`, against the measured reads.

One field in Zarr (three layouts; raw, Zstandard, Blosc, pcodec, deflate), NetCDF-4 and classic
NetCDF. Maps, series, planes, boxes and points; on the disk and on a store that `BEDFORM_THROTTLE`
makes slow; cold, with the page cache dropped before every read, and cached; with one thread and
with two. `bf.calibrate` measures each place first, without these files. Then reads refine the
profile as a user's do: of another field in other layouts, and of the data themselves at other
places. The judged reads refine nothing. A read whose quartiles lie more than 15 % from its median
is listed but not judged.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from bedform._internal import keep_experience
from benchmarks.harness import cold, data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.rounds import seconds_in_memory
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "price"
SHAPE = (96, 192, 384)
LAYOUTS = {
    "maps": ((1, 192, 384), (32, 192, 384)),
    "cubes": ((24, 24, 48), (96, 96, 192)),
    "series": ((96, 8, 16), (96, 96, 192)),
}
CODECS: dict[str, list[Any]] = {
    "raw": [],
    "zstd": ["zstd"],
    "blosc": ["blosc"],
    "pcodec": ["pcodec"],
    "deflate": ["gzip"],
}
# Data whose reads refine the profile: another field, other layouts, other selections.
OTHER_SHAPE = (64, 160, 320)
OTHER_LAYOUTS = {
    "slabs": ((4, 160, 80), (32, 160, 320)),
    "blocks": ((16, 40, 40), (64, 80, 160)),
}
# Number of passes over all of them before the first judged read.
HISTORY = 1
# Cached reads after each cold read of them.
OTHER_CACHED = 2
THROTTLES = {"disk": "", "slow store": "200 MB/s, 3 ms"}
SLOW_CODECS = ("raw", "blosc")
SPREAD_MAX, NEAR, FAR = 0.15, 0.25, 2.0
NEAR_SHARE, UNSURE_SHARE, READS_MIN = 0.9, 0.1, 120


def field(shape: tuple[int, ...] = SHAPE, seed: int = 3) -> np.ndarray[Any, Any]:
    """Returns moving waves in float32 with 9 bits of noise."""
    t, y, x = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    values = 280 + 20 * np.sin(y * 0.05) + 5 * np.sin(x * 0.07 + t * 0.3) * np.cos(y * 0.03)
    noise = np.random.default_rng(seed).integers(0, 512, shape, dtype=np.uint32)
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFFE00)
    return (bits | noise).view(np.float32)


def selections() -> dict[str, Any]:
    """Returns the selections, away from the edges of chunks."""
    where = np.zeros(SHAPE, bool)
    where.flat[np.random.default_rng(5).integers(0, where.size, 60)] = True
    return {
        "map": np.s_[37],
        "series": np.s_[:, 101, 203],
        "plane": np.s_[:, 77, :],
        "box": np.s_[11:75, 30:120, 50:260],
        "points": where,
    }


def build(root: Path) -> dict[str, list[str]]:
    """Writes all sources; returns their paths by name, each followed by others with its codec."""
    values, found = field(), {}
    other_values, others = field(OTHER_SHAPE, seed=17), {}
    for codec, codecs in CODECS.items():
        for layout, form in OTHER_LAYOUTS.items():
            path = root / f"other-{layout}-{codec}.zarr"
            write_zarr(path, other_values, form, codecs)
            others.setdefault(codec, []).append(str(path))
        for layout, form in LAYOUTS.items():
            path = root / f"{layout}-{codec}.zarr"
            write_zarr(path, values, form, codecs)
            found[f"{layout} {codec}"] = [str(path), *others[codec]]
    for kind, chunks, other_chunks in (
        ("netCDF-4", (1, 192, 384), (4, 160, 80)),
        ("classic", None, None),
    ):
        path, other = root / f"{kind}.nc", root / f"other-{kind}.nc"
        write_netcdf(path, values, chunks)
        write_netcdf(other, other_values, other_chunks)
        found[kind] = [str(path), str(other)]
    os.sync()
    return found


def write_zarr(path: Path, values: np.ndarray[Any, Any], form: Any, codecs: list[Any]) -> None:
    """Write a store with one array."""
    chunks, shards = form
    with bf.create(path) as store:
        store.create_array("v", data=values, chunks=chunks, shards=shards, codecs=codecs)


def write_netcdf(path: Path, values: np.ndarray[Any, Any], chunks: Any) -> None:
    """Write a file with one variable: NetCDF-4 in these chunks, classic without."""
    import netCDF4

    options = {"zlib": True, "shuffle": True, "chunksizes": chunks} if chunks else {}
    form = "NETCDF4" if chunks else "NETCDF3_64BIT_OFFSET"
    with netCDF4.Dataset(path, "w", format=form) as file:
        names = [
            file.createDimension(name, n).name for name, n in zip("tyx", values.shape, strict=True)
        ]
        file.createVariable("v", "f4", names, **options)[:] = values


def other_selections(shape: tuple[int, ...]) -> list[Any]:
    """Returns the selections of reads that refine the profile."""
    rng = np.random.default_rng(11)
    t, y, x = (int(rng.integers(8, n - 16)) for n in shape)
    box = tuple(slice(n // 8, n // 8 + n // 2) for n in shape)
    points = tuple(rng.integers(0, n, 40) for n in shape)
    return [np.s_[t], np.s_[:, y, x], np.s_[:, :, x], box, np.s_[::3, y : y + 7], points]


def prepare(root: str) -> None:
    """Calibrates the place."""
    bf.calibrate(root, seconds=6)


def refine(paths: list[str], threads: int, same: SameWork) -> None:
    """Reads like a user, which refines the profile, and keeps the refinement."""
    for path in paths:
        with bf.open(path, threads=threads, cache=0) as store:
            array = store["v"]
            for selection in other_selections(array.shape):
                is_points = isinstance(selection, tuple) and isinstance(selection[0], np.ndarray)
                reads = array.vindex if is_points else array
                cold.make_cold(Path(path))
                for _ in range(1 + OTHER_CACHED):
                    same.do()
                    reads[selection]
    keep_experience()


class SameWork:
    """A constant workload, which shows the drift of the machine's speed."""

    def __init__(self) -> None:
        self.encoded = zlib.compress(field((12, 192, 384)).tobytes(), 1)
        self.seconds: list[float] = []

    def do(self) -> None:
        """Runs the workload and records its seconds."""
        began = time.perf_counter()
        zlib.decompress(self.encoded)
        self.seconds.append(time.perf_counter() - began)


def worker(sources: dict[str, list[str]], rounds: int) -> dict[str, Any]:
    """Refines the profile, predicts all reads, and measures them."""
    values, results, same = field(), [], SameWork()
    for others in {tuple(others) for _, *others in sources.values()}:
        for _, threads in itertools.product(range(HISTORY), (1, 2)):
            refine(list(others), threads, same)
    is_slow = bool(os.environ.get("BEDFORM_THROTTLE"))
    for (name, (path, *_)), threads in itertools.product(sources.items(), (1, 2)):
        refine([path, path], threads, same)
        # The judged reads refine nothing.
        os.environ["BEDFORM_REFINE"] = "0"
        with bf.open(path, threads=threads, cache=0) as store:
            array = store["v"]
            for what, selection in selections().items():
                plan = array.explain(selection).to_dict()
                wanted = values[selection]
                # Finding the points in a mask is not part of the read.
                reads = array.vindex if what == "points" else array
                where = selection.nonzero() if what == "points" else selection
                read = functools.partial(reads.__getitem__, where)
                for is_cold in (True,) if is_slow else (True, False):
                    seconds = []
                    for _ in range(rounds if is_cold else 3 * rounds):
                        same.do()
                        if is_cold:
                            cold.make_cold(Path(path))
                            began = time.perf_counter()
                            read()
                            seconds.append(time.perf_counter() - began)
                        else:
                            seconds.append(seconds_in_memory(read))
                    if not np.array_equal(read(), wanted):
                        raise ValueError(f"{name}, {what}: wrong values")
                    key = "predicted_cold_seconds" if is_cold else "predicted_cached_seconds"
                    how = f"{'cold' if is_cold else 'cached'}, {threads} threads"
                    results.append(
                        {
                            "name": f"{name}: {what}, {how}",
                            "predicted": plan[key],
                            "mostly": plan["mostly" if is_cold else "mostly_cached"],
                            "seconds": seconds,
                        }
                    )
        del os.environ["BEDFORM_REFINE"]
    return {"reads": results, "same": same.seconds}


def spread(seconds: list[float]) -> float:
    """Returns the distance of the quartiles from the median, as a fraction of it."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return float(max(high - middle, middle - low) / middle)


def process(arguments: list[str], environment: dict[str, str]) -> str:
    """Prepares the place, or reads there, in a separate process; returns its output."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.price", *arguments],
        cwd=data.ROOT.parent,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def run(options: Options) -> Report:
    """Builds, calibrates, predicts and reads."""
    rounds = 3 if options.quick else max(7, options.rounds)
    report = Report(NAME, options.command, {"rounds": str(rounds)})
    table = Table("Milliseconds", ["read", "predicted", "measured", "ratio", "spread", "mostly"])
    ratios, unsure = [], 0
    with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
        sources = build(Path(directory))
        for place, throttle in THROTTLES.items():
            chosen = {
                name: path
                for name, path in sources.items()
                if not throttle or name.split()[-1] in SLOW_CODECS
            }
            arguments = [json.dumps(chosen), str(rounds)]
            with tempfile.TemporaryDirectory() as profiles:
                environment = {"BEDFORM_THROTTLE": throttle, "BEDFORM_PROFILES": profiles}
                process([directory], environment)
                found = json.loads(process(arguments, environment))
            low, middle, high = np.percentile(found["same"], [5, 50, 95])
            report.settings[f"times of the same work beside ({place}), 5 % to 95 %"] = (
                f"{low / middle:.2f} to {high / middle:.2f} of their median"
            )
            for read in found["reads"]:
                name, own = f"{place}: {read['name']}", spread(read["seconds"])
                took = median(read["seconds"])
                ratio = read["predicted"] / took
                is_sure = own <= SPREAD_MAX
                if is_sure:
                    ratios.append(ratio)
                unsure += not is_sure
                table.rows.append(
                    [
                        name,
                        milliseconds(read["predicted"]),
                        milliseconds(took),
                        f"{ratio:.2f}" + ("" if is_sure else " ?"),
                        f"{own:.0%}",
                        str(read["mostly"]),
                    ]
                )
                report.samples[name] = read["seconds"]
    report.tables.append(table)
    near = sum(1 / (1 + NEAR) <= ratio <= 1 + NEAR for ratio in ratios)
    far = sum(not 1 / FAR <= ratio <= FAR for ratio in ratios)
    count = len(ratios)
    report.verdicts += [
        Verdict(
            f"within {NEAR:.0%} for {NEAR_SHARE:.0%} of at least {READS_MIN} reads",
            f"{near} of {count}",
            near >= NEAR_SHARE * count and count >= READS_MIN,
        ),
        Verdict(f"within a factor {FAR:.0f} for all", f"{count - far} of {count}", far == 0),
        Verdict(
            f"reads of more than {SPREAD_MAX:.0%} spread: {UNSURE_SHARE:.0%} at most",
            f"{unsure} of {count + unsure}",
            unsure <= UNSURE_SHARE * (count + unsure),
        ),
    ]
    return report


if __name__ == "__main__" and len(sys.argv) == 2:
    prepare(sys.argv[1])
elif __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]), int(sys.argv[2]))))
