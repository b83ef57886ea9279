"""The replicas of a source by their catalogue, for display.

Invalid entries count as no replica, as in the engine (``crates/bedform/src/replica/catalogue.rs``).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from bedform import _internal, _sidecar
from bedform._errors import BedformError, engine_call
from bedform._paths import AS_GIVEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedform._paths import Join

__all__ = [
    "conditions_of",
    "current_replicas_of",
    "is_count",
    "is_counts",
    "is_seconds",
    "named_replicas_of",
    "replicas_of",
    "runs_fit",
]

_VERSION: Final = 3
_BYTES_MAX: Final = 64 << 20
_REPLICAS_MAX: Final = 1024
_RUNS_MAX: Final = 1 << 20
_RANK_MAX: Final = 64
_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")


def named_replicas_of(source: str | list[str]) -> list[dict[str, Any]]:
    """Returns all replicas in the catalogues of a source, the user's and the site's.

    The source is a path or URL, or the files of an archive.
    """
    of_site = [{**one, "is_of_site": True} for one in _replicas_in(source, is_of_site=True)]
    return [*_replicas_in(source), *of_site]


def replicas_of(where: str) -> tuple[list[dict[str, Any]], bool]:
    """Returns the replicas of a file, and whether all match its present version."""
    replicas = named_replicas_of(where)
    current = _current_ids(where) if replicas else set()
    return replicas, all(replica["id"] in current for replica in replicas)


def current_replicas_of(where: str) -> list[dict[str, Any]]:
    """Returns the replicas that match the present version of the file."""
    replicas = named_replicas_of(where)
    current = _current_ids(where) if replicas else set()
    return [replica for replica in replicas if replica["id"] in current]


def _current_ids(where: str) -> set[str]:
    return set(engine_call(_internal.current_replicas, where)(where))


def conditions_of(
    source: str | list[str], join: Join = AS_GIVEN, store: _internal.Store | None = None
) -> list[dict[str, Any]]:
    """Returns the replicas of a source, each with ``state`` and, if it is not read, ``reason``.

    ``join`` defines the joining of archive files. ``store`` is the opened source, where a path is
    not enough to open it. The list is empty if only the format's library can open the source.
    """
    shown = source if isinstance(source, str) else source[0]
    try:
        text = engine_call(_internal.replica_conditions, shown)(source, join, store)
    except BedformError:
        return []
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _replicas_in(source: str | list[str], *, is_of_site: bool = False) -> list[dict[str, Any]]:
    document = _sidecar.newest_of(source, "catalogue", _BYTES_MAX, is_of_site=is_of_site)
    listed = None if document is None else document.get("replicas")
    if document is None or document.get("version") != _VERSION or not isinstance(listed, list):
        return []
    if len(listed) > _REPLICAS_MAX:
        return []
    replicas = [_replica(entry) for entry in listed]
    # One invalid entry invalidates the whole catalogue.
    whole = [replica for replica in replicas if replica is not None]
    return whole if len(whole) == len(replicas) else []


def _replica(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    name, array, shape = entry.get("id"), entry.get("array"), entry.get("array_shape")
    held, expected = _held(entry.get("held"), shape), entry.get("expected")
    is_whole = (
        isinstance(name, str)
        and _ID.fullmatch(name) is not None
        and isinstance(array, str)
        and held is not None
        and all(is_count(entry.get(key)) for key in ("stored_bytes", "raw_bytes", "made"))
        and isinstance(expected, list)
    )
    if not is_whole:
        return None
    chunks, shards = _layout(entry.get("document"))
    reads = [_expected(one) for one in expected or ()]
    return {
        "id": name,
        "array": array,
        "array_shape": shape,
        "held": held,
        "chunks": chunks,
        "shards": shards,
        "stored_bytes": entry["stored_bytes"],
        "raw_bytes": entry["raw_bytes"],
        "made": entry["made"],
        "expected": [one for one in reads if one is not None],
    }


def _held(held: Any, shape: Any) -> dict[str, Any] | None:
    """Returns valid runs along each axis, or valid positions of single elements; else None."""
    if not isinstance(held, dict) or len(held) != 1 or not is_counts(shape):
        return None
    if runs_fit(held.get("runs"), shape):
        return held
    points = held.get("points")
    if not isinstance(points, dict):
        return None
    places = [points.get(key) for key in ("count", "first", "last")]
    if not is_counts(places):
        return None
    count, first, last = places
    return held if 0 < count <= last - first + 1 and last < math.prod(shape) else None


def _expected(entry: Any) -> dict[str, Any] | None:
    """Returns the reads for which a replica was made."""
    if not isinstance(entry, dict) or not is_counts(entry.get("shape")):
        return None
    numbers = ("reads", "seconds_without", "seconds_with")
    if not all(is_seconds(entry.get(key)) for key in numbers):
        return None
    return {"shape": entry["shape"], **{key: float(entry[key]) for key in numbers}}


def _layout(document: Any) -> tuple[list[int] | None, list[int] | None]:
    """Returns chunks and shards of a replica's array, if its document has them."""
    try:
        outer = document["chunk_grid"]["configuration"]["chunk_shape"]
        inner = next(
            codec["configuration"]["chunk_shape"]
            for codec in document["codecs"]
            if codec["name"] == "sharding_indexed"
        )
    except (KeyError, TypeError, StopIteration):
        return None, None
    return (inner, outer) if is_counts(inner) and is_counts(outer) else (None, None)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether the engine can hold the value as an unsigned 64-bit integer."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def is_counts(value: Any) -> TypeGuard[list[int]]:
    """Whether the value is a list of such numbers, one for each axis."""
    return isinstance(value, list) and len(value) <= _RANK_MAX and all(map(is_count, value))


def is_seconds(value: Any) -> TypeGuard[float]:
    """Whether the value is a valid time or weight."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < 1e300 and math.isfinite(value)


def runs_fit(runs: Any, shape: Sequence[int]) -> bool:
    """Whether runs fit an array of ``shape``: ascending, disjoint and inside along each axis."""
    if not isinstance(runs, list) or len(runs) != len(shape):
        return False
    return all(_axis_fits(axis, length) for axis, length in zip(runs, shape, strict=True))


def _axis_fits(axis: Any, length: int) -> bool:
    if not isinstance(axis, list) or not 0 < len(axis) <= _RUNS_MAX:
        return False
    end = 0
    for run in axis:
        if not is_counts(run) or len(run) != 2 or run[0] < end or run[1] == 0:
            return False
        end = run[0] + run[1]
    return end <= length
