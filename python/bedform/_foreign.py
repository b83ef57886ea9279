"""Metadata of NetCDF-4 and HDF5 files through h5py, read once per file and read-only.

`chunk_map` asks h5py for the byte ranges of every variable. The engine keeps that map and reads the
bytes itself. `read_native` reads variables that only HDF5 can decode. The engine calls
`read_region` for those of them whose element type it has. NetCDF classic files need none of this:
the Rust code parses their header.

Links to other files, and external storage, are refused unless a call allows them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from bedform import _internal
from bedform._foreign_attribute_walk import describe_attributes
from bedform._foreign_dimensions import (
    MappedGroup,
    MappedVariable,
    name_dimensions,
    refuse_names_alike,
    scale_dimension,
    variable_name,
)
from bedform._foreign_names import ForeignFileError, display_name
from bedform._foreign_storage import (
    ChunkTable,
    NamedTypes,
    describe_encoding,
    describe_storage,
    element_type,
)
from bedform._foreign_unwritten import fill_element, read_elements
from bedform._foreign_walk import Refusal, is_variable, members, open_path, refuse_outside
from bedform._limits import limit_met

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ChunkMapParts",
    "ForeignFileError",
    "chunk_map",
    "file_kind",
    "read_native",
    "read_region",
]

_GROUPS_MAX: Final = 100_000
_DEPTH_MAX: Final = 64
_VARIABLES_MAX: Final = 1_000_000
_PATH_BYTES_MAX: Final = 1024
#: The largest value of a signed 64-bit file offset.
_ARRAY_BYTES_MAX: Final = (1 << 63) - 1
#: Messages of HDF5 about missing filters.
_NO_FILTER: Final = re.compile(
    r"required filter|filter .*is not registered|can't open directory|plugin|"
    r"filter is not available",
    re.IGNORECASE,
)
#: Messages of HDF5 about files that another program writes.
_BEING_WRITTEN: Final = re.compile(r"already open for (SWMR )?write", re.IGNORECASE)
#: Messages of h5py about types without a NumPy counterpart.
_NO_TYPE: Final = re.compile(
    r"No NumPy equivalent|No conversion path|Unsupported .*type", re.IGNORECASE
)
#: Exceptions of h5py on damaged files; wrong arguments raise some of them, too.
_H5PY_ERRORS: Final = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    AttributeError,
    IndexError,
    MemoryError,
)


@dataclass(frozen=True)
class ChunkMapParts:
    """The arguments of `ChunkMap::from_description` in the format crate."""

    #: The description: JSON in UTF-8.
    description: bytes
    #: For each chunked array, in the description's order, its chunk indexes, offsets and lengths
    #: (uint64) and filter masks (uint32), ascending by index.
    tables: list[ChunkTable]


def file_kind(path: str | Path) -> str:
    """Returns the format of a file by its first bytes: "hdf5", "netcdf-classic-1", ...

    Raises
    ------
    ForeignFileError
        The file has neither format or cannot be read; the message names its likely format.
    """
    try:
        kind, looks = _internal.place_kind(path)
    except _internal.EngineError as error:
        engine_kind, message = error.args
        raise ForeignFileError(message, engine_kind) from None
    if kind == "missing":
        raise ForeignFileError(f"{path}: No such file or directory", "NotFound")
    if kind in {"directory", "zarr-v2", "zarr-v3"}:
        raise ForeignFileError(f"{path}: Is a directory", "Io")
    if looks is None:
        return kind
    raise ForeignFileError(f"{path}: not a NetCDF or HDF5 file; it is {looks}", "Unsupported")


def chunk_map(
    path: str | Path, *, allow_external: bool = False, group: str | None = None
) -> ChunkMapParts:
    """Returns the byte ranges of every variable of a NetCDF-4 or HDF5 file.

    Parameters
    ----------
    path
        The file.
    allow_external
        Whether variables may be read (through HDF5) whose data lie in other files. Without it they
        are listed as refused.
    group
        Restricts the map to this group, the groups above it and all members below it.

    Raises
    ------
    ForeignFileError
        The file is not NetCDF-4 or HDF5, is damaged, or changed while it was read.
    """
    if file_kind(path) != "hdf5":
        message = f"{path}: a NetCDF classic file, whose header Bedform reads by itself"
        raise ForeignFileError(message, "InvalidArgument")
    with _as_one_line(path):
        before = _source(path)
        with h5py.File(path, "r") as file:
            walk = _Walk(file, allow_external=allow_external)
            parts = walk.describe(before, group)
        if _source(path) != before:
            message = f"{path}: it changed while it was read; try again when its writer is done"
            raise ForeignFileError(message, "Conflict")
    return parts


@contextlib.contextmanager
def _as_one_line(path: str | Path) -> Iterator[None]:
    """Converts exceptions of h5py into a `ForeignFileError` of one line that names the file."""
    try:
        yield
    except ForeignFileError:
        raise
    except BlockingIOError as error:
        message = f"{path}: another program has it open for writing; try again when it is done"
        raise ForeignFileError(message, "Conflict") from error
    except _H5PY_ERRORS as error:
        raise _refusal(path, error) from error


def _refusal(path: str | Path, error: Exception) -> ForeignFileError:
    """Returns the error for an exception of h5py, with its kind and a remedy."""
    text = str(error)
    said = text.strip("'\"").splitlines()[0] if text else type(error).__name__
    cannot = f"{path}: HDF5 cannot read it ({said})"
    if (met := limit_met(error)) is not None:
        kind, remedy = met
        # Numbers in a damaged file may ask for any amount of memory.
        damage = ", or it is damaged" if kind == "LimitExceeded" else ""
        return ForeignFileError(f"{cannot}; {remedy}{damage}", kind)
    if isinstance(error, (FileNotFoundError, PermissionError)):
        kind = "NotFound" if isinstance(error, FileNotFoundError) else "PermissionDenied"
        return ForeignFileError(f"{path}: {error.strerror}", kind)
    if _BEING_WRITTEN.search(text):
        remedy = "another program has it open for writing, or did not close it"
        return ForeignFileError(f"{cannot}; {remedy}: try again when it is done", "Conflict")
    if _NO_FILTER.search(text):
        remedy = (
            "install the filter that it is compressed with, and name its place in "
            "HDF5_PLUGIN_PATH: the package hdf5plugin has many"
        )
        return ForeignFileError(f"{cannot}; {remedy}", "Unsupported")
    if _NO_TYPE.search(text):
        return ForeignFileError(f"{cannot}; its type has no counterpart in NumPy", "Unsupported")
    return ForeignFileError(f"{cannot}; it is damaged or cut short")


def _source(path: str | Path) -> dict[str, Any]:
    status = Path(path).stat()
    return {
        "size": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
        "identity": [status.st_dev, status.st_ino],
    }


class _Walk:
    """One pass over a file that collects groups, dimensions and variables."""

    def __init__(self, file: h5py.File, *, allow_external: bool) -> None:
        self.file = file
        self.allow_external = allow_external
        self.group_count = 0
        self.variable_count = 0
        self.named_types: NamedTypes = []
        self.scales: dict[tuple[int, int], dict[str, Any]] = {}

    def describe(self, source: dict[str, Any], only: str | None) -> ChunkMapParts:
        root = self.group("", "", self.file["/"], ())
        name_dimensions(self.file, root, self.scales)
        is_netcdf = bool(self.scales) or "_NCProperties" in self.file.attrs
        wanted = _within(root, only, str(self.file.filename))
        tables = []
        arrays = []
        for group in wanted:
            attributes = describe_attributes(group.stored.attrs, is_netcdf=is_netcdf)
            group.attributes = attributes.shown
            group.refuse_attributes("", attributes.refused)
            for variable in group.variables:
                described, table = _describe_variable(variable, self.named_types)
                attributes = describe_attributes(variable.dataset.attrs, is_netcdf=is_netcdf)
                described["attributes"] = attributes.shown
                group.refuse_attributes(variable.path.rpartition("/")[2], attributes.refused)
                arrays.append(described)
                if table is not None:
                    tables.append(table)
        document = {
            "source": source,
            "format": "netcdf4" if is_netcdf else "hdf5",
            "groups": [_describe_group(group) for group in wanted],
            "arrays": arrays,
        }
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return ChunkMapParts(text.encode("utf-8", "replace"), tables)

    def group(
        self, path: str, name: str, stored: h5py.Group, above: tuple[tuple[int, int], ...]
    ) -> MappedGroup:
        """Returns a group with its members; `name` is its name in the file."""
        self.group_count += 1
        if self.group_count > _GROUPS_MAX:
            message = f"{self.file.filename}: more than {_GROUPS_MAX} groups"
            raise ForeignFileError(message, "LimitExceeded")
        group = MappedGroup(path, stored, name)
        above = (*above, _address(stored))
        for member_name, member in members(stored, allow_external=self.allow_external):
            refusal = self.add(group, member_name, member, above)
            if refusal is not None:
                group.refuse(member_name, refusal.reason)
        refuse_names_alike(group, self.scales)
        return group

    def add(
        self, group: MappedGroup, name: str, member: Any, above: tuple[tuple[int, int], ...]
    ) -> Refusal | None:
        """Adds a member to its group, or returns the reason of a refusal."""
        if isinstance(member, Refusal):
            return member
        if isinstance(member, h5py.Group):
            inner = _path_in(group, display_name(name))
            if isinstance(inner, Refusal):
                return inner
            if _address(member) in above:
                return Refusal("a link back to a group that it lies in")
            if len(above) >= _DEPTH_MAX:
                return Refusal(f"more than {_DEPTH_MAX} groups, one within another")
            group.groups.append(self.group(inner, name, member, above))
        elif isinstance(member, h5py.Dataset):
            return self.add_dataset(group, name, member)
        elif isinstance(member, h5py.Datatype):
            self.named_types.append((name, member.id))
        return None

    def add_dataset(self, group: MappedGroup, name: str, dataset: h5py.Dataset) -> Refusal | None:
        refusal = refuse_outside(dataset, allow_external=self.allow_external)
        if refusal is not None:
            return refusal
        path = _path_in(group, variable_name(name))
        if isinstance(path, Refusal):
            return path
        if dataset.shape is None:
            return Refusal("a dataset without a data space")
        if _bytes_of(dataset) > _ARRAY_BYTES_MAX:
            return Refusal("more than 2^63 bytes")
        self.variable_count += 1
        if self.variable_count > _VARIABLES_MAX:
            message = f"{self.file.filename}: more than {_VARIABLES_MAX} datasets"
            raise ForeignFileError(message, "LimitExceeded")
        elsewhere = _address(dataset)[0] != _address(self.file)[0]
        if not elsewhere and _address(dataset) not in self.scales:
            dimension = scale_dimension(dataset, path.rpartition("/")[2])
            if dimension is not None:
                group.dimensions.append(dimension)
                self.scales[_address(dataset)] = dimension
        if is_variable(dataset):
            group.variables.append(MappedVariable(path, dataset, dataset.shape, elsewhere, name))
        return None


def _address(stored: h5py.Group | h5py.Dataset) -> tuple[int, int]:
    information = h5py.h5o.get_info(stored.id)
    return information.fileno, information.addr


def _path_in(group: MappedGroup, name: str | None) -> str | Refusal:
    """Returns the path of a member with this shown name, or the reason of a refusal."""
    if name is None:
        return Refusal("a name that cannot be shown")
    path = f"{group.path}/{name}" if group.path else name
    if len(path.encode()) > _PATH_BYTES_MAX:
        return Refusal("a path of more than 1,024 bytes")
    return path


def _bytes_of(dataset: h5py.Dataset) -> int:
    """Returns the bytes of a dataset; axes of length 0 count as 1."""
    count: int = math.prod(size for size in dataset.shape if size)
    return count * int(dataset.id.get_type().get_size())


def _within(root: MappedGroup, only: str | None, file_name: str) -> list[MappedGroup]:
    """Returns all groups, parents first; or only those above and below the group `only`."""
    groups: list[MappedGroup] = []
    pending = [root]
    while pending:
        group = pending.pop()
        groups.append(group)
        pending.extend(reversed(group.groups))
    if only is None:
        return groups
    path = only.strip("/")
    if path not in {group.path for group in groups}:
        message = f"{file_name}: it has no group {only!r}"
        raise ForeignFileError(message, "NotFound")
    return [
        group
        for group in groups
        if f"{group.path}/".startswith(f"{path}/" if path else "")
        or f"{path}/".startswith(f"{group.path}/" if group.path else "")
    ]


def _describe_group(group: MappedGroup) -> dict[str, Any]:
    dimensions = [
        {key: dimension[key] for key in ("name", "size", "unlimited", "phony")}
        for dimension in group.dimensions
    ]
    return {
        "path": group.path,
        "attributes": group.attributes,
        "dimensions": dimensions,
        "refused": group.refused,
    }


def _describe_variable(
    variable: MappedVariable, named_types: NamedTypes
) -> tuple[dict[str, Any], ChunkTable | None]:
    """Returns the description of a variable without its attributes, and its chunks."""
    dataset = variable.dataset
    element = element_type(dataset, named_types)
    storage, table = describe_storage(
        dataset, element, variable.shape, elsewhere=variable.elsewhere
    )
    described = {
        "path": variable.path,
        "shape": list(variable.shape),
        "unlimited": [size is None for size in dataset.maxshape],
        "data_type": element.data_type,
        "endian": element.endian,
        "fill_value": _fill_value(dataset, element.data_type),
        "dimension_names": variable.dimension_names,
        "encoding": describe_encoding(dataset, element, unlabeled=variable.unlabeled),
        "storage": storage,
    }
    return described, table


def _fill_value(dataset: h5py.Dataset, data_type: str | None) -> str | None:
    """Returns one element of the fill value in hexadecimal, as stored; None for zeros."""
    undefined = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
    if data_type in {None, "O"} or undefined:
        return None
    return np.array(dataset.fillvalue, dataset.dtype).tobytes().hex()


def read_native(
    path: str | Path,
    variable: str,
    selection: Any = ...,
    *,
    shape: tuple[int, ...] | None = None,
    allow_external: bool = False,
) -> npt.NDArray[Any]:
    """Reads elements of a variable through HDF5, for storage that the map calls native.

    Parameters
    ----------
    path
        The file.
    variable
        Path of the variable in the map.
    selection
        Integers and slices with positive steps, as in NumPy's basic indexing.
    shape
        Shape of the variable in the map, which may exceed the dataset's own. Elements beyond the
        dataset are the fill value.
    allow_external
        Whether variables in other files may be read.

    Returns
    -------
    numpy.ndarray
        The elements; text as an object array of `str`.

    Raises
    ------
    ForeignFileError
        The variable does not exist, or HDF5 cannot read it.
    """
    with _as_one_line(path), _opened(path) as file:
        dataset = open_path(file, variable, allow_external=allow_external)
        text = h5py.check_string_dtype(dataset.dtype)
        is_text = text is not None and text.length is None
        # Bytes that are not UTF-8 become surrogate escapes.
        source: Any = dataset.asstr("utf-8", "surrogateescape") if is_text else dataset
        if dataset.shape == ():
            return _scalar(source[()], dataset.dtype)
        if shape is None or shape == dataset.shape:
            return read_elements(dataset, source, selection)
        grown = np.full(shape, fill_element(dataset), dataset.dtype)
        grown[tuple(slice(0, size) for size in dataset.shape)] = read_elements(dataset, source, ...)
        return np.asarray(grown[selection])


def _opened(path: str | Path) -> h5py.File:
    """Opens the file; a file with an unfinished SWMR writer as its readers do."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if not _BEING_WRITTEN.search(str(error)):
            raise
        return h5py.File(path, "r", swmr=True)


def _scalar(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Wraps the element of a dataset without axes, which may be a text or a list."""
    if dtype.kind != "O":
        return np.asarray(value)
    scalar = np.empty((), object)
    scalar[()] = value
    return scalar


def read_region(
    path: str | Path,
    variable: str,
    start: Sequence[int],
    lengths: Sequence[int],
    *,
    shape: tuple[int, ...],
    allow_external: bool = False,
) -> npt.NDArray[Any]:
    """Reads a region of elements of fixed size through HDF5; otherwise as `read_native`.

    Elements of the region beyond the dataset's end are the fill value.
    """
    with _as_one_line(path), _opened(path) as file:
        dataset = open_path(file, variable, allow_external=allow_external)
        region = tuple(slice(at, at + count) for at, count in zip(start, lengths, strict=True))
        if shape == dataset.shape:
            return np.asarray(dataset[region])
        values = np.full(lengths, dataset.fillvalue, dataset.dtype)
        there = tuple(
            slice(part.start, max(part.start, min(part.stop, size)))
            for part, size in zip(region, dataset.shape, strict=True)
        )
        inside = tuple(slice(0, part.stop - part.start) for part in there)
        if values[inside].size:
            values[inside] = dataset[there]
        return values
