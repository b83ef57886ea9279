"""The application: its commands, and the exit codes of a run."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bedform_command import interrupted

from .. import _shown
from . import (
    advise,
    calibrate,
    check,
    convert,
    demo,
    explain,
    gc,
    hdf5_env,
    index,
    info,
    learn,
    optimize,
    query,
    recover,
    references,
    render,
    report,
    settle,
    simulate,
    trust,
    verify,
    watch,
)
from . import run as run_command
from ._output import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_YES,
    ReaderGone,
    describe_error,
    exit_code_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

app = typer.Typer(
    name="bedform",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 yes, 1 no or bad data found, 2 error in use or environment, 130 Ctrl-C. "
    "BEDFORM_DEBUG=1 shows tracebacks.",
)
for command in (
    demo,
    info,
    calibrate,
    advise,
    convert,
    references,
    explain,
    query,
    simulate,
    watch,
    learn,
    optimize,
    index,
    trust,
    render,
    report,
    run_command,
    hdf5_env,
    settle,
    recover,
    gc,
    verify,
    check,
):
    command.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bedform {version('bedform')}")
        raise typer.Exit


@app.callback()
def _bedform(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Scientific arrays in layouts that fit their reads.

    Begin with [bold]bedform demo[/bold], or with a file of your own:
    [bold]bedform info FILE.nc[/bold], then [bold]bedform convert FILE.nc STORE.zarr[/bold].
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; raises only if the process is broken."""
    command = typer.main.get_command(app)
    # Without a command, print the help.
    given = list(arguments) or ["--help"]
    try:
        with _warnings_as_lines():
            outcome = command.main(given, prog_name="bedform", standalone_mode=False)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        # The reader closed the pipe. Python's flush at exit would complain again.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - stays open until the exit
        return EXIT_YES
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_ERROR
    except Exception as error:  # noqa: BLE001 - the one place where errors become lines
        if os.environ.get("BEDFORM_DEBUG") == "1":
            traceback.print_exc()
        _say(f"bedform: {describe_error(error)}")
        return exit_code_of(error)
    # Typer turns Ctrl-C in a command into this code.
    if outcome == EXIT_INTERRUPTED:
        return interrupted()
    return outcome if isinstance(outcome, int) else EXIT_YES


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Prints Bedform's own warnings as one line each, once, without the source location."""
    from .. import (
        ArchiveWarning,
        LeftOutWarning,
        NativeReadWarning,
        SidecarWarning,
        SlowOpenWarning,
    )

    ours = (ArchiveWarning, LeftOutWarning, NativeReadWarning, SidecarWarning, SlowOpenWarning)
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if not issubclass(category, ours):
            others(message, category, *place)
        elif str(message) not in said:
            said.add(str(message))
            _say(f"bedform: {_shown.line(' '.join(str(message).split()))}")

    with warnings.catch_warnings():
        others = warnings.showwarning
        for one in ours:
            warnings.simplefilter("always", one)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _say(line: str) -> None:
    # If stderr is closed, no other output remains.
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        pass
