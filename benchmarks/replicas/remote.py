"""`replica-remote`: series of a file on a web server, with a replica on this machine.

A float32 variable (time, lat, lon), contiguous, with 30 ms per request and 200 MB/s per stream. The
sidecar is local (`BEDFORM_SIDECAR`), with a replica of series of a quarter of the domain. Each
sample opens the file in a new process and reads one series; opening and reading are measured
separately. h5py reads over fsspec (`readahead`, 4 MiB), in a third of the rounds.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.slow_files import SECONDS, slow_files
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import OURS, WITHOUT
from benchmarks.replicas.trials import in_process, job_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection

NAME = "replica-remote"
BYTES_PER_SECOND = 200e6
FASTER_MIN = 50.0
BUDGET = "30%"
FSSPEC = "h5py, fsspec"
BLOCK_BYTES = 4 << 20
PEER_MODULES = ("h5py", "fsspec", "aiohttp")
PARTS = {"series": 1, "opening and series": 0}


def field_of(is_quick: bool) -> Field:
    """Return the variable."""
    shape = (400, 128, 128) if is_quick else (2000, 128, 128)
    return Field("t", ("time", "lat", "lon"), shape, "float32")


def hot_region(of: Field) -> dict[str, tuple[int, int]]:
    """Returns the region of the series: a quarter of the domain."""
    return {
        name: (length // 4, length * 3 // 4)
        for name, length in zip(of.dims[1:], of.shape[1:], strict=True)
    }


def peers() -> list[str]:
    """Returns the peers with installed packages; fsspec needs another one for web servers."""
    return [FSSPEC] if all(map(importlib.util.find_spec, PEER_MODULES)) else []


def series_of(of: Field, count: int) -> list[Selection]:
    """Return series in the hot region."""
    random = np.random.default_rng(4)
    ends = hot_region(of).values()
    return [(slice(None), *(int(random.integers(*end)) for end in ends)) for _ in range(count)]


def read_bedform(url: str, name: str, selection: Selection, replicas: bool) -> tuple[Any, float]:
    """Opens and reads; returns the values, and the time when the file was open."""
    with bf.open(url, replicas=replicas, cache=0) as store:
        array = store[name]
        opened = time.perf_counter()
        return array[selection], opened


def read_fsspec(url: str, name: str, selection: Selection) -> tuple[Any, float]:
    """Open and read by h5py over fsspec."""
    import fsspec
    import h5py

    how = {"cache_type": "readahead", "block_size": BLOCK_BYTES}
    with (
        fsspec.filesystem("http", skip_instance_cache=True).open(url, **how) as remote,
        h5py.File(remote, "r") as file,
    ):
        array: Any = file[name]
        opened = time.perf_counter()
        return array[selection], opened


READERS: dict[str, Callable[[str, str, Selection], tuple[Any, float]]] = {
    OURS: lambda url, name, selection: read_bedform(url, name, selection, replicas=True),
    WITHOUT: lambda url, name, selection: read_bedform(url, name, selection, replicas=False),
    FSSPEC: read_fsspec,
}


def timed(reader: str, urls: tuple[str, str], of: Field, small: Field, at: int) -> list[float]:
    """Reads a series of the small file, then of the file; returns seconds with and without opening.

    The small file loads the code, as everywhere; here the child itself reads it, since threads of
    the HTTP client do not exist in a forked child.
    """
    little, file = urls
    READERS[reader](little, small.name, series_of(small, 1)[0])
    selection = series_of(of, at + 1)[at]
    began = time.perf_counter()
    values, opened = READERS[reader](file, of.name, selection)
    ended = time.perf_counter()
    if not np.array_equal(values, of.of(selection)):
        raise RuntimeError(f"wrong values of {selection}")
    return [ended - began, ended - opened]


def optimize(url: str, of: Field) -> int:
    """Makes the replica; returns the number of replicas."""
    region = hot_region(of)
    return len(bf.optimize(url, BUDGET, reads={of.dims[0]: 1}, region=region).made)


def explained(url: str, of: Field, replicas: bool) -> dict[str, Any]:
    """Return requests and bytes of a series."""
    with bf.open(url, replicas=replicas) as store:
        plan = store[of.name].explain(series_of(of, 1)[0]).to_dict()
    return {name: plan[name] for name in ("requests", "bytes")}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines, in a separate process."""
    readers = [OURS, WITHOUT, *peers()]
    for module in PEER_MODULES if peers() else ():
        importlib.import_module(module)
    of, small = field_of(job["quick"]), Field("t", ("time", "lat", "lon"), (50, 32, 32), "f4")
    place = data.ROOT / NAME
    names = f"{of.shape[0]}.nc", "little.nc"
    for name, one in zip(names, (of, small), strict=True):
        data.ensure(place / name, one.write)
    with slow_files(place, BYTES_PER_SECOND) as address:
        file, little = (f"{address}/{name}" for name in names)
        made = [in_child(optimize, url, one) for url, one in ((file, of), (little, small))]
        samples: dict[str, list[list[float]]] = {name: [] for name in readers}

        def once(reader: str) -> float:
            cold.make_cold(place)
            at = len(samples[reader])
            samples[reader].append(in_child(timed, reader, (little, file), of, small, at))
            return samples[reader][-1][0]

        interleave([OURS, WITHOUT], job["rounds"], once)
        interleave(peers(), max(1, job["rounds"] // 3), once)
        plans = {name: in_child(explained, file, of, name == OURS) for name in (OURS, WITHOUT)}
    return {"made": made[0], "samples": samples, "plans": plans}


def run(options: Options) -> Report:
    """Measure, with the sidecars in a directory of this machine."""
    of, sidecars = field_of(options.quick), data.ROOT / NAME / "sidecars"
    data.remove(sidecars)
    sidecars.mkdir(parents=True)
    found = in_process("remote", job_of(options), BEDFORM_SIDECAR=str(sidecars))
    data.remove(sidecars)
    report = Report(NAME, options.command, {"rounds": str(max(options.rounds, 3))})
    report.settings |= {
        "file": f"{'x'.join(map(str, of.shape))} {of.dtype}, {bytes_in_words(of.byte_count)}",
        "server": f"{SECONDS * 1e3:.0f} ms, {BYTES_PER_SECOND / 1e6:.0f} MB/s a stream",
        "replicas": str(found["made"]),
    }
    if not peers():
        report.settings["not run"] = f"{FSSPEC}, for want of one of {', '.join(PEER_MODULES)}"
    report.samples = found["samples"]
    table = Table(
        "One series of a file at a URL; milliseconds",
        ["line", OURS, WITHOUT, *peers(), f"times faster than {WITHOUT}", "requests", "bytes"],
    )
    promise = Promise(f"the first series after opening: at least {FASTER_MIN:.0f} times faster")
    ours, without = (found["plans"][name] for name in (OURS, WITHOUT))
    asked = [
        f"{ours['requests']} of {without['requests']}",
        f"{bytes_in_words(ours['bytes'])} of {bytes_in_words(without['bytes'])}",
    ]
    for line, part in PARTS.items():
        seconds = {name: [one[part] for one in taken] for name, taken in report.samples.items()}
        ratio = paired_ratio(seconds[WITHOUT], seconds[OURS])
        shown = [milliseconds(median(seconds[name])) for name in seconds]
        table.rows.append([line, *shown, ratio.describe(), *asked])
        if line == "series":
            promise.add(line, ratio.median >= FASTER_MIN, ratio.describe())
    conclude(report, table, [promise])
    return report
