"""Values of a data set that the type of their encoding cannot hold.

xarray scales, rounds and casts values as their encoding says. The cast wraps: packed into int16
with a step of 0.004, 271 becomes 8.856. So the extremes of each variable are packed first, and
compared with the limits of the type; those of Dask arrays block by block, as they are computed.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from bedform import _shown
from bedform._chunked_values import is_chunked
from bedform._errors import InvalidArgumentError

if TYPE_CHECKING:
    from xarray import Variable

__all__ = ["ConversionWarning", "OnOverflow", "check_on_overflow", "watched"]

OnOverflow = Literal["warn", "error"]
_REMEDY: Final = (
    "choose another dtype, scale_factor or add_offset in encoding=, or leave the encoding of the "
    "source behind with dataset.drop_encoding()"
)


class ConversionWarning(UserWarning):
    """Values do not fit the type in which they are stored: other values stand in their place."""


@dataclass(frozen=True)
class _Packing:
    """The numbers that a variable can hold in its stored form."""

    name: str
    #: The stored type, with the sign that readers give it.
    dtype: np.dtype[Any]
    #: None where the encoding has none.
    scale: float | None
    offset: float | None

    def overflows(self, values: np.ndarray[Any, Any]) -> tuple[Any, Any] | None:
        """Returns the smallest and largest value, if one of them does not fit."""
        if not values.size:
            return None
        low: Any
        high: Any
        if self.dtype.kind == "f":
            # Infinity fits.
            finite = np.isfinite(values)
            low = values.min(where=finite, initial=np.inf)
            high = values.max(where=finite, initial=-np.inf)
        else:
            # NaN becomes the fill value.
            low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        ends = low.item(), high.item()
        # There is no order if nothing but NaN was found.
        if not ends[0] <= ends[1] or all(self._fits(end, values.dtype) for end in ends):
            return None
        return ends

    def _fits(self, value: float, dtype: np.dtype[Any]) -> bool:
        packed: Any = value
        if self._is_packed:
            packed = (value - (self.offset or 0.0)) / (1.0 if self.scale is None else self.scale)
        with np.errstate(over="ignore"):
            if self.dtype.kind == "f":
                return bool(np.isfinite(self.dtype.type(packed)))
            # xarray packs in the precision of the values.
            found = [packed, dtype.type(packed).item()] if dtype.kind == "f" else [packed]
        limits = np.iinfo(self.dtype)
        return all(math.isfinite(one) and limits.min <= round(one) <= limits.max for one in found)

    @property
    def _is_packed(self) -> bool:
        return self.scale is not None or self.offset is not None

    def said(self, ends: tuple[Any, Any] | None) -> str:
        """Returns the variable, the values, and the range of its stored form."""
        limits: Any = np.finfo(self.dtype) if self.dtype.kind == "f" else np.iinfo(self.dtype)
        held = [float(limits.min), float(limits.max)]
        if self._is_packed:
            scale, offset = 1.0 if self.scale is None else self.scale, self.offset or 0.0
            held = sorted(end * scale + offset for end in held)
        packing = " and ".join(
            f"{key} {value:g}"
            for key, value in (("scale_factor", self.scale), ("add_offset", self.offset))
            if value is not None
        )
        form = f"{self.dtype.name} with {packing}" if packing else self.dtype.name
        values = "some values" if ends is None else f"values from {ends[0]:g} to {ends[1]:g}"
        return f"{self.name!r}: {values} do not fit {form}, which holds {held[0]:g} to {held[1]:g}"


def check_on_overflow(on_overflow: Any) -> OnOverflow:
    """Returns the option if it is one.

    Raises
    ------
    InvalidArgumentError
        It is none.
    """
    if on_overflow not in get_args(OnOverflow):
        raise InvalidArgumentError(f"on_overflow must be 'warn' or 'error', not {on_overflow!r}")
    return on_overflow  # type: ignore[no-any-return]


def watched(name: str, variable: Variable, on_overflow: OnOverflow) -> Variable:
    """Returns the variable, with values that fit its encoding, or a warning of others.

    Raises
    ------
    InvalidArgumentError
        Values do not fit, and `on_overflow` is ``"error"``. Those of Dask arrays raise it when they
        are computed.
    """
    packing = _packing_of(name, variable)
    if packing is None:
        return variable
    data: Any = variable._data
    if is_chunked(data):
        check = functools.partial(_checked_block, packing, on_overflow)
        return variable.copy(deep=False, data=data.map_blocks(check, meta=data._meta))
    values = np.asarray(variable.data)
    ends = packing.overflows(values)
    if ends is not None:
        _say(packing.said(ends), on_overflow)
    return variable if variable._in_memory else variable.copy(deep=False, data=values)


def _packing_of(name: str, variable: Variable) -> _Packing | None:
    """Returns the packing of numbers of which some may not fit; None for others."""
    encoding, source = variable.encoding, variable.dtype
    try:
        target = np.dtype(encoding.get("dtype", source))
        scale, offset = (
            None if value is None else float(np.asarray(value).item())
            for value in (encoding.get("scale_factor"), encoding.get("add_offset"))
        )
    except (TypeError, ValueError):
        # xarray refuses it, and says why.
        return None
    if source.kind not in "iuf" or target.kind not in "iuf" or scale == 0:
        return None
    if scale is None and offset is None and np.can_cast(source, target, "safe"):
        return None
    sign = {"true": "u", "false": "i"}.get(str(encoding.get("_Unsigned")))
    if sign is not None and target.kind in "iu":
        target = np.dtype(f"{sign}{target.itemsize}")
    return _Packing(name, target, scale, offset)


def _checked_block(packing: _Packing, on_overflow: OnOverflow, block: Any) -> Any:
    """Returns a block of a Dask array, which was checked."""
    if packing.overflows(np.asarray(block)) is not None:
        # The same words for each block, so that they are shown once.
        _say(packing.said(None), on_overflow)
    return block


def _say(what: str, on_overflow: OnOverflow) -> None:
    if on_overflow == "error":
        raise InvalidArgumentError(_shown.line(f"{what}: {_REMEDY}"))
    text = f"{what}: other values are stored in their place; {_REMEDY}; on_overflow='error' refuses"
    warn = _warning_of_worker() or warnings.warn
    warn(_shown.line(text), ConversionWarning)


def _warning_of_worker() -> Any:
    """Returns the function by which a worker of a cluster warns its client; None elsewhere."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        distributed.get_worker()
    except ValueError:
        return None
    return distributed.warn
