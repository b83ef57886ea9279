"""A small plotfile, for examples."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np


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
    real = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))"
    for number, (low, high, values) in enumerate(levels):
        bounds = f"(({low[0]},{low[1]}) ({high[0]},{high[1]}) (0,0))"
        lines += [f"{number} 1 0.5", "7", "0 1", "0 1", f"Level_{number}/Cell"]
        directory = path / f"Level_{number}"
        directory.mkdir(parents=True)
        data = f"FAB {real}{bounds} 1\n".encode() + values.astype("<f8").tobytes()
        (directory / "Cell_D_00000").write_bytes(data)
        ranges = f"1,1\n{values.min()},\n\n1,1\n{values.max()},\n"
        text = f"1\n1\n1\n0\n(1 0\n{bounds}\n)\n1\nFabOnDisk: Cell_D_00000 0\n\n{ranges}\n"
        (directory / "Cell_H").write_text(text)
    (path / "Header").write_text("\n".join(lines) + "\n")
    return str(path)
