"""Groups: arrays and groups below one path of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedform._attributes import StoredNode
from bedform._creating import Creating
from bedform._errors import (
    CorruptError,
    InvalidArgumentError,
    LimitExceededError,
    NotFoundError,
    PermissionDeniedError,
    SnapshotMovedError,
    UnsupportedError,
    check_name,
)
from bedform._hints import unknown_member

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from bedform._array import Array
    from bedform._store import Store


# Errors of damaged or unsupported arrays. Consolidated metadata may name arrays that are gone.
_REFUSALS = (CorruptError, LimitExceededError, NotFoundError, UnsupportedError)


class Group(Creating, StoredNode):
    """A group of a store: arrays and groups below one path.

    Members are accessed by name as in a dictionary, h5py and zarr-python.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    @property
    def path(self) -> str:
        """The path in the store; empty for the root."""
        return self._path

    @property
    def name(self) -> str:
        """The last part of the path; empty for the root."""
        return self._path.rpartition("/")[2]

    @property
    def parent(self) -> Group:
        """The parent group; for the root the root itself."""
        above = self._path.rpartition("/")[0]
        return Group(self._store, above) if above else self._store

    # Attributes -----------------------------------------------------------------------------------

    def _load_attributes(self) -> dict[str, Any]:
        return self._store._attributes_of(self._path)

    # Members --------------------------------------------------------------------------------------

    def _below(self) -> Iterator[tuple[str, str, str]]:
        prefix = f"{self._path}/" if self._path else ""
        for path, kind in self._store._call(self._store._inner.nodes)():
            if path.startswith(prefix):
                yield path, path.removeprefix(prefix), kind

    def _nodes_below(self) -> Iterator[tuple[str, str]]:
        return ((name, kind) for _, name, kind in self._below())

    def _join(self, name: str) -> str:
        inner = check_name(name).strip("/")
        return f"{self._path}/{inner}" if self._path and inner else self._path or inner

    def _kind(self, name: str) -> str | None:
        """Returns the kind of the node at a name: ``"array"``, ``"group"`` or None."""
        return self._store._call(self._store._inner.kind)(self._join(name))

    def _is_array(self) -> bool:
        """Whether the store's root is a single array instead of a group."""
        return not self._path and self._store._inner.is_array()

    def arrays(self) -> dict[str, Array]:
        """Return every readable array below the group by its path from here.

        A store that is a single array has it under the empty name. :meth:`refused` has the others.
        """
        return self._opened_arrays()[0]

    def refused(self) -> dict[str, str]:
        """Return every unreadable array below the group by its path from here, with the reason.

        Its metadata are damaged, or need an unsupported feature, such as a data type or codec.

        Examples
        --------
        >>> import bedform as bf, pathlib, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = pathlib.Path(store.store_path, "a").mkdir()
        >>> store.refused()
        {}
        """
        return self._opened_arrays()[1]

    def _opened_arrays(
        self, exclude: Collection[str] = (), *, nested: bool = True
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns the readable arrays, and reasons for the others; skips those in ``exclude``."""
        if self._is_array():
            return {"": self._store.array("")}, {}
        arrays, refused = {}, {}
        for path, name, kind in self._below():
            if kind != "array" or name in exclude or ("/" in name and not nested):
                continue
            try:
                arrays[name] = self._store.array(path)
            except _REFUSALS as error:
                refused[name] = str(error)
        return arrays, refused

    def groups(self) -> dict[str, Group]:
        """Return every group below the group by its path from here."""
        return {
            name: Group(self._store, path) for path, name, kind in self._below() if kind == "group"
        }

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            return self._kind(name.strip("/")) is not None
        except _REFUSALS:
            # The node exists but cannot be read.
            return True

    def __getitem__(self, name: str) -> Any:
        key: Any = name
        if isinstance(key, (slice, tuple, list)) or key is Ellipsis:
            raise self._no_group("[...]") if self._is_array() else self._no_item(key)
        path = self._join(name)
        # Not the kind first: both calls read the metadata, and loops often repeat the lookup.
        try:
            return self._store.array(path)
        except (NotFoundError, SnapshotMovedError) as error:
            if self._kind(name) == "group":
                return Group(self._store, path) if path else self._store
            if isinstance(error, SnapshotMovedError):
                raise
        raise NotFoundError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        """Returns the message for an unknown name; without other names if they cannot be listed."""
        if self._is_array():
            return str(self._no_group(""))
        try:
            below = [path for path, _ in self._nodes_below()]
        except PermissionDeniedError:
            return f"no array or group {name!r} in {self._where()}"
        members = (path for path in below if "/" not in path)
        return unknown_member(name, self._where(), members, below)

    def _no_group(self, brackets: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self._where()} is a single array, not a group: read it as store['']{brackets}"
        )

    def __setitem__(self, name: str, value: Any) -> None:
        """Create an array with these values; arrays of Bedform and xarray bring their metadata.

        A taken name is an error: ``group["x"][...] = values`` replaces elements.
        """
        self.create_array(name, data=value)

    def __delitem__(self, name: str) -> None:
        # Also deletes nodes that another program has partly removed and that have no kind.
        try:
            self._store._call(self._store._inner.delete)(self._join(name))
        except NotFoundError:
            raise NotFoundError(self._unknown(name)) from None

    # Representation -----------------------------------------------------------------------------

    def _where(self) -> str:
        return self._store._place_of(self._path)

    def __repr__(self) -> str:
        return f"<bedform.Group {self._path!r} of {self._store.store_path}>"
