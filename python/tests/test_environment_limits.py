"""F23: limits of the environment: memory, sizes, files, processes, unwritable places.

Every case is a separate process. Its result is right, or an error that names the limit; limits of
the environment are never reported as damage of a file.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.reliability

PRELUDE = """
import os, resource, sys
import numpy as np
import bedform as bf
root = sys.argv[1]
expected = np.arange(400_000, dtype="float64").reshape(400, 1000)
def limit(name, count):
    hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (count, count))
def used():
    return int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
def is_right(array):
    assert (array[:] == expected).all()
    print("right")
def write(store, settle="end"):
    with store.session(settle=settle) as session:
        session.write("t", expected + 1, start=(0, 0))
        session.commit()
    print("right")
"""

READ = {
    "hdf5": 'is_right(bf.open(root + "/file.h5")["t"])',
    "netcdf4": 'is_right(bf.open(root + "/file.nc")["t"])',
    "store": 'is_right(bf.open(root + "/store.zarr")["t"])',
}
MIB = 1 << 20
#: Seconds after which a process counts as hanging, on the busiest machine.
HANG = 900


def cases() -> dict[str, tuple[str, str]]:
    """Returns scripts, and the text that the error of each must contain."""
    found = {}
    for what, read in READ.items():
        for mib in (200, 400, 600, 1024, 2048, 8192):
            found[f"{what} in {mib} MiB of memory"] = (
                f'limit("AS", {mib * MIB})\n{read}',
                "memory|ulimit -v",
            )
        for mib in (1, 8, 24, 64):
            script = f'limit("AS", used() + {mib * MIB})\n{read}'
            found[f"{what} in {mib} MiB more than it has"] = (script, "memory|ulimit -v|thread")
        for files in (3, 6, 8, 12, 24):
            script = f'limit("NOFILE", {files})\n{read}'
            found[f"{what} with {files} open files"] = (script, "open files|ulimit -n")
    for size in (0, 100, 4096, 1 << 20, 1 << 24):
        limit = f'limit("FSIZE", {size})\n'
        open_store = 'store = bf.open(root + "/store.zarr", "r+")\n'
        found[f"a session, files of {size} bytes"] = (
            limit + open_store + "write(store)",
            "ulimit -f",
        )
        direct = 'store["t"][:] = expected\nis_right(store["t"])'
        found[f"direct writes, files of {size} bytes"] = (limit + open_store + direct, "ulimit -f")
        create = 'bf.create(root + "/new.zarr", {"a": "x" * 3000})\nprint("right")'
        found[f"a new store, files of {size} bytes"] = (limit + create, "ulimit -f")
    for what, read in READ.items():
        # The sidecar cannot be written: no file is kept.
        found[f"{what}, files of 0 bytes"] = ('limit("FSIZE", 0)\n' + read, "ulimit -f")
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("limits")
    values = np.arange(400_000, dtype="float64").reshape(400, 1000)
    for name in ("file.h5", "file.nc"):
        with h5py.File(root / name, "w") as file:
            file.create_dataset("t", data=values, chunks=(100, 1000), compression="gzip")
    with bf.create(root / "store.zarr") as store:
        array = store.create_array("t", shape=(400, 1000), dtype="float64", codecs=["zstd"])
        array[:] = values
    return root


def run(root: Path, script: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(root)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(root / "cache")},
        timeout=HANG,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def check(story: str, outcome: tuple[int, str], names: str) -> str | None:
    """Returns the fault of a case's outcome, if any."""
    code, said = outcome
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if code == 0 and "right" in said.splitlines():
        return None
    # Python itself, or the engine's allocator, may lack memory: that error names the limit, too.
    is_without_memory = "MemoryError" in last or (code == -6 and "memory allocation of" in said)
    is_ours = (
        code == 1 and last.startswith("bedform.") and any(name in said for name in names.split("|"))
    )
    if not (is_ours or is_without_memory):
        return f"{story}: {code}: {said[-600:]}"
    if "damaged" in last and "or it is damaged" not in last:
        return f"{story}: called damaged: {last}"
    return None


def copies(root: Path, count: int, parent: Path) -> list[Path]:
    made = [parent / str(number) for number in range(count)]
    for one in made:
        shutil.copytree(root, one, symlinks=True)
    return made


def test_limits_of_the_system_are_named(place: Path, tmp_path: Path) -> None:
    every = list(cases().items())
    places = copies(place, len(every), tmp_path)

    def outcome(one: tuple[Path, tuple[str, tuple[str, str]]]) -> str | None:
        where, (story, (script, names)) = one
        found = check(story, run(where, script), names)
        shutil.rmtree(where)
        return found

    with ThreadPoolExecutor(2) as pool:
        wrong = [found for found in pool.map(outcome, zip(places, every, strict=True)) if found]
    if wrong:
        raise AssertionError("\n".join(wrong))
    print(f"\nCOUNT environment_limits {len(every)}")  # noqa: T201 - the stage reads it


#: Another user than root, since limits and rights do not apply to root; it may read everything.
AS_USER = [
    "setpriv", "--reuid=65534", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
]  # fmt: skip
FAIL_AT_ONCE = """
store = bf.open(root + "/store.zarr", "r+")
try:
    store.session(settle="later")
except bf.BedformError as error:
    assert error.kind in ("ReadOnly", "PermissionDenied"), error.kind
    raise
raise SystemExit("a session began")
"""
READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0}"
FULL = "mount -t tmpfs -o size=4k none {0}/full && (cat /dev/zero > {0}/full/x || true) 2>/dev/null"
WRITE_ONE = 'bf.open(root + "/store.zarr", "r+")["t"][0] = 7'
FILL = """
store = bf.create(root + "/full/a.zarr")
store.create_array("t", shape=(400, 1000), dtype="float64", codecs=["zstd"])[:] = expected
"""


def cases_in_places() -> dict[str, tuple[str, str, str, dict[str, str]]]:
    """Returns cases: mounts, script, required text of the error, environment."""
    own = dict.fromkeys(("XDG_CACHE_HOME", "TMPDIR", "HOME"), "{0}/full")
    found = {
        "a session on a read-only mount": (READ_ONLY, FAIL_AT_ONCE, "read-only", {}),
        "a write on a read-only mount": (READ_ONLY, WRITE_ONE, "read-only", {}),
        "a store in a full place": (
            "mount -t tmpfs -o size=64k none {0}/full",
            FILL,
            "no space left",
            {},
        ),
    }
    for what, read in READ.items():
        found[f"{what} on a read-only mount"] = (READ_ONLY, read, "", {})
        found[f"{what} with full places for files of its own"] = (FULL, read, "", own)
    return found


def run_in(root: Path, prepare: str, script: str, changes: dict[str, str]) -> tuple[int, str]:
    """Runs a case in its own mounts."""
    (root / "full").mkdir()
    environment = {name: value.format(root) for name, value in changes.items()}
    command = f'{prepare.format(root)} && exec "$@"'
    python = [sys.executable, "-c", PRELUDE + script, str(root)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, "sh", *python],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(root / "cache"), **environment},
    )
    return done.returncode, done.stdout + done.stderr


def test_places_that_take_no_writes_are_read_and_named(place: Path, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:  # noqa: S607
        pytest.skip("the system lets nobody mount")
    wrong = []
    every = cases_in_places()
    for where, (story, case) in zip(
        copies(place, len(every), tmp_path), every.items(), strict=True
    ):
        prepare, script, names, changes = case
        wrong.append(check(story, run_in(where, prepare, script, changes), names or "nothing"))
    if any(wrong):
        raise AssertionError("\n".join(filter(None, wrong)))
    print(f"\nCOUNT environment_limits {len(every)}")  # noqa: T201 - the stage reads it


def test_a_user_with_few_rights_and_processes_reads(place: Path, tmp_path: Path) -> None:
    prefix = AS_USER if os.geteuid() == 0 else []
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("nobody else can be this user")
    mine = "import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({0}, {0}))\n"
    write = 'write(bf.open(root + "/store.zarr", "r+"))'
    every: dict[str, tuple[str, str, int, dict[str, str]]] = {}
    for what, read in READ.items():
        for processes in (1, 2, 4):
            story = f"{what} with {processes} processes"
            every[story] = (mine.format(processes) + read, "ulimit -u|process", 0o755, {})
        every[f"{what} without HOME"] = (
            read,
            "",
            0o755,
            {"HOME": "unset", "XDG_CACHE_HOME": "unset"},
        )
        every[f"{what} in a directory that takes no files"] = (read, "", 0o555, {})
        every[f"{what} with umask 077"] = ("os.umask(0o077)\n" + read, "", 0o755, {})
    every["a session with 1 process"] = (mine.format(1) + write, "ulimit -u|process", 0o755, {})
    every["a session with umask 077"] = ("os.umask(0o077)\n" + write, "", 0o755, {})
    every["a session in a store that takes no files"] = (FAIL_AT_ONCE, "ermission", 0o555, {})
    wrong = []
    for where, (story, (script, names, mode, changes)) in zip(
        copies(place, len(every), tmp_path), every.items(), strict=True
    ):
        for one in (where, *where.rglob("*")):
            if prefix:
                os.chown(one, 65534, 65534)
            if one.is_dir():
                one.chmod(mode)
        environment = {**os.environ, "XDG_CACHE_HOME": str(where / "cache"), **changes}
        done = subprocess.run(
            [*prefix, sys.executable, "-c", PRELUDE + script, str(where)],
            capture_output=True, text=True, timeout=HANG, check=False,
            env={name: value for name, value in environment.items() if value != "unset"},
        )  # fmt: skip
        wrong.append(check(story, (done.returncode, done.stdout + done.stderr), names or "nothing"))
        if mode == 0o755 and "umask" in story and "session" in story:
            made = [one for one in where.rglob("*") if one.stat().st_mode & stat.S_IRWXO == 0]
            assert made, "nothing was made under the umask"
    if any(wrong):
        raise AssertionError("\n".join(filter(None, wrong)))
    print(f"\nCOUNT environment_limits {len(every)}")  # noqa: T201 - the stage reads it
