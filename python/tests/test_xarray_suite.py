"""xarray's own tests of its Zarr backend, borrowed: what they write, ``write_dataset`` writes.

``Dataset.to_zarr`` is replaced for the time of a test; reading goes through the engine ``bedform``,
and through xarray's own where a test names ``open_zarr``.
"""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
import xarray as xr
from xarray.tests import test_backends

import bedform as bf

pytestmark = [
    # zarr-python says so of any file that is not its own, and of every consolidated group.
    pytest.mark.filterwarnings("ignore:Object at .bedform-lock"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:.*the append overwrites this coordinate"),
]

if TYPE_CHECKING:
    from collections.abc import Iterator

# What zarr-python calls its own, and to_zarr passes on.
ITS_OWN = ("consolidated", "zarr_format", "storage_options", "write_empty_chunks", "align_chunks")


def to_zarr(dataset: xr.Dataset, store: str, mode: Any = None, **options: Any) -> Any:
    for name in ITS_OWN:
        options.pop(name, None)
    # Some tests give stores the names of files.
    store = store.removesuffix(".nc")
    return bf.write_dataset(dataset, store, mode=mode, durability="process", **options)


# Tests of what Bedform does otherwise, on purpose, or does not have.
EXCLUDED = {
    # Layouts come from the reads, not from the Dask chunks that happen to be there.
    "test_warning_on_bad_chunks",
    "test_chunk_encoding_with_dask",
    "test_chunk_auto_with_small_dask_chunks",
    "test_chunked_datetime64_or_timedelta64",
    "test_chunked_cftime_datetime",
    # Dask chunks that share a shard are cut at its borders instead of refused.
    "test_shard_encoding_with_dask",
    "test_zarr_region_chunk_partial",
    # Bedform adds a checksum to the compressors that it is given.
    "test_compressor_encoding",
    # Text of fixed length is stored as text of any length, so longer text can be appended.
    "test_append_string_length_mismatch_raises",
    # About zarr-python, or attributes that only Zarr v2 has.
    "test_read_non_consolidated_warning",
    "test_hidden_zarr_keys",
    "test_dataset_to_zarr_align_chunks_true",
    # Needs a plug-in of pytest; test_xarray.py has one like it.
    "test_load_async",
    # About the writable data stores that xarray's own engines are made of.
    "test_write_store",
    "test_append_write",
}


def without_excluded(tests: type) -> type:
    """Hide the excluded tests from pytest."""
    for name in EXCLUDED:
        if hasattr(tests, name):
            setattr(tests, name, None)
    return tests


@without_excluded
class TestBedform(test_backends.TestZarrDirectoryStore):
    """What an engine for Zarr stores has to do."""

    @pytest.fixture(autouse=True)
    def written_by_bedform(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(xr.Dataset, "to_zarr", to_zarr)

    @contextlib.contextmanager
    def create_zarr_target(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as place:
            yield f"{place}/store.zarr"

    @contextlib.contextmanager
    def open(self, path: str, **options: Any) -> Iterator[xr.Dataset]:
        for name in ("backend_kwargs", *ITS_OWN):
            options.pop(name, None)
        with xr.open_dataset(path.removesuffix(".nc"), engine="bedform", **options) as dataset:
            yield dataset


@without_excluded
class TestRegion(test_backends.TestZarrRegionAuto):
    """What ``region`` has to do."""

    @pytest.fixture(autouse=True)
    def written_by_bedform(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(xr.Dataset, "to_zarr", to_zarr)

    create_zarr_target = TestBedform.create_zarr_target
