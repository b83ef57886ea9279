"""A store with unreadable arrays gives access to the others, and reports their faults."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import bedform as bf
from bedform.xarray_backend import LeftOutWarning

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def document_of(path: Path, zarr_format: int) -> Path:
    return path / ("zarr.json" if zarr_format == 3 else ".zarray")


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with a good array, one of an unknown codec, and one whose document is damaged."""
    path, zarr_format = tmp_path / "s.zarr", request.param
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for name in ("good", "strange", "torn", "inner/strange"):
        group.create_array(name, data=np.arange(1.0, 7.0), chunks=(3,))
    for name in ("strange", "inner/strange"):
        document = document_of(path / name, zarr_format)
        facts: dict[str, Any] = json.loads(document.read_text())
        if zarr_format == 3:
            facts["codecs"].append({"name": "fancy"})
        else:
            facts["compressor"] = {"id": "fancy"}
        document.write_text(json.dumps(facts))
    document_of(path / "torn", zarr_format).write_text('{"zarr_format":')
    return path


def test_a_store_with_bad_arrays_lists_the_others_and_says_what_is_wrong_with_these(
    mixed: Path,
) -> None:
    store = bf.open(mixed)
    assert list(store.arrays()) == ["good"]
    refused = store.refused()
    assert sorted(refused) == ["inner/strange", "strange", "torn"]
    assert '"fancy" is not supported' in refused["strange"]
    assert "torn" in refused["torn"]
    assert "not valid JSON" in refused["torn"]
    assert store["inner"].refused().keys() == {"strange"}
    assert all(name in store for name in ("good", "strange", "torn", "inner"))
    assert "nothing" not in store
    assert store.info()["refused"] == refused
    assert store.info()["arrays"].keys() == {"good"}
    assert sorted(store) == ["good", "inner", "strange", "torn"]
    np.testing.assert_array_equal(store["good"][...], np.arange(1.0, 7.0))
    for name, kind in (("strange", bf.UnsupportedError), ("torn", bf.CorruptError)):
        with pytest.raises(kind, match=name):
            store[name]
    problems = store.verify()
    assert len(problems) == 3
    assert any("fancy" in problem for problem in problems)


def test_the_command_line_tells_of_bad_arrays_beside_the_others(
    mixed: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = bedform_command("info", str(mixed), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["arrays"].keys() == {"good"}
    assert "fancy" in facts["refused"]["strange"]
    shown = bedform_command("info", str(mixed))
    assert "refused: strange" in shown.stdout
    assert "good" in shown.stdout
    asked = bedform_command("info", str(mixed), "strange")
    assert asked.returncode == 2
    assert "fancy" in asked.stderr


def test_xarray_opens_what_can_be_read_with_one_warning_that_names_the_rest(mixed: Path) -> None:
    with pytest.warns(LeftOutWarning, match="left out of the data set: 'strange'") as caught:
        dataset = xr.open_dataset(mixed, engine="bedform")
    assert len(caught) == 1
    assert "drop_variables=['strange', 'torn']" in str(caught[0].message)
    assert list(dataset.variables) == ["good"]
    # Dropped variables are not opened.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = xr.open_dataset(mixed, engine="bedform", drop_variables=["strange", "torn"])
        tree = xr.open_datatree(mixed, engine="bedform", drop_variables=["strange", "torn"])
    np.testing.assert_array_equal(without["good"], np.arange(1.0, 7.0))
    assert list(tree["good"].values) == list(without["good"].values)


def test_a_conversion_leaves_out_what_cannot_be_read_and_says_so(
    mixed: Path, tmp_path: Path
) -> None:
    done = bf.convert(mixed, tmp_path / "c.zarr")
    assert [array.name for array in done.arrays] == ["good"]
    assert len(done.warnings) == 3
    assert any("'strange' is left out" in text and "fancy" in text for text in done.warnings)
    assert bf.open(tmp_path / "c.zarr").refused() == {}
    # Excluded arrays are neither opened nor mentioned.
    excluded = ("strange", "torn", "inner/strange")
    assert bf.convert(mixed, tmp_path / "d.zarr", exclude=excluded).warnings == ()


def test_nothing_to_convert_is_an_error_with_the_reason(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(bf.UnsupportedError, match=r"nothing .*strange.*fancy"):
        bf.convert(mixed, tmp_path / "c.zarr", exclude=("good", "torn"))
    assert not (tmp_path / "c.zarr").exists()


def test_an_export_of_everything_does_not_lose_what_cannot_be_read(
    mixed: Path, tmp_path: Path
) -> None:
    store = bf.open(mixed)
    with pytest.raises(bf.UnsupportedError, match="name the arrays to export"):
        store.export(tmp_path / "a.nc")
    store.export(tmp_path / "a.nc", arrays=["good"])
    np.testing.assert_array_equal(bf.open(tmp_path / "a.nc")["good"][...], np.arange(1.0, 7.0))


def test_consolidated_metadata_that_name_what_is_gone_spoil_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    for name in ("here", "gone"):
        group.create_array(name, data=np.arange(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(path)
    (path / "gone" / "zarr.json").unlink()
    store = bf.open(path)
    assert list(store.arrays()) == ["here"]
    assert "no array" in store.refused()["gone"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_path_of_a_single_array_gives_the_array(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "speed.zarr"
    data = np.arange(1.0, 13.0).reshape(3, 4)
    whole = zarr.create_array(path, data=data, chunks=(2, 2), zarr_format=zarr_format)
    whole.attrs["units"] = "m/s"
    with bf.open(path) as array:
        assert isinstance(array, bf.Array)
        np.testing.assert_array_equal(array[1:], data[1:])
        assert array.attributes["units"] == "m/s"
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[...], data)  # noqa: S301 - our own
    dataset = xr.open_dataset(path, engine="bedform")
    assert list(dataset.variables) == ["speed"]
    np.testing.assert_array_equal(dataset["speed"], data)
    assert dataset["speed"].attrs["units"] == "m/s"
    with pytest.raises(bf.UnsupportedError, match="single array"):
        bf.convert(path, tmp_path / "c.zarr")


def test_an_array_of_a_store_is_opened_by_its_own_path(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("group/t", (4,), "int32", ("x",))[...] = [1, 2, 3, 4]
    assert bf.open(tmp_path / "s.zarr" / "group" / "t")[...].tolist() == [1, 2, 3, 4]
    dataset = xr.open_dataset(tmp_path / "s.zarr" / "group" / "t", engine="bedform")
    assert dataset["t"].dims == ("x",)


def test_an_array_alone_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=np.arange(3), zarr_format=2)
    facts = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**facts, "dtype": "<x4"}))
    with pytest.raises(bf.UnsupportedError, match="x4"):
        bf.open(path)


def test_what_cannot_be_checked_is_not_called_damaged(
    mixed: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = bedform_command("verify", str(mixed))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    unchecked = [line for line in lines if line.startswith("cannot be checked: ")]
    assert len(unchecked) == 2
    assert all("fancy" in line for line in unchecked)
    assert lines[-1].endswith(
        "1 objects or parts of the log are damaged, 2 of what is stored cannot be checked"
    )
    shutil.rmtree(mixed / "torn")
    done = bedform_command("verify", str(mixed), "--json")
    assert done.returncode == 2
    facts = json.loads(done.stdout)
    assert (facts["whole"], facts["damaged"], facts["unchecked"]) == (False, 0, 2)


@pytest.fixture
def pointing(tmp_path: Path) -> Path:
    """A file with references, alone and in records, beside numbers and records."""
    path = tmp_path / "pointing.h5"
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(4.0)
        file["records"] = np.ones(4, [("a", "i4"), ("b", "f8")])
        file["pointers"] = np.array([file["t"].ref] * 4, dtype=h5py.ref_dtype)
        file.create_dataset("pairs", (4,), np.dtype([("a", "i4"), ("to", h5py.ref_dtype)]))
    return path


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_references_are_left_out_of_a_data_set_with_one_warning(pointing: Path) -> None:
    with pytest.warns(LeftOutWarning, match="'pairs'.*'pointers'.*are references") as caught:
        dataset = xr.open_dataset(pointing, engine="bedform")
    assert sum(issubclass(one.category, LeftOutWarning) for one in caught) == 1
    dataset.load()
    assert set(dataset.variables) == {"t", "records"}
    assert dataset["records"].values[0] == (1, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeftOutWarning)
        dropped = ["pointers", "pairs"]
        assert "t" in xr.open_dataset(pointing, engine="bedform", drop_variables=dropped)


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_references_cannot_be_checked_and_their_file_is_not_damaged(
    pointing: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with bf.open(pointing) as file:
        assert [line.startswith("cannot be checked: ") for line in file.verify()] == [True, True]
    done = bedform_command("verify", str(pointing))
    assert done.returncode == 2
    last = done.stdout.splitlines()[-1]
    assert last.endswith("2 of what is stored cannot be checked, everything else is whole")


def test_the_tree_of_a_file_names_types_that_numpy_calls_objects(pointing: Path) -> None:
    with bf.open(pointing) as file:
        tree = str(file.tree())
    assert "records (4,) [('a', '<i4'), ('b', '<f8')]" in tree
    assert "str" not in tree


def _left_out_warnings(open_it: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_it()
    return [str(one.message) for one in caught if issubclass(one.category, LeftOutWarning)]


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_process_warns_once_of_each_file(
    pointing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warnings of another file, and of a file that lacks other members, are given."""

    def opened() -> object:
        return xr.open_dataset(pointing.name, engine="bedform")

    monkeypatch.chdir(pointing.parent)
    assert len(_left_out_warnings(opened)) == 1
    assert _left_out_warnings(opened) == []
    other = tmp_path / "other"
    other.mkdir()
    (other / pointing.name).write_bytes(pointing.read_bytes())
    monkeypatch.chdir(other)
    assert len(_left_out_warnings(opened)) == 1
    with h5py.File(pointing.name, "a") as file:
        file["more"] = file["pointers"][:]
    (said,) = _left_out_warnings(opened)
    assert "'more'" in said


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_filter_that_raises_the_warning_raises_it_at_each_open(pointing: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeftOutWarning)
        for _ in range(2):
            with pytest.raises(LeftOutWarning):
                xr.open_dataset(pointing, engine="bedform")
    assert len(_left_out_warnings(lambda: xr.open_dataset(pointing, engine="bedform"))) == 1
