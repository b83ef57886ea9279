"""Where the helper files of a store or file lie, and what they say: for looking at, not for change.

The rules are those of the engine (``crates/bedform/src/sidecar/place.rs``): a file counts only if
it belongs to this user, is no link and is not larger than its kind may be. A test holds the
directory against the one that the engine names.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

__all__ = ["directory_of", "newest_of"]

_FNV_OFFSET: Final = 0x6C62272E07BB014262B821756295C58D
_FNV_PRIME: Final = 0x0000000001000000000000000000013B
#: Generations that are tried before a list counts as empty.
_TRIED_MAX: Final = 4
_DIGITS: Final = 8


def directory_of(where: str) -> Path | None:
    """The directory of the sidecar of a path or URL, there or not; None where no place is named."""
    try:
        place = str(Path(where).resolve(strict=True))
    except (OSError, RuntimeError, ValueError):
        place = where
    if base := os.environ.get("BEDFORM_SIDECAR"):
        return Path(base) / _key_of(place)
    beside = Path(f"{place}.bedform")
    try:
        found = beside.lstat()
    except (OSError, ValueError):
        found = None
    if found is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        return beside
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(cache).is_absolute():
        home = os.environ.get("HOME")
        if not home:
            return None
        cache = str(Path(home) / ".cache")
    return Path(cache) / "bedform" / "sidecars" / _key_of(place)


def newest_of(directory: Path | None, kind: str, bytes_max: int) -> dict[str, Any] | None:
    """The newest generation of a kind of helper file that can be read, as a JSON object."""
    try:
        names = os.listdir(directory / kind) if directory is not None else []  # noqa: PTH208
    except OSError:
        return None
    is_number = (name for name in names if len(name) == _DIGITS and name.isdigit())
    for name in sorted(is_number, reverse=True)[:_TRIED_MAX]:
        found = _document(f"{directory}/{kind}/{name}", bytes_max)
        if found is not None:
            return found
    return None


def _document(path: str, bytes_max: int) -> dict[str, Any] | None:
    """The JSON object in a file of this user's; nothing where it is anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - what was opened is what is asked about
            found = os.fstat(descriptor)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if not is_own or found.st_size > bytes_max:
                return None
            document = json.loads(file.read(bytes_max + 1))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _key_of(place: str) -> str:
    """The name of a source's sidecar among those of many: FNV-1a of 128 bits of its path."""
    value = _FNV_OFFSET
    for byte in os.fsencode(place):
        value = ((value ^ byte) * _FNV_PRIME) % (1 << 128)
    return f"{value:032x}"
