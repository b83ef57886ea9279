"""Readers that answer the questions of `query`, each with its own copy of the field.

A reader writes a file, store or table once (`prepare`), and answers a question from it: it opens,
asks, and closes. A `way` is one of its settings; the fastest counts. Chunks and tiles that
serve boxes are cubes of 32 elements along each axis, in shards of 128.
"""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.harness.peers import ZARRS_PIPELINE
from benchmarks.queries.fields import DIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Answer = int | Values

ARRAY = "v"
#: TensorStore maps files into memory.
MAPPED = {"file_io_mode": {"mode": "memmap"}}
CHUNK, SHARD = 32, 128
#: Elements that NumPy compares at once: they and the comparison stay in the cache of a core.
SLAB = 1 << 18
#: Rows of a row group: DuckDB's own default.
ROW_GROUP = 122_880
#: Elements along each axis of a block of Dask, and of a part of TileDB's answer.
BLOCK = 128


@dataclass(frozen=True)
class Question:
    """Elements above a bound, or up to a second one; their number, or their values.

    They are those of a box, or of the whole array.
    """

    bound: float
    box: tuple[tuple[int, int], ...] | None
    wants: Literal["count", "values"]
    top: float | None = None

    def slices(self) -> tuple[slice, ...]:
        """Return the box as slices; the whole array without one."""
        return (
            (slice(None),) * len(DIMS) if self.box is None else tuple(slice(*b) for b in self.box)
        )

    def of(self, part: Values) -> Answer:
        """Returns the answer for one part of the array."""
        found = self.holds(part)
        return int(np.count_nonzero(found)) if self.wants == "count" else part[found]

    def holds(self, part: Any) -> Any:
        """Returns where the condition holds, for NumPy's arrays and Dask's."""
        above = part > self.bound
        return above if self.top is None else above & (part <= self.top)

    def joined(self, answers: list[Answer]) -> Answer:
        """Returns the answer of all parts together."""
        return int(sum(answers)) if self.wants == "count" else np.concatenate(answers)

    def expression(self) -> str:
        """Returns the condition in Python's form."""
        words = f"{ARRAY} > {self.bound!r}"
        return words if self.top is None else f"{words} and {ARRAY} <= {self.top!r}"

    def of_values(self) -> list[str]:
        """Returns the conditions on values as SQL."""
        # With an exponent it is a number of 64 bits; without one, it is a decimal number.
        words = [f"{ARRAY} > {self.bound:.17e}"]
        return words if self.top is None else [*words, f"{ARRAY} <= {self.top:.17e}"]

    def condition(self) -> str:
        """Returns the whole condition as SQL."""
        words = self.of_values()
        for dim, (start, stop) in zip(DIMS, self.box or (), strict=False):
            words.append(f"{dim} >= {start} AND {dim} < {stop}")
        return " AND ".join(words)

    def columns(self) -> str:
        """Return the columns of an SQL query."""
        return "count(*)" if self.wants == "count" else ARRAY


@dataclass(frozen=True)
class Reader:
    """A reader of one copy of the field."""

    name: str
    package: str
    #: The name of the copy in the folder of the field.
    copy: str
    prepare: Callable[[Path, Values], None]
    answers: dict[str, Callable[[Path, Any], Any]]
    #: Whether the values have the order of the array.
    is_ordered: bool = True
    #: Whether it reads boxes alone: a whole array is a scan that others do as well.
    is_for_boxes: bool = False
    #: Whether Bedform is compared with it.
    is_peer: bool = True
    #: Whether it answers once if it is much slower than the fastest peer.
    may_stop: bool = True

    def is_installed(self) -> bool:
        """Whether its package is there; DuckDB's table is written by another one."""
        packages = [self.package, *(["pyarrow"] if self.name == TABLE else [])]
        return all(importlib.util.find_spec(one) for one in packages)


def cores() -> int:
    """Return the number of cores of this process."""
    return len(os.sched_getaffinity(0))


# Bedform ------------------------------------------------------------------------------------------


def write_ours(path: Path, values: Values) -> None:
    """Write a store with the default layout and codecs."""
    import bedform as bf

    with bf.create(path) as store:
        store.create_array(ARRAY, data=values, dims=DIMS)


def ask_bedform(path: Path, question: Question) -> Answer:
    """Answer by a query."""
    import bedform as bf

    with bf.open(path) as store:
        query = store.query(question.expression(), region=question.slices())
        return query.count() if question.wants == "count" else query.values(ARRAY)


def filter_bedform(path: Path, question: Question) -> Answer:
    """Read by Bedform, and filter by NumPy."""
    import bedform as bf

    with bf.open(path) as store:
        return question.of(np.asarray(store[ARRAY][question.slices()]))


# NumPy on a memory map ----------------------------------------------------------------------------


def nothing(path: Path, values: Values) -> None:
    """Prepare nothing: the field itself is read."""


def ask_numpy(path: Path, question: Question, threads: int) -> Answer:
    """Compare slab after slab of a memory map."""
    part = np.load(path, mmap_mode="r")[question.slices()]
    rows = max(1, SLAB // max(1, part[0].size))
    slabs = (part[first : first + rows] for first in range(0, len(part), rows))
    if threads == 1:
        return question.joined([question.of(slab) for slab in slabs])
    with ThreadPoolExecutor(threads) as pool:
        return question.joined(list(pool.map(question.of, slabs)))


# Stores of cubes ----------------------------------------------------------------------------------


def write_cubes(path: Path, values: Values) -> None:
    """Write a raw Zarr store, by TensorStore."""
    import tensorstore as ts

    chunks = [min(CHUNK, length) for length in values.shape]
    shards = [
        min(SHARD, length // chunk * chunk)
        for chunk, length in zip(chunks, values.shape, strict=True)
    ]
    inner = [{"name": "bytes", "configuration": {"endian": "little"}}]
    sharding = {"chunk_shape": chunks, "codecs": inner}
    metadata = {
        "shape": values.shape,
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shards}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "dimension_names": DIMS,
    }
    path.mkdir()
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / ARRAY}/"}}
    array = ts.open({**spec, "metadata": metadata, "create": True}).result()
    for start in range(0, len(values), shards[0]):
        stop = min(start + shards[0], len(values))
        array[start:stop] = values[start:stop]


def filter_tensorstore(path: Path, question: Question, context: dict[str, Any]) -> Answer:
    """Read by TensorStore, and filter by NumPy."""
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / ARRAY}/"}}
    spec["context"] = context
    array = ts.open(spec, read=True).result()
    return question.of(np.asarray(array[question.slices()].read().result()))


def by_zarrs(ask: Callable[[Path, Question], Answer]) -> Callable[[Path, Question], Answer]:
    """Returns the same answer, for which zarr-python decodes by zarrs."""

    def answer(path: Path, question: Question) -> Answer:
        import zarr

        with zarr.config.set(ZARRS_PIPELINE):
            return ask(path, question)

    return answer


def filter_zarr(path: Path, question: Question) -> Answer:
    """Read by zarr-python, a row of shards at a time, and filter by NumPy."""
    import zarr

    array: Any = zarr.open_array(path / ARRAY, mode="r")
    return question.joined(
        [question.of(np.asarray(array[part])) for part in parts(question, array.shape, SHARD)]
    )


def as_dataset(path: Path, question: Question) -> Any:
    """Opens the store by xarray, without Dask, and selects the box."""
    import xarray as xr

    opened = xr.open_zarr(path, chunks=None, consolidated=False)
    return opened.isel(dict(zip(DIMS, question.slices(), strict=True)))


def ask_dask(path: Path, question: Question, edge: int) -> Answer:
    """Count or filter by Dask, with as many threads as cores."""
    blocks = as_dataset(path, question).chunk(dict.fromkeys(DIMS, edge))[ARRAY].data
    holds = question.holds(blocks)
    asked = holds.sum() if question.wants == "count" else blocks[holds]
    with ThreadPoolExecutor(cores()) as pool:
        found = asked.compute(scheduler="threads", pool=pool)
    return int(found) if question.wants == "count" else np.asarray(found)


def ask_xarray_sql(path: Path, question: Question) -> Answer:
    """Ask in SQL through DataFusion; xarray selects the box."""
    import xarray_sql

    context = xarray_sql.XarrayContext()
    chunks = {DIMS[0]: BLOCK, DIMS[1]: BLOCK, DIMS[2]: BLOCK}
    context.from_dataset("f", as_dataset(path, question), chunks=chunks)
    # Its numbers are ordered with NaN at the end.
    where = " AND ".join([*question.of_values(), f"NOT isnan({ARRAY})"])
    found = context.sql(f"SELECT {question.columns()} FROM f WHERE {where}")  # noqa: S608
    column = found.to_arrow_table().column(0).to_numpy()
    return int(column[0]) if question.wants == "count" else column


# Tables -------------------------------------------------------------------------------------------


def write_table(path: Path, values: Values) -> None:
    """Write Parquet of indexes and values, sorted by value; missing values are null, at the end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = np.asarray(values).reshape(-1)
    order = np.argsort(flat)
    schema = pa.schema([*((dim, pa.uint16()) for dim in DIMS), (ARRAY, pa.float64())])
    options = {"use_dictionary": list(DIMS), "compression": "snappy"}
    with pq.ParquetWriter(path, schema, **options) as target:
        for first in range(0, len(order), ROW_GROUP):
            rows = order[first : first + ROW_GROUP]
            places = np.unravel_index(rows, values.shape)
            columns = [pa.array(one.astype(np.uint16)) for one in places]
            columns.append(pa.array(flat[rows], from_pandas=True))
            target.write_table(pa.table(columns, schema=schema), row_group_size=ROW_GROUP)


def ask_duckdb(path: Path, question: Question) -> Answer:
    """Ask in SQL; DuckDB leaves out row groups by their least and greatest values."""
    import duckdb

    select = f"SELECT {question.columns()} FROM '{path}' WHERE {question.condition()}"  # noqa: S608
    with duckdb.connect() as connection:
        # Without the order of the file it need not wait for earlier row groups.
        connection.execute("SET preserve_insertion_order = false")
        found = connection.execute(select).fetchnumpy()
    column = np.asarray(next(iter(found.values())))
    return int(column[0]) if question.wants == "count" else column


# TileDB -------------------------------------------------------------------------------------------


def write_tiledb(path: Path, values: Values) -> None:
    """Write a dense array of raw tiles."""
    import tiledb

    dims = [
        tiledb.Dim(name, domain=(0, length - 1), tile=min(CHUNK, length), dtype=np.uint32)
        for name, length in zip(DIMS, values.shape, strict=True)
    ]
    attribute = tiledb.Attr(ARRAY, dtype=np.float64)
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[attribute])
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[:] = np.asarray(values)


def ask_tiledb(path: Path, question: Question, rows: int) -> Answer:
    """Ask with a condition; elements that do not match come as the fill value, NaN."""
    import tiledb

    with tiledb.open(str(path)) as array:
        query = array.query(attrs=[ARRAY], cond=question.expression())
        return question.joined(
            [question.of(query[part][ARRAY]) for part in parts(question, array.shape, rows)]
        )


def parts(question: Question, shape: tuple[int, ...], rows: int) -> Iterator[tuple[slice, ...]]:
    """Yield parts of the box, of at most so many rows that end with tiles."""
    first, *rest = (slice(*one.indices(n)) for one, n in zip(question.slices(), shape, strict=True))
    start = first.start
    while start < first.stop:
        stop = min(first.stop, (start // rows + 1) * rows)
        yield (slice(start, stop), *rest)
        start = stop


def own(
    name: str,
    copy: str,
    prepare: Callable[[Path, Any], None],
    answer: Callable[[Path, Any], Any],
) -> Reader:
    """Returns Bedform as a reader: no peer, in all rounds."""
    ways = {"query": answer}
    return Reader(name, "bedform", copy, prepare, ways, is_peer=False, may_stop=False)


#: Bedform with an index and without, and the readers that prepare nothing or sort.
OURS, SCAN, PLAIN, TABLE = "bedform", "bedform, scan", "numpy, map", "duckdb"
READERS = (
    own(OURS, "ours.zarr", write_ours, ask_bedform),
    # The same store, by another name, for which no index is built.
    own(SCAN, "scan.zarr", nothing, ask_bedform),
    Reader(
        PLAIN,
        "numpy",
        "field.npy",
        nothing,
        {
            "serial": lambda path, question: ask_numpy(path, question, 1),
            "threads": lambda path, question: ask_numpy(path, question, cores()),
        },
        may_stop=False,
    ),
    Reader(
        "xarray + dask",
        "dask",
        "cubes.zarr",
        write_cubes,
        {
            "128^3": lambda path, question: ask_dask(path, question, BLOCK),
            "256^3": lambda path, question: ask_dask(path, question, 2 * BLOCK),
            "256^3, zarrs": by_zarrs(lambda path, question: ask_dask(path, question, 2 * BLOCK)),
        },
        is_ordered=False,
    ),
    Reader(
        TABLE,
        "duckdb",
        "sorted.parquet",
        write_table,
        {"sorted": ask_duckdb},
        is_ordered=False,
    ),
    Reader(
        "tiledb",
        "tiledb",
        "tiles",
        write_tiledb,
        {
            "whole": lambda path, question: ask_tiledb(path, question, 1 << 30),
            "parts": lambda path, question: ask_tiledb(path, question, CHUNK),
        },
    ),
    Reader(
        "xarray-sql",
        "xarray_sql",
        "cubes.zarr",
        write_cubes,
        {"zarr": ask_xarray_sql, "zarrs": by_zarrs(ask_xarray_sql)},
        is_ordered=False,
    ),
    Reader(
        "bedform + numpy",
        "bedform",
        "scan.zarr",
        nothing,
        {"read": filter_bedform},
        is_for_boxes=True,
    ),
    Reader(
        "tensorstore + numpy",
        "tensorstore",
        "cubes.zarr",
        write_cubes,
        {
            "read": lambda path, question: filter_tensorstore(path, question, {}),
            "map": lambda path, question: filter_tensorstore(path, question, MAPPED),
        },
        is_for_boxes=True,
    ),
    Reader(
        "zarr-python + numpy",
        "zarr",
        "cubes.zarr",
        write_cubes,
        {"zarr": filter_zarr, "zarrs": by_zarrs(filter_zarr)},
    ),
)
