"""Attributes of groups and arrays, as mappings that write through.

What
----
``array.attributes["units"] = "K"`` is durable when it returns. No assignment is lost silently:
attributes of a read-only store or file refuse it. So do lists and mappings inside an attribute,
which are copies.

How
---
- Each lookup calls the owner, which decides on the freshness of its answer.
- A change reads all attributes from storage, changes them and writes all of them. Threads of this
  process take turns; between two processes that change one node at the same time, the later wins.
- Lists and mappings inside an attribute are returned as :class:`ReadOnlyList` and
  :class:`ReadOnlyDict`. They equal plain ones, encode as JSON, and copies of them are plain.
"""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

import numpy as np

from bedform._errors import InvalidArgumentError, NotFoundError, ReadOnlyError
from bedform._hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from bedform._store import Store

# Serializes changes by all threads of the process.
_TURN = threading.RLock()


class AttributeOwner(Protocol):
    """Interface of a group or array with attributes."""

    def _where(self) -> str:
        """Returns its name for messages."""

    def _load_attributes(self) -> dict[str, Any]:
        """Returns the attributes as reads see them."""

    def _change_attributes(self, change: Any) -> None:
        """Stores ``change`` of the newest attributes; fails for read-only owners."""


class Attributes(MutableMapping[str, Any]):
    """The attributes of a group or array: a mapping that writes through.

    Every change, including :meth:`update`, is one durable write of all attributes of the node.

    Examples
    --------
    >>> import bedform as bf, tempfile
    >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8,), "f4")
    >>> t.attributes["units"] = "K"
    >>> t.attributes.update(valid_range=[180, 340], source="a model")
    >>> t.attributes
    {'units': 'K', 'valid_range': [180, 340], 'source': 'a model'}
    """

    def __init__(self, owner: AttributeOwner) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> Any:
        held = self._owner._load_attributes()
        if name not in held:
            known = ", ".join(list(held)[:12]) or "none"
            meant = did_you_mean(name, held)
            raise NotFoundError(
                f"no attribute {name!r} of {self._owner._where()}{meant or ':'} it has {known}"
            )
        return read_only(held[name])

    def __contains__(self, name: object) -> bool:
        return name in self._owner._load_attributes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner._load_attributes())

    def __len__(self) -> int:
        return len(self._owner._load_attributes())

    def items(self) -> ItemsView[str, Any]:
        """Names and values; each iteration is one lookup."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """The values; each iteration is one lookup."""
        return _Values(self)

    def _held(self) -> dict[str, Any]:
        """Returns all attributes from one lookup, each as brackets return it."""
        return {name: read_only(value) for name, value in self._owner._load_attributes().items()}

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        def remove(held: dict[str, Any]) -> dict[str, Any]:
            if name not in held:
                raise NotFoundError(f"no attribute {name!r} of {self._owner._where()}")
            return {key: value for key, value in held.items() if key != name}

        self._change(remove)

    def update(self, *others: Any, **named: Any) -> None:
        """Set several attributes in one write."""
        given: dict[str, Any] = dict(*others, **named)
        for name in given:
            if not isinstance(name, str):
                raise InvalidArgumentError(f"the name of an attribute must be text, not {name!r}")
        if given:
            self._change(lambda held: {**held, **given})

    def put(self, attributes: Mapping[str, Any]) -> None:
        """Replace all attributes, in one write."""
        plain = dict(attributes)
        self._change(lambda _: plain)

    def clear(self) -> None:
        """Remove all attributes, in one write."""
        self.put({})

    def pop(self, name: str, *default: Any) -> Any:
        """Remove an attribute and return its value, or ``default``."""
        if default and name not in self:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def asdict(self) -> dict[str, Any]:
        """Return all attributes as a plain dictionary, a copy."""
        return dict(self._owner._load_attributes())

    def create(self, name: str, data: Any, shape: Any = None, dtype: Any = None) -> None:
        """Set an attribute, as in h5py; ``shape`` and ``dtype`` first convert ``data``."""
        if shape is not None or dtype is not None:
            data = np.asarray(data, dtype=dtype)
            data = data if shape is None else data.reshape(shape)
        self[name] = data

    def modify(self, name: str, value: Any) -> None:
        """Set an attribute, as in h5py."""
        self[name] = value

    def _change(self, change: Any) -> None:
        with _TURN:
            self._owner._change_attributes(change)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return self.asdict() | dict(other)

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return dict(other) | self.asdict()

    def copy(self) -> dict[str, Any]:
        """As :meth:`asdict`."""
        return self.asdict()

    def __repr__(self) -> str:
        return repr(self._owner._load_attributes())

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


class _Items(ItemsView[str, Any]):
    _mapping: Attributes

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._mapping._held().items())


class _Values(ValuesView[Any]):
    _mapping: Attributes

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping._held().values())


class HasAttributes:
    """Base class of groups and arrays with readable attributes.

    A subclass is an :class:`AttributeOwner`.
    """

    if TYPE_CHECKING:

        def _where(self) -> str: ...
        def _load_attributes(self) -> dict[str, Any]: ...
        def _change_attributes(self, change: Any) -> None: ...

    @property
    def attributes(self) -> Attributes:
        """The attributes, as a mapping."""
        return Attributes(self)

    @property
    def attrs(self) -> Attributes:
        """As :attr:`attributes`."""
        return self.attributes


class StoredNode(HasAttributes):
    """Base class of arrays and groups of a store, whose attributes write through."""

    _store: Store

    if TYPE_CHECKING:

        @property
        def path(self) -> str: ...

    @property
    def store(self) -> Store:
        """The store that contains the array or group."""
        return self._store

    @property
    def file(self) -> Store:
        """As :attr:`store`."""
        return self._store

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written."""
        return not self._store._is_writable

    @property
    def attributes(self) -> Attributes:
        """The attributes: a mapping that writes through. Assign a mapping to replace all."""
        return Attributes(self)

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        self._store.set_attributes(attributes, self.path)

    @property
    def attrs(self) -> Attributes:
        """As :attr:`attributes`."""
        return self.attributes

    @attrs.setter
    def attrs(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Set several attributes in one write; return the array or group."""
        self.attributes.update(attributes)
        return self

    def _change_attributes(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._store._change_attributes_of(self.path, change)


class StrictAttributes:
    """Base class of arrays and groups that refuses unknown Python attributes."""

    #: Allowed instance attributes besides those of the class.
    _OWN: ClassVar = frozenset({"path", "oindex", "vindex", "style"})

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] != "_" and name not in self._OWN and not hasattr(type(self), name):
            raise InvalidArgumentError(
                f"{name} would not be stored: assign to attributes[{name!r}] instead"
            )
        super().__setattr__(name, value)


def read_only(value: Any) -> Any:
    """Return ``value``, or a copy that refuses changes in place."""
    if isinstance(value, dict):
        return ReadOnlyDict({key: read_only(entry) for key, entry in value.items()})
    if isinstance(value, list):
        return ReadOnlyList(map(read_only, value))
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    return value


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    kind = "list" if isinstance(self, list) else "dictionary"
    raise ReadOnlyError(
        f"this {kind} is a copy of an attribute, and a change of it would be lost: change "
        f"{kind}(value) and assign that to the attribute"
    )


class ReadOnlyList(list[Any]):
    """A copy of a list inside an attribute; it refuses changes."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce_ex__(self, _: Any) -> Any:
        return (list, (list(self),))

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return [_plain(entry) for entry in self]


class ReadOnlyDict(dict[str, Any]):
    """A copy of a mapping inside an attribute; it refuses changes."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse

    def __reduce_ex__(self, _: Any) -> Any:
        return (dict, (dict(self),))

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return {key: _plain(entry) for key, entry in self.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value
