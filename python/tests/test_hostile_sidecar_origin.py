"""Sidecars that this user has not made on this machine: forged, replayed, moved, foreign.

None is used until it is accepted by name, and one line says so. Reads return the source's values.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from support import PATIENCE, sealed

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore::bedform.SidecarWarning")

SHAPE = (300, 40, 50)
#: Twelve years ago, as in an archive.
OLD = 1_262_304_000


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BEDFORM_TRUST", str(tmp_path / "registry"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    return tmp_path / "registry"


def values(add: float = 0) -> Any:
    return np.random.default_rng(1).integers(1, 9999, SHAPE).astype("f4") + np.float32(add)


def file_at(path: Path, add: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values(add), chunks=(1, 40, 50))
    os.utime(path, (OLD, OLD))
    return path


def store_at(path: Path, add: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    bf.create(path).create_array("t", data=values(add), chunks=(1, 40, 50))
    return path


SOURCES = {"a.nc": file_at, "a.zarr": store_at}


def optimize(path: Path) -> list[str]:
    selections = {"t": [np.s_[:, 3, 4], np.s_[:, 0:24, 3:9]]}
    return [one["id"] for one in bf.optimize(path, "900%", selections=selections).done["made"]]


def sidecar_of(path: Path) -> Path:
    return Path(f"{path}.bedform")


def newest(sidecar: Path, kind: str) -> Path:
    return max((sidecar / kind).iterdir())


def check(path: Path, add: float = 0) -> tuple[set[str], list[str]]:
    """Reads in a child process; returns the used replicas, and the warnings."""
    script = f"""
import json, sys, warnings
import numpy as np, bedform as bf
expected = np.random.default_rng(1).integers(1, 9999, {SHAPE}).astype("f4") + np.float32({add})
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    used = set()
    for _ in range(2):
        with bf.open({str(path)!r}, cache=0, prefetch=False) as store:
            t = store["t"]
            for at in (np.s_[:, 3, 4], np.s_[:, 0:24, 3:9], np.s_[7], np.s_[5:40, 2:9, 11:13]):
                np.testing.assert_array_equal(t[at], expected[at])
            used |= {{one["id"] for one in store.stats()["replicas"] if one["reads"]}}
said = [str(one.message) for one in warned if issubclass(one.category, bf.SidecarWarning)]
print(json.dumps([sorted(used), said, bf.watch_state({str(path)!r})]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    used, said, state = json.loads(done.stdout)
    assert not state["is_watched"] or not said, state
    if said:
        assert state["settings"] is None, state
    return set(used), said


def untrusted(path: Path, add: float = 0) -> None:
    """Checks that the sidecar is not used, and that one warning has the remedy."""
    used, said = check(path, add)
    assert not used
    (line,) = said
    assert str(sidecar_of(path)) in line
    assert f"bedform trust {path}" in line
    assert "\n" not in line


def tree_of(top: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def send(path: Path, place: Path) -> Path:
    """Pack the directory of a source, and unpack it at another place."""
    packed = path.parent.with_suffix(".tar")
    with tarfile.open(packed, "w") as archive:
        archive.add(path.parent, ".")
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed) as archive:
        archive.extractall(place, filter="fully_trusted")  # noqa: S202 - made by this test
    return place / path.name


def forge(path: Path, make: Callable[..., Path]) -> None:
    """Give a source a sidecar whose replicas have other values, under the records of right ones."""
    other = make(path.parent / "other" / path.name, 100_000)
    made = optimize(other)
    right = optimize(path)
    assert len(made) == len(right)
    sidecar, wrong = sidecar_of(path), sidecar_of(other)
    documents = [json.loads(newest(one, "catalogue").read_bytes()) for one in (sidecar, wrong)]
    shutil.rmtree(sidecar / "replicas")
    shutil.copytree(wrong / "replicas", sidecar / "replicas")
    # Replicas of the other source, labelled as replicas of this one.
    own = {json.dumps(one["held"]): one for one in documents[0]["replicas"]}
    forged = [
        {
            **one,
            **{key: value for key, value in own[json.dumps(one["held"])].items() if key == "of"},
        }
        for one in documents[1]["replicas"]
    ]
    newest(sidecar, "catalogue").write_bytes(sealed({**documents[0], "replicas": forged}))
    shutil.rmtree(other.parent)


@pytest.mark.parametrize("name", SOURCES)
def test_a_forged_sidecar_of_an_archive_is_not_believed_and_not_accepted(
    tmp_path: Path, name: str
) -> None:
    path = SOURCES[name](tmp_path / "sender" / name)
    forge(path, SOURCES[name])
    victim = send(path, tmp_path / "victim")
    before = tree_of(sidecar_of(victim))
    untrusted(victim)
    assert tree_of(sidecar_of(victim)) == before
    done = bf.trust(victim)
    assert not done["accepted"]
    assert done["refused"]
    assert all("other elements" in one["why"] for one in done["refused"]), done
    assert check(victim) == (set(), [])


@pytest.mark.parametrize("name", SOURCES)
def test_an_honest_sidecar_that_came_with_the_data_counts_once_it_is_accepted(
    tmp_path: Path, name: str
) -> None:
    path = SOURCES[name](tmp_path / "sender" / name)
    made = optimize(path)
    victim = send(path, tmp_path / "victim")
    untrusted(victim)
    done = bf.trust(victim)
    assert sorted(done["accepted"]) == sorted(made)
    assert (done["refused"], done["was_trusted"]) == ([], False)
    used, said = check(victim)
    assert used
    assert not said
    assert bf.trust(victim)["was_trusted"]


def moved(path: Path, place: Path) -> Path:
    path.parent.rename(place)
    return place / path.name


def copied(path: Path, place: Path) -> Path:
    shutil.copytree(path.parent, place)
    return place / path.name


def restored(path: Path, _: Path) -> Path:
    """At the same path, with the same nonce, and perhaps the same file number."""
    packed = path.parent.with_suffix(".tar")
    with tarfile.open(packed, "w") as archive:
        archive.add(path.parent, ".")
    for entry in path.parent.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with tarfile.open(packed) as archive:
        archive.extractall(path.parent, filter="fully_trusted")  # noqa: S202 - made by this test
    return path


def of_another_machine(path: Path, _: Path) -> Path:
    """Uses the registry of another machine."""
    os.environ["BEDFORM_TRUST"] += "-of-another-machine"
    return path


def of_an_earlier_version(path: Path, _: Path) -> Path:
    (sidecar_of(path) / "nonce").unlink()
    return path


def with_another_nonce(path: Path, _: Path) -> Path:
    nonce = sidecar_of(path) / "nonce"
    nonce.write_text("0" * 32)
    return path


def in_another_directory(path: Path, _: Path) -> Path:
    """The directory was replaced, and its files moved there."""
    sidecar = sidecar_of(path)
    aside = sidecar.with_name("aside")
    sidecar.rename(aside)
    sidecar.mkdir(mode=0o700)
    for entry in aside.iterdir():
        entry.rename(sidecar / entry.name)
    return path


ORIGINS = (
    send,
    moved,
    copied,
    restored,
    of_another_machine,
    of_an_earlier_version,
    with_another_nonce,
    in_another_directory,
)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.__name__)
def test_a_sidecar_counts_only_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, origin: Any
) -> None:
    monkeypatch.setenv("BEDFORM_TRUST", os.environ["BEDFORM_TRUST"])
    path = SOURCES[name](tmp_path / "data" / name)
    made = optimize(path)
    assert check(path)[0]
    bf.watch(path, optimize_after=1, budget="100%")
    found = origin(path, tmp_path / "elsewhere")
    untrusted(found)
    for call in (bf.watch, optimize):
        with pytest.raises(bf.PermissionDeniedError, match="bedform trust") as refused:
            call(found)
        assert "\n" not in str(refused.value)
    done = bf.trust(found)
    assert sorted(done["accepted"]) == sorted(made)
    assert {"watch", "policy"} <= set(done["removed"])
    state = bf.watch_state(found)
    assert (state["is_watched"], state["settings"]) == (False, None)
    used, said = check(found)
    assert used
    assert not said


def test_a_replica_that_was_changed_in_one_element_is_refused_and_the_others_stay(
    tmp_path: Path,
) -> None:
    path = file_at(tmp_path / "sender" / "a.nc")
    made = optimize(path)
    assert len(made) >= 2
    victim = send(path, tmp_path / "victim")
    place = sidecar_of(victim) / "replicas" / made[0]
    store = bf.open(place, "r+")
    t = store["t"]
    t[(0,) * len(t.shape)] = -1
    store.close()
    done = bf.trust(victim)
    assert sorted(done["accepted"]) == sorted(made[1:])
    assert [one["id"] for one in done["refused"]] == [made[0]]
    assert not place.exists()
    assert check(victim)[1] == []


def test_replicas_of_points_are_compared_too(tmp_path: Path) -> None:
    path = file_at(tmp_path / "sender" / "a.nc")
    chance = np.random.default_rng(3)
    points = tuple(np.sort(chance.choice(length, 20, replace=False)) for length in SHAPE)
    bf.optimize(path, "900%", selections={"t": [{"points": points}]})
    victim = send(path, tmp_path / "victim")
    done = bf.trust(victim)
    assert len(done["accepted"]) == 1
    with bf.open(victim) as store:
        np.testing.assert_array_equal(store["t"].vindex[points], values()[points])


def links(sidecar: Path, outside: Path) -> None:
    shutil.rmtree(sidecar / "replicas")
    (sidecar / "replicas").symlink_to(outside)


def second_name(sidecar: Path, outside: Path) -> None:
    os.link(outside / "notes", sidecar / "traces")


def unknown_name(sidecar: Path, _: Path) -> None:
    (sidecar / "thesis").mkdir()


def writable_by_others(sidecar: Path, _: Path) -> None:
    (sidecar / "replicas").chmod(0o777)


def writable_itself(sidecar: Path, _: Path) -> None:
    sidecar.chmod(0o775)


def fifo(sidecar: Path, _: Path) -> None:
    os.mkfifo(sidecar / "watch")


def other_owner(sidecar: Path, _: Path) -> None:
    (sidecar / "watch").touch()
    os.chown(sidecar / "watch", 4321, 4321)


@pytest.mark.parametrize(
    "spoil",
    (links, second_name, unknown_name, writable_by_others, writable_itself, fifo, other_owner),
    ids=lambda spoil: spoil.__name__,
)
def test_a_sidecar_with_what_is_none_of_bedforms_is_not_accepted(
    tmp_path: Path, spoil: Any
) -> None:
    path = file_at(tmp_path / "sender" / "a.nc")
    optimize(path)
    victim = send(path, tmp_path / "victim")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "notes").write_text("mine")
    try:
        spoil(sidecar_of(victim), outside)
    except PermissionError:
        pytest.skip("only root gives files away")
    with pytest.raises(bf.PermissionDeniedError) as refused:
        bf.trust(victim)
    assert str(sidecar_of(victim)) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert tree_of(outside) == {"notes": b"mine"}
    used, said = check(victim)
    assert not used
    assert len(said) == 1


def test_a_registered_sidecar_that_others_may_write_does_not_count(tmp_path: Path) -> None:
    path = file_at(tmp_path / "a.nc")
    optimize(path)
    sidecar_of(path).chmod(0o770)
    used, said = check(path)
    assert not used
    assert "chmod -R go-w" in said[0]
    sidecar_of(path).chmod(0o700)
    used, said = check(path)
    assert used
    assert not said


def test_an_empty_directory_becomes_the_sidecar_and_one_with_anything_in_it_does_not(
    tmp_path: Path,
) -> None:
    path = file_at(tmp_path / "a.nc")
    sidecar = sidecar_of(path)
    sidecar.mkdir()
    assert check(path) == (set(), [])
    assert optimize(path)
    other = file_at(tmp_path / "b.nc")
    sidecar_of(other).mkdir()
    (sidecar_of(other) / "watch").touch()
    untrusted(other)


def test_where_nothing_can_be_registered_replicas_go_to_no_place_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_at(tmp_path / "a.nc")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BEDFORM_TRUST", str(tmp_path / "file" / "registry"))
    with pytest.raises(bf.PermissionDeniedError, match="BEDFORM_SIDECAR") as refused:
        optimize(path)
    assert "\n" not in str(refused.value)
    assert not sidecar_of(path).exists()
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    assert optimize(path)
    assert check(path)[0]


def test_the_registry_has_a_file_of_this_user_alone_for_each_sidecar(
    tmp_path: Path, registry: Path
) -> None:
    sources = [file_at(tmp_path / "data" / f"{number}.nc") for number in range(3)]
    for path in sources:
        bf.watch(path)
        bf.watch(path)
    entries = list(registry.iterdir())
    assert len(entries) == 3
    assert all(entry.stat().st_mode & 0o777 == 0o600 for entry in entries)
    assert registry.stat().st_mode & 0o777 == 0o700
    # Other users could have written them.
    for entry in entries:
        entry.chmod(0o666)
    for path in sources:
        assert not bf.watch_state(path)["is_watched"]
    for entry in entries:
        entry.chmod(0o600)
    assert bf.watch_state(sources[0])["is_watched"]
    for entry in entries:
        content = entry.read_bytes()
        entry.write_bytes(content[:-1] + b"?")
    for path in sources:
        assert not bf.watch_state(path)["is_watched"]


def test_a_watch_and_a_policy_that_an_archive_brings_into_an_own_sidecar_do_not_count(
    tmp_path: Path,
) -> None:
    sender, path = file_at(tmp_path / "sender" / "a.nc"), file_at(tmp_path / "a.nc")
    bf.watch(sender, optimize_after=1, budget="100%")
    bf.watch(path)
    bf.watch(path, on=False)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("watch", "policy"):
            archive.add(sidecar_of(sender) / name, f"a.nc.bedform/{name}")
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")  # noqa: S202 - made by this test
    assert (sidecar_of(path) / "policy" / "settings").exists()
    state = bf.watch_state(path)
    assert (state["is_watched"], state["settings"]) == (False, None)
    # What this user sets counts, and no file changes it afterwards.
    bf.watch(path, optimize_after=5, budget="20%")
    assert bf.watch_state(path)["settings"]["optimize_after"] == 5
    shutil.copy(sidecar_of(sender) / "policy/settings", sidecar_of(path) / "policy/settings")
    state = bf.watch_state(path)
    assert (state["is_watched"], state["settings"]) == (True, None)


def test_many_processes_make_one_sidecar_and_all_of_them_use_it(
    tmp_path: Path, registry: Path
) -> None:
    for turn in range(5):
        path = file_at(tmp_path / "data" / f"{turn}.nc")
        script = f"import bedform as bf; print(bf.watch({str(path)!r}))"
        started = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(6)
        ]
        for process in started:
            said, error = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, error
            assert Path(said.strip()).parent == sidecar_of(path)
        assert bf.watch_state(path)["is_watched"]
    assert len(list(registry.iterdir())) == 5


def test_the_command_says_what_it_accepted(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = file_at(tmp_path / "sender" / "a.nc")
    made = optimize(path)
    victim = send(path, tmp_path / "victim")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = bedform_command("trust", str(victim), "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["accepted"]) == sorted(made)
    again = bedform_command("trust", str(victim))
    assert "counts already" in " ".join(again.stdout.split())
    missing = bedform_command("trust", str(file_at(tmp_path / "none.nc")))
    assert missing.returncode == 2
    assert "there is no sidecar" in missing.stderr
