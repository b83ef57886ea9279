"""Cold reads of the same selections by several readers, with all results compared.

A measured read opens the file or store, reads one selection and closes: no engine keeps data in
memory between reads (Bedform's cache, which all handles share, is off). Before each read the page
cache is emptied of the files. Rounds are interleaved, each at its own place; a line is the median
of its rounds.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .field import Field

    Selection = tuple[int | slice, ...]

_PROBES = 64
_WARM = "NOT cold"


class ReadPosition(NamedTuple):
    """The place of a read, as fractions of the first axis, the rows and the columns."""

    first: float
    row: float
    column: float


#: One per round. They include the ends of the columns and the last row. In the built-in field they
#: lie in the sea, since constant values over land read fast.
PLACES = (ReadPosition(0.5, 0.4, 0.0), ReadPosition(0.0, 0.5, 1.0), ReadPosition(1.0, 1.0, 0.8))
#: Weight of maps in proportion to series and planes.
MAPS_WEIGHT = 5.0


#: Reads under 0.2 s are repeated 5 times, since other programs disturb them most.
QUICK_SECONDS, QUICK_REPEATS = 0.2, 5


@dataclass(frozen=True)
class DemoReader:
    """A function that reads a selection, and the files that it reads."""

    read: Callable[[Selection], np.ndarray[Any, Any]]
    objects: tuple[Path, ...]


@dataclass(frozen=True)
class DemoReadTimes:
    """One line: the median seconds of each reader for one kind of read."""

    name: str
    selection: str
    answer_bytes: int
    seconds: dict[str, float]
    #: Number of places that were read; ``selection`` is one of them.
    places: int = 1


def h5py_reader(field: Field) -> DemoReader:
    """Returns the reader that uses h5py on the file."""

    def read(selection: Selection) -> np.ndarray[Any, Any]:
        with h5py.File(field.path) as file:
            return np.asarray(file[field.variable][selection])

    return DemoReader(read, (Path(field.path),))


def bedform_reader(
    path: str | os.PathLike[str], variable: str, objects: Iterable[Path], *, replicas: bool = True
) -> DemoReader:
    """Returns the reader that uses Bedform on a file or store, with or without replicas."""

    def read(selection: Selection) -> np.ndarray[Any, Any]:
        with bf.open(path, replicas=replicas, cache=0) as opened:
            return np.asarray(opened[variable][selection])

    return DemoReader(read, tuple(objects))


def typical_reads(dims: Sequence[str]) -> dict[tuple[str, ...], float]:
    """Returns the axes of maps, series and planes with weights, for advice on a layout.

    >>> typical_reads(("time", "y", "x"))
    {('y', 'x'): 5.0, ('time',): 1.0, ('time', 'x'): 1.0, ('time', 'y'): 1.0}
    """
    first, *rest = dims
    *_, row, column = dims if len(dims) > 2 else ("", *dims)
    maps = (row, column) if len(rest) > 1 else (column,)
    others = [(first,), (first, column), *([(first, row)] if row != first else [])]
    return {maps: MAPS_WEIGHT, **{axes: 1.0 for axes in others if axes != maps}}


def whole(shape: Sequence[int]) -> list[range]:
    """Returns all positions of each axis."""
    return [range(length) for length in shape]


def hot_region(shape: Sequence[int]) -> list[range]:
    """Returns an eighth of the domain: a third of the rows, three eighths of the columns.

    >>> hot_region((9, 24, 40))
    [range(0, 9), range(14, 22), range(15, 30)]
    """
    region = whole(shape)
    shares = [(-1, 3 / 8, 3 / 8), (-2, 7 / 12, 1 / 3)] if len(shape) > 2 else [(-1, 3 / 8, 1 / 8)]
    for axis, start, share in shares:
        first = int(shape[axis] * start)
        region[axis] = range(first, first + max(int(shape[axis] * share), 1))
    return region


def selections(
    region: Sequence[range], shape: Sequence[int], place: ReadPosition
) -> dict[str, Selection]:
    """Returns one selection of each kind in a region, at a place.

    >>> selections([range(4), range(8, 16)], (4, 20), ReadPosition(1.0, 0.0, 0.5))
    {'map': (3, slice(8, 16, None)), 'series': (slice(None, None, None), 12), 'box': \
(slice(3, 4, None), slice(11, 13, None))}
    """
    last = len(shape) - 1
    shares = [place.first, *(place.row for _ in range(last - 1)), place.column]
    point = [
        along[round((len(along) - 1) * share)] for along, share in zip(region, shares, strict=True)
    ]
    spans = {
        "map": {last - 1, last} if last > 1 else {last},
        "series": {0},
        "plane: time, x": {0, last},
        "plane: time, y": {0, last - 1},
    }
    kinds: dict[str, Selection] = {
        name: tuple(
            _all_of(region[axis], shape[axis]) if axis in axes else at
            for axis, at in enumerate(point)
        )
        for name, axes in spans.items()
        if len(axes) < len(shape) and not (name.endswith("y") and last < 2)
    }
    kinds["box"] = tuple(
        _quarter(along, share) for along, share in zip(region, shares, strict=True)
    )
    return kinds


def lines_in(region: Sequence[range], shape: Sequence[int]) -> dict[str, list[Selection]]:
    """Returns for each kind its selections in a region, one per round."""
    at = [selections(region, shape, place) for place in PLACES]
    return {kind: [one[kind] for one in at] for kind in at[0]}


def selections_outside(
    region: Sequence[range], shape: Sequence[int], place: ReadPosition
) -> dict[str, Selection]:
    """Returns a map and a series before a region of :func:`hot_region`, if there is space.

    >>> selections_outside(hot_region((9, 24, 40)), (9, 24, 40), ReadPosition(0.0, 0.5, 0.5))
    {'outside: map': (0, slice(0, 14, None), slice(None, None, None)), \
'outside: series': (slice(None, None, None), 6, 20)}
    """
    axis = len(shape) - (2 if len(shape) > 2 else 1)
    if region[axis].start == 0:
        return {}
    before = whole(shape)
    before[axis] = range(region[axis].start)
    found = selections(before, shape, place)
    return {f"outside: {kind}": found[kind] for kind in ("map", "series")}


def _all_of(along: range, length: int) -> slice:
    return slice(None) if len(along) == length else slice(along.start, along.stop)


def _quarter(along: range, share: float) -> slice:
    length = max(len(along) // 4, 1)
    start = along.start + round((len(along) - length) * share)
    return slice(start, start + length)


def measure(
    readers: Mapping[str, DemoReader],
    lines: Mapping[str, Sequence[Selection]],
    progress: Callable[[int, int], None],
) -> tuple[DemoReadTimes, ...]:
    """Measures every reader on every line, one selection of each per round.

    Raises
    ------
    ValueError
        A reader returned other values than the first one.
    """
    taken: dict[tuple[str, str], list[float]] = {}
    shown: dict[str, tuple[str, int]] = {}
    repeats: dict[str, int] = {}
    rounds = max(map(len, lines.values()))
    total = rounds * len(lines) * len(readers)
    done = 0
    for step in range(rounds):
        for kind, places in lines.items():
            selection = places[step]
            expected = None
            for name, reader in _in_turn(readers, kind, repeats):
                evict(reader.objects)
                started = time.perf_counter()
                answer = reader.read(selection)
                seconds = time.perf_counter() - started
                taken.setdefault((kind, name), []).append(seconds)
                repeats.setdefault(kind, QUICK_REPEATS if seconds < QUICK_SECONDS else 1)
                expected = answer if expected is None else expected
                _check(name, kind, selection, answer, expected)
                shown[kind] = (spell(selection), answer.nbytes)
            done += len(readers)
            progress(done, total)
    return tuple(
        DemoReadTimes(
            kind,
            *shown[kind],
            {name: statistics.median(taken[kind, name]) for name in readers},
            rounds,
        )
        for kind in shown
    )


def _in_turn(
    readers: Mapping[str, DemoReader], kind: str, repeats: Mapping[str, int]
) -> Iterator[tuple[str, DemoReader]]:
    """Iterates over all readers, repeatedly for kinds whose first read was quick."""
    done = 0
    while done < repeats.get(kind, 1):
        yield from readers.items()
        done += 1


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
    """Returns a selection as it is typed.

    >>> spell((3, slice(None), slice(4, 9)))
    '3,:,4:9'
    """
    return ",".join(
        str(part)
        if isinstance(part, int)
        else f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
        for part in selection
    )


def spell_gain(gain: float) -> str:
    """Returns the ratio of two times in words.

    >>> spell_gain(547.9), spell_gain(0.125), spell_gain(1.32), spell_gain(0.99)
    ('548 times faster', '8 times slower', '1.3 times faster', 'the same')
    """
    ratio = max(gain, 1 / gain)
    if ratio < 1.05:
        return "the same"
    shown = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}".removesuffix(".0")
    return f"{shown} times {'faster' if gain > 1 else 'slower'}"


def how_loaded() -> str:
    """Returns the load of the machine; other load lengthens times more than ratios."""
    cores = len(os.sched_getaffinity(0))
    return f"load {os.getloadavg()[0]:.1f} on {cores} core{'s' if cores > 1 else ''}"


# The page cache


def evict(paths: Iterable[Path]) -> None:
    """Asks the kernel to drop the cached pages of files; they are on disk already."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def how_cold(objects: Iterable[Path]) -> str:
    """Empties the page cache once, measures the rest, and returns the result in words."""
    paths = sorted(objects)
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
    return f"{_WARM}: {share:.0%} of these files stayed in memory"


def least_cold(said: Sequence[str]) -> str:
    """Returns the worst of several results of :func:`how_cold`.

    >>> least_cold(["cold: emptied", "NOT cold: 9% of these files stayed in memory"])
    'NOT cold: 9% of these files stayed in memory'
    >>> least_cold(["cold: emptied", "cold: not checked"])
    'cold: emptied'
    """
    return next((one for one in said if one.startswith(_WARM)), said[0])


def _resident(path: Path) -> float | None:
    """Returns the fraction of probes found in memory; None if the system cannot tell."""
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
    # Backwards, since probes in ascending order may start the kernel's readahead.
    yield from range(size - 1, -1, -max(size // _PROBES, 1 << 20))
