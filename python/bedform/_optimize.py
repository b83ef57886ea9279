"""The function ``optimize``: planning and making replicas, or new layouts of a store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from bedform import _dask_regions, _internal, _selection
from bedform._errors import (
    InvalidArgumentError,
    WrongTypeError,
    check_mapping,
    engine_call,
    spanned_axes,
)
from bedform._integers import budget_text, byte_count, integer
from bedform._layout import described_readers
from bedform._location import location
from bedform._mesh_jobs import mesh_for_jobs, optimize_mesh
from bedform._opening import open_place, references_at
from bedform._paths import join_of, paths_of, shown_paths
from bedform._plan_lines import (
    foremost,
    gain_of_query,
    gain_of_read,
    gain_of_replica,
    index_text,
    profile_line,
)
from bedform._reorganize import Reorganization
from bedform._sidecar import warn_of_sidecars
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from bedform._layout import Readers

_MEMORY = "512 MiB"


class Optimization:
    """Plan and outcome of the replicas and value indexes of a source.

    Attributes
    ----------
    plan
        ``reads`` and ``queries``, each with predicted ``seconds_of_source`` of one cold read or
        scan, ``seconds_now`` and ``seconds_then``; the replicas to ``make``, ``keep`` and
        ``drop``; the value ``indexes`` to ``make``, ``keep`` and ``drop``, by path of the array;
        ``bytes`` of both, of at most ``budget_bytes``; and ``notes``.
    done
        The replicas ``made`` and ``dropped``, the ``indexes`` ``made`` and ``dropped``, and the
        ``bytes`` of both; ``None`` for a dry run.

    Examples
    --------
    >>> Optimization({"make": [], "keep": [], "drop": [], "reads": []}, None).made
    []
    """

    def __init__(self, plan: dict[str, Any], done: dict[str, Any] | None) -> None:
        self.plan = plan
        self.done = done

    @property
    def made(self) -> list[dict[str, Any]]:
        """The replicas that were made; none for a dry run."""
        return list(self.done["made"]) if self.done else []

    @property
    def indexed(self) -> list[dict[str, Any]]:
        """The value indexes that were made or renewed; none for a dry run."""
        return list(self.done["indexes"]["made"]) if self.done else []

    def to_dict(self) -> dict[str, Any]:
        """Returns plan and outcome; the outcome is ``None`` for a dry run."""
        return {"plan": self.plan, "done": self.done}

    def __repr__(self) -> str:
        kept, dropped = len(self.plan["keep"]), len(self.plan["drop"])
        what = f"{len(self.plan['make'])} replicas to make, {kept} kept, {dropped} dropped"
        if indexes := len(self.plan["indexes"]["make"]):
            what += f", {indexes} indexes to make"
        return f"<Optimization: {what}{'' if self.done else ', nothing was written'}>"

    def __str__(self) -> str:
        lines = []
        reads, more_reads = foremost(self.plan["reads"], gain_of_read)
        for read in reads:
            shape = " x ".join(str(length) for length in read["shape"])
            now, then = (format_seconds(read[f"seconds_{when}"]) for when in ("now", "then"))
            lines.append(f"{read['array']}: reads of {shape}: {now} now, {then} then")
        lines += [f"and {more_reads:,} more kinds of reads"] if more_reads else []
        queries, more_queries = foremost(self.plan["queries"], gain_of_query)
        for query in queries:
            now, then = (format_seconds(query[f"seconds_{when}"]) for when in ("now", "then"))
            lines.append(f"queries {query['condition']}: {now} now, {then} then")
        lines += [f"and {more_queries:,} more queries"] if more_queries else []
        lines += map(index_text, self.plan["indexes"]["make"])
        replicas, more_replicas = foremost(self.plan["make"], gain_of_replica)
        for replica in replicas:
            shape = " x ".join(str(length) for length in replica["shape"])
            size = format_bytes(replica["bytes"])
            lines.append(f"{replica['array']}: a replica of {shape}, {size}")
        lines += [f"and {more_replicas:,} more replicas"] if more_replicas else []
        lines += profile_line(self.plan)
        return "\n".join([*lines, *(f"note: {note}" for note in self.plan["notes"])])


@overload
def optimize(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    reads: Mapping[Any, float] | None = None,
    region: Mapping[str, tuple[int, int]] | None = None,
    selections: Mapping[str, Iterable[Any]] | None = None,
    like: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
    memory: str | int = _MEMORY,
    reorganize: Literal[False] = False,
    readers: Readers = "any",
    dask: Any = None,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Optimization: ...


@overload
def optimize(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    reads: Mapping[Any, float] | None = None,
    region: Mapping[str, tuple[int, int]] | None = None,
    selections: Mapping[str, Iterable[Any]] | None = None,
    like: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
    memory: str | int = _MEMORY,
    reorganize: Literal[True],
    readers: Readers = "any",
    dask: Any = None,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Reorganization: ...


@overload
def optimize(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    reads: Mapping[Any, float] | None = None,
    region: Mapping[str, tuple[int, int]] | None = None,
    selections: Mapping[str, Iterable[Any]] | None = None,
    like: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
    memory: str | int = _MEMORY,
    reorganize: bool,
    readers: Readers = "any",
    dask: Any = None,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Optimization | Reorganization: ...


def optimize(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    reads: Mapping[Any, float] | None = None,
    region: Mapping[str, tuple[int, int]] | None = None,
    selections: Mapping[str, Iterable[Any]] | None = None,
    like: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
    memory: str | int = _MEMORY,
    reorganize: bool = False,
    readers: Readers = "any",
    dask: Any = None,
    dry_run: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Optimization | Reorganization:
    """Make replicas of a file or store in layouts that fit its reads; the source does not change.

    Replicas lie in the sidecar. Later reads of the file or store by Bedform take data from them
    where that is faster. A changed file makes all its replicas unused; a store only those parts
    that were written since. Replicas may be deleted at any time.

    Of arrays that recorded queries compare it makes value indexes, too, where they save time
    (:func:`index`). Indexes that a user built are left alone, and count in no budget.

    Parameters
    ----------
    path
        A NetCDF or HDF5 file, a Zarr store, a plotfile of AMReX, or a list or pattern of files that
        are opened as one. Replicas of a list apply to every list that begins with the same file, as
        far as both have the same files at the same positions.
    concat_dim, compat
        As in :func:`bedform.open`.
    budget
        Limit of the bytes of all replicas of the file, and of the indexes that this function made:
        a share of the file, or a size. The default is 20 %, or the bytes of those that exist if
        these are more. Replaced replicas are
        removed after the new ones are made, so that the sidecar may hold more for a while.
    reads
        The dimensions that reads span, with weights, as in :func:`convert`; the default is the
        learnt reads and queries (:func:`watch`, :func:`learn`).
    region
        The region of such reads: for a dimension its first position, and its end, exclusive.
    selections
        The exact reads, a list for each array: keys of ``oindex`` (``rows``, or ``(rows,
        slice(None))``), or ``{"points": (y, x)}`` with a key of ``vindex``. A replica then holds
        just these elements, one after the other.
    like
        Another file or store of the same form whose learnt reads are used.
    sidecar
        The directory of sidecars that gets the replicas. Programs use them if ``BEDFORM_SIDECAR``
        names it. The default is that directory, or the site's for its maintainers, or the place
        beside the file. With ``sidecar`` no index is made.
    memory
        Limit of the bytes of blocks in flight; with ``dask``, in each worker.
    reorganize
        Make no replicas, but rewrite a store of Bedform in the layouts that cost least for its
        reads. A new store is written beside it, compared, and exchanged with the old one in one
        step. ``budget`` does not apply.
    readers
        With ``reorganize``, the reading programs that layouts must suit: see
        :func:`bedform.advise`.
    dask
        A :class:`distributed.Client`, or the address of a Dask scheduler, whose workers copy, as in
        :func:`convert`. This process makes replicas of points.
    dry_run
        Plan only; write nothing.
    progress
        Called with the bytes copied and their total.

    Returns
    -------
    Optimization or Reorganization
        The plan, with predicted times of each kind of read, and the result.

    Raises
    ------
    NotFoundError
        No reads are learnt or given.
    PermissionDeniedError
        The replicas cannot lie beside the file: give ``sidecar``, or set ``BEDFORM_SIDECAR``.
    ConflictError
        Another process is making replicas of the file. Or a store to reorganize has unsettled
        commits, is being written, or has changed meanwhile.
    UnsupportedError
        The store to reorganize is not a settled store of Bedform on a local disk, or its file
        system cannot exchange two directories in one step.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile, xarray as xr
    >>> path = tempfile.mkdtemp() + "/era5.nc"
    >>> values = np.zeros((200, 60, 60), "f4")
    >>> xr.Dataset({"t": (("time", "lat", "lon"), values)}).to_netcdf(path, engine="h5netcdf")
    >>> done = bf.optimize(path, budget="100%", reads={"time": 1}, dry_run=True)
    >>> done.plan["reads"][0]["shape"]
    [200, 1, 1]

    >>> maps = tempfile.mkdtemp() + "/maps.zarr"
    >>> layout = bf.Regular(chunks=(1, 60, 60), shards=(50, 60, 60))
    >>> t = bf.create(maps).create_array("t", (200, 60, 60), "f4", tuple("tyx"), layout=layout)
    >>> t[...] = values + 1
    >>> bf.optimize(maps, reorganize=True, reads={"t": 1}).changed
    ['t']
    """
    reads = check_mapping(reads or {}, "reads", '{"time": 1}')
    region = check_mapping(region or {}, "region", '{"lat": (100, 200)}')
    selections = check_mapping(selections or {}, "selections", '{"t": [rows]}')
    paths = paths_of(path)
    where = location(path) if paths is None else shown_paths(path, paths)
    expected = expected_reads(reads, region)
    given_budget = None if budget is None else budget_text(budget)
    place = where if paths is None else paths
    if paths is None and (mesh := mesh_for_jobs(where)) is not None:
        refused = {
            "selections": selections,
            "like": like,
            "reorganize": reorganize,
            "dask": dask,
            "concat_dim": concat_dim,
        }
        planned = optimize_mesh(
            mesh,
            where,
            budget=given_budget,
            expected=expected,
            sidecar=None if sidecar is None else str(Path(location(sidecar)).absolute()),
            refused=refused,
            dry_run=dry_run,
            progress=progress,
        )
        return Optimization(*planned)
    joined = {"concat_dim": concat_dim, "compat": compat}
    exact = [] if reorganize and not selections else _exact(place, joined, selections)
    if like is None:
        other = None
    else:
        files = paths_of(like, "like")
        other = location(like, "like") if files is None else files
    counted = (expected, exact, other)
    limit = byte_count(memory, "memory")
    cache = _internal.source_cache_bytes(limit)
    given = {"cache": cache, **joined, "replicas": False, "prefetch": False}
    with _dask_regions.exchange_on(dask, (where, place), given) as exchange:
        if reorganize:
            if sidecar is not None:
                raise InvalidArgumentError("sidecar= is for replicas: leave it out, or reorganize=")
            text = engine_call(_internal.optimize_layouts, where)(
                place,
                counted,
                json.dumps(described_readers(readers)),
                limit,
                dry_run,
                progress,
                exchange,
            )
            return Reorganization(*json.loads(text))
        opened = references_at(where) if paths is None else None
        text = engine_call(_internal.optimize, where)(
            place,
            join_of(place, concat_dim, compat),
            None if opened is None else opened._inner,
            given_budget,
            counted,
            None if sidecar is None else str(Path(location(sidecar)).absolute()),
            limit,
            dry_run,
            progress,
            exchange,
        )
    warn_of_sidecars()
    plan, done = json.loads(text)
    return Optimization(plan, done)


def _exact(
    place: str | list[str], joined: Mapping[str, Any], selections: Mapping[str, Iterable[Any]]
) -> list[tuple[str, float, tuple[Any, ...]]]:
    """Returns the exact selections in the engine's form."""
    if not selections and isinstance(place, str):
        return []
    exact = []
    # Opening also maps the files of an archive that only their library can describe.
    with open_place(place, **joined, replicas=False, prefetch=False) as store:
        for name, wanted in selections.items():
            shape = getattr(store[name], "shape", None)
            if shape is None:
                raise InvalidArgumentError(f"selections: {name!r} is a group; name an array")
            if isinstance(wanted, (str, dict)) or not isinstance(wanted, Iterable):
                raise WrongTypeError(
                    f"selections of {name!r}: a list of selections, not {wanted!r:.100}"
                )
            for selection in wanted:
                if isinstance(selection, dict):
                    points = selection.get("points")
                    if points is None:
                        raise InvalidArgumentError(
                            f'selections of {name!r}: a dict has the one key "points"'
                        )
                    selected = _selection.points(points, shape)
                else:
                    selected = _selection.orthogonal(selection, shape)
                exact.append((name, 1.0, selected.engine))
    return exact


def expected_reads(
    reads: Mapping[Any, float], region: Mapping[str, tuple[int, int]]
) -> list[tuple[list[str], float, list[tuple[str, int, int]], str | None]]:
    """Returns the expected reads of all arrays in the engine's form."""
    if region and not reads:
        raise InvalidArgumentError("region= says where the reads of reads= are: give both")
    where = [_region_of(name, bounds) for name, bounds in region.items()]
    return [
        (list(spanned_axes(axes)), _weight_of(axes, weight), where, None)
        for axes, weight in reads.items()
    ]


def _region_of(name: str, bounds: tuple[int, int]) -> tuple[str, int, int]:
    """Returns the dimension, the first position and the end, exclusive."""
    if not isinstance(name, str):
        raise WrongTypeError(f"region: a key is the name of a dimension, not {name!r:.100}")
    try:
        first, end = bounds
    except (TypeError, ValueError):
        raise WrongTypeError(
            f"region: {name} has {bounds!r}; write its first position and its end: (100, 200)"
        ) from None
    return name, integer(first, f"region: {name}"), integer(end, f"region: {name}")


def _weight_of(axes: Any, weight: Any) -> float:
    """Returns the weight of a kind of reads relative to the others."""
    try:
        number = float(weight)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidArgumentError(f"reads: the weight of {axes!r} is {weight!r}, not a number > 0")
    return number
