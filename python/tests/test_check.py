"""`bedform check`: tests of a file system, alone and by several processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import PATIENCE

import bedform as bf
from bedform import _place_check

if TYPE_CHECKING:
    from pathlib import Path

    from .support import Bedform


def test_a_local_file_system_does_all_that_is_needed_and_nothing_is_left(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    said = bedform_command("check", str(tmp_path))
    assert said.returncode == 0
    assert said.stdout.splitlines()[-1].startswith(
        f"{tmp_path}: all that is needed works (1 process"
    )
    value = json.loads(bedform_command("check", str(tmp_path), "--json").stdout)
    assert value["works"]
    assert value["sync_ms"] > 0
    assert len(value["trials"]) == 8
    assert list(tmp_path.iterdir()) == []


def test_several_processes_try_what_one_cannot_see(tmp_path: Path) -> None:
    directory = os.path.dirname(sys.executable)  # noqa: PTH120
    command = [f"{directory}/mpiexec", "-n", "3", sys.executable, "-m", "bedform", "check"]
    said = subprocess.run(
        [*command, str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    value = json.loads(said.stdout)
    assert value["works"]
    assert value["processes"] == 3
    assert len(value["trials"]) == 12
    assert list(tmp_path.iterdir()) == []
    missing = subprocess.run(
        [*command, str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert missing.stderr.count("there is no such directory") == 1
    assert missing.returncode != 0


def test_each_call_that_does_not_do_what_it_should_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def ignored(*_: object, **__: object) -> None:
        pass

    for owner, name, fault, named in [
        (os, "link", refused, "a second name"),
        (fcntl, "flock", refused, "a lock excludes another handle"),
        (fcntl, "flock", ignored, "a lock excludes another handle"),
        (os, "fsync", refused, "made durable"),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fault)
            trials, _ = _place_check.check(tmp_path, _place_check.members())
        lacks = [trial for trial in trials if trial.needed and not trial.works]
        assert any(named in trial.what for trial in lacks), named
        assert all(":" in trial.says for trial in lacks)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    alone = _place_check.members()
    with pytest.raises(bf.NotFoundError, match="no such directory"):
        _place_check.check(tmp_path / "none", alone)
    with pytest.raises(bf.WrongTypeError, match="not a directory"):
        _place_check.check(tmp_path / "file", alone)
