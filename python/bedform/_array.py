"""Arrays."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bedform import _fork, _json, _selection
from bedform._elements import AnyArray, Elements
from bedform._errors import InvalidArgumentError, ReadOnlyError, WrongTypeError
from bedform._explanation import Explanation
from bedform._integers import integer, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bedform import _internal
    from bedform._store import Store


class BasicReads:
    """What every array that can be read does with a selection.

    A subclass has ``shape`` and ``dtype`` and fills buffers.
    """

    path: str

    def __init__(self) -> None:
        # The last read: its selection, its counts, its seconds.
        self._last: tuple[Any, tuple[int, ...], float] | None = None
        self.oindex = OrthogonalIndex(self)
        self.vindex = PointIndex(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        raise NotImplementedError

    def _fill(self, selected: _selection.Selected, buffer: AnyArray) -> None:
        raise NotImplementedError

    def _fill_by(
        self,
        read: Callable[[Any, AnyArray], tuple[int, ...]],
        selected: _selection.Selected,
        buffer: AnyArray,
    ) -> None:
        """Fill ``buffer`` by a read of the engine, and keep what it did for :meth:`explain`."""
        # A view as bytes: the buffer protocol does not know every type.
        target = buffer.reshape(-1).view(np.uint8)
        began = time.perf_counter()
        counts = read(selected.engine, target)
        self._last = (selected.engine, counts, time.perf_counter() - began)

    def _set(self, selected: _selection.Selected, value: Any) -> None:  # noqa: ARG002
        raise ReadOnlyError(f"{self.path} is only read; convert the file to write to it")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.ndim:
            raise WrongTypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self[at]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise InvalidArgumentError("an array of a store cannot be had without a copy")
        return np.asarray(self[...], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        return self._get(_selection.basic(key, self.shape))

    def read(self, selection: Any = ..., out: AnyArray | None = None) -> AnyArray:
        """Read a basic selection, into ``out`` if given.

        Parameters
        ----------
        selection
            As inside the brackets: ``np.s_[:, 300, 700]``.
        out
            A C-contiguous, writable array of the selection's shape and the array's dtype; it is
            filled without a copy.

        Raises
        ------
        OutOfBoundsError
            The selection leaves the array.
        CorruptError
            Stored bytes are damaged; ``out`` is then undefined.
        """
        return np.asarray(self._get(_selection.basic(selection, self.shape), out, scalar=False))

    def prefetch(self, selection: Any = ...) -> dict[str, int]:
        """Decode the chunks of a basic selection into the cache, where later reads find them.

        No more is decoded than the store's cache may keep (``cache=`` of :func:`bedform.open`).
        Texts are left out, and elements that are stored as they are, without codec or checksum:
        the page cache of the system keeps files.

        Returns
        -------
        dict
            ``chunks`` decoded, parts of a log among them; ``present`` that the cache had; how many
            were ``left_out``; and the ``objects``, ``requests`` and ``bytes`` that it took.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> t.prefetch(np.s_[:4])["left_out"]
        0
        """
        counts, present, left_out = self._prefetch(_selection.basic(selection, self.shape))
        names = ("objects", "requests", "bytes", "chunks")
        done = dict(zip(names, counts, strict=False))
        return done | {"present": present, "left_out": left_out}

    def _prefetch(self, selected: _selection.Selected) -> tuple[tuple[int, ...], int, int]:
        raise NotImplementedError

    def _get(
        self, selected: _selection.Selected, out: AnyArray | None = None, *, scalar: bool = True
    ) -> Any:
        if out is None:
            buffer = np.empty(selected.shape, dtype=self.dtype)
        else:
            self._check_out(selected, out)
            buffer = out
        self._fill(selected, buffer)
        if out is not None:
            return out
        if selected.scalar and scalar:
            return buffer.reshape(())[()]
        return buffer.reshape(selected.result)

    def _measured(self, selected: _selection.Selected) -> dict[str, Any]:
        """What the last read did, if it was of this selection."""
        # As text: arrays of positions have no equality of their own.
        if self._last is None or repr(self._last[0]) != repr(selected.engine):
            return {}
        _, counts, seconds = self._last
        names = ("objects", "requests", "bytes", "chunks", "waits")
        measured = {f"measured_{name}": count for name, count in zip(names, counts, strict=True)}
        return measured | {"measured_seconds": seconds}

    def _check_out(self, selected: _selection.Selected, out: AnyArray) -> None:
        if out.dtype != self.dtype or out.shape != selected.result:
            raise InvalidArgumentError(
                f"out has shape {out.shape} and dtype {out.dtype}, "
                f"the selection {selected.result} and {self.dtype}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise InvalidArgumentError("out must be C-contiguous and writable")


class Array(BasicReads):
    """An N-dimensional variable of a store; ``store["name"]`` gives it.

    ``[]`` is NumPy's basic indexing, ``.oindex`` takes one list per axis, ``.vindex`` points.
    Values are raw: decoding by conventions is xarray's. What is written is converted as NumPy's
    assignment does; masked elements, times and text are refused where numbers are stored. Reading
    releases the interpreter's lock; one array may be used by many threads. Arrays pickle as their
    stores do.
    """

    def __init__(self, store: Store, inner: _internal.Array) -> None:
        self._store = store
        self.path = inner.path
        self._bind(inner)
        self._facts: dict[str, Any] = _json.load(store._call(inner.describe)())
        self._dtype = np.dtype(self._facts["numpy"])
        self._text = self._dtype.hasobject
        self._given = Elements(self.path, self._dtype)
        super().__init__()

    def _bind(self, inner: _internal.Array) -> None:
        self._opened, self._process = inner, _fork.current
        self._read = self._store._call(inner.read)
        self._element = self._store._call(inner.element)

    def _enter_process(self) -> None:
        """In a child process, take a handle of its own."""
        if self._process is not _fork.current:
            inner = self._store._call(self._store._inner.array)(self.path)
            _fork.leave_behind((self._opened, self._read, self._element))
            self._bind(inner)

    @property
    def _inner(self) -> _internal.Array:
        self._enter_process()
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._store, self.path))

    # What it is -----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis, as storage has them now."""
        return tuple(self._store._call(self._inner.shape)())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements; ``object`` (of ``str``) for text."""
        return cast("np.dtype[Any]", self._dtype)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes; ``dim_0`` and so on where none are given."""
        names = self._facts["dims"] or [None] * len(self._facts["shape"])
        return tuple(name or f"dim_{axis}" for axis, name in enumerate(names))

    @property
    def chunks(self) -> tuple[int, ...]:
        """Elements of a chunk along each axis: the unit of encoding."""
        return tuple(self._facts["chunks"])

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Elements of a shard along each axis; ``None`` for arrays without shards."""
        shards = self._facts["shards"]
        return None if shards is None else tuple(shards)

    @property
    def order(self) -> str | None:
        """The order of the chunks in a shard; ``None`` for arrays without shards."""
        return cast("str | None", self._facts["order"])

    @property
    def fill_value(self) -> Any:
        """What elements are that were never written."""
        if self._text:
            return self._facts["fill_value"]
        raw = self._store._call(self._inner.fill_bytes)()
        return np.frombuffer(raw, dtype=self._dtype)[0]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, as storage has them now. A copy: assign to change them."""
        described = _json.load(self._store._call(self._inner.describe)())
        return cast("dict[str, Any]", described["attributes"])

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        self._store.set_attributes(attributes, self.path)

    def info(self) -> dict[str, Any]:
        """Everything that is known of the array, as plain values."""
        facts: dict[str, Any] = _json.load(self._store._call(self._inner.describe)())
        facts["bytes"] = self.size * (self._dtype.itemsize if not self._text else 0)
        return facts

    def document(self) -> dict[str, Any]:
        """The metadata document: of Zarr v3 ``zarr.json``, of v2 ``.zarray``."""
        return cast("dict[str, Any]", _json.load(self._store._call(self._inner.document)()))

    def __repr__(self) -> str:
        return f"<bedform.Array {self.path!r} {self.shape} {self._facts['dtype']}>"

    # Reading --------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        # One element has a way of its own: who asks for it asks in a loop.
        if type(key) is tuple:
            self._enter_process()
            began = time.perf_counter()
            found = self._element(key)
            if found is not None:
                raw, counts = found
                seconds = time.perf_counter() - began
                self._last = (("orthogonal", [(at, 1, 1) for at in key]), counts, seconds)
                return np.frombuffer(raw, dtype=self._dtype)[0]
        return super().__getitem__(key)

    def _get(
        self, selected: _selection.Selected, out: AnyArray | None = None, *, scalar: bool = True
    ) -> Any:
        if self._text:
            return self._get_text(selected, out, scalar=scalar)
        return super()._get(selected, out, scalar=scalar)

    def _fill(self, selected: _selection.Selected, buffer: AnyArray) -> None:
        self._enter_process()
        self._fill_by(self._read, selected, buffer)

    def _prefetch(self, selected: _selection.Selected) -> tuple[tuple[int, ...], int, int]:
        return self._store._call(self._inner.prefetch)(selected.engine)

    def _get_text(
        self, selected: _selection.Selected, out: AnyArray | None, *, scalar: bool
    ) -> Any:
        texts = self._store._call(self._inner.read_text)(selected.engine)
        if selected.scalar and scalar and out is None:
            return texts[0]
        values = np.empty(len(texts), dtype=object)
        values[:] = texts
        values = values.reshape(selected.result)
        if out is None:
            return values
        out[...] = values
        return out

    def explain(self, selection: Any = ...) -> Explanation:
        """The plan of a read: what would be fetched, at what price. Reads no chunk.

        If the array's last read was of this selection, what it did and took stands beside the
        prediction.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> t.explain(np.s_[3]).to_dict()["objects"]
        1
        """
        selected = _selection.basic(selection, self.shape)
        plan: dict[str, Any] = _json.load(self._store._call(self._inner.explain)(selected.engine))
        return Explanation(plan | self._measured(selected), sharded=self.shards is not None)

    def workload(self, selection: Any = ..., *, clients: int = 1) -> dict[str, Any]:
        """The requests of a read that ``clients`` share, as :func:`bedform.simulate` takes them.

        They are those of the plan that :meth:`explain` prices; each object is a file. What this
        process has cached of the objects' indexes is not read again.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> bf.simulate("spider", t.workload(np.s_[3], clients=2)).to_dict()["targets"][0]["seeks"]
        1
        """
        selected = _selection.basic(selection, self.shape)
        text = self._store._call(self._inner.workload)(selected.engine, clients)
        found: dict[str, Any] = _json.load(text)
        return found

    # Writing --------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(_selection.basic(key, self.shape), value)

    def _set(self, selected: _selection.Selected, value: Any) -> None:
        data = _selection.spread(self.path, self._converted(value), selected)
        self._store._call(self._inner.write)(selected.engine, self._elements(data))

    def _converted(self, value: Any) -> AnyArray:
        return self._given.converted(value)

    def _elements(self, data: AnyArray) -> Any:
        return self._given.flat(data)

    def append(self, values: Any, axis: int = 0) -> int:
        """Append behind the last element along ``axis``; give where the new elements start.

        Readers see all of it or nothing. Durable on return.

        Raises
        ------
        InvalidArgumentError
            The other axes do not fit, or the values cannot be elements of the array.
        """
        data = self._converted(values)
        axis = integer(axis, f"the axis of {self.path}", least=-self.ndim)
        if not -self.ndim <= axis < self.ndim:
            raise InvalidArgumentError(f"{self.path} has {self.ndim} axes, none is {axis}")
        part = (self._inner, axis % self.ndim, list(data.shape), self._elements(data))
        return self._store._call(self._store._inner.append)([part])[0]

    def resize(self, shape: Sequence[int] | int) -> None:
        """Change the shape. New elements are the fill value. Durable on return."""
        lengths = integers(shape, f"the shape of {self.path}")
        self._store._call(self._inner.resize)(list(lengths))

    def stored_objects(self) -> tuple[int, int]:
        """How many shards (or chunks, without shards) are stored, of how many there is room for.

        The others were never written, or their data are in the log, or all of them was the fill
        value, or they are lost: plain Zarr does not tell which. What is nowhere reads as the fill
        value.
        """
        return self._store._call(self._inner.stored_objects)()

    def verify(self) -> list[str]:
        """Read everything that is stored of it, as :meth:`Store.verify`: a line for each damage."""
        return self._store._call(self._inner.verify)()


class OrthogonalIndex:
    """``array.oindex[...]``: each axis by an integer, a slice, a list of positions or a mask."""

    def __init__(self, array: BasicReads) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Any:
        return self._array._get(_selection.orthogonal(key, self._array.shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array._set(_selection.orthogonal(key, self._array.shape), value)


class PointIndex:
    """``array.vindex[...]``: arrays of positions broadcast against each other, or one mask."""

    def __init__(self, array: BasicReads) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Any:
        return self._array._get(_selection.points(key, self._array.shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array._set(_selection.points(key, self._array.shape), value)


def _reopen(store: Store, path: str) -> Array:
    return store.array(path)
