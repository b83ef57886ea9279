"""Storage of HDF5 datasets, in the form of a chunk map's description."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt

from bedform._foreign_attribute_walk import endian_of
from bedform._foreign_walk import outside_storage
from bedform._limits import limit_met

__all__ = ["ChunkTable", "H5pyElementType", "describe_encoding", "describe_storage", "element_type"]

#: Chunk indexes, offsets and lengths (uint64), and filter masks (uint32).
ChunkTable = tuple[
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint32],
]

#: The named types of a file.
NamedTypes: TypeAlias = list[tuple[str, h5py.h5t.TypeID]]

_FIXED_TEXT_BYTES_MAX: Final = 1 << 20
#: The engine's own limit in bytes; HDF5 reads larger chunks.
_CHUNK_BYTES_MAX: Final = 2 << 30
_FILTERS_MAX: Final = 16
_ZSTD: Final = 32015
_BLOSC: Final = 32001
_BLOSC_COMPRESSORS: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


@dataclass(frozen=True)
class H5pyElementType:
    """The type of a dataset's elements."""

    #: NumPy's name with the byte order, `str` for text of variable length, or h5py's name.
    words: str
    #: The map's name; None if the engine lacks the type.
    data_type: str | None
    #: `little` or `big`.
    endian: str
    #: NumPy's type; None where it has none.
    dtype: np.dtype[Any] | None
    #: The reason why only the native library can read it; None if stored bytes are elements.
    native: str | None
    #: Name and members, if it is an enumeration that is not a bool.
    enumeration: dict[str, Any] | None = None


def element_type(dataset: h5py.Dataset, named_types: NamedTypes) -> H5pyElementType:
    """Returns the element type, and whether the stored bytes are elements as they are."""
    stored = dataset.id.get_type()
    try:
        dtype = dataset.dtype
    except (TypeError, ValueError, OSError) as error:
        if limit_met(error):
            raise
        return H5pyElementType("?", None, "little", None, "its type has no NumPy equivalent")
    text = h5py.check_string_dtype(dtype)
    if text is not None and text.length is None:
        return H5pyElementType("str", "O", "little", dtype, "text of any length")
    if dtype.hasobject or dtype.names or dtype.subdtype:
        return H5pyElementType(str(dtype), None, "little", dtype, f"elements of type {dtype}")
    known = dtype.kind in "biuf" or dtype.str[1:] in {"c8", "c16"}
    if dtype.str[1:] in {"f12", "f16"} or not (known or text is not None):
        return H5pyElementType(dtype.str, None, "little", dtype, f"elements of type {dtype}")
    native = None
    if text is not None:
        if dtype.itemsize > _FIXED_TEXT_BYTES_MAX:
            return H5pyElementType(dtype.str, None, "little", dtype, "very long text")
        if dtype.itemsize != 1 and stored.get_strpad() != h5py.h5t.STR_NULLPAD:
            native = "text that is not padded with zeros"
    elif stored.get_size() != dtype.itemsize or not stored.equal(
        h5py.h5t.py_create(dtype, logical=True)
    ):
        native = "numbers in a form that NumPy does not have"
    enumeration = _enumeration(stored, dtype, named_types)
    endian = endian_of(dtype)
    return H5pyElementType(dtype.str, dtype.str[1:], endian, dtype, native, enumeration)


def _enumeration(
    stored: h5py.h5t.TypeID, dtype: np.dtype[Any], named_types: NamedTypes
) -> dict[str, Any] | None:
    values = h5py.check_enum_dtype(dtype)
    if values is None:
        return None
    # A dataset does not record its named type: use the first equal one.
    return {
        "name": next((name for name, known in named_types if stored.equal(known)), ""),
        "members": [(str(member), str(int(value))) for member, value in values.items()],
    }


def describe_encoding(
    dataset: h5py.Dataset, element: H5pyElementType, *, unlabeled: bool
) -> dict[str, Any]:
    """Returns the stored encoding of a dataset: chunks, filters, enumeration."""
    properties = dataset.id.get_create_plist()
    chunked = properties.get_layout() == h5py.h5d.CHUNKED
    return {
        "dtype": element.words,
        "chunks": list(properties.get_chunk()) if chunked else None,
        "filters": [{"id": code, "values": values} for code, values in _filters(properties)],
        "enumeration": element.enumeration,
        "unlabeled": unlabeled,
    }


def _filters(properties: h5py.h5p.PropDCID) -> list[tuple[int, list[int]]]:
    found = (properties.get_filter(i) for i in range(properties.get_nfilters()))
    return [(int(code), [int(value) for value in values]) for code, _, values, _ in found]


def describe_storage(
    dataset: h5py.Dataset, element: H5pyElementType, shape: tuple[int, ...], *, elsewhere: bool
) -> tuple[str | dict[str, Any], ChunkTable | None]:
    """Returns the byte ranges of a dataset, and its chunks if HDF5 is not needed to read them.

    Parameters
    ----------
    dataset
        The dataset.
    element
        The result of `element_type`.
    shape
        The shape in NetCDF's view, which may exceed the dataset's along growing axes.
    elsewhere
        Whether the dataset lies in another file.
    """
    properties = dataset.id.get_create_plist()
    outside = "it lies in another file" if elsewhere else outside_storage(dataset)
    reason = outside or element.native
    if reason is not None or element.dtype is None:
        return _native(reason or "its type has no NumPy equivalent"), None
    if 0 in shape:
        return "empty", None
    layout = properties.get_layout()
    if layout == h5py.h5d.CHUNKED:
        return _describe_chunks(dataset, element.dtype.itemsize, shape)
    size = math.prod(shape) * element.dtype.itemsize
    if layout == h5py.h5d.COMPACT:
        stored = np.empty(dataset.shape, element.dtype)
        everything = h5py.h5s.ALL
        dataset.id.read(everything, everything, stored, dataset.id.get_type())
        return {"compact": {"data": stored.tobytes().hex()}}, None
    if layout != h5py.h5d.CONTIGUOUS:
        return _native("a layout that is not known"), None
    offset = dataset.id.get_offset()
    if offset is None:
        return "empty", None
    if dataset.id.get_storage_size() != size:
        return _native("its storage has another size than its shape"), None
    return {"contiguous": {"offset": offset, "length": size}}, None


def _native(reason: str) -> dict[str, Any]:
    return {"native": {"reason": reason}}


def _describe_chunks(
    dataset: h5py.Dataset, itemsize: int, shape: tuple[int, ...]
) -> tuple[dict[str, Any], ChunkTable | None]:
    properties = dataset.id.get_create_plist()
    chunk_shape = properties.get_chunk()
    chunk_bytes = math.prod(chunk_shape) * itemsize
    codecs = []
    for code, values in _filters(properties):
        codec = _codec(code, values)
        if codec is None:
            return _native(f"filter {code}, which Bedform does not have"), None
        codecs.append(codec)
    if chunk_bytes > _CHUNK_BYTES_MAX or len(codecs) > _FILTERS_MAX:
        return _native("chunks or filters over the limits"), None
    growing = [axis for axis, size in enumerate(dataset.maxshape) if size is None]
    if len(growing) == 1 and growing != [0]:
        # For extensible array indexes of such datasets HDF5 returns wrong chunk offsets.
        return _native("HDF5 does not say where its chunks lie"), None
    grown = zip(dataset.shape, shape, chunk_shape, strict=True)
    if any(own != seen and own % chunk for own, seen, chunk in grown):
        # HDF5 does not define the bytes of a chunk beyond the end of its dataset.
        return _native("it is shorter than its dimension and ends inside a chunk"), None
    table = _chunk_table(dataset, chunk_shape, shape)
    if codecs and _has_whole_edge_chunk(table, shape, chunk_shape, chunk_bytes):
        return _native("its chunks at the edge may be stored without filters"), None
    described = {"chunk_shape": list(chunk_shape), "codecs": codecs}
    return {"chunked": described}, table


def _codec(code: int, values: list[int]) -> str | dict[str, Any] | None:
    """Returns a filter as a codec of the map; None if the engine lacks it."""
    if code == h5py.h5z.FILTER_DEFLATE and values and values[0] <= 9:
        return {"zlib": {"level": values[0]}}
    if code == h5py.h5z.FILTER_SHUFFLE and values and values[0]:
        return {"shuffle": {"element_size": values[0]}}
    if code == h5py.h5z.FILTER_FLETCHER32:
        return "fletcher32"
    if code == _ZSTD:
        level = values[0] if values else 3
        return {"zstd": {"level": level - (1 << 32) if level >= 1 << 31 else level}}
    if code == _BLOSC and len(values) >= 4:
        level, shuffle, compressor = (*values[4:7], *(5, 1, 0)[len(values[4:7]) :])
        if compressor >= len(_BLOSC_COMPRESSORS) or shuffle > 2 or not 1 <= values[2] <= 255:
            return None
        name = _BLOSC_COMPRESSORS[compressor]
        if name == "snappy":
            return None
        return {
            "blosc": {
                "compressor": name,
                "level": min(level, 9),
                "shuffle": shuffle,
                "type_size": values[2],
                "block_size": 0,
            }
        }
    return None


def _chunk_table(
    dataset: h5py.Dataset, chunk_shape: tuple[int, ...], shape: tuple[int, ...]
) -> ChunkTable:
    """Returns all chunks inside the shape, ascending by their index in the grid."""
    found: list[Any] = []
    if hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(found.append)
    else:
        found.extend(dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks()))
    rank = len(shape)
    corners = np.array([chunk.chunk_offset for chunk in found], np.int64).reshape(-1, rank)
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunk_shape, strict=True)]
    coordinates = corners // np.array(chunk_shape, np.int64)
    inside = np.all(coordinates < np.array(grid, np.int64), axis=1)
    strides = np.cumprod([1, *grid[:0:-1]], dtype=np.int64)[::-1]
    indexes = (coordinates * strides).sum(axis=1)
    order = np.argsort(indexes, kind="stable")
    order = order[inside[order]]
    return (
        indexes[order].astype(np.uint64),
        np.array([chunk.byte_offset for chunk in found], np.uint64)[order],
        np.array([chunk.size for chunk in found], np.uint64)[order],
        np.array([chunk.filter_mask for chunk in found], np.uint32)[order],
    )


def _has_whole_edge_chunk(
    table: ChunkTable, shape: tuple[int, ...], chunk_shape: tuple[int, ...], chunk_bytes: int
) -> bool:
    """Whether an edge chunk has the byte count of an unfiltered chunk.

    HDF5 can store edge chunks without filters, and does not mark that in the filter mask.
    """
    indexes, _, lengths, masks = table
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunk_shape, strict=True)]
    suspect = indexes[(lengths == chunk_bytes) & (masks == 0)]
    coordinates = np.unravel_index(suspect.astype(np.int64), grid)
    sizes = zip(coordinates, shape, chunk_shape, strict=True)
    return any(bool(np.any((at + 1) * chunk > size)) for at, size, chunk in sizes)
