"""Filters and codecs of numcodecs: arrays that zarr-python writes with them read equal."""

from __future__ import annotations

import json
import struct
import warnings
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as v3
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

NUMBERS = [f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8) if kind + str(size) != "f1"]
GENERATOR = np.random.default_rng(5)
FLOATS = np.round(GENERATOR.normal(280, 9, size=(30, 41)), 3)
INTEGERS = GENERATOR.integers(-90, 90, size=(30, 41)).cumsum(axis=1)

#: (filters, type of the array) of Zarr v2; v3 has the same codecs by other classes.
FILTERS: list[tuple[list[Any], str]] = [
    ([numcodecs.Delta("<i4")], "<i4"),
    ([numcodecs.Delta("<i4", "<i2")], "<i4"),
    ([numcodecs.Delta("<i8", "<i4")], "<i8"),
    ([numcodecs.Delta("<u2")], "<u2"),
    ([numcodecs.Delta("|i1", "<i8")], "|i1"),
    ([numcodecs.Delta("<f4")], "<f4"),
    ([numcodecs.Delta("<f8")], "<f8"),
    ([numcodecs.Delta("<f2")], "<f2"),
    ([numcodecs.FixedScaleOffset(250, 100, "<f8", "<u2")], "<f8"),
    ([numcodecs.FixedScaleOffset(250.5, 0.1, "<f4", "|i1")], "<f4"),
    ([numcodecs.FixedScaleOffset(-3, 7, "<f4", "<f4")], "<f4"),
    ([numcodecs.FixedScaleOffset(1.5, 3, "<f2", "<f2")], "<f2"),
    ([numcodecs.FixedScaleOffset(0, 1, "<i4", "<i8")], "<i4"),
    ([numcodecs.Quantize(2, "<f8")], "<f8"),
    ([numcodecs.BitRound(5)], "<f4"),
    ([numcodecs.AsType("<f4", "<f8")], "<f8"),
    ([numcodecs.AsType("<i2", "<f8")], "<f8"),
    ([numcodecs.AsType("<f8", "<i4")], "<i4"),
    ([numcodecs.FixedScaleOffset(250, 100, "<f8", "<i4"), numcodecs.Delta("<i4", "<i2")], "<f8"),
    ([numcodecs.PackBits()], "|b1"),
    ([numcodecs.Shuffle(4)], "<i4"),
]
OF_V2: list[tuple[list[Any], str]] = [
    ([numcodecs.Quantize(1, "<f8", "<f4")], "<f8"),
    ([numcodecs.Delta(">i4", ">i2")], ">i4"),
    ([numcodecs.FixedScaleOffset(250, 100, ">f8", ">i4")], ">f8"),
    ([numcodecs.Delta("<i4"), numcodecs.Shuffle(4)], "<i4"),
]
COMPRESSORS: list[Any] = [
    numcodecs.LZ4(),
    numcodecs.BZ2(),
    numcodecs.LZMA(),
    numcodecs.LZMA(format=2),
    numcodecs.LZMA(preset=9),
    numcodecs.Zlib(3),
    numcodecs.GZip(3),
    numcodecs.Zstd(3),
    numcodecs.Blosc(),
    numcodecs.Shuffle(8),
    numcodecs.CRC32(),
    numcodecs.CRC32(location="end"),
    numcodecs.CRC32C(),
    numcodecs.CRC32C(location="start"),
    numcodecs.Adler32(),
    numcodecs.Adler32(location="end"),
    numcodecs.Fletcher32(),
]


def named(codec: Any) -> str:
    return ",".join(map(named, codec)) if isinstance(codec, list) else repr(codec)


def elements(dtype: str) -> Any:
    if dtype == "|b1":
        return FLOATS > 280
    return (FLOATS if np.dtype(dtype).kind == "f" else INTEGERS).astype(dtype)


def write_v2(path: Path, data: Any, *, order: Any = "C", **codecs: Any) -> Any:
    array = zarr.create_array(
        path,
        shape=data.shape,
        chunks=(7, 16),
        dtype=data.dtype,
        zarr_format=2,
        order=order,
        **{"filters": None, "compressors": None, **codecs},
    )
    array[...] = data
    return array[...]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("filters", "dtype"), FILTERS + OF_V2, ids=named)
def test_filters_of_zarr_v2(tmp_path: Path, filters: list[Any], dtype: str, order: str) -> None:
    expected = write_v2(
        tmp_path / "a", elements(dtype), order=order, filters=filters, compressors=numcodecs.Zlib()
    )
    found = bf.open(tmp_path / "a")
    assert found[...].tobytes() == expected.astype(found.dtype).tobytes()
    assert found[3:5, 20].tobytes() == expected[3:5, 20].astype(found.dtype).tobytes()


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=named)
def test_compressors_and_checksums_of_zarr_v2(tmp_path: Path, compressor: Any) -> None:
    expected = write_v2(tmp_path / "a", FLOATS, compressors=compressor)
    np.testing.assert_array_equal(bf.open(tmp_path / "a")[...], expected)


def of_v3(codec: Any) -> Any:
    """Returns zarr-python's class of the codec under a name of Zarr v3."""
    configuration = codec.get_config()
    names = {kind.codec_name: kind for kind in vars(v3).values() if hasattr(kind, "codec_name")}
    return names[f"numcodecs.{configuration.pop('id')}"](**configuration)


# zarr-python cannot read its own arrays with the others.
OF_V3 = [case for case in FILTERS if case[1] not in ("|b1", "|i1")]


@pytest.mark.parametrize("filters_of", OF_V3, ids=named)
@pytest.mark.parametrize("shards", [None, (14, 32)])
def test_filters_of_zarr_v3(tmp_path: Path, filters_of: Any, shards: Any) -> None:
    filters, dtype = filters_of
    codecs: dict[str, Any] = {"filters": [of_v3(f) for f in filters], "compressors": None}
    if isinstance(filters[0], numcodecs.Shuffle):
        codecs = {"compressors": codecs["filters"]}
    array = zarr.create_array(
        tmp_path / "a", data=elements(dtype), chunks=(7, 16), shards=shards, **codecs
    )
    found = bf.open(tmp_path / "a")
    assert found[...].tobytes() == array[...].tobytes()


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=named)
def test_compressors_and_checksums_of_zarr_v3(tmp_path: Path, compressor: Any) -> None:
    array = zarr.create_array(
        tmp_path / "a", data=FLOATS, chunks=(7, 16), compressors=[of_v3(compressor)]
    )
    np.testing.assert_array_equal(bf.open(tmp_path / "a")[...], array[...])


@fewer_examples(3)
@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    dtypes=st.tuples(*[st.sampled_from(NUMBERS)] * 2),
    orders=st.tuples(st.sampled_from("<>"), st.sampled_from("<>")),
)
def test_conversions_are_those_of_numpy_or_errors(
    tmp_path_factory: pytest.TempPathFactory, numbers: Any, dtypes: Any, orders: Any
) -> None:
    """Floats outside the integer type are errors: NumPy's result depends on the machine."""
    encoded, decoded = (np.dtype(order + name) for order, name in zip(orders, dtypes, strict=True))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored = np.array(numbers).astype(encoded)
        expected = numcodecs.AsType(encoded, decoded).decode(stored)
    path = tmp_path_factory.mktemp("a")
    codec = numcodecs.AsType(encoded, decoded)
    zarr.create_array(
        path,
        shape=stored.shape,
        chunks=stored.shape,
        dtype=decoded,
        zarr_format=2,
        filters=[codec],
        compressors=None,
        overwrite=True,
    )
    (path / "0").write_bytes(stored.tobytes())
    fits = True
    if encoded.kind == "f" and decoded.kind in "iu":
        limits = np.iinfo(decoded)
        exact = [float(number) for number in stored]
        fits = all(
            np.isfinite(number) and limits.min <= int(number) <= limits.max for number in exact
        )
    if fits:
        found = bf.open(path)[...]
        assert found.tobytes() == expected.astype(decoded.newbyteorder("=")).tobytes()
    else:
        with pytest.raises(bf.CorruptError, match="astype"):
            bf.open(path)[...]


def overwrite_chunk(path: Path, codec: dict[str, Any], content: bytes) -> Any:
    """An array of four floats whose only chunk, behind this compressor, is ``content``."""
    zarr.create_array(path, data=np.ones(4), chunks=(4,), zarr_format=2, compressors=None)
    facts = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**facts, "compressor": codec}))
    (path / "0").write_bytes(content)
    return bf.open(path)


@pytest.mark.parametrize(
    ("codec", "content"),
    [
        # Claimed sizes of 4 GiB and streams of 64 MiB, in a few bytes.
        ({"id": "lz4"}, struct.pack("<I", 2**32 - 1) + b"\x1f" * 40),
        ({"id": "lz4"}, numcodecs.LZ4().encode(np.zeros(8 << 20))[:400]),
        ({"id": "bz2"}, numcodecs.BZ2().encode(np.zeros(8 << 20))),
        ({"id": "lzma"}, numcodecs.LZMA().encode(np.zeros(8 << 20))),
        ({"id": "lzma", "format": 2}, numcodecs.LZMA(format=2).encode(np.zeros(8 << 20))),
        # Truncated, empty, one bit changed.
        ({"id": "bz2"}, numcodecs.BZ2().encode(np.ones(4))[:-4]),
        ({"id": "lzma"}, numcodecs.LZMA().encode(np.ones(4))[:-4]),
        ({"id": "lz4"}, numcodecs.LZ4().encode(np.ones(4))[:-4]),
        ({"id": "bz2"}, b""),
        ({"id": "lzma"}, b""),
        ({"id": "lz4"}, b"\0"),
        ({"id": "crc32"}, bytes(numcodecs.CRC32().encode(np.ones(4)))[:-1] + b"\1"),
        ({"id": "adler32"}, bytes(numcodecs.Adler32().encode(np.ones(4)))[:-1] + b"\1"),
        ({"id": "fletcher32"}, b"\1" + bytes(numcodecs.Fletcher32().encode(np.ones(4)))[1:]),
        ({"id": "delta", "dtype": "<f8"}, b"\0" * 31),
    ],
    ids=lambda case: case["id"] if isinstance(case, dict) else str(len(case)),
)
def test_damaged_and_boundless_streams_are_errors(
    tmp_path: Path, codec: dict[str, Any], content: bytes
) -> None:
    array = overwrite_chunk(tmp_path / "a", codec, content)
    with pytest.raises(bf.CorruptError):
        array[...]


def test_a_dictionary_that_takes_more_memory_than_allowed_is_refused(tmp_path: Path) -> None:
    wide = [{"id": 0x21, "dict_size": 512 << 20}]
    content = numcodecs.LZMA(filters=wide).encode(np.ones(4))
    array = overwrite_chunk(tmp_path / "a", {"id": "lzma"}, content)
    with pytest.raises(bf.UnsupportedError, match="dictionary"):
        array[...]


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ([{"id": "delta", "dtype": "<M8[ns]"}], "a filter of"),
        ([{"id": "delta", "dtype": "<i4", "astype": "<f4"}], "differences of integers as floats"),
        ([{"id": "packbits"}], "packed bits of float64"),
        ([{"id": "categorize"}], "categorize"),
        ([{"id": "lzma", "format": 3}], "LZMA of the format 3"),
    ],
)
def test_filters_that_are_not_read_are_named(
    tmp_path: Path, filters: list[Any], problem: str
) -> None:
    zarr.create_array(tmp_path / "a", data=np.ones(4), zarr_format=2, compressors=None)
    facts = json.loads((tmp_path / "a" / ".zarray").read_text())
    (tmp_path / "a" / ".zarray").write_text(json.dumps({**facts, "filters": filters}))
    with pytest.raises(bf.UnsupportedError, match=problem):
        bf.open(tmp_path / "a")


def test_no_new_array_has_a_codec_that_is_only_read(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    for codec in ("numcodecs.lz4", "numcodecs.bz2", "numcodecs.crc32", "numcodecs.fletcher32"):
        with pytest.raises(bf.InvalidArgumentError, match="only read"):
            store.create_array("a", (4,), "float64", codecs=[codec])
    assert list(store) == []


def test_the_codecs_of_an_array_are_told_in_the_order_of_zarr_v3(tmp_path: Path) -> None:
    write_v2(
        tmp_path / "a",
        FLOATS,
        filters=[numcodecs.FixedScaleOffset(250, 100, "<f8", "<i4")],
        compressors=numcodecs.BZ2(),
    )
    codecs = [codec["name"] for codec in bf.open(tmp_path / "a").info()["codecs"]]
    assert codecs == ["numcodecs.fixedscaleoffset", "bytes", "numcodecs.bz2"]
