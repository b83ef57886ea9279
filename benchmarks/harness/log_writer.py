"""Bedform's log as a writer: a C program on `bedform_mpi.h`, with one session and one commit.

The driver (`benchmarks/drivers/log_write.c`) is compiled here with the `mpicc` of the machine's MPI
(or that in MPICC) against an installed Bedform (`--bedform` or BEDFORM_PREFIX), or against this
checkout after `cargo build --release -p bedform-capi`. The Python package reads the store back
twice: over the log, and after settling, which is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.bedform_engine import is_installed
from benchmarks.harness.parallel import (
    OURS,
    ROOT,
    Job,
    Outcome,
    Writer,
    launcher_missing,
    mpiexec,
)

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / "benchmarks" / "drivers" / "log_write.c"
LIBRARY = "libbedform.so"
STORE = "run.zarr"


class LogWriter(Writer):
    """Writer with one session of all processes; settling is not part of its time."""

    name = OURS

    def __init__(self, prefix: str | None) -> None:
        self.include, self.library = places(prefix)
        self.driver: Path | None = None

    def version(self) -> str:
        """Return the version of the package."""
        import bedform as bf

        return "bedform " + str(bf.__version__)

    def missing(self) -> str:
        """Returns the missing requirements of this writer."""
        if not (self.include / "bedform_mpi.h").exists() or not self.library.exists():
            return (
                "the C library of Bedform: make install PREFIX=..., then --bedform PREFIX; or, in "
                "this checkout, cargo build --release -p bedform-capi"
            )
        if not is_installed():
            return "the Python package of Bedform: make build"
        if not shutil.which(compiler()):
            return "mpicc of an MPI (or name it in MPICC)"
        return launcher_missing()

    def program(self) -> Path:
        """Returns the compiled driver; it is compiled once per run."""
        if self.driver is None:
            folder = ROOT / "driver"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name in (LIBRARY, LIBRARY + ".0"):
                (folder / name).symlink_to(self.library)
            command = [compiler(), "-O2", "-w", f"-I{self.include}", str(SOURCE)]
            command += ["-o", str(folder / "log_write"), f"-L{folder}", "-lbedform"]
            subprocess.run([*command, f"-Wl,-rpath,{folder}"], check=True)  # noqa: S603
            self.driver = folder / "log_write"
        return self.driver

    def command(self, job: Job, folder: Path, variant: str) -> list[str]:  # noqa: ARG002
        """Return the command of each process."""
        prefix = str(job.plans[0]).removesuffix("-0.plan")
        return [str(self.program()), str(folder / STORE), prefix, "later"]

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        """Run the driver."""
        printed = mpiexec(job.workload.ranks, self.command(job, folder, variant))
        spans: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
        # The commit is durable: another sync would cost a flush per file.
        seconds = spans.pop("seconds")
        spans.pop("settle")
        # Allocated bytes: processes that share a segment leave holes where one wrote less.
        files = [entry for entry in folder.rglob("*") if entry.is_file()]
        spans["overhead"] = sum(512 * entry.stat().st_blocks for entry in files)
        spans["overhead"] = spans["overhead"] / job.workload.bytes() - 1
        return Outcome(seconds, spans | {"files": len(files)})

    def check(self, job: Job, folder: Path) -> None:
        """Compare samples of the variables, with all their records."""
        import bedform as bf

        store: Any = bf.open(str(folder / STORE))
        for number in job.workload.samples():
            one = job.workload.variables[number]
            found = store[one.name][...]
            if found.shape != one.full_shape(job.workload.records):
                raise ValueError(f"{one.name} has shape {found.shape}")
            # Every record has the same values.
            if not np.all(found == job.workload.expected(number)):
                raise ValueError(f"{one.name} has wrong values")

    def after(self, job: Job, folder: Path) -> dict[str, float]:
        """Settle, by one process, and read back again."""
        import bedform as bf

        start = time.perf_counter()
        bf.open(str(folder / STORE), mode="r+").settle()
        seconds = time.perf_counter() - start
        self.check(job, folder)
        return {"settle": seconds}


def compiler() -> str:
    """Return the compiler of the MPI."""
    return os.environ.get("MPICC", "mpicc")


def places(prefix: str | None) -> tuple[Path, Path]:
    """Return the headers and the library: installed, or those of this checkout."""
    if prefix:
        return Path(prefix) / "include", Path(prefix) / "lib" / LIBRARY
    return CHECKOUT / "include", CHECKOUT / "target" / "release" / "libbedform_capi.so"
