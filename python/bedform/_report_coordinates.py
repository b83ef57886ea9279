"""Coordinates of the positions that a report names: at the ends of axes, and at the edges of boxes.

A heat map of positions says little about a map of the earth. Where an axis has a coordinate, the
variable of one dimension with its name, the page shows the coordinates as xarray decodes them, with
the positions, which the options of commands take. Only the elements at the named positions are
read, and these reads are not recorded.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _shown
from bedform._ahead import UNFOLLOWED
from bedform._errors import BedformError
from bedform._opening import open_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bedform._mesh import RefinedMesh

__all__ = ["add_centres", "add_coordinates", "coordinate_at", "coordinate_span"]

_CHARACTERS_MAX: Final = 40
#: Arrays and kinds of reads that a page can name.
_ARRAYS_MAX: Final = 12
_KINDS_MAX: Final = 8
#: Texts have no list reads: their coordinate is read whole.
_TEXTS_MAX: Final = 100_000
#: Labels by position, as text since they are JSON.
Labels = dict[str, str]


def coordinate_at(labels: Mapping[str, str], position: float) -> str | None:
    """Returns the coordinate of a position, if it is known.

    >>> coordinate_at({"0": "90"}, 0), coordinate_at({}, 0)
    ('90', None)
    """
    return labels.get(f"{position:.0f}")


def coordinate_span(labels: Mapping[str, str], first: float, end: float) -> str:
    """Returns the coordinates of a span in brackets; empty where they are not known.

    >>> coordinate_span({"0": "90", "9": "45"}, 0, 10), coordinate_span({"0": "90"}, 0, 1)
    (' (90 to 45)', ' (90)')
    """
    begin, last = (coordinate_at(labels, at) for at in (first, end - 1))
    if begin is None or last is None:
        return ""
    return f" ({begin})" if begin == last else f" ({begin} to {last})"


def add_coordinates(
    source: str | list[str],
    join: Mapping[str, Any],
    arrays: Sequence[dict[str, Any]],
    replicas: Sequence[dict[str, Any]],
) -> None:
    """Adds ``coordinates`` to the facts of each array: the labels of each axis."""
    for array in arrays:
        array["coordinates"] = [{} for _ in array["dims"]]
    if not arrays:
        return
    try:
        store = open_place(source, **join, prefetch=UNFOLLOWED, replicas=False)
    except BedformError:
        # The facts before it are from another open: the file may be gone by now.
        return
    with store:
        variables = store.arrays()
        for array in arrays[:_ARRAYS_MAX]:
            for axis, positions in enumerate(_named_positions(array, replicas)):
                found = _coordinate(variables, array, axis)
                if found is not None:
                    array["coordinates"][axis] = _labels(found, sorted(positions))


def add_centres(
    mesh: RefinedMesh,
    arrays: Sequence[dict[str, Any]],
    replicas: Sequence[dict[str, Any]],
) -> None:
    """Adds ``coordinates`` to the facts of each component of a mesh: the centres of cells."""
    lower, upper = mesh.bounds
    for array in arrays:
        array["coordinates"] = []
        for axis, positions in enumerate(_named_positions(array, replicas)):
            step = (upper[axis] - lower[axis]) / array["shape"][axis]
            centres = [lower[axis] + (at + 0.5) * step for at in sorted(positions)]
            array["coordinates"].append(dict(_texts(sorted(positions), centres)))


def _named_positions(
    array: dict[str, Any], replicas: Sequence[dict[str, Any]]
) -> Iterator[set[int]]:
    """Iterates over the axes; yields the positions of an axis that the page names."""
    held = [
        one["held"]["runs"]
        for one in replicas
        if one["array"] == array["array"] and one["array_shape"] == array["shape"]
        if "runs" in one["held"]
    ]
    for axis, length in enumerate(array["shape"]):
        ends = [(0, length)]
        ends += [
            (kind["hot_start"][axis], kind["hot_end"][axis]) for kind in array["kinds"][:_KINDS_MAX]
        ]
        ends += [(runs[axis][0][0], sum(runs[axis][-1])) for runs in held]
        positions = {at for first, end in ends for at in (first, end - 1)}
        yield {at for at in positions if 0 <= at < length}


def _coordinate(variables: Mapping[str, Any], array: dict[str, Any], axis: int) -> Any:
    """Returns the coordinate variable of an axis, of the array's group or of one above it."""
    dim, length = array["dims"][axis], array["shape"][axis]
    group = array["array"].rpartition("/")[0]
    while True:
        found = variables.get(f"{group}/{dim}".lstrip("/"))
        if found is not None:
            is_small = found.size <= _TEXTS_MAX or not found.dtype.hasobject
            is_fitting = tuple(found.dims) == (dim,) and found.shape == (length,)
            return found if is_fitting and is_small else None
        if not group:
            return None
        group = group.rpartition("/")[0]


def _labels(coordinate: Any, positions: list[int]) -> Labels:
    """Returns the coordinate at some positions as text; nothing of one that cannot be read."""
    if not positions:
        return {}
    from xarray import Variable, conventions

    try:
        with warnings.catch_warnings():
            # Odd units, and texts that only HDF5 reads, concern the page little.
            warnings.simplefilter("ignore")
            values = coordinate.oindex[positions]
            raw = Variable(("at",), values, dict(coordinate.attributes))
            decoded = conventions.decode_cf_variable("at", raw, decode_timedelta=False).values
    except Exception:  # noqa: BLE001 - attributes of any file, decoded by another library
        return {}
    return dict(_texts(positions, decoded))


def _texts(positions: Iterable[int], values: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for at, value in zip(positions, values, strict=True):
        text = _text(value)
        if text:
            yield str(at), _shown.printable(text, _CHARACTERS_MAX)


def _text(value: Any) -> str | None:
    """Returns a coordinate as text: times to the minute, numbers to six digits."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else _moment(str(np.datetime_as_string(value, unit="m")))
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}" if np.isfinite(value) else None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip()
    # Times of other calendars, of cftime.
    return _moment(value.isoformat()[:16]) if hasattr(value, "isoformat") else None


def _moment(text: str) -> str:
    return text.replace("T", " ").removesuffix(" 00:00")
