"""Foreign files as stores: NetCDF classic, NetCDF-4, HDF5, read-only.

The engine reads from the file where the bytes of every variable lie, and fetches and decodes them.
For a file that it does not understand the library of the format is asked once; the answer, a chunk
map, is kept in the file's sidecar for as long as the file is the same. What only the library can
read goes through it, called by the engine for elements that it has a type for, and that is said
once per variable.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _foreign_encoding, _fork, _internal, _json, _selection, _shown
from bedform._array import BasicReads
from bedform._errors import (
    BY_KIND,
    BedformError,
    ConflictError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
    engine_call,
)
from bedform._foreign import read_native, read_region
from bedform._foreign_child import isolated_chunk_map
from bedform._foreign_names import ForeignFileError
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from bedform._elements import AnyArray


class NativeReadWarning(UserWarning):
    """A variable is read through its native library, which is slower and takes a lock."""


def open_foreign(
    where: str,
    options: dict[str, Any],
    *,
    allow_external: bool,
    map_time: float | str | None = None,
) -> ForeignStore:
    """The foreign file at ``where`` as a store."""
    # Links are the user's own here: the file that they lead to is the one to read.
    path = where if is_url(where) else os.path.realpath(where)
    return ForeignStore(path, where, options, allow_external, map_time)


def _open_file(
    path: str, opening: str, *, allow_external: bool, map_time: float | str | None
) -> _internal.ForeignFile:
    opened = engine_call(_internal.ForeignFile.find)(path, allow_external, opening)
    if opened is not None:
        return opened
    try:
        parts = isolated_chunk_map(path, allow_external=allow_external, seconds=map_time)
    except ForeignFileError as error:
        raise BY_KIND.get(error.kind, BedformError)(str(error)) from None
    # Columns that came over a pipe may lie anywhere; copies are aligned.
    tables = [(a.copy(), b.copy(), c.copy(), d.copy()) for a, b, c, d in parts.tables]
    return engine_call(_internal.ForeignFile.from_description)(
        path, parts.description, tables, allow_external, opening
    )


class ForeignStore:
    """A foreign file as a store, read-only: the calls of :class:`bedform.Store` that read.

    A context manager; pickles as path and options.
    """

    def __init__(
        self,
        path: str,
        shown: str,
        options: dict[str, Any],
        allow_external: bool,
        map_time: float | str | None = None,
    ) -> None:
        self._path, self._shown, self._options = path, shown, options
        self._allow_external, self._map_time = allow_external, map_time
        self._warned: set[str] = set()
        self._load()

    def _load(self) -> None:
        opening = _json.dump(self._options)
        self._opened = _open_file(
            self._path, opening, allow_external=self._allow_external, map_time=self._map_time
        )
        self._process = _fork.current
        self._description: dict[str, Any] = json.loads(self._opened.description())
        self._arrays = {array["path"]: array for array in self._description["arrays"]}
        self._groups = {group["path"]: group for group in self._description["groups"]}
        self.style = _foreign_encoding.style_of(self._description)
        self._dimension_names: dict[str, dict[str, tuple[str, ...]]] = {}

    @property
    def _inner(self) -> _internal.ForeignFile:
        """The engine's handle; in a child process one of its own."""
        if self._process is not _fork.current:
            _fork.leave_behind(self._opened)
            self._load()
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        options = (self._options, self._allow_external, self._map_time)
        return (ForeignStore, (self._path, self._shown, *options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open between calls; here for symmetry with files."""

    @property
    def store_path(self) -> str:
        """Where the file is."""
        return self._shown

    @property
    def format(self) -> str:
        """``"hdf5"``, ``"netcdf4"`` or ``"netcdf-classic-1"``, ``-2``, ``-5``."""
        return str(self._description["format"])

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the root group."""
        return self.group_attributes("")

    def group_attributes(self, path: str) -> dict[str, Any]:
        """The attributes of a group."""
        return _foreign_encoding.group_attributes(self._group(path), self.style)

    def _group(self, path: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._groups[path.strip("/")]
        except KeyError:
            raise NotFoundError(f"no group {path!r} in {self._shown}") from None
        return found

    def _names_in(self, group: str) -> dict[str, tuple[str, ...]]:
        """The dimension names of the variables of a group, found for all of them at once."""
        if group not in self._dimension_names:
            found = _foreign_encoding.dimension_names(self._description, group, self.style)
            self._dimension_names[group] = found
        return self._dimension_names[group]

    def dimensions(self, path: str = "") -> dict[str, int]:
        """The dimensions that a group defines, with their lengths."""
        return {item["name"]: item["size"] for item in self._group(path)["dimensions"]}

    def unlimited_dimensions(self, path: str = "") -> set[str]:
        """The dimensions of a group that can grow."""
        return _foreign_encoding.unlimited_dimensions(self._group(path), self.style)

    @property
    def unlimited_dims(self) -> set[str]:
        """The dimensions of the root group that can grow."""
        return self.unlimited_dimensions()

    def refused(self) -> dict[str, str]:
        """Members that are not shown because they name another file, and why."""
        found = {}
        for path, group in self._groups.items():
            for member in group["refused"]:
                name = f"{path}/{member['name']}" if path else member["name"]
                found[name] = member["reason"]
        return found

    def arrays(self) -> dict[str, ForeignArray]:
        """Every variable, by its path in the file."""
        return {path: self[path] for path in self._arrays}

    def _refuse_change(self, *_: object, **__: object) -> Any:
        """Foreign files are never written."""
        raise ReadOnlyError(
            f"{self._shown}: foreign files are never written; convert it with 'bedform convert'"
        )

    create_array = create_group = delete = session = append = settle = _refuse_change

    def groups(self) -> dict[str, ForeignGroup]:
        """Every group but the root, by path."""
        return {path: ForeignGroup(self, path) for path in self._groups if path}

    def __iter__(self) -> Iterator[str]:
        return iter(path for path in self._arrays if "/" not in path)

    def __contains__(self, path: object) -> bool:
        return path in self._arrays or path in self._groups

    def __getitem__(self, path: str) -> Any:
        path = path.strip("/")
        if path in self._groups and path:
            return ForeignGroup(self, path)
        if path not in self._arrays:
            if path in self.refused():
                raise NotFoundError(f"{self._shown}: {path!r} is not read: {self.refused()[path]}")
            known = ", ".join(list(self._arrays)[:12]) or "nothing"
            raise NotFoundError(f"no variable {path!r} in {self._shown}: it has {known}")
        return ForeignArray(self, self._arrays[path])

    def info(self) -> dict[str, Any]:
        """What the file holds, as plain values."""
        return {
            "path": self._shown,
            "format": self.format,
            "attributes": self.attributes,
            "groups": sorted(self.groups()),
            "arrays": {path: array.info() for path, array in self.arrays().items()},
            "refused": self.refused(),
        }

    def verify(self, progress: Callable[[int, int], object] | None = None) -> list[str]:
        """Read every variable once, and give one line per variable that cannot be read.

        Foreign files carry the checksums that their format gives them, often none.
        """
        problems = []
        for number, (path, array) in enumerate(self.arrays().items()):
            if progress is not None:
                progress(number, len(self._arrays))
            try:
                for key in array._pieces():
                    array[key]
            except BedformError as error:
                problems.append(f"{path}: {error}")
        return problems

    def _warn_native(self, path: str, reason: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            said = f"{self._shown}: {path!r} is read through its native library: {reason}"
            warnings.warn(
                _shown.line(said),
                NativeReadWarning,
                stacklevel=5,
            )

    def __repr__(self) -> str:
        return f"<bedform.ForeignStore {self._shown!r} {self.format}>"


class ForeignGroup:
    """A group of a foreign file."""

    def __init__(self, store: ForeignStore, path: str) -> None:
        self._store, self.path = store, path

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the group."""
        return self._store.group_attributes(self.path)

    @property
    def unlimited_dims(self) -> set[str]:
        """The dimensions that the group defines and that can grow."""
        return self._store.unlimited_dimensions(self.path)

    def groups(self) -> dict[str, ForeignGroup]:
        """Every group below the group, by its path from here."""
        prefix = f"{self.path}/"
        return {
            path.removeprefix(prefix): group
            for path, group in self._store.groups().items()
            if path.startswith(prefix)
        }

    def arrays(self) -> dict[str, ForeignArray]:
        """Every variable below the group, by its path from here."""
        prefix = f"{self.path}/"
        return {
            path.removeprefix(prefix): array
            for path, array in self._store.arrays().items()
            if path.startswith(prefix)
        }

    def __getitem__(self, name: str) -> Any:
        return self._store[f"{self.path}/{name}"]

    def __repr__(self) -> str:
        return f"<bedform.ForeignGroup {self.path!r} of {self._store.store_path!r}>"


class ForeignArray(BasicReads):
    """A variable of a foreign file: the calls of :class:`bedform.Array` that read.

    Values are raw: packed numbers stay packed. Decoding by conventions is xarray's.
    """

    def __init__(self, store: ForeignStore, described: dict[str, Any]) -> None:
        self._store, self._described = store, described
        self.path: str = described["path"]
        self._dtype = _foreign_encoding.variable_dtype(described, store.style)
        storage = described["storage"]
        self._native = storage["native"]["reason"] if "native" in storage else None
        self._opened = self._open()
        self._process = _fork.current
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Foreign files are never written."""
        self._store._refuse_change()

    def _open(self) -> _internal.Array | None:
        """The engine's handle: over the bytes of the file, or what the library makes of them."""
        store, data_type = self._store, self._described["data_type"]
        if self._native is None:
            return engine_call(store._inner.array)(self.path)
        if data_type is None or self._dtype.hasobject:
            return None
        # What lies in other files changes without this one.
        is_kept = not store._allow_external
        return engine_call(store._inner.array)(self.path, self._region_reader(), is_kept)

    def _region_reader(self) -> Callable[[list[int], list[int]], Any]:
        """What gives the elements of a region through the library, for the engine to call."""
        store = self._store
        path, where, allow_external = self.path, store._path, store._allow_external
        shape, dtype = self.shape, self._dtype.newbyteorder("=")

        def read(start: list[int], lengths: list[int]) -> Any:
            # A function without the array, which would hold itself by the engine's handle.
            values = _translated(
                read_region, where, path, start, lengths, shape=shape, allow_external=allow_external
            )
            return np.ascontiguousarray(values, dtype=dtype).reshape(-1).view(np.uint8)

        return read

    @property
    def _inner(self) -> _internal.Array | None:
        """The engine's handle, if it reads the variable; in a child process one of its own."""
        if self._process is not _fork.current and self._opened is not None:
            _fork.leave_behind(self._opened)
            self._opened = self._open()
        self._process = _fork.current
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._store, self.path))

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis, as they were when the file was opened."""
        return tuple(self._described["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements; big-endian where the file says so."""
        return self._dtype

    @property
    def not_storable(self) -> str | None:
        """Why Zarr cannot hold the elements, such as records or references; else ``None``."""
        if self._described["data_type"] is not None:
            return None
        return self._native or f"elements of type {self._described['encoding']['dtype']}"

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes."""
        group = self.path.rpartition("/")[0]
        return self._store._names_in(group)[self.path]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, with the types that the file gives them."""
        return _foreign_encoding.variable_attributes(self._described, self._store.style)

    @property
    def encoding(self) -> dict[str, Any]:
        """How the variable is stored, in the words of xarray's engine for such files."""
        return _foreign_encoding.variable_encoding(
            self._described, self._store.style, source=self._store._shown, names=self.dims
        )

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Elements of a chunk along each axis; ``None`` for variables without chunks."""
        chunks = self._described["encoding"]["chunks"]
        return None if chunks is None else tuple(chunks)

    @property
    def shards(self) -> None:
        """Foreign files have no shards."""
        return

    @property
    def order(self) -> None:
        """Foreign files have no order of chunks."""
        return

    @property
    def fill_value(self) -> Any:
        """What elements are that were never written."""
        if self._inner is None:
            return None
        raw = self._inner.fill_bytes()
        return np.frombuffer(raw, dtype=self._dtype.newbyteorder("="))[0]

    def info(self) -> dict[str, Any]:
        """Everything that is known of the variable, as plain values."""
        storage = next(iter(self._described["storage"]), None)
        if isinstance(self._described["storage"], str):
            storage = self._described["storage"]
        storable = self.not_storable is None
        return {
            "path": self.path,
            "shape": list(self.shape),
            "dtype": str(self.dtype if storable else self._described["encoding"]["dtype"]),
            "dims": list(self.dims),
            "storage": storage,
            "chunks": None if self.chunks is None else list(self.chunks),
            "shards": None,
            "native": self._native,
            "attributes": self.attributes,
            "bytes": self.size * self.dtype.itemsize,
        }

    def _fill(self, selected: _selection.Selected, buffer: AnyArray) -> None:
        assert self._inner is not None  # noqa: S101 - native variables do not come here
        try:
            self._fill_by(engine_call(self._inner.read), selected, buffer)
        except ConflictError:
            if self._store._options["freshness"] != "read":
                raise
            self._store._load()
            again = self._store[self.path]
            if again.shape != self.shape or again._inner is None:
                raise
            self._described, self._opened = again._described, again._inner
            self._fill_by(engine_call(self._inner.read), selected, buffer)
        if not self._dtype.isnative:
            # The engine gives the machine's order; the variable's type says the file's.
            buffer.byteswap(inplace=True)

    def _warn(self) -> None:
        if self._native is not None and not is_url(self._store._path):
            self._store._warn_native(self.path, self._native)

    def _prefetch(self, selected: _selection.Selected) -> tuple[tuple[int, ...], int, int]:
        if self._inner is None:
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} is read by the library of its format, and "
                "nothing of it is kept"
            )
        return engine_call(self._inner.prefetch)(selected.engine)

    def _get(
        self, selected: _selection.Selected, out: AnyArray | None = None, *, scalar: bool = True
    ) -> Any:
        self._warn()
        if self._inner is None:
            return self._get_native(selected, out, scalar=scalar)
        return super()._get(selected, out, scalar=scalar)

    def _get_native(
        self, selected: _selection.Selected, out: AnyArray | None, *, scalar: bool
    ) -> Any:
        slices = _slices(selected)
        whole = self._read_native(slices)
        if slices is not None:
            # Only what is wanted was read.
            values = whole.reshape(selected.result)
        else:
            values = _selection.taken(whole, selected)
        if out is not None:
            out[...] = values
            return out
        return values[()] if selected.scalar and scalar else values

    def _read_native(self, slices: tuple[slice, ...] | None) -> AnyArray:
        wanted = self.shape
        if slices is not None:
            wanted = tuple(
                len(range(*part.indices(size)))
                for part, size in zip(slices, self.shape, strict=True)
            )
        values = _translated(
            read_native,
            self._store._path,
            self.path,
            ... if slices is None else slices,
            shape=self.shape,
            allow_external=self._store._allow_external,
        )
        if values.shape != wanted:
            # Elements that are arrays themselves: NumPy gives them as more axes.
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} has {self.not_storable}, which Bedform does "
                "not read: read it with h5py"
            )
        return values

    def explain(self, selection: Any = ...) -> Any:
        """The plan of a read: what would be fetched, at what price. Reads nothing."""
        from bedform._explanation import Explanation

        if self._inner is None:
            return Explanation({"array": self.path, "native": self._native})
        selected = _selection.basic(selection, self.shape)
        plan: dict[str, Any] = json.loads(engine_call(self._inner.explain)(selected.engine))
        native = {} if self._native is None else {"native": self._native}
        return Explanation(plan | native | self._measured(selected))

    def workload(self, selection: Any = ..., *, clients: int = 1) -> dict[str, Any]:
        """The requests of a read that ``clients`` share, as :func:`bedform.simulate` takes them."""
        if self._inner is None or self._native is not None:
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} is read by the library of its format: its "
                "requests are not known"
            )
        selected = _selection.basic(selection, self.shape)
        text = engine_call(self._inner.workload)(selected.engine, clients)
        found: dict[str, Any] = json.loads(text)
        return found

    def _pieces(self) -> Iterator[Any]:
        """Keys that cover the variable, each about 64 MiB."""
        if not self.ndim or 0 in self.shape:
            yield ...
            return
        rest = max(1, self.size // self.shape[0] * max(self.dtype.itemsize, 1))
        step = max(1, (64 << 20) // rest)
        for start in range(0, self.shape[0], step):
            yield slice(start, start + step)

    def __repr__(self) -> str:
        return f"<bedform.ForeignArray {self.path!r} {self.shape} {self.dtype}>"


def _translated(read: Callable[..., Any], *arguments: Any, **options: Any) -> AnyArray:
    """What a read through the library gives; its errors as those of this package."""
    path, variable = arguments[:2]
    if is_url(path):
        raise UnsupportedError(
            f"{path}: {variable!r} is read by the HDF5 library, from files: copy it to this machine"
        )
    try:
        return np.asarray(read(*arguments, **options))
    except ForeignFileError as error:
        raise BY_KIND.get(error.kind, BedformError)(str(error)) from None


def _slices(selected: _selection.Selected) -> tuple[slice, ...] | None:
    """The selection as slices that go forward; ``None`` where it is none of such."""
    kind, axes = selected.engine[:2]
    if kind != "orthogonal" or not all(
        isinstance(axis, tuple) and axis[1] > 0 and axis[2] > 0 for axis in axes
    ):
        return None
    return tuple(slice(start, start + step * (count - 1) + 1, step) for start, step, count in axes)


def _reopen(store: ForeignStore, path: str) -> Any:
    return store[path]
