"""Stores whose objects another library reads: its exceptions end the work unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bedform as bf
from bedform import _internal, _json
from bedform._errors import engine_call
from bedform._references import References
from bedform._store import _reopen

if TYPE_CHECKING:
    from pathlib import Path

    from bedform._store import Store

VALUES = np.arange(24.0).reshape(4, 6)


class Objects:
    """The files of a directory; reads of chunks fail once an error is set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.error: BaseException | None = None

    def size(self, key: str) -> int | None:
        place = self.root / key
        return place.stat().st_size if place.is_file() else None

    def read(self, key: str, start: int, length: int) -> bytes:
        if self.error is not None and "/c/" in key:
            raise self.error
        return (self.root / key).read_bytes()[start : start + length]

    def list(self, path: str) -> list[tuple[str, bool]]:
        return [(entry.name, entry.is_dir()) for entry in (self.root / path).iterdir()]


class Place(References):
    """The name of such a store."""

    __slots__ = ("objects", "sidecar")

    objects: Objects
    sidecar: str | None

    def open(self, options: dict[str, Any]) -> _internal.Store:
        opening = engine_call(_internal.Store.open_callback, str(self))
        return opening(str(self), self.objects, "1", False, self.sidecar, _json.dump(options))


def opened(objects: Objects, sidecar: str | None = None) -> Store:
    place = Place("store of objects")
    place.objects, place.sidecar = objects, sidecar
    return _reopen(place, {"cache_bytes": 0})


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    with bf.create(tmp_path / "run.zarr") as store:
        store.create_array("t", shape=VALUES.shape, chunks=(2, 3), dtype="f8")
        store["t"][...] = VALUES
        store.settle()
    return Objects(tmp_path / "run.zarr")


def test_objects_are_the_store_that_they_make(objects: Objects) -> None:
    np.testing.assert_array_equal(opened(objects)["t"][...], VALUES)


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)])
def test_what_ends_programs_leaves_as_it_was_raised(objects: Objects, error: BaseException) -> None:
    store = opened(objects)
    objects.error = error
    for work in (lambda: store["t"][0, 0], store.verify):
        with pytest.raises(type(error)) as caught:
            work()
        assert caught.value is error
    objects.error = None
    np.testing.assert_array_equal(store["t"][...], VALUES)


def test_a_server_that_does_not_answer_is_no_damage(objects: Objects) -> None:
    store = opened(objects)
    objects.error = TimeoutError("no answer for 30 s")
    with pytest.raises(bf.IoError, match=r"t/c/0/0.*no answer for 30 s"):
        store["t"][0, 0]
    # Unreadable chunks are listed, too, with that reason.
    assert all("the server did not give it" in line for line in store.verify())


def test_what_is_known_to_be_gone_is_damage(objects: Objects) -> None:
    store = opened(objects)
    objects.error = bf.CorruptError("t/c is gone")
    with pytest.raises(bf.CorruptError, match="t/c is gone"):
        store["t"][0, 0]
    assert any("t/c is gone" in line for line in store.verify())
