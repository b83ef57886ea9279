"""Sessions of several processes: real ones, under mpiexec, through mpi4py."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from native import TIMEOUT, launched, mpiexec
from support import cases

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

PREAMBLE = """
import sys, os, signal
import numpy as np
import bedform as bf
from mpi4py import MPI

comm = MPI.COMM_WORLD
store = bf.open(sys.argv[1], mode="r+")
def full(value, *shape):
    return np.full(shape, value, "int32")
"""


def new_store(directory: Path) -> Path:
    """A store with the array t of shape (6, 8)."""
    place = directory / "s.zarr"
    layout = bf.Regular(chunks=(1, 3), shards=(2, 6))
    bf.create(place).create_array("t", (6, 8), "int32", ("step", "x"), layout=layout)
    return place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return new_store(tmp_path)


def run(place: Path, body: str, *, processes: int = 4, check: bool = True) -> str:
    return mpiexec(processes, sys.executable, "-c", PREAMBLE + body, place, check=check)


def test_what_all_write_is_visible_at_once_and_higher_ranks_win(place: Path) -> None:
    said = run(
        place,
        """
with store.session(comm=comm, settle="later") as session:
    for step in range(6):
        session.write("t", full(10 * step + comm.rank, 1, 2), start=(step, 2 * comm.rank))
        session.write("t", full(comm.rank, 1, 1), start=(step, 0))
        comm.Barrier()
        assert not store["t"][step].any(), "nothing before the commit"
        assert session.commit() == step + 1
        assert np.count_nonzero(store["t"][step]) >= 7, "all of it after"
        comm.Barrier()
if comm.rank == 0:
    print("done")
""",
    )
    assert said == "done\n"
    expected = np.array([[10 * step + x // 2 for x in range(8)] for step in range(6)])
    expected[:, 0] = 3
    store = bf.open(place, mode="r+")
    assert np.array_equal(store["t"][...], expected)
    store.settle()
    assert np.array_equal(store["t"][...], expected)


def test_an_error_of_one_process_ends_the_session_of_all_and_nobody_waits(place: Path) -> None:
    said = run(
        place,
        """
errors = []
def attempt(fail):
    try:
        with store.session(comm=comm, settle="later") as session:
            session.write("t", full(1, 1, 1), start=(0, comm.rank))
            session.commit()
            session.write("t", full(2, 1, 1), start=(0, comm.rank))
            if comm.rank == 1:
                fail(session)
            session.commit()
            session.commit()
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
    comm.Barrier()
    assert (store["t"][0, :4] == 1).all(), "what was committed stands, and no more"

def divide(session):
    1 / 0

attempt(divide)
attempt(lambda session: session.write("missing", full(1, 1)))
attempt(lambda session: session.close())
for rank, lines in enumerate(comm.gather(errors) or []):
    for line in lines:
        print(rank, line)
""",
    )
    lines = said.splitlines()
    assert len(lines) == 12
    for line in lines:
        if line.startswith("1"):
            continue
        assert "PoisonedError: rank 1 has ended the session" in line
    own = [line for line in lines if line.startswith("1")]
    assert "ZeroDivisionError" in own[0]
    assert "NotFoundError" in own[1]
    assert "session is closed" in own[2]


def test_a_process_that_cannot_begin_says_so_to_all(place: Path) -> None:
    said = run(
        place,
        """
if comm.rank == 2:
    store = bf.open(sys.argv[1])
try:
    store.session(comm=comm)
except bf.ReadOnlyError as error:
    assert ("rank 2" in str(error)) != (comm.rank == 2)
    comm.Barrier()
    if comm.rank == 0: print("read-only for all")
""",
    )
    assert said == "read-only for all\n"


KILLED = """
from pathlib import Path
place = Path(sys.argv[1])
place.with_name(f"pid{comm.rank}").write_text(str(os.getpid()))
acknowledged = os.open(place.with_name("acknowledged"), os.O_CREAT | os.O_WRONLY)
comm.Barrier()
session = store.session(comm=comm, settle="later")
for number in range(1, 100_000):
    session.write("t", full(number, 6, 2), start=(0, 2 * comm.rank))
    session.commit()
    if comm.rank == 0:
        os.write(acknowledged, b"%d\\n" % number)
        if number == 1:
            print("begun", flush=True)
"""


def killed_at_random(place: Path, chance: random.Random) -> None:
    """Kills a process of four while they commit, and then checks the visible data."""
    command = [*launched(4), sys.executable, "-c", PREAMBLE + KILLED, str(place)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "begun\n"
        time.sleep(chance.random() * 0.3)
        victim = int(place.with_name(f"pid{chance.randrange(4)}").read_text())
        os.kill(victim, signal.SIGKILL)
        job.communicate(timeout=TIMEOUT)
    assert job.returncode != 0
    acknowledged = int(place.with_name("acknowledged").read_text().split()[-1])
    store = bf.open(place, mode="r+")
    found = store["t"][...]
    assert found.min() == found.max(), "one commit or another, whole"
    assert found[0, 0] in (acknowledged, acknowledged + 1)
    with store.session() as session:
        session.write("t", np.full((6, 8), -1, "int32"))
    assert (store["t"][...] == -1).all()
    assert store.verify() == []
    # Uncommitted data of the dead may remain; no commit waits to be settled.
    assert store.info()["log"]["commits"] == 0


def test_a_process_that_is_killed_leaves_nothing_half_visible(place: Path) -> None:
    killed_at_random(place, random.Random(1))


@pytest.mark.reliability
def test_processes_that_are_killed_at_random(tmp_path: Path) -> None:
    for case in cases(least=8):
        place = tmp_path / str(case.number)
        place.mkdir()
        with case:
            killed_at_random(new_store(place), case.chance)
        sys.stdout.write("\nCOUNT mpi-kills 1\n")


def test_a_process_whose_disk_is_full_fails_the_commit_of_all(place: Path) -> None:
    said = run(
        place,
        """
import resource
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
session = store.session(comm=comm, settle="later")
session.write("t", full(1, 1, 2), start=(0, 2 * comm.rank))
session.commit()
if comm.rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
try:
    for _ in range(4000):
        session.write("t", full(2, 6, 2), start=(0, 2 * comm.rank))
    session.commit()
except bf.BedformError as error:
    said = str(error)
else:
    said = "committed"
session.close()
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
said = comm.gather(said)
if comm.rank == 0:
    print("committed" in said, sum("rank 1" in text for text in said))
comm.Barrier()
assert (store["t"][0] == 1).all() and not store["t"][1:].any()
with store.session(comm=comm) as session:
    session.write("t", full(3, 6, 2), start=(0, 2 * comm.rank))
""",
    )
    assert said == "False 3\n"
    assert (bf.open(place)["t"][...] == 3).all()


def test_a_process_alone_and_many_on_few_cores_do_the_same(place: Path) -> None:
    body = """
with store.session(comm=comm) as session:
    for x in range(comm.rank, 8, comm.size):
        session.write("t", full(x + 1, 6, 1), start=(0, x))
"""
    for processes in (1, 7):
        run(place, body, processes=processes)
        store = bf.open(place, mode="r+")
        assert store["t"][...].tolist() == [list(range(1, 9))] * 6
        store["t"][...] = 0


def test_all_processes_settle_a_share_each(tmp_path: Path) -> None:
    place = tmp_path / "s.zarr"
    layout = bf.Regular(chunks=(1, 4), shards=(2, 8))
    store = bf.create(place)
    store.create_array("t", (6, 24), "int32", ("step", "x"), layout=layout)
    values = np.arange(144, dtype="int32").reshape(6, 24)
    for processes in (1, 4):
        values = values + 1
        with store.session(settle="later") as session:
            session.write("t", values)
        said = run(
            place,
            """
figures = comm.gather(store.settle(comm=comm))
if comm.rank == 0:
    assert all(other == figures[0] for other in figures), "all hear what all did"
    assert figures[0]["commits"] == 1 and figures[0]["objects"] == 9
    assert figures[0]["rounds"] == comm.size, "each had a share"
    print("settled")
""",
            processes=processes,
        )
        assert said == "settled\n"
        assert not place.with_name("s.zarr.bedform-log").exists()
        assert np.array_equal(store["t"][...], values)


def test_an_error_of_one_process_that_settles_is_that_of_all(place: Path) -> None:
    store = bf.open(place, mode="r+")
    with store.session(settle="later") as session:
        session.write("t", np.ones((6, 8), "int32"))
    said = run(
        place,
        """
if comm.rank == 1:
    store = bf.open(sys.argv[1])
try:
    store.settle(comm=comm)
except bf.ReadOnlyError as error:
    assert ("rank 1" in str(error)) != (comm.rank == 1)
    comm.Barrier()
    if comm.rank == 0: print("read-only for all")
""",
        processes=3,
    )
    assert said == "read-only for all\n"
    assert (store["t"][...] == 1).all()


def test_what_is_no_communicator_is_refused(place: Path) -> None:
    store = bf.open(place, mode="r+")
    with pytest.raises(bf.InvalidArgumentError, match="comm is int, which has no Get_rank"):
        store.session(comm=5)
    with pytest.raises(bf.InvalidArgumentError, match="comm is int, which has no Get_rank"):
        store.settle(comm=5)
