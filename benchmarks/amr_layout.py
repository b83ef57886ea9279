"""`amr-layout`: regions of a refined mesh, by the order of its boxes.

A mesh of five levels is refined around curves, as the generator of Chombo's I/O benchmark makes
them: boxes of 16 to 64 cells along each axis, one component of float64. A plotfile has the boxes in
the writer's order: by x, y, z, dealt to ranks. Stores have the sub-boxes in that order ("given"),
along both curves, and in clusters, without compression, so that the orders alone differ; one more
store is as `bf.convert` makes it.

Eleven regions are read cold as pieces of all levels: planes normal to each axis, pencils along each
axis, and boxes of 1 to 25 % of the domain around the refined parts. Each read is compared by digest
with the others. "Contiguous" is one read of as many elements that follow each other in an array of
the same store. Bytes are those that the process read from files, over those of the elements of the
region.

In processes of their own, after `bf.calibrate`, the regions are read once more, and the times
compared with the predictions of `explain`. Then the orders are read from a device of 250 MB/s that
takes 8 ms for each request. `BEDFORM_THROTTLE` charges requests and not seeks: the next byte costs
as much as a far one, and requests in flight wait together.

The plotfile and the store as `bf.convert` makes it are then read by yt's own frontend and by ours:
a slice along each axis, a region of 10 %, a ray, each in a fresh process, with the index that they
build counted. yt is left out where it is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words, milliseconds
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "amr-layout"
ORDERS = ("given", "hilbert", "z", "clusters")
LEVELS, TILE, BASE = 5, 16, 128
FIELD = "density"
FASTER, SLOWER, SHARE, NEAR_BEST = 3.0, 1.05, 0.94, 0.95
STORE_BYTES, PLOTFILE_BYTES = 1.6, 2.0
ERROR_MAX, ERROR_SHARE = 0.15, 0.90
#: The bandwidth of a target of Spider, and its seek as the time of a request.
THROTTLE = "250 MB/s, 8 ms"
YT_BYTES, YT_FASTER = 5.0, 3.0
YT_DRIVER = Path(__file__).parent / "drivers" / "yt_slice.py"
YT_READS = ("slice-x", "slice-y", "slice-z", "region", "ray")


def tiles_of(levels: int, base: int, tile: int = TILE) -> list[np.ndarray[Any, Any]]:
    """Returns for each level the tiles of `tile` cells that it refines, properly nested."""
    side = base // tile
    tiles = [np.argwhere(np.ones((side,) * 3, bool))]
    turns = np.linspace(0, 2 * np.pi, 400)
    curves = np.concatenate(
        [
            np.stack([0.5 + 0.3 * np.cos(turns), 0.5 + 0.3 * np.sin(turns), 0.1 + turns / 8], 1),
            np.stack([0.2 + turns / 10, 0.5 + 0.2 * np.sin(3 * turns), 0.6 - turns / 16], 1),
        ]
    )
    for level in range(1, levels):
        children = (tiles[-1][:, None] * 2 + np.argwhere(np.ones((2,) * 3, bool))).reshape(-1, 3)
        centres = (children + 0.5) / (side * 2**level)
        near = np.full(len(children), np.inf)
        for part in np.array_split(curves, 20):
            distance = np.linalg.norm(centres[:, None] - part[None], axis=2).min(axis=1)
            near = np.minimum(near, distance)
        tiles.append(children[near < 0.22 / 2**level + 0.02])
    return tiles


def boxes_of(
    tiles: np.ndarray[Any, Any], level: int, cells: int = TILE
) -> list[tuple[list[int], list[int]]]:
    """Joins tiles of `cells` cells along x into boxes of up to four, so that sizes vary."""
    random, left = np.random.default_rng(level), {tuple(tile) for tile in tiles.tolist()}
    boxes = []
    for tile in sorted(left):
        if tile not in left:
            continue
        length = 1
        while length < random.integers(1, 5) and (tile[0] + length, *tile[1:]) in left:
            length += 1
        left -= {(tile[0] + at, *tile[1:]) for at in range(length)}
        start = [at * cells for at in tile]
        boxes.append((start, [start[0] + length * cells, start[1] + cells, start[2] + cells]))
    return boxes


def write_plotfile(path: Path, levels: int, base: int, ranks: int = 32, tile: int = TILE) -> None:
    """Writes a plotfile, the boxes of each level dealt to the files of ranks."""
    domains = " ".join(
        f"((0,0,0) ({n},{n},{n}) (0,0,0))" for n in (base * 2**at - 1 for at in range(levels))
    )
    lines = ["HyperCLaw-V1.1", "1", FIELD, "3", "0.5", str(levels - 1), "0 0 0", "1 1 1"]
    lines += [" ".join(["2"] * (levels - 1)), domains, " ".join(["7"] * levels)]
    lines += [" ".join([str(1 / (base * 2**at))] * 3) for at in range(levels)] + ["0", "0"]
    real = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))"
    for level, tiles in enumerate(tiles_of(levels, base, tile)):
        boxes = boxes_of(tiles, level, tile)
        lines += [f"{level} {len(boxes)} 0.5", "7"]
        size = 1 / (base * 2**level)
        for start, stop in boxes:
            lines += [f"{a * size} {b * size}" for a, b in zip(start, stop, strict=True)]
        lines.append(f"Level_{level}/Cell")
        directory = path / f"Level_{level}"
        directory.mkdir(parents=True)
        files = [(directory / f"Cell_D_{rank:05}").open("wb") for rank in range(ranks)]
        places, texts = [], []
        random = np.random.default_rng(level + 100)
        for number, (start, stop) in enumerate(boxes):
            low, high = (",".join(map(str, side)) for side in (start, np.subtract(stop, 1)))
            texts.append(f"(({low}) ({high}) (0,0,0))")
            file = files[number % ranks]
            places.append(f"FabOnDisk: Cell_D_{number % ranks:05} {file.tell()}")
            values = np.sin(np.add(start, 1.0)).sum() + random.normal(
                0, 0.01, np.subtract(stop, start)
            )
            file.write(f"FAB {real}{texts[-1]} 1\n".encode() + values.tobytes("F"))
        for file in files:
            file.close()
        rows = "\n".join(["0,"] * len(boxes))
        head = f"1\n1\n1\n0\n({len(boxes)} 0\n" + "\n".join(texts)
        ranges = f"{len(boxes)},1\n{rows}\n\n" * 2
        where = "\n".join(places)
        (directory / "Cell_H").write_text(f"{head}\n)\n{len(boxes)}\n{where}\n\n{ranges}")
    (path / "Header").write_text("\n".join(lines) + "\n")


def regions_of(cells: int) -> dict[str, tuple[slice, ...]]:
    """Returns the regions, in cells of the finest level, of which each axis has `cells`."""
    whole, thin, row = (
        slice(None),
        slice(cells // 2, cells // 2 + 1),
        slice(cells // 3, cells // 3 + 8),
    )
    found = {
        "plane x": (thin, whole, whole),
        "plane y": (whole, thin, whole),
        "plane z": (whole, whole, thin),
        "pencil x": (whole, row, row),
        "pencil y": (row, whole, row),
        "pencil z": (row, row, whole),
    }
    for share, middle in (
        (1, (0.8, 0.5, 0.15)),
        (2, (0.5, 0.8, 0.3)),
        (5, (0.2, 0.5, 0.5)),
        (10, (0.5, 0.5, 0.5)),
        (25, (0.5, 0.5, 0.45)),
    ):
        half = 0.5 * (share / 100) ** (1 / 3)
        bounds = [(max(at - half, 0), min(at + half, 1)) for at in middle]
        found[f"box {share} %"] = tuple(
            slice(*(int(side * cells) for side in one)) for one in bounds
        )
    return found


def read(mesh: Any, region: tuple[slice, ...]) -> tuple[int, str]:
    """Reads all levels of a region; returns the bytes of elements, and a digest of them."""
    count, digest, parts = 0, hashlib.sha256(), []
    for piece in mesh[FIELD].pieces(region, level=mesh.levels - 1, max_bytes="8 GiB"):
        count += piece.data.nbytes
        parts.append((piece.level, piece.data.sum()))
    sums = np.zeros(mesh.levels)
    for level, total in parts:
        sums[level] += total
    digest.update(np.round(sums, 3).tobytes())
    return count, digest.hexdigest()[:8]


def bytes_read() -> int:
    """Returns the bytes that this process has read by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def sampled(place: Path, region: tuple[slice, ...]) -> dict[str, Any]:
    """Reads a region cold once, without the time to open the mesh."""
    mesh = bf.open(place, prefetch=False, cache=0)
    cold.make_cold(place)
    before, began = bytes_read(), time.perf_counter()
    count, digest = read(mesh, region)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "bytes": bytes_read() - before, "count": count, "digest": digest}


def contiguous(place: Path, count: int) -> float:
    """Reads as many bytes that follow each other, cold; returns the seconds."""
    store = bf.open(place, "r+", prefetch=False, cache=0)
    array = store[f"plt00000/level_{LEVELS - 1}/{FIELD}"]
    elements = min(count // 8, array.shape[0])
    cold.make_cold(place)
    began = time.perf_counter()
    array[:elements]
    return (time.perf_counter() - began) * (count / 8 / max(elements, 1))


def layouts(options: Options, report: Report, plotfile: Path, stores: dict[str, Path]) -> None:
    """Reads every region from every order, interleaved."""
    cells = int(bf.open(plotfile).domain(LEVELS - 1)[1, 0])
    table = Table(
        "Milliseconds cold, and bytes read over bytes needed",
        [
            *("region", "MiB", "plotfile", *ORDERS, "as converted", "best / given"),
            *("of contiguous", "bytes: plotfile", "hilbert", "as converted"),
        ],
    )
    record = bf.open(stores["auto"], "r+")["plt00000"].attributes["bedform_mesh"]
    automatic = str(record["order"]).split(", ")[-1]
    report.settings["chosen order"] = automatic
    near_best = []
    best, worst, shares = 0.0, 0.0, []
    wasted: dict[str, float] = {}
    for name, region in regions_of(cells).items():
        if not options.wants(name):
            continue
        samples: dict[str, list[dict[str, Any]]] = {}
        straight = []
        for _ in range(options.rounds):
            for order, place in {"plotfile": plotfile, **stores}.items():
                samples.setdefault(order, []).append(sampled(place, region))
            straight.append(contiguous(stores["hilbert"], samples["hilbert"][0]["count"]))
        if len({one["digest"] for runs in samples.values() for one in runs}) != 1:
            raise ValueError(f"{name}: answers differ")
        times = {order: [one["seconds"] for one in runs] for order, runs in samples.items()}
        needed = samples["given"][0]["count"]
        chosen = min(ORDERS[1:], key=lambda order: median(times[order]))
        gain = paired_ratio(times["given"], times[chosen])
        share = median(straight) / median(times[chosen])
        fastest = min(median(times[order]) for order in ORDERS)
        near_best.append(median(times[automatic]) <= SLOWER * fastest)
        over = {order: runs[0]["bytes"] / needed for order, runs in samples.items()}
        best, worst = max(best, gain.median), max(worst, 1 / gain.median)
        shares.append(share)
        if name.startswith("box"):
            for order, value in over.items():
                wasted[order] = max(wasted.get(order, 0.0), value)
        table.rows.append(
            [
                name,
                f"{needed / 2**20:.1f}",
                *(milliseconds(median(times[order])) for order in ("plotfile", *ORDERS, "auto")),
                f"{gain.median:.2f}",
                f"{share:.0%}",
                *(f"{over[order]:.2f}" for order in ("plotfile", "hilbert", "auto")),
            ]
        )
        report.samples[name] = times
    if not shares:
        return
    report.tables.append(table)
    middle = median(shares)
    for promise, measured, holds in (
        (f"{FASTER:.0f} times over the writer's order at the best", f"{best:.2f}", best >= FASTER),
        ("never slower than it by 5 %", f"{worst:.2f}", worst <= SLOWER),
        (f"{SHARE:.0%} of contiguous throughput, median", f"{middle:.0%}", middle >= SHARE),
        (
            "the chosen order within 5 % of the best in 95 %",
            f"{np.mean(near_best):.0%}",
            bool(np.mean(near_best) >= NEAR_BEST),
        ),
    ):
        report.verdicts.append(Verdict(promise, measured, holds))
    limits = (("a store", "auto", STORE_BYTES), ("a plotfile", "plotfile", PLOTFILE_BYTES))
    for name, order, limit in limits:
        promise = f"boxes from {name}: at most {limit} bytes for a byte needed"
        found = wasted[order]
        report.verdicts.append(Verdict(promise, f"{found:.2f}", found <= limit))


def model(options: Options, report: Report, stores: dict[str, Path]) -> None:
    """Compares the predictions of `explain` with cold reads, after a calibration."""
    from benchmarks.harness import mesh_reads

    places = {order: stores[order] for order in ("given", "hilbert", "auto")}
    columns = ["region", "store", "requests", "predicted", "measured", "predicted / measured"]
    table = Table("The model: milliseconds cold", columns)
    ratios = []
    for one in mesh_reads.measure(places, options.rounds):
        took = median(one.seconds)
        ratios.append(one.predicted / took)
        called = "as converted" if one.order == "auto" else one.order
        times = [milliseconds(one.predicted), milliseconds(took)]
        table.rows.append([one.region, called, str(one.requests), *times, f"{ratios[-1]:.2f}"])
        report.samples[f"model: {one.region}, {one.order}"] = one.seconds
    near = float(np.mean(np.abs(np.array(ratios) - 1) < ERROR_MAX))
    report.tables.append(table)
    report.verdicts.append(
        Verdict(
            f"model: error under {ERROR_MAX:.0%} for {ERROR_SHARE:.0%} of regions",
            f"{near:.0%}; predicted / measured {min(ratios):.2f} to {max(ratios):.2f}",
            near >= ERROR_SHARE,
        )
    )


def slow_device(options: Options, report: Report, stores: dict[str, Path]) -> None:
    """Reads all regions from storage that takes as long for a request as a disk for a seek."""
    from benchmarks.harness import mesh_reads

    places = {order: stores[order] for order in ORDERS}
    columns = ["region", *ORDERS, "best / given", "requests: given", "of the best"]
    table = Table(f"A device of {THROTTLE} a request: milliseconds", columns)
    found: dict[str, dict[str, mesh_reads.Read]] = {}
    for one in mesh_reads.measure(places, max(options.rounds // 3, 1), THROTTLE):
        found.setdefault(one.region, {})[one.order] = one
        report.samples[f"{THROTTLE}: {one.region}, {one.order}"] = one.seconds
    gains = []
    for name, reads in found.items():
        times = {order: median(one.seconds) for order, one in reads.items()}
        chosen = min(ORDERS[1:], key=lambda order: times[order])
        gains.append(times["given"] / times[chosen])
        table.rows.append(
            [
                name,
                *(milliseconds(times[order]) for order in ORDERS),
                f"{gains[-1]:.2f}",
                *(str(reads[order].requests) for order in ("given", chosen)),
            ]
        )
    report.tables.append(table)
    for promise, measured, holds in (
        (
            f"{FASTER:.0f} times over the writer's order at the best",
            max(gains),
            max(gains) >= FASTER,
        ),
        ("never slower than it by 5 %", 1 / min(gains), 1 / min(gains) <= SLOWER),
    ):
        report.verdicts.append(
            Verdict(f"{THROTTLE} a request: {promise}", f"{measured:.2f}", holds)
        )


def yt_reads(options: Options, report: Report, plotfile: Path, store: Path) -> None:
    """Reads by yt's frontend and by ours, each in a process of its own."""
    table = Table(
        "yt: milliseconds and bytes, the index counted",
        [
            "read",
            "yt",
            "ours, plotfile",
            "ours, store",
            "bytes: yt",
            "ours, plotfile",
            "ours, store",
        ],
    )
    for name in YT_READS:
        if not options.wants(f"yt {name}"):
            continue
        runs: dict[str, list[dict[str, Any]]] = {}
        for _ in range(max(options.rounds // 3, 1)):
            for who, frontend, place in (
                ("yt", "yt", plotfile),
                ("plotfile", "bedform", plotfile),
                ("store", "bedform", store),
            ):
                cold.make_cold(place)
                command = [sys.executable, str(YT_DRIVER), str(place), "--frontend", frontend]
                command += ["--read", name, "--field", FIELD]
                done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                runs.setdefault(who, []).append(json.loads(done.stdout.splitlines()[-1]))
        if len({one["digest"] for found in runs.values() for one in found}) != 1:
            raise ValueError(f"yt {name}: answers differ")
        seconds = {who: median([one["seconds"] for one in found]) for who, found in runs.items()}
        count = {who: found[0]["bytes"] for who, found in runs.items()}
        table.rows.append(
            [
                name,
                *(milliseconds(seconds[who]) for who in ("yt", "plotfile", "store")),
                *(bytes_in_words(count[who]) for who in ("yt", "plotfile", "store")),
            ]
        )
        if name.startswith(("slice", "region")):
            for who in ("plotfile", "store"):
                fewer, faster = count["yt"] / count[who], seconds["yt"] / seconds[who]
                report.verdicts += [
                    Verdict(
                        f"yt, {name}, {who}: {YT_BYTES:.0f} times fewer bytes",
                        f"{fewer:.1f}",
                        fewer >= YT_BYTES,
                    ),
                    Verdict(
                        f"yt, {name}, {who}: {YT_FASTER:.0f} times faster",
                        f"{faster:.1f}",
                        faster >= YT_FASTER,
                    ),
                ]
    report.tables.append(table)


def run(options: Options) -> Report:
    """Writes the mesh in all orders, and reads it."""
    report = Report(NAME, options.command, {"rounds": str(options.rounds)})
    if options.only:
        report.settings["lines"] = ", ".join(options.only)
    root = data.ROOT / "amr-layout"
    data.remove(root)
    root.mkdir(parents=True)
    plotfile = root / "plt00000"
    write_plotfile(plotfile, LEVELS, 32 if options.quick else BASE)
    os.sync()
    stores = {order: root / f"{order}.zarr" for order in (*ORDERS, "auto")}
    seconds: dict[str, list[float]] = {order: [] for order in stores}
    for _ in range(1 if options.quick else 3):
        for order, place in stores.items():
            data.remove(place)
            os.sync()
            given: dict[str, Any] = {} if order == "auto" else {"codecs": []}
            began = time.perf_counter()
            bf.convert(plotfile, place, order=order, **given)
            seconds[order].append(time.perf_counter() - began)
    os.sync()
    report.samples["conversion"] = seconds
    report.settings["seconds to convert"] = ", ".join(
        f"{order} {median(found):.1f}" for order, found in seconds.items()
    )
    for order, limit in (("hilbert", 0.05), ("z", 0.05), ("clusters", 0.25)):
        over = paired_ratio(seconds[order], seconds["given"]).median - 1
        promise = f"conversion in the order {order}: at most {limit:.0%} over the writer's order"
        report.verdicts.append(Verdict(promise, f"{over:.0%}", over <= limit))
    mesh = bf.open(stores["auto"])
    report.settings["boxes"] = ", ".join(str(len(mesh.boxes(at))) for at in range(LEVELS))
    report.settings["sub-boxes"] = ", ".join(str(len(mesh.grids(at))) for at in range(LEVELS))
    layouts(options, report, plotfile, stores)
    if options.wants("model"):
        model(options, report, stores)
    if options.wants("slow device"):
        slow_device(options, report, stores)
    if importlib.util.find_spec("yt") is not None:
        yt_reads(options, report, plotfile, stores["auto"])
    data.remove(root)
    return report
