"""Reads through the HDF5 library in a worker process.

HDF5 can crash or loop on damaged files, and files may come from anywhere. A crash of the worker
becomes an error of one line here. One worker serves all reads of this process, one after another.
It exits after a minute without requests and is restarted on demand.

A request is a line of JSON. An answer is one byte before the file is opened, two lengths (8 bytes
each, little-endian), a header in JSON and a body: see `_foreign_values`. The system's alarm clock
ends a worker that exceeds its time.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final

from bedform import _fork, _shown
from bedform._foreign_child import failure, time_limit
from bedform._foreign_names import ForeignFileError
from bedform._foreign_plugins import has_filters, lacking, load_plugins, plugin_sources
from bedform._foreign_values import decode_values, encode_values
from bedform._hdf5 import native_environment
from bedform._limits import limit_met, memory_bytes_max
from bedform._python_command import python_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["read_native", "read_region"]

_IDLE_SECONDS: Final = 60
_MEMORY_BYTES_MAX: Final = 4 << 30
#: A rate that any device and filter reaches, in bytes per second.
_BYTES_PER_SECOND: Final = 1 << 20
_HEADER_BYTES_MAX: Final = 1 << 30
_READY: Final = b"\x01"


def lengths_of(slices: Sequence[slice], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the number of elements that slices take along each axis."""
    axes = zip(slices, shape, strict=True)
    return tuple(len(range(*part.indices(size))) for part, size in axes)


def read_native(
    path: str | Path,
    variable: str,
    selection: tuple[slice, ...] | None = None,
    *,
    shape: tuple[int, ...],
    item_bytes: int,
    filters: Sequence[int] = (),
    allow_external: bool = False,
    seconds: float | str | None = None,
) -> npt.NDArray[Any]:
    """Reads as `_foreign.read_native` does, in the worker process.

    Parameters
    ----------
    path, variable, shape, allow_external
        As in `_foreign.read_native`.
    selection
        Slices with positive steps; None for everything.
    item_bytes
        Approximate bytes of an element.
    filters
        The numbers of the variable's filters. The worker lacks filters that this process registered
        for itself.
    seconds
        As for `isolated_chunk_map`.

    Raises
    ------
    ForeignFileError
        As in `_foreign.read_native`; also if HDF5 crashes or exceeds its time.
    """
    sizes: Sequence[int] = shape
    if selection is not None:
        sizes = lengths_of(selection, shape)
    slices = None if selection is None else [[p.start, p.stop, p.step] for p in selection]
    request = {"slices": slices, "shape": shape, "filters": filters}
    expected = math.prod(sizes) * item_bytes
    return _read(path, variable, request, expected, seconds, allow_external=allow_external)


def read_region(
    path: str | Path,
    variable: str,
    start: Sequence[int],
    lengths: Sequence[int],
    *,
    shape: tuple[int, ...],
    item_bytes: int = 16,
    filters: Sequence[int] = (),
    allow_external: bool = False,
    seconds: float | str | None = None,
) -> npt.NDArray[Any]:
    """Reads as `_foreign.read_region` does, in the worker; arguments as in `read_native`."""
    region = {"start": list(start), "lengths": list(lengths)}
    request = {**region, "shape": shape, "filters": filters}
    expected = math.prod(lengths) * item_bytes
    return _read(path, variable, request, expected, seconds, allow_external=allow_external)


def _read(
    path: str | Path,
    variable: str,
    request: dict[str, Any],
    expected: int,
    seconds: float | str | None,
    *,
    allow_external: bool,
) -> npt.NDArray[Any]:
    request |= {
        "path": str(path),
        "variable": variable,
        "allow_external": allow_external,
        # External files may be named relative to this directory.
        "directory": str(Path.cwd()),
        "seconds": time_limit(seconds) + expected / _BYTES_PER_SECOND,
        "bytes": expected,
    }
    try:
        return _worker.read(request)
    except _LacksFiltersError as error:
        if has_filters(error.filters):
            # The user registered the filters in this process: read here, without the worker.
            return _answer(request)
        raise


class _LacksFiltersError(ForeignFileError):
    """The worker lacks some filters of a variable."""

    def __init__(self, message: str, kind: str, filters: list[int]) -> None:
        super().__init__(message, kind)
        self.filters = filters


class _Worker:
    """The worker process and its pipes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.kind: tuple[Any, ...] = ()

    def read(self, request: dict[str, Any]) -> npt.NDArray[Any]:
        with self.lock:
            try:
                return self._ask(request)
            except ForeignFileError:
                raise
            except (ValueError, TypeError, KeyError) as error:
                self.stop()
                said = f"HDF5 gave no elements ({_shown.line(error)}); it is damaged"
                raise ForeignFileError(f"{request['path']}: {said}") from None
            except BaseException:
                # An unread answer would be taken for that of the next request.
                self.stop()
                raise

    def _ask(self, request: dict[str, Any]) -> npt.NDArray[Any]:
        line = json.dumps(request).encode() + b"\n"
        path = request["path"]
        for is_last in (False, True):
            process = self._running(path)
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line)
                process.stdin.flush()
            is_ready = process.stdout.read(1) == _READY
            answer = None
            if is_ready:
                answer = _take_answer(process.stdout, _memory_bytes(request["bytes"]))
            if answer is not None:
                return _values_of(*answer)
            said = self.stop()
            code = process.returncode
            # The worker may have exited just now, after its idle minute: try once more.
            if is_ready or code != 0 or is_last:
                raise _failure(path, code, said, request["seconds"], is_ready=is_ready)
        raise AssertionError

    def _running(self, path: str) -> subprocess.Popen[bytes]:
        wanted = _environment()
        if self.process is not None and (self.kind != wanted or self.process.poll() is not None):
            self.stop()
        if self.process is None:
            self.process, self.kind = _started(path), wanted
        return self.process

    def stop(self) -> list[str]:
        """Ends the worker; returns the lines of its error output."""
        process, self.process = self.process, None
        if process is None:
            return []
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        # A crashed worker exits and reports the reason; a looping one is killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
        said = b""
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                said = pipe.read()
                pipe.close()
        process.wait()
        return said.decode("utf-8", "replace").strip().splitlines()


_worker = _Worker()
atexit.register(lambda: _worker.stop())


def _enter_child() -> None:
    global _worker
    # The worker belongs to the parent, and its lock may be held.
    _fork.leave_behind(_worker)
    _worker = _Worker()


os.register_at_fork(after_in_child=_enter_child)


def _environment() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith("HDF5_")))


def _started(path: str) -> subprocess.Popen[bytes]:
    command = python_command("bedform._foreign_worker", plugin_sources())
    environment = {**native_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(  # noqa: S603
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        _, remedy = limit_met(error) or ("", "the system gave none")
        message = f"{path}: no process could be started to read it ({error.strerror}): {remedy}"
        raise ForeignFileError(message, "Io") from error


def _take_answer(pipe: IO[bytes], bytes_max: int) -> tuple[bytes, bytearray] | None:
    """Returns the header and the body of an answer; None if the worker ended too early."""
    lengths = pipe.read(16)
    if len(lengths) < 16:
        return None
    header_bytes = int.from_bytes(lengths[:8], "little")
    body_bytes = int.from_bytes(lengths[8:], "little")
    if header_bytes > _HEADER_BYTES_MAX or body_bytes > bytes_max:
        message = f"an answer of {header_bytes} and {body_bytes} bytes"
        raise ValueError(message)
    header, body = pipe.read(header_bytes), bytearray()
    while len(body) < body_bytes:
        part = pipe.read(min(body_bytes - len(body), 16 << 20))
        if not part:
            return None
        body += part
    return None if len(header) < header_bytes else (header, body)


def _values_of(header: bytes, body: bytearray) -> npt.NDArray[Any]:
    found = json.loads(header)
    if "error" in found:
        kind, message, lacks = found["error"]
        if lacks:
            raise _LacksFiltersError(str(message), str(kind), [int(code) for code in lacks])
        raise ForeignFileError(str(message), str(kind))
    return decode_values(found, memoryview(body))


def _failure(
    path: str, code: int, said: list[str], seconds: float, *, is_ready: bool
) -> ForeignFileError:
    """Returns the error for a worker that exited with this code before its answer."""
    if code != -signal.SIGALRM:
        return failure(path, code, is_ready=is_ready, said=said)
    message = (
        f"{path}: HDF5 did not come to an end in {seconds:.0f} s; it is very large, or damaged: "
        "give it more with map_time= or BEDFORM_MAP_TIME, such as 5min"
    )
    return ForeignFileError(message, "LimitExceeded")


def _answer(request: dict[str, Any]) -> npt.NDArray[Any]:
    """Reads the elements of a request in this process."""
    from bedform import _foreign as in_process

    path, variable = request["path"], request["variable"]
    shape, allow_external = tuple(request["shape"]), request["allow_external"]
    if "start" in request:
        region = request["start"], request["lengths"]
        return in_process.read_region(
            path, variable, *region, shape=shape, allow_external=allow_external
        )
    slices = request["slices"]
    selection = ... if slices is None else tuple(slice(*part) for part in slices)
    return in_process.read_native(
        path, variable, selection, shape=shape, allow_external=allow_external
    )


def _serve(source: BinaryIO, output: BinaryIO) -> None:
    """Answers requests until the input ends or a minute passes without one."""
    import h5py

    own = memory_bytes_max()
    while select.select([source], [], [], _IDLE_SECONDS)[0]:
        line = source.readline()
        if not line:
            return
        request = json.loads(line)
        output.write(_READY)
        output.flush()
        _limit_memory(request["bytes"], own)
        with contextlib.suppress(OSError):
            os.chdir(request["directory"])
        if not has_filters(request["filters"]):
            load_plugins(sys.argv[1:])
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        parts: list[bytes] = []
        try:
            header = encode_values(_answer(request), parts)
        except ForeignFileError as error:
            parts.clear()
            lacks = [code for code in request["filters"] if not h5py.h5z.filter_avail(code)]
            said = f"{_where(request)}: {lacking(lacks)}" if lacks else _said(error, request)
            header = {"error": [error.kind, _shown.line(said), lacks]}
        except MemoryError:
            parts.clear()
            message = f"{_where(request)} takes too much memory: read less of it at once"
            header = {"error": ["LimitExceeded", message, []]}
        # The alarm does not cover the time in which the reader takes the answer.
        signal.setitimer(signal.ITIMER_REAL, 0)
        text = json.dumps(header).encode()
        output.write(len(text).to_bytes(8, "little"))
        output.write(sum(map(len, parts)).to_bytes(8, "little"))
        output.write(text)
        output.writelines(parts)
        output.flush()


def _said(error: ForeignFileError, request: dict[str, Any]) -> str:
    """Returns an error's message with the file and the variable."""
    said = str(error)
    return said if said.startswith(request["path"]) else f"{_where(request)}: {said}"


def _where(request: dict[str, Any]) -> str:
    return f"{request['path']}: {request['variable']!r}"


def _memory_bytes(expected: int) -> int:
    """Returns the limit of memory, in bytes, for an answer of this size."""
    return _MEMORY_BYTES_MAX + 4 * expected


def _limit_memory(expected: int, own: int | None) -> None:
    """Limits the memory of the process to the answer's need and the caller's own limit."""
    bound = _memory_bytes(expected)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (bound if own is None else min(bound, own), hard))


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A terminal sends Ctrl-C to all its processes; only the caller reacts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    # Output of libraries goes to stderr, not into the answers.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, output)
