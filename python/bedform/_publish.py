"""Directories that appear, or take another's place, as a whole; what a crash leaves, goes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
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


class Staging:
    """A hidden name, not yet taken, for what becomes ``target``, or takes a place in a store.

    A file beside it, ``<name>.lock``, is locked as long as its owner lives, so that who stages
    something else of that prefix there later can remove what a killed process has left.
    """

    def __init__(self, directory: Path, prefix: str = "") -> None:
        prefix = f"{prefix}.bedform-new-"
        _sweep(directory, prefix)
        self.path = directory / f"{prefix}{secrets.token_hex(6)}"
        self._mark = _mark_of(self.path)
        # Where no file can be made, what is to be staged says why.
        self._lock: int | None = None
        with contextlib.suppress(OSError):
            self._lock = _locked(self._mark)

    @classmethod
    def beside(cls, target: Path) -> Staging:
        """What becomes ``target``."""
        return cls(target.parent, f".{target.name}")

    def release(self) -> None:
        """From now on nobody takes it for something left over: it is published, or about to be."""
        if self._lock is not None:
            self._mark.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _mark_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.lock")


def _locked(mark: Path) -> int:
    """Make and lock a file that nobody has removed before it was locked."""
    while True:
        handle = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_named(handle, mark):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_named(handle: int, mark: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), mark.lstat())
    return False


def _sweep(directory: Path, prefix: str) -> None:
    """Remove what killed processes of this user have staged."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix)]
        for name in names:
            if name.endswith(".lock"):
                with contextlib.suppress(OSError):
                    _remove_left(directory / name.removesuffix(".lock"))


def _remove_left(place: Path) -> None:
    mark = _mark_of(place)
    handle = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Fails while the owner lives.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_uid != os.geteuid() or not _is_named(handle, mark):
            return
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        mark.unlink()
    finally:
        os.close(handle)


def publish_directory(staging: Staging, target: Path, *, replace: bool) -> None:
    """Give the finished directory that is staged the name ``target``, durably.

    A directory that it replaces changes places with it in one step, and is then removed. Where the
    file system cannot exchange names, the old one is first moved aside: a crash between the two
    steps leaves both beside ``target``, complete.

    Raises
    ------
    ExistsError
        There is something else at ``target``.
    """
    staged = staging.path
    if replace and target.exists():
        if _exchange(staged, target):
            sync_directory(target.parent)
            shutil.rmtree(staged, ignore_errors=True)
            return
        # The only copy of what the caller wants, soon, and the old one has no name either.
        staging.release()
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
