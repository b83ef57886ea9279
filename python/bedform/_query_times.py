"""Values of queries as xarray decodes them: times, and the labels of dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bedform._errors import UnsupportedError

if TYPE_CHECKING:
    from bedform._elements import AnyArray


class TimeAttributes(NamedTuple):
    """The attributes by which the numbers of an array are times."""

    #: ``units`` and, unless it is the standard one, ``calendar``.
    attributes: dict[str, Any]
    #: The dimension whose labels select these times.
    dim: str | None


def time_units(group: Any, name: str) -> TimeAttributes | None:
    """Returns the units of an array of times; ``None`` for other arrays.

    Bounds have the units of their coordinate, as xarray gives them.
    """
    found = group[name]
    if not hasattr(found, "dtype"):
        return None
    dim = name if tuple(found.dims) == (name,) else _bounded(group, found, name)
    lent = _units_of(group[dim]) if dim else {}
    units = lent | _units_of(found)
    return TimeAttributes(units, dim) if units else None


def _bounded(group: Any, found: Any, name: str) -> str | None:
    """Returns the coordinate, of a dimension, that has the array as its bounds."""
    if found.shape[-1:] != (2,):
        return None
    return next((dim for dim in found.dims[:-1] if _has_bounds(group.get(dim), name)), None)


def _units_of(array: Any) -> dict[str, Any]:
    attributes = array._load_attributes()
    units = attributes.get("units")
    if not isinstance(units, str) or "since" not in units:
        return {}
    return {key: attributes[key] for key in ("units", "calendar") if key in attributes}


def _has_bounds(coordinate: Any, name: str) -> bool:
    if not hasattr(coordinate, "dtype"):
        return False
    attributes = coordinate._load_attributes()
    return name in (attributes.get("bounds"), attributes.get("climatology"))


def refuse_times(group: Any, name: str) -> None:
    """Fails for an array of times in a condition: conditions compare numbers."""
    times = time_units(group, name)
    if times is None:
        return
    way = (
        f'take values("{name}") where another condition holds'
        if times.dim is None
        else f'select them by sel={{"{times.dim}": slice(from, to)}} (--sel {times.dim}=FROM:TO), '
        "or by a region"
    )
    raise UnsupportedError(
        f"{_holds_times(name, times)}, and a condition compares numbers: {way}; or compare stored "
        "numbers: decode=False (--stored)"
    )


def refuse_statistics_of_times(group: Any, name: str) -> None:
    """Fails for an array of times in a statistic or histogram."""
    times = time_units(group, name)
    if times is not None:
        raise UnsupportedError(
            f"{_holds_times(name, times)}, and statistics are of numbers: reduce "
            f'values("{name}"), or stored numbers: decode=False (--stored)'
        )


def _holds_times(name: str, times: TimeAttributes) -> str:
    return f"{name} holds times ({times.attributes['units']})"


def decoded(group: Any, name: str, stored: AnyArray) -> AnyArray:
    """Decodes stored elements of an array, of one dimension, as ``xarray.open_dataset`` does.

    Raises
    ------
    UnsupportedError
        They are times of units or of a calendar that xarray does not know.
    """
    import xarray as xr

    from bedform.xarray_backend import BedformDataStore

    whole = BedformDataStore(group).open_variable(group[name])
    times = time_units(group, name)
    whole.attrs |= times.attributes if times else {}
    try:
        if not len(stored):
            # Some calendars have a type of their own, which xarray finds by elements of the array.
            return np.empty(0, xr.conventions.decode_cf_variable(name, whole).dtype)
        some = xr.Variable(("points",), stored, whole.attrs, whole.encoding)
        return xr.conventions.decode_cf_variable(name, some).values
    except (ValueError, OverflowError):
        if times is None:
            raise
        raise UnsupportedError(
            f"{_holds_times(name, times)} that xarray cannot decode: take stored numbers by "
            "decode=False (--stored), and select by a region"
        ) from None


def labels(group: Any, dim: str, *, decode: bool = True) -> AnyArray | None:
    """Returns the coordinate of a dimension; ``None`` without one."""
    array = group.get(dim)
    if getattr(array, "ndim", 0) != 1:
        return None
    return decoded(group, dim, array[:]) if decode else array[:]
