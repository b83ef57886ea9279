"""Plans of reads, for display."""

from __future__ import annotations

from typing import Any, Final

from bedform._shown import printable
from bedform._text import format_bytes, format_seconds

#: Labels of keys that would not explain themselves.
_LABELS: Final = {"objects_in_one_request": "objects fetched whole"}


def profile_text(name: str, measured_at: str) -> str:
    """Returns a profile for display: its name, and where its numbers come from.

    >>> profile_text("/data", "2026-01-31T12:00:00Z"), profile_text("a local disk", "")
    ('/data, calibrated 2026-01-31', 'a local disk, assumed')
    """
    origin = f"calibrated {measured_at[:10]}" if measured_at else "assumed"
    return f"{printable(name)}, {origin}"


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
            if key == "profile_measured_at":
                continue
            label = _LABELS.get(key, key.replace("_", " "))
            if key.endswith("bytes") and isinstance(value, int):
                shown = format_bytes(value)
            elif "seconds" in key.split("_") and isinstance(value, float):
                shown = format_seconds(value)
                label = label.replace(" seconds", "")
            elif key == "profile":
                shown = profile_text(value, self._facts.get("profile_measured_at", ""))
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
        if self._facts.get("profile_measured_at") == "":
            notes.append("the profile is assumed: bedform calibrate measures this storage")
        # Measured bytes include indexes that the plan then found in the cache.
        if self._sharded and self._facts.get("measured_bytes", 0) > self._facts["bytes"]:
            notes.append("measured includes shard indexes, which are kept since")
        return notes

    def __repr__(self) -> str:
        # Prompts and notebooks show this text: seconds and bytes with units, as print does.
        return str(self)
