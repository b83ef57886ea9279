"""Which computation of Dask a read belongs to: asked of reads that are recorded, and of no others.

Dask is never imported here. Where the program has it, a read knows its task: from ``distributed``
on the thread of a worker, else from Dask's local scheduler, which is below it on the stack of its
thread. The tasks that read the blocks of an array have one name, which gives the computation its
number. Reads of other tasks have a number each, so that all are seen in their order, whichever
process made them.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_LOCAL_SCHEDULER = "dask.local"


def current() -> int:
    """Give the number of the computation that this thread reads for; 0 for none."""
    try:
        return _of_worker() or _of_local_scheduler()
    except Exception:  # noqa: BLE001 - a later Dask may be another, and no read fails for that
        return 0


def _of_worker() -> int:
    worker = sys.modules.get("distributed.worker")
    # The key of the task that runs; threads of workers alone have one.
    key = getattr(getattr(worker, "thread_state", None), "key", None)
    # The same on all workers.
    return _number("", key)


def _of_local_scheduler() -> int:
    if _LOCAL_SCHEDULER not in sys.modules:
        return 0
    return _number(_process(os.getpid()), _key_below(sys._getframe(2)))


def _key_below(frame: FrameType | None) -> Any:
    """Give the key of the task that a local scheduler runs on this thread."""
    while frame is not None:
        code, scope = frame.f_code, frame.f_globals
        if code.co_name == "execute_task" and scope.get("__name__") == _LOCAL_SCHEDULER:
            return frame.f_locals.get("key")
        frame = frame.f_back
    return None


def _number(process: str, key: Any) -> int:
    if key is None:
        return 0
    if isinstance(key, tuple) and len(key) > 1:
        # Of a block: the name of its array, and its place among the blocks.
        return _digest(process, str(key[0]))
    # A task that may read more than one thing; its reads stand for themselves.
    return _digest.__wrapped__(process, f"{key} {os.getpid()} {next(_reads)}")


_reads = itertools.count()


@functools.lru_cache(256)
def _digest(process: str, name: str) -> int:
    digest = hashlib.blake2b(f"{process} {name}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little") or 1


@functools.lru_cache(1)
def _process(number: int) -> str:
    """Tell this process from others that had its number before."""
    return f"{number} {os.urandom(8).hex()}"
