"""Conversions on a Dask cluster: submission of tasks by the client, and their execution by workers.

The engine defines the tasks and evaluates their results: see its module ``convert``. Here tasks
become Dask futures. A worker opens source and target once for many tasks. It runs one task at a
time, with as many engine threads as it has Dask threads. So the memory limit of a conversion
applies to each worker.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedform import _dask_cluster, _internal, _json, _shown
from bedform._errors import ENGINE_ERRORS, engine_call
from bedform._paths import PatternPaths
from bedform._remote import is_url, without_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    #: Takes a place and tasks; returns finished numbers, warnings, and the tasks accepted at a
    #: time.
    Exchange = Callable[[str, list[str]], tuple[list[int], list[str], int]]

# A worker has its next task queued while it runs one.
TASKS_AT_A_WORKER = 2


@contextlib.contextmanager
def exchange_on(
    dask: Any,
    source: tuple[str, str | list[str]],
    given: Mapping[str, Any],
    exclude: Sequence[str] = (),
) -> Iterator[Exchange | None]:
    """Yields the function that submits tasks to a cluster; None without one.

    Cancels unfinished tasks at the end.
    """
    if dask is None:
        yield None
        return
    with _dask_cluster.connected(dask) as client:
        pool = RegionPool(client, source, given, exclude)
        try:
            yield pool.exchange
        finally:
            pool.cancel()


class RegionPool:
    """The tasks of one conversion on a cluster."""

    def __init__(
        self,
        client: Any,
        source: tuple[str, str | list[str]],
        given: Mapping[str, Any],
        exclude: Sequence[str],
    ) -> None:
        self._client = client
        name, place = source
        self._job = {
            "source": absolute_places(place),
            "is_pattern": isinstance(place, PatternPaths),
            "name": _shown.encodable(without_query(name)),
            "given": dict(given),
            "exclude": list(exclude),
        }
        self._tasks = _dask_cluster.Tasks(client, "convert")

    def exchange(self, place: str, tasks: list[str]) -> tuple[list[int], list[str], int]:
        """Submits tasks to the cluster, and waits until one is finished, if there are any.

        Returns the numbers of finished tasks, their warnings, and the number of tasks that the
        cluster accepts at a time.
        """
        job = _json.dump({**self._job, "place": place})
        for task in tasks:
            self._tasks.submit(do_task, job, task, tag=json.loads(task)["number"])
        ended = self._tasks.ended() if self._tasks.count else []
        workers = max(1, _dask_cluster.worker_count(self._client))
        warnings = [line for _, lines in ended for line in lines]
        return [number for number, _ in ended], warnings, TASKS_AT_A_WORKER * workers

    def cancel(self) -> None:
        """Cancels unfinished tasks."""
        self._tasks.cancel()


def absolute_places(place: Any) -> Any:
    """Returns a path, or each of a list, as an absolute one for other processes."""
    if isinstance(place, (list, tuple)):
        return [_absolute(os.fspath(one)) for one in place]
    return _absolute(os.fspath(place))


def _absolute(place: str) -> str:
    """Returns an absolute place, for a process with another working directory."""
    return place if is_url(place) else str(Path(place).absolute())


def do_task(job: str, task: str) -> list[str]:
    """Runs in a worker: does one task and returns its warnings."""
    return _run(_opened(job, _dask_cluster.threads_of_worker()), task)


def _run(worker: _internal.RegionWorker, task: str) -> list[str]:
    from bedform._convert import translated_converting

    try:
        return worker.run(task)
    except ENGINE_ERRORS as error:
        raise translated_converting(error) from None


@functools.lru_cache(maxsize=1)
def _opened(job: str, threads: int) -> _internal.RegionWorker:
    """Opens source and target of a conversion; the last ones stay open."""
    from bedform._convert import opening_of, readers_of
    from bedform._opening import open_place

    facts = json.loads(job)
    place = json.loads(facts["place"])
    source = PatternPaths(facts["source"]) if facts["is_pattern"] else facts["source"]
    opened = open_place(source, **facts["given"], threads=threads)
    opening = {**opening_of(place["place"]), "threads": threads}
    return engine_call(_internal.RegionWorker)(
        facts["name"],
        opened._inner,
        readers_of(opened, facts["exclude"]),
        facts["place"],
        _json.dump(opening),
    )
