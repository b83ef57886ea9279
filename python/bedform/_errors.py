"""Exceptions, classified by the caller's remedy.

Every user-visible error is a :class:`BedformError`, and also the builtin exception that Python
users expect in its place, so that ``except KeyError`` around ``store["t"]`` works. ``error.kind``
is the engine's name of the error, as in Rust and C. Each kind has a class, and some have subclasses
for cases with their own builtin exception:

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

The engine's ``Interrupted`` becomes ``KeyboardInterrupt``, or the exception that a signal handler
or callback raised.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bedform import _shown
from bedform._internal import EngineError, PanicException

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")


class BedformError(Exception):
    """Any failure of Bedform; its one-line message names the event, the object and the remedy."""

    kind = "Io"

    @property
    def reason(self) -> str:
        """The message without the remedy: the event and its object."""
        return str(self).partition(";")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # Dask's workers pickle errors with tblib, which cannot rebuild classes with two builtin
        # bases.
        return (type(self), self.args, self.__dict__ or None)

    def __str__(self) -> str:
        # KeyError would quote its message.
        return _shown.line(self.args[0]) if self.args else ""


class NotFoundError(BedformError, KeyError, FileNotFoundError):
    """The store, array or group does not exist: check the name."""

    kind = "NotFound"


class ExistsError(BedformError, FileExistsError):
    """The object to create exists: open it, or choose another name."""

    kind = "Exists"


class InvalidArgumentError(BedformError, ValueError):
    """The call is wrong: fix the argument."""

    kind = "InvalidArgument"


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument is of a type that the call does not take: convert it."""


class InvalidSelectionError(InvalidArgumentError, IndexError):
    """The expression in the brackets does not select from such an array: fix the selection."""


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
    """Another writer was faster: read again and retry, in a session with a new one."""

    kind = "Conflict"


class BusyError(ConflictError, BlockingIOError):
    """Another program is using the object: retry when it has finished."""


class SnapshotMovedError(BedformError):
    """The data moved on while they were read: read again."""

    kind = "SnapshotMoved"


class LimitExceededError(BedformError, ValueError):
    """The data claim more than a limit allows: raise the limit if you trust them."""

    kind = "LimitExceeded"


class ReadOnlyError(BedformError, PermissionError):
    """The store is read-only, or was opened for reading."""

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

    Stores stay usable. A session in one of whose calls it happens accepts no more calls; its
    commits stay.
    """

    kind = "Internal"


#: Prefix of the lines of `verify` about objects that cannot be checked here.
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

#: Exceptions of the extension module: errors, and panics, which are bugs.
ENGINE_ERRORS = (EngineError, PanicException)


# Prefix of messages of panics that the engine caught.
_BUG = "a bug of Bedform"

# Remedies for messages of the engine's storage layer, which does not know the caller.
_REMEDIES = {
    "it is read-only": "choose another place",
    "permission denied": "choose another place or ask its owner",
}


def translated(error: EngineError | PanicException, where: str = "") -> BedformError:
    """Returns this package's exception for one of the extension module.

    Storage messages name objects relative to the store: the store's path ``where`` is put in front.
    Names of files at URLs are complete already.
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
    """Wraps ``function`` so that errors of the engine become exceptions of this package.

    ``where`` is the path of the store for messages.
    """

    # `functools.wraps` would take longer than many calls.
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ENGINE_ERRORS as error:
            raise translated(error, where) from None
        except OverflowError as error:
            # The extension module takes 64-bit numbers.
            text = f"{where}: " if where else ""
            raise InvalidArgumentError(f"{text}a number is out of range: {error}") from None

    return call


def too_large(where: str, shape: Sequence[int], dtype: Any) -> LimitExceededError:
    """Returns the error for elements that do not fit into memory together."""
    from math import prod

    from bedform._text import format_bytes

    count = prod(shape)
    size = format_bytes(count * dtype.itemsize)
    return LimitExceededError(
        f"{where}: the selection has {count:,} elements, {size}, more than there is memory for: "
        "take a part of it at a time"
    )


def write_failure(target: Path, error: OSError | RuntimeError) -> Exception:
    """Returns the system's error in terms of the path that the caller named."""
    number = getattr(error, "errno", None)
    if number is None:
        return error
    kind: type[BedformError] = IoError
    if number in (errno.ENOSPC, errno.EDQUOT):
        kind = NoSpaceError
    elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = PermissionDeniedError
    return kind(
        f"cannot write {str(target)!r}: {os.strerror(number)}; nothing is left of it, "
        "choose another place"
    )


def check_name(name: Any) -> str:
    """Return the name or path of an array or group if it is text that UTF-8 can encode.

    Raises
    ------
    InvalidArgumentError
        It is not text, or not encodable.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of an array or group must be text, not {name!r}")
    return check_text(name, "the name")


def check_mapping(given: Any, what: str, example: str) -> Mapping[Any, Any]:
    """Return an argument if it is a mapping.

    Raises
    ------
    WrongTypeError
        It is not; the message has the ``example``.
    """
    if not isinstance(given, Mapping):
        raise WrongTypeError(f"{what} must be a dict such as {example}, not {given!r:.100}")
    return given


def spanned_axes(axes: Any) -> tuple[str, ...]:
    """Return the names of the dimensions that reads span; a text is one name.

    Raises
    ------
    WrongTypeError
        A name is not text.
    """
    names = (axes,) if isinstance(axes, str) else axes
    if isinstance(names, (tuple, frozenset)) and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise WrongTypeError(
        f"reads: a key is the name of a dimension, or a tuple of names, not {axes!r:.100}"
    )


def check_text(text: str, what: str) -> str:
    """Return a text if UTF-8 can encode it; it cannot encode lone surrogates.

    Raises
    ------
    InvalidArgumentError
        UTF-8 cannot encode it; messages call the text ``what``.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"{what} {text!r} cannot be stored as UTF-8") from None
    return text
