"""The engines of `s3-read`: zarr-python over obstore, TensorStore, Bedform; all on one S3 server.

`open` gets the endpoint and the store's name in the bucket, as `endpoint name`.
"""

from __future__ import annotations

from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.harness.bedform_engine import Bedform
from benchmarks.harness.data import ARRAY
from benchmarks.harness.peers import TensorStore, ZarrPython
from benchmarks.harness.s3_server import BUCKET, KEY, REGION, SECRET, set_environment

if TYPE_CHECKING:
    from pathlib import Path


def parts(place: Path | str) -> tuple[str, str]:
    """Return endpoint and name.

    >>> parts("http://host:1 a.zarr")
    ('http://host:1', 'a.zarr')
    """
    endpoint, _, name = str(place).partition(" ")
    return endpoint, name


class S3ZarrPython(ZarrPython):
    """zarr-python over obstore, the client of the same object_store crate."""

    name = "zarr-python"
    read_variants: tuple[str, ...] = ("default", "concurrent")

    def version(self) -> str:
        """Return the versions of the packages that take part."""
        return f"zarr {package_version('zarr')}, obstore {package_version('obstore')}"

    def open(self, path: Path, cache_bytes: int) -> None:  # noqa: ARG002
        """Open the array once per configuration."""
        import zarr
        from obstore.store import S3Store

        endpoint, name = parts(path)
        self.arrays: dict[str, Any] = {}
        for variant, configuration in self.configurations.items():
            with zarr.config.set(configuration):
                store = S3Store(
                    BUCKET,
                    prefix=f"{name}/{ARRAY}",
                    endpoint=endpoint,
                    region=REGION,
                    access_key_id=KEY,
                    secret_access_key=SECRET,
                    client_options={"allow_http": True},
                    virtual_hosted_style_request=False,
                )
                opened = zarr.storage.ObjectStore(store, read_only=True)
                self.arrays[variant] = zarr.open_array(opened, mode="r")


class S3TensorStore(TensorStore):
    """TensorStore's own client."""

    name = "tensorstore"
    read_variants: tuple[str, ...] = ("default new", "many new")
    contexts: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "many": {"s3_request_concurrency": {"limit": 128}},
    }

    def open(self, path: Path, cache_bytes: int) -> None:
        """Open the array once per context."""
        import tensorstore as ts

        set_environment()
        endpoint, name = parts(path)
        self.arrays: dict[str, Any] = {}
        for variant, context in self.contexts.items():
            spec = {
                "driver": "zarr3",
                "kvstore": {
                    "driver": "s3",
                    "bucket": BUCKET,
                    "path": f"{name}/{ARRAY}/",
                    "endpoint": endpoint,
                    "aws_region": REGION,
                    "aws_credentials": {"type": "environment"},
                },
                "context": {"cache_pool": {"total_bytes_limit": cache_bytes}, **context},
                "recheck_cached_data": "open",
            }
            self.arrays[variant] = ts.open(spec, read=True).result()


class S3Bedform(Bedform):
    """The engine of this repository; each read makes a new array, like the other engines."""

    read_variants = ("new",)

    def open(self, path: Path, cache_bytes: int) -> None:
        """Opens the store; a cache of 0 keeps no data."""
        import bedform as bf

        set_environment()
        endpoint, name = parts(path)
        options = {"endpoint": endpoint}
        store = bf.open(f"s3://{BUCKET}/{name}", cache=cache_bytes, storage_options=options)
        self.array: Any = store[ARRAY]
