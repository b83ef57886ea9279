"""Sets of references as kerchunk's Parquet: the tables of fsspec's ``LazyReferenceMapper``.

pyarrow writes them, one file for each 100,000 chunks of an array.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from bedform import _internal

#: Rows of one file, as kerchunk writes them.
_RECORD_SIZE: Final = 100_000


def write_tables(made: _internal.ReferenceSet, place: Path) -> None:
    """Writes the tables of a set into an empty directory."""
    from pyarrow import parquet

    documents = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in made.documents(2))
    index = f'{{"metadata": {{{documents}}}, "record_size": {_RECORD_SIZE}}}'
    (place / ".zmetadata").write_text(index, encoding="utf-8")
    names = [name for name, _ in made.files()]
    for number, array in enumerate(json.loads(made.summary())["arrays"]):
        directory = place / array["path"]
        directory.mkdir(parents=True, exist_ok=True)
        elements = made.elements(number)
        count = made.chunk_count(number)
        for first in range(0, count, _RECORD_SIZE):
            rows = (first, min(first + _RECORD_SIZE, count))
            table = (
                _table(made, number, rows, names) if elements is None else _stored_table(elements)
            )
            file = directory / f"refs.{first // _RECORD_SIZE}.parq"
            parquet.write_table(table, file, compression="zstd")


def _stored_table(elements: bytes) -> Any:
    """Returns the table of an array whose one chunk is stored in it."""
    import pyarrow as pa

    return pa.table({"raw": pa.array([elements], pa.binary())})


def _table(
    made: _internal.ReferenceSet, number: int, rows: tuple[int, int], names: list[str]
) -> Any:
    """Returns the table of some chunks of an array; a chunk that is not stored has no path."""
    import pyarrow as pa

    _, files, offsets, lengths = made.rows(number, *rows)
    at = np.frombuffer(files, "i4")
    paths = pa.DictionaryArray.from_arrays(pa.array(at, mask=at < 0), pa.array(names, pa.string()))
    # fastparquet returns numbers that may be missing as floats: statistics say that none is.
    numbers = [pa.field(name, pa.int64(), nullable=False) for name in ("offset", "size")]
    return pa.table(
        [paths.cast(pa.string()), np.frombuffer(offsets, "i8"), np.frombuffer(lengths, "i8")],
        schema=pa.schema([pa.field("path", pa.string()), *numbers]),
    )
