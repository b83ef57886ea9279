"""Commits become shards: in one process, or in many, a share each.

Settling can be repeated and cut off anywhere, and a share does nothing but what settling everything
would do for its objects. So many processes settle a share each, in whatever order; whoever settles
everything afterwards reads the stamps back, finds nothing left to do, and drops the commits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bedform._comm import Messages
from bedform._errors import InvalidArgumentError, check_name
from bedform._integers import byte_count
from bedform._text import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bedform._session import Settled
    from bedform._store import Store

    Progress = Callable[[int, int], object]

MEMORY = "512 MiB"
SHARES_MAX = 1 << 20
TWO_WAYS = "comm and dask are two ways to share the work: give one"


@dataclass(frozen=True)
class Settling:
    """What is to be settled, and how."""

    memory: int
    arrays: tuple[str, ...] | None
    grace: float
    part: tuple[int, int] = (0, 1)

    @classmethod
    def of(cls, memory: int | str, arrays: Sequence[str] | None, grace: float | str) -> Settling:
        """Check what a caller gave."""
        if isinstance(arrays, str):
            raise InvalidArgumentError(f"arrays must be a list of names, not {arrays!r}")
        names = None if arrays is None else tuple(check_name(name).strip("/") for name in arrays)
        count = min(byte_count(memory, "memory"), (1 << 63) - 1)
        return cls(count, names, seconds_of(grace))


def seconds_of(time: float | str) -> float:
    """Seconds, from a number or a text such as ``"1h"``."""
    try:
        seconds = parse_seconds(time) if isinstance(time, str) else float(time)
    except (TypeError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidArgumentError(f"a time must be a number of seconds from 0 on, not {time!r}")
    return min(seconds, 1e9)


def members_of(comm: Any, dask: int | None) -> Messages | None:
    """The processes that settle together; the others wait for this one from here on."""
    try:
        return None if comm is None else Messages(comm)
    except InvalidArgumentError:
        if dask is not None:
            raise InvalidArgumentError(TWO_WAYS) from None
        raise


def settle(
    store: Store,
    chosen: Settling,
    progress: Progress | None = None,
    members: Messages | None = None,
) -> Settled:
    """Settle in this process, or a share of what all members settle."""
    arrays = None if chosen.arrays is None else list(chosen.arrays)
    call = store._call(store._inner.settle)
    return dict(call(chosen.memory, arrays, chosen.part, chosen.grace, progress, members))


def settle_with_members(
    store: Store, chosen: Settling, members: Messages, progress: Progress | None
) -> Settled:
    """Settle a share in each process; the first drops the commits."""
    try:
        return settle(store, chosen, progress, members)
    finally:
        members.free()


def settle_with_dask(
    store: Store, chosen: Settling, shares: int, progress: Progress | None
) -> Settled:
    """Settle shares as Dask tasks; this process drops the commits."""
    from dask.base import compute
    from dask.delayed import delayed

    if not 1 <= shares <= SHARES_MAX:
        raise InvalidArgumentError(f"dask must be a number of shares from 1 on, not {shares}")
    task = delayed(settle, pure=False)
    tasks = [task(store, replace(chosen, part=(number, shares))) for number in range(shares)]
    done = compute(*tasks)  # type: ignore[no-untyped-call]
    rest = settle(store, chosen, progress)
    return _sum([*done, rest])


def _sum(parts: Sequence[Settled]) -> Settled:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
