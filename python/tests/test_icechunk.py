"""Repositories of Icechunk, read by the engine through that library's sessions."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

T = np.arange(6000, dtype="f4").reshape(10, 20, 30)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A repository at ``ice`` with arrays of its own."""
    monkeypatch.chdir(tmp_path)
    created = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "ice")))
    session = created.writable_session("main")
    group = zarr.group(session.store, attributes={"title": "ours"})
    names = ("time", "y", "x")
    array = group.create_array(
        "inner/t", shape=T.shape, chunks=(3, 20, 11), dtype="f4", dimension_names=names
    )
    array[...] = T
    group.create_array("sharded", shape=(64,), chunks=(4,), shards=(32,), dtype="i4")[...] = range(
        64
    )
    group.create_array("scalar", shape=(), dtype="f8")[...] = 2.5
    session.commit("first")
    return created


def is_read(opened: Any) -> bool:
    """Whether everything has the written values."""
    t = opened["inner/t"]
    np.testing.assert_array_equal(t[...], T)
    np.testing.assert_array_equal(t[2:9:3, 5, ::7], T[2:9:3, 5, ::7])
    assert opened["sharded"][30:40].tolist() == list(range(30, 40))
    assert opened["scalar"][...] == 2.5
    return True


def again(handle: Any) -> Any:
    """Returns a handle as another process would unpickle it."""
    return pickle.loads(pickle.dumps(handle))  # noqa: S301 - our own


def test_a_session_and_a_directory_are_opened_as_the_store_of_their_snapshot(
    repository: Any,
) -> None:
    session = repository.readonly_session("main")
    for place in (session, session.store, "ice"):
        store = bf.open(place)
        assert is_read(store)
        assert sorted(store.arrays()) == ["inner/t", "scalar", "sharded"]
        assert store.attrs["title"] == "ours" and store["inner/t"].dims == ("time", "y", "x")
        assert is_read(again(store))
    opened = xr.open_dataset("ice", engine="bedform", group="inner")
    np.testing.assert_array_equal(opened["t"].isel(y=3).values, T[:, 3])


def test_chunks_that_are_not_stored_have_the_fill_value(repository: Any) -> None:
    session = repository.writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("part", shape=(8,), chunks=(4,), dtype="f4", fill_value=7)[:4] = 1
    session.commit("with gaps")
    assert bf.open("ice")["part"][...].tolist() == [1, 1, 1, 1, 7, 7, 7, 7]


def test_a_snapshot_stays_what_it_is_and_a_new_open_sees_what_was_committed(
    repository: Any,
) -> None:
    before = bf.open("ice")
    session = repository.writable_session("main")
    zarr.open_group(session.store)["inner/t"][0] = -1.0
    with pytest.raises(ValueError, match="readonly_session"):
        bf.open(session)
    session.commit("second")
    assert is_read(before) and is_read(again(before))
    assert (bf.open("ice")["inner/t"][0] == -1).all()


def test_replicas_of_a_repository_are_read_until_the_next_commit(repository: Any) -> None:
    values = np.random.default_rng(5).integers(1, 1000, (150, 40, 50)).astype("f4")
    session = repository.writable_session("main")
    large = zarr.open_group(session.store).create_array(
        "large",
        shape=values.shape,
        chunks=(1, 40, 50),
        dtype="f4",
        dimension_names=("time", "y", "x"),
    )
    large[...] = values
    session.commit("large")
    assert bf.optimize("ice", reads={("time",): 1.0}, budget="400%").made

    def replica_reads() -> int:
        store = bf.open("ice", cache=0)
        np.testing.assert_array_equal(store["large"][:, 3, 4], values[:, 3, 4])
        return sum(replica["reads"] for replica in store.stats()["replicas"])

    assert replica_reads() > 0
    values[:, 3, 4] = 7
    session = repository.writable_session("main")
    zarr.open_group(session.store)["large"][:, 3, 4] = 7.0
    session.commit("second")
    assert replica_reads() == 0


def test_reads_of_a_repository_are_recorded_and_learnt(repository: Any) -> None:
    bf.watch("ice")
    store = bf.open("ice", cache=0)
    for y in range(12):
        store["inner/t"][:, y, 4]
    del store
    assert bf.learn("ice")["knowledge"]["arrays"]["inner/t"]["read"]["reads"] == 12


def test_a_repository_is_converted(repository: Any) -> None:
    assert bf.convert("ice", "out.zarr", verify=True).verified
    assert is_read(bf.open("out.zarr"))


def test_virtual_chunks_are_read_where_they_are_authorised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data/a.h5", "w") as file:
        file.create_dataset("t", data=T, chunks=(5, 20, 30))
        chunks = [file["t"].id.get_chunk_info(number) for number in range(2)]
    prefix = f"file://{tmp_path}/data/"
    container = icechunk.VirtualChunkContainer(
        prefix, icechunk.local_filesystem_store(str(tmp_path / "data"))
    )
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    storage = icechunk.local_filesystem_storage(str(tmp_path / "ice"))
    created = icechunk.Repository.create(storage, config)
    created.save_config()
    session = created.writable_session("main")
    zarr.group(session.store).create_array(
        "t", shape=T.shape, chunks=(5, 20, 30), dtype="f4", compressors=None
    )
    for number, chunk in enumerate(chunks):
        session.store.set_virtual_ref(
            f"t/c/{number}/0/0", f"{prefix}a.h5", offset=chunk.byte_offset, length=chunk.size
        )
    session.commit("virtual")
    with pytest.raises(bf.BedformError, match="t/c/0/0"):
        bf.open(tmp_path / "ice")["t"][...]
    for roots in ([tmp_path / "data"], True):
        opened = bf.open(tmp_path / "ice", allow_external=roots)
        np.testing.assert_array_equal(opened["t"][:, 4], T[:, 4])
    with pytest.raises(bf.BedformError):
        bf.open(tmp_path / "ice", allow_external=["/usr"])["t"][...]
    monkeypatch.setenv("BEDFORM_ALLOW_EXTERNAL", f"/usr;{tmp_path}/data")
    np.testing.assert_array_equal(bf.open(tmp_path / "ice")["t"][...], T)
    assert is_read_by_session(created, prefix, storage, config)


def is_read_by_session(created: Any, prefix: str, storage: Any, config: Any) -> bool:
    """Whether a session with the caller's authorisation reads the virtual chunks."""
    opened = icechunk.Repository.open(
        storage, config, authorize_virtual_chunk_access={prefix: None}
    )
    store = bf.open(opened.readonly_session("main"))
    np.testing.assert_array_equal(store["t"][...], T)
    return True
