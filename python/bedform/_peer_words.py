"""Translation of h5py's and zarr-python's arguments for new arrays into Bedform's.

This module knows every argument of ``h5py.Group.create_dataset`` and ``zarr.Group.create_array``.
Each has a counterpart, or always holds, or is refused with a remedy. No argument that would make a
difference is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._elements import type_of
from bedform._errors import InvalidArgumentError, UnsupportedError, WrongTypeError
from bedform._hints import did_you_mean
from bedform._integers import integer, integers
from bedform._layout import Regular
from bedform._new_array import DEFAULTS, describe
from bedform._zarr_encoding import codecs_from

if TYPE_CHECKING:
    from collections.abc import Mapping

_GZIP_LEVEL = 4

#: Other names of Bedform's arguments.
_SAME = {
    "dimension_names": "dims",
    "fillvalue": "fill_value",
    "attrs": "attributes",
}
#: Arguments without effect at these values, and the remedy for other values.
_ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "zarr_format": ((None, 3), "arrays are of Zarr v3: leave it out"),
    "order": (
        (None, "C"),
        "elements come in C order: leave it out; layout=bf.Regular(..., order=...) orders chunks",
    ),
    "chunk_key_encoding": ((None,), "keys are those of Zarr v3 (c/0/0): leave it out"),
    "storage_options": ((None,), "they belong to bf.open or bf.create"),
    "config": ((None,), "leave it out"),
    "write_data": ((True,), "leave data out and write the elements later"),
    "scaleoffset": (
        (None, False),
        "it loses digits: leave it out, or take codecs=['pcodec'], which loses none",
    ),
    "external": ((None, ()), "elements lie in the store: leave it out"),
    "efile_prefix": ((None,), "leave it out"),
    "virtual_prefix": ((None,), "leave it out"),
    "dcpl": ((None,), "property lists are HDF5's own: name what they ask for"),
    "dapl": ((None,), "property lists are HDF5's own: name what they ask for"),
    "fill_time": ((None, "alloc", "ifset", "never"), "leave it out"),
    # Creation times and attribute orders do not affect the data.
    "track_times": ((None, False), "no times are kept: leave it out"),
    "track_order": ((None, True), "attributes keep their order: leave it out"),
    "allow_unknown_filter": ((False,), "leave it out"),
    "rdcc_nslots": ((None,), "bf.open(..., cache=) bounds what is kept in memory"),
    "rdcc_nbytes": ((None,), "bf.open(..., cache=) bounds what is kept in memory"),
    "rdcc_w0": ((None,), "bf.open(..., cache=) bounds what is kept in memory"),
}
CODEC_WORDS = (
    "compression",
    "compression_opts",
    "shuffle",
    "fletcher32",
    "compressors",
    "compressor",
    "filters",
    "serializer",
)
_OWN = {
    *DEFAULTS,
    "shape",
    "dtype",
    "chunks",
    "shards",
    "data",
    "checksum",
    "overwrite",
    "maxshape",
    "transpose",
}


@dataclass
class NewArrayRequest:
    """A requested array: its description for the engine, and its values, if any."""

    description: dict[str, Any]
    data: Any
    overwrite: bool


def wanted(given: Mapping[str, Any], default_dtype: Any = None) -> NewArrayRequest:
    """Returns the array that a caller requests with any of these arguments.

    Raises
    ------
    InvalidArgumentError
        The arguments contradict each other, or have no counterpart.
    """
    words = _own_words(given)
    _take_data(words)
    codecs = _codecs(words)
    layout = _layout(words)
    shape, dtype = words.get("shape"), words.get("dtype")
    if shape is None:
        raise InvalidArgumentError("shape is missing: give it, or data")
    dtype = default_dtype if dtype is None else dtype
    if dtype is None:
        raise InvalidArgumentError("dtype is missing: give it, or data")
    kind = type_of(dtype)
    _check_special(kind)
    given_words = {name: words[name] for name in DEFAULTS if words.get(name) is not None}
    arguments = {**DEFAULTS, **given_words}
    arguments |= {"layout": layout, "codecs": codecs.pop("codecs", arguments["codecs"])}
    _check_maxshape(words.get("maxshape"), shape)
    description = describe(shape, kind, **arguments)
    checksum = words.get("checksum")
    description |= {"checksum": True if checksum is None else checksum, **codecs}
    return NewArrayRequest(description, words.get("data"), bool(words.get("overwrite", False)))


def _own_words(given: Mapping[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for name, value in given.items():
        own = _SAME.get(name, name)
        if name in _ONLY:
            allowed, remedy = _ONLY[name]
            if not any(
                value is one or (type(value) is type(one) and value == one) for one in allowed
            ):
                raise UnsupportedError(f"{name}={value!r} has no counterpart: {remedy}")
        elif own not in _OWN and own not in CODEC_WORDS:
            meant = did_you_mean(name, [*_OWN, *_SAME, *CODEC_WORDS])
            raise WrongTypeError(f"there is no argument {name!r} of a new array{meant}")
        elif own in words and value is not None and words[own] is not None:
            raise InvalidArgumentError(f"{own} and {name} are the same: give one of them")
        elif words.get(own) is None:
            words[own] = value
    return words


def _is_same(value: Any, one: Any) -> bool:
    # Arrays, which a caller may pass anywhere, have no equality of their own.
    return type(value) is type(one) and bool(value == one)


def _take_data(words: dict[str, Any]) -> None:
    """Fills in shape, type, dimensions and attributes from the data."""
    data = words.get("data")
    if data is None:
        return
    if type(data).__module__.partition(".")[0] == "xarray":
        if not hasattr(data, "dims") or not hasattr(data, "dtype"):
            raise WrongTypeError("a data set is written with bf.write_dataset, or array by array")
        if words.get("attributes") is None:
            words["attributes"] = dict(data.attrs)
    if words.get("dims") is None and hasattr(data, "dtype") and _has_names(data):
        words["dims"] = tuple(data.dims)
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        data = words["data"] = np.asanyarray(data)
    if words.get("dtype") is None:
        words["dtype"] = data.dtype
    shape = words.get("shape")
    if shape is None:
        words["shape"] = tuple(data.shape)
        return
    lengths = integers(shape, "the shape")
    if lengths == tuple(data.shape):
        return
    if int(np.prod(lengths, dtype=object)) != int(np.prod(data.shape, dtype=object)):
        raise InvalidArgumentError(f"data of shape {tuple(data.shape)} do not fit shape {lengths}")
    words["data"] = np.asanyarray(data).reshape(lengths)


def _has_names(data: Any) -> bool:
    dims = getattr(data, "dims", None)
    return isinstance(dims, tuple) and all(isinstance(name, str) for name in dims)


def _layout(words: dict[str, Any]) -> Any:
    layout = "auto" if words.get("layout") is None else words["layout"]
    chunks, shards = (_given_lengths(words, name) for name in ("chunks", "shards"))
    if chunks is None and shards is None:
        return layout
    if layout != "auto":
        raise InvalidArgumentError("layout says chunks and shards: give it, or chunks and shards")
    if chunks is None:
        raise InvalidArgumentError("shards come with chunks: give both, or chunks alone")
    return Regular(chunks, shards)


def _given_lengths(words: dict[str, Any], name: str) -> tuple[int, ...] | None:
    value = words.get(name)
    # True is a valid value in h5py, and "auto" in zarr-python.
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value == "auto"):
        return None
    rank = len(integers(words.get("shape", ()) or (), "the shape"))
    if not hasattr(value, "__len__"):
        return (integer(value, name, least=1),) * rank
    return integers(value, name)


def _check_maxshape(maxshape: Any, shape: Any) -> None:
    """Checks that ``shape`` is within ``maxshape``; the limit itself is not stored."""
    if maxshape is None or maxshape is True:
        return
    lengths = integers(shape, "the shape")
    limits = maxshape if hasattr(maxshape, "__len__") else (maxshape,)
    if len(limits) != len(lengths):
        raise InvalidArgumentError(f"maxshape {maxshape!r} has not the axes of shape {lengths}")
    for limit, length in zip(limits, lengths, strict=True):
        if limit is not None and integer(limit, "maxshape") < length:
            raise InvalidArgumentError(f"maxshape {maxshape!r} is less than shape {lengths}")


def _codecs(words: dict[str, Any]) -> dict[str, Any]:
    """Returns ``codecs``, and perhaps ``transpose``, from the codec arguments."""
    asked = {name: words[name] for name in CODEC_WORDS if words.get(name) is not None}
    # Every chunk has a CRC-32C already, in place of Fletcher's checksum.
    asked.pop("fletcher32", None)
    if asked.get("shuffle") is False:
        del asked["shuffle"]
    # Only compression has a level.
    of_h5py = {"compression", "compression_opts", "shuffle"} & set(asked)
    of_zarr = set(asked) - of_h5py
    if len([group for group in (of_h5py, of_zarr, words.get("codecs")) if group]) > 1:
        both = sorted([*asked, *(["codecs"] if words.get("codecs") else [])])
        raise InvalidArgumentError(f"{' and '.join(both)} exclude each other: give codecs alone")
    if of_h5py:
        return {"codecs": _of_h5py(asked, words)}
    if of_zarr:
        if "compressor" in asked:
            asked["compressors"] = asked.pop("compressor")
        return codecs_from(asked, demanded=True) or {}
    if _is_without_compressors(words):
        return {"codecs": ()}
    return {name: words[name] for name in ("codecs", "transpose") if words.get(name) is not None}


def _is_without_compressors(words: dict[str, Any]) -> bool:
    """Whether ``compressors=None`` asks for unencoded elements, as in zarr-python."""
    return any(name in words and words[name] is None for name in ("compressors", "compressor"))


def _of_h5py(asked: dict[str, Any], words: dict[str, Any]) -> list[Any]:
    compression, level = asked.get("compression"), asked.get("compression_opts")
    if isinstance(compression, (int, np.integer)) and not isinstance(compression, bool):
        if not 0 <= compression <= 9:
            raise UnsupportedError(
                f"filters of HDF5 by number ({compression}) have no counterpart: name a codec, "
                "such as codecs=['zstd'] or ['blosc']"
            )
        compression, level = "gzip", int(compression)
    if compression in ("lzf", "szip"):
        raise UnsupportedError(
            f"compression={compression!r} has no counterpart: leave it out, which compresses with "
            "zstd, or take 'gzip'"
        )
    is_shuffled = bool(asked.get("shuffle"))
    if compression == "gzip":
        level = _GZIP_LEVEL if level is None else integer(level, "compression_opts")
        if is_shuffled:
            return [_shuffled("zlib", level, words)]
        return [{"name": "gzip", "configuration": {"level": level}}]
    if level is not None:
        raise InvalidArgumentError("compression_opts is the level of gzip: give compression='gzip'")
    if compression in (None, True, "zstd"):
        return [_shuffled("zstd", 3, words)] if is_shuffled else ["zstd"]
    if is_shuffled or not isinstance(compression, str):
        raise UnsupportedError(
            f"compression={compression!r}, shuffle={is_shuffled} has no counterpart: name codecs, "
            "such as codecs=['blosc']"
        )
    return [compression]


def _shuffled(method: str, level: int, words: dict[str, Any]) -> dict[str, Any]:
    """Returns the blosc codec that shuffles the bytes of elements, a codec of Zarr's core."""
    configuration = {
        "cname": method,
        "clevel": level,
        "shuffle": "shuffle",
        "typesize": max(1, type_of(words.get("dtype", "f4")).itemsize),
        "blocksize": 0,
    }
    return {"name": "blosc", "configuration": configuration}


def _check_special(kind: np.dtype[Any]) -> None:
    """Refuses types of h5py that would silently become other types."""
    special = dict(kind.metadata or {})
    content = special.get("vlen")
    if content is not None and content not in (str, bytes):
        raise UnsupportedError("arrays of lists are not supported: store the elements and offsets")
    if "enum" in special:
        raise UnsupportedError(
            "enumerations are not supported: give their integer type, and the names as attributes"
        )
    if "ref" in special:
        raise UnsupportedError("references are not supported: store paths as text")
