"""What the groups of stores and of foreign files share: their members, as a mapping."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, ValuesView
from typing import TYPE_CHECKING, Any

from bedform._attributes import Stored
from bedform._errors import WrongTypeError
from bedform._tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Members(Stored):
    """The members of a group, by name, in the words of dictionaries, h5py and zarr-python.

    A subclass has ``__getitem__``, and gives the nodes below it.
    """

    def _nodes_below(self) -> Iterator[tuple[str, str]]:
        """The path from here and the kind, ``"array"`` or ``"group"``, of all that is below."""
        raise NotImplementedError

    def _where(self) -> str:
        """What messages call it."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self._nodes_below() if path and "/" not in path)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """True, also of a group without members, as in h5py."""
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
        """How many arrays and groups there are, so many groups deep; ``None`` for all."""
        paths = (path for path, _ in self._nodes_below() if path)
        return sum(max_depth is None or path.count("/") <= max_depth for path in paths)

    def members(self, max_depth: int | None = 0) -> tuple[tuple[str, Any], ...]:
        """Paths from here with their arrays and groups.

        Parameters
        ----------
        max_depth
            How many groups deep; 0 for the members of the group itself, ``None`` for all.
        """
        return tuple(
            (path, self[path])
            for path, _ in self._sorted()
            if max_depth is None or path.count("/") <= max_depth
        )

    def visit(self, function: Callable[[str], Any]) -> Any:
        """Call ``function(path)`` for all that is below, until it gives something; give that."""
        for path, _ in self._sorted():
            found = function(path)
            if found is not None:
                return found
        return None

    def visititems(self, function: Callable[[str, Any], Any]) -> Any:
        """Call ``function(path, member)`` for all that is below, until it gives something."""
        return self.visit(lambda path: function(path, self[path]))

    def _sorted(self) -> list[tuple[str, str]]:
        """All that is below by name, a group before what it holds."""
        nodes = ((path, kind) for path, kind in self._nodes_below() if path)
        return sorted(nodes, key=lambda node: node[0].split("/"))

    def tree(self, level: int | None = None) -> Tree:
        """What is below, as a text to print.

        Parameters
        ----------
        level
            How many groups deep; without it all.

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
        return Tree(lines)

    def _no_item(self, key: Any) -> WrongTypeError:
        """The error of brackets that hold no name."""
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
