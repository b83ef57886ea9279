"""Shared parts of all commands: output, error messages, progress, exit codes."""

from __future__ import annotations

import errno
import inspect
import json
import math
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from .. import _shown
from .._limits import memory_remedy
from .._text import format_elements, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from bedform._store import Store

_MEMORY_MIN = 1 << 20

EXIT_YES = 0
EXIT_NO = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

ConcatOption = Annotated[
    str | None,
    typer.Option("--concat-dim", help="The dimension along which many files are joined."),
]
CompatOption = Annotated[
    str,
    typer.Option(
        "--compat",
        help="The checks that many files must pass: equals (the default), or override: none, and "
        "coordinates are those of the first file.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.")
]


class ReaderGone(BaseException):
    """The reader of stdout has closed its end."""


def emit(value: Any, rendered: RenderableType, as_json: bool) -> None:
    """Prints a result, as JSON or as rendered text."""
    try:
        _write(value, rendered, as_json)
    except BrokenPipeError:
        raise ReaderGone from None


def _write(value: Any, rendered: RenderableType, as_json: bool) -> None:
    if as_json:
        document = json.dumps(to_json(value), indent=2, ensure_ascii=False)
        sys.stdout.write(_shown.as_json(document) + "\n")
    else:
        is_terminal = sys.stdout.isatty()
        # Wide enough for tables in a file or pipe; a terminal has its own width.
        width = None if is_terminal or "COLUMNS" in os.environ else 120
        console = Console(file=sys.stdout, width=width, highlight=False)
        # Captured first: Rich itself would end the process when the reader closes the pipe.
        with console.capture() as captured:
            # Only a terminal gets wrapped lines; in a file a message stays one line.
            console.print(_Printable(rendered), crop=False, soft_wrap=not is_terminal)
        sys.stdout.write(captured.get())
    sys.stdout.flush()


class _Printable:
    """A renderable whose text is made printable for terminals."""

    def __init__(self, rendered: RenderableType) -> None:
        self.rendered = rendered

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.rendered, options):
            text = segment.text if segment.control else _shown.lines(segment.text)
            yield Segment(text, segment.style, segment.control)


def cell(value: object, style: str = "") -> Text:
    """Returns a name or value for a table, made printable."""
    return Text(_shown.printable(value), style=style)


def paragraph(text: object) -> Text:
    """Returns lines of a result, each bounded in length."""
    return Text(_shown.lines(text))


def note(line: str) -> None:
    """Prints a line to stderr."""
    sys.stderr.write(_shown.line(line) + "\n")


def to_json(value: Any) -> Any:
    """Converts a result to JSON values; numbers that JSON lacks become their names."""
    if isinstance(value, dict):
        return {_key(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        # Lists of times would be counts of nanoseconds.
        return format_elements(value) if value.dtype.kind == "M" else to_json(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(entry) for entry in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, complex):
        return [to_json(value.real), to_json(value.imag)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _key(key: Any) -> str:
    return ",".join(map(str, key)) if isinstance(key, tuple) else str(key)


@contextmanager
def progress(
    title: str, *, then: str | None = None, is_bytes: bool = True
) -> Iterator[Callable[[int, int], None]]:
    """Yields ``report(done, total)``, shown on a terminal once a second has passed.

    ``then`` is the title of a second pass, which counts from 0 again.
    """
    console = Console(file=sys.stderr)
    unit = DownloadColumn(binary_units=True) if is_bytes else TaskProgressColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), unit, TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    started = time.monotonic()
    task: TaskID | None = None
    last = 0

    def report(done: int, total: int) -> None:
        nonlocal task, title, last
        if done < last and then is not None:
            title = then
            if task is not None:
                # Resets the clock, too: the remaining time is that of this pass.
                bar.reset(task, description=title)
        last = done
        if task is None and console.is_terminal and time.monotonic() - started > 1:
            bar.start()
            task = bar.add_task(title, total=total)
        if task is not None:
            bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if task is not None:
            bar.stop()


def help_of(command: Callable[..., None]) -> str:
    """Returns a command's docstring with one line per paragraph, for the terminal to wrap."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def memory_of(text: str) -> int:
    """Returns the bytes of a memory limit; refuses numbers without a unit."""
    count = parse_bytes(text)
    if count < _MEMORY_MIN:
        raise ValueError(
            f"memory {text!r} is less than 1 MiB: write a number and a unit, such as 512MiB"
        )
    return count


def readers_of(names: list[str] | None) -> Any:
    """Returns the readers of a command: any, unless some are named."""
    return "any" if names in (None, [], ["any"]) else names


def open_source(path: str, concat_dim: str | None = None, compat: str = "equals") -> Any:
    """Opens a store or foreign files, after checks with more helpful messages."""
    from .._opening import open_place
    from .._paths import paths_of

    if paths_of(path) is None and concat_dim is None:
        check_there(path)
        return open_place(path)
    with progress("opening", is_bytes=False) as report:
        return open_place(path, concat_dim=concat_dim, compat=compat, progress=report)


def open_store(path: str, mode: Literal["r", "r+"]) -> Store:
    """Opens a store; refuses files."""
    from .._opening import open_place

    check_there(path)
    if Path(path).is_file():
        raise ValueError(f"{path!r} is a file: only stores have a log")
    opened: Store = open_place(path, mode)
    return opened


def check_there(path: str) -> None:
    """Fails with near names if nothing is at a path of this machine."""
    if path and "://" not in path and not os.path.lexists(path):
        raise FileNotFoundError(errno.ENOENT, _advise_path(path), path)


def _file_above(path: str) -> Path | None:
    """Returns the file that lies where ``path`` needs a directory."""
    above = reversed(Path(path).absolute().parents)
    return next((part for part in above if part.exists() and not part.is_dir()), None)


def _advise_path(path: str) -> str:
    parent = Path(path).absolute().parent
    log = Path(f"{Path(path)}.bedform-log")
    if log.is_dir():
        return f"the store is gone, and its log is here, {str(log)!r}: put the store back beside it"
    if (file := _file_above(path)) is not None:
        return f"no such file or store, and {str(file)!r} is a file: check the path"
    if not parent.is_dir():
        return f"no such file or store, and no directory {str(parent)!r}: check the path"
    near = sorted(
        _shown.shell_path(Path(path).with_name(entry.name))
        for entry in parent.iterdir()
        # Hidden names are temporary; no user means them.
        if entry.name.lower().startswith(Path(path).name[:3].lower()) and entry.name[0] != "."
    )
    hint = f"did you mean {' or '.join(near[:3])}?" if near else "check the path"
    return f"no such file or store: {hint}"


def open_array(store: Any, name: str, path: str) -> Any:
    """Returns one array of a store, or fails with the names of the others."""
    names = sorted(store.arrays())
    if name in getattr(store, "refused", dict)():
        # Opening it raises the reason.
        return store[name]
    if name not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ValueError(f"{path!r} has no array {name!r}: it has {shown or 'no arrays'}")
    return store[name]


def exit_code_of(error: Exception) -> int:
    """Returns 1 for bad data, 2 for errors in use or environment."""
    from .._convert import VerificationError

    # Errors of the engine carry their kind.
    kind = getattr(error, "kind", None)
    if kind == "Interrupted":
        return EXIT_INTERRUPTED
    return EXIT_NO if kind == "Corrupt" or isinstance(error, VerificationError) else EXIT_ERROR


def describe_error(error: Exception) -> str:
    """Returns one line with the event, the object and the remedy."""
    usage = getattr(error, "format_message", None)
    if usage is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "bedform"
        text = f"{usage().strip().rstrip('.')}: see {command} --help"
    elif isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
        text = f"{error}: install it with pip, or run make setup in the checkout"
    elif isinstance(error, MemoryError):
        text = f"out of memory: use a smaller selection or limit, or {memory_remedy()}"
    elif isinstance(error, OSError) and error.errno is not None and _is_builtin(error):
        name = f"{str(error.filename)!r}: " if error.filename is not None else ""
        text = f"{name}{_remedy(error)}"
    elif isinstance(error, KeyError) and error.args and _is_builtin(error):
        text = f"no such item: {error.args[0]}"
    elif _is_expected(error):
        text = str(error) or type(error).__name__
    else:
        text = (
            f"unexpected {type(error).__name__}: {error}: this is a fault of Bedform; "
            "BEDFORM_DEBUG=1 shows where"
        )
    return _shown.line(" ".join(text.split()))


def _is_builtin(error: Exception) -> bool:
    return type(error).__module__ == "builtins"


def _is_expected(error: Exception) -> bool:
    own = type(error).__module__.partition(".")[0] == "bedform"
    return own or isinstance(error, (OSError, ValueError, ImportError))


_REMEDIES = {
    errno.ENOSPC: "no space left on the device: free some and run the same command again",
    errno.EDQUOT: "the quota is used up: free some and run the same command again",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EACCES: "permission denied: choose another place or ask its owner",
    errno.EPERM: "operation not permitted: choose another place or ask its owner",
    errno.EFBIG: "the file would be too large: raise the limit on that (ulimit -f)",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n) and try again",
}


def _remedy(error: OSError) -> str:
    return _REMEDIES.get(error.errno or 0, error.strerror or str(error))
