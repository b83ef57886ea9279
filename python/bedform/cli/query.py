"""``bedform query``: the elements at which a condition on values holds."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .._errors import InvalidArgumentError
from .._shown import shell_path
from .._text import format_elements
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    emit,
    help_of,
    note,
    open_source,
    paragraph,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedform._query import Query

_RETURNS = ("count", "any", "points", "values", "min", "max", "mean", "sum", "histogram", "explain")
_SUFFIXES = (".parquet", ".csv", ".npy", ".json")
#: Points that are printed; --output takes all.
_SHOWN = 1000
#: Bytes of the rows of a table that are in memory together.
_TABLE_MEMORY = 64 << 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("query", help=help_of(query))(query)


def query(
    path: Annotated[str, typer.Argument(help='A store or file, or files: "era5_*.nc".')],
    expression: Annotated[
        str,
        typer.Argument(
            help='The condition in quotes: "t2m > 310 and lat > 40". Without quotes the '
            "shell writes into a file named 310."
        ),
    ],
    what: Annotated[
        str,
        typer.Option(
            "--return",
            help="count, any, points, values, min, max, mean, sum, histogram, or explain: the "
            "plan, without reading.",
        ),
    ] = "count",
    of: Annotated[
        str | None,
        typer.Option(
            "--of", help="The array of values, statistics and histograms: the first one named."
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Indexes of a dimension: time=100:200. Repeat it."),
    ] = None,
    sel: Annotated[
        list[str] | None,
        typer.Option(help="Labels of a dimension, both included: lat=40:60. Repeat it."),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(help="A dimension to count or reduce over; the others stay. Repeat it."),
    ] = None,
    bins: Annotated[int, typer.Option(help="Classes of a histogram.")] = 10,
    limit: Annotated[
        int | None, typer.Option(help="At most so many points or values, the first ones.")
    ] = None,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored", help="Compare and give values as they are stored, without decoding."
        ),
    ] = False,
    group: Annotated[str, typer.Option(help="The group of the arrays.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            help="A file for the result: x.npy, x.csv, x.json or x.parquet. Points and values in "
            "x.csv, and x.parquet, are a table: positions, labels of coordinates (times as dates), "
            "and the values of --of, or of the arrays of the condition."
        ),
    ] = None,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    as_json: JsonOption = False,
) -> None:
    """Find the elements at which a condition on the values of arrays holds.

    Values are decoded as xarray decodes them, and compared by NumPy's rules. Coordinates count as
    arrays. Positions are indexes in the arrays.

    Example: [bold]bedform query era5.nc "t2m > 310 and lsm > 0.5" --over time[/bold]
    """
    if what not in _RETURNS:
        raise ValueError(f"--return is one of {', '.join(_RETURNS)}, not {what!r}")
    if output is not None and output.suffix not in _SUFFIXES:
        raise ValueError(f"--output ends with {', '.join(_SUFFIXES)}, not {output.name!r}")
    is_parquet = output is not None and output.suffix == ".parquet"
    is_csv_table = output is not None and output.suffix == ".csv" and what in ("points", "values")
    if is_parquet and (what not in ("count", "points", "values") or over):
        raise ValueError(
            f"{output}: a Parquet table has points with values; for a result of --return {what}"
            f"{' --over' if over else ''} take .npy, .csv or .json"
        )
    with open_source(path, concat_dim, compat) as store:
        with _hint_at_quotes(path, expression):
            found = (store[group] if group else store).query(
                expression,
                region=dict(_pair(text, "--region", _indexes) for text in region or ()),
                sel=dict(_pair(text, "--sel", _labels) for text in sel or ()),
                decode=not stored,
            )
        if output is not None and (is_parquet or is_csv_table):
            write_table = _write_parquet if is_parquet else _write_csv
            write_table(found, output, None if of is None else [of], limit)
            return
        asked = _Asked(what, of, over or None, bins, limit, is_shown=output is None)
        result, lines = _result(found, asked)
    if output is None:
        emit(result, paragraph(lines), as_json)
    else:
        _write(result, output)


@contextmanager
def _hint_at_quotes(path: str, expression: str) -> Iterator[None]:
    """Explains a refused condition that is a name alone: the shell took the rest of it."""
    try:
        yield
    except InvalidArgumentError as error:
        if not expression.isidentifier() or "not a condition" not in str(error):
            raise
        raise InvalidArgumentError(
            f"{expression!r} is a name and no condition: quote the condition, since the shell "
            f"takes > and < as redirections to files: "
            f'bedform query {shell_path(path)} "{expression} > 310"'
        ) from None


class _Asked:
    """The result that is asked for."""

    def __init__(
        self,
        what: str,
        of: str | None,
        over: list[str] | None,
        bins: int,
        limit: int | None,
        is_shown: bool,
    ) -> None:
        self.what, self.of, self.over, self.bins, self.limit = what, of, over, bins, limit
        self.is_shown = is_shown


def _result(found: Query, asked: _Asked) -> tuple[Any, str]:
    """Returns the result, and lines that show it."""
    from .._query_table import without_objects

    what = asked.what
    name = asked.of or found._names[0]
    if what in ("count", "any"):
        value = getattr(found, what)(asked.over)
        return value, str(value)
    if what == "explain":
        plan = found.explain()
        return plan.to_dict(), str(plan)
    if what == "points":
        points = found.points(asked.limit)
        shown = points[:_SHOWN] if asked.is_shown else points[:0]
        return points, _listed([",".join(map(str, point)) for point in shown], points, asked)
    if what == "values":
        values = without_objects(found.values(name, asked.limit))
        shown = values[:_SHOWN] if asked.is_shown else values[:0]
        return values, _listed(format_elements(shown), values, asked)
    if what == "histogram":
        counts, edges = found.histogram(name, asked.bins)
        rows = zip(edges[:-1], edges[1:], counts, strict=True)
        lines = "\n".join(f"{low:.6g} to {high:.6g}: {count}" for low, high, count in rows)
        return {"counts": counts, "edges": edges}, lines
    value = getattr(found, what)(name, asked.over)
    return value, str(value)


def _listed(lines: list[str], whole: Any, asked: _Asked) -> str:
    if asked.is_shown and len(whole) > len(lines):
        note(f"the first {len(lines):,} of {len(whole):,}; --output writes all, --limit fewer")
    return "\n".join(lines)


def _pair(text: str, option: str, parse: Any) -> tuple[str, Any]:
    dim, equals, rest = text.partition("=")
    if not equals or not dim or not rest:
        raise ValueError(f"{option} takes DIM=FROM:TO, not {text!r}")
    return dim.strip(), parse(rest.strip(), f"{option} {text}")


def _indexes(text: str, shown: str) -> slice | int:
    parts = text.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        raise ValueError(f"{shown}: indexes are integers, as in time=100:200") from None
    if len(numbers) == 1 and numbers[0] is not None:
        return numbers[0]
    if len(numbers) != 2:
        raise ValueError(f"{shown}: takes FROM:TO or one index")
    return slice(*numbers)


def _labels(text: str, shown: str) -> Any:
    # Times have colons of their own: "2020-01-01T00:00" is one label, "..":".." are two.
    parts = text.split("..") if ".." in text else text.split(":")
    if len(parts) == 1:
        return _label(parts[0])
    if len(parts) != 2:
        raise ValueError(f"{shown}: takes FROM:TO, or FROM..TO for labels with colons")
    return slice(*(_label(part) for part in parts))


def _label(text: str) -> Any:
    text = text.strip()
    if not text:
        return None
    try:
        return float(text) if not text.lstrip("+-").isdigit() or "." in text else int(text)
    except ValueError:
        return text


@contextmanager
def _replaced(output: Path) -> Iterator[Path]:
    """Yields the path of a part that takes the place of the output when it is complete."""
    part = output.with_name(f".{output.name}.part")
    try:
        yield part
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


def _write(result: Any, output: Path) -> None:
    """Writes a result as a whole, or not at all."""
    with _replaced(output) as part:
        if output.suffix == ".json":
            part.write_text(json.dumps(to_json(result)) + "\n")
            return
        array = np.asarray(result["counts"] if isinstance(result, dict) else result)
        with part.open("wb") as file:
            if output.suffix == ".npy":
                np.save(file, array)
            else:
                np.savetxt(file, np.atleast_1d(array), delimiter=",", fmt="%s")


def _write_csv(found: Query, output: Path, values: list[str] | None, limit: int | None) -> None:
    """Writes the table of a query, with the values of these arrays or of all that it names."""
    from .._query_table import PointTable

    table = PointTable(found, values)
    with _replaced(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.empty())
        for columns in table.parts(_TABLE_MEMORY, limit):
            writer.writerows(zip(*map(format_elements, columns.values()), strict=True))


def _write_parquet(found: Query, output: Path, values: list[str] | None, limit: int | None) -> None:
    """Writes the same table as :func:`_write_csv`."""
    from .._query_arrow import reader

    batches = reader(found, values, _TABLE_MEMORY, limit)
    import pyarrow.parquet

    with (
        _replaced(output) as part,
        pyarrow.parquet.ParquetWriter(part, batches.schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
