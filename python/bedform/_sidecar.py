"""What the helper files of a store or file say: for looking at, not for change.

Where they lie the engine says. As for the engine, a file counts only if it belongs to this user, is
no link and is not larger than its kind may be.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from bedform import _internal
from bedform._errors import engine_call

__all__ = ["directory_of", "newest_of"]

#: Generations that are tried before a list counts as empty.
_TRIED_MAX: Final = 4
_DIGITS: Final = 8


def directory_of(where: str) -> Path | None:
    """The directory of the sidecar of a path or URL, there or not; None where no place is named."""
    directory = engine_call(_internal.sidecar_directory, where)(where)
    return None if directory is None else Path(directory)


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
