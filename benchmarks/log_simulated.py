"""`log-simulated`: E3SM's F, G and I cases on Cori and Summit, written in three ways, simulated.

Processes, bytes and requests of Table 6.1 of Hou's dissertation, at its full size. How canonical
files with two-phase writes, blobs and logs are put together is fixed in `docs/simulation.md`;
what a request costs to list (X) and to merge (Y), and a byte to copy (Z), is measured here
before, with NumPy. Files of a node have the paper's stripes: 8 of 1 MiB on Cori, blocks of 16 MiB
on Summit. A time is that of all files of a case, one after the other. Since nobody has published
what a seek costs behind those machines' servers, each case is calculated with the seek that the
description assumes, and without.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import e3sm
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "log-simulated"
GIBIBYTE, MIBIBYTE = 1 << 30, 1 << 20
PAIR_BYTES = 16
NEAR = 0.30
# How many times faster the paper's log is than its canonical file.
PAPER = {"F": 5.4, "G": 5.7, "I": 10.9}
# Stripes of a node's file, and aggregators of a node: section 6.4.2.
NODE_FILES = {"cori": (8, MIBIBYTE, 8), "summit": (77, 16 * MIBIBYTE, 1)}
WRITES_IN_FLIGHT = 2
Operations = list[Any]


@dataclass(frozen=True)
class Output:
    """A file of Table 6.1: processes, bytes, requests of one process."""

    case: str
    name: str
    processes: int
    data_bytes: int
    requests: int
    records: int

    def declared_requests(self) -> int:
        """Return the requests of one variable of each decomposition, of one process."""
        case = e3sm.CASES[self.name]
        groups = [group for group in case.groups if group.decomposition >= 0]
        decompositions = len({group.decomposition for group in groups})
        times = sum(group.count * (self.records if group.has_record else 1) for group in groups)
        return math.ceil(self.requests * decompositions / times)


OUTPUTS = (
    Output("F", "F h0", 21600, int(14.09 * GIBIBYTE), 174953, 1),
    Output("F", "F h1", 21600, int(6.68 * GIBIBYTE), 83261, 25),
    Output("G", "G", 9600, int(79.69 * GIBIBYTE), 20888, 1),
    Output("I", "I h0", 1344, int(86.11 * GIBIBYTE), 9248875, 240),
    Output("I", "I h1", 1344, int(0.36 * GIBIBYTE), 38650, 1),
)


@dataclass(frozen=True)
class Costs:
    """Seconds to list a request (X), to merge one (Y); bytes copied in a second (Z)."""

    listing: float
    merging: float
    copying: float

    def describe(self) -> dict[str, str]:
        """Return them for the report."""
        return {
            "X": f"{self.listing * 1e9:.1f} ns",
            "Y": f"{self.merging * 1e9:.1f} ns",
            "Z": f"{self.copying / 1e9:.1f} GB/s",
        }


def measure_costs() -> Costs:
    """Measure X, Y and Z: medians of five."""
    draw = np.random.default_rng(6)
    count, lists = 1 << 22, 1 << 12
    starts = draw.integers(0, 1 << 40, count)
    pairs = np.empty((count, 2), "i8")
    merged = np.sort(starts.reshape(lists, -1), axis=1).ravel()
    block, copy = np.ones(1 << 27, "u1"), np.zeros(1 << 27, "u1")

    def list_requests() -> None:
        np.multiply(starts, 4, out=pairs[:, 0])
        pairs[:, 1] = 4

    def seconds(work: Any) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return median(times)

    return Costs(
        listing=seconds(list_requests) / count,
        # A merge sort that finds the sorted lists and merges them.
        merging=seconds(lambda: np.argsort(merged, kind="stable")) / count,
        copying=block.nbytes / seconds(lambda: np.copyto(copy, block)),
    )


def canonical(output: Output, on: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """Return the workload of one shared file, in two phases."""
    processes, requests = output.processes, output.requests
    stripe = on["striping"]["bytes"]
    aggregators = min(on["striping"]["count"], on["targets"]["count"], processes)
    stripes = -(-output.data_bytes // stripe)
    rounds = -(-stripes // aggregators)
    owner = {at * processes // aggregators: at for at in range(aggregators)}
    # Of each process in a round; what arrives at an aggregator is as much, all together.
    sent = output.data_bytes // (rounds * processes)
    messages = min(aggregators, -(-requests // rounds))
    clients = []
    for process in range(processes):
        number = owner.get(process)
        operations: Operations = ["barrier", {"open": 0}] if process else [{"create": 0}, "barrier"]
        operations += [{"compute": requests * costs.listing}, "barrier"]
        operations.append({"send": [PAIR_BYTES * requests, aggregators]})
        if number is not None:
            merged = processes * requests // aggregators
            operations.append({"receive": [PAIR_BYTES * merged, processes]})
            operations.append({"compute": merged * costs.merging})
        operations.append("barrier")
        for step in range(rounds):
            operations.append({"send": [sent, messages]})
            place = step * aggregators + (number or 0)
            if number is not None and place < stripes:
                length = min(stripe, output.data_bytes - place * stripe)
                operations.append({"receive": [length, messages * processes // aggregators]})
                operations.append({"write": [0, place * stripe, length]})
            operations.append("barrier")
        clients.append({"operations": operations})
    return {"files": [{"first": 0, "count": aggregators, "bytes": stripe}], "clients": clients}


def nodes_of(output: Output, on: dict[str, Any]) -> int:
    """Return on how many nodes the processes are."""
    return int(-(-output.processes // on["clients"]["per_node"]))


def node_file(on: dict[str, Any]) -> dict[str, int]:
    """Return the stripes of a node's file."""
    count, size, _ = NODE_FILES[on["name"]]
    return {"count": count, "bytes": size}


def blob(output: Output, on: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """Return the workload of one file a node, of its processes' data one after the other."""
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


def log(output: Output, on: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """Return the workload of a log with one writer a node, and one commit."""
    nodes, stripes = nodes_of(output, on), node_file(on)
    data = output.data_bytes // nodes
    metadata = PAIR_BYTES * output.declared_requests() * output.processes // nodes
    # A request for all targets of the segment; on Summit they are more than one request is for.
    size = max(stripes["bytes"], 8 * MIBIBYTE)
    clients = []
    for node in range(nodes):
        operations: Operations = [{"create": node}, {"compute": data / costs.copying}]
        for place in range(0, data, size):
            operations.append({"write": [node, place, min(size, data - place)]})
        operations += [{"write": [node, data, metadata]}, {"sync": node}, {"send": [256, 1]}]
        operations += ["barrier", *([{"receive": [256 * nodes, nodes]}] if node == 0 else [])]
        # The root, which is written last.
        operations += [] if node else [{"create": nodes}, {"write": [nodes, 0, 4096]}]
        clients.append(
            {"node": node, "requests_in_flight": WRITES_IN_FLIGHT, "operations": operations}
        )
    return {"files": [stripes] * (nodes + 1), "clients": clients}


WAYS = {"canonical": canonical, "blob": blob, "log": log}


def phases(found: dict[str, Any]) -> str:
    """Return when the parts of a canonical write ended, in words."""
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
    """Return what is busy for how much of the time."""
    bounds = [bound for bound in found["bounds"] if bound["seconds"] > 0.05 * found["seconds"]]
    busy = [f"{bound['what']} {bound['seconds'] / found['seconds']:.0%}" for bound in bounds]
    target = max(found["targets"], key=lambda load: load["seeking_seconds"], default=None)
    if target is not None and target["seeking_seconds"] > 0.05 * found["seconds"]:
        busy.append(f"of it seeking {target['seeking_seconds'] / found['seconds']:.0%}")
    return ", ".join(busy)


def run(options: Options) -> Report:
    """Simulate all cases in all ways."""
    costs = measure_costs()
    report = Report(NAME, options.command, costs.describe())
    for name in ("cori",) if options.quick else ("cori", "summit"):
        described = bf.machine(name)
        without = described | {"targets": described["targets"] | {"seek_seconds": 0.0}}
        for what, on in (("seeks as assumed", described), ("no seeks", without)):
            title = f"{name}, {what}"
            columns = ["file", "way", "seconds", "GiB/s", "requests", "what is busy", "phases"]
            table = Table(title, columns)
            times = dict.fromkeys(((case, way) for case in PAPER for way in WAYS), 0.0)
            for output in OUTPUTS[3:] if options.quick else OUTPUTS:
                for way, make in WAYS.items():
                    found = bf.simulate(on, make(output, on, costs)).to_dict()
                    times[output.case, way] += found["seconds"]
                    rate = output.data_bytes / GIBIBYTE / found["seconds"]
                    row = [output.name, way, f"{found['seconds']:.3g}", f"{rate:.3g}"]
                    row += [f"{found['requests']:,}", limits(found)]
                    table.rows.append([*row, phases(found) if way == "canonical" else "-"])
            report.tables.append(table)
            report.verdicts += verdicts(title, times)
    return report


def verdicts(title: str, times: dict[tuple[str, str], float]) -> list[Verdict]:
    """Return the advantage of the log beside the paper's."""
    found = []
    for case, paper in PAPER.items():
        if not times[case, "log"]:
            continue
        gain = times[case, "canonical"] / times[case, "log"]
        to_blob = times[case, "canonical"] / times[case, "blob"]
        promise = f"{title}, {case}: log over canonical within {NEAR:.0%} of the paper's {paper}"
        holds = abs(gain - paper) <= NEAR * paper
        found.append(Verdict(promise, f"{gain:.2f} (blob {to_blob:.2f})", holds))
    return found
