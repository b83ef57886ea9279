"""Queries by value: equal to xarray's evaluation of the expression over the whole arrays."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import is_night
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

if TYPE_CHECKING:
    from pathlib import Path


def _weather(rng: np.random.Generator) -> xr.Dataset:
    """A data set with packed and plain variables, missing values, and coordinates."""
    shape = (12, 9, 14)
    t2m = 280 + 30 * rng.random(shape)
    t2m[rng.random(shape) < 0.1] = np.nan
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m, {"units": "K"}),
            "sp": (("time", "lat", "lon"), rng.normal(1000, 20, shape).astype("f4")),
            "n": (("time", "lat", "lon"), rng.integers(-100, 100, shape).astype("i2")),
            "lsm": (("lat", "lon"), rng.random(shape[1:]).astype("f4")),
            "level": (("time",), rng.integers(0, 5, shape[0]).astype("u1")),
            "swapped": (("lon", "time"), rng.random((shape[2], shape[0]))),
        },
        coords={
            "lat": ("lat", np.linspace(80, 0, shape[1])),
            "lon": ("lon", np.arange(0, 280, 20).astype("f4")),
            "time": ("time", np.datetime64("2020-01-01", "ns") + np.arange(12) * 86400 * 10**9),
        },
    )
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 290.0, "_FillValue": -32767}
    data["t2m"].encoding = packing
    return data


def _write(data: xr.Dataset, directory: Path, kind: str) -> str:
    path = str(directory / f"data.{kind}")
    if kind == "zarr":
        bf.write_dataset(data, path)
        return path
    chunked = {
        name: {**data[name].encoding, "chunksizes": (5, 4, 6), "zlib": True}
        for name in ("t2m", "n")
    }
    if kind == "nc":
        data.to_netcdf(path, engine="netcdf4", encoding=chunked)
    else:
        data.drop_vars("level").to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT")
    return path


@pytest.fixture(params=["zarr", "nc", "nc3"])
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, xr.Dataset]:
    """A source, and the same as xarray decodes it."""
    path = _write(_weather(np.random.default_rng(3)), tmp_path, request.param)
    return bf.open(path), xr.open_dataset(path, engine="bedform").load()


def expected(data: xr.Dataset, expression: str, dims: tuple[str, ...]) -> Any:
    """The truth of an expression over the whole arrays, in this order of dimensions."""
    for name in ("sqrt", "minimum", "maximum"):
        expression = expression.replace(f"{name}(", f"np.{name}(")
    found = data.eval(expression)
    whole = {dim: data.sizes[dim] for dim in dims}
    return found.broadcast_like(xr.DataArray(np.zeros(list(whole.values())), dims=dims)).transpose(
        *dims
    )


EXPRESSIONS = [
    "t2m > 300",
    "t2m > 300 and lsm > 0.5 and lat > 40",
    "t2m <= 285.5 or sp < 990",
    "not (t2m > 300)",
    "(t2m > 300) & ~(lsm < 0.5)",
    "290 < t2m <= 300",
    "t2m != 290",
    "n == 7",
    "n + 100 > 150",
    "abs(n) > 90",
    "sqrt(abs(n)) < 3",
    "minimum(t2m, sp) > 305",
    "maximum(n, 3) == 3",
    "t2m - 273.15 > sp / 40",
    "lat > 40",
    "lat > 40 and lon < 100",
    "swapped > 0.9",
    "swapped > 0.5 and n > 0",
    "n > 200",
    "n < 1e9",
    "n > -1e9 and lat >= 40",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counts_points_and_masks_equal_those_of_xarray(
    weather: tuple[Any, xr.Dataset], expression: str
) -> None:
    """All results of a query follow from one truth table, which xarray makes too."""
    store, data = weather
    query = store.query(expression)
    truth = expected(data, expression, query.dims)
    assert query.count() == int(truth.sum())
    assert query.any() == bool(truth.any())
    np.testing.assert_array_equal(query.points(), np.argwhere(truth.values))
    np.testing.assert_array_equal(query.mask(), truth.values)
    for dim in query.dims:
        np.testing.assert_array_equal(query.count(over=dim), truth.sum(dim).values)
    np.testing.assert_array_equal(query.any(over=query.dims[:1]), truth.any(query.dims[:1]).values)


def test_a_query_of_a_region_has_absolute_positions_and_masks_of_the_region(
    weather: tuple[Any, xr.Dataset],
) -> None:
    """The region cuts the truth table, and moves no position."""
    store, data = weather
    region = np.s_[3:9, 2:7, 4:11]
    query = store.query("t2m > 295", region=region)
    whole = expected(data, "t2m > 295", query.dims).values
    np.testing.assert_array_equal(query.mask(), whole[region])
    points = np.argwhere(whole[region]) + np.array([3, 2, 4])
    np.testing.assert_array_equal(query.points(), points)
    assert query.region == region
    by_name = store.query("t2m > 295", region={"time": slice(3, 9), "lon": 5})
    np.testing.assert_array_equal(by_name.mask(), whole[3:9, :, 5:6])


def test_labels_select_as_in_xarray_and_descending_ones_in_either_order(
    weather: tuple[Any, xr.Dataset],
) -> None:
    """Both ends of a slice of labels are included; times are text."""
    store, data = weather
    sel = {"lat": slice(20, 60), "time": slice("2020-01-03", "2020-01-07"), "lon": 40}
    query = store.query("t2m > 290", sel=sel)
    part = data.sel(lat=slice(60, 20), time=sel["time"], lon=[40])
    assert query.count() == int((part.t2m > 290).sum())
    assert query.mask().shape == (5, 5, 1)


def test_values_and_statistics_are_those_of_the_matching_elements(
    weather: tuple[Any, xr.Dataset],
) -> None:
    """Missing values take no part in statistics, as in xarray."""
    store, data = weather
    query = store.query("lsm > 0.4 and n > 0")
    truth = expected(data, "lsm > 0.4 and n > 0", query.dims)
    for name in ("t2m", "sp", "n"):
        chosen = data[name].transpose(*query.dims).values[truth.values]
        np.testing.assert_array_equal(query.values(name), chosen)
        assert query.values(name).dtype == data[name].dtype
        masked = data[name].where(truth)
        for what in ("min", "max", "mean", "sum"):
            exact = getattr(masked.astype("f8"), what)()
            np.testing.assert_allclose(getattr(query, what)(name), exact, rtol=1e-12)
            over = getattr(masked.astype("f8"), what)("time").transpose("lat", "lon")
            np.testing.assert_allclose(getattr(query, what)(name, over="time"), over, rtol=1e-12)
    values = query.values("sp")
    counts, edges = query.histogram("sp", bins=7)
    known, known_edges = np.histogram(values.astype("f8"), 7)
    np.testing.assert_allclose(edges, known_edges)
    np.testing.assert_array_equal(counts, known)
    assert query.min("n") == int(query.values("n").min())


def test_an_array_with_further_dimensions_extends_the_query(
    weather: tuple[Any, xr.Dataset],
) -> None:
    """A condition on the land mask alone selects values of all times."""
    store, data = weather
    query = store.query("lsm > 0.8")
    masked = data["sp"].where(data["lsm"] > 0.8).astype("f8")
    np.testing.assert_allclose(query.mean("sp"), masked.mean(), rtol=1e-12)
    assert len(query.values("sp")) == int(masked.count())


def test_a_limit_takes_the_first_points_in_c_order(weather: tuple[Any, xr.Dataset]) -> None:
    """The first points are the same however many blocks and threads there are."""
    store, data = weather
    query = store.query("n > 0")
    all_points = np.argwhere(expected(data, "n > 0", query.dims).values)
    for limit in (0, 1, 7, 10**6):
        np.testing.assert_array_equal(query.points(limit), all_points[:limit])
    np.testing.assert_array_equal(query.values("sp", 5), query.values("sp")[:5])


def test_stored_values_are_compared_with_decode_false(weather: tuple[Any, xr.Dataset]) -> None:
    """Fill values are numbers then."""
    store, _ = weather
    raw = store["t2m"][...]
    query = store.query("t2m == -32767", decode=False)
    assert query.count() == int((raw == -32767).sum())
    assert query.values("t2m").dtype == raw.dtype


def test_record_batches_have_positions_coordinates_and_values(
    weather: tuple[Any, xr.Dataset],
) -> None:
    """Other programs read a query as a table."""
    arrow = pytest.importorskip("pyarrow")
    store, _ = weather
    query = store.query("n > 50")
    table = arrow.table(query)
    points = query.points()
    assert table.num_rows == len(points)
    np.testing.assert_array_equal(table["lat_index"].to_numpy(), points[:, 1])
    np.testing.assert_array_equal(table["lat"].to_numpy(), store["lat"][:][points[:, 1]])
    np.testing.assert_array_equal(table["n"].to_numpy(), query.values("n"))
    small = list(query.batches(["sp"], memory="20 kB"))
    assert sum(batch.num_rows for batch in small) == len(points)
    assert len(small) > 1


def test_mistakes_are_errors_of_one_line_with_the_remedy(weather: tuple[Any, xr.Dataset]) -> None:
    """Names, dimensions, types and syntax."""
    store, _ = weather
    for expression, words in [
        ("t2m >", "column"),
        ("t2n > 3", "t2m"),
        ("t2m", "condition"),
        ("time > 3", "sel="),
        ("(" * 10_000 + "t2m > 3" + ")" * 10_000, "levels"),
        ("t2m > 1 & n < 2", "bracket"),
    ]:
        with pytest.raises(bf.BedformError, match=words) as caught:
            store.query(expression)
        assert "\n" not in str(caught.value)
    with pytest.raises(bf.InvalidArgumentError, match="depth"):
        store.query("n > 0", region={"depth": slice(0, 1)})
    with pytest.raises(bf.InvalidArgumentError, match="depth"):
        store.query("n > 0").count(over="depth")
    with pytest.raises(bf.LimitExceededError, match="by a limit"):
        store.query("n > -1000", memory="1 kB").points()
    with pytest.raises(bf.LimitExceededError, match="reduce more"):
        store.query("n > -1000", memory="100 B").count(over="time")


def test_a_query_sees_commits_that_are_not_settled(tmp_path: Path) -> None:
    """A block under a log is read with its log."""
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", data=np.zeros((8, 8)), dims=("y", "x"), chunks=(4, 4))
    with store.session(settle="later") as session:
        session.write("t", np.ones((2, 8)), start=(3, 0))
        session.commit()
    assert store.query("t == 1").count() == 16
    assert t[3, 0] == 1


def _operand(rng: random.Random) -> str:
    return rng.choice(
        ["a", "b", "c", "d", "x", "y", "3", "0.5", "-2", "300", "1e3", "nan", "inf", "70000"]
    )


def _number(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.4:
        return _operand(rng)
    kind = rng.randrange(8)
    one, other = _number(rng, depth - 1), _number(rng, depth - 1)
    if kind < 5:
        return f"({one} {rng.choice(['+', '-', '*', '/'])} {other})"
    if kind == 5:
        return f"abs({one})"
    if kind == 6:
        return f"{rng.choice(['minimum', 'maximum'])}({one}, {other})"
    return f"-{one}"


def _truth(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(6)
    if depth == 0 or kind < 3:
        comparison = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        text = f"{_number(rng, 2)} {comparison} {_number(rng, 2)}"
        return f"{text} <= {_operand(rng)}" if rng.random() < 0.1 else text
    one, other = _truth(rng, depth - 1), _truth(rng, depth - 1)
    if kind == 3:
        return f"not ({one})"
    return f"({one}) {rng.choice(['and', 'or', '&', '|'])} ({other})"


TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
# pandas has no index of the others.
LABEL_TYPES = [kind for kind in TYPES if kind not in ("?", "f2")]


@pytest.mark.parametrize("seed", range(200 if is_night() else 8))
def test_random_expressions_over_random_types_equal_numpy(seed: int, tmp_path: Path) -> None:
    """NumPy's rules of promotion, wrapping, rounding and NaN hold for all types."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    path = str(tmp_path / "s.zarr")
    store = bf.create(path)
    arrays = {}
    shapes = {
        "a": ("y", "x"),
        "b": ("y", "x"),
        "c": ("x",),
        "d": ("x", "y"),
        "x": ("x",),
        "y": ("y",),
    }
    sizes = {"y": 7, "x": 11}
    for name, dims in shapes.items():
        dtype = np.dtype(rng.choice(TYPES if name not in "xy" else LABEL_TYPES))
        shape = tuple(sizes[dim] for dim in dims)
        values = numbers.integers(-130, 300, shape).astype("f8")
        if dtype.kind == "f":
            values[numbers.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
            values += numbers.integers(0, 4, shape) / 4
        with np.errstate(all="ignore"):
            arrays[name] = (
                values.astype("i8", casting="unsafe").astype(dtype)
                if (dtype.kind in "iub")
                else values.astype(dtype)
            )
        store.create_array(
            name, data=arrays[name], dims=dims, chunks=tuple(rng.randint(2, size) for size in shape)
        )
    data = xr.Dataset({name: (shapes[name], arrays[name]) for name in "abcd"}).assign_coords(
        {name: (shapes[name], arrays[name]) for name in "xy"}
    )
    tried = 0
    for _ in range(40):
        expression = _truth(rng, 2)
        named = [name for name in shapes if _names(expression, name)]
        if not named:
            continue
        with np.errstate(all="ignore"):
            try:
                truth = _evaluated(expression, data)
            except ZeroDivisionError:
                # Of two numbers, which Python divides.
                continue
            except (OverflowError, TypeError, np.exceptions.DTypePromotionError):
                with pytest.raises(bf.BedformError):
                    store.query(expression, decode=False).count()
                continue
        query = store.query(expression, decode=False)
        whole = xr.DataArray(np.zeros([sizes[dim] for dim in query.dims]), dims=query.dims)
        truth = (xr.zeros_like(whole, dtype=bool) | truth).transpose(*query.dims)
        np.testing.assert_array_equal(query.mask(), truth.values, err_msg=expression)
        tried += 1
    assert tried > 5


def _names(expression: str, name: str) -> bool:
    return bool(re.search(rf"\b{name}\b", expression))


def _evaluated(expression: str, data: xr.Dataset) -> Any:
    """Evaluates by xarray's own evaluator, with NumPy's functions under their short names."""
    # `not` of Python's own truth values would be an integer.
    text = expression.replace("not (", "np.logical_not(")
    for name in ("minimum", "maximum"):
        text = text.replace(f"{name}(", f"np.{name}(")
    return data.eval(re.sub(r"\b(nan|inf)\b", r"np.\1", text))


def _opened(tmp_path: Path, kind: str, **options: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """A lazy data set, and the same in memory."""
    path = _write(_weather(np.random.default_rng(5)), tmp_path, kind)
    lazy = xr.open_dataset(path, engine="bedform", **options)
    return lazy, xr.open_dataset(path, engine="bedform").load()


@pytest.mark.parametrize("options", [{}, {"chunks": {}}], ids=["lazy", "dask"])
@pytest.mark.parametrize("kind", ["zarr", "nc"])
def test_points_of_a_data_set_have_values_and_labels_after_selections(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """Slices, integers and labels cut the condition's variables; lists are evaluated by xarray."""
    lazy, data = _opened(tmp_path, kind, **options)
    for cut in (
        lambda of: of,
        lambda of: of.isel(time=slice(2, 9), lon=slice(3, None)),
        lambda of: of.isel(time=4),
        lambda of: of.sel(lat=slice(60, 20)),
        lambda of: of.isel(lon=[1, 5, 2]),
    ):
        part, whole = cut(lazy), cut(data)
        found = part.bedform.points("t2m > 295 and lsm > 0.3 and lat > 10").load()
        positions = {f"{dim}_index": found[f"{dim}_index"] for dim in part.t2m.dims}
        found = found.drop_vars(list(positions))
        truth = (whole.t2m > 295) & (whole.lsm > 0.3) & (whole.lat > 10)
        places = np.argwhere(truth.values)
        at = {dim: xr.Variable("points", places[:, i]) for i, dim in enumerate(truth.dims)}
        expected = whole[["t2m", "lsm"]].isel(at)
        xr.testing.assert_equal(found, expected)
        for axis, dim in enumerate(truth.dims):
            np.testing.assert_array_equal(positions[f"{dim}_index"], places[:, axis])
    limited = lazy.bedform.points("n > 0", variables=["sp"], limit=3)
    assert set(limited.data_vars) == {"sp"}
    assert limited.sizes == {"points": 3}


def test_points_of_an_array_are_found_by_its_name(tmp_path: Path) -> None:
    """A nameless array is told to get one."""
    lazy, data = _opened(tmp_path, "zarr")
    found = lazy.t2m.isel(time=slice(1, 5)).bedform.points("t2m > 300 and lon < 100")
    truth = (data.t2m.isel(time=slice(1, 5)) > 300) & (data.lon < 100)
    assert found.sizes["points"] == int(truth.sum())
    assert (found.lon < 100).all()
    with pytest.raises(bf.InvalidArgumentError, match="rename"):
        (lazy.t2m + 1).rename(None).bedform.points("t2m > 3")
    with pytest.raises(bf.NotFoundError, match="lsm"):
        lazy.bedform.points("lsn > 3")


def _smooth(tmp_path: Path, kind: str) -> tuple[str, np.ndarray[Any, Any]]:
    """A source with a field that rises along its first axis, with missing values."""
    values = np.arange(64.0)[:, None, None] + np.random.default_rng(0).random((64, 160, 200))
    values[5:9, 3] = np.nan
    data = xr.Dataset({"t": (("z", "y", "x"), values)}, {"y": np.arange(160.0)})
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 30.0, "_FillValue": -32767}
    path = str(tmp_path / f"s.{kind}")
    if kind == "zarr":
        bf.write_dataset(data, path, encoding={"t": {"chunks": (8, 160, 200)}})
    elif kind == "nc":
        encoding = {**packing, "chunksizes": (8, 160, 200), "zlib": True}
        data.to_netcdf(path, encoding={"t": encoding})
    else:
        data.to_netcdf(path, format="NETCDF3_64BIT")
    with xr.open_dataset(path, engine="netcdf4" if kind != "zarr" else "bedform") as opened:
        return path, opened["t"].values


@pytest.mark.parametrize("kind", ["zarr", "nc", "nc3"])
def test_an_index_leaves_out_blocks_and_changes_no_result(tmp_path: Path, kind: str) -> None:
    """Blocks whose ranges decide are not read; the others are evaluated."""
    path, values = _smooth(tmp_path, kind)
    cases = ["t > 60", "t < 3.5", "t >= 0", "t != 20", "not (t > 60)", "30 < t <= 31", "t - 1 > 62"]
    before = {text: bf.open(path).query(text).count() for text in cases}
    bf.index(path)
    store = bf.open(path)
    for text in cases:
        spelled = text.replace("not ", "~").replace("30 < t <= 31", "(t > 30) & (t <= 31)")
        truth = eval(spelled, {"t": values})  # noqa: S307 - the cases above
        query = store.query(text)
        assert query.count() == before[text] == int(truth.sum()), text
        np.testing.assert_array_equal(query.points(), np.argwhere(truth))
        np.testing.assert_array_equal(query.mask(), truth)
    plan = store.query("t > 60").explain().to_dict()
    assert plan["indexed"] == ["t"]
    assert plan["blocks_pruned"] > plan["blocks"] // 2
    assert plan["bytes"] < plan["bytes_of_scan"]
    assert store.query("t > -5").explain().to_dict()["blocks_whole"] > 0


def test_a_block_that_changed_after_it_was_indexed_is_scanned(tmp_path: Path) -> None:
    """Direct writes and commits that are not settled are seen."""
    path, values = _smooth(tmp_path, "zarr")
    bf.index(path)
    store = bf.open(path, mode="r+")
    assert store.query("t > 1000").count() == 0
    store["t"][0, 0, 0] = 2000.0
    assert store.query("t > 1000").points().tolist() == [[0, 0, 0]]
    with store.session(settle="later") as session:
        session.write("t", np.full((1, 1, 3), 3000.0), start=(40, 2, 5))
        session.commit()
    assert store.query("t > 2500").count() == 3
    assert store.query("t > 60").count() == int((values > 60).sum()) + 4


@pytest.fixture
def year(tmp_path: Path) -> Path:
    """Returns a file with a variable, times with bounds, and a second variable."""
    time = xr.date_range("2020-01-01", periods=4)
    chance = np.random.default_rng(3)
    data = xr.Dataset(
        {
            "t2m": (("time", "lat"), chance.normal(300, 10, (4, 5))),
            "sst": (("time", "lat"), chance.normal(280, 10, (4, 5))),
            "time_bnds": (("time", "nv"), np.stack([time, time + np.timedelta64(1, "D")], 1)),
        },
        {"time": ("time", time, {"bounds": "time_bnds"}), "lat": np.arange(5.0)},
    )
    days = {"units": "days since 2020-01-01"}
    data.to_netcdf(tmp_path / "year.nc", encoding={"time": days})
    return tmp_path / "year.nc"


def test_bounds_of_times_are_times_and_no_numbers(year: Path) -> None:
    """They are decoded with the units of their coordinate, which stand there alone."""
    with pytest.raises(bf.UnsupportedError, match=r"time_bnds holds times.*sel=\{\"time\""):
        bf.open(year).query("time_bnds > 3")
    assert bf.open(year).query("time_bnds >= 0", decode=False).count() == 8


def test_short_names_with_a_wrong_letter_have_near_ones(year: Path) -> None:
    for wrong, right in {"t2n": "t2m", "sts": "sst", "latt": "lat"}.items():
        with pytest.raises(bf.NotFoundError, match=f"did you mean '{right}'"):
            bf.open(year).query(f"{wrong} > 3")


def test_labels_are_one_or_a_range_and_errors_show_them_plainly(year: Path) -> None:
    with pytest.raises(bf.InvalidArgumentError, match=r"lat: .* slice of labels, not \[1, 2\]"):
        bf.open(year).query("t2m > 3", sel={"lat": [1, 2]})
    with pytest.raises(bf.InvalidArgumentError, match=r"no label 2.5: it has 0.0 to 4.0; a slice"):
        bf.open(year).query("t2m > 3", sel={"lat": 2.5})
    with pytest.raises(bf.InvalidArgumentError, match=r"^sel of lat has a step"):
        bf.open(year).query("t2m > 3", sel={"lat": slice(1, 3, 2)})


def test_batches_take_the_name_of_one_array(year: Path) -> None:
    pytest.importorskip("pyarrow")
    batch = next(bf.open(year).query("t2m > 0").batches("sst"))
    assert batch.schema.names == ["time_index", "time", "lat_index", "lat", "sst"]


def test_a_parquet_table_has_the_asked_rows_and_values_or_is_refused(
    year: Path, tmp_path: Path
) -> None:
    runner, path = CliRunner(), tmp_path / "x.parquet"

    def run(*options: str) -> Any:
        return runner.invoke(app, ["query", str(year), "t2m > 0", "--output", str(path), *options])

    for options in (("--return", "mean"), ("--over", "time")):
        refused = run(*options)
        assert refused.exit_code != 0 and not path.exists()
        assert "a Parquet table has points" in str(refused.exception)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("--of", "sst", "--limit", "3").exit_code == 0
    table = parquet.read_table(path)
    assert table.num_rows == 3
    assert table.schema.names == ["time_index", "time", "lat_index", "lat", "sst"]


def test_written_points_are_all_and_no_note_says_otherwise(year: Path, tmp_path: Path) -> None:
    data = xr.Dataset({"t": ("x", np.arange(3000.0))})
    data.to_netcdf(tmp_path / "long.nc")
    arguments = ["query", str(tmp_path / "long.nc"), "t >= 0", "--return", "points"]
    done = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "p.npy")])
    assert done.exit_code == 0 and "the first" not in done.output + done.stderr
    assert len(np.load(tmp_path / "p.npy")) == 3000
    assert "the first 1,000 of 3,000" in CliRunner().invoke(app, arguments).stderr


def test_a_query_of_a_scalar_has_a_mask(tmp_path: Path) -> None:
    xr.Dataset({"s": 5.0}).to_netcdf(tmp_path / "s.nc")
    query = bf.open(tmp_path / "s.nc").query("s > 4")
    assert query.mask().shape == () and query.mask()[()]
    assert query.count() == 1


def test_batches_keep_to_their_memory_along_every_dimension(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    values = np.arange(40_000.0).reshape(1, 40_000)
    bf.create(tmp_path / "s.zarr").create_array("t", data=values, dims=("y", "x"))
    batches = list(bf.open(tmp_path / "s.zarr").query("t >= 0").batches(memory=100_000))
    assert max(batch.nbytes for batch in batches) <= 100_000
    found = np.concatenate([batch["t"].to_numpy() for batch in batches])
    np.testing.assert_array_equal(found, values[0])


def test_a_limit_fits_a_small_memory(tmp_path: Path) -> None:
    values = np.arange(300_000.0)
    bf.create(tmp_path / "s.zarr").create_array("t", data=values, dims=("x",))
    query = bf.open(tmp_path / "s.zarr").query("t >= 0", memory=10_000)
    np.testing.assert_array_equal(query.points(limit=10)[:, 0], np.arange(10))


@pytest.mark.parametrize("bins", [7, 10, 96])
def test_histograms_of_float32_have_the_edges_of_numpy(tmp_path: Path, bins: int) -> None:
    values = (np.random.default_rng(1).integers(0, 97, 20_000) * np.float32(0.1)).astype("f4")
    bf.create(tmp_path / "s.zarr").create_array("t", data=values, dims=("x",))
    counts, edges = bf.open(tmp_path / "s.zarr").query("t >= 0").histogram("t", bins=bins)
    expected, its = np.histogram(values, bins=bins)
    np.testing.assert_array_equal(edges, its)
    assert edges.dtype == its.dtype
    np.testing.assert_array_equal(counts, expected)
