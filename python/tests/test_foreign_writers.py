"""Other programs that change a store between commits: zarr-python, xarray, and a shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.testing import assert_array_equal

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COLUMNS = 8, 12


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store of two arrays, one in a group, with two commits that are not settled."""
    store = bf.create(tmp_path / "run.zarr")
    layout = bf.Regular(chunks=(2, 3), shards=(4, 6))
    for name in ("t", "g/t"):
        store.create_array(
            name, shape=(ROWS, COLUMNS), dtype="int32", dims=("y", "x"), layout=layout
        )
        store[name][...] = 1
    commit(tmp_path / "run.zarr", 2, slice(0, 5))
    commit(tmp_path / "run.zarr", 3, slice(4, 6))
    return tmp_path / "run.zarr"


def commit(place: Path, value: int, rows: slice) -> None:
    with bf.open(place, mode="r+").session(settle="later") as session:
        for name in ("t", "g/t"):
            block = np.full((rows.stop - rows.start, COLUMNS), value, "int32")
            session.write(name, block, start=(rows.start, 0))


def expected() -> np.ndarray:
    array = np.ones((ROWS, COLUMNS), "int32")
    array[:5], array[4:6] = 2, 3
    return array


def set_attribute(place: Path) -> None:
    zarr.open_group(place, mode="a").attrs["by"] = "zarr-python"


def consolidate(place: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(place)


def set_attribute_of_array(place: Path) -> None:
    zarr.open_array(place / "t", mode="a").attrs["units"] = "K"


def add_array(place: Path) -> None:
    group = zarr.open_group(place, mode="a")
    group.create_array("v", shape=(4,), dtype="int8", overwrite=True)[:] = 7


CHANGES = [set_attribute, consolidate, set_attribute_of_array, add_array]


@pytest.mark.parametrize("change", CHANGES)
def test_metadata_that_zarr_python_writes_between_commits_hide_nothing(
    place: Path, change: Callable[[Path], None]
) -> None:
    values = expected()
    reader = bf.open(place)
    for value in (4, 5):
        change(place)
        for store in (reader, bf.open(place)):
            assert_array_equal(store["t"][...], values)
            assert_array_equal(store["g/t"][...], values)
        commit(place, value, slice(value, value + 2))
        values[value : value + 2] = value
    bf.open(place, mode="r+").settle()
    assert not place.with_name("run.zarr.bedform-log").exists()
    # It is plain Zarr now, and used commit numbers are not used again.
    change(place)
    for store in (reader, bf.open(place), zarr.open_group(place, mode="r")):
        assert_array_equal(store["t"][...], values)
    commit(place, 6, slice(0, 3))
    values[:3] = 6
    assert_array_equal(bf.open(place)["g/t"][...], values)
    bf.open(place, mode="r+").settle()
    assert_array_equal(zarr.open_group(place, mode="r")["g/t"][...], values)


def test_elements_that_zarr_python_writes_count_as_settled_and_settling_says_so(
    place: Path,
) -> None:
    array = zarr.open_array(place / "t", mode="a")
    array[3:8, :6] = 9  # two shards, with commits on top of one and a half
    values = expected()
    values[6:, :6] = 9
    assert_array_equal(bf.open(place)["t"][...], values)
    done = bf.open(place, mode="r+").settle()
    assert done["rewritten"] == 2
    assert_array_equal(bf.open(place)["t"][...], values)
    # Without commits on top, its writes are like any other.
    array[...] = 8
    assert np.all(bf.open(place)["t"][...] == 8)


def test_an_array_that_zarr_python_replaces_or_a_shell_removes_is_said(place: Path) -> None:
    zarr.create_array(place / "t", shape=(4,), dtype="int8", overwrite=True)[:] = 5
    store = bf.open(place, mode="r+")
    for attempt in (lambda: store["t"][...], store.settle):
        with pytest.raises(bf.ConflictError, match=r"another program has .*run.zarr/t"):
            attempt()
    shutil.rmtree(place / "t")
    with pytest.raises(bf.ConflictError, match=r"removed .*run.zarr/t.* delete the array"):
        store.settle()
    assert_array_equal(store["g/t"][...], expected())
    del store["t"]
    store.settle()
    assert_array_equal(zarr.open_array(place / "g/t")[...], expected())


def test_a_group_is_opened_through_its_store_while_commits_are_not_settled(place: Path) -> None:
    match = r"part of the store .*run.zarr, and it has commits that are not settled: open"
    attempts: list[Callable[[], object]] = [
        lambda: bf.open(place / "g"),
        lambda: bf.open(place / "g" / "t"),
        lambda: xr.open_dataset(place / "g", engine="bedform"),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=match):
            attempt()
    with xr.open_dataset(place, engine="bedform", group="g") as dataset:
        assert_array_equal(dataset["t"].values, expected())
    with pytest.raises(bf.InvalidArgumentError, match="only the whole store can be written to"):
        bf.open(place / "g", mode="r+")
    bf.open(place, mode="r+").settle()
    with xr.open_dataset(place / "g", engine="bedform") as dataset:
        assert_array_equal(dataset["t"].values, expected())


def test_copies_and_links_made_by_a_shell_find_their_logs(place: Path) -> None:
    script = "cp -r run.zarr copy && cp -r run.zarr.bedform-log copy.bedform-log && ln -s copy link"
    subprocess.run(["/bin/sh", "-c", script], cwd=place.parent, check=True)
    commit(place.with_name("link"), 7, slice(0, 1))
    assert_array_equal(bf.open(place)["t"][...], expected())
    assert np.all(bf.open(place.with_name("copy"))["t"][0] == 7)
    bf.open(place, mode="r+").settle()
    assert np.all(bf.open(place.with_name("link"))["t"][0] == 7)
    bf.open(place.with_name("link"), mode="r+").settle()
    names = sorted(path.name for path in place.parent.iterdir())
    assert names == ["copy", "link", "run.zarr"]


WRITER = """
import os, sys
import numpy as np, bedform as bf
if os.getuid() == 0:
    os.setuid(65534)  # no rights keep the superuser out
store = bf.open(sys.argv[1], mode="r+")
try:
    with store.session(settle="later") as session:
        session.write("t", np.zeros((1, 12), "int32"), start=(0, 0))
except bf.BedformError as error:
    print(type(error).__name__, error)
print(int(bf.open(sys.argv[1])["t"][0, 0]))
"""


def test_without_the_right_to_make_a_log_a_session_says_where(place: Path) -> None:
    bf.open(place, mode="r+").settle()
    with tempfile.TemporaryDirectory() as name:
        above = Path(name)
        store = shutil.copytree(place, above / "run.zarr")
        for path in [store, *store.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        above.chmod(0o555)
        command = [sys.executable, "-c", WRITER, str(store)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        above.chmod(0o755)
        assert done.returncode == 0, done.stderr
        said, value = done.stdout.splitlines()
        assert said.startswith("PermissionDeniedError") and f"{store}.bedform-log" in said
        assert value == "2"
        assert [path.name for path in above.iterdir()] == ["run.zarr"]
