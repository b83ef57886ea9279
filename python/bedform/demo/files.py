"""The files of a demo: directory, names, free space.

Promises
--------
- Every name that the demo writes has its prefix, so that it never replaces the user's data.
- A demo replaces the results of an earlier demo of the same file.
- The demo deletes only files that it made.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._text import format_bytes, format_shape
from .field import PREFIX, Field, build_field, facts_of, open_input

if TYPE_CHECKING:
    from collections.abc import Callable

STORE = ".zarr"
#: Directories of sidecars, by the budget of their replicas.
REPLICAS = (".replicas-100", ".replicas-20")


def ignore(*_: object) -> None:
    """Does nothing, as a default callback."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of a demo."""

    input_file: Path | None = None
    variable: str | None = None
    #: Bytes of the extended built-in field.
    size: int = 384 << 20
    directory: Path | None = None
    keep: bool = True
    say: Callable[[str], None] = ignore
    progress: Callable[[int, int], None] = ignore


@dataclass(frozen=True)
class Subject:
    """The field of a demo, and the path prefix of all its results."""

    field: Field
    own: Path
    build_seconds: float
    #: Files of the built-in field that this run created.
    built: tuple[Path, ...]

    def named(self, ending: str) -> Path:
        """Returns the path of a result with this ending."""
        return self.own.with_name(self.own.name + ending)

    def clear(self) -> None:
        """Removes results of an earlier demo of the same file; fails for links in their place."""
        paths = [self.named(ending) for ending in (STORE, *REPLICAS)]
        for path in filter(Path.is_symlink, paths):
            raise FileExistsError(f"{str(path)!r} is a link: remove it, or choose another --dir")
        for path in filter(Path.exists, paths):
            # The prefix marks them as results of a demo.
            shutil.rmtree(path)

    def forget(self) -> None:
        """Removes the built-in field if this run created it."""
        for path in self.built:
            path.unlink(missing_ok=True)

    def where(self, request: DemoOptions, *directories: Path) -> str:
        """Returns a line on the kept files and the command that deletes them."""
        size = sum(map(bytes_below, directories))
        size += self.field.stored_bytes if request.input_file is None else 0
        delete = f"rm -r {shlex.quote(str(self.own))}.*"
        return f"kept in {self.own.parent}: {format_bytes(size)}; delete it with: {delete}"


def default_directory() -> Path:
    """Returns the default directory, in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bedform" / "demo"


def prepare(request: DemoOptions) -> Subject:
    """Builds or opens the input, in a directory with space for the demo.

    Raises
    ------
    ModuleNotFoundError
        The package with the built-in field is not installed.
    OSError
        The input cannot be read, or the directory has no room.
    """
    # Absolute, since the printed delete command may run in any directory.
    directory = (request.directory or default_directory()).absolute()
    started = time.monotonic()
    built: tuple[Path, ...] = ()
    if request.input_file is not None:
        field = open_input(request.input_file, request.variable)
        directory.mkdir(parents=True, exist_ok=True)
        # Space for the replicas of both budgets, and a margin.
        _check_room(directory, field.stored_bytes * 3 // 2, "choose another place with --dir")
    else:
        directory.mkdir(parents=True, exist_ok=True)
        # Space for the field and its copies, each compressed to about a half, and a margin.
        remedy = "choose another place with --dir or less with --size"
        _check_room(directory, request.size * 3 // 2, remedy)
        was_there = set(directory.iterdir())
        field = build_field(directory, request.size, request.say, request.progress)
        files = (Path(field.path), facts_of(Path(field.path)))
        built = tuple(path for path in files if path not in was_there)
    request.say(
        f"input: {field.path}, {field.variable} {format_shape(field.shape)}, "
        f"{format_bytes(field.byte_count)}"
    )
    own = directory / (PREFIX + Path(field.path).stem.removeprefix(PREFIX))
    return Subject(field, own, time.monotonic() - started, built)


def _check_room(directory: Path, needed: int, remedy: str) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"{str(directory)!r} has {format_bytes(free)} free and the demo needs "
            f"{format_bytes(needed)}: {remedy}"
        )


def bytes_below(directory: Path) -> int:
    """Returns the bytes of all files in a directory."""
    return sum(path.stat().st_size for path in files_below(directory))


def files_below(directory: Path) -> list[Path]:
    """Returns all files in a directory."""
    return [path for path in directory.rglob("*") if path.is_file()]
