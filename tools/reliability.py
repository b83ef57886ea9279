"""Run the stages of reliability/stages.toml, and compare their counts with the floors.

``reliability.py`` runs all of them, ``reliability.py NAME`` one. Every stage runs whatever became
of those before it; the exit code is 1 when any failed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).resolve().parent.parent
COUNT = re.compile(r"^\W*COUNT ([\w-]+) (\d+)$")


@dataclass(frozen=True)
class Stage:
    """One stage as the table gives it."""

    name: str
    about: str
    command: list[str]
    minutes: float
    floors: dict[str, int]
    directory: str = "."
    environment: dict[str, str] = field(default_factory=dict)


def load_stages() -> dict[str, Stage]:
    """Read the table; an unknown key is an error."""
    table = tomllib.loads((ROOT / "reliability" / "stages.toml").read_text())
    return {name: Stage(name=name, **fields) for name, fields in table["stage"].items()}


def run_command(stage: Stage) -> tuple[int, dict[str, int]]:
    """Run a stage's command to its end or its limit, echo its output, collect its counts."""
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
    # The whole group: a stage that hangs has usually started the process that hangs.
    limit = Timer(stage.minutes * 60, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    counts: dict[str, int] = {}
    try:
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            if found := COUNT.match(line.rstrip()):
                counts[found[1]] = counts.get(found[1], 0) + int(found[2])
        return process.wait(), counts
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        raise
    finally:
        limit.cancel()


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


def main(arguments: list[str]) -> int:
    """Run the stages named, or all."""
    stages = load_stages()
    if unknown := [name for name in arguments if name not in stages]:
        sys.stderr.write(f"no such stage: {unknown[0]}; there are: {', '.join(stages)}\n")
        return 2
    failed = 0
    summary = []
    for stage in [stages[name] for name in arguments or stages]:
        sys.stdout.write(f"\n== {stage.name}: {stage.about}\n")
        sys.stdout.flush()
        started = time.monotonic()
        code, counts = run_command(stage)
        seconds = time.monotonic() - started
        faults = judge(stage, code, counts, seconds)
        failed += bool(faults)
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        verdict = "FAILED: " + "; ".join(faults) if faults else "ok"
        summary.append(f"{stage.name}: {verdict} ({said or 'no counts'}; {seconds:.1f} s)")
        if faults:
            summary.append(f"  run it again: make reliability STAGE={stage.name}")
    sys.stdout.write("\n" + "\n".join(summary) + "\n")
    sys.stdout.write(f"reliability: {len(arguments or stages) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
