"""A reader written from `docs/format.md` alone gives what was written.

It uses none of Bedform's code: struct, json, and numcodecs for Zstandard. Where it and the page
disagree with what Bedform writes, one of the three is wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import native
import numcodecs
import numpy as np
import pytest

import bedform as bf

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "crates" / "bedform" / "tests" / "golden" / "v1"
Array = np.ndarray[Any, np.dtype[Any]]


# Conventions


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def zstd(data: bytes) -> bytes:
    return bytes(numcodecs.Zstd().decode(data))


class Reader:
    """Varints, columns and raw bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data), "cut short"
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert byte > 0 or shift == 7, "not the shortest form"
                assert value < 1 << 64
                return value

    def keys(self, count: int) -> list[str]:
        return [self.take(16).hex() for _ in range(count)]

    def column(self, count: int) -> list[int]:
        inner = Reader(self.take(self.varint()))
        values: list[int] = []
        value, last, in_run = 0, -1, False
        while len(values) < count:
            step = inner.varint()
            further = 0
            if step == last:
                assert not in_run, "a run with two counts"
                in_run, further = True, inner.varint()
            else:
                in_run = False
            last = step
            for _ in range(1 + further):
                value = (value + (step >> 1 ^ -(step & 1))) % (1 << 64)
                values.append(value)
        inner.finish()
        assert len(values) == count
        return values

    def finish(self) -> None:
        assert self.at == len(self.data), "bytes behind the end"


def split(numbers: list[int], counts: list[int]) -> list[list[int]]:
    rest = iter(numbers)
    return [list(itertools.islice(rest, count)) for count in counts]


# Documents and shards


def check_seal(data: bytes) -> None:
    found = re.search(rb'"seal": "(\d{10}):([0-9a-f]{8})"', data)
    assert found is not None
    assert int(found[1]) == len(data)
    unsealed = data[: found.start(2)] + b"0" * 8 + data[found.end(2) :]
    assert crc32c(unsealed) == int(found[2], 16)


@dataclass
class Stamp:
    store: str
    array: str
    commit: int
    data_bytes: int
    coordinates: tuple[int, ...]


def stamp_of(data: bytes, rank: int) -> Stamp | None:
    if data[:8] != b"BEDSTAMP":
        return None
    version, own_rank = struct.unpack_from("<HH", data, 8)
    assert (version, own_rank, len(data)) == (1, rank, 72 + 8 * rank)
    assert crc32c(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    assert data[12:16] == data[-8:-4] == bytes(4)
    commit, data_bytes = struct.unpack_from("<QQ", data, 48)
    coordinates = struct.unpack_from(f"<{rank}Q", data, 64)
    return Stamp(data[16:32].hex(), data[32:48].hex(), commit, data_bytes, coordinates)


class ZarrArray:
    """What the reader needs of an array's document."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        data = (directory / "zarr.json").read_bytes()
        check_seal(data)
        document = json.loads(data)
        self.own = document["bedform"]
        self.shape = tuple(document["shape"])
        self.dtype = np.dtype(document["data_type"])
        fill = document["fill_value"]
        self.fill = float("nan") if fill == "NaN" else fill
        self.shard_shape = document["chunk_grid"]["configuration"]["chunk_shape"]
        (sharding,) = document["codecs"]
        assert sharding["name"] == "sharding_indexed"
        self.chunk_shape = sharding["configuration"]["chunk_shape"]
        self.codecs = sharding["configuration"]["codecs"]

    def decode(self, data: bytes) -> Array:
        for codec in reversed(self.codecs):
            if codec["name"] == "crc32c":
                data, stored = data[:-4], data[-4:]
                assert crc32c(data) == struct.unpack("<I", stored)[0]
            elif codec["name"] == "zstd":
                data = zstd(data)
            else:
                assert codec["name"] == "bytes"
        return np.frombuffer(data, self.dtype.newbyteorder("<")).reshape(self.chunk_shape)

    def shard(self, coordinates: tuple[int, ...]) -> tuple[Array, int]:
        """The elements of a shard and the commit that it contains."""
        values = np.full(self.shard_shape, self.fill, self.dtype)
        path = self.directory.joinpath("c", *map(str, coordinates))
        if not path.exists():
            return values, 0
        data = path.read_bytes()
        rank = len(coordinates)
        counts = [s // c for s, c in zip(self.shard_shape, self.chunk_shape, strict=True)]
        index_bytes = 16 * math.prod(counts) + 4
        index, stored = data[-index_bytes:-4], data[-4:]
        assert crc32c(index) == struct.unpack("<I", stored)[0]
        index_start = len(data) - index_bytes
        stamp = stamp_of(data[index_start - 72 - 8 * rank : index_start], rank)
        assert stamp is not None
        assert (stamp.store, stamp.array) == (self.own["store"], self.own["array"])
        assert stamp.coordinates == coordinates
        assert stamp.data_bytes + 72 + 8 * rank == index_start
        entries = struct.iter_unpack("<QQ", index)
        for at, (offset, length) in zip(np.ndindex(*counts), entries, strict=True):
            if (offset, length) != (2**64 - 1, 2**64 - 1):
                assert offset + length <= stamp.data_bytes
                chunk = self.decode(data[offset : offset + length])
                values[
                    region(
                        [i * n for i, n in zip(at, self.chunk_shape, strict=True)], self.chunk_shape
                    )
                ] = chunk
        return values, stamp.commit


def region(start: Any, lengths: Any) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, lengths, strict=True))


# The log


class Segment:
    def __init__(self, log: Path, name: str, store: str) -> None:
        found = re.fullmatch(r"([0-9a-f]{32})-(\d+)(?:x(\d+))?", name)
        assert found is not None
        self.session, self.rank = found[1], int(found[2])
        self.lanes = int(found[3] or 1)
        self.data = (log / "segments" / name / "data").read_bytes()
        kind, body = self.record(0)
        assert (kind, len(body)) == (1, 40)
        assert (body[:16].hex(), body[16:32].hex()) == (store, self.session)
        assert struct.unpack("<II", body[32:]) == (self.rank, crc32c(body[:36]))

    def read(self, address: int, count: int) -> bytes:
        if self.lanes == 1:
            return self.data[address : address + count]
        lane, at = divmod(address, 1 << 44)
        stripe = 2 << 20
        pieces = []
        while count:
            here = min(count, stripe - at % stripe)
            start = (at // stripe * self.lanes + lane) * stripe + at % stripe
            pieces.append(self.data[start : start + here])
            at, count = at + here, count - here
        return b"".join(pieces)

    def record(self, address: int) -> tuple[int, bytes]:
        head = self.read(address, 32)
        magic, kind, version, count, _, zero, checksum = struct.unpack("<4sHHQQII", head)
        assert (magic, version, zero) == (b"BSEG", 1, 0)
        assert crc32c(head[:28]) == checksum
        return kind, self.read(address + 32, count)

    def sealed(self, address: int, expected: int) -> bytes:
        kind, body = self.record(address)
        assert kind == expected
        count, codec, checksum = struct.unpack_from("<QII", body)
        stored = body[16:]
        assert crc32c(stored) == checksum
        decoded = {0: bytes, 1: zstd}[codec](stored)
        assert len(decoded) == count
        return decoded

    def kinds(self) -> list[int]:
        """The kinds of all records of a segment of one writer."""
        kinds, at = [], 0
        while at + 32 <= len(self.data):
            if self.data[at : at + 4] != b"BSEG":
                at = -(-at // 4096) * 4096 if at % 4096 else len(self.data)
                continue
            kind, body = self.record(at)
            assert struct.unpack_from("<Q", self.data, at + 16)[0] == len(kinds)
            kinds.append(kind)
            at += 32 + -(-len(body) // 8) * 8
        return kinds


@dataclass
class Entry:
    """One box of a write."""

    array: str
    order: tuple[int, ...]
    where: tuple[slice, ...]
    data: bytes


class Directory:
    def __init__(self, data: bytes) -> None:
        reader = Reader(data)
        assert reader.varint() == 1
        self.session, self.epoch = reader.take(16).hex(), reader.varint()
        assert reader.varint() in (0, 1)
        segments, sections, arrays, touched, grown = (reader.varint() for _ in range(5))
        lengths = reader.column(segments)
        self.segments = [reader.take(length).decode() for length in lengths]
        keys = reader.keys(arrays)
        ranks = reader.column(arrays)
        self.sections = list(zip(*(reader.column(sections) for _ in range(6)), strict=True))
        numbers, _, _ = (reader.column(touched) for _ in range(3))
        self.touched = [(keys[n], [(0, 0)] * ranks[n]) for n in numbers]
        for axis in range(max(ranks, default=0)):
            having = [boxes for _, boxes in self.touched if len(boxes) > axis]
            starts, sides = reader.column(len(having)), reader.column(len(having))
            for boxes, start, side in zip(having, starts, sides, strict=True):
                boxes[axis] = (start, start + side)
        grown_keys = reader.keys(grown)
        grown_ranks = reader.column(grown)
        before = split(reader.column(sum(grown_ranks)), grown_ranks)
        after = split(reader.column(sum(grown_ranks)), grown_ranks)
        self.grown = {k: (b, a) for k, b, a in zip(grown_keys, before, after, strict=True)}
        reader.finish()
        assert sum(section[5] for section in self.sections) == touched


def unravel(place: int, shape: list[int]) -> list[int]:
    point = []
    for length in reversed(shape):
        place, at = divmod(place, length)
        point.append(at)
    return point[::-1]


def read_boxes(reader: Reader, shape: list[int], count: int) -> list[tuple[list[int], list[int]]]:
    rank, form = len(shape), reader.take(1)[0]
    is_single = count == 1 or rank == 0
    assert form == (0 if is_single else 1 if math.prod(shape) < 1 << 64 else 2)
    if form == 0:
        start = [reader.varint() for _ in range(rank)]
        return [(start, [reader.varint() for _ in range(rank)])] * count
    if form == 1:
        starts = [unravel(place, shape) for place in reader.column(count)]
        lengths = [[n + 1 for n in unravel(p, shape)] for p in reader.column(count)]
        return list(zip(starts, lengths, strict=True))
    by_axis = [[reader.column(count) for _ in range(rank)] for _ in range(2)]
    starts, lengths = ([list(point) for point in zip(*columns, strict=True)] for columns in by_axis)
    return list(zip(starts, lengths, strict=True))


def read_section(segment: Segment, address: int, commit: tuple[str, int]) -> list[Entry]:
    reader = Reader(segment.sealed(address, 3))
    assert reader.varint() == 2
    assert (reader.take(16).hex(), reader.varint()) == commit
    arrays, shapes, selections, entries, blocks = (reader.varint() for _ in range(5))
    ranks = reader.column(shapes)
    all_shapes = split(reader.column(sum(ranks)), ranks)
    keys = reader.keys(arrays)
    items, of_shapes, bases = (reader.column(arrays) for _ in range(3))
    for shape, base in zip(of_shapes, bases, strict=True):
        assert all(b <= n for b, n in zip(all_shapes[base], all_shapes[shape], strict=True))
    frames, counts = reader.column(selections), reader.column(selections)
    boxes = [
        read_boxes(reader, all_shapes[frame], count)
        for frame, count in zip(frames, counts, strict=True)
    ]
    rows = list(zip(*(reader.column(entries) for _ in range(5)), strict=True))
    distances, stored, decoded, codecs = (reader.column(blocks) for _ in range(4))
    checksums = struct.unpack(f"<{blocks}I", reader.take(4 * blocks))
    reader.finish()
    pieces, end = [], 0
    for distance, count, bytes_out, codec, checksum in zip(
        distances, stored, decoded, codecs, checksums, strict=True
    ):
        offset = (end + distance) % (1 << 64)
        end = offset + count
        piece = segment.read(offset, count)
        assert crc32c(piece) == checksum
        piece = {0: bytes, 1: zstd}[codec](piece)
        assert len(piece) == bytes_out
        pieces.append(piece)
    data, found = Reader(b"".join(pieces)), []
    for number, (array, record, selection, epoch, rank) in enumerate(rows):
        outer = [slice(record - 1, record)] if record else []
        for start, lengths in boxes[selection]:
            taken = data.take(math.prod(lengths) * items[array])
            where = (*outer, *region(start, lengths))
            found.append(Entry(keys[array], (epoch, rank, number), where, taken))
    data.finish()
    return found


def newest_root(log: Path, store: str) -> dict[str, Any]:
    names = sorted(
        path.name for path in (log / "roots").iterdir() if re.fullmatch(r"\d{10}\.json", path.name)
    )
    data = (log / "roots" / names[-1]).read_bytes()
    check_seal(data)
    root: dict[str, Any] = json.loads(data)
    assert root["bedform"]["version"] == 1
    assert root["bedform"]["store"] == store
    assert root["number"] == int(names[-1][:10])
    return root


class Log:
    """The newest root of a log and all that it names."""

    def __init__(self, store: Path) -> None:
        data = (store / "zarr.json").read_bytes()
        check_seal(data)
        own = json.loads(data)["consolidated_metadata"]["bedform"]
        assert own["version"] == 1
        assert own["must_understand"] is False
        self.pending = own.get("pending", False)
        self.place = store.with_name(f"{store.name}.bedform-log")
        self.root = newest_root(self.place, own["store"])
        self.commits: list[tuple[int, Directory, list[Entry]]] = []
        segments: dict[str, Segment] = {}
        for commit in self.root["commits"]:
            name = commit["segment"]
            names = {name}
            segments.setdefault(name, Segment(self.place, name, own["store"]))
            body = segments[name].sealed(commit["offset"], 4)
            assert len(body) == commit["bytes"]
            directory = Directory(body)
            entries = []
            for at, address, _, _, rank_first, touched in directory.sections:
                inner = directory.segments[at]
                names.add(inner)
                segments.setdefault(inner, Segment(self.place, inner, own["store"]))
                written = read_section(
                    segments[inner], address, (directory.session, directory.epoch)
                )
                assert rank_first == min(entry.order[1] for entry in written)
                assert touched == len({entry.array for entry in written})
                entries += [
                    Entry(e.array, (*e.order[:2], len(entries), e.order[2]), e.where, e.data)
                    for e in written
                ]
            for entry in entries:
                boxes = [box for key, box in directory.touched if key == entry.array]
                assert any(
                    all(
                        low <= s.start and s.stop <= high
                        for s, (low, high) in zip(entry.where, box, strict=True)
                    )
                    for box in boxes
                )
            self.commits.append((commit["number"], directory, entries))
        self.segments = segments

    def read(self, directory: Path) -> Array:
        array = ZarrArray(directory)
        key = array.own["array"]
        shape = tuple(self.root["shapes"].get(key, array.shape))
        grid = [-(-n // s) for n, s in zip(shape, array.shard_shape, strict=True)]
        values = np.full(
            [g * s for g, s in zip(grid, array.shard_shape, strict=True)], array.fill, array.dtype
        )
        inside = tuple(slice(0, n) for n in shape)
        for at in np.ndindex(*grid):
            where = region(
                [i * n for i, n in zip(at, array.shard_shape, strict=True)], array.shard_shape
            )
            stored, contains = array.shard(at)
            later = [commit for commit in self.commits if commit[0] > contains]
            values[where] = self.with_commits(array, key, stored, later, where, values.shape)
        return values[inside]

    def with_commits(
        self, array: ZarrArray, key: str, stored: Array, commits: Any, where: Any, shape: Any
    ) -> Array:
        whole = np.full(shape, array.fill, array.dtype)
        whole[where] = stored
        bases = [directory.grown[key][0] for _, directory, _ in commits if key in directory.grown]
        if bases:
            kept = np.full(shape, array.fill, array.dtype)
            inside = tuple(slice(0, n) for n in bases[0])
            kept[inside] = whole[inside]
            whole = kept
        for _, _, entries in commits:
            for entry in sorted((e for e in entries if e.array == key), key=lambda e: e.order):
                block = np.frombuffer(entry.data, array.dtype)
                whole[entry.where] = block.reshape([s.stop - s.start for s in entry.where])
        return whole[where]


# The tests


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


def test_large_writes_are_cut_into_blocks_of_32_kib(tmp_path: Path) -> None:
    place = tmp_path / "large.zarr"
    store = bf.create(place)
    store.create_array("t", shape=(3, 300, 401), dtype="float64")
    values = np.arange(3 * 300 * 401, dtype="float64").reshape(3, 300, 401)
    with store.session(settle="later") as session:
        session.write("t", values)
    log = Log(place)
    np.testing.assert_array_equal(log.read(place / "t"), values)


def read_settled_list(data: bytes) -> dict[tuple[str, tuple[int, ...]], int]:
    """The last commit of each listed shard, by array and coordinates."""
    reader = Reader(data)
    assert reader.varint() == 1
    arrays = reader.varint()
    keys = reader.keys(arrays)
    assert keys == sorted(keys)
    ranks, counts = reader.column(arrays), reader.column(arrays)
    grids = split(reader.column(sum(ranks)), ranks)
    numbers = split(reader.column(sum(counts)), counts)
    commits = split(reader.column(sum(counts)), counts)
    reader.finish()
    found = {}
    for key, grid, own, until in zip(keys, grids, numbers, commits, strict=True):
        assert own == sorted(set(own))
        for number, commit in zip(own, until, strict=True):
            found[key, tuple(unravel(number, grid))] = commit
    return found


def test_a_settled_list_names_the_stamps_of_the_shards(tmp_path: Path) -> None:
    place = tmp_path / "list.zarr"
    store = bf.create(place)
    layout = bf.Regular(chunks=(1, 64, 64), shards=(2, 128, 128))
    store.create_array("t", shape=(16, 256, 256), dtype="float64", layout=layout)
    store.create_array("n", shape=(8,), dtype="int32")
    values = np.random.default_rng(0).normal(size=(16, 256, 256))
    record = None
    # Only what is committed while others settle makes the list necessary.
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
        record = newest_root(log, own["store"]).get("settled_shards") if log.exists() else None
        if record is not None:
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
    with bf.open(path) as opened:
        np.testing.assert_array_equal(opened["t"][...], values)
    name = hashlib.sha256(f"{path}\0False".encode()).hexdigest()[:32]
    data = (tmp_path / "cache" / "bedform" / "chunk-maps" / f"{name}.map").read_bytes()
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
