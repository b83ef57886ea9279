"""Stores of Bedform whose arrays get new layouts in place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from support import ENVIRONMENT, PATIENCE, cases, command_line, wait_until
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (240, 40, 50)
SERIES: dict[str, Any] = {"reorganize": True, "reads": {"time": 1}}
runner = CliRunner()


def values(name: str = "t") -> Any:
    found = np.random.default_rng(len(name)).integers(0, 10_000, SHAPE).astype("f4")
    found[3, 4:9] = np.nan
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Makes a store of maps, with other arrays."""
    path = tmp_path / "run.zarr"
    maps = bf.Regular(chunks=(1, 40, 50), shards=(20, 40, 50))
    with bf.create(path, attributes={"title": "waves", "_FillValue": -1.5}) as store:
        store.create_group("g", attributes={"deep": {"list": [1, 2.5, None, "é"]}})
        for name, codecs, more in (("t", "zstd", {}), ("g/u", "blosc", {"_FillValue": -9999.0})):
            store.create_array(
                name,
                data=values(name),
                dims=("time", "lat", "lon"),
                layout=maps,
                codecs=[codecs],
                fill_value=np.nan,
                attributes={"units": "K", "huge": 2**60 + 1, **more},
            )
        store.create_array("time", data=np.arange(SHAPE[0], dtype="i8"), dims=("time",))
        store.create_array("names", data=np.array(["a", "béta", ""], object), dims=("name",))
        sparse = store.create_array(
            "sparse", SHAPE, "i2", ("t", "y", "x"), layout=maps, fill_value=7
        )
        sparse[30:33] = 5
    (path / "README.txt").write_text("of others")
    (path / "t" / "notes.txt").write_text("of others, too")
    return path


def contents(path: Path) -> dict[str, Any]:
    """Returns the contents of a store except layouts, by Bedform and another reader."""
    found: dict[str, Any] = {}
    with bf.open(path, cache=0) as store:
        found[""] = dict(store.attrs)
        for name in ("t", "g/u", "time", "names", "sparse"):
            array = store[name]
            facts = array._inner.describe()
            facts = json.loads(facts) if isinstance(facts, str) else facts
            kept = ("shape", "dtype", "codecs", "fill_value", "dims", "attributes", "checked")
            found[name] = ({key: facts[key] for key in kept}, np.asarray(array[...]))
        found["g"] = dict(store["g"].attrs)
    return found


def check_same(path: Path, before: dict[str, Any]) -> None:
    after = contents(path)
    assert after.keys() == before.keys()
    for name, (facts, elements) in ((k, v) for k, v in before.items() if isinstance(v, tuple)):
        assert json.dumps(after[name][0]) == json.dumps(facts), name
        np.testing.assert_array_equal(after[name][1], elements)
    assert [after[name] for name in ("", "g")] == [before[name] for name in ("", "g")]
    other = zarr.open_group(path, mode="r")
    np.testing.assert_array_equal(other["t"][:, 3, 4], before["t"][1][:, 3, 4])
    assert set(dict(other.members(max_depth=None))) == {"g", *before} - {""}
    assert (path / "README.txt").read_text() == "of others"
    assert (path / "t" / "notes.txt").read_text() == "of others, too"


def chunks(path: Path, name: str = "t") -> tuple[int, ...]:
    return tuple(bf.open(path)[name].chunks)


def hidden(path: Path) -> list[str]:
    """Returns the hidden names beside a store."""
    return [one.name for one in path.parent.iterdir() if one.name.startswith(".")]


def test_arrays_get_the_layout_of_their_reads_and_all_else_stays(path: Path) -> None:
    before = contents(path)
    done = bf.optimize(path, **SERIES)
    assert done.done is not None
    assert {"t", "g/u"} <= set(done.changed)
    assert chunks(path)[0] > 1
    assert chunks(path, "g/u")[0] > 1
    for read in done.plan["reads"]:
        assert read["seconds_then"] <= read["seconds_now"]
    check_same(path, before)
    assert hidden(path) == []


def test_the_same_again_changes_nothing(path: Path) -> None:
    bf.optimize(path, **SERIES)
    state = [(one, one.stat().st_mtime_ns) for one in sorted(path.rglob("*")) if one.is_file()]
    again = bf.optimize(path, **SERIES)
    assert again.changed == []
    assert all(array["kept"] for array in again.plan["arrays"])
    assert state == [
        (one, one.stat().st_mtime_ns) for one in sorted(path.rglob("*")) if one.is_file()
    ]


def test_what_keeps_its_layout_keeps_its_files(path: Path) -> None:
    files = [one for one in (path / "sparse").rglob("*") if one.is_file()]
    before = {one: one.stat().st_ino for one in files}
    done = bf.optimize(path, reorganize=True, selections={"t": [np.s_[:, 3, 4]]})
    assert done.changed == ["t"]
    assert before == {one: one.stat().st_ino for one in files}


def test_a_dry_run_says_what_would_be_and_writes_nothing(path: Path) -> None:
    listed = sorted(path.parent.rglob("*"))
    result = runner.invoke(
        app, ["optimize", str(path), "--reorganize", "--reads", "time=1", "--dry-run"]
    )
    assert result.exit_code == 0, result.output
    assert "240x1x1" in result.output.replace(" x ", "x")
    assert "nothing was written" in result.output
    assert "1x40x50" in result.output.replace(" x ", "x")
    assert sorted(path.parent.rglob("*")) == listed
    shown = runner.invoke(
        app, ["optimize", str(path), "--reorganize", "--reads", "time=1", "--dry-run", "--json"]
    )
    plan = json.loads(shown.stdout)["plan"]
    t = next(array for array in plan["arrays"] if array["array"] == "t")
    assert t["now"]["chunk_shape"] == [1, 40, 50]
    assert t["seconds_then"] < t["seconds_now"]
    assert plan["bytes"] >= t["bytes"] > 0


def test_the_command_reorganizes(path: Path) -> None:
    before = contents(path)
    result = runner.invoke(app, ["optimize", str(path), "--reorganize", "--reads", "time=1"])
    assert result.exit_code == 0, result.output
    assert "every byte compared" in result.output
    check_same(path, before)


def test_learnt_reads_decide_and_what_was_learnt_stays(path: Path) -> None:
    bf.watch(path)
    program = f"""
import bedform as bf, numpy as np
with bf.open({str(path)!r}) as store:
    for at in range(60):
        store["t"][:, at % 40, at % 50]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    bf.learn(path)
    sidecar = Path(f"{path}.bedform")
    knowledge = {one.name: one.read_bytes() for one in (sidecar / "knowledge").iterdir()}
    done = bf.optimize(path, reorganize=True)
    assert done.changed == ["t"]
    assert chunks(path, "g/u") == (1, 40, 50)
    assert knowledge == {one.name: one.read_bytes() for one in (sidecar / "knowledge").iterdir()}
    # The knowledge still counts: replicas could be made from it, and no layout would change again.
    assert bf.optimize(path, dry_run=True).plan["reads"]
    assert bf.optimize(path, reorganize=True).changed == []


def test_replicas_of_the_old_layout_go_and_others_stay(path: Path) -> None:
    # Younger files count as changed when they get a hard link.
    time.sleep(2.1)
    made = bf.optimize(path, "400%", reads={"time": 1}).made
    assert {one["array"] for one in made} >= {"t", "g/u"}
    done = bf.optimize(path, reorganize=True, selections={"t": [np.s_[:, 3, 4]]})
    assert done.done is not None
    assert done.done["dropped"] == [one["id"] for one in made if one["array"] == "t"]
    replicas = {one.name for one in Path(f"{path}.bedform", "replicas").iterdir() if one.is_dir()}
    assert not replicas & set(done.done["dropped"])
    with bf.open(path, cache=0) as store:
        np.testing.assert_array_equal(store["g/u"][:, 7, 9], values("g/u")[:, 7, 9])
        used = [one["array"] for one in store.stats()["replicas"] if one["reads"]]
    assert used == ["g/u"]


def test_modes_of_directories_and_files_stay(path: Path) -> None:
    path.chmod(0o750)
    (path / "t").chmod(0o2750)
    (path / "t" / "zarr.json").chmod(0o640)
    bf.optimize(path, **SERIES)
    mode = lambda one: stat.S_IMODE(one.stat().st_mode)  # noqa: E731
    assert mode(path) == 0o750
    assert mode(path / "t") == 0o2750
    shards = [one for one in (path / "t").rglob("*") if one.is_file() and "notes" not in one.name]
    assert {mode(one) for one in shards} == {0o640}


def test_a_store_that_a_link_names_is_replaced_where_it_lies(path: Path) -> None:
    link = path.parent / "link.zarr"
    link.symlink_to(path.name)
    before = contents(path)
    bf.optimize(link, **SERIES)
    assert link.is_symlink()
    assert chunks(path)[0] > 1
    check_same(path, before)


def test_writing_goes_on_after_it(path: Path) -> None:
    bf.optimize(path, **SERIES)
    expected = values()
    with bf.open(path, "r+") as store:
        with store.session() as session:
            session.write("t", np.full((3, 40, 50), 9, "f4"), start=(5, 0, 0))
        store["t"][9] = 4
        store["t"].append(np.ones((2, 40, 50), "f4"), axis=0)
    expected[5:8], expected[9] = 9, 4
    expected = np.concatenate([expected, np.ones((2, 40, 50), "f4")])
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], expected)
    bf.optimize(path, reorganize=True, reads={("lat", "lon"): 1})
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], expected)


def refused(path: Any, **options: Any) -> str:
    """Returns the one-line message for something that is not reorganized."""
    arguments = {**SERIES, **options}
    for dry_run in (True, False):
        with pytest.raises(bf.BedformError) as caught:
            bf.optimize(path, **{**arguments, "dry_run": dry_run})
        said = str(caught.value)
        assert "\n" not in said
    return said


def test_what_is_no_store_of_ours_is_refused_and_told_what_to_do(
    tmp_path: Path, path: Path
) -> None:
    file = tmp_path / "era5.h5"
    with h5py.File(file, "w") as target:
        target["t"] = values()
    assert "bedform convert" in refused(file)
    assert "bedform convert" in refused([file, file])
    for version in (2, 3):
        other = tmp_path / f"other{version}.zarr"
        zarr.create_group(other, zarr_format=version).create_array("t", data=values())
        assert "bedform convert" in refused(other)
    assert "bedform convert" in refused("s3://bucket/run.zarr")
    assert "part of a store" in refused(path / "g")
    assert "part of a store" in refused(path / "t")
    assert "bedform convert" in refused(tmp_path)
    with pytest.raises(bf.NotFoundError):
        bf.optimize(tmp_path / "none.zarr", **SERIES)


def test_commits_that_are_not_settled_are_settled_first(path: Path) -> None:
    with bf.open(path, "r+") as store:
        with store.session(settle="later") as session:
            session.write("t", np.full((3, 40, 50), 9, "f4"), start=(5, 0, 0))
        assert "bedform settle" in refused(path)
        store.settle()
    bf.optimize(path, **SERIES)
    with bf.open(path) as store:
        assert (store["t"][5:8] == 9).all()


def test_a_store_that_a_session_writes_is_refused(path: Path) -> None:
    with bf.open(path, "r+") as store:
        session = store.session()
        session.write("t", np.full((20, 40, 50), 9, "f4"), start=(0, 0, 0))
        session.flush()
        assert "is being written" in refused(path)
        session.commit()
        session.close()
    with bf.open(path) as store:
        assert (store["t"][:20] == 9).all()


def test_a_session_that_began_before_it_loses_nothing_in_silence(path: Path) -> None:
    with bf.open(path, "r+") as store:
        session = store.session()
        bf.optimize(path, **SERIES)
        with pytest.raises(bf.BedformError):
            session.write("t", np.full((20, 40, 50), 9, "f4"), start=(0, 0, 0))
            session.commit()
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], values())


def test_a_directory_above_that_may_not_be_written_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    path.parent.chmod(0o555)
    try:
        assert str(path.parent) in refused(path)
    finally:
        path.parent.chmod(0o755)


def test_links_in_a_store_are_refused_before_anything_changes(path: Path) -> None:
    (path / "g" / "link").symlink_to("u")
    with pytest.raises(bf.UnsupportedError, match="g/link"):
        bf.optimize(path, **SERIES)
    assert hidden(path) == []
    (path / "g" / "link").unlink()


def during(path: Path, act: Callable[[], None], **options: Any) -> bf.Reorganization:
    """Reorganizes, and acts once the copy has begun."""
    told = []

    def progress(_done: int, _total: int) -> None:
        if not told:
            told.append(1)
            act()

    return bf.optimize(path, **{**SERIES, **options}, progress=progress)


def write_directly(path: Path) -> None:
    with bf.open(path, "r+") as store:
        store["g/u"][7] = 3


def test_a_store_that_changes_while_it_is_copied_stays_as_it_is(path: Path) -> None:
    with pytest.raises(bf.ConflictError, match="has changed while"):
        during(path, lambda: write_directly(path))
    assert chunks(path) == (1, 40, 50)
    # The next run copies the present data.
    bf.optimize(path, **SERIES)
    assert hidden(path) == []
    with bf.open(path) as store:
        assert (store["g/u"][7] == 3).all()
        np.testing.assert_array_equal(store["t"][...], values())


def test_a_commit_while_it_is_copied_is_not_lost(path: Path) -> None:
    def commit() -> None:
        with bf.open(path, "r+") as store, store.session(settle="later") as session:
            session.write("t", np.full((3, 40, 50), 9, "f4"), start=(5, 0, 0))

    with pytest.raises(bf.ConflictError, match="not settled"):
        during(path, commit)
    with bf.open(path, "r+") as store:
        store.settle()
    bf.optimize(path, **SERIES)
    with bf.open(path) as store:
        assert (store["t"][5:8] == 9).all()


class StopError(Exception):
    pass


def stop_after(parts: int) -> Callable[[int, int], None]:
    seen = [0]

    def progress(_done: int, _total: int) -> None:
        seen[0] += 1
        if seen[0] > parts:
            raise StopError

    return progress


def test_what_was_stopped_goes_on_with_the_same_call(path: Path) -> None:
    before = contents(path)
    with pytest.raises(StopError):
        bf.optimize(path, **SERIES, memory="2 MiB", progress=stop_after(0))
    check_same(path, before)
    done = bf.optimize(path, **SERIES, memory="2 MiB")
    assert done.done is not None
    assert done.done["resumed_bytes"] > 0
    check_same(path, before)
    assert hidden(path) == []


def test_another_request_begins_anew(path: Path) -> None:
    before = contents(path)
    with pytest.raises(StopError):
        bf.optimize(path, **SERIES, memory="2 MiB", progress=stop_after(0))
    done = bf.optimize(path, reorganize=True, reads={("time", "lat"): 1}, memory="2 MiB")
    assert done.done is not None
    assert done.done["resumed_bytes"] == 0
    check_same(path, before)
    assert hidden(path) == []


def test_two_at_once_do_not_mix(path: Path) -> None:
    before = contents(path)

    def another() -> None:
        program = f"import bedform as bf; bf.optimize({str(path)!r}, **{SERIES!r})"
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
        )
        assert "ConflictError: another process reorganizes" in ended.stderr

    during(path, another)
    check_same(path, before)


@pytest.mark.parametrize("freshness", ["read", "open", "never"])
def test_a_reader_that_has_the_store_open_gets_its_values_or_an_error(
    path: Path, freshness: Any
) -> None:
    expected, sparse = values(), bf.open(path)["sparse"][...]
    errors = []
    with bf.open(path, cache=0, freshness=freshness) as store:
        t, unread = store["t"], store["sparse"]
        np.testing.assert_array_equal(t[3], expected[3])
        bf.optimize(path, **SERIES)
        for at in (np.s_[3], np.s_[200], np.s_[:, 3, 4]):
            try:
                np.testing.assert_array_equal(t[at], expected[at])
            except bf.BedformError as error:
                errors.append(str(error))
        # Most of it is fill values; a missing shard must not be mistaken for them.
        try:
            np.testing.assert_array_equal(unread[30:33], sparse[30:33])
        except bf.BedformError as error:
            errors.append(str(error))
    assert all("\n" not in error for error in errors)
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], expected)


@pytest.mark.parametrize("freshness", ["read", "open"])
def test_reads_while_the_stores_change_places_are_never_wrong(path: Path, freshness: Any) -> None:
    expected, sparse = values(), bf.open(path)["sparse"][...]
    ended, wrong, right = threading.Event(), [], [0]

    def read() -> None:
        generator = np.random.default_rng(1)
        while not ended.is_set():
            try:
                with bf.open(path, cache=0, freshness=freshness) as store:
                    t, s = store["t"], store["sparse"]
                    for _ in range(50):
                        day, y = generator.integers(0, (240, 40))
                        if not np.array_equal(t[day], expected[day], equal_nan=True):
                            wrong.append(day)
                        if not np.array_equal(t[:, y, 7], expected[:, y, 7], equal_nan=True):
                            wrong.append(y)
                        if not (s[28:34] == sparse[28:34]).all():
                            wrong.append("sparse")
                        right[0] += 1
            except bf.BedformError:
                pass

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(6):
            reads: Any = {"time": 1} if number % 2 == 0 else {("lat", "lon"): 1}
            assert bf.optimize(path, reorganize=True, reads=reads).changed
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert right[0]


def test_a_program_that_writes_all_the_time_loses_nothing(path: Path, tmp_path: Path) -> None:
    is_over = tmp_path / "is over"
    program = f"""
import bedform as bf, time
from pathlib import Path
last = 0
while not Path({str(is_over)!r}).exists():
    try:
        with bf.open({str(path)!r}, "r+") as store:
            for _ in range(20):
                store["time"][:] = last + 1
                last += 1
                time.sleep(0.02)
    except bf.BedformError:
        pass
print(last)
"""
    command = [sys.executable, "-c", program]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: bf.open(path)["time"][0] > 0, "it writes")
    for _ in range(12):
        try:
            bf.optimize(path, **SERIES)
        except bf.BedformError as error:
            assert "\n" not in str(error)
        time.sleep(0.05)
    is_over.touch()
    last = int(child.communicate(timeout=PATIENCE)[0])
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], values())
        assert last <= store["time"][0] <= last + 1
    bf.optimize(path, **SERIES)
    assert hidden(path) == []


def killed_after(seconds: float, path: Path) -> bool:
    """Reorganizes in a process that is killed after some seconds; False if it ended before."""
    child = os.fork()
    if child == 0:
        try:
            bf.optimize(path, **SERIES, memory="2 MiB")
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.reliability
def test_a_process_that_is_killed_at_any_time_leaves_the_store_whole(
    path: Path, tmp_path: Path
) -> None:
    before, pristine = contents(path), tmp_path / "pristine"
    shutil.copytree(path, pristine)
    began = time.monotonic()
    bf.optimize(path, **SERIES, memory="2 MiB")
    took = time.monotonic() - began
    kills = 0
    for case in cases(least=2):
        shutil.rmtree(path)
        shutil.copytree(pristine, path)
        chance = case.chance
        with case:
            for _ in range(2):
                kills += killed_after(chance.random() * took * 1.1, path)
                check_same(path, before)
            bf.optimize(path, **SERIES, memory="2 MiB")
            check_same(path, before)
            assert chunks(path)[0] > 1
            assert hidden(path) == []
    sys.stdout.write(f"\nCOUNT reorganize_kills {kills}\n")


def between_copy_and_swap(path: Path) -> None:
    """Reorganizes in a process that is killed after copying and comparing."""
    program = f"""
import bedform as bf, os, signal
passes = [0, 0]
def progress(done, total):
    if done < passes[1]:
        passes[0] += 1
    passes[1] = done
    if passes[0] == 1 and done == total:
        os.kill(os.getpid(), signal.SIGKILL)
bf.optimize({str(path)!r}, **{SERIES!r}, memory="2 MiB", progress=progress)
"""
    # Slow enough for several progress reports.
    environment = {**os.environ, "BEDFORM_THROTTLE": "4 MB/s, 1 ms"}
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, env=environment)
    assert ended.returncode == -signal.SIGKILL


def test_a_process_that_is_killed_between_copy_and_exchange_leaves_the_old_store(
    path: Path,
) -> None:
    before = contents(path)
    between_copy_and_swap(path)
    assert chunks(path) == (1, 40, 50)
    check_same(path, before)
    done = bf.optimize(path, **SERIES, memory="2 MiB")
    assert done.done is not None
    # All data were copied.
    sizes = [array["bytes"] for array in done.plan["arrays"] if array["is_changed"]]
    assert sizes
    assert done.done["resumed_bytes"] >= values().nbytes * 2
    check_same(path, before)
    assert hidden(path) == []


def test_what_a_killed_process_has_left_goes_when_nothing_is_to_do(path: Path) -> None:
    before = contents(path)
    between_copy_and_swap(path)
    assert hidden(path)
    done = bf.optimize(path, reorganize=True, reads={("lat", "lon"): 1})
    assert "t" not in done.changed
    assert hidden(path) == []
    check_same(path, before)


def system(*command: str) -> bool:
    done = subprocess.run(
        [shutil.which(command[0]) or command[0], *command[1:]], capture_output=True
    )
    return done.returncode == 0


@pytest.mark.reliability
def test_a_full_device_is_said_and_the_store_stays(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if not system("mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(place)):
        pytest.skip("no file system can be mounted here")
    try:
        store = place / "run.zarr"
        shutil.copytree(path, store)
        used = shutil.disk_usage(place).used // 1024
        before, full = contents(store), 0
        for beyond in (64, 400, 900, 1500):
            assert system("mount", "-o", f"remount,size={used + beyond}k", str(place))
            with pytest.raises(bf.BedformError) as caught:
                bf.optimize(store, **SERIES)
            full += isinstance(caught.value, bf.NoSpaceError)
            assert "\n" not in str(caught.value)
            check_same(store, before)
        assert full
        assert system("mount", "-o", "remount,size=64m", str(place))
        bf.optimize(store, **SERIES)
        check_same(store, before)
        assert hidden(store) == []
    finally:
        assert system("umount", "-l", str(place))


def test_ctrl_c_ends_the_command_and_says_how_to_go_on(path: Path) -> None:
    big = path.parent / "big.zarr"
    with bf.create(big) as store:
        maps = bf.Regular(chunks=(1, 100, 100), shards=(8, 100, 100))
        array = store.create_array("t", (1600, 100, 100), "f4", ("time", "lat", "lon"), layout=maps)
        array[...] = np.random.default_rng(1).random((1600, 100, 100), "f4")
    command = [*command_line(), "optimize", str(big), "--reorganize", "--reads", "time=1"]
    child = subprocess.Popen(
        [*command, "--memory", "4MiB"], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    place = big.parent / ".big.zarr.bedform-reorganized"
    while not (place / "done").exists() and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    if child.returncode == 0:
        pytest.skip("it was faster")
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert chunks(big) == (1, 100, 100)


def test_xarray_reads_the_same_data_set(path: Path) -> None:
    with xr.open_dataset(path, engine="bedform") as before:
        before.load()
    bf.optimize(path, **SERIES)
    for engine in ("bedform", "zarr"):
        with xr.open_dataset(path, engine=engine) as after:  # type: ignore[arg-type]
            xr.testing.assert_identical(after["t"].load(), before["t"])
