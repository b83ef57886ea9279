"""xarray's own tests of its file backends, borrowed: other backends write, ``bedform`` reads.

The data sets are written by a class's backend, and read by ``bedform`` wherever xarray's tests name
the backend. `test_xarray_suite.py` has the tests of stores. Classes that repeat others run in `make
xarray-suite`, which also installs scipy for those that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import xarray as xr
from test_xarray_suite import EXCLUDED as EXCLUDED_OF_STORES
from xarray.tests import test_backends

pytestmark = [
    pytest.mark.filterwarnings("default"),
    # The warning concerns other files, which the tests write and read in one process.
    pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning"),
]
PAGE = Path(__file__).parents[2] / "docs" / "xarray-reference.md"

# Intended differences of Bedform, with reasons; the documentation lists them.
BLOCKS = {
    "test_preferred_chunks_is_present",
    "test_auto_chunking_is_based_on_disk_chunk_sizes",
    "test_base_chunking_uses_disk_chunk_sizes",
    "test_preferred_chunks_are_disk_chunk_sizes",
}
WORDS_OF_NETCDF4 = {
    "test_numpy_bool_",
    "test_compression_encoding_h5py",
    "test_dump_encodings_h5py",
    # It counts warnings by the name of the writing backend.
    "test_encoding_enum__no_fill_value",
}
OPTIONS_OF_NETCDF4 = {"test_roundtrip_complex"}
EXCLUDED = BLOCKS | OPTIONS_OF_NETCDF4


class ReadByBedform:
    """Makes the backend ``bedform`` read the files of another backend."""

    engine = "bedform"
    writer: ClassVar[str] = "netcdf4"

    @pytest.fixture(autouse=True)
    def written_by_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original: Any = xr.Dataset.to_netcdf

        def to_netcdf(
            dataset: xr.Dataset, *arguments: Any, engine: Any = None, **options: Any
        ) -> Any:
            writer = self.writer if engine == "bedform" else engine
            return original(dataset, *arguments, engine=writer, **options)

        monkeypatch.setattr(xr.Dataset, "to_netcdf", to_netcdf)


def without(names: set[str]) -> Any:
    """A decorator that hides tests from pytest."""

    def hide(tests: type) -> type:
        for name in names:
            if hasattr(tests, name):
                setattr(tests, name, None)
        return tests

    return hide


@without(EXCLUDED)
class TestFilesOfNetCDF4(ReadByBedform, test_backends.TestNetCDF4Data):
    """NetCDF-4 files of the netCDF library."""


@without(EXCLUDED | WORDS_OF_NETCDF4)
class TestFilesOfH5NetCDF(ReadByBedform, test_backends.TestH5NetCDFData):
    """NetCDF-4 files of h5netcdf."""

    writer = "h5netcdf"


@without(EXCLUDED)
class TestClassicFiles(ReadByBedform, test_backends.TestNetCDF3ViaNetCDF4Data):
    """NetCDF classic files of the netCDF library."""


@pytest.mark.xarray_suite
@without(EXCLUDED)
class TestClassicFilesOfScipy(ReadByBedform, test_backends.TestScipyFilePath):
    """NetCDF classic files of scipy."""

    writer = "scipy"


@pytest.mark.xarray_suite
@without(EXCLUDED)
class TestClassicModel(ReadByBedform, test_backends.TestNetCDF4ClassicViaNetCDF4Data):
    """NetCDF-4 files of the classic model."""


@pytest.mark.xarray_suite
@without(EXCLUDED | WORDS_OF_NETCDF4)
class TestClassicModelOfH5NetCDF(ReadByBedform, test_backends.TestNetCDF4ClassicViaH5NetCDFData):
    """NetCDF-4 files of the classic model, of h5netcdf."""

    writer = "h5netcdf"


@pytest.mark.xarray_suite
@without(EXCLUDED)
class TestFilesThroughDask(ReadByBedform, test_backends.TestNetCDF4ViaDaskData):
    """NetCDF-4 files, read through Dask."""


def test_the_page_names_every_test_of_xarray_that_is_left_out() -> None:
    said = PAGE.read_text()
    left_out = EXCLUDED | WORDS_OF_NETCDF4 | EXCLUDED_OF_STORES
    assert not [name for name in sorted(left_out) if f"`{name}`" not in said]
