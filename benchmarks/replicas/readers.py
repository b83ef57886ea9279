"""Readers of a file's variables: each opens the file, reads selections, and closes it.

`no replicas` is Bedform without replicas: the baseline of an equal engine. On a slow store, peers
that read Python file objects are slowed down like the engine: h5py, and xarray by h5netcdf.
TensorStore reads no NetCDF-4 files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness.slow_store import as_found, is_slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.replicas.fields import Selection

    Values = list[np.ndarray[Any, Any]]
    #: One variable, or several that are all read.
    Names = str | tuple[str, ...]
    Reader = Callable[[Path, Names, list[Selection]], Values]

OURS, WITHOUT = "bedform", "no replicas"
PEERS = ("h5py", "netCDF4", "xarray")
#: Those without support for Python file objects: a slow store would not slow them down.
NEVER_SLOW = ("netCDF4",)
#: Another way of h5py for reads of boxes.
WHOLE_ROWS = "h5py, whole rows"


def is_list(one: Any) -> bool:
    """Whether it is a list of indexes."""
    return isinstance(one, (list, np.ndarray))


def has_lists(selection: Selection) -> bool:
    """Whether an axis has a list of indexes."""
    return any(map(is_list, selection))


def names_of(names: Names) -> tuple[str, ...]:
    """Returns the names of one or several variables."""
    return (names,) if isinstance(names, str) else names


def read_by_bedform(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read by the engine."""
    return by_engine(path, names, selections, replicas=True)


def read_without_replicas(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Reads by the engine without replicas."""
    return by_engine(path, names, selections, replicas=False)


def by_engine(path: Path, names: Names, selections: list[Selection], replicas: bool) -> Values:
    """Read with `[]`, or with `oindex` if there are lists."""
    with bf.open(path, replicas=replicas) as store:
        arrays: list[Any] = [store[name] for name in names_of(names)]
        return [
            array.oindex[selection] if has_lists(selection) else array[selection]
            for array in arrays
            for selection in selections
        ]


def read_by_h5py(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read with `[]`."""
    import h5py

    with h5py.File(as_found(path), "r") as file:
        arrays: list[Any] = [file[name] for name in names_of(names)]
        return [array[selection] for array in arrays for selection in selections]


def read_whole_rows(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Reads the whole last axis by h5py, in fewer, longer pieces, and keeps the selection."""
    import h5py

    found = []
    with h5py.File(as_found(path), "r") as file:
        for array in [file[name] for name in names_of(names)]:
            for *rows, columns in selections:
                found.append(array[(*rows, slice(None))][..., columns])
    return found


def read_by_netcdf4(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read with `[]`, without masks and scales."""
    import netCDF4

    with netCDF4.Dataset(path) as file:
        arrays: list[Any] = [file[name] for name in names_of(names)]
        for array in arrays:
            array.set_auto_maskandscale(False)
        return [array[selection] for array in arrays for selection in selections]


def read_by_xarray(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read with `isel`, engine `netcdf4`; from a slow store, engine `h5netcdf`."""
    import xarray as xr

    engine = "h5netcdf" if is_slow() else "netcdf4"
    with xr.open_dataset(as_found(path), engine=engine, cache=False) as opened:
        return [
            opened[name].isel(dict(zip(opened[name].dims, selection, strict=True))).values
            for name in names_of(names)
            for selection in selections
        ]


READERS: dict[str, Reader] = {
    OURS: read_by_bedform,
    WITHOUT: read_without_replicas,
    **dict(zip(PEERS, (read_by_h5py, read_by_netcdf4, read_by_xarray), strict=True)),
}
