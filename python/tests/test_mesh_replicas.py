"""Reads of plotfiles and Chombo files are recorded, learnt, and served by replicas."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotfiles import Level, Mesh, uniform, write
from test_mesh import any_region
from typer.testing import CliRunner

import bedform as bf
from bedform._mesh_jobs import mesh_replicas_of
from bedform.cli import app

#: Cells of a box along each axis, of level 0 and of level 1.
BOX = 16
PLANES = {("y", "z"): 1}


def boxes_mesh(*, names: tuple[str, ...] = ("density", "energy"), seed: int = 0) -> Mesh:
    """Returns a mesh of 64 boxes, with 64 boxes of a finer level in the middle."""
    numbers = np.random.default_rng(seed)
    levels = [Level([2] * 3, [64] * 3, []), Level([], [128] * 3, [])]
    for level, first, stop in ((0, 0, 64), (1, 32, 96)):
        sides = range(first, stop, BOX)
        for start in itertools.product(sides, sides, sides):
            levels[level].boxes.append((list(start), [at + BOX for at in start]))
            values = numbers.random((len(names), BOX, BOX, BOX))
            levels[level].values.append(values)
    return Mesh(list(names), "<f8", [0] * 3, levels, [0] * 3, 1)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plotfile of which planes at one x take many requests."""
    return write(boxes_mesh(), tmp_path_factory.mktemp("mesh") / "plt00010")


@pytest.fixture
def plotfile(large: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(large, tmp_path / "plt00010"))


def served(path: Path, region: Any, name: str = "density") -> str | None:
    """Returns the replica that serves a read of the finest level."""
    found = bf.open(path)[name].explain(region, level=1).to_dict().get("replica")
    assert found is None or isinstance(found, str)
    return found


def test_reads_of_a_watched_plotfile_are_learnt_by_component_and_level(plotfile: Path) -> None:
    bf.watch(plotfile)
    density = bf.open(plotfile)["density"]
    for at in range(6):
        density.read(np.s_[at], level=1)
    for _ in density.pieces(np.s_[:8, :8, 2:3], level=0):
        pass
    density.slice(axis="x", at=0.5, level=1)
    learned = bf.learn(plotfile)["knowledge"]["arrays"]
    assert set(learned) == {"level_0/density", "level_1/density"}
    fine = learned["level_1/density"]
    assert fine["shape"] == [128] * 3
    assert [(kind["counts"], kind["reads"]) for kind in fine["kinds"]] == [([1, 128, 128], 7)]
    assert fine["read"]["bytes"] == 7 * 128 * 128 * 8
    assert learned["level_0/density"]["kinds"][0]["counts"] == [8, 8, 1]


def test_parts_of_boxes_count_as_the_smallest_region_with_them(plotfile: Path) -> None:
    bf.watch(plotfile)
    density = bf.open(plotfile)["density"]
    density.parts(0, [0, 1], [[3, 0, 0], [3, 0, 16]], [[4, 16, 16], [4, 16, 32]])
    learned = bf.learn(plotfile)["knowledge"]["arrays"]["level_0/density"]
    assert learned["kinds"][0]["counts"] == [1, 16, 32]


def test_nothing_is_recorded_of_an_unwatched_plotfile(plotfile: Path) -> None:
    bf.open(plotfile)["density"].read(np.s_[0], level=1)
    with pytest.raises(bf.NotFoundError, match="bedform watch"):
        bf.learn(plotfile)


def test_a_conversion_is_no_recorded_read(plotfile: Path, tmp_path: Path) -> None:
    bf.watch(plotfile)
    bf.convert(plotfile, tmp_path / "run.zarr", verify=True)
    with pytest.raises(bf.NotFoundError, match="no reads are recorded"):
        bf.learn(plotfile)


def test_planes_are_served_by_a_replica_with_the_same_elements(plotfile: Path) -> None:
    bf.watch(plotfile)
    density = bf.open(plotfile)["density"]
    for at in range(0, 128, 8):
        density.read(np.s_[at], level=1)
    bf.learn(plotfile)
    done = bf.optimize(plotfile, "200%")
    assert [one["component"] for one in done.plan["make"]] == ["density"]
    assert done.plan["make"][0]["chunks"][0] < done.plan["make"][0]["chunks"][1]
    kind = done.plan["reads"][0]
    assert kind["seconds_then"] < kind["seconds_now"] == kind["seconds_of_source"]
    assert len(done.made) == 1
    mesh = bf.open(plotfile)
    assert served(plotfile, np.s_[70]) == done.made[0]["id"]
    assert f"replica           {done.made[0]['id']}" in str(mesh["density"].explain(70, level=1))
    assert served(plotfile, np.s_[70], "energy") is None
    expected = boxes_mesh()
    for level in (0, 1):
        whole = uniform(expected, 0, level, -1)
        np.testing.assert_array_equal(mesh["density"].read(level=level, fill=-1), whole)
        for at in (0, 40, 63):
            plane = mesh["density"].read(np.s_[at, :, 3:], level=level, fill=-1)
            np.testing.assert_array_equal(plane, whole[at, :, 3:])
    again = bf.optimize(plotfile, "200%")
    assert (again.made, again.plan["keep"]) == ([], [done.made[0]["id"]])


def any_large_mesh(seed: int) -> Mesh:
    """Returns a random mesh of which reads along some axes take many requests."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    rank = chance.choice([2, 3])
    ratio = chance.choices([1, 2, 3, 4], k=rank) if chance.random() < 0.5 else [2] * rank
    box = [chance.choice([8, 12, 16]) for _ in range(rank)]
    counts = [chance.randint(3, 4) if rank == 3 else chance.randint(8, 12) for _ in range(rank)]
    shape = [length * count for length, count in zip(box, counts, strict=True)]
    fine = [length * by for length, by in zip(shape, ratio, strict=True)]
    levels = [Level(ratio, shape, []), Level([], fine, [])]
    names = ["density", "Y(O2)/\u00e9"][: chance.randint(1, 2)]
    dtype = chance.choice(["<f8", ">f4"])
    for level, share in zip(levels, (1.0, 0.7), strict=True):
        own = list(box)
        sides = [range(0, n - b + 1, b) for n, b in zip(level.shape, own, strict=True)]
        starts = [start for start in itertools.product(*sides) if chance.random() < share]
        chance.shuffle(starts)
        if level is levels[1]:
            # Whole cells of the level before.
            starts = [s for s in starts if all(a % r == 0 for a, r in zip(s, ratio, strict=True))]
            starts = [s for s in starts if all(b % r == 0 for b, r in zip(own, ratio, strict=True))]
            starts = starts or [tuple([0] * rank)]
        for start in starts:
            level.boxes.append((list(start), [a + b for a, b in zip(start, own, strict=True)]))
            values = numbers.random((len(names), *own)).astype(dtype)
            level.values.append(values)
    ghosts = [chance.randint(0, 2) for _ in range(rank)]
    corner = chance.choices(range(-3, 4), k=rank)
    return Mesh(names, dtype, corner, levels, ghosts, chance.choice([1, 2, 4]))


@pytest.mark.parametrize("seed", range(12))
def test_reads_with_replicas_have_the_elements_of_any_plotfile(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_large_mesh(seed), random.Random(seed)
    path = write(mesh, tmp_path / "plt")
    axes = ["x", "y", "z"][: len(mesh.corner)]
    reads: dict[Any, float] = {tuple(set(axes) - {axis}): 1.0 for axis in axes}
    region = None
    if chance.random() < 0.5:
        axis = chance.randrange(len(axes))
        length = mesh.levels[1].shape[axis]
        region = {axes[axis]: (length // 4, length // 2)}
    done = bf.optimize(path, "900%", reads=reads, region=region)
    opened, plain = bf.open(path), bf.open(path, replicas=False)
    used = 0
    for number, name in enumerate(mesh.names):
        for level, kept in enumerate(mesh.levels):
            expected = uniform(mesh, number, level, -1)
            regions = [any_region(chance, kept.shape) for _ in range(4)]
            for axis, length in enumerate(kept.shape):
                plane: list[Any] = [slice(None)] * len(kept.shape)
                plane[axis] = chance.randrange(length)
                regions.append(tuple(plane))
            for part in regions:
                found = opened[name].read(part, level=level, fill=-1)
                np.testing.assert_array_equal(found, expected[part])
                used += "replica" in opened[name].explain(part, level=level).to_dict()
                ours = opened[name].pieces(part, level=level)
                for one, other in zip(ours, plain[name].pieces(part, level=level), strict=True):
                    assert (one.level, one.start) == (other.level, other.start)
                    np.testing.assert_array_equal(one.data, other.data)
    assert done.made or not used


def test_a_file_that_has_changed_since_is_not_read_from_a_replica(plotfile: Path) -> None:
    bf.optimize(plotfile, "200%", reads=PLANES)
    before = served(plotfile, np.s_[3])
    assert before is not None
    changed = boxes_mesh(seed=1)
    shutil.rmtree(plotfile)
    write(changed, plotfile)
    assert served(plotfile, np.s_[3]) is None
    found = bf.open(plotfile)["density"].read(np.s_[3], level=1)
    np.testing.assert_array_equal(found, uniform(changed, 0, 1, np.nan)[3])
    plan = bf.optimize(plotfile, "200%", reads=PLANES, dry_run=True).plan
    assert before in plan["drop"]
    assert all(one["id"] != before for one in plan["make"])


def test_a_level_whose_file_was_touched_is_read_from_the_plotfile(plotfile: Path) -> None:
    bf.optimize(plotfile, "200%", reads=PLANES)
    mesh = bf.open(plotfile)
    expected = uniform(boxes_mesh(), 0, 1, np.nan)
    np.testing.assert_array_equal(mesh["density"].read(np.s_[33], level=1), expected[33])
    file = min((plotfile / "Level_1").glob("Cell_D*"))
    os.utime(file, ns=(1, 1))
    with pytest.raises(bf.ConflictError):
        mesh["density"].read(np.s_[33], level=1)
    found = bf.open(plotfile)["density"].read(np.s_[33], level=1)
    np.testing.assert_array_equal(found, expected[33])


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "document"])
def test_a_damaged_replica_is_not_read(damage: str, plotfile: Path) -> None:
    done = bf.optimize(plotfile, "200%", reads=PLANES)
    directory = Path(f"{plotfile}.bedform") / "replicas"
    of_density = next(one for one in done.made if one["array"].endswith("density"))
    place = directory / of_density["id"] / "level_1"
    shard = next(
        one for one in (place / "density").rglob("*") if one.is_file() and one.suffix == ""
    )
    if damage == "document":
        shard = place / "density" / "zarr.json"
    raw = bytearray(shard.read_bytes())
    stamp = shard.stat()
    if damage == "remove":
        shard.unlink()
    elif damage == "cut":
        shard.write_bytes(raw[: len(raw) // 2])
    else:
        raw[len(raw) // 3] ^= 4
        with shard.open("r+b") as file:
            file.write(raw)
        os.utime(shard, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    found = bf.open(plotfile)["density"].read(np.s_[50], level=1)
    np.testing.assert_array_equal(found, uniform(boxes_mesh(), 0, 1, np.nan)[50])


def test_a_damaged_replica_is_made_again(plotfile: Path) -> None:
    done = bf.optimize(plotfile, "200%", reads=PLANES)
    directory = Path(f"{plotfile}.bedform") / "replicas"
    for one in done.made:
        shard = next((directory / one["id"] / "level_1").rglob("c/*"))
        shard.write_bytes(shard.read_bytes()[:100])
    again = bf.optimize(plotfile, "200%", reads=PLANES)
    ids = {one["id"] for one in done.made}
    assert {one["id"] for one in again.made} == ids
    assert ids.isdisjoint(again.plan["drop"])
    assert served(plotfile, np.s_[3]) in ids
    assert bf.optimize(plotfile, "0%", reads=PLANES).done["dropped"]
    assert served(plotfile, np.s_[3]) is None
    assert not any(directory.iterdir())


def test_zoomed_reads_get_one_replica_of_their_region(plotfile: Path) -> None:
    bf.watch(plotfile)
    density = bf.open(plotfile)["density"]
    for at in range(32, 96):
        density.read(np.s_[at, 40:90, 40:90], level=1)
    density.read(np.s_[:, 3], level=1)
    bf.learn(plotfile)
    done = bf.optimize(plotfile, "35%")
    parts = {one["id"]: one["held"]["runs"][0][0] for one in done.plan["make"]}
    zoomed = [name for name, (first, count) in parts.items() if (first, first + count) == (32, 96)]
    assert len(zoomed) == 1
    assert served(plotfile, np.s_[60, 40:90, 40:90]) == zoomed[0]
    assert served(plotfile, np.s_[:, 3]) != zoomed[0]


def test_a_changed_plotfile_keeps_the_budget_of_its_replicas(plotfile: Path) -> None:
    done = bf.optimize(plotfile, "300%", reads=PLANES)
    shutil.rmtree(plotfile)
    write(boxes_mesh(seed=7), plotfile)
    told = bf.open(plotfile).info()["replicas"]
    assert {one["state"] for one in told} == {"outdated"}
    shown = CliRunner().invoke(app, ["info", str(plotfile)]).output
    assert "has changed since it was made" in " ".join(shown.split())
    again = bf.optimize(plotfile, reads=PLANES)
    assert len(again.made) == len(done.made)
    assert {one["state"] for one in bf.open(plotfile).info()["replicas"]} == {"current"}
    plan = bf.optimize(plotfile, "0%", reads=PLANES, dry_run=True)
    assert plan.plan["drop"]


def test_reads_of_all_cells_need_no_replica(plotfile: Path) -> None:
    plan = bf.optimize(plotfile, "200%", reads={("x", "y", "z"): 1}, dry_run=True).plan
    assert "replicas help no other" in plan["notes"][0]


def test_a_sidecar_that_came_with_a_plotfile_is_told_of_and_trusted(plotfile: Path) -> None:
    bf.optimize(plotfile, "200%", reads=PLANES)
    moved = plotfile.parent / "plt00011"
    plotfile.rename(moved)
    Path(f"{plotfile}.bedform").rename(f"{moved}.bedform")
    with pytest.warns(UserWarning, match="bedform trust"):
        mesh = bf.open(moved)
    expected = uniform(boxes_mesh(), 0, 1, np.nan)
    np.testing.assert_array_equal(mesh["density"].read(np.s_[40], level=1), expected[40])
    trusted = CliRunner().invoke(app, ["trust", str(moved)])
    assert trusted.exit_code == 0, trusted.output
    assert bf.optimize(moved, "200%", reads=PLANES).made
    found = bf.open(moved)["density"].read(np.s_[40], level=1)
    np.testing.assert_array_equal(found, expected[40])


def test_expected_reads_and_the_budget_decide_which_components_get_replicas(
    plotfile: Path,
) -> None:
    plan = bf.optimize(plotfile, "200%", reads=PLANES, dry_run=True).plan
    assert {one["component"] for one in plan["make"]} == {"density", "energy"}
    size = plan["make"][0]["bytes"]
    plan = bf.optimize(plotfile, size + 4096, reads=PLANES, dry_run=True).plan
    assert len(plan["make"]) == 1
    plan = bf.optimize(plotfile, "1%", reads=PLANES, dry_run=True).plan
    assert not plan["make"]
    assert "the smallest that helps takes up to" in plan["notes"][0]
    assert not Path(f"{plotfile}.bedform").exists()
    with pytest.raises(bf.InvalidArgumentError, match="the dimensions are x, y, z"):
        bf.optimize(plotfile, reads={"time": 1})
    with pytest.raises(bf.NotFoundError, match="bedform watch"):
        bf.optimize(plotfile)


def test_a_replica_of_the_region_that_is_read_serves_it_alone(plotfile: Path) -> None:
    region = {"x": (40, 60), "y": (40, 90), "z": (40, 90)}
    done = bf.optimize(plotfile, "30%", reads=PLANES, region=region)
    planned = done.plan["make"][0]
    assert planned["held"]["runs"] == [[[40, 20]], [[40, 50]], [[40, 50]]]
    name = planned["component"]
    number = ("density", "energy").index(name)
    assert served(plotfile, np.s_[45, 40:90, 40:90], name) == planned["id"]
    assert served(plotfile, np.s_[5], name) is None
    expected = uniform(boxes_mesh(), number, 1, np.nan)
    mesh = bf.open(plotfile)
    for part in (np.s_[45, 40:90, 40:90], np.s_[39:41, 30:90, 41:50], np.s_[:, :, 50]):
        np.testing.assert_array_equal(mesh[name].read(part, level=1), expected[part])


def test_options_for_arrays_are_refused(plotfile: Path) -> None:
    with pytest.raises(bf.UnsupportedError, match="reorganize is for arrays"):
        bf.optimize(plotfile, reorganize=True)
    with pytest.raises(bf.UnsupportedError, match="optimize_after is for arrays"):
        bf.watch(plotfile, optimize_after=10)


def stored_steps(tmp_path: Path) -> Path:
    """Converts two steps, each with elements of its own."""
    for seed, name in ((0, "plt00010"), (3, "plt00020")):
        write(boxes_mesh(seed=seed), tmp_path / name)
    bf.convert([tmp_path / "plt00010", tmp_path / "plt00020"], tmp_path / "run.zarr")
    return tmp_path / "run.zarr"


def test_steps_of_a_store_get_replicas_of_what_is_read_of_them(tmp_path: Path) -> None:
    store = stored_steps(tmp_path)
    bf.watch(store)
    density = bf.open(store).step("plt00010")["density"]
    for at in range(0, 128, 8):
        density.read(np.s_[at], level=1)
    learned = bf.learn(store)["knowledge"]["arrays"]
    assert list(learned) == ["plt00010/level_1/density"]
    done = bf.optimize(store, "200%")
    assert [one["array"] for one in done.made] == ["plt00010/level_1/density"]
    run = bf.open(store)
    for seed, step in ((0, "plt00010"), (3, "plt00020")):
        found = run.step(step)["density"]
        facts = found.explain(70, level=1).to_dict()
        assert ("replica" in facts) == (step == "plt00010")
        expected = uniform(boxes_mesh(seed=seed), 0, 1, np.nan)
        for part in (np.s_[70], np.s_[3:99, 50], np.s_[40:50, 40:50, 40:50]):
            np.testing.assert_array_equal(found.read(part, level=1), expected[part])
    assert "plt00010/level_1/density" in bf.report(store)
    assert len(run.info()["replicas"]) == 1
    expected_of_last = bf.optimize(store, "900%", reads=PLANES)
    assert {one["step"] for one in expected_of_last.plan["make"]} == {"plt00020"}
    assert len(bf.open(store).info()["replicas"]) == 3


def test_a_step_that_was_written_since_is_not_read_from_its_replica(tmp_path: Path) -> None:
    store = stored_steps(tmp_path)
    bf.optimize(store, "900%", reads=PLANES)
    assert "replica" in bf.open(store)["density"].explain(9, level=1).to_dict()
    held = bf.open(store)
    writable = bf.open(store, "r+")
    array = writable["plt00020/level_1/density"]
    array[:] = array[:] + 1
    expected = uniform(boxes_mesh(seed=3), 0, 1, np.nan)
    # Cells that level 0 alone has keep their elements.
    fine = np.zeros(expected.shape, bool)
    fine[32:96, 32:96, 32:96] = True
    expected[fine] += 1
    for mesh in (held, bf.open(store)):
        np.testing.assert_array_equal(mesh["density"].read(np.s_[40], level=1), expected[40])
    with writable.session(settle="later") as session:
        session.write("plt00020/level_1/density", array[:] + 1, start=(0,))
    expected[fine] += 1
    for mesh in (held, bf.open(store)):
        np.testing.assert_array_equal(mesh["density"].read(np.s_[40], level=1), expected[40])
    assert "is being written, or its commits are not settled" in str(
        bf.optimize(store, "900%", reads=PLANES, dry_run=True)
    )


def test_a_step_that_was_deleted_and_stored_again_is_not_read_from_its_replica(
    tmp_path: Path,
) -> None:
    store = stored_steps(tmp_path)
    bf.optimize(store, "900%", reads=PLANES)
    writable = bf.open(store, "r+")
    del writable["plt00020"]
    writable.close()
    shutil.rmtree(tmp_path / "plt00020")
    write(boxes_mesh(seed=4), tmp_path / "plt00020")
    bf.convert(tmp_path / "plt00020", store)
    found = bf.open(store)["density"]
    assert "replica" not in found.explain(9, level=1).to_dict()
    expected = uniform(boxes_mesh(seed=4), 0, 1, np.nan)
    np.testing.assert_array_equal(found.read(np.s_[40], level=1), expected[40])


def test_a_report_shows_reads_replicas_and_coordinates(plotfile: Path) -> None:
    bf.watch(plotfile)
    density = bf.open(plotfile)["density"]
    for at in range(0, 128, 8):
        density.read(np.s_[at], level=1)
    before = bf.report(plotfile, "200%")
    assert "level_1/density" in before
    assert "0.00390625" in before
    bf.optimize(plotfile, "200%")
    after = bf.report(plotfile)
    assert mesh_replicas_of(str(plotfile))[0]["array"] == "level_1/density"
    assert "Replicas that there are" in after
    assert "None of them is used" not in after


def test_the_command_line_watches_learns_optimizes_and_reports(plotfile: Path) -> None:
    run = CliRunner()
    assert run.invoke(app, ["watch", str(plotfile)]).exit_code == 0
    density = bf.open(plotfile)["density"]
    for at in range(0, 128, 8):
        density.read(np.s_[at], level=1)
    assert "level_1/density" in run.invoke(app, ["learn", str(plotfile)]).output
    made = run.invoke(app, ["optimize", str(plotfile), "--budget", "200%", "--json"])
    assert made.exit_code == 0, made.output
    assert len(json.loads(made.output)["done"]["made"]) == 1
    shown = run.invoke(app, ["optimize", str(plotfile), "--budget", "200%"])
    assert "1 kept" in shown.output
    told = run.invoke(app, ["info", str(plotfile)]).output
    assert "replicas  1, " in told
    assert "watch     reads are recorded" in told
    page = plotfile.parent / "page.html"
    reported = run.invoke(app, ["report", str(plotfile), "--output", str(page)])
    assert reported.exit_code == 0, reported.output
    assert "level_1/density" in page.read_text()


def test_two_optimizers_at_once_are_refused(plotfile: Path) -> None:
    done = bf.optimize(plotfile, "200%", reads=PLANES)
    lock = Path(f"{plotfile}.bedform") / "replicas" / ".bedform-lock"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        shutil.rmtree(plotfile)
        write(boxes_mesh(seed=2), plotfile)
        with pytest.raises(bf.ConflictError, match="another process makes replicas"):
            bf.optimize(plotfile, "200%", reads=PLANES)
    finally:
        os.close(descriptor)
    assert len(bf.optimize(plotfile, "200%", reads=PLANES).made) == len(done.made)
