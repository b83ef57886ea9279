"""`simulate-check`: predictions of simulated machines, against real throttled directories.

Four directories, each with its own throttle (bandwidth and delay), nodes with throttled links, and
a directory for the metadata server: `crates/bedform-machine/examples/machine_run.rs` runs each plan
there with threads, in rounds. The median of the rounds is compared with the prediction. The
throttles are far below the rates of memory, which holds the files. The plans were fixed before any
run. They vary the parameters that a throttle can model: clients, requests in flight, sizes,
striping, links, bandwidths, delays, opens.

Arrays of a store are also read under `BEDFORM_THROTTLE`: planes, series and boxes of three layouts,
with one request and with four in flight. The workload of each read, by `Array.workload`, is
simulated on one target of that bandwidth and delay, with a client for each request in flight.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import array_reads
from benchmarks.harness.report import Report, Table, Verdict, milliseconds
from benchmarks.harness.statistics import median

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "simulate-check"
CHECKOUT = Path(__file__).resolve().parents[1]
TARGETS = 4
ERROR_MAX = 0.15
ROUNDS = 5
PLANS_MIN = 30
KIBIBYTE = 1 << 10
# By the value of the variable: bytes per second and seconds, for the machine.
THROTTLES = {"100 MB/s, 10 ms": (100e6, 10e-3), "400 MB/s, 3 ms": (400e6, 3e-3)}
Plan = dict[str, Any]


def machine(
    rate: float, delay: float, *, sending: float = 0.0, link: float = 1e12, per_node: int = 64
) -> Plan:
    """Returns four targets with that bandwidth and delay, and clients."""
    return {
        "name": "four directories",
        "targets": {
            "count": TARGETS,
            "read_bytes_per_second": rate,
            "write_bytes_per_second": rate,
            "latency_seconds": delay,
        },
        "clients": {
            "per_node": per_node,
            "request_seconds": sending,
            "link_bytes_per_second": link,
        },
        "metadata": {"servers": 64, "create_seconds": delay, "open_seconds": delay},
    }


def stripes(count: int, size: int, first: int = 0) -> Plan:
    """Returns the striping of a file."""
    return {"first": first, "count": count, "bytes": size}


def plan(on: Plan, files: list[Plan], clients: list[list[Any]], in_flight: int = 1) -> Plan:
    """Returns a plan in the driver's form."""
    on = {**on, "clients": {**on["clients"], "requests_in_flight": in_flight}}
    operations = [{"operations": one} for one in clients]
    return {"machine": on, "workload": {"files": files, "clients": operations}}


def shared(clients: int, count: int, size: int, *, what: str, strided: bool) -> list[list[Any]]:
    """Returns requests of one size to one file, in blocks of each client or in turn."""
    place = [(step * clients + client) for client in range(clients) for step in range(count)]
    if not strided:
        place = list(range(clients * count))
    requests = [{what: [0, at * size, size]} for at in place]
    return [requests[at * count : (at + 1) * count] for at in range(clients)]


def grid() -> dict[str, Plan]:
    """Returns plans that vary one parameter at a time."""
    found: dict[str, Plan] = {}
    size = 256 * KIBIBYTE
    for clients in (1, 4, 16):
        for width in (1, 4):
            for strided in (False, True):
                what = "write" if strided else "read"
                work = shared(clients, 24, size, what=what, strided=strided)
                kind = "strided" if strided else "contiguous"
                name = f"{what} {kind}, {clients} clients, {width} targets"
                files = [stripes(width, 64 * KIBIBYTE)]
                found[name] = plan(machine(40e6, 5e-3), files, work)
    for in_flight in (2, 4, 8):
        work = shared(2, 48, size // 4, what="read", strided=False)
        name = f"{in_flight} requests in flight"
        found[name] = plan(machine(20e6, 20e-3), [stripes(4, size)], work, in_flight)
    for size in (16, 128, 1024, 4096):
        work = shared(4, 16, size * KIBIBYTE, what="read", strided=True)
        found[f"{size} KiB requests"] = plan(
            machine(80e6, 8e-3), [stripes(2, 512 * KIBIBYTE, 1)], work
        )
    for link in (30e6, 100e6):
        work = shared(8, 12, 512 * KIBIBYTE, what="read", strided=False)
        on = machine(50e6, 4e-3, link=link, per_node=4)
        found[f"links of {link / 1e6:.0f} MB/s"] = plan(on, [stripes(4, 512 * KIBIBYTE)], work)
    for sending in (2e-3, 10e-3):
        work = shared(6, 16, 64 * KIBIBYTE, what="write", strided=True)
        on = machine(40e6, 10e-3, sending=sending)
        found[f"{sending * 1e3:.0f} ms to send"] = plan(on, [stripes(4, 64 * KIBIBYTE)], work, 4)
    return found


def mixed(number: int) -> Plan:
    """Returns a random plan of reads, writes, opens and barriers on files of all kinds."""
    draw = random.Random(number)  # noqa: S311 - the same in every run
    files = [
        stripes(draw.randint(1, 4), draw.choice([16, 64, 256]) * KIBIBYTE, draw.randrange(4))
        for _ in range(draw.randint(1, 5))
    ]
    clients = []
    for _ in range(draw.randint(2, 12)):
        operations: list[Any] = [{"open": draw.randrange(len(files))}]
        for _ in range(draw.randint(8, 32)):
            size = draw.choice([4, 32, 100, 400, 1500]) * KIBIBYTE
            what = draw.choice(["read", "write"])
            operations.append({what: [draw.randrange(len(files)), draw.randrange(1 << 23), size]})
        operations += ["barrier", {"compute": draw.uniform(0, 0.05)}]
        for _ in range(draw.randint(2, 8)):
            size = draw.choice([50, 600]) * KIBIBYTE
            operations.append({"read": [draw.randrange(len(files)), draw.randrange(1 << 23), size]})
        clients.append(operations)
    on = machine(
        draw.choice([15e6, 30e6, 60e6]),
        draw.choice([3e-3, 10e-3, 25e-3]),
        sending=draw.choice([0.0, 1e-3]),
        link=draw.choice([1e12, 80e6]),
        per_node=draw.choice([1, 4]),
    )
    return plan(on, files, clients, draw.choice([1, 2, 4]))


def measure(plans: list[Plan], rounds: int) -> list[list[float]]:
    """Return the seconds of each plan in each round."""
    command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "bedform-machine"]
    lines = "".join(json.dumps(one) + "\n" for one in plans)
    samples: list[list[float]] = [[] for _ in plans]
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds):
            done = subprocess.run(  # noqa: S603
                [*command, "--example", "machine_run", "--", directory + "/run"],
                cwd=CHECKOUT,
                input=lines,
                check=True,
                capture_output=True,
                text=True,
            )
            for sample, line in zip(samples, done.stdout.splitlines(), strict=True):
                sample.append(float(line))
    return samples


def one_place(rate: float, delay: float) -> Plan:
    """Returns the machine that models a throttled directory."""
    return {
        "name": "a throttled directory",
        "targets": {
            "count": 1,
            "read_bytes_per_second": rate,
            "write_bytes_per_second": rate,
            "latency_seconds": delay,
        },
        "clients": {"link_bytes_per_second": 1e12},
        "metadata": {"servers": 64, "open_seconds": delay},
    }


def reads_of(rounds: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Returns the prediction of each array read, and its seconds in each round."""
    command = [sys.executable, "-m", "benchmarks.harness.array_reads"]
    predicted, samples = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "arrays.zarr"
        array_reads.build(path)
        for throttle, (rate, delay) in THROTTLES.items():
            done = subprocess.run(  # noqa: S603
                [*command, str(path), str(rounds)],
                cwd=CHECKOUT,
                env={**os.environ, "BEDFORM_THROTTLE": throttle},
                check=True,
                capture_output=True,
                text=True,
            )
            for read in json.loads(done.stdout):
                name = f"{throttle}: {read['name']}"
                samples[name] = read["seconds"]
                predicted[name] = bf.simulate(one_place(rate, delay), read["workload"]).seconds
    return predicted, samples


def compared(
    title: str, predicted: dict[str, float], samples: dict[str, list[float]]
) -> tuple[Table, list[float]]:
    """Returns predictions, compared with measurements, and the errors."""
    table = Table(title, ["plan", "predicted", "measured", "error"])
    errors = []
    for name, wanted in predicted.items():
        took = median(samples[name])
        errors.append(abs(wanted - took) / took)
        row = [name, milliseconds(wanted), milliseconds(took), f"{(wanted - took) / took:+.1%}"]
        table.rows.append(row)
    return table, errors


def found_of(errors: list[float]) -> str:
    """Returns the errors of predictions in words."""
    within = sum(error <= ERROR_MAX for error in errors)
    mean = sum(errors) / len(errors)
    return f"{within} of {len(errors)}; mean {mean:.1%}, most {max(errors):.1%}"


def run(options: Options) -> Report:
    """Predicts and measures all plans, and reads of arrays."""
    plans = grid() | {f"drawn, {number}": mixed(number) for number in range(16)}
    plans = {name: one for name, one in plans.items() if options.wants(name)}
    rounds = 1 if options.quick else min(options.rounds, ROUNDS)
    report = Report(NAME, options.command, {"plans": str(len(plans)), "rounds": str(rounds)})
    if options.only:
        report.settings["lines"] = ", ".join(options.only)
    if plans:
        simulated = (bf.simulate(one["machine"], one["workload"]) for one in plans.values())
        predicted = dict(zip(plans, (one.seconds for one in simulated), strict=True))
        samples = dict(zip(plans, measure(list(plans.values()), rounds), strict=True))
        table, errors = compared("Milliseconds", predicted, samples)
        holds = max(errors) <= ERROR_MAX and len(errors) >= PLANS_MIN
        promise = f"predictions within {ERROR_MAX:.0%} of at least {PLANS_MIN} plans, all of them"
        known = None if len(errors) < PLANS_MIN else holds
        report.tables.append(table)
        report.verdicts.append(Verdict(promise, found_of(errors), known))
        report.samples = dict(samples)
    if options.wants("array reads"):
        predicted, read_samples = reads_of(rounds)
        table, errors = compared("Reads of arrays: milliseconds", predicted, read_samples)
        promise = f"predictions within {ERROR_MAX:.0%} of all reads of arrays"
        report.tables.append(table)
        report.verdicts.append(Verdict(promise, found_of(errors), max(errors) <= ERROR_MAX))
        report.samples |= read_samples
    return report
