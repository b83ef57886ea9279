"""Many foreign files as one: against NumPy's concatenate and xarray's open_mfdataset."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from support import ENVIRONMENT, command_line, fewer_examples

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

Y, X = 4, 5
#: Records of each file, with those of none and one among them.
LENGTHS = [3, 1, 0, 4, 2, 3]
FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4"]


def write(
    path: Path,
    start: int,
    length: int,
    *,
    form: str = "NETCDF4",
    chunks: tuple[int, ...] | None = None,
    **changes: Any,
) -> npt.NDArray[Any]:
    """A file of `length` steps from `start` on; gives its values of ``t``."""
    units = changes.get("units", "days since 2000-01-01")
    dtype = changes.get("dtype", "f4")
    width = changes.get("width", X)
    values: npt.NDArray[Any] = np.arange(length * Y * width).reshape(length, Y, width)
    values = (values + 1000 * start).astype(dtype)
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, size in [("time", None), ("y", Y), ("x", width)]:
            file.createDimension(name, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = units
        time[:] = np.arange(start, start + length)
        stored: dict[str, Any] = {}
        endian = changes.get("endian", "little")
        if form == "NETCDF4":
            stored = {"zlib": changes.get("zlib", True), "chunksizes": chunks or (2, 3, 2)}
            stored |= {"endian": endian}
        order = ">" if endian == "big" else "<"
        t = file.createVariable("t", f"{order}{dtype}", ("time", "y", "x"), **stored)
        t.scale_factor = np.float32(changes.get("scale", 0.5))
        t.set_auto_maskandscale(False)
        t[:] = values
        file.createVariable("y", "f8", ("y",))[:] = np.arange(Y) + changes.get("offset", 0)
        if "extra" in changes:
            file.createVariable(changes["extra"], "f4", ("time",))[:] = 0
    return values


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], npt.NDArray[Any]]:
    """Files of all formats, with different chunks, codecs and byte orders, and all values of t."""
    directory = tmp_path_factory.mktemp("archive")
    paths, values, start = [], [], 0
    shapes = [(2, 3, 2), (1, 4, 5), (3, 1, 5)]
    for number, length in enumerate(LENGTHS):
        path = directory / f"t{number}.nc"
        form = FORMATS[number % 4] if number < 4 else "NETCDF4"
        how: dict[str, Any] = {"chunks": shapes[number % 3], "zlib": number % 2 == 0}
        how["endian"] = "big" if number == 5 else "little"
        values.append(write(path, start, length, form=form, **how))
        paths.append(path)
        start += length
    return paths, np.concatenate(values)


def said(error: type[BaseException], call: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert "\n" not in message
    return message


def keys(size: int) -> st.SearchStrategy[Any]:
    """A selection along an axis."""
    whole = st.integers(-size, size)
    step = st.integers(-3, 3).filter(bool)
    positions = st.lists(st.integers(-size, size - 1), max_size=8)
    return st.one_of(
        st.builds(slice, whole, whole, step),
        st.integers(-size, size - 1),
        positions.map(lambda found: np.array(found, int)),
        st.lists(st.booleans(), min_size=size, max_size=size).map(np.array),
    )


def outer(values: npt.NDArray[Any], key: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Orthogonal indexing, one axis after the other from the last."""
    for axis in reversed(range(len(key))):
        values = values[(*([slice(None)] * axis), key[axis])]
    return values


@fewer_examples(3)
@given(key=st.tuples(keys(sum(LENGTHS)), keys(Y), keys(X)))
def test_selections_are_those_of_the_concatenation(
    files: tuple[list[Path], npt.NDArray[Any]], key: tuple[Any, ...]
) -> None:
    paths, values = files
    with bf.open(paths) as archive:
        found = archive["t"].oindex[key]
    np.testing.assert_array_equal(found, outer(values, key))


@fewer_examples(3)
@given(points=st.lists(st.tuples(*(st.integers(0, n - 1) for n in (sum(LENGTHS), Y, X)))))
def test_points_are_those_of_the_concatenation(
    files: tuple[list[Path], npt.NDArray[Any]], points: list[tuple[int, int, int]]
) -> None:
    paths, values = files
    key = tuple(np.array(axis, int) for axis in zip(*points, strict=True)) if points else None
    key = key or tuple(np.zeros(0, int) for _ in range(3))
    with bf.open(paths) as archive:
        np.testing.assert_array_equal(archive["t"].vindex[key], values[key])


def test_files_of_all_formats_are_the_data_set_that_xarray_joins(
    files: tuple[list[Path], npt.NDArray[Any]],
) -> None:
    paths, _ = files
    options: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal"}
    options |= {"coords": "minimal", "compat": "override", "engine": "netcdf4"}
    with xr.open_mfdataset(paths, **options) as joined:
        expected = joined.load()
    found = xr.open_dataset(paths, engine="bedform")
    xr.testing.assert_identical(expected, found.load())
    again = xr.open_dataset(paths, engine="bedform", concat_dim="time")
    xr.testing.assert_identical(expected, pickle.loads(pickle.dumps(again)).load())  # noqa: S301
    assert found["t"].encoding["original_shape"] == (sum(LENGTHS), Y, X)
    pattern = str(paths[0].parent / "t*.nc")
    xr.testing.assert_identical(expected, xr.open_dataset(pattern, engine="bedform").load())
    blocks = xr.open_dataset(paths, engine="bedform", chunks={"time": 5})
    xr.testing.assert_identical(expected, blocks.compute(scheduler="threads"))


def test_archives_of_two_pickles_are_closed_each_for_itself(
    files: tuple[list[Path], npt.NDArray[Any]],
) -> None:
    paths, values = files
    with bf.open(paths) as archive:
        one, other = (pickle.loads(pickle.dumps(archive)) for _ in range(2))  # noqa: S301
    one.close()
    assert (bool(one), bool(other)) == (False, True)
    np.testing.assert_array_equal(other["t"][...], values)
    with pytest.raises(bf.InvalidArgumentError, match="closed"):
        one["t"]
    # One handle serves all of them: each variable pickles with all paths.
    assert pickle.loads(pickle.dumps(other))._opened is other._opened  # noqa: S301


def test_names_are_sorted_as_people_count(tmp_path: Path) -> None:
    for start in (0, 2, 10):
        write(tmp_path / f"t{start}.nc", start, 2)
    (tmp_path / "t0.nc.bedform").mkdir()
    with bf.open(str(tmp_path / "t*")) as archive:
        assert [Path(path).name for path in archive.paths] == ["t0.nc", "t2.nc", "t10.nc"]
        assert archive["time"][:].tolist() == [0, 1, 2, 3, 10, 11]
        assert archive.concat_dim == "time"
        assert archive.info()["files"] == 3
    assert "no file has such a name" in said(
        FileNotFoundError, lambda: bf.open(str(tmp_path / "u*.nc"))
    )


def test_a_file_whose_name_is_a_pattern_is_opened_by_it(tmp_path: Path) -> None:
    write(tmp_path / "t[1].nc", 0, 2)
    with bf.open(tmp_path / "t[1].nc") as file:
        assert isinstance(file, bf.ForeignStore)
        assert file["t"].shape == (2, Y, X)


def test_the_first_file_that_does_not_fit_is_named_and_how(tmp_path: Path) -> None:
    names = [tmp_path / f"{name}.nc" for name in "abc"]
    for changes, expected in (
        ({"width": X + 1}, '"t" has 6 along x, in {a} 5'),
        ({"dtype": "f8"}, '"t" holds float64, in {a} float32'),
        ({"units": "hours since 2000-01-01"}, '"time" goes from 0.083'),
        ({"units": "days"}, '"time" has the attribute units "days"'),
        ({"scale": 2.0}, '"t" has the attribute scale_factor 2.0, in {a} 0.5'),
        ({"extra": "new"}, 'has a variable "new", which {a} lacks'),
    ):
        write(names[0], 0, 2)
        write(names[1], 2, 2, **changes)
        write(names[2], 4, 2, **changes)
        message = said(ValueError, lambda: bf.open(names, concat_dim="time"))
        assert message.startswith(f"{names[1]}: "), message
        assert expected.format(a=names[0]) in message
    write(names[0], 0, 2, extra="new")
    write(names[1], 2, 2)
    message = said(ValueError, lambda: bf.open(names[:2]))
    assert message == f'{names[1]}: has no variable "new", which {names[0]} has'


def test_coordinates_are_those_of_the_first_file_where_they_are_not_compared(
    tmp_path: Path,
) -> None:
    paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
    write(paths[0], 0, 2)
    write(paths[1], 2, 2, offset=7)
    assert '"y" is 7.0 at position 0' in said(ValueError, lambda: bf.open(paths))
    with bf.open(paths, compat="override") as archive:
        assert archive["y"][:].tolist() == list(range(Y))


def test_without_labels_the_dimension_is_the_one_in_which_files_differ(tmp_path: Path) -> None:
    def plain(name: str, **sizes: int) -> Path:
        data = np.arange(np.prod([*sizes.values()])).reshape([*sizes.values()])
        xr.Dataset({"t": (tuple(sizes), data)}).to_netcdf(tmp_path / name)
        return tmp_path / name

    a, b = plain("a.nc", time=2, x=3), plain("b.nc", time=2, x=4)
    with bf.open([a, b]) as archive:
        assert archive["t"].shape == (2, 7)
    same = plain("same.nc", time=2, x=3)
    message = said(ValueError, lambda: bf.open([a, same]))
    assert "differ in no dimension and none can grow: say along which one" in message
    with bf.open([a, same], concat_dim="time") as archive:
        assert archive["t"].shape == (4, 3)
    other = plain("other.nc", time=5, x=5)
    assert "the files differ in time, x" in said(ValueError, lambda: bf.open([a, other]))
    message = said(ValueError, lambda: bf.open([a, b], concat_dim="z"))
    assert 'no variable has the dimension "z"; they have time, x' in message


# Files take longest to write.
@fewer_examples(5)
@given(data=st.data())
def test_any_axis_may_be_the_joined_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("axis")
    axis = data.draw(st.integers(0, 2))
    parts, paths = [], []
    for number in range(data.draw(st.integers(1, 4))):
        shape = [3, 4, 2]
        shape[axis] = data.draw(st.integers(1, 4))
        parts.append(np.arange(np.prod(shape)).reshape(shape) + 100 * number)
        paths.append(directory / f"{number}.nc")
        data_set = xr.Dataset({"t": (("a", "b", "c"), parts[-1].astype("i4"))})
        data_set.to_netcdf(paths[-1], format="NETCDF3_64BIT" if number % 2 else "NETCDF4")
    values = np.concatenate(parts, axis)
    key = data.draw(st.tuples(*map(keys, values.shape)))
    with bf.open(paths, concat_dim="abc"[axis]) as archive:
        np.testing.assert_array_equal(archive["t"].oindex[key], outer(values, key))
        np.testing.assert_array_equal(archive["t"][...], values)


def test_what_cannot_be_joined_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write(path, 0, 2)
    bf.create(tmp_path / "s.zarr")
    for paths, error, expected in (
        ([], ValueError, "the list of paths is empty"),
        ([path, tmp_path / "s.zarr"], NotImplementedError, "a Zarr store is opened by itself"),
        ([path, tmp_path / "missing.nc"], FileNotFoundError, "missing.nc"),
        ([path, "https://host/a.nc"], NotImplementedError, "only files of this machine"),
    ):
        assert expected in said(error, lambda paths=paths: bf.open(paths))
    (tmp_path / "text.nc").write_text("no data")
    assert "not a NetCDF or HDF5 file" in said(
        NotImplementedError, lambda: bf.open([path, tmp_path / "text.nc"])
    )
    assert "never written" in said(PermissionError, lambda: bf.open([path, path], "r+"))


@pytest.mark.parametrize("freshness", ["read", "open"])
@pytest.mark.parametrize("was_read", [False, True])
def test_files_that_change_are_named_and_never_read_as_others(
    tmp_path: Path, freshness: Any, was_read: bool
) -> None:
    def opened() -> tuple[Any, list[Path]]:
        paths = [tmp_path / f"t{number}.nc" for number in range(3)]
        for number, path in enumerate(paths):
            write(path, 2 * number, 2)
        archive = bf.open(paths, freshness=freshness)
        if was_read:
            assert archive["t"].shape == archive["t"][:].shape
        return archive, paths

    sees = freshness == "read" or not was_read
    # A file grows in place, through its own library.
    archive, paths = opened()
    t = archive["t"]
    with netCDF4.Dataset(paths[1], "a") as file:
        file["t"][2:4] = 7
        file["time"][2:4] = 3.5
    if sees:
        message = said(bf.ConflictError, lambda: t[:])
        assert str(paths[1]) in message and "open the files again" in message
    with bf.open(paths, freshness=freshness) as again:
        assert again["t"].shape == (8, Y, X)
        assert (again["time"][:] == [0, 1, 2, 3, 3.5, 3.5, 4, 5]).all()
    # A file is gone.
    archive, paths = opened()
    paths[2].unlink()
    if sees:
        with pytest.raises(FileNotFoundError, match=r"t2\.nc"):
            archive["t"][:]
    # Reads of the other files still work.
    np.testing.assert_array_equal(archive["t"][0], write(tmp_path / "other.nc", 0, 2)[0])
    # A file is replaced by one of another form.
    archive, paths = opened()
    write(tmp_path / "new.nc", 0, 2, dtype="f8")
    (tmp_path / "new.nc").rename(paths[0])
    if sees:
        with pytest.raises((bf.ConflictError, ValueError), match=r"t0\.nc|t1\.nc"):
            archive["t"][:]


def test_a_file_that_was_replaced_by_one_of_the_same_shape_is_read_anew(tmp_path: Path) -> None:
    paths = [tmp_path / f"t{number}.nc" for number in range(3)]
    values = [write(path, 2 * number, 2) for number, path in enumerate(paths)]
    archive = bf.open(paths)
    t = archive["t"]
    np.testing.assert_array_equal(t[:], np.concatenate(values))
    values[1] = write(tmp_path / "new.nc", 3, 2, chunks=(1, 4, 5), zlib=False)
    (tmp_path / "new.nc").rename(paths[1])
    np.testing.assert_array_equal(t[:], np.concatenate(values))


def test_what_is_kept_of_files_is_believed_as_long_as_they_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "kept"))
    paths = [tmp_path / f"t{number}.nc" for number in range(4)]
    values = [write(path, 2 * number, 2) for number, path in enumerate(paths)]
    for _ in range(2):
        with bf.open(paths) as archive:
            np.testing.assert_array_equal(archive["t"][:], np.concatenate(values))
    (kept,) = (tmp_path / "kept").glob("*/archive")
    values[2] = write(paths[2], 4, 3)
    with bf.open(paths) as archive:
        np.testing.assert_array_equal(archive["t"][:], np.concatenate(values))
    # A damaged map is always rebuilt.
    whole = kept.read_bytes()
    for bytes_ in (whole[:-9], whole[:100] + b"x" + whole[101:], b""):
        kept.write_bytes(bytes_)
        with bf.open(paths) as archive:
            np.testing.assert_array_equal(archive["t"][:], np.concatenate(values))
        assert kept.read_bytes() == whole
    # Other files, or another order, make another archive.
    with bf.open(paths[::-1], compat="override") as archive:
        np.testing.assert_array_equal(archive["t"][:], np.concatenate(values[::-1]))
    assert kept.read_bytes() == whole
    with bf.open(paths, concat_dim="time") as archive:
        assert archive["t"].shape == (9, Y, X)


def test_variables_in_groups_and_of_one_file_come_as_they_are(tmp_path: Path) -> None:
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            scale = file.create_dataset("time", data=np.arange(2 + number) + 2 * number)
            scale.make_scale("time")
            inner = file.create_dataset(
                "g/h/v", data=np.full((2 + number, 3), number), chunks=(2, 2)
            )
            inner.dims[0].attach_scale(scale)
            file.create_dataset("words", data=["a", "bc", "", "d"])
            joined_texts = file.create_dataset("g/names", data=["n"] * (2 + number))
            joined_texts.dims[0].attach_scale(scale)
    with pytest.warns(bf.LeftOutWarning, match="'g/names': only the library"):
        archive = bf.open([tmp_path / "0.h5", tmp_path / "1.h5"], concat_dim="time")
    with archive:
        assert archive["g/h/v"][:, 1].tolist() == [0, 0, 1, 1, 1]
        with pytest.warns(bf.NativeReadWarning):
            assert archive["words"][:].tolist() == ["a", "bc", "", "d"]
        assert "which joins no files" in archive.refused()["g/names"]
        assert archive.verify() == []


def test_files_that_only_the_library_understands_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "kept"))
    for number in range(3):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            scale = file.create_dataset("time", data=np.arange(2) + 2 * number)
            scale.make_scale("time")
            data = np.full((2, 3), number)
            file.create_dataset("v", data=data, chunks=(1, 3)).dims[0].attach_scale(scale)
            if number == 1:
                # Our parser leaves files with such attributes to the library.
                odd = h5py.h5t.IEEE_F32LE.copy()
                odd.set_ebias(100)
                h5py.h5a.create(file.id, b"odd", odd, h5py.h5s.create(h5py.h5s.SCALAR))
    paths = [tmp_path / f"{number}.h5" for number in range(3)]
    for _ in range(2):
        with bf.open(paths, concat_dim="time") as archive:
            assert archive["v"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_200_files_are_read_by_a_process_that_may_open_64(tmp_path: Path) -> None:
    for number in range(200):
        write(tmp_path / f"t{number}.nc", number, 1, chunks=(1, Y, X))
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "import bedform as bf\n"
        "archive = bf.open(sys.argv[1])\n"
        "for _ in range(3):\n"
        "    assert archive['t'][:, 1, 1].tolist() == [1000.0 * at + 6 for at in range(200)]\n"
        "assert archive['t'][::-1][:, 0, 0].tolist()[0] == 199000.0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "t*.nc")],
        env={**os.environ, "BEDFORM_SIDECAR": str(tmp_path / "kept")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64


def test_3000_files_are_opened_twice_and_asked_for_their_headers_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "kept"))
    write(tmp_path / "first.nc", 0, 1, form="NETCDF3_CLASSIC")
    paths = []
    for number in range(3000):
        path = tmp_path / f"t{number}.nc"
        shutil.copyfile(tmp_path / "first.nc", path)
        paths.append(path)
    told: list[tuple[int, int]] = []
    with bf.open(paths, concat_dim="time", progress=lambda *done: told.append(done)) as archive:
        assert archive["t"].shape == (3000, Y, X)
        assert archive["t"][:, 0, 1].tolist() == [1.0] * 3000
    assert told[-1] == (3000, 3000) or told
    told.clear()
    with bf.open(paths, concat_dim="time", progress=lambda *done: told.append(done)) as archive:
        assert archive["time"][:].tolist() == [0.0] * 3000
    assert told == []


def test_opening_many_files_hears_ctrl_c(tmp_path: Path) -> None:
    write(tmp_path / "first.nc", 0, 1)
    paths = []
    for number in range(200):
        shutil.copyfile(tmp_path / "first.nc", tmp_path / f"t{number}.nc")
        paths.append(tmp_path / f"t{number}.nc")

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.open(paths, concat_dim="time", progress=interrupt)
    with bf.open(paths, concat_dim="time") as archive:
        assert archive["t"].shape == (200, Y, X)


def test_commands_take_patterns(files: tuple[list[Path], npt.NDArray[Any]], tmp_path: Path) -> None:
    paths, values = files
    pattern = str(paths[0].parent / "t*.nc")
    environment = {**ENVIRONMENT, "BEDFORM_SIDECAR": str(tmp_path / "kept")}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*command_line(), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "float32" in run("info", pattern, "--concat-dim", "time")
    assert "requests" in run("explain", pattern, "t", ":,1,1")
    run("convert", pattern, str(tmp_path / "all.zarr"), "--verify")
    np.testing.assert_array_equal(bf.open(tmp_path / "all.zarr")["t"][:], values)
    run("verify", pattern)
    run("watch", pattern)
    script = "import sys, bedform as bf\na = bf.open(sys.argv[1])\nfor at in range(8): a['t'][at]"
    subprocess.run([sys.executable, "-c", script, pattern], env=environment, check=True)
    learned = run("learn", pattern)
    assert "t" in learned and "8" in learned


def test_conversion_of_a_list_is_the_joined_data(
    files: tuple[list[Path], npt.NDArray[Any]], tmp_path: Path
) -> None:
    paths, values = files
    bf.convert(paths, tmp_path / "all.zarr", concat_dim="time", verify=True)
    store = bf.open(tmp_path / "all.zarr")
    np.testing.assert_array_equal(store["t"][:], values)
    assert store["y"][:].tolist() == list(range(Y))


def test_joined_reads_are_followed_and_read_ahead(tmp_path: Path) -> None:
    paths = []
    for number in range(30):
        write(tmp_path / f"t{number}.nc", number, 1, width=100)
        paths.append(tmp_path / f"t{number}.nc")
    with bf.open(paths) as archive:
        archive.prefetch([("t", np.s_[at]) for at in range(30)])
        for at in range(30):
            assert archive["t"][at][0, 0] == 1000 * at
        counts = archive.stats()["prefetch"]
        assert counts["reads"] == 30
        assert counts["foreseen"] > 0
