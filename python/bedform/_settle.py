"""Settling commits into shards, in one process or divided among many.

Settling is idempotent and can stop anywhere. Each share covers its own objects, so many processes
can settle shares in any order. A final complete settle reads the stamps, finds no work left, and
drops the commits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bedform import _dask_cluster
from bedform._comm import MpiMessages
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
# A worker that dies loses one share.
SHARES_OF_WORKER = 8
TWO_WAYS = "comm and dask are two ways to share the work: give one"


@dataclass(frozen=True)
class Settling:
    """Checked arguments of one settle: limit, arrays, grace, and the share of this process."""

    memory: int
    arrays: tuple[str, ...] | None
    grace: float
    part: tuple[int, int] = (0, 1)

    @classmethod
    def of(cls, memory: int | str, arrays: Sequence[str] | None, grace: float | str) -> Settling:
        """Checks the caller's arguments."""
        if isinstance(arrays, str):
            raise InvalidArgumentError(f"arrays must be a list of names, not {arrays!r}")
        names = None if arrays is None else tuple(check_name(name).strip("/") for name in arrays)
        count = min(byte_count(memory, "memory"), (1 << 63) - 1)
        return cls(count, names, seconds_of(grace))


def seconds_of(time: float | str) -> float:
    """Returns seconds from a number or a text such as ``"1h"``."""
    try:
        seconds = parse_seconds(time) if isinstance(time, str) else float(time)
    except (TypeError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidArgumentError(f"a time must be a number of seconds from 0 on, not {time!r}")
    return min(seconds, 1e9)


def members_of(comm: Any, dask: Any) -> MpiMessages | None:
    """Returns the processes that settle together; the others now wait for this one."""
    try:
        return None if comm is None else MpiMessages(comm)
    except InvalidArgumentError:
        if dask is not None:
            raise InvalidArgumentError(TWO_WAYS) from None
        raise


def settle(
    store: Store,
    chosen: Settling,
    progress: Progress | None = None,
    members: MpiMessages | None = None,
) -> Settled:
    """Settles everything in this process, or a share of it with ``members``."""
    arrays = None if chosen.arrays is None else list(chosen.arrays)
    call = store._call(store._inner.settle)
    return dict(call(chosen.memory, arrays, chosen.part, chosen.grace, progress, members))


def settle_with_members(
    store: Store, chosen: Settling, members: MpiMessages, progress: Progress | None
) -> Settled:
    """Settles a share in each process; the first one drops the commits."""
    try:
        return settle(store, chosen, progress, members)
    finally:
        members.free()


def settle_with_dask(
    store: Store, chosen: Settling, dask: Any, progress: Progress | None
) -> Settled:
    """Settles shares as Dask tasks; this process drops the commits."""
    if isinstance(dask, int):
        done = _by_any_scheduler(store, chosen, dask)
        return _sum([*done, settle(store, chosen, progress)])
    with _dask_cluster.connected(dask) as client:
        done = _on_cluster(client, store, chosen, progress)
    # The final settle has no work; reporting its progress would start again at 0.
    return _sum([*done, settle(store, chosen)])


def _by_any_scheduler(store: Store, chosen: Settling, shares: int) -> list[Settled]:
    """Settles shares as tasks of Dask's default scheduler: threads, processes or a cluster."""
    from dask.base import compute
    from dask.delayed import delayed

    if not 1 <= shares <= SHARES_MAX:
        raise InvalidArgumentError(f"dask must be a number of shares from 1 on, not {shares}")
    task = delayed(settle, pure=False)
    tasks = [task(store, replace(chosen, part=(number, shares))) for number in range(shares)]
    return list(compute(*tasks))  # type: ignore[no-untyped-call]


def _on_cluster(
    client: Any, store: Store, chosen: Settling, progress: Progress | None
) -> list[Settled]:
    shares = min(SHARES_MAX, SHARES_OF_WORKER * max(1, _dask_cluster.worker_count(client)))
    in_all = int(store.info()["log"]["bytes"])
    # Task keys are unique per call: a repeated call gets no results of a stopped one.
    pool = _dask_cluster.Tasks(client, "settle")
    done: list[Settled] = []
    try:
        for number in range(shares):
            part = replace(chosen, part=(number, shares))
            pool.submit(settle_share, store.store_path, store._options, part, tag=number)
        while pool.count:
            done += [result for _, result in pool.ended()]
            if progress is not None:
                # Shares are about equal: each counts as the same part of the log.
                progress(in_all * len(done) // shares, in_all)
    finally:
        pool.cancel()
    return done


def settle_share(path: str, options: dict[str, Any], chosen: Settling) -> Settled:
    """Runs in a worker: settles a share with as many threads as the worker has."""
    from bedform._store import _reopen

    threads = _dask_cluster.threads_of_worker()
    return settle(_reopen(path, {**options, "threads": threads}), chosen)


def _sum(parts: Sequence[Settled]) -> Settled:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
