"""The peers: zarr-python, zarrs' codec pipeline inside it, TensorStore.

Their variants are documented configurations, tried by hand on this class of machine, that were
fastest on some line. TensorStore's `memmap` mode is marked experimental by its authors; it is fast,
so it counts. TensorStore with its defaults (file mode, a new result) is a separate engine, for
reference only.
"""

from __future__ import annotations

from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.harness.data import ARRAY, write_empty_store
from benchmarks.harness.engine import (
    Engine,
    Reader,
    Values,
    touched_buffer,
    with_kept_axes,
)
from benchmarks.harness.selections import Selection, result_shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZARRS_PIPELINE = {
    "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
    "codec_pipeline.strict": True,
}


class ZarrPython(Engine):
    """zarr-python with its default codec pipeline."""

    name = "zarr-python"
    read_variants: tuple[str, ...] = ("default", "default out", "concurrent", "concurrent out")
    configurations: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"async.concurrency": 10},
        "concurrent": {"async.concurrency": 64},
    }

    def version(self) -> str:
        """Return the versions of the packages that take part."""
        return "zarr " + package_version("zarr")

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the array once per configuration: the pipeline is fixed when it is opened."""
        import zarr

        self.arrays: dict[str, Any] = {}
        for name, configuration in self.configurations.items():
            with zarr.config.set(configuration):
                store: Any = zarr.storage.LocalStore(path / ARRAY, read_only=True)
                if cache_bytes:
                    from zarr.experimental.cache_store import CacheStore

                    memory = zarr.storage.MemoryStore()
                    store = CacheStore(store, cache_store=memory, max_size=cache_bytes)
                self.arrays[name] = zarr.open_array(store, mode="r")

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Read with `[]`, or into a given buffer with `get_basic_selection(out=)`."""
        import zarr
        from zarr.core.buffer import default_buffer_prototype

        configuration, _, out = variant.partition(" ")
        array, settings = self.arrays[configuration], self.configurations[configuration]
        # zarrs refuses integers beside slices; a slice of length one costs zarr-python no time.
        kept, shape = with_kept_axes(selection), result_shape(selection)
        zarr.config.set(settings)
        if not out:
            return lambda: array[kept].reshape(shape)
        buffer = touched_buffer(selection)
        full_shape = tuple(part.stop - part.start for part in kept)
        wrapped = default_buffer_prototype().nd_buffer.from_numpy_array(buffer.reshape(full_shape))

        def read() -> Values:
            array.get_basic_selection(kept, out=wrapped)
            return buffer

        return read

    def element_reader(self, variant: str) -> Callable[[tuple[int, ...]], float]:
        """Read an element with `a[i, j, k]`."""
        array = self.arrays[variant]
        return lambda point: float(array[point])

    def write(self, path: Path, values: Values, metadata: dict[str, Any], variant: str) -> None:
        """Assign the whole array at once."""
        import zarr

        with zarr.config.set(self.configurations[variant]):
            write_empty_store(path, metadata)
            zarr.open_array(path / ARRAY, mode="r+")[...] = values

    write_variants: tuple[str, ...] = ("default", "concurrent")


class Zarrs(ZarrPython):
    """zarrs (Rust) as the codec pipeline of zarr-python."""

    name = "zarrs"
    read_variants: tuple[str, ...] = ("default", "default out", "serial", "serial out")
    configurations: ClassVar[dict[str, dict[str, Any]]] = {
        "default": ZARRS_PIPELINE,
        "serial": {**ZARRS_PIPELINE, "codec_pipeline.chunk_concurrent_maximum": 1},
    }
    write_variants: tuple[str, ...] = ("default", "serial")

    def version(self) -> str:
        """Return the versions of the packages that take part."""
        return f"zarrs {package_version('zarrs')} in zarr {package_version('zarr')}"

    def element_reader(self, variant: str) -> Callable[[tuple[int, ...]], float]:
        """Reads an element as a region of one, since the pipeline takes only regions."""
        array = self.arrays[variant]
        return lambda point: float(
            array[tuple(slice(index, index + 1) for index in point)].reshape(())
        )


class TensorStore(Engine):
    """TensorStore with its fastest settings."""

    name = "tensorstore"
    read_variants: tuple[str, ...] = (
        "memmap into",
        "memmap new",
        "default into",
        "many into",
        "default new",
    )
    element_variants: tuple[str, ...] = ("memmap", "default")
    write_variants: tuple[str, ...] = ("default", "unsynced", "unsynced many")
    contexts: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "memmap": {"file_io_mode": {"mode": "memmap"}},
        "many": {"file_io_concurrency": {"limit": 32}},
    }

    def version(self) -> str:
        """Return the version of TensorStore."""
        return "tensorstore " + package_version("tensorstore")

    def open(self, path: Path, cache_bytes: int) -> None:
        """Opens the array once per context; with a cache, data are not revalidated."""
        import tensorstore as ts

        kvstore = {"driver": "file", "path": str(path / ARRAY) + "/"}
        self.arrays: dict[str, Any] = {}
        for name, context in self.contexts.items():
            spec: dict[str, Any] = {"driver": "zarr3", "kvstore": kvstore}
            spec["context"] = {
                "cache_pool": {"total_bytes_limit": cache_bytes},
                **context,
            }
            if cache_bytes:
                spec["recheck_cached_data"] = "open"
            self.arrays[name] = ts.open(spec, read=True).result()

    def reader(self, selection: Selection, variant: str) -> Reader:
        """Read into a new array, or copy the view straight into the memory of a given one."""
        import tensorstore as ts

        context, _, result = variant.partition(" ")
        view = self.arrays[context][selection]
        if result == "new":

            def read_new() -> Values:
                values: Values = view.read().result()
                return values

            return read_new
        buffer = touched_buffer(selection)
        target = ts.array(buffer)

        def read_into() -> Values:
            target.write(view).result()
            return buffer

        return read_into

    def element_reader(self, variant: str) -> Callable[[tuple[int, ...]], float]:
        """Read an element with `a[i, j, k].read().result()`."""
        array = self.arrays[variant]
        return lambda point: float(array[point].read().result())

    def write(self, path: Path, values: Values, metadata: dict[str, Any], variant: str) -> None:
        """Assign the whole array; TensorStore syncs each file, or leaves it to the caller."""
        import tensorstore as ts

        write_empty_store(path, metadata)
        context: dict[str, Any] = {"file_io_sync": variant == "default"}
        if variant == "unsynced many":
            context["file_io_concurrency"] = {"limit": 32}
        kvstore = {"driver": "file", "path": str(path / ARRAY) + "/"}
        spec = {"driver": "zarr3", "kvstore": kvstore, "context": context}
        ts.open(spec).result().write(values).result()


class PlainTensorStore(TensorStore):
    """TensorStore with its defaults: file mode, a new result. A reference, not the baseline."""

    name = "tensorstore-plain"
    read_variants: tuple[str, ...] = ("default new",)
    element_variants: tuple[str, ...] = ("default",)
    write_variants: tuple[str, ...] = ("default",)
    contexts: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
