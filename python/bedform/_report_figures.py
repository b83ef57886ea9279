"""The SVG pictures of a report: heat maps, bars, and the effect of budgets.

Colours are CSS classes; the page's style defines them for light and dark screens and for paper.
Each picture has a title and a description for screen readers.
"""

from __future__ import annotations

import html
import itertools
import math
from typing import TYPE_CHECKING, Any, Final

from bedform import _shown
from bedform._report_coordinates import coordinate_at, coordinate_span
from bedform._report_reads import cell_bounds, cells_of
from bedform._text import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedform._report_coordinates import Labels

__all__ = ["LEVELS_MAX", "axis_bars", "budget_curve", "count_text", "escaped", "heat_map", "levels"]

#: Number of colours, from few reads to many.
LEVELS_MAX: Final = 7
#: Sizes in units of the view box, about one pixel each on a telephone.
_WIDTH: Final = 360
_LEFT: Final = 74
_RIGHT: Final = 14
_MAP_HEIGHT: Final = 210
_BARS_HEIGHT: Final = 64
_NAME_MAX: Final = 22
#: Characters of a label beside the vertical axis.
_TICK_MAX: Final = 10
_OUTLINED_MAX: Final = 3
_RECTANGLES_MAX: Final = 200

Box = tuple[float, float, float, float]


def escaped(value: object, characters: int = 300) -> str:
    """Returns a name or value of a file as safe HTML: printable, bounded and escaped."""
    return html.escape(_shown.printable(value, characters))


def count_text(count: float) -> str:
    """Formats a number of reads, or a position."""
    if count < 1e9:
        return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
    return f"{count:.2e}"


def levels(most: float) -> list[float]:
    """Returns the lower bounds of the levels: 0, then equal ratios from one read to ``most``."""
    if most <= 1:
        return [0.0]
    for ratios in ((1, 2, 5), (1, 3), (1,)):
        starts = [10.0**power * ratio for power in range(20) for ratio in ratios]
        found = [0.0, *itertools.takewhile(lambda start: start <= most, starts)]
        if len(found) <= LEVELS_MAX:
            return found
    step = math.log10(most) / (LEVELS_MAX - 1)
    return [0.0, *(float(f"{10 ** (step * at):.1e}") for at in range(LEVELS_MAX - 1))]


def heat_map(
    cells: Sequence[Sequence[float]],
    shape: tuple[int, int],
    dims: tuple[str, str],
    labels: tuple[Labels, Labels],
    starts: Sequence[float],
    outlines: Iterable[tuple[str, str, list[Box]]],
    number: str,
) -> str:
    """Draws the reads over two axes of an array: the first downwards, the second to the right.

    Parameters
    ----------
    cells
        Reads of each cell of `cell_bounds`.
    shape, dims
        Lengths and names of the two axes.
    labels
        The known coordinates of the two axes.
    starts
        The lower bounds from `levels`.
    outlines
        Outlines over the map: a label, a class, and boxes (first, end, first, end).
    number
        Number that makes the picture's element ids unique in the page.
    """
    area = _Area(shape, _MAP_HEIGHT)
    drawn = _cells_drawn(cells, area, starts)
    most = max(itertools.chain([0.0], *cells))
    lines, said, placed_labels = [], [], []
    for label, style, boxes in outlines:
        placed = [area.rectangle(box) for box in boxes[:_RECTANGLES_MAX]]
        path = "".join(_rectangle(one) for one in placed)
        lines.append(f'<path class="under" d="{path}"/><path class="{style}" d="{path}"/>')
        placed_labels.append((label, style, placed[0]))
        down, across = boxes[0][:2], boxes[0][2:]
        spans = (_span(dims[0], *down, labels[0]), _span(dims[1], *across, labels[1]))
        said.append(f"{label}: {', '.join(spans)}")
    title = f"Reads over {_short(dims[0])} and {_short(dims[1])}"
    about = f"At most {count_text(most)} reads of a cell. {'. '.join(said)}"
    frame = f'<rect class="frame" x="{_LEFT}" y="8" width="{area.width}" height="{area.height}"/>'
    inner = frame.replace("frame", "empty") + drawn + frame + "".join(lines)
    inner += _labels(placed_labels, area) + _axes(area, dims, labels)
    return _svg(inner, area.bottom + 36, title, about, number)


def axis_bars(
    counts: Sequence[float],
    length: int,
    dim: str,
    labels: Labels,
    spans: Sequence[tuple[str, int, int]],
    key: str,
) -> str:
    """Draws the reads along one axis, and the spans with most reads of each kind."""
    area = _Area((1, length), _BARS_HEIGHT)
    most = max(counts, default=0) or 1
    bounds = cell_bounds(length)
    bars = []
    for at, count in enumerate(counts):
        if not count:
            continue
        left, right = area.across(bounds[at]), area.across(bounds[at + 1])
        height = max(area.height * count / most, 1)
        said = f"{_span(dim, bounds[at], bounds[at + 1], labels)}: {count_text(count)} reads"
        gap = 0.6 if right - left > 2 else 0
        bars.append(
            f'<rect class="bar" x="{left:.1f}" y="{area.bottom - height:.1f}" '
            f'width="{max(right - left - gap, 0.5):.1f}" height="{height:.1f}">'
            f"<title>{escaped(said)}</title></rect>"
        )
    frame = (
        f'<path class="frame" d="M{_LEFT} {area.bottom}h{area.width}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="17" text-anchor="end">{count_text(most)}</text>'
        f'<text class="tick" x="{_LEFT - 6}" y="{area.bottom}" text-anchor="end">0</text>'
    )
    spanned, bottom = [], area.bottom + 20.0
    for label, first, end in spans:
        left, right = area.across(first), area.across(end)
        spanned.append(
            f'<path class="span" d="M{left:.1f} {bottom + 4:.1f}h{max(right - left, 2):.1f}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{bottom + 8:.1f}" text-anchor="end">'
            f"{escaped(label)}</text>"
        )
        bottom += 13
    inner = "".join(bars) + frame + _ticks_across(area, labels) + "".join(spanned)
    inner += _name_across(area, dim, bottom + 14)
    said = ". ".join(f"{label}: {_span(dim, first, end, labels)}" for label, first, end in spans)
    about = f"At most {count_text(most)} reads of a stretch. {said}"
    return _svg(inner, bottom + 22, f"Reads along {_short(dim)}", about, key)


def budget_curve(
    budgets: Sequence[dict[str, Any]], now: float, of_source: float, number: str
) -> str:
    """Draws the predicted time of all recorded reads over the budget of replicas."""
    height, bottom = 170, 176
    right = _WIDTH - 20
    width = right - _LEFT
    low, high = (math.log10(one["percent"]) for one in (budgets[0], budgets[-1]))
    most = max([of_source, now, *(one["seconds_then"] for one in budgets)]) or 1.0
    points = [
        (
            _LEFT + width * (math.log10(one["percent"]) - low) / max(high - low, 1e-9),
            bottom - (height - 20) * one["seconds_then"] / most,
        )
        for one in budgets
    ]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    drawn = [f'<path class="frame" d="M{_LEFT} {bottom}h{width}"/>']
    references = [("file alone", of_source), ("now", now)]
    if abs(of_source - now) < 0.08 * most:
        references = [("now", now)]
    for name, seconds in references:
        y = bottom - (height - 20) * seconds / most
        drawn.append(
            f'<path class="reference" d="M{_LEFT} {y:.1f}h{width}"/>'
            f'<text class="tick" x="{right}" y="{y - 5:.1f}" text-anchor="end">'
            f"{name}: {format_seconds(seconds)}</text>"
        )
    drawn.append(f'<path class="curve" d="{line}"/>')
    for one, (x, y) in zip(budgets, points, strict=True):
        said = f"{one['percent']}%: {format_seconds(one['seconds_then'])}"
        drawn.append(
            f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{said}</title></circle>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{one['percent']}%</text>"
        )
    for seconds, y in ((most, bottom - height + 20), (0.0, bottom)):
        shown = format_seconds(seconds) if seconds else "0"
        drawn.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'
        )
    drawn.append(
        f'<text class="name" x="{_LEFT + width / 2}" y="{bottom + 37}" text-anchor="middle">'
        "budget, of the file's size</text>"
    )
    about = "; ".join(
        f"{one['percent']}%: {format_seconds(one['seconds_then'])}" for one in budgets
    )
    title = "Predicted time of all recorded reads, by budget"
    return _svg("".join(drawn), bottom + 44, title, about, number)


class _Area:
    """The drawing area of a picture, with its conversion of positions to coordinates."""

    def __init__(self, shape: tuple[int, int], height: int) -> None:
        self.shape, self.height = shape, height
        self.width, self.bottom = _WIDTH - _LEFT - _RIGHT, height + 8

    def across(self, position: float) -> float:
        return _LEFT + self.width * position / max(self.shape[1], 1)

    def down(self, position: float) -> float:
        return 8 + self.height * position / max(self.shape[0], 1)

    def rectangle(self, box: Box) -> Box:
        """Returns left, top, right and bottom of a box, each at least 2 units apart."""
        left, right = self.across(box[2]), self.across(box[3])
        top, bottom = self.down(box[0]), self.down(box[1])
        return left, top, max(right, left + 2), max(bottom, top + 2)


def _cells_drawn(cells: Sequence[Sequence[float]], area: _Area, starts: Sequence[float]) -> str:
    """Draws one path per level: runs of cells of one level, merged over equal rows."""
    rows = [tuple(_level(count, starts) for count in row) for row in cells]
    bounds = [cell_bounds(length) for length in area.shape]
    paths: dict[int, list[str]] = {}
    number = 0
    for row, equal in itertools.groupby(rows):
        first, number = number, number + len(list(equal))
        top, bottom = area.down(bounds[0][first]), area.down(bounds[0][number])
        column = 0
        for level, run in itertools.groupby(row):
            begin, column = column, column + len(list(run))
            if level is not None:
                left, right = area.across(bounds[1][begin]), area.across(bounds[1][column])
                paths.setdefault(level, []).append(_rectangle((left, top, right, bottom)))
    return "".join(
        f'<path class="h{level}" d="{"".join(paths[level])}"/>' for level in sorted(paths)
    )


def _level(count: float, starts: Sequence[float]) -> int | None:
    """Returns the level of a number of reads; None for none."""
    if count <= 0:
        return None
    # A sum of shares may be slightly less than the reads that it stands for.
    return max(at for at, start in enumerate(starts) if start <= count * (1 + 1e-9))


def _rectangle(box: Box) -> str:
    left, top, right, bottom = box
    return f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z"


def _labels(labels: Sequence[tuple[str, str, Box]], area: _Area) -> str:
    """Draws labels next to the outlines, without overlaps."""
    taken: list[Box] = []
    drawn = []
    for text, style, box in labels:
        width, height = 8.0 * len(text) + 8, 15.0
        left, top, right, bottom = box
        corners = [
            (left, top - height - 2), (left, bottom + 2), (right + 2, top), (left - width - 2, top),
            (right - width, top - height - 2), (right - width, bottom + 2),
            (left + 3, top + 3), (right - width - 3, bottom - height - 3),
            *((left + 3, top + 3 + 17 * down) for down in range(1, 10)),
        ]  # fmt: skip
        place = next((at for at in corners if _is_free(at, width, height, taken, area)), None)
        if place is None:
            continue
        x, y = place
        taken.append((x, y, x + width, y + height))
        drawn.append(
            f'<rect class="pill {style}-pill" x="{x:.1f}" y="{y:.1f}" width="{width}" '
            f'height="{height}" rx="3"/><text class="label {style}-label" '
            f'x="{x + width / 2:.1f}" y="{y + 11.5:.1f}" text-anchor="middle">'
            f"{escaped(text)}</text>"
        )
    return "".join(drawn)


def _is_free(
    at: tuple[float, float], width: float, height: float, taken: Sequence[Box], area: _Area
) -> bool:
    x, y = at
    inside = x >= _LEFT and y >= 8 and x + width <= _WIDTH - _RIGHT and y + height <= area.bottom
    return inside and not any(
        x < right and left < x + width and y < bottom and top < y + height
        for left, top, right, bottom in taken
    )


def _axes(area: _Area, dims: tuple[str, str], labels: tuple[Labels, Labels]) -> str:
    middle = area.height / 2 + 8
    first, last = _ends(area.shape[0], labels[0])
    # A date and its time are two lines, since the margin is narrow.
    above, below = first.split(" ", 1), last.split(" ", 1)
    ticks = [*zip(above, (18, 31), strict=False)]
    ticks += [*zip(reversed(below), (area.bottom, area.bottom - 13), strict=False)]
    down = "".join(
        f'<text class="tick" x="{_LEFT - 6}" y="{y}" text-anchor="end">'
        f"{escaped(text, _TICK_MAX)}</text>"
        for text, y in ticks
    )
    name = (
        f'<text class="name" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{_short(dims[0])}</text>"
    )
    return (
        down + name + _ticks_across(area, labels[1]) + _name_across(area, dims[1], area.bottom + 30)
    )


def _ends(length: int, labels: Labels) -> tuple[str, str]:
    """Returns the labels of the two ends of an axis: coordinates, or else positions."""
    first, last = coordinate_at(labels, 0), coordinate_at(labels, length - 1)
    return ("0", count_text(length)) if first is None or last is None else (first, last)


def _ticks_across(area: _Area, labels: Labels) -> str:
    y, right = area.bottom + 15, _WIDTH - _RIGHT
    first, last = (escaped(text, 2 * _TICK_MAX) for text in _ends(area.shape[1], labels))
    return (
        f'<text class="tick" x="{_LEFT}" y="{y}">{first}</text>'
        f'<text class="tick" x="{right}" y="{y}" text-anchor="end">{last}</text>'
    )


def _name_across(area: _Area, dim: str, y: float) -> str:
    middle = _LEFT + area.width / 2
    return f'<text class="name" x="{middle}" y="{y:.1f}" text-anchor="middle">{_short(dim)}</text>'


def _short(name: str) -> str:
    return escaped(name, _NAME_MAX)


def _span(dim: str, first: float, end: float, labels: Labels) -> str:
    shown = _shown.printable(dim, _NAME_MAX)
    positions = f"{first:.0f}" if end == first + 1 else f"{first:.0f}:{end:.0f}"
    return f"{shown} {positions}{coordinate_span(labels, first, end)}"


def _svg(inner: str, height: float, title: str, about: str, number: str) -> str:
    """Returns a picture; ``title`` is HTML already, ``about`` is text."""
    named = f'aria-labelledby="{number}-title {number}-about"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {named} '
        f'viewBox="0 0 {_WIDTH} {height:.0f}"><title id="{number}-title">{title}</title>'
        f'<desc id="{number}-about">{html.escape(about)}</desc>{inner}</svg>'
    )


def outlines_of(
    array: dict[str, Any], replicas: Sequence[dict[str, Any]], first: int, second: int
) -> list[tuple[str, str, list[Box]]]:
    """Returns outlines over two axes: boxes with most reads of each kind, and replicas."""
    shape = array["shape"]
    found: list[tuple[str, str, list[Box]]] = []
    for kind in array["kinds"][:_OUTLINED_MAX]:
        start, end = kind["hot_start"], kind["hot_end"]
        if any(end[axis] - start[axis] < shape[axis] for axis in (first, second)):
            box = (start[first], end[first], start[second], end[second])
            found.append((kind["label"], "hot", [box]))
    for replica in replicas:
        if "runs" not in replica["held"]:
            # Replicas of single elements: the catalogue does not have their positions.
            continue
        runs = [replica["held"]["runs"][axis] for axis in (first, second)]
        if len(runs[0]) * len(runs[1]) > _RECTANGLES_MAX:
            # Draws the bounding box instead of too many pieces.
            runs = [[[axis[0][0], axis[-1][0] + axis[-1][1] - axis[0][0]]] for axis in runs]
        boxes = [(a, a + n, b, b + m) for (a, n), (b, m) in itertools.product(*runs)]
        found.append((replica["label"], "held", boxes))
    return found


def axis_counts(array: dict[str, Any], axis: int) -> list[int]:
    """Returns the reads of all kinds in each cell of an axis."""
    sides = [cells_of(kind["bins"][axis], array["shape"][axis]) for kind in array["kinds"]]
    return [sum(counts) for counts in zip(*sides, strict=True)]
