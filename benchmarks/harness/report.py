"""Results as an aligned table, as JSON, and as a section of `benchmarks/RESULTS.md`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import describe_machine

RESULTS = Path(__file__).resolve().parents[1] / "RESULTS.md"
TITLE = """# Results

Written by `python -m benchmarks NAME --write-results`; losses are printed like everything else.
Times are medians of interleaved rounds; intervals are 95 % bootstrap intervals of the median of
the ratios of each round.
"""


@dataclass
class Table:
    """One table: a heading per column, a list of cells per row."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """A promised figure, its measurement, and whether it holds."""

    promise: str
    measured: str
    holds: bool | None

    def describe(self) -> str:
        """Return the verdict as a word."""
        return {True: "reached", False: "**LOSS**", None: "not measured"}[self.holds]


@dataclass
class Report:
    """The results of a benchmark."""

    name: str
    command: str
    settings: dict[str, str]
    tables: list[Table] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=describe_machine)

    def to_json(self) -> str:
        """Returns everything as JSON, including every sample."""
        return json.dumps(asdict(self), indent=1)

    def to_text(self) -> str:
        """Return the tables for a terminal."""
        parts = [f"{self.name}: {join(self.settings)}", join(self.machine)]
        parts += [text_table(table) for table in [*self.tables, *self.verdict_tables()]]
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """Return the section for the results page."""
        parts = [
            f"## {self.name}" + (f", {lines}" if (lines := self.settings.get("lines")) else ""),
            f"`{self.command}`",
            f"Settings: {join(self.settings)}.",
        ]
        parts += [f"Machine: {join(self.machine)}."]
        parts += [markdown_table(table) for table in [*self.verdict_tables(), *self.tables]]
        return "\n\n".join(parts) + "\n"

    def verdict_tables(self) -> list[Table]:
        """Return the promises as a table, if the benchmark has any."""
        if not self.verdicts:
            return []
        rows = [[one.promise, one.measured, one.describe()] for one in self.verdicts]
        return [Table("Promises", ["promise", "measured", "verdict"], rows)]


def join(items: dict[str, str]) -> str:
    """Return the items as one line.

    >>> join({"cores": "2", "kernel": "6"})
    'cores 2; kernel 6'
    """
    return "; ".join(f"{name} {value}" for name, value in items.items())


def text_table(table: Table) -> str:
    """Return a table with aligned columns."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(table.columns))]
    body = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(filter(None, [table.title, *body, table.note]))


def markdown_table(table: Table) -> str:
    """Return a table in Markdown."""
    lines = [table.columns, ["---"] + ["---:"] * (len(table.columns) - 1), *table.rows]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join(filter(None, [f"**{table.title}**", body, table.note]))


def update_results(report: Report, path: Path = RESULTS) -> None:
    """Replace the section of this benchmark, and of the lines chosen, in the page, or add it."""
    page = path.read_text() if path.exists() else TITLE
    name = " ".join([report.name, *filter(None, [report.settings.get("lines")])])
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    section = begin + report.to_markdown() + end
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if found.search(page):
        page = found.sub(lambda _: section, page)
    else:
        page = page.rstrip("\n") + "\n\n" + section
    path.write_text(page)


def milliseconds(seconds: float) -> str:
    """Returns a time in milliseconds with three significant digits.

    >>> milliseconds(0.0012345), milliseconds(1.5)
    ('1.23', '1500')
    """
    value = seconds * 1e3
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def bandwidth(byte_count: int, seconds: float) -> str:
    """Return a rate in MiB/s.

    >>> bandwidth(2 << 20, 0.5)
    '4'
    """
    return f"{byte_count / seconds / 2**20:.0f}"


def bytes_in_words(byte_count: int) -> str:
    """Return a size with its unit.

    >>> bytes_in_words(1 << 30), bytes_in_words(1 << 17)
    ('1024 MiB', '128 KiB')
    """
    if byte_count >= 1 << 20:
        return f"{byte_count / 2**20:.0f} MiB"
    return f"{byte_count / 2**10:.0f} KiB"
