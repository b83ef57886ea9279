"""A program that knows nothing of Bedform: reads series or maps of NetCDF-4 files, and times them.

``h5_series.py LIBRARY KIND COUNT FILE...`` prints the seconds of the first read, with opening, and
of all, and a digest of the values of the first reads.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "t2m"
DIGESTED = 4


def opened(
    library: str, kind: str, files: list[str]
) -> tuple[Callable[[Any], Any], tuple[int, ...]]:
    """Returns a function that reads a selection, and the shape."""
    if library == "h5py":
        import h5py

        dataset = h5py.File(files[0])[VARIABLE]
        return dataset.__getitem__, dataset.shape
    if library == "netCDF4":
        import netCDF4

        variable = netCDF4.Dataset(files[0])[VARIABLE]
        variable.set_auto_maskandscale(False)
        return variable.__getitem__, variable.shape
    import xarray as xr

    if library == "xarray":
        array = xr.open_dataset(files[0], engine="netcdf4", cache=False)[VARIABLE]
    else:
        joined = {"concat_dim": "time", "combine": "nested", "engine": "netcdf4"}
        # Without chunks Dask reads each file whole for every series; without time it reads a stored
        # chunk a task, of a deflated file one map: thousands of tasks a series, of any file.
        chunks = {"time": -1, "lat": 16, "lon": 16} if kind == "series" else {"time": 1}
        array = xr.open_mfdataset(files, chunks=chunks, **joined)[VARIABLE]
    return (lambda selection: array[selection].values), array.shape


def main(library: str, kind: str, count: int, files: list[str]) -> None:
    """Read, and print the facts."""
    # Importing takes as long with the connector as without; the libraries start when they open.
    for name in {"xarray": "xarray", "open_mfdataset": "dask.array"}.get(library, library).split():
        __import__(name)
    random = np.random.default_rng(5)
    began = time.perf_counter()
    read, shape = opened(library, kind, files)
    first, digest = 0.0, hashlib.sha256()
    for number in range(count):
        if kind == "series":
            rows, columns = (int(random.integers(length // 4)) for length in shape[1:])
            values = read((slice(None), rows, columns))
        else:
            values = read((int(random.integers(shape[0])), slice(None), slice(None)))
        if number == 0:
            first = time.perf_counter() - began
        if number < DIGESTED:
            digest.update(np.ascontiguousarray(values).tobytes())
    took = time.perf_counter() - began
    print(json.dumps({"first": first, "all": took, "digest": digest.hexdigest()}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
