"""Opening and creating stores and foreign files by path or URL."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bedform import _internal, _json
from bedform._advise import Profile
from bedform._ahead import UNFOLLOWED, prefetch_option
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
    only_a_mesh,
    other_place,
    wrong_mode,
)
from bedform._integers import byte_count
from bedform._location import check_new_store, location
from bedform._mesh import RefinedMesh
from bedform._mesh_opening import mesh_in, open_mesh
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
        A missing or empty directory, whose parents are created; or the URL of a place in an object
        store: ``s3://bucket/path``, ``gs://`` or ``az://``.
    attributes
        Attributes of the root group.
    cache
        Bytes of decoded chunks and shard indexes to keep between reads; 0 disables the cache.
    durability
        The failure that a finished write survives: a power cut (``"disk"``) or the end of this
        process (``"process"``).
    storage_options
        As in :func:`open`.

    Raises
    ------
    ExistsError
        A store exists already, or the log of a deleted one.
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
    """Creates an empty store for ``target`` under a hidden name."""
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
        A Zarr v3 or v2 store or one of its arrays, a NetCDF or HDF5 file, or the URL of one:
        ``s3://bucket/path``, ``gs://``, ``az://``, ``http://`` and ``https://`` (read-only). ``~``
        and ``file://`` are expanded. Open files, stores of zarr-python and mappers of fsspec are
        opened by their path or URL. A list of NetCDF and HDF5 files, or a pattern such as
        ``"era5_*.nc"``, is opened as one store: see ``concat_dim``. A set of references is opened
        as a Zarr store: kerchunk's JSON, Parquet directory or dictionary, and a data set of
        VirtualiZarr. Icechunk is read from a read-only session, or from the directory of a
        repository, at the newest commit of its branch ``main``. A plotfile of AMReX is opened as
        a refined mesh.
    mode
        ``"r"`` to read, ``"r+"`` to read and write.
    concat_dim
        The dimension along which many files are joined. Variables with it have the elements of all
        files, in the order of the list; a pattern's files are sorted by their labels. Other
        variables come from the first file. The default is the one dimension that can grow, or else
        the one whose labels differ between the files.
    compat
        The checks of many files. ``"equals"`` compares coordinates of other dimensions, with a
        relative tolerance of 1e-6, and requires labels of the joined dimension that rise or fall
        throughout. It warns of other variables that differ. ``"override"`` compares nothing and
        takes the coordinates of the first file.
    cache
        Bytes of decoded chunks and shard indexes to keep between reads; 0 disables the cache.
    prefetch
        Bytes for readahead where reads follow a pattern, as a number or a text such as ``"64
        MiB"``; ``False`` disables it. ``"auto"`` is half of ``cache``, and follows reads of the
        main thread only; `BEDFORM_PREFETCH` can change that.
    replicas
        Whether reads use replicas (:func:`bedform.optimize`) where they are faster.
    freshness
        When to check for changes by other writers: before every ``"read"``, at ``"open"`` or
        ``"never"``. The default is ``"read"`` for a path and ``"open"`` for a URL. A handle without
        checks keeps the shape of its opening, and reads the fill value for rows that others have
        removed since.
    durability
        The failure that a finished write survives: a power cut (``"disk"``) or the end of this
        process (``"process"``).
    threads
        Number of threads that decode; one per core by default.
    profile
        The storage's parameters (:class:`bedform.Profile`), or a path or URL whose kept profile is
        used. The default is the kept profile of the storage, or else that of a local disk or an
        object store.
    allow_external
        Whether a foreign file may refer to other files, which are then read, too. For a set of
        references, the directories and URLs below which referenced files may lie, besides the
        directory of the set; ``True`` allows any.
    map_time
        The longest time for HDF5 to locate the data of a file, in seconds or as a text such as
        ``"5min"``. The default is `BEDFORM_MAP_TIME`, or else 20 seconds. It does not apply where a
        chunk map is kept.
    direct_reads
        Whether large reads of uncached data may bypass the page cache, on devices that are faster
        than the page cache is filled. Only the first read of a byte range bypasses it, the second
        does not. ``False`` keeps data in the page cache from the first read on, for this process
        and others.
    storage_options
        Options of an object store: ``anonymous`` (requests are not signed), ``endpoint`` (the URL
        of another server than the vendor's), ``region``, and ``single_writer`` (no other program
        writes: for servers without conditional writes). ``deadline_seconds`` limits the retries of
        a request, ``stall_seconds`` the wait for a silent server, and ``bytes_per_second_min`` is
        the lowest rate of a body. Credentials come from the environment, as with each vendor's
        tools, and are never pickled.
    progress
        Called with the files done and their total, when many files are opened for the first time.

    Returns
    -------
    Store, ForeignStore, Array or RefinedMesh
        An array if the path names an array rather than a group; a refined mesh for a plotfile and
        for a store of meshes. With mode ``"r+"`` such a store is opened as a :class:`Store`.

    Raises
    ------
    NotFoundError
        The path has nothing that can be read.
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
        **({"records": False} if prefetch is UNFOLLOWED else {}),
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
    if kind == "plotfile":
        if mode != "r":
            raise ReadOnlyError(f"{where}: plotfiles are never written; mode 'r' reads them")
        return _told(open_mesh(where, local))
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
    """Returns ``opened``, or the mesh in it, after a warning if sidecars cannot be read."""
    warn_of_sidecars(stacklevel=4)
    return mesh_in(opened)


def _snapshot_of(given: Any) -> IcechunkSnapshot | None:
    """Returns the snapshot of ``given`` if it is an object of Icechunk."""
    if type(given).__module__.partition(".")[0] != "icechunk":
        return None
    from bedform._icechunk import snapshot_of

    return snapshot_of(given)


def references_in(
    where: str, kind: str
) -> Callable[[bool | list[str]], ParquetReferences | IcechunkSnapshot] | None:
    """Returns a function that opens the references in a directory of that kind, else None.

    Its argument allows the places of referenced files, as ``allow_external`` does.
    """
    if kind == "directory" and _is_repository(where):
        from bedform._icechunk import newest_snapshot

        return partial(newest_snapshot, where)
    if kind == "zarr-v2" and is_parquet_references(where):
        return lambda _: ParquetReferences(where)
    return None


def _is_repository(where: str) -> bool:
    """Whether a directory is an Icechunk repository of format 1 or 2."""
    has = (os.path.lexists(f"{where}/{name}") for name in ("snapshots", "refs", "repo"))
    return next(has) and any(has)


def references_at(where: str) -> Store | None:
    """Opens references that the engine alone cannot, for work of the engine; None for others."""
    if is_url(where):
        return None
    found = references_in(where, _kind_of(where))
    options = {"prefetch": False, "replicas": False, "records": False, "allow_external": False}
    return None if found is None else _reopen(found(False), options)


def open_untold(where: str, kind: str) -> Any:
    """Opens the store or HDF5 file at a local path, without replicas, records and warnings.

    Returns None for a file that only h5py reads.
    """
    options = {"prefetch": False, "replicas": False, "records": False}
    if kind == "hdf5":
        return _file_at(where, options, allow_external=False, map_time=None)
    return _reopen(where, options)


def _kind_of(where: str) -> str:
    """Returns the kind of a local path, as the engine finds it, or of references."""
    if isinstance(where, References):
        return "references"
    _check_local(where)
    kind: str = engine_call(_internal.place_kind, where)(where)[0]
    return kind


def _root_of(store: Store) -> Store | Array:
    """Returns the store, or its root array if the path names a single array."""
    return store.array("") if store._is_array() else store


def open_place(path: Any, mode: Literal["r", "r+"] = "r", **options: Any) -> Any:
    """Opens as :func:`open` does, but returns the store of a single array."""
    opened = without_mesh(open(path, mode, **options))
    return opened._store if isinstance(opened, Array) else opened


def without_mesh(opened: Any) -> Any:
    """Returns what :func:`open` has returned, and for a mesh its store.

    Raises
    ------
    UnsupportedError
        It is a refined mesh outside of a store.
    """
    if isinstance(opened, RefinedMesh):
        if opened._store is not None:
            return opened._store
        raise UnsupportedError(only_a_mesh(opened.path))
    return opened


def _open_url(where: str, options: dict[str, Any], *, allow_external: Any) -> Any:
    """Opens the store or file at a URL."""
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
    """Opens the foreign file at a path if the engine reads it without h5py, as it does most."""
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
    """Returns the document of a profile, or of the one kept for a given path.

    With None the engine uses and refines the kept profile of the storage.
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
