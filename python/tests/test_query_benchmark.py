"""The bases of the figures of the benchmark of queries: its fields, its questions, its readers."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness.data import files_under  # noqa: E402
from benchmarks.queries import cases, days, fields, trials  # noqa: E402
from benchmarks.queries.readers import READERS, Question, Reader  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.night

SHAPE = (48, 40, 36)


@pytest.fixture(autouse=True)
def path_is_left_as_it_was() -> Iterator[None]:
    """Restores `sys.path` for later modules."""
    yield
    if str(ROOT) in sys.path:
        sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A field with missing values and infinite ones."""
    path = tmp_path_factory.mktemp("field") / cases.FIELD
    values = fields.smooth(SHAPE)
    values[3:9, :, 5] = np.nan
    values[0, 0, 0], values[-1, -1, -1] = np.inf, -np.inf
    np.save(path, values)
    return path


def test_the_smooth_field_has_the_spectrum_of_turbulence() -> None:
    """Between the largest eddies and the grid, energy falls by k^-5/3."""
    edge = 128
    field = fields.smooth((edge,) * 3)
    energy = np.abs(np.fft.fftn(field)) ** 2
    axis = np.fft.fftfreq(edge, 1 / edge)
    wave = np.sqrt(axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2)
    shell = np.rint(wave).astype(int)
    spectrum = np.bincount(shell.ravel(), energy.ravel())
    waves = np.arange(24, 49)
    rolled_off = spectrum[waves] * np.exp(
        fields.DISSIPATION * 2 * np.pi * waves / edge * fields.KOLMOGOROV
    )
    slope = np.polyfit(np.log(waves), np.log(rolled_off), 1)[0]
    # Von Karman's spectrum comes close to its power law at six times the wave of the eddies.
    assert slope == pytest.approx(-5 / 3, abs=0.15)
    near, far = (
        np.abs(np.diff(field, axis=2)).mean(),
        np.abs(field[..., 24:] - field[..., :-24]).mean(),
    )
    assert near < far / 4


@pytest.mark.parametrize("name", ["smooth", "rough"])
def test_a_field_is_the_same_each_time(name: str) -> None:
    first, second = (np.stack(list(fields.planes_of(name, SHAPE))) for _ in range(2))
    assert first.shape == SHAPE
    assert first.tobytes() == second.tobytes()


def test_no_map_of_the_real_field_repeats() -> None:
    pytest.importorskip("iris_sample_data")
    maps = np.stack(list(fields.planes_of("real", (12, 90, 80))))
    assert len({one.tobytes() for one in maps}) == len(maps)
    missing = np.isnan(maps)
    assert 0.3 < missing.mean() < 0.6
    assert (missing == missing[0]).all()
    assert -3 < np.nanmin(maps) < np.nanmax(maps) < 35


def test_a_map_that_is_not_grown_is_itself() -> None:
    values = np.random.default_rng(1).random((7, 9))
    is_zero, grown = fields.grown(values, (7, 9))
    np.testing.assert_array_equal(grown, values)
    assert not is_zero.any()


def test_bounds_leave_the_wanted_share_of_the_elements(holed: Path) -> None:
    values = np.load(holed)
    known = np.count_nonzero(~np.isnan(values))
    for name, (bound, top) in cases.bounds_of(values).items():
        percent = float(name.split()[1])
        question = Question(bound, None, "count", top)
        assert question.of(values) == round(known * percent / 100), name


def test_boxes_are_a_hundredth_of_the_array() -> None:
    for shape in fields.shapes(512).values():
        assert math.prod(shape) == 512**3
        for box in cases.boxes_of(shape):
            lengths = [stop - start for start, stop in box]
            assert math.prod(lengths) / 512**3 == pytest.approx(0.01, rel=0.05)
            assert all(0 <= a < b <= n for (a, b), n in zip(box, shape, strict=True))


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.name)
def test_all_readers_answer_alike(tmp_path: Path, holed: Path, reader: Reader) -> None:
    """With missing values, in a box and everywhere, by each of their ways."""
    if not reader.is_installed():
        pytest.skip(f"{reader.package} is not installed")
    made = (
        next(one for one in READERS if one.copy == "ours.zarr") if "scan" in reader.copy else reader
    )
    path = holed if reader.copy == cases.FIELD else tmp_path / reader.copy
    if path != holed:
        trials.in_child(trials.timed_writing, made, path, holed)
    boxes = [((3, 31), (2, 40), (1, 30)), None]
    for question in [
        Question(1.0, box, wants, top)
        for box in boxes
        for wants in ("count", "values")
        for top in (None, 1.5)
    ]:
        expected = cases.answer(holed, question)
        for way in reader.answers:
            # In a child, as in the benchmark: the libraries' threads stay there.
            trials.in_child(
                trials.timed,
                lambda way=way, question=question: reader.answers[way](path, question),
                lambda: None,
                expected,
                reader.is_ordered,
            )


def test_matching_blocks_are_those_with_an_element_of_the_range(holed: Path) -> None:
    values, chunks = np.load(holed), (7, 16, 36)
    for box in [None, ((3, 31), (2, 40), (1, 30))]:
        question = Question(1.8, box, "count", 1.9)
        points = np.argwhere(question.holds(values))
        if box is not None:
            inside = [(a <= points[:, i]) & (points[:, i] < b) for i, (a, b) in enumerate(box)]
            points = points[np.logical_and.reduce(inside)]
        expected = len({tuple(point // chunks) for point in points})
        assert cases.matching_blocks(values, question, chunks) == expected > 0


def test_a_wrong_answer_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="3 elements, not 4"):
        trials.check(3, 4, is_ordered=True)
    values = np.array([2.0, 1.0])
    trials.check(values, values[::-1], is_ordered=False)
    with pytest.raises(RuntimeError, match="wrong values"):
        trials.check(values, values[::-1], is_ordered=True)


def test_the_scanned_store_is_the_same_without_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"elements")
    trials.link_tree(tmp_path / "d", tmp_path / "a")
    [file] = files_under(tmp_path / "d")
    assert file.samefile(tmp_path / "a" / "b" / "c")


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file of daily maps."""
    path = tmp_path_factory.mktemp("days") / days.COPY
    days.write(path, days.QUICK_MAP, 60)
    return path


@pytest.mark.parametrize("name", days.READERS)
@pytest.mark.parametrize("line", days.LINES)
def test_hot_days_are_the_same_for_all_readers(
    producer: Path, tmp_path: Path, name: str, line: str
) -> None:
    question = days.LINES[line]
    days.write_region(tmp_path / days.REGION, producer)
    expected: Any = days.expected(tmp_path / days.REGION, question)
    assert np.sum(expected) > 0
    for answer in days.READERS[name].answers.values():
        trials.check(answer(producer, question), expected, is_ordered=True)


def test_the_file_has_the_form_of_its_producer(producer: Path) -> None:
    """Packed, one map per chunk, shuffled and deflated; the region's bound is no stored value."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(producer) as file:
        variable = file[days.VARIABLE]
        assert variable.chunks == (1, *days.QUICK_MAP)
        assert (variable.compression, variable.shuffle) == ("gzip", True)
        assert variable.dtype == np.int16
        packed = variable[:]
    assert (np.abs(packed.astype(int)) < 32767).all()
    assert ((days.BOUND - days.OFFSET) / days.SCALE) % 1 != 0
