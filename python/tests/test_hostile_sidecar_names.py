"""Links, FIFOs, devices, hard links and other owners at every name of a sidecar and a log.

No file outside is changed, made or removed. No call blocks. Reads remove nothing, and return the
values of the source. The same holds for a work directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from support import PATIENCE, is_night

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPE = (60, 24, 20)
ROWS = [3, 9, 50]
OTHER_USER = 4321
#: Longer than any call takes; a read of a FIFO would never end.
HANG_AFTER = PATIENCE / 4


def values() -> Any:
    return np.random.default_rng(7).integers(0, 10_000, SHAPE).astype("f4")


def tree_of(top: Path) -> dict[str, tuple[Any, ...]]:
    """The files below a directory, byte for byte, with modes, owners and times of change."""
    found = {}
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = Path(directory, name)
            state = path.lstat()
            content = b""
            if stat.S_ISREG(state.st_mode):
                content = hashlib.sha256(path.read_bytes()).digest()
            times = (state.st_mtime_ns, state.st_size) if stat.S_ISREG(state.st_mode) else ()
            found[str(path.relative_to(top))] = (state.st_mode, state.st_uid, content, times)
    return found


def names_below(top: Path) -> set[str]:
    return {
        str(path.relative_to(top))
        for path in top.rglob("*")
        if not path.name.startswith(".bedform")
    }


class Outside:
    """A directory of the user's own work, which must not change."""

    def __init__(self, top: Path) -> None:
        self.top = top
        (top / "thesis" / "chapter1").mkdir(parents=True)
        (top / "thesis" / "chapter1" / "text.tex").write_text("years of work")
        (top / "00000000deadbeef").mkdir()
        (top / "00000000deadbeef" / "data").write_bytes(b"measured once" * 100)
        # Names of the forms that Bedform uses.
        (top / "00000001").write_text("{}")
        (top / "0123456789abcdef-00000001-00000002").write_bytes(b"\0" * 64)
        (top / "settings").write_text("{}")
        self.file = top / "thesis" / "notes.txt"
        self.file.write_text("my notes")
        self.before = tree_of(top)

    def check(self, what: str) -> None:
        assert tree_of(self.top) == self.before, what


def link_to_directory(path: Path, outside: Outside) -> None:
    path.symlink_to(outside.top)


def link_to_file(path: Path, outside: Outside) -> None:
    path.symlink_to(outside.file)


def link_to_nothing(path: Path, outside: Outside) -> None:
    path.symlink_to(outside.top / "new")


def link_upwards(path: Path, _: Outside) -> None:
    path.symlink_to("..")


def second_name(path: Path, outside: Outside) -> None:
    os.link(outside.file, path)


def fifo(path: Path, _: Outside) -> None:
    os.mkfifo(path)


def device(path: Path, _: Outside) -> None:
    # /dev/zero, which has no end; only root can make it.
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def directory(path: Path, _: Outside) -> None:
    path.mkdir()
    (path / "inner").mkdir()


def other_owner(path: Path, _: Outside) -> None:
    path.write_bytes(b"\0" * 100)
    os.chown(path, OTHER_USER, OTHER_USER)


def directory_of_links(path: Path, outside: Outside) -> None:
    path.mkdir()
    for name in ("00000001", "00000000deadbeef", "settings", "reads", "claimed", "t"):
        (path / name).symlink_to(outside.top)


KINDS = (
    link_to_directory,
    link_to_file,
    link_to_nothing,
    link_upwards,
    second_name,
    fifo,
    device,
    directory,
    directory_of_links,
    other_owner,
)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def cases_of(template: Path, *, but: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Iterates over every name of a tree with every kind of replacement."""
    names = sorted(str(path.relative_to(template)) for path in template.rglob("*"))
    for name in names:
        if name not in but:
            for kind in KINDS:
                yield name, kind


def put(kind: Callable[[Path, Outside], None], path: Path, outside: Outside) -> bool:
    """Replaces a name by a kind of file; False if this user cannot make it."""
    remove(path)
    try:
        kind(path, outside)
    except PermissionError:
        return False
    return True


def restore(place: Path, template: Path, *, but: tuple[str, ...] = ()) -> None:
    """Restores the contents of a directory, except some names, without replacing it."""
    for entry in place.iterdir():
        if entry.name not in but:
            remove(entry)
    shutil.copytree(template, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*but))


#: Each runs in one process, since a blocking call would block the tests.
CALLS = """
import sys, warnings
import numpy as np, bedform as bf
from bedform import _internal
path, calls = sys.argv[1], sys.argv[2].split(",")
expected = np.random.default_rng(7).integers(0, 10_000, (60, 24, 20)).astype("f4")
warnings.simplefilter("ignore")


def read():
    with bf.open(path) as store:
        t = store["t"]
        for at in (np.s_[:, 3, 5], np.s_[17], np.s_[5:40, 2:9, 11:13], np.s_[:, 23, 19]):
            np.testing.assert_array_equal(t[at], expected[at])
        rows = [3, 9, 50]
        np.testing.assert_array_equal(t.oindex[rows], expected[rows])
        store.info()
    _internal.keep_traces()


def optimize():
    bf.optimize(path, "900%", selections={"t": [np.s_[:, 3, 5], np.s_[:, 0:24, 3:9]]})


done = {
    "read": read,
    "learn": lambda: bf.learn(path),
    "state": lambda: bf.watch_state(path),
    "watch": lambda: bf.watch(path, optimize_after=1_000_000, budget="400%"),
    "report": lambda: bf.report(path),
    "optimize": optimize,
    "off": lambda: bf.watch(path, False),
    "trust": lambda: bf.trust(path),
}
for call in calls:
    try:
        done[call]()
    except bf.BedformError as error:
        assert "\\n" not in str(error), error
"""


def run(path: Path, *calls: str) -> None:
    command = [sys.executable, "-c", CALLS, str(path), ",".join(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_AFTER, check=False)
    assert done.returncode == 0, f"{calls}: {done.stderr}"


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


def watched(path: Path) -> None:
    """Gives a source a sidecar with all kinds of helper files."""
    bf.watch(path, optimize_after=1_000_000, budget="400%")
    run(path, "read", "learn", "optimize", "read", "learn", "read")


def file_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values(), chunks=(1, 24, 20), compression="gzip")
    return path


def store_at(path: Path) -> Path:
    store = bf.create(path)
    store.create_array("t", data=values(), chunks=(1, 24, 20))
    return path


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("file", "beside"),
        ("store", "named"),
        pytest.param("file", "named", marks=pytest.mark.night),
        pytest.param("store", "beside", marks=pytest.mark.night),
    ],
)
def test_whatever_has_a_name_of_a_sidecar_nothing_outside_is_touched(
    tmp_path: Path,
    outside: Outside,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    place: str,
) -> None:
    path = (file_at if source == "file" else store_at)(tmp_path / "data" / "era5")
    if place == "named":
        monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    watched(path)
    if place == "named":
        (sidecar,) = (tmp_path / "sidecars").iterdir()
    else:
        sidecar = Path(f"{path}.bedform")
    template = tmp_path / "template"
    shutil.copytree(sidecar, template)
    names = names_below(template)
    for known in ("replicas", "traces", "recorded-selections", "learned-selections", "catalogue"):
        assert known in names, names
    assert {"policy", "policy/settings", "knowledge"} <= names, names
    # Without the nonce the sidecar does not count: test_hostile_sidecar_origin.py.
    kept = ("nonce",)
    count = 0
    for name, kind in sampled(cases_of(template, but=kept)):
        what = f"{name} as {kind.__name__}"
        if not put(kind, sidecar / name, outside):
            continue
        before = names_below(sidecar)
        run(path, "read", "state")
        outside.check(f"{what}: reading")
        assert before <= names_below(sidecar), what
        run(path, "watch", "learn", "report", "optimize", "read", "off")
        outside.check(what)
        restore(sidecar, template, but=kept)
        count += 1
    assert count > 20
    sys.stdout.write(f"\nCOUNT hostile_sidecar_names {count}\n")


def sampled(cases: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Returns a share of the cases with every kind and every name; all of them at night."""
    everything = list(cases)
    if is_night():
        return everything
    # Names keep the order of the tree; kinds alternate.
    names = list(dict.fromkeys(name for name, _ in everything))
    links = [(name, link_to_directory) for name in names if "/" not in name]
    turns = [(name, KINDS[at % len(KINDS)]) for at, name in enumerate(names)]
    return list(dict.fromkeys([*links, *turns]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_directory_of_a_sidecar_that_is_something_else_is_none(
    tmp_path: Path, outside: Outside, kind: Any
) -> None:
    path = file_at(tmp_path / "data" / "era5.nc")
    if not put(kind, Path(f"{path}.bedform"), outside):
        pytest.skip("only root makes one")
    run(path, "read", "state", "watch", "learn", "optimize", "report", "read", "off")
    outside.check(kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_sidecar_that_comes_in_an_archive_touches_nothing(
    tmp_path: Path, outside: Outside, kind: Any
) -> None:
    path = file_at(tmp_path / "sender" / "era5.nc")
    watched(path)
    sidecar = Path(f"{path}.bedform")
    for name in ("replicas", "traces", "recorded-selections", "policy/reads", "policy/claimed"):
        if not put(kind, sidecar / name, outside):
            pytest.skip("only root makes one")
    with tarfile.open(tmp_path / "sent.tar", "w") as archive:
        archive.add(path.parent, "data")
    with tarfile.open(tmp_path / "sent.tar") as archive:
        archive.extractall(tmp_path / "victim", filter="fully_trusted")  # noqa: S202 - made by this test
    unpacked = tmp_path / "victim" / "data" / "era5.nc"
    before = names_below(unpacked.parent)
    run(unpacked, "read", "state")
    assert before == names_below(unpacked.parent)
    run(unpacked, "watch", "learn", "report", "optimize", "read", "trust", "read", "off")
    outside.check(kind.__name__)


def test_whatever_has_a_name_of_a_log_nothing_outside_is_touched(
    tmp_path: Path, outside: Outside
) -> None:
    path = tmp_path / "data" / "run.zarr"
    path.parent.mkdir()
    store = bf.create(path)
    store.create_array("t", shape=SHAPE, dtype="f4", chunks=(6, 24, 20))
    with store.session(settle="later") as session:
        session.write("t", values(), start=(0, 0, 0))
    log = Path(f"{path}.bedform-log")
    template, whole = tmp_path / "template", tmp_path / "whole"
    shutil.copytree(log, template)
    shutil.copytree(path, whole)
    script = """
import sys, warnings
import numpy as np, bedform as bf
path = sys.argv[1]
warnings.simplefilter("ignore")
expected = np.random.default_rng(7).integers(0, 10_000, (60, 24, 20)).astype("f4")


def read():
    with bf.open(path) as store:
        np.testing.assert_array_equal(store["t"][...], expected)


def settle():
    with bf.open(path, "r+") as store:
        store.settle()


def collect():
    with bf.open(path, "r+") as store:
        store.collect_log()


for call in (read, collect, settle, collect):
    try:
        call()
    except bf.BedformError as error:
        assert "\\n" not in str(error), error
"""
    count = 0
    for name, kind in sampled(cases_of(template)):
        if not put(kind, log / name, outside):
            continue
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_AFTER, check=False
        )
        what = f"{name} as {kind.__name__}"
        assert done.returncode == 0, f"{what}: {done.stderr}"
        outside.check(what)
        for place, kept in ((log, template), (path, whole)):
            remove(place)
            shutil.copytree(kept, place)
        count += 1
    sys.stdout.write(f"\nCOUNT hostile_log_names {count}\n")


class StoppedError(Exception):
    """Stops a conversion from its progress."""


def test_whatever_has_a_name_of_a_work_directory_nothing_outside_is_touched(
    tmp_path: Path, outside: Outside
) -> None:
    source, target = tmp_path / "data" / "era5.nc", tmp_path / "data" / "t.zarr"
    source.parent.mkdir()
    large = np.random.default_rng(8).integers(0, 10_000, (240, 40, 50)).astype("f4")
    with h5py.File(source, "w") as file:
        file["t"] = large
    steps = iter(range(100))

    def stop(*_: object) -> None:
        if next(steps) == 3:
            raise StoppedError

    layout = bf.Regular(chunks=(30, 40, 50), shards=(60, 40, 50))
    arguments: dict[str, Any] = {"layout": layout, "memory": "2 MiB"}
    with pytest.raises(StoppedError):
        bf.convert(source, target, progress=stop, **arguments)
    work = tmp_path / "data" / ".t.zarr.bedform-partial"
    template = tmp_path / "template"
    shutil.copytree(work, template)
    count = 0
    for name, kind in sampled(cases_of(template)):
        if not put(kind, work / name, outside):
            continue
        what = f"{name} as {kind.__name__}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                bf.convert(source, target, verify=True, **arguments)
            except bf.BedformError as error:
                assert "\n" not in str(error), what
            else:
                with bf.open(target) as store:
                    np.testing.assert_array_equal(store["t"][...], large, err_msg=what)
        outside.check(what)
        for place in (work, target):
            remove(place)
        shutil.copytree(template, work)
        count += 1
    for kind in KINDS:
        if put(kind, work, outside):
            with contextlib.suppress(bf.BedformError):
                bf.convert(source, target, **arguments)
            outside.check(f"the work directory as {kind.__name__}")
            remove(target)
    sys.stdout.write(f"\nCOUNT hostile_work_names {count}\n")
