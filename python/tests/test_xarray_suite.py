"""xarray's own tests of its Zarr backend, borrowed: ``write_dataset`` writes their data sets.

``Dataset.to_zarr`` is replaced during a test. Reads use the backend ``bedform``, and xarray's own
where a test calls ``open_zarr``.
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
    # zarr-python warns of any foreign file, and of every consolidated group.
    pytest.mark.filterwarnings("ignore:Object at .bedform-lock"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:.*the append overwrites this coordinate"),
]

if TYPE_CHECKING:
    from collections.abc import Iterator

# Arguments of zarr-python, which to_zarr passes on.
ITS_OWN = ("consolidated", "zarr_format", "storage_options", "write_empty_chunks", "align_chunks")


def to_zarr(dataset: xr.Dataset, store: str, mode: Any = None, **options: Any) -> Any:
    for name in ITS_OWN:
        options.pop(name, None)
    # Some tests give stores the names of files.
    store = store.removesuffix(".nc")
    return bf.write_dataset(dataset, store, mode=mode, durability="process", **options)


# Tests of intended differences, and of features that Bedform lacks.
EXCLUDED = {
    # Layouts come from the reads, not from the present Dask chunks.
    "test_warning_on_bad_chunks",
    "test_chunk_encoding_with_dask",
    "test_chunk_auto_with_small_dask_chunks",
    "test_chunked_datetime64_or_timedelta64",
    "test_chunked_cftime_datetime",
    # Dask chunks that share a shard are cut at its borders instead of refused.
    "test_shard_encoding_with_dask",
    "test_zarr_region_chunk_partial",
    # Bedform adds a checksum to the given compressors.
    "test_compressor_encoding",
    # Text of fixed length is stored as text of any length, so longer text can be appended.
    "test_append_string_length_mismatch_raises",
    # They test zarr-python, or attributes that only Zarr v2 has.
    "test_read_non_consolidated_warning",
    "test_hidden_zarr_keys",
    "test_dataset_to_zarr_align_chunks_true",
    # Needs a plug-in of pytest; test_xarray.py has one like it.
    "test_load_async",
    # They test the writable data stores behind xarray's own backends.
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
    """The requirements of a backend for Zarr stores."""

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
    """The requirements of ``region``."""

    @pytest.fixture(autouse=True)
    def written_by_bedform(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(xr.Dataset, "to_zarr", to_zarr)

    create_zarr_target = TestBedform.create_zarr_target
