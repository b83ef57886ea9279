"""The layouts that `replica-model` compares, and the selections that it reads.

The letters are those of table 3.3 of the paper: R the original, row-major in one piece; T a
transposition, Ty and Tz those with y and z as the slowest axis; Z and H curves; C a concatenation
of just the elements of a selection, a replica of R. A is the first choice of `advise` for planes,
lines and boxes alike. T, Z, H and A are uncompressed Zarr stores. All but A have one shard, and
chunks of the same size, so that they differ only in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import by_engine
from benchmarks.replicas.trials import forget_replicas

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bedform._layout import Order
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Values

ORIGINAL, GATHERED = "R", "C"
AXES = "xyz"
SHAPES = {1: (1 << 26,), 2: (8192, 8192), 3: (512, 512, 256)}
QUICK_SHAPES = {1: (1 << 19,), 2: (768, 640), 3: (96, 80, 64)}
LITTLE_SHAPES = {1: (1 << 15,), 2: (192, 160), 3: (36, 32, 24)}
#: Elements of a chunk: 128 KiB; for small data, 4 KiB.
CHUNK_ELEMENTS, QUICK_CHUNK_ELEMENTS = 1 << 15, 1 << 10
#: The selection of the one-axis array: its number of blocks, and their elements.
BLOCKS, BLOCK_LENGTH = 1024, 256
#: The largest share of the elements in a random selection.
SHARE_MAX = 1 / 16


def pieces(shape: Sequence[int], axes: Sequence[int], elements: int) -> tuple[int, ...]:
    """Returns a chunk of `elements` consecutive elements, with `axes` from slow to fast.

    >>> pieces((512, 512, 256), (2, 0, 1), 1 << 15)
    (64, 512, 1)
    """
    chunk = [1] * len(shape)
    for axis in reversed(axes):
        chunk[axis] = max(1, min(shape[axis], elements // prod(chunk)))
    return tuple(chunk)


def cube(rank: int, elements: int) -> tuple[int, ...]:
    """Returns a chunk with axes as equal as powers of two allow.

    >>> cube(3, 1 << 15), cube(2, 1 << 15)
    ((32, 32, 32), (256, 128))
    """
    chunk = [1] * rank
    for axis in cycle(range(rank)):
        if prod(chunk) >= elements:
            break
        chunk[axis] *= 2
    return tuple(chunk)


def layouts_of(of: Field, elements: int) -> dict[str, bf.Regular]:
    """Return the layouts of the stores, by their letters."""
    rank, shape = len(of.shape), of.shape
    if rank == 1:
        return {}
    # One shard: its order is that of the whole array. A chunk has the whole fastest axis of a
    # transposition, so that column-major is the order of the two others.
    orders = {"T": (1, 0)} if rank == 2 else {"Ty": (1, 0, 2), "Tz": (2, 0, 1)}
    chunks: dict[str, tuple[tuple[int, ...], Order]] = {
        **{name: (pieces(shape, axes, elements), "column-major") for name, axes in orders.items()},
        "Z": (cube(rank, elements), "z"),
        "H": (cube(rank, elements), "hilbert"),
    }
    found: dict[str, Any] = {}
    for name, (chunk, order) in chunks.items():
        shard = tuple(-(-length // one) * one for length, one in zip(shape, chunk, strict=True))
        found[name] = bf.Regular(chunks=chunk, shards=shard, order=order)
    # Not the profile of this machine, so that the layout is the same everywhere.
    profile = bf.Profile.default()
    found["A"] = bf.advise(
        shape, of.dtype, dims=of.dims, profile=profile, readers="bedform", cores=2
    ).layout
    return found


@dataclass(frozen=True)
class Copies:
    """An array in all its layouts."""

    of: Field
    place: Path
    layouts: dict[str, bf.Regular]

    def path(self, layout: str) -> Path:
        """Return the file or store; the concatenation lies in the sidecar of the original."""
        is_file = layout in (ORIGINAL, GATHERED)
        return self.place / ("original.nc" if is_file else f"{layout}.zarr")

    def build(self) -> None:
        """Writes the missing files and stores."""
        data.ensure(self.path(ORIGINAL), self.of.write)
        for name in self.layouts:
            data.ensure(self.path(name), partial(self.write, name))

    def write(self, layout: str, path: Path) -> None:
        """Write a store."""
        values = self.of.of((slice(None),) * len(self.of.shape))
        with bf.create(path) as store:
            chosen = self.layouts[layout]
            store.create_array(
                self.of.name, data=values, dims=self.of.dims, layout=chosen, codecs=[]
            )

    def gather(self, selection: Selection) -> bool:
        """Makes the concatenation of a selection; returns whether it exists now."""
        forget_replicas(self.path(ORIGINAL))
        wanted = {self.of.name: [selection]}
        return bool(bf.optimize(self.path(ORIGINAL), "100%", selections=wanted).made)

    def read(self, layout: str, selection: Selection) -> Values:
        """Opens, reads and closes."""
        replicas = layout == GATHERED
        return by_engine(self.path(layout), self.of.name, [selection], replicas=replicas)

    def explain(self, layout: str, selection: Selection) -> dict[str, Any]:
        """Returns the model's prediction of a read."""
        with bf.open(self.path(layout), replicas=layout == GATHERED) as store:
            found: dict[str, Any] = store[self.of.name].explain(selection).to_dict()
        return found


def copies_of(place: Path, shape: tuple[int, ...], elements: int) -> Copies:
    """Return the copies of an array of a shape."""
    of = Field("v", tuple(AXES[: len(shape)]), shape, "float32", seed=len(shape))
    return Copies(of, place / "x".join(map(str, shape)), layouts_of(of, elements))


def eight(shapes: dict[int, tuple[int, ...]]) -> dict[str, tuple[int, Selection, bool]]:
    """Returns the eight selections: number of axes, selection, whether it is gathered as well."""
    (length,), (rows, columns), (nx, ny, nz) = (shapes[rank] for rank in (1, 2, 3))

    def part(size: int, first: float, share: float) -> slice:
        return slice(int(first * size), int(first * size) + max(1, int(share * size)))

    count = min(BLOCKS, length // (4 * BLOCK_LENGTH))
    at = np.random.default_rng(3).choice(length // BLOCK_LENGTH, count, replace=False)
    blocks = np.sort(at)[:, None] * BLOCK_LENGTH + np.arange(BLOCK_LENGTH)
    return {
        "SEL0": (1, (blocks.ravel(),), True),
        "SEL1": (2, (slice(None), part(columns, 0.4, 0.002)), False),
        "SEL2": (2, (part(rows, 0.2, 0.13), part(columns, 0.6, 0.13)), False),
        "SEL3": (2, (part(rows, 0.5, 0.1), part(columns, 0.3, 0.2)), True),
        "SEL4": (3, (part(nx, 0.3, 0.04), part(ny, 0.05, 0.9), int(0.4 * nz)), False),
        "SEL5": (3, (part(nx, 0.6, 0.04), part(ny, 0.05, 0.9), part(nz, 0.3, 0.04)), False),
        "SEL6": (3, (part(nx, 0.3, 0.2), part(ny, 0.5, 0.2), part(nz, 0.4, 0.4)), False),
        "SEL7": (3, (part(nx, 0.6, 0.15), part(ny, 0.2, 0.15), part(nz, 0.1, 0.3)), True),
    }


def random_selections(
    shapes: dict[int, tuple[int, ...]], count: int
) -> dict[str, tuple[int, Selection, bool]]:
    """Returns boxes of random lengths, evenly on a logarithmic scale, of two and three axes."""
    random = np.random.default_rng(24)
    found: dict[str, tuple[int, Selection, bool]] = {}
    while len(found) < count:
        shape = shapes[2 + len(found) % 2]
        lengths = [int(length ** random.random()) for length in shape]
        starts = [
            int(random.integers(size - length + 1))
            for size, length in zip(shape, lengths, strict=True)
        ]
        if prod(lengths) > SHARE_MAX * prod(shape):
            continue
        box = tuple(slice(at, at + n) for at, n in zip(starts, lengths, strict=True))
        found[f"{len(found):03}"] = (len(shape), box, False)
    return found


def in_words(selection: Selection) -> str:
    """Return the lengths of a selection.

    >>> in_words((slice(3, 7), 5, slice(None)))
    '4x1xall'
    """
    if isinstance(selection[0], np.ndarray):
        return f"{len(selection[0])} listed"
    lengths = [
        "1" if isinstance(one, int) else "all" if one.stop is None else str(one.stop - one.start)
        for one in selection
    ]
    return "x".join(lengths)
