"""Replicas made in the background after a number of recorded reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import PATIENCE, command_line, wait_until
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

SHAPE = (300, 40, 50)
SLOW = {"BEDFORM_THROTTLE": "4 MB/s, 1 ms"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of noise, in maps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    path = tmp_path / "era5.h5"
    values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    with h5py.File(path, "w") as target:
        target.create_dataset("t", data=values, chunks=(1, 40, 50), compression="gzip")
    return path


def values_of(path: Path) -> Any:
    with h5py.File(path) as source:
        return source["t"][:]


def started(script: str, path: Path, **environment: str) -> subprocess.Popen[str]:
    code = f"import bedform as bf, numpy as np\npath = {str(path)!r}\n" + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script: str, path: Path, **environment: str) -> str:
    process = started(script, path, **environment)
    said, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    return said


SERIES = """
with bf.open(path, prefetch=False) as store:
    for at in range(40):
        store["t"][:, at % 40, 7]
    print(sum(one["reads"] for one in store.stats()["replicas"]))
"""


def policy(path: Path) -> Path:
    return Path(f"{path}.bedform/policy")


def by_policy(path: Path) -> subprocess.CompletedProcess[str]:
    """Runs the policy in a child process, since it lowers its priority permanently."""
    return subprocess.run(
        [*command_line(), "optimize", "--by-policy", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def settled(path: Path, began: int = 0) -> dict[str, Any]:
    """Returns the state once a run that began later has ended."""

    def has_ended() -> bool:
        found = outcome_of(path)
        return bool(found and found["ended"] and found["began"] >= began)

    wait_until(has_ended, "a run has ended")
    wait_until(lambda: not bf.watch_state(path)["is_running"], "it has let go of the lock")
    return bf.watch_state(path)


def outcome_of(path: Path) -> dict[str, Any] | None:
    """Returns the kept outcome of the last run.

    The state contains it, too. But determining whether a run is active takes the lock for a moment,
    and a run that repeatedly finds the lock taken leaves the work to another.
    """
    kept = policy(path) / "outcome"
    found: dict[str, Any] | None = json.loads(kept.read_bytes()) if kept.exists() else None
    return found


def test_enough_reads_of_several_processes_have_replicas_made_that_later_ones_read(
    file: Path,
) -> None:
    bf.watch(file, optimize_after=100, budget="400%")
    for _ in range(2):
        assert run(SERIES, file).strip() == "0"
    state = bf.watch_state(file)
    assert state["is_watched"]
    assert state["settings"]["optimize_after"] == 100
    assert (state["reads"], state["outcome"], state["is_running"]) == (80, None, False)
    run(SERIES, file)
    state = settled(file)
    outcome = state["outcome"]
    assert (outcome["error"], len(outcome["made"]), state["reads"]) == ("", 1, 0)
    assert outcome["gain"] > 0.1
    assert not (policy(file) / "claimed").exists()
    assert run(SERIES, file).strip() == "40"
    with bf.open(file) as store:
        np.testing.assert_array_equal(store["t"][:, 3, 7], values_of(file)[:, 3, 7])


def test_a_process_that_reads_on_starts_it_too(file: Path) -> None:
    bf.watch(file, optimize_after=30, budget="400%")
    with bf.open(file, prefetch=False) as store:
        for at in range(40):
            store["t"][:, at, 7]
        bf._internal.keep_traces()
        assert len(settled(file)["outcome"]["made"]) == 1


def test_reads_that_change_have_other_replicas_made_and_the_rest_changes_nothing(
    file: Path,
) -> None:
    bf.watch(file, optimize_after=40, budget="400%")
    run(SERIES, file)
    first = settled(file)["outcome"]
    assert len(first["made"]) == 1
    time.sleep(1.1)
    run(SERIES, file)
    second = settled(file, first["began"] + 1)["outcome"]
    assert (second["made"], second["dropped"], second["error"]) == ([], [], "")
    assert "nothing was made" in second["verdict"]
    time.sleep(1.1)
    run(
        """
        with bf.open(path, prefetch=False) as store:
            for at in range(100):
                store["t"][:, at % 40, :]
        """,
        file,
    )
    third = settled(file, second["began"] + 1)["outcome"]
    assert third["made"], third
    array = bf.open(file)["t"]
    assert array.explain(np.s_[:, 5, :]).to_dict().get("replicas")
    np.testing.assert_array_equal(array[:, 5, :], values_of(file)[:, 5, :])


def test_reads_that_no_replica_makes_faster_have_none_made(file: Path) -> None:
    bf.watch(file, optimize_after=5, budget="400%")
    run("store = bf.open(path)\nfor _ in range(6): store['t'][:]", file)
    outcome = settled(file)["outcome"]
    assert (outcome["made"], outcome["error"]) == ([], "")


def test_it_is_ended_and_never_begun_where_it_cannot_be(file: Path) -> None:
    bf.watch(file, optimize_after=5)
    bf.watch(file)
    assert bf.watch_state(file)["settings"]["budget"] is None
    bf.watch(file, optimize_after=0)
    run(SERIES, file)
    state = bf.watch_state(file)
    assert (state["is_watched"], state["settings"], state["outcome"]) == (True, None, None)
    bf.watch(file, optimize_after=5, budget=1 << 20)
    bf.watch(file, on=False)
    assert bf.watch_state(file)["settings"] is None
    assert not bf.watch_state(file)["is_watched"]
    with pytest.raises(bf.InvalidArgumentError, match="not a budget"):
        bf.watch(file, optimize_after=5, budget="much%")
    assert not bf.watch_state(file)["is_watched"]
    for wrong in (-1, 5):
        with pytest.raises(bf.InvalidArgumentError, match="optimize_after"):
            bf.watch(file, on=wrong < 0, optimize_after=wrong)
    refused = by_policy(file)
    assert refused.returncode == 2
    assert "--optimize-after 1000" in refused.stderr


def test_what_goes_wrong_is_kept_and_said_and_no_read_fails(file: Path) -> None:
    bf.watch(file, optimize_after=30, budget="400%")
    replicas = Path(f"{file}.bedform/replicas")
    replicas.write_text("a file")
    assert run(SERIES, file).strip() == "0"
    state = settled(file)
    assert "replicas" in state["outcome"]["error"]
    shown = CliRunner().invoke(app, ["watch", "--state", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "nothing was made" in " ".join(shown.output.split())
    replicas.unlink()
    time.sleep(1.1)
    run(SERIES, file)
    assert settled(file, state["outcome"]["began"] + 1)["outcome"]["made"]


def test_one_that_was_killed_goes_on_with_the_next_process_that_reads(file: Path) -> None:
    bf.watch(file, optimize_after=1000, budget="400%")
    run(SERIES, file)
    # Like a process that starts one.
    (policy(file) / "reads").rename(policy(file) / "claimed")
    slow = subprocess.Popen(
        [sys.executable, "-m", "bedform", "optimize", "--by-policy", str(file)],
        env={**os.environ, **SLOW},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The outcome exists once it has the lock.
    wait_until(lambda: outcome_of(file), "it has begun")
    assert bf.watch_state(file)["is_running"]
    slow.send_signal(signal.SIGKILL)
    slow.wait()
    state = bf.watch_state(file)
    assert (state["is_running"], state["outcome"]["ended"]) == (False, 0)
    assert "was stopped" in CliRunner().invoke(app, ["watch", "--state", str(file)]).output
    run(SERIES, file)
    assert settled(file)["outcome"]["made"]
    np.testing.assert_array_equal(bf.open(file)["t"][:, 5, 7], values_of(file)[:, 5, 7])


def test_of_processes_that_all_have_read_enough_one_optimises(file: Path) -> None:
    bf.watch(file, optimize_after=30, budget="400%")
    readers = [started(SERIES, file) for _ in range(4)]
    for reader in readers:
        reader.communicate(timeout=PATIENCE)
        assert reader.returncode == 0
    assert settled(file)["outcome"]["error"] == ""
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "bedform", "optimize", "--by-policy", "--json", str(file)],
            env={**os.environ, **SLOW},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    outcomes = [json.loads(command.communicate(timeout=PATIENCE)[0]) for command in commands]
    assert any(outcome is not None for outcome in outcomes)
    assert all(outcome is None or outcome["error"] == "" for outcome in outcomes)
    kept = sorted(path.name for path in Path(f"{file}.bedform/replicas").glob("[0-9a-f]*"))
    assert len(kept) == 1


def test_one_due_policy_starts_one_process_until_that_is_lost(file: Path, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if '--by-policy' in sys.orig_argv:\n"
        f"    open({str(starts)!r}, 'a').write('x')\n"
        # Before it takes the lock, which none of them ever does.
        "    os._exit(0)\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    bf.watch(file, optimize_after=30, budget="400%")
    readers = [started(SERIES, file, PYTHONPATH=path) for _ in range(4)]
    for reader in readers:
        assert reader.communicate(timeout=PATIENCE)[0].strip() == "0"
    assert said_within(starts, "x") == "x"
    # The claim looks new; after a minute it counts as lost.
    os.utime(policy(file) / "claimed")
    run(SERIES, file, PYTHONPATH=path)
    time.sleep(1)
    assert starts.read_text() == "x"
    os.utime(policy(file) / "claimed", (1, 1))
    run(SERIES, file, PYTHONPATH=path)
    assert said_within(starts, "xx") == "xx"


def said_within(path: Path, said: str) -> str:
    """Returns the contents of a file once it has the expected text, and a second later."""
    wait_until(lambda: path.exists() and len(path.read_text()) >= len(said), f"it says {said}")
    # Time for unexpected output.
    time.sleep(1)
    return path.read_text()


@pytest.mark.parametrize("after", [None, 0, 1000])
def test_a_process_that_is_reading_does_what_is_asked_for_now(
    file: Path, after: int | None
) -> None:
    bf.watch(file, optimize_after=50, budget="400%")
    with bf.open(file, prefetch=False) as store:
        for at in range(20):
            store["t"][:, at, 7]
        bf._internal.keep_traces()
        assert bf.watch_state(file)["reads"] == 20
        bf.watch(file, on=after is not None, optimize_after=after)
        for at in range(40):
            store["t"][:, at, 8]
        bf._internal.keep_traces()
        store["t"][:, 1, 9]
        bf._internal.keep_traces()
    state = bf.watch_state(file)
    assert (state["outcome"], state["is_running"]) == (None, False)
    assert state["reads"] == (61 if after else 0)
    assert not (policy(file) / "claimed").exists()


def test_many_small_counts_are_added_up(file: Path) -> None:
    bf.watch(file, optimize_after=10**6, budget="400%")
    (policy(file) / "reads").write_bytes((1).to_bytes(8, "little") * 200_000)
    run(SERIES, file)
    state = bf.watch_state(file)
    assert (state["reads"], state["outcome"]) == (200_040, None)


@pytest.mark.parametrize("name", ["settings", "outcome", "reads", "claimed"])
@pytest.mark.parametrize("harm", ["noise", "empty", "directory", "link", "huge"])
def test_harmed_files_of_a_policy_are_not_believed_and_no_read_fails(
    file: Path, tmp_path: Path, name: str, harm: str
) -> None:
    bf.watch(file, optimize_after=10**9, budget="400%")
    place = policy(file) / name
    place.unlink(missing_ok=True)
    match harm:
        case "noise":
            place.write_bytes(b'{"version": 1, "optimize_after": -3}\xff')
        case "empty":
            place.write_bytes(b"")
        case "directory":
            place.mkdir()
        case "link":
            place.symlink_to(tmp_path / "elsewhere")
            (tmp_path / "elsewhere").write_text('{"version":1,"optimize_after":1,"path":"/"}')
        case "huge":
            with place.open("wb") as target:
                target.truncate(1 << 40)
    array = bf.open(file, prefetch=False)["t"]
    np.testing.assert_array_equal(array[:, 5, 7], values_of(file)[:, 5, 7])
    del array
    bf._internal.keep_traces()
    state = bf.watch_state(file)
    assert (state["settings"] is None) == (name == "settings")
    assert CliRunner().invoke(app, ["watch", "--state", str(file)]).exit_code == 0


def test_the_commands_say_how_it_stands(file: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["info", str(file)])
    assert "watch" not in shown.output
    asked = ["watch", str(file), "--optimize-after", "30", "--budget", "400%"]
    shown = runner.invoke(app, asked)
    assert "replicas are made after 30, within 400%" in " ".join(shown.output.split())
    run(SERIES, file)
    settled(file)
    for command in (["info"], ["watch", "--state"]):
        said = " ".join(runner.invoke(app, [*command, str(file)]).output.split())
        assert "1 replicas made" in said
        document = json.loads(runner.invoke(app, [*command, "--json", str(file)]).stdout)
        outcome = document.get("watch", document)["outcome"]
        assert outcome["made"]
    assert json.loads(by_policy(file).stdout)["made"] == []
