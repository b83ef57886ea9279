"""NetCDF and HDF5 files at URLs: equal to files on disk, with few requests."""

from __future__ import annotations

import os
import pickle
import subprocess
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from range_server import FileServer, serving
from support import command_line

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHAPE = (60, 40, 50)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    with serving(tmp_path) as server:
        yield server


def dataset(seed: int = 3) -> xr.Dataset:
    """Returns a few megabytes, more than the opening request transfers."""
    values = np.random.default_rng(seed).normal(size=SHAPE)
    dims = ("time", "lat", "lon")
    coords = {"time": np.arange(60.0), "lat": np.linspace(-90, 90, 40), "lon": np.arange(50.0)}
    return xr.Dataset({"t": (dims, values), "u": (dims, values.astype("f4") * 2)}, coords=coords)


CHUNKED = {"chunksizes": (4, 20, 25), "zlib": True, "shuffle": True}
FORMATS: list[tuple[str, str, dict[str, Any]]] = [
    ("chunked.nc", "NETCDF4", {"t": CHUNKED, "u": CHUNKED}),
    ("whole.nc4", "NETCDF4", {}),
    ("classic.nc", "NETCDF3_64BIT", {}),
    ("name with blanks.nc", "NETCDF4", {"t": CHUNKED}),
    # Without a suffix of such files it is looked up as a store first.
    ("results.bin", "NETCDF4", {"t": CHUNKED}),
]


@pytest.mark.parametrize(("name", "format_name", "encoding"), FORMATS)
def test_a_file_at_a_url_is_read_as_from_a_disk(
    tmp_path: Path, server: FileServer, name: str, format_name: Any, encoding: Any
) -> None:
    expected = dataset()
    expected.to_netcdf(tmp_path / name, format=format_name, encoding=encoding, engine="netcdf4")
    store = bf.open(server.url(name))
    assert sorted(store.arrays()) == ["lat", "lon", "t", "time", "u"]
    for selection in (np.s_[:], np.s_[:, 3, 4], np.s_[7], np.s_[1:50:7, ::3, -1], np.s_[2, 3, 4]):
        np.testing.assert_array_equal(store["t"][selection], expected["t"].values[selection])
    again = pickle.loads(pickle.dumps(store))  # noqa: S301 - made here
    np.testing.assert_array_equal(again["u"][5], expected["u"].values[5])
    found = xr.open_dataset(server.url(name), engine="bedform")
    xr.testing.assert_identical(found.load(), expected)


def test_opening_a_file_and_reading_a_series_take_few_requests(
    tmp_path: Path, server: FileServer
) -> None:
    expected = dataset()
    expected.to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED, "u": CHUNKED}, engine="netcdf4")
    store = bf.open(server.url("a.nc"))
    assert len(server.asked) <= 4, server.asked
    server.asked.clear()
    np.testing.assert_array_equal(store["t"][:, 3, 4], expected["t"].values[:, 3, 4])
    assert 0 < len(server.asked) <= 15 + 2, "one for each chunk along time, and no file opened anew"
    assert all(method == "GET" for method, _, _ in server.asked)


#: HDF5's chunk indexes, by format version and maximum shape.
INDEXES: list[tuple[str, Any, tuple[int | None, ...]]] = [
    ("a B-tree", "earliest", (None, 400)),
    ("a fixed array", "latest", (600, 400)),
    ("an extensible array", "latest", (None, 400)),
    ("a B-tree of version 2", "latest", (None, None)),
]


@pytest.mark.parametrize(("index", "version", "shape_max"), INDEXES)
def test_the_parts_of_a_chunk_index_are_requested_many_at_once(
    tmp_path: Path, server: FileServer, index: str, version: Any, shape_max: Any
) -> None:
    values = np.arange(600 * 400.0).reshape(600, 400)
    # Chunks of another dataset separate the parts of the index.
    with h5py.File(tmp_path / "a.h5", "w", libver=version) as file:
        filler = file.create_dataset("filler", (600, 20_000), "u1", chunks=(4, 20_000))
        data = file.create_dataset("t", (600, 400), "f8", chunks=(1, 10), maxshape=shape_max)
        for start in range(0, 600, 4):
            data[start : start + 4] = values[start : start + 4]
            filler[start : start + 4] = 1
    store = bf.open(server.url("a.h5"), cache=0)
    server.seconds = 0.02
    server.most_at_once = 0
    assert store["t"][577, 123] == values[577, 123]
    assert server.most_at_once >= 3, f"{index}: the read of one element waits for no others"
    server.seconds = 0.0
    np.testing.assert_array_equal(store["t"][...], values)
    np.testing.assert_array_equal(bf.open(tmp_path / "a.h5")["t"][...], values)


def test_a_file_is_opened_at_a_url_with_a_query_which_goes_with_each_request(
    tmp_path: Path, server: FileServer
) -> None:
    expected = dataset()
    expected.to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED, "u": CHUNKED}, engine="netcdf4")
    (tmp_path / "get").write_bytes((tmp_path / "a.nc").read_bytes())
    server.query = "token=secret/x&y=%2F"
    for name in ("a.nc", "get"):
        url = f"{server.url(name)}?{server.query}"
        store = bf.open(url)
        np.testing.assert_array_equal(store["t"][:, 3, 4], expected["t"].values[:, 3, 4])
        again = pickle.loads(pickle.dumps(store))  # noqa: S301 - made here
        np.testing.assert_array_equal(again["u"][5], expected["u"].values[5])
        assert "secret" not in f"{store!r} {store['t']!r} {store.info()}"
        found = xr.open_dataset(f"{url}#mode=bytes", engine="bedform")
        xr.testing.assert_identical(found.load(), expected)
    assert all(path.endswith(f"?{server.query}") for _, path, _ in server.asked)
    with pytest.raises(bf.BedformError, match=r"a\.nc") as raised:
        bf.open(f"{server.url('a.nc')}?token=secret")
    assert "secret" not in str(raised.value)
    with pytest.raises(bf.NotFoundError, match=r"b\.nc") as raised:
        bf.open(f"{server.url('b.nc')}?{server.query}")
    assert "secret" not in str(raised.value)


def test_two_files_that_differ_in_their_queries_alone_share_no_cached_chunks(
    tmp_path: Path, server: FileServer
) -> None:
    server.has_tags = False
    for name, value in (("a", 1.0), ("b", 2.0)):
        with h5py.File(tmp_path / name, "w") as file:
            file["v"] = np.full((50, 60), value)
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    server.names_by_query = True
    found = [bf.open(f"{server.url('get')}?{name}")["v"][...] for name in "ab"]
    assert [values.max() for values in found] == [1.0, 2.0]


@pytest.mark.parametrize("status", [403, 405, 501])
def test_a_server_that_refuses_head_is_asked_for_the_size_by_a_range(
    tmp_path: Path, server: FileServer, status: int
) -> None:
    expected = dataset()
    for name in ("a.nc", "results.bin"):
        expected.to_netcdf(tmp_path / name, encoding={"t": CHUNKED}, engine="netcdf4")
    server.head_status = status
    server.has_suffixes = False
    for name in ("a.nc", "results.bin"):
        store = bf.open(server.url(name), freshness="read")
        np.testing.assert_array_equal(store["t"][:, 3, 4], expected["t"].values[:, 3, 4])
    assert any(method == "HEAD" for method, _, _ in server.asked)


def test_a_server_without_ranges_is_named_with_what_to_do(
    tmp_path: Path, server: FileServer
) -> None:
    dataset().to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED}, engine="netcdf4")
    server.has_parts = False
    with pytest.raises(bf.BedformError, match="copy it to this machine") as raised:
        bf.convert(server.url("a.nc"), tmp_path / "a.zarr")
    said = str(raised.value)
    assert server.url("a.nc") in said
    assert "\n" not in said
    assert "a.zarr" not in said
    with pytest.raises(bf.BedformError, match="copy it to this machine") as raised:
        bf.open(server.url("a.nc"))["t"][...]
    assert server.url("a.nc") in str(raised.value)


@pytest.mark.parametrize("has_tags", [True, False])
def test_a_file_that_became_shorter_is_a_conflict(
    tmp_path: Path, server: FileServer, has_tags: bool
) -> None:
    dataset().to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED, "u": CHUNKED}, engine="netcdf4")
    server.has_tags = has_tags
    server.checks_tags = False
    store = bf.open(server.url("a.nc"), cache=0)
    assert store["u"][0, 0, 0] == dataset()["u"].values[0, 0, 0]
    os.truncate(tmp_path / "a.nc", 1000)
    with pytest.raises(bf.ConflictError, match=r"a\.nc"):
        store["u"][...]


def test_reads_of_a_file_at_a_url_are_explained_by_a_profile_of_servers(
    tmp_path: Path, server: FileServer
) -> None:
    dataset().to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED}, engine="netcdf4")
    explained = bf.open(server.url("a.nc"))["t"].explain(np.s_[:, 3, 4])
    assert "an object store" in str(explained)


def test_groups_attributes_and_links_within_a_file_at_a_url_are_those_of_the_file(
    tmp_path: Path, server: FileServer
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["title"] = "one"
        group = file.create_group("g/h")
        group.attrs["n"] = 7
        group["x"] = np.arange(12).reshape(3, 4)
        file["soft"] = h5py.SoftLink("/g/h/x")
    store = bf.open(server.url("a.h5"))
    local = bf.open(tmp_path / "a.h5")
    assert sorted(store.arrays()) == sorted(local.arrays())
    assert sorted(store.groups()) == ["g", "g/h"]
    assert store.attributes == local.attributes
    np.testing.assert_array_equal(store["soft"][1:, ::2], [[4, 6], [8, 10]])


def test_what_is_no_such_file_or_not_there_is_said_in_one_line(
    tmp_path: Path, server: FileServer
) -> None:
    (tmp_path / "grib.nc").write_bytes(b"GRIB" + bytes(100))
    (tmp_path / "empty.nc").write_bytes(b"")
    dataset().to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    cut = (tmp_path / "a.nc").read_bytes()[:3000]
    (tmp_path / "cut.nc").write_bytes(cut)
    for name, kind, words in [
        ("missing.nc", bf.NotFoundError, "missing.nc"),
        ("missing", bf.NotFoundError, "not a Zarr store"),
        ("grib.nc", bf.UnsupportedError, "a GRIB file: convert it to NetCDF first"),
        ("empty.nc", bf.UnsupportedError, "empty"),
        ("cut.nc", bf.CorruptError, "cut.nc"),
    ]:
        with pytest.raises(kind, match=words) as raised:
            bf.open(server.url(name))
        assert "\n" not in str(raised.value)
    with pytest.raises(bf.BedformError, match="HTTP servers are only read"):
        bf.open(server.url("a.nc"), "r+")


def test_a_file_that_is_replaced_is_a_conflict_and_never_other_bytes(
    tmp_path: Path, server: FileServer
) -> None:
    dataset(1).to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED}, engine="netcdf4")
    store = bf.open(server.url("a.nc"), cache=0)
    before = store["t"][0]
    dataset(2).to_netcdf(tmp_path / "b.nc", encoding={"t": CHUNKED}, engine="netcdf4")
    (tmp_path / "b.nc").replace(tmp_path / "a.nc")
    with pytest.raises(bf.ConflictError, match=r"a\.nc"):
        store["t"][0]
    assert not np.array_equal(bf.open(server.url("a.nc"))["t"][0], before)


def test_without_tags_a_file_of_the_same_size_is_told_by_its_time(
    tmp_path: Path, server: FileServer
) -> None:
    server.has_tags = False

    def put(order: str, time: int) -> None:
        with h5py.File(tmp_path / "new.h5", "w") as file:
            for name in order:
                file[name] = np.full((200, 300), ord(name))
        os.utime(tmp_path / "new.h5", (time, time))
        (tmp_path / "new.h5").replace(tmp_path / "a.h5")

    put("vw", 1_000_000_000)
    array = bf.open(server.url("a.h5"), cache=0)["v"]
    assert (array[:3] == ord("v")).all()
    put("wv", 1_000_000_001)
    with pytest.raises(bf.ConflictError, match=r"a\.h5"):
        array[...]


TEXT_LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("in chunks", {"chunks": (7, 4), "compression": "gzip"}),
    ("whole", {}),
]


@pytest.mark.parametrize(("layout", "options"), TEXT_LAYOUTS)
def test_texts_of_any_length_are_read_at_a_url_as_from_a_disk(
    tmp_path: Path, server: FileServer, layout: str, options: Any
) -> None:
    words = ["", "a", "\u00e4\u00f6", "long " * 3000, "x" * 100]
    texts = np.array([words[n % 5] + str(n % 3) for n in range(200)], object).reshape(20, 10)
    texts[3, :] = ""
    kind = h5py.string_dtype()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=texts, dtype=kind, **options)
        file.create_dataset("unwritten", (3, 2), kind, chunks=(1, 2) if options else None)
        file.create_dataset("filled", (30,), kind, chunks=(10,), fillvalue="none")[3:5] = "x"
        file.create_dataset("one", data="only", dtype=kind)
        file.create_dataset("bytes", data=[b"a\xff", b"b"], dtype=h5py.string_dtype("ascii"))
    store, local = bf.open(server.url("a.h5")), bf.open(tmp_path / "a.h5")
    assert (store["t"][...] == texts).all(), layout
    for selection in (np.s_[3:17:4, ::2], np.s_[5], np.s_[..., -1], np.s_[4:4]):
        np.testing.assert_array_equal(store["t"][selection], texts[selection])
    assert store["t"][2, 2] == texts[2, 2]
    np.testing.assert_array_equal(store["t"].oindex[[5, 1], [3, 3, 0]], texts[[5, 1]][:, [3, 3, 0]])
    np.testing.assert_array_equal(store["t"].vindex[[5, 1], [3, 0]], texts[[5, 1], [3, 0]])
    with pytest.warns(bf.NativeReadWarning) as warned:
        for name in ("unwritten", "filled", "one", "bytes"):
            np.testing.assert_array_equal(store[name][...], local[name][...])
    assert len(warned) == 1
    assert store["one"][()] == "only"
    assert store["filled"][:12].tolist() == ["none"] * 3 + ["x"] * 2 + ["none"] * 7
    bf.convert(server.url("a.h5"), tmp_path / "a.zarr", exclude=["bytes"])
    assert (bf.open(tmp_path / "a.zarr")["t"][...] == texts).all()


def test_texts_at_a_url_are_those_that_xarray_reads(tmp_path: Path, server: FileServer) -> None:
    expected = xr.Dataset(
        {"name": ("n", np.array(["one", "", "three"], object)), "x": ("n", [1, 2, 3])}
    )
    expected.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    found = xr.open_dataset(server.url("a.nc"), engine="bedform").load()
    with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4") as wanted:
        xr.testing.assert_equal(found, wanted.load())


def test_the_heaps_of_texts_are_requested_many_at_once(tmp_path: Path, server: FileServer) -> None:
    texts = np.array([f"{n}" * 700 for n in range(3000)], object)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("t", (3000,), h5py.string_dtype(), chunks=(100,))
        filler = file.create_dataset("filler", (300, 20_000), "u1", chunks=(1, 20_000))
        for start in range(0, 3000, 10):
            data[start : start + 10] = texts[start : start + 10]
            filler[start // 10] = 1
    store = bf.open(server.url("a.h5"))
    server.asked.clear()
    server.seconds = 0.01
    assert (store["t"][1500:1600] == texts[1500:1600]).all()
    assert server.most_at_once >= 3


@pytest.mark.parametrize("place", [16, 24, 4, 28])
def test_damaged_texts_are_an_error_and_no_other_text(
    tmp_path: Path, server: FileServer, place: int
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=["first", "second", "third"], dtype=h5py.string_dtype())
        at = file["t"].id.get_offset()
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[at + place : at + place + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises((bf.CorruptError, bf.LimitExceededError), match=r"a\.h5"):
        bf.open(server.url("a.h5"))["t"][...]


def test_what_only_the_library_reads_says_so(tmp_path: Path, server: FileServer) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("n", 2)
        kind = file.createVLType("i4", "several")
        file.createVariable("v", kind, ("n",))[:] = np.array(
            [np.arange(3, dtype="i4"), np.arange(1, dtype="i4")], dtype=object
        )
        file.createVariable("x", "f8", ("n",))[:] = [1, 2]
    store = bf.open(server.url("a.nc"))
    np.testing.assert_array_equal(store["x"][:], [1, 2])
    with pytest.raises(bf.UnsupportedError, match="copy it to this machine"):
        store["v"][:]


def test_a_store_on_a_web_server_is_converted(tmp_path: Path, server: FileServer) -> None:
    values = np.arange(60.0).reshape(3, 20)
    bf.create(tmp_path / "a.zarr").create_array("t", data=values)
    bf.convert(server.url("a.zarr"), tmp_path / "b.zarr")
    np.testing.assert_array_equal(bf.open(tmp_path / "b.zarr")["t"][...], values)


def test_the_command_line_takes_urls_of_files(tmp_path: Path, server: FileServer) -> None:

    expected = dataset()
    expected.to_netcdf(tmp_path / "a.nc", encoding={"t": CHUNKED}, engine="netcdf4")

    def run(*arguments: str) -> str:
        command = [*command_line(), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "netcdf4" in run("info", server.url("a.nc"))
    run("convert", server.url("a.nc"), str(tmp_path / "a.zarr"))
    np.testing.assert_array_equal(bf.open(tmp_path / "a.zarr")["t"][...], expected["t"].values)
