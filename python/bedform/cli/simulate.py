"""``bedform simulate``: predicted times on a described machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._text import parse_bytes, parse_selection
from ._output import JsonOption, emit, help_of, open_array, open_source, paragraph

if TYPE_CHECKING:
    from bedform._simulate import Simulation

_WORKLOAD_BYTES_MAX = 1 << 30


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate", help=help_of(simulate))(simulate)


def simulate(
    path: Annotated[str | None, typer.Argument(help="A store or file; or --pattern.")] = None,
    array: Annotated[str | None, typer.Argument(help="The array to read.")] = None,
    selection: Annotated[
        str | None, typer.Argument(help="As inside NumPy's brackets: 10,:,200:300 (quote it).")
    ] = None,
    machine: Annotated[
        str, typer.Option(help="A machine by name, or a TOML file.", metavar="NAME")
    ] = "laptop",
    machines: Annotated[
        bool, typer.Option("--machines", help="List the machines, and stop.")
    ] = False,
    clients: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    in_flight: Annotated[
        int | None, typer.Option(min=1, help="Requests of a client at once; else the machine's.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="contiguous, strided or file-per-client.", metavar="SHAPE")
    ] = None,
    size: Annotated[str, typer.Option(help="Bytes of each client, with --pattern.")] = "64MiB",
    request: Annotated[str, typer.Option(help="Bytes of a request, with --pattern.")] = "1MiB",
    write: Annotated[bool, typer.Option("--write", help="Write, with --pattern.")] = False,
    stripe_count: Annotated[
        int | None, typer.Option(min=1, help="Targets of a file; else the machine's.")
    ] = None,
    stripe_size: Annotated[
        str | None, typer.Option(help="Bytes on a target before the next; else the machine's.")
    ] = None,
    workload: Annotated[
        Path | None, typer.Option(help="A workload as JSON, in place of an array or pattern.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write a picture of the load of the targets here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long reads or writes would take on a machine that is not at hand, and what bounds it.

    The machine is calculated, event by event: targets with bandwidth, seeks and queues, links, the
    cost of requests, a metadata server. Nothing is written; of a store only indexes are read. The
    same question has the same answer everywhere. docs/simulation.md has the equations.

    Example: [bold]bedform simulate era5.zarr t2m ":,300,700" --machine cori --clients 64[/bold]

    A pattern: [bold]bedform simulate --pattern strided --clients 4096 --write
    --machine spider[/bold]

    Which machines there are: [bold]bedform simulate --machines[/bold]
    """
    from bedform import _simulate

    if machines:
        known = _simulate.machines()
        width = max(map(len, known))
        lines = [f"{name:<{width}}  {about}" for name, about in known.items()]
        emit(known, paragraph("\n".join(lines)), as_json)
        return
    _check_one_of(path, pattern, workload)
    stripes = _stripes(stripe_count, stripe_size)
    if pattern is not None:
        asked = {
            "shape": pattern,
            "clients": clients,
            "client_bytes": parse_bytes(size),
            "request_bytes": parse_bytes(request),
            "is_write": write,
            "requests_in_flight": in_flight,
            "stripes": stripes,
        }
        found = _simulate.simulate(machine, pattern=asked)
    else:
        work = (
            _read_workload(workload)
            if workload is not None
            else _planned(path, array, selection, clients)
        )
        for one in work["files"] if stripes else ():
            one.update(stripes)
        for one in work["clients"] if in_flight is not None else ():
            one["requests_in_flight"] = in_flight
        found = _simulate.simulate(machine, work)
    _show(found, svg, as_json)


def _check_one_of(path: str | None, pattern: str | None, workload: Path | None) -> None:
    if sum(one is not None for one in (path, pattern, workload)) != 1:
        raise typer.BadParameter(
            "give a store or file with an array and a selection, or --pattern, or --workload"
        )


def _stripes(count: int | None, size: str | None) -> dict[str, int]:
    given = {"count": count, "bytes": None if size is None else parse_bytes(size)}
    return {key: value for key, value in given.items() if value is not None}


def _planned(
    path: str | None, array: str | None, selection: str | None, clients: int
) -> dict[str, Any]:
    if path is None or array is None or selection is None:
        raise typer.BadParameter('give the array and the selection, too, such as t2m ":,300,700"')
    with open_source(path) as store:
        found = open_array(store, array, path)
        planned: dict[str, Any] = found.workload(
            parse_selection(selection, found.shape), clients=clients
        )
    return planned


def _read_workload(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _WORKLOAD_BYTES_MAX:
        raise ValueError(f"{str(path)!r} is too large: a workload has at most 1 GiB")
    try:
        work = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not JSON: {error}") from None
    lists = isinstance(work, dict) and all(
        isinstance(work.get(key), list) and all(isinstance(one, dict) for one in work[key])
        for key in ("files", "clients")
    )
    if not lists:
        raise ValueError(f'{str(path)!r} is no workload: it has no lists "files" and "clients"')
    return dict(work)


def _show(found: Simulation, svg: Path | None, as_json: bool) -> None:
    if svg is not None:
        svg.write_text(found.svg())
    emit(found.to_dict(), paragraph(str(found)), as_json)
