"""Values that are written: in the range of an array of integers, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("given", ["bool", *INTEGERS, *FLOATS])
def test_numbers_are_stored_without_their_fraction_or_refused(
    tmp_path: Path, dtype: str, given: str
) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array("t", (1,), dtype, chunks=(1,), shards=(1,))
    source, target = np.dtype(given), np.dtype(dtype)
    ends = [0, 1]
    for of in (source, target):
        if of.kind in "iu":
            limits = np.iinfo(of)
            ends += [int(limits.min), int(limits.max)]
    numbers: list[Any] = sorted({end + by for end in ends for by in (-1, 0, 1)})
    if source.kind == "f":
        numbers += [0.5, -2.25, np.nan, np.inf, 1e30]
    kept = 0
    for number in numbers:
        with np.errstate(over="ignore"):
            try:
                value = np.array([number]).astype(source)
            except (OverflowError, TypeError):
                continue
        exact = value[0].item()
        limits = np.iinfo(target)
        if np.isfinite(exact) and limits.min <= int(exact) <= limits.max:
            array[...] = value
            assert int(array[0]) == int(exact), (given, dtype, number)
            kept += 1
        else:
            with pytest.raises(bf.InvalidArgumentError, match=f"t holds {dtype}, which has no"):
                array[...] = value
    assert kept >= 2


def test_every_call_refuses_integers_out_of_range_and_stores_nothing(tmp_path: Path) -> None:
    """Regression: 2**40 was stored as 0."""
    store = bf.create(tmp_path / "s.zarr")
    array = store.create_array("t", (3,), "int32", dims=("x",))
    array[...] = 7
    large = np.array([2**40])
    with store.session() as session:
        parts = session.declare([[0]], [[1]])
        for call in (
            lambda: array.__setitem__(0, large[0]),
            lambda: array.__setitem__(0, 2**40),
            lambda: array.append(large),
            lambda: store.append({"t": large}, dim="x"),
            lambda: array.oindex.__setitem__([0], large),
            lambda: session.write("t", large, start=0),
            lambda: session.write_boxes("t", large, [[0]], [[1]]),
            lambda: session.write_declared("t", large, parts),
            lambda: session.append("t", large),
            lambda: session.write_at("t", slice(0, 1), large),
        ):
            with pytest.raises(bf.InvalidArgumentError, match="t holds int32"):
                call()
    assert array[...].tolist() == [7, 7, 7]


def test_large_integers_do_not_become_infinite(tmp_path: Path) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array("t", (1,), "float16")
    with pytest.raises(bf.InvalidArgumentError, match="t holds float16, which has no 70000"):
        array[...] = np.array([70_000])
    array[...] = np.array([2049])  # rounded, as floats are
    assert array[0] == 2048


def test_a_refused_store_leaves_no_directory_behind(tmp_path: Path) -> None:
    """Regression: an empty directory stayed, which said NotFound from then on."""
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    place = tmp_path / "a" / "b" / "s.zarr"
    with pytest.raises(bf.BedformError):
        bf.create(place, attributes={"deep": deep})
    assert not (tmp_path / "a").exists()
    bf.create(place)
    with pytest.raises(bf.ExistsError):
        bf.create(place)
    assert bf.open(place).attributes == {}
    (tmp_path / "kept").mkdir()
    with pytest.raises(bf.BedformError):
        bf.create(tmp_path / "kept", attributes={"deep": deep})
    assert (tmp_path / "kept").exists(), "it was there before"


def test_decompositions_that_nobody_holds_are_forgotten(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", (4, 8), "int32")
    with store.session() as session:
        kept = session.declare([[0, 0]], [[1, 2]])
        for step in range(50):
            parts = session.declare([[1, 0]], [[1, 2]])
            session.write_declared("t", [step, step], parts)
        session.write_declared("t", [8, 9], kept)
        assert len(session._collected) <= 1
    assert store["t"][:2, :2].tolist() == [[8, 9], [49, 49]]
