"""Reading takes the memory of its result and little more."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import bedform

RESULT_BYTES = 256 << 20
MARGIN_BYTES = 64 << 20

# A peak is never forgotten, so each read has a process of its own. What the interpreter and its
# libraries take is subtracted.
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
