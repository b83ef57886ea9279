"""The engines of `s3-write`: each creates a store through the proxy and writes an array to it.

A place is the endpoint and the store's name, as for reading. The array's metadata define layout and
codecs, and each engine gets them in its own form.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness.data import ARRAY, ZSTD_LEVEL
from benchmarks.harness.engine import Engine
from benchmarks.harness.s3_engines import S3Bedform, S3TensorStore, S3ZarrPython, parts
from benchmarks.harness.s3_server import BUCKET, KEY, REGION, SECRET, set_environment
from benchmarks.harness.worker import resident

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.selections import Selection

Figures = dict[str, float]
SETTLE_MEMORY = 256 << 20


def measured(work: Callable[[], object]) -> Figures:
    """Returns the seconds of `work`, and the growth of the memory peak."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "growth": resident("VmHWM") - before}


class Writer(Engine):
    """Base class of the engines: the source in memory, and the clock."""

    def load(self, path: Path) -> None:
        """Keep the source in memory."""
        self.values: Any = np.load(path)

    def create(self, place: str, metadata: dict[str, Any], variant: str) -> float:
        """Measures the creation of a store with an array, the target of the writes."""
        start = time.perf_counter()
        self.target: Any = self.created(place, metadata, variant)
        return time.perf_counter() - start

    def write_pieces(self, pieces: list[Selection]) -> Figures:
        """Write selections of the array, one call after the other."""

        def work() -> None:
            for piece in pieces:
                self.put(piece)

        return measured(work)

    def created(self, place: str, metadata: dict[str, Any], variant: str) -> Any:
        """Create a store with an array in it."""
        raise NotImplementedError

    def put(self, piece: Selection) -> None:
        """Write a selection; it is in the store on return."""
        raise NotImplementedError


def layout_of(metadata: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Return chunks, shards, and whether they are compressed."""
    sharding = metadata["codecs"][0]["configuration"]
    shards = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
    has_zstd = any(codec["name"] == "zstd" for codec in sharding["codecs"])
    return tuple(sharding["chunk_shape"]), shards, has_zstd


class S3ZarrPythonWriter(Writer, S3ZarrPython):
    """zarr-python over obstore, which uploads a shard in parts of 5 MiB, twelve at a time."""

    write_variants: tuple[str, ...] = ("default", "concurrent")

    def created(self, place: str, metadata: dict[str, Any], variant: str) -> Any:
        """Create a group and an array in it."""
        import zarr
        from obstore.store import S3Store
        from zarr.codecs import Crc32cCodec, ZstdCodec

        endpoint, name = parts(place)
        zarr.config.set(self.configurations[variant])
        store = S3Store(
            BUCKET,
            prefix=name,
            endpoint=endpoint,
            region=REGION,
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )
        chunks, shards, has_zstd = layout_of(metadata)
        zstd = [ZstdCodec(level=ZSTD_LEVEL)] if has_zstd else []
        return zarr.create_group(zarr.storage.ObjectStore(store)).create_array(
            ARRAY,
            shape=metadata["shape"],
            dtype=metadata["data_type"],
            chunks=chunks,
            shards=shards,
            compressors=[*zstd, Crc32cCodec()],
            dimension_names=metadata["dimension_names"],
        )

    def put(self, piece: Selection) -> None:
        """Assign."""
        self.target[piece] = self.values[piece]


class S3TensorStoreWriter(Writer, S3TensorStore):
    """TensorStore, with or without a transaction for each write."""

    write_variants: tuple[str, ...] = ("default", "many", "transaction")
    contexts: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "many": {"s3_request_concurrency": {"limit": 128}, "data_copy_concurrency": {"limit": 8}},
        "transaction": {},
    }

    def created(self, place: str, metadata: dict[str, Any], variant: str) -> Any:
        """Creates an array; the group has a separate document."""
        import tensorstore as ts

        set_environment()
        endpoint, name = parts(place)
        s3 = {
            "driver": "s3",
            "bucket": BUCKET,
            "endpoint": endpoint,
            "aws_region": REGION,
            "aws_credentials": {"type": "environment"},
        }
        context = ts.Context(self.contexts[variant])
        group = ts.KvStore.open({**s3, "path": f"{name}/"}, context=context).result()
        written = group.write("zarr.json", b'{"zarr_format":3,"node_type":"group"}')
        kvstore = {**s3, "path": f"{name}/{ARRAY}/"}
        known = ("shape", "data_type", "chunk_grid", "codecs", "fill_value", "dimension_names")
        spec = {
            "driver": "zarr3",
            "kvstore": kvstore,
            "metadata": {key: metadata[key] for key in known},
        }
        array = ts.open(spec, create=True, context=context).result()
        written.result()
        self.in_transaction = variant == "transaction"
        return array

    def put(self, piece: Selection) -> None:
        """Write, and wait until it is committed."""
        import tensorstore as ts

        if not self.in_transaction:
            self.target[piece].write(self.values[piece]).result()
            return
        with ts.Transaction() as transaction:
            self.target.with_transaction(transaction)[piece].write(self.values[piece]).result()


class S3BedformWriter(Writer, S3Bedform):
    """The engine of this repository."""

    write_variants: tuple[str, ...] = ("default",)

    def created(self, place: str, metadata: dict[str, Any], variant: str) -> Any:  # noqa: ARG002
        """Create a store and an array in it."""
        import bedform as bf

        set_environment()
        endpoint, name = parts(place)
        chunks, shards, has_zstd = layout_of(metadata)
        self.store: Any = bf.create(f"s3://{BUCKET}/{name}", storage_options={"endpoint": endpoint})
        zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL}}
        return self.store.create_array(
            ARRAY,
            shape=metadata["shape"],
            dtype=metadata["data_type"],
            dims=metadata["dimension_names"],
            layout=bf.Regular(chunks=chunks, shards=shards),
            codecs=[zstd] if has_zstd else [],
        )

    def put(self, piece: Selection) -> None:
        """Assign."""
        self.target[piece] = self.values[piece]

    def append_all(self, planes: int) -> Figures:
        """Appends `planes` planes at a time through a session, until the commit."""

        def work() -> None:
            with self.store.session(settle="later") as session:
                for first in range(0, len(self.values), planes):
                    session.append(ARRAY, self.values[first : first + planes])

        return measured(work)

    def settle(self) -> Figures:
        """Settles the appended planes into shards."""
        return measured(lambda: self.store.settle(memory=SETTLE_MEMORY))
