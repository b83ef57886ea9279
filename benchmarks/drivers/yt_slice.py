"""One read of a plotfile or mesh store through a frontend of yt, timed in a process of its own.

``python yt_slice.py --frontend bedform --read slice --field density PATH`` prints a line of JSON:
the seconds from the call that opens the data set to the last element, of which ``index_seconds``
build the index; the bytes that the process read meanwhile, by ``rchar`` of ``/proc/self/io``, of
which ``index_bytes`` are the index's; and the count and a digest of the values, in the order of
levels and cells, which is the same for all frontends. Imports come before: yt's modules of all
frontends take seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yt
from yt.frontends import _all as _frontends  # noqa: F401 - the modules of all frontends

from bedform.yt_frontend import BedformDataset

READS = ("slice-x", "slice-y", "slice-z", "region", "ray")


def main() -> None:
    """Read once and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--frontend", choices=["bedform", "yt"], required=True)
    parser.add_argument("--read", choices=READS, required=True)
    parser.add_argument("--share", type=float, default=0.1, help="of the domain in a region")
    parser.add_argument("--field", required=True)
    options = parser.parse_args()
    yt.set_log_level("error")
    bytes_before, start = bytes_read(), time.perf_counter()
    opened = opened_by(options.frontend, options.path)
    kind = {"bedform": "bedform", "yt": "boxlib"}[options.frontend]
    _ = opened.index
    bytes_indexed, indexed = bytes_read(), time.perf_counter()
    part = part_of(opened, options.read, options.share)
    values = np.asarray(part[kind, options.field])
    end, bytes_after = time.perf_counter(), bytes_read()
    found = {
        "frontend": options.frontend,
        "read": options.read,
        "seconds": end - start,
        "index_seconds": indexed - start,
        "bytes": bytes_after - bytes_before,
        "index_bytes": bytes_indexed - bytes_before,
        "values": len(values),
        "digest": digest(part, values),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def opened_by(frontend: str, path: str) -> Any:
    """Returns the data set of a path."""
    if frontend == "yt" or not (Path(path) / "Header").exists():
        return yt.load(path)
    return BedformDataset(path)


def part_of(opened: Any, read: str, share: float) -> Any:
    """Returns a slice, a region of a share of the domain, or a ray; none along faces of boxes."""
    lower, width = opened.domain_left_edge, opened.domain_width
    middle = lower + 0.437 * width
    if read.startswith("slice"):
        axis = "xyz".index(read[-1])
        return opened.slice(axis, middle[axis])
    if read == "region":
        half = 0.5 * share ** (1 / 3) * width
        return opened.region(middle, middle - half, middle + half)
    ends = [
        lower + np.array(place) * width for place in ([0.031, 0.057, 0.113], [0.97, 0.83, 0.91])
    ]
    return opened.ray(*ends)


def bytes_read() -> int:
    """Returns the bytes that this process has read by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def digest(part: Any, values: np.ndarray[Any, Any]) -> str:
    """Returns a digest of values, in the order of levels and cells."""
    cells = np.asarray(part.icoords)
    order = np.lexsort([cells[:, 2], cells[:, 1], cells[:, 0], np.asarray(part.ires)])
    return hashlib.sha256(values[order].astype("<f8").tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    main()
