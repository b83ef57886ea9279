"""Whether a source is as it was."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def state_of(source: Path) -> str:
    """Names, sizes and times of all files of the source, and of the roots of its log, as a number.

    The number does not depend on the order of the files, so that no list of them is kept.
    """
    roots = source.resolve().with_name(f"{source.resolve().name}.bedform-log") / "roots"
    total = 0
    for name, stat in itertools.chain(_files(source, ""), _files(roots, "roots/")):
        line = f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}"
        total += int.from_bytes(hashlib.blake2b(os.fsencode(line), digest_size=16).digest())
    return f"{total % (1 << 128):032x}"


def _files(place: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files at and below a place, but for those that writers hide."""
    if place.is_file():
        yield name, place.stat()
        return
    inner = [(place, name)] if place.is_dir() else []
    while inner:
        directory, prefix = inner.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(".bedform-"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    inner.append((Path(entry.path), f"{prefix}{entry.name}/"))
                elif entry.is_file():
                    yield prefix + entry.name, entry.stat()
