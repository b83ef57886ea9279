"""A program of h5py's low-level interface that reads by dataspaces of odd forms.

It prints each outcome.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import h5py
import numpy as np
from h5py import h5s

ROOM = 3


def space(extent: tuple[int, ...], *slab: Any, offset: tuple[int, ...] | None = None) -> Any:
    """Return a dataspace, with a hyperslab and an offset if they are given."""
    made = h5s.create_simple(extent)
    if slab:
        made.select_hyperslab(*slab)
    if offset is not None:
        made.offset_simple(offset)
    return made


def points(extent: tuple[int, ...], places: Any) -> Any:
    """Return a dataspace with these points."""
    made = h5s.create_simple(extent)
    made.select_elements(np.asarray(places, "u8"))
    return made


def cases(shape: tuple[int, int, int]) -> list[tuple[str, Any, Any]]:
    """Return names, memory spaces and file spaces."""
    n, rows, columns = shape
    whole = n * rows * columns
    series = lambda: space(shape, (0, 3, 4), (n, 1, 1))  # noqa: E731
    reverse = np.stack([np.arange(n)[::-1], np.full(n, 1), np.full(n, 2)], 1)
    mixed = np.random.default_rng(5).permutation(whole)
    everywhere = np.stack(np.unravel_index(mixed, shape), 1)
    union = space((20, 2 * n // 20), (0, 0), (20, n // 20))
    union.select_hyperslab((0, n // 20), (20, n // 20), op=h5s.SELECT_OR)
    return [
        ("flat", space((n,)), series()),
        ("offset beyond memory", space((2, n), (0, 0), (1, n), offset=(3, 0)), series()),
        (
            "offset before memory",
            space((2, n), (0, 0), (1, n), offset=((1 << 64) - 6, 0)),
            series(),
        ),
        ("offset far beyond", space((2, n), (0, 0), (1, n), offset=(1 << 40, 0)), series()),
        ("offset in memory", space((2, n), (0, 0), (1, n), offset=(1, 0)), series()),
        ("all of memory, offset", space((n,), (0,), (n,), offset=(2,)), series()),
        ("row of memory", space((3, n), (1, 0), (1, n)), series()),
        ("every third", space((3 * n,), (1,), (n,), (3,)), series()),
        ("same in memory", space(shape, (0, 3, 4), (n, 1, 1)), series()),
        ("places of the file", h5s.ALL, series()),
        ("points in memory", points(shape, reverse), series()),
        ("one point in memory", points((n,), np.zeros((n, 1))), series()),
        ("union in memory", union, series()),
        ("shorter file space", h5s.ALL, space((10, rows, columns))),
        ("narrower file space", h5s.ALL, space((n, rows // 2, columns))),
        ("longer file space", h5s.ALL, space((n + 100, rows, columns))),
        ("wider, slab of all", h5s.ALL, space((n, 2 * rows, columns), (0, 0, 0), shape)),
        ("wider, series", space((n,)), space((n, 2 * rows, columns), (0, 3, 4), (n, 1, 1))),
        ("beyond the dataset", space((n,)), space((n, 9 * rows, 9), (0, rows, 4), (n, 1, 1))),
        ("file offset", space((n,)), space(shape, (0, 3, 4), (n, 1, 1), offset=(0, 1, 0))),
        ("file offset beyond", space((n,)), space(shape, (0, 3, 4), (n, 1, 1), offset=(1, 0, 0))),
        (
            "file offset before",
            space((n,)),
            space(shape, (0, 3, 4), (n, 1, 1), offset=((1 << 64) - 9, 0, 0)),
        ),
        ("all, offset", h5s.ALL, space(shape, offset=(0, 1, 0))),
        ("points", space((n,)), points(shape, reverse)),
        ("points everywhere", h5s.ALL, points(shape, everywhere)),
        ("points everywhere, flat", space((whole,)), points(shape, everywhere)),
        ("a series twice", space((2 * n,)), points(shape, np.repeat(reverse, 2, 0))),
        ("another rank", space((n,)), space((n,), (0,), (n,))),
        ("other numbers", space((n - 1,)), series()),
    ]


def main(path: str, name: str) -> None:
    """Read each case several times, as a program in a loop would."""
    with h5py.File(path) as file:
        dataset = file[name].id
        size = int(np.prod(dataset.shape))
        for case, memory, selected in cases(dataset.shape):
            for _ in range(3):
                arena = np.zeros((2 * ROOM + 1) * size, dataset.dtype)
                buffer = arena[ROOM * size :]
                try:
                    dataset.read(memory, selected, buffer)
                except Exception as error:  # noqa: BLE001 - whatever the library raises
                    said = f"{type(error).__name__} {error}"
                else:
                    said = hashlib.sha256(arena.tobytes()).hexdigest()[:16]
                sys.stdout.write(f"{case}: {said}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
