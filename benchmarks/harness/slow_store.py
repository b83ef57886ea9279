"""A store as slow as a busy parallel file system, beside the disk as it is.

The engine slows itself down where `BEDFORM_THROTTLE` says so. Peers read the same place through a
`SlowFile`, which waits as long for each of their requests.
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
#: What `BEDFORM_THROTTLE` says for each place.
THROTTLES = {"disk": "", "slow store": f"{BYTES_PER_SECOND // 10**6} MB/s, {WAIT}"}


def is_slow() -> bool:
    """Tell whether this process finds the place slow."""
    return bool(os.environ.get("BEDFORM_THROTTLE"))


def as_found(path: Path) -> Path | SlowFile:
    """Return what a peer opens to find the place as slow as the engine does."""
    return SlowFile(path) if is_slow() else path


class SlowFile(io.RawIOBase):
    """A file that is read at the pace of the slow store: opening it is a request as well."""

    def __init__(self, path: Path) -> None:
        began = time.perf_counter()
        self._file = path.open("rb", buffering=0)
        # As the engine's: nothing comes ahead without having been waited for.
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        self._size = path.stat().st_size
        self._at = 0
        _wait(began, 0)

    def readinto(self, buffer: Buffer, /) -> int:
        """Read as much as is there, in one request."""
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
        """Go to a place, without a request."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readable(self) -> bool:
        """Tell that it is read."""
        return True

    def seekable(self) -> bool:
        """Tell that it has places."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _wait(began: float, byte_count: int) -> None:
    end = began + WAIT_SECONDS + byte_count / BYTES_PER_SECOND
    if (left := end - time.perf_counter()) > 0:
        time.sleep(left)
