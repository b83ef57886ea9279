"""`replica-ecog`: all rows of a recording with one of some labels.

A recording (time, electrode) of float64, 64 electrodes, contiguous. Events of irregular length have
labels; a query reads the rows of labels that make up 5 to 30 % of all, as a list (`oindex`).
Replicas of listed rows are made for the queries (`selections=`). Each query is then read cold,
opened and closed, from the disk and from a slow store. h5py reads the lists, each block of rows
alone, or all rows in one pass with a mask; netCDF4 and xarray take lists.

*In one piece* is the bound: as many consecutive rows, read without replicas.

Section 3.3.5 of the paper: 2 to 6 times faster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words, milliseconds
from benchmarks.harness.slow_store import THROTTLES, as_found
from benchmarks.harness.statistics import median
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import OURS, PEERS, READERS, WITHOUT
from benchmarks.replicas.trials import (
    Line,
    ReplicaTrial,
    Subject,
    faster,
    forget_replicas,
    has_selections,
    heads,
    in_process,
    is_slower,
    job_of,
    keep_profile,
    row,
    sidecar_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Values

NAME = "replica-ecog"
BUDGET = "200%"
SHARES = (0.05, 0.10, 0.20, 0.30)
FASTER_MIN, BOUND_MIN = 6.0, 0.7
#: Rows of an event: the median, and the spread of its logarithm.
EVENT_ROWS, EVENT_SPREAD = 60, 0.8
LABELS = 100
PASS_ROWS = 1 << 17
ITS_PEERS = ("h5py, blocks", "h5py, mask")
#: For longer lists of rows the NetCDF library needs half a minute.
LISTED_MAX = 60_000


def field_of(is_quick: bool) -> Field:
    """Return the recording."""
    return Field("ecog", ("time", "electrode"), (1 << 16 if is_quick else 1 << 20, 64), "float64")


def rows_of(of: Field) -> dict[float, NDArray[np.int64]]:
    """Returns the rows of each query: those of its labels, which make up its share of all rows."""
    random = np.random.default_rng(1)
    count = of.shape[0] // EVENT_ROWS
    lengths = np.maximum(1, random.lognormal(np.log(EVENT_ROWS), EVENT_SPREAD, count)).astype(int)
    label_of_event = random.integers(0, LABELS, count)
    labels = np.repeat(label_of_event, lengths)
    labels = np.resize(labels, of.shape[0])
    ends = np.cumsum([round(share * LABELS) for share in SHARES])
    firsts = [0, *ends[:-1]]
    return {
        share: np.flatnonzero((labels >= first) & (labels < end))
        for share, first, end in zip(SHARES, firsts, ends, strict=True)
    }


def blocks_of(rows: NDArray[np.int64]) -> list[slice]:
    """Returns the runs of consecutive rows in a list.

    >>> blocks_of(np.array([1, 2, 3, 7, 9, 10]))
    [slice(1, 4, None), slice(7, 8, None), slice(9, 11, None)]
    """
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    return [
        slice(int(part[0]), int(part[-1]) + 1) for part in np.split(rows, ends) if len(part) > 0
    ]


def read_blocks(path: Path, name: Names, selections: list[Selection]) -> Values:
    """Reads each block of rows by h5py, directly to its place in the result."""
    import h5py

    found = []
    with h5py.File(as_found(path), "r") as file:
        array: Any = file[name]
        for rows, *_ in selections:
            values, at = np.empty((len(rows), array.shape[1]), array.dtype), 0
            for block in blocks_of(rows):
                end = at + block.stop - block.start
                array.read_direct(values, np.s_[block], np.s_[at:end])
                at = end
            found.append(values)
    return found


def read_masked(path: Path, name: Names, selections: list[Selection]) -> Values:
    """Reads all rows by h5py, many at a time, and keeps those of the list."""
    import h5py

    found = []
    with h5py.File(as_found(path), "r") as file:
        array: Any = file[name]
        for rows, *_ in selections:
            values, at = np.empty((len(rows), array.shape[1]), array.dtype), 0
            for first in range(0, array.shape[0], PASS_ROWS):
                inside = rows[(rows >= first) & (rows < first + PASS_ROWS)]
                part = array[first : first + PASS_ROWS]
                values[at : at + len(inside)] = part[inside - first]
                at += len(inside)
            found.append(values)
    return found


def lines_of(of: Field) -> dict[str, Line]:
    """Return a line for each query."""
    lines = {}
    for share, rows in rows_of(of).items():
        name = f"{share:.0%}"
        others = dict(zip(ITS_PEERS, (read_blocks, read_masked), strict=True))
        without = ("netCDF4", "xarray") if len(rows) > LISTED_MAX else ()
        lines[name] = Line(name, [[(rows, slice(None))]], others, without)
    return lines


def optimized(file: Subject[Field]) -> dict[str, Any]:
    """Makes replicas of the rows of all queries; returns the decisions."""
    forget_replicas(file.path)
    if not has_selections():
        return {"replicas": 0, "share": 0.0}
    selections = [(rows, slice(None)) for rows in rows_of(file.of).values()]
    done = bf.optimize(file.path, BUDGET, selections={file.of.name: selections})
    share = sidecar_bytes(file.path) / file.path.stat().st_size
    return {"replicas": len(done.made), "share": share}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines of a place, in a separate process."""
    for module in ("h5py", "netCDF4", "xarray"):
        importlib.import_module(module)
    is_slow = job["place"] != "disk"
    of, small = field_of(job["quick"]), Field("ecog", ("time", "electrode"), (1 << 13, 64), "f8")
    place = data.ROOT / NAME
    file = Subject(data.ensure(place / f"{of.shape[0]}.nc", of.write), of)
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    if is_slow:
        keep_profile(place)
    decided = optimized(file)
    optimized(little)
    trial = ReplicaTrial(file, little, lines_of(small), is_slow)
    lines = {}
    for name, line in lines_of(of).items():
        if name not in job["lines"]:
            continue
        found = trial.compare(line, job["rounds"])
        count = len(line.reads[0][0][0])
        piece = [[(slice(0, count), slice(None))]]
        found["bound"] = [
            trial.once(READERS[WITHOUT], piece[0], name) for _ in range(job["rounds"])
        ]
        lines[f"{job['place']}/{name}"] = found
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
        "events": f"{EVENT_ROWS} rows in the median, {LABELS} labels",
        "slow store": THROTTLES["slow store"],
    }
    if not has_selections():
        report.settings["without replicas"] = "this build makes none of listed rows"
    readers = [*PEERS, *ITS_PEERS]
    table = Table("Cold: open, read, close; milliseconds", [*heads(readers), "in one piece"])
    quick = Promise(f"5 % on the slow store: at least {FASTER_MIN:.0f} times faster")
    bound = Promise(f"elsewhere: at least {BOUND_MIN:.0%} of the rate of rows in one piece")
    none = Promise("no query slower")
    for place in THROTTLES:
        wanted = [f"{one:.0%}" for one in SHARES if options.wants(f"{place}/{one:.0%}")]
        if not wanted:
            continue
        found = in_process("labels", {**job_of(options, place), "lines": wanted}, place)
        decided = found["decided"]
        said = f"{decided['replicas']}, {decided['share']:.1%} of the file"
        report.settings[f"replicas, {place}"] = said
        report.samples |= found["lines"]
        for name, line in found["lines"].items():
            alone = median(line["bound"])
            table.rows.append([*row(name, line, readers), milliseconds(alone)])
            if not has_selections():
                continue
            ratio, share = faster(line), alone / median(line["samples"][OURS])
            none.add(name, not is_slower(ratio), ratio.describe())
            if name == "slow store/5%":
                quick.add(name, ratio.median >= FASTER_MIN, ratio.describe())
            else:
                bound.add(name, share >= BOUND_MIN, f"{share:.0%}")
    conclude(report, table, [quick, bound, none])
    return report
