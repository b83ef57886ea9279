"""Dask clusters with real worker processes, and a killer of these."""

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
    """Yields a client of a local cluster with worker processes."""
    settings = {
        # Repeated kills of a worker must not count against its task.
        "distributed.scheduler.allowed-failures": 1000,
        # A nanny closes if its worker is missing for this time after a death, even if another
        # worker has lived and died since.
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
    """Returns the process ids of the workers that the scheduler knows.

    A nanny whose worker dies before that gives up, and a cluster without nannies waits forever.
    """
    known = set(client.cluster.scheduler.workers)
    nannies = [nanny for nanny in client.cluster.workers.values() if nanny.process is not None]
    return [nanny.pid for nanny in nannies if nanny.worker_address in known and nanny.pid]


class Killer:
    """Kills one worker after the other while a test runs, from a thread.

    Each kill waits longer than the previous one, until `note_progress` is called. So the slowest
    machine makes progress.
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
        """Whether the requested number of kills is reached."""
        return self.kills >= self._most

    def note_progress(self) -> None:
        """Resets the interval between kills."""
        self._seconds = self._first

    def _run(self) -> None:
        while not self.is_done and not self._ended.wait(self._random.uniform(0.1, self._seconds)):
            there = pids(self._client)
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(self._random.choice(there), signal.SIGKILL)
                self.kills += 1
                self._seconds *= 1.5
