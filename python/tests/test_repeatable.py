"""The same data, options and profile give the same bytes, under any load of the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from support import ENVIRONMENT

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

#: Writes stores: arrays with data, steps, a session, a data set, a conversion.
PROGRAM = """
import os, sys
import numpy as np, xarray as xr
import bedform as bf

where, cores = sys.argv[1], int(sys.argv[2])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
rng = np.random.default_rng(7)
noise = rng.normal(0, 1e-3, (37, 61, 83))
field = (280 + 20 * np.sin(np.arange(37 * 61 * 83).reshape(37, 61, 83) / 3000) + noise)
counts = rng.poisson(3, (50, 60, 70))
bf.create(f"{where}/a.zarr")
with bf.open(f"{where}/a.zarr", mode="r+", profile=bf.Profile.default()) as store:
    for dtype in ("f4", "f8", "i2", "u1"):
        store.create_array(f"field_{dtype}", data=field.astype(dtype))
    for dtype in ("i4", "u2"):
        store.create_array(f"counts_{dtype}", data=counts.astype(dtype), dims=tuple("tyx"))
    steps = store.create_array("steps", (0, 61, 83), "f4", tuple("tyx"))
    for step in field:
        steps.append(step[None].astype("f4"))
    with store.session() as session:
        session.create_arrays({"u": {"shape": field.shape, "dtype": "float32"}})
        session.write("u", field.astype("f4"), start=(0, 0, 0))
dims = ("time", "lat", "lon")
ds = xr.Dataset({"t": (dims, field.astype("f4")), "n": (dims, counts[:37].astype("i4").repeat(2, 1)
    [:, :61].repeat(2, 2)[:, :, :83])}, coords={"time": np.arange(37.0)})
bf.write_dataset(ds, f"{where}/b.zarr")
bf.convert(f"{where}/b.zarr", f"{where}/c.zarr")
"""

KEY = re.compile(rb'"(uuid|array|store|seal)": "[^"]*"')


def comparable(path: Path) -> bytes:
    """Returns the bytes of a file without store and array keys and their checksums."""
    data = path.read_bytes()
    if path.name == "zarr.json":
        return KEY.sub(rb'"\1": ""', data)
    at = data.rfind(b"BEDSTAMP")
    if at >= 0:
        rank = int.from_bytes(data[at + 10 : at + 12], "little")
        end = at + 72 + 8 * rank
        return data[: at + 16] + data[at + 48 : end - 4] + data[end:]
    return data


def files(where: Path) -> dict[str, bytes]:
    found = (path for path in where.rglob("*") if path.is_file())
    return {
        str(path.relative_to(where)): comparable(path)
        for path in found
        if not any(part.endswith((".bedform", ".bedform-log")) for part in path.parts)
    }


def test_ten_processes_beside_each_other_write_the_same_bytes(tmp_path: Path):
    def write(number: int) -> dict[str, bytes]:
        where = tmp_path / f"{number}"
        where.mkdir()
        cores = 1 + number % 2
        command = [sys.executable, "-c", PROGRAM, str(where), str(cores)]
        subprocess.run(command, check=True, env={**os.environ, **ENVIRONMENT})
        return files(where)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(write, range(10))
    assert len(first) > 12
    for other in others:
        assert other.keys() == first.keys()
        assert [name for name in first if other[name] != first[name]] == []
    taken = bf.open(tmp_path / "0" / "a.zarr")["counts_i4"].info()["codec_choice"]["compared"]
    assert taken[0]["size"] < 0.13
