"""`other-readers`: other programs' reads of a store of Bedform, against one written by `to_zarr`.

Ten arrays, each written by `bf.write_dataset` and by xarray's `to_zarr`, both with their defaults,
and again without compression. zarr-python and TensorStore with their defaults read both: the whole
array, a map, a series, a box. Files are in the page cache, the two stores alternate, and each array
has a separate process. Bedform's own reads are listed, too. The promise is that zarr-python takes
at most twice as long; times of raw arrays and of TensorStore are only reported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.other_fields import FIELDS, Field, Selection, Values
from benchmarks.harness.report import Report, Table, Verdict, bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import Ratio, geometric_mean, median, paired_ratio
from benchmarks.harness.zarr_defaults import default_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.options import Options
    from benchmarks.harness.rounds import Samples

    Reader = Callable[[Selection], Values]

NAME = "other-readers"
READERS = ("zarr-python", "tensorstore", "bedform")
STORES = OURS, THEIRS = ("write_dataset", "to_zarr")
#: Codecs of the stores: the defaults of both, and no compression.
CODECS = ("default", "raw")
SLOWER_MAX = 2.0
#: A line of this length stops after three rounds; a fast one has at least nine.
LINE_SECONDS, QUICK_LINE_SECONDS, ROUNDS_MIN, ROUNDS_FAST = 4.0, 1.0, 3, 9


def write(root: Path, field: Field, values: Values, codecs: str) -> dict[str, Path]:
    """Write both stores; return their paths."""
    import xarray as xr

    import bedform as bf

    dataset = xr.Dataset({"v": (field.dims(), values)})
    ours, theirs = (root / f"{store}-{codecs}.zarr" for store in STORES)
    if codecs == "raw":
        bf.write_dataset(dataset, ours, codecs=[])
        dataset.to_zarr(theirs, encoding={"v": {"compressors": None}}, consolidated=False)
    else:
        bf.write_dataset(dataset, ours)
        dataset.to_zarr(theirs, consolidated=False)
    return {OURS: ours, THEIRS: theirs}


def reader(name: str, path: Path) -> Reader:
    """Opens the array; returns a function that reads a selection of it."""
    if name == "zarr-python":
        import zarr

        array: Any = zarr.open_array(path / "v", mode="r")
        return lambda selection: np.asarray(array[selection])
    if name == "tensorstore":
        import tensorstore as ts

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / 'v'}/"}}
        view = ts.open(spec, read=True).result()
        return lambda selection: np.asarray(view[selection].read().result())
    import bedform as bf

    ours = bf.open(path, cache=0)["v"]
    return lambda selection: np.asarray(ours[selection])


def layout(path: Path) -> dict[str, Any]:
    """Returns zarr-python's view of the layout, and the bytes of all files."""
    import zarr

    array: Any = zarr.open_array(path / "v", mode="r")
    files = data.files_under(path / "v")
    names = [type(codec).__name__.removesuffix("Codec") for codec in array.compressors]
    return {
        "chunks": array.chunks,
        "shards": array.shards,
        "codecs": " + ".join(names) or "none",
        "bytes": sum(file.stat().st_size for file in files),
    }


def worker(name: str, root: str, rounds: int, is_quick: bool) -> dict[str, Any]:
    """Write and read one array; return layouts and seconds."""
    field = next(one for one in FIELDS if one.name == name)
    field = field.shortened() if is_quick else field
    values, found = field.values(), {}
    for codecs in CODECS:
        paths = write(Path(root), field, values, codecs)
        os.sync()
        lines: dict[str, Samples] = {}
        for one in READERS:
            readers = {store: reader(one, path) for store, path in paths.items()}
            for what, selection in field.reads().items():
                limit = QUICK_LINE_SECONDS if is_quick else LINE_SECONDS
                lines[f"{one}/{what}"] = compare(readers, selection, values, rounds, limit)
        layouts = {store: layout(path) for store, path in paths.items()}
        chunks = default_chunks(field.shape, values.itemsize)
        if tuple(layouts[THEIRS]["chunks"]) != chunks:
            raise ValueError(f"to_zarr takes {layouts[THEIRS]['chunks']}, not {chunks}")
        found[codecs] = {"layouts": layouts, "lines": lines}
    return {"shape": field.shape, "dtype": field.dtype, "codecs": found}


def compare(
    readers: dict[str, Reader], selection: Selection, values: Values, rounds: int, limit: float
) -> Samples:
    """Return the seconds of a read of both stores, in turn."""
    wanted, slowest = values[selection], 0.0
    for store, read in readers.items():
        began = time.perf_counter()
        if not np.array_equal(read(selection), wanted):
            raise ValueError(f"wrong values of {selection} in the store of {store}")
        slowest += time.perf_counter() - began

    def run(store: str) -> float:
        began = time.perf_counter()
        readers[store](selection)
        return time.perf_counter() - began

    affordable = max(ROUNDS_MIN, int(limit / slowest))
    return interleave(list(readers), min(max(rounds, ROUNDS_FAST), affordable), run)


def run(options: Options) -> Report:
    """Measure all arrays."""
    limit = QUICK_LINE_SECONDS if options.quick else LINE_SECONDS
    most = max(options.rounds, ROUNDS_FAST)
    rounds = f"{most}, fewer where they take more than {limit:.0f} s, {ROUNDS_MIN} at least"
    lines = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": rounds, **lines})
    layouts = Table("Layouts", ["array", "shape", "store", "chunks", "shards", "codecs", "size"])
    tables = {codecs: _table(codecs) for codecs in CODECS}
    ratios: dict[tuple[str, str], dict[str, Ratio]] = {}
    for field in FIELDS:
        if not options.wants(field.name):
            continue
        measured = _measure(field, options)
        for codecs, found in measured["codecs"].items():
            layouts.rows += _layout_rows(field, measured, found["layouts"], codecs)
            for what in field.reads():
                row = [f"{field.name}: {what}"]
                for one in READERS:
                    samples = found["lines"][f"{one}/{what}"]
                    ratio = paired_ratio(samples[OURS], samples[THEIRS])
                    ratios.setdefault((codecs, one), {})[f"{field.name}: {what}"] = ratio
                    row += [milliseconds(median(samples[store])) for store in STORES]
                    row.append(_cell(ratio, is_promised=(codecs, one) == (CODECS[0], READERS[0])))
                    report.samples[f"{field.name}: {what}, {codecs}, {one}"] = samples
                tables[codecs].rows.append(row)
    report.tables = [layouts, *tables.values(), _summary(ratios)]
    report.verdicts = [_verdict(ratios.get((CODECS[0], READERS[0]), {}))]
    return report


def _measure(field: Field, options: Options) -> dict[str, Any]:
    """Run the worker of an array."""
    data.ROOT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.ROOT) as root:
        words = [field.name, root, str(options.rounds), str(int(options.quick))]
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "benchmarks.other_readers", *words],
            cwd=data.ROOT.parent,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _table(codecs: str) -> Table:
    """Returns an empty table: for each reader the times of both stores, and the ratio."""
    columns = ["read"]
    for one in READERS:
        columns += [f"{one}: {OURS}", THEIRS, "ratio"]
    title = "Milliseconds, stores as they are by default"
    if codecs == "raw":
        title = "Milliseconds, stores without compression"
    return Table(title, columns, note="ratio: our store over that of to_zarr, round by round")


def _cell(ratio: Ratio, is_promised: bool) -> str:
    """Returns a ratio, marked if it breaks the promise."""
    return ratio.describe() + (" LOSS" if is_promised and ratio.median > SLOWER_MAX else "")


def _layout_rows(
    field: Field, measured: dict[str, Any], layouts: dict[str, dict[str, Any]], codecs: str
) -> list[list[str]]:
    """Return a row for each store of an array."""

    def words(shape: list[int] | None) -> str:
        return "x".join(map(str, shape)) if shape else "-"

    return [
        [
            field.name,
            f"{words(measured['shape'])} {measured['dtype']}",
            f"{store}, {codecs}",
            words(one["chunks"]),
            words(one["shards"]),
            one["codecs"],
            bytes_in_words(one["bytes"]),
        ]
        for store, one in layouts.items()
    ]


def _summary(ratios: dict[tuple[str, str], dict[str, Ratio]]) -> Table:
    """Returns the summary of all lines: geometric mean, worst, number within the promise."""
    columns = ["stores", "reader", "mean ratio", "worst", "of", f"within {SLOWER_MAX:.0f}"]
    table = Table("All reads", columns)
    for (codecs, one), lines in ratios.items():
        worst = max(lines, key=lambda line: lines[line].median)
        within = sum(ratio.median <= SLOWER_MAX for ratio in lines.values())
        mean = geometric_mean([ratio.median for ratio in lines.values()])
        cells = [codecs, one, f"{mean:.2f}", f"{lines[worst].median:.2f}", worst]
        table.rows.append([*cells, f"{within} of {len(lines)}"])
    return table


def _verdict(lines: dict[str, Ratio]) -> Verdict:
    """Returns the promise for zarr-python, and its result."""
    promise = f"zarr-python takes at most {SLOWER_MAX:.0f} times what the store of to_zarr takes"
    if not lines:
        return Verdict(promise, "-", None)
    lost = [line for line, ratio in lines.items() if ratio.median > SLOWER_MAX]
    worst = max(lines, key=lambda line: lines[line].median)
    measured = f"{len(lost)} of {len(lines)} reads slower; worst {lines[worst].median:.1f}, {worst}"
    return Verdict(promise, measured, not lost)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, which, where, how_often, quick = sys.argv
    sys.stdout.write(json.dumps(worker(which, where, int(how_often), quick == "1")))
