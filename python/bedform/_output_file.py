"""A file that a command writes for its user: whole or not at all, never over other data."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bedform._errors import ExistsError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OutputFile"]

#: Bytes by which a document is recognized.
_HEAD_BYTES: Final = 4096


@dataclass(frozen=True)
class OutputFile:
    """The place of a document, and the files there that it may replace.

    Replaced are empty files, and earlier documents of the same kind. Pipes and terminals are
    written to.
    """

    #: The path, as the user typed it.
    name: str
    #: The name of such documents in messages.
    kind: str
    #: True for the first bytes of such a document.
    is_own: Callable[[bytes], bool]
    #: The option that replaces any file.
    option: str
    #: True if the user gave it.
    replaces_any: bool = False

    def check(self) -> None:
        """Fail if the document cannot stand there: before any work, and again before the writing.

        Raises
        ------
        ExistsError
            A file is there that is no such document.
        InvalidArgumentError
            It is a directory, or a device.
        OSError
            The directory does not exist, or takes no files.
        """
        where = Path(self.name)
        if where.is_dir():
            raise InvalidArgumentError(f"{self.name!r} is a directory: name a file in it")
        if self._is_stream():
            return
        if where.exists() and not where.is_file():
            raise InvalidArgumentError(f"{self.name!r} is no file: name another one")
        parent = Path(os.path.realpath(where)).parent
        if not parent.is_dir():
            text = "no such directory: make it first, or choose another place"
            raise FileNotFoundError(errno.ENOENT, text, str(where.parent))
        if not os.access(parent, os.W_OK | os.X_OK):
            text = "the directory takes no new files: choose another place"
            raise PermissionError(errno.EACCES, text, str(where.parent))
        if not self.replaces_any and not self._may_go(where):
            raise ExistsError(
                f"{self.name!r} exists and is no {self.kind}: choose another name, or {self.option}"
            )

    def write(self, text: str) -> None:
        """Write a document of text: see `write_bytes`."""
        self.write_bytes(text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, content: bytes) -> None:
        """Write the document; on disk it appears completely or not at all.

        Raises
        ------
        As `check`; OSError
            The system refuses the writing.
        """
        if self._is_stream():
            Path(self.name).write_bytes(content)
            return
        # A link is kept; the file at its end is replaced.
        where = Path(os.path.realpath(self.name))
        hidden = where.with_name(f".{where.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            _put(content, hidden, self.name)
            # Another program may have created the file meanwhile.
            self.check()
            hidden.replace(where)
        finally:
            with suppress(OSError):
                hidden.unlink(missing_ok=True)

    def _is_stream(self) -> bool:
        try:
            mode = Path(self.name).stat().st_mode
        except OSError:
            return False
        return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)

    def _may_go(self, where: Path) -> bool:
        """True if nothing is lost with the file: it is missing, empty, or an earlier document."""
        try:
            with where.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except FileNotFoundError:
            return True
        return not head or self.is_own(head)


def _put(content: bytes, hidden: Path, name: str) -> None:
    """Writes a new file, durably; an error has the name that the user knows."""
    try:
        with hidden.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
