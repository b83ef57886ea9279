"""Warnings about members of files that a data set lacks."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from bedform import _shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_IS_SAID_BY_CALLER: Final[ContextVar[bool]] = ContextVar("left_out", default=False)
#: Places and warnings of this process.
_SAID: Final[set[tuple[str, str]]] = set()


class LeftOutWarning(UserWarning):
    """A data set lacks arrays of its group that cannot be read; once for each file and process."""


class ArchiveWarning(UserWarning):
    """Files of an archive differ in variables of which the first file's values are used."""


@contextmanager
def said_by_caller() -> Iterator[None]:
    """Suppresses an open's warning of omitted members: the caller itself warns."""
    token = _IS_SAID_BY_CALLER.set(True)
    try:
        yield
    finally:
        _IS_SAID_BY_CALLER.reset(token)


def warn_of_left_out(where: str, left_out: Mapping[str, str], stacklevel: int) -> None:
    """Warns of omitted members of many files, unless the caller does."""
    if left_out and not _IS_SAID_BY_CALLER.get():
        warn_once(where, f"{where}: left out: {reasons_of(left_out)}", stacklevel + 1)


def warn_once(where: str, said: str, stacklevel: int) -> None:
    """Gives a warning of the file or store at ``where``, unless this process has given it.

    Python remembers warnings, too, but forgets all of them at each ``warnings.catch_warnings``,
    which xarray calls whenever it opens a data set. Filters that raise errors raise them each time.
    """
    # Absolute, since another directory may have a file of this name.
    one = (os.path.abspath(where), _shown.line(said))  # noqa: PTH100
    if one not in _SAID:
        warnings.warn(one[1], LeftOutWarning, stacklevel=stacklevel + 1)
        _SAID.add(one)


def reasons_of(left_out: Mapping[str, str]) -> str:
    """Returns each member with the reason of its omission."""
    return "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
