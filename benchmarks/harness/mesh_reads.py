"""Cold reads of regions of meshes in processes of their own, with the times that were predicted.

`python -m benchmarks.harness.mesh_reads DIRECTORY` calibrates the directory. With `PLACES ROUNDS`,
a JSON mapping of names to stores, it reads all regions and prints JSON, a list of `Read`.
`BEDFORM_PROFILES` and `BEDFORM_THROTTLE` name the profiles and the speed of the storage; a process
reads them at its first call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import bedform as bf
from benchmarks import amr_layout
from benchmarks.harness import cold, data

CALIBRATION_SECONDS = 6


@dataclass(frozen=True)
class Read:
    """A region of a store: the predicted time, the requests, and the seconds of each round."""

    region: str
    order: str
    predicted: float
    requests: int
    seconds: list[float]


def seconds_of(place: Path, region: tuple[slice, ...]) -> float:
    """Reads all levels of a region cold once; returns the seconds."""
    mesh = bf.open(place, prefetch=False, cache=0)
    cold.make_cold(place)
    level = mesh.levels - 1
    began = time.perf_counter()
    for _ in mesh[amr_layout.FIELD].pieces(region, level=level, max_bytes="8 GiB"):
        pass
    return time.perf_counter() - began


def reads_of(places: dict[str, Path], rounds: int) -> list[Read]:
    """Reads all regions, the places in turn."""
    meshes = {order: bf.open(place, prefetch=False, cache=0) for order, place in places.items()}
    level = amr_layout.LEVELS - 1
    cells = int(next(iter(meshes.values())).domain(level)[1, 0])
    found = []
    for name, region in amr_layout.regions_of(cells).items():
        seconds: dict[str, list[float]] = {order: [] for order in places}
        for _ in range(rounds):
            for order, place in places.items():
                seconds[order].append(seconds_of(place, region))
        for order, mesh in meshes.items():
            plan = mesh[amr_layout.FIELD].explain(region, level=level).to_dict()
            # Pieces are not laid into one array.
            predicted = plan["predicted_cold_seconds"] - plan["composing_seconds"]
            requests = plan["requests"]
            found.append(Read(name, order, predicted, requests, seconds[order]))
    return found


def measure(places: dict[str, Path], rounds: int, throttle: str = "") -> list[Read]:
    """Calibrates the directory of the places, and reads them, in other processes."""
    with tempfile.TemporaryDirectory() as profiles:
        environment = {
            **os.environ,
            "BEDFORM_PROFILES": profiles,
            "BEDFORM_THROTTLE": throttle,
            "BEDFORM_REFINE": "0",
        }
        named = json.dumps({order: str(place) for order, place in places.items()})
        parent = str(next(iter(places.values())).parent)
        for arguments in ([parent], [named, str(rounds)]):
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "benchmarks.harness.mesh_reads", *arguments],
                cwd=data.ROOT.parent,
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
    return [Read(**one) for one in json.loads(done.stdout)]


def main() -> None:
    """Calibrates, or prints the seconds of all reads."""
    if len(sys.argv) == 2:
        bf.calibrate(sys.argv[1], seconds=CALIBRATION_SECONDS)
        return
    places = {name: Path(place) for name, place in json.loads(sys.argv[1]).items()}
    sys.stdout.write(json.dumps([asdict(one) for one in reads_of(places, int(sys.argv[2]))]))


if __name__ == "__main__":
    main()
