"""Lines `days/*` of `query`: hot days in a region of a NetCDF-4 file, as its producer wrote it.

One variable of daily maps of 0.25 degrees, packed into int16, one map per chunk, shuffled and
deflated: 2 GiB on the disk. The temperature has a gradient by latitude, a season, moving weather,
and noise in its last bits. The file is neither converted nor copied. The questions:

- *days/any*: on how many days some place of the region is hotter than the bound;
- *days/each*: for each place of the region, on how many days.

A smaller `--size` shortens the file in proportion. netCDF4 reads the region, either decoded by
itself or packed, and NumPy compares: packed values with the packed bound, as a user does for speed.
Every answer opens the file and, for Bedform, its index, which has an edge at the bound: a user who
counts hot days knows it. The bytes and seconds of the index with 20 bins are in the table, too.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.children import in_child
from benchmarks.queries import indexes
from benchmarks.queries.readers import OURS, SCAN, Reader, own
from benchmarks.queries.trials import (
    SIDECARS,
    Line,
    Trial,
    copy_bytes,
    import_lazily_loaded,
    link_tree,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = int | NDArray[np.int64]

VARIABLE = "t2m"
DIMS = ("time", "lat", "lon")
MAP, DAYS, DAYS_MIN = (721, 1440), 1640, 60
QUICK_MAP, QUICK_DAYS = (91, 180), 120
LITTLE_MAP, LITTLE_DAYS = (46, 90), 20
#: Degrees of the region, both ends included, and the bound in kelvin: 30 degrees Celsius.
LATS, LONS, BOUND = (40.0, 50.0), (0.0, 20.0), 303.15
#: 2^-9 K; with the offset the range of the packed values is 204 to 332 K.
SCALE, OFFSET, FILL = 2.0**-9, 268.0, -32768
#: The days from the coldest one of the north, in the middle of January, to the first of the file.
FIRST_DAY = 136
NOISE_KELVIN, WEATHER_KELVIN, WEATHER_DAYS = 0.02, 6.0, 5
COPY, LINKED, REGION = "days.nc", "days-scan.nc", "region.npy"
PEER = "netCDF4 + numpy"


@dataclass(frozen=True)
class Hot:
    """A question about hot days."""

    wants: Literal["any", "each"]

    def of(self, above: NDArray[np.bool_]) -> Counts:
        """Returns the answer for the comparison of the region's elements."""
        if self.wants == "any":
            return int(above.any(axis=(1, 2)).sum())
        return above.sum(axis=0)


def axes(shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latitudes, from north to south, and longitudes."""
    return np.linspace(90, -90, shape[0]), np.arange(shape[1]) * 360 / shape[1]


def region(shape: tuple[int, int]) -> tuple[slice, slice]:
    """Returns the indexes of the region.

    >>> region((721, 1440))
    (slice(160, 201, None), slice(0, 81, None))
    """
    found = []
    for axis, ends in zip(axes(shape), (LATS, LONS), strict=True):
        inside = np.flatnonzero((axis >= ends[0]) & (axis <= ends[1]))
        found.append(slice(int(inside[0]), int(inside[-1]) + 1))
    return found[0], found[1]


def weather(shape: tuple[int, int], number: int) -> NDArray[np.float32]:
    """Return smooth anomalies, of about variance 1: energy by the third power of the wave."""
    random = np.random.Generator(np.random.PCG64((44, 4, number)))
    across = np.fft.fftfreq(shape[0], 1 / shape[0])[:, None] * 2
    wave = across**2 + np.fft.rfftfreq(shape[1], 1 / shape[1]) ** 2
    noise = random.standard_normal((2, *wave.shape))
    found = np.fft.irfft2((noise[0] + 1j * noise[1]) / (wave + 36), shape)
    return np.asarray(found / found.std(), np.float32)


def packed_maps(shape: tuple[int, int], days: int) -> Any:
    """Yield the packed map of each day."""
    sine = np.sin(np.deg2rad(axes(shape)[0]))[:, None].astype(np.float32)
    before, after = weather(shape, 0), weather(shape, 1)
    for day in range(days):
        number, share = divmod(day / WEATHER_DAYS, 1)
        if day and day % WEATHER_DAYS == 0:
            before, after = after, weather(shape, int(number) + 1)
        # Two independent parts, mixed so that the variance stays.
        angle = share * np.pi / 2
        moving = before * np.float32(np.cos(angle)) + after * np.float32(np.sin(angle))
        season = np.float32(-18 * np.cos(2 * np.pi * (day + FIRST_DAY) / 365.25))
        random = np.random.Generator(np.random.PCG64((44, 5, day)))
        kelvin = 301 - 42 * sine**2 + season * sine
        kelvin = kelvin + WEATHER_KELVIN * (np.abs(sine) + np.float32(0.1)) * moving
        kelvin += np.float32(NOISE_KELVIN) * random.standard_normal(shape, np.float32)
        yield np.rint((kelvin - OFFSET) / SCALE).clip(FILL + 1, -FILL - 1).astype(np.int16)


def write(path: Path, shape: tuple[int, int], days: int) -> None:
    """Write the file."""
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.7"
        for name, length in zip(DIMS, (None, *shape), strict=True):
            file.createDimension(name, length)
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar = "days since 2001-06-01", "standard"
        time[:] = np.arange(days)
        for name, axis, units in zip(DIMS[1:], axes(shape), ("north", "east"), strict=True):
            variable = file.createVariable(name, "f4", (name,))
            variable.units, variable[:] = f"degrees_{units}", axis
        variable = file.createVariable(
            VARIABLE,
            "i2",
            DIMS,
            fill_value=np.int16(FILL),
            chunksizes=(1, *shape),
            zlib=True,
            complevel=4,
            shuffle=True,
        )
        variable.scale_factor, variable.add_offset, variable.units = SCALE, OFFSET, "K"
        variable.set_auto_maskandscale(False)
        for day, values in enumerate(packed_maps(shape, days)):
            variable[day] = values


def write_region(target: Path, path: Path) -> None:
    """Write the stored numbers of the region, read by h5py one map at a time."""
    import h5py

    with h5py.File(path) as file:
        stored: Any = file[VARIABLE]
        rows, columns = region(stored.shape[1:])
        packed = np.stack([stored[day, rows, columns] for day in range(len(stored))])
    with target.open("wb") as written:
        np.save(written, packed)


def expected(packed: Path, question: Hot) -> Counts:
    """Returns the answer from the stored numbers of the region."""
    return question.of(np.load(packed) * SCALE + OFFSET > BOUND)


def sizes_of(edge: int, is_quick: bool) -> tuple[tuple[int, int], int]:
    """Returns the map and the number of days.

    >>> sizes_of(512, False), sizes_of(256, False)
    (((721, 1440), 1640), ((721, 1440), 205))
    """
    if is_quick:
        return QUICK_MAP, QUICK_DAYS
    return MAP, max(DAYS_MIN, round(DAYS * (edge / 512) ** 3))


def ask_bedform(path: Path, question: Hot) -> Counts:
    """Answer by a query in the region."""
    with bf.open(path) as file:
        rows, columns = region(file[VARIABLE].shape[1:])
        query = file.query(f"{VARIABLE} > {BOUND}", region={"lat": rows, "lon": columns})
        if question.wants == "any":
            return int(query.any(over=("lat", "lon")).sum())
        found: NDArray[np.int64] = query.count(over="time")
        return found


def ask_netcdf4(path: Path, question: Hot, is_packed: bool) -> Counts:
    """Read the region by netCDF4, and compare by NumPy."""
    import netCDF4

    with netCDF4.Dataset(path) as file:
        variable = file[VARIABLE]
        variable.set_auto_maskandscale(not is_packed)
        values: Any = variable[(slice(None), *region(variable.shape[1:]))]
        if not is_packed:
            return question.of(np.ma.filled(values > BOUND, False))
        bound = np.floor((BOUND - variable.add_offset) / variable.scale_factor)
        return question.of((values > np.int16(bound)) & (values != variable._FillValue))


def nothing(path: Path, values: Any) -> None:
    """Prepare nothing: the producer wrote the file."""


READERS = {
    OURS: own(OURS, COPY, nothing, ask_bedform),
    SCAN: own(SCAN, LINKED, nothing, ask_bedform),
    PEER: Reader(
        PEER,
        "netCDF4",
        COPY,
        nothing,
        {
            "decoded": partial(ask_netcdf4, is_packed=False),
            "packed": partial(ask_netcdf4, is_packed=True),
        },
    ),
}
LINES = {"days/any": Hot("any"), "days/each": Hot("each")}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures the requested lines."""
    for module in ("netCDF4", "h5py"):
        importlib.import_module(module)
    place, readers = Path(job["place"]), dict(READERS)
    sizes = sizes_of(job["edge"], job["quick"])
    for at, (shape, days) in ((place, sizes), (place / "little", (LITTLE_MAP, LITTLE_DAYS))):
        # Keyword arguments of the loop, since the function outlives its turn.
        def build(path: Path, shape: tuple[int, int] = shape, days: int = days) -> None:
            in_child(write, path, shape, days)

        file = data.ensure(at / COPY, build)
        data.remove(at / LINKED)
        link_tree(at / LINKED, file)
    path = place / COPY
    packed = data.ensure(place / REGION, lambda target: in_child(write_region, target, path))
    index = indexes.build_all(path, VARIABLE, place / SIDECARS)
    if index:
        for file in (path, place / "little" / COPY):
            made = in_child(indexes.build, file, VARIABLE, [BOUND])
            if made is not None and file == path:
                index["edge"] = made
    else:
        readers.pop(OURS)
    import_lazily_loaded(readers, place / "little", Hot("any"))
    trial = Trial(place, place / "little", readers)
    found: dict[str, Any] = {"lines": {}, "index": index, "bytes": copy_bytes(path)}
    found["shape"], found["raw_bytes"] = (
        [sizes[1], *sizes[0]],
        2 * sizes[1] * int(np.prod(sizes[0])),
    )
    for line in job["lines"]:
        one = Line(line, [LINES[line]], LINES[line], partial(expected, packed))
        result = trial.compare(one, job["rounds"], job["tries"])
        answer = expected(packed, LINES[line])
        result["matches"] = answer if isinstance(answer, int) else int(answer.sum())
        found["lines"][line] = result
    return found
