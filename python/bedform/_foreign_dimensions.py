"""Dimension names in HDF5 files, determined as in the netCDF library.

A dimension is a dataset marked as a scale, and variables refer to their dimensions. Axes without a
reference get made-up names: `phony_dim_N`, counted over the whole file, inner groups first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h5py

from bedform._foreign_names import display_name
from bedform._foreign_walk import NON_COORDINATE

__all__ = [
    "MappedGroup",
    "MappedVariable",
    "name_dimensions",
    "refuse_names_alike",
    "scale_dimension",
]


@dataclass
class MappedVariable:
    """A dataset and its properties for the chunk map."""

    path: str
    dataset: h5py.Dataset
    #: Shape in NetCDF's view: along a growing dimension, the dimension's length.
    shape: tuple[int, ...]
    elsewhere: bool
    #: Name in the file.
    name: str
    dimension_names: list[str] = field(default_factory=list)
    unlabeled: bool = False


@dataclass
class MappedGroup:
    """A group and its properties for the chunk map."""

    path: str
    stored: h5py.Group
    #: Name in the file.
    name: str
    attributes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dimensions: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    variables: list[MappedVariable] = field(default_factory=list)
    groups: list[MappedGroup] = field(default_factory=list)

    def refuse(self, name: str, reason: str) -> None:
        """Lists a member with this name in the file as refused."""
        shown = name.encode("utf-8", "replace").decode()
        self.refused.append({"name": shown, "reason": reason})

    def refuse_attributes(self, owner: str, refused: list[tuple[str, str]]) -> None:
        """Lists attributes of a variable with this name, or of the group itself, as refused."""
        for name, reason in refused:
            self.refused.append({"name": f"{owner}:{name}", "reason": reason})


def scale_dimension(dataset: h5py.Dataset, name: str) -> dict[str, Any] | None:
    """Returns the dimension of a dataset that is a scale; None for others."""
    if not h5py.h5ds.is_scale(dataset.id) or not dataset.shape:
        return None
    dimension = {
        "name": name,
        "size": dataset.shape[0],
        "unlimited": dataset.maxshape[0] is None,
        "phony": False,
    }
    identity = dataset.attrs.get("_Netcdf4Dimid")
    if identity is not None:
        dimension["id"] = int(identity)
    return dimension


class _Namer:
    def __init__(self, file: h5py.File, scales: dict[tuple[int, int], dict[str, Any]]) -> None:
        self.file = file
        self.scales = scales
        self.by_id: dict[int, dict[str, Any]] = {}
        self.next_id = 0
        for scale in scales.values():
            identity = scale.get("id", self.next_id)
            self.by_id[identity] = scale
            self.next_id = max(self.next_id, identity + 1)

    def label(self, variable: MappedVariable) -> list[dict[str, Any] | None]:
        """Returns the dimension of each axis, as far as the file names it."""
        dataset = variable.dataset
        own = self.scales.get(_address(dataset.id))
        ids = dataset.attrs.get("_Netcdf4Coordinates")
        if own is not None and ids is not None and len(ids) == dataset.ndim:
            return [self.by_id.get(int(identity)) for identity in ids]
        if own is not None:
            return [own, *[None] * (dataset.ndim - 1)]
        if "DIMENSION_LIST" not in dataset.attrs:
            return [None] * dataset.ndim
        # Of several scales on one axis the last one counts, as in the netCDF library.
        references = dataset.attrs["DIMENSION_LIST"]
        named = [self._scale(axis[-1]) if len(axis) else None for axis in references]
        return named if len(named) == dataset.ndim else [None] * dataset.ndim

    def _scale(self, reference: h5py.Reference) -> dict[str, Any] | None:
        target = h5py.h5r.dereference(reference, self.file.id)
        return None if target is None else self.scales.get(_address(target))

    def phony(
        self, group: MappedGroup, size: int, taken: list[str], *, unlimited: bool
    ) -> dict[str, Any]:
        """Returns a dimension of the group for an unnamed axis: an existing one, or a new one."""
        for dimension in group.dimensions:
            fits = (dimension["size"], dimension["unlimited"]) == (size, unlimited)
            if fits and dimension["name"] not in taken:
                return dimension
        name = f"phony_dim_{self.next_id}"
        self.next_id += 1
        made = {"name": name, "size": size, "unlimited": unlimited, "phony": True}
        group.dimensions.append(made)
        return made


def _address(identifier: Any) -> tuple[int, int]:
    information = h5py.h5o.get_info(identifier)
    return information.fileno, information.addr


def name_dimensions(
    file: h5py.File, root: MappedGroup, scales: dict[tuple[int, int], dict[str, Any]]
) -> None:
    """Sets the dimension names of every variable, and the length of every growing dimension."""
    namer = _Namer(file, scales)
    labels: list[tuple[MappedVariable, list[dict[str, Any] | None]]] = []
    for variable in _variables(root):
        named: list[dict[str, Any] | None] = [None] * len(variable.shape)
        if not variable.elsewhere:
            named = namer.label(variable)
        labels.append((variable, named))
        for size, dimension in zip(variable.shape, named, strict=True):
            if dimension is not None and dimension["unlimited"]:
                dimension["size"] = max(dimension["size"], size)
    named_axes = {id(variable): named for variable, named in labels}
    _name_group(namer, root, named_axes)


def _variables(group: MappedGroup) -> list[MappedVariable]:
    return [*group.variables, *(v for child in group.groups for v in _variables(child))]


def _name_group(
    namer: _Namer, group: MappedGroup, named_axes: dict[int, list[dict[str, Any] | None]]
) -> None:
    for child in group.groups:
        _name_group(namer, child, named_axes)
    for variable in group.variables:
        named = named_axes[id(variable)]
        variable.unlabeled = bool(named) and all(dimension is None for dimension in named)
        shape = []
        for axis, dimension in enumerate(named):
            own_size = variable.shape[axis]
            if dimension is None:
                unlimited = own_size == 0 or _grows(variable, axis)
                dimension = namer.phony(
                    group, own_size, variable.dimension_names, unlimited=unlimited
                )
            variable.dimension_names.append(dimension["name"])
            shape.append(dimension["size"] if dimension["unlimited"] else own_size)
        variable.shape = tuple(shape)


def _grows(variable: MappedVariable, axis: int) -> bool:
    return not variable.elsewhere and variable.dataset.maxshape[axis] is None


def refuse_names_alike(group: MappedGroup, scales: dict[tuple[int, int], dict[str, Any]]) -> None:
    """Refuses all but one of the members with the same shown path.

    It keeps the member with that name in the file, or else the first. Of dimensions with one name
    it keeps the first; variables that refer to another one get an unnamed axis.
    """
    members: list[MappedVariable | MappedGroup] = [*group.variables, *group.groups]
    kept: dict[str, MappedVariable | MappedGroup] = {}
    for member in members:
        known = kept.setdefault(member.path, member)
        if _is_as_stored(member) and not _is_as_stored(known):
            kept[member.path] = member
    refused = [member for member in members if kept[member.path] is not member]
    for member in refused:
        shown = member.path.rpartition("/")[2]
        group.refuse(member.name, f"another member is shown as '{shown}', too")
    group.variables = [variable for variable in group.variables if kept[variable.path] is variable]
    group.groups = [inner for inner in group.groups if kept[inner.path] is inner]
    own = [id(scales.get(_address(variable.dataset.id))) for variable in group.variables]
    lost = {
        id(scales.get(_address(member.dataset.id)))
        for member in refused
        if isinstance(member, MappedVariable)
    }
    _drop_dimensions_alike(group, scales, lost.difference(own))


def _is_as_stored(member: MappedVariable | MappedGroup) -> bool:
    return member.path.rpartition("/")[2] == member.name


def _drop_dimensions_alike(
    group: MappedGroup, scales: dict[tuple[int, int], dict[str, Any]], lost: set[int]
) -> None:
    names = set()
    kept = []
    for dimension in group.dimensions:
        if id(dimension) in lost or dimension["name"] in names:
            lost.add(id(dimension))
        else:
            names.add(dimension["name"])
            kept.append(dimension)
    if len(kept) < len(group.dimensions):
        group.dimensions = kept
        for address in [where for where, scale in scales.items() if id(scale) in lost]:
            del scales[address]


def variable_name(name: str) -> str | None:
    """Returns the shown name of a dataset; None if it cannot be shown."""
    return display_name(name.removeprefix(NON_COORDINATE))
