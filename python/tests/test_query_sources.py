"""Random queries of every kind of source equal xarray's evaluation of the whole arrays."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import is_night

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZES = {"time": 24, "lat": 9, "lon": 14}
SEEDS = range(40 if is_night() else 2)


def _fields(seed: int) -> xr.Dataset:
    """Packed and plain variables of several types, with missing values, NaN and infinities."""
    numbers = np.random.default_rng(seed)
    shape, dims = tuple(SIZES.values()), tuple(SIZES)
    packed = 280 + 20 * numbers.standard_normal(shape)
    packed[numbers.random(shape) < 0.05] = np.nan
    plain = numbers.standard_normal(shape).astype("f4")
    plain[numbers.random(shape) < 0.05] = np.nan
    plain[numbers.random(shape) < 0.02] = numbers.choice([np.inf, -np.inf, -0.0])
    data = xr.Dataset(
        {
            "t": (dims, packed),
            "w": (dims, plain),
            "n": (dims, numbers.integers(-100, 100, shape).astype("i2")),
            "z": (dims[1:], numbers.random(shape[1:])),
        },
        {
            "time": np.arange(SIZES["time"]),
            "lat": np.linspace(80, 0, SIZES["lat"]),
            "lon": np.arange(SIZES["lon"], dtype="f4"),
        },
    )
    data.t.encoding = {
        "dtype": "i2",
        "scale_factor": numbers.choice([0.01, -0.02]),
        "add_offset": 290.0,
        "_FillValue": -32767,
    }
    data.n.encoding = {"_FillValue": -99} if seed % 2 else {}
    return data


CHUNKS = {"t": (5, 4, 7), "w": (4, 9, 14), "n": (8, 3, 5)}


def _netcdf(data: xr.Dataset, path: Path) -> None:
    encoding = {
        name: {**data[name].encoding, "chunksizes": chunks, "zlib": True}
        for name, chunks in CHUNKS.items()
    }
    data.to_netcdf(path, engine="netcdf4", encoding=encoding)


def _classic(data: xr.Dataset, directory: Path) -> Any:
    data.to_netcdf(directory / "s.nc", engine="netcdf4", format="NETCDF3_64BIT")
    return directory / "s.nc"


def _file(data: xr.Dataset, directory: Path) -> Any:
    _netcdf(data, directory / "s.nc")
    return directory / "s.nc"


def _archive(data: xr.Dataset, directory: Path) -> Any:
    for part in range(3):
        _netcdf(data.isel(time=slice(8 * part, 8 * part + 8)), directory / f"s{part}.nc")
    return str(directory / "s*.nc")


def _references(data: xr.Dataset, directory: Path) -> Any:
    bf.references(_archive(data, directory), directory / "s.json")
    return directory / "s.json"


def _store(data: xr.Dataset, directory: Path) -> Any:
    bf.write_dataset(data, directory / "s.zarr")
    return directory / "s.zarr"


def _older_store(data: xr.Dataset, directory: Path) -> Any:
    data.to_zarr(directory / "s.zarr", zarr_format=2, consolidated=False)
    return directory / "s.zarr"


def _commits(data: xr.Dataset, directory: Path) -> Any:
    """A part of the values lies in commits that are not settled."""
    path = _store(data, directory)
    store = bf.open(path, mode="r+")
    with store.session(settle="later") as session:
        session.write("w", np.full((3, 4, 5), 0.25, "f4"), start=(6, 2, 3))
        session.write("n", np.full((2, 9, 14), 7, "i2"), start=(20, 0, 0))
        session.commit()
    return path


SOURCES: dict[str, Callable[[xr.Dataset, Path], Any]] = {
    "classic": _classic,
    "file": _file,
    "archive": _archive,
    "references": _references,
    "store": _store,
    "zarr v2": _older_store,
    "commits": _commits,
}


def _condition(rng: random.Random) -> str:
    value = {
        "t": f"{rng.uniform(230, 330):.2f}",
        "w": rng.choice(["0", "-0.5", "1.5", "inf", "nan", "0.25"]),
        "n": rng.choice(["7", "-99", "50.5", "40000", "-3"]),
        "z": f"{rng.random():.2f}",
        "lat": rng.choice(["40", "20.0", "-1"]),
        "lon": rng.choice(["3", "7.5"]),
        "t - n": "280",
        "w * z": "0.1",
        "abs(w)": "1",
    }
    left = rng.choice(list(value))
    return f"{left} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {value[left]}"


def _expression(rng: random.Random) -> str:
    parts = [f"({_condition(rng)})" for _ in range(rng.randint(1, 3))]
    text = parts[0]
    for part in parts[1:]:
        text = f"({text} {rng.choice(['and', 'and', 'or'])} {part})"
    return text


def _evaluated(text: str, data: xr.Dataset) -> xr.DataArray:
    text = text.replace(" and ", " & ").replace(" or ", " | ")
    text = text.replace("inf", "np.inf").replace("nan", "np.nan")
    whole = xr.DataArray(np.zeros(tuple(SIZES.values()), bool), dims=tuple(SIZES))
    with np.errstate(all="ignore"):
        return (whole | data.eval(text)).transpose(*SIZES)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("indexed", [False, True], ids=["scan", "index"])
@pytest.mark.filterwarnings("ignore::bedform.LeftOutWarning", "ignore:invalid value")
def test_random_queries_equal_xarray(tmp_path: Path, kind: str, seed: int, indexed: bool) -> None:
    rng = random.Random(seed)
    source = SOURCES[kind](_fields(seed), tmp_path)
    opened = xr.open_dataset(source, engine="bedform").load()
    if indexed:
        bf.index(source, ["t", "w"], bins=rng.choice([8, [0.0, 280.0], None]))
    store = bf.open(source)
    for _ in range(12):
        text = _expression(rng)
        truth = _evaluated(text, opened)
        dims = store.query(text).dims
        truth = truth.isel(dict.fromkeys(set(SIZES) - set(dims), 0)).transpose(*dims)
        region = {}
        if rng.random() < 0.5:
            for dim in dims:
                start = rng.randrange(SIZES[dim])
                region[dim] = slice(start, rng.randint(start, SIZES[dim]))
        query, part = store.query(text, region=region), truth.isel(region)
        np.testing.assert_array_equal(query.mask(), part.values, err_msg=text)
        assert query.count() == int(part.sum()), text
        if dims == tuple(SIZES):
            values = opened.t.isel(region).values[part.values]
            np.testing.assert_array_equal(query.values("t"), values, err_msg=text)


def test_queries_see_each_write_as_a_whole_while_another_thread_writes(tmp_path: Path) -> None:
    """All elements of both arrays are of one moment: a commit changes them together."""
    store = bf.create(tmp_path / "s.zarr")
    for name in ("a", "b"):
        store.create_array(name, data=np.zeros((32, 40), "i4"), dims=("y", "x"), chunks=(4, 40))
    bf.index(tmp_path / "s.zarr", bins=[1, 5])
    done = threading.Event()

    def write() -> None:
        for value in range(1, 15):
            with store.session(settle="later" if value % 3 else "end") as session:
                for name in ("a", "b"):
                    session.write(name, np.full((32, 40), value, "i4"))
                session.commit()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = bf.open(tmp_path / "s.zarr")
        while not done.is_set():
            assert reader.query("a != b").count() == 0
            assert reader.query("a >= 5").count() in (0, 32 * 40)
    finally:
        writer.join()
    assert reader.query("a == 14 and b == 14").count() == 32 * 40
