"""Arrays of zarr-python's own test strategies read equal.

``BEDFORM_ZARR_CASES=5000 pytest -s test_zarr_strategies.py`` tries that many cases.
"""

from __future__ import annotations

import collections
import os
import shutil
import sys
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

CASES = int(os.environ.get("BEDFORM_ZARR_CASES", "100"))


@pytest.fixture
def places() -> Iterator[list[str]]:
    """Yields a list of the cases' directories, which are removed at the end."""
    made: list[str] = []
    yield made
    for place in made:
        shutil.rmtree(place, ignore_errors=True)


def outcome_of(place: str, written: Any) -> str:
    """Returns the outcome of reading the array: one word, or the missing feature."""
    try:
        found = bf.open(place)[written.path]
        values = found[...]
    except bf.UnsupportedError as error:
        return f"unsupported: {str(error).partition(': ')[2]}"
    except bf.CorruptError as error:
        return f"corrupt: {error}"
    expected = written[...]
    is_same = (
        values.dtype == expected.dtype
        and found.shape == written.shape
        # Bitwise, including NaNs and types without equality in NumPy.
        and np.asarray(values).tobytes() == np.asarray(expected).tobytes()
        and np.asarray(found.fill_value).tobytes() == np.asarray(fill_value_of(written)).tobytes()
        and dict(found.attributes) == dict(written.attrs)
    )
    return "same" if is_same else f"wrong: {written.metadata.to_dict()}"


def fill_value_of(written: Any) -> Any:
    """Returns the fill value; some v2 arrays lack one, and zarr-python reads them with this."""
    if written.fill_value is None:
        return written.metadata.dtype.default_scalar()
    return written.fill_value


@pytest.mark.timeout(900 + CASES)
def test_what_the_strategies_of_zarr_python_write_is_read_with_the_same_values(
    places: list[str],
) -> None:
    strategies = pytest.importorskip("zarr.testing.strategies")
    from zarr.storage import LocalStore

    counts: collections.Counter[str] = collections.Counter()

    def local_store() -> Any:
        places.append(tempfile.mkdtemp())
        return LocalStore(places[-1])

    @hypothesis.settings(max_examples=CASES)
    @hypothesis.given(strategies.arrays(stores=st.builds(local_store)))
    def check(written: Any) -> None:
        place = str(written.store.root)
        outcome = outcome_of(place, written)
        counts[outcome] += 1
        shutil.rmtree(place, ignore_errors=True)
        assert outcome.partition(":")[0] in ("same", "unsupported"), outcome

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()
    sys.stdout.write(f"{dict(counts)}\n")
    unsupported = sum(count for outcome, count in counts.items() if outcome != "same")
    assert unsupported < 0.03 * counts.total(), counts
