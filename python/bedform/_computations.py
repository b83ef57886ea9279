"""The number of the Dask computation that a recorded read belongs to.

Only recorded reads ask for it. This module never imports Dask. If the program uses Dask, the task
of a read is known from ``distributed`` on a worker's thread, or else from the frames of Dask's
local scheduler on the stack. The tasks that read the blocks of an array share a name, which gives
the computation its number. Reads of other tasks get a number each, so that each counts in its
order, from any process.
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
    """Returns the number of the computation that this thread reads for; 0 for none."""
    try:
        return _of_worker() or _of_local_scheduler()
    except Exception:  # noqa: BLE001 - a later Dask may differ, and no read may fail
        return 0


def _of_worker() -> int:
    worker = sys.modules.get("distributed.worker")
    # The key of the running task, which only worker threads have.
    key = getattr(getattr(worker, "thread_state", None), "key", None)
    # Without the process, so that it is equal on all workers.
    return _number("", key)


def _of_local_scheduler() -> int:
    if _LOCAL_SCHEDULER not in sys.modules:
        return 0
    return _number(_process(os.getpid()), _key_below(sys._getframe(2)))


def _key_below(frame: FrameType | None) -> Any:
    """Returns the key of the task that a local scheduler runs on this thread."""
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
        # A block's key: the name of its array, and its index among the blocks.
        return _digest(process, str(key[0]))
    # A task that may read several things: each of its reads gets its own number.
    return _digest.__wrapped__(process, f"{key} {os.getpid()} {next(_reads)}")


_reads = itertools.count()


@functools.lru_cache(256)
def _digest(process: str, name: str) -> int:
    digest = hashlib.blake2b(f"{process} {name}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little") or 1


@functools.lru_cache(1)
def _process(number: int) -> str:
    """Returns an identity that distinguishes this process from earlier ones with its number."""
    return f"{number} {os.urandom(8).hex()}"
