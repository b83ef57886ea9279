"""The function ``index``: value indexes of files and stores."""

from __future__ import annotations

import json
import operator
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bedform import _dask_cluster, _internal
from bedform._dask_regions import absolute_places
from bedform._errors import BedformError, WrongTypeError, engine_call
from bedform._opening import open_place
from bedform._sidecar import warn_of_sidecars
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: Bins of an index: a number, edges, a word, False for none, or None for the present ones.
Bins: TypeAlias = "int | str | bool | Iterable[float] | None"


class IndexReport:
    """The outcome of building indexes.

    Attributes
    ----------
    arrays
        For each array its path (``array``), the number of ``blocks``, how many of them were read
        (``blocks_read``; the others were known already), ``objects_left_out`` because they were
        being written or have unsettled commits over them, the bytes of its elements
        (``raw_bytes``), the ``bytes`` of the index, its number of ``bins`` (0 for none), and the
        ``seconds`` that it took.

    Examples
    --------
    >>> IndexReport([]).blocks
    0
    """

    def __init__(self, arrays: list[dict[str, Any]]) -> None:
        self.arrays = arrays

    @property
    def blocks(self) -> int:
        """Number of blocks of all arrays."""
        return sum(array["blocks"] for array in self.arrays)

    @property
    def bytes(self) -> int:
        """Bytes of all indexes in storage."""
        return sum(array["bytes"] for array in self.arrays)

    @property
    def seconds(self) -> float:
        """Seconds that it took."""
        return float(sum(array["seconds"] for array in self.arrays))

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        sums = {"blocks": self.blocks, "bytes": self.bytes, "seconds": self.seconds}
        return {"arrays": self.arrays, **sums}

    def __repr__(self) -> str:
        return f"<IndexReport: {self}>"

    def __str__(self) -> str:
        count = "1 array" if len(self.arrays) == 1 else f"{len(self.arrays):,} arrays"
        read = sum(array["blocks_read"] for array in self.arrays)
        raw = sum(array["raw_bytes"] for array in self.arrays)
        share = f", {self.bytes / raw:.2%} of the data" if raw else ""
        return (
            f"{count}, {self.blocks:,} blocks, {read:,} of them read; "
            f"{format_bytes(self.bytes)}{share}, in {format_seconds(self.seconds)}"
        )


def index(
    path_or_store: Any,
    arrays: str | Iterable[str] | None = None,
    bins: Bins = None,
    *,
    anew: bool = False,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    dask: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> IndexReport:
    """Build the value index of arrays: least and greatest values of blocks; the data do not change.

    The index lies in the sidecar, takes without bins about a thousandth of the bytes of the data,
    and may be deleted at any time. A later call reads again only the objects that were written
    since: files, shards, files of an archive. Blocks of objects that change after that count as
    unknown, and the others still help. Each array's index is published as a whole; an interrupted
    call leaves the earlier one.

    The ranges are plain Zarr v3 arrays, ``minimum``, ``maximum`` and ``missing``, with an element
    for each block. Missing elements are NaN, and those with the value of ``_FillValue`` or
    ``missing_value``, as xarray decodes them.

    With bins, the index also has the bin of each element. Where a query compares with the edge of a
    bin, or a block has no values in the bin around the number, its elements are not read. After
    PARLO (Gong et al.), section III B.

    Parameters
    ----------
    path_or_store
        A NetCDF or HDF5 file, a Zarr store, a list or pattern of files that are opened as one; or
        an opened store, file or array.
    arrays
        Paths of the arrays. The default is every array of numbers or booleans.
    bins
        A number of bins from 2 to 254: each has about as many values, and of 8 bins or more the
        outer two at each end have fewer. Or the values between bins, decoded: ``[273.15, 310]``.
        Or ``"width:20"`` for bins of equal width, or ``"auto"`` for 20 bins where they take at
        most 15 % of the bytes of the stored array. False removes bins; None keeps those of the
        present index, and makes none.
    anew
        Read all blocks, also those of unchanged objects.
    concat_dim, compat
        As in :func:`bedform.open`.
    dask
        A ``distributed.Client``, or the address of a scheduler, whose workers build the indexes,
        each that of an array after another. Of a path only. Arrays that are done when the call is
        stopped stay; the same call goes on with the others.
    progress
        Called with the bytes of elements done, and their total; with ``dask`` after each array.

    Returns
    -------
    IndexReport
        For each array the blocks, the bytes of the index, and seconds.

    Raises
    ------
    NotFoundError
        An array of the list does not exist.
    UnsupportedError
        An array of the list has elements that are no numbers, or is read by a library of its own.
    PermissionDeniedError
        The index cannot lie beside the data: set ``BEDFORM_SIDECAR`` to a directory.
    ConflictError
        Another process builds the index of the array, or the array changes meanwhile.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile, xarray as xr
    >>> path = tempfile.mkdtemp() + "/era5.nc"
    >>> values = np.arange(80000, dtype="f4").reshape(2, 200, 200)
    >>> xr.Dataset({"t": (("time", "lat", "lon"), values)}).to_netcdf(path, engine="h5netcdf")
    >>> report = bf.index(path)
    >>> [(array["array"], array["blocks"]) for array in report.arrays]
    [('t', 8)]
    """
    names = _names(arrays)
    if not isinstance(path_or_store, (str, bytes, os.PathLike, list, tuple)):
        own = getattr(path_or_store, "index", None)
        if own is None or not hasattr(path_or_store, "_where"):
            raise WrongTypeError(
                f"index takes a path, a store or an array of Bedform, not {path_or_store!r:.100}"
            )
        if dask is not None:
            raise WrongTypeError("index with dask= takes a path, which the workers open")
        report: IndexReport = (
            own(bins=bins, anew=anew, progress=progress)
            if names is None
            else own(names, bins=bins, anew=anew, progress=progress)
        )
        return report
    joined: dict[str, Any] = {"concat_dim": concat_dim, "compat": compat}
    if dask is not None:
        return _index_on_cluster(path_or_store, names, bins, joined, anew, dask, progress)
    with open_place(path_or_store, **joined, replicas=False, prefetch=False) as store:
        return index_opened(store, names, bins, anew=anew, progress=progress)


def _index_on_cluster(
    path: Any,
    names: Sequence[str] | None,
    bins: Bins,
    joined: dict[str, Any],
    anew: bool,
    dask: Any,
    progress: Callable[[int, int], object] | None,
) -> IndexReport:
    """Builds the indexes of arrays by the workers of a cluster, one array in each at a time."""
    if bins is not None and bins is not False and not isinstance(bins, (str, int)):
        bins = list(bins)
    _bins_of(bins)
    place = absolute_places(path)
    with open_place(path, **joined, replicas=False, prefetch=False) as store:
        sizes = {
            name: array.size * array.dtype.itemsize
            for name, array in store.arrays().items()
            if array.dtype.kind in "biuf" and (names is None or name in names)
        }
        for name in names or ():
            # The array of this name that does not exist, or is no numbers, has an error of its own.
            sizes.setdefault(name, 0)
    made: dict[str, dict[str, Any]] = {}
    with _dask_cluster.connected(dask) as client:
        tasks = _dask_cluster.Tasks(client, "index")
        try:
            # The largest begin first, so that none of them is left to a single worker at the end.
            for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
                tasks.submit(_index_in_worker, place, joined, name, bins, anew, tag=name)
            while tasks.count:
                for name, arrays in tasks.ended():
                    made[name] = arrays[0]
                    if progress is not None:
                        progress(sum(sizes[one] for one in made), sum(sizes.values()))
        finally:
            tasks.cancel()
    return IndexReport([made[name] for name in sizes])


def _index_in_worker(
    place: Any, joined: dict[str, Any], name: str, bins: Bins, anew: bool
) -> list[dict[str, Any]]:
    """Runs in a worker: builds the index of one array."""
    threads = _dask_cluster.threads_of_worker()
    with open_place(place, **joined, replicas=False, prefetch=False, threads=threads) as store:
        return index_opened(store, [name], bins, anew=anew, progress=None).arrays


def index_opened(
    store: Any,
    names: Sequence[str] | None,
    bins: Bins,
    *,
    anew: bool,
    renews: bool = False,
    progress: Callable[[int, int], object] | None,
) -> IndexReport:
    """Builds the indexes of arrays of an opened store or file.

    With ``renews`` an index that ``optimize`` made stays its own; else it becomes the user's.
    """
    names = _names(names)
    where = str(store.store_path)
    text = engine_call(_internal.index, where)(
        store._inner, None if names is None else list(names), anew, _bins_of(bins), renews, progress
    )
    warn_of_sidecars()
    return IndexReport(json.loads(text))


def _bins_of(bins: Bins) -> tuple[str, list[float], int]:
    """Returns bins as a kind, edges, and a number."""
    if bins is None:
        return "present", [], 0
    if bins is False:
        return "none", [], 0
    refused = WrongTypeError(
        f"bins: a number, the values between bins, 'auto', 'width:20', or False, not {bins!r:.100}"
    )
    if isinstance(bins, str):
        kind, colon, count = bins.partition(":")
        if bins == "auto":
            return "auto", [], 0
        if kind == "width" and colon and count.isdecimal() and len(count) < 10:
            return "width", [], int(count)
        raise refused
    if isinstance(bins, bool):
        raise refused
    try:
        return "count", [], max(operator.index(bins), 0)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        pass
    try:
        return "edges", [float(edge) for edge in bins], 0  # type: ignore[union-attr]
    except (TypeError, ValueError, OverflowError) as error:
        raise refused from error


def check_index(index: bool | Bins) -> bool:
    """Returns whether ``index=`` of a writing call asks for an index.

    >>> check_index(False), check_index(True), check_index(20)
    (False, True, True)

    Raises
    ------
    WrongTypeError
        It is neither a truth value nor bins.
    """
    if index is None or index is False:
        return False
    if index is not True:
        _bins_of(index)
    return True


def index_written(store: Any, index: bool | Bins, arrays: Iterable[str]) -> None:
    """Builds the indexes of arrays that were written, those of numbers."""
    names = [name for name, array in store.arrays().items() if name in set(arrays)]
    names = [name for name in names if store[name].dtype.kind in "biuf"]
    if names:
        index_opened(store, names, None if index is True else index, anew=False, progress=None)


def renew_indexes(store: Any) -> None:
    """Renews the indexes that a store has, after its shards were written.

    An index that cannot be renewed stays as it is, and counts where nothing has changed.
    """
    for condition in conditions_of_indexes(store._inner):
        with suppress(BedformError):
            names = [condition["array"]]
            index_opened(store, names, None, anew=False, renews=True, progress=None)


def conditions_of_indexes(opened: _internal.Store | _internal.ForeignFile) -> list[dict[str, Any]]:
    """Returns the existing indexes of a source; none if they cannot be listed."""
    try:
        text = engine_call(_internal.index_conditions)(opened)
    except BedformError:
        return []
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _names(arrays: str | Iterable[str] | None) -> list[str] | None:
    if arrays is None:
        return None
    names = [arrays] if isinstance(arrays, str) else list(arrays)
    for name in names:
        if not isinstance(name, str):
            raise WrongTypeError(f"arrays: a path or a list of paths, not {name!r:.100}")
    return names
