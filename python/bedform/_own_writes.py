"""Files that this process itself has open for writing, as `/proc` lists them.

A library that creates a file over an open one, as ``Dataset.to_netcdf`` has it do, truncates it
before any lock could stop it. So a read that fails looks here for the reason.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["written_here"]

_DESCRIPTORS: Final = Path("/proc/self/fd")
_FLAGS: Final = "flags:"


def written_here(paths: Iterable[str]) -> str | None:
    """Returns the first of these files that this process has open for writing; None without one."""
    written = set(_identities())
    if not written:
        return None
    for path in paths:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) in written:
                return path
    return None


def _identities() -> Iterator[tuple[int, int]]:
    """Iterates over device and number of the files that are open for writing."""
    try:
        numbers = [entry.name for entry in _DESCRIPTORS.iterdir()]
    except OSError:
        return
    for number in numbers:
        # The descriptor of the listing is closed by now.
        with contextlib.suppress(OSError):
            if _is_for_writing(Path(f"/proc/self/fdinfo/{number}").read_text()):
                status = os.fstat(int(number))
                yield status.st_dev, status.st_ino


def _is_for_writing(facts: str) -> bool:
    for line in facts.splitlines():
        if line.startswith(_FLAGS):
            return int(line.removeprefix(_FLAGS), 8) & os.O_ACCMODE != os.O_RDONLY
    return False
