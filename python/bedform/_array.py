"""Arrays of stores: properties, reads, plans and writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bedform import _fork, _json, _selection
from bedform._attributes import StoredNode
from bedform._elements import AnyArray, ElementConverter, numpy_type
from bedform._errors import CorruptError, InvalidArgumentError, too_large
from bedform._explanation import Explanation
from bedform._integers import client_count, integer, integers
from bedform._reads import BasicReads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from bedform import _internal
    from bedform._index import IndexReport
    from bedform._store import Store


class Array(BasicReads, StoredNode):
    """An N-dimensional variable of a store, as ``store["name"]`` returns it.

    ``[]`` takes NumPy's basic indexing, or one list of positions or one mask. ``.oindex`` takes one
    list per axis, ``.vindex`` points. Values are raw; xarray decodes them by conventions. Written
    values are converted as in NumPy's assignment, but a number out of the range of an integer array
    is refused. Number arrays refuse masked elements, times and text. Reads release the GIL, and
    many threads may use one array. Arrays pickle as their stores do.
    """

    def __init__(self, store: Store, inner: _internal.Array) -> None:
        self._store = store
        self.path = inner.path
        self._bind(inner)
        self._facts: dict[str, Any] = _json.load(store._call(inner.describe)())
        try:
            self._dtype = numpy_type(self._facts["numpy"])
        except (TypeError, ValueError) as error:
            # For example two fields with one name.
            raise CorruptError(f"{self._store._place_of(self.path)}: its dtype: {error}") from None
        self._text = self._dtype.hasobject
        self._given = ElementConverter(self.path, self._dtype)
        super().__init__()

    def _bind(self, inner: _internal.Array) -> None:
        self._opened, self._process = inner, _fork.current
        self._read = self._store._call(inner.read)
        self._element = self._store._call(inner.element)

    def _enter_process(self) -> None:
        """In a forked child process, opens a new handle; fails if the store is closed."""
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
        """Do nothing: an array holds nothing open between calls."""

    # Properties ---------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis, as stored now."""
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
        """Names of the axes; ``dim_0`` and so on for unnamed ones."""
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
        """The codecs of a chunk, from elements to bytes, as in Zarr metadata.

        An unwritten array whose codecs the first write chooses reports ``zstd``.
        """
        if self._has_open_codecs():
            self._facts = _json.load(self._store._call(self._inner.describe)())
        return cast("list[dict[str, Any]]", self._facts["codecs"])

    def _has_open_codecs(self) -> bool:
        """Whether the first write chooses the codecs, as far as this handle knows."""
        return bool((self._facts["codec_choice"] or {}).get("open"))

    @property
    def compressors(self) -> tuple[dict[str, Any], ...]:
        """The compressing codecs, as in Zarr metadata."""
        plain = ("bytes", "vlen-utf8", "transpose", "crc32c", "fletcher32")
        return tuple(codec for codec in self.codecs if codec["name"] not in plain)

    @property
    def compression(self) -> str | None:
        """The name of the first compressing codec, as in h5py."""
        return self.compressors[0]["name"] if self.compressors else None

    @property
    def compression_opts(self) -> Any:
        """The level of the first compressing codec, as in h5py; ``None`` if it has none."""
        configuration = self.compressors[0].get("configuration", {}) if self.compressors else {}
        return configuration.get("level", configuration.get("clevel"))

    @property
    def maxshape(self) -> tuple[None, ...]:
        """``None`` for each axis, as in h5py: every axis may grow."""
        return (None,) * self.ndim

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the axes as stored: ``None`` for an unnamed axis, or if all are unnamed."""
        names = self._facts["dims"]
        return None if names is None else tuple(names)

    @property
    def fillvalue(self) -> Any:
        """As :attr:`fill_value`."""
        return self.fill_value

    @property
    def fill_value(self) -> Any:
        """Value of elements that were never written."""
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
        """Return all known properties of the array as plain values.

        If a sample chose the codecs, ``codec_choice`` has the ``compared`` candidates, the chosen
        one first. A candidate's ``size`` is encoded bytes per byte of elements. ``stored_size`` is
        the same ratio of all stored chunks. It is None without stored chunks, and for arrays of
        more than 4,096 objects, since it reads all their indexes.
        """
        facts: dict[str, Any] = _json.load(self._store._call(self._inner.describe)())
        choice = facts["codec_choice"]
        if choice and choice.get("compared"):
            choice["stored_size"] = self._store._call(self._inner.stored_size)()
        facts["bytes"] = self.size * (self._dtype.itemsize if not self._text else 0)
        return facts

    def document(self) -> dict[str, Any]:
        """Return the metadata document: ``zarr.json`` of Zarr v3, ``.zarray`` of v2."""
        return cast("dict[str, Any]", _json.load(self._store._call(self._inner.document)()))

    def __repr__(self) -> str:
        if self._store._is_closed:
            return f"<bedform.Array {self.path!r} of a closed store>"
        return f"<bedform.Array {self.path!r} {self.shape} {self._facts['dtype']}>"

    # Reading --------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        # Fast path for single elements, which programs read in loops.
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
        self,
        selected: _selection.EngineSelection,
        out: AnyArray | None = None,
        *,
        scalar: bool = True,
    ) -> Any:
        if self._text:
            return self._get_text(selected, out, scalar=scalar)
        return super()._get(selected, out, scalar=scalar)

    def _fill(
        self, selected: _selection.EngineSelection, buffer: AnyArray, *, may_take: bool
    ) -> AnyArray:
        self._enter_process()
        return self._fill_by(self._read, selected, buffer, may_take=may_take)

    def _foresee_chosen(self, selections: list[Any]) -> None:
        self._store._call(self._inner.foresee)(selections)

    def _prefetch(self, selected: _selection.EngineSelection) -> tuple[tuple[int, ...], int, int]:
        return self._store._call(self._inner.prefetch)(selected.engine)

    def _get_text(
        self, selected: _selection.EngineSelection, out: AnyArray | None, *, scalar: bool
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
        """Return the plan of a read, with its requests and price. Reads no chunk.

        If the array's last read had this selection, the plan also has its measured counts and
        seconds. If reads of the array are followed (``prefetch=`` of :func:`bedform.open`), it says
        how many were foreseen, by which pattern, and whether this one is read ahead now.

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

    def _explain_reads(self, selections: list[Any], *, in_turn: bool) -> dict[str, Any]:
        """Returns the sums of the plans of reads, by file or store.

        ``in_turn``: a read finds chunks of earlier ones in the cache.
        """
        explain = self._store._call(self._inner.explain_reads)
        sums: dict[str, Any] = _json.load(explain(selections, in_turn))
        return sums

    def workload(self, selection: Any = ..., *, clients: int = 1) -> dict[str, Any]:
        """Return the requests of a read shared by ``clients``, for :func:`bedform.simulate`.

        The requests are those of the plan that :meth:`explain` prices; each object is a file.
        Indexes that this process has cached are not read again.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> bf.simulate("spider", t.workload(np.s_[3], clients=2)).to_dict()["targets"][0]["seeks"]
        1
        """
        selected = self._brackets(selection)
        text = self._store._call(self._inner.workload)(selected.engine, client_count(clients))
        found: dict[str, Any] = _json.load(text)
        return found

    # Writing --------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(self._brackets(key), value)

    def _set(self, selected: _selection.EngineSelection, value: Any) -> None:
        data = _selection.spread(self.path, self._converted(value), selected)
        try:
            elements = self._elements(data)
        except MemoryError:
            raise too_large(self._where(), selected.result, self.dtype) from None
        self._store._call(self._inner.write)(selected.engine, elements)

    def _converted(self, value: Any) -> AnyArray:
        return self._given.converted(value)

    def _elements(self, data: AnyArray) -> Any:
        return self._given.flat(data)

    def append(self, values: Any, axis: int = 0) -> int:
        """Append along ``axis``; returns the index of the first new element.

        Readers see all of the appended elements or none. Durable on return.

        Raises
        ------
        InvalidArgumentError
            The other axes do not match, or the values cannot become elements of the array.
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

        New elements are the fill value; elements beyond the new shape are deleted.
        """
        if axis is None:
            lengths = list(integers(shape, f"the shape of {self.path}"))
        else:
            lengths = list(self.shape)
            lengths[self._axis(axis)] = integer(shape, f"the length of {self.path}")
        self._store._call(self._inner.resize)(lengths)

    def index(
        self, *, anew: bool = False, progress: Callable[[int, int], object] | None = None
    ) -> IndexReport:
        """Build or renew the value index of the array: see :func:`bedform.index`."""
        from bedform._index import index_opened

        return index_opened(self._store, [self.path], anew=anew, progress=progress)

    def stored_objects(self) -> tuple[int, int]:
        """Return the number of stored shards (or chunks, without shards), and of all of them.

        The others were never written, have their data in the log, held only the fill value, or are
        lost: plain Zarr cannot distinguish these. Their elements read as the fill value.
        """
        return self._store._call(self._inner.stored_objects)()

    def verify(self) -> list[str]:
        """Read all stored data; return a line for each damage, as :meth:`Store.verify`."""
        return self._store._call(self._inner.verify)()


def _reopen(store: Store, path: str) -> Array:
    return store.array(path)
