"""F25: failed or killed makers of replicas, and damaged or swapped sidecars.

In every case reads return the file's values, faults are reported in one line, and the next run
removes the remains of a killed process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from support import cases, sealed

import bedform as bf
from bedform import _sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.reliability

SHAPE = (96, 30, 40)


def write(path: Path, seed: int) -> Path:
    values = np.random.default_rng(seed).integers(0, 10_000, SHAPE).astype("f4")
    with h5py.File(path, "w") as target:
        target.create_dataset("t", data=values, chunks=(1, 30, 40), compression="gzip")
        target.create_dataset("u", data=values[::-1])
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "era5.h5", 1)


POINTS = np.unique(np.random.default_rng(5).integers(0, [[96], [30], [40]], (3, 300)), axis=1)


def optimize(path: Path, **options: Any) -> bf.Optimization:
    reads: Any = {"phony_dim_0": 1, ("phony_dim_1", "phony_dim_2"): 0.1}
    return bf.optimize(path, "900%", reads=reads, **options)


def optimize_points(path: Path) -> bf.Optimization:
    return bf.optimize(path, "900%", selections={"u": [{"points": tuple(POINTS)}]})


def check(path: Path) -> set[str]:
    """Returns the replicas that reads use, after a check of the values."""
    with h5py.File(path) as source:
        expected = {name: source[name][:] for name in ("t", "u")}
    with bf.open(path, cache=0) as store:
        for name, values in expected.items():
            for at in (np.s_[:, 3, 5], np.s_[:, 29, 39], np.s_[17], np.s_[5:90, 2:9, 11:30]):
                np.testing.assert_array_equal(store[name][at], values[at])
            points = store[name].vindex[tuple(POINTS)]
            np.testing.assert_array_equal(points, values[tuple(POINTS)])
        replicas = store.stats()["replicas"]
    return {one["id"] for one in replicas if one["reads"] and not one["is_broken"]}


def vouched(sidecar: Path) -> None:
    """Makes the catalogue match the replica files, so that only replicas seem damaged."""
    catalogue = max((sidecar / "catalogue").iterdir())
    try:
        document = json.loads(catalogue.read_bytes())
    except ValueError:
        return
    for replica in document["replicas"]:
        directory = sidecar / "replicas" / replica["id"]
        places = replica.get("places", {"objects": []})["objects"]
        for array, objects in ((replica["array"], replica["objects"]), ("places", places)):
            for one in objects:
                path = directory / array / ".".join(["c", *map(str, one["at"])])
                if not path.is_file():
                    continue
                found = path.stat()
                one["version"] = {
                    "size": found.st_size,
                    "modified_ns": found.st_mtime_ns,
                    "changed_ns": found.st_ctime_ns,
                    "identity": [found.st_dev, found.st_ino],
                }
    catalogue.write_bytes(sealed(document))


def is_clean(sidecar: Path) -> bool:
    """Whether a sidecar has only the files that its catalogue names."""
    named = {path.name for path in (sidecar / "replicas").iterdir() if path.is_dir()}
    hidden = [path for path in sidecar.rglob(".*") if path.is_dir() or path.stat().st_size]
    return all(name.isalnum() for name in named) and not hidden


def killed_after(seconds: float, path: Path) -> bool:
    """Optimizes in a process that is killed after some seconds; False if it ended before."""
    child = os.fork()
    if child == 0:
        try:
            optimize(path)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_process_that_is_killed_leaves_nothing_wrong_and_nothing_for_ever(file: Path) -> None:
    sidecar = Path(f"{file}.bedform")
    began = time.monotonic()
    optimize(file)
    took = time.monotonic() - began
    assert check(file)
    kills = 0
    for case in cases(0.7, least=3):
        # From the start again, with another file.
        shutil.rmtree(sidecar)
        write(file, case.number)
        chance = case.chance
        with case:
            for _ in range(5):
                kills += killed_after(chance.random() * took * 0.9, file)
                check(file)
            began = time.monotonic()
            optimize(file)
            took = min(took, time.monotonic() - began)
            assert len(check(file)) >= 2
            assert is_clean(sidecar), sorted(sidecar.rglob("*"))
    sys.stdout.write(f"\nCOUNT optimize_kills {kills}\n")


def system(*command: str) -> bool:
    """Whether a system command succeeds."""
    done = subprocess.run(
        [shutil.which(command[0]) or command[0], *command[1:]], capture_output=True
    )
    return done.returncode == 0


@contextmanager
def small_device(place: Path, kib: int) -> Iterator[None]:
    """Mounts a small file system; skips the test where that is impossible."""
    place.mkdir()
    if not system("mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)):
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        assert system("umount", "-l", str(place))


def test_a_full_device_is_said_and_costs_nothing_but_speed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "small"
    monkeypatch.setenv("BEDFORM_SIDECAR", str(place))
    full = 0
    with small_device(place, 16):
        for kib in (16, 32, 64, 128, 256, 384, 512, 640, 768, 1024, 1280, 1536):
            assert system("mount", "-o", f"remount,size={kib}k", str(place))
            try:
                optimize(file)
            except bf.BedformError as error:
                full += 1
                said = str(error)
                assert "\n" not in said and str(place) in said, said
                assert "space" in said.lower() or "cannot be kept" in said, said
            check(file)
        assert full >= 5
        assert system("mount", "-o", "remount,size=64m", str(place))
        optimize(file)
        assert len(check(file)) >= 2
        assert all(map(is_clean, place.iterdir()))
    sys.stdout.write(f"\nCOUNT full_devices {full}\n")


def test_a_device_that_takes_no_writes_is_said_and_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "small"
    monkeypatch.setenv("BEDFORM_SIDECAR", str(place))
    with small_device(place, 64 << 10):
        bf.optimize(file, "900%", reads={"phony_dim_0": 1})
        assert system("mount", "-o", "remount,ro", str(place))
        assert check(file)
        with pytest.raises(bf.BedformError, match=r"[Rr]ead-only") as failed:
            optimize(write(file, 2))
        assert "\n" not in str(failed.value) and str(place) in str(failed.value)
        assert not check(file)


def sidecar_of(path: Path) -> Path:
    """The directory of a sidecar below BEDFORM_SIDECAR, which needs no registry."""
    directory = _sidecar.directory_of(str(path))
    assert directory is not None
    return directory


def test_every_harmed_byte_of_a_sidecar_is_noticed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    optimize(file)
    optimize_points(file)
    sidecar = sidecar_of(file)
    everything = [path for path in sidecar.rglob("*") if path.is_file() and path.stat().st_size]
    used = check(file)
    assert len(used) >= 3
    harmed = 0
    for case in cases(0.3, least=max(17, len(everything))):
        path, chance = everything[case.kind(len(everything))], case.chance
        content = path.read_bytes()
        at = chance.randrange(len(content))
        changed = bytearray(content)
        changed[at] ^= 1 << chance.randrange(8)
        with case:
            for other in (bytes(changed), content[:at]):
                path.write_bytes(other)
                check(file)
                if path.parent.name != "catalogue":
                    vouched(sidecar)
                    check(file)
                harmed += 1
            path.unlink()
            check(file)
        path.write_bytes(content)
        vouched(sidecar)
    assert check(file) == used
    sys.stdout.write(f"\nCOUNT sidecars_harmed {harmed}\n")


def test_a_sidecar_of_another_file_in_the_place_of_one_is_not_believed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    other = write(tmp_path / "other.h5", 2)
    for path in (file, other):
        optimize(path)
        optimize_points(path)
    own, foreign = sidecar_of(file), sidecar_of(other)
    kept = tmp_path / "kept"
    shutil.copytree(own, kept)
    used = check(file)
    assert len(used) >= 3
    swaps = 0

    def swapped(relative: str, source: Path) -> None:
        nonlocal swaps
        target = own / relative
        if target.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
        check(file)
        vouched(own)
        check(file)
        swaps += 1
        shutil.rmtree(own)
        shutil.copytree(kept, own)
        vouched(own)

    swapped("", foreign)
    for entry in foreign.iterdir():
        swapped(entry.name, entry)
    # Replicas of the other file under this file's names, as a whole, and object by object.
    names = [path.name for path in (kept / "replicas").iterdir() if path.is_dir()]
    for name in names:
        for others in [*(kept / "replicas").iterdir(), *(foreign / "replicas").iterdir()]:
            if not others.is_dir():
                continue
            swapped(f"replicas/{name}", others)
            for path in others.rglob("*"):
                inner = path.relative_to(others)
                if path.is_file() and (kept / "replicas" / name / inner).is_file():
                    swapped(f"replicas/{name}/{inner}", path)
    assert check(file) == used
    assert swaps > 20
    sys.stdout.write(f"\nCOUNT sidecars_swapped {swaps}\n")


def opened_to_write(file: Path) -> h5py.File:
    """Opens a file that the child may be parsing, and that is locked meanwhile."""
    for _ in range(60_000):
        try:
            return h5py.File(file, "r+")
        except BlockingIOError:
            time.sleep(0.01)
    raise AssertionError(f"{file} stays locked")


def test_a_file_that_changes_while_it_is_optimised_is_read_as_it_is(file: Path) -> None:
    said = 0
    for number in range(12):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                optimize(file)
                code = 0
            except bf.BedformError as error:
                code = 0 if "\n" not in str(error) else 1
            finally:
                os._exit(code)
        time.sleep(0.02 * number)
        with opened_to_write(file) as target:
            target["u"][...] = np.full(SHAPE, number, "f4")
        check(file)
        assert os.waitpid(child, 0)[1] == 0
        check(file)
        said += 1
    assert optimize(file).made or check(file)
    assert len(check(file)) >= 2
    sys.stdout.write(f"\nCOUNT changing_sources {said}\n")
