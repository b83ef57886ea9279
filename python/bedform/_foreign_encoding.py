"""xarray's view of a foreign variable: attributes, encoding and type in a backend's words.

xarray's backends `netcdf4` and `h5netcdf` agree on names, dimensions and values, and describe the
storage of a variable differently. `style_of` chooses one: `netcdf4` for NetCDF files, including
classic ones, and `h5netcdf` for other HDF5 files, since netCDF4 cannot open many of those.

All functions take parts of a chunk map's description, as `json.loads` returns them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bedform._dask_blocks import PreferredChunks, block_shape
from bedform._foreign_attributes import Style, python_attributes

__all__ = [
    "Style",
    "dimension_names",
    "group_attributes",
    "style_of",
    "unlimited_dimensions",
    "variable_attributes",
    "variable_dtype",
    "variable_encoding",
]

_DEFLATE: Final = 1
_SHUFFLE: Final = 2
_FLETCHER32: Final = 3
_SZIP: Final = 4
_BZIP2: Final = 307
_LZF: Final = 32000
_BLOSC: Final = 32001
_LZ4: Final = 32004
_ZSTD: Final = 32015
#: h5py's names of filters; h5py treats all other filters as unknown compressors.
_H5PY_NAMES: Final = {
    _DEFLATE: "gzip",
    _SZIP: "szip",
    _LZF: "lzf",
    _SHUFFLE: "shuffle",
    _FLETCHER32: "fletcher32",
    6: "scaleoffset",
}
_H5PY_COMPRESSORS: Final = ("gzip", "szip", "lzf")
_BLOSC_COMPRESSORS: Final = (
    "blosc_lz",
    "blosc_lz4",
    "blosc_lz4hc",
    "blosc_snappy",
    "blosc_zlib",
    "blosc_zstd",
)


def style_of(description: dict[str, Any]) -> Style:
    """Returns the backend whose words fit a file best."""
    return "h5netcdf" if description["format"] == "hdf5" else "netcdf4"


def variable_dtype(array: dict[str, Any], style: Style) -> np.dtype[Any]:
    """Returns the type of the elements in the backend of this style, before any decoding.

    Text of variable length has the type `object`, with xarray's metadata for text.
    """
    words = array["encoding"]["dtype"]
    if words == "str":
        return np.dtype("O", metadata={"element_type": str})
    if array["data_type"] is None:
        return np.dtype("O")
    dtype: np.dtype[Any] = np.dtype(words)
    is_classic = array["encoding"].get("classic", False)
    return dtype.newbyteorder("=") if style == "netcdf4" and is_classic else dtype


def variable_attributes(array: dict[str, Any], style: Style) -> dict[str, Any]:
    """Returns the attributes of a variable as the backend of this style shows them."""
    attributes = python_attributes(array["attributes"], style)
    fill = attributes.get("_FillValue")
    if isinstance(fill, str) and str(array["data_type"]).startswith("S"):
        # As in xarray, since libraries return the fill value of characters as text.
        attributes["_FillValue"] = np.bytes_(fill.encode())
    if style == "netcdf4":
        attributes.pop("least_significant_digit", None)
    return attributes


def variable_encoding(
    array: dict[str, Any], style: Style, *, source: str, names: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the encoding of a variable as the backend of this style shows it.

    Parameters
    ----------
    array
        The array's entry in the description.
    style
        The backend.
    source
        The file name that the backend would report.
    names
        The dimension names; see `dimension_names`.
    """
    stored = array["encoding"]
    encoding: dict[str, Any] = {"dtype": _encoding_dtype(array, style)}
    if not stored.get("classic", False):
        chunks = stored["chunks"]
        if style == "netcdf4":
            encoding.update(_netcdf4_filters(stored["filters"]))
        encoding["contiguous"] = chunks is None
        encoding["chunksizes"] = None if chunks is None else tuple(chunks)
        if chunks is not None:
            size = variable_dtype(array, style).itemsize
            blocks = block_shape(tuple(array["shape"]), size, tuple(chunks))
            encoding["preferred_chunks"] = PreferredChunks(names, blocks, chunks)
        if style == "h5netcdf":
            encoding.update(_h5netcdf_filters(stored["filters"]))
    if style == "netcdf4":
        attributes = python_attributes(array["attributes"], style)
        if "least_significant_digit" in attributes:
            encoding["least_significant_digit"] = attributes["least_significant_digit"]
    encoding["source"] = source
    encoding["original_shape"] = tuple(array["shape"])
    return encoding


def _encoding_dtype(array: dict[str, Any], style: Style) -> Any:
    if array["encoding"]["dtype"] == "str":
        return str
    dtype = variable_dtype(array, style)
    enumeration = array["encoding"]["enumeration"]
    if enumeration is None:
        return dtype
    metadata: dict[str, Any] = {
        "enum": {member: int(value) for member, value in enumeration["members"]}
    }
    if enumeration["name"]:
        metadata["enum_name"] = enumeration["name"]
    return np.dtype(dtype, metadata=metadata)


def _netcdf4_filters(filters: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of `netCDF4.Variable.filters`."""
    values = {item["id"]: item["values"] for item in filters}
    said: dict[str, Any] = {
        "zlib": _DEFLATE in values,
        "szip": False,
        "zstd": _ZSTD in values,
        "bzip2": _BZIP2 in values,
        "blosc": False,
        "shuffle": _SHUFFLE in values,
        "complevel": 0,
        "fletcher32": _FLETCHER32 in values,
    }
    for code in (_DEFLATE, _ZSTD, _BZIP2):
        if values.get(code):
            said["complevel"] = values[code][0]
    if len(values.get(_BLOSC, [])) >= 7:
        level, shuffle, compressor = values[_BLOSC][4:7]
        said["blosc"] = {
            "compressor": _BLOSC_COMPRESSORS[min(compressor, len(_BLOSC_COMPRESSORS) - 1)],
            "shuffle": shuffle,
        }
        said["complevel"] = level
    if len(values.get(_SZIP, [])) >= 2:
        mask, pixels = values[_SZIP][:2]
        coding = "ec" if mask & 4 else "nn"
        said["szip"] = {"coding": coding, "pixels_per_block": pixels}
    return said


def _h5netcdf_filters(filters: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of `h5netcdf.Variable.filters`, with xarray's additions."""
    values = {item["id"]: item["values"] for item in filters}
    said: dict[str, Any] = {
        "zlib": _DEFLATE in values,
        "szip": _SZIP in values,
        "bzip2": _BZIP2 in values,
        # h5netcdf confuses the number of LZ4 with that of Blosc; this repeats it.
        "blosc": _LZ4 in values,
        "zstd": _ZSTD in values,
        "shuffle": _SHUFFLE in values,
        "fletcher32": _FLETCHER32 in values,
    }
    for code in (_BZIP2, _LZ4, _ZSTD):
        if values.get(code):
            said["complevel"] = values[code][0]
    szip = _h5py_szip(values.get(_SZIP, []))
    if szip is not None:
        said["complevel"] = szip[0]
    if _DEFLATE in values:
        said["complevel"] = values[_DEFLATE][0]
        return said
    names = [_H5PY_NAMES.get(code, str(code)) for code in values]
    known = next((name for name in names if name in _H5PY_COMPRESSORS), None)
    if known is None and any(code not in _H5PY_NAMES for code in values):
        known = "unknown"
    if known is not None:
        said["compression"] = known
        said["compression_opts"] = szip if known == "szip" else None
    return said


def _h5py_szip(values: list[int]) -> tuple[str, int] | None:
    if len(values) < 2:
        return None
    return ("ec" if values[0] & 4 else "nn"), values[1]


def group_attributes(group: dict[str, Any], style: Style) -> dict[str, Any]:
    """Returns the attributes of a group as the backend of this style shows them."""
    return python_attributes(group["attributes"], style)


def unlimited_dimensions(group: dict[str, Any]) -> set[str]:
    """Returns the growing dimensions of a group, for a dataset's encoding."""
    return {item["name"] for item in group["dimensions"] if item["unlimited"]}


def dimension_names(description: dict[str, Any], group: str) -> dict[str, tuple[str, ...]]:
    """Returns the dimension names of each variable of a group, by the variable's path.

    Files without names get those that the netCDF library makes up.
    """
    return {
        array["path"]: tuple(array["dimension_names"] or ())
        for array in description["arrays"]
        if array["path"].rpartition("/")[0] == group
    }
