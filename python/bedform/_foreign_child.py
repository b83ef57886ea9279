"""A chunk map made in a process of its own.

HDF5 can crash or loop on damaged files. What it does to a child process is an error of one line
here; the answer is kept, so that the process is paid for once for each file.

The child writes the length of the description (8 bytes, little-endian), the description, and for
each chunk table its number of chunks (8) and its columns.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from bedform._foreign import ChunkMapParts, ForeignFileError, chunk_map, file_kind

if TYPE_CHECKING:
    from pathlib import Path

    from bedform._foreign_storage import ChunkTable

__all__ = ["isolated_chunk_map"]

_MEMORY_BYTES_MAX: Final = 4 << 30
_REFUSED: Final = 3
_COLUMNS: Final = ("<u8", "<u8", "<u8", "<u4")


def isolated_chunk_map(
    path: str | Path,
    *,
    allow_external: bool = False,
    group: str | None = None,
    seconds: float = 300,
) -> ChunkMapParts:
    """The same as `chunk_map`, made in a child process that may take so many seconds and 4 GiB.

    Raises
    ------
    ForeignFileError
        As `chunk_map`; also where HDF5 crashes on the file or does not come to an end.
    """
    # A wrong path or kind needs no process.
    file_kind(path)
    arguments = [str(path), str(int(allow_external)), *([] if group is None else [group])]
    # The caller's own interpreter, with arguments and no shell.
    command = [sys.executable, "-m", "bedform._foreign_child", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        message = (
            f"{path}: HDF5 did not come to an end in {seconds:g} s; it is damaged, or very large"
        )
        raise ForeignFileError(message) from error
    if done.returncode == 0:
        return _read_parts(memoryview(done.stdout))
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode == _REFUSED and said:
        kind, _, message = said[-1].partition(" ")
        raise ForeignFileError(message, kind)
    message = f"{path}: HDF5 crashed on it (exit status {done.returncode}); it is damaged"
    raise ForeignFileError(message)


def _read_parts(data: memoryview) -> ChunkMapParts:
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


def _main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path, allow_external, *group = sys.argv[1:]
    try:
        parts = chunk_map(
            path, allow_external=allow_external == "1", group=group[0] if group else None
        )
    except ForeignFileError as error:
        sys.stderr.write(f"{error.kind} {error}\n")
        return _REFUSED
    _write_parts(parts, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
