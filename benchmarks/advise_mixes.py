"""`advise-mixes`: the first layout of `advise` against the others that it compared.

Each mix has random shares of maps, series, planes, boxes and points of one of four arrays. All
compared layouts with at most three times the cost of the first choice are written. They are read in
turn, round by round, with the files in the page cache, and every answer is checked. The measure is
the mean of the medians, weighted by the shares of the mix. The fastest of several layouts may owe
its rank to chance: it and the first choice are written and read again, and those times count.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

    Selection = tuple[int | slice, ...]

NAME = "advise-mixes"
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "climate": ((365, 91, 180), "float32"),
    "cube": ((192, 192, 192), "float64"),
    "image": ((4000, 3000), "uint16"),
    "levels": ((24, 19, 91, 180), "float32"),
}
CODECS = [{"name": "blosc", "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "shuffle"}}]
MIXES, QUICK_MIXES, LAYOUTS, PLACES = 40, 8, 5, 3
DEARER_MAX, NEAR, NEAR_SHARE = 3.0, 1.10, 0.95


@dataclass(frozen=True)
class Kind:
    """A kind of read: the number of elements along each axis, and its share of the mix."""

    name: str
    widths: tuple[int, ...]
    share: float


def field(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Return waves with some bits of noise, which compress to about a half."""
    random = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0, 9, n) for n in shape), indexing="ij", sparse=True)
    smooth = sum(np.sin(axis + number) for number, axis in enumerate(axes))
    values = 1000.0 * np.asarray(smooth) + random.integers(0, 64, shape)
    return np.ascontiguousarray((values + 5000).astype(dtype))


def mix(shape: tuple[int, ...], random: np.random.Generator) -> list[Kind]:
    """Return two to five kinds of reads with random shares."""
    rank = len(shape)

    def whole(*axes: int) -> tuple[int, ...]:
        return tuple(n if axis in axes else 1 for axis, n in enumerate(shape))

    kinds = {
        "map": whole(rank - 2, rank - 1) if rank > 2 else whole(rank - 1),
        "series": whole(0),
        "box": tuple(max(1, n // 4) for n in shape),
        "points": whole(),
    }
    if rank > 2:
        kinds["plane"] = whole(0, rank - 1)
    chosen = random.choice(sorted(kinds), random.integers(2, len(kinds) + 1), replace=False)
    shares = random.dirichlet(np.ones(len(chosen)))
    return [
        Kind(str(name), kinds[name], max(float(share), 0.02))
        for name, share in zip(chosen, shares, strict=True)
    ]


def advised(
    shape: tuple[int, ...],
    dtype: str,
    kinds: list[Kind],
    ratio: float,
    profile: bf.Profile,
    threads: int,
) -> list[tuple[str, bf.Regular, float]]:
    """Returns the layouts that advice compared, with names and costs, its first choice in front."""
    names = tuple(f"d{axis}" for axis in range(len(shape)))
    reads, selections = {}, []
    boxes = [kind for kind in kinds if kind.name == "box"]
    # A selection weighs 1: the boxes together get the weight of their share.
    unit = boxes[0].share / PLACES if boxes else 1.0
    for kind in kinds:
        if kind.name == "box":
            selections = [selection(shape, kind, place) for place in range(PLACES)]
        else:
            spanned = tuple(
                name
                for name, n, width in zip(names, shape, kind.widths, strict=True)
                if width == n and n > 1
            )
            reads[spanned] = kind.share / unit
    advice = bf.advise(
        shape,
        dtype,
        dims=names,
        reads=reads,
        selections=selections or None,
        compression_ratio=ratio,
        profile=profile,
        cores=threads,
        readers="bedform",
        cached=True,
    ).to_dict()
    first = advice["predicted"][0]["cost_seconds"]
    found: list[tuple[str, bf.Regular, float]] = []
    for row in advice["predicted"]:
        layout = bf.Regular(row["chunk_shape"], row["shard_shape"], row["order"])
        if row["cost_seconds"] <= DEARER_MAX * first and len(found) < LAYOUTS:
            found.append((row["name"], layout, row["cost_seconds"]))
    return found


def selection(shape: tuple[int, ...], kind: Kind, place: int) -> Selection:
    """Return a read of a kind, at a place of its own."""
    parts: list[int | slice] = []
    for axis, (n, width) in enumerate(zip(shape, kind.widths, strict=True)):
        share = (0.37 * (place + 1) + 0.21 * axis) % 1.0
        start = int((n - width) * share)
        parts.append(slice(start, start + width))
    return tuple(parts)


def compression(values: np.ndarray[Any, Any], place: Path) -> float:
    """Returns the ratio of raw to encoded bytes of the values."""
    with bf.create(place / "ratio.zarr") as store:
        store.create_array("v", data=values, codecs=CODECS)
    stored = sum(path.stat().st_size for path in (place / "ratio.zarr").rglob("*"))
    return max(1.0, values.nbytes / stored)


def measure(
    values: np.ndarray[Any, Any],
    kinds: list[Kind],
    layouts: list[tuple[str, bf.Regular, float]],
    place: Path,
    rounds: int,
    threads: int,
) -> list[float]:
    """Return the weighted seconds of each layout."""
    stores = []
    for number, (_, layout, _) in enumerate(layouts):
        store = bf.create(place / f"{number}.zarr")
        store.create_array("v", data=values, layout=layout, codecs=CODECS)
        stores.append(bf.open(place / f"{number}.zarr", cache=0, threads=threads)["v"])
    total = [0.0] * len(layouts)
    for kind in kinds:
        for at in range(PLACES):
            where = selection(values.shape, kind, at)
            expected, taken = values[where], [[] for _ in stores]  # type: ignore[var-annotated]
            for turn in range(rounds + 1):
                for number in np.roll(np.arange(len(stores)), turn):
                    began = time.perf_counter()
                    answer = stores[number][where]
                    seconds = time.perf_counter() - began
                    # The first read is not counted: it finds the files in the writer's state.
                    if turn:
                        taken[number].append(seconds)
                    elif not np.array_equal(answer, expected):
                        raise ValueError(f"{layouts[number][0]}: wrong values of {kind.name}")
            for number, samples in enumerate(taken):
                total[number] += kind.share * median(samples) / PLACES
    return total


def run(options: Options) -> Report:
    """Draws mixes, asks for advice, writes the compared layouts, reads them."""
    rounds = max(15, options.rounds)
    report = Report(NAME, options.command, {"rounds": str(rounds)})
    columns = ["mix", "chunks", "predicted", "measured", "best", "its chunks", "first / best"]
    table = Table("Weighted milliseconds of a read", columns)
    random, ratios = np.random.default_rng(11), []
    data.ROOT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
        fields = {name: field(*SHAPES[name], seed=2) for name in SHAPES}
        sizes = {
            name: compression(values, Path(tempfile.mkdtemp(dir=directory)))
            for name, values in fields.items()
        }
        profile = bf.calibrate(directory, seconds=4, keep=False)
        for number in range(QUICK_MIXES if options.quick else MIXES):
            name = list(SHAPES)[number % len(SHAPES)]
            kinds = mix(SHAPES[name][0], random)
            threads = 1 + number // len(SHAPES) % 2
            layouts = advised(*SHAPES[name], kinds, sizes[name], profile, threads)
            with tempfile.TemporaryDirectory(dir=directory) as place:
                seconds = measure(fields[name], kinds, layouts, Path(place), rounds, threads)
            best = int(np.argmin(seconds))
            pair = [layouts[0], layouts[best]]
            with tempfile.TemporaryDirectory(dir=directory) as place:
                again = measure(fields[name], kinds, pair, Path(place), rounds, threads)
            ratios.append(max(1.0, again[0] / again[1]) if best else 1.0)
            shares = ", ".join(f"{kind.name} {kind.share:.2f}" for kind in kinds)
            table.rows.append(
                [
                    f"{name}, {threads} threads: {shares}",
                    shown(layouts[0][1].chunks),
                    milliseconds(layouts[0][2]),
                    milliseconds(again[0]),
                    milliseconds(again[1]),
                    shown(layouts[best][1].chunks),
                    f"{ratios[-1]:.2f}",
                ]
            )
            report.samples[f"{number} {name}"] = [
                {
                    "layout": one[0],
                    "chunks": list(one[1].chunks),
                    "order": one[1].order,
                    "predicted": one[2],
                    "measured": took,
                }
                for one, took in zip(layouts, seconds, strict=True)
            ]
    report.tables.append(table)
    near = sum(ratio <= NEAR for ratio in ratios)
    report.verdicts.append(
        Verdict(
            f"first choice within {NEAR - 1:.0%} of the best, in {NEAR_SHARE:.0%} of mixes",
            f"{near} of {len(ratios)}, worst {max(ratios):.2f}",
            near >= math.ceil(NEAR_SHARE * len(ratios)),
        )
    )
    return report


def shown(lengths: Any) -> str:
    """Return the lengths of a chunk."""
    return "x".join(str(length) for length in lengths)
