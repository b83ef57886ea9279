"""A process comes late to a commit, or too late; all say how it went, and what they warned of.

usage: missing_process.py STORE RANK SECONDS; STORE has the array t of int32 of shape (4, 4).
"""

import logging
import sys
import time

import numpy as np
from mpi4py import MPI

import bedform as bf


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main(place: str, missing: int, seconds: float) -> None:
    comm, kept = MPI.COMM_WORLD, Kept()
    logging.getLogger("bedform").addHandler(kept)
    session = bf.open(place, mode="r+").session(comm=comm, settle="later")
    for value in (1, 2):
        session.write("t", np.full((1, 4), value, "int32"), start=(comm.rank, 0))
        if value == 1:
            session.commit()
    end = time.monotonic() + seconds
    if comm.rank == missing:
        time.sleep(seconds)
    said = "committed"
    try:
        session.commit()
    except bf.PoisonedError as error:
        said = str(error)
    # Who gave up waits here in MPI, which spins.
    time.sleep(max(0.0, end - time.monotonic()))
    lines = comm.gather("|".join([said, *kept.messages]))
    if comm.rank == 0:
        sys.stdout.write("\n".join(lines) + "\n")
    session.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
