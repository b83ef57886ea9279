"""Stores of Icechunk: a session's, or the newest commit of a local repository's branch ``main``.

Icechunk reads the bytes, and decides by its configuration which virtual chunks are allowed. The
engine does the rest. A snapshot never changes, so nothing is checked twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bedform import _internal, _json, _shown
from bedform._errors import (
    CorruptError,
    InvalidArgumentError,
    UnsupportedError,
    engine_call,
)
from bedform._references import References, absolute_root
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable

#: Name of all documents of Zarr v3, and of no directory.
_DOCUMENT = "zarr.json"
_BRANCH = "main"
#: The engine reads this variable for all other sets of references.
_ROOTS_VARIABLE = "BEDFORM_ALLOW_EXTERNAL"


class IcechunkSnapshot(References):
    """A snapshot of Icechunk: its name, a ``str``, together with the session."""

    __slots__ = ("_is_local", "_place", "_session")

    _session: Any
    _place: str
    _is_local: bool

    @classmethod
    def of_session(cls, session: Any, name: str, place: str, *, is_local: bool) -> IcechunkSnapshot:
        """Wraps a read-only session; ``place`` determines the sidecar."""
        made = cls(name)
        made._session, made._place, made._is_local = session, place, is_local
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self._session, str(self), self._place, self._is_local))

    def open(self, options: dict[str, Any]) -> _internal.Store:
        """Opens the engine's handle."""
        own = {name: value for name, value in options.items() if name != "allow_external"}
        return engine_call(_internal.Store.open_callback, str(self))(
            _shown.encodable(str(self)),
            _Objects(self._session.store),
            self._session.snapshot_id,
            not self._is_local,
            self._place,
            _json.dump(own),
        )


def _restore(session: Any, name: str, place: str, is_local: bool) -> IcechunkSnapshot:
    return IcechunkSnapshot.of_session(session, name, place, is_local=is_local)


class _Objects:
    """Access of the engine to the keys of an Icechunk store, from any thread."""

    def __init__(self, store: Any) -> None:
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        self._store, self._prototype = store, default_buffer_prototype()
        self._sync: Callable[[Any], Any] = sync

    def size(self, key: str) -> int | None:
        """Returns the bytes of an object; None if it does not exist."""
        return self._sync(self._size(key)) if _is_key(key) else None

    async def _size(self, key: str) -> int | None:
        try:
            size: int = await self._store.getsize(key)
        except Exception:
            # Icechunk raises the same exception for missing objects as for other errors.
            if await self._store.exists(key):
                raise
            return None
        # It says 0 for chunks that are not stored.
        return size if size > 0 or await self._store.exists(key) else None

    def read(self, key: str, start: int, length: int) -> bytes:
        """Returns bytes of an object."""
        from zarr.abc.store import RangeByteRequest

        request = RangeByteRequest(start, start + length)
        found = self._sync(self._store.get(key, self._prototype, request))
        if found is None:
            raise CorruptError(f"{key} is gone from a snapshot, which never changes")
        data: bytes = found.to_bytes()
        return data

    async def _entries(self, path: str) -> list[tuple[str, bool]]:
        names = [name.rstrip("/") async for name in self._store.list_dir(path)]
        inside = f"{path}/" if path else ""
        found = []
        for name in names:
            key = f"{inside}{name}"
            is_object = name == _DOCUMENT or (_is_key(key) and await self._store.exists(key))
            found.append((name, not is_object))
        return found

    def list(self, path: str) -> list[tuple[str, bool]]:
        """Returns the names directly below a path, each with whether it is a directory."""
        return [*self._sync(self._entries(path))]


def _is_key(key: str) -> bool:
    """Whether Icechunk accepts a key: that of a document or a chunk."""
    name = key.rpartition("/")[2]
    return name == _DOCUMENT or (name.isdecimal() and "/c/" in f"/{key}") or name == "c"


def snapshot_of(given: Any) -> IcechunkSnapshot:
    """Returns the snapshot of an Icechunk session, or of a session's store."""
    session = getattr(given, "session", given)
    if not hasattr(session, "snapshot_id"):
        raise InvalidArgumentError(
            f"{type(given).__name__}: open a session of it, repo.readonly_session('main')"
        )
    if not session.read_only:
        raise InvalidArgumentError(
            "a session of Icechunk that can be written: commit it, and open "
            "repo.readonly_session('main')"
        )
    name = f"icechunk snapshot {session.snapshot_id}"
    return IcechunkSnapshot.of_session(session, name, f"/{name}", is_local=False)


def newest_snapshot(where: str, external: bool | list[str]) -> IcechunkSnapshot:
    """Returns the newest snapshot of the branch ``main`` of the repository in a directory.

    Containers of virtual chunks are authorised if ``external`` or `BEDFORM_ALLOW_EXTERNAL` allows
    them.
    """
    try:
        import icechunk
    except ImportError:
        raise UnsupportedError(
            f"{where}: repositories of Icechunk are read by the package icechunk: "
            "pip install icechunk"
        ) from None
    storage = icechunk.local_filesystem_storage(str(Path(where).absolute()))
    try:
        config = icechunk.Repository.fetch_config(storage)
        containers = [*(config.virtual_chunk_containers or ())] if config is not None else []
        if external is not True:
            roots = _roots_of(external)
            containers = [prefix for prefix in containers if _is_below(prefix, roots)]
        allowed = dict.fromkeys(containers)
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
        session = repository.readonly_session(_BRANCH)
    except icechunk.IcechunkError as error:
        raise CorruptError(f"{where}: {_first_line(error)}") from error
    return IcechunkSnapshot.of_session(session, where, str(Path(where).absolute()), is_local=True)


def _roots_of(external: list[str] | Literal[False]) -> list[str]:
    """Returns the roots of the argument and the environment as URLs, as Icechunk has them."""
    given = [root for root in os.environ.get(_ROOTS_VARIABLE, "").split(";") if root]
    roots = [*(external or ()), *map(absolute_root, given)]
    return [root if is_url(root) else f"file://{root}" for root in roots]


def _is_below(prefix: str, roots: list[str]) -> bool:
    """Whether a container of virtual chunks lies below a root."""
    return ".." not in prefix.split("/") and any(
        f"{prefix.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") for root in roots
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip(" x|`->") for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
