"""Conversions on a Dask cluster: by worker processes that die, are cut off, or come too late."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from support import ENVIRONMENT, PATIENCE, cases, command_line, wait_until

distributed = pytest.importorskip("distributed")

from dask_clusters import Killer, cluster, pids  # noqa: E402
from test_convert import StopError, check_same, growing, leftovers, stop_after  # noqa: E402

import bedform as bf  # noqa: E402
from bedform import _dask_cluster, _dask_regions, _internal  # noqa: E402
from bedform._convert import VerificationError, convert  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHAPE = (150, 200, 180)
# Two arrays of 21 MiB in fifteen regions each, and a small one.
ARGUMENTS: dict[str, Any] = {
    "memory": "6MiB",
    "layout": bf.Regular(chunks=(50, 20, 20), shards=(150, 40, 60)),
}


def fields(factor: float = 1) -> xr.Dataset:
    generator = np.random.default_rng(1)
    data = np.cumsum(generator.normal(size=SHAPE).astype("f4"), axis=0) * np.float32(factor)
    data[5, 6] = np.nan
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {"t": (dims, data), "depth": ("z", np.arange(7.0)), "u": (dims, -data[:, ::-1])},
        attrs={"title": "waves"},
    )


def write(path: Path, kind: str, dataset: xr.Dataset | None = None) -> Path:
    dataset = fields() if dataset is None else dataset
    chunks = {"chunksizes": (1, *SHAPE[1:])}
    if kind == "zarr":
        encoding = {name: {"chunks": (1, *SHAPE[1:])} for name in ("t", "u")}
        dataset.to_zarr(path, encoding=encoding, consolidated=False)
    elif kind == "netcdf4":
        dataset.to_netcdf(path, engine="h5netcdf", encoding={"t": chunks, "u": chunks})
    else:
        dataset.to_netcdf(path, format="NETCDF3_64BIT", engine="netcdf4")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source.zarr", "zarr")


def check(path: Any, expected: xr.Dataset | None = None) -> None:
    expected = fields() if expected is None else expected
    with bf.open(path) as store:
        assert sorted(store.arrays()) == ["depth", "t", "u"]
        for name in ("depth", "t", "u"):
            assert store[name][...].tobytes() == expected[name].values.tobytes(), name
        assert store.attrs["title"] == "waves"


@pytest.mark.parametrize("kind", ["zarr", "netcdf4", "classic"])
def test_workers_convert_what_can_be_read(
    client: distributed.Client, tmp_path: Path, kind: str
) -> None:
    source, seen = write(tmp_path / f"source.{kind}", kind), []
    done = convert(
        source,
        tmp_path / "a.zarr",
        dask=client,
        verify=True,
        progress=lambda *step: seen.append(step),
        **ARGUMENTS,
    )
    check(tmp_path / "a.zarr")
    assert done.complete
    assert done.verified
    assert seen[-1] == (done.byte_count, done.byte_count)
    # Twice to the end, for copying and comparing, and never backwards.
    turn = seen.index((done.byte_count, done.byte_count)) + 1
    assert seen[:turn] == sorted(seen[:turn])
    assert seen[turn:] == sorted(seen[turn:])
    assert len(seen) > 8
    assert leftovers(tmp_path) == []
    alone = convert(source, tmp_path / "b.zarr", **ARGUMENTS)
    assert alone.arrays == done.arrays


def test_both_workers_have_a_part(client: distributed.Client, source: Path, tmp_path: Path) -> None:
    def forget() -> None:
        from bedform import _dask_regions

        _dask_regions._opened.cache_clear()

    def opened() -> int:
        from bedform import _dask_regions

        return _dask_regions._opened.cache_info().currsize

    client.run(forget)
    convert(source, tmp_path / "a.zarr", dask=client, **ARGUMENTS)
    assert list(client.run(opened).values()) == [1, 1]


def test_a_worker_with_threads_does_one_task_at_a_time_with_all_of_them(
    source: Path, tmp_path: Path
) -> None:
    with cluster(workers=1, threads=3) as client:
        assert client.submit(_dask_cluster.threads_of_worker).result() == 3
        convert(source, tmp_path / "a.zarr", dask=client, **ARGUMENTS)
    check(tmp_path / "a.zarr")


def test_an_address_is_as_good_as_a_client(
    client: distributed.Client, source: Path, tmp_path: Path
) -> None:
    convert(source, tmp_path / "a.zarr", dask=client.scheduler.address, **ARGUMENTS)
    check(tmp_path / "a.zarr")


def test_what_was_begun_with_workers_goes_on_without_and_the_other_way_round(
    client: distributed.Client, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "a.zarr"
    for cluster_of in (client, None, client):
        with pytest.raises(StopError):
            convert(source, target, dask=cluster_of, progress=stop_after(8), **ARGUMENTS)
        assert not target.exists()
        assert leftovers(tmp_path) == [".a.zarr.bedform-partial"]
    for cluster_of in (None, client):
        with pytest.raises(StopError):
            convert(source, target, dask=cluster_of, progress=stop_after(25), **ARGUMENTS)
    done = convert(source, target, dask=client, verify=True, **ARGUMENTS).resumed_bytes
    assert done > 0
    check(target)
    assert leftovers(tmp_path) == []


def test_stopped_by_the_user_nothing_more_is_asked_of_the_workers(
    client: distributed.Client, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(StopError):
        convert(source, tmp_path / "a.zarr", dask=client, progress=stop_after(2), **ARGUMENTS)
    wait_until(lambda: not any(client.processing().values()), "no worker works")
    assert client.futures == {}


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_command_is_resumed_without_workers(
    client: distributed.Client, source: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    target = tmp_path / "a.zarr"
    options = ["--memory", "3MiB", "--reads", "time=1.0"]
    arguments = ["convert", str(source), str(target), *options, "--dask", client.scheduler.address]
    process = subprocess.Popen(
        [*command_line(), *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    marks = tmp_path / ".a.zarr.bedform-partial" / "done"
    wait_until(
        lambda: process.poll() is not None or (marks.exists() and marks.read_bytes().strip(b"\0")),
        "a region is done",
    )
    process.send_signal(ending)
    _, said = process.communicate(timeout=PATIENCE)
    if process.returncode == 0:
        # The machine was busy, and the signal came too late.
        check(target)
        return
    assert process.returncode == (130 if ending == signal.SIGINT else -signal.SIGKILL), said
    assert not target.exists()
    if ending == signal.SIGINT:
        assert "run the same command again" in said
        assert "Traceback" not in said
    reads = {("time",): 1.0}
    assert convert(source, target, verify=True, memory="3MiB", reads=reads).resumed_bytes > 0
    check(target)


def test_a_worker_that_comes_too_late_changes_nothing(source: Path, tmp_path: Path) -> None:
    """A worker is stopped within a region, and resumes after another conversion took the name."""
    target = tmp_path / "a.zarr"
    with cluster() as client:
        stopped: list[int] = []

        def stop(done: int, total: int) -> None:
            stopped.extend(pids(client))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            raise StopError

        try:
            with pytest.raises(StopError):
                convert(source, target, dask=client, progress=stop, **ARGUMENTS)
            zarr.open_group(source, mode="r+")["t"][0] = 8
            old = growing(tmp_path / ".a.zarr.bedform-partial")
            with pytest.raises(StopError):
                convert(source, target, progress=stop_after(20), **ARGUMENTS)
            assert growing(tmp_path / ".a.zarr.bedform-partial") != old
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        done = convert(source, target, verify=True, **ARGUMENTS)
        wait_until(lambda: not any(client.processing().values()), "no worker works")
    assert not done.warnings
    check_same(source, target)
    assert bf.open(target).verify() == []


def test_a_copy_that_differs_is_found_by_the_workers(
    client: distributed.Client, source: Path, tmp_path: Path
) -> None:
    def spoil(done: int, total: int) -> None:
        if done == total:
            with bf.open(growing(tmp_path / ".a.zarr.bedform-partial"), mode="r+") as store:
                store["t"][3, 4, 5] = 12345

    with pytest.raises(VerificationError, match=r"worker tcp://.*'t' differs from the source in"):
        convert(source, tmp_path / "a.zarr", dask=client, verify=True, progress=spoil, **ARGUMENTS)
    assert not (tmp_path / "a.zarr").exists()


def test_a_source_that_changes_under_the_workers_is_said(source: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def change(done: int, total: int) -> None:
        zarr.open_group(source, mode="r+")["t"][0] = 8
        # Later workers open the source again. They are killed once: on a busy machine Dask would
        # give up on a task whose workers die again and again.
        for pid in [] if killed else pids(client):
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    with (
        cluster() as client,
        pytest.raises(bf.ConflictError, match=r"worker .* in another state than where"),
    ):
        convert(source, tmp_path / "a.zarr", dask=client, progress=change, **ARGUMENTS)


def test_a_worker_that_does_not_see_the_source_says_so(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path / "here" / "source.zarr", "zarr")
    monkeypatch.chdir(tmp_path / "here")
    # A path with another meaning in each process.
    with pytest.raises(
        bf.NotFoundError, match=r"worker tcp://.*/proc/self/cwd/source.zarr"
    ) as info:
        convert("/proc/self/cwd/source.zarr", tmp_path / "a.zarr", dask=client, **ARGUMENTS)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_worker_that_does_not_see_the_target_says_so_and_makes_nothing(
    client: distributed.Client,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if is_there:
        elsewhere.mkdir()
    exchange = _dask_regions.RegionPool.exchange

    def exchange_elsewhere(pool: Any, place: str, tasks: list[str]) -> Any:
        return exchange(pool, json.dumps({**json.loads(place), "place": str(elsewhere)}), tasks)

    monkeypatch.setattr(_dask_regions.RegionPool, "exchange", exchange_elsewhere)
    with pytest.raises(bf.NotFoundError, match=r"worker .* the target is not seen in") as info:
        convert(source, tmp_path / "a.zarr", dask=client, **ARGUMENTS)
    assert "\n" not in str(info.value)
    assert elsewhere.exists() == is_there
    assert not is_there or list(elsewhere.iterdir()) == []


def test_another_version_at_the_client_is_refused(
    client: distributed.Client, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_internal, "__version__", "0.0.1")
    with pytest.raises(bf.UnsupportedError, match=r"worker .* and 0.0.1 at the client: install"):
        convert(source, tmp_path / "a.zarr", dask=client, **ARGUMENTS)


def test_what_is_no_cluster_is_said_in_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(bf.WrongTypeError, match=r"dask must be a distributed\.Client or an"):
        convert(source, tmp_path / "a.zarr", dask=5)
    monkeypatch.setattr(_dask_cluster, "CONNECT_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(bf.BedformError, match=f"no Dask scheduler at '{address}'") as info:
            convert(source, tmp_path / "a.zarr", dask=address)
        assert "\n" not in str(info.value)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(bf.UnsupportedError, match=r"pip install 'bedform\[dask\]'"):
        convert(source, tmp_path / "a.zarr", dask="tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    "address", ["nonsense", "", "http://127.0.0.1:1", "tcp://127.0.0.1:99999", "inproc://a/b/c"]
)
def test_a_program_that_was_given_no_address_of_a_scheduler_ends(
    source: Path, tmp_path: Path, address: str
) -> None:
    code = "import sys, bedform as bf; bf.convert(*sys.argv[1:3], dask=sys.argv[3])"
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "a.zarr"), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert f"no Dask scheduler at {address!r}: " in done.stderr.splitlines()[-1]


def test_distributed_is_not_imported_unless_it_is_asked_for(source: Path, tmp_path: Path) -> None:
    program = f"""
import sys, bedform
bedform.convert({str(source)!r}, {str(tmp_path / "a.zarr")!r})
print("distributed" in sys.modules)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_workers_fill_a_store_in_an_object_store(
    upload: Callable[[Path, str], str], source: Path
) -> None:
    assert upload
    # These workers know the server's address.
    with cluster() as client:
        url = "s3://bucket/by/workers.zarr"
        with pytest.raises(StopError):
            convert(source, url, dask=client, progress=stop_after(3), **ARGUMENTS)
        done = convert(source, url, dask=client, verify=True, **ARGUMENTS)
        assert done.verified
        check(url)
        with Killer(client, 3):
            convert(source, "s3://bucket/by/killed.zarr", dask=client, **ARGUMENTS)
        check("s3://bucket/by/killed.zarr")


@pytest.mark.reliability
def test_workers_are_killed_and_the_copy_is_right(tmp_path: Path) -> None:
    sources = [write(tmp_path / f"source.{kind}", kind) for kind in ("zarr", "netcdf4", "classic")]
    conversions = 0
    with cluster() as client, Killer(client, 1_000_000, seed=time.time_ns()) as killer:
        for case in cases(0.5, least=len(sources)):
            source = sources[case.kind(len(sources))]
            target = tmp_path / f"{case.number}.zarr"
            with case:
                convert(source, target, dask=client, **ARGUMENTS)
                check(target)
                assert bf.open(target).verify() == []
                # The dead workers left nothing in the store.
                assert not [path for path in target.rglob("*") if path.name.startswith(".bedform")]
                assert leftovers(tmp_path) == []
            shutil.rmtree(target)
            killer.note_progress()
            conversions += 1
    sys.stdout.write(f"COUNT dask-kills {killer.kills}\nCOUNT dask-conversions {conversions}\n")
