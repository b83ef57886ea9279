"""Refined meshes as files of VTKHDF, of its type ``OverlappingAMR``.

A level is a group ``LevelN`` with the size of its cells, the bounds of its boxes (``AMRBox``), and
a data set for each component: the elements box after box, x fastest. Indexes of cells have 32 bits.

VTK reads meshes of three axes, and hides each cell that a finer level has, too. So a mesh of fewer
axes has one cell along the others. VTK hides nothing in such a plane: ``vtkGhostType`` marks the
cells to hide. In a mesh whose axes have different ratios VTK hides wrong cells: it is refused.

The writer fills a hidden file beside the target and renames it when it is durable. It reads
``BATCH_BYTES`` of elements at a time.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal
from bedform._errors import ExistsError, UnsupportedError, engine_call, write_failure
from bedform._hdf5_output import hdf5_output, noted_interrupts
from bedform._location import location
from bedform._mesh_boxes import (
    BATCH_BYTES,
    cell_counts,
    chosen_components,
    covered_cells,
    flat_names,
    ordered_parts,
    overlaps,
    stored_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bedform._mesh import RefinedMesh
    from bedform._mesh_boxes import Bounds
    from bedform._mesh_component import MeshComponent

    Progress = Callable[[int, int], object]
    Flat = np.ndarray[Any, Any]

#: The first version of the format that describes such meshes as all later ones do.
_VERSION: Final = (2, 0)
#: The group of the file.
_ROOT: Final = "VTKHDF"
_CELL_MAX: Final = (1 << 31) - 1
#: VTK's name of the array of marks, and its mark of a hidden cell.
_GHOSTS: Final = "vtkGhostType"
_HIDDEN: Final = 32


def write_vtkhdf(
    mesh: RefinedMesh,
    path: str | os.PathLike[str],
    *,
    components: str | Iterable[str] | None,
    overwrite: bool,
    progress: Progress | None,
) -> None:
    """Writes a mesh as a VTKHDF file: see :meth:`RefinedMesh.to_vtkhdf`."""
    chosen = chosen_components(mesh, components)
    _check_mesh(mesh)
    target = Path(location(path, "path"))
    replaces = overwrite and os.path.lexists(target)
    if replaces:
        _check_replaced(target)
        # A link is kept; the file at its end is replaced.
        target = Path(os.path.realpath(target))
    name = f".{target.name[:100]}.{secrets.token_hex(8)}" if replaces else target.name
    complete = target.with_name(name)
    staged = engine_call(_internal.StagedFile)(complete)
    try:
        _write(mesh, chosen, Path(staged.path), target, progress)
        engine_call(staged.publish)()
        if replaces:
            _replace(complete, target)
    finally:
        staged.discard()


def _check_mesh(mesh: RefinedMesh) -> None:
    """Fails for a mesh that the format cannot hold."""
    if mesh.domain(mesh.levels - 1).max() > _CELL_MAX:
        raise UnsupportedError(
            f"{mesh.path}: VTKHDF counts cells by 32 bits, and the finest level has more along "
            "an axis"
        )
    ratios = [mesh.ratio(level) for level in range(mesh.levels - 1)]
    if len(mesh.dims) == 3 and any(len(set(ratio)) > 1 for ratio in ratios):
        raise UnsupportedError(
            f"{mesh.path}: VTK refines all axes alike, and these are refined by {ratios}: it would "
            "hide cells that no finer level has"
        )


def _check_replaced(target: Path) -> None:
    """Fails if something else than a VTKHDF file would be replaced."""
    import h5py

    is_own = False
    if target.is_file():
        with suppress(OSError), h5py.File(target) as file:
            is_own = _ROOT in file
    if not is_own:
        raise ExistsError(
            f"{str(target)!r} exists and is no VTKHDF file, so it is not replaced: choose another "
            "name"
        )


def _replace(complete: Path, target: Path) -> None:
    """Gives a complete file the name of an earlier one, durably."""
    try:
        complete.replace(target)
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise write_failure(target, error) from error
    finally:
        complete.unlink(missing_ok=True)


def _write(
    mesh: RefinedMesh,
    components: dict[str, MeshComponent],
    place: Path,
    target: Path,
    progress: Progress | None,
) -> None:
    """Writes the file at a hidden place; errors name the target."""
    levels = range(mesh.levels)
    cells = sum(int(cell_counts(mesh.boxes(level)).sum()) for level in levels)
    total, done = cells * len(components) * mesh.dtype.itemsize, 0
    with noted_interrupts() as raise_noted, hdf5_output(place, target) as (file, destination):
        root = file.create_group(_ROOT)
        _describe(mesh, root)
        for level in levels:
            group = root.create_group(f"Level{level}")
            for count in _fill_level(mesh, group, level, components):
                destination.check()
                raise_noted()
                done += count
                if progress is not None:
                    progress(done, total)


def _describe(mesh: RefinedMesh, root: Any) -> None:
    """Writes the facts of the whole mesh."""
    root.attrs["Version"] = np.array(_VERSION, "i8")
    for name, text in (("Type", b"OverlappingAMR"), ("GridDescription", b"XYZ")):
        # VTK reads no text of variable length here.
        root.attrs[name] = np.bytes_(text)
    root.attrs["Origin"] = np.array(_three(mesh.bounds[0], 0.0))
    root.create_dataset("FieldData/TimeValue", data=np.array([mesh.time]))


def _fill_level(
    mesh: RefinedMesh, group: Any, level: int, components: dict[str, MeshComponent]
) -> Iterator[int]:
    """Writes a level; yields the bytes of elements after each write."""
    bounds = mesh.boxes(level)
    # A plane is as thick on every level as a cell of level 0 is wide.
    group.attrs["Spacing"] = np.array(_three(mesh.spacing(level), mesh.spacing(0)[0]))
    group.create_dataset("AMRBox", data=_amr_boxes(bounds))
    # Earlier versions of VTK print errors where a group is missing.
    group.create_group("PointData")
    group.create_group("FieldData")
    cells = group.create_group("CellData")
    names = flat_names(components, [_GHOSTS])
    count = int(cell_counts(bounds).sum())
    dtype = mesh.dtype.newbyteorder("<")
    for name, component in components.items():
        dataset = cells.create_dataset(names[name], shape=(count,), dtype=dtype)
        if names[name] != name:
            dataset.attrs["component"] = name
        yield from _fill(dataset, _flat_elements(component, level, bounds))
    if len(mesh.dims) < 3:
        marks = cells.create_dataset(_GHOSTS, shape=(count,), dtype="u1")
        yield from (0 for _ in _fill(marks, _flat_marks(mesh, level, bounds)))


def _fill(dataset: Any, parts: Iterable[Flat]) -> Iterator[int]:
    """Writes elements from the first on; yields the bytes of each part."""
    at = 0
    for values in parts:
        dataset[at : at + len(values)] = values
        at += len(values)
        yield values.nbytes


def _flat_elements(component: MeshComponent, level: int, bounds: Bounds) -> Iterator[Flat]:
    """Yields the elements of a level's boxes in order, x fastest."""
    for parts in ordered_parts(bounds, BATCH_BYTES // component.dtype.itemsize):
        yield _joined([values.ravel("F") for values in stored_parts(component, level, parts)])


def _flat_marks(mesh: RefinedMesh, level: int, bounds: Bounds) -> Iterator[Flat]:
    """Yields a byte for each cell of a level: the mark of a hidden one if a finer level has it."""
    is_finest = level + 1 == mesh.levels
    covered = mesh.boxes(level)[:0] if is_finest else covered_cells(mesh, level)
    for parts in ordered_parts(bounds, BATCH_BYTES):
        yield _joined([_marks(covered, *part).ravel("F") for part in parts])


def _marks(covered: Bounds, start: Bounds, stop: Bounds) -> Flat:
    """Returns a byte for each cell of a box."""
    marks = np.zeros(stop - start, "u1")
    for low, high in overlaps(covered, start, stop - start):
        marks[tuple(map(slice, low, high))] = _HIDDEN
    return marks


def _joined(parts: list[Flat]) -> Flat:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _amr_boxes(bounds: Bounds) -> np.ndarray[Any, Any]:
    """Returns first and last cell of each box along x, y and z, in turn."""
    boxes = np.zeros((len(bounds), 3, 2), "i4")
    rank = bounds.shape[2]
    boxes[:, :rank, 0] = bounds[:, 0]
    boxes[:, :rank, 1] = bounds[:, 1] - 1
    return boxes.reshape(-1, 6)


def _three(values: tuple[float, ...], missing: float) -> list[float]:
    """Returns a number for each of x, y and z."""
    return [*values, *[missing] * (3 - len(values))]
