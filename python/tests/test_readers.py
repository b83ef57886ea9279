"""Layouts for other reading programs: named readers, and the advice about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import bedform as bf

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

SHAPE = (1460, 181, 360)
DIMS = ("time", "lat", "lon")
#: Largest predicted time of zarr-python, relative to a store with its own defaults.
RATIO_MAX = 1.6


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the prices of an assumed disk, without this machine's profiles."""
    monkeypatch.setenv("BEDFORM_PROFILES", str(tmp_path / "profiles"))


def worst_ratio(advice: bf.Advice) -> float:
    ratios = {
        one["reader"]: one["worst_ratio"] for one in advice.to_dict()["predicted"][0]["readers"]
    }
    return float(ratios["zarr-python"])


def chunk_bytes(layout: Any, itemsize: int = 4) -> int:
    return int(np.prod(layout.chunks)) * itemsize


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((20_000_000,), "f8"),
        ((8000, 6000), "u2"),
        ((100_000, 100), "f4"),
        (SHAPE, "f4"),
        ((400, 400, 400), "f8"),
        ((48, 37, 181, 360), "f4"),
        ((120, 60, 90), "i2"),
    ],
)
def test_default_layouts_are_within_what_zarr_python_bears(
    shape: tuple[int, ...], dtype: str
) -> None:
    advice = bf.advise(shape, dtype)
    assert worst_ratio(advice) <= RATIO_MAX, advice
    assert "zarr-python" in str(advice)


def test_reads_that_are_named_are_bounded_and_the_whole_array() -> None:
    advice = bf.advise(SHAPE, "f4", dims=DIMS, reads={("time",): 1.0})
    own = bf.advise(SHAPE, "f4", dims=DIMS, reads={("time",): 1.0}, readers="bedform")
    assert worst_ratio(advice) <= RATIO_MAX
    assert advice.chunks[0] == SHAPE[0]
    assert chunk_bytes(advice) > chunk_bytes(own)


def test_bedform_alone_gets_small_chunks_and_a_table_without_others() -> None:
    advice = bf.advise(SHAPE, "f4", readers="bedform")
    assert chunk_bytes(advice) < 100_000
    assert "zarr-python" not in str(advice)
    readers = [one["reader"] for one in advice.to_dict()["predicted"][0]["readers"]]
    assert readers == ["bedform"]


def test_new_arrays_suit_any_reader_unless_others_are_named(tmp_path: Path) -> None:
    shape = (365, 90, 180)
    values = np.zeros(shape, "f4")
    store = bf.create(tmp_path / "s.zarr")
    by_default = store.create_array("a", shape, "f4", DIMS)
    own = store.create_array("b", shape, "f4", DIMS, readers="bedform")
    assert chunk_bytes(by_default) > 2 * chunk_bytes(own)
    assert by_default.chunks == bf.advise(shape, "f4", dims=DIMS, readers="any").chunks
    assert own.chunks == bf.advise(shape, "f4", dims=DIMS, readers=["bedform"]).chunks

    dataset = xr.Dataset({"t": (DIMS, values)})
    for readers, expected in [("any", by_default.chunks), ("bedform", own.chunks)]:
        path = tmp_path / f"{readers}.zarr"
        bf.write_dataset(dataset, path, readers=readers)
        assert bf.open(path)["t"].chunks == expected
        assert zarr.open_array(str(path), path="t", mode="r").chunks == expected
        bf.convert(path, tmp_path / f"{readers}-copy.zarr", readers=readers)
        copied = bf.open(tmp_path / f"{readers}-copy.zarr")["t"]
        assert (chunk_bytes(copied) < 100_000) == (readers == "bedform")


def test_readers_that_are_not_known_are_named_with_those_that_are(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    dataset = xr.Dataset({"t": ("x", np.zeros(2_000_000))})
    refused: list[Callable[[Any], Any]] = [
        lambda readers: bf.advise((90, 90), "f4", readers=readers),
        lambda readers: store.create_array("t", (90, 90), "f4", readers=readers),
        lambda readers: bf.write_dataset(dataset, tmp_path / "d.zarr", readers=readers),
        lambda readers: bf.convert(tmp_path / "s.zarr", tmp_path / "c.zarr", readers=readers),
    ]
    for call in refused:
        with pytest.raises(bf.InvalidArgumentError) as caught:
            call("xarray")
        text = str(caught.value)
        assert 'no reader "xarray"' in text
        assert "bedform, zarr-python" in text
        assert "\n" not in text
        for wrong in (3, [1], {"bedform": 1}):
            with pytest.raises(bf.InvalidArgumentError, match="readers must be 'any'"):
                call(wrong)
        with pytest.raises(bf.InvalidArgumentError, match="empty list"):
            call([])


def test_mixed_reads_that_no_layout_serves_are_said_kind_by_kind() -> None:
    reads = {("lat", "lon"): 0.5, ("time",): 0.5}
    advice = bf.advise((8760, 721, 1440), "f4", dims=DIMS, reads=reads, readers="bedform")
    notes = [line for line in str(advice).splitlines() if "twice the best" in line]
    assert len(notes) == 2
    assert "lat,lon takes" in notes[1]
    assert "time takes" in notes[1]
    kinds = advice.to_dict()["kinds"]
    assert [kind["name"] for kind in kinds["alone"]] == ["lat,lon", "time"]
    assert kinds["nearest_ratio"] > 2
    assert all(kind["alone_seconds"] < kind["seconds"] for kind in kinds["alone"])
    one = bf.advise((8760, 721, 1440), "f4", dims=DIMS, reads={("time",): 1.0})
    assert one.to_dict()["kinds"] is None


def test_cached_reads_are_priced_without_the_device() -> None:
    cold, cached = (bf.advise(SHAPE, "f4", cached=cached).to_dict() for cached in (False, True))
    assert cached["predicted"][0]["cost_seconds"] < cold["predicted"][0]["cost_seconds"]


def test_the_command_line_takes_readers(tmp_path: Path, bedform_command: Bedform) -> None:
    asked = ("advise", "--shape", "1460,181,360", "--json")
    own = json.loads(bedform_command(*asked, "--readers", "bedform").stdout)
    both = json.loads(
        bedform_command(*asked, "--readers", "bedform", "--readers", "zarr-python").stdout
    )
    by_default = json.loads(bedform_command(*asked).stdout)
    assert both["chunks"] == by_default["chunks"] != own["chunks"]
    wrong = bedform_command(*asked, "--readers", "tensorstore")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert 'no reader "tensorstore"' in wrong.stderr
    with bf.create(tmp_path / "s.zarr") as store:
        store.create_array("t", data=np.zeros((365, 90, 180), "f4"), dims=DIMS)
    source = str(tmp_path / "s.zarr")
    plan = ("convert", source, str(tmp_path / "c.zarr"), "--dry-run", "--json")
    chunks = {
        name: json.loads(bedform_command(*plan, "--readers", name).stdout)["arrays"][0]["chunks"]
        for name in ("any", "bedform")
    }
    assert np.prod(chunks["bedform"]) < np.prod(chunks["any"])


@pytest.mark.parametrize("weight", [0, -1, float("nan"), 1e300, 5e-324, 10**400, "a", None])
def test_a_weight_that_is_none_is_said_in_one_short_line(weight: Any) -> None:
    with pytest.raises(
        bf.InvalidArgumentError, match=r"the weight of the reads .*positive"
    ) as info:
        bf.advise(SHAPE, "f4", dims=DIMS, reads={("time",): weight})
    assert len(str(info.value)) < 200


def test_the_lengths_of_an_array_are_whole_numbers() -> None:
    with pytest.raises(bf.InvalidArgumentError, match="shape must be a whole number"):
        bf.advise((3.5, 10), "f4")  # type: ignore[arg-type]
