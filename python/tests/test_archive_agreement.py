"""Lists of files that disagree (F28): joined right, or refused with the name of a file.

Each value encodes its time, latitude and longitude, so that a wrong label is visible without
another reader.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from support import ENVIRONMENT, Case, cases, command_line, is_night

import bedform as bf

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    import numpy.typing as npt

LATS, LONS = [10.0, 20.0, 30.0], [0.0, 5.0]
CALENDARS = ["standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "360_day"]
HOURS = "hours since 2000-02-27"
EPOCHS = ["2000-02-27", "2000-03-01", "1999-12-30 12:00:00", "1850-01-01"]


@dataclass
class Part:
    """A file of a list: its steps in hours since 2000-02-27, and properties that may disagree."""

    hours: list[float]
    lats: list[float] = field(default_factory=lambda: list(LATS))
    lons: list[float] = field(default_factory=lambda: list(LONS))
    units: str = "hours since 2000-02-27"
    calendar: str | None = "standard"
    dtype: str = "f8"
    level_units: str = "hPa"
    mask: int = 0
    width: int = 4
    is_unlimited: bool = True
    lacks: str = ""
    has: str = ""
    form: str = "NETCDF4"
    bounds_have_units: bool = False

    @property
    def dates(self) -> list[Any]:
        """The times of the steps in the calendar."""
        return moments(self.hours, self.calendar)

    @property
    def own_times(self) -> npt.NDArray[Any]:
        """The stored numbers of the steps."""
        return np.atleast_1d(cftime.date2num(self.dates, self.units, self.calendar or "standard"))

    def values(self) -> npt.NDArray[Any]:
        """Each value encodes its position."""
        return coded(np.array(self.hours), np.array(self.lats), np.array(self.lons))

    def write(self, path: Path) -> None:
        """Make the file."""
        with netCDF4.Dataset(path, "w", format=self.form) as file:
            length = None if self.is_unlimited else len(self.hours)
            for name, size in [("time", length), ("lat", len(self.lats)), ("lon", len(self.lons))]:
                file.createDimension(name, size)
            for name, size in [("bnds", 2), ("level", 2), ("width", self.width)]:
                file.createDimension(name, size)
            # Whole numbers are stored as such where the times are.
            is_whole = all(float(one).is_integer() for one in self.own_times)
            dtype = self.dtype if is_whole else "f8"
            time = file.createVariable("time", dtype, ("time",))
            time.units, time.bounds = self.units, "time_bnds"
            bounds = file.createVariable("time_bnds", dtype, ("time", "bnds"))
            if self.bounds_have_units:
                bounds.units = self.units
            if self.calendar is not None:
                time.calendar = self.calendar
                if self.bounds_have_units:
                    bounds.calendar = self.calendar
            if self.hours:
                time[:] = self.own_times
                bounds[:] = self.own_times[:, np.newaxis].repeat(2, axis=1)
            file.createVariable("lat", "f8", ("lat",))[:] = self.lats
            file.createVariable("lon", "f4", ("lon",))[:] = self.lons
            level = file.createVariable("level", "i4", ("level",))
            level.units = self.level_units
            level[:] = [1000, 500]
            file.createVariable("mask", "i4", ("lat", "lon"))[:] = self.mask
            text = np.full(self.width, b"s", "S1")
            file.createVariable("name", "S1", ("width",))[:] = text
            if self.lacks != "t":
                t = file.createVariable("t", "f8", ("time", "lat", "lon"))
                t[: len(self.hours)] = self.values()
            if self.has:
                file.createVariable(self.has, "f4", ("time",))[: len(self.hours)] = 0


def moments(hours: Any, calendar: str | None) -> list[Any]:
    """Steps as dates of a calendar."""
    found = cftime.num2date(np.asarray(hours, "f8"), HOURS, calendar or "standard")
    return list(np.atleast_1d(found))


def coded(hours: Any, lats: Any, lons: Any) -> npt.NDArray[Any]:
    """Returns values that encode their positions."""
    return np.add.outer(np.add.outer(hours * 1e4, lats * 1e2), lons)


def drawn(chance: random.Random) -> list[Part]:
    """Returns files of consecutive equal steps that agree in everything."""
    count, steps = chance.randint(2, 4), chance.choice([1, 2, 24])
    step = chance.choice([1.0, 24.0, 0.5])
    first = Part(
        [],
        calendar=chance.choice([*CALENDARS, None]),
        units=f"{chance.choice(['hours', 'days', 'seconds'])} since {chance.choice(EPOCHS)}",
        is_unlimited=chance.random() < 0.7,
        form=chance.choice(["NETCDF4", "NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"]),
        bounds_have_units=chance.random() < 0.5,
    )
    parts = []
    for number in range(count):
        hours = [step * (number * steps + at) for at in range(steps)]
        if first.calendar == "360_day":
            # No file begins on a day that the epochs lack.
            hours = [hour + 24.0 for hour in hours]
        parts.append(replace(first, hours=hours, lats=list(LATS), lons=list(LONS)))
    return parts


def flip(part: Part, chance: random.Random) -> None:
    """Latitudes the other way, in the order of the file."""
    part.lats = part.lats[::-1]


def move(part: Part, chance: random.Random) -> None:
    """Another tile."""
    part.lats = [lat + 30 for lat in part.lats]


def shift(part: Part, chance: random.Random) -> None:
    """A coordinate that rounding does not explain, or one that it does."""
    part.lons = [lon + chance.choice([0.1, 1e-2, 1e-9]) for lon in part.lons]


def lengthen(part: Part, chance: random.Random) -> None:
    """One more latitude."""
    part.lats = [*part.lats, 40.0]


def widen(part: Part, chance: random.Random) -> None:
    """Longer texts."""
    part.width += 2


def recount(part: Part, chance: random.Random) -> None:
    """Times from another day, in another unit."""
    unit = chance.choice(["hours", "days", "seconds", "minutes"])
    part.units = f"{unit} since {chance.choice(EPOCHS)}"


def retime(part: Part, chance: random.Random) -> None:
    """Another calendar, or the same one by another name."""
    part.calendar = chance.choice([*CALENDARS, None])


def recast(part: Part, chance: random.Random) -> None:
    """Times of another type."""
    part.dtype = "i4"


def relevel(part: Part, chance: random.Random) -> None:
    """Another unit of a coordinate."""
    part.level_units = "Pa"


def mask(part: Part, chance: random.Random) -> None:
    """Another static field."""
    part.mask = 1


def lack(part: Part, chance: random.Random) -> None:
    """A missing variable."""
    part.lacks = "t"


def add(part: Part, chance: random.Random) -> None:
    """Another variable."""
    part.has = "extra"


def reform(part: Part, chance: random.Random) -> None:
    """Another format."""
    part.form = "NETCDF3_64BIT_OFFSET"


def fix(part: Part, chance: random.Random) -> None:
    """A time that cannot grow."""
    part.is_unlimited = False


def repeat(part: Part, chance: random.Random) -> None:
    """The steps of another file."""
    part.hours = [hour - 12 for hour in part.hours]


CHANGES = [flip, move, shift, lengthen, widen, recount, recount, recount, retime, recast, relevel]
CHANGES += [mask, lack, add, reform, fix, repeat]


def check(store: Any, parts: list[Part], names: list[str]) -> None:
    """Asserts that every value of an archive has the right labels."""
    calendar = str(store["time"].attributes.get("calendar", "standard"))
    units = str(store["time"].attributes["units"])
    times = store["time"][:]
    np.testing.assert_array_equal(store["time_bnds"][:, 1], times)
    by_name = dict(zip(names, parts, strict=True))
    order = [by_name[Path(path).name] for path in store.paths]
    if store.concat_dim == "time":
        hours = np.concatenate([part.hours for part in order])
    else:
        # Files of equal times, none of them unlimited, are joined along another dimension.
        hours = np.array(order[0].hours)
        assert all(part.hours == order[0].hours for part in order)
    dates = cftime.num2date(times.astype("f8"), units, calendar)
    found = cftime.date2num(dates, HOURS, calendar)
    np.testing.assert_allclose(found, hours, rtol=0, atol=1e-6)
    lats, lons = store["lat"][:], store["lon"][:]
    if all(part.lacks == "t" for part in order):
        return
    found = store["t"][:]
    np.testing.assert_allclose(found, coded(hours, lats, lons), rtol=0, atol=1e-3)
    assert (np.diff(hours) >= 0).all() or (np.diff(hours) <= 0).all()


def is_right(error: Exception, names: list[str]) -> bool:
    """Whether an error is one line that names a file that does not fit."""
    text = str(error)
    assert "\n" not in text
    return isinstance(error, bf.InvalidArgumentError) and any(name in text for name in names)


def test_some_lists_that_disagree_are_right_or_refused(tmp_path: Path) -> None:
    kinds = lists_that_disagree(tmp_path, cases(least=40, most=40))
    assert min(kinds.values()) > 8, kinds


@pytest.mark.reliability
def test_lists_that_disagree_are_right_or_refused(tmp_path: Path) -> None:
    most = 10_000 if is_night() else 1000
    kinds = lists_that_disagree(tmp_path, cases(least=200, most=most))
    assert min(kinds.values()) > 40, kinds
    sys.stdout.write(f"\nCOUNT archive_lists {sum(kinds.values())}\n")


def lists_that_disagree(tmp_path: Path, tried: Iterable[Case]) -> dict[str, int]:
    """Open random lists, as a list and by a pattern; count those that were joined, and refused."""
    kinds = {"joined": 0, "refused": 0}
    for case in tried:
        with case:
            chance = case.chance
            parts = drawn(chance)
            changes = chance.choices(CHANGES, k=chance.choice([0, 1, 1, 1, 2]))
            for change in changes:
                change(chance.choice(parts), chance)
            if chance.random() < 0.3:
                chance.shuffle(parts)
            names = [f"{chance.choice('abc')}{case.number}-{at}.nc" for at in range(len(parts))]
            directory = tmp_path / str(case.number)
            directory.mkdir()
            for part, name in zip(parts, names, strict=True):
                part.write(directory / name)
            paths = [directory / name for name in names]
            for place in (paths, str(directory / "*.nc")):
                options = {"concat_dim": "time"} if chance.random() < 0.3 else {}
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    try:
                        store = bf.open(place, **options)
                    except bf.BedformError as error:
                        assert is_right(error, names), error
                        assert changes or place is paths, error
                        kinds["refused"] += 1
                        continue
                kinds["joined"] += 1
                with store:
                    check(store, parts, names)
                    differs = any(part.mask != parts[0].mask for part in parts)
                    is_along_width = store.concat_dim == "width"
                    differs |= not is_along_width and len({part.width for part in parts}) > 1
                    assert differs == any(one.category is bf.ArchiveWarning for one in said)
                with warnings.catch_warnings(record=True) as again:
                    warnings.simplefilter("always")
                    with bf.open(place, **options) as kept:
                        check(kept, parts, names)
                assert [str(one.message) for one in said] == [str(one.message) for one in again]
            shutil.rmtree(directory)
    return kinds


def test_xarray_selects_by_labels_what_each_file_has_there(tmp_path: Path) -> None:
    first = Part([0.0, 12.0])
    second = replace(first, hours=[24.0, 36.0], units="days since 2000-02-28")
    for part, name in ((first, "a.nc"), (second, "b.nc")):
        part.write(tmp_path / name)
    dataset = xr.open_dataset(str(tmp_path / "?.nc"), engine="bedform")
    assert dataset["time"].encoding["units"] == "hours since 2000-02-27"
    found = dataset["t"].sel(time="2000-02-28T12", lat=20.0, lon=5.0)
    assert float(found) == 36e4 + 20e2 + 5
    blocks = xr.open_dataset(str(tmp_path / "?.nc"), engine="bedform", chunks={"time": 1})
    xr.testing.assert_identical(dataset.load(), blocks.compute(scheduler="threads"))


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """A function that writes two files, the second changed, and gives their paths."""

    def written(**changes: Any) -> list[Path]:
        first = Part([0.0, 12.0])
        paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
        first.write(paths[0])
        replace(first, **{"hours": [24.0, 36.0], **changes}).write(paths[1])
        return paths

    return written


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lats": LATS[::-1]}, '"lat" is 30.0 at position 0, in {a} 10.0'),
        ({"lats": [40.0, 50.0, 60.0]}, '"lat" is 40.0 at position 0, in {a} 10.0'),
        ({"lats": [10.0, 20.0, 30.001]}, '"lat" is 30.001 at position 2, in {a} 30.0'),
        ({"lats": [10.0, 20.0]}, '"lat" has 2 labels, in {a} 3'),
        ({"level_units": "Pa"}, '"level" has the attribute units "Pa", in {a} "hPa"'),
        ({"calendar": "noleap"}, '"time" has times in "hours since 2000-02-27" (noleap)'),
        ({"units": "months since 2000-02-27"}, '"time" has times in "months since 2000-02-27"'),
        ({"units": "hours since 2000-02-27 12"}, '"time" has times in "hours since 2000-02-27 12"'),
        ({"units": "hours since 2000-02-27 00:00 -5:30"}, '"time" has times in "hours since 2000'),
        ({"hours": [-24.0, -12.0]}, '"time" goes from -24.0 to -12.0 hours since 2000-02-27'),
        ({"hours": [24.0, 20.0]}, '"time" goes from 24.0 to 20.0 hours since 2000-02-27'),
        ({"hours": [24.0, 48.0, 36.0]}, '"time" neither rises nor falls throughout the file'),
        ({"lacks": "t"}, 'has no variable "t", which {a} has'),
        ({"dtype": "i4"}, 'holds int32, in {a} float64'),
    ],
)  # fmt: skip
def test_the_error_names_the_file_the_variable_and_both_values(
    pair: Any, changes: dict[str, Any], expected: str
) -> None:
    # Units that no other file may have are written without times in them.
    if "units" in changes:
        paths = pair()
        with netCDF4.Dataset(paths[1], "a") as file:
            file["time"].units = changes["units"]
    else:
        paths = pair(**changes)
    with pytest.raises(bf.InvalidArgumentError) as raised:
        bf.open(paths)
    message = str(raised.value)
    assert message.startswith(f"{paths[1]}: "), message
    assert expected.format(a=paths[0]) in message


def test_override_compares_nothing_and_takes_labels_of_the_first_file(pair: Any) -> None:
    paths = pair(lats=LATS[::-1], mask=1, level_units="Pa", hours=[-24.0, -12.0])
    with bf.open(paths, compat="override") as store:
        assert store["lat"][:].tolist() == LATS
        assert store["time"][:].tolist() == [0, 12, -24, -12]
    for arguments in (["info", "--compat", "override"], ["explain", "--compat", "override"]):
        command, *options = arguments
        rest = ["t", ":,0,0"] if command == "explain" else []
        pattern = str(paths[0].parent / "?.nc")
        done = subprocess.run(
            [*command_line(), command, pattern, *rest, *options],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if command == "info":
            assert "b.nc, a.nc" in done.stdout
    with pytest.raises(bf.InvalidArgumentError, match='compat is "equals" or "override"'):
        bf.open(paths, compat="minimal")  # type: ignore[arg-type]


def test_a_pattern_is_sorted_by_its_labels_and_a_list_is_not(tmp_path: Path) -> None:
    for name, start in (("jan", 0.0), ("feb", 24.0), ("apr", 48.0)):
        Part([start, start + 12]).write(tmp_path / f"{name}.nc")
    names = ["jan.nc", "feb.nc", "apr.nc"]
    for _ in range(2):
        with bf.open(str(tmp_path / "*.nc")) as store:
            assert [Path(path).name for path in store.paths] == names
            facts = store.info()
            assert [Path(path).name for path in facts["order"]] == names
            assert facts["ordered_by"] == "time"
            assert store["time"][:].tolist() == [0, 12, 24, 36, 48, 60]
            assert (store["t"][:, 0, 0] == store["time"][:] * 1e4 + 1000).all()
    # New files get their place by label, also before the first.
    Part([-24.0, -12.0]).write(tmp_path / "dec.nc")
    Part([72.0]).write(tmp_path / "aug.nc")
    with bf.open(str(tmp_path / "*.nc")) as store:
        expected = ["dec.nc", *names, "aug.nc"]
        assert [Path(path).name for path in store.paths] == expected
        assert (np.diff(store["time"][:]) > 0).all()
    with pytest.raises(bf.InvalidArgumentError, match=r"feb\.nc"):
        bf.open([tmp_path / "apr.nc", tmp_path / "feb.nc", tmp_path / "jan.nc"])
    # Falling labels are as good as rising ones.
    for name in ("p", "q"):
        start = {"p": 24.0, "q": 60.0}[name]
        Part([start, start - 12]).write(tmp_path / f"{name}.h5")
    with bf.open(str(tmp_path / "?.h5")) as store:
        assert store["time"][:].tolist() == [60, 48, 24, 12]


def test_reads_of_converted_times_are_the_same_through_every_door(
    pair: Any, tmp_path: Path
) -> None:
    paths = pair(units="days since 2000-02-28", form="NETCDF3_CLASSIC")
    expected = [0.0, 12.0, 24.0, 36.0]
    with bf.open(paths) as store:
        time = store["time"]
        assert time[:].tolist() == expected
        assert time[1:3].tolist() == [12, 24]
        assert time.oindex[[3, 0]].tolist() == [36, 0]
        assert store["time_bnds"][:, 0].tolist() == expected
        assert "requests" in str(time.explain(np.s_[:]))
        assert store.verify() == []
    bf.convert(paths, tmp_path / "all.zarr", verify=True)
    assert bf.open(tmp_path / "all.zarr")["time"][:].tolist() == expected
    # A replica of times counts as long as the first file has the same units.
    bf.optimize(paths, "1000%", selections={"time": [[0, 1, 2, 3]]})
    with bf.open(paths) as store:
        assert store["time"].oindex[[0, 1, 2, 3]].tolist() == expected
    with netCDF4.Dataset(paths[0], "a") as file:
        file["time"].units = "hours since 2000-02-26"
        file["time"][:] = [24, 36]
    with bf.open(paths) as store:
        assert store["time"].oindex[[0, 1, 2, 3]].tolist() == [24, 36, 48, 60]
    # A file that changes under the handle is read anew, although its times are in the archive.
    with bf.open(paths) as store:
        time = store["time"]
        replace(Part([36.0, 72.0]), units="days since 2000-02-27").write(paths[1])
        assert time[:].tolist() == [24, 36, 60, 96]
        paths[1].unlink()
        with pytest.raises(bf.NotFoundError, match=r"b\.nc"):
            time[:]
    # Values in other units than the handle's are refused.
    Part([36.0, 72.0]).write(paths[1])
    with bf.open(paths) as store:
        time = store["time"]
        Part([0.0, 12.0], units="days since 2000-02-26").write(paths[0])
        with pytest.raises(bf.ConflictError, match=r"a\.nc"):
            time[:]


def test_the_dimension_is_that_which_grows_and_not_that_which_differs_in_length(pair: Any) -> None:
    paths = pair(width=6)
    with pytest.warns(bf.ArchiveWarning, match=r'b\.nc: other values than .*a\.nc in "name"'):
        store = bf.open(paths)
    assert store.concat_dim == "time"
    assert store["time"].shape == (4,)
    # Of fixed dimensions it is the one with other labels, and several are named.
    for path, shifted in zip(paths, (0.0, 30.0), strict=True):
        hours = [shifted, shifted + 12]
        lats = [lat + shifted for lat in LATS]
        Part(hours, lats=lats, is_unlimited=False).write(path)
    with pytest.raises(bf.InvalidArgumentError, match="the files differ in lat, time: say along"):
        bf.open(paths)
    with pytest.raises(bf.InvalidArgumentError, match=r'"lat" is 40\.0'):
        bf.open(paths, concat_dim="time")


def test_texts_of_any_length_are_labels_too(tmp_path: Path) -> None:
    def written(name: str, hours: list[float], stations: list[str]) -> Path:
        data = np.zeros((len(hours), len(stations)))
        dataset = xr.Dataset(
            {"t": (("time", "station"), data)}, {"time": hours, "station": stations}
        )
        dataset.to_netcdf(tmp_path / name, unlimited_dims=["time"])
        return tmp_path / name

    first = written("a.nc", [0.0], ["Kiel", "Mainz"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.NativeReadWarning)
        with bf.open([first, written("b.nc", [1.0], ["Kiel", "Mainz"])]) as store:
            assert store["t"].shape == (2, 2)
        with pytest.raises(bf.InvalidArgumentError, match='"station" is "Mainz" at position 0'):
            bf.open([first, written("c.nc", [1.0], ["Mainz", "Kiel"])])


def test_fields_of_texts_are_compared_whatever_their_width(tmp_path: Path) -> None:
    def written(name: str, hour: float, text: str, form: Any) -> Path:
        variables = {"t": ("time", [hour]), "sensor": ("k", np.array([text, "b"]))}
        coordinates = {"time": [hour], "height": ("k", [1.0, 2.0 + (text == "moved")])}
        dataset = xr.Dataset(variables, coordinates)
        dataset.to_netcdf(tmp_path / name, unlimited_dims=["time"], format=form)
        return tmp_path / name

    for form in ("NETCDF4", "NETCDF3_CLASSIC"):
        first = written("a.nc", 0.0, "one", form)
        bf.open([first, written("b.nc", 1.0, "one", form)]).close()
        with pytest.warns(bf.ArchiveWarning, match='in "sensor"'):
            bf.open([first, written("b.nc", 1.0, "longer", form)])
        # A coordinate of no dimension's name is one, too.
        with pytest.raises(bf.InvalidArgumentError, match=r'"height" is 3\.0 at position 1'):
            bf.open([first, written("b.nc", 1.0, "moved", form)])


def test_members_that_a_data_set_lacks_are_named_in_one_warning(tmp_path: Path) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            scale = file.create_dataset("time", data=np.arange(2.0) + 2 * number, maxshape=(None,))
            scale.make_scale("time")
            for name, data in (("v", np.zeros(2)), ("names", ["x", "y"])):
                file.create_dataset(name, data=data).dims[0].attach_scale(scale)
            file["far"] = h5py.ExternalLink("other.h5", "x")
            layout = h5py.VirtualLayout((2,), "f8")
            layout[:] = h5py.VirtualSource("other.h5", "y", (2,))
            file.create_virtual_dataset("virtual", layout)

    def said(call: Any) -> str:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        (only,) = [one for one in caught if one.category is bf.LeftOutWarning]
        return str(only.message)

    for call in (lambda: bf.open(paths), lambda: xr.open_dataset(paths, engine="bedform")):
        message = said(call)
        for name in ("'names'", "'far'", "'virtual'"):
            assert message.count(name) >= 1, message
    message = said(lambda: xr.open_dataset(paths[0], engine="bedform"))
    assert "'far'" in message and "'virtual'" in message
    assert "\n" not in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", bf.LeftOutWarning)
        dropped = ["names", "far", "virtual"]
        xr.open_dataset(paths, engine="bedform", drop_variables=dropped)
