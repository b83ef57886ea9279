"""Plans of reads, for display."""

from __future__ import annotations

from typing import Any

from bedform._shown import printable
from bedform._text import format_bytes, format_seconds


class Explanation:
    """The plan of one read, with its price: ``str`` of it is a table.

    Examples
    --------
    >>> Explanation({"array": "t", "requests": 3, "bytes": 2048}).to_dict()["requests"]
    3
    """

    def __init__(self, facts: dict[str, Any], *, sharded: bool = False) -> None:
        self._facts, self._sharded = facts, sharded

    def to_dict(self) -> dict[str, Any]:
        """Returns all facts: counts, bytes, seconds."""
        return dict(self._facts)

    def __str__(self) -> str:
        rows = []
        for key, value in self._facts.items():
            label = key.replace("_", " ")
            if key.endswith("bytes") and isinstance(value, int):
                shown = format_bytes(value)
            elif "seconds" in key.split("_") and isinstance(value, float):
                shown = format_seconds(value)
                label = label.replace(" seconds", "")
            else:
                shown = printable(value)
            rows.append((label, shown))
        width = max((len(label) for label, _ in rows), default=0)
        lines = [f"{label:<{width}}  {shown}" for label, shown in rows]
        return "\n".join(lines + [f"note: {note}" for note in self._notes()])

    def _notes(self) -> list[str]:
        """Returns explanations of the numbers."""
        notes = []
        if "predicted_cold_seconds" in self._facts:
            notes.append("predicted leaves out opening the store; cached is for objects in memory")
        # Measured bytes include indexes that the plan then found in the cache.
        if self._sharded and self._facts.get("measured_bytes", 0) > self._facts["bytes"]:
            notes.append("measured includes shard indexes, which are kept since")
        return notes

    def __repr__(self) -> str:
        return f"Explanation({self._facts!r})"
