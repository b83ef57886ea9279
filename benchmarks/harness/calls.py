"""The system calls of a writer (writes, bytes, opens, syncs), counted by `strace`.

Only calls on files under one folder count. The traced run is separate from the measured ones.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
SYNCS = ("fsync", "fdatasync", "sync_file_range", "syncfs")
OPENS = ("open", "openat", "openat2", "creat")
LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\)\s+= (-?\d+)")


@dataclass
class Calls:
    """Counts over all processes."""

    writes: int = 0
    bytes: int = 0
    files: int = 0
    syncs: int = 0


def is_here() -> bool:
    """Whether `strace` is installed."""
    return shutil.which("strace") is not None


def traced(command: list[str], output: Path) -> list[str]:
    """Returns the command under `strace`; each of its processes writes `output.PID`."""
    names = ",".join((*WRITES, *SYNCS, *OPENS))
    options = ["-ff", "-y", "-q", "-s", "0", "-e", f"trace={names}", "-o", str(output)]
    # Other calls are not traced: processes that wait by yielding make millions of them.
    return ["strace", "--seccomp-bpf", *options, *command]


def count(output: Path, folder: Path) -> Calls:
    """Counts the calls on files under `folder` in the output of `traced`.

    `write(3</data/x>, ""..., 10) = 10` counts as one write of ten bytes if `folder` is `/data`.
    """
    found = Calls()
    for path in output.parent.glob(output.name + ".*"):
        with path.open(errors="replace") as lines:
            for line in lines:
                add(found, line, str(folder))
    return found


def add(found: Calls, line: str, folder: str) -> None:
    """Add one line."""
    match = LINE.match(line)
    if match is None or folder not in line or int(match[3]) < 0:
        return
    name = match[1]
    if name in WRITES:
        found.writes += 1
        found.bytes += int(match[3])
    elif name in SYNCS:
        found.syncs += 1
    elif name in OPENS and "O_CREAT" in line:
        found.files += 1
