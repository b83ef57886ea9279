"""HDF5 through h5py, with the fastest of h5py's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.data import ARRAY
from benchmarks.harness.engine import Engine, Reader, Values, touched_buffer

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.selections import Selection


class Hdf5(Engine):
    """h5py with or without its chunk cache, with a new or a given result.

    Without the cache HDF5 reads parts of raw chunks, with it whole ones; the faster way depends on
    the plane. The default cache of some MiB may keep data from one round to the next.
    """

    name = "hdf5"
    read_variants = ("uncached out", "cached out", "cached new")

    def version(self) -> str:
        """Return the versions of h5py and of the library in it."""
        import h5py

        return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"

    def open(self, path: Path, cache_bytes: int) -> None:  # noqa: ARG002
        """Stores the path; the file is opened with the settings of a variant."""
        self.path = path
        self.file: Any = None

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Reads with `[]`, or with `read_direct` into a buffer; closes the previous reader."""
        import h5py

        cache, _, result = variant.partition(" ")
        if self.file is not None:
            self.file.close()
        settings = {"rdcc_nbytes": 0} if cache == "uncached" else {}
        self.file = h5py.File(self.path, "r", **settings)
        array = self.file[ARRAY]
        if result == "new":
            return lambda: np.asarray(array[selection])
        buffer = touched_buffer(selection)

        def read() -> Values:
            array.read_direct(buffer, selection)
            return buffer

        return read
