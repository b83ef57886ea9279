"""Ten typical arrays for `other-readers`: one to four dimensions, 0.7 to 363 MiB.

Values are waves with noise, in the precision of an instrument or a model, so that codecs can remove
some bits and must keep others.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Selection = tuple[slice, ...]
#: Rounding steps of stored values: 2^-8 K in a float32 near 280 K keeps some 17 bits.
QUANTA = {"float32": 2.0**-8, "float64": 2.0**-24}


@dataclass(frozen=True)
class Field:
    """An array: its name, its shape, and its length along the first axis in a quick run."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quick_length: int

    def shortened(self) -> Field:
        """Return the field for a quick run."""
        return Field(self.name, (self.quick_length, *self.shape[1:]), self.dtype, self.quick_length)

    def dims(self) -> tuple[str, ...]:
        """Return names of dimensions; a store needs some."""
        return tuple("abcd"[: len(self.shape)])

    def values(self) -> Values:
        """Return the values, the same on every machine."""
        axes = np.meshgrid(
            *(np.arange(length, dtype="float32") for length in self.shape),
            indexing="ij",
            sparse=True,
        )
        waves = np.float32(0)
        for number, axis in enumerate(axes):
            waves = waves + np.sin(axis * np.float32(0.031 + 0.017 * number) + number)
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        noise = random.random(self.shape, dtype="float32")
        if self.dtype in QUANTA:
            quantum = QUANTA[self.dtype]
            kelvin = 280 + 8 * waves.astype(self.dtype) + noise * 0.1
            return (np.round(kelvin / quantum) * quantum).astype(self.dtype)
        brightest = 200 if self.dtype == "uint8" else 4000
        span = brightest / (2 * len(self.shape))
        return np.asarray(brightest / 2 + span * waves + brightest / 40 * noise).astype(self.dtype)

    def reads(self) -> dict[str, Selection]:
        """Returns the selections; for one dimension two ranges replace map and series."""
        whole = tuple(slice(0, length) for length in self.shape)
        middle = [length // 2 + length // 11 for length in self.shape]
        at = tuple(slice(one, one + 1) for one in middle)
        box = tuple(slice(n // 5, n // 5 + max(1, n // 3)) for n in self.shape)
        if len(self.shape) == 1:
            step = max(1, self.shape[0] // 100)
            part = (slice(middle[0], middle[0] + step),)
            return {"whole": whole, "a hundredth": part, "a third": box}
        return {
            "whole": whole,
            "map": (at[0], *whole[1:]),
            "series": (whole[0], *at[1:]),
            "box": box,
        }


FIELDS = (
    Field("hourly record", (87_600,), "float64", 87_600),
    Field("particles", (20_000_000,), "float32", 5_000_000),
    Field("stations", (8_760, 2_000), "float32", 2_190),
    Field("satellite image", (10_980, 10_980), "uint16", 2_745),
    Field("monthly model", (600, 96, 144), "float32", 600),
    Field("reanalysis", (1_460, 181, 360), "float32", 365),
    Field("fine daily maps", (60, 721, 1_440), "float32", 15),
    Field("volume", (320, 320, 320), "float64", 80),
    Field("37 levels", (24, 37, 181, 360), "float32", 6),
    Field("RGB frames", (200, 480, 640, 3), "uint8", 50),
)
