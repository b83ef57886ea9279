"""Conversions to a store in an object store.

Nothing can be renamed there, so the arrays are drafts, which no reader sees, until one commit names
all of them. A conversion that is stopped removes its drafts: it leaves an empty store, with which
the next one goes on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import bedform as bf

from . import _json
from ._convert import compare_arrays, groups_of, layout_of, region_bytes, zarr_attributes
from ._errors import BedformError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._convert import ArrayPlan, Conversion, Progress


def check_free(url: str, source: str) -> None:
    """Fail if there is more than an empty store, or the target would lie in the source."""
    if url.startswith(f"{source.rstrip('/')}/"):
        raise ValueError(
            f"target {url!r} lies in the source {source!r}, which is never changed: choose a place "
            "outside it"
        )
    try:
        there = bf.open(url)
    except NotFoundError:
        return
    if there.arrays() or there.groups() or there.attributes:
        raise FileExistsError(f"target {url!r} exists: choose another name or remove it")


def convert_to_url(opened: Any, plan: Conversion, verify: bool, progress: Progress | None) -> None:
    """Copy all arrays; they appear when they are whole and, if asked, verified."""
    store = _empty_store(plan.target)
    call, drafts = store._call, dict[str, Any]()
    try:
        for array in plan.arrays:
            drafts[array.name] = _draft(store, opened[array.name], array)
        _copy(opened, drafts, plan, progress)
        if verify:
            compare_arrays(opened, drafts, plan, progress)
        call(store._inner.commit_drafts)(list(drafts), _groups(opened))
    except BaseException:
        # What cannot be removed is invisible, and goes when its name is used again.
        with contextlib.suppress(BedformError):
            call(store._inner.discard_drafts)(list(drafts))
        raise


def _empty_store(url: str) -> Any:
    try:
        return bf.open(url, "r+", cache=0)
    except NotFoundError:
        return bf.create(url, cache=0)


def _draft(store: Any, source: Any, array: ArrayPlan) -> Any:
    description = store._describe(
        array.shape,
        source.dtype,
        array.dims,
        layout_of(array),
        None,
        ("zstd",),
        source.fill_value,
        zarr_attributes(source),
        None,
        None,
    )
    return store._create(array.name, description, draft=True)


def _copy(
    opened: Any, drafts: Mapping[str, Any], plan: Conversion, progress: Progress | None
) -> None:
    finished = 0
    for array in plan.arrays:
        source, target = opened[array.name], drafts[array.name]
        for region in array.regions():
            target[region] = source[region]
            finished += region_bytes(array, region)
            if progress is not None:
                progress(finished, plan.byte_count)


def _groups(opened: Any) -> list[tuple[str, str]]:
    """All groups with their attributes, outer ones first."""
    groups = {"": dict(opened.attributes)} | groups_of(opened)
    return [(name, _json.dump_attributes(found)) for name, found in groups.items()]
