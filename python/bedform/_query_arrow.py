"""Matching elements of queries as Arrow record batches, by pyarrow."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import NotFoundError, UnsupportedError
from bedform._query import engine_array, moment_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedform._query import Query


def record_batches(query: Query, values: str | Iterable[str] | None, memory: int) -> Iterator[Any]:
    """Yields the batches of a query: see :meth:`Query.batches`."""
    yield from _Table(query, values).batches(memory)


def reader(query: Query, values: Iterable[str] | None = None, memory: int = 256 << 20) -> Any:
    """Returns the batches as a ``pyarrow.RecordBatchReader``."""
    arrow = _arrow()
    table = _Table(query, values)
    return arrow.RecordBatchReader.from_batches(table.schema(), table.batches(memory))


def _arrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise UnsupportedError(
            "record batches need pyarrow: pip install 'bedform[parquet]'"
        ) from None
    return pa


class _Table:
    """The columns of the batches of a query, all of one moment."""

    def __init__(self, query: Query, values: str | Iterable[str] | None) -> None:
        self._arrow = _arrow()
        group = moment_of(query._group)
        self._query = query._within({}, group)
        self._region = self._query.region
        dims = query.dims
        self._coordinates = {dim: _coordinate(group, dim) for dim in dims}
        if isinstance(values, str):
            values = [values]
        wanted = query._names if values is None else list(values)
        self._values = [name for name in wanted if name not in dims]
        for name in self._values:
            engine_array(group, name)

    def schema(self) -> Any:
        """Returns the schema, from a batch without rows."""
        dims = self._query.dims
        empty = {
            dim: (part.start, part.start) for dim, part in zip(dims, self._region, strict=True)
        }
        return self._batch(self._query._within(empty, self._query._group)).schema

    def batches(self, memory: int) -> Iterator[Any]:
        """Yields the batches of parts of the region, in C order."""
        columns = 2 * len(self._region) + len(self._values)
        rows = max(1, memory // (16 * max(columns, 1)))
        for part in _parts(self._region, rows):
            ranges = dict(zip(self._query.dims, part, strict=True))
            batch = self._batch(self._query._within(ranges, self._query._group))
            if batch.num_rows:
                yield batch

    def _batch(self, query: Query) -> Any:
        positions, values = query._rows(self._values, None)
        columns: dict[str, Any] = {}
        for axis, dim in enumerate(query.dims):
            columns[f"{dim}_index"] = positions[:, axis]
            labels = self._coordinates[dim]
            if labels is not None:
                columns[dim] = labels[positions[:, axis]]
        columns |= dict(zip(self._values, values, strict=True))
        return self._arrow.RecordBatch.from_pydict(columns)


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


def _coordinate(group: Any, dim: str) -> Any:
    """Returns the decoded coordinate of a dimension; ``None`` without one."""
    import xarray as xr

    try:
        array = group[dim]
    except NotFoundError:
        return None
    if getattr(array, "ndim", 0) != 1:
        return None
    stored = xr.Variable((dim,), array[:], dict(array._load_attributes()))
    values = xr.conventions.decode_cf_variable(dim, stored).values
    return np.asarray(values, dtype=str) if values.dtype.hasobject else values
