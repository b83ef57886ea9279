"""Sidecars of a site: an administrator optimizes once, and all users of the archive profit."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

import bedform as bf
from bedform import _internal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")

SHAPE = (60, 30, 40)
USER, OTHER = 12345, 12346
#: A time after which the file no longer changes, in seconds since 1970.
OLD = 1_500_000_000


def read_series(path: Path) -> dict[str, Any]:
    """Reads a series of a file as a user of the archive; returns values, replicas and warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with bf.open(path) as store:
            values = store["t"][:, 5, 7].tolist()
            used = store["t"].explain(np.s_[:, 5, 7]).to_dict().get("replicas", [])
            broken = [one["is_broken"] for one in store.stats().get("replicas", [])]
    lines = [str(one.message) for one in said if issubclass(one.category, bf.SidecarWarning)]
    return {"values": values, "used": used, "broken": broken, "warnings": lines}


class Site:
    """An archive of one file, a directory for its sidecars, and the site file that names it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.archive, self.sidecars = place / "archive", place / "fast" / "era5"
        for directory in (self.archive / "1979", self.sidecars, place / "home"):
            directory.mkdir(parents=True)
        self.path = self.archive / "1979" / "era5.nc"
        self.values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
        data_set = xr.Dataset({"t": (("time", "lat", "lon"), self.values)})
        data_set.to_netcdf(self.path, engine="h5netcdf")
        self.config = place / "site.toml"
        self.says(f'["root", {OTHER}]' if os.geteuid() == 0 else f"[{os.geteuid()}]")

    def says(self, owners: str) -> None:
        self.config.write_text(
            f'[[sidecars]]\nroot = "{self.archive}"\n'
            f'sidecars = "{self.sidecars}"\nowners = {owners}\n'
        )
        self.config.chmod(0o644)

    @property
    def sidecar(self) -> Path:
        return self.sidecars / "1979" / "era5.nc.bedform"

    def optimize(self, **options: Any) -> bf.Optimization:
        return bf.optimize(self.path, "400%", reads={"time": 1}, **options)

    def run(self, act: Callable[[], Any], user: int = USER, **variables: str) -> Any:
        """Returns the result of ``act`` by a user, in a child with all modules loaded."""
        home = self.place / "home" / str(user)
        if not home.exists():
            home.mkdir()
            os.chown(home, user, user)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                for name in (
                    "XDG_CACHE_HOME",
                    "XDG_DATA_HOME",
                    "BEDFORM_SIDECAR",
                    "BEDFORM_TRUST",
                ):
                    os.environ.pop(name, None)
                os.environ.update({"HOME": str(home), **variables})
                outcome = json.dumps({"gave": act()})
                # Pending records are written at the end of a process.
                _internal.keep_traces()
            except BaseException:  # noqa: BLE001 - the parent raises it
                outcome = json.dumps({"raised": traceback.format_exc()})
            os.write(write_end, outcome.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            outcome = json.loads(pipe.read())
        os.waitpid(child, 0)
        assert "raised" not in outcome, outcome["raised"]
        return outcome["gave"]

    def read(self, user: int = USER, **variables: str) -> dict[str, Any]:
        """Reads as a user, and checks the values."""
        found: dict[str, Any] = self.run(lambda: read_series(self.path), user, **variables)
        assert found["values"] == self.values[:, 5, 7].tolist()
        assert all("\n" not in line for line in found["warnings"])
        return found


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # Other users cannot enter pytest's directories.
    place = Path(tempfile.mkdtemp(prefix="bedform-site-")).resolve()
    place.chmod(0o755)
    made = Site(place)
    monkeypatch.setenv("BEDFORM_CONFIG", str(made.config))
    # Loads modules that a child of another user may be unable to find on the disk.
    read_series(made.path)
    yield made
    shutil.rmtree(place)


def everything(directory: Path) -> set[tuple[str, int, int]]:
    found = {path: path.lstat() for path in directory.rglob("*")}
    return {(str(path), of.st_size, of.st_mtime_ns) for path, of in found.items()}


@needs_root
def test_what_was_optimised_once_every_user_reads(site: Site) -> None:
    assert not site.read()["used"]
    done = site.optimize()
    assert done.made
    assert any(str(site.sidecar) in note for note in done.to_dict()["done"]["warnings"])
    assert (site.sidecar / "catalogue").is_dir()
    assert {entry.name for entry in site.path.parent.iterdir()} == {"era5.nc"}
    before = everything(site.sidecars), everything(site.archive)
    for user in (USER, OTHER):
        found = site.read(user)
        assert found["used"] == [done.made[0]["id"]]
        assert not found["warnings"] and found["broken"] == [False]
    assert (everything(site.sidecars), everything(site.archive)) == before
    with bf.open(site.path) as store:
        assert (store["t"][:, 1, 1] == site.values[:, 1, 1]).all()
        assert store["t"].explain(np.s_[:, 1, 1]).to_dict()["replicas"]
    # Without the site file, or with one that trusts others, the sidecar does not count.
    site.config.write_text("")
    assert not site.read()["used"]
    site.says(f"[{OTHER}]")
    found = site.read()
    assert not found["used"]
    (line,) = found["warnings"]
    assert "belongs to user 0, who is none of its owners" in line and str(site.config) in line


@needs_root
def test_an_owner_who_hides_new_files_wakes_the_replica_of_a_moved_file_for_all(site: Site) -> None:
    os.utime(site.path, (OLD, OLD))
    (made,) = [made["id"] for made in site.optimize().made]
    copy = site.path.with_name("copy")
    shutil.copy2(site.path, copy)
    copy.rename(site.path)
    assert not site.read()["used"]
    before = os.umask(0o077)
    try:
        again = site.optimize().done
    finally:
        os.umask(before)
    assert again is not None
    assert again["woken"] == [made]
    assert site.read()["used"]


@needs_root
def test_replicas_of_a_user_count_beside_those_of_the_site(site: Site) -> None:
    (of_site,) = [made["id"] for made in site.optimize().made]
    place = site.place / "own"
    place.mkdir()
    os.chown(place, USER, USER)

    def optimize(reads: Any) -> Any:
        done = bf.optimize(site.path, "400%", reads=reads, sidecar=place)
        return done.to_dict()

    said = site.run(lambda: optimize({"time": 1}))
    assert not said["done"]["made"], "the site serves these already"
    assert any("the site has 1 replicas" in note for note in said["plan"]["notes"])
    said = site.run(lambda: optimize({("time", "lat"): 1}))
    (own,) = [made["id"] for made in said["done"]["made"]]
    assert any(f"BEDFORM_SIDECAR={place}" in note for note in said["done"]["warnings"])

    def used() -> Any:
        with bf.open(site.path) as store:
            array = store["t"]
            assert (array[:, :, 7] == site.values[:, :, 7]).all()
            reads = [array.explain(np.s_[:, 5, 7]), array.explain(np.s_[:, :, 7])]
        return [found for read in reads for found in read.to_dict().get("replicas", [])]

    assert set(site.run(used)) == {of_site}
    both = site.run(used, BEDFORM_SIDECAR=str(place))
    assert own in both and set(both) <= {own, of_site}
    assert all(path.stat().st_uid == 0 for path in site.sidecars.rglob("*"))


def harm(site: Site, how: str) -> str:
    """Makes a sidecar untrusted; returns a part of the warning."""
    replica = next((site.sidecar / "replicas").glob("[0-9a-f]*"))
    if how == "open to all":
        site.sidecar.chmod(0o777)
        return "others than its owner may write it: chmod go-w"
    if how == "above it open to a group":
        (site.sidecars / "1979").chmod(0o775)
        return "others than its owner may write it: chmod go-w"
    if how == "replicas open to all":
        (site.sidecar / "replicas").chmod(0o777)
        return "others than its owner may write it: chmod go-w"
    if how == "one replica open to all":
        replica.chmod(0o777)
        return ""
    if how == "a link":
        moved = site.place / "moved"
        site.sidecar.rename(moved)
        site.sidecar.symlink_to(moved)
        return "links are not followed"
    if how == "replicas behind a link":
        moved = site.place / "moved"
        (site.sidecar / "replicas").rename(moved)
        (site.sidecar / "replicas").symlink_to(moved)
        return "links are not followed"
    if how == "of somebody else":
        os.chown(site.sidecar, USER, USER)
        return f"belongs to user {USER}"
    if how == "a catalogue of somebody else":
        for path in (site.sidecar / "catalogue").iterdir():
            os.chown(path, USER, USER)
        return ""
    assert how == "elements of somebody else"
    for path in replica.rglob("c.*"):
        os.chown(path, USER, USER)
    return ""


@needs_root
@pytest.mark.parametrize(
    "how",
    [
        "open to all",
        "above it open to a group",
        "replicas open to all",
        "one replica open to all",
        "a link",
        "replicas behind a link",
        "of somebody else",
        "a catalogue of somebody else",
        "elements of somebody else",
    ],
)
def test_what_others_than_the_owners_could_have_written_is_not_read(site: Site, how: str) -> None:
    site.optimize()
    assert site.read()["used"]
    said = harm(site, how)
    found = site.read()
    assert not found["used"] or found["broken"] == [True]
    assert len(found["warnings"]) <= 1
    if said:
        (line,) = found["warnings"]
        assert said in line and str(site.sidecars) in line


@needs_root
def test_a_sidecar_is_read_by_those_who_may_read_its_source(site: Site) -> None:
    site.path.chmod(0o640)
    os.chown(site.path, 0, USER)
    before = os.umask(0o077)
    try:
        site.optimize()
    finally:
        os.umask(before)
    found = site.sidecar.stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o750, USER)
    assert (site.sidecars / "1979").stat().st_mode & 0o777 == 0o755
    assert site.read(USER)["used"]
    assert not site.run(lambda: os.access(site.sidecar, os.R_OK | os.X_OK), OTHER)


@needs_root
def test_traces_of_a_user_stay_with_the_user_and_those_of_a_keeper_are_the_sites(
    site: Site,
) -> None:
    site.optimize()
    site.read(BEDFORM_TRACE="1")
    assert not (site.sidecar / "traces").exists()
    assert list((site.place / "home" / str(USER)).rglob("traces/*"))
    bf.watch(site.path)
    assert (site.sidecar / "watch").exists()
    bf.watch(site.path, on=False)
    assert not (site.sidecar / "watch").exists()


@needs_root
def test_a_budget_goes_to_no_home_directory_unasked(site: Site) -> None:
    site.archive.chmod(0o555)

    def optimize() -> str:
        try:
            site.optimize()
        except bf.PermissionDeniedError as error:
            return str(error)
        return ""

    line = site.run(optimize)
    assert "set BEDFORM_SIDECAR" in line and "--sidecar DIR" in line and str(site.path) in line
    assert "\n" not in line
    home = site.place / "home" / str(USER)
    assert not list(home.rglob("*.bedform")) and not list(home.rglob("replicas"))
    asked = {"BEDFORM_SIDECAR": str(home / "sidecars"), "BEDFORM_SIDECAR_BYTES": "64 KiB"}
    assert not site.run(optimize, **asked)
    # Requested replicas are exempt from the budget of the small helper files.
    assert site.read(**asked)["used"]


def test_a_keeper_who_cannot_write_there_is_told(site: Site) -> None:
    site.says(f"[{os.geteuid()}]")
    shutil.rmtree(site.sidecars)
    site.sidecars.write_text("")
    with pytest.raises(bf.BedformError, match="says that sidecars go there") as failed:
        site.optimize()
    assert str(site.sidecars) in str(failed.value) and "\n" not in str(failed.value)
    assert {entry.name for entry in site.path.parent.iterdir()} == {"era5.nc"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[sidecars]]\nroot = 3\n", "line 2: [[sidecars]] root is 3"),
        ("[[sidecar]]\n", "line 1: sidecar is not known"),
        ("[[sidecars]]\n" * 300, "line 1: [[sidecars]] lacks"),
        ("[" * 100_000, "line 1"),
        ("a" * (2 << 20), "more than a configuration may have"),
    ],
)
def test_a_site_file_that_is_wrong_keeps_nobody_from_reading(
    site: Site, text: str, said: str
) -> None:
    site.config.write_text(text)
    with pytest.warns(bf.SidecarWarning) as warned, bf.open(site.path) as store:
        assert (store["t"][:, 1, 1] == site.values[:, 1, 1]).all()
    (line,) = [str(one.message) for one in warned]
    assert said in line and str(site.config) in line and "\n" not in line
    with pytest.raises(bf.BedformError) as failed:
        site.optimize()
    assert said in str(failed.value) and "\n" not in str(failed.value)


def test_a_plan_says_what_is_wrong_with_a_site_file(site: Site) -> None:
    site.config.write_text("[[sidecars]]\nowner = 0\n")
    with pytest.warns(bf.SidecarWarning, match="owner is not known"):
        site.optimize(dry_run=True)


def test_a_site_file_that_others_may_write_trusts_nobody(site: Site) -> None:
    site.optimize()
    site.config.chmod(0o666)
    with pytest.warns(bf.SidecarWarning, match="others than its owner may write it"):
        bf.open(site.path).close()
    with pytest.raises(bf.PermissionDeniedError, match="others than its owner may write it"):
        site.optimize()


def test_a_file_beside_a_store_names_nobody_whose_sidecars_are_trusted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEDFORM_CONFIG")
    store = bf.create(site.place / "run.zarr")
    (site.place / "bedform.toml").write_bytes(site.config.read_bytes())
    with pytest.raises(bf.InvalidArgumentError, match="alone"), store.session() as session:
        session.commit()
    (site.place / "bedform.toml").unlink()


def test_the_deepest_root_counts_and_a_root_may_be_a_link(site: Site) -> None:
    link = site.place / "link"
    link.symlink_to(site.archive)
    deeper = site.place / "fast" / "deeper"
    user = os.geteuid()
    site.config.write_text(
        f'[[sidecars]]\nroot = "{link}"\nsidecars = "{site.sidecars}"\nowners = [{user}]\n'
        f'[[sidecars]]\nroot = "{site.archive}/1979"\nsidecars = "{deeper}"\nowners = [{user}]\n'
    )
    assert site.optimize().made
    assert (deeper / "era5.nc.bedform" / "replicas").is_dir()
    assert not list(site.sidecars.iterdir())
    other = site.archive / "other.nc"
    shutil.copy(site.path, other)
    assert bf.optimize(link / "other.nc", "400%", reads={"time": 1}).made
    assert (site.sidecars / "other.nc.bedform" / "replicas").is_dir()
    with bf.open(other) as store:
        assert store["t"].explain(np.s_[:, 1, 1]).to_dict()["replicas"]
