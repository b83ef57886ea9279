"""Reads by selection, shared by arrays of stores and variables of foreign files."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _selection
from bedform._attributes import StrictAttributes
from bedform._blocks import AsType, BlockIndex, bounds_of, boxes, rows_at_once
from bedform._elements import AnyArray, type_of
from bedform._errors import (
    InvalidArgumentError,
    InvalidSelectionError,
    ReadOnlyError,
    WrongTypeError,
    too_large,
)
from bedform._hints import label_in_brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class BasicReads(StrictAttributes):
    """Base class of readable arrays: indexing, iteration, chunks and prefetching.

    A subclass provides ``shape`` and ``dtype`` and fills buffers.
    """

    path: str

    if TYPE_CHECKING:

        def _where(self) -> str: ...

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

    def _fill(
        self, selected: _selection.EngineSelection, buffer: AnyArray, *, may_take: bool
    ) -> AnyArray:
        """Reads into ``buffer``; returns it, or another buffer if ``may_take`` allows."""
        raise NotImplementedError

    def _fill_by(
        self,
        read: Callable[[Any, AnyArray, bool], tuple[tuple[int, ...], Any]],
        selected: _selection.EngineSelection,
        buffer: AnyArray,
        *,
        may_take: bool,
    ) -> AnyArray:
        """Fills a buffer as :meth:`_fill`, and records the read's counts for :meth:`explain`."""
        # As bytes, since the buffer protocol lacks some types.
        target = buffer.reshape(-1).view(np.uint8) if buffer.itemsize else np.empty(0, np.uint8)
        began = time.perf_counter()
        counts, own = read(selected.engine, target, may_take)
        self._last = (selected.engine, counts, time.perf_counter() - began)
        return buffer if own is None else np.ndarray(buffer.shape, buffer.dtype, own)

    def _set(self, selected: _selection.EngineSelection, value: Any) -> None:  # noqa: ARG002
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
        """Iterates along the first axis; reads many rows with one request."""
        length, step = len(self), rows_at_once(self)
        for start in range(0, length, step):
            yield from self[start : min(start + step, length)]

    # By pieces ------------------------------------------------------------------------------------

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Elements of a chunk along each axis; ``None`` for variables without chunks."""
        raise NotImplementedError

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Elements of a shard along each axis; ``None`` for arrays without shards."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in memory; for text, of the references to the elements."""
        return self.size * self.dtype.itemsize

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        cells = self.chunks or self.shape
        return tuple(-(-size // max(cell, 1)) for size, cell in zip(self.shape, cells, strict=True))

    @property
    def nchunks(self) -> int:
        """Number of chunks, written or not."""
        return math.prod(self.cdata_shape)

    @property
    def blocks(self) -> BlockIndex:
        """Chunks by their index in the chunk grid: ``array.blocks[0, 1]``."""
        return BlockIndex(self)

    def iter_chunks(self, sel: Any = ...) -> Iterator[tuple[slice, ...]]:
        """Iterates over the chunks of a selection, as slices for the brackets, in C order.

        Chunks may be small: :meth:`iter_shards` yields larger regions, which read faster.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (4, 6), "f4", chunks=4)
        >>> list(t.iter_chunks(np.s_[:, 2:]))
        [(slice(0, 4, 1), slice(2, 4, 1)), (slice(0, 4, 1), slice(4, 6, 1))]
        """
        return boxes(self.shape, self._cells(self.chunks), bounds_of(sel, self.shape))

    def iter_shards(self, sel: Any = ...) -> Iterator[tuple[slice, ...]]:
        """Iterates over the shards of a selection, as slices; without shards over its chunks."""
        cells = self._cells(self.shards or self.chunks)
        return boxes(self.shape, cells, bounds_of(sel, self.shape))

    def _cells(self, cells: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(max(1, cell) for cell in (self.shape if cells is None else cells))

    def astype(self, dtype: Any) -> AsType:
        """Returns a view of the array whose reads are converted to another type."""
        return AsType(self, type_of(dtype))

    def asstr(self) -> Any:
        """Returns the array itself if it is text, as in h5py: the elements are ``str`` already."""
        if not self.dtype.hasobject:
            raise WrongTypeError(f"{self.path} has elements of {self.dtype}, which are no text")
        return self

    def read_direct(self, dest: AnyArray, source_sel: Any = ..., dest_sel: Any = ...) -> None:
        """Read a selection into an array, as in h5py.

        Parameters
        ----------
        dest
            A NumPy array of a type to which the elements can be cast (``same_kind``).
        source_sel, dest_sel
            The region to read, and the region of ``dest`` to fill; everything by default.
        """
        part = dest[() if dest_sel is None else dest_sel]
        selection = ... if source_sel is None else source_sel
        is_direct = isinstance(part, np.ndarray) and part.dtype == self.dtype
        if (is_direct and part.base is not None) or part is dest:
            selected = _selection.basic(selection, self.shape)
            if part.flags.c_contiguous and part.shape == selected.result:
                self.read(selection, out=part)
                return
        if not np.can_cast(self.dtype, dest.dtype, "same_kind"):
            raise InvalidArgumentError(f"{self.path} has {self.dtype}, which {dest.dtype} loses")
        dest[() if dest_sel is None else dest_sel] = self[selection]

    def read_union(self, selections: Sequence[Any]) -> list[AnyArray]:
        """Read several boxes in one request; each chunk is fetched and decoded once.

        Parameters
        ----------
        selections
            Basic selections without steps, which may overlap.

        Returns
        -------
        list
            The elements of each selection, as the brackets return them.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", data=np.eye(4))
        >>> [part.tolist() for part in t.read_union([np.s_[0, :2], np.s_[3, 2:]])]
        [[1.0, 0.0], [0.0, 1.0]]
        """
        chosen = [_selection.basic(selection, self.shape) for selection in selections]
        whole = self._get(_selection.union(chosen), scalar=False)
        ends = itertools.accumulate(math.prod(one.shape) for one in chosen)
        parts = np.split(whole, list(ends)[:-1]) if chosen else []
        return [part.reshape(one.result) for part, one in zip(parts, chosen, strict=True)]
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from bedform._html import shown

        return shown(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise InvalidArgumentError("an array of a store cannot be had without a copy")
        return np.asarray(self[...], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        return self._get(self._brackets(key))

    def _brackets(self, key: Any) -> _selection.EngineSelection:
        try:
            return _selection.brackets(key, self.shape)
        except InvalidArgumentError:
            said = label_in_brackets(self, key)
            if said is None:
                raise
            raise InvalidSelectionError(said) from None

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
            StrictAttributes bytes are damaged; ``out`` is then undefined.
        """
        return np.asarray(self._get(self._brackets(selection), out, scalar=False))

    def prefetch(self, selection: Any = ...) -> dict[str, int]:
        """Decode the chunks of a basic selection into the cache, for later reads.

        It decodes at most the bytes that the store's cache may keep (``cache=`` of
        :func:`bedform.open`). It omits text, and elements stored without codec or checksum: the
        kernel's page cache keeps those.

        Returns
        -------
        dict
            ``chunks`` decoded, including parts of a log; ``present``, those already cached; how
            many were ``left_out``; and the ``objects``, ``requests`` and ``bytes`` of the reads.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> t = bf.create(tempfile.mkdtemp() + "/s.zarr").create_array("t", (8, 8), "f4")
        >>> t[...] = 1
        >>> t.prefetch(np.s_[:4])["left_out"]
        0
        """
        counts, present, left_out = self._prefetch(self._brackets(selection))
        names = ("objects", "requests", "bytes", "chunks")
        done = dict(zip(names, counts, strict=False))
        return done | {"present": present, "left_out": left_out}

    def _foresee(self, selections: Sequence[Any]) -> None:
        """Queues the selections for readahead in this order; some arrays ignore it."""
        shape = self.shape
        rest = [(0, 1, size) for size in shape[1:]]

        def engine(selection: Any) -> tuple[Any, ...]:
            # An epoch may list a million rows: this path avoids the full analysis of each.
            if shape and type(selection) in (int, np.int64):
                at = int(selection)
                if 0 <= at < shape[0]:
                    return ("orthogonal", [(at, 1, 1), *rest])
            return self._brackets(selection).engine

        self._foresee_chosen([engine(selection) for selection in selections])

    def _foresee_chosen(self, selections: list[Any]) -> None:
        raise NotImplementedError

    def _prefetch(self, selected: _selection.EngineSelection) -> tuple[tuple[int, ...], int, int]:
        raise NotImplementedError

    def _get(
        self,
        selected: _selection.EngineSelection,
        out: AnyArray | None = None,
        *,
        scalar: bool = True,
    ) -> Any:
        if out is not None:
            self._check_out(selected, out)
            return self._fill(selected, out, may_take=False)
        empty = self._empty(selected.shape)
        buffer = self._fill(selected, empty, may_take=True)
        if selected.scalar and scalar:
            return buffer.reshape(())[()]
        return buffer.reshape(selected.result)

    def _empty(self, shape: tuple[int, ...]) -> AnyArray:
        """Returns a buffer for elements of the array."""
        try:
            return np.empty(shape, dtype=self.dtype)
        except (MemoryError, ValueError):
            # NumPy raises the second for axes beyond the address space.
            raise too_large(self._where(), shape, self.dtype) from None

    def _measured(self, selected: _selection.EngineSelection) -> dict[str, Any]:
        """Returns the counts of the last read, if it was of this selection."""
        # Compared as text, since arrays of positions have no equality of their own.
        if self._last is None or repr(self._last[0]) != repr(selected.engine):
            return {}
        _, counts, seconds = self._last
        names = ("objects", "requests", "bytes", "chunks", "waits")
        measured = {f"measured_{name}": count for name, count in zip(names, counts, strict=True)}
        return measured | {"measured_seconds": seconds}

    def _check_out(self, selected: _selection.EngineSelection, out: AnyArray) -> None:
        if out.dtype != self.dtype or out.shape != selected.result:
            raise InvalidArgumentError(
                f"out has shape {out.shape} and dtype {out.dtype}, "
                f"the selection {selected.result} and {self.dtype}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise InvalidArgumentError("out must be C-contiguous and writable")


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
