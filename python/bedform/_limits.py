"""Limits of the environment, which make an operation fail whatever the data are."""

from __future__ import annotations

import errno
import re
import resource
from typing import Final

from bedform import _internal
from bedform._text import format_bytes

__all__ = ["limit_met", "memory_bytes_max", "memory_remedy"]

_ERRNO: Final = re.compile(r"errno = (\d+)")
#: What HDF5 and the loader of libraries say of memory that they did not get.
_NO_MEMORY: Final = re.compile(
    r"memory allocation failed|(can't|cannot|unable to|could ?n[o']t) allocate|"
    r"failed to map segment|MemoryError|out of memory",
    re.IGNORECASE,
)
#: Those of which the engine has no error of its own.
_REMEDIES: Final = {
    errno.EFBIG: "raise the limit on the size of a file (RLIMIT_FSIZE) with ulimit -f",
    errno.ENOSPC: "free some space on the device",
    errno.EDQUOT: "free some space: the quota is used up",
}


def memory_bytes_max() -> int | None:
    """Bytes of address space that this process may have; None without a limit."""
    bounds = [bound for bound in resource.getrlimit(resource.RLIMIT_AS) if bound >= 0]
    return min(bounds, default=None)


def memory_remedy() -> str:
    """What to do where memory was refused, by the limit that this process has."""
    bound = memory_bytes_max()
    which = (
        "ulimit -v, or a control group's" if bound is None else f"{format_bytes(bound)}, ulimit -v"
    )
    return f"raise the limit on memory (RLIMIT_AS: {which})"


def limit_met(error: BaseException | str) -> tuple[str, str] | None:
    """The kind and the remedy of a failure that a limit explains; None for any other.

    `error` is an exception, or what a process said before it ended.
    """
    text = str(error)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return "LimitExceeded", memory_remedy()
    code = error.errno if isinstance(error, OSError) else None
    if code is None and (found := _ERRNO.search(text)):
        # A lock that another program has is no limit.
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
