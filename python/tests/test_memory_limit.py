"""With limited memory work ends with an answer or an error, not with a crash."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

#: With less memory, it depends on the allocator's reserves whether small allocations succeed.
LEFT_MIB = (1, 2, 6, 12, 24, 48, 72, 112, 200, 320)
CASES = """
import os, resource, sys
import numpy as np
import bedform as bf

directory, work = sys.argv[1:3]
data = np.arange(16 * 131072).reshape(16, 131072)
reads = ("read", "verify", "snapshot")


def made(path):
    store = bf.create(path)
    layout = bf.Regular((1, 4096), (8, 131072))
    array = store.create_array("a", shape=data.shape, dtype="int64", layout=layout)
    if work in reads:
        array[...] = data
    if work == "settle":
        with store.session(settle="later") as session:
            session.write("a", data, start=(0, 0))
    return store


def do(store):
    if work == "write":
        store["a"][...] = data
    elif work == "append":
        store["a"].append(data)
    elif work == "settle":
        store.settle()
    elif work == "session":
        with store.session(settle="end") as session:
            session.write("a", data, start=(0, 0))
    elif work == "background":
        with store.session(settle="background", settle_bytes="1 MiB") as session:
            for _ in range(2):
                session.write("a", data, start=(0, 0))
                session.commit()
    elif work == "verify":
        assert store.verify() == []
    else:
        source = store.snapshot() if work == "snapshot" else store
        assert (source["a"][...] == data).all()


for left in map(int, sys.argv[3:]):
    store = made(f"{directory}/{left}.zarr")
    child = os.fork()
    if child:
        print(left, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + (left << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        do(store)
    except (bf.BedformError, MemoryError) as error:
        os._exit(3 if "damaged" in str(error) else 1)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "work", ["write", "append", "settle", "session", "background", "read", "verify", "snapshot"]
)
def test_a_process_that_may_take_little_more_memory_lives_on(work: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CASES, str(tmp_path), work, *map(str, LEFT_MIB)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    codes = {int(left): int(code) for left, code in map(str.split, told.stdout.splitlines())}
    assert set(codes) == set(LEFT_MIB), told.stderr
    assert set(codes.values()) <= {0, 1}, (codes, told.stderr)
    assert codes[LEFT_MIB[-1]] == 0, told.stderr
