"""Attributes that nobody expects: what is taken comes back, and what cannot is refused whole."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**400, "\ue000NaN", "\ue000-Infinity"])
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
