"""Reads of whole arrays, each once, in a separate process.

`python -m benchmarks.harness.codec_reader STORE NAME...` prints the seconds by array as JSON.
BEDFORM_THROTTLE slows the storage of the process down. Read data stay at hand in the process, as in
a client of a distant server, so every round is another process.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import bedform as bf


def main() -> None:
    """Measures the arrays that the command line names."""
    store, names = sys.argv[1], sys.argv[2:]
    arrays = {name: bf.open(store, cache=0)[name] for name in names}
    first = arrays[names[0]]
    # Memory whose pages are mapped already.
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
