"""A program of h5py and netCDF4 that knows nothing of Bedform and reads a file at random.

``hdf5_reads.py FILE SEED READS`` reads series and other selections of all datasets, and prints a
digest of each. ``hdf5_reads.py write FILE`` makes the file.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import h5py
import netCDF4
import numpy as np

SHAPE = (300, 30, 40)
#: Of each dataset: type, and its form in the file.
DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("<f4", {}),
    "big": (">f8", {}),
    "big_packed": (">i2", {"chunks": (5, 6, 18), "compression": "gzip", "shuffle": True}),
    "bytes": ("i1", {"chunks": (1, 30, 40)}),
    "unsigned": ("<u8", {"chunks": (3, 30, 5), "fletcher32": True}),
    "half": ("<f2", {"chunks": (3, 5, 7), "compression": "lzf"}),
    "grows": ("<i4", {"chunks": (7, 5, 4), "maxshape": (None, SHAPE[1], None), "fillvalue": -9}),
    "record": ([("a", "<i4"), ("b", "<f8")], {}),
    "truth": ("?", {"chunks": (1, 30, 40)}),
    "words": ("S5", {}),
}


def write(path: str) -> None:
    """Make the file; parts of some datasets are never written."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for name, (dtype, form) in DATASETS.items():
            made = file.create_dataset(name, SHAPE, dtype, **form)
            rows = slice(0, SHAPE[0] // 2) if "maxshape" in form else slice(None)
            shape = (len(range(*rows.indices(SHAPE[0]))), *SHAPE[1:])
            bits = rng.integers(0, 256, (*shape, made.dtype.itemsize), dtype="u1")
            values = bits.view(made.dtype)[..., 0]
            made[rows] = np.nan_to_num(values) if made.dtype.kind == "f" else values
        file["scalar"] = np.float32(3.5)
        file["line"] = np.arange(500, dtype="<i8")
        file.create_group("group")["same"] = file["plain"]
        file["link"] = h5py.SoftLink("/big")


def tell(*words: Any) -> None:
    """Print a line."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def digest(values: Any) -> str:
    """Return the type, shape and digest of an array."""
    array = np.asarray(values)
    data = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{array.dtype.str if array.dtype.names is None else 'record'} {array.shape} {data[:16]}"


def selection(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return a selection as h5py takes it."""
    form = rng.integers(8)
    if form < 4 and len(shape) == 3:
        # A series of one point.
        return np.s_[:, int(rng.integers(shape[1])), int(rng.integers(shape[2]))]
    axes: list[Any] = []
    for length in shape:
        start, end = sorted(int(at) for at in rng.integers(0, length + 1, 2))
        step = int(rng.integers(1, 4))
        axes.append(slice(start, max(end, start + 1), step))
    if form == 4 and shape:
        axis = int(rng.integers(len(shape)))
        count = int(rng.integers(1, 5))
        axes[axis] = sorted(int(at) for at in rng.choice(shape[axis], count, replace=False))
    if form == 5 and shape:
        return rng.random(shape) < 0.01
    if form == 6:
        return ()
    return tuple(axes)


def read(path: str, seed: int, reads: int) -> None:
    """Read at random, and print a digest of each result."""
    rng = np.random.default_rng(seed)
    with h5py.File(path) as file:
        names = [*DATASETS, "scalar", "line", "group/same", "link"]
        for _ in range(reads):
            dataset = file[names[int(rng.integers(len(names)))]]
            chosen = () if dataset.shape == () else selection(rng, dataset.shape)
            tell(dataset.name, digest(dataset[chosen]))
            if dataset.ndim == 3 and rng.integers(4) == 0:
                at = [int(rng.integers(length)) for length in dataset.shape[1:]]
                target = np.zeros((3, SHAPE[0] + 10), dataset.dtype)
                dataset.read_direct(target, np.s_[:, at[0], at[1]], np.s_[1, 2 : SHAPE[0] + 2])
                tell("direct", digest(target))
            if dataset.ndim == 3 and dataset.dtype.kind in "iuf" and rng.integers(4) == 0:
                tell("converted", digest(dataset.astype("f8")[:, 3, 4]))
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for _ in range(reads // 4):
            name = ("plain", "big", "big_packed", "unsigned", "grows")[int(rng.integers(5))]
            chosen = np.s_[::2, int(rng.integers(30)), 3:9] if rng.integers(2) else np.s_[:, 2, 5]
            tell("netcdf", name, digest(file[name][chosen]))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        read(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
