"""`bedform run`: a program's reads are unchanged, and the kernel reads ahead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from native import PROGRAMS, STRICT, needed, run
from support import PATIENCE, command_line

from bedform import _run
from bedform._run_report import read_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

BLOCK, STRIDE = 8192, 40960
WAYS = [
    "sequential", "strided", "nested", "hours", "random", "calls", "forks", "threads", "reuse",
    "ends", "many", "cancelled", "handler", "last-thread", "mapped", "executed", "killed",
    "confined", "forks-of-threads",
]  # fmt: skip

pytestmark = pytest.mark.skipif(not _run.LIBRARY.exists(), reason="make build builds the library")


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that reads in many ways."""
    program = tmp_path_factory.mktemp("programs") / "reads"
    compiler = needed("cc", "apt-get install gcc")
    run(compiler, *STRICT, PROGRAMS / "reads.c", "-o", program, "-lpthread")
    return program


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight megabytes of noise, on the device."""
    path = tmp_path_factory.mktemp("data") / "noise.dat"
    with path.open("wb") as file:
        file.write(np.random.default_rng(3).bytes(8_000_000))
        os.fsync(file.fileno())
    return path


def started(
    *command: str | Path, watched: bool, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program with or without the library."""
    more = {**_run.RunOptions().environment(), "LD_PRELOAD": str(_run.LIBRARY), **environment}
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **(more if watched else {})},
    )


def reported(*command: str | Path, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Runs a program under `bedform run`; returns its exit code and the report."""
    words = [*command_line(), "run", "--report", "-", *options, "--", *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, json.loads(done.stderr)


def of_file(report: dict[str, Any], path: Path) -> dict[str, Any]:
    [found] = [entry for entry in report["files"] if entry["path"] == str(path)]
    return found


def shares(entry: dict[str, Any]) -> dict[str, float]:
    return {pattern["kind"]: pattern["share_of_reads"] for pattern in entry["patterns"]}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_reads_fails_and_ends_as_without(way: str, reads: Path, data: Path) -> None:
    alone = started(reads, way, data, watched=False)
    watched = started(reads, way, data, watched=True)
    assert (watched.returncode, watched.stdout, watched.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )
    assert alone.returncode == (-signal.SIGKILL if way == "killed" else 0)


@pytest.mark.parametrize("way", ["calls", "strided", "ends"])
def test_programs_with_checked_calls_are_seen_too(way: str, data: Path, tmp_path: Path) -> None:
    program = tmp_path / "checked"
    compiler = needed("cc", "apt-get install gcc")
    # The compiler replaces read, pread and fread by checked versions.
    options = [*STRICT, "-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
    run(compiler, *options, PROGRAMS / "reads.c", "-o", program, "-lpthread")
    alone = started(program, way, data, watched=False)
    assert started(program, way, data, watched=True).stdout == alone.stdout
    _, report = reported(program, way, data)
    assert of_file(report, data)["reads"] >= 40


def test_what_comes_next_is_in_memory_before_it_is_read(reads: Path, data: Path) -> None:
    alone = started(reads, "ahead", data, watched=False)
    if "always" in alone.stdout:
        pytest.skip("the files of the tests are in memory always")
    assert alone.stdout.startswith("not ahead")
    # On a busy machine the advice comes late.
    watched = started(reads, "ahead", data, watched=True, LOOKS=str(25 * PATIENCE))
    assert watched.stdout.startswith("ahead")
    # With watching only, nothing is advised.
    watching = started(reads, "ahead", data, watched=True, BEDFORM_RUN_ADVISE="0")
    assert watching.stdout.startswith("not ahead")


def test_the_report_counts_reads_bytes_and_patterns(reads: Path, data: Path) -> None:
    code, report = reported(reads, "strided", data)
    assert code == report["exit_code"] == 0
    entry = of_file(report, data)
    assert (entry["reads"], entry["bytes"]) == (100, 100 * BLOCK)
    # Three reads establish a stride.
    assert shares(entry) == {"strided": 0.97}
    assert entry["used_bytes"] == 97 * BLOCK
    assert 97 * BLOCK <= entry["advised_bytes"] <= data.stat().st_size
    assert [process["program"] for process in report["processes"]] == [str(reads)]


def test_strides_of_strides_are_predicted_but_for_a_few(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "nested", data)[1], data)
    assert entry["reads"] == 4 * 5 * 6
    assert shares(entry)["strided"] == pytest.approx(1 - (3 + 2 * 2) / 120, abs=1e-3)


def test_what_is_read_from_front_to_back_is_left_to_the_kernel(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "sequential", data)[1], data)
    assert shares(entry)["contiguous"] > 0.99
    assert entry["advised_bytes"] == 0


def test_random_reads_are_not_advised_of(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "random", data)[1], data)
    assert entry["reads"] == 500
    assert entry["predicted_share"] < 0.01
    assert entry["advised_bytes"] == 0


def test_every_call_that_reads_is_seen_at_its_place(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "calls", data)[1], data)
    assert (entry["reads"], entry["bytes"]) == (60, 60 * BLOCK)
    assert shares(entry) == {"strided": pytest.approx(57 / 60, abs=1e-4)}


def test_each_process_counts_its_own_reads(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "forks", data)[1], data)
    assert entry["processes"] == 7
    assert entry["reads"] == 30 + 6 * (40 + 20) + 30


def test_threads_that_read_the_same_strides_are_told_apart(reads: Path, data: Path) -> None:
    report = reported(reads, "threads", data)[1]
    entry = of_file(report, data)
    # Reads left out while another thread is descheduled are counted, except one per thread.
    counted = entry["reads"] + report["unseen"]["reads_left_out"]
    assert 8 * 5 * 80 - 8 <= counted <= 8 * 5 * 80
    assert entry["predicted_share"] > 0.5


@pytest.mark.parametrize(("way", "code", "count"), [("killed", 137, 50), ("executed", 0, 150)])
def test_who_is_killed_or_replaced_leaves_what_was_counted(
    way: str, code: int, count: int, reads: Path, data: Path
) -> None:
    found, report = reported(reads, way, data)
    assert found == report["exit_code"] == code
    assert of_file(report, data)["reads"] == count


def test_descriptors_that_become_other_files_are_counted_as_these(reads: Path, data: Path) -> None:
    report = reported(reads, "reuse", data)[1]
    counts = [of_file(report, path)["reads"] for path in (data, reads)]
    # Of the program file, which is shorter than a stride, one read returns bytes.
    assert counts == [4 * 12, 6]


def test_hours_that_repeat_every_day_are_predicted(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "hours", data)[1], data)
    assert entry["reads"] == 4 * 8
    # Two repetitions of the sequence of four steps, and one more read.
    assert shares(entry) == {"composed": pytest.approx(1 - 9 / 32, abs=1e-4)}
    assert entry["used_bytes"] == (32 - 9) * BLOCK


def test_what_is_mapped_is_named_as_not_seen(reads: Path, data: Path) -> None:
    report = reported(reads, "mapped", data)[1]
    assert report["unseen"]["mapped_files"] == [str(data)]
    assert report["files"] == []


def test_copies_that_the_kernel_makes_are_named_as_not_seen(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    script = f"import shutil; shutil.copyfile({str(data)!r}, {str(copy)!r})"
    code, report = reported(sys.executable, "-c", script)
    assert code == 0
    assert copy.read_bytes() == data.read_bytes()
    assert not [entry for entry in report["files"] if entry["path"] == str(data)]
    assert "copies by the kernel (copy_file_range, sendfile: cp)" in report["unseen"]["note"]


def test_reads_below_the_limit_are_counted_and_not_followed(reads: Path, data: Path) -> None:
    entry = of_file(reported(reads, "strided", data, options=("--min", "16KiB"))[1], data)
    assert (entry["reads"], entry["followed_reads"], entry["advised_bytes"]) == (100, 0, 0)


def test_python_itself_runs_and_is_watched(data: Path) -> None:
    program = (
        "import os, sys, subprocess; file = os.open(sys.argv[1], 0);"
        "found = [len(os.pread(file, 8192, at * 40960)) for at in range(100)];"
        "subprocess.run([sys.executable, '-c', ''], check=True);"
        "import multiprocessing as m;"
        "print(m.get_context('fork').Pool(2).map(abs, found) == [8192] * 100)"
    )
    words = [sys.executable, "-W", "ignore", "-c", program, data]
    assert started(*words, watched=True).stdout == "True\n"
    assert of_file(reported(*words)[1], data)["reads"] == 100


def test_more_files_than_there_are_records_are_counted_together(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}.dat").write_bytes(bytes(5000))
    program = (
        "import os, sys\n"
        "for number in range(600):\n"
        "    os.read(os.open(f'{sys.argv[1]}/{number}.dat', 0), 9999)"
    )
    report = reported(sys.executable, "-S", "-c", program, tmp_path)[1]
    alone = [entry for entry in report["files"] if entry["path"].startswith(str(tmp_path))]
    others = report["files_without_record"]
    assert len(alone) + others["files"] >= 600
    assert len(alone) > 400
    assert sum(entry["bytes"] for entry in [*alone, others]) >= 600 * 5000


def test_without_a_report_the_program_takes_the_place_of_the_command(
    reads: Path, data: Path
) -> None:
    show = "import os; print(os.getpid(), os.environ['LD_PRELOAD'])"
    words = [*command_line(), "run", "--", sys.executable, "-c", show]
    environment = {**os.environ, "LD_PRELOAD": "libc.so.6"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.communicate(timeout=PATIENCE)[0] == f"{child.pid} libc.so.6:{_run.LIBRARY}\n"
    done = subprocess.run([*command_line(), "run", "sh", "-c", "exit 7"], check=False)
    assert done.returncode == 7


def test_signals_reach_a_program_that_is_reported_on(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    place = tmp_path / "report.json"
    words = [*command_line(), "run", "--report", str(place), "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.communicate(timeout=PATIENCE)[0] == "caught\n"
    assert child.returncode == json.loads(place.read_text())["exit_code"] == 3


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is linked statically."""
    program = tmp_path_factory.mktemp("static") / "static"
    source = program.with_suffix(".c")
    source.write_text("int main(void) { return 5; }\n")
    run(needed("cc", "apt-get install gcc"), "-static", source, "-o", program)
    return program


def refused(bedform_command: Bedform, *command: str | Path) -> str:
    done = bedform_command("run", "--report", "-", *map(str, command))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def test_programs_that_cannot_be_watched_are_refused_in_one_line(
    static: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    said = refused(bedform_command, static)
    assert f"'{static}' is linked statically" in said
    assert "--force" in said
    script = tmp_path / "script"
    script.write_text(f"#! {static} -x\n")
    script.chmod(0o755)
    assert f"'{script}' is run by '{static}', which is linked" in refused(bedform_command, script)
    forced = bedform_command("run", "--report", str(tmp_path / "r.json"), "--force", str(static))
    assert (forced.returncode, forced.stderr) == (5, "")
    assert json.loads((tmp_path / "r.json").read_text())["processes"] == []


def test_programs_that_are_not_there_are_refused_in_one_line(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    assert "no such program" in refused(bedform_command, tmp_path / "nothing")
    done = bedform_command("run", "--report", str(tmp_path / "no" / "r.json"), "touch", "/no/way")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), "before the program has run"
    assert f"{str(tmp_path / 'no')!r}: no such directory" in done.stderr
    (tmp_path / "text").write_text("hello\n")
    assert "make it executable" in refused(bedform_command, tmp_path / "text")
    assert '"64 apples" is not a size' in refused(bedform_command, "--min", "64 apples", "true")


def test_damaged_programs_are_left_to_the_system(static: Path, tmp_path: Path) -> None:
    whole = static.read_bytes()
    generator = np.random.default_rng(1)
    program = tmp_path / "damaged"
    for length in [0, 1, 4, 20, 63, 64, 100, 5000, *generator.integers(0, 2000, 200)]:
        damaged = bytearray(whole[:length])
        for at in generator.integers(0, max(length, 1), 8):
            if 6 < at < length:
                damaged[at] = generator.integers(256)
        program.write_bytes(damaged)
        _run.why_unseen(program)
    program.write_bytes(b"#!" + b"x" * 5000)
    assert _run.why_unseen(program) is None
    program.write_bytes(f"#!{program}\n".encode())
    assert _run.why_unseen(program) is None


def limited(kibibytes: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program under a limit of file sizes."""
    words = ["bash", "-c", f'ulimit -f {kibibytes}; exec "$@"', "bash", *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    ("kibibytes", "said"),
    [
        (0, "bedform: the report was not written: {!r}: the file would be too large"),
        (
            255,
            "bedform: the report lacks the reads of 1 process: each counts in a file of 256.0 KiB",
        ),
        (256, ""),
    ],
)
def test_under_a_limit_of_file_sizes_a_program_ends_as_without(
    kibibytes: int, said: str, reads: Path, data: Path, tmp_path: Path
) -> None:
    place = tmp_path / "report.json"
    watching = [*command_line(), "run", "--report", place, "--"]
    alone = limited(kibibytes, reads, "strided", data)
    watched = limited(kibibytes, *watching, reads, "strided", data)
    assert (watched.returncode, watched.stdout) == (alone.returncode, alone.stdout)
    assert alone.returncode == 0
    assert watched.stderr.startswith(said.format(str(place)))
    assert watched.stderr.count("\n") == bool(said)
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"
    if kibibytes:
        report = json.loads(place.read_text())
        assert report["unseen"]["uncounted_processes"] == (kibibytes < 256)
        assert len(report["files"]) == (kibibytes >= 256)
    # A program that passes the limit is killed as ever.
    script = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "open(sys.argv[1], 'rb').read(9999); open(sys.argv[2], 'wb').write(bytes(999_999))"
    )
    passing = [sys.executable, "-c", script, data, tmp_path / "big"]
    assert limited(kibibytes, *passing).returncode == -signal.SIGXFSZ
    assert limited(kibibytes, *watching, *passing).returncode == 128 + signal.SIGXFSZ


def test_a_report_replaces_reports_and_no_other_file(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    place = tmp_path / "reads.json"
    words = ("run", "--report", str(place))
    for code in (3, 4):
        assert bedform_command(*words, "sh", "-c", f"exit {code}").returncode == code
        assert json.loads(place.read_text())["exit_code"] == code
    place.write_text("")
    assert bedform_command(*words, "true").returncode == 0, "as mktemp makes it"
    assert json.loads(place.read_text())["report"] == "bedform run"
    place.write_text('{"a thesis": true}')
    refused = bedform_command(*words, "touch", str(tmp_path / "ran"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"bedform: {str(place)!r} exists and is no report of bedform run: "
        "choose another name, or --overwrite\n"
    )
    assert not (tmp_path / "ran").exists(), "before the program has run"
    assert place.read_text() == '{"a thesis": true}'
    # A file that the program itself writes there is kept, too.
    place.unlink()
    done = bedform_command(*words, "sh", "-c", f"echo mine > {place}; exit 5")
    assert (done.returncode, place.read_text()) == (5, "mine\n")
    spare = tmp_path / "reads.json.bedform-run"
    assert f"the report is in {str(spare)!r}" in done.stderr
    assert json.loads(spare.read_text())["exit_code"] == 5
    assert bedform_command(*words, "--overwrite", "true").returncode == 0
    assert json.loads(place.read_text())["exit_code"] == 0


def test_a_report_goes_into_pipes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [*command_line(), "run", "--report", str(pipe), "true"]
    with subprocess.Popen(words) as child:
        assert json.loads(pipe.read_text())["exit_code"] == 0
    assert child.returncode == 0


def test_tables_that_are_not_whole_are_left_out(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"x" * 100, bytes(512 * 512), b"\xff" * 512 * 512]):
        (tmp_path / f"{number}.part").write_bytes(content)
    report = read_report(tmp_path)
    assert (report["processes"], report["files"]) == ([], [])
    assert report["unseen"]["uncounted_processes"] == 4
