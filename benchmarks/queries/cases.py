"""All lines of `query` about one field of one shape: its copies, its index, its questions."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.children import in_child
from benchmarks.queries import fields, indexes
from benchmarks.queries.readers import ARRAY, OURS, READERS, SCAN, Question, Reader
from benchmarks.queries.trials import (
    SIDECARS,
    Line,
    Trial,
    copy_bytes,
    import_lazily_loaded,
    link_tree,
    prepare,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.queries.fields import Shape, Values
    from benchmarks.queries.readers import Answer

#: Percent of the elements that are not missing, around the median or in the upper tail.
SELECTIVITIES = (0.01, 0.1, 1.0, 10.0)
WANTS = ("count", "values")
MIDDLE, TAIL = "middle", "tail"
BOX_SHARE, BOX_SELECTIVITY, BOXES = 0.01, 5.0, 5
LITTLE = 64
FIELD = "field.npy"
SCANNED = "scan.zarr"
SECONDS = "seconds.json"


def name_of(percent: float, where: str = TAIL) -> str:
    """Return the name of a selectivity in lines."""
    return f"{where} {percent:g} %"


def names(is_quick: bool = False) -> list[str]:
    """Returns the names of the lines of a field."""
    if is_quick:
        return [f"{name_of(0.1)}/values", f"{name_of(1, MIDDLE)}/count", "region/count", "index"]
    values = [
        f"{name_of(percent, where)}/{wants}"
        for where in (MIDDLE, TAIL)
        for percent in SELECTIVITIES
        for wants in WANTS
    ]
    return [*values, *(f"region/{wants}" for wants in WANTS), "index", "writing"]


def bounds_of(values: Values) -> dict[str, tuple[float, float | None]]:
    """Returns the ends of the ranges, by the names of lines: above the first, up to the second.

    >>> found = bounds_of(np.arange(10_000.0).reshape(10, 10, 100))
    >>> found["tail 0.1 %"], found["middle 0.1 %"]
    ((9989.0, None), (4994.0, 5004.0))
    """
    known = values[~np.isnan(values)]
    last = known.size - 1
    ranks: dict[str, tuple[int, int | None]] = {}
    for percent in (*SELECTIVITIES, BOX_SELECTIVITY):
        count = round(known.size * percent / 100)
        ranks[name_of(percent)] = (last - count, None)
        low = (last - count) // 2
        ranks[name_of(percent, MIDDLE)] = (low, low + count)
    known.partition(sorted({at for pair in ranks.values() for at in pair if at is not None}))

    def value(at: int | None) -> float | None:
        return None if at is None else float(known[at])

    return {name: (float(known[low]), value(high)) for name, (low, high) in ranks.items()}


def boxes_of(shape: Shape) -> list[tuple[tuple[int, int], ...]]:
    """Returns boxes of a hundredth of the array, at random places.

    >>> [stop - start for start, stop in boxes_of((100, 100, 100))[0]]
    [22, 22, 22]
    """
    random = np.random.default_rng(5)
    edges = [max(1, round(length * BOX_SHARE ** (1 / len(shape)))) for length in shape]
    starts = [
        [int(random.integers(length - edge + 1)) for length, edge in zip(shape, edges, strict=True)]
        for _ in range(BOXES)
    ]
    return [tuple((at, at + edge) for at, edge in zip(one, edges, strict=True)) for one in starts]


def questions_of(
    name: str, bounds: Mapping[str, tuple[float, float | None]], shape: Shape
) -> list[Question]:
    """Returns the questions of a line."""
    which, wants = name.split("/")
    if which == "region":
        bound, top = bounds[name_of(BOX_SELECTIVITY)]
        return [Question(bound, box, wants, top) for box in boxes_of(shape)]  # type: ignore[arg-type]
    bound, top = bounds[which]
    return [Question(bound, None, wants, top)]  # type: ignore[arg-type]


def answer(path: Path, question: Question) -> Answer:
    """Returns the answer by NumPy."""
    return question.of(np.load(path, mmap_mode="r")[question.slices()])


def cuts(start: int, stop: int, chunk: int) -> list[int]:
    """Returns where the blocks of a range begin, counted from the range.

    >>> cuts(3, 10, 4)
    [0, 1, 5]
    """
    return [0, *(at - start for at in range((start // chunk + 1) * chunk, stop, chunk))]


def matching_blocks(values: Values, question: Question, chunks: tuple[int, ...]) -> int:
    """Returns the number of blocks with matches: no ranges of blocks can leave out more."""
    part = values[question.slices()]
    ends = [slice_.indices(n) for slice_, n in zip(question.slices(), values.shape, strict=True)]
    first, *rest = (
        cuts(start, stop, chunk) for (start, stop, _), chunk in zip(ends, chunks, strict=True)
    )
    found = 0
    for start, stop in pairwise([*first, part.shape[0]]):
        holds = question.holds(part[start:stop]).any(axis=0)
        for axis, at in enumerate(rest):
            holds = np.logical_or.reduceat(holds, at, axis=axis)
        found += int(np.count_nonzero(holds))
    return found


def explained(path: Path, question: Question) -> dict[str, Any]:
    """Return the plan of a query, and the chunks of the array."""
    with bf.open(path) as store:
        query = store.query(question.expression(), region=question.slices())
        return {**query.explain().to_dict(), "chunks": list(store[ARRAY].chunks)}


def installed() -> dict[str, Reader]:
    """Returns the readers whose packages are there; all of them are imported."""
    found = {reader.name: reader for reader in READERS if reader.is_installed()}
    for module in sorted({reader.package for reader in found.values()}):
        importlib.import_module(module)
    for module in ("bedform", "dask.array", "pyarrow.parquet", "xarray", "zarr"):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            continue
    return found


def copies(place: Path, name: str, shape: Shape, readers: Mapping[str, Reader]) -> dict[str, float]:
    """Makes the field and its copies in a folder; returns the seconds that each took.

    They are kept beside the copies, for later runs.
    """
    values = data.ensure(place / FIELD, lambda path: in_child(fields.write, path, name, shape))
    first = dict(readers)
    first.pop(SCAN)
    # The store that has no index is the other one by another name.
    others = {key: one for key, one in first.items() if one.copy != readers[SCAN].copy}
    took = prepare(place, others, values)
    scan, ours = place / readers[SCAN].copy, place / readers[OURS].copy
    if took.get(readers[OURS].copy) or not scan.exists():
        data.remove(scan)
        link_tree(scan, ours)
    kept = place / SECONDS
    known: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    known |= took
    kept.write_text(json.dumps(known))
    return known


def copies_of(place: Path, took: Mapping[str, float]) -> dict[str, Any]:
    """Returns readers, bytes and seconds of each copy."""
    names: dict[str, list[str]] = {}
    for reader in READERS:
        names.setdefault(reader.copy, []).append(reader.name)
    return {
        copy: {"readers": those, "bytes": copy_bytes(place / copy), "seconds": took.get(copy)}
        for copy, those in names.items()
        if (place / copy).exists() and copy != SCANNED
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures the requested lines of a field."""
    place, shape, name = Path(job["place"]), tuple(job["shape"]), job["field"]
    readers, wanted = installed(), [line for line in names() if line in job["lines"]]
    asked = [line for line in wanted if "/" in line]
    if not asked:
        readers = {key: one for key, one in readers.items() if key in (OURS, SCAN)}
    little = place / "little"
    little_shape = fields.shapes(LITTLE)["64^3"]
    took = copies(place, name, shape, readers)
    copies(little, name, little_shape, readers)
    values, sidecars = place / FIELD, place / SIDECARS
    found: dict[str, Any] = {"lines": {}, "copies": {}, "index": {}, "float32": {}, "writing": {}}
    if "writing" in wanted:
        found["writing"] = indexes.while_writing(place, values)
    if "index" in wanted and indexes.has_index():
        found["float32"] = indexes.as_float32(place, values, sidecars)
    found["index"] = indexes.build_all(place / readers[OURS].copy, ARRAY, sidecars)
    if found["index"]:
        bins = max(indexes.LEVELS[level] or 0 for level in found["index"]) or None
        in_child(indexes.build, little / readers[OURS].copy, ARRAY, bins)
    else:
        readers.pop(OURS)  # Without an index the two are the same.
    found["copies"] = copies_of(place, took)
    if not asked:
        return found
    bounds, little_bounds = (
        bounds_of(np.load(at / FIELD, mmap_mode="r")) for at in (place, little)
    )
    little_questions = {line: questions_of(line, little_bounds, little_shape) for line in asked}
    import_lazily_loaded(readers, little, little_questions[asked[0]][0])
    for line in asked:
        for_line = {
            key: reader
            for key, reader in readers.items()
            if line.startswith("region") or not reader.is_for_boxes
        }
        questions = questions_of(line, bounds, shape)
        one = Line(
            line,
            questions,
            little_questions[line][0],
            partial(answer, values),
        )
        result = Trial(place, little, for_line).compare(one, job["rounds"], job["tries"])
        counted = [replace(question, wants="count") for question in questions]
        result["matches"] = sum(int(answer(values, each)) for each in counted) // len(counted)
        ours_path = place / READERS[0].copy
        result["plan"] = in_child(explained, ours_path, questions[0])
        chunks = tuple(result["plan"]["chunks"])
        result["matching_blocks"] = matching_blocks(
            np.load(values, mmap_mode="r"), questions[0], chunks
        )
        found["lines"][line] = result
    return found
