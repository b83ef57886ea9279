"""Tables of queries, times among their values, and the points of data sets: equal to xarray's."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import bedform as bf
from bedform._query_table import PointTable
from bedform.cli import app

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

CALENDARS = ["standard", "noleap"]
HOT = "t2m > 300"


def _days(calendar: str) -> xr.Dataset:
    """A data set with times as a coordinate, its bounds, a field and a single array."""
    chance = np.random.default_rng(3)
    time = xr.date_range("2020-01-01", periods=4, calendar=calendar, use_cftime=True)
    time = time if calendar == "noleap" else time.to_datetimeindex(time_unit="ns")
    hours = np.array([0, 1, 2, 3, 24], "m8[h]")
    if calendar == "noleap":
        hours = hours.astype("m8[us]").astype(object)
    first = np.asarray(time)[:, None]
    data = xr.Dataset(
        {
            "t2m": (("time", "lat"), chance.normal(300, 10, (4, 5))),
            "mask": (("lat",), np.array([0.0, 1, 1, 0, 1])),
            "seen": (("time", "lat"), first + hours),
            "time_bnds": (("time", "nv"), np.concatenate([first, first + hours[4:]], axis=1)),
        },
        {"time": ("time", time, {"bounds": "time_bnds"}), "lat": np.arange(0.0, 50.0, 10.0)},
    )
    units = {"units": "hours since 2019-12-30", "calendar": calendar}
    data["time"].encoding = {"units": "days since 2020-01-01", "calendar": calendar}
    data["seen"].encoding = {**units, "dtype": "i4", "_FillValue": -1}
    return data


@pytest.fixture(params=["nc", "zarr"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of source."""
    return str(request.param)


def _write(data: xr.Dataset, directory: Path, kind: str = "nc") -> str:
    path = str(directory / f"days.{kind}")
    if kind == "nc":
        data.to_netcdf(path, engine="netcdf4")
    else:
        bf.write_dataset(data, path)
    return path


@pytest.fixture
def days(tmp_path: Path) -> str:
    """A file of ordinary dates."""
    return _write(_days("standard"), tmp_path)


def _opened(path: str, **options: Any) -> xr.Dataset:
    return xr.open_dataset(path, engine="bedform", **options)


# Times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calendar", CALENDARS)
def test_values_of_times_are_those_of_xarray(tmp_path: Path, kind: str, calendar: str) -> None:
    """Fields, coordinates and bounds are decoded; ``decode=False`` gives stored numbers."""
    path = _write(_days(calendar), tmp_path, kind)
    data = _opened(path).load()
    query = bf.open(path).query(HOT)
    truth = (data.t2m > 300).values
    for name in ("seen", "time"):
        whole = data[name].broadcast_like(data.t2m).values
        assert query.values(name).dtype == whole.dtype
        np.testing.assert_array_equal(query.values(name), whole[truth])
    bounds = data.time_bnds.broadcast_like(data.t2m).transpose("time", "lat", "nv").values
    np.testing.assert_array_equal(query.values("time_bnds"), bounds[truth].ravel())
    assert query.values("seen", limit=1).tolist() == query.values("seen")[:1].tolist()
    nowhere = bf.open(path).query("t2m > 1e9").values("seen")
    assert nowhere.shape == (0,) and nowhere.dtype == data.seen.dtype
    raw = _opened(path, decode_times=False).load().seen.values
    stored = bf.open(path).query(HOT, decode=False).values("seen")
    assert stored.dtype.kind == "i"
    np.testing.assert_array_equal(stored, raw[truth])


def test_a_missing_time_is_nat(tmp_path: Path) -> None:
    data = _days("standard")
    data["seen"] = data.seen.where(data.time > data.time[0])
    found = bf.open(_write(data, tmp_path)).query("t2m > 0").values("seen")
    np.testing.assert_array_equal(np.isnat(found), np.arange(20) < 5)


def test_no_times_have_the_type_of_some(tmp_path: Path) -> None:
    """A date of year 1, from which the numbers count, would be an object of cftime."""
    store = bf.create(tmp_path / "s.zarr")
    x = store.create_array("x", data=737_000 + np.arange(3), dims=("x",))
    x.attributes["units"] = "days since 0001-01-01"
    store.create_array("y", data=np.arange(3), dims=("x",))
    dtypes = [store.query(text).values("x").dtype for text in ("y > 1", "y > 9")]
    assert dtypes == ["M8[ns]", "M8[ns]"]


def test_times_are_not_compared_or_reduced_and_one_line_names_the_way(days: str) -> None:
    file = bf.open(days)
    cases = [
        (lambda: file.query("time > 3"), r'sel=\{"time": slice.*--sel time=.*decode=False'),
        (lambda: file.query("time_bnds > 3"), r'sel=\{"time": slice.*decode=False'),
        (lambda: file.query("seen > 3"), r'values\("seen"\).*decode=False'),
        (lambda: file.query(HOT).min("seen"), r'reduce values\("seen"\).*decode=False'),
        (lambda: file.query(HOT).mean("time_bnds", over="time"), r'reduce values\("time_bnds"\)'),
        (lambda: file.query(HOT).histogram("seen"), r'reduce values\("seen"\)'),
    ]
    for call, words in cases:
        with pytest.raises(bf.UnsupportedError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert file.query("seen > 3", decode=False).max("seen") == 6 * 24


def test_times_of_unknown_units_are_refused_with_a_way_to_their_numbers(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", data=np.arange(4.0), dims=("x",))
    x = store.create_array("x", data=np.arange(4), dims=("x",))
    x.attributes["units"] = "days since yesterday"
    with pytest.raises(bf.UnsupportedError, match=r"days since yesterday.*decode=False") as caught:
        store.query("t > 1").values("x")
    assert "\n" not in str(caught.value)
    assert store.query("t > 1", decode=False).values("x").tolist() == [2, 3]


# Tables -------------------------------------------------------------------------------------------


def _table(path: str, output: Path, *options: str) -> tuple[list[str], list[list[str]]]:
    """Writes a table by the command; returns its header and rows."""
    done = CliRunner().invoke(app, ["query", path, HOT, "--output", str(output), *options])
    assert done.exit_code == 0, done.exception
    header, *rows = csv.reader(output.read_text().splitlines())
    return header, rows


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("result", ["points", "values"])
def test_a_csv_table_has_positions_labels_and_values(
    tmp_path: Path, kind: str, calendar: str, result: str
) -> None:
    """Labels stand beside positions, as columns; times are dates of ISO 8601."""
    path = _write(_days(calendar), tmp_path, kind)
    data = _opened(path).load()
    header, rows = _table(path, tmp_path / "hot.csv", "--return", result)
    assert header == ["time_index", "time", "lat_index", "lat", "t2m"]
    at = np.argwhere((data.t2m > 300).values)
    assert len(rows) == len(at)
    for (step, time, place, lat, value), (i, j) in zip(rows, at, strict=True):
        assert (int(step), int(place)) == (i, j)
        assert time == f"2020-01-{i + 1:02}T00:00:00"
        assert float(lat) == data.lat.values[j]
        assert float(value) == data.t2m.values[i, j]


def test_a_table_has_the_values_of_one_array_the_first_rows_and_the_selection(
    days: str, tmp_path: Path
) -> None:
    data = _opened(days).load().sel(time=slice("2020-01-02", None))
    at = np.argwhere((data.t2m > 300).values)[:3]
    options = ["--of", "seen", "--limit", "3", "--sel", "time=2020-01-02:2020-01-04"]
    header, rows = _table(days, tmp_path / "hot.csv", "--return", "values", *options)
    assert header[-1] == "seen"
    assert [row[-1] for row in rows] == [
        str(np.datetime64(data.seen.values[i, j], "s")) for i, j in at
    ]


def test_a_stored_table_has_stored_numbers(days: str, tmp_path: Path) -> None:
    options = ["--return", "points", "--of", "seen", "--stored"]
    header, rows = _table(days, tmp_path / "hot.csv", *options)
    columns = {name: [float(row[at]) for row in rows] for at, name in enumerate(header)}
    assert columns["time"] == columns["time_index"]
    hours = np.array([48, 49, 50, 51, 72])[np.array(columns["lat_index"], int)]
    np.testing.assert_array_equal(columns["seen"], hours + 24 * np.array(columns["time"]))


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_dimension_without_coordinate_has_positions_alone_and_text_is_quoted(
    tmp_path: Path,
) -> None:
    names = np.array(["Berne, CH", "Oslo"], dtype=object)
    data = xr.Dataset({"t2m": (("step", "site"), np.full((2, 2), 310.0))}, {"site": names})
    header, rows = _table(_write(data, tmp_path), tmp_path / "x.csv", "--return", "points")
    assert header == ["step_index", "site_index", "site", "t2m"]
    assert rows[0] == ["0", "0", "Berne, CH", "310.0"]
    assert len(rows) == 4


def test_a_table_without_rows_has_its_header(days: str, tmp_path: Path) -> None:
    header, rows = _table(days, tmp_path / "x.csv", "--return", "points", "--limit", "0")
    assert header == ["time_index", "time", "lat_index", "lat", "t2m"]
    assert rows == []


@pytest.mark.parametrize("calendar", CALENDARS)
def test_parquet_csv_and_batches_have_one_table(tmp_path: Path, calendar: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = _write(_days(calendar), tmp_path)
    header, rows = _table(path, tmp_path / "x.csv", "--return", "values", "--of", "seen")
    arguments = ["query", path, HOT, "--output", str(tmp_path / "x.parquet"), "--of", "seen"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.equals(arrow.Table.from_batches(bf.open(path).query(HOT).batches("seen")))
    assert table.schema.names == header
    is_time = arrow.types.is_timestamp if calendar == "standard" else arrow.types.is_string
    assert is_time(table.schema.field("time").type) and is_time(table.schema.field("seen").type)
    for at, name in enumerate(header):
        column = table[name].to_numpy()
        column = column.astype("M8[s]") if column.dtype.kind == "M" else column
        assert [row[at] for row in rows] == [str(value) for value in column]


def test_a_table_in_parts_is_whole_and_has_the_limit(tmp_path: Path) -> None:
    """Parts that memory bounds follow each other in C order."""
    values = np.random.default_rng(0).random((30, 40))
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", data=values, dims=("y", "x"))
    table = PointTable(store.query("t > 0.5"), None)
    for limit in (None, 0, 100):
        parts = list(table.parts(5_000, limit))
        assert len(parts) != 1
        found = np.concatenate([table.empty()["t"], *(part["t"] for part in parts)])
        np.testing.assert_array_equal(found, values[values > 0.5][:limit])


@pytest.mark.parametrize("memory", [1 << 20, 500], ids=["whole", "parts"])
def test_values_with_further_dimensions_have_positions_and_labels_along_these(
    days: str, memory: int
) -> None:
    """A condition on the latitudes alone, and values of all times there."""
    data = _opened(days).load()
    query = bf.open(days).query("mask > 0 and lat < 40")
    table = PointTable(query, ["t2m", "seen"])
    assert list(table.empty()) == ["time_index", "time", "lat_index", "lat", "t2m", "seen"]
    parts = list(table.parts(memory))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in table.empty()}
    steps, places = columns["time_index"], columns["lat_index"]
    assert sorted(zip(steps, places, strict=True)) == [(i, j) for i in range(4) for j in (1, 2)]
    for name in ("t2m", "seen"):
        np.testing.assert_array_equal(columns[name], data[name].values[steps, places])
    np.testing.assert_array_equal(columns["time"], data.time.values[steps])
    np.testing.assert_array_equal(columns["lat"], data.lat.values[places])


def test_an_array_with_the_name_of_positions_is_refused(tmp_path: Path) -> None:
    data = xr.Dataset({"t2m": ("x", [310.0]), "x_index": ("x", [7])})
    path = _write(data, tmp_path)
    arguments = ["query", path, HOT, "--return", "points", "--output", str(tmp_path / "x.csv")]
    refused = CliRunner().invoke(app, [*arguments, "--of", "x_index"])
    assert "'x_index' would be a variable and the positions along 'x'" in str(refused.exception)
    assert not (tmp_path / "x.csv").exists()
    with pytest.raises(bf.InvalidArgumentError, match="rename"):
        _opened(path).bedform.points(HOT, variables=["x_index"])
    assert _opened(path).bedform.points(HOT).x_index.values.tolist() == [0]


def test_json_and_lines_of_times_are_dates(
    days: str, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    arguments = ["query", days, HOT, "--return", "values", "--of", "seen", "--limit", "1"]
    data = _opened(days).load()
    i, j = np.argwhere((data.t2m > 300).values)[0]
    first = str(np.datetime64(data.seen.values[i, j], "s"))
    assert bedform_command(*arguments).stdout.strip() == first
    assert f'"{first}"' in bedform_command(*arguments, "--json").stdout


# Points of data sets ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"chunks": {}}], ids=["lazy", "dask"])
@pytest.mark.parametrize("calendar", CALENDARS)
def test_positions_of_points_select_the_same_values_by_isel(
    tmp_path: Path, kind: str, options: dict[str, Any], calendar: str
) -> None:
    """Positions are those in the data set that was asked, also after a selection."""
    path = _write(_days(calendar), tmp_path, kind)
    for part in (
        _opened(path, **options),
        _opened(path, **options).isel(time=slice(1, None), lat=slice(4, 0, -1)),
        _opened(path, **options).isel(lat=[4, 0, 2]),
    ):
        found = part.bedform.points(HOT, variables=["seen", "mask"])
        assert found.time_index.dtype == found.lat_index.dtype == np.int64
        assert set(found.data_vars) == {"seen", "mask"}
        again = part[["seen", "mask"]].isel(time=found.time_index, lat=found.lat_index)
        xr.testing.assert_identical(found.load(), again.load())
        picked = part.t2m.isel(time=found.time_index, lat=found.lat_index)
        assert (picked > 300).all()
        assert found.sizes["points"] == int((part.t2m > 300).sum())


def test_variables_of_points_are_one_or_many_and_keep_further_dimensions(days: str) -> None:
    data = _opened(days)
    found = data.bedform.points("mask > 0", variables="t2m")
    assert found.t2m.dims == ("time", "points")
    np.testing.assert_array_equal(found.t2m, data.t2m.values[:, [1, 2, 4]])
    assert found.lat_index.values.tolist() == [1, 2, 4]
    assert "time_index" not in found.coords
    with pytest.raises(bf.NotFoundError, match="did you mean 't2m'"):
        data.bedform.points("mask > 0", variables=["t2n"])


@pytest.mark.parametrize("options", [{}, {"chunks": {}}], ids=["lazy", "dask"])
@pytest.mark.parametrize("calendar", CALENDARS)
def test_conditions_on_times_of_a_data_set_are_refused_with_a_way(
    tmp_path: Path, options: dict[str, Any], calendar: str
) -> None:
    data = _opened(_write(_days(calendar), tmp_path), **options)
    data["since"] = data.time.dt.dayofyear * np.timedelta64(1, "D")
    for name, words in {
        "time": r'ds\.sel\(\{"time": slice',
        "seen": r'variables=\["seen"\]',
        "time_bnds": r'variables=\["time_bnds"\]',
        "since": "timedelta64",
    }.items():
        with pytest.raises(bf.UnsupportedError, match=words) as caught:
            data.bedform.points(f"t2m > 300 and {name} > 3")
        assert "\n" not in str(caught.value)


# Quotes -------------------------------------------------------------------------------------------


def test_a_name_without_comparison_is_told_to_be_quoted(
    days: str, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A shell takes ``> 310`` without quotes as a file, and the command sees the name alone."""
    done = bedform_command("query", days, "t2m")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "quote the condition" in done.stderr
    assert f'bedform query {days} "t2m > 310"' in done.stderr
    assert "quote" not in bedform_command("query", days, "t2m + 1").stderr


def test_an_array_of_truth_values_is_a_condition_by_its_name(tmp_path: Path) -> None:
    land = np.array([True, False, True])
    bf.create(tmp_path / "s.zarr").create_array("land", data=land, dims=("x",))
    done = CliRunner().invoke(app, ["query", str(tmp_path / "s.zarr"), "land"])
    assert done.exit_code == 0 and done.output.strip() == "2"
