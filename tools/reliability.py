"""Run the stages of reliability/stages.toml, and compare their counts with the floors.

``reliability.py`` runs all of them, ``reliability.py NAME`` one. Every stage runs whatever became
of those before it; the exit code is 1 when any failed. Stages of one core run two at a time, first;
their output comes when they end.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
COUNT = re.compile(r"^\W*COUNT ([\w-]+) (\d+)$")
# The groups of processes of the stages that run.
RUNNING: set[int] = set()


@dataclass(frozen=True)
class Stage:
    """One stage as the table gives it."""

    name: str
    about: str
    command: list[str]
    minutes: float
    floors: dict[str, int]
    directory: str = "."
    cores: int = 2
    environment: dict[str, str] = field(default_factory=dict)


def load_stages() -> dict[str, Stage]:
    """Read the table; an unknown key is an error."""
    table = tomllib.loads((ROOT / "reliability" / "stages.toml").read_text())
    return {name: Stage(name=name, **fields) for name, fields in table["stage"].items()}


@dataclass
class Outcome:
    """What became of a stage."""

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
    """Run a stage, and judge it."""
    say(f"\n== {stage.name}: {stage.about}\n")
    started = time.monotonic()
    code, counts = run_command(stage, say)
    seconds = time.monotonic() - started
    return Outcome(stage, judge(stage, code, counts, seconds), counts, seconds)


def run_command(stage: Stage, say: Callable[[str], object]) -> tuple[int, dict[str, int]]:
    """Run a stage's command to its end or its limit, say its output, collect its counts."""
    command = [word.replace("{python}", sys.executable) for word in stage.command]
    process = subprocess.Popen(  # noqa: S603 - the table's own words
        command,
        cwd=ROOT / stage.directory,
        env={**os.environ, **stage.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    RUNNING.add(process.pid)
    # The whole group: a stage that hangs has usually started the process that hangs.
    limit = Timer(stage.minutes * 60, os.killpg, (process.pid, signal.SIGKILL))
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
    """What is wrong with the outcome of a stage, in words; nothing if it passed."""
    faults = []
    if seconds >= stage.minutes * 60:
        faults.append(f"stopped at its limit of {stage.minutes} minutes")
    elif code != 0:
        faults.append(f"exit code {code}")
    for name, floor in stage.floors.items():
        if counts.get(name, 0) < floor:
            faults.append(f"{name} {counts.get(name, 0)}, floor {floor}")
    return faults


def say_now(text: str) -> None:
    """Write a line of output as it comes."""
    sys.stdout.write(text)
    sys.stdout.flush()


def run_two_at_a_time(stages: Iterable[Stage]) -> Iterator[Outcome]:
    """Run stages of one core each; what each says comes when it has ended."""

    def run(stage: Stage) -> tuple[Outcome, str]:
        said: list[str] = []
        outcome = run_stage(stage, said.append)
        return outcome, "".join(said)

    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for outcome, said in pool.map(run, stages):
            say_now(said)
            yield outcome


def main(arguments: list[str]) -> int:
    """Run the stages named, or all."""
    stages = load_stages()
    if unknown := [name for name in arguments if name not in stages]:
        sys.stderr.write(f"no such stage: {unknown[0]}; there are: {', '.join(stages)}\n")
        return 2
    chosen = [stages[name] for name in arguments or stages]
    if len(chosen) == 1:
        outcomes = [run_stage(chosen[0], say_now)]
    else:
        outcomes = list(run_two_at_a_time(stage for stage in chosen if stage.cores == 1))
        outcomes += [run_stage(stage, say_now) for stage in chosen if stage.cores != 1]
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    lines = [line for outcome in outcomes for line in outcome.lines()]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    sys.stdout.write(f"reliability: {len(outcomes) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


def stop_all(*_: object) -> None:
    """Interrupt what runs: stages have groups of their own, which a terminal does not reach."""
    for process in list(RUNNING):
        os.killpg(process, signal.SIGINT)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop_all)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
