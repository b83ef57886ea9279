"""Messages for frequent mistakes: each contains a remedy."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the working directory, with a store, a file and some unrelated files."""
    monkeypatch.chdir(tmp_path)
    times = pd.date_range("2001-01-01", periods=3)
    dataset = xr.Dataset({"t": ("time", [1.0, 2.0, 3.0], {"units": "K"})}, {"time": times})
    bf.write_dataset(dataset, "run.zarr")
    Path("years").mkdir()
    for year in (2001, 2002):
        with h5py.File(f"years/{year}.nc", "w") as file:
            file["t"] = np.arange(3)
    zarr.create_array("alone.zarr", shape=(4,), dtype="i4")
    Path("refs.json").write_text(json.dumps({"version": 1, "refs": {".zgroup": "{}"}}))
    for name in ("refs", "snapshots", "manifests"):
        Path("ice", name).mkdir(parents=True)
    Path("refs.parq").mkdir()
    Path("refs.parq/.zmetadata").write_text("{}")
    return tmp_path


def said(error: type[Exception], call: Callable[[], Any]) -> str:
    """The message of an error, which is one line."""
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, bf.BedformError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_date_in_brackets_is_told_how_xarray_looks_it_up(place: Path) -> None:
    t = bf.open("run.zarr")["t"]
    for key, label in (
        ("2001-01-02", "'2001-01-02'"),
        (np.datetime64("2001-01-02"), "'2001-01-02'"),
        (dt.date(2001, 1, 2), "'2001-01-02'"),
        (pd.Timestamp("2001-01-02"), "'2001-01-02 00:00:00'"),
        (slice("2001-01-02", None), "slice('2001-01-02', None, None)"),
        ({"time": 1}, "1"),
    ):
        for use in (lambda key=key: t[key], lambda key=key: t.__setitem__(key, 1.0)):
            message = said(IndexError, use)
            advice = message.partition("coordinates: ")[2]
            assert advice == (
                f"xr.open_dataset('run.zarr', engine='bedform')['t'].sel(time={label})"
            )
            # The advised call works.
            if label != "1":
                assert eval(advice, {"xr": xr}).size > 0  # noqa: S307
    assert said(IndexError, lambda: t["units"]).endswith("attribute is t.attributes['units']")


def test_a_pattern_a_list_and_a_directory_of_files_are_told_who_joins_them(place: Path) -> None:
    is_not_clear = "say along which one they are joined, with concat_dim"
    for call, error, expected in (
        (lambda: bf.open("years/*.nc"), ValueError, is_not_clear),
        (lambda: bf.open("years/[0-9]*.h5"), FileNotFoundError, "check the pattern"),
        (lambda: bf.open("years"), NotImplementedError, "bf.open('years/*.nc') joins them"),
        (lambda: bf.open(["years/2001.nc", "years/2002.nc"]), ValueError, is_not_clear),
        (lambda: xr.open_dataset(["a.nc"], engine="bedform"), FileNotFoundError, "a.nc"),
    ):
        assert expected in said(error, call)
    new = said(ValueError, lambda: bf.open("years/*.nc", concat_dim="year"))
    assert new.endswith("along a new one xr.open_mfdataset joins files")
    assert "a directory with 2 NetCDF or HDF5 files" in said(
        NotImplementedError, lambda: bf.open("years")
    )
    paths = sorted(Path("years").glob("*.nc"))
    joined = xr.open_mfdataset(paths, engine="bedform", combine="nested", concat_dim="year")
    assert joined["t"].values.tolist() == [[0, 1, 2], [0, 1, 2]]
    Path("runs").mkdir()
    bf.create("runs/first.zarr")
    assert said(NotImplementedError, lambda: bf.open("runs")).endswith("open runs/first.zarr")


def test_archives_are_told_what_reads_them(place: Path) -> None:
    Path("x.zip").write_bytes(b"PK\x03\x04" + bytes(40))
    assert "ZIP files are not read; unpack it" in said(
        NotImplementedError, lambda: bf.open("x.zip")
    )


def test_a_virtual_data_set_is_not_written(place: Path) -> None:
    class ManifestArray:
        shape, dtype, ndim = (3,), np.dtype("f4"), 1

        def __array_function__(self, *_: Any) -> Any:
            raise NotImplementedError

        def __array_ufunc__(self, *_: Any) -> Any:
            raise NotImplementedError

    ManifestArray.__module__ = "virtualizarr.manifests"
    dataset = xr.Dataset({"v": ("x", ManifestArray())})
    message = said(NotImplementedError, lambda: bf.write_dataset(dataset, "v.zarr"))
    assert message.startswith("'v' is virtual, it names parts of files")
    assert not Path("v.zarr").exists()


def test_a_typing_error_in_a_path_names_what_lies_there(place: Path) -> None:
    assert said(FileNotFoundError, lambda: bf.open("rum.zarr")) == (
        "rum.zarr: no such file or store; did you mean run.zarr?"
    )
    assert said(FileNotFoundError, lambda: bf.open("years/2010.nc")).endswith(
        "did you mean years/2002.nc or years/2001.nc?"
    )
    assert said(FileNotFoundError, lambda: bf.open("nothing/alike")).endswith("; check the path")


def test_commands_in_messages_can_be_pasted_into_a_shell(place: Path) -> None:
    odd = Path("it's $5 run.nc")
    Path("years/2001.nc").rename(odd)
    for call in (lambda: bf.learn(odd), lambda: bf.optimize(odd)):
        message = said(bf.NotFoundError, call)
        command = re.search(r"'(bedform watch .*?)'(?:,| turns)", message)
        assert command is not None, message
        assert shlex.split(command[1]) == ["bedform", "watch", str(odd)]
    near = said(bf.NotFoundError, lambda: bf.open("it's $5 rum.nc"))
    assert shlex.split(near.partition("did you mean ")[2].removesuffix("?")) == [str(odd)]
    Path("years/2002.nc").rename("a year.nc")
    assert said(bf.NotFoundError, lambda: bf.open("a yeer.nc")).endswith(
        'did you mean "a year.nc"?'
    )


def test_commands_on_many_files_name_the_pattern_and_calls_the_list(place: Path) -> None:
    pattern, paths = "years/*.nc", ["years/2001.nc", "years/2002.nc"]
    learnt = said(bf.NotFoundError, lambda: bf.learn(pattern))
    assert "'bedform watch \"years/*.nc\"' turns it on" in learnt
    assert "bf.watch(paths) turns it on" in said(bf.NotFoundError, lambda: bf.learn(paths))
    # The engine has the files alone.
    optimized = said(bf.NotFoundError, lambda: bf.optimize(paths, concat_dim="phony_dim_0"))
    assert "'bedform watch' of the same pattern or list" in optimized
    refused = said(bf.InvalidArgumentError, lambda: bf.convert(paths, "all.nc"))
    assert "choose a name such as all.zarr" in refused
    assert "and 1 more" not in refused


def test_a_group_that_is_no_text_is_told_what_names_one(place: Path) -> None:
    for group in ((1, 2, 3), ["a"], 0, (), b"a"):
        for opening in (xr.open_dataset, xr.open_datatree):
            message = said(
                bf.WrongTypeError,
                lambda group=group, opening=opening: opening(
                    "years/2001.nc", engine="bedform", group=group
                ),
            )
            assert message.startswith(
                "group must be the path of one group as text, such as 'forecast/surface', not "
            )
            assert repr(group) in message


def test_writing_to_a_file_is_told_to_convert_it(place: Path) -> None:
    path = "years/2001.nc"
    file = bf.open(path)
    for call in (
        lambda: bf.open(path, "r+"),
        lambda: file["t"].__setitem__(0, 1),
        lambda: file["t"].oindex.__setitem__([0], 1),
        lambda: file["t"].blocks.__setitem__(0, 1),
        lambda: file.create_array("new", (3,), "f4"),
        lambda: file.__setitem__("new", [1]),
        lambda: file.__delitem__("t"),
        lambda: file.attributes.update(a=1),
        lambda: file.require_group("g"),
        lambda: file.session(),
    ):
        message = said(PermissionError, call)
        assert "years/2001.nc: foreign files are never written; convert it" in message
        assert "bf.convert('years/2001.nc', 'years/2001.zarr')" in message
    bf.convert("years/2001.nc", "years/2001.zarr")
    bf.open("years/2001.zarr", "r+")["t"][0] = 1


def test_a_store_under_the_name_of_a_file_is_told_how_files_are_written(place: Path) -> None:
    assert said(ValueError, lambda: bf.convert("run.zarr", "run.nc")) == (
        "run.nc: convert makes Zarr stores, not files: bf.open('run.zarr').export('run.nc')"
    )
    assert said(ValueError, lambda: bf.convert("years/2001.nc", "y.h5")) == (
        "y.h5: convert makes Zarr stores, not files: convert to y.zarr, and then "
        "bf.open('y.zarr').export('y.h5')"
    )
    dataset = xr.Dataset({"t": ("x", [1])})
    for call in (lambda: bf.create("new.nc"), lambda: bf.write_dataset(dataset, "new.nc")):
        assert "makes a Zarr store, which is a directory: choose a name such as new.zarr" in said(
            ValueError, call
        )
    assert not Path("new.nc").exists()
    bf.open("run.zarr").export("run.nc")
    assert bf.open("run.nc")["t"][...].tolist() == [1, 2, 3]


def test_a_place_that_is_a_single_array_is_read_as_one_and_shown_how_xarray_reads_it(
    place: Path,
) -> None:
    alone = bf.open("alone.zarr")
    assert alone[:].tolist() == [0, 0, 0, 0]
    message = said(Exception, lambda: alone["2001-01-01"])
    assert "xr.open_dataset('alone.zarr', engine='bedform')['alone'].sel(" in message
    assert message.startswith("alone[] takes positions")


@pytest.mark.parametrize("mode", ["w", "w-", "x", "a", "rw", None])
def test_modes_of_other_libraries_are_told_which_calls_they_are(place: Path, mode: Any) -> None:
    message = said(ValueError, lambda: bf.open("run.zarr", mode))
    assert message.startswith(f"mode must be 'r' or 'r+', not {mode!r}; ")
    assert "bf.create(path) makes" in message


def test_objects_that_have_a_path_are_opened_by_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place))
    url = f"file://{place}/run%2Ezarr"
    stores = (
        Path("run.zarr"), os.fsencode(place / "run.zarr"), "~/run.zarr", url,
        f"file://localhost{place}/run.zarr",
        zarr.storage.LocalStore("run.zarr"), zarr.open_group("run.zarr", mode="r"),
        zarr.storage.FsspecStore.from_url(f"file://{place}/run.zarr"),
        fsspec.get_mapper("run.zarr"), bf.open("run.zarr"),
    )  # fmt: skip
    for given in stores:
        assert bf.open(given)["t"][...].tolist() == [1, 2, 3], given
    path = "years/2001.nc"
    with (
        Path(path).open("rb") as plain,
        fsspec.open(path) as handle,
        fsspec.filesystem("file").open(path) as other,
    ):
        for given in (plain, handle, other, fsspec.open(path), Path(path)):
            assert bf.open(given)["t"][...].tolist() == [0, 1, 2], given
    bf.convert(Path(path), "~/converted.zarr")
    assert (place / "converted.zarr").is_dir()
    bf.create("~/created.zarr")
    assert (place / "created.zarr").is_dir()


def test_objects_without_a_path_are_told_what_to_give(place: Path) -> None:
    memory = fsspec.filesystem("memory")
    for given, expected in (
        (io.BytesIO(b"x"), "this _io.BytesIO has none: write it to a file first"),
        (zarr.storage.MemoryStore(), "has none that Bedform reads: give a directory, or an s3://"),
        (memory.get_mapper("/x"), "has none that Bedform reads"),
        (xr.Dataset(), "dataset.bedform.write(path) writes one"),
        ({}, "not a dictionary"),
        (None, "path must be a path or URL, not None"),
        (7, "path must be a path or URL, not 7"),
    ):
        assert expected in said(TypeError, lambda given=given: bf.open(given))
    assert "file:///path" in said(ValueError, lambda: bf.open("file://host/run.zarr"))


def test_a_mapper_of_a_server_is_opened_by_its_url(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bedform._location import location

    class Server:
        protocol = ("s3", "s3a")

    mapper = fsspec.get_mapper("run.zarr")
    mapper.fs, mapper.root = Server(), "bucket/run.zarr"
    assert location(mapper) == "s3://bucket/run.zarr"
