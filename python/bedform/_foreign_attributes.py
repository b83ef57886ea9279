"""Attributes of foreign files: from HDF5 into a chunk map's description, and back into Python.

The forms in the description are those of ``chunk_map`` in the format crate: ``{"text": ..}``,
``{"texts": [..]}`` and ``{"values": {data_type, endian, shape, data}}``.
"""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

import h5py
import numpy as np
import numpy.typing as npt

from bedform._foreign_names import display_name, name_text
from bedform._limits import limit_met

__all__ = ["HIDDEN", "Style", "describe_attributes", "endian_of", "python_attributes"]

#: Whose words attributes and encodings are given in.
Style = Literal["netcdf4", "h5netcdf"]

#: Attributes that hold NetCDF's own bookkeeping; no library shows them.
HIDDEN: Final = frozenset(
    {
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)
_NUMBER_KINDS: Final = "biufc"
#: Numbers that NetCDF does not have; the netCDF4 library does not show such attributes.
_NOT_NETCDF: Final = {"b1", "f2", "c8", "c16"}


def describe_attributes(
    attributes: h5py.AttributeManager,
) -> list[tuple[str, dict[str, Any]]]:
    """The attributes that users see, as a description has them, in the order of the file.

    Those of types that neither text nor numbers can show (references, compounds) are left out, as
    the netCDF4 library does.
    """
    described = []
    names: set[str] = set()
    for name in attributes:
        if name in HIDDEN:
            continue
        try:
            value = _describe(attributes, name)
        except (TypeError, ValueError, OSError) as error:
            if limit_met(error):
                raise
            # h5py has no NumPy type for it.
            value = None
        if value is not None:
            shown = _clean(name)
            if shown in names:
                # Without what is not UTF-8 it is the same as another.
                shown = display_name(name_text(name), bytes_max=None) or shown
            if shown not in names:
                names.add(shown)
                described.append((shown, value))
    return described


def _clean(text: str | bytes) -> str:
    """Text without what is not UTF-8 and without zeros, which writers in C leave at the end."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "replace").replace("\0", "")


def _describe(attributes: h5py.AttributeManager, name: str) -> dict[str, Any] | None:
    attribute = attributes.get_id(name)
    datatype = attribute.get_type()
    is_null = attribute.get_space().get_simple_extent_type() == h5py.h5s.NULL
    if isinstance(datatype, h5py.h5t.TypeStringID):
        is_variable = datatype.is_variable_str()
        if is_null:
            return {"texts": []} if is_variable else {"text": ""}
        value = np.asarray(attributes[name])
        if not is_variable and datatype.get_size() == 1 and value.dtype.kind == "S":
            return _describe_values(_drop_single(value))
        texts = [_clean(text) for text in value.ravel().tolist()]
        return {"text": texts[0]} if len(texts) == 1 else {"texts": texts}
    dtype = attribute.dtype
    if dtype.kind not in _NUMBER_KINDS or dtype.itemsize > 16 or dtype.str[1:] in {"f16", "f12"}:
        return None
    value = np.zeros(0, dtype) if is_null else np.asarray(attributes[name])
    return _describe_values(_drop_single(value))


def _drop_single(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The libraries show an array of length one as its element."""
    return value[0, ...] if value.ndim and value.shape[0] == 1 else value


def _describe_values(value: npt.NDArray[Any]) -> dict[str, Any]:
    """Numbers, or characters of one byte, as a description has them."""
    dtype = value.dtype
    return {
        "values": {
            "data_type": dtype.str[1:],
            "endian": endian_of(dtype),
            "shape": list(value.shape) if value.ndim else None,
            "data": value.tobytes().hex(),
        }
    }


def endian_of(dtype: np.dtype[Any]) -> str:
    """The byte order of a type in the description's words."""
    if dtype.byteorder in "=|":
        return sys.byteorder
    return "big" if dtype.byteorder == ">" else "little"


def python_attributes(described: list[tuple[str, dict[str, Any]]], style: Style) -> dict[str, Any]:
    """The attributes as xarray's engine for that library shows them.

    >>> python_attributes([("units", {"text": "K"})], "netcdf4")
    {'units': 'K'}
    """
    shown = {}
    for name, attribute in described:
        if "text" in attribute:
            shown[name] = attribute["text"]
        elif "texts" in attribute:
            shown[name] = list(attribute["texts"])
        else:
            values = attribute["values"]
            if style == "netcdf4" and values["data_type"] in _NOT_NETCDF:
                continue
            shown[name] = _python_values(name, values, style)
    return shown


def _python_values(name: str, values: dict[str, Any], style: Style) -> Any:
    order = ">" if values["endian"] == "big" else "<"
    dtype = np.dtype(order + values["data_type"])
    shape = values["shape"]
    array = np.frombuffer(bytes.fromhex(values["data"]), dtype)
    array = array.reshape(() if shape is None else shape)
    if dtype.kind == "S":
        if style == "netcdf4":
            texts = [_clean(character) for character in array.ravel().tolist()]
            return texts[0] if shape is None else texts
        if shape is not None:
            return array.tolist()
        # xarray wants the bytes where they stand for values of the variable.
        keep = name in {"_FillValue", "missing_value"}
        element = array.tobytes().rstrip(b"\0")
        return np.bytes_(element) if keep else element.decode("utf-8", "replace")
    if style == "netcdf4":
        array = array.astype(dtype.newbyteorder("="))
    return array[()] if shape is None else array.copy()
