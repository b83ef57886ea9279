"""Checks of whole numbers in arguments: positions, lengths, axes, sizes.

Nothing is rounded, and text is no number: a float from a division is usually a mistake, and would
write to the wrong place.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from bedform._errors import InvalidArgumentError
from bedform._text import parse_bytes

_MOST = (1 << 63) - 1
#: Least bytes of a replica, those of its documents (`BESIDE_BYTES` of the engine).
_REPLICA_BYTES_MIN = 16 << 10


def integer(value: Any, what: str, *, least: int = 0) -> int:
    """Returns ``value`` if it is a whole number, at least ``least``.

    Raises
    ------
    InvalidArgumentError
        It is not such a number.

    Examples
    --------
    >>> integer(3, "the record")
    3
    """
    try:
        # In Python truth values are integers, but no caller means them as such.
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidArgumentError(f"{what} must be a whole number, not {value!r}")
    if number < least:
        wrong = "not be negative" if least == 0 else f"be at least {least}"
        raise InvalidArgumentError(f"{what} must {wrong}, but is {number}")
    if number > _MOST:
        raise InvalidArgumentError(f"{what} must be less than 2**63, but is {number}")
    return number


def integers(values: Any, what: str) -> tuple[int, ...]:
    """Returns non-negative whole numbers, one for each axis; a single number is for one axis.

    Raises
    ------
    InvalidArgumentError
        An entry is not such a number.

    Examples
    --------
    >>> integers([3, 4], "start"), integers(5, "start")
    ((3, 4), (5,))
    """
    if isinstance(values, (int, np.integer)):
        return (integer(values, what),)
    try:
        entries = list(values)
    except TypeError:
        raise InvalidArgumentError(
            f"{what} must be a whole number for each axis, not {values!r}"
        ) from None
    return tuple(_of_axis(axis, entry, what) for axis, entry in enumerate(entries))


def _of_axis(axis: int, entry: Any, what: str) -> int:
    try:
        return integer(entry, what)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error} for axis {axis}") from None


def client_count(clients: Any) -> int:
    """Returns the number of clients that share a read, in the 32 bits that the engine takes.

    The engine refuses larger numbers with its own limit.

    Examples
    --------
    >>> client_count(8)
    8
    """
    return min(integer(clients, "clients", least=1), (1 << 32) - 1)


def byte_count(size: Any, what: str) -> int:
    """Returns bytes from a number or a text such as ``"64 MiB"``.

    Raises
    ------
    InvalidArgumentError
        It is neither.

    Examples
    --------
    >>> byte_count("64 KiB", "buffer"), byte_count(10, "buffer")
    (65536, 10)
    """
    try:
        count = parse_bytes(size) if isinstance(size, str) else size
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{what}: {error}") from None
    return integer(count, f"{what}, in bytes,")


def budget_text(budget: str | int) -> str:
    """Returns a budget of replicas in the engine's form; a whole number counts bytes.

    Raises
    ------
    InvalidArgumentError
        It is less than the bytes of any replica, perhaps since a percent sign is missing.

    Examples
    --------
    >>> budget_text("20%"), budget_text(4 << 20)
    ('20%', '4194304 B')
    """
    if isinstance(budget, str):
        return budget
    size = byte_count(budget, "budget")
    if 0 < size < _REPLICA_BYTES_MIN:
        raise InvalidArgumentError(
            f"budget={size} is {size} bytes, fewer than any replica takes: "
            f"'{size}%' of the source, or '{size} MiB'?"
        )
    return f"{size} B"
