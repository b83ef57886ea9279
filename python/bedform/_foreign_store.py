"""Foreign files as read-only stores: NetCDF classic, NetCDF-4, HDF5.

The engine parses the byte ranges of every variable from the file, and fetches and decodes them. For
a file that it cannot parse it asks the library of the format once. The resulting chunk map is kept
in the file's sidecar as long as the file is unchanged. Variables that only the library can decode
are read through it; the engine calls it for element types that it has. A warning says so once per
file.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

from bedform import _foreign_encoding, _fork, _internal, _json, _shown
from bedform._ahead import ReadaheadMixin
from bedform._attributes import HasAttributes
from bedform._catalogue import conditions_of
from bedform._errors import (
    BY_KIND,
    NOT_CHECKED,
    BedformError,
    ConflictError,
    CorruptError,
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    engine_call,
)
from bedform._foreign_array import ForeignArray
from bedform._foreign_child import isolated_chunk_map
from bedform._foreign_names import ForeignFileError
from bedform._hints import foreign_is_read, unknown_member
from bedform._members import GroupMembers
from bedform._own_writes import written_here
from bedform._remote import is_url, without_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from bedform._index import IndexReport


class NativeReadWarning(UserWarning):
    """A variable is read through its native library, which is slower; warned once per file."""


def open_foreign(
    where: str,
    options: dict[str, Any],
    *,
    allow_external: bool,
    map_time: float | str | None = None,
    opened: _internal.ForeignFile | None = None,
) -> ForeignStore:
    """Opens the foreign file at ``where`` as a store; ``opened`` is an existing engine handle."""
    path = where if is_url(where) else _behind_links(where)
    shown = without_query(where)
    return ForeignStore(path, shown, options, allow_external, map_time, opened)


def _behind_links(where: str) -> str:
    """Resolves links, which are the user's own: the target is the file to read."""
    return os.path.realpath(where)


def find_file(
    where: str, options: dict[str, Any], *, allow_external: bool
) -> _internal.ForeignFile | None:
    """Returns the handle of a file that the engine can parse, or that has a kept chunk map."""
    return _find(_behind_links(where), _json.dump(options), allow_external=allow_external)


def _find(path: str, opening: str, *, allow_external: bool) -> _internal.ForeignFile | None:
    return engine_call(_internal.ForeignFile.find)(path, allow_external, opening)


def _open_file(
    path: str, opening: str, *, allow_external: bool, map_time: float | str | None
) -> _internal.ForeignFile:
    opened = _find(path, opening, allow_external=allow_external)
    if opened is not None:
        return opened
    try:
        parts = isolated_chunk_map(path, allow_external=allow_external, seconds=map_time)
    except ForeignFileError as error:
        if error.kind == "Conflict" and written_here([path]) is not None:
            raise ConflictError(
                f"{path}: this process has it open for writing: close it before it is opened here"
            ) from None
        raise BY_KIND.get(error.kind, BedformError)(str(error)) from None
    # Columns from the pipe may be unaligned; copies are aligned.
    tables = [(a.copy(), b.copy(), c.copy(), d.copy()) for a, b, c, d in parts.tables]
    return engine_call(_internal.ForeignFile.from_description)(
        path, parts.description, tables, allow_external, opening
    )


class ForeignStore(ReadaheadMixin, GroupMembers, HasAttributes):
    """A foreign file as a read-only store, with the reading methods of :class:`bedform.Store`.

    It is a context manager and pickles as path and options.
    """

    def __init__(
        self,
        path: str,
        shown: str,
        options: dict[str, Any],
        allow_external: bool,
        map_time: float | str | None = None,
        opened: _internal.ForeignFile | None = None,
    ) -> None:
        self._path, self._shown, self._options = path, shown, options
        self._allow_external, self._map_time = allow_external, map_time
        self._has_warned = False
        self._is_closed = False
        self._overwritten: str | None = None
        self._load(opened)

    def _load(self, opened: _internal.ForeignFile | None = None) -> None:
        self._opened = opened or self._open()
        self._process = _fork.current
        self._description: dict[str, Any] = json.loads(self._opened.description())
        self._arrays = {array["path"]: array for array in self._description["arrays"]}
        self._groups = {group["path"]: group for group in self._description["groups"]}
        self.style = _foreign_encoding.style_of(self._description)
        self._dimension_names: dict[str, dict[str, tuple[str, ...]]] = {}

    def _open(self) -> _internal.ForeignFile:
        opening = _json.dump(self._options)
        return _open_file(
            self._path, opening, allow_external=self._allow_external, map_time=self._map_time
        )

    @property
    def _inner(self) -> _internal.ForeignFile:
        """The engine's handle; a forked child process opens a handle of its own."""
        self._check_open()
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
        """Close the file: later calls on it and its members fail. May be called twice."""
        self._is_closed = True
        if self._process is _fork.current:
            self._opened.drop_prefetched()

    def _reloaded(self, path: str) -> ForeignArray | None:
        """Opens the changed file anew; returns its variable at ``path``, if it has one."""
        try:
            self._load()
        except BedformError:
            self._check_overwritten()
            raise
        return self[path] if path in self._arrays else None

    def _check_overwritten(self) -> None:
        """Fails if this process itself has written over the file; called after failed reads."""
        # Kept, since the writer closes the file after the failure.
        self._overwritten = self._overwritten or written_here(self._local_paths())
        if self._overwritten is not None:
            raise ConflictError(
                f"{self._overwritten} was overwritten by this process while it was open for "
                "reading, so what was not read yet is lost: load() a data set before it is written "
                "onto its own file"
            )

    def _local_paths(self) -> list[str]:
        """Returns the files of this machine that the store reads."""
        return [] if is_url(self._path) else [self._path]

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidArgumentError(
                f"{self._shown} is closed: open it again, or use it inside of its with block"
            )

    def __bool__(self) -> bool:
        """True until the file is closed, as in h5py."""
        return not self._is_closed

    @property
    def mode(self) -> str:
        """``"r"``: foreign files are read-only."""
        return "r"

    @property
    def store_path(self) -> str:
        """Path or URL of the file."""
        return self._shown

    @property
    def format(self) -> str:
        """``"hdf5"``, ``"netcdf4"`` or ``"netcdf-classic-1"``, ``-2``, ``-5``."""
        return str(self._description["format"])

    def _load_attributes(self) -> dict[str, Any]:
        return self.group_attributes("")

    def _change_attributes(self, *_: object) -> None:
        self._refuse_change()

    def group_attributes(self, path: str) -> dict[str, Any]:
        """Return the attributes of a group."""
        return _foreign_encoding.group_attributes(self._group(path), self.style)

    def _group(self, path: str) -> dict[str, Any]:
        self._check_open()
        try:
            found: dict[str, Any] = self._groups[path.strip("/")]
        except KeyError:
            raise NotFoundError(f"no group {path!r} in {self._shown}") from None
        return found

    def _names_in(self, group: str) -> dict[str, tuple[str, ...]]:
        """Returns the dimension names of a group's variables; computed for all of them together."""
        if group not in self._dimension_names:
            found = _foreign_encoding.dimension_names(self._description, group)
            self._dimension_names[group] = found
        return self._dimension_names[group]

    def dimensions(self, path: str = "") -> dict[str, int]:
        """Return the dimensions that a group defines, with their lengths."""
        return {item["name"]: item["size"] for item in self._group(path)["dimensions"]}

    def unlimited_dimensions(self, path: str = "") -> set[str]:
        """Return the dimensions of a group that can grow."""
        return _foreign_encoding.unlimited_dimensions(self._group(path))

    @property
    def unlimited_dims(self) -> set[str]:
        """The dimensions of the root group that can grow."""
        return self.unlimited_dimensions()

    def refused(self) -> dict[str, str]:
        """Return members that are not shown, with reasons: external links, unprintable names.

        An attribute that is neither text nor number has the key ``variable:attribute``; one of a
        group has ``group/:attribute``.
        """
        found = {}
        for path, group in self._groups.items():
            for member in group["refused"]:
                name = f"{path}/{member['name']}" if path else member["name"]
                found[name] = member["reason"]
        return found

    def _left_out(self, path: str = "") -> dict[str, str]:
        """Returns hidden members of a group with reasons, without attributes."""
        prefix = f"{path}/" if path else ""

        def is_attribute(name: str) -> bool:
            owner, colon, _ = name.partition(":")
            return bool(colon) and (not owner or f"{prefix}{owner}" in self._arrays)

        refused = {item["name"]: item["reason"] for item in self._group(path)["refused"]}
        return {name: reason for name, reason in refused.items() if not is_attribute(name)}

    def arrays(self) -> dict[str, ForeignArray]:
        """Return every variable by its path in the file."""
        return {path: self[path] for path in self._arrays}

    def _refuse_change(self, *_: object, **__: object) -> Any:
        """Fails: foreign files are never written."""
        raise ReadOnlyError(foreign_is_read(self._shown))

    create_array = create_arrays = create_dataset = create_group = _refuse_change
    require_array = require_dataset = require_group = move = _refuse_change
    zeros = ones = full = empty = zeros_like = ones_like = full_like = empty_like = _refuse_change
    delete = session = append = settle = set_attributes = _refuse_change
    __setitem__ = __delitem__ = _refuse_change

    def groups(self) -> dict[str, ForeignGroup]:
        """Return every group but the root, by path."""
        return {path: ForeignGroup(self, path) for path in self._groups if path}

    def _nodes_below(self) -> Iterator[tuple[str, str]]:
        yield from ((path, "array") for path in self._arrays)
        yield from ((path, "group") for path in self._groups if path)

    def _where(self) -> str:
        return self._shown

    def __contains__(self, path: object) -> bool:
        inner = path.strip("/") if isinstance(path, str) else path
        return inner in self._arrays or inner in self._groups

    def __getitem__(self, path: str) -> Any:
        self._check_open()
        if not isinstance(path, str):
            raise self._no_item(path)
        inner = path.strip("/")
        if inner in self._groups:
            return ForeignGroup(self, inner) if inner else self
        if inner in self._arrays:
            return ForeignArray(self, self._arrays[inner])
        if inner in self.refused():
            raise NotFoundError(f"{self._shown}: {inner!r} is not read: {self.refused()[inner]}")
        below = [name for name, _ in self._nodes_below()]
        members = [name for name in below if "/" not in name]
        raise NotFoundError(unknown_member(path, self._shown, members, below))

    def _blocks_of(self, array: ForeignArray) -> dict[str, Any]:  # noqa: ARG002
        """Returns Dask blocks for the encoding of a variable, beyond those of the file."""
        return {}

    def _array_at(self, path: str) -> ForeignArray:
        found = self[path]
        if not isinstance(found, ForeignArray):
            raise NotFoundError(f"no array {path!r} in {self._shown}")
        return found

    def index(
        self,
        arrays: str | Sequence[str] | None = None,
        *,
        anew: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> IndexReport:
        """Build or renew the value indexes of variables of the file: see :func:`bedform.index`."""
        from bedform._index import index_opened

        return index_opened(self, arrays, anew=anew, progress=progress)

    def info(self) -> dict[str, Any]:
        """Return the file's contents as plain values.

        ``replicas`` and ``indexes`` are as in :meth:`Store.info`.
        """
        from bedform._index import conditions_of_indexes

        return {
            "path": self._shown,
            "format": self.format,
            "attributes": self._load_attributes(),
            "groups": sorted(self.groups()),
            "arrays": {path: array.info() for path, array in self.arrays().items()},
            "refused": self.refused(),
            "replicas": self._replica_conditions(),
            "indexes": conditions_of_indexes(self._inner),
        }

    def _replica_conditions(self) -> list[dict[str, Any]]:
        return conditions_of(self._path)

    def verify(self, progress: Callable[[int, int], object] | None = None) -> list[str]:
        """Read every variable once, and return one line for each unreadable variable.

        Foreign files have only the checksums of their format, often none. The line of a variable
        that may be intact, but that Bedform cannot read, begins with ``cannot be checked:``.
        """
        problems = []
        for number, (path, array) in enumerate(self.arrays().items()):
            if progress is not None:
                progress(number, len(self._arrays))
            try:
                for key in array._pieces():
                    array[key]
            except CorruptError as error:
                problems.append(f"{path}: {error}")
            except BedformError as error:
                problems.append(f"{NOT_CHECKED}{error}")
        return problems

    def _warn_native(self, path: str, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            native = [other for other in self._arrays.values() if "native" in other["storage"]]
            others = f", and so are up to {len(native) - 1} more" if len(native) > 1 else ""
            said = f"{self._shown}: {path!r} is read through its native library{others}: {reason}"
            warnings.warn(
                _shown.line(said),
                NativeReadWarning,
                stacklevel=5,
            )

    def __repr__(self) -> str:
        return f"<bedform.ForeignStore {self._shown!r} {self.format}>"


class ForeignGroup(GroupMembers, HasAttributes):
    """A group of a foreign file."""

    def __init__(self, store: ForeignStore, path: str) -> None:
        self._store, self.path = store, path

    def _load_attributes(self) -> dict[str, Any]:
        return self._store.group_attributes(self.path)

    def _change_attributes(self, *_: object) -> None:
        self._store._refuse_change()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def _where(self) -> str:
        return f"{self._store.store_path}/{self.path}"

    @property
    def unlimited_dims(self) -> set[str]:
        """The dimensions that the group defines and that can grow."""
        return self._store.unlimited_dimensions(self.path)

    def _left_out(self) -> dict[str, str]:
        """Returns hidden members of the group with reasons."""
        return self._store._left_out(self.path)

    def groups(self) -> dict[str, ForeignGroup]:
        """Return every group below the group by its path from here."""
        prefix = f"{self.path}/"
        return {
            path.removeprefix(prefix): group
            for path, group in self._store.groups().items()
            if path.startswith(prefix)
        }

    def arrays(self) -> dict[str, ForeignArray]:
        """Return every variable below the group by its path from here."""
        prefix = f"{self.path}/"
        return {
            path.removeprefix(prefix): array
            for path, array in self._store.arrays().items()
            if path.startswith(prefix)
        }

    def _nodes_below(self) -> Iterator[tuple[str, str]]:
        prefix = f"{self.path}/"
        for path, kind in self._store._nodes_below():
            if path.startswith(prefix):
                yield path.removeprefix(prefix), kind

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise self._no_item(name)
        path = f"{self.path}/{name.strip('/')}"
        if path in self._store or path in self._store.refused():
            return self._store[path]
        below = [path for path, _ in self._nodes_below()]
        members = [path for path in below if "/" not in path]
        raise NotFoundError(unknown_member(name, self._where(), members, below))

    def __repr__(self) -> str:
        return f"<bedform.ForeignGroup {self.path!r} of {self._store.store_path!r}>"
