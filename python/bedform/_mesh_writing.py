"""Refined meshes that a program writes: their creation, and boxes in sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _internal, _json
from bedform._errors import InvalidArgumentError, NotFoundError
from bedform._integers import integer, integers
from bedform._mesh_opening import MESH_ATTRIBUTE, STEPS_ATTRIBUTE
from bedform._new_array import described_codecs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedform._session import Session
    from bedform._store import Store


def create_mesh(
    store: Store,
    path: str,
    *,
    components: Sequence[str],
    shape: Sequence[int],
    ratios: Sequence[int | Sequence[int]],
    lower: Sequence[float],
    upper: Sequence[float],
    time: float,
    step: int,
    dtype: Any,
    order: str,
    sub_box: Sequence[int] | None,
    codecs: Any,
) -> None:
    """Creates a mesh without boxes; see :meth:`bedform.Store.create_mesh`."""
    cells = integers(shape, "the shape of a mesh")
    rank = len(cells)
    refined = [_along_axes(ratio, rank) for ratio in ratios]
    if min([*cells, *(by for ratio in refined for by in ratio)], default=0) < 1:
        raise InvalidArgumentError(
            "the lengths of a mesh and its ratios are numbers of cells from 1"
        )
    bounds = [np.asarray(side, "f8").tolist() for side in (lower, upper)]
    if any(np.shape(side) != (rank,) for side in bounds):
        raise InvalidArgumentError(f"lower and upper have {rank} numbers each, as the shape has")
    if not np.isfinite([*bounds[0], *bounds[1], time]).all():
        raise InvalidArgumentError("the bounds and the time of a mesh are finite numbers")
    levels = []
    for ratio in (*refined, ()):
        size = (np.subtract(bounds[1], bounds[0]) / cells).tolist()
        levels.append({"shape": cells, "ratio": ratio, "spacing": size, "step": step})
        cells = tuple(length * by for length, by in zip(cells, ratio or cells, strict=True))
    names = [str(name) for name in components]
    record = {
        "version": 1,
        "time": float(time),
        "lower": bounds[0],
        "upper": bounds[1],
        "order": order,
        "sub_box": [] if sub_box is None else list(integers(sub_box, "sub_box")),
        "components": [{"name": name, "array": name} for name in names],
        "levels": levels,
    }
    facts = (_json.dump(record), np.dtype(dtype).name, _json.dump(described_codecs(codecs, False)))
    store._call(_internal.create_mesh)(store._inner, path.strip("/"), *facts)
    _mark_steps(store, path.strip("/"))


def _mark_steps(store: Store, path: str) -> None:
    """Marks a store as one of steps, once it has nothing but meshes in its root."""
    attributes = store._attributes_of("")
    if "/" in path or not path or STEPS_ATTRIBUTE in attributes:
        return
    groups = [name for name in store.groups() if "/" not in name]
    arrays = [name for name in store.arrays() if "/" not in name]
    if not arrays and all(MESH_ATTRIBUTE in store._attributes_of(name) for name in groups):
        store.set_attributes({**attributes, STEPS_ATTRIBUTE: 1})


def _along_axes(ratio: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Returns the refinement ratio along each axis."""
    if isinstance(ratio, (int, np.integer)):
        return (int(ratio),) * rank
    given = integers(ratio, "a refinement ratio")
    if len(given) != rank:
        raise InvalidArgumentError(f"a refinement ratio of {len(given)} axes for a mesh of {rank}")
    return given


class MeshBoxes:
    """The meshes that a session writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: dict[str, tuple[_internal.EngineMeshWriter, np.dtype[Any]]] = {}

    def write(
        self, session: Session, name: str, values: Any, starts: Any, shapes: Any, level: int
    ) -> None:
        """Writes boxes of a component of a level; see :meth:`bedform.Session.write_boxes`."""
        path, component = self._component(name)
        if path not in self._writers:
            writer = self._store._call(_internal.EngineMeshWriter)(self._store._inner, path)
            self._writers[path] = (writer, self._dtype(path))
        writer, dtype = self._writers[path]
        bounds, elements = _given(name, values, starts, shapes, dtype)
        number = integer(level, "the level")
        write = self._store._call(writer.write)
        write(session._inner, component, number, bounds.tobytes(), elements)

    def _component(self, name: str) -> tuple[str, str]:
        """Returns the path of the mesh of a component, and the component's name in it."""
        parts = name.strip("/").split("/")
        for count in range(len(parts)):
            path = "/".join(parts[:count])
            kind = self._store._call(self._store._inner.kind)(path) if path else "group"
            if kind == "group" and MESH_ATTRIBUTE in self._store._attributes_of(path):
                return path, "/".join(parts[count:])
        raise NotFoundError(
            f"{name}: no mesh of {self._store.store_path} has this component: create the mesh with "
            "store.create_mesh"
        )

    def _dtype(self, path: str) -> np.dtype[Any]:
        record = self._store._attributes_of(path)[MESH_ATTRIBUTE]
        array = record["components"][0]["array"]
        place = f"{path}/level_0/{array}" if path else f"level_0/{array}"
        return self._store.array(place).dtype


def _given(
    name: str, values: Any, starts: Any, shapes: Any, dtype: np.dtype[Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns start and stop of each box, and all elements in one row."""
    first, lengths = np.asarray(starts, "i8"), np.asarray(shapes, "i8")
    if first.size == lengths.size == 0:
        return np.empty(0, "i8"), np.empty(0, dtype)
    if first.ndim != 2 or first.shape != lengths.shape or (lengths <= 0).any():
        raise InvalidArgumentError(
            f"{name}: starts and shapes of boxes are arrays of integers with a row for each box"
        )
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype != object:
        row = values
    else:
        boxes = [np.asarray(one) for one in values]
        if [one.shape for one in boxes] != [tuple(shape) for shape in lengths.tolist()]:
            raise InvalidArgumentError(f"{name}: the arrays do not have the shapes of the boxes")
        row = np.concatenate([one.reshape(-1) for one in boxes])
    if row.dtype.kind not in "fiu":
        raise InvalidArgumentError(f"{name} holds {dtype}, not {row.dtype}")
    bounds = np.stack([first, first + lengths], 1)
    return bounds, np.ascontiguousarray(row, dtype)
