"""Writing sessions: many writes that become visible at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bedform import _selection
from bedform._errors import InvalidArgumentError
from bedform._text import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from bedform import _internal
    from bedform._array import Array
    from bedform._comm import Messages
    from bedform._store import Store

__all__ = ["Session", "Settled"]

Settled = dict[str, int]


class Session:
    """A writing session; :meth:`bedform.Store.session` gives it.

    Writes are appended to a log beside the store as fast as the device takes them, whatever their
    shape and order; a commit makes all of them visible at once, durably. Where writes overlap the
    later one counts. Used as a context manager a session commits what is left, and settles, unless
    it was told to leave that for later; after an exception nothing more is committed.
    """

    def __init__(
        self,
        store: Store,
        inner: _internal.Session,
        settle: Literal["exit", "later"],
        members: Messages | None = None,
    ) -> None:
        self._store = store
        self._inner = inner
        self._settle = settle
        self._members = members
        self._arrays: dict[str, Array] = {}

    def write(self, name: str, values: Any, start: Sequence[int] | None = None) -> None:
        """Write a box of an array; not visible before the commit.

        Parameters
        ----------
        name
            The array's path.
        values
            The elements; they are copied and may change afterwards.
        start
            The box's first element along each axis; the array's first without it.

        Raises
        ------
        OutOfBoundsError
            The box leaves the array.
        InvalidArgumentError
            The values have another number of axes, or a type that the array cannot hold.
        """
        array = self._array(name)
        data = array._converted(values)
        corner = (0,) * array.ndim if start is None else tuple(int(at) for at in start)
        if data.ndim != array.ndim or len(corner) != array.ndim:
            raise InvalidArgumentError(
                f"{name} has {array.ndim} axes; the values have {data.ndim}, "
                f"start has {len(corner)}"
            )
        if min(corner, default=0) < 0:
            raise InvalidArgumentError(f"{name}: start {corner} must not be negative")
        box = tuple(slice(at, at + length) for at, length in zip(corner, data.shape, strict=True))
        shape = tuple(max(end.stop, n) for end, n in zip(box, array.shape, strict=True))
        selected = _selection.basic(box, shape)
        self._write(name, selected.engine, array._elements(data))

    def write_at(self, name: str, key: Any, values: Any) -> None:
        """Write to a selection of an array, NumPy's basic indexing; as :meth:`write`."""
        array = self._array(name)
        selected = _selection.basic(key, array.shape)
        data = np.broadcast_to(array._converted(values), selected.result)
        self._write(name, selected.engine, array._elements(data))

    def _array(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = self._store.array(name)
        return self._arrays[name]

    def _write(self, name: str, selection: tuple[Any, ...], elements: Any) -> None:
        self._store._call(self._inner.write)(name, selection, elements)

    def commit(self) -> int:
        """Make everything written so far visible, at once; give the number of the commit.

        Durable on return. All processes of the session make the call. Without anything new it
        gives the number of the last commit.

        Raises
        ------
        ConflictError
            Another writer has changed an array that was written to.
        """
        number: int = self._store._call(self._inner.commit)()
        return number

    def close(self) -> None:
        """End the session. What was not committed is gone."""
        self._inner.close()
        self._free()

    def _free(self) -> None:
        if self._members is not None:
            self._members.free()
            self._members = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.close()
            return
        try:
            self._store._call(self._inner.end)(self._settle == "exit")
        finally:
            self._free()


def buffer_bytes(buffer: int | str) -> int:
    """Bytes that wait in memory to be written, from a number or text."""
    return buffer if isinstance(buffer, int) else parse_bytes(buffer)
