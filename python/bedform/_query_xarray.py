"""Queries of data sets of xarray: conditions on lazy variables, which stay lazy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal
from bedform._errors import NotFoundError, UnsupportedError, engine_call
from bedform._hints import unknown_member
from bedform._integers import byte_count, integer
from bedform._lazy_reads import backend_below, read_of
from bedform._query_table import position_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xarray import Dataset, Variable

    from bedform._elements import AnyArray

#: The dimension of the result.
_POINTS: Final = "points"
#: The name of a dimension that an integer has removed.
_REMOVED: Final = "(removed {axis} of {name})"


def points(
    dataset: Dataset,
    expression: str,
    *,
    variables: str | Iterable[str] | None,
    limit: int | None,
    memory: int | str,
) -> Dataset:
    """Returns the elements of a data set at which a condition holds: see the accessor."""
    names = engine_call(_internal.Query.names)(expression)
    if isinstance(variables, str):
        variables = [variables]
    wanted = [name for name in names if name not in dataset.dims]
    wanted = wanted if variables is None else list(variables)
    for name in [*names, *wanted]:
        if name not in dataset.variables:
            known = [str(one) for one in dataset.variables]
            raise NotFoundError(unknown_member(name, "the data set", known, known))
    for name in names:
        _refuse_times(dataset, name)
    limit = None if limit is None else integer(limit, "limit", least=0)
    found = _places(dataset, expression, names, limit, byte_count(memory, "memory"))
    import xarray as xr

    at = {dim: xr.Variable(_POINTS, place) for dim, place in found.items()}
    result: Dataset = dataset[wanted].isel(at)
    named = position_names(list(at), result.variables)
    return result.assign_coords({named[dim]: place for dim, place in at.items()})


def _refuse_times(dataset: Dataset, name: str) -> None:
    """Fails for a variable of times or durations: conditions compare numbers."""
    variable = dataset.variables[name]
    # Dates of other calendars are objects, of a variable that was encoded with such units.
    is_encoded = variable.dtype.hasobject and "since" in str(variable.encoding.get("units"))
    if variable.dtype.kind not in "mM" and not is_encoded:
        return
    if variable.dtype.kind == "m":
        way = f'divide them first: ds.assign({name}=ds["{name}"] / np.timedelta64(1, "h"))'
    elif name in dataset.indexes:
        way = f'select them first: ds.sel({{"{name}": slice("2020-01", "2020-02")}})'
    else:
        way = f'take them by variables=["{name}"], and compare them in the result'
    raise UnsupportedError(f"{name} holds times, and a condition compares numbers: {way}")


def _places(
    dataset: Dataset, expression: str, names: Sequence[str], limit: int | None, memory: int
) -> dict[str, AnyArray]:
    """Returns the index of each matching element along each dimension."""
    parts = [_part_of(name, dataset.variables[name]) for name in names]
    if any(part is None for part in parts) or all(
        _is_loaded(dataset.variables[name]) for name in names
    ):
        return _evaluated(dataset, expression, limit)
    inner = engine_call(_internal.Query)(expression, parts, [], True, memory)
    dims, _, _ = inner.frame()
    positions, _ = engine_call(inner.points)([], limit)
    columns = (np.frombuffer(axis, np.uint64).astype(np.int64) for axis in positions)
    here = set(map(str, dataset.dims))
    return {dim: column for dim, column in zip(dims, columns, strict=True) if dim in here}


def _evaluated(dataset: Dataset, expression: str, limit: int | None) -> dict[str, AnyArray]:
    """Evaluates a condition by xarray, over variables that are no plain part of an array."""
    spelled = expression
    for name in ("sqrt", "minimum", "maximum", "isnan", "isfinite"):
        spelled = spelled.replace(f"{name}(", f"np.{name}(")
    truth = dataset.eval(spelled)
    if truth.dtype != bool:
        raise UnsupportedError(f"{expression!r} is no condition: compare with something")
    found = np.argwhere(np.asarray(truth.values))[:limit]
    return {str(dim): found[:, axis] for axis, dim in enumerate(truth.dims)}


def _is_loaded(variable: Variable) -> bool:
    return backend_below(variable._data) is None


def _part_of(name: str, variable: Variable) -> Any:
    """Returns a variable as the engine takes it; ``None`` if it is no plain part of an array."""
    from bedform._chunked_values import is_chunked
    from bedform.xarray_backend import BedformArray

    data = variable._data
    if is_chunked(data):
        return None
    below = backend_below(data)
    if below is None:
        return _in_memory(name, variable)
    if not isinstance(below, BedformArray):
        return None
    array, selection = read_of(data)
    inner = getattr(array._array, "_inner", None)
    kind, axes = selection.engine[:2]
    is_range = kind == "orthogonal" and all(
        isinstance(axis, tuple) and (axis[1] == 1 or axis[2] <= 1) for axis in axes
    )
    if not is_range or not isinstance(inner, _internal.Array):
        return None
    dims = _dims_of(name, variable, array._array.dims, [axis[2] for axis in axes])
    if dims is None:
        return None
    region = ([axis[0] for axis in axes], [axis[2] for axis in axes])
    return (name, inner, region, dims, _is_decoded(data))


def _in_memory(name: str, variable: Variable) -> Any:
    """Returns values in memory, such as coordinates, as an array of the engine."""
    values = np.ascontiguousarray(variable.values)
    if values.dtype.kind not in "biuf" or values.ndim > 1:
        return None
    values = values.astype(values.dtype.newbyteorder("="))
    shape = list(values.shape)
    array = engine_call(_internal.Array.of_values)(name, shape, values.dtype.str, values.tobytes())
    return (name, array, ([0] * values.ndim, shape), [str(dim) for dim in variable.dims], False)


def _dims_of(
    name: str, variable: Variable, stored: Sequence[str], lengths: Sequence[int]
) -> list[str] | None:
    """Returns a dimension for each axis of the stored array; removed ones have one element."""
    kept = [str(dim) for dim in variable.dims]
    if len(kept) == len(lengths):
        return kept
    dims, rest = [], list(kept)
    for axis, (dim, length) in enumerate(zip(stored, lengths, strict=True)):
        if rest and rest[0] == dim:
            dims.append(rest.pop(0))
        elif length == 1:
            dims.append(_REMOVED.format(axis=axis, name=name))
        else:
            return None
    return None if rest else dims


def _is_decoded(data: Any) -> bool:
    """Whether xarray decodes the elements by functions."""
    while data is not None:
        if type(data).__name__ == "_ElementwiseFunctionArray":
            return True
        data = getattr(data, "array", None)
    return False
