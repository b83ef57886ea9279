"""Random arrays with copies in memory, and their comparison."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

import bedform

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NUMBERS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
ORDERS = ["row-major", "column-major", "z", "hilbert"]
CODECS: list[list[Any]] = [
    [],
    ["zstd"],
    [{"name": "gzip", "configuration": {"level": 5}}],
    [
        {
            "name": "blosc",
            "configuration": {
                "cname": "lz4",
                "clevel": 5,
                "shuffle": "shuffle",
                "typesize": 4,
                "blocksize": 0,
            },
        }
    ],
]
WORDS = ["", "a", "water", "\u00fc\u4e2d\U0001f600", "two words", "0", "x" * 40]

_numbers = itertools.count()


def random_values(shape: Sequence[int], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    """Returns values of every bit pattern of the type, including NaN payloads; words for text."""
    generator = np.random.default_rng(seed)
    if dtype in ("str", str):
        values = np.empty(tuple(shape), dtype=object)
        values.reshape(-1)[:] = [WORDS[at] for at in generator.integers(0, 7, values.size)]
        return values
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return generator.integers(0, 2, tuple(shape)).astype(bool)
    count = int(np.prod(shape, dtype=np.int64))
    raw = generator.integers(0, 256, count * kind.itemsize, dtype=np.uint8)
    return raw.view(kind).reshape(tuple(shape))


def assert_same(found: Any, expected: Any) -> None:
    """Asserts equal shape, dtype and bits, and scalars where NumPy has scalars."""
    assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray), (found, expected)
    left, right = np.asarray(found), np.asarray(expected)
    assert left.shape == right.shape
    if right.dtype.kind in "OUT":
        assert left.tolist() == right.tolist()
        return
    assert left.dtype == right.dtype
    assert left.tobytes() == right.tobytes()


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> bedform.Regular:
    """A layout of small chunks in small shards."""
    chunks = draw(st.tuples(*[st.integers(1, 4)] * rank))
    factors = draw(st.tuples(*[st.integers(1, 3)] * rank))
    shards = tuple(chunk * factor for chunk, factor in zip(chunks, factors, strict=True))
    return bedform.Regular(chunks=chunks, shards=shards, order=draw(st.sampled_from(ORDERS)))  # type: ignore[arg-type]


shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5, 7]), min_size=0, max_size=4).map(tuple)


@st.composite
def twins(
    draw: st.DrawFn, root: Path, dtypes: Sequence[str] = (*NUMBERS, "str")
) -> tuple[bedform.Array, np.ndarray[Any, Any]]:
    """Returns an array of a new store below ``root`` and its copy; sometimes never written."""
    # A separate store: adding to one with thousands of arrays is slow.
    store = bedform.create(root / f"{next(_numbers)}.zarr", durability="process")
    shape = draw(shapes)
    dtype = draw(st.sampled_from(list(dtypes)))
    array = store.create_array(
        "a",
        shape,
        dtype,
        layout=draw(layouts(len(shape))),
        codecs=draw(st.sampled_from(CODECS)),
        checksum=draw(st.booleans()),
    )
    if draw(st.integers(0, 4)) == 0:
        empty = np.full(shape, "", dtype=object) if dtype == "str" else np.zeros(shape, dtype)
        return array, empty
    values = random_values(shape, dtype, draw(st.integers(0, 2**31)))
    array[...] = values
    return array, values
