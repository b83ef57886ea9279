"""The device as an engine: it moves the necessary bytes of a read or write, and does nothing else.

There is no decoding, checksum or scatter. A pool of threads, started before the measurement, sends
the requests; Python adds some microseconds per request of up to 4 MiB. The number of threads, the
size of requests and `O_DIRECT` are variants, of which the fastest counts.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.engine import Engine, Reader, Values
from benchmarks.harness.shards import Extent, needed_extents

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.selections import Selection

PAGE = 4096
KIBIBYTE = 1 << 10
Piece = tuple[int, int, int]


class Device(Engine):
    """The storage device under the data, driven at its best."""

    name = "device"
    read_variants = (
        "buffered 4 4096",
        "buffered 16 1024",
        "buffered 32 2048",
        "direct 4 2048",
        "direct 16 4096",
        "direct 32 1024",
    )
    write_variants = ("buffered 2 4096", "direct 4 4096", "direct 16 4096")

    def __init__(self) -> None:
        self.local = threading.local()
        self.pools: dict[int, ThreadPoolExecutor] = {}

    def version(self) -> str:
        """Returns the way in which the device is driven."""
        return "positioned reads and writes from threads"

    def open(self, path: Path, cache_bytes: int) -> None:  # noqa: ARG002
        """Stores the path; files are opened with each read, as an engine would."""
        self.path = path

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Return a call that reads the needed extents; its result is the number of bytes."""
        mode, threads, kibibytes = parse(variant)
        extents = needed_extents(self.path, selection)
        pool, block = self.pool(threads, kibibytes), kibibytes * KIBIBYTE
        wanted = sum(extent.length for extent in extents)

        def read() -> Values:
            moved = read_extents(pool, self.local, extents, block, mode == "direct")
            if moved < wanted:
                raise OSError(f"the device gave {moved} of {wanted} bytes")
            return np.array([float(wanted)])

        return read

    def read_tree(self, path: Path, variant: str) -> None:
        """Read all files of a tree."""
        mode, threads, kibibytes = parse(variant)
        files = [entry for entry in path.rglob("*") if entry.is_file()]
        extents = [Extent(file, 0, file.stat().st_size) for file in files]
        pool, block = self.pool(threads, kibibytes), kibibytes * KIBIBYTE
        read_extents(pool, self.local, extents, block, mode == "direct")

    def pool(self, threads: int, kibibytes: int) -> ThreadPoolExecutor:
        """Return a pool whose threads are already running and hold their buffers."""
        if threads not in self.pools:
            pool = ThreadPoolExecutor(threads)
            list(pool.map(lambda _: time.sleep(0.005), range(threads)))
            self.pools[threads] = pool
        pool = self.pools[threads]
        barrier = threading.Barrier(threads)

        def touch(_: int) -> None:
            buffer_of(self.local, kibibytes * KIBIBYTE)
            barrier.wait()

        list(pool.map(touch, range(threads)))
        return pool

    def write_bytes(self, path: Path, lengths: list[int], variant: str) -> None:
        """Write files of these lengths, at once, synced with their directory."""
        mode, threads, kibibytes = parse(variant)
        pool, block = self.pool(threads, kibibytes), kibibytes * KIBIBYTE
        path.mkdir(parents=True)
        flags = os.O_CREAT | os.O_WRONLY | (os.O_DIRECT if mode == "direct" else 0)
        files = [os.open(path / str(n), flags, 0o644) for n in range(len(lengths))]
        try:
            pieces: list[Piece] = []
            for file, length in zip(files, lengths, strict=True):
                rounded = round_up(length)
                os.posix_fallocate(file, 0, rounded)
                pieces += cut(file, 0, rounded, block)
            list(pool.map(lambda piece: write_piece(self.local, piece, block), pieces))
            list(pool.map(os.fsync, files))
        finally:
            for file in files:
                os.close(file)


def parse(variant: str) -> tuple[str, int, int]:
    """Splits a variant into mode, threads and KiB per request.

    >>> parse("direct 16 4096")
    ('direct', 16, 4096)
    """
    mode, threads, kibibytes = variant.split()
    return mode, int(threads), int(kibibytes)


def round_up(length: int) -> int:
    """Return `length` rounded up to whole pages.

    >>> round_up(1), round_up(4096)
    (4096, 4096)
    """
    return -(-length // PAGE) * PAGE


def cut(file: int, start: int, stop: int, block: int) -> list[Piece]:
    """Cut a byte range of a file into requests of at most `block` bytes."""
    return [(file, at, min(block, stop - at)) for at in range(start, stop, block)]


def buffer_of(local: threading.local, length: int) -> memoryview:
    """Return this thread's page-aligned buffer, filled with bytes that do not compress."""
    buffer: memoryview | None = getattr(local, "buffer", None)
    if buffer is None or len(buffer) < length:
        # In huge pages if possible, so that the device fills a few long pieces.
        memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        buffer = memoryview(memory)
        buffer[:] = np.random.default_rng(length).bytes(length)
        local.buffer = buffer
    return buffer


def read_extents(
    pool: ThreadPoolExecutor,
    local: threading.local,
    extents: list[Extent],
    block: int,
    direct: bool,
) -> int:
    """Read every extent from the pool and return the bytes moved."""
    flags = os.O_RDONLY | (os.O_DIRECT if direct else 0)
    files = {path: os.open(path, flags) for path in {extent.path for extent in extents}}
    pieces: list[Piece] = []
    for extent in extents:
        start, stop = extent.start, extent.start + extent.length
        if direct:
            start, stop = start // PAGE * PAGE, round_up(stop)
        pieces += cut(files[extent.path], start, stop, block)

    def read_piece(piece: Piece) -> int:
        file, at, length = piece
        return os.preadv(file, [buffer_of(local, block)[:length]], at)

    try:
        return sum(pool.map(read_piece, pieces))
    finally:
        for file in files.values():
            os.close(file)


def write_piece(local: threading.local, piece: Piece, block: int) -> None:
    """Write one request whole."""
    file, at, length = piece
    if os.pwritev(file, [buffer_of(local, block)[:length]], at) != length:
        raise OSError("the device took a part of a request only")


def tree_lengths(path: Path) -> list[int]:
    """Returns the lengths of all files of a store."""
    return [entry.stat().st_size for entry in path.rglob("*") if entry.is_file()]


def sync_tree(path: Path) -> None:
    """Make everything under `path` durable: every file, then every directory, then its parent."""
    for entry in [*path.rglob("*"), path, path.parent]:
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
