"""Emptying the page cache, with verification.

As root the kernel drops every clean page; without root each file's pages are dropped by advice. In
both cases `mincore` counts the remaining pages. Probing reads are unsuitable: even with RWF_NOWAIT
they start readahead, which fills the cache again.
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
    """The kernel kept pages of a file that should be cold."""


def make_cold(path: Path) -> None:
    """Drops the cached pages of every file of a data set, or raises `StillWarmError`.

    No page is dirty: data sets are synced when they are built, and benchmarks only read them. Pages
    of a readahead that is still running survive an attempt, so there are several.
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
    """Asks the kernel to drop the clean pages: all, or without root those of these files."""
    if os.access(DROP, os.W_OK):
        DROP.write_text("3")
        return
    for file in files_under(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cached_bytes(file: Path) -> int:
    """Returns the number of bytes of a file in the page cache."""
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
    """Reads every file of a data set into the page cache."""
    buffer = bytearray(WARM_BYTES)
    for file in files_under(path):
        with file.open("rb", buffering=0) as source:
            while source.readinto(buffer):
                pass
