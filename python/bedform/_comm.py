"""Messages of known lengths between the processes of a session, through mpi4py.

The engine requests the messages (`bedform::comm::Messages`); an object with the methods of mpi4py's
communicators transfers them. Waits do not spin: with more processes than cores, a spinning process
would take the core of a working one.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from bedform import _internal
from bedform._errors import BedformError, InvalidArgumentError, IoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MpiMessages", "declining"]

_NEEDED = (
    "Get_rank",
    "Get_size",
    "Idup",
    "Ibarrier",
    "Ibcast",
    "Igather",
    "Isend",
    "Irecv",
)
# Most bytes of one message; longer ones are sent in pieces.
_PIECE = 1 << 30
_YIELDS = 64
_SLEEP_MIN, _SLEEP_MAX = 20e-6, 1e-3
# Requests and buffers of abandoned waits, which MPI may still use.
_given_up: list[object] = []


def _wait(requests: list[Any], sources: Sequence[int] = (), rooms: object = None) -> None:
    """Waits for requests, first by yielding the processor, then by sleeping longer each time.

    The first requests receive from the processes ``sources``, which a long wait can thus name.
    ``rooms`` are the receive buffers.
    """
    tries, pause = 0, _SLEEP_MIN
    waiting = list(zip_longest(requests, sources))
    start = time.monotonic()
    due = start + 1
    while waiting:
        waiting = [(request, source) for request, source in waiting if not request.Test()]
        if not waiting:
            return
        if tries < _YIELDS:
            tries += 1
            os.sched_yield()
            continue
        time.sleep(pause)
        pause = min(1.5 * pause, _SLEEP_MAX)
        if time.monotonic() >= due:
            due += 1
            missing = {source for _, source in waiting if source is not None}
            if _internal.wait_on(time.monotonic() - start, sorted(missing)):
                _given_up.append((requests, rooms))
                raise IoError("waited too long for other processes")


def _pieces(data: Any) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + _PIECE] for at in range(0, len(view), _PIECE)]


class MpiMessages:
    """Messages between the processes of a duplicate of an mpi4py communicator."""

    def __init__(self, comm: Any) -> None:
        missing = [name for name in _NEEDED if not hasattr(comm, name)]
        if missing:
            raise InvalidArgumentError(
                f"comm is {type(comm).__name__}, which has no {missing[0]}: give a communicator of "
                "mpi4py 4, as MPI.COMM_WORLD, or None for this process alone"
            )
        copy, request = comm.Idup()
        _wait([request])
        self._comm = copy
        self.rank = int(copy.Get_rank())
        self.size = int(copy.Get_size())

    def barrier(self) -> None:
        """Waits until all processes have made the call."""
        _wait([self._comm.Ibarrier()])

    def broadcast(self, data: bytes, root: int) -> bytearray:
        """Returns the root's bytes; the bytes of the others only define the length."""
        room = bytearray(data)
        for piece in _pieces(room):
            _wait([self._comm.Ibcast(piece, root)], rooms=room)
        return room

    def gather(self, data: bytes, root: int) -> bytearray:
        """Returns the bytes of all processes at the root, and no bytes elsewhere."""
        room = bytearray(len(data) * self.size if self.rank == root else 0)
        request = self._comm.Igather(data, room if self.rank == root else None, root)
        _wait([request], rooms=(data, room))
        return room

    def exchange(
        self, sent: list[tuple[int, bytes]], received: list[tuple[int, int]]
    ) -> list[bytearray]:
        """Sends bytes to some processes, and receives known lengths from others."""
        rooms = [bytearray(length) for _, length in received]
        expected = [
            (self._comm.Irecv(piece, source), source)
            for (source, _), room in zip(received, rooms, strict=True)
            for piece in _pieces(room)
        ]
        requests = [request for request, _ in expected]
        requests += [self._comm.Isend(piece, to) for to, data in sent for piece in _pieces(data)]
        _wait(requests, [source for _, source in expected], (sent, rooms))
        return rooms

    def free(self) -> None:
        """Frees the communicator, unless MPI is finalized."""
        finalized = sys.modules[type(self._comm).__module__].Is_finalized
        if not finalized():
            self._comm.Free()


@contextmanager
def declining(members: MpiMessages | None) -> Iterator[None]:
    """Sends an error to the other processes, which have already begun this collective call."""
    try:
        yield
    except BaseException as error:
        if members is not None:
            kind = error.kind if isinstance(error, BedformError) else "InvalidArgument"
            _internal.decline(members, kind, str(error).replace("\n", " "))
            members.free()
        raise
