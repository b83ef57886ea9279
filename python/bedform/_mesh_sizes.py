"""Bytes that refined meshes take on this machine."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

#: The most files that are counted, so that a description takes little time.
FILES_MAX: Final = 10_000


class MeshSizes(NamedTuple):
    """The bytes of all files of meshes, and of the files in the directory of each step."""

    total: int | None
    steps: dict[str, int]
    #: The reason if the files are not counted.
    not_counted: str = ""


def mesh_sizes(place: str, steps: Iterable[str]) -> MeshSizes:
    """Returns the bytes of a file or directory, and of the steps in it, by path.

    The path of a step may be empty: then it is the whole place.
    """
    if is_url(place):
        return MeshSizes(None, {}, "the files lie at a URL")
    found = dict.fromkeys(steps, 0)
    total = 0
    try:
        for number, (size, around) in enumerate(_files(place, found), 1):
            if number > FILES_MAX:
                return MeshSizes(None, {}, f"more than {FILES_MAX} files")
            total += size
            for name in around:
                found[name] += size
    except OSError as error:
        return MeshSizes(None, {}, f"{error.filename}: {error.strerror}")
    return MeshSizes(total, found)


def _files(place: str, steps: Container[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the size of each file, with the steps in whose directories it lies."""
    whole = [""] if "" in steps else []
    if not os.path.isdir(place):  # noqa: PTH112 - a text
        yield os.path.getsize(place), whole  # noqa: PTH202
        return
    # Directories to list: the path, the path inside of the place, and the steps around.
    pending = [(place, "", whole)]
    while pending:
        path, inner, around = pending.pop()
        # Another program may remove files and directories meanwhile.
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    name = f"{inner}/{entry.name}" if inner else entry.name
                    within = [*around, name] if name in steps else around
                    pending.append((entry.path, name, within))
                    continue
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False).st_size, around
