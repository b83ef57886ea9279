"""Run one step of a recipe, and print and record its seconds.

``step.py "cargo clippy" -- cargo clippy ...`` passes the output and the exit code through.
"""

from __future__ import annotations

import subprocess
import sys
import time

import times


def main(arguments: list[str]) -> int:
    """Run the command after ``--`` under the name before it."""
    name, separator, *command = arguments
    if separator != "--" or not command:
        sys.stderr.write('usage: step.py "name" -- command ...\n')
        return 2
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - the Makefile's own words
    seconds = time.monotonic() - started
    times.record(step=name, seconds=seconds, is_ok=code == 0)
    verdict = "ok" if code == 0 else f"FAILED (exit {code})"
    sys.stdout.write(f"-- {name}: {verdict}, {seconds:.1f} s\n")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
