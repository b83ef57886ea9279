"""Filters that HDF5 has from plug-ins: where they are found, and what to install.

A filter is looked for in the HDF5 library and in ``HDF5_PLUGIN_PATH`` by the library itself, then
in the package hdf5plugin, then among the plug-ins that the package netCDF4 ships. Whether a program
has imported these packages makes no difference.
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
#: Filters by their registered numbers, those that hdf5plugin has.
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
    """Where this process would find plug-ins: a package to import, directories. Imports nothing."""
    sources = []
    # A module of the same name may have no place, and be no package.
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
    """Let the HDF5 library of this process find filters in what `plugin_sources` gave."""
    import h5py

    for source in sources:
        if source == _PACKAGE:
            # One that does not fit this HDF5 helps nobody, and does no harm.
            with contextlib.suppress(ImportError, OSError, RuntimeError):
                importlib.import_module(source)
        else:
            h5py.h5pl.append(os.fsencode(source))


def has_filters(filters: Sequence[int]) -> bool:
    """Whether the HDF5 library of this process has all these filters."""
    import h5py

    return all(h5py.h5z.filter_avail(code) for code in filters)


def lacking(filters: Sequence[int]) -> str:
    """What to install for filters that are not to be had.

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
