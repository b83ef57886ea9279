"""New arrays with the arguments of Bedform, h5py and zarr-python, and with data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(60, dtype="f4").reshape(5, 12)


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    return bf.create(tmp_path / "s.zarr")


def theirs(array: bf.Array) -> zarr.Array[Any]:
    """The array as zarr-python reads it."""
    return zarr.open_array(array.store.store_path, path=array.path, mode="r")


def test_the_data_say_what_the_caller_leaves_open(store: bf.Store) -> None:
    for name, data, dtype in (
        ("floats", VALUES, "f4"),
        ("big", VALUES.astype(">f8"), "f8"),
        ("list", [[1, 2], [3, 4]], "i8"),
        ("flags", [True, False], "?"),
        ("bytes", np.array([b"ab", b"c"]), "S2"),
        ("scalar", 2.5, "f8"),
        ("none", np.zeros((0, 3), "i2"), "i2"),
        ("complex", np.array([1 + 2j], "c8"), "c8"),
    ):
        array = store.create_array(name, data=data)
        expected = np.asarray(data)
        assert (array.dtype, array.shape) == (np.dtype(dtype), expected.shape), name
        assert np.array_equal(array[...], expected), name
        assert np.array_equal(theirs(array)[...], expected), name
    assert store.create_array("texts", data=["x", "yz"])[...].tolist() == ["x", "yz"]
    assert store.create_array("as", data=VALUES, dtype="i2", dims=("y", "x"))[1, 1] == 13
    assert store.create_array("flat", shape=60, data=VALUES)[13] == 13
    with pytest.raises(bf.InvalidArgumentError, match=r"array 'q': data of shape .* do not fit"):
        store.create_array("q", shape=(7,), data=VALUES)


def test_data_that_are_read_by_pieces_are_never_in_memory_as_a_whole(store: bf.Store) -> None:
    class Lazy:
        shape, dtype = (64, 8), np.dtype("f4")
        largest = 0

        def __getitem__(self, key: Any) -> Any:
            part = np.arange(512, dtype="f4").reshape(64, 8)[key]
            Lazy.largest = max(Lazy.largest, part.size)
            return part

    layout = bf.Regular((4, 8), (16, 8))
    array = store.create_array("lazy", data=Lazy(), layout=layout)
    assert array[...].reshape(-1).tolist() == list(range(512))
    assert Lazy.largest == 128


def test_an_array_of_xarray_brings_its_dimensions_and_attributes(store: bf.Store) -> None:
    store["t"] = xr.DataArray(VALUES, dims=("time", "x"), attrs={"units": "K"})
    assert store["t"].dims == ("time", "x")
    assert store["t"].attributes == {"units": "K"}
    assert np.array_equal(store["t"][...], VALUES)
    with pytest.raises(bf.WrongTypeError, match=r"written with bf.write_dataset"):
        store["d"] = xr.Dataset({"t": ("x", [1])})
    with pytest.raises(bf.InvalidArgumentError, match=r"bf.write_dataset"):
        store["times"] = xr.DataArray(np.array(["2001-01-01"], "M8[ns]"), dims="x")


def test_chunks_and_shards_are_the_short_form_of_a_layout(store: bf.Store) -> None:
    array = store.create_array("a", (20, 30), "f4", chunks=(4, 5), shards=(8, 10))
    assert (array.chunks, array.shards) == ((4, 5), (8, 10))
    assert store.create_array("b", (20, 30), "f4", chunks=6).chunks == (6, 6)
    auto = store.create_array("c", (20, 30), "f4").chunks
    assert store.create_array("d", (20, 30), "f4", chunks="auto", shards="auto").chunks == auto
    assert store.create_array("e", data=np.zeros(8), chunks=2).chunks == (2,)
    for wrong, said in (
        ({"shards": (4, 5)}, "shards come with chunks"),
        ({"chunks": 2, "layout": bf.Regular((2, 2))}, "layout says chunks and shards"),
        ({"chunks": 0}, "chunks must be at least 1"),
        ({"chunks": (2, 2), "shards": (3, 3)}, "does not divide the shard"),
    ):
        with pytest.raises(bf.InvalidArgumentError, match=said):
            store.create_array("q", (20, 30), "f4", **wrong)


@pytest.mark.parametrize(
    ("words", "codecs"),
    [
        ({}, ["zstd"]),
        ({"compression": None}, ["zstd"]),
        ({"compression": "gzip"}, ["gzip"]),
        ({"compression": "gzip", "compression_opts": 9}, ["gzip"]),
        ({"compression": 3}, ["gzip"]),
        ({"compression": True}, ["zstd"]),
        ({"compression": "gzip", "shuffle": True, "fletcher32": True}, ["blosc"]),
        ({"shuffle": True}, ["blosc"]),
        ({"fillvalue": -1, "maxshape": (None, 12), "chunks": True}, ["zstd"]),
        ({"track_times": False, "track_order": True, "chunks": (2, 3)}, ["zstd"]),
    ],
)
def test_words_of_h5py_make_the_arrays_that_they_ask_for(
    store: bf.Store, tmp_path: Path, words: dict[str, Any], codecs: list[str]
) -> None:
    ours = store.create_dataset("t", data=VALUES, **words)
    with h5py.File(tmp_path / "peer.h5", "w") as file:
        h5py_words = {**words, "compression": "gzip"} if words.get("compression") is True else words
        peer = file.create_dataset("t", data=VALUES, **h5py_words)
        assert np.array_equal(ours[...], peer[...])
        assert (ours.shape, ours.dtype, ours.fillvalue) == (peer.shape, peer.dtype, peer.fillvalue)
    assert [codec["name"] for codec in ours.compressors] == codecs
    assert ours.compression == codecs[0]
    assert np.array_equal(theirs(ours)[...], VALUES)
    if "compression_opts" in words:
        assert ours.compressors[0]["configuration"]["level"] == 9


def test_a_data_set_without_data_is_of_float32_as_in_h5py(store: bf.Store) -> None:
    t = store.create_dataset("t", (3,), maxshape=(None,))
    assert t.dtype == np.float32
    assert t.maxshape == (None,)
    t.resize(5, axis=0)
    t.resize((6,))
    assert t.shape == (6,)
    assert store.create_dataset("text", (2,), dtype=h5py.string_dtype()).dtype == object


@pytest.mark.parametrize(
    ("words", "codecs"),
    [
        ({"compressors": "auto"}, ["zstd"]),
        ({"compressors": None}, []),
        ({"compressors": ()}, []),
        ({"compressors": zarr.codecs.GzipCodec(level=2)}, ["gzip"]),
        ({"compressors": [zarr.codecs.BloscCodec(cname="lz4")]}, ["blosc"]),
        ({"compressor": numcodecs.Zstd(level=1)}, ["zstd"]),
        ({"compressors": {"name": "gzip", "configuration": {"level": 1}}}, ["gzip"]),
        ({"filters": None, "serializer": "auto", "order": "C", "zarr_format": 3}, ["zstd"]),
        ({"dimension_names": ("y", "x"), "fill_value": 4, "config": None}, ["zstd"]),
    ],
)
def test_words_of_zarr_python_make_the_arrays_that_they_ask_for(
    store: bf.Store, words: dict[str, Any], codecs: list[str]
) -> None:
    ours = store.create_array(name="t", shape=(5, 12), dtype="f4", chunks=(5, 4), **words)
    ours[...] = VALUES
    assert [codec["name"] for codec in ours.compressors] == codecs
    peer = theirs(ours)
    assert np.array_equal(peer[...], VALUES)
    assert ours.fill_value == peer.fill_value == words.get("fill_value", 0)
    assert ours.dimension_names == peer.metadata.dimension_names == words.get("dimension_names")
    assert (ours.nbytes, ours.nchunks, ours.size) == (peer.nbytes, 3, peer.size)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"compression": "lzf"}, "compression='lzf' has no counterpart: leave it out"),
        ({"compression": "szip"}, "compression='szip' has no counterpart"),
        ({"compression": 32001}, r"filters of HDF5 by number \(32001\)"),
        ({"compression_opts": 4}, "give compression='gzip'"),
        ({"compression": "gzip", "codecs": ["zstd"]}, "codecs and compression exclude each other"),
        ({"compressors": "auto", "shuffle": True}, "compressors and shuffle exclude each other"),
        ({"scaleoffset": 2}, "scaleoffset=2 has no counterpart: it loses digits"),
        ({"maxshape": (2, 2)}, "is less than shape"),
        ({"maxshape": (None,)}, "has not the axes of shape"),
        ({"external": [("raw", 0, 10)]}, "external=.* elements lie in the store"),
        ({"track_times": True}, "no times are kept"),
        ({"order": "F"}, "order='F' has no counterpart: elements come in C order"),
        ({"zarr_format": 2}, "arrays are of Zarr v3"),
        ({"filters": [{"name": "delta", "configuration": {}}]}, "the filter 'delta'"),
        ({"compressors": "lz4"}, "the compressor 'lz4' is not supported"),
        ({"dims": ("y", "x"), "dimension_names": ("a", "b")}, "dims and dimension_names are the"),
        ({"fillvalu": 3}, "no argument 'fillvalu' of a new array: did you mean 'fillvalue'"),
        ({"nonsense": 3}, "there is no argument 'nonsense'"),
    ],
)
def test_words_without_a_counterpart_are_refused_and_nothing_is_created(
    store: bf.Store, words: dict[str, Any], said: str
) -> None:
    for create in (store.create_array, store.create_dataset):
        with pytest.raises(bf.BedformError, match=f"^array 't': .*{said}"):
            create("t", shape=(5, 12), dtype="f4", **words)
    assert len(store) == 0


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (h5py.vlen_dtype(np.int32), "arrays of lists are not supported"),
        (h5py.enum_dtype({"a": 1}), "enumerations are not supported"),
        (h5py.ref_dtype, "references are not supported"),
        ("M8[s]", r"datetime64\[s\] are not supported.*bf.write_dataset"),
        ([("a", "i4")], "are not supported"),
    ],
)
def test_types_that_would_become_others_in_silence_are_refused(
    store: bf.Store, dtype: Any, said: str
) -> None:
    with pytest.raises(bf.BedformError, match=said):
        store.create_dataset("t", (2,), dtype=dtype)


def test_required_arrays_are_made_once_and_must_fit(store: bf.Store) -> None:
    for require in (store.require_array, store.require_dataset):
        name = require.__name__
        require(name, (4,), "f8", fill_value=2)[0] = 1
        assert require(name, (4,), "f8")[:2].tolist() == [1, 2]
        assert require(name, (4,), "f4").dtype == np.float64
        for arguments in (((5,), "f8"), ((4,), "c16"), ((4,), "f4", True)):
            with pytest.raises(TypeError, match=f"'{name}' has"):
                require(name, *arguments)
    store.create_group("g")
    with pytest.raises(TypeError, match=r"'g' in .* is a group, not an array"):
        store.require_dataset("g", (4,), "f8")


def test_filled_arrays_hold_one_value_and_nothing_is_stored(store: bf.Store) -> None:
    assert store.zeros("zeros", shape=(2, 3))[...].tolist() == np.zeros((2, 3)).tolist()
    assert store.ones("ones", shape=(2,), dtype="i4")[...].tolist() == [1, 1]
    assert store.full("full", shape=3, fill_value=7.5)[...].tolist() == [7.5] * 3
    assert store.empty("empty", shape=(0, 4), dtype="i2").shape == (0, 4)
    assert store["full"].stored_objects()[0] == 0
    like = np.zeros((2, 2), "i2")
    assert store.ones_like("ones_like", like)[...].tolist() == [[1, 1], [1, 1]]
    assert store.full_like("full_like", like, 3).dtype == np.int16
    source = store.create_array(
        "a", (4, 4), "f8", ("y", "x"), chunks=2, codecs=["gzip"], attributes={"units": "K"}
    )
    source[...] = 5
    for array in (
        store.zeros_like("b", source),
        store.empty_like("c", source, chunks=4),
        store.zeros_like("d", source, compressors=None),
    ):
        assert array[...].tolist() == np.zeros((4, 4)).tolist()
        assert (array.dims, array.attributes) == (("y", "x"), {})
    assert (store["b"].chunks, store["c"].chunks) == ((2, 2), (4, 4))
    assert (store["b"].compression, store["d"].compression) == ("gzip", None)


def test_overwriting_replaces_what_has_the_name(store: bf.Store) -> None:
    store["t"] = np.zeros(3)
    store.create_array("t", data=[1, 2], overwrite=True)
    assert store["t"][...].tolist() == [1, 2]
    with pytest.raises(FileExistsError):
        store.create_array("t", data=[1, 2])


def test_many_arrays_take_the_same_words(store: bf.Store) -> None:
    new = {"shape": (4,), "dtype": "f4", "dimension_names": ("x",), "compression": "gzip"}
    store.create_arrays({"a": new, "b": {**new, "chunks": 2}})
    assert (store["a"].dims, store["b"].chunks) == (("x",), (2,))
    with pytest.raises(bf.InvalidArgumentError, match="array 'c': data and overwrite"):
        store.create_arrays({"c": {"data": [1]}})


def test_variables_of_files_are_copied_by_convert_alone(store: bf.Store, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["t"] = VALUES
        file.create_group("g")
    opened = bf.open(tmp_path / "x.h5")
    for act in (
        lambda: store.__setitem__("t", opened["t"]),
        lambda: store.copy(opened["t"], "t"),
        lambda: store.copy(opened["g"], "g"),
    ):
        with pytest.raises(bf.InvalidArgumentError, match=r"bf.convert copies"):
            act()
    assert len(store) == 0
