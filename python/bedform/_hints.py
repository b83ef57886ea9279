"""Messages that say what to do where people often come to a wrong place first."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES_MAX = 12


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """``": did you mean 't'?"``, or nothing where no name is near."""
    near = near_names(name, names)
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""


def near_names(name: object, names: Iterable[str]) -> list[str]:
    """Names that somebody may have meant: of a typing error, in other case, in a group below."""
    wanted = str(name)
    known = [one for one in names if one != wanted]
    last = wanted.strip("/").rpartition("/")[2]
    exact = [one for one in known if one.rpartition("/")[2].lower() == last.lower()]
    by_case = {one.lower(): one for one in reversed(known)}
    close = difflib.get_close_matches(wanted.lower(), by_case, n=2, cutoff=0.7)
    return list(dict.fromkeys([*exact, *(by_case[one] for one in close)]))[:2]


def unknown_member(name: str, where: str, members: Iterable[str], below: Iterable[str]) -> str:
    """The message of a name that a group lacks."""
    there = sorted(members)
    known = ", ".join(there[:_NAMES_MAX]) + (", ..." if len(there) > _NAMES_MAX else "")
    meant = did_you_mean(name, below)
    return f"no array or group {name!r} in {where}{meant or ':'} it has {known or 'nothing'}"


def foreign_is_read(where: str) -> str:
    """The message of whatever would change a foreign file."""
    stem = where.rpartition(".")[0] or where
    return (
        f"{where}: foreign files are never written; convert it with 'bedform convert', as in "
        f"bf.convert({where!r}, {stem + '.zarr'!r}), and write to the store"
    )
