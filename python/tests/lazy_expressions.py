"""Lazy expressions of xarray: the bytes that `explain` predicts, and those that the process reads.

``lazy_expressions.py DIRECTORY COUNT SEED`` prints a line of JSON for each expression. Each has a
process of its own, a fork, whose caches begin empty. The bytes that a process reads are the
kernel's count of them (``rchar``).
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.array
import numpy as np
import xarray as xr

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = {"time": 160, "lat": 90, "lon": 120}
MAPS, SERIES = (4, 90, 120), (160, 18, 20)
#: Blocks for Dask: of whole chunks, and of parts of chunks.
WHOLE: list[Any] = [{}, {"time": 40, "lat": 90, "lon": 120}, {"time": 160, "lat": 36, "lon": 60}]
PARTS: list[Any] = [{"time": 10, "lat": 30, "lon": 50}, {"time": 30, "lat": 90, "lon": 35}]


def make(directory: Path) -> list[str]:
    """Makes a NetCDF-4 file and a Zarr store of several variables, packed and compressed."""
    random = np.random.default_rng(7)
    axes = np.meshgrid(*(np.linspace(0, 6, n) for n in SHAPE.values()), indexing="ij", sparse=True)
    wave = sum(np.sin(axis) for axis in axes)

    def field(scale: float) -> Any:
        noise = random.normal(0, 0.3, tuple(SHAPE.values()))
        return (tuple(SHAPE), (280 + scale * (wave + noise)).astype("f4"))

    dataset = xr.Dataset(
        {"t": field(20), "u": field(3), "w": field(1), "q": field(7)},
        coords={
            "time": np.arange(SHAPE["time"]),
            "lat": np.linspace(-60, 60, SHAPE["lat"]),
            "lon": np.arange(120.0),
        },
    )
    packed = {"dtype": "i2", "scale_factor": 0.005, "add_offset": 280.0, "_FillValue": -32768}
    deflate = {"zlib": True, "shuffle": True, "complevel": 2}
    file, store = str(directory / "fields.nc"), str(directory / "fields.zarr")
    dataset.to_netcdf(
        file,
        engine="netcdf4",
        encoding={
            "t": {**packed, **deflate, "chunksizes": MAPS},
            "u": {**deflate, "chunksizes": SERIES},
            "w": {"contiguous": True},
            "q": {"chunksizes": (20, 30, 40)},
        },
    )
    encoding = {"t": packed, "u": {"chunks": MAPS}, "q": {"chunks": SERIES}}
    bf.write_dataset(dataset, store, encoding=encoding)
    return [file, store]


def selected(random: np.random.Generator, data: Any) -> Any:
    """Returns a random selection of lazy data, by positions or by labels."""
    start = int(random.integers(0, 100))
    row = int(random.integers(0, 60))
    points = {name: xr.DataArray(random.integers(0, n, 5), dims="k") for name, n in SHAPE.items()}
    return random.choice(
        np.array(
            [
                lambda: data,
                lambda: data.isel(time=start),
                lambda: data.isel(lat=row, lon=start),
                lambda: data.isel(time=slice(start, start + 40), lat=slice(row, row + 20)),
                lambda: data.isel(time=slice(3, None, 7)).isel(time=slice(1, 15)),
                lambda: data.isel(lat=[row, 3, row + 9]),
                lambda: data.sel(lat=slice(-30, 15), lon=[4.0, 90.0]),
                lambda: data.isel({name: points[name] for name in ("lat", "lon")}),
                lambda: data.isel(time=slice(start, start + 30)).transpose("lon", "time", "lat"),
            ],
            dtype=object,
        )
    )()


def expression(random: np.random.Generator, dataset: Any) -> Any:
    """Returns a random lazy expression over the variables of a data set."""
    names = [str(name) for name in random.choice(["t", "u", "w", "q"], 2, replace=False)]
    if not dataset.chunks:
        # Without Dask arithmetic computes at once: a selection of one or two variables.
        return selected(random, dataset[names if random.random() < 0.5 else names[0]])
    left = selected(random, dataset[names])
    one, other = left[names[0]], left[names[1]]
    return random.choice(
        np.array(
            [
                lambda: one,
                lambda: one * 2 - other,
                lambda: (one - one.mean()) ** 2,
                lambda: one.where(other > 281).max(),
                lambda: left.mean(),
                lambda: one.isel({one.dims[0]: slice(0, 5)}) + one.isel({one.dims[0]: slice(0, 5)}),
                lambda: one.cumsum(one.dims[0]),
            ],
            dtype=object,
        )
    )()


def read_bytes() -> int:
    """Returns the bytes that this process has read so far, from files and from the page cache."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def in_a_fork(act: Callable[[], Any]) -> Any:
    """Calls ``act`` in a new process and returns its result."""
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(ends[1], json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    with os.fdopen(ends[0], "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def one(place: str, number: int, seed: int) -> dict[str, Any]:
    """Returns the predicted and the read bytes of an expression."""
    random = np.random.default_rng([seed, number])
    cut = bool(random.random() < 0.4)
    blocks = random.choice(np.array([None, *(PARTS if cut else WHOLE)], dtype=object))

    def both() -> dict[str, Any]:
        dataset = xr.open_dataset(place, engine="bedform", chunks=blocks)
        found = expression(random, dataset)
        facts = found.bedform.explain(optimize=False).to_dict()
        shares = any(one["chunks_touched"] > one["chunks"] for one in facts["arrays"])
        # Of tasks that run at once and share a chunk, chance decides how many decode it.
        scheduler = "synchronous" if shares else "threads"
        with dask.config.set(scheduler=scheduler):
            # The first explanation has read the indexes and chunk tables.
            facts = found.bedform.explain(optimize=False).to_dict()
            # Counting reads a few bytes itself.
            own = -read_bytes() + read_bytes()
            before = read_bytes()
            found.load()
        return {
            "place": Path(place).name,
            "blocks": repr(blocks),
            "scheduler": scheduler,
            "reads": sum(one["reads"] for one in facts["arrays"]),
            "needed": facts["needed_bytes"],
            "predicted": facts["bytes"],
            "read": read_bytes() - before - own,
        }

    found: dict[str, Any] = in_a_fork(both)
    return found


def main() -> None:
    """Makes the files, and prints the counts of each expression."""
    directory, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    places = make(directory)
    # Modules of the first use are imported here, so that no fork reads it.
    example = str(directory / "example.zarr")
    bf.write_dataset(xr.Dataset({"t": (("time", "lat"), np.eye(30))}), example)
    for blocks in (None, {}):
        random = np.random.default_rng(1)
        data = xr.open_dataset(example, engine="bedform", chunks=blocks)
        (data["t"].cumsum() - data["t"].mean()).transpose().bedform.explain()
        data["t"].isel(time=xr.DataArray(random.integers(0, 30, 3), dims="k")).load(
            scheduler="sync"
        )
    for number in range(count):
        sys.stdout.write(json.dumps(one(places[number % 2], number, seed)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
