"""Typed text is parsed exactly, or refused with the wrong part."""

from __future__ import annotations

import doctest
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bedform._convert
from bedform import (
    _accessor,
    _attributes,
    _creating,
    _members,
    _query,
    _query_table,
    _reads,
    _text,
)
from bedform._errors import InvalidArgumentError
from bedform._text import parse_bytes, parse_reads, parse_selection, parse_shape

if TYPE_CHECKING:
    from decimal import Decimal

bounds = st.none() | st.integers(-20, 20)
entries = st.one_of(
    st.integers(-20, 20),
    st.builds(slice, bounds, bounds),
    st.builds(slice, bounds, bounds, bounds.filter(lambda step: step != 0)),
)


def spell(entry: int | slice) -> str:
    if isinstance(entry, int):
        return str(entry)
    words = ["" if part is None else str(part) for part in (entry.start, entry.stop, entry.step)]
    return ":".join(words if words[2] else words[:2])


@given(st.lists(entries, min_size=1, max_size=5))
def test_every_selection_that_numpy_spells_is_read_as_numpy_reads_it(
    selection: list[int | slice],
) -> None:
    assert parse_selection(", ".join(map(spell, selection))) == tuple(selection)


@given(st.text(max_size=40))
def test_any_text_is_a_selection_or_a_value_error(text: str) -> None:
    for parse in (parse_selection, parse_bytes, parse_shape, lambda text: parse_reads([text])):
        try:
            parse(text)  # type: ignore[operator]
        except ValueError as error:
            assert str(error)


@given(
    st.decimals(0, 5000, places=6, allow_nan=False),
    st.sampled_from(["", "B", "kB", "KB", "mb", "GB", "TB", "KiB", "mib", "GiB", "tib"]),
    st.sampled_from(["", " "]),
)
def test_a_size_is_its_number_times_its_unit_rounded_down(
    number: Decimal, unit: str, space: str
) -> None:
    base = 1024 if "i" in unit else 1000
    power = " kmgt".index(unit[:1].lower()) if len(unit) > 1 else 0
    assert parse_bytes(f"{number}{space}{unit}") == int(Fraction(number) * base**power)


@pytest.mark.parametrize("text", ["", "GiB", "1 G", "1Gi", "-1", "1e3", "16777216 TiB", "\ud800"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not a size.*256 MiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "shape", "complaint"),
    [
        ("1,a", (2, 2), "'a' is not an index"),
        ("1,2,3", (2, 2), "3 entries, the array has 2"),
        ("0,...,5", (2, 3, 4), "index 5 is out of bounds for dimension 2, whose length is 4"),
        ("...,...", (2, 2), "more than one '...'"),
        ("::0", (2,), "step"),
        ("", (2,), "empty"),
        ("__import__('os')", (2,), "is not an index"),
        ("1" * 400, (2,), "is not an index"),
    ],
)
def test_a_wrong_selection_is_refused_with_the_part_that_is_wrong(
    text: str, shape: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(ValueError, match="selection") as caught:
        parse_selection(text, shape)
    assert complaint in str(caught.value)


def test_an_ellipsis_stands_for_the_dimensions_that_are_missing() -> None:
    data = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(data[parse_selection("..., 1:3", data.shape)], data[..., 1:3])
    assert data[parse_selection("1, ..., 2:, -1", data.shape)].shape == (1,)


def test_reads_name_dimensions_that_exist_once_each_with_a_positive_weight() -> None:
    for wrong in (["lat=0"], ["lat=x"], ["=1"], ["height"], ["lat", "lat=2"], ["lat=inf"]):
        with pytest.raises(ValueError, match="reads"):
            parse_reads(wrong, ("lat", "lon"))


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "nan"])
def test_a_weight_that_is_not_positive_is_called_that(weight: str) -> None:
    with pytest.raises(ValueError, match="the weight must be a positive number"):
        parse_reads([f"lat={weight}"], ("lat", "lon"))


def test_the_empty_key_of_numpy_selects_all() -> None:
    for shape in ((), (2, 3)):
        assert np.zeros(shape)[parse_selection("()", shape)].shape == shape
    assert parse_selection("...", ()) == (Ellipsis,)


@pytest.mark.parametrize(
    "module",
    [
        _text,
        bedform._convert,
        _accessor,
        _attributes,
        _creating,
        _members,
        _query,
        _query_table,
        _reads,
    ],
    ids=lambda module: module.__name__,
)
def test_the_examples_in_docstrings_hold(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0
