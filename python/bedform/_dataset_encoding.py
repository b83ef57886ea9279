"""Encoding of data sets by xarray's own functions, as ``to_zarr`` does it."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _json
from bedform._errors import (
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    WrongTypeError,
)
from bedform._hints import virtual_variable
from bedform._overflow import watched

if TYPE_CHECKING:
    from xarray import Dataset, Variable

    from bedform._group import Group
    from bedform._overflow import OnOverflow

# Keys of an encoding that concern the new array; xarray's conventions use the others.
_KEYS = {
    "chunks",
    "shards",
    "compressors",
    "filters",
    "serializer",
    "fill_value",
    "cache_metadata",
    "write_empty_chunks",
}
# xarray's stored name of an unnamed variable.
UNNAMED = "__values__"
_IGNORED = {"source", "original_shape", "preferred_chunks"}


@dataclass
class Encoded:
    """A variable in its stored form: raw values, attributes, fill value, requested layout."""

    name: str
    variable: Variable
    attributes: dict[str, Any]
    fill_value: Any
    #: Whether the caller gave the encoding for this write, instead of the data's source.
    demanded: bool
    encoding: dict[str, Any] = field(default_factory=dict)


def check_names(dataset: Dataset) -> None:
    """Fails unless every name and attribute name can be stored."""
    for name in [*dataset.variables, *dataset.attrs, *dataset.dims]:
        if not isinstance(name, str) and (name is not None or name in dataset.attrs):
            raise WrongTypeError(f"the name {name!r} cannot be stored; it must be a string or None")
        if name == "":
            raise InvalidArgumentError(
                "the name '' cannot be stored; a string must be length 1 or longer"
            )
        if isinstance(name, str) and "/" in name and name in dataset.variables:
            group, _, last = name.rpartition("/")
            raise InvalidArgumentError(
                f"the name {name!r} cannot be stored: it would be {last!r} in another group; "
                f"rename it, or write it with group={group!r}"
            )
    for name, variable in dataset.variables.items():
        if type(variable._data).__module__.partition(".")[0] == "virtualizarr":
            raise UnsupportedError(virtual_variable(str(name)))


def split(
    dataset: Dataset, encoding: Mapping[Hashable, Mapping[str, Any]]
) -> tuple[dict[str, Variable], dict[str, Any]]:
    """Returns the variables with their encodings, and the attributes with ``coordinates``."""
    from xarray import conventions

    for name, wishes in encoding.items():
        if not isinstance(wishes, Mapping):
            raise InvalidArgumentError(f"encoding[{name!r}] must be castable to a dictionary")
    variables, attributes = conventions.encode_dataset_coordinates(dataset)
    unknown = [str(name) for name in encoding if name not in variables]
    if unknown:
        raise NotFoundError(f"encoding names {', '.join(unknown)}, which are no variables")
    for name, wishes in encoding.items():
        variables[name].encoding = dict(wishes)
    named = {UNNAMED if n is None else str(n): variable for n, variable in variables.items()}
    return named, dict(attributes)


def existing_encodings(group: Group, names: list[str]) -> dict[str, Variable]:
    """Returns the stored variables, decoded, so that new values get the same encoding."""
    from xarray import conventions

    from bedform.xarray_backend import BedformDataStore

    store = BedformDataStore(group)
    raw = {name: store.open_variable(group[name]) for name in names}
    decoded, _, _ = conventions.decode_cf_variables(raw, {})
    return {str(name): variable for name, variable in decoded.items()}


def encode(name: str, variable: Variable, *, demanded: bool, on_overflow: OnOverflow) -> Encoded:
    """Encodes one variable by the CF conventions."""
    variable = _with_stored_fill(watched(name, variable, on_overflow))
    encoded = _encode_cf(variable, name)
    attributes = dict(encoded.attrs)
    encoding = {key: value for key, value in encoded.encoding.items() if key not in _IGNORED}
    if "_Unsigned" in encoding:
        # Without a fill value xarray casts the values, and drops the attribute with their sign.
        attributes.setdefault("_Unsigned", encoding.pop("_Unsigned"))
    fill_value = encoding.pop("fill_value", None)
    if fill_value is None and encoded.dtype.kind == "f":
        fill_value = np.nan
    if encoded.dtype.kind == "f" and _is_nan(attributes.get("missing_value")):
        # JSON has no NaN. As a fill value it has the same meaning and is portable.
        del attributes["missing_value"]
        attributes.setdefault("_FillValue", np.nan)
    if "_FillValue" in attributes:
        missing = attributes.pop("_FillValue")
        if missing is not None and encoded.dtype.kind in "SUTO":
            # xarray cannot decode a _FillValue of text from Zarr; this means the same.
            attributes.setdefault("missing_value", missing)
        elif missing is not None:
            fill = _encode_fill(missing, encoded.dtype, name)
            attributes["_FillValue"] = signed_fill(fill, encoded.dtype, attributes)
    if encoding.get("_FillValue") is not None:
        raise InvalidArgumentError(
            f"{name}: Zarr has no _FillValue in encoding for {encoded.dtype}"
        )
    encoding.pop("_FillValue", None)
    unknown = sorted(set(encoding) - _KEYS)
    if demanded and unknown:
        raise InvalidArgumentError(f"{name}: unexpected encoding: {', '.join(unknown)}")
    return Encoded(
        name,
        encoded,
        plain_attributes(attributes, name),
        fill_value,
        demanded,
        {key: value for key, value in encoding.items() if key in _KEYS},
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _encode_cf(variable: Variable, name: str) -> Variable:
    from xarray.backends.zarr import encode_zarr_variable

    options: dict[str, Any] = {}
    if "zarr_format" in inspect.signature(encode_zarr_variable).parameters:
        options["zarr_format"] = 3
    try:
        encoded: Variable = encode_zarr_variable(variable, name=name, **options)
    except (TypeError, ValueError) as error:
        if name in str(error):
            raise
        kind = WrongTypeError if isinstance(error, TypeError) else InvalidArgumentError
        message = f"{name}: its {variable.dtype} values cannot be stored in Zarr ({error})"
        raise kind(f"{message}; leave it out with drop_vars") from error
    if encoded.dtype.kind not in "biufcSUTO" or _is_extended(encoded.dtype):
        raise UnsupportedError(f"{name}: {encoded.dtype} cannot be stored in Zarr")
    return encoded


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether the type is a float with more digits than Zarr has."""
    return dtype.itemsize > {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize)


def _encode_fill(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    from xarray.backends.zarr import FillValueCoder

    try:
        return FillValueCoder.encode(value, dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: _FillValue {value!r} of {dtype}: {error}") from None


def _with_stored_fill(variable: Variable) -> Variable:
    """Returns a variable with an unsigned fill value where `signed_fill` gave a signed one.

    xarray would warn of that, and then do the same.
    """
    dtype, fill = np.dtype(variable.encoding.get("dtype", "O")), variable.encoding.get("_FillValue")
    if dtype.kind != "u" or not isinstance(fill, (int, np.integer)) or fill >= 0:
        return variable
    if variable.encoding.get("_Unsigned") != "false":
        return variable
    variable = variable.copy(deep=False)
    variable.encoding = {**variable.encoding, "_FillValue": int(fill) + (1 << 8 * dtype.itemsize)}
    return variable


def signed_fill(fill: Any, dtype: np.dtype[Any], attributes: Mapping[Any, Any]) -> Any:
    """Returns a fill value of integers that ``_Unsigned`` gives the other sign as a signed number.

    xarray takes no other from Zarr, since it converts the value to the signed type.
    """
    bits, other = 8 * dtype.itemsize, {"u": "false", "i": "true"}.get(dtype.kind)
    if other is None or attributes.get("_Unsigned") != other:
        return fill
    return fill - (1 << bits) if 1 << (bits - 1) <= fill < 1 << bits else fill


def plain_attributes(attributes: Mapping[Any, Any], owner: str) -> dict[str, Any]:
    """Converts attributes to JSON values; errors name the attribute and the owner."""
    plain: dict[str, Any] = {}
    for name, value in attributes.items():
        try:
            plain[str(name)] = _json.plain_attribute(value)
        except TypeError as error:
            message = f"Invalid attribute in Dataset.attrs: {name!r} of {owner}: {error}"
            raise WrongTypeError(message) from None
    return plain


def check_fits(
    name: str,
    existing: Variable,
    new: Variable,
    region: Mapping[str, slice],
    append_dim: str | None,
) -> Variable:
    """Transposes ``new`` to the stored order of dimensions; fails unless its sizes fit."""
    if new.dims != existing.dims:
        if set(new.dims) != set(existing.dims):
            raise InvalidArgumentError(
                f"variable {name!r} already exists with different dimension names: "
                f"{existing.dims} in the store, {new.dims} in the data set"
            )
        new = new.transpose(*existing.dims)
    for dim, size in existing.sizes.items():
        if dim == append_dim:
            continue
        wanted = size
        if str(dim) in region:
            wanted = len(range(*region[str(dim)].indices(size)))
        if new.sizes[dim] != wanted and str(dim) in region:
            raise InvalidArgumentError(
                f"variable {name!r} already exists with different dimension sizes: the region has "
                f"{wanted} of the {size} indices along {dim!r}, the data set has {new.sizes[dim]}; "
                "append_dim= makes the store larger"
            )
        if new.sizes[dim] != wanted:
            raise InvalidArgumentError(
                f"variable {name!r} already exists with different dimension sizes: {wanted} along "
                f"{dim!r}, not {new.sizes[dim]}; append_dim= appends, region= writes a part"
            )
    return new


def check_units(name: str, existing: Variable, encoded: Encoded) -> None:
    """Fails if times cannot be counted in the stored unit.

    xarray then chooses a finer unit with a warning, and readers would apply the stored one.
    """
    stored = existing.encoding.get("units")
    taken = encoded.attributes.get("units")
    if stored is None or taken == stored or _counts_alike(existing.encoding, encoded.attributes):
        return
    dtype = existing.encoding.get("dtype", encoded.variable.dtype)
    raise InvalidArgumentError(
        f"{name}: its times are no whole numbers of the store's unit, {stored!r} as {dtype}; they "
        f"would need {taken!r}: round them, or write the data set anew with a finer unit"
    )


def _counts_alike(stored: Mapping[str, Any], taken: Mapping[str, Any]) -> bool:
    """Whether both encodings map numbers to the same times."""
    from xarray import Variable, conventions

    def times(source: Mapping[str, Any]) -> Any:
        named = {key: source[key] for key in ("units", "calendar") if key in source}
        return conventions.decode_cf_variable("time", Variable("n", [0, 1], named)).to_numpy()

    try:
        return bool(np.array_equal(times(stored), times(taken)))
    except (ValueError, OverflowError, TypeError):
        return False


def check_type(name: str, existing: Variable, new: Variable) -> None:
    """Fails if fixed-size text would be truncated, or values would change their kind."""
    if new.dtype.kind in "biufcMmO" or (new.dtype.kind in "SUT" and existing.dtype.kind in "OT"):
        return
    if new.dtype != existing.dtype:
        raise InvalidArgumentError(
            f"Mismatched dtypes for variable {name!r}: {existing.dtype} in the store, "
            f"{new.dtype} in the data set"
        )
