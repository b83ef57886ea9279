"""The heat equation on a plane, cut into strips among the processes of MPI; every step is a commit.

    mpiexec -n 4 python heat.py heat.zarr

Each process writes its strip of a step into the array t(step, y, x), and a commit makes the step
visible as a whole. In the end process 0 reads the last plane and compares it with its own.
"""

import sys

import numpy as np
from mpi4py import MPI

import bedform as bf

HEIGHT, WIDTH, STEPS = 48, 64, 6


def initial() -> np.ndarray:
    """Returns the plane before the first step, with a border: a hot square, the rest cold."""
    plane = np.zeros((HEIGHT + 2, WIDTH + 2))
    plane[1:-1, 1:-1][HEIGHT // 4 + 1 : HEIGHT // 2, WIDTH // 4 + 1 : WIDTH // 2] = 100
    return plane


def advance(cells: np.ndarray) -> None:
    """Computes one step on the cells inside the border."""
    inner = cells[1:-1, 1:-1]
    around = cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]
    inner += 0.2 * (around - 4 * inner)


def main(path: str) -> None:
    """Computes, writes and verifies."""
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        store = bf.create(path, {"title": "heat"})
        store.create_array(
            "t",
            (STEPS, HEIGHT, WIDTH),
            "float64",
            ("step", "y", "x"),
            reads={("y", "x"): 0.7, ("step",): 0.3},
        )
    comm.Barrier()

    top, bottom = HEIGHT * comm.rank // comm.size, HEIGHT * (comm.rank + 1) // comm.size
    strip = initial()[top : bottom + 2].copy()
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
    store = bf.open(path, mode="r+")
    with store.session(comm=comm) as session:  # settles at its end
        for step in range(STEPS):
            session.write("t", strip[None, 1:-1, 1:-1], start=(step, top, 0))
            session.commit()
            comm.Sendrecv(strip[1], above, recvbuf=strip[-1], source=below)
            comm.Sendrecv(strip[-2], below, recvbuf=strip[0], source=above)
            advance(strip)

    if comm.rank == 0:
        plane = initial()
        for _ in range(STEPS - 1):
            advance(plane)
        found = bf.open(path)["t"][STEPS - 1]
        if not np.allclose(found, plane[1:-1, 1:-1], rtol=1e-12):
            sys.exit("heat: the plane read is not the one computed")
        print(f"{STEPS} steps committed; the last plane is right")


if __name__ == "__main__":
    main(sys.argv[1])
