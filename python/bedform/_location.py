"""Conversion of callers' places to paths and URLs, including objects of other libraries.

Bedform opens by path or URL, since its processes and threads open the place again. An object with a
path is opened by that path; others are refused with a remedy.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from bedform import _hints
from bedform._errors import InvalidArgumentError, NotFoundError, WrongTypeError

#: Bytes of a path, and of a name in it, from which the system may refuse them.
_NAME_BYTES: Final = 255
_LOCAL = {"file", "local"}
_REMOTE = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az"}
_REMOTE |= {"http": "http", "https": "https"}


def location(given: Any, what: str = "path") -> str:
    """Returns the path or URL of ``given``.

    Raises
    ------
    WrongTypeError
        The object has no place.
    InvalidArgumentError
        The system takes no such path.
    NotFoundError
        The path begins with ``~`` and the name of no user.
    """
    where = _place_of(given, what)
    if where.startswith("file:"):
        where = _of_file_url(where)
    _check_path(where, what)
    if where.startswith("~") and not Path(where).exists():
        try:
            where = str(Path(where).expanduser())
        except RuntimeError:
            user = where.partition("/")[0][1:]
            said = f"no user {user!r} on this machine" if user else "no home directory"
            raise NotFoundError(f"{where}: {said}; check the path") from None
    return where


def _check_path(where: str, what: str) -> None:
    """Fails for a path that no call of the system takes."""
    if "\0" in where:
        raise InvalidArgumentError(f"{what} {where!r:.100}: no path has a NUL character")
    _check_encodable(where, what)
    # Most paths are short. The parts of patterns are names of no file.
    if len(where) <= _NAME_BYTES // 4 or "://" in where or any(mark in where for mark in "*?["):
        return
    try:
        os.lstat(where)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidArgumentError(
                f"{what} {where!r:.100}...: the system takes no name as long; check the path"
            ) from None


def _check_encodable(where: str, what: str) -> None:
    """Fails for a text that stands for no bytes.

    In paths of Linux, other than in URLs, a surrogate from U+DC80 to U+DCFF stands for a byte of a
    name that is not UTF-8.
    """
    if where.isascii():
        return
    try:
        where.encode("utf-8", "strict" if "://" in where else "surrogateescape")
    except UnicodeEncodeError as error:
        wrong = where[error.start]
        raise InvalidArgumentError(
            f"{what} {where!r:.100}: no name has the character {wrong!r}; check the path"
        ) from None


def check_new_store(where: str, call: str, source: str | None = None) -> None:
    """Fails for a new store with the name of a NetCDF or HDF5 file.

    Raises
    ------
    InvalidArgumentError
        The name has the suffix of such a file.
    """
    said = _hints.file_as_store(where, call, source)
    if said is not None:
        raise InvalidArgumentError(said)


def _place_of(given: Any, what: str) -> str:
    if isinstance(given, (str, bytes, os.PathLike)):
        place = os.fspath(given)
        return place if isinstance(place, str) else os.fsdecode(place)
    if isinstance(given, (list, tuple, set, frozenset, dict)):
        raise WrongTypeError(_hints.many_places(given, what))
    library = type(given).__module__.partition(".")[0]
    find = _OF_LIBRARIES.get(library, _of_file_object)
    place = find(given)
    if place is None:
        raise WrongTypeError(_hints.no_place(given, what))
    return place


def _of_file_url(url: str) -> str:
    """Returns the path of ``file:///a/b``."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidArgumentError(
            f"{url}: a file of this machine is file:///path, or the path alone"
        )
    # A file name may have bytes that are not UTF-8.
    return unquote(parts.path, errors="surrogateescape")


def _of_file_object(given: Any) -> str | None:
    """Returns the path of an open file; None for files in memory."""
    name = getattr(given, "name", None)
    return name if hasattr(given, "read") and isinstance(name, str) else None


def _of_bedform(given: Any) -> str | None:
    place: str | None = getattr(given, "store_path", None)
    return place


def _of_h5py(given: Any) -> str | None:
    place: str | None = getattr(given, "filename", None)
    return place


def _of_fsspec(given: Any) -> str | None:
    """Returns the place of an fsspec mapper or file."""
    system = getattr(given, "fs", None)
    for name in ("root", "path", "name"):
        place = getattr(given, name, None)
        if isinstance(place, str):
            return _on(system, place)
    return None


def _on(system: Any, place: str) -> str | None:
    """Returns the path or URL of a path on an fsspec file system."""
    while hasattr(system, "sync_fs"):
        system = system.sync_fs
    named = getattr(system, "protocol", "file")
    names = {named} if isinstance(named, str) else set(named)
    if names & _LOCAL:
        return place
    remote = sorted(_REMOTE[name] for name in names & set(_REMOTE))
    if not remote:
        return None
    return place if "://" in place else f"{remote[0]}://{place}"


def _of_zarr(given: Any) -> str | None:
    """Returns the place of a zarr-python store, or of a group or array in one."""
    inner = getattr(given, "store", None)
    if inner is not None and hasattr(given, "path"):
        place = _of_zarr(inner)
        return place if place is None or not given.path else f"{place.rstrip('/')}/{given.path}"
    root = getattr(given, "root", None)
    if isinstance(root, (str, os.PathLike)):
        return os.fspath(root)
    place = getattr(given, "path", None)
    return _on(given.fs, place) if isinstance(place, str) and hasattr(given, "fs") else None


_OF_LIBRARIES = {
    "bedform": _of_bedform,
    "fsspec": _of_fsspec,
    "h5py": _of_h5py,
    "s3fs": _of_fsspec,
    "zarr": _of_zarr,
}
