"""The helper files of a store or file, for display only.

The engine reads them. It accepts a file only if this user or an owner of the site owns it, no link
leads to it, and its size is within the limit of its kind.
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
    """A sidecar of the site is not read; the message says why."""


def warn_of_sidecars(stacklevel: int = 3) -> None:
    """Warns of each reason why sidecars are not read, once per process."""
    for line in _internal.sidecar_warnings():
        warnings.warn(line, SidecarWarning, stacklevel=stacklevel)


def directory_of(source: str | list[str]) -> Path | None:
    """Returns the directory of a source's sidecar, existing or not; None if none is configured.

    The source is a path or URL, or the files of an archive.
    """
    directory = engine_call(_internal.sidecar_directory, _shown_source(source))(source)
    return None if directory is None else Path(directory)


def _shown_source(source: str | list[str]) -> str:
    return source if isinstance(source, str) else next(iter(source), "")


def newest_of(
    source: str | list[str], kind: str, bytes_max: int, *, is_of_site: bool = False
) -> dict[str, Any] | None:
    """Returns the newest readable generation of a kind of helper file, as a JSON object."""
    ask = engine_call(_internal.sidecar_document, _shown_source(source))
    document = ask(source, kind, bytes_max, is_of_site)
    return None if document is None else json.loads(document)


def is_watched(source: str | list[str]) -> bool:
    """Whether this user has turned on recording of a source's reads."""
    return engine_call(_internal.is_watched, _shown_source(source))(source)
