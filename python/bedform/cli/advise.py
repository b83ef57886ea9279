"""``bedform advise``: advice of a layout for given reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._remote import is_url
from .._text import parse_reads, parse_selection, parse_shape
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    emit,
    help_of,
    open_array,
    open_source,
    paragraph,
    readers_of,
)

_SELECTIONS_MAX = 100_000
# Most characters of a line, which has one list of positions per axis.
_LINE_MAX = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("advise", help=help_of(advise))(advise)


def advise(
    path: Annotated[str | None, typer.Argument(help="A store or file; or give --shape.")] = None,
    array: Annotated[str | None, typer.Argument(help="Which array of it.")] = None,
    shape: Annotated[str | None, typer.Option(help="A shape, such as 365,721,1440.")] = None,
    dtype: Annotated[str, typer.Option(help="The element type, with --shape.")] = "float32",
    dims: Annotated[str | None, typer.Option(help="Dimension names, such as time,lat,lon.")] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            help="Dimensions that a read spans, and its weight: lat,lon=0.7. Repeat it. Without it "
            "planes, series and boxes count alike."
        ),
    ] = None,
    selections: Annotated[
        Path | None, typer.Option(help="A file of selections, one a line, such as 10,:,200:300.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="A path or URL whose profile to take; else that of the store or file.",
        ),
    ] = None,
    readers: Annotated[
        list[str] | None,
        typer.Option(
            help="Which program reads it: any (the default), bedform, zarr-python. Repeat it."
        ),
    ] = None,
    as_tool: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TOOL",
            help="Print the command of nccopy or h5repack, or the encoding of xarray's to_netcdf, "
            "that gives the file chunks for the reads: nccopy, h5repack, xarray.",
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="With --as, the new file.")
    ] = None,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    as_json: JsonOption = False,
) -> None:
    """Name the chunks, shards and order that fit the reads, with the layouts compared.

    Prices are those that bedform calibrate kept for the storage, else those of an assumed disk or
    object store.

    --as is for the producer of a NetCDF or HDF5 file: it prints what gives the file itself other
    chunks, with deflate and shuffle alone, which every program reads. It names all variables of
    1 MiB and more that have the dimensions of the reads, and predicts the times of the reads
    before and after. Nothing is written.

    Example: [bold]bedform advise era5.nc t2m --reads lat,lon=0.7 --reads time=0.3[/bold]

    For its producer: [bold]bedform advise era5.nc --reads time=1 --as nccopy[/bold]

    Without a file: [bold]bedform advise --shape 8760,721,1440 --dims time,lat,lon[/bold]
    """
    if as_tool is not None:
        if readers_of(readers) != "any":
            raise typer.BadParameter("--readers is for stores: leave it out, or --as")
        _advise_file(
            (path, concat_dim, compat), array, as_tool, reads, selections, profile, to, as_json
        )
        return
    if to is not None:
        raise typer.BadParameter("--to is the new file of --as: give both")
    import bedform as bf

    wanted_shape, wanted_dtype, names = _resolve(
        (path, concat_dim, compat), array, shape, dtype, dims
    )
    advice = bf.advise(
        wanted_shape,
        wanted_dtype,
        dims=names,
        reads=parse_reads(reads or (), names) or None,
        selections=_read_selections(selections, wanted_shape) if selections else None,
        profile=profile or _directory_of(path),
        readers=readers_of(readers),
    )
    emit(advice.to_dict(), paragraph(str(advice)), as_json)


def _advise_file(
    source: tuple[str | None, str | None, str],
    array: str | None,
    tool: str,
    reads: list[str] | None,
    selections: Path | None,
    profile: str | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Prints the advice for a file in the words of a tool that writes it anew."""
    from .._repack import TOOLS, repacking

    path, concat_dim, compat = source
    wanted = next((known for known in TOOLS if known == tool), None)
    if wanted is None:
        raise typer.BadParameter(f"--as {tool!r}: one of {', '.join(TOOLS)}")
    if path is None:
        raise typer.BadParameter(f"--as {tool} is for a file: give its path")
    if selections is not None and array is None:
        raise typer.BadParameter("--selections with --as are of one array: name it")
    with open_source(path, concat_dim, compat) as store:
        found = None if array is None else open_array(store, array, path)
        names = None if found is None else found.dims
        advice = repacking(
            store,
            path,
            wanted,
            array=array,
            reads=parse_reads(reads or (), names) or None,
            selections=(
                _read_selections(selections, found.shape) if selections and found else None
            ),
            profile=profile,
            target=target,
        )
    # Wrapped lines of a command could not be pasted.
    shown = paragraph(str(advice))
    shown.no_wrap, shown.overflow = True, "ignore"
    emit(advice.to_dict(), shown, as_json)


def _directory_of(path: str | None) -> str | None:
    """Returns the storage of a store or file as an argument of ``calibrate``."""
    if path is None or is_url(path):
        return path
    where = Path(path)
    return str(where if where.is_dir() else where.parent)


def _resolve(
    source: tuple[str | None, str | None, str],
    name: str | None,
    shape: str | None,
    dtype: str,
    dims: str | None,
) -> tuple[tuple[int, ...], np.dtype[Any], tuple[str, ...] | None]:
    """Returns shape, type and names of the array or shape in question."""
    path, concat_dim, compat = source
    if (path is None) == (shape is None):
        raise typer.BadParameter("give a store or file, or --shape")
    if path is not None:
        with open_source(path, concat_dim, compat) as store:
            found = open_array(store, name or _largest(store, path), path)
            return tuple(found.shape), np.dtype(found.dtype), tuple(found.dims)
    lengths = parse_shape(shape or "")
    names = tuple(part.strip() for part in dims.split(",")) if dims else None
    if names is not None and len(names) != len(lengths):
        raise ValueError(f"--dims {dims!r} has {len(names)} names for {len(lengths)} dimensions")
    try:
        return lengths, np.dtype(dtype), names
    except TypeError:
        raise ValueError(f"--dtype {dtype!r} is not a type: write float32, int16, ...") from None


def _largest(store: Any, path: str) -> str:
    names: list[str] = sorted(store.arrays())
    if not names:
        raise ValueError(f"{path!r} has no arrays")
    return max(names, key=lambda name: int(np.prod(store[name].shape, dtype=np.float64)))


def _read_selections(path: Path, shape: tuple[int, ...]) -> list[Any]:
    selections: list[Any] = []
    # Undecodable bytes appear in the error of their line. Devices may have endless lines.
    with path.open(errors="replace") as file:
        lines = iter(lambda: file.readline(_LINE_MAX), "")
        for number, line in enumerate(lines, 1):
            if len(line) == _LINE_MAX:
                raise ValueError(f"{str(path)!r} line {number}: longer than any selection")
            text = line.split("#")[0].strip()
            if not text:
                continue
            if len(selections) == _SELECTIONS_MAX:
                raise ValueError(f"{str(path)!r} has more than {_SELECTIONS_MAX} selections")
            try:
                selections.append(parse_selection(text, shape))
            except ValueError as error:
                raise ValueError(f"{str(path)!r} line {number}: {error}") from None
    if not selections:
        raise ValueError(f"{str(path)!r} has no selections: write one a line")
    return selections
