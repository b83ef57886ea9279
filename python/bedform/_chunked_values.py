"""Writing Dask arrays to arrays of a store, chunk by chunk, in any thread or process."""

from __future__ import annotations

import functools
import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bedform import _dask_cluster, _internal
from bedform._array import Array
from bedform._errors import NotFoundError
from bedform._layout import SHARD_BYTES, Regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xarray import Variable

    from bedform._store import Store

# Lazy values of more bytes are written in pieces.
LAZY_BYTES = 128 << 20
# Most bytes of a piece of rechunked data.
PIECE_BYTES = 512 << 20


class ChunkTarget:
    """An array that accepts chunks from Dask in any thread or process."""

    def __init__(self, array: Array, kind: Literal["array", "draft"] | tuple[int, ...]) -> None:
        self._array, self._kind = array, kind
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __setitem__(self, key: Any, values: Any) -> None:
        self._array[key] = values

    def __reduce__(self) -> tuple[Any, ...]:
        store = self._array._store
        options = json.dumps(store._options, sort_keys=True)
        version = _internal.__version__
        return (
            _UnpickledTarget,
            (store.store_path, options, self._array.path, self._kind, version),
        )


class _UnpickledTarget:
    """A target in another process, which opens it for each chunk.

    It does not open the store when it is unpickled: Dask would not report an error there, but wait
    for the task forever.
    """

    def __init__(self, *where: Any) -> None:
        self._where = where

    def __setitem__(self, key: Any, values: Any) -> None:
        _reopen_target(*self._where)[key] = values


@functools.lru_cache(maxsize=4)
def _opened(path: str, options: str, threads: int | None) -> Store:
    """Opens the store for a computation; cached, since each chunk brings a new target."""
    from bedform._store import _reopen

    return _reopen(path, {**json.loads(options), **({"threads": threads} if threads else {})})


def _reopen_target(path: str, options: str, array: str, kind: Any, version: str) -> ChunkTarget:
    _dask_cluster.check_version(version)
    try:
        store = _opened(path, options, _dask_cluster.threads_of_any_worker())
    except NotFoundError:
        raise NotFoundError(
            f"{path} is not seen by a process that is to write into it: workers must reach the "
            "store by the same path, as on a shared file system or in an object store"
        ) from None
    if kind == "array":
        return ChunkTarget(store.array(array), kind)
    if kind == "draft":
        return ChunkTarget(Array(store, store._call(store._inner.draft)(array)), kind)
    return ChunkTarget(Array(store, store._call(store._inner.grown)(array, list(kind))), kind)


def is_chunked(data: Any) -> bool:
    """Whether ``data`` is a Dask array."""
    return hasattr(data, "chunks") and hasattr(data, "__dask_graph__")


def values_of(variable: Variable, array: Array) -> Any:
    """Returns the values as a NumPy or Dask array; large lazy ones become Dask arrays."""
    if is_chunked(variable._data) or variable._in_memory:
        return variable.data
    size = math.prod(variable.shape) * max(1, variable.dtype.itemsize)
    if size > LAZY_BYTES:
        try:
            return variable.chunk(dict(zip(variable.dims, _pieces(array), strict=True))).data
        except ImportError:
            pass
    return np.asarray(variable.data)


def _pieces(array: Array) -> tuple[int, ...]:
    return array.shards or array.chunks


def box(starts: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Returns the region of ``shape`` that begins at ``starts``."""
    return tuple(slice(start, start + length) for start, length in zip(starts, shape, strict=True))


def store_chunks(
    chunks: list[tuple[Any, ChunkTarget, list[int]]], *, compute: bool, **told: Any
) -> Any:
    """Computes Dask arrays and writes them; each chunk is values, target and start of the region.

    With ``compute=False`` it returns the delayed writes. Other arguments go to the computation.
    """
    import dask.array
    from dask.delayed import delayed

    if not chunks:
        return delayed(None)
    targets: Any = [target for _, target, _ in chunks]
    stored = dask.array.store(
        [data for data, _, _ in chunks],
        targets,
        regions=[box(starts, data.shape) for data, _, starts in chunks],
        # Writers of one shard merge; no lock is needed.
        lock=False,
        compute=compute,
        **told,
    )
    return None if compute else delayed(_nothing)(stored)


def _nothing(_: object) -> None:
    """Replaces the result of a finished computation."""


def align(data: Any, starts: Sequence[int], blocks: Sequence[int]) -> Any:
    """Cuts a Dask array at the borders of blocks, so that no block has two writers.

    Axes with such cuts stay as they are. If the pieces would become too large for memory, the array
    stays as it is: writers then merge blocks, which costs time.
    """
    chunks = tuple(
        axis if _is_aligned(axis, start, block) else _cut(axis, start, block)
        for axis, start, block in zip(data.chunks, starts, blocks, strict=True)
    )
    piece = math.prod(max(axis, default=0) for axis in chunks) * data.dtype.itemsize
    if chunks == data.chunks or piece > PIECE_BYTES:
        return data
    return data.rechunk(chunks)


def fitted(layout: Regular, data: Any) -> Regular:
    """Returns a layout with shards no longer than the chunks of ``data``, along the axes they cut.

    A few chunks then make whole shards, and a computation holds little more than its result. The
    shards grow along the other axes to keep their size.
    """
    shards = [
        shard if len(axis) == 1 else max(chunk, min(shard, max(axis) // chunk * chunk))
        for chunk, shard, axis in zip(
            layout.chunks, layout.shards or layout.chunks, data.chunks, strict=True
        )
    ]
    size = math.prod(shards) * data.dtype.itemsize
    for axis in reversed(range(data.ndim)):
        if len(data.chunks[axis]) == 1 and size:
            needed = -(-data.shape[axis] // shards[axis])
            factor = max(1, min(SHARD_BYTES // size, needed))
            shards[axis] *= factor
            size *= factor
    return Regular(layout.chunks, shards, layout.order)


def _is_aligned(axis: tuple[int, ...], start: int, block: int) -> bool:
    ends = np.cumsum(axis)[:-1] + start
    return bool((ends % block == 0).all())


def _cut(axis: tuple[int, ...], start: int, block: int) -> tuple[int, ...]:
    total = sum(axis)
    step = block * max(1, max(axis) // block)
    borders = [0, *range(block - start % block, total, step), total]
    return tuple(b - a for a, b in itertools.pairwise(borders) if b > a)
