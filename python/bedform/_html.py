"""Stores, groups and arrays as HTML for notebooks: members, properties and layouts.

Names and values come from any file: each is made printable, bounded and escaped.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from bedform import _shown
from bedform._errors import BedformError
from bedform._reads import BasicReads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedform._members import GroupMembers

_MEMBERS_MAX = 100
_ATTRIBUTES_MAX = 50
_VALUE_CHARACTERS_MAX = 200
# The picture: its size in pixels, and the most lines that stay distinguishable.
_PIXELS = 160
_PIXELS_MIN = 24
_LINES_MAX = 32

_CELL = "padding:1px 8px;text-align:left;vertical-align:top"


def shown(value: GroupMembers | BasicReads) -> str:
    """Renders a group or array as HTML; if it cannot be read, the reason."""
    try:
        return _array_html(value) if isinstance(value, BasicReads) else _group_html(value)
    except BedformError as error:
        return f"<code>{_text(type(value).__name__)}</code>: {_text(error)}"


def _group_html(group: GroupMembers) -> str:
    """Renders a store, group or file: members with shapes, types, sizes and layouts."""
    rows, shown = [], group._sorted()
    for path, kind in shown[:_MEMBERS_MAX]:
        rows.append(_member_row(group, path, kind))
    if len(shown) > _MEMBERS_MAX:
        rows.append(_row([f"... and {len(shown) - _MEMBERS_MAX} more"]))
    head = _row(["name", "dimensions", "type", "size", "chunks", "shards", "codecs"], tag="th")
    table = f"<table>{head}{''.join(rows)}</table>" if rows else "<p>no members</p>"
    kind = type(group).__name__
    title = f"<b>{kind}</b> <code>{_text(group._where())}</code>"
    return f"<div>{title}{table}{_attributes_html(group)}</div>"


def _array_html(array: BasicReads) -> str:
    """Renders an array: properties, and a picture of its layout."""
    facts = [
        ("dimensions", _dimensions(array)),
        ("type", _type(array)),
        ("size", byte_text(array.nbytes)),
        ("chunks", _cells(array.chunks, array)),
        ("shards", _cells(array.shards, array)),
        ("order", getattr(array, "order", None) or ""),
        ("codecs", _codecs(array)),
        ("fill value", _value(array.fill_value)),  # type: ignore[attr-defined]
    ]
    rows = "".join(_row([name, value]) for name, value in facts if value)
    title = f"<b>{type(array).__name__}</b> <code>{_text(array._where())}</code>"
    picture = layout_svg(array.shape, array.chunks, array.shards, array.dims)  # type: ignore[attr-defined]
    table = f'<table style="float:left;margin-right:16px">{rows}</table>'
    clear = '<div style="clear:both"></div>'
    return f"<div>{title}<br>{table}{picture}{clear}{_attributes_html(array)}</div>"


def layout_svg(
    shape: Sequence[int],
    chunks: Sequence[int] | None,
    shards: Sequence[int] | None,
    dims: Sequence[str],
) -> str:
    """Draws the last two axes of an array with the borders of its shards and chunks.

    If the chunks are too many to see, it draws only those of the first shard.
    """
    if not shape or 0 in shape:
        return ""
    rank = min(2, len(shape))
    height, width = (1, *shape[-rank:])[-2:]
    cells = [((1, *entry[-rank:])[-2:] if entry else (height, width)) for entry in (chunks, shards)]
    size = [_pixels(length, max(height, width)) for length in (height, width)]
    lines = _grid(cells[0], cells[1], (height, width), size, 0.5, "0.35")
    if shards:
        lines += _grid(cells[1], (height, width), (height, width), size, 1.5, "0.9")
    frame = f'<rect x="1" y="1" width="{size[1]}" height="{size[0]}" fill="none" stroke-width="2"/>'
    names = " x ".join(_text(f"{dim} {length}") for dim, length in
                       zip(dims[-rank:], shape[-rank:], strict=True))  # fmt: skip
    others = math.prod(shape[:-rank])
    caption = names + (f", {others} times" if others > 1 else "")
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{size[1] + 2}" '
        f'height="{size[0] + 2}" stroke="currentColor"><title>{caption}</title>{lines}{frame}</svg>'
    )
    return f'<div style="float:left">{svg}<br><small>{caption}</small></div>'


def byte_text(count: int) -> str:
    """Formats a number of bytes with a fitting unit."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def _pixels(length: int, longest: int) -> int:
    return max(_PIXELS_MIN, round(_PIXELS * length / longest))


def _grid(
    cell: Sequence[int],
    within: Sequence[int],
    shape: Sequence[int],
    size: Sequence[int],
    stroke: float,
    opacity: str,
) -> str:
    """Draws lines every ``cell`` elements over ``shape``, or over ``within`` if too many."""
    few = all(length / max(step, 1) <= _LINES_MAX for length, step in zip(shape, cell, strict=True))
    area = [
        length if few else min(part, length) for part, length in zip(within, shape, strict=True)
    ]
    ends = [1 + area[axis] * size[axis] / shape[axis] for axis in (0, 1)]
    drawn = []
    for axis in (0, 1):
        step = max(cell[axis], 1, -(-area[axis] // _LINES_MAX))
        for at in range(step, area[axis], step):
            place = f"{1 + at * size[axis] / shape[axis]:.1f}"
            across = f"{ends[1 - axis]:.1f}"
            x, y = ((place, place), ("1", across)) if axis else (("1", across), (place, place))
            drawn.append(f'<line x1="{x[0]}" x2="{x[1]}" y1="{y[0]}" y2="{y[1]}"/>')
    return f'<g stroke-width="{stroke}" stroke-opacity="{opacity}">{"".join(drawn)}</g>'


def _member_row(group: GroupMembers, path: str, kind: str) -> str:
    indent = "&nbsp;" * 4 * path.count("/")
    name = f"{indent}{_text(path.rpartition('/')[2])}"
    if kind == "group":
        return _row([f"<b>{name}</b>", "group"])
    try:
        array = group[path]
        facts = [
            _dimensions(array),
            _type(array),
            byte_text(array.nbytes),
            _cells(array.chunks, array),
            _cells(array.shards, array),
            _codecs(array),
        ]
    except BedformError as error:
        facts = [_text(error.reason)]
    return _row([name, *facts])


def _dimensions(array: Any) -> str:
    sizes = zip(array.dims, array.shape, strict=True)
    return ", ".join(_text(f"{dim}: {size}") for dim, size in sizes) or "none"


def _type(array: Any) -> str:
    return "str" if array.dtype.hasobject else _text(array.dtype)


def _cells(cells: Sequence[int] | None, array: Any) -> str:
    if not cells:
        return ""
    item = array.dtype.itemsize
    return f"{' x '.join(map(str, cells))} ({byte_text(math.prod(cells) * item)})"


def _codecs(array: Any) -> str:
    return ", ".join(_text(codec["name"]) for codec in getattr(array, "compressors", ()))


def _attributes_html(owner: Any) -> str:
    held: dict[str, Any] = owner._load_attributes()
    if not held:
        return ""
    rows = [
        _row([_text(name), _value(value)]) for name, value in list(held.items())[:_ATTRIBUTES_MAX]
    ]
    if len(held) > _ATTRIBUTES_MAX:
        rows.append(_row([f"... and {len(held) - _ATTRIBUTES_MAX} more"]))
    summary = f"{len(held)} attribute{'s' if len(held) > 1 else ''}"
    return f"<details><summary>{summary}</summary><table>{''.join(rows)}</table></details>"


def _row(cells: Iterable[str], tag: str = "td") -> str:
    inner = "".join(f'<{tag} style="{_CELL}">{cell}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"


def _value(value: Any) -> str:
    return html.escape(
        _shown.printable(str(value)[: 4 * _VALUE_CHARACTERS_MAX], _VALUE_CHARACTERS_MAX)
    )


def _text(value: object) -> str:
    return html.escape(_shown.printable(value))
