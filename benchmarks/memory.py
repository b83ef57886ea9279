"""`memory`: the growth of peak resident memory in a read of the whole array.

Each read happens in a fresh process with an open array: the peak (`VmHWM`, reset just before) minus
the resident memory before. It includes the result; the rest is the engine's own. Resident pages of
memory-mapped files count, as the kernel counts them.
"""

from __future__ import annotations

from benchmarks.harness import cold, data
from benchmarks.harness.comparison import OURS
from benchmarks.harness.options import Options, engines
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.selections import named_selections, result_bytes
from benchmarks.harness.statistics import median
from benchmarks.harness.worker import WorkerProcess

NAME = "memory"
MEBIBYTE = 1 << 20
OVERHEAD_MAX = 64 * MEBIBYTE
REPEATS, QUICK_REPEATS = 3, 2


def growth(options: Options, engine: str, variant: str, codec: str) -> float:
    """Return the median growth of the peak, in bytes, over a few fresh processes."""
    store = data.zarr_store(options.size, data.standard_layout(options.size), codec)
    whole = named_selections(options.size)["full"]
    found: list[float] = []
    for _ in range(QUICK_REPEATS if options.quick else REPEATS):
        with WorkerProcess(engine) as worker:
            worker.call("open", store)
            found.append(float(worker.call("memory_growth", whole, variant)))
    return median(found)


def run(options: Options) -> Report:
    """Reads the whole array with each engine, in each of its variants."""
    report = Report(NAME, options.command, options.settings())
    whole = named_selections(options.size)["full"]
    result = result_bytes(whole)
    table = Table(
        f"Peak of a read of {result / MEBIBYTE:.0f} MiB; MiB above the result",
        ["engine and way", "raw", "zstd"],
        note="Each figure is the median of fresh processes.",
    )
    ours: list[float] = []
    samples: dict[str, dict[str, float]] = {}
    for codec in ("raw", "zstd"):
        store = data.zarr_store(options.size, data.standard_layout(options.size), codec)
        cold.make_warm(store)
    for engine in engines():
        with WorkerProcess(engine) as worker:
            described = worker.call("describe")
        report.settings[engine] = described["version"]
        for variant in options.some(list(described["read"])):
            line = f"{engine} {variant}"
            if not options.wants(line):
                continue
            samples[line] = {
                codec: growth(options, engine, variant, codec) - result for codec in ("raw", "zstd")
            }
            table.rows.append(
                [line, *(f"{over / MEBIBYTE:.0f}" for over in samples[line].values())]
            )
            if engine == OURS:
                ours += samples[line].values()
    report.tables.append(table)
    report.samples = dict(samples)
    promise = "result + 64 MiB"
    if ours:
        worst = f"result + {max(ours) / MEBIBYTE:.0f} MiB"
        report.verdicts.append(Verdict(promise, worst, max(ours) <= OVERHEAD_MAX))
    else:
        report.verdicts.append(Verdict(promise, "-", None))
    return report
