"""Our stores are read by zarr-python, TensorStore and zarrs; theirs by us; mixed ones by all."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorstore
import xarray as xr
import zarr
import zarr.codecs
from engine import CODECS, NUMBERS, ORDERS, assert_same, layouts, random_values, shapes
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples
from zarr.core.chunk_key_encodings import ChunkKeyEncodingParams

import bedform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# zarr-python warns of its own types and of consolidated metadata, which is irrelevant here.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


# Readers ------------------------------------------------------------------------------------------


def read_zarr(path: Path, name: str) -> Any:
    return zarr.open_group(path, mode="r")[name][...]


def read_zarrs(path: Path, name: str) -> Any:
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return zarr.open_group(path, mode="r")[name][...]


def read_tensorstore(path: Path, name: str, driver: str = "zarr3") -> Any:
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path / name)}}
    return np.asarray(tensorstore.open(spec, open=True).result().read().result())


READERS: dict[str, Callable[[Path, str], Any]] = {
    "zarr-python": read_zarr,
    "zarrs": read_zarrs,
    "tensorstore": read_tensorstore,
}


def check_readers(path: Path, name: str, expected: Any, without: tuple[str, ...] = ()) -> None:
    for reader, read in READERS.items():
        if reader in without:
            continue
        found = np.asarray(read(path, name))
        if found.dtype.kind in "OT":
            assert found.astype(object).tolist() == expected.tolist(), reader
        else:
            assert_same(found, np.asarray(expected).astype(found.dtype, copy=False))
            assert found.dtype == expected.dtype, reader
    assert_same(bedform.open(path)[name][...], np.asarray(expected))


# Ours, read by them -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_our_arrays_of_every_type_and_codec_are_read_by_all(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "s.zarr"
    store = bedform.create(path, durability="process")
    values = random_values((7, 10), dtype, 1)
    for number, codecs in enumerate(CODECS):
        layout = bedform.Regular((3, 4), (6, 8), order=ORDERS[number])  # type: ignore[arg-type]
        array = store.create_array(f"a{number}", values.shape, dtype, layout=layout, codecs=codecs)
        array[...] = values
        check_readers(path, f"a{number}", values)


@pytest.mark.parametrize("compressor", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
def test_every_compressor_of_blosc_is_read_by_all(
    tmp_path: Path, compressor: str, shuffle: str
) -> None:
    path = tmp_path / "s.zarr"
    configuration = {
        "cname": compressor,
        "clevel": 5,
        "shuffle": shuffle,
        "typesize": 4,
        "blocksize": 0,
    }
    values = np.arange(4000, dtype="i4").reshape(40, 100) // 7
    array = bedform.create(path, durability="process").create_array(
        "a",
        values.shape,
        "i4",
        layout=bedform.Regular((20, 50), (40, 50)),
        codecs=[{"name": "blosc", "configuration": configuration}],
    )
    array[...] = values
    check_readers(path, "a", values)


# The three libraries are slow.
@fewer_examples(3)
@given(st.data())
def test_our_arrays_of_any_shape_and_fill_are_read_by_all(
    tmp_path: Path, data: st.DataObject
) -> None:
    number = next(_numbers)
    path = tmp_path / f"{number}.zarr"
    shape = data.draw(shapes)
    fill = data.draw(st.sampled_from([None, 0, 1.5, np.nan, -np.inf]))
    array = bedform.create(path, durability="process").create_array(
        "a",
        shape,
        "f4",
        layout=data.draw(layouts(len(shape))),
        codecs=data.draw(st.sampled_from(CODECS)),
        checksum=data.draw(st.booleans()),
        fill_value=fill,
    )
    expected = np.full(shape, fill or 0, "f4")
    for _ in range(data.draw(st.integers(0, 3))):
        key = tuple(
            slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))))
            for n in shape
        )
        new = random_values(expected[key].shape, "float32", data.draw(st.integers(0, 99)))
        array[key] = new
        expected[key] = new
    check_readers(path, "a", expected)


_numbers = itertools.count()


def test_our_text_is_read_by_zarr_python_and_zarrs(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    store = bedform.create(path, durability="process")
    words = random_values((9, 5), "str", 3)
    for number, codecs in enumerate(CODECS[:3]):
        layout = bedform.Regular((2, 3), (4, 6))
        array = store.create_array(f"t{number}", (9, 7), "str", layout=layout, codecs=codecs)
        array[:, :5] = words
        expected = np.full((9, 7), "", object)
        expected[:, :5] = words
        check_readers(path, f"t{number}", expected, without=("tensorstore",))


def test_numbers_in_attributes_that_json_lacks_are_numbers_for_zarr_python_and_xarray(
    tmp_path: Path,
) -> None:
    given = {
        "nan": np.nan,
        "single": np.float32("inf"),
        "range": np.array([-np.inf, 1.5, np.inf]),
        "inner": {"values": [np.nan, "NaN"], "word": "Infinity"},
    }
    expected = {
        "nan": np.nan,
        "single": np.inf,
        "range": [-np.inf, 1.5, np.inf],
        "inner": {"values": [np.nan, "NaN"], "word": "Infinity"},
    }
    ours = bedform.create(tmp_path / "ours.zarr", attributes=given)
    ours.create_array("a", (3,), "f8", ("x",), attributes=given, fill_value=np.nan)
    ours.create_group("g")
    ours.set_attributes(given, "g")
    theirs = zarr.open_group(tmp_path / "theirs.zarr", mode="w", attributes=expected)
    theirs.create_array("a", shape=(3,), chunks=(3,), dtype="f8", attributes=expected)
    # Rewriting a document of another program keeps the numbers, too.
    bedform.open(tmp_path / "theirs.zarr", mode="r+")["a"].resize((4,))
    for name, paths in {"ours": ["", "a", "g"], "theirs": ["", "a"]}.items():
        read = zarr.open_group(tmp_path / f"{name}.zarr", mode="r")
        store = bedform.open(tmp_path / f"{name}.zarr")
        for path in paths:
            found = dict((read[path] if path else read).attrs)
            mine = (store[path] if path else store).attributes
            # Compared by repr, which distinguishes NaN from the word, and where NaN equals NaN.
            assert repr(found) == repr(mine) == repr(expected), (name, path)
    dataset = xr.open_dataset(tmp_path / "ours.zarr", engine="zarr", consolidated=True)
    assert repr(dataset.attrs) == repr(dataset["a"].attrs) == repr(expected)
    check_readers(tmp_path / "ours.zarr", "a", np.full(3, np.nan), without=("zarrs", "tensorstore"))


def test_our_groups_attributes_and_names_of_axes_are_found_by_zarr_python(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    store = bedform.create(path, {"title": "\u00fc"}, durability="process")
    store.create_group("a/b", {"level": [1, {"x": None}]})
    array = store.create_array(
        "a/b/t", (4, 5), "f8", ("time", "x"), attributes={"units": "K", "n": 3}
    )
    array[...] = 1
    store.create_array("named", (2, 2), "i4", (None, "x"))
    store.create_array("bare", (2,), "i4")
    for consolidated in (True, False):
        group = zarr.open_group(path, mode="r", use_consolidated=consolidated)
        found = dict(group.members(max_depth=None))
        assert sorted(found) == ["a", "a/b", "a/b/t", "bare", "named"]
        assert group.attrs.asdict() == {"title": "\u00fc"}
        assert found["a/b"].attrs.asdict() == {"level": [1, {"x": None}]}
        there = found["a/b/t"]
        assert there.attrs.asdict() == {"units": "K", "n": 3}
        assert there.metadata.dimension_names == ("time", "x")
        assert found["named"].metadata.dimension_names == (None, "x")
        assert found["bare"].metadata.dimension_names is None
        assert there.shape == (4, 5)
    # The consolidated metadata follow every change.
    array.append(np.zeros((3, 5)))
    array.attributes = {"units": "degC"}
    del store["named"]
    store.attributes = {"title": "new"}
    group = zarr.open_consolidated(path, mode="r")
    assert group["a/b/t"].shape == (7, 5)
    assert group["a/b/t"].attrs.asdict() == {"units": "degC"}
    assert "named" not in group
    assert group.attrs.asdict() == {"title": "new"}


# Theirs, read by us -------------------------------------------------------------------------------

BYTES = [zarr.codecs.BytesCodec(), zarr.codecs.BytesCodec(endian="big")]
COMPRESSORS: list[Any] = [
    None,
    zarr.codecs.ZstdCodec(level=1, checksum=True),
    zarr.codecs.GzipCodec(level=1),
    zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle"),
    (zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()),
]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("sharded", [False, True])
def test_we_read_what_zarr_python_writes(tmp_path: Path, dtype: str, sharded: bool) -> None:
    values = random_values((7, 9), dtype, 4)
    group = zarr.create_group(tmp_path / "z.zarr")
    for number, (serializer, compressor) in enumerate(itertools.product(BYTES, COMPRESSORS)):
        array = group.create_array(
            f"a{number}",
            shape=values.shape,
            dtype=dtype,
            chunks=(3, 2),
            shards=(6, 4) if sharded else None,
            serializer=serializer,
            compressors=compressor,
            filters=[zarr.codecs.TransposeCodec(order=(1, 0))] if number % 2 else None,
        )
        array[...] = values
    store = bedform.open(tmp_path / "z.zarr")
    for name in group:
        assert_same(store[name][...], values)
        assert_same(store[name][5:0:-2, 3], values[5:0:-2, 3])
        assert store[name].verify() == []


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("inner", [[], ["zstd"], ["gzip", "crc32c"]])
def test_we_read_every_kind_of_shard(
    tmp_path: Path, location: str, checked: bool, inner: list[str]
) -> None:
    named: dict[str, Any] = {
        "zstd": zarr.codecs.ZstdCodec(),
        "gzip": zarr.codecs.GzipCodec(),
        "crc32c": zarr.codecs.Crc32cCodec(),
    }
    index: list[Any] = [zarr.codecs.BytesCodec()]
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(2, 3),
        codecs=[zarr.codecs.BytesCodec(), *(named[name] for name in inner)],
        index_codecs=[*index, zarr.codecs.Crc32cCodec()] if checked else index,
        index_location=location,
    )
    values = random_values((9, 13), "float64", 5)
    array = zarr.create(
        store=tmp_path / "z.zarr",
        path="a",
        shape=values.shape,
        chunks=(4, 6),
        dtype="f8",
        codecs=[sharding],
        fill_value=-1.0,
        zarr_format=3,
    )
    array[:7] = values[:7]
    values[7:] = -1
    zarr.open_group(tmp_path / "z.zarr", mode="a")
    ours = bedform.open(tmp_path / "z.zarr", mode="r+")["a"]
    assert_same(ours[...], values)
    assert ours.verify() == []
    if location == "start":
        with pytest.raises(bedform.UnsupportedError, match="index at the start are only read"):
            ours[0] = 1
        assert_same(ours[...], values)
        return
    ours[5:, ::2] = 3.5
    values[5:, ::2] = 3.5
    assert_same(array[...], values)
    assert_same(ours[...], values)


@pytest.mark.parametrize("name", ["default", "v2"])
@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_we_read_every_name_of_chunks(tmp_path: Path, name: Any, separator: Any, rank: int) -> None:
    values = random_values((5,) * rank, "int16", 6)
    keys = ChunkKeyEncodingParams(name=name, separator=separator)
    group = zarr.create_group(tmp_path / "z.zarr")
    array = group.create_array(
        "a", shape=values.shape, dtype="i2", chunks=(2,) * rank, chunk_key_encoding=keys
    )
    array[...] = values
    ours = bedform.open(tmp_path / "z.zarr", mode="r+")["a"]
    assert_same(ours[...], values)
    if rank:
        ours.resize((7,) * rank)
        ours.resize((3,) * rank)
        assert_same(ours[...], values[(slice(3),) * rank])
        assert_same(zarr.open_array(tmp_path / "z.zarr/a")[...], values[(slice(3),) * rank])


def test_we_read_text_of_zarr_python(tmp_path: Path) -> None:
    words = random_values((5, 4), "str", 7)
    group = zarr.create_group(tmp_path / "z.zarr")
    for name, shards in (("plain", None), ("sharded", (4, 4))):
        array = group.create_array(
            name, shape=words.shape, dtype=str, chunks=(2, 2), shards=shards, fill_value="none"
        )
        array[:4] = words[:4]
    words[4:] = "none"
    for name in group:
        ours = bedform.open(tmp_path / "z.zarr", mode="r+")[name]
        assert_same(ours[...], words)
        ours[1, 1] = "\u00fcber"
        expected = words.copy()
        expected[1, 1] = "\u00fcber"
        assert group[name][...].tolist() == expected.tolist()


def test_we_read_nested_groups_with_and_without_consolidated_metadata(tmp_path: Path) -> None:
    path = tmp_path / "z.zarr"
    group = zarr.create_group(path, attributes={"title": "x"})
    inner = group.create_group("a/b", attributes={"level": 2})
    inner.create_array("t", data=np.arange(6), chunks=(2,), dimension_names=["x"])
    group.create_array("top", data=np.arange(3.0), chunks=(3,))

    def check() -> None:
        store = bedform.open(path)
        assert sorted(store.arrays()) == ["a/b/t", "top"]
        assert sorted(store.groups()) == ["a", "a/b"]
        assert store.attributes == {"title": "x"}
        assert store["a/b"].attributes == {"level": 2}
        assert store["a"]["b"]["t"][...].tolist() == list(range(6))
        assert store["a/b/t"].dims == ("x",)

    check()
    zarr.consolidate_metadata(path)
    check()
    # A single array can be opened, too.
    assert bedform.open(path / "top")[...].tolist() == [0, 1, 2]


TS_CODECS: list[list[dict[str, Any]]] = [
    [{"name": "bytes", "configuration": {"endian": "little"}}],
    [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}],
    [
        {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "gzip", "configuration": {"level": 3}},
    ],
    [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 3}},
    ],
]


@pytest.mark.parametrize("codecs", TS_CODECS)
@pytest.mark.parametrize("location", [None, "start", "end"])
def test_we_read_what_tensorstore_writes(tmp_path: Path, codecs: Any, location: Any) -> None:
    values = random_values((7, 6, 5), "float32", 8)
    chunk = [2, 3, 5]
    if location is not None:
        configuration = {
            "chunk_shape": chunk,
            "codecs": codecs,
            "index_location": location,
            "index_codecs": TS_CODECS[0] + [{"name": "crc32c"}],
        }
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        chunk = [4, 6, 5]
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(tmp_path / "z.zarr/a")},
        "metadata": {
            "shape": list(values.shape),
            "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": codecs,
            "fill_value": "NaN",
            "dimension_names": ["x", "", None],
        },
    }
    theirs = tensorstore.open(spec, create=True).result()
    theirs[:6].write(values[:6]).result()
    values[6] = np.nan
    ours = bedform.open(tmp_path / "z.zarr/a")
    assert_same(ours[...], values)
    assert ours.verify() == []


V2_COMPRESSORS = [
    None,
    {"id": "zlib", "level": 1},
    {"id": "gzip", "level": 1},
    {"id": "zstd", "level": 1},
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": -1},
]


@pytest.mark.parametrize("compressor", V2_COMPRESSORS, ids=str)
def test_we_read_stores_of_version_two(tmp_path: Path, compressor: Any) -> None:
    import numcodecs

    path = tmp_path / "z.zarr"
    group = zarr.create_group(path, zarr_format=2, attributes={"title": "x"})
    inner = group.create_group("g")
    codec = None if compressor is None else numcodecs.get_codec(dict(compressor))
    expected = {}
    kinds = [*NUMBERS, ">f4", ">i8", ">c16", "<U5", ">U3", "S4"]
    for number, dtype in enumerate(kinds):
        kind = np.dtype(dtype)
        if kind.kind in "US":
            values = np.array(["", "a", "bcd", "ef"] * 5).astype(kind).reshape(4, 5)
        else:
            values = random_values((4, 5), kind.newbyteorder("="), number).astype(kind)
        array = inner.create_array(
            f"a{number}",
            shape=values.shape,
            dtype=kind,
            chunks=(3, 2),
            compressors=codec,
            filters=[numcodecs.Shuffle(kind.itemsize)] if number % 3 == 0 else None,
            order="F" if number % 2 else "C",
            chunk_key_encoding=ChunkKeyEncodingParams(name="v2", separator="./"[number % 2]),
            attributes={"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"},
        )
        array[...] = values
        expected[f"g/a{number}"] = values

    def check() -> None:
        store = bedform.open(path)
        assert sorted(store.arrays()) == sorted(expected)
        assert store.attributes == {"title": "x"}
        for name, values in expected.items():
            ours = store[name]
            assert_same(ours[...], values.astype(values.dtype.newbyteorder("=")))
            assert ours.dims == ("y", "x")
            assert ours.attributes == {"units": "K"}
            assert ours.verify() == []

    check()
    zarr.consolidate_metadata(path)
    check()
    with pytest.raises(bedform.UnsupportedError, match="v2, which Bedform only reads"):
        bedform.open(path, mode="r+")


def test_we_read_missing_chunks_text_and_odd_fills_of_version_two(tmp_path: Path) -> None:
    path = tmp_path / "z.zarr"
    group = zarr.create_group(path, zarr_format=2)
    fills: dict[str, tuple[str, Any]] = {
        "nan": ("<f8", np.nan),
        "inf": (">f4", -np.inf),
        "null": ("<i4", None),
        "int": ("<i2", -7),
        "bool": ("|b1", True),
        "complex": ("<c8", 1 + 2j),
        "text": ("|S3", b"ab"),
    }
    for name, (dtype, fill) in fills.items():
        array = group.create_array(name, shape=(5,), dtype=dtype, chunks=(2,), fill_value=fill)
        array[:1] = np.zeros(1, dtype)
    words = group.create_array("words", shape=(3,), dtype=str, chunks=(2,))
    words[:2] = np.array(["\u00fc", "bb"], dtype=object)
    scalar = group.create_array("scalar", shape=(), dtype="f8")
    scalar[...] = 2.5
    store = bedform.open(path)
    for name, (dtype, fill) in fills.items():
        kind = np.dtype(dtype).newbyteorder("=")
        expected = np.full(5, 0 if fill is None else fill, kind)
        expected[:2] = np.zeros(1, kind) if name != "null" else 0
        found = store[name][...]
        assert_same(found[2:], expected[2:])
        assert_same(found[:1], expected[:1])
        assert_same(found, group[name][...].astype(kind))
    assert store["words"][...].tolist() == ["\u00fc", "bb", ""]
    assert store["scalar"][()] == 2.5


@pytest.mark.parametrize("separator", [".", "/"])
def test_we_read_version_two_of_tensorstore(tmp_path: Path, separator: str) -> None:
    values = random_values((7, 6), "uint16", 9)
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(tmp_path / "z.zarr")},
        "metadata": {
            "shape": [7, 6],
            "chunks": [3, 4],
            "dtype": ">u2",
            "order": "F",
            "compressor": {"id": "zlib", "level": 3},
            "dimension_separator": separator,
            "fill_value": 5,
        },
    }
    theirs = tensorstore.open(spec, create=True).result()
    theirs[:6].write(values[:6]).result()
    values[6] = 5
    assert_same(bedform.open(tmp_path / "z.zarr")[...], values)


# Ours into theirs ---------------------------------------------------------------------------------


@fewer_examples(5)
@given(st.data())
def test_what_we_write_into_their_arrays_they_read(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / f"{next(_numbers)}.zarr"
    group = zarr.create_group(path)
    dtype = data.draw(st.sampled_from(["int16", "float64", "complex64", "bool"]))
    values = random_values((7, 9), dtype, data.draw(st.integers(0, 99)))
    options: dict[str, Any] = {
        "serializer": data.draw(st.sampled_from(BYTES)),
        "compressors": data.draw(st.sampled_from(COMPRESSORS)),
        "filters": data.draw(st.sampled_from([None, [zarr.codecs.TransposeCodec(order=(1, 0))]])),
        "chunk_key_encoding": data.draw(
            st.sampled_from([{"name": "default"}, {"name": "v2", "separator": "."}])
        ),
        "fill_value": data.draw(st.sampled_from([0, 1])),
    }
    array = group.create_array(
        "a",
        shape=values.shape,
        dtype=dtype,
        chunks=(2, 3),
        shards=data.draw(st.sampled_from([None, (4, 6)])),
        **options,
    )
    array[...] = values
    ours = bedform.open(path, mode="r+", durability="process")["a"]
    for _ in range(4):
        step = data.draw(st.sampled_from(["write", "append", "resize", "theirs"]))
        shape = values.shape
        if step in ("write", "theirs"):
            key = tuple(
                slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))))
                for n in shape
            )
            new = random_values(values[key].shape, dtype, data.draw(st.integers(0, 99)))
            if step == "write":
                ours[key] = new
            elif new.size:
                zarr.open_array(path / "a", mode="r+")[key] = new
            values[key] = new
        elif step == "append":
            new = random_values((3, shape[1]), dtype, data.draw(st.integers(0, 99)))
            ours.append(new)
            values = np.concatenate([values, new])
        else:
            target = (data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12)))
            ours.resize(target)
            grown = np.full(target, options["fill_value"], dtype)
            kept = tuple(slice(min(a, b)) for a, b in zip(shape, target, strict=True))
            grown[kept] = values[kept]
            values = grown
        assert_same(ours[...], values)
        assert_same(zarr.open_array(path / "a", mode="r")[...], values)
    # zarrs 0.2 swaps the parts of big-endian complex numbers in partial reads of chunks.
    if dtype != "complex64" or options["serializer"] == BYTES[0]:
        assert_same(read_zarrs(path, "a"), values)


def test_their_writes_into_our_store_leave_the_rest_ours(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    store = bedform.create(path, durability="process")
    values = random_values((20, 12), "float32", 11)
    layout = bedform.Regular((5, 3), (10, 6), order="z")
    array = store.create_array("a", values.shape, "f4", layout=layout)
    array[...] = values
    theirs = zarr.open_group(path, mode="r+")
    theirs["a"][4:6, 2:4] = 0
    values[4:6, 2:4] = 0
    theirs.create_array("new", data=np.arange(4), chunks=(2,))
    theirs.create_group("g").create_array("x", data=np.arange(2), chunks=(2,))
    assert_same(array[...], values)
    array.append(values[:3])
    assert_same(array[...], np.concatenate([values, values[:3]]))
    check_readers(path, "a", np.concatenate([values, values[:3]]))
    # Their nodes are found by name, and listed after consolidating.
    assert store["new"][...].tolist() == [0, 1, 2, 3]
    zarr.consolidate_metadata(path)
    again = bedform.open(path, mode="r+")
    assert sorted(again.arrays()) == ["a", "g/x", "new"]
    again["g/x"][...] = 7
    again["g/x"].append([8])
    assert zarr.open_consolidated(path, mode="r")["g/x"][...].tolist() == [7, 7, 8]
    assert_same(again["a"][...], np.concatenate([values, values[:3]]))


@pytest.mark.parametrize("values", [["a", "äö", "", "bcde"], [b"a", b"bc", b"", b"defg"]])
def test_text_of_fixed_length_is_read(tmp_path: Path, values: list[Any]) -> None:
    expected = np.array(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_group(tmp_path / "z.zarr").create_array("a", data=expected, chunks=(3,))
    array = bedform.open(tmp_path / "z.zarr")["a"]
    assert array.dtype == expected.dtype
    assert array[...].tolist() == values


# Refused arrays -----------------------------------------------------------------------------


def unsupported_arrays() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields unsupported arrays of other programs, with the text that the message must contain."""
    nested = zarr.codecs.ShardingCodec(
        chunk_shape=(2,), codecs=[zarr.codecs.ShardingCodec(chunk_shape=(1,))]
    )
    yield "shards in shards", {"dtype": "i4", "codecs": [nested]}, "shards within shards"
    yield "bytes", {"dtype": zarr.dtype.VariableLengthBytes()}, "variable_length_bytes"


@pytest.mark.parametrize(
    ("options", "names"),
    [pytest.param(options, names, id=name) for name, options, names in unsupported_arrays()],
)
def test_what_we_do_not_read_is_refused_by_name(
    tmp_path: Path, options: dict[str, Any], names: str
) -> None:
    path = tmp_path / "z.zarr"
    group = zarr.create_group(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create(store=path, path="a", shape=(4,), chunks=(4,), zarr_format=3, **options)
    group.create_array("b", data=np.arange(3), chunks=(3,))
    store = bedform.open(path)
    with pytest.raises(bedform.UnsupportedError, match=names) as caught:
        store["a"]
    assert str(path / "a") in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    # One unreadable array does not affect the others.
    assert store["b"][...].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"compressor": {"id": "lzma", "format": 3}}, "LZMA of the format 3"),
        ({"compressor": {"id": "zfpy", "mode": 4}}, "zfpy"),
        ({"filters": [{"id": "delta", "dtype": "<c8"}]}, "<c8"),
        ({"filters": [{"id": "categorize", "labels": []}]}, "categorize"),
        ({"dtype": [["a", "|O"]]}, "a field of string"),
        ({"dtype": "<x8"}, "x8"),
    ],
)
def test_version_two_that_we_do_not_read_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], names: str
) -> None:
    group = zarr.create_group(tmp_path / "z.zarr", zarr_format=2)
    group.create_array("a", data=np.arange(4, dtype="i4"), chunks=(2,))
    document = tmp_path / "z.zarr/a/.zarray"
    document.write_text(json.dumps({**json.loads(document.read_text()), **change}))
    with pytest.raises(bedform.UnsupportedError, match=names) as caught:
        bedform.open(tmp_path / "z.zarr")["a"]
    assert "a/.zarray" in str(caught.value)
