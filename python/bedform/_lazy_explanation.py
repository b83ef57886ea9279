"""The explanation of a lazy data set of xarray: the bytes that its computation will read.

Each read is explained by the plan that it will run. Where several tasks of Dask take parts of one
chunk, the cache of decoded chunks decides. If it keeps all chunks of the computation, tasks that
run at the same time each read the chunk, and later ones find it there.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal, _json, _selection
from bedform._dask_blocks import BLOCK_BYTES_MAX, block_shape
from bedform._errors import BedformError, engine_call
from bedform._lazy_reads import LazyReads, lazy_reads
from bedform._paths import AS_GIVEN
from bedform._shown import printable
from bedform._text import format_bytes, format_seconds, format_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xarray import Dataset

    from bedform._selection import EngineSelection

#: The most reads of an array that are explained one by one; of more, evenly spaced ones stand for
#: all.
_READS_MAX: Final = 20_000
#: The seconds that Dask takes for a task.
_TASK_SECONDS: Final = 1e-3
#: Blocks are better if they save this share of the predicted time, and of a second.
_SAVED_MIN: Final = 0.2
_SAVED_SECONDS_MIN: Final = 0.01
#: Chunks that are read so many times in the mean are worth a note.
_AGAIN: Final = 1.1
#: The most bytes of a suggested block, all of which a task may need.
_WHOLE_BLOCK_MAX: Final = 512 << 20
#: A read spans an axis if it takes this share of it.
_SPANNED: Final = 0.5
#: The most boxes whose overlaps are counted.
_BOXES_MAX: Final = 2000
#: The memory that a plan of replicas assumes.
_MEMORY: Final = 512 << 20


class LazyExplanation:
    """The reads of a lazy data set, with their price: ``str`` of it is a table.

    Examples
    --------
    >>> import bedform, tempfile, xarray
    >>> place = tempfile.mkdtemp() + "/s.zarr"
    >>> bedform.write_dataset(xarray.Dataset({"t": (("y", "x"), [[1, 2], [3, 4]])}), place)
    >>> with xarray.open_dataset(place, engine="bedform") as dataset:
    ...     dataset["t"].isel(x=0).bedform.explain().to_dict()["needed_bytes"]
    16
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def to_dict(self) -> dict[str, Any]:
        """Returns all facts: bytes, requests, seconds, the better chunks, what replicas save."""
        return dict(self._facts)

    @property
    def chunks(self) -> dict[str, int] | None:
        """The ``chunks=`` of :func:`xarray.open_dataset` that would be better, if there are any."""
        better: dict[str, int] | None = self._facts["chunks"]
        return better

    def __repr__(self) -> str:
        return f"LazyExplanation({self._facts!r})"

    def __str__(self) -> str:
        facts = self._facts
        rows = [("array", "file", "needs", "reads", "requests", "predicted, cold", "cached")]
        names = _short_names([one["file"] for array in facts["arrays"] for one in array["files"]])
        for array in facts["arrays"]:
            for number, one in enumerate(array["files"]):
                first = number == 0
                rows.append(
                    (
                        printable(array["array"]) if first else "",
                        printable(names[one["file"]]),
                        format_bytes(array["needed_bytes"]) if first else "",
                        format_bytes(one["bytes"]),
                        f"{one['requests']:,}",
                        format_seconds(array["predicted_cold_seconds"]) if first else "",
                        format_seconds(array["predicted_cached_seconds"]) if first else "",
                    )
                )
        if len(rows) > 2:
            rows.append(
                (
                    "all",
                    "",
                    format_bytes(facts["needed_bytes"]),
                    format_bytes(facts["bytes"]),
                    f"{facts['requests']:,}",
                    format_seconds(facts["predicted_cold_seconds"]),
                    format_seconds(facts["predicted_cached_seconds"]),
                )
            )
        lines = _table(rows) if facts["arrays"] else ["nothing is read"]
        return "\n".join([*lines, *(f"note: {note}" for note in self._notes())])

    def _notes(self) -> Iterable[str]:
        """Returns the meaning of the numbers, and better choices."""
        facts = self._facts
        for array in facts["arrays"]:
            yield from _notes_of(array)
        if facts["chunks"] is not None:
            saved = format_seconds(facts["chunks_seconds"])
            yield f"chunks={facts['chunks']} would be better: predicted {saved}, in fewer reads"
        for one in facts["optimize"]:
            if one["seconds_then"] is not None:
                now, then = (format_seconds(one[f"seconds_{when}"]) for when in ("now", "then"))
                size = format_bytes(one["bytes"])
                yield f"{one['command']} would save: {now} now, {then} then, {size} of replicas"
            elif one["reason"]:
                yield f"replicas: {one['reason']}"
        if facts["loaded"] and not facts["arrays"]:
            yield f"in memory already: {', '.join(map(printable, facts['loaded']))}"
        if facts["foreign"]:
            names = ", ".join(map(printable, facts["foreign"]))
            yield f"not counted, because another engine of xarray reads it: {names}"
        if facts["native"]:
            names = ", ".join(map(printable, facts["native"]))
            yield f"not counted, because the library of the format reads it: {names}"
        if facts["profile"]:
            yield f"prices by the profile of {facts['profile']}, without Dask and arithmetic"


def explain(dataset: Dataset, *, optimize: bool) -> LazyExplanation:
    """Explains the reads of all variables of a data set."""
    found = lazy_reads(dataset)
    arrays, native, suggestions = [], [], []
    for group in _groups(found):
        explained = group.explained(found.tasks_at_once)
        if explained is None:
            native.append(group.name)
            continue
        arrays.append(explained)
        suggestions.append(group)
    better, seconds = _better_chunks(suggestions, arrays, found)
    totals = {
        key: sum(array[key] for array in arrays)
        for key in (
            "needed_bytes",
            "bytes",
            "requests",
            "predicted_cold_seconds",
            "predicted_cached_seconds",
        )
    }
    return LazyExplanation(
        {
            **totals,
            "arrays": arrays,
            "chunks": better,
            "chunks_seconds": seconds,
            "optimize": _saved_by_replicas(suggestions) if optimize else [],
            "loaded": found.loaded,
            "foreign": sorted(set(found.foreign)),
            "native": native,
            "profile": next((array["profile"] for array in arrays if array["profile"]), ""),
        }
    )


def _notes_of(array: dict[str, Any]) -> Iterable[str]:
    name = printable(array["array"])
    decoded, needed = array["decoded_bytes"], array["needed_bytes"]
    if needed and decoded > 2 * needed:
        yield (
            f"{name}: decodes {format_bytes(decoded)} for {format_bytes(needed)} of elements, in "
            f"chunks of {format_shape(array['chunk_shape'])}"
        )
    shared = array["chunks_touched"] / max(array["chunks"], 1)
    if shared > _AGAIN and array["bytes"] > _AGAIN * array["bytes_once"]:
        times = array["bytes"] / max(array["bytes_once"], 1)
        found_by_others = ", and others find them in the cache" if array["is_cached"] else ""
        yield (
            f"{name}: its blocks cut chunks, which {shared:.1f} tasks each need: they are read "
            f"{times:.1f} times{found_by_others}"
        )
    if array["sampled"]:
        yield f"{name}: {array['sampled']:,} of {array['reads']:,} reads were explained"


# One array ----------------------------------------------------------------------------------------


class _Group:
    """The reads of one array."""

    def __init__(self, array: Any, shape: tuple[int, ...], size: int) -> None:
        self.array, self.shape, self.item_size = array, shape, size
        self.selections: list[EngineSelection] = []
        #: The elements of all reads, as one selection; ``None`` if the engine has no such form.
        self.whole: tuple[Any, ...] | None = None

    @property
    def name(self) -> str:
        """The array's path in its store or file."""
        return str(self.array.path)

    def explained(self, tasks_at_once: int) -> dict[str, Any] | None:
        """Returns the facts of the reads; ``None`` if the library of the format makes them."""
        selections = [selected.engine for selected in self.selections]
        step = -(-len(selections) // _READS_MAX)
        sample = selections[::step]
        sums = self.array._explain_reads(sample, in_turn=False)
        if sums is None:
            return None
        self.whole = _together(self.selections)
        once = sums
        if self.whole is not None and len(sample) > 1:
            once = self.array._explain_reads([self.whole], in_turn=False)
        # How many tasks take a chunk in the mean.
        takers = max(sums["chunks"] * step / max(once["chunks"], 1), 1)
        touched = _round(sums["chunks"] * step)
        if takers > 1 and sums["cached_reads"]:
            # Of tasks that run at once each reads the chunk, and later ones find it.
            in_turn = self.array._explain_reads(sample, in_turn=True)
            share = (min(takers, max(tasks_at_once, 1)) - 1) / (takers - 1)
            sums = _between(in_turn, sums, share)
        _scale(sums, len(selections) / len(sample))
        seconds = {key: once[key] for key in ("predicted_cold_seconds", "predicted_cached_seconds")}
        work = max(sums["decoded_bytes"] / max(once["decoded_bytes"], 1), 1)
        return {
            "array": self.name,
            "dims": [str(name) for name in self.array.dims],
            "chunk_shape": list(self.array.chunks or self.shape),
            "reads": len(selections),
            "sampled": len(sample) if step > 1 else 0,
            "needed_bytes": self._needed(once),
            "bytes": sums["bytes"],
            "bytes_once": once["bytes"],
            "requests": sums["requests"],
            "chunks": once["chunks"],
            "chunks_touched": touched,
            "chunks_read": sums["chunks"],
            "decoded_bytes": sums["decoded_bytes"],
            "is_cached": sums["cached_reads"] > 0,
            **{key: value * work for key, value in seconds.items()},
            "profile": sums["profile"],
            "files": [
                {"file": one["place"], "bytes": one["bytes"], "requests": one["requests"]}
                for one in sums["places"]
            ],
        }

    def _needed(self, once: dict[str, Any]) -> int:
        """Returns the bytes of the elements that are needed, each counted once."""
        whole = self.whole
        if whole is None or whole[0] != "union" or len(whole[1]) > _BOXES_MAX:
            return int(once["result_bytes"])
        # Boxes of a union may overlap: count elements where they are few enough.
        boxes = {(tuple(start), tuple(count)) for start, count in whole[1]}
        return _elements_of(boxes) * self.item_size

    def blocks(self, regions: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Returns the blocks in which Dask would read the elements between these bounds best."""
        chunks = tuple(max(1, length) for length in self.array.chunks or self.shape)
        block = list(block_shape(self.shape, self.item_size, chunks, self.array.shards))
        wanted = [max(1, end - start) for start, end in regions]
        for axis in sorted(range(len(block)), key=lambda axis: -wanted[axis] / block[axis]):
            needed = math.prod(map(min, block, wanted)) * self.item_size
            whole = math.prod(block) * self.item_size
            most = min(BLOCK_BYTES_MAX // max(needed, 1), _WHOLE_BLOCK_MAX // max(whole, 1))
            count = -(-wanted[axis] // block[axis])
            block[axis] *= max(1, min(count, most))
        return tuple(map(min, block, self.shape))

    def bounds(self) -> list[tuple[int, int]]:
        """Returns the first position and the end of the reads along each axis."""
        found: list[tuple[int, int]] = [(length, 0) for length in self.shape]
        for selected in self.selections:
            for axis, (first, end) in enumerate(_bounds_of(selected)):
                low, high = found[axis]
                found[axis] = (min(low, first), max(high, end))
        return found


def _groups(found: LazyReads) -> list[_Group]:
    """Returns the reads by array, in the order of the data set."""
    groups: dict[Any, _Group] = {}
    for backend, selected in found.reads:
        array = backend._array
        store: Any = getattr(array, "_store", None)
        where = getattr(store, "_paths", None) or getattr(store, "store_path", id(store))
        key = (type(store), str(where), array.path)
        if key not in groups:
            size = array.dtype.itemsize
            groups[key] = _Group(array, tuple(backend.shape), size)
        groups[key].selections.append(selected)
    return list(groups.values())


def _between(first: dict[str, Any], last: dict[str, Any], share: float) -> dict[str, Any]:
    """Returns sums that lie between others, by file too."""

    def mixed(one: Any, other: Any) -> Any:
        between = one + (other - one) * share
        return _round(between) if isinstance(one, int) else between

    found = {key: mixed(first[key], last[key]) for key in _COUNTS}
    known = {one["place"]: one for one in first["places"]}
    places = [
        {"place": one["place"]}
        | {
            key: mixed(known.get(one["place"], {}).get(key, 0), one[key])
            for key in ("bytes", "requests")
        }
        for one in last["places"]
    ]
    return {**last, **found, "places": places}


_COUNTS: Final = (
    "reads",
    "result_bytes",
    "requests",
    "bytes",
    "chunks",
    "decoded_bytes",
    "cached_reads",
    "predicted_cold_seconds",
    "predicted_cached_seconds",
)


def _scale(sums: dict[str, Any], factor: float, counts: Sequence[str] = _COUNTS) -> None:
    """Multiplies counts, which stay whole numbers."""
    if factor == 1:
        return
    for one in (sums, *sums["places"]):
        for key in counts:
            if key in one:
                scaled = one[key] * factor
                one[key] = _round(scaled) if isinstance(one[key], int) else scaled


def _round(number: float) -> int:
    return round(number)


# Selections ---------------------------------------------------------------------------------------


def _together(selections: Sequence[EngineSelection]) -> tuple[Any, ...] | None:
    """Returns the elements of several reads as one selection; ``None`` if it has no such form."""
    distinct = {_key(selected): selected for selected in selections}
    if len(distinct) == 1:
        return selections[0].engine
    if any(selected.engine[0] != "orthogonal" for selected in distinct.values()):
        return None
    axes = list(zip(*(selected.engine[1] for selected in distinct.values()), strict=True))
    if not axes:
        return selections[0].engine
    entries = [{_entry_key(entry): entry for entry in axis} for axis in axes]
    if math.prod(map(len, entries)) == len(distinct):
        return ("orthogonal", [_joined(list(axis.values())) for axis in entries])
    boxes = list(distinct.values())
    is_box = all(
        isinstance(entry, tuple) and (entry[1] == 1 or entry[2] <= 1)
        for selected in boxes
        for entry in selected.engine[1]
    )
    return _selection.union(boxes).engine if is_box else None


def _key(selected: EngineSelection) -> Any:
    kind, parts = selected.engine[:2]
    return (kind, *(_entry_key(entry) for entry in parts))


def _entry_key(entry: Any) -> Any:
    return entry if isinstance(entry, tuple) else (len(entry), entry.tobytes())


def _joined(entries: list[Any]) -> Any:
    """Returns the positions of several entries of an axis, ascending, each once."""
    if len(entries) == 1:
        return entries[0]
    ranges = sorted(entry for entry in entries if isinstance(entry, tuple) and entry[1] == 1)
    if len(ranges) == len(entries):
        follow = all(
            start + count == after
            for (start, _, count), (after, _, _) in itertools.pairwise(ranges)
        )
        if follow:
            return (ranges[0][0], 1, sum(count for _, _, count in ranges))
    return np.unique(np.concatenate([_positions(entry) for entry in entries]))


def _positions(entry: Any) -> Any:
    if not isinstance(entry, tuple):
        return entry
    start, step, count = entry
    return start + step * np.arange(count, dtype=np.int64)


def _bounds_of(selected: EngineSelection) -> Iterable[tuple[int, int]]:
    """Returns the first position and the end of a selection along each axis."""
    for entry in selected.engine[1]:
        if isinstance(entry, tuple):
            start, step, count = entry
            last = start + step * (count - 1)
            yield (min(start, last), max(start, last) + 1) if count else (start, start)
        else:
            yield (int(entry.min()), int(entry.max()) + 1) if len(entry) else (0, 0)


def _elements_of(boxes: set[tuple[tuple[int, ...], tuple[int, ...]]]) -> int:
    """Returns the number of elements of boxes, each counted once.

    >>> _elements_of({((0, 0), (2, 2)), ((1, 1), (2, 2))})
    7
    """
    if not boxes:
        return 0
    rank = len(next(iter(boxes))[0])
    if not rank:
        return 1
    # Along the first axis the boxes change at few positions; between them the rest is counted.
    starts = {start[0] for start, _ in boxes}
    borders = sorted(starts | {start[0] + count[0] for start, count in boxes})
    total = 0
    known: dict[frozenset[Any], int] = {}
    for low, high in itertools.pairwise(borders):
        across = frozenset(
            (start[1:], count[1:])
            for start, count in boxes
            if start[0] <= low < start[0] + count[0]
        )
        if across not in known:
            known[across] = _elements_of(set(across))
        total += (high - low) * known[across]
    return total


# Better blocks and replicas -----------------------------------------------------------------------


def _better_chunks(
    groups: list[_Group], arrays: list[dict[str, Any]], found: LazyReads
) -> tuple[dict[str, int] | None, float | None]:
    """Returns the blocks that would be read sooner by Dask, and the predicted seconds with them.

    Nothing where the blocks are good, or where arrays would need different ones.
    """
    if not found.tasks_at_once:
        return None, None
    better: dict[str, int] = {}
    now = then = 0.0
    for group, array in zip(groups, arrays, strict=True):
        bounds = group.bounds()
        blocks = group.blocks(bounds)
        tasks = math.prod(
            max(1, -(-end // length) - start // length)
            for (start, end), length in zip(bounds, blocks, strict=True)
        )
        seconds = array["predicted_cold_seconds"]
        now += seconds + array["reads"] * _TASK_SECONDS
        then += seconds * array["chunks"] / max(array["chunks_read"], 1) + tasks * _TASK_SECONDS
        for name, length in zip(array["dims"], blocks, strict=True):
            better[name] = max(length, better.get(name, 0))
    if now - then < max(_SAVED_MIN * now, _SAVED_SECONDS_MIN):
        return None, None
    return better, then


def _saved_by_replicas(groups: list[_Group]) -> list[dict[str, Any]]:
    """Returns for each file or store what ``optimize`` would save in these reads."""
    by_source: dict[int, list[_Group]] = {}
    for group in groups:
        by_source.setdefault(id(group.array._store), []).append(group)
    return [_saved_in(of_source) for of_source in by_source.values()]


def _saved_in(groups: list[_Group]) -> dict[str, Any]:
    """Returns what ``optimize`` would save in the reads of one file or store."""
    store: Any = groups[0].array._store
    paths = getattr(store, "_paths", None)
    where = str(getattr(store, "_path", None) or store.store_path)
    spanned: dict[tuple[str, ...], float] = {}
    kinds: list[Any] = []
    exact: list[Any] = []
    for group in groups:
        axes = _spanned_axes(group)
        if axes is None:
            if group.whole is not None and group.whole[0] != "union":
                exact.append((group.name, 1.0, group.whole))
        elif len(axes) < len(group.shape):
            spanned[axes] = 1.0
            kinds.append((list(axes), 1.0, [], group.name))
    saved: dict[str, Any] = {
        "source": store.store_path,
        "command": _command(store.store_path, spanned, exact),
        "seconds_now": None,
        "seconds_then": None,
        "bytes": 0,
        "reason": None,
    }
    if not kinds and not exact:
        return {**saved, "reason": "whole arrays are read, or boxes in several places"}
    try:
        text = engine_call(_internal.optimize, where)(
            paths or where,
            AS_GIVEN if paths is None else store._join,
            None,
            None,
            (kinds, exact, None),
            None,
            _MEMORY,
            True,
        )
    except BedformError as error:
        return {**saved, "reason": str(error)}
    plan, _ = _json.load(text)
    saved["seconds_now"] = sum(read["seconds_now"] for read in plan["reads"])
    if not plan["make"]:
        return {**saved, "reason": next(iter(plan["notes"]), "the reads are fast as they are")}
    saved["seconds_then"] = sum(read["seconds_then"] for read in plan["reads"])
    return {**saved, "bytes": sum(replica["bytes"] for replica in plan["make"])}


def _spanned_axes(group: _Group) -> tuple[str, ...] | None:
    """Returns the dimensions that the reads span; ``None`` for boxes, lists and points.

    Then such reads of other places are made faster, too.
    """
    whole = group.whole
    if whole is None or whole[0] != "orthogonal":
        return None
    names = [str(name) for name in group.array.dims]
    spanned = []
    for name, entry, length in zip(names, whole[1], group.shape, strict=True):
        if not isinstance(entry, tuple) or entry[1] != 1:
            return None
        if entry[2] > 1 and entry[2] >= _SPANNED * length:
            spanned.append(name)
        elif entry[2] > 1:
            return None
    return tuple(spanned)


def _command(where: str, spanned: dict[tuple[str, ...], float], exact: list[Any]) -> str:
    if exact:
        return f"bedform watch {where}, a run of this, bedform learn and bedform optimize"
    reads = "".join(f" --reads {','.join(axes)}={weight:g}" for axes, weight in spanned.items())
    return f"bedform optimize {where}{reads}"


# Text ---------------------------------------------------------------------------------------------


def _short_names(places: list[str]) -> dict[str, str]:
    """Returns short names of files, which stay different."""
    short = {place: _short(place) for place in places}
    alike = len(set(short.values())) < len(short)
    return {place: place for place in places} if alike else short


def _short(place: str) -> str:
    path = Path(place)
    if path.parent.name == "replicas":
        return f"replica {path.name}"
    return path.name or place


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = 2
    return [
        "  ".join(
            cell.ljust(width) if number < texts else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
