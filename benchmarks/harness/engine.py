"""The interface of engines under test; one subclass per engine, one worker process per instance.

A *variant* is one of an engine's ways to do the same work (settings, an allocated or a given
result). Every variant that a user could choose is tried before the rounds, and the fastest is used
for each line, so that each engine shows its best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.selections import Part, Selection, result_shape

if TYPE_CHECKING:
    from pathlib import Path

Values = NDArray[np.float64]
Reader = Callable[[], Values]


class Engine:
    """An engine under test. Opening and preparing are never measured; the returned call is."""

    name = ""
    read_variants: tuple[str, ...] = ("default",)
    write_variants: tuple[str, ...] = ("default",)
    element_variants: tuple[str, ...] = ("default",)

    def version(self) -> str:
        """Return the version of the library, for the report."""
        raise NotImplementedError

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the store at `path`; `cache_bytes` of 0 turns the caches of the engine off."""
        raise NotImplementedError

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Return a call that reads `selection` once."""
        raise NotImplementedError

    def element_reader(self, variant: str) -> Callable[[tuple[int, ...]], float]:
        """Return a call that reads one element."""
        raise NotImplementedError

    def write(self, path: Path, values: Values, metadata: dict[str, Any], variant: str) -> None:
        """Writes `values` as a new store with one array; the caller syncs the rest."""
        raise NotImplementedError


def with_kept_axes(selection: Selection) -> tuple[slice, ...]:
    """Returns the selection with integers as slices of length one, for engines that need them.

    >>> with_kept_axes((3, slice(0, 2)))
    (slice(3, 4, None), slice(0, 2, None))
    """
    return tuple(keep_axis(part) for part in selection)


def keep_axis(part: Part) -> slice:
    """Return an integer index as a slice of length one."""
    return part if isinstance(part, slice) else slice(part, part + 1)


def touched_buffer(selection: Selection) -> Values:
    """Returns a result buffer with mapped pages, as in a program that reads repeatedly."""
    return np.full(result_shape(selection), np.nan)
