"""Convert: the target is complete or absent, interrupted work resumes, and every byte is equal."""

from __future__ import annotations

import math
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import zarr
from support import ENVIRONMENT, PATIENCE, command_line, wait_until

import bedform
from bedform._convert import VerificationError, convert

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.zarr"
    generator = np.random.default_rng(1)
    group = zarr.create_group(path)
    data = generator.normal(size=(150, 100, 90)).astype("float32")
    data[5, 6] = np.nan
    group.create_array("t", data=data, chunks=(1, 100, 90))
    group.create_array("depth", data=np.arange(7.0))
    group.create_array("scalar", data=np.array(7.5))
    group.create_array("empty", shape=(0, 30), chunks=(1, 30), dtype="int16")
    return path


def check_same(source: Path, target: Path) -> None:
    left = zarr.open_group(source, mode="r")
    with bedform.open(target) as right:
        assert set(left) == set(right.arrays())
        for name in left:
            np.testing.assert_array_equal(left[name][...], right[name][...])


def growing(work: Path) -> Path:
    """The store that grows in a work directory."""
    (found,) = work.glob("store-*")
    return found


def leftovers(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("."))


def test_the_store_holds_what_the_file_holds(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    done = convert(
        source,
        tmp_path / "a.zarr",
        verify=True,
        memory="8MiB",
        progress=lambda *step: seen.append(step),
    )
    check_same(source, tmp_path / "a.zarr")
    assert done.complete
    assert done.verified
    assert seen[-1] == (done.byte_count, done.byte_count)
    assert leftovers(tmp_path) == []


def test_a_dry_run_writes_nothing(source: Path, tmp_path: Path) -> None:
    plan = convert(source, tmp_path / "a.zarr", dry_run=True)
    assert {array.name for array in plan.arrays} == {"t", "depth", "scalar", "empty"}
    assert not plan.complete
    assert list(tmp_path.iterdir()) == [source]


# Cuts the large array into three regions, so that there are places to stop.
LAYOUT = bedform.Regular(chunks=(25, 50, 45), shards=(50, 100, 90))


class StopError(Exception):
    """Raised by a test's progress callback to stop a conversion."""


def stop_after(steps: int) -> Any:
    count = 0

    def report(done: int, total: int) -> None:
        nonlocal count
        count += 1
        if count == steps:
            raise StopError

    return report


def test_stopped_anywhere_it_is_invisible_and_goes_on(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    arguments: dict[str, Any] = {"memory": "16MiB", "layout": LAYOUT}
    for steps in range(1, 5):
        with pytest.raises(StopError):
            convert(source, target, progress=stop_after(steps), **arguments)
        assert not target.exists()
        assert leftovers(tmp_path) == [".a.zarr.bedform-partial"]
    done = convert(source, target, verify=True, **arguments)
    assert done.resumed_bytes > 0
    check_same(source, target)
    assert leftovers(tmp_path) == []


def test_marks_without_their_store_are_not_believed(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    with pytest.raises(StopError):
        convert(source, target, layout=LAYOUT, progress=stop_after(4))
    work = tmp_path / ".a.zarr.bedform-partial"
    growing(work).rename(tmp_path / "elsewhere")
    assert convert(source, target, layout=LAYOUT, verify=True).resumed_bytes == 0
    check_same(source, target)


def test_a_torn_mark_is_not_a_mark(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    with pytest.raises(StopError):
        convert(source, target, progress=stop_after(3))
    marks = tmp_path / ".a.zarr.bedform-partial" / "done"
    marks.write_bytes(marks.read_bytes()[:-2])
    convert(source, target, verify=True)
    check_same(source, target)


def test_another_source_or_other_options_do_not_mix(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    with pytest.raises(StopError):
        convert(source, target, progress=stop_after(3))
    with pytest.raises(ValueError, match="unfinished conversion"):
        convert(source, target, layout=LAYOUT)
    copied = source.rename(tmp_path / "copied.zarr")
    with pytest.raises(ValueError, match="of another source"):
        convert(copied, target)
    copied.rename(source)
    convert(source, target, layout=LAYOUT, restart=True, verify=True)
    check_same(source, target)


@pytest.mark.parametrize("change", ["elements", "shape", "nothing"])
def test_a_source_that_has_changed_is_converted_from_the_beginning(
    source: Path, tmp_path: Path, change: str
) -> None:
    target = tmp_path / "a.zarr"
    with pytest.raises(StopError):
        convert(source, target, layout=LAYOUT, progress=stop_after(5))
    group = zarr.open_group(source, mode="r+")
    if change == "elements":
        group["t"][0] = 8
    elif change == "shape":
        group["depth"].resize((8,))
    else:
        # Another program writes, or holds a lock, without having published.
        (source / "t" / ".bedform-lock").touch()
    done = convert(source, target, layout=LAYOUT)
    assert (done.resumed_bytes == 0) == (change != "nothing")
    said = [line for line in done.warnings if "has changed since" in line]
    assert len(said) == (change != "nothing")
    check_same(source, target)


def test_a_commit_to_the_source_is_a_change_of_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source.zarr", tmp_path / "a.zarr"
    store = bedform.create(source)
    store.create_array("t", (150, 100), "float32", layout=bedform.Regular((25, 100), (50, 100)))
    layout = bedform.Regular(chunks=(25, 50), shards=(50, 100))
    for value in (1, 2):
        with store.session(settle="later") as session:
            session.write("t", np.full((150, 100), value, "float32"))
        if value == 1:
            with pytest.raises(StopError):
                convert(source, target, layout=layout, memory="256 KiB", progress=stop_after(2))
    assert len(convert(source, target, layout=layout, memory="256 KiB").warnings) == 1
    assert (bedform.open(target)["t"][...] == 2).all()


def test_a_netcdf_file_that_was_written_to_is_converted_from_the_beginning(tmp_path: Path) -> None:
    source, target = tmp_path / "a.h5", tmp_path / "a.zarr"
    with h5py.File(source, "w") as file:
        file["t"] = np.zeros((600, 1000), "float32")
    layout = bedform.Regular(chunks=(25, 500), shards=(50, 1000))
    arguments: dict[str, Any] = {"layout": layout, "memory": "1 MiB"}
    with pytest.raises(StopError):
        convert(source, target, progress=stop_after(2), **arguments)
    with h5py.File(source, "r+") as file:
        file["t"][0] = 7
    assert len(convert(source, target, **arguments).warnings) == 1
    assert bedform.open(target)["t"][0].tolist() == [7] * 1000


def test_a_difference_is_found_and_the_target_withheld(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.zarr"
    wrong = np.arange(7.0)
    wrong[3] = -wrong[3]

    def spoil(done: int, total: int) -> None:
        if done == total:
            with bedform.open(growing(tmp_path / ".a.zarr.bedform-partial"), mode="r+") as store:
                store["depth"][...] = wrong

    with pytest.raises(VerificationError, match=r"'depth' differs .* \[0:7\]"):
        convert(source, target, verify=True, progress=spoil)
    assert not target.exists()


def test_two_conversions_to_one_target_do_not_mix(source: Path, tmp_path: Path) -> None:
    def again(done: int, total: int) -> None:
        with pytest.raises(BlockingIOError, match="another conversion"):
            convert(source, tmp_path / "a.zarr")
        raise StopError

    with pytest.raises(StopError):
        convert(source, tmp_path / "a.zarr", progress=again)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_command_leaves_nothing_visible_and_the_next_one_finishes(
    source: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    target = tmp_path / "a.zarr"
    command = [*command_line(), "convert", str(source), str(target), "--memory", "1MiB"]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    marks = tmp_path / ".a.zarr.bedform-partial" / "done"
    wait_until(
        lambda: process.poll() is not None or (marks.exists() and marks.stat().st_size),
        "a region is done",
    )
    process.send_signal(ending)
    _, said = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        assert not target.exists()
        assert process.returncode == (130 if ending == signal.SIGINT else -signal.SIGKILL), said
        if ending == signal.SIGINT:
            assert "run the same command again" in said
            assert "bedform: interrupted" in said
        convert(source, target, memory="1MiB", verify=True)
    check_same(source, target)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Writes a file with one ordinary array and three of types that Zarr lacks."""
    path = tmp_path / "odd.h5"
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(12.0)
        file["names"] = ["a", "b"]
        file["records"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        file["lists"] = file.create_dataset("lists_", (3,), h5py.vlen_dtype("f8"))
        file["pointers"] = np.array([file["t"].ref], dtype=h5py.ref_dtype)
        del file["lists_"]
    return path


ODD = ("lists", "pointers", "records")


def test_elements_that_zarr_has_no_type_for_are_refused_by_name(odd: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'records': elements of type .*--exclude records"):
        convert(odd, tmp_path / "a.zarr", exclude=ODD[:2])
    with pytest.raises(ValueError, match="no array 'x' to leave out"):
        convert(odd, tmp_path / "a.zarr", exclude=["x"])
    assert list(tmp_path.iterdir()) == [odd]


@pytest.mark.filterwarnings("ignore::bedform.NativeReadWarning")
def test_the_other_arrays_are_converted_without_them(odd: Path, tmp_path: Path) -> None:
    convert(odd, tmp_path / "a.zarr", exclude=ODD, verify=True)
    with bedform.open(tmp_path / "a.zarr") as store:
        assert sorted(store.arrays()) == ["names", "t"]
        assert store["names"][...].tolist() == ["a", "b"]


def test_records_are_read_as_records(odd: Path) -> None:
    with bedform.open(odd) as opened, pytest.warns(bedform.NativeReadWarning):
        assert opened["records"][0].tolist() == (0, 0.0)


def test_an_array_of_text_takes_nothing_but_text(tmp_path: Path) -> None:
    array = bedform.create(tmp_path / "s.zarr").create_array("a", (2,), str)
    with pytest.raises(bedform.InvalidArgumentError, match="a holds text, not tuple"):
        array[...] = np.zeros(2, [("a", "i4")])


def test_a_target_in_the_source_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(source)
    monkeypatch.chdir(source)
    for target in (source / "sub", tmp_path / "link" / "sub", "sub"):
        with pytest.raises(ValueError, match="lies in the source"):
            convert(source, target)
    assert not (source / "sub").exists()


def test_little_memory_makes_smaller_shards_and_too_little_is_refused(
    source: Path, tmp_path: Path
) -> None:
    large = convert(source, tmp_path / "a.zarr", dry_run=True)
    small = convert(source, tmp_path / "a.zarr", memory="2MiB", dry_run=True)
    assert math.prod(small.arrays[-1].shards or ()) < math.prod(large.arrays[-1].shards or ())
    with pytest.raises(ValueError, match="does not fit the memory: its blocks need at least 1 MiB"):
        convert(source, tmp_path / "a.zarr", memory=0)
    with pytest.raises(ValueError, match="at least 5 MiB"):
        convert(source, tmp_path / "a.zarr", memory="1MiB", layout=LAYOUT)


def test_a_native_read_is_one_line_on_the_command_line(odd: Path, tmp_path: Path) -> None:
    options = [word for name in ODD for word in ("--exclude", name)]
    command = [*command_line(), "convert", str(odd), str(tmp_path / "a.zarr"), *options]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("bedform: ")
    assert "'names' is read through its native library" in lines[0]


def test_what_a_file_names_elsewhere_is_left_out_and_said(tmp_path: Path) -> None:
    source = tmp_path / "links.h5"
    with h5py.File(source, "w") as file:
        file["t"] = np.arange(6.0)
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/t")
    done = convert(source, tmp_path / "a.zarr")
    assert [array.name for array in done.arrays] == ["t"]
    (warning,) = done.warnings
    assert warning.startswith("'elsewhere' is left out: ")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*does not have a Zarr V3 spec")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_times_of_zarr_are_converted(tmp_path: Path, zarr_format: Any) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=zarr_format)
    times = np.arange(20).astype("datetime64[s]")
    times[3] = np.datetime64("NaT")
    steps = np.arange(20).astype("timedelta64[10us]")
    group.create_array("time", data=times, chunks=(6,))
    group.create_array("step", data=steps, chunks=(6,))
    assert convert(tmp_path / "a.zarr", tmp_path / "b.zarr", verify=True).verified
    copy = zarr.open_group(tmp_path / "b.zarr", mode="r")
    with bedform.open(tmp_path / "b.zarr") as ours:
        for name, expected in (("time", times), ("step", steps)):
            for found in (copy[name], ours[name]):
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found[...], expected)
