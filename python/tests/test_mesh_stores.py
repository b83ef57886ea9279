"""Meshes in stores have the elements, boxes and facts of the plotfiles that they were made of."""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from plotfiles import any_mesh, uniform, write
from test_mesh import any_region
from test_mesh_replicas import boxes_mesh

import bedform as bf
from bedform import _mesh_sizes
from bedform._mesh_convert import MeshConversion
from bedform._text import format_bytes
from bedform.cli import run

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = ("auto", "hilbert", "z", "clusters", "given")


def converted(mesh: Any, place: Path, **options: Any) -> tuple[bf.RefinedMesh, bf.RefinedMesh]:
    """Returns a mesh as a plotfile and as a store."""
    path = write(mesh, place / "plt00007")
    bf.convert(path, place / "run.zarr", **options)
    return bf.open(path), bf.open(place / "run.zarr")


def elements_of(store: Path, step: str, level: int, name: str, region: tuple[slice, ...]) -> Any:
    """Reads what a level stores in a region, by zarr-python, as the page on formats says."""
    group = zarr.open_group(store, mode="r")[step]
    record = group.attrs["bedform_mesh"]
    array = next(one["array"] for one in record["components"] if one["name"] == name)
    stored, rank = group[f"level_{level}"], len(record["lower"])
    found = np.full([part.stop - part.start for part in region], np.nan)
    for row in stored["sub_boxes"][:]:
        start, stop, offset = row[:rank], row[rank : 2 * rank], row[2 * rank]
        shape = stop - start
        low = np.maximum(start, [part.start for part in region])
        high = np.minimum(stop, [part.stop for part in region])
        if (low < high).all():
            box = stored[array][offset : offset + shape.prod()].reshape(shape)
            first = [part.start for part in region]
            target = tuple(map(slice, low - first, high - first))
            found[target] = box[tuple(map(slice, low - start, high - start))]
    return found


@pytest.mark.parametrize("seed", range(24))
def test_regions_of_a_store_have_the_elements_of_the_plotfile(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    sub_box = [chance.randint(1, 9) for _ in mesh.levels[0].shape]
    plotfile, store = converted(
        mesh, tmp_path, order=ORDERS[seed % 5], sub_box=None if seed % 3 == 0 else sub_box
    )
    assert store.kind == "amr"
    assert (list(store), store.levels, store.time) == (list(plotfile), len(mesh.levels), 0.25)
    assert store._facts == plotfile._facts
    assert store.steps == {"plt00007": 0.25}
    for level, kept in enumerate(mesh.levels):
        np.testing.assert_array_equal(store.boxes(level), plotfile.boxes(level))
        for number, name in enumerate(mesh.names):
            expected = uniform(mesh, number, level, -1)
            np.testing.assert_array_equal(store[name].read(level=level, fill=-1), expected)
            for _ in range(3):
                region = any_region(chance, kept.shape)
                part = store[name].read(region, level=level, fill=-1)
                np.testing.assert_array_equal(part, expected[region])


@pytest.mark.parametrize("seed", range(6))
def test_zarr_python_reads_a_region_by_the_sub_boxes(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    plotfile, _ = converted(mesh, tmp_path, sub_box=[3] * len(mesh.levels[0].shape))
    name = mesh.names[-1]
    for level, kept in enumerate(mesh.levels):
        region = any_region(chance, kept.shape)
        found = elements_of(tmp_path / "run.zarr", "plt00007", level, name, region)
        numbers = range(len(plotfile.boxes(level)))
        low = [[part.start for part in region]] * len(numbers)
        high = [[part.stop for part in region]] * len(numbers)
        starts, stops = (plotfile.boxes(level)[:, side] for side in (0, 1))
        starts, stops = np.maximum(starts, low), np.minimum(stops, high)
        inside = (starts < stops).all(axis=1)
        parts = plotfile[name].parts(level, np.flatnonzero(inside), starts[inside], stops[inside])
        expected = np.full(found.shape, np.nan)
        for start, part in zip(starts[inside], parts, strict=True):
            at = start - low[0]
            expected[tuple(map(slice, at, at + part.shape))] = part
        np.testing.assert_array_equal(found, expected)


def test_sub_boxes_have_each_cell_of_the_boxes_once(tmp_path: Path) -> None:
    _, store = converted(any_mesh(3), tmp_path, sub_box=[2] * len(any_mesh(3).levels[0].shape))
    for level in range(store.levels):
        counts = np.zeros(store.domain(level)[1], int)
        for start, stop in store.grids(level):
            counts[tuple(map(slice, start, stop))] += 1
            # Whole cells of the level before.
            ratio = store.ratio(level - 1) if level else 1
            assert ((stop - start) <= np.maximum(2, ratio)).all()
        for start, stop in store.boxes(level):
            counts[tuple(map(slice, start, stop))] -= 1
        assert not counts.any()


def test_an_explained_read_of_a_store_counts_sub_boxes(tmp_path: Path) -> None:
    _, store = converted(any_mesh(0), tmp_path)
    plan = store["density"].explain(level=store.levels - 1)
    lines = str(plan).splitlines()[-store.levels :]
    for level, line in zip(plan.to_dict()["levels"], lines, strict=True):
        words = "1 sub-box," if level["grids"] == 1 else f"{level['grids']} sub-boxes,"
        assert words in line


def test_commits_over_a_mesh_are_read_before_they_are_settled(tmp_path: Path) -> None:
    mesh = any_mesh(5)
    _, before = converted(mesh, tmp_path, sub_box=[4] * len(mesh.levels[0].shape))
    level, name = len(mesh.levels) - 1, mesh.names[0]
    whole = before[name].read(level=level)
    store = bf.open(tmp_path / "run.zarr", "r+")
    path = f"plt00007/level_{level}/{before._facts['components'][0]}"
    path = path if path in store else f"plt00007/level_{level}/component_0"
    length = store[path].shape[0]
    low, high = length // 5, length // 2
    with store.session(settle="later") as session:
        session.write(path, np.arange(low, high) + 0.5, start=low)
    after = bf.open(tmp_path / "run.zarr")[name]
    values = store[path][...]
    assert (values[low:high] == np.arange(low, high) + 0.5).all()
    changed = after.read(level=level) != whole
    rows = np.isin(after.read(level=level), values[low:high])
    np.testing.assert_array_equal(changed & ~np.isnan(whole), rows & ~np.isnan(whole))
    assert rows.any()
    store.settle()
    settled = bf.open(tmp_path / "run.zarr")[name].read(level=level)
    np.testing.assert_array_equal(settled, after.read(level=level))


def test_each_plotfile_becomes_a_step_and_later_ones_are_added(tmp_path: Path) -> None:
    for number in range(3):
        mesh = any_mesh(number)
        write(mesh, tmp_path / f"plt{number:05}")
    shutil.move(tmp_path / "plt00002", tmp_path / "later")
    target = tmp_path / "run.zarr"
    done = bf.convert(str(tmp_path / "plt*"), target, verify=True)
    assert isinstance(done, MeshConversion)
    assert (done.steps, done.kept, done.verified) == (("plt00000", "plt00001"), (), True)
    shutil.move(tmp_path / "later", tmp_path / "plt00002")
    planned = bf.convert(str(tmp_path / "plt*"), target, dry_run=True)
    assert isinstance(planned, MeshConversion)
    assert not planned.complete
    assert list(bf.open(target).steps) == ["plt00000", "plt00001"]
    done = bf.convert(str(tmp_path / "plt*"), target)
    assert isinstance(done, MeshConversion)
    assert (done.steps, done.kept) == (("plt00002",), ("plt00000", "plt00001"))
    opened = bf.open(target)
    assert list(opened.steps) == ["plt00000", "plt00001", "plt00002"]
    for number in range(3):
        mesh, step = any_mesh(number), opened.step(f"plt{number:05}")
        found = step[mesh.names[0]].read(level=0, fill=-1)
        np.testing.assert_array_equal(found, uniform(mesh, 0, 0, -1))
        alone = bf.open(f"{target}/plt{number:05}")
        assert alone._facts == step._facts
    with pytest.raises(bf.NotFoundError, match="no step 'plt3'"):
        opened.step("plt3")


def test_a_store_of_meshes_is_a_store_for_the_calls_on_stores(tmp_path: Path) -> None:
    converted(any_mesh(0), tmp_path)
    store = bf.open(tmp_path / "run.zarr", "r+")
    assert isinstance(store, bf.Store)
    assert store.verify() == []
    assert "plt00007/level_0/boxes" in store.arrays()


def test_a_mesh_of_a_store_is_converted_step_by_step(tmp_path: Path) -> None:
    mesh = any_mesh(4)
    converted(mesh, tmp_path)
    cut = [3] * len(mesh.levels[0].shape)
    bf.convert(tmp_path / "run.zarr", tmp_path / "other.zarr", sub_box=cut, verify=True)
    found = bf.open(tmp_path / "other.zarr")[mesh.names[0]].read(level=0, fill=-1)
    np.testing.assert_array_equal(found, uniform(mesh, 0, 0, -1))


@pytest.mark.parametrize(
    "names", [["a/b", "boxes"], ["Rho", "rho"], [" two words ", ".."], ["component_1", "sub_boxes"]]
)
def test_components_may_have_any_names(names: list[str], tmp_path: Path) -> None:
    mesh = any_mesh(next(seed for seed in range(40) if len(any_mesh(seed).names) == 2))
    mesh.names[:] = [name.strip() for name in names]
    _, store = converted(mesh, tmp_path)
    assert list(store) == mesh.names
    for number, name in enumerate(mesh.names):
        expected = uniform(mesh, number, 0, -1)
        np.testing.assert_array_equal(store[name].read(level=0, fill=-1), expected)


def test_a_step_of_the_same_name_that_differs_is_refused(tmp_path: Path) -> None:
    converted(any_mesh(0), tmp_path)
    other = write(any_mesh(1), tmp_path / "elsewhere" / "plt00007")
    with pytest.raises(bf.ExistsError, match="another mesh as step 'plt00007'"):
        bf.convert(other, tmp_path / "run.zarr")


def test_targets_that_are_no_stores_of_meshes_are_refused(tmp_path: Path) -> None:
    path = write(any_mesh(0), tmp_path / "plt")
    bf.create(tmp_path / "arrays.zarr").create_array("a", (3,), "i4", ("x",))
    with pytest.raises(bf.ExistsError, match="no store of meshes"):
        bf.convert(path, tmp_path / "arrays.zarr")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exclude": ["x"]}, "exclude is for arrays"),
        ({"order": "spiral"}, "order \"spiral\": 'auto'"),
        ({"sub_box": [0] * 3}, "sub_box"),
        ({"sub_box": [4] * 4}, "sub-boxes of 4 axes"),
        ({"codecs": ["nonsense"]}, "nonsense"),
    ],
)
def test_options_that_do_not_fit_leave_nothing(
    options: dict[str, Any], text: str, tmp_path: Path
) -> None:
    path = write(any_mesh(0), tmp_path / "plt")
    with pytest.raises(bf.BedformError, match=text):
        bf.convert(path, tmp_path / "run.zarr", **options)
    assert [one.name for one in tmp_path.iterdir()] == ["plt"]


def test_options_of_meshes_are_refused_for_arrays(tmp_path: Path) -> None:
    bf.create(tmp_path / "arrays.zarr").create_array("a", (3,), "i4", ("x",))
    with pytest.raises(bf.InvalidArgumentError, match="order is for refined meshes"):
        bf.convert(tmp_path / "arrays.zarr", tmp_path / "run.zarr", order="z")


def test_an_interrupted_step_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    first, second = (write(any_mesh(seed), tmp_path / f"plt{seed}") for seed in (0, 1))

    def stop(done: int, _: int) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.convert(first, tmp_path / "run.zarr", progress=stop)
    assert not (tmp_path / "run.zarr").exists()
    bf.convert(first, tmp_path / "run.zarr")
    with pytest.raises(KeyboardInterrupt):
        bf.convert(second, tmp_path / "run.zarr", progress=stop)
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plt0"]
    assert bf.open(tmp_path / "run.zarr", "r+").verify() == []
    bf.convert(second, tmp_path / "run.zarr", verify=True)
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plt0", "plt1"]


def test_a_damaged_chunk_is_an_error_and_is_reported(tmp_path: Path) -> None:
    mesh = any_mesh(0)
    _, store = converted(mesh, tmp_path)
    shards = sorted((tmp_path / "run.zarr" / "plt00007" / "level_0").rglob("c/0"))
    shard = next(one for one in shards if "boxes" not in str(one))
    content = bytearray(shard.read_bytes())
    content[5] ^= 0xFF
    shard.write_bytes(content)
    with pytest.raises(bf.CorruptError):
        for name in store:
            bf.open(tmp_path / "run.zarr")[name].read(level=0)
    assert bf.open(tmp_path / "run.zarr", "r+").verify() != []


def changed_boxes(place: Path, change: Any) -> None:
    """Changes the rows of sub-boxes of level 0."""
    array = zarr.open_array(place / "run.zarr" / "plt00007" / "level_0" / "sub_boxes", mode="r+")
    rows = array[:]
    change(rows)
    array[:] = rows


@pytest.mark.parametrize(
    ("column", "number"), [(0, -1), (0, 1 << 40), (-2, -5), (-2, 1 << 50), (-1, 99), (-1, -1)]
)
def test_damaged_sub_boxes_are_errors(column: int, number: int, tmp_path: Path) -> None:
    mesh = any_mesh(0)
    converted(mesh, tmp_path)

    def change(rows: np.ndarray[Any, Any]) -> None:
        rows[0, column] = number

    changed_boxes(tmp_path, change)
    with pytest.raises(bf.BedformError, match=r"sub-box|sub_boxes|box|offset"):
        bf.open(tmp_path / "run.zarr")[mesh.names[0]].read(level=0)


def test_sub_boxes_that_overlap_are_errors(tmp_path: Path) -> None:
    mesh = any_mesh(0)
    converted(mesh, tmp_path, sub_box=[2] * len(mesh.levels[0].shape))

    def change(rows: np.ndarray[Any, Any]) -> None:
        same = rows[:, -1] == rows[0, -1]
        rows[same] = rows[0]

    changed_boxes(tmp_path, change)
    with pytest.raises(bf.CorruptError, match="sub-box"):
        bf.open(tmp_path / "run.zarr")


@pytest.mark.parametrize("pointer", ["version", "levels", "upper", "lower", "sub_box"])
def test_a_damaged_record_is_an_error(pointer: str, tmp_path: Path) -> None:
    converted(any_mesh(0), tmp_path)
    store = bf.open(tmp_path / "run.zarr", "r+")
    record = json.loads(json.dumps(dict(store["plt00007"].attributes)["bedform_mesh"]))
    record[pointer] = 7 if pointer == "version" else []
    store["plt00007"].attributes["bedform_mesh"] = record
    with pytest.raises(bf.CorruptError, match="bedform_mesh"):
        bf.open(tmp_path / "run.zarr")


def test_coordinates_are_kept(tmp_path: Path) -> None:
    path = write(any_mesh(0), tmp_path / "plt00007")
    lines = (path / "Header").read_text("utf-8").split("\n")
    place = next(at for at in range(5, len(lines) - 1) if lines[at : at + 2] == ["0", "0"])
    lines[place] = "1"
    (path / "Header").write_text("\n".join(lines), "utf-8")
    bf.convert(path, tmp_path / "run.zarr")
    found = (bf.open(place).coordinates for place in (path, tmp_path / "run.zarr"))
    assert list(found) == ["cylindrical", "cylindrical"]


def test_a_plotfile_that_is_not_complete_is_skipped_and_named(tmp_path: Path) -> None:
    for seed in range(3):
        write(any_mesh(seed), tmp_path / f"plt{seed}")
    (tmp_path / "plt1" / "Header").unlink()
    data = next((tmp_path / "plt2" / "Level_0").glob("Cell_D_*"))
    data.write_bytes(data.read_bytes()[:-9])
    done = bf.convert(str(tmp_path / "plt*"), tmp_path / "run.zarr")
    assert isinstance(done, MeshConversion)
    assert (done.steps, list(done.skipped)) == (("plt0",), ["plt1", "plt2"])
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plt0"]
    with pytest.raises(bf.CorruptError):
        bf.convert(tmp_path / "plt2", tmp_path / "run.zarr")


def test_steps_that_are_there_are_compared_if_it_is_asked_for(tmp_path: Path) -> None:
    mesh = any_mesh(0)
    converted(mesh, tmp_path, verify=True)
    data = next((tmp_path / "plt00007" / "Level_0").glob("Cell_D_*"))
    content = bytearray(data.read_bytes())
    last = max(number for number in range(len(content)) if content[number])
    content[last] ^= 1
    data.write_bytes(content)
    bf.convert(tmp_path / "plt00007", tmp_path / "run.zarr")
    if any(mesh.ghosts):
        pytest.skip("the last element is a ghost cell")
    with pytest.raises(bf.CorruptError, match="differs"):
        bf.convert(tmp_path / "plt00007", tmp_path / "run.zarr", verify=True)


def test_a_step_that_a_killed_process_did_not_commit_is_stored_again(tmp_path: Path) -> None:
    first, second = (write(any_mesh(seed), tmp_path / f"plt{seed}") for seed in (0, 1))
    bf.convert(first, tmp_path / "run.zarr")
    before = (tmp_path / "run.zarr" / "zarr.json").read_bytes()
    bf.convert(second, tmp_path / "run.zarr")
    # The commit is the last document that is written.
    (tmp_path / "run.zarr" / "zarr.json").write_bytes(before)
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plt0"]
    done = bf.convert(str(tmp_path / "plt*"), tmp_path / "run.zarr", verify=True)
    assert isinstance(done, MeshConversion)
    assert (done.steps, done.kept) == (("plt1",), ("plt0",))


def test_two_conversions_into_one_store_take_turns(tmp_path: Path) -> None:
    first, second = (write(any_mesh(seed), tmp_path / f"plt{seed}") for seed in (0, 1))

    def other(done: int, _: int) -> None:
        if done:
            with pytest.raises(bf.ConflictError, match="another conversion"):
                bf.convert(second, tmp_path / "run.zarr")

    bf.convert(first, tmp_path / "run.zarr", progress=other)
    bf.convert(second, tmp_path / "run.zarr")
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plt0", "plt1"]
    assert not (tmp_path / ".run.zarr.bedform-partial").exists()


def bytes_below(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def test_bytes_of_steps_and_store_are_those_of_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, count = tmp_path / "run.zarr", 23
    for number in range(count):
        write(any_mesh(number % 3), tmp_path / f"plt{number:02}")
    bf.convert(sorted(tmp_path.glob("plt*")), target)
    mesh = bf.open(target)
    known = mesh.info()
    assert known["stored_bytes"] == bytes_below(target)
    assert known["step_bytes"] == {name: bytes_below(target / name) for name in mesh.steps}
    assert known["log_bytes"] == 0
    plotfile = bf.open(tmp_path / "plt00").info()
    size = bytes_below(tmp_path / "plt00")
    assert (plotfile["stored_bytes"], plotfile["step_bytes"]) == (size, {"plt00": size})
    step = bf.open(target / "plt03").info()
    assert step["stored_bytes"] == known["step_bytes"]["plt03"]

    assert run(["info", str(target)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"stored  {format_bytes(known['stored_bytes'])}" in map(str.strip, lines)
    at = next(number for number, line in enumerate(lines) if line.startswith("step "))
    for line, name in zip(lines[at + 1 : at + 21], list(mesh.steps)[:20], strict=True):
        assert line.split(None, 2) == [name, "0.25", format_bytes(known["step_bytes"][name])]
    assert lines[at + 21] == "and 3 more"

    # No program waits for the sizes of a large store.
    monkeypatch.setattr(_mesh_sizes, "FILES_MAX", 30)
    known = bf.open(target).info()
    assert (known["stored_bytes"], known["not_counted"]) == (None, "more than 30 files")
    assert "step_bytes" not in known
    assert run(["info", str(target)]) == 0
    lines = list(map(str.strip, capsys.readouterr().out.splitlines()))
    assert "stored  not counted: more than 30 files" in lines
    assert lines[at + 1].split() == ["plt00", "0.25"]


def test_bytes_of_commits_in_the_log_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sim.zarr"
    store = bf.create(place)
    store.create_mesh(components=["rho"], shape=(64, 64), lower=(0, 0), upper=(1, 1))
    with store.session(settle="later") as session:
        session.write_boxes("rho", [np.ones((64, 64))], [[0, 0]], [[64, 64]], level=0)
    known = bf.open(place).info()
    assert known["log_bytes"] == bf.open(place, "r+").info()["log"]["bytes"] >= 64 * 64 * 8
    assert known["stored_bytes"] == bytes_below(place) + known["log_bytes"]
    assert run(["info", str(place)]) == 0
    assert f"{format_bytes(known['log_bytes'])} of them in the log" in capsys.readouterr().out


def test_sizes_are_counted_past_files_that_vanish_and_not_at_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "a/loop").symlink_to(tmp_path)
    loop = (tmp_path / "a/loop").lstat().st_size
    found = _mesh_sizes.mesh_sizes(str(tmp_path), ["a", "a/b", "none", ""])
    assert found.steps == {"a": 8 + loop, "a/b": 5, "none": 0, "": 9 + loop}
    assert found.total == 9 + loop
    assert _mesh_sizes.mesh_sizes(str(tmp_path / "e"), [""]) == (1, {"": 1}, "")
    assert _mesh_sizes.mesh_sizes("s3://bucket/run.zarr", ["a"]).total is None
    gone = _mesh_sizes.mesh_sizes(str(tmp_path / "gone"), ["a"])
    assert gone.total is None
    assert "No such file" in gone.not_counted
    scandir = os.scandir

    def without_a_directory(path: str) -> Any:
        if path.endswith("/b"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(_mesh_sizes.os, "scandir", without_a_directory)
    assert _mesh_sizes.mesh_sizes(str(tmp_path), ["a"]).total == 4 + loop


def test_xarray_opens_the_groups_of_a_store(tmp_path: Path) -> None:
    converted(any_mesh(0), tmp_path)
    level = xr.open_zarr(tmp_path / "run.zarr" / "plt00007" / "level_0", consolidated=False)
    assert {"boxes", "sub_boxes"} <= set(level)


def test_a_store_has_the_chosen_components_in_their_order(tmp_path: Path) -> None:
    seed = next(seed for seed in range(99) if len(any_mesh(seed).names) == 3)
    mesh = any_mesh(seed)
    chosen = [mesh.names[2], mesh.names[0]]
    plotfile, store = converted(mesh, tmp_path, components=chosen)
    assert list(store) == chosen
    for number in (2, 0):
        level = store.levels - 1
        expected = uniform(mesh, number, level, -1)
        found = store[mesh.names[number]].read(level=level, fill=-1)
        np.testing.assert_array_equal(found, expected)
    source, target = plotfile.path, tmp_path / "run.zarr"
    again = bf.convert(source, target, components=chosen, verify=True)
    assert (again.kept, again.verified) == (("plt00007",), True)
    with pytest.raises(bf.ExistsError, match=r"with the components .*, not "):
        bf.convert(source, target)
    with pytest.raises(bf.NotFoundError, match="no component"):
        bf.convert(source, tmp_path / "other.zarr", components="entropy")
    assert not (tmp_path / "other.zarr").exists()


@pytest.mark.parametrize(
    ("reads", "thin"), [({("y", "z"): 1}, [0]), ({("x",): 3, ("x", "z"): 1}, [1])]
)
def test_expected_reads_choose_the_sub_boxes(
    reads: dict[Any, float], thin: list[int], tmp_path: Path
) -> None:
    mesh = boxes_mesh()
    path = write(mesh, tmp_path / "plt00007")
    bf.convert(path, tmp_path / "run.zarr", reads=reads)
    store = bf.open(tmp_path / "run.zarr")
    record = zarr.open_group(tmp_path / "run.zarr", mode="r")["plt00007"].attrs["bedform_mesh"]
    for axis in thin:
        assert record["sub_box"][axis] < 16
    region = np.s_[30:70, 5:9, 60]
    for number, name in enumerate(mesh.names):
        expected = uniform(mesh, number, 1, -1)[region]
        np.testing.assert_array_equal(store[name].read(region, level=1, fill=-1), expected)
    plane = np.s_[50] if thin == [0] else np.s_[:, 50, 50]
    cubes = tmp_path / "cubes.zarr"
    bf.convert(path, cubes)
    ours, theirs = (
        one["density"].explain(plane, level=1).to_dict() for one in (store, bf.open(cubes))
    )
    assert ours["bytes"] < theirs["bytes"]


def test_given_sub_boxes_count_before_expected_reads(tmp_path: Path) -> None:
    path = write(boxes_mesh(), tmp_path / "plt00007")
    bf.convert(path, tmp_path / "run.zarr", reads={("y", "z"): 1}, sub_box=[4, 4, 4], order="given")
    record = zarr.open_group(tmp_path / "run.zarr", mode="r")["plt00007"].attrs["bedform_mesh"]
    assert (record["sub_box"], record["order"]) == ([4, 4, 4], "given")
    with pytest.raises(bf.InvalidArgumentError, match="the dimensions are x, y, z"):
        bf.convert(path, tmp_path / "other.zarr", reads={("time",): 1})
    assert not (tmp_path / "other.zarr").exists()


def test_files_beside_plotfiles_are_no_steps(tmp_path: Path) -> None:
    for name in ("plt00001", "plt00002"):
        write(any_mesh(1), tmp_path / name)
    for name in ("plt00001.density.png", "plt00002.report.html", "plt_notes"):
        (tmp_path / name).write_text("no plotfile")
    done = bf.convert(str(tmp_path / "plt*"), tmp_path / "run.zarr")
    assert done.steps == ("plt00001", "plt00002")
    assert list(done.skipped) == ["plt_notes"]
    assert "a plotfile is a directory" in done.skipped["plt_notes"]
