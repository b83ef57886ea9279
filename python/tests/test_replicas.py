"""Replicas of files: chosen, made, read instead of the file, and given up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from format_reader import crc32c
from support import sealed, wait_until
from typer.testing import CliRunner

import bedform as bf
from bedform._dask_blocks import block_shape
from bedform.cli import app

SHAPE = (120, 40, 50)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of noise, as its producer wrote it: maps, one after the other."""
    path = tmp_path / "era5.nc"
    values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    dims = ("time", "lat", "lon")
    maps = {"chunksizes": (1, 40, 50), "compression": "gzip", "compression_opts": 4}
    data_set = xr.Dataset({"t": (dims, values), "chunked": (dims, values[:, ::-1])})
    data_set.to_netcdf(path, engine="h5netcdf", encoding={"chunked": maps})
    return path


def values_of(path: Path, name: str = "t") -> Any:
    with h5py.File(path) as source:
        return source[name][:]


def replicas_of(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.bedform/replicas").glob("[0-9a-f]*"))


def series_replica(path: Path, **options: Any) -> bf.Optimization:
    return bf.optimize(path, "400%", reads={"time": 1}, **options)


def used(array: Any, selection: Any) -> list[str]:
    """Returns the replicas that a read uses."""
    found: list[str] = array.explain(selection).to_dict().get("replicas", [])
    return found


def selections(count: int) -> list[Any]:
    """Random selections: slices of any step and sign, indexes, lists."""
    random = np.random.default_rng(7)
    found = []
    for _ in range(count):
        axes: list[Any] = []
        for size in SHAPE:
            kind = random.integers(0, 4)
            if kind == 0:
                axes.append(int(random.integers(0, size)))
            elif kind == 1:
                first, last = sorted(random.integers(0, size + 1, 2).tolist())
                axes.append(slice(first, last, int(random.integers(1, 4))))
            elif kind == 2:
                first, last = sorted(random.integers(0, size, 2).tolist())
                axes.append(slice(last, first, -int(random.integers(1, 3))))
            else:
                axes.append(slice(None))
        found.append(tuple(axes))
    return found


def test_reads_of_a_file_with_replicas_are_those_of_the_file(file: Path) -> None:
    region = {"lat": (5, 30), "lon": (10, 45)}
    bf.optimize(file, "400%", reads={"time": 1}, region=region)
    bf.optimize(file, "400%", reads={("time", "lat"): 1})
    assert replicas_of(file)
    served = 0
    with bf.open(file) as store:
        for name in ("t", "chunked"):
            expected, array = values_of(file, name), store[name]
            for selection in selections(150):
                np.testing.assert_array_equal(array[selection], expected[selection])
                served += bool(used(array, selection))
            rows = [3, 90, 4, 4, 119]
            found = array.oindex[rows, slice(0, 40), [20, 11, 44]]
            np.testing.assert_array_equal(found, expected[np.ix_(rows, range(40), [20, 11, 44])])
    assert served > 20


def test_an_open_handle_reads_the_replicas_that_are_made_meanwhile(file: Path) -> None:
    expected, series = values_of(file), np.s_[:, 28, 20]
    with bf.open(file) as store:
        array = store["t"]
        np.testing.assert_array_equal(array[series], expected[series])
        assert not used(array, series)
        made = [one["id"] for one in series_replica(file).made if one["array"] == "t"]
        # The handle looks for other replicas every two seconds.
        wait_until(lambda: used(array, series) == made, "the replica is used")
        np.testing.assert_array_equal(array[series], expected[series])
        shutil.rmtree(f"{file}.bedform")

        def is_read_without() -> bool:
            np.testing.assert_array_equal(array[series], expected[series])
            return not used(array, series)

        wait_until(is_read_without, "no replica is used")
        np.testing.assert_array_equal(array[series], expected[series])


def test_what_a_replica_lacks_of_a_read_comes_from_the_file(file: Path) -> None:
    bf.optimize(file, "400%", reads={"time": 1}, region={"time": (0, 90)})
    expected = values_of(file, "chunked")
    with bf.open(file) as store:
        array = store["chunked"]
        series = np.s_[:, 28, 20]
        explained = array.explain(series).to_dict()
        assert explained["replica_bytes"] == explained["result_bytes"] * 90 // 120
        shown = str(array.explain(series))
        assert re.search(r"predicted without +[0-9.,]+ (s|ms|us)\n", shown), shown
        np.testing.assert_array_equal(array[series], expected[series])
        backwards = np.s_[::-3, 28:30, 20]
        np.testing.assert_array_equal(array[backwards], expected[backwards])
        assert not used(array, np.s_[100, :, 2])


def test_the_recorded_reads_decide_what_is_made_and_where(file: Path) -> None:
    bf.watch(file)
    with bf.open(file, prefetch=False) as store:
        for row in range(10, 20):
            for column in range(20, 30):
                store["t"][:, row, column]
    bf.learn(file)
    plan = bf.optimize(file, "50%", dry_run=True).plan
    read = plan["reads"][0]
    assert (read["array"], read["shape"], read["reads"]) == ("t", [120, 1, 1], 100)
    assert (read["start"], read["end"]) == ([0, 10, 20], [120, 20, 30])
    assert not replicas_of(file), "a dry run writes nothing"
    done = bf.optimize(file, "50%")
    assert [replica["array"] for replica in done.made] == ["t"]
    assert done.made[0]["stored_bytes"] <= plan["budget_bytes"]
    with bf.open(file) as store:
        assert used(store["t"], np.s_[:, 12, 22])
        np.testing.assert_array_equal(store["t"][:, 12, 22], values_of(file)[:, 12, 22])


def test_nothing_to_go_by_is_an_error_that_says_what_to_do(file: Path) -> None:
    with pytest.raises(bf.NotFoundError, match=r"bedform watch .*era5.nc"):
        bf.optimize(file)
    with pytest.raises(bf.InvalidArgumentError, match=r"no array .* span \(depth\)"):
        bf.optimize(file, reads={"depth": 1})
    with pytest.raises(bf.InvalidArgumentError, match=r"not a budget: .lots%."):
        bf.optimize(file, "lots%", reads={"time": 1})


def test_the_same_again_makes_nothing_twice(file: Path) -> None:
    first = series_replica(file)
    again = series_replica(file)
    assert first.made
    assert (again.made, again.plan["make"]) == ([], [])
    assert sorted(again.plan["keep"]) == sorted(replica["id"] for replica in first.made)


def test_replicas_that_others_save_more_than_go_when_the_budget_is_used_up(file: Path) -> None:
    one = bf.optimize(file, "60%", reads={"time": 1}, region={"lat": (0, 40), "lon": (0, 50)})
    kept = {path.name for path in replicas_of(file)}
    assert kept == {replica["id"] for replica in one.made}
    other = bf.optimize(file, "60%", reads={("time", "lon"): 1})
    assert other.made
    assert {path.name for path in replicas_of(file)} == {replica["id"] for replica in other.made}
    total = sum(
        path.stat().st_size for path in Path(f"{file}.bedform").rglob("*") if path.is_file()
    )
    assert total <= 0.6 * file.stat().st_size + 20_000


def test_a_file_that_changed_has_no_replicas(file: Path) -> None:
    series_replica(file)
    with h5py.File(file, "r+") as target:
        target["t"][:, 3, 4] = 5
    with bf.open(file) as store:
        assert not used(store["t"], np.s_[:, 3, 4])
        assert (store["t"][:, 3, 4] == 5).all()
    again = series_replica(file)
    assert again.made
    with bf.open(file) as store:
        assert used(store["t"], np.s_[:, 3, 4])
        assert (store["t"][:, 3, 4] == 5).all()
    assert len(replicas_of(file)) == len(again.made), "those of the earlier state are gone"


def test_a_file_that_changes_under_a_handle_is_read_as_it_is_then(file: Path) -> None:
    series_replica(file)
    with bf.open(file) as store:
        assert used(store["t"], np.s_[:, 1, 1])
        with h5py.File(file, "r+") as target:
            target["t"][:, 1, 1] = 5
        assert (store["t"][:, 1, 1] == 5).all()
        assert not used(store["t"], np.s_[:, 1, 1])


def harm(replica: Path, how: str) -> None:
    objects = [path for path in replica.rglob("c.*") if path.is_file()]
    if how == "deleted":
        shutil.rmtree(replica)
    for path in objects if how != "deleted" else []:
        content = bytearray(path.read_bytes())
        if how == "flipped":
            content[::7] = bytes(255 - byte for byte in content[::7])
            path.write_bytes(content)
        elif how == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif how == "empty":
            path.write_bytes(b"")
        else:
            path.unlink()


@pytest.mark.parametrize("how", ["deleted", "flipped", "cut", "empty", "objects gone"])
def test_a_replica_that_was_harmed_is_not_believed(file: Path, how: str) -> None:
    series_replica(file)
    expected = values_of(file)
    for replica in replicas_of(file):
        harm(replica, how)
    with bf.open(file) as store:
        for row, column in [(0, 0), (20, 30), (39, 49)]:
            np.testing.assert_array_equal(store["t"][:, row, column], expected[:, row, column])
        assert not used(store["t"], np.s_[:, 1, 1])


def test_a_replica_that_goes_while_a_handle_reads_it_is_missed_by_nobody(file: Path) -> None:
    series_replica(file)
    expected = values_of(file)
    with bf.open(file, cache=0) as store:
        np.testing.assert_array_equal(store["t"][:, 0, 0], expected[:, 0, 0])
        shutil.rmtree(f"{file}.bedform")
        for row in range(0, 40, 3):
            np.testing.assert_array_equal(store["t"][:, row, 7], expected[:, row, 7])


def test_hostile_catalogues_are_none(file: Path) -> None:
    made = series_replica(file).made
    catalogue = max(Path(f"{file}.bedform/catalogue").iterdir())
    document = json.loads(catalogue.read_text())
    expected = values_of(file)

    def changed(**fields: Any) -> bytes:
        replicas = [{**replica, **fields} for replica in document["replicas"]]
        return sealed({**document, "replicas": replicas})

    def is_used() -> bool:
        with bf.open(file) as store:
            np.testing.assert_array_equal(store["t"][:, 5, 5], expected[:, 5, 5])
            np.testing.assert_array_equal(store["t"][3], expected[3])
            return bool(used(store["t"], np.s_[:, 5, 5]))

    catalogue.write_bytes(changed())
    assert is_used()
    shape = [length * 2 for length in made[0]["array_shape"]]
    for content in (
        b"",
        b"{}",
        b"[" * 100_000,
        json.dumps(document).encode(),
        changed(id="../../../../etc"),
        changed(array_shape=shape),
        changed(held={"runs": [[[0, 120]], [[0, 40]], [[0, 49]]]}),
        changed(held={"runs": [[[0, 120]], [[0, 40]], [[1, 2**64 - 1]]]}),
        changed(held={"runs": [[[0, 120]], [[0, 40]], [[5, 5], [2, 45]]]}),
        changed(document={}),
        changed(stored_bytes=2**64 - 1),
        changed(building_seconds=-1.0),
        changed(
            expected=[{"shape": [1] * 1000, "reads": 1, "seconds_without": 1, "seconds_with": 0}]
        ),
        changed(array="../../../etc"),
    ):
        catalogue.write_bytes(content)
        assert not is_used(), content[:200]
    objects = document["replicas"][0]["objects"]
    one = {**objects[0], "at": [99, 0, 0]}
    for listed in (10**18, [], [{**objects[0], "at": [0]}], [one], [*objects, *([one] * 65536)]):
        catalogue.write_bytes(changed(objects=listed))
        assert not is_used(), str(listed)[:200]


def test_the_catalogue_is_sealed_as_the_page_of_formats_says(file: Path) -> None:
    series_replica(file)
    data = max(Path(f"{file}.bedform/catalogue").iterdir()).read_bytes()
    length, checksum = data[9:28].split(b":")
    assert data.startswith(b'{"seal":"') and int(length) == len(data)
    assert int(checksum, 16) == crc32c(data[:20] + b"00000000" + data[28:])
    catalogue = json.loads(data)
    assert catalogue["version"] == 3
    for replica in catalogue["replicas"]:
        (source,) = replica["of"]["objects"]
        assert source["version"]["size"] == file.stat().st_size
        own = Path(f"{file}.bedform/replicas/{replica['id']}/{replica['array']}")
        versions = {
            ".".join(["c", *map(str, one["at"])]): one["version"]["size"]
            for one in replica["objects"]
        }
        assert versions == {one.name: one.stat().st_size for one in own.glob("c.*")}


def test_replicas_can_be_left_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series_replica(file)
    with bf.open(file, replicas=False) as store:
        assert not used(store["t"], np.s_[:, 5, 5])
    monkeypatch.setenv("BEDFORM_REPLICAS", "off")
    with bf.open(file) as store:
        assert not used(store["t"], np.s_[:, 5, 5])


def test_a_place_that_takes_no_replicas_says_so(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        # Root may write everywhere: a file in the sidecar's place prevents its creation.
        Path(f"{file}.bedform").write_text("")
    else:
        file.parent.chmod(0o500)
    with pytest.raises(bf.PermissionDeniedError, match="set BEDFORM_SIDECAR"):
        series_replica(file)
    elsewhere = file.parent.parent / "sidecars"
    elsewhere.mkdir(exist_ok=True)
    monkeypatch.setenv("BEDFORM_SIDECAR", str(elsewhere))
    assert series_replica(file).made
    with bf.open(file) as store:
        assert used(store["t"], np.s_[:, 5, 5])


def test_two_that_optimise_at_once_do_not_mix(file: Path) -> None:
    program = (
        "import sys, bedform as bf\n"
        "try:\n    print(len(bf.optimize(sys.argv[1], '400%', reads={'time': 1}).made))\n"
        "except bf.ConflictError as error:\n"
        "    print('busy' if 'wait for it' in str(error) else error)\n"
    )
    command = [sys.executable, "-c", program, str(file)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate()[0].strip() for process in started]
    assert all(process.returncode == 0 for process in started)
    assert set(said) <= {"0", "1", "2", "busy"} and {"1", "2"} & set(said), said
    with bf.open(file) as store:
        np.testing.assert_array_equal(store["t"][:, 5, 5], values_of(file)[:, 5, 5])
        assert used(store["t"], np.s_[:, 5, 5])


def test_what_was_stopped_goes_on(file: Path) -> None:
    def stop(done: int, _total: int) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        series_replica(file, progress=stop, memory="8 MiB")
    with bf.open(file) as store:
        assert not used(store["t"], np.s_[:, 5, 5]) or replicas_of(file)
        np.testing.assert_array_equal(store["t"][:, 5, 5], values_of(file)[:, 5, 5])
    assert series_replica(file, memory="8 MiB").plan["make"]
    with bf.open(file) as store:
        assert used(store["t"], np.s_[:, 5, 5])


def test_the_command_shows_the_plan_and_makes_it(file: Path) -> None:
    runner = CliRunner()
    arguments = ["optimize", str(file), "--budget", "400%", "--reads", "time=1"]
    planned = runner.invoke(app, [*arguments, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "nothing was written" in planned.output
    assert not replicas_of(file)
    made = runner.invoke(app, [*arguments, "--region", "lat=5:20", "--json"])
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    made_ids = {one["id"] for one in document["done"]["made"]}
    assert made_ids == {path.name for path in replicas_of(file)}
    wrong = runner.invoke(app, [*arguments, "--region", "level=5:20"])
    assert "region: no array of" in str(wrong.exception)
    assert 'has "level": the dimensions are lat, lon, time' in str(wrong.exception)
    wrong = runner.invoke(app, [*arguments, "--region", "lat=5"])
    assert "lat=100:200" in str(wrong.exception)


def particles(path: Path, count: int = 2_000_000) -> Any:
    values = np.random.default_rng(5).random(count).astype("f4")
    cube = np.random.default_rng(6).random((20, 30, 40))
    with h5py.File(path, "w") as target:
        target["x"] = values
        target["cube"] = cube
    return values, cube


def test_points_of_which_replicas_have_some_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "particles.h5"
    values, _ = particles(path)
    random = np.random.default_rng(8)
    hot = np.sort(random.choice(len(values), 1500, replace=False))
    hotter = hot[::5]
    done = bf.optimize(path, "400%", selections={"x": [hot, hotter]})
    assert done.made
    served = 0
    with bf.open(path) as store:
        array = store["x"]
        for positions in (
            hot,
            hotter,
            hot[200:900],
            hot[::-1],
            np.concatenate([hot, hot[:7]]),
            random.permutation(hot),
            np.arange(0, 2_000_000, 300),
            np.sort(random.choice(len(values), 4000, replace=False)),
            np.array([], dtype=int),
            np.array([0]),
        ):
            np.testing.assert_array_equal(array.oindex[positions], values[positions])
            np.testing.assert_array_equal(array.vindex[positions], values[positions])
            served += array.explain((positions,)).to_dict().get("replica_bytes", 0)
        np.testing.assert_array_equal(array[100:90_000:7], values[100:90_000:7])
    assert served > 0


def test_points_of_an_array_with_a_fill_value_come_from_their_replica(tmp_path: Path) -> None:
    path = tmp_path / "particles.nc"
    values = np.random.default_rng(5).random(500_000).astype("f4")
    with h5py.File(path, "w") as target:
        target.create_dataset("x", data=values, fillvalue=9.96921e36)
    hot = np.sort(np.random.default_rng(8).choice(len(values), 1500, replace=False))
    bf.optimize(path, "400%", selections={"x": [hot]})
    with bf.open(path) as store:
        assert store["x"].explain((hot,)).to_dict()["replica_bytes"] == 4 * len(hot)
        np.testing.assert_array_equal(store["x"].oindex[hot], values[hot])


def test_points_of_a_cube_come_from_a_replica_and_the_rest_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "particles.h5"
    _, cube = particles(path)
    random = np.random.default_rng(9)
    coordinates = [random.integers(0, size, 800) for size in cube.shape]
    bf.optimize(path, "400%", selections={"cube": [{"points": tuple(coordinates)}]})
    with bf.open(path) as store:
        array = store["cube"]
        for part in (slice(None), slice(100, 500), slice(None, None, -1)):
            some = tuple(axis[part] for axis in coordinates)
            np.testing.assert_array_equal(array.vindex[some], cube[some])
        mixed = tuple(
            np.concatenate([axis[:300], random.integers(0, size, 300)])
            for axis, size in zip(coordinates, cube.shape, strict=True)
        )
        np.testing.assert_array_equal(array.vindex[mixed], cube[mixed])
        np.testing.assert_array_equal(array[3, 4:9], cube[3, 4:9])


def test_a_replica_that_does_not_help_is_found_out_once_and_one_that_does_goes_on(
    file: Path,
) -> None:
    series_replica(file, region={"lat": (0, 20)})
    expected = values_of(file)
    with bf.open(file) as store:
        array = store["t"]
        for step in range(3):
            np.testing.assert_array_equal(array[step], expected[step])
            np.testing.assert_array_equal(array[:, step, 7], expected[:, step, 7])
            np.testing.assert_array_equal(array[:, 39 - step, 7], expected[:, 39 - step, 7])
        assert used(array, np.s_[:, 5, 7]) and not used(array, np.s_[5])
        shutil.rmtree(replicas_of(file)[0])
        for step in range(3):
            np.testing.assert_array_equal(array[:, step, 9], expected[:, step, 9])


def test_rows_of_labels_lie_one_after_the_other_in_a_replica(file: Path) -> None:
    expected = values_of(file, "chunked")
    rows = np.concatenate([np.arange(3, 9), np.arange(40, 47), np.arange(100, 103)])
    others = np.concatenate([np.arange(20, 25), np.arange(60, 66)])
    done = bf.optimize(file, "400%", selections={"chunked": [(rows,), (others,)]})
    assert done.made
    with bf.open(file) as store:
        array = store["chunked"]
        for some in (rows, others, np.concatenate([rows, others]), rows[::-1], [2, 5, 41, 59, 60]):
            np.testing.assert_array_equal(array.oindex[some], expected[some])
        assert array.explain((rows,)).to_dict()["replica_bytes"] == expected[rows].nbytes
        mixed = np.array([2, 5, 41, 59, 60])
        np.testing.assert_array_equal(array.oindex[mixed, 3:9], expected[mixed, 3:9])


def test_selections_come_from_files(file: Path) -> None:
    runner = CliRunner()
    listed = file.with_name("reads.json")
    listed.write_text(json.dumps({"chunked": [":,3,4", "5:9,:,:"]}))
    arguments = ["optimize", str(file), "--budget", "400%", "--json", "--selections"]
    made = runner.invoke(app, [*arguments, str(listed)])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["done"]["made"]
    positions = file.with_name("reads.npz")
    np.savez(positions, chunked=np.array([1, 5, 90]))
    made = runner.invoke(app, [*arguments, str(positions), "--dry-run"])
    assert made.exit_code == 0, made.output
    listed.write_text("[")
    wrong = runner.invoke(app, [*arguments, str(listed)])
    assert "reads.json" in str(wrong.exception)


def test_a_file_of_selections_without_bytes_is_named(file: Path) -> None:
    """An EOFError inside a command would count as Ctrl-D."""
    empty = file.with_name("empty.npz")
    empty.touch()
    said = CliRunner().invoke(app, ["optimize", str(file), "--selections", str(empty)])
    assert isinstance(said.exception, bf.InvalidArgumentError)
    assert str(empty) in str(said.exception)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A store of maps, each in a shard of its own."""
    path = tmp_path / "run.zarr"
    values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    with bf.create(path) as store:
        store.create_array(
            "g/t", data=values, dims=("time", "lat", "lon"), chunks=(1, 40, 50), shards=(10, 40, 50)
        )
    return path


def test_reads_of_a_store_with_replicas_are_those_of_the_store(store_path: Path) -> None:
    done = bf.optimize(store_path, "400%", reads={"time": 1}, region={"lat": (5, 30)})
    assert done.made
    with bf.open(store_path) as store:
        array, expected = store["g/t"], bf.open(store_path, replicas=False)["g/t"][:]
        assert used(array, np.s_[:, 7, 9])
        for selection in selections(100):
            np.testing.assert_array_equal(array[selection], expected[selection])


@pytest.mark.parametrize("how", ["direct", "session", "other process"])
def test_what_is_written_over_a_replica_counts_and_the_rest_of_it_too(
    store_path: Path, how: str
) -> None:
    assert bf.optimize(store_path, "400%", reads={"time": 1}).made
    reader = bf.open(store_path)
    array = reader["g/t"]
    expected = array[:]
    assert array.explain(np.s_[:, 7, 9]).to_dict()["replica_bytes"] == 4 * 120
    if how == "direct":
        with bf.open(store_path, "r+") as writer:
            writer["g/t"][33, 7] = -1
    elif how == "session":
        with (
            bf.open(store_path, "r+") as writer,
            writer.session(settle="later") as session,
        ):
            session.write("g/t", np.full((1, 1, 50), -1, "f4"), start=(33, 7, 0))
            session.commit()
    else:
        program = "import sys, bedform as bf; bf.open(sys.argv[1], 'r+')['g/t'][33, 7] = -1"
        subprocess.run([sys.executable, "-c", program, str(store_path)], check=True)
    expected[33, 7] = -1
    np.testing.assert_array_equal(array[:, 7, 9], expected[:, 7, 9])
    np.testing.assert_array_equal(array[20:50, 6:9], expected[20:50, 6:9])
    explained = array.explain(np.s_[:, 7, 9]).to_dict()
    assert explained["replica_bytes"] == 4 * 110, "of one shard the replica is no copy any more"
    if how == "session":
        with bf.open(store_path, "r+") as writer:
            writer.settle()
        np.testing.assert_array_equal(array[:, 7, 9], expected[:, 7, 9])
    again = bf.optimize(store_path, "400%", reads={"time": 1})
    assert again.made
    with bf.open(store_path) as store:
        assert store["g/t"].explain(np.s_[:, 7, 9]).to_dict()["replica_bytes"] == 4 * 120
        np.testing.assert_array_equal(store["g/t"][:, 7, 9], expected[:, 7, 9])


def test_a_store_that_grew_keeps_its_replicas(store_path: Path) -> None:
    bf.optimize(store_path, "400%", reads={"time": 1})
    with bf.open(store_path, "r+") as writer:
        writer["g/t"].append(np.full((25, 40, 50), 7, "f4"))
    with bf.open(store_path) as store:
        series = store["g/t"][:, 7, 9]
        assert store["g/t"].explain(np.s_[:, 7, 9]).to_dict()["replica_bytes"] == 4 * 120
    assert series.shape == (145,)
    assert (series[120:] == 7).all()


def test_another_array_in_the_place_of_one_has_no_replicas(store_path: Path) -> None:
    bf.optimize(store_path, "400%", reads={"time": 1})
    with bf.open(store_path, "r+") as writer:
        del writer["g/t"]
        writer.create_array("g/t", SHAPE, "f4", dims=("time", "lat", "lon"), fill_value=3)
    with bf.open(store_path) as store:
        assert (store["g/t"][:, 7, 9] == 3).all()
        assert not used(store["g/t"], np.s_[:, 7, 9])


def test_a_snapshot_reads_its_moment_whatever_replicas_there_are(store_path: Path) -> None:
    with bf.open(store_path) as store, store.snapshot() as then:
        before = then["g/t"][:, 7, 9]
        with bf.open(store_path, "r+") as writer, writer.session(settle="later") as session:
            session.write("g/t", np.full((60, 1, 50), -1, "f4"), start=(0, 7, 0))
            session.commit()
        bf.optimize(store_path, "400%", reads={"time": 1})
        np.testing.assert_array_equal(then["g/t"][:, 7, 9], before)
    with bf.open(store_path) as store:
        assert (store["g/t"][:60, 7, 9] == -1).all()
        np.testing.assert_array_equal(store["g/t"][60:, 7, 9], before[60:])


def test_random_writes_beside_replicas_are_always_seen(store_path: Path) -> None:
    random = np.random.default_rng(11)
    bf.optimize(store_path, "400%", reads={"time": 1})
    expected = bf.open(store_path, replicas=False)["g/t"][:]
    reader = bf.open(store_path)["g/t"]
    for round_ in range(30):
        start = [int(random.integers(0, size)) for size in SHAPE]
        box = tuple(
            slice(first, min(size, first + int(random.integers(1, 9))))
            for first, size in zip(start, SHAPE, strict=True)
        )
        with bf.open(store_path, "r+") as writer:
            if round_ % 3:
                writer["g/t"][box] = round_
            else:
                shape = tuple(axis.stop - axis.start for axis in box)
                first = tuple(axis.start for axis in box)
                with writer.session(settle="later" if round_ % 2 else "end") as session:
                    session.write("g/t", np.full(shape, round_, "f4"), start=first)
                    session.commit()
        expected[box] = round_
        for selection in (
            np.s_[:, 7, 9],
            (slice(None), box[1], box[2]),
            box,
            np.s_[::7, 3:5, ::-1],
        ):
            np.testing.assert_array_equal(reader[selection], expected[selection])


@pytest.mark.parametrize("region", [{}, {"lat": (3, 38), "lon": (1, 50)}])
def test_blocks_of_dask_follow_the_replica_of_what_is_read_most(
    file: Path, region: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedform._dask_blocks.BLOCK_BYTES_MAX", 64 << 10)
    block_shape.cache_clear()
    series_replica(file, region=region)
    expected = values_of(file, "chunked")
    with xr.open_dataset(file, engine="bedform", chunks={}, decode_cf=False) as opened:
        array = opened["chunked"]
        time, lat, lon = array.chunks
        assert len(time) == 1, "a task has all of a series"
        assert len(lat) * len(lon) > 1
        for lengths, name in ((lat, "lat"), (lon, "lon")):
            first = region.get(name, (0, 0))[0]
            assert first in {0, *np.cumsum(lengths).tolist()}
        np.testing.assert_array_equal(array.compute(), expected)
    block_shape.cache_clear()


def test_blocks_of_dask_stay_those_of_the_file_where_a_replica_has_a_small_part(file: Path) -> None:
    with xr.open_dataset(file, engine="bedform", chunks={}) as opened:
        before = opened["chunked"].chunks
    series_replica(file, region={"lat": (0, 10)})
    with xr.open_dataset(file, engine="bedform", chunks={}) as opened:
        assert opened["chunked"].chunks == before


def test_blocks_of_dask_follow_the_replica_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedform._dask_blocks.BLOCK_BYTES_MAX", 64 << 10)
    block_shape.cache_clear()
    path = tmp_path / "maps.zarr"
    values = np.random.default_rng(3).integers(0, 10_000, SHAPE).astype("f4")
    maps = bf.Regular(chunks=(1, 40, 50), shards=(20, 40, 50))
    with bf.create(path) as store:
        store.create_array("t", data=values, dims=("time", "lat", "lon"), layout=maps)
    assert series_replica(path).made
    with xr.open_dataset(path, engine="bedform", chunks={}) as opened:
        assert len(opened["t"].chunks[0]) == 1, "a task has all of a series"
        np.testing.assert_array_equal(opened["t"].compute(), values)
    block_shape.cache_clear()
