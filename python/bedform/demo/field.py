"""The input of the demo: a real ocean field extended in time, or a file of the user.

The built-in field is the sea surface temperature of a NEMO ocean run: three monthly means on a 330
x 360 grid, from the package `iris-sample-data`. They are interpolated in time to hourly maps. Each
map gets random noise, as strong as possible while the file still compresses like the source. The
file has the source's form: NetCDF-4, one chunk per map, the source's deflate level, time first.
"""

from __future__ import annotations

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from .._text import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

MONTHS = ("20150101-20150201", "20150201-20150301", "20150301-20150401")
VARIABLE = "tos"
# Prefix of every name that the demo writes.
PREFIX = "bedform-demo-"
HOURS_PER_MONTH = 30 * 24  # the run has a calendar of 360 days
LIKENESS = 0.10
FORMAT = 1
_PURE_DIMENSION = "This is a netCDF dimension but not a netCDF variable. %9d"


@dataclass(frozen=True)
class Field:
    """One variable of one file, the input of a demo."""

    path: str
    variable: str
    shape: tuple[int, ...]
    dtype: str
    stored_bytes: int
    origin: str

    @property
    def byte_count(self) -> int:
        """The number of decoded bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def open_input(path: Path, variable: str | None) -> Field:
    """Returns a variable of a user's NetCDF-4 or HDF5 file: the named one, or the largest."""
    if not path.exists():
        raise FileNotFoundError(f"input {str(path)!r} does not exist: check the path")
    if not h5py.is_hdf5(path):
        raise ValueError(
            f"input {str(path)!r} is not a NetCDF-4 or HDF5 file: the demo compares with h5py, so "
            "it needs one; bedform convert takes other formats"
        )
    with h5py.File(path) as file:
        candidates = {}
        file.visititems(
            lambda name, item: (
                candidates.update({name: item})
                if isinstance(item, h5py.Dataset)
                and item.ndim >= 2
                and item.size
                and item.dtype.kind in "iuf"
                else None
            )
        )
        if variable is not None and variable not in candidates:
            raise ValueError(
                f"input {str(path)!r} has no numeric variable {variable!r} of two or more "
                f"dimensions: it has {', '.join(sorted(candidates)) or 'none'}"
            )
        if not candidates:
            raise ValueError(f"input {str(path)!r} has no numeric variable of two dimensions")
        name = variable or max(candidates, key=lambda key: int(candidates[key].size))
        dataset = candidates[name]
        return Field(
            path=str(path),
            variable=name,
            shape=tuple(dataset.shape),
            dtype=dataset.dtype.str,
            stored_bytes=path.stat().st_size,
            origin=f"{name} {format_shape(dataset.shape)} of {path.name}, as it is",
        )


def build_field(
    directory: Path, size: int, say: Callable[[str], None], progress: Callable[[int, int], None]
) -> Field:
    """Returns the extended field, from an earlier demo if it exists."""
    source = _Source()
    steps = max(8, round(size / source.maps[0].nbytes))
    path = directory / f"{PREFIX}nemo-sst-{steps}-hours.nc"
    facts_path = facts_of(path)
    if path.exists() and facts_path.exists():
        facts = json.loads(facts_path.read_text())
        if facts.get("format") == FORMAT and facts.get("bytes") == path.stat().st_size:
            return Field(**{**facts["field"], "path": str(path)})
    say(f"growing {steps} hourly maps from three months of {source.title}; kept for the next time")
    partial = path.with_suffix(".partial")
    amplitude = source.noise_amplitude()
    try:
        stored = _write(source, partial, steps, amplitude, progress)
    except BaseException:
        # A partial file cannot be resumed.
        partial.unlink(missing_ok=True)
        raise
    ratio = steps * source.maps[0].nbytes / stored
    if abs(ratio / source.ratio - 1) > LIKENESS:
        raise ValueError(
            f"the grown field compresses {ratio:.2f} : 1, the source {source.ratio:.2f}"
        )
    field = Field(
        path=str(path),
        variable=VARIABLE,
        shape=(steps, *source.maps[0].shape),
        dtype="<f4",
        stored_bytes=partial.stat().st_size,
        origin=f"{source.title}: three monthly means of a NEMO run (iris-sample-data), "
        f"interpolated to {steps} hours, noise {amplitude:g} K; deflate gives {ratio:.2f} : 1, "
        f"the source {source.ratio:.2f} : 1",
    )
    partial.replace(path)
    facts = {"format": FORMAT, "bytes": field.stored_bytes, "field": asdict(field)}
    facts_path.write_text(json.dumps(facts))
    return field


def facts_of(path: Path) -> Path:
    """Returns the path of the description of the field at ``path``."""
    return path.with_suffix(".field.json")


class _Source:
    """The three months, with their storage parameters."""

    def __init__(self) -> None:
        try:
            import iris_sample_data
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "the demo's field is in the package iris-sample-data, which is missing: "
                "run make setup in the checkout, or give a file of your own with --input"
            ) from None
        folder = Path(iris_sample_data.path) / "NEMO"
        self.maps: list[npt.NDArray[np.float32]] = []
        stored = 0
        for month in MONTHS:
            with h5py.File(folder / f"nemo_1m_{month}_grid-T.nc") as file:
                dataset = file[VARIABLE]
                self.maps.append(dataset[0].astype("<f4"))
                stored += dataset.id.get_chunk_info(0).size
                self.level = int(dataset.compression_opts)
                self.attributes = _plain(dataset, ("standard_name", "long_name", "units"))
                self.coordinates = {
                    name: (file[name][()], _plain(file[name], ("standard_name", "units")))
                    for name in ("nav_lat", "nav_lon")
                }
        self.missing = self.maps[0] > 1e19
        self.ratio = sum(part.nbytes for part in self.maps) / stored
        self.title = str(self.attributes["long_name"]).lower()

    def map_at(self, hour: int, amplitude: float) -> npt.NDArray[np.float32]:
        """Returns one hourly map: interpolated between months, to and fro, with its own noise."""
        span = HOURS_PER_MONTH * (len(self.maps) - 1)
        at = span - abs(span - hour % (2 * span))
        month, hours = divmod(min(at, span - 1), HOURS_PER_MONTH)
        weight = np.float32((hours + (at == span)) / HOURS_PER_MONTH)
        values: npt.NDArray[np.float32] = (
            self.maps[month] * (1 - weight) + self.maps[month + 1] * weight
        )
        generator = np.random.default_rng([20150101, hour])
        values += np.float32(amplitude) * generator.standard_normal(values.shape, np.float32)
        values[self.missing] = self.maps[0][self.missing]
        return values

    def noise_amplitude(self) -> float:
        """Returns the strongest noise, from 0.05 K down, that compresses like the source."""
        amplitude = 0.05
        hours = range(0, 2 * HOURS_PER_MONTH, HOURS_PER_MONTH // 4)
        while amplitude > 1e-6:
            maps = [self.map_at(hour, amplitude) for hour in hours]
            packed = sum(len(zlib.compress(part.tobytes(), self.level)) for part in maps)
            ratio = sum(part.nbytes for part in maps) / packed
            if abs(ratio / self.ratio - 1) < LIKENESS / 2:
                return amplitude
            amplitude /= 2
        return 0.0


def _plain(item: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: bytes(item.attrs[name]).decode() for name in names if name in item.attrs}


def _write(
    source: _Source,
    path: Path,
    steps: int,
    amplitude: float,
    progress: Callable[[int, int], None],
) -> int:
    """Writes the file in the source's form; returns the stored bytes of the maps."""
    rows, columns = source.maps[0].shape
    path.unlink(missing_ok=True)
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        file.attrs["Conventions"] = "CF-1.5"
        file.attrs["title"] = "ocean T grid variables, interpolated to hours"
        dataset = _declare(file, source, steps, rows, columns)
        stored = 0

        def encode(hour: int) -> bytes:
            return zlib.compress(source.map_at(hour, amplitude).tobytes(), source.level)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # In batches, so that finished maps do not accumulate before the writer.
            for first in range(0, steps, 64):
                hours = range(first, min(first + 64, steps))
                for hour, packed in zip(hours, pool.map(encode, hours), strict=True):
                    dataset.id.write_direct_chunk((hour, 0, 0), packed)
                    stored += len(packed)
                progress(hours.stop, steps)
    with path.open("rb") as written:
        os.fsync(written.fileno())
    return stored


def _declare(file: Any, source: _Source, steps: int, rows: int, columns: int) -> Any:
    """Creates dimensions, coordinates and the variable; returns the variable."""
    time = file.create_dataset("time_counter", data=np.arange(steps, dtype="<f8"))
    time.attrs["units"] = "hours since 2015-01-16 00:00:00"
    time.attrs["calendar"] = "360_day"
    time.attrs["standard_name"] = "time"
    time.make_scale("time_counter")
    for name, length in (("y", rows), ("x", columns)):
        scale = file.create_dataset(name, shape=(length,), dtype="<f4")
        scale.make_scale(_PURE_DIMENSION % length)
    options = {"compression": "gzip", "compression_opts": source.level}
    dataset = file.create_dataset(
        VARIABLE,
        shape=(steps, rows, columns),
        dtype="<f4",
        chunks=(1, rows, columns),
        fillvalue=np.float32(1e20),
        **options,
    )
    dataset.attrs.update(source.attributes)
    dataset.attrs["_FillValue"] = np.float32(1e20)
    dataset.attrs["coordinates"] = "nav_lat nav_lon"
    attach = {"time_counter": 0, "y": 1, "x": 2}
    for name, axis in attach.items():
        dataset.dims[axis].attach_scale(file[name])
    for name, (values, attributes) in source.coordinates.items():
        coordinate = file.create_dataset(name, data=values, chunks=values.shape, **options)
        coordinate.attrs.update(attributes)
        coordinate.dims[0].attach_scale(file["y"])
        coordinate.dims[1].attach_scale(file["x"])
    return dataset
