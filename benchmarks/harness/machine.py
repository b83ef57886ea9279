"""The machine and the versions that a result was measured with."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Returns the machine's properties that readers of the results need."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": first_field("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{int(first_field('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.1f} GiB",
        "kernel": platform.release(),
        "file system": file_system(Path(__file__)),
        "huge pages": Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
        "load at start": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "python": platform.python_version(),
    }


def first_field(path: str, name: str) -> str:
    """Return the first value of `name` in a file of `name: value` lines."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def file_system(path: Path) -> str:
    """Return type and options of the mount that holds `path`."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if str(path).startswith(mount) and len(mount) >= len(best[0]):
            best = (mount, f"{kind} ({options})")
    return best[1]
