"""`references`: references to the chunks of 200 NetCDF-4 files, beside kerchunk and VirtualiZarr.

Every sample is a fresh process that imports everything before its clock starts; Bedform has a
sidecar of its own each time, so that nothing is kept of an earlier run. Each peer runs serially and
with two processes or threads, and the faster way counts. xarray opens each set, and its values are
compared with netCDF4.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import data
from benchmarks.harness.report import Report, Table, Verdict
from benchmarks.harness.rounds import fastest_variant, interleave
from benchmarks.harness.statistics import median, paired_ratio

if TYPE_CHECKING:
    from benchmarks.harness.options import Options

NAME = "references"
FILES, STEPS, LAT, LON = 200, 24, 360, 720
VARIABLES = ("t", "u", "v", "q")
#: How much faster than each peer the references must be made.
WANTED = 20
#: Peers by the form of their sets, each in the ways that it can run.
PEERS = {
    "json": ("kerchunk", "kerchunk-2", "virtualizarr", "virtualizarr-2"),
    "icechunk": ("virtualizarr", "virtualizarr-2"),
}
LIBRARIES = ("kerchunk", "virtualizarr", "icechunk")
SEED = 43


def main(engine: str, form: str, target: str, place: str) -> None:
    """Makes a set in this process and prints the seconds that it took."""
    import time
    import warnings

    warnings.simplefilter("ignore")
    paths = sorted(map(str, Path(place).glob("*.nc")))
    make = {"bedform": by_bedform, "kerchunk": by_kerchunk, "virtualizarr": by_virtualizarr}
    name, _, workers = engine.partition("-")
    work = make[name](form, target, int(workers or 1))
    began = time.perf_counter()
    work(paths)
    sys.stdout.write(f"{json.dumps(time.perf_counter() - began)}\n")


def by_bedform(form: str, target: str, _: int) -> Any:
    """Returns a function that makes a set by Bedform."""
    import bedform as bf
    import bedform.xarray_backend

    if form == "icechunk":
        import icechunk
        import zarr  # noqa: F401

        icechunk.set_logs_filter("error")
    return lambda paths: bf.references(paths, target, form=form)


def refs_of(path: str) -> Any:
    """Returns kerchunk's references to one file."""
    from kerchunk.hdf import SingleHdf5ToZarr

    return SingleHdf5ToZarr(path, inline_threshold=500).translate()


def by_kerchunk(_: str, target: str, workers: int) -> Any:
    """Returns a function that makes a set by kerchunk."""
    from concurrent.futures import ProcessPoolExecutor

    import kerchunk.hdf  # noqa: F401
    from kerchunk.combine import MultiZarrToZarr

    def make(paths: list[str]) -> None:
        if workers > 1:
            with ProcessPoolExecutor(workers) as pool:
                found = [*pool.map(refs_of, paths)]
        else:
            found = [refs_of(path) for path in paths]
        joined = MultiZarrToZarr(
            found, concat_dims=["time"], identical_dims=["lat", "lon"], remote_protocol="file"
        ).translate()
        Path(target).write_text(json.dumps(joined))

    return make


def by_virtualizarr(form: str, target: str, workers: int) -> Any:
    """Returns a function that makes a set by VirtualiZarr."""
    from concurrent.futures import ThreadPoolExecutor

    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    if form == "icechunk":
        import icechunk

        icechunk.set_logs_filter("error")

    def make(paths: list[str]) -> None:
        joined = open_virtual_mfdataset(
            [f"file://{path}" for path in paths],
            registry,
            HDFParser(),
            combine="nested",
            concat_dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="override",
            parallel=ThreadPoolExecutor if workers > 1 else False,
            loadable_variables=["time", "lat", "lon"],
        )
        if form == "json":
            joined.vz.to_kerchunk(target, format="json")
            return
        prefix = f"file://{Path(paths[0]).parent}/"
        config = icechunk.RepositoryConfig.default()
        store = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
        storage = icechunk.local_filesystem_storage(target)
        session = icechunk.Repository.create(storage, config=config).writable_session("main")
        joined.vz.to_icechunk(session.store)
        session.commit("references")

    return make


def make_files(place: Path, count: int, megabytes: int) -> None:
    """Write the files: four variables in compressed chunks, whose bytes are copied from one."""
    import netCDF4

    place.mkdir(parents=True)
    steps = max(1, round(STEPS * megabytes / 100))
    first = place / "000.nc"
    random = np.random.default_rng(SEED)
    with netCDF4.Dataset(first, "w") as file:
        for name, length in (("time", None), ("lat", LAT), ("lon", LON)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",), chunksizes=(steps,))
        time.units = "hours since 2000-01-01"
        time[:] = np.arange(steps)
        for name, length in (("lat", LAT), ("lon", LON)):
            file.createVariable(name, "f8", (name,))[:] = np.arange(length)
        chunks = (1, LAT // 2, LON // 2)
        for name in VARIABLES:
            options: dict[str, Any] = {"zlib": True, "complevel": 1, "chunksizes": chunks}
            variable = file.createVariable(name, "f4", ("time", "lat", "lon"), **options)
            variable.units = "K"
            variable[:] = random.normal(size=(steps, LAT, LON))
    for number in range(1, count):
        path = place / f"{number:03}.nc"
        shutil.copyfile(first, path)
        with netCDF4.Dataset(path, "a") as file:
            file["time"][:] = np.arange(steps) + steps * number


def opened(target: Path) -> Any:
    """Opens a set by xarray, with the reader of its format."""
    import xarray as xr

    if target.is_file():
        return xr.open_dataset(str(target), engine="kerchunk")
    import icechunk

    storage = icechunk.local_filesystem_storage(str(target))
    config = icechunk.Repository.fetch_config(storage)
    allowed = dict.fromkeys(config.virtual_chunk_containers)
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    store = repository.readonly_session("main").store
    return xr.open_dataset(store, engine="zarr", consolidated=False)


def is_equal(target: Path, paths: list[Path]) -> bool:
    """Whether a set has the values of the files, in some places of each variable."""
    import netCDF4

    random = np.random.default_rng(SEED)
    with opened(target) as found:
        steps = found.sizes["time"] // len(paths)
        for number in sorted({0, len(paths) - 1, *random.integers(0, len(paths), 5).tolist()}):
            step = int(random.integers(steps))
            with netCDF4.Dataset(paths[number]) as file:
                for name in VARIABLES:
                    own = found[name][number * steps + step].values
                    if not np.array_equal(own, file[name][step]):
                        return False
        hours = (found["time"].values - np.datetime64("2000-01-01")) / np.timedelta64(1, "h")
        return bool(np.array_equal(hours, np.arange(steps * len(paths))))


def run(options: Options) -> Report:
    """Runs the lines of both formats; the files are removed at the end."""
    count = 20 if options.quick else FILES
    megabytes = options.megabytes or (4 if options.quick else 100)
    settings = {"files": f"{count} of {megabytes} MB", "rounds": str(options.rounds)}
    report = Report(NAME, options.command, settings)
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        report.settings["not run"] = f"it needs {', '.join(missing)}: pip install 'bedform[bench]'"
        return report
    place = data.ROOT / f"references-{count}-{megabytes}"
    if not place.exists():
        building = place.with_name(f"building.{place.name}")
        data.remove(building)
        make_files(building, count, megabytes)
        building.rename(place)
    paths = sorted(place.glob("*.nc"))
    table = Table("Seconds, in the median", ["set", "engine", "seconds", "peer / bedform", "equal"])
    for form, peers in PEERS.items():
        if options.wants(form):
            add_lines(report, table, (form, peers), paths, options)
    report.tables.append(table)
    data.remove(place)
    return report


def add_lines(
    report: Report,
    table: Table,
    line: tuple[str, tuple[str, ...]],
    paths: list[Path],
    options: Options,
) -> None:
    """Adds the lines of one format to the table, and their verdicts."""
    form, peers = line
    place = paths[0].parent
    made = place.with_name(f"{place.name}-made")

    def target_of(engine: str) -> Path:
        return made / (f"{engine}.json" if form == "json" else engine)

    def sample(engine: str) -> float:
        made.mkdir(exist_ok=True)
        data.remove(target_of(engine))
        sidecar = made / "sidecar"
        data.remove(sidecar)
        command = [sys.executable, "-m", "benchmarks.references", engine, form]
        command += [str(target_of(engine)), str(place)]
        environment = {**os.environ, "BEDFORM_SIDECAR": str(sidecar)}
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, env=environment
        )
        return float(json.loads(done.stdout.splitlines()[-1]))

    libraries = dict.fromkeys(peer.partition("-")[0] for peer in peers)
    chosen = [
        fastest_variant([peer for peer in peers if peer.startswith(library)], 1, sample)
        for library in libraries
    ]
    samples = interleave(["bedform", *chosen], options.rounds, sample)
    report.samples[form] = {"seconds": samples}
    for engine in ("bedform", *chosen):
        equal = is_equal(target_of(engine), paths)
        seconds = median(samples[engine])
        if engine == "bedform":
            table.rows.append([form, engine, f"{seconds:.3f}", "", "yes" if equal else "no"])
            report.verdicts.append(Verdict(f"{form}: values equal", str(equal), equal))
            continue
        ratio = paired_ratio(samples[engine], samples["bedform"])
        cells = [form, engine, f"{seconds:.2f}", ratio.describe(), "yes" if equal else "no"]
        table.rows.append(cells)
        promise = f"{form}: at least {WANTED} times faster than {engine.partition('-')[0]}"
        times = seconds / median(samples["bedform"])
        report.verdicts.append(Verdict(promise, f"{times:.0f}", times >= WANTED))
    data.remove(made)


if __name__ == "__main__":
    main(*sys.argv[1:])
