"""A linear cost model of reads by zarr-python and TensorStore, and a fit of its factors.

A read touches chunks. Without shards, each chunk is an object that is read and decoded whole. With
shards, the reader fetches a whole shard at once if the selection touches every chunk for which the
shard has room. Otherwise it fetches the index, then sends one request for each touched chunk. A
shard that extends past the end of the array is never fetched whole. `count` computes these numbers,
`Counts.terms` the terms of the sum, and `fit` its factors. All factors are at least zero, and
errors are relative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: One range of elements for each axis: start and end.
Box = tuple[tuple[int, int], ...]
Shape = tuple[int, ...]
RAW = "raw"


@dataclass(frozen=True)
class Counts:
    """The chunks, shards and rows that a read touches.

    `whole_shards` are fetched whole, `shards` in part; `whole_inner` and `inner` are the touched
    chunks in each. `axes` counts the axes of each chunk, `runs` the copied rows, and `strided` the
    elements of rows whose elements are not contiguous.
    """

    chunks: int
    whole_shards: int
    shards: int
    whole_inner: int
    inner: int
    axes: int
    index_entries: int
    decoded_bytes: int
    sharded_bytes: int
    result_bytes: int
    runs: int
    strided: int

    def terms(self, codec: str, codecs: Sequence[str]) -> dict[str, float]:
        """Return the terms of the sum by name."""
        return {
            "call": 1,
            "chunk": self.chunks,
            "whole shard": self.whole_shards,
            "shard in part": self.shards,
            "index entry": self.index_entries,
            "chunk in a whole shard": self.whole_inner,
            "chunk in a shard in part": self.inner,
            "chunk of a codec": (self.chunks + self.whole_inner + self.inner) * (codec != RAW),
            "axis of a chunk": self.axes,
            **{f"byte of {one}": self.decoded_bytes * (one == codec) for one in codecs},
            "byte copied twice": self.sharded_bytes,
            "byte of the result": self.result_bytes,
            "run": self.runs,
            "element of a strided run": self.strided,
        }


def count(box: Box, item_size: int, chunk: Shape, shard: Shape | None) -> Counts:
    """Count the chunks, shards and rows that the read of a box touches."""
    touched = math.prod(cells(span, size) for span, size in zip(box, chunk, strict=True))
    extent = [stop - start for start, stop in box]
    result = math.prod(extent) * item_size
    runs, is_strided = rows(extent, box, chunk)
    room = whole = shards = 0
    if shard is not None:
        sides = list(zip(box, chunk, shard, strict=True))
        shards = math.prod(cells(span, outer) for span, _, outer in sides)
        whole = math.prod(whole_shards(span, inner, outer) for span, inner, outer in sides)
        room = math.prod(outer // inner for _, inner, outer in sides)
    return Counts(
        chunks=touched if shard is None else 0,
        whole_shards=whole,
        shards=shards - whole,
        whole_inner=whole * room,
        inner=0 if shard is None else touched - whole * room,
        axes=touched * len(box),
        index_entries=shards * room,
        decoded_bytes=touched * math.prod(chunk) * item_size,
        sharded_bytes=0 if shard is None else result,
        result_bytes=result,
        runs=runs,
        strided=math.prod(extent) * is_strided,
    )


def rows(extent: list[int], box: Box, chunk: Shape) -> tuple[int, bool]:
    """Return the number of copied rows, and True if their elements are not contiguous.

    NumPy drops axes of one element, so a row lies along the last axis that is longer in a chunk. It
    is copied from each chunk that it crosses.
    """
    for axis in reversed(range(len(extent))):
        if min(extent[axis], chunk[axis]) > 1:
            others = math.prod(extent) // extent[axis]
            return others * cells(box[axis], chunk[axis]), axis < len(extent) - 1
    return math.prod(extent), False


def cells(span: tuple[int, int], size: int) -> int:
    """Return the number of cells of a grid that a range touches.

    >>> cells((3, 9), 4)
    3
    """
    return (span[1] - 1) // size - span[0] // size + 1


def whole_shards(span: tuple[int, int], chunk: int, shard: int) -> int:
    """Return the number of shards along an axis whose chunks a range all touches.

    >>> whole_shards((0, 10), 2, 4), whole_shards((3, 11), 2, 4)
    (2, 2)
    """
    first, last = span[0] // chunk, (span[1] - 1) // chunk
    room = shard // chunk
    return max(0, (last + 1) // room - -(-first // room))


def fit(terms: list[dict[str, float]], seconds: list[float]) -> dict[str, float]:
    """Return the factors, all at least zero, that minimize the squares of the relative errors.

    Outliers weigh less, so that a disturbed read does not distort the fit.
    """
    names = list(terms[0])
    rows = np.array([[one[name] for name in names] for one in terms])
    took = np.array(seconds)
    weights = 1 / took
    for _ in range(20):
        factors = non_negative(rows * weights[:, None], took * weights)
        predicted = rows @ factors
        off = np.abs(np.log(np.maximum(predicted, 1e-12) / took))
        # A relative error counts equally above and below; beyond 30 % it counts linearly.
        weights = np.minimum(1, np.sqrt(0.3 / np.maximum(off, 1e-9))) / np.sqrt(took * predicted)
    return dict(zip(names, map(float, factors), strict=True))


def non_negative(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the non-negative least squares, by coordinate descent."""
    scale = np.sqrt((rows**2).sum(axis=0))
    scale[scale == 0] = 1
    scaled = rows / scale
    gram, right = scaled.T @ scaled, scaled.T @ values
    factors = np.zeros(len(scale))
    for _ in range(3000):
        before = factors.copy()
        for at in range(len(factors)):
            if gram[at, at] > 0:
                rest = right[at] - gram[at] @ factors + gram[at, at] * factors[at]
                factors[at] = max(0.0, rest / gram[at, at])
        if np.abs(factors - before).max() < 1e-12:
            break
    return factors / scale


def predict(terms: dict[str, float], factors: dict[str, float]) -> float:
    """Return the predicted seconds."""
    return sum(factors[name] * term for name, term in terms.items())
