"""Acceptance of a sidecar that came with the data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bedform import _internal
from bedform._errors import engine_call
from bedform._location import location
from bedform._paths import join_of, paths_of, shown_paths

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["trust"]


def trust(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    concat_dim: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Compare the sidecar beside a store or file with the data, and accept it from then on.

    A sidecar beside the data is used only if this user made it on this machine. One that came with
    an archive, from another machine or with a moved directory is ignored until this call accepts
    it. Replicas whose elements all equal the data stay, and so do records of reads. Everything else
    is removed: chunk maps are made again, and a watch must be turned on again.

    Parameters
    ----------
    path
        The store or file, or a list or pattern of files that are opened as one.
    concat_dim
        The dimension along which many files are joined, as in :func:`open`.
    progress
        Called with the compared bytes of replicas and their total.

    Returns
    -------
    dict
        ``directory`` of the sidecar; ``was_trusted``, whether it was accepted before; names of
        ``accepted`` replicas; ``refused`` replicas, each with ``id``, ``array`` and ``why``; the
        number of ``learned_arrays``; other names that were ``removed``.

    Raises
    ------
    NotFoundError
        No sidecar of this user lies beside the data.
    PermissionDeniedError
        The sidecar has links, devices, hard links or files of other users, or others may write it.
        Or the registry cannot be written: set ``BEDFORM_TRUST``, or ``BEDFORM_SIDECAR``.

    Examples
    --------
    >>> import bedform as bf, numpy as np, shutil, tempfile
    >>> place = tempfile.mkdtemp()
    >>> _ = bf.create(f"{place}/a.zarr").create_array("t", data=np.zeros((60, 100)))
    >>> _ = bf.watch(f"{place}/a.zarr")
    >>> _ = shutil.copytree(f"{place}/a.zarr", f"{place}/b.zarr")
    >>> _ = shutil.copytree(f"{place}/a.zarr.bedform", f"{place}/b.zarr.bedform")
    >>> bf.watch_state(f"{place}/b.zarr")["is_watched"]
    False
    >>> bf.trust(f"{place}/b.zarr")["removed"]
    ['nonce', 'watch']
    """
    paths = paths_of(path)
    where = location(path) if paths is None else shown_paths(path, paths)
    ask = engine_call(_internal.trust, where)
    join = join_of(paths, concat_dim, "equals")
    done: dict[str, Any] = json.loads(ask(where if paths is None else paths, join, progress))
    return done
