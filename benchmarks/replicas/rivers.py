"""`replica-ar`: the reads of the detection of atmospheric rivers, learnt on one file for another.

Two files of one form, float64 (time, lat, lon) of a quarter of the paper's resolution, written map
after map. Programs read a sub-plane of 5, 10, 15 or 20 % of the domain at all time steps: in one
call, as the paper's processes do together, and one step after another, which waits for each. Their
reads of the first file are traced and learnt from, and the second one is optimized by them
(`like=`; without it by a trace of its own). It is read cold, opened and closed, from the disk and
from a slow store.

*Z order* is the case without extra space: instead of the file, a store of the same elements is
read, uncompressed, with its chunks in Z order.

Section 3.3.3 of the paper: 1.5 to 1.7 times faster by replicas, 1.1 to 1.2 in Z order.
"""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import PEERS, WHOLE_ROWS, WITHOUT, read_whole_rows
from benchmarks.replicas.trials import (
    ORDERED,
    Line,
    ReplicaTrial,
    Subject,
    faster,
    forget_replicas,
    heads,
    in_process,
    job_of,
    keep_profile,
    row,
    sidecar_bytes,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Values

NAME = "replica-ar"
BUDGET = "60%"
SHARES = (0.05, 0.10, 0.15, 0.20)
FASTER_MIN, ORDER_FASTER_MIN = 1.7, 1.2
#: Steps of a map's chunk, rows and columns; a shard has all of a map.
CHUNK, SHARD_STEPS = (1, 48, 48), 32
#: Number of traced reads of each share: of single time steps, and of all steps.
TRACED, TRACED_TOGETHER = 40, 10
TOGETHER, IN_TURN = "all steps", "steps in turn"
IN_TURN_SHARES = (0.05, 0.20)


def field_of(is_quick: bool, seed: int) -> Field:
    """Return the variable of one of the two files."""
    return Field(
        "iwv", ("time", "lat", "lon"), (16 if is_quick else 128, 384, 576), "float64", seed
    )


def sub_plane(of: Field, share: float) -> tuple[slice, slice]:
    """Returns rows and columns of a share of the domain, around a fixed place."""
    _, rows, columns = of.shape
    height, width = (round(length * share**0.5) for length in (rows, columns))
    top, left = rows // 2 - height // 2, columns * 2 // 3 - width // 2
    return slice(top, top + height), slice(left, left + width)


def reads_of(of: Field, share: float, is_together: bool) -> list[Selection]:
    """Returns the reads of all time steps: one read of all, or one per step."""
    steps = range(of.shape[0])
    return [(one, *sub_plane(of, share)) for one in ([slice(None)] if is_together else steps)]


def lines_of(of: Field, ordered: Path, is_quick: bool) -> dict[str, Line]:
    """Return the lines."""
    lines = {}
    for share in SHARES[:: len(SHARES) - 1] if is_quick else SHARES:
        for name in (TOGETHER, IN_TURN):
            if name == IN_TURN and share not in IN_TURN_SHARES:
                continue
            reads = reads_of(of, share, name == TOGETHER)
            line = f"{name}/{share:.0%}"
            others = {ORDERED: partial(read_ordered, ordered), WHOLE_ROWS: read_whole_rows}
            lines[line] = Line(line, [reads], others)
    return lines


def read_ordered(store: Path, path: Path, name: Names, selections: list[Selection]) -> Values:
    """Reads the store that replaces the file `path`."""
    with bf.open(store / path.stem) as opened:
        array: Any = opened[name]
        return [array[selection] for selection in selections]


def optimized(first: Subject[Field], second: Subject[Field]) -> dict[str, Any]:
    """Traces and learns, optimizes the second file; returns the decisions."""
    knows_like = "like" in inspect.signature(bf.optimize).parameters
    for one in (first, second):
        forget_replicas(one.path)
    read = first if knows_like else second
    selections = []
    for share in SHARES:
        selections += reads_of(read.of, share, is_together=False)[:TRACED]
        selections += reads_of(read.of, share, is_together=True) * TRACED_TOGETHER
    trace(read.path, read.of.name, selections)
    like: dict[str, Any] = {"like": first.path} if knows_like else {}
    done = bf.optimize(second.path, BUDGET, **like)
    return {
        "learnt": "on the first file" if knows_like else "on the second file itself",
        "replicas": [f"{one['shape']} in {one['chunks']}" for one in done.plan["make"]],
        "share": sidecar_bytes(second.path) / second.path.stat().st_size,
    }


def reorder(file: Subject[Field], ordered: Path) -> None:
    """Writes the store in Z order, as large as the file."""
    target = ordered / file.path.stem
    data.remove(target)
    ordered.mkdir(exist_ok=True)
    shards = (min(SHARD_STEPS, file.of.shape[0]), *file.of.shape[1:])
    layout = bf.Regular(chunks=CHUNK, shards=shards, order="z")
    bf.convert(file.path, target, layout=layout, codecs=[])


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines of a place, in a separate process."""
    for module in ("h5py", "netCDF4", "xarray"):
        importlib.import_module(module)
    is_slow = job["place"] != "disk"
    place = data.ROOT / NAME
    ordered = place / "ordered"
    fields = [field_of(job["quick"], seed) for seed in (1, 2)]
    first, second = (
        Subject(data.ensure(place / f"{of.shape[0]}-{of.seed}.nc", of.write), of) for of in fields
    )
    small = Field("iwv", ("time", "lat", "lon"), (8, 96, 144), "f8")
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    if is_slow:
        keep_profile(place)
    decided = optimized(first, second)
    optimized(little, little)
    for one in (second, little):
        reorder(one, ordered)
    trial = ReplicaTrial(
        second, little, lines_of(small, ordered, job["quick"]), is_slow, (ordered,)
    )
    lines = {
        f"{job['place']}/{name}": trial.compare(line, job["rounds"])
        for name, line in lines_of(second.of, ordered, job["quick"]).items()
        if name in job["lines"]
    }
    for one in (first, second, little):
        forget_replicas(one.path)
    data.remove(ordered)
    return {"decided": decided, "lines": lines}


def run(options: Options) -> Report:
    """Runs the requested lines."""
    of = field_of(options.quick, 1)
    named = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": str(max(options.rounds, 3)), **named})
    report.settings |= {
        "files": f"2 of {'x'.join(map(str, of.shape))} {of.dtype}, {bytes_in_words(of.byte_count)}",
        "slow store": THROTTLES["slow store"],
    }
    readers = [*PEERS, WHOLE_ROWS, ORDERED]
    table = Table("Cold: open, read all steps, close; milliseconds", heads(readers))
    quick = Promise(f"{TOGETHER}: at least {FASTER_MIN} times faster")
    order = Promise(f"{TOGETHER}, in Z order: at least {ORDER_FASTER_MIN} times faster")
    for place in THROTTLES:
        wanted = [
            name
            for name in lines_of(of, data.ROOT, options.quick)
            if options.wants(f"{place}/{name}")
        ]
        if not wanted:
            continue
        found = in_process("rivers", {**job_of(options, place), "lines": wanted}, place)
        decided = found["decided"]
        report.settings["reads learnt"] = decided["learnt"]
        replicas = "; ".join(decided["replicas"])
        report.settings[f"replicas, {place}"] = f"{replicas}, {decided['share']:.1%} of the file"
        report.samples |= found["lines"]
        for name, line in found["lines"].items():
            table.rows.append(row(name, line, readers))
            if f"/{TOGETHER}/" in name:
                ratio, ordered = faster(line), faster(line, ORDERED)
                quick.add(name, ratio.median >= FASTER_MIN, ratio.describe())
                order.add(name, ordered.median >= ORDER_FASTER_MIN, ordered.describe())
    table.note = f"`{WITHOUT}` reads the file; requests and bytes are those of all steps."
    conclude(report, table, [quick, order])
    return report
