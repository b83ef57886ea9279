"""Replicas of many files that are read as one: reads always equal the files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest
from support import ENVIRONMENT, command_line

import bedform as bf

if TYPE_CHECKING:
    import numpy.typing as npt

Y, X = 40, 50
LENGTHS = [60, 1, 80, 0, 70, 90]


def write(path: Path, length: int, seed: int) -> npt.NDArray[Any]:
    """Writes a file of consecutive maps; returns their values."""
    values = np.random.default_rng(seed).normal(size=(length, Y, X)).astype("f4")
    form = ["NETCDF4", "NETCDF3_64BIT_OFFSET"][seed % 2]
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, size in [("time", None), ("y", Y), ("x", X)]:
            file.createDimension(name, size)
        stored = {"chunksizes": (1, Y, X)} if form == "NETCDF4" else {}
        file.createVariable("t", "f4", ("time", "y", "x"), **stored)[:] = values
        file.createVariable("n", "f8", ("time",))[:] = np.arange(length)
        file.createVariable("mask", "i4", ("y", "x"))[:] = 0
    return values


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, list[npt.NDArray[Any]]]:
    """A pattern of files, and the values of each."""
    values = [write(tmp_path / f"a{number}.nc", n, number) for number, n in enumerate(LENGTHS)]
    return str(tmp_path / "a*.nc"), values


def reads_of(store: Any) -> int:
    """Returns the number of reads that used a replica."""
    return sum(one["reads"] for one in store.stats()["replicas"])


def test_series_of_many_files_come_from_a_replica(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    whole = np.concatenate(values)
    done = bf.optimize(pattern, "300%", reads={"time": 1})
    assert {one["array"] for one in done.made} == {"t"}
    with bf.open(pattern) as store:
        assert np.array_equal(store["t"][:, 7, 9], whole[:, 7, 9])
        assert np.array_equal(store["t"][30:200:7, 3:5, 9], whole[30:200:7, 3:5, 9])
        assert reads_of(store) == 2
        explained = store["t"].explain(np.s_[:, 7, 9]).to_dict()
        assert explained["replicas"] == [done.made[0]["id"]]
        assert np.array_equal(store["mask"][:], np.zeros((Y, X)))


def test_any_selection_is_that_of_the_files(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    whole = np.concatenate(values)
    bf.optimize(pattern, "300%", reads={"time": 1}, region={"y": (0, 20), "time": (20, 250)})
    random = np.random.default_rng(1)
    steps = [1, 1, 2, -1, 7]
    with bf.open(pattern) as store:
        t = store["t"]
        for _ in range(60):
            first, other = (sorted(random.integers(0, n + 1, 2)) for n in (len(whole), Y))
            step = steps[random.integers(len(steps))]
            along = slice(*first, step) if step > 0 else slice(first[1] - 1 or None, None, step)
            key = (along, slice(*other), slice(int(random.integers(X)), None))
            assert np.array_equal(t[key], whole[key]), key
            rows = random.integers(0, len(whole), 9)
            columns = random.permutation(Y)[:5]
            got = t.oindex[rows, columns, 3]
            assert np.array_equal(got, whole[np.ix_(rows, columns, [3])][..., 0])
            points = tuple(random.integers(0, n, 30) for n in whole.shape)
            assert np.array_equal(t.vindex[points], whole[points])
        assert reads_of(store) > 0


def test_points_of_many_files_come_from_a_replica_and_the_rest_from_the_files(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    whole = np.concatenate(values)
    random = np.random.default_rng(2)
    places = np.sort(random.choice(whole.size, 3000, replace=False))
    points = np.unravel_index(places, whole.shape)
    done = bf.optimize(pattern, "300%", selections={"t": [{"points": points}]})
    assert [one["array"] for one in done.made] == ["t"]
    more = np.union1d(places, random.choice(whole.size, 400))
    with bf.open(pattern) as store:
        for wanted in (places, places[::3], more):
            points = np.unravel_index(wanted, whole.shape)
            assert np.array_equal(store["t"].vindex[points], whole[points])
        assert reads_of(store) > 0


def test_a_file_that_was_replaced_is_read_itself_and_the_others_of_the_replica(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    bf.optimize(pattern, "300%", reads={"time": 1})
    path = Path(pattern).parent / "a2.nc"
    path.unlink()
    values[2] = write(path, LENGTHS[2], 22)
    whole = np.concatenate(values)
    with bf.open(pattern) as store:
        assert np.array_equal(store["t"][:, 7, 9], whole[:, 7, 9])
        assert reads_of(store) == 1
        explained = store["t"].explain(np.s_[:, 7, 9]).to_dict()
        assert explained["replica_bytes"] == 4 * (len(whole) - LENGTHS[2])


def test_a_file_that_changes_under_a_handle_is_read_as_it_is_or_named(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    bf.optimize(pattern, "300%", reads={"time": 1})
    with bf.open(pattern) as store:
        store["t"][:, 7, 9]
        path = Path(pattern).parent / "a2.nc"
        path.unlink()
        values[2] = write(path, LENGTHS[2], 23)
        assert np.array_equal(store["t"][:, 7, 9], np.concatenate(values)[:, 7, 9])
        path.unlink()
        write(path, LENGTHS[2] + 1, 24)
        with pytest.raises(bf.ConflictError, match=r"a2\.nc"):
            store["t"][:, 7, 9]
        path.unlink()
        with pytest.raises(bf.NotFoundError, match=r"a2\.nc"):
            store["t"][:, 7, 9]


def test_files_that_come_later_find_the_replicas_of_those_before(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    done = bf.optimize(pattern, "300%", reads={"time": 1})
    values.append(write(Path(pattern).parent / "a6.nc", 33, 6))
    whole = np.concatenate(values)
    with bf.open(pattern) as store:
        assert np.array_equal(store["t"][:, 7, 9], whole[:, 7, 9])
        explained = store["t"].explain(np.s_[:, 7, 9]).to_dict()
        assert explained["replicas"] == [done.made[0]["id"]]
        assert explained["replica_bytes"] == 4 * (len(whole) - 33)


@pytest.mark.parametrize("which", [[0, 2, 4, 5], [0, 1, 3, 2, 4, 5], [0, 1, 2], [1, 2, 4], [0]])
def test_other_lists_of_the_files_take_nothing_that_stands_elsewhere(
    files: tuple[str, list[npt.NDArray[Any]]], which: list[int]
) -> None:
    pattern, values = files
    bf.optimize(pattern, "300%", reads={"time": 1})
    paths = [Path(pattern).parent / f"a{number}.nc" for number in which]
    whole = np.concatenate([values[number] for number in which])
    with bf.open(paths, concat_dim="time") as store:
        assert np.array_equal(store["t"][:, 7, 9], whole[:, 7, 9])
        assert np.array_equal(store["t"][::3, 5:8, 9], whole[::3, 5:8, 9])
    with bf.open(pattern) as store:
        assert np.array_equal(store["t"][:, 7, 9], np.concatenate(values)[:, 7, 9])
        assert reads_of(store) == 1


def test_recorded_reads_of_many_files_decide_what_is_made(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, values = files
    whole = np.concatenate(values)
    bf.watch(pattern)
    with bf.open(pattern) as store:
        for at in range(24):
            assert np.array_equal(store["t"][:, 5, at], whole[:, 5, at])
    bf.learn(pattern)
    values.append(write(Path(pattern).parent / "a6.nc", 40, 7))
    whole = np.concatenate(values)
    done = bf.optimize(pattern, "100%")
    assert done.made[0]["held"]["runs"][1] == [[5, 1]]
    with bf.open(pattern) as store:
        assert np.array_equal(store["t"][:, 5, 3], whole[:, 5, 3])
        assert reads_of(store) == 1


def test_the_sidecar_of_many_files_lies_beside_the_first(
    files: tuple[str, list[npt.NDArray[Any]]],
) -> None:
    pattern, _ = files
    arguments = ["optimize", pattern, "--reads", "time=1", "--budget", "300%"]
    out = subprocess.run(
        [*command_line(), *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert "1 made" in out.stdout, out.stderr
    directory = Path(pattern).parent
    assert (directory / "a0.nc.archive.bedform" / "replicas").is_dir()
    assert not list(directory.glob("*.nc.bedform"))


def test_the_warning_of_a_sidecar_that_came_with_files_names_a_command_that_works(
    files: tuple[str, list[npt.NDArray[Any]]], tmp_path: Path
) -> None:
    pattern, _ = files
    bf.optimize(pattern, "300%", reads={"time": 1})
    shutil.copytree(tmp_path, tmp_path / "copy")
    copied = str(tmp_path / "copy" / Path(pattern).name)
    with pytest.warns(bf.SidecarWarning, match="with the same list or pattern of files"):
        bf.open(copied).close()
    assert bf.trust(copied)["accepted"]
