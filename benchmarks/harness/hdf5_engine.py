"""HDF5 through h5py, read as fast as h5py offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.data import ARRAY
from benchmarks.harness.engine import Engine, Reader, Values, touched_buffer

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.selections import Selection


class Hdf5(Engine):
    """h5py with its chunk cache at the limit given; a result that is new, or given."""

    name = "hdf5"
    read_variants = ("out", "new")

    def version(self) -> str:
        """Return the versions of h5py and of the library in it."""
        import h5py

        return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the file with a chunk cache of `cache_bytes`."""
        import h5py

        self.array: Any = h5py.File(path, "r", rdcc_nbytes=cache_bytes)[ARRAY]

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Read with `[]`, or with `read_direct` into a given buffer."""
        array = self.array
        if variant == "new":
            return lambda: np.asarray(array[selection])
        buffer = touched_buffer(selection)

        def read() -> Values:
            array.read_direct(buffer, selection)
            return buffer

        return read
