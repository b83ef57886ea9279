"""Plug-in filters of HDF5: their sources, and remedies for missing ones.

The HDF5 library finds filters that are built in or lie in ``HDF5_PLUGIN_PATH``. Then this module
offers the package hdf5plugin, and the plug-ins of the package netCDF4. It does not matter whether
the program has imported these packages.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["has_filters", "lacking", "load_plugins", "plugin_sources"]

_PACKAGE: Final = "hdf5plugin"
#: Names of the filters in hdf5plugin by their registered numbers.
_NAMES: Final = {
    307: "bzip2",
    32001: "Blosc",
    32004: "LZ4",
    32008: "Bitshuffle",
    32013: "ZFP",
    32015: "Zstandard",
    32017: "SZ",
    32018: "FCIDECOMP",
    32024: "SZ3",
    32026: "Blosc2",
    32028: "SPERR",
}
_SZIP: Final = 4


def plugin_sources() -> list[str]:
    """Returns sources of plug-ins: a package to import, and directories. Imports nothing."""
    sources = []
    # A module of the same name may have no location, or be no package.
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec(_PACKAGE) is not None:
            sources.append(_PACKAGE)
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("netCDF4")
        places = [] if found is None else found.submodule_search_locations or []
        directories = [Path(place, "plugins") for place in places]
        sources += [str(directory) for directory in directories if directory.is_dir()]
    return sources


def load_plugins(sources: Iterable[str]) -> None:
    """Adds the sources of `plugin_sources` to the HDF5 library of this process."""
    import h5py

    for source in sources:
        if source == _PACKAGE:
            # A package that does not fit this HDF5 is skipped.
            with contextlib.suppress(ImportError, OSError, RuntimeError):
                importlib.import_module(source)
        else:
            h5py.h5pl.append(os.fsencode(source))


def has_filters(filters: Sequence[int]) -> bool:
    """Whether the HDF5 library of this process has all these filters."""
    import h5py

    return all(h5py.h5z.filter_avail(code) for code in filters)


def lacking(filters: Sequence[int]) -> str:
    """Returns the remedy for missing filters.

    >>> lacking([307])
    'compressed with bzip2 (filter 307), which HDF5 does not have here: pip install hdf5plugin'
    """
    named = [f"{_NAMES[code]} (filter {code})" for code in filters if code in _NAMES]
    others = [f"filter {code}" for code in filters if code not in _NAMES]
    if _SZIP in filters:
        remedy = "install an h5py whose HDF5 has szip"
    elif others:
        remedy = "name the directory of its plug-in in HDF5_PLUGIN_PATH"
    else:
        remedy = f"pip install {_PACKAGE}"
    what = " and ".join(named + others)
    return f"compressed with {what}, which HDF5 does not have here: {remedy}"
