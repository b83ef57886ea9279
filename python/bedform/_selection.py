"""Translation of NumPy indexing into selections of the engine.

An :class:`EngineSelection` holds the engine's selection (non-negative positions, one entry per
axis) and the shape of NumPy's result (axes dropped by integers, new axes, broadcast points).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import (
    InvalidArgumentError,
    InvalidSelectionError,
    LimitExceededError,
    OutOfBoundsError,
    WrongTypeError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Most points of one selection: their positions along two axes take 64 GiB.
_POINTS_MAX = 1 << 32

Axis = Any  # (start, step, count), or an int64 array of positions


@dataclass(frozen=True)
class EngineSelection:
    """A selection: the engine's form, the shape of its buffer, and the shape of the result."""

    engine: tuple[Any, ...]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    # Whether a single element is returned as a scalar; with an ellipsis it is a 0-d array.
    scalar: bool


def _range(entry: slice, size: int) -> tuple[int, int, int]:
    try:
        start, stop, step = entry.indices(size)
    except TypeError as error:
        raise WrongTypeError(str(error)) from None
    except ValueError as error:
        raise InvalidSelectionError(str(error)) from None
    count = len(range(start, stop, step))
    # A slice of at most one element may have a step of any size: it is normalized to 1.
    return (start if count else 0, step if count > 1 else 1, count)


def _positions_of(entry: slice, size: int) -> range:
    start, step, count = _range(entry, size)
    return range(start, start + step * count, step)


def _is_scalar(key: Any, result: list[int] | tuple[int, ...]) -> bool:
    entries = key if isinstance(key, tuple) else (key,)
    return not result and not any(entry is Ellipsis for entry in entries)


def _index(entry: Any, axis: int, size: int) -> int:
    at = operator.index(entry)
    if not -size <= at < size:
        raise OutOfBoundsError(f"index {at} is out of bounds for axis {axis} of size {size}")
    return at + size if at < 0 else at


def _is_index(entry: Any) -> bool:
    if isinstance(entry, (bool, np.bool_)):
        return False
    if isinstance(entry, np.ndarray):
        return entry.ndim == 0 and entry.dtype.kind in "iu"
    return hasattr(entry, "__index__")


def _expanded(key: Any, rank: int) -> list[Any]:
    """Returns the entries of a key, with full slices for the ellipsis and missing axes."""
    entries = list(key) if isinstance(key, tuple) else [key]
    ellipses = [at for at, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        raise InvalidSelectionError("an index can only have a single ellipsis ('...')")
    given = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if given > rank:
        raise InvalidSelectionError(
            f"too many indices: the array has {rank} axes, {given} were indexed"
        )
    missing = [slice(None)] * (rank - given)
    if ellipses:
        entries[ellipses[0] : ellipses[0] + 1] = missing
    else:
        entries += missing
    return entries


def basic(key: Any, shape: tuple[int, ...]) -> EngineSelection:
    """Returns the selection of basic indexing: integers, slices, ``...``, ``None``."""
    axes: list[Axis] = []
    filled: list[int] = []
    result: list[int] = []
    for entry in _expanded(key, len(shape)):
        if entry is None:
            result.append(1)
            continue
        axis = len(axes)
        if isinstance(entry, slice):
            chosen = _range(entry, shape[axis])
            result.append(chosen[2])
        elif _is_index(entry):
            chosen = (_index(entry, axis, shape[axis]), 1, 1)
        else:
            raise InvalidSelectionError(
                f"[] takes integers, slices, one list of positions, ... and None, not "
                f"{type(entry).__name__}; .oindex and .vindex take several lists"
            )
        axes.append(chosen)
        filled.append(chosen[2])
    scalar = _is_scalar(key, result)
    return EngineSelection(("orthogonal", axes), tuple(filled), tuple(result), scalar)


def brackets(key: Any, shape: tuple[int, ...]) -> EngineSelection:
    """Returns the selection of ``array[key]``: basic indexing, one list of positions, or one mask.

    The axis of the list stays in place, as in h5py and zarr-python. NumPy would move it to the
    front if integers and slices precede the list. Two lists are refused, since those two libraries
    differ in their meaning.
    """
    if isinstance(key, np.ndarray) and key.dtype == bool and key.ndim == len(shape) > 1:
        return points(key, shape)
    entries = key if isinstance(key, tuple) else (key,)
    lists = [entry for entry in entries if _is_list(entry)]
    if not lists:
        return basic(key, shape)
    if len(lists) > 1:
        raise InvalidSelectionError(
            "[] takes one list of positions: .oindex takes one for each axis, .vindex points"
        )
    if any(entry is None for entry in entries):
        raise InvalidSelectionError("[] takes no new axes beside a list of positions")
    return orthogonal(key, shape)


def _is_list(entry: Any) -> bool:
    if isinstance(entry, (list, range)):
        return True
    return isinstance(entry, np.ndarray) and entry.ndim > 0


def _positions(entry: Any, axis: int, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        values = np.asarray(entry)
    except ValueError as error:
        raise InvalidSelectionError(f"the index of axis {axis}: {error}") from None
    if values.dtype == bool:
        if values.shape != (size,):
            raise OutOfBoundsError(
                f"a boolean index of shape {values.shape} does not fit axis {axis} of size {size}"
            )
        return np.flatnonzero(values).astype(np.int64, copy=False)
    if values.size == 0:
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        _check_beyond(entry, axis, size)
        raise InvalidSelectionError(f"indices of axis {axis} must be integers or booleans")
    lowest, highest = (int(values.min()), int(values.max())) if values.size else (0, -1)
    # Checked before the conversion, which would make large unsigned numbers negative.
    if lowest < -size or highest >= size:
        wrong = (values < -size) | (values >= size)
        raise OutOfBoundsError(
            f"index {values[wrong].flat[0]} is out of bounds for axis {axis} of size {size}"
        )
    values = values.astype(np.int64, copy=False)
    # Lists may have millions of positions: copy them only if some are negative.
    return values if lowest >= 0 else np.where(values < 0, values + size, values)


def _check_beyond(entry: Any, axis: int, size: int) -> None:
    """Fails at the first integer beyond 64 bits: NumPy makes objects or floats of such lists."""
    given = np.asarray(entry, object).ravel()
    if all(_is_index(one) for one in given):
        for one in given:
            _index(one, axis, size)


def orthogonal(key: Any, shape: tuple[int, ...]) -> EngineSelection:
    """Returns the selection of ``array.oindex[key]``: an integer, slice, list or mask per axis."""
    axes: list[Axis] = []
    filled: list[int] = []
    result: list[int] = []
    for axis, entry in enumerate(_expanded(key, len(shape))):
        size = shape[axis] if axis < len(shape) else 0
        if entry is None:
            raise InvalidSelectionError("oindex takes no new axes")
        if isinstance(entry, slice):
            chosen: Axis = _range(entry, size)
            count = chosen[2]
            result.append(count)
        elif _is_index(entry):
            chosen, count = (_index(entry, axis, size), 1, 1), 1
        else:
            chosen = _positions(entry, axis, size)
            if chosen.ndim != 1:
                raise InvalidSelectionError(f"the index of axis {axis} must have one dimension")
            count = len(chosen)
            result.append(count)
        axes.append(chosen)
        filled.append(count)
    scalar = _is_scalar(key, result)
    return EngineSelection(("orthogonal", axes), tuple(filled), tuple(result), scalar)


def points(key: Any, shape: tuple[int, ...]) -> EngineSelection:
    """Returns the selection of ``array.vindex[key]``: broadcast position arrays, or one mask.

    Slices may accompany the arrays; their axes follow those of the points, as in xarray.
    """
    if isinstance(key, np.ndarray) and key.dtype == bool:
        if key.shape != shape:
            raise OutOfBoundsError(f"a mask of shape {key.shape} does not fit shape {shape}")
        key = np.nonzero(key)
    entries = _expanded(key, len(shape))
    if any(entry is None for entry in entries):
        raise InvalidSelectionError("vindex takes no new axes")
    slices = [axis for axis, entry in enumerate(entries) if isinstance(entry, slice)]
    arrays = [axis for axis in range(len(shape)) if axis not in slices]
    located = {axis: _positions(entries[axis], axis, shape[axis]) for axis in arrays}
    try:
        points_shape = np.broadcast_shapes(*(located[axis].shape for axis in arrays))
    except ValueError:
        raise InvalidSelectionError("the indices of vindex do not fit each other") from None
    ranges = {axis: _positions_of(entries[axis], shape[axis]) for axis in slices}
    result = (*points_shape, *(len(ranges[axis]) for axis in slices))
    if math.prod(result) > _POINTS_MAX:
        raise LimitExceededError(
            f"vindex: {math.prod(result):,} points, of at most {_POINTS_MAX:,}: [] and oindex read "
            "boxes without a list of their elements"
        )
    lists = []
    for axis in range(len(shape)):
        if axis in ranges:
            place = len(points_shape) + slices.index(axis)
            values = np.asarray(ranges[axis], dtype=np.int64)
            values = values.reshape([-1 if at == place else 1 for at in range(len(result))])
        else:
            values = located[axis].reshape(located[axis].shape + (1,) * len(slices))
        lists.append(np.broadcast_to(values, result).reshape(-1).astype(np.int64, copy=False))
    count = int(np.prod(result, dtype=np.int64))
    return EngineSelection(("points", lists, count), (count,), result, _is_scalar(key, result))


def union(boxes: Sequence[EngineSelection]) -> EngineSelection:
    """Joins basic selections into one: the elements of each, one after the other.

    Raises
    ------
    InvalidSelectionError
        A selection has steps.
    """
    regions, count = [], 0
    for number, selected in enumerate(boxes):
        if any(step != 1 for _, step, length in selected.engine[1] if length > 1):
            raise InvalidSelectionError(
                f"selection {number} of a union has steps: boxes are slices a:b and integers"
            )
        axes = selected.engine[1]
        regions.append(([start for start, _, _ in axes], [length for _, _, length in axes]))
        count += math.prod(selected.shape)
    return EngineSelection(("union", regions), (count,), (count,), False)


def taken(whole: np.ndarray[Any, Any], selected: EngineSelection) -> np.ndarray[Any, Any]:
    """Applies a selection to an array in memory."""
    kind, parts = selected.engine[:2]
    if kind == "union":
        boxes = [
            whole[tuple(slice(a, a + n) for a, n in zip(*region, strict=True))].reshape(-1)
            for region in parts
        ]
        return np.concatenate(boxes) if boxes else whole.reshape(-1)[:0]
    if kind == "points":
        return np.asarray(whole[tuple(parts)]).reshape(selected.result)
    lists = [
        start + step * np.arange(count) if isinstance(part, tuple) else part
        for part in parts
        for start, step, count in [part if isinstance(part, tuple) else (0, 1, 0)]
    ]
    return (
        whole[np.ix_(*lists)].reshape(selected.result) if lists else whole.reshape(selected.result)
    )


def spread(
    name: str, data: np.ndarray[Any, Any], selected: EngineSelection
) -> np.ndarray[Any, Any]:
    """Broadcasts values to a selection of the array ``name``, as NumPy's assignment does.

    Raises
    ------
    InvalidArgumentError
        The values cannot be broadcast to the selection.
    """
    # As in NumPy, surplus leading axes of length 1 are dropped.
    extra = data.shape[: max(0, data.ndim - len(selected.result))]
    if set(extra) == {1}:
        data = data.reshape(data.shape[len(extra) :])
    try:
        return np.broadcast_to(data, selected.result)
    except ValueError:
        raise InvalidArgumentError(
            f"{name}: values of shape {data.shape} cannot be broadcast to the "
            f"selection {selected.result}"
        ) from None
