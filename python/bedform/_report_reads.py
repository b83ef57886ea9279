"""Kinds of reads that `learn` found, for the report: their positions and times.

The knowledge lies in a file that anybody may have written: kinds whose numbers do not fit their
array are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform._catalogue import is_count, is_counts, is_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["STRETCHES", "cell_bounds", "cells_of", "joint_reads", "queries_of", "read_array"]

#: Number of stretches per axis in which the engine counts reads.
STRETCHES: Final = 64
#: The share of reads along each axis from which the engine computes the hot box.
_HOT_SHARE: Final = 0.9
_KINDS_MAX: Final = 64
_PREDICTED_MAX: Final = 32
_CONDITIONS_MAX: Final = 64


def read_array(name: str, learned: Any) -> dict[str, Any] | None:
    """Returns the checked knowledge of one array's reads; None if it does not fit."""
    if not isinstance(learned, dict) or not is_counts(learned.get("shape")):
        return None
    shape = learned["shape"]
    read, lists, ahead = (_explained(learned.get(key)) for key in ("read", "lists", "was_ahead"))
    seconds = learned.get("seconds")
    if read is None or lists is None or ahead is None or not is_seconds(seconds):
        return None
    listed = learned.get("kinds")
    entries = listed[:_KINDS_MAX] if isinstance(listed, list) else []
    kinds = [kind for kind in (_kind(entry, shape) for entry in entries) if kind is not None]
    kinds.sort(key=lambda kind: (-kind["seconds"], kind["counts"]))
    return {
        "array": name,
        "shape": shape,
        **read,
        "seconds": float(seconds),
        "lists": lists["reads"],
        "was_ahead": ahead["reads"],
        "patterns": _patterns(learned.get("predicted"), read),
        "kinds": [{"label": _label(number), **kind} for number, kind in enumerate(kinds)],
    }


def queries_of(arrays: Any) -> list[dict[str, Any]]:
    """Returns the checked queries of all arrays, each condition once, the longest first.

    Each array of a condition has it: the bytes are those of all of them.
    """
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, learned in (arrays if isinstance(arrays, dict) else {}).items():
        queries = learned.get("queries") if isinstance(learned, dict) else None
        conditions = queries.get("conditions") if isinstance(queries, dict) else None
        of_array: dict[tuple[str, bool], dict[str, Any]] = {}
        for entry in conditions[:_CONDITIONS_MAX] if isinstance(conditions, list) else ():
            query = _query(entry)
            if query is None:
                continue
            known = of_array.setdefault((query["condition"], query["is_stored"]), query)
            if known is not query:
                for key in (*_QUERY_COUNTS, "seconds"):
                    known[key] += query[key]
        for condition, query in of_array.items():
            if condition in found:
                found[condition]["arrays"].append(name)
                found[condition]["bytes"] += query["bytes"]
            else:
                found[condition] = {**query, "arrays": [name]}
    return sorted(found.values(), key=lambda query: (-query["seconds"], query["condition"]))


_QUERY_COUNTS: Final = ("queries", "bytes", "matched", "blocks", "blocks_left_out")


def _query(entry: Any) -> dict[str, Any] | None:
    """Returns the queries with one condition if their numbers are counts."""
    if not isinstance(entry, dict) or not isinstance(entry.get("condition"), str):
        return None
    if not all(is_count(entry.get(key)) for key in _QUERY_COUNTS) or not entry["queries"]:
        return None
    if not is_seconds(entry.get("seconds")):
        return None
    return {
        "condition": entry["condition"],
        "is_stored": entry.get("is_stored") is True,
        **{key: entry[key] for key in _QUERY_COUNTS},
        "seconds": float(entry["seconds"]),
    }


def _explained(entry: Any) -> dict[str, int] | None:
    if not isinstance(entry, dict):
        return None
    found = {key: entry.get(key) for key in ("reads", "bytes")}
    return found if all(map(is_count, found.values())) else None  # type: ignore[return-value]


def _patterns(predicted: Any, read: dict[str, int]) -> list[dict[str, Any]]:
    """Returns the number of reads that each kind of pattern predicted."""
    entries = list(predicted.items())[:_PREDICTED_MAX] if isinstance(predicted, dict) else []
    known = [(str(kind), _explained(entry)) for kind, entry in entries]
    patterns = [
        {
            "kind": kind,
            **found,
            "share_of_reads": found["reads"] / max(read["reads"], 1),
            "share_of_bytes": found["bytes"] / max(read["bytes"], 1),
        }
        for kind, found in known
        if found is not None and found["reads"]
    ]
    return sorted(patterns, key=lambda pattern: -pattern["reads"])


def _kind(entry: Any, shape: Sequence[int]) -> dict[str, Any] | None:
    """Returns one kind of read if its numbers fit an array of ``shape``."""
    if not isinstance(entry, dict):
        return None
    lists = [entry.get(key) for key in ("counts", "steps", "start", "end")]
    fitting = [one for one in lists if is_counts(one) and len(one) == len(shape)]
    if not shape or len(fitting) < len(lists):
        return None
    counts, steps, start, end = fitting
    numbers = all(is_count(entry.get(key)) for key in ("reads", "bytes", "last_ns"))
    if not numbers or not entry["reads"] or not is_seconds(entry.get("seconds")):
        return None
    bins = entry.get("bins")
    if not isinstance(bins, list) or len(bins) != len(shape):
        return None
    if not all(is_counts(axis) and len(axis) == STRETCHES and any(axis) for axis in bins):
        return None
    if not all(a < b <= length for a, b, length in zip(start, end, shape, strict=True)):
        return None
    lengths = [(count - 1) * step + 1 for count, step in zip(counts, steps, strict=True)]
    if not all(0 < length <= most for length, most in zip(lengths, shape, strict=True)):
        return None
    hot = _hot_box(bins, start, end, shape)
    # If the hot box is shorter than one read, use the box around all reads.
    if any(b - a < length for (a, b), length in zip(hot, lengths, strict=True)):
        hot = list(zip(start, end, strict=True))
    return {
        **{key: entry[key] for key in ("counts", "steps", "start", "end", "bins")},
        **{key: entry[key] for key in ("reads", "bytes", "last_ns")},
        "hot_start": [a for a, _ in hot],
        "hot_end": [b for _, b in hot],
        "seconds": float(entry["seconds"]),
        "measured_seconds": float(entry["seconds"]) / entry["reads"],
    }


def _hot_box(
    bins: list[list[int]], start: Sequence[int], end: Sequence[int], shape: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns the hot box, the interval with most reads per axis, as the engine's ``hot_box``."""
    box = []
    for axis, counts in enumerate(bins):
        least = int((1 - _HOT_SHARE) * max(counts))
        hot = [number for number, count in enumerate(counts) if count > least]
        low = max(_first_position(hot[0], shape[axis]), start[axis])
        high = min(_first_position(hot[-1] + 1, shape[axis]), end[axis])
        box.append((low, max(high, low)))
    return box


def _first_position(stretch: int, length: int) -> int:
    return min(-(-stretch * length // STRETCHES), length)


def _label(number: int) -> str:
    """Returns the label of a number: A, B, ..., Z, AA, AB, ..."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def cell_bounds(length: int) -> list[int]:
    """Returns the bounds of an axis's cells: its stretches, or positions of a short axis."""
    if length <= STRETCHES:
        return list(range(length + 1))
    return [_first_position(number, length) for number in range(STRETCHES + 1)]


def cells_of(counts: Sequence[int], length: int) -> list[int]:
    """Returns the reads of each cell of `cell_bounds`; the engine always keeps 64 counts."""
    if length <= STRETCHES:
        return [counts[at * STRETCHES // length] for at in range(length)]
    return list(counts)


def joint_reads(
    kinds: Sequence[dict[str, Any]], shape: Sequence[int], first: int, second: int
) -> tuple[list[list[float]], int, bool]:
    """Returns the reads of each cell of two axes, the reads of both whole axes, and exactness.

    Reads that take all of both axes are counted apart: in the cells they would hide the others.
    Counts are kept by axis. The cells are exact where each kind of read takes the same of one of
    the two axes every time. Otherwise the axes count as independent.
    """
    cells = np.zeros([min(shape[axis], STRETCHES) for axis in (first, second)])
    is_counted, of_all = True, 0
    for kind in kinds:
        sides = [cells_of(kind["bins"][axis], shape[axis]) for axis in (first, second)]
        if all(set(side) == {kind["reads"]} for side in sides):
            of_all += kind["reads"]
            continue
        is_counted &= any(set(side) <= {0, kind["reads"]} for side in sides)
        down, across = (np.asarray(side, "f8") for side in sides)
        cells += np.outer(down / kind["reads"], across)
    found: list[list[float]] = cells.tolist()
    return found, of_all, is_counted
