"""Refined meshes as plotfiles of AMReX.

The writer fills a hidden directory beside the target and renames it when all files are durable. It
reads ``BATCH_BYTES`` of elements at a time: small boxes together, large ones in parts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bedform import _internal
from bedform._errors import BedformError, ExistsError, engine_call, write_failure
from bedform._location import location
from bedform._mesh_boxes import (
    BATCH_BYTES,
    box_batches,
    cell_count,
    cell_counts,
    chosen_components,
    parts_of_box,
    stored_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO

    from bedform._mesh import RefinedMesh
    from bedform._mesh_boxes import Bounds
    from bedform._mesh_component import MeshComponent

    Progress = Callable[[int, int], object]
    Values = np.ndarray[Any, Any]

#: Little-endian floating point numbers, as a FAB describes them.
_REALS: Final = {
    4: "((8, (32 8 23 0 1 9 0 127)),(4, (4 3 2 1)))",
    8: "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))",
}
#: A file takes boxes until it has so many bytes.
_FILE_BYTES: Final = 128 << 20
#: Coordinates by AMReX's numbers.
_COORDINATES: Final = ("cartesian", "cylindrical", "spherical")
#: The most files of a level, as AMReX writes them by default.
_FILES_MAX: Final = 256


def write_plotfile(
    mesh: RefinedMesh,
    path: str | os.PathLike[str],
    *,
    components: str | Iterable[str] | None,
    overwrite: bool,
    progress: Progress | None,
) -> None:
    """Writes a mesh as a plotfile: see :meth:`RefinedMesh.to_plotfile`."""
    chosen = chosen_components(mesh, components)
    target = Path(location(path, "path"))
    if overwrite:
        _check_replaced(target)
    staged = engine_call(_internal.StagedDirectory)(target, overwrite)
    try:
        place = Path(staged.path)
        place.mkdir()
        _Writer(mesh, list(chosen.values()), progress).write(place)
        engine_call(staged.publish)()
    except BedformError:
        raise
    except OSError as error:
        raise write_failure(target, error) from error
    finally:
        staged.discard()


def _check_replaced(target: Path) -> None:
    """Fails if something else than a plotfile would be replaced."""
    if not os.path.lexists(target):
        return
    if not target.is_dir() or engine_call(_internal.place_kind)(target)[0] != "plotfile":
        raise ExistsError(
            f"{str(target)!r} exists and is no plotfile, so it is not replaced: choose another name"
        )


class _Writer:
    """The writer of the files of one plotfile."""

    def __init__(
        self, mesh: RefinedMesh, components: list[MeshComponent], progress: Progress | None
    ) -> None:
        self._mesh = mesh
        self._components = components
        self._progress = progress
        self._dtype = mesh.dtype.newbyteorder("<")
        self._real = _REALS[mesh.dtype.itemsize]
        self._coordinates = _COORDINATES.index(mesh.coordinates)
        self._total = cell_count(mesh) * len(components) * mesh.dtype.itemsize
        self._done = 0

    def write(self, place: Path) -> None:
        """Writes all files below an empty directory."""
        for level in range(self._mesh.levels):
            directory = place / f"Level_{level}"
            directory.mkdir()
            self._write_level(directory, level)
        names = [component.name for component in self._components]
        lines = _header(self._mesh, names, self._coordinates)
        (place / "Header").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _write_level(self, directory: Path, level: int) -> None:
        bounds = self._mesh.boxes(level)
        sizes = cell_counts(bounds) * (len(self._components) * self._dtype.itemsize)
        places: list[str] = []
        ranges = np.empty((2, len(bounds), len(self._components)))
        for number, (first, last) in enumerate(file_ranges(sizes.tolist())):
            name = f"Cell_D_{number:05}"
            with (directory / name).open("xb") as file:
                for offset, least, most in self._fabs(file, level, bounds[first:last]):
                    ranges[:, len(places)] = least, most
                    places.append(f"FabOnDisk: {name} {offset}")
        lines = _cell_header(bounds, places, ranges, self._dtype.itemsize)
        (directory / "Cell_H").write_text("\n".join(lines) + "\n")

    def _fabs(self, file: BinaryIO, level: int, bounds: Bounds) -> Iterable[Any]:
        """Writes a FAB for each box; yields its offset and the ranges of its components."""
        cells_max = max(BATCH_BYTES // (self._dtype.itemsize * len(self._components)), 1)
        for batch in box_batches(bounds, cells_max):
            if cell_counts(batch).sum() > cells_max:
                yield self._large_fab(file, level, batch[0])
                continue
            read = [stored_parts(component, level, batch) for component in self._components]
            for number, (start, stop) in enumerate(batch):
                offset = self._begin(file, start, stop)
                values = [boxes[number] for boxes in read]
                for one in values:
                    self._put(file, one)
                least, most = zip(*map(value_range, values), strict=True)
                yield offset, least, most

    def _large_fab(self, file: BinaryIO, level: int, box: Bounds) -> Any:
        """Writes the FAB of one box part by part, since it does not fit into memory."""
        start, stop = box
        offset = self._begin(file, start, stop)
        ranges = []
        for component in self._components:
            found = []
            for part in parts_of_box(start, stop, BATCH_BYTES // self._dtype.itemsize):
                values = stored_parts(component, level, part[np.newaxis])[0]
                self._put(file, values)
                found.append(value_range(values))
            least, most = zip(*found, strict=True)
            ranges.append((min(least), max(most)))
        least, most = zip(*ranges, strict=True)
        return offset, least, most

    def _begin(self, file: BinaryIO, start: Bounds, stop: Bounds) -> int:
        """Writes the header of a FAB; returns its offset."""
        offset = file.tell()
        text = f"FAB {self._real}{_box(start, stop)} {len(self._components)}\n"
        file.write(text.encode())
        return offset

    def _put(self, file: BinaryIO, values: Values) -> None:
        """Writes elements, x fastest."""
        file.write(np.ascontiguousarray(values.T, self._dtype).data.cast("B"))
        self._done += values.nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)


def file_ranges(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the first box of each file of a level and the box after its last."""
    limit = max(_FILE_BYTES, -(-sum(sizes) // (_FILES_MAX - 1)))
    found, first, held = [], 0, 0
    for number, size in enumerate(sizes, start=1):
        held += size
        if held >= limit or number == len(sizes):
            found.append((first, number))
            first, held = number, 0
    return found


def value_range(values: Values) -> tuple[float, float]:
    """Returns the least and the greatest number among elements, without NaN and infinities.

    C++ cannot read other numbers from the text. Without any the bounds are in the wrong order, as
    AMReX writes them.
    """
    widest = np.finfo(values.dtype)
    least = np.fmin.reduce(values, axis=None, initial=widest.max)
    most = np.fmax.reduce(values, axis=None, initial=widest.min)
    return float(max(least, widest.min)), float(min(most, widest.max))


def _header(mesh: RefinedMesh, names: list[str], coordinates: int) -> list[str]:
    """Returns the lines of the text ``Header``."""
    lower, upper = mesh.bounds
    levels = range(mesh.levels)
    steps = [level["step"] for level in mesh.info()["levels"]]
    ratios = (_ratio(mesh.ratio(level)) for level in levels[:-1])
    lines = ["HyperCLaw-V1.1", str(len(names)), *names, str(len(lower)), repr(mesh.time)]
    lines += [str(levels[-1]), _numbers(lower), _numbers(upper), " ".join(ratios)]
    lines.append(" ".join(_box(*mesh.domain(level)) for level in levels))
    lines.append(" ".join(map(str, steps)))
    lines += [_numbers(mesh.spacing(level)) for level in levels]
    lines += [str(coordinates), "0"]
    for level in levels:
        boxes = mesh.boxes(level)
        lines += [f"{level} {len(boxes)} {mesh.time!r}", str(steps[level])]
        edges = np.add(lower, boxes * mesh.spacing(level))
        lines += [f"{low!r} {high!r}" for box in edges for low, high in box.T.tolist()]
        lines.append(f"Level_{level}/Cell")
    return lines


def _cell_header(bounds: Bounds, places: list[str], ranges: Values, item: int) -> list[str]:
    """Returns the lines of the text ``Cell_H`` of version 1."""
    count, names = ranges.shape[1:]
    lines = ["1", "1", str(names), "0", f"({count} 0"]
    lines += [_box(start, stop) for start, stop in bounds]
    lines += [")", str(count), *places]
    form = ".8e" if item == 4 else ".16e"
    for table in ranges.tolist():
        lines += ["", f"{count},{names}"]
        lines += ["".join(f"{value:{form}}," for value in row) for row in table]
    return [*lines, ""]


def _box(start: Bounds, stop: Bounds) -> str:
    """Returns the text of a cell-centred box, whose bounds are inclusive."""
    low, high = (",".join(map(str, cell.tolist())) for cell in (start, stop - 1))
    return f"(({low}) ({high}) ({','.join('0' * len(start))}))"


def _ratio(ratio: tuple[int, ...]) -> str:
    """Returns the text of a refinement ratio: one number if the axes have the same."""
    return str(ratio[0]) if len(set(ratio)) == 1 else f"({','.join(map(str, ratio))})"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(map(repr, values))
