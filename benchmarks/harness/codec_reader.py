"""Reads of whole arrays, each once, in a process of its own.

`python -m benchmarks.harness.codec_reader STORE NAME...` prints the seconds by array as JSON.
BEDFORM_THROTTLE, which is of the process, makes the storage slow. What a process has read it has at
hand, as clients of a distant server do, so every round is another process.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import bedform as bf


def main() -> None:
    """Time what the command line names."""
    store, names = sys.argv[1], sys.argv[2:]
    arrays = {name: bf.open(store, cache=0)[name] for name in names}
    first = arrays[names[0]]
    # Memory that is there already.
    buffer = np.ones(first.shape, first.dtype)
    seconds, answers = {}, set()
    for name, array in arrays.items():
        start = time.perf_counter()
        array.read(..., out=buffer)
        seconds[name] = time.perf_counter() - start
        answers.add(hash(buffer.tobytes()))
    if len(answers) != 1:
        raise SystemExit("the arrays differ")
    json.dump(seconds, sys.stdout)


if __name__ == "__main__":
    main()
