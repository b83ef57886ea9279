"""The lines of a plan that are shown: of very many, those with most benefit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from bedform._explanation import profile_text
from bedform._text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

#: Largest number of lines of one kind.
_LINES_MAX: Final = 20


def foremost(items: Sequence[T], gain: Callable[[T], float]) -> tuple[list[T], int]:
    """Returns the items with the largest gains, in their order, and the number of the others.

    Examples
    --------
    >>> foremost([3, 1, 2], gain=float)
    ([3, 1, 2], 0)
    >>> shown, more = foremost(range(100), gain=lambda item: -abs(item - 50))
    >>> shown[0], shown[-1], more
    (40, 59, 80)
    """
    best = sorted(range(len(items)), key=lambda at: -gain(items[at]))[:_LINES_MAX]
    return [items[at] for at in sorted(best)], len(items) - len(best)


def first_lines(lines: Sequence[str], what: str) -> list[str]:
    """Returns the first lines, and one that counts the others."""
    shown, more = foremost(lines, gain=lambda _: 0.0)
    return [*shown, f"{more:,} more {what}: --json has all"] if more else shown


def profile_line(plan: dict[str, Any]) -> list[str]:
    """Returns the line that names the profile of a plan's predictions; none without reads."""
    if not (plan["reads"] or plan.get("queries")) or "profile" not in plan:
        return []
    origin = plan["profile"]
    return [f"predicted by the profile of {profile_text(origin['name'], origin['measured_at'])}"]


def gain_of_read(read: dict[str, Any]) -> float:
    """Returns the predicted seconds that a plan saves in all reads of a kind."""
    saved: float = read["reads"] * (read["seconds_now"] - read["seconds_then"])
    return saved


def gain_of_query(query: dict[str, Any]) -> float:
    """Returns the predicted seconds that a plan saves in all queries with a condition."""
    saved: float = query["queries"] * (query["seconds_now"] - query["seconds_then"])
    return saved


def index_text(index: dict[str, Any]) -> str:
    """Returns an index that is to be made, in words.

    Examples
    --------
    >>> index_text({"array": "t2m", "has_bins": True, "bytes": 2048})
    'an index of t2m with bins, 2.0 KiB'
    """
    bins = " with bins" if index["has_bins"] else ""
    return f"an index of {index['array'] or '/'}{bins}, {format_bytes(index['bytes'])}"


def gain_of_replica(replica: dict[str, Any]) -> float:
    """Returns the predicted seconds that a replica saves against the source."""
    saved: float = sum(
        read["reads"] * (read["seconds_without"] - read["seconds_with"])
        for read in replica["expected"]
    )
    return saved


def gain_by_array(reads: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns the predicted seconds that a plan saves in the reads of each array."""
    gains: dict[str, float] = {}
    for read in reads:
        gains[read["array"]] = gains.get(read["array"], 0.0) + gain_of_read(read)
    return gains
