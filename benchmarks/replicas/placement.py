"""`replica-placement`: a replica's shards placed for the processes that read it, simulated.

Section 3.2.4 of Tang's dissertation: "make each OST be contacted by as few processes as possible".
The machine is that of its section 3.3.1, Edison with 144 targets. The replica has 64 x 16 x 16
chunks of 1 MiB: 16 GiB. Its 1,024 shards, each a file on one target, are rows of 1 x 1 x 16 chunks
or cuboids of 4 x 2 x 2. These assumptions were fixed before any result:

- Processes read the whole replica together, a share each, in one of the ways of `WAYS`. One read is
  the process's part of a row of chunks along the fastest axis. It takes one piece of a shard for
  each run of consecutive chunks there.
- `spread` is the placement of the shards of any array, without regard to processes
  (`bedform_geometry::Spread`); `placed` is that by the processes (`bedform_geometry::GridReaders`).
- Predicted times are those of the paper's equation 3.1, with the time of a chunk at the target's
  bandwidth for its pages, a seek for each piece, and the cost of a request as latency. Simulated
  ones are those of the last process, by `docs/simulation.md`, with `IN_FLIGHT` requests of a
  process in flight. A process opens no file: both placements have the same opens.
- The equation multiplies a target's work by the number of processes that it serves. The simulated
  machine does not: there, processes that share a target pay by the seeks between their pieces and
  by waiting for each other.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import bedform as bf
from bedform import _internal
from benchmarks.harness.report import Report, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness.options import Options

NAME = "replica-placement"
CHUNK_BYTES = 1 << 20
# Chunks along each axis, of the replica and of its shards.
SHAPE = (64, 16, 16)
SHARDS = {"rows": (1, 1, 16), "cuboids": (4, 2, 2)}
SHARD_CHUNKS = 16
PROCESSES = (16, 72, 144, 256)
QUICK_PROCESSES = (16, 64)
IN_FLIGHT = (1, 8)

Shape = tuple[int, int, int]
Box = tuple[tuple[int, int, int], tuple[int, int, int]]


def share(length: int, count: int, number: int) -> tuple[int, int]:
    """Returns start and length of one of `count` shares.

    >>> [share(10, 4, number) for number in range(4)]
    [(0, 2), (2, 3), (5, 2), (7, 3)]
    """
    begin = number * length // count
    return begin, (number + 1) * length // count - begin


def blocks(processes: int) -> list[list[Box]]:
    """Returns the reads of processes that each take a run of rows."""
    rows = list(itertools.product(range(SHAPE[0]), range(SHAPE[1])))
    reads = []
    for process in range(processes):
        begin, count = share(len(rows), processes, process)
        mine = rows[begin : begin + count]
        reads.append([((a, b, 0), (1, 1, SHAPE[2])) for a, b in mine])
    return reads


def in_turn(processes: int) -> list[list[Box]]:
    """Returns the reads of processes that take rows in turn."""
    rows = list(itertools.product(range(SHAPE[0]), range(SHAPE[1])))
    return [
        [((a, b, 0), (1, 1, SHAPE[2])) for a, b in rows[process::processes]]
        for process in range(processes)
    ]


def tiles(processes: int) -> list[list[Box]]:
    """Return the reads of processes that share each plane as a grid, one plane after the other."""
    columns = next(
        n for n in (16, 12, 9, 8, 6, 4, 3, 2, 1) if processes % n == 0 and n * n <= processes
    )
    rows = processes // columns
    reads: list[list[Box]] = []
    for process in range(processes):
        b, height = share(SHAPE[1], rows, process // columns)
        c, width = share(SHAPE[2], columns, process % columns)
        planes = itertools.product(range(SHAPE[0]), range(b, b + height))
        reads.append([((a, row, c), (1, 1, width)) for a, row in planes if width])
    return reads


WAYS: dict[str, Callable[[int], list[list[Box]]]] = {
    "blocks of rows": blocks,
    "tiles of planes": tiles,
    "rows in turn": in_turn,
}


@dataclass(frozen=True)
class Placed:
    """The targets of shards, and the cost of that placement."""

    targets: list[int]
    # For each target.
    processes: list[int]
    stored: list[int]
    # By equation 3.1.
    seconds: float


def place(machine: Any, shards: Shape, reads: list[list[Box]]) -> dict[str, Placed]:
    """Return both placements of the replica for such reads."""
    targets, clients = machine["targets"], machine["clients"]
    question = {
        "shape": SHAPE,
        "shards": shards,
        "targets": targets["count"],
        "reads": reads,
        "element_seconds": CHUNK_BYTES / targets["read_bytes_per_second"],
        "piece_seconds": targets["seek_seconds"] + targets["request_seconds"],
        "latency_seconds": targets["latency_seconds"] + clients["request_seconds"],
    }
    found = json.loads(_internal.place_by_readers(json.dumps(question)))
    return dict(zip(("spread", "placed"), (Placed(**one) for one in found), strict=True))


def pieces(shards: Shape, read: Box) -> Iterator[tuple[int, int, int]]:
    """Yields the pieces of shards in a row: the shard, its first chunk there, and their number.

    >>> list(pieces((4, 2, 2), ((0, 0, 0), (1, 1, 3))))
    [(0, 0, 2), (1, 0, 1)]
    >>> list(pieces((4, 2, 2), ((3, 1, 1), (1, 1, 1))))
    [(0, 15, 1)]
    """
    (a, b, first), (_, _, count) = read
    rows = tuple(size // by for size, by in zip(SHAPE, shards, strict=True))
    end = first + count
    while first < end:
        shard = (a // shards[0] * rows[1] + b // shards[1]) * rows[2] + first // shards[2]
        inside = (a % shards[0] * shards[1] + b % shards[1]) * shards[2] + first % shards[2]
        taken = min(end, (first // shards[2] + 1) * shards[2]) - first
        yield shard, inside, taken
        first += taken


def simulate(
    machine: Any, shards: Shape, reads: list[list[Box]], placed: Placed, in_flight: int
) -> bf.Simulation:
    """Simulates the reads of all processes."""
    files = [
        {"first": target, "count": 1, "bytes": SHARD_CHUNKS * CHUNK_BYTES}
        for target in placed.targets
    ]
    clients = []
    for process in reads:
        operations = [
            {"read": [shard, first * CHUNK_BYTES, count * CHUNK_BYTES]}
            for read in process
            for shard, first, count in pieces(shards, read)
        ]
        clients.append({"operations": operations, "requests_in_flight": in_flight})
    return bf.simulate(machine, {"files": files, "clients": clients})


@dataclass(frozen=True)
class Compared:
    """Both placements of one way, number of processes and requests in flight."""

    spread: Placed
    placed: Placed
    spread_seconds: float
    placed_seconds: float

    @property
    def gain(self) -> float:
        """The speedup of reading the replica."""
        return self.spread_seconds / self.placed_seconds


def compare(machine: Any, shards: Shape, reads: list[list[Box]], in_flight: int) -> Compared:
    """Places the replica both ways and simulates reading it."""
    found = place(machine, shards, reads)
    seconds = [simulate(machine, shards, reads, one, in_flight).seconds for one in found.values()]
    return Compared(found["spread"], found["placed"], *seconds)


def served(one: Placed) -> str:
    """Returns the most processes of a target, and the mean."""
    return f"{max(one.processes)}, {sum(one.processes) / len(one.processes):.1f}"


def run(options: Options) -> Report:
    """Runs all simulations."""
    machine = bf.machine("edison")
    columns = ["shards", "processes", "in flight", "spread: most, mean", "placed"]
    columns += ["predicted: spread", "placed", "simulated: spread", "placed", "times as fast"]
    settings = {"machine": machine["about"], "replica": "16 GiB in 1,024 shards of 16 MiB"}
    report = Report(NAME, options.command, settings)
    all_found = []
    for name, way in WAYS.items():
        table = Table(f"{name}: processes of a target, and seconds", columns)
        counts = QUICK_PROCESSES if options.quick else PROCESSES
        for called, count, in_flight in itertools.product(SHARDS, counts, IN_FLIGHT):
            found = compare(machine, SHARDS[called], way(count), in_flight)
            all_found.append(found)
            times = [found.spread.seconds, found.placed.seconds]
            times += [found.spread_seconds, found.placed_seconds]
            row = [called, str(count), str(in_flight), served(found.spread), served(found.placed)]
            row += [f"{seconds:.3g}" for seconds in times]
            table.rows.append([*row, f"{found.gain:.2f}"])
        report.tables.append(table)
    report.verdicts = verdicts(all_found)
    return report


def verdicts(found: list[Compared]) -> list[Verdict]:
    """Returns the promises, compared with the results."""
    fewer = [max(one.placed.processes) / max(one.spread.processes) for one in found]
    costs = [one.placed.seconds / one.spread.seconds for one in found]
    gains = [one.gain for one in found]
    return [
        Verdict(
            "no target serves more processes than with the spread",
            f"{min(fewer):.2f} to {max(fewer):.2f} times as many",
            max(fewer) <= 1,
        ),
        Verdict(
            "no placement costs more than the spread by equation 3.1",
            f"{min(costs):.2f} to {max(costs):.2f} times as much",
            max(costs) <= 1,
        ),
        Verdict(
            "no replica is read more slowly than with the spread, simulated",
            f"{min(gains):.2f} to {max(gains):.2f} times as fast",
            min(gains) >= 1,
        ),
    ]
