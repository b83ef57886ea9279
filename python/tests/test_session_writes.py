"""The ways to write in a session, compared with NumPy on the same elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (7, 10)


def new_store(directory: Path, shape: tuple[int, ...] = SHAPE) -> bf.Store:
    store = bf.create(directory / "run.zarr", durability="process")
    layout = bf.Regular(chunks=(2, 3), shards=(4, 6))
    store.create_array("t", shape=shape, dtype="int32", dims=("y", "x"), layout=layout)
    return store


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns starts and shapes of up to five boxes inside, perhaps overlapping or empty."""
    count = draw(st.integers(0, 5))
    starts = [[draw(st.integers(0, length)) for length in shape] for _ in range(count)]
    lengths = [
        [draw(st.integers(0, length - at)) for at, length in zip(start, shape, strict=True)]
        for start in starts
    ]
    empty = np.empty((0, len(shape)), int)
    return (np.array(starts), np.array(lengths)) if count else (empty, empty)


def lay(model: np.ndarray, chosen: tuple[np.ndarray, np.ndarray], values: np.ndarray) -> None:
    """Writes consecutive elements to the boxes of the model."""
    at = 0
    for start, shape in zip(*chosen, strict=True):
        count = int(shape.prod())
        key = tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))
        model[key] = values[at : at + count].reshape(shape)
        at += count


@fewer_examples(6)
@given(st.data())
def test_boxes_declared_or_not_and_lent_elements_are_as_assigned(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = new_store(tmp_path_factory.mktemp("s"))
    model = np.zeros(SHAPE, "int32")
    parts = data.draw(boxes(SHAPE))
    rows = data.draw(boxes(SHAPE[1:]))
    with store.session(
        settle=data.draw(st.sampled_from(["end", "later", "background"]))
    ) as session:
        declared, declared_rows = session.declare(*parts), session.declare(*rows)
        for number in range(1, data.draw(st.integers(2, 9))):
            step = data.draw(st.sampled_from(["boxes", "declared", "record", "lent", "commit"]))
            if step == "boxes":
                chosen = data.draw(boxes(SHAPE))
            else:
                chosen = rows if step == "record" else parts
            values = number * 100 + np.arange(int(chosen[1].prod(axis=1).sum()), dtype="int32")
            if step == "boxes":
                session.write_boxes("t", values, *chosen)
                lay(model, chosen, values)
            elif step == "declared":
                session.write_declared("t", values, declared)
                lay(model, chosen, values)
            elif step == "record":
                y = data.draw(st.integers(0, SHAPE[0] - 1))
                session.write_declared("t", values, declared_rows, record=y)
                lay(model[y], chosen, values)
            elif step == "lent":
                lent = np.full((2, 5), number, "int32")
                token = session.write("t", lent, start=(3, number % 5), copy=False)
                if data.draw(st.booleans()):
                    session.wait(token)
                    lent[...] = -1
                model[3:5, number % 5 : number % 5 + 5] = number
            else:
                session.flush()
                session.commit()
                assert np.array_equal(store["t"][...], model)
    assert np.array_equal(store["t"][...], model)


def test_arrays_grow_in_a_session_with_its_commit(tmp_path: Path) -> None:
    store = new_store(tmp_path, (0, 4))
    with store.session(settle="later") as session:
        for step in range(3):
            assert session.append("t", np.full((2, 4), step)) == 2 * step
            assert store["t"].shape == (2 * step, 4)
            session.commit()
        session.resize("t", (7, 5))
        session.write("t", np.full((1, 1), 9), start=(6, 4))
    expected = np.zeros((7, 5))
    expected[:6, :4] = np.repeat(np.arange(3), 2)[:, None]
    expected[6, 4] = 9
    assert np.array_equal(store["t"][...], expected)
    store.settle()
    assert np.array_equal(store["t"][...], expected)


def test_elements_that_nobody_else_holds_may_be_lent(tmp_path: Path) -> None:
    store = new_store(tmp_path, (4000, 500))
    with store.session(buffer="1 MiB") as session:
        parts = [session.declare([[y, 0]], [[100, 500]]) for y in range(0, 4000, 100)]
        for part, y in enumerate(range(0, 4000, 100)):
            values = np.full((100, 500), y, "int32")
            if part % 2:
                session.write("t", values, start=(y, 0), copy=False)
            else:
                session.write_declared("t", values, parts[part], copy=False)
    assert np.array_equal(store["t"][::100, 7], np.arange(0, 4000, 100))


def test_declared_boxes_that_were_lent_may_change_once_they_are_written(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "lent.zarr")
    store.create_array("t", shape=(3, 400, 500), dtype="int32")
    values = np.full((400, 500), 7, "int32")
    with store.session() as session:
        whole, nothing = (
            session.declare([[0, 0]], [[400, 500]]),
            session.declare([[0, 0]], [[0, 1]]),
        )
        token = session.write_declared("t", values, whole, record=1, copy=False)
        assert token is not None
        session.wait(token)
        values[...] = -1
        assert session.write_declared("t", values[:0], nothing, record=0, copy=False) == 0
    assert (store["t"][1] == 7).all()
    assert not store["t"][0].any()


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    session, other = store.session(), store.session()
    parts = session.declare([[0, 0]], [[2, 2]])
    for starts, shapes in (([0], [1]), ([[0.5, 0]], [[1, 1]]), ([[0, 0]], [[1, 1, 1]])):
        with pytest.raises(bf.InvalidArgumentError, match="two arrays of integers"):
            session.write_boxes("t", [1], starts, shapes)
    with pytest.raises(bf.InvalidArgumentError, match="must not be negative"):
        session.declare([[-1, 0]], [[1, 1]])
    with pytest.raises(bf.InvalidArgumentError, match="declared in another session"):
        other.write_declared("t", np.ones(4), parts)
    with pytest.raises(bf.InvalidArgumentError, match="12 bytes were given"):
        session.write_declared("t", [1, 2, 3], parts)
    with pytest.raises(bf.InvalidArgumentError, match="must not be negative"):
        session.write_declared("t", np.ones(4), parts, record=-1)
    with pytest.raises(bf.OutOfBoundsError):
        session.write_boxes("t", np.ones(4), [[6, 9]], [[2, 2]])
    with pytest.raises(bf.InvalidArgumentError, match="only makes arrays larger"):
        session.resize("t", (1, 1))
    with pytest.raises(bf.InvalidArgumentError, match="the axis is 2"):
        session.append("t", np.ones((1, 10)), axis=2)
    session.write("t", np.ones((1, 1)), start=(0, 0), copy=False)
    session.close()
    with pytest.raises(bf.InvalidArgumentError, match="session is closed"):
        session.flush()
    assert not store["t"][...].any()


def test_arrays_of_a_session_are_written_before_they_are_seen(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "new.zarr")
    new = {"shape": (3, 4), "dtype": "int16", "dims": ("y", "x"), "fill_value": -1}
    with store.session() as session:
        session.create_arrays({f"group/v{number}": new for number in range(10)})
        session.write("group/v3", np.ones((2, 4)), start=(1, 0))
        with pytest.raises(bf.InvalidArgumentError, match="group/v3 has 2 axes"):
            session.write("group/v3", [1, 2], start=(0, 0))
        with pytest.raises(bf.InvalidArgumentError, match="int16"):
            session.write("group/v3", [["a"]], start=(0, 0))
        assert session.append("group/v4", np.full((1, 4), 7)) == 3
        assert list(store) == []
        session.commit()
        assert len(store["group"]) == 10
        session.write_at("group/v4", (-1, 0), 8)
        with pytest.raises(bf.ExistsError, match="group/v3"):
            session.create_arrays({"w": new, "group/v3": new})
        with pytest.raises(bf.InvalidArgumentError, match="array 'w'"):
            session.create_arrays({"w": {"shape": (3,)}})
    assert store["group/v3"][...].tolist() == [[-1] * 4, [1] * 4, [1] * 4]
    assert store["group/v4"][3].tolist() == [8, 7, 7, 7]
    assert "w" not in store

    session = store.session()
    session.create_arrays({"u": new})
    for again in ("u", "u/below"):
        with pytest.raises(bf.ExistsError, match="this session has created u"):
            session.create_arrays({"z": new, again: new})
    session.close()
    assert "u" not in store
    store.create_array("u", **new)


def test_a_refused_commit_says_which_arrays_it_created_all_the_same(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "both.zarr")
    new = {"shape": (2,), "dtype": "int16", "fill_value": -1}
    store.create_array("t", **new)
    for count, names in ((2, "v0, v1"), (9, "v0, v1, v2, v3, v4, v5, v6, v7 and 1 more")):
        with pytest.raises(bf.ConflictError) as caught, store.session() as session:
            session.create_arrays({f"of{count}/v{number}": new for number in range(count)})
            session.write(f"of{count}/v0", [1, 2])
            session.append("t", [3])
            store["t"].append([4])
        said = ", ".join(f"of{count}/{name}" for name in names.split(", "))
        assert str(caught.value).endswith(
            "another writer has appended to an array: none of its data are visible; write them "
            "again in a new session; the arrays that it created are visible, without its data: "
            f"{said}; write to them, or delete them"
        )
        assert store[f"of{count}/v0"][...].tolist() == [-1, -1]


def test_only_whole_numbers_say_where_elements_go(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.create_array("line", shape=(6,), dtype="int8")
    with store.session() as session:
        parts = session.declare([[0]], [[2]])
        for wrong in (
            lambda: session.write("line", [1], start=(3.9,)),
            lambda: session.write("line", [1], start=("4",)),
            lambda: session.write("line", [1], start="4"),
            lambda: session.write("line", [1], start=(True,)),
            lambda: session.write("line", [1], start=(1 << 64,)),
            lambda: session.write("t", [[1]], start=object()),
            lambda: session.write_declared("t", [1, 2], parts, record=0.5),
            lambda: session.write_declared("t", [1, 2], 7, record=0),
            lambda: session.write_boxes("line", [1], [[0], [1, 2]], [[1], [1]]),
            lambda: session.resize("line", (7.5,)),
            lambda: session.resize("line", (-2,)),
            lambda: session.append("line", [1], axis=0.0),
            lambda: session.wait(123),
            lambda: session.wait(-1),
            lambda: store["line"].resize((7.5,)),
            lambda: store["line"].append([1], axis="0"),
            lambda: store.create_array("u", shape=(2.5,), dtype="int8"),
        ):
            with pytest.raises(bf.InvalidArgumentError) as caught:
                wrong()
            assert len(str(caught.value).splitlines()) == 1
        session.write("line", [7, 8], start=4)
        session.write("line", [1], start=np.int64(0))
        session.write_declared("t", [1, 2], parts, record=np.int32(6))
    assert store["line"][...].tolist() == [1, 0, 0, 0, 7, 8]
    assert store["t"][6, :3].tolist() == [1, 2, 0]


def test_a_part_of_an_array_needs_a_start(tmp_path: Path) -> None:
    """Regression: a loop over steps without it silently wrote all steps to the first one."""
    store = new_store(tmp_path)
    with store.session() as session:
        for copy in (True, False):
            with pytest.raises(bf.InvalidArgumentError, match=r"\(1, 10\); give start="):
                session.write("t", np.ones((1, 10)), copy=copy)
        session.write("t", np.full(SHAPE, 3))
    assert (store["t"][...] == 3).all()


def test_errors_about_new_arrays_name_them(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    new = {"shape": (2,), "dtype": "int8"}
    with store.session() as session:
        for create in (store.create_arrays, session.create_arrays):
            for wrong in ({"dtype": "flot"}, {"dims": ("y", "x")}, {"shape": "2"}):
                with pytest.raises(bf.InvalidArgumentError, match="array 'bad'"):
                    create({"good": new, "bad": {**new, **wrong}})
            for arrays, said in (
                (["bad"], "arrays must map names to the arguments of create_array, not ['bad']"),
                ({"bad": 5}, "array 'bad': its arguments must be a mapping, not 5"),
                ({5: new}, "the name of an array or group must be text, not 5"),
            ):
                with pytest.raises(bf.InvalidArgumentError, match=re.escape(said)):
                    create(arrays)
    assert list(store) == ["t"]


def test_arguments_of_a_wrong_type_are_named_with_what_they_may_be(tmp_path: Path) -> None:
    """Regression: wrong types led to unrelated errors, such as an AttributeError of ``int``."""
    store = new_store(tmp_path)
    layout = "layout must be 'auto' or a bedform.Regular, not "
    name = "the name of an array or group must be text, not "
    size = "in bytes, must be a whole number, not "
    wrong: list[tuple[Any, str]] = [
        (lambda: store.create_array("u", (2,), "int8", layout=3), f"array 'u': {layout}3"),
        (lambda: bf.convert(store.store_path, tmp_path / "c.zarr", layout=3), f"{layout}3"),
        (
            lambda: store.create_array("u", (2,), "int8", layout=bf.Regular((1.5,))),
            "the chunks of the layout must be a whole number, not 1.5",
        ),
        (lambda: store.create_array("u", (2,), "int8", dims=5), "dims must be a list"),
        (lambda: store.create_array("u", (2,), "int8", reads=[1]), "reads must be a mapping"),
        (
            lambda: store.create_array("u", (2,), "int8", codecs="zstd"),
            "codecs must be 'auto' or a list",
        ),
        (lambda: store.create_array("u", (2,), "int8", attributes=5), "attributes must be a"),
        (lambda: store.create_array("u", (2,), "int8", profile=5), "profile must be a"),
        (lambda: store.create_array(5, (2,), "int8"), f"{name}5"),
        (lambda: store.create_group(None), f"{name}None"),
        (lambda: store[5], f"{name}5"),
        (lambda: store.array(None), f"{name}None"),
        (lambda: store.session().write(["t"], [1]), f"{name}['t']"),
        (lambda: store.session(buffer=1.5), f"buffer, {size}1.5"),
        (lambda: store.session(buffer="much"), 'buffer: "much" is not a size'),
        (lambda: store.session(burst_capacity=1.5), f"burst_capacity, {size}1.5"),
        (lambda: store.settle(memory=1.5), f"memory, {size}1.5"),
        (lambda: store.settle(arrays=[5]), f"{name}5"),
        (lambda: bf.open(store.store_path, cache=1.5), f"cache, {size}1.5"),
    ]
    for call, said in wrong:
        with pytest.raises(bf.InvalidArgumentError, match=re.escape(said)) as caught:
            call()
        assert len(str(caught.value).splitlines()) == 1
    assert list(store) == ["t"]


def test_a_session_that_has_ended_is_not_begun_again(tmp_path: Path) -> None:
    session = new_store(tmp_path).session()
    with session:
        pass
    with pytest.raises(bf.InvalidArgumentError, match="session is closed"), session:
        pass


def test_a_block_that_passes_the_end_is_said_with_start_count_and_size(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", (10, 20), "f4")
    with store.session() as session:
        said = r"t: start 9 \+ count 3 passes the end of axis 0 \(size 10\)"
        with pytest.raises(bf.OutOfBoundsError, match=said):
            session.write("t", np.zeros((3, 3), "f4"), start=(9, 0))
