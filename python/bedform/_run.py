"""The command ``bedform run``: runs any program and watches its reads.

The library ``libbedform_preload.so`` is appended to ``LD_PRELOAD``, so that the loader adds it to
the program. Programs that cannot load it are refused before they start.

Without a report this process becomes the program by ``exec``. With one it waits for the program and
passes signals on. It then merges the files that the program's processes left in a temporary
directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from bedform import _shown
from bedform._errors import ExistsError, InvalidArgumentError, NotFoundError
from bedform._output_file import OutputFile
from bedform._run_report import TABLE_BYTES, read_report
from bedform._text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["LIBRARY", "RunOptions", "become", "hand_over", "report_file", "run_and_report"]

LIBRARY: Final = Path(__file__).parent / "libbedform_preload.so"
#: The first bytes of a report in a file.
_HEAD: Final = b'{\n  "report": "bedform run",\n'
_SHEBANGS_MAX: Final = 4
_LINE_BYTES: Final = 256
_PROGRAM_HEADERS_MAX: Final = 1024
_INTERPRETER: Final = 3
#: Signals to pass on, most useful first; others must not be passed on.
_PASSED_ON: Final = (
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGWINCH,
)
#: Signals that the terminal sends to the program, too.
_LEFT_TO_PROGRAM: Final = (signal.SIGINT, signal.SIGQUIT)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of the preloaded library."""

    #: Least bytes of a read that is followed.
    min_bytes: int = 4096
    #: Bytes of the first readahead advice to the kernel.
    ahead_bytes: int = 8 << 20
    #: False only watches.
    advises: bool = True
    #: Also start programs that cannot load the library.
    force: bool = False
    #: False starts the program without the library.
    preloads: bool = True

    def environment(self) -> dict[str, str]:
        """Returns the environment variables of the options."""
        return {
            "BEDFORM_RUN_MIN": str(self.min_bytes),
            "BEDFORM_RUN_AHEAD": str(self.ahead_bytes),
            "BEDFORM_RUN_ADVISE": str(int(self.advises)),
        }


def become(command: Sequence[str], options: RunOptions) -> NoReturn:
    """Replace this process by the program, with the library preloaded.

    Raises
    ------
    NotFoundError
        The program does not exist, or the library was not built.
    InvalidArgumentError
        The program cannot load the library.
    """
    program = _checked(command, options)
    environment = _environment(options)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Python ignores these signals, and the program would inherit that.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    os.execve(program, list(command), environment)  # noqa: S606 - the user's own program


def run_and_report(command: Sequence[str], options: RunOptions) -> tuple[int, dict[str, Any]]:
    """Run a program; return its exit code, as a shell reports it, and the report.

    Raises as `become`.
    """
    program = _checked(command, options)
    parts = Path(tempfile.mkdtemp(prefix="bedform-run-", dir=_memory_directory()))
    try:
        environment = {**_environment(options), "BEDFORM_RUN_REPORT": str(parts)}
        code = _run(program, command, environment)
        report = {
            "report": "bedform run",
            "command": [_shown.printable(word) for word in command],
            "exit_code": code,
            "min_bytes": options.min_bytes,
            **read_report(parts),
        }
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    return code, report


def report_file(place: str, *, overwrite: bool) -> OutputFile:
    """Return the file of a report; it replaces earlier reports, or any file if ``overwrite``."""
    return OutputFile(place, "report of bedform run", _is_report, "--overwrite", overwrite)


def hand_over(report: Mapping[str, Any], file: OutputFile | None) -> str | None:
    """Write a report to its file, or to stderr without one; return what the user has to know.

    Raises
    ------
    As `OutputFile.write`, but for a file that another program has written meanwhile: the report
    then stands beside it.
    """
    text = _shown.as_json(json.dumps(report, indent=2, ensure_ascii=False)) + "\n"
    if file is None:
        sys.stderr.write(text)
        sys.stderr.flush()
        return _uncounted(report)
    try:
        file.write(text)
    except ExistsError:
        spare = dataclasses.replace(file, name=f"{file.name}.bedform-run")
        spare.write(text)
        return (
            f"{file.name!r} was written by another program meanwhile: the report is in "
            f"{spare.name!r}"
        )
    return _uncounted(report)


def _is_report(head: bytes) -> bool:
    return head.startswith(_HEAD)


def _uncounted(report: Mapping[str, Any]) -> str | None:
    count = report["unseen"]["uncounted_processes"]
    if not count:
        return None
    where = _memory_directory() or tempfile.gettempdir()
    return (
        f"the report lacks the reads of {count} {'process' if count == 1 else 'processes'}: each "
        f"counts in a file of {format_bytes(TABLE_BYTES)}, and the limit of file sizes (ulimit -f) "
        f"is below that, or {where} is full"
    )


def _run(program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the program, passes signals on, and waits for it."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        elif child.returncode is None:
            child.send_signal(number)

    before = {name: signal.signal(name, pass_on) for name in _PASSED_ON}
    before |= {name: signal.signal(name, lambda *_: None) for name in _LEFT_TO_PROGRAM}
    try:
        child = subprocess.Popen(  # noqa: S603 - the user's own program
            list(command), executable=program, env=dict(environment), close_fds=False
        )
        for number in early:
            child.send_signal(number)
        code = _exit_code_of(child)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    return code if code >= 0 else 128 - code


def _exit_code_of(child: subprocess.Popen[bytes]) -> int:
    """Waits for the program to end.

    A signal just before a plain wait would be delivered only after the program ends. Here a wakeup
    descriptor interrupts the wait.
    """
    try:
        ending = os.pidfd_open(child.pid)
    except OSError:
        # Old kernels and some containers refuse pidfd_open.
        return child.wait()
    woken, wakes = socket.socketpair()
    with woken, wakes:
        woken.setblocking(False)
        wakes.setblocking(False)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        ends = select.poll()
        for descriptor in (ending, woken.fileno()):
            ends.register(descriptor, select.POLLIN)
        try:
            while (code := child.poll()) is None:
                ends.poll()
                with contextlib.suppress(BlockingIOError):
                    woken.recv(1 << 12)
        finally:
            signal.set_wakeup_fd(before)
            os.close(ending)
    return code


def _memory_directory() -> str | None:
    """Returns a directory in memory, since counters change at every read; None for the default."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None  # noqa: S108


def _environment(options: RunOptions) -> dict[str, str]:
    if not options.preloads:
        return dict(os.environ)
    environment = {**os.environ, **options.environment()}
    environment.pop("BEDFORM_RUN_REPORT", None)
    loaded = environment.get("LD_PRELOAD", "")
    if str(LIBRARY) not in loaded.replace(":", " ").split():
        environment["LD_PRELOAD"] = f"{loaded}:{LIBRARY}" if loaded else str(LIBRARY)
    return environment


def _checked(command: Sequence[str], options: RunOptions) -> str:
    """Returns the path of a program that can load the library."""
    if options.preloads and not LIBRARY.exists():
        raise NotFoundError(f"{LIBRARY}: the library of bedform run was not built: run make build")
    if options.preloads and set(str(LIBRARY)) & set(" :"):
        raise InvalidArgumentError(
            f"Bedform is installed at {str(LIBRARY)!r}, and the loader takes no path with spaces "
            "or colons: install it in another place"
        )
    found = program_path(command[0])
    reason = None if options.force or not options.preloads else why_unseen(Path(found))
    if reason is not None:
        raise InvalidArgumentError(f"{found!r} {reason}; --force starts it all the same")
    return found


def program_path(name: str) -> str:
    """Return the path of a program by its name.

    Raises
    ------
    NotFoundError
        There is none, or it is not executable.
    """
    found = shutil.which(name)
    if found is None:
        exists = os.path.lexists(name)
        remedy = "no program: make it executable" if exists else "no such program: check the name"
        raise NotFoundError(f"{name}: {remedy}")
    return found


def loader_of(file: BinaryIO) -> bytes | None:
    """Return the loader of an open program; None or empty for others, and for static ones."""
    head = file.read(_LINE_BYTES)
    return _interpreter_of(head, file.fileno()) if head.startswith(b"\x7fELF") else None


def why_unseen(program: Path) -> str | None:
    """Returns the reason why a program cannot load the library; None if it can, or if unknown."""
    for part in interpreters(program):
        name = "" if part == program else f"is run by {str(part)!r}, which "
        try:
            with part.open("rb") as file:
                reason = _why_not(file.read(_LINE_BYTES), file.fileno(), part)
        except OSError:
            # Starting the program will report the error.
            return None
        if reason is not None:
            return name + reason
    return None


def interpreters(program: Path) -> Iterator[Path]:
    """Iterate over a program and, for a script, its interpreters."""
    yield program
    for _ in range(_SHEBANGS_MAX):
        try:
            with program.open("rb") as file:
                line = file.readline(_LINE_BYTES)
        except OSError:
            return
        words = line[2:].split()
        if not line.startswith(b"#!") or not words:
            return
        program = Path(os.fsdecode(words[0]))
        yield program


def _why_not(head: bytes, file: int, program: Path) -> str | None:
    status = os.fstat(file)
    is_other_user = status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()
    is_other_group = status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    if is_other_user or is_other_group or _has_capabilities(program):
        return "runs with the rights of another user, and the loader preloads nothing into it"
    if not head.startswith(b"\x7fELF"):
        return None
    own = _elf_head()
    if head[4:6] != own[4:6] or head[18:20] != own[18:20]:
        return "is made for another kind of processor than Bedform"
    interpreter = _interpreter_of(head, file)
    if interpreter is None:
        return "is linked statically: nothing can be preloaded into it, and its reads are not seen"
    if b"musl" in interpreter and b"musl" not in (_own_interpreter() or b""):
        return "uses another C library than Bedform (musl), which cannot load the library"
    return None


def _has_capabilities(program: Path) -> bool:
    try:
        return "security.capability" in os.listxattr(program)
    except OSError:
        return False


def _elf_head() -> bytes:
    with Path(sys.executable).open("rb") as file:
        return file.read(_LINE_BYTES)


def _own_interpreter() -> bytes | None:
    with Path(sys.executable).open("rb") as file:
        return _interpreter_of(file.read(_LINE_BYTES), file.fileno())


def _interpreter_of(head: bytes, file: int) -> bytes | None:
    """Returns the loader of a 64-bit ELF file; None without one, and empty if it is damaged."""
    is_64_bits, order = head[4:5] == b"\x02", "<" if head[5:6] == b"\x01" else ">"
    if len(head) < 64 or not is_64_bits:
        return b""
    at, size, count = struct.unpack_from(f"{order}Q14xHH", head, 32)
    if size != struct.calcsize("IIQQQQQQ") or count > _PROGRAM_HEADERS_MAX:
        return b""
    try:
        headers = os.pread(file, size * count, at)
        for kind, _, offset, _, _, bytes_, _, _ in struct.iter_unpack(f"{order}IIQQQQQQ", headers):
            if kind == _INTERPRETER:
                return os.pread(file, min(bytes_, 4096), offset).rstrip(b"\0")
    except (OSError, OverflowError, struct.error):
        return b""
    return None
