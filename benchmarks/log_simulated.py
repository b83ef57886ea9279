"""`log-simulated`: E3SM's F, G and I cases on Cori and Summit, written in four ways, simulated.

Processes, bytes and requests are those of Table 6.1 of Hou's dissertation, at full size.
`docs/simulation-explained.md` defines the four ways: canonical files with two-phase writes, blobs,
logs with one writer per node, and the paper's log. The computing of processes is measured here
first, with NumPy. Files of a node have the paper's stripes: 8 of 1 MiB on Cori, blocks of 16 MiB on
Summit. A time is that of all files of a case, one after the other. No source has the seek times
behind those machines' servers, or the sizes of their writes. So each case is simulated with the
seek of the description, with caches that collect writes before a seek, and without seeks. The last
tables omit one cost after the other, which shows the limit of each way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import e3sm
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.writing_costs import Costs, measure_costs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.options import Options

NAME = "log-simulated"
GIBIBYTE, MIBIBYTE = 1 << 30, 1 << 20
PAIR_BYTES = 16
ENTRY_BYTES = 40
NEAR = 0.30
# Speedup of the paper's log over its canonical file.
PAPER = {"F": 5.4, "G": 5.7, "I": 10.9}
# Fraction of the maps' 360 x 720 grid that the I case covers (62,500 columns); others cover all.
LAND_COVERED = 62_500 / (360 * 720)
# Stripes of a node's file, and aggregators of a node: section 6.4.2.
NODE_FILES = {"cori": (8, MIBIBYTE, 8), "summit": (77, 16 * MIBIBYTE, 1)}
# Unit that has one aggregator of a shared file: the same section.
AGGREGATOR_OF = {"cori": "target", "summit": "node"}
# Bytes of an object that Lustre's clients collect: the largest request, or the most they keep.
GATHERED = {"4 MiB a seek": 4 * MIBIBYTE, "32 MiB a seek": 32 * MIBIBYTE}
WRITES_IN_FLIGHT = 2
Operations = list[Any]
Machine = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """A file of Table 6.1: processes, bytes, requests of one process."""

    case: str
    name: str
    processes: int
    data_bytes: int
    requests: int
    records: int
    covered: float = 1.0

    @property
    def partitioned(self) -> list[e3sm.Group]:
        """The groups of variables that are divided among all processes."""
        return [group for group in e3sm.CASES[self.name].groups if group.decomposition >= 0]

    @property
    def variables(self) -> int:
        """The number of variables of the file."""
        return sum(group.count for group in e3sm.CASES[self.name].groups)

    @property
    def writes(self) -> int:
        """The number of writes of one record of a variable by a process."""
        return sum(one.count * (self.records if one.has_record else 1) for one in self.partitioned)

    def declared_requests(self) -> int:
        """Returns the requests of a process for one variable of each decomposition."""
        decompositions = len({group.decomposition for group in self.partitioned})
        return math.ceil(self.requests * decompositions / self.writes)


OUTPUTS = (
    Output("F", "F h0", 21600, int(14.09 * GIBIBYTE), 174953, 1),
    Output("F", "F h1", 21600, int(6.68 * GIBIBYTE), 83261, 25),
    Output("G", "G", 9600, int(79.69 * GIBIBYTE), 20888, 1),
    Output("I", "I h0", 1344, int(86.11 * GIBIBYTE), 9248875, 240, LAND_COVERED),
    Output("I", "I h1", 1344, int(0.36 * GIBIBYTE), 38650, 1, LAND_COVERED),
)


def aggregators_of(output: Output, on: Machine, rule: str) -> int:
    """Returns the number of writers of a shared file: one per target of it, or per node."""
    targets = min(on["striping"]["count"], on["targets"]["count"])
    return min(targets if rule == "target" else nodes_of(output, on), output.processes)


def canonical(output: Output, on: Machine, costs: Costs, rule: str | None = None) -> dict[str, Any]:
    """Return the workload of one shared file, in two phases."""
    processes, requests = output.processes, output.requests
    stripe = on["striping"]["bytes"]
    aggregators = aggregators_of(output, on, rule or AGGREGATOR_OF[on["name"]])
    merged = processes * requests // aggregators
    extent = math.ceil(output.data_bytes / output.covered)
    rounds = -(-extent // (stripe * aggregators))
    owner = {at * processes // aggregators: at for at in range(aggregators)}
    # Bytes of each process in a round; an aggregator receives as many in total.
    sent = output.data_bytes // (rounds * processes)
    messages = min(aggregators, -(-requests // rounds))
    arriving = messages * processes // aggregators
    steps = math.ceil(math.log2(processes))
    opened: tuple[Operations, ...] = ([{"create": 0}, "barrier"], ["barrier", {"open": 0}])
    clients = []
    for process in range(processes):
        number = owner.get(process)
        operations = [*opened[process > 0], {"compute": requests * costs.listing}, "barrier"]
        operations.append({"send": [PAIR_BYTES * requests, aggregators]})
        if number is not None:
            operations.append({"receive": [PAIR_BYTES * merged, processes]})
            operations.append({"compute": merged * costs.merging})
        operations.append("barrier")
        for step in range(rounds):
            operations.append({"send": [2 * processes * steps, steps]})
            operations.append({"compute": requests * costs.placing / rounds})
            operations.append({"send": [sent, messages]})
            place = (step * aggregators + (number or 0)) * stripe
            if number is not None and place < extent:
                length = min(stripe, extent - place)
                operations.append({"receive": [int(length * output.covered), arriving]})
                operations += [{"read": [0, place, length]}] if output.covered < 1 else []
                operations.append({"compute": merged * costs.placing / rounds})
                operations.append({"write": [0, place, length]})
            operations.append("barrier")
        clients.append({"operations": operations})
    count = min(on["striping"]["count"], on["targets"]["count"])
    return {"files": [{"first": 0, "count": count, "bytes": stripe}], "clients": clients}


def nodes_of(output: Output, on: Machine) -> int:
    """Returns the number of nodes of the processes."""
    return int(-(-output.processes // on["clients"]["per_node"]))


def node_file(on: Machine) -> dict[str, int]:
    """Return the stripes of a node's file."""
    count, size, _ = NODE_FILES[on["name"]]
    return {"count": count, "bytes": size}


def blob(output: Output, on: Machine, costs: Costs) -> dict[str, Any]:
    """Returns the workload of one file per node, with its processes' data one after the other."""
    nodes, stripes = nodes_of(output, on), node_file(on)
    each = NODE_FILES[on["name"]][2]
    metadata = PAIR_BYTES * output.declared_requests() * output.processes // nodes
    total = output.data_bytes // nodes + metadata
    clients = []
    for node in range(nodes):
        for number in range(each):
            operations: Operations = [{"open": node} if number else {"create": node}]
            operations.append({"compute": total / costs.copying})
            for place in range(number * stripes["bytes"], total, each * stripes["bytes"]):
                length = min(stripes["bytes"], total - place)
                operations.append({"write": [node, place, length]})
            clients.append({"node": node, "operations": [*operations, {"sync": node}]})
    return {"files": [stripes] * nodes, "clients": clients}


def log(output: Output, on: Machine, costs: Costs) -> dict[str, Any]:
    """Returns the workload of a log with one writer per node, and one commit."""
    nodes, stripes = nodes_of(output, on), node_file(on)
    data = output.data_bytes // nodes
    metadata = PAIR_BYTES * output.declared_requests() * output.processes // nodes
    # A request covers all targets of the segment; on Summit these exceed one request.
    size = max(stripes["bytes"], 8 * MIBIBYTE)
    clients = []
    for node in range(nodes):
        operations: Operations = [{"create": node}, {"compute": data / costs.copying}]
        for place in range(0, data, size):
            operations.append({"write": [node, place, min(size, data - place)]})
        operations += [{"write": [node, data, metadata]}, {"sync": node}, {"send": [256, 1]}]
        operations += ["barrier", *([{"receive": [256 * nodes, nodes]}] if node == 0 else [])]
        # The root is written last.
        operations += [] if node else [{"create": nodes}, {"write": [nodes, 0, 4096]}]
        clients.append(
            {"node": node, "requests_in_flight": WRITES_IN_FLIGHT, "operations": operations}
        )
    return {"files": [stripes] * (nodes + 1), "clients": clients}


def papers_log(output: Output, on: Machine, costs: Costs) -> dict[str, Any]:
    """Returns the workload of the paper's log: one HDF5 file per node, written by aggregators."""
    nodes, stripes = nodes_of(output, on), node_file(on)
    each, per_node = NODE_FILES[on["name"]][2], on["clients"]["per_node"]
    declared = output.declared_requests()
    entries = output.writes * ENTRY_BYTES + int(declared * costs.compressed_bytes)
    data = output.data_bytes // nodes
    total = data + entries * output.processes // nodes
    calculated = output.variables * costs.creating + declared * costs.compressing
    calculated += output.requests * (costs.listing + costs.hashing)
    clients = []
    for process in range(output.processes):
        node, number = divmod(process, per_node)
        operations: Operations = ["barrier", {"open": node}] if number else [{"create": node}]
        operations += [] if number else ["barrier"]
        operations.append({"compute": calculated})
        if number < each:
            operations.append({"compute": 2 * data / costs.copying})
            for place in range(number * stripes["bytes"], total, each * stripes["bytes"]):
                length = min(stripes["bytes"], total - place)
                operations.append({"write": [node, place, length]})
        clients.append({"operations": operations})
    return {"files": [stripes] * nodes, "clients": clients}


WAYS = {"canonical": canonical, "blob": blob, "log": log, "paper's log": papers_log}
# The ways whose times the paper compares.
LIMITED = ("canonical", "paper's log")


def phases(found: dict[str, Any]) -> str:
    """Returns the end times of the parts of a canonical write, in words."""
    created, listed, merged = found["barriers"][:3]
    last = found["seconds"]
    parts = {
        "creating": created,
        "opening and listing": listed - created,
        "requests' exchange and merge": merged - listed,
        "rounds": last - merged,
    }
    return ", ".join(f"{name} {seconds / last:.0%}" for name, seconds in parts.items())


def limits(found: dict[str, Any]) -> str:
    """Returns the busy resources with their fractions of the time."""
    bounds = [bound for bound in found["bounds"] if bound["seconds"] > 0.05 * found["seconds"]]
    busy = [f"{bound['what']} {bound['seconds'] / found['seconds']:.0%}" for bound in bounds]
    target = max(found["targets"], key=lambda load: load["seeking_seconds"], default=None)
    if target is not None and target["seeking_seconds"] > 0.05 * found["seconds"]:
        busy.append(f"of it seeking {target['seeking_seconds'] / found['seconds']:.0%}")
    return ", ".join(busy)


def machines(name: str) -> Iterator[tuple[str, Machine]]:
    """Yields a machine with its assumed seeks, with caches, and without seeks."""
    described = bf.machine(name)
    yield "a seek a request", described
    if name == "cori":
        for what, size in GATHERED.items():
            yield what, described | {"targets": described["targets"] | {"gather_bytes": size}}
    yield "no seeks", without_seeks(described)


def without_seeks(on: Machine) -> Machine:
    """Returns the machine with seeks of 0 s."""
    return on | {"targets": on["targets"] | {"seek_seconds": 0.0}}


def run(options: Options) -> Report:
    """Simulates all cases in all ways."""
    costs = measure_costs()
    report = Report(NAME, options.command, costs.describe())
    outputs = OUTPUTS[3:] if options.quick else OUTPUTS
    names = ("cori",) if options.quick else ("cori", "summit")
    for name in names:
        for what, on in machines(name):
            title = f"{name}, {what}"
            columns = ["file", "way", "seconds", "GiB/s", "requests", "what is busy", "phases"]
            table = Table(title, columns)
            times = dict.fromkeys(((case, way) for case in PAPER for way in WAYS), 0.0)
            for output in outputs:
                for way, make in WAYS.items():
                    found = bf.simulate(on, make(output, on, costs)).to_dict()
                    times[output.case, way] += found["seconds"]
                    rate = output.data_bytes / GIBIBYTE / found["seconds"]
                    row = [output.name, way, f"{found['seconds']:.3g}", f"{rate:.3g}"]
                    row += [f"{found['requests']:,}", limits(found)]
                    table.rows.append([*row, phases(found) if way == "canonical" else "-"])
            report.tables.append(table)
            report.verdicts += verdicts(title, times)
    report.tables += [limits_table(name, outputs, costs) for name in names]
    return report


def limits_table(name: str, outputs: tuple[Output, ...], costs: Costs) -> Table:
    """Returns the time of each case with one cost at a time set to zero."""
    on = bf.machine(name)
    free = replace(costs, listing=0, merging=0, placing=0, hashing=0, compressing=0)
    other = "node" if AGGREGATOR_OF[name] == "target" else "target"
    changed: dict[str, tuple[Machine, Costs, bool, str | None]] = {
        "-": (on, costs, False, None),
        "requests' calculations": (on, free, False, None),
        "messages": (on | {"fabric": {}}, costs, False, None),
        "opens and creates": (on | {"metadata": {}}, costs, False, None),
        "seeks": (without_seeks(on), costs, False, None),
        "holes": (on, costs, True, None),
        f"(an aggregator for each {other})": (on, costs, False, other),
    }
    columns = ["without", *(f"{case}: {way}" for case in PAPER for way in LIMITED)]
    table = Table(f"{name}: seconds if one thing took no time", columns)
    for what, (machine, calculating, is_whole, rule) in changed.items():
        times = dict.fromkeys(((case, way) for case in PAPER for way in LIMITED), 0.0)
        for output in outputs:
            one = replace(output, covered=1.0) if is_whole else output
            works = (
                canonical(one, machine, calculating, rule),
                papers_log(one, machine, calculating),
            )
            for way, work in zip(LIMITED, works, strict=True):
                times[output.case, way] += bf.simulate(machine, work).seconds
        table.rows.append([what, *(f"{seconds:.3g}" for seconds in times.values())])
    return table


def verdicts(title: str, times: dict[tuple[str, str], float]) -> list[Verdict]:
    """Returns the advantage of the paper's log here and in the paper, and that of the others."""
    found = []
    for case, paper in PAPER.items():
        if not times[case, "log"]:
            continue
        gains = {way: times[case, "canonical"] / times[case, way] for way in WAYS}
        gain = gains["paper's log"]
        promise = f"{title}, {case}: paper's log over canonical within {NEAR:.0%} of its {paper}"
        holds = abs(gain - paper) <= NEAR * paper
        others = f"one writer a node {gains['log']:.2f}, blob {gains['blob']:.2f}"
        found.append(Verdict(promise, f"{gain:.2f} ({others})", holds))
    return found
