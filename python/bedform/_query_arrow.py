"""Matching elements of queries as Arrow record batches, by pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedform._errors import UnsupportedError
from bedform._query_table import PointTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedform._query import Query


def record_batches(query: Query, values: str | Iterable[str] | None, memory: int) -> Iterator[Any]:
    """Yields the batches of a query: see :meth:`Query.batches`."""
    batch = _arrow().RecordBatch.from_pydict
    for columns in PointTable(query, values).parts(memory):
        yield batch(columns)


def reader(
    query: Query,
    values: str | Iterable[str] | None = None,
    memory: int = 256 << 20,
    limit: int | None = None,
) -> Any:
    """Returns the batches, of ``limit`` rows altogether, as a ``pyarrow.RecordBatchReader``."""
    batch = _arrow().RecordBatch.from_pydict
    table = PointTable(query, values)
    batches = map(batch, table.parts(memory, limit))
    return _arrow().RecordBatchReader.from_batches(batch(table.empty()).schema, batches)


def _arrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise UnsupportedError(
            "record batches need pyarrow: pip install 'bedform[parquet]'"
        ) from None
    return pa
