"""Cold reads of the same selections by several readers, every answer checked.

A measured read opens the file or store, reads one selection and closes: nothing that an engine
keeps in memory carries over. Before each the page cache is emptied of the files at hand. Rounds are
interleaved, each at places of its own; a line is the median of its rounds.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .field import Field

    Selection = tuple[int | slice, ...]
    Reader = Callable[[Selection], np.ndarray[Any, Any]]

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PROBES = 64


@dataclass(frozen=True)
class Result:
    """One line: the median seconds of each reader for one kind of read."""

    name: str
    selection: str
    answer_bytes: int
    seconds: dict[str, float]
    #: How many places were read; ``selection`` is one of them.
    places: int = 1


#: How often a map is read for each series or plane.
MAPS_WEIGHT = 5.0


def typical_reads(dims: Sequence[str]) -> dict[tuple[str, ...], float]:
    """The axes that maps, series and planes span, with weights, for advising a layout.

    >>> typical_reads(("time", "y", "x"))
    {('y', 'x'): 5.0, ('time',): 1.0, ('time', 'x'): 1.0, ('time', 'y'): 1.0}
    """
    first, *rest = dims
    *_, row, column = dims if len(dims) > 2 else ("", *dims)
    maps = (row, column) if len(rest) > 1 else (column,)
    others = [(first,), (first, column), *([(first, row)] if row != first else [])]
    return {maps: MAPS_WEIGHT, **{axes: 1.0 for axes in others if axes != maps}}


def selections(shape: Sequence[int], step: int) -> dict[str, Selection]:
    """One selection of each kind, at a place that depends on the round."""
    share = (step + 1) / 5 + 0.17
    point = [min(int(length * share), length - 1) for length in shape]
    whole = slice(None)
    last = len(shape) - 1
    spans = {
        "map": {last - 1, last} if last > 1 else {last},
        "series": {0},
        "plane: time, x": {0, last},
        "plane: time, y": {0, last - 1},
    }
    kinds: dict[str, Selection] = {
        name: tuple(whole if axis in axes else at for axis, at in enumerate(point))
        for name, axes in spans.items()
        if len(axes) < len(shape) and not (name.endswith("y") and last < 2)
    }
    kinds["box"] = tuple(
        slice(start := min(at, length - max(length // 4, 1)), start + max(length // 4, 1))
        for at, length in zip(point, shape, strict=True)
    )
    return kinds


def measure(
    field: Field, store: Path, rounds: int, progress: Callable[[int, int], None]
) -> tuple[tuple[str, ...], tuple[Result, ...], str, tuple[str, ...]]:
    """Measure every reader on every kind of read.

    Returns
    -------
    tuple
        The readers, one result per kind, how cold the reads were, what else to say.
    """
    readers, notes = _readers(field, store)
    objects = {name: [Path(field.path)] if name == "h5py" else _objects(store) for name in readers}
    cold = _how_cold(sorted({path for paths in objects.values() for path in paths}))
    taken: dict[tuple[str, str], list[float]] = {}
    shown: dict[str, tuple[str, int]] = {}
    total = rounds * len(selections(field.shape, 0)) * len(readers)
    done = 0
    for step in range(rounds):
        for kind, selection in selections(field.shape, step).items():
            expected = None
            for reader, read in readers.items():
                evict(objects[reader])
                started = time.perf_counter()
                answer = read(selection)
                taken.setdefault((kind, reader), []).append(time.perf_counter() - started)
                expected = answer if expected is None else expected
                _check(reader, kind, selection, answer, expected)
                shown[kind] = (spell(selection), answer.nbytes)
                done += 1
                progress(done, total)
    results = tuple(
        Result(kind, *shown[kind], {r: statistics.median(taken[kind, r]) for r in readers}, rounds)
        for kind in shown
    )
    return tuple(readers), results, cold, notes


def _readers(field: Field, store: Path) -> tuple[dict[str, Reader], tuple[str, ...]]:
    """The readers by name, today's first and ours last."""

    def read_h5py(selection: Selection) -> np.ndarray[Any, Any]:
        with h5py.File(field.path) as file:
            return np.asarray(file[field.variable][selection])

    def read_bedform(selection: Selection) -> np.ndarray[Any, Any]:
        with bf.open(store) as opened:
            return np.asarray(opened[field.variable][selection])

    readers: dict[str, Reader] = {"h5py": read_h5py}
    notes: tuple[str, ...] = ()
    try:
        import zarr
    except ModuleNotFoundError:
        notes = ("zarr-python is not installed, so it is not compared: pip install zarr",)
    else:

        def read_zarr(selection: Selection) -> np.ndarray[Any, Any]:
            array = zarr.open_array(str(store), path=field.variable, mode="r")
            return np.asarray(array[selection])

        readers["zarr-python"] = read_zarr
    readers["Bedform"] = read_bedform
    return readers, notes


def _check(
    reader: str,
    kind: str,
    selection: Selection,
    answer: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
) -> None:
    if not np.array_equal(answer, expected, equal_nan=answer.dtype.kind == "f"):
        raise ValueError(
            f"{reader} answered the {kind} [{spell(selection)}] with other values than the file"
        )


def spell(selection: Selection) -> str:
    """A selection as it is typed.

    >>> spell((3, slice(None), slice(4, 9)))
    '3, :, 4:9'
    """
    return ", ".join(
        str(part)
        if isinstance(part, int)
        else f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
        for part in selection
    )


# The page cache


def _objects(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.is_file()]


def evict(paths: Sequence[Path]) -> None:
    """Ask the system to forget the pages of files; they are on disk, so nothing is lost."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _how_cold(paths: Sequence[Path]) -> str:
    """Empty the page cache once, look what stayed, and say it."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    evict(paths)
    resident = [found for path in paths if (found := _resident(path)) is not None]
    evict(paths)
    if not resident:
        return "cold: the page cache was emptied of these files (not checked on this system)"
    share = sum(resident) / len(resident)
    if share < 0.05:
        return "cold: the page cache was emptied of these files before every read"
    return f"NOT cold: {share:.0%} of these files stayed in memory"


def _resident(path: Path) -> float | None:
    """The share of probes that memory answers; None where the system cannot tell."""
    size = path.stat().st_size
    handle = os.open(path, os.O_RDONLY)
    found = 0
    probes = 0
    try:
        for offset in _offsets(size):
            probes += 1
            try:
                found += os.preadv(handle, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
            except BlockingIOError:
                continue
            except OSError:
                return None
    finally:
        os.close(handle)
    return found / probes if probes else None


def _offsets(size: int) -> Iterator[int]:
    # Backwards: a probe may start the system's own reading ahead.
    yield from range(size - 1, -1, -max(size // _PROBES, 1 << 20))
