"""Names inside foreign files, and what reading one of them may go wrong with.

A name of a member is text that need not be a segment of a path. It is shown with the bytes that a
path cannot have as ``%2F`` and so on; the NetCDF classic parser in Rust does the same.
"""

from __future__ import annotations

__all__ = ["ForeignFileError", "display_name", "name_text"]

_NAME_BYTES_MAX = 255


class ForeignFileError(ValueError):
    """A foreign file cannot be read, or names what is refused; the message says what to do.

    `kind` is the name of the package's error by remedy; `bedform._errors.BY_KIND` has its class.
    """

    def __init__(self, message: str, kind: str = "Corrupt") -> None:
        super().__init__(message)
        self.kind = kind


def name_text(name: str | bytes) -> str:
    """A name as text: h5py gives those that are not UTF-8 as bytes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def display_name(name: str, bytes_max: int | None = _NAME_BYTES_MAX) -> str | None:
    r"""The name as a segment of a path, of so many bytes at most; None if it has none.

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
    if 0xDC80 <= code <= 0xDCFF:  # A byte that is not UTF-8, as h5py hands it over.
        return f"%{code - 0xDC00:02X}"
    if code < 0x20 or 0x7F <= code < 0xA0 or character in "/\\":
        return "".join(f"%{byte:02X}" for byte in character.encode())
    return character
