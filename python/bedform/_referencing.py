"""The function ``references``: sets of references to the chunks of files, for other libraries.

The engine finds the chunks and writes kerchunk's JSON: see its module ``referencing``. Libraries
write the other forms: see ``_reference_tables`` and ``_reference_repository``.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from bedform import _internal, _json, _shown
from bedform._errors import (
    BedformError,
    ExistsError,
    InvalidArgumentError,
    UnsupportedError,
    engine_call,
    write_failure,
)
from bedform._foreign_store import ForeignStore
from bedform._integers import byte_count
from bedform._left_out import LeftOutWarning, said_by_caller
from bedform._location import location
from bedform._opening import open_place, references_in
from bedform._paths import paths_of, shown_paths
from bedform._reference_repository import write_repository
from bedform._reference_tables import write_tables
from bedform._remote import is_url, without_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        So is the coordinate of the joined dimension, which readers look at first. At most 16 MiB.
        With 0 only those are that references cannot express, such as converted times.
    exclude
        Paths of variables to leave out.
    overwrite
        Replace a set of references, of any form, or an empty directory of that name.
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
        The source is no NetCDF or HDF5 file, none of its variables can have references, or a
        library is missing.

    Warns
    -----
    LeftOutWarning
        A variable has no references: text of any length, and elements or filters that only HDF5
        reads. Or readers of kerchunk's sets will mask a fill value that the file does not mask.

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
    chosen = form_of(target, form)
    _check_target(target, overwrite=overwrite)
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
        _write(made, target, chosen, overwrite=overwrite, storage_options=storage_options)
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


def form_of(target: str, form: Any) -> Form:
    """Returns the form of a set: the given one, or that of the target's suffix.

    Raises
    ------
    InvalidArgumentError
        There is no such form, or none with that suffix.
    """
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


def _check_target(target: str, *, overwrite: bool) -> None:
    """Fails for a target that may not be replaced, before any work."""
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise ExistsError(f"{target!r} exists: choose another name, or overwrite it")
    if not _is_replaceable(target):
        raise ExistsError(f"{target!r} exists and is no set of references: choose another name")


def _is_replaceable(target: str) -> bool:
    """Whether an entry is a set of references, or an empty directory."""
    place = Path(target)
    if place.is_symlink() or not place.exists():
        return False
    if place.is_dir() and not any(place.iterdir()):
        return True
    kind = engine_call(_internal.place_kind)(target)[0]
    return kind == "references" or references_in(target, kind) is not None


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


def _write(
    made: _internal.ReferenceSet,
    target: str,
    form: Form,
    *,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Writes a set, which appears under its name when it is complete."""
    match form:
        case "json":
            engine_call(made.publish_kerchunk)(target, overwrite)
        case "parquet":
            _publish(target, overwrite, lambda place: write_tables(made, place))
        case "icechunk":
            reached = dict(storage_options or {})
            _publish(
                target, overwrite, lambda place: write_repository(made, place, target, reached)
            )


def _publish(target: str, overwrite: bool, write: Callable[[Path], None]) -> None:
    """Lets ``write`` fill a directory, which then appears as ``target``."""
    staged = engine_call(_internal.StagedDirectory)(target, overwrite)
    try:
        place = Path(staged.path)
        place.mkdir()
        write(place)
        engine_call(staged.publish)()
    except BedformError:
        raise
    except OSError as error:
        raise write_failure(Path(target), error) from error
    finally:
        staged.discard()
