"""What a read would do, and at what price."""

from __future__ import annotations

from typing import Any

from bedform._text import format_bytes


class Explanation:
    """The plan of one read: a table for people, a dict for programs.

    Examples
    --------
    >>> Explanation({"array": "t", "requests": 3, "bytes": 2048}).to_dict()["requests"]
    3
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def to_dict(self) -> dict[str, Any]:
        """All facts: counts, bytes, seconds."""
        return dict(self._facts)

    def __str__(self) -> str:
        rows = []
        for key, value in self._facts.items():
            label = key.replace("_", " ")
            if key.endswith("bytes") and isinstance(value, int):
                shown = format_bytes(value)
            elif key.endswith("seconds") and isinstance(value, float):
                shown = f"{value * 1e3:.3f} ms"
                label = label.removesuffix(" seconds")
            else:
                shown = str(value)
            rows.append((label, shown))
        width = max((len(label) for label, _ in rows), default=0)
        return "\n".join(f"{label:<{width}}  {shown}" for label, shown in rows)

    def __repr__(self) -> str:
        return f"Explanation({self._facts!r})"
