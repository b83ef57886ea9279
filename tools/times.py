"""Collect the seconds of the steps of a gate, and print them as one table.

``times.py begin`` starts the file that BEDFORM_TIMES names. `step.py` and `reliability.py` add a
line for each step and stage to that file. Where the variable is not set they add nothing: a step
that is run by hand changes no table. ``times.py show`` prints the table, ``times.py keep PAGE``
writes it to a page.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def record(**line: object) -> None:
    """Add a line to the file of the running gate, if any."""
    if name := os.environ.get("BEDFORM_TIMES"):
        with Path(name).open("a") as file:
            file.write(json.dumps(line) + "\n")


def begin() -> None:
    """Start the file with the time and the machine."""
    Path(os.environ["BEDFORM_TIMES"]).write_text("")
    record(
        began=time.time(),
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        effort=os.environ.get("EFFORT") or "gate",
    )


class Gate:
    """The content of the file: one gate with its steps."""

    def __init__(self) -> None:
        text = Path(os.environ["BEDFORM_TIMES"]).read_text()
        self.head, *lines = map(json.loads, text.splitlines())
        self.steps = [line for line in lines if "step" in line]
        self.results = [line["result"] for line in lines if "result" in line]

    def about(self) -> str:
        """Describe when, where and how long the gate ran, in one line."""
        head = self.head
        began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(head["began"]))
        return (
            f"{began} UTC, {head['cores']} cores, load {head['load']:.1f} at the start, "
            f"effort {head['effort']}: {time.time() - head['began']:.0f} s in all"
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, seconds and counts of each step; a failure stands before the counts."""
        rows = []
        for step in self.steps:
            counts = [f"{name} {count:,}" for name, count in step.get("counts", {}).items()]
            verdict = [] if step["is_ok"] else ["FAILED"]
            rows.append((step["step"], f"{step['seconds']:.1f}", ", ".join(verdict + counts)))
        return rows


def show(gate: Gate) -> None:
    """Print the table, and last the results as the runners of tests print them."""
    rows = [("step", "s", "counts"), *gate.rows()]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{name:{width}} {seconds:>8}  {counts}".rstrip() for name, seconds, counts in rows]
    sys.stdout.write("\n".join(["", *lines, "", f".ci/run: {gate.about()}", *gate.results, ""]))


def keep(gate: Gate, page: Path) -> None:
    """Write the table as a page."""
    rows = [f"| {name} | {seconds} | {counts} |" for name, seconds, counts in gate.rows()]
    page.write_text(
        "# Times of the gate\n\n"
        "Reference, for maintainers: the seconds of each step of the last `.ci/run` that passed,\n"
        "and the counts of its stages. Stages of one core run two at a time.\n\n"
        f"{gate.about()}.\n\n| step | s | counts |\n|---|---:|---|\n" + "\n".join(rows) + "\n"
    )


def main(arguments: list[str]) -> int:
    """Run the command of the first argument."""
    match arguments:
        case ["begin"]:
            begin()
        case ["show"]:
            show(Gate())
        case ["keep", page]:
            keep(Gate(), Path(page))
        case _:
            sys.stderr.write("usage: times.py begin | show | keep PAGE\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
