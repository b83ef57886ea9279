"""The reads and writes of each process in the simulated benchmarks."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bedform as bf

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import amr_layout, amr_simulated, chunk_simulated, log_simulated, simulate_check  # noqa: E402
from benchmarks.replicas import placement  # noqa: E402

pytestmark = pytest.mark.night

TARGETS = 336


def elements(chunks: chunk_simulated.Chunks, total: int) -> Any:
    """Returns the C index of the element at each item of the file; -1 for padding."""
    ranks = chunks.ranks(TARGETS)
    size = int(np.prod(chunks.stored))
    file = np.full((int(ranks.max()) + 1) * size, -1)
    for place in np.ndindex(*chunks.grid):
        cuts = [chunks.cuts[axis][at] for axis, at in enumerate(place)]
        inside = np.full(chunks.stored, -1)
        i, j, k = (np.arange(begin, end) for begin, end in cuts)
        index = (i[:, None, None] * total + j[:, None]) * total + k
        inside[tuple(slice(0, end - begin) for begin, end in cuts)] = index
        at = int(ranks[place]) * size
        file[at : at + size] = inside.ravel()
    return file


@pytest.mark.parametrize("plane", [0, 1, 2])
@pytest.mark.parametrize(
    "chunks",
    [
        chunk_simulated.divided(4, (1, 1, 1), "row-major"),
        chunk_simulated.divided(4, (1, 3, 3)),
        chunk_simulated.divided(4, (1, 2, 2), "spread"),
        chunk_simulated.merged(4, 2),
    ],
    ids=["original", "padded", "spread", "merged"],
)
def test_readers_of_chunks_read_all_of_the_plane(
    chunks: chunk_simulated.Chunks, plane: int
) -> None:
    total, position = 64, 34
    file = elements(chunks, total)
    read = set()
    for client in chunk_simulated.chunk_reads(chunks, TARGETS, plane, position, 32):
        for operation in client:
            _, offset, length = operation["read"]
            read |= set(file[offset // 8 : (offset + length) // 8].tolist())
    shape = (total, total, total)
    wanted = np.take(np.arange(total**3).reshape(shape), position, axis=plane)
    assert set(wanted.ravel().tolist()) <= read


@pytest.mark.parametrize("plane", [0, 1, 2])
@pytest.mark.parametrize("readers", [3, 400])
def test_readers_who_share_chunks_read_each_once(plane: int, readers: int) -> None:
    chunks = chunk_simulated.divided(4, (1, 2, 2))
    whole = chunk_simulated.chunk_reads(chunks, TARGETS, plane, 34, 1)[0]
    shared = chunk_simulated.whole_chunk_reads(chunks, TARGETS, plane, 34, readers)
    assert [one for client in shared for one in client] == whole
    assert max(map(len, shared)) <= -(-len(whole) // readers)


@pytest.mark.parametrize("plane", [0, 1, 2])
@pytest.mark.parametrize("buffer", [None, 5000])
def test_readers_of_a_contiguous_file_read_all_of_the_plane(plane: int, buffer: int | None) -> None:
    total, position = 32, 17
    reads = chunk_simulated.contiguous_reads(total, plane, position, 8, buffer)
    assert reads is not None
    covered = np.zeros(total**3 * 8, "?")
    for client in reads:
        for operation in client:
            _, offset, length = operation["read"]
            covered[offset : offset + length] = True
    items = covered.reshape(total, total, total, 8)
    assert np.take(items, position, axis=plane).all()


COSTS = log_simulated.Costs(
    listing=1e-9,
    merging=1e-7,
    copying=1e10,
    placing=1e-8,
    hashing=1e-8,
    compressing=1e-7,
    compressed_bytes=2.0,
    creating=1e-4,
)
OUTPUT = dataclasses.replace(
    log_simulated.OUTPUTS[0], processes=84 * 64, data_bytes=84 * 64 * 100_000, requests=500
)


@pytest.mark.parametrize("name", ["cori", "summit"])
@pytest.mark.parametrize("way", list(log_simulated.WAYS))
def test_all_ways_of_writing_write_all_bytes(name: str, way: str) -> None:
    on = bf.machine(name)
    work = log_simulated.WAYS[way](OUTPUT, on, COSTS)
    found = bf.simulate(on, work).to_dict()
    declared = OUTPUT.declared_requests()
    metadata = 16 * declared * OUTPUT.processes
    # 387 variables that all processes write to, once each.
    entries = (387 * 40 + 2 * declared) * OUTPUT.processes
    extra = {"canonical": 0, "blob": metadata, "log": metadata + 4096, "paper's log": entries}[way]
    assert found["written_bytes"] == OUTPUT.data_bytes + extra
    # No object is written by two nodes.
    assert sum(load["handovers"] for load in found["targets"]) == 0


def test_what_requests_leave_out_is_read_and_written_back() -> None:
    on = bf.machine("cori")
    holes = dataclasses.replace(OUTPUT, covered=0.25)
    found = bf.simulate(on, log_simulated.canonical(holes, on, COSTS)).to_dict()
    assert found["read_bytes"] == found["written_bytes"] == 4 * OUTPUT.data_bytes


def test_a_variable_has_the_requests_of_the_table_once() -> None:
    for output in log_simulated.OUTPUTS:
        assert 0 < output.declared_requests() < output.requests


def test_there_are_enough_plans_and_they_are_the_same_in_every_run() -> None:
    plans = [*simulate_check.grid().values(), *map(simulate_check.mixed, range(16))]
    assert len(plans) >= simulate_check.PLANS_MIN
    assert simulate_check.mixed(3) == simulate_check.mixed(3)


@pytest.mark.parametrize("way", list(placement.WAYS))
@pytest.mark.parametrize("processes", [1, 7, 16, 144])
@pytest.mark.parametrize("shards", list(placement.SHARDS.values()), ids=list(placement.SHARDS))
def test_processes_that_share_a_replica_read_each_chunk_once(
    way: str, processes: int, shards: placement.Shape
) -> None:
    seen = np.zeros((1024, 16), "i8")
    for reads in placement.WAYS[way](processes):
        for read in reads:
            for shard, first, count in placement.pieces(shards, read):
                seen[shard, first : first + count] += 1
    assert (seen == 1).all()


def test_a_placed_replica_has_fewer_processes_on_a_target_and_as_many_shards() -> None:
    machine = bf.machine("edison")
    found = placement.compare(machine, placement.SHARDS["rows"], placement.blocks(16), 1)
    assert max(found.placed.processes) == 1 < max(found.spread.processes)
    assert sum(found.placed.stored) == sum(found.spread.stored) == 64 * 16 * 16
    assert max(found.placed.stored) <= max(found.spread.stored)
    assert found.placed.seconds <= found.spread.seconds


def test_steps_of_boxes_are_counted_in_the_object_of_each_target() -> None:
    stripe, targets = amr_simulated.STRIPE, 3
    # Target 0 has stripes 0, 9 and 48, which are 0, 3 and 16 in its object; target 1 has stripe 1.
    stripes = [0, 1, 9, 48]
    reads = [[(0, at * stripe, stripe) for at in stripes[one::2]] for one in range(2)]
    counts = amr_simulated.steps_of(reads, targets)
    assert counts.tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    # A gap within a stripe, then another level on the same target.
    apart = amr_simulated.APART * 2 % targets
    reads = [[(0, 0, 10), (0, 20, 10), (2, (targets - apart) % targets * stripe, 5)]]
    assert amr_simulated.steps_of(reads, targets)[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("clients", [1, 3, 16])
def test_clients_share_a_contiguous_read_of_levels(clients: int) -> None:
    lengths = [5, 0, 1000, 77]
    reads = amr_simulated.contiguous_reads(lengths, clients)
    pieces = sorted(one for client in reads for one in client)
    for file, length in enumerate(lengths):
        own = [(at, at + n) for number, at, n in pieces if number == file]
        assert sum(end - begin for begin, end in own) == length
        assert all(before[1] == after[0] for before, after in itertools.pairwise(own))
    assert max(sum(n for _, _, n in client) for client in reads) <= -(-sum(lengths) // clients)


def test_a_read_of_a_store_of_meshes_takes_its_sub_boxes_once(tmp_path: Path) -> None:
    amr_layout.write_plotfile(tmp_path / "plt00000", amr_layout.LEVELS, 32)
    place = tmp_path / "z.zarr"
    bf.convert(tmp_path / "plt00000", place, order="z", codecs=[])
    stored, mesh = amr_simulated.Stored(place), bf.open(place)
    for region in list(amr_simulated.regions_of(mesh, amr_layout.TILE).values())[::5]:
        sub_boxes = amr_simulated.sub_boxes_of(mesh, region, amr_layout.TILE)
        for clients in (1, 5):
            reads = stored.reads(region, sub_boxes, clients)
            assert len(reads) == clients
            # A sub-box has a checksum of 4 bytes.
            needed = sum(map(len, sub_boxes.values())) * (amr_layout.TILE**3 * 8 + 4)
            assert sum(n for client in reads for _, _, n in client) == needed
