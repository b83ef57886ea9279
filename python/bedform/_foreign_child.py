"""A chunk map made in a child process.

HDF5 can crash or loop on damaged files. A crash of the child becomes an error of one line here. The
map is kept, so each file needs the process only once.

The child writes one byte before it opens the file; if it ends earlier, the file is not at fault.
Then it writes the length of the description (8 bytes, little-endian), the description, and for each
chunk table its number of chunks (8 bytes) and its columns.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from bedform import _shown
from bedform._foreign_names import ForeignFileError
from bedform._hdf5 import native_environment
from bedform._limits import limit_met, memory_bytes_max, memory_remedy
from bedform._python_command import python_command
from bedform._text import format_bytes, parse_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from bedform._foreign import ChunkMapParts
    from bedform._foreign_storage import ChunkTable

__all__ = ["SlowOpenWarning", "failure", "isolated_chunk_map", "time_limit"]

_TIME: Final = "BEDFORM_MAP_TIME"
_SECONDS: Final = 20.0
#: Seconds after which a warning explains the delay.
_QUIET_SECONDS: Final = 2.0
_MEMORY_BYTES_MAX: Final = 4 << 30
_REFUSED: Final = 3
_READY: Final = b"\x01"
_COLUMNS: Final = ("<u8", "<u8", "<u8", "<u4")
#: Signals from outside the process, or from the system at a limit.
_SENT: Final = {
    signal.SIGHUP: "it was ended from outside",
    signal.SIGINT: "it was ended from outside",
    signal.SIGTERM: "it was ended from outside",
    signal.SIGKILL: "it was killed, as a system does whose memory is used up: free some, or raise "
    "the limit on memory of its control group",
    signal.SIGXCPU: "raise the limit on processor time (RLIMIT_CPU) with ulimit -t",
    signal.SIGXFSZ: "raise the limit on the size of a file (RLIMIT_FSIZE) with ulimit -f",
}


class SlowOpenWarning(UserWarning):
    """Opening a file takes longer than two seconds."""


def isolated_chunk_map(
    path: str | Path,
    *,
    allow_external: bool = False,
    group: str | None = None,
    seconds: float | str | None = None,
) -> ChunkMapParts:
    """Makes the map of `chunk_map` in a child process, limited to 4 GiB and the given time.

    `seconds` is a number or a time such as ``"2min"``; the default is `BEDFORM_MAP_TIME`, or else
    20 s.

    Raises
    ------
    ForeignFileError
        As `chunk_map`; also if HDF5 crashes or exceeds the time, or the system limits the process.
    """
    # Importing h5py takes 0.1 s: only when such a file is opened.
    from bedform._foreign import file_kind

    limit = time_limit(seconds)
    # A wrong path or format needs no process.
    file_kind(path)
    arguments = [str(path), str(int(allow_external)), *([] if group is None else [group])]
    command = python_command("bedform._foreign_child", arguments)
    # The child computes nothing, and idle threads would count against the limits.
    environment = {**native_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        child = subprocess.Popen(  # noqa: S603
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        _, remedy = limit_met(error) or ("", "the system gave none")
        message = f"{path}: no process could be started to read it ({error.strerror}): {remedy}"
        raise ForeignFileError(message, "Io") from error
    try:
        output, said = _outcome(path, child, limit)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    if child.returncode == 0:
        return _read_parts(memoryview(output)[len(_READY) :])
    lines = said.decode("utf-8", "replace").strip().splitlines()
    raise failure(path, child.returncode, is_ready=output.startswith(_READY), said=lines)


def time_limit(given: float | str | None) -> float:
    """Returns the seconds for HDF5: the argument, the environment variable, or the default."""
    name, text = ("map_time", given) if given is not None else (_TIME, os.environ.get(_TIME))
    if given is None and not text:
        return _SECONDS
    try:
        seconds = parse_seconds(text) if isinstance(text, str) else float(text or 0)
    except ValueError as error:
        raise ForeignFileError(f"{name}: {error}", "InvalidArgument") from None
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ForeignFileError(f"{name} must be a time above 0, not {text!r}", "InvalidArgument")
    return seconds


def _outcome(path: str | Path, child: subprocess.Popen[bytes], limit: float) -> tuple[bytes, bytes]:
    """Returns the child's output; warns of the delay after two seconds."""
    remedy = f"give it more with map_time= or {_TIME}, such as 5min"
    left = limit
    if limit > _QUIET_SECONDS:
        try:
            return child.communicate(timeout=_QUIET_SECONDS)
        except subprocess.TimeoutExpired:
            said = f"{path}: HDF5 still looks for where its data lie, {limit:g} s at most: {remedy}"
            warnings.warn(_shown.line(said), SlowOpenWarning, stacklevel=9)
            left -= _QUIET_SECONDS
    try:
        return child.communicate(timeout=left)
    except subprocess.TimeoutExpired as error:
        message = (
            f"{path}: HDF5 did not come to an end in {limit:g} s; it is very large, or damaged: "
            f"{remedy}"
        )
        raise ForeignFileError(message, "LimitExceeded") from error


def failure(path: str | Path, code: int, *, is_ready: bool, said: list[str]) -> ForeignFileError:
    """Returns the error for a child that exited with this code, after these lines."""
    last = said[-1] if said else f"exit status {code}"
    if code == _REFUSED and said:
        kind, _, message = last.partition(" ")
        return ForeignFileError(message, kind)
    if -code in _SENT:
        ended = _SENT[signal.Signals(-code)]
        message = f"{path}: the process that reads it got {signal.Signals(-code).name}: {ended}"
        return ForeignFileError(message, "Io")
    if code > 0 or not is_ready:
        met = limit_met("\n".join(said))
        kind, remedy = met or ("Io", f"it could not be started as {sys.executable}")
        if met is None and (bound := memory_bytes_max()) is not None:
            remedy = f"it may have {format_bytes(bound)}: {memory_remedy()}"
        message = f"{path}: the process that reads it failed ({last}): {remedy}"
        return ForeignFileError(message, kind)
    crashed = f"{path}: HDF5 crashed on it (exit status {code})"
    bound = memory_bytes_max()
    if bound is not None and bound < _MEMORY_BYTES_MAX:
        message = f"{crashed} within {format_bytes(bound)}; {memory_remedy()}, or it is damaged"
        return ForeignFileError(message, "LimitExceeded")
    return ForeignFileError(f"{crashed}; it is damaged")


def _read_parts(data: memoryview) -> ChunkMapParts:
    from bedform._foreign import ChunkMapParts

    at = 8 + int.from_bytes(data[:8], "little")
    description = bytes(data[8:at])
    tables = []
    while at < len(data):
        count = int.from_bytes(data[at : at + 8], "little")
        at += 8
        columns: list[Any] = []
        for dtype in _COLUMNS:
            columns.append(np.frombuffer(data, dtype, count, at))
            at += columns[-1].nbytes
        table: ChunkTable = (columns[0], columns[1], columns[2], columns[3])
        tables.append(table)
    return ChunkMapParts(description, tables)


def _write_parts(parts: ChunkMapParts, output: BinaryIO) -> None:
    output.write(len(parts.description).to_bytes(8, "little"))
    output.write(parts.description)
    for table in parts.tables:
        output.write(len(table[0]).to_bytes(8, "little"))
        indexes, offsets, lengths, masks = table
        output.writelines(column.astype("<u8").tobytes() for column in (indexes, offsets, lengths))
        output.write(masks.astype("<u4").tobytes())


def _limit_memory() -> None:
    """Limits the memory of the process to the need of a map and the caller's own limit."""
    bound = min(_MEMORY_BYTES_MAX, memory_bytes_max() or _MEMORY_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> int:
    from bedform._foreign import chunk_map

    _limit_memory()
    path, allow_external, *group = sys.argv[1:]
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    try:
        parts = chunk_map(
            path, allow_external=allow_external == "1", group=group[0] if group else None
        )
    except ForeignFileError as error:
        sys.stderr.write(f"{error.kind} {_shown.line(error)}\n")
        return _REFUSED
    _write_parts(parts, sys.stdout.buffer)
    return 0
