"""Recorded reads, and the knowledge learnt from them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from support import PATIENCE

import bedform as bf

SHAPE = (60, 16, 32)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    path = tmp_path / "s.zarr"
    data = np.zeros(SHAPE, "f4")
    bf.create(path).create_array("t", data=data, dims=("time", "y", "x"), chunks=(1, 16, 32))
    return path


def run(script: str, place: Path, **environment: str) -> str:
    code = f"import os\nimport bedform as bf\nplace = {str(place)!r}\n" + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bedform", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def traces(place: Path) -> list[Path]:
    return sorted(Path(f"{place}.bedform/traces").glob("*"))


MAPS = """
store = bf.open(place)
for at in range(60):
    store["t"][at]
"""


def learned(place: Path) -> dict[str, Any]:
    return bf.learn(place)["knowledge"]["arrays"]["t"]


def test_nothing_is_recorded_before_it_is_turned_on_and_after_it_is_turned_off(place: Path):
    run(MAPS, place)
    assert not Path(f"{place}.bedform").exists()
    with pytest.raises(bf.NotFoundError, match="bedform watch"):
        bf.learn(place)
    assert bf.watch(place) == f"{place}.bedform/traces"
    run(MAPS, place)
    assert len(traces(place)) == 1
    bf.watch(place, on=False)
    run(MAPS, place)
    assert len(traces(place)) == 1


def test_maps_are_learnt_and_foreseen_from_the_second_read_on(place: Path):
    bf.watch(place)
    run(MAPS, place)
    known = learned(place)
    assert known["read"] == {"reads": 60, "bytes": 60 * 16 * 32 * 4}
    assert known["predicted"]["strided"]["reads"] == 57
    assert known["shape"] == list(SHAPE)
    assert known["seconds"] > 0
    again = run(
        MAPS + "print(store.stats()['prefetch']['foreseen'])",
        place,
        BEDFORM_THROTTLE="1 GB/s, 2 ms",
    )
    # The first read identifies the pattern, the second gives the time of a read.
    assert int(again) >= 58


def test_processes_and_forks_have_files_of_their_own_that_only_this_user_reads(place: Path):
    bf.watch(place)
    run(MAPS, place)
    run(
        """
        store = bf.open(place)
        store["t"][0]
        if os.fork() == 0:
            store["t"][1], store["t"][2]
            store.close()
            del store
            bf._internal.keep_traces()
            os._exit(0)
        os.wait()
        store["t"][3]
        """,
        place,
    )
    files = traces(place)
    assert len(files) == 3
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert learned(place)["read"]["reads"] == 64


def test_learning_again_adds_what_is_new_alone(place: Path):
    bf.watch(place)
    run(MAPS, place)
    assert bf.learn(place)["traces"] == 1
    again = bf.learn(place)
    assert again["traces"] == 0
    assert again["knowledge"]["arrays"]["t"]["read"]["reads"] == 60
    run(MAPS, place)
    assert learned(place)["read"]["reads"] == 120


def test_the_environment_records_the_reads_of_one_process(place: Path):
    run(MAPS, place, BEDFORM_TRACE="1", BEDFORM_SIDECAR=str(place.with_name("kept")))
    run(MAPS, place, BEDFORM_SIDECAR=str(place.with_name("kept")))
    assert not Path(f"{place}.bedform").exists()
    assert len(list(place.with_name("kept").glob("*/traces/*"))) == 1


def test_reads_of_netcdf_files_through_xarray_are_recorded(place: Path):
    file = place.with_name("t.nc")
    xr.Dataset({"v": (("time", "y", "x"), np.zeros(SHAPE, "f4"))}).to_netcdf(file)
    bf.watch(file)
    run(
        """
        import xarray as xr
        data = xr.open_dataset(place, engine="bedform")
        for at in range(16):
            data["v"][:, at, 3].values
        """,
        file,
    )
    known = bf.learn(file)["knowledge"]["arrays"]["v"]
    assert known["read"]["reads"] == 16
    assert known["predicted"]["strided"]["reads"] == 13


def test_lists_are_counted_and_text_is_not(place: Path):
    with bf.open(place, "r+") as store:
        store.create_array("names", (3,), str)[:] = ["a", "b", "c"]
    bf.watch(place)
    run(
        """
        store = bf.open(place)
        store["t"][[1, 5, 7]], store["t"].vindex[[1, 2], [3, 4], [5, 6]], store["names"][:]
        store["t"].read_union([(slice(0, 2),), (slice(5, 6),)])
        """,
        place,
    )
    known = bf.learn(place)["knowledge"]["arrays"]
    assert known["t"]["lists"]["reads"] == 3
    assert set(known) == {"t"}


def test_damaged_traces_and_what_is_no_trace_are_left_out(place: Path):
    bf.watch(place)
    run(MAPS, place)
    (whole,) = traces(place)
    content = whole.read_bytes()
    whole.with_name("torn").write_bytes(content[:-3])
    whole.with_name("noise").write_bytes(os.urandom(5000))
    whole.with_name("empty").write_bytes(b"")
    whole.with_name("link").symlink_to(whole)
    whole.with_name("directory").mkdir()
    os.mkfifo(whole.with_name("fifo"))
    found = bf.learn(place)
    assert found["traces"] == 1
    assert found["left_out"] == 6
    assert found["knowledge"]["arrays"]["t"]["read"]["reads"] == 60


def test_reads_of_a_store_that_was_replaced_are_ignored_and_counted(place: Path):
    bf.watch(place)
    run(MAPS, place)
    (former,) = traces(place)
    shutil.rmtree(place)
    bf.create(place).create_array("t", data=np.zeros(SHAPE, "f4"), chunks=(1, 16, 32))
    found = bf.learn(place)
    assert found["ignored"] == 60
    assert found["knowledge"]["arrays"] == {}
    run(MAPS, place)
    # A copy of an old record counts once.
    shutil.copy(former, former.with_name("copy"))
    shown = command("learn", str(place)).stdout
    assert "60 reads ignored" in shown
    assert bf.learn(place)["knowledge"]["arrays"]["t"]["read"]["reads"] == 60


def test_what_was_learnt_of_a_store_that_was_replaced_is_forgotten(place: Path):
    bf.watch(place)
    run(MAPS, place)
    assert learned(place)["patterns"]
    shutil.rmtree(place)
    bf.create(place).create_array("t", data=np.zeros(SHAPE, "f4"), chunks=(1, 16, 32))
    assert bf.learn(place)["knowledge"]["arrays"] == {}


def test_reads_of_a_store_that_has_no_key_are_learnt(place: Path):
    other = place.with_name("o.zarr")
    data = xr.Dataset({"t": (("time", "y", "x"), np.zeros(SHAPE, "f4"))})
    data.to_zarr(other, zarr_format=3, consolidated=False)
    bf.watch(other)
    run(MAPS, other)
    found = bf.learn(other)
    assert found["ignored"] == 0
    assert found["knowledge"]["arrays"]["t"]["read"]["reads"] == 60


def test_a_program_learns_from_its_own_reads(place: Path):
    bf.watch(place)
    with bf.open(place) as store:
        for at in range(20):
            assert store["t"][at].shape == SHAPE[1:]
        assert learned(place)["read"]["reads"] == 20


def test_learning_that_is_interrupted_leaves_what_is_known_as_it_was(place: Path):
    bf.watch(place)
    run(MAPS, place)
    known = bf.learn(place)["knowledge"]
    run(MAPS, place)

    def stop(done: int, all_of_them: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.learn(place, stop)
    assert bf.learn(place)["knowledge"]["arrays"]["t"]["read"]["reads"] == 120
    assert known["arrays"]["t"]["read"]["reads"] == 60


def test_damaged_knowledge_is_none(place: Path):
    bf.watch(place)
    run(MAPS, place)
    bf.learn(place)
    (kept,) = Path(f"{place}.bedform/knowledge").glob("*")
    hostile = [
        b"",
        b"{",
        b"[1]",
        b'{"version": 9}',
        b'{"version":1,"arrays":{"t":{"patterns":[1]}}}',
    ]
    for content in hostile:
        kept.write_bytes(content)
        run(MAPS, place)
        assert learned(place)["read"]["reads"] >= 60
        for newer in Path(f"{place}.bedform/knowledge").glob("*"):
            if newer != kept:
                newer.unlink()


def test_a_place_that_takes_no_traces_keeps_no_read_from_being_made(place: Path):
    bf.watch(place)
    directory = Path(f"{place}.bedform/traces")
    directory.write_text("in the way")
    run(MAPS, place)
    assert directory.read_text() == "in the way"


def test_the_commands_say_what_they_did_and_what_to_do(place: Path):
    missing = command("learn", str(place))
    assert missing.returncode == 2
    assert "bedform watch" in missing.stderr
    assert "are recorded in" in command("watch", str(place)).stdout
    run(MAPS, place)
    shown = command("learn", str(place)).stdout
    assert "60 times (+1, 0, 0)" in shown
    assert "strided" in shown
    found = json.loads(command("learn", str(place), "--json").stdout)
    assert found["knowledge"]["arrays"]["t"]["read"]["reads"] == 60
    assert "no longer recorded" in command("watch", "--off", str(place)).stdout
    nowhere = command("watch", str(place.with_name("nowhere")))
    assert nowhere.returncode == 2
    assert len(nowhere.stderr.splitlines()) == 1


def test_what_no_open_would_record_is_not_watched(place: Path):
    text, directory = place.with_name("notes.txt"), place.with_name("empty")
    text.write_text("no data")
    directory.mkdir()
    with pytest.raises(bf.UnsupportedError, match="not a NetCDF or HDF5 file"):
        bf.watch(text)
    with pytest.raises(bf.NotFoundError, match="is no store"):
        bf.watch(directory)
    with pytest.raises(bf.NotFoundError, match=r"did you mean .*s\.zarr"):
        bf.watch(place.with_name("t.zarr"))
    assert not list(place.parent.glob("*.bedform"))


def test_a_part_of_a_store_is_not_watched_and_leaves_nothing_in_the_store(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(bf.InvalidArgumentError, match=f"bedform watch {place}'"):
        bf.watch(place / "t")
    monkeypatch.chdir(place.parent)
    with pytest.raises(bf.InvalidArgumentError, match=r"'bedform watch s\.zarr'"):
        bf.watch("s.zarr/t")
    bf.watch(place / "t", on=False)
    assert sorted(entry.name for entry in place.iterdir()) == ["t", "zarr.json"]


def test_learning_says_what_is_missing_the_data_or_the_reads(place: Path):
    with pytest.raises(bf.NotFoundError, match="no such file or store"):
        bf.learn(place.with_name("nowhere.nc"))
    bf.watch(place)
    with pytest.raises(bf.NotFoundError, match="every ten seconds and at their end"):
        bf.learn(place)


def test_the_table_has_the_pattern_of_most_reads_first_and_each_once(place: Path):
    bf.watch(place)
    loops = [f"for at in range({n}):\n    store['t'][at, {n}:{n + 3}]\n" for n in range(4, 13)]
    run("store = bf.open(place)\n" + "".join(loops), place)
    run(MAPS, place)
    shown = command("learn", str(place)).stdout
    lines = [
        line.split(maxsplit=1)[1].strip() for line in shown.splitlines() if line.startswith("t ")
    ]
    assert lines[1] == "from [0, 0:16, 0:32]: 60 times (+1, 0, 0)"
    assert len(lines) == 7
    assert "more, of fewer reads: --json" in lines[-1]
    assert sum("[0, 0:16, 0:32]" in line for line in lines) == 1


def test_a_session_learns_from_what_it_has_just_read_itself(place: Path):
    bf.watch(place)
    found = run(
        MAPS
        + """
first = bf.learn(place)["knowledge"]["arrays"]["t"]["read"]["reads"]
for at in range(60):
    store["t"][at]
store.close()
print(first, bf.learn(place)["knowledge"]["arrays"]["t"]["read"]["reads"])
""",
        place,
    )
    assert found.split() == ["60", "120"]


def test_many_files_are_watched_and_learnt_from_in_one_command(place: Path):
    other, typo = place.with_name("u.zarr"), place.with_name("nowhere.zarr")
    bf.create(other).create_array("u", data=np.zeros(SHAPE, "f4"), chunks=(1, 16, 32))
    both = (str(place), str(other))
    lines = command("watch", *both).stdout.splitlines()
    assert len(lines) == 2
    for path, line in zip(both, lines, strict=True):
        assert line.startswith(f"reads of {path} are recorded in")
    assert "no reads are recorded yet" in command("learn", *both).stderr
    run(MAPS, place)
    found = command("learn", *both)
    assert found.returncode == 0
    assert "60 times (+1, 0, 0)" in found.stdout
    assert f"{other}: 0 new traces: no reads are recorded yet" in found.stdout
    documents = json.loads(command("learn", *both, "--json").stdout)
    assert [document["path"] for document in documents] == [*both]
    assert [list(document["knowledge"]["arrays"]) for document in documents] == [["t"], []]
    assert command("learn", *both, str(typo)).returncode == 2
    command("watch", "--off", *both)
    assert not list(place.parent.glob("*.bedform/watch"))
