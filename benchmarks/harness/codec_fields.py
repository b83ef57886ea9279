"""Fields for `codec-choice`: six real ones of the package `iris-sample-data`, four synthetic ones.

A real field is repeated along a new first axis until it is large enough. A chunk lies within one
repetition, so that no codec sees the same numbers twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.field import planes

if TYPE_CHECKING:
    from collections.abc import Iterator

Values = np.ndarray[Any, Any]

#: For each real field: file, variable, description.
REAL = (
    ("A1B_north_america.nc", "air_temperature", "air temperature, model"),
    ("ostia_monthly.nc", "surface_temperature", "sea surface temperature, observed"),
    ("hybrid_height.nc", "air_potential_temperature", "potential temperature, model"),
    ("NEMO/nemo_1m_20150101-20150201_grid-T.nc", "tos", "sea surface temperature, model"),
    ("NEMO/nemo_1m_20150101-20150201_grid-T.nc", "bounds_lon", "longitudes of cells"),
    ("orca2_votemper.nc", "nav_lat_bnds", "latitudes of cells, float64"),
)


@dataclass(frozen=True)
class CodecField:
    """A field, and the shape of its chunks."""

    name: str
    values: Values
    chunks: tuple[int, ...]


def fields(size_bytes: int) -> Iterator[CodecField]:
    """Yield the fields, each of about `size_bytes`."""
    yield from real_fields(size_bytes)
    yield from synthetic_fields(size_bytes)


def real_fields(size_bytes: int) -> Iterator[CodecField]:
    """Yield the real fields; none without their package."""
    try:
        import iris_sample_data
        import netCDF4
    except ImportError:
        return
    directory = Path(iris_sample_data.__file__).parent / "sample_data"
    for file, variable, name in REAL:
        with netCDF4.Dataset(directory / file) as dataset:
            dataset.set_auto_maskandscale(False)
            values = np.asarray(dataset[variable][...])
        count = max(1, round(size_bytes / values.nbytes))
        yield CodecField(name, np.stack([values] * count), (1, *values.shape))


def synthetic_fields(size_bytes: int) -> Iterator[CodecField]:
    """Yields kinds of fields that the real ones lack: double precision, packed, a mask, noise."""
    side = 256
    count = max(1, size_bytes // (8 * side * side))
    double = np.stack([plane for plane, _ in zip(planes(side), range(count), strict=False)])
    double = np.resize(double, (count, side, side))
    yield CodecField("temperature, float64", double, (2, side, side))
    packed = np.round((np.resize(double, (4 * count, side, side)) - 273) / 0.01).astype("int16")
    yield CodecField("temperature, packed int16", packed, (8, side, side))
    mask = np.resize(double > np.median(double), (8 * count, side, side))
    yield CodecField("mask, bool", mask, (16, side, side))
    noise = np.random.default_rng(1).random((2 * count, side, side), dtype="float32")
    yield CodecField("noise, float32", noise, (4, side, side))
