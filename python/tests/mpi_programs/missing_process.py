"""A process comes late to a commit, or too late; all print their results and warnings.

usage: missing_process.py STORE RANK EVENT TIMEOUT; STORE has the array t of int32 of shape (4, 4).
The process RANK comes once another has warned of it (EVENT is "warned"), or once all others have
given up ("given up", after TIMEOUT seconds).
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

import bedform as bf

WARN_SECONDS = "3"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        mark("warned")


def mark(event: str) -> None:
    Path(f"{sys.argv[1]}-{event}").touch()


def has_been(event: str) -> bool:
    return Path(f"{sys.argv[1]}-{event}").exists()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits without MPI, which spins; the test ends a hanging process."""
    while not condition():
        time.sleep(0.02)


def main(place: str, missing: int, event: str, timeout: str) -> None:
    comm, kept = MPI.COMM_WORLD, Kept()
    logging.getLogger("bedform").addHandler(kept)
    session = bf.open(place, mode="r+").session(comm=comm, settle="later")
    for value in (1, 2):
        session.write("t", np.full((1, 4), value, "int32"), start=(comm.rank, 0))
        if value == 1:
            session.commit()
    # All are present: the next call waits for one process alone.
    comm.Barrier()
    os.environ["BEDFORM_COLLECTIVE_WARN"] = WARN_SECONDS
    os.environ["BEDFORM_COLLECTIVE_TIMEOUT"] = timeout
    others = [rank for rank in range(comm.size) if rank != missing]
    if comm.rank == missing and event == "warned":
        wait_until(lambda: has_been("warned"))
    elif comm.rank == missing:
        wait_until(lambda: all(has_been(f"ended-{rank}") for rank in others))
    said = "committed"
    try:
        session.commit()
    except bf.PoisonedError as error:
        said = str(error)
    mark(f"ended-{comm.rank}")
    wait_until(lambda: all(has_been(f"ended-{rank}") for rank in range(comm.size)))
    lines = comm.gather("|".join([said, *kept.messages]))
    if comm.rank == 0:
        sys.stdout.write("\n".join(lines) + "\n")
    session.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
