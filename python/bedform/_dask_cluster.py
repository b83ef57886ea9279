"""Dask clusters: connections, tasks of one call, workers, and errors."""

from __future__ import annotations

import contextlib
import importlib
import queue
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

from bedform import _internal
from bedform._errors import (
    BedformError,
    ConflictError,
    InvalidArgumentError,
    IoError,
    UnsupportedError,
    WrongTypeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONNECT_SECONDS = 30
# Held by the running task of this process, since memory limits assume one task.
_one_at_a_time = threading.Lock()
MISSING = "dask= needs the package distributed: pip install 'bedform[dask]'"


def distributed() -> Any:
    """Imports the module `distributed` on demand."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise UnsupportedError(MISSING) from None


@contextlib.contextmanager
def connected(dask: Any) -> Iterator[Any]:
    """Yields the client ``dask``, or a temporary one for a scheduler's address."""
    module = distributed()
    if isinstance(dask, module.Client):
        if dask.asynchronous:
            raise WrongTypeError("dask must be a client that is not asynchronous")
        yield dask
        return
    if not isinstance(dask, str):
        raise WrongTypeError(
            f"dask must be a distributed.Client or an address, not {type(dask).__name__}"
        )
    try:
        _check_address(module, dask)
        client = module.Client(dask, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        # Either an impossible address, or a scheduler that does not answer.
        kind = IoError if isinstance(error, OSError) else InvalidArgumentError
        raise kind(f"no Dask scheduler at {dask!r}: {reason}") from None
    with client:
        yield client


#: Valid port numbers.
PORTS = range(1, 65536)


def _check_address(module: Any, address: str) -> None:
    """Fails for impossible addresses of a scheduler.

    A client with such an address never finishes connecting, and blocks when it is collected: the
    program would not end.
    """
    scheme, where = module.comm.parse_address(address)
    backend = module.comm.registry.get_backend(scheme)
    if scheme in ("tcp", "tls", "inproc"):
        backend.get_address_host(where)
    if scheme in ("tcp", "tls"):
        # The ValueError names the invalid port.
        PORTS.index(int(where.rpartition(":")[2]))


@contextlib.contextmanager
def scheduling(dask: Any) -> Iterator[dict[str, Any]]:
    """Yields arguments of Dask's compute functions that select the workers of a cluster."""
    if dask is None:
        yield {}
        return
    # Not by `dask.config`, which nannies of this process send to workers that they start. A client
    # cannot be sent, so a dead worker would not be replaced.
    with connected(dask) as client:
        try:
            yield {"scheduler": client}
        except distributed().KilledWorker as error:
            raise _of_killed(error) from None


def worker_count(client: Any) -> int:
    """Returns the current number of workers."""
    # Without an argument the newest versions return at most five workers.
    try:
        facts = client.scheduler_info(n_workers=-1)
    except TypeError:
        facts = client.scheduler_info()
    return len(facts["workers"])


def threads_of_worker() -> int:
    """Returns the number of threads of the worker that runs this task."""
    return max(1, int(distributed().get_worker().state.nthreads))


def threads_of_any_worker() -> int | None:
    """Returns the number of threads of the worker that runs this task; None outside a cluster."""
    module = sys.modules.get("distributed")
    if module is None:
        return None
    try:
        return max(1, int(module.get_worker().state.nthreads))
    except ValueError:
        return None


class Tasks:
    """The tasks of one call on a cluster; the first failed task fails the call."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._prefix = f"bedform-{name}-{uuid.uuid4().hex}"
        self._submitted = 0
        self._tags: dict[Any, Any] = {}
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def count(self) -> int:
        """The number of unfinished tasks."""
        return len(self._tags)

    def submit(self, function: Callable[..., Any], *arguments: Any, tag: Any) -> None:
        """Runs a function on a worker, one at a time in each; ``tag`` comes with its result."""
        self._submitted += 1
        key = f"{self._prefix}-{self._submitted}"
        call = (_internal.__version__, function, *arguments)
        future = self._client.submit(call_in_worker, *call, key=key, pure=False)
        self._tags[future] = tag
        future.add_done_callback(self._queue.put)

    def ended(self) -> list[tuple[Any, Any]]:
        """Waits for at least one task; returns tags and results of the finished ones.

        Raises
        ------
        BedformError
            A task failed, by the worker's error or because workers died.
        """
        results: list[tuple[Any, Any]] = []
        while not results:
            for future in self._told():
                if future.status in ("pending", "lost"):
                    # The worker died with the result: the scheduler runs the task again.
                    future.add_done_callback(self._queue.put)
                    continue
                if future.status != "finished":
                    raise _failure_of(future)
                results.append((self._tags.pop(future), future.result()))
                future.release()
        return results

    def _told(self) -> list[Any]:
        """Waits for futures whose callbacks have run."""
        # Not `distributed.wait`, which uses the default client.
        told = [self._queue.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                told.append(self._queue.get_nowait())
        return told

    def cancel(self) -> None:
        """Cancels unfinished tasks. Tasks that are running finish anyway."""
        futures, self._tags = list(self._tags), {}
        if futures:
            self._client.cancel(futures, force=True)


def call_in_worker(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs in a worker: calls a function, and adds the worker's address to its errors."""
    try:
        check_version(version)
        with _one_at_a_time:
            return function(*arguments)
    except BedformError as error:
        error.args = (f"worker {distributed().get_worker().address}: {error}",)
        raise


def check_version(version: str) -> None:
    """Fails in a worker with another version than the client's."""
    ours = _internal.__version__
    if version != ours:
        raise UnsupportedError(
            f"bedform is {ours} here and {version} at the client: install the same version on both"
        )


def _failure_of(future: Any) -> BaseException:
    """The error of a task that has failed, in one line."""
    if future.status != "error":
        return ConflictError(
            "the Dask cluster has cancelled a task, or has gone: run the same again to go on"
        )
    error = future.exception()
    module = distributed()
    if isinstance(error, BedformError):
        return error
    if isinstance(error, module.KilledWorker):
        return _of_killed(error)
    if isinstance(error, (ImportError, AttributeError)):
        return UnsupportedError(
            f"a worker cannot import this version of bedform ({error}): install "
            f"bedform=={_internal.__version__} on all workers"
        )
    return IoError(f"a worker has failed: {type(error).__name__}: {error}")


def _of_killed(error: Any) -> IoError:
    return IoError(
        f"the worker of the same task died {error.allowed_failures + 1} times, the last at "
        f"{error.last_worker.address}: its log says why; give workers more memory, or take less "
        "(memory=, --memory), and run the same again"
    )
