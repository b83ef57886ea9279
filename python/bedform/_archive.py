"""Archives: many foreign files as one store.

The engine joins them: variables that have the joined dimension have the elements of all files, one
behind the other, all others are those of the first file. Here files that only the library of their
format understands are described by it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bedform import _fork, _internal, _json
from bedform._catalogue import conditions_of
from bedform._dask_blocks import PreferredChunks, block_shape
from bedform._errors import (
    BY_KIND,
    BedformError,
    InvalidArgumentError,
    ReadOnlyError,
    engine_call,
)
from bedform._foreign_child import isolated_chunk_map
from bedform._foreign_names import ForeignFileError
from bedform._foreign_store import ForeignStore
from bedform._hints import foreign_is_read
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedform._foreign_array import ForeignArray

#: What the engine gives of a chunk map: the description, and the columns of each table.
_Described = tuple[bytes, list[tuple[Any, Any, Any, Any]]]


def open_archive(
    paths: list[str],
    shown: str,
    options: dict[str, Any],
    *,
    concat_dim: str | None = None,
    map_time: float | str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> ArchiveStore:
    """The files at ``paths`` as one store."""
    if not paths:
        raise InvalidArgumentError("the list of paths is empty: give one or more files")
    if concat_dim is not None and not isinstance(concat_dim, str):
        raise InvalidArgumentError(
            f"concat_dim must be the name of a dimension, not {concat_dim!r}"
        )
    if options["writable"]:
        raise ReadOnlyError(f"{foreign_is_read(shown)}; mode 'r' reads them")
    # Another working directory may be that of the process that opens a pickle.
    full = [path if is_url(path) else os.path.abspath(path) for path in paths]  # noqa: PTH100
    return ArchiveStore(full, shown, options, concat_dim, map_time, progress)


class ArchiveStore(ForeignStore):
    """Many foreign files as one store, read-only: see :func:`bedform.open`.

    A context manager; pickles as paths and options.
    """

    def __init__(
        self,
        paths: list[str],
        shown: str,
        options: dict[str, Any],
        concat_dim: str | None,
        map_time: float | str | None = None,
        progress: Callable[[int, int], object] | None = None,
        opened: _internal.ForeignFile | None = None,
    ) -> None:
        self._paths, self._concat_dim = paths, concat_dim
        self._progress = progress
        super().__init__(os.path.realpath(paths[0]), shown, options, False, map_time, opened)
        # Not of later opens, in other threads or processes.
        self._progress = None

    def _open(self) -> _internal.ForeignFile:
        opening = _json.dump(self._options)
        opened = engine_call(_internal.ForeignFile.open_archive)
        return opened(
            self._paths, self._concat_dim, opening, self._described_by_library, self._progress
        )

    def _described_by_library(self, path: str) -> _Described:
        try:
            parts = isolated_chunk_map(path, seconds=self._map_time)
        except ForeignFileError as error:
            raise BY_KIND.get(error.kind, BedformError)(str(error)) from None
        # Columns that came over a pipe may lie anywhere; copies are aligned.
        tables = [(a.copy(), b.copy(), c.copy(), d.copy()) for a, b, c, d in parts.tables]
        return parts.description, tables

    def __reduce__(self) -> tuple[Any, ...]:
        options = (_json.dump(self._options), self._concat_dim, self._map_time)
        return (_reopened, (tuple(self._paths), self._shown, *options))

    def _blocks_of(self, array: ForeignArray) -> dict[str, Any]:
        """Blocks for Dask of a joined variable without chunks, which no block should have whole."""
        if array.chunks is not None or array._inner is None or self.concat_dim not in array.dims:
            return {}
        # A record, or what the first file has.
        unit: list[int] = json.loads(array._inner.describe())["chunks"]
        blocks = block_shape(array.shape, array.dtype.itemsize, tuple(unit))
        # Any part of such variables can be read alone.
        return {"preferred_chunks": PreferredChunks(array.dims, blocks, [1] * array.ndim)}

    @property
    def paths(self) -> list[str]:
        """The files, in the order in which they are joined."""
        return list(self._paths)

    @property
    def concat_dim(self) -> str:
        """The dimension along which the files are joined."""
        return str(self._opened.joined_dimension())

    def info(self) -> dict[str, Any]:
        """What the files hold together, as plain values."""
        facts = super().info()
        first = {key: facts.pop(key) for key in ("path", "format")}
        return {**first, "files": len(self._paths), "concat_dim": self.concat_dim, **facts}

    def _replica_conditions(self) -> list[dict[str, Any]]:
        return conditions_of(list(self._paths), self.concat_dim)

    def __repr__(self) -> str:
        return f"<bedform.ArchiveStore {self._shown!r} of {len(self._paths)} files>"


#: Handles of archives that came by pickle and are still used: one holds thousands of paths, and
#: comes with each of its variables.
_PICKLED: WeakValueDictionary[tuple[Any, ...], _internal.ForeignFile] = WeakValueDictionary()


def _reopened(
    paths: tuple[str, ...],
    shown: str,
    options: str,
    concat_dim: str | None,
    map_time: float | str | None,
) -> ArchiveStore:
    # A child process has handles of its own.
    key = (paths, options, concat_dim, map_time, _fork.current)
    # Two threads may both open it: a lock could be held when the process forks.
    opened = _PICKLED.get(key)
    own = json.loads(options)
    store = ArchiveStore([*paths], shown, own, concat_dim, map_time, opened=opened)
    _PICKLED[key] = store._opened
    return store
