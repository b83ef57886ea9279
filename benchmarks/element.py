"""`element`: one element of a warm array, read from Python with `a[i, j, k]`.

Caches off: random elements of the whole array, its files in the page cache. Cached: random elements
of a box that fits the cache, after one pass over it; every engine has the same limit. zarr-python
keeps the bytes of shards (its experimental `CacheStore`), not decoded chunks.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import product

from benchmarks.harness import cold, data
from benchmarks.harness.comparison import Comparison
from benchmarks.harness.options import BASELINE, PEERS, Options, engines
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess, start_workers, stop_workers

NAME = "element"
CACHE_BYTES = 256 << 20
POINTS, QUICK_POINTS = 50, 5
GAINS = {"zarr-python": 30.0, "tensorstore": 3.0}
POINT_SEED = 11
#: Engines that the last columns compare with.
RIVALS = [BASELINE] if BASELINE in PEERS else list(GAINS)


def random_points(size: int, edge: int, count: int) -> list[tuple[int, ...]]:
    """Return points of the box of `edge` in the middle of the cube."""
    source = random.Random(POINT_SEED)  # noqa: S311 (a sample, not a secret)
    low = (size - edge) // 2
    return [tuple(low + source.randrange(edge) for _ in range(3)) for _ in range(count)]


def measure(
    options: Options, workers: dict[str, WorkerProcess], line: str, points: list[tuple[int, ...]]
) -> Comparison:
    """Run the rounds; a sample is the median of the calls of one round."""
    truth = data.truth(options.size)
    expected = [float(truth[point]) for point in points]

    def call(name: str, variant: str) -> float:
        return median(workers[name].call("elements", points, expected, variant))

    chosen = {}
    for name, worker in workers.items():
        variants = list(worker.call("describe")["element"])
        chosen[name] = fastest_variant(variants, options.tries(), partial(call, name))
    samples = interleave(list(workers), options.rounds, lambda name: call(name, chosen[name]))
    return Comparison(line, samples, chosen)


def run(options: Options) -> Report:
    """Measure both layouts, both codecs, caches off and on."""
    report = Report(NAME, options.command, options.settings())
    workers = start_workers(engines())
    count = QUICK_POINTS if options.quick else POINTS
    columns = ["array", *workers, "fastest", *(f"bedform / {name}" for name in RIVALS)]
    tables = {
        0: Table("One element, caches off; microseconds a call", columns),
        CACHE_BYTES: Table(
            f"One element, caches of {CACHE_BYTES >> 20} MiB; microseconds", columns
        ),
    }
    layouts = (data.standard_layout(options.size), data.advised_layout(options.size))
    results: dict[int, list[Comparison]] = {0: [], CACHE_BYTES: []}
    try:
        for name, worker in workers.items():
            report.settings[name] = worker.call("describe")["version"]
        for limit, layout, codec in product(tables, layouts, ("raw", "zstd")):
            line = f"{layout.name}/{codec}/{'cached' if limit else 'uncached'}"
            if not options.wants(line):
                continue
            store = data.zarr_store(options.size, layout, codec)
            for worker in workers.values():
                worker.call("open", store, limit)
            cold.make_warm(store)
            edge = options.size // 4 if limit else options.size
            one = measure(options, workers, line, random_points(options.size, edge, count))
            results[limit].append(one)
            tables[limit].rows.append(make_row(one, list(workers)))
    finally:
        stop_workers(workers)
    report.tables = [table for table in tables.values() if table.rows]
    report.verdicts = verdicts(results[0])
    report.samples = {one.line: one.to_dict() for limit in results for one in results[limit]}
    return report


def make_row(one: Comparison, names: list[str]) -> list[str]:
    """Return the row of one array, in microseconds."""
    cells = [f"{median(one.samples[name]) * 1e6:.0f}" for name in names]
    ratios = [one.ratio_cell(name) for name in RIVALS]
    return [one.line, *cells, one.fastest_peer(), *ratios]


def verdicts(results: list[Comparison]) -> list[Verdict]:
    """Returns the promises for one element and their results; the worst array counts."""
    found = []
    for name, gain in GAINS.items():
        promise = f"caches off: {gain:.0f} times faster than {name}"
        gains = [1 / ratio.median for one in results if (ratio := one.against(name))]
        if gains:
            measured = f"{min(gains):.1f} to {max(gains):.1f}"
            found.append(Verdict(promise, measured, min(gains) >= gain))
        else:
            found.append(Verdict(promise, "-", None))
    return found
