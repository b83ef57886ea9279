"""The field that every benchmark stores: smooth structure, small-scale noise, finite precision.

It imitates the double-precision output of a simulation, with meaningless bits rounded away: a
temperature in kelvin with planetary waves, a vertical gradient, sharp fronts, and noise of 0.02 K
that no compressor can remove, rounded to 2^-24 K. It is the same on every machine: the only random
state is `Generator(PCG64((seed, plane)))`.

Zstandard at level 3 compresses a 64^3 chunk of it by 1.9. Of real fields, the air temperature of
A1B in `iris-sample-data`, stored as float32 and widened, gives 2.56, the electron density of its
space weather sample, a native float64, 2.45, and noise in full double precision 1.1. The rounding
step is chosen between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Field = NDArray[np.float64]

SEED = 20_240_229
QUANTUM = 2.0**-24
NOISE_KELVIN = 0.02


def planes(size: int) -> Iterator[Field]:
    """Yield the `size` planes of the field, each of shape `(size, size)`, along axis 0.

    >>> next(planes(8)).shape
    (8, 8)
    """
    axis = np.linspace(0.0, 1.0, size, endpoint=False)
    across, along = axis[:, None], axis[None, :]
    for index in range(size):
        height = index / size
        wave = 12.0 * np.sin(2 * np.pi * (2 * across + height)) * np.cos(2 * np.pi * 3 * along)
        eddies = 2.0 * np.sin(2 * np.pi * (7 * along - 5 * across + 2 * height))
        front = 4.0 * np.tanh(30.0 * (along - 0.5 - 0.2 * np.sin(2 * np.pi * (across + height))))
        noise = np.random.Generator(np.random.PCG64((SEED, index))).standard_normal((size, size))
        kelvin = 288.0 - 40.0 * height + wave + eddies + front + NOISE_KELVIN * noise
        yield np.round(kelvin / QUANTUM) * QUANTUM
