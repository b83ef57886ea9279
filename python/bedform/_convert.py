"""The function ``convert``: its arguments for the engine, and the engine's results.

The engine plans, copies, resumes, verifies and publishes: see its module ``convert``. Python opens
the source, and reads the variables that only the library of a foreign format can read.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import bedform as bf

from . import _dask_regions, _internal, _json, _shown
from ._elements import ElementConverter
from ._errors import (
    ENGINE_ERRORS,
    BedformError,
    ConflictError,
    CorruptError,
    check_mapping,
    engine_call,
    spanned_axes,
    translated,
)
from ._index import Bins, check_index, index_written
from ._integers import byte_count, integers
from ._layout import Readers, check_layout, described_readers
from ._location import check_new_store, location
from ._mesh_convert import convert_meshes, meshes_of, refuse_for_arrays, refuse_for_meshes
from ._new_array import described_codecs
from ._opening import given_profile, open_place
from ._paths import paths_of, shown_paths
from ._remote import is_url, without_query

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ._dask_regions import Exchange
    from ._mesh_convert import MeshConversion, Order

    Progress = Callable[[int, int], None]


class VerificationError(CorruptError):
    """The copy differs from its source; it was not published."""


class TargetBusyError(ConflictError, BlockingIOError):
    """Another conversion to the same target is running: wait for it or stop it."""


@dataclass(frozen=True)
class ArrayPlan:
    """The layout of one array before and after a conversion."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    source_chunks: tuple[int, ...] | None
    chunks: tuple[int, ...]
    shards: tuple[int, ...]
    order: str
    region: tuple[int, ...]

    @property
    def byte_count(self) -> int:
        """The decoded bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Conversion:
    """Result of :func:`convert`, or its plan after a dry run."""

    source: str
    target: str
    arrays: tuple[ArrayPlan, ...]
    complete: bool = False
    verified: bool = False
    resumed_bytes: int = 0
    warnings: tuple[str, ...] = field(default=())

    @property
    def byte_count(self) -> int:
        """The decoded bytes of all arrays."""
        return sum(array.byte_count for array in self.arrays)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "bytes": self.byte_count}


def convert(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    layout: Any = "auto",
    reads: Mapping[tuple[str, ...], float] | None = None,
    profile: Any = None,
    readers: Readers = "any",
    memory: str | int = "512 MiB",
    codecs: Literal["auto"] | Sequence[str | Mapping[str, Any]] = "auto",
    codecs_beyond_zarr: bool = False,
    exclude: Sequence[str] = (),
    verify: bool = False,
    restart: bool = False,
    dry_run: bool = False,
    dask: Any = None,
    index: bool | Bins = False,
    order: Order | None = None,
    sub_box: Sequence[int] | None = None,
    components: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Conversion | MeshConversion:
    """Convert a store or a foreign file into a store with a layout for the expected reads.

    The target appears under its name when it is complete. An interrupted conversion to a directory
    (Ctrl-C, a crash, a full disk) resumes when the same call is repeated. It starts again if the
    source has changed since.

    Parameters
    ----------
    source
        Anything that :func:`bedform.open` reads, including many files.
    target
        A local path that does not exist yet, or the URL of a future store. An interrupted
        conversion to a URL leaves nothing.
    concat_dim, compat
        As in :func:`bedform.open`.
    layout
        ``"auto"`` asks :func:`bedform.advise`; a given layout applies to every array of its rank.
    reads
        The axes that typical reads span, with weights. For each array, kinds with a dimension that
        it lacks are ignored.
    readers
        As in :func:`bedform.advise`.
    memory
        The limit for values, encoded shards and cached chunks. It excludes a base use in the order
        of 100 MiB. If the best shards exceed it, ``"auto"`` makes smaller ones; an array that does
        not fit is refused, with the smallest sufficient limit.
    codecs, codecs_beyond_zarr
        As in :meth:`bedform.Store.create_array`, for all arrays.
    exclude
        Names of arrays to omit, such as those with element types that Zarr lacks.
    verify
        Read both sides again and compare every byte before the target appears.
    restart
        Delete the remains of an earlier, unfinished conversion to this target.
    dry_run
        Return the plan and write nothing.
    dask
        A :class:`distributed.Client`, or the address of a Dask scheduler, whose workers copy and
        verify. They must reach source and target by the same paths or URLs as this process. This
        process plans, records the progress and publishes. ``memory`` is then the limit of each
        worker. A conversion can resume with or without ``dask``, however it began.
    index
        True builds the value index of the new arrays, once the target is there; bins as in
        :func:`bedform.index` build its second level, too.
    order
        For refined meshes, the order of the parts of boxes in the store: ``"hilbert"``, ``"z"``,
        ``"clusters"``, ``"given"``, or ``"auto"``, the default, which compares predicted reads.
        Each mesh becomes a step of a store of meshes; a target that is such a store gets the steps
        that it lacks. Of the other options, meshes take ``reads``, which also choose ``sub_box``,
        ``codecs``, ``verify`` and ``dry_run``.
    sub_box
        For refined meshes, the most cells along each axis of the parts into which boxes are cut;
        16 of three axes by default, 64 of two.
    components
        For refined meshes, the names of the components to store, in this order; all by default.
    progress
        Called with the bytes done and the total bytes.

    Raises
    ------
    ExistsError
        The target exists.
    TargetBusyError
        Another conversion to this target is running.
    VerificationError
        The copy differs from the source.
    InvalidArgumentError
        An earlier run had another source or other options; the target lies in the source; an array
        does not fit the memory, or has an element type that Zarr lacks.
    OSError
        The source cannot be read or the target not written. Finished work is kept.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile
    >>> place = tempfile.mkdtemp()
    >>> maps = bf.create(place + "/maps.zarr").create_array("t", (60, 20, 30), "f4", tuple("tyx"))
    >>> maps[...] = np.ones((60, 20, 30))
    >>> done = bf.convert(place + "/maps.zarr", place + "/series.zarr", reads={("t",): 1.0})
    >>> done.complete, done.arrays[0].name
    (True, 't')
    """
    check_layout(layout)
    is_indexed = check_index(index)
    limit = byte_count(memory, "memory")
    paths, where = paths_of(source, "source"), location(target, "target")
    name = location(source, "source") if paths is None else shown_paths(source, paths)
    place = name if paths is None else paths
    if (meshes := meshes_of(name, paths)) is not None:
        given_arrays = {
            "concat_dim": concat_dim,
            "profile": profile,
            "exclude": tuple(exclude),
            "restart": restart,
            "dask": dask,
            "index": index,
            "layout": None if layout == "auto" else layout,
        }
        refuse_for_meshes(given_arrays)
        return convert_meshes(
            name,
            meshes,
            where,
            order=order,
            sub_box=sub_box,
            reads=check_mapping(reads or {}, "reads", '{"y,z": 1}'),
            components=components,
            codecs=described_codecs(codecs, codecs_beyond_zarr),
            verify=verify,
            dry_run=dry_run,
            progress=progress,
        )
    refuse_for_arrays({"order": order, "sub_box": sub_box, "components": components})
    # A list has no name of its own that could be opened.
    check_new_store(where, "convert", None if isinstance(source, (list, tuple)) else name)
    given_reads = check_mapping(reads or {}, "reads", '{"time": 1}')
    options = {
        "layout": None if layout == "auto" else _layout_facts(layout),
        "reads": [[spanned_axes(axes), weight] for axes, weight in given_reads.items()],
        "profile": given_profile(profile),
        "readers": described_readers(readers),
        "memory_bytes": limit,
        **described_codecs(codecs, codecs_beyond_zarr),
        "exclude": list(exclude),
        "verify": verify,
        "restart": restart,
    }
    opening = opening_of(where)
    cache = _internal.source_cache_bytes(limit)
    given: dict[str, Any] = {"cache": cache, "concat_dim": concat_dim, "compat": compat}
    with open_place(place, **given) as opened:
        conversion = engine_call(_internal.Conversion, where)(
            _shown.encodable(without_query(name)),
            opened._inner,
            readers_of(opened, exclude),
            where,
            _json.dump(opening),
            _json.dump(options),
        )
        plan = _plan_of(json.loads(conversion.plan()))
        if dry_run:
            return plan
        with _dask_regions.exchange_on(dask, (name, place), given, exclude) as exchange:
            resumed, warnings = _run(conversion, progress, exchange, where)
    if is_indexed:
        with open_place(where) as converted:
            index_written(converted, index, [array.name for array in plan.arrays])
    return Conversion(plan.source, plan.target, plan.arrays, True, verify, resumed, tuple(warnings))


def opening_of(where: str) -> dict[str, Any]:
    """Returns the options with which the engine opens a target at ``where``."""
    return {"freshness": "open" if is_url(where) else "read"}


def _run(
    conversion: _internal.Conversion,
    progress: Progress | None,
    exchange: Exchange | None,
    where: str,
) -> tuple[int, list[str]]:
    try:
        return conversion.run(progress, exchange)
    except ENGINE_ERRORS as error:
        raise translated_converting(error, where) from None


def translated_converting(
    error: _internal.EngineError | _internal.PanicException, where: str = ""
) -> BedformError:
    """Returns the exception for an engine error of a conversion, which has two more kinds."""
    match error.args:
        case ("Busy", message):
            return TargetBusyError(message)
        case ("Differs", message):
            return VerificationError(message)
    return translated(error, where)


def _plan_of(facts: dict[str, Any]) -> Conversion:
    def plain(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    arrays = [{key: plain(value) for key, value in array.items()} for array in facts["arrays"]]
    planned = tuple(ArrayPlan(**array) for array in arrays)
    return Conversion(facts["source"], facts["target"], planned, warnings=tuple(facts["warnings"]))


def _layout_facts(layout: Any) -> dict[str, Any]:
    shards = layout.shards
    return {
        "chunks": list(integers(layout.chunks, "the chunks of the layout")),
        "shards": None if shards is None else list(integers(shards, "the shards of the layout")),
        "order": layout.order,
    }


def readers_of(opened: Any, exclude: Sequence[str]) -> list[tuple[str, bool, Callable[..., Any]]]:
    """Returns readers of the variables that only the library of their format can read."""
    if not isinstance(opened, bf.ForeignStore):
        return []
    arrays = {name: array for name, array in opened.arrays().items() if name not in exclude}
    return [
        (name, array.dtype.hasobject, _reader(array))
        for name, array in arrays.items()
        if array._native is not None and array.not_storable is None
    ]


def _reader(array: Any) -> Callable[[list[int], list[int]], Any]:
    if array._inner is not None:
        by_region = array._region_reader()

        def read_elements(start: list[int], shape: list[int]) -> Any:
            array._warn()
            return by_region(start, shape)

        return read_elements
    dtype = array.dtype.newbyteorder("=")
    elements = ElementConverter(array.path, dtype)

    def read(start: list[int], shape: list[int]) -> Any:
        region = tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))
        return elements.flat(np.asarray(array[region], dtype=dtype))

    return read


def partial_directory(target: Path) -> Path:
    """Returns the directory of an unfinished conversion to ``target``."""
    return target.resolve().parent / f".{target.name}.bedform-partial"
