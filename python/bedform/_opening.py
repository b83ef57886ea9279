"""Stores and foreign files, opened and created by path or URL."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bedform import _internal, _json
from bedform._advise import Profile
from bedform._ahead import prefetch_option
from bedform._array import Array
from bedform._errors import (
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
    engine_call,
)
from bedform._hints import (
    foreign_is_read,
    missing_place,
    other_place,
    wrong_mode,
)
from bedform._integers import byte_count
from bedform._location import check_new_store, location
from bedform._paths import paths_of, shown_paths
from bedform._references import (
    ParquetReferences,
    References,
    external_roots,
    is_parquet_references,
    references_of,
)
from bedform._remote import is_url, storage_options_of
from bedform._sidecar import warn_of_sidecars
from bedform._store import Durability, Store, _check_durability, _reopen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bedform._icechunk import IcechunkSnapshot

Freshness = Literal["read", "open", "never"]

CACHE = "256 MiB"


def create(
    path: str | bytes | os.PathLike[str],
    attributes: Mapping[str, Any] | None = None,
    *,
    cache: int | str = CACHE,
    durability: Durability = "disk",
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """Create an empty store: a plain Zarr v3 group in the directory ``path``.

    Atomic, durable on return.

    Parameters
    ----------
    path
        A directory that is missing or empty, missing parents are made; or the URL of a place in an
        object store: ``s3://bucket/path``, ``gs://`` or ``az://``.
    attributes
        Of the root group.
    cache
        Bytes of decoded chunks and shard indexes to keep between reads; 0 keeps nothing.
    durability
        What an acknowledged write survives: a power cut (``"disk"``) or this process
        (``"process"``).
    storage_options
        As in :func:`open`.

    Raises
    ------
    ExistsError
        There is a store already, or the log of one that is gone.
    """
    where = location(path)
    check_new_store(where, "bf.create")
    _check_durability(durability, ("disk", "process"))
    options: dict[str, Any]
    if is_url(where):
        options = {"freshness": "open", **storage_options_of(storage_options)}
    else:
        _refuse_storage_options(where, storage_options)
        _check_local(where)
        options = {"freshness": "read", "durability": durability}
    options["cache_bytes"] = byte_count(cache, "cache")
    attributes_text = _json.dump_attributes(attributes)
    inner = engine_call(_internal.Store.create, where)(where, attributes_text, _json.dump(options))
    return Store(inner, where, {**options, "writable": True})


def _stage(
    target: Path, *, replaces: bool, durability: Durability
) -> tuple[_internal.StagedStore, Store]:
    """An empty store that the engine builds for ``target`` under a hidden name."""
    _check_durability(durability, ("disk", "process"))
    options = {
        "freshness": "read",
        "durability": durability,
        "cache_bytes": byte_count(CACHE, "cache"),
    }
    create = engine_call(_internal.StagedStore, str(target))
    staged = create(target, replaces, _json.dump(options))
    store = Store(staged.store(), os.fspath(staged.path), {**options, "writable": True})
    return staged, store


def open(  # noqa: A001 - the name users expect
    path: str | bytes | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any],
    mode: Literal["r", "r+"] = "r",
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    cache: int | str = CACHE,
    prefetch: Any = "auto",
    replicas: bool = True,
    freshness: Freshness | None = None,
    durability: Durability = "disk",
    threads: int | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    allow_external: bool | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = False,
    map_time: float | str | None = None,
    direct_reads: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Open a store, a foreign file or many files as one, or a single array.

    Parameters
    ----------
    path
        A Zarr v3 or v2 store, or an array of one, a NetCDF or an HDF5 file; or the URL of one:
        ``s3://bucket/path``, ``gs://``, ``az://``, or ``http://`` and ``https://``, which are only
        read. ``~`` and ``file://`` are understood. Open files, stores of zarr-python and mappers of
        fsspec that have a path or URL are opened by it. A list of NetCDF and HDF5 files, or a
        pattern such as ``"era5_*.nc"``, is opened as one store: see ``concat_dim``. A set of
        references is opened as the Zarr store that it is: kerchunk's JSON, its directory of Parquet
        files, its dictionary, and a data set of VirtualiZarr. So is a read-only session of
        Icechunk, or the directory of a repository, of which the newest commit of the branch
        ``main`` is read.
    mode
        ``"r"``, or ``"r+"`` to write as well.
    concat_dim
        The dimension along which many files are joined: variables that have it have the elements of
        all files, in the order of the list, or of a pattern's files by their labels along it. All
        others are those of the first file. Without it the one dimension that can grow, or else the
        one with other labels in each file.
    compat
        The checks that many files must pass. ``"equals"``: coordinates along other dimensions, to a
        millionth, and labels along the joined one that rise or fall throughout; other variables
        that differ are warned of. ``"override"``: nothing is compared, coordinates are those of the
        first file.
    cache
        Bytes of decoded chunks and shard indexes to keep between reads; 0 keeps nothing.
    prefetch
        What may be read ahead where reads follow a pattern: bytes, or a text such as ``"64 MiB"``;
        ``False`` for nothing. ``"auto"``, which `BEDFORM_PREFETCH` may say otherwise, is half of
        ``cache``, ahead of reads of the main thread alone.
    replicas
        Whether replicas (:func:`bedform.optimize`) are read where that is faster.
    freshness
        When to look for changes of other writers: before every ``"read"``, at ``"open"`` or
        ``"never"``. Without it before every read, and at opening where the store has a URL. A
        handle that does not look keeps the shape that it saw, and reads the fill value for rows
        that others have removed since.
    durability
        What an acknowledged write survives: a power cut (``"disk"``) or this process
        (``"process"``).
    threads
        Threads that decode; one per core without it.
    profile
        The storage's parameters (:class:`bedform.Profile`), or a path or URL whose kept profile to
        take. Without it the kept profile of the storage, if there is one, else that of a local
        disk, or of an object store.
    allow_external
        Whether a foreign file may name other files that are then read, too. Of a set of references
        directories and URLs below which the files may lie that it names, beside the directory of
        the set; ``True`` allows any.
    map_time
        How long HDF5 may look for where the data of a file lie, in seconds or as a time such as
        ``"5min"``. Without it `BEDFORM_MAP_TIME` counts, else 20 seconds. Not needed where a chunk
        map is kept.
    direct_reads
        Whether large reads of what the page cache does not have may go past it, where the device
        is faster than the page cache takes bytes in, when they are made for the first time; the
        second time they go through it. Without them already what was read once stays in the page
        cache, for this process and others.
    storage_options
        How an object store is reached: ``anonymous`` (requests are not signed), ``endpoint`` (a
        server that is not the vendor's), ``region``, ``single_writer`` (nobody else writes: for
        servers that know no conditional writes); ``deadline_seconds`` (how long a request is
        tried), ``stall_seconds`` (how long a silent server is waited for) and
        ``bytes_per_second_min`` (what a body brings at least). Credentials are taken from the
        environment, where each vendor's tools look for them, and are part of no pickle.
    progress
        Called with the files done and the files in all, where many are opened for the first time.

    Returns
    -------
    Store, ForeignStore or Array
        An array where the path is that of an array, and not of a group.

    Raises
    ------
    NotFoundError
        There is nothing that can be read.
    """
    if mode not in ("r", "r+"):
        raise InvalidArgumentError(wrong_mode(mode))
    _check_durability(durability, ("disk", "process"))
    common = {
        "writable": mode == "r+",
        "cache_bytes": byte_count(cache, "cache"),
        "prefetch": prefetch_option(prefetch),
        "replicas": bool(replicas),
        "threads": threads,
        "profile": given_profile(profile),
    }
    local = {
        **common,
        "freshness": freshness or "read",
        "durability": durability,
        "direct_reads": direct_reads,
    }
    references = _snapshot_of(path) or references_of(path)
    paths = paths_of(path) if references is None else None
    if paths is None and references is None and concat_dim is not None:
        paths = [location(path)]
    if paths is not None:
        from bedform._archive import open_archive

        shown = shown_paths(path, paths)
        _refuse_storage_options(shown, storage_options)
        if allow_external:
            raise InvalidArgumentError(f"{shown}: allow_external is for one file, not for many")
        return _told(
            open_archive(
                paths,
                shown,
                local,
                concat_dim=concat_dim,
                compat=compat,
                map_time=map_time,
                progress=progress,
            )
        )
    where = location(path) if references is None else references
    if references is None and is_url(where):
        remote = {
            **common,
            "freshness": freshness or "open",
            "allow_external": external_roots(allow_external),
            **storage_options_of(storage_options),
        }
        return _told(_open_url(where, remote, allow_external=allow_external))
    if mode == "r" and isinstance(allow_external, bool) and not storage_options:
        file = _file_at(where, local, allow_external=allow_external, map_time=map_time)
        if file is not None:
            return _told(file)
    kind = _kind_of(where)
    found = references_in(where, kind)
    if found is not None or kind == "references":
        if mode != "r":
            raise ReadOnlyError(f"{where}: references are never written; mode 'r' reads them")
        external = external_roots(allow_external)
        reached = storage_options_of(storage_options)
        where = where if found is None else found(external)
        return _told(_root_of(_reopen(where, {**local, "allow_external": external, **reached})))
    _refuse_storage_options(where, storage_options)
    if kind == "missing":
        raise NotFoundError(missing_place(where))
    if kind in {"directory", "file"} and (known := other_place(where)) is not None:
        raise UnsupportedError(known)
    if not isinstance(allow_external, bool):
        raise InvalidArgumentError(
            f"{where}: allow_external is True or False, but for sets of references"
        )
    if kind not in {"zarr-v3", "zarr-v2", "directory"}:
        return _told(_open_foreign(where, local, allow_external=allow_external, map_time=map_time))
    return _told(_root_of(_reopen(where, local)))


def _told(opened: Any) -> Any:
    """What was opened, after a warning of what keeps sidecars from being read."""
    warn_of_sidecars(stacklevel=4)
    return opened


def _snapshot_of(given: Any) -> IcechunkSnapshot | None:
    """The snapshot that ``given`` is, if it is an object of Icechunk."""
    if type(given).__module__.partition(".")[0] != "icechunk":
        return None
    from bedform._icechunk import snapshot_of

    return snapshot_of(given)


def references_in(
    where: str, kind: str
) -> Callable[[bool | list[str]], ParquetReferences | IcechunkSnapshot] | None:
    """What gives the references in a directory of that kind, with what they may name elsewhere.

    Nothing for what the engine opens alone.
    """
    if kind == "directory" and _is_repository(where):
        from bedform._icechunk import newest_snapshot

        return partial(newest_snapshot, where)
    if kind == "zarr-v2" and is_parquet_references(where):
        return lambda _: ParquetReferences(where)
    return None


def _is_repository(where: str) -> bool:
    """Whether a directory is a repository of Icechunk, of its format 1 or 2."""
    has = (os.path.lexists(f"{where}/{name}") for name in ("snapshots", "refs", "repo"))
    return next(has) and any(has)


def references_at(where: str) -> Store | None:
    """The references in a directory, which the engine alone cannot open, for work of the engine."""
    if is_url(where):
        return None
    found = references_in(where, _kind_of(where))
    options = {"prefetch": False, "replicas": False, "records": False, "allow_external": False}
    return None if found is None else _reopen(found(False), options)


def _kind_of(where: str) -> str:
    """What the engine finds at a path of this machine, or is given as references."""
    if isinstance(where, References):
        return "references"
    _check_local(where)
    kind: str = engine_call(_internal.place_kind, where)(where)[0]
    return kind


def _root_of(store: Store) -> Store | Array:
    """The store, or the array that is all it has: that is what its path names."""
    return store.array("") if store._is_array() else store


def open_place(path: Any, mode: Literal["r", "r+"] = "r", **options: Any) -> Any:
    """As :func:`open`; of a single array the store that it is the root of."""
    opened = open(path, mode, **options)
    return opened._store if isinstance(opened, Array) else opened


def _open_url(where: str, options: dict[str, Any], *, allow_external: Any) -> Any:
    """The store or file at a URL, whichever the engine finds there."""
    from bedform._foreign_store import open_foreign

    store = _reopen(where, options)
    file = store._inner.file()
    if file is None:
        return _root_of(store)
    options = {name: value for name, value in options.items() if name != "allow_external"}
    return open_foreign(where, options, allow_external=bool(allow_external), opened=file)


def _file_at(
    where: str, options: dict[str, Any], *, allow_external: bool, map_time: float | str | None
) -> Any:
    """The foreign file at a path, if the engine reads it by itself: most do, and are read once."""
    from bedform._foreign_store import find_file, open_foreign

    if isinstance(where, References) or not Path(where).is_file():
        return None
    try:
        found = find_file(where, options, allow_external=allow_external)
    except UnsupportedError:
        return None
    if found is None:
        return None
    return open_foreign(
        where, options, allow_external=allow_external, map_time=map_time, opened=found
    )


def _open_foreign(
    where: str, options: dict[str, Any], *, allow_external: bool, map_time: float | str | None
) -> Any:
    from bedform._foreign_store import open_foreign

    if options["writable"]:
        raise ReadOnlyError(f"{foreign_is_read(where)}; mode 'r' reads it")
    return open_foreign(where, options, allow_external=allow_external, map_time=map_time)


def given_profile(profile: Any) -> dict[str, Any] | None:
    """The document of a profile, or of the one kept for a path that was given.

    Without it the engine takes the one that is kept for the place, and refines it.
    """
    if profile is None:
        return None
    if isinstance(profile, Profile):
        return profile.to_dict()
    kept = Profile.for_path(os.fspath(profile))
    return None if kept is None else kept.to_dict()


def _refuse_storage_options(where: str, given: Mapping[str, Any] | None) -> None:
    if given:
        raise InvalidArgumentError(f"{where}: storage_options are for the URLs of object stores")


def _check_local(path: str) -> None:
    if not path:
        raise InvalidArgumentError("the path is empty: give a store or file")
    if is_url(path):
        raise UnsupportedError(f"{path}: only files and directories of this machine can be opened")
