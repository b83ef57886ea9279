"""The bases of the figures of the replica benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness import data  # noqa: E402
from benchmarks.replicas import (  # noqa: E402
    images,
    labels,
    model,
    orders,
    particles,
    rivers,
    series,
    trials,
)
from benchmarks.replicas.fields import Field  # noqa: E402
from benchmarks.replicas.readers import OURS, READERS, WITHOUT  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.night


@pytest.fixture(autouse=True)
def path_is_left_as_it_was() -> Iterator[None]:
    """Restores `sys.path` for later modules."""
    yield
    if str(ROOT) in sys.path:
        sys.path.remove(str(ROOT))


SMALL = Field("t", ("time", "lat", "lon"), (30, 20, 24), "float32", seed=3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.nc"
    SMALL.write(path)
    return path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_are_known_without_the_file(tmp_path: Path, dtype: str) -> None:
    of = Field("t", ("time", "lat", "lon"), SMALL.shape, dtype)
    of.write(tmp_path / "t.nc")
    with h5py.File(tmp_path / "t.nc") as source:
        assert source["t"].chunks is None, "it lies in one piece, as its producer wrote it"
        values = source["t"][:]
    selections: list[Any] = [
        np.s_[:, 3, 5],
        np.s_[7, :, 2:20:3],
        (4, 5, 6),
        (slice(None), [1, 7], [3, 3, 9]),
        (np.array([2, 20]), slice(None), 4),
    ]
    for selection in selections:
        wanted = values
        for axis, one in reversed(list(enumerate(selection))):
            wanted = wanted[(slice(None),) * axis + (one,)]
        np.testing.assert_array_equal(of.of(selection), wanted)
    assert len(np.unique(values)) > values.size * 0.9, "its noise does not repeat"


@pytest.mark.parametrize("name", READERS)
def test_all_readers_give_the_same(file: Path, name: str) -> None:
    selections: list[Any] = [np.s_[:, 3, 5], np.s_[7, :, :]]
    for found, wanted in zip(
        READERS[name](file, "t", selections), SMALL.answers(selections), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_a_pass_picks_what_lists_name(file: Path) -> None:
    selections = [(slice(None), [1, 7, 12], [3, 9])]
    for read in (series.read_boxes, series.read_maps):
        np.testing.assert_array_equal(read(file, "t", selections)[0], SMALL.answers(selections)[0])


def test_series_are_read_in_an_eighth_of_the_domain() -> None:
    of = series.field_of(is_quick=False)
    rows, columns = series.hot_region(of)
    assert len(rows) * len(columns) * 8 == of.shape[1] * of.shape[2]
    assert of.byte_count > 2 << 30
    for _, row, column in series.random_series(of, 50, 1):
        assert row in rows and column in columns


@pytest.mark.parametrize("share", rivers.SHARES)
def test_a_sub_plane_has_its_share_of_the_domain(share: float) -> None:
    of = rivers.field_of(is_quick=False, seed=1)
    rows, columns = rivers.sub_plane(of, share)
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    assert area / (of.shape[1] * of.shape[2]) == pytest.approx(share, rel=0.02)
    assert rows.stop <= of.shape[1] and columns.stop <= of.shape[2]


@pytest.mark.parametrize("pattern", images.PATTERNS)
def test_reads_of_spectra_lie_within_the_cube(pattern: str) -> None:
    of = images.field_of(is_quick=True)
    for selection in images.reads_of(of, pattern, 50, 1):
        for one, length in zip(selection, of.shape, strict=True):
            assert 0 <= one.start < one.stop <= length


def test_labels_have_their_shares_of_the_rows_in_many_blocks() -> None:
    of = labels.field_of(is_quick=True)
    for share, rows in labels.rows_of(of).items():
        assert len(rows) / of.shape[0] == pytest.approx(share, rel=0.35)
        blocks = labels.blocks_of(rows)
        assert len(blocks) > 30 and sum(one.stop - one.start for one in blocks) == len(rows)


def test_rows_of_labels_are_the_same_by_blocks_and_by_a_mask(tmp_path: Path) -> None:
    of = Field("ecog", ("time", "electrode"), (2000, 3), "float64")
    of.write(tmp_path / "e.nc")
    selections = [(labels.rows_of(of)[0.30], slice(None))]
    for read in (labels.read_blocks, labels.read_masked):
        found = read(tmp_path / "e.nc", "ecog", selections)
        np.testing.assert_array_equal(found[0], of.answers(selections)[0])


def test_energies_are_above_their_limits_in_fixed_shares(tmp_path: Path) -> None:
    of = particles.Particles(1 << 17)
    for energy, share in particles.SHARES.items():
        assert len(of.above(energy)) == pytest.approx(share * of.count, rel=0.1, abs=3)
    for wanted, held in particles.OVERLAPS.values():
        assert 0.2 < len(of.above(held)) / len(of.above(wanted)) < 0.5
    of.write(tmp_path / "p.nc")
    selections = [(of.above(1.3),)]
    for read in (particles.read_elements, particles.read_all):
        for found, expected in zip(
            read(tmp_path / "p.nc", of.name, selections), of.answers(selections), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_a_cold_read_is_checked_and_compared(file: Path) -> None:
    line = trials.Line("series", [[np.s_[:, 3, 5]], [np.s_[:, 4, 6]]])
    subject = trials.Subject(file, SMALL)
    found = trials.ReplicaTrial(subject, subject, {"series": line}).compare(line, 3)
    assert {len(seconds) for seconds in found["samples"].values()} == {3}
    assert set(found["samples"]) == set(READERS)
    assert found[OURS] == found[WITHOUT], "there is no replica"
    cells = trials.row("series", found, ["h5py", "netCDF4", "xarray"])
    assert len(cells) == len(trials.heads(["h5py", "netCDF4", "xarray"]))


def test_a_reader_that_gives_something_else_ends_the_benchmark(file: Path) -> None:
    def wrong(path: Path, name: Any, selections: list[Any]) -> Any:
        return [values + 1 for values in READERS["h5py"](path, name, selections)]

    line = trials.Line("series", [[np.s_[:, 3, 5]]])
    subject = trials.Subject(file, SMALL)
    trial = trials.ReplicaTrial(subject, subject, {"series": line})
    with pytest.raises(RuntimeError, match="a loop failed"):
        trial.once(wrong, line.reads[0], "series")


def test_the_baseline_is_the_fastest_peer_that_read_in_all_rounds() -> None:
    samples = {
        OURS: [1.0, 1.0, 1.0],
        WITHOUT: [2.0, 2.0, 2.0],
        "h5py": [8.0, 8.0, 8.0],
        "netCDF4": [9.0, 9.0, 9.0],
        "xarray": [7.0],
    }
    assert trials.faster({"samples": samples}).median == 8
    alone = {name: samples[name] for name in (OURS, WITHOUT)}
    assert trials.faster({"samples": alone}).median == 2


def test_data_of_one_file_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "VERIFIED", set())
    built = []

    def build(path: Path) -> None:
        path.write_bytes(b"values")
        built.append(path)

    for _ in range(2):
        data.VERIFIED.clear()
        data.ensure(tmp_path / "t.nc", build)
    assert len(built) == 1
    (tmp_path / "t.nc").write_bytes(b"other values")
    data.VERIFIED.clear()
    data.ensure(tmp_path / "t.nc", build)
    assert len(built) == 2, "what changed is built anew"


@pytest.mark.parametrize("shapes", [orders.SHAPES, orders.QUICK_SHAPES])
def test_selections_of_the_model_lie_within_their_arrays(shapes: dict[int, Any]) -> None:
    chosen = orders.eight(shapes) | orders.random_selections(shapes, 100)
    assert len(chosen) == 108
    for rank, selection, _ in chosen.values():
        assert len(selection) == rank == len(shapes[rank])
        for one, length in zip(selection, shapes[rank], strict=True):
            places = np.arange(length)[one]
            assert np.size(places) > 0
            if isinstance(one, slice):
                assert (one.stop or length) <= length, "nothing is cut off"


def test_layouts_of_the_model_hold_the_same_elements(tmp_path: Path) -> None:
    shape = orders.LITTLE_SHAPES[3]
    copies = orders.copies_of(tmp_path, shape, 1 << 8)
    copies.build()
    selection = orders.eight(orders.LITTLE_SHAPES)["SEL7"][1]
    wanted = copies.of.of(selection)
    for name in (orders.ORIGINAL, *copies.layouts):
        np.testing.assert_array_equal(copies.read(name, selection)[0], wanted)
    case = model.Case(copies, copies, selection, selection, has_gathered=False)
    found = case.compare(2, 2, is_cached=True)
    assert set(found["plans"]) == {"R", "Ty", "Tz", "Z", "H", "A"}
    for way, prediction in model.PREDICTIONS.items():
        assert all(plan[prediction] > 0 for plan in found["plans"].values())
        assert len(model.row("SEL7", found, way)) == len(model.row("SEL7", found, "cold"))
        assert model.summary(way, [found[way]])[1] == "1"


def test_a_transposition_has_its_axes_in_order() -> None:
    shape = (512, 512, 256)
    assert orders.pieces(shape, (1, 0, 2), 1 << 15) == (128, 1, 256)
    assert orders.pieces(shape, (2, 0, 1), 1 << 15) == (64, 512, 1)
    assert orders.pieces((8192, 8192), (1, 0), 1 << 15) == (8192, 4)


def test_a_choice_is_held_against_the_fastest_in_rounds_of_its_own() -> None:
    seconds = {"R": 1.0, "T": 1.2, "Z": 5.0}
    read: list[str] = []

    def once(name: str) -> float:
        read.append(name)
        return seconds[name]

    found = model.contest(list(seconds), "T", once, 3, 5)
    assert (found["chosen"], found["best"]) == ("T", "R")
    assert read.count("Z") == 1, "what is far from the fastest is not read again"
    assert model.ratio_of(found).median == pytest.approx(1.2)
    assert not model.is_as_good(found)
    assert "again" not in model.contest(list(seconds), "R", once, 3, 5), "it is the best"


def test_a_choice_that_cannot_be_told_from_the_fastest_is_a_tie() -> None:
    again = {"T": [1.0, 1.2, 0.9, 1.1, 1.3], "R": [1.1, 1.0, 1.0, 1.0, 1.2]}
    found = {"samples": {}, "chosen": "T", "best": "R", "again": again}
    assert model.ratio_of(found).median > 1 and model.is_as_good(found)
