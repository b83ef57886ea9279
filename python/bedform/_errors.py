"""Errors by what a caller can do about them.

Every error that a user can get is a :class:`BedformError`, and also the builtin exception that
Python users expect in its place, so that ``except KeyError`` around ``store["t"]`` works.
``error.kind`` is the engine's name for it, the same in Rust and C: one class for each kind, and
below some of them classes for what Python calls by a name of its own:

| class | kind | is also |
|---|---|---|
| ``NotFoundError`` | ``NotFound`` | ``KeyError``, ``FileNotFoundError`` |
| ``ExistsError`` | ``Exists`` | ``FileExistsError`` |
| ``InvalidArgumentError`` | ``InvalidArgument`` | ``ValueError`` |
| ``WrongTypeError`` | ``InvalidArgument`` | ``InvalidArgumentError``, ``TypeError`` |
| ``InvalidSelectionError`` | ``InvalidArgument`` | ``InvalidArgumentError``, ``IndexError`` |
| ``NoDirectoryError`` | ``InvalidArgument`` | ``InvalidArgumentError``, ``NotADirectoryError`` |
| ``OutOfBoundsError`` | ``OutOfBounds`` | ``IndexError`` |
| ``UnsupportedError`` | ``Unsupported`` | ``NotImplementedError`` |
| ``CorruptError`` | ``Corrupt`` | ``ValueError`` |
| ``ConflictError`` | ``Conflict`` | |
| ``BusyError`` | ``Conflict`` | ``ConflictError``, ``BlockingIOError`` |
| ``SnapshotMovedError`` | ``SnapshotMoved`` | |
| ``LimitExceededError`` | ``LimitExceeded`` | ``ValueError`` |
| ``ReadOnlyError`` | ``ReadOnly`` | ``PermissionError`` |
| ``PermissionDeniedError`` | ``PermissionDenied`` | ``PermissionError`` |
| ``NoSpaceError`` | ``NoSpace`` | ``OSError`` |
| ``PoisonedError`` | ``Poisoned`` | ``OSError`` |
| ``IoError`` | ``Io`` | ``OSError`` |
| ``InternalError`` | ``Internal`` | ``RuntimeError`` |

What the engine calls ``Interrupted`` is ``KeyboardInterrupt``, or what a signal's handler or a
callback raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bedform import _shown
from bedform._internal import EngineError, PanicException

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class BedformError(Exception):
    """Any failure of Bedform: one line that says what happened, to which object, what to do."""

    kind = "Io"

    @property
    def reason(self) -> str:
        """What happened, to which object, without what to do."""
        return str(self).partition(";")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # Dask's workers send errors by tblib, which cannot make those of two builtin classes anew.
        return (type(self), self.args, self.__dict__ or None)

    def __str__(self) -> str:
        # KeyError would show its message in quotes.
        return _shown.line(self.args[0]) if self.args else ""


class NotFoundError(BedformError, KeyError, FileNotFoundError):
    """No such store, array or group: check the name."""

    kind = "NotFound"


class ExistsError(BedformError, FileExistsError):
    """It exists and was to be created: open it, or choose another name."""

    kind = "Exists"


class InvalidArgumentError(BedformError, ValueError):
    """The call is wrong: fix the argument."""

    kind = "InvalidArgument"


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument is of a type that the call does not take: convert it."""


class InvalidSelectionError(InvalidArgumentError, IndexError):
    """What is between the brackets is no selection of such an array: fix the selection."""


class NoDirectoryError(InvalidArgumentError, NotADirectoryError):
    """A file lies where a directory is needed: choose another place."""


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
    """Another writer was faster: read again and retry, with a new session if it was one."""

    kind = "Conflict"


class BusyError(ConflictError, BlockingIOError):
    """Another program is at work on it: retry when that is done."""


class SnapshotMovedError(BedformError):
    """The data moved on while they were read: read again."""

    kind = "SnapshotMoved"


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


class InternalError(BedformError, RuntimeError):
    """A bug of Bedform: report the message, with the call that led to it.

    Stores stay usable. After it in a call of a session, that session takes no more calls; its
    commits stand.
    """

    kind = "Internal"


#: What a line of `verify` begins with that is of something which cannot be read here.
NOT_CHECKED = "cannot be checked: "

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
        SnapshotMovedError,
        LimitExceededError,
        ReadOnlyError,
        PermissionDeniedError,
        NoSpaceError,
        PoisonedError,
        IoError,
        InternalError,
    )
}

#: The exceptions of the extension module: errors, and panics below it, which are bugs.
ENGINE_ERRORS = (EngineError, PanicException)


# How the message of a panic begins that the engine has met.
_BUG = "a bug of Bedform"

# What to do where the engine's storage, which knows no command and no caller, cannot say it.
_REMEDIES = {
    "it is read-only": "choose another place",
    "permission denied": "choose another place or ask its owner",
}


def translated(error: EngineError | PanicException, where: str = "") -> BedformError:
    """The exception of this package for one of the extension module.

    Storage names objects as the store knows them: ``where``, the store, is put in front. A file
    at a URL has its whole URL.
    """
    if isinstance(error, PanicException):
        message = str(error)
        is_whole = message.startswith(_BUG)
        return InternalError(message if is_whole else f"{_BUG}: {message}; please report it")
    kind, message = error.args
    if message.startswith("cannot "):
        phrase = message.rpartition(": ")[2]
        if phrase in _REMEDIES:
            message += f"; {_REMEDIES[phrase]}"
        object_name = message.partition('"')[2].partition('"')[0]
        is_whole = "://" in object_name or any(f'"{where}{end}' in message for end in '"/')
        if where and not is_whole:
            message = f"{where}: {message}"
    return BY_KIND.get(kind, BedformError)(message)


def engine_call(function: Callable[P, T], where: str = "") -> Callable[P, T]:
    """Let the errors of the engine leave ``function`` as those of this package.

    ``where`` is the store that it is about.
    """

    # Without `functools.wraps`, which takes longer than many calls.
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ENGINE_ERRORS as error:
            raise translated(error, where) from None
        except OverflowError as error:
            # The extension module takes numbers of 64 bits.
            text = f"{where}: " if where else ""
            raise InvalidArgumentError(f"{text}a number is out of range: {error}") from None

    return call


def check_name(name: Any) -> str:
    """Give the name or path of an array or group back, if it is text that UTF-8 has.

    Raises
    ------
    InvalidArgumentError
        It is none.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of an array or group must be text, not {name!r}")
    return check_text(name, "the name")


def check_text(text: str, what: str) -> str:
    """Give a text back if UTF-8 has it: halves of a pair (lone surrogates) it has not.

    Raises
    ------
    InvalidArgumentError
        It has not; messages call the text ``what``.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"{what} {text!r} cannot be stored as UTF-8") from None
    return text
