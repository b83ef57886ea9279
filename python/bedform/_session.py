"""Writing sessions: many writes that become visible at once."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bedform import _fork, _selection
from bedform._elements import Elements
from bedform._errors import (
    BedformError,
    InvalidArgumentError,
    NotFoundError,
    PoisonedError,
    check_name,
)
from bedform._integers import integer, integers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from bedform import _internal
    from bedform._array import Array
    from bedform._comm import Messages
    from bedform._store import Store

__all__ = ["Decomposition", "Session", "Settled"]

Settled = dict[str, int]


@dataclass(frozen=True)
class Decomposition:
    """Boxes that a session knows: :meth:`Session.declare` gives it."""

    session: Session
    number: int | None
    """The engine's; none without elements."""
    rank: int


class _New:
    """An array that a session has created, and that nobody sees yet: what writing to it needs."""

    def __init__(self, path: str, shape: Sequence[int], dtype: Any) -> None:
        self.shape = integers(shape, f"the shape of {path}")
        self.ndim = len(self.shape)
        given = Elements(path, np.dtype(dtype))
        self._converted, self._elements = given.converted, given.flat


class Session:
    """A writing session; :meth:`bedform.Store.session` gives it.

    Writes are appended to a log beside the store as fast as the device takes them, whatever their
    shape and order; a commit makes all of them visible at once, durably. Where writes overlap the
    later one counts. Used as a context manager a session commits what is left, and settles, unless
    it was told to leave that for later; after an exception nothing more is committed. A process
    that is forked from that of a session cannot use it. Processes that write together make the
    same collective calls in the same order: calls that differ are an ``InvalidArgumentError`` in
    all of them, which names what each has called.
    """

    def __init__(
        self,
        store: Store,
        inner: _internal.Session,
        members: Messages | None = None,
    ) -> None:
        self._store = store
        self._opened, self._process = inner, _fork.current
        self._members = members
        self._arrays: dict[str, Array | _New] = {}
        self._lent = 0
        self._has_ended = False

    @property
    def _inner(self) -> _internal.Session:
        """The engine's handle: not in a child process, which can do nothing good to a session."""
        if self._is_of_parent():
            raise PoisonedError(
                f"{self._store.store_path}: the session is that of the process from which this one "
                "was forked: start a new session"
            )
        return self._opened

    def _is_of_parent(self) -> bool:
        return self._process is not _fork.current

    def write(
        self,
        name: str,
        values: Any,
        start: Sequence[int] | int | None = None,
        *,
        copy: bool = True,
    ) -> int | None:
        """Write a box of an array; not visible before the commit.

        Parameters
        ----------
        name
            The array's path.
        values
            The elements.
        start
            The box's first element along each axis: whole numbers. Without it the values are those
            of the whole array.
        copy
            ``False`` leaves the elements where they are, where that helps: they must not change
            until :meth:`wait` for what this returns, or the next commit. With a copy they may at
            once.

        Returns
        -------
        int or None
            Without a copy, what to wait for.

        Raises
        ------
        OutOfBoundsError
            The box leaves the array.
        InvalidArgumentError
            The values have another number of axes, masked elements, or a type that the array cannot
            hold; or, without ``start``, another shape than the array.
        """
        array = self._array(name)
        data = array._converted(values)
        corner = _corner(name, array.shape, data.shape, start)
        box = tuple(slice(at, at + length) for at, length in zip(corner, data.shape, strict=True))
        shape = tuple(max(end.stop, n) for end, n in zip(box, array.shape, strict=True))
        selection = _selection.basic(box, shape).engine
        if copy:
            self._write(name, selection, array._elements(data))
            return None
        lend = self._store._call(self._inner.lend)
        return self._keep(lend(name, selection, array._elements(data)))

    def _keep(self, token: int) -> int:
        self._lent = max(self._lent, token)
        return token

    def wait(self, token: int) -> None:
        """Wait until what was written without a copy, up to this token, may change again.

        Raises
        ------
        InvalidArgumentError
            No write of this session has returned such a token.
        """
        number = integer(token, "what to wait for")
        if number > self._lent:
            raise InvalidArgumentError(
                f"no write of this session has returned {number}; wait for what write returned"
            )
        self._store._call(self._inner.wait)(number)

    def flush(self) -> None:
        """Hand everything that was written to the system, so that it outlives this process.

        It is durable and visible only with a commit. Not collective.
        """
        self._store._call(self._inner.flush)()

    def write_boxes(self, name: str, values: Any, starts: Any, shapes: Any) -> None:
        """Write boxes of an array: the elements of one follow those of the other.

        Parameters
        ----------
        name
            The array's path.
        values
            The elements of all boxes, in one axis.
        starts, shapes
            One row for each box.
        """
        array = self._array(name)
        chosen = _boxes(starts, shapes)
        elements = array._elements(array._converted(values))
        if chosen[0]:
            self._store._call(self._inner.write_boxes)(name, *chosen, elements)
        else:
            self._write(name, ("union", []), elements)

    def declare(self, starts: Any, shapes: Any) -> Decomposition:
        """Declare boxes that this process writes many times: of many arrays, or at many records.

        The data of such a write need no description of their own.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/run.zarr")
        >>> t = store.create_array("t", shape=(4, 6), dtype="int32", dims=("time", "x"))
        >>> with store.session() as session:
        ...     parts = session.declare(starts=[[0], [4]], shapes=[[1], [2]])
        ...     session.write_declared("t", [7, 8, 9], parts, record=2)
        >>> t[2].tolist()
        [7, 0, 0, 0, 8, 9]
        """
        starts, shapes, rank = _boxes(starts, shapes)
        if not starts:
            return Decomposition(self, None, rank)
        number = self._store._call(self._inner.declare)(starts, shapes, rank)
        return Decomposition(self, number, rank)

    def write_declared(
        self,
        name: str,
        values: Any,
        decomposition: Decomposition,
        record: int | None = None,
        *,
        copy: bool = True,
    ) -> int | None:
        """Write declared boxes of an array, or of its ``record`` along the first axis.

        Without a ``copy`` the elements stay where they are, as with :meth:`write`, and what this
        returns is for :meth:`wait`.
        """
        if not isinstance(decomposition, Decomposition):
            raise InvalidArgumentError(
                f"the decomposition must be what declare returned, not {decomposition!r}"
            )
        if decomposition.session is not self:
            raise InvalidArgumentError("the decomposition was declared in another session")
        if record is not None:
            record = integer(record, f"the record of {name}")
        array = self._array(name)
        elements = array._elements(array._converted(values))
        number = decomposition.number
        if number is None:
            self._write(name, ("union", []), elements)
            return None if copy else 0
        if copy:
            self._store._call(self._inner.write_declared)(name, record, number, elements)
            return None
        lend = self._store._call(self._inner.lend_declared)
        return self._keep(lend(name, record, number, elements))

    def create_arrays(self, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Create arrays that appear with the next commit, all or none, and can be written at once.

        They are created in the background, while the session is written to: for the output of a
        simulation with hundreds of variables. All processes of the session make the call, with the
        same arrays.

        Parameters
        ----------
        arrays
            By path, the arguments of :meth:`bedform.Store.create_array`; not of text.

        Raises
        ------
        ExistsError
            A path is taken; nothing has been created. If another program takes one meanwhile, the
            commit fails, with a ``Conflict`` or this.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> with store.session() as session:
        ...     session.create_arrays({
        ...         name: {"shape": (2, 3), "dtype": "int32", "dims": ("y", "x")} for name in "uvw"
        ...     })
        ...     session.write("v", [[1, 2, 3]], start=(1, 0))
        >>> sorted(store), store["v"][1].tolist()
        (['u', 'v', 'w'], [1, 2, 3])
        """
        described = self._store._described(arrays)
        self._store._call(self._inner.create_arrays)(described)
        for path, arguments in arrays.items():
            self._arrays[path] = _New(path, arguments["shape"], arguments["dtype"])

    def resize(self, name: str, shape: Sequence[int] | int) -> None:
        """Make an array larger, from the next commit on; new elements are the fill value.

        Not collective: of several shapes the largest of each axis counts.
        """
        self._array(name)
        lengths = integers(shape, f"the shape of {name}")
        self._store._call(self._inner.resize)(name, list(lengths))

    def append(self, name: str, values: Any, axis: int = 0) -> int:
        """Append behind the end of an array; give where the elements of this process start.

        All processes of the session make the call; what they append follows each other by rank. It
        is visible with the next commit, which is a ``Conflict`` if another session was faster.
        """
        array = self._array(name)
        data = array._converted(values)
        axis = integer(axis, f"the axis of {name}", least=-array.ndim)
        if data.ndim != array.ndim or not -array.ndim <= axis < array.ndim:
            raise InvalidArgumentError(
                f"{name} has {array.ndim} axes; the values have {data.ndim}, the axis is {axis}"
            )
        call = self._store._call(self._inner.append)
        return call(name, axis % array.ndim, list(data.shape), array._elements(data))

    def write_at(self, name: str, key: Any, values: Any) -> None:
        """Write to a selection of an array, NumPy's basic indexing; as :meth:`write`.

        The key counts from the end of what is committed: of elements that this session has
        appended, :meth:`write` takes the ``start``.
        """
        array = self._array(name)
        selected = _selection.basic(key, array.shape)
        data = _selection.spread(name, array._converted(values), selected)
        self._write(name, selected.engine, array._elements(data))

    def _array(self, name: str) -> Array | _New:
        check_name(name)
        if name not in self._arrays:
            self._arrays[name] = self._found(name)
        return self._arrays[name]

    def _found(self, name: str) -> Array:
        # Before its type is: values are converted to that of the array that the engine knows. What
        # it has against the array it says to the call that writes.
        with contextlib.suppress(BedformError):
            self._store._call(self._inner.look_up)(name)
        try:
            return self._store.array(name)
        except NotFoundError:
            names = sorted({*self._store.arrays(), *self._arrays})
            known = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise NotFoundError(
                f"no array {name!r} in {self._store.store_path}: it has {known or 'none'}"
            ) from None

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
        # What was new is there now, and may have been made larger.
        self._arrays = {
            name: array for name, array in self._arrays.items() if not isinstance(array, _New)
        }
        return number

    def commit_begin(self) -> None:
        """Begin a commit of everything written so far, and return while it becomes durable.

        The next step can be computed meanwhile; buffers that were lent may not be changed. All
        that the processes agree on is done by :meth:`commit_wait`, until which the session takes
        nothing else. Not collective.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> array = store.create_array("t", shape=(3, 4), dtype="int32")
        >>> with store.session() as session:
        ...     for step in range(3):
        ...         session.write("t", np.full((1, 4), step), start=(step, 0))
        ...         session.commit_begin()
        ...         # The next step is computed here.
        ...         _ = session.commit_wait()
        >>> store["t"][:, 0].tolist()
        [0, 1, 2]
        """
        self._store._call(self._inner.commit_begin)()

    def commit_wait(self) -> int:
        """End the commit that has begun, as :meth:`commit`; give its number.

        All processes of the session make the call.
        """
        return self.commit()

    def drain(self) -> int:
        """Wait until all commits have left the burst tiers and are visible; give the last number.

        All processes of the session make the call. Without a burst tier, or at
        ``durability="disk"``, every commit is visible already.
        """
        number: int = self._store._call(self._inner.drain)()
        return number

    def close(self) -> None:
        """End the session. What was not committed is gone.

        In a process that was forked meanwhile it does nothing: the session is the parent's.
        """
        if not self._is_of_parent():
            self._has_ended = True
            self._inner.close()
            self._free()

    def _free(self) -> None:
        if self._members is not None:
            self._members.free()
            self._members = None

    def __enter__(self) -> Self:
        if self._has_ended:
            raise InvalidArgumentError("the session is closed; start a new one")
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
        inner = self._inner
        self._has_ended = True
        try:
            self._store._call(inner.end)()
        finally:
            self._free()
        self._store._inner.warn()


def _corner(
    name: str, shape: tuple[int, ...], box: tuple[int, ...], start: Sequence[int] | int | None
) -> tuple[int, ...]:
    """Where a box of values begins; without a start they must be the whole array."""
    if start is None:
        # A box that went to the corner in silence would be every step at the first one.
        if box != shape:
            raise InvalidArgumentError(
                f"{name} has the shape {shape}, the values have {box}; "
                "give start= to write a part of it"
            )
        return (0,) * len(shape)
    corner = integers(start, f"the start in {name}")
    if len(box) != len(shape) or len(corner) != len(shape):
        raise InvalidArgumentError(
            f"{name} has {len(shape)} axes; the values have {len(box)}, start has {len(corner)}"
        )
    return corner


def _boxes(starts: Any, shapes: Any) -> tuple[list[int], list[int], int]:
    """Starts and shapes of the boxes that have elements, one behind the other, and their rank."""
    try:
        first, lengths = np.asarray(starts), np.asarray(shapes)
    except ValueError:
        # Rows of several lengths are no array: they are refused below, as one without axes is.
        first = lengths = np.empty(())
    whole = all(part.dtype.kind in "iu" or not part.size for part in (first, lengths))
    if not whole or first.ndim != 2 or first.shape != lengths.shape:
        raise InvalidArgumentError(
            "boxes are two arrays of integers, starts and shapes, with a row for each box"
        )
    if min(first.min(initial=0), lengths.min(initial=0)) < 0:
        raise InvalidArgumentError("starts and shapes of boxes must not be negative")
    kept = (lengths > 0).all(axis=1)
    return first[kept].ravel().tolist(), lengths[kept].ravel().tolist(), first.shape[1]
