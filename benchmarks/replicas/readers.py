"""Those who read a variable of a file: each opens it, reads selections, and closes it.

`no replicas` is Bedform without them: what an engine of the same quality has to offer, and the
baseline where the store is slowed down, which no peer is. TensorStore reads no NetCDF-4 files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from benchmarks.replicas.fields import Selection

    Values = list[np.ndarray[Any, Any]]
    Reader = Callable[[Path, str, list[Selection]], Values]

OURS, WITHOUT = "bedform", "no replicas"
PEERS = ("h5py", "netCDF4", "xarray")


def has_lists(selection: Selection) -> bool:
    """Tell whether an axis has a list of indexes."""
    return any(isinstance(one, list) for one in selection)


def read_by_bedform(path: Path, name: str, selections: list[Selection]) -> Values:
    """Read by the engine."""
    return by_engine(path, name, selections, replicas=True)


def read_without_replicas(path: Path, name: str, selections: list[Selection]) -> Values:
    """Read by the engine as if there were no replicas."""
    return by_engine(path, name, selections, replicas=False)


def by_engine(path: Path, name: str, selections: list[Selection], replicas: bool) -> Values:
    """Read with `[]`, or with `oindex` if there are lists."""
    with bf.open(path, replicas=replicas) as store:
        array: Any = store[name]
        return [
            array.oindex[selection] if has_lists(selection) else array[selection]
            for selection in selections
        ]


def read_by_h5py(path: Path, name: str, selections: list[Selection]) -> Values:
    """Read with `[]`."""
    import h5py

    with h5py.File(path, "r") as file:
        array: Any = file[name]
        return [array[selection] for selection in selections]


def read_by_netcdf4(path: Path, name: str, selections: list[Selection]) -> Values:
    """Read with `[]`, without masks and scales."""
    import netCDF4

    with netCDF4.Dataset(path) as file:
        array: Any = file[name]
        array.set_auto_maskandscale(False)
        return [array[selection] for selection in selections]


def read_by_xarray(path: Path, name: str, selections: list[Selection]) -> Values:
    """Read with `isel`, engine `netcdf4`."""
    import xarray as xr

    with xr.open_dataset(path, engine="netcdf4", cache=False) as opened:
        array = opened[name]
        return [
            array.isel(dict(zip(array.dims, selection, strict=True))).values
            for selection in selections
        ]


READERS: dict[str, Reader] = {
    OURS: read_by_bedform,
    WITHOUT: read_without_replicas,
    **dict(zip(PEERS, (read_by_h5py, read_by_netcdf4, read_by_xarray), strict=True)),
}
