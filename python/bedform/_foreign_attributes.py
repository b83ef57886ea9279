"""Attributes of foreign files, converted from a chunk map's description, without HDF5.

The forms in the description are those of ``chunk_map`` in the format crate: ``{"text": ..}``,
``{"texts": [..]}`` and ``{"values": {data_type, endian, shape, data}}``.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import numpy as np

__all__ = ["MARK", "NOT_NETCDF", "Style", "python_attributes"]

#: The xarray backend whose forms of attributes and encodings are used.
Style = Literal["netcdf4", "h5netcdf"]

#: Numeric types that NetCDF lacks; the netCDF4 library hides such attributes.
NOT_NETCDF: Final = {"b1", "f2", "c8", "c16"}
#: Marks a byte that is not UTF-8 in a text: `text_of_bytes` in the format crate.
MARK: Final = "\ue002"
_MARKED_BYTE: Final = re.compile(MARK + "c([89a-f][0-9a-f])")


def python_attributes(described: list[tuple[str, dict[str, Any]]], style: Style) -> dict[str, Any]:
    """Returns the attributes as xarray's backend for that library shows them.

    >>> python_attributes([("units", {"text": "K"})], "netcdf4")
    {'units': 'K'}
    """
    shown: dict[str, Any] = {}
    for name, attribute in described:
        if "text" in attribute:
            shown[name] = _unmarked(attribute["text"])
        elif "texts" in attribute:
            shown[name] = [_unmarked(text) for text in attribute["texts"]]
        else:
            values = attribute["values"]
            if style == "netcdf4" and values["data_type"] in NOT_NETCDF:
                continue
            shown[name] = _python_values(name, values, style)
    return shown


def _without_zeros(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape").replace("\0", "")


def _python_values(name: str, values: dict[str, Any], style: Style) -> Any:
    order = ">" if values["endian"] == "big" else "<"
    dtype = np.dtype(order + values["data_type"])
    shape = values["shape"]
    array = np.frombuffer(bytes.fromhex(values["data"]), dtype)
    array = array.reshape(() if shape is None else shape)
    if dtype.kind == "S":
        if style == "netcdf4":
            texts = [_without_zeros(character) for character in array.ravel().tolist()]
            return texts[0] if shape is None else texts
        if shape is not None:
            return array.tolist()
        # xarray needs bytes for attributes that are values of the variable.
        keep = name in {"_FillValue", "missing_value"}
        element = array.tobytes().rstrip(b"\0")
        return np.bytes_(element) if keep else _without_zeros(element)
    if style == "netcdf4":
        array = array.astype(dtype.newbyteorder("="))
    return array[()] if shape is None else array.copy()


def _unmarked(text: str) -> str:
    """Returns a text with surrogate escapes in place of marked bytes."""
    return _MARKED_BYTE.sub(lambda found: chr(0xDC00 | int(found[1], 16)), text)
