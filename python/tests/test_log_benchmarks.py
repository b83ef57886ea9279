"""The parts of the log benchmarks that define the measurements: maps, workloads, counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import burst, log_flash, log_s3d  # noqa: E402
from benchmarks.harness import calls, e3sm, e3sm_io, parallel  # noqa: E402
from benchmarks.harness.decomposition import (  # noqa: E402
    Decomposition,
    enlarge,
    read_map,
    redistribute,
    write_map,
)
from benchmarks.harness.e3sm_io import TIME, E3smIo  # noqa: E402
from benchmarks.harness.log_report import settled_ahead  # noqa: E402
from benchmarks.harness.parallel import OURS, Job, Outcome, Results, Rounds, Writer  # noqa: E402
from benchmarks.harness.workload import Variable, Workload, write_plans  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.night

# Of E3SM-IO's maps of 16 processes: runs of all processes as they are stored, sorted and merged, by
# number of processes.
REAL_RUNS = {
    "f": {2: (243, 17496), 16: (407, 29304)},
    "g": {2: (29, 51), 16: (125, 214)},
    "i": {2: (445, 6675), 16: (976, 14640)},
}
# The two decompositions of each case.
WHICH = {"f": (1, 2), "g": (0, 1), "i": (0, 1)}
REAL_ELEMENTS = {"f": (866, 62352), "g": (285, 879), "i": (5663, 84945)}


@pytest.fixture(autouse=True)
def path_is_left_as_it_was() -> Iterator[None]:
    """Restores `sys.path` for later modules."""
    yield
    if str(ROOT) in sys.path:
        sys.path.remove(str(ROOT))


def decomposition(owners: list[int], shape: tuple[int, ...]) -> Decomposition:
    """The decomposition in which each element has its owner, run by run."""
    ranks = max(owners) + 1
    starts = tuple(np.flatnonzero(np.array(owners) == rank) for rank in range(ranks))
    return Decomposition(shape, starts, tuple(np.ones_like(part) for part in starts))


@pytest.mark.parametrize("suffix", [".nc", ".h5"])
def test_a_map_is_read_back_as_it_was_written(tmp_path: Path, suffix: str) -> None:
    written = e3sm.synthetic_map("i", 1)
    write_map(tmp_path / f"map{suffix}", written)
    found = read_map(tmp_path / f"map{suffix}")
    assert [one.shape for one in found] == [one.shape for one in written]
    for one, other in zip(found, written, strict=True):
        assert np.array_equal(one.owners(), other.owners())
        assert one.runs == other.runs


def test_runs_that_only_say_what_is_missing_are_left_out(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "map.h5"
    write_map(path, [decomposition([0, 0, 1, 0, 1, 1], (6,))])
    with h5py.File(path, "r+") as file:
        # The last run of each process is a fill value.
        file["D1.fill_starts"][...] = file["D1.nreqs"][...] - 1
    assert read_map(path)[0].owners().tolist() == [0, 0, 1, -1, 1, -1]


@pytest.mark.parametrize(
    ("variable", "values"),
    [("D1.offsets", [0, 9]), ("D1.lengths", [1, 0]), ("D1.nreqs", [3]), ("D1.fill_starts", [-1])],
)
def test_a_map_that_contradicts_itself_is_refused(
    tmp_path: Path, variable: str, values: list[int]
) -> None:
    import h5py

    path = tmp_path / "map.h5"
    write_map(path, [decomposition([0, 0], (2,))])
    with h5py.File(path, "r+") as file:
        file[variable][...] = values
    with pytest.raises(ValueError, match="D1 contradict each other"):
        read_map(path)


def test_a_file_that_is_no_map_is_refused(tmp_path: Path) -> None:
    import h5py

    h5py.File(tmp_path / "other.h5", "w").close()
    with pytest.raises(ValueError, match="no map of decompositions"):
        read_map(tmp_path / "other.h5")


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 16, 20])
def test_other_numbers_of_processes_take_groups_of_neighbours(ranks: int) -> None:
    whole = e3sm.synthetic_map("g", 1)[3]
    found = redistribute(whole, ranks)
    assert found.ranks == ranks
    share, more = divmod(16, ranks)
    group = [rank for rank in range(min(ranks, 16)) for _ in range(share + (rank < more))]
    expected = np.where(whole.owners() < 0, -1, np.array(group)[whole.owners()])
    assert np.array_equal(found.owners(), expected)


def test_runs_are_merged_but_never_across_the_end_of_a_row() -> None:
    found = redistribute(decomposition([0, 1, 0, 1, 1, 0, 0, 0], (2, 4)), 1)
    assert found.starts[0].tolist() == [0, 4]
    assert found.lengths[0].tolist() == [4, 4]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_larger_map_is_the_same_one_several_times_along_an_axis(axis: int) -> None:
    small = decomposition([0, 1, 1, 2, 0, 0], (2, 3))
    large = enlarge(small, 3, axis)
    assert np.array_equal(large.owners(), np.concatenate([small.owners()] * 3, axis))
    assert large.runs == 3 * small.runs
    assert all(np.all(np.diff(starts) > 0) for starts in large.starts)


@pytest.mark.parametrize("letter", ["f", "g", "i"])
@pytest.mark.parametrize("ranks", [2, 16])
def test_drawn_maps_have_runs_like_the_real_ones(letter: str, ranks: int) -> None:
    times = 8
    drawn = e3sm.synthetic_map(letter, times)
    for at, runs, elements in zip(
        WHICH[letter], REAL_RUNS[letter][ranks], REAL_ELEMENTS[letter], strict=True
    ):
        found = redistribute(drawn[at], ranks)
        sizes = [found.elements(rank) for rank in range(ranks)]
        assert sum(sizes) / times == pytest.approx(elements, rel=0.1)
        # Mean length of a run; with two processes chance has more influence.
        assert sum(sizes) / found.runs == pytest.approx(elements / runs, rel=0.45)
        assert min(sizes) > 0.8 * max(sizes)


@pytest.mark.parametrize(
    ("name", "variables", "partitioned", "bytes_of_one_record"),
    [
        ("F h0", 414, (1, 323, 63), 33673696),
        ("F h1", 51, (1, 22, 1), 661776),
        ("G", 52, (6, 2, 25, 2, 2, 4), 8296404),
    ],
)
def test_cases_have_the_variables_of_e3sm(
    name: str, variables: int, partitioned: tuple[int, ...], bytes_of_one_record: int
) -> None:
    case = e3sm.CASES[name]
    whole = e3sm.synthetic_map(case.letter, 1)
    workload = e3sm.workload_of(case, whole, 4, 1)
    assert len(workload.variables) == variables
    counted = [
        sum(one.decomposition == at for one in workload.variables) for at in range(len(whole))
    ]
    assert tuple(counted) == partitioned
    assert workload.bytes() == bytes_of_one_record == sum(e3sm.record_bytes(case, whole))


def test_land_has_the_variables_of_e3sm() -> None:
    whole = e3sm.synthetic_map("i", 1)
    for name, variables, partitioned in (
        ("I h0", 560, (465, 75, 4, 1, 1)),
        ("I h1", 552, (465, 69, 2, 1, 1)),
    ):
        made = e3sm.variables_of(e3sm.CASES[name], whole)
        assert len(made) == variables
        counted = [sum(one.decomposition == at for one in made) for at in range(5)]
        assert tuple(counted) == partitioned
        assert [one.has_record for one in made] == sorted(one.has_record for one in made)


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_blocks_cover_their_arrays_once(ranks: int) -> None:
    for parts in (log_s3d.parts(ranks), log_flash.parts(ranks)):
        for blocks in parts[0]:
            sizes = [blocks.elements(rank) for rank in range(ranks)]
            assert sum(sizes) == np.prod(blocks.shape)
            assert np.bincount(blocks.owners().reshape(-1)).tolist() == sizes


def test_what_goes_through_the_burst_tier_covers_its_arrays_once() -> None:
    (lines,), _ = burst.transfers(4, 64)
    for blocks in (lines, burst.multipartition(4, 8), burst.multipartition(9, 6)):
        ranks = blocks.ranks
        sizes = [blocks.elements(rank) for rank in range(ranks)]
        assert np.bincount(blocks.owners().reshape(-1)).tolist() == sizes
        assert set(sizes) == {np.prod(blocks.shape) // ranks}


def test_what_must_be_read_back_is_the_owner_and_the_variable() -> None:
    one = decomposition([0, 1, 1], (4,))
    variables = (Variable("a", "int32", (4,), 0, True), Variable("b", "uint8", (2,), -1, False))
    workload = Workload("small", 2, 3, (one,), variables)
    assert workload.expected(0, fill=9).tolist() == [0, 1, 1, 9]
    assert workload.expected(1).tolist() == [64, 64]
    assert workload.bytes() == 3 * 3 * 4 + 2
    assert workload.requests() == 3 * 3 + 1


def test_the_driver_reads_the_plan_that_was_written(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    whole = e3sm.synthetic_map("g", 1)
    workload = e3sm.workload_of(e3sm.CASES["G"], whole, 4, 2)
    plans = write_plans(workload, tmp_path)
    source = tmp_path / "print.c"
    source.write_text(
        '#include "plan.h"\n'
        "int main(int count, char **words) {\n"
        "  plan all = plan_read(words[count - 1]);\n"
        '  printf("%ld %ld %ld", (long)all.rank, (long)all.variable_count, (long)all.bytes);\n'
        "  return 0;\n}\n"
    )
    drivers = ROOT / "benchmarks" / "drivers"
    program = tmp_path / "print"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{drivers}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    for rank, path in enumerate(plans):
        printed = subprocess.run([program, path], capture_output=True, text=True, check=True).stdout
        of_one_record = sum(workload.elements(one, rank) * one.item for one in workload.variables)
        assert printed == f"{rank} 52 {of_one_record}"


def test_calls_on_other_files_and_failed_ones_are_not_counted(tmp_path: Path) -> None:
    lines = [
        'pwrite64(3</data/out/x>, ""..., 4096, 0) = 4096',
        'write(1</dev/pts/0>, ""..., 10) = 10',
        'openat(AT_FDCWD</tmp>, "/data/out/x", O_RDWR|O_CREAT, 0666) = 3</data/out/x>',
        'openat(AT_FDCWD</tmp>, "/data/out/y", O_RDONLY) = -1 ENOENT (No such file or directory)',
        "fsync(3</data/out/x>)                   = 0",
    ]
    (tmp_path / "calls.77").write_text("\n".join(lines))
    found = calls.count(tmp_path / "calls", Path("/data/out"))
    assert found == calls.Calls(writes=1, bytes=4096, files=1, syncs=1)


def test_versions_are_found_in_what_e3sm_io_prints() -> None:
    printed = (
        "HDF5 library version = HDF5 library version: 2.0.0\nPnetCDF library version = 1.15.0\n"
    )
    assert e3sm_io.LIBRARY_VERSION.findall(printed) == [("HDF5", "2.0.0"), ("PnetCDF", "1.15.0")]


def test_times_are_found_in_what_e3sm_io_prints() -> None:
    import re

    printed = "end-to-end time                    min/max =   0.4896 /   0.4912\n"
    assert re.findall(TIME.format("end-to-end time"), printed) == ["0.4912"]


def script(path: Path, lines: str) -> str:
    """An executable shell script; its path."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes an mpiexec that starts one process, and a directory for its outputs."""
    monkeypatch.setenv("MPIEXEC", script(tmp_path / "mpiexec", 'shift 2; exec "$@"'))
    monkeypatch.setattr(e3sm_io, "ROOT", tmp_path)
    monkeypatch.setattr(parallel, "ROOT", tmp_path)


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    ("says", "missing"),
    [
        (
            "Error in e3sm_io.c line 709: Using HDF5 was not enabled in this E3SM I/O build",
            "an E3SM-IO that was built with a parallel HDF5",
        ),
        (
            "e3sm_io: error while loading shared libraries: libhdf5.so.320: cannot open it",
            "the library libhdf5.so.320",
        ),
    ],
)
def test_a_program_without_hdf5_is_missing_for_hdf5_alone(
    tmp_path: Path, says: str, missing: str
) -> None:
    test = f'case "$*" in *"-a hdf5"*) echo "{says}" >&2; exit 1;; esac; exit 1'
    program = script(tmp_path / "e3sm_io", test)
    assert E3smIo(e3sm_io.HDF5_BLOB, program).missing().startswith(missing)
    assert "\n" not in E3smIo(e3sm_io.HDF5_BLOB, program).missing()
    # Its message about an invalid map is not mistaken for a missing library.
    assert E3smIo(e3sm_io.CANONICAL, program).missing() == ""


def test_hints_reach_pnetcdf_by_a_variable_and_mpi_io_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e3sm_io, "ROOT", tmp_path)
    setting = "one flush, sleeping, cb_nodes=4;cb_config_list=*:*"
    found = E3smIo(e3sm_io.CANONICAL, None).environment(setting)
    assert found == e3sm_io.THROTTLE | {"PNETCDF_HINTS": "cb_nodes=4;cb_config_list=*:*"}
    found = E3smIo(e3sm_io.HDF5_BLOB, None).environment(setting)
    assert Path(found["ROMIO_HINTS"]).read_text() == "cb_nodes 4\ncb_config_list *:*\n"
    assert E3smIo(e3sm_io.CANONICAL, None).environment("one flush, spinning, no hints") == {}
    assert "cb_nodes=16" in e3sm_io.hints_of(e3sm_io.CANONICAL, 16)


class Timed(Writer):
    """A writer with settings of the given seconds; it is stopped at its time limit."""

    def __init__(self, seconds: dict[str, float], first: list[str]) -> None:
        self.seconds, self.first = seconds, first
        self.tried: list[str] = []

    def variants(self, job: Job) -> list[str]:
        return self.first

    def refinements(self, job: Job, best: str) -> list[str]:
        return [one for one in self.seconds if one.startswith(best[0])]

    def write(self, job: Job, folder: Path, variant: str) -> Outcome:
        self.tried.append(variant)
        if self.seconds[variant] > self.timeout_seconds:
            raise parallel.TooSlowError(variant)
        return Outcome(self.seconds[variant])

    def check(self, job: Job, folder: Path) -> None:
        """Checks nothing, since it writes nothing."""


def test_the_fastest_setting_is_refined_and_slow_tries_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ROOT", tmp_path)
    one = decomposition([0, 1], (2,))
    variables = (Variable("a", "int32", (2,), 0, False),)
    job = Job(Workload("small", 2, 1, (one,), variables), ())
    writer = Timed({"a": 9.0, "b": 4.0, "b x": 3.0, "b y": 500.0, "a x": 1.0}, ["a", "b"])
    found = Rounds(job, {"timed": writer}, rounds=1).run(quick=False)
    assert writer.tried == ["a", "b", "b x", "b y", "b x"]
    assert found.variants == {"timed": "b x"}
    assert found.samples == {"timed": [3.0]}
    assert found.tried["timed"]["b y"] == float("inf")
    assert writer.timeout_seconds == parallel.TIMEOUT_SECONDS


@pytest.mark.parametrize(("theirs", "holds"), [(2.9, False), (3.1, True)])
def test_settling_counts_against_the_canonical_file(theirs: float, holds: bool) -> None:
    results = Results({OURS: [1.0, 1.0], "peer": [theirs] * 2}, {OURS: {"settle": [2.0, 2.0]}}, {})
    assert results.settled() == [3.0, 3.0]
    found = settled_ahead("peer")(results)
    assert found is not None
    assert found[1] == holds
    assert results.samples[OURS] == [1.0, 1.0]
