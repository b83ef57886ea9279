"""Sessions: many writes that become visible together, in a log that settles into shards."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples

import bedform as bf


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    store = bf.create(tmp_path / "run.zarr")
    layout = bf.Regular(chunks=(2, 3), shards=(4, 6))
    store.create_array("t", shape=(8, 12), dtype="int32", dims=("time", "x"), layout=layout)
    store.create_array("u", shape=(8,), dtype="float32", dims=("time",))
    return store


def place_of(store: bf.Store) -> Path:
    return Path(store.store_path)


def log_of(store: bf.Store) -> Path:
    return place_of(store).with_name("run.zarr.bedform-log")


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(store: bf.Store) -> None:
    session = store.session(settle="later")
    session.write("t", np.full((2, 3), 5, "int32"), start=(1, 2))
    session.write("u", np.ones(8, "float32"))
    assert not store["t"][...].any()
    assert session.commit() == 1
    assert store["t"][1:3, 2:5].tolist() == [[5, 5, 5], [5, 5, 5]]
    assert int(store["t"][...].sum()) == 30
    assert store["u"][...].tolist() == [1] * 8
    session.write("t", np.full((1, 1), 9, "int32"), start=(0, 0))
    session.close()
    assert store["t"][0, 0] == 0, "closed without a commit"


def test_settled_commits_are_plain_zarr_and_leave_no_log(store: bf.Store) -> None:
    values = np.arange(96, dtype="int32").reshape(8, 12)
    with store.session(settle="later") as session:
        session.write("t", values)
    assert log_of(store).is_dir()
    assert "Do not delete" in (log_of(store) / "README.txt").read_text()
    other = zarr.open_group(place_of(store), mode="r")
    assert not np.asarray(other["t"][...]).any(), "others see the settled part"
    done = store.settle()
    assert (done["commits"], done["objects"], done["rounds"]) == (1, 4, 1)
    assert done["read_bytes"] == values.nbytes
    assert done["bytes"] == pytest.approx(2000, rel=1)
    assert not log_of(store).exists()
    assert np.array_equal(np.asarray(zarr.open_group(place_of(store), mode="r")["t"][...]), values)
    assert store.verify() == []
    assert set(store.settle().values()) == {0}


def test_a_session_settles_on_exit_and_commits_nothing_after_an_error(store: bf.Store) -> None:
    with store.session() as session:
        session.write("t", np.ones((8, 12), "int32"))
    assert not log_of(store).exists()
    with pytest.raises(ZeroDivisionError), store.session() as session:
        session.write("t", np.zeros((8, 12), "int32"))
        raise ZeroDivisionError
    assert store["t"][...].all()


@fewer_examples(8)
@given(st.data())
def test_commits_lie_over_each_other_as_assignments_to_a_list_do(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = bf.create(tmp_path_factory.mktemp("s") / "run.zarr", durability="process")
    layout = bf.Regular(chunks=(2, 3), shards=(4, 6))
    array = store.create_array("t", shape=(9, 10), dtype=">i2", dims=("y", "x"), layout=layout)
    model = np.zeros((9, 10), "int16")
    session = store.session(settle="later")
    for number in range(1, data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["box", "key", "commit", "direct", "settle"]))
        y, x = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 9))
        h, w = data.draw(st.integers(0, 9 - y)), data.draw(st.integers(0, 10 - x))
        key = (slice(y, y + h), slice(x, x + w))
        if step == "direct":
            session.commit()
            array[key] = model[key] = number
        elif step == "box":
            session.write("t", np.full((h, w), number), start=(y, x))
            model[key] = number
        elif step == "key":
            session.write_at("t", np.s_[y::2, x::-1], number)
            model[y::2, x::-1] = number
        elif step == "settle":
            session.commit()
            store.settle()
        session.commit()
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[::-2, 1::3], model[::-2, 1::3])
    again: bf.Store = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own
    assert np.array_equal(again["t"][...], model)


def test_what_does_not_fit_is_refused_by_name(store: bf.Store) -> None:
    session = store.session()
    with pytest.raises(bf.OutOfBoundsError, match="t"):
        session.write("t", np.ones((2, 2), "int32"), start=(7, 0))
    with pytest.raises(bf.InvalidArgumentError, match="has 2 axes; the values have 1"):
        session.write("t", np.ones(3, "int32"), start=(0, 0))
    with pytest.raises(bf.InvalidArgumentError, match="must not be negative"):
        session.write("t", np.ones((1, 1), "int32"), start=(-1, 0))
    with pytest.raises(bf.NotFoundError, match=r"no array 'v' in .*: it has t, u"):
        session.write("v", np.ones(3))
    store.create_array("s", shape=(2,), dtype=str)
    with pytest.raises(bf.UnsupportedError, match="holds text"):
        session.write("s", np.array(["a", "b"], object))
    session.close()
    with pytest.raises(bf.InvalidArgumentError, match="session is closed"):
        session.commit()
    reader = bf.open(place_of(store))
    with pytest.raises(bf.ReadOnlyError):
        reader.session()


def test_a_store_without_its_log_is_an_error_that_names_it(store: bf.Store) -> None:
    with store.session(settle="later") as session:
        session.write("u", np.ones(8, "float32"))
    log_of(store).rename(log_of(store).with_suffix(".away"))
    with pytest.raises(bf.CorruptError, match="bedform-log is missing"):
        bf.open(place_of(store))["u"][...]
    log_of(store).with_suffix(".away").rename(log_of(store))
    assert bf.open(place_of(store))["u"][0] == 1


def test_a_killed_writer_leaves_what_it_committed(store: bf.Store) -> None:
    script = f"""
import numpy as np, bedform as bf
store = bf.open({str(place_of(store))!r}, mode="r+")
session = store.session(settle="later")
for number in range(1, 1000):
    session.write("t", np.full((8, 12), number, "int32"))
    print(session.commit(), flush=True)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 20:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = int((writer.stdout.read().split() or [line])[-1])
    found = np.unique(bf.open(place_of(store))["t"][...])
    assert len(found) == 1
    assert last <= found[0] <= last + 1
    with store.session() as session:
        session.write("u", np.ones(8, "float32"))
    assert store.info()["log"]["commits"] == 0
    # Data of an unfinished commit stay until a user decides.
    store.recover(leftover="discard")
    store.settle()
    assert not log_of(store).exists()
    assert np.array_equal(np.unique(store["t"][...]), found)


def test_appends_of_handles_that_look_only_at_opening_follow_each_other(tmp_path: Path) -> None:
    where = tmp_path / "a.zarr"
    layout = bf.Regular(chunks=(2, 2), shards=(4, 2))
    bf.create(where).create_array("t", shape=(0, 2), dtype="i4", layout=layout)
    stores = [bf.open(where, "r+", freshness="open") for _ in range(2)]
    arrays = [store["t"] for store in stores]
    expected = []
    for number in range(6):
        rows = np.full((1, 2), number, "i4")
        if number % 3 == 2:
            with stores[number % 2].session(settle="later") as session:
                session.append("t", rows)
                session.commit()
        else:
            arrays[number % 2].append(rows)
        expected.append(number)
        # A session's own commits are visible.
        np.testing.assert_array_equal(stores[number % 2]["t"][:, 0], expected)
