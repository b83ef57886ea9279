"""The command line: stable help, exit codes, one line per error, separate streams."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
import zarr
from support import ENVIRONMENT, command_line

import bedform as bf
from bedform.cli import _output
from bedform.cli._output import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = [
    "demo", "info", "calibrate", "advise", "convert", "references", "explain", "simulate", "watch",
    "learn", "index", "trust", "render", "report", "run", "settle", "recover", "gc", "verify",
    "check",
]  # fmt: skip


def words(text: str) -> str:
    """Returns the words of a help page, without the terminal library's frames and line breaks."""
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
    assert_one_line(bedform_command("info", path[:-6] + "x.zarr"), 2, f"did you mean {path}?")
    assert_one_line(bedform_command("info", "/no/such/place.nc"), 2, "no directory")
    assert_one_line(bedform_command("info", path, "tt"), 2, "no array 'tt'", "count, empty")
    assert_one_line(bedform_command("info"), 2, "'path'", "see bedform info --help")
    assert_one_line(bedform_command("inof"), 2, "inof", "--help")
    assert_one_line(bedform_command("explain", path, "t", "1,2,3,4"), 2, "4 entries")
    assert_one_line(bedform_command("advise"), 2, "--shape")
    assert_one_line(bedform_command("advise", "--shape", "3,x"), 2, "'x' is not a length")
    assert_one_line(bedform_command("convert", path, path), 2, "exists", "choose another name")
    assert_one_line(bedform_command("info", ""), 2, "the path is empty")
    assert_one_line(bedform_command("info", "ftp://a/b"), 2, "s3://, gs://, az://, http://")


def test_a_file_in_the_place_of_a_directory_is_called_a_file(
    source: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    (tmp_path / "era5.nc").touch()
    wrong = str(tmp_path / "era5.nc" / "x.zarr")
    said = f"'{tmp_path / 'era5.nc'}' is a file"
    assert_one_line(bedform_command("convert", str(source), wrong), 2, said)
    assert_one_line(bedform_command("info", wrong), 2, said)
    missing = str(tmp_path / "no" / "x.zarr")
    assert_one_line(bedform_command("convert", str(source), missing), 2, "does not exist")


def test_names_that_are_proposed_are_never_hidden(tmp_path: Path, bedform_command: Bedform) -> None:
    for name in (".run.zarr.bedform-partial", ".run.zarr", "run.zarr"):
        (tmp_path / name).mkdir()
    assert_one_line(bedform_command("info", str(tmp_path / ".rum")), 2, "check the path")
    done = bedform_command("info", str(tmp_path / "runs"))
    assert done.stderr.endswith(f"did you mean {tmp_path / 'run.zarr'}?\n")


def test_without_a_command_the_help_is_shown(bedform_command: Bedform) -> None:
    done = bedform_command()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == bedform_command("--help").stdout


def test_an_array_that_is_refused_is_refused_with_the_reason(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["v"] = np.arange(3)
    with h5py.File(tmp_path / "big.h5", "w") as file:
        file["v"] = np.arange(3)
        file["ext"] = h5py.ExternalLink("other.h5", "v")
    path = str(tmp_path / "big.h5")
    reason = json.loads(bedform_command("info", path, "--json").stdout)["refused"]["ext"]
    assert_one_line(bedform_command("info", path, "ext"), 2, "'ext' is not read", reason)


@pytest.mark.parametrize("selection", ["()", "..."])
def test_a_scalar_is_selected_as_in_numpy(
    selection: str, source: Path, bedform_command: Bedform
) -> None:
    done = bedform_command("explain", str(source), "scalar", selection, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result_bytes"] == 8


def test_a_plan_says_what_its_price_is_of(source: Path, bedform_command: Bedform) -> None:
    shown = bedform_command("explain", str(source), "t", "3").stdout
    assert "predicted leaves out opening the store" in words(shown)
    assert "predicted cached" in shown
    assert "mostly" in shown


def test_a_missing_package_has_one_remedy() -> None:
    plain = describe_error(ModuleNotFoundError("No module named 'dask'"))
    assert plain.startswith("No module named 'dask': install it with pip")
    own = "the demo's field is missing: pip install iris-sample-data"
    assert describe_error(ModuleNotFoundError(own)) == own


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
        ("report", path),
        ("verify", target),
    ):
        kept = str(tmp_path / "profiles")
        done = bedform_command(*arguments, "--json", BEDFORM_PROFILES=kept)
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), dict), arguments
        assert done.stderr == ""


def test_info_tables_the_codecs_that_were_compared_for_an_array(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    path = str(tmp_path / "compared.zarr")
    data = np.random.default_rng(3).normal(size=(8, 100, 100)).astype("float32")
    array = bf.create(path).create_array("t", data=data, dims=("time", "lat", "lon"))
    choice = array.info()["codec_choice"]
    shown = words(bedform_command("info", path, "t").stdout)
    taken, *others = choice["compared"]
    assert f"codec_choice {taken['name']}: fastest from storage of" in shown
    assert f" {taken['name']} {taken['size']:.1%}" in shown
    assert all(f"{one['name']} {one['size']:.1%}" in shown for one in others)
    most = 1.02 * next(one["size"] for one in choice["compared"] if one["name"] == "zstd")
    assert shown.count("too large") == sum(one["size"] > most for one in others)


def test_the_plan_of_a_conversion_names_types_and_bytes_as_info_does(
    source: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    plan = bedform_command("convert", str(source), str(tmp_path / "no.zarr"), "--dry-run").stdout
    shown = bedform_command("info", str(source)).stdout
    for table in (plan, shown):
        head, row = (
            next(line for line in table.splitlines() if line.startswith(first)).split()
            for first in ("array ", "count ")
        )
        assert {"dtype", "bytes"} <= set(head)
        assert row[2] == "int32" and row[-2:] == ["80", "B"]


def test_a_second_pass_has_its_own_title(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(_output, "time", SimpleNamespace(monotonic=itertools.count(0, 2).__next__))
    with _output.progress("converting", then="comparing") as report:
        for done in (1, 2, 1, 2):
            report(done, 2)
    shown = capsys.readouterr().err
    assert "converting" in shown and shown.rindex("comparing") > shown.rindex("converting")


def test_verify_counts_the_shards_that_are_not_there(
    source: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    target = tmp_path / "target.zarr"
    assert bedform_command("convert", str(source), str(target)).returncode == 0
    (target / "count" / "c" / "0").unlink()
    done = bedform_command("verify", str(target))
    assert done.returncode == 0
    assert "count: 1 of 1 objects are not there" in words(done.stdout)
    assert "everything that is stored is whole" in words(done.stdout)
    shown = json.loads(bedform_command("verify", str(target), "--json").stdout)
    assert shown["absent"] == {"count": {"objects": 1, "of": 1, "in_log": 0}}


def test_verify_names_what_stands_in_the_place_of_a_shard(
    source: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    target = tmp_path / "target.zarr"
    assert bedform_command("convert", str(source), str(target)).returncode == 0
    shard = target / "count" / "c" / "0"
    for put in (shard.mkdir, lambda: shard.symlink_to(tmp_path), lambda: os.mkfifo(shard)):
        if shard.is_dir() and not shard.is_symlink():
            shard.rmdir()
        else:
            shard.unlink()
        put()
        done = bedform_command("verify", str(target))
        assert done.returncode == 1, done.stdout
        assert "count/c/0" in words(done.stdout)


def test_verify_names_what_is_damaged_in_the_log(tmp_path: Path, bedform_command: Bedform) -> None:
    path = tmp_path / "run.zarr"
    store = bf.create(path)
    layout = bf.Regular(chunks=(100, 100), shards=(200, 200))
    for name in ("t", "u"):
        store.create_array(name, shape=(400, 400), dtype="float32", layout=layout)
    with store.session(settle="later") as session:
        session.write("t", np.ones((200, 300), "float32"), start=(0, 0))
        session.write("u", np.ones((400, 400), "float32"), start=(0, 0))
    done = bedform_command("verify", str(path))
    assert done.returncode == 0
    assert "t: 4 of 4 objects are not there: 2 of them have data in the log" in words(done.stdout)
    (segment,) = (tmp_path / "run.zarr.bedform-log" / "segments").iterdir()
    whole = (segment / "data").read_bytes()
    (segment / "data").write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    done = bedform_command("verify", str(path))
    assert done.returncode == 1
    assert "1 objects or parts of the log are damaged" in words(done.stdout)
    (problem,) = json.loads(bedform_command("verify", str(path), "--json").stdout)["problems"]
    assert f"{segment} at byte " in problem
    assert "(it has data of t)" in problem
    # Reading reports the same.
    with pytest.raises(bf.CorruptError, match=str(segment)):
        bf.open(path)["t"][:]
    (segment / "data").unlink()
    done = bedform_command("verify", str(path), "--json")
    assert done.returncode == 1
    assert f"{segment} is missing" in json.loads(done.stdout)["problems"][0]
    done = bedform_command("gc", str(path))
    assert done.returncode == 1
    assert segment.name in done.stderr


def test_gc_removes_the_registry_entries_of_deleted_sidecars_and_says_so(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    registry = tmp_path / "trust"
    own = {"BEDFORM_TRUST": str(registry)}
    stores = [tmp_path / f"{name}.zarr" for name in ("run", "gone", "other")]
    for store in stores:
        bf.create(store).create_array("t", shape=(4,), dtype="int8")
        assert bedform_command("watch", str(store), **own).returncode == 0
    nothing = bedform_command("gc", str(stores[0]), **own)
    assert nothing.stdout.count("\n") == 1
    shutil.rmtree(f"{stores[1]}.bedform")
    dry = bedform_command("gc", str(stores[0]), "--dry-run", **own)
    assert "registry of sidecars: 1 entry of deleted sidecars or data would go" in dry.stdout
    assert len(list(registry.iterdir())) == 3
    gone = json.loads(bedform_command("gc", str(stores[0]), "--json", **own).stdout)
    assert gone["registry_entries"] == 1
    assert len(list(registry.iterdir())) == 2
    state = json.loads(bedform_command("watch", str(stores[2]), "--state", "--json", **own).stdout)
    assert state["is_watched"], "the others count as before"


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


@pytest.mark.parametrize("columns", ["40", "88", "200"])
def test_what_no_terminal_shows_gets_one_line_for_each_message(
    columns: str, tmp_path: Path, bedform_command: Bedform
) -> None:
    """Regression: long paths broke a message into two lines in a pipe, and ``grep`` found half."""
    path = tmp_path / ("long-" * 30) / "run.zarr"
    store = bf.create(path)
    store.create_array("t", shape=(4,), dtype="int8")
    with store.session(settle="later") as session:
        session.write("t", [1, 2, 3, 4])
    for command in ("recover", "settle", "gc", "verify"):
        # A registry without entries that `gc` could remove.
        own = {"COLUMNS": columns, "BEDFORM_TRUST": str(tmp_path / "trust")}
        done = bedform_command(command, str(path), **own)
        assert done.returncode == 0, done
        (line,) = done.stdout.splitlines()
        assert line.startswith(f"{path}: "), line


def test_a_limit_for_memory_whose_unit_was_forgotten_is_refused(
    source: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    said = "'5' is less than 1 MiB"
    assert_one_line(bedform_command("settle", str(source), "--memory", "5"), 2, said)
    target = str(tmp_path / "new.zarr")
    assert_one_line(bedform_command("convert", str(source), target, "--memory", "5"), 2, said)


def test_a_store_that_is_gone_is_named_by_its_log(tmp_path: Path, bedform_command: Bedform) -> None:
    """Regression: after ``rm -r run.zarr`` a run failed only at its first commit."""
    path = tmp_path / "run.zarr"
    store = bf.create(path)
    store.create_array("t", shape=(2,), dtype="int8")
    with store.session(settle="later") as session:
        session.write("t", [1, 2])
    shutil.rmtree(path)
    assert_one_line(
        bedform_command("info", str(path)), 2, "the store is gone", "run.zarr.bedform-log"
    )
    with pytest.raises(bf.ExistsError, match=r"run.zarr.bedform-log holds commits of a store"):
        bf.create(path)
    assert not path.exists() or not list(path.iterdir())
    shutil.rmtree(tmp_path / "run.zarr.bedform-log")
    bf.create(path)


@pytest.mark.parametrize("imported", ["numpy", "typer"])
def test_an_interruption_during_the_imports_is_one_line(imported: str, tmp_path: Path) -> None:
    """Regression: Ctrl-C during the imports, the slowest part of a start, gave a traceback."""
    (tmp_path / f"{imported}.py").write_text("raise KeyboardInterrupt\n")
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{ENVIRONMENT['PYTHONPATH']}"}
    (script,) = entry_points(group="console_scripts", name="bedform")
    command = [sys.executable, "-c", f"from {script.module} import {script.attr} as f; f()", "info"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert_one_line(done, 130, "interrupted; nothing half done is visible")
