"""`chunk-simulated`: planes of S3D's variables on Spider, organized by Smart-IO, simulated.

The paper's Table I on the machine of its section V (336 targets, 250 MB/s, 8 ms, 1.9 ms): 4,096
writers, 16 along each axis, and 32 to 512 readers of one plane in the middle of a chunk, of each
direction. A time is that of the last reader, by `docs/simulation-explained.md`. The following
assumptions, on which the paper is silent, were fixed before any result:

- Contiguous: one file, stripes of 1 MiB on all targets. Readers share the slower axis of the plane.
  They read each contiguous run, or the whole range from the first to the last element through a
  buffer of 4 MiB (the default of ROMIO's data sieving) or 64 MiB. The fastest of the three counts.
- Original chunks: the process's chunk in one piece, a stripe each (the paper's practice), processes
  in row-major order.
- Smart: chunks divided evenly, the last piece padded, or merged; a stripe each, in Hilbert order.
- Spread, which is not in the paper: the same chunks, placed so that planes touch as many targets as
  possible (`bedform_geometry::spread_placement`); as shards, by the same rule without the grid's
  size, so that arrays may grow (`bedform_geometry::Spread`).
- Readers of chunks share a plane as a nearly square grid. Of a chunk they read the range from the
  first to the last needed byte (Figure 6(a) of the paper, "preferable").
- For aggregation they share the plane's chunks, too, so that each chunk has one reader. The choice
  of pieces for planes of all directions is that of `docs/simulation-explained.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from bedform import _internal
from benchmarks.harness.report import Report, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.options import Options

NAME = "chunk-simulated"
WRITERS = 16
ITEM = 8
SIDES = {"Var1": 256, "Var2": 128, "Var3": 64, "Var4": 32}
READERS = (32, 64, 128, 256, 512)
PLANES = {"plane i (jk)": 0, "plane j (ik)": 1, "plane k (ij)": 2}
SPREAD_ORDER = "spread"
# The placement of Bedform's shards, in arrays that may grow.
SHARDS_ORDER = "shards"
SCAN = (5, 6, 7, 8, 9)
WIDE_SCAN = (2, 3, 4, *SCAN)
MIBIBYTE = 1 << 20
BUFFERS = (4 * MIBIBYTE, 64 * MIBIBYTE)
REQUESTS_MAX = 2_000_000
CONTIGUOUS_GAIN, ORIGINAL_GAIN, NEAR_BEST, SPREAD = 72.0, 22.0, 1.10, 0.80
# Table II of the paper: seconds of writing all four variables.
PAPER_WRITES = {"original": 41.49, "smart": 42.67}


@dataclass(frozen=True)
class Chunks:
    """An array in chunks: bounds of the chunks on each axis, and their order on storage."""

    # For each axis, the first element of each chunk and the end, exclusive.
    cuts: tuple[list[tuple[int, int]], ...]
    # Lengths of a stored chunk.
    stored: tuple[int, ...]
    order: str

    @property
    def stored_bytes(self) -> int:
        """Bytes of a chunk on storage."""
        return math.prod(self.stored) * ITEM

    @property
    def grid(self) -> list[int]:
        """Chunks along each axis."""
        return [len(cut) for cut in self.cuts]

    def ranks(self, targets: int) -> Any:
        """Returns the index of each chunk in the file, whose stripes go to the targets in turn."""
        count = math.prod(self.grid)
        if self.order not in (SPREAD_ORDER, SHARDS_ORDER):
            return np.array(_internal.placement(self.order, self.grid, count)).reshape(self.grid)
        on = np.array(_internal.placement(self.order, self.grid, targets))
        places = np.empty(count, "i8")
        for target in range(targets):
            mine = np.flatnonzero(on == target)
            places[mine] = np.arange(mine.size) * targets + target
        return places.reshape(self.grid)

    def file(self, targets: int) -> dict[str, int]:
        """Returns the striping of the file: a chunk is a stripe."""
        return {"first": 0, "count": targets, "bytes": self.stored_bytes}


def divided(side: int, pieces: tuple[int, ...], order: str = "hilbert") -> Chunks:
    """Returns the chunks of all processes, each cut into the given pieces along each axis."""
    sizes = [-(-side // count) for count in pieces]
    cuts = []
    for size in sizes:
        inside = [(at, min(at + size, side)) for at in range(0, side, size)]
        cuts.append([(p * side + a, p * side + b) for p in range(WRITERS) for a, b in inside])
    return Chunks(tuple(cuts), tuple(sizes), order)


def merged(side: int, group: int) -> Chunks:
    """Returns chunks merged in groups of the given length along each axis."""
    size = side * group
    cut = [(at, at + size) for at in range(0, side * WRITERS, size)]
    return Chunks((cut, cut, cut), (size,) * 3, "hilbert")


def smart(side: int, optimized: float) -> tuple[str, Chunks]:
    """Returns the formula's choice for the chunks of a variable: its name, and the chunks."""
    shape, grid = [side] * 3, [WRITERS] * 3
    choice = json.loads(_internal.organize(shape, grid, ITEM, optimized))
    if choice == "keep":
        return "as they are", divided(side, (1, 1, 1))
    if "divide" in choice:
        pieces = tuple(choice["divide"]["pieces"])
        return "-".join(map(str, reversed(pieces))), divided(side, pieces)
    aggregated = choice["aggregate"]
    return f"{aggregated['levels']}-level", merged(side, aggregated["group"][0])


def reader_grid(readers: int) -> tuple[int, int]:
    """Returns a nearly square grid of readers, with more along the slower axis.

    >>> reader_grid(32), reader_grid(64)
    ((8, 4), (8, 8))
    """
    fast = next(n for n in range(math.isqrt(readers), 0, -1) if readers % n == 0)
    return readers // fast, fast


def share(length: int, count: int, number: int) -> tuple[int, int]:
    """Returns the elements of one of `count` equal shares."""
    return number * length // count, (number + 1) * length // count


def chunk_reads(
    chunks: Chunks, targets: int, plane: int, position: int, readers: int
) -> list[list[Any]]:
    """Return the requests of each reader of a plane."""
    ranks, total = chunks.ranks(targets), chunks.cuts[0][-1][1]
    slow, fast = (axis for axis in range(3) if axis != plane)
    rows, columns = reader_grid(readers)
    strides = (chunks.stored[1] * chunks.stored[2], chunks.stored[2], 1)
    clients = []
    for reader in range(readers):
        wanted: list[tuple[int, int]] = [(position, position + 1)] * 3
        wanted[slow] = share(total, rows, reader // columns)
        wanted[fast] = share(total, columns, reader % columns)
        parts = [list(overlaps(chunks.cuts[axis], *wanted[axis])) for axis in range(3)]
        operations = []
        for a in parts[0]:
            for b in parts[1]:
                for c in parts[2]:
                    box = (a, b, c)
                    first = sum(part[1] * by for part, by in zip(box, strides, strict=True))
                    last = sum((part[2] - 1) * by for part, by in zip(box, strides, strict=True))
                    place = int(ranks[a[0], b[0], c[0]]) * chunks.stored_bytes
                    length = (last - first + 1) * ITEM
                    operations.append({"read": [0, place + first * ITEM, length]})
        clients.append(operations)
    return clients


def whole_chunk_reads(
    chunks: Chunks, targets: int, plane: int, position: int, readers: int
) -> list[list[Any]]:
    """Returns the requests of each reader of a plane, with one reader for each chunk."""
    one = chunk_reads(chunks, targets, plane, position, 1)[0]
    ends = [share(len(one), readers, reader) for reader in range(readers)]
    return [one[begin:end] for begin, end in ends]


def pieces_for_all(machine: Any, side: int) -> int:
    """Returns the number of pieces across each faster axis of a chunk, best for all planes.

    >>> spider = {"targets": {"seek_seconds": 8e-3, "read_bytes_per_second": 250e6}}
    >>> pieces_for_all(spider | {"clients": {"request_seconds": 1.9e-3}}, 256)
    4
    """
    asking = machine["clients"]["request_seconds"] + machine["targets"]["seek_seconds"]
    moving = side**3 * ITEM / machine["targets"]["read_bytes_per_second"]
    return min(range(1, side), key=lambda n: n * n * asking + 2 * (n * asking + moving / n))


def overlaps(cut: list[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields the chunks along an axis that intersect a range, with the intersection."""
    for number, (first, behind) in enumerate(cut):
        if first < end and begin < behind:
            yield number, max(begin, first) - first, min(end, behind) - first


def contiguous_reads(
    total: int, plane: int, position: int, readers: int, buffer: int | None
) -> list[list[Any]] | None:
    """Returns the requests of each reader of a contiguous file; `None` if there are too many."""
    clients = []
    # For each element of the plane's slower axis: its first run, and the number of runs.
    plane_bytes, row = total * total * ITEM, total * ITEM
    for reader in range(readers):
        begin, end = share(total, readers, reader)
        if plane == 0:
            runs = [(position * plane_bytes + begin * row, (end - begin) * row)]
        elif plane == 1:
            runs = [(at * plane_bytes + position * row, row) for at in range(begin, end)]
        elif buffer is None:
            if total * total > REQUESTS_MAX:
                return None
            runs = [
                (at * plane_bytes + other * row + position * ITEM, ITEM)
                for at in range(begin, end)
                for other in range(total)
            ]
        else:
            first = begin * plane_bytes + position * ITEM
            runs = [(first, (end - begin) * plane_bytes - row + ITEM)]
        if buffer is not None and runs:
            first, behind = runs[0][0], sum(runs[-1])
            places = range(first, behind, buffer)
            runs = [(place, min(buffer, behind - place)) for place in places]
        clients.append([{"read": [0, place, length]} for place, length in runs])
    return clients


Reads = Callable[[Chunks, int, int, int, int], "list[list[Any]]"]


def simulate(machine: Any, file: dict[str, int], clients: list[list[Any]]) -> bf.Simulation:
    """Run clients on one file."""
    work = {"files": [file], "clients": [{"operations": one} for one in clients]}
    return bf.simulate(machine, work)


def seconds_of(
    machine: Any, chunks: Chunks, side: int, readers: int, reads: Reads = chunk_reads
) -> list[float]:
    """Return the time of each plane."""
    targets, position = machine["targets"]["count"], 8 * side + side // 2
    return [
        simulate(
            machine, chunks.file(targets), reads(chunks, targets, axis, position, readers)
        ).seconds
        for axis in PLANES.values()
    ]


def contiguous_seconds(machine: Any, side: int, readers: int) -> list[float]:
    """Returns the time of each plane of a contiguous file, read in the fastest way."""
    file = {"first": 0, "count": machine["targets"]["count"], "bytes": MIBIBYTE}
    found = []
    for axis in PLANES.values():
        ways = (
            contiguous_reads(side * WRITERS, axis, 8 * side + side // 2, readers, buffer)
            for buffer in (None, *BUFFERS)
        )
        times = [simulate(machine, file, way).seconds for way in ways if way is not None]
        found.append(min(times))
    return found


def write_seconds(machine: Any, organize: bool, optimized: float) -> bf.Simulation:
    """Returns the simulated write of all four variables, each in a file."""
    files, clients = [], [[] for _ in range(WRITERS**3)]  # type: ignore[var-annotated]
    for number, side in enumerate(SIDES.values()):
        chunks = smart(side, optimized)[1] if organize else divided(side, (1, 1, 1), "row-major")
        files.append(chunks.file(machine["targets"]["count"]))
        ranks = chunks.ranks(machine["targets"]["count"])
        # The process with a group's first elements writes its chunk.
        for place in np.ndindex(*chunks.grid):
            firsts = [chunks.cuts[axis][at][0] // side for axis, at in enumerate(place)]
            writer = (firsts[0] * WRITERS + firsts[1]) * WRITERS + firsts[2]
            offset = int(ranks[place]) * chunks.stored_bytes
            clients[writer].append({"write": [number, offset, chunks.stored_bytes]})
    work = {"files": files, "clients": [{"operations": one} for one in clients]}
    return bf.simulate(machine, work)


def targets_touched(chunks: Chunks, targets: int) -> tuple[float, float]:
    """Returns the least and the mean fraction of usable targets that a plane touches."""
    places = chunks.ranks(targets) % targets
    shares = []
    for axis in PLANES.values():
        for at in range(chunks.grid[axis]):
            plane = np.take(places, at, axis=axis)
            shares.append(np.unique(plane).size / min(plane.size, targets))
    return min(shares), float(np.mean(shares))


def shown(seconds: float) -> str:
    """Returns a time in seconds with three significant digits."""
    return f"{seconds:.3g}"


def gains_table(
    machine: Any, name: str, optimized: float, readers: tuple[int, ...]
) -> tuple[Table, list[float], list[float]]:
    """Returns the times of the three layouts of a variable, and the gain of ours."""
    side = SIDES[name]
    called, chunks = smart(side, optimized)
    columns = ["readers", "layout", *PLANES]
    table = Table(f"{name}, smart {called}: seconds", columns)
    to_contiguous, to_original = [], []
    for count in readers:
        times = {
            "contiguous": contiguous_seconds(machine, side, count),
            "original": seconds_of(machine, divided(side, (1, 1, 1), "row-major"), side, count),
            "smart": seconds_of(machine, chunks, side, count),
        }
        for layout, found in times.items():
            table.rows.append([str(count), layout, *map(shown, found)])
        pairs = list(zip(*times.values(), strict=True))
        to_contiguous += [contiguous / ours for contiguous, _, ours in pairs]
        to_original += [original / ours for _, original, ours in pairs]
        gains = [f"{a / c:.1f}, {b / c:.1f}" for a, b, c in pairs]
        table.rows.append([str(count), "times contiguous, original", *gains])
    return table, to_contiguous, to_original


@dataclass(frozen=True)
class Scan:
    """Times of all subchunkings of Var1, and the distance of each choice from the best."""

    table: Table
    # Smart-IO's formula for its planes, and for all, in the paper's scan.
    formula_slow: list[float]
    formula_all: list[float]
    # The choice for all planes, in the wide scan.
    chosen_all: list[float]


def scan_table(machine: Any, optimized: float, readers: tuple[int, ...]) -> Scan:
    """Returns times of all subchunkings, and the distance of the choices from the best."""
    side = SIDES["Var1"]
    formula = int(smart(side, optimized)[0].split("-")[0])
    chosen = pieces_for_all(machine, side)
    choices = [f"{formula} over best of 5 to 9", f"{chosen} over best of 2 to 9"]
    columns = ["readers", *(f"{n}-{n}-1" for n in WIDE_SCAN), *choices]
    title = "Var1, subchunks: seconds of planes j and k together; of all three"
    scan = Scan(Table(title, columns), [], [], [])
    for count in readers:
        times = {n: seconds_of(machine, divided(side, (1, n, n)), side, count) for n in WIDE_SCAN}
        for first, found in ((1, scan.formula_slow), (0, scan.formula_all)):
            sums = {n: sum(planes[first:]) for n, planes in times.items()}
            found.append(sums[formula] / min(sums[n] for n in SCAN))
            ours = sums[chosen] / min(sums.values())
            if first == 0:
                scan.chosen_all.append(ours)
            row = [*map(shown, sums.values()), f"{found[-1]:.2f}", f"{ours:.2f}"]
            scan.table.rows.append([str(count), *row])
    return scan


def aggregation_table(
    machine: Any, optimized: float, readers: tuple[int, ...], reads: Reads, what: str
) -> tuple[Table, list[bool]]:
    """Returns times with no, one or two levels of aggregation; whether the formula chose well."""
    side = SIDES["Var4"]
    levels = {"no-aggr": merged(side, 1), "1-level": merged(side, 2), "2-level": merged(side, 4)}
    chosen = smart(side, optimized)[0]
    title = f"Var4, aggregation, readers share {what}: seconds of all three planes"
    table = Table(title, ["readers", *levels, "chosen"])
    best = []
    for count in readers:
        times = {
            name: sum(seconds_of(machine, chunks, side, count, reads))
            for name, chunks in levels.items()
        }
        best.append(min(times, key=lambda name: times[name]) == chosen)
        table.rows.append([str(count), *map(shown, times.values()), chosen])
    return table, best


def placement_tables(
    machine: Any, optimized: float, readers: tuple[int, ...]
) -> tuple[Table, Table, dict[str, list[float]]]:
    """Returns tables of the fractions of targets that planes touch, and the least fractions."""
    targets = machine["targets"]["count"]
    columns = ["variable", "Hilbert: least", "mean", "Z: least", "row-major: least"]
    columns += ["thrown: mean", "spread: least", "shards: least"]
    spread = Table("Share of the targets that could serve a plane that do", columns)
    columns = ["variable", "readers", "Hilbert", "spread", "shards"]
    placed = Table("Placement of the smart chunks: seconds of all three planes", columns)
    least: dict[str, list[float]] = {"Hilbert": [], "spread": [], "shards": []}
    for name, side in SIDES.items():
        called, chunks = smart(side, optimized)
        z, bare, even, own = (
            replace(chunks, order=order) for order in ("z", "row-major", SPREAD_ORDER, SHARDS_ORDER)
        )
        found = targets_touched(chunks, targets)
        others = [targets_touched(one, targets)[0] for one in (z, bare, even, own)]
        for order, share in zip(least, (found[0], *others[2:]), strict=True):
            least[order].append(share)
        shares = [*found, *others[:2], thrown(chunks, targets), *others[2:]]
        spread.rows.append([f"{name}, {called}", *(f"{one:.0%}" for one in shares)])
        for count in (readers[0], readers[-1]):
            times = [sum(seconds_of(machine, one, side, count)) for one in (chunks, even, own)]
            placed.rows.append([name, str(count), *map(shown, times)])
    return spread, placed, least


def thrown(chunks: Chunks, targets: int) -> float:
    """Returns the mean fraction of targets that a plane's chunks touch in random placement.

    >>> round(thrown(divided(64, (1, 1, 1)), 336), 2)
    0.7
    """
    cells = [math.prod(chunks.grid) // chunks.grid[axis] for axis in PLANES.values()]
    hit = [targets * (1 - (1 - 1 / targets) ** count) / min(count, targets) for count in cells]
    return sum(hit) / len(hit)


def run(options: Options) -> Report:
    """Runs all simulations."""
    machine = bf.machine("spider")
    asking = machine["clients"]["request_seconds"] + machine["targets"]["seek_seconds"]
    optimized = machine["targets"]["read_bytes_per_second"] * asking
    readers = READERS[::4] if options.quick else READERS
    settings = {"machine": machine["about"], "optimized chunk": f"{optimized / 1e6:.3f} MB"}
    report = Report(NAME, options.command, settings)
    to_contiguous: list[float] = []
    to_original: list[float] = []
    for name in ["Var1"] if options.quick else SIDES:
        table, *gains = gains_table(machine, name, optimized, readers)
        report.tables.append(table)
        to_contiguous += gains[0]
        to_original += gains[1]
    scan = scan_table(machine, optimized, readers)
    ways: dict[str, Reads] = {"elements": chunk_reads, "chunks": whole_chunk_reads}
    best = {}
    aggregations = []
    for what, reads in ways.items():
        aggregation, best[what] = aggregation_table(machine, optimized, readers, reads, what)
        aggregations.append(aggregation)
    spread, placed, least = placement_tables(machine, optimized, readers)
    writes = Table("Writing all four variables: seconds", ["layout", "simulated", "paper", "bound"])
    for layout, paper in PAPER_WRITES.items():
        written = write_seconds(machine, layout == "smart", optimized)
        writes.rows.append([layout, shown(written.seconds), f"{paper}", written.limit])
    report.tables += [scan.table, *aggregations, spread, placed, writes]
    report.verdicts = verdicts(to_contiguous, to_original, scan, best, least)
    return report


def verdicts(
    to_contiguous: list[float],
    to_original: list[float],
    scan: Scan,
    best: dict[str, list[bool]],
    least: dict[str, list[float]],
) -> list[Verdict]:
    """Returns the promises, compared with the results."""
    contiguous, original = max(to_contiguous), max(to_original)
    near = f"within {NEAR_BEST - 1:.0%} of the best of the scan"
    choices = {
        f"formula's subchunks {near}, planes j and k": scan.formula_slow,
        f"formula's subchunks {near}, all planes": scan.formula_all,
        f"subchunks chosen for all planes {near} from 2 on, all planes": scan.chosen_all,
    }
    return [
        Verdict(
            f"planes at best {CONTIGUOUS_GAIN:.0f} times as fast as contiguous",
            f"{contiguous:.1f}",
            contiguous >= CONTIGUOUS_GAIN,
        ),
        Verdict(
            f"planes at best {ORIGINAL_GAIN:.0f} times as fast as the original chunks",
            f"{original:.1f}",
            original >= ORIGINAL_GAIN,
        ),
        *(
            Verdict(promise, f"{max(ratios):.2f}", max(ratios) <= NEAR_BEST)
            for promise, ratios in choices.items()
        ),
        *(
            Verdict(
                f"aggregation: the formula's level is the best, readers share {what}",
                f"{sum(chosen)} of {len(chosen)}",
                all(chosen),
            )
            for what, chosen in best.items()
        ),
        *(
            Verdict(
                f"planes touch at least {SPREAD:.0%} of the targets that could serve them, {order}",
                f"{min(shares):.0%}",
                min(shares) >= SPREAD,
            )
            for order, shares in least.items()
        ),
    ]
