"""The command line: help that stays, exit codes, one line per error, streams kept apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr
from support import ENVIRONMENT, command_line

if TYPE_CHECKING:
    from collections.abc import Callable

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = ["demo", "info", "calibrate", "advise", "convert", "explain", "verify"]


def words(text: str) -> str:
    """The words of a help page; frames and line breaks are the terminal library's own."""
    return " ".join(re.sub(r"[^\x00-\x7f]", " ", text).split())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small store of another library: two arrays, a scalar and an empty one."""
    path = tmp_path / "source.zarr"
    group = zarr.create_group(path)
    data = np.arange(20 * 30 * 40, dtype="float32").reshape(20, 30, 40)
    data[3, 4] = np.nan
    attributes = {"units": "K", "_FillValue": 1e20}
    group.create_array("t", data=data, chunks=(1, 30, 40), attributes=attributes)
    group.create_array("count", data=np.arange(20, dtype="int32"))
    group.create_array("scalar", data=np.array(7.5))
    group.create_array("empty", shape=(0, 30), chunks=(1, 30), dtype="int16")
    return path


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_page_is_the_one_that_was_reviewed(command: str, bedform_command: Bedform) -> None:
    shown = bedform_command(*command.split(), "--help")
    assert shown.returncode == 0, shown.stderr
    path = SNAPSHOTS / f"help-{command or 'bedform'}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(line.rstrip() for line in shown.stdout.splitlines()) + "\n")
    assert path.exists(), "no snapshot: look at the page, then run with UPDATE_SNAPSHOTS=1"
    assert words(shown.stdout) == words(path.read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_page_teaches_by_an_example(command: str, bedform_command: Bedform) -> None:
    assert f"Example: bedform {command}" in words(bedform_command(command, "--help").stdout)


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("bedform: ")
    for part in parts:
        assert part in done.stderr


def test_errors_are_one_line_that_names_the_object_and_says_what_to_do(
    source: Path, bedform_command: Bedform
) -> None:
    path = str(source)
    assert_one_line(bedform_command("info", path[:-6] + "x.zarr"), 2, "did you mean source.zarr?")
    assert_one_line(bedform_command("info", "/no/such/place.nc"), 2, "no directory")
    assert_one_line(bedform_command("info", path, "tt"), 2, "no array 'tt'", "count, empty")
    assert_one_line(bedform_command("info"), 2, "'path'", "see bedform info --help")
    assert_one_line(bedform_command("inof"), 2, "inof", "--help")
    assert_one_line(bedform_command("explain", path, "t", "1,2,3,4"), 2, "4 entries")
    assert_one_line(bedform_command("advise"), 2, "--shape")
    assert_one_line(bedform_command("advise", "--shape", "3,x"), 2, "'x' is not a length")
    assert_one_line(bedform_command("convert", path, path), 2, "exists", "choose another name")


def test_debugging_adds_the_traceback(bedform_command: Bedform) -> None:
    done = bedform_command("advise", "--shape", "x", BEDFORM_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_every_command_speaks_json(source: Path, tmp_path: Path, bedform_command: Bedform) -> None:
    path, target = str(source), str(tmp_path / "target.zarr")
    for arguments in (
        ("info", path),
        ("info", path, "t"),
        ("calibrate", str(tmp_path)),
        ("advise", "--shape", "100,200,300", "--dims", "time,lat,lon", "--reads", "time=1"),
        ("convert", path, target, "--verify"),
        ("explain", target, "t", "3,:,5"),
        ("verify", target),
    ):
        done = bedform_command(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), dict), arguments
        assert done.stderr == ""


def test_a_reader_that_goes_away_is_not_an_error(source: Path) -> None:
    process = subprocess.Popen(
        [*command_line(), "info", str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    assert (process.wait(), said) == (0, b"")
