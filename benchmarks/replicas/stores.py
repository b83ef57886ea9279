"""Lines `zarr store/*` of `replica-series`: series and maps of a Zarr store of maps.

The same field, shorter, uncompressed, with one chunk per map, as models write Zarr. zarr-python and
TensorStore read the store, with `[]` and with `read().result()`. A build that makes no replicas of
stores omits the lines.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

import bedform as bf
from benchmarks.harness import data
from benchmarks.replicas.fields import Field
from benchmarks.replicas.readers import PEERS, names_of
from benchmarks.replicas.trials import Line, ReplicaTrial, Subject, forget_replicas

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.replicas.fields import Selection
    from benchmarks.replicas.readers import Names, Values

ZARR_PYTHON, TENSORSTORE = "zarr-python", "tensorstore"
LINES = ("zarr store/series", "zarr store/maps")
DIMS = ("time", "lat", "lon")
BUDGET = "30%"
SHARD_STEPS = 365


def field_of(is_quick: bool) -> Field:
    """Return the array."""
    return Field("t", DIMS, (365, 60, 64) if is_quick else (2920, 120, 128), "float32")


def write(path: Path, of: Field) -> None:
    """Write the store, map after map."""
    steps, *space = of.shape
    layout = bf.Regular(chunks=(1, *space), shards=(min(SHARD_STEPS, steps), *space))
    with bf.create(path) as store:
        array = store.create_array(of.name, of.shape, of.dtype, dims=DIMS, layout=layout, codecs=[])
        for first in range(0, steps, SHARD_STEPS):
            slab = slice(first, min(first + SHARD_STEPS, steps))
            array[slab] = of.of((slab, slice(None), slice(None)))


def read_by_zarr(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read by zarr-python."""
    import zarr

    arrays: list[Any] = [zarr.open_array(path / name, mode="r") for name in names_of(names)]
    return [np.asarray(array[selection]) for array in arrays for selection in selections]


def read_by_tensorstore(path: Path, names: Names, selections: list[Selection]) -> Values:
    """Read by TensorStore."""
    import tensorstore as ts

    def opened(name: str) -> Any:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path / name}/"}}
        return ts.open(spec, read=True).result()

    arrays = [opened(name) for name in names_of(names)]
    return [array[selection].read().result() for array in arrays for selection in selections]


def lines_of(of: Field) -> dict[str, Line]:
    """Return the lines."""
    steps, rows, columns = of.shape
    others = {ZARR_PYTHON: read_by_zarr, TENSORSTORE: read_by_tensorstore}
    shares = (0.3, 0.4, 0.5)
    series: list[Selection] = [
        (slice(None), int(share * rows), int(share * columns)) for share in shares
    ]
    maps: list[Selection] = [(int(share * steps), slice(None), slice(None)) for share in shares]
    reads = dict(zip(LINES, (series, maps), strict=True))
    return {
        name: Line(name, [[one] for one in these], others, PEERS) for name, these in reads.items()
    }


def optimized(store: Subject[Field]) -> bool:
    """Makes a replica of series of the middle of the domain; returns whether this build can."""
    forget_replicas(store.path)
    region = {
        name: (length // 4, length * 5 // 8)
        for name, length in zip(DIMS[1:], store.of.shape[1:], strict=True)
    }
    try:
        bf.optimize(store.path, BUDGET, reads={"time": 1}, region=region)
    except bf.UnsupportedError:
        return False
    return True


def measure(place: Path, names: list[str], is_quick: bool, rounds: int) -> dict[str, Any]:
    """Measures the requested lines."""
    for module in ("zarr", "tensorstore"):
        importlib.import_module(module)
    of, small = field_of(is_quick), Field("t", DIMS, (40, 24, 32), "float32")
    store = Subject(data.ensure(place / f"{of.shape[0]}.zarr", lambda path: write(path, of)), of)
    little = Subject(data.ensure(place / "little.zarr", lambda path: write(path, small)), small)
    if not (names and optimized(store) and optimized(little)):
        return {}
    trial = ReplicaTrial(store, little, lines_of(small))
    found = {name: trial.compare(lines_of(of)[name], rounds) for name in names}
    for one in (store, little):
        forget_replicas(one.path)
    return found
