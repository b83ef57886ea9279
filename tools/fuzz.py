"""Build the fuzz targets and run them, two at a time.

``fuzz.py [--seconds N] [--targets a,b]`` prints counts for reliability/stages.toml, and for every
crash the input and the command that repeats it. The canary, a target that must fail, proves that
failures are detected.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
TARGETS = re.findall(
    r'^    \("(\w+)", \w+\),$', (FUZZ / "src/targets.rs").read_text(), re.MULTILINE
)
# Coverage for libFuzzer, by the compiler's own passes, so that a stable toolchain suffices.
FLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    " -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    " -Cllvm-args=-sanitizer-coverage-pc-table"
    " -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
)
LIMITS = ["-timeout=1", "-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"]
# For an input with a limit of CPU time instead.
PATIENT = ["-timeout=3600", *LIMITS[1:]]
EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
PROGRESS = re.compile(r"^#(\d+)\s", re.MULTILINE)
ARTIFACT = re.compile(r"Test unit written to (\S+)")


def build() -> Path:
    """Build the fuzzer with instrumentation, and return its path."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True)  # noqa: S607
    triple = re.findall(r"^host: (\S+)$", version.stdout, re.MULTILINE)[0]
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", triple]
    subprocess.run(command, check=True, cwd=FUZZ, env={**os.environ, "RUSTFLAGS": FLAGS})  # noqa: S603
    return FUZZ / "target" / triple / "release" / "bedform-fuzz"


def run(binary: Path, target: str, arguments: list[str]) -> tuple[int, str]:
    """Run libFuzzer on a target; return its exit code and its output."""
    environment = {**os.environ, "BEDFORM_FUZZ_TARGET": target}
    done = subprocess.run(  # noqa: S603
        [binary, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    return done.returncode, done.stdout


def executions(said: str) -> int:
    """Return the number of inputs that a run has tried, from its output."""
    if found := EXECUTIONS.search(said):
        return int(found[1])
    return max((int(number) for number in PROGRESS.findall(said)), default=0)


def slowness() -> float:
    """Return the slowdown of this machine relative to an idle core of 3 GHz; at least 1."""
    started = time.thread_time()
    for _ in range(2_000_000):
        pass
    return max(1.0, (time.thread_time() - started) / 0.05)


def is_hiccup(binary: Path, target: str, artifact: str) -> bool:
    """Return True if an input that took a second on a busy machine takes less CPU time."""
    if not Path(artifact).name.startswith("timeout-"):
        return False
    return any(is_fast(binary, target, artifact) for _ in range(3))


def is_fast(binary: Path, target: str, artifact: str) -> bool:
    """Return True if a process for one input ends well within a second of CPU time."""
    # Seconds of CPU time, which the kernel counts regardless of other processes.
    most = math.ceil(slowness())
    done = subprocess.run(  # noqa: S603
        ["sh", "-c", f'ulimit -t {most}; exec "$0" "$@"', binary, *PATIENT, artifact],  # noqa: S607
        check=False,
        capture_output=True,
        env={**os.environ, "BEDFORM_FUZZ_TARGET": target},
    )
    return done.returncode == 0


def fuzz(binary: Path, target: str, seconds: float) -> tuple[int, list[str]]:
    """Fuzz a target; return the number of inputs tried, and the failures."""
    corpus = FUZZ / "target" / "corpus" / target
    artifacts = FUZZ / "target" / "artifacts" / target
    for directory in (corpus, artifacts):
        directory.mkdir(parents=True, exist_ok=True)
    seeds = [
        str(path) for path in (FUZZ / "seeds" / target, FUZZ / "crashers" / target) if path.is_dir()
    ]
    tried, faults = 0, []
    deadline = time.monotonic() + seconds
    while not faults and (left := deadline - time.monotonic()) > 1:
        options = [*LIMITS, f"-max_total_time={int(left)}", f"-artifact_prefix={artifacts}/"]
        code, said = run(binary, target, [*options, str(corpus), *seeds])
        tried += executions(said)
        if code == 0:
            break
        found = ARTIFACT.search(said)
        if not (found and is_hiccup(binary, target, found[1])):
            where = found[1] if found else "(no input)"
            repeat = f"BEDFORM_FUZZ_TARGET={target} {binary} {where}"
            faults.append("\n".join([*said.splitlines()[-25:], f"to repeat: {repeat}"]))
    return tried, faults


def main() -> int:
    """Fuzz every target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="for each target")
    parser.add_argument("--targets", default=",".join(TARGETS))
    options = parser.parse_args()
    targets = options.targets.split(",")
    binary = build()
    # Ends at its first failure, or at this limit: then the fuzzer does not work.
    code, said = run(
        binary, "canary", [*LIMITS, "-max_total_time=1200", "-artifact_prefix=/dev/null-"]
    )
    canary = code != 0 and "the canary has been found" in said
    sys.stdout.write(f"COUNT canary {int(canary)}\n")
    failed = not canary
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = pool.map(lambda target: fuzz(binary, target, options.seconds), targets)
        for target, (tried, faults) in zip(targets, outcomes, strict=True):
            sys.stdout.write(f"{target}: {tried} inputs, {'FAILED' if faults else 'ok'}\n")
            for fault in faults:
                sys.stdout.write(fault + "\n")
            sys.stdout.write(f"COUNT executions {tried}\nCOUNT targets {int(not faults)}\n")
            sys.stdout.flush()
            failed = failed or bool(faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
