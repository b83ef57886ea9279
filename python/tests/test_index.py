"""Value indexes: the ranges of blocks are NumPy's, or unknown after any change.

Each test builds an index, perhaps changes the source, and compares every known block with the
present elements.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import bedform as bf
from bedform import _internal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

SHAPE = (64, 40, 50)


def noise(shape: tuple[int, ...], dtype: str = "f8", seed: int = 0) -> Any:
    """Returns values, of floats with some NaN."""
    if np.dtype(dtype).byteorder == ">":
        return noise(shape, dtype[1:], seed).astype(dtype)
    chance = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        values = chance.normal(280, 20, shape).astype(dtype)
        return np.where(chance.random(shape) < 0.01, np.dtype(dtype).type("nan"), values)
    bounds = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    low, high = (bounds.min, bounds.max) if bounds else (0, 1)
    return chance.integers(low, high, shape, dtype=dtype if bounds else "u1", endpoint=True).astype(
        dtype
    )


def index_of(array: Any) -> Any:
    return _internal.value_index(array._inner)


def known(array: Any, values: Any, missing: tuple[Any, ...] = ()) -> Any:
    """Returns for each block whether it is known; a known one must have the range of its values."""
    index = index_of(array)
    assert index is not None, "no index"
    shape, block = tuple(index["shape"]), index["block"]
    dtype = values.dtype.newbyteorder("=")
    found = np.zeros(shape, bool)
    assert len(index["ranges"]) == found.size
    for at, one in zip(np.ndindex(shape), index["ranges"], strict=True):
        if one is None:
            continue
        found[at] = True
        part = values[tuple(slice(i * n, (i + 1) * n) for i, n in zip(at, block, strict=True))]
        is_missing = np.isin(part, np.array(missing, dtype)) | (part != part)
        assert one[1] == is_missing.sum(), at
        if is_missing.all():
            assert one[0] is None, at
            continue
        least, greatest = (np.frombuffer(value, dtype)[0] for value in one[0])
        assert (least, greatest) == (part[~is_missing].min(), part[~is_missing].max()), at
    return found


def make_store(path: Path, values: Any, **how: Any) -> Any:
    """Returns an array of a new store, in shards of 16 rows with chunks of 4."""
    store = bf.create(path)
    rest = values.shape[1:]
    layout = bf.Regular(chunks=(4, *rest), shards=(16, *rest))
    dims = tuple("tyxw"[: values.ndim])
    return store.create_array("g/t", data=values, dims=dims, layout=layout, **how)


def level_one(path: Path, array: str = "t") -> Path:
    """Returns the group with the ranges."""
    groups = [*Path(f"{path}.bedform").glob(f"index/{array}/groups/0*")]
    assert len(groups) == 1, groups
    return groups[0]


def written_by_zarr(path: Path, values: Any, chunks: tuple[int, ...], **how: Any) -> Any:
    """Returns an array made by zarr-python, opened by Bedform."""
    group = zarr.open_group(path, mode="w", zarr_format=how.pop("zarr_format", 3))
    group.create_array("t", data=values, chunks=chunks, **how)
    return bf.open(path)["t"]


DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_has_the_range_of_its_elements_for_each_type(tmp_path: Path, dtype: str) -> None:
    values = noise(SHAPE, dtype)
    array = make_store(tmp_path / "s.zarr", values)
    report = bf.index(tmp_path / "s.zarr")
    assert known(array, values).all()
    assert report.blocks == report.arrays[0]["blocks_read"] > 0
    assert report.arrays[0]["objects_left_out"] == 0


def test_a_block_of_missing_elements_alone_has_a_count_and_no_range(tmp_path: Path) -> None:
    values = noise(SHAPE)
    values[16:32] = np.nan
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    assert known(array, values).all()
    assert sum(one[0] is None for one in index_of(array)["ranges"]) == 4


def test_a_written_shard_is_unknown_and_alone_read_again(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    array[17, 3] = values[17, 3] = 1e6
    found = known(array, values)
    assert found.sum() == 12 and not found[4:8].any()
    assert array.index().arrays[0]["blocks_read"] == 4
    assert known(array, values).all()
    # Nothing has changed, so nothing is read and written.
    before = level_one(tmp_path / "s.zarr", "g/t")
    assert array.index().arrays[0]["blocks_read"] == 0
    assert level_one(tmp_path / "s.zarr", "g/t") == before
    assert array.index(anew=True).arrays[0]["blocks_read"] == 16


def test_a_handle_that_was_open_before_finds_the_index_and_notices_writes(tmp_path: Path) -> None:
    values = noise(SHAPE)
    make_store(tmp_path / "s.zarr", values)
    early = bf.open(tmp_path / "s.zarr")["g/t"]
    assert index_of(early) is None
    bf.index(tmp_path / "s.zarr")
    assert known(early, values).all()
    bf.open(tmp_path / "s.zarr", "r+")["g/t"][0, 0, 0] = values[0, 0, 0] = -1
    assert known(early, values).sum() == 12


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_a_handle_that_stays_at_an_earlier_moment_makes_no_wrong_index(
    tmp_path: Path, freshness: Any
) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    stale = bf.open(tmp_path / "s.zarr", freshness=freshness)["g/t"]
    assert stale[0, 0, 0] == values[0, 0, 0]
    array[0, 0, 0] = values[0, 0, 0] = -7
    stale.index()
    known(array, values)
    array.index()
    assert known(array, values).all()


def test_blocks_that_are_written_meanwhile_are_right_or_unknown(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    chance, is_over = random.Random(0), threading.Event()

    def write() -> None:
        own = bf.open(tmp_path / "s.zarr", "r+")["g/t"]
        while not is_over.is_set():
            row = chance.randrange(SHAPE[0])
            own[row, 0] = values[row, 0] = chance.normalvariate(0, 1e6)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            array.index()
    finally:
        is_over.set()
        writer.join()
    known(array, values)
    array.index()
    assert known(array, values).all()


def test_a_shard_under_commits_is_unknown_until_they_are_settled(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    store = bf.open(tmp_path / "s.zarr", "r+")
    with store.session(settle="later") as session:
        values[20:22] = -5
        session.write("g/t", values[20:22], start=(20, 0, 0))
        session.commit()
    found = known(array, values)
    assert found.sum() == 12 and not found[4:8].any()
    report = array.index().arrays[0]
    assert report["objects_left_out"] == 1
    assert known(array, values).sum() == 12
    store.settle()
    assert known(array, values).all()


def test_a_store_of_commits_alone_has_an_index_without_ranges(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    array = store.create_array("t", shape=SHAPE, dtype="f8", dims=tuple("tyx"))
    values = noise(SHAPE)
    with store.session(settle="later") as session:
        session.write("t", values, start=(0, 0, 0))
        session.commit()
    report = array.index()
    assert report.arrays[0]["objects_left_out"] > 0
    assert not known(array, values).any()


def test_a_snapshot_knows_what_has_not_changed_since(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    with bf.open(tmp_path / "s.zarr").snapshot() as then:
        assert known(then["g/t"], values).all()
        later = values.copy()
        array[40] = later[40] = 7
        assert known(then["g/t"], values).sum() == 12
        assert known(array, later).sum() == 12
        array.index()
        # The index is of a moment after the snapshot.
        assert known(then["g/t"], values).sum() == 12
        assert known(array, later).all()


def test_blocks_that_grow_or_shrink_are_unknown_and_the_others_stay(tmp_path: Path) -> None:
    values = noise((62, 40, 50))
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    more = noise((10, 40, 50), seed=1)
    array.append(more)
    values = np.concatenate([values, more])
    found = known(array, values)
    assert found.shape[0] == 18 and found[:12].all() and not found[12:].any()
    assert array.index().arrays[0]["blocks_read"] == 6
    assert known(array, values).all()
    array.resize((30, 40, 50))
    found = known(array, values[:30])
    assert found.shape[0] == 8 and not found[7].any() and found[:4].all()
    array.index()
    assert known(array, values[:30]).all()
    array.resize((40, 40, 50))
    values = np.concatenate([values[:30], np.full((10, 40, 50), array.fill_value)])
    assert known(array, values)[:4].all()


def test_small_chunks_without_shards_are_joined_into_blocks(tmp_path: Path) -> None:
    values = noise((100_000,))
    array = written_by_zarr(tmp_path / "s.zarr", values, (1000,))
    array.index()
    found = known(array, values)
    assert found.all() and 1 < found.size < 20
    bf.open(tmp_path / "s.zarr", "r+")["t"][54_321] = values[54_321] = -1
    assert known(array, values).sum() == found.size - 1


def test_parts_of_large_chunks_are_blocks(tmp_path: Path) -> None:
    values = noise((24, 200, 300))
    array = written_by_zarr(tmp_path / "s.zarr", values, (12, 200, 300))
    array.index()
    assert index_of(array)["block"] == [2, 50, 75]
    assert known(array, values).all()


def test_zarr_v2_has_its_fill_value_as_missing(tmp_path: Path) -> None:
    values = noise(SHAPE, "i2")
    values[3:20, 5] = -99
    how: dict[str, Any] = {"zarr_format": 2, "fill_value": -99}
    array = written_by_zarr(tmp_path / "s.zarr", values, (16, 40, 50), **how)
    array.index()
    assert known(array, values, (-99,)).all()


def test_zarr_v3_has_attributes_alone_as_missing(tmp_path: Path) -> None:
    values = noise(SHAPE, "f4")
    values[3:20, 5], values[1] = -999, 0
    ds = xr.Dataset({"t": (tuple("tyx"), values)})
    path = tmp_path / "s.zarr"
    encoding = {"t": {"_FillValue": -999.0, "missing_value": -999.0, "chunks": (8, 40, 50)}}
    ds.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)
    array = bf.open(path, "r+")["t"]
    array.index()
    values[np.isnan(values)] = -999
    assert known(array, values, (-999,)).all()
    # With other missing values, ranges are of other elements.
    array.attrs["missing_value"] = 0.0
    assert index_of(array) is None
    array.index()
    assert known(array, values, (-999, 0)).all()


def netcdf(path: Path, values: Any, engine: Any = "h5netcdf", **encoding: Any) -> Path:
    ds = xr.Dataset({"t": (("time", "y", "x"), values)})
    ds.to_netcdf(path, engine=engine, encoding={"t": encoding}, unlimited_dims=["time"])
    return path


def stored(path: Path) -> Any:
    with h5py.File(path) as file:
        return file["t"][...]


def test_packed_chunks_of_netcdf_have_ranges_of_stored_values(tmp_path: Path) -> None:
    path = netcdf(
        tmp_path / "a.nc",
        noise(SHAPE),
        dtype="i2",
        scale_factor=0.01,
        add_offset=280.0,
        _FillValue=-32768,
        zlib=True,
        shuffle=True,
        chunksizes=(10, 40, 50),
    )
    bf.index(path)
    values = stored(path)
    assert (values == -32768).any()
    with bf.open(path) as file:
        assert known(file["t"], values, (-32768,)).all()
        assert index_of(file["t"])["block"] == [10, 40, 50]


def test_big_endian_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=noise(SHAPE, ">f4"), chunks=(16, 40, 50), shuffle=True)
        file.create_dataset("g/u", data=noise(SHAPE, ">i8"))
    bf.index(tmp_path / "a.h5")
    with bf.open(tmp_path / "a.h5") as opened, h5py.File(tmp_path / "a.h5") as file:
        assert known(opened["t"], file["t"][...]).all()
        assert known(opened["g/u"], file["g/u"][...]).all()


def test_a_contiguous_variable_has_blocks_of_rows(tmp_path: Path) -> None:
    values = noise((30, 300, 100))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=values)
    bf.index(tmp_path / "a.h5")
    with bf.open(tmp_path / "a.h5") as file:
        assert index_of(file["t"])["block"] == [1, 81, 100]
        assert known(file["t"], values).all()


@pytest.mark.parametrize("rows", [100, 30_000])
def test_records_of_classic_netcdf_are_indexed(tmp_path: Path, rows: int) -> None:
    values = noise((12, rows, 20), "f8")
    path = tmp_path / "a.nc"
    classic = {"engine": "netcdf4", "format": "NETCDF3_64BIT", "unlimited_dims": ["time"]}
    xr.Dataset({"t": (("time", "y", "x"), values)}).to_netcdf(path, **classic)
    bf.index(path)
    with bf.open(path) as file:
        assert known(file["t"], values).all()


def test_a_changed_file_is_unknown(tmp_path: Path) -> None:
    values = noise(SHAPE)
    path = netcdf(tmp_path / "a.nc", values)
    bf.index(path)
    with h5py.File(path, "r+") as file:
        file["t"][3, 3, 3] = values[3, 3, 3] = 12345.0
    with bf.open(path) as file:
        assert not known(file["t"], values).any()
        file.index()
        assert known(file["t"], values).all()
    path.chmod(0o600)
    with bf.open(path) as file:
        assert not known(file["t"], values).any()


def test_each_file_of_an_archive_is_known_alone(tmp_path: Path) -> None:
    parts = [noise((rows, 40, 50), seed=rows) for rows in (31, 28, 33)]
    for number, part in enumerate(parts):
        encoding = {"chunksizes": (4, 40, 50)}
        netcdf(tmp_path / f"a{number}.nc", part, **encoding)
    where = str(tmp_path / "a*.nc")
    report = bf.index(where, concat_dim="time")
    assert report.arrays[0]["objects_left_out"] == 0
    with bf.open(where, concat_dim="time") as files:
        assert known(files["t"], np.concatenate(parts)).all()
    parts[1] = noise((28, 40, 50), seed=7)
    netcdf(tmp_path / "a1.nc", parts[1], chunksizes=(4, 40, 50))
    with bf.open(where, concat_dim="time") as files:
        found = known(files["t"], np.concatenate(parts))
        # Files begin within blocks.
        assert found[:7].all() and not found[8:14].any() and found[15:].all()
        report = files.index()
        assert 7 <= report.arrays[0]["blocks_read"] <= 9
        assert known(files["t"], np.concatenate(parts)).all()


def test_a_damaged_index_decides_nothing_wrong(tmp_path: Path) -> None:
    values = noise(SHAPE, "f4")
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    sidecar = tmp_path / "s.zarr.bedform"
    files = [file for file in (sidecar / "index").rglob("*") if file.is_file()]
    assert len(files) > 5
    chance = random.Random(1)
    for file, _ in itertools.product(files, range(12)):
        whole = file.read_bytes()
        damaged = bytearray(whole)
        if damaged and chance.random() < 0.7:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(len(damaged) or 1) :]
        file.write_bytes(damaged)
        if index_of(array) is not None:
            known(array, values)
        file.write_bytes(whole)
    assert known(array, values).all()


def test_a_lost_part_of_an_index_is_unknown(tmp_path: Path) -> None:
    values = noise(SHAPE, "f4")
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    group = level_one(tmp_path / "s.zarr", "g/t")
    for file in (group / "minimum" / "c").rglob("*"):
        if file.is_file():
            file.unlink()
    assert not known(array, values).any()
    shutil.rmtree(group)
    assert index_of(array) is None
    array.index()
    assert known(array, values).all()


def test_the_index_of_another_array_counts_as_none(tmp_path: Path) -> None:
    values = noise(SHAPE, "f4")
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    other = make_store(tmp_path / "o.zarr", -values)
    other.index()
    mine, its = (tmp_path / f"{name}.zarr.bedform/index" for name in "so")
    shutil.rmtree(mine)
    shutil.copytree(its, mine)
    assert index_of(array) is None or not known(array, values).any()


def test_an_unpacked_sidecar_of_others_is_not_read(tmp_path: Path) -> None:
    values = noise(SHAPE, "f4")
    make_store(tmp_path / "s.zarr", values).index()
    for suffix in ("", ".bedform"):
        shutil.copytree(tmp_path / f"s.zarr{suffix}", tmp_path / f"copy.zarr{suffix}")
    with pytest.warns(bf.SidecarWarning):
        copy = bf.open(tmp_path / "copy.zarr")["g/t"]
    assert index_of(copy) is None


def test_zarr_python_opens_the_ranges(tmp_path: Path) -> None:
    values = noise(SHAPE, "f8")
    make_store(tmp_path / "s.zarr", values).index()
    group = zarr.open_group(level_one(tmp_path / "s.zarr", "g/t"), mode="r")
    parts = values.reshape(16, 4 * 40 * 50)
    assert np.array_equal(group["minimum"][:, 0, 0], np.nanmin(parts, 1))
    assert np.array_equal(group["maximum"][:, 0, 0], np.nanmax(parts, 1))
    assert np.array_equal(group["missing"][:, 0, 0], np.isnan(parts).sum(1))
    assert group["missing"].dtype == "u4" and group["minimum"].dtype == "f8"


def test_an_interrupted_call_leaves_the_earlier_index(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    array[0, 0, 0] = values[0, 0, 0] = 5

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        array.index(anew=True, progress=stop)
    assert known(array, values).sum() == 12
    array.index()
    assert known(array, values).all()
    level_one(tmp_path / "s.zarr", "g/t")


def test_progress_reaches_the_bytes_of_all_arrays(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    for name in ("a", "b"):
        store.create_array(name, data=noise(SHAPE))
    seen: list[tuple[int, int]] = []
    store.index(progress=lambda done, total: seen.append((done, total)))
    total = 2 * 8 * 64 * 40 * 50
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_arrays_that_are_no_numbers_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("names", data=np.array(["a", "b"]))
    store.create_array("z", data=np.ones(4, "c16"))
    store.create_array("t", data=np.float64(3.0))
    store.create_array("empty", shape=(0, 5), dtype="f4")
    report = store.index()
    assert sorted(one["array"] for one in report.arrays) == ["empty", "t"]
    assert known(store["t"], np.float64(3.0).reshape(())).all()
    with pytest.raises(bf.UnsupportedError, match=r"names.*no numbers"):
        store.index(["names"])
    with pytest.raises(bf.NotFoundError, match="nothing"):
        store.index("nothing")
    with pytest.raises(bf.WrongTypeError, match="index takes"):
        bf.index(3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_index_without_a_place_says_how_to_give_one(tmp_path: Path) -> None:
    path = netcdf(tmp_path / "a.nc", noise(SHAPE))
    tmp_path.chmod(0o500)
    with pytest.raises(bf.PermissionDeniedError, match="BEDFORM_SIDECAR"):
        bf.index(path)


def test_a_named_directory_of_sidecars_holds_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = noise(SHAPE)
    path = netcdf(tmp_path / "a.nc", values)
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    monkeypatch.setenv("BEDFORM_SIDECAR_BYTES", "64 KiB")
    bf.index(path)
    assert not Path(f"{path}.bedform").exists()
    # It was asked for, and counts for no budget.
    netcdf(tmp_path / "b.nc", values)
    bf.index(tmp_path / "b.nc")
    with bf.open(path) as file:
        assert known(file["t"], values).all()


def test_the_command_says_what_it_did_and_info_that_there_is_an_index(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = netcdf(tmp_path / "a.nc", noise(SHAPE))
    done = bedform_command("index", str(path), "--array", "t", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [one["array"] for one in report["arrays"]] == ["t"]
    assert report["bytes"] > 0
    again = bedform_command("index", str(path))
    assert "0 of them read" in again.stdout
    told = bedform_command("info", str(path))
    assert "of 1 array" in told.stdout
    facts = json.loads(bedform_command("info", str(path), "--json").stdout)
    assert [one["array"] for one in facts["indexes"]] == ["t"]
    refused = bedform_command("index", str(path), "--array", "u")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_arrays_and_changes_never_give_a_wrong_range(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rank = chance.randrange(1, 4)
    shape = tuple(chance.choice([1, 7, 30, 64, 200]) for _ in range(rank))
    chunks = tuple(max(1, chance.randrange(1, length + 1)) for length in shape)
    shards = tuple(chunk * chance.randrange(1, 4) for chunk in chunks)
    dtype = chance.choice(["f4", "f8", "i2", "u1"])
    values = noise(shape, dtype, seed)
    store = bf.create(tmp_path / "s.zarr")
    layout = bf.Regular(chunks=chunks, shards=shards)
    array = store.create_array("t", data=values, layout=layout)
    array.index()
    assert known(array, values).all()
    for _ in range(5):
        start = tuple(chance.randrange(length) for length in shape)
        part = tuple(
            slice(at, min(length, at + chance.randrange(1, 20)))
            for at, length in zip(start, shape, strict=True)
        )
        new = noise(values[part].shape, dtype, chance.getrandbits(20))
        values[part] = new
        if chance.random() < 0.5:
            array[part] = new
        else:
            with store.session(settle=chance.choice(["later", "end"])) as session:
                session.write("t", new, start=start)
        known(array, values)
        if chance.random() < 0.5:
            array.index()
            known(array, values)
    store.settle()
    known(array, values)
    array.index()
    assert known(array, values).all()


def test_a_written_data_set_has_an_index_if_it_is_asked_for(tmp_path: Path) -> None:
    values = noise(SHAPE)
    data = xr.Dataset({"t": (("z", "y", "x"), values)}, {"z": np.arange(SHAPE[0])})
    bf.write_dataset(data, tmp_path / "s.zarr", group="g", index=True)
    assert known(bf.open(tmp_path / "s.zarr")["g/t"], values).all()
    bf.write_dataset(data, tmp_path / "s.zarr", group="g", append_dim="z", mode="a", index=True)
    assert known(bf.open(tmp_path / "s.zarr")["g/t"], np.concatenate([values, values])).all()
    with pytest.raises(bf.InvalidArgumentError, match="compute=False"):
        bf.write_dataset(data, tmp_path / "o.zarr", compute=False, index=True)
    with pytest.raises(bf.WrongTypeError, match="bins"):
        bf.write_dataset(data, tmp_path / "o.zarr", index="yes")
    assert not (tmp_path / "o.zarr").exists()


def test_a_new_array_has_an_index_if_it_is_asked_for(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    values = noise(SHAPE)
    array = store.create_array("t", data=values, index=[270.0, 310.0])
    assert known(array, values).all()
    assert array.index().arrays[0]["bins"] == 3
    empty = store.create_array("u", (0, 4), "f4", index=True)
    assert empty.index().blocks == 0
    with pytest.raises(bf.WrongTypeError, match="bins"):
        store.create_array("v", data=values, index="many")
    assert "v" not in store


def test_a_conversion_indexes_its_target_if_it_is_asked_to(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    values = noise(SHAPE)
    make_store(tmp_path / "s.zarr", values)
    source, target = (str(tmp_path / name) for name in ("s.zarr", "o.zarr"))
    assert bedform_command("convert", source, target, "--index").returncode == 0
    assert known(bf.open(tmp_path / "o.zarr")["g/t"], values).all()
    bf.convert(tmp_path / "s.zarr", tmp_path / "b.zarr", index=8)
    assert bf.open(tmp_path / "b.zarr").info()["indexes"][0]["bins"] == 8


def test_settling_renews_the_indexes_that_there_are(tmp_path: Path) -> None:
    values = noise(SHAPE)
    array = make_store(tmp_path / "s.zarr", values)
    array.index()
    store = bf.open(tmp_path / "s.zarr", mode="r+")
    with store.session(settle="later") as session:
        session.write("g/t", np.full((4, 40, 50), 7.0), start=(20, 0, 0))
        session.commit()
    values[20:24] = 7
    store.settle()
    assert known(bf.open(tmp_path / "s.zarr")["g/t"], values).all()
