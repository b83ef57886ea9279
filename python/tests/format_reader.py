"""A reader written from `docs/format.md` alone.

It uses none of Bedform's code: struct, json, and numcodecs for Zstandard. If this reader, the page
and Bedform's output disagree, one of the three is wrong.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path
from types import SimpleNamespace

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
    """A decoder of varints, columns and raw bytes from a buffer."""

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
    """The parts of an array's document that the reader needs."""

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
        """Returns the elements of a shard, and its last commit."""
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
        """Returns the kinds of all records in a segment of one writer."""
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


class Table:
    """The table of the boxes that many commits touch, by array."""

    def __init__(self, log: Path, record: dict[str, Any], settled: int) -> None:
        data = (log / "tables" / record["name"]).read_bytes()
        assert len(data) == record["bytes"]
        assert re.fullmatch(f"{record['last']:010}-[0-9a-f]{{32}}", record["name"])
        index = data[len(data) - record["index_bytes"] :]
        assert crc32c(index) == record["checksum"]
        reader = Reader(index)
        assert reader.varint() == 1
        commits, segments, ends, blocks = (reader.varint() for _ in range(4))
        numbers = reader.column(commits)
        lengths = reader.column(segments)
        self.segments = [reader.take(length).decode() for length in lengths]
        last = reader.column(segments)
        for segment, _ in zip(reader.column(ends), reader.column(ends), strict=True):
            assert last[segment] in numbers
        first_keys, last_keys = reader.keys(blocks), reader.keys(blocks)
        kinds, items, low, high, sizes, checksums, ranks = (reader.column(blocks) for _ in range(7))
        boxes = self._boxes(reader, [max(rank - 1, 0) for rank in ranks])
        reader.finish()
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == record["last"]
        assert record["first"] == min(n for n in numbers if n > settled)
        self.numbers = [number for number in numbers if number > settled]
        # By commit: sections by number, with the boxes that they touch; and the growing arrays.
        self.sections: dict[int, dict[int, Any]] = {number: {} for number in numbers}
        self.grown: dict[int, Any] = {number: {} for number in numbers}
        at = rows = 0
        for number in range(blocks):
            block = data[at : at + sizes[number]]
            at += sizes[number]
            assert crc32c(block) == checksums[number]
            reader = Reader(block)
            arrays, count = reader.varint(), reader.varint()
            assert count == items[number] <= 256
            rows += count
            keys = reader.keys(arrays)
            assert (keys[0], keys[-1]) == (first_keys[number], last_keys[number])
            of_arrays, counts = reader.column(arrays), reader.column(arrays)
            keys = [key for key, n in zip(keys, counts, strict=True) for _ in range(n)]
            of = [rank for rank, n in zip(of_arrays, counts, strict=True) for _ in range(n)]
            if kinds[number] == 0:
                columns = [reader.column(count) for _ in range(5)]
                touched = self._boxes(reader, of)
                for row in zip(keys, *columns, touched, strict=True):
                    key, commit, order, segment, address, _, box = row
                    section = self.sections[commit].setdefault(order, (segment, address, []))
                    section[2].append((key, box))
                    if ranks[number]:
                        around = zip(box, boxes[number], strict=True)
                        assert all(a <= x and y <= b for (x, y), (a, b) in around)
                found = columns[0]
            else:
                found = reader.column(count)
                before, after = (split(reader.column(sum(of)), of) for _ in range(2))
                for key, commit, *shapes in zip(keys, found, before, after, strict=True):
                    self.grown[commit][key] = tuple(shapes)
            assert (min(found), max(found)) == (low[number], high[number])
            reader.finish()
        assert at == record["bytes"] - record["index_bytes"]
        assert rows == record["rows"]

    @staticmethod
    def _boxes(reader: Reader, ranks: list[int]) -> list[list[tuple[int, int]]]:
        boxes: list[list[tuple[int, int]]] = [[(0, 0)] * rank for rank in ranks]
        for axis in range(max(ranks, default=0)):
            having = [box for box in boxes if len(box) > axis]
            starts, sides = reader.column(len(having)), reader.column(len(having))
            for box, start, side in zip(having, starts, sides, strict=True):
                box[axis] = (start, start + side)
        return boxes


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


def read_section(
    segment: Segment, address: int, commit: tuple[str, int] | None = None
) -> list[Entry]:
    reader = Reader(segment.sealed(address, 3))
    assert reader.varint() == 2
    assert (reader.take(16).hex(), reader.varint()) == commit or commit is None
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
    assert root["bedform"]["version"] == 2
    assert root["bedform"]["store"] == store
    assert root["number"] == int(names[-1][:10])
    return root


class Log:
    """The newest root of a log, and all objects that it names."""

    def __init__(self, store: Path) -> None:
        data = (store / "zarr.json").read_bytes()
        check_seal(data)
        own = json.loads(data)["consolidated_metadata"]["bedform"]
        assert own["version"] == 1
        assert own["must_understand"] is False
        self.pending = own.get("pending", False)
        self.place = store.with_name(f"{store.name}.bedform-log")
        self.root = newest_root(self.place, own["store"])
        self.commits: list[tuple[int, Any, list[Entry]]] = []
        segments: dict[str, Segment] = {}
        shapes: dict[str, Any] = {}
        for record in self.root["tables"]:
            table = Table(self.place, record, self.root["settled"])
            for number in table.numbers:
                entries = []
                for _, (at, address, touched) in sorted(table.sections[number].items()):
                    inner = table.segments[at]
                    segments.setdefault(inner, Segment(self.place, inner, own["store"]))
                    written = read_section(segments[inner], address)
                    assert {entry.array for entry in written} == {key for key, _ in touched}
                    entries += [
                        Entry(e.array, (*e.order[:2], len(entries), e.order[2]), e.where, e.data)
                        for e in written
                    ]
                grown = table.grown[number]
                shapes |= {key: after for key, (_, after) in grown.items()}
                self.commits.append((number, SimpleNamespace(grown=grown), entries))
        self.shapes = {**shapes, **self.root["shapes"]}
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
        later = self.shapes.get(key, array.shape)
        shape = tuple(max(one, other) for one, other in zip(later, array.shape, strict=True))
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


def read_settled_list(data: bytes) -> dict[tuple[str, tuple[int, ...]], int]:
    """Returns the last commit of each listed shard, by array and coordinates."""
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
