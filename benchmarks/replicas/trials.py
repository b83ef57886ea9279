"""Lines of reads with replicas against peers: cold, in forked children, checked, in rounds.

Each benchmark has a function `measure`, which runs in a separate process for each place (the disk,
a slow store): `python -m benchmarks.replicas.trials MODULE JOB`. A measured read opens, reads and
closes in a forked child, whose memory has no data of the file. Each round takes the next of a
line's reads, the same for all readers.

The child first reads a small file of the same form in the same way. Otherwise the measured read
would wait for code, whose pages are dropped with those of the data, and for copies of the pages
that a forked process writes to, which took 2 ms of a read of 3 ms. The parent reads nothing: some
libraries fail in the child of a process in which they have threads.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.report import bytes_in_words, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.slow_store import BYTES_PER_SECOND, THROTTLES, WAIT_SECONDS
from benchmarks.harness.statistics import LOSS_RATIO, Ratio, median, paired_ratio
from benchmarks.replicas.readers import (
    NEVER_SLOW,
    OURS,
    READERS,
    WITHOUT,
    has_lists,
    is_list,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Reader, Values

#: A reader slower than both limits, as a multiple of the fastest peer and in seconds, reads once.
HOPELESS, HOPELESS_SECONDS = 3.0, 1.0
#: The engine on a store of the same elements in another order: not a peer.
ORDERED = "Z order"


class KnownVariables(Protocol):
    """The variables of a file, with known elements."""

    @property
    def name(self) -> Names:
        """The variable, or several."""

    def answers(self, selections: list[Selection]) -> Values:
        """Returns the expected elements of the selections of each variable."""


Of = TypeVar("Of", bound=KnownVariables, covariant=True)


@dataclass(frozen=True)
class Subject(Generic[Of]):
    """A file, and its known variables."""

    path: Path
    of: Of


@dataclass(frozen=True)
class Line:
    """The selections of the reads to compare, one after the other in the rounds."""

    name: str
    reads: list[list[Selection]]
    #: Readers of this line alone, and the readers that it excludes.
    others: Mapping[str, Reader] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def readers(self, is_slow: bool) -> dict[str, Reader]:
        """Returns the readers; for a slow store those that it slows down."""
        named = {**READERS, **self.others}
        return {
            name: one
            for name, one in named.items()
            if name not in self.without and not (is_slow and name in NEVER_SLOW)
        }


def in_process(
    module: str, job: dict[str, Any], place: str = "disk", **environment: str
) -> dict[str, Any]:
    """Runs `measure` of a module for a place, in a process with the place's throttle."""
    profiles = data.ROOT / "replica-profiles"
    environment |= {"BEDFORM_THROTTLE": THROTTLES[place], "BEDFORM_PROFILES": str(profiles)}
    data.remove(profiles)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.replicas.trials", module, json.dumps(job)],
        cwd=data.ROOT.parent,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    data.remove(profiles)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def job_of(options: Options, place: str = "disk") -> dict[str, Any]:
    """Returns the job description of the run for a process."""
    return {
        "place": place,
        "quick": options.quick,
        "rounds": max(options.rounds, 3),
        "only": list(options.only),
    }


def keep_profile(path: Path) -> None:
    """Keeps the profile of the slow store, from its throttle, so that all runs choose alike."""
    facts = bf.Profile.default().to_dict()
    facts["profile"] |= {
        "name": "a slow store",
        "read_bytes_per_second_one": BYTES_PER_SECOND,
        "read_bytes_per_second_many": BYTES_PER_SECOND,
        "request_seconds_one": WAIT_SECONDS,
        "open_seconds": WAIT_SECONDS,
        "request_seconds_many": WAIT_SECONDS / facts["profile"]["requests_in_flight"],
        "merge_gap_bytes": 96 << 10,
    }
    bf.Profile(facts).keep(path)


def forget_replicas(path: Path) -> None:
    """Remove the sidecar of a file."""
    data.remove(sidecar_of(path))


def sidecar_of(path: Path) -> Path:
    """Returns the path of a file's sidecar."""
    return path.with_name(path.name + ".bedform")


def sidecar_bytes(path: Path) -> int:
    """Returns the bytes of replicas with their descriptions, without traces."""
    files = data.files_under(sidecar_of(path))
    return sum(file.stat().st_size for file in files if file.parent.name != "traces")


def trace(path: Path, name: str, selections: list[Selection]) -> None:
    """Records reads and learns from them, with the file in the page cache for speed."""
    cold.make_warm(path)
    bf.watch(path)
    with bf.open(path, prefetch=False) as store:
        array: Any = store[name]
        for selection in selections:
            _ = array.oindex[selection] if has_lists(selection) else array[selection]
    bf.learn(path)
    bf.watch(path, on=False)


def timed(read: Callable[[], Values], expected: Values, first: Callable[[], object]) -> float:
    """Opens, reads and closes; returns the seconds, after a check of the answer."""
    first()
    began = time.perf_counter()
    found = read()
    seconds = time.perf_counter() - began
    for values, wanted in zip(found, expected, strict=True):
        if not np.array_equal(values, wanted):
            raise RuntimeError("wrong values")
    return seconds


def explained(
    file: Subject[KnownVariables], wanted: list[Selection], replicas: bool
) -> dict[str, Any]:
    """Returns requests and bytes of a read, and the bytes that replicas hold of it."""
    names = ("requests", "bytes", "result_bytes", "replica_bytes")
    if any(sum(map(is_list, selection)) > 1 for selection in wanted):
        return {}  # It takes what `[]` takes.
    with bf.open(file.path, replicas=replicas) as store:
        arrays = [store[name] for name in names_of(file.of.name)]
        plans = [array.explain(one).to_dict() for array in arrays for one in wanted]
    return {name: sum(plan.get(name, 0) for plan in plans) for name in names}


@dataclass(frozen=True)
class ReplicaTrial:
    """A file with its replicas, and a small file of the same form with its lines."""

    file: Subject[KnownVariables]
    little: Subject[KnownVariables]
    little_lines: Mapping[str, Line]
    is_slow: bool = False
    #: Other files that the lines read.
    others: tuple[Path, ...] = ()
    answer: dict[str, Any] = field(default_factory=dict)

    def once(self, reader: Reader, wanted: list[Selection], line: str) -> float:
        """Returns the seconds of a cold read, after a read of the small file's line."""
        little, of = self.little, self.file.of
        first = partial(reader, little.path, little.of.name, self.little_lines[line].reads[0])
        read = partial(reader, self.file.path, of.name, wanted)
        # Computed once for all readers, since the answer may be large.
        if self.answer.get("of") is not wanted:
            self.answer.update({"of": wanted, "values": of.answers(wanted)})
        for one in (self.file.path, sidecar_of(self.file.path), *self.others):
            cold.make_cold(one)
        return float(in_child(timed, read, self.answer["values"], first))

    def compare(self, line: Line, rounds: int) -> dict[str, Any]:
        """Measures all readers in rounds; also returns the plan of the first read."""
        readers, taken = line.readers(self.is_slow), Counter[str]()

        def once(name: str) -> float:
            wanted = line.reads[taken[name] % len(line.reads)]
            taken[name] += 1
            return self.once(readers[name], wanted, line.name)

        tried = {name: once(name) for name in readers}
        peers = peers_of(tried)
        limit = max(HOPELESS * min(tried[name] for name in peers), HOPELESS_SECONDS)
        left = [name for name in tried if name not in peers or tried[name] <= limit]
        taken.clear()
        samples = interleave(left, rounds, once)
        samples |= {name: [seconds] for name, seconds in tried.items() if name not in left}
        found: dict[str, Any] = {"samples": samples}
        for name, replicas in ((OURS, True), (WITHOUT, False)):
            found[name] = in_child(explained, self.file, line.reads[0], replicas)
        return found


def has_selections() -> bool:
    """Whether this build makes replicas of listed elements."""
    return "selections" in inspect.signature(bf.optimize).parameters


def peers_of(samples: Mapping[str, Any]) -> list[str]:
    """Returns the baselines: the peers, or the engine without replicas if there are none."""
    return [name for name in samples if name not in (OURS, WITHOUT, ORDERED)] or [WITHOUT]


def heads(peers: list[str]) -> list[str]:
    """Return the columns of `row`."""
    times = ["times faster than the fastest peer", f"than {WITHOUT}"]
    return ["line", OURS, WITHOUT, *peers, *times, "requests", "bytes", "of replicas"]


def row(name: str, line: dict[str, Any], peers: list[str]) -> list[str]:
    """Returns the row of the line: milliseconds, requests and bytes, with and without replicas."""
    samples, cells = line["samples"], [name]
    for reader in (OURS, WITHOUT, *peers):
        seconds = samples.get(reader)
        once = " once" if seconds and len(seconds) < len(samples[OURS]) else ""
        cells.append(f"{milliseconds(median(seconds))}{once}" if seconds else "-")
    has_peers = peers_of(samples) != [WITHOUT]
    cells.append(faster(line).describe() if has_peers else "-")
    cells.append(paired_ratio(samples[WITHOUT], samples[OURS]).describe())
    ours, without = line[OURS], line[WITHOUT]
    if not ours:
        return [*cells, "-", "-", "-"]
    cells.append(f"{ours['requests']} of {without['requests']}")
    cells.append(f"{bytes_in_words(ours['bytes'])} of {bytes_in_words(without['bytes'])}")
    return [*cells, f"{ours['replica_bytes'] / ours['result_bytes']:.0%}"]


def faster(line: dict[str, Any], ours: str = OURS) -> Ratio:
    """Returns our speedup over the fastest baseline, round by round."""
    samples = line["samples"]
    whole = [name for name in peers_of(samples) if len(samples[name]) == len(samples[ours])]
    fastest = min(whole, key=lambda name: median(samples[name]))
    return paired_ratio(samples[fastest], samples[ours])


def is_slower(ratio: Ratio) -> bool:
    """Whether even the upper bound of our speedup is below 1."""
    return ratio.high < 1 / LOSS_RATIO


def main() -> None:
    """Run `measure` of a module and print what it returns."""
    module, job = sys.argv[1:]
    os.environ.pop("BEDFORM_TRACE", None)
    measure = importlib.import_module(f"benchmarks.replicas.{module}").measure
    sys.stdout.write(json.dumps(measure(json.loads(job))))


if __name__ == "__main__":
    main()
