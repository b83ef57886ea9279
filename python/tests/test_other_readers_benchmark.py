"""The benchmark's model of zarr-python's defaults, compared with zarr-python."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness.other_fields import FIELDS  # noqa: E402
from benchmarks.harness.zarr_defaults import default_chunks  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.night


@pytest.fixture(autouse=True)
def path_is_left_as_it_was() -> Iterator[None]:
    """Restores `sys.path` for later modules."""
    yield
    if str(ROOT) in sys.path:
        sys.path.remove(str(ROOT))


@pytest.mark.parametrize("seed", range(50))
def test_default_chunks_are_those_of_zarr_python(seed: int) -> None:
    """Shapes of no to five dimensions, with empty axes, of items of 1 to 16 bytes."""
    zarr = pytest.importorskip("zarr", minversion="3.1")
    chance = random.Random(seed)
    lengths = (0, 1, chance.randint(1, 10), chance.randint(1, 200), chance.randint(1, 5000))
    shape = tuple(chance.choice(lengths) for _ in range(seed % 6))
    dtype = np.dtype(chance.choice(["uint8", "int16", "float32", "float64", "complex128"]))
    theirs = zarr.create_array(zarr.storage.MemoryStore(), shape=shape, dtype=dtype)
    assert theirs.shards is None
    assert default_chunks(shape, dtype.itemsize) == theirs.chunks


def test_default_chunks_are_what_xarray_writes() -> None:
    """`to_zarr` passes no argument that changes them."""
    zarr = pytest.importorskip("zarr", minversion="3.1")
    xarray = pytest.importorskip("xarray")
    store = zarr.storage.MemoryStore()
    values = np.zeros((365, 91, 180), "float32")
    xarray.Dataset({"v": (("t", "y", "x"), values)}).to_zarr(store, consolidated=False)
    written = zarr.open_array(store, path="v", mode="r")
    assert written.chunks == default_chunks(values.shape, 4)
    assert [codec.to_dict()["name"] for codec in written.compressors] == ["zstd"]


@pytest.mark.parametrize("field", [one.shortened() for one in FIELDS], ids=lambda one: one.name)
def test_reads_of_a_field_lie_within_it(field: object) -> None:
    """Each selects a non-empty part of the array; the first selects all of it."""
    from benchmarks.harness.other_fields import Field

    assert isinstance(field, Field)
    reads = list(field.reads().values())
    assert reads[0] == tuple(slice(0, length) for length in field.shape)
    for selection in reads:
        for part, length in zip(selection, field.shape, strict=True):
            assert 0 <= part.start < part.stop <= length
