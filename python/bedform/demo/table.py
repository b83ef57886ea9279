"""Tables of a demo as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from .._text import format_bytes, format_seconds
from .race import spell_gain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .race import DemoReadTimes


def rows_of(readers: Sequence[str], results: Sequence[DemoReadTimes]) -> Table:
    """Returns the times of all readers, and the ratio of the first to the last."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("read")
    table.add_column("such as")
    table.add_column("answer", justify="right")
    for reader in readers:
        table.add_column(reader, justify="right")
    table.add_column("against h5py", justify="right")
    for result in results:
        times = [result.seconds[reader] for reader in readers]
        table.add_row(
            result.name,
            Text(result.selection),
            format_bytes(result.answer_bytes),
            *(format_seconds(seconds) for seconds in times),
            spell_gain(times[0] / times[-1]),
        )
    return table


def texts(lines: Iterable[str]) -> list[Text]:
    """Returns lines that terminals do not break; one is a command that deletes files."""
    return [Text(line, no_wrap=True, overflow="ignore") for line in lines]
