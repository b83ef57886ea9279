"""Descriptions of new arrays for the engine, from checked arguments."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _json
from bedform._advise import chosen_profile, numbered_reads
from bedform._elements import type_of
from bedform._errors import InvalidArgumentError, UnsupportedError
from bedform._integers import integer, integers
from bedform._layout import Regular, check_layout, described_readers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Zarr's names of types that NumPy names differently.
_ZARR_NAMES = {"bool": "bool", "object": "string", "str": "string"}

#: Default arguments of a description.
DEFAULTS: dict[str, Any] = {
    "dims": None,
    "layout": "auto",
    "reads": None,
    "codecs": "auto",
    "fill_value": None,
    "attributes": None,
    "append_length": None,
    "profile": None,
    "codecs_beyond_zarr": False,
    "readers": "any",
}


def describe(
    shape: Sequence[int],
    dtype: Any,
    dims: Sequence[str | None] | None,
    layout: Any,
    reads: Any,
    codecs: Any,
    fill_value: Any,
    attributes: Any,
    append_length: int | None,
    profile: Any,
    codecs_beyond_zarr: bool = False,
    readers: Any = "any",
) -> dict[str, Any]:
    """Returns the engine's description of a new array; with ``"auto"`` the engine lays it out."""
    lengths = list(integers(shape, "the shape"))
    _check_described(layout, dims, reads, append_length)
    wanted_readers = described_readers(readers)
    if dims is not None and len(dims) != len(lengths):
        raise InvalidArgumentError(f"{len(dims)} names for {len(lengths)} axes")
    kind = type_of(dtype)
    described = {
        "shape": lengths,
        "dtype": _zarr_name(kind),
        **described_codecs(codecs, codecs_beyond_zarr),
        "fill_value": _fill(fill_value, kind),
        "dims": None if dims is None else list(dims),
        "attributes": json.loads(_json.dump_attributes(attributes)),
    }
    if layout != "auto":
        return {**described, **_described_layout(layout)}
    names = [name or f"dim_{axis}" for axis, name in enumerate(dims or [None] * len(lengths))]
    return {
        **described,
        "reads": numbered_reads(reads, names) or None,
        "append_length": append_length,
        "readers": wanted_readers,
        "profile": None if profile is None else chosen_profile(profile).to_dict(),
    }


@contextmanager
def about(name: str) -> Iterator[None]:
    """Adds the array's name to errors of its description."""
    try:
        yield
    except (InvalidArgumentError, UnsupportedError) as error:
        raise type(error)(f"array {name!r}: {error}") from None


def described_codecs(codecs: Any, beyond_zarr: bool) -> dict[str, Any]:
    """Returns the codec arguments in the engine's form."""
    if codecs is None or (isinstance(codecs, str) and codecs == "auto"):
        return {"codecs": "auto", "codecs_beyond_zarr": bool(beyond_zarr)}
    if isinstance(codecs, str) or not isinstance(codecs, Iterable):
        raise InvalidArgumentError(
            "codecs must be 'auto' or a list, of names or of what Zarr metadata have, "
            f"not {codecs!r}"
        )
    if beyond_zarr:
        raise InvalidArgumentError("codecs_beyond_zarr comes with codecs='auto': leave one out")
    return {"codecs": _json._plain(list(codecs))}


def sampled(values: Any, description: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    """Returns the elements by which a new array's codecs are chosen; None if not in memory.

    Without them the first write chooses, which costs another write of the metadata document.
    """
    if type(values) is not np.ndarray or description["codecs"] != "auto" or not values.size:
        return None
    kind = values.dtype
    is_same = (
        kind.kind in "biufcS"
        and kind.isnative
        and list(values.shape) == description["shape"]
        and _zarr_name(kind) == description["dtype"]
    )
    # As a flat array: a scalar would have no buffer.
    return values.reshape(-1) if is_same and values.flags.c_contiguous else None


def _described_layout(layout: Regular) -> dict[str, Any]:
    shards = layout.shards
    return {
        "chunks": list(integers(layout.chunks, "the chunks of the layout")),
        "shards": None if shards is None else list(integers(shards, "the shards of the layout")),
        "order": layout.order,
    }


def _check_described(layout: Any, dims: Any, reads: Any, append_length: Any) -> None:
    """Fails for arguments of a new array that have the wrong type."""

    def refuse(what: str, expected: str, value: object) -> InvalidArgumentError:
        return InvalidArgumentError(f"{what} must be {expected}, not {value!r}")

    check_layout(layout)
    if dims is not None and not isinstance(dims, Collection):
        raise refuse("dims", "a list of names", dims)
    if reads is not None and not isinstance(reads, Mapping):
        raise refuse("reads", "a mapping of axes to weights", reads)
    if append_length is not None:
        integer(append_length, "append_length")


def _zarr_name(kind: np.dtype[Any]) -> Any:
    if kind.kind in "OUT":
        return "string"
    if kind.kind == "S" and kind.itemsize:
        configuration = {"length_bytes": kind.itemsize}
        return {"name": "null_terminated_bytes", "configuration": configuration}
    if kind.kind in "biufc":
        return _ZARR_NAMES.get(kind.name, kind.name)
    if kind.kind in "mM":
        raise InvalidArgumentError(
            f"arrays of {kind} are not supported; bf.write_dataset encodes times, or store numbers "
            "and say in an attribute what they count"
        )
    raise InvalidArgumentError(
        f"arrays of {kind} are not supported; use a number, bool, complex, str or S"
    )


def _fill(value: Any, kind: np.dtype[Any]) -> Any:
    """Returns the fill value in Zarr's form, with every bit of a NaN."""
    if value is None:
        return None
    if kind.kind in "OUT":
        return str(value)
    if kind.kind == "S":
        if not isinstance(value, (bytes, bytearray, np.bytes_)):
            raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}")
        return base64.standard_b64encode(bytes(value)).decode()
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}: {error}") from None
    fits = given.ndim == 0 and given.dtype.kind in ("biufc" if kind.kind == "c" else "biuf")
    plain: Any = given.item() if fits else None
    if fits and kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if low <= plain <= high and plain == int(plain):
            return bool(plain) if kind.kind == "b" else int(plain)
        fits = False
    if not fits:
        raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}")
    with np.errstate(all="ignore"):
        element = given.astype(kind)
    if kind.kind == "c":
        return [_fill_word(element.real), _fill_word(element.imag)]
    return _fill_word(element)


def _fill_word(element: np.ndarray[Any, Any]) -> Any:
    if np.isnan(element):
        bits = element.view(f"u{element.dtype.itemsize}").item()
        return f"0x{bits:0{element.dtype.itemsize * 2}x}"
    return _json._plain(element.item())
