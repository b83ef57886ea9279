"""Imports of all benchmarks; the bases of their figures are tested at night."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
#: Packages of the extra `bench`, which the test environment lacks.
EXTRAS = ("adios2", "aiohttp", "hdf5plugin", "obstore", "psutil")
IMPORT = f"""
import importlib, pkgutil, sys

sys.path.insert(0, {str(ROOT)!r})
import benchmarks
from benchmarks.__main__ import NAMES

modules = [one.name for one in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
assert {{*NAMES.values()}} <= {{*modules}}
for name in modules:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in {EXTRAS}:
            raise
print(len(modules))
"""


def test_every_benchmark_can_be_imported() -> None:
    command = [sys.executable, "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
