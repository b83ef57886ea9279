"""The places of chunk maps of foreign files, and their renewal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import bedform as bf
from bedform import _foreign_store

if TYPE_CHECKING:
    from pathlib import Path

#: More map bytes than 64 KiB, the least size that a sidecar counts.
MANY = 4000


class Maps:
    """Counts the chunk maps that are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        real = _foreign_store.isolated_chunk_map

        def counted(*arguments: object, **options: object) -> object:
            self.made += 1
            return real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(_foreign_store, "isolated_chunk_map", counted)


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Maps:
    return Maps(monkeypatch)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bedform" / "sidecars"


def write(path: Path, *, chunks: int = 10) -> Path:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=np.arange(chunks), chunks=(1,))
    return path


def visible(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir() if not entry.name.startswith(".")}


def opened(path: Path) -> bf.ForeignStore:
    """Opens the file with a map by its library, as for files with external references."""
    store = bf.open(path, allow_external=True)
    assert isinstance(store, bf.ForeignStore)
    return store


def test_a_file_is_opened_by_what_it_says_and_the_table_of_many_chunks_is_kept(
    tmp_path: Path, maps: Maps, kept: Path
) -> None:
    path = write(tmp_path / "data" / "file.h5")
    assert bf.open(path)["t"][3] == 3
    assert not kept.exists()
    path = write(tmp_path / "data" / "many.h5", chunks=1 << 14)
    assert bf.open(path)["t"][-1] == (1 << 14) - 1
    (file,) = kept.glob("*/chunk-table-*")
    made = file.stat().st_mtime_ns
    assert bf.open(path)["t"][5] == 5
    assert file.stat().st_mtime_ns == made
    assert maps.made == 0


def test_a_chunk_map_is_made_once_for_each_state_of_a_file(tmp_path: Path, maps: Maps) -> None:
    path = write(tmp_path / "data" / "file.h5")
    for _ in range(2):
        assert opened(path)["t"][3] == 3
    assert maps.made == 1
    write(path, chunks=20)
    assert opened(path)["t"][13] == 13
    assert maps.made == 2
    assert visible(path.parent) == {"file.h5"}


def test_a_damaged_or_lost_map_is_made_again(tmp_path: Path, maps: Maps, kept: Path) -> None:
    path = write(tmp_path / "data" / "file.h5")
    opened(path)
    (file,) = kept.glob("*/chunk-map-external")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert opened(path)["t"][3] == 3
    file.unlink()
    assert opened(path)["t"][3] == 3
    assert maps.made == 3
    opened(path)
    assert maps.made == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_map_of_another_user_is_ignored(tmp_path: Path, maps: Maps, kept: Path) -> None:
    path = write(tmp_path / "data" / "file.h5")
    opened(path)
    (file,) = kept.glob("*/chunk-map-external")
    os.chown(file, 12345, 12345)
    opened(path)
    assert maps.made == 2
    assert file.stat().st_uid == 0


def test_a_directory_that_was_made_beside_the_file_is_its_sidecar(
    tmp_path: Path, maps: Maps, kept: Path
) -> None:
    path = write(tmp_path / "data" / "file.h5")
    beside = path.with_name("file.h5.bedform")
    beside.mkdir()
    opened(path)
    opened(path)
    assert maps.made == 1
    assert visible(beside) == {"chunk-map-external", "nonce"}
    assert not kept.exists()


def test_a_variable_says_where_sidecars_lie_and_another_what_they_take(
    tmp_path: Path, maps: Maps, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere"
    monkeypatch.setenv("BEDFORM_SIDECAR", str(place))
    monkeypatch.setenv("BEDFORM_SIDECAR_BYTES", "256 KiB")
    place.mkdir()
    (place / "notes").write_text("of the user")
    for number in range(4):
        opened(write(tmp_path / "data" / f"{number}.h5", chunks=MANY))
    assert not kept.exists()
    sizes = [file.stat().st_size for file in place.glob("*/chunk-map-external")]
    assert 0 < sum(sizes) <= 256 << 10
    assert len(sizes) < 4
    assert "notes" in visible(place)
    opened(tmp_path / "data" / "3.h5")
    assert maps.made == 4, "the last one is still there"
    monkeypatch.setenv("BEDFORM_SIDECAR_BYTES", "much")
    with pytest.raises(bf.InvalidArgumentError, match="BEDFORM_SIDECAR_BYTES"):
        opened(tmp_path / "data" / "3.h5")


def test_where_nothing_can_be_kept_files_are_read_all_the_same(
    tmp_path: Path, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "data" / "file.h5")
    monkeypatch.setenv("BEDFORM_SIDECAR", str(path))
    assert opened(path)["t"][3] == 3
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "none"))
    monkeypatch.setenv("BEDFORM_SIDECAR_BYTES", "0")
    assert opened(path)["t"][3] == 3
    assert maps.made == 2
    assert not (tmp_path / "none").exists()
