"""Arrays piece by piece: lists in brackets, blocks, chunks, unions, buffers, other types."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import h5py
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import given
from support import fewer_examples

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(6 * 7 * 8, dtype="i4").reshape(6, 7, 8)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[bf.Array, Any, Any]:
    """The same elements in a store, as zarr-python sees it, and in a file of HDF5."""
    place = tmp_path_factory.mktemp("pieces")
    store = bf.create(place / "s.zarr")
    ours = store.create_array("t", data=VALUES, layout=bf.Regular((2, 3, 4), (4, 6, 8)))
    file = h5py.File(place / "x.h5", "w")
    file.create_dataset("t", data=VALUES, chunks=(2, 3, 4))
    file.close()
    plain = zarr.open_array(place / "s.zarr", path="t", mode="r")
    return ours, plain, h5py.File(place / "x.h5", "r")["t"]


LISTS = [
    np.s_[[0, 2, 5]],
    np.s_[:, [1, 3]],
    np.s_[2, :, [0, 7]],
    np.s_[1:5, [2], 3],
    np.s_[..., [1, 2]],
    np.s_[[4]],
    np.s_[np.array([True, False, True, False, False, True])],
    np.s_[:, np.array([False] * 6 + [True]), 2:4],
]


@pytest.mark.parametrize("key", LISTS, ids=str)
def test_one_list_in_brackets_selects_what_h5py_and_zarr_python_do(
    arrays: tuple[bf.Array, Any, Any], key: Any
) -> None:
    ours, plain, file = arrays
    found = ours[key]
    assert np.array_equal(found, file[key])
    assert np.array_equal(found, plain.oindex[key])
    assert np.array_equal(bf.open(file.file.filename)["t"][key], found)


def test_a_mask_of_the_whole_shape_selects_what_numpy_does(
    arrays: tuple[bf.Array, Any, Any],
) -> None:
    ours, plain, file = arrays
    mask = VALUES % 5 == 0
    assert np.array_equal(ours[mask], VALUES[mask])
    assert np.array_equal(ours[mask], file[mask])
    assert np.array_equal(ours[mask], plain[mask])


def test_lists_and_masks_in_brackets_are_written(tmp_path: Path) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array("t", data=VALUES)
    expected = VALUES.copy()
    for key, value in (([0, 3], 7), (np.s_[:, [6, 2]], 8), (VALUES % 7 == 0, 9), ([5, 1], -1)):
        array[key] = value
        expected[key] = value
    assert np.array_equal(array[...], expected)


def test_two_lists_in_brackets_are_refused_with_both_ways(arrays: Any) -> None:
    with pytest.raises(IndexError, match=r"one list of positions: \.oindex .*, \.vindex points"):
        arrays[0][[0, 1], [0, 1]]


def test_iteration_gives_rows_and_reads_many_at_once(arrays: Any) -> None:
    ours = bf.open(arrays[0].store.store_path, cache=0)["t"]
    reads = []
    read = ours._read
    ours._read = lambda *arguments: reads.append(1) or read(*arguments)
    for row, expected in zip(ours, VALUES, strict=True):
        assert np.array_equal(row, expected)
    assert len(reads) == 1


def test_blocks_are_chunks_by_their_place_in_the_grid(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    array = store.create_array("t", data=VALUES, chunks=(2, 3, 4))
    peer = zarr.create_array(tmp_path / "peer.zarr", data=VALUES, chunks=(2, 3, 4))
    keys: tuple[Any, ...] = ((0, 0, 0), (2, 2, 1), (-1, -1, -1), np.s_[1], np.s_[:, 1:3], ...)
    for key in keys:
        assert np.array_equal(array.blocks[key], peer.blocks[key])
    assert array.blocks.shape == peer.cdata_shape == array.cdata_shape == (3, 3, 2)
    assert array.nchunks == peer.nchunks == 18
    array.blocks[1, 0, 1] = 5
    peer.blocks[1, 0, 1] = 5
    assert np.array_equal(array[...], peer[...])
    with pytest.raises(IndexError, match="axis 0 of size 3, counted in chunks"):
        array.blocks[3, 0, 0]
    with pytest.raises(IndexError, match="no steps"):
        array.blocks[::2]


@pytest.mark.parametrize(
    "part", [None, np.s_[1:5, 0:7, 3:8], np.s_[0:6, 2:3, 0:8], np.s_[4:6, 6:7, 1:2]]
)
def test_chunks_are_iterated_as_h5py_does(arrays: Any, part: Any) -> None:
    ours, _, file = arrays
    found = list(ours.iter_chunks(... if part is None else part))
    assert found == list(file.iter_chunks(part))
    assert found == list(
        bf.open(file.file.filename)["t"].iter_chunks(... if part is None else part)
    )


@pytest.mark.parametrize("part", [np.s_[...], np.s_[1:5, :, 3:8], np.s_[3, 0:0], np.s_[2, -1]])
def test_chunks_and_shards_of_a_part_cover_it_once(arrays: Any, part: Any) -> None:
    counts = np.zeros_like(VALUES)
    for box in itertools.chain(arrays[0].iter_chunks(part), arrays[0].iter_shards(part)):
        counts[box] += 1
    wanted = np.zeros_like(VALUES)
    wanted[part] = 2
    assert np.array_equal(counts, wanted)


def test_shards_of_an_array_cover_it_once(arrays: Any) -> None:
    ours = arrays[0]
    assert [tuple(part.start for part in box) for box in ours.iter_shards()] == [
        (0, 0, 0),
        (0, 6, 0),
        (4, 0, 0),
        (4, 6, 0),
    ]


def test_reads_into_a_part_of_a_buffer_as_in_h5py(arrays: Any) -> None:
    ours, _, file = arrays
    cases: list[tuple[str, Any, Any]] = [
        ("i4", np.s_[0, 0], np.s_[:8]),
        ("i4", np.s_[2, :, 3], np.s_[10:17]),
        ("f8", np.s_[1, 1, 2:6], np.s_[0:8:2]),
        ("i8", np.s_[5, 6], np.s_[40:48]),
    ]
    for dtype, source, target in cases:
        mine, theirs = np.zeros(56, dtype), np.zeros(56, dtype)
        ours.read_direct(mine, source, target)
        file.read_direct(theirs, source, target)
        assert np.array_equal(mine, theirs)
    whole = np.zeros(VALUES.shape, "i4")
    ours.read_direct(whole)
    assert np.array_equal(whole, VALUES)
    with pytest.raises(bf.InvalidArgumentError, match="which bool loses"):
        ours.read_direct(np.zeros(VALUES.shape, bool))


def test_writes_of_a_part_of_a_buffer_as_in_h5py(tmp_path: Path) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array("t", data=np.zeros((3, 8)))
    array.write_direct(np.arange(10.0), np.s_[2:10], np.s_[1])
    assert array[1].tolist() == list(range(2, 10))


def test_what_is_read_is_converted_to_another_type(arrays: Any) -> None:
    ours, _, file = arrays
    as_floats = ours.astype("f8")
    for key in (..., 0, np.s_[1, 2, 3], np.s_[:, [1, 2]]):
        assert np.array_equal(as_floats[key], file.astype("f8")[key])
        assert as_floats[key].dtype == np.float64
    assert (as_floats.shape, as_floats.ndim, len(as_floats)) == ((6, 7, 8), 3, 6)
    assert np.asarray(as_floats).dtype == np.float64


starts = st.tuples(*(st.integers(0, size - 1) for size in VALUES.shape))
lengths = st.tuples(*(st.integers(0, 5) for _ in VALUES.shape))


@fewer_examples(3)
@given(st.lists(st.tuples(starts, lengths), max_size=6))
def test_a_union_of_boxes_gives_the_elements_of_each(arrays: Any, wanted: Any) -> None:
    boxes = [
        tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True)) for start, shape in wanted
    ]
    found = arrays[0].read_union(boxes)
    assert len(found) == len(boxes)
    for part, box in zip(found, boxes, strict=True):
        assert np.array_equal(part, VALUES[box])


def test_a_union_reads_each_chunk_once_and_drops_axes_of_integers(arrays: Any) -> None:
    cold = bf.open(arrays[0].store.store_path, cache=0)["t"]
    first, second = cold.read_union([np.s_[0, 1], np.s_[1, 2, 4:]])
    assert np.array_equal(first, VALUES[0, 1])
    assert np.array_equal(second, VALUES[1, 2, 4:])
    assert cold._last[1][3] == 2
    file = bf.open(arrays[2].file.filename)["t"]
    assert np.array_equal(file.read_union([np.s_[5, 6]])[0], VALUES[5, 6])
    texts = bf.open(arrays[0].store.store_path, "r+").create_array("u", data=list("abcd"))
    assert [part.tolist() for part in texts.read_union([np.s_[1:3], np.s_[3]])] == [["b", "c"], "d"]
    with pytest.raises(IndexError, match="selection 1 of a union has steps"):
        cold.read_union([np.s_[0], np.s_[::2]])
