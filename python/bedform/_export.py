"""Export of a store's committed data, settled or not, as one NetCDF-4 or HDF5 file.

Promises
--------
- The file appears under its name only when it is complete and durable.
- Blocks of values stay within ``memory`` for stores of any size.
- xarray reads the same values from a NetCDF file as from the store.

How
---
The export writes through ``h5py`` to a hidden name beside the target. It writes array by array, in
blocks of whole chunks of the store. NetCDF-4 is HDF5 with dimensions as datasets that arrays refer
to. A dimension that is the first one of all its arrays is a record dimension: unlimited. Types that
NetCDF lacks are written in xarray's form. Truth values become bytes, marked by an attribute; text
of fixed length gets an axis for its characters.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _internal
from ._errors import (
    InvalidArgumentError,
    UnsupportedError,
    engine_call,
)
from ._hdf5_output import hdf5_output, noted_interrupts
from ._integers import byte_count
from ._location import location

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from ._array import Array
    from ._store import Store

    Progress = Callable[[int, int], object]

SUFFIXES = {".nc": True, ".nc4": True, ".cdf": True, ".h5": False, ".hdf5": False, ".he5": False}
# The NetCDF library's name of a dataset for a dimension without a variable.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.%10d"
# The fastest level of Deflate: higher ones cost much time and save few bytes.
_LEVEL = 1
_NETCDF_KINDS = "biuf"
# The largest chunk of HDF5.
_CHUNK_BYTES_MAX = (1 << 32) - 1


@dataclass(frozen=True)
class Export:
    """Counts of one call of :func:`export`."""

    target: str
    arrays: tuple[str, ...]
    byte_count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def export(
    store: Store,
    target: str | os.PathLike[str],
    *,
    memory: int | str = "512 MiB",
    arrays: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Export:
    """Write a store as one file: NetCDF-4 (``.nc``), or HDF5 (``.h5``).

    Includes the data that sessions have committed, settled or not. The store does not change.

    Parameters
    ----------
    store
        The store to write.
    target
        A path that does not exist yet; its suffix selects the format.
    memory
        Bytes of values in memory, at most.
    arrays
        Paths of the arrays to write; all by default.
    progress
        Called with the bytes done and the total bytes.

    Raises
    ------
    ExistsError
        The target exists.
    UnsupportedError
        The format lacks a type or the dimensions of an array.
    """
    path = Path(location(target, "target"))
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidArgumentError(
            f"{str(path)!r}: the suffix says which format: .nc for NetCDF-4, .h5 for HDF5"
        )
    limit = byte_count(memory, "memory")
    form = _NetCDF if SUFFIXES[path.suffix.lower()] else _HDF5
    staged = engine_call(_internal.StagedFile)(path)
    try:
        chosen = _chosen(store, arrays)
        total = sum(_byte_count(array) for array in chosen.values())
        with (
            noted_interrupts() as raise_noted,
            hdf5_output(staged.path, path) as (file, destination),
        ):

            def report(done: int, whole: int) -> None:
                destination.check()
                raise_noted()
                if progress is not None:
                    progress(done, whole)

            form(store, file, chosen).write(limit, report, total)
        engine_call(staged.publish)()
    finally:
        staged.discard()
    return Export(str(path), tuple(chosen), total)


def _chosen(store: Store, arrays: Sequence[str] | None) -> dict[str, Array]:
    there, refused = store._opened_arrays()
    if "" in there:
        raise UnsupportedError(f"{store.store_path} is a single array, without a group around it")
    if arrays is None:
        for reason in refused.values():
            raise UnsupportedError(f"{reason}; name the arrays to export with arrays=")
        return there
    names = [name.strip("/") for name in arrays]
    if missing := [name for name in names if name not in there]:
        known = ", ".join(there) or "none"
        if missing[0] in refused:
            raise UnsupportedError(refused[missing[0]])
        raise InvalidArgumentError(
            f"{store.store_path} has no array {missing[0]!r}: it has {known}"
        )
    return {name: array for name, array in there.items() if name in names}


def _byte_count(array: Array) -> int:
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


class _HDF5:
    """Writer of HDF5 files: groups, datasets, attributes, and dimension names as labels."""

    def __init__(self, store: Store, file: Any, arrays: dict[str, Array]) -> None:
        self._store, self._file, self._arrays = store, file, arrays

    def write(self, memory: int, progress: Progress | None, total: int) -> None:
        """Writes all arrays."""
        self._set_attributes(self._file, self._store._load_attributes())
        for name, group in sorted(self._store.groups().items()):
            self._set_attributes(self._file.require_group(name), group._load_attributes())
        done = 0
        for name, array in self._arrays.items():
            dataset = self._create(name, array)
            for region in _blocks(array, memory):
                values = self._stored(np.asarray(array[region]))
                if dataset.shape == ():
                    dataset[()] = values.reshape(())
                else:
                    dataset[region] = values
                if progress is not None:
                    done += values.nbytes
                    progress(min(done, total), total)
        self._finish()

    def _finish(self) -> None:
        """Completes the file after all values are written."""

    def _set_attributes(self, node: Any, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            self._set_attribute(node, name, value)

    def _set_attribute(self, node: Any, name: str, value: Any) -> None:
        try:
            stored = _attribute(value)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.name}: the attribute {name!r}: {error}") from None
        try:
            node.attrs[name] = stored
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise UnsupportedError(f"HDF5 cannot hold the attribute {name!r}: {error}") from None

    def _create(self, name: str, array: Array) -> Any:
        dataset = self._dataset(name, array, array.shape, _hdf5_type(array))
        for axis, dim in enumerate(array.dims or ()):
            if dim is not None:
                dataset.dims[axis].label = dim
        self._set_attributes(dataset, _raw_attributes(array))
        return dataset

    def _dataset(self, name: str, array: Array, shape: tuple[int, ...], kind: Any) -> Any:
        options: dict[str, Any] = {"dtype": kind, "track_order": True}
        if shape:
            options |= self._storage(array, shape, np.dtype(kind))
        fill = _fill_value(array, np.dtype(kind))
        if fill is not None:
            options["fillvalue"] = fill
        return self._file.create_dataset(name, shape=shape, **options)

    def _storage(self, array: Array, shape: tuple[int, ...], kind: np.dtype[Any]) -> dict[str, Any]:
        """Chunks of the store's layout, checksums, and compression where the store compresses."""
        chunks = [*array.chunks, *shape[len(array.chunks) :]]
        unlimited = self._unlimited(array)
        limits = tuple(None if axis in unlimited else n for axis, n in enumerate(shape))
        bounded = [
            max(1, chunk if axis in unlimited else min(chunk, length))
            for axis, (chunk, length) in enumerate(zip(chunks, shape, strict=True))
        ]
        while math.prod(bounded) * max(kind.itemsize, 1) > _CHUNK_BYTES_MAX:
            axis = bounded.index(max(bounded))
            bounded[axis] = -(-bounded[axis] // 2)
        if 0 in shape and not unlimited:
            return {}
        options: dict[str, Any] = {"chunks": tuple(bounded), "maxshape": limits}
        if kind.hasobject:
            return options
        options["fletcher32"] = True
        names = {codec["name"] for codec in array.info()["codecs"]}
        if names & {"zstd", "gzip", "blosc", "numcodecs.zlib", "numcodecs.pcodec"}:
            options |= {"compression": "gzip", "compression_opts": _LEVEL, "shuffle": True}
        return options

    def _unlimited(self, array: Array) -> set[int]:  # noqa: ARG002 - the NetCDF form asks it
        """The axes that may grow."""
        return set()

    def _stored(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns values in the dataset's form."""
        return values


class _NetCDF(_HDF5):
    """Writer of NetCDF-4 files, in the structure of the NetCDF library."""

    def __init__(self, store: Store, file: Any, arrays: dict[str, Array]) -> None:
        super().__init__(store, file, arrays)
        self._dims = {name: self._names(array) for name, array in arrays.items()}
        # By group and name: the length, and later the dataset.
        self._sizes: dict[tuple[str, str], int] = {}
        self._scales: dict[tuple[str, str], Any] = {}
        for name, array in arrays.items():
            self._check_type(name, array)
            for dim, length in zip(self._dims[name], _netcdf_shape(array), strict=True):
                self._add_dimension(name, dim, length)
        self._records = self._record_dimensions()

    def _names(self, array: Array) -> tuple[str, ...]:
        shape = _netcdf_shape(array)
        known = [*(array.dims or [None] * len(array.shape)), *[None] * len(shape)]
        kind = np.dtype(array.dtype)
        names = []
        for axis, length in enumerate(shape):
            is_text = _has_text_axis(kind) and axis == len(array.shape)
            plain = f"string{length}" if is_text else f"dim_{axis}_{length}"
            names.append(known[axis] or plain if axis < len(array.shape) else plain)
        return tuple(names)

    def _check_type(self, name: str, array: Array) -> None:
        kind = np.dtype(array.dtype)
        if kind.kind == "f" and kind.itemsize not in (4, 8):
            raise UnsupportedError(f"{name}: NetCDF has no type {kind}; write an .h5 file")
        if kind.kind not in _NETCDF_KINDS + "SO":
            raise UnsupportedError(f"{name}: NetCDF has no type {kind}; write an .h5 file")

    def _add_dimension(self, name: str, dim: str, length: int) -> None:
        """Registers a dimension in the group of the array; fails if it has another length there."""
        group = _group_of(name)
        if "/" in dim:
            raise UnsupportedError(f"{name}: NetCDF has no dimension {dim!r}; write an .h5 file")
        known = self._sizes.setdefault((group, dim), length)
        if known != length:
            raise UnsupportedError(
                f"{name}: dimension {dim!r} has lengths {known} and {length} in one group, which "
                "NetCDF does not allow; write an .h5 file"
            )

    def _record_dimensions(self) -> set[tuple[str, str]]:
        """Returns the dimensions that are always first, in some array of more than one axis."""
        first, later = set(), set()
        for name, dims in self._dims.items():
            keys = [(_group_of(name), dim) for dim in dims]
            first.update(keys[:1])
            later.update(keys[1:])
        several = {(_group_of(name), dims[0]) for name, dims in self._dims.items() if len(dims) > 1}
        return (first & several) - later

    def _unlimited(self, array: Array) -> set[int]:
        keys = [(_group_of(array.path), dim) for dim in self._dims[array.path]]
        return {axis for axis, key in enumerate(keys) if key in self._records}

    def _create(self, name: str, array: Array) -> Any:
        kind = np.dtype(array.dtype)
        shape = _netcdf_shape(array)
        stored = "i1" if kind.kind == "b" else "S1" if kind.kind == "S" else _hdf5_type(array)
        dims = self._dims[name]
        leaf = name.rpartition("/")[2]
        if leaf in dims and len(dims) > 1:
            raise UnsupportedError(
                f"{name}: an array of {len(dims)} axes is named as one of its dimensions, which "
                "NetCDF-4 files through HDF5 do not have; write an .h5 file"
            )
        dataset = self._dataset(name, array, shape, stored)
        attributes = _raw_attributes(array)
        if kind.kind == "b":
            attributes = {"dtype": "bool", **attributes}
        self._set_attributes(dataset, attributes)
        if dims == (leaf,):
            dataset.make_scale(leaf)
            self._scales[_group_of(name), leaf] = dataset
        return dataset

    def _finish(self) -> None:
        """Creates datasets for dimensions without a variable, and attaches dimensions to arrays."""
        for number, ((group, dim), length) in enumerate(self._sizes.items()):
            if (group, dim) in self._scales:
                continue
            parent = self._file[f"/{group}"]
            if dim in parent:
                raise UnsupportedError(
                    f"{group}/{dim} is an array and a dimension that it does not have, which "
                    "NetCDF does not allow; write an .h5 file"
                )
            grows = (group, dim) in self._records
            limits = {"maxshape": (None,), "chunks": (1024,)} if grows else {}
            scale = parent.create_dataset(dim, shape=(length,), dtype=">f4", **limits)
            scale.make_scale(_NO_VARIABLE % length)
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
            self._scales[group, dim] = scale
        for number, key in enumerate(self._sizes):
            self._scales[key].attrs["_Netcdf4Dimid"] = np.int32(number)
        for name, dims in self._dims.items():
            dataset = self._file[name]
            if dims == (name.rpartition("/")[2],):
                continue
            for axis, dim in enumerate(dims):
                dataset.dims[axis].attach_scale(self._scales[_group_of(name), dim])

    def _stored(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if values.dtype.kind == "b":
            return values.astype("i1")
        if _has_text_axis(values.dtype):
            length = values.dtype.itemsize
            return np.ascontiguousarray(values).view("S1").reshape((*values.shape, length))
        return values

    def _set_attribute(self, node: Any, name: str, value: Any) -> None:
        if isinstance(value, list) and any(isinstance(entry, list) for entry in value):
            raise UnsupportedError(
                f"{node.name}: the attribute {name!r} has lists in a list, which NetCDF does not "
                "have: write an .h5 file, or make it one list"
            )
        # Attributes that NCZarr and the NetCDF library reserve.
        if name not in ("_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"):
            super()._set_attribute(node, name, value)


def _group_of(name: str) -> str:
    return name.rpartition("/")[0]


def _has_text_axis(kind: np.dtype[Any]) -> bool:
    """Whether NetCDF needs one more axis for this type; single characters need none."""
    return kind.kind == "S" and kind.itemsize > 1


def _netcdf_shape(array: Array) -> tuple[int, ...]:
    kind = np.dtype(array.dtype)
    return (*array.shape, kind.itemsize) if _has_text_axis(kind) else tuple(array.shape)


def _hdf5_type(array: Array) -> Any:
    import h5py

    kind = np.dtype(array.dtype)
    return h5py.string_dtype() if kind.hasobject or kind.kind == "T" else kind


def _fill_value(array: Array, kind: np.dtype[Any]) -> Any:
    if kind.hasobject or kind.kind == "S":
        return None
    return np.asarray(array.fill_value).astype(kind)


def _raw_attributes(array: Array) -> dict[str, Any]:
    """Returns the attributes, with ``_FillValue`` in the array's type."""
    from .xarray_backend import _decode_fill

    attributes = array._load_attributes()
    if "_FillValue" in attributes:
        kind = np.dtype(array.dtype)
        value = _decode_fill(attributes.pop("_FillValue"), kind)
        if kind.kind in _NETCDF_KINDS:
            attributes = {"_FillValue": np.asarray(value).astype(kind).reshape(1), **attributes}
        elif kind.kind not in "OT":
            attributes = {"_FillValue": value, **attributes}
    return attributes


_NO_ATTRIBUTE = "NetCDF and HDF5 have numbers, texts, and lists of them; change or remove it"


def _attribute(value: Any) -> Any:
    """Converts a JSON value of an attribute to HDF5's form."""
    import h5py

    if isinstance(value, bool):
        return np.int8(value)
    if value is None:
        return ""
    if isinstance(value, str):
        return value if value.isascii() else np.array(_encoded(value), h5py.string_dtype())
    if isinstance(value, dict):
        raise UnsupportedError(_NO_ATTRIBUTE)
    if isinstance(value, list):
        if any(isinstance(entry, dict) or entry is None for entry in value):
            raise UnsupportedError(_NO_ATTRIBUTE)
        if all(isinstance(entry, str) for entry in value) and value:
            return np.array([_encoded(entry) for entry in value], dtype=h5py.string_dtype())
        return _numbers(value)
    return value


def _encoded(text: str) -> bytes:
    """Encodes a text for HDF5; surrogate escapes become the original bytes again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UnsupportedError(
            "it has half a pair of UTF-16, which is no text; change it"
        ) from None


def _numbers(values: list[Any]) -> np.ndarray[Any, Any]:
    """Converts a list of numbers, or a regular list of such lists."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise UnsupportedError(f"its lists differ in length: {_NO_ATTRIBUTE}") from None
    if array.dtype.kind not in "biufUS" or (array.ndim > 1 and array.dtype.kind in "US"):
        raise UnsupportedError(_NO_ATTRIBUTE)
    return array


def _blocks(array: Array, memory: int) -> Iterator[tuple[slice, ...]]:
    """Iterates over blocks of whole chunks that fit into the memory, in C order."""
    shape = tuple(array.shape)
    item = max(np.dtype(array.dtype).itemsize, 1) * (8 if np.dtype(array.dtype).hasobject else 1)
    extent = [max(1, min(chunk, n)) for chunk, n in zip(array.chunks, shape, strict=True)]
    # The last axes grow first, so that blocks are long contiguous runs. Each block is held twice.
    for axis in reversed(range(len(shape))):
        room = max(memory // 2 // (math.prod(extent) * item), 1)
        extent[axis] = max(min(extent[axis] * room, shape[axis]), 1)
        if extent[axis] < shape[axis]:
            break
    starts = (range(0, n, step) for n, step in zip(shape, extent, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(
            slice(at, min(at + step, n)) for at, step, n in zip(corner, extent, shape, strict=True)
        )
