"""Write HDF5 and NetCDF-4 files with every feature that the parser knows, for `compare_hdf5.py`.

``make_hdf5_corpus.py DIRECTORY`` writes a few hundred files, most of them small: each version of
the format with each layout, chunk index, filter, kind of attribute and form of group.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any, Final

import h5py
import hdf5plugin
import netCDF4
import numpy as np
from h5py import h5d, h5p, h5s, h5t

VERSIONS: Final = ("earliest", "v108", "v110", "v112", "v114", "v200", "latest")
NUMBERS: Final = (
    "i1",
    "u1",
    "<i2",
    ">i2",
    "<u4",
    ">u4",
    "<i8",
    ">i8",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
)
FILTERS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 4},
    "gzip-shuffle": {"compression": "gzip", "shuffle": True},
    "all-three": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "scaleoffset": {"scaleoffset": 3},
    "zstd": dict(hdf5plugin.Zstd(clevel=3)),
    "blosc": dict(hdf5plugin.Blosc(cname="lz4", shuffle=1)),
}
#: Shape, largest shape and chunks; later versions of the format use another index for each.
SHAPES: Final = {
    "single": ((7, 5), (7, 5), (7, 5)),
    "fixed": ((7, 5), (7, 5), (2, 2)),
    "fixed-larger": ((7, 5), (9, 11), (2, 2)),
    "fixed-paged": ((3000, 2), (3000, 2), (1, 2)),
    "first-grows": ((7, 5), (None, 5), (2, 2)),
    "last-grows": ((7, 5), (9, None), (2, 2)),
    "middle-grows": ((4, 5, 6), (4, None, 6), (2, 2, 2)),
    "long-grows": ((9000,), (None,), (1,)),
    "both-grow": ((7, 5), (None, None), (2, 2)),
    "both-grow-long": ((100, 70), (None, None), (1, 1)),
}


def chunked(directory: Path, version: str) -> None:
    """Write datasets with each index and filter: sparse, empty, shrunk and grown."""
    for (name, (shape, longest, chunks)), (label, filters) in itertools.product(
        SHAPES.items(), FILTERS.items()
    ):
        is_long = np.prod(shape) > 1000
        if is_long and label not in {"none", "gzip"}:
            continue
        with h5py.File(
            directory / f"chunked-{version}-{name}-{label}.h5", "w", libver=version
        ) as file:
            data = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
            file.create_dataset("full", data=data, maxshape=longest, chunks=chunks, **filters)
            if is_long:
                continue
            sparse = file.create_dataset(
                "sparse", shape, ">i4", maxshape=longest, chunks=chunks, fillvalue=7, **filters
            )
            sparse[..., -1] = 1
            file.create_dataset("empty", shape, "f8", maxshape=longest, chunks=chunks, **filters)
            if None in longest:
                shrunk = file.create_dataset(
                    "shrunk", data=data, maxshape=longest, chunks=chunks, **filters
                )
                shrunk.resize([max(1, size // 2) for size in shape])
                grown = file.create_dataset(
                    "grown", data=data, maxshape=longest, chunks=chunks, **filters
                )
                grown.resize(
                    [s if m is not None else s * 3 for s, m in zip(shape, longest, strict=True)]
                )


def layouts(file: h5py.File) -> None:
    """Write layouts and fill values that only the low-level API can make."""
    space = h5s.create_simple((6, 4))
    int32 = h5t.STD_I32LE
    data = np.arange(24, dtype="<i4").reshape(6, 4)
    for layout, alloc, fill in itertools.product(
        (h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED),
        (h5d.ALLOC_TIME_EARLY, h5d.ALLOC_TIME_LATE, h5d.ALLOC_TIME_INCR),
        ("none", "undefined", "value"),
    ):
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_layout(layout)
        if layout == h5d.CHUNKED:
            plist.set_chunk((4, 3))
        if layout == h5d.COMPACT and alloc != h5d.ALLOC_TIME_EARLY:
            continue
        plist.set_alloc_time(alloc)
        if fill == "value":
            plist.set_fill_value(np.array(9, "<i4"))
        if fill == "undefined":
            plist.set_fill_time(h5d.FILL_TIME_NEVER)
        name = f"layout-{layout}-{alloc}-{fill}".encode()
        h5d.create(file.id, name, int32, space, plist)
        written = h5d.create(file.id, name + b"-written", int32, space, plist)
        written.write(h5s.ALL, h5s.ALL, data)
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((4, 3))
    plist.set_deflate(3)
    if hasattr(plist, "set_chunk_opts") and file.libver[0] not in {"earliest", "v108"}:
        plist.set_chunk_opts(h5d.CHUNK_DONT_FILTER_PARTIAL_CHUNKS)
    h5d.create(file.id, b"edges", int32, space, plist).write(h5s.ALL, h5s.ALL, data)
    file.create_dataset("scalar", data=3.5)
    file.create_dataset("null", data=h5py.Empty("f4"))
    file.create_dataset("nothing", shape=(0, 3), dtype="i2")
    file.create_dataset(
        "nothing-chunked", shape=(0, 3), maxshape=(None, 3), dtype="i2", chunks=(2, 2)
    )


def types() -> dict[str, Any]:
    """Return types of elements by name."""
    record = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3"), ("d", "f4", (2, 3))])
    aligned = np.dtype(
        {"names": ["x", "y"], "formats": ["i1", "f8"], "offsets": [3, 16], "itemsize": 40}
    )
    found: dict[str, Any] = {
        "record": record,
        "aligned": aligned,
        "nested": np.dtype([("r", record), ("z", "c8")]),
        "complex": np.dtype("c16"),
        "bool": np.dtype(bool),
        "enum": h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, basetype=">i2"),
        "fixed": np.dtype("S7"),
        "fixed-utf8": h5py.string_dtype("utf-8", 9),
        "text": h5py.string_dtype(),
        "text-ascii": h5py.string_dtype("ascii"),
        "sequence": h5py.vlen_dtype(np.dtype(">i4")),
        "reference": h5py.ref_dtype,
        "region": h5py.regionref_dtype,
        "opaque": h5py.opaque_dtype(np.dtype("M8[s]")),
        "void": np.dtype("V5"),
        "long-double": np.dtype("longdouble"),
    }
    return found | {name.replace("<", "l").replace(">", "b"): np.dtype(name) for name in NUMBERS}


def attributes(file: h5py.File) -> None:
    """Write attributes of each type and shape: each on its own object, and many on one."""
    few, many = file.create_group("few"), file.create_group("many")
    data = file.create_dataset("data", data=np.arange(3))
    for name, dtype in types().items():
        for shape in ((), (1,), (3,), (2, 2), (0,)):
            count = int(np.prod(shape))
            key = f"{name}-{'x'.join(map(str, shape)) or 'one'}"
            value = elements(name, dtype, count, file)
            group = few.create_group(key)
            for target in (group, many, data if count < 2 else group.create_dataset("d", data=1)):
                attribute = target.attrs
                attribute.create(key, value.reshape(shape), shape, dtype)
        many.attrs.create(f"{name}-null", h5py.Empty(dtype))
    few.attrs["naïve-ü"] = "grüße"
    few.attrs["long"] = "x" * 5000
    few.attrs["texts"] = ["", "a", "b" * 3000]
    few.attrs["array-type"] = np.arange(3)
    few.attrs.create("subarray", np.arange(6).reshape(2, 3), (2, 3), np.dtype("(3,)i4"))


def elements(name: str, dtype: Any, count: int, file: h5py.File) -> np.ndarray[Any, Any]:
    """Return `count` elements of a type."""
    if name in {"text", "text-ascii", "fixed-utf8"}:
        texts = ["a", "", "long" * 20] if name == "text-ascii" else ["ä", "", "long"]
        if name == "fixed-utf8":
            return np.array([texts[i % 3].encode() for i in range(count)], dtype)
        return np.array([texts[i % 3] for i in range(count)], object)
    if name == "sequence":
        made = np.empty(count, object)
        for i in range(count):
            made[i] = np.arange(i, dtype=">i4")
        return made
    if name in {"reference", "region"}:
        made = np.empty(count, dtype)
        for i in range(count):
            made[i] = file["data"].ref if name == "reference" else file["data"].regionref[:2]
        return made
    data = np.arange(count * dtype.itemsize, dtype="u1") & (1 if name == "bool" else 255)
    return np.frombuffer(data.tobytes(), dtype, count).copy()


def groups(file: h5py.File) -> None:
    """Write groups of each size, with every kind of link."""
    for tracked in (False, True):
        for count in (0, 3, 8, 9, 40, 700):
            group = file.create_group(f"{count}-{tracked}", track_order=tracked)
            for i in range(count):
                name = f"{'name' * (i % 9)}-{(i * 7919) % 1000}"
                if i % 5 == 1:
                    group[name] = h5py.SoftLink("/somewhere/else")
                elif i % 5 == 2:
                    group[name] = h5py.ExternalLink("other.h5", "/path")
                else:
                    group[name] = file
    deep = file
    for i in range(40):
        deep = deep.create_group(f"g{i}")
    deep["cycle"] = file["/"]
    for count in (5, 8, 9, 200):
        for tracked in (False, True):
            dataset = file.create_dataset(
                f"attributes-{count}-{tracked}", data=1, track_order=tracked
            )
            for i in range(count):
                dataset.attrs[f"{'n' * (i % 7)}{(i * 7919) % 1000}"] = i
    file["named"] = np.dtype([("a", "i4"), ("b", "S5")])
    file["named"].attrs["of"] = "a type"
    file.create_dataset("of-named", (3,), file["named"])
    file["of-named"].attrs.create("also", np.zeros(2, file["named"].dtype), (2,), file["named"])
    if file.libver[0] != "earliest":
        file["of-named"].attrs["large"] = np.arange(30_000, dtype="f8")


def outside(file: h5py.File) -> None:
    """Write datasets whose elements are in other files."""
    file.create_dataset("external", (4,), "i4", external=[("raw.bin", 0, 16)])
    layout = h5py.VirtualLayout((4,), "i4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
    if file.libver[0] not in {"earliest", "v108"}:
        file.create_virtual_dataset("virtual", layout)


def odd(directory: Path) -> None:
    """Write files with user blocks, other widths of numbers or sizes of nodes, and paged files."""
    for block in (512, 1024, 8192):
        for version in ("earliest", "latest"):
            path = directory / f"user-block-{block}-{version}.h5"
            with h5py.File(path, "w", libver=version, userblock_size=block) as file:
                groups(file)
                layouts(file)
    for widths in ((4, 4), (8, 4), (4, 8), (2, 8)):
        plist = h5p.create(h5p.FILE_CREATE)
        plist.set_sizes(*widths)
        path = directory / f"widths-{widths[0]}-{widths[1]}.h5"
        identifier = h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, fcpl=plist)
        with h5py.File(identifier) as file:
            # HDF5 does not recognize an unlimited length that it wrote in 4 bytes.
            longest = (None,) if widths[1] == 8 else (30,)
            file.create_dataset(
                "x", data=np.arange(20), chunks=(3,), maxshape=longest, compression="gzip"
            )
            file["x"].attrs["units"] = "m"
            file.create_group("g")["y"] = h5py.SoftLink("/x")
    for strategy in ("page", "fsm", "aggregate", "none"):
        with h5py.File(
            directory / f"space-{strategy}.h5", "w", fs_strategy=strategy, fs_persist=True
        ) as file:
            groups(file)
    with h5py.File(directory / "long.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=np.zeros(150_000, "i1"), chunks=(1,), maxshape=(None,))
    with h5py.File(directory / "tracked.h5", "w", track_order=True) as file:
        groups(file)
        attributes(file)


def netcdf(directory: Path) -> None:
    """Write files with the netCDF library."""
    for model in ("NETCDF4", "NETCDF4_CLASSIC"):
        with netCDF4.Dataset(directory / f"{model.lower()}.nc", "w", format=model) as file:
            file.createDimension("time", None)
            file.createDimension("lat", 5)
            file.createDimension("lon", 7)
            for i, kind in enumerate(("i1", "i2", "i4", "f4", "f8", "S1")):
                variable = file.createVariable(
                    f"v{i}", kind, ("time", "lat", "lon")[: i % 4], zlib=kind != "S1", complevel=i
                )
                variable.units = "K"
                if kind != "S1" and variable.ndim:
                    variable[:] = np.ones([3, 5, 7][: variable.ndim])
            for i in range(30):
                file.setncattr(f"attribute{i}", np.arange(i, dtype="f4"))
    with netCDF4.Dataset(directory / "user-types.nc", "w") as file:
        file.createDimension("x", 3)
        file.createDimension("t", None)
        file.createDimension("u", None)
        record = file.createCompoundType(np.dtype([("a", "i4"), ("b", "f8", (2,))]), "record")
        enum = file.createEnumType(np.uint8, "weather", {"sun": 0, "rain": 3})
        ragged = file.createVLType(np.int16, "ragged")
        file.createVariable("r", record, ("x",))[:] = np.zeros(3, record.dtype)
        file.createVariable("e", enum, ("x",), fill_value=0)[:] = np.array([0, 3, 0], "u1")
        lists = file.createVariable("l", ragged, ("x",))
        for i in range(3):
            lists[i] = np.arange(i + 1, dtype="i2")
        file.createVariable("s", str, ("x",))[:] = np.array(["a", "", "ccc"], object)
        file.createVariable("two", "f4", ("t", "u"), chunksizes=(2, 2))[:] = np.ones((3, 5))
        inner = file.createGroup("outer").createGroup("inner")
        inner.createDimension("x", 2)
        inner.createVariable("x", "u8", ("x",))
        inner.createVariable("y", "f4", ("t", "x"), endian="big", fletcher32=True, shuffle=True)
        inner.title = "text"
        inner.setncattr_string("string", "text")
        inner.names = ["one", "two"]
    with netCDF4.Dataset(directory / "many.nc", "w") as file:
        for i in range(60):
            file.createDimension(f"d{i}", i + 1)
            variable = file.createVariable(f"v{i}", "f4", (f"d{i}",), compression="zstd")
            variable[:] = np.zeros(i + 1)
            for j in range(i % 14):
                variable.setncattr(f"a{j}", j)


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for version in VERSIONS:
        chunked(directory, version)
        for make in (layouts, attributes, groups, outside):
            path = directory / f"{make.__name__}-{version}.h5"
            with h5py.File(path, "w", libver=version) as file:
                make(file)
    odd(directory)
    netcdf(directory)


if __name__ == "__main__":
    main()
