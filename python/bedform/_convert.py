"""Any readable input into a store whose layouts fit the reads.

Promises
--------
- The target appears under its name only when it is complete, durable and, if asked, verified.
- A conversion that was stopped, by Ctrl-C, a crash or a full disk, goes on where it stopped when
  the same call is made again; it begins again if the source has changed since.
- Values, encoded shards and kept chunks stay within ``memory``, whatever the size of the source.

How
---
Work happens in a hidden directory beside the target, ``.<target>.bedform-partial``:

- ``lock``: held while a conversion runs, so that two do not mix. The lock dies with its owner.
- ``plan.json``: what is converted, from which source, as its files were when it began, into which
  layouts, in which regions.
- ``store``: the store that grows.
- ``done``: one line per finished region, appended after the region's write returned. A write is
  durable when it returns, so a line never claims what a crash can take back; a lost line only
  costs the region a second write. A torn last line is not a line.

A region is a block of whole shards, so every shard is written once. It is grown, within the
memory, until it covers whole chunks of the source where it can, so that a source chunk is not
decoded again for every shard that it touches. At the end the finished store is renamed to its
name and the directory of both is synced.

In an object store nothing is renamed, and what was stopped begins again: see ``_convert_url.py``.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import shlex
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf

from ._advise import profile_at
from ._integers import byte_count
from ._layout import check_layout, default_shards
from ._publish import no_directory
from ._remote import is_url
from ._source_state import state_of
from ._text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Progress = Callable[[int, int], None]

PLAN_VERSION = 3
# Under this size an array is a coordinate or a flag: its layout decides nothing.
SMALL_ARRAY_BYTES = 1 << 20
# A region is there as values and, shard by shard, encoded.
BUFFERS = 2


class VerificationError(ValueError):
    """The copy is not the same as its source; it was not published."""


@dataclass(frozen=True)
class ArrayPlan:
    """How one array is converted."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    source_chunks: tuple[int, ...] | None
    chunks: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    order: str | None
    region: tuple[int, ...]

    @property
    def byte_count(self) -> int:
        """The decoded bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def regions(self) -> Iterator[tuple[slice, ...]]:
        """Yield the blocks of whole shards that are read and written one at a time."""
        starts = (
            range(0, length, step) for length, step in zip(self.shape, self.region, strict=True)
        )
        for corner in itertools.product(*starts):
            yield tuple(
                slice(start, min(start + step, length))
                for start, step, length in zip(corner, self.region, self.shape, strict=True)
            )


@dataclass(frozen=True)
class Conversion:
    """What :func:`convert` did, or, after a dry run, would do."""

    source: str
    target: str
    arrays: tuple[ArrayPlan, ...]
    complete: bool = False
    verified: bool = False
    resumed_bytes: int = 0
    warnings: tuple[str, ...] = field(default=())

    @property
    def byte_count(self) -> int:
        """The decoded bytes of all arrays."""
        return sum(array.byte_count for array in self.arrays)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {**asdict(self), "bytes": self.byte_count}


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    layout: Any = "auto",
    reads: Mapping[tuple[str, ...], float] | None = None,
    profile: Any = None,
    memory: str | int = "512 MiB",
    exclude: Sequence[str] = (),
    verify: bool = False,
    restart: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a store or a foreign file into a store laid out for the reads that matter.

    Parameters
    ----------
    source
        Anything that :func:`bedform.open` reads.
    target
        A local path that does not exist yet, or the URL of what will be a store. At a URL nothing
        is kept of a conversion that is stopped.
    layout
        ``"auto"`` asks :func:`bedform.advise`; a layout is used for every array of its rank.
    reads
        The axes that typical reads span, with weights. Kinds that name a dimension which an array
        does not have are left out for that array.
    memory
        The limit for values, encoded shards and kept chunks; what the process takes beside
        those, of the order of 100 MiB, is not counted. Where the shards that fit the reads are too
        large for it, ``"auto"`` makes smaller ones; what cannot fit is refused,
        with the least that would do.
    exclude
        Arrays to leave out, by name; such as those whose elements Zarr has no type for.
    verify
        Read both sides again and compare every byte before the target appears.
    restart
        Throw away what an earlier, unfinished conversion to this target left.
    dry_run
        Return the plan and write nothing.
    progress
        Called with the bytes done and the bytes in all.

    Raises
    ------
    FileExistsError
        The target exists.
    BlockingIOError
        Another conversion to this target is running.
    VerificationError
        The copy differs from the source.
    ValueError
        What an earlier run left is of another source or with other options; the target lies in
        the source; an array does not fit the memory or has elements that Zarr has no type for.
    OSError
        The source cannot be read or the target not written. What is done is kept.
    """
    url = os.fspath(target) if is_url(os.fspath(target)) else None
    target = Path(target)
    _check_free(source, target) if url is None else _convert_url().check_free(
        url, os.fspath(source)
    )
    check_layout(layout)
    limit = byte_count(memory, "memory")
    # A quarter is for decoded chunks of the source that the next region needs again.
    cache = min(limit // 4, 64 << 20)
    with bf.open(source, cache=cache) as opened:
        where = url or target
        priced = profile_at(where) if profile is None else profile
        plan = plan_conversion(opened, source, where, layout, reads, priced, limit - cache, exclude)
        if dry_run:
            return plan
        if url is not None:
            _convert_url().convert_to_url(opened, plan, verify, progress)
            return replace(plan, complete=True, verified=verify)
        with _workspace(target, restart) as work:
            warnings = (*plan.warnings, *_match_plan(work, _describe(plan, source)))
            resumed = _copy_all(opened, plan, work, progress)
            if verify:
                _compare_all(opened, plan, work, progress)
            _publish(work, target)
    return Conversion(
        plan.source, plan.target, plan.arrays, True, verify, resumed, warnings=warnings
    )


def _convert_url() -> Any:
    from . import _convert_url

    return _convert_url


def _check_free(source: str | os.PathLike[str], target: Path) -> None:
    """Fail if something has the name of the target, or it would lie in the source."""
    if target.is_symlink() or target.exists():
        raise FileExistsError(f"target {str(target)!r} exists: choose another name or remove it")
    _check_apart(source, target)


def _check_apart(source: str | os.PathLike[str], target: Path) -> None:
    """Fail if the target would lie in the source, by whatever names they are given."""
    if "://" in os.fspath(source):
        return
    outer = Path(source).resolve()
    if target.resolve().is_relative_to(outer):
        raise ValueError(
            f"target {str(target)!r} lies in the source {os.fspath(source)!r}, which is never "
            "changed: choose a place outside it"
        )


# Planning


def plan_conversion(
    opened: Any,
    source: str | os.PathLike[str],
    target: str | Path,
    layout: Any,
    reads: Mapping[tuple[str, ...], float] | None,
    profile: Any,
    memory: int,
    exclude: Sequence[str] = (),
) -> Conversion:
    """Decide the layouts and regions of every array; reads no values."""
    arrays = []
    matched: set[tuple[str, ...]] = set()
    names = _chosen_names(opened, source, exclude)
    for name in names:
        array = opened[name]
        kinds = {axes: w for axes, w in (reads or {}).items() if set(axes) <= set(array.dims)}
        matched |= set(kinds)
        arrays.append(_plan_array(name, array, layout, kinds or None, profile, memory))
    if unmatched := set(reads or {}) - matched:
        known = sorted({dim for name in names for dim in opened[name].dims})
        raise ValueError(
            f"no array of {os.fspath(source)!r} has the dimensions of the reads "
            f"{', '.join('(' + ', '.join(axes) + ')' for axes in sorted(unmatched))}: "
            f"the dimensions are {', '.join(known) or 'none'}"
        )
    return Conversion(
        os.fspath(source), str(target), tuple(arrays), warnings=_left_out(opened, exclude)
    )


def _left_out(opened: Any, exclude: Sequence[str]) -> tuple[str, ...]:
    """What a foreign file names and nobody has asked to leave out, yet cannot be converted."""
    if not isinstance(opened, bf.ForeignStore):
        return ()
    refused = opened.refused()
    return tuple(
        f"{name!r} is left out: {reason}" for name, reason in refused.items() if name not in exclude
    )


def _chosen_names(opened: Any, source: str | os.PathLike[str], exclude: Sequence[str]) -> list[str]:
    """The arrays to convert; fails for those that no store can hold."""
    there = sorted(opened.arrays())
    if unknown := sorted(set(exclude) - set(there)):
        raise ValueError(
            f"{os.fspath(source)!r} has no array {unknown[0]!r} to leave out: it has "
            f"{', '.join(there) or 'none'}"
        )
    names = [name for name in there if name not in set(exclude)]
    reasons = {name: getattr(opened[name], "not_storable", None) for name in names}
    refused = {name: reason for name, reason in reasons.items() if reason}
    if refused:
        listed = "; ".join(f"array {name!r}: {reason}" for name, reason in refused.items())
        options = " ".join(f"--exclude {shlex.quote(name)}" for name in refused)
        raise ValueError(
            f"{os.fspath(source)!r}: Zarr has no type for {listed}: leave out what it cannot hold "
            f"with exclude= ({options})"
        )
    return names


def _plan_array(
    name: str,
    array: Any,
    layout: Any,
    reads: Mapping[tuple[str, ...], float] | None,
    profile: Any,
    memory: int,
) -> ArrayPlan:
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    source_chunks = _chunks_of(array)
    chosen: Any = None
    if layout != "auto" and len(layout.chunks) == len(shape):
        chosen = layout
    elif math.prod(shape) * dtype.itemsize > SMALL_ARRAY_BYTES:
        chosen = bf.advise(shape, dtype, dims=array.dims, reads=reads, profile=profile)
    chunks = _lengths(chosen.chunks) if chosen is not None else None
    shards = _lengths(chosen.shards) if chosen is not None else None
    itemsize = 64 if dtype.hasobject else max(dtype.itemsize, 1)
    if chosen is not None and layout == "auto" and chunks and shards:
        shards = fit_shards(shape, chunks, shards, source_chunks, itemsize, memory)
    if shards is None and chunks is not None:
        shards = default_shards(shape, chunks, itemsize)
    unit = shards or tuple(max(length, 1) for length in shape)
    least = memory_needed(shape, unit, source_chunks, itemsize)
    if least > memory:
        raise ValueError(
            f"array {name!r} does not fit the memory: its blocks need at least "
            f"{_whole_mebibytes(least * 4 // 3)} (--memory)"
        )
    return ArrayPlan(
        name=name,
        shape=shape,
        dtype=dtype.str,
        dims=tuple(array.dims),
        source_chunks=source_chunks,
        chunks=chunks,
        shards=shards,
        order=str(chosen.order) if chosen is not None and chosen.order else None,
        region=grow_region(shape, unit, source_chunks, itemsize, memory),
    )


def _whole_mebibytes(count: int) -> str:
    # Rounded up: what the message names has to be enough.
    return f"{count // (1 << 20) + 1} MiB"


def memory_needed(
    shape: Sequence[int],
    region: Sequence[int],
    source_chunks: Sequence[int] | None,
    itemsize: int,
) -> int:
    """The bytes in flight while a region is copied.

    The values, their encoded shard, and for each thread a source chunk, encoded and decoded.
    """
    values = math.prod(min(e, n) for e, n in zip(region, shape, strict=True)) * itemsize
    chunk = math.prod(source_chunks) * itemsize if source_chunks else 0
    return BUFFERS * values + 2 * chunk * (os.cpu_count() or 1)


def fit_shards(
    shape: Sequence[int],
    chunks: Sequence[int],
    shards: Sequence[int],
    source_chunks: Sequence[int] | None,
    itemsize: int,
    memory: int,
) -> tuple[int, ...]:
    """Halve the shards, the axis of most chunks first, until one fits the memory.

    The answer is whole chunks, at least one, whatever the memory.

    Examples
    --------
    >>> fit_shards((400, 384), (10, 32), (400, 384), None, 4, 256 << 10)
    (100, 192)
    """
    counts = [shard // chunk for shard, chunk in zip(shards, chunks, strict=True)]
    while max(counts, default=1) > 1:
        fitted = [count * chunk for count, chunk in zip(counts, chunks, strict=True)]
        if memory_needed(shape, fitted, source_chunks, itemsize) <= memory:
            break
        axis = counts.index(max(counts))
        counts[axis] = -(-counts[axis] // 2)
    return tuple(count * chunk for count, chunk in zip(counts, chunks, strict=True))


def _lengths(value: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(int(length) for length in value)


def _chunks_of(array: Any) -> tuple[int, ...] | None:
    chunks = array.info().get("chunks")
    return _lengths(chunks) if chunks and len(chunks) == len(array.shape) else None


def grow_region(
    shape: Sequence[int],
    unit: Sequence[int],
    source_chunks: Sequence[int] | None,
    itemsize: int,
    memory: int,
) -> tuple[int, ...]:
    """Find the block of whole ``unit`` shards that decodes the fewest source chunks twice.

    Starts from one shard and doubles, one axis at a time, where most source bytes are decoded for
    nothing, while the block fits the memory. The answer never exceeds the array's shape by more
    than a shard and is at least one shard, whatever the memory.

    Examples
    --------
    A shard that is deep in time, from a file whose chunks are whole maps:

    >>> grow_region((2000, 330, 360), (500, 66, 72), (1, 330, 360), 4, 512 << 20)
    (500, 330, 360)
    """
    region = [max(length, 1) for length in unit]
    if not source_chunks:
        return tuple(region)
    while True:
        wasted = [
            (_overread(min(extent, length), chunk, length), axis)
            for axis, (extent, chunk, length) in enumerate(
                zip(region, source_chunks, shape, strict=True)
            )
            if extent < length
        ]
        for factor, axis in sorted(wasted, reverse=True):
            grown = list(region)
            whole = -(-shape[axis] // unit[axis]) * unit[axis]
            grown[axis] = min(region[axis] * 2, whole)
            needed = memory_needed(shape, grown, source_chunks, itemsize)
            if factor > 1 and needed <= memory:
                region = grown
                break
        else:
            return tuple(region)


def _overread(extent: int, chunk: int, length: int) -> float:
    """Decoded over needed elements on one axis, for a block of ``extent`` at an aligned start."""
    if extent % chunk == 0:
        return 1.0
    return min((-(-extent // chunk) + (0 if chunk % extent == 0 else 1)) * chunk, length) / extent


# The workspace


def partial_directory(target: Path) -> Path:
    """Where a conversion to ``target`` keeps what it has done until all is done."""
    return target.resolve().parent / f".{target.name}.bedform-partial"


@contextmanager
def _workspace(target: Path, restart: bool) -> Iterator[Path]:
    """Hold the hidden directory of a conversion, alone; leave it behind unless it was published."""
    parent = target.resolve().parent
    if not parent.is_dir():
        raise no_directory(parent)
    work = partial_directory(target)
    work.mkdir(exist_ok=True)
    with (work / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another conversion to {str(target)!r} is running: wait for it or stop it"
            ) from None
        if restart:
            for entry in work.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != "lock":
                    entry.unlink()
        yield work
        shutil.rmtree(work)


def _describe(plan: Conversion, source: str | os.PathLike[str]) -> dict[str, Any]:
    """All that must be the same for a second run to go on with the work of the first."""
    path = Path(os.fspath(source))
    described = {
        "version": PLAN_VERSION,
        "source": str(path),
        "state": state_of(path),
        "arrays": [asdict(array) for array in plan.arrays],
    }
    result: dict[str, Any] = json.loads(json.dumps(described))
    return result


def _match_plan(work: Path, described: dict[str, Any]) -> tuple[str, ...]:
    """Take up the plan that lies there if it is ours; write ours if none does.

    Of a source that has changed meanwhile nothing is kept; gives what is to be said of that.
    """
    path = work / "plan.json"
    try:
        earlier = json.loads(path.read_text()) if path.exists() else None
    except ValueError:
        earlier = "unreadable"
    if earlier == described:
        return ()
    has_changed = isinstance(earlier, dict) and [
        earlier.get(key) == described[key] for key in ("version", "source", "state")
    ] == [True, True, False]
    if earlier is not None and not has_changed:
        raise ValueError(
            f"an unfinished conversion lies in {str(work)!r}, of another source or with other "
            "options: repeat it as it was, or start over with restart=True (--restart)"
        )
    # Without a plan, too, nothing there can be trusted to belong to this conversion.
    path.unlink(missing_ok=True)
    shutil.rmtree(work / "store", ignore_errors=True)
    (work / "done").unlink(missing_ok=True)
    temporary = work / "plan.json.new"
    temporary.write_text(json.dumps(described, indent=1))
    temporary.replace(path)
    if not has_changed:
        return ()
    said = f"{described['source']!r} has changed since an unfinished conversion of it began"
    return (f"{said}: what that had copied was thrown away",)


def _read_done(work: Path) -> set[str]:
    path = work / "done"
    if not path.exists():
        return set()
    text = path.read_text(errors="replace")
    return set(text[: text.rfind("\n") + 1].splitlines())


def _publish(work: Path, target: Path) -> None:
    """Give the finished store its name, durably."""
    if target.is_symlink() or target.exists():
        raise FileExistsError(
            f"target {str(target)!r} appeared while the conversion ran: move it away and run the "
            "same conversion again; nothing is copied twice"
        )
    (work / "store").rename(target)
    for directory in (target.resolve().parent, work):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# The copy


def _copy_all(opened: Any, plan: Conversion, work: Path, progress: Progress | None) -> int:
    """Copy what is not done yet; return the bytes that an earlier run had done."""
    done = _read_done(work)
    store = _open_work_store(opened, work)
    resumed = finished = 0
    with store, (work / "done").open("ab") as log:
        _create_groups(store, opened)
        if log.tell():
            # Ends a torn line; whole lines do not mind the empty one.
            log.write(b"\n")
        for array in plan.arrays:
            source = opened[array.name]
            # Marks of an array that is not there (somebody removed it) claim nothing.
            is_new = array.name not in store.arrays()
            target = _create(store, source, array) if is_new else store[array.name]
            for region in array.regions():
                mark = _mark(array, region)
                if mark in done and not is_new:
                    resumed += region_bytes(array, region)
                else:
                    target[region] = source[region]
                    log.write(f"{mark}\n".encode())
                    log.flush()
                finished += region_bytes(array, region)
                if progress is not None:
                    progress(finished, plan.byte_count)
    return resumed


def _open_work_store(opened: Any, work: Path) -> Any:
    path = work / "store"
    if path.exists():
        return bf.open(path, mode="r+")
    return bf.create(path, attributes=dict(opened.attributes))


def _create_groups(store: Any, opened: Any) -> None:
    there = store.groups()
    for name, attributes in groups_of(opened).items():
        if name not in there:
            store.create_group(name, attributes=attributes)


def groups_of(opened: Any) -> dict[str, dict[str, Any]]:
    """The attributes of all groups but the root, outer ones first.

    Stores have groups, and foreign files the attributes of theirs.
    """
    found = sorted(opened.groups().items())
    return {name: dict(getattr(group, "attributes", group)) for name, group in found}


def _create(store: Any, source: Any, array: ArrayPlan) -> Any:
    return store.create_array(
        array.name,
        shape=array.shape,
        dtype=source.dtype,
        dims=array.dims,
        layout=layout_of(array),
        fill_value=source.fill_value,
        attributes=zarr_attributes(source),
    )


def layout_of(array: ArrayPlan) -> Any:
    """The layout as ``create_array`` takes it."""
    if array.chunks is None:
        return "auto"
    order: Any = array.order or "row-major"
    return bf.Regular(chunks=array.chunks, shards=array.shards, order=order)


def zarr_attributes(source: Any) -> dict[str, Any]:
    """Attributes as xarray writes them into Zarr, where ``_FillValue`` is encoded text."""
    attributes = dict(source.attributes)
    fill = attributes.get("_FillValue")
    if fill is not None and not isinstance(fill, str):
        from xarray.backends.zarr import FillValueCoder

        value = np.asarray(fill).reshape(-1)[0]
        attributes["_FillValue"] = FillValueCoder.encode(value, np.dtype(source.dtype))
    return attributes


def _mark(array: ArrayPlan, region: tuple[slice, ...]) -> str:
    return json.dumps([array.name, [part.start for part in region]])


def region_bytes(array: ArrayPlan, region: tuple[slice, ...]) -> int:
    """The decoded bytes of a region."""
    count: int = math.prod(part.stop - part.start for part in region)
    return count * np.dtype(array.dtype).itemsize


def _compare_all(opened: Any, plan: Conversion, work: Path, progress: Progress | None) -> None:
    """Read both sides once more; the bytes must be the same, NaN payloads included."""
    with bf.open(work / "store", cache=0) as store:
        compare_arrays(opened, store, plan, progress)


def compare_arrays(opened: Any, copy: Any, plan: Conversion, progress: Progress | None) -> None:
    """Compare the arrays of a copy, by name, with their sources."""
    compared = 0
    for array in plan.arrays:
        source, target = opened[array.name], copy[array.name]
        for region in array.regions():
            if not _same(np.asarray(source[region]), np.asarray(target[region])):
                where = ", ".join(f"{part.start}:{part.stop}" for part in region)
                raise VerificationError(
                    f"array {array.name!r} differs from the source in [{where}]: the target "
                    f"was not published; {format_bytes(compared)} before it are the same"
                )
            compared += region_bytes(array, region)
            if progress is not None:
                progress(compared, plan.byte_count)


def _same(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.shape != right.shape or left.dtype.newbyteorder("=") != right.dtype.newbyteorder("="):
        return False
    if left.dtype.hasobject or left.dtype.kind == "T":
        return bool(np.array_equal(left, right))
    common = left.dtype.newbyteorder("=")
    # Compared as bytes: NaN equals itself, and its payload counts.
    return bool(np.array_equal(_raw_bytes(left, common), _raw_bytes(right, common)))


def _raw_bytes(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(values.astype(dtype, copy=False)).reshape(-1).view(np.uint8)
