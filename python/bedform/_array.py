"""Arrays of stores."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bedform import _fork, _json, _selection
from bedform._attributes import StoredNode
from bedform._elements import AnyArray, Elements, numpy_type
from bedform._errors import CorruptError, InvalidArgumentError
from bedform._explanation import Explanation
from bedform._integers import integer, integers
from bedform._reads import BasicReads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from bedform import _internal
    from bedform._store import Store


class Array(BasicReads, StoredNode):
    """An N-dimensional variable of a store; ``store["name"]`` gives it.

    ``[]`` is NumPy's basic indexing, or takes one list of positions or a mask; ``.oindex`` takes
    one list per axis, ``.vindex`` points.
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
        try:
            self._dtype = numpy_type(self._facts["numpy"])
        except (TypeError, ValueError) as error:
            # Such as two fields of one name.
            raise CorruptError(f"{self._store._place_of(self.path)}: its dtype: {error}") from None
        self._text = self._dtype.hasobject
        self._given = Elements(self.path, self._dtype)
        super().__init__()

    def _bind(self, inner: _internal.Array) -> None:
        self._opened, self._process = inner, _fork.current
        self._read = self._store._call(inner.read)
        self._element = self._store._call(inner.element)

    def _enter_process(self) -> None:
        """In a child process, take a handle of its own; fail once the store is closed."""
        if self._store._is_closed:
            self._store._check_open()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open between calls; here for symmetry with stores."""

    # What it is -----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis, as storage has them now."""
        return tuple(self._store._call(self._inner.shape)())

    @property
    def parent(self) -> Any:
        """The group that holds the array."""
        return self._store[self.path.rpartition("/")[0]]

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
    def codecs(self) -> list[dict[str, Any]]:
        """The codecs of a chunk, from elements to bytes, as Zarr metadata have them.

        Of an array that nothing was written to, and whose codecs its first write chooses, ``zstd``.
        """
        if self._has_open_codecs():
            self._facts = _json.load(self._store._call(self._inner.describe)())
        return cast("list[dict[str, Any]]", self._facts["codecs"])

    def _has_open_codecs(self) -> bool:
        """Whether the first write chooses the codecs, as this handle knows it."""
        return bool((self._facts["codec_choice"] or {}).get("open"))

    @property
    def compressors(self) -> tuple[dict[str, Any], ...]:
        """The codecs that compress, as Zarr metadata have them."""
        plain = ("bytes", "vlen-utf8", "transpose", "crc32c", "fletcher32")
        return tuple(codec for codec in self.codecs if codec["name"] not in plain)

    @property
    def compression(self) -> str | None:
        """The name of the first codec that compresses, as h5py has it."""
        return self.compressors[0]["name"] if self.compressors else None

    @property
    def compression_opts(self) -> Any:
        """The level of the first codec that compresses, as h5py has it; ``None`` if it has none."""
        configuration = self.compressors[0].get("configuration", {}) if self.compressors else {}
        return configuration.get("level", configuration.get("clevel"))

    @property
    def maxshape(self) -> tuple[None, ...]:
        """``None`` for each axis, as h5py has it: every axis may grow."""
        return (None,) * self.ndim

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the axes as stored: ``None`` for axes without one, and if none has one."""
        names = self._facts["dims"]
        return None if names is None else tuple(names)

    @property
    def fillvalue(self) -> Any:
        """As :attr:`fill_value`."""
        return self.fill_value

    @property
    def fill_value(self) -> Any:
        """What elements are that were never written."""
        if self._text:
            return self._facts["fill_value"]
        raw = self._store._call(self._inner.fill_bytes)()
        return self._element_of(raw)

    def _element_of(self, raw: bytes) -> Any:
        if not self._dtype.itemsize:
            return np.zeros((), dtype=self._dtype)[()]
        return np.frombuffer(raw, dtype=self._dtype)[0]

    def _load_attributes(self) -> dict[str, Any]:
        described = _json.load(self._store._call(self._inner.describe)())
        return cast("dict[str, Any]", described["attributes"])

    def _where(self) -> str:
        return f"{self._store.store_path}/{self.path}".rstrip("/")

    def info(self) -> dict[str, Any]:
        """Everything that is known of the array, as plain values.

        Where a sample chose the codecs, ``codec_choice`` has the candidates, ``compared``, with the
        one that was taken first. Their ``size`` is encoded bytes for each byte of elements, and
        ``stored_size`` is that of all stored chunks. It is None while there are none, and for
        arrays of more than 4,096 objects, whose indexes it would read.
        """
        facts: dict[str, Any] = _json.load(self._store._call(self._inner.describe)())
        choice = facts["codec_choice"]
        if choice and choice.get("compared"):
            choice["stored_size"] = self._store._call(self._inner.stored_size)()
        facts["bytes"] = self.size * (self._dtype.itemsize if not self._text else 0)
        return facts

    def document(self) -> dict[str, Any]:
        """The metadata document: of Zarr v3 ``zarr.json``, of v2 ``.zarray``."""
        return cast("dict[str, Any]", _json.load(self._store._call(self._inner.document)()))

    def __repr__(self) -> str:
        if self._store._is_closed:
            return f"<bedform.Array {self.path!r} of a closed store>"
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
                return self._element_of(raw)
        return super().__getitem__(key)

    def _get(
        self, selected: _selection.Selected, out: AnyArray | None = None, *, scalar: bool = True
    ) -> Any:
        if self._text:
            return self._get_text(selected, out, scalar=scalar)
        return super()._get(selected, out, scalar=scalar)

    def _fill(self, selected: _selection.Selected, buffer: AnyArray, *, may_take: bool) -> AnyArray:
        self._enter_process()
        return self._fill_by(self._read, selected, buffer, may_take=may_take)

    def _foresee_chosen(self, selections: list[Any]) -> None:
        self._store._call(self._inner.foresee)(selections)

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
        prediction. Once reads of the array are followed (``prefetch=`` of :func:`bedform.open`), so
        does how many were foreseen, by what, and whether this one is read ahead now.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> t.explain(np.s_[3]).to_dict()["objects"]
        1
        """
        selected = self._brackets(selection)
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
        selected = self._brackets(selection)
        text = self._store._call(self._inner.workload)(selected.engine, clients)
        found: dict[str, Any] = _json.load(text)
        return found

    # Writing --------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(self._brackets(key), value)

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
        part = (self._inner, self._axis(axis), list(data.shape), self._elements(data))
        return self._store._call(self._store._inner.append)([part])[0]

    def _axis(self, axis: int) -> int:
        at = integer(axis, f"the axis of {self.path}", least=-self.ndim)
        if not -self.ndim <= at < self.ndim:
            raise InvalidArgumentError(f"{self.path} has {self.ndim} axes, none is {at}")
        return at % self.ndim

    def write_direct(self, source: AnyArray, source_sel: Any = ..., dest_sel: Any = ...) -> None:
        """Write a part of a NumPy array into a selection, as in h5py."""
        part = source[() if source_sel is None else source_sel]
        self[... if dest_sel is None else dest_sel] = part

    def resize(self, shape: Sequence[int] | int, axis: int | None = None) -> None:
        """Change the shape, or the length of one axis. Durable on return.

        New elements are the fill value; what is cut off is gone.
        """
        if axis is None:
            lengths = list(integers(shape, f"the shape of {self.path}"))
        else:
            lengths = list(self.shape)
            lengths[self._axis(axis)] = integer(shape, f"the length of {self.path}")
        self._store._call(self._inner.resize)(lengths)

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


def _reopen(store: Store, path: str) -> Array:
    return store.array(path)
