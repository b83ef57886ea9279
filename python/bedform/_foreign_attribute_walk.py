"""Attributes of HDF5 files, converted from h5py to a chunk map's description.

`_foreign_attributes` defines the forms and converts them to Python.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from bedform._foreign_attributes import MARK, NOT_NETCDF
from bedform._foreign_names import display_name, name_text
from bedform._limits import limit_met

__all__ = ["DescribedAttributes", "describe_attributes", "endian_of"]

#: Attributes of NetCDF's internal bookkeeping, which all libraries hide.
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
#: Names of attributes that are neither text nor numbers.
_KINDS: Final = {
    h5py.h5t.COMPOUND: "an attribute of records",
    h5py.h5t.REFERENCE: "an attribute of references",
    h5py.h5t.VLEN: "an attribute of lists of any length",
    h5py.h5t.OPAQUE: "an attribute of opaque bytes",
    h5py.h5t.ARRAY: "an attribute of arrays",
}
_OTHER_KIND: Final = "an attribute of a type that Bedform does not have"
_NO_UTF8: Final = re.compile("[\udc80-\udcff]")


@dataclass
class DescribedAttributes:
    """The attributes of one object."""

    #: The attributes as in a description, in the order of the file.
    shown: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: Names and reasons of the hidden attributes.
    refused: list[tuple[str, str]] = field(default_factory=list)


def describe_attributes(
    attributes: h5py.AttributeManager, *, is_netcdf: bool
) -> DescribedAttributes:
    """Returns the attributes for users.

    Attributes that are neither text nor numbers (references, compounds) are refused. In NetCDF
    files so are those that the netCDF4 library hides.
    """
    described = DescribedAttributes()
    names: set[str] = set()
    for name in attributes:
        if name in HIDDEN:
            continue
        shown = _name_of(name)
        try:
            value = _describe(attributes, name)
        except (TypeError, ValueError, OSError) as error:
            if limit_met(error):
                raise
            # h5py has no NumPy type for the value.
            value = None
        reason = _reason_of(attributes, name, value, is_netcdf=is_netcdf)
        if reason is not None:
            described.refused.append((shown, reason))
        if value is not None and shown not in names:
            names.add(shown)
            described.shown.append((shown, value))
    return described


def _reason_of(
    attributes: h5py.AttributeManager,
    name: str | bytes,
    value: dict[str, Any] | None,
    *,
    is_netcdf: bool,
) -> str | None:
    """Returns the reason why an attribute is hidden, if it is."""
    if value is None:
        kind = _KINDS.get(attributes.get_id(name).get_type().get_class(), _OTHER_KIND)
        return f"{kind}, which h5py reads"
    data_type = value["values"]["data_type"] if "values" in value else None
    if is_netcdf and data_type in NOT_NETCDF:
        kind = np.dtype(data_type).name
        return f"an attribute of type {kind}, which NetCDF does not have"
    return None


def _name_of(name: str | bytes) -> str:
    """Returns the shown name of an attribute: bytes that are not UTF-8 become `%FE`."""
    text = name_text(name)
    if _NO_UTF8.search(text) is None:
        return text.replace("\0", "")
    return display_name(text, bytes_max=None) or text


def _clean(text: str | bytes) -> str:
    """Removes NULs, which writers in C append, from a text, and marks bytes that are not UTF-8."""
    whole = name_text(text).replace("\0", "")
    return _NO_UTF8.sub(lambda found: f"{MARK}c{ord(found[0]) - 0xDC00:02x}", whole)


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
    """Replaces an array of length one by its element, as the libraries do."""
    return value[0, ...] if value.ndim and value.shape[0] == 1 else value


def _describe_values(value: npt.NDArray[Any]) -> dict[str, Any]:
    """Returns numbers, or characters of one byte, in the description's form."""
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
    """Returns the byte order of a type in the description's words."""
    if dtype.byteorder in "=|":
        return sys.byteorder
    return "big" if dtype.byteorder == ">" else "little"
