"""Attributes write through: no assignment to one is lost silently."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import zarr

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    store = bf.create(tmp_path / "s.zarr", attributes={"title": "a store"})
    store.create_array("t", (4,), "float32", attributes={"units": "K", "range": [180, 340]})
    store.create_group("g", attributes={"deep": {"er": [1]}})
    return store


def owners(store: bf.Store) -> list[Any]:
    return [store, store["g"], store["t"]]


def test_an_assignment_to_an_attribute_is_stored_and_other_readers_see_it(store: bf.Store) -> None:
    for owner in owners(store):
        owner.attributes["new"] = np.float32(2.5)
        owner.attrs["other"] = np.arange(3)
    again = bf.open(store.store_path)
    for owner in owners(again):
        assert owner.attributes["new"] == 2.5
        assert owner.attrs["other"] == [0, 1, 2]
    other = zarr.open_group(store.store_path, mode="r")
    assert other["t"].attrs.asdict() == store["t"].attributes
    assert other["t"].attrs["units"] == "K"
    assert other["g"].attrs["new"] == 2.5


def test_attributes_are_a_mapping_as_dictionaries_are(store: bf.Store) -> None:
    attributes = store["t"].attributes
    assert attributes == {"units": "K", "range": [180, 340]}
    assert list(attributes) == ["units", "range"]
    assert len(attributes) == 2
    assert ("units" in attributes, "q" in attributes, 3 in attributes) == (True, False, False)
    assert attributes.get("q", 7) == 7
    assert attributes.pop("units") == "K"
    assert attributes.pop("units", None) is None
    attributes.update({"a": 1}, b=[2])
    assert attributes.setdefault("a", 5) == 1
    del attributes["b"]
    assert attributes | {"c": 3} == {"range": [180, 340], "a": 1, "c": 3}
    assert store["t"].attributes.asdict() == {"range": [180, 340], "a": 1}
    attributes.put({"only": 1})
    assert dict(store["t"].attributes) == {"only": 1}
    assert repr(attributes) == "{'only': 1}"
    attributes.clear()
    assert not store["t"].attributes
    attributes.create("h5py", [1, 2], dtype="float64")
    attributes.modify("h5py", "changed")
    assert store["t"].attributes == {"h5py": "changed"}
    with pytest.raises(KeyError, match="no attribute 'q'"):
        del attributes["q"]


def test_an_update_of_many_attributes_is_one_write(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    put = bf.Store.set_attributes

    def counted(self: bf.Store, attributes: Any, path: str = "") -> None:
        written.append(path)
        put(self, attributes, path)

    monkeypatch.setattr(bf.Store, "set_attributes", counted)
    store["t"].attributes.update({f"a{number}": number for number in range(20)})
    assert written == ["t"]
    assert len(store["t"].attributes) == 22


def test_what_changes_inside_of_an_attribute_is_refused_and_not_lost(store: bf.Store) -> None:
    limits = store["t"].attributes["range"]
    deep = store["g"].attributes["deep"]
    for change in (
        lambda: limits.append(3),
        lambda: limits.__setitem__(0, 1),
        limits.sort,
        lambda: deep.update(er=2),
        lambda: deep.__setitem__("er", 2),
        lambda: deep["er"].append(2),
    ):
        with pytest.raises(bf.ReadOnlyError, match=r"copy of an attribute.*assign"):
            change()
    with pytest.raises(bf.ReadOnlyError):
        limits += [1]
    # Copies are plain, as are those of other processes.
    for make in (copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value))):  # noqa: S301
        mine = make(limits)
        mine.append(3)
        assert mine == [180, 340, 3]
    assert type(copy.deepcopy(deep)["er"]) is list
    assert json.dumps([limits, deep]) == '[[180, 340], {"er": [1]}]'
    store["t"].attributes["range"] = [*limits, 3]
    assert store["t"].attributes["range"] == [180, 340, 3]


def test_attributes_of_what_is_only_read_refuse_every_change(
    store: bf.Store, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["title"] = "a file"
        file.create_dataset("t", data=np.arange(3)).attrs["flags"] = np.arange(2)
        file.create_group("g").attrs["a"] = 1
    cases = [
        (bf.open(store.store_path), "opened to read.*'r\\+'"),
        (store.snapshot(), "a snapshot is only read"),
        (bf.open(tmp_path / "x.h5"), "never written; convert"),
    ]
    for opened, said in cases:
        for owner in owners(opened):
            before = dict(owner.attributes)
            for change in (
                lambda owner=owner: owner.attributes.__setitem__("q", 1),
                lambda owner=owner: owner.attrs.update(q=1),
                lambda owner=owner: owner.attributes.clear(),
                lambda owner=owner: owner.attributes.pop(next(iter(owner.attributes))),
            ):
                with pytest.raises(bf.ReadOnlyError, match=said):
                    change()
            assert dict(owner.attributes).keys() == before.keys()
    flags = bf.open(tmp_path / "x.h5")["t"].attributes["flags"]
    with pytest.raises(ValueError, match="read-only"):
        flags[0] = 7


def test_a_typing_error_in_the_name_of_an_attribute_names_the_one_that_is_there(
    store: bf.Store,
) -> None:
    with pytest.raises(KeyError) as caught:
        store["t"].attributes["unit"]
    assert str(caught.value).endswith("s.zarr/t: did you mean 'units'? it has units, range")
    with pytest.raises(ValueError, match="the name of an attribute must be text, not 3"):
        store.attributes.update({3: "x"})


def test_a_name_that_python_would_keep_to_itself_is_refused(store: bf.Store) -> None:
    for owner in owners(store):
        with pytest.raises(ValueError, match=r"not be stored: assign to attributes\['units'\]"):
            owner.units = "K"
        with pytest.raises(AttributeError, match="no setter"):
            owner.name = "other"
        owner.attrs = {"units": "K"}
        assert owner.attributes == {"units": "K"}


def test_threads_that_set_attributes_at_once_lose_none(store: bf.Store) -> None:
    def work(number: int) -> None:
        for step in range(5):
            store["t"].attributes[f"a{number}-{step}"] = step

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store["t"].attributes) == 22


def test_a_handle_that_does_not_look_for_changes_keeps_those_of_others(store: bf.Store) -> None:
    still = bf.open(store.store_path, "r+", freshness="never")
    assert still["t"].attributes["units"] == "K"
    store["t"].attributes["theirs"] = 1
    still["t"].attributes["ours"] = 2
    assert bf.open(store.store_path)["t"].attributes.asdict() == {
        "units": "K",
        "range": [180, 340],
        "theirs": 1,
        "ours": 2,
    }


def test_a_store_that_is_a_single_array_has_the_attributes_of_that_array(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "one.zarr", shape=(4,), dtype="i4", attributes={"units": "K"})
    assert bf.open(tmp_path / "one.zarr").attributes == {"units": "K"}


@pytest.mark.parametrize(
    "value", [np.datetime64("2001-01-01"), np.timedelta64(3, "ns"), b"\xff\xfe"]
)
def test_values_that_json_would_change_in_silence_are_refused(store: bf.Store, value: Any) -> None:
    for given in (value, [value], np.array([value])):
        with pytest.raises(bf.WrongTypeError, match="cannot be an attribute"):
            store["t"].attributes["q"] = given
    assert "q" not in store["t"].attributes


def test_a_walk_over_items_or_values_is_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = bf.create(tmp_path / "s.zarr").create_array("t", (2,), "f4")
    array.attributes.update({f"a{number}": [number] for number in range(9)})
    looks = []
    load = type(array)._load_attributes
    monkeypatch.setattr(type(array), "_load_attributes", lambda one: looks.append(1) or load(one))
    assert dict(array.attributes.items())["a3"] == [3]
    assert any(value == [0] for value in array.attributes.values())
    assert len(looks) == 2
