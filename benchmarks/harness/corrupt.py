"""A store with one flipped bit in the checksum of every inner chunk, to see which engines verify.

The bit is in the checksum and not in the data, so that no decompressor can detect it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.harness.data import ARRAY, ensure
from benchmarks.harness.shards import inner_grid, read_index

if TYPE_CHECKING:
    from pathlib import Path

# Each read of `named_selections` touches one of these; other shards are omitted.
SHARDS = ("1/1/1", "0/0/1", "0/1/1")


def corrupt_store(store: Path) -> Path:
    """Return a copy of some shards of `store` with a bit flipped in the last byte of each chunk."""

    def build(path: Path) -> None:
        (path / ARRAY).mkdir(parents=True)
        for name in ("zarr.json", f"{ARRAY}/zarr.json"):
            shutil.copy(store / name, path / name)
        for shard in SHARDS:
            target = path / ARRAY / "c" / shard
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(store / ARRAY / "c" / shard, target)
            index = read_index(target, inner_grid(store)).reshape(-1, 2)
            with target.open("r+b") as opened:
                for start, length in index:
                    position = int(start) + int(length) - 1
                    opened.seek(position)
                    changed = opened.read(1)[0] ^ 1
                    opened.seek(position)
                    opened.write(bytes([changed]))

    return ensure(store.with_name("bad-checksums-" + store.name), build)
