"""E3SM-IO as a writer: PnetCDF canonical, PnetCDF blobs, HDF5 blobs.

The option `--e3sm-io` or the variable E3SM_IO names the program (E3SM-IO 1.3, with PnetCDF 1.15 and
a parallel HDF5). The `mpiexec` of its MPI starts it. It does not sync, so its files are synced here
within the measured time; the time of filling its buffers is subtracted. Every element that it
writes is the number of the process, which allows checking its files.

A setting is a text of three parts: frequency of flushes, waiting mode, and hints. PnetCDF takes
hints from PNETCDF_HINTS, HDF5's MPI-IO from a file that ROMIO_HINTS names. A program without
PnetCDF or HDF5 reports that before it reads a file; its lines are omitted.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.parallel import (
    ROOT,
    Job,
    Outcome,
    Writer,
    launcher_missing,
    mpiexec,
    synced,
)

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
# HDF5 repeats the words before its number.
LIBRARY_VERSION = re.compile(r"(\w+) library version *= *(?:.*: *)?(\d+\.\d+\.\S+)$", re.MULTILINE)
# Messages of a program built without a library, and of one whose libraries are not found.
NOT_ENABLED = re.compile(r"Using \S+ was not enabled in this E3SM I/O build")
NOT_LOADED = re.compile(r"error while loading shared libraries: ([^:\s]+)")
LIBRARIES = {"pnetcdf": "PnetCDF", "hdf5": "a parallel HDF5"}
PROBE_SECONDS = 60.0
FLUSHES = {"a flush for each record": "1", "one flush": "-1"}
# MPICH's processes spin while they wait; throttled, they sleep when polls find no message.
SPINNING, SLEEPING = "spinning", "sleeping"
THROTTLE = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "100",
}
NO_HINTS = "no hints"
# The first hints to try, and then the others; `P` is the number of processes. By default one
# process of a node writes for all. Without collective buffering each process writes its own data.
EACH_ITS_OWN = "romio_cb_write=disable;romio_ds_write=disable"
ALL_COLLECT = "cb_nodes=P"
MPI_IO = "nc_driver=mpiio"
HINTS = {
    CANONICAL: (
        ALL_COLLECT,
        f"{ALL_COLLECT};cb_buffer_size=4194304",
        f"{ALL_COLLECT};cb_buffer_size=1048576",
        f"{ALL_COLLECT};romio_ds_write=disable",
        EACH_ITS_OWN,
        "cb_nodes=2",
        "nc_num_aggrs_per_node=2;cb_nodes=2",
        f"{MPI_IO};{ALL_COLLECT};cb_config_list=*:*",
        NO_HINTS,
    ),
    PNETCDF_BLOB: (
        EACH_ITS_OWN,
        ALL_COLLECT,
        f"{MPI_IO};{EACH_ITS_OWN}",
        "nc_num_aggrs_per_node=2",
        NO_HINTS,
    ),
    HDF5_BLOB: (
        f"{ALL_COLLECT};cb_config_list=*:*",
        f"{ALL_COLLECT};cb_config_list=*:*;cb_buffer_size=67108864",
        "cb_nodes=2;cb_config_list=*:*",
        "romio_ds_write=disable",
        NO_HINTS,
    ),
}


@dataclass(frozen=True)
class Setting:
    """The settings of E3SM-IO's writes: flushes, waiting mode, and hints.

    >>> Setting.parse("one flush, sleeping, cb_nodes=4").hints
    'cb_nodes=4'
    """

    flush: str
    waiting: str
    hints: str

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Returns the setting from the text of `describe`."""
        return cls(*text.split(", "))

    def describe(self) -> str:
        """Return the setting as a text."""
        return ", ".join((self.flush, self.waiting, self.hints))


class E3smIo(Writer):
    """One of E3SM-IO's ways of writing."""

    def __init__(self, name: str, program: str | None) -> None:
        self.name = name
        self.program = shutil.which(program) if program else None

    def version(self) -> str:
        """Returns the versions of the libraries that the program printed, once it has run."""
        return getattr(self, "libraries", "") or "E3SM-IO"

    def missing(self) -> str:
        """Returns the missing requirements of this writer."""
        if not self.program:
            return (
                "the program e3sm_io of Parallel-NetCDF's E3SM-IO 1.3, built with PnetCDF 1.15 and "
                "parallel HDF5: name it by --e3sm-io or E3SM_IO"
            )
        return launcher_missing() or self.library_missing(self.program)

    def library_missing(self, program: str) -> str:
        """Returns the library that the program lacks, by its message without a map."""
        api, strategy = METHODS[self.name]
        command = [program, "-a", api, "-x", strategy, "-o", str(ROOT / "none.nc"), os.devnull]
        printed = mpiexec(1, command, timeout=PROBE_SECONDS, may_fail=True)
        if NOT_ENABLED.search(printed):
            return f"an E3SM-IO that was built with {LIBRARIES[api]}"
        if lost := NOT_LOADED.search(printed):
            return f"the library {lost[1]}, which E3SM-IO does not find"
        return ""

    def can_write(self, job: Job) -> bool:
        """Whether the workload is one of E3SM's."""
        return job.map_file is not None

    def variants(self, job: Job) -> list[str]:
        """Returns the flush and waiting modes, with the hints that are usually fastest."""
        is_flushed_at_close = self.name == HDF5_BLOB
        flushes = list(FLUSHES)[: 1 if job.workload.records == 1 or is_flushed_at_close else None]
        hints = hints_of(self.name, job.workload.ranks)[0]
        return [
            Setting(flush, waiting, hints).describe()
            for waiting in (SLEEPING, SPINNING)
            for flush in flushes
        ]

    def refinements(self, job: Job, best: str) -> list[str]:
        """Return the fastest setting with other hints."""
        found = Setting.parse(best)
        choices = hints_of(self.name, job.workload.ranks)
        return [replace(found, hints=hints).describe() for hints in choices]

    def command(self, job: Job, folder: Path, variant: str) -> list[str]:
        """Return the command of each process."""
        api, strategy = METHODS[self.name]
        flush = FLUSHES[Setting.parse(variant).flush]
        command = [str(self.program), "-k", "-a", api, "-x", strategy, "-y", flush]
        command += ["-r", str(job.workload.records), "-o", str(folder / "out.nc")]
        command += ["-f", job.history] if job.history else []
        return [*command, str(job.map_file)]

    def environment(self, variant: str) -> dict[str, str]:
        """Returns the variables for the waiting mode of MPI and the hints of the libraries."""
        setting = Setting.parse(variant)
        found = dict(THROTTLE) if setting.waiting == SLEEPING else {}
        if setting.hints == NO_HINTS:
            return found
        if METHODS[self.name][0] == "pnetcdf":
            return found | {"PNETCDF_HINTS": setting.hints}
        # One hint per line, without the equals sign.
        path = ROOT / "romio-hints"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{one.replace('=', ' ')}\n" for one in setting.hints.split(";")))
        return found | {"ROMIO_HINTS": str(path)}

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Runs the program, then syncs its files."""
        command = self.command(job, folder, variant)
        environment = self.environment(variant)
        printed = mpiexec(job.workload.ranks, command, environment, self.timeout_seconds)
        whole, filling = (
            max(map(float, re.findall(TIME.format(label), printed)), default=-1.0)
            for label in ("end-to-end time", "Time of I/O preparing")
        )
        if whole <= 0:
            raise RuntimeError(f"{command} printed no time:\n{printed[-2000:]}")
        # Outputs of several processes may be interleaved.
        found = LIBRARY_VERSION.findall(printed)
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


def hints_of(name: str, ranks: int) -> list[str]:
    """Returns the hints that a writer tries with this number of processes."""
    return [hints.replace("=P", f"={ranks}") for hints in HINTS[name]]


def first_and_last(variables: dict[str, Any]) -> list[Any]:
    """Return first and last of the variables of each shape and type."""
    kinds: dict[tuple[Any, ...], list[Any]] = {}
    for variable in variables.values():
        kinds.setdefault((variable.dimensions, variable.dtype), []).append(variable)
    return [one for found in kinds.values() for one in (found[0], found[-1])]


def records_of(variable: Any, records: int) -> list[NDArray[Any]]:
    """Returns each record of a variable, or the whole variable if it has no records."""
    is_record = variable.get_dims()[0].isunlimited()
    if is_record and len(variable) != records:
        raise ValueError(f"{variable.name} has {len(variable)} records, not {records}")
    return [variable[at] for at in range(records)] if is_record else [variable[...]]


def check_canonical(workload: Workload, path: Path) -> None:
    """Checks a file of whole variables: each element is the number of its process."""
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
    """Whether each element that belongs to a process has its number."""
    owners = one.owners()
    return bool(np.all((owners < 0) | (values == owners)))


def check_pnetcdf_blob(workload: Workload, path: Path) -> None:
    """Checks a file in which each variable has the parts of the processes, one after the other."""
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
