"""Bins of value indexes: conditions at their edges read the index alone, and are never wrong."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from support import is_night
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (48, 40, 50)


def rough(seed: int = 0, dtype: str = "f8") -> np.ndarray[Any, Any]:
    """Noise, so that every block has values in all bins."""
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (280 + 20 * random.standard_normal(SHAPE)).astype(dtype)
    return random.integers(0, 200, SHAPE).astype(dtype)


def made(path: Path, values: Any, **how: Any) -> Any:
    """Returns an array in shards of 16 rows with chunks of 4."""
    layout = bf.Regular(chunks=(4, 40, 50), shards=(16, 40, 50))
    dims = ("time", "lat", "lon")
    return bf.create(path).create_array("t", data=values, dims=dims, layout=layout, **how)


def plan_of(path: Path, text: str, **region: Any) -> dict[str, Any]:
    return bf.open(path).query(text, **region).explain().to_dict()


def check(path: Path, values: Any, conditions: dict[str, Any], **region: Any) -> None:
    """Compares counts, points and masks with NumPy's."""
    store = bf.open(path)
    for text, truth in conditions.items():
        query = store.query(text, **region)
        assert query.count() == int(truth.sum()), text
        np.testing.assert_array_equal(query.mask(), truth, err_msg=text)
        assert len(query.points()) == int(truth.sum()), text
        found = query.values("t")
        np.testing.assert_array_equal(found, values[truth], err_msg=text)


def conditions_of(values: Any) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        return {
            "t >= 310": values >= 310,
            "t < 270": values < 270,
            "270 <= t and t < 310": (values >= 270) & (values < 310),
            "t < 270 or t >= 310": (values < 270) | (values >= 310),
            "not (t >= 310)": ~(values >= 310),
            "t > 310": values > 310,
            "t >= 305.5": values >= 305.5,
            "t != t": values != values,
            "t - 10 >= 300": values - 10 >= 300,
        }


def test_conditions_at_edges_are_decided_by_bins_alone(tmp_path: Path) -> None:
    values = rough()
    values[3, :5] = np.nan
    made(tmp_path / "s.zarr", values)
    report = bf.index(tmp_path / "s.zarr", bins=[270, 310])
    assert report.arrays[0]["bins"] == 3
    check(tmp_path / "s.zarr", values, conditions_of(values))
    for text in ("t >= 310", "t < 270", "270 <= t and t < 310", "not (t >= 310)"):
        plan = plan_of(tmp_path / "s.zarr", text)
        assert (plan["blocks_binned"], plan["blocks_read"]) == (12, 0), text
        assert plan["bytes"] < plan["bytes_of_scan"] / 4
    assert plan_of(tmp_path / "s.zarr", "t >= 305.5")["blocks_read"] == 12


def test_regions_and_other_arrays_join_with_bins(tmp_path: Path) -> None:
    """Blocks are cut by regions; a small array is compared element by element beside the bins."""
    values = rough()
    path = tmp_path / "s.zarr"
    data = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"lat": np.linspace(90, 0, 40)})
    data["lsm"] = (("lat", "lon"), np.random.default_rng(1).random((40, 50)))
    bf.write_dataset(data, path, encoding={"t": {"chunks": (4, 40, 50)}})
    bf.index(path, "t", bins=[310])
    text = "t >= 310 and lsm > 0.5 and lat < 60"
    truth = ((data.t >= 310) & (data.lsm > 0.5) & (data.lat < 60)).to_numpy()
    query = bf.open(path).query(text, region=np.s_[5:30, 3:35, 7:])
    np.testing.assert_array_equal(query.mask(), truth[5:30, 3:35, 7:])
    assert query.count() == truth[5:30, 3:35, 7:].sum()
    assert query.count(over="time").sum() == query.count()
    assert query.explain().to_dict()["blocks_read"] == 0
    both = bf.open(path).query("t >= 310 and t * lsm > 200")
    assert both.count() == int(((data.t >= 310) & (data.t * data.lsm > 200)).sum())


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", ">i4", "u8", "f2", "f4", ">f8", "?"])
def test_every_type_of_numbers_has_bins(tmp_path: Path, dtype: str) -> None:
    values = (rough(dtype="i8") % 2 if dtype == "?" else rough(dtype="i8") % 120).astype(dtype)
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    array = group.create_array("t", shape=SHAPE, chunks=(8, 40, 50), dtype=dtype)
    array[...] = values
    bf.index(tmp_path / "s.zarr", bins=[1] if dtype == "?" else [30, 100])
    if dtype == "?":
        check(tmp_path / "s.zarr", values, {"t == 1": values == 1})
        return
    check(tmp_path / "s.zarr", values, {"t >= 100": values >= 100, "t < 30": values < 30})
    check(tmp_path / "s.zarr", values, {"t > 30": values > 30, "t == 99": values == 99})


@pytest.mark.parametrize("scale", [0.01, -0.01])
def test_packed_values_have_edges_in_decoded_numbers(tmp_path: Path, scale: float) -> None:
    values = rough()
    values[values > 330] = np.nan
    packing = {"dtype": "i2", "scale_factor": scale, "add_offset": 280.0, "_FillValue": -32767}
    encoding = {"t": {**packing, "chunksizes": (16, 40, 50), "zlib": True}}
    path = tmp_path / "t.nc"
    xr.Dataset({"t": (("time", "lat", "lon"), values)}).to_netcdf(path, encoding=encoding)
    bf.index(path, bins=[270, 310])
    with xr.open_dataset(path, engine="netcdf4") as opened:
        decoded = opened["t"].values
    check(path, decoded, conditions_of(decoded))
    plan = plan_of(path, "t >= 310")
    assert plan["blocks_binned"] == plan["blocks"] == 3


def test_chosen_bins_divide_the_values_evenly_between_finer_tails(tmp_path: Path) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    assert bf.index(tmp_path / "s.zarr", bins=20).arrays[0]["bins"] == 20
    group = zarr.open_group(next((tmp_path / "s.zarr.bedform/index/t/groups").iterdir()), mode="r")
    counts = group["counts"][...].reshape(-1, 21).sum(0)
    assert counts.sum() == values.size and counts[-1] == 0
    assert counts[[0, 19]].max() < 0.005 * values.size
    assert counts[2:18].min() > 0.05 * values.size
    numbers = zarr.open_group(next((tmp_path / "s.zarr.bedform/index/t/bins").iterdir()), mode="r")[
        "numbers"
    ][...]
    assert numbers.shape == SHAPE
    np.testing.assert_array_equal(np.bincount(numbers.ravel(), minlength=20), counts[:20])
    bf.index(tmp_path / "s.zarr", bins="width:8")
    least, greatest = values.min(), values.max()
    check(tmp_path / "s.zarr", values, conditions_of(values))
    assert greatest - least > 100


def tails_of(path: Path) -> Path:
    return next((path.parent / f"{path.name}.bedform/index/t/bins").iterdir())


@pytest.mark.parametrize("dtype", ["f8", "f4", ">i4", "i2", "u8"])
def test_bounds_in_the_tails_are_decided_by_the_index_alone(tmp_path: Path, dtype: str) -> None:
    """Of the outermost bins the index has the values, so that any bound there is decided."""
    values = np.random.default_rng(7).integers(0, 30_000, SHAPE).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values = rough(dtype=dtype)
        values[3, :5] = np.nan
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("t", data=values, chunks=(4, 40, 50), dimension_names=("z", "y", "x"))
    bf.index(tmp_path / "s.zarr", bins=20)
    for share in (0.0005, 0.9995, 0.999):
        bound = float(np.nanquantile(values.astype("f8"), share))
        low = share < 0.5
        truth = values < bound if low else values > bound
        text = f"t {'<' if low else '>'} {bound!r}"
        check(tmp_path / "s.zarr", values, {text: truth})
        plan = plan_of(tmp_path / "s.zarr", text)
        assert plan["blocks_read"] == 0, text
        assert plan["bytes"] < plan["bytes_of_scan"] / 20
    odd = bf.open(tmp_path / "s.zarr").query(text, region=np.s_[5:30, 3:35, 7:])
    np.testing.assert_array_equal(odd.mask(), truth[5:30, 3:35, 7:])
    np.testing.assert_array_equal(odd.values("t"), values[5:30, 3:35, 7:][odd.mask()])
    assert odd.count(over="z").sum() == odd.count()


def test_a_page_with_too_many_values_in_the_tails_is_read(tmp_path: Path) -> None:
    """Later values may all lie in the outermost bins."""
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=20)
    values[16:] += 500
    bf.open(tmp_path / "s.zarr", "r+")["t"][16:] = values[16:]
    bf.index(tmp_path / "s.zarr")
    check(tmp_path / "s.zarr", values, {"t > 800": values > 800, "t < 220": values < 220})


def test_a_renewed_page_has_its_own_tails(tmp_path: Path) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=20)
    values[16:20] = values[16:20][::-1]
    values[20, 0, 0] = 1e6
    bf.open(tmp_path / "s.zarr", "r+")["t"][16:21] = values[16:21]
    checked = {"t > 343.25": values > 343.25, "t >= 1e6": values >= 1e6}
    check(tmp_path / "s.zarr", values, checked)
    bf.index(tmp_path / "s.zarr")
    check(tmp_path / "s.zarr", values, checked)
    assert plan_of(tmp_path / "s.zarr", "t > 343.25")["blocks_read"] == 0


def test_zarr_python_reads_the_tails(tmp_path: Path) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=20)
    group = zarr.open_group(tails_of(tmp_path / "s.zarr"), mode="r")
    numbers = group["numbers"][...]
    outermost = int(np.isin(numbers, (0, 19)).sum())
    rows = group["tail_values"][...].reshape(-1, group["tail_values"].shape[-1])
    assert np.isfinite(rows).sum() == outermost
    found = np.sort(rows[np.isfinite(rows)])
    np.testing.assert_array_equal(found, np.sort(values[np.isin(numbers, (0, 19))]))


def test_chunks_of_many_blocks_are_decided_block_by_block(tmp_path: Path) -> None:
    """A chunk is read as a whole, and has blocks with and without matches."""
    z, y, x = np.indices((24, 90, 120))
    values = (z + y / 100 + x / 1e4) + 0.001 * np.random.default_rng(0).random(z.shape)
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("t", data=values, chunks=(12, 90, 120), dimension_names=("z", "y", "x"))
    report = bf.index(tmp_path / "s.zarr", bins=[2.3, 14.0, 17.0])
    assert report.blocks > 20
    conditions = {
        "t >= 14": values >= 14,
        "t < 2.3": values < 2.3,
        "2.3 <= t and t < 17": (values >= 2.3) & (values < 17),
        "t > 20.5": values > 20.5,
    }
    check(tmp_path / "s.zarr", values, conditions)
    plan = plan_of(tmp_path / "s.zarr", "t >= 17")
    assert (plan["blocks"], plan["blocks_pruned"], plan["blocks_read"]) == (2, 1, 0)
    for text, truth in conditions.items():
        query = bf.open(tmp_path / "s.zarr").query(text, region=np.s_[2:20, 11:71, 5:100])
        part = truth[2:20, 11:71, 5:100]
        np.testing.assert_array_equal(query.mask(), part, err_msg=text)
        np.testing.assert_array_equal(query.count(over=("y", "x")), part.sum((1, 2)))
        np.testing.assert_array_equal(query.any(over=("y", "x")), part.any((1, 2)))
        np.testing.assert_array_equal(query.any(over="z"), part.any(0))


def test_auto_makes_bins_where_they_are_small_beside_the_array(tmp_path: Path) -> None:
    made(tmp_path / "noise.zarr", rough())
    assert bf.index(tmp_path / "noise.zarr", bins="auto").arrays[0]["bins"] == 20
    made(tmp_path / "few.zarr", rough(dtype="i1") // 50)
    assert bf.index(tmp_path / "few.zarr", bins="auto").arrays[0]["bins"] == 0


def test_a_later_call_keeps_the_bins_and_reads_changed_pages_alone(tmp_path: Path) -> None:
    values = rough()
    array = made(tmp_path / "s.zarr", values)
    array.index(bins=[270, 310])
    assert array.index().arrays[0]["blocks_read"] == 0
    array[20] = values[20] = 400.0
    check(tmp_path / "s.zarr", values, conditions_of(values))
    report = array.index().arrays[0]
    assert report["bins"] == 3
    check(tmp_path / "s.zarr", values, conditions_of(values))
    assert plan_of(tmp_path / "s.zarr", "t >= 310")["blocks_read"] == 0
    array.resize(64, axis=0)
    array[48:] = 290.0
    values = np.concatenate([values, np.full((16, 40, 50), 290.0)])
    check(tmp_path / "s.zarr", values, conditions_of(values))
    array.index()
    check(tmp_path / "s.zarr", values, conditions_of(values))
    assert array.index(bins=False).arrays[0]["bins"] == 0
    assert not [*(tmp_path / "s.zarr.bedform/index/t/bins").iterdir()]
    check(tmp_path / "s.zarr", values, conditions_of(values))


def test_commits_and_writes_since_are_seen(tmp_path: Path) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=[270, 310])
    store = bf.open(tmp_path / "s.zarr", mode="r+")
    with store.session(settle="later") as session:
        session.write("t", np.full((1, 2, 3), 900.0), start=(40, 2, 5))
        session.commit()
    values[40, 2:4, 5:8] = 900.0
    check(tmp_path / "s.zarr", values, conditions_of(values))


@pytest.mark.parametrize(("bins", "bound"), [([270, 310], 310), (20, 340)])
def test_damaged_bins_decide_nothing_wrong(tmp_path: Path, bins: Any, bound: float) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=bins)
    index = tmp_path / "s.zarr.bedform" / "index"
    files = sorted(file for file in index.rglob("*") if file.is_file())
    chance = random.Random(5)
    text = f"t >= {bound}"
    truth = values >= bound
    for _ in range(3000 if is_night() else 150):
        file = chance.choice(files)
        whole = file.read_bytes()
        damaged = bytearray(whole)
        if damaged and chance.random() < 0.7:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(len(damaged) or 1) :]
        file.write_bytes(damaged)
        query = bf.open(tmp_path / "s.zarr").query(text)
        assert query.count() == truth.sum()
        np.testing.assert_array_equal(query.mask(), truth)
        np.testing.assert_array_equal(query.values("t"), values[truth])
        file.write_bytes(whole)


def test_numbers_of_another_index_count_as_none(tmp_path: Path) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    made(tmp_path / "o.zarr", values[::-1])
    for name in "so":
        bf.index(tmp_path / f"{name}.zarr", bins=[270, 310])
    mine, its = (next((tmp_path / f"{n}.zarr.bedform/index/t/bins").iterdir()) for n in "so")
    shutil.rmtree(mine)
    shutil.copytree(its, mine)
    check(tmp_path / "s.zarr", values, conditions_of(values))
    shutil.rmtree(mine)
    check(tmp_path / "s.zarr", values, conditions_of(values))


def test_bins_that_no_index_can_have_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "s.zarr", rough())
    for bins in (0, 1, 255, -3, [], [float("nan")], list(range(254)), "width:1"):
        with pytest.raises(bf.InvalidArgumentError, match="bins"):
            bf.index(tmp_path / "s.zarr", bins=bins)
    for bins in ("many", True, 2.5, [None], "width:", object()):
        with pytest.raises(bf.WrongTypeError, match="bins"):
            bf.index(tmp_path / "s.zarr", bins=bins)
    # Edges beside all values leave nothing to divide.
    assert bf.index(tmp_path / "s.zarr", bins=[1e300]).arrays[0]["bins"] in (0, 2)


@pytest.mark.parametrize("seed", range(60 if is_night() else 6))
def test_random_edges_and_conditions_give_what_numpy_does(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    dtype = str(chance.choice(["f8", "f4", "i2", "u1"]))
    values = rough(seed, dtype)
    if dtype[0] == "f":
        values[chance.random(SHAPE) < 0.05] = np.nan
        values[chance.random(SHAPE) < 0.01] = chance.choice([np.inf, -np.inf, 0.0, -0.0])
    made(tmp_path / "s.zarr", values)
    known = values[np.isfinite(values)]
    edges = sorted({float(edge) for edge in chance.choice(known, 5)})
    bf.index(tmp_path / "s.zarr", bins=edges if seed % 2 else 12)
    edges += [float(edge) for edge in np.quantile(known, [0.001, 0.9985])]
    store = bf.open(tmp_path / "s.zarr")
    for _ in range(12):
        bounds = [repr(float(edge)) for edge in chance.choice([*edges, 200.5, 0.0], 2)]
        signs = chance.choice([">=", "<", ">", "<=", "==", "!="], 2)
        text = f"(t {signs[0]} {bounds[0]}) {chance.choice(['&', '|'])} (t {signs[1]} {bounds[1]})"
        start = [int(chance.integers(0, length)) for length in SHAPE]
        region = tuple(
            slice(begin, int(chance.integers(begin, length + 1)))
            for begin, length in zip(start, SHAPE, strict=True)
        )
        truth = eval(text, {"t": values[region]})  # noqa: S307 - made above
        query = store.query(text, region=region)
        np.testing.assert_array_equal(query.mask(), truth, err_msg=text)
        assert query.count() == truth.sum(), text


def test_the_command_takes_one_edge_and_says_where_auto_makes_no_bins(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 50, SHAPE).astype("i1")
    made(tmp_path / "s.zarr", values)

    def run(bins: str) -> Any:
        return CliRunner().invoke(app, ["index", str(tmp_path / "s.zarr"), "--bins", bins])

    assert run("30,").exit_code == 0
    plan = plan_of(tmp_path / "s.zarr", "t >= 30")
    assert plan["blocks_read"] == 0
    automatic = run("auto")
    assert automatic.exit_code == 0 and "no bins for t: they would take" in automatic.stderr
    assert isinstance(run("-5").exception, bf.InvalidArgumentError)


@pytest.mark.parametrize("name", ["tail_positions", "tail_values", "numbers", "zarr.json"])
def test_a_damaged_index_is_made_anew_by_the_next_call(tmp_path: Path, name: str) -> None:
    values = rough()
    made(tmp_path / "s.zarr", values)
    bf.index(tmp_path / "s.zarr", bins=20)
    group = tails_of(tmp_path / "s.zarr")
    files = [file for file in (group / name).rglob("*") if file.is_file() and "c" in file.parts]
    for file in files or [group / name]:
        file.write_bytes(bytes(file.stat().st_size))
    values[20] = values[21]
    bf.open(tmp_path / "s.zarr", "r+")["t"][20] = values[20]
    assert bf.index(tmp_path / "s.zarr").arrays[0]["bins"] == 20
    check(tmp_path / "s.zarr", values, {"t > 343.25": values > 343.25})
    assert plan_of(tmp_path / "s.zarr", "t > 343.25")["blocks_read"] == 0


def test_blocks_that_lie_in_a_tail_altogether_are_decided_too(tmp_path: Path) -> None:
    """In a smooth field the tails are few places."""
    values = np.linspace(0, 1, 400 * 80 * 100).reshape(400, 80, 100)
    layout = bf.Regular(chunks=(1, 80, 100), shards=(100, 80, 100))
    dims = ("time", "lat", "lon")
    bf.create(tmp_path / "s.zarr").create_array("t", data=values, dims=dims, layout=layout)
    bf.index(tmp_path / "s.zarr", bins=20)
    check(tmp_path / "s.zarr", values, {"t > 0.9991": values > 0.9991})
    plan = plan_of(tmp_path / "s.zarr", "t > 0.9991")
    assert (plan["blocks_read"], plan["blocks_pruned"]) == (0, 399)
