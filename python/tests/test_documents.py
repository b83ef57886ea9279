"""Every Python example of the README and the guide runs as it stands.

The fenced ``python`` blocks of a page run one after the other in one namespace, in an empty
directory; blocks of other languages are for reading. Links between pages lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


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
