"""Regions of queries: by indexes, and by the labels of coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _selection
from bedform._errors import InvalidArgumentError, NotFoundError, WrongTypeError
from bedform._query_times import decoded

if TYPE_CHECKING:
    from collections.abc import Mapping


def index_ranges(
    region: Any, dims: tuple[str, ...], sizes: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Returns start and stop of each dimension of a region by indexes.

    Raises
    ------
    InvalidArgumentError
        The region has steps, or names a dimension that the query lacks.
    """
    if region is None:
        return {}
    if hasattr(region, "items"):
        for dim in region:
            if dim not in sizes:
                raise InvalidArgumentError(
                    f"the region names {dim!r}, which no array of the query has: they have "
                    f"{', '.join(dims)}"
                )
        key = tuple(region.get(dim, slice(None)) for dim in dims)
    else:
        key = region
    selected = _selection.basic(key, tuple(sizes[dim] for dim in dims))
    ranges = {}
    for dim, (start, step, count) in zip(dims, selected.engine[1], strict=True):
        if step != 1:
            raise InvalidArgumentError(
                f"the region takes steps of {step} along {dim}: queries take whole ranges"
            )
        ranges[dim] = (start, start + count)
    return ranges


def label_ranges(
    sel: Mapping[str, Any] | None, group: Any, dims: tuple[str, ...]
) -> dict[str, tuple[int, int]]:
    """Returns start and stop of each dimension of a region by labels, as ``xarray.Dataset.sel``.

    A coordinate that descends takes slices in either order.

    Raises
    ------
    InvalidArgumentError
        A dimension has no coordinate, or that is not monotonic; a label does not exist.
    """
    return {dim: _range_of(dim, wanted, group, dims) for dim, wanted in (sel or {}).items()}


def _range_of(dim: str, wanted: Any, group: Any, dims: tuple[str, ...]) -> tuple[int, int]:
    if dim not in dims:
        raise InvalidArgumentError(
            f"sel names {dim!r}, which no array of the query has: they have {', '.join(dims)}"
        )
    labels = _labels(dim, group)
    if not isinstance(wanted, slice) and np.ndim(wanted):
        raise InvalidArgumentError(
            f"sel of {dim}: queries take a label or a slice of labels, not {wanted!r:.100}"
        )
    try:
        if isinstance(wanted, slice):
            return _slice_of(dim, wanted, labels)
        at = labels.get_loc(_label(wanted, labels))
    except KeyError:
        raise InvalidArgumentError(
            f"{dim} has no label {wanted!r:.100}: it has {labels[0]!s} to {labels[-1]!s}; a slice "
            "takes all labels between two"
            if len(labels)
            else f"{dim} has no labels"
        ) from None
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"sel of {dim}: {error}") from None
    if isinstance(at, slice):
        return at.start, at.stop
    if not isinstance(at, (int, np.integer)):
        raise InvalidArgumentError(f"{dim} has the label {wanted!r} more than once")
    return int(at), int(at) + 1


def _slice_of(dim: str, wanted: slice, labels: Any) -> tuple[int, int]:
    if wanted.step is not None:
        raise InvalidArgumentError(f"sel of {dim} has a step: queries take whole ranges")
    if not (labels.is_monotonic_increasing or labels.is_monotonic_decreasing):
        raise InvalidArgumentError(
            f"the labels of {dim} neither ascend nor descend: compare {dim} in the expression"
        )
    start, stop = _label(wanted.start, labels), _label(wanted.stop, labels)
    descends = not labels.is_monotonic_increasing
    if descends and start is not None and stop is not None and start < stop:
        start, stop = stop, start
    found = labels.slice_indexer(start, stop)
    return found.start, max(found.start, found.stop)


def _label(wanted: Any, labels: Any) -> Any:
    """Returns a label in the form of its coordinate: a year of times is text to pandas."""
    is_year = isinstance(wanted, int) and getattr(labels, "tz_localize", None) is not None
    return str(wanted) if is_year else wanted


def _labels(dim: str, group: Any) -> Any:
    """Returns the decoded coordinate of a dimension as an index of pandas."""
    import xarray as xr

    try:
        array = group[dim]
    except NotFoundError:
        raise InvalidArgumentError(
            f"{dim} has no coordinate and no labels: use region={{{dim!r}: slice(a, b)}}"
        ) from None
    if array.ndim != 1:
        raise WrongTypeError(f"the coordinate {dim} has {array.ndim} dimensions: sel takes one")
    return xr.Dataset(coords={dim: (dim, decoded(group, dim, array[:]))}).indexes[dim]
