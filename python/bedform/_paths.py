"""Names of many files: lists of paths, and patterns."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from bedform._errors import InvalidArgumentError, NotFoundError
from bedform._location import location
from bedform._remote import is_url

_NUMBER: Final = re.compile(r"(\d+)")
#: The characters of a `glob` pattern; `glob` is imported only for patterns.
_MAGIC: Final = re.compile("[*?[]")
#: Joining of files: the dimension, ``compat``, and whether labels define the order.
Join = tuple[str | None, str, bool]
#: Joins files in their given order along the dimension in which they differ.
AS_GIVEN: Final[Join] = (None, "equals", False)
#: Suffix of sidecars, which lie beside files.
_SIDECAR: Final = ".bedform"


class PatternPaths(list[str]):
    """The files of a pattern: as an archive they are sorted by the joined coordinate."""


def paths_of(given: Any, what: str = "path") -> list[str] | None:
    """Returns the files of a list or pattern; ``None`` for one place.

    A pattern's files are :class:`PatternPaths` in natural order, ``t2.nc`` before ``t10.nc``.

    Raises
    ------
    NotFoundError
        No file matches the pattern.
    """
    if isinstance(given, (list, tuple)):
        located = [location(one, what) for one in given]
        return PatternPaths(located) if isinstance(given, PatternPaths) else located
    if not isinstance(given, (str, bytes, os.PathLike)):
        return None
    where = location(given, what)
    # A file may have the characters of a pattern in its name.
    if is_url(where) or _MAGIC.search(where) is None or os.path.lexists(where):
        return None
    import glob

    # Path.glob accepts no absolute pattern.
    found = glob.glob(where, recursive=True)  # noqa: PTH207
    found = [path for path in found if not path.endswith(_SIDECAR)]
    if not found:
        raise NotFoundError(f"{where}: no file has such a name; check the pattern")
    return PatternPaths(sorted(found, key=_natural))


def join_of(paths: Any, concat_dim: Any, compat: Any) -> Join:
    """Returns the joining of the files at ``paths`` for the engine."""
    if concat_dim is not None and not isinstance(concat_dim, str):
        raise InvalidArgumentError(
            f"concat_dim must be the name of a dimension, not {concat_dim!r}"
        )
    if compat not in ("equals", "override"):
        raise InvalidArgumentError(f'compat is "equals" or "override", not {compat!r}')
    return concat_dim, compat, isinstance(paths, PatternPaths)


def shown_paths(given: Any, paths: list[str]) -> str:
    """Returns many files for messages: the pattern, or the first one and the number of others."""
    if not isinstance(given, (list, tuple)):
        return location(given)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{next(iter(paths), 'no file')}{more}"


def _natural(path: str) -> tuple[list[str | int], str]:
    """Returns a sorting key that compares numbers within names as numbers."""
    parts = _NUMBER.split(path)
    # Text and numbers alternate.
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], path
