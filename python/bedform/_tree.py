"""The tree of a group, as text."""

from __future__ import annotations

from collections import defaultdict

from bedform import _shown


class GroupTree:
    """The nodes below a group, from :meth:`bedform.Group.tree`; ``print`` shows them."""

    def __init__(self, nodes: list[tuple[str, str]]) -> None:
        # Pairs of a path and the text after its name; each group precedes its members.
        self._below: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for path, about in nodes:
            self._below[path.rpartition("/")[0]].append((path, about))

    def __str__(self) -> str:
        return "\n".join(["/", *self._lines("")])

    __repr__ = __str__

    def _lines(self, above: str) -> list[str]:
        children = self._below.get(above, [])
        lines = []
        for number, (path, about) in enumerate(children, start=1):
            is_last = number == len(children)
            name = _shown.printable(path.rpartition("/")[2])
            lines.append(f"{'└──' if is_last else '├──'} {name} {about}".rstrip())
            indent = "    " if is_last else "│   "
            lines += [indent + line for line in self._lines(path)]
        return lines
