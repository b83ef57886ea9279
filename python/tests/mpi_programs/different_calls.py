"""One process of four makes another call than the others, in every way; they compare the errors.

usage: different_calls.py DIRECTORY RANKS; each of these ranks deviates once, in every case.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import bedform as bf

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
LAYOUT = bf.Regular(chunks=(2, 2), shards=(4, 4))
OTHER_LAYOUT = bf.Regular(chunks=(1, 4), shards=(4, 4))

Call = Callable[[bf.Session], object]
StoreCall = Callable[[bf.Store, bf.Store], object]
Heard = list[tuple[str, str] | None]


def rows(value: int, count: int = 1) -> Any:
    return np.full((count, 4), value, "int32")


def append(name: str = "a", axis: int = 0, count: int = 1) -> Call:
    shape = (count, 4) if axis == 0 else (4, count)
    return lambda session: session.append(name, np.full(shape, rank + 1, "int32"), axis)


def create(*names: str, **other: Any) -> Call:
    spec = {"shape": (4, 4), "dtype": "int32", "dims": ("y", "x"), "layout": LAYOUT}
    spec |= {"codecs": ["zstd"], **other}
    return lambda session: session.create_arrays(dict.fromkeys(names or ("new",), spec))


def commit(session: bf.Session) -> None:
    session.commit()


def drain(session: bf.Session) -> None:
    session.drain()


def end(session: bf.Session) -> None:
    session.__exit__(None, None, None)


def both(*calls: Call) -> Call:
    return lambda session: [call(session) for call in calls]


# By name: the call of all but one, the call of that one, the texts of the error, and whether the
# session continues.
WITHIN: dict[str, tuple[Call, Call, tuple[str, ...], bool]] = {
    "array": (append(), append("b"), ('append("a", axis 0)', 'append("b", axis 0)'), True),
    "axis": (append(), append(axis=1), ('append("a", axis 0)', 'append("a", axis 1)'), True),
    "order": (
        both(append(), append("b")),
        both(append("b"), append()),
        ('append("a", axis 0)', 'append("b", axis 0)'),
        True,
    ),
    "append commit": (append(), commit, ('append("a", axis 0)', "commit()"), False),
    "append drain": (append(), drain, ('append("a", axis 0)', "drain()"), False),
    "append create": (append(), create(), ('append("a", axis 0)', "create_arrays()"), True),
    "append end": (append(), end, ('append("a", axis 0)', "end()"), False),
    "commit drain": (commit, drain, ("commit()", "drain()"), False),
    "commit end": (commit, end, ("commit()", "end()"), False),
    "create commit": (create(), commit, ("create_arrays()", "commit()"), False),
    "one less": (both(append(), commit), commit, ('append("a", axis 0)', "commit()"), False),
    "one more": (
        commit,
        both(append(count=0), commit),
        ("commit()", 'append("a", axis 0)'),
        False,
    ),
    "elements": (
        append(),
        lambda session: session.append("a", rows(1)[:, :3]),
        ("cannot be appended", "[1, 3]"),
        True,
    ),
    "name": (create(), create("other"), ("gives", "no "), True),
    "one array more": (create(), create("new", "z"), ('no "z"',), True),
    "dtype": (create(), create(dtype="float64"), ('"int32"', '"float64"'), True),
    "shape": (create(), create(shape=(4, 8)), ("[4,4]", "[4,8]"), True),
    "attributes": (create(), create(attributes={"units": "K"}), ("attributes", '"K"'), True),
    "chunks": (create(), create(layout=OTHER_LAYOUT), ("[2,2]", "[1,4]"), True),
}


def session(store: bf.Store, **options: Any) -> bf.Session:
    return store.session(comm=comm, **{"settle": "later", **options})


def settle(store: bf.Store, **options: Any) -> None:
    store.settle(comm=comm, **options)


def begin(own: bf.Store, _other: bf.Store) -> bf.Session:
    return session(own)


def settle_own(own: bf.Store, _other: bf.Store) -> None:
    settle(own)


def weak(store: bf.Store) -> bf.Store:
    return bf.open(store.store_path, mode="r+", durability="process")


# The same for calls on stores: each gets its own store and another one.
OUTSIDE: dict[str, tuple[StoreCall, StoreCall, tuple[str, ...]]] = {
    "store": (begin, lambda _, other: session(other), ("own.zarr", "other.zarr")),
    "at the end": (begin, lambda own, _: session(own, settle="end"), ("settle",)),
    "durability": (begin, lambda own, _: session(own, durability="node"), ("durability",)),
    "wrong option": (begin, lambda own, _: session(own, buffer="much"), ("buffer", "much")),
    "durability of the store": (
        begin,
        lambda own, _: session(weak(own)),
        ("was opened", "process"),
    ),
    "begin settle": (begin, settle_own, ("session()", "settle()")),
    "settled store": (settle_own, lambda _, other: settle(other), ("own.zarr", "other.zarr")),
    "settled arrays": (
        settle_own,
        lambda own, _: settle(own, arrays=["a"]),
        ("settle()", 'settle(arrays ["a"])'),
    ),
    "unknown array": (settle_own, lambda own, _: settle(own, arrays=["c"]), ("'c'",)),
    "read-only": (begin, lambda own, _: session(bf.open(own.store_path)), ("read-only",)),
}


def new_store(place: str) -> bf.Store:
    if rank == 0:
        made = bf.create(place)
        for name in ("a", "b"):
            made.create_array(name, (4, 4), "int32", ("y", "x"), layout=LAYOUT)
    comm.Barrier()
    return bf.open(place, mode="r+")


def contents(store: bf.Store) -> dict[str, Any]:
    return {name: np.asarray(store[name][...]).tolist() for name in store}


def raised(act: Callable[[], object]) -> tuple[str, str] | None:
    try:
        act()
    except bf.BedformError as error:
        return type(error).__name__, str(error)
    return None


def check_same(heard: Heard, odd: int, says: tuple[str, ...]) -> None:
    """Checks that all got the same errors, with the deviating process and the other call."""
    errors = [error for error in heard if error is not None]
    assert len(errors) == size, heard
    # A process with an error of its own is named to the others.
    texts = {text.partition(": ")[2] if text.startswith("rank ") else text for _, text in errors}
    assert len(texts) == 1, heard
    assert len({kind for kind, _ in errors}) == 1, heard
    text = texts.pop()
    assert all(said in text for said in says), (says, text)
    names = (f"rank {odd}", f"ranks {odd} ", f"and {odd}")
    assert any(name in text for _, text in errors for name in names), heard


def check_within(case: str, odd: int, place: str) -> None:
    usual, other, says, goes_on = WITHIN[case]
    store = new_store(place)
    own = session(store)
    own.write("a", rows(rank + 10), start=(rank, 0))
    own.commit()
    before = contents(store)
    own.write("b", rows(rank + 20), start=(rank, 0))
    call = other if rank == odd else usual
    heard = comm.allgather(raised(lambda: call(own)))
    check_same(heard, odd, says)
    assert contents(store) == before
    if goes_on:
        own.append("a", rows(rank))
        own.commit()
        end(own)
        found = contents(store)
        assert found["a"] == before["a"] + [[one] * 4 for one in range(size)], found
        assert found["b"] == [[one + 20] * 4 for one in range(size)], found
    else:
        # No process hangs, not even for one that has ended its session.
        later = comm.allgather(raised(lambda: own.append("a", rows(rank))))
        assert None not in later, later
        own.close()
        assert contents(store) == before
    comm.Barrier()
    with session(store, settle="end") as after:
        after.write("a", rows(rank + 30), start=(rank, 0))
    assert store["a"][:4, 0].tolist() == [30, 31, 32, 33]
    assert set(store) == {"a", "b"}


def check_outside(case: str, odd: int, place: str) -> None:
    usual, other, says = OUTSIDE[case]
    own, another = new_store(f"{place}-own.zarr"), new_store(f"{place}-other.zarr")
    with session(own) as first:
        first.write("a", rows(rank + 10), start=(rank, 0))
    before = contents(own)
    call = other if rank == odd else usual
    heard = comm.allgather(raised(lambda: call(own, another)))
    # If an option differs from the first process's, the error names another one.
    is_first = odd == 0 and "processes of a session must give the same" in str(heard[0])
    check_same(heard, 1 if is_first else odd, says)
    assert contents(own) == before
    comm.Barrier()
    settle(own)
    assert contents(own) == before


def main(directory: str, odd_ranks: list[int]) -> None:
    cases = [
        *itertools.product([check_within], WITHIN),
        *itertools.product([check_outside], OUTSIDE),
    ]
    done = 0
    for (check, case), odd in itertools.product(cases, odd_ranks):
        if rank == 0:
            sys.stderr.write(f"{case}, rank {odd}\n")
            sys.stderr.flush()
        check(case, odd, f"{directory}/{done}")
        done += 1
    if rank == 0:
        sys.stdout.write(f"cases {done}\n")


if __name__ == "__main__":
    main(sys.argv[1], [int(text) for text in sys.argv[2].split(",")])
