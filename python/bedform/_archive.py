"""Archives: many foreign files as one store.

The engine joins and compares the files. Variables with the joined dimension have the elements of
all files, one after the other; all others come from the first file. This module describes files
that only the library of their format can parse.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bedform import _fork, _internal, _json, _shown
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
from bedform._left_out import ArchiveWarning, warn_of_left_out
from bedform._paths import join_of
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedform._foreign_array import ForeignArray
    from bedform._paths import Join

#: A chunk map for the engine: the description, and the columns of each table.
_Described = tuple[bytes, list[tuple[Any, Any, Any, Any]]]


def open_archive(
    paths: list[str],
    shown: str,
    options: dict[str, Any],
    *,
    concat_dim: str | None = None,
    compat: str = "equals",
    map_time: float | str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> ArchiveStore:
    """Opens the files at ``paths`` as one store; warns of omitted members and of differences."""
    if not paths:
        raise InvalidArgumentError("the list of paths is empty: give one or more files")
    join = join_of(paths, concat_dim, compat)
    if options["writable"]:
        raise ReadOnlyError(f"{foreign_is_read(shown)}; mode 'r' reads them")
    # Absolute, since a pickle may be opened in another working directory.
    full = [path if is_url(path) else os.path.abspath(path) for path in paths]  # noqa: PTH100
    store = ArchiveStore(full, shown, options, join, map_time, progress)
    differing = store._opened.differing_files()
    if differing is not None:
        warnings.warn(_shown.line(differing), ArchiveWarning, stacklevel=3)
    left_out: dict[str, str] = {}
    for path in store._groups:
        prefix = f"{path}/" if path else ""
        left_out |= {f"{prefix}{name}": why for name, why in store._left_out(path).items()}
    warn_of_left_out(shown, left_out, stacklevel=3)
    return store


class ArchiveStore(ForeignStore):
    """Many foreign files as one store, read-only: see :func:`bedform.open`.

    It is a context manager and pickles as paths and options.
    """

    def __init__(
        self,
        paths: list[str],
        shown: str,
        options: dict[str, Any],
        join: Join,
        map_time: float | str | None = None,
        progress: Callable[[int, int], object] | None = None,
        opened: _internal.ForeignFile | None = None,
    ) -> None:
        self._paths, self._join = paths, join
        self._progress = progress
        super().__init__(os.path.realpath(paths[0]), shown, options, False, map_time, opened)
        # Later opens, perhaps in other threads or processes, report no progress.
        self._progress = None

    def _open(self) -> _internal.ForeignFile:
        opening = _json.dump(self._options)
        opened = engine_call(_internal.ForeignFile.open_archive)
        return opened(self._paths, self._join, opening, self._described_by_library, self._progress)

    def _described_by_library(self, path: str) -> _Described:
        try:
            parts = isolated_chunk_map(path, seconds=self._map_time)
        except ForeignFileError as error:
            raise BY_KIND.get(error.kind, BedformError)(str(error)) from None
        # Columns from the pipe may be unaligned; copies are aligned.
        tables = [(a.copy(), b.copy(), c.copy(), d.copy()) for a, b, c, d in parts.tables]
        return parts.description, tables

    def __reduce__(self) -> tuple[Any, ...]:
        options = (_json.dump(self._options), self._join, self._map_time)
        return (_reopened, (tuple(self._paths), self._shown, *options))

    def _blocks_of(self, array: ForeignArray) -> dict[str, Any]:
        """Returns Dask blocks of a joined variable without chunks, which is too large for one."""
        if array.chunks is not None or array._inner is None or self.concat_dim not in array.dims:
            return {}
        # The unit is a record, or the part in the first file.
        unit: list[int] = json.loads(array._inner.describe())["chunks"]
        blocks = block_shape(array.shape, array.dtype.itemsize, tuple(unit))
        # Any part of such variables can be read alone.
        return {"preferred_chunks": PreferredChunks(array.dims, blocks, [1] * array.ndim)}

    def _local_paths(self) -> list[str]:
        return self._paths

    @property
    def paths(self) -> list[str]:
        """Paths of the files, in the order in which they are joined."""
        order, _ = self._order()
        return [self._paths[number] for number in order]

    def _order(self) -> tuple[list[int], bool]:
        """Returns the numbers of the paths in joined order, and whether labels define it."""
        return self._opened.joined_order() or ([], False)

    @property
    def concat_dim(self) -> str:
        """The dimension along which the files are joined."""
        return str(self._opened.joined_dimension())

    def info(self) -> dict[str, Any]:
        """Return the joined contents of the files, as plain values."""
        facts = super().info()
        first = {key: facts.pop(key) for key in ("path", "format")}
        by = self.concat_dim if self._order()[1] else "name" if self._join[2] else "list"
        joined = {"files": len(self._paths), "concat_dim": self.concat_dim, "ordered_by": by}
        return {**first, **joined, "order": self.paths, **facts}

    def _replica_conditions(self) -> list[dict[str, Any]]:
        return conditions_of(list(self._paths), self._join)

    def __repr__(self) -> str:
        return f"<bedform.ArchiveStore {self._shown!r} of {len(self._paths)} files>"


#: Open handles of unpickled archives. A handle holds thousands of paths, and each variable of the
#: archive pickles with one.
_PICKLED: WeakValueDictionary[tuple[Any, ...], _internal.ForeignFile] = WeakValueDictionary()


def _reopened(
    paths: tuple[str, ...],
    shown: str,
    options: str,
    join: Join,
    map_time: float | str | None,
) -> ArchiveStore:
    # A forked child process opens its own handles.
    key = (paths, options, join, map_time, _fork.current)
    # Two threads may open it twice: a lock could be held while the process forks.
    opened = _PICKLED.get(key)
    own = json.loads(options)
    store = ArchiveStore([*paths], shown, own, join, map_time, opened=opened)
    _PICKLED[key] = store._opened
    return store
