"""Queries through C and Fortran: equal to NumPy on the decoded arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from native import PROGRAMS, build, prefix, run
from test_c_api import fortran

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["prefix"]

EXPRESSION = "t2m > 300 and lsm > 0.3"


@pytest.fixture(scope="session")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that makes every call of queries."""
    place = tmp_path_factory.mktemp("queries") / "queries"
    return build(prefix, PROGRAMS / "queries.c", place, mpi=False)


def _weather() -> xr.Dataset:
    """Packed values with missing ones, and fields of fewer dimensions."""
    rng = np.random.default_rng(4)
    t2m = 280 + 30 * rng.random((7, 5, 6))
    t2m[rng.random(t2m.shape) < 0.1] = np.nan
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m),
            "n": (("time", "lat", "lon"), rng.integers(-9, 9, t2m.shape).astype("i2")),
            "lsm": (("lat", "lon"), rng.random((5, 6)).astype("f4")),
        },
        coords={"lat": np.linspace(60, 40, 5)},
    )
    data["t2m"].encoding = {
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 290.0,
        "_FillValue": -32767,
    }
    return data


@pytest.fixture(params=["store", "group", "file"])
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A source, and the options by which queries find its arrays."""
    path = tmp_path / "data.nc"
    if request.param == "file":
        _weather().to_netcdf(path)
        return path, {}
    path = path.with_suffix(".zarr")
    if request.param == "store":
        bf.write_dataset(_weather(), path)
        return path, {}
    xr.DataTree.from_dict({"/a/b": _weather()}).to_zarr(path, consolidated=False)
    return path, {"group": "a/b"}


def decoded(path: Path, group: str = "", **options: Any) -> xr.Dataset:
    """The arrays as xarray decodes them."""
    group = {"group": group} if group else {}
    return xr.open_dataset(path, engine="bedform", **group, **options).load()


def numbers(line: str, name: str) -> list[float]:
    assert line.startswith(f"{name}: "), line
    return [float(number) for number in line.removeprefix(f"{name}: ").split()]


@pytest.mark.parametrize("array", ["t2m", "n"])
@pytest.mark.parametrize("region", [{}, {"lon": (1, 4), "time": (2, 5)}])
def test_c_counts_points_values_and_statistics_as_numpy(
    program: Path,
    tmp_path: Path,
    weather: tuple[Path, dict[str, Any]],
    region: dict[str, tuple[int, int]],
    array: str,
) -> None:
    """Results are those of the truth table over decoded values, in the region."""
    path, options = weather
    data = decoded(path, **options)
    edges = [-9, -3, 0, 9] if array == "n" else [270, 300, 305.5, 311]
    arguments = [part for dim, (at, n) in region.items() for part in (dim, str(at), str(n))]
    said = run(
        program,
        path,
        EXPRESSION,
        json.dumps(options),
        array,
        ",".join(map(str, edges)),
        array,
        tmp_path,
        *arguments,
    ).splitlines()

    ranges = {dim: region.get(dim, (0, size)) for dim, size in data.t2m.sizes.items()}
    box = tuple(slice(at, at + count) for at, count in ranges.values())
    truth = ((data.t2m > 300) & (data.lsm > 0.3)).values[box]
    values = data[array].values[box]
    found = values[truth]
    start = [at for at, _ in ranges.values()]
    region_text = " ".join(f"{at} {count}" for at, count in ranges.values())
    assert said[0] == f"region: time,lat,lon {region_text}"
    assert said[1] == f"count: {truth.sum()} 1"
    total, count, *reals = numbers(said[2], "all")
    assert (total, count) == (truth.sum(), found.size)
    expected = [found.sum(dtype="f8"), found.mean(dtype="f8"), found.min(), found.max()]
    np.testing.assert_allclose(reals, expected, rtol=1e-14)
    for axis, dim in enumerate(data.t2m.dims):
        counts, sums = np.array(numbers(said[3 + axis], f"over {dim}")).reshape(-1, 2).T
        np.testing.assert_array_equal(counts, truth.sum(axis).ravel())
        kept = np.where(truth, values, 0).sum(axis, dtype="f8")
        np.testing.assert_allclose(sums, kept.ravel(), rtol=1e-13)
    assert numbers(said[6], "histogram") == np.histogram(found, edges)[0].tolist()
    assert said[7] == f"points: {found.size} time,lat,lon {found.dtype} {min(found.size, 2)}"
    mask = np.fromfile(tmp_path / "mask", np.uint8)
    np.testing.assert_array_equal(mask, truth.ravel())
    positions = np.fromfile(tmp_path / "positions", np.uint64).reshape(-1, 3)
    np.testing.assert_array_equal(positions, np.argwhere(truth) + start)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "values", found.dtype), found)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "doubles", "f8"), found)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "in_batches", "f8"), found)
    [batches] = numbers(said[8], "batches")
    assert batches >= found.size * (4 * 8 + found.itemsize) / 1000
    assert json.loads(said[9])["shape"] == list(truth.shape)


def test_c_compares_stored_numbers_and_sees_commits_that_are_not_settled(
    program: Path, tmp_path: Path
) -> None:
    """The option decode, and a log over the shards."""
    path = tmp_path / "data.zarr"
    bf.write_dataset(_weather(), path)
    with bf.open(path, "r+").session(settle="later") as session:
        session.write("t2m", np.full((1, 5, 6), 777, "i2"), start=(3, 0, 0))
    stored = bf.open(path)["t2m"][...]
    options = '{"decode": false}'
    said = run(program, path, "t2m == 777", options, "n", "0,1", "t2m", tmp_path).splitlines()
    assert said[1] == f"count: {(stored == 777).sum()} 1"
    assert np.fromfile(tmp_path / "positions", np.uint64).reshape(-1, 3)[:, 0].tolist() == [3] * 30
    assert np.fromfile(tmp_path / "values", "i2").tolist() == [777] * 30


def test_values_with_further_dimensions_extend_positions_in_c(
    program: Path, tmp_path: Path
) -> None:
    """A condition on a map, and values of a field over it."""
    path = tmp_path / "data.zarr"
    bf.write_dataset(_weather(), path)
    data = decoded(path)
    said = run(program, path, "lsm > 0.5", "", "lsm", "0,1", "n", tmp_path).splitlines()
    assert said[0].startswith("region: lat,lon ")
    truth = np.broadcast_to(data.lsm.values > 0.5, data.n.shape)
    assert said[-3] == f"points: {truth.sum()} time,lat,lon int16 2"
    positions = np.fromfile(tmp_path / "positions", np.uint64).reshape(-1, 3)
    np.testing.assert_array_equal(positions, np.argwhere(truth))
    np.testing.assert_array_equal(np.fromfile(tmp_path / "values", "i2"), data.n.values[truth])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "in_batches", "f8"), data.n.values[truth])
    # Sums over one dimension of the query have those of `n` then, more than the buffer.
    said = run(program, path, "lsm > 0.5", "", "n", "0,1", "n", tmp_path)
    assert "InvalidArgument: the buffer has room for 6 statistics, the result has 42" in said


def test_a_name_that_is_not_there_lists_near_ones_in_c(program: Path, tmp_path: Path) -> None:
    """An error is one line, and the handle stays null."""
    path = tmp_path / "data.zarr"
    bf.write_dataset(_weather(), path)
    said = run(program, path, "t2n > 300", "", "n", "0,1", "n", tmp_path)
    assert said.startswith('NotFound: no array "t2n" in ')
    assert "it has t2m, " in said
    said = run(program, path, "t2m > 300 & n < 0", "", "n", "0,1", "n", tmp_path)
    assert said.startswith("InvalidArgument: the query, column ")
    assert said.count("\n") == 1


def test_fortran_has_the_results_of_numpy_in_its_own_order(prefix: Path, tmp_path: Path) -> None:
    """Indexes begin at 1, the first dimension varies fastest."""
    path = tmp_path / "data.nc"
    _weather().to_netcdf(path)
    source = """
program queries
  use iso_c_binding
  use bedform
  implicit none
  integer, parameter :: i8 = bf_index
  type(bf_store) :: store
  type(bf_query) :: hot
  type(bf_points) :: points
  type(bf_batches) :: batches
  type(bf_value_statistics) :: all, days(4)
  integer(bf_index), allocatable :: start(:), shape(:), at(:, :)
  integer(bf_index) :: counts(6, 5), count, found, bins(2)
  logical(c_bool) :: mask(6, 5, 4)
  real(8), allocatable :: t2m(:)
  integer(2), allocatable :: n(:), numbers(:)
  character(:), allocatable :: text
  character(1000) :: path
  logical :: any_there, more
  integer :: status, rank
  call get_command_argument(1, path)
  call bf_open(path, "r", store)
  call bf_query_open(store, "t2m > 300 and lsm > 0.3", hot, dims="time", start=[3_i8], &
    shape=[4_i8], options='{"memory_bytes": "1 MiB"}')
  call bf_query_rank(hot, rank)
  call bf_query_dims(hot, text)
  call bf_query_region(hot, start, shape)
  print "(a, *(1x, i0))", text, rank, start, shape
  call bf_query_count(hot, count)
  call bf_query_any(hot, any_there)
  if (.not. any_there) error stop "none"
  call bf_query_count_over(hot, "time", counts)
  print "(*(i0, 1x))", count, counts
  call bf_query_mask(hot, mask)
  print "(*(i0, 1x))", merge(1, 0, mask)
  call bf_query_statistics(hot, "n", all)
  call bf_query_statistics(hot, "n", days, over="lon,lat")
  print "(*(f0.6, 1x))", all%sum, all%mean, all%minimum, all%maximum, days%sum
  call bf_query_histogram(hot, "n", [-9d0, 0d0, 9d0], bins)
  print "(*(i0, 1x))", bins
  call bf_query_points(hot, points, arrays="t2m,n")
  call bf_points_count(points, found)
  if (found /= count) error stop "another count"
  call bf_points_rank(points, rank)
  call bf_points_dims(points, text)
  if (rank /= 3 .or. text /= "lon,lat,time") error stop "other dimensions"
  call bf_points_positions(points, at)
  allocate (t2m(found), n(found))
  call bf_points_values(points, "t2m", t2m)
  call bf_points_values(points, "n", n)
  call bf_points_dtype(points, "n", text)
  if (text /= "int16") error stop "another type"
  print "(*(i0, 1x))", at
  print "(*(f0.9, 1x))", t2m
  print "(*(i0, 1x))", n
  numbers = n
  call bf_points_values(points, "t2m", n, status)
  if (status /= BF_INVALID_ARGUMENT) error stop "values were changed"
  call bf_points_close(points)
  call bf_query_points(hot, points, limit=2_i8)
  call bf_points_count(points, found)
  if (found /= 2) error stop "no limit"
  call bf_points_close(points)
  call bf_query_points(hot, points, limit=-1_i8, status=status)
  if (status /= BF_INVALID_ARGUMENT) error stop "a negative limit"
  call bf_query_batches(hot, batches, arrays="n", memory_bytes=400_i8)
  count = 0
  do
    call bf_batches_next(batches, points, more)
    if (.not. more) exit
    call bf_points_count(points, found)
    call bf_points_values(points, "n", n(:found))
    if (n(1) /= numbers(count + 1) .or. n(found) /= numbers(count + found)) error stop "other"
    call bf_points_close(points)
    count = count + found
  end do
  if (count /= size(numbers)) error stop "not all batches"
  call bf_batches_close(batches)
  call bf_query_explain(hot, text)
  if (index(text, '"blocks"') == 0) error stop "no plan"
  call bf_query_close(hot)
  call bf_query_open(store, "n > 0", hot, dims="time", start=[1_i8], status=status)
  if (status == BF_OK) error stop "a region without a shape"
  call bf_query_open(store, "n > 0", hot, dims="time", start=[0_i8], shape=[1_i8], status=status)
  if (status /= BF_INVALID_ARGUMENT) error stop "a start of 0"
end program
"""
    said = run(fortran(prefix, tmp_path, source), path).splitlines()
    data = decoded(path)
    truth = ((data.t2m > 300) & (data.lsm > 0.3)).values[2:6]
    n = data.n.values[2:6]
    found = n[truth]
    assert said[0] == "lon,lat,time 3 1 1 3 6 5 4"
    lines = [[float(number) for number in line.split()] for line in said[1:]]
    assert lines[0] == [truth.sum(), *truth.sum(0).ravel()]
    assert lines[1] == truth.ravel().tolist()
    days = np.where(truth, n, 0).sum((1, 2))
    expected = [found.sum(), found.mean(), found.min(), found.max(), *days]
    np.testing.assert_allclose(lines[2], expected, atol=1e-5)
    assert lines[3] == np.histogram(found, [-9, 0, 9])[0].tolist()
    np.testing.assert_array_equal(
        np.reshape(lines[4], (-1, 3)), (np.argwhere(truth) + [2, 0, 0] + 1)[:, ::-1]
    )
    np.testing.assert_allclose(lines[5], data.t2m.values[2:6][truth], atol=1e-8)
    assert lines[6] == found.tolist()
