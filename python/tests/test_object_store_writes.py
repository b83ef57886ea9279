"""Stores created in an object store, by one writer and by several."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr
from faulty_proxy import DenyingProxy, FaultyProxy
from object_store_server import SECRET, client_of
from support import PATIENCE
from test_object_stores import cli, port_of

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAYOUT = bf.Regular(chunks=(5, 20, 15), shards=(10, 40, 30))


@pytest.fixture
def bucket(upload: Callable[[Path, str], str]) -> str:
    """The URL of a bucket, which this process may write to."""
    assert upload
    return "s3://bucket"


def keys(endpoint: str, prefix: str) -> list[str]:
    listed = client_of(endpoint).list_objects_v2(Bucket="bucket", Prefix=prefix)
    return [entry["Key"] for entry in listed.get("Contents", [])]


def numbers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).normal(size=shape).astype("f4")


def test_threads_that_race_to_write_an_array_first_use_one_codec(bucket: str) -> None:
    row, waves = (1, 100, 200), np.linspace(250, 300, 20_000, dtype="float32")
    bf.create(f"{bucket}/first.zarr").create_array(
        "t", (4, 100, 200), "float32", chunks=row, shards=row
    )
    # Noise leads to another choice than waves.
    noise = np.random.default_rng(0).integers(0, 2**31, 20_000, "int32").view("float32")
    expected = np.stack([waves, noise, waves, noise]).reshape(4, 100, 200)
    arrays = [bf.open(f"{bucket}/first.zarr", mode="r+")["t"] for _ in range(4)]
    together = threading.Barrier(4)

    def write(number: int) -> None:
        together.wait()
        arrays[number][number] = expected[number]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = bf.open(f"{bucket}/first.zarr")["t"]
    assert found[...].tobytes() == expected.tobytes()
    assert "compared" in found.info()["codec_choice"]


def test_a_store_is_written_as_in_a_directory(bucket: str, endpoint: str, tmp_path: Path) -> None:
    url = f"{bucket}/written/a.zarr"
    store = bf.create(url, attributes={"title": "there"})
    values = numbers((20, 40, 30))
    array = store.create_array(
        "g/t", shape=values.shape, dtype="f4", dims=tuple("tyx"), layout=LAYOUT
    )
    array[:] = values
    array[3:7, 5, ::2] = 9
    values[3:7, 5, ::2] = 9
    array.append(values[:3])
    values = np.concatenate([values, values[:3]])
    np.testing.assert_array_equal(array[:], values)
    with store.session(settle="later") as session:
        session.write("g/t", values[:5] * 2, start=(2, 0, 0))
        session.commit()
    values[2:7] = values[:5] * 2
    # A second handle, opened after this process has cached objects.
    again = bf.open(url, "r+")
    np.testing.assert_array_equal(again["g/t"][:], values)
    assert any(".bedform-log/" in key for key in keys(endpoint, "written/a.zarr"))
    assert again.settle()["commits"] == 1
    np.testing.assert_array_equal(bf.open(url)["g/t"][:], values)
    assert not any(".bedform-log/" in key for key in keys(endpoint, "written/a.zarr"))
    assert again.verify() == []
    there: Any = zarr.open(fetched(endpoint, "written/a.zarr", tmp_path), mode="r")
    np.testing.assert_array_equal(there["g/t"][:], values)
    # A shard of fill values has no chunks; existing objects are not deleted on condition.
    array = again["g/t"]
    array[:] = 0
    assert not bf.open(url)["g/t"][:].any()
    del again["g/t"]
    assert not any("/g/t/" in key for key in keys(endpoint, "written/a.zarr"))
    with pytest.raises(bf.ExistsError, match="exists already"):
        bf.create(url)


def fetched(endpoint: str, prefix: str, to: Path) -> Path:
    """The objects of a store as files."""
    client = client_of(endpoint)
    for key in keys(endpoint, prefix + "/"):
        file = to / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(client.get_object(Bucket="bucket", Key=key)["Body"].read())
    return to / prefix


def test_a_store_that_is_not_settled_is_copied_to_a_directory(
    bucket: str, endpoint: str, tmp_path: Path
) -> None:
    store = bf.create(f"{bucket}/copied/a.zarr")
    store.create_array("t", shape=(0, 1000), dtype="f4")
    values = numbers((9, 1000))
    with store.session(settle="later") as session:
        for row in range(0, 9, 3):
            session.append("t", values[row : row + 3])
            session.commit()
    fetched(endpoint, "copied/a.zarr.bedform-log", tmp_path)
    copy = bf.open(fetched(endpoint, "copied/a.zarr", tmp_path), "r+")
    np.testing.assert_array_equal(copy["t"][:], values)
    copy.settle()
    np.testing.assert_array_equal(copy["t"][:], values)
    assert not (tmp_path / "copied/a.zarr.bedform-log").exists()
    np.testing.assert_array_equal(store["t"][:], values)


def test_what_a_store_changes_itself_its_arrays_see(bucket: str) -> None:
    store = bf.create(f"{bucket}/own.zarr")
    array = store.create_array("t", shape=(0, 4), dtype="i4", dims=("time", "x"))
    array.append(np.ones((2, 4), "i4"))
    with store.session() as session:
        session.append("t", np.full((1, 4), 2, "i4"))
        session.commit()
    assert array.shape == (3, 4)
    store["t"].append(np.full((1, 4), 3, "i4"))
    assert array[:, 0].tolist() == [1, 1, 2, 3]
    store.append({"t": np.full((1, 4), 4, "i4")}, "time")
    assert array[:, 0].tolist() == [1, 1, 2, 3, 4]


def test_a_data_set_is_written_and_grows(bucket: str) -> None:
    url = f"{bucket}/written/ds.zarr"
    first = xr.Dataset({"t": (("time", "x"), numbers((4, 6)))}, {"time": np.arange(4)})
    bf.write_dataset(first, url)
    second = first.assign_coords(time=np.arange(4, 8))
    bf.write_dataset(second, url, append_dim="time")
    found = xr.open_dataset(url, engine="bedform")
    xr.testing.assert_equal(found.load(), xr.concat([first, second], "time"))
    with pytest.raises(bf.ExistsError, match="nothing in an object store is replaced"):
        bf.write_dataset(first, url)
    with pytest.raises(bf.NotFoundError):
        bf.write_dataset(first, f"{bucket}/written/none.zarr", append_dim="time")


def test_a_data_set_whose_write_fails_leaves_none_of_its_new_arrays(
    bucket: str, endpoint: str
) -> None:
    def broken(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if block.any():
            raise RuntimeError("the simulation crashed")
        return block

    url = f"{bucket}/written/fails.zarr"
    bf.write_dataset(xr.Dataset({"t": ("x", numbers((4,)))}), url)
    before = keys(endpoint, "written/fails.zarr")
    zeros_then_ones = dask.array.from_array(np.repeat([0.0, 1.0], 4), chunks=4)
    data = zeros_then_ones.map_blocks(broken, dtype="f8")
    with pytest.raises(RuntimeError, match="the simulation crashed"):
        bf.write_dataset(xr.Dataset({"u": ("y", data)}), url, mode="a")
    assert keys(endpoint, "written/fails.zarr") == before
    assert list(bf.open(url)) == ["t"]


@pytest.mark.parametrize("kind", ["zarr", "netcdf"])
def test_groups_and_their_attributes_are_converted_from_and_to_any_place(
    bucket: str, kind: str, tmp_path: Path
) -> None:
    source: Any = tmp_path / f"source.{kind}"
    if kind == "zarr":
        store = bf.create(source)
        store.create_group("a", attributes={"of": "all"})
        store.create_group("a/b", attributes={"of": "x"})
        store.create_array("a/b/x", shape=(4,), dtype="f4")[:] = [1, 2, 3, 4]
    else:
        values = xr.Dataset({"x": ("i", np.arange(1, 5, dtype="f4"))}, attrs={"of": "x"})
        xr.Dataset(attrs={"of": "all"}).to_netcdf(source, group="a", engine="h5netcdf")
        values.to_netcdf(source, group="a/b", mode="a", engine="h5netcdf")
    url = f"{bucket}/converted/{kind}.zarr"
    for place, target in [(source, url), (source, tmp_path / "copy.zarr")]:
        bf.convert(place, target)
        copy = bf.open(target)
        assert copy["a/b/x"][:].tolist() == [1, 2, 3, 4]
        assert [dict(copy[name].attributes) for name in ("a", "a/b")] == [
            {"of": "all"},
            {"of": "x"},
        ]
    bf.convert(url, tmp_path / "back.zarr")
    assert bf.open(tmp_path / "back.zarr")["a/b"].attributes["of"] == "x"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store of three arrays, one of them in a group."""
    store = bf.create(tmp_path / "source.zarr", attributes={"title": "a source"})
    store.create_group("g", attributes={"of": "u"})
    for name in ("g/u", "t", "v"):
        array = store.create_array(name, (20, 40, 30), "f4", tuple("tyx"), layout=LAYOUT)
        array[:] = numbers((20, 40, 30))
    return tmp_path / "source.zarr"


def test_a_store_is_converted_to_a_url(source: Path, bucket: str, endpoint: str) -> None:
    url = f"{bucket}/converted/a.zarr"
    done = cli("convert", str(source), url, "--verify")
    assert done.startswith("0\n")
    assert "every byte compared" in done
    assert url in done
    there, original = bf.open(url), bf.open(source)
    assert (there.attributes, there["g"].attributes) == ({"title": "a source"}, {"of": "u"})
    assert sorted(there.arrays()) == ["g/u", "t", "v"]
    for name, array in original.arrays().items():
        np.testing.assert_array_equal(there[name][:], array[:])
    assert there.verify() == []
    assert f"target '{url}' exists" in cli("convert", str(source), url)
    assert "lies in the source" in cli("convert", url, f"{url}/inner")
    assert "nothing was written" in cli("convert", url, f"{bucket}/converted/b.zarr", "--dry-run")
    assert keys(endpoint, "converted/b.zarr") == []


def test_a_conversion_to_a_url_that_is_stopped_leaves_an_empty_store(
    source: Path, bucket: str, endpoint: str
) -> None:
    url = f"{bucket}/stopped/a.zarr"

    def stop(finished: int, _: int) -> None:
        if finished > 20 * 40 * 30 * 4:
            assert any("/t/c/" in key or "/u/c/" in key for key in keys(endpoint, "stopped/"))
            assert list(bf.open(url)) == []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.convert(source, url, progress=stop)
    left = [key for key in keys(endpoint, "stopped/") if not key.endswith(".bedform-lock")]
    assert left == ["stopped/a.zarr/zarr.json"]
    bf.convert(source, url, verify=True)
    assert sorted(bf.open(url).arrays()) == ["g/u", "t", "v"]


def test_commands_settle_verify_and_tell_what_is_at_a_url(bucket: str) -> None:
    url = f"{bucket}/written/commands.zarr"
    store = bf.create(url)
    store.create_array("t", shape=(8,), dtype="i4", layout=bf.Regular(chunks=(2,), shards=(4,)))
    with store.session(settle="later") as session:
        session.write("t", np.arange(8, dtype="i4"), start=(0,))
        session.commit()
    assert cli("info", url).startswith("0\n")
    assert cli("settle", url).startswith("0\n")
    assert cli("verify", url).startswith("0\n")
    assert cli("gc", url).startswith("0\n")
    np.testing.assert_array_equal(bf.open(url)["t"][:], np.arange(8))


WRITER = """
import sys
import bedform as bf, numpy as np

url, writer = sys.argv[1], int(sys.argv[2])
store = bf.open(url, "r+")
array = store["t"]
for step in range(4):
    rows = np.full((1, 4), writer * 100 + step, "i4")
    if (step + writer) % 3 != 2:
        array.append(rows)
        continue
    while True:
        try:
            with store.session(settle="later") as session:
                session.append("t", rows)
                session.commit()
            break
        except bf.ConflictError:
            pass
"""


def test_rows_of_several_processes_are_there_once_each(bucket: str) -> None:
    url = f"{bucket}/written/race.zarr"
    layout = bf.Regular(chunks=(2, 4), shards=(4, 4))
    bf.create(url).create_array("t", shape=(0, 4), dtype="i4", layout=layout)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(writer)]) for writer in range(2)
    ]
    assert [writer.wait(timeout=PATIENCE) for writer in writers] == [0, 0]
    rows = bf.open(url)["t"][:]
    assert (rows == rows[:, :1]).all()
    expected = [writer * 100 + step for writer in range(2) for step in range(4)]
    assert sorted(rows[:, 0].tolist()) == expected


TOLD_WRITER = """
import sys
import bedform as bf, numpy as np

url, writer = sys.argv[1], int(sys.argv[2])
for step in range(4):
    row = writer * 100 + step
    rows = np.full((1, 4), row, "i4")
    outcome = "refused"
    try:
        store = bf.open(url, "r+")
        if (step + writer) % 2:
            store["t"].append(rows)
        else:
            with store.session(settle="later") as session:
                session.append("t", rows)
                session.commit()
                outcome = "done"
        outcome = "done"
    except bf.PoisonedError as error:
        print(error, file=sys.stderr)
        # A session may end badly behind its commit.
        outcome = outcome if outcome == "done" else "unknown"
    except (bf.ConflictError, bf.IoError) as error:
        print(outcome, type(error), error, file=sys.stderr)
    print(row, outcome)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_behind_a_network_that_loses_answers_rows_are_there_as_was_told(
    bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    url = f"{bucket}/faulty/{seed}.zarr"
    layout = bf.Regular(chunks=(2, 4), shards=(4, 4))
    bf.create(url).create_array("t", shape=(0, 4), dtype="i4", layout=layout)
    with FaultyProxy(int(endpoint.rpartition(":")[2]), seed, each=1.5) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        command = [sys.executable, "-c", TOLD_WRITER, url]
        writers = [
            subprocess.Popen([*command, str(writer)], stdout=subprocess.PIPE, text=True)
            for writer in range(2)
        ]
        said = [writer.communicate(timeout=PATIENCE)[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
        assert proxy.faults.total() > 10
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    store = bf.open(url, "r+")
    store.settle()
    rows = store["t"][:]
    assert (rows == rows[:, :1]).all()
    found = rows[:, 0].tolist()
    told = dict(line.split() for line in "".join(said).splitlines())
    assert len(told) == 8
    for row, outcome in told.items():
        allowed = {"done": [1], "refused": [0], "unknown": [0, 1]}[outcome]
        assert found.count(int(row)) in allowed, (row, outcome, found)
    assert len(found) == len(set(found))


def test_a_forked_child_reads_and_writes_while_its_parent_goes_on(bucket: str) -> None:
    url = f"{bucket}/written/fork.zarr"
    store = bf.create(url)
    array = store.create_array(
        "t", shape=(40, 8), dtype="i4", layout=bf.Regular(chunks=(2, 8), shards=(4, 8))
    )
    array[:] = 7
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            assert bf.open(url, cache=0)["t"][::4].sum() == 7 * 80

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for row in range(4):
            child = os.fork()
            if child == 0:
                # The child connects anew, and waits for no lock of the parent's threads.
                bf.open(url, "r+")["t"][39] = row
                os._exit(int(bf.open(url, cache=0)["t"][0].sum() != 56))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert array[39].tolist() == [3] * 8


def test_a_bucket_that_is_not_there_or_a_key_that_is_wrong_is_said(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(bf.IoError, match="there is no such bucket"):
        bf.create("s3://nobody-has-this/a.zarr")
    with pytest.raises(bf.InvalidArgumentError, match="credentials and queries"):
        bf.create(f"s3://key:{SECRET}@bucket/a.zarr")
    with pytest.raises(bf.InvalidArgumentError, match="HTTP servers are only read"):
        bf.create("http://127.0.0.1:9/a.zarr")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(bf.InvalidArgumentError, match="there are no credentials"):
        bf.create(f"{bucket}/a.zarr")


def test_a_wait_for_a_lock_is_told_and_ends_with_ctrl_c(bucket: str, endpoint: str) -> None:
    url = f"{bucket}/locked.zarr"
    bf.create(url).create_array("t", shape=(0, 4), dtype="i4")
    held = b"bedform-lock 1\nsomebody\n0 1\n"
    client_of(endpoint).put_object(Bucket="bucket", Key="locked.zarr/t/.bedform-lock", Body=held)
    # The parent of these tests may ignore the signal, and its children would inherit that.
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import bedform as bf\nbf.open({url!r}, mode='r+')['t'].append([[1, 2, 3, 4]])"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        try:
            assert "waiting for the lock of locked.zarr/t" in waiting.stderr.readline()
            waiting.send_signal(signal.SIGINT)
            said = waiting.communicate(timeout=PATIENCE)[1]
        finally:
            waiting.kill()
    assert waiting.returncode == -signal.SIGINT
    assert said.endswith("KeyboardInterrupt\n")
    assert bf.open(url)["t"].shape == (0, 4)


def test_who_may_not_delete_is_told_that_the_commit_stands_and_what_is_left(
    bucket: str, endpoint: str
) -> None:
    url = f"{bucket}/undeleted/a.zarr"
    with DenyingProxy(port_of(endpoint), "delete") as server:
        options = {"endpoint": server.url}
        store = bf.create(url, storage_options=options)
        store.create_array("t", shape=(4,), dtype="i4")
        with pytest.raises(bf.PermissionDeniedError) as told, store.session() as session:
            session.write("t", [1, 2, 3, 4])
            session.commit()
            session.write("t", [5], start=(3,))
        message = str(told.value)
        assert "\n" not in message
        assert "s3:DeleteObject" in message
        assert "all that was committed is durable" in message
        assert f"stays in {url}.bedform-log: 'bedform settle'" in message
        for opened in (store, bf.open(url)):
            assert opened["t"][:].tolist() == [1, 2, 3, 5]
    assert any(".bedform-log/" in key for key in keys(endpoint, "undeleted/"))
    assert cli("settle", url).startswith("0\n")
    # For half a minute an existing object counts as that of a live writer.
    assert bf.open(url).info()["log"]["commits"] == 0


def test_attributes_data_and_copies_are_written_there_as_in_a_directory(bucket: str) -> None:
    store = bf.create(f"{bucket}/written/words.zarr")
    values = numbers((20, 40, 30))
    store["g/t"] = values
    t = store["g/t"]
    t.attributes["units"] = "K"
    bf.open(store.store_path, "r+")["g/t"].attributes["theirs"] = 1
    # A handle without freshness checks keeps others' changes.
    t.attributes.update(ours=2)
    store.move("g", "h")
    again = bf.open(store.store_path)
    assert again["h/t"].attributes == {"units": "K", "theirs": 1, "ours": 2}
    np.testing.assert_array_equal(again["h/t"][...], values)
    assert list(again) == ["h"]
    with pytest.raises(bf.BedformError, match=r"masked element"):
        store["bad"] = np.ma.array([1.0, 2.0], mask=[True, False])
    assert list(bf.open(store.store_path)) == ["h"]
