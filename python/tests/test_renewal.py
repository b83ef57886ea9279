"""Files that were moved or copied with their times keep what was made of them."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bedform as bf
from bedform import _report

SHAPE = (200, 50, 60)
#: An hour ago: a file that has just changed may change again with the same time.
OLD = time.time() - 3600


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "era5.h5"
    path.parent.mkdir()
    values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    with h5py.File(path, "w") as target:
        target.create_dataset("t", data=values)
    os.utime(path, (OLD, OLD))
    return path


def optimize(path: Path) -> bf.Optimization:
    # A store without names, and a file of HDF5 without scales, have names of their own.
    return bf.optimize(path, "400%", reads={"dim_0" if path.is_dir() else "phony_dim_0": 1})


def is_served(path: Path) -> bool:
    """Whether a series comes from a replica; it is that of the file in any case."""
    with h5py.File(path) as source:
        expected = source["t"][:, 7, 9]
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][:, 7, 9], expected)
        return bool(store["t"].explain(np.s_[:, 7, 9]).to_dict().get("replicas"))


def copied_over(path: Path) -> None:
    """As ``rsync -a`` and the recall of a file from a tape archive do."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    path.unlink()
    copy.rename(path)


def moved_and_back(path: Path) -> None:
    other = path.parent.parent / "elsewhere"
    path.rename(other)
    other.rename(path)


def with_other_permissions(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.parametrize("how", [copied_over, moved_and_back, with_other_permissions])
def test_a_file_that_is_the_same_keeps_its_replicas(file: Path, how: Any) -> None:
    optimize(file)
    assert is_served(file)
    before = file.stat()
    time.sleep(0.05)
    how(file)
    after = file.stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert before.st_ctime_ns != after.st_ctime_ns
    # A report needs nobody to have read the file since.
    assert _report.gather_facts(str(file))["replicas_are_current"]
    assert is_served(file)
    states = json.loads(Path(f"{file}.bedform/states").read_text())
    assert [state["changed_ns"] for state in states["same"]] == [after.st_ctime_ns]
    assert _report.gather_facts(str(file))["replicas_are_current"]
    assert not optimize(file).made
    how(file)
    assert is_served(file)


def test_a_file_of_the_same_length_and_time_with_other_bytes_is_another(file: Path) -> None:
    optimize(file)
    size = file.stat().st_size
    with h5py.File(file, "r+") as target:
        target["t"][100:150] = -1
    assert file.stat().st_size == size
    os.utime(file, (OLD, OLD))
    copied_over(file)
    assert not is_served(file)
    assert optimize(file).made
    assert is_served(file)


def test_a_time_that_differs_makes_a_file_another(file: Path) -> None:
    optimize(file)
    os.utime(file, (OLD, OLD + 1))
    assert not is_served(file)


def test_a_file_that_was_young_when_it_was_looked_at_is_not_taken_for_the_same(file: Path) -> None:
    os.utime(file)
    optimize(file)
    assert is_served(file)
    copied_over(file)
    assert not is_served(file)


@pytest.mark.parametrize("content", [b"", b"{}", b"flipped", b"of another"])
def test_a_record_of_states_that_cannot_be_believed_renews_nothing(
    file: Path, content: bytes
) -> None:
    optimize(file)
    states = Path(f"{file}.bedform/states")
    known = states.read_bytes()
    if content == b"flipped":
        content = known.replace(b'"same":[]', b'"same":[ ]')
    elif content == b"of another":
        other = file.with_name("other.h5")
        shutil.copy2(file, other)
        optimize(other)
        content = Path(f"{other}.bedform/states").read_bytes()
    states.write_bytes(content)
    assert is_served(file)
    copied_over(file)
    assert not is_served(file)


def test_a_large_file_is_compared_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as target:
        target.create_dataset("t", data=np.arange(400 * 50 * 60, dtype="f8").reshape(400, 50, 60))
    os.utime(path, (OLD, OLD))
    optimize(path)
    copied_over(path)
    assert is_served(path)
    size = path.stat().st_size
    for share in (0.01, 0.37, 0.73, 0.97):
        # As long as the pieces are apart.
        with path.open("r+b") as target:
            target.seek(int(size * share))
            target.write(bytes(size // 255 + 4096))
        os.utime(path, (OLD, OLD))
        with bf.open(path) as store:
            assert not store["t"].explain(np.s_[:, 7, 9]).to_dict().get("replicas")
        optimize(path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "run.zarr"
    with bf.create(path) as made:
        array = made.create_array(
            "t", shape=SHAPE, dtype="f4", chunks=(10, 50, 60), shards=(20, 50, 60)
        )
        array[:] = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    make_old(path)
    return path


def make_old(path: Path) -> None:
    for entry in path.rglob("*"):
        if entry.is_file():
            os.utime(entry, (OLD, OLD))


def copied_tree(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    shutil.rmtree(path)
    copy.rename(path)


def series(path: Path) -> tuple[bool, Any]:
    """Whether a series comes from a replica, and what it is."""
    with bf.open(path) as opened:
        values = opened["t"][:, 7, 9]
        np.testing.assert_array_equal(values, opened["t"][:][:, 7, 9])
        return bool(opened["t"].explain(np.s_[:, 7, 9]).to_dict().get("replicas")), values


def test_a_store_that_was_copied_keeps_its_replicas(store: Path) -> None:
    optimize(store)
    is_served, values = series(store)
    assert is_served
    before = {entry: entry.stat() for entry in store.rglob("*")}
    copied_tree(store)
    assert all(entry.stat().st_ino != found.st_ino for entry, found in before.items())
    is_served, again = series(store)
    assert is_served
    np.testing.assert_array_equal(values, again)
    assert not optimize(store).made


def test_what_was_written_to_a_store_counts_after_a_copy_too(store: Path) -> None:
    optimize(store)
    with bf.open(store, "r+") as opened:
        opened["t"][40:60] = -1
    make_old(store)
    copied_tree(store)
    _, values = series(store)
    np.testing.assert_array_equal(values[40:60], -1)
    assert (values[:40] >= 0).all() and (values[60:] >= 0).all()


def test_shards_of_a_store_that_swapped_their_names_are_not_taken_for_the_same(
    store: Path,
) -> None:
    optimize(store)
    with bf.open(store, replicas=False) as opened:
        expected = opened["t"][:, 7, 9]
    shards = sorted(path for path in store.rglob("c/*/0/0") if path.is_file())
    shutil.copy2(shards[0], store.parent / "kept")
    shutil.copy2(shards[1], shards[0])
    make_old(store)
    with bf.open(store) as opened, pytest.raises(bf.CorruptError):
        opened["t"][:, 7, 9]
    shutil.copy2(store.parent / "kept", shards[0])
    make_old(store)
    np.testing.assert_array_equal(series(store)[1], expected)
