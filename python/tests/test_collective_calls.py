"""Collective calls that differ between processes: real ones, under mpiexec, through mpi4py.

F22: one process of four makes another call than the others, or the same of another array, axis, type,
option or store. All of them get one error that names what each has called, nobody waits, and nothing
is visible but what was committed before. One job runs all cases, each in a store of its own.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from native import mpiexec

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

JOB = """
import itertools, sys
import numpy as np
import bedform as bf
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
layout = bf.Regular(chunks=(2, 2), shards=(4, 4))

def rows(value, count=1):
    return np.full((count, 4), value, "int32")

def append(name="a", axis=0, count=1):
    def call(session):
        values = np.full((count, 4) if axis == 0 else (4, count), rank + 1, "int32")
        return session.append(name, values, axis)
    return call

def create(**other):
    names = other.pop("names", ["new"])
    spec = dict(shape=(4, 4), dtype="int32", dims=("y", "x"), layout=layout, codecs=["zstd"])
    return lambda session: session.create_arrays({name: {**spec, **other} for name in names})

def commit(session): session.commit()
def drain(session): session.drain()
def end(session): session.__exit__(None, None, None)
def both(*calls):
    def call(session):
        for one in calls:
            one(session)
    return call

# By name: what all call but one, what that one calls, what the error says of either, and whether the
# session goes on.
WITHIN = {
    "array": (append(), append("b"), 'append("a", axis 0)', 'append("b", axis 0)', True),
    "axis": (append(), append(axis=1), 'append("a", axis 0)', 'append("a", axis 1)', True),
    "order": (both(append(), append("b")), both(append("b"), append()),
              'append("a", axis 0)', 'append("b", axis 0)', True),
    "append commit": (append(), commit, 'append("a", axis 0)', "commit()", False),
    "append drain": (append(), drain, 'append("a", axis 0)', "drain()", False),
    "append create": (append(), create(), 'append("a", axis 0)', "create_arrays()", True),
    "append end": (append(), end, 'append("a", axis 0)', "end()", False),
    "commit drain": (commit, drain, "commit()", "drain()", False),
    "commit end": (commit, end, "commit()", "end()", False),
    "create commit": (create(), commit, "create_arrays()", "commit()", False),
    "one less": (both(append(), commit), commit, 'append("a", axis 0)', "commit()", False),
    "one more": (commit, both(append(count=0), commit), "commit()", 'append("a", axis 0)', False),
    "elements": (append(), lambda session: session.append("a", rows(1)[:, :3]),
                 "cannot be appended", "[1, 3]", True),
    "name": (create(), create(names=["other"]), "gives", "no ", True),
    "one array more": (create(), create(names=["new", "z"]), '"z"', '"z"', True),
    "dtype": (create(), create(dtype="float64"), '"int32"', '"float64"', True),
    "shape": (create(), create(shape=(4, 8)), "[4,4]", "[4,8]", True),
    "attributes": (create(), create(attributes={"units": "K"}), "attributes", '"K"', True),
    "chunks": (create(), create(layout=bf.Regular(chunks=(1, 4), shards=(4, 4))),
               "[2,2]", "[1,4]", True),
}

def session(store, **options):
    return store.session(comm=comm, **{"settle": "later", **options})

def settle(store, **options):
    store.settle(comm=comm, **options)

# The same of calls that are made on stores: what they are called with is theirs and another one.
OUTSIDE = {
    "store": (lambda own, other: session(own), lambda own, other: session(other), "own.zarr", "other.zarr"),
    "settle option": (lambda own, other: session(own), lambda own, other: session(own, settle="exit"),
                      "settle", "settle"),
    "durability": (lambda own, other: session(own), lambda own, other: session(own, durability="node"),
                   "durability", "durability"),
    "wrong option": (lambda own, other: session(own), lambda own, other: session(own, buffer="much"),
                     "buffer", "much"),
    "durability of the store": (
        lambda own, other: session(own),
        lambda own, other: session(bf.open(own.store_path, mode="r+", durability="process")),
        "durability", "process"),
    "settle": (lambda own, other: session(own), lambda own, other: settle(own), "session()", "settle()"),
    "settled store": (lambda own, other: settle(own), lambda own, other: settle(other),
                      "own.zarr", "other.zarr"),
    "settled arrays": (lambda own, other: settle(own), lambda own, other: settle(own, arrays=["a"]),
                       "settle()", 'settle(arrays ["a"])'),
    "unknown array": (lambda own, other: settle(own), lambda own, other: settle(own, arrays=["c"]),
                      "'c'", "'c'"),
    "read-only": (lambda own, other: session(own), lambda own, other: session(bf.open(own.store_path)),
                "read-only", "r+"),
}

def new_store(place):
    if rank == 0:
        made = bf.create(place)
        for name in ("a", "b"):
            made.create_array(name, (4, 4), "int32", ("y", "x"), layout=layout)
    comm.Barrier()
    return bf.open(place, mode="r+")

def contents(store):
    return {name: np.asarray(store[name][...]).tolist() for name in store}

def raised(act):
    try:
        act()
    except bf.BedformError as error:
        return type(error).__name__, str(error)
    return None

def same(heard, *says):
    # A process that fails by itself is named to the others.
    texts = {text.partition(": ")[2] if text.startswith("rank ") else text for _, text in heard}
    assert len(texts) == 1 and len({kind for kind, _ in heard}) == 1, heard
    assert all(said in text for said in says for text in texts), (says, texts)
    return texts.pop()

def check_within(case, odd, place):
    usual, other, said, said_too, goes_on = WITHIN[case]
    store = new_store(place)
    own = session(store)
    own.write("a", rows(rank + 10), start=(rank, 0))
    own.commit()
    before = contents(store)
    own.write("b", rows(rank + 20), start=(rank, 0))
    call = other if rank == odd else usual
    heard = comm.allgather(raised(lambda: call(own)))
    assert None not in heard, (case, odd, heard)
    text = same(heard, said, said_too)
    assert heard[0][0] == "InvalidArgumentError", heard
    assert any(f"rank {odd}" in text for _, text in heard), (text, odd)
    assert contents(store) == before, case
    if goes_on:
        own.append("a", rows(rank))
        own.commit()
        end(own)
        found = contents(store)
        assert found["a"] == before["a"] + [[r] * 4 for r in range(size)], found
        assert found["b"] == [[r + 20] * 4 for r in range(size)], found
    else:
        heard = comm.allgather(raised(lambda: own.append("a", rows(rank))))
        assert None not in heard, heard
        own.close()
        assert contents(store) == before, case
    comm.Barrier()
    with session(store, settle="exit") as after:
        after.write("a", rows(rank + 30), start=(rank, 0))
    assert store["a"][:4, 0].tolist() == [30, 31, 32, 33]
    assert set(store) == {"a", "b"}

def check_outside(case, odd, place):
    usual, other, said, said_too = OUTSIDE[case]
    own, another = new_store(place + "-own.zarr"), new_store(place + "-other.zarr")
    with session(own) as first:
        first.write("a", rows(rank + 10), start=(rank, 0))
    before = contents(own)
    call = other if rank == odd else usual
    heard = comm.allgather(raised(lambda: call(own, another)))
    assert None not in heard, (case, odd, heard)
    text = same(heard, said, said_too)
    named = (f"rank {odd}", f"and {odd}", "ranks 0")
    assert any(name in text for _, text in heard for name in named), heard
    assert contents(own) == before, case
    comm.Barrier()
    settle(own)
    assert contents(own) == before, case

cases = [(check_within, case) for case in WITHIN] + [(check_outside, case) for case in OUTSIDE]
odd_ranks = [int(text) for text in sys.argv[2].split(",")]
done = 0
for (check, case), odd in itertools.product(cases, odd_ranks):
    check(case, odd, f"{sys.argv[1]}/{done}")
    done += 1
    if rank == 0:
        print(f"{case}, rank {odd}: fine", file=sys.stderr, flush=True)
print(f"cases {done}") if rank == 0 else None
"""


MISSING = """
import logging, sys, time
import numpy as np
import bedform as bf
from mpi4py import MPI

comm = MPI.COMM_WORLD
warnings = []
class Kept(logging.Handler):
    def emit(self, record): warnings.append(record.getMessage())
logging.getLogger("bedform").addHandler(Kept())
store = bf.open(sys.argv[1], mode="r+")
session = store.session(comm=comm, settle="later")
session.write("t", np.full((1, 4), 1, "int32"), start=(comm.rank, 0))
session.commit()
session.write("t", np.full((1, 4), 2, "int32"), start=(comm.rank, 0))
missing = int(sys.argv[2])
start = time.monotonic()
if comm.rank == missing:
    time.sleep(float(sys.argv[3]))
try:
    session.commit()
except bf.PoisonedError as error:
    said = str(error)
else:
    said = "committed"
time.sleep(max(0, float(sys.argv[3]) - (time.monotonic() - start)))
all_said, all_warnings = comm.gather(said), comm.gather(warnings)
if comm.rank == 0:
    for rank, (said, warnings) in enumerate(zip(all_said, all_warnings)):
        print(rank, said, *warnings, sep="|")
session.close()
"""


def lines_where_one_is_missing(
    tmp_path: Path, missing: int, seconds: float, monkeypatch: pytest.MonkeyPatch, timeout: str
) -> list[list[str]]:
    place = tmp_path / "s.zarr"
    bf.create(place).create_array("t", (4, 4), "int32")
    monkeypatch.setenv("BEDFORM_COLLECTIVE_WARN", "1")
    monkeypatch.setenv("BEDFORM_COLLECTIVE_TIMEOUT", timeout)
    said = mpiexec(4, sys.executable, "-c", MISSING, place, str(missing), str(seconds))
    return [line.split("|") for line in said.splitlines()]


def test_a_process_that_comes_late_is_named_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_where_one_is_missing(tmp_path, 2, 3.5, monkeypatch, "0")
    assert [line[1] for line in lines] == ["committed"] * 4
    warned = "s in commit() for rank 2, which has not made this call"
    assert len(lines[0]) == 3 and lines[0][2].endswith(warned), lines
    assert (np.asarray(bf.open(tmp_path / "s.zarr")["t"][...]) == 2).all()


def test_a_process_that_does_not_come_fails_the_call_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_where_one_is_missing(tmp_path, 3, 8, monkeypatch, "2")
    named = "s in commit() for rank 3, which has not made this call; it is not known what became"
    for line in lines:
        assert line[1].startswith("rank 0 has waited ") and named in line[1], lines
    assert len({line[1] for line in lines}) == 1, "all say the same"
    store = bf.open(tmp_path / "s.zarr", mode="r+")
    assert (np.asarray(store["t"][...]) == 1).all()
    store.settle()
    assert store.verify() == []


def checked(place: Path, odd_ranks: str) -> int:
    said = mpiexec(4, sys.executable, "-c", JOB, place, odd_ranks)
    return int(said.split()[-1])


def test_a_process_that_calls_something_else_is_named_to_all(tmp_path: Path) -> None:
    assert checked(tmp_path, "2") == 29


@pytest.mark.reliability
@pytest.mark.timeout(1000)
def test_each_process_in_turn_calls_something_else(tmp_path: Path) -> None:
    ranks = "0,1,2,3" if os.environ.get("BEDFORM_EFFORT") == "night" else "0,1,3"
    count = checked(tmp_path, ranks)
    sys.stdout.write(f"COUNT different-calls {count}\n")
