"""ADIOS2 as a writer, with the serial package: each process writes a BP5 file of its own.

The processes need no agreement, so the result is an upper bound for a parallel run. Each process
puts every variable as one local array per record, and the positions of its elements once. Buffers
are filled before the measured time, from the first `open` to the last `close` and sync.
"""

from __future__ import annotations

import multiprocessing
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.device import sync_tree
from benchmarks.harness.parallel import Job, Outcome, Writer, synced
from benchmarks.harness.workload import value_of

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.workload import Workload

STEPS, AT_ONCE = "a step for each record", "one step"
WAIT_SECONDS = 600
Arrays = dict[int, Any]


class Adios(Writer):
    """Writer of BP5 files, one for each process."""

    name = "adios2 bp5"

    def version(self) -> str:
        """Return the version of the package."""
        import adios2

        return f"ADIOS2 {adios2.__version__}"

    def missing(self) -> str:
        """Returns the missing requirements of this writer."""
        return "" if find_spec("adios2") else "the package adios2: pip install adios2"

    def variants(self, job: Job) -> list[str]:
        """Returns the divisions of records into steps."""
        return [AT_ONCE] if job.workload.records == 1 else [STEPS, AT_ONCE]

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Run the processes and return the time from the first start to the last end."""
        context = multiprocessing.get_context("spawn")
        ranks = job.workload.ranks
        barrier, times = context.Barrier(ranks), context.SimpleQueue()
        processes = [
            context.Process(
                target=write_rank, args=(job.workload, rank, folder, variant, barrier, times)
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(WAIT_SECONDS)
            if process.exitcode != 0:
                for other in processes:
                    other.kill()
                raise RuntimeError(f"a process of ADIOS2 ended with {process.exitcode}")
        spans = [times.get() for _ in processes]
        seconds = max(end for _, end in spans) - min(start for start, _ in spans)
        return Outcome(seconds + synced(folder))

    def check(self, job: Job, folder: Path) -> None:
        """Read samples of the variables of each process back."""
        import adios2

        for rank in range(job.workload.ranks):
            with adios2.FileReader(str(folder / f"{rank}.bp")) as reader:
                for number in job.workload.samples():
                    check_variable(job.workload, rank, number, reader)


def check_variable(workload: Workload, rank: int, number: int, reader: Any) -> None:
    """Checks the last array that a process put of a variable, and the number of records."""
    one = workload.variables[number]
    if workload.elements(one, rank) == 0:
        return
    variable = reader.inquire_variable(one.name)
    steps, records = variable.steps(), workload.records if one.has_record else 1
    if steps not in (1, records):
        raise ValueError(f"{one.name} of process {rank} has {steps} steps, not {records}")
    variable.set_step_selection([steps - 1, 1])
    # In one step each record is a block.
    variable.set_block_selection(0 if steps == records else records - 1)
    if not np.all(reader.read(variable) == value_of(rank, number, one.dtype)):
        raise ValueError(f"{one.name} of process {rank} has wrong values")


def arrays_of(workload: Workload, rank: int) -> Arrays:
    """Returns the array that a process puts for each variable: one record of it."""
    found: dict[int, NDArray[Any]] = {}
    for number, one in enumerate(workload.variables):
        count = workload.elements(one, rank)
        if count:
            found[number] = np.full(count, value_of(rank, number, one.dtype), one.dtype)
    return found


def write_rank(
    workload: Workload, rank: int, folder: Path, variant: str, barrier: Barrier, times: Any
) -> None:
    """Writes the file of one process, and sends its start and end times."""
    import adios2

    arrays = arrays_of(workload, rank)
    maps = {
        f"D{number}.{key}": np.ascontiguousarray(parts[rank]).reshape(-1)
        for number, one in enumerate(workload.decompositions, 1)
        for key, parts in (("offsets", one.starts), ("lengths", one.lengths))
        if len(parts[rank])
    }
    path = folder / f"{rank}.bp"
    barrier.wait(WAIT_SECONDS)
    start = time.perf_counter()
    io = adios2.Adios().declare_io("output")
    io.set_engine("BP5")
    engine = io.open(str(path), adios2.bindings.Mode.Write)
    engine.begin_step()
    for name, values in maps.items():
        put(io, engine, name, values)
    fixed = [number for number in arrays if not workload.variables[number].has_record]
    records = [number for number in arrays if workload.variables[number].has_record]
    handles = {
        number: io.define_variable(
            workload.variables[number].name, values, [], [], [len(values)], False
        )
        for number, values in arrays.items()
    }
    for number in fixed:
        engine.put(handles[number], arrays[number], adios2.bindings.Mode.Deferred)
    for record in range(workload.records):
        if record and variant == STEPS:
            engine.end_step()
            engine.begin_step()
        for number in records:
            engine.put(handles[number], arrays[number], adios2.bindings.Mode.Deferred)
    engine.end_step()
    engine.close()
    sync_tree(path)
    times.put((start, time.perf_counter()))


def put(io: Any, engine: Any, name: str, values: NDArray[Any]) -> None:
    """Put a local array."""
    import adios2

    variable = io.define_variable(name, values, [], [], [len(values)], False)
    engine.put(variable, values, adios2.bindings.Mode.Deferred)
