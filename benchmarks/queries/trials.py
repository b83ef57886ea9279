"""Measurements of `query`: cold, in forked children, checked, in interleaved rounds.

A measured question opens a copy, asks, and closes, in a forked child, whose memory has no data. The
child first asks a small copy of the same form the same question: a program's code is dropped from
the page cache with the data. Each round takes the next question of a line, the same for all
readers. The answer is checked outside of the time.

Everything about one field runs in a separate process: `python -m benchmarks.queries.trials JOB`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.queries.readers import Reader

#: A reader slower than both limits, as a multiple of the fastest peer and in seconds, asks once.
HOPELESS, HOPELESS_SECONDS = 3.0, 1.0
#: A way that takes so long is tried once.
SLOW_SECONDS = 3.0
#: Where Bedform keeps its indexes, in the folder of a field.
SIDECARS = "sidecars"

Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Line(Generic[Asked]):
    """The questions of a line, one after the other in the rounds, and one for the small copy."""

    name: str
    questions: list[Asked]
    little: Asked
    expected: Callable[[Asked], Any]


@dataclass(frozen=True)
class Trial:
    """The folders with the copies of a field and of a small one."""

    place: Path
    little: Path
    readers: Mapping[str, Reader]

    def once(
        self, name: str, way: str, line: Line[Any], question: Any, expected: Any
    ) -> tuple[float, float]:
        """Returns the seconds of one cold answer, and those of the processor."""
        reader = self.readers[name]
        answer = reader.answers[way]
        path, small = self.place / reader.copy, self.little / reader.copy
        for one in (path, self.place / SIDECARS):
            if one.exists():
                cold.make_cold(one)
        first = partial(answer, small, line.little)
        ask = partial(answer, path, question)
        seconds, busy = in_child(timed, ask, first, expected, reader.is_ordered)
        return float(seconds), float(busy)

    def compare(self, line: Line[Any], rounds: int, tries: int) -> dict[str, Any]:
        """Measures the readers of a line in rounds, each by its fastest way."""
        answers: dict[int, Any] = {}
        taken = Counter[str]()
        processor: dict[str, list[float]] = {}

        def once(name: str, way: str) -> float:
            number = taken[name] % len(line.questions)
            taken[name] += 1
            if number not in answers:  # One at a time: answers may be large.
                answers.clear()
                answers[number] = line.expected(line.questions[number])
            question, expected = line.questions[number], answers[number]
            seconds, busy = self.once(name, way, line, question, expected)
            processor.setdefault(name, []).append(busy)
            return seconds

        def trial(name: str) -> tuple[float, str]:
            """Returns the least seconds of the first question, and the way."""
            found = []
            for way in self.readers[name].answers:
                for _ in range(tries):
                    taken[name] = 0
                    found.append((once(name, way), way))
                    if found[-1][0] > SLOW_SECONDS:
                        break
            return min(found)

        tried = {name: trial(name) for name in self.readers}
        peers = [seconds for name, (seconds, _) in tried.items() if self.readers[name].is_peer]
        limit = max(HOPELESS * min(peers), HOPELESS_SECONDS)
        left = [
            name
            for name, (seconds, _) in tried.items()
            if seconds <= limit or not self.readers[name].may_stop
        ]
        taken.clear()
        for name in left:
            processor[name].clear()
        told = ", ".join(f"{name} {seconds:.2f} s" for name, (seconds, _) in tried.items())
        tell(f"{line.name}: {told}")
        samples = interleave(left, rounds, lambda name: once(name, tried[name][1]))
        samples |= {name: [tried[name][0]] for name in tried if name not in left}
        ways = {name: way for name, (_, way) in tried.items()}
        return {"seconds": samples, "ways": ways, "processor": processor}


def import_lazily_loaded(readers: Mapping[str, Reader], little: Path, question: Any) -> None:
    """Imports the modules that the readers load with their first answer.

    A child finds their names, since the parent reads nothing: some libraries fail in the child of a
    process in which they have threads.
    """
    for reader in readers.values():
        for answer in reader.answers.values():
            for name in in_child(modules_of, partial(answer, little / reader.copy, question)):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)


def modules_of(ask: Callable[[], Any]) -> list[str]:
    """Returns the names of the modules that an answer imports."""
    before = {*sys.modules}
    ask()
    return sorted({*sys.modules} - before)


def timed(
    ask: Callable[[], Any], first: Callable[[], Any], expected: Any, is_ordered: bool
) -> tuple[float, float]:
    """Asks the small copy, then the other; returns the seconds, after a check of the answer.

    The second number is the processor's seconds, of all threads.
    """
    warnings.simplefilter("ignore")
    first()
    began, busy = time.perf_counter(), time.process_time()
    found = ask()
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    check(found, expected, is_ordered)
    return seconds, busy


def check(found: Any, expected: Any, is_ordered: bool) -> None:
    """Raises an error unless the answer is the expected one."""
    if isinstance(expected, int):
        if found != expected:
            raise RuntimeError(f"{found} elements, not {expected}")
        return
    if not is_ordered:
        found, expected = np.sort(found), np.sort(expected)
    if not np.array_equal(found, expected):
        raise RuntimeError("wrong values")


def prepare(place: Path, readers: Mapping[str, Reader], values: Path) -> dict[str, float]:
    """Makes the missing copies of a field; returns the seconds of each that was made now."""
    took: dict[str, float] = {}
    for reader in readers.values():
        path = place / reader.copy
        if reader.copy in took or path == values:
            continue

        def build(target: Path, reader: Reader = reader) -> None:
            took[reader.copy] = in_child(timed_writing, reader, target, values)

        data.ensure(path, build)
    return took


def timed_writing(reader: Reader, target: Path, values: Path) -> float:
    """Writes a copy, and syncs it; returns the seconds."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    reader.prepare(target, np.load(values, mmap_mode="r"))
    for file in data.files_under(target):
        with file.open("rb") as written:
            os.fsync(written.fileno())
    return time.perf_counter() - began


def link_tree(target: Path, source: Path) -> None:
    """Gives a store or file a second name, without copying its data."""
    for file in data.files_under(source):
        linked = target if source == file else target / file.relative_to(source)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.hardlink_to(file)


def copy_bytes(path: Path) -> int:
    """Returns the bytes of a copy."""
    return sum(file.stat().st_size for file in data.files_under(path)) if path.exists() else 0


def tell(words: str) -> None:
    """Shows the progress of a run that takes hours; the report is printed at its end."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def queries_to_pay(seconds: float, without: list[float], with_it: list[float]) -> float | None:
    """Returns how many queries save the seconds of a preparation; None if they save nothing.

    >>> queries_to_pay(10.0, [2.0, 2.0], [1.5, 1.5])
    20.0
    """
    saved = median(without) - median(with_it)
    return seconds / saved if saved > 0 else None


def in_process(module: str, job: dict[str, Any]) -> dict[str, Any]:
    """Runs `measure` of a module in a new process, whose sidecars lie in the folder of the job."""
    environment = {**os.environ, "BEDFORM_SIDECAR": str(Path(job["place"]) / SIDECARS)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.queries.trials", module, json.dumps(job)],
        cwd=data.ROOT.parent,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Run `measure` of a module and print what it returns."""
    module, job = sys.argv[1:]
    os.environ.pop("BEDFORM_TRACE", None)
    warnings.simplefilter("ignore")
    measure = importlib.import_module(f"benchmarks.queries.{module}").measure
    sys.stdout.write(json.dumps(measure(json.loads(job))))


if __name__ == "__main__":
    main()
