"""Sets of references as repositories of Icechunk, written by its library."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np

from bedform._errors import IoError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bedform import _internal

#: References that Icechunk takes at a time; each is an object of Python meanwhile.
_AT_ONCE: Final = 100_000
_NS_PER_SECOND: Final = 1_000_000_000
_FILE: Final = "file://"


def write_repository(
    made: _internal.ReferenceSet,
    place: Path,
    target: str,
    storage_options: Mapping[str, Any],
) -> None:
    """Makes a repository with one commit on its branch ``main`` in an empty directory.

    ``target`` is its later name, for messages.

    Raises
    ------
    IoError
        Icechunk has refused some of it.
    UnsupportedError
        Icechunk reads no files of such a URL.
    """
    import icechunk

    try:
        _commit(icechunk, made, place, storage_options)
    except icechunk.IcechunkError as error:
        raise IoError(f"cannot write {target!r}: Icechunk has refused it: {error}") from error


def _commit(
    icechunk: Any,
    made: _internal.ReferenceSet,
    place: Path,
    storage_options: Mapping[str, Any],
) -> None:
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    files = made.files()
    config = icechunk.RepositoryConfig.default()
    for prefix in _containers([name for name, _ in files]):
        store = _container_store(icechunk, prefix, storage_options)
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    storage = icechunk.local_filesystem_storage(str(place))
    session = icechunk.Repository.create(storage, config=config).writable_session("main")
    buffer = default_buffer_prototype().buffer

    async def write(entries: Iterable[tuple[str, bytes]]) -> None:
        for key, value in entries:
            await session.store.set(key, buffer.from_bytes(value))

    sync(write((key, text.encode()) for key, text in made.documents(3)))
    changed = [_checksum(modified_ns) for _, modified_ns in files]
    for number, array in enumerate(json.loads(made.summary())["arrays"]):
        path, elements = array["path"], made.elements(number)
        if elements:
            first = "/".join([path, "c", *["0"] * len(array["shape"])])
            sync(write([(first, elements)]))
        for start in range(0, array["references"], _AT_ONCE):
            columns = made.indexed(number, start, min(start + _AT_ONCE, array["references"]))
            chunks = _virtual_chunks(icechunk, columns, files, changed)
            session.store.set_virtual_refs(path, chunks, validate_containers=False)
    session.commit("references to the chunks of files")


def _virtual_chunks(
    icechunk: Any,
    columns: tuple[bytes, bytes, bytes, bytes],
    files: list[tuple[str, int]],
    changed: list[datetime | None],
) -> list[Any]:
    indexes, numbers, offsets, lengths = columns
    at = np.frombuffer(numbers, "i4")
    rows = zip(
        np.frombuffer(indexes, "u4").reshape(len(at), -1).tolist(),
        at.tolist(),
        np.frombuffer(offsets, "i8").tolist(),
        np.frombuffer(lengths, "i8").tolist(),
        strict=True,
    )
    spec = icechunk.VirtualChunkSpec
    return [
        spec(place, files[file][0], offset, length, None, changed[file])
        for place, file, offset, length in rows
    ]


def _checksum(modified_ns: int) -> datetime | None:
    """Returns the time after which a change of a file is noticed.

    Icechunk compares it with the file's own time and keeps seconds, so that it is rounded up.
    """
    if modified_ns <= 0:
        return None
    return datetime.fromtimestamp(-(-modified_ns // _NS_PER_SECOND), UTC)


def _containers(names: list[str]) -> list[str]:
    """Returns the URLs of directories that hold all files, which Icechunk wants not encoded."""
    parents = {name.rpartition("/")[0] for name in names}
    by_place: dict[str, list[PurePosixPath]] = {}
    for parent in parents:
        scheme, _, rest = parent.partition("://")
        place, _, path = rest.partition("/")
        by_place.setdefault(f"{scheme}://{place}", []).append(PurePosixPath(f"/{path}"))
    found = []
    for place, directories in by_place.items():
        shared = os.path.commonpath(directories)
        # A container of everything on this machine would authorise everything.
        is_root = place == _FILE and shared == "/"
        tops = {f"/{path.parts[1]}" if len(path.parts) > 1 else "/" for path in directories}
        inside = sorted(tops) if is_root else [shared]
        found += [unquote(f"{place}{path.rstrip('/')}/") for path in inside]
    return found


def _container_store(icechunk: Any, prefix: str, storage_options: Mapping[str, Any]) -> Any:
    """Returns how Icechunk reaches the files below ``prefix``."""
    scheme = prefix.partition("://")[0]
    endpoint = storage_options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL")
    region = storage_options.get("region") or os.environ.get("AWS_REGION")
    match scheme:
        case "file":
            return icechunk.local_filesystem_store(prefix.removeprefix(_FILE))
        case "s3":
            return icechunk.s3_store(
                region=region,
                endpoint_url=endpoint,
                allow_http=bool(endpoint and endpoint.startswith("http:")),
                anonymous=bool(storage_options.get("anonymous")),
                force_path_style=endpoint is not None,
            )
        case "gs":
            return icechunk.gcs_store()
        case "http" | "https":
            return icechunk.http_store()
    raise UnsupportedError(f"{prefix}: Icechunk reads no virtual chunks from {scheme}://")
