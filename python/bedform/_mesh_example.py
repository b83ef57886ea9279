"""Small plotfiles, for examples."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np

_REAL = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))"


def plotfile() -> str:
    """Writes a small plotfile of two levels in a temporary directory, for examples."""
    path = Path(tempfile.mkdtemp()) / "plt00000"
    levels = [((0, 0), (3, 3), np.arange(16.0)), ((2, 2), (5, 5), np.arange(16.0) + 100)]
    lines = ["HyperCLaw-V1.1", "1", "density", "2", "0.5", "1", "0 0", "1 1", "2"]
    lines += [
        "((0,0) (3,3) (0,0)) ((0,0) (7,7) (0,0))",
        "7 7",
        "0.25 0.25",
        "0.125 0.125",
        "0",
        "0",
    ]
    for number, (low, high, values) in enumerate(levels):
        bounds = f"(({low[0]},{low[1]}) ({high[0]},{high[1]}) (0,0))"
        lines += [f"{number} 1 0.5", "7", "0 1", "0 1", f"Level_{number}/Cell"]
        directory = path / f"Level_{number}"
        directory.mkdir(parents=True)
        data = f"FAB {_REAL}{bounds} 1\n".encode() + values.astype("<f8").tobytes()
        (directory / "Cell_D_00000").write_bytes(data)
        ranges = f"1,1\n{values.min()},\n\n1,1\n{values.max()},\n"
        text = f"1\n1\n1\n0\n(1 0\n{bounds}\n)\n1\nFabOnDisk: Cell_D_00000 0\n\n{ranges}\n"
        (directory / "Cell_H").write_text(text)
    (path / "Header").write_text("\n".join(lines) + "\n")
    return str(path)


def plotfile_of_cubes() -> str:
    """Writes a plotfile of three axes: two levels, each of 64 boxes of 16^3 cells."""
    path = Path(tempfile.mkdtemp()) / "plt00000"
    domains = "((0,0,0) (63,63,63) (0,0,0)) ((0,0,0) (127,127,127) (0,0,0))"
    lines = ["HyperCLaw-V1.1", "1", "density", "3", "0.5", "1", "0 0 0", "1 1 1", "2", domains]
    lines += ["7 7", "0.015625 0.015625 0.015625", "0.0078125 0.0078125 0.0078125", "0", "0"]
    numbers = np.random.default_rng(0)
    for level, first in ((0, 0), (1, 32)):
        starts = list(itertools.product(range(first, first + 64, 16), repeat=3))
        lines += [f"{level} 64 0.5", "7", *["0 1"] * 192, f"Level_{level}/Cell"]
        directory = path / f"Level_{level}"
        directory.mkdir(parents=True)
        boxes, places = [], []
        with (directory / "Cell_D_00000").open("wb") as file:
            for start in starts:
                low = ",".join(map(str, start))
                high = ",".join(str(at + 15) for at in start)
                boxes.append(f"(({low}) ({high}) (0,0,0))")
                places.append(f"FabOnDisk: Cell_D_00000 {file.tell()}")
                file.write(f"FAB {_REAL}{boxes[-1]} 1\n".encode())
                file.write(numbers.random(16**3).astype("<f8").tobytes())
        head = ["1", "1", "1", "0", "(64 0", *boxes, ")", "64", *places, ""]
        ranges = ["64,1", *["0,"] * 64, "", "64,1", *["1,"] * 64, ""]
        (directory / "Cell_H").write_text("\n".join(head + ranges))
    (path / "Header").write_text("\n".join(lines) + "\n")
    return str(path)
