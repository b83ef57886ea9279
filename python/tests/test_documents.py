"""Every Python example of the README and the guide runs as it stands.

The fenced ``python`` blocks of a page run one after the other in one namespace, in an empty
directory; blocks of other languages are for reading. Links between pages lead somewhere, to a
heading where they name one. Lines fit a screen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
# ARCHITECTURE.md joins when it is rewritten.
NARROW = [page for page in PAGES if page.name != "ARCHITECTURE.md"]
NARROW += [ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
COLUMNS_MAX = 110
KINDS = ("tutorial", "how-to", "reference", "explanation")


def blocks(page: Path) -> list[tuple[int, str]]:
    """The examples of a page, with the lines on which they begin."""
    text = page.read_text()
    return [(text[: m.start(1)].count("\n"), m[1]) for m in FENCE.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for line, source in blocks(page):
        # The blank lines make a traceback point at the page.
        code = compile("\n" * line + source, str(page), "exec")
        exec(code, namespace)  # noqa: S102 - our own pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages_that_exist(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_guide_lists_every_page() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def prose(page: Path) -> str:
    """The lines of a page outside of fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", NARROW, ids=lambda page: page.parent.name + "-" + page.stem)
def test_links_to_headings_lead_to_headings_that_exist(page: Path) -> None:
    for target, anchor in ANCHOR.findall(page.read_text()):
        if "://" not in target:
            there = page.parent / target if target else page
            assert anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", NARROW, ids=lambda page: page.parent.name + "-" + page.stem)
def test_lines_have_at_most_110_columns_but_for_tables_and_urls(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), start=1)
    wide = [
        number
        for number, line in lines
        if len(line) > COLUMNS_MAX and not line.startswith("|") and "://" not in line
    ]
    assert wide == [], f"{page.name}: lines of more than {COLUMNS_MAX} columns"


def test_the_guide_says_of_each_page_which_kind_it_is_and_the_page_begins_with_it() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    rows = re.findall(r"^\| \[[^]]*\]\(([\w-]+\.md)\) \| ([\w-]+) \|", index, re.MULTILINE)
    kinds = dict(rows)
    assert set(kinds) == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    for name, kind in kinds.items():
        assert kind in KINDS
        first = (ROOT / "docs" / name).read_text().splitlines()[2]
        assert first.lower().startswith(f"{kind}, for "), f"{name} does not say who needs it"
