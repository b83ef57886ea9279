"""What the helper files of a store or file say: for looking at, not for change.

The engine reads them: a file counts only if it belongs to this user or an owner of the site, is
reached through no link and is not larger than its kind may be.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from bedform import _internal
from bedform._errors import engine_call

__all__ = [
    "SidecarWarning",
    "directory_of",
    "is_watched",
    "newest_of",
    "warn_of_sidecars",
]


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


def _shown_source(source: str | list[str]) -> str:
    return source if isinstance(source, str) else next(iter(source), "")


def newest_of(
    source: str | list[str], kind: str, bytes_max: int, *, is_of_site: bool = False
) -> dict[str, Any] | None:
    """The newest generation of a kind of helper file that can be read, as a JSON object."""
    ask = engine_call(_internal.sidecar_document, _shown_source(source))
    document = ask(source, kind, bytes_max, is_of_site)
    return None if document is None else json.loads(document)


def is_watched(source: str | list[str]) -> bool:
    """True if this user has asked for the reads of a source to be recorded."""
    return engine_call(_internal.is_watched, _shown_source(source))(source)
