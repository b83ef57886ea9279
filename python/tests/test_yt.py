"""The frontend for yt gives the cells and values that yt's own gives, of any plotfile."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotfiles import Level, Mesh, any_mesh, uniform, write

import bedform as bf

pytest.importorskip("yt")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import yt
    from yt.frontends import _all as _frontends  # noqa: F401 - whose imports warn

    from bedform.yt_frontend import BedformDataset
    from bedform.yt_frontend._boxes import BoxBins

yt.set_log_level("error")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(yt.__version__ < "4.4", reason="frontends of other packages"),
]
FIELD = "density"
DRIVER = Path(__file__).parents[2] / "benchmarks" / "drivers" / "yt_slice.py"


def is_opened_by_yt(mesh: Mesh) -> bool:
    """Whether yt has the ratios of a mesh."""
    ratios = [set(level.ratio) for level in mesh.levels[:-1]]
    return all(len(ratio) == 1 and min(ratio) in (2, 4) for ratio in ratios)


def comparable(rank: int) -> list[int]:
    """Returns seeds of meshes that yt's own frontend reads: one ratio, no ghosts, a corner at 0."""
    found = []
    for seed in range(1500):
        mesh = any_mesh(seed)
        ratios = {ratio for level in mesh.levels[:-1] for ratio in level.ratio}
        if (
            is_opened_by_yt(mesh)
            and len(ratios) <= 1
            and (mesh.version, len(mesh.corner)) == (1, rank)
            and not any(mesh.corner + mesh.ghosts)
        ):
            found.append(seed)
    # The last ones have more levels.
    return sorted(found, key=lambda seed: len(any_mesh(seed).levels))[-3:]


def objects_of(ds: Any) -> dict[str, Any]:
    """Returns data objects of all kinds, away from the faces of cells."""
    lower, width = ds.domain_left_edge, ds.domain_width

    def at(*place: float) -> Any:
        return lower + np.array(place) * width

    found = {"all": ds.all_data()}
    for axis in range(ds.dimensionality):
        found[f"slice {axis}"] = ds.slice(axis, at(0.377, 0.613, 0.431)[axis])
    found["region"] = ds.region(at(0.4, 0.4, 0.5), at(0.113, 0.217, 0), at(0.771, 0.837, 1))
    found["level 0"] = ds.all_data()
    found["level 0"].max_level = 0
    if ds.dimensionality == 3:
        found["ray"] = ds.ray(at(0.031, 0.057, 0.113), at(0.97, 0.83, 0.91))
        found["ray back"] = ds.ray(at(0.93, 0.21, 0.713), at(0.11, 0.671, 0.131))
        found["ray along x"] = ds.ray(at(0.011, 0.517, 0.393), at(0.991, 0.517, 0.393))
        found["ortho ray"] = ds.ortho_ray(1, at(0.377, 0.613, 0.431)[[2, 0]])
        found["sphere"] = ds.sphere(at(0.43, 0.51, 0.47), (0.3, "code_length"))
        found["plane"] = ds.cutting([0.3, 0.5, 0.7], at(0.43, 0.51, 0.47))
        found["in a sphere"] = ds.slice(0, at(0.377, 0, 0)[0], data_source=found["sphere"])
    return found


def cells_of(part: Any, kind: str) -> np.ndarray[Any, Any]:
    """Returns value, middle, size and, for rays, times of each cell, by its place."""
    columns = [part[kind, FIELD]]
    columns += [part["index", name] for name in ("x", "y", "z", "dx", "dy", "dz")]
    if part._type_name == "ray":
        columns += [part["t"], part["dts"]]
    found = np.stack([np.asarray(column) for column in columns], axis=1)
    return found[np.lexsort(found[:, 1:4].round(9).T)]


@pytest.mark.parametrize("seed", comparable(2) + comparable(3))
def test_data_objects_have_the_cells_of_the_frontend_of_yt(seed: int, tmp_path: Path) -> None:
    path = str(write(any_mesh(seed), tmp_path / "plt"))
    theirs, ours = yt.load(path), BedformDataset(path)
    assert type(theirs).__name__ == "BoxlibDataset"
    pairs = zip(objects_of(theirs).items(), objects_of(ours).values(), strict=True)
    for (name, expected), found in pairs:
        np.testing.assert_allclose(
            cells_of(found, "bedform"),
            cells_of(expected, "boxlib"),
            rtol=1e-12,
            atol=1e-12,
            err_msg=name,
        )


@pytest.mark.parametrize("seed", comparable(3))
def test_grids_and_projections_are_those_of_the_frontend_of_yt(seed: int, tmp_path: Path) -> None:
    path = str(write(any_mesh(seed), tmp_path / "plt"))
    theirs, ours = yt.load(path), BedformDataset(path)
    for ds in (theirs, ours):
        ds.force_periodicity()
    for name in ("covering_grid", "smoothed_covering_grid"):
        grids = []
        for ds, kind in ((theirs, "boxlib"), (ours, "bedform")):
            finest = ds.index.max_level
            shape = ds.domain_dimensions * ds.refine_by**finest
            grid = getattr(ds, name)(finest, ds.domain_left_edge, shape)
            grids.append(np.asarray(grid[kind, FIELD]))
        np.testing.assert_allclose(grids[1], grids[0], rtol=1e-12)
    frames = []
    for ds, kind in ((theirs, "boxlib"), (ours, "bedform")):
        frame = ds.proj((kind, FIELD), 2).to_frb(ds.domain_width[0], 32)
        frames.append(np.asarray(frame[kind, FIELD]))
        assert ds.all_data().sum((kind, FIELD)) > 0
    np.testing.assert_allclose(frames[1], frames[0], rtol=1e-12, equal_nan=True)
    for number, (one, other) in enumerate(zip(ours.index.grids, theirs.index.grids, strict=True)):
        assert one.id == other.id == number
        np.testing.assert_array_equal(one["bedform", FIELD], other["boxlib", FIELD])
        np.testing.assert_array_equal(one.child_mask, other.child_mask)
        np.testing.assert_array_equal(one.child_index_mask, other.child_index_mask)
        assert sorted(c.id for c in one.Children) == sorted(c.id for c in other.Children)
        assert [p.id for p in one.Parent or []] == [p.id for p in other.Parent or []]


def regular_mesh() -> Mesh:
    """Returns two levels of boxes of 4 cells, for fields that take ghost cells."""
    levels = []
    for ratio, length, cells in (([2] * 3, 8, range(0, 8, 4)), ([], 16, range(4, 12, 4))):
        corners = [list(place) for place in itertools.product(cells, repeat=3)]
        boxes = [(start, [at + 4 for at in start]) for start in corners]
        levels.append(Level(ratio, [length] * 3, boxes))
    numbers = np.random.default_rng(0)
    for level in levels:
        level.values = [1 + numbers.random((1, 4, 4, 4)) for _ in level.boxes]
    return Mesh([FIELD], "<f8", [0] * 3, levels, [0] * 3, 1)


def test_derived_fields_are_set_up_when_one_is_asked_for(tmp_path: Path) -> None:
    path = str(write(regular_mesh(), tmp_path / "plt"))
    theirs, ours = yt.load(path), BedformDataset(path)
    assert len(ours.slice(2, 0.431)["gas", FIELD]) > 0
    assert ours.field_info._pending is not None
    for ds in (theirs, ours):
        ds.force_periodicity()
        ds.add_gradient_fields(("gas", FIELD))
        ds.add_field(
            ("gas", "thrice"),
            function=lambda field, data: 3 * data["gas", "dynamical_time"],
            sampling_type="cell",
            units="s",
        )
    assert ours.field_info._pending is None
    listed = [
        {name for kind, name in ds.derived_field_list if kind == "gas"} for ds in (theirs, ours)
    ]
    assert listed[0] == listed[1]
    for name in ("dynamical_time", f"{FIELD}_gradient_x", "thrice"):
        for part in ("all", "region", "sphere"):
            found = []
            for ds in (theirs, ours):
                cells = objects_of(ds)[part]
                places = [np.asarray(cells["index", axis]) for axis in "xyz"]
                values = np.asarray(cells["gas", name])
                found.append(values[np.lexsort(np.round(places, 9))])
            np.testing.assert_allclose(found[1], found[0], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(30))
def test_the_finest_cells_of_any_mesh_are_its_uniform_array(seed: int, tmp_path: Path) -> None:
    mesh = any_mesh(seed)
    path = write(mesh, tmp_path / "plt")
    if not is_opened_by_yt(mesh):
        return
    ds = BedformDataset(str(path))
    level = len(mesh.levels) - 1
    expected = uniform(mesh, 0, level, np.nan)
    found = np.full(expected.shape, np.nan)
    part = ds.all_data()
    corners = zip(*(np.asarray(part["index", name]) for name in ("x", "y", "z")), strict=True)
    sizes = zip(*(np.asarray(part["index", name]) for name in ("dx", "dy", "dz")), strict=True)
    for middle, size, value in zip(corners, sizes, part["bedform", FIELD], strict=True):
        low, high = (
            np.rint(
                (np.array(middle) + sign * np.array(size) / 2)[: expected.ndim] * expected.shape
            )
            for sign in (-1, 1)
        )
        place = tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
        # Boxes of a third level may lie outside of those of the second here.
        assert level > 1 or np.isnan(found[place]).all()
        found[place] = value
    np.testing.assert_array_equal(found, expected)


def test_ratios_that_yt_has_not_are_a_clear_error(tmp_path: Path) -> None:
    refused = 0
    for seed in range(60):
        mesh = any_mesh(seed)
        path = str(write(mesh, tmp_path / f"plt{seed}"))
        try:
            ds = BedformDataset(path)
        except bf.UnsupportedError as error:
            refused += 1
            assert "refined by" in str(error)
            assert "\n" not in str(error)
            continue
        ratios = [level.ratio[0] for level in mesh.levels[:-1]]
        if sorted(ratios) == [2, 4]:
            numbers = [0, 1, 3] if ratios == [2, 4] else [0, 2, 3]
            assert ds.level_numbers == numbers
    assert refused > 5


@pytest.mark.parametrize("seed", comparable(3)[:4])
def test_a_step_of_a_store_has_the_cells_and_values_of_its_plotfile(
    seed: int, tmp_path: Path
) -> None:
    path = write(any_mesh(seed), tmp_path / "plt")
    bf.convert(path, tmp_path / "run.zarr", sub_box=[3, 2, 4])
    store = yt.load(str(tmp_path / "run.zarr"), step="plt")
    assert isinstance(store, BedformDataset)
    plotfile = BedformDataset(str(path))
    one, other = objects_of(store), objects_of(plotfile)
    for name in one:
        found, expected = (cells_of(kind[name], "bedform") for kind in (one, other))
        np.testing.assert_array_equal(found[:, 0], expected[:, 0], err_msg=name)
        # yt adds places of cells to the corners of their boxes, which are others.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14, err_msg=name)


def test_plotfiles_are_opened_when_they_are_asked_for(tmp_path: Path) -> None:
    path = str(write(any_mesh(comparable(2)[0]), tmp_path / "plt"))
    assert type(yt.load(path)).__name__ == "BoxlibDataset"
    assert isinstance(yt.load(path, hint="bedform", plotfiles=True), BedformDataset)
    with pytest.raises(bf.NotFoundError, match="no step 'plt9'"):
        BedformDataset(path, step="plt9")
    bf.create(tmp_path / "store.zarr")
    assert not BedformDataset._is_valid(str(tmp_path / "store.zarr"))
    assert not BedformDataset._is_valid(str(tmp_path))


def test_coordinates_that_are_not_cartesian_are_an_error(tmp_path: Path) -> None:
    mesh = any_mesh(comparable(2)[0])
    path = write(mesh, tmp_path / "plt")
    lines = (path / "Header").read_text().split("\n")
    place = 2 + len(mesh.names) + 8 + len(mesh.levels)
    assert lines[place : place + 2] == ["0", "0"]
    lines[place] = "1"
    (path / "Header").write_text("\n".join(lines))
    with pytest.raises(bf.UnsupportedError, match="cylindrical coordinates"):
        BedformDataset(str(path))


@pytest.mark.parametrize("seed", range(20))
def test_an_index_of_boxes_finds_all_that_meet(seed: int) -> None:
    numbers = np.random.default_rng(seed)

    def any_boxes(count: int, most: int) -> np.ndarray[Any, Any]:
        starts = numbers.integers(0, 60, (count, 3))
        return np.stack([starts, starts + numbers.integers(1, most, (count, 3))], axis=1)

    boxes = any_boxes(int(numbers.integers(0, 80)), int(numbers.choice([3, 12, 60])))
    queries = any_boxes(40, int(numbers.choice([2, 20, 90])))
    pairs = BoxBins(boxes).meeting(queries)
    expected = [
        (query, box)
        for query, (low, high) in enumerate(queries)
        for box, (start, stop) in enumerate(boxes)
        if (np.maximum(low, start) < np.minimum(high, stop)).all()
    ]
    assert sorted(zip(pairs.query.tolist(), pairs.box.tolist(), strict=True)) == expected
    assert (np.diff(pairs.query) >= 0).all()


def test_the_driver_of_the_benchmark_reads_the_same_by_both(tmp_path: Path) -> None:
    path = write(any_mesh(comparable(3)[-1]), tmp_path / "plt")
    found = []
    for frontend in ("bedform", "yt"):
        command = [sys.executable, str(DRIVER), "--frontend", frontend, "--read", "slice-z"]
        run = subprocess.run(
            [*command, "--field", FIELD, str(path)], capture_output=True, text=True, check=True
        )
        found.append(json.loads(run.stdout.splitlines()[-1]))
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["values"] > 0
