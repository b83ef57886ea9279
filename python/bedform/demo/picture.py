"""The picture of a demo: dots on a logarithmic axis, as SVG text without dependencies.

It is narrow enough for a phone, and follows the screen's light or dark mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .._text import format_bytes, format_seconds, format_shape
from .race import spell_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .field import Field
    from .race import DemoReadTimes

WIDTH, SHOWN_WIDTH = 440, 620
LEFT, RIGHT = 108, 158
ROW, TOP = 38, 88
PANEL_HEAD, PANEL_FOOT = 22, 38
DOT = 5
# Grey for h5py, sand for the reader between, blue for Bedform.
STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 13px }
.page { fill: #fff } text { fill: #202124 } .quiet { fill: #5f6368 }
.small { font-size: 11px } .strong { font-weight: 600 }
.grid { stroke: #e3e5e8 } .span { stroke: #b9bec4; stroke-width: 2 }
.first { fill: #80868b } .other { fill: #d9a441 } .ours { fill: #1f77b4 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } text { fill: #e6edf3 } .quiet { fill: #9aa4af }
  .grid { stroke: #272e37 } .span { stroke: #4b545f }
  .first { fill: #9aa0a6 } .other { fill: #e0b15a } .ours { fill: #58a6ff }
}
"""


@dataclass(frozen=True)
class Panel:
    """Rows of a picture under a common title."""

    title: str
    results: Sequence[DemoReadTimes]


def draw(field: Field, readers: Sequence[str], panels: Sequence[Panel], footnote: str) -> str:
    """Draws a row of dots for each kind of read, one dot per reader; further left is better."""
    times = [
        seconds for panel in panels for one in panel.results for seconds in one.seconds.values()
    ]
    low = 10 ** math.floor(math.log10(max(min(times), 1e-6)))
    high = 10 ** math.ceil(math.log10(max(*times, low * 10)))
    axis = _Axis(low, high)
    classes = ["first", *("other" for _ in readers[1:-1]), "ours"]
    axis_note = "Time of one read; each line is ten times the last. Bold: blue against grey."
    title = f"{field.variable}, {format_shape(field.shape)}, {format_bytes(field.byte_count)}"
    parts = [_text(16, 26, f"Reading {title}", "strong"), *_legend(readers, classes)]
    y = TOP
    for panel in panels:
        parts += _panel(panel, y, axis, readers, classes)
        y += PANEL_HEAD + len(panel.results) * ROW + PANEL_FOOT
    parts.append(_text(16, y, axis_note, "small"))
    parts += [
        _text(16, y + 16 * row, line, "small quiet")
        for row, line in enumerate(_wrapped(footnote), 1)
    ]
    height = y + 16 * len(_wrapped(footnote)) + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{SHOWN_WIDTH}" height="{height * SHOWN_WIDTH // WIDTH}">'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", page, *parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float

    def across(self, seconds: float) -> float:
        share = math.log10(max(seconds, self.low) / self.low) / math.log10(self.high / self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def powers(self) -> list[float]:
        ends = (round(math.log10(end)) for end in (self.low, self.high))
        first, last = ends
        return [10.0**power for power in range(first, last + 1)]


def _legend(readers: Sequence[str], classes: Sequence[str]) -> list[str]:
    parts = []
    at = 16.0
    for reader, name in zip(readers, classes, strict=True):
        parts.append(f'<circle class="{name}" cx="{at + DOT}" cy="48" r="{DOT}"/>')
        parts.append(_text(at + 15, 52.5, reader))
        at += 30 + 6.8 * len(reader)
    return parts


def _panel(
    panel: Panel, top: int, axis: _Axis, readers: Sequence[str], classes: Sequence[str]
) -> list[str]:
    bottom = top + PANEL_HEAD + len(panel.results) * ROW
    parts = [_text(16, top, panel.title, "strong")]
    labelled = axis.powers() if len(axis.powers()) <= 5 else axis.powers()[::2]
    for power in axis.powers():
        x = axis.across(power)
        parts.append(f'<path class="grid" d="M{x:.1f} {top + 12}V{bottom - 8}"/>')
        if power in labelled:
            parts.append(_text(x, bottom + 6, format_seconds(power), "small quiet", "middle"))
    for row, result in enumerate(panel.results):
        y = top + PANEL_HEAD + row * ROW + 12
        times = [result.seconds[reader] for reader in readers]
        places = [axis.across(seconds) for seconds in times]
        parts.append(_text(LEFT - 10, y + 4, result.name, anchor="end"))
        parts.append(f'<path class="span" d="M{min(places):.1f} {y}H{max(places):.1f}"/>')
        # Dots instead of bars: a logarithmic axis has no zero.
        for x, name in zip(places, classes, strict=True):
            parts.append(f'<circle class="{name}" cx="{x:.1f}" cy="{y}" r="{DOT}"/>')
        right = WIDTH - RIGHT + 15
        parts.append(_text(right, y - 1, spell_gain(times[0] / times[-1]), "strong"))
        ends = f"{format_seconds(times[0])}, then {format_seconds(times[-1])}"
        parts.append(_text(right, y + 13, ends, "small quiet"))
    return parts


def _wrapped(words: str, columns: int = 66) -> list[str]:
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) >= columns:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{word}"
    return lines


def _text(x: float, y: float, words: str, name: str = "", anchor: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{anchored}>{escape(words)}</text>'
