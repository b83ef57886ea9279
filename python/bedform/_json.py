"""Attributes as JSON, in Zarr's form, and back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bedform._errors import InvalidArgumentError, WrongTypeError, check_text

# The engine's mark, from the private use area, before numbers that JSON lacks and integers of more
# than 64 bits.
_MARK = "\ue000"
# The engine's mark of a lone surrogate, which Python's texts may have, before its last three
# hexadecimal digits.
_HALF = re.compile("\ue002([89a-f][0-9a-f]{2})")
# Either mark, also in JSON's escaped form.
_MARKS = re.compile(r"\ue000|\ue002|\\u[eE]00[02]")
# Python parses at most 4,300 decimal digits by default.
_BITS_MAX = 14_000
_NON_FINITE = {
    f"{_MARK}NaN": math.nan,
    f"{_MARK}Infinity": math.inf,
    f"{_MARK}-Infinity": -math.inf,
}


class _Word(str):
    """The text of a marked number, to be distinguished from a user's text."""

    __slots__ = ()


def _is_large(value: int) -> bool:
    return not -(2**63) <= value < 2**64


def _number(text: str) -> int | float | None:
    """Returns the number that a marked text denotes; None for any other text."""
    if text[:1] != _MARK:
        return None
    digits = text[1:].removeprefix("-")
    if digits.isascii() and digits.isdigit() and digits[0] != "0" and _is_large(int(text[1:])):
        return int(text[1:])
    return _NON_FINITE.get(text)


def _plain(value: Any, mark: str = "") -> Any:
    """Converts a value to JSON; numbers that JSON lacks become ``mark`` and a word of Zarr v3."""
    if isinstance(value, dict):
        return {str(key): _plain(entry, mark) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, mark) for entry in value]
    if isinstance(value, (np.ndarray, np.generic)):
        # A time without its unit would be an ambiguous number.
        if value.dtype.kind in "mM":
            raise WrongTypeError(
                f"{value.dtype} cannot be an attribute: it is not JSON; store text, such as "
                "str(value)"
            )
        return _plain(value.tolist(), mark)
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, complex):
        return [_plain(value.real, mark), _plain(value.imag, mark)]
    if isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return _Word(mark + word)
    if isinstance(value, int) and _is_large(value):
        if value.bit_length() > _BITS_MAX:
            raise InvalidArgumentError(
                f"an attribute of {value.bit_length()} bits: integers have {_BITS_MAX} at most; "
                "store it as text"
            )
        return _Word(f"{mark}{value}") if mark else value
    if isinstance(value, str) and not isinstance(value, _Word) and _number(value) is not None:
        raise InvalidArgumentError(
            f"the text {value!r} cannot be an attribute: it stands for a number"
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise WrongTypeError(f"{type(value).__name__} cannot be an attribute: it is not JSON")


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WrongTypeError(
            f"the bytes {value[:20]!r} cannot be an attribute: they are not UTF-8; decode them"
        ) from None


def plain_attribute(value: Any) -> Any:
    """Converts an attribute for the engine; numbers that JSON lacks get the engine's mark."""
    return _plain(value, _MARK)


def dump_attributes(attributes: Any) -> str:
    """Returns attributes as a JSON object for the engine."""
    if attributes is not None and not isinstance(attributes, Mapping):
        raise InvalidArgumentError(f"attributes must be a mapping, not {attributes!r}")
    return dump(plain_attribute(dict(attributes or {})), "attributes")


def dump(document: Any, what: str = "") -> str:
    """Returns a document for the engine, as JSON.

    Raises
    ------
    InvalidArgumentError
        A text cannot be encoded as UTF-8: the message has its key, or ``what``.
    """
    text = json.dumps(document)
    # Python escapes every surrogate so, including those of pairs.
    if "\\ud" in text:
        _check_texts(document, what)
    return text


def _check_texts(value: Any, what: str) -> None:
    if isinstance(value, str):
        check_text(value, what or "the text")
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            check_text(str(key), f"{what}: the key" if what else "the key")
            _check_texts(entry, f"{what}.{key}" if what else str(key))
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _check_texts(entry, what)


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _restore(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_restore(entry) for entry in value]
    if isinstance(value, str):
        number = _number(value)
        return _text(value) if number is None else number
    return value


def _text(value: str) -> str:
    return _HALF.sub(lambda half: chr(0xD000 | int(half[1], 16)), value)


def load(text: str) -> Any:
    """Parses a JSON document of the engine; marked texts become numbers again."""
    document = json.loads(text)
    has_marks = _MARKS.search(text) is not None
    return _restore(document) if has_marks else document
