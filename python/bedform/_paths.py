"""Many files by one name: lists of paths, and patterns."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from bedform._errors import InvalidArgumentError, NotFoundError
from bedform._location import location
from bedform._remote import is_url

_NUMBER: Final = re.compile(r"(\d+)")
#: What makes a name a pattern, as `glob` has it, which is imported for patterns alone.
_MAGIC: Final = re.compile("[*?[]")
#: How files are joined: the dimension, ``compat``, and whether they are sorted by its labels.
Join = tuple[str | None, str, bool]
#: Files that are joined in their order along the dimension in which they differ.
AS_GIVEN: Final[Join] = (None, "equals", False)
#: What lies beside files and is none.
_SIDECAR: Final = ".bedform"


class PatternPaths(list[str]):
    """Files that a pattern names: an archive of them is sorted by the joined coordinate."""


def paths_of(given: Any, what: str = "path") -> list[str] | None:
    """The files that a list of paths or a pattern names; ``None`` for one place.

    Files of a pattern come in the order in which people count, ``t2.nc`` before ``t10.nc``, and as
    :class:`PatternPaths`.

    Raises
    ------
    NotFoundError
        No file has a name of the pattern.
    """
    if isinstance(given, (list, tuple)):
        located = [location(one, what) for one in given]
        return PatternPaths(located) if isinstance(given, PatternPaths) else located
    if not isinstance(given, (str, bytes, os.PathLike)):
        return None
    where = location(given, what)
    # A file may have such a name.
    if is_url(where) or _MAGIC.search(where) is None or os.path.lexists(where):
        return None
    import glob

    # Path.glob takes no absolute pattern.
    found = glob.glob(where, recursive=True)  # noqa: PTH207
    found = [path for path in found if not path.endswith(_SIDECAR)]
    if not found:
        raise NotFoundError(f"{where}: no file has such a name; check the pattern")
    return PatternPaths(sorted(found, key=_natural))


def join_of(paths: Any, concat_dim: Any, compat: Any) -> Join:
    """How the files at ``paths`` are joined, as the engine takes it."""
    if concat_dim is not None and not isinstance(concat_dim, str):
        raise InvalidArgumentError(
            f"concat_dim must be the name of a dimension, not {concat_dim!r}"
        )
    if compat not in ("equals", "override"):
        raise InvalidArgumentError(f'compat is "equals" or "override", not {compat!r}')
    return concat_dim, compat, isinstance(paths, PatternPaths)


def shown_paths(given: Any, paths: list[str]) -> str:
    """Many files as a user knows them: the pattern, or the first and how many more."""
    if not isinstance(given, (list, tuple)):
        return location(given)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{next(iter(paths), 'no file')}{more}"


def _natural(path: str) -> tuple[list[str | int], str]:
    """A key by which numbers within names are compared as numbers."""
    parts = _NUMBER.split(path)
    # Text and numbers take turns.
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], path
