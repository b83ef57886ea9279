"""Which reads were made of a store or file, and what is learnt from them."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedform import _internal
from bedform._errors import InvalidArgumentError, NotFoundError, UnsupportedError, engine_call
from bedform._hints import missing_place, other_place
from bedform._integers import budget_text
from bedform._location import location
from bedform._opening import references_in
from bedform._paths import paths_of, shown_paths
from bedform._python_command import python_command
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Reads wait some seconds before they are written.
atexit.register(_internal.keep_traces)
# Whoever has read enough starts the command line, in a process of its own.
if sys.executable:
    _internal.start_bedform_by(python_command("bedform._traces", ()))


def _main() -> None:
    from bedform_command import main

    main()


def watch(
    path: str | os.PathLike[str] | Sequence[str],
    on: bool = True,
    *,
    optimize_after: int | None = None,
    budget: str | int = "20%",
) -> str:
    """Record the reads of a store or file, from the next open on.

    Every process of this user that opens it writes which elements it has read, when, and how long
    that took: no values, and no names of users or machines. The records lie in the sidecar, beside
    the data where that can be made, and can be read by this user alone.

    Parameters
    ----------
    path
        The store, or the NetCDF or HDF5 file; or a URL; or a list or pattern of files that are
        opened as one.
    on
        ``False`` turns it off again, and optimising too. What was recorded stays.
    optimize_after
        Each time that so many more reads were recorded, by all processes together, what they read
        is learnt, and replicas are made of it where they save much (:func:`learn`,
        :func:`optimize`): in the background, at the lowest priority, by a process of its own that
        goes on when the one that has read ends. ``0`` ends that; without it everything stays as
        it is. :func:`watch_state` says what came of it.
    budget
        How much all replicas may take together then, as in :func:`optimize`.

    Returns
    -------
    str
        The directory of the records.

    Raises
    ------
    NotFoundError
        There is nothing at the path, or a directory that is no store.
    UnsupportedError
        It is a file that cannot be read.
    InvalidArgumentError
        It is an array or group within a store: the reads of a store are recorded as a whole.
    PermissionDeniedError
        The replicas of ``optimize_after`` cannot lie beside the data: set ``BEDFORM_SIDECAR``.

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
    source, where = _source_of(path)
    if isinstance(source, list):
        if optimize_after:
            raise UnsupportedError(
                f"{where}: optimize_after is for one file or store: run 'bedform optimize' for many"
            )
        return engine_call(_internal.watch, where)(source, on)
    if on:
        _check_can_be_watched(where)
    if optimize_after is not None and (not on or optimize_after < 0):
        raise InvalidArgumentError(
            f"optimize_after={optimize_after}: a number of reads that are recorded; 0 for never"
        )
    if on and optimize_after is not None:
        engine_call(_internal.set_policy, where)(where, optimize_after, budget_text(budget))
    directory = engine_call(_internal.watch, where)(where, on)
    if not on:
        engine_call(_internal.set_policy, where)(where, 0, "")
    return directory


def watch_state(path: str | os.PathLike[str] | Sequence[str]) -> dict[str, Any]:
    """Say whether reads of a store or file are recorded, and what is made of them unasked.

    Parameters
    ----------
    path
        As in :func:`watch`.

    Returns
    -------
    dict
        ``is_watched``; in ``settings`` what was asked for (``optimize_after``, ``budget``), or
        ``None``; ``reads`` that were recorded since the last time; ``is_running``; in ``outcome``
        what came of it the last time, or ``None``: ``began`` and ``ended`` in seconds since 1970
        (``ended`` is 0 if it was killed), the predicted ``gain`` as a share of the time of the
        reads, names of replicas ``made`` and ``dropped``, ``bytes`` of all, the ``verdict`` in
        words, and the ``error``, empty if there was none.
    """
    source, where = _source_of(path)
    if isinstance(source, str):
        _check_can_be_watched(where)
    state: dict[str, Any] = json.loads(engine_call(_internal.policy_state, where)(source))
    return state


def run_policy(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Do what the policy of a store or file says; ``None`` where another process does it."""
    where = location(path)
    outcome: dict[str, Any] | None = json.loads(engine_call(_internal.run_policy, where)(where))
    return outcome


def _source_of(path: str | os.PathLike[str] | Sequence[str]) -> tuple[str | list[str], str]:
    """A place, or files that are opened as one; and the same as a user knows it."""
    paths = paths_of(path)
    if paths is not None:
        return paths, shown_paths(path, paths)
    where = location(path)
    return where, where


def _check_can_be_watched(where: str) -> None:
    """Refuse what no open would record: a marker beside it would promise what does not happen."""
    if is_url(where):
        return
    kind, looks = engine_call(_internal.place_kind, where)(where)
    if kind == "missing":
        raise NotFoundError(missing_place(where))
    if references_in(where, kind) is not None:
        return
    if kind == "directory" or looks is not None:
        if (known := other_place(where)) is not None:
            raise UnsupportedError(known)
        if kind == "directory":
            raise NotFoundError(f"{where} is no store: it has no zarr.json, .zgroup or .zarray")
        raise UnsupportedError(f"{where}: not a NetCDF or HDF5 file; it is {looks}")
    if kind in {"zarr-v2", "zarr-v3"} and (store := _store_around(where)) is not None:
        raise InvalidArgumentError(
            f"{where} is within the store {store}: 'bedform watch {store}' records the reads of "
            "all its arrays, where the store is opened"
        )


def _store_around(where: str) -> str | None:
    """The outermost store that has the array or group at a path within it."""
    names = ("zarr.json", ".zgroup")
    around = None
    for parent in Path(where).absolute().parents:
        if not any((parent / name).is_file() for name in names):
            break
        around = parent
    if around is None:
        return None
    return str(around) if Path(where).is_absolute() else os.path.relpath(around)


def learn(
    path: str | os.PathLike[str] | Sequence[str],
    progress: Callable[[int, int], object] | None = None,
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
        together, with how many ``processes`` they were; in ``selections`` which lists and points
        were read, how often, how long that took and when, those that are nearly the same as one.
        ``is_kept`` says whether the sidecar has the positions, so that :func:`optimize` can make
        replicas of them; of what is too large there is the box. ``knowledge["replicas"]`` has what
        reads took from each replica.

    Raises
    ------
    NotFoundError
        Nothing was recorded, or there is nothing at the path.
    """
    source, where = _source_of(path)
    try:
        text = engine_call(_internal.learn, where)(source, progress)
    except NotFoundError:
        if (
            isinstance(source, str)
            and not is_url(where)
            and _internal.place_kind(where)[0] == "missing"
        ):
            raise NotFoundError(missing_place(where)) from None
        raise NotFoundError(
            f"{where}: no reads are recorded yet: 'bedform watch {where}' turns it on, and "
            "programs write what they read every ten seconds and at their end"
        ) from None
    learned: dict[str, Any] = json.loads(text)
    return learned
