"""The mapping interface of groups, shared by stores and foreign files."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, ValuesView
from typing import TYPE_CHECKING, Any

from bedform._attributes import StrictAttributes
from bedform._errors import WrongTypeError
from bedform._query import Queried
from bedform._tree import GroupTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class GroupMembers(Queried, StrictAttributes):
    """Base class of groups: members by name, with methods of dict, h5py and zarr-python.

    A subclass provides ``__getitem__`` and the nodes below the group.
    """

    def _nodes_below(self) -> Iterator[tuple[str, str]]:
        """Iterates over path (from here) and kind, ``"array"`` or ``"group"``, of all nodes."""
        raise NotImplementedError

    def _where(self) -> str:
        """Returns the group's name for messages."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self._nodes_below() if path and "/" not in path)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """True, also for a group without members, as in h5py."""
        return True

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(path == name for path, _ in self._nodes_below())

    def keys(self) -> KeysView[str]:
        """The names of the members."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """The arrays and groups of the group itself."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:
        """Names with their arrays and groups."""
        return ItemsView(self)

    def get(self, name: str, default: Any = None) -> Any:
        """The array or group ``name``, or ``default`` if there is none."""
        if name not in self:
            return default
        return self[name]

    def array_keys(self) -> list[str]:
        """The names of the arrays of the group itself."""
        return [path for path, kind in self._nodes_below() if kind == "array" and "/" not in path]

    def group_keys(self) -> list[str]:
        """The names of the groups of the group itself."""
        return [path for path, kind in self._nodes_below() if kind == "group" and "/" not in path]

    def array_values(self) -> list[Any]:
        """The arrays of the group itself."""
        return [self[name] for name in self.array_keys()]

    def group_values(self) -> list[Any]:
        """The groups of the group itself."""
        return [self[name] for name in self.group_keys()]

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Return the number of arrays and groups, ``max_depth`` groups deep; ``None`` for all."""
        paths = (path for path, _ in self._nodes_below() if path)
        return sum(max_depth is None or path.count("/") <= max_depth for path in paths)

    def members(self, max_depth: int | None = 0) -> tuple[tuple[str, Any], ...]:
        """Return paths from here with their arrays and groups.

        Parameters
        ----------
        max_depth
            Number of groups to descend; 0 for the group's own members, ``None`` for all.
        """
        return tuple(
            (path, self[path])
            for path, _ in self._sorted()
            if max_depth is None or path.count("/") <= max_depth
        )

    def visit(self, function: Callable[[str], Any]) -> Any:
        """Call ``function(path)`` for all nodes below until one call returns a value; return it."""
        for path, _ in self._sorted():
            found = function(path)
            if found is not None:
                return found
        return None

    def visititems(self, function: Callable[[str, Any], Any]) -> Any:
        """Call ``function(path, member)`` for all nodes below until one call returns a value."""
        return self.visit(lambda path: function(path, self[path]))

    def _sorted(self) -> list[tuple[str, str]]:
        """Returns all nodes below by name, each group before its members."""
        nodes = ((path, kind) for path, kind in self._nodes_below() if path)
        return sorted(nodes, key=lambda node: node[0].split("/"))

    def tree(self, level: int | None = None) -> GroupTree:
        """Return the nodes below as a printable tree.

        Parameters
        ----------
        level
            Number of groups to descend; all by default.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("model/t", (8, 90), "float32")
        >>> print(store.tree())
        /
        └── model
            └── t (8, 90) float32
        """
        lines = []
        for path, kind in self._sorted():
            if level is None or path.count("/") < level:
                array = self[path] if kind == "array" else None
                about = "" if array is None else f"{array.shape} {_type_name(array)}"
                lines.append((path, about))
        return GroupTree(lines)

    def _no_item(self, key: Any) -> WrongTypeError:
        """Returns the error for brackets without a name."""
        return WrongTypeError(
            f"{self._where()} is a group, which has members by name, not {key!r}: choose an array "
            f"first, such as group[{next(iter(self.array_keys()), 'name')!r}][...]"
        )

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        from bedform._html import shown

        return shown(self)


def _type_name(array: Any) -> str:
    if not array.dtype.hasobject:
        return str(array.dtype)
    return getattr(array, "_type_words", "str")
