"""Error messages with remedies for frequent mistakes."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedform._shown import shell_path

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES_MAX = 12
_SHORT_NAME = 4


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Returns ``": did you mean 't'?"``, or an empty text without a similar name."""
    near = near_names(name, names)
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""


def near_names(name: object, names: Iterable[str]) -> list[str]:
    """Returns similar names: with a typing error, another case, or in a group below."""
    wanted = str(name)
    known = [one for one in names if one != wanted]
    last = wanted.strip("/").rpartition("/")[2]
    exact = [one for one in known if one.rpartition("/")[2].lower() == last.lower()]
    by_case = {one.lower(): one for one in reversed(known)}
    # One wrong letter of three is a third of the name.
    cutoff = 0.65 if len(wanted) <= _SHORT_NAME else 0.7
    close = difflib.get_close_matches(wanted.lower(), by_case, n=2, cutoff=cutoff)
    return list(dict.fromkeys([*exact, *(by_case[one] for one in close)]))[:2]


def unknown_member(name: str, where: str, members: Iterable[str], below: Iterable[str]) -> str:
    """Returns the message for a name that a group lacks."""
    there = sorted(members)
    known = ", ".join(there[:_NAMES_MAX]) + (", ..." if len(there) > _NAMES_MAX else "")
    meant = did_you_mean(name, below)
    return f"no array or group {name!r} in {where}{meant or ':'} it has {known or 'nothing'}"


def foreign_is_read(where: str) -> str:
    """Returns the message for an attempt to change a foreign file."""
    stem = where.rpartition(".")[0] or where
    return (
        f"{where}: foreign files are never written; convert it with 'bedform convert', as in "
        f"bf.convert({where!r}, {stem + '.zarr'!r}), and write to the store"
    )


# Places -------------------------------------------------------------------------------------------

_JOINED = "bf.open({}) joins them along a dimension"
_FILES = (".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".he5", ".hdf")


def many_places(given: Any, what: str) -> str:
    """Returns the message for a list of files in a call that opens one."""
    if isinstance(given, dict):
        return f"{what} must be a path or URL, not a dictionary: stores in memory have none"
    return (
        f"{what} must be one path or URL, not {len(given)} in a {type(given).__name__}: "
        + _JOINED.format("paths")
    )


def no_place(given: Any, what: str) -> str:
    """Returns the message for an object without a path."""
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    library = kind.partition(".")[0]
    if library == "xarray":
        return (
            f"{what} must be a path or URL, not a {kind}: dataset.bedform.write(path) writes one, "
            "xr.open_dataset(path, engine='bedform') opens one"
        )
    if library == "icechunk":
        return f"{what} must be a path or URL, not a {kind}: bf.open reads read-only sessions"
    if hasattr(given, "read"):
        return f"{what} must be a path or URL, and this {kind} has none: write it to a file first"
    if hasattr(given, "fs") or library in ("zarr", "fsspec"):
        return (
            f"{what} must be a path or URL, and this {kind} has none that Bedform reads: give a "
            "directory, or an s3://, gs://, az:// or https:// URL"
        )
    return f"{what} must be a path or URL, not {given!r:.100}"


def missing_place(where: str) -> str:
    """Returns the message for a path that does not exist."""
    near = near_paths(where)
    hint = f"did you mean {' or '.join(map(shell_path, near))}?" if near else "check the path"
    return f"{where}: no such file or store; {hint}"


def near_paths(where: str) -> list[str]:
    """Returns existing paths beside a missing one with similar names."""
    parent = Path(where).absolute().parent
    try:
        # Hidden names are temporary; no user means them.
        names = [entry.name for entry in parent.iterdir() if entry.name[0] != "."]
    except OSError:
        return []
    found = near_names(Path(where).name, sorted(names))
    return [str(Path(where).with_name(name)) for name in found]


def other_place(where: str) -> str | None:
    """Returns the message for a recognized place that cannot be opened; else None."""
    path = Path(where)
    try:
        if not path.is_dir():
            return _archive(where, path)
        names = sorted(entry.name for entry in path.iterdir())
    except OSError:
        return None
    if "Header" in names and _is_checkpoint(path / "Header"):
        return (
            f"{where} is a checkpoint of AMReX, which Bedform does not read: open a plotfile, "
            "which the simulation writes as plt*"
        )
    files = [name for name in names if name.lower().endswith(_FILES)]
    if files:
        pattern = f"{where.rstrip('/')}/*{Path(files[0]).suffix}"
        return (
            f"{where} is a directory with {len(files)} NetCDF or HDF5 files, not a store: open one "
            f"of them, or all: {_JOINED.format(repr(pattern))}"
        )
    stores = [name for name in names if (path / name / "zarr.json").exists()]
    if stores:
        return (
            f"{where} is a directory of stores, not a store: open {where.rstrip('/')}/{stores[0]}"
        )
    return None


def _is_checkpoint(header: Path) -> bool:
    """Whether a header is that of a checkpoint of AMReX."""
    with contextlib.suppress(OSError), header.open("rb") as file:
        return b"checkpoint" in file.readline(80).lower()
    return False


def only_a_mesh(where: str) -> str:
    """Returns the message for a refined mesh where a store or file is expected."""
    return (
        f"{where} is a plotfile, a refined mesh: bf.open reads it, 'bedform convert' makes a store "
        "of it; this works with stores and with NetCDF and HDF5 files"
    )


def mesh_is_a_tree(where: str) -> str:
    """Returns the message for a refined mesh where xarray expects one data set."""
    return (
        f"{where} is a refined mesh, not one data set: xr.open_datatree({where!r}, "
        "engine='bedform'), without group, has a node for each level"
    )


def virtual_variable(name: str) -> str:
    """Returns the message for a variable of VirtualiZarr, which has references for elements."""
    return (
        f"{name!r} is virtual, it names parts of files: write the data set that "
        "xr.open_mfdataset(paths, engine='bedform') gives, or convert the files with bf.convert"
    )


def _archive(where: str, path: Path) -> str | None:
    if path.suffix == ".zip":
        return f"{where}: stores in ZIP files are not read; unpack it and open the directory"
    return None


def file_as_store(where: str, call: str, source: str | None = None) -> str | None:
    """Returns the message for a new store with the name of a file; else None."""
    if not where.lower().endswith(_FILES):
        return None
    stem = where.rpartition(".")[0]
    if source is None:
        return (
            f"{where}: {call} makes a Zarr store, which is a directory: choose a name such as "
            f"{stem}.zarr; store.export({where!r}) writes a file then"
        )
    if source.lower().endswith(_FILES):
        return (
            f"{where}: {call} makes Zarr stores, not files: convert to {stem}.zarr, and then "
            f"bf.open('{stem}.zarr').export({where!r})"
        )
    return f"{where}: {call} makes Zarr stores, not files: bf.open({source!r}).export({where!r})"


def wrong_mode(mode: object) -> str:
    """Returns the message for a mode of other libraries."""
    remedy = {
        "w": "bf.create(path) makes a store where there is none",
        "w-": "bf.create(path) makes a store",
        "x": "bf.create(path) makes a store",
        "a": "'r+' reads and writes, bf.create(path) makes a store",
    }.get(str(mode), "bf.create(path) makes stores")
    return f"mode must be 'r' or 'r+', not {mode!r}; {remedy}"


# Brackets -----------------------------------------------------------------------------------------


def label_in_brackets(array: Any, key: Any) -> str | None:
    """Returns the message for a date, name or coordinate in brackets; else None."""
    entries = key if isinstance(key, tuple) else (key,)
    at = next((at for at, entry in enumerate(entries) if _is_label(entry)), None)
    if at is None:
        return None
    if isinstance(key, str) and key in array.attributes:
        return f"[] takes positions: the attribute is {array.path}.attributes[{key!r}]"
    dims = array.dims
    dim = dims[at] if at < len(dims) else "dim"
    label = entries[at]
    chosen = label if isinstance(label, dict) else {dim: _plain_label(label)}
    words = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    where = array._where()
    path = where.removesuffix(f"/{array.path}") if array.path else where
    name = array.name or name_of_place(where)
    return (
        f"{array.path or name}[] takes positions, not {_plain_label(label)!r}: xarray looks up "
        f"dates and coordinates: xr.open_dataset({path!r}, engine='bedform')[{name!r}].sel({words})"
    )


def name_of_place(where: str) -> str:
    """Returns the name of an array that is a whole store: the store's, without the suffix."""
    return where.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr") or "array"


def _plain_label(label: Any) -> Any:
    if isinstance(label, slice):
        parts = (label.start, label.stop, label.step)
        start, stop, step = (_plain_label(part) for part in parts)
        return slice(start, stop) if step is None else slice(start, stop, step)
    return str(label) if hasattr(label, "isoformat") or hasattr(label, "dtype") else label


def _is_label(entry: Any) -> bool:
    if isinstance(entry, slice):
        return any(_is_label(part) for part in (entry.start, entry.stop))
    is_time = getattr(getattr(entry, "dtype", None), "kind", "") in ("M", "m", "U")
    return isinstance(entry, (str, dict)) or hasattr(entry, "isoformat") or is_time
