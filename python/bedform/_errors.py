"""Errors by what a caller can do about them.

Each class is also the builtin exception that Python users expect in its place, so that
``except KeyError`` around ``store["t"]`` works. ``error.kind`` is the engine's name for it, the
same in Rust and C.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bedform._internal import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class BedformError(Exception):
    """Any failure of Bedform: one line that says what happened, to which object, what to do."""

    kind = "Io"

    def __str__(self) -> str:
        # KeyError would show its message in quotes.
        return str(self.args[0]) if self.args else ""


class NotFoundError(BedformError, KeyError, FileNotFoundError):
    """No such store, array or group: check the name."""

    kind = "NotFound"


class ExistsError(BedformError, FileExistsError):
    """It exists and was to be created: open it, or choose another name."""

    kind = "Exists"


class InvalidArgumentError(BedformError, ValueError):
    """The call is wrong: fix the argument."""

    kind = "InvalidArgument"


class OutOfBoundsError(BedformError, IndexError):
    """A selection leaves the array: fix the selection."""

    kind = "OutOfBounds"


class UnsupportedError(BedformError, NotImplementedError):
    """The data need a feature that this version lacks."""

    kind = "Unsupported"


class CorruptError(BedformError, ValueError):
    """Stored bytes are damaged: restore them from a copy."""

    kind = "Corrupt"


class ConflictError(BedformError):
    """Another writer was faster: read again and retry."""

    kind = "Conflict"


class LimitExceededError(BedformError, ValueError):
    """The data claim more than a limit allows: raise the limit if they are to be trusted."""

    kind = "LimitExceeded"


class ReadOnlyError(BedformError, PermissionError):
    """The store is read-only or was opened so."""

    kind = "ReadOnly"


class PermissionDeniedError(BedformError, PermissionError):
    """The system refuses access."""

    kind = "PermissionDenied"


class NoSpaceError(BedformError, OSError):
    """No space left: free some and retry."""

    kind = "NoSpace"


class PoisonedError(BedformError, OSError):
    """An earlier write has an unknown outcome: open the store again."""

    kind = "Poisoned"


class IoError(BedformError, OSError):
    """The device or system failed."""

    kind = "Io"


BY_KIND: dict[str, type[BedformError]] = {
    error.kind: error
    for error in (
        NotFoundError,
        ExistsError,
        InvalidArgumentError,
        OutOfBoundsError,
        UnsupportedError,
        CorruptError,
        ConflictError,
        LimitExceededError,
        ReadOnlyError,
        PermissionDeniedError,
        NoSpaceError,
        PoisonedError,
        IoError,
    )
}


def translated(error: EngineError) -> BedformError:
    """The exception of this package for one of the extension module."""
    kind, message = error.args
    return BY_KIND.get(kind, BedformError)(message)


def engine_call(function: Callable[P, T]) -> Callable[P, T]:
    """Let the errors of the engine leave ``function`` as those of this package."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except EngineError as error:
            raise translated(error) from None

    return call
