"""`bedform learn --darshan`: reads recorded by Darshan, and the predictable ones among them."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bedform as bf
from bedform import _internal
from bedform._darshan import DarshanReads, DarshanStream, analyze, learn_darshan

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

darshan = pytest.importorskip("darshan", reason="pip install darshan")
LOGS = sorted(Path(darshan.__file__).parent.rglob("*.darshan"))


def log(name: str) -> Path:
    return next(path for path in LOGS if path.name == name)


def reads_of(**files: list[tuple[int, int]]) -> DarshanReads:
    """Reads of some files in turn, one second after another: offsets and lengths."""
    streams = [DarshanStream(f"/data/{name}", 0, "DXT_POSIX") for name in files]
    table = [
        (time, number, *read)
        for number, reads in enumerate(files.values())
        for time, read in enumerate(reads)
    ]
    start, stream, offset, length = np.array(table).reshape(-1, 4).T
    integers = [column.astype(np.uint64) for column in (stream, offset, length)]
    return DarshanReads(streams, *integers, start.astype(float))


def test_strides_are_predicted_from_the_fourth_read_on_in_each_file() -> None:
    a = [(at * 1000, 64) for at in range(20)]
    b = [(at * 3000, 100) for at in range(10)]
    learned = analyze(reads_of(a=a, b=b))
    assert [entry["file"] for entry in learned["files"]] == ["/data/a", "/data/b"]
    assert [entry["predicted_reads"] for entry in learned["files"]] == [17, 7]
    assert learned["kinds"] == {"strided": {"reads": 24, "bytes": 17 * 64 + 7 * 100}}
    assert learned["missing"] == {
        "where a pattern begins or ends": {"reads": 6, "bytes": 3 * 64 + 3 * 100}
    }
    assert learned["share_of_bytes"] == round((17 * 64 + 700) / (20 * 64 + 1000), 4)


def test_reads_count_in_the_order_in_which_they_began() -> None:
    reads = reads_of(a=[(at * 1000, 64) for at in range(50)])
    order = np.random.default_rng(5).permutation(50)
    columns = (reads.stream, reads.offset, reads.length, reads.start)
    mixed = DarshanReads(reads.streams, *(column[order] for column in columns))
    assert analyze(mixed) == analyze(reads)


def test_nothing_is_predicted_by_what_comes_later() -> None:
    """The counts for the beginning of a log equal those of the beginning alone."""
    generator = random.Random(3)
    reads = [(generator.randrange(5) * 1000, 64) for _ in range(300)]
    whole = _internal.predicted(*columns(reads))[0]
    for count in range(0, 300, 17):
        assert _internal.predicted(*columns(reads[:count]))[0] == whole[:count]


def columns(reads: list[tuple[int, int]]) -> list[Any]:
    offset, length = np.array(reads, np.uint64).reshape(-1, 2).T.copy()
    return [offset, length, np.zeros(len(reads), np.uint64)]


def test_what_is_missing_has_a_reason() -> None:
    generator = random.Random(1)
    files = {
        "few": [(0, 10), (50, 10)],
        "scattered": [(generator.randrange(10**9), 30) for _ in range(50)],
        "contiguous": [(at * 100, 100) for at in range(50)],
        "ended": [(0, 100), (100, 0)],
    }
    learned = analyze(reads_of(**files))
    assert learned["missing"]["fewer than 4 reads of the file"]["reads"] == 3
    assert learned["missing"]["no pattern"] == {"reads": 50, "bytes": 1500}
    assert learned["missing"]["where a pattern begins or ends"]["reads"] == 3
    assert learned["kinds"] == {"contiguous": {"reads": 47, "bytes": 4700}}
    assert learned["reads_at_end"] == 1


def test_a_log_without_reads_is_an_answer() -> None:
    learned = analyze(reads_of(a=[]))
    assert (learned["reads"], learned["files"], learned["missing"]) == (0, [], {})
    assert learned["share_of_bytes"] == 0


def test_reads_at_any_place_do_not_make_the_analysis_fail() -> None:
    extremes = [0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
    generator = random.Random(2)
    reads = [(generator.choice(extremes), generator.choice(extremes)) for _ in range(500)]
    assert len(_internal.predicted(*columns(reads))[0]) == 500
    offset, length, stream = columns(reads)
    with pytest.raises(_internal.EngineError, match="as many elements"):
        _internal.predicted(offset, length[1:], stream)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem[:24]}")
def test_every_log_of_the_package_loads(path: Path) -> None:
    learned = learn_darshan(path)
    assert learned["reads"] == sum(entry["reads"] for entry in learned["files"])
    missed = sum(entry["bytes"] for entry in learned["missing"].values())
    assert learned["bytes"] == learned["predicted_bytes"] + missed


def test_most_of_the_bytes_of_a_real_run_are_predicted() -> None:
    learned = learn_darshan(log("dxt.darshan"))
    assert (learned["reads"] + learned["reads_at_end"], learned["bytes"]) == (6126, 22_517_726)
    assert learned["share_of_bytes"] > 0.6


def test_reads_of_mpi_io_and_of_posix_below_it_count_once() -> None:
    learned = learn_darshan(log("ior_hdf5_example.darshan"))
    assert (learned["reads"], {entry["rank"] for entry in learned["files"]}) == (36, {0, 1, 2, 3})
    assert {entry["module"] for entry in learned["files"]} == {"DXT_POSIX"}


def test_the_command_shows_files_totals_and_what_is_missing(bedform_command: Bedform) -> None:
    path = str(log("dxt.darshan"))
    shown = bedform_command("learn", "--darshan", path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "jre/lib/rt.jar" in shown.stdout
    assert "78 more" in shown.stdout
    learned = json.loads(bedform_command("learn", "--darshan", path, "--json").stdout)
    assert f"{learned['share_of_bytes']:.1%}" in shown.stdout
    assert all(reason in shown.stdout for reason in learned["missing"])
    without = bedform_command("learn", "--darshan", str(log("noposix.darshan")))
    assert "no reads were recorded" in without.stdout


def hostile(directory: Path) -> list[Path]:
    """Writes files that are no logs, or damaged ones."""
    whole = log("dxt.darshan").read_bytes()
    generator = np.random.default_rng(4)
    noise = bytearray(whole)
    for at in generator.integers(400, len(whole), 200):
        noise[at] ^= 255
    contents = {
        "empty": b"",
        "text": b"hello\n",
        "short": whole[:100],
        "head": whole[:2000],
        "half": whole[: len(whole) // 2],
        "most": whole[:-1000],
        "noise": bytes(noise),
        "header-of-ones": b"\xff" * 400 + whole[400:],
    }
    for name, content in contents.items():
        (directory / f"{name}.darshan").write_bytes(content)
    return sorted(directory.glob("*.darshan"))


def test_what_is_no_log_or_damaged_is_one_line(tmp_path: Path, bedform_command: Bedform) -> None:
    for path in hostile(tmp_path):
        done = bedform_command("learn", "--darshan", str(path))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), (path, done)
        assert path.name in done.stderr


def test_what_is_not_there_is_one_line(
    tmp_path: Path, bedform_command: Bedform, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = []
    for name in ("nothing", ".", "pipe"):
        done = bedform_command("learn", "--darshan", str(tmp_path / name))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
        said.append(done.stderr)
    assert "a directory" in said[1]
    assert "no regular file" in said[2]
    assert "--darshan FILE" in bedform_command("learn").stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = bedform_command("learn", "--darshan", str(log("dxt.darshan")))
    assert "pip install 'bedform[darshan]'" in done.stderr


def test_a_log_is_not_corrupt_because_the_working_directory_has_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "darshan.py").write_text("raise SystemExit('run')\n")
    monkeypatch.chdir(tmp_path)
    assert learn_darshan(log("ior_hdf5_example.darshan"))["reads"] == 36
    with pytest.raises(bf.CorruptError, match="no Darshan log"):
        learn_darshan("darshan.py")
