"""The picture of the demo: dots on a logarithmic axis, as SVG text, so that nothing is needed."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from .._text import format_bytes, format_seconds, format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .field import Field
    from .race import Result

WIDTH = 860
LEFT, RIGHT = 150, 90
BAR, GAP, GROUP_GAP, TOP = 16, 3, 18, 84
FONT = 'font-family="system-ui, sans-serif"'
# Grey for today's reader, sand for the same store read by another, water for ours.
COLOURS = ("#9aa0a6", "#d9a441", "#1f77b4")


def draw(field: Field, readers: Sequence[str], results: Sequence[Result], cold: str) -> str:
    """Draw one group of dots per kind of read, one dot per reader; further left is better."""
    times = [seconds for result in results for seconds in result.seconds.values()]
    low = 10 ** math.floor(math.log10(max(min(times), 1e-6)))
    high = 10 ** math.ceil(math.log10(max(*times, low * 10)))
    group = len(readers) * (BAR + GAP) + GROUP_GAP
    bottom = TOP + len(results) * group
    colours = [*COLOURS[: len(readers) - 1], COLOURS[-1]]

    def across(seconds: float) -> float:
        share = math.log10(max(seconds, low) / low) / math.log10(high / low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    height = bottom + 78
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(
            16,
            26,
            f"Reading {field.variable}, {format_shape(field.shape)}, "
            f"{format_bytes(field.byte_count)}: further left is better",
            size=16,
            weight=600,
        ),
    ]
    at = 16.0
    for reader, colour in zip(readers, colours, strict=True):
        parts.append(f'<circle cx="{at + 6}" cy="50" r="6" fill="{colour}"/>')
        parts.append(_text(at + 18, 55, reader))
        at += 40 + 7.2 * len(reader)
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        x = across(10.0**power)
        parts.append(f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="#e3e5e8"/>')
        parts.append(_text(x, bottom + 18, format_seconds(10.0**power), anchor="middle"))
    for row, result in enumerate(results):
        y = TOP + row * group
        middle = y + (group - GROUP_GAP) / 2 + 4
        parts.append(_text(LEFT - 12, middle, result.name, anchor="end", weight=600))
        for at_bar, (reader, colour) in enumerate(zip(readers, colours, strict=True)):
            top = y + at_bar * (BAR + GAP)
            end = across(result.seconds[reader])
            centre = top + BAR / 2
            # A dot has no length that could be taken for the time: the axis has no zero.
            parts.append(f'<circle cx="{end:.1f}" cy="{centre}" r="6" fill="{colour}"/>')
            parts.append(_text(end + 11, top + 12, format_seconds(result.seconds[reader])))
    axis = "time of one read, logarithmic: each line is ten times the one before"
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 38, axis, anchor="middle", size=12))
    parts.append(_text(16, bottom + 62, cold, size=12, fill="#5f6368"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: int = 13,
    weight: int = 400,
    fill: str = "#202124",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{fill}">{escape(words)}</text>'
    )
