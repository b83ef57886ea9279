"""`replica-vpic`: energetic particles of a plasma, selected one by one from four variables.

Energy, x, y and z of particles, float32, contiguous, one axis. Energies have a heavy tail, and
energetic particles come in swarms. A query reads all four variables of the particles above an
energy, 1.7 to 1.1, fixed shares of all, as a list of their positions. Replicas are made of the
lists (`selections=`). *Exact*: of each query. *Overlap*: of a narrower query than the measured one,
25 to 48 % of it. Cold, opened and closed each time, from the disk; the exact ones also from a slow
store.

h5py selects elements (by a mask, which it turns into points), reads everything in one pass and
selects in memory, or takes the list; netCDF4 and xarray take lists. Reads of minutes are left out.

Section 3.3.2 of the paper: 10.6, 9.8, 28.1 and 90.3 times (exact), 1.3 to 1.8 times (overlap).
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, bytes_in_words
from benchmarks.harness.slow_store import THROTTLES, as_found
from benchmarks.harness.statistics import median, paired_ratio
from benchmarks.replicas.fields import noise
from benchmarks.replicas.readers import OURS, PEERS, names_of
from benchmarks.replicas.trials import (
    Line,
    ReplicaTrial,
    Subject,
    faster,
    forget_replicas,
    has_selections,
    heads,
    in_process,
    is_slower,
    job_of,
    keep_profile,
    row,
    sidecar_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Values

NAME = "replica-vpic"
NAMES = ("energy", "x", "y", "z")
#: Energies, and the shares of all particles above them. The first four are the paper's.
SHARES = {1.7: 2e-4, 1.6: 4e-4, 1.5: 8.5e-4, 1.4: 1.9e-3, 1.3: 5e-3, 1.2: 1.5e-2, 1.1: 5e-2}
#: The energies of a read and of its replica, which holds 44, 47 and 24 % of it.
OVERLAPS = {"B1": (1.4, 1.5), "B2": (1.5, 1.6), "B3": (1.5, 1.7)}
QUICK_ENERGIES, SLOW_ENERGIES = (1.7, 1.4), (1.7, 1.4, 1.1)
BUDGET = "400%"
SPARSE_MIN, ELEMENTS_MIN, OVERLAP_MIN = 10.0, 90.0, 1.3
#: Particles of a swarm.
SWARM = 1 << 12
ELEMENTS, ONE_PASS = "h5py, elements", "h5py, one pass"
#: Lists of more particles take h5py and the NetCDF library longer than about a second.
LISTED_MAX = 10_000


@dataclass(frozen=True)
class Particles:
    """The variables, with values known without reading them."""

    count: int
    name: Names = NAMES

    @cached_property
    def values(self) -> dict[str, NDArray[np.float32]]:
        """All elements of the variables."""
        number = np.arange(self.count, dtype=np.uint32)
        swarm = np.exp(1.5 * noise(number // SWARM)).astype(np.float32)
        rarity = noise(number + np.uint32(self.count)) ** swarm
        shares = list(SHARES.values())
        limits = np.quantile(rarity, [0.0, *(1 - one for one in shares[::-1]), 1.0])
        energies = np.interp(rarity, limits, [1.0, *list(SHARES)[::-1], 2.0])
        at = number * np.uint32(3)
        places = [noise(at + np.uint32(axis)) for axis in range(len(NAMES) - 1)]
        values = [one.astype(np.float32) for one in (energies, *places)]
        return dict(zip(NAMES, values, strict=True))

    def above(self, energy: float) -> NDArray[np.int64]:
        """Returns the positions of particles above an energy."""
        return np.flatnonzero(self.values["energy"] > np.float32(energy))

    def answers(self, selections: list[Selection]) -> Values:
        """Return the elements of each variable."""
        return [self.values[name][rows] for name in NAMES for (rows,) in selections]

    def write(self, path: Path) -> None:
        """Write a NetCDF-4 file, a variable after another."""
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("particle", self.count)
            for name, values in self.values.items():
                variable = file.createVariable(name, "f4", ("particle",), contiguous=True)
                variable[:] = values
        with path.open("rb+") as written:
            os.fsync(written.fileno())


def read_elements(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Selects elements by h5py with a mask, which it turns into points."""
    import h5py

    found = []
    with h5py.File(as_found(path), "r") as file:
        for name in names_of(names):
            array: Any = file[name]
            for (rows,) in selections:
                mask = np.zeros(array.shape, bool)
                mask[rows] = True
                found.append(array[mask])
    return found


def read_all(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Reads all elements by h5py, and selects in memory."""
    import h5py

    with h5py.File(as_found(path), "r") as file:
        arrays: list[Any] = [file[name] for name in names_of(names)]
        return [array[:][rows] for array in arrays for (rows,) in selections]


def line_of(name: str, rows: NDArray[np.int64]) -> Line:
    """Return a line that reads these particles."""
    without = PEERS if len(rows) > LISTED_MAX else ()
    return Line(name, [[(rows,)]], {ELEMENTS: read_elements, ONE_PASS: read_all}, without)


def stages(of: Particles) -> dict[str, tuple[list[float], dict[str, Line]]]:
    """Returns the energies of the replicas, and the lines that read with them."""
    exact = {f"exact/{one}": line_of(f"exact/{one}", of.above(one)) for one in SHARES}
    found: dict[str, tuple[list[float], dict[str, Line]]] = {"exact": (list(SHARES), exact)}
    for name, (wanted, held) in OVERLAPS.items():
        line = f"overlap/{name}"
        found[line] = ([held], {line: line_of(line, of.above(wanted))})
    return found


def optimized(file: Subject[Particles], of: Particles, energies: list[float]) -> float:
    """Makes replicas of the particles above some energies; returns their share of the file."""
    forget_replicas(file.path)
    if not has_selections():
        return 0.0
    selections = [(of.above(one),) for one in energies]
    bf.optimize(file.path, BUDGET, selections=dict.fromkeys(NAMES, selections))
    return sidecar_bytes(file.path) / file.path.stat().st_size


def particles_of(is_quick: bool) -> Particles:
    """Return the particles."""
    return Particles(1 << 20 if is_quick else 1 << 24)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines of a place, in a separate process."""
    for module in ("h5py", "netCDF4", "xarray"):
        importlib.import_module(module)
    is_slow = job["place"] != "disk"
    of, small = particles_of(job["quick"]), Particles(1 << 15)
    place = data.ROOT / NAME
    file = Subject(data.ensure(place / f"{of.count}.nc", of.write), of)
    little = Subject(data.ensure(place / "little.nc", small.write), small)
    if is_slow:
        keep_profile(place)
    optimized(little, small, [1.3])
    found: dict[str, Any] = {"lines": {}, "shares": {}}
    little_lines = {one: line for _, lines in stages(small).values() for one, line in lines.items()}
    trial = ReplicaTrial(file, little, little_lines, is_slow)
    for stage, (energies, lines) in stages(of).items():
        wanted = {name: line for name, line in lines.items() if name in job["lines"]}
        if wanted:
            found["shares"][stage] = optimized(file, of, energies)
        for name, line in wanted.items():
            found["lines"][f"{job['place']}/{name}"] = trial.compare(line, job["rounds"])
    for one in (file, little):
        forget_replicas(one.path)
    return found


def lines_at(place: str, is_quick: bool) -> list[str]:
    """Return the lines of a place."""
    energies = tuple(SHARES) if place == "disk" else SLOW_ENERGIES
    if is_quick:
        energies = QUICK_ENERGIES
    overlaps = ("B1",) if is_quick else tuple(OVERLAPS)
    exact = [f"exact/{one}" for one in energies]
    return exact if place != "disk" else [*exact, *(f"overlap/{one}" for one in overlaps)]


def run(options: Options) -> Report:
    """Runs the requested lines."""
    of = particles_of(options.quick)
    named = {"lines": ", ".join(options.only)} if options.only else {}
    report = Report(NAME, options.command, {"rounds": str(max(options.rounds, 3)), **named})
    report.settings |= {
        "file": f"{len(NAMES)} variables of {of.count} float32, "
        f"{bytes_in_words(len(NAMES) * of.count * 4)}",
        "particles": ", ".join(f"{round(one * of.count)} above {at}" for at, one in SHARES.items()),
        "slow store": THROTTLES["slow store"],
    }
    if not has_selections():
        report.settings["without replicas"] = "this build makes none of listed elements"
    readers = [*PEERS, ELEMENTS, ONE_PASS]
    columns = [*heads(readers), f"than {ELEMENTS}"]
    table = Table("Cold: open, read four variables, close; milliseconds", columns)
    promises = [
        Promise(f"exact, the sparsest: at least {SPARSE_MIN:.0f} times the fastest"),
        Promise("exact: never slower"),
        Promise(f"exact: {ELEMENTS_MIN:.0f} times the selection of elements at best"),
        Promise("overlap: never slower"),
        Promise(f"overlap: at least {OVERLAP_MIN} times the selection of elements"),
    ]
    for place in THROTTLES:
        wanted = [
            name for name in lines_at(place, options.quick) if options.wants(f"{place}/{name}")
        ]
        if not wanted:
            continue
        found = in_process("particles", {**job_of(options, place), "lines": wanted}, place)
        said = ", ".join(f"{name} {share:.1%}" for name, share in found["shares"].items())
        report.settings[f"replicas over file, {place}"] = said
        report.samples |= found["lines"]
        for name, line in found["lines"].items():
            table.rows.append([*row(name, line, readers), than_elements(line)])
        if has_selections():
            keep(found["lines"], promises)
    conclude(report, table, promises)
    return report


def than_elements(line: dict[str, Any]) -> str:
    """Returns the speedup of a line over the selection of elements, for the table."""
    theirs, ours = line["samples"].get(ELEMENTS), line["samples"][OURS]
    return f"{median(theirs) / median(ours):.1f}" if theirs else "-"


def keep(lines: dict[str, Any], promises: list[Promise]) -> None:
    """Adds the lines of a place to the promises."""
    sparse, exact, elements, overlap, more = promises
    best = ("", 0.0)
    for name, line in lines.items():
        ratio, samples = faster(line), line["samples"]
        is_exact = "/exact/" in name
        (exact if is_exact else overlap).add(name, not is_slower(ratio), ratio.describe())
        if name.endswith("/1.7"):
            sparse.add(name, ratio.median >= SPARSE_MIN, ratio.describe())
        if ELEMENTS not in samples:
            continue
        times = median(samples[ELEMENTS]) / median(samples[OURS])
        if is_exact:
            best = max(best, (name, times), key=lambda one: one[1])
        elif len(samples[ELEMENTS]) == len(samples[OURS]):
            paired = paired_ratio(samples[ELEMENTS], samples[OURS])
            more.add(name, paired.median >= OVERLAP_MIN, paired.describe())
        else:
            more.add(name, times >= OVERLAP_MIN, f"{times:.1f}")
    if best[0]:
        elements.add(best[0], best[1] >= ELEMENTS_MIN, f"{best[1]:.0f}, {best[0]}")
