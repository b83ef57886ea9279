"""Clusters of Dask with real worker processes, and what kills these."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from typing import TYPE_CHECKING

import dask
import distributed
import distributed.deploy

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def cluster(workers: int = 2, threads: int = 1) -> Iterator[distributed.Client]:
    """A client of a cluster on this machine, whose workers are processes of their own."""
    settings = {
        # A worker that is killed all the time is not the task's fault.
        "distributed.scheduler.allowed-failures": 1000,
        # A nanny whose worker is not there so long after it died is closed, also if another has
        # lived and died since.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # A busy machine answers late.
        "distributed.comm.timeouts.connect": "10 minutes",
        "distributed.comm.timeouts.tcp": "10 minutes",
        "distributed.worker.profile.enabled": False,
        "distributed.admin.log-format": "",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            dashboard_address=":0",
            silence_logs=60,
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


def pids(client: distributed.Client) -> list[int]:
    """The processes of the workers that the scheduler knows.

    A nanny whose worker dies before that gives up, and a cluster without nannies waits for ever.
    """
    known = set(client.cluster.scheduler.workers)
    nannies = [nanny for nanny in client.cluster.workers.values() if nanny.process is not None]
    return [nanny.pid for nanny in nannies if nanny.worker_address in known and nanny.pid]


class Killer:
    """Kills a worker after the other while a test goes on, in a thread of its own.

    Each kill waits longer than the one before, until `note_progress` is called: so the slowest
    machine gets on with its work.
    """

    def __init__(
        self, client: distributed.Client, most: int, *, seconds: float = 1.6, seed: int = 0
    ) -> None:
        self.kills = 0
        self._seconds = self._first = seconds
        self._client, self._most = client, most
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def is_done(self) -> bool:
        """Whether as many are dead as were asked for."""
        return self.kills >= self._most

    def note_progress(self) -> None:
        """Kill as often as in the beginning."""
        self._seconds = self._first

    def _run(self) -> None:
        while not self.is_done and not self._ended.wait(self._random.uniform(0.1, self._seconds)):
            there = pids(self._client)
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(self._random.choice(there), signal.SIGKILL)
                self.kills += 1
                self._seconds *= 1.5
