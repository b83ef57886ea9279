"""A slow engine with the contract's names, over zarr-python and h5py.

The command line, convert and demo are tested against it where the extension is not built; where
``bedform.open`` exists the tests use the real engine and this module is not imported.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import zarr


class Array:
    def __init__(self, raw: Any, dims: tuple[str, ...], attributes: dict[str, Any]) -> None:
        self._raw, self.dims, self.attributes = raw, dims, attributes
        self.shape, self.dtype = tuple(raw.shape), raw.dtype
        self.fill_value = getattr(raw, "fill_value", getattr(raw, "fillvalue", None))

    def __getitem__(self, selection: Any) -> Any:
        return self._raw[selection]

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._raw[selection] = value

    def read(self, selection: Any, out: Any = None) -> Any:
        value = np.asarray(self._raw[selection])
        if out is None:
            return value
        out[...] = value
        return out

    def info(self) -> dict[str, Any]:
        chunks, shards = self._raw.chunks, getattr(self._raw, "shards", None)
        facts = {"shape": self.shape, "dtype": str(self.dtype), "dims": self.dims}
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        return {**facts, "chunks": chunks, "shards": shards, "bytes": size}

    def explain(self, selection: Any) -> Any:
        return Answer({"selection": str(selection), "requests": 1})


class Answer:
    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        return self._facts[name]

    def to_dict(self) -> dict[str, Any]:
        return self._facts

    def __str__(self) -> str:
        return "\n".join(f"{key}: {value}" for key, value in self._facts.items())


class Store:
    def __init__(self, path: Any, arrays: dict[str, Array], attributes: dict[str, Any]) -> None:
        self._path, self._arrays, self.attributes = str(path), arrays, attributes

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def arrays(self) -> dict[str, Array]:
        return self._arrays

    def groups(self) -> dict[str, dict[str, Any]]:
        return {}

    def info(self) -> dict[str, Any]:
        return {"path": self._path, "attributes": self.attributes}

    def verify(self, progress: Any = None) -> list[str]:
        return []

    def create_array(
        self,
        name: str,
        *,
        shape: Any,
        dtype: Any,
        dims: Any,
        layout: Any = "auto",
        fill_value: Any = None,
        attributes: Any = None,
    ) -> Array:
        whole = tuple(max(length, 1) for length in shape)
        chunks = whole if layout == "auto" else layout.chunks
        raw = zarr.open_group(self._path, mode="r+").create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            shards=None if layout == "auto" else layout.shards,
            fill_value=fill_value,
            dimension_names=dims or None,
            attributes=attributes,
        )
        self._arrays[name] = Array(raw, tuple(dims), dict(attributes or {}))
        return self._arrays[name]


def create(path: Any, attributes: Any = None) -> Store:
    zarr.create_group(str(path), attributes=attributes)
    return open_(path)


def open_(path: Any, mode: str = "r", cache: Any = None) -> Store:
    if str(path).endswith((".nc", ".h5")):
        return _open_hdf5(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(str(path), mode=mode)
        arrays = {
            name: Array(raw, tuple(raw.metadata.dimension_names or ()), dict(raw.attrs))
            for name, raw in group.arrays()
        }
    return Store(path, arrays, dict(group.attrs))


def _open_hdf5(path: Any) -> Store:
    file = h5py.File(path)
    arrays = {}
    for name, raw in file.items():
        if isinstance(raw, h5py.Dataset):
            if raw.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension"):
                continue
            scales = [list(dim.values()) for dim in raw.dims]
            dims = tuple(
                found[0].name[1:] if found else name if raw.is_scale else f"d{at}"
                for at, found in enumerate(scales)
            )
            kept = ("units", "_FillValue", "standard_name", "long_name")
            found = {key: raw.attrs[key] for key in kept if key in raw.attrs}
            plain = {
                key: value.decode() if isinstance(value, bytes) else value
                for key, value in found.items()
            }
            arrays[name] = Array(raw, dims if raw.shape else (), plain)
    return Store(path, arrays, {})


def advise(shape: Any, dtype: Any, dims: Any = None, **_: Any) -> Answer:
    chunks = tuple(min(length, 25) for length in shape)
    shards = tuple(-(-min(length, 50) // c) * c for length, c in zip(shape, chunks, strict=True))
    return Answer({"chunks": chunks, "shards": shards, "order": "row-major"})


def calibrate(path: Any, progress: Any = None) -> Answer:
    return Answer({"path": str(path), "bandwidth_bytes_per_second": 1.2e9})


def Regular(chunks: Any, shards: Any = None, order: str = "row-major") -> Any:  # noqa: N802
    return SimpleNamespace(chunks=chunks, shards=shards, order=order)
