"""Hostile and strange files: a bad member does not affect the others."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bedform as bf
from bedform import _foreign_store
from bedform._foreign import chunk_map

pytestmark = pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbids child processes with the HDF5 library."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(_foreign_store, "isolated_chunk_map", fail)


def check_same_map(store: Any, path: Path) -> None:
    """Checks that the parser's map equals h5py's."""
    ours, theirs = json.loads(store._opened.description()), json.loads(chunk_map(path).description)
    for array in ours["arrays"]:
        array["encoding"].pop("classic")
    assert ours["groups"] == theirs["groups"]
    assert ours["arrays"] == theirs["arrays"]


@pytest.mark.usefixtures("no_child")
def test_attributes_over_the_limit_refuse_their_member_alone(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["good"] = [1, 2]
        for member in (file.create_dataset("large", data=[3]), file.create_group("group")):
            for number in range(17):
                member.attrs[f"a{number}"] = np.zeros(1 << 20, "u1")
        file["group/inner"] = [4]
    with bf.open(path) as store:
        assert list(store.arrays()) == ["good"]
        assert store["good"][...].tolist() == [1, 2]
        assert store.refused().keys() == {"large", "group"}
        assert "over a limit: attributes of more than 16777216 bytes" in store.refused()["large"]
        with pytest.raises(bf.NotFoundError, match="'large' is not read: over a limit"):
            store["large"]


@pytest.mark.usefixtures("no_child")
def test_what_is_too_much_of_a_whole_file_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(17):
            file.attrs[f"a{number}"] = np.zeros(1 << 20, "u1")
    with pytest.raises(bf.LimitExceededError, match=r"file\.h5: HDF5 metadata over a limit: attr"):
        bf.open(path)


@pytest.mark.usefixtures("no_child")
def test_thousands_of_attributes_in_any_order_are_within_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        group = file.create_group("group", track_order=True)
        for number in range(12_000):
            group.attrs[f"attribute {number}"] = np.full(500, number % 256, "u1")
    with bf.open(path) as store:
        attributes = store["group"].attributes
        assert list(attributes) == [f"attribute {number}" for number in range(12_000)]
        assert (attributes["attribute 11999"] == 11_999 % 256).all()


def test_members_that_would_be_shown_alike_leave_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["a\\b"], file["a%5Cb"] = [1], [2]
        file["x"], file["_nc4_non_coord_x"] = [3], [4]
        file["text\\"], file["text%5C"] = "one", "other"
        file.create_group("g\\")["inner"] = [5]
        file.create_group("g%5C")["inner"] = [6]
        group = file.create_group("scales")
        for name, size in (("d", 2), ("_nc4_non_coord_d", 3)):
            group[name] = np.arange(size)
            group[name].make_scale()
            group[f"of {name}"] = np.arange(size)
            group[f"of {name}"].dims[0].attach_scale(group[name])
    with bf.open(path) as store:
        check_same_map(store, path)
        assert store["a%5Cb"][...].tolist() == [2]
        assert store["x"][...].tolist() == [3]
        assert store["text%5C"][()] == "other"
        assert store["g%5C/inner"][...].tolist() == [6]
        assert store["scales/of d"].dims == ("d",)
        assert store["scales/of _nc4_non_coord_d"].dims != ("d",)
        refused = {"a\\b", "_nc4_non_coord_x", "text\\", "g\\", "scales/_nc4_non_coord_d"}
        assert store.refused().keys() == refused
        assert store.refused()["a\\b"] == "another member is shown as 'a%5Cb', too"


def test_members_that_no_store_can_have_are_refused_and_others_read(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["good"] = [1, 2]
        file.create_dataset("huge", (1 << 62, 4), "f8", chunks=(1024, 1))
        group = file
        for _ in range(70):
            group = group.create_group("n")
        group["deep"] = [1]
        group = file
        for letter in "abcde":
            group = group.create_group(letter * 250)
    with bf.open(path) as store:
        check_same_map(store, path)
        assert store["good"][...].tolist() == [1, 2]
        assert set(store.refused().values()) == {
            "more than 2^63 bytes",
            "more than 64 groups, one within another",
            "a path of more than 1,024 bytes",
        }


def test_links_types_and_axes_without_names_are_found_as_by_the_library(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", track_order=True) as file:
        for number in range(40):
            file[f"type{number}"] = h5py.enum_dtype({f"a{number}": 1, "b": 2}, "i4")
            made = h5py.enum_dtype({f"a{39 - number}": 1, "b": 2}, "i4")
            file.create_dataset(f"enum{number}", (number % 7,), made)
            file.create_dataset(f"square{number}", (number % 5 + 1,) * 3, "i1")
        for number in range(40):
            file[f"link{number}"] = h5py.SoftLink(f"/enum{39 - number}")
    with bf.open(path) as store:
        check_same_map(store, path)
        assert store["link3"].encoding["dtype"].metadata["enum_name"] == "type3"


@pytest.mark.usefixtures("no_child")
def test_text_that_is_not_utf8_is_shown_and_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        texts = file.create_dataset("texts", (2,), h5py.string_dtype())
        texts[0], texts[1] = b"caf\xe9", "caf\u00e9"
        texts.attrs["fixed"] = np.bytes_(b"caf\xe9")
        texts.attrs.create("of any length", b"caf\xe9", dtype=h5py.string_dtype())
        texts.attrs[b"n\xfe"], texts.attrs[b"n\xff"] = 1, 2
    with bf.open(path) as store:
        check_same_map(store, path)
        assert store["texts"][...].tolist() == ["caf\udce9", "caf\u00e9"]
        assert store["texts"].attributes == {
            "fixed": "caf\udce9",
            "of any length": "caf\udce9",
            "n%FE": 1,
            "n%FF": 2,
        }


def test_a_chunk_over_the_limit_is_read_in_parts_unless_it_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "large.h5"
    shape = (3 << 19, 2048)
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(shape)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple(shape)
        h5py.h5d.create(file.id, b"plain", h5py.h5t.STD_I8LE, space, properties)
        file["plain"][1 << 20, 5:8] = [1, 2, 3]
        file.create_dataset("packed", shape, "i1", chunks=shape, compression="gzip")
    with bf.open(path) as store:
        assert store["plain"][1 << 20, 4:9].tolist() == [0, 1, 2, 3, 0]
        assert store["plain"].info()["storage"] == "native"
        with pytest.raises(bf.LimitExceededError, match="compressed chunk of 3221225472 bytes"):
            store["packed"][0, :3]


def test_chunks_are_looked_for_when_they_are_first_needed(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("good", "damaged"):
            file.create_dataset(name, data=np.arange(99), chunks=(5,), maxshape=(None,))
    data = bytearray(path.read_bytes())
    # Each has an extensible array: the header of the second one is spoilt.
    data[data.rindex(b"EAHD") + 6] ^= 1
    path.write_bytes(data)
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["good"][...], np.arange(99))
        assert store["damaged"].shape == (99,)
        with pytest.raises(bf.CorruptError, match=r"file\.h5: the chunks of .damaged.*checksum"):
            store["damaged"][...]


@pytest.mark.usefixtures("no_child")
def test_the_places_of_many_chunks_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    path = tmp_path / "file.h5"
    values = np.arange(20_000)
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("t", data=values, chunks=(1,), maxshape=(None,))
    # Files that changed just now are not cached.
    os.utime(path, (1, 1))
    for _ in range(2):
        with bf.open(path) as store:
            np.testing.assert_array_equal(store["t"][5:20_000:9], values[5::9])
            kept = [file.name for file in (tmp_path / "sidecars").rglob("chunk-table-*")]
            assert len(kept) == 1


SINGLE_WRITER = """
import h5py, os, sys
file = h5py.File(sys.argv[1], "w", libver="latest")
file.create_dataset("t", data=list(range(9)), chunks=(4,), maxshape=(None,))
file.create_dataset("packed", data=list(range(9)), chunks=(4,), compression="lzf")
file.swmr_mode = True
file["t"].resize((11,))
file["t"][9:] = [9, 10]
file["t"].flush()
os._exit(0)
"""


def test_a_file_whose_single_writer_has_ended_without_closing_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    subprocess.run([sys.executable, "-c", SINGLE_WRITER, path], check=True)
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(path)
    with bf.open(path) as store:
        assert store["t"][...].tolist() == list(range(11))
        assert store["packed"][...].tolist() == list(range(9))


@pytest.mark.parametrize("name", [b"name.h5", b"n\xff.h5"])
def test_paths_are_text_or_bytes_of_any_kind(tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["t"], file["text"] = [1, 2], ["a", "b"]
    (tmp_path / "other.h5").rename(os.fsdecode(path))
    for given in (path, os.fsdecode(path), Path(os.fsdecode(path))):
        with bf.open(given) as store:
            assert store["t"][...].tolist() == [1, 2]
            assert store["text"][...].tolist() == ["a", "b"]
    with bf.create(os.fsencode(tmp_path) + b"/s" + name + b".zarr") as made:
        made.create_array("t", shape=(2,), dtype="i4")
    assert "t" in bf.open(os.fsencode(tmp_path) + b"/s" + name + b".zarr")
    with pytest.raises(bf.NotFoundError):
        bf.open(path + b"nowhere")


def test_locks_are_left_out_where_the_library_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["t"] = [1, 2]
        file.flush()
        with pytest.raises(bf.ConflictError, match="open for writing"):
            bf.open(path)
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
        monkeypatch.setattr(_foreign_store, "isolated_chunk_map", None)
        with bf.open(path) as store:
            assert store["t"][...].tolist() == [1, 2]


@pytest.mark.parametrize("freshness", ["read", "open", "never"])
def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path, freshness: Any) -> None:
    path = tmp_path / "file.h5"
    for number in range(4):
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file.create_dataset("t", data=np.arange(20_000) + number, chunks=(1000,))
            file["text"] = f"text {number}"
        before = bf.open(path, freshness=freshness) if number else None
        if before is not None:
            assert before["t"][3] == number + 2
        (tmp_path / "other.h5").replace(path)
        if before is not None and freshness != "read":
            with pytest.raises(bf.ConflictError):
                before["t"][...]
        with bf.open(path, freshness=freshness) as store:
            np.testing.assert_array_equal(store["t"][...], np.arange(20_000) + number)
            assert store["text"][()] == f"text {number}"


def chunks_in_any_order(path: Path, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    """Writes most chunks of a data set, whose tree of version 1 gets several levels."""
    chance = random.Random(5)
    grid = [-(-length // size) for length, size in zip(shape, chunk, strict=True)]
    places = [place for place in np.ndindex(*grid) if chance.random() < 0.8]
    chance.shuffle(places)
    with h5py.File(path, "w", libver="earliest") as file:
        data = file.create_dataset("d", shape, "i4", chunks=chunk, maxshape=shape, fillvalue=-1)
        for number, place in enumerate(places):
            starts = [at * size for at, size in zip(place, chunk, strict=True)]
            part = tuple(slice(at, at + size) for at, size in zip(starts, chunk, strict=True))
            data[part] = number


@pytest.mark.parametrize(
    ("shape", "chunk"), [((900,), (2,)), ((60, 60), (3, 5)), ((18, 20, 16), (3, 3, 3))]
)
def test_a_damaged_tree_of_chunks_gives_no_element_that_hdf5_does_not_find(
    tmp_path: Path, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    """HDF5 searches the tree, and Bedform lists it: damaged keys may not tell them apart."""
    path = tmp_path / "good.h5"
    chunks_in_any_order(path, shape, chunk)
    good = path.read_bytes()
    with h5py.File(path) as file, bf.open(path) as store:
        assert np.array_equal(store["d"][...], file["d"][...])
    trees = [found.start() for found in re.finditer(b"TREE\x01", good)]
    assert len(trees) > 4
    chance = random.Random(6)
    read = 0
    for number in range(60):
        damaged = bytearray(good)
        damaged[chance.choice(trees) + chance.randrange(24, 1400)] ^= 1 << chance.randrange(8)
        harmed = tmp_path / f"{number}.h5"
        harmed.write_bytes(damaged)
        try:
            with bf.open(harmed) as store:
                found = store["d"][...]
        except bf.BedformError:
            continue
        read += 1
        # Where HDF5 itself reads nothing, there is nothing to compare.
        with contextlib.suppress(OSError, KeyError), h5py.File(harmed) as file:
            assert np.array_equal(found, file["d"][...]), number
    assert read > 5
