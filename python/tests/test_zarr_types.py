"""Times, structured types, raw bytes and fixed-size text of Zarr arrays, and their fill values."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from xarray.backends.zarr import ZarrStore

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])


def written(path: Path, data: Any, zarr_format: Any, **options: Any) -> Any:
    """Returns an array whose last chunk zarr-python left unwritten."""
    array = zarr.create_array(
        path, shape=data.shape, chunks=(2,), dtype=data.dtype, zarr_format=zarr_format, **options
    )
    array[:-2] = data[:-2]
    return array[...]


def rewritten(path: Path, **facts: Any) -> None:
    """Change the document of an array."""
    document = next(p for p in (path / "zarr.json", path / ".zarray") if p.exists())
    document.write_text(json.dumps({**json.loads(document.read_text()), **facts}))


def check(path: Path, expected: Any) -> Any:
    array = bf.open(path)
    found = array[...]
    native = expected.astype(found.dtype)
    assert found.dtype == array.dtype
    assert found.tobytes() == native.tobytes()
    assert np.asarray(array[1], array.dtype).tobytes() == native[1:2].tobytes()
    fill = np.asarray(array.fill_value, array.dtype)
    assert fill.tobytes() == native[-1:].tobytes()
    again = pickle.loads(pickle.dumps(array))  # noqa: S301 - our own
    assert again[...].tobytes() == native.tobytes()
    return array


@FORMATS
@pytest.mark.parametrize("unit", ["ns", "us", "D", "Y", "25s", "as"])
@pytest.mark.parametrize("kind", "Mm")
@pytest.mark.parametrize("fill", ["NaT", 3, None])
def test_times_and_their_fill_values(
    tmp_path: Path, zarr_format: Any, unit: str, kind: str, fill: Any
) -> None:
    data = np.array([-5, 0, 7, np.iinfo("i8").min, 1, 2]).view(f"<{kind}8[{unit}]")
    options = {} if fill is None else {"fill_value": np.array(fill, data.dtype)[()]}
    array = check(tmp_path / "a", written(tmp_path / "a", data, zarr_format, **options))
    assert array.dtype == data.dtype
    name = {"M": "datetime64", "m": "timedelta64"}[kind]
    assert array.info()["dtype"] == f"{name}[{unit}]"


def test_times_in_the_other_byte_order_of_v2_with_a_word_for_the_fill_value(tmp_path: Path) -> None:
    data = np.array([1, 2, 3, 4]).astype(">M8[s]")
    expected = written(tmp_path / "a", data, 2, fill_value=np.datetime64("NaT"))
    rewritten(tmp_path / "a", fill_value="NaT")
    assert check(tmp_path / "a", expected).dtype == np.dtype("M8[s]")


STRUCTURED = [
    [("a", "<f4"), ("b", "<i2")],
    [("time", "<M8[s]"), ("name", "<U3"), ("code", "|S2"), ("inner", [("x", "<f8"), ("y", "|b1")])],
]


@FORMATS
@pytest.mark.parametrize("fields", STRUCTURED, ids=["flat", "nested"])
def test_structured_elements(tmp_path: Path, zarr_format: Any, fields: Any) -> None:
    kind = np.dtype(fields)
    raw = np.random.default_rng(3).integers(1, 60, size=(6, kind.itemsize), dtype="u1")
    data = np.zeros(6, kind)
    for name in kind.names or ():
        field = kind[name]
        if field.kind in "fiM":
            data[name] = np.arange(1, 7).astype(field)
        elif field.kind in "US":
            data[name] = np.array(list("abcdef")).astype(field)
        else:
            data[name]["x"], data[name]["y"] = raw[:, 0], raw[:, 1] > 30
    fill = data[2]
    # numcodecs cannot compress structures with times.
    options = {"fill_value": fill, "compressors": None}
    array = check(tmp_path / "a", written(tmp_path / "a", data, zarr_format, **options))
    assert array.dtype == kind
    first = (kind.names or ("",))[0]
    assert (array[:4][first] == data[:4][first]).all()


def test_structured_elements_in_the_other_byte_order_and_with_arrays_as_fields(
    tmp_path: Path,
) -> None:
    kind = np.dtype([("a", ">f4"), ("b", "<i2", (2, 2)), ("c", ">u2", 3)])
    data = np.zeros(4, kind)
    data["a"], data["b"], data["c"] = np.arange(4), np.arange(16).reshape(4, 2, 2), 7
    path = tmp_path / "a"
    zarr.create_array(path, shape=(4,), chunks=(4,), dtype="V18", zarr_format=2, compressors=None)
    dtype = [["a", ">f4"], ["b", "<i2", [2, 2]], ["c", ">u2", 3]]
    rewritten(path, dtype=dtype, fill_value=None)
    (path / "0").write_bytes(data.tobytes())
    found = bf.open(path)
    assert found.dtype == kind
    assert found[...].tobytes() == data.tobytes()


@FORMATS
@pytest.mark.parametrize("kind", ["V5", "S4", "<U6"])
def test_raw_bytes_and_text_of_fixed_size(tmp_path: Path, zarr_format: Any, kind: str) -> None:
    texts = [b"abc", b"n/a", b"x", b"", b"-", b"n/a"]
    plain = np.array(texts, dtype="S5" if kind[0] == "V" else "S4")
    data = plain.view(kind) if kind[0] == "V" else plain.astype(kind)
    check(tmp_path / "a", written(tmp_path / "a", data, zarr_format, fill_value=data[1]))


def test_text_of_fixed_size_in_the_other_byte_order(tmp_path: Path) -> None:
    data = np.array(["é", "n/a", "😀", "x"], dtype=">U6")
    check(tmp_path / "a", written(tmp_path / "a", data, 2, fill_value="n/a"))


@FORMATS
def test_raw_bytes_by_the_name_of_the_core_specification(tmp_path: Path, zarr_format: Any) -> None:
    data = np.array([b"ab", b"cd", b"ef", b"gh"], dtype="S2").view("V2")
    expected = written(tmp_path / "a", data, zarr_format, fill_value=data[0])
    if zarr_format == 3:
        rewritten(tmp_path / "a", data_type="r16")
    check(tmp_path / "a", expected)


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        ("<f4", None, 0.0),
        ("<f4", "NaN", np.nan),
        ("<f8", "-Infinity", -np.inf),
        ("<i2", None, 0),
        ("|S4", "bi9h", b"n/a"),
        ("|S4", "", b""),
        ("|S4", None, b""),
        ("|S4", 0, b""),
        ("<U4", "n/a", "n/a"),
        ("<U4", "", ""),
        ("<U4", 0, ""),
        ("<U4", None, ""),
        ("<U2", "\\ud800", "\ud800"),
        ("|V2", "YWI=", np.void(b"ab")),
        ("<c8", ["NaN", 1.0], complex(np.nan, 1)),
    ],
)
def test_fill_values_of_v2(tmp_path: Path, dtype: str, fill: Any, expected: Any) -> None:
    path = tmp_path / "a"
    zarr.create_array(path, shape=(3,), chunks=(2,), dtype="<f4", zarr_format=2)
    rewritten(path, dtype=dtype, fill_value=fill)
    if isinstance(fill, str):
        text = (path / ".zarray").read_text().replace("\\\\ud800", "\\ud800")
        (path / ".zarray").write_text(text)
    array = bf.open(path)
    value = np.array(expected, dtype=array.dtype)
    assert array[...].tobytes() == np.repeat(value[None], 3).tobytes()
    assert np.asarray(array.fill_value, array.dtype).tobytes() == value.tobytes()


def test_text_of_any_length_in_v2_with_the_fill_values_that_writers_give_it(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4,), chunks=(2,), dtype=str)
    array[:2] = np.array(["one", "zwei"], dtype=object)
    for fill, expected in (("", ""), (None, ""), (0, ""), ("none", "none")):
        rewritten(tmp_path / "s" / "a", fill_value=fill)
        assert bf.open(tmp_path / "s")["a"][...].tolist() == ["one", "zwei", expected, expected]


@FORMATS
def test_chunks_of_length_0_along_an_axis_that_is_empty(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "a"
    zarr.create_array(
        path, shape=(0, 4), chunks=(1, 2), dtype="<f4", zarr_format=zarr_format, fill_value=1
    )
    if zarr_format == 2:
        rewritten(path, chunks=[0, 2])
    else:
        grid = {"name": "regular", "configuration": {"chunk_shape": [0, 2]}}
        rewritten(path, chunk_grid=grid)
    assert bf.open(path)[...].shape == (0, 4)
    # With elements, no chunk holds them.
    rewritten(path, shape=[3, 4])
    with pytest.raises(bf.CorruptError, match="at least 1"):
        bf.open(path)


@FORMATS
def test_halves_of_pairs_of_utf_16_in_attributes(tmp_path: Path, zarr_format: Any) -> None:
    attributes = {"a\ud800": ["\udfff😀", {"b": "\ud83dx"}], "plain": "é"}
    path = tmp_path / "s"
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format, attributes=attributes)
    group.create_array("t", data=np.arange(3), attributes=attributes)
    for _ in range(2):
        store = bf.open(path)
        assert store.attributes == attributes
        assert store["t"].attributes == attributes
        if zarr_format == 2:
            break
        # Bedform rewrites them unchanged: a document never loses them.
        mine = bf.open(path, "r+")["t"]
        mine[0] = 0
        mine.resize((4,))


def by_zarr(path: Path, **how: Any) -> xr.Dataset:
    """Opens the data set by xarray's own backend, whose ``open_dataset`` ignores this option."""
    store: Any = ZarrStore.open_group(path, mode="r", consolidated=False, **how)
    return xr.open_dataset(store)


@FORMATS
def test_xarray_reads_these_types_as_its_own_engine_does(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "s"
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    kinds: dict[str, Any] = {
        "time": np.array([1, 2, 3]).astype("M8[ns]"),
        "length": np.array([1, 2, 3]).astype("m8[ns]"),
        "name": np.array(["a", "b", "ccc"]),
        "code": np.array([b"a", b"b", b"ccc"]),
        "number": np.array([1.0, 2.0, 3.0]),
    }
    for name, data in kinds.items():
        named = {"dimension_names": ["x"]} if zarr_format == 3 else {}
        array = group.create_array(name, data=data, **named)
        if zarr_format == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    for as_mask in (None, False, True):
        how = {"use_zarr_fill_value_as_mask": as_mask}
        ours = xr.open_dataset(path, engine="bedform", **how)
        theirs = by_zarr(path, **how)
        xr.testing.assert_equal(ours, theirs)
        for name in kinds:
            assert ours[name].dtype == theirs[name].dtype
            # Compared as text, since NaT differs from itself.
            for facts in ("attrs", "encoding"):
                mine, other = (getattr(of[name], facts) for of in (ours, theirs))
                assert str(sorted(mine.items())) == str(sorted(other.items()))


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i2", "<U3"])
def test_fill_attributes_of_v2_that_are_no_mask(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    data = {"<U3": np.array(["a", "b"])}.get(kind, np.array([1, 2]).astype(kind))
    fill = "" if kind == "<U3" else 2
    source = xr.Dataset({"t": ("x", data)})
    source["t"].encoding["_FillValue"] = fill if kind != "<U3" else None
    source.to_zarr(path, zarr_format=2, consolidated=False)
    how = {"use_zarr_fill_value_as_mask": False}
    ours = xr.open_dataset(path, engine="bedform", **how)
    theirs = by_zarr(path, **how)
    xr.testing.assert_identical(ours, theirs)
    assert ours["t"].encoding.get("_FillValue") == theirs["t"].encoding.get("_FillValue")


def test_raw_bytes_of_v2_have_no_mask_in_xarray(tmp_path: Path) -> None:
    data = np.array([b"abc", b"\0\0\0", b"def", b"ghi"], "V3")
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    array = group.create_array("t", shape=(4,), dtype="V3")
    array[:] = data
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    with xr.open_dataset(tmp_path / "s", engine="bedform") as opened:
        assert opened["t"].values.tolist() == data.tolist()


def test_elements_of_these_types_are_written_to_arrays_of_others(tmp_path: Path) -> None:
    data = np.array([1, 2, 3, 4]).astype("M8[s]")
    zarr.create_array(tmp_path / "s" / "t", data=data, chunks=(2,))
    fields = np.array([(1, 2), (3, 4)], dtype=[("a", "<f4"), ("b", "<i2")])
    zarr.create_array(tmp_path / "s" / "p", data=fields, chunks=(2,))
    times = bf.open(tmp_path / "s" / "t", "r+")
    times[1:3] = np.array(["NaT", "2001-01-01"], dtype="M8[s]")
    bf.open(tmp_path / "s" / "p", "r+")[1] = np.array((5, 6), dtype=fields.dtype)
    expected = zarr.open_array(tmp_path / "s" / "t", mode="r")[...]
    assert expected.tobytes() == times[...].tobytes()
    assert str(expected[2]) == "2001-01-01T00:00:00"
    assert zarr.open_array(tmp_path / "s" / "p", mode="r")[...].tolist() == [(1, 2), (5, 6)]


def test_a_conversion_says_what_zarr_has_no_type_for(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w")
    group.create_array("raw", data=np.zeros(3, "V4"))
    group.create_array("good", data=np.arange(3))
    with pytest.raises(bf.InvalidArgumentError, match=r"no type for array 'raw': .* V4"):
        bf.convert(tmp_path / "s", tmp_path / "c.zarr")
    bf.convert(tmp_path / "s", tmp_path / "c.zarr", exclude=["raw"])
    assert list(bf.open(tmp_path / "c.zarr").arrays()) == ["good"]


def test_no_new_array_is_of_a_type_that_is_only_read(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    for kind in ("M8[ns]", "m8[s]", "V4", [("a", "f4")]):
        with pytest.raises(bf.InvalidArgumentError, match="not supported"):
            store.create_array("a", (4,), kind)


@pytest.mark.parametrize(
    "dtype", [[["a", "<f4"], ["a", "<f4"]], [["a", "<f4", [-1]]], [["a"]], [], [["a", "|O"]]]
)
def test_structures_that_nothing_can_be_are_refused(tmp_path: Path, dtype: Any) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    for name in ("bad", "good"):
        group.create_array(name, shape=(3,), dtype="<f4")
    rewritten(tmp_path / "s" / "bad", dtype=dtype, fill_value=None)
    store = bf.open(tmp_path / "s")
    assert list(store.arrays()) == ["good"]
    assert "dtype" in store.refused()["bad"]


@pytest.mark.parametrize(
    ("dtype", "quoted"),
    [
        ("<i4", "0"), ("<i2", " -7 "), (">i8", "9223372036854775807"), ("|u1", "255"),
        ("<u8", "18446744073709551615"), ("<f4", "1e20"), ("<f8", "-1.5"), ("<f8", "nan"),
        ("<f4", "-inf"), ("<f2", "0"), ("|b1", "true"), ("<U3", "0"), ("|S3", "YWI="),
    ],
)  # fmt: skip
def test_quoted_fill_values_of_v2_are_those_that_zarr_python_reads(
    tmp_path: Path, dtype: str, quoted: str
) -> None:
    written(tmp_path / "a", np.zeros(4, dtype), 2)
    rewritten(tmp_path / "a", fill_value=quoted)
    check(tmp_path / "a", zarr.open_array(tmp_path / "a", mode="r")[...])


@pytest.mark.parametrize(
    ("dtype", "quoted"), [("<i4", "1.5"), ("|u1", "256"), ("<f8", "none"), ("|b1", "false")]
)
def test_quoted_fill_values_that_are_no_such_number_are_refused(
    tmp_path: Path, dtype: str, quoted: str
) -> None:
    written(tmp_path / "a", np.zeros(4, dtype), 2)
    rewritten(tmp_path / "a", fill_value=quoted)
    with pytest.raises(bf.CorruptError, match="fill_value: expected a value of"):
        bf.open(tmp_path / "a")
