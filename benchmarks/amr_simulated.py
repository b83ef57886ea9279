"""`amr-simulated`: regions of refined meshes on 24 to 336 targets, by the order of boxes.

The meshes are those of `amr-layout`: five levels around curves, by a generator like that of
Chombo's I/O benchmark, with boxes of one to four tiles. Set-ups differ in the cells of a tile,
which is also a sub-box of the stores. One is the mesh of tiles of 16 cells with 104 times the bytes
for each sub-box: 3.4 MB, the mean box of the dissertation's largest file. The machine is Spider
with 24 to 336 targets, simulated; four processes share a node, as in the dissertation (4.3.6).

The requests are the engine's own (`MeshComponent.workload`), shared by the clients; each has one
request in flight. Opening files and reading the indexes of shards are left out, as the
dissertation's throughput leaves out the construction of the mesh. The dissertation writes each
level as one file, striped over all targets. So the shards of a level are joined here: shard `n`
begins at `n` times the length of a whole shard, in one file of stripes of 1 MiB. The shards of a
workload have no names; their numbers are those of the sub-boxes that the region needs. Levels begin
on different targets. So do the files of the plotfile, one for each of 32 ranks and level.

Regions: the dissertation's eleven are bounding boxes of ice shelves, shown in a picture. Here
*part 1* to *part 11* are drawn by its own rule for samples: around random boxes of the second
finest level, each side between 5 box lengths and half of the domain. Boxes of 1 to 25 % of the
domain, planes and pencils are those of `amr-layout`. The dissertation has boxes of 5 to 25 %, and
neither planes nor pencils.

*Contiguous* is one range of as many bytes in one file, shared by the clients. *By level* is one
range in the file of each level: a region of five levels can have no fewer places.

The dissertation's model is its equation 4.1: the contiguous time, and the steps on the worst target
between pieces that do not touch. Its three weights come from strided reads of one target, with
steps of 1, 5 and 20 MiB. It lacks the clients, each of which waits for its requests one after the
other. *With waits* takes the longest sum of such waits, too: the root of the sum of both squares. A
wait comes from small reads by one client.

The last table reads boxes of the first set-up in other ways: 16 requests in flight, the engine's
default; gaps of 1 MiB read over; stripes of 16 MiB. They were tried after the first results.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks import amr_layout
from benchmarks.amr_layout import (
    ERROR_MAX,
    ERROR_SHARE,
    FASTER,
    FIELD,
    LEVELS,
    NEAR_BEST,
    ORDERS,
    SHARE,
    SLOWER,
)
from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness.options import Options

NAME = "amr-simulated"
TARGETS = (24, 48, 96, 192, 336)
CLIENTS = (1, 16, 128)
PER_NODE = 4
STRIPE = 1 << 20
PARTS = 11
MEAN_BOX = 104
#: The steps of each class of the model, in bulk requests of 1 MiB on a target.
STEPS = (1, 5, 20)
STEP_READS = 64
#: Levels begin this many targets apart, a number without a common divisor with `TARGETS`.
APART = 7919

#: The requests of each client: file, first byte, bytes.
Reads = list[list[tuple[int, int, int]]]
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Setup:
    """A mesh: cells of a tile along each axis, cells of the coarsest level, times the bytes."""

    tile: int
    base: int
    scale: int = 1


#: Neighbours of the same mesh share its files.
SETUPS = {
    "tiles of 16": Setup(16, 128),
    "boxes of 3.4 MB": Setup(16, 128, MEAN_BOX),
    "tiles of 32": Setup(32, 128),
    "tiles of 8": Setup(8, 128),
}


@dataclass(frozen=True)
class Case:
    """The simulated reads of a region by some clients on some targets."""

    setup: str
    region: str
    clients: int
    targets: int
    # Seconds: plotfile, orders, contiguous, by level.
    seconds: dict[str, float]
    # Predicted over simulated seconds of each order, by each model.
    predicted: dict[str, dict[str, float]]
    # The order that conversion has chosen.
    chosen: str
    # Bytes and requests of a read in that order; seconds that its busiest target moves and seeks.
    read_bytes: int
    requests: int
    moving: float
    seeking: float

    @property
    def is_box(self) -> bool:
        """Whether the region is of a shape that the dissertation reads."""
        return self.region.startswith(("part", "box"))

    @property
    def best(self) -> float:
        """The seconds of the fastest order that is not the writer's."""
        return min(self.seconds[order] for order in ORDERS[1:])

    def gain(self, order: str) -> float:
        """Returns the time of the writer's order over that of another."""
        return self.seconds["given"] / self.seconds[order]

    def is_near_best(self) -> bool:
        """Whether the chosen order is within 5 % of the best of all."""
        return self.seconds[self.chosen] <= SLOWER * min(self.seconds[one] for one in ORDERS)

    def label(self) -> str:
        """Returns a description in a few words."""
        clients = f"{self.clients} client" + "s" * (self.clients > 1)
        return f"{self.setup}, {self.region}, {clients}, {self.targets} targets"


def regions_of(mesh: bf.RefinedMesh, tile: int) -> dict[str, Region]:
    """Returns the regions, in cells of the finest level."""
    random = np.random.default_rng(0)
    cells = int(mesh.domain(LEVELS - 1)[1, 0])
    boxes = mesh.boxes(LEVELS - 2) * 2
    found = {}
    for number in range(1, PARTS + 1):
        middle = boxes[random.integers(len(boxes))].sum(axis=0) // 2
        half = random.integers(5 * tile, cells // 2, size=3) // 2
        found[f"part {number}"] = tuple(
            slice(max(int(at - by), 0), min(int(at + by), cells))
            for at, by in zip(middle, half, strict=True)
        )
    return found | amr_layout.regions_of(cells)


def sub_boxes_of(mesh: bf.RefinedMesh, region: Region, tile: int) -> dict[int, list[Any]]:
    """Returns for each level the starts of the sub-boxes whose cells a read takes."""
    found: dict[int, list[Any]] = {}
    for piece in mesh[FIELD].pieces(region, level=LEVELS - 1, max_bytes="8 GiB"):
        if not piece.covered.all():
            start = tuple(int(at) // tile * tile for at in piece.start)
            found.setdefault(piece.level, []).append(start)
    return found


class Stored:
    """A store of one order: places of its sub-boxes, and lengths of its shards in bytes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        store = bf.open(place, "r+", cache=0)
        self.order = str(store["plt00000"].attributes["bedform_mesh"]["order"]).split(", ")[-1]
        self.shards: list[dict[Any, int]] = []
        self.ends: list[dict[int, int]] = []
        for level in range(LEVELS):
            group = f"plt00000/level_{level}"
            array = store[f"{group}/{FIELD}"]
            rows = store[f"{group}/sub_boxes"][...]
            shard = (array.shards or array.chunks)[0]
            self.shards.append({tuple(row[:3].tolist()): int(row[6]) // shard for row in rows})
            files = (place / group / FIELD / "c").iterdir()
            self.ends.append({int(file.name): file.stat().st_size for file in files})

    def reads(
        self,
        region: Region,
        sub_boxes: dict[int, list[Any]],
        clients: int,
        profile: bf.Profile | None = None,
    ) -> Reads:
        """Returns the requests, with the shards of each level joined to one file."""
        mesh = bf.open(self.place, prefetch=False, cache=0, profile=profile or bf.Profile.default())
        work = mesh[FIELD].workload(region, level=LEVELS - 1, clients=clients)
        files = [
            (level, shard)
            for level, starts in sorted(sub_boxes.items())
            for shard in sorted({self.shards[level][start] for start in starts})
        ]
        if len(files) != len(work["files"]):
            raise ValueError(f"{self.place}: {len(work['files'])} files, not {len(files)}")
        found: Reads = []
        for client in work["clients"]:
            found.append([])
            for number, offset, count in requests_of(client):
                level, shard = files[number]
                # The index is at the end.
                if offset + count < self.ends[level][shard]:
                    at = shard * self.ends[level][0] + offset
                    found[-1].append((level, at, count))
        return found


def requests_of(client: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Yields file, first byte and bytes of each read of a client of a workload."""
    for operation in client["operations"]:
        if "read" in operation:
            number, offset, count = operation["read"]
            yield number, offset, count


def plotfile_reads(mesh: bf.RefinedMesh, region: Region, clients: int) -> Reads:
    """Returns the requests of a read of the plotfile; each of its files is one."""
    work = mesh[FIELD].workload(region, level=LEVELS - 1, clients=clients)
    return [list(requests_of(client)) for client in work["clients"]]


def contiguous_reads(lengths: list[int], clients: int) -> Reads:
    """Returns the reads of the first bytes of files, of which each client has as many.

    >>> contiguous_reads([4, 2], 2)
    [[(0, 0, 3)], [(0, 3, 1), (1, 0, 2)]]
    """
    total = sum(lengths)
    found: Reads = []
    for client in range(clients):
        begin, end = (total * at // clients for at in (client, client + 1))
        found.append([])
        for file, length in enumerate(lengths):
            first, last = max(begin, 0), min(end, length)
            if first < last:
                found[-1].append((file, first, last - first))
            begin, end = begin - length, end - length
    return found


def scaled(reads: Reads, scale: int) -> Reads:
    """Returns reads of sub-boxes with more bytes each."""
    return [[(file, at * scale, n * scale) for file, at, n in one] for one in reads]


def machine_of(targets: int) -> dict[str, Any]:
    """Returns Spider with some targets."""
    machine = bf.machine("spider")
    machine["targets"]["count"] = machine["striping"]["count"] = targets
    machine["clients"]["per_node"] = PER_NODE
    return machine


def simulate(
    machine: dict[str, Any], reads: Reads, stripe: int = STRIPE, in_flight: int = 1
) -> bf.Simulation:
    """Simulates reads of files that are striped over all targets."""
    count = 1 + max((file for client in reads for file, _, _ in client), default=0)
    targets = machine["targets"]["count"]
    files = [{"first": at * APART, "count": targets, "bytes": stripe} for at in range(count)]
    clients = [
        {
            "requests_in_flight": in_flight,
            "operations": [{"read": list(one)} for one in client],
        }
        for client in reads
    ]
    return bf.simulate(machine, {"files": files, "clients": clients})


def steps_of(reads: Reads, targets: int) -> np.ndarray[Any, Any]:
    """Returns for each target its steps over up to 1, up to 10, and more bulk requests.

    As `bedform_geometry::BoxExtents::steps` counts them: distances are those in the object of the
    target. The step from one level to the next is a large one.
    """
    found = np.zeros((targets, 3), "i8")
    levels = np.zeros(targets, "i8")
    for file in {file for client in reads for file, _, _ in client}:
        pieces = sorted(
            (at, at + n) for client in reads for other, at, n in client if other == file
        )
        starts, ends = (np.array(side) for side in zip(*pieces, strict=True))
        own = np.arange(targets)[:, None] * STRIPE
        before = [
            at // (STRIPE * targets) * STRIPE + np.clip(at % (STRIPE * targets) - own, 0, STRIPE)
            for at in (starts, ends)
        ]
        for target in range(targets):
            first, last = before[0][target], before[1][target]
            touched = first < last
            gaps = first[touched][1:] - last[touched][:-1]
            at = (target + file * APART) % targets
            levels[at] += touched.any()
            bulks = -(-gaps[gaps > 0] // STRIPE)
            found[at] += np.bincount(np.digitize(bulks, (2, 11)), minlength=3)
    found[:, 2] += np.maximum(levels - 1, 0)
    return found


@dataclass(frozen=True)
class Weights:
    """The seconds of a step of each class on a target, and of a client's request."""

    steps: np.ndarray[Any, Any]
    request: float

    @classmethod
    def of(cls, clients: int = 16) -> Weights:
        """Returns the weights of one target, from strided reads."""
        machine = machine_of(1)
        alone = contiguous_reads([STEP_READS * STRIPE], clients)
        found = []
        for step in STEPS:
            places = [at * (1 + step) * STRIPE for at in range(STEP_READS)]
            strided = [[(0, at, STRIPE) for at in places[one::clients]] for one in range(clients)]
            over = simulate(machine, strided).seconds - simulate(machine, alone).seconds
            found.append(over / STEP_READS)
        small = [[(0, at * STRIPE, 1) for at in range(STEP_READS)]]
        return cls(np.array(found), simulate(machine, small).seconds / STEP_READS)

    def wait(self, reads: Reads, machine: dict[str, Any]) -> float:
        """Returns the longest sum of a client's waits for its requests."""
        rate, targets = machine["targets"]["read_bytes_per_second"], machine["targets"]["count"]
        return max(
            sum(self.request + max(min(n, STRIPE), n / targets) / rate for _, _, n in one)
            for one in reads
        )


def cases_of(name: str, setup: Setup, root: Path, options: Options) -> Iterator[Case]:
    """Yields the simulated reads of all regions of a set-up."""
    stored = {order: Stored(root / f"{order}.zarr") for order in ORDERS}
    chosen = Stored(root / "auto.zarr").order
    given, plotfile = (bf.open(root / one, cache=0) for one in ("given.zarr", "plt00000"))
    machines = {targets: machine_of(targets) for targets in targets_of(options)}
    weights = Weights.of()
    box = setup.tile**3 * 8 * setup.scale
    for shape, region in regions_of(given, setup.tile).items():
        if not options.wants(shape):
            continue
        sub_boxes = sub_boxes_of(given, region, setup.tile)
        lengths = [box * len(starts) for _, starts in sorted(sub_boxes.items())]
        steps: dict[tuple[str, int], float] = {}
        for clients in clients_of(options):
            reads = {order: one.reads(region, sub_boxes, clients) for order, one in stored.items()}
            reads["plotfile"] = plotfile_reads(plotfile, region, clients)
            reads = {order: scaled(one, setup.scale) for order, one in reads.items()}
            reads["contiguous"] = contiguous_reads([sum(lengths)], clients)
            reads["by level"] = contiguous_reads(lengths, clients)
            for targets, machine in machines.items():
                found = {order: simulate(machine, one) for order, one in reads.items()}
                seconds = {order: one.seconds for order, one in found.items()}
                predicted: dict[str, dict[str, float]] = {"dissertation": {}, "with waits": {}}
                for order in ORDERS:
                    if (order, targets) not in steps:
                        counts = steps_of(reads[order], targets)
                        steps[order, targets] = float((counts @ weights.steps).max())
                    model = seconds["contiguous"] + steps[order, targets]
                    waits = weights.wait(reads[order], machine)
                    predicted["dissertation"][order] = model / seconds[order]
                    predicted["with waits"][order] = float(np.hypot(model, waits)) / seconds[order]
                facts = found[chosen].to_dict()
                busy = max(
                    facts["targets"], key=lambda one: one["moving_seconds"] + one["seeking_seconds"]
                )
                yield Case(
                    *(name, shape, clients, targets, seconds, predicted, chosen),
                    *(facts["read_bytes"], facts["requests"]),
                    *(busy["moving_seconds"], busy["seeking_seconds"]),
                )


@dataclass(frozen=True)
class Way:
    """A way to read or stripe: requests in flight, gap that is read over, bytes of a stripe."""

    in_flight: int = 1
    gap_bytes: int = 0
    stripe: int = STRIPE

    def profile(self) -> bf.Profile:
        """Returns the assumed profile, with the gap that is read over."""
        facts = bf.Profile.default().to_dict()
        gap = self.gap_bytes or facts["profile"]["merge_gap_bytes"]
        return bf.Profile({**facts, "profile": {**facts["profile"], "merge_gap_bytes": gap}})


WAYS = {
    "as above": Way(),
    "16 requests in flight": Way(in_flight=16),
    "gaps of 1 MiB read over": Way(gap_bytes=1 << 20),
    "stripes of 16 MiB": Way(stripe=16 << 20),
}


def ways_table(setup: Setup, root: Path, options: Options) -> tuple[Table, list[Verdict]]:
    """Returns how boxes are read in other ways, from the mesh of a set-up."""
    columns = ["way", "clients", "targets", "given / hilbert", "slower by 5 %"]
    columns += ["of contiguous", "hilbert near best", "hilbert: sum of seconds"]
    table = Table("Boxes, tiles of 16, read in other ways", columns)
    table.note = "Given / hilbert: least to greatest. Of contiguous: median, greatest."
    stored = {order: Stored(root / f"{order}.zarr") for order in ORDERS}
    given = bf.open(root / "given.zarr", cache=0)
    regions = {
        name: region
        for name, region in regions_of(given, setup.tile).items()
        if name.startswith(("part", "box"))
    }
    sub_boxes = {name: sub_boxes_of(given, one, setup.tile) for name, one in regions.items()}
    all_gains: list[float] = []
    for (name, way), clients in product(WAYS.items(), clients_of(options)[-2:]):
        reads = {
            (region, order): one.reads(box, sub_boxes[region], clients, way.profile())
            for region, box in regions.items()
            for order, one in stored.items()
        }
        for targets in targets_of(options)[:: len(targets_of(options)) - 1]:
            machine = machine_of(targets)
            gains, shares, near, total = [], [], [], 0.0
            for region in regions:
                times = {
                    order: simulate(
                        machine, reads[region, order], way.stripe, way.in_flight
                    ).seconds
                    for order in ORDERS
                }
                count = setup.tile**3 * 8 * sum(map(len, sub_boxes[region].values()))
                straight = simulate(
                    machine, contiguous_reads([count], clients), way.stripe, way.in_flight
                ).seconds
                gains.append(times["given"] / times["hilbert"])
                shares.append(straight / min(times[order] for order in ORDERS[1:]))
                near.append(times["hilbert"] <= SLOWER * min(times.values()))
                total += times["hilbert"]
            if way.in_flight > 1:
                all_gains += gains
            table.rows.append(
                [
                    *(name, str(clients), str(targets)),
                    f"{min(gains):.2f} to {max(gains):.2f}",
                    f"{sum(gain * SLOWER < 1 for gain in gains)} of {len(gains)}",
                    f"{np.median(shares):.0%}, {max(shares):.0%}",
                    *(f"{np.mean(near):.0%}", f"{total:.2f}"),
                ]
            )
    what = "boxes, tiles of 16, 16 requests in flight"
    return table, [
        Verdict(
            f"{what}: hilbert {FASTER:.0f} times over the writer's order at the best",
            f"{max(all_gains):.2f}",
            max(all_gains) >= FASTER,
        ),
        Verdict(
            f"{what}: hilbert never slower than it by 5 %",
            f"{1 / min(all_gains):.2f}",
            1 / min(all_gains) <= SLOWER,
        ),
    ]


def targets_of(options: Options) -> tuple[int, ...]:
    """Returns the numbers of targets."""
    return TARGETS[:: len(TARGETS) - 1] if options.quick else TARGETS


def clients_of(options: Options) -> tuple[int, ...]:
    """Returns the numbers of clients."""
    return CLIENTS[1:2] if options.quick else CLIENTS


def right(cases: list[Case], model: str) -> float:
    """Returns the fraction of predictions that are off by less than 15 %."""
    ratios = np.array([ratio for case in cases for ratio in case.predicted[model].values()])
    return float(np.mean(np.abs(ratios - 1) < ERROR_MAX))


def of_contiguous(cases: list[Case], what: str) -> float:
    """Returns the median throughput of the best order, over that of contiguous reads."""
    return float(np.median([case.seconds[what] / case.best for case in cases]))


def summary_table(cases: list[Case], title: str) -> Table:
    """Returns a line for each set-up, number of clients and of targets."""
    columns = ["set-up", "clients", "targets", "given / best", "given / chosen"]
    columns += ["plotfile / best", "of contiguous", "of by level", "chosen near best"]
    columns += ["dissertation's model", "with waits"]
    table = Table(title, columns)
    table.note = "Ratios: least to greatest. The models: fraction of predictions within 15 %."
    for key in dict.fromkeys((one.setup, one.clients, one.targets) for one in cases):
        some = [one for one in cases if (one.setup, one.clients, one.targets) == key]
        gains = (
            [one.seconds["given"] / one.best for one in some],
            [one.gain(one.chosen) for one in some],
            [one.seconds["plotfile"] / one.best for one in some],
        )
        table.rows.append(
            [
                *map(str, key),
                *(f"{min(found):.2f} to {max(found):.2f}" for found in gains),
                *(f"{of_contiguous(some, what):.0%}" for what in ("contiguous", "by level")),
                f"{np.mean([one.is_near_best() for one in some]):.0%}",
                *(f"{right(some, model):.0%}" for model in ("dissertation", "with waits")),
            ]
        )
    return table


def regions_table(cases: list[Case], setup: str, clients: int, targets: int) -> Table:
    """Returns the times of each region, and the work of the busiest target."""
    columns = ["region", "MiB", "plotfile", *ORDERS, "contiguous", "by level", "given / chosen"]
    columns += ["requests", "busiest target moves", "seeks"]
    table = Table(f"{setup}, {clients} clients, {targets} targets: seconds", columns)
    table.note = "The last three columns are those of the chosen order."
    for one in cases:
        if (one.setup, one.clients, one.targets) == (setup, clients, targets):
            shown = [one.seconds[at] for at in ("plotfile", *ORDERS, "contiguous", "by level")]
            table.rows.append(
                [
                    *(one.region, f"{one.read_bytes / 2**20:.0f}"),
                    *(f"{seconds:.3g}" for seconds in shown),
                    *(f"{one.gain(one.chosen):.2f}", str(one.requests)),
                    *(f"{one.moving:.2g}", f"{one.seeking:.2g}"),
                ]
            )
    return table


def verdicts(cases: list[Case]) -> list[Verdict]:
    """Returns the promises, compared with the results."""
    boxes, others = ([one for one in cases if one.is_box is wanted] for wanted in (True, False))
    found = []
    for what, some in (("boxes", boxes), ("planes and pencils", others)):
        if not some:
            continue
        most, least = (by(some, key=lambda one: one.gain(one.chosen)) for by in (max, min))
        gain, loss = most.gain(most.chosen), 1 / least.gain(least.chosen)
        slower = np.mean([one.gain(one.chosen) * SLOWER < 1 for one in some])
        near = float(np.mean([one.is_near_best() for one in some]))
        shares = {at: of_contiguous(some, at) for at in ("contiguous", "by level")}
        models = {at: right(some, at) for at in ("dissertation", "with waits")}
        found += [
            Verdict(
                f"{what}: the chosen order {FASTER:.0f} times over the writer's at the best",
                f"{gain:.2f} ({most.label()})",
                gain >= FASTER,
            ),
            Verdict(
                f"{what}: the chosen order never slower than it by 5 %",
                f"{loss:.2f} ({least.label()}); {slower:.0%} of cases",
                loss <= SLOWER,
            ),
            *(
                Verdict(
                    f"{what}: {SHARE:.0%} of the throughput of {name}, median",
                    f"{shares[at]:.0%}",
                    shares[at] >= SHARE,
                )
                for at, name in (
                    ("contiguous", "one range"),
                    ("by level", "a range for each level"),
                )
            ),
            Verdict(
                f"{what}: the chosen order within 5 % of the best in 95 %",
                f"{near:.0%}",
                near >= NEAR_BEST,
            ),
            *(
                Verdict(
                    f"{what}: error of the model, {at}, under 15 % for 90 %",
                    f"{models[at]:.0%}",
                    models[at] >= ERROR_SHARE,
                )
                for at in models
            ),
        ]
    return found


def write(setup: Setup, root: Path, options: Options) -> None:
    """Writes the plotfile and the stores of a set-up, unless the last one has left them."""
    known = root / f"{setup.tile}-{setup.base}"
    if known.exists():
        return
    data.remove(root)
    root.mkdir(parents=True)
    base = 2 * setup.tile if options.quick else setup.base
    amr_layout.write_plotfile(root / "plt00000", LEVELS, base, tile=setup.tile)
    for order in (*ORDERS, "auto"):
        place = root / f"{order}.zarr"
        bf.convert(root / "plt00000", place, order=order, sub_box=[setup.tile] * 3, codecs=[])
    known.touch()


def run(options: Options) -> Report:
    """Writes each mesh in all orders, and simulates reads of it."""
    report = Report(NAME, options.command, {"machine": bf.machine("spider")["about"]})
    root = data.ROOT / NAME
    data.remove(root)
    cases: list[Case] = []
    others: tuple[Table, list[Verdict]] | None = None
    for name, setup in SETUPS.items():
        if options.quick and setup != SETUPS["tiles of 16"]:
            continue
        write(setup, root, options)
        found = list(cases_of(name, setup, root, options))
        mesh = bf.open(root / "given.zarr", cache=0)
        boxes = ", ".join(str(len(mesh.boxes(at))) for at in range(LEVELS))
        report.settings[name] = f"{boxes} boxes, chosen order {found[0].chosen}"
        cases += found
        if setup == SETUPS["tiles of 16"] and not options.only:
            others = ways_table(setup, root, options)
    data.remove(root)
    weights = Weights.of()
    steps = ", ".join(f"{1e3 * one:.1f}" for one in weights.steps)
    report.settings["weights of the model"] = f"{steps} ms; a wait {1e3 * weights.request:.1f} ms"
    for title, wanted in (("Boxes", True), ("Planes and pencils", False)):
        some = [one for one in cases if one.is_box is wanted]
        if some:
            report.tables.append(summary_table(some, title))
    for name in dict.fromkeys(one.setup for one in cases):
        for targets in targets_of(options)[:: len(targets_of(options)) - 1]:
            report.tables.append(regions_table(cases, name, CLIENTS[1], targets))
    report.samples = {one.label(): one.seconds for one in cases}
    report.verdicts = verdicts(cases)
    if others is not None:
        report.tables.append(others[0])
        report.verdicts += others[1]
    return report
