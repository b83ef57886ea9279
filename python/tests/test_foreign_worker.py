"""Reads through HDF5 in a worker process, which survives its crashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest

import bedform as bf
from bedform import _foreign_array, _foreign_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives this test a worker process of its own."""
    worker = _foreign_worker._Worker()
    monkeypatch.setattr(_foreign_worker, "_worker", worker)
    yield
    worker.stop()


@pytest.mark.usefixtures("own_worker")
def test_elements_of_any_kind_come_back_from_the_process_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    lists = [np.array([1, 2, 3], "i4"), np.array([], "i4"), np.array([7], "i4")]
    plain = np.array([(1, 2.5, b"x"), (3, 4.5, b"y")], [("a", "i4"), ("b", ">f8"), ("c", "S3")])
    mixed = np.dtype([("t", h5py.string_dtype()), ("l", h5py.vlen_dtype("i2")), ("m", "f4", (2,))])
    with h5py.File(path, "w") as file:
        file["texts"] = np.array([["a", "b\u00e9"], ["", "c" * 3000]], object)
        file["text"] = "one text"
        file.create_dataset("lists", (3,), h5py.vlen_dtype("i4"))[:] = np.array(lists, object)
        file.create_dataset("list", (), h5py.vlen_dtype("f8"))[()] = np.array([1.0, 2.0])
        file["plain"] = plain
        file.create_dataset("mixed", (1,), mixed)[0] = ("one", np.array([4, 5], "i2"), [1, 2])
        file.create_dataset("lzf", data=np.arange(999.0), compression="lzf")
        file["references"] = np.array([file["text"].ref], h5py.ref_dtype)
    with bf.open(path) as store:
        assert store["texts"][...].tolist() == [["a", "b\u00e9"], ["", "c" * 3000]]
        assert store["texts"][::-1, 0].tolist() == ["", "a"]
        assert store["text"][()] == "one text"
        assert [one.tolist() for one in store["lists"][...]] == [one.tolist() for one in lists]
        assert store["lists"][1:][0].dtype == np.dtype("i4")
        assert store["list"][()].tolist() == [1.0, 2.0]
        np.testing.assert_array_equal(store["plain"][...], plain)
        assert store["plain"][...].dtype == plain.dtype
        found = store["mixed"][...][0]
        assert (found["t"], found["l"].tolist(), found["m"].tolist()) == (b"one", [4, 5], [1, 2])
        np.testing.assert_array_equal(store["lzf"][3:900:7], np.arange(999.0)[3:900:7])
        with pytest.raises(bf.UnsupportedError, match="'references': its elements are references"):
            store["references"][...]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        file["texts"] = np.array([f"text {number}" * (number % 9) for number in range(300)], object)
        file["numbers"] = [1, 2, 3]
    return path


@pytest.mark.usefixtures("own_worker")
def test_large_selections_are_read_in_parts(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bf.open(texts) as store:
        expected = store["texts"][...].tolist()
        calls: list[Any] = []
        real = _foreign_array.read_native
        monkeypatch.setattr(_foreign_array, "_PIECE_BYTES", 4096)
        monkeypatch.setattr(
            _foreign_array, "read_native", lambda *a, **o: calls.append(a[2]) or real(*a, **o)
        )
        assert store["texts"][...].tolist() == expected
        assert len(calls) == 5
        assert store["texts"][250:3:-3].tolist() == expected[250:3:-3]
        assert store["texts"][5:290:3].tolist() == expected[5:290:3]


#: The worker's behaviour on a request, the error, and part of its message.
ENDS: dict[str, tuple[type[Exception], str]] = {
    "os.write(1, b'\\1'); os.kill(os.getpid(), 11)": (bf.CorruptError, "HDF5 crashed on it"),
    "os.kill(os.getpid(), 11)": (bf.IoError, "could not be started"),
    "os.write(1, b'\\1'); signal.alarm(1); time.sleep(9)": (
        bf.LimitExceededError,
        "to an end",
    ),
    "os.write(1, b'\\1'); os.kill(os.getpid(), 9)": (bf.IoError, "SIGKILL"),
    "os.write(1, b'\\1' + bytes(16))": (bf.CorruptError, "gave no elements"),
    "os.write(1, b'\\1' + bytes([9]) * 16)": (bf.CorruptError, "gave no elements"),
}


@pytest.mark.usefixtures("own_worker")
@pytest.mark.parametrize("script", ENDS)
def test_a_read_that_crashes_or_does_not_end_is_an_error_and_the_next_one_works(
    texts: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    kind, said = ENDS[script]
    whole = f"import os, signal, sys, time; sys.stdin.readline(); {script}"
    real = subprocess.Popen
    with bf.open(texts) as store:
        with monkeypatch.context() as patch:
            patch.setattr(
                subprocess,
                "Popen",
                lambda command, **options: real([command[0], "-c", whole], **options),
            )
            with pytest.raises(kind, match=said) as caught:
                store["texts"][...]
        assert "\n" not in str(caught.value)
        assert store["texts"][1] == "text 1"


@pytest.mark.usefixtures("own_worker")
def test_changed_bytes_of_texts_end_no_process_but_their_own(texts: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    whole = texts.read_bytes()
    path = tmp_path / "changed.h5"
    for _ in range(40):
        changed = bytearray(whole)
        for at in rng.integers(0, len(whole), 6):
            changed[at] = rng.integers(0, 256)
        path.write_bytes(changed)
        try:
            with bf.open(path, map_time=5) as store:
                values = store["texts"][...]
                assert all(isinstance(one, str) for one in values.tolist())
        except bf.BedformError as error:
            assert "\n" not in str(error)
        path.unlink()


@pytest.mark.usefixtures("own_worker")
def test_a_worker_with_nothing_to_do_ends_and_another_takes_its_place(texts: Path) -> None:
    with bf.open(texts) as store:
        assert store["texts"][1] == "text 1"
        worker = _foreign_worker._worker
        process = worker.process
        assert process is not None
        process.send_signal(signal.SIGINT)
        assert store["texts"][2] == "text 2" * 2
        assert worker.process is process
        process.kill()
        process.wait()
        assert store["texts"][1] == "text 1"
        assert worker.process is not process


@pytest.mark.usefixtures("own_worker")
def test_a_forked_process_reads_by_a_process_of_its_own(texts: Path) -> None:
    with bf.open(texts) as store:
        assert store["texts"][1] == "text 1"
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(read_text, [(store, number) for number in range(9)]) == [
                f"text {number}" * number for number in range(9)
            ]
        assert store["texts"][2] == "text 2" * 2


def read_text(wanted: tuple[Any, int]) -> Any:
    store, number = wanted
    return store["texts"][number]


@pytest.mark.parametrize("imported", ["", "import netCDF4; "])
def test_plug_ins_are_found_whatever_a_program_has_imported(tmp_path: Path, imported: str) -> None:
    path = tmp_path / "file.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 1000)
        file.createVariable("t", "f8", ("x",), compression="bzip2")[:] = np.arange(1000.0)
    script = f"{imported}import bedform; print(bedform.open({str(path)!r})['t'][...].sum())"
    environment = {name: text for name, text in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "499500.0\n", done.stderr


def test_a_filter_that_is_nowhere_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    for code, remedy in ((32018, "pip install hdf5plugin"), (32999, "in HDF5_PLUGIN_PATH")):
        path = tmp_path / f"{code}.h5"
        with h5py.File(path, "w") as file:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((10,))
            properties.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (1,))
            space = h5py.h5s.create_simple((10,))
            dataset = h5py.h5d.create(file.id, b"t", h5py.h5t.NATIVE_INT32, space, properties)
            dataset.write_direct_chunk((0,), b"x" * 40)
        said = rf"'t': compressed with .*filter {code}.*which HDF5 does not have here: .*{remedy}"
        with bf.open(path) as store, pytest.raises(bf.UnsupportedError, match=said):
            store["t"][...]


def test_importing_bedform_does_not_import_h5py() -> None:
    script = "import sys, bedform; print(sorted({'h5py', 'xarray', 'netCDF4'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
