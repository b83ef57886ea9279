"""Refined meshes as plotfiles, as VTKHDF files, as trees of xarray and as pictures."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
from plotfiles import any_mesh, uniform, write

import bedform as bf
from bedform import _mesh_boxes, _mesh_picture, _mesh_plotfile, _mesh_vtkhdf
from bedform._mesh import RefinedMesh
from bedform._mesh_boxes import box_batches, flat_names, parts_of_box
from bedform._mesh_component import MeshComponent
from bedform._mesh_plotfile import file_ranges, value_range
from bedform.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEEDS = range(30)


def seed_of(rank: int, levels: int, **wanted: Any) -> int:
    """Returns the first seed of such a mesh; its axes are refined alike."""
    for seed in range(2000):
        mesh = any_mesh(seed)
        alike = all(len(set(level.ratio)) == 1 for level in mesh.levels[:-1])
        is_wanted = all(getattr(mesh, name) == value for name, value in wanted.items())
        if (len(mesh.corner), len(mesh.levels)) == (rank, levels) and alike and is_wanted:
            return seed
    raise AssertionError((rank, levels, wanted))


def opened(seed: int, tmp_path: Path) -> tuple[Any, RefinedMesh]:
    """Returns a random mesh, and its plotfile as opened by Bedform."""
    mesh = any_mesh(seed)
    return mesh, bf.open(write(mesh, tmp_path / f"plt{seed}"))


@pytest.fixture(params=[2, 3])
def refined(request: pytest.FixtureRequest, tmp_path: Path) -> RefinedMesh:
    """A mesh of two levels in two or three axes."""
    return opened(seed_of(request.param, 2), tmp_path)[1]


def small_batches(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Lets the writers hold so few bytes that boxes come in batches and in parts."""
    for module in (_mesh_plotfile, _mesh_vtkhdf):
        monkeypatch.setattr(module, "BATCH_BYTES", count)


# Plotfiles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [6000, 1 << 28])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_written_plotfile_has_the_boxes_and_elements_of_the_mesh(
    seed: int, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, batch)
    mesh, before = opened(seed, tmp_path)
    told: list[tuple[int, int]] = []
    before.to_plotfile(tmp_path / "out", progress=lambda *at: told.append(at))
    after = bf.open(tmp_path / "out")
    assert facts_of(after) == facts_of(before)
    assert after.bounds == before.bounds
    for level, kept in enumerate(mesh.levels):
        np.testing.assert_array_equal(after.boxes(level), before.boxes(level))
        for number, name in enumerate(mesh.names):
            # Where a level has boxes its own elements come first; those below are seen at level 0.
            expected = uniform(mesh, number, level, -1)
            np.testing.assert_array_equal(after[name].read(level=level, fill=-1), expected)
        tables = tables_of(tmp_path / "out" / f"Level_{level}" / "Cell_H", len(kept.boxes))
        for table, reduce in zip(tables, (np.min, np.max), strict=True):
            known = [[reduce(one) for one in values] for values in kept.values]
            np.testing.assert_array_equal(table.astype(before.dtype), known)
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def facts_of(mesh: RefinedMesh) -> dict[str, Any]:
    """Returns the facts of a mesh without its place and the files there."""
    of_files = ("steps", "format", "stored_bytes", "step_bytes", "log_bytes")
    return {name: value for name, value in mesh.info().items() if name not in of_files}


@pytest.mark.parametrize("seed", range(10))
def test_a_mesh_of_a_store_is_exported_as_its_plotfile(seed: int, tmp_path: Path) -> None:
    mesh, before = opened(seed, tmp_path)
    bf.convert(before.path, tmp_path / "run.zarr")
    stored = bf.open(tmp_path / "run.zarr")
    stored.to_plotfile(tmp_path / "out")
    after = bf.open(tmp_path / "out")
    assert facts_of(after) == facts_of(before)
    tree = pickle.loads(pickle.dumps(stored)).to_datatree()  # noqa: S301 - our own
    for level in range(len(mesh.levels)):
        np.testing.assert_array_equal(after.boxes(level), before.boxes(level))
        for number, name in enumerate(mesh.names):
            expected = uniform(mesh, number, level, np.nan)
            np.testing.assert_array_equal(after[name].read(level=level), expected)
            np.testing.assert_array_equal(tree[f"level_{level}"][name.replace("/", "_")], expected)
    if is_for_vtk(mesh):
        before.to_vtkhdf(tmp_path / "before.vtkhdf")
        stored.to_vtkhdf(tmp_path / "stored.vtkhdf")
        first, second = (tmp_path / f"{name}.vtkhdf" for name in ("before", "stored"))
        assert first.stat().st_size == second.stat().st_size


def tables_of(path: Path, count: int) -> list[np.ndarray[Any, Any]]:
    """Returns the minima and maxima of a level's boxes, as its text has them."""
    lines = path.read_text().split("\n")
    starts = [number for number, line in enumerate(lines) if re.fullmatch(rf"{count},\d+", line)]
    return [
        np.array([row.split(",")[:-1] for row in lines[at + 1 : at + 1 + count]], "f8")
        for at in starts
    ]


def test_components_are_written_in_the_given_order(tmp_path: Path) -> None:
    seed = seed_of(3, 2, names=["density", "x velocity", "Y(O2)/é"])
    _, mesh = opened(seed, tmp_path)
    mesh.to_plotfile(tmp_path / "out", components=["Y(O2)/é", "density"])
    written = bf.open(tmp_path / "out")
    assert list(written) == ["Y(O2)/é", "density"]
    for name in written:
        np.testing.assert_array_equal(written[name].read(level=1), mesh[name].read(level=1))
    mesh.to_plotfile(tmp_path / "one", components="x velocity")
    assert list(bf.open(tmp_path / "one")) == ["x velocity"]


def test_files_of_a_level_are_few_and_not_small() -> None:
    boxes = file_ranges([1 << 20] * 1000)
    assert [last - first for first, last in boxes[:-1]] == [128] * (len(boxes) - 1)
    many = file_ranges([1 << 28] * 3000)
    assert len(many) <= 256
    assert [first for first, _ in many[1:]] == [last for _, last in many[:-1]]
    assert (many[0][0], many[-1][1]) == (0, 3000)
    assert file_ranges([1 << 40]) == [(0, 1)]


def test_ranges_of_elements_are_numbers_that_cpp_reads() -> None:
    for dtype in ("f4", "f8"):
        widest = np.finfo(dtype)
        some = np.array([[np.nan, 2.5], [-np.inf, np.inf]], dtype)
        assert value_range(some) == (widest.min, widest.max)
        assert value_range(np.array([np.nan, -1, 4], dtype)) == (-1, 4)
        assert value_range(np.full(3, np.nan, dtype)) == (widest.max, widest.min)


def test_coordinates_that_are_not_cartesian_are_kept(tmp_path: Path) -> None:
    _, mesh = opened(seed_of(2, 2), tmp_path)
    header = tmp_path / f"plt{seed_of(2, 2)}" / "Header"
    lines = header.read_text().split("\n")
    at = 10 + len(mesh) + 2
    assert lines[at : at + 2] == ["0", "0"]
    lines[at] = "1"
    # Writers leave spacings of finer levels that are gone.
    header.write_text("\n".join([*lines[:at], "0.01 0.01", *lines[at:]]))
    bf.open(header.parent).to_plotfile(tmp_path / "out")
    assert (tmp_path / "out" / "Header").read_text().split("\n")[at] == "1"


# Targets ------------------------------------------------------------------------------------------

WRITERS: list[Callable[..., None]] = [RefinedMesh.to_plotfile, RefinedMesh.to_vtkhdf]


@pytest.mark.parametrize("write_to", WRITERS)
def test_an_existing_target_is_refused_unless_it_is_of_the_same_kind(
    write_to: Callable[..., None], refined: RefinedMesh, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    write_to(refined, target, components="density")
    with pytest.raises(bf.ExistsError, match="exists"):
        write_to(refined, target)
    write_to(refined, target, overwrite=True)
    others = {
        "directory": lambda path: (path / "inner").mkdir(parents=True),
        "file": lambda path: path.write_text("notes"),
        "hdf5": lambda path: h5py.File(path, "w").close(),
        "link": lambda path: path.symlink_to("nowhere"),
    }
    for name, make in others.items():
        make(tmp_path / name)
        for overwrite in (False, True):
            with pytest.raises(bf.ExistsError, match="exists"):
                write_to(refined, tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "file").read_text() == "notes"
    assert (tmp_path / "directory" / "inner").is_dir()
    assert {path.name for path in tmp_path.iterdir()} - set(others) == {
        "out",
        os.path.basename(refined.path),  # noqa: PTH119
    }


def test_a_plotfile_may_take_the_place_of_its_own_source(
    refined: RefinedMesh, tmp_path: Path
) -> None:
    expected = refined["density"].read(level=1)
    refined.to_plotfile(refined.path, overwrite=True)
    np.testing.assert_array_equal(bf.open(refined.path)["density"].read(level=1), expected)


@pytest.mark.parametrize("write_to", WRITERS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "full"), ValueError("mine")])
def test_an_interrupted_export_leaves_nothing(
    write_to: Callable[..., None], error: Any, refined: RefinedMesh, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())

    def stop(done: int, total: int) -> None:
        if done == total:
            raise error

    kind = bf.NoSpaceError if isinstance(error, OSError) else error
    with pytest.raises(kind if isinstance(kind, type) else type(kind)):
        write_to(refined, tmp_path / "out", progress=stop)
    assert sorted(tmp_path.iterdir()) == before
    write_to(refined, tmp_path / "out")


@pytest.mark.parametrize("write_to", WRITERS)
def test_ctrl_c_ends_an_export_without_a_trace(
    write_to: Callable[..., None], refined: RefinedMesh, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write_to(refined, tmp_path / "out", progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is handler
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("write_to", WRITERS)
def test_sources_that_change_and_names_that_are_wrong_are_errors(
    write_to: Callable[..., None], refined: RefinedMesh, tmp_path: Path
) -> None:
    for given, error, said in (
        (["densty"], bf.NotFoundError, "near ones: 'density'"),
        ([], bf.InvalidArgumentError, "name one, or leave it out"),
        (["density", "density"], bf.InvalidArgumentError, "'density' twice"),
    ):
        with pytest.raises(error, match=said):
            write_to(refined, tmp_path / "out", components=given)
    with pytest.raises(bf.NotFoundError, match="create it first"):
        write_to(refined, tmp_path / "none" / "out")
    refined["density"].read(level=1)
    data = min((tmp_path / os.path.basename(refined.path)).glob("Level_1/Cell_D_*"))  # noqa: PTH119
    data.write_bytes(data.read_bytes()[:-8] + b"!" * 8)
    with pytest.raises(bf.ConflictError, match="has changed since it was opened"):
        write_to(refined, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# VTKHDF -------------------------------------------------------------------------------------------


def is_for_vtk(mesh: Any) -> bool:
    """Whether VTK hides the right cells of a mesh."""
    alike = all(len(set(level.ratio)) == 1 for level in mesh.levels[:-1])
    return alike or len(mesh.corner) == 2


@pytest.mark.parametrize("batch", [6000, 1 << 28])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_vtkhdf_file_has_boxes_spacings_and_elements(
    seed: int, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, batch)
    mesh, refined = opened(seed, tmp_path)
    if not is_for_vtk(mesh):
        with pytest.raises(bf.UnsupportedError, match="VTK refines all axes alike"):
            refined.to_vtkhdf(tmp_path / "out.vtkhdf")
        return
    refined.to_vtkhdf(tmp_path / "out.vtkhdf")
    rank = len(mesh.corner)
    with h5py.File(tmp_path / "out.vtkhdf") as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"OverlappingAMR"
        assert root.attrs["Version"].tolist() == [2, 0]
        assert root["FieldData/TimeValue"][...] == [0.25]
        assert [name for name in root if name.startswith("Level")] == [
            f"Level{level}" for level in range(len(mesh.levels))
        ]
        for level, kept in enumerate(mesh.levels):
            group = root[f"Level{level}"]
            assert tuple(group.attrs["Spacing"][:rank]) == refined.spacing(level)
            boxes = group["AMRBox"][...].reshape(-1, 3, 2)
            assert boxes[:, :rank, 0].tolist() == [start for start, _ in kept.boxes]
            assert (boxes[:, :rank, 1] + 1).tolist() == [stop for _, stop in kept.boxes]
            assert not boxes[:, rank:].any()
            for number, name in enumerate(mesh.names):
                flat = np.concatenate([values[number].ravel("F") for values in kept.values])
                found = group["CellData"][name.replace("/", "_")]
                assert found.dtype == refined.dtype
                np.testing.assert_array_equal(found[...], flat)


@pytest.mark.parametrize("seed", SEEDS)
def test_cells_of_a_plane_that_a_finer_level_has_are_marked_as_hidden(
    seed: int, tmp_path: Path
) -> None:
    mesh, refined = opened(seed, tmp_path)
    if len(mesh.corner) == 3:
        return
    refined.to_vtkhdf(tmp_path / "out.vtkhdf")
    finest = len(mesh.levels) - 1
    pieces = list(refined[mesh.names[0]].pieces(level=finest))
    with h5py.File(tmp_path / "out.vtkhdf") as file:
        for level in range(finest + 1):
            marks = np.zeros(mesh.levels[level].shape, "u1")
            at, flat = 0, file[f"VTKHDF/Level{level}/CellData/vtkGhostType"][...]
            for start, stop in refined.boxes(level).tolist():
                shape = np.subtract(stop, start)
                count = int(np.prod(shape))
                box = flat[at : at + count].reshape(shape, order="F")
                marks[tuple(map(slice, start, stop))] = box
                at += count
            hidden = np.zeros(mesh.levels[level].shape, bool)
            for piece in pieces:
                if piece.level == level:
                    stop = np.add(piece.start, piece.data.shape)
                    hidden[tuple(map(slice, piece.start, stop))] = piece.covered
            np.testing.assert_array_equal(marks, hidden * 32)


@pytest.mark.parametrize("rank", [2, 3])
def test_vtk_reads_the_elements_and_hides_the_cells_below_finer_ones(
    rank: int, tmp_path: Path
) -> None:
    pytest.importorskip("vtkmodules")
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOHDF import vtkHDFReader

    mesh, refined = opened(seed_of(rank, 2), tmp_path)
    refined.to_vtkhdf(tmp_path / "out.vtkhdf")
    reader = vtkHDFReader()
    reader.SetFileName(str(tmp_path / "out.vtkhdf"))
    assert reader.CanReadFile(str(tmp_path / "out.vtkhdf"))
    reader.SetMaximumLevelsToReadByDefaultForAMR(0)
    reader.Update()
    output = reader.GetOutputDataObject(0)
    assert output.GetNumberOfLevels() == 2
    finest = refined["density"].pieces(level=1)
    covered = sum(int(piece.covered.sum()) for piece in finest)
    hidden = 0
    for level, kept in enumerate(mesh.levels):
        for number, values in enumerate(kept.values):
            cells = output.GetDataSetAsCartesianGrid(level, number).GetCellData()
            found = vtk_to_numpy(cells.GetArray("density"))
            np.testing.assert_array_equal(found, values[0].ravel("F"))
            hidden += int((vtk_to_numpy(cells.GetArray("vtkGhostType")) != 0).sum())
    assert hidden == covered


def test_names_without_slashes_stay_and_no_two_are_the_same() -> None:
    names = flat_names(["a/b", "a_b", "x", "..", "a/b_2"], ["x"])
    assert names == {"a/b": "a_b_2", "a_b": "a_b", "x": "x_2", "..": ".._2", "a/b_2": "a_b_2_2"}
    assert list(names) == ["a/b", "a_b", "x", "..", "a/b_2"]


def test_yt_reads_a_written_plotfile_as_the_source(tmp_path: Path) -> None:
    yt = pytest.importorskip("yt")
    yt.set_log_level("error")
    _, mesh = opened(seed_of(3, 2, names=["density"]), tmp_path)
    mesh.to_plotfile(tmp_path / "out")
    read = yt.load(str(tmp_path / "out"))
    assert float(read.current_time) == mesh.time
    for grid in read.index.grids:
        start = grid.get_global_startindex()
        region = tuple(map(slice, start, start + grid.ActiveDimensions))
        expected = mesh["density"].read(region, level=int(grid.Level))
        np.testing.assert_array_equal(np.asarray(grid["boxlib", "density"]), expected)


# Boxes within a budget ----------------------------------------------------------------------------


def test_batches_and_parts_have_every_cell_once_and_few_together() -> None:
    numbers = np.random.default_rng(5)
    for _ in range(50):
        start = numbers.integers(0, 9, (20, 3))
        bounds = np.stack([start, start + numbers.integers(1, 9, (20, 3))], axis=1)
        limit = int(numbers.integers(1, 300))
        batches = list(box_batches(bounds, limit))
        np.testing.assert_array_equal(np.concatenate(batches), bounds)
        for batch in batches:
            assert len(batch) == 1 or _mesh_boxes.cell_counts(batch).sum() <= limit
        low, high = bounds[0]
        whole = np.arange(np.prod(high - low)).reshape(high - low, order="F")
        parts = list(parts_of_box(low, high, limit))
        flat = [whole[tuple(map(slice, *(part - low)))].ravel("F") for part in parts]
        assert max(map(len, flat)) <= limit
        np.testing.assert_array_equal(np.concatenate(flat), whole.ravel("F"))


# Trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tree_has_the_finest_elements_up_to_each_level(seed: int, tmp_path: Path) -> None:
    mesh, refined = opened(seed, tmp_path)
    tree = refined.to_datatree()
    assert list(tree.children) == [f"level_{level}" for level in range(len(mesh.levels))]
    assert tree.attrs == {"time": 0.25, "levels": len(mesh.levels)}
    for level, kept in enumerate(mesh.levels):
        node = tree[f"level_{level}"]
        assert node.attrs["spacing"] == list(refined.spacing(level))
        assert node.attrs.get("ratio", []) == kept.ratio
        for dim, length in zip(refined.dims, kept.shape, strict=True):
            np.testing.assert_allclose(node[dim], (np.arange(length) + 0.5) / length)
        for number, name in enumerate(mesh.names):
            variable = node[name.replace("/", "_")]
            assert variable.attrs["component"] == name
            expected = uniform(mesh, number, level, np.nan)
            np.testing.assert_array_equal(variable.isel(x=slice(None, None, -2)), expected[::-2])
            np.testing.assert_array_equal(variable.isel(y=[2, 0]), expected[:, [2, 0]])
            np.testing.assert_array_equal(variable.isel(x=1), expected[1])
            points = xr.DataArray([0, 2, 1], dims="p")
            np.testing.assert_array_equal(
                variable.isel(x=points, y=points), expected[[0, 2, 1], [0, 2, 1]]
            )
            np.testing.assert_array_equal(variable.isel(x=slice(1, 1)), expected[1:1])
            np.testing.assert_array_equal(
                variable.transpose(..., "x"), np.moveaxis(expected, 0, -1)
            )
            assert variable.dtype == expected.dtype


def test_a_tree_reads_no_more_than_a_region(
    refined: RefinedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    read = MeshComponent.read

    def noted(component: Any, region: Any = ..., **how: Any) -> Any:
        reads.append(region)
        return read(component, region, **how)

    monkeypatch.setattr(MeshComponent, "read", noted)
    tree = refined.to_datatree(components="density")
    assert list(tree["level_1"].data_vars) == ["density"]
    part = tree["level_1/density"].isel(x=slice(1, 3), y=[2, 0])
    repr(tree)
    assert reads == []
    part.load()
    assert [region[:2] for region in reads] == [(slice(1, 3), slice(0, 3))]
    with pytest.raises(bf.LimitExceededError, match="over max_bytes=8"):
        refined.to_datatree(max_bytes=8)["level_1/density"].load()


def test_a_tree_pickles_while_its_header_is_the_same(
    refined: RefinedMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask = pytest.importorskip("dask")
    tree = pickle.loads(pickle.dumps(refined.to_datatree()))  # noqa: S301 - our own
    expected = refined["density"].read(level=1)
    np.testing.assert_array_equal(tree["level_1/density"], expected)
    chunked = refined.to_datatree()["level_1/density"].chunk({"x": 2})
    with dask.config.set(scheduler="threads"):
        np.testing.assert_array_equal(chunked.compute(), expected)
    pickled = pickle.dumps(refined)
    header = tmp_path / os.path.basename(refined.path) / "Header"  # noqa: PTH119
    header.write_text(header.read_text().replace("\n0.25\n", "\n0.75\n", 1))
    with pytest.raises(bf.ConflictError, match="Header has changed"):
        pickle.loads(pickled)  # noqa: S301 - our own


@pytest.mark.parametrize("seed", range(8))
def test_xarray_opens_meshes_as_trees(seed: int, tmp_path: Path) -> None:
    mesh, plotfile = opened(seed, tmp_path)
    store = tmp_path / "run.zarr"
    bf.convert(plotfile.path, store)
    step = store / os.path.basename(plotfile.path)  # noqa: PTH119
    expected = plotfile.to_datatree()
    for place in (plotfile.path, step, store):
        tree = xr.open_datatree(place, engine="bedform")
        xr.testing.assert_identical(tree, expected)
        groups = xr.open_groups(place, engine="bedform")
        assert list(groups) == ["/", *(f"/level_{level}" for level in range(len(mesh.levels)))]
    blocks = xr.open_datatree(step, engine="bedform", chunks={"x": 5})
    fine = blocks[f"level_{len(mesh.levels) - 1}/density"]
    assert max(fine.chunksizes["x"]) <= 5
    np.testing.assert_array_equal(fine, uniform(mesh, 0, len(mesh.levels) - 1, np.nan))
    fewer = xr.open_datatree(plotfile.path, engine="bedform", drop_variables=["density", "x"])
    assert set(fewer["level_0"].variables) == set(expected["level_0"].variables) - {"density", "x"}
    # With a group: the arrays as they are stored.
    stored = xr.open_datatree(step, engine="bedform", group="/")
    theirs = xr.open_datatree(step, engine="zarr", consolidated=False)
    xr.testing.assert_identical(stored, theirs)
    level = xr.open_dataset(step, engine="bedform", group="level_0")
    assert {"boxes", "sub_boxes"} <= set(level)


def test_xarray_is_told_that_a_mesh_is_a_tree(tmp_path: Path) -> None:
    _, plotfile = opened(seed_of(2, 2), tmp_path)
    store = tmp_path / "run.zarr"
    bf.convert(plotfile.path, store)
    step = str(store / os.path.basename(plotfile.path))  # noqa: PTH119
    for place, named, group in (
        (plotfile.path, plotfile.path, None),
        (plotfile.path, plotfile.path, "level_0"),
        (step, step, None),
        (store, step, None),
    ):
        with pytest.raises(bf.UnsupportedError) as caught:
            xr.open_dataset(place, engine="bedform", group=group)
        assert str(caught.value) == (
            f"{named} is a refined mesh, not one data set: xr.open_datatree({named!r}, "
            "engine='bedform'), without group, has a node for each level"
        )
    with pytest.raises(bf.UnsupportedError, match="without group"):
        xr.open_datatree(plotfile.path, engine="bedform", group="level_0")
    with pytest.raises(bf.UnsupportedError, match="leave out snapshot=True"):
        xr.open_datatree(step, engine="bedform", snapshot=True)


# Pictures -----------------------------------------------------------------------------------------


def test_a_picture_has_its_title_and_is_replaced_by_the_next_one(
    refined: RefinedMesh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "slice.png"
    command = ["render", refined.path, "density", "-o", str(target)]
    for options in ([], ["--boxes"], ["--log", "--cmap", "magma"], ["--level", "0"]):
        assert run([*command, *options]) == 0
        assert target.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    said = capsys.readouterr().out.splitlines()
    assert all(line.startswith("density") for line in said)
    assert "cells of level 1" in said[0]
    assert "cells of level 0, of levels 0 to 1" in said[-1]
    target.write_bytes(b"\x89PNG\r\n\x1a\n of another program")
    assert run(command) == 2
    assert "exists and is no picture of 'bedform render'" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0


def test_a_plane_is_in_the_middle_and_of_the_finest_level_that_is_small_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, refined = opened(seed_of(3, 3), tmp_path)
    component = refined["density"]
    plane = _mesh_picture.read_plane(component, None, None, None)
    assert (plane.level, plane.normal, plane.at) == (2, 2, 0.5)
    middle = component.slice(axis="z", at=0.5, level=2)
    np.testing.assert_array_equal(plane.values, middle)
    monkeypatch.setattr(_mesh_picture, "CELLS_MAX", middle.size - 1)
    assert _mesh_picture.read_plane(component, None, None, None).level == 1
    monkeypatch.setattr(_mesh_picture, "CELLS_MAX", 1)
    plane = _mesh_picture.read_plane(component, "x", 0.1, None)
    assert (plane.level, plane.across, plane.up) == (0, 1, 2)
    for level in range(3):
        plane = _mesh_picture.read_plane(component, "y", 0.99, level)
        corners = _mesh_picture._outlines(plane, level)
        cut = [stop[1] == mesh.levels[level].shape[1] for _, stop in mesh.levels[level].boxes]
        assert len(corners) == sum(cut)
        # All corners lie in the domain, whose sides have the length 1.
        assert ((corners >= 0) & (corners <= 1 + 1e-12)).all()


@pytest.mark.parametrize("rank", [2, 3])
def test_a_part_of_a_plane_has_the_cells_and_boxes_in_its_bounds(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, refined = opened(seed_of(rank, 3), tmp_path)
    component, numbers = refined["density"], np.random.default_rng(rank)
    for level in range(3):
        whole = component.read(level=level)
        whole = whole[:, whole.shape[1] // 2] if rank == 3 else whole
        across, up = whole.shape
        plane = ("y", 0.5) if rank == 3 else (None, None)
        for ends in numbers.uniform((-0.2, 0.1), (0.9, 0.6), (10, 2, 2)):
            zoom = tuple((low, max(low, 0) + length) for low, length in ends.tolist())
            found = _mesh_picture.read_plane(component, *plane, level, zoom)
            shown = [(max(low, 0), min(high, 1)) for low, high in zoom]
            np.testing.assert_allclose(found.shown, shown)
            inside = [
                [cell for cell in range(count) if low < (cell + 1) / count and cell / count < high]
                for count, (low, high) in zip((across, up), shown, strict=True)
            ]
            np.testing.assert_array_equal(found.values, whole[np.ix_(*inside)])
            bounds = [(cells[0], cells[-1] + 1) for cells in inside]
            np.testing.assert_allclose(found.cells, np.divide(bounds, [[across], [up]]))
            axes = [axis for axis in range(rank) if axis != 1 or rank == 2]
            boxes = np.array(mesh.levels[level].boxes) / mesh.levels[level].shape
            in_view = [
                all(
                    box[0, axis] < high and box[1, axis] > low
                    for axis, (low, high) in zip(axes, shown, strict=True)
                )
                and (rank == 2 or box[0, 1] <= 0.5 < box[1, 1])
                for box in boxes
            ]
            assert len(_mesh_picture._outlines(found, level)) == sum(in_view)
    # A part has fewer cells, so that it may have finer ones.
    monkeypatch.setattr(_mesh_picture, "CELLS_MAX", 4)
    zoom = ((0.5, 0.51), (0.5, 0.51))
    assert _mesh_picture.read_plane(component, None, None, None).level == 0
    assert _mesh_picture.read_plane(component, None, None, None, zoom).level == 2


def test_limits_of_the_colours_are_the_given_ones_or_those_of_the_elements(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    _, refined = opened(seed_of(2, 2), tmp_path)
    plane = _mesh_picture.read_plane(refined["density"], None, None, None)
    plane = dataclasses.replace(plane, values=np.array([[1.0, 2.0], [np.nan, 5.0]]))
    for limits, expected, ends in (
        ((None, None), (1, 5), "neither"),
        ((2, None), (2, 5), "min"),
        ((None, 4), (1, 4), "max"),
        ((2, 4), (2, 4), "both"),
        ((7, 9), (7, 9), "min"),
        ((0.5, 9), (0.5, 9), "neither"),
    ):
        for log in (False, True):
            norm = _mesh_picture._norm(plane, limits, log=log)
            assert (norm.vmin, norm.vmax) == expected
            assert _mesh_picture._cut_ends(plane, norm) == ends
    drawn = {
        limits: _mesh_picture.picture_of(plane, log=False, cmap="gray", boxes=False, limits=limits)
        for limits in ((None, None), (2, 4), (None, 4), (1, 5))
    }
    assert len(set(drawn.values())) == 3
    assert drawn[None, None] == drawn[1, 5]
    empty = dataclasses.replace(plane, values=np.full((2, 2), np.nan))
    for limits in ((7, None), (None, -7), (3, 9)):
        norm = _mesh_picture._norm(empty, limits, log=False)
        assert norm.vmin < norm.vmax
        assert limits[0] in (None, norm.vmin)
        assert limits[1] in (None, norm.vmax)


def test_the_command_shows_the_named_part_of_a_plane(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    _, mesh = opened(seed_of(3, 2), tmp_path)
    command = ["render", mesh.path, "density", "-o", str(tmp_path / "a.png"), "--json", "--boxes"]
    for text, shown in (
        ("0:0.5,0.2:0.8", [[0, 0.5], [0.2, 0.8]]),
        (" 0.25 : , :0.75", [[0.25, 1], [0, 0.75]]),
        ("-1:9,:", [[0, 1], [0, 1]]),
    ):
        assert run([*command, "--axis", "y", "--region", text, "--vmax", "0.9"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["region"] == shown
        assert facts["axis"] == "y"


def test_planes_without_numbers_and_with_strange_names_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, refined = opened(seed_of(2, 2, names=["density"]), tmp_path)
    header = tmp_path / os.path.basename(refined.path) / "Header"  # noqa: PTH119
    name = "a $x_{ of /%s 日本 " + "y" * 200
    header.write_text(header.read_text("utf-8").replace("density", name), "utf-8")
    component = bf.open(header.parent)[name]
    plane = _mesh_picture.read_plane(component, None, None, None)
    for values in (np.nan, np.inf, 0.0, 1e-300, -1e300):
        plane = dataclasses.replace(plane, values=np.full(plane.values.shape, values))
        picture = _mesh_picture.picture_of(plane, log=False, cmap="viridis", boxes=True)
        assert picture.startswith(b"\x89PNG")
    with pytest.raises(bf.InvalidArgumentError, match="no element of the plane is above zero"):
        _mesh_picture.picture_of(plane, log=True, cmap="viridis", boxes=False)


def test_the_default_name_of_a_picture_is_that_of_mesh_and_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    seed = seed_of(2, 2, names=["density", "x velocity", "Y(O2)/é"])
    _, mesh = opened(seed, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["render", f"{mesh.path}/", "Y(O2)/é", "--json"]) == 0
    assert '"shape"' in capsys.readouterr().out
    assert (tmp_path / f"plt{seed}.Y(O2)_é.png").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["densty"], "no component 'densty'; near ones: 'density'"),
        (["density", "--axis", "w"], "axis 'w': the axes are x, y, z"),
        (["density", "--at", "7"], "z=7.0: the domain reaches from 0.0 to 1.0"),
        (["density", "--level", "9"], "its levels are 0 to 1"),
        (["density", "--cmap", "none"], "no colour map 'none'"),
        (["density", "--vmin", "2", "--vmax", "1"], "--vmin 2 is not below --vmax 1"),
        (["density", "--vmin", "1", "--vmax", "1"], "--vmin 1 is not below --vmax 1"),
        (["density", "--vmin", "50"], "--vmin 50 is not below the greatest element"),
        (["density", "--vmax", "-50"], "--vmax -50 is not above the least element"),
        (["density", "--vmax", "nan"], "--vmax nan is not a finite number"),
        (["density", "--vmin", "0", "--log"], "--vmin 0: with --log colours begin above 0"),
        (["density", "--region", "0:1"], "--region '0:1': give the bounds of both axes"),
        (["density", "--region", "0:1,a:1"], "give the bounds of both axes"),
        (["density", "--region", "0:1,0:1,0:1"], "give the bounds of both axes"),
        (["density", "--region", "0,1"], "give the bounds of both axes"),
        (["density", "--region", "0.5:0.2,:"], "--region: x from 0.5 to 0.2: give a lower and"),
        (["density", "--region", ":,1:2"], "--region: y from 1 to 2: give a lower and an upper"),
        (["density", "--region", ":,nan:2"], "--region: y from nan to 2: give a lower and an"),
        (["density", "-o", "a.pdf"], "the picture is a PNG"),
        (["density", "-o", "none/a.png"], "no such directory"),
    ],
)
def test_pictures_that_cannot_be_drawn_are_one_line(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    _, mesh = opened(seed_of(3, 2), tmp_path)
    assert run(["render", mesh.path, *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.png"))


def test_a_mesh_of_two_axes_has_no_plane_to_choose_and_other_files_none_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, mesh = opened(seed_of(2, 2), tmp_path)
    assert run(["render", mesh.path, "density", "--axis", "x"]) == 2
    assert "has two axes, x and y, which the picture shows" in capsys.readouterr().err
    assert run(["render", str(tmp_path), "density"]) == 2
    assert "is no refined mesh" in capsys.readouterr().err
    assert run(["render", str(tmp_path / "plt"), "density"]) == 2
    assert "no such file or store" in capsys.readouterr().err


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, mesh = opened(seed_of(2, 2), tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["render", mesh.path, "density"]) == 2
    assert "pip install 'bedform[plots]'" in capsys.readouterr().err
