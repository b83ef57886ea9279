"""The bases of the figures of the readahead benchmark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness.children import in_child  # noqa: E402
from benchmarks.harness.promises import Promise  # noqa: E402
from benchmarks.reads_ahead import loops, misses, processes  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.night


@pytest.fixture(autouse=True)
def path_is_left_as_it_was() -> Iterator[None]:
    """Restores `sys.path` for later modules."""
    yield
    if str(ROOT) in sys.path:
        sys.path.remove(str(ROOT))


def test_a_promise_names_a_line_that_broke_it() -> None:
    promise = Promise("at most 5")
    promise.add("a", True, "4")
    promise.add("b", False, "7")
    verdict = promise.verdict()
    assert (verdict.holds, verdict.measured) == (False, "1 of 2; not b: 7")
    assert Promise("nothing measured").verdict().holds is None


@pytest.mark.parametrize("decomposition", processes.DECOMPOSITIONS)
@pytest.mark.parametrize("count", processes.PROCESSES)
def test_the_slabs_of_all_processes_are_the_map(decomposition: str, count: int) -> None:
    covered = np.zeros((processes.EDGE, processes.EDGE), int)
    for rows, columns in processes.slabs(decomposition, count):
        covered[slice(*rows), slice(*columns)] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("pattern", loops.MISSES)
def test_a_pattern_repeats_its_steps(pattern: str) -> None:
    """The steps, as a function of the index in the pattern, repeat with the known period."""
    steps = np.diff(loops.places(pattern, 24, 96))
    period = {"nested": 8, "tiled": 6, "random-strided": 4, "climate hours": 4}.get(pattern, 1)
    assert (steps[period:] == steps[:-period]).all()


def test_a_pattern_of_three_axes_has_no_place_twice() -> None:
    wanted = misses.wanted_of(misses.THREE_AXES, 60)
    assert len(set(wanted)) == 60


def test_the_ends_of_a_chunk_say_which_it_is() -> None:
    assert loops.number_of(np.full(5, 7.0)) == 7
    assert loops.number_of(np.array([7.0, 7.0, 8.0])) == -1


def test_a_child_gives_its_answer_and_its_failure() -> None:
    def fails() -> Any:
        raise RuntimeError("a wrong answer")

    assert in_child(lambda: {"seconds": 1.5}) == {"seconds": 1.5}
    with pytest.raises(RuntimeError, match="a loop failed"):
        in_child(fails)
