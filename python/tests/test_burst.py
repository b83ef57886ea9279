"""The burst tier, remains of dead writers, and arrays created together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

WRITER = """
import os, signal, sys
import numpy as np
import bedform as bf

store = bf.open(sys.argv[1], mode="r+")
session = store.session(settle="later", burst=sys.argv[2] or False, durability=sys.argv[3])
for step in range(3):
    session.append("t", np.full((1, 8), step, "int32"))
    session.commit()
session.write("t", np.full((1, 8), 99, "int32"), start=(0, 0))
session.flush()
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    store = bf.create(tmp_path / "run.zarr")
    store.create_array("t", (0, 8), "int32", ("time", "x"))
    return store


def killed_writer(path: str, burst: str, durability: str) -> None:
    command = [sys.executable, "-c", WRITER, path, burst, durability]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9 and done.stdout == "ready\n", done.stderr


@pytest.mark.parametrize("durability", ["disk", "node"])
def test_what_goes_through_a_burst_tier_is_all_there_and_the_tier_is_empty_afterwards(
    store: bf.Store, tmp_path: Path, durability: str
) -> None:
    burst = tmp_path / "fast"
    values = np.arange(5 * 8, dtype="int32").reshape(5, 8)
    with store.session(burst=burst, durability=durability, burst_capacity="64 MiB") as session:
        for step in range(5):
            session.append("t", values[step : step + 1])
            session.commit()
        session.drain()
        assert np.array_equal(store["t"][:], values)
    assert np.array_equal(store["t"][:], values)
    assert [path for path in burst.rglob("*") if path.is_file()] == []
    assert not list(tmp_path.glob("*.bedform-log"))


@pytest.fixture
def small_tier(tmp_path: Path) -> Iterator[Path]:
    """A file system of four mebibytes."""
    tier = tmp_path / "small"
    tier.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "none", str(tier)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("file systems are not to be mounted here")
    yield tier
    subprocess.run(["/bin/umount", str(tier)], check=True)


@pytest.mark.parametrize("durability", ["disk", "node"])
def test_a_tier_that_is_smaller_than_what_is_written_makes_the_writer_wait(
    store: bf.Store, small_tier: Path, durability: str
) -> None:
    store.create_array("u", (12, 1 << 18), "int32", ("time", "x"))
    with store.session(burst=small_tier, durability=durability) as session:
        for step in range(12):
            session.write("u", np.full((1, 1 << 18), step, "int32"), start=(step, 0))
            session.commit()
    assert np.array_equal(store["u"][:, ::1000], np.repeat(np.arange(12)[:, None], 263, axis=1))
    (small_tier / "junk").write_bytes(bytes(3 << 20))
    session = store.session(burst=small_tier, durability=durability)
    with pytest.raises(bf.NoSpaceError, match=f"the burst tier {small_tier} has only"):
        session.write("u", np.zeros((1, 1 << 18), "int32"), start=(0, 0))
    with pytest.raises(bf.PoisonedError):
        session.commit()
    session.close()


def test_a_promise_of_the_burst_tier_outlives_its_writer(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path, burst = str(tmp_path / "run.zarr"), str(tmp_path / "fast")
    killed_writer(path, burst, "node")
    with pytest.raises(bf.ConflictError, match="bedform recover"):
        store.session(burst=burst)
    with pytest.raises(bf.ConflictError, match=f"through the burst tier {burst} on node"):
        store.session()
    blind = json.loads(bedform_command("recover", path, "--commit", "--json").stdout)
    assert len(blind["tiers"]) == 1 and blind["tiers"][0].startswith(f"{burst} on node"), blind
    missing = bedform_command("recover", path, "--burst", burst + "-misspelt")
    assert missing.returncode == 2 and "no burst tier" in missing.stderr, missing
    assert not (tmp_path / "fast-misspelt").exists()
    store.settle()
    done = bedform_command("recover", path, "--burst", burst, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    # The commit may have reached the log before the writer died.
    assert blind["completed"] + said["completed"] >= 1 and said["found"][0]["writes"] == 1
    assert np.array_equal(store["t"][:], np.repeat([[0], [1], [2]], 8, axis=1))
    store.session(settle="later").close()
    again = bedform_command("recover", path, "--discard", BEDFORM_BURST=burst)
    assert "they are given up" in " ".join(again.stdout.split()), again.stdout
    store.settle()
    assert np.array_equal(store["t"][:], np.repeat([[0], [1], [2]], 8, axis=1))
    assert not list(tmp_path.glob("*.bedform-log"))


def test_nothing_is_written_before_what_a_dead_writer_promised(
    store: bf.Store, tmp_path: Path
) -> None:
    path, burst = str(tmp_path / "run.zarr"), str(tmp_path / "fast")
    store.create_array("u", (4,), "int32")
    killed_writer(path, burst, "node")
    row = np.full((1, 8), 7, "int32")
    for write in (
        lambda: store["t"].append(row),
        lambda: store.append({"t": row}, dim="time"),
        lambda: store["t"].resize((1, 8)),
        lambda: store["u"].__setitem__(0, 7),
    ):
        with pytest.raises(bf.ConflictError, match="makes them visible, before"):
            write()
    store.recover(burst=burst)
    store["u"][0] = 7
    store["t"].append(row)
    assert store["t"][:, 0].tolist() == [0, 1, 2, 7]


def test_a_tier_that_has_lost_what_was_promised_is_no_tier_without_promises(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path, burst = str(tmp_path / "run.zarr"), tmp_path / "fast"
    killed_writer(path, str(burst), "node")
    burst.rename(tmp_path / "elsewhere")
    with pytest.raises(bf.ConflictError):
        store.session(burst=burst)
    assert burst.is_dir(), "an empty directory in its place"
    said = " ".join(bedform_command("recover", path, "--burst", str(burst)).stdout.split())
    assert "may have promised more" in said and "--discard gives it up" in said, said
    with pytest.raises(bf.ConflictError):
        store.session()
    burst.rename(tmp_path / "empty")
    (tmp_path / "elsewhere").rename(burst)
    store.recover(burst=burst)
    assert store["t"][:, 0].tolist() == [0, 1, 2]
    store.session(settle="later").close()


def damaged_last_commit(store: bf.Store, path: str, burst: Path) -> dict[Path, bytes]:
    """Kills a writer of three commits, damages the last one's data; returns the original files.

    The first two may be visible. The log may have a copy of the last one, which is damaged alike.
    """
    killed_writer(path, str(burst), "node")
    files = {file: file.read_bytes() for file in burst.rglob("*") if file.is_file()}
    assert {file.name for file in files} >= {"STORE.txt", "promises-000000", "0" * 20}
    data = np.full(8, 2, "int32").tobytes()
    log = Path(path + ".bedform-log").rglob("data")
    holders = [file for file in (*files, *log) if data in file.read_bytes()]
    assert holders and store["t"].shape[0] <= 2
    for file in holders:
        file.write_bytes(file.read_bytes().replace(data, b"\xff" + data[1:]))
    return files


def test_damage_to_what_was_promised_is_reported_until_somebody_decides(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path, burst = str(tmp_path / "run.zarr"), tmp_path / "fast"
    files = damaged_last_commit(store, path, burst)
    log = store.info()["log"]
    assert len(log["tiers"]) == 1 and log["tiers"][0].startswith(f"{burst} on node "), log
    assert "tiers" in bedform_command("info", path).stdout
    said = bedform_command("recover", path, "--burst", str(burst))
    assert said.returncode == 1, said
    words = " ".join(said.stdout.split())
    assert "commit of epoch 6 of session" in words and "0" * 20 in words, words
    assert "--discard" in words, words
    assert store["t"][:, 0].tolist() == [0, 1]
    for begin in (store.session, lambda: store["t"].append(np.zeros((1, 8), "int32"))):
        with pytest.raises(bf.ConflictError, match="bedform recover"):
            begin()
    again = store.recover(burst=burst)
    assert len(again["damaged"]) == 1 and again["completed"] == 0, again
    assert store.verify() != []
    assert bedform_command("verify", path).returncode == 1
    assert store.info()["log"]["tiers"] == ["the log itself"]
    # The damaged files are restored.
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    done = store.recover(burst=burst)
    assert (done["completed"], done["damaged"]) == (1, []), done
    assert store["t"][:, 0].tolist() == [0, 1, 2]
    assert store.verify() == []
    store.session(settle="later").close()


def test_damaged_promises_are_given_up_by_discard(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path, burst = str(tmp_path / "run.zarr"), tmp_path / "fast"
    damaged_last_commit(store, path, burst)
    done = bedform_command("recover", path, "--burst", str(burst), "--discard", "--json")
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    assert (said["given_up"], len(said["damaged"])) == (1, 1), said
    assert store["t"][:, 0].tolist() == [0, 1]
    with store.session(burst=burst) as session:
        session.append("t", np.full((1, 8), 7, "int32"))
    assert store["t"][:, 0].tolist() == [0, 1, 7]
    assert store.verify() == []
    assert not [file for file in burst.rglob("*") if file.is_file()]


def test_info_counts_what_a_dead_writer_left_in_a_segment_with_commits(
    store: bf.Store, tmp_path: Path
) -> None:
    path = str(tmp_path / "run.zarr")
    killed_writer(path, "", "disk")
    assert store.info()["log"]["commits"] == 3
    assert store.info()["log"]["segments_open"] == 1
    assert len(store.recover()["found"]) == 1
    store.recover(leftover="discard")
    assert store.info()["log"]["segments_open"] == 0


def test_what_was_given_up_is_not_asked_for_again(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path, burst = str(tmp_path / "run.zarr"), tmp_path / "fast"
    killed_writer(path, str(burst), "node")
    said = bedform_command("recover", path, "--discard").stdout
    assert f"through the burst tier {burst}" in said and "it is given up" in said, said
    rows = store["t"].shape[0]
    with store.session(burst=burst) as session:
        session.append("t", np.full((1, 8), 7, "int32"))
    assert store.recover(burst=burst)["completed"] == 0
    assert store["t"].shape[0] == rows + 1
    assert not [part for part in burst.rglob("*") if part.is_file()]


def test_without_a_tier_what_is_durable_for_the_node_is_visible(
    store: bf.Store, tmp_path: Path
) -> None:
    killed_writer(str(tmp_path / "run.zarr"), "", "node")
    assert store["t"][:, 0].tolist() == [0, 1, 2]
    with store.session() as session:
        session.write("t", np.full((1, 8), 7, "int32"), start=(1, 0))
    store.recover()
    assert store["t"][:, 0].tolist() == [0, 7, 2]


def test_writes_that_no_commit_has_wait_for_a_decision(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path = str(tmp_path / "run.zarr")
    killed_writer(path, "", "disk")
    settled = bedform_command("settle", path).stdout
    assert "1 segment may hold writes that no commit has" in settled, settled
    assert store.info()["log"] == {
        "commits": 0,
        "segments": 0,
        "bytes": 0,
        "segments_open": 1,
        "tiers": [],
    }
    assert store["t"][0].tolist() == [0] * 8
    found = store.recover()["found"]
    assert [(one["rank"], one["writes"], one["bytes"], one["arrays"]) for one in found] == [
        (0, 1, 32, ["t"])
    ]
    listed = bedform_command("recover", path)
    assert "1 write of 32 B to t by rank 0" in listed.stdout, listed.stdout
    made = bedform_command("recover", path, "--commit")
    assert "1 commit made of them" in made.stdout, made.stdout
    assert store["t"][0].tolist() == [99] * 8
    store.settle()
    assert store["t"][0].tolist() == [99] * 8
    assert "nothing to recover" in bedform_command("recover", path).stdout


def test_what_can_be_no_tier_is_refused_with_the_option_and_its_value(
    store: bf.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a file in the place of the directory was reported as missing."""
    file = tmp_path / "file"
    file.touch()
    for burst, said in (
        ("", 'burst "": the path is empty; name a directory'),
        (file, f'burst "{file}": "{file}" is not a directory; name one'),
        (file / "tier", f'burst "{file}/tier": "{file}" is not a directory; name one'),
        (5, "burst must be a directory, or False for none, not 5"),
        (True, "burst must be a directory, or False for none, not True"),
    ):
        for use in (store.session, store.recover):
            with pytest.raises(bf.InvalidArgumentError) as caught:
                use(burst=burst)
            assert str(caught.value).startswith(said), caught.value
            assert len(str(caught.value).splitlines()) == 1
    monkeypatch.setenv("BEDFORM_BURST", str(file))
    with pytest.raises(bf.InvalidArgumentError, match=f'tier {file}: "{file}" is not a directory'):
        store.session()
    store.session(burst=False).close()


def test_the_tier_is_configured_beside_the_store_or_by_variables(
    store: bf.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places() -> list[str]:
        with store.session(settle="later") as session:
            session.append("t", np.zeros((1, 8), "int32"))
            session.flush()
            return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("fast"))

    assert places() == []
    (tmp_path / "bedform.toml").write_text(f'[burst]\npath = "{tmp_path}/fast-by-file"\n')
    assert places() == ["fast-by-file"]
    monkeypatch.setenv("BEDFORM_BURST", str(tmp_path / "fast-by-variable"))
    assert places() == ["fast-by-file", "fast-by-variable"]
    (tmp_path / "bedform.toml").write_text('[burst]\npath = "x"\nsize = 3\n')
    with pytest.raises(bf.InvalidArgumentError, match=r"bedform\.toml: line 3.*size"):
        store.session()
    with pytest.raises(bf.InvalidArgumentError, match="durability"):
        store.session(burst=False, durability="moon")  # type: ignore[arg-type]


def test_many_arrays_are_created_at_once_or_not_at_all(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "many.zarr")
    new = {"shape": (3, 4), "dtype": "float32", "dims": ("y", "x"), "fill_value": np.nan}
    store.create_arrays({f"group/v{number}": new for number in range(40)})
    assert len(store["group"]) == 40
    assert np.isnan(store["group/v7"][:]).all()
    with pytest.raises(bf.ExistsError):
        store.create_arrays({"w": new, "group/v7": new})
    assert "w" not in store
    for wrong in ({"shape": (3,)}, {**new, "colour": 1}):
        with pytest.raises(bf.InvalidArgumentError, match="array 'w'"):
            store.create_arrays({"w": wrong})
    with pytest.raises(bf.InvalidArgumentError, match="inside"):
        store.create_arrays({"w": new, "w/x": new})
    assert "w" not in store


def in_process(code: str, throttle: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys, bedform as bf\n" + code, *map(str, arguments)]
    environment = {**os.environ, "BEDFORM_THROTTLE": throttle}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_throttled_store_holds_the_same(store: bf.Store, tmp_path: Path) -> None:
    write = """
with bf.open(sys.argv[1], mode="r+").session(burst=sys.argv[2], durability="node") as session:
    session.append("t", [[1, 2, 3, 4, 5, 6, 7, 8]])
"""
    done = in_process(write, "100 MB/s, 10 us", tmp_path / "run.zarr", tmp_path / "fast")
    assert done.returncode == 0, done.stderr
    assert store["t"][...].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("throttle", ["fast", "5 ms", "512 MB/s", "0 MB/s, 5 ms", "1 MB, 1 ms"])
def test_what_says_no_throttle_is_refused_in_one_line(tmp_path: Path, throttle: str) -> None:
    code = """
try:
    bf.open(sys.argv[1])
except ValueError as error:
    print(error)
"""
    done = in_process(code, throttle, tmp_path / "run.zarr")
    (line,) = done.stdout.splitlines()
    assert line.startswith("BEDFORM_THROTTLE: ") and throttle in line and "512 MB/s, 5 ms" in line
