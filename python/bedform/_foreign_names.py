"""Names inside foreign files, and the error of reading such a file.

A member's name need not be a valid path segment. It is shown with invalid bytes escaped as ``%2F``
and so on, like in the NetCDF classic parser in Rust.
"""

from __future__ import annotations

__all__ = ["ForeignFileError", "display_name", "name_text"]

_NAME_BYTES_MAX = 255


class ForeignFileError(ValueError):
    """A foreign file cannot be read, or refers to a refused place; the message has the remedy.

    `kind` is the engine's name of the error; `bedform._errors.BY_KIND` maps it to a class.
    """

    def __init__(self, message: str, kind: str = "Corrupt") -> None:
        super().__init__(message)
        self.kind = kind


def name_text(name: str | bytes) -> str:
    """Returns a name as text; h5py returns names that are not UTF-8 as bytes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def display_name(name: str, bytes_max: int | None = _NAME_BYTES_MAX) -> str | None:
    r"""Returns the name as a path segment, bounded in bytes; None if it has none.

    >>> display_name("temperature"), display_name("a\\b"), display_name("..")
    ('temperature', 'a%5Cb', '%2E%2E')
    """
    if name in {".", ".."}:
        return name.replace(".", "%2E")
    shown = "".join(_display_character(character) for character in name)
    if not shown or (bytes_max is not None and len(shown.encode()) > bytes_max):
        return None
    return shown


def _display_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # A byte that is not UTF-8, as a surrogate of h5py.
        return f"%{code - 0xDC00:02X}"
    if code < 0x20 or 0x7F <= code < 0xA0 or character in "/\\":
        return "".join(f"%{byte:02X}" for byte in character.encode())
    return character
