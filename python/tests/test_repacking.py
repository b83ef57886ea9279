"""`bedform advise --as`: commands and encodings that give a file the chunks for its reads."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Bedform = Callable[..., subprocess.CompletedProcess[str]]
    Advise = Callable[..., dict[str, Any]]

SHAPE = (300, 40, 60)


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    """A NetCDF-4 file of maps: packed, plain, and a small array."""
    random = np.random.default_rng(2)
    axes = np.meshgrid(*(np.linspace(0, 6, n) for n in SHAPE), indexing="ij", sparse=True)
    values = 280 + 9 * np.asarray(sum(np.sin(axis) for axis in axes)) + random.normal(0, 0.2, SHAPE)
    dims = ("time", "lat", "lon")
    dataset = xr.Dataset(
        {
            "t": (dims, values, {"units": "K"}),
            "u": (dims, values.astype("f4")),
            "v": (("lat", "lon"), values[0]),
        },
        coords={"time": np.arange(SHAPE[0])},
    )
    path = tmp_path / "my maps.nc"
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    chunks: dict[str, Any] = {"zlib": True, "chunksizes": (1, 40, 60)}
    dataset.to_netcdf(path, engine="netcdf4", encoding={"t": {**packed, **chunks}, "u": chunks})
    return path


@pytest.fixture
def advise(bedform_command: Bedform) -> Advise:
    """Runs the command and returns its JSON."""

    def advised(*arguments: object) -> dict[str, Any]:
        done = bedform_command("advise", *map(str, arguments), "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return advised


def chunks_in(path: Path) -> dict[str, tuple[int, ...]]:
    with h5py.File(path) as file:
        return {name: file[name].chunks for name in ("t", "u")}


def test_reads_are_predicted_to_be_faster_and_small_arrays_stay(maps: Path, advise: Advise) -> None:
    found = advise(maps, "--reads", "time=1", "--as", "nccopy")
    assert [one["array"] for one in found["arrays"]] == ["t", "u"]
    for one in found["arrays"]:
        assert one["changes"] and one["level"] == 4
        assert one["chunks_now"] == [1, 40, 60]
        assert one["chunks"][0] > 1
        (read,) = one["reads"]
        assert read["cold_then"] < read["cold_now"]
        assert read["cached_then"] < read["cached_now"]


def test_the_encoding_for_xarray_keeps_what_stored_values_mean(
    maps: Path, tmp_path: Path, advise: Advise, bedform_command: Bedform
) -> None:
    shown = bedform_command("advise", str(maps), "--reads", "time=1", "--as", "xarray").stdout
    code = shown.split("\n\n")[0]
    assignment = ast.parse(code).body[0]
    assert isinstance(assignment, ast.Assign)
    encoding = eval(ast.unparse(assignment.value))  # noqa: S307 - as a user would paste it
    target = tmp_path / "written.nc"
    with xr.open_dataset(maps, engine="netcdf4") as dataset:
        dataset.to_netcdf(target, engine="netcdf4", encoding=encoding)
        with xr.open_dataset(target, engine="netcdf4") as written:
            xr.testing.assert_identical(written.load(), dataset.load())
            assert written["t"].encoding["dtype"] == np.dtype("i2")
    found = advise(maps, "--reads", "time=1", "--as", "xarray")
    advised = {one["array"]: tuple(one["chunks"]) for one in found["arrays"]}
    assert chunks_in(target) == advised
    assert found["encoding"]["t"]["chunksizes"] == list(advised["t"])


@pytest.mark.parametrize("tool", ["nccopy", "h5repack"])
def test_the_command_writes_the_advised_chunks(
    maps: Path, tool: str, advise: Advise, bedform_command: Bedform
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed: apt install netcdf-bin hdf5-tools")
    found = advise(maps, "--reads", "time=1", "--as", tool)
    subprocess.run(shlex.split(found["command"]), check=True, timeout=600)
    target = maps.with_name("my maps-advised.nc")
    assert chunks_in(target) == {one["array"]: tuple(one["chunks"]) for one in found["arrays"]}
    with xr.open_dataset(maps) as before, xr.open_dataset(target) as after:
        xr.testing.assert_identical(before.load(), after.load())
    with h5py.File(target) as file:
        assert file["t"].compression_opts == 4 and file["t"].shuffle
    # The advice fits the new file.
    again = advise(target, "--reads", "time=1", "--as", tool)
    assert again["command"] is None
    assert (
        "nothing to change"
        in bedform_command("advise", str(target), "--reads", "time=1", "--as", tool).stdout
    )


def test_predicted_bytes_and_reads_are_those_of_the_new_file(
    maps: Path, tmp_path: Path, advise: Advise
) -> None:
    found = advise(maps, "u", "--reads", "time=1", "--as", "xarray")
    (one,) = found["arrays"]
    target = tmp_path / "written.nc"
    storage = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": one["chunks"]}
    with xr.open_dataset(maps) as dataset:
        dataset[["u"]].to_netcdf(target, engine="netcdf4", encoding={"u": storage})
    with bf.open(target) as written:
        array = written["u"]
        whole = array.explain(...).to_dict()
        series = array.explain(np.s_[:, 20, 30]).to_dict()
    assert one["bytes_then"] == pytest.approx(whole["bytes"], rel=0.05)
    (read,) = one["reads"]
    assert read["cached_then"] == pytest.approx(series["predicted_cached_seconds"], rel=0.1)


def test_a_command_is_pasted_whole(maps: Path, advise: Advise, bedform_command: Bedform) -> None:
    shown = bedform_command("advise", str(maps), "--reads", "time=1", "--as", "h5repack").stdout
    typed = shown.split("\n\n")[0].replace("\\\n", " ")
    assert shlex.split(typed) == shlex.split(
        advise(maps, "--reads", "time=1", "--as", "h5repack")["command"]
    )
    assert shlex.split(typed)[-2:] == [str(maps), str(maps.with_name("my maps-advised.nc"))]


def test_elements_that_do_not_compress_are_stored_as_they_are(
    tmp_path: Path, advise: Advise
) -> None:
    path = tmp_path / "noise.h5"
    with h5py.File(path, "w") as file:
        noise = np.random.default_rng(0).integers(0, 1 << 32, (500, 50, 40), dtype="u4")
        file.create_dataset("x", data=noise, chunks=(1, 50, 40))
    found = advise(path, "--reads", "phony_dim_0=1", "--as", "h5repack")
    (one,) = found["arrays"]
    assert one["level"] == 0
    assert "/x:NONE" in found["command"]


def test_a_classic_file_becomes_netcdf4_of_the_classic_model(
    maps: Path, tmp_path: Path, advise: Advise, bedform_command: Bedform
) -> None:
    path = tmp_path / "classic.nc"
    with xr.open_dataset(maps) as dataset:
        dataset[["u"]].load().to_netcdf(path, format="NETCDF3_64BIT", engine="netcdf4")
    command = advise(path, "--reads", "time=1", "--as", "nccopy")["command"]
    assert command.startswith("nccopy -k nc7 ")
    refused = bedform_command("advise", str(path), "--as", "h5repack")
    assert refused.returncode == 2 and "--as nccopy" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "cdo"), "one of nccopy, h5repack, xarray"),
        (("--as", "nccopy", "--readers", "bedform"), "--readers is for stores"),
        (("--to", "b.nc"), "--to is the new file of --as"),
        (("--as", "nccopy", "--reads", "depth=1"), "no array has dimensions of the reads"),
        (("--as", "nccopy", "--selections", "FILE"), "name it"),
    ],
)
def test_what_cannot_be_advised_is_said(
    maps: Path, arguments: tuple[str, ...], said: str, bedform_command: Bedform
) -> None:
    done = bedform_command("advise", str(maps), *arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_a_store_is_for_xarray_alone(tmp_path: Path, bedform_command: Bedform) -> None:
    store = str(tmp_path / "s.zarr")
    bf.write_dataset(xr.Dataset({"t": (("y", "x"), np.zeros((700, 700)))}), store)
    refused = bedform_command("advise", store, "--as", "nccopy")
    assert refused.returncode == 2 and "is a Zarr store" in refused.stderr
    assert bedform_command("advise", store, "--as", "xarray").returncode == 0
