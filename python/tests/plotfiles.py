"""Random plotfiles of AMReX, and a reader of them that goes cell by cell."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

REALS = {
    "<f8": "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))",
    ">f8": "((8, (64 11 52 0 1 12 0 1023)),(8, (1 2 3 4 5 6 7 8)))",
    "<f4": "((8, (32 8 23 0 1 9 0 127)),(4, (4 3 2 1)))",
    ">f4": "((8, (32 8 23 0 1 9 0 127)),(4, (1 2 3 4)))",
}
#: The length of the domain of level 0 along each axis.
LENGTH = 12


@dataclass
class Level:
    """A level: boxes by first cell and the cell after the last, and the elements of each."""

    ratio: list[int]
    shape: list[int]
    boxes: list[tuple[list[int], list[int]]]
    #: For each box an array of components, x, y, z.
    values: list[np.ndarray[Any, Any]] = field(default_factory=list)


@dataclass
class Mesh:
    """The contents of a plotfile."""

    names: list[str]
    dtype: str
    corner: list[int]
    levels: list[Level]
    ghosts: list[int]
    version: int


def any_mesh(seed: int) -> Mesh:
    """Returns a random mesh of 2 or 3 axes."""
    chance = random.Random(seed)
    rank = chance.choice([2, 3])
    version = chance.choice([1, 1, 2, 3, 4])
    shape = [chance.randrange(3, LENGTH) for _ in range(rank)]
    levels = [Level([], shape, boxes_in(chance, shape, [1] * rank, 0.9))]
    for _ in range(chance.randrange(3)):
        last = levels[-1]
        same = chance.choice([2, 2, 3, 4])
        ratio = [same] * rank if chance.random() < 0.6 else chance.choices([1, 2, 3, 4], k=rank)
        shape = [length * by for length, by in zip(last.shape, ratio, strict=True)]
        last.ratio = ratio
        levels.append(Level([], shape, boxes_in(chance, shape, ratio, 0.4)))
    names = ["density", "x velocity", "Y(O2)/é"][: chance.randrange(1, 4)]
    dtype = chance.choice(list(REALS))
    corner = [0] * rank if chance.random() < 0.7 else chance.choices(range(-5, 6), k=rank)
    ghosts = chance.choice([[0] * rank, [1] * rank, chance.choices(range(3), k=rank)])
    numbers = np.random.default_rng(seed)
    for level in levels:
        for start, stop in level.boxes:
            size = [len(names), *(to - at for at, to in zip(start, stop, strict=True))]
            level.values.append(numbers.random(size).astype(dtype))
    return Mesh(names, dtype, corner, levels, ghosts, version)


def boxes_in(
    chance: random.Random, shape: list[int], align: list[int], share: float
) -> list[tuple[list[int], list[int]]]:
    """Returns disjoint boxes of a share of a domain, at least one, in any order."""
    cuts = []
    for length, step in zip(shape, align, strict=True):
        places = sorted(chance.sample(range(step, length, step), min(2, (length - 1) // step)))
        cuts.append([0, *places, length])
    grid = [range(len(cut) - 1) for cut in cuts]
    tiles = [tuple(map(int, place)) for place in np.ndindex(*map(len, grid))]
    kept = [place for place in tiles if chance.random() < share] or tiles[:1]
    chance.shuffle(kept)
    return [
        (
            [cut[at] for cut, at in zip(cuts, place, strict=True)],
            [cut[at + 1] for cut, at in zip(cuts, place, strict=True)],
        )
        for place in kept
    ]


def text_of_box(start: Any, stop: Any, corner: Any) -> str:
    """Returns the text of a box, whose bounds are inclusive."""
    low = ",".join(str(at + by) for at, by in zip(start, corner, strict=True))
    high = ",".join(str(at - 1 + by) for at, by in zip(stop, corner, strict=True))
    return f"(({low}) ({high}) ({','.join('0' * len(corner))}))"


def write(mesh: Mesh, path: Path) -> Path:
    """Writes the plotfile of a mesh."""
    rank = len(mesh.corner)
    ratios, corners = [], [mesh.corner]
    for level in mesh.levels[:-1]:
        is_same = len(set(level.ratio)) == 1
        ratios.append(str(level.ratio[0]) if is_same else f"({','.join(map(str, level.ratio))})")
        corners.append([at * by for at, by in zip(corners[-1], level.ratio, strict=True)])
    domains = [
        text_of_box([0] * rank, level.shape, corner)
        for level, corner in zip(mesh.levels, corners, strict=True)
    ]
    lines = ["HyperCLaw-V1.1", str(len(mesh.names)), *mesh.names, str(rank), "0.25"]
    lines += [str(len(mesh.levels) - 1), " ".join(["0"] * rank), " ".join(["1"] * rank)]
    lines += [" ".join(ratios), " ".join(domains), " ".join(["7"] * len(mesh.levels))]
    lines += [" ".join(str(1 / length) for length in level.shape) for level in mesh.levels]
    lines += ["0", "0"]
    for number, (level, corner) in enumerate(zip(mesh.levels, corners, strict=True)):
        lines += [f"{number} {len(level.boxes)} 0.25", "7"]
        lines += [*places_of_boxes(level), f"Level_{number}/Cell"]
        write_level(mesh, level, corner, path / f"Level_{number}")
    (path / "Header").write_text("\n".join(lines) + "\n", "utf-8")
    return path


def places_of_boxes(level: Level) -> list[str]:
    """Returns the lines of the bounds of boxes, in a domain from 0 to 1."""
    return [
        f"{at / length!r} {to / length!r}"
        for start, stop in level.boxes
        for at, to, length in zip(start, stop, level.shape, strict=True)
    ]


def write_level(mesh: Mesh, level: Level, corner: list[int], directory: Path) -> None:
    """Writes the files of a level: every third box begins a new one."""
    directory.mkdir(parents=True)
    places, files = [], [b""]
    for number, ((start, stop), values) in enumerate(zip(level.boxes, level.values, strict=True)):
        if number % 3 == 2:
            files.append(b"")
        low = [at - ghosts for at, ghosts in zip(start, mesh.ghosts, strict=True)]
        high = [at + ghosts for at, ghosts in zip(stop, mesh.ghosts, strict=True)]
        around = [(0, 0), *((ghosts, ghosts) for ghosts in mesh.ghosts)]
        stored = np.pad(values, around, constant_values=-1e30).astype(mesh.dtype)
        # x is the fastest axis, components are the slowest.
        data = b"".join(component.tobytes("F") for component in stored)
        if mesh.version == 1:
            box = text_of_box(low, high, corner)
            data = f"FAB {REALS[mesh.dtype]}{box} {len(mesh.names)}\n".encode() + data
        places.append(f"FabOnDisk: Cell_D_{len(files) - 1:05} {len(files[-1])}")
        files[-1] += data
    for number, data in enumerate(files):
        (directory / f"Cell_D_{number:05}").write_bytes(data)
    count, names = len(level.boxes), len(mesh.names)
    same = len(set(mesh.ghosts)) == 1
    ghosts = str(mesh.ghosts[0]) if same else f"({','.join(map(str, mesh.ghosts))})"
    lines = [str(mesh.version), "1", str(names), ghosts, f"({count} 0"]
    lines += [text_of_box(start, stop, corner) for start, stop in level.boxes]
    lines += [")", str(count), *places, ""]
    if mesh.version in (1, 3):
        for _ in range(2):
            lines += [f"{count},{names}", *["0," * names] * count, ""]
    if mesh.version == 4:
        lines += ["0," * names] * 2
    if mesh.version > 1:
        lines.append(REALS[mesh.dtype])
    (directory / "Cell_H").write_text("\n".join(lines) + "\n")


def uniform(mesh: Mesh, component: int, finest: int, fill: float) -> np.ndarray[Any, Any]:
    """Returns the domain in cells of a level, cell by cell."""
    found = np.full(mesh.levels[finest].shape, fill, np.dtype(mesh.dtype).newbyteorder("="))
    for number, level in enumerate(mesh.levels[: finest + 1]):
        ratio = np.ones(len(mesh.corner), int)
        for other in mesh.levels[number:finest]:
            ratio *= other.ratio
        for (start, stop), values in zip(level.boxes, level.values, strict=True):
            part = values[component]
            for axis, by in enumerate(ratio):
                part = part.repeat(by, axis)
            found[tuple(map(slice, start * ratio, stop * ratio))] = part
    return found
