"""Data sets under `bench-data/`: built once, reused, verified by checksum before every use.

Promises: every reader of a data set gets the same bytes. A set whose files changed in length or in
CRC-32 is rebuilt. A set is built beside its final path and renamed, so that an interrupted build
leaves no set that looks complete.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import field

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2] / "bench-data"
ARRAY = "field"
DIMS = ("i", "j", "k")
ZSTD_LEVEL = 3
COPY_BYTES = 8 << 20
VERIFIED: set[Path] = set()


@dataclass(frozen=True)
class Layout:
    """Chunks inside shards, and the order in which a shard holds its chunks."""

    name: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...]
    order: str = "row-major"

    def describe(self) -> str:
        """Return the layout in words for a table."""
        return f"{shape_in_words(self.chunk)} in {shape_in_words(self.shard)}, {self.order}"


def cube(edge: int) -> tuple[int, ...]:
    """Return the shape of a cube."""
    return (edge,) * len(DIMS)


def shape_in_words(shape: tuple[int, ...]) -> str:
    """Return a shape for names and tables.

    >>> shape_in_words((64, 64, 64)), shape_in_words((8, 64, 64))
    ('64^3', '8x64x64')
    """
    if len(set(shape)) == 1:
        return f"{shape[0]}^{len(shape)}"
    return "x".join(map(str, shape))


def standard_layout(size: int) -> Layout:
    """Return 64^3 chunks in 256^3 shards for the cube of 512, in proportion for smaller ones."""
    return Layout("standard", cube(max(size // 8, 4)), cube(max(size // 2, 8)))


def advised_layout(size: int) -> Layout:
    """Return the layout that the engine advises for planes of three directions."""
    from bedform import Profile, advise

    reads = {("i", "j"): 1 / 3, ("i", "k"): 1 / 3, ("j", "k"): 1 / 3}
    # Not the profile of this machine, so that the layout is the same everywhere.
    profile = Profile.default()
    advice = advise((size,) * 3, "float64", dims=DIMS, reads=reads, profile=profile).layout
    return Layout("advised", tuple(advice.chunks), tuple(advice.shards), advice.order)


def file_checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb") as source:
        while block := source.read(COPY_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def files_under(path: Path) -> list[Path]:
    """Return every regular file of a data set, sorted."""
    if path.is_file():
        return [path]
    return sorted(entry for entry in path.rglob("*") if entry.is_file())


def inventory(path: Path) -> dict[str, list[int]]:
    """Returns length and CRC-32 of every file of a data set; a set of one file has the name ".".

    The set's name is not included, since it is built under another one.
    """
    return {
        str(entry.relative_to(path)): [entry.stat().st_size, file_checksum(entry)]
        for entry in files_under(path)
    }


def _manifest_path(path: Path) -> Path:
    return path.with_name(path.name + ".manifest.json")


def is_intact(path: Path) -> bool:
    """Whether the data set exists and equals, bit for bit, the built one."""
    manifest = _manifest_path(path)
    if not (path.exists() and manifest.exists()):
        return False
    return bool(json.loads(manifest.read_text()) == inventory(path))


def ensure(path: Path, build: Callable[[Path], None]) -> Path:
    """Returns `path`, after `build` has made it if it is missing or has changed.

    The checksums are computed once per process: they take a second per GiB.
    """
    if path in VERIFIED or is_intact(path):
        VERIFIED.add(path)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name("building." + path.name)
    for stale in (path, temporary):
        remove(stale)
    build(temporary)
    _manifest_path(path).write_text(json.dumps(inventory(temporary), indent=1))
    temporary.rename(path)
    os.sync()
    return path


def remove(path: Path) -> None:
    """Delete a file or a tree if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    """Truncates all files of a tree; their names are removed at the end.

    ext4 does not reuse the inodes of files removed in the last minute, and examines each of them
    when a file is created. So removing outputs between rounds would slow down later file creation.
    """
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.truncate(file, 0)


def truth(size: int) -> NDArray[np.float64]:
    """Returns the field of `size` as a memory map, for comparison with reads."""

    def build(path: Path) -> None:
        # NumPy would append ".npy" to the name, so the file is opened here.
        with path.open("wb") as target:
            header = {"descr": "<f8", "fortran_order": False, "shape": (size,) * 3}
            np.lib.format.write_array_header_1_0(target, header)
            for plane in field.planes(size):
                target.write(plane.tobytes())

    path = ensure(ROOT / str(size) / "truth.npy", build)
    return np.asarray(np.load(path, mmap_mode="r"))


def codec_chain(codec: str) -> list[dict[str, Any]]:
    """Returns the Zarr codecs of an inner chunk, always with CRC-32C."""
    chain: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec == "zstd":
        zstd = {"level": ZSTD_LEVEL, "checksum": False}
        chain.append({"name": "zstd", "configuration": zstd})
    return [*chain, {"name": "crc32c"}]


def array_metadata(size: int, layout: Layout, codec: str) -> dict[str, Any]:
    """Returns the `zarr.json` of the array, the same document for all writers."""
    sharding = {
        "chunk_shape": list(layout.chunk),
        "codecs": codec_chain(codec),
        "index_codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
        "index_location": "end",
    }
    grid = {"name": "regular", "configuration": {"chunk_shape": list(layout.shard)}}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [size] * 3,
        "data_type": "float64",
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {},
        "dimension_names": list(DIMS),
        "storage_transformers": [],
    }


def write_empty_store(path: Path, metadata: dict[str, Any]) -> None:
    """Write a group with one array that has no shard yet."""
    (path / ARRAY).mkdir(parents=True)
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    (path / "zarr.json").write_text(json.dumps(group))
    (path / ARRAY / "zarr.json").write_text(json.dumps(metadata))


def zarr_store(size: int, layout: Layout, codec: str) -> Path:
    """Return a store that holds the field; TensorStore wrote it, or Bedform for a curve order."""
    values = truth(size)

    def build(path: Path) -> None:
        if layout.order == "row-major":
            import tensorstore as ts

            write_empty_store(path, array_metadata(size, layout, codec))
            kvstore = {"driver": "file", "path": str(path / ARRAY)}
            array = ts.open({"driver": "zarr3", "kvstore": kvstore}).result()
            for start in range(0, size, layout.shard[0]):
                stop = start + layout.shard[0]
                array[start:stop] = values[start:stop]
        else:
            from benchmarks.harness import bedform_engine

            bedform_engine.write_store(path, values, layout, codec)

    shapes = f"{shape_in_words(layout.chunk)}-in-{shape_in_words(layout.shard)}"
    name = f"{shapes}-{layout.order}-{codec}.zarr"
    return ensure(ROOT / str(size) / name, build)


def hdf5_file(size: int, name: str, chunks: tuple[int, ...] | bool | None) -> Path:
    """Return an HDF5 file that holds the field raw; `chunks` as h5py takes it."""
    values = truth(size)

    def build(path: Path) -> None:
        import h5py

        slab = max(size // 8, 1)
        with h5py.File(path, "w") as target:
            stored = target.create_dataset(ARRAY, values.shape, "f8", chunks=chunks)
            for start in range(0, size, slab):
                stored[start : start + slab] = values[start : start + slab]

    return ensure(ROOT / str(size) / f"{name}.h5", build)
