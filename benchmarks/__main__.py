"""Run a benchmark: `python -m benchmarks NAME [--quick] [--size N] [--json FILE]`."""

from __future__ import annotations

import importlib
import sys

from benchmarks.harness import options as command_line
from benchmarks.harness.report import Report, update_results

NAMES = {
    "zarr-read": "benchmarks.zarr_read",
    "zarr-write": "benchmarks.zarr_write",
    "chunk-planar": "benchmarks.chunk_planar",
    "element": "benchmarks.element",
    "log-read": "benchmarks.log_read",
    "memory": "benchmarks.memory",
    "settle": "benchmarks.settle",
    "log-e3sm": "benchmarks.log_e3sm",
    "log-s3d": "benchmarks.log_s3d",
    "log-flash": "benchmarks.log_flash",
    "log-scale": "benchmarks.log_scale",
    "log-commits": "benchmarks.log_commits",
    "burst": "benchmarks.burst",
    "s3-read": "benchmarks.s3_read",
    "s3-write": "benchmarks.s3_write",
    "other-readers": "benchmarks.other_readers",
    "foreign-open": "benchmarks.foreign_open",
    "foreign-url": "benchmarks.foreign_url",
    "references": "benchmarks.references",
    "price": "benchmarks.price",
    "simulate-check": "benchmarks.simulate_check",
    "chunk-simulated": "benchmarks.chunk_simulated",
    "log-simulated": "benchmarks.log_simulated",
    "codec-choice": "benchmarks.codec_choice",
    "convert-dask": "benchmarks.convert_dask",
    "advise-mixes": "benchmarks.advise_mixes",
    "query": "benchmarks.query",
    "h5-read": "benchmarks.h5_read",
    "amr-layout": "benchmarks.amr_layout",
    "amr-simulated": "benchmarks.amr_simulated",
    "advice-commands": "benchmarks.advice_commands",
    "prefetch": "benchmarks.prefetch",
    "replica-series": "benchmarks.replicas.series",
    "replica-overhead": "benchmarks.replicas.overhead",
    "replica-ar": "benchmarks.replicas.rivers",
    "replica-msi": "benchmarks.replicas.images",
    "replica-ecog": "benchmarks.replicas.labels",
    "replica-vpic": "benchmarks.replicas.particles",
    "replica-remote": "benchmarks.replicas.remote",
    "replica-model": "benchmarks.replicas.model",
    "replica-placement": "benchmarks.replicas.placement",
    "xarray": "benchmarks.xarray_engine",
}


def main() -> None:
    """Runs the benchmarks that the command line names, and prints their tables."""
    name, options = command_line.parse(list(NAMES), sys.argv[1:])
    for one in NAMES if name == "all" else [name]:
        report: Report = importlib.import_module(NAMES[one]).run(options)
        sys.stdout.write(report.to_text() + "\n")
        sys.stdout.flush()
        if options.json:
            options.json.write_text(report.to_json())
        if options.write_results:
            update_results(report)


if __name__ == "__main__":
    main()
