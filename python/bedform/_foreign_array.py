"""Variables of foreign files, read by the engine or by the library of the format."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _foreign_encoding, _fork, _internal, _selection
from bedform._attributes import HasAttributes
from bedform._errors import (
    BY_KIND,
    BedformError,
    ConflictError,
    CorruptError,
    IoError,
    NotFoundError,
    UnsupportedError,
    engine_call,
)
from bedform._foreign_names import ForeignFileError
from bedform._foreign_values import split_texts
from bedform._foreign_worker import lengths_of, read_native, read_region
from bedform._integers import client_count
from bedform._reads import BasicReads
from bedform._remote import is_url, without_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bedform._elements import AnyArray
    from bedform._foreign_store import ForeignStore
    from bedform._index import IndexReport

#: Bytes of one request to the library of the format.
_PIECE_BYTES: Final = 64 << 20
#: Attributes that define the meaning of stored values.
_MEANINGS: Final = frozenset({"units", "calendar", "scale_factor", "add_offset", "_Unsigned"})
#: Errors of reads that find other bytes than those of the file that was opened.
_OF_OTHER_BYTES: Final = (ConflictError, CorruptError, IoError, NotFoundError, UnsupportedError)
#: The assumed bytes in memory of an element of variable length.
_OBJECT_BYTES: Final = 64


class ForeignArray(BasicReads, HasAttributes):
    """A variable of a foreign file, with the reading interface of :class:`bedform.Array`.

    Values are raw: packed numbers stay packed. xarray decodes them by conventions.
    """

    def __init__(self, store: ForeignStore, described: dict[str, Any]) -> None:
        self._store, self._described = store, described
        self.path: str = described["path"]
        self._dtype = _foreign_encoding.variable_dtype(described, store.style)
        storage = described["storage"]
        self._native = storage["native"]["reason"] if "native" in storage else None
        self._opened = self._open()
        self._process = _fork.current
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Fails: foreign files are never written."""
        self._store._refuse_change()

    def _set(self, selected: _selection.EngineSelection, value: Any) -> None:  # noqa: ARG002
        self._store._refuse_change()

    def _open(self) -> _internal.Array | None:
        """Opens the engine's handle, which reads the file's bytes or calls the library."""
        store, data_type = self._store, self._described["data_type"]
        if self._native is None:
            return engine_call(store._inner.array)(self.path)
        if data_type is None or self._dtype.hasobject:
            return None
        # Data in other files can change without a change of this one: they are not cached.
        is_kept = not store._allow_external
        return engine_call(store._inner.array)(self.path, self._region_reader(), is_kept)

    def _region_reader(self) -> Callable[[list[int], list[int]], Any]:
        """Returns the function through which the engine reads regions by the library."""
        store = self._store
        path, where, options = self.path, store._path, self._native_options()
        shape, dtype = self.shape, self._dtype.newbyteorder("=")

        def read(start: list[int], lengths: list[int]) -> Any:
            # The closure must not hold the array, which would be a cycle through the engine's
            # handle.
            values = _translated(read_region, where, path, start, lengths, shape=shape, **options)
            return np.ascontiguousarray(values, dtype=dtype).reshape(-1).view(np.uint8)

        return read

    def _native_options(self) -> dict[str, Any]:
        """Returns the arguments of reads through the library."""
        return {
            "item_bytes": _OBJECT_BYTES if self._dtype.hasobject else self._dtype.itemsize,
            "filters": [one["id"] for one in self._described["encoding"]["filters"]],
            "allow_external": self._store._allow_external,
            "seconds": self._store._map_time,
        }

    @property
    def _inner(self) -> _internal.Array | None:
        """The engine's handle, if it reads the variable; a forked child process opens its own."""
        self._store._check_open()
        if self._process is not _fork.current and self._opened is not None:
            _fork.leave_behind(self._opened)
            self._opened = self._open()
        self._process = _fork.current
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._store, self.path))

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis at the time of opening."""
        return tuple(self._described["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements; big-endian if the file's is."""
        return self._dtype

    @property
    def not_storable(self) -> str | None:
        """Why Zarr cannot hold the elements, such as records or references; else ``None``."""
        if self._described["data_type"] is not None:
            return None
        return self._native or f"elements of type {self._described['encoding']['dtype']}"

    @property
    def _type_words(self) -> str:
        """The element type in words, where NumPy has only `object`."""
        return str(self._described["encoding"]["dtype"])

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        group = self.path.rpartition("/")[0]
        return self._store._names_in(group)[self.path]

    def _load_attributes(self) -> dict[str, Any]:
        return _foreign_encoding.variable_attributes(self._described, self._store.style)

    def _change_attributes(self, *_: object) -> None:
        self._store._refuse_change()

    def _where(self) -> str:
        return f"{self._store.store_path}/{self.path}"

    @property
    def encoding(self) -> dict[str, Any]:
        """How the variable is stored, in the words of xarray's backend for such files."""
        encoding = _foreign_encoding.variable_encoding(
            self._described, self._store.style, source=self._store._shown, names=self.dims
        )
        return encoding | self._store._blocks_of(self)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Elements of a chunk along each axis; ``None`` for variables without chunks."""
        chunks = self._described["encoding"]["chunks"]
        return None if chunks is None else tuple(chunks)

    @property
    def shards(self) -> None:
        """Foreign files have no shards."""
        return

    @property
    def order(self) -> None:
        """Foreign files have no order of chunks."""
        return

    @property
    def fill_value(self) -> Any:
        """Value of elements that were never written."""
        if self._inner is None:
            return None
        raw = self._inner.fill_bytes()
        return np.frombuffer(raw, dtype=self._dtype.newbyteorder("="))[0]

    def info(self) -> dict[str, Any]:
        """Returns all known properties of the variable as plain values."""
        storage = next(iter(self._described["storage"]), None)
        if isinstance(self._described["storage"], str):
            storage = self._described["storage"]
        storable = self.not_storable is None
        return {
            "path": self.path,
            "shape": list(self.shape),
            "dtype": str(self.dtype if storable else self._described["encoding"]["dtype"]),
            "dims": list(self.dims),
            "storage": storage,
            "chunks": None if self.chunks is None else list(self.chunks),
            "shards": None,
            "native": self._native,
            "attributes": self._load_attributes(),
            "bytes": self.size * self.dtype.itemsize,
        }

    def _fill(
        self, selected: _selection.EngineSelection, buffer: AnyArray, *, may_take: bool
    ) -> AnyArray:
        assert self._inner is not None  # noqa: S101 - native variables do not come here
        try:
            read = engine_call(self._inner.read)
            buffer = self._fill_by(read, selected, buffer, may_take=may_take)
        except ConflictError:
            if self._store._options["freshness"] != "read":
                raise
            again = self._store._reloaded(self.path)
            if again is None or again._inner is None or not self._means_what(again):
                raise
            self._described, self._opened = again._described, again._inner
            read = engine_call(self._inner.read)
            buffer = self._fill_by(read, selected, buffer, may_take=may_take)
        if not self._dtype.isnative:
            # The engine returns native byte order; the dtype has the file's.
            buffer.byteswap(inplace=True)
        return buffer

    def _means_what(self, again: ForeignArray) -> bool:
        """Whether a reopened variable has the same shape, type and decoding attributes."""

        def meaning(array: ForeignArray) -> dict[str, str]:
            attributes = array._load_attributes()
            return {name: repr(attributes[name]) for name in _MEANINGS & attributes.keys()}

        is_alike = again.shape == self.shape and again.dtype == self.dtype
        return is_alike and meaning(again) == meaning(self)

    def _warn(self) -> None:
        self._store._check_open()
        if self._native is not None and not is_url(self._store._path):
            self._store._warn_native(self.path, self._native)

    def _foresee_chosen(self, selections: list[Any]) -> None:
        if self._inner is not None:
            engine_call(self._inner.foresee)(selections)

    def _prefetch(self, selected: _selection.EngineSelection) -> tuple[tuple[int, ...], int, int]:
        if self._inner is None:
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} is read by the library of its format, and "
                "nothing of it is kept"
            )
        return engine_call(self._inner.prefetch)(selected.engine)

    def _get(
        self,
        selected: _selection.EngineSelection,
        out: AnyArray | None = None,
        *,
        scalar: bool = True,
    ) -> Any:
        self._warn()
        try:
            if self._inner is None:
                return self._get_native(selected, out, scalar=scalar)
            return super()._get(selected, out, scalar=scalar)
        except _OF_OTHER_BYTES:
            self._store._check_overwritten()
            raise

    def _get_native(
        self, selected: _selection.EngineSelection, out: AnyArray | None, *, scalar: bool
    ) -> Any:
        slices = _slices(selected)
        if self._has_texts and is_url(self._store._path):
            values = self._read_texts(selected)
        elif slices is not None:
            whole = self._read_native(slices)
            # The library returned only the selection.
            values = whole.reshape(selected.result)
        else:
            values = _selection.taken(self._read_native(None), selected)
        if out is not None:
            out[...] = values
            return out
        return values[()] if selected.scalar and scalar else values

    @property
    def _has_texts(self) -> bool:
        return bool(self._described["data_type"] == "O")

    def _read_texts(self, selected: _selection.EngineSelection) -> AnyArray:
        """Reads texts of variable length, which the engine finds without the library."""
        read = engine_call(self._store._inner.texts)
        lengths, whole = read(self.path, selected.engine)
        values = np.empty(len(lengths), object)
        values[:] = split_texts(whole, lengths)
        return values.reshape(selected.result)

    def _read_native(self, slices: tuple[slice, ...] | None) -> AnyArray:
        wanted = self.shape if slices is None else lengths_of(slices, self.shape)
        # Before the parts of the read are listed, of which there may be any number.
        self._empty(wanted)
        options = self._native_options()
        pieces = [slices]
        if wanted and 0 not in wanted:
            everything = slices or tuple(slice(0, size, 1) for size in self.shape)
            pieces = list(_pieces_of(everything, wanted, options["item_bytes"]))
        found = [
            _translated(
                read_native, self._store._path, self.path, piece, shape=self.shape, **options
            )
            for piece in pieces
        ]
        values = found[0] if len(found) == 1 else np.concatenate(found)
        if values.shape != wanted:
            # Elements that are arrays become further axes in NumPy.
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} has {self.not_storable}, which Bedform does "
                "not read: read it with h5py"
            )
        return values

    def index(
        self, *, anew: bool = False, progress: Callable[[int, int], object] | None = None
    ) -> IndexReport:
        """Build or renew the value index of the array: see :func:`bedform.index`."""
        from bedform._index import index_opened

        return index_opened(self._store, [self.path], anew=anew, progress=progress)

    def explain(self, selection: Any = ...) -> Any:
        """Return the plan of a read, with its requests and price. Reads nothing."""
        from bedform._explanation import Explanation

        if self._inner is None:
            return Explanation({"array": self.path, "native": self._native})
        selected = self._brackets(selection)
        plan: dict[str, Any] = json.loads(engine_call(self._inner.explain)(selected.engine))
        native = {} if self._native is None else {"native": self._native}
        return Explanation(plan | native | self._measured(selected))

    def _explain_reads(self, selections: list[Any], *, in_turn: bool) -> dict[str, Any] | None:
        """Returns the sums of the plans of reads, by file.

        ``in_turn``: a read finds chunks of earlier ones in the cache. ``None`` for elements of no
        fixed size, which the library of the format reads.
        """
        if self._inner is None:
            return None
        sums: dict[str, Any] = json.loads(
            engine_call(self._inner.explain_reads)(selections, in_turn)
        )
        return sums

    def workload(self, selection: Any = ..., *, clients: int = 1) -> dict[str, Any]:
        """Return the requests of a read shared by ``clients``, for :func:`bedform.simulate`."""
        if self._inner is None or self._native is not None:
            raise UnsupportedError(
                f"{self._store._shown}: {self.path!r} is read by the library of its format: its "
                "requests are not known"
            )
        selected = self._brackets(selection)
        text = engine_call(self._inner.workload)(selected.engine, client_count(clients))
        found: dict[str, Any] = json.loads(text)
        return found

    def _pieces(self) -> Iterator[Any]:
        """Iterates over slices that cover the variable, of about 64 MiB each."""
        if not self.ndim or 0 in self.shape:
            yield ...
            return
        rest = max(1, self.size // self.shape[0] * max(self.dtype.itemsize, 1))
        step = max(1, (64 << 20) // rest)
        for start in range(0, self.shape[0], step):
            yield slice(start, start + step)

    def __repr__(self) -> str:
        return f"<bedform.ForeignArray {self.path!r} {self.shape} {self.dtype}>"


def _pieces_of(
    slices: tuple[slice, ...], sizes: tuple[int, ...], item_bytes: int
) -> Iterator[tuple[slice, ...]]:
    """Splits a selection along its first axis into parts that are read one after another."""
    first, *rest = slices
    rows = max(1, _PIECE_BYTES // (item_bytes * math.prod(sizes[1:])))
    for at in range(0, sizes[0], rows):
        start = first.start + first.step * at
        count = min(rows, sizes[0] - at)
        yield (slice(start, start + first.step * (count - 1) + 1, first.step), *rest)


def _translated(read: Callable[..., Any], *arguments: Any, **options: Any) -> AnyArray:
    """Reads through the library; raises its errors as exceptions of this package."""
    path, variable = arguments[:2]
    if is_url(path):
        raise UnsupportedError(
            f"{without_query(path)}: {variable!r} is read by the HDF5 library, from files: copy it "
            "to this machine"
        )
    try:
        return np.asarray(read(*arguments, **options))
    except ForeignFileError as error:
        raise BY_KIND.get(error.kind, BedformError)(str(error)) from None


def _slices(selected: _selection.EngineSelection) -> tuple[slice, ...] | None:
    """Returns the selection as slices with positive steps; ``None`` if it is of another kind."""
    kind, axes = selected.engine[:2]
    if kind != "orthogonal" or not all(
        isinstance(axis, tuple) and axis[1] > 0 and axis[2] > 0 for axis in axes
    ):
        return None
    return tuple(slice(start, start + step * (count - 1) + 1, step) for start, step, count in axes)


def _reopen(store: ForeignStore, path: str) -> Any:
    return store[path]
