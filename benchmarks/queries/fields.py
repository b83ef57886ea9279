"""Three fields of float64 for `query`: smooth, rough, and real. All have full blocks of elements.

- *smooth*: one component of isotropic turbulence at a moment. Its Fourier coefficients have random
  phases and the energy `k^-5/3`, rolled off at the largest eddies, a quarter of the domain, and at
  the grid, like a resolved simulation (`k_max eta = 1.5`). Its mantissas are full.
- *rough*: independent normal noise; no block of it is like another.
- *real*: the sea surface temperature of `iris-sample-data`, three monthly means of a NEMO run on a
  330 x 360 grid, as the demo has it. It is grown by interpolation along latitude, longitude and
  time, over two months and once, so that nothing repeats. Noise makes it compress like the source.
  Its values are float32, widened. Land is missing: NaN.
"""

from __future__ import annotations

import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Planes = Iterator[Values]
    Shape = tuple[int, ...]

SEED = 44
SPECTRAL_INDEX = 5 / 3
#: Largest eddies in a domain of equal volume; the Kolmogorov length in cells; the roll-off there.
EDDIES, KOLMOGOROV, DISSIPATION = 4, 1.5 / np.pi, 5.2
DIMS = ("x", "y", "z")
MONTHS = ("20150101-20150201", "20150201-20150301", "20150301-20150401")
MISSING = 1e19
#: How close the compression of the real field comes to that of its source.
LIKENESS = 0.10


def smooth(shape: Shape) -> Values:
    """Return the turbulence-like field, of mean 0 and variance 1.

    >>> field = smooth((16, 16, 8))
    >>> field.shape, bool(np.isclose(field.std(), 1))
    ((16, 16, 8), True)
    """
    spectrum = np.empty((*shape[:-1], shape[-1] // 2 + 1), np.complex128)
    random = np.random.Generator(np.random.PCG64((SEED, 1)))
    last = np.fft.rfftfreq(shape[-1])
    across = np.fft.fftfreq(shape[1])[:, None]
    outer = EDDIES / np.prod(shape) ** (1 / 3)
    for plane, along in zip(spectrum, np.fft.fftfreq(shape[0]), strict=True):
        wave = np.sqrt(along**2 + across**2 + last**2)
        plane.real = random.standard_normal(wave.shape)
        plane.imag = random.standard_normal(wave.shape)
        plane *= amplitude(wave, outer)
    for axis in (0, 1):
        np.fft.ifft(spectrum, axis=axis, out=spectrum)
    field = np.empty(shape)
    for plane, coefficients in zip(field, spectrum, strict=True):
        plane[:] = np.fft.irfft(coefficients, shape[-1], axis=-1)
    field -= field.mean()
    field /= field.std()
    return field


def amplitude(wave: Values, outer: float) -> Values:
    """Returns the amplitudes of waves, in cycles per cell: roots of von Karman's spectrum."""
    # The energy of a shell is spread over its surface, which is proportional to the square of `k`.
    energy = wave**2 / (wave**2 + outer**2) ** ((SPECTRAL_INDEX + 4) / 2)
    decay = np.exp(-DISSIPATION * 2 * np.pi * wave * KOLMOGOROV)
    return np.asarray(np.sqrt(energy * decay))


def rough(shape: Shape) -> Planes:
    """Yield planes of noise."""
    for index in range(shape[0]):
        yield np.random.Generator(np.random.PCG64((SEED, 2, index))).standard_normal(shape[1:])


class Ocean:
    """The real field: months of maps, their grid, and the noise."""

    def __init__(self, shape: Shape) -> None:
        import h5py
        import iris_sample_data

        folder = Path(iris_sample_data.path) / "NEMO"
        maps, stored = [], 0
        for month in MONTHS:
            with h5py.File(folder / f"nemo_1m_{month}_grid-T.nc") as file:
                dataset: Any = file["tos"]
                maps.append(dataset[0])
                stored += dataset.id.get_chunk_info(0).size
                self.level = int(dataset.compression_opts)
        self.steps = shape[0]
        self.ratio = sum(one.nbytes for one in maps) / stored
        is_sea = np.asarray(maps[0] < MISSING)
        self.is_land, weights = grown(is_sea, shape[1:])
        self.months = [
            grown(np.where(is_sea, one, 0), shape[1:])[1] / np.where(self.is_land, 1, weights)
            for one in maps
        ]
        self.noise = self.strongest_noise()

    def map_at(self, step: int, noise: float) -> NDArray[np.float32]:
        """Return one map, between its months, with its own noise."""
        month, weight = divmod(step * (len(self.months) - 1) / self.steps, 1)
        first, second = self.months[int(month)], self.months[int(month) + 1]
        values = first * (1 - weight) + second * weight
        random = np.random.Generator(np.random.PCG64((SEED, 3, step)))
        found = (values + noise * random.standard_normal(values.shape)).astype(np.float32)
        found[self.is_land] = np.nan
        return found

    def strongest_noise(self) -> float:
        """Returns the strongest noise, from 0.05 K down, that compresses like the source."""
        noise = 0.05
        while noise > 1e-6:
            maps = [self.map_at(step, noise) for step in range(0, self.steps, self.steps // 4)]
            packed = sum(len(zlib.compress(one.tobytes(), self.level)) for one in maps)
            if sum(one.nbytes for one in maps) / packed > self.ratio * (1 - LIKENESS):
                return noise
            noise /= 1.2
        return 0.0

    def planes(self) -> Planes:
        """Yield the maps as float64."""
        for step in range(self.steps):
            yield self.map_at(step, self.noise).astype(np.float64)


def grown(values: NDArray[Any], shape: Shape) -> tuple[NDArray[np.bool_], Values]:
    """Returns where the nearest element is zero, and the map interpolated linearly.

    >>> grown(np.array([[0.0, 1.0]]), (1, 4))[1].tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    nearest, rows = values, np.asarray(values, np.float64)
    for axis, length in enumerate(shape):
        have = values.shape[axis]
        at = np.clip((np.arange(length) + 0.5) * have / length - 0.5, 0, have - 1)
        low = np.minimum(at.astype(int), max(have - 2, 0))
        weight = np.expand_dims(at - low, 1 - axis)
        high = np.minimum(low + 1, have - 1)
        rows = rows.take(low, axis) * (1 - weight) + rows.take(high, axis) * weight
        nearest = nearest.take(np.rint(at).astype(int), axis)
    return nearest == 0, rows


def planes_of(name: str, shape: Shape) -> Planes:
    """Returns the planes of a field along its first axis."""
    if name == "smooth":
        return iter(smooth(shape))
    return rough(shape) if name == "rough" else Ocean(shape).planes()


FIELDS = ("smooth", "rough", "real")
#: The package with the source of the real field.
SAMPLE = "iris_sample_data"


def missing() -> dict[str, str]:
    """Returns the fields that cannot be made here, and why."""
    lacks = [name for name in (SAMPLE, "h5py") if find_spec(name) is None]
    return {"real": f"left out, without {' and '.join(lacks)}"} if lacks else {}


def write(path: Path, name: str, shape: Shape) -> None:
    """Write a field as an `.npy` file."""
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    with path.open("wb") as target:
        np.lib.format.write_array_header_1_0(target, header)
        for plane in planes_of(name, shape):
            target.write(plane.tobytes())


def shapes(size: int) -> dict[str, Shape]:
    """Returns the shapes, of as many elements as the cube.

    >>> shapes(512)
    {'1024x1024x128': (1024, 1024, 128), '512^3': (512, 512, 512)}
    """
    flat = (2 * size, 2 * size, size // 4)
    return {"x".join(map(str, flat)): flat, f"{size}^3": (size,) * 3}
