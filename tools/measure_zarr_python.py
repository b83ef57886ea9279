"""Measure the read times of zarr-python and TensorStore on a local store, and fit a model.

``measure_zarr_python.py --samples FILE`` writes arrays of 80 layouts and reads each, warm, in a
new process. It prints the factors of the model in `zarr_costs.py`, with their errors on layouts
outside the fit. ``--fit FILE`` fits earlier samples. The engine ships the factors for zarr-python
to predict the read times of other readers.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr_costs import Box, Counts, Shape, count, fit, predict

if TYPE_CHECKING:
    from collections.abc import Callable

READERS = ("zarr-python", "tensorstore")
CODECS = ("raw", "zstd", "blosc-zstd", "blosc-lz4")
#: Each array is read this often, or for this many seconds; the median counts.
ROUNDS, SECONDS = 7, 1.0
#: Number of fits to one half of the layouts that are judged by the other half.
HALVES = 10
KIB = 1024


@dataclass(frozen=True)
class Layout:
    """An array to read; `shard` is None if every chunk is an object."""

    shape: Shape
    dtype: str
    chunk: Shape
    shard: Shape | None
    codec: str
    checksum: bool

    def item_size(self) -> int:
        """Return the length of an element in bytes."""
        return np.dtype(self.dtype).itemsize


#: One to four dimensions, about 8 to 130 MB.
SHAPES: tuple[tuple[Shape, str], ...] = (
    ((4_000_000,), "float32"),
    ((1_500, 3_000), "float64"),
    ((300, 181, 360), "float32"),
    ((16, 37, 91, 180), "float32"),
    ((180, 181, 360), "float64"),
)


def balanced(shape: Shape, item_size: int, size: int, first: float) -> Shape:
    """Return a chunk of about `size` bytes; `first` of its growth goes to the first axis."""
    want = size / item_size
    if len(shape) == 1:
        return (round(want),)
    chunk = [1] * len(shape)
    chunk[0] = min(shape[0], max(1, round(want**first)))
    for axis in range(len(shape) - 1, 0, -1):
        left = want / math.prod(chunk)
        length = left if axis == 1 else left ** (1 / axis)
        # With no growth along the first axis, the last axis is filled first: a map.
        length = left if first == 0 else length
        chunk[axis] = min(shape[axis], max(1, round(length)))
    return tuple(chunk)


def shard_of(shape: Shape, chunk: Shape, inner: int) -> Shape:
    """Return a shard of about `inner` chunks, grown axis by axis, within the array."""
    factors = [1] * len(shape)
    while math.prod(factors) < inner:
        room = [
            axis
            for axis, (length, size) in enumerate(zip(shape, chunk, strict=True))
            if factors[axis] * size < length
        ]
        if not room:
            break
        factors[min(room, key=lambda axis: factors[axis])] *= 2
    return tuple(
        min(factor, -(-length // size)) * size
        for factor, length, size in zip(factors, shape, chunk, strict=True)
    )


def layouts() -> list[Layout]:
    """Return the layouts: all sizes and forms of chunks and shards, with alternating codecs."""
    found: list[Layout] = []
    pick = np.random.default_rng(9)
    for shape, dtype in SHAPES:
        item = np.dtype(dtype).itemsize
        shares = (0.5, 0.3) if len(shape) < 3 else (0, 0.34, 0.6)
        for at, size in enumerate((16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB)):
            chunk = balanced(shape, item, size, shares[at % len(shares)])
            for inner in (0, 1, 16, 256, 2048):
                if inner * size > 64 << 20:
                    continue
                codec = CODECS[pick.integers(len(CODECS))]
                shard = shard_of(shape, chunk, inner) if inner else None
                found.append(Layout(shape, dtype, chunk, shard, codec, bool(inner)))
    return list(dict.fromkeys(found)) + colour_layouts()


def colour_layouts() -> list[Layout]:
    """Return layouts of images whose last axis is short: rows of one and of three elements."""
    shape, small, large = (60, 240, 320, 3), (15, 60, 80), (30, 120, 160)
    return [
        Layout(shape, "uint8", (*chunk, last), shard, codec, bool(shard))
        for last in (1, 3)
        for chunk, shard, codec in (
            (large, None, "zstd"),
            (small, None, "blosc-lz4"),
            (small, (60, 240, 320, 3), "zstd"),
            (small, (15, 240, 320, 3), "blosc-zstd"),
        )
    ]


def boxes(shape: Shape) -> dict[str, Box]:
    """Return the boxes to read, by name."""
    middle = [n // 2 + n // 11 for n in shape]
    whole = tuple((0, n) for n in shape)
    at = tuple((one, one + 1) for one in middle)
    box = tuple((n // 5, n // 5 + max(1, n // 3)) for n in shape)
    if len(shape) == 1:
        return {"whole": whole, "box": box, "point": at}
    return {
        "whole": whole,
        "map": (at[0], *whole[1:]),
        "plane": (*whole[:-1], at[-1]),
        "series": (whole[0], *at[1:]),
        "box": box,
    }


def field(shape: Shape, dtype: str) -> np.ndarray[Any, Any]:
    """Return waves with noise in their lower bits, which compress like measured fields."""
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    values = np.float64(280.0)
    for number, axis in enumerate(axes):
        values = values + 8 * np.sin(axis * (0.021 + 0.013 * number) + number)
    noise = np.random.default_rng(len(shape)).normal(0, 0.02, shape)
    if dtype == "uint8":
        return np.asarray(values - 180 + 40 * noise).astype(dtype)
    quantum = 2.0**-10 if dtype == "float32" else 2.0**-24
    return (np.round((values + noise) / quantum) * quantum).astype(dtype)


def write(path: Path, layout: Layout) -> None:
    """Write an array: shards with Bedform, like its users; bare chunks with zarr-python."""
    import zarr
    from zarr.codecs import BloscCodec, ZstdCodec

    import bedform as bf

    values = field(layout.shape, layout.dtype)
    settings = {"clevel": 3, "shuffle": "shuffle", "blocksize": 0, "typesize": values.itemsize}
    if layout.shard:
        codecs: dict[str, list[Any]] = {
            "raw": [],
            "zstd": ["zstd"],
            **{
                f"blosc-{one}": [{"name": "blosc", "configuration": {**settings, "cname": one}}]
                for one in ("zstd", "lz4")
            },
        }
        bf.create(path).create_array(
            "v", data=values, chunks=layout.chunk, shards=layout.shard, codecs=codecs[layout.codec]
        )
        return
    compressors: dict[str, Any] = {
        "raw": None,
        "zstd": ZstdCodec(level=0),
        **{
            f"blosc-{one}": BloscCodec(
                cname=one, clevel=3, shuffle="shuffle", typesize=values.itemsize
            )
            for one in ("zstd", "lz4")
        },
    }
    zarr.create_array(
        path / "v", data=values, chunks=layout.chunk, compressors=compressors[layout.codec]
    )


def opened(reader: str, path: Path) -> Callable[[Any], np.ndarray[Any, Any]]:
    """Return a function that reads a selection."""
    if reader == "zarr-python":
        import zarr

        array = zarr.open_array(path / "v", mode="r")
        return lambda selection: np.asarray(array[selection])
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / 'v'}/"}}
    view = ts.open(spec, read=True).result()
    return lambda selection: np.asarray(view[selection].read().result())


def measure(path: Path, layout: Layout, reader: str) -> list[dict[str, Any]]:
    """Return the seconds of all reads of an array, warm."""
    values, read, found = field(layout.shape, layout.dtype), opened(reader, path), []
    for what, box in boxes(layout.shape).items():
        selection = tuple(slice(*span) for span in box)
        if not np.array_equal(read(selection), values[selection]):
            raise ValueError(f"{layout}: {what}: wrong values")
        seconds: list[float] = []
        while len(seconds) < 3 or (len(seconds) < ROUNDS and sum(seconds) < SECONDS):
            began = time.perf_counter()
            read(selection)
            seconds.append(time.perf_counter() - began)
        found.append(
            {
                "reader": reader,
                "layout": asdict(layout),
                "read": what,
                "box": box,
                "seconds": statistics.median(seconds),
            }
        )
    return found


def run_all(readers: list[str], numbers: range) -> list[dict[str, Any]]:
    """Write and measure layouts, each in a new process."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for number in numbers:
            path = Path(directory) / f"{number}.zarr"
            for words in (["write"], *(["read", reader] for reader in readers)):
                command = [sys.executable, __file__, "--worker", str(number), str(path), *words]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
                found += json.loads(done.stdout or "[]")
            shutil.rmtree(path)
            sys.stderr.write(f"\r{number + 1} of {len(layouts())} layouts")
    sys.stderr.write("\n")
    return found


def worker(number: str, path: str, what: str, *reader: str) -> None:
    """Write one array, or read it and print the samples."""
    layout = layouts()[int(number)]
    if what == "write":
        write(Path(path), layout)
    else:
        sys.stdout.write(json.dumps(measure(Path(path), layout, reader[0])))


def counts_of(sample: dict[str, Any]) -> Counts:
    """Return the counts of a sample's read."""
    layout = sample["layout"]
    shard = tuple(layout["shard"]) if layout["shard"] else None
    box = tuple((start, stop) for start, stop in sample["box"])
    item_size = np.dtype(layout["dtype"]).itemsize
    return count(box, item_size, tuple(layout["chunk"]), shard)


def held_out(
    samples: list[dict[str, Any]], terms: list[dict[str, float]], seconds: list[float]
) -> np.ndarray[Any, Any]:
    """Return predicted over measured seconds of the layouts outside of ten fits.

    Reads of one layout are similar, so all of them are in the same half.
    """
    names = [json.dumps(one["layout"]) for one in samples]
    ratios = []
    for seed in range(HALVES):
        order = np.random.default_rng(seed).permutation(sorted(set(names)))
        fitted = set(order[: len(order) // 2])
        seen = [i for i, name in enumerate(names) if name in fitted]
        factors = fit([terms[i] for i in seen], [seconds[i] for i in seen])
        unseen = [i for i, name in enumerate(names) if name not in fitted]
        ratios += [predict(terms[i], factors) / seconds[i] for i in unseen]
    return np.array(ratios)


def report(samples: list[dict[str, Any]], reader: str, off_by: float) -> None:
    """Print the errors of fits on reads outside of them, then the factors of all reads."""
    chosen = [one for one in samples if one["reader"] == reader]
    if not chosen:
        return
    terms = [counts_of(one).terms(one["layout"]["codec"], CODECS) for one in chosen]
    seconds = [one["seconds"] for one in chosen]
    ratios = held_out(chosen, terms, seconds)
    out = sys.stdout.write
    near = np.mean((ratios <= 1.25) & (ratios >= 1 / 1.25))
    far = np.mean((ratios <= 2) & (ratios >= 1 / 2))
    out(f"{reader}: {len(chosen)} reads; of layouts that a fit of the other half did not see ")
    out(f"{near:.0%} are within 25 %, {far:.1%} within a factor 2\n")
    factors = fit(terms, seconds)
    for name, factor in factors.items():
        out(f"  {name:26} {factor:.3e} s\n")
    for one, term, took in zip(chosen, terms, seconds, strict=True):
        ratio = predict(term, factors) / took
        if not 1 / off_by <= ratio <= off_by:
            layout = one["layout"]
            where = f"{layout['shape']} {layout['dtype']} {layout['chunk']} in {layout['shard']}"
            out(f"  {where} {layout['codec']}: {one['read']}: {took * 1e3:.2f} ms, ")
            out(f"predicted {ratio:.2f} of it\n")


def main() -> None:
    """Measure, or fit earlier samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=Path, help="write what was measured to this file")
    parser.add_argument("--fit", type=Path, nargs="+", help="fit these files, measure nothing")
    parser.add_argument("--layouts", type=int, nargs=2, help="first layout, and one past the last")
    parser.add_argument("--off-by", type=float, default=1.6, help="list reads beyond this factor")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    if options.fit:
        samples = [one for file in options.fit for one in json.loads(file.read_text())]
    else:
        numbers = range(*(options.layouts or (0, len(layouts()))))
        samples = run_all(options.readers, numbers)
    if options.samples:
        options.samples.write_text(json.dumps(samples))
    for reader in options.readers:
        report(samples, reader, options.off_by)


if __name__ == "__main__":
    main()
