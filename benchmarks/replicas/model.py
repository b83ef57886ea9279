"""`replica-model`: the layout that the cost model ranks first, against the fastest one.

Arrays of one, two and three axes lie in several layouts (`orders.py`). The eight selections are
those of table 3.3 of the paper; a hundred random boxes are read as well. Each is explained in every
layout, from the profile of the place alone, before any is read (`BEDFORM_REFINE=0`). The layout
with the fewest predicted cold seconds is the model's choice: redirection and `optimize` compare the
same figure. Then all are read, round by round. A read runs in a forked child that has just opened
the store, cold from the disk and from a slow store, and from the page cache.

The fastest of several layouts may owe its rank to chance. So it and the choice are read again, in
separate rounds, and only these count. The choice is as good as the best if it is the best, or if
the interval of the ratios of these rounds includes 1: a tie. A layout that took over twice the
fastest in the first round is not read again.

Section 3.3.6 of the paper: the best layout in 8 of 8.
"""

from __future__ import annotations

import importlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.promises import Promise, conclude
from benchmarks.harness.report import Report, Table, milliseconds
from benchmarks.harness.rounds import interleave
from benchmarks.harness.slow_store import THROTTLES
from benchmarks.harness.statistics import Ratio, median, paired_ratio
from benchmarks.replicas.orders import (
    CHUNK_ELEMENTS,
    GATHERED,
    LITTLE_SHAPES,
    ORIGINAL,
    QUICK_CHUNK_ELEMENTS,
    QUICK_SHAPES,
    SHAPES,
    Copies,
    copies_of,
    eight,
    in_words,
    random_selections,
)
from benchmarks.replicas.readers import has_lists
from benchmarks.replicas.trials import (
    forget_replicas,
    in_process,
    job_of,
    keep_profile,
    sidecar_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from benchmarks.harness.options import Options
    from benchmarks.replicas.fields import Field, Selection

NAME = "replica-model"
EIGHT, RANDOM = "eight", "random"
NEAR, NEAR_SHARE = 1.10, 0.95
COUNT, QUICK_COUNT = 100, 6
#: Rounds of random selections in all layouts, and of a choice against the best.
SURVEY_ROUNDS, PAIR_ROUNDS = 3, 7
#: A layout that takes this multiple of the fastest in the first round is not the best.
FAR = 2.0
CALIBRATIONS_MAX = 3
CALIBRATION_SECONDS, QUICK_CALIBRATION_SECONDS = 6.0, 2.0
#: The ways of reading, with the predicted figure of each.
PREDICTIONS = {"cold": "predicted_cold_seconds", "cached": "predicted_cached_seconds"}
#: The place of cached reads, which a throttle does not slow down.
CACHED_PLACE = "disk"
FACTS = (*PREDICTIONS.values(), "mostly", "mostly_cached", "objects", "requests", "bytes", "chunks")
LETTERS = ("R", "T", "Ty", "Tz", "Z", "H", "A", "C")


@dataclass(frozen=True)
class Case:
    """A selection of an array in several layouts, and a small selection of the same form."""

    copies: Copies
    little: Copies
    selection: Selection
    little_selection: Selection
    has_gathered: bool

    @property
    def names(self) -> list[str]:
        """The layouts of the selection."""
        return [ORIGINAL, *self.copies.layouts, *([GATHERED] if self.has_gathered else [])]

    def explained(self, layout: str) -> dict[str, Any]:
        """Returns the model's prediction, made in a process that has not read the store."""
        found = in_child(self.copies.explain, layout, self.selection)
        return {name: found.get(name) for name in FACTS}

    def cold(self, layout: str, wanted: np.ndarray[Any, Any]) -> float:
        """Returns the seconds of a read without cached data."""
        path = self.copies.path(layout)
        for one in filter(Path.exists, (path, sidecar_of(path))):
            cold.make_cold(one)
        return self.cached(layout, wanted)

    def cached(self, layout: str, wanted: np.ndarray[Any, Any]) -> float:
        """Returns the seconds of a read with the page cache as it is."""
        return float(in_child(self.timed, layout, wanted))

    def timed(self, layout: str, wanted: np.ndarray[Any, Any]) -> float:
        """Opens, reads and closes; returns the seconds of the read, after a check of the answer."""
        # Loads the pages of the code, which were dropped with those of the data.
        self.little.read(layout, self.little_selection)
        with bf.open(self.copies.path(layout), replicas=layout == GATHERED) as store:
            array: Any = store[self.copies.of.name]
            chosen = array.oindex if has_lists(self.selection) else array
            began = time.perf_counter()
            found = chosen[self.selection]
            seconds = time.perf_counter() - began
        if found.shape != wanted.shape or not (found == wanted).all():
            raise RuntimeError(f"wrong values of {self.selection} in {layout}")
        return seconds

    def compare(self, rounds: int, pair_rounds: int, is_cached: bool) -> dict[str, Any]:
        """Predicts, then reads in every way; returns both."""
        plans = {name: self.explained(name) for name in self.names}
        wanted = self.copies.of.of(self.selection)
        ways: dict[str, Callable[[str, np.ndarray[Any, Any]], float]] = {"cold": self.cold}
        if is_cached:
            ways["cached"] = self.cached
        found: dict[str, Any] = {"selection": in_words(self.selection), "plans": plans}
        for way, read in ways.items():

            def once(layout: str, read: Any = read) -> float:
                return float(read(layout, wanted))

            if way == "cached":
                for name in self.names:
                    once(name)
            # The engine chooses by the price of a cold read, also for cached data.
            predicted = {name: plans[name][PREDICTIONS["cold"]] for name in self.names}
            chosen = min(self.names, key=lambda name: predicted[name])
            found[way] = contest(self.names, chosen, once, rounds, pair_rounds)
        return found


def contest(
    names: list[str], chosen: str, once: Callable[[str], float], rounds: int, pair_rounds: int
) -> dict[str, Any]:
    """Finds the fastest layout, and compares the chosen one with it.

    >>> contest(["R", "Z"], "Z", lambda name: {"R": 1.0, "Z": 1.5}[name], 2, 3)["best"]
    'R'
    """
    first = {name: once(name) for name in names}
    left = [name for name in names if name == chosen or first[name] <= FAR * min(first.values())]
    samples = {name: [first[name]] for name in names}
    for name, seconds in interleave(left, rounds - 1, once).items():
        samples[name] += seconds
    best = min(left, key=lambda name: median(samples[name]))
    found: dict[str, Any] = {"samples": samples, "chosen": chosen, "best": best}
    if best != chosen:
        found["again"] = interleave([chosen, best], pair_rounds, once)
    return found


def ratio_of(found: dict[str, Any]) -> Ratio:
    """Return the time of the chosen layout over that of the best one."""
    again = found.get("again")
    if not again:
        return Ratio(1.0, 1.0, 1.0)
    return paired_ratio(again[found["chosen"]], again[found["best"]])


def is_as_good(found: dict[str, Any]) -> bool:
    """Whether the chosen layout is the best one, or tied with it."""
    return ratio_of(found).low <= 1


def little_selection(of: Field, selection: Selection) -> Selection:
    """Return a selection of the same form of a little array."""
    if has_lists(selection):
        return (list(range(of.shape[0] // 2, of.shape[0] * 3 // 4, 2)),)
    return tuple(
        length // 2 if isinstance(one, int) else slice(length // 2, length * 3 // 4)
        for one, length in zip(selection, of.shape, strict=True)
    )


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measures all lines of a place, in a separate process."""
    importlib.import_module("netCDF4")
    is_quick, is_slow = job["quick"], job["place"] != CACHED_PLACE
    place = data.ROOT / NAME
    place.mkdir(parents=True, exist_ok=True)
    shapes = QUICK_SHAPES if is_quick else SHAPES
    elements = QUICK_CHUNK_ELEMENTS if is_quick else CHUNK_ELEMENTS
    copies = {rank: copies_of(place, shapes[rank], elements) for rank in shapes}
    little = {rank: copies_of(place, LITTLE_SHAPES[rank], QUICK_CHUNK_ELEMENTS) for rank in shapes}
    for one in (*copies.values(), *little.values()):
        one.build()
    if is_slow:
        keep_profile(place)
    else:
        seconds = QUICK_CALIBRATION_SECONDS if is_quick else CALIBRATION_SECONDS
        in_child(calibrate, str(place), seconds)
    groups = {
        EIGHT: (eight(shapes), job["rounds"], job["rounds"]),
        RANDOM: (
            random_selections(shapes, QUICK_COUNT if is_quick else COUNT),
            SURVEY_ROUNDS,
            PAIR_ROUNDS,
        ),
    }
    found: dict[str, Any] = {}
    for group in job["groups"]:
        selections, rounds, pair_rounds = groups[group]
        for name, (rank, selection, is_gathered) in selections.items():
            other = little_selection(little[rank].of, selection)
            # A replica may not be worth making for the small selection: it is then read without.
            made = is_gathered and copies[rank].gather(selection)
            if made:
                little[rank].gather(other)
            case = Case(copies[rank], little[rank], selection, other, made)
            found[f"{group}/{name}"] = case.compare(rounds, pair_rounds, not is_slow)
            for one in (copies[rank], little[rank]):
                forget_replicas(one.path(ORIGINAL))
    return {"found": found, "profile": profile_of(str(place))}


def calibrate(place: str, seconds: float) -> None:
    """Measures the disk, again while the profile reports other load; keeps the last profile."""
    for _ in range(CALIBRATIONS_MAX):
        notes = bf.calibrate(place, seconds=seconds).notes
        if not any("calibrate again" in note for note in notes):
            return


def profile_of(place: str) -> dict[str, Any]:
    """Returns the profile behind the predictions."""
    kept = bf.Profile.for_path(place)
    facts: dict[str, Any] = kept.to_dict()["profile"] if kept else {}
    return facts


def row(name: str, found: dict[str, Any], way: str) -> list[str]:
    """Returns the row of a selection: predicted and measured milliseconds of each layout."""
    cells = [f"{name}, {way}", found["selection"]]
    for letter in LETTERS:
        if letter not in found["plans"]:
            cells.append("-")
            continue
        predicted = found["plans"][letter][PREDICTIONS[way]]
        taken = milliseconds(median(found[way]["samples"][letter]))
        cells.append(f"{milliseconds(predicted)} / {taken}")
    told = found[way]
    ratio = "-" if told["chosen"] == told["best"] else ratio_of(told).describe()
    return [*cells, told["chosen"], told["best"], ratio]


def summary(name: str, of: list[dict[str, Any]]) -> list[str]:
    """Returns the row of a group of selections."""
    ratios = [ratio_of(one) for one in of]
    same = sum(one["chosen"] == one["best"] for one in of)
    near = sum(ratio.median <= NEAR for ratio in ratios)
    return [
        name,
        str(len(of)),
        str(same),
        str(sum(map(is_as_good, of)) - same),
        str(near),
        f"{max(ratio.median for ratio in ratios):.2f}",
    ]


COLUMNS = ["line", "selection", *LETTERS, "chosen", "best", "chosen / best"]


@dataclass
class Tables:
    """The tables of all places, and the promises."""

    each: Table = field(
        default_factory=lambda: Table(
            "Milliseconds, predicted / measured, of reads after opening", COLUMNS
        )
    )
    far: Table = field(
        default_factory=lambda: Table(f"Random selections beyond {NEAR:.2f}", COLUMNS)
    )
    counts: Table = field(
        default_factory=lambda: Table(
            "Choices",
            ["line", "selections", "the best", "ties", f"within {NEAR - 1:.0%}", "worst"],
            note="A tie: another layout is the best, and the interval of the ratios includes 1.",
        )
    )
    best: Promise = field(
        default_factory=lambda: Promise("eight selections: the choice is the best layout, or a tie")
    )
    near: Promise = field(
        default_factory=lambda: Promise(
            f"random selections: within {NEAR - 1:.0%} of the best in {NEAR_SHARE:.0%}"
        )
    )

    def add(self, place: str, group: str, of: dict[str, Any], way: str) -> None:
        """Add a group of selections, read in one way."""
        line, these = f"{place}/{group}, {way}", [one[way] for one in of.values()]
        self.counts.rows.append(summary(line, these))
        for name, one in of.items():
            if group == EIGHT:
                self.each.rows.append(row(f"{place}/{name}", one, way))
            elif ratio_of(one[way]).median > NEAR:
                self.far.rows.append(row(f"{place}/{name}", one, way))
        # No choice is made for cached data; they are measured to show the cost of the other
        # layouts.
        if way != "cached":
            self.judge(place, group, of, way)

    def judge(self, place: str, group: str, of: dict[str, Any], way: str) -> None:
        """Compares the promises for a group with the measurements."""
        if group == EIGHT:
            for name, one in of.items():
                ratio = ratio_of(one[way]).describe()
                self.best.add(f"{place}/{name}", is_as_good(one[way]), ratio)
            return
        within = sum(ratio_of(one[way]).median <= NEAR for one in of.values())
        is_kept = within >= math.ceil(NEAR_SHARE * len(of))
        self.near.add(f"{place}/{group}, {way}", is_kept, f"{within} of {len(of)}")


def run(options: Options) -> Report:
    """Runs the requested lines."""
    named = {"lines": ", ".join(options.only)} if options.only else {}
    rounds = max(options.rounds, 3)
    report = Report(NAME, options.command, {"rounds": str(rounds), **named})
    shapes = (QUICK_SHAPES if options.quick else SHAPES).values()
    report.settings |= {
        "arrays": ", ".join("x".join(map(str, shape)) for shape in shapes) + " float32",
        "rounds of random selections": f"{SURVEY_ROUNDS}, of choice and best {PAIR_ROUNDS}",
        "slow store": THROTTLES["slow store"],
    }
    tables = Tables()
    for place in THROTTLES:
        groups = [group for group in (EIGHT, RANDOM) if options.wants(f"{place}/{group}")]
        if not groups:
            continue
        job = {**job_of(options, place), "groups": groups}
        told = in_process("model", job, place, BEDFORM_REFINE="0")
        report.samples[place] = told
        if place == CACHED_PLACE and told["profile"]["notes"]:
            report.settings["profile says"] = "; ".join(told["profile"]["notes"])
        for group in groups:
            of = {n: one for n, one in told["found"].items() if n.split("/")[0] == group}
            for way in PREDICTIONS:
                if all(way in one for one in of.values()):
                    tables.add(place, group, of, way)
    report.tables += [table for table in (tables.far, tables.counts) if table.rows]
    conclude(report, tables.each, [tables.best, tables.near])
    return report
