"""What the helper files of a store or file say: for looking at, not for change.

Where they lie the engine says. As for the engine, a file counts only if it belongs to this user, is
no link and is not larger than its kind may be. At a site it belongs to whoever owns its directory,
which the engine has looked at.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path
from typing import Any, Final

from bedform import _internal
from bedform._errors import engine_call

__all__ = [
    "SidecarWarning",
    "directory_of",
    "newest_of",
    "site_directory_of",
    "warn_of_sidecars",
]

#: Generations that are tried before a list counts as empty.
_TRIED_MAX: Final = 4
_DIGITS: Final = 8


class SidecarWarning(UserWarning):
    """A sidecar of the site is not read, and why."""


def warn_of_sidecars(stacklevel: int = 3) -> None:
    """Warn of what keeps sidecars from being read, each once in a process."""
    for line in _internal.sidecar_warnings():
        warnings.warn(line, SidecarWarning, stacklevel=stacklevel)


def directory_of(source: str | list[str]) -> Path | None:
    """The directory of a source's sidecar, there or not; None where no place is named.

    The source is a path or URL, or the files of an archive.
    """
    directory = engine_call(_internal.sidecar_directory, _shown_source(source))(source)
    return None if directory is None else Path(directory)


def site_directory_of(source: str | list[str]) -> Path | None:
    """The directory of the site's sidecar of a source, which this user only reads; None without."""
    directory = engine_call(_internal.site_directory, _shown_source(source))(source)
    return None if directory is None else Path(directory)


def _shown_source(source: str | list[str]) -> str:
    return source if isinstance(source, str) else next(iter(source), "")


def newest_of(
    directory: Path | None, kind: str, bytes_max: int, *, is_of_site: bool = False
) -> dict[str, Any] | None:
    """The newest generation of a kind of helper file that can be read, as a JSON object."""
    try:
        names = os.listdir(directory / kind) if directory is not None else []  # noqa: PTH208
        owner = directory.stat().st_uid if directory is not None and is_of_site else os.geteuid()
    except OSError:
        return None
    is_number = (name for name in names if len(name) == _DIGITS and name.isdigit())
    for name in sorted(is_number, reverse=True)[:_TRIED_MAX]:
        found = _document(f"{directory}/{kind}/{name}", bytes_max, owner)
        if found is not None:
            return found
    return None


def _document(path: str, bytes_max: int, owner: int) -> dict[str, Any] | None:
    """The JSON object in a file of that user; nothing where it is anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - what was opened is what is asked about
            found = os.fstat(descriptor)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == owner
            if not is_own or found.st_size > bytes_max:
                return None
            document = json.loads(file.read(bytes_max + 1))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
