"""A snapshot has one moment in every process, or reports that the data have moved on."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import PATIENCE

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path


def grown(path: Path) -> Any:
    """A store with two arrays of one row, which commits make longer."""
    store = bf.create(path)
    for name in ("a", "b"):
        array = store.create_array(name, (1, 4), "int64", ("time", "x"))
        array[...] = 0
    return store


def commit(session: Any, number: int) -> None:
    for name in ("a", "b"):
        session.append(name, np.full((1, 4), number))
    session.commit()


def numbers(store: Any) -> list[list[int]]:
    return [store[name][:, 0].tolist() for name in ("a", "b")]


def found_elsewhere(pickled: bytes, answers: Any) -> None:
    answers.put(numbers(pickle.loads(pickled)))  # noqa: S301 (pickled by this test)


def test_a_snapshot_shows_nothing_that_was_committed_after_it(tmp_path: Path) -> None:
    store = grown(tmp_path / "s.zarr")
    with store.session(settle="later") as session:
        commit(session, 1)
        with store.snapshot() as then:
            assert then.is_snapshot
            assert not store.is_snapshot
            commit(session, 2)
            store.create_array("c", (1,), "int8")
            store.attributes = {"later": True}
            assert numbers(then) == [[0, 1]] * 2
            assert sorted(then) == ["a", "b"]
            assert then["a"].shape == (2, 4)
            assert then.attributes == {}
            assert numbers(then.snapshot()) == [[0, 1]] * 2
    assert numbers(store) == [[0, 1, 2]] * 2


@pytest.mark.parametrize("freshness", ["read", "open", "never"])
def test_a_snapshot_is_as_new_as_storage_whatever_the_handle_has_seen(
    tmp_path: Path, freshness: Any
) -> None:
    store = grown(tmp_path / "s.zarr")
    handle = bf.open(tmp_path / "s.zarr", freshness=freshness)
    assert numbers(handle) == [[0]] * 2
    with store.session(settle="later") as session:
        commit(session, 1)
    assert numbers(handle.snapshot()) == [[0, 1]] * 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pickled_snapshot_is_of_the_same_moment_in_another_process(
    tmp_path: Path, method: str
) -> None:
    store = grown(tmp_path / "s.zarr")
    context = multiprocessing.get_context(method)
    answers: Any = context.Queue()
    with store.session(settle="later") as session:
        commit(session, 1)
        then = store.snapshot()
        commit(session, 2)
        process = context.Process(target=found_elsewhere, args=(pickle.dumps(then), answers))  # type: ignore[attr-defined]
        process.start()
        assert answers.get(timeout=PATIENCE) == [[0, 1]] * 2
        process.join(PATIENCE)
        again = pickle.loads(pickle.dumps(then["b"]))  # noqa: S301 (see above)
        assert again[:, 0].tolist() == [0, 1]
    store.settle()
    with pytest.raises(bf.SnapshotMovedError, match="take a new one"):
        pickle.loads(pickle.dumps(then))["a"][...]  # noqa: S301 (see above)


def test_what_was_settled_written_or_deleted_since_has_moved_on(tmp_path: Path) -> None:
    store = grown(tmp_path / "s.zarr")
    changes = [
        lambda: store["a"].__setitem__((0, 0), 7),
        lambda: store["a"].resize((1, 2)),
        lambda: store.__delitem__("a"),
    ]
    for change in changes:
        then = store.snapshot()
        expected = then["a"][...]
        change()
        with pytest.raises(bf.SnapshotMovedError, match=r"take a new|deleted or replaced"):
            then["a"][...]
        assert expected.shape[0] == 1
        # An untouched array reads as before.
        assert then["b"][...].tolist() == [[0] * 4]
    session = store.session(settle="later")
    session.append("b", np.ones((1, 4), "int64"))
    session.commit()
    then = store.snapshot()
    session.append("b", np.ones((1, 4), "int64"))
    session.commit()
    session.close()
    store.settle()
    with pytest.raises(bf.SnapshotMovedError, match="take a new one"):
        then["b"][...]


def test_attributes_of_arrays_and_groups_are_those_of_the_moment(tmp_path: Path) -> None:
    store = grown(tmp_path / "s.zarr")
    store["a"][...] = store["b"][...] = 5
    store.create_group("g", {"of": "g"})
    store.set_attributes({"of": "a"}, "a")
    then = store.snapshot()
    for path in ("a", "g", ""):
        store.set_attributes({"later": True}, path)
    del store["g"]
    assert (then["a"].attributes, then["g"].attributes, then.attributes) == (
        {"of": "a"},
        {"of": "g"},
        {},
    )
    assert numbers(then) == [[5]] * 2


def test_a_snapshot_is_never_written(tmp_path: Path) -> None:
    then = grown(tmp_path / "s.zarr").snapshot()
    for act in (
        lambda: then["a"].__setitem__(..., 1),
        lambda: then["a"].resize((9, 9)),
        lambda: then.create_array("c", (1,), "int8"),
        lambda: then.session(),
        lambda: then.settle(),
        lambda: then.__delitem__("a"),
    ):
        with pytest.raises(bf.ReadOnlyError, match="is a snapshot"):
            act()


def test_a_data_set_may_be_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    store = grown(path)
    with store.session(settle="later") as session:
        commit(session, 1)
        still = xr.open_dataset(path, engine="bedform", snapshot=True)
        fresh = xr.open_dataset(path, engine="bedform")
        session.write("a", np.full((1, 4), 9), start=(1, 0))
        session.write("b", np.full((1, 4), 9), start=(1, 0))
        session.commit()
        assert still["a"][:, 0].values.tolist() == still["b"][:, 0].values.tolist() == [0, 1]
        assert fresh["a"][:, 0].values.tolist() == fresh["b"][:, 0].values.tolist() == [0, 9]
        newer = xr.open_datatree(path, engine="bedform", snapshot=True)["/"].dataset
        loaded = pickle.loads(pickle.dumps(newer))  # noqa: S301 (see above)
        assert loaded["b"][:, 0].values.tolist() == [0, 9]


def test_a_store_of_another_program_is_held_by_the_times_of_its_files(tmp_path: Path) -> None:
    import zarr

    theirs = zarr.open_group(tmp_path / "z.zarr", mode="w")
    for name in ("a", "b"):
        theirs.create_array(name, data=np.arange(8), chunks=(4,))
    then = bf.open(tmp_path / "z.zarr").snapshot()
    theirs["a"][4:] = 9
    assert then["b"][...].tolist() == list(range(8))
    assert then["a"][:4].tolist() == [0, 1, 2, 3]
    with pytest.raises(bf.SnapshotMovedError, match="written after the snapshot"):
        then["a"][...]


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_what_others_have_deleted_or_made_smaller_is_not_called_damaged(tmp_path, freshness):
    path = tmp_path / "s.zarr"
    store = bf.create(path)
    for name in "ab":
        store.create_array(name, shape=(6,), dtype="int32", layout=bf.Regular(chunks=(3,)))
    with store.session(settle="later") as session:
        for name in "ab":
            session.write(name, np.arange(6, dtype="int32"), start=(0,))
    store.settle(grace="1h")
    old = bf.open(path, freshness=freshness, cache=0)
    arrays = [old["a"], old["b"]]
    for array in arrays:
        np.testing.assert_array_equal(array[...], range(6))
    store["a"].resize((3,))
    del store["b"]
    np.testing.assert_array_equal(arrays[0][:3], range(3))
    with pytest.raises(bf.ConflictError, match="open it again"):
        arrays[1][...]
    np.testing.assert_array_equal(bf.open(path)["a"][...], range(3))
