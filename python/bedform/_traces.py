"""Which reads were made of a store or file, and what is learnt from them."""

from __future__ import annotations

import atexit
import json
from typing import TYPE_CHECKING, Any

from bedform import _internal
from bedform._errors import engine_call
from bedform._location import location

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

# Reads wait some seconds before they are written.
atexit.register(_internal.keep_traces)


def watch(path: str | os.PathLike[str], on: bool = True) -> str:
    """Record the reads of a store or file, from the next open on.

    Every process of this user that opens it writes which elements it has read, when, and how long
    that took: no values, and no names of users or machines. The records lie in the sidecar, beside
    the data where that can be made, and can be read by this user alone.

    Parameters
    ----------
    path
        The store, or the NetCDF or HDF5 file; or a URL.
    on
        ``False`` turns it off again. What was recorded stays.

    Returns
    -------
    str
        The directory of the records.

    Raises
    ------
    NotFoundError
        There is nothing at the path.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile
    >>> path = tempfile.mkdtemp() + "/s.zarr"
    >>> _ = bf.create(path).create_array("t", data=np.zeros((20, 64, 64), "f4"))
    >>> _ = bf.watch(path)
    >>> with bf.open(path) as store:
    ...     for at in range(20):
    ...         _ = store["t"][at]
    >>> learned = bf.learn(path)["knowledge"]["arrays"]["t"]
    >>> learned["read"]["reads"], learned["predicted"]["strided"]["reads"]
    (20, 17)
    """
    where = location(path)
    return engine_call(_internal.watch, where)(where, on)


def learn(
    path: str | os.PathLike[str], progress: Callable[[int, int], object] | None = None
) -> dict[str, Any]:
    """Learn from the recorded reads of a store or file.

    The records of all processes are merged: the patterns of each array, and how many reads and
    bytes they explain. That is kept in the sidecar, and known to whoever opens the store or file
    later: a pattern is then foreseen from its second read on. The blocks of one computation of Dask
    count as the one read that its user made. What the processes of one run read together is known
    to a run of another number of processes, too, if its launcher (MPI's or Slurm's) says which one
    each is.

    Parameters
    ----------
    path
        As in :func:`watch`.
    progress
        Called with how many records of how many are done.

    Returns
    -------
    dict
        How many ``traces`` had something new, and were ``left_out``; how many reads were
        ``ignored``, of a store that lay there before; in ``"knowledge"`` the ``"arrays"`` by their
        paths: ``read``, ``was_ahead``, ``lists`` and ``predicted`` by kind, each with ``reads`` and
        ``bytes``; ``seconds`` of all reads; ``patterns``, and ``global`` ones of processes
        together.

    Raises
    ------
    NotFoundError
        Nothing was recorded.
    """
    where = location(path)
    text = engine_call(_internal.learn, where)(where, progress)
    learned: dict[str, Any] = json.loads(text)
    return learned
