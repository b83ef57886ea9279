"""Run the stages of reliability/stages.toml, and compare their counts with the floors.

``reliability.py`` runs all of them, ``reliability.py NAME`` one. EFFORT=night gives each stage the
time that the table allows for a night. Every stage runs, even after a failure; the exit code is 1
if any failed. Stages that use one core run first, two at a time; each prints its output at its end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
COUNT = re.compile(r"^\W*COUNT ([\w-]+) (\d+)$")
CARGO_TEST = ["cargo", "test", "--locked", "--release", "--quiet", "--workspace"]
EFFORT = os.environ.get("EFFORT") or "gate"
# Nights also allow stages with a fixed number of cases this many times the gate's time limit.
NIGHT_LIMIT = 8
# The process groups of the running stages.
RUNNING: set[int] = set()


@dataclass(frozen=True)
class Stage:
    """One stage of the table."""

    name: str
    about: str
    command: list[str]
    seconds: float = 0
    night_seconds: float = 0
    hang_minutes: float = 0
    counts: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    directory: str = "."
    cores: int = 2
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def budget(self) -> float:
        """The seconds of the stage's random cases; 0 for a fixed number of cases."""
        return self.night_seconds if EFFORT == "night" else self.seconds

    @property
    def limit(self) -> float:
        """The seconds after which the stage counts as hung, even on a machine 8 times slower."""
        by_count = self.hang_minutes * (NIGHT_LIMIT if EFFORT == "night" else 1)
        return 60 * (by_count or 10) + 8 * self.budget

    def least(self) -> Iterator[tuple[str, int]]:
        """The counts that the stage must reach; at night, floors grow with the time."""
        yield from self.counts.items()
        scale = self.budget / self.seconds if self.seconds else 1
        yield from ((name, int(floor * scale)) for name, floor in self.floors.items())

    def filters(self) -> list[str]:
        """The test filters that the stage's cargo command passes to the test binary."""
        _, _, words = " ".join(self.command).partition(" -- ")
        return [word for word in words.split() if not word.startswith("-")]


def load_stages() -> dict[str, Stage]:
    """Read the table; an unknown key is an error."""
    table = tomllib.loads((ROOT / "reliability" / "stages.toml").read_text())
    return {name: Stage(name=name, **fields) for name, fields in table["stage"].items()}


@dataclass
class Outcome:
    """The outcome of a stage."""

    stage: Stage
    faults: list[str]
    counts: dict[str, int]
    seconds: float

    def lines(self) -> list[str]:
        """Return the lines of the summary."""
        said = ", ".join(f"{name} {count}" for name, count in self.counts.items()) or "no counts"
        verdict = "FAILED: " + "; ".join(self.faults) if self.faults else "ok"
        lines = [f"{self.stage.name}: {verdict} ({said}; {self.seconds:.1f} s)"]
        if self.faults:
            lines.append(f"  run it again: make reliability STAGE={self.stage.name}")
        return lines


def run_stage(stage: Stage, say: Callable[[str], object]) -> Outcome:
    """Run a stage, judge its outcome, and record it."""
    say(f"\n== {stage.name}: {stage.about}\n")
    started = time.monotonic()
    code, counts = run_command(stage, say)
    seconds = time.monotonic() - started
    faults = judge(stage, code, counts, seconds)
    times.record(step=stage.name, seconds=seconds, is_ok=not faults, counts=counts)
    return Outcome(stage, faults, counts, seconds)


def run_command(stage: Stage, say: Callable[[str], object]) -> tuple[int, dict[str, int]]:
    """Run a stage's command up to its time limit, print its output, and collect its counts."""
    values = {"{python}": sys.executable, "{seconds}": f"{stage.budget:g}"}
    given = {"BEDFORM_EFFORT": EFFORT}
    if stage.budget:
        given["BEDFORM_STAGE_SECONDS"] = f"{stage.budget:g}"
    process = subprocess.Popen(  # noqa: S603 - the table's own words
        [values.get(word, word) for word in stage.command],
        cwd=ROOT / stage.directory,
        env={**os.environ, **given, **stage.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    RUNNING.add(process.pid)
    # Kills the whole group: usually a child process of the stage hangs.
    limit = Timer(stage.limit, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    counts: dict[str, int] = {}
    try:
        for line in process.stdout or ():
            say(line)
            if found := COUNT.match(line.rstrip()):
                counts[found[1]] = counts.get(found[1], 0) + int(found[2])
        return process.wait(), counts
    finally:
        limit.cancel()
        RUNNING.discard(process.pid)


def judge(stage: Stage, code: int, counts: dict[str, int], seconds: float) -> list[str]:
    """List the faults of a stage's outcome as messages; empty if it passed."""
    faults = []
    if seconds >= stage.limit:
        faults.append(f"hung: stopped after {seconds / 60:.0f} minutes")
    elif code != 0:
        faults.append(f"exit code {code}")
    for name, least in stage.least():
        if counts.get(name, 0) < least:
            faults.append(f"{name} {counts.get(name, 0)}, floor {least}")
    return faults


def say_now(text: str) -> None:
    """Write output immediately."""
    sys.stdout.write(text)
    sys.stdout.flush()


def run_two_at_a_time(stages: Iterable[Stage]) -> Iterator[Outcome]:
    """Run stages that use one core each, two at a time; print the output of each at its end."""

    def run(stage: Stage) -> tuple[Outcome, str]:
        said: list[str] = []
        outcome = run_stage(stage, said.append)
        return outcome, "".join(said)

    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for outcome, said in pool.map(run, stages):
            say_now(said)
            yield outcome


def build_tests() -> bool:
    """Build the binaries of the stages first, so that builds do not use up their time."""
    name, started = "build of the stages", time.monotonic()
    command = [*CARGO_TEST, "--test", "reliability", "--test", "main", "--no-run"]
    is_ok = subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603
    seconds = time.monotonic() - started
    times.record(step=name, seconds=seconds, is_ok=is_ok)
    say_now(f"-- {name}: {'ok' if is_ok else 'FAILED'}, {seconds:.1f} s\n")
    return is_ok


def listed(*options: str) -> set[str]:
    """Return the names of the tests of the binary `reliability`."""
    command = [*CARGO_TEST, "--test", "reliability", "--", "--list", *options]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    return set(re.findall(r"^(\S+): test$", said.stdout, re.MULTILINE))


def misplaced_tests(stages: Iterable[Stage]) -> list[str]:
    """List tests of that binary that neither `make test` nor a stage runs, or that both run."""
    filters = [
        word for stage in stages if "reliability" in stage.command for word in stage.filters()
    ]
    ignored = listed("--ignored")
    faults = []
    for name in sorted(listed()):
        is_in_stage = any(word in name for word in filters)
        if is_in_stage and name not in ignored:
            faults.append(f"{name}: a stage and make test run it: mark it as ignored")
        elif name in ignored and not is_in_stage:
            faults.append(f"{name}: ignored, and in no stage")
    return faults


def main(arguments: list[str]) -> int:
    """Run the stages named, or all."""
    stages = load_stages()
    if EFFORT not in ("gate", "night"):
        sys.stderr.write(f'EFFORT must be "gate" or "night", not "{EFFORT}"\n')
        return 2
    if unknown := [name for name in arguments if name not in stages]:
        sys.stderr.write(f"no such stage: {unknown[0]}; there are: {', '.join(stages)}\n")
        return 2
    chosen = [stages[name] for name in arguments or stages]
    if any(stage.command[0] == "cargo" for stage in chosen):
        faults = misplaced_tests(stages.values()) if build_tests() else ["the build failed"]
        if faults:
            sys.stdout.write("\n".join(faults) + "\nreliability: 0 passed, 1 failed\n")
            return 1
    if len(chosen) == 1:
        outcomes = [run_stage(chosen[0], say_now)]
    else:
        outcomes = list(run_two_at_a_time(stage for stage in chosen if stage.cores == 1))
        outcomes += [run_stage(stage, say_now) for stage in chosen if stage.cores != 1]
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    lines = [line for outcome in outcomes for line in outcome.lines()]
    result = f"reliability: {len(outcomes) - failed} passed, {failed} failed"
    times.record(result=result)
    sys.stdout.write("\n" + "\n".join([*lines, result]) + "\n")
    return 1 if failed else 0


def stop_all(*_: object) -> None:
    """Interrupt running stages; a terminal does not reach their process groups."""
    for process in list(RUNNING):
        os.killpg(process, signal.SIGINT)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop_all)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
