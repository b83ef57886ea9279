"""The report of ``bedform run``: the merged counts of a program's processes.

Each process leaves a table of records: see ``crates/bedform-preload/src/record.rs``. It is valid at
any time, since the processes count directly in it, and it outlives them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TABLE_BYTES", "read_report"]

_KINDS: Final = (
    "contiguous",
    "strided",
    "composed_rows",
    "composed",
    "correlated",
    "interleaved",
    "other",
)
_COUNTERS: Final = ("reads", "bytes", "followed_reads", "followed_bytes")
_LAST: Final = ("advised_bytes", "used_bytes", "maps", "left_out")
_RECORD: Final = np.dtype(
    [
        ("path", "S256"),
        *((name, "=u8") for name in _COUNTERS),
        ("predicted_reads", "=u8", (len(_KINDS),)),
        ("predicted_bytes", "=u8", (len(_KINDS),)),
        *((name, "=u8") for name in _LAST),
        ("spare", "=u8", (10,)),
    ]
)
_RECORDS: Final = 512
#: Bytes of the file in which a process counts.
TABLE_BYTES: Final = _RECORDS * _RECORD.itemsize
_MAGIC: Final = int.from_bytes(b"BFRUN001", "little")

_UNSEEN: Final = (
    "not seen: mapped files (mmap), io_uring, direct I/O, reads that bypass the C library, "
    "copies by the kernel (copy_file_range, sendfile: cp), "
    "programs that are linked statically or run as another user"
)


def read_report(directory: Path) -> dict[str, Any]:
    """Returns the merged counts of all processes: files by path, most bytes first."""
    processes: list[dict[str, Any]] = []
    files: dict[str, dict[str, Any]] = {}
    others = _empty()
    numbers = ("io_uring_rings", "direct_descriptors", "reads_left_out", "uncounted_processes")
    unseen = dict.fromkeys(numbers, 0)
    for part in sorted(directory.glob("*.part")):
        table = _table(part)
        if table is None:
            unseen["uncounted_processes"] += 1
            continue
        process, rest, records = table[0], table[1], table[2:]
        _add(others, rest)
        others["files"] += int(process["followed_reads"])
        unseen["io_uring_rings"] += int(process["followed_bytes"])
        unseen["direct_descriptors"] += int(process["predicted_reads"][0])
        unseen["reads_left_out"] += int(process["predicted_reads"][1])
        named = [record for record in records if record["path"]]
        for record in named:
            merged = files.setdefault(_text(record["path"]), _empty())
            merged["processes"] += 1
            _add(merged, record)
        program = _text(process["path"])
        processes.append({"id": int(process["bytes"]), "program": program, "files": len(named)})
    ordered = sorted(files.items(), key=lambda item: (-item[1]["bytes"], item[0]))
    read = [{"path": path, **_shown(entry)} for path, entry in ordered if entry["reads"]]
    mapped = [path for path, entry in ordered if entry["maps"]]
    report: dict[str, Any] = {"processes": processes, "files": read}
    if others["reads"]:
        report["files_without_record"] = {"files": others["files"], **_shown(others)}
    return {**report, "unseen": {"mapped_files": mapped, **unseen, "note": _UNSEEN}}


def _table(part: Path) -> Any:
    """Returns the records of a process; None if they are incomplete."""
    try:
        data = part.read_bytes()
    except OSError:
        return None
    if len(data) != TABLE_BYTES:
        return None
    table = np.frombuffer(data, _RECORD)
    return table if table[0]["reads"] == _MAGIC else None


def _text(path: bytes) -> str:
    return os.fsdecode(path)


def _empty() -> dict[str, Any]:
    zero = dict.fromkeys(("processes", "files", *_COUNTERS, *_LAST), 0)
    return {**zero, "predicted_reads": [0] * len(_KINDS), "predicted_bytes": [0] * len(_KINDS)}


def _add(merged: dict[str, Any], record: Any) -> None:
    for name in (*_COUNTERS, *_LAST):
        merged[name] += int(record[name])
    for name in ("predicted_reads", "predicted_bytes"):
        merged[name] = [a + int(b) for a, b in zip(merged[name], record[name], strict=True)]


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    kinds = zip(_KINDS, entry["predicted_reads"], entry["predicted_bytes"], strict=True)
    patterns = [
        {
            "kind": kind,
            "reads": reads,
            "bytes": bytes_,
            "share_of_reads": _share(reads, entry["followed_reads"]),
        }
        for kind, reads, bytes_ in kinds
        if reads
    ]
    return {
        "processes": entry["processes"],
        **{name: entry[name] for name in _COUNTERS},
        "patterns": patterns,
        "predicted_share": _share(sum(entry["predicted_bytes"]), entry["followed_bytes"]),
        **{name: entry[name] for name in _LAST},
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
