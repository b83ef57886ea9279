"""Limits of the environment that make an operation fail for any data."""

from __future__ import annotations

import errno
import re
import resource
from typing import Final

from bedform import _internal
from bedform._text import format_bytes

__all__ = ["limit_met", "memory_bytes_max", "memory_remedy"]

_ERRNO: Final = re.compile(r"errno = (\d+)")
#: Messages of HDF5 and the dynamic loader about refused memory.
_NO_MEMORY: Final = re.compile(
    r"memory allocation failed|(can't|cannot|unable to|could ?n[o']t) allocate|"
    r"failed to map segment|MemoryError|out of memory",
    re.IGNORECASE,
)
#: Remedies for errors that the engine does not explain.
_REMEDIES: Final = {
    errno.EFBIG: "raise the limit on the size of a file (RLIMIT_FSIZE) with ulimit -f",
    errno.ENOSPC: "free some space on the device",
    errno.EDQUOT: "free some space: the quota is used up",
}


def memory_bytes_max() -> int | None:
    """Returns the limit of this process's address space in bytes; None without a limit."""
    bounds = [bound for bound in resource.getrlimit(resource.RLIMIT_AS) if bound >= 0]
    return min(bounds, default=None)


def memory_remedy() -> str:
    """Returns the remedy for refused memory, with the limit of this process."""
    bound = memory_bytes_max()
    which = (
        "ulimit -v, or a control group's" if bound is None else f"{format_bytes(bound)}, ulimit -v"
    )
    return f"raise the limit on memory (RLIMIT_AS: {which})"


def limit_met(error: BaseException | str) -> tuple[str, str] | None:
    """Returns the kind and the remedy of a failure at a limit; None for other failures.

    `error` is an exception, or the output of a process before its end.
    """
    text = str(error)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return "LimitExceeded", memory_remedy()
    code = error.errno if isinstance(error, OSError) else None
    if code is None and (found := _ERRNO.search(text)):
        # A lock held by another program is not a limit.
        code = int(found[1]) if int(found[1]) != errno.EAGAIN else None
    if code == errno.ENOMEM:
        return "LimitExceeded", memory_remedy()
    if "can't start new thread" in text or "pthread_create failed" in text:
        code = errno.EAGAIN
    if code is None:
        return None
    remedy = _REMEDIES.get(code) or _internal.limit_behind(code)
    kind = "NoSpace" if code in {errno.ENOSPC, errno.EDQUOT} else "Io"
    return (kind, remedy) if remedy else None
