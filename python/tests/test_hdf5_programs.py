"""Programs that read by HDF5 take replicas and are recorded, unchanged, and read the same."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from native import needed, run
from support import ENVIRONMENT, command_line

import bedform as bf
from bedform import _hdf5

READS = Path(__file__).parent / "hdf5_reads.py"
SELECTIONS = Path(__file__).parent / "hdf5_selections.py"
SERIES = {("phony_dim_0",): 1, ("phony_dim_3",): 1, ("phony_dim_6",): 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of many datasets."""
    path = tmp_path / "many.h5"
    python(READS, "write", path)
    return path


def python(*words: str | Path, connected: bool = False, **variables: str) -> str:
    """Returns the output of a Python program, with the connector or without."""
    environment = {**os.environ, **ENVIRONMENT, **variables}
    if connected:
        environment |= _hdf5.environment({}, [sys.executable])
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bedform(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    return subprocess.run(
        [*command_line(), *map(str, words)],
        env={**os.environ, **ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def series_made(path: Path) -> None:
    """Makes replicas for series of all datasets, and turns recording on."""
    bf.watch(path)
    assert len(bf.optimize(path, "2000%", reads=SERIES).made) > 4


def served(path: Path) -> int:
    """Returns the number of recorded reads that replicas served so far."""
    said = bedform("learn", path, "--json")
    assert said.returncode == 0, said.stderr
    return sum(used["reads"] for used in json.loads(said.stdout)["knowledge"]["replicas"].values())


def test_random_reads_are_the_same_bit_for_bit_with_replicas(file: Path) -> None:
    alone = [python(READS, file, str(seed), "250") for seed in (1, 2)]
    assert python(READS, file, "1", "250", connected=True) == alone[0]
    series_made(file)
    assert [python(READS, file, str(seed), "250", connected=True) for seed in (1, 2)] == alone
    assert served(file) > 200


@pytest.mark.parametrize("name", ["plain", "big"])
def test_dataspaces_of_odd_forms_select_the_same_and_touch_no_other_memory(
    file: Path, name: str
) -> None:
    alone = python(SELECTIONS, file, name)
    assert alone.count("\n") == 87
    bf.watch(file)
    places = np.stack(np.unravel_index(np.arange(300 * 30 * 40), (300, 30, 40)))
    points = {name: [{"points": tuple(np.random.default_rng(5).permuted(places, axis=1))}]}
    bf.optimize(file, "9000%", reads=SERIES, selections=points)
    assert python(SELECTIONS, file, name, connected=True) == alone
    assert served(file) > 20


def test_reads_of_a_watched_file_are_recorded_with_their_selections(file: Path) -> None:
    bf.watch(file)
    script = (
        "import h5py, sys; file = h5py.File(sys.argv[1])\n"
        "for at in range(9): file['plain'][:, at, 7]; file['link'][3, at:20:2]"
    )
    python("-c", script, file, connected=True)
    said = json.loads(bedform("learn", file, "--json").stdout)["knowledge"]["arrays"]
    assert {name: array["read"]["reads"] for name, array in said.items()} == {"plain": 9, "big": 9}
    assert said["plain"]["read"]["bytes"] == 9 * 300 * 4


def test_a_replica_that_is_harmed_costs_the_program_nothing(file: Path) -> None:
    alone = python(READS, file, "5", "120")
    series_made(file)
    chance = random.Random(7)
    parts = [part for part in Path(f"{file}.bedform").rglob("*") if part.is_file()]
    for part in parts:
        data = bytearray(part.read_bytes())
        for _ in range(20):
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        part.write_bytes(data)
    assert python(READS, file, "5", "120", connected=True) == alone


ARCHIVE = """
import sys, h5py, netCDF4, xarray as xr
told, paths = [], sys.argv[1:]
for path in paths:
    with h5py.File(path) as file:
        told += [file["v"][3:20:2, 5, [1, 7, 40]].tolist(), file["time"][3], file["w"][-1].sum()]
        try:
            told.append(file["v"][24:, 1, 1].tolist() + file["v"][24, 0, 0])
        except (IndexError, ValueError) as error:
            told.append(str(error))
    with netCDF4.Dataset(path) as file:
        told += [float(file["v"][:, 9, 9].sum()), file["v"][5:7].sum()]
how = {"combine": "nested", "concat_dim": "time", "chunks": {"time": 24}}
with xr.open_mfdataset(paths, engine="netcdf4", **how) as one:
    told += [one.v[:, 4, 4].values.sum(), str(one.time.values[30])]
print(told)
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files of one archive, with times in units of their own, in both byte orders."""
    chance = np.random.default_rng(3)
    paths = [tmp_path / f"{number}.nc" for number in range(4)]
    for number, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            for name, length in {"time": None, "y": 30, "x": 50}.items():
                file.createDimension(name, length)
            time = file.createVariable("time", "f8", ("time",))
            time.units = f"days since 2000-01-{1 + number:02}"
            time[:] = np.arange(24) / 24
            order = "big" if number == 2 else "little"
            kept = {"zlib": number % 2 == 0, "chunksizes": (1, 30, 50), "endian": order}
            for name, kind in {"v": "f4", "w": "i2"}.items():
                values = chance.integers(0, 1000, (24, 30, 50)).astype(kind)
                form = ("<", ">")[order == "big"] + kind
                file.createVariable(name, form, ("time", "y", "x"), **kept)[:] = values
    return paths


def test_files_of_an_archive_are_recorded_and_served_as_the_archive(files: list[Path]) -> None:
    names = [str(path) for path in files]
    alone = python("-c", ARCHIVE, *names)
    bf.watch(names)
    assert python("-c", ARCHIVE, *names, connected=True) == alone
    arrays = bf.learn(names)["knowledge"]["arrays"]
    assert arrays["v"]["read"]["reads"] == 3 * len(files)
    assert set(arrays) == {"v", "w", "time"}
    bf.optimize(names, "500%", reads={("time",): 1})
    assert python("-c", ARCHIVE, *names, connected=True) == alone
    replicas = bf.learn(names)["knowledge"]["replicas"].values()
    assert sum(used["reads"] for used in replicas) == len(files)
    with netCDF4.Dataset(files[1], "a") as file:
        file["v"][:, 9, 9] = -5
    changed = python("-c", ARCHIVE, *names)
    assert changed != alone
    assert python("-c", ARCHIVE, *names, connected=True) == changed


IN_TURN = """
import os, sys, h5py
first, second = sys.argv[1:3], sys.argv[3:]
told = []
for _ in range(2):
    for path in (first[0], second[0], first[1], second[1]):
        with h5py.File(path) as file:
            told.append(file["v"][:, 3, 4].tolist())
names = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
         if os.path.lexists(f"/proc/self/fd/{name}")]
print(told, [name for name in names if name.endswith(".nc")])
"""


def test_archives_of_one_directory_are_told_apart_and_leave_no_file_open(files: list[Path]) -> None:
    names = [str(path) for path in files]
    alone = python("-c", IN_TURN, *names)
    for archive in (names[:2], names[2:]):
        bf.watch(archive)
        bf.optimize(archive, "500%", reads={("time",): 1})
    assert python("-c", IN_TURN, *names, connected=True) == alone
    for archive in (names[:2], names[2:]):
        knowledge = bf.learn(archive)["knowledge"]
        assert knowledge["arrays"]["v"]["read"]["reads"] == 4
        assert sum(used["reads"] for used in knowledge["replicas"].values()) > 0


FORKED = """
import os, sys, h5py
with h5py.File(sys.argv[1]) as known, h5py.File(sys.argv[2]) as file:
    known["v"][:, 3, 4]
    child = os.fork()
    sums = [float(one["v"][:, 5, 6].sum()) for one in (known, file)]
    if child == 0:
        with h5py.File(sys.argv[3]) as other:
            sums.append(float(other["v"][:, 5, 6].sum()))
    # One call: with PYTHONUNBUFFERED, print writes the line and its end by two.
    os.write(1, f"{sums}\\n".encode())
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_reads_files_that_its_parent_has_opened(files: list[Path]) -> None:
    names = [str(path) for path in files]
    alone = sorted(python("-c", FORKED, *names).splitlines())
    bf.watch(names)
    bf.optimize(names, "500%", reads={("time",): 1})
    assert sorted(python("-c", FORKED, *names, connected=True).splitlines()) == alone


def test_a_file_that_no_archive_lists_is_left_to_hdf5(files: list[Path]) -> None:
    names = [str(path) for path in files]
    bf.watch(names[:3])
    with h5py.File(files[3], "r+") as file:
        file["v"][:, 3, 3] = 7
    script = "import sys, h5py; print(set(h5py.File(sys.argv[1])['v'][:, 3, 3].tolist()))"
    assert python("-c", script, names[3], connected=True) == "{7.0}\n"
    with pytest.raises(bf.NotFoundError, match="no reads are recorded"):
        bf.learn(names[:3])


CHANGING = """
import sys, h5py, numpy as np, subprocess
path = sys.argv[1]
with h5py.File(path) as file:
    before = file["plain"][:, 3, 4]
    change = "import h5py, sys; h5py.File(sys.argv[1], 'r+')['plain'][:, 3, 4] = -1.0"
    subprocess.run([sys.executable, "-c", change, path], check=True)
    after = file["plain"][:, 3, 4]
with h5py.File(path, "r+") as file:
    file["plain"][:, 3, 4] = -2.0
    own = file["plain"][:, 3, 4]
with h5py.File(path) as file:
    last = file["plain"][:, 3, 4]
print([sorted({float(value) for value in values})[:2] for values in (after, own, last)])
"""


def test_values_are_those_of_the_last_writer(file: Path) -> None:
    """Another process changes the file while it is open; then this one does."""
    series_made(file)
    said = python("-c", CHANGING, file, connected=True, HDF5_USE_FILE_LOCKING="FALSE")
    assert said == "[[-1.0], [-2.0], [-2.0]]\n"


TWO_LIBRARIES = """
import sys, h5py, netCDF4, numpy as np
path = sys.argv[1]
with netCDF4.Dataset(path) as file, h5py.File(path, "r+") as other:
    other["plain"][:, 3, 4] = 5.0
    other.flush()
    print(set(file["plain"][:, 3, 4].tolist()))
"""


def test_a_file_that_another_library_of_the_process_writes_is_left_to_hdf5(file: Path) -> None:
    series_made(file)
    assert (
        python("-c", TWO_LIBRARIES, file, connected=True, HDF5_USE_FILE_LOCKING="FALSE")
        == "{5.0}\n"
    )


def test_run_records_and_redirects_a_program_that_knows_nothing(file: Path) -> None:
    alone = python(READS, file, "3", "100")
    bf.watch(file)
    done = bedform("run", "--hdf5", "--", sys.executable, READS, file, "3", "100")
    assert (done.returncode, done.stdout) == (0, alone), done.stderr
    series_made(file)
    done = bedform("run", "--hdf5", "--", sys.executable, READS, file, "3", "100")
    assert (done.returncode, done.stdout) == (0, alone), done.stderr
    assert served(file) > 50


def test_a_program_without_hdf5_runs_and_one_line_says_so(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    done = bedform("run", "--hdf5", "--", bare / "bin" / "python", "-c", "print(7)")
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr.count("\n") == 1
    assert "loads no HDF5" in done.stderr


def test_the_variables_are_exported_and_taken_back(tmp_path: Path) -> None:
    filters = tmp_path / "my filters"
    filters.mkdir()
    on = bedform("hdf5-env", HDF5_PLUGIN_PATH=str(filters))
    assert on.returncode == 0, on.stderr
    script = f"{on.stdout}\nprintenv HDF5_VOL_CONNECTOR HDF5_PLUGIN_PATH"
    said = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert said == f"bedform\n{_hdf5.PLUGINS}:{filters}\n"
    path = said.splitlines()[1]
    off = bedform("hdf5-env", "--off", HDF5_PLUGIN_PATH=path, HDF5_VOL_CONNECTOR="bedform")
    assert off.stdout.splitlines() == [
        "unset HDF5_VOL_CONNECTOR",
        f"export HDF5_PLUGIN_PATH='{filters}'",
    ]


def test_another_connector_is_not_replaced() -> None:
    done = bedform("hdf5-env", HDF5_VOL_CONNECTOR="async under_vol=0;under_info={}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "names another connector, 'async under_vol=0;under_info={}'" in done.stderr


def test_filters_of_netcdf4_stay_behind_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "zstd.nc"
    make = (
        "import netCDF4, numpy as np, sys\n"
        "with netCDF4.Dataset(sys.argv[1], 'w') as file:\n"
        "    file.createDimension('x', 999)\n"
        "    file.createVariable('v', 'f4', ('x',), compression='zstd')[:] = np.arange(999.0)"
    )
    read = "import netCDF4, sys; print(netCDF4.Dataset(sys.argv[1])['v'][:].sum())"
    python("-c", make, path)
    words = ["/bin/sh", "-c", f'"{sys.executable}" -c "$0" "$1"', read, path]
    done = bedform("run", "--hdf5", "--", *words)
    assert (done.returncode, done.stdout) == (0, "498501.0\n"), done.stderr


def test_a_static_program_is_started_once(tmp_path: Path) -> None:
    source, program = tmp_path / "a.c", tmp_path / "static"
    source.write_text('#include <stdio.h>\nint main(int n) { printf("%d\\n", n); return 3; }\n')
    run(needed("cc", "apt-get install gcc"), "-static", source, "-o", program)
    done = bedform("run", "--hdf5", "--", program, "a", "b")
    assert (done.returncode, done.stdout) == (3, "3\n")


def test_a_connector_that_does_not_load_is_refused_before_the_program_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmed = tmp_path / "plugins"
    harmed.mkdir()
    (harmed / "libbedform_hdf5.so").write_bytes(b"\x7fELF no library")
    monkeypatch.setattr(_hdf5, "PLUGINS", harmed)
    with pytest.raises(bf.UnsupportedError, match="does not load into"):
        _hdf5.look_at([sys.executable])


def test_enable_hdf5_comes_before_the_libraries(file: Path) -> None:
    with pytest.raises(bf.InvalidArgumentError, match="before the first import of h5py"):
        bf.enable_hdf5()
    series_made(file)
    script = (
        "import sys, bedform as bf; bf.enable_hdf5()\n"
        "import h5py, netCDF4\n"
        "print(float(h5py.File(sys.argv[1])['plain'][:, 2, 3].sum()))\n"
        "print(float(netCDF4.Dataset(sys.argv[1])['plain'][:, 2, 3].sum()))"
    )
    with h5py.File(file) as opened:
        expected = float(opened["plain"][:, 2, 3].sum())
    assert python("-c", script, file) == f"{expected}\n{expected}\n"
    assert served(file) == 2


def test_bedform_itself_reads_past_the_connector(file: Path) -> None:
    """Reads by the library of a dataset that the engine leaves to it are recorded once."""
    bf.watch(file)
    script = (
        "import sys, bedform as bf; bf.enable_hdf5()\n"
        "store = bf.open(sys.argv[1]); store['plain'][:, 2, 3]; print(store['record'][0, 0, 0])"
    )
    python("-c", script, file)
    said: dict[str, Any] = json.loads(bedform("learn", file, "--json").stdout)["knowledge"][
        "arrays"
    ]
    assert said["plain"]["read"]["reads"] == 1


def test_a_file_of_numbers_without_a_fill_value_is_left_to_hdf5(tmp_path: Path) -> None:
    """HDF5 leaves memory as it is where nothing was written; a replica would have zeros there."""
    path = tmp_path / "undefined.h5"
    with h5py.File(path, "w") as made:
        form = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        form.set_chunk((1, 30, 40))
        form.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((300, 30, 40))
        h5py.h5d.create(made.id, b"t", h5py.h5t.IEEE_F32LE, space, form)
        made["t"][:150] = np.ones((150, 30, 40), "f4")
    bf.watch(path)
    bf.optimize(path, "2000%", reads={("phony_dim_0",): 1})
    script = (
        "import sys, h5py, numpy as np\n"
        "target = np.full((300, 1, 1), 7, 'f4')\n"
        "h5py.File(sys.argv[1])['t'].read_direct(target, np.s_[:, 2:3, 3:4])\n"
        "print(set(target[:150].flat), set(target[150:].flat))"
    )
    assert python("-c", script, path, connected=True) == python("-c", script, path)
