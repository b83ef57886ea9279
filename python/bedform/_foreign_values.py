"""Arrays encoded for a pipe between processes, in a form that cannot carry code.

A damaged file may take over the process that reads it. So its answers are a header in JSON and a
body of plain bytes, and a mismatch of the two is an error.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, AnyStr, Final

import numpy as np
import numpy.typing as npt

from bedform._foreign_names import ForeignFileError

__all__ = ["decode_values", "encode_values", "split_texts"]

Values = npt.NDArray[Any]
_DEPTH_MAX: Final = 32


def encode_values(values: Values, parts: list[bytes]) -> dict[str, Any]:
    """Returns the header of an array, and appends its bytes to `parts`.

    Raises
    ------
    ForeignFileError
        The elements are references, which have no meaning outside their file.
    """
    header: dict[str, Any] = {"shape": list(values.shape)}
    dtype = values.dtype
    if not dtype.hasobject:
        parts.append(np.ascontiguousarray(values).tobytes())
        return {**header, "dtype": _described(dtype)}
    if dtype.names is not None:
        fields = [(name, encode_values(values[name], parts)) for name in dtype.names]
        return {**header, "fields": fields}
    items = values.ravel().tolist()
    if all(isinstance(item, str) for item in items):
        return {**header, **_encode_texts(items, parts)}
    if all(isinstance(item, bytes) for item in items):
        return {**header, **_encode_bytes("bytes", items, parts)}
    if items and all(_is_plain_list(item, items[0]) for item in items):
        lengths = np.array([len(item) for item in items], "<u8")
        parts.append(lengths.tobytes())
        parts.extend(np.ascontiguousarray(item).tobytes() for item in items)
        kind = {"kind": "lists", "of": _described(items[0].dtype)}
        return {**header, **kind, "bytes": int(lengths.sum()) * items[0].dtype.itemsize}
    if all(isinstance(item, np.ndarray) for item in items):
        return {**header, "items": [encode_values(item, parts) for item in items]}
    message = "its elements are references, which mean nothing outside: read it with h5py"
    raise ForeignFileError(message, "Unsupported")


def _is_plain_list(item: Any, first: Any) -> bool:
    return (
        isinstance(item, np.ndarray)
        and item.ndim == 1
        and not item.dtype.hasobject
        and item.dtype == first.dtype
    )


def _described(dtype: np.dtype[Any]) -> Any:
    """Returns a type as JSON: NumPy's name, or lists of names, types and offsets."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _described(base), "shape": list(shape)}
    if dtype.names is None:
        return dtype.str
    fields: Any = dtype.fields
    return {
        "names": list(dtype.names),
        "formats": [_described(fields[name][0]) for name in dtype.names],
        "offsets": [fields[name][1] for name in dtype.names],
        "itemsize": dtype.itemsize,
    }


def _encode_texts(texts: list[str], parts: list[bytes]) -> dict[str, Any]:
    whole = "".join(texts)
    if not whole.isascii():
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        return _encode_bytes("text", encoded, parts)
    parts.append(np.fromiter(map(len, texts), "<u8", len(texts)).tobytes())
    parts.append(whole.encode())
    return {"kind": "text", "bytes": len(whole)}


def _encode_bytes(kind: str, items: list[bytes], parts: list[bytes]) -> dict[str, Any]:
    lengths = np.fromiter(map(len, items), "<u8", len(items))
    parts.append(lengths.tobytes())
    parts.append(b"".join(items))
    return {"kind": kind, "bytes": int(lengths.sum())}


class _Body:
    """The unread bytes of a body."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.data):
            message = "an answer that is shorter than its header says"
            raise ValueError(message)
        taken, self.data = self.data[:count], self.data[count:]
        return taken


def decode_values(header: dict[str, Any], data: memoryview) -> Values:
    """Returns the array from the header and bytes of `encode_values`.

    Raises
    ------
    ValueError, TypeError, KeyError
        The header and the bytes do not match.
    """
    return _decode(header, _Body(data), _DEPTH_MAX)


def _decode(header: dict[str, Any], body: _Body, depth_left: int) -> Values:
    if depth_left == 0:
        message = "an answer that is nested too deeply"
        raise ValueError(message)
    shape = tuple(int(size) for size in header["shape"])
    count = math.prod(shape)
    if "dtype" in header:
        dtype = _plain_dtype(header["dtype"])
        return _numbers(body.take(count * dtype.itemsize), dtype, count).reshape(shape)
    if "fields" in header:
        return _decode_fields(header["fields"], shape, body, depth_left - 1)
    values = np.empty(count, object)
    items = header.get("items")
    if items is not None:
        for position, item in enumerate(items):
            values[position] = _decode(item, body, depth_left - 1)
        return values.reshape(shape)
    lengths = np.frombuffer(body.take(8 * count), "<u8").tolist()
    of_items = body.take(int(header["bytes"]))
    if header["kind"] == "lists":
        dtype, lists = _plain_dtype(header["of"]), _Body(of_items)
        for position, length in enumerate(lengths):
            numbers = _numbers(lists.take(length * dtype.itemsize), dtype, length)
            values[position] = numbers.copy()
    elif sum(lengths) == len(of_items):
        split = split_texts if header["kind"] == "text" else _pieces
        values[:] = split(bytes(of_items), lengths)
    else:
        message = "texts of another length than their header says"
        raise ValueError(message)
    return values.reshape(shape)


def _pieces(whole: AnyStr, lengths: list[int]) -> list[AnyStr]:
    ends: list[int] = list(itertools.accumulate(lengths))
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def split_texts(whole: bytes, lengths: list[int]) -> list[str]:
    """Splits concatenated UTF-8 texts; invalid bytes become surrogate escapes."""
    if whole.isascii():
        return _pieces(whole.decode(), lengths)
    return [piece.decode("utf-8", "surrogateescape") for piece in _pieces(whole, lengths)]


def _numbers(data: memoryview, dtype: np.dtype[Any], count: int) -> Values:
    if dtype.itemsize == 0:
        return np.zeros(count, dtype)
    numbers: Values = np.frombuffer(data, dtype, count)
    return numbers if numbers.flags.aligned else numbers.copy()


def _plain_dtype(described: Any) -> np.dtype[Any]:
    dtype = _dtype_of(described)
    if dtype.hasobject:
        message = "an answer of objects"
        raise ValueError(message)
    return dtype


def _decode_fields(
    fields: list[tuple[str, dict[str, Any]]], shape: tuple[int, ...], body: _Body, depth_left: int
) -> Values:
    found = [(name, _decode(header, body, depth_left)) for name, header in fields]
    dtype = np.dtype([(name, part.dtype, part.shape[len(shape) :]) for name, part in found])
    values = np.empty(shape, dtype)
    for name, part in found:
        values[name] = part
    return values


def _dtype_of(described: Any) -> np.dtype[Any]:
    if isinstance(described, str):
        return np.dtype(described)
    if "base" in described:
        part: Any = (_dtype_of(described["base"]), tuple(described["shape"]))
        array: np.dtype[Any] = np.dtype(part)
        return array
    fields: Any = {**described, "formats": [_dtype_of(one) for one in described["formats"]]}
    made: np.dtype[Any] = np.dtype(fields)
    return made
