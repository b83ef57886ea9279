"""The page of a report: one self-contained HTML document without scripts.

It fits screens of any width, light and dark, paper, and screen readers. Names and values come from
any file: each is made printable, bounded and escaped.
"""

from __future__ import annotations

import itertools
import re
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from bedform import _internal
from bedform._plan_lines import index_text, profile_line
from bedform._report_coordinates import coordinate_span
from bedform._report_figures import (
    axis_bars,
    axis_counts,
    budget_curve,
    count_text,
    escaped,
    heat_map,
    levels,
    outlines_of,
)
from bedform._report_reads import joint_reads
from bedform._report_style import STYLE
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedform._report_coordinates import Labels

__all__ = ["GENERATOR", "page_of"]

#: Mark near the beginning of every report, by which it is recognized.
GENERATOR: Final = '<meta name="generator" content="bedform report '

_HOT_ARRAYS_MAX: Final = 12
_ARRAYS_MAX: Final = 100
_MAPS_MAX: Final = 6
_KINDS_MAX: Final = 8
_SPANS_MAX: Final = 3
_REPLICAS_MAX: Final = 50
_QUERIES_MAX: Final = 20
_NOTES_MAX: Final = 20
#: Most columns of a table on a small tablet.
_NARROW_COLUMNS_MAX: Final = 7
#: Characters of a word in a table after which it may break; an entity counts as one.
_LONG_WORD: Final = re.compile(r"(?:&[#\w]+;|[^\s&]){24}(?=\S)")

_PATTERNS: Final = {
    "contiguous": "one after the other",
    "strided": "equal steps",
    "composed_rows": "rows whose steps repeat",
    "composed": "steps that repeat",
    "correlated": "places that follow another place",
    "interleaved": "several patterns at the same time",
}


def page_of(facts: dict[str, Any]) -> str:
    """Renders the result of `gather_facts` as a page."""
    name = PurePath(facts["path"].rstrip("/")).name or facts["path"]
    title = f"Reads of {escaped(name, 80)}"
    sections = [
        _summary(facts),
        _next_html(facts["next"]),
        _notes_html(facts["notes"]),
        _where_html(facts),
        _patterns_html(facts["reads"]),
        _queries_html(facts),
        _replicas_html(facts),
        _budgets_html(facts),
        _arrays_html(facts),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'{GENERATOR}{escaped(_internal.__version__)}"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{title}</h1>\n<p class="path">{escaped(facts["path"])}</p>\n'
        + "\n".join(filter(None, sections))
        + f"\n</main>\n{_footer(facts)}\n</body>\n</html>\n"
    )


def _summary(facts: dict[str, Any]) -> str:
    recorded = facts["recorded"]
    stored = facts["stored_bytes"]
    entries = [
        ("format", escaped(facts["format"])),
        ("stored", _bytes(stored) if stored is not None else "not counted"),
        ("arrays", count_text(len(facts["arrays"]))),
        ("recording", "on" if facts["recording"] else "off"),
        ("reads recorded", count_text(recorded["reads"])),
    ]
    if recorded["reads"]:
        entries += [
            ("bytes read", _bytes(recorded["bytes"])),
            ("time of reads", format_seconds(recorded["seconds"])),
        ]
    if facts["queries"]:
        count = sum(query["queries"] for query in facts["queries"])
        entries.append(("queries recorded", count_text(count)))
    if recorded["last"]:
        entries.append(("last read", _when(recorded["last"])))
    if facts["replicas"]:
        held = sum(replica["stored_bytes"] for replica in facts["replicas"])
        entries.append(("replicas", f"{len(facts['replicas'])}, {_bytes(held)}"))
    cards = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in entries)
    return f'<dl class="cards">{cards}</dl>'


def _next_html(step: dict[str, str | None]) -> str:
    command = step["command"]
    words = [] if command is None else escaped(command, 2000).split(" ")
    # Options must not break at their hyphens.
    spans = " ".join(f"<span>{word}</span>" if word[:2] == "--" else word for word in words)
    shown = f"<pre><code>{spans}</code></pre>" if words else ""
    return (
        '<section class="next" aria-labelledby="next"><h2 id="next">What to do next</h2>'
        f"<p>{escaped(step['text'], 1000)}</p>{shown}</section>"
    )


def _notes_html(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = [f"<li>{escaped(note)}</li>" for note in notes[:_NOTES_MAX]]
    if len(notes) > _NOTES_MAX:
        items.append(f"<li>{len(notes) - _NOTES_MAX} more notes</li>")
    return f'<section class="notes"><h2>Notes</h2><ul>{"".join(items)}</ul></section>'


def _where_html(facts: dict[str, Any]) -> str:
    """Renders maps, bars and kinds of reads for each array that was read."""
    hot = [array for array in facts["reads"] if array["kinds"]]
    unplaced = [array for array in facts["reads"] if not array["kinds"]]
    if not facts["reads"]:
        return (
            "<section><h2>Where reads fall</h2><p>No reads are known yet: this part, the patterns "
            "and what replicas would bring are shown once some are recorded.</p></section>"
        )
    parts = [
        _array_section(facts, array, number)
        for number, array in enumerate(hot[:_HOT_ARRAYS_MAX], start=1)
    ]
    if (more := len(hot) - _HOT_ARRAYS_MAX) > 0:
        parts.append(f"<p>{more} more arrays were read, in less time: --json has them.</p>")
    if unplaced:
        names = ", ".join(escaped(array["array"] or "/") for array in unplaced[:_NOTES_MAX])
        parts.append(f"<p>Of these only lists of positions or points were read: {names}.</p>")
    return (
        "<section><h2>Where reads fall</h2><p>Arrays whose reads took most time come first. "
        "Reads of equal lengths are of one kind, wherever they are: A, B and so on. A solid frame "
        "is where most reads of a kind are, a dashed one what a replica holds.</p>"
        + "".join(parts)
        + "</section>"
    )


def _array_section(facts: dict[str, Any], array: dict[str, Any], number: int) -> str:
    shape = " x ".join(map(count_text, array["shape"]))
    seconds = format_seconds(array["seconds"]) if array["seconds"] else "no time"
    reads = _plural(array["reads"], "read")
    lists = array["lists"]
    unplaced = f", {count_text(lists)} of them lists of positions, not shown" if lists else ""
    held = [one for one in facts["replicas"] if one["array"] == array["array"]]
    fitting = [one for one in held if one["array_shape"] == array["shape"]]
    shown = fitting if facts["replicas_are_current"] else []
    return (
        f'<section class="array"><h3>{escaped(array["array"] or "/")}</h3>'
        f"<p>{shape} ({', '.join(map(escaped, array['dims']))}): {reads} of "
        f"{_bytes(array['bytes'])} in {seconds}{unplaced}.</p>"
        + _maps(array, shown, number)
        + _bars(array, number)
        + _kinds_table(facts, array)
        + "</section>"
    )


def _maps(array: dict[str, Any], replicas: Sequence[dict[str, Any]], number: int) -> str:
    """Draws a heat map for each pair of axes, all with one scale."""
    shape = array["shape"]
    wide = [axis for axis, length in enumerate(shape) if length > 1]
    pairs = list(itertools.combinations(wide, 2))
    # The last axes are usually the ones shown on maps.
    pairs = sorted(pairs, key=lambda pair: (-pair[0], -pair[1]))[:_MAPS_MAX]
    all_joined = [(pair, joint_reads(array["kinds"], shape, *pair)) for pair in pairs]
    shown = [(pair, joint) for pair, joint in all_joined if any(map(any, joint[0]))]
    most = max((max(map(max, cells)) for _, (cells, *_) in shown), default=0.0)
    starts = levels(most)
    figures = []
    for (first, second), (cells, of_all, is_counted) in shown:
        dims = (array["dims"][first], array["dims"][second])
        outlines = outlines_of(array, replicas, first, second)
        labels = (array["coordinates"][first], array["coordinates"][second])
        picture = heat_map(
            cells,
            (shape[first], shape[second]),
            dims,
            labels,
            starts,
            outlines,
            f"map-{number}-{first}-{second}",
        )
        said = f"{escaped(dims[0], 40)} and {escaped(dims[1], 40)}"
        if not is_counted:
            said += ", estimated from the counts along each axis"
        if of_all:
            said += f"; {_plural(of_all, 'more read')} took all of both"
        places = "".join(
            f"<br/>{escaped(label)}: {_box_text(boxes, dims, labels)}"
            for label, _, boxes in outlines
        )
        figures.append(f"<figure>{picture}<figcaption>{said}{places}</figcaption></figure>")
    if not figures:
        return ""
    left = len(wide) * (len(wide) - 1) // 2 - len(pairs)
    more = f"<p>{_plural(left, 'more pair')} of axes not shown.</p>" if left > 0 else ""
    least = min(
        (count for _, (cells, *_) in shown for row in cells for count in row if count), default=1
    )
    legend = _legend(starts, least, most)
    return f'<div class="figures">{"".join(figures)}</div>{legend}{more}'


def _box_text(
    boxes: Sequence[Sequence[float]], dims: tuple[str, str], labels: tuple[Labels, Labels]
) -> str:
    bounds = [(min(box[at] for box in boxes), max(box[at + 1] for box in boxes)) for at in (0, 2)]
    spans = [
        _span_text(dim, *ends, known) for dim, ends, known in zip(dims, bounds, labels, strict=True)
    ]
    pieces = f", in {len(boxes)} pieces" if len(boxes) > 1 else ""
    return f"{', '.join(spans)}{pieces}"


def _span_text(dim: str, first: float, end: float, labels: Labels) -> str:
    """Describes positions of an axis, with their coordinates if these are known."""
    return f"{escaped(dim, 40)} {first:.0f}:{end:.0f}{escaped(coordinate_span(labels, first, end))}"


def _legend(starts: Sequence[float], least: float, most: float) -> str:
    """Renders the colours of the maps, in reads."""
    entries = ["<li>reads:</li>", '<li><span class="swatch empty"></span>none</li>']
    for level, start in enumerate(starts):
        end = starts[level + 1] if level + 1 < len(starts) else None
        if end is not None and least >= end and start == 0:
            continue
        if start == 0:
            shown = f"under {count_text(end)}" if end is not None else "at most 1"
        elif end is None:
            at_most = count_text(max(most, start))
            shown = at_most if at_most == count_text(start) else f"{count_text(start)} to {at_most}"
        elif end - start <= 1:
            shown = count_text(start)
        else:
            shown = f"{count_text(start)} to {count_text(end - 1)}"
        entries.append(f'<li><span class="swatch s{level}"></span>{shown}</li>')
    return f'<ul class="legend" aria-label="Reads of a cell">{"".join(entries)}</ul>'


def _bars(array: dict[str, Any], number: int) -> str:
    figures, even = [], []
    for axis, dim in enumerate(array["dims"]):
        length = array["shape"][axis]
        counts = axis_counts(array, axis)
        if min(counts) == max(counts):
            even.append(escaped(dim, 40))
            continue
        spans = [
            (kind["label"], kind["hot_start"][axis], kind["hot_end"][axis])
            for kind in array["kinds"][:_SPANS_MAX]
        ]
        labels = array["coordinates"][axis]
        picture = axis_bars(counts, length, dim, labels, spans, f"bars-{number}-{axis}")
        caption = f"reads along {escaped(dim, 40)}"
        figures.append(f"<figure>{picture}<figcaption>{caption}</figcaption></figure>")
    shown = f'<div class="figures">{"".join(figures)}</div>' if figures else ""
    if not even:
        return shown
    return f"{shown}<p>Along {', '.join(even)} reads are even: as many everywhere.</p>"


def _kinds_table(facts: dict[str, Any], array: dict[str, Any]) -> str:
    plan = facts["plan"]
    columns = ["kind", "read", "where most are", "reads", "bytes of one", "measured"]
    # Without replicas the present prediction is that of the file alone.
    has_now = bool(facts["replicas"])
    if plan is not None:
        columns += ["predicted, file alone"] + ["predicted now"] * has_now
        columns += [f"predicted with {escaped(plan['budget'])}", "faster than file"]
    rows = []
    for kind in array["kinds"][:_KINDS_MAX]:
        cells = [
            kind["label"],
            _read_text(kind, array),
            _place_text(kind, array),
            count_text(kind["reads"]),
            _bytes(kind["bytes"] / kind["reads"]),
            format_seconds(kind["measured_seconds"]),
        ]
        if plan is not None:
            cells += _predicted_cells(kind["predicted"], has_now)
        rows.append(cells)
    table = _table(f"Kinds of reads of {escaped(array['array'] or '/')}", columns, rows, 3)
    if (more := len(array["kinds"]) - _KINDS_MAX) > 0:
        table += f"<p>{_plural(more, 'more kind')}, in less time: --json has them.</p>"
    return table


def _predicted_cells(predicted: dict[str, float] | None, has_now: bool) -> list[str]:
    if predicted is None:
        return ["-"] * (3 + has_now)
    alone, then = predicted["seconds_of_source"], predicted["seconds_then"]
    now = [format_seconds(predicted["seconds_now"])] if has_now else []
    return [format_seconds(alone), *now, format_seconds(then), _times(alone, then)]


def _read_text(kind: dict[str, Any], array: dict[str, Any]) -> str:
    """Describes the elements that such a read takes along each axis."""
    parts = []
    axes = zip(array["dims"], kind["counts"], kind["steps"], array["shape"], strict=True)
    for dim, count, step, length in axes:
        name = escaped(dim, 40)
        if count == length and step == 1:
            parts.append(f"all {name}")
        elif step > 1:
            parts.append(f"{count} {name} in steps of {step}")
        else:
            parts.append(f"{count} {name}")
    return ", ".join(parts)


def _place_text(kind: dict[str, Any], array: dict[str, Any]) -> str:
    parts = [
        _span_text(dim, first, end, labels)
        for dim, first, end, length, labels in zip(
            array["dims"],
            kind["hot_start"],
            kind["hot_end"],
            array["shape"],
            array["coordinates"],
            strict=True,
        )
        if end - first < length
    ]
    return ", ".join(parts) or "everywhere"


def _patterns_html(reads: Sequence[dict[str, Any]]) -> str:
    rows = []
    for array in reads[:_HOT_ARRAYS_MAX]:
        for pattern in array["patterns"]:
            kind = pattern["kind"]
            about = f"{kind}: {_PATTERNS[kind]}" if kind in _PATTERNS else kind
            rows.append(
                [
                    escaped(array["array"] or "/"),
                    escaped(about),
                    count_text(pattern["reads"]),
                    _share(pattern["share_of_reads"]),
                    _share(pattern["share_of_bytes"]),
                ]
            )
    if not reads:
        return ""
    head = "<section><h2>Patterns</h2>"
    if not rows:
        return f"{head}<p>No read was predicted by the reads before it.</p></section>"
    columns = ["array", "pattern", "reads predicted", "of its reads", "of its bytes"]
    return (
        f"{head}<p>Reads that a pattern of the reads before them had predicted. A later run has "
        "them read ahead.</p>" + _table("Patterns of reads", columns, rows, 2) + "</section>"
    )


def _queries_html(facts: dict[str, Any]) -> str:
    """Renders the conditions of queries, with the effect of indexes."""
    queries, plan = facts["queries"], facts["plan"]
    if not queries:
        return ""
    columns = ["query", "queries", "time of one", "bytes of one", "blocks left out"]
    if plan is not None:
        columns += ["predicted, scan", "predicted now", f"with {escaped(plan['budget'])}"]
    rows = []
    for query in queries[:_QUERIES_MAX]:
        cells = [
            escaped(query["condition"] or "(a condition too long to be recorded)"),
            count_text(query["queries"]),
            format_seconds(query["seconds"] / query["queries"]),
            _bytes(query["bytes"] / query["queries"]),
            _share(query["blocks_left_out"] / max(query["blocks"], 1)),
        ]
        if plan is not None:
            keys = ("seconds_of_source", "seconds_now", "seconds_then")
            known = query["predicted"]
            cells += ["-" if known is None else format_seconds(known[key]) for key in keys]
        rows.append(cells)
    parts = [_table("Queries by value", columns, rows, 1)]
    if (more := len(queries) - _QUERIES_MAX) > 0:
        parts.append(f"<p>{_plural(more, 'more query', 'more queries')}: --json has them.</p>")
    parts += [f"<p>{escaped(text)}</p>" for text in _index_lines(plan)]
    return (
        "<section><h2>Queries</h2><p>Conditions whose queries took most time come first. An index "
        "lets a query leave out blocks; a scan leaves out those that conditions on coordinates "
        f"decide.</p>{''.join(parts)}</section>"
    )


def _index_lines(plan: dict[str, Any] | None) -> list[str]:
    """Returns the indexes of a plan in sentences."""
    if plan is None:
        return []
    indexes, budget = plan["indexes"], plan["budget"]
    lines = [f"A budget of {budget} would make {index_text(one)}." for one in indexes["make"]]
    lines += [f"bedform optimize made the index of {name or '/'}." for name in indexes["keep"]]
    lines += [f"A budget of {budget} would drop that of {name or '/'}." for name in indexes["drop"]]
    return lines


def _replicas_html(facts: dict[str, Any]) -> str:
    replicas, plan = facts["replicas"], facts["plan"]
    if not facts["is_file"] and not replicas and (plan is None or not plan["make"]):
        return ""
    head = "<section><h2>Replicas</h2>"
    parts = []
    if replicas:
        dims = {array["array"]: array["dims"] for array in facts["arrays"]}
        rows = [_replica_row(one, dims.get(one["array"], ())) for one in replicas[:_REPLICAS_MAX]]
        columns = [
            "replica",
            "of",
            "holds",
            "chunks",
            "made",
            "made for",
            "size",
            "without",
            "with",
        ]
        parts.append(_table("Replicas that there are", columns, rows, 6))
        if (more := len(replicas) - _REPLICAS_MAX) > 0:
            parts.append(f"<p>{_plural(more, 'more replica')}: --json has them.</p>")
        if not facts["replicas_are_current"]:
            parts.append("<p>None of them is used: the file has changed since.</p>")
    else:
        parts.append("<p>There are none.</p>")
    if plan is not None and plan["make"]:
        rows = [
            [
                escaped(one["array"] or "/"),
                _held_text(one["held"], one["dims"]),
                " x ".join(map(str, one["chunks"])),
                escaped(one["order"]),
                _bytes(one["bytes"]),
                format_seconds(one["building_seconds"]),
            ]
            for one in plan["make"][:_REPLICAS_MAX]
        ]
        columns = ["of", "holds", "chunks", "order", "size", "takes to make"]
        budget = escaped(plan["budget"])
        parts.append(_table(f"A budget of {budget} would make", columns, rows, 4))
    if plan is not None and plan["drop"]:
        dropped = _plural(len(plan["drop"]), "replica")
        parts.append(f"<p>A budget of {escaped(plan['budget'])} would drop {dropped}.</p>")
    return head + "".join(parts) + "</section>"


def _replica_row(replica: dict[str, Any], dims: Sequence[str]) -> list[str]:
    expected = replica["expected"]
    first = max(expected, key=lambda one: one["reads"] * one["seconds_without"], default=None)
    made_for = without = with_it = "-"
    if first is not None:
        made_for = f"{count_text(first['reads'])} reads of {' x '.join(map(str, first['shape']))}"
        if len(expected) > 1:
            made_for += f", and {_plural(len(expected) - 1, 'other kind')}"
        without = format_seconds(first["seconds_without"])
        with_it = format_seconds(first["seconds_with"])
    chunks = replica["chunks"]
    return [
        replica["label"],
        escaped(replica["array"] or "/"),
        _held_text(replica["held"], dims),
        "-" if chunks is None else " x ".join(map(str, chunks)),
        _when(replica["made"]),
        made_for,
        _bytes(replica["stored_bytes"]),
        without,
        with_it,
    ]


def _held_text(held: dict[str, Any], dims: Sequence[str]) -> str:
    if "runs" not in held:
        return _plural(held["points"]["count"], "single element")
    runs: Sequence[Sequence[Sequence[int]]] = held["runs"]
    parts = []
    for axis, pieces in enumerate(runs):
        name = escaped(dims[axis], 40) if len(dims) == len(runs) else f"dim_{axis}"
        first, end = pieces[0][0], pieces[-1][0] + pieces[-1][1]
        more = f" in {len(pieces)} pieces" if len(pieces) > 1 else ""
        parts.append(f"{name} {first}:{end}{more}")
    return ", ".join(parts)


def _budgets_html(facts: dict[str, Any]) -> str:
    head = "<section><h2>Gain by budget</h2>"
    plan, budgets = facts["plan"], facts["budgets"]
    if plan is None or not budgets:
        return f"{head}<p>Nothing to go by yet: no reads were learnt.</p></section>"
    picture = budget_curve(budgets, plan["seconds_now"], plan["seconds_of_source"], "budgets")
    rows = [
        [
            f"{one['percent']}%",
            _bytes(one["budget_bytes"]),
            _bytes(one["bytes"]),
            count_text(one["replicas"]),
            count_text(one["indexes"]),
            format_seconds(one["seconds_then"]),
            _times(plan["seconds_of_source"], one["seconds_then"]),
        ]
        for one in budgets
    ]
    columns = ["budget", "at most", "used", "replicas", "indexes", "all", "faster than the file"]
    return (
        f'{head}<div class="keep"><p>The predicted time of all recorded reads and queries '
        "together, with the replicas and indexes that bedform optimize would choose for each "
        "budget, "
        f"{escaped(', '.join(profile_line(plan)))}.</p>"
        f'<figure class="curve-figure">{picture}</figure></div>'
        + _table("What budgets bring", columns, rows, 1)
        + "</section>"
    )


def _arrays_html(facts: dict[str, Any]) -> str:
    reads = {array["array"]: array["reads"] for array in facts["reads"]}
    rows = []
    for array in facts["arrays"][:_ARRAYS_MAX]:
        stored, raw = array["stored_bytes"], array["bytes"]
        rows.append(
            [
                escaped(array["array"] or "/"),
                " x ".join(map(str, array["shape"])) or "scalar",
                ", ".join(escaped(dim, 40) for dim in array["dims"]) or "-",
                escaped(array["dtype"], 60),
                _layout_text(array),
                "-" if raw is None else _bytes(raw),
                "-" if stored is None else _bytes(stored),
                count_text(reads.get(array["array"], 0)),
            ]
        )
    columns = ["array", "shape", "dimensions", "type", "layout", "raw", "stored", "reads"]
    more = len(facts["arrays"]) - _ARRAYS_MAX
    said = f"<p>{_plural(more, 'more array')}: --json has them.</p>" if more > 0 else ""
    body = _table("Arrays", columns, rows, 5) if rows else "<p>There are none.</p>"
    return f"<section><h2>Arrays and their layout</h2>{body}{said}</section>"


def _layout_text(array: dict[str, Any]) -> str:
    chunks, shards = array["chunks"], array["shards"]
    if not chunks:
        return escaped(array["storage"] or "-")
    text = f"chunks {' x '.join(map(str, chunks))}"
    if shards:
        text += f", shards {' x '.join(map(str, shards))}"
    if array["order"]:
        text += f", {escaped(array['order'])}"
    codecs = ", ".join(escaped(codec, 40) for codec in array["codecs"][:8])
    return f"{text}; {codecs}" if codecs else text


def _footer(facts: dict[str, Any]) -> str:
    return (
        "<footer><p>Predicted times are of cold reads, with nothing in memory. Measured times are "
        "means of the recorded reads, of which some may have come from memory, or from replicas. "
        "A heat map of two axes is counted where each kind of read takes the same of one of them "
        "every time; else the axes count as independent. Recorded are positions, sizes and times: "
        "no values, no names of users or machines.</p>"
        f"<p>Made by Bedform {escaped(_internal.__version__)}, {_when(facts['made'])}.</p></footer>"
    )


def _table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int
) -> str:
    """Renders a table of HTML cells; on a narrow screen each row becomes a card.

    The roles mark it as a table for screen readers even where it is shown as cards.
    """
    style_of = [' class="number"' if at >= text_columns else "" for at in range(len(columns))]
    head = "".join(
        f'<th scope="col" role="columnheader"{style}>{name}</th>'
        for name, style in zip(columns, style_of, strict=True)
    )
    body = []
    for row in rows:
        row = [_breakable(cell) for cell in row]
        cells = [f'<th scope="row" role="rowheader" data-label="{columns[0]}">{row[0]}</th>']
        for number, cell in enumerate(row[1:], start=1):
            kind = style_of[number]
            cells.append(f'<td role="cell"{kind} data-label="{columns[number]}">{cell}</td>')
        body.append(f'<tr role="row">{"".join(cells)}</tr>')
    style = ' class="wide"' if len(columns) > _NARROW_COLUMNS_MAX else ""
    return (
        f'<table role="table"{style}><caption>{caption}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(body)}</tbody></table>'
    )


def _breakable(cell: str) -> str:
    """Returns a cell whose long words may break; short words never do."""
    return _LONG_WORD.sub(r"\g<0><wbr/>", cell)


def _bytes(count: float) -> str:
    return format_bytes(count)


def _share(part: float) -> str:
    return f"{part:.1%}"


def _times(before: float, after: float) -> str:
    """Formats the speedup."""
    if before <= 0 or after <= 0:
        return "-"
    ratio = before / after
    if 0.95 < ratio < 1.05:
        return "same"
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _plural(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count_text(count)} {noun if count == 1 else nouns or f'{noun}s'}"


def _when(seconds: int) -> str:
    """Formats a moment in UTC; ``-`` for one beyond the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "-"
