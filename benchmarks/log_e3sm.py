"""`log-e3sm`: the output of E3SM's F, G and I cases, written by 2, 4 and 16 processes.

Every variable and record of the five files that E3SM-IO writes, in its decompositions. These come
from a map file (`--map FILE`, `.nc` or `.h5`), or are generated alike, in the size that a timed
case needs. The peers are PnetCDF (canonical and blobs) and HDF5 blobs through E3SM-IO, with the
hints and waiting mode that are fastest here, ADIOS2 BP5, and the device. All times include the
sync. Bedform has two times: for the commit, and for commit and settling, which leaves the files for
readers. A line is a case and a number of processes: `--only 'G/2,I*/16'`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.harness import data, e3sm
from benchmarks.harness.adios import Adios
from benchmarks.harness.decomposition import Decomposition, read_map, write_map
from benchmarks.harness.e3sm_io import CANONICAL, HDF5_BLOB, METHODS, PNETCDF_BLOB, E3smIo
from benchmarks.harness.log_report import (
    LogReport,
    Promise,
    at_least,
    at_most,
    settled_ahead,
    share_of_device,
)
from benchmarks.harness.log_writer import LogWriter
from benchmarks.harness.parallel import ROOT, DeviceWriter, Job
from benchmarks.harness.workload import write_plans

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

NAME = "log-e3sm"
BYTES = 1 << 30
# The size of a case's mesh as a multiple of E3SM-IO's.
MESHES = {"F h0": 33, "F h1": 32, "G": 16, "I h0": 3, "I h1": 16}
LETTERS = {3: "f", 6: "g", 5: "i"}
ADIOS = Adios.name


def size(case: e3sm.Case, whole: list[Decomposition], quick: bool) -> tuple[int, int]:
    """Returns the multiple of the mesh, and the number of records, for the desired bytes."""
    fixed, record = e3sm.record_bytes(case, whole)
    if quick:
        return 1, 2 if case.has_many_records else 1
    if case.has_many_records:
        return 1, max(-(-(BYTES - fixed) // record), 1)
    return -(-BYTES // (fixed + record)), 1


def decompositions(case: e3sm.Case, options: Options) -> tuple[list[Decomposition], int]:
    """Return the decompositions of a case, or those of the map, and the number of records."""
    if options.map is None:
        whole = e3sm.synthetic_map(case.letter, 1 if options.quick else MESHES[case.name])
        return whole, size(case, whole, options.quick)[1]
    whole = read_map(options.map)
    times, records = size(case, whole, options.quick)
    return (e3sm.enlarged(case.letter, whole, times) if times > 1 else whole), records


def cases(options: Options) -> list[e3sm.Case]:
    """Returns all cases, or those of the given map."""
    if options.map is None:
        return list(e3sm.CASES.values())
    letter = LETTERS.get(len(read_map(options.map)))
    if letter is None:
        raise SystemExit(f"{options.map}: a map of E3SM has 3 (F), 5 (I) or 6 (G) decompositions")
    return [case for case in e3sm.CASES.values() if case.letter == letter]


def job_of(case: e3sm.Case, options: Options, ranks: int) -> Job:
    """Returns the workload of a case with the files that describe it to writers."""
    whole, records = decompositions(case, options)
    workload = e3sm.workload_of(case, whole, ranks, records)
    folder = ROOT / "plans"
    data.remove(folder)
    plans = tuple(write_plans(workload, folder))
    map_file = folder / "map.nc"
    # The peers get the same runs: the map is written without runs that no process writes.
    write_map(map_file, whole)
    return Job(workload, plans, map_file, case.history)


def promises(case: e3sm.Case, ranks: int) -> list[Promise]:
    """Returns the promises for a line."""
    found = [
        Promise("metadata and padding under 2 % of the data", at_most("overhead", 0.02)),
        Promise("commit and settle ahead of canonical", settled_ahead(CANONICAL)),
    ]
    if ranks == 2:
        found.append(Promise("85 % of the device's own synced write", share_of_device))
        found += [
            Promise(f"ahead of {peer}", at_least(peer, 1.0))
            for peer in (PNETCDF_BLOB, HDF5_BLOB, ADIOS)
        ]
        found += (
            [Promise("3 times canonical", at_least(CANONICAL, 3.0))] if case.letter == "i" else []
        )
    else:
        found += [
            Promise(f"{times:.0f} times {peer}", at_least(peer, times))
            for peer, times in ((PNETCDF_BLOB, 2.0), (HDF5_BLOB, 2.0), (CANONICAL, 8.0))
        ]
    return found


def run(options: Options) -> Report:
    """Measures every requested case and number of processes."""
    program = options.e3sm_io or os.environ.get("E3SM_IO")
    prefix = options.bedform or os.environ.get("BEDFORM_PREFIX")
    peers = [E3smIo(name, program) for name in METHODS]
    writers = [*peers, Adios(), LogWriter(prefix), DeviceWriter()]
    report = LogReport(NAME, options, writers)
    for case in cases(options):
        for ranks in options.ranks:
            line = f"{case.name}/{ranks}"
            if options.wants(line):
                report.measure(line, job_of(case, options, ranks), promises(case, ranks))
    return report.finish()
