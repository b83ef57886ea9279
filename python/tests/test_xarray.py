"""The xarray backend ``bedform``. The oracle is xarray's own backend for the same store."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from support import fewer_examples, without_blocks

import bedform as bf
from bedform.xarray_backend import BedformBackendEntrypoint

pytestmark = [
    # Warnings of zarr-python while it writes the stores for comparison.
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Object at .bedform-lock"),
]


def everything() -> xr.Dataset:
    """A data set with every kind of variable that Zarr stores hold."""
    generator = np.random.default_rng(7)
    dataset = xr.Dataset(
        {
            "packed": (("time", "y", "x"), generator.normal(size=(4, 6, 5)), {"units": "K"}),
            "masked": (("y", "x"), np.where(np.eye(6, 5) > 0, np.nan, 1.0)),
            "flags": ("x", [True, False, True, True, False]),
            "waves": ("x", np.exp(1j * np.arange(5))),
            "labels": ("x", np.array(["a", "bcd", "", "e", "äö"], dtype=object)),
            "fixed": ("x", np.array(["a", "bcd", "", "e", "äö"])),
            "octets": ("x", np.array([b"a", b"bc", b"", b"d", b"e"])),
            "counts": ("x", np.arange(5, dtype="u2")),
            "spans": ("x", pd.to_timedelta(np.arange(5), unit="h")),
            "empty": (("x", "none"), np.zeros((5, 0), "f4")),
            "scalar": 3.5,
        },
        coords={
            "time": pd.date_range("2001-02-03", periods=4, freq="6h"),
            "x": np.arange(5.0),
            "height": (("y", "x"), generator.normal(size=(6, 5)).astype("f4")),
            "run": "first",
        },
        attrs={"title": "everything", "levels": [1, 2, 3], "nested": {"a": 1}},
    )
    dataset["packed"].encoding = {
        "dtype": "int16",
        "scale_factor": 0.01,
        "add_offset": 1.0,
        "_FillValue": -32767,
        "chunks": (2, 3, 5),
    }
    dataset["time"].encoding = {"units": "hours since 1970-01-01", "calendar": "standard"}
    return dataset


def same(left: Any, right: Any) -> bool:
    """Whether two values of an encoding are equal, NaN included."""
    return repr(left) == repr(right) or bool(np.all(left == right))


def assert_same(ours: xr.Dataset, theirs: xr.Dataset) -> None:
    """Identical values, attributes, types and encodings."""
    xr.testing.assert_identical(ours, theirs)
    assert ours.encoding == theirs.encoding
    for name in theirs.variables:
        mine, other = ours[name], theirs[name]
        assert mine.dtype == other.dtype, name
        assert set(mine.encoding) == set(other.encoding), name
        for key, value in without_blocks(other.encoding).items():
            assert same(mine.encoding[key], value), (name, key, mine.encoding[key], value)


@pytest.fixture(params=[2, 3], ids=["zarr2", "zarr3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that xarray wrote, with a group."""
    path = str(tmp_path / "theirs.zarr")
    everything().to_zarr(path, zarr_format=request.param)
    everything()[["counts"]].to_zarr(path, group="below/deep", mode="a", zarr_format=request.param)
    return path


def test_a_store_of_zarr_python_looks_as_through_its_own_engine(store: str) -> None:
    ours = xr.open_dataset(store, engine="bedform")
    assert_same(ours, xr.open_dataset(store, engine="zarr"))


@pytest.mark.parametrize(
    "options",
    [
        {"decode_cf": False},
        {"mask_and_scale": False},
        {"decode_times": False},
        {"decode_timedelta": True},
        {"decode_coords": False},
        {"decode_coords": "all"},
        {"drop_variables": ["packed", "x"]},
        {"group": "below/deep"},
    ],
    ids=str,
)
def test_every_option_of_decoding_means_the_same(store: str, options: dict[str, Any]) -> None:
    ours = xr.open_dataset(store, engine="bedform", **options)
    assert_same(ours, xr.open_dataset(store, engine="zarr", **options))


def test_the_fill_value_of_zarr_3_is_missing_data_only_if_asked_for(tmp_path: Path) -> None:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("v", (3,), "i4", ("a",), fill_value=7)[1:] = [1, 2]
    path = store.store_path
    assert xr.open_dataset(path, engine="bedform")["v"].values.tolist() == [7, 1, 2]
    asked = xr.open_dataset(path, engine="bedform", use_zarr_fill_value_as_mask=True)
    assert np.isnan(asked["v"][0])


def test_sharded_big_endian_and_transposed_arrays_have_the_same_encodings(tmp_path: Path) -> None:
    import zarr
    from zarr.codecs import BytesCodec, GzipCodec, TransposeCodec

    path = str(tmp_path / "codecs.zarr")
    group = zarr.create_group(path)
    array = group.create_array(
        "v",
        shape=(8, 6),
        shards=(4, 6),
        chunks=(2, 3),
        dtype="int32",
        filters=[TransposeCodec(order=(1, 0))],
        serializer=BytesCodec(endian="big"),
        compressors=[GzipCodec(level=2)],
        fill_value=-4,
        dimension_names=("a", "b"),
    )
    array[:5] = np.arange(30).reshape(5, 6)
    zarr.consolidate_metadata(path)
    old = str(tmp_path / "old.zarr")
    old_group = zarr.create_group(old, zarr_format=2)
    old_array = old_group.create_array("v", shape=(5,), dtype=">f4", chunks=(2,), fill_value=9)
    old_array[:] = np.arange(5)
    old_array.attrs["_ARRAY_DIMENSIONS"] = ["a"]
    zarr.consolidate_metadata(old)
    for where in (path, old):
        ours = xr.open_dataset(where, engine="bedform")
        assert_same(ours, xr.open_dataset(where, engine="zarr"))


def test_groups_open_as_a_tree(store: str) -> None:
    ours = xr.open_datatree(store, engine="bedform")
    xr.testing.assert_identical(ours, xr.open_datatree(store, engine="zarr"))
    assert list(xr.open_groups(store, engine="bedform")) == ["/", "/below", "/below/deep"]


def test_without_zarr_python_codecs_are_dictionaries(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    expected = xr.open_dataset(store, engine="zarr").load()
    monkeypatch.setitem(sys.modules, "zarr", None)
    ours = xr.open_dataset(store, engine="bedform")
    xr.testing.assert_identical(ours, expected)
    assert isinstance(ours["counts"].encoding["compressors"][0], dict)
    assert ours["counts"].encoding["chunks"] == (5,)


def make(path: Path, **variables: Any) -> str:
    bf.write_dataset(xr.Dataset(variables), path, durability="process")
    return str(path)


def test_opening_reads_no_chunk_but_those_of_indexes(tmp_path: Path) -> None:
    path = make(tmp_path / "s.zarr", t=(("a", "b"), np.ones((4, 5))))
    for shard in (Path(path) / "t" / "c").rglob("*"):
        if shard.is_file():
            shard.write_bytes(b"damaged")
    with xr.open_dataset(path, engine="bedform") as dataset:
        assert dataset["t"].isel(a=1).shape == (5,)
        with pytest.raises(bf.CorruptError, match="t/c"):
            dataset["t"].isel(a=1).load()


def test_a_data_set_keeps_the_shape_that_it_was_opened_with(tmp_path: Path) -> None:
    path = make(tmp_path / "s.zarr", t=("time", np.arange(3)))
    before = xr.open_dataset(path, engine="bedform")
    bf.write_dataset(xr.Dataset({"t": ("time", [3])}), path, append_dim="time")
    assert before["t"].values.tolist() == [0, 1, 2]
    assert before["t"][::-1].values.tolist() == [2, 1, 0]
    assert before["t"][-1].item() == 2
    assert xr.open_dataset(path, engine="bedform")["t"].size == 4


# xarray itself misreads negative steps that start below the first element.
INDEX = st.one_of(
    st.integers(-5, 4),
    st.builds(slice, *[st.none() | st.integers(-5, 6)] * 2, st.sampled_from([None, 1, 2, -1, -3])),
    st.lists(st.integers(-5, 4), max_size=6),
)


@fewer_examples(3)
@given(keys=st.dictionaries(st.sampled_from(["a", "b", "c"]), INDEX), points=st.data())
def test_every_selection_is_what_it_is_in_memory(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, Any], points: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "selections.zarr"
    values = xr.DataArray(np.arange(125).reshape(5, 5, 5), dims=("a", "b", "c"))
    if not path.exists():
        bf.write_dataset(values.to_dataset(name="v"), path, encoding={"v": {"chunks": (2, 3, 4)}})
    stored = xr.open_dataset(path, engine="bedform")["v"]
    xr.testing.assert_equal(stored.isel(keys).load(), values.isel(keys))
    count = points.draw(st.integers(1, 4))
    lists = {
        d: points.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)) for d in "ac"
    }
    at = {dim: xr.DataArray(places, dims="p") for dim, places in lists.items()}
    mixed = {**at, "b": keys.get("b", slice(None))}
    xr.testing.assert_equal(stored.isel(mixed).load(), values.isel(mixed))


def test_data_sets_pickle_lazily(store: str) -> None:
    opened = xr.open_dataset(store, engine="bedform")
    again = pickle.loads(pickle.dumps(opened))  # noqa: S301 - our own
    assert not again["packed"].variable._in_memory
    xr.testing.assert_identical(again.load(), opened.load())


def test_many_threads_read_one_data_set(tmp_path: Path) -> None:
    values = np.arange(64 * 64.0).reshape(64, 64)
    path = make(tmp_path / "s.zarr", t=(("a", "b"), values))
    dataset = xr.open_dataset(path, engine="bedform")
    wrong: list[int] = []

    def read(row: int) -> None:
        if not (dataset["t"][row].values == values[row]).all():
            wrong.append(row)

    threads = [threading.Thread(target=read, args=(row,)) for row in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_loading_can_be_awaited(tmp_path: Path) -> None:
    path = make(tmp_path / "s.zarr", t=("a", np.arange(4)))
    loaded = asyncio.run(xr.open_dataset(path, engine="bedform").load_async())
    assert loaded["t"].values.tolist() == [0, 1, 2, 3]


def test_dask_computes_what_it_computes_with_the_engine_zarr(store: str) -> None:
    ours = xr.open_dataset(store, engine="bedform", chunks={})
    theirs = xr.open_dataset(store, engine="zarr", chunks={})
    xr.testing.assert_identical(ours.compute(scheduler="threads"), theirs.compute())


def with_zeros(path: Path, **arrays: bf.Regular) -> str:
    """A store of arrays of 50 MiB along time, y and x, with no chunk written."""
    store = bf.create(path)
    for name, layout in arrays.items():
        store.create_array(name, (800, 128, 128), "f4", ("time", "y", "x"), layout=layout)
    return store.store_path


def test_the_cache_of_chunks_has_a_limit_of_its_own(tmp_path: Path) -> None:
    path = make(tmp_path / "s.zarr", t=("a", np.arange(4)))
    for limit in (0, "1 MiB"):
        opened = xr.open_dataset(path, engine="bedform", chunk_cache=limit, cache=False)
        assert opened["t"].values.tolist() == [0, 1, 2, 3]
    with pytest.raises(bf.InvalidArgumentError, match="a lot"):
        xr.open_dataset(path, engine="bedform", chunk_cache="a lot")


def test_blocks_for_dask_are_many_chunks_along_the_longest_axis_of_one(tmp_path: Path) -> None:
    path = with_zeros(
        tmp_path / "s.zarr",
        maps=bf.Regular(chunks=(1, 128, 128), shards=(800, 128, 128)),
        series=bf.Regular(chunks=(200, 4, 4), shards=(800, 128, 128)),
        boxes=bf.Regular(chunks=(8, 16, 16), shards=(96, 128, 128)),
    )
    dataset = xr.open_dataset(path, engine="bedform", chunks={})
    assert dataset["maps"].chunks == ((400, 400), (128,), (128,))
    assert dataset["series"].chunks == ((800,), (64, 64), (128,))
    assert dataset["boxes"].chunks == ((480, 320), (128,), (128,))
    assert dataset["maps"].encoding["preferred_chunks"] == {"time": 400, "y": 128, "x": 128}


def test_dask_is_warned_of_blocks_that_cut_chunks_and_of_no_others(tmp_path: Path) -> None:
    path = with_zeros(tmp_path / "s.zarr", t=bf.Regular((8, 128, 128), (800, 128, 128)))
    assert xr.open_dataset(path, engine="bedform", chunks={"time": 16})["t"].chunks[0][0] == 16
    opened = xr.open_dataset(path, engine="bedform")
    again = pickle.loads(pickle.dumps(opened["t"].encoding))  # noqa: S301 - our own
    assert again["preferred_chunks"].get("time") == 8
    assert again["preferred_chunks"].get("time", 800) == 400
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        xr.open_dataset(path, engine="bedform", chunks={"time": 12})


@pytest.mark.filterwarnings("ignore")
def test_workers_of_distributed_read(store: str) -> None:
    distributed = pytest.importorskip("distributed")
    expected = xr.open_dataset(store, engine="zarr").load()
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ):
        xr.testing.assert_identical(
            xr.open_dataset(store, engine="bedform", chunks={}).compute(), expected
        )


def test_many_stores_open_as_one(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{i}.zarr", t=("time", [i]), time=("time", [i])) for i in range(3)]
    together = xr.open_mfdataset(paths, engine="bedform", combine="by_coords")
    assert together["t"].values.tolist() == [0, 1, 2]


def test_only_stores_that_bedform_made_are_guessed(store: str, tmp_path: Path) -> None:
    engine = BedformBackendEntrypoint()
    ours = make(tmp_path / "s.zarr", t=("a", [1.0]))
    assert engine.guess_can_open(ours)
    assert xr.open_dataset(ours)["t"].values.tolist() == [1.0]
    foreign = tmp_path / "f.nc"
    foreign.write_bytes(b"CDF\x01")
    for other in (
        store,
        str(foreign),
        str(tmp_path),
        str(tmp_path / "missing"),
        b"CDF",
        "s3://a/b",
    ):
        assert not engine.guess_can_open(other)


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    path = make(tmp_path / "s.zarr", t=("a", [1.0]))
    with pytest.raises(FileNotFoundError, match="no such file or store"):
        xr.open_dataset(str(tmp_path / "missing.zarr"), engine="bedform")
    with pytest.raises(
        KeyError, match=r"group 'g' of .* does not exist: it has none below the root"
    ):
        xr.open_dataset(path, engine="bedform", group="g")
    with pytest.raises(KeyError, match=r"group 't' of .* is an array, not a group"):
        xr.open_dataset(path, engine="bedform", group="t")


def test_groups_are_named_as_for_other_engines(store: str, tmp_path: Path) -> None:
    path = tmp_path / "groups.nc"
    xr.Dataset({"counts": ("x", [1, 2])}).to_netcdf(path, group="below/deep", engine="netcdf4")
    for where in (store, path):
        for group in ("below/deep", "/below/deep", "/below/deep/", "below//deep"):
            opened = xr.open_dataset(where, engine="bedform", group=group)
            assert list(opened) == ["counts"]
        for group in ("nope", "/below/nope"):
            with pytest.raises(OSError, match=r"does not exist: it has below, below/deep$"):
                xr.open_dataset(where, engine="bedform", group=group)


class ForeignArray:
    """A variable of a foreign file, as the backend uses it."""

    def __init__(self) -> None:
        self.shape, self.dtype, self.dims = (3,), np.dtype("i2"), ("time",)
        self.encoding = {"zlib": True, "chunksizes": (3,), "source": "x.nc"}

    def _load_attributes(self) -> dict[str, Any]:
        return {"scale_factor": np.float32(0.5)}

    def _get(self, selected: Any, scalar: bool = True) -> Any:
        ((start, step, count),) = selected.engine[1]
        return np.arange(3, dtype="i2")[start :: step or 1][:count].reshape(selected.result)


class ForeignStore:
    """A foreign file."""

    unlimited_dims = frozenset({"time"})

    def _load_attributes(self) -> dict[str, Any]:
        return {"title": "foreign"}

    def arrays(self) -> dict[str, Any]:
        return {"v": ForeignArray()}

    def _left_out(self) -> dict[str, str]:
        return {}


def test_foreign_files_bring_their_own_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf, "open", lambda *_, **__: ForeignStore())
    dataset = xr.open_dataset("x.nc", engine="bedform")
    assert dataset.encoding["unlimited_dims"] == {"time"}
    assert dataset["v"].encoding["chunksizes"] == (3,)
    assert dataset["v"].values.tolist() == [0.0, 0.5, 1.0]
