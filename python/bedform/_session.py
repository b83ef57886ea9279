"""Writing sessions: many writes that one commit makes visible together."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bedform import _fork, _selection
from bedform._elements import ElementConverter
from bedform._errors import (
    BedformError,
    InvalidArgumentError,
    NotFoundError,
    PoisonedError,
    check_name,
)
from bedform._integers import integer, integers
from bedform._mesh_writing import MeshBoxes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from bedform import _internal
    from bedform._array import Array
    from bedform._comm import MpiMessages
    from bedform._store import Store

__all__ = ["Decomposition", "Session", "Settled"]

Settled = dict[str, int]


@dataclass(frozen=True)
class Decomposition:
    """Boxes that :meth:`Session.declare` registered with a session."""

    session: Session
    number: int | None
    """Number of the decomposition in the engine; None if no box has elements."""
    rank: int


class _PendingArray:
    """Shape and element conversion of an array that the session creates with its next commit."""

    def __init__(self, path: str, shape: Sequence[int], dtype: Any) -> None:
        self.shape = integers(shape, f"the shape of {path}")
        self.ndim = len(self.shape)
        given = ElementConverter(path, np.dtype(dtype))
        self._converted, self._elements = given.converted, given.flat


class Session:
    """A writing session; :meth:`bedform.Store.session` starts it.

    Writes are appended to a log beside the store at the speed of the device, whatever their shape
    and order. A commit makes all of them visible together and durable. Where writes overlap, the
    later one counts. As a context manager a session commits the rest at its end, and settles unless
    ``settle="later"``; after an exception it commits nothing more. A forked child process cannot
    use its parent's session. Processes that write together make the same collective calls in the
    same order. Differing calls raise an ``InvalidArgumentError`` in all of them, which names the
    call of each.
    """

    def __init__(
        self,
        store: Store,
        inner: _internal.Session,
        members: MpiMessages | None = None,
    ) -> None:
        self._store = store
        self._opened, self._process = inner, _fork.current
        self._members = members
        self._arrays: dict[str, Array | _PendingArray] = {}
        self._meshes = MeshBoxes(store)
        self._last_token = 0
        # Numbers of decompositions that Python has collected; the engine forgets them later, since
        # a finalizer must not wait for a call of another thread.
        self._collected: deque[int] = deque()
        self._has_ended = False

    @property
    def _inner(self) -> _internal.Session:
        """The engine's handle; a forked child process must not use it, and fails."""
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
            The index of the box's first element along each axis. Without it the values must have
            the shape of the whole array.
        copy
            ``False`` avoids copying the elements where possible. They must then not change until
            :meth:`wait` returns for the result of this call, or until the next commit. With a copy
            they may change at once.

        Returns
        -------
        int or None
            Without a copy, the token for :meth:`wait`.

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
        return self._note_token(lend(name, selection, array._elements(data)))

    def _note_token(self, token: int) -> int:
        self._last_token = max(self._last_token, token)
        return token

    def wait(self, token: int) -> None:
        """Wait until the values that were written without a copy, up to this token, may change.

        Raises
        ------
        InvalidArgumentError
            No write of this session has returned such a token.
        """
        number = integer(token, "what to wait for")
        if number > self._last_token:
            raise InvalidArgumentError(
                f"no write of this session has returned {number}; wait for what write returned"
            )
        self._store._call(self._inner.wait)(number)

    def flush(self) -> None:
        """Hand all written data to the kernel, so that they survive the end of this process.

        Only a commit makes them durable and visible. Not collective.
        """
        self._store._call(self._inner.flush)()

    def write_boxes(
        self, name: str, values: Any, starts: Any, shapes: Any, *, level: int | None = None
    ) -> None:
        """Write boxes of an array, or of a level of a refined mesh.

        Parameters
        ----------
        name
            The array's path; of a mesh (:meth:`bedform.Store.create_mesh`) the component, behind
            the path of the mesh: ``"plt00100/density"``.
        values
            The elements of all boxes, along one axis. Of a mesh also an array for each box.
        starts, shapes
            An array of integers with one row for each box.
        level
            The level of the mesh. The first call for a level is collective: every process calls
            it with its boxes, which may be none. The calls for the other components then have the
            same boxes.

        Raises
        ------
        ExistsError
            The level of the mesh has boxes from an earlier session.
        InvalidArgumentError
            The boxes of a mesh overlap or leave its domain.
        """
        if level is not None:
            self._meshes.write(self, name, values, starts, shapes, level)
            return
        array = self._array(name)
        chosen = _boxes(starts, shapes)
        elements = array._elements(array._converted(values))
        if chosen[0]:
            self._store._call(self._inner.write_boxes)(name, *chosen, elements)
        else:
            self._write(name, ("union", []), elements)

    def declare(self, starts: Any, shapes: Any) -> Decomposition:
        """Declare boxes that this process writes many times, in many arrays or at many records.

        A write of declared boxes adds no description of them to the log. The memory of a
        decomposition that the program no longer holds is freed.

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
        forgotten = [self._collected.popleft() for _ in range(len(self._collected))]
        number = self._store._call(self._inner.declare)(starts, shapes, rank, forgotten)
        declared = Decomposition(self, number, rank)
        weakref.finalize(declared, self._collected.append, number).atexit = False
        return declared

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

        Without a ``copy`` the elements must not change, as with :meth:`write`; the result is the
        token for :meth:`wait`.
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
        return self._note_token(lend(name, record, number, elements))

    def create_arrays(self, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Create arrays that appear with the next commit, all or none, and can be written at once.

        A background thread creates them while the session writes, for simulations with hundreds of
        variables. Collective: all processes make the call, with the same arrays.

        Parameters
        ----------
        arrays
            The arguments of :meth:`bedform.Store.create_array` by path; text arrays are not
            allowed.

        Raises
        ------
        ExistsError
            A path is taken; no array is created. If another program takes one later, the commit
            fails with this error or a :class:`ConflictError`.

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
            self._arrays[path] = _PendingArray(path, arguments["shape"], arguments["dtype"])

    def resize(self, name: str, shape: Sequence[int] | int) -> None:
        """Make an array larger from the next commit on; new elements are the fill value.

        Not collective: along each axis the largest length of all processes counts.
        """
        self._array(name)
        lengths = integers(shape, f"the shape of {name}")
        self._store._call(self._inner.resize)(name, list(lengths))

    def append(self, name: str, values: Any, axis: int = 0) -> int:
        """Append behind the end of an array; returns the index of this process's first element.

        Collective: the appended elements follow each other by rank. They become visible with the
        next commit, which raises :class:`ConflictError` if another session appended first.
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
        """Write to a selection of an array, in NumPy's basic indexing; otherwise as :meth:`write`.

        Negative indexes count from the end of the committed array. For elements that this session
        has appended, use :meth:`write` with ``start``.
        """
        array = self._array(name)
        selected = _selection.basic(key, array.shape)
        data = _selection.spread(name, array._converted(values), selected)
        self._write(name, selected.engine, array._elements(data))

    def _array(self, name: str) -> Array | _PendingArray:
        check_name(name)
        if name not in self._arrays:
            self._arrays[name] = self._found(name)
        return self._arrays[name]

    def _found(self, name: str) -> Array:
        # The engine looks the array up first, since values are converted to the type that it knows.
        # Its errors are ignored here: the write raises them.
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
        """Make all writes so far visible together; returns the number of the commit.

        Durable on return. Collective. Without new writes it returns the last commit's number.

        Raises
        ------
        ConflictError
            Another writer has changed one of the written arrays.
        """
        number: int = self._store._call(self._inner.commit)()
        # The created arrays exist now, perhaps with a larger shape: look them up again.
        self._arrays = {
            name: array
            for name, array in self._arrays.items()
            if not isinstance(array, _PendingArray)
        }
        return number

    def commit_begin(self) -> None:
        """Begin a commit of all writes so far, and return while it becomes durable.

        The program may compute the next step meanwhile, but not change lent buffers. The processes
        agree on the commit in :meth:`commit_wait`; until then the session accepts no other call.
        Not collective.

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
        """Complete the commit that has begun, as :meth:`commit`; returns its number.

        Collective.
        """
        return self.commit()

    def drain(self) -> int:
        """Wait until all commits are drained and visible; returns the last number.

        Collective. Without a burst tier, or with ``durability="disk"``, all commits are visible
        already.
        """
        number: int = self._store._call(self._inner.drain)()
        return number

    def close(self) -> None:
        """End the session and drop uncommitted writes.

        In a forked child process it does nothing: the session belongs to the parent.
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
    """Returns the start of a box; without ``start`` the box must be the whole array."""
    if start is None:
        # A default start at the origin would silently write every step to the first record.
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
    """Returns starts and shapes of the boxes that have elements, flat, and their rank."""
    try:
        first, lengths = np.asarray(starts), np.asarray(shapes)
    except ValueError:
        # Rows of different lengths form no array: the check of axes below refuses them.
        first = lengths = np.empty(())
    whole = all(part.dtype.kind in "iu" or not part.size for part in (first, lengths))
    if not whole:
        _check_beyond(starts, shapes)
    if not whole or first.ndim != 2 or first.shape != lengths.shape:
        raise InvalidArgumentError(
            "boxes are two arrays of integers, starts and shapes, with a row for each box"
        )
    if min(first.min(initial=0), lengths.min(initial=0)) < 0:
        raise InvalidArgumentError("starts and shapes of boxes must not be negative")
    kept = (lengths > 0).all(axis=1)
    return first[kept].ravel().tolist(), lengths[kept].ravel().tolist(), first.shape[1]


def _check_beyond(*given: Any) -> None:
    """Fails at an integer beyond 64 bits: NumPy makes objects or floats of such lists."""
    values: list[Any] = []
    # Rows of different lengths may form no array at all.
    with contextlib.suppress(ValueError):
        values = [one for part in given for one in np.asarray(part, object).flat]
    if all(isinstance(one, int) for one in values):
        for one in values:
            integer(one, "starts and shapes of boxes")
