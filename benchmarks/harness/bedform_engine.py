"""Bedform behind the interface of the benchmarks; imported only where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.harness.data import ARRAY, DIMS, ZSTD_LEVEL, Layout
from benchmarks.harness.engine import Engine, Reader, Values, touched_buffer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.harness.selections import Selection


def is_installed() -> bool:
    """Tell whether the built package can be imported."""
    return find_spec("bedform") is not None and find_spec("bedform._internal") is not None


def write_store(path: Path, values: Values, layout: Layout, codec: str) -> None:
    """Write a store with the field in `layout`; durable on return."""
    import bedform as bf

    # The engine adds CRC-32C; `zarr-write` checks for it in the metadata.
    zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL}}
    codecs = [zstd] if codec == "zstd" else []
    store = bf.create(str(path))
    array = store.create_array(
        ARRAY,
        shape=values.shape,
        dtype="float64",
        dims=DIMS,
        layout=bf.Regular(
            chunks=layout.chunk,
            shards=layout.shard,
            order=layout.order,
        ),
        codecs=codecs,
    )
    array[...] = values


class Bedform(Engine):
    """The engine of this repository."""

    name = "bedform"
    read_variants = ("out", "new")

    def version(self) -> str:
        """Return the version of the package."""
        import bedform as bf

        return "bedform " + str(bf.__version__)

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the store; a cache of 0 holds nothing."""
        import bedform as bf

        self.array: Any = bf.open(str(path), cache=cache_bytes)[ARRAY]

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Read with `[]`, or with `read(out=)` into a given buffer."""
        array = self.array
        if variant == "new":
            return lambda: array[selection]
        buffer = touched_buffer(selection)

        def read() -> Values:
            array.read(selection, out=buffer)
            return buffer

        return read

    def element_reader(self, variant: str) -> Callable[[tuple[int, ...]], float]:  # noqa: ARG002
        """Read an element with `a[i, j, k]`."""
        array = self.array
        return lambda point: float(array[point])

    def write(
        self,
        path: Path,
        values: Values,
        metadata: dict[str, Any],
        variant: str,  # noqa: ARG002
    ) -> None:
        """Create the store and assign the whole array."""
        sharding = metadata["codecs"][0]["configuration"]
        chunk = tuple(sharding["chunk_shape"])
        shard = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
        names = [codec["name"] for codec in sharding["codecs"]]
        codec = "zstd" if "zstd" in names else "raw"
        write_store(path, values, Layout("written", chunk, shard), codec)
