"""Arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bedform import _json, _selection
from bedform._errors import InvalidArgumentError, ReadOnlyError, engine_call
from bedform._explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedform import _internal
    from bedform._store import Store

AnyArray = npt.NDArray[Any]


class BasicReads:
    """What every array that can be read does with a selection.

    A subclass has ``shape`` and ``dtype`` and fills buffers.
    """

    path: str

    def __init__(self) -> None:
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

    def _set(self, selected: _selection.Selected, value: Any) -> None:
        raise ReadOnlyError(f"{self.path} is only read; convert the file to write to it")

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
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self[at]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("an array of a store cannot be had without a copy")
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
        if selected.result == () and scalar:
            return buffer.reshape(())[()]
        return buffer.reshape(selected.result)

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

    ``[]`` is NumPy's basic indexing, ``.oindex`` takes one list per axis, ``.vindex`` points. Values
    are raw: decoding by conventions is xarray's. Reading releases the interpreter's lock; one array
    may be used by many threads. Arrays pickle if their store does.
    """

    def __init__(self, store: Store, inner: _internal.Array) -> None:
        self._store = store
        self._inner = inner
        self.path = inner.path
        self._facts: dict[str, Any] = _json.load(engine_call(inner.describe)())
        self._dtype = np.dtype(self._facts["numpy"])
        self._text = self._dtype == object
        super().__init__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._store, self.path))

    # What it is -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis, as storage has them now."""
        return tuple(engine_call(self._inner.shape)())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements; ``object`` (of ``str``) for text."""
        return self._dtype

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
        raw = engine_call(self._inner.fill_bytes)()
        return np.frombuffer(raw, dtype=self._dtype)[0]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, as storage has them now. A copy: assign to change them."""
        return cast("dict[str, Any]", _json.load(engine_call(self._inner.describe)())["attributes"])

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        self._store.set_attributes(attributes, self.path)

    def info(self) -> dict[str, Any]:
        """Everything that is known of the array, as plain values."""
        facts: dict[str, Any] = _json.load(engine_call(self._inner.describe)())
        facts["bytes"] = self.size * (self._dtype.itemsize if not self._text else 0)
        return facts

    def __repr__(self) -> str:
        return f"<bedform.Array {self.path!r} {self.shape} {self._facts['dtype']}>"

    # Reading --------------------------------------------------------------------------------------

    def _get(
        self, selected: _selection.Selected, out: AnyArray | None = None, *, scalar: bool = True
    ) -> Any:
        if self._text:
            return self._get_text(selected, out, scalar=scalar)
        return super()._get(selected, out, scalar=scalar)

    def _fill(self, selected: _selection.Selected, buffer: AnyArray) -> None:
        # A view as bytes: the buffer protocol does not know every type.
        engine_call(self._inner.read)(selected.engine, buffer.reshape(-1).view(np.uint8))

    def _get_text(
        self, selected: _selection.Selected, out: AnyArray | None, *, scalar: bool
    ) -> Any:
        texts = engine_call(self._inner.read_text)(selected.engine)
        if selected.result == () and scalar and out is None:
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

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> t.explain(np.s_[3]).to_dict()["objects"]
        1
        """
        selected = _selection.basic(selection, self.shape)
        return Explanation(_json.load(engine_call(self._inner.explain)(selected.engine)))

    # Writing --------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(_selection.basic(key, self.shape), value)

    def _set(self, selected: _selection.Selected, value: Any) -> None:
        data = np.broadcast_to(self._converted(value), selected.result)
        engine_call(self._inner.write)(selected.engine, self._elements(data))

    def _converted(self, value: Any) -> AnyArray:
        """``value`` as elements of this array; only conversions that NumPy's assignment makes."""
        data = np.asarray(value)
        if self._text:
            return data.astype(object)
        if data.dtype.kind in "OSU" and data.size:
            raise InvalidArgumentError(f"{self.path} holds {self._dtype}, not {data.dtype}")
        if data.dtype.kind == "c" and self._dtype.kind != "c":
            raise InvalidArgumentError(f"{self.path} holds {self._dtype}: the imaginary part is lost")
        return data.astype(self._dtype, copy=False)

    def _elements(self, data: AnyArray) -> Any:
        if self._text:
            return [text if isinstance(text, str) else str(text) for text in data.reshape(-1)]
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def append(self, values: Any, axis: int = 0) -> int:
        """Append behind the last element along ``axis``; give where the new elements start.

        Readers see all of it or nothing. Durable on return.

        Raises
        ------
        InvalidArgumentError
            The other axes do not fit.
        """
        data = self._converted(values)
        part = (self._inner, axis % max(self.ndim, 1), list(data.shape), self._elements(data))
        return engine_call(self._store._inner.append)([part])[0]

    def resize(self, shape: Sequence[int]) -> None:
        """Change the shape. New elements are the fill value. Durable on return."""
        engine_call(self._inner.resize)([int(length) for length in shape])

    def verify(self) -> list[str]:
        """Read everything that is stored, and give one line per damaged object or chunk."""
        return engine_call(self._inner.verify)()


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
