"""The cells of a box that a ray crosses, by the steps of yt's own walk."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Vector = list[float]

#: The time of a face that a ray never reaches.
_NEVER = 1e60


def cells_of_a_ray(
    edges: tuple[Vector, Vector], width: Vector, shape: list[int], origin: Vector, vector: Vector
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the cells of a box that the line ``origin + t * vector``, t from 0 to 1, crosses.

    The walk takes the steps of ``walk_volume`` of yt, in the same arithmetic, so that it finds the
    same cells; yt's own needs two arrays of the shape of the box.

    Returns
    -------
    tuple of numpy.ndarray
        The cells, from the first one of the box on, and for each the time at which the line enters
        it and how long it stays.
    """
    entry = _entry(edges, width, origin, vector)
    if entry is None:
        return np.empty((0, 3), "i8"), np.empty((0, 2))
    enters, direction = entry
    cell, faces = _first_cell(edges[0], width, shape, origin, vector, enters, direction)
    steps = [(by > 0) - (by < 0) for by in vector]
    inside = [0 <= at < count for at, count in zip(cell, shape, strict=True)]
    # A line that enters by an upper corner begins one cell outside and steps in.
    corner = [at == count and step < 0 for at, count, step in zip(cell, shape, steps, strict=True)]
    if not all(map(any, zip(inside, corner, strict=True))):
        return np.empty((0, 3), "i8"), np.empty((0, 2))
    between = [
        step * (1.0 / by) * size if step else 0.0
        for step, by, size in zip(steps, vector, width, strict=True)
    ]
    cells, times = [], []
    while True:
        if faces[0] < faces[1]:
            axis = 0 if faces[0] < faces[2] else 2
        else:
            axis = 1 if faces[1] < faces[2] else 2
        exits = min(faces[axis], 1.0)
        if enters != exits and all(map(operator.lt, cell, shape)):
            cells.append(tuple(cell))
            times.append((enters, exits - enters))
        cell[axis] += steps[axis]
        enters = faces[axis]
        faces[axis] += between[axis]
        if not 0 <= cell[axis] < shape[axis] or enters >= 1.0:
            break
    return np.array(cells, "i8").reshape(-1, 3), np.array(times).reshape(-1, 2)


def _entry(
    edges: tuple[Vector, Vector], width: Vector, origin: Vector, vector: Vector
) -> tuple[float, int] | None:
    """Returns when a line enters a box, and the axis of the face; 3 for a start inside."""
    left, right = edges
    inside = all(low <= at < high for low, at, high in zip(left, origin, right, strict=True))
    if inside:
        return 0.0, 3
    enters, direction = 1.1, -1
    for axis, by in enumerate(vector):
        if by == 0:
            continue
        time = ((left if by > 0 else right)[axis] - origin[axis]) * (1.0 / by)
        if not 0.0 <= time < enters:
            continue
        others = ((axis + 1) % 3, (axis + 2) % 3)
        if all(_is_within(left, right, width, origin, vector, time, other) for other in others):
            enters, direction = time, axis
    return (enters, direction) if enters < 1.0 else None


def _is_within(
    left: Vector,
    right: Vector,
    width: Vector,
    origin: Vector,
    vector: Vector,
    time: float,
    axis: int,
) -> bool:
    """Whether a line is within the bounds of a box along an axis, or next to them."""
    at = origin[axis] + time * vector[axis]
    near = 1e-10 * width[axis]
    return (
        left[axis] <= at <= right[axis] or min(abs(at - left[axis]), abs(at - right[axis])) < near
    )


def _first_cell(
    left: Vector,
    width: Vector,
    shape: list[int],
    origin: Vector,
    vector: Vector,
    enters: float,
    direction: int,
) -> tuple[list[int], Vector]:
    """Returns the cell in which a line enters a box, and the times of the next faces."""
    cell, faces = [], []
    for axis, by in enumerate(vector):
        if axis == direction:
            at = 0 if by > 0 else shape[axis] - 1
        else:
            place = (enters * by + origin[axis] - left[axis]) * (1.0 / width[axis])
            if -1 < place < 0 and by > 0:
                place = 0.0
            elif shape[axis] - 1 < place < shape[axis] and by < 0:
                place = shape[axis] - 1.0
            at = math.floor(place)
        cell.append(at)
        if by == 0:
            faces.append(_NEVER)
        else:
            face = (at + (by > 0)) * width[axis] + left[axis]
            faces.append((face - origin[axis]) * (1.0 / by))
    return cell, faces
