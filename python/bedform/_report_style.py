"""The style sheet of a report: for screens of any width, light and dark, and for paper."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

#: From few reads to many. Lightness falls from step to step, so that the colours differ without
#: hue; on a dark screen it rises.
_LIGHT: Final = ("#e4f3bd", "#b5e0b3", "#74c7bd", "#3aa4c3", "#2476b3", "#26459b", "#101d56")
_DARK: Final = ("#1c2e63", "#24509c", "#2a7db4", "#42acbc", "#85cfb4", "#c4e7b0", "#f4fac6")


def _ramp(colours: tuple[str, ...]) -> str:
    return "".join(f"--h{level}:{colour};" for level, colour in enumerate(colours))


_LIGHT_COLOURS: Final = (
    "color-scheme:light;--page:#ffffff;--text:#1d2125;--soft:#565e66;--line:#d4d9de;--card:#f4f6f8;"
    "--empty:#f1f3f5;--accent:#17568f;--next:#e9f1f9;--held:#a3195b;--over:#ffffff;" + _ramp(_LIGHT)
)
_DARK_COLOURS: Final = (
    "color-scheme:dark;--page:#14171a;--text:#e8eaed;--soft:#a9b1b9;--line:#3a4149;--card:#1e2327;"
    "--empty:#20252a;--accent:#8cc4f5;--next:#1a2a3a;--held:#ff8fc0;--over:#0b0d0f;" + _ramp(_DARK)
)

_LEVELS: Final = "".join(
    f".h{level}{{fill:var(--h{level})}}.s{level}{{background:var(--h{level})}}\n"
    for level in range(len(_LIGHT))
)


def _cards(table: str, width: int) -> str:
    """Returns rules that show each row as a card on screens too narrow for a table."""
    return (
        f"@media screen and (max-width:{width}px){{\n"
        f"{table},{table} :is(caption,tr,th,td){{display:block;width:auto}}\n"
        f"{table} tbody{{display:grid;grid-template-columns:repeat(auto-fill,"
        "minmax(min(100%,290px),1fr));gap:10px}\n"
        f"{table} thead{{position:absolute;width:1px;height:1px;overflow:hidden;"
        "clip-path:inset(50%)}\n"
        f"{table} tr{{border:1px solid var(--line);border-radius:8px;padding:6px 12px}}\n"
        f"{table} tbody :is(th,td){{display:grid;min-width:0;border:0;padding:2px 0;gap:10px;"
        "grid-template-columns:minmax(90px,38%) 1fr;text-align:left;white-space:normal}\n"
        f"{table} tbody :is(th,td)::before{{content:attr(data-label);color:var(--soft);"
        "font-weight:400}\n}\n"
    )


STYLE: Final = (
    f":root{{{_LIGHT_COLOURS}}}\n"
    f"@media (prefers-color-scheme:dark){{@media screen{{:root{{{_DARK_COLOURS}}}}}}}\n"
    + _LEVELS
    + """\
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
main,footer{max-width:1180px;margin:0 auto;padding:0 20px}
h1{font-size:1.7rem;line-height:1.2;margin:28px 0 4px;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:36px 0 8px}
h3{font-size:1.05rem;margin:28px 0 4px;overflow-wrap:anywhere}
p{margin:6px 0 12px;max-width:75ch;overflow-wrap:anywhere}
.path{color:var(--soft);margin:0 0 16px;font-size:.9rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(135px,1fr));gap:10px;
margin:0 0 20px}
.cards div{background:var(--card);border-radius:8px;padding:8px 12px}
.cards dt{color:var(--soft);font-size:.8rem}
.cards dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.next{background:var(--next);border-left:4px solid var(--accent);border-radius:0 8px 8px 0;
padding:12px 18px}
.next h2{margin:0 0 4px;font-size:1.1rem}
pre{margin:8px 0;padding:10px 12px;background:var(--page);border:1px solid var(--line);
border-radius:6px;white-space:normal;overflow-wrap:anywhere}
pre span{display:inline-block;max-width:100%}
code{font:.9rem/1.45 ui-monospace,"Liberation Mono",Menlo,Consolas,monospace}
.notes ul{margin:0;padding-left:20px}
.notes li{overflow-wrap:anywhere}
.array{border-top:1px solid var(--line);margin-top:28px}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));
gap:14px 24px;margin:10px 0}
figure{margin:0;min-width:0;max-width:440px}
.curve-figure{max-width:480px}
figcaption{color:var(--soft);font-size:.82rem;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--text);font-size:12px;font-family:inherit}
svg .tick{fill:var(--soft);font-size:11.5px}
svg .name{font-weight:600}
.frame{fill:none;stroke:var(--soft);stroke-width:1}
svg .empty{fill:var(--empty);stroke:none}
.under{fill:none;stroke:var(--over);stroke-width:3.6}
.hot{fill:none;stroke:var(--text);stroke-width:1.6}
.held{fill:none;stroke:var(--held);stroke-width:2;stroke-dasharray:5 3}
.pill{fill:var(--page);stroke-width:1}
.hot-pill{stroke:var(--text)}
.held-pill{stroke:var(--held)}
svg .label{font-size:11px;font-weight:700}
svg .held-label{fill:var(--held)}
.bar{fill:var(--h4)}
.span{stroke:var(--text);stroke-width:4;fill:none}
.curve{fill:none;stroke:var(--accent);stroke-width:2.5;stroke-linejoin:round}
.point{fill:var(--accent);stroke:var(--page);stroke-width:1.5}
.reference{fill:none;stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;list-style:none;margin:4px 0 14px;padding:0;
color:var(--soft);font-size:.85rem}
.legend li{display:flex;align-items:center;gap:5px}
.swatch{display:inline-block;width:16px;height:14px;border:1px solid var(--line)}
.swatch.empty{background:var(--empty)}
table{border-collapse:collapse;width:100%;margin:10px 0 18px;font-size:.88rem}
caption{text-align:left;font-weight:600;padding:4px 0;overflow-wrap:anywhere}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid var(--line);
overflow-wrap:break-word}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom;overflow-wrap:normal}
tbody th{font-weight:600}
td:not(.number){min-width:6.4em}
th.number,td.number{text-align:right;padding:5px 0 5px 14px}
td.number{font-variant-numeric:tabular-nums;white-space:nowrap}
footer{color:var(--soft);font-size:.85rem;border-top:1px solid var(--line);margin-top:36px;
padding-top:10px;padding-bottom:28px}
@media screen and (max-width:700px){
main,footer{padding-left:14px;padding-right:14px}
}
"""
    + _cards("table", 700)
    + _cards("table.wide", 940)
    + """\
@media print{
@page{margin:14mm}
body{font-size:10pt}
main,footer{max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,h3,caption,thead,.array>p:first-of-type{break-after:avoid}
figure,tr,.next,.cards div,.legend,.keep{break-inside:avoid}
.figures{grid-template-columns:repeat(2,1fr)}
thead{display:table-header-group}
table{font-size:8pt}
td:not(.number){min-width:0}
}
"""
)
