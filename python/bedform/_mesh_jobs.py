"""Refined meshes for the jobs of files: replicas, reports and their names for components."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bedform import _internal, _sidecar
from bedform._catalogue import is_count, is_counts, is_seconds
from bedform._errors import UnsupportedError, engine_call
from bedform._mesh import RefinedMesh
from bedform._mesh_boxes import cell_counts
from bedform._mesh_opening import MESH_KINDS, kind_at, mesh_in, open_mesh

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERSION: Final = 1
_BYTES_MAX: Final = 64 << 20


def mesh_for_jobs(source: Any) -> RefinedMesh | None:
    """Opens the mesh at a path, without replicas, records and warnings; None for another source."""
    from bedform._opening import open_untold

    if not isinstance(source, str) or (kind := kind_at(source)) not in MESH_KINDS:
        return None
    if kind == "plotfile":
        return open_mesh(source, {"replicas": False, "records": False})
    opened = open_untold(source, kind)
    found = mesh_in(opened)
    if isinstance(found, RefinedMesh):
        return found
    if opened is not None:
        opened.close()
    return None


def optimize_mesh(
    mesh: RefinedMesh,
    where: str,
    *,
    budget: str | None,
    expected: list[tuple[list[str], float, list[tuple[str, int, int]], str | None]],
    sidecar: str | None,
    refused: Mapping[str, Any],
    dry_run: bool,
    progress: Callable[[int, int], object] | None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Plans the replicas of a mesh, and makes them; returns the plan and the outcome.

    Raises
    ------
    UnsupportedError
        An option of ``refused`` is given.
    """
    for name in (name for name, given in refused.items() if given):
        raise UnsupportedError(f"{where}: {name} is for arrays, and this is a refined mesh")
    meshes = [mesh.step(step)._inner for step in _steps(mesh, where, is_learnt=not expected)]
    text = engine_call(_internal.optimize_meshes, where)(
        meshes, where, budget, expected, sidecar, dry_run, progress
    )
    plan, done = json.loads(text)
    return plan, done


def _steps(mesh: RefinedMesh, where: str, *, is_learnt: bool) -> list[str]:
    """Returns the steps to optimize: those with learnt reads or replicas, or else the last one."""
    steps = list(mesh.steps)
    if not is_learnt or len(steps) == 1:
        return steps[-1:]
    knowledge = _sidecar.newest_of(where, "knowledge", _BYTES_MAX)
    arrays = knowledge.get("arrays") if isinstance(knowledge, dict) else None
    names = list(arrays) if isinstance(arrays, dict) else []
    names += [one["array"] for one in mesh_replicas_of(where)]
    read = set(map(_step_of, names))
    return [step for step in steps if step in read] or steps[-1:]


def source_facts(mesh: RefinedMesh, stored_bytes: int | None) -> dict[str, Any]:
    """Returns format, sizes and components of a mesh, as a report has them of a file's arrays."""
    info = mesh.info()
    arrays = []
    for step in mesh.steps:
        at = mesh.step(step)
        before = f"{step}/" if mesh._steps is not None and step else ""
        for level in range(at.levels):
            facts = _level_facts(at, level)
            arrays += [{"array": f"{before}{traced_path(level, name)}", **facts} for name in at]
    return {
        "format": str(info["format"]),
        "is_file": mesh._steps is None,
        "stored_bytes": stored_bytes,
        "bytes": sum(array["bytes"] for array in arrays),
        "arrays": arrays,
    }


def _level_facts(mesh: RefinedMesh, level: int) -> dict[str, Any]:
    """Returns the facts that all components of a level share."""
    counts = cell_counts(mesh.boxes(level))
    return {
        "dims": list(mesh.dims),
        "shape": [int(length) for length in mesh.domain(level)[1]],
        "dtype": str(mesh.dtype),
        "bytes": int(counts.sum()) * mesh.dtype.itemsize,
        "stored_bytes": None,
        "storage": f"{len(counts)} boxes",
        "chunks": None,
        "shards": None,
        "order": None,
        "codecs": [],
    }


def traced_path(level: int, component: str) -> str:
    """Returns the name of a component of a level in records, plans and reports."""
    return f"level_{level}/{component}"


def _step_of(traced: str) -> str:
    """Returns the step in the name of a component of a store's mesh."""
    return traced.partition("/level_")[0]


def mesh_replicas_of(where: str) -> list[dict[str, Any]]:
    """Returns the replicas in the catalogue of a mesh, for display, as those of arrays."""
    document = _sidecar.newest_of(where, "mesh-catalogue", _BYTES_MAX)
    listed = None if document is None else document.get("replicas")
    if document is None or document.get("version") != _VERSION or not isinstance(listed, list):
        return []
    return [one for one in map(_replica, listed) if one is not None]


def replicas_with_states(mesh: RefinedMesh, where: str) -> list[dict[str, Any]]:
    """Returns the replicas of a mesh, each with ``state`` and, if it is not read, ``reason``."""
    replicas = mesh_replicas_of(where)
    if not replicas:
        return []
    named = {_step_of(one["array"]) for one in replicas}
    steps = [step for step in mesh.steps if mesh._steps is None or step in named]
    meshes = [mesh.step(step)._inner for step in steps]
    current = set(engine_call(_internal.current_mesh_replicas, where)(meshes, where))
    reason = "a file of it, or of the mesh, has changed since it was made"
    return [
        {**one, "state": "current", "reason": None}
        if one["id"] in current
        else {**one, "state": "outdated", "reason": reason}
        for one in replicas
    ]


def _replica(entry: Any) -> dict[str, Any] | None:
    """Returns a replica of a mesh's catalogue; None for one that does not fit."""
    if not isinstance(entry, dict) or not is_counts(entry.get("sub_box")):
        return None
    name, component, levels = (entry.get(key) for key in ("id", "component", "levels"))
    step = entry.get("step", "")
    if not (isinstance(name, str) and isinstance(component, str) and isinstance(step, str)):
        return None
    if not is_count(levels):
        return None
    if not all(is_count(entry.get(key)) for key in ("stored_bytes", "raw_bytes", "made")):
        return None
    listed = entry.get("expected")
    reads = [
        {key: one[key] for key in ("level", "shape", "reads", "seconds_without", "seconds_with")}
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
        and is_counts(one.get("shape"))
        and is_count(one.get("level"))
        and all(is_seconds(one.get(key)) for key in ("reads", "seconds_without", "seconds_with"))
    ]
    held = entry.get("held")
    part = None
    if isinstance(held, dict) and is_counts(held.get("start")) and is_counts(held.get("stop")):
        part = [[[a, b - a]] for a, b in zip(held["start"], held["stop"], strict=False)]
    return {
        "id": name,
        "array": f"{step}/{traced_path(levels - 1, component)}".lstrip("/"),
        "held": part,
        "chunks": entry["sub_box"],
        "shards": None,
        "order": str(entry.get("order")),
        "stored_bytes": entry["stored_bytes"],
        "raw_bytes": entry["raw_bytes"],
        "made": entry["made"],
        "expected": reads,
    }


def fitted_replicas(
    replicas: list[dict[str, Any]], arrays: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns replicas with the shape of their component, and the cells that they have as runs."""
    shapes = {array["array"]: array["shape"] for array in arrays}
    found = []
    for one in replicas:
        shape = shapes.get(one["array"])
        if shape is None:
            continue
        whole = [[[0, length]] for length in shape]
        runs = whole if one["held"] is None else one["held"]
        found.append({**one, "array_shape": shape, "held": {"runs": runs}})
    return found
