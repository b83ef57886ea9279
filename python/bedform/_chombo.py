"""Refined meshes in HDF5 files of Chombo, and of AMReX, which are alike.

A group ``level_N`` of each level has the data sets ``boxes`` (compounds of the first and the last
cell), ``data:offsets=0`` and ``data:datatype=0``: the elements of one box after the other.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal
from bedform._errors import CorruptError, UnsupportedError, engine_call
from bedform._mesh import RefinedMesh

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h5py
    import numpy.typing as npt

    from bedform._foreign_store import ForeignStore

#: The data set of the elements of the coarsest level.
_ELEMENTS: Final = "data:datatype=0"
#: Largest number of levels, components and boxes.
_LEVELS_MAX: Final = 64
_COMPONENTS_MAX: Final = 1 << 16
_BOXES_MAX: Final = 16 << 20
#: Errors of h5py and NumPy for a file that is no such mesh.
_DAMAGE: Final = (
    CorruptError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    RuntimeError,
    OSError,
)
#: Members of the compounds for cells, by axis.
_AXES: Final = "ijk"


def chombo_mesh(file: ForeignStore) -> RefinedMesh | None:
    """Opens the mesh in an HDF5 file; None for a file of another kind.

    Raises
    ------
    CorruptError
        Levels, boxes or counts of the file disagree.
    UnsupportedError
        The mesh has several data sets a level, or cells that are not centred.
    """
    if f"level_0/{_ELEMENTS}" not in file or "num_levels" not in file.attributes:
        return None
    import h5py

    where = file._path
    try:
        with h5py.File(where, "r") as opened:
            record, levels = _levels_of(opened)
    except _DAMAGE as error:
        raise CorruptError(f"{where}: not a mesh of Chombo: {error}") from None
    of_rows = engine_call(_internal.EngineMesh.of_rows, where)
    return RefinedMesh(of_rows(file._inner, where, json.dumps(record), levels), where, file)


def _levels_of(file: h5py.File) -> tuple[dict[str, Any], list[tuple[str, list[int], bytes, bytes]]]:
    """Returns the record of the mesh, and the array and boxes of each level."""
    facts = file.attrs
    count = _limited(facts["num_levels"], _LEVELS_MAX)
    components = _limited(facts["num_components"], _COMPONENTS_MAX)
    names = [_text(facts[f"component_{number}"]) for number in range(components)]
    groups = _with_boxes([file[f"level_{number}"] for number in range(count)])
    levels, rows = [], []
    for number, group in enumerate(groups):
        domain = _bounds(np.asarray(group.attrs["prob_domain"]).reshape(1))[0]
        last = number + 1 == len(groups)
        ratio = [] if last else _along_axes(group.attrs["ref_ratio"], domain.shape[1]).tolist()
        spacing = _along_axes(group.attrs.get("vec_dx", group.attrs["dx"]), domain.shape[1])
        levels.append(
            {
                "shape": (domain[1] - domain[0]).tolist(),
                "ratio": list(map(int, ratio)),
                "spacing": spacing.astype("f8").tolist(),
                "step": int(facts.get("iteration", 0)),
            }
        )
        rows.append(_row_of(group, domain[0], components))
    spacing = np.array(levels[0]["spacing"])
    lower = _along_axes(groups[0].attrs.get("prob_lo", 0.0), len(spacing)).astype("f8")
    record = {
        "version": 1,
        "time": float(facts.get("time", 0.0)),
        "lower": lower.tolist(),
        "upper": (lower + spacing * levels[0]["shape"]).tolist(),
        "order": "given",
        "sub_box": [1] * len(spacing),
        "components": [
            {"name": name, "array": f"component_{number}"} for number, name in enumerate(names)
        ],
        "levels": levels,
    }
    return record, rows


def _with_boxes(groups: list[h5py.Group]) -> list[h5py.Group]:
    """Returns the levels up to the last one with boxes."""
    filled = [number for number, group in enumerate(groups) if group["boxes"].shape[0] > 0]
    if not filled:
        raise CorruptError("no level has boxes")
    return groups[: filled[-1] + 1]


def _row_of(
    group: h5py.Group, corner: npt.NDArray[np.int64], components: int
) -> tuple[str, list[int], bytes, bytes]:
    """Returns the path of the elements of a level, its ghost cells, boxes and offsets."""
    if "data:datatype=1" in group:
        raise UnsupportedError(f"{group.file.filename}: {group.name} has several kinds of data")
    if group["boxes"].shape[0] > _BOXES_MAX:
        raise CorruptError(f"{group.name}/boxes has {group['boxes'].shape[0]} boxes")
    boxes = _bounds(group["boxes"][...]) - corner
    offsets = np.asarray(group["data:offsets=0"][...], "i8")
    if offsets.shape != (len(boxes) + 1,) or (offsets < 0).any():
        raise CorruptError(f"{group.name}: {len(boxes)} boxes and {len(offsets)} offsets")
    attributes: Mapping[str, Any] = {}
    if "data_attributes" in group:
        attributes = group["data_attributes"].attrs
    ghosts = _ghosts(attributes, boxes, np.diff(offsets), components)
    if ghosts is None:
        raise CorruptError(f"{group.name}: the offsets are not those of the boxes")
    path = f"{group.name.strip('/')}/{_ELEMENTS}"
    return path, ghosts, boxes.astype("i8").tobytes(), offsets[:-1].tobytes()


def _ghosts(
    attributes: Mapping[str, Any],
    boxes: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    components: int,
) -> list[int] | None:
    """Returns the ghost cells with which boxes have these lengths, of those that are named."""
    none = [0] * boxes.shape[2]
    named = [_members(attributes[name]) for name in ("outputGhost", "ghost") if name in attributes]
    for ghosts in [*named, none]:
        shapes = boxes[:, 1] - boxes[:, 0] + 2 * np.array(ghosts[: boxes.shape[2]])
        if len(ghosts) == boxes.shape[2] and min(ghosts) >= 0 and max(ghosts) < 1 << 16:
            cells = np.prod(shapes.astype(object), axis=1) * components
            if (cells == lengths).all():
                return ghosts
    return None


def _bounds(compounds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Returns start and stop, of shape ``(n, 2, dim)``, of boxes of inclusive bounds."""
    names = compounds.dtype.names or ()
    rank = sum(re.fullmatch("lo_[ijk]", name) is not None for name in names)
    if not 1 <= rank <= len(_AXES):
        raise CorruptError(f"boxes of the members {names}")
    low = [compounds[f"lo_{axis}"] for axis in _AXES[:rank]]
    high = [np.asarray(compounds[f"hi_{axis}"], "i8") + 1 for axis in _AXES[:rank]]
    bounds: npt.NDArray[np.int64] = np.stack([np.stack(low, -1), np.stack(high, -1)], 1).astype(
        "i8"
    )
    return bounds


def _along_axes(given: Any, rank: int) -> npt.NDArray[Any]:
    """Returns a number for each axis: one for all, a number each, or a compound."""
    numbers = np.array(_members(given))
    if numbers.size == 1:
        return np.repeat(numbers, rank)
    if numbers.size < rank:
        raise CorruptError(f"{numbers.size} numbers for {rank} axes")
    return numbers[:rank]


def _members(given: Any) -> list[Any]:
    """Returns the numbers of a scalar, a list or a compound."""
    value = np.asarray(given)
    if value.dtype.names:
        return [value[name].item() for name in value.dtype.names]
    found: list[Any] = value.reshape(-1).tolist()
    return found


def _limited(given: Any, most: int) -> int:
    number = int(np.asarray(given).reshape(-1)[0])
    if not 0 < number <= most:
        raise CorruptError(f"a count of {number}")
    return number


def _text(given: Any) -> str:
    value = np.asarray(given).reshape(-1)[0]
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.strip()
