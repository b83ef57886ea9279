"""Reading takes little more memory than its result; settling stays within its limit."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bedform

if TYPE_CHECKING:
    from pathlib import Path

RESULT_BYTES = 256 << 20
MARGIN_BYTES = 64 << 20

# A peak is never reset, so each read has its own process. The memory of the interpreter and its
# libraries is subtracted.
READ = """
import resource, sys
import numpy as np
import bedform
array = bedform.open(sys.argv[1], cache=sys.argv[2])["a"]
array[0, 0, 0]
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
key = eval(sys.argv[3], {"np": np})
values = array.read(key)
after = peak()
print(after - before, values.nbytes, int(values[..., -1].sum()))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bedform.Store:
    store = bedform.create(tmp_path_factory.mktemp("memory") / "s.zarr", durability="process")
    layout = bedform.Regular((16, 64, 64), (64, 256, 256))
    for name, codecs in (("raw/a", []), ("zstd/a", ["zstd"])):
        array = store.create_array(name, (512, 256, 256), "f8", layout=layout, codecs=codecs)
        for start in range(0, 512, 64):
            block = np.arange(64 * 256 * 256) + start
            array[start : start + 64] = block.reshape(64, 256, 256)
    return store


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("cache", ["0", "32 MiB"])
@pytest.mark.parametrize("key", ["np.s_[...]", "np.s_[::-1, :, ::-1]"])
def test_a_read_takes_the_memory_of_its_result_and_little_more(
    store: bedform.Store, codec: str, cache: str, key: str
) -> None:
    path = f"{store.store_path}/{codec}"
    done = subprocess.run(
        [sys.executable, "-c", READ, path, cache, key],
        check=True,
        capture_output=True,
        text=True,
    )
    growth, size, total = (int(word) for word in done.stdout.split())
    assert size == RESULT_BYTES
    block = np.arange(64 * 256 * 256).reshape(64, 256, 256)[..., 0 if "-1" in key else -1]
    assert total == sum(int(block.sum()) + start * block.size for start in range(0, 512, 64))
    assert growth <= RESULT_BYTES + MARGIN_BYTES


SETTLE = """
import resource, sys
import bedform
store = bedform.open(sys.argv[1], mode="r+")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
done = store.settle(memory=int(sys.argv[2]))
print(peak() - before, done["rounds"], done["objects"])
"""


def test_settling_stays_within_its_memory_while_a_round_is_written_and_the_next_is_laid(
    tmp_path: Path,
) -> None:
    # A shard takes more than half of the limit, all of them four times the limit.
    limit = 64 << 20
    path = tmp_path / "s.zarr"
    layout = bedform.Regular((4, 64, 64), (80, 256, 256))
    store = bedform.create(path, durability="process")
    store.create_array("a", (480, 256, 256), "f8", layout=layout, codecs=[])
    values = np.arange(16 * 256 * 256, dtype="f8").reshape(16, 256, 256)
    with store.session(settle="later") as session:
        for start in range(0, 480, 16):
            session.write("a", values + start, start=(start, 0, 0))
    done = subprocess.run(
        [sys.executable, "-c", SETTLE, str(path), str(limit)],
        check=True,
        capture_output=True,
        text=True,
    )
    growth, rounds, objects = (int(word) for word in done.stdout.split())
    assert (rounds, objects) == (6, 6)
    assert growth <= limit + MARGIN_BYTES
    settled = bedform.open(path)["a"]
    for start in range(0, 480, 16):
        assert np.array_equal(settled[start : start + 16], values + start)
