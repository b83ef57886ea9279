"""The command line that all benchmarks share."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.bedform_engine import is_installed

FULL_SIZE = 512
QUICK_SIZE = 64
FULL_ROUNDS = 15
QUICK_ROUNDS = 3
#: Another build of Bedform, in a checkout whose `python` directory the variable names. It replaces
#: all peers: a change is compared with the state before it, round by round.
BASELINE = "baseline"
BASELINE_PACKAGE = os.environ.get("BEDFORM_BASELINE")
PEERS = (BASELINE,) if BASELINE_PACKAGE else ("zarr-python", "zarrs", "tensorstore")
REFERENCE = "tensorstore-plain"
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    size: int
    rounds: int
    quick: bool
    only: tuple[str, ...]
    json: Path | None
    write_results: bool
    command: str
    # For the benchmarks of many processes.
    ranks: tuple[int, ...] = (2, 4, 16)
    map: Path | None = None
    e3sm_io: str | None = None
    bedform: str | None = None
    # For `s3-read`.
    years: int = 1
    # For `references`; 0 is the benchmark's own choice.
    megabytes: int = 0
    # For `burst`.
    processes: int = 4
    capacity: Path | None = None
    # For `query`.
    keep: bool = False

    def wants(self, line: str) -> bool:
        """Whether the line was requested: a pattern matches it, or there is none."""
        return not self.only or any(fnmatch(line, pattern) for pattern in self.only)

    def tries(self) -> int:
        """Returns the number of tries of each variant before the rounds."""
        return 1 if self.quick else 3

    def some(self, choices: list[Choice]) -> list[Choice]:
        """Return the choices to try: all of them, or the first in a quick run."""
        return choices[:1] if self.quick else choices

    def settings(self) -> dict[str, str]:
        """Return the settings for the report."""
        chosen = {"lines": ", ".join(self.only)} if self.only else {}
        return {"size": f"{self.size}^3 float64", "rounds": str(self.rounds), **chosen}


def edge_of(text: str) -> int:
    """Returns the edge of a cube of float64: as given, or the nearest for a number of bytes.

    >>> edge_of("512"), edge_of("1GiB"), edge_of("64MiB")
    (512, 512, 208)
    """
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            elements = float(text.removesuffix(unit)) * factor / 8
            return max(32, round(elements ** (1 / 3) / 16) * 16)
    return int(text)


def engines() -> list[str]:
    """Returns the engines that can run here: the peers, and Bedform if it is built."""
    references = [] if BASELINE_PACKAGE else [REFERENCE]
    return [*PEERS, *references, *(["bedform"] if is_installed() else [])]


def parse(names: list[str], arguments: list[str]) -> tuple[str, Options]:
    """Returns the named benchmark and its options; exits on a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Bedform against its peers."
    )
    parser.add_argument("name", choices=[*names, "all"], help="the benchmark")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument(
        "--size", type=edge_of, help=f"edge of the cube, or its bytes: 64MiB (default {FULL_SIZE})"
    )
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds (default {FULL_ROUNDS})")
    parser.add_argument(
        "--only",
        default="",
        help="patterns of lines with commas, for example 'standard/raw/warm/*,*/plane k'",
    )
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument(
        "--write-results", action="store_true", help="replace the section in RESULTS.md"
    )
    add_parallel(parser)
    given = parser.parse_args(arguments)
    size = given.size or (QUICK_SIZE if given.quick else FULL_SIZE)
    if size < 32 or size % 16:  # chunks are a sixteenth: at least two elements
        parser.error("--size must be a multiple of 16, and 32 at least")
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else FULL_ROUNDS)
    return given.name, Options(
        size=size,
        rounds=rounds,
        quick=given.quick,
        only=tuple(filter(None, given.only.split(","))),
        json=given.json,
        write_results=given.write_results,
        command="python -m benchmarks " + " ".join(arguments),
        ranks=tuple(map(int, given.ranks.split(","))),
        map=given.map,
        e3sm_io=given.e3sm_io,
        bedform=given.bedform,
        years=given.years,
        megabytes=given.megabytes,
        processes=given.processes,
        capacity=given.capacity,
        keep=given.keep,
    )


def add_parallel(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmarks that start processes."""
    group = parser.add_argument_group("log-e3sm, log-s3d and log-flash")
    group.add_argument("--ranks", default="2,4,16", help="numbers of processes, with commas")
    group.add_argument("--map", type=Path, help="a map of E3SM-IO's format, .nc or .h5")
    group.add_argument("--e3sm-io", help="the program e3sm_io (or name it in E3SM_IO)")
    group.add_argument("--bedform", help="where Bedform's C library is installed (BEDFORM_PREFIX)")
    group = parser.add_argument_group("s3-read")
    group.add_argument("--years", type=int, default=1, help="years of days (default 1)")
    group = parser.add_argument_group("references")
    group.add_argument("--megabytes", type=int, default=0, help="of each file (default 100)")
    group = parser.add_argument_group("burst")
    group.add_argument("--processes", type=int, default=4, help="a square number (default 4)")
    group.add_argument("--capacity", type=Path, help="where the slow tier lies (a place in memory)")
    group = parser.add_argument_group("query")
    group.add_argument("--keep", action="store_true", help="keep the copies of the fields")
