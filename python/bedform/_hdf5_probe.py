"""Finds out which HDF5 a program loads, and whether the connector loads into it.

Run in a child, by the program's own Python or by ours, with the connector's environment set:
``_hdf5_probe.py MODULE...`` imports these modules as far as they are there, ``_hdf5_probe.py
LIBRARY`` loads one library. Prints JSON: for each HDF5 its ``path``, ``version`` and ``connected``.

It uses Python's standard library alone, because the program's Python may have nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

CONNECTOR = b"bedform"


def loaded() -> list[str]:
    """Returns the paths of the HDF5 libraries of this process."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[5].strip() for line in maps if "hdf5" in line}
    return sorted(path for path in paths if re.search(r"/libhdf5[-_.A-Za-z0-9]*\.so", path))


def described(path: str) -> dict[str, Any] | None:
    """Returns the facts of the library at a path, which is initialised."""
    library = ctypes.CDLL(path)
    if not hasattr(library, "H5get_libversion"):
        return None
    numbers = [ctypes.c_uint() for _ in range(3)]
    library.H5open()
    library.H5get_libversion(*map(ctypes.byref, numbers))
    connected = False
    if hasattr(library, "H5VLis_connector_registered_by_name"):
        connected = library.H5VLis_connector_registered_by_name(CONNECTOR) > 0
    return {
        "path": path,
        "version": [number.value for number in numbers],
        "connected": connected,
    }


def main(names: list[str]) -> None:
    """Print the facts of all HDF5 libraries."""
    paths = [name for name in names if name.startswith("/")]
    for name in names:
        if not name.startswith("/"):
            # A module that does not work for other reasons is the program's affair.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    found = [described(path) for path in paths or loaded()]
    known = [library for library in found if library is not None]
    sys.stdout.write(json.dumps(known) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
