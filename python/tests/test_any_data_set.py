"""Optimizing any data set: learnt and expected reads, reports, plans and reads of the replicas.

Data sets look like those of users: several variables of zero to five dimensions, bounds, text,
coordinates, empty and growing dimensions. Every call returns the right answer, by NumPy, or raises
an error of one line.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import cases

import bedform as bf

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

DIMENSIONS = {
    "time": (0, 1, 7, 40),
    "lat": (1, 6, 30),
    "lon": (1, 5, 20),
    "lev": (0, 1, 3),
    "bnds": (2,),
    "station": (1, 4, 11),
    "y": (3, 8),
}
TYPES = ("f4", "f8", "i2", "i4", "u1", "i8", "bool")
FORMS = ("hdf5", "classic", "zarr")
BUDGETS = ("20%", "100%", "1000%", "0%", "1 MiB", "30 KiB", "20", "-3%", "x", 5, 1 << 20, 1 << 70)
WEIGHTS = (1, 0.5, 1000, 0, -1, float("nan"), float("inf"))


def data_set(chance: random.Random, form: str) -> xr.Dataset:
    """Several variables over common dimensions."""
    # In classic files, which have at most one, the dimension of length 0 is the growing one.
    least = 1 if form == "classic" else 0
    lengths = {
        name: chance.choice([size for size in sizes if size >= least])
        for name, sizes in DIMENSIONS.items()
        if name == "time" or chance.random() < 0.6
    }
    variables: dict[str, Any] = {}
    for number in range(chance.randint(1, 5)):
        dims = chance.sample(list(lengths), min(chance.randint(0, 5), len(lengths)))
        if form == "classic" or chance.random() < 0.6:
            # Time first, as models write it; classic files require that of a growing dimension.
            dims = [name for name in lengths if name in dims]
        variables[f"v{number}"] = (dims, values_of(chance, [lengths[name] for name in dims], form))
    coordinates: dict[str, Any] = {}
    for name, length in lengths.items():
        if name != "bnds" and chance.random() < 0.6:
            coordinates[name] = (name, np.arange(length, dtype="f8") * 2.5)
    if "bnds" in lengths:
        variables["time_bnds"] = (("time", "bnds"), np.zeros((lengths["time"], 2)))
    if chance.random() < 0.4:
        texts = np.array([f"name {at}" for at in range(lengths["time"])], dtype="S8")
        variables["label"] = ("time", texts)
    if chance.random() < 0.4:
        variables["crs"] = ((), np.int32(chance.randrange(9)))
    return xr.Dataset(variables, coordinates)


def values_of(chance: random.Random, shape: list[int], form: str) -> Any:
    random_values = np.random.default_rng(chance.randrange(1 << 30))
    values = random_values.integers(0, 100, shape)
    dtype = chance.choice(TYPES[:-1] if form == "classic" else TYPES)
    return (values > 50) if dtype == "bool" else values.astype(dtype)


def stored(
    data: xr.Dataset, path: Path, form: str, chance: random.Random
) -> tuple[str, xr.Dataset]:
    """The data set as a file or store: its path, and the data that it holds."""
    if form == "zarr":
        where = str(path / "d.zarr")
        bf.write_dataset(data, where)
        return where, data
    where = str(path / "d.nc")
    unlimited = ["time"] if "time" in data.sizes and chance.random() < 0.5 else []
    if form == "classic":
        kind: dict[str, Any] = {"engine": "netcdf4", "format": "NETCDF3_64BIT"}
    else:
        kind = {"engine": "h5netcdf"}
    data.to_netcdf(where, unlimited_dims=unlimited, **kind)
    return where, data


def selection(chance: random.Random, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """A hyperslab of an array, in bounds."""

    def along(length: int) -> slice | int:
        if length and chance.random() < 0.4:
            return chance.randrange(length)
        if chance.random() < 0.5:
            return slice(None)
        first = chance.randint(0, length)
        return slice(first, chance.randint(first, length), chance.choice((None, 1, 2, 3)))

    return tuple(along(length) for length in shape)


class Calls:
    """Calls of one data set, which are counted."""

    def __init__(self, where: str, data: xr.Dataset, chance: random.Random) -> None:
        self.where, self.data, self.chance, self.count = where, data, chance, 0

    def attempt(self, act: Callable[[], object]) -> object:
        """Makes a call; returns None after an error, which must have one line and be no bug."""
        self.count += 1
        try:
            return act()
        except bf.InternalError:
            raise
        except bf.BedformError as error:
            assert "\n" not in str(error), str(error)
            return None

    def read_some(self) -> None:
        """Makes reads of random places, each compared with NumPy."""
        with bf.open(self.where) as store:
            for _ in range(self.chance.randint(1, 12)):
                name = str(self.chance.choice(list(self.data.variables)))
                wanted = self.data[name].to_numpy()
                if wanted.dtype.kind not in "fiub":
                    continue
                array = store[name]
                place = selection(self.chance, wanted.shape)
                np.testing.assert_array_equal(array[place], wanted[place], err_msg=name)
                self.attempt(lambda array=array, place=place: str(array.explain(place)))
                self.count += 1

    def reads(self) -> dict[Any, Any]:
        """Returns expected reads, also of missing dimensions."""
        known = [*map(str, self.data.sizes), "nowhere", "elsewhere"]
        count = self.chance.randint(0, 3)
        kinds = (tuple(self.chance.sample(known, self.chance.randint(0, 2))) for _ in range(count))
        return {kind: self.chance.choice(WEIGHTS[:3] * 4 + WEIGHTS) for kind in kinds}

    def region(self) -> dict[str, Any]:
        ends: list[Any] = [-1, 0, 1, 3, 10, 1 << 63, 1 << 64, 2.5, "3"]
        named = self.chance.sample([*map(str, self.data.sizes), "nowhere"], 1)
        return {name: (self.chance.choice(ends[:5]), self.chance.choice(ends)) for name in named}

    def selections(self) -> dict[str, Any]:
        name = str(self.chance.choice([*self.data.variables, "nowhere"]))
        shape = self.data[name].shape if name in self.data.variables else (4,)
        rows = [self.chance.randint(0, max(shape[0] if shape else 0, 1)) for _ in range(5)]
        points = tuple([self.chance.randint(0, 3) for _ in range(4)] for _ in shape)
        wanted = self.chance.choice(([rows], [{"points": points}], [rows, rows[:2]], [()], []))
        return {name: wanted}

    def optimize(self) -> None:
        options: dict[str, Any] = {"budget": self.chance.choice(BUDGETS)}
        options["dry_run"] = self.chance.random() < 0.6
        if self.chance.random() < 0.7:
            options["reads"] = self.reads()
            if self.chance.random() < 0.4:
                options["region"] = self.region()
        if self.chance.random() < 0.2:
            options["selections"] = self.selections()
        if self.chance.random() < 0.1:
            options["reorganize"] = True
        self.attempt(lambda: str(bf.optimize(self.where, **options)))

    def program(self) -> None:
        """Reads like a program that uses xarray."""
        with contextlib.closing(xr.open_dataset(self.where, engine="bedform")) as opened:
            for name in opened.data_vars:
                if opened[name].dtype.kind not in "fiub":
                    continue
                place = selection(self.chance, opened[name].shape)
                wanted = self.data[name].to_numpy()[place]
                np.testing.assert_array_equal(opened[name][place].to_numpy(), wanted)
                self.count += 1

    def any_call(self) -> None:
        act: Callable[[], object] = self.chance.choice(
            [
                self.optimize,
                self.optimize,
                self.read_some,
                self.program,
                lambda: self.attempt(lambda: bf.watch(self.where)),
                lambda: self.attempt(lambda: bf.learn(self.where)),
                lambda: self.attempt(
                    lambda: bf.report(self.where, self.chance.choice((None, *BUDGETS)))
                ),
            ]
        )
        act()


@pytest.mark.reliability
def test_whatever_is_asked_of_any_data_set_the_answer_is_right_or_an_error(tmp_path: Path) -> None:
    sets = calls = 0
    for case in cases(least=12):
        with case:
            chance = case.chance
            place = tmp_path / str(case.number)
            place.mkdir()
            form = FORMS[case.kind(3)]
            where, data = stored(data_set(chance, form), place, form, chance)
            some = Calls(where, data, chance)
            for _ in range(12):
                some.any_call()
            some.read_some()
            sets, calls = sets + 1, calls + some.count
    sys.stdout.write(f"\nCOUNT any_data_sets {sets}\nCOUNT any_data_set_calls {calls}\n")


def test_the_first_pages_sequence_serves_the_reads_of_a_file_with_bounds(tmp_path: Path) -> None:
    """``watch``, a program, ``learn``, ``optimize``: with ``time`` beside the field."""
    path = str(tmp_path / "cf.nc")
    chance = np.random.default_rng(7)
    days = np.datetime64("1990-01-01", "ns") + np.arange(900) * np.timedelta64(1, "D")
    values = chance.normal(280, 5, (900, 20, 30)).astype("f4").round(1)
    data = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values),
            "time_bnds": (("time", "bnds"), np.zeros((900, 2))),
        },
        {"time": days},
    )
    stored_as = {"t": {"zlib": True, "chunksizes": (1, 20, 30)}}
    data.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"], encoding=stored_as)
    bf.watch(path)
    with xr.open_dataset(path, engine="bedform") as opened:
        for row in range(20):
            opened["t"][:, row, 3].load()
    bf.learn(path)
    done = bf.optimize(path, budget="200%")
    assert [replica["array"] for replica in done.made] == ["t"]
    assert "A budget of" not in bf.report(path)
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][:, 7, 3], values[:, 7, 3])
        assert store["t"].explain(np.s_[:, 7, 3]).to_dict()["replicas"]
