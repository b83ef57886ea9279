"""`advice-commands`: predictions of `bedform advise --as`, and the files that its commands make.

Ten files of producers: NetCDF-4, HDF5 and classic NetCDF, in chunks that do not fit the reads
asked for. The advice is run as it is printed: nccopy, h5repack, or xarray's `to_netcdf` with the
encoding. The reads are made of the file before and after, at places other than those that were
priced, cold and cached, and every answer is compared with the values that were written. For each
file the weighted mean of the reads counts, as predicted and as measured.

`bf.calibrate` measures the place first, and reads of other files refine its profile, as those of a
user do. The judged reads refine nothing. netCDF4's times of the same reads stand beside, for a
reader with chunk caches of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
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

NAME = "advice-commands"
NEAR = 0.25
#: Places of each kind of reads, as shares of the room along each axis.
PLACES = (0.08, 0.31, 0.62, 0.94)
LARGE, SMALL = (480, 180, 360), (96, 60, 120)


@dataclass(frozen=True)
class Producer:
    """A file as its producer writes it, the reads asked for, and the tool of the advice."""

    name: str
    tool: str
    reads: dict[str, float]
    #: Shares of the shape that a chunk has along each axis; none for a variable without chunks.
    chunks: tuple[int, ...] | None
    #: The lengths of the chunk's axes that are those of the array.
    whole: tuple[int, ...] = ()
    deflate: bool = True
    kind: str = "NETCDF4"
    values: str = "field"
    levels: int = 0
    packed: dict[str, Any] = field(default_factory=dict)


PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
MAPS = {"lat,lon": 1.0}
SERIES = {"time": 1.0}
PRODUCERS = (
    Producer("maps, for series", "nccopy", SERIES, (1, 0, 0), (1, 2)),
    Producer(
        "packed maps, for both", "nccopy", {**MAPS, **SERIES}, (1, 0, 0), (1, 2), packed=PACKED
    ),
    Producer("series, for maps", "h5repack", MAPS, (0, 6, 8), (0,)),
    Producer("without chunks, for series", "nccopy", SERIES, None, deflate=False),
    Producer("classic, for series", "nccopy", SERIES, None, deflate=False, kind="NETCDF3_64BIT"),
    Producer("levels, for profiles", "h5repack", {"lev": 1.0}, (1, 1, 0, 0), (2, 3), levels=12),
    Producer("HDF5, for all alike", "h5repack", {}, (8, 0, 0), (1, 2), kind="HDF5"),
    Producer("chunks of 120 maps, for maps", "xarray", MAPS, (120, 0, 0), (1, 2), packed=PACKED),
    Producer("packed, for planes", "xarray", {"time,lat": 1.0}, (1, 0, 0), (1, 2), packed=PACKED),
    Producer("noise, for series", "h5repack", SERIES, (1, 0, 0), (1, 2), False, values="noise"),
)


def values_of(producer: Producer, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Returns moving waves in float32 with some bits of noise, or noise alone."""
    random = np.random.default_rng(seed)
    if producer.levels:
        shape = (shape[0] // producer.levels, producer.levels, *shape[1:])
    if producer.values == "noise":
        return random.integers(0, 1 << 32, shape, dtype=np.uint32)
    axes = np.meshgrid(*(np.linspace(0, 9, n) for n in shape), indexing="ij", sparse=True)
    smooth = np.asarray(sum(np.sin(axis + number) for number, axis in enumerate(axes)))
    return (280 + 9 * smooth + random.normal(0, 0.05, shape)).astype(np.float32)


def write(producer: Producer, path: Path, values: np.ndarray[Any, Any]) -> None:
    """Write a file as its producer does."""
    chunks = None
    if producer.chunks is not None:
        pairs = zip(producer.chunks, values.shape, strict=True)
        chunks = tuple(
            length if axis in producer.whole else chunk
            for axis, (chunk, length) in enumerate(pairs)
        )
    if producer.kind == "HDF5":
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("v", data=values, chunks=chunks, compression=4, shuffle=True)
        return
    import xarray as xr

    dims = ("time", "lev", "lat", "lon") if producer.levels else ("time", "lat", "lon")
    encoding: dict[str, Any] = dict(producer.packed)
    if chunks is not None:
        encoding |= {"chunksizes": chunks}
    if producer.deflate:
        encoding |= {"zlib": True, "complevel": 4, "shuffle": True}
    dataset = xr.Dataset({"v": (dims, values)})
    dataset.to_netcdf(path, engine="netcdf4", format=producer.kind, encoding={"v": encoding})


def advised(producer: Producer, path: Path, target: Path) -> dict[str, Any]:
    """Runs `bedform advise` and the command that it prints; returns the facts of the array."""
    reads = [f"--reads={axes}={weight}" for axes, weight in producer.reads.items()]
    command = [sys.executable, "-m", "bedform", "advise", str(path), "v", "--as", producer.tool]
    done = subprocess.run(  # noqa: S603
        [*command, *reads, "--to", str(target), "--json"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    facts: dict[str, Any] = json.loads(done.stdout)
    began = time.perf_counter()
    if producer.tool == "xarray":
        import xarray as xr

        with xr.open_dataset(path, engine="netcdf4") as dataset:
            dataset.to_netcdf(target, engine="netcdf4", encoding=facts["encoding"])
    else:
        subprocess.run(shlex.split(facts["command"]), check=True)  # noqa: S603
    (array,) = facts["arrays"]
    return {**array, "seconds": time.perf_counter() - began}


def selections(shape: tuple[int, ...], name: str, dims: tuple[str, ...]) -> list[Any]:
    """Returns the reads of a kind, by the name that the advice gives it."""
    spanned = name.split(",")
    if name.startswith("box "):
        lengths = [int(length) for length in name.removeprefix("box ").split("x")]
    else:
        lengths = [n if dim in spanned else 1 for n, dim in zip(shape, dims, strict=True)]
    found = []
    for place in PLACES:
        starts = [int((n - length) * place) for n, length in zip(shape, lengths, strict=True)]
        found.append(
            tuple(
                slice(start, start + length) for start, length in zip(starts, lengths, strict=True)
            )
        )
    return found


def measured(
    path: Path, reads: list[dict[str, Any]], expected: np.ndarray[Any, Any] | None, rounds: int
) -> dict[str, float]:
    """Returns the weighted mean seconds of the reads: cold, cached, and cached by netCDF4."""
    import netCDF4

    sums = {"cold": 0.0, "cached": 0.0, "netCDF4": 0.0}
    with bf.open(path, cache=0, prefetch=False) as store, netCDF4.Dataset(path) as peer:
        array, variable = store["v"], peer["v"]
        variable.set_auto_maskandscale(False)
        dims = tuple(str(dim) for dim in array.dims)
        for read in reads:
            times: dict[str, list[float]] = {name: [] for name in sums}
            for selection in selections(array.shape, read["name"], dims):
                array.explain(selection)
                found = array[selection]
                if expected is not None and not np.array_equal(found, expected[selection]):
                    raise ValueError(f"{path}, {read['name']}: wrong values")
                for _ in range(rounds):
                    cold.make_cold(path)
                    began = time.perf_counter()
                    array[selection]
                    times["cold"].append(time.perf_counter() - began)
                    array[selection]
                    times["cached"].append(seconds_in_memory(lambda at=selection: array[at]))  # type: ignore[misc]
                began = time.perf_counter()
                variable[selection]
                times["netCDF4"].append(time.perf_counter() - began)
            for name, seconds in times.items():
                sums[name] += read["weight"] * median(seconds)
    return sums


def refine(root: Path, shape: tuple[int, ...]) -> None:
    """Reads files of another field as a user would, which refines the profile."""
    for number, deflate in enumerate((True, False)):
        producer = Producer("other", "nccopy", {}, (6, 40, 40), deflate=deflate)
        path = root / f"other-{number}.nc"
        write(producer, path, values_of(producer, shape, 90 + number))
        os.sync()
        with bf.open(path, cache=0, prefetch=False) as store:
            array = store["v"]
            for at in range(12):
                for selection in (np.s_[at * 7], np.s_[:, at * 4, at * 9], np.s_[:, :, at * 5]):
                    cold.make_cold(path)
                    for _ in range(3):
                        array[selection]
        path.unlink()
    keep_experience()


def worker(root: Path, quick: bool, rounds: int) -> list[dict[str, Any]]:
    """Calibrates the place, and takes each file through advice, command and reads."""
    shape = SMALL if quick else LARGE
    bf.calibrate(root, seconds=2 if quick else 6)
    refine(root, shape)
    os.environ["BEDFORM_REFINE"] = "0"
    found = []
    for number, producer in enumerate(PRODUCERS[:2] if quick else PRODUCERS):
        suffix = "h5" if producer.kind == "HDF5" else "nc"
        path, target = root / f"file-{number}.{suffix}", root / f"file-{number}-advised.{suffix}"
        values = values_of(producer, shape, number)
        write(producer, path, values)
        facts = advised(producer, path, target)
        os.sync()
        with bf.open(path) as store:
            stored = store["v"][...]
        if not producer.packed and not np.array_equal(stored, values):
            raise ValueError(f"{path}: the producer's file has other values")
        outcome = {"producer": producer.name, "tool": producer.tool, **facts}
        for when, place in (("now", path), ("then", target)):
            outcome[when] = measured(place, facts["reads"], stored, rounds)
        found.append(outcome)
        path.unlink()
        target.unlink()
    return found


def run(options: Options) -> Report:
    """Measures in a process whose profiles are its own."""
    missing = [tool for tool in ("nccopy", "h5repack") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: apt install netcdf-bin hdf5-tools")
    rounds = 3 if options.quick else max(5, options.rounds // 3)
    command = [sys.executable, "-m", "benchmarks.advice_commands"]
    data.ROOT.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=data.ROOT) as directory,
        tempfile.TemporaryDirectory() as profiles,
    ):
        done = subprocess.run(  # noqa: S603
            [*command, directory, str(int(options.quick)), str(rounds)],
            cwd=data.ROOT.parent,
            env={**os.environ, "BEDFORM_PROFILES": profiles},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(done.stdout)
    load = f"{os.getloadavg()[0]:.1f}"
    report = Report(NAME, options.command, {"rounds": str(rounds), "load at the end": load})
    table = Table(
        "Milliseconds of a read, predicted and measured",
        ["file", "tool", "chunks", "state", "before", "ratio", "after", "ratio", "netCDF4"],
    )
    near = {"before": 0, "after": 0}
    for one in found:
        for state in ("cold", "cached"):
            row = [one["producer"], one["tool"], "x".join(map(str, one["chunks"])), state]
            for when, name in (("now", "before"), ("then", "after")):
                weighted = (read["weight"] * read[f"{state}_{when}"] for read in one["reads"])
                predicted, took = sum(weighted), one[when][state]
                ratio = predicted / took
                near[name] += 1 / (1 + NEAR) <= ratio <= 1 + NEAR
                row += [f"{milliseconds(predicted)} / {milliseconds(took)}", f"{ratio:.2f}"]
                report.samples[f"{one['producer']}, {state}, {name}"] = [predicted, took]
            peer = " to ".join(milliseconds(one[when]["netCDF4"]) for when in ("now", "then"))
            table.rows.append([*row, peer if state == "cached" else ""])
    report.tables.append(table)
    count = 2 * len(found)
    for name, within in near.items():
        report.verdicts.append(
            Verdict(
                f"{name}: predicted over measured within {NEAR:.0%}, cold and cached",
                f"{within} of {count}",
                within == count,
            )
        )
    gains = [one["now"]["cold"] / one["then"]["cold"] for one in found]
    report.settings["cold reads are faster by"] = f"{min(gains):.1f} to {max(gains):.0f} times"
    return report


if __name__ == "__main__":
    outcome = worker(Path(sys.argv[1]), sys.argv[2] == "1", int(sys.argv[3]))
    sys.stdout.write(json.dumps(outcome))
