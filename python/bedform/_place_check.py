"""Tests of the file system functions that Bedform needs, by one process or those of MPI."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bedform._errors import BedformError, NotFoundError, UnsupportedError, WrongTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ROUNDS = 20
_SYNCS = 9
_PATIENCE_SECONDS = 10.0
_EXCHANGE = 2
_AT_FDCWD = -100
# Variables in which launchers pass the number of processes.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")


class CheckCommunicator(Protocol):
    """The processes that test together: an mpi4py communicator, or one process."""

    rank: int
    size: int

    def allgather(self, value: Any) -> list[Any]:
        """Returns the values of all members to each member."""

    def bcast(self, value: Any) -> Any:
        """Returns the first member's value to each member."""

    def barrier(self) -> None:
        """Waits for all members."""


class _Alone:
    rank = 0
    size = 1

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def bcast(self, value: Any) -> Any:
        return value

    def barrier(self) -> None:
        pass


@dataclass(frozen=True)
class FunctionTest:
    """One test: its subject, its result and the use of the function."""

    what: str
    works: bool
    needed: bool
    says: str


def members() -> CheckCommunicator:
    """Returns the processes that were started together; outside MPI this one alone.

    Raises
    ------
    UnsupportedError
        The launcher started several processes, and mpi4py is not installed.
    """
    sizes = [os.environ.get(name, "1") for name in _SIZES]
    if not any(size.isdigit() and int(size) > 1 for size in sizes):
        return _Alone()
    try:
        from mpi4py import MPI
    except ImportError:
        raise UnsupportedError(
            "there are several processes, and mpi4py is not installed: install it with pip, or "
            "start one process"
        ) from None
    found: CheckCommunicator = MPI.COMM_WORLD
    return found


def check(
    directory: Path, together: CheckCommunicator
) -> tuple[list[FunctionTest], dict[str, Any]]:
    """Runs all tests in ``directory``; collective. Removes the files that it made."""
    facts: dict[str, Any] = {"processes": together.size}
    with _workspace(directory, together) as place:
        nodes = set(together.allgather(socket.gethostname()))
        facts["nodes"] = len(nodes)
        trials = together.bcast(_alone(place, facts) if together.rank == 0 else None)
        if together.size > 1:
            trials += _together(place, together)
    return trials, facts


@contextmanager
def _workspace(directory: Path, together: CheckCommunicator) -> Iterator[Path]:
    name = together.bcast(f".bedform-check-{secrets.token_hex(8)}")
    place = directory / name
    said: BedformError | None = None
    if together.rank == 0:
        try:
            place.mkdir(mode=0o700)
        except FileNotFoundError:
            said = NotFoundError(f"{directory}: there is no such directory")
        except NotADirectoryError:
            said = WrongTypeError(f"{directory} is not a directory")
        except OSError as error:
            said = UnsupportedError(f"{directory}: nothing can be created in it ({error.strerror})")
    said = together.bcast(said)
    if said is not None:
        raise said
    try:
        yield place
        together.barrier()
    finally:
        if together.rank == 0:
            shutil.rmtree(place, ignore_errors=True)


def _tried(what: str, needed: bool, why: str, act: Callable[[], str | None]) -> FunctionTest:
    """Returns the result of ``act``, which returns None on success."""
    return _trial(what, needed, why, _problem(act))


def _problem(act: Callable[[], str | None]) -> str | None:
    try:
        return act()
    except OSError as error:
        return error.strerror or str(error)


def _trial(what: str, needed: bool, why: str, problem: str | None) -> FunctionTest:
    return FunctionTest(
        what, problem is None, needed, why if problem is None else f"{problem}: {why}"
    )


def _alone(place: Path, facts: dict[str, Any]) -> list[FunctionTest]:
    return [
        _tried(
            "a file is created only where there is none",
            True,
            "two writers would take the same name",
            lambda: _create_twice(place),
        ),
        _tried(
            "a second name is given only where there is none (link)",
            True,
            "commits and shards appear whole by it",
            lambda: _link_twice(place),
        ),
        _tried(
            "a name is replaced in one step (rename)",
            True,
            "documents and shards are replaced by it",
            lambda: _replace(place),
        ),
        _tried(
            "files and directories are made durable (fsync)",
            True,
            "what a commit promises rests on it",
            lambda: _sync(place, facts),
        ),
        _tried(
            "a lock excludes another handle (flock)",
            True,
            "writers of one shard take turns by it",
            lambda: _lock_twice(place),
        ),
        _tried(
            "a lock excludes another process, and ends with it",
            True,
            "writers of one shard take turns by it; one that dies must not stop the others",
            lambda: _lock_of_child(place),
        ),
        _tried(
            "data are written past the page cache (O_DIRECT)",
            False,
            "large shards are written faster with it",
            lambda: _write_direct(place),
        ),
        _tried(
            "two names are exchanged in one step (renameat2)",
            False,
            "without it a store or group that is replaced is missing for a moment",
            lambda: _exchange(place),
        ),
    ]


def _create_twice(place: Path) -> str | None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(place / "once", flags, 0o600))
    try:
        os.close(os.open(place / "once", flags, 0o600))
    except FileExistsError:
        return None
    return "it was created twice"


def _link_twice(place: Path) -> str | None:
    (place / "one").write_bytes(b"1")
    (place / "other").write_bytes(b"2")
    os.link(place / "one", place / "name")
    try:
        os.link(place / "other", place / "name")
    except FileExistsError:
        return None if (place / "name").read_bytes() == b"1" else "the name leads elsewhere"
    return "the name was given twice"


def _replace(place: Path) -> str | None:
    (place / "new").write_bytes(b"new")
    (place / "kept").write_bytes(b"old")
    with (place / "kept").open("rb") as held:
        (place / "new").replace(place / "kept")
        if (place / "kept").read_bytes() != b"new":
            return "the name leads to what was replaced"
        return None if held.read() == b"old" else "who has it open reads something else"


def _sync(place: Path, facts: dict[str, Any]) -> str | None:
    seconds = []
    parent = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(_SYNCS):
            with (place / f"durable-{number}").open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                begin = time.perf_counter()
                os.fsync(file.fileno())
                os.fsync(parent)
                seconds.append(time.perf_counter() - begin)
    finally:
        os.close(parent)
    facts["sync_ms"] = round(statistics.median(seconds) * 1e3, 3)
    return None


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Locks a directory as Bedform does; yields False if another handle holds the lock."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _lock_twice(place: Path) -> str | None:
    with _locked(place) as has_first, _locked(place) as has_second:
        if not has_first:
            return "nobody has the lock, and it is not given"
        return "both have the lock" if has_second else None


_CHILD = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
try:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked", flush=True)
except BlockingIOError:
    print("refused", flush=True)
time.sleep(60)
"""


@contextmanager
def _child(place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", _CHILD, str(place)]
    # Our own program, and a directory that is an argument of it.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        try:
            said = child.stdout.readline().strip() if child.stdout else ""
            yield child, said
        finally:
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)


def _lock_of_child(place: Path) -> str | None:
    with _locked(place) as has_lock, _child(place) as (_, said):
        if not has_lock or said != "refused":
            return "two processes have the lock"
    with _child(place) as (child, said):
        if said != "locked":
            return "a process that has ended still has the lock"
        with _locked(place) as has_lock:
            if has_lock:
                return "two processes have the lock"
        child.kill()
        child.wait()
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            with _locked(place) as has_lock:
                if has_lock:
                    return None
            time.sleep(0.05)
    return f"a process that was killed has the lock for more than {_PATIENCE_SECONDS:.0f} s"


def _write_direct(place: Path) -> str | None:
    flags = os.O_CREAT | os.O_WRONLY | os.O_DIRECT
    handle = os.open(place / "direct", flags, 0o600)
    try:
        with mmap.mmap(-1, 1 << 16) as memory:
            return None if os.write(handle, memory) == 1 << 16 else "only a part was written"
    finally:
        os.close(handle)


def _exchange(place: Path) -> str | None:
    for name in ("left", "right"):
        (place / name).write_text(name)
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return "the system's library lacks the call"
    left, right = (os.fsencode(place / name) for name in ("left", "right"))
    if rename(_AT_FDCWD, left, _AT_FDCWD, right, _EXCHANGE) != 0:
        return os.strerror(ctypes.get_errno())
    return None if (place / "left").read_text() == "right" else "nothing was exchanged"


def _together(place: Path, all_members: CheckCommunicator) -> list[FunctionTest]:
    """Runs the tests that need several processes; collective."""
    return [
        _agreed(
            all_members,
            "a lock excludes the other processes",
            "writers of one shard take turns by it: mount the file system with locks that reach "
            "all nodes (Lustre: -o flock, not localflock; NFS: version 4, or a lock manager)",
            lambda: _lock_of_first(place, all_members),
        ),
        _agreed(
            all_members,
            "a name is given by one of all processes (link)",
            "each commit has a number of its own by it",
            lambda: _race(place, all_members),
        ),
        _agreed(
            all_members,
            "a new name is seen by the others at once",
            "readers look for the newest root by it: turn off what keeps names that are not "
            "there (NFS: lookupcache=positive)",
            lambda: _see_new(place, all_members),
        ),
        _agreed(
            all_members,
            "what was replaced is seen by the others at once",
            "readers see the newest documents by it: let attributes be asked for (NFS: noac, or "
            "a short actimeo)",
            lambda: _see_replaced(place, all_members),
        ),
    ]


def _agreed(
    all_members: CheckCommunicator, what: str, why: str, act: Callable[[], str | None]
) -> FunctionTest:
    """Returns the result of ``act`` on all members: the first problem."""
    problems = (one for one in all_members.allgather(_problem(act)) if one is not None)
    return _trial(what, True, why, next(problems, None))


def _lock_of_first(place: Path, all_members: CheckCommunicator) -> str | None:
    if all_members.rank == 0:
        with _locked(place) as has_lock:
            all_members.barrier()
            all_members.barrier()
        return None if has_lock else "nobody has the lock, and it is not given"
    all_members.barrier()
    try:
        with _locked(place) as has_lock:
            return "two processes have the lock" if has_lock else None
    finally:
        all_members.barrier()


def _race(place: Path, all_members: CheckCommunicator) -> str | None:
    won = 0
    own = place / f"racer-{all_members.rank}"
    own.write_bytes(b"")
    for number in range(_ROUNDS):
        all_members.barrier()
        with suppress(FileExistsError):
            os.link(own, place / f"race-{number}")
            won += 1
    winners = sum(all_members.allgather(won))
    if winners == _ROUNDS:
        return None
    return f"{winners} processes were given {_ROUNDS} names"


def _see_new(place: Path, all_members: CheckCommunicator) -> str | None:
    name = place / "seen"
    name.exists()
    all_members.barrier()
    if all_members.rank == 0:
        with name.open("wb") as file:
            file.write(b"1")
            file.flush()
            os.fsync(file.fileno())
    all_members.barrier()
    return _awaited(lambda: name.exists() and name.read_bytes() == b"1")


def _see_replaced(place: Path, all_members: CheckCommunicator) -> str | None:
    name = place / "document"
    if all_members.rank == 0:
        name.write_bytes(b"old")
    all_members.barrier()
    name.read_bytes()
    all_members.barrier()
    if all_members.rank == 0:
        (place / "document-new").write_bytes(b"newer")
        (place / "document-new").replace(name)
    all_members.barrier()
    return _awaited(lambda: name.read_bytes() == b"newer")


def _awaited(is_seen: Callable[[], bool]) -> str | None:
    """Returns the delay until ``is_seen``, or None if it is true at once."""
    begin = time.monotonic()
    if is_seen():
        return None
    while time.monotonic() - begin < _PATIENCE_SECONDS:
        time.sleep(0.01)
        if is_seen():
            return f"it took {time.monotonic() - begin:.2f} s"
    return f"it took more than {_PATIENCE_SECONDS:.0f} s"
