"""Reads that Darshan recorded (DXT), and the share of them that patterns would have predicted.

The package ``darshan`` reads the logs in a child process, since its library is C and logs may come
from anywhere. It returns the reads of each file and rank. The analyzer gets them in the order of
their start times. A read counts as predicted if a pattern of earlier reads has it next.

The child writes the length of a header (8 bytes, little-endian), the header in JSON, and three
columns of 8 bytes per read: offset, length, start time in seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import resource
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal
from bedform._errors import (
    CorruptError,
    InvalidArgumentError,
    LimitExceededError,
    UnsupportedError,
)
from bedform._python_command import python_command

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["DarshanReads", "DarshanStream", "analyze", "learn_darshan", "read_log"]

_MODULES: Final = ("DXT_POSIX", "DXT_MPIIO")
_MEMORY_BYTES_MAX: Final = 4 << 30
_SECONDS: Final = 120
_READS_MAX: Final = 1 << 22
_REFUSED: Final = 3
#: Least reads of a stream for a prediction.
_READS_MIN: Final = 4


@dataclass(frozen=True)
class DarshanStream:
    """The reads of one file by one rank."""

    file: str
    rank: int
    module: str


@dataclass(frozen=True)
class DarshanReads:
    """The reads of a log: stream, offset, length and start time in seconds of each."""

    streams: list[DarshanStream]
    stream: npt.NDArray[np.uint64]
    offset: npt.NDArray[np.uint64]
    length: npt.NDArray[np.uint64]
    start: npt.NDArray[np.float64]


def learn_darshan(path: str | Path) -> dict[str, Any]:
    """Returns the share of the reads in a Darshan log that patterns predict.

    Parameters
    ----------
    path
        A log with DXT records (``DXT_ENABLE_IO_TRACE``).

    Raises
    ------
    ImportError
        The package ``darshan`` is not installed.
    FileNotFoundError, IsADirectoryError
        The file does not exist, or is a directory.
    CorruptError
        The file is not a Darshan log, or a damaged one.
    LimitExceededError
        The log exceeds the limit of analyzed reads, or takes too long to read.
    """
    return {"log": str(path), **analyze(read_log(path))}


def read_log(path: str | Path) -> DarshanReads:
    """Reads the DXT records of a log in a child process.

    If the reads of a file and rank were recorded by both POSIX and MPI-IO, only those of POSIX
    count. Raises as `learn_darshan`.
    """
    if importlib.util.find_spec("darshan") is None:
        raise UnsupportedError(
            "Darshan logs need the package darshan: pip install 'bedform[darshan]'"
        )
    mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        raise InvalidArgumentError(f"{path}: a directory, not a Darshan log")
    if not stat.S_ISREG(mode):
        raise InvalidArgumentError(f"{path}: no regular file, as Darshan logs are")
    command = python_command("bedform._darshan", [str(Path(path).absolute())])
    try:
        done = subprocess.run(  # noqa: S603 - this Python
            command, capture_output=True, check=False, timeout=_SECONDS, cwd="/"
        )
    except subprocess.TimeoutExpired:
        message = f"{path}: darshan did not come to its end in {_SECONDS} s: it is damaged, or huge"
        raise LimitExceededError(message) from None
    if done.returncode == 0 and not _complaint(done.stderr):
        return _decode(done.stdout)
    said = _complaint(done.stderr) or f"darshan crashed on it, exit status {done.returncode}"
    if "more than" in said:
        raise LimitExceededError(f"{path}: {said}")
    raise CorruptError(f"{path}: no Darshan log, or a damaged one ({said})")


def analyze(reads: DarshanReads) -> dict[str, Any]:
    """Returns the predicted reads by file and rank, by kind, and in total.

    Reads of no bytes, at the end of a file, are only counted.
    """
    # Sorted by stream, and within a stream by start time.
    order = np.lexsort((reads.start, reads.stream))
    order = order[reads.length[order] > 0]
    stream, offset, length = (
        np.ascontiguousarray(column[order]) for column in (reads.stream, reads.offset, reads.length)
    )
    codes, kinds = _internal.predicted(offset, length, stream)
    kind = np.frombuffer(codes, np.uint8)
    follows = np.zeros(len(stream), bool)
    follows[1:] = (stream[1:] == stream[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
    labels = np.array(["", *kinds, "contiguous"])[
        np.where(follows & (kind > 0), len(kinds) + 1, kind)
    ]
    files = []
    missing: dict[str, dict[str, int]] = {}
    starts = np.flatnonzero(np.diff(stream, prepend=np.uint64(1 << 63)))
    for first, end in itertools.pairwise([*starts.tolist(), len(stream)]):
        own = slice(first, end)
        found = reads.streams[int(stream[first])]
        entry = {"file": found.file, "rank": found.rank, "module": found.module}
        files.append({**entry, **_counted(length[own], labels[own])})
        _add_missing(missing, length[own], labels[own], follows[own])
    files.sort(key=lambda entry: (-entry["bytes"], entry["file"], entry["rank"]))
    return {
        "reads_at_end": int((reads.length == 0).sum()),
        **_counted(length, labels),
        "missing": missing,
        "files": files,
    }


def _add_missing(
    missing: dict[str, dict[str, int]], length: Any, labels: Any, follows: Any
) -> None:
    """Adds the reads of a stream that were not predicted, by reason."""
    is_missed = labels == ""
    if len(labels) < _READS_MIN:
        reasons = [(is_missed, "fewer than 4 reads of the file")]
    elif is_missed.mean() <= 0.5:
        reasons = [(is_missed, "where a pattern begins or ends")]
    else:
        reasons = [
            (is_missed & follows, "right behind the last read, but in no pattern"),
            (is_missed & ~follows, "no pattern"),
        ]
    for chosen, reason in reasons:
        if chosen.any():
            entry = missing.setdefault(reason, {"reads": 0, "bytes": 0})
            entry["reads"] += int(chosen.sum())
            entry["bytes"] += int(length[chosen].sum())


def _counted(length: Any, labels: Any) -> dict[str, Any]:
    is_predicted = labels != ""
    reads, bytes_ = len(length), int(length.sum())
    known = int(length[is_predicted].sum())
    return {
        "reads": reads,
        "bytes": bytes_,
        "predicted_reads": int(is_predicted.sum()),
        "predicted_bytes": known,
        "share_of_reads": _share(int(is_predicted.sum()), reads),
        "share_of_bytes": _share(known, bytes_),
        "kinds": _by(labels[is_predicted], length[is_predicted]),
    }


def _by(labels: Any, length: Any) -> dict[str, dict[str, int]]:
    """Returns reads and bytes of each label."""
    return {
        str(label): {
            "reads": int((labels == label).sum()),
            "bytes": int(length[labels == label].sum()),
        }
        for label in np.unique(labels)
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _complaint(said: bytes) -> str | None:
    """Returns the error that the child, or Darshan's library in it, printed."""
    lines = said.decode("utf-8", "replace").splitlines()
    wrong = [line.strip() for line in lines if line.lower().lstrip().startswith("error")]
    return wrong[-1].partition(":")[2].strip() or wrong[-1] if wrong else None


def _decode(data: bytes) -> DarshanReads:
    at = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:at])
    count = header["reads"]
    columns = [
        np.frombuffer(data, dtype, count, at + 8 * count * number)
        for number, dtype in enumerate(("<u8", "<u8", "<f8"))
    ]
    streams = [DarshanStream(*fields) for fields in header["streams"]]
    counts = np.array(header["counts"], np.int64)
    stream = np.repeat(np.arange(len(counts), dtype=np.uint64), counts)
    return DarshanReads(streams, stream, columns[0], columns[1], columns[2])


def _main() -> int:
    """Runs in the child: reads the log named by the argument, and writes its reads."""
    output = os.fdopen(os.dup(1), "wb")
    # Output of the library must not mix with the data.
    os.dup2(2, 1)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
    try:
        streams, counts, segments = _records(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - whatever the package makes of a damaged file
        sys.stderr.write(f"error: {' '.join(str(error).split()) or type(error).__name__}\n")
        return _REFUSED
    table = np.array(segments, np.dtype([("o", "<u8"), ("l", "<u8"), ("s", "<f8")]))
    header = json.dumps({"reads": len(table), "streams": streams, "counts": counts}).encode()
    output.write(len(header).to_bytes(8, "little") + header)
    for name in ("o", "l", "s"):
        output.write(np.ascontiguousarray(table[name]).tobytes())
    output.close()
    return 0


def _records(path: str) -> tuple[list[tuple[str, int, str]], list[int], list[Any]]:
    """Returns the streams of a log, the number of reads of each, and the reads."""
    from darshan.backend import cffi_backend as backend

    log = backend.log_open(path)
    if log["handle"] == backend.ffi.NULL:
        raise ValueError("it cannot be opened as one")
    modules = backend.log_get_modules(log)
    names = backend.log_get_name_records(log)
    found: dict[tuple[str, int], tuple[str, list[Any]]] = {}
    total = 0
    for module in _MODULES:
        if module not in modules:
            continue
        while (record := backend.log_get_dxt_record(log, module)) is not None:
            key = (str(names.get(record["id"], record["id"])), int(record["rank"]))
            reads = [_segment(segment) for segment in record["read_segments"]]
            total += len(reads)
            if total > _READS_MAX:
                raise ValueError(f"more than {_READS_MAX} reads")
            # The same reads may be recorded once more as those of MPI-IO.
            if reads and found.setdefault(key, (module, []))[0] == module:
                found[key][1].extend(reads)
    streams = [(*key, module) for key, (module, _) in found.items()]
    counts = [len(reads) for _, reads in found.values()]
    return streams, counts, [segment for _, reads in found.values() for segment in reads]


def _segment(segment: dict[str, Any]) -> tuple[int, int, float]:
    offset, length = int(segment["offset"]), int(segment["length"])
    if offset < 0 or length < 0:
        raise ValueError("a read lies before the beginning of its file")
    return offset, length, float(segment["start_time"])
