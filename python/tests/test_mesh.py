"""Plotfiles are read as uniform arrays and box by box, as a naive reader reads them."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from plotfiles import any_mesh, uniform, write

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(40)


def any_region(chance: random.Random, shape: list[int]) -> tuple[slice, ...]:
    """Returns a region of a domain, sometimes an empty one."""
    bounds = [sorted(chance.choices(range(length + 1), k=2)) for length in shape]
    return tuple(slice(*pair) for pair in bounds)


@pytest.mark.parametrize("seed", SEEDS)
def test_regions_of_any_mesh_have_the_finest_elements(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    assert (opened.kind, opened.levels, opened.time) == ("amr", len(mesh.levels), 0.25)
    assert list(opened) == mesh.names
    for level, kept in enumerate(mesh.levels):
        assert opened.boxes(level).tolist() == [[start, stop] for start, stop in kept.boxes]
        assert opened.domain(level).tolist() == [[0] * len(kept.shape), kept.shape]
        for number, name in enumerate(mesh.names):
            expected = uniform(mesh, number, level, -1)
            found = opened[name].read(level=level, fill=-1)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            for _ in range(5):
                region = any_region(chance, kept.shape)
                part = opened[name].read(region, level=level, fill=-1)
                np.testing.assert_array_equal(part, expected[region])


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_have_every_cell_of_a_region_once(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    finest = len(mesh.levels) - 1
    alone = [uniform_of_level(mesh, -1, level) for level in range(finest + 1)]
    for region in (any_region(chance, mesh.levels[finest].shape), (...,)):
        seen = [np.zeros(level.shape, int) for level in mesh.levels]
        for piece in opened[mesh.names[-1]].pieces(region, level=finest):
            at = tuple(
                slice(first, first + length)
                for first, length in zip(piece.start, piece.data.shape, strict=True)
            )
            seen[piece.level][at] += 1
            np.testing.assert_array_equal(piece.data, alone[piece.level][at])
            np.testing.assert_array_equal(piece.covered, covered_cells(mesh, piece.level)[at])
        assert max(one.max() for one in seen) <= 1
        if region == (...,):
            for level, one in enumerate(seen):
                np.testing.assert_array_equal(one, has_cells(mesh, level))


def covered_cells(mesh: Any, level: int) -> np.ndarray[Any, Any]:
    """Returns whether one box of a finer level has all of a cell, for each cell of a level."""
    found = np.zeros(mesh.levels[level].shape, bool)
    ratio = np.ones(len(mesh.corner), int)
    for finer, kept in enumerate(mesh.levels[level + 1 :], level + 1):
        ratio *= mesh.levels[finer - 1].ratio
        for start, stop in kept.boxes:
            cells = np.zeros(kept.shape, int)
            cells[tuple(map(slice, start, stop))] = 1
            found |= all_of(cells, ratio.tolist())
    return found


def has_cells(mesh: Any, level: int) -> np.ndarray[Any, Any]:
    found = np.zeros(mesh.levels[level].shape, int)
    for start, stop in mesh.levels[level].boxes:
        found[tuple(map(slice, start, stop))] = 1
    return found


def all_of(finer: np.ndarray[Any, Any], ratio: list[int]) -> np.ndarray[Any, Any]:
    """Returns for each coarse cell whether all of its finer cells are there."""
    for axis, by in enumerate(ratio):
        shape = [*finer.shape[:axis], -1, by, *finer.shape[axis + 1 :]]
        finer = finer.reshape(shape).min(axis + 1)
    return finer.astype(bool)


def uniform_of_level(mesh: Any, component: int, level: int) -> np.ndarray[Any, Any]:
    """Returns the elements of one level alone."""
    found = np.full(mesh.levels[level].shape, np.nan, np.dtype(mesh.dtype).newbyteorder("="))
    kept = mesh.levels[level]
    for (start, stop), values in zip(kept.boxes, kept.values, strict=True):
        found[tuple(map(slice, start, stop))] = values[component]
    return found


@pytest.fixture
def plotfile(tmp_path: Path) -> Path:
    """A mesh of two levels in two axes."""
    return write(any_mesh(first_seed(rank=2, levels=2)), tmp_path / "plt")


def first_seed(rank: int, levels: int) -> int:
    found = (any_mesh(seed) for seed in range(500))
    return next(
        seed
        for seed, mesh in enumerate(found)
        if len(mesh.corner) == rank and len(mesh.levels) == levels and mesh.version == 1
    )


def test_numbers_drop_axes_and_planes_are_found_by_coordinates(plotfile: Path) -> None:
    component = bf.open(plotfile)["density"]
    whole = component.read(level=1)
    np.testing.assert_array_equal(component.read(np.s_[2, 1:3], level=1), whole[2, 1:3])
    np.testing.assert_array_equal(component.read(np.s_[..., -1], level=1), whole[:, -1])
    width = 1 / whole.shape[1]
    for at, cell in ((0, 0), (1.5 * width, 1), (1, -1)):
        np.testing.assert_array_equal(component.slice(axis="y", at=at, level=1), whole[:, cell])
        np.testing.assert_array_equal(component.slice(axis=1, at=at, level=1), whole[:, cell])


@pytest.mark.parametrize("seed", range(12))
def test_means_of_finer_cells_are_those_of_the_finest_array(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = any_mesh(seed)
    component = bf.open(write(mesh, tmp_path / "plt"))[mesh.names[0]]
    monkeypatch.setattr("bedform._mesh_component._MEAN_BYTES", 500)
    for level in range(len(mesh.levels)):
        expected = uniform(mesh, 0, len(mesh.levels) - 1, np.nan).astype("f8")
        ratio = np.array(expected.shape) // mesh.levels[level].shape
        for axis, by in enumerate(ratio):
            shape = [*expected.shape[:axis], -1, by, *expected.shape[axis + 1 :]]
            expected = expected.reshape(shape).mean(axis + 1)
        expected[np.isnan(expected)] = -7
        found = component.read(level=level, coarsen="mean", fill=-7)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        part = component.read(np.s_[1:3, 2:], level=level, coarsen="mean", fill=-7)
        np.testing.assert_allclose(part, expected[1:3, 2:], rtol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_a_ray_has_the_cells_that_many_points_of_the_line_lie_in(seed: int, tmp_path: Path) -> None:
    mesh, numbers = any_mesh(seed), np.random.default_rng(seed)
    component = bf.open(write(mesh, tmp_path / "plt"))[mesh.names[0]]
    level = len(mesh.levels) - 1
    whole, rank = uniform(mesh, 0, level, -1), len(mesh.corner)
    straight = np.full(rank, 0.4)
    ends = [(numbers.random(rank), numbers.random(rank)) for _ in range(5)]
    ends += [(straight * 0, straight * 0 + 1), (straight, np.append(straight[:-1], 1.0))]
    for a, b in ends:
        lengths, values = component.ray(a, b, level=level, fill=-1)
        assert (np.diff(lengths) > 0).all()
        along = np.linspace(0, 1, 20_001)[1:-1]
        cells = np.floor((a + along[:, None] * (b - a)) * whole.shape).astype(int)
        cells = np.clip(cells, 0, np.array(whole.shape) - 1)
        crossed = cells[np.append(True, (np.diff(cells, axis=0) != 0).any(axis=1))]
        # Points miss cells whose corner the line cuts; no other may be missing or new.
        expected = iter(values.tolist())
        assert all(value in expected for value in whole[tuple(crossed.T)].tolist())
        assert len(values) <= len(crossed) + 3
        middle = np.floor((a + lengths[:, None] / np.linalg.norm(b - a) * (b - a)) * whole.shape)
        middle = np.clip(middle.astype(int), 0, np.array(whole.shape) - 1)
        np.testing.assert_array_equal(values, whole[tuple(middle.T)])


@pytest.mark.parametrize("seed", range(12))
def test_widths_of_a_ray_are_the_lengths_of_the_line_in_its_cells(
    seed: int, tmp_path: Path
) -> None:
    mesh, numbers = any_mesh(seed), np.random.default_rng(seed)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    component, rank = opened[mesh.names[0]], len(mesh.corner)
    for level in range(len(mesh.levels)):
        for a, b in numbers.random((5, 2, rank)):
            lengths, values, widths = component.ray(a, b, level=level, fill=-1, widths=True)
            distance = np.linalg.norm(b - a)
            np.testing.assert_allclose(widths.sum(), distance)
            np.testing.assert_allclose(lengths, np.cumsum(widths) - widths / 2)
            # By very many points of the line: its integral is the mean element, times its length.
            along = (np.arange(100_000) + 0.5) / 100_000
            whole = uniform(mesh, 0, level, -1).astype("f8")
            cells = np.floor((a + along[:, None] * (b - a)) * whole.shape).astype(int)
            expected = whole[tuple(cells.T)].mean() * distance
            found = (values.astype("f8") * widths).sum()
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
            assert len(component.ray(a, b, level=level, fill=-1)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_region_has_the_cells_with_a_part_in_a_box_of_coordinates(
    seed: int, tmp_path: Path
) -> None:
    mesh, numbers = any_mesh(seed), np.random.default_rng(seed)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    for level, kept in enumerate(mesh.levels):
        edges = [np.arange(length + 1) / length for length in kept.shape]
        for box in numbers.uniform(-0.3, 1.3, (20, 2, len(kept.shape))):
            lower, upper = np.sort(box, axis=0)
            region = opened.region(lower, upper, level=level)
            for along, low, high, part in zip(edges, lower, upper, region, strict=True):
                has_part = (along[:-1] < high) & (along[1:] > low)
                assert list(range(part.start, part.stop)) == np.flatnonzero(has_part).tolist()
                assert 0 <= part.start <= part.stop <= len(along) - 1
        # Faces, as they are rounded: no cell behind them.
        for _ in range(20):
            cells = [sorted(numbers.choice(len(along), 2, replace=False)) for along in edges]
            corners = [
                [along[pair[end]] for along, pair in zip(edges, cells, strict=True)]
                for end in (0, 1)
            ]
            for by in (1, 1 + 2e-15, 1 - 2e-15):
                lower, upper = np.multiply(corners, by)
                expected = tuple(slice(int(first), int(last)) for first, last in cells)
                assert opened.region(lower, upper, level=level) == expected


def test_a_region_of_coordinates_has_a_cell_unless_it_lies_outside(plotfile: Path) -> None:
    opened = bf.open(plotfile)
    component = opened["density"]
    whole = component.read(level=1, fill=-1)
    count, other = whole.shape
    infinite = np.inf, np.inf
    assert opened.region(np.negative(infinite), infinite, level=1) == np.s_[0:count, 0:other]
    for at, cell in ((0.0, 0), (1 / count, 1), (1.5 / count, 1), (1.0, count - 1)):
        region = opened.region((at, 0), (at, 1), level=1)
        assert region == (slice(cell, cell + 1), slice(0, other))
        np.testing.assert_array_equal(
            component.read(region, level=1, fill=-1)[0],
            component.slice(axis="x", at=at, level=1, fill=-1),
        )
    for low, high in ((-2, -1), (-2, 0), (1, 2), (2, 3), (2, 2), (-1, -1)):
        region = opened.region((low, 0), (high, 1), level=1)
        assert component.read(region, level=1).shape == (0, other)
        assert list(component.pieces(region, level=1)) == []
    region = opened.region((0.2, 0.3), (0.6, 0.5), level=1)
    np.testing.assert_array_equal(component.read(region, level=1, fill=-1), whole[region])


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda mesh: mesh["densty"], bf.NotFoundError, "near ones: 'density'"),
        (lambda mesh: mesh.boxes(2), bf.InvalidArgumentError, "its levels are 0 to 1"),
        (lambda mesh: mesh.ratio(1), bf.InvalidArgumentError, "level 1 is the finest one"),
        (
            lambda mesh: mesh["density"].read(level=-1),
            bf.InvalidArgumentError,
            "must not be negative",
        ),
        (
            lambda mesh: mesh["density"].read(np.s_[::2], level=0),
            bf.InvalidSelectionError,
            "regions of a mesh have step 1",
        ),
        (lambda mesh: mesh["density"].read(99, level=0), bf.OutOfBoundsError, "cell 99 along x"),
        (
            lambda mesh: mesh["density"].read(np.s_[:, :, :], level=0),
            bf.InvalidSelectionError,
            "a region of 3 axes",
        ),
        (
            lambda mesh: mesh["density"].read(level=1, max_bytes=9),
            bf.LimitExceededError,
            "over max_bytes=9",
        ),
        (
            lambda mesh: mesh["density"].slice(axis="z", at=0, level=0),
            bf.InvalidArgumentError,
            "the axes are x, y",
        ),
        (
            lambda mesh: mesh["density"].slice(axis="x", at=1.5, level=0),
            bf.OutOfBoundsError,
            "the domain reaches from 0.0 to 1.0",
        ),
        (
            lambda mesh: mesh["density"].ray((0, 0), (0, 0), level=0),
            bf.InvalidArgumentError,
            "two different ends",
        ),
        (
            lambda mesh: mesh["density"].ray((0, 0), (0, 2), level=0),
            bf.OutOfBoundsError,
            "the domain reaches from",
        ),
        (
            lambda mesh: mesh["density"].ray((0, 0), "up", level=0),
            bf.InvalidArgumentError,
            "b='up': a point has 2 coordinates",
        ),
        (
            lambda mesh: mesh.region((0, 0, 0), (1, 1, 1), level=0),
            bf.InvalidArgumentError,
            r"lower=\(0, 0, 0\): a point has 2 coordinates",
        ),
        (
            lambda mesh: mesh.region((0, 0), ("a", 1), level=0),
            bf.InvalidArgumentError,
            r"upper=\('a', 1\): a point has 2 coordinates",
        ),
        (
            lambda mesh: mesh.region((0, 0), (1, np.nan), level=0),
            bf.InvalidArgumentError,
            "a coordinate is not a number",
        ),
        (
            lambda mesh: mesh.region((0, 0.6), (1, 0.5), level=0),
            bf.InvalidArgumentError,
            "y: lower 0.6 is above upper 0.5",
        ),
        (
            lambda mesh: mesh.region((0, 0), (1, 1), level=2),
            bf.InvalidArgumentError,
            "its levels are 0 to 1",
        ),
    ],
)
def test_what_a_mesh_does_not_have_is_a_clear_error(
    call: Any, error: type[Exception], said: str, plotfile: Path
) -> None:
    with pytest.raises(error, match=said):
        call(bf.open(plotfile))


def test_files_that_are_gone_cut_or_changed_are_errors(plotfile: Path, tmp_path: Path) -> None:
    data = min((plotfile / "Level_0").glob("Cell_D_*"))
    opened = bf.open(plotfile)
    expected = opened["density"].read(level=0)
    content = data.read_bytes()
    data.write_bytes(content[:-9] + b"!" * 9)
    with pytest.raises(bf.ConflictError, match="has changed since it was opened"):
        opened["density"].read(level=0)
    data.write_bytes(content[:-9])
    with pytest.raises(bf.CorruptError, match="lie outside of the file"):
        for component in (mesh := bf.open(plotfile)):
            mesh[component].read(level=0)
    data.write_bytes(content)
    np.testing.assert_array_equal(bf.open(plotfile)["density"].read(level=0), expected)
    shutil.rmtree(plotfile / "Level_1")
    with pytest.raises(bf.NotFoundError, match="Level_1/Cell_H"):
        bf.open(plotfile)
    with pytest.raises(bf.ReadOnlyError, match="plotfiles are never written"):
        bf.open(plotfile, "r+")


def test_a_damaged_text_is_an_error_or_reads_the_same_elements(
    plotfile: Path, tmp_path: Path
) -> None:
    """Bytes of the texts and of the headers in the data change one at a time."""
    chance = random.Random(3)
    expected = bf.open(plotfile)["density"].read(level=1)
    files = [plotfile / "Header", *plotfile.glob("Level_*/Cell_H")]
    read = 0
    for _ in range(300):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        good = bytes(content)
        content[chance.randrange(len(content))] = chance.choice(b"0123456789 ,()-.e\nXyz")
        file.write_bytes(content)
        try:
            found = bf.open(plotfile)["density"].read(level=1)
            read += found.shape == expected.shape
        except bf.BedformError as error:
            assert "\n" not in str(error)
        file.write_bytes(good)
    assert read > 10


def test_a_finer_domain_that_is_not_the_refined_one_is_an_error(plotfile: Path) -> None:
    header = plotfile / "Header"
    lines = header.read_text().split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("(("))
    coarse, _, fine = lines[at].rpartition(" ((")
    low, high, kind = f"(({fine}".split(" ")
    lines[at] = f"{coarse} {low} ({int(high[1:].split(',')[0]) + 1},{high.split(',')[1]} {kind}"
    header.write_text("\n".join(lines))
    with pytest.raises(bf.UnsupportedError, match="not the refined one of the level before"):
        bf.open(plotfile)


def test_parts_of_a_plotfile_that_are_not_read_are_refused_with_a_reason(plotfile: Path) -> None:
    (plotfile / "Tracer").mkdir()
    (plotfile / "Tracer" / "Header").write_text("Version_Two_Dot_One_double\n")
    (plotfile / "Nu_nd").mkdir()
    (plotfile / "Level_9").mkdir()
    refused = bf.open(plotfile).refused()
    assert list(refused) == ["Level_9", "Nu_nd", "Tracer"]
    assert "particles" in refused["Tracer"]
    assert "does not count" in refused["Level_9"]
    assert bf.open(plotfile).info()["refused"] == refused


def test_a_checkpoint_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "Header").write_text("CheckPointVersion_1.0\n3\n")
    with pytest.raises(bf.UnsupportedError, match="a checkpoint of AMReX"):
        bf.open(tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_an_explained_read_has_the_boxes_and_bytes_of_the_read(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    level = len(mesh.levels) - 1
    component = opened[mesh.names[0]]
    region = any_region(chance, mesh.levels[level].shape)
    facts = component.explain(region, level=level).to_dict()
    cells = component.read(region, level=level)
    assert facts["result_bytes"] == cells.nbytes
    pieces = list(component.pieces(region, level=level))
    for number, found in enumerate(facts["levels"]):
        own = [piece for piece in pieces if piece.level == number]
        seen = [piece for piece in own if number == level or not piece.covered.all()]
        assert found["grids"] + found["covered_grids"] == len(own)
        # A piece may be covered by several boxes of the next level together.
        assert found["grids"] <= len(seen)
    assert facts["needed_bytes"] <= sum(piece.data.nbytes for piece in pieces)
    shown = str(component.explain(region, level=level)).splitlines()
    for number, line in enumerate(shown[-1 - level :]):
        count = facts["levels"][number]["grids"]
        assert line.startswith(f"level {number:<11} {count} box{'es' * (count != 1)}, ")


@pytest.mark.parametrize("seed", range(20))
def test_shares_of_pieces_add_up_to_the_region(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_mesh(seed), random.Random(seed)
    # Boxes of a third level are not nested in those of the second one here.
    level = min(len(mesh.levels) - 1, 1)
    opened = bf.open(write(mesh, tmp_path / "plt"))
    component, whole = opened[mesh.names[0]], uniform(mesh, 0, level, 0)
    shape = mesh.levels[level].shape
    for region in (any_region(chance, shape) for _ in range(3)):
        total = 0.0
        for piece in component.pieces(region, level=level):
            cells = float(np.prod(np.divide(shape, opened.domain(piece.level)[1])))
            total += float((piece.data.astype("f8") * piece.share()).sum() * cells)
        np.testing.assert_allclose(total, whole[region].sum(dtype="f8"), rtol=1e-6, atol=1e-9)


def test_no_cell_has_a_part_in_an_empty_region(tmp_path: Path) -> None:
    opened = bf.open(write(any_mesh(first_seed(2, 2)), tmp_path / "plt"))
    component = opened[next(iter(opened))]
    for region in (np.s_[5:5, 0:4], np.s_[0:0], np.s_[:, 3:3]):
        assert list(component.pieces(region, level=1)) == []
        assert component.explain(region, level=1).to_dict()["requests"] == 0


def test_the_level_of_a_read_is_named(plotfile: Path) -> None:
    opened = bf.open(plotfile)
    component = opened[next(iter(opened))]
    with pytest.raises(bf.InvalidSelectionError, match="say the level"):
        component[0:4]
    with pytest.raises(bf.InvalidArgumentError, match="level"):
        component.read(level=1.0)
    with pytest.raises(bf.NotFoundError, match="no step 'plt9'; near ones: 'plt'"):
        opened.step("plt9")


def test_reads_without_a_level_are_of_the_finest(tmp_path: Path) -> None:
    seed = next(seed for seed in range(99) if len(any_mesh(seed).levels) == 3)
    mesh = any_mesh(seed)
    component = bf.open(write(mesh, tmp_path / "plt"))[mesh.names[0]]
    whole = component.read(level=2, fill=-1)
    np.testing.assert_array_equal(component.read(fill=-1), whole)
    plane = component.slice(axis=0, at=0.5, level=2, fill=-1)
    np.testing.assert_array_equal(component.slice(axis=0, at=0.5, fill=-1), plane)
    ends = [0.0] * whole.ndim, [1.0] * whole.ndim
    np.testing.assert_array_equal(component.ray(*ends), component.ray(*ends, level=2))
    assert component.explain().to_dict()["result_bytes"] == whole.nbytes
    assert len(list(component.pieces())) == len(list(component.pieces(level=2)))
