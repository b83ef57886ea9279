"""``bedform hdf5-env``: the variables by which programs that use HDF5 read through Bedform."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from ._output import help_of, note


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("hdf5-env", help=help_of(hdf5_env))(hdf5_env)


def hdf5_env(
    program: Annotated[
        str,
        typer.Argument(help="The program that the variables are for.", show_default="this Python"),
    ] = sys.executable,
    off: Annotated[bool, typer.Option("--off", help="Take the variables back.")] = False,
) -> None:
    """Print shell commands by which HDF5 loads Bedform's connector, for batch scripts.

    A child first checks which HDF5 the program loads, and that the connector loads into it. Nothing
    is printed to stdout if it does not.

    Example: [bold]eval "$(bedform hdf5-env)"[/bold]

    And back: [bold]eval "$(bedform hdf5-env --off)"[/bold]
    """
    from .. import _hdf5

    if off:
        for name, value in _hdf5.environment_without(os.environ).items():
            line = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            typer.echo(line)
        return
    useless = _hdf5.look_at([program]).why_useless()
    if useless is not None:
        note(f"bedform: {program} {useless}: the variables do nothing for it")
    for name, value in _hdf5.environment(os.environ, [program]).items():
        typer.echo(f"export {name}={shlex.quote(value)}")
