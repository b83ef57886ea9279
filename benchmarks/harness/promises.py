"""Promises about many lines, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.harness.report import Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness.report import Report


@dataclass
class Promise:
    """A promise about many lines, with the result of each."""

    text: str
    lines: list[tuple[str, bool, str]] = field(default_factory=list)

    def add(self, name: str, kept: bool, measured: str) -> None:
        """Count a line."""
        self.lines.append((name, kept, measured))

    def verdict(self) -> Verdict:
        """Returns the number of lines that keep the promise, and one that breaks it."""
        kept = sum(one for _, one, _ in self.lines)
        broken = [f"{name}: {measured}" for name, one, measured in self.lines if not one]
        said = f"{kept} of {len(self.lines)}"
        if len(self.lines) == 1:
            said = self.lines[0][2]
        elif broken:
            said += f"; not {broken[0]}" + (f" and {len(broken) - 1} more" if broken[1:] else "")
        return Verdict(self.text, said, not broken if self.lines else None)


def conclude(report: Report, table: Table, promises: Sequence[Promise]) -> None:
    """Adds the table, and the results of promises that had lines in this run."""
    if table.rows:
        report.tables.append(table)
    report.verdicts += [one.verdict() for one in promises if one.lines]
