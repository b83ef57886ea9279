"""Replicas of an unchanged file, made for watched reads and measured.

Two budgets: reads of the whole domain with replicas up to the size of the file, then reads of a hot
region with replicas up to a fifth. Each time Bedform first makes the reads once on the file while
it records them. It learns their patterns, makes replicas, and measures the same reads again.

Sidecars lie in the demo's directory, by ``BEDFORM_SIDECAR`` during the demo. An existing sidecar of
the user or the site is neither read nor written.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

import bedform as bf

from .._text import format_bytes, format_seconds, format_shape
from .files import REPLICAS, DemoOptions, Subject, bytes_below, files_below, prepare
from .picture import Panel, draw
from .race import (
    PLACES,
    QUICK_REPEATS,
    DemoReadTimes,
    bedform_reader,
    h5py_reader,
    hot_region,
    how_cold,
    how_loaded,
    least_cold,
    lines_in,
    measure,
    selections_outside,
    whole,
)
from .table import rows_of, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .field import Field
    from .race import Selection

READERS = ("h5py on the file", "Bedform before", "Bedform after")
# Settings of the user for other reads, which would change the results.
_SETTINGS = ("BEDFORM_CONFIG", "BEDFORM_REPLICAS", "BEDFORM_SIDECAR_BYTES", "BEDFORM_TRACE")


@dataclass(frozen=True)
class BudgetRun:
    """The steps of one budget with their times, and the measured reads."""

    budget: str
    title: str
    watched_reads: int
    watch_seconds: float
    learn_seconds: float
    optimize_seconds: float
    replicas: tuple[str, ...]
    sidecar: str
    sidecar_bytes: int
    #: Fraction of the file's bytes.
    share: float
    results: tuple[DemoReadTimes, ...]
    notes: tuple[str, ...]

    def summary(self) -> str:
        """Returns one sentence on the replicas."""
        if not self.replicas:
            return "no replica was made"
        return (
            f"{', '.join(self.replicas)}; {format_bytes(self.sidecar_bytes)}, "
            f"{self.share:.0%} of the file, made in {format_seconds(self.optimize_seconds)}"
        )


@dataclass(frozen=True)
class Replication:
    """All results of the demo."""

    field: Field
    build_seconds: float
    readers: tuple[str, ...]
    trials: tuple[BudgetRun, ...]
    cold: str
    load: str
    picture: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def render(self) -> Group:
        """Return a table for each budget, and notes."""
        parts: list[Any] = []
        for trial in self.trials:
            parts += [Text(trial.title, style="bold"), rows_of(self.readers, trial.results)]
            parts += texts([trial.summary(), *(f"note: {said}" for said in trial.notes), ""])
        did = (
            "the file stayed as it was: its reads were watched once and learnt, and replicas made "
            "in layouts that fit them"
        )
        how = (
            "each read opens the file, reads and closes it; median of "
            f"{len(PLACES)} places, quick reads {QUICK_REPEATS} times at each, "
            "every answer equal to h5py's"
        )
        lines = [self.field.origin, did, how, self.cold, self.load, *self.notes]
        return Group(*parts, *texts([*lines, f"picture: {self.picture}"]))


def replicate(request: DemoOptions) -> Replication:
    """Build or open the input, make replicas for its reads, measure, draw the picture.

    Raises
    ------
    ModuleNotFoundError
        The package with the built-in field is not installed.
    OSError
        The input cannot be read, or the directory has no room.
    ValueError
        A reader returned other values than the file's.
    """
    subject = prepare(request)
    shape = subject.field.shape
    everywhere, hot = whole(shape), hot_region(shape)
    outside = [selections_outside(hot, shape, place) for place in PLACES]
    sidecars = [subject.named(ending) for ending in REPLICAS]
    is_done = False
    try:
        subject.clear()
        tried = (
            _try(subject, request, "100%", "Reads of the whole domain", sidecars[0], everywhere),
            _try(subject, request, "20%", "Reads of an eighth of it", sidecars[1], hot, outside),
        )
        trials = tuple(trial for trial, _ in tried)
        cold = least_cold([said for _, said in tried])
        done = _concluded(subject, request, trials, cold, how_loaded(), sidecars)
        is_done = True
    finally:
        if not (is_done and request.keep):
            for sidecar in sidecars:
                shutil.rmtree(sidecar, ignore_errors=True)
        if not request.keep:
            subject.forget()
    return done


def _concluded(
    subject: Subject,
    request: DemoOptions,
    trials: tuple[BudgetRun, ...],
    cold: str,
    load: str,
    sidecars: list[Path],
) -> Replication:
    """Draws the picture and writes the kept description."""
    picture = subject.named(".svg")
    panels = [Panel(f"{trial.title}, used {trial.share:.0%}", trial.results) for trial in trials]
    picture.write_text(draw(subject.field, READERS, panels, f"{cold}; {load}"))
    notes: tuple[str, ...] = ()
    if request.keep:
        file = shlex.quote(str(subject.field.path))
        look = f"BEDFORM_SIDECAR={shlex.quote(str(sidecars[0]))} bedform report {file}"
        notes = (f"look: {look}", subject.where(request, *sidecars))
    done = Replication(
        field=subject.field,
        build_seconds=subject.build_seconds,
        readers=READERS,
        trials=trials,
        cold=cold,
        load=load,
        picture=str(picture),
        notes=notes,
    )
    if request.keep:
        subject.named(".json").write_text(json.dumps(done.to_dict(), indent=2))
    return done


def _try(
    subject: Subject,
    request: DemoOptions,
    budget: str,
    about: str,
    sidecar: Path,
    region: list[range],
    outside: list[dict[str, Selection]] | None = None,
) -> tuple[BudgetRun, str]:
    """Watches reads of a region, learns, optimizes and measures; also returns the coldness."""
    field = subject.field
    lines = lines_in(region, field.shape)
    title = f"{about}, budget {budget}"
    sidecar.mkdir(mode=0o700)
    with _sidecar_at(sidecar):
        request.say(f"{title}: watching {len(lines) * len(PLACES)} reads of the file")
        watch_seconds = _watch(field, lines, request)
        started = time.monotonic()
        learned = bf.learn(field.path)
        learn_seconds = time.monotonic() - started
        request.say(f"{title}: learnt in {format_seconds(learn_seconds)}; making replicas")
        started = time.monotonic()
        done = bf.optimize(field.path, budget, progress=request.progress)
        optimize_seconds = time.monotonic() - started
        request.say(f"{title}: made in {format_seconds(optimize_seconds)}; reading again")
        for place in outside or [{}]:
            for kind, selection in place.items():
                lines.setdefault(kind, []).append(selection)
        objects = (*files_below(sidecar), *h5py_reader(field).objects)
        before, after = (
            bedform_reader(field.path, field.variable, objects, replicas=may)
            for may in (False, True)
        )
        readers = (h5py_reader(field), before, after)
        cold = how_cold(objects)
        results = measure(dict(zip(READERS, readers, strict=True)), lines, request.progress)
    stored = bytes_below(sidecar)
    arrays = learned["knowledge"]["arrays"].values()
    trial = BudgetRun(
        budget=budget,
        title=title,
        watched_reads=sum(array["read"]["reads"] for array in arrays),
        watch_seconds=watch_seconds,
        learn_seconds=learn_seconds,
        optimize_seconds=optimize_seconds,
        replicas=tuple(_described(one) for one in done.plan["make"]),
        sidecar=str(sidecar),
        sidecar_bytes=stored,
        share=stored / field.stored_bytes,
        results=results,
        notes=tuple(done.plan["notes"]),
    )
    return trial, cold


def _described(replica: dict[str, Any]) -> str:
    shape, chunks = format_shape(replica["shape"]), format_shape(replica["chunks"])
    return f"a replica of {shape} in chunks of {chunks}, {replica['order']}"


def _watch(field: Field, lines: dict[str, list[Selection]], request: DemoOptions) -> float:
    """Makes every read once while it is recorded."""
    reader = bedform_reader(field.path, field.variable, ())
    started = time.monotonic()
    bf.watch(field.path)
    total = sum(map(len, lines.values()))
    done = 0
    for step in range(len(PLACES)):
        for places in lines.values():
            reader.read(places[step])
            done += 1
            request.progress(done, total)
    bf.watch(field.path, on=False)
    return time.monotonic() - started


@contextmanager
def _sidecar_at(directory: Path) -> Iterator[None]:
    """Keeps all sidecars in a directory, without those of the user and the site."""
    names = ("BEDFORM_SIDECAR", *_SETTINGS)
    with NamedTemporaryFile(prefix="bedform-demo-", suffix=".toml") as nothing:
        were = {name: os.environ.pop(name, None) for name in names}
        os.environ.update(BEDFORM_SIDECAR=str(directory), BEDFORM_CONFIG=nothing.name)
        try:
            yield
        finally:
            for name, value in were.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
