"""Matching elements of queries as columns: positions, labels and values."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import InvalidArgumentError
from bedform._query import engine_array, moment_of
from bedform._query_times import labels

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from bedform._elements import AnyArray
    from bedform._query import Query


class PointTable:
    """The matching elements of a query, of one moment, in parts of bounded memory.

    Each dimension has a column of positions (int64, ``<dim>_index``) and, if it has a coordinate,
    one of labels. The arrays of ``values`` follow; by default those of the condition. Labels and
    values are decoded unless the query has ``decode=False``. Elements that are Python objects, such
    as dates of other calendars, are text.
    """

    def __init__(self, query: Query, values: str | Iterable[str] | None) -> None:
        group = moment_of(query._group)
        self._query = query._within({}, group)
        self._region = self._query.region
        if isinstance(values, str):
            values = [values]
        wanted = query._names if values is None else list(values)
        self._values = [name for name in wanted if name not in query.dims]
        for name in self._values:
            engine_array(group, name)
        sizes = _extended_sizes([group[name] for name in (*query._names, *self._values)])
        self._positions = position_names(list(sizes), {*sizes, *self._values})
        self._labels = {dim: _labels(group, dim, query) for dim in sizes}
        #: Rows for each matching element of the condition.
        self._rows = math.prod(size for dim, size in sizes.items() if dim not in query.dims)

    def empty(self) -> dict[str, AnyArray]:
        """Returns the columns without rows."""
        dims = self._query.dims
        return self._columns(
            {dim: (part.start, part.start) for dim, part in zip(dims, self._region, strict=True)}
        )

    def parts(self, memory: int, limit: int | None = None) -> Iterator[dict[str, AnyArray]]:
        """Yields the columns of parts of the region, in C order; altogether ``limit`` rows.

        Of arrays with further dimensions, each part has all elements along these.
        """
        width = 2 * len(self._positions) + len(self._values)
        rows = memory // (16 * max(width, 1) * max(self._rows, 1))
        for part in _parts(self._region, max(1, rows)):
            if limit == 0:
                return
            columns = self._columns(dict(zip(self._query.dims, part, strict=True)), limit)
            count = len(next(iter(columns.values()), ()))
            limit = None if limit is None else limit - count
            if count:
                yield columns

    def _columns(
        self, ranges: dict[str, tuple[int, int]], limit: int | None = None
    ) -> dict[str, AnyArray]:
        part = self._query._within(ranges, self._query._group)
        positions, values = part._rows(self._values, limit)
        columns: dict[str, AnyArray] = {}
        for axis, (dim, name) in enumerate(self._positions.items()):
            columns[name] = positions[:, axis]
            known = self._labels[dim]
            if known is not None:
                columns[dim] = known[positions[:, axis]]
        return columns | dict(zip(self._values, map(without_objects, values), strict=True))


def position_names(dims: Sequence[str], others: Container[Any]) -> dict[str, str]:
    """Returns the name of the positions along each dimension.

    Raises
    ------
    InvalidArgumentError
        One of the other columns has such a name.
    """
    names = {dim: f"{dim}_index" for dim in dims}
    for dim, name in names.items():
        if name in others:
            raise InvalidArgumentError(
                f"{name!r} would be a variable and the positions along {dim!r}: rename the "
                "variable, or leave it out"
            )
    return names


def without_objects(values: AnyArray) -> AnyArray:
    """Returns Python objects as text; dates of calendars have the form of ISO 8601."""
    if not values.dtype.hasobject:
        return values
    return np.array([getattr(one, "isoformat", one.__str__)() for one in values], dtype=str)


def _extended_sizes(arrays: Iterable[Any]) -> dict[str, int]:
    """Returns the dimensions of arrays in the order of the engine's positions, and their sizes.

    The array of most dimensions, the first of such, begins.
    """
    sizes: dict[str, int] = {}
    for array in sorted(arrays, key=lambda array: -array.ndim):
        sizes |= dict(zip(array.dims, array.shape, strict=True))
    return sizes


def _labels(group: Any, dim: str, query: Query) -> AnyArray | None:
    known = labels(group, dim, decode=query._decode)
    return None if known is None else without_objects(known)


def _parts(region: tuple[slice, ...], rows: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields parts of a region in C order, of at most so many elements.

    >>> list(_parts((slice(0, 2), slice(0, 5)), 3))
    [((0, 1), (0, 3)), ((0, 1), (3, 5)), ((1, 2), (0, 3)), ((1, 2), (3, 5))]
    """
    whole = tuple((part.start, part.stop) for part in region)
    axis, rest = len(region), 1
    while axis and rest * (whole[axis - 1][1] - whole[axis - 1][0]) <= rows:
        axis -= 1
        rest *= whole[axis][1] - whole[axis][0]
    if axis == 0:
        yield whole
        return
    # The dimension that is cut; those before it have one index in each part.
    start, stop = whole[axis - 1]
    step = max(1, rows // max(rest, 1))
    cuts = [(at, min(at + step, stop)) for at in range(start, stop, step)]
    singles = [[(at, at + 1) for at in range(*ends)] for ends in whole[: axis - 1]]
    for outer in itertools.product(*singles):
        for cut in cuts:
            yield (*outer, cut, *whole[axis:])
