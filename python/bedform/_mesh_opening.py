"""Opening of refined meshes: plotfiles, files of Chombo, and steps of stores."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from bedform import _internal
from bedform._errors import ConflictError, engine_call
from bedform._mesh import RefinedMesh
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedform._store import Store

#: Kinds of places that may be refined meshes.
MESH_KINDS: Final = ("plotfile", "zarr-v3", "hdf5")
#: The attribute of the root of a store of meshes.
STEPS_ATTRIBUTE = "bedform_mesh_steps"
#: The attribute of the group of a mesh.
MESH_ATTRIBUTE = "bedform_mesh"


def plotfile_at(path: str) -> RefinedMesh | None:
    """Opens the plotfile at a local path; returns None for anything else."""
    return open_mesh(path, {}) if is_plotfile(path) else None


def is_plotfile(path: str) -> bool:
    """Whether a plotfile lies at a local path."""
    return kind_at(path) == "plotfile"


def mesh_at(path: str) -> RefinedMesh | None:
    """Opens the mesh at a local path; returns None for anything else."""
    if kind_at(path) not in MESH_KINDS:
        return None
    import bedform

    opened = bedform.open(path)
    return opened if isinstance(opened, RefinedMesh) else None


def kind_at(path: str) -> str:
    """Returns the kind of a local path, and nothing for others."""
    if is_url(path) or not os.path.exists(path):  # noqa: PTH110 - a text, perhaps not a path
        return ""
    kind: str = engine_call(_internal.place_kind, path)(path)[0]
    return kind


def opened_again(where: str, facts: dict[str, Any]) -> RefinedMesh:
    """Opens a pickled mesh."""
    import bedform

    mesh = bedform.open(where)
    if not isinstance(mesh, RefinedMesh) or mesh._facts != facts:
        raise ConflictError(f"{where}: its Header has changed since it was opened: open it again")
    return mesh


def open_mesh(where: str, options: dict[str, Any]) -> RefinedMesh:
    """Opens the plotfile at a path."""
    opened = engine_call(_internal.EngineMesh.open, where)(where, json.dumps(options))
    return RefinedMesh(opened, where)


def mesh_in(opened: Any) -> Any:
    """Returns the mesh in an opened store or file, or the store or file if there is none."""
    from bedform._foreign_store import ForeignStore
    from bedform._store import Store

    if isinstance(opened, Store) and not opened._is_writable:
        return mesh_of(opened) or opened
    if isinstance(opened, ForeignStore):
        from bedform._chombo import chombo_mesh

        return chombo_mesh(opened) or opened
    return opened


def mesh_of(store: Store, step: str | None = None) -> RefinedMesh | None:
    """Opens a step of a store of meshes, by default the last one; None for another store."""
    attributes = store._attributes_of("")
    if MESH_ATTRIBUTE not in attributes and STEPS_ATTRIBUTE not in attributes:
        return None
    found = dict(store._call(_internal.EngineMesh.steps)(store._inner))
    if not found:
        return None
    return mesh_at_step(store, next(reversed(found)) if step is None else step, found)


def mesh_at_step(store: Store, step: str, steps: Mapping[str, float]) -> RefinedMesh:
    """Opens a step of a store with these steps."""
    opened = store._call(_internal.EngineMesh.of_store)(store._inner, step)
    where = f"{store.store_path}/{step}" if step else store.store_path
    return RefinedMesh(opened, where, store, steps)
