"""Codecs of new arrays: ``pcodec`` for numbers, and the ways of requesting codecs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
import zarr.codecs.numcodecs
from engine import ORDERS, assert_same, layouts, random_values, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.pcodec import PCodec

import bedform

if TYPE_CHECKING:
    from pathlib import Path

# zarr-python warns of codecs that are not in the specification.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

TYPES = [
    "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64",
]  # fmt: skip
SETTINGS: list[dict[str, Any]] = [
    {},
    {"level": 0},
    {"level": 12},
    {"mode_spec": "classic"},
    {"delta_spec": "none"},
    {"delta_spec": "try_consecutive", "delta_encoding_order": 3},
    {"delta_encoding_order": 2},
    {"delta_spec": "try_lookback"},
    {"equal_pages_up_to": 64},
]


def smooth_values(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Returns values that pcodec can compress by modes and differences, unlike noise."""
    count = int(np.prod(shape, dtype=np.int64))
    ramp = np.round(100 * np.sin(np.arange(count) / 50), 1)
    if np.dtype(dtype).kind == "u":
        ramp = np.abs(ramp) * 10
    return ramp.astype(dtype).reshape(shape)


def read_zarr(path: Path, name: str) -> Any:
    return zarr.open_group(path, mode="r")[name][...]


def read_zarrs(path: Path, name: str) -> Any:
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return read_zarr(path, name)


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_with_pcodec_are_read_by_others_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "s.zarr"
    store = bedform.create(path, durability="process")
    values = {"noise": random_values((70, 33), dtype, 3), "smooth": smooth_values((70, 33), dtype)}
    for name, expected in values.items():
        for number, codecs in enumerate((["pcodec"], ["pcodec", "zstd"], ["numcodecs.pcodec"])):
            layout = bedform.Regular((16, 20), (32, 40), order=ORDERS[number])  # type: ignore[arg-type]
            array = store.create_array(
                f"{name}{number}", expected.shape, dtype, layout=layout, codecs=codecs
            )
            array[...] = expected
            assert_same(array[...], expected)
            assert_same(read_zarr(path, f"{name}{number}"), expected)
            assert_same(read_zarrs(path, f"{name}{number}"), expected)


@pytest.mark.parametrize("configuration", SETTINGS)
def test_every_setting_is_kept_in_the_document_and_read_by_zarr_python(
    tmp_path: Path, configuration: dict[str, Any]
) -> None:
    path = tmp_path / "s.zarr"
    values = smooth_values((3000,), "float32")
    codec = {"name": "pcodec", "configuration": configuration}
    array = bedform.create(path, durability="process").create_array(
        "a", values.shape, "float32", layout=bedform.Regular((1500,)), codecs=[codec]
    )
    array[...] = values
    assert_same(read_zarr(path, "a"), values)
    named = array.info()["codecs"]
    assert [codec["name"] for codec in named] == ["numcodecs.pcodec", "crc32c"]
    written = named[0]["configuration"]
    assert {**written, **configuration, "delta_spec": written["delta_spec"]} == written
    # numcodecs accepts the whole configuration.
    assert numcodecs.get_codec({"id": "pcodec", **written}).get_config() == {
        "id": "pcodec",
        **written,
    }


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shards", [None, (32, 40)])
def test_arrays_of_zarr_python_with_pcodec_are_read_and_written(
    tmp_path: Path, dtype: str, shards: tuple[int, ...] | None
) -> None:
    for number, values in enumerate(
        (random_values((70, 33), dtype, 5), smooth_values((70, 33), dtype))
    ):
        for checksum in ([], [zarr.codecs.Crc32cCodec()]):
            path = tmp_path / f"{number}{len(checksum)}.zarr"
            theirs = zarr.create_group(path).create_array(
                "a",
                shape=values.shape,
                dtype=dtype,
                chunks=(16, 20),
                shards=shards,
                serializer=zarr.codecs.numcodecs.PCodec(level=6),
                compressors=checksum,
            )
            theirs[...] = values
            array = bedform.open(path, mode="r+")["a"]
            assert_same(array[...], values)
            assert_same(array[3:40:5, 7], values[3:40:5, 7])
            changed = values.copy()
            changed[10:30, 5:25] = values[:20, :20]
            array[10:30, 5:25] = values[:20, :20]
            assert_same(read_zarr(path, "a"), changed)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("as_filter", [False, True])
def test_version_2_has_pcodec_as_compressor_or_first_filter(
    tmp_path: Path, order: Any, as_filter: bool
) -> None:
    values = smooth_values((70, 33), "int32")
    codecs: dict[str, Any] = {"compressors": PCodec()}
    if as_filter:
        codecs = {"filters": [PCodec(level=3)], "compressors": numcodecs.Zstd()}
    theirs = zarr.create_group(tmp_path / "s.zarr", zarr_format=2).create_array(
        "a", shape=values.shape, dtype="int32", chunks=(16, 20), order=order, **codecs
    )
    theirs[...] = values
    array = bedform.open(tmp_path / "s.zarr")["a"]
    assert_same(array[...], values)
    assert "numcodecs.pcodec" in [codec["name"] for codec in array.info()["codecs"]]


def test_version_2_refuses_pcodec_of_what_it_does_not_take(tmp_path: Path) -> None:
    document = {
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "fill_value": 0,
        "order": "C", "filters": None, "compressor": {"id": "pcodec", "level": 8},
    }  # fmt: skip
    changes: list[tuple[dict[str, Any], str]] = [
        ({"dtype": ">i4"}, "big-endian"),
        ({"dtype": "|i1"}, "not int8"),
        ({"filters": [{"id": "shuffle"}]}, "cannot follow bytes"),
    ]
    for number, (change, problem) in enumerate(changes):
        path = tmp_path / str(number)
        path.mkdir()
        (path / ".zarray").write_text(json.dumps({**document, **change}))
        with pytest.raises(bedform.BedformError, match=problem):
            bedform.open(path)[...]


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_any_part_is_what_numpy_has(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    shape = data.draw(shapes)
    dtype = data.draw(st.sampled_from(TYPES))
    layout = data.draw(layouts(len(shape)))
    store = bedform.create(tmp_path_factory.mktemp("s") / "s.zarr", durability="process")
    checked = data.draw(st.sampled_from([["pcodec"], ["pcodec", "zstd"]]))
    array = store.create_array("a", shape, dtype, layout=layout, codecs=checked)
    expected = random_values(shape, dtype, data.draw(st.integers(0, 9)))
    array[...] = expected
    part = tuple(
        slice(*sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))))
        for size in shape
    )
    assert_same(array[part], expected[part])
    array[part] = expected[part]
    assert_same(array[...], expected)


def test_transposed_chunks_are_read_by_zarr_python(tmp_path: Path) -> None:
    # zarr-python 3.1 writes such chunks in a wrong order, but reads them correctly.
    path = tmp_path / "s.zarr"
    data = xr.Dataset({"a": (("y", "x"), smooth_values((70, 33), "float64"))})
    transpose = {"name": "transpose", "configuration": {"order": [1, 0]}}
    encoding = {
        "a": {
            "chunks": (16, 20),
            "serializer": {"name": "numcodecs.pcodec"},
            "filters": [transpose],
        }
    }
    bedform.write_dataset(data, path, encoding=encoding)
    names = [codec["name"] for codec in bedform.open(path)["a"].info()["codecs"]]
    assert names == ["transpose", "numcodecs.pcodec", "crc32c"]
    assert_same(read_zarr(path, "a"), data["a"].to_numpy())
    assert_same(bedform.open(path)["a"][5:50, 3], data["a"].to_numpy()[5:50, 3])


def test_encodings_carry_the_serializer_from_file_to_file(tmp_path: Path) -> None:
    values = smooth_values((64, 64), "float32")
    data = xr.Dataset({"a": (("y", "x"), values)})
    encoding = {
        "a": {"chunks": (32, 32), "serializer": zarr.codecs.numcodecs.PCodec(), "compressors": None}
    }
    bedform.write_dataset(data, tmp_path / "a.zarr", encoding=encoding)
    with xr.open_dataset(tmp_path / "a.zarr", engine="bedform") as opened:
        assert opened["a"].encoding["serializer"] is not None
        bedform.write_dataset(opened, tmp_path / "b.zarr")
    names = [codec["name"] for codec in bedform.open(tmp_path / "b.zarr")["a"].info()["codecs"]]
    assert names == ["numcodecs.pcodec", "crc32c"]
    assert_same(read_zarr(tmp_path / "b.zarr", "a"), values)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "complex64", "S4", "str"])
def test_types_that_pcodec_does_not_take_are_refused_by_name(tmp_path: Path, dtype: str) -> None:
    store = bedform.create(tmp_path / "s.zarr")
    kind: Any = str if dtype == "str" else dtype
    with pytest.raises(
        bedform.InvalidArgumentError, match="takes integers and floats of 16, 32 and 64"
    ):
        store.create_array("a", (10,), kind, codecs=["pcodec"])
    assert list(store) == []


@pytest.mark.parametrize(
    ("codecs", "problem"),
    [
        (["zstd", "pcodec"], "cannot follow bytes"),
        (["pcodec", "pcodec"], "cannot follow bytes"),
        ([{"name": "pcodec", "configuration": {"level": 13}}], "from 0 to 12"),
        ([{"name": "pcodec", "configuration": {"mode_spec": "try_dict"}}], "mode_spec"),
        ([{"name": "pcodec", "configuration": {"delta_spec": "try_consecutive"}}], "order"),
        ([{"name": "pcodec", "configuration": {"equal_pages_up_to": 1}}], "from 64 to"),
        (["pco"], "'pco'|\"pco\""),
    ],
)
def test_codecs_that_cannot_be_are_refused(tmp_path: Path, codecs: list[Any], problem: str) -> None:
    store = bedform.create(tmp_path / "s.zarr")
    with pytest.raises(bedform.InvalidArgumentError, match=problem):
        store.create_array("a", (10,), "float32", codecs=codecs)


def test_smooth_numbers_become_smaller_than_zstd_makes_them(tmp_path: Path) -> None:
    store = bedform.create(tmp_path / "s.zarr", durability="process")
    values = (np.cumsum(np.random.default_rng(1).normal(size=100_000)) * 100).astype("int32")
    sizes = {}
    for name in ("pcodec", "zstd"):
        store.create_array(
            name, values.shape, "int32", layout=bedform.Regular((50_000,)), codecs=[name]
        )[...] = values
        files = (tmp_path / "s.zarr" / name / "c").rglob("*")
        sizes[name] = sum(file.stat().st_size for file in files if file.is_file())
    assert sizes["pcodec"] < 0.8 * sizes["zstd"]
    assert_same(store["pcodec"][...], values)
