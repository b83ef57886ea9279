"""Arrays and stores through the Python door: types, fill values, attributes, errors, other handles.

The oracle throughout is NumPy, after the same assignments.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import xarray
import zarr
from engine import CODECS, NUMBERS, ORDERS, assert_same, random_values
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples

import bedform
from bedform import _errors, _explanation, _internal

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def store(tmp_path: Path) -> bedform.Store:
    return bedform.create(tmp_path / "s.zarr", durability="process")


def again(store: bedform.Store, **options: Any) -> bedform.Store:
    return bedform.open(store.store_path, **options)


# Types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, "str"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_type_comes_back_bit_by_bit_in_every_order(
    store: bedform.Store, dtype: str, order: str
) -> None:
    values = random_values((5, 7, 6), dtype, 1)
    layout = bedform.Regular((2, 3, 2), (4, 6, 4), order=order)  # type: ignore[arg-type]
    for number, codecs in enumerate(CODECS):
        array = store.create_array(f"a{number}", values.shape, dtype, layout=layout, codecs=codecs)
        array[...] = values
        assert_same(array[...], values)
        assert_same(again(store)[f"a{number}"][1:4, ::-2], values[1:4, ::-2])
        assert array.verify() == []


@pytest.mark.parametrize("dtype", NUMBERS)
def test_values_of_any_byte_order_and_memory_layout_are_taken(
    store: bedform.Store, dtype: str
) -> None:
    values = random_values((6, 8), dtype, 2)
    array = store.create_array("a", values.shape, dtype, layout=bedform.Regular((4, 3)))
    wide = np.zeros((12, 16), dtype=dtype)
    wide[::2, ::2] = values
    read_only = values.copy()
    read_only.flags.writeable = False
    for given_values in (
        values.astype(values.dtype.newbyteorder(">")),
        np.asfortranarray(values),
        wide[::2, ::2],
        values[::-1, ::-1][::-1, ::-1],
        read_only,
        values.tolist() if dtype not in ("float16", "float32", "complex64") else values,
    ):
        array[...] = np.zeros((), dtype)
        array[...] = given_values
        if isinstance(given_values, list):
            np.testing.assert_array_equal(array[...], values)
        else:
            assert_same(array[...], values)


@pytest.mark.parametrize("target", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_values_are_cast_as_numpy_assignment_casts_them(
    store: bedform.Store, source: str, target: str
) -> None:
    values = np.array([[0, 1], [1, 100]]).astype(source)
    array = store.create_array("a", (2, 2), target, layout=bedform.Regular((2, 1)))
    if np.dtype(source).kind == "c" and np.dtype(target).kind != "c":
        with pytest.raises(bedform.InvalidArgumentError, match="imaginary"):
            array[...] = values
        return
    array[...] = values
    expected = np.zeros((2, 2), target)
    expected[...] = values
    assert_same(array[...], expected)


def test_numbers_that_the_type_cannot_hold_are_refused_as_numpy_refuses_them(
    store: bedform.Store,
) -> None:
    array = store.create_array("a", (3,), "uint8")
    for value in (300, -1, [1, 2, 300], 2**70):
        with pytest.raises(OverflowError):
            np.zeros(3, "uint8")[...] = value
        with pytest.raises(bedform.InvalidArgumentError, match="a holds uint8"):
            array[...] = value
    assert array[...].tolist() == [0, 0, 0]
    array[...] = 255
    array[1] = 1.75
    assert array[...].tolist() == [255, 1, 255]
    for value in ("1", np.array("x"), b"1", ["a", "b", "c"]):
        with pytest.raises(bedform.InvalidArgumentError, match="holds uint8"):
            array[...] = value
    for value in (object(), [[1, 2], [3]], {}, np.array([object()] * 3)):
        with pytest.raises(bedform.InvalidArgumentError, match="a holds uint8"):
            array[...] = value


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]", "V8", [("a", "i4")], "longdouble", "S0"])
def test_types_that_stores_lack_are_refused_with_the_types_that_they_have(
    store: bedform.Store, dtype: Any
) -> None:
    with pytest.raises(bedform.InvalidArgumentError, match="not supported"):
        store.create_array("a", (3,), dtype)
    assert "a" not in store


def test_bytes_of_fixed_length_are_what_zarr_python_reads(store: bedform.Store) -> None:
    zarr = pytest.importorskip("zarr")
    array = store.create_array("a", (3,), "S4", fill_value=b"none")
    array[:2] = np.array([b"ab", b"c"])
    assert array[...].tolist() == [b"ab", b"c", b"none"]
    assert zarr.open_array(store.store_path, path="a")[...].tolist() == array[...].tolist()


# Text ---------------------------------------------------------------------------------------------

texts = st.text(max_size=12)


@fewer_examples(3)
@given(st.lists(texts, min_size=1, max_size=30), st.integers(1, 5), st.data())
def test_text_of_any_length_and_script_comes_back(
    tmp_path: Path, words: list[str], chunk: int, data: st.DataObject
) -> None:
    store = bedform.create(tmp_path / f"{os.urandom(8).hex()}.zarr", durability="process")
    layout = bedform.Regular((chunk,), (chunk * 3,))
    fill = data.draw(texts)
    array = store.create_array("t", (len(words) + 5,), str, layout=layout, fill_value=fill)
    assert array[...].tolist() == [fill] * (len(words) + 5)
    array[: len(words)] = np.array(words, dtype=object)
    at = data.draw(st.integers(0, len(words) - 1))
    array[at] = "changed"
    words[at] = "changed"
    assert array[...].tolist() == words + [fill] * 5
    assert array[::-3].tolist() == (words + [fill] * 5)[::-3]
    assert array.fill_value == fill


def test_text_is_taken_from_every_kind_of_text(store: bedform.Store) -> None:
    array = store.create_array("t", (3,), "str")
    strings = np.dtypes.StringDType()
    for words in (["a", "bb", ""], np.array(["a", "bb", ""]), np.array(["a", "bb", ""], strings)):
        array[...] = ""
        array[...] = words
        assert array[...].tolist() == ["a", "bb", ""]
        assert all(type(word) is str for word in array[...])
    array[1] = "one"
    assert array[1] == "one"
    assert isinstance(array[1], str)
    assert array.dtype == object
    out = np.empty(3, object)
    assert array.read(out=out) is out
    assert out.tolist() == ["a", "one", ""]


@pytest.mark.parametrize("dtype", ["S5", "U3"])
def test_text_of_fixed_size_comes_back(store: bedform.Store, dtype: str) -> None:
    values = np.array(["", "a", "bcd", "ef"] * 6).astype(dtype).reshape(4, 6)
    array = store.create_array("a", (4, 8), dtype, layout=bedform.Regular((2, 3), (4, 6)))
    array[:, :6] = values
    expected = np.zeros((4, 8), dtype)
    expected[:, :6] = values
    assert_same(array[...], expected)
    assert_same(again(store)["a"][::-1, 1:7:2], expected[::-1, 1:7:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = zarr.open_group(store.store_path, mode="r")["a"][...]
    assert_same(found, expected)


# Fill values --------------------------------------------------------------------------------------

PAYLOADS = {
    "float16": np.array([0x7E01], "u2").view("f2")[0],
    "float32": np.array([0xFFC00001], "u4").view("f4")[0],
    "float64": np.array([0x7FF8000000000123], "u8").view("f8")[0],
    "complex64": np.array([0x7FC00001, 0x3F800000], "u4").view("c8")[0],
    "complex128": np.array([0x3FF0000000000000, 0xFFF8000000000001], "u8").view("c16")[0],
}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_what_was_never_written_is_the_fill_value(store: bedform.Store, dtype: str) -> None:
    kind = np.dtype(dtype)
    fills = [None, kind.type(0), kind.type(1)]
    if kind.kind in "iu":
        fills += [np.iinfo(kind).min, np.iinfo(kind).max]
    if kind.kind in "fc":
        real = np.empty(0, dtype).real.dtype
        fills += [np.nan, np.inf, -np.inf, -0.0, np.finfo(real).max, np.finfo(real).tiny]
        fills += [PAYLOADS[dtype]]
    if kind.kind == "c":
        fills += [complex(1.5, np.nan), complex(-np.inf, 2)]
    for number, fill in enumerate(fills):
        with np.errstate(all="ignore"):
            expected = np.zeros((), dtype) if fill is None else np.asarray(fill).astype(dtype)
        array = store.create_array(
            f"a{number}", (5, 5), dtype, layout=bedform.Regular((2, 2)), fill_value=fill
        )
        assert_same(np.asarray(array.fill_value), expected)
        array[2] = np.ones((), dtype)
        whole = np.full((5, 5), expected, dtype)
        whole[2] = np.ones((), dtype)
        reopened = again(store)[f"a{number}"]
        assert_same(reopened[...], whole)
        assert_same(np.asarray(reopened.fill_value), expected)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("int32", 1.5),
        ("int32", np.nan),
        ("int64", 2**63),
        ("float32", "x"),
        ("bool", "x"),
        ("float64", [1, 2]),
    ],
)
def test_a_fill_value_that_the_type_cannot_hold_is_refused(
    store: bedform.Store, dtype: str, fill: Any
) -> None:
    with pytest.raises(bedform.InvalidArgumentError, match="fill value"):
        store.create_array("a", (3,), dtype, fill_value=fill)


def test_large_integers_as_fill_values_keep_every_digit(store: bedform.Store) -> None:
    for name, dtype, fill in (("a", "int64", 2**63 - 1), ("b", "uint64", 2**64 - 1)):
        assert store.create_array(name, (2,), dtype, fill_value=fill)[0] == fill
    assert again(store)["b"].fill_value == 2**64 - 1


# Attributes, groups, deletion ---------------------------------------------------------------------

ATTRIBUTES = {
    "text": '\u00fc\u4e2d \n " \\ / \U0001f600',
    "": "an empty name",
    "number": 1.5,
    "large": 2**53 + 1,
    "tiny": 5e-324,
    "flags": [True, False, None],
    "nested": {"a": {"b": [1, [2, {"c": []}]]}, "zarr.json": {"bedform": {"store": "x"}}},
}


def test_attributes_come_back_as_they_were_given(store: bedform.Store) -> None:
    group = store.create_group("g", ATTRIBUTES)
    array = group.create_array("a", (2,), "i4", attributes=ATTRIBUTES)
    store.attributes = ATTRIBUTES
    for there in (store, group, array, again(store), again(store)["g"], again(store)["g/a"]):
        assert there.attributes == ATTRIBUTES
    array.attributes = {"only": 1}
    assert again(store)["g/a"].attributes == {"only": 1}
    assert zarr.open_group(store.store_path, mode="r")["g/a"].attrs.asdict() == {"only": 1}


def test_attributes_of_numpy_become_what_json_has_and_what_it_lacks_stays_a_number(
    store: bedform.Store,
) -> None:
    plain = {
        "scalar": np.float32(1.5),
        "integer": np.int64(-3),
        "flag": np.bool_(True),
        "array": np.arange(3, dtype="u1"),
        "bytes": b"K",
    }
    expected = {"scalar": 1.5, "integer": -3, "flag": True, "array": [0, 1, 2], "bytes": "K"}
    store.attributes = plain
    assert again(store).attributes == expected
    # Any reader of JSON reads the document.
    json.loads((Path(store.store_path) / "zarr.json").read_bytes(), parse_constant=pytest.fail)
    store.attributes = {**plain, "infinities": [np.inf, -np.inf], "nan": math.nan}
    found = dict(again(store).attributes)
    assert math.isnan(found.pop("nan"))
    assert found == {**expected, "infinities": [math.inf, -math.inf]}
    with pytest.raises(TypeError, match="set cannot be an attribute"):
        store.attributes = {"a": {1, 2}}


def test_bare_nan_in_attributes_of_other_writers_is_a_number(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "z.zarr", attributes={"a": math.nan, "b": [-math.inf]})
    group.create_array("x", shape=(2,), dtype="f4", attributes={"valid_max": math.inf})
    found = bedform.open(tmp_path / "z.zarr")
    assert math.isnan(found.attributes["a"])
    assert found.attributes["b"] == [-math.inf]
    assert found["x"].attributes == {"valid_max": math.inf}


def test_groups_are_found_by_path_from_any_group(store: bedform.Store) -> None:
    store.create_group("a/b/c", {"level": 3})
    store["a/b"].create_array("x", (2,), "i4")[...] = [4, 5]
    store.create_array("deep/er/y", (1,), "f8")
    assert list(store) == ["a", "deep"]
    assert sorted(store.groups()) == ["a", "a/b", "a/b/c", "deep", "deep/er"]
    assert sorted(store.arrays()) == ["a/b/x", "deep/er/y"]
    group = again(store)["a"]
    assert sorted(group.groups()) == ["b", "b/c"]
    assert list(group.arrays()) == ["b/x"]
    assert group["b"]["x"][...].tolist() == [4, 5]
    assert group["b/c"].attributes == {"level": 3}
    assert "b/x" in group
    assert "x" not in group
    assert 5 not in group
    assert len(group) == 1
    assert group.path == "a"
    assert (group["b/x"].path, group["b/x"].name) == ("a/b/x", "x")


@pytest.mark.parametrize("document", ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"])
def test_nothing_is_called_as_the_documents_of_zarr_are(
    store: bedform.Store, document: str
) -> None:
    """Regression: an array named ``zarr.json`` counted as damage; a session lost its writes."""
    new = {"shape": (2,), "dtype": "int8"}
    with store.session() as session:
        for name in (document, f"g/{document}", f"{document}/t"):
            for create in (
                lambda name=name: store.create_array(name, **new),
                lambda name=name: store.create_arrays({"t": new, name: new}),
                lambda name=name: session.create_arrays({"t": new, name: new}),
                lambda name=name: store.create_group(name),
                lambda name=name: bedform.write_dataset(
                    xarray.Dataset({"t": ("x", [1])}), store.store_path, mode="a", group=name
                ),
            ):
                with pytest.raises(bedform.InvalidArgumentError, match="choose another name"):
                    create()
        session.create_arrays({"t": new})
    assert list(store) == ["t"]


def test_what_is_deleted_is_gone_and_its_name_is_free(store: bedform.Store) -> None:
    store.create_array("g/a", (4,), "i4")[...] = 7
    store.create_array("g/h/b", (4,), "i4")[...] = 8
    old = again(store)["g/a"]
    del store["g/a"]
    assert "g/a" not in again(store)
    with pytest.raises(bedform.NotFoundError):
        old[...]
    with pytest.raises(bedform.NotFoundError):
        del store["g/a"]
    new = store.create_array("g/a", (2,), "f8", fill_value=1.5)
    assert new[...].tolist() == [1.5, 1.5]
    del store["g"]
    assert list(again(store)) == []
    assert not (Path(store.store_path) / "g").exists()
    assert dict(zarr.open_group(store.store_path, mode="r").members()) == {}


def test_an_append_to_several_arrays_is_seen_as_a_whole(store: bedform.Store) -> None:
    layout = bedform.Regular((2, 3), (4, 3))
    store.create_array("t", (0, 3), "f4", ("time", "x"), layout=layout)
    store.create_array("time", (0,), "i8", ("time",), layout=bedform.Regular((2,), (4,)))
    values = np.zeros((0, 3), "f4")
    for count in (1, 2, 5, 0, 3):
        start = len(values)
        new = random_values((count, 3), "float32", count)
        times = np.arange(start, start + count)
        assert store.append({"t": new, "time": times}, dim="time") == start
        values = np.concatenate([values, new])
        assert_same(again(store)["t"][...], values)
        assert again(store)["time"][...].tolist() == list(range(len(values)))
    with pytest.raises(bedform.InvalidArgumentError, match="different lengths"):
        store.append({"t": np.zeros((2, 3)), "time": [1]}, dim="time")
    with pytest.raises(bedform.InvalidArgumentError, match="dimensions"):
        store.append({"t": np.zeros((2, 3))}, dim="depth")
    with pytest.raises(bedform.InvalidArgumentError):
        store["t"].append(np.zeros((2, 4)))
    with pytest.raises(bedform.InvalidArgumentError, match="axes"):
        store["t"].append(np.zeros((2, 3)), axis=2)
    assert store["t"].append(np.zeros((11, 1)), axis=-1) == 3
    assert store["t"].shape == (11, 4)


def test_what_was_cut_off_does_not_come_back_when_an_array_grows(store: bedform.Store) -> None:
    for dtype in ("i4", "str"):
        array = store.create_array(
            f"a{dtype}", (7, 7), dtype, layout=bedform.Regular((2, 3), (4, 6))
        )
        new: Any = 5 if dtype == "i4" else "five"
        array[...] = new
        array.resize((3, 2))
        array.resize((8, 9))
        expected = np.full(
            (8, 9), 0 if dtype == "i4" else "", dtype="i4" if dtype == "i4" else object
        )
        expected[:3, :2] = new
        assert_same(array[...], expected)
        with pytest.raises(bedform.InvalidArgumentError):
            array.resize((3,))
        array.resize((0, 9))
        array.resize((2, 2))
        assert_same(array[...], np.full((2, 2), expected[5, 5], expected.dtype))


# Errors -------------------------------------------------------------------------------------------


def test_python_has_a_class_for_every_kind_of_error_and_no_other() -> None:
    kinds = set(_internal.error_kinds())
    # The interpreter's own: Ctrl-C.
    assert kinds - {"Interrupted"} == set(_errors.BY_KIND)
    for kind, found in _errors.BY_KIND.items():
        assert found.kind == kind
        assert found.__name__ in bedform.__all__
        assert issubclass(found, bedform.BedformError)
        assert str(found("text")) == "text"


def test_a_panic_below_a_call_is_an_error_of_one_line_that_a_program_can_catch() -> None:
    said = "a bug of Bedform 0.1.0: index out of bounds at x.rs:7; please report this line"

    def panics() -> None:
        raise _internal.PanicException(said)

    with pytest.raises(bedform.InternalError) as caught:
        _errors.engine_call(panics)()
    assert isinstance(caught.value, Exception)
    assert (str(caught.value), caught.value.kind) == (said, "Internal")
    plain = _errors.translated(_internal.PanicException("no such axis"))
    assert str(plain).startswith("a bug of Bedform: no such axis; ")


def test_a_number_that_the_engine_does_not_hold_is_an_argument_that_is_named() -> None:
    with pytest.raises(bedform.InvalidArgumentError, match=r"^here: a number is out of range"):
        _errors.engine_call(_internal.placement, "here")("row-major", [1 << 70], 4)


def errors(path: Path) -> dict[str, tuple[Any, type[Exception]]]:
    """Calls that fail, with the builtin class that their error must be."""
    store = bedform.create(path / "s.zarr", durability="process")
    array = store.create_array("t", (4, 6), "f4", ("time", "x"), layout=bedform.Regular((2, 3)))
    array[...] = 1
    reader = bedform.open(path / "s.zarr")
    broken = bedform.create(path / "broken.zarr", durability="process")
    broken.create_array("t", (4,), "i8", codecs=["zstd"])[...] = np.arange(4)
    shard = path / "broken.zarr/t/c/0"
    damaged = bytearray(shard.read_bytes())
    damaged[5] ^= 1
    shard.write_bytes(damaged)
    (path / "text.txt").write_text("x")
    (path / "plain").mkdir()
    return {
        "open a missing store": (lambda: bedform.open(path / "no.zarr"), FileNotFoundError),
        "open a plain directory": (lambda: bedform.open(path / "plain"), FileNotFoundError),
        "open with a wrong mode": (lambda: bedform.open(path / "s.zarr", mode="w"), ValueError),  # type: ignore[arg-type]
        "create over a store": (lambda: bedform.create(path / "s.zarr"), FileExistsError),
        "get a missing array": (lambda: store["u"], KeyError),
        "get a path that leaves": (lambda: store["../t"], ValueError),
        "create a name twice": (lambda: store.create_array("t", (1,), "i4"), FileExistsError),
        "create inside an array": (lambda: store.create_array("t/u", (1,), "i4"), ValueError),
        "create outside": (lambda: store.create_array("../u", (1,), "i4"), ValueError),
        "create a document": (lambda: store.create_array("g/zarr.json", (1,), "i4"), ValueError),
        "create with a negative shape": (lambda: store.create_array("u", (-1,), "i4"), ValueError),
        "create with a wrong rank of chunks": (
            lambda: store.create_array("u", (2, 2), "i4", layout=bedform.Regular((1,), (1,))),
            ValueError,
        ),
        "create with shards that do not fit": (
            lambda: store.create_array("u", (9,), "i4", layout=bedform.Regular((2,), (3,))),
            ValueError,
        ),
        "create with an unknown codec": (
            lambda: store.create_array("u", (2,), "i4", codecs=["lzma"]),
            ValueError,
        ),
        "create with an unknown order": (
            lambda: store.create_array("u", (2,), "i4", layout=bedform.Regular((1,), order="zz")),  # type: ignore[arg-type]
            ValueError,
        ),
        "create with names for other axes": (
            lambda: store.create_array("u", (2,), "i4", ("x", "y")),
            ValueError,
        ),
        "read out of bounds": (lambda: array[4], IndexError),
        "write out of bounds": (lambda: array.__setitem__((0, 6), 1), IndexError),
        "write text to numbers": (lambda: array.__setitem__(0, "x"), ValueError),
        "write a wrong shape": (lambda: array.__setitem__(0, np.zeros(5)), ValueError),
        "write to a reader": (lambda: reader["t"].__setitem__(0, 1), PermissionError),
        "create in a reader": (lambda: reader.create_array("u", (1,), "i4"), PermissionError),
        "resize to another rank": (lambda: array.resize((3,)), ValueError),
        "append what does not fit": (lambda: array.append(np.zeros((1, 5))), ValueError),
        "read a damaged chunk": (lambda: broken["t"][...], ValueError),
        "open a file that is no data": (lambda: bedform.open(path / "text.txt"), Exception),
    }


def test_every_error_is_one_line_that_names_the_object(tmp_path: Path) -> None:
    lines = []
    for name, (act, builtin) in errors(tmp_path).items():
        with pytest.raises(builtin) as caught:
            act()
        said = str(caught.value)
        assert len(said.splitlines()) == 1, said
        assert isinstance(caught.value, (bedform.BedformError, IndexError)), name
        kind = type(caught.value).__name__
        if name != "open a file that is no data":
            lines.append(f"{name}: {kind}: {said.replace(str(tmp_path), 'DIR')}")
    path = SNAPSHOTS / "errors.txt"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.write_text("\n".join(lines) + "\n")
    assert path.exists(), "no snapshot: look at the lines, then run with UPDATE_SNAPSHOTS=1"
    assert lines == path.read_text().splitlines()


# Other handles, processes and libraries -----------------------------------------------------------


WRITE_TWICE = """
import sys
import bedform, numpy as np, xarray
root = sys.argv[1]
array = bedform.create(root + "/s.zarr").create_array("t", (500, 500), "float64", codecs=())
dataset = xarray.Dataset({"t": (("y", "x"), np.ones((500, 500)))})
def write_dataset():
    bedform.write_dataset(dataset, root + "/d.zarr", codecs=())
for write in (lambda: array.__setitem__(..., 1), write_dataset):
    try:
        write()
    except bedform.BedformError as error:
        print(error.kind, error)
"""


def written_twice(root: Path, prepare: str) -> list[str]:
    """Returns the messages of a child that writes 2 MB to a new store and a new data set."""
    python = [sys.executable, "-c", WRITE_TWICE, str(root)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{prepare} && exec "$@"', "sh", *python],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


TOO_LARGE = "it would pass the limit on the size of a file (RLIMIT_FSIZE): raise it with ulimit -f"


@pytest.mark.parametrize(
    ("prepare", "kind", "said"),
    [
        ("mount -t tmpfs -o size=1m none {}", "NoSpace", "no space left; free some and try again"),
        ("ulimit -f 200", "Io", TOO_LARGE),
    ],
)
def test_a_full_device_is_an_error_that_names_the_store(
    tmp_path: Path, prepare: str, kind: str, said: str
) -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:  # noqa: S607
        pytest.skip("the system lets nobody mount")
    stores = [tmp_path / "s.zarr", tmp_path / "d.zarr"]
    expected = [f'{kind} {store}: cannot write "t/c/0/0": {said}' for store in stores]
    assert written_twice(tmp_path, prepare.format(tmp_path)) == expected


def test_storage_that_refuses_says_what_to_do() -> None:
    for kind, phrase, remedy in (
        ("ReadOnly", "it is read-only", "choose another place"),
        ("PermissionDenied", "permission denied", "choose another place or ask its owner"),
    ):
        error = _internal.EngineError(kind, f'cannot lock "t": {phrase}')
        said = str(_errors.translated(error, "run.zarr"))
        assert said == f'run.zarr: cannot lock "t": {phrase}; {remedy}'
    # A message with the store's path needs no second one.
    inside = _internal.EngineError("Io", 'cannot open "run.zarr/t": the device or system failed')
    assert str(_errors.translated(inside, "run.zarr")) == inside.args[1]


def test_stores_and_arrays_pickle_as_path_and_options(store: bedform.Store) -> None:
    array = store.create_array("g/a", (3,), "i4")
    array[...] = [1, 2, 3]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        twin = pickle.loads(pickle.dumps(array, protocol))  # noqa: S301 - our own
        assert twin[...].tolist() == [1, 2, 3]
        twin[0] = 7
        assert array[0] == 7
        array[0] = 1
    reader = pickle.loads(pickle.dumps(again(store)))  # noqa: S301 - our own
    with pytest.raises(bedform.ReadOnlyError):
        reader["g/a"][0] = 1


def test_sixteen_threads_read_and_write_one_array(store: bedform.Store) -> None:
    layout = bedform.Regular((3, 4), (12, 16))
    array = store.create_array("a", (32, 64), "i8", layout=layout)
    expected = np.zeros((32, 64), "i8")
    wrong: list[Any] = []
    stop = threading.Event()

    def write(thread: int) -> None:
        # Columns of one thread lie in the chunks of others.
        for row in range(0, 32, 2):
            array[row : row + 2, thread::8] = (row + 1) * 100 + thread
            expected[row : row + 2, thread::8] = (row + 1) * 100 + thread

    def read(thread: int) -> None:
        handle = again(store)["a"]
        while not stop.is_set():
            found = handle[thread::8]
            row, column = np.nonzero(found)
            right = (row * 8 + thread) // 2 * 200 + 100 + column % 8
            if (found[row, column] != right).any():
                wrong.append(found)

    with ThreadPoolExecutor(16) as pool:
        readers = [pool.submit(read, thread) for thread in range(8)]
        writers = [pool.submit(write, thread) for thread in range(8)]
        for done in writers:
            done.result()
        stop.set()
        for done in readers:
            done.result()
    assert not wrong
    assert_same(array[...], expected)


def test_sixteen_threads_append_and_nothing_is_lost(store: bedform.Store) -> None:
    array = store.create_array("a", (0, 2), "i8", layout=bedform.Regular((3, 2), (6, 2)))
    with ThreadPoolExecutor(16) as pool:
        starts = list(pool.map(lambda at: (at, array.append(np.full((2, 2), at))), range(48)))
    assert sorted(start for _, start in starts) == list(range(0, 96, 2))
    for at, start in starts:
        assert (array[start : start + 2] == at).all()


@pytest.mark.parametrize("cache", [0, "1 MiB", "256 MiB"])
def test_two_handles_see_each_others_writes_whatever_they_keep(
    store: bedform.Store, cache: Any
) -> None:
    values = random_values((20, 20), "float64", 5)
    store.create_array("a", (20, 20), "f8", layout=bedform.Regular((5, 5), (10, 10)))
    one = again(store, mode="r+", cache=cache)["a"]
    two = again(store, mode="r+", cache=cache)["a"]
    one[...] = values
    for step in range(20):
        row = random_values((20,), "float64", step)
        (one if step % 2 else two)[step] = row
        values[step] = row
        assert_same(one[...], values)
        assert_same(two[::3, 4], values[::3, 4])
    two.resize((25, 18))
    grown = np.zeros((25, 18))
    grown[:20] = values[:, :18]
    assert one.shape == (25, 18)
    assert_same(one[...], grown)


def test_a_handle_that_never_looks_keeps_the_shape_that_it_knows(store: bedform.Store) -> None:
    array = store.create_array("a", (4,), "i4", layout=bedform.Regular((2,)))
    array[...] = 1
    pinned = again(store, freshness="open")["a"]
    array.resize((6,))
    assert pinned.shape == (4,)
    assert again(store, freshness="never")["a"].shape == (6,)
    assert array.shape == (6,)


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_a_handle_that_does_not_look_reads_the_fill_value_for_rows_that_others_removed(
    store: bedform.Store, freshness: Any
) -> None:
    array = store.create_array("a", (4,), "i4", layout=bedform.Regular((2,)), fill_value=-1)
    array[...] = 1
    other = again(store, freshness=freshness)
    assert other["a"].shape == (4,)
    array.resize((2,))
    assert other["a"][...].tolist() == [1, 1, -1, -1]
    assert other.snapshot()["a"].shape == again(store, freshness=freshness)["a"].shape == (2,)


@pytest.mark.parametrize("codecs", [[], ["zstd"]])
def test_a_shard_that_another_library_rewrote_is_noticed_and_read(
    store: bedform.Store, codecs: list[Any]
) -> None:
    values = random_values((20, 20), "int32", 6)
    layout = bedform.Regular((5, 5), (10, 10), order="hilbert")
    array = store.create_array("a", (20, 20), "i4", layout=layout, codecs=codecs)
    array[...] = values
    other = again(store)["a"]
    assert_same(other[...], values)
    foreign = zarr.open_array(store.store_path, path="a", mode="r+")
    foreign[3:7, 4:9] = -1
    values[3:7, 4:9] = -1
    assert_same(other[...], values)
    assert_same(array[...], values)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{store.store_path}/a"}}
    third = tensorstore.open(spec, open=True).result()
    third[12:, 3:11].write(np.int32(-2)).result()
    values[12:, 3:11] = -2
    assert_same(other[...], values)
    # Our write merges with the data of the other programs.
    array[::2, 1] = 9
    values[::2, 1] = 9
    assert_same(other[...], values)
    assert_same(foreign[...], values)
    assert_same(np.asarray(third.read().result()), values)
    assert array.verify() == []


def test_a_shape_and_attributes_that_another_library_changed_are_noticed(
    store: bedform.Store,
) -> None:
    array = store.create_array("a", (4, 4), "i4", layout=bedform.Regular((2, 2)))
    array[...] = 3
    foreign = zarr.open_array(store.store_path, path="a", mode="r+")
    foreign.resize((6, 4))
    foreign[4:] = 5
    foreign.attrs["units"] = "K"
    assert array.shape == (6, 4)
    assert array[...].tolist() == [[3] * 4] * 4 + [[5] * 4] * 2
    assert array.attributes == {"units": "K"}
    assert again(store)["a"].shape == (6, 4)


def test_what_is_kept_in_memory_changes_no_answer(store: bedform.Store) -> None:
    values = random_values((30, 30), "float32", 7)
    store.create_array("a", values.shape, "f4", layout=bedform.Regular((4, 4), (16, 16)))
    again(store, mode="r+")["a"][...] = values
    handles = [again(store, cache=cache)["a"] for cache in (0, "2 KiB", "64 MiB")]
    generator = np.random.default_rng(8)
    for _ in range(50):
        low, high = np.sort(generator.integers(0, 31, (2, 2)), axis=0)
        key = (slice(low[0], high[0]), slice(low[1], high[1]))
        for handle in handles:
            assert_same(handle[key], values[key])


@pytest.mark.parametrize("durability", ["disk", "process"])
def test_every_durability_writes_the_same(tmp_path: Path, durability: Any) -> None:
    store = bedform.create(tmp_path / "s.zarr", durability=durability)
    array = store.create_array("a", (0, 4), "i4", layout=bedform.Regular((2, 2), (4, 4)))
    array.append(np.arange(20).reshape(5, 4))
    array[1, 1] = -1
    array.resize((4, 3))
    expected = np.arange(20, dtype="i4").reshape(5, 4)
    expected[1, 1] = -1
    assert_same(again(store)["a"][...], expected[:4, :3])
    with pytest.raises(ValueError, match="durability"):
        bedform.open(store.store_path, durability="perhaps")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="freshness"):
        bedform.open(store.store_path, freshness="often")  # type: ignore[arg-type]


def test_explain_says_what_a_read_then_does(store: bedform.Store) -> None:
    layout = bedform.Regular((4, 5), (8, 10))
    array = store.create_array("a", (20, 20), "f8", layout=layout)
    array[:10] = random_values((10, 20), "float64", 9)
    plan = again(store, cache=0)["a"].explain(np.s_[3:12, 7]).to_dict()
    assert plan["objects"] == 2
    # Three rows of chunks were reached by the write, the last of them in part.
    assert plan["chunks"] == 3
    assert plan["chunks_never_written"] == 0
    assert plan["result_bytes"] == 9 * 8
    assert plan["bytes"] >= plan["index_bytes"] > 0


def test_an_explanation_has_times_in_the_unit_that_fits() -> None:
    facts = {"predicted_cold_seconds": 2.883, "planning_seconds": 1.2e-4, "bytes": 2048}
    shown = str(_explanation.Explanation(facts)).split("\n")
    assert shown[0].split("  ")[-1] == "2.88 s"
    assert shown[1].split("  ")[-1] == "120 us"


def test_a_measurement_that_includes_indexes_says_so(store: bedform.Store) -> None:
    layout = bedform.Regular((5, 5), (10, 10))
    array = store.create_array("t", (10, 10), "float32", layout=layout)
    array[...] = 1
    array = bedform.open(store.store_path, cache=0)["t"]
    assert "note: measured" not in str(array.explain(np.s_[0]))
    # An object that was changed within a step of the clock is not kept.
    time.sleep(0.05)
    array = bedform.open(store.store_path)["t"]
    array[0]
    assert "note: measured includes shard indexes" in str(array.explain(np.s_[0]))


def test_masked_elements_and_times_are_no_numbers(tmp_path: Path) -> None:
    """Regression: masked elements, and times as seconds since 1970, were written as data."""
    store = bedform.create(tmp_path / "s.zarr")
    array = store.create_array("t", shape=(3,), dtype="float64")
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, True])
    times = np.array(["2020-01-01"] * 3, "M8[s]")
    with store.session() as session:
        parts = session.declare([[0]], [[3]])
        writes = [
            lambda values: array.__setitem__(slice(None), values),
            lambda values: array.oindex.__setitem__([0, 1, 2], values),
            lambda values: array.vindex.__setitem__([0, 1, 2], values),
            array.append,
            lambda values: store.append({"t": values}, "dim_0"),
            lambda values: session.write("t", values),
            lambda values: session.write_at("t", slice(None), values),
            lambda values: session.write_boxes("t", values, [[0]], [[3]]),
            lambda values: session.write_declared("t", values, parts),
            lambda values: session.append("t", values),
        ]
        for write in writes:
            for values in (masked, [masked[0], *masked[1:]], list(masked)):
                with pytest.raises(bedform.InvalidArgumentError, match="2 masked elements; fill"):
                    write(values)
            for values in (times, times - times[0], list(times)):
                with pytest.raises(bedform.InvalidArgumentError, match="holds float64, not"):
                    write(values)
        session.write("t", np.ma.array([1.0, 2.0, 3.0]))
    assert array[...].tolist() == [1, 2, 3]
    array[...] = masked.filled(-1)
    assert array[...].tolist() == [1, -1, -1]


@pytest.mark.parametrize("order", ["z", "hilbert"])
def test_an_order_that_cannot_be_walked_is_refused_when_the_array_is_created(tmp_path, order):
    store = bedform.create(tmp_path / "s.zarr")
    for rank in (8, 9):
        layout = bedform.Regular(chunks=(1,) * rank, shards=(2,) * rank, order=order)
        if rank == 9:
            with pytest.raises(bedform.InvalidArgumentError, match=f"'?n9'?.*{order}.*row-major"):
                store.create_array("n9", shape=(2,) * rank, dtype="int32", layout=layout)
            assert list(store) == ["n8"]
        else:
            array = store.create_array("n8", shape=(2,) * rank, dtype="int32", layout=layout)
            with store.session() as session:
                session.write("n8", np.ones((2,) * rank, "int32"))
            assert array[...].sum() == 2**rank


def test_looking_an_array_up_reads_its_metadata_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = bedform.create(tmp_path / "s.zarr")
    created.create_array("g/t", data=np.arange(3.0))
    store = bedform.open(tmp_path / "s.zarr")
    call, called = type(store)._call, []

    def recorded(self: Any, method: Any) -> Any:
        called.append(method.__name__)
        return call(self, method)

    monkeypatch.setattr(type(store), "_call", recorded)
    assert store["g/t"].shape == (3,)
    assert called.count("array") == 1
    assert "kind" not in called
    assert store["g"]["t"].shape == (3,)
    with pytest.raises(bedform.NotFoundError, match=r"no array or group .g/u."):
        store["g/u"]
