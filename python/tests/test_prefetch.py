"""Readahead: reads made before they are requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import PATIENCE

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

# A place as slow as a busy parallel file system.
SLOW = {"BEDFORM_THROTTLE": "1 GB/s, 2 ms"}
SHAPE = (60, 32, 64)


def field() -> np.ndarray:
    return np.arange(np.prod(SHAPE), dtype="float32").reshape(SHAPE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prefetch") / "s.zarr"
    store = bf.create(path)
    store.create_array(
        "t", data=field(), dims=("time", "y", "x"), chunks=(1, 32, 64), shards=(1, 32, 64)
    )
    xr.Dataset({"t": (("time", "y", "x"), field())}).to_netcdf(path.with_name("t.nc"))
    return path


def run(script: str, place: Path, **environment: str) -> Any:
    """Returns the last line that a child process prints, as JSON."""
    lines = f"""
        import json, os, sys, threading, time
        import numpy as np
        import bedform as bf
        place = {str(place)!r}
        field = np.arange({np.prod(SHAPE)}, dtype="float32").reshape({SHAPE})
        def let_read(opened):
            "A busy machine reads ahead late: wait until all is there that is to be read ahead."
            state = opened.stats()["prefetch"]
            while state["ready"] < state["ahead"]:
                time.sleep(0.001)
                state = opened.stats()["prefetch"]
    """
    code = textwrap.dedent(lines) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **SLOW, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_maps_in_a_row_are_read_ahead_after_three(place: Path):
    found = run(
        """
        store = bf.open(place)
        for at in range(60):
            let_read(store)
            np.testing.assert_array_equal(store["t"][at], field[at])
        print(json.dumps(store.stats()["prefetch"]))
        """,
        place,
    )
    assert (found["reads"], found["foreseen"], found["used"]) == (60, 57, 57)
    assert found["used_of_prefetched"] == 1


def test_planes_of_a_netcdf_file_through_xarray_are_read_ahead(place: Path):
    found = run(
        """
        import xarray as xr
        data = xr.open_dataset(place, engine="bedform", prefetch="8 MiB")
        for at in range(0, 64, 2):
            let_read(data.bedform)
            np.testing.assert_array_equal(data["t"][:, 5:25, at], field[:, 5:25, at])
        print(json.dumps(data.bedform.stats()["prefetch"]))
        """,
        place.with_name("t.nc"),
    )
    assert found["reads"] == 32
    assert found["used"] > 20


def test_columns_backwards_by_steps_are_read_ahead(place: Path):
    found = run(
        """
        store = bf.open(place)
        for at in range(58, 1, -3):
            let_read(store)
            np.testing.assert_array_equal(store["t"][at, ::2, ::-1], field[at, ::2, ::-1])
        print(json.dumps(store.stats()["prefetch"]))
        """,
        place,
    )
    assert found["used"] > 10


def test_what_was_read_ahead_is_an_array_like_any_other(place: Path):
    found = run(
        """
        import gc, pickle
        store = bf.open(place)
        maps = []
        for at in range(20):
            let_read(store)
            maps.append(store["t"][at])
        used = store.stats()["prefetch"]["used"]
        buffer = np.empty((32, 64), "f4")
        assert store["t"].read(np.s_[20], out=buffer) is buffer
        np.testing.assert_array_equal(buffer, field[20])
        scalars = [store["t"].read(np.s_[21 + at, 3:4, 2])[()] for at in range(3)]
        store.close()
        del store
        gc.collect()
        for at, values in enumerate(maps):
            assert values.flags.writeable and values.flags.c_contiguous and values.flags.aligned
            np.testing.assert_array_equal(values, field[at])
            values += 1
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(values)), field[at] + 1)
            np.testing.assert_array_equal(values.copy()[::-1].T, (field[at] + 1)[::-1].T)
        view = maps[-1][3]
        del maps, values
        gc.collect()
        np.testing.assert_array_equal(view, field[19, 3] + 1)
        print(json.dumps(used))
        """,
        place,
    )
    assert found > 10


@pytest.mark.parametrize("kind", [">i2", "c8", "S3", "?"])
def test_elements_of_any_type_are_read_ahead(tmp_path: Path, kind: str):
    values = np.arange(40 * 1200).reshape(40, 1200) % 251
    values = (values > 9).astype(kind) if kind == "?" else values.astype(kind)
    np.save(tmp_path / "v.npy", values)
    stored = values if kind[0] != ">" else values.astype(values.dtype.newbyteorder("="))
    with bf.create(tmp_path / "s.zarr") as store:
        store.create_array("t", data=stored, chunks=(1, 1200))
    if kind == ">i2":
        xr.Dataset({"t": (("y", "x"), values)}).to_netcdf(tmp_path / "t.nc")
    found = run(
        """
        used = []
        for name in ("s.zarr", "t.nc"):
            if not os.path.exists(f"{place}/{name}"):
                continue
            store, values = bf.open(f"{place}/{name}"), np.load(f"{place}/v.npy")
            for at in range(40):
                let_read(store)
                read = store["t"][at]
                assert read.dtype == store["t"].dtype
                np.testing.assert_array_equal(read, values[at])
            used.append(store.stats()["prefetch"]["used"])
        print(json.dumps(used))
        """,
        tmp_path,
    )
    assert min(found) > 10


def test_a_child_of_a_fork_and_its_parent_read_on(place: Path):
    found = run(
        """
        store = bf.open(place)
        for at in range(20):
            store["t"][at]
        child = os.fork()
        for at in range(20, 60):
            let_read(store)
            np.testing.assert_array_equal(store["t"][at], field[at])
        used = store.stats()["prefetch"]["used"]
        if child == 0:
            os._exit(0 if used > 20 else 3)
        print(json.dumps([used, os.waitpid(child, 0)[1]]))
        """,
        place,
    )
    assert found[0] > 40
    assert found[1] == 0


def test_where_no_thread_can_be_started_nothing_is_left_behind(place: Path):
    found = run(
        """
        import gc, resource
        stores = [bf.open(place, prefetch="8 MiB") for _ in range(8)]
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for store in stores:
            store.prefetch([("t", np.s_[at]) for at in range(10)])
            # (What is imported late cannot be by this user.)
            assert all(np.array_equal(store["t"][at], field[at]) for at in range(10))
        del store, stores
        gc.collect()
        opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in opened if os.path.lexists(link)]
        print(json.dumps([name for name in opened if "s.zarr" in name]))
        """,
        place,
    )
    assert found == []


def test_a_process_ends_while_reads_are_ahead(place: Path):
    assert run(
        """
        store = bf.open(place)
        for at in range(20):
            store["t"][at]
        print(json.dumps(store.stats()["prefetch"]["ahead"] > 0))
        """,
        place,
    )


def test_auto_follows_the_main_thread_and_a_size_all(place: Path):
    found = run(
        """
        def reads(prefetch):
            store = bf.open(place, prefetch=prefetch)
            work = lambda: [(let_read(store), store["t"][at]) for at in range(20)]
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return store.stats()["prefetch"]["used"]
        print(json.dumps([reads("auto"), reads("16 MiB")]))
        """,
        place,
    )
    assert found[0] == 0
    assert found[1] > 10


def test_what_a_list_says_counts_for_any_thread(place: Path):
    found = run(
        """
        store = bf.open(place)
        order = [int(at) for at in np.random.default_rng(1).permutation(60)]
        store.prefetch([("t", np.s_[at]) for at in order])
        lock = threading.Lock()
        def work(todo):
            while True:
                with lock:
                    at = next(todo, None)
                if at is None:
                    return
                let_read(store)
                np.testing.assert_array_equal(store["t"][at], field[at])
        todo = iter(order)
        threads = [threading.Thread(target=work, args=(todo,)) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        listed = store.stats()["prefetch"]
        # Reads of threads have no pattern afterwards, either.
        after = threading.Thread(target=work, args=(iter(range(30)),))
        after.start()
        after.join()
        print(json.dumps([listed, store.stats()["prefetch"]]))
        """,
        place,
    )
    assert found[0]["used"] > 40
    assert found[0]["reads"] == found[1]["reads"] == 60


@pytest.mark.parametrize("freshness", ["read", "open"])
def test_a_netcdf_file_that_is_written_anew_in_mid_loop_is_seen_as_without(
    place: Path, tmp_path: Path, freshness: str
):
    for name, of in (("t.nc", 0), ("new.nc", 1000)):
        variable = (("time", "y", "x"), field() + of)
        xr.Dataset({"t": variable}).to_netcdf(tmp_path / name)
    found = run(
        f"""
        def seen(store, at):
            try:
                values = store["t"][at]
            except bf.BedformError as error:
                return type(error).__name__
            assert np.array_equal(values - values[0, 0], field[at] - field[at, 0, 0])
            return float(values[0, 0] - field[at, 0, 0])
        stores = [bf.open(place, freshness={freshness!r}, prefetch=one) for one in ("auto", False)]
        before = []
        for at in range(20):
            let_read(stores[0])
            before.append([seen(store, at) for store in stores])
        os.replace(place.replace("t.nc", "new.nc"), place)
        after = [[seen(store, at) for store in stores] for at in range(20, 40)]
        used = stores[0].stats()["prefetch"]["used"]
        print(json.dumps([before, after, used]))
        """,
        tmp_path / "t.nc",
    )
    before, after, used = found
    assert all(one == [0, 0] for one in before)
    assert all(ahead == without for ahead, without in after)
    assert used > 10 or freshness == "read"


@pytest.mark.parametrize("said", ["off", "0", "1 MiB"])
def test_the_environment_says_how_much(place: Path, said: str):
    used = run(
        """
        store = bf.open(place)
        for at in range(20):
            let_read(store)
            store["t"][at]
        print(json.dumps(store.stats()["prefetch"]["used"]))
        """,
        place,
        BEDFORM_PREFETCH=said,
    )
    assert (used > 0) == (said == "1 MiB")


SHUFFLED = """
    store = bf.open(place)
    order = np.random.default_rng(1).permutation(60)
    store.prefetch([("t", np.s_[at]) for at in order])
    for at in order:
        let_read(store)
        np.testing.assert_array_equal(store["t"][at], field[at])
"""


def test_a_shuffled_epoch_is_handed_over(place: Path):
    found = run(
        SHUFFLED
        + """
    before = store.stats()["prefetch"]
    store.prefetch({"t": [([1, 5, 7],), np.s_[2:4]]})
    let_read(store)
    np.testing.assert_array_equal(store["t"][[1, 5, 7]], field[[1, 5, 7]])
    np.testing.assert_array_equal(store["t"][2:4], field[2:4])
    print(json.dumps([before, store.stats()["prefetch"]]))
        """,
        place,
    )
    assert found[0]["used"] > 55
    assert found[0]["wasted_bytes"] == 0
    assert found[1]["used"] == found[0]["used"] + 2


def test_the_next_list_ends_those_of_arrays_that_it_has_no_reads_of(place: Path):
    found = run(
        """
        store = bf.open(place, prefetch="8 MiB")
        store.prefetch([("t", np.s_[at]) for at in range(60)])
        store.prefetch([])
        print(json.dumps(store.stats()["prefetch"]))
        """,
        place,
    )
    assert found["ahead"] == 0


def test_reads_of_a_netcdf_file_are_handed_over(place: Path):
    found = run(
        SHUFFLED + """    print(json.dumps(store.stats()["prefetch"]))""",
        place.with_name("t.nc"),
    )
    assert found["used"] > 50
    assert found["wasted_bytes"] == 0


def test_what_is_no_list_and_no_size_is_said(place: Path):
    store = bf.open(place)
    with pytest.raises(bf.InvalidArgumentError, match="pairs of the path"):
        store.prefetch(["t"])
    with pytest.raises(bf.OutOfBoundsError):
        store.prefetch([("t", np.s_[60])])
    for opened in (store, bf.open(place.with_name("t.nc"))):
        with pytest.raises(bf.NotFoundError):
            opened.prefetch([("u", np.s_[0])])
    with pytest.raises(bf.InvalidArgumentError, match="prefetch"):
        bf.open(place, prefetch="much")
    with pytest.raises(bf.InvalidArgumentError, match="prefetch"):
        bf.open(place, prefetch=-1)


def test_a_closed_store_has_nothing_ahead(place: Path):
    assert run(
        """
        store = bf.open(place)
        for at in range(20):
            store["t"][at]
        inner = store._inner
        store.close()
        print(json.dumps(json.loads(inner.prefetch_statistics())["ahead"] == 0))
        """,
        place,
    )


def test_a_wait_for_a_read_ahead_ends_with_ctrl_c(place: Path):
    found = run(
        """
        import signal
        store = bf.open(place)
        for at in range(10):
            store["t"][at]
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                for at in range(10, 60):
                    store["t"][at]
        except KeyboardInterrupt:
            print(json.dumps("interrupted"))
        """,
        place,
        BEDFORM_THROTTLE="1 GB/s, 200 ms",
    )
    assert found == "interrupted"


def test_a_data_set_counts_its_reads_and_another_says_which_one_does(place: Path):
    opened = xr.open_dataset(place, engine="bedform")
    for at in range(3):
        opened["t"].isel(time=at).load()
    assert opened.bedform.stats()["prefetch"]["reads"] == 3
    # A closed one still reads.
    opened.close()
    opened["t"].isel(time=3).load()
    assert opened.bedform.stats()["prefetch"]["reads"] == 4
    with pytest.raises(bf.UnsupportedError, match=r"ask the data set that .* gave"):
        xr.Dataset().bedform.stats()


@pytest.mark.parametrize("wrong", ["t", None, 3, ("t", 3), [("t",)], [("t", 1, 2)], {"t": 3}])
def test_what_is_no_list_of_reads_is_refused_with_what_is_one(place: Path, wrong: Any):
    with pytest.raises(bf.InvalidArgumentError, match="prefetch takes"):
        bf.open(place).prefetch(wrong)


def test_a_wrong_read_of_a_list_is_refused_with_the_array_it_is_of(place: Path):
    store = bf.open(place)
    store.prefetch([["t", 3], ["t", 4]])
    with pytest.raises(bf.OutOfBoundsError, match="prefetch of t: index 60 is out of bounds"):
        store.prefetch([("t", 3), ("t", 60)])


@pytest.mark.parametrize("wrong", ["on", "Auto", "10%", "64 MB/s"])
def test_a_limit_that_is_none_is_refused_with_what_it_may_be(place: Path, wrong: str):
    with pytest.raises(bf.InvalidArgumentError, match='is not "auto", "off" or a size'):
        bf.open(place, prefetch=wrong)


def test_a_variable_that_is_not_understood_warns_and_is_ignored(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BEDFORM_PREFETCH", "10%")
    with pytest.warns(UserWarning, match='BEDFORM_PREFETCH: "10%" is ignored') as warned:
        bf.open(place)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bf.open(place, prefetch=False)
        for said in ("off", "auto", "0", "64 MiB", ""):
            monkeypatch.setenv("BEDFORM_PREFETCH", said)
            bf.open(place)
