"""Lines `run/*`: a strided reader in C under `bedform run`, against the engine's own prefetch.

The program reads blocks of a contiguous HDF5 dataset with `pread`, cold, and computes for as long
as a read takes. It runs alone, and under `bedform run`, which preloads the library that advises the
kernel. The engine reads the same elements of the same file with as much computing. The library's
cut of the program's time is compared with prefetch's cut of the engine's time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Table
from benchmarks.harness.rounds import interleave
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.reads_ahead.loops import compute, in_process, number_of, rounds_of
from benchmarks.reads_ahead.peers import build_file

if TYPE_CHECKING:
    from benchmarks.harness.options import Options
    from benchmarks.harness.report import Report

SOURCE = Path(__file__).resolve().parents[1] / "drivers" / "strided_read.c"
#: Bytes of a block, and the square root of the number of blocks.
SIZES = {"128 KiB": (1 << 17, 24), "1 MiB": (1 << 20, 24)}
STRIDE, READS, QUICK_READS = 3, 100, 50
RATIO = 1.0
PROGRAMS = ("program", "bedform run")
ENGINES = ("engine", "engine, prefetch")
SHARE_MIN = 0.6


def program(job: dict[str, Any], seconds: float, is_run: bool) -> float:
    """Runs the program; returns the seconds that it measured."""
    cold.make_cold(Path(job["file"]))
    numbers = (job["offset"], STRIDE * job["size"], job["size"], job["reads"], seconds * 1e6)
    command = [job["program"], job["file"], *map(str, numbers)]
    before = [sys.executable, "-m", "bedform", "run", "--"] if is_run else []
    done = subprocess.run(  # noqa: S603
        [*before, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    taken, total, _ = done.stdout.split()
    if float(total) != STRIDE * job["reads"] * (job["reads"] - 1) / 2:
        raise RuntimeError("the program read something else")
    return float(taken)


def engine(job: dict[str, Any], seconds: float, is_ahead: bool) -> float:
    """Reads the same elements by the engine."""
    cold.make_cold(Path(job["file"]))
    array = bf.open(job["file"], prefetch="auto" if is_ahead else False)["v"]
    wanted = [STRIDE * number for number in range(job["reads"])]
    found = []
    began = time.perf_counter()
    for number in wanted:
        found.append(number_of(array[number]))
        compute(seconds)
    taken = time.perf_counter() - began
    if found != wanted:
        raise RuntimeError("a wrong answer")
    return taken


def worker(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all readers in rounds."""

    def once(reader: str, seconds: float) -> float:
        if reader in PROGRAMS:
            return program(job, seconds, is_run=reader == PROGRAMS[1])
        return float(in_child(engine, job, seconds, reader == ENGINES[1]))

    alone = median([once(PROGRAMS[0], 0) for _ in range(3)]) / job["reads"]
    seconds = RATIO * alone
    readers = [*PROGRAMS, *ENGINES]
    samples = interleave(readers, job["rounds"], lambda reader: once(reader, seconds))
    return {"alone": alone, "samples": samples}


def compiled(directory: Path) -> Path | None:
    """Compiles the program, if there is a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    made = directory / "strided_read"
    subprocess.run([compiler, "-O2", str(SOURCE), "-o", str(made)], check=True)  # noqa: S603
    return made


def run(options: Options, report: Report) -> None:
    """Runs the requested lines."""
    named = {size: f"run/{size}/simple-strided" for size in SIZES}
    heads = ["line", "a read", *PROGRAMS, "cut", *ENGINES, "cut", "share"]
    table = Table("A program in C under `bedform run`, disk, ratio 1, in milliseconds", heads)
    promise = Promise(f"bedform run: {SHARE_MIN:.0%} of what the engine's prefetch cuts")
    for size_name, name in named.items():
        if not options.wants(name) or (options.quick and size_name != "1 MiB"):
            continue
        size, edge = SIZES[size_name]
        with tempfile.TemporaryDirectory(dir=data.ROOT) as directory:
            made = compiled(Path(directory))
            if made is None:
                report.settings["not run"] = "lines run/*, for want of cc"
                return
            file = Path(directory) / "f.h5"
            offset = build_file(file, size, edge)
            job = {"program": str(made), "file": str(file), "offset": offset, "size": size}
            job |= {"reads": QUICK_READS if options.quick else READS}
            line = in_process("preload", {**job, "rounds": rounds_of(options)})
        table.rows.append(row(name, line, promise))
        report.samples[name] = line["samples"]
    conclude(report, table, [promise])


def row(name: str, line: dict[str, Any], promise: Promise) -> list[str]:
    """Returns the row of the line, and adds it to the promises."""
    samples, cells, cuts = line["samples"], [name, f"{line['alone'] * 1e3:.2f}"], []
    for without, ahead in (PROGRAMS, ENGINES):
        cuts.append(1 - paired_ratio(samples[ahead], samples[without]).median)
        cells += [f"{median(samples[reader]) * 1e3:.0f}" for reader in (without, ahead)]
        cells.append(f"{cuts[-1]:.0%}")
    ours, engines = cuts
    share = f"{ours / engines:.0%}" if engines > 0 else "-"
    promise.add(name, ours >= SHARE_MIN * engines, f"{ours:.0%} of {engines:.0%}")
    return [*cells, share]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(json.loads(sys.argv[1]))))
