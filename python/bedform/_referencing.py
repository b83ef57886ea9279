"""The function ``references``: sets of references to the chunks of files, for other libraries.

The engine finds the chunks and writes kerchunk's JSON: see its module ``referencing``. pyarrow
writes Parquet, and icechunk its repositories.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import numpy as np

from . import _internal, _json, _shown
from ._errors import (
    ExistsError,
    InvalidArgumentError,
    UnsupportedError,
    engine_call,
)
from ._foreign_store import ForeignStore
from ._integers import byte_count
from ._left_out import LeftOutWarning, said_by_caller
from ._location import location
from ._opening import open_place, references_in
from ._paths import paths_of, shown_paths
from ._remote import is_url, without_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Progress = Callable[[int, int], object]

Form = Literal["json", "parquet", "icechunk"]

FORMS: Final = ("json", "parquet", "icechunk")
#: The form of a target by its suffix.
_SUFFIXES: Final[dict[str, Form]] = {
    ".json": "json",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".icechunk": "icechunk",
    "": "icechunk",
}
#: Variables of at most so many bytes are stored in the set.
INLINE: Final = "16 KiB"
#: Rows of one Parquet file, as kerchunk writes them.
_RECORD_SIZE: Final = 100_000
_NS_PER_SECOND: Final = 1_000_000_000
_FILE: Final = "file://"


@dataclass(frozen=True)
class ReferencedArray:
    """One array of a set of references."""

    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    #: Number of chunks that refer to files.
    references: int
    #: Bytes of elements that the set itself stores.
    stored_bytes: int


@dataclass(frozen=True)
class MadeReferences:
    """Result of :func:`references`."""

    target: str
    form: Form
    files: int
    arrays: tuple[ReferencedArray, ...]
    #: Variables and attributes that the set lacks, with the reasons.
    left_out: dict[str, str]

    @property
    def references(self) -> int:
        """The number of chunks that refer to files."""
        return sum(array.references for array in self.arrays)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "references": self.references}


def references(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    to: str | os.PathLike[str],
    *,
    form: Form | None = None,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
    names: str = "absolute",
    inline: int | str = INLINE,
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> MadeReferences:
    """Make references to the chunks of NetCDF and HDF5 files, for any reader of Zarr.

    The files stay as they are, and no element is copied but those of small variables. Many files
    become one store, joined as :func:`bedform.open` joins them. Readers are fsspec and kerchunk,
    VirtualiZarr, Icechunk, xarray and Bedform. The set appears under its name when it is complete.

    Parameters
    ----------
    paths
        A file, a URL, a list of files, or a pattern such as ``"era5/*.nc"``.
    to
        The set: ``.json`` is kerchunk's JSON, ``.parquet`` and ``.parq`` a directory of kerchunk's
        Parquet files (needs pyarrow). ``.icechunk``, or a path without suffix, is the directory of
        a new Icechunk repository (needs icechunk).
    form
        ``"json"``, ``"parquet"`` or ``"icechunk"``, whatever the suffix of ``to``.
    concat_dim, compat
        As in :func:`bedform.open`.
    names
        The names of the files in the set: ``"absolute"`` paths, paths ``"relative"`` to the
        directory of the set, or a URL such as ``"s3://bucket/era5"`` below which the files are or
        will be. URLs of files stay as they are.
    inline
        Bytes of a variable, of all files together, up to which its elements are stored in the set.
        So is the coordinate of the joined dimension, which readers look at first. With 0 only
        those are that references cannot express, such as converted times.
    exclude
        Paths of variables to leave out.
    overwrite
        Replace a file, or a set of references, of that name.
    storage_options
        As in :func:`bedform.open`, for a file at a URL.
    progress
        Called with the files done and their total, first for opening the files, then for finding
        their chunks.

    Raises
    ------
    ExistsError
        The target exists.
    InvalidArgumentError
        A variable above 16 MiB has other chunks or filters in one of the files, or a length along
        the joined dimension that is no multiple of its chunks. The message names the file. Or the
        files do not fit together.
    UnsupportedError
        The source is no NetCDF or HDF5 file, or a library is missing.

    Warns
    -----
    LeftOutWarning
        A variable has no references: text of any length, and elements or filters that only HDF5
        reads.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile, xarray as xr
    >>> place = tempfile.mkdtemp()
    >>> for day in (0, 1):
    ...     part = xr.Dataset({"t": (("time", "x"), np.full((3, 4), float(day)))})
    ...     part.to_netcdf(f"{place}/day{day}.nc", unlimited_dims=["time"])
    >>> made = bf.references(f"{place}/day*.nc", f"{place}/refs.json", inline=0)
    >>> made.files, made.references
    (2, 6)
    >>> bf.open(f"{place}/refs.json")["t"][:, 0]
    array([0., 0., 0., 1., 1., 1.])
    """
    target = location(to, "to")
    if is_url(target):
        raise UnsupportedError(f"{target}: references are written to a path: copy them from there")
    chosen = _form_of(target, form)
    _check_target(target, chosen, overwrite)
    _check_library(chosen)
    options = {
        "form": "icechunk" if chosen == "icechunk" else "kerchunk",
        "inline_bytes": byte_count(inline, "inline"),
        "exclude": _names_of(exclude),
        "names": _file_names(names, target, chosen),
    }
    many = paths_of(paths, "paths")
    name = location(paths, "paths") if many is None else shown_paths(paths, many)
    given: dict[str, Any] = {"concat_dim": concat_dim, "compat": compat, "progress": progress}
    with (
        said_by_caller(),
        open_place(many or name, **given, storage_options=storage_options) as opened,
    ):
        if not isinstance(opened, ForeignStore):
            raise UnsupportedError(
                f"{without_query(name)}: references are made to NetCDF and HDF5 files"
            )
        if many is None and concat_dim is None:
            options["source"] = name if is_url(name) else str(Path(name).absolute())
        made = engine_call(_internal.ReferenceSet)(opened._inner, _json.dump(options), progress)
        _refuse_sources(target, made)
        match chosen:
            case "json":
                engine_call(made.publish_kerchunk)(target, overwrite)
            case "parquet":
                _publish(target, overwrite, lambda place: _write_parquet(made, place))
            case "icechunk":
                reached = dict(storage_options or {})
                _publish(target, overwrite, lambda place: _write_icechunk(made, place, reached))
    left_out = dict(made.left_out())
    for path, reason in left_out.items():
        warnings.warn(
            _shown.line(f"{target}: left out: {path!r}: {reason}"), LeftOutWarning, stacklevel=2
        )
    return _summary(target, chosen, made, left_out)


def _summary(
    target: str, form: Form, made: _internal.ReferenceSet, left_out: dict[str, str]
) -> MadeReferences:
    facts = json.loads(made.summary())
    arrays = [
        ReferencedArray(
            array["path"],
            tuple(array["shape"]),
            tuple(array["chunks"]),
            array["dtype"],
            array["references"],
            array["stored_bytes"],
        )
        for array in facts["arrays"]
    ]
    return MadeReferences(target, form, facts["files"], tuple(arrays), left_out)


def _form_of(target: str, form: Any) -> Form:
    if form is None:
        suffix = Path(target).suffix.lower()
        if suffix not in _SUFFIXES:
            known = ", ".join(filter(None, _SUFFIXES))
            raise InvalidArgumentError(
                f"{target!r}: the suffix says which form: {known}; or name one of "
                f"{', '.join(FORMS)} (form=, --as)"
            )
        return _SUFFIXES[suffix]
    if form not in FORMS:
        raise InvalidArgumentError(f"form is one of {', '.join(FORMS)}, not {form!r}")
    chosen: Form = form
    return chosen


def _names_of(exclude: Any) -> list[str]:
    if isinstance(exclude, str) or not isinstance(exclude, Sequence):
        raise InvalidArgumentError(f"exclude must be a list of variables, not {exclude!r}")
    return [str(name).strip("/") for name in exclude]


def _file_names(names: Any, target: str, form: Form) -> Any:
    """Returns how files are named in the set, for the engine."""
    if names == "absolute":
        return names
    if names == "relative":
        if form == "icechunk":
            raise InvalidArgumentError(
                "Icechunk names files by absolute paths and URLs: names is 'absolute' or a URL"
            )
        above = Path(target).absolute().parent
        # Readers start at the directory of JSON, and at the directory that holds the Parquet one.
        return {"relative_to": str(above.resolve())}
    if isinstance(names, str) and is_url(names):
        return {"below": without_query(names)}
    raise InvalidArgumentError(f"names is 'absolute', 'relative' or a URL, not {names!r}")


def _check_target(target: str, form: Form, overwrite: bool) -> None:
    """Fails for a target that may not be replaced, before any work."""
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise ExistsError(f"{target!r} exists: choose another name, or overwrite it")
    is_one = Path(target).is_file() if form == "json" else _is_set(target)
    if not is_one:
        what = "a file" if form == "json" else "a directory of references"
        raise ExistsError(f"{target!r} exists and is not {what}: choose another name")


def _is_set(target: str) -> bool:
    """Whether a directory is empty or a set of references, which may be replaced."""
    if not Path(target).is_dir() or Path(target).is_symlink():
        return False
    if not any(Path(target).iterdir()):
        return True
    kind = engine_call(_internal.place_kind)(target)[0]
    return references_in(target, kind) is not None


def _refuse_sources(target: str, made: _internal.ReferenceSet) -> None:
    """Fails for a target that is one of the files."""
    if not Path(target).is_file():
        return
    if any(Path(name).is_file() and Path(name).samefile(target) for name, _ in made.files()):
        raise InvalidArgumentError(f"{target!r} is one of the files: choose another target")


def _check_library(form: Form) -> None:
    try:
        if form == "parquet":
            import pyarrow.parquet  # noqa: F401
        elif form == "icechunk":
            import icechunk  # noqa: F401
    except ImportError:
        library = "pyarrow" if form == "parquet" else "icechunk"
        what = "references in Parquet" if form == "parquet" else "repositories of Icechunk"
        raise UnsupportedError(
            f"{what} are written by the package {library}: pip install {library}"
        ) from None


def _publish(target: str, overwrite: bool, write: Callable[[Path], None]) -> None:
    """Lets ``write`` fill a directory, which then appears as ``target``."""
    staged = engine_call(_internal.StagedDirectory)(target, overwrite)
    try:
        place = Path(staged.path)
        place.mkdir()
        write(place)
        engine_call(staged.publish)()
    finally:
        staged.discard()


def _write_parquet(made: _internal.ReferenceSet, place: Path) -> None:
    """Writes the tables that fsspec's ``LazyReferenceMapper`` reads."""
    from pyarrow import parquet

    documents = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in made.documents(2))
    index = f'{{"metadata": {{{documents}}}, "record_size": {_RECORD_SIZE}}}'
    (place / ".zmetadata").write_text(index, encoding="utf-8")
    names = [name for name, _ in made.files()]
    for number, (path, count, stored) in enumerate(made.arrays()):
        directory = place / path
        directory.mkdir(parents=True, exist_ok=True)
        for first in range(0, count, _RECORD_SIZE):
            rows = (first, min(first + _RECORD_SIZE, count))
            table = (
                _stored_table(stored) if stored is not None else _table(made, number, rows, names)
            )
            file = directory / f"refs.{first // _RECORD_SIZE}.parq"
            parquet.write_table(table, file, compression="zstd")


def _stored_table(stored: bytes) -> Any:
    """Returns the table of an array whose one chunk is stored in it."""
    import pyarrow as pa

    return pa.table({"raw": pa.array([stored], pa.binary())})


def _table(
    made: _internal.ReferenceSet, number: int, rows: tuple[int, int], names: list[str]
) -> Any:
    """Returns the table of some chunks of an array; a chunk that is not stored has no path."""
    import pyarrow as pa

    _, files, offsets, lengths = made.columns(number, rows)
    at = np.frombuffer(files, "i4")
    paths = pa.DictionaryArray.from_arrays(pa.array(at, mask=at < 0), pa.array(names, pa.string()))
    # fastparquet returns numbers that may be missing as floats: statistics say that none is.
    numbers = [pa.field(name, pa.int64(), nullable=False) for name in ("offset", "size")]
    return pa.table(
        [paths.cast(pa.string()), np.frombuffer(offsets, "i8"), np.frombuffer(lengths, "i8")],
        schema=pa.schema([pa.field("path", pa.string()), *numbers]),
    )


def _write_icechunk(
    made: _internal.ReferenceSet, place: Path, storage_options: Mapping[str, Any]
) -> None:
    """Makes a repository with one commit on its branch ``main``."""
    import icechunk
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
    ranks = [len(array["shape"]) for array in json.loads(made.summary())["arrays"]]
    for number, (path, _, stored) in enumerate(made.arrays()):
        if stored is None:
            chunks = _virtual_chunks(icechunk, made.columns(number), files, changed)
            session.store.set_virtual_refs(path, chunks, validate_containers=False)
        elif stored:
            sync(write([("/".join([path, "c", *["0"] * ranks[number]]), stored)]))
    session.commit("references to the chunks of files")


def _virtual_chunks(
    icechunk: Any,
    columns: tuple[bytes, bytes, bytes, bytes],
    files: list[tuple[str, int]],
    changed: list[datetime | None],
) -> list[Any]:
    indexes, numbers, offsets, lengths = columns
    at = np.frombuffer(numbers, "i4")
    places = np.frombuffer(indexes, "u4").reshape(len(at), -1 if len(at) else 0).tolist()
    rows = zip(
        places,
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
