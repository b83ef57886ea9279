"""Variables that only HDF5 can decode, read by the engine through a callback, against h5py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bedform
from bedform import _foreign_array


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a filter that the engine lacks, in two byte orders, and with fixed text."""
    where = tmp_path / "file.h5"
    rng = np.random.default_rng(5)
    with h5py.File(where, "w") as file:
        numbers = rng.normal(size=(40, 30, 20))
        file.create_dataset("numbers", data=numbers, chunks=(7, 8, 9), compression="lzf")
        file.create_dataset("big", data=numbers[0].astype(">f4"), chunks=(7, 8), compression="lzf")
        file.create_dataset("flags", data=numbers[0] > 0, chunks=(7, 8), compression="lzf")
        texts = np.array([[b"a", b"bcd"], [b"", b"ef"]], "S3")
        file.create_dataset("texts", data=texts, chunks=(1, 2), compression="lzf")
    # Nothing is cached of files that changed just now.
    time.sleep(0.05)
    return where


SELECTIONS = (
    np.s_[...],
    np.s_[3],
    np.s_[5:33:3, ::-1],
    np.s_[-1, 2:7],
    np.s_[4:4],
)


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_reads_are_what_h5py_gives(path: Path) -> None:
    with h5py.File(path) as file, bedform.open(path) as store:
        for name in ("numbers", "big", "flags"):
            expected, array = file[name][...], store[name]
            assert array.dtype == expected.dtype
            for selection in SELECTIONS:
                found = array[selection]
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected[selection])
            np.testing.assert_array_equal(array.oindex[[2, 0], [1, 1]], expected[[2, 0]][:, [1, 1]])
        assert store["texts"][...].tolist() == file["texts"][...].tolist()


def test_a_read_warns_once_for_each_file_and_decodes_each_chunk_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    read_region = _foreign_array.read_region

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return read_region(*arguments, **options)

    monkeypatch.setattr(_foreign_array, "read_region", counted)
    with bedform.open(path) as store:
        numbers = store["numbers"]
        plan = numbers.explain(np.s_[3]).to_dict()
        assert plan["read_by_callback"] is True
        assert "filter 32000" in plan["native"]
        assert calls == []
        with pytest.warns(bedform.NativeReadWarning, match="numbers") as warned:
            for _ in range(3):
                numbers[3]
            assert len(calls) == plan["requests"]
            store["big"][3], store["flags"][0]
        assert len(warned) == 1
        assert "and so are up to 3 more" in str(warned[0].message)
        assert Path(warned[0].filename) == Path(__file__)
        with pytest.raises(bedform.UnsupportedError, match="its requests are not known"):
            numbers.workload(np.s_[3])


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_what_was_prefetched_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bedform.open(path) as store:
        done = store["numbers"].prefetch(np.s_[:9])
        assert done["chunks"] > 0
        assert done["left_out"] == 0
        monkeypatch.setattr(_foreign_array, "read_region", None)
        with h5py.File(path) as file:
            np.testing.assert_array_equal(store["numbers"][:9, 3], file["numbers"][:9, 3])


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_what_a_callback_raises_comes_back_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = ZeroDivisionError("of the library")

    def failing(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr(_foreign_array, "read_region", failing)
    with bedform.open(path) as store, pytest.raises(ZeroDivisionError) as caught:
        store["numbers"][0]
    assert caught.value is raised


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_file_that_is_replaced_is_read_anew(path: Path, tmp_path: Path) -> None:
    with bedform.open(path) as store:
        before = store["numbers"][...]
        other = tmp_path / "other.h5"
        with h5py.File(other, "w") as file:
            file.create_dataset("numbers", data=before + 1, chunks=(7, 8, 9), compression="lzf")
        other.replace(path)
        np.testing.assert_array_equal(store["numbers"][...], before + 1)


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_what_lies_in_another_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    path, data = tmp_path / "file.h5", tmp_path / "data.raw"
    elements = np.arange(12, dtype="i4")
    elements.tofile(data)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (12,), "i4", external=[(str(data), 0, 48)])
    with bedform.open(path, allow_external=True) as store:
        assert store["x"][...].tolist() == elements.tolist()
        (elements + 5).tofile(data)
        assert store["x"][3:5].tolist() == [8, 9]
        assert store["x"].prefetch()["left_out"] == 1


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_variable_that_is_larger_than_its_dataset_ends_in_fill_values(tmp_path: Path) -> None:
    path = tmp_path / "grown.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=np.arange(5), maxshape=(None,), chunks=(2,), compression="lzf", fillvalue=-1
        )
    found = _foreign_array.read_region(path, "x", [3], [4], shape=(9,))
    assert found.tolist() == [3, 4, -1, -1]
    found = _foreign_array.read_region(path, "x", [6], [2], shape=(9,))
    assert found.tolist() == [-1, -1]


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_conversion_copies_through_the_callback(path: Path, tmp_path: Path) -> None:
    bedform.convert(path, tmp_path / "copy.zarr", verify=True)
    with h5py.File(path) as file, bedform.open(tmp_path / "copy.zarr") as copy:
        for name in ("numbers", "big", "flags"):
            np.testing.assert_array_equal(copy[name][...], file[name][...])
