"""Every index that NumPy accepts gives what NumPy gives; every one that it refuses is refused.

The oracle is the same index on the same values in memory. Orthogonal and point indexing have
another oracle: a table of element numbers, indexed axis by axis with NumPy. Rust tests many more
selections and layouts (tests/properties/arrays.rs); here the translation of Python's indexes is
tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engine import assert_same, random_values, twins
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples

import bedform

if TYPE_CHECKING:
    from pathlib import Path

    Values = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexing")


positions = st.integers(-8, 8)
bounds = st.none() | st.integers(-9, 9)
slices = st.builds(slice, bounds, bounds, st.none() | st.integers(-4, 4))
basic_entries = st.one_of(
    positions,
    positions.map(np.int16),
    positions.map(lambda at: np.array(at, "i8")),
    slices,
    slices,
    st.just(Ellipsis),
    st.none(),
)
wrong_entries = st.sampled_from([1.0, "a", 2**70, -(2**70), slice("a"), slice(1.5, None), 1j])


@st.composite
def basic_keys(draw: st.DrawFn) -> Any:
    entries = draw(st.lists(basic_entries, max_size=5))
    if draw(st.integers(0, 9)) == 0:
        entries.append(draw(wrong_entries))
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


# A key may be wrong in two ways; NumPy and Bedform may name different ones.
REFUSED = (IndexError, ValueError, TypeError)


def is_refused(values: Values, key: Any) -> bool:
    try:
        values[key]
    except REFUSED:
        return True
    return False


@fewer_examples(3)
@given(st.data())
def test_a_basic_index_reads_what_numpy_reads(root: Path, data: st.DataObject) -> None:
    array, values = data.draw(twins(root))
    for _ in range(8):
        key = data.draw(basic_keys())
        if is_refused(values, key):
            with pytest.raises(REFUSED):
                array[key]
            with pytest.raises(REFUSED):
                array.read(key)
            continue
        expected = values[key]
        assert_same(array[key], expected)
        assert_same(array.read(key), np.asarray(expected))
        if array.dtype != object:
            out = np.empty(np.shape(expected), dtype=array.dtype)
            assert array.read(key, out=out) is out
            assert_same(out, np.asarray(expected))


def numbered(values: Values) -> Values:
    return np.arange(values.size).reshape(values.shape)


def value_for(data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns a value that NumPy broadcasts to ``shape``: axes of length 1, dropped or added."""
    cut = [length if data.draw(st.booleans()) else 1 for length in shape]
    cut = cut[data.draw(st.integers(0, len(cut))) :] if data.draw(st.booleans()) else cut
    if data.draw(st.integers(0, 5)) == 0:
        cut = [1, *cut] if cut and len(cut) == len(shape) else cut
    name = "str" if dtype.kind == "O" else dtype
    value = random_values(cut, name, data.draw(st.integers(0, 2**31)))
    return value[()] if value.ndim == 0 else value


def put(values: Values, chosen: Values, value: Any) -> None:
    """Assigns element by element, as NumPy does, so that the last of equal positions stays."""
    given = np.asarray(value, dtype=values.dtype)
    given = given.reshape(given.shape[max(0, given.ndim - chosen.ndim) :])
    flat = values.reshape(-1)
    for at, new in zip(
        chosen.reshape(-1), np.broadcast_to(given, chosen.shape).reshape(-1), strict=True
    ):
        flat[at] = new


@fewer_examples(3)
@given(st.data())
def test_a_basic_index_writes_what_numpy_writes(root: Path, data: st.DataObject) -> None:
    array, values = data.draw(twins(root))
    values = values.copy()
    for _ in range(4):
        key = data.draw(basic_keys())
        if is_refused(values, key):
            with pytest.raises(REFUSED):
                array[key] = 1 if array.dtype != object else "a"
            continue
        value = value_for(data, np.shape(values[key]), values.dtype)
        array[key] = value
        values[key] = value
        assert_same(array[...], values[...])


def axis_entries(size: int) -> st.SearchStrategy[Any]:
    """Entries of an orthogonal index that fit an axis of ``size``, as lists, arrays, masks."""
    masks = st.lists(st.booleans(), min_size=size, max_size=size).map(lambda m: np.array(m, bool))
    if size == 0:
        return slices_of_step | st.just([]) | masks
    at = st.integers(-size, size - 1)
    lists = st.lists(at, max_size=6)
    kinds = st.sampled_from(["i8", "i2", "i1", ">i4"])
    arrays = st.builds(lambda found, kind: np.array(found, kind), lists, kinds)
    return st.one_of(at, at.map(np.int32), slices_of_step, lists, arrays, masks, masks.map(list))


slices_of_step = slices.filter(lambda entry: entry.step != 0)


def outer(values: Values, key: tuple[Any, ...]) -> Any:
    """Applies an orthogonal index: one axis after the other, the last one first."""
    for axis in reversed(range(len(key))):
        entry = key[axis]
        if isinstance(entry, list):
            entry = np.array(entry, dtype=bool if entry and type(entry[0]) is bool else None)
            entry = entry if entry.size else np.zeros(0, int)
            if entry.dtype == object or entry.dtype.kind == "b":
                entry = entry.astype(bool)
        values = values[(slice(None),) * axis + (entry,)]
    return values


@fewer_examples(3)
@given(st.data())
def test_an_orthogonal_index_reads_and_writes_axis_by_axis(root: Path, data: st.DataObject) -> None:
    array, values = data.draw(twins(root))
    values = values.copy()
    for _ in range(4):
        key = tuple(data.draw(axis_entries(size)) for size in values.shape)
        given = key[: data.draw(st.integers(0, len(key)))] if data.draw(st.booleans()) else key
        expected = outer(values, given)
        scalar = values.ndim == len(given) and np.ndim(expected) == 0
        assert_same(array.oindex[given], expected[()] if scalar and not given else expected)
        chosen = np.asarray(outer(numbered(values), given))
        value = value_for(data, chosen.shape, values.dtype)
        array.oindex[given] = value
        put(values, chosen, value)
        assert_same(array[...], values[...])


def point_oracle(values: Values, key: tuple[Any, ...]) -> Any:
    """Axes of points first, then those of slices."""
    slices = [axis for axis, entry in enumerate(key) if isinstance(entry, slice)]
    arrays = [axis for axis in range(len(key)) if axis not in slices]
    moved = values.transpose(*arrays, *slices)
    given = [np.asarray(key[axis], dtype=np.int64) for axis in arrays]
    return moved[(*given, *(key[axis] for axis in slices))]


@fewer_examples(3)
@given(st.data())
def test_a_point_index_reads_and_writes_point_by_point(root: Path, data: st.DataObject) -> None:
    array, values = data.draw(twins(root))
    values = values.copy()
    full = data.draw(st.sampled_from([(), (3,), (2, 4), (0,), (1, 3)]))
    key = []
    for size in values.shape:
        kind = data.draw(st.sampled_from(["points", "points", "broadcast", "slice", "scalar"]))
        if kind == "slice" or (size == 0 and 0 not in full):
            key.append(data.draw(slices_of_step))
            continue
        shape = {"points": full, "broadcast": (1,) * len(full), "scalar": ()}[kind]
        if size == 0:
            shape = full
        count = int(np.prod(shape, dtype=int))
        found = data.draw(
            st.lists(st.integers(-size, max(size - 1, 0)), min_size=count, max_size=count)
        )
        key.append(np.array(found, "i8").reshape(shape))
    expected = point_oracle(values, tuple(key))
    assert_same(array.vindex[tuple(key)], expected)
    chosen = np.asarray(point_oracle(numbered(values), tuple(key)))
    value = value_for(data, chosen.shape, values.dtype)
    array.vindex[tuple(key)] = value
    put(values, chosen, value)
    assert_same(array[...], values[...])


@fewer_examples(3)
@given(st.data())
def test_a_mask_of_the_arrays_shape_reads_and_writes_where_it_is_true(
    root: Path, data: st.DataObject
) -> None:
    array, values = data.draw(twins(root))
    if not values.ndim:
        return
    values = values.copy()
    mask = random_values(values.shape, "bool", data.draw(st.integers(0, 2**31)))
    assert_same(array.vindex[mask], values[mask])
    new = random_values((int(mask.sum()),), "str" if values.dtype == object else values.dtype, 3)
    array.vindex[mask] = new
    values[mask] = new
    assert_same(array[...], values[...])


@pytest.fixture
def cube(tmp_path: Path) -> bedform.Array:
    store = bedform.create(tmp_path / "s.zarr", durability="process")
    array = store.create_array("cube", (4, 5, 6), "i4", layout=bedform.Regular((2, 2, 3)))
    array[...] = np.arange(120).reshape(4, 5, 6)
    return array


@pytest.mark.parametrize(
    "act",
    [
        lambda a: a[4],
        lambda a: a[0, -6],
        lambda a: a[0, 0, 0, 0],
        lambda a: a[..., ...],
        lambda a: a[[0, 4]],
        lambda a: a[[0, 1], [0, 1]],
        lambda a: a[None, [0, 1]],
        lambda a: a[np.array([True, False, True])],
        lambda a: a[np.zeros((4, 5), bool)],
        lambda a: a[1.0],
        lambda a: a["t"],
        lambda a: a.oindex[[0, 4]],
        lambda a: a.oindex[[[0, 1]]],
        lambda a: a.oindex[[0.5]],
        lambda a: a.oindex[None],
        lambda a: a.oindex[:, [True, False]],
        lambda a: a.oindex[0, 0, 0, 0],
        lambda a: a.oindex[np.array([2**64 - 1], "u8")],
        lambda a: a.vindex[[0], [5], [0]],
        lambda a: a.vindex[[0, 1], [0, 1, 2], [0]],
        lambda a: a.vindex[np.zeros((4, 5), bool)],
        lambda a: a.vindex[None, 0, 0],
        lambda a: a.vindex[np.array([2**63], "u8"), [0], [0]],
        lambda a: a.read(np.s_[9]),
        lambda a: a.explain(np.s_[9]),
    ],
)
def test_an_index_that_does_not_fit_is_an_index_error(cube: bedform.Array, act: Any) -> None:
    with pytest.raises(IndexError) as caught:
        act(cube)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "shape"), [(np.s_[0], (3,)), (np.s_[:, 0], (6, 4)), (np.s_[...], (5, 5, 6))]
)
def test_values_that_do_not_broadcast_are_refused_and_nothing_is_written(
    cube: bedform.Array, key: Any, shape: tuple[int, ...]
) -> None:
    before = cube[...]
    with pytest.raises(ValueError, match="cannot be broadcast"):
        cube[key] = np.zeros(shape)
    assert_same(cube[...], before)


def test_out_must_be_what_the_selection_gives(cube: bedform.Array) -> None:
    for out in (
        np.empty((5, 6), "f4"),
        np.empty((6, 5), "i4"),
        np.empty((5, 6), ">i4"),
        np.empty((6, 5), "i4").T,
        np.empty((5, 12), "i4")[:, ::2],
    ):
        with pytest.raises(bedform.InvalidArgumentError, match="out"):
            cube.read(0, out=out)
    frozen = np.empty((5, 6), "i4")
    frozen.flags.writeable = False
    with pytest.raises(bedform.InvalidArgumentError, match="writable"):
        cube.read(0, out=frozen)
    larger = np.full((3, 5, 6), -1, "i4")
    cube.read(2, out=larger[1])
    assert_same(larger[1], np.arange(60, 90, dtype="i4").reshape(5, 6))
    assert (larger[[0, 2]] == -1).all()


def test_an_array_behaves_as_a_sequence_of_its_first_axis(cube: bedform.Array) -> None:
    assert len(cube) == 4
    for at, plane in enumerate(cube):
        assert_same(plane, cube[at])
    assert_same(np.asarray(cube), cube[...])
    assert_same(np.asarray(cube, dtype="f8"), cube[...].astype("f8"))
    with pytest.raises(ValueError, match="copy"):
        np.array(cube, copy=False)


FAR = [2**63, 2**64, 2**70, -(2**63) - 1, -(2**70)]


@pytest.mark.parametrize("at", FAR)
def test_positions_beyond_64_bits_are_out_of_bounds_of_their_axis(
    cube: bedform.Array, at: int
) -> None:
    store = cube.store
    ones = np.ones((4, 1, 6), "i4")

    def in_session(act: Any) -> None:
        with store.session() as session:
            act(session)

    calls: list[Any] = [
        lambda: cube[:, at],
        lambda: cube[:, [0, at]],
        lambda: cube.read(np.s_[:, at]),
        lambda: cube.explain(np.s_[:, at]),
        lambda: cube.workload(np.s_[:, at]),
        lambda: cube.prefetch(np.s_[:, at]),
        lambda: cube.read_union([np.s_[:, at]]),
        lambda: cube.oindex[:, [at]],
        lambda: cube.vindex[[0], [at], [0]],
        lambda: cube.__setitem__(np.s_[:, at], 0),
        lambda: next(cube.iter_chunks(np.s_[:, at])),
        lambda: in_session(lambda session: session.write_at("cube", np.s_[:, at], ones[:, 0])),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(bedform.OutOfBoundsError) as caught:
            call()
        assert f"index {at} is out of bounds for axis 1 of size 5" in str(caught.value), number
    with pytest.raises(bedform.InvalidArgumentError, match="starts and shapes of boxes must"):
        in_session(lambda session: session.declare([[0, at, 0]], [[4, 1, 6]]))
    with pytest.raises(bedform.InvalidArgumentError, match=r"the start in cube must .* for axis 1"):
        in_session(lambda session: session.write("cube", ones, start=(0, at, 0)))


@pytest.mark.parametrize("at", FAR)
def test_slices_beyond_64_bits_and_negative_ones_end_where_numpys_do(
    cube: bedform.Array, at: int
) -> None:
    values = np.arange(120, dtype="i4").reshape(4, 5, 6)
    for part in (slice(at), slice(at, None), slice(-at, at), slice(-3, at), slice(None, None, at)):
        assert_same(cube[:, part], values[:, part])
        assert_same(cube.oindex[:, part], values[:, part])
        assert cube.explain(np.s_[:, part]).to_dict()["result_bytes"] == values[:, part].nbytes
        cube[:, part] = values[:, part]
    assert_same(cube[...], values)


def test_selections_larger_than_memory_are_told_to_be_read_in_parts(tmp_path: Path) -> None:
    store = bedform.create(tmp_path / "s.zarr", durability="process")
    array = store.create_array("a", (2**40, 2**20), "i1", chunks=(1024, 1024))
    calls: list[Any] = [
        lambda: array[...],
        lambda: array[:, 5:],
        lambda: array.oindex[:],
        lambda: array.vindex[:],
        lambda: array.read_union([np.s_[:], np.s_[:], np.s_[:], np.s_[:], np.s_[:], np.s_[:]]),
        lambda: array.__setitem__(Ellipsis, 1),
    ]
    for call in calls:
        with pytest.raises(bedform.LimitExceededError) as caught:
            call()
        assert len(str(caught.value).splitlines()) == 1
    assert array[-2:, -1].tolist() == [0, 0]
    assert next(array.iter_chunks()) == (slice(0, 1024, 1), slice(0, 1024, 1))


def test_clients_of_a_workload_are_counted_in_whole_numbers(cube: bedform.Array) -> None:
    for clients in (0, -1, 1.5, "2", 2**70):
        with pytest.raises(bedform.InvalidArgumentError, match="clients must"):
            cube.workload(clients=clients)
    with pytest.raises(bedform.LimitExceededError, match="clients: simulated are between"):
        cube.workload(clients=2**40)
