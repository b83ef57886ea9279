"""Recording of reads of a store or file, and learning from the records."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedform import _internal, _shown
from bedform._errors import InvalidArgumentError, NotFoundError, UnsupportedError, engine_call
from bedform._hints import missing_place, other_place
from bedform._integers import budget_text
from bedform._location import location
from bedform._mesh_jobs import mesh_for_jobs
from bedform._opening import references_in
from bedform._paths import paths_of, shown_paths
from bedform._python_command import python_command
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Records of reads are written some seconds later; write the rest at exit.
atexit.register(_internal.keep_traces)
# After enough recorded reads the engine starts the policy's work in a separate process.
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
    budget: str | int | None = None,
) -> str:
    """Record the reads of a store or file, from the next open on.

    Every process of this user that opens it records the elements, time and duration of each read,
    and the condition, region and cost of each query (:meth:`Store.query`), but no values of the
    data and no names of users or machines. The records lie in the sidecar, beside the data if
    possible, and only this user can read them.

    Parameters
    ----------
    path
        A store, a NetCDF or HDF5 file, the URL of one, a plotfile of AMReX, or a list or pattern of
        files that are opened as one.
    on
        ``False`` turns recording and automatic optimizing off. Existing records stay.
    optimize_after
        Number of recorded reads, of all processes together, after which replicas are made where
        they save much time (:func:`learn`, :func:`optimize`). That repeats after as many further
        reads. A separate background process of lowest priority does it, and outlives the reading
        one. ``0`` turns it off; None changes nothing. :func:`watch_state` reports the outcome.
    budget
        Limit of the bytes of all replicas then, as in :func:`optimize`: without one 20 %, or the
        bytes of the existing replicas if these are more.

    Returns
    -------
    str
        The directory of the records.

    Raises
    ------
    NotFoundError
        The path does not exist, or is a directory but not a store.
    UnsupportedError
        The file cannot be read.
    InvalidArgumentError
        The path is an array or group within a store: only whole stores are recorded.
    PermissionDeniedError
        Replicas for ``optimize_after`` cannot be kept beside the data: set ``BEDFORM_SIDECAR``.

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
        return os.fspath(engine_call(_internal.watch, where)(source, on))
    if on:
        _check_can_be_watched(where)
    if optimize_after is not None and (not on or optimize_after < 0):
        raise InvalidArgumentError(
            f"optimize_after={optimize_after}: a number of reads that are recorded; 0 for never"
        )
    if on and optimize_after and mesh_for_jobs(where) is not None:
        raise UnsupportedError(
            f"{where}: optimize_after is for arrays: run 'bedform optimize' for a refined mesh"
        )
    if on and optimize_after is not None:
        limit = None if budget is None else budget_text(budget)
        engine_call(_internal.set_policy, where)(where, optimize_after, limit)
    directory = os.fspath(engine_call(_internal.watch, where)(where, on))
    if not on:
        engine_call(_internal.set_policy, where)(where, 0)
    return directory


def watch_state(path: str | os.PathLike[str] | Sequence[str]) -> dict[str, Any]:
    """Return whether reads of a store or file are recorded, and the state of its policy.

    Parameters
    ----------
    path
        As in :func:`watch`.

    Returns
    -------
    dict
        ``is_watched``; ``settings``, the requested ``optimize_after`` and ``budget`` (``None`` for
        the default), or ``None``;
        ``reads`` recorded since the last optimizing; ``is_running``; and ``outcome``, its last
        result, or ``None``. The outcome has ``began`` and ``ended`` in seconds since 1970
        (``ended`` is 0 if it was killed), the predicted ``gain`` as a share of the reads' time,
        names of replicas ``made`` and ``dropped``, ``bytes`` of all, the ``verdict`` in words, and
        the ``error``, empty without one.
    """
    source, where = _source_of(path)
    if isinstance(source, str):
        _check_can_be_watched(where)
    state: dict[str, Any] = json.loads(engine_call(_internal.policy_state, where)(source))
    return state


def run_policy(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Runs the policy of a store or file; returns ``None`` if another process is running it."""
    where = location(path)
    outcome: dict[str, Any] | None = json.loads(engine_call(_internal.run_policy, where)(where))
    return outcome


def _source_of(path: str | os.PathLike[str] | Sequence[str]) -> tuple[str | list[str], str]:
    """Returns a path, or files that are opened as one; and the same for messages."""
    paths = paths_of(path)
    if paths is not None:
        return paths, shown_paths(path, paths)
    where = location(path)
    return where, where


def _check_can_be_watched(where: str) -> None:
    """Fails for places whose reads no open would record, before a marker is written beside them."""
    if is_url(where):
        return
    kind, looks = engine_call(_internal.place_kind, where)(where)
    if kind == "missing":
        raise NotFoundError(missing_place(where))
    if references_in(where, kind) is not None:
        return
    if kind == "plotfile":
        return
    if kind == "directory" or looks is not None:
        if (known := other_place(where)) is not None:
            raise UnsupportedError(known)
        if kind == "directory":
            raise NotFoundError(f"{where} is no store: it has no zarr.json, .zgroup or .zarray")
        raise UnsupportedError(f"{where}: not a NetCDF or HDF5 file; it is {looks}")
    if kind in {"zarr-v2", "zarr-v3"} and (store := _store_around(where)) is not None:
        raise InvalidArgumentError(
            f"{where} is within the store {store}: 'bedform watch {_shown.shell_path(store)}' "
            "records the reads of all its arrays, where the store is opened"
        )


def _store_around(where: str) -> str | None:
    """Returns the outermost store that contains the array or group at a path."""
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

    It merges the records of all processes into the patterns of each array, with the reads and bytes
    that they explain. The result is kept in the sidecar for all later opens of the store or file:
    they recognize a pattern from its second read on. The blocks of one Dask computation count as
    one read. If the launcher (MPI's or Slurm's) gives ranks, patterns of the processes of a run
    also apply to runs with another number of processes.

    Parameters
    ----------
    path
        As in :func:`watch`.
    progress
        Called with the number of records done and their total.

    Returns
    -------
    dict
        ``traces``, the number of records with new reads, and those ``left_out``; ``ignored``, the
        reads of another store that lay there before; and ``"knowledge"``. That has ``"arrays"`` by
        path. For each: ``read``, ``was_ahead``, ``lists`` and ``predicted`` by kind, each with
        ``reads`` and ``bytes``; ``seconds`` of all reads; ``patterns``; ``global`` patterns with
        their number of ``processes``; and ``selections``, the lists and points with count, seconds
        and time, where nearly equal ones count as one. ``is_kept`` says whether the sidecar has
        their positions, so that :func:`optimize` can make replicas of them; of larger ones it has
        the box. ``queries`` has the number of queries by value that compare the array, the
        ``bytes`` that they read of it, their ``seconds``, and at most 64 ``conditions``, each with
        the box around its regions and the numbers of matching elements and of blocks.
        ``knowledge["replicas"]`` has the use of each replica by reads.

    Raises
    ------
    NotFoundError
        No reads are recorded, or the path does not exist.
    """
    source, where = _source_of(path)
    try:
        text = engine_call(_internal.learn, where)(source, progress)
    except NotFoundError:
        if (
            isinstance(source, str)
            and not is_url(where)
            and engine_call(_internal.place_kind, where)(where)[0] == "missing"
        ):
            raise NotFoundError(missing_place(where)) from None
        command = "bf.watch(paths)"
        if not isinstance(path, (list, tuple)):
            command = f"'bedform watch {_shown.shell_path(where)}'"
        raise NotFoundError(
            f"{where}: no reads are recorded yet: {command} turns it on, and programs write what "
            "they read every ten seconds and at their end"
        ) from None
    learned: dict[str, Any] = json.loads(text)
    return learned
