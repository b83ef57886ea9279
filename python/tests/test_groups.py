"""Groups as mappings of their members: names, walks, copies, new names."""

from __future__ import annotations

import pickle
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
    store["z"] = np.arange(6.0)
    store.create_array("model/t", data=np.eye(3, dtype="f4"), dims=("y", "x"))
    store.create_array("model/deep/u", data=["a", "bc"])
    store.create_group("model/empty", attributes={"of": "nothing"})
    return store


@pytest.fixture
def peer(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "peer.h5", "w") as file:
        file["z"] = np.arange(6.0)
        file["model/t"] = np.eye(3, dtype="f4")
        file["model/deep/u"] = np.arange(2)
        file.create_group("model/empty")
        yield file


def test_a_group_lists_its_members_as_h5py_does(store: bf.Store, peer: h5py.File) -> None:
    assert list(store) == list(peer)
    assert list(store.keys()) == list(peer.keys()) == ["model", "z"]
    assert [value.path for value in store.values()] == ["model", "z"]
    assert dict(store.items())["z"][...].tolist() == peer["z"][...].tolist()
    assert sorted(store["model"]) == sorted(peer["model"])
    assert (len(store), len(store["model"])) == (len(peer), len(peer["model"]))
    for name in ("z", "model/t", "model", "q", "model/q", "/z"):
        assert (name in store) == (name in peer), name
    assert store.get("q") is None
    assert store.get("q", 3) == 3
    assert store.get("model/t").shape == (3, 3)
    assert store["/"] is store
    assert bool(store["model/empty"]) is True
    assert (store["model"].array_keys(), store["model"].group_keys()) == (["t"], ["deep", "empty"])


def test_walks_visit_what_those_of_h5py_visit_in_the_same_order(
    store: bf.Store, peer: h5py.File
) -> None:
    ours: list[str] = []
    theirs: list[str] = []
    assert store.visit(ours.append) is None
    peer.visit(theirs.append)
    assert ours == theirs
    found = store.visititems(lambda path, member: path if hasattr(member, "shape") else None)
    assert found == peer.visititems(lambda path, m: path if hasattr(m, "shape") else None)
    assert store["model"].visit(lambda path: path if "/" in path else None) == "deep/u"


def test_members_are_those_of_zarr_python(store: bf.Store) -> None:
    theirs = zarr.open_group(store.store_path, mode="r")
    for depth in (0, 1, None):
        ours = store.members(max_depth=depth)
        assert sorted(path for path, _ in ours) == sorted(
            path for path, _ in theirs.members(max_depth=depth)
        )
        for path, member in ours:
            assert member.path == path


def test_groups_and_arrays_know_where_they_are(store: bf.Store, peer: h5py.File) -> None:
    for path in ("model/deep", "model/deep/u", "model", "z"):
        # Below the root, h5py's names begin with a slash.
        assert f"/{store[path].parent.path}" == peer[path].parent.name
        assert store[path].file is store[path].store is store
    assert (store.nmembers(), store.nmembers(None)) == (2, 6)
    assert [array.path for array in store.array_values()] == ["z"]
    assert [group.path for group in store["model"].group_values()] == ["model/deep", "model/empty"]
    assert store["z"].update_attributes({"units": "K"}).attributes == {"units": "K"}
    assert store["model"].update_attributes({"a": 1}).attributes == {"a": 1}
    assert store["model/deep/u"].asstr()[1] == "bc"
    with pytest.raises(TypeError, match="which are no text"):
        store["z"].asstr()
    assert (store["z"].read_only, bf.open(store.store_path)["model"].read_only) == (False, True)
    assert store["z"].compression_opts == 3


def test_the_tree_shows_groups_shapes_and_types(store: bf.Store) -> None:
    assert str(store.tree()).splitlines() == [
        "/",
        "├── model",
        "│   ├── deep",
        "│   │   └── u (2,) str",
        "│   ├── empty",
        "│   └── t (3, 3) float32",
        "└── z (6,) float64",
    ]
    assert repr(store.tree(level=1)) == "/\n├── model\n└── z (6,) float64"


def test_files_of_other_formats_are_walked_alike(peer: h5py.File) -> None:
    path = peer.filename
    peer.close()
    with bf.open(path) as file, h5py.File(path) as theirs:
        ours: list[str] = []
        names: list[str] = []
        file.visit(ours.append)
        theirs.visit(names.append)
        assert ours == names
        assert sorted(file.keys()) == sorted(theirs.keys())
        assert "model/t" in file
        assert "t" in file["model"]
        assert file["model"].members()[0][0] == "deep"
        assert "t (3, 3) float32" in str(file.tree())
        assert file["model"]["t"][1].tolist() == [0, 1, 0]


def test_an_assigned_array_appears_with_its_elements_and_never_replaces_one(
    store: bf.Store,
) -> None:
    store["model"]["v"] = np.arange(12, dtype="i2").reshape(3, 4)
    assert store["model/v"].dtype == np.int16
    assert zarr.open_array(store.store_path, path="model/v", mode="r")[2, 3] == 11
    store["number"] = 3
    store["word"] = "text"
    assert (store["number"][()], store["word"][()]) == (3, "text")
    with pytest.raises(FileExistsError):
        store["z"] = np.zeros(2)
    assert store["z"][...].tolist() == list(range(6))


def test_an_array_that_cannot_be_written_leaves_no_name_behind(store: bf.Store) -> None:
    for values in (
        np.ma.array([1.0, 2.0], mask=[True, False]),
        np.array(["a", 3], dtype=object),
        np.array(["2001-01-01"], "M8[D]"),
        np.zeros(2, "i4,f4"),
    ):
        with pytest.raises(bf.BedformError):
            store["bad"] = values
        assert "bad" not in store
    store["bad"] = np.zeros(2)


def test_deleting_removes_arrays_and_groups_and_a_typing_error_names_what_is_there(
    store: bf.Store,
) -> None:
    del store["model/t"]
    assert list(store["model"]) == ["deep", "empty"]
    del store["model"]
    assert list(store) == ["z"]
    with pytest.raises(KeyError):
        del store["model"]
    store.create_array("temperature", (2,), "f4")
    for act in (lambda: store["temprature"], lambda: store.__delitem__("Temperature")):
        with pytest.raises(KeyError, match=r"did you mean 'temperature'\? it has temperature, z"):
            act()
    with pytest.raises(KeyError, match="it has temperature, z"):
        store["nothing of the kind"]


def test_a_name_in_a_group_below_is_found_by_the_message(store: bf.Store) -> None:
    with pytest.raises(KeyError, match="did you mean 'model/t'"):
        store["t"]


def test_required_groups_are_made_once(store: bf.Store) -> None:
    first = store.require_group("new/inner")
    first.attributes["a"] = 1
    assert store.require_group("new/inner").attributes == {"a": 1}
    with pytest.raises(TypeError, match=r"'z' in .* is an array, not a group"):
        store.require_group("z")


def test_a_copy_has_elements_attributes_layout_codecs_and_fill_value(
    store: bf.Store, tmp_path: Path
) -> None:
    nan = np.array(0x7FF8000000000001, "u8").view("f8")[()]
    source = store.create_array(
        "a",
        (5, 7),
        "f8",
        ("y", None),
        layout=bf.Regular((2, 3), (4, 6), "hilbert"),
        codecs=["pcodec", {"name": "gzip", "configuration": {"level": 3}}],
        fill_value=nan,
        attributes={"units": "K", "limits": [1, np.inf]},
    )
    source[1:4] = np.arange(21.0).reshape(3, 7)
    other = bf.create(tmp_path / "other.zarr")
    store.copy("a", "b")
    store.copy("a", other, name="c")
    store["d"] = store["a"]
    for copy in (store["b"], other["c"], store["d"]):
        assert copy.info()["codecs"] == source.info()["codecs"]
        ours, theirs = copy.document(), source.document()
        for own in (ours, theirs):
            # Each has its own identity.
            del own["bedform"]
        assert ours == theirs
        assert np.array_equal(copy[...], source[...], equal_nan=True)
        assert copy.fill_value.tobytes() == nan.tobytes()
    with pytest.raises(FileExistsError, match=r"'b' in .* exists"):
        store.copy("a", "b")


def test_a_copied_group_appears_with_all_that_it_holds(store: bf.Store, tmp_path: Path) -> None:
    other = bf.create(tmp_path / "other.zarr")
    store["model"].attributes["title"] = "a model"
    store.copy("model", other)
    store.copy(store["model"], store, name="again/model")
    for copy in (other["model"], store["again/model"]):
        assert [path for path, _ in copy.members(None)] == ["deep", "deep/u", "empty", "t"]
        assert copy["t"][...].tolist() == np.eye(3).tolist()
        assert copy["deep/u"][...].tolist() == ["a", "bc"]
        assert copy.attributes == {"title": "a model"}
        assert copy["empty"].attributes == {"of": "nothing"}


def test_moving_gives_an_array_or_group_another_name(store: bf.Store) -> None:
    store.move("model/t", "u")
    store.move("model", "past/model")
    assert store["u"][...].tolist() == np.eye(3).tolist()
    assert [path for path, _ in store.members(None)] == [
        "past", "past/model", "past/model/deep", "past/model/deep/u", "past/model/empty", "u", "z",
    ]  # fmt: skip
    with pytest.raises(bf.InvalidArgumentError, match="'past' cannot move to 'past/more'"):
        store.move("past", "past/more")
    with pytest.raises(KeyError, match="no array or group 'q'"):
        store.move("q", "p")
    with pytest.raises(FileExistsError):
        store.move("u", "z")
    assert "u" in store


def test_commits_that_are_not_settled_move_along(store: bf.Store) -> None:
    with store.session(settle="later") as session:
        session.write("z", np.full(6, 7.0))
    store.move("z", "y")
    assert store["y"][...].tolist() == [7.0] * 6
    store.settle()
    assert store["y"][...].tolist() == [7.0] * 6


def test_brackets_of_a_group_with_positions_say_that_it_is_a_group(store: bf.Store) -> None:
    with pytest.raises(TypeError, match=r"is a group, which has members by name.*'z'"):
        store[:]
    with pytest.raises(TypeError, match="is a group"):
        store["model"][..., 0]


def test_a_closed_store_says_so_and_its_arrays_do(store: bf.Store) -> None:
    array, group = store["z"], store["model"]
    with store as same:
        assert same is store
        assert array[1] == 1
    assert not store
    for use in (
        lambda: store["z"],
        lambda: array[1],
        lambda: array[0:2],
        lambda: array.shape,
        lambda: array.oindex[[0, 1]],
        lambda: array.attributes["a"],
        lambda: array.append([1.0]),
        lambda: array.__setitem__(0, 1.0),
        lambda: list(group),
        lambda: group.create_array("new", (2,), "i4"),
        lambda: store.session(),
        store.info,
        store.flush,
    ):
        with pytest.raises(bf.InvalidArgumentError, match=r"s.zarr is closed: open it again"):
            use()
    store.close()
    assert repr(array) == "<bedform.Array 'z' of a closed store>"
    again = pickle.loads(pickle.dumps(bf.open(store.store_path)))  # noqa: S301
    assert again["z"][1] == 1


def test_a_closed_file_says_so_and_its_variables_do(peer: h5py.File) -> None:
    path = peer.filename
    peer.close()
    with bf.open(path) as file:
        array, group = file["z"], file["model"]
    for use in (
        lambda: file["z"],
        lambda: array[1],
        lambda: array.fill_value,
        lambda: group["t"],
        lambda: file.attributes["a"],
    ):
        with pytest.raises(bf.InvalidArgumentError, match=r"peer.h5 is closed: open it again"):
            use()


def test_a_member_without_a_name_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    for create in (lambda: store.create_array("", (3,), "f4"), lambda: store.create_group("/")):
        with pytest.raises(bf.InvalidArgumentError, match=r"is the group itself.*needs a name"):
            create()
