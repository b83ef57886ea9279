"""HDF5 through h5py, read as fast as h5py offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.data import ARRAY
from benchmarks.harness.engine import Engine, Reader, Values, touched_buffer
from benchmarks.harness.selections import Selection


class Hdf5(Engine):
    """h5py; the sieve buffer of contiguous data sets is a setting worth trying."""

    name = "hdf5"
    read_variants = ("sieve64K out", "sieve4M out", "sieve64K new")
    sieves = {"sieve64K": 64 << 10, "sieve4M": 4 << 20}

    def version(self) -> str:
        """Return the versions of h5py and of the library in it."""
        import h5py  # noqa: PLC0415

        return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the file once per sieve buffer, with a chunk cache of `cache_bytes`."""
        import h5py  # noqa: PLC0415

        self.arrays: dict[str, Any] = {}
        for name, sieve in self.sieves.items():
            access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
            access.set_sieve_buf_size(sieve)
            access.set_cache(0, 521, cache_bytes, 0.75)
            access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
            opened = h5py.h5f.open(bytes(path), h5py.h5f.ACC_RDONLY, fapl=access)
            self.arrays[name] = h5py.File(opened)[ARRAY]

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Read with `[]`, or with `read_direct` into a given buffer."""
        name, _, result = variant.partition(" ")
        array = self.arrays[name]
        if result == "new":
            return lambda: np.asarray(array[selection])
        buffer = touched_buffer(selection)

        def read() -> Values:
            array.read_direct(buffer, selection)
            return buffer

        return read
