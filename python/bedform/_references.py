"""Sets of references into other files: kerchunk's dictionaries and Parquet files, VirtualiZarr's.

The engine reads kerchunk's JSON; this module converts the other forms to it.
"""

from __future__ import annotations

import base64
import io
import json
import math
import operator
import os
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bedform import _internal, _json, _shown
from bedform._errors import (
    CorruptError,
    InvalidArgumentError,
    LimitExceededError,
    UnsupportedError,
    engine_call,
)
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

#: Most keys of a set in Parquet files, padding included.
_RECORDS_MAX = 1 << 25
#: Most rows of one Parquet file.
_RECORD_SIZE_MAX = 1 << 24
_METADATA_BYTES_MAX = 64 << 20
#: The same limit as in the engine.
_DOCUMENT_BYTES_MAX = 1 << 30
#: Bytes at both ends of metadata that are enough to recognize its format.
_END_BYTES = 4096
_DOCUMENTS = {".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"}
_COLUMNS = ("path", "offset", "size", "raw")


class References(str):
    """A set of references without a JSON file: the name, a ``str``, together with the document."""

    __slots__ = ("_base", "_compressed", "_document")

    _base: str
    #: The document as given, until it is opened.
    _document: bytes | None
    #: The compressed document, for opening it again in this or another process.
    _compressed: bytes

    @classmethod
    def of(cls, name: str, document: bytes, base: str) -> Self:
        """Creates references from a JSON document; ``base`` is the directory of relative paths."""
        made = cls(name)
        made._base, made._document, made._compressed = base, document, zlib.compress(document, 1)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), str(self), self._compressed, self._base))

    def open(self, options: dict[str, Any]) -> _internal.Store:
        """Opens the engine's handle."""
        opening = engine_call(_internal.Store.open_references, str(self))
        given, self._document = self._document, None
        document = zlib.decompress(self._compressed) if given is None else given
        name = _shown.encodable(str(self))
        return opening(name, document, self._base, None, _json.dump(options))


class ParquetReferences(References):
    """A directory of kerchunk's Parquet files, read again at each opening."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return (ParquetReferences, (str(self),))

    def open(self, options: dict[str, Any]) -> _internal.Store:
        """Opens the engine's handle."""
        path = Path(self).absolute()
        opening = engine_call(_internal.Store.open_references, str(self))
        name, document = _shown.encodable(str(self)), _document_of_parquet(path)
        return opening(name, document, path.parent, path, _json.dump(options))


def _restore(kind: type[References], name: str, compressed: bytes, base: str) -> References:
    made = kind(name)
    made._base, made._document, made._compressed = base, None, compressed
    return made


def references_of(given: Any) -> References | None:
    """Returns the references in a dictionary or a data set of VirtualiZarr; None for others."""
    name = "references in memory"
    if not (isinstance(given, dict) and _has_keys(given)):
        if not _is_virtual(given):
            return None
        # The accessor's newer name, and its older one.
        accessor = getattr(given, "vz", None) or given.virtualize
        given, name = accessor.to_kerchunk(format="dict"), "virtual data set"
    return References.of(name, _document_of(given, name), str(Path.cwd()))


def _has_keys(given: Mapping[Any, Any]) -> bool:
    """Whether a dictionary is a set of references: one of its keys suffices, as with files."""
    if isinstance(given.get("refs"), Mapping):
        return True
    names = (key.rpartition("/") for key in given if isinstance(key, str))
    return any(parent or name in _DOCUMENTS for parent, _, name in names)


def _is_virtual(given: Any) -> bool:
    """Whether ``given`` is a data set of xarray with arrays of VirtualiZarr."""
    if type(given).__module__.partition(".")[0] != "xarray" or not hasattr(given, "variables"):
        return False
    arrays = (getattr(variable, "_data", None) for variable in given.variables.values())
    return any(type(array).__module__.partition(".")[0] == "virtualizarr" for array in arrays)


def _document_of(given: Mapping[str, Any], name: str) -> bytes:
    keys = given.get("refs")
    if isinstance(keys, Mapping):
        document = {**given, "refs": {key: _plain(value) for key, value in keys.items()}}
    else:
        document = {key: _plain(value) for key, value in given.items()}
    try:
        return json.dumps(document, default=operator.index).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: it is no set of references: {error}") from None


def _plain(value: Any) -> Any:
    """Converts a value of a dictionary of references to JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"base64:{base64.b64encode(value).decode('ascii')}"
    # As text, since a document may have numbers that JSON lacks.
    return json.dumps(value) if isinstance(value, Mapping) else value


def external_roots(given: Any) -> bool | list[str]:
    """Returns ``allow_external`` with absolute paths.

    Raises
    ------
    InvalidArgumentError
        It is neither a truth value nor paths and URLs.
    """
    if isinstance(given, bool):
        return given
    roots = [given] if isinstance(given, (str, os.PathLike)) else given
    is_many = isinstance(roots, (Sequence, set, frozenset)) and not isinstance(roots, bytes)
    if not is_many or not all(isinstance(root, (str, os.PathLike)) for root in roots):
        raise InvalidArgumentError(
            f"allow_external must be True, False, or directories and URLs, not {given!r}"
        )
    return [absolute_root(os.fspath(root)) for root in roots]


def absolute_root(root: str) -> str:
    """Returns an absolute directory; URLs are unchanged."""
    return root if is_url(root) else str(Path(root).expanduser().absolute())


def is_parquet_references(where: str) -> bool:
    """Whether a directory has kerchunk's references in Parquet, by a key of their index.

    Consolidated metadata of Zarr v2 has the same file name. It is recognized by the ends of the
    file, without reading all of it.
    """
    try:
        with Path(where, ".zmetadata").open("rb") as file:
            ends = _ends_of(file)
            if b'"zarr_consolidated_format"' in ends and b'"record_size"' not in ends:
                return False
            file.seek(0)
            data = file.read(_METADATA_BYTES_MAX)
    except OSError:
        return False
    if len(data) == _METADATA_BYTES_MAX:
        # Too large for an index: opening it as one fails with a message.
        return b'"record_size"' in ends
    if b'"record_size"' not in data:
        return False
    try:
        index = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(index, dict) and "record_size" in index


def _ends_of(file: BinaryIO) -> bytes:
    """Returns the first and the last bytes of a file, separated by a line break."""
    first = file.read(_END_BYTES)
    file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
    return first + b"\n" + file.read(_END_BYTES)


def _document_of_parquet(path: Path) -> bytes:
    """Returns the references below ``path`` as one JSON document."""
    index = path / ".zmetadata"
    if index.stat().st_size > _METADATA_BYTES_MAX:
        raise LimitExceededError(f"{index}: it has more than {_METADATA_BYTES_MAX} bytes")
    try:
        found = json.loads(index.read_bytes())
        documents, size = found["metadata"], operator.index(found["record_size"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{index}: it is not the index of references in Parquet") from error
    if not isinstance(documents, dict) or not 0 < size <= _RECORD_SIZE_MAX:
        raise CorruptError(f"{index}: its record_size or metadata are none")
    arrays = {
        key.rpartition("/")[0]: value for key, value in documents.items() if _is_array(key, value)
    }
    grids = {name: _grid_of(name, array, index) for name, array in arrays.items()}
    if sum(math.prod(grid) for grid in grids.values()) > _RECORDS_MAX:
        raise LimitExceededError(f"{path}: there are more than {_RECORDS_MAX} references")
    read_rows = _parquet_reader()
    parts = [{key: json.dumps(value) for key, value in documents.items()}]
    found = (_keys_of(path / name, name, grid, size, read_rows) for name, grid in grids.items())
    return _joined(chain(parts, chain.from_iterable(found)), path)


def _joined(parts: Iterable[dict[str, Any]], path: Path) -> bytes:
    """Joins dictionaries into one JSON document; only its text is held in memory."""
    document = io.BytesIO()
    for part in filter(None, parts):
        document.write(b"," if document.tell() else b"{")
        document.write(json.dumps(part)[1:-1].encode())
        if document.tell() > _DOCUMENT_BYTES_MAX:
            raise LimitExceededError(
                f"{path}: its references have more than {_DOCUMENT_BYTES_MAX} bytes as JSON"
            )
    document.write(b"}" if document.tell() else b"{}")
    return document.getvalue()


def _is_array(key: str, value: Any) -> bool:
    return key.rpartition("/")[2] == ".zarray" and isinstance(value, dict)


def _grid_of(name: str, array: dict[str, Any], index: Path) -> tuple[int, ...]:
    """Returns the number of chunks of an array along each axis."""
    try:
        shape = [operator.index(count) for count in array["shape"]]
        chunks = [operator.index(count) for count in array["chunks"]]
    except (KeyError, TypeError) as error:
        raise CorruptError(f"{index}: the shape or chunks of {name!r} are none") from error
    if min(shape, default=0) < 0 or min(chunks, default=1) < 1 or len(shape) != len(chunks):
        raise CorruptError(f"{index}: the shape or chunks of {name!r} are none")
    return tuple(-(-count // chunk) for count, chunk in zip(shape, chunks, strict=True))


def _keys_of(
    directory: Path, name: str, grid: tuple[int, ...], size: int, read_rows: Any
) -> Iterator[dict[str, Any]]:
    """Iterates over the keys of an array, per file of ``size`` keys in C order."""
    count = math.prod(grid)
    prefix = f"{name}/" if name else ""
    for number in range(-(-count // size)):
        file = directory / f"refs.{number}.parq"
        # A missing file means that none of its chunks is stored.
        if not file.exists():
            continue
        first = number * size
        names = _chunk_names(grid, first, min(size, count - first))
        yield {
            prefix + chunk: value
            for chunk, row in zip(names, read_rows(file, size), strict=False)
            if (value := _value_of(*row)) is not None
        }


def _chunk_names(grid: tuple[int, ...], first: int, count: int) -> Iterable[str]:
    """Iterates over names of chunks in C order, starting with number ``first``."""
    if not grid:
        yield "0"
        return
    for number in range(first, first + count):
        places, rest = [], number
        for length in reversed(grid):
            rest, place = divmod(rest, length)
            places.append(str(place))
        yield ".".join(reversed(places))


def _value_of(path: Any, offset: Any, length: Any, raw: Any) -> Any:
    """Returns kerchunk's JSON value of a row; None for a chunk that is not stored."""
    if raw is not None:
        return _plain(raw if isinstance(raw, bytes) else str(raw).encode())
    if path is None:
        return None
    # Whole files have length 0.
    return [path, int(offset), int(length)] if length else [path]


def _parquet_reader() -> Any:
    """Returns a function that reads the rows of a file as tuples, with an installed library."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        pass
    else:
        return _pyarrow_rows
    try:
        import fastparquet  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            "references in Parquet are read by pyarrow or fastparquet: pip install pyarrow"
        ) from None
    return _fastparquet_rows


def _pyarrow_rows(file: Path, most: int) -> Iterable[tuple[Any, ...]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(file)
        _check_rows(file, opened.metadata.num_rows, most)
        table = opened.read(columns=[c for c in _COLUMNS if c in opened.schema_arrow.names])
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{file}: it is no file of references: {error}") from error
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return _rows(columns, table.num_rows)


def _fastparquet_rows(file: Path, most: int) -> Iterable[tuple[Any, ...]]:
    import fastparquet
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    try:
        with file.open("rb") as data:
            opened = fastparquet.ParquetFile(data)
            _check_rows(file, opened.count(), most)
            frame = opened.to_pandas(columns=[name for name in _COLUMNS if name in opened.columns])
    except CorruptError:
        raise
    except Exception as error:
        raise CorruptError(f"{file}: it is no file of references: {error}") from error
    columns = {
        name: [None if _is_missing(pd, value) else value for value in frame[name].tolist()]
        for name in frame
    }
    return _rows(columns, len(frame))


def _check_rows(file: Path, count: int, most: int) -> None:
    if count > most:
        raise CorruptError(f"{file}: it has more than the {most} rows of a record")


def _is_missing(pd: Any, value: Any) -> bool:
    return value is None or (not isinstance(value, (bytes, str)) and bool(pd.isna(value)))


def _rows(columns: dict[str, list[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    nothing = [None] * count
    return zip(*(columns.get(name, nothing) for name in _COLUMNS), strict=True)
