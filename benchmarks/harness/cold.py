"""Making the page cache cold, and proof that it is.

As root the kernel drops every clean page; without root each file's pages are dropped by advice.
Either way `mincore` counts what is left. A probing read would not do: even one that refuses to wait
starts readahead, and so warms what it probes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

from benchmarks.harness.data import files_under

DROP = Path("/proc/sys/vm/drop_caches")
WARM_BYTES = 8 << 20
SMALL_BYTES = 64 << 10
KEPT_SHARE_MAX = 0.002
ATTEMPTS = 60
PAUSE_SECONDS = 0.05
LOWEST_BIT = bytes(value & 1 for value in range(256))
MAP_FAILED = ctypes.c_void_p(-1).value

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class StillWarmError(RuntimeError):
    """The kernel kept pages of a file that was to be cold."""


def make_cold(path: Path) -> None:
    """Drop the cached pages of every file of a data set, or raise `StillWarmError`.

    Nothing is dirty: data sets are synced when they are built, and benchmarks only read them.
    Pages that a late readahead is still bringing survive an attempt, so there are several.
    """
    for _ in range(ATTEMPTS):
        drop_pages(path)
        kept = {file: cached_bytes(file) for file in files_under(path)}
        total = sum(file.stat().st_size for file in kept)
        if sum(kept.values()) <= KEPT_SHARE_MAX * total + SMALL_BYTES:
            return
        time.sleep(PAUSE_SECONDS)
    warm = {str(file): count for file, count in kept.items() if count}
    raise StillWarmError(f"bytes still in the page cache: {warm}")


def drop_pages(path: Path) -> None:
    """Ask the kernel to drop the clean pages, of everything or, without root, of these files."""
    if os.access(DROP, os.W_OK):
        DROP.write_text("3")
        return
    for file in files_under(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cached_bytes(file: Path) -> int:
    """Return how much of a file the page cache holds."""
    length = file.stat().st_size
    if length == 0:
        return 0
    descriptor = os.open(file, os.O_RDONLY)
    try:
        address = LIBC.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), "cannot map", str(file))
    pages = -(-length // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * pages)()
    try:
        if LIBC.mincore(address, length, ctypes.byref(resident)) != 0:
            raise OSError(ctypes.get_errno(), "cannot ask for the cached pages", str(file))
    finally:
        LIBC.munmap(address, length)
    return bytes(resident).translate(LOWEST_BIT).count(1) * mmap.PAGESIZE


def make_warm(path: Path) -> None:
    """Read every file of a data set, so that the page cache holds it."""
    buffer = bytearray(WARM_BYTES)
    for file in files_under(path):
        with file.open("rb", buffering=0) as source:
            while source.readinto(buffer):
                pass
