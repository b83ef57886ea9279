"""Refined meshes as trees of xarray: a node for each level, whose variables are read lazily."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from bedform._integers import byte_count
from bedform._mesh_boxes import chosen_components, flat_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedform._mesh import RefinedMesh
    from bedform._mesh_component import MeshComponent


class MeshLevelArray(BackendArray):
    """A component on the cells of one level, for xarray's lazy indexing.

    It pickles. Many threads may use it, since reads share no mutable state.
    """

    __slots__ = ("_component", "_level", "_max_bytes", "dtype", "shape")

    def __init__(self, component: MeshComponent, level: int, max_bytes: int) -> None:
        self._component = component
        self._level = level
        self._max_bytes = max_bytes
        self.shape = tuple(component.mesh.domain(level)[1].tolist())
        self.dtype = component.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        # Lists and points become the smallest region that holds them, of which NumPy takes them.
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Reads in a separate thread; reads release the GIL."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> Any:
        """Reads a region of numbers and slices; steps are taken from all cells between."""
        region: list[int | slice] = []
        steps: list[slice] = []
        for part, length in zip(key, self.shape, strict=True):
            if not isinstance(part, slice):
                region.append(int(part))
                continue
            cells = range(*part.indices(length))
            first, last = (min(cells), max(cells) + 1) if cells else (0, 0)
            region.append(slice(first, last))
            steps.append(slice(None, None, cells.step))
        values = self._component.read(tuple(region), level=self._level, max_bytes=self._max_bytes)
        return values[tuple(steps)]


def tree_of(
    mesh: RefinedMesh, components: str | Iterable[str] | None, max_bytes: int | str
) -> xr.DataTree:
    """Returns a mesh as a tree: see :meth:`RefinedMesh.to_datatree`."""
    chosen = chosen_components(mesh, components)
    return xr.DataTree.from_dict(level_datasets(mesh, chosen, max_bytes))


def level_datasets(
    mesh: RefinedMesh, components: Iterable[str], max_bytes: int | str = "4 GiB"
) -> dict[str, xr.Dataset]:
    """Returns a data set for the root of a tree and one for each level, by their paths."""
    chosen = {name: mesh[name] for name in components}
    names = flat_names(chosen, mesh.dims)
    limit = byte_count(max_bytes, "max_bytes")
    nodes = {"/": xr.Dataset(attrs={"time": mesh.time, "levels": mesh.levels})}
    for level in range(mesh.levels):
        variables = {
            names[name]: _variable(component, level, limit) for name, component in chosen.items()
        }
        nodes[f"/level_{level}"] = xr.Dataset(
            variables, _centres(mesh, level), _attributes(mesh, level)
        )
    return nodes


def _variable(component: MeshComponent, level: int, limit: int) -> xr.Variable:
    data = indexing.LazilyIndexedArray(MeshLevelArray(component, level, limit))
    return xr.Variable(component.mesh.dims, data, {"component": component.name})


def _centres(mesh: RefinedMesh, level: int) -> dict[str, Any]:
    """Returns the coordinates of the centres of a level's cells along each axis."""
    lower, spacing = mesh.bounds[0], mesh.spacing(level)
    lengths = mesh.domain(level)[1].tolist()
    axes = zip(mesh.dims, lower, spacing, lengths, strict=True)
    return {dim: low + (np.arange(count) + 0.5) * size for dim, low, size, count in axes}


def _attributes(mesh: RefinedMesh, level: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {"level": level, "time": mesh.time}
    attributes["spacing"] = list(mesh.spacing(level))
    if level + 1 < mesh.levels:
        attributes["ratio"] = list(mesh.ratio(level))
    return attributes
