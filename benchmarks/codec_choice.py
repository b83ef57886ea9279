"""`codec-choice`: arrays with automatically chosen codecs, against every candidate, by read times.

Each field is stored with every candidate of `codecs="auto"`, and with the choice of `auto` for two
storages, of 1 GB/s and 100 MB/s. BEDFORM_THROTTLE makes these from a directory whose files are in
the page cache. A read is of the whole array, into existing memory. *best* is the fastest candidate
of those at most 2 % larger than zstd. The promise is that `auto`, which measures no times, takes at
most 1.1 times as long. *choosing* is the processor time of `create_array` with `auto` minus that
with the same codecs by name: at most 30 ms, or 2 % of the write.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.codec_fields import CodecField, fields
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "codec-choice"
#: Bytes per second, and the throttle.
STORAGES = ((1e9, "1000 MB/s, 100 us"), (1e8, "100 MB/s, 100 us"))
LARGER_MAX, SLOWER_MAX = 1.02, 1.1
CHOOSING_SECONDS, CHOOSING_PART = 0.030, 0.02
BYTES, QUICK_BYTES = 32 << 20, 8 << 20


@dataclass(frozen=True)
class CodecReadTimes:
    """An array with its codecs: stored bytes, and the seconds of a read by storage."""

    size: int
    seconds: dict[str, float]


def candidates(item_size: int) -> dict[str, list[Any]]:
    """Returns the codecs by name, as in `crates/bedform/src/codec/choice.rs`."""
    type_size = item_size if item_size <= 16 else 1

    def blosc(compressor: str, shuffle: str) -> list[Any]:
        settings = {"cname": compressor, "clevel": 3, "shuffle": shuffle, "blocksize": 0}
        return [{"name": "blosc", "configuration": {**settings, "typesize": type_size}}]

    shuffled = {
        "blosc-zstd-shuffle": blosc("zstd", "shuffle"),
        "blosc-lz4-shuffle": blosc("lz4", "shuffle"),
    }
    return {
        "zstd": ["zstd"],
        **(shuffled if type_size > 1 else {"blosc-lz4": blosc("lz4", "noshuffle")}),
        "blosc-zstd-bitshuffle": blosc("zstd", "bitshuffle"),
        "blosc-lz4-bitshuffle": blosc("lz4", "bitshuffle"),
        "none": [],
    }


def run(options: Options) -> Report:
    """Measure all fields."""
    report = Report(NAME, options.command, {"rounds": str(options.rounds)})
    tables = {throttle: _table(throttle) for _, throttle in STORAGES}
    slowest, costs, largest = {throttle: 0.0 for _, throttle in STORAGES}, [], 0.0
    for field in fields(QUICK_BYTES if options.quick else BYTES):
        if not options.wants(field.name):
            continue
        with tempfile.TemporaryDirectory(prefix="codec-choice") as place:
            stored, taken, cost = measure(field, Path(place), options.rounds)
        costs += cost
        report.samples[field.name] = {name: one.seconds for name, one in stored.items()}
        for rate, throttle in STORAGES:
            row, ratio = _row(field, stored, taken, rate, throttle)
            tables[throttle].rows.append(row)
            slowest[throttle] = max(slowest[throttle], ratio)
            largest = max(largest, stored[taken[rate]].size / stored["zstd"].size)
    report.tables = list(tables.values())
    for throttle, ratio in slowest.items():
        promise = f"auto within 10 % of the best candidate at {throttle}"
        report.verdicts.append(Verdict(promise, f"{ratio:.3f}", ratio <= SLOWER_MAX))
    promise = "auto at most 2 % larger than zstd"
    report.verdicts.append(Verdict(promise, f"{largest:.3f}", largest <= LARGER_MAX))
    kept = [cost <= max(CHOOSING_SECONDS, CHOOSING_PART * write) for cost, write in costs]
    typical, most = median([cost for cost, _ in costs]), max(cost for cost, _ in costs)
    promise = "choosing takes at most 30 ms of a core, or 2 % of the write"
    said = f"{sum(kept)} of {len(kept)}; median {typical * 1e3:.1f} ms, most {most * 1e3:.1f} ms"
    report.verdicts.append(Verdict(promise, said, all(kept)))
    return report


def measure(
    field: CodecField, place: Path, rounds: int
) -> tuple[dict[str, CodecReadTimes], dict[float, str], list[tuple[float, float]]]:
    """Returns each candidate's sizes and times, the names that auto chose, and its costs.

    The costs are the seconds of choosing and of the write without it, for each storage.
    """
    import bedform as bf

    store = bf.create(place / "s.zarr")
    sizes, names = {}, []
    for name, codecs in candidates(field.values.itemsize).items():
        store.create_array(name, data=field.values, chunks=field.chunks, codecs=codecs)
        names.append(name)
        sizes[name] = bytes_below(place / "s.zarr" / name)
    taken, costs = {}, []
    for rate, _ in STORAGES:
        opened = bf.open(place / "s.zarr", mode="r+", profile=profile(rate))
        auto = create(opened, field, "auto", "auto")
        note = opened["auto"].info()["codec_choice"]["compared"]
        taken[rate] = note[0]["name"] if note else "zstd"
        same = create(opened, field, "same", opened["auto"].compressors)
        costs.append((max(0.0, auto - same), same))
        del opened["auto"], opened["same"]
    seconds = {
        throttle: read(place / "s.zarr", throttle, rounds, names) for _, throttle in STORAGES
    }
    stored = {
        name: CodecReadTimes(sizes[name], {throttle: of[name] for throttle, of in seconds.items()})
        for name in names
    }
    shutil.rmtree(place / "s.zarr")
    return stored, taken, costs


def create(store: Any, field: CodecField, name: str, codecs: Any) -> float:
    """Creates an array; returns the processor seconds, the least of five tries."""
    seconds = []
    for number in range(5):
        start = time.process_time()
        store.create_array(
            name, data=field.values, chunks=field.chunks, codecs=codecs, overwrite=number > 0
        )
        seconds.append(time.process_time() - start)
    return min(seconds)


def profile(rate: float) -> Any:
    """Returns the profile of a storage with this bandwidth in bytes per second."""
    import bedform as bf

    document = bf.Profile.default().to_dict()
    document["profile"] |= {"read_bytes_per_second_many": rate, "read_bytes_per_second_one": rate}
    return bf.Profile(document)


def bytes_below(directory: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def read(store: Path, throttle: str, rounds: int, names: list[str]) -> dict[str, float]:
    """Returns the median seconds of a read of each array on throttled storage."""
    command = [sys.executable, "-m", "benchmarks.harness.codec_reader", str(store)]
    environment = {**os.environ, "BEDFORM_THROTTLE": throttle}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        # The first read of a process is slower, since its processor cores are idle: rotate the
        # order.
        turned = names[number % len(names) :] + names[: number % len(names)]
        done = subprocess.run(  # noqa: S603
            [*command, *turned], env=environment, check=True, capture_output=True, text=True
        )
        for name, seconds in json.loads(done.stdout).items():
            taken[name].append(seconds)
    return {name: median(seconds) for name, seconds in taken.items()}


def _table(throttle: str) -> Table:
    columns = ["field", "zstd", "best", "auto", "size zstd", "size auto", "auto / best", "gain"]
    note = "sizes: encoded bytes for each byte of elements; gain: time of zstd / time of auto"
    return Table(f"Reads at {throttle}", columns, note=note)


def _row(
    field: CodecField,
    stored: dict[str, CodecReadTimes],
    taken: dict[float, str],
    rate: float,
    throttle: str,
) -> tuple[list[str], float]:
    allowed = {
        name: one for name, one in stored.items() if one.size <= LARGER_MAX * stored["zstd"].size
    }
    best = min(allowed, key=lambda name: allowed[name].seconds[throttle])
    auto, zstd = stored[taken[rate]], stored["zstd"]
    ratio = auto.seconds[throttle] / stored[best].seconds[throttle]

    def cell(name: str) -> str:
        return f"{name} {stored[name].seconds[throttle] * 1e3:.1f} ms"

    row = [
        field.name,
        cell("zstd"),
        cell(best),
        cell(taken[rate]),
        f"{zstd.size / field.values.nbytes:.3f}",
        f"{auto.size / field.values.nbytes:.3f}",
        f"{ratio:.3f}",
        f"{zstd.seconds[throttle] / auto.seconds[throttle]:.2f}",
    ]
    return row, ratio
