"""`replica-msi`: an image of mass spectra, read along all its axes, with one budget.

A cube (x, y, m/z) of float32, contiguous in that order. Three patterns alternate: 25 slices in a
range of m/z of interest, 3 by 3 spectra, subvolumes of 20 by 20 spectra. Their reads are traced and
learnt; `optimize` has one budget of 50 %. Then each pattern is read at other places, cold, opened
and closed each time, from the disk and from a slow store.

Section 3.3.4 of the paper: slices 1.5 to 8 times faster, spectra 1.4.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import PEERS, WHOLE_ROWS, read_whole_rows
from benchmarks.replicas.trials import (
    Line,
    ReplicaTrial,
    Subject,
    faster,
    forget_replicas,
    heads,
    in_process,
    is_slower,
    job_of,
    keep_profile,
    row,
    sidecar_bytes,
    trace,
)

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection

NAME = "replica-msi"
BUDGET = "50%"
FASTER_MIN = 8.0
PATTERNS = ("slices", "spectra", "subvolumes")
SLICES = 25
#: Of the axis m/z: the range of interest, and the length of a subvolume (10,000 of 133,092).
LOOKED_AT, LENGTH = (0.25, 0.55), 0.075
TRACED, SAMPLED = 60, 3


def field_of(is_quick: bool) -> Field:
    """Return the cube."""
    shape = (48, 64, 2048) if is_quick else (128, 160, 8192)
    return Field("intensity", ("x", "y", "mz"), shape, "float32")


def reads_of(of: Field, pattern: str, count: int, seed: int) -> list[Selection]:
    """Return reads of a pattern at random places."""
    random = np.random.default_rng(seed)
    lengths: list[int] = list(of.shape)
    low, high = 0, of.shape[2]
    if pattern != "spectra":
        low, high = (int(share * of.shape[2]) for share in LOOKED_AT)
        lengths[2] = SLICES if pattern == "slices" else int(LENGTH * of.shape[2])
    if pattern != "slices":
        lengths[:2] = (3, 3) if pattern == "spectra" else (20, 20)
    ranges = [(0, of.shape[0]), (0, of.shape[1]), (low, high)]
    found = []
    for _ in range(count):
        starts = [
            int(random.integers(first, end - length + 1))
            for (first, end), length in zip(ranges, lengths, strict=True)
        ]
        found.append(tuple(slice(at, at + n) for at, n in zip(starts, lengths, strict=True)))
    return found


def lines_of(of: Field, count: int) -> dict[str, Line]:
    """Return a line for each pattern."""
    return {
        pattern: Line(
            pattern,
            [[one] for one in reads_of(of, pattern, count, 2)],
            {WHOLE_ROWS: read_whole_rows},
        )
        for pattern in PATTERNS
    }


def optimized(file: Subject[Field]) -> dict[str, Any]:
    """Traces, learns and optimizes; returns the decisions."""
    forget_replicas(file.path)
    turns = zip(*(reads_of(file.of, pattern, TRACED, 1) for pattern in PATTERNS), strict=True)
    trace(file.path, file.of.name, [one for turn in turns for one in turn])
    done = bf.optimize(file.path, BUDGET)
    return {
        "replicas": [f"{one['shape']} in {one['chunks']}" for one in done.plan["make"]],
        "share": sidecar_bytes(file.path) / file.path.stat().st_size,
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines of a place, in a separate process."""
    for module in ("h5py", "netCDF4", "xarray"):
        importlib.import_module(module)
    is_slow = job["place"] != "disk"
    of, small = field_of(job["quick"]), Field("intensity", ("x", "y", "mz"), (24, 24, 512), "f4")
    place = data.ROOT / NAME
    file = Subject(data.ensure(place / f"{of.shape[0]}.nc", of.write), of)
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    if is_slow:
        keep_profile(place)
    decided = optimized(file)
    optimized(little)
    trial = ReplicaTrial(file, little, lines_of(small, 1), is_slow)
    lines = {
        f"{job['place']}/{name}": trial.compare(line, job["rounds"])
        for name, line in lines_of(of, SAMPLED).items()
        if name in job["lines"]
    }
    for one in (file, little):
        forget_replicas(one.path)
    return {"decided": decided, "lines": lines}


def run(options: Options) -> Report:
    """Runs the requested lines."""
    of = field_of(options.quick)
    named = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": str(max(options.rounds, 3)), **named})
    report.settings |= {
        "file": f"{'x'.join(map(str, of.shape))} {of.dtype}, {bytes_in_words(of.byte_count)}",
        "budget": BUDGET,
        "slow store": THROTTLES["slow store"],
    }
    readers = [*PEERS, WHOLE_ROWS]
    table = Table("Cold: open, read, close; milliseconds", heads(readers))
    quick = Promise(f"slices: at least {FASTER_MIN:.0f} times faster")
    none = Promise("no pattern slower")
    small = Promise(f"replicas with all their metadata at most {BUDGET} of the file")
    for place in THROTTLES:
        wanted = [name for name in PATTERNS if options.wants(f"{place}/{name}")]
        if not wanted:
            continue
        found = in_process("images", {**job_of(options, place), "lines": wanted}, place)
        report.settings[f"replicas, {place}"] = "; ".join(found["decided"]["replicas"])
        share = found["decided"]["share"]
        small.add(place, share <= float(BUDGET.rstrip("%")) / 100, f"{share:.1%}")
        report.samples |= found["lines"]
        for name, line in found["lines"].items():
            table.rows.append(row(name, line, readers))
            ratio = faster(line)
            none.add(name, not is_slower(ratio), ratio.describe())
            if name.endswith("/slices"):
                quick.add(name, ratio.median >= FASTER_MIN, ratio.describe())
    conclude(report, table, [quick, none, small])
    return report
