"""Traversal of an HDF5 file that never leaves the file unasked.

HDF5 follows links into other files, and reads external storage, by default. This module inspects
every link before it follows it. It refuses links to other files unless the caller allows them for
this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import h5py

from bedform._foreign_names import ForeignFileError, display_name, name_text
from bedform._limits import limit_met

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Member",
    "Refusal",
    "is_variable",
    "members",
    "open_path",
    "outside_storage",
    "refuse_outside",
]

#: Prefix of the netCDF library for a variable with the name of a dimension that is not its
#: coordinate.
NON_COORDINATE: Final = "_nc4_non_coord_"
_SOFT_LINKS_MAX: Final = 16
_NOT_A_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True)
class Refusal:
    """The reason why a member is not shown."""

    reason: str


Member: TypeAlias = h5py.Group | h5py.Dataset | h5py.Datatype | Refusal


def members(group: h5py.Group, *, allow_external: bool) -> Iterator[tuple[str, Member]]:
    """Iterates over the members of a group with their names, in the order of the file."""
    for name in map(name_text, group):
        yield name, open_member(group, name, allow_external=allow_external)


def open_member(
    group: h5py.Group, name: str, *, allow_external: bool, links_left: int = _SOFT_LINKS_MAX
) -> Member:
    """Returns the member of this name, or a refusal. Follows no link to another file.

    It inspects links by the low-level API: `name in group` would already follow them.
    """
    encoded = name.encode("utf-8", "surrogateescape")
    kind = group.id.links.get_info(encoded).type
    if kind == h5py.h5l.TYPE_HARD:
        return group[encoded]
    if kind == h5py.h5l.TYPE_SOFT:
        if not links_left:
            return Refusal("more than 16 soft links, one behind another")
        path = group.id.links.get_val(encoded).decode("utf-8", "surrogateescape")
        return _follow(group, path, allow_external=allow_external, links_left=links_left - 1)
    if kind != h5py.h5l.TYPE_EXTERNAL:
        return Refusal("a kind of link that is not known")
    other = group.id.links.get_val(encoded)[0].decode("utf-8", "replace")
    if not allow_external:
        return Refusal(
            f"an external link to {other!r}, named inside the file, is refused; "
            "open that file itself, or allow external files"
        )
    try:
        target = group[encoded]
    except (KeyError, OSError) as error:
        if limit_met(error):
            raise
        return Refusal(f"an external link to {other!r}, where no such array can be opened")
    if isinstance(target, h5py.Dataset):
        return target
    return Refusal(f"an external link to something other than an array in {other!r}")


def _follow(group: h5py.Group, path: str, *, allow_external: bool, links_left: int) -> Member:
    """Resolves a soft link, with a check of each step of its path."""
    found: Member = group.file["/"] if path.startswith("/") else group
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if isinstance(found, Refusal):
            return found
        if not isinstance(found, h5py.Group) or not _has(found, name):
            return Refusal(f"a soft link to {path!r}, which does not exist")
        found = open_member(found, name, allow_external=allow_external, links_left=links_left)
    return found


def _has(group: h5py.Group, name: str) -> bool:
    return bool(group.id.links.exists(name.encode("utf-8", "surrogateescape")))


def is_variable(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a variable, and not merely a dimension."""
    name = dataset.attrs.get("NAME") if h5py.h5ds.is_scale(dataset.id) else None
    return not (isinstance(name, bytes) and name.startswith(_NOT_A_VARIABLE))


def outside_storage(dataset: h5py.Dataset) -> str | None:
    """Returns the other files of a dataset's storage as the end of a sentence; None if none.

    It reads only the creation properties: the shape of a virtual dataset would open its sources.
    """
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        return "a virtual dataset over other files"
    if properties.get_external_count():
        return "external storage"
    return None


def refuse_outside(dataset: h5py.Dataset, *, allow_external: bool) -> Refusal | None:
    """Returns the refusal of a dataset with storage in other files, if any."""
    outside = outside_storage(dataset)
    if outside is None or allow_external:
        return None
    return Refusal(f"{outside} named inside the file is refused; allow external files to read it")


def open_path(file: h5py.File, path: str, *, allow_external: bool) -> h5py.Dataset:
    """Returns the dataset at a path of the map.

    Raises
    ------
    ForeignFileError
        The path does not exist, is not a dataset, or leads to another file.
    """
    found: Member = file["/"]
    for segment in path.split("/"):
        name = None
        if isinstance(found, h5py.Group):
            name = _stored_name(found, segment, allow_external=allow_external)
        if name is None or not isinstance(found, h5py.Group):
            message = f"{file.filename}: it has no variable {path!r}"
            raise ForeignFileError(message, "NotFound")
        found = open_member(found, name, allow_external=allow_external)
    if isinstance(found, h5py.Dataset):
        found = refuse_outside(found, allow_external=allow_external) or found
    if isinstance(found, Refusal):
        message = f"{file.filename}: {path!r}: {found.reason}"
        raise ForeignFileError(message, "PermissionDenied")
    if not isinstance(found, h5py.Dataset):
        message = f"{file.filename}: {path!r} is not an array"
        raise ForeignFileError(message, "InvalidArgument")
    return found


def _stored_name(group: h5py.Group, segment: str, *, allow_external: bool) -> str | None:
    """Returns the name in the file of the member that the map shows as `segment`.

    The same name takes precedence, unless it is merely a dimension; else the first member that is
    shown under `segment`.
    """
    other = NON_COORDINATE + segment
    if _has(group, segment) and display_name(segment) == segment:
        if not _has(group, other):
            return segment
        member = open_member(group, segment, allow_external=allow_external)
        if isinstance(member, h5py.Group) or (
            isinstance(member, h5py.Dataset) and is_variable(member)
        ):
            return segment
    if "%" not in segment:
        return other if _has(group, other) else None
    shown = (
        name
        for name in map(name_text, group)
        if display_name(name.removeprefix(NON_COORDINATE)) == segment
        or display_name(name) == segment
    )
    return next(shown, None)
