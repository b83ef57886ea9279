"""Write `hdf5/*.h5` and `hdf5/*.json` into the directory of this script, to test the HDF5 parser.

They are small files, and the chunk maps that h5py gives of them. Run with `PYTHONPATH=python`, only
when a test needs another file.
"""

import json
import pathlib

import h5py
import netCDF4
import numpy as np

from bedform._foreign import chunk_map

HERE = pathlib.Path(__file__).parent / "hdf5"
DATA = np.arange(35, dtype="<i4").reshape(7, 5)


def old(path: pathlib.Path) -> None:
    """Write a file with superblock 0, symbol tables, and object headers of version 1."""
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["title"] = "an old file"
        file.create_dataset("contiguous", data=DATA.astype(">f4"))
        file.create_dataset(
            "chunked",
            data=DATA,
            chunks=(3, 2),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
            fillvalue=-1,
        )
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_U16BE, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 3], "u2"))
        attributes = file["chunked"].attrs
        attributes["units"] = np.bytes_("K")
        attributes["names"] = ["one", "two"]
        attributes["range"] = np.array([-1.5, 2.5], ">f8")
        attributes["flag"] = True
        attributes["record"] = np.array((1, 2.0), [("a", "i4"), ("b", "f8")])
        lists = np.empty(2, object)
        lists[:] = [np.array([1, 2], "i2"), np.array([], "i2")]
        attributes.create("lists", lists, (2,), h5py.vlen_dtype("i2"))
        group = file.create_group("group")
        group["soft"] = h5py.SoftLink("/contiguous")
        group["outside"] = h5py.ExternalLink("other.h5", "/x")
        group["cycle"] = file["/"]
        file["colour"] = h5py.enum_dtype({"RED": 0, "BLUE": 7}, "u1")
        file.create_dataset("pixels", (4,), file["colour"])


def new(path: pathlib.Path) -> None:
    """Write superblock 3 after a user block, heaps of links and attributes, all chunk indexes."""
    with h5py.File(path, "w", libver="latest", userblock_size=512) as file:
        group = file.create_group("many", track_order=True)
        for i in range(10):
            group[f"link-{(i * 7) % 10}"] = file
        shapes = {
            "single": ((7, 5), (7, 5)),
            "fixed": ((7, 5), (2, 2)),
            "grows": ((None, 5), (2, 2)),
            "both": ((None, None), (2, 2)),
        }
        for name, (longest, chunks) in shapes.items():
            file.create_dataset(
                name, data=DATA, maxshape=longest, chunks=chunks, compression="gzip"
            )
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 3))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((7, 5))
        h5py.h5d.create(file.id, b"implicit", h5py.h5t.STD_I32LE, space, plist)
        for i in range(10):
            file["single"].attrs[f"attribute-{(i * 7) % 10}"] = i


def netcdf4(path: pathlib.Path) -> None:
    """Write a file with the netCDF library: dimension scales, and references to them."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        file.title = "a NetCDF-4 file"
        time = file.createVariable("time", "f8", ("time",), chunksizes=(4,))
        time.units = "days"
        time[:] = np.arange(7)
        air = file.createVariable(
            "air", "f4", ("time", "x"), zlib=True, fill_value=-9, chunksizes=(2, 5)
        )
        air[:] = DATA
        inner = file.createGroup("inner")
        inner.createVariable("level", "i2", ("x",))


def grows(path: pathlib.Path) -> None:
    """Write an extensible array whose second axis grows; h5py returns wrong chunk positions."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("grows", data=DATA, maxshape=(7, None), chunks=(3, 2))


for make in (old, new, netcdf4, grows):
    path = HERE / f"{make.__name__}.h5"
    HERE.mkdir(exist_ok=True)
    make(path)
    if make is grows:
        continue
    parts = chunk_map(path)
    description = json.loads(parts.description)
    description["source"] = {
        "size": path.stat().st_size,
        "modified_ns": 0,
        "changed_ns": 0,
        "identity": [0, 0],
    }
    tables = [[column.tolist() for column in table] for table in parts.tables]
    found = {"description": description, "tables": tables}
    path.with_suffix(".json").write_text(
        json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n"
    )
