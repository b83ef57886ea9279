"""The value index of `query`: its bytes, and the seconds of building it, alone and while writing.

A build of Bedform without `bf.index` has no index; then nothing is measured here.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import bedform as bf
from benchmarks.harness import cold, data
from benchmarks.harness.children import in_child
from benchmarks.harness.rounds import interleave
from benchmarks.queries.fields import DIMS
from benchmarks.queries.readers import ARRAY

#: The levels of an index, and the bins of each: least and greatest values alone, or bins as well.
LEVELS: dict[str, int | None] = {"ranges": None, "20 bins": 20}
#: Files that changed a moment ago count as changing still.
SETTLING_SECONDS = 3.0
WRITING_ROUNDS = 5
MISSING = "not in this build"


def has_index() -> bool:
    """Whether this build makes indexes."""
    return hasattr(bf, "index")


def has_bins() -> bool:
    """Whether this build makes indexes with bins."""
    values = np.zeros(8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zarr"
        with bf.create(path) as store:
            store.create_array(ARRAY, data=values, dims=("x",))
        return build(path, ARRAY, 2) is not None


def has_index_while_writing() -> bool:
    """Whether this build makes an index while it writes an array."""
    return "index" in inspect.signature(bf.Store.create_array).parameters


def build(path: Path, array: str, bins: int | list[float] | None) -> dict[str, Any] | None:
    """Builds an index; returns its bytes and seconds, or None if this build lacks the level."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    try:
        report = bf.index(path, arrays=[array], bins=bins)  # type: ignore[attr-defined, unused-ignore]
    except bf.UnsupportedError:
        return None
    seconds = time.perf_counter() - began
    # Dirty pages cannot be made cold.
    os.sync()
    return {"seconds": seconds, "bytes": report.bytes}


def build_all(path: Path, array: str, sidecars: Path) -> dict[str, Any]:
    """Builds each level anew, cold; the last one stays."""
    if not has_index():
        return {}
    time.sleep(SETTLING_SECONDS)
    found = {}
    for level, bins in LEVELS.items():
        data.remove(sidecars)
        cold.make_cold(path)
        made = in_child(build, path, array, bins)
        if made is not None:
            found[level] = made
    if found and len(found) < len(LEVELS):
        in_child(build, path, array, LEVELS["ranges"])
    return found


def as_float32(place: Path, values: Path, sidecars: Path) -> dict[str, Any]:
    """Builds the levels for the same field in float32; nothing of it stays."""
    path = place / "float32.zarr"

    def write() -> None:
        data.remove(path)
        with bf.create(path) as store:
            narrow = np.load(values, mmap_mode="r").astype(np.float32)
            store.create_array(ARRAY, data=narrow, dims=DIMS)

    in_child(write)
    found = build_all(path, ARRAY, sidecars)
    data.remove(path)
    data.remove(sidecars)
    return found


def while_writing(place: Path, values: Path) -> dict[str, list[float]]:
    """Writes the field with and without an index, in rounds; returns the seconds."""
    if not has_index_while_writing():
        return {}
    path = place / "written.zarr"

    def write(is_indexed: bool) -> float:
        options: dict[str, Any] = {"index": True} if is_indexed else {}
        elements = np.asarray(np.load(values, mmap_mode="r"))
        began = time.perf_counter()
        with bf.create(path) as store:
            store.create_array(ARRAY, data=elements, dims=DIMS, **options)
        return time.perf_counter() - began

    def once(name: str) -> float:
        data.remove(path)
        return float(in_child(write, name == "indexed"))

    cold.make_warm(values)
    found = interleave(["plain", "indexed"], WRITING_ROUNDS, once)
    data.remove(path)
    return found
