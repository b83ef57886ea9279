"""Sessions write meshes, each process its boxes; readers see all of a commit or nothing."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native import mpiexec
from plotfiles import Mesh, any_mesh, uniform
from test_mesh import any_region

import bedform as bf

SEEDS = range(16)


def create(mesh: Mesh, store: Any, path: str = "", **options: Any) -> None:
    """Creates a mesh without boxes in a store."""
    store.create_mesh(
        path,
        components=mesh.names,
        shape=mesh.levels[0].shape,
        ratios=[level.ratio for level in mesh.levels[:-1]],
        lower=[0.0] * len(mesh.corner),
        upper=[1.0] * len(mesh.corner),
        time=0.25,
        dtype=np.dtype(mesh.dtype).newbyteorder("="),
        **options,
    )


def write_level(session: Any, mesh: Mesh, number: int, path: str = "") -> None:
    """Writes all boxes of a level."""
    level = mesh.levels[number]
    starts = [start for start, _ in level.boxes]
    shapes = [np.subtract(stop, start).tolist() for start, stop in level.boxes]
    for component, name in enumerate(mesh.names):
        arrays = [values[component] for values in level.values]
        session.write_boxes(f"{path}{name}", arrays, starts, shapes, level=number)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settle", ["end", "later"])
def test_what_a_session_writes_is_read_as_from_a_plotfile(
    seed: int, settle: Any, tmp_path: Path
) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    store = bf.create(tmp_path / "run.zarr")
    options = {"sub_box": [chance.randint(1, 6) for _ in mesh.corner]} if seed % 2 else {}
    create(mesh, store, order=chance.choice(["auto", "z", "given", "clusters"]), **options)
    with store.session(settle=settle) as session:
        for number in range(len(mesh.levels)):
            write_level(session, mesh, number)
    opened = bf.open(tmp_path / "run.zarr")
    for level, kept in enumerate(mesh.levels):
        assert opened.boxes(level).tolist() == [[start, stop] for start, stop in kept.boxes]
        for number, name in enumerate(mesh.names):
            expected = uniform(mesh, number, level, -1)
            np.testing.assert_array_equal(opened[name].read(level=level, fill=-1), expected)
            region = any_region(chance, kept.shape)
            part = opened[name].read(region, level=level, fill=-1)
            np.testing.assert_array_equal(part, expected[region])


def test_steps_lie_in_groups_and_appear_with_their_commit(tmp_path: Path) -> None:
    mesh = any_mesh(2)
    store = bf.create(tmp_path / "run.zarr", attributes={"bedform_mesh_steps": 1})
    for step in ("plt0", "plt1"):
        create(mesh, store, step)
        with store.session() as session:
            write_level(session, mesh, 0, f"{step}/")
            assert len(bf.open(f"{tmp_path}/run.zarr/{step}").boxes(0)) == 0
            session.commit()
        opened = bf.open(tmp_path / "run.zarr").step(step)
        expected = uniform(mesh, 0, 0, -1)
        np.testing.assert_array_equal(opened[mesh.names[0]].read(level=0, fill=-1), expected)


def test_a_store_of_meshes_alone_is_marked_as_one_of_steps(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "run.zarr", attributes={"run": 7})
    given = {"components": ["rho"], "shape": (8, 8), "lower": (0, 0), "upper": (1, 1)}
    store.create_mesh("plt0", time=0.5, **given)
    assert bf.open(tmp_path / "run.zarr").steps == {"plt0": 0.5}
    assert store.attributes["run"] == 7
    other = bf.create(tmp_path / "other.zarr")
    other.create_array("t", (3,), "f4", ("x",))
    other.create_mesh("plt0", **given)
    assert isinstance(bf.open(tmp_path / "other.zarr"), bf.Store)


def test_levels_are_written_once(tmp_path: Path) -> None:
    mesh = any_mesh(2)
    store = bf.create(tmp_path / "run.zarr")
    create(mesh, store)
    with store.session() as session:
        write_level(session, mesh, 0)
    with (
        store.session() as session,
        pytest.raises(bf.ExistsError, match="level 0 has boxes already"),
    ):
        write_level(session, mesh, 0)


def test_a_component_that_was_not_written_is_a_clear_error(tmp_path: Path) -> None:
    mesh = next(any_mesh(seed) for seed in range(40) if len(any_mesh(seed).names) > 1)
    store = bf.create(tmp_path / "run.zarr")
    create(mesh, store)
    level = mesh.levels[0]
    shapes = [np.subtract(stop, start).tolist() for start, stop in level.boxes]
    with store.session() as session:
        arrays = [values[0] for values in level.values]
        starts = [start for start, _ in level.boxes]
        session.write_boxes(mesh.names[0], arrays, starts, shapes, level=0)
        with pytest.raises(bf.InvalidArgumentError, match="other boxes"):
            session.write_boxes(mesh.names[1], arrays[:0], [], [], level=0)
    opened = bf.open(tmp_path / "run.zarr")
    with pytest.raises(bf.NotFoundError, match="never written on this level"):
        opened[mesh.names[1]].read(level=0)


def write(session: Any, **changes: Any) -> None:
    given = {
        "name": "rho",
        "values": [np.zeros((4, 4))],
        "starts": [[0, 0]],
        "shapes": [[4, 4]],
        "level": 0,
    }
    session.write_boxes(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "u"}, 'no component "u"'),
        ({"name": "plt/rho"}, "no component"),
        ({"level": 3}, "level 3 of 2 levels"),
        ({"starts": [[6, 0]]}, "outside of the domain"),
        ({"starts": [[-1, 0]]}, "outside of the domain"),
        ({"shapes": [[4, 0]]}, "starts and shapes"),
        ({"shapes": [[4]]}, "starts and shapes"),
        ({"values": [np.zeros((4, 3))]}, "shapes of the boxes"),
        ({"values": np.zeros(15)}, "120 bytes for boxes of 16 cells"),
        ({"values": [np.full((4, 4), "a")]}, "holds float64"),
        ({"level": 1, "starts": [[3, 2]]}, "cuts cells of level 0"),
        (
            {"values": [np.zeros((4, 4))] * 2, "starts": [[0, 0], [3, 3]], "shapes": [[4, 4]] * 2},
            "overlap",
        ),
    ],
)
def test_wrong_boxes_are_refused_and_nothing_is_written(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    store = bf.create(tmp_path / "run.zarr")
    store.create_mesh(components=["rho"], shape=(8, 8), ratios=[2], lower=(0, 0), upper=(1, 1))
    with store.session() as session:
        with pytest.raises(bf.BedformError, match=text):
            write(session, **changes)
        write(session)
    opened = bf.open(tmp_path / "run.zarr")
    assert opened.boxes(0).tolist() == [[[0, 0], [4, 4]]]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": (0, 8)}, "cells"),
        ({"shape": (8,) * 4}, r"lower and upper|axes"),
        ({"ratios": [0]}, "ratios are numbers"),
        ({"ratios": [(2, 2, 2)]}, "3 axes for a mesh of 2"),
        ({"upper": (0, 1)}, "above the lower"),
        ({"dtype": "int32"}, "float32 or float64"),
        ({"components": ["a", "a"]}, "twice"),
        ({"order": "spiral"}, "order"),
        ({"sub_box": (0, 1)}, "sub_box"),
        ({"sub_box": (1 << 40, 1 << 40)}, "sub_box"),
        ({"components": ["a\nb"]}, "control characters"),
        ({"components": [" a"]}, "blanks"),
        ({"time": float("nan")}, "finite"),
        ({"lower": (0, float("-inf"))}, "finite"),
    ],
)
def test_meshes_that_cannot_be_are_refused(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    store = bf.create(tmp_path / "run.zarr")
    given = {"components": ["rho"], "shape": (8, 8), "lower": (0, 0), "upper": (1, 1)}
    with pytest.raises((bf.BedformError, ValueError), match=text):
        store.create_mesh(**{**given, **changes})
    assert store.groups() == {}


RANKS = """
import sys
sys.path.insert(0, sys.argv[2])
import bedform as bf
from mpi4py import MPI
from plotfiles import any_mesh
comm = MPI.COMM_WORLD
for seed in range(6):
    mesh, place = any_mesh(seed), f"{sys.argv[1]}/{seed}.zarr"
    if comm.rank == 0:
        from test_mesh_writing import create
        create(mesh, bf.create(place), sub_box=[3] * len(mesh.corner))
    comm.barrier()
    store = bf.open(place, "r+")
    with store.session(comm=comm) as session:
        for number, level in enumerate(mesh.levels):
            mine = range(comm.rank, len(level.boxes), comm.size)
            starts = [level.boxes[at][0] for at in mine]
            shapes = [[b - a for a, b in zip(*level.boxes[at])] for at in mine]
            for component, name in enumerate(mesh.names):
                arrays = [level.values[at][component] for at in mine]
                session.write_boxes(name, arrays, starts, shapes, level=number)
        session.commit()
"""


def test_the_processes_of_a_job_write_their_boxes(tmp_path: Path) -> None:
    mpiexec(3, sys.executable, "-c", RANKS, tmp_path, Path(__file__).parent)
    for seed in range(6):
        mesh, opened = any_mesh(seed), bf.open(tmp_path / f"{seed}.zarr")
        for level in range(len(mesh.levels)):
            for number, name in enumerate(mesh.names):
                expected = uniform(mesh, number, level, -1)
                np.testing.assert_array_equal(opened[name].read(level=level, fill=-1), expected)


def test_a_large_region_that_threads_fill_has_the_finest_elements(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "run.zarr")
    store.create_mesh(
        components=["rho"],
        shape=(40, 36, 28),
        ratios=[2, (1, 3, 2)],
        lower=(0,) * 3,
        upper=(1,) * 3,
    )
    random, expected = np.random.default_rng(0), np.full((80, 216, 112), np.nan)
    with store.session() as session:
        for level, (shape, ratio) in enumerate(
            (((40, 36, 28), (2, 6, 4)), ((80, 72, 56), (1, 3, 2)), ((80, 216, 112), (1, 1, 1)))
        ):
            starts = [[0, 0, 0], [shape[0] // 2, shape[1] // 3, 0]]
            sizes = [
                [shape[0] // 2, shape[1], shape[2] // 2],
                [shape[0] // 4, shape[1] // 3, shape[2]],
            ]
            boxes = [random.random(size) for size in sizes]
            session.write_boxes("rho", boxes, starts, sizes, level=level)
            for start, size, values in zip(starts, sizes, boxes, strict=True):
                fine = values
                for axis, by in enumerate(ratio):
                    fine = fine.repeat(by, axis)
                low = np.multiply(start, ratio)
                expected[tuple(map(slice, low, low + np.multiply(size, ratio)))] = fine
    opened = bf.open(tmp_path / "run.zarr", threads=3)["rho"]
    np.testing.assert_array_equal(opened.read(level=2), expected)
    region = np.s_[3:79, 10:200, 1:111]
    np.testing.assert_array_equal(opened.read(region, level=2), expected[region])
