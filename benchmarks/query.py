"""`query`: questions about values, with an index and without, against peers that prepare as well.

Three fields of 1 GiB in float64, two shapes each (`queries/fields.py`): smooth, rough, real.
*Values alone*: 0.01 to 10 % of all elements, around the median or in the upper tail, counted and
read. *Region*: the upper 5 % in a box of 1 % of the array. There two more readers read the box from
stores whose chunks are small cubes, and NumPy filters. Bedform asks a store with its default layout
and codecs, with an index and without ("scan").

The peers are NumPy on a memory map, xarray with Dask, zarr-python, DuckDB on Parquet sorted by
value, TileDB dense with a query condition, and xarray-sql; each with its own copy and its fastest
way. All answers are cold, opening included, and checked. The bytes and seconds of copies and
indexes are tables of their own. Lines `days/*` ask a NetCDF-4 file (`queries/days.py`).
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words, milliseconds
from benchmarks.harness.statistics import Ratio, median, paired_ratio
from benchmarks.queries import cases, days, fields, indexes
from benchmarks.queries.readers import OURS, PLAIN, READERS, SCAN, TABLE
from benchmarks.queries.trials import in_process, queries_to_pay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "query"
SCAN_MAX, TAIL_MIN, BOX_MIN, DAYS_MIN, AHEAD = 1.03, 20.0, 3.0, 20.0, 1.0
#: The largest shares of an index of the bytes of float64, by level and field.
SHARES = {("ranges", name): 0.001 for name in fields.FIELDS}
SHARES |= {("20 bins", "rough"): 0.105, ("20 bins", "smooth"): 0.05}
BUILD_MIN, WRITING_MAX = 400e6, 1.15
#: The line by which preparations are said to pay.
PAYING = f"{cases.name_of(0.1)}/count"
WHOLE = [one.name for one in READERS if not one.is_for_boxes and one.name not in (OURS, SCAN)]
BOXED = [one.name for one in READERS if one.is_for_boxes]
BLOCKS = "Blocks: the ones that the plan reads, the ones with matches, all of the question."
#: The copy that is sorted.
SORTED = next(one.copy for one in READERS if one.name == TABLE)
PACKAGES = (
    "numpy",
    "xarray",
    "dask",
    "zarr",
    "zarrs",
    "tensorstore",
    "duckdb",
    "tiledb",
    "xarray_sql",
)


class Promises:
    """The promises of the benchmark."""

    def __init__(self) -> None:
        self.scan = Promise(f"values alone: at most {SCAN_MAX} times as long as a scan")
        self.tail = Promise(f"0.1 % of the smooth field: at least {TAIL_MIN:.0f} times a scan")
        self.box = Promise(
            f"region of the smooth field: {BOX_MIN:.0f} times reading it and filtering"
        )
        self.peers = {name: Promise(f"ahead of {name}") for name in WHOLE}
        self.size = Promise("bytes of the index")
        self.build = Promise(f"building: at least {BUILD_MIN / 1e6:.0f} MB/s")
        self.writing = Promise(f"while writing: at most {WRITING_MAX} times as long")
        self.days = Promise(f"hot days of a NetCDF-4 file: {DAYS_MIN:.0f} times {days.PEER}")

    def all(self) -> list[Promise]:
        """Return them in the order of the report."""
        ends = [self.size, self.build, self.writing, self.days]
        return [self.scan, self.tail, self.box, *self.peers.values(), *ends]


def faster(samples: Mapping[str, list[float]], name: str, than: str) -> Ratio:
    """Returns the time of one reader over that of another, round by round.

    A reader that answered once is compared with the median.
    """
    ours, theirs = samples[name], samples[than]
    if len(theirs) < len(ours):
        theirs = [median(theirs)] * len(ours)
    return paired_ratio(theirs, ours)


def fastest(samples: Mapping[str, list[float]], among: list[str]) -> str | None:
    """Return the fastest of the readers that answered."""
    return min(
        (one for one in among if one in samples), key=lambda one: median(samples[one]), default=None
    )


def ours_of(samples: Mapping[str, Any]) -> str:
    """Return the reader with an index, or without in a build that makes none."""
    return OURS if OURS in samples else SCAN


def cell(samples: Mapping[str, list[float]], name: str, most: int) -> str:
    """Returns the median of a reader in milliseconds."""
    if name not in samples:
        return "-"
    return milliseconds(median(samples[name])) + (" once" if len(samples[name]) < most else "")


def row(line: str, found: dict[str, Any], peers: list[str]) -> list[str]:
    """Returns the row of a line."""
    samples = found["seconds"]
    ours = ours_of(samples)
    most = len(samples[ours])
    cells = [line, str(found["matches"]), blocks(found)]
    cells += [cell(samples, name, most) for name in (OURS, SCAN, *peers)]
    best = fastest(samples, peers)
    cells.append(marked(faster(samples, ours, SCAN), 1 / SCAN_MAX) if ours == OURS else "-")
    cells.append(f"{marked(faster(samples, ours, best), AHEAD)} {best}" if best else "-")
    return cells


def marked(ratio: Ratio, least: float) -> str:
    """Returns how many times as fast, and whether that is a loss."""
    return ratio.describe() + ("" if ratio.median >= least else " LOSS")


def blocks(found: dict[str, Any]) -> str:
    """Returns the blocks that the plan reads, those with matches, and those of the question."""
    plan = found.get("plan")
    if plan is None:
        return "-"
    inside = plan["blocks"] - plan["blocks_outside"]
    return f"{plan['blocks_read']} / {found['matching_blocks']} / {inside}"


def processor_row(line: str, found: dict[str, Any]) -> list[str]:
    """Returns the processor's seconds of each reader of a line, in milliseconds."""
    times = found["processor"]
    names = (OURS, SCAN, *WHOLE, *BOXED)
    return [line, *(milliseconds(median(times[name])) if name in times else "-" for name in names)]


def heads(peers: list[str]) -> list[str]:
    """Return the columns of `row`."""
    ends = ["times a scan", "times the fastest peer"]
    return ["line", "matches", "blocks", OURS, SCAN, *peers, *ends]


def judge(name: str, field: str, samples: dict[str, list[float]], promises: Promises) -> None:
    """Count a line for the promises."""
    ours, line = ours_of(samples), name.split("/", 2)[2]
    for peer in WHOLE:
        if peer in samples:
            ratio = faster(samples, ours, peer)
            promises.peers[peer].add(name, ratio.median > AHEAD, ratio.describe())
    if line.startswith("region"):
        best = fastest(samples, BOXED)
        if field == "smooth" and best:
            ratio = faster(samples, ours, best)
            promises.box.add(name, ratio.median >= BOX_MIN, f"{ratio.describe()} {best}")
        return
    if ours == SCAN:
        return
    ratio = paired_ratio(samples[OURS], samples[SCAN])
    promises.scan.add(name, ratio.median <= SCAN_MAX, ratio.describe())
    if field == "smooth" and line.startswith(cases.name_of(0.1) + "/"):
        ratio = faster(samples, OURS, SCAN)
        promises.tail.add(name, ratio.median >= TAIL_MIN, ratio.describe())


def copies_rows(case: str, found: dict[str, Any], size: int) -> list[list[str]]:
    """Returns the rows of the copies: bytes, seconds, and the queries until they have paid."""
    samples = found["lines"].get(PAYING, {}).get("seconds", {})
    rows = []
    for name, copy in found["copies"].items():
        pays = "-"
        if name == SORTED and copy["seconds"] and TABLE in samples:
            count = queries_to_pay(copy["seconds"], samples[PLAIN], samples[TABLE])
            pays = f"{count:.1f}" if count is not None else "never"
        seconds = f"{copy['seconds']:.1f}" if copy["seconds"] else "-"
        words = [bytes_in_words(copy["bytes"]), f"{copy['bytes'] / size:.0%}", seconds, pays]
        rows.append([case, name, "; ".join(copy["readers"]), *words])
    return rows


def index_rows(case: str, found: dict[str, Any], size: int, promises: Promises) -> list[list[str]]:
    """Returns the rows of the index: bytes, rate of building, and the queries until it has paid."""
    field = case.split("/")[1]
    samples = found["lines"].get(PAYING, {}).get("seconds", {})
    rows = []
    for dtype, levels, raw in (
        ("float64", found["index"], size),
        ("float32", found["float32"], size // 2),
    ):
        for level, made in levels.items():
            share, rate = made["bytes"] / raw, raw / made["seconds"]
            pays = "-"
            if dtype == "float64":
                limit = SHARES.get((level, field))
                if limit is not None:
                    promises.size.add(f"{case}/{level}", share <= limit, f"{share:.2%}")
                promises.build.add(f"{case}/{level}", rate >= BUILD_MIN, f"{rate / 1e6:.0f} MB/s")
                if OURS in samples:
                    count = queries_to_pay(made["seconds"], samples[SCAN], samples[OURS])
                    pays = f"{count:.1f}" if count is not None else "never"
            words = [bytes_in_words(made["bytes"]), f"{share:.2%}", f"{rate / 1e6:.0f}", pays]
            rows.append([case, dtype, level, *words])
    return rows


def add_case(
    report: Report,
    options: Options,
    case: str,
    shape: tuple[int, ...],
    tables: list[Table],
    promises: Promises,
) -> None:
    """Measures one field of one shape, and adds its rows."""
    field = case.split("/")[1]
    lines = [line for line in cases.names(options.quick) if options.wants(f"{case}/{line}")]
    if not lines:
        return
    place = data.ROOT / NAME / case.replace("/", "-")
    job = {**job_of(options, place, lines), "shape": shape, "field": field}
    found = in_process("cases", job)
    finish(place, options)
    size = 8
    for length in shape:
        size *= length
    report.samples[case] = found
    for line, result in found["lines"].items():
        name = f"{case}/{line}"
        table, peers = (tables[1], WHOLE + BOXED) if "region" in line else (tables[0], WHOLE)
        table.rows.append(row(name, result, peers))
        tables[4].rows.append(processor_row(name, result))
        judge(name, field, result["seconds"], promises)
    tables[2].rows += copies_rows(case, found, size)
    tables[3].rows += index_rows(case, found, size, promises)
    if found["writing"]:
        ratio = paired_ratio(found["writing"]["indexed"], found["writing"]["plain"])
        promises.writing.add(f"{case}/writing", ratio.median <= WRITING_MAX, ratio.describe())


def job_of(options: Options, place: Path, lines: list[str]) -> dict[str, Any]:
    """Return the description of a process's work."""
    return {
        "place": str(place),
        "lines": lines,
        "rounds": options.rounds,
        "tries": 1 if options.quick else 2,
        "quick": options.quick,
        "edge": options.size,
    }


def finish(place: Path, options: Options) -> None:
    """Remove the copies, unless the run keeps them."""
    if not options.keep:
        data.remove(place)


def add_days(report: Report, options: Options, promises: Promises) -> None:
    """Measures the lines of the NetCDF-4 file."""
    lines = [line for line in days.LINES if options.wants(line)]
    if not lines:
        return
    lacks = [name for name in ("netCDF4", "h5py") if find_spec(name) is None]
    if lacks:
        report.settings["days"] = f"left out, without {' and '.join(lacks)}"
        return
    place = data.ROOT / NAME / f"days-{days.sizes_of(options.size, options.quick)[1]}"
    found = in_process("days", job_of(options, place, lines))
    finish(place, options)
    report.samples["days"] = found
    shape = "x".join(map(str, found["shape"]))
    title = (
        f"Hot days in a region of a NetCDF-4 file, {shape} int16, {bytes_in_words(found['bytes'])}"
        " on the disk, cold; milliseconds"
    )
    table = Table(title, heads([days.PEER]))
    for line, result in found["lines"].items():
        table.rows.append(row(line, result, [days.PEER]))
        samples = result["seconds"]
        ratio = faster(samples, ours_of(samples), days.PEER)
        promises.days.add(line, ratio.median >= DAYS_MIN, ratio.describe())
    for level, made in found["index"].items():
        promises.build.add(
            f"days/{level}",
            found["raw_bytes"] / made["seconds"] >= BUILD_MIN,
            f"{found['raw_bytes'] / made['seconds'] / 1e6:.0f} MB/s",
        )
        share = f"{made['bytes'] / found['raw_bytes']:.2%} of the int16 values"
        table.note += (
            f"Index, {level}: {bytes_in_words(made['bytes'])}, {share}, {made['seconds']:.1f} s. "
        )
    report.tables.append(table)


def versions() -> dict[str, str]:
    """Returns the versions of the peers, and the packages that are missing."""
    found, missing = {}, []
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            missing.append(package)
    return {**found, **({"left out": ", ".join(missing)} if missing else {})}


def run(options: Options) -> Report:
    """Runs the requested lines."""
    chosen = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": str(options.rounds), **chosen, **versions()})
    if not indexes.has_index():
        report.settings["index"] = indexes.MISSING
    elif not indexes.has_bins():
        report.settings["bins"] = indexes.MISSING
    if not indexes.has_index_while_writing():
        report.settings["index while writing"] = indexes.MISSING
    promises = Promises()
    tables = [
        Table("Values alone, cold: open, ask, close; milliseconds", heads(WHOLE), note=BLOCKS),
        Table("1 % region and 5 % values, cold; milliseconds", heads(WHOLE + BOXED), note=BLOCKS),
        Table(
            "Copies: a store, table or array of the field",
            ["field", "copy", "of", "bytes", "share", "seconds", "queries until it has paid"],
            note=f"The table has paid against {PLAIN}, by the line {PAYING}.",
        ),
        Table(
            "Index",
            [
                "field",
                "type",
                "level",
                "bytes",
                "of the field",
                "MB/s",
                "queries until it has paid",
            ],
            note=f"Against a scan, by the line {PAYING}.",
        ),
        Table(
            "Time of the processor, of all threads; milliseconds",
            ["line", OURS, SCAN, *WHOLE, *BOXED],
            note="Other programs of the machine change it less than the time that passes.",
        ),
    ]
    left_out = fields.missing()
    report.settings |= left_out
    shapes = list(fields.shapes(options.size).items())
    for shape_name, shape in shapes[-1:] if options.quick else shapes:
        for field in fields.FIELDS:
            if field in left_out:
                continue
            add_case(report, options, f"{shape_name}/{field}", shape, tables, promises)
    report.tables += [table for table in tables if table.rows]
    add_days(report, options, promises)
    conclude(report, Table("", []), promises.all())
    return report
