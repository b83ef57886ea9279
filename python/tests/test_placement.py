"""Shards on the storage targets of Lustre, with a stand-in for its tool `lfs`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import PATIENCE

import bedform as bf

WRITE = """
import sys
import numpy as np
import bedform as bf

store = bf.create(sys.argv[1])
layout = bf.Regular(chunks=(2, 2, 2), shards=(2, 2, 2))
array = store.create_array("t", shape=(4, 4, 4), dtype="int32", layout=layout)
array[...] = np.arange(64).reshape(4, 4, 4)
with store.session() as session:
    session.write("t", np.full((2, 2, 2), -1, "int32"), start=(0, 0, 0))
"""


def write(path: Path, tools: Path, targets: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(tools), "BEDFORM_LUSTRE_TARGETS": targets}
    command = [sys.executable, "-c", WRITE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def tool(directory: Path, *lines: str) -> Path:
    directory.mkdir()
    lfs = directory / "lfs"
    lfs.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    lfs.chmod(0o755)
    return directory


@pytest.mark.parametrize("status", [0, 1], ids=["placed", "refused"])
def test_each_shard_is_placed_before_it_is_opened(tmp_path: Path, status: int) -> None:
    calls = tmp_path / "calls"
    # The working directory, the arguments, and whether the file exists and is empty.
    lines = (f'[ -f "$6" ] && [ ! -s "$6" ]; echo "$PWD $@ $?" >> {calls}', f"exit {status}")
    done = write(tmp_path / "run.zarr", tool(tmp_path / "bin", *lines), "10-13")
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in calls.read_text().splitlines()]
    # Eight shards, and one that is settled again.
    assert len(found) == 9
    array = tmp_path / "run.zarr" / "t" / "c"
    for where, *arguments, name, missing in found:
        assert array in Path(where).parents
        assert arguments[:4] == ["setstripe", "-c", "1", "-i"]
        assert name.startswith(".bedform-temp-") and missing == "0"
    # Each plane of two by two shards is on all four targets.
    targets = {where: set() for where, *_ in found}
    for where, *_, target, _, _ in found:
        targets[where].add(int(target))
    assert {target for one in targets.values() for target in one} == {10, 11, 12, 13}
    for first in "01":
        plane = [found for where, found in targets.items() if Path(where).parts[-2] == first]
        assert len(set.union(*plane)) == 4
    wanted = np.arange(64).reshape(4, 4, 4)
    wanted[:2, :2, :2] = -1
    assert np.array_equal(bf.open(tmp_path / "run.zarr")["t"][...], wanted)


def test_a_file_that_is_swept_before_it_is_opened_is_made_anew(tmp_path: Path) -> None:
    done = tmp_path / "done"
    lines = (f'[ -e {done} ] || /bin/rm -- "$6"', f": > {done}")
    outcome = write(tmp_path / "run.zarr", tool(tmp_path / "bin", *lines), "0-3")
    assert outcome.returncode == 0, outcome.stderr
    assert done.exists()
    assert bf.open(tmp_path / "run.zarr")["t"][3, 3].tolist() == [60, 61, 62, 63]


def test_without_the_tool_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = write(tmp_path / "run.zarr", tmp_path / "bin", "0-3")
    assert "lfs, which is to choose its target, cannot be run" in done.stderr
    assert not [path for path in (tmp_path / "run.zarr").rglob("*") if "temp" in path.name]


@pytest.mark.parametrize("targets", ["some", "3-1", "0-4000", "1,1"])
def test_what_is_no_list_of_targets_is_refused(tmp_path: Path, targets: str) -> None:
    done = write(tmp_path / "run.zarr", tmp_path, targets)
    line = done.stderr.splitlines()[-1]
    assert "BEDFORM_LUSTRE_TARGETS: " in line


READ = """
import sys, time
from pathlib import Path
import bedform as bf

place, rank = sys.argv[1], int(sys.argv[2])
with bf.open(place) as store:
    # All are there before any has ended.
    Path(f"{place}-{rank}").touch()
    while len(list(Path(place).parent.glob("s.zarr-*"))) < 4:
        time.sleep(0.01)
    for row in range(32 * rank, 32 * rank + 32):
        assert store["t"][:, row].shape == (32, 4096)
"""

OPTIMIZE = """
import sys
import bedform as bf

done = bf.optimize(sys.argv[1], "400%")
print(*done.plan["notes"], sep="\\n")
"""


def test_shards_of_a_replica_are_on_targets_of_the_processes_that_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    path = tmp_path / "s.zarr"
    values = np.random.default_rng(0).integers(0, 1 << 30, (32, 128, 4096), "i4")
    bf.create(path).create_array("t", data=values, chunks=(1, 128, 4096), codecs=["zstd"])
    bf.watch(path)
    started = [
        subprocess.Popen([sys.executable, "-c", READ, str(path), str(rank)]) for rank in range(4)
    ]
    assert [process.wait(timeout=PATIENCE) for process in started] == [0] * 4
    (found,) = bf.learn(path)["knowledge"]["arrays"]["t"]["global"]
    assert found["processes"] == 4
    calls = tmp_path / "calls"
    tools = tool(tmp_path / "bin", f'echo "$5 $(/usr/bin/stat -c %i "$6")" >> {calls}')
    environment = {**os.environ, "PATH": str(tools), "BEDFORM_LUSTRE_TARGETS": "10-13"}
    command = [sys.executable, "-c", OPTIMIZE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said = "t: 4 processes read the replica together: a target serves at most 1 of them, not "
    assert said in done.stdout
    lines = calls.read_text().splitlines()
    target_of = {inode: int(target) for target, inode in map(str.split, lines)}
    (replica,) = Path(f"{path}.bedform/replicas").glob("[0-9a-f]*")
    array = bf.open(replica)["t"]
    assert array.shape == values.shape
    rows = array.shards[1]
    served: dict[int, set[int]] = {}
    shards = [one for one in (replica / "t").iterdir() if one.name.startswith("c.")]
    assert len(shards) >= 8 and 32 % rows == 0
    for shard in shards:
        first = int(shard.name.split(".")[2]) * rows
        served.setdefault(target_of[str(shard.stat().st_ino)], set()).add(first // 32)
    assert sorted(map(len, served.values())) == [1, 1, 1, 1]
    assert set(served) == {10, 11, 12, 13}
    assert np.array_equal(bf.open(path)["t"][:, 17:35], values[:, 17:35])
