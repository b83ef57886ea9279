"""E3SM-IO as a writer: PnetCDF canonical, PnetCDF blobs, HDF5 blobs.

The program (E3SM-IO 1.3, with PnetCDF 1.15 and a parallel HDF5) is named by `--e3sm-io` or by the
variable E3SM_IO, and started by the `mpiexec` of the MPI that it was built with. It syncs nothing,
so its files are synced here, inside the time; what it takes to fill its buffers is taken off. Every
element that it writes is the number of the process, which is how its files are checked.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.parallel import Job, Outcome, Writer, launcher_missing, mpiexec, synced

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.decomposition import Decomposition
    from benchmarks.harness.workload import Workload

CANONICAL = "pnetcdf canonical"
PNETCDF_BLOB = "pnetcdf blob"
HDF5_BLOB = "hdf5 blob"
METHODS = {
    CANONICAL: ("pnetcdf", "canonical"),
    PNETCDF_BLOB: ("pnetcdf", "blob"),
    HDF5_BLOB: ("hdf5", "blob"),
}
TIME = r"{}\s+min/max\s*=\s*[\d.]+\s*/\s*([\d.]+)"


class E3smIo(Writer):
    """One of the ways in which E3SM-IO writes."""

    def __init__(self, name: str, program: str | None) -> None:
        self.name = name
        self.program = shutil.which(program) if program else None

    def version(self) -> str:
        """Return what the program says of its libraries, once it has run."""
        return getattr(self, "libraries", "") or "E3SM-IO"

    def missing(self) -> str:
        """Return what must be had for this writer to run."""
        if not self.program:
            return (
                "the program e3sm_io of Parallel-NetCDF's E3SM-IO 1.3, built with PnetCDF 1.15 and "
                "parallel HDF5: name it by --e3sm-io or E3SM_IO"
            )
        return launcher_missing()

    def can_write(self, job: Job) -> bool:
        """Tell whether the workload is one of E3SM's."""
        return job.map_file is not None

    def variants(self, job: Job) -> list[str]:
        """Return how often it flushes: once for each record, or once for all."""
        is_flushed_at_close = self.name == HDF5_BLOB
        return ["-y 1"] if job.workload.records == 1 or is_flushed_at_close else ["-y 1", "-y -1"]

    def command(self, job: Job, folder: Path, variant: str = "") -> list[str]:
        """Return the command of each process."""
        api, strategy = METHODS[self.name]
        command = [str(self.program), "-k", "-a", api, "-x", strategy, *variant.split()]
        command += ["-r", str(job.workload.records), "-o", str(folder / "out.nc")]
        command += ["-f", job.history] if job.history else []
        return [*command, str(job.map_file)]

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Run the program, then sync what it left."""
        command = self.command(job, folder, variant)
        printed = mpiexec(job.workload.ranks, command)
        whole, filling = (
            max(map(float, re.findall(TIME.format(label), printed)), default=-1.0)
            for label in ("end-to-end time", "Time of I/O preparing")
        )
        if whole <= 0:
            raise RuntimeError(f"{command} printed no time:\n{printed[-2000:]}")
        # What several processes print at once may be mixed.
        found = re.findall(r"(\w+) library version *= *(\d+\.\d+\.\S+)$", printed, re.MULTILINE)
        self.libraries = ", ".join(f"{name} {version}" for name, version in found)
        seconds = whole - max(filling, 0.0)
        return Outcome(seconds + synced(folder), {"unsynced": seconds})

    def check(self, job: Job, folder: Path) -> None:
        """Compare samples of the variables with the numbers of the processes."""
        files = [path for path in folder.iterdir() if path.stat().st_size > 0]
        if len(files) != 1:
            raise ValueError(f"{self.name} left {[path.name for path in files]}, not one file")
        checks = {
            CANONICAL: check_canonical,
            PNETCDF_BLOB: check_pnetcdf_blob,
            HDF5_BLOB: check_hdf5_blob,
        }
        checks[self.name](job.workload, files[0])


def first_and_last(variables: dict[str, Any]) -> list[Any]:
    """Return first and last of the variables of each shape and type."""
    kinds: dict[tuple[Any, ...], list[Any]] = {}
    for variable in variables.values():
        kinds.setdefault((variable.dimensions, variable.dtype), []).append(variable)
    return [one for found in kinds.values() for one in (found[0], found[-1])]


def records_of(variable: Any, records: int) -> list[NDArray[Any]]:
    """Return each record of a variable, or the one that it is."""
    is_record = variable.get_dims()[0].isunlimited()
    if is_record and len(variable) != records:
        raise ValueError(f"{variable.name} has {len(variable)} records, not {records}")
    return [variable[at] for at in range(records)] if is_record else [variable[...]]


def check_canonical(workload: Workload, path: Path) -> None:
    """Check a file of whole variables: each element is the number of the process that holds it."""
    import netCDF4

    by_shape: dict[tuple[int, ...], list[Decomposition]] = {}
    for one in workload.decompositions:
        by_shape.setdefault(one.shape, []).append(one)
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        checked = 0
        for variable in first_and_last(file.variables):
            shape = tuple(
                len(dimension) for dimension in variable.get_dims() if not dimension.isunlimited()
            )
            if shape not in by_shape or variable.ndim == 0:
                continue
            for values in records_of(variable, workload.records):
                if not any(holds(values, one) for one in by_shape[shape]):
                    raise ValueError(f"{path}: {variable.name} has wrong values")
            checked += 1
    if checked < len(by_shape):
        raise ValueError(f"{path}: only {checked} variables could be checked")


def holds(values: NDArray[Any], one: Decomposition) -> bool:
    """Tell whether each element that some process holds has its number."""
    owners = one.owners()
    return bool(np.all((owners < 0) | (values == owners)))


def check_pnetcdf_blob(workload: Workload, path: Path) -> None:
    """Check a file in which each variable is what the processes hold, one after the other."""
    import netCDF4

    ranks = np.arange(workload.ranks)
    expected = [
        np.repeat(ranks, [one.elements(rank) for rank in ranks]) for one in workload.decompositions
    ]
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        found = {
            name: variable
            for name, variable in file.variables.items()
            if "decomposition_ID" in variable.ncattrs()
        }
        if not found:
            raise ValueError(f"{path} has no variable with a decomposition")
        for variable in first_and_last(found):
            number = int(variable.getncattr("decomposition_ID")) - 1
            for values in records_of(variable, workload.records):
                if not np.array_equal(values, expected[number]):
                    raise ValueError(f"{path}: {variable.name} has wrong values")


def check_hdf5_blob(workload: Workload, path: Path) -> None:
    """Check a file of one blob: its length, and the end of each process's part."""
    import h5py

    with h5py.File(path) as file:
        blob = file["data_blob"]
        if blob.size < workload.bytes():
            raise ValueError(f"{path} has {blob.size} bytes of data, not {workload.bytes()}")
        last = next(one for one in reversed(workload.variables) if one.has_record)
        count = workload.elements(last, workload.ranks - 1)
        tail = np.asarray(blob[-count * last.item :]).tobytes()
        orders = [np.frombuffer(tail, order + "f8") for order in "<>"]
        if not any(np.all(values == workload.ranks - 1) for values in orders):
            raise ValueError(f"{path} has wrong values at its end")
