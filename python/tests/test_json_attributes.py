"""Unusual attributes: accepted ones round-trip, and others are refused as a whole."""

import json

import numpy as np
import pytest
import zarr

import bedform as bf


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s.zarr"


@pytest.fixture
def store(place):
    store = bf.create(place)
    store.create_array("t", shape=(2,), dtype="float32")
    store.create_group("g")
    return store


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def owners(store):
    return {"the store": store, "a group": store["g"], "an array": store["t"]}


@pytest.mark.parametrize("levels", [30, 54, 55, 56, 57, 60, 62, 63, 64, 80])
def test_attributes_that_are_nested_deep_are_taken_or_refused_and_the_store_can_be_read(
    place, store, levels
):
    for what, owner in owners(store).items():
        value = {"deep": nested(levels)}
        try:
            owner.attributes = value
        except bf.LimitExceededError:
            assert levels > 54, what
            value = {}
        assert levels <= 56 or value == {}, what
        again = bf.open(place)
        assert owners(again)[what].attributes == value, what
    with pytest.raises(bf.LimitExceededError):
        store.create_group("h", attributes={"deep": nested(80)})
    assert "h" not in bf.open(place)


@pytest.mark.parametrize(
    "value",
    [
        {"$serde_json::private::RawValue": "[1, 2]"},
        {"$serde_json::private::RawValue": "[" * 100 + "]" * 100},
        {"$serde_json::private::RawValue": '{"a": 1, "a": 2}'},
        {"$serde_json::private::Number": "12"},
        {"k": "\ue000", "\ue000NaN": "\ue000x"},
        {"most": 2**64 - 1, "least": -(2**63)},
    ],
)
def test_keys_and_texts_that_libraries_take_for_signs_are_keys_and_texts(place, store, value):
    for what, owner in owners(store).items():
        owner.attributes = {"inner": value}
        assert owners(bf.open(place))[what].attributes == {"inner": value}, what


LARGE = [2**63, 2**64 - 1, 2**64, -(2**63) - 1, -(10**19), 10**400, 10**4000 + 1]


def test_integers_of_any_size_come_back_and_are_those_that_others_have_written(place, store):
    attributes = {"most": LARGE, "nan": [float("inf"), {"of": 12345678901234567890123}], "": -1}
    for what, owner in owners(store).items():
        owner.attributes = attributes
        assert owners(bf.open(place))[what].attributes == attributes, what
    assert json.loads((place / "t" / "zarr.json").read_text())["attributes"] == attributes
    store["t"].attributes = {"one": 2**70}
    assert zarr.open_array(place / "t").attrs["one"] == 2**70
    other = zarr.create_array(
        place.with_name("other.zarr"), shape=(1,), dtype="i1", attributes=attributes
    )
    assert other.attrs.asdict() == attributes
    assert bf.open(place.with_name("other.zarr")).attributes == attributes


@pytest.mark.parametrize(
    "value", [pytest.param(10**5000, id="long"), "\ue000NaN", "\ue000-Infinity", f"\ue000{2**64}"]
)
def test_what_would_come_back_as_another_value_is_refused(place, store, value):
    store["t"].attributes = {"kept": 1}
    for attributes in ({"k": value}, {"k": [{"l": value}]}):
        with pytest.raises(bf.InvalidArgumentError):
            store["t"].attributes = attributes
    assert bf.open(place)["t"].attributes == {"kept": 1}


def test_texts_keep_the_nuls_at_their_ends(store):
    texts = store.create_array("texts", shape=(3,), dtype="str")
    texts[0] = "x\0"
    texts[1:] = ["\0", "y\0\0"]
    assert texts[...].tolist() == ["x\0", "\0", "y\0\0"]
    texts[...] = np.array(["a\0", "b", ""], dtype=object)
    assert texts[...].tolist() == ["a\0", "b", ""]
