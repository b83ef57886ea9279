"""Every user-visible error is a `BedformError` and also the fitting builtin exception."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray

import bedform as bf
from bedform import _errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(bf.__file__).parent
SOURCES = Path(__file__).parent.parent / "src"

#: Allowed builtin exceptions by file, with reasons.
BUILTINS = {
    # Methods for subclasses to implement.
    "_creating.py": {"NotImplementedError"},
    "_members.py": {"NotImplementedError"},
    "_reads.py": {"NotImplementedError"},
    # Seen only by the process that requests values, which translates them.
    "_foreign_values.py": {"ValueError"},
    "_foreign_worker.py": {"AssertionError", "ValueError"},
    # In the child process that reads a log; the parent adds the log's path.
    "_darshan.py": {"ValueError"},
    # Required by Python's protocol of `__getattr__`.
    "_advise.py": {"AttributeError"},
    # Files that commands write; the command line shows such errors in one line.
    "_output_file.py": {"FileNotFoundError", "PermissionError", "OSError"},
    # Conversion, which moves into the engine.
    "_convert.py": {"ValueError", "BlockingIOError", "FileExistsError"},
    "_convert_url.py": {"ValueError", "FileExistsError"},
}


def classes() -> Iterator[type[bf.BedformError]]:
    for value in vars(_errors).values():
        if isinstance(value, type) and issubclass(value, bf.BedformError):
            yield value


def test_the_table_of_errors_is_that_of_the_classes() -> None:
    rows = re.findall(r"^\| ``(\w+)`` \| ``(\w+)`` \| (.*)\|$", _errors.__doc__ or "", re.MULTILINE)
    documented = {
        name: (kind, tuple(re.findall(r"``(\w+)``", bases))) for name, kind, bases in rows
    }
    defined = {
        error.__name__: (
            error.kind,
            tuple(base.__name__ for base in error.__bases__ if base is not bf.BedformError),
        )
        for error in classes()
        if error is not bf.BedformError
    }
    assert documented == defined
    assert {error.__name__ for error in classes()} <= set(bf.__all__)
    for kind, error in _errors.BY_KIND.items():
        assert error.kind == kind
    for error in classes():
        assert error("what happened").kind in _errors.BY_KIND
        assert str(error("what happened")) == "what happened"


def test_errors_that_the_documentation_names_are_exported() -> None:
    named = set()
    # Conversion raises builtin ones: see `BUILTINS`.
    for public in set(bf.__all__) - {"convert"}:
        value = getattr(bf, public)
        members = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
        for one in [value, *(member for name, member in members if not name.startswith("_"))]:
            text = inspect.getdoc(one) or ""
            section = re.search(r"Raises\n-+\n((?:.*\n?)*?)(?:\n\w+\n-+\n|\Z)", text)
            if section:
                named |= set(re.findall(r"^(\w+)$", section[1], re.MULTILINE))
    assert len(named) > 5
    for name in named:
        assert issubclass(getattr(bf, name), bf.BedformError), name


def test_nothing_raises_a_builtin_exception() -> None:
    exceptions = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    for path in PACKAGE.glob("*.py"):
        raised = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                raised |= {called.id} & exceptions if isinstance(called, ast.Name) else set()
        assert raised <= BUILTINS.get(path.name, set()), path.name
    for path in SOURCES.glob("*.rs"):
        raised = set(re.findall(r"\bPy(\w+Error)::new_err", path.read_text()))
        # The package checks types; errors of the MPI object become engine errors.
        allowed = {"TypeError"} | ({"ValueError"} if path.name == "comm.rs" else set())
        assert raised <= allowed, path.name


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", (4, 6), "int32", ("y", "x"))
    store.create_array("scalar", (), "int32")
    store.create_array("text", (2,), str)
    return store


def attributes_of(store: bf.Store, attributes: Any) -> None:
    store.attributes = attributes


def written(store: bf.Store, name: str, values: Any, **options: Any) -> None:
    with store.session(**options) as session:
        session.write(name, values)


WRONG: list[tuple[str, type[Exception], Callable[[bf.Store], Any]]] = [
    ("no array", KeyError, lambda s: s["q"]),
    ("no array to delete", KeyError, lambda s: s.__delitem__("q")),
    ("no array to settle", KeyError, lambda s: s.settle(arrays=["q"])),
    ("no array to write", KeyError, lambda s: written(s, "q", 1)),
    ("no store", FileNotFoundError, lambda s: bf.open(s.store_path + "/../q.zarr")),
    ("a store that exists", FileExistsError, lambda s: bf.create(s.store_path)),
    ("an array that exists", FileExistsError, lambda s: s.create_array("t", (1,), "int8")),
    ("a name that is no text", ValueError, lambda s: s.array(3)),  # type: ignore[arg-type]
    ("a name that is no UTF-8", ValueError, lambda s: s["\ud800"]),
    ("a path upwards", ValueError, lambda s: s["../t"]),
    ("beyond the end", IndexError, lambda s: s["t"][4, 0]),
    ("far beyond the end", IndexError, lambda s: s["t"][10**30, 0]),
    ("too many indices", IndexError, lambda s: s["t"][0, 0, 0]),
    ("two ellipses", IndexError, lambda s: s["t"][..., ...]),
    ("an index with a fraction", IndexError, lambda s: s["t"][1.5]),
    ("an index by name", IndexError, lambda s: s["t"]["y"]),
    ("a slice without a step", IndexError, lambda s: s["t"][::0]),
    ("a slice with a fraction", TypeError, lambda s: s["t"][1.5:]),
    ("rows of several lengths", IndexError, lambda s: s["t"].oindex[[[1], [1, 2]]]),
    ("points that do not fit", IndexError, lambda s: s["t"].vindex[[1, 2], [1, 2, 3]]),
    ("no axes to count", TypeError, lambda s: len(s["scalar"])),
    ("no view", ValueError, lambda s: s["t"].__array__(copy=False)),
    ("values that do not fit", ValueError, lambda s: s["t"].__setitem__(..., np.zeros(5))),
    ("values of another type", ValueError, lambda s: s["t"].__setitem__(..., "a")),
    ("a buffer of another shape", ValueError, lambda s: s["t"].read(out=np.zeros(3, "int32"))),
    ("no JSON", TypeError, lambda s: attributes_of(s, {"a": {1, 2}})),
    ("no mapping", ValueError, lambda s: attributes_of(s, 3)),
    ("half a character", ValueError, lambda s: attributes_of(s, {"a": "\ud800"})),
    ("no type", ValueError, lambda s: s.create_array("q", (1,), "int33")),
    ("no type of ours", ValueError, lambda s: s.create_array("q", (1,), "datetime64[s]")),
    ("no fill value", ValueError, lambda s: s.create_array("q", (1,), "int8", fill_value=300)),
    (
        "rows as fill value",
        ValueError,
        lambda s: s.create_array("q", (1,), "i1", fill_value=[[1], 2]),
    ),
    ("text as bytes", ValueError, lambda s: s.create_array("q", (1,), "S3", fill_value="abc")),
    ("no size", ValueError, lambda s: s.session(buffer="1 G")),
    ("a size with a fraction", ValueError, lambda s: bf.open(s.store_path, cache=1.5)),  # type: ignore[arg-type]
    ("no time", ValueError, lambda s: s.settle(grace="soon")),
    ("no time at all", ValueError, lambda s: s.settle(grace=None)),  # type: ignore[arg-type]
    ("no mode", ValueError, lambda s: bf.open(s.store_path, mode="w")),  # type: ignore[call-overload]
    ("text in a session", NotImplementedError, lambda s: written(s, "text", ["a", "b"])),
    ("read only", PermissionError, lambda s: bf.open(s.store_path)["t"].__setitem__(..., 1)),
    ("no dataset", TypeError, lambda s: bf.write_dataset(3, s.store_path + "2")),  # type: ignore[arg-type]
    ("no question", ValueError, lambda s: bf.advise((4,), "int8", reads={("z",): 1.0})),
]


@pytest.mark.parametrize(("what", "builtin", "call"), WRONG, ids=[what for what, *_ in WRONG])
def test_what_goes_wrong_is_an_error_of_bedform_and_of_python(
    store: bf.Store, what: str, builtin: type[Exception], call: Callable[[bf.Store], Any]
) -> None:
    with pytest.raises(bf.BedformError) as caught:
        call(store)
    assert isinstance(caught.value, builtin), (what, type(caught.value))
    assert caught.value.kind in _errors.BY_KIND
    assert "\n" not in str(caught.value)
    assert str(caught.value)


#: Calls about a file, each with an argument that no such call takes.
WRONG_OF_FILES: list[tuple[str, type[Exception], str, Callable[[str], Any]]] = [
    ("a group", ValueError, "'g' is a group", lambda p: bf.optimize(p, selections={"g": [1]})),
    ("the root", ValueError, "'' is a group", lambda p: bf.optimize(p, selections={"": [1]})),
    ("one number", TypeError, "of 't'", lambda p: bf.optimize(p, selections={"t": 1})),  # type: ignore[dict-item]
    ("no dict", TypeError, "selections must", lambda p: bf.optimize(p, selections="t")),  # type: ignore[call-overload]
    ("text", TypeError, "reads must", lambda p: bf.optimize(p, reads="time")),  # type: ignore[call-overload]
    ("a list", TypeError, "reads must", lambda p: bf.optimize(p, reads=["time"])),  # type: ignore[call-overload]
    ("an axis", TypeError, "not 0", lambda p: bf.optimize(p, reads={0: 1})),
    ("axes", TypeError, "not (0,)", lambda p: bf.optimize(p, reads={(0,): 1})),
    (
        "a region in text",
        TypeError,
        "region must",
        lambda p: bf.optimize(p, reads={"x": 1}, region="x=1:5"),  # type: ignore[call-overload]
    ),
    (
        "a region of no name",
        TypeError,
        "region: a key",
        lambda p: bf.optimize(p, reads={"x": 1}, region={0: (1, 5)}),  # type: ignore[dict-item]
    ),
    ("layouts", TypeError, "reads must", lambda p: bf.convert(p, p + ".zarr", reads="x")),  # type: ignore[arg-type]
    ("advice", TypeError, "not 0", lambda _: bf.advise((4,), "int8", reads={0: 1.0})),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(
    ("builtin", "said", "call"),
    [one[1:] for one in WRONG_OF_FILES],
    ids=[o[0] for o in WRONG_OF_FILES],
)
def test_arguments_of_other_types_are_errors_which_name_the_argument(
    tmp_path: Path, builtin: type[Exception], said: str, call: Callable[[str], Any]
) -> None:
    path = str(tmp_path / "x.nc")
    with h5py.File(path, "w") as file:
        file["t"], file["g/t"] = np.zeros((10, 10)), np.zeros(5)
    with pytest.raises(bf.InvalidArgumentError, match=re.escape(said)) as caught:
        call(path)
    assert isinstance(caught.value, builtin)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [bf.open, bf.learn, bf.report, bf.watch, bf.watch_state, bf.optimize, bf.create, bf.trust],
)
def test_paths_that_no_system_takes_are_errors_of_one_line(call: Callable[[Any], Any]) -> None:
    for path in ("x.nc\0", "a" * 5000, ["x\0", "y"], "~no_such_user/x"):
        if call is bf.create and isinstance(path, list):
            continue
        with pytest.raises((bf.InvalidArgumentError, bf.NotFoundError)) as caught:
            call(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_names_of_files_that_are_not_utf8_are_taken_by_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = os.fsdecode(os.fsencode(tmp_path) + b"/n\xff.h5")
    values = np.random.default_rng(0).integers(0, 9, (60, 20, 20)).astype("f4")
    with h5py.File(tmp_path / "named.h5", "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 20, 20), compression="gzip")
    (tmp_path / "named.h5").rename(path)
    traces = Path(bf.watch(path, optimize_after=10**6))
    with bf.open(path) as store:
        for row in range(20):
            store["t"][:, row, 3]
    assert bf.learn(path)["knowledge"]["arrays"]["t"]["read"]["reads"] == 20
    assert list(traces.iterdir())
    assert bf.watch_state(path)["reads"] == 20
    assert bf.optimize(path, "400%").made
    assert bf.trust(path)
    assert bf.report(path)
    url = f"file://{urllib.parse.quote(os.fsencode(path))}"
    for source in (path, os.fsencode(path), Path(path), url):
        with bf.open(source) as store:
            np.testing.assert_array_equal(store["t"][:, 5, 3], values[:, 5, 3])
    assert bf.convert(path, tmp_path / "c.zarr").complete
    np.testing.assert_array_equal(bf.open(tmp_path / "c.zarr")["t"][...], values)
    dataset = xarray.open_dataset(path, engine="bedform")
    np.testing.assert_array_equal(dataset["t"].to_numpy(), values)
    for make in (
        lambda: bf.convert(path, f"{path}.zarr"),
        lambda: bf.open(tmp_path / "c.zarr").export(f"{path}.nc"),
    ):
        with pytest.raises(bf.InvalidArgumentError, match="name is not UTF-8") as caught:
            make()
        assert "\n" not in str(caught.value)


def test_a_surrogate_that_stands_for_no_byte_is_in_no_path(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    wrong = f"{tmp_path}/n\ud800.h5"
    calls: list[Callable[[], Any]] = [
        lambda: bf.open(wrong),
        lambda: bf.open([wrong, wrong]),
        lambda: bf.open("s3://bucket/n\udcff"),
        lambda: bf.create(wrong),
        lambda: bf.convert(wrong, tmp_path / "c.zarr"),
        lambda: bf.convert(tmp_path / "s.zarr", wrong),
        lambda: bf.watch(wrong),
        lambda: bf.learn(wrong),
        lambda: bf.watch_state(wrong),
        lambda: bf.optimize(wrong, reads={"x": 1}),
        lambda: bf.optimize(tmp_path / "s.zarr", reads={"x": 1}, like=wrong),
        lambda: bf.optimize(tmp_path / "s.zarr", reads={"x": 1}, sidecar=wrong),
        lambda: bf.trust(wrong),
        lambda: bf.report(wrong),
        lambda: bf.calibrate(wrong),
        lambda: bf.Profile.for_path(wrong),
        lambda: bf.Profile.default().keep(wrong),
        lambda: bf.machine(f"{wrong}.toml"),
        lambda: bf.write_dataset(xarray.Dataset({"v": ("x", [1])}), wrong),
        lambda: store.export(wrong),
        lambda: xarray.open_dataset(wrong, engine="bedform"),
    ]
    for call in calls:
        with pytest.raises(bf.InvalidArgumentError, match="no name has the character") as caught:
            call()
        assert "\n" not in str(caught.value)


#: A lone surrogate, as in file names that are not UTF-8.
HALF = "a\udc80"


def test_text_that_utf8_lacks_is_a_wrong_argument_which_is_named(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    texts = store.create_array("texts", shape=(2,), dtype="str")
    new = {"shape": (2,), "dtype": "int8"}
    data = xarray.Dataset({"v": ("x", [1])})
    where = str(tmp_path / "s.zarr")
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("texts: the text", lambda: texts.__setitem__(0, HALF)),
        ("texts: the text", lambda: texts.__setitem__(slice(None), np.array(["a", HALF]))),
        ("texts: the text", lambda: texts.append([HALF])),
        ("the name", lambda: bf.write_dataset(data, where, mode="a", group=HALF)),
        ("the name", lambda: store.create_array(HALF, **new)),
        ("array 'n': dims", lambda: store.create_array("n", dims=(HALF,), **new)),
        ("array 'n': codecs.name", lambda: store.create_array("n", codecs=[{"name": HALF}], **new)),
        ("array 'n': dims", lambda: store.create_arrays({"n": {**new, "dims": (HALF,)}})),
        ("array 'n': fill_value", lambda: store.create_array("n", (2,), "str", fill_value=HALF)),
        ("attributes.unit.si", lambda: store.set_attributes({"unit": {"si": ["m", HALF]}})),
        ("attributes: the key", lambda: store.set_attributes({HALF: 1})),
        ("freshness", lambda: bf.open(where, freshness=HALF)),
        ("endpoint", lambda: bf.open("s3://bucket/a", storage_options={"endpoint": HALF})),
        ("burst", lambda: store.session(burst=f"/{HALF}")),
        ("leftover", lambda: store.recover(leftover=HALF)),
        ("exclude", lambda: bf.convert(where, tmp_path / "c.zarr", exclude=[HALF])),
        ("dims", lambda: bf.advise((2, 2), "int8", dims=(HALF, "x"))),
        ("name", lambda: bf.calibrate(tmp_path, name=HALF)),
        ("pattern.files", lambda: bf.simulate("laptop", pattern={"files": HALF})),
        ("the workload", lambda: bf.simulate("laptop", HALF)),
    ]
    for what, call in calls:
        with pytest.raises(bf.InvalidArgumentError) as caught:
            call()
        said = str(caught.value)
        assert said.startswith(what), (what, said)
        assert said.endswith("cannot be stored as UTF-8"), (what, said)
    with pytest.raises(bf.InvalidArgumentError, match="there is no type"):
        bf.advise((2,), HALF)
    with pytest.raises(bf.InvalidArgumentError, match="there is no type"):
        bf.advise((2,), "nonsense")
    # A pair is one character.
    store.set_attributes({"\U0001d11e": ["\U0001d11e", "\\ud800"]})
    assert store.attributes == {"\U0001d11e": ["\U0001d11e", "\\ud800"]}
    texts[0] = "\U0001d11e"
    assert texts[0] == "\U0001d11e"
