"""The reader by `docs/format.md` returns the written values."""

from __future__ import annotations

import itertools
import json
import os
import struct
import sys
import threading
from pathlib import Path

import h5py
import native
import numpy as np
import pytest
from format_reader import Log, Reader, ZarrArray, crc32c, newest_root, read_settled_list, region

import bedform as bf

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "crates" / "bedform" / "tests" / "golden" / "v1"


def test_the_numbers_of_the_page() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert Reader(bytes.fromhex("040a000001")).column(4) == [5, 5, 5, 5]
    assert Reader(bytes.fromhex("06d00f0202bd3e")).column(8000) == list(range(1000, 9000))


def test_commits_that_are_not_settled_are_read_with_nothing_but_the_page(tmp_path: Path) -> None:
    generator = np.random.default_rng(18)
    place = tmp_path / "steps.zarr"
    store = bf.create(place)
    layout = bf.Regular(chunks=(2, 5, 5), shards=(4, 10, 10), order="hilbert")
    store.create_array(
        "t",
        shape=(6, 12, 17),
        dtype="float32",
        dims=("time", "y", "x"),
        layout=layout,
        fill_value=np.nan,
    )
    store.create_array("n", shape=(6, 12, 17), dtype="int16", dims=("time", "y", "x"))
    store.create_array("s", shape=(), dtype="float64")
    expected = {
        "t": np.full((6, 12, 17), np.nan, "float32"),
        "n": np.zeros((6, 12, 17), "int16"),
        "s": np.zeros((), "float64"),
    }
    before = generator.normal(size=(2, 12, 17)).astype("float32")
    store["t"][:2] = before  # in a shard, with a stamp
    expected["t"][:2] = before
    with store.session(settle="later") as session:
        boxes = session.declare(starts=[[0, 0], [5, 4], [9, 9]], shapes=[[2, 3], [1, 4], [3, 8]])
        for step in range(6):
            block = generator.normal(size=(1, 7, 17)).astype("float32")
            session.write("t", block, start=(step, 3, 0))
            expected["t"][step, 3:10] = block[0]
            flat = generator.integers(-99, 99, 34).astype("int16")
            session.write_declared("n", flat, boxes, record=step)
            expected["n"][step, 0:2, 0:3] = flat[:6].reshape(2, 3)
            expected["n"][step, 5, 4:8] = flat[6:10]
            expected["n"][step, 9:12, 9:17] = flat[10:].reshape(3, 8)
            if step % 2:
                session.commit()
        session.write("s", np.array(2.5))
        expected["s"] = np.array(2.5)
    with store.session(settle="later") as session:
        more = generator.normal(size=(3, 12, 17)).astype("float32")
        session.append("t", more)
        expected["t"] = np.concatenate([expected["t"], more])
        over = np.full((2, 2, 2), 7, "float32")
        session.write("t", over, start=(1, 4, 4))  # over an earlier commit, and a shard
        expected["t"][1:3, 4:6, 4:6] = over
    log = Log(place)
    assert log.pending
    assert log.root["settled"] == 0
    assert len(log.commits) == 5
    assert sorted(log.root["sessions"].values()) == [2, 4]  # an append counts, too
    for segment in log.segments.values():
        assert segment.kinds()[0] == 1
        assert set(segment.kinds()) == {1, 2, 3, 4}
        assert len(segment.data) % 4096 == 0
    for name, values in expected.items():
        np.testing.assert_array_equal(log.read(place / name), values)
        np.testing.assert_array_equal(store[name][...], values)

    # One array is in its shards: their stamps say so, and the commits stay.
    store.settle(arrays=["t"])
    log = Log(place)
    array = ZarrArray(place / "t")
    assert array.shard((1, 0, 0))[1] == log.commits[-1][0]
    for name, values in expected.items():
        np.testing.assert_array_equal(log.read(place / name), values)

    store.settle()
    assert not log.place.exists()
    own = json.loads((place / "zarr.json").read_bytes())["consolidated_metadata"]["bedform"]
    assert "pending" not in own
    assert own["settled"] >= log.root["number"]


def test_many_commits_are_read_by_their_tables(tmp_path: Path) -> None:
    generator = np.random.default_rng(20)
    place = tmp_path / "many.zarr"
    store = bf.create(place)
    store.create_array("a", shape=(0, 7), dtype="int32", codecs=["zstd"])
    store.create_array("b", shape=(40, 30), dtype="float64", fill_value=-1, codecs=["zstd"])
    expected = {"a": np.zeros((0, 7), "int32"), "b": np.full((40, 30), -1.0)}
    with store.session(settle="later") as session:
        for step in range(100):
            if step == 30:
                bf.open(place, "r+").settle()
            if step % 3:
                row = generator.integers(0, 99, (1, 7)).astype("int32")
                session.append("a", row)
                expected["a"] = np.concatenate([expected["a"], row])
            y, x = generator.integers(0, 30), generator.integers(0, 20)
            block = generator.normal(size=(10, 10))
            session.write("b", block, start=(y, x))
            expected["b"][y : y + 10, x : x + 10] = block
            session.commit()
    log = Log(place)
    assert len(log.commits) == 70
    assert len(log.root["tables"]) > 1
    assert len(log.root["commits"]) <= 16
    for name, values in expected.items():
        np.testing.assert_array_equal(log.read(place / name), values)
        np.testing.assert_array_equal(store[name][...], values)


def test_large_writes_are_cut_into_blocks_of_32_kib(tmp_path: Path) -> None:
    place = tmp_path / "large.zarr"
    store = bf.create(place)
    store.create_array("t", shape=(3, 300, 401), dtype="float64")
    values = np.arange(3 * 300 * 401, dtype="float64").reshape(3, 300, 401)
    with store.session(settle="later") as session:
        session.write("t", values)
    log = Log(place)
    np.testing.assert_array_equal(log.read(place / "t"), values)


def test_a_settled_list_names_the_stamps_of_the_shards(tmp_path: Path) -> None:
    place = tmp_path / "list.zarr"
    store = bf.create(place)
    layout = bf.Regular(chunks=(1, 64, 64), shards=(2, 128, 128))
    # The page's reader supports only zstd.
    store.create_array("t", shape=(16, 256, 256), dtype="float64", layout=layout, codecs=["zstd"])
    store.create_array("n", shape=(8,), dtype="int32")
    values = np.random.default_rng(0).normal(size=(16, 256, 256))
    record = None
    # Only commits during another writer's settling require the list.
    for attempt in range(20):
        with store.session(settle="later") as session:
            session.write("t", values + attempt)
        with store.session(settle="later") as session:
            settling = threading.Thread(target=bf.open(place, "r+").settle)
            settling.start()
            while settling.is_alive():
                session.write("n", np.array([attempt], "int32"), start=(3,))
                session.commit()
            settling.join()
        log = place.with_name("list.zarr.bedform-log")
        own = json.loads((place / "zarr.json").read_bytes())["consolidated_metadata"]["bedform"]
        records = newest_root(log, own["store"])["settled_shards"] if log.exists() else []
        if records:
            (record,) = records
            break
    assert record is not None
    data = (log / "settled" / f"{record['number']:010}").read_bytes()
    assert (len(data), crc32c(data)) == (record["bytes"], record["checksum"])
    array = ZarrArray(place / "t")
    listed = read_settled_list(data)
    ours = {at: commit for (key, at), commit in listed.items() if key == array.own["array"]}
    assert set(ours) == set(itertools.product(range(8), range(2), range(2)))
    assert all(array.shard(at)[1] >= commit > 0 for at, commit in itertools.islice(ours.items(), 4))


def test_a_burst_tier_holds_a_segment_in_parts(tmp_path: Path) -> None:
    place, tier = tmp_path / "burst.zarr", tmp_path / "tier"
    store = bf.create(place)
    store.create_array("t", shape=(4, 100), dtype="float32")
    own = json.loads((place / "zarr.json").read_bytes())["consolidated_metadata"]["bedform"]
    with store.session(settle="later", burst=tier, durability="node") as session:
        session.write("t", np.ones((4, 100), "float32"))
        session.commit()
        (directory,) = (tier / own["store"]).iterdir()
        text = (directory / "STORE.txt").read_text()
        log = place.with_name("burst.zarr.bedform-log")
        assert text.startswith(
            f"This directory holds data of the Bedform log {log} that are not yet"
        )
        assert text.endswith("Commits of it may have been promised.\n")
        note = (log / "tiers" / directory.name).read_text()
        assert note.startswith(f"{tier} on node ")
        first = directory / f"{0:020}"
        assert first.read_bytes()[:6] == b"BSEG\x01\x00"
        session.drain()
    np.testing.assert_array_equal(Log(place).read(place / "t"), np.ones((4, 100), "float32"))


LANES = """
import sys
import numpy as np
import bedform as bf
from mpi4py import MPI

comm = MPI.COMM_WORLD
store = bf.open(sys.argv[1], mode="r+")
with store.session(comm=comm, settle="later") as session:
    block = np.arange(2, dtype="int64").repeat(160000).reshape(2, 160000) + 10 * comm.rank
    session.write("t", block, start=(2 * comm.rank, 0))
"""


def test_processes_of_a_node_share_a_segment_in_lanes(tmp_path: Path) -> None:
    place = tmp_path / "lanes.zarr"
    store = bf.create(place)
    store.create_array("t", shape=(4, 160000), dtype="int64")
    native.mpiexec(2, sys.executable, "-c", LANES, place)
    log = Log(place)
    (segment,) = log.segments.values()
    assert segment.lanes == 2
    values = log.read(place / "t")
    np.testing.assert_array_equal(
        values[:, ::1000], np.array([[0], [1], [10], [11]]).repeat(160, 1)
    )
    np.testing.assert_array_equal(values, store["t"][...])


@pytest.mark.parametrize("name", ["raw", "g/zstd"])
def test_golden_shards_have_the_stamp_of_the_page(name: str) -> None:
    store = json.loads((GOLDEN / "zarr.json").read_bytes())
    array = ZarrArray(GOLDEN / name)
    assert array.own["store"] == store["consolidated_metadata"]["bedform"]["store"]
    opened = bf.open(GOLDEN)[name][...]
    grid = [-(-n // s) for n, s in zip(array.shape, array.shard_shape, strict=True)]
    found = np.full(
        [g * s for g, s in zip(grid, array.shard_shape, strict=True)], array.fill, array.dtype
    )
    for at in np.ndindex(*grid):
        where = region(
            [i * n for i, n in zip(at, array.shard_shape, strict=True)], array.shard_shape
        )
        found[where] = array.shard(at)[0]
    np.testing.assert_array_equal(found[tuple(slice(0, n) for n in array.shape)], opened)


def test_a_chunk_map_is_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = (tmp_path / "run.h5").resolve()
    values = np.arange(600, dtype="float32").reshape(20, 30)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(7, 10))
        file.create_dataset("flat", data=values[0])
    with bf.open(path, allow_external=True) as opened:
        np.testing.assert_array_equal(opened["t"][...], values)
    key = 0x6C62272E07BB014262B821756295C58D
    for byte in os.fsencode(path):
        key = ((key ^ byte) * 0x1000000000000000000013B) % (1 << 128)
    sidecar = tmp_path / "cache" / "bedform" / "sidecars" / f"{key:032x}"
    assert {file.name for file in sidecar.glob("[!.]*")} == {"chunk-map-external", "used"}
    data = (sidecar / "chunk-map-external").read_bytes()
    assert data[:8] == b"BFCHMAP\0"
    assert crc32c(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    version, tables, length = struct.unpack_from("<IIQ", data, 8)
    assert (version, tables) == (1, 1)
    description = json.loads(data[24 : 24 + length])
    status = path.stat()
    assert description["format"] == "hdf5"
    assert description["source"]["size"] == status.st_size
    assert description["source"]["modified_ns"] == status.st_mtime_ns
    arrays = {array["path"]: array for array in description["arrays"]}
    reader = Reader(data[24 + length : -4])
    (count,) = struct.unpack("<Q", reader.take(8))
    columns = [struct.unpack(f"<{count}Q", reader.take(8 * count)) for _ in range(3)]
    assert struct.unpack(f"<{count}I", reader.take(4 * count)) == (0,) * count
    reader.finish()
    shape = arrays["t"]["storage"]["chunked"]["chunk_shape"]
    assert (count, shape) == (9, [7, 10])
    raw = path.read_bytes()
    for index, offset, stored in zip(*columns, strict=True):
        row, column = divmod(index, 3)
        chunk = np.frombuffer(raw[offset : offset + stored], "<f4").reshape(shape)
        part = values[row * 7 : row * 7 + 7, column * 10 : column * 10 + 10]
        np.testing.assert_array_equal(chunk[: part.shape[0]], part)
    flat = arrays["flat"]["storage"]["contiguous"]
    found = np.frombuffer(raw[flat["offset"] : flat["offset"] + flat["length"]], "<f4")
    np.testing.assert_array_equal(found, values[0])
