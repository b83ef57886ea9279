"""`s3-read`: maps and series of a store with 30 ms per request and 80 MB/s per stream.

A real S3 server on this machine, behind a proxy that delays; caches of the engines off, array
handles open. Two layouts of the same array of (time, lat, lon): zarr-python's default chunks, and
those that Bedform advises for maps and series, by the profile that `calibrate` measures of that
server.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.comparison import OURS, Comparison
from benchmarks.harness.options import PEERS
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.s3_server import (
    BUCKET,
    BYTES_PER_SECOND,
    SECONDS,
    SlowS3,
    set_environment,
    slow_s3,
)
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess, checksum, start_workers, stop_workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.harness.selections import Selection

    Days = np.ndarray[Any, Any]

NAME = "s3-read"
ENGINES = {name: f"s3-{name}" for name in (*PEERS, OURS) if name != "zarrs"}
DIMS = ("time", "lat", "lon")
DTYPE, NOISE = np.float32, np.float32(0.1)
ADVISED_GAIN = 5.0
#: A peer slower than both limits, in seconds and as a multiple of the fastest, reads once.
SLOW_SECONDS, SLOW_TIMES = 2.0, 5.0


def shape_of(options: Options) -> tuple[int, ...]:
    """Return years of days on a grid of a quarter of a degree; less in a quick run."""
    return (64, 61, 120) if options.quick else (365 * options.years, 721, 1440)


def days_of(shape: tuple[int, ...], first: int, end: int) -> np.ndarray[Any, Any]:
    """Returns days of a field that is smooth in space and time, with noise in its last digits."""
    lat, lon = (np.linspace(0, 6, length, dtype=DTYPE) for length in shape[1:])
    values = np.empty((end - first, *shape[1:]), DTYPE)
    for day, field in enumerate(values, first):
        np.random.default_rng((5, day)).standard_normal(out=field, dtype=DTYPE)
    values *= NOISE
    values += np.cos(lat)[:, None] * np.sin(2 * lon) * 10
    values += (280 + 10 * np.sin(np.arange(first, end, dtype=DTYPE) * 6 / 365))[:, None, None]
    return values


def write(array: Any, chunk_days: int, see: Callable[[int, Days], None] = lambda *_: None) -> None:
    """Writes the field, in whole chunks of about a year; calls `see` with each of these parts."""
    step = chunk_days * -(-365 // chunk_days)
    for first in range(0, array.shape[0], step):
        end = min(first + step, array.shape[0])
        values = days_of(array.shape, first, end)
        array[first:end] = values
        see(first, values)


class Answers:
    """The expected answer of each line, collected from the parts of the field."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.days = shape[0]
        self.lines = lines_of(shape)
        self.found: dict[str, list[Days]] = {line: [] for line in self.lines}

    def see(self, first: int, values: Days) -> None:
        """Collects the elements of a part that the lines read."""
        for line, (days, *box) in self.lines.items():
            wanted = range(self.days)[days] if isinstance(days, slice) else range(days, days + 1)
            low, high = max(wanted.start, first), min(wanted.stop, first + len(values))
            if low < high:
                self.found[line].append(values[(slice(low - first, high - first), *box)].copy())

    def checksums(self) -> dict[str, int]:
        """Return the checksum of each line's answer."""
        return {line: checksum(np.concatenate(found)) for line, found in self.found.items()}


def calibrated(server: SlowS3) -> Any:
    """Measures the server through the proxy; keeps the profile for later opens."""
    import bedform as bf

    return bf.calibrate(f"s3://{BUCKET}", storage_options={"endpoint": server.proxy})


def profile_in_words(profile: Any) -> str:
    """Returns the measured parameters in one line."""
    return (
        f"{profile.request_seconds_one * 1e3:.1f} ms to the first byte, "
        f"{profile.read_bytes_per_second_one / 1e6:.0f} MB/s a stream, "
        f"{profile.read_bytes_per_second_many / 1e6:.0f} MB/s in all, "
        f"{profile.requests_in_flight} in flight at {profile.request_seconds_many * 1e3:.2f} ms, "
        f"gaps of {profile.merge_gap_bytes >> 10} KiB"
    )


def stores(
    shape: tuple[int, ...], place: Path, profile: Any
) -> tuple[dict[str, Path], dict[str, int]]:
    """Writes the two stores; returns their paths, and the checksums of the lines' answers."""
    import zarr

    import bedform as bf

    shutil.rmtree(place, ignore_errors=True)
    default, advised = place / "default.zarr", place / "advised.zarr"
    plain = zarr.create_group(default).create_array(
        data.ARRAY, shape=shape, dtype=DTYPE, dimension_names=DIMS
    )
    answers = Answers(shape)
    write(plain, plain.chunks[0], answers.see)
    reads = {("lat", "lon"): 0.5, ("time",): 0.5}
    # The first store gives the compression ratio of these values.
    ratio = plain.nbytes / sum(file.stat().st_size for file in default.rglob("*") if file.is_file())
    advice = bf.advise(
        shape, DTYPE, dims=DIMS, reads=reads, profile=profile, compression_ratio=ratio
    )
    array = bf.create(advised).create_array(
        data.ARRAY, shape=shape, dtype=DTYPE, dims=DIMS, layout=advice.layout
    )
    write(array, (array.shards or array.chunks)[0])
    return {"default": default, "advised": advised}, answers.checksums()


def lines_of(shape: tuple[int, ...]) -> dict[str, Selection]:
    """Return the reads: a map, a series, and larger ones of both kinds."""
    time, lat, lon = (slice(0, length) for length in shape)
    middle = [length * 3 // 7 for length in shape]
    box = (slice(middle[1], middle[1] + 10), slice(middle[2], middle[2] + 20))
    return {
        "map": (middle[0], lat, lon),
        "series": (time, middle[1], middle[2]),
        "ten maps": (slice(middle[0], middle[0] + 10), lat, lon),
        "series of a region": (time, *box),
    }


def measure(
    server: SlowS3,
    workers: dict[str, WorkerProcess],
    options: Options,
    line: str,
    selection: Selection,
    answer: int,
) -> tuple[Comparison, dict[str, str]]:
    """Runs the rounds of one line; also returns each engine's requests to the server.

    Peers that are far slower than the fastest one read once.
    """

    def attempt(name: str, variant: str) -> float:
        workers[name].call("prepare", line, selection, variant)
        seconds: float = workers[name].call("read", line, answer)
        return seconds

    variants = {
        name: options.some(list(worker.call("describe")["read"]))
        for name, worker in workers.items()
    }
    first, asked = {}, {}
    for name in workers:
        before = server.counts()
        first[name] = attempt(name, variants[name][0])
        asked[name] = asked_since(server, before)
    limit = max(SLOW_SECONDS, SLOW_TIMES * min(first[name] for name in workers if name != OURS))
    fast = [name for name in workers if first[name] <= limit]
    chosen = {name: variants[name][0] for name in workers}
    for name in fast:
        chosen[name] = fastest_variant(
            variants[name], options.tries(), lambda variant, name=name: attempt(name, variant)
        )
    samples = interleave(fast, options.rounds, lambda name: attempt(name, chosen[name]))
    samples |= {name: [first[name]] for name in workers if name not in fast}
    return Comparison(line, samples, chosen), asked


def asked_since(server: SlowS3, before: dict[str, int]) -> str:
    """Returns the requests and the answered bytes since `before`."""
    after = server.counts()
    moved = bytes_in_words(after["bytes"] - before["bytes"])
    return f"{after['requests'] - before['requests']}, {moved}"


def run(options: Options) -> Report:
    """Runs the requested lines."""
    shape = shape_of(options)
    name = NAME if options.years == 1 else f"{NAME}, {options.years} years"
    report = Report(name, options.command, {"array": "x".join(map(str, shape)) + " float32"})
    report.settings |= {"rounds": str(options.rounds), "server": "versitygw"}
    report.settings["proxy"] = f"{SECONDS * 1e3:.0f} ms, {BYTES_PER_SECOND / 1e6:.0f} MB/s a stream"
    results: dict[str, list[Comparison]] = {}
    set_environment()
    os.environ["BEDFORM_PROFILES"] = str(data.ROOT / "s3-profiles")
    started = start_workers(list(ENGINES.values()))
    workers = {name: started[engine] for name, engine in ENGINES.items()}
    try:
        with slow_s3() as server:
            profile = calibrated(server)
            report.settings["calibrated"] = profile_in_words(profile)
            places, answers = stores(shape, data.ROOT / "s3-stores", profile)
            for layout, path in places.items():
                server.put(path, path.name)
                for name, worker in workers.items():
                    worker.call("open", f"{server.proxy} {path.name}")
                    report.settings[name] = worker.call("describe")["version"]
                table = Table(
                    f"{layout}: {described(path)}; milliseconds; requests, bytes of each",
                    ["read", *workers, "bedform / fastest", *(f"{name} asks" for name in workers)],
                )
                results[layout] = []
                for line, selection in lines_of(shape).items():
                    if not options.wants(f"{layout}/{line}"):
                        continue
                    one, asked = measure(server, workers, options, line, selection, answers[line])
                    asks = [asked[name] for name in workers]
                    row = [one.cell(name) for name in workers]
                    table.rows.append([line, *row, one.ratio_cell(one.fastest_peer()), *asks])
                    results[layout].append(one)
                    report.samples[f"{layout}/{line}"] = one.to_dict()
                report.tables.append(table)
    finally:
        stop_workers(started)
    report.verdicts = verdicts(results)
    return report


def described(path: Path) -> str:
    """Return a store's layout in words."""
    import bedform as bf

    info = bf.open(path)[data.ARRAY].info()
    shards = info.get("shards")
    inside = f" in {data.shape_in_words(shards)}, {info['order']}" if shards else ", no shards"
    return data.shape_in_words(info["chunks"]) + inside


def verdicts(results: dict[str, list[Comparison]]) -> list[Verdict]:
    """Returns the promises and their results."""
    every = [(layout, one) for layout, ones in results.items() for one in ones]
    lost = [f"{layout} {one.line}" for layout, one in every if one.is_loss()]
    listed = f": {', '.join(lost)}" if lost else ""
    found = [
        Verdict("fastest on every line", f"{len(lost)} of {len(every)} lost{listed}", not lost)
    ]
    slower = {
        layout: max((median(one.samples[OURS]), one.line) for one in ones if one.line in BASIC)
        for layout, ones in results.items()
        if any(one.line in BASIC for one in ones)
    }
    promise = f"advised at least {ADVISED_GAIN:.0f} times default, on the slower of map and series"
    if set(slower) != {"default", "advised"}:
        return [*found, Verdict(promise, "-", None)]
    gain = slower["default"][0] / slower["advised"][0]
    said = f"{gain:.1f} ({slower['default'][1]} over {slower['advised'][1]})"
    return [*found, Verdict(promise, said, gain >= ADVISED_GAIN)]


BASIC = ("map", "series")
