"""`price`: what `explain` predicts of reads, and what the reads take.

One field in Zarr (three layouts; raw, Zstandard, Blosc, pcodec, deflate), NetCDF-4 and classic
NetCDF; maps, series, planes, boxes and points; on the disk and on a store that `BEDFORM_THROTTLE`
makes slow; cold, with the page cache dropped before every read, and cached; with one thread and
with two. Each place is calibrated first, by `bf.calibrate`, which sees none of these files. Then
reads of another field, in other layouts, at other places, refine the profile as a user's reads do;
the reads that are judged do not. A read whose own quarters lie more than 15 % from its median is
listed and not judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
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
# What refines the profile: another field, other layouts, other selections.
OTHER_SHAPE = (64, 160, 320)
OTHER_LAYOUTS = {
    "slabs": ((4, 160, 80), (32, 160, 320)),
    "blocks": ((16, 40, 40), (64, 80, 160)),
}
OTHER_ROUNDS = 3
THROTTLES = {"disk": "", "slow store": "200 MB/s, 3 ms"}
SLOW_CODECS = ("raw", "blosc")
SPREAD_MAX, NEAR, FAR = 0.15, 0.25, 2.0
NEAR_SHARE, UNSURE_SHARE, READS_MIN = 0.9, 0.1, 120


def field(shape: tuple[int, ...] = SHAPE, seed: int = 3) -> np.ndarray[Any, Any]:
    """Return waves that move, in float32 with 9 bits of noise."""
    t, y, x = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    values = 280 + 20 * np.sin(y * 0.05) + 5 * np.sin(x * 0.07 + t * 0.3) * np.cos(y * 0.03)
    noise = np.random.default_rng(seed).integers(0, 512, shape, dtype=np.uint32)
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFFE00)
    return (bits | noise).view(np.float32)


def selections() -> dict[str, Any]:
    """Return what is read, away from every edge of a chunk."""
    where = np.zeros(SHAPE, bool)
    where.flat[np.random.default_rng(5).integers(0, where.size, 60)] = True
    return {
        "map": np.s_[37],
        "series": np.s_[:, 101, 203],
        "plane": np.s_[:, 77, :],
        "box": np.s_[11:75, 30:120, 50:260],
        "points": where,
    }


def build(root: Path) -> dict[str, str]:
    """Write all sources; return their paths by name."""
    import netCDF4

    values, found = field(), {}
    for layout, (chunks, shards) in LAYOUTS.items():
        for codec, codecs in CODECS.items():
            path = root / f"{layout}-{codec}.zarr"
            with bf.create(path) as store:
                store.create_array("v", data=values, chunks=chunks, shards=shards, codecs=codecs)
            found[f"{layout} {codec}"] = str(path)
    for kind, options in {
        "netCDF-4": {"zlib": True, "shuffle": True, "chunksizes": (1, 192, 384)},
        "classic": {},
    }.items():
        path = root / f"{kind}.nc"
        form = "NETCDF4" if kind == "netCDF-4" else "NETCDF3_64BIT_OFFSET"
        with netCDF4.Dataset(path, "w", format=form) as file:
            names = [
                file.createDimension(name, n).name for name, n in zip("tyx", SHAPE, strict=True)
            ]
            file.createVariable("v", "f4", names, **options)[:] = values
        found[kind] = str(path)
    os.sync()
    return found


def other_selections() -> list[Any]:
    """Return what refines the profile."""
    rng = np.random.default_rng(11)
    t, y, x = (int(rng.integers(8, n - 8)) for n in OTHER_SHAPE)
    points = tuple(rng.integers(0, n, 40) for n in OTHER_SHAPE)
    return [
        np.s_[t],
        np.s_[:, y, x],
        np.s_[:, :, x],
        np.s_[5:40, 30:150, 60:190],
        np.s_[::3, y : y + 7],
        points,
    ]


def prepare(root: str) -> None:
    """Calibrate the place, then read there as a user does, which refines the profile."""
    bf.calibrate(root, seconds=6)
    values = field(OTHER_SHAPE, seed=17)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        for layout, (chunks, shards) in OTHER_LAYOUTS.items():
            for codec, codecs in CODECS.items():
                path = Path(directory) / f"{layout}-{codec}.zarr"
                with bf.create(path) as store:
                    store.create_array(
                        "v", data=values, chunks=chunks, shards=shards, codecs=codecs
                    )
                os.sync()
                for threads in (1, 2):
                    with bf.open(path, threads=threads, cache=0) as store:
                        array = store["v"]
                        for selection in other_selections():
                            is_points = isinstance(selection, tuple) and isinstance(
                                selection[0], np.ndarray
                            )
                            reads = array.vindex if is_points else array
                            for _ in range(OTHER_ROUNDS):
                                cold.make_cold(path)
                                for _ in range(2):
                                    reads[selection]
                                    # Reads that follow each other at once are not learnt from.
                                    time.sleep(0.006)


def worker(sources: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Predict and take the time of all reads there."""
    values, results = field(), []
    is_slow = bool(os.environ.get("BEDFORM_THROTTLE"))
    for name, path in sources.items():
        for threads in (1, 2):
            with bf.open(path, threads=threads, cache=0) as store:
                array = store["v"]
                for what, selection in selections().items():
                    plan = array.explain(selection).to_dict()
                    wanted = values[selection]
                    # To find the points in a mask is not part of the read.
                    reads = array.vindex if what == "points" else array
                    where = selection.nonzero() if what == "points" else selection
                    for is_cold in (True,) if is_slow else (True, False):
                        seconds = []
                        for _ in range(rounds if is_cold else 3 * rounds):
                            if is_cold:
                                cold.make_cold(Path(path))
                            began = time.perf_counter()
                            read = reads[where]
                            seconds.append(time.perf_counter() - began)
                        if not np.array_equal(read, wanted):
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
    return results


def spread(seconds: list[float]) -> float:
    """Return how far the quarters lie from the median, as a share of it."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return float(max(high - middle, middle - low) / middle)


def process(arguments: list[str], environment: dict[str, str]) -> str:
    """Prepare the place, or read there, in a process of its own; return what it prints."""
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
    """Build, calibrate, predict, read."""
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
                found = process(arguments, {**environment, "BEDFORM_REFINE": "0"})
            for read in json.loads(found):
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
