"""One process per engine, alive for the whole benchmark, driven over a pipe.

Promises: threads, allocators and caches of one engine never disturb another. Only the called worker
is active. The clock starts and stops inside the worker, so the pipe does not count. Every answer is
compared with the checksum of NumPy's answer, outside the measured time.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.device import Device, sync_tree, tree_lengths
from benchmarks.harness.options import BASELINE, BASELINE_PACKAGE

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from benchmarks.harness.engine import Engine, Reader, Values
    from benchmarks.harness.selections import Selection

ENGINES = {
    "zarr-python": "benchmarks.harness.peers:ZarrPython",
    "zarrs": "benchmarks.harness.peers:Zarrs",
    "tensorstore": "benchmarks.harness.peers:TensorStore",
    "tensorstore-plain": "benchmarks.harness.peers:PlainTensorStore",
    "bedform": "benchmarks.harness.bedform_engine:Bedform",
    BASELINE: "benchmarks.harness.bedform_engine:Bedform",
    "device": "benchmarks.harness.device:Device",
    "hdf5": "benchmarks.harness.hdf5_engine:Hdf5",
    "s3-zarr-python": "benchmarks.harness.s3_engines:S3ZarrPython",
    "s3-tensorstore": "benchmarks.harness.s3_engines:S3TensorStore",
    f"s3-{BASELINE}": "benchmarks.harness.s3_engines:S3Bedform",
    "s3-bedform": "benchmarks.harness.s3_engines:S3Bedform",
    "s3-zarr-python-writer": "benchmarks.harness.s3_writers:S3ZarrPythonWriter",
    "s3-tensorstore-writer": "benchmarks.harness.s3_writers:S3TensorStoreWriter",
    "s3-bedform-writer": "benchmarks.harness.s3_writers:S3BedformWriter",
}


class WorkerError(RuntimeError):
    """A worker failed; carries its traceback."""


def checksum(values: Values) -> int:
    """Returns the CRC-32 of the values in C order; equal answers have equal ones."""
    return zlib.crc32(np.ascontiguousarray(values).data)


def make_engine(name: str) -> Engine:
    """Return a new engine; its library is imported here and nowhere else."""
    if BASELINE in name:
        if BASELINE_PACKAGE is None:
            raise WorkerError("BEDFORM_BASELINE names no other build")
        sys.path.insert(0, BASELINE_PACKAGE)
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)()
    return engine


class Worker:
    """The calls of a worker process; each method is one message."""

    def __init__(self, name: str) -> None:
        self.engine = make_engine(name)
        self.readers: dict[str, Reader] = {}
        self.values: Values | None = None

    def describe(self) -> dict[str, Any]:
        """Return version and variants of the engine."""
        return {
            "version": self.engine.version(),
            "read": self.engine.read_variants,
            "write": self.engine.write_variants,
            "element": self.engine.element_variants,
        }

    def open(self, path: Path, cache_bytes: int = 0) -> None:
        """Opens a store and drops the prepared reads of the previous one."""
        self.readers.clear()
        self.engine.open(path, cache_bytes)

    def prepare(self, key: str, selection: Selection, variant: str) -> None:
        """Prepares the call that `read(key)` measures."""
        self.readers[key] = self.engine.reader(selection, variant)

    def forget(self, key: str) -> None:
        """Drop a prepared read and its buffer."""
        self.readers.pop(key, None)

    def read(self, key: str, expected: int | None) -> float:
        """Measures one read in seconds and checks its answer."""
        reader = self.readers[key]
        start = time.perf_counter()
        values = reader()
        seconds = time.perf_counter() - start
        if expected is not None and checksum(values) != expected:
            raise ValueError(f"{self.engine.name} gave a wrong answer for {key}")
        if values.flags.writeable:
            values.fill(np.nan)  # so that a later read cannot pass with this answer
        return seconds

    def notices(self, selection: Selection, variant: str) -> bool:
        """Whether the read fails, as it should on a store with a changed bit."""
        reader = self.engine.reader(selection, variant)
        try:
            reader()
        except Exception:  # noqa: BLE001 (each engine has its own errors; all of them count)
            return True
        return False

    def elements(
        self, points: list[tuple[int, ...]], expected: list[float], variant: str
    ) -> list[float]:
        """Measures each of many reads of one element, in seconds."""
        read = self.engine.element_reader(variant)
        clock = time.perf_counter
        seconds: list[float] = []
        answers: list[float] = []
        for point in points:
            start = clock()
            answer = read(point)
            seconds.append(clock() - start)
            answers.append(answer)
        if answers != expected:
            raise ValueError(f"{self.engine.name} gave a wrong element")
        return seconds

    def load_values(self, size: int) -> None:
        """Keeps the whole field in memory, as the source of writes."""
        self.values = np.array(data.truth(size))

    def write(self, path: Path, metadata: dict[str, Any], variant: str) -> float:
        """Measures the write of the field until it is durable, in seconds."""
        if self.values is None:
            raise RuntimeError("load_values comes first")
        start = time.perf_counter()
        self.engine.write(path, self.values, metadata, variant)
        sync_tree(path)
        return time.perf_counter() - start

    def write_like(self, path: Path, model: Path, variant: str) -> float:
        """Measures the device writing synced files with the lengths of those in `model`."""
        return self.write_lengths(path, tree_lengths(model), variant)

    def write_lengths(self, path: Path, lengths: list[int], variant: str) -> float:
        """Measures the device writing synced files of these lengths."""
        if not isinstance(self.engine, Device):
            raise TypeError(f"{self.engine.name} writes values, not lengths")
        start = time.perf_counter()
        self.engine.write_bytes(path, lengths, variant)
        sync_tree(path)
        return time.perf_counter() - start

    def read_like(self, path: Path, variant: str) -> float:
        """Measures the device's own read of all files of a tree, in seconds."""
        if not isinstance(self.engine, Device):
            raise TypeError("only the device reads like another")
        start = time.perf_counter()
        self.engine.read_tree(path, variant)
        return time.perf_counter() - start

    def settle(self, path: Path, memory: int) -> dict[str, float]:
        """Settles a store; returns the seconds until all is durable, the memory growth, counts."""
        import bedform as bf

        store = bf.open(str(path), "r+")
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        start = time.perf_counter()
        done = store.settle(memory=memory)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "growth": resident("VmHWM") - before, **done}

    def act(self, method: str, *arguments: Any) -> Any:
        """Calls a method that only this engine has."""
        return getattr(self.engine, method)(*arguments)

    def memory_growth(self, selection: Selection, variant: str) -> int:
        """Returns the growth of the peak of resident memory in one read, in bytes."""
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        # A variant with a given buffer allocates it in the preparation: the result counts, too.
        self.engine.reader(selection, variant)()
        return resident("VmHWM") - before


def resident(field: str) -> int:
    """Return a field of `/proc/self/status` in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise ValueError(field)


def serve(name: str, connection: Connection) -> None:
    """Answer calls until the pipe closes."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    worker: Worker | None = None
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            if worker is None:
                worker = Worker(name)
            connection.send((True, getattr(worker, method)(*arguments)))
        except Exception:  # noqa: BLE001 (the parent shows it)
            connection.send((False, traceback.format_exc()))


class WorkerProcess:
    """The parent's side of a worker.

    ```
    with WorkerProcess("tensorstore") as worker:
        worker.call("open", path)
    ```
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # Spawned, not forked, so that no engine inherits the state of this process.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(name, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """Run a method of the worker and return its result, or raise `WorkerError`."""
        self.connection.send((method, arguments))
        try:
            good, result = self.connection.recv()
        except EOFError as error:
            raise WorkerError(f"the worker of {self.name} ended without an answer") from error
        if not good:
            raise WorkerError(f"{self.name}: {result}")
        return result

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_workers(names: list[str]) -> dict[str, WorkerProcess]:
    """Start one worker per engine."""
    return {name: WorkerProcess(name) for name in names}


def stop_workers(workers: dict[str, WorkerProcess]) -> None:
    """End all workers."""
    for worker in workers.values():
        worker.close()
