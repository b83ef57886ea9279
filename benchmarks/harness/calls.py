"""What a writer asks of the system: writes, bytes, files and syncs, counted by `strace`.

Only calls on files under one folder count. The run is apart from those that are timed.
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
    """Tell whether `strace` can be run."""
    return shutil.which("strace") is not None


def traced(command: list[str], output: Path) -> list[str]:
    """Return the command under `strace`, each process of which writes `output.PID`."""
    names = ",".join((*WRITES, *SYNCS, *OPENS))
    options = ["-ff", "-y", "-q", "-s", "0", "-e", f"trace={names}", "-o", str(output)]
    # Other calls are not stopped at: processes that wait by yielding make millions of them.
    return ["strace", "--seccomp-bpf", *options, *command]


def count(output: Path, folder: Path) -> Calls:
    """Count the calls on files under `folder` in what `traced` left.

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
