"""Directories that appear, or take another's place, as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
from pathlib import Path

from bedform._errors import ExistsError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def file_above(path: str | os.PathLike[str]) -> Path | None:
    """What stands where ``path`` needs a directory and is none."""
    above = (part for part in [*Path(path).absolute().parents][::-1])
    return next((part for part in above if part.exists() and not part.is_dir()), None)


def no_directory(parent: Path) -> OSError:
    """The error for a target below ``parent``, which is no directory."""
    file = file_above(parent / "target")
    if file is not None:
        return NotADirectoryError(
            f"{str(file)!r} is a file, not a directory: choose another target"
        )
    return FileNotFoundError(f"directory {str(parent)!r} does not exist: create it first")


def staging_beside(target: Path) -> Path:
    """A name for what becomes ``target``: hidden, in the same directory, not yet taken."""
    return target.parent / f".{target.name}.bedform-new-{secrets.token_hex(6)}"


def publish_directory(staged: Path, target: Path, *, replace: bool) -> None:
    """Give the finished directory ``staged`` the name ``target``, durably.

    A directory that it replaces changes places with it in one step, and is then removed. Where the
    file system cannot exchange names, the old one is first moved aside: a crash between the two
    steps leaves both beside ``target``, complete.

    Raises
    ------
    ExistsError
        There is something else at ``target``.
    """
    if replace and target.exists():
        if _exchange(staged, target):
            sync_directory(target.parent)
            shutil.rmtree(staged, ignore_errors=True)
            return
        aside = target.parent / f".{target.name}.bedform-old-{secrets.token_hex(6)}"
        target.rename(aside)
        staged.rename(target)
        sync_directory(target.parent)
        shutil.rmtree(aside, ignore_errors=True)
        return
    try:
        # An empty directory gives way.
        staged.rename(target)
    except OSError as error:
        if target.exists():
            raise ExistsError(f"{target} exists already; choose another name") from error
        raise
    sync_directory(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Let two names change places in one step; false where that cannot be done."""
    with contextlib.suppress(AttributeError, OSError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        names = (os.fsencode(first), os.fsencode(second))
        outcome: int = rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
        return outcome == 0
    return False


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
