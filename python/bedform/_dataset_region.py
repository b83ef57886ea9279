"""The argument ``region=``: its slices, and checks of the coordinates in it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform._errors import InvalidArgumentError, NotFoundError, WrongTypeError

if TYPE_CHECKING:
    from xarray import Dataset, Variable

    from bedform._array import Array
    from bedform._group import Group


class CoordinateWarning(UserWarning):
    """An append overwrites a coordinate, which relabels the stored data."""


def resolve(dataset: Dataset, region: Any, group: Group) -> tuple[dict[str, slice], Dataset]:
    """Returns the slices of ``region``, and the data set without its index coordinates.

    The index coordinates are compared with those in the store, not written.
    """
    wanted = dict.fromkeys(dataset.dims, "auto") if region == "auto" else region
    if not isinstance(wanted, Mapping):
        raise WrongTypeError(f"region must be a dict or 'auto', not {type(region).__name__}")
    slices: dict[str, slice] = {}
    for dim, part in wanted.items():
        if dim not in dataset.dims:
            dims = ", ".join(map(str, dataset.dims))
            raise InvalidArgumentError(
                f"all keys in ``region`` are not in Dataset dimensions: {dim!r} is none of {dims}"
            )
        if isinstance(part, str) and part == "auto":
            slices[str(dim)] = _located(dataset, str(dim), group)
        else:
            slices[str(dim)] = _checked(dim, part)
    beside = [str(n) for n, v in dataset.variables.items() if not set(slices).intersection(v.dims)]
    if slices and beside:
        raise InvalidArgumentError(
            "all variables in the dataset to write must have at least one dimension in common with "
            f"the region; leave the others out with dataset.drop_vars({beside!r})"
        )
    for dim in slices:
        if dim in dataset.indexes and dim in group and wanted[dim] != "auto":
            _compare(dataset, dim, slices[dim], group)
    return slices, dataset.drop_vars(dataset.indexes)


def _checked(dim: Any, part: Any) -> slice:
    if not isinstance(part, slice):
        raise WrongTypeError(f"parts of region must be slice objects or 'auto', not {part!r}")
    if part.step not in {1, None}:
        raise InvalidArgumentError(
            f"step on all slices in region must be 1 or None, not {part.step}"
        )
    for bound in (part.start, part.stop):
        if bound is not None and (isinstance(bound, bool) or not hasattr(bound, "__index__")):
            raise WrongTypeError(
                f"region of {dim!r}: the slice takes positions, not {bound!r}; 'auto' finds those "
                "of the coordinate"
            )
    return part


def _stored_index(dim: str, group: Group, part: slice) -> Any:
    from xarray import conventions

    from bedform.xarray_backend import BedformDataStore

    raw = BedformDataStore(group).open_variable(group[dim])
    if raw.dims != (dim,):
        raise InvalidArgumentError(
            f"the coordinate {dim!r} of the store has the dimensions {raw.dims}"
        )
    return conventions.decode_cf_variable(dim, raw[part].load())


def _located(dataset: Dataset, dim: str, group: Group) -> slice:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    if dim not in dataset.variables:
        return slice(0, dataset.sizes[dim])
    if dim not in group:
        raise NotFoundError(f"region 'auto': the store has no coordinate {dim!r}; give a slice")
    index = pd.Index(_stored_index(dim, group, slice(None)).data)
    places = index.get_indexer(pd.Index(dataset[dim].data))
    if (places == -1).any():
        raise NotFoundError(f"region 'auto': not all values of {dim!r} are in the store")
    if (np.diff(places) != 1).any():
        raise InvalidArgumentError(
            f"region 'auto': the values of {dim!r} do not adjoin in the store"
        )
    if not len(places):
        return slice(0, 0)
    return slice(int(places[0]), int(places[-1]) + 1)


def _compare(dataset: Dataset, dim: str, part: slice, group: Group) -> None:
    stored = _stored_index(dim, group, part)
    ours = dataset.variables[dim]
    if stored.shape == ours.shape and not np.array_equal(stored.values, ours.values):
        raise InvalidArgumentError(
            f"the coordinate {dim!r} differs from the store's in the region; leave it out with "
            f"dataset.drop_vars({dim!r}), or write region='auto'"
        )


def check_coordinate(name: str, stored: Array, ours: Variable) -> None:
    """Warns if an append changes an index coordinate that it does not extend."""
    if ours.dims != (name,):
        return
    theirs = stored[...]
    if not np.array_equal(theirs, ours.values, equal_nan=theirs.dtype.kind in "fc"):
        warnings.warn(
            f"{stored.path}: the append overwrites this coordinate, which relabels the data of the "
            "store: mode='a-' leaves it as it is, mode='a' says that this is meant",
            CoordinateWarning,
            stacklevel=6,
        )
