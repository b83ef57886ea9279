"""Members of files that a data set lacks, named in one warning."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from bedform import _shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_IS_SAID_BY_CALLER: Final[ContextVar[bool]] = ContextVar("left_out", default=False)


class LeftOutWarning(UserWarning):
    """A data set lacks arrays of its group that cannot be read."""


class ArchiveWarning(UserWarning):
    """Files of an archive differ in variables that are then those of the first file."""


@contextmanager
def said_by_caller() -> Iterator[None]:
    """Let an open not warn of members that are left out: its caller does."""
    token = _IS_SAID_BY_CALLER.set(True)
    try:
        yield
    finally:
        _IS_SAID_BY_CALLER.reset(token)


def warn_of_left_out(where: str, left_out: Mapping[str, str], stacklevel: int) -> None:
    """Warn of the members of many files that are not shown, unless the caller does."""
    if left_out and not _IS_SAID_BY_CALLER.get():
        said = f"{where}: left out: {reasons_of(left_out)}"
        warnings.warn(_shown.line(said), LeftOutWarning, stacklevel=stacklevel + 1)


def reasons_of(left_out: Mapping[str, str]) -> str:
    """Each member with the reason why it is not shown."""
    return "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
