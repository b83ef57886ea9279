"""Printable text from files, servers and callers, by `shown` of the format crate."""

from __future__ import annotations

import json
import re
from typing import Final

from bedform import _internal

__all__ = ["as_json", "encodable", "line", "lines", "printable", "shell_path"]

_NAME_CHARACTERS_MAX: Final = 300
_LINE_CHARACTERS_MAX: Final = 2000
#: Other characters are printable, or escaped by every JSON writer.
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7e]")


def printable(value: object, characters: int = _NAME_CHARACTERS_MAX) -> str:
    r"""Returns a name or value, bounded in length, with escapes for unprintable characters.

    >>> printable("t\x1b[2J"), printable("x" * 400)[-5:]
    ('t\\u{1b}[2J', 'xx...')
    """
    text = _text(value)
    return _internal.printable(text, characters) if _needs_care(text, characters) else text


def line(value: object) -> str:
    """Returns a message as one line; a very long one loses its middle."""
    text = _text(value)
    return _internal.message(text) if _needs_care(text, _LINE_CHARACTERS_MAX) else text


def lines(value: object) -> str:
    """Applies `line` to each line of a text."""
    return "\n".join(map(line, _text(value).split("\n")))


def as_json(document: str) -> str:
    r"""Returns a JSON document with escapes for the unprintable characters of its strings.

    >>> as_json('["\x9b"]')
    '["\\u009b"]'
    """
    return _BEYOND_ASCII.sub(_json_escape, document)


def encodable(text: str) -> str:
    r"""Returns a text with escapes for surrogates, which stand for bytes that are not UTF-8.

    >>> encodable("a\udcff.nc")
    'a\\udcff.nc'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def shell_path(path: object) -> str:
    r"""Returns a path as a shell takes it: quoted where needed, and no option.

    >>> shell_path("era5.nc"), shell_path("era5_*.nc"), shell_path("-r")
    ('era5.nc', '"era5_*.nc"', './-r')
    """
    return _internal.shell_path(_text(path))


def _text(value: object) -> str:
    return encodable(value if isinstance(value, str) else str(value))


def _needs_care(text: str, characters: int) -> bool:
    return len(text) > characters or not (text.isascii() and text.isprintable())


def _json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\x7f":
        return "\\u007f"
    return json.dumps(character)[1:-1] if printable(character) != character else character
