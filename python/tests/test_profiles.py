"""Profiles: measurements are kept, found and named; failures to measure have reasons."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

import bedform as bf
from bedform import _internal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

SHAPE = (400, 90, 180)
DIMS = ("time", "lat", "lon")
ASSUMED = "prices from an assumed local disk: run bedform calibrate"


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of their own for the profiles of a test."""
    place = tmp_path / "profiles"
    monkeypatch.setenv("BEDFORM_PROFILES", str(place))
    monkeypatch.chdir(tmp_path)
    return place


def slow_profile() -> bf.Profile:
    """A storage so slow that layouts differ from those of a local disk."""
    document = bf.Profile.default().to_dict()
    changed = {
        "name": "the tape",
        "path": "/tape",
        "measured_at": "2026-01-31T12:00:00Z",
        "request_seconds_one": 0.5,
        "request_seconds_many": 0.25,
    }
    return bf.Profile({**document, "profile": document["profile"] | changed})


def advised(profile: bf.Profile | None) -> tuple[int, ...]:
    return bf.advise(SHAPE, "float32", dims=DIMS, profile=profile).chunks


def test_parameters_are_attributes_and_the_profile_reads_as_a_table() -> None:
    profile = bf.Profile.default()
    assert profile.request_seconds_one == pytest.approx(125e-6)
    assert "read, one stream" in str(profile)
    assert "1200 MB/s" in str(profile)
    with pytest.raises(AttributeError, match="no_such"):
        _ = profile.no_such


def test_a_profile_calls_codecs_as_info_does() -> None:
    shown = str(bf.Profile.default())
    assert "decoding blosc-lz4-shuffle, one core" in shown
    assert "decoding blosc-zstd-bitshuffle, one core" in shown
    assert "-byte" not in shown


def test_a_profile_is_made_of_a_mapping() -> None:
    with pytest.raises(bf.WrongTypeError, match=r"a mapping, as to_dict gives it, not of 'text'"):
        bf.Profile("text")  # type: ignore[arg-type]
    assert bf.Profile(bf.Profile.default().to_dict()).requests_in_flight == 16


def test_advice_names_the_profile_that_it_used(tmp_path: Path) -> None:
    advice = bf.advise(SHAPE, "float32")
    assert str(advice).splitlines()[-1] == f"{ASSUMED} ."
    assert advice.to_dict()["profile"]["coldness"] == "assumed"

    slow_profile().keep(tmp_path)
    advice = bf.advise(SHAPE, "float32")
    line = "prices from the profile of the tape, calibrated 2026-01-31"
    assert str(advice).splitlines()[-1] == line
    assert advice.to_dict()["profile"]["name"] == "the tape"
    assert json.dumps(advice.to_dict()["profile"])


def test_new_arrays_are_laid_out_for_the_kept_profile_of_their_store(tmp_path: Path) -> None:
    plain, slow = advised(bf.Profile.default()), advised(slow_profile())
    assert plain != slow
    slow_profile().keep(tmp_path)

    made = bf.create(tmp_path / "a.zarr").create_array("t", SHAPE, "float32", DIMS)
    assert made.chunks == slow
    opened = bf.open(tmp_path / "a.zarr", "r+", profile=bf.Profile.default())
    assert opened.create_array("u", SHAPE, "float32", DIMS).chunks == plain

    values = np.zeros(SHAPE, "float32")
    bf.write_dataset(xr.Dataset({"t": (DIMS, values)}), tmp_path / "b.zarr")
    assert bf.open(tmp_path / "b.zarr")["t"].chunks == slow
    plan = bf.convert(tmp_path / "a.zarr", tmp_path / "c.zarr", dry_run=True)
    assert plan.arrays[0].chunks == slow


def test_a_kept_profile_that_is_damaged_keeps_nothing_from_being_written(
    tmp_path: Path, profiles: Path
) -> None:
    slow_profile().keep(tmp_path)
    for file in profiles.iterdir():
        file.write_text("{")
    store = bf.create(tmp_path / "a.zarr")
    assert store.create_array("t", SHAPE, "float32", DIMS).chunks == advised(None)
    assert ASSUMED in str(bf.advise(SHAPE, "float32"))


def test_the_command_takes_the_profile_of_the_file_or_of_the_path_named(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    store = tmp_path / "a.zarr"
    bf.create(store).create_array("t", SHAPE, "float32", DIMS)
    assert f"{ASSUMED} {store}" in bedform_command("advise", str(store), COLUMNS="400").stdout
    slow_profile().keep(tmp_path)
    assert "the profile of the tape" in bedform_command("advise", str(store)).stdout
    shape = ("advise", "--shape", "400,90,180", "--profile")
    assert "the profile of the tape" in bedform_command(*shape, str(tmp_path)).stdout
    assert f"{ASSUMED} /proc" in bedform_command(*shape, "/proc").stdout


@pytest.mark.parametrize(
    ("reads", "complaint"),
    [
        ({("tme",): 1}, "no axis 'tme': the axes are time, lat, lon"),
        ({"tme": 1}, "no axis 'tme': the axes are time, lat, lon"),
        ({("time",): -1}, "is -1: it must be a positive number"),
        ({("time",): 0}, "is 0: it must be a positive number"),
    ],
)
def test_reads_that_fit_nothing_are_refused_alike_everywhere(
    tmp_path: Path, reads: Any, complaint: str
) -> None:
    dataset = xr.Dataset({"t": (DIMS, np.zeros((2, 3, 4)))})
    store = bf.create(tmp_path / "a.zarr")
    for call in (
        lambda: bf.advise(SHAPE, "float32", dims=DIMS, reads=reads),
        lambda: store.create_array("t", SHAPE, "float32", DIMS, reads=reads),
        lambda: bf.write_dataset(dataset, tmp_path / "b.zarr", reads=reads),
    ):
        with pytest.raises(bf.InvalidArgumentError, match=complaint):
            call()
    assert not (tmp_path / "b.zarr").exists()


def test_reads_of_dimensions_that_one_variable_lacks_are_left_out_for_it(tmp_path: Path) -> None:
    dataset = xr.Dataset({"t": (DIMS, np.zeros(SHAPE, "f4")), "z": ("height", np.zeros(400_000))})
    reads = {("lat", "lon"): 1, ("height",): 1}
    bf.write_dataset(dataset, tmp_path / "a.zarr", reads=reads, readers="bedform")
    assert bf.open(tmp_path / "a.zarr")["t"].chunks[0] == 1


# Measuring


def test_what_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.nc").write_text("text")
    with pytest.raises(bf.InvalidArgumentError, match=r"text\.nc is a file: give a directory"):
        bf.calibrate(tmp_path / "text.nc")
    with pytest.raises(bf.NotFoundError, match="no such directory"):
        bf.calibrate(tmp_path / "missing")
    with pytest.raises(bf.InvalidArgumentError, match="/proc: the file system stores no data"):
        bf.calibrate("/proc")
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY, f_blocks=1000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: read_only)
        with pytest.raises(bf.ReadOnlyError, match="the file system is read-only"):
            bf.calibrate(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(bf.PermissionDeniedError, match="no permission to write"):
            bf.calibrate(tmp_path)


def test_calibrate_prints_a_table_with_units_and_where_it_was_kept(
    tmp_path: Path, profiles: Path, bedform_command: Bedform
) -> None:
    done = bedform_command("calibrate", str(tmp_path), COLUMNS="400")
    assert (done.returncode, done.stderr) == (0, "")
    assert "MB/s" in done.stdout
    assert "{" not in done.stdout
    (kept,) = profiles.iterdir()
    assert f"kept in {kept}" in done.stdout
    found = bf.Profile.for_path(tmp_path)
    assert found is not None
    assert json.loads(kept.read_text()) == found.to_dict()


def test_a_measurement_is_shown_though_it_cannot_be_kept(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "profiles")
    done = bedform_command("calibrate", str(tmp_path), BEDFORM_PROFILES=nowhere)
    assert done.returncode == 0
    assert "MB/s" in done.stdout
    assert "kept in" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("bedform: the profile was not kept: ")
    assert "BEDFORM_PROFILES" in line
    with pytest.warns(UserWarning, match="set BEDFORM_PROFILES to a directory"):
        assert bf.calibrate(tmp_path, seconds=0.5).measured_at


def sluggish_profile() -> bf.Profile:
    """Returns a profile with memory and codecs a thousand times slower than any real ones."""
    document = bf.Profile.default().to_dict()
    processor = document["profile"]["processor"]
    slow = {"encoded_byte_seconds": 1e-6, "decoded_byte_seconds": 1e-6}
    processor["codecs"] = {name: {**of, **slow} for name, of in processor["codecs"].items()}
    processor["cached_bytes_per_second"] = 1e6
    document["profile"]["measured_at"] = "2026-01-31T12:00:00Z"
    return bf.Profile(document)


def write_zarr(path: Path, values: Any) -> None:
    with bf.create(path) as store:
        store.create_array("t", data=values, dims=DIMS, codecs=["zstd"], chunks=values.shape)


def write_netcdf(path: Path, values: Any) -> None:
    coded = {"t": {"zlib": True, "chunksizes": values.shape}}
    xr.Dataset({"t": (DIMS, values)}).to_netcdf(path, engine="h5netcdf", encoding=coded)


def write_classic(path: Path, values: Any) -> None:
    xr.Dataset({"t": (DIMS, values)}).to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT")


@pytest.mark.parametrize(
    ("name", "write", "codec"),
    [
        ("a.zarr", write_zarr, "zstd"),
        ("a.nc", write_netcdf, "zlib"),
        ("classic.nc", write_classic, "none"),
    ],
)
def test_reads_teach_the_kept_profile_what_they_take(
    tmp_path: Path, name: str, write: Callable[[Path, Any], None], codec: str
) -> None:
    values = np.arange(512 * 1024, dtype="f4").reshape(32, 64, 256)
    write(tmp_path / name, values)
    sluggish_profile().keep(tmp_path)

    with bf.open(tmp_path / name, cache=0) as opened:
        before = opened["t"].explain(np.s_[:]).to_dict()["predicted_cached_seconds"]
        for _ in range(20):
            assert np.array_equal(opened["t"][:], values)
            # Reads in quick succession refine nothing.
            time.sleep(0.006)
        after = opened["t"].explain(np.s_[:]).to_dict()["predicted_cached_seconds"]
    assert after < before / 2
    _internal.keep_experience()
    kept = bf.Profile.for_path(tmp_path)
    assert kept is not None
    assert list(kept.refinement) == [codec]
    assert min(factor["ratio"] for factor in kept.refinement[codec].values()) == 0.25
    forgotten = kept.without_refinement()
    assert forgotten.refinement == {}


def test_a_profile_that_was_given_learns_nothing(tmp_path: Path) -> None:
    values = np.arange(512 * 1024, dtype="f4").reshape(32, 64, 256)
    write_zarr(tmp_path / "a.zarr", values)
    sluggish_profile().keep(tmp_path)
    with bf.open(tmp_path / "a.zarr", cache=0, profile=sluggish_profile()) as opened:
        for _ in range(5):
            assert np.array_equal(opened["t"][:], values)
            time.sleep(0.006)
    _internal.keep_experience()
    kept = bf.Profile.for_path(tmp_path)
    assert kept is not None
    assert kept.refinement == {}
