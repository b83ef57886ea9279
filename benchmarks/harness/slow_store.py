"""A store as slow as a busy parallel file system, besides the unthrottled disk.

`BEDFORM_THROTTLE` slows the engine down. Peers read the same place through a `SlowFile`, which
delays each of their requests as much.
"""

from __future__ import annotations

import io
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

BYTES_PER_SECOND, WAIT = 300_000_000, "5 ms"
WAIT_SECONDS = int(WAIT.split()[0]) / 1e3
#: Value of `BEDFORM_THROTTLE` for each place.
THROTTLES = {"disk": "", "slow store": f"{BYTES_PER_SECOND // 10**6} MB/s, {WAIT}"}


def is_slow() -> bool:
    """Whether this process is throttled."""
    return bool(os.environ.get("BEDFORM_THROTTLE"))


def as_found(path: Path) -> Path | SlowFile:
    """Returns the path or file that a peer opens, as slow as the engine's."""
    return SlowFile(path) if is_slow() else path


class SlowFile(io.RawIOBase):
    """A file that is read at the rate of the slow store; opening it counts as a request."""

    def __init__(self, path: Path) -> None:
        began = time.perf_counter()
        self._file = path.open("rb", buffering=0)
        # Without the kernel's readahead, as the engine: all data are waited for.
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        self._size = path.stat().st_size
        self._at = 0
        _wait(began, 0)

    def readinto(self, buffer: Buffer, /) -> int:
        """Reads up to the end of the file, in one request."""
        began, view, read = time.perf_counter(), memoryview(buffer).cast("B"), 0
        while read < len(view):
            got = os.preadv(self._file.fileno(), [view[read:]], self._at + read)
            if got == 0:
                break
            read += got
        self._at += read
        _wait(began, read)
        return read

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Sets the position, without a request."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def readable(self) -> bool:
        """Returns True: the file is readable."""
        return True

    def seekable(self) -> bool:
        """Returns True: the file is seekable."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _wait(began: float, byte_count: int) -> None:
    end = began + WAIT_SECONDS + byte_count / BYTES_PER_SECOND
    if (left := end - time.perf_counter()) > 0:
        time.sleep(left)
