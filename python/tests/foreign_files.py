"""Foreign files for the tests, and a naive reader by chunk map."""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numcodecs
import numpy as np
import numpy.typing as npt

from bedform._foreign import ChunkMapParts, chunk_map

if TYPE_CHECKING:
    from pathlib import Path


class Map:
    """The parts of a chunk map, decoded as in Rust."""

    def __init__(self, parts: ChunkMapParts) -> None:
        self.description: dict[str, Any] = json.loads(parts.description)
        self.arrays = {array["path"]: array for array in self.description["arrays"]}
        self.groups = {group["path"]: group for group in self.description["groups"]}
        tables = iter(parts.tables)
        self.tables = {
            path: next(tables)
            for path, array in self.arrays.items()
            if "chunked" in array["storage"]
        }
        assert next(tables, None) is None

    def reason(self, path: str) -> str:
        """Returns the reason why a variable is read natively."""
        return str(self.arrays[path]["storage"]["native"]["reason"])

    def refused(self, group: str = "") -> dict[str, str]:
        return {item["name"]: item["reason"] for item in self.groups[group]["refused"]}


def load(path: Path, **options: Any) -> Map:
    return Map(chunk_map(path, **options))


def read(path: Path, file_map: Map, name: str) -> npt.NDArray[Any]:
    """Reads a variable by its chunk map alone: positioned reads, NumPy and codecs, no HDF5."""
    array = file_map.arrays[name]
    order = ">" if array["endian"] == "big" else "<"
    dtype = np.dtype(order + array["data_type"])
    shape = array["shape"]
    fill = bytes.fromhex(array["fill_value"] or "00" * dtype.itemsize)
    result = np.full(shape, np.frombuffer(fill, dtype)[0], dtype)
    storage = array["storage"]
    if storage == "empty":
        return result
    ((kind, where),) = storage.items()
    if kind == "compact":
        return np.frombuffer(bytes.fromhex(where["data"]), dtype).reshape(shape)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if kind == "contiguous":
            data = os.pread(descriptor, where["length"], where["offset"])
            return np.frombuffer(data, dtype).reshape(shape)
        assert kind == "chunked"
        chunk_shape = where["chunk_shape"]
        grid = [-(-size // chunk) for size, chunk in zip(shape, chunk_shape, strict=True)]
        for index, offset, length, mask in zip(*file_map.tables[name], strict=True):
            data = os.pread(descriptor, int(length), int(offset))
            for position, codec in reversed(list(enumerate(where["codecs"]))):
                if not int(mask) >> position & 1:
                    data = decode(codec, data)
            chunk = np.frombuffer(data, dtype).reshape(chunk_shape)
            at = np.unravel_index(int(index), grid)
            corner = [int(i) * size for i, size in zip(at, chunk_shape, strict=True)]
            box = (slice(i, i + n) for i, n in zip(corner, chunk_shape, strict=True))
            target = result[tuple(box)]
            target[...] = chunk[tuple(slice(0, size) for size in target.shape)]
    finally:
        os.close(descriptor)
    return result


def decode(codec: str | dict[str, Any], data: bytes) -> bytes:
    if codec == "fletcher32":
        return data[:-4]
    assert isinstance(codec, dict)
    ((name, settings),) = codec.items()
    if name == "zlib":
        return zlib.decompress(data)
    if name == "shuffle":
        planes = np.frombuffer(data, "u1").reshape(settings["element_size"], -1)
        return planes.T.tobytes()
    if name == "zstd":
        return bytes(numcodecs.Zstd().decode(data))
    assert name == "blosc"
    return bytes(numcodecs.Blosc().decode(data))


def write_netcdf(path: Path) -> Path:
    """Writes a NetCDF-4 file with all features that the netCDF4 library can write."""
    rng = np.random.default_rng(7)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in [("time", None), ("x", 6), ("s", 3), ("big", 4000)]:
            file.createDimension(name, size)
        file.Conventions = "CF-1.8"
        file.numbers = np.arange(3.0)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(5)
        packed = file.createVariable(
            "packed",
            "i2",
            ("time", "x"),
            zlib=True,
            complevel=4,
            shuffle=True,
            fletcher32=True,
            fill_value=-9,
            chunksizes=(2, 4),
        )
        packed.setncatts(
            {
                "scale_factor": np.float32(2),
                "flags": np.array([1, 2], "i2"),
                "one": np.array([7], "i4"),
                "text": "abc",
                "empty": "",
                "character": "q",
                "missing_value": np.int16(-8),
            }
        )
        packed.setncattr_string("texts", ["a", "bb"])
        packed.setncattr_string("single", "a")
        packed.set_auto_maskandscale(False)
        packed[:] = rng.integers(-100, 100, (5, 6))
        file.createVariable("plain", "i2", ("x",), contiguous=True)[:] = np.arange(6)
        file.createVariable("big_endian", ">i4", ("x",), endian="big")[:] = np.arange(6)
        characters = file.createVariable("characters", "S1", ("x", "s"), fill_value="-")
        characters[:] = np.array([list("abc")] * 6, "S1")
        texts = file.createVariable("texts", str, ("x",))
        texts[:] = np.array(["a", "b\u00e9", "c", "d", "e", ""], object)
        file.createVariable("scalar", "f8", ())[...] = 3.0
        noise = np.repeat(np.arange(400.0), 10)
        compressions: dict[str, dict[str, Any]] = {
            "zstd": {"compression": "zstd", "complevel": 3},
            "blosc": {"compression": "blosc_lz4", "blosc_shuffle": 1},
            "blosc_zstd": {"compression": "blosc_zstd", "complevel": 5, "blosc_shuffle": 2},
            "bzip2": {"compression": "bzip2", "complevel": 9},
            "szip": {"compression": "szip"},
        }
        for kind, settings in compressions.items():
            file.createVariable(kind, "f4", ("big",), **settings)[:] = noise
        file.createVariable("never", "f4", ("time", "x"))
        file.createVariable("never_plain", "i4", ("x",))
        file.createVariable("rounded", "f4", ("x",), least_significant_digit=2)[:] = 1.25
        file.createVariable("x", "f4", ("x", "s"))[:] = np.arange(18.0).reshape(6, 3)
        file.createVariable("s", "f4", ("x",))[:] = np.arange(6)
        clouds = file.createEnumType("u1", "cloud_type", {"clear": 0, "cloud": 1})
        file.createVariable("clouds", clouds, ("x",), fill_value=0)[:] = 1
        child = file.createGroup("child")
        child.title = "below"
        child.createDimension("y", 2)
        child.createVariable("inner", "i8", ("y", "x"))[:] = 5
        child.createGroup("deep").createVariable("more", "u8", ("y",))[:] = 2**64 - 1
    return path


def write_hdf5(path: Path) -> Path:
    """Writes an HDF5 file that is not NetCDF, with all features that h5py can write."""
    rng = np.random.default_rng(8)
    with h5py.File(path, "w") as file:
        for dtype in ["i1", ">i2", "<i4", ">i8", "u1", ">u2", "u4", "u8", "f2", ">f4", "f8"]:
            data = rng.integers(0, 100, (4, 5)).astype(dtype)
            name = dtype.replace(">", "big_").replace("<", "little_")
            file[f"plain_{name}"] = data
            file.create_dataset(
                f"deflate_{name}", data=data, chunks=(2, 3), compression="gzip", shuffle=True
            )
        file["bool"] = np.array([True, False, True])
        file["complex64"] = np.array([1 + 2j, 3], "c8")
        file["complex128_big"] = np.array([1 + 2j, 3], ">c16")
        file["fixed"] = np.array([b"abc", b"d"])
        file["scalar"] = 1.5
        file["empty"] = np.zeros((0, 3))
        file.create_dataset("never", (4, 5), "f4", fillvalue=-1.5)
        file.create_dataset("never_chunked", (4, 5), ">f4", chunks=(2, 2), fillvalue=2.5)
        sparse = file.create_dataset("sparse", (9, 9), "i4", chunks=(2, 4), fillvalue=-7)
        sparse[3:5, 5:7] = 1
        growing = file.create_dataset("growing", (3, 4), "i4", maxshape=(None, 4), chunks=(2, 3))
        growing[...] = np.arange(12).reshape(3, 4)
        checked = file.create_dataset("checked", (9,), "f8", chunks=(4,), fletcher32=True)
        checked[...] = np.arange(9)
        skipped = file.create_dataset(
            "skipped", (4, 6), "<i4", chunks=(2, 6), compression="gzip", shuffle=True
        )
        raw = np.arange(12, dtype="<i4")
        shuffled = raw.view("u1").reshape(-1, 4).T.tobytes()
        skipped.id.write_direct_chunk((0, 0), raw.tobytes(), filter_mask=3)
        skipped.id.write_direct_chunk((2, 0), shuffled, filter_mask=2)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        small = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I16BE, space, compact)
        h5py.Dataset(small)[...] = [1, -2, 3]
        file.create_dataset("lzf", data=np.arange(100), compression="lzf")
        file["texts"] = ["a", "b\u00e9"]
        file["compound"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        file["reference"] = np.array([file["bool"].ref], dtype=h5py.ref_dtype)
        file["enumeration"] = np.array([0, 3], h5py.enum_dtype({"a": 0, "b": 3}, ">u2"))
        terminated = h5py.h5t.C_S1.copy()
        terminated.set_size(4)
        h5py.Dataset(h5py.h5d.create(file.id, b"terminated", terminated, space))[...] = b"ab"
        file["group/inner"] = np.arange(3)
        plain = file["plain_f8"]
        plain.attrs.update({"units": "K", "number": 3, "bytes": np.bytes_("xyz")})
        plain.attrs["matrix"] = np.arange(4).reshape(2, 2)
        plain.attrs["half"] = np.float16(2)
        plain.attrs["flag"] = True
        plain.attrs["characters"] = np.array([b"a", b"c"], "S1")
        plain.attrs["big"] = np.arange(2, dtype=">i4")
        plain.attrs["nothing"] = h5py.Empty("f4")
        plain.attrs["reference"] = file["bool"].ref
    return path
