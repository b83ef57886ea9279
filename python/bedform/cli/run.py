"""``bedform run``: any program, with its reads watched and the next ones read ahead."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from .._errors import BedformError
from .._text import parse_bytes
from ._output import describe_error, help_of, note


def register(app: typer.Typer) -> None:
    """Add the command."""
    # Arguments after the program's name belong to the program.
    settings = {"allow_interspersed_args": False}
    app.command("run", help=help_of(run), context_settings=settings)(run)


def run(
    command: Annotated[
        list[str], typer.Argument(help="The program and its arguments.", metavar="-- PROGRAM ARGS")
    ],
    report: Annotated[
        str | None,
        typer.Option(help="Write what was read and predicted here, as JSON; - for stderr."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --report, whatever it is.")
    ] = False,
    min_read: Annotated[
        str, typer.Option("--min", help="Bytes from which a read is followed.", metavar="SIZE")
    ] = "4KiB",
    ahead: Annotated[
        str,
        typer.Option(
            help="Bytes ahead at most, two reads at least; up to 8 times that while right.",
            metavar="SIZE",
        ),
    ] = "8MiB",
    watch_only: Annotated[
        bool, typer.Option("--watch-only", help="Report patterns, and advise nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start it even where its reads cannot be seen.")
    ] = False,
    hdf5: Annotated[
        bool,
        typer.Option("--hdf5", help="Let replicas and readahead serve its reads through HDF5."),
    ] = False,
) -> None:
    """Run a program as it is, follow its reads, and have the kernel read ahead the next ones.

    A library is preloaded that follows read, pread, readv, preadv and fread of regular files. Once
    their offsets make a pattern (strides, strides of strides, sequences that repeat), it advises
    the kernel (posix_fadvise) of the next ones, from a thread of its own. Results are the
    program's own: data come from the kernel, by the calls that the program makes. Reads from
    front to back are left to the kernel's own readahead.

    Not seen are mapped files, io_uring, direct I/O, copies that the kernel makes (cp), programs
    that are linked statically, and those that run as another user. docs/run.md has more.

    With --hdf5, HDF5 1.14 or later in the program (h5py, netCDF4, xarray, C, Fortran) loads
    Bedform's connector instead. Reads of files that are watched are recorded; reads for which
    `bedform optimize` has made replicas take these. All others stay HDF5's own: docs/hdf5.md.

    Example: [bold]bedform run -- ./analyse run.nc --level 3[/bold]

    Its reads, by pattern: [bold]bedform run --report reads.json -- ./analyse run.nc[/bold]
    """
    from .. import _hdf5, _run

    if hdf5:
        useless = _hdf5.look_at(command).why_useless()
        if useless is not None:
            note(f"bedform: {command[0]} {useless}: --hdf5 does nothing for it")
        os.environ.update(_hdf5.environment(os.environ, command))
    options = _run.RunOptions(
        min_bytes=max(parse_bytes(min_read), 1),
        ahead_bytes=parse_bytes(ahead),
        advises=not watch_only,
        force=force,
        preloads=not hdf5 or report is not None,
    )
    if report is None:
        _run.become(command, options)
    file = None if report == "-" else _run.report_file(report, overwrite=overwrite)
    if file is not None:
        # Not after hours of the program.
        file.check()
    code, found = _run.run_and_report(command, options)
    # The program has run: its outcome counts, also without a report.
    try:
        said = _run.hand_over(found, file)
    except (OSError, BedformError) as error:
        said = f"the report was not written: {describe_error(error)}"
    if said is not None:
        with suppress(OSError):
            note(f"bedform: {said}")
    sys.exit(code)
