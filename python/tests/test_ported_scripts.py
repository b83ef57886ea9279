"""Programs of h5py and zarr-python run with another import and another opening line.

Each program of ``ported/`` runs unchanged, and again with the lines below replaced; both print the
same.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bedform as bf

PORTED = Path(__file__).parent / "ported"

#: For each program the lines to replace, with their replacements.
CHANGES = {
    "h5py_script.py": {
        "import h5py": "import bedform as bf",
        'with h5py.File(path, "w") as f:': "with bf.create(path) as f:",
        'with h5py.File(path, "r") as f:': "with bf.open(path) as f:",
        "h5py.string_dtype()": "str",
    },
    "zarr_script.py": {
        "import zarr": "import bedform as bf",
        'root = zarr.open_group(path, mode="w")': "root = bf.create(path)",
        "zarr.codecs.ZstdCodec(level=3)": "'zstd'",
    },
}


def run(source: str, path: Path) -> str:
    """Returns the output of a program."""
    command = [sys.executable, "-c", source, str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_program_prints_the_same_with_another_import_and_opening_line(
    name: str, tmp_path: Path
) -> None:
    source = (PORTED / name).read_text()
    ported = source
    for old, new in CHANGES[name].items():
        assert ported.count(old) == 1, old
        ported = ported.replace(old, new)
    assert sum(a != b for a, b in zip(source.splitlines(), ported.splitlines(), strict=True)) <= 4
    suffix = ".h5" if name.startswith("h5py") else ".zarr"
    expected = run(source, tmp_path / f"theirs{suffix}")
    assert len(expected.splitlines()) > 3
    assert run(ported, tmp_path / "ours.zarr") == expected
    assert bf.open(tmp_path / "ours.zarr").verify() == []
