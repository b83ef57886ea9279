"""Settling: within a memory limit, by many processes, stopped and resumed; and export to files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from native import mpiexec
from support import ENVIRONMENT, PATIENCE, command_line

import bedform as bf
from bedform import _export, _hdf5_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

VALUES = np.arange(64 * 96, dtype="int32").reshape(64, 96)


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    """Twelve shards whose values lie in the log, in bands across all of them."""
    store = bf.create(tmp_path / "run.zarr", {"title": "a run"})
    layout = bf.Regular(chunks=(8, 8), shards=(32, 16))
    dims = ("time", "x")
    store.create_array("t", shape=(64, 96), dtype="int32", dims=dims, layout=layout)
    store.create_array("g/u", shape=(64,), dtype="float32", dims=("time",))
    with store.session(settle="later") as session:
        for start in range(0, 64, 4):
            session.write("t", VALUES[start : start + 4], start=(start, 0))
        session.write("g/u", np.ones(64, "float32"))
    return store


def path_of(store: bf.Store) -> Path:
    return Path(store.store_path)


def log_of(store: bf.Store) -> Path:
    return path_of(store).with_name("run.zarr.bedform-log")


def check_settled(store: bf.Store) -> None:
    assert not log_of(store).exists()
    plain = zarr.open_group(path_of(store), mode="r")
    assert np.array_equal(np.asarray(plain["t"][...]), VALUES)
    assert np.asarray(plain["g/u"][...]).all()
    assert store.verify() == []


def test_a_small_memory_means_more_rounds_and_the_same_store(store: bf.Store) -> None:
    told: list[tuple[int, int]] = []
    done = store.settle(memory=16 << 10, progress=lambda *at: told.append(at))
    assert done["objects"] == 13
    assert done["rounds"] > 3
    assert told[-1][0] == told[-1][1] > 0
    assert [at for at, _ in told] == sorted(at for at, _ in told)
    check_settled(store)


def test_arrays_by_name_leave_the_commits_of_the_others(store: bf.Store) -> None:
    assert store.settle(arrays=["g/u"])["objects"] == 1
    assert store.info()["log"]["commits"] == 1
    with pytest.raises(bf.NotFoundError, match="missing"):
        store.settle(arrays=["missing"])
    with pytest.raises(bf.InvalidArgumentError, match="list of names"):
        store.settle(arrays="t")
    done = store.settle()
    assert (done["commits"], done["objects"]) == (1, 12)
    check_settled(store)


def test_what_progress_raises_stops_settling_and_nothing_is_lost(store: bf.Store) -> None:
    def stop(*_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.settle(memory=16 << 10, progress=stop)
    assert np.array_equal(store["t"][...], VALUES)
    store.settle()
    check_settled(store)


MPI_PREAMBLE = """
import sys
import bedform as bf
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""


@pytest.mark.parametrize("processes", [1, 4])
def test_processes_settle_a_share_each(store: bf.Store, processes: int) -> None:
    body = """
store = bf.open(sys.argv[1], "r+")
done = store.settle(comm=comm)
all_done = comm.gather(done)
if comm.rank == 0:
    assert all(part == done for part in all_done)
    print(done["commits"], done["objects"], done["rounds"])
"""
    said = mpiexec(processes, sys.executable, "-c", MPI_PREAMBLE + body, path_of(store))
    commits, objects, rounds = map(int, said.split())
    assert (commits, objects) == (1, 13)
    assert rounds >= processes, "each had a share"
    check_settled(store)


def test_an_error_of_one_process_is_that_of_all_and_nobody_waits(store: bf.Store) -> None:
    body = """
store = bf.open(sys.argv[1], "r" if comm.rank == 1 else "r+")
try:
    store.settle(comm=comm)
except bf.ReadOnlyError as error:
    print(f"{comm.rank}: {error}", flush=True)
"""
    said = mpiexec(3, sys.executable, "-c", MPI_PREAMBLE + body, path_of(store))
    # Lines of several processes may be joined.
    assert all(f"{rank}: " in said for rank in range(3)), said
    assert said.count("rank 1") == 2
    assert np.array_equal(store["t"][...], VALUES)
    store.settle()
    check_settled(store)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_dask_settles_shares(store: bf.Store, scheduler: str) -> None:
    with dask.config.set(scheduler=scheduler, num_workers=2):
        done = store.settle(dask=4)
    assert (done["commits"], done["objects"]) == (1, 13)
    check_settled(store)
    with pytest.raises(bf.InvalidArgumentError, match="number of shares"):
        store.settle(dask=0)
    with pytest.raises(bf.InvalidArgumentError, match="give one"):
        store.settle(dask=1, comm=object())


def test_readers_and_writers_go_on_while_others_settle(store: bf.Store) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    turns = {"reads": 0, "settles": 0}

    def read() -> None:
        reader = bf.open(path_of(store), cache=0)
        while not stop.is_set():
            found = reader["t"][...]
            turns["reads"] += 1
            if not (found - found[0, 0] == VALUES).all():
                failures.append(AssertionError("half a commit"))

    def settle() -> None:
        settler = bf.open(path_of(store), "r+")
        while not stop.is_set():
            settler.settle(memory=32 << 10)
            turns["settles"] += 1

    def guarded(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in (read, read, settle)]
    for thread in threads:
        thread.start()
    session = store.session(settle="later")
    number = 0
    # Also on a busy machine, many commits are read and settled.
    limit = time.monotonic() + PATIENCE
    while not failures and (number < 50 or min(turns.values()) < 5):
        assert time.monotonic() < limit, turns
        number += 1
        session.write("t", VALUES + number)
        session.commit()
    session.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    store.settle()
    assert np.array_equal(store["t"][...], VALUES + number)
    assert not log_of(store).exists()


# The command line


def test_the_command_settles_and_info_says_what_is_left(
    store: bf.Store, bedform_command: Bedform
) -> None:
    path = str(path_of(store))
    assert json.loads(bedform_command("info", path, "--json").stdout)["log"]["commits"] == 1
    shown = bedform_command("settle", path, "--array", "g/u")
    assert "1 object of" in shown.stdout
    assert "1 commit is in the log" in shown.stdout
    done = json.loads(bedform_command("settle", path, "--memory", "1MiB", "--json").stdout)
    assert (done["commits"], done["objects"], done["left"]["commits"]) == (1, 12, 0)
    check_settled(store)
    assert "nothing to" in bedform_command("settle", path).stdout


def test_the_grace_period_leaves_segments_to_gc(store: bf.Store, bedform_command: Bedform) -> None:
    path = str(path_of(store))
    assert bedform_command("settle", path, "--grace", "1h").returncode == 0
    assert list((log_of(store) / "segments").iterdir())
    kept = bedform_command("gc", path, "--grace", "1h")
    assert "1 stay" in kept.stdout
    dry = bedform_command("gc", path, "--grace", "0", "--dry-run")
    assert "would go" in dry.stdout
    assert log_of(store).exists()
    gone = json.loads(bedform_command("gc", path, "--grace", "0", "--json").stdout)
    assert (gone["segments"], gone["is_gone"]) == (1, 1)
    check_settled(store)
    assert json.loads(bedform_command("gc", path, "--json").stdout)["segments"] == 0


def test_errors_of_settle_and_gc_are_one_line(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    path = str(path_of(store))
    (tmp_path / "file.nc").write_bytes(b"CDF\1")
    for arguments, said in [
        (["settle", str(tmp_path / "file.nc")], "only stores have a log"),
        (["gc", str(tmp_path / "file.nc")], "only stores have a log"),
        (["settle", path, "--memory", "much"], "not a size"),
        (["settle", path, "--grace", "-1"], "not a time"),
        (["settle", path, "--array", "v"], "no array 'v'"),
        (["settle", path, "--to", str(tmp_path / "out.txt")], "suffix says which format"),
        (["settle", path, "--to", str(tmp_path / "file.nc")], "exists"),
        (["settle", path, "--to", str(tmp_path / "no" / "out.nc")], "no' does not exist"),
    ]:
        done = bedform_command(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert said in done.stderr
    assert np.array_equal(store["t"][...], VALUES)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_was_stopped_goes_on(tmp_path: Path, ending: signal.Signals) -> None:
    store = bf.create(tmp_path / "run.zarr")
    layout = bf.Regular(chunks=(64, 64), shards=(128, 128))
    values = np.random.default_rng(1).random((1024, 2048))
    store.create_array("t", shape=values.shape, dtype="float64", layout=layout)
    with store.session(settle="later") as session:
        session.write("t", values)
    command = [*command_line(), "settle", str(path_of(store)), "--memory", "1MiB"]
    shards = path_of(store) / "t"
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(shards.glob("c/*/*")):
            time.sleep(0.001)
        process.send_signal(ending)
        said = process.communicate()[1]
    if process.returncode != 0:
        assert process.returncode == (130 if ending == signal.SIGINT else -signal.SIGKILL), said
        assert log_of(store).is_dir()
    if process.returncode == 130:
        assert said == (
            "bedform: interrupted; what is settled stays: run the same command again to go on\n"
        )
    assert np.array_equal(bf.open(path_of(store))["t"][...], values)
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    assert not log_of(store).exists()
    assert np.array_equal(bf.open(path_of(store))["t"][...], values)


# Files of others


def dataset() -> xr.Dataset:
    numbers = np.random.default_rng(2)
    names = np.array(["a", "b\u00e9", "", "d", "e", "f"], dtype=object)
    codes = np.array([b"ab", b"c", b"", b"d", b"ee", b"f"], dtype="S2")
    with_gaps = np.array([1.5, np.nan, 3, 4, 5])
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), numbers.random((5, 6, 7), "f4"), {"units": "K"}),
            "mask": (("lat", "lon"), numbers.random((6, 7)) > 0.5),
            "names": (("lat",), names),
            "codes": (("lat",), codes),
            "scalar": ((), 3.5),
            "gaps": (("time",), with_gaps, {"valid": [1, 2, 3], "note": "gaps"}),
        },
        coords={
            "time": np.datetime64("2026-01-01", "ns") + np.arange(5) * np.timedelta64(1, "h"),
            "lat": np.linspace(-1, 1, 6),
        },
        attrs={"title": "everything", "levels": [1.5, 2.5], "history": ["one", "two"]},
    )


@contextlib.contextmanager
def opened(path: Path, engine: str) -> Iterator[xr.Dataset]:
    with xr.open_dataset(path, engine=engine) as found:
        yield found.load()


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_a_netcdf_file_is_what_the_store_is_for_every_reader(tmp_path: Path) -> None:
    bf.write_dataset(dataset(), tmp_path / "run.zarr")
    store = bf.open(tmp_path / "run.zarr", "r+")
    with store.session(settle="later") as session:
        session.write("t", np.full((2, 3, 4), 9, "f4"), start=(1, 1, 1))
    target = tmp_path / "out.nc"
    done = _export.export(store, target)
    assert set(done.arrays) == set(dataset().variables)
    with opened(tmp_path / "run.zarr", "bedform") as expected:
        assert (expected["t"][1:3, 1:4, 1:5] == 9).all()
        for engine in ["netcdf4", "h5netcdf", "bedform"]:
            with opened(target, engine) as found:
                xr.testing.assert_identical(expected, found)
                assert found.encoding["unlimited_dims"] == {"time"}
    with netCDF4.Dataset(target) as file:
        assert file.dimensions["time"].isunlimited()
        assert file["t"].chunking() == list(store["t"].chunks)
        assert file["t"].filters()["fletcher32"]
    assert log_of(store).is_dir(), "the store stays as it is"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.nc", "run.zarr", "run.zarr.bedform-log",
    ]  # fmt: skip


def test_an_hdf5_file_has_groups_types_and_fill_values(store: bf.Store, tmp_path: Path) -> None:
    store.create_array("z", shape=(3,), dtype="complex64", fill_value=1j)
    store.create_array("flags", shape=(2, 2), dtype="bool", dims=("a", None))
    store["flags"][0, 1] = True
    _export.export(store, tmp_path / "out.h5", arrays=["g/u", "z", "flags"])
    with h5py.File(tmp_path / "out.h5") as file:
        assert sorted(file) == ["flags", "g", "z"]
        assert file["g/u"][...].tolist() == [1] * 64
        assert file["z"][...].tolist() == [1j] * 3
        assert file["z"].fillvalue == 1j
        assert file["flags"][...].tolist() == [[False, True], [False, False]]
        assert [dim.label for dim in file["flags"].dims] == ["a", "dim_1"]
        assert file.attrs["title"] == "a run"


def test_groups_of_a_netcdf_file_have_their_own_dimensions(store: bf.Store, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    target = tmp_path / "out.nc"
    _export.export(store, target, memory="4kB", progress=lambda *at: told.append(at))
    assert len(told) > 12
    assert told[-1][0] == told[-1][1] == VALUES.nbytes + 256
    with netCDF4.Dataset(target) as file:
        assert np.array_equal(file["t"][...], VALUES)
        assert file["t"].dimensions == ("time", "x")
        assert file["g/u"][...].all()
        assert file["g"].dimensions["time"].size == 64


def test_what_netcdf_cannot_hold_is_refused_by_name_and_leaves_no_file(
    store: bf.Store, tmp_path: Path
) -> None:
    store.create_array("z", shape=(3,), dtype="complex64")
    with pytest.raises(bf.UnsupportedError, match=r"z: NetCDF has no type complex64; .* \.h5"):
        _export.export(store, tmp_path / "out.nc")
    del store["z"]
    store.create_array("short", shape=(3,), dtype="int8", dims=("x",))
    with pytest.raises(bf.UnsupportedError, match=r"'x' has lengths (96 and 3|3 and 96)"):
        _export.export(store, tmp_path / "out.nc")
    store["short"].attributes = {"deep": {"er": 1}}
    with pytest.raises(bf.UnsupportedError, match="numbers, texts"):
        _export.export(store, tmp_path / "out.h5")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_the_command_writes_a_file_and_says_so(
    store: bf.Store, tmp_path: Path, bedform_command: Bedform
) -> None:
    target = tmp_path / "out.nc"
    done = bedform_command("settle", str(path_of(store)), "--to", str(target), "--memory", "1MiB")
    assert done.returncode == 0, done
    assert f"{target}: 2 arrays" in done.stdout
    assert done.stderr == ""
    with netCDF4.Dataset(target) as file:
        assert np.array_equal(file["t"][...], VALUES)
    # With the mode of other files that the user makes.
    mode = target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    assert mode == 0o666 & ~umask


def test_a_name_that_no_array_has_is_refused_also_where_nothing_is_left(store: bf.Store) -> None:
    with pytest.raises(bf.NotFoundError, match="no array 'zz'"):
        store.settle(arrays=["zz"])


@pytest.mark.parametrize("suffix", [".nc", ".h5"])
def test_a_file_that_cannot_be_written_is_named_and_nothing_stays(
    store: bf.Store, tmp_path: Path, suffix: str
) -> None:
    """Regression: HDF5 printed many lines about its layers and the hidden name."""
    target = tmp_path / "out" / f"o{suffix}"
    target.parent.mkdir()
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (4096, 4096));"
    run = f"from bedform.cli import run; raise SystemExit(run({['settle', str(path_of(store))]!r}"
    command = [sys.executable, "-c", f"{limit}{run} + {['--to', str(target)]!r}))"]
    # A compiled module truncated by the limit would be invalid.
    environment = {**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = f"bedform: cannot write '{target}': File too large; nothing is left of it"
    assert done.returncode == 2, done
    assert done.stderr.startswith(said), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert list(target.parent.iterdir()) == []


def test_verify_reads_the_log_and_tells_how_far_it_is(store: bf.Store) -> None:
    steps: list[tuple[int, int]] = []
    assert store.verify(lambda done, total: steps.append((done, total))) == []
    assert steps[-1][0] == steps[-1][1] >= 3
    (segment,) = (log_of(store) / "segments").iterdir()
    data = bytearray((segment / "data").read_bytes())
    data[data.rindex(np.ones(64, "float32").tobytes()) + 2] ^= 16
    (segment / "data").write_bytes(data)
    (problem,) = bf.open(path_of(store)).verify()
    assert str(segment) in problem
    # A block of a few writes contains data of several arrays.
    assert "(it has data of g/u, t)" in problem
    assert ["data of t)" in line for line in store["t"].verify()] == [True]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.verify(stop)


@pytest.mark.parametrize("at", range(4))
def test_an_export_that_is_interrupted_where_hdf5_writes_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """HDF5 prints and drops exceptions of its callbacks."""
    store = bf.create(tmp_path / "s.zarr")
    values = np.arange(4000.0)
    store.create_array("t", shape=values.shape, dtype="float64", dims=("x",))[...] = values
    target = tmp_path / "out.nc"
    writes: list[int] = []
    write = _hdf5_output.HDF5Destination.write

    def interrupted(destination: Any, data: Any) -> int:
        writes.append(len(data))
        if len(writes) == at + 1:
            os.kill(os.getpid(), signal.SIGINT)
        return write(destination, data)

    monkeypatch.setattr(_hdf5_output.HDF5Destination, "write", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        _export.export(store, target)
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(writes) > at
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.zarr"]
    monkeypatch.undo()
    _export.export(store, target)
    with h5py.File(target) as file:
        assert (file["t"][...] == values).all()


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_characters_of_a_netcdf_file_come_back_with_the_dimensions_they_had(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("station", 3)
        file.createDimension("string4", 4)
        names = file.createVariable("name", "S1", ("station", "string4"))
        names[:] = netCDF4.stringtochar(np.array([b"ab", b"cdef", b""], "S4"))
        file.createVariable("mark", "S1", ("station",))[:] = np.array([b"x", b"y", b"z"])
    bf.convert(tmp_path / "a.nc", tmp_path / "a.zarr")
    _export.export(bf.open(tmp_path / "a.zarr"), tmp_path / "b.nc")
    with netCDF4.Dataset(tmp_path / "a.nc") as before, netCDF4.Dataset(tmp_path / "b.nc") as after:
        assert set(after.dimensions) == set(before.dimensions)
        for name in ("name", "mark"):
            assert after[name].dimensions == before[name].dimensions
            assert after[name].dtype == before[name].dtype
            np.testing.assert_array_equal(after[name][:], before[name][:])
    with (
        opened(tmp_path / "a.nc", "netcdf4") as first,
        opened(tmp_path / "b.nc", "netcdf4") as last,
    ):
        xr.testing.assert_identical(first, last)
