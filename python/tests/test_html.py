"""Stores and arrays as notebooks show them."""

from __future__ import annotations

import html.parser
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr

import bedform as bf
from bedform import _html

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert('x')</script>&\"'"


class Checked(html.parser.HTMLParser):
    """HTML whose tags open and close as they should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    store = bf.create(tmp_path / "s.zarr", attributes={"title": HOSTILE})
    store.create_array(
        "g/t", (24, 90, 180), "float32", ("time", "lat", "lon"), chunks=(1, 30, 60),
        shards=(8, 60, 120), attributes={HOSTILE: [1, HOSTILE]},
    )  # fmt: skip
    store.create_array("texts", data=["a", "b"])
    return store


def test_a_store_shows_its_arrays_with_sizes_and_layouts(store: bf.Store) -> None:
    page = Checked(store._repr_html_())
    for part in (
        "Store", store.store_path, "time: 24, lat: 90, lon: 180", "float32", "1.5 MiB",
        "1 x 30 x 60 (7.0 KiB)", "8 x 60 x 120 (225.0 KiB)", "zstd", "str", "1 attribute",
    ):  # fmt: skip
        assert part in page.text, part
    assert "Group" in Checked(store["g"]._repr_html_()).text


def test_an_array_shows_a_picture_of_its_chunks_and_shards(store: bf.Store) -> None:
    page = Checked(store["g/t"]._repr_html_())
    assert page.tags.count("svg") == 1
    # Two borders of chunks along each axis, one of shards along each.
    assert page.tags.count("line") == (2 + 2) + (1 + 1)
    assert "lat 90 x lon 180, 24 times" in page.text


def test_names_and_values_of_files_are_escaped(store: bf.Store) -> None:
    for owner in (store, store["g/t"]):
        text = owner._repr_html_()
        assert "<script" not in text
        assert HOSTILE in Checked(text).text
    named = xr.Dataset({"v": ("<b>dim", [1.0])})
    bf.write_dataset(named, f"{store.store_path}2")
    assert "<b>dim" not in bf.open(f"{store.store_path}2")["v"]._repr_html_()


def test_what_is_shown_is_bounded(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr", attributes={f"a{n}": "x" * 10_000 for n in range(80)})
    store.create_arrays({f"v{n}": {"shape": (2,), "dtype": "i1"} for n in range(120)})
    store.create_array("fine", (100_000, 100_000), "i1", chunks=(1, 1), shards=(1_000, 1_000))
    text = store._repr_html_()
    assert "and 21 more" in text
    assert "and 30 more" in text
    assert len(text) < 120_000
    assert Checked(store["fine"]._repr_html_()).tags.count("line") < 200


def test_files_of_other_formats_and_arrays_of_any_rank_are_shown(
    store: bf.Store, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("t", data=np.zeros((4, 6)), chunks=(2, 3)).attrs["a"] = np.arange(3)
        file["scalar"] = 1
    opened = bf.open(tmp_path / "x.h5")
    assert "2 x 3 (48 B)" in Checked(opened._repr_html_()).text
    assert "svg" in Checked(opened["t"]._repr_html_()).tags
    for array in (opened["scalar"], store["texts"], store.create_array("none", (0, 3), "i2")):
        Checked(array._repr_html_())
    opened.close()
    assert "is closed" in Checked(opened._repr_html_()).text


def test_notebooks_complete_names(store: bf.Store) -> None:
    assert store._ipython_key_completions_() == ["g", "texts"]
    assert store["g/t"].attributes._ipython_key_completions_() == [HOSTILE]


def test_sizes_are_told_in_the_unit_that_they_are_read_in() -> None:
    assert [_html.byte_text(n) for n in (0, 1023, 1024, 3 << 29)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 GiB",
    ]  # fmt: skip


def test_a_data_set_writes_itself(tmp_path: Path) -> None:
    dataset = xr.Dataset({"t": (("y", "x"), np.eye(3))}, attrs={"title": "a"})
    dataset.bedform.write(tmp_path / "s.zarr", reads={("y",): 1.0})
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "s.zarr").load(), dataset)
    with pytest.raises(bf.ExistsError):
        dataset.bedform.write(tmp_path / "s.zarr")


@pytest.mark.parametrize(
    "program",
    [
        "import bedform, xarray",
        "import xarray, bedform",
        "import xarray, bedform.xarray_backend",
        "import bedform, importlib, xarray; importlib.reload(bedform)",
        "import bedform.xarray_backend; import xarray",
    ],
)
def test_the_accessor_is_there_in_whatever_order_the_packages_are_imported(program: str) -> None:
    check = "assert xarray.Dataset.bedform.__name__ == 'DatasetAccessor', xarray.Dataset.bedform"
    strict = [sys.executable, "-W", "error::UserWarning", "-c", f"{program}; {check}"]
    subprocess.run(strict, check=True)


def test_importing_bedform_imports_no_xarray() -> None:
    program = "import bedform, sys; sys.exit('xarray' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
