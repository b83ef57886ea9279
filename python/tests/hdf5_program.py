"""A program of h5py and netCDF4 that knows nothing of Bedform: prints what it reads and meets.

Run in a child with and without the connector, in its own directory: both must print the same.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import h5py
import netCDF4
import numpy as np

told: list[Any] = []


def tell(*words: Any) -> None:
    """Note some results."""
    told.append([word.tolist() if isinstance(word, np.ndarray) else word for word in words])


def fails(call: Any) -> None:
    """Note the error of a call, as programs tell errors apart."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the library raises
        tell(type(error).__name__, str(error), getattr(error, "errno", None))
    else:
        tell("no error")


def write() -> None:
    values = np.arange(24_000.0).reshape(20, 30, 40)
    with h5py.File("a.h5", "w", libver="latest") as file:
        group = file.create_group("g", track_order=True)
        packed = group.create_dataset(
            "packed", data=values, chunks=(4, 10, 40), compression="gzip", shuffle=True
        )
        packed.attrs["units"] = "K"
        packed.attrs["levels"] = np.arange(5)
        group.create_dataset("plain", data=values[0].astype(">i4"))
        group.create_dataset("grows", shape=(3, 4), maxshape=(None, 4), dtype="f4", fillvalue=-1)
        group["text"] = ["one", "two", "three", "öl"]
        group["words"] = np.array([b"ab", b"c"])
        record = np.zeros(4, dtype=[("a", "i4"), ("b", "f8", (2,))])
        record["a"] = np.arange(4)
        group["record"] = record
        group["empty"] = h5py.Empty("f4")
        file["soft"] = h5py.SoftLink("/g/packed")
        file["hard"] = group["plain"]
        file["outside"] = h5py.ExternalLink("b.h5", "/x")
        file["reference"] = packed.ref
        file["region"] = packed.regionref[0:2, 3:5]
        file["type"] = np.dtype("i2")
        virtual = h5py.VirtualLayout((2, 30, 40), "f8")
        virtual[0] = h5py.VirtualSource(packed)[3]
        virtual[1] = h5py.VirtualSource(packed)[4]
        file.create_virtual_dataset("virtual", virtual)
        file.copy("g", "copied")
        file.move("copied/words", "moved")
        del file["copied/record"]
    with h5py.File("b.h5", "w") as file:
        file["x"] = np.arange(7)
    with netCDF4.Dataset("c.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 6)
        variable = file.createVariable(
            "v", "i2", ("time", "x"), zlib=True, fill_value=-99, chunksizes=(2, 6)
        )
        variable.scale_factor, variable.add_offset, variable.units = 0.5, 10.0, "K"
        variable[:] = np.arange(30).reshape(5, 6)
        file.createGroup("sub").title = "of a group"


def read() -> None:
    with h5py.File("a.h5") as file:
        packed = file["g/packed"]
        tell(packed[3:9:2, 5, ::7], packed[...].sum(), packed[[1, 5, 7], 2, 3], packed[2, 3, 4])
        mask = np.zeros(packed.shape, bool)
        mask[1, 2, 3:9] = mask[7, 8, 9] = True
        tell(packed[mask], dict(packed.attrs)["units"], packed.attrs["levels"])
        target = np.zeros((5, 40))
        packed.read_direct(target, np.s_[4, 3:6], np.s_[1:4])
        tell(target.sum(), file["g/plain"][...], file["g/grows"][...])
        for name in ("g/text", "g/words"):
            tell([one.decode() for one in file[name][...]])
        tell(file["g/record"]["a"], str(file["g/record"].dtype), str(file["g/empty"][()]))
        tell(file["soft"].name, file["hard"].shape, file["outside"][...], file["virtual"][1, 2, :5])
        tell(file[file["reference"][()]].name, packed[file["region"][()]].shape)
        names: list[str] = []
        file.visititems(lambda name, _: names.append(name))
        tell(names, list(file), list(file["g"]), file["g"].get("soft", getlink=True) is None)
        tell(file.get("soft", getlink=True).path, file.get("outside", getlink=True).filename)
        tell(packed.id.get_num_chunks(), packed.id.get_chunk_info(3).chunk_offset)
        mask, stored = packed.id.read_direct_chunk((4, 0, 0))
        tell(mask, len(stored))
        tell(packed.id.get_storage_size(), file["type"].dtype.str, "g/none" in file)
        tell(file["g"] == file["/g"], file.id.get_filesize() > 0, packed.file.filename)
        fails(lambda: file["g/none"])
        fails(lambda: packed[100])
        fails(lambda: file.create_group("new"))
    fails(lambda: h5py.File("none.h5"))
    fails(lambda: h5py.File(__file__))
    with h5py.File("new.h5", "a") as file:
        file["x"] = 1
    with h5py.File("new.h5", "r+") as file:
        file["x"][...] = 2
        file.create_dataset("y", (2,), maxshape=(None,)).resize((4,))
        file["x"].attrs["n"] = 3
        file.flush()
        tell(file["x"][()], file["y"].shape, file["x"].attrs["n"])
    fails(lambda: h5py.File("new.h5", "x"))
    tell(h5py.is_hdf5("new.h5"), h5py.is_hdf5(__file__))
    with netCDF4.Dataset("c.nc") as file:
        tell(file["v"][1:4, 2], file["v"].units, file["sub"].title, len(file.dimensions["time"]))
        file["v"].set_auto_maskandscale(False)
        tell(file["v"][:], list(file.variables))
    with h5py.File("c.nc") as file, netCDF4.Dataset("c.nc") as other:
        tell(file["v"][2], other["v"][2].data, file["v"].dims[0].label)


def read_in_threads() -> None:
    sums = [0.0] * 6

    def work(number: int) -> None:
        for _ in range(20):
            with h5py.File("a.h5") as file:
                sums[number] = float(file["g/packed"][number].sum())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(sums))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(sums)


write()
read()
read_in_threads()
sys.stdout.write(json.dumps(told, default=str, indent=1))
