"""Decompositions of variables among processes, as in the maps of E3SM-IO.

A map file (netCDF classic, `.nc`, or HDF5, `.h5`) holds decompositions D1, D2, ... of one run. For
each process it has runs of neighbouring elements: the first element, in the variable's flattened
shape, and the length. `read_map` reads a map. `redistribute` divides it among another number of
processes as E3SM-IO does: groups of neighbouring processes, sorted, merged where they touch, cut
where a row ends. `enlarge` makes it larger, `write_map` writes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

DECOMPOSITIONS_MAX = 99
RUNS_MAX = 1 << 28


@dataclass(frozen=True)
class Decomposition:
    """Runs of neighbouring elements of an array of `shape`, by process.

    >>> halves = Decomposition((4,), (np.array([0]), np.array([2])), (np.array([2]), np.array([2])))
    >>> halves.owners().tolist()
    [0, 0, 1, 1]
    """

    shape: tuple[int, ...]
    starts: tuple[Integers, ...]
    lengths: tuple[Integers, ...]

    @property
    def ranks(self) -> int:
        """Return the number of processes."""
        return len(self.starts)

    @property
    def runs(self) -> int:
        """Return the number of runs of all processes."""
        return sum(map(len, self.starts))

    def elements(self, rank: int) -> int:
        """Returns the number of elements of a process."""
        return int(self.lengths[rank].sum())

    def owners(self) -> NDArray[np.int32]:
        """Return the process that holds each element, -1 where there is none."""
        owners = np.full(int(np.prod(self.shape)), -1, np.int32)
        for rank in range(self.ranks):
            owners[elements_of(self.starts[rank], self.lengths[rank])] = rank
        return owners.reshape(self.shape)

    def boxes(self, rank: int) -> tuple[Integers, Integers]:
        """Returns corner and shape of each run of a process; a run never crosses a row's end."""
        corners = np.stack(np.unravel_index(self.starts[rank], self.shape), axis=1)
        shapes = np.ones_like(corners)
        shapes[:, -1] = self.lengths[rank]
        return corners.astype(np.int64), shapes.astype(np.int64)


@dataclass(frozen=True)
class Blocks:
    """Boxes of an array of `shape`, by process, as in block-structured programs.

    >>> corners = np.array([[0, 0]]), np.array([[2, 0]])
    >>> halves = Blocks((4, 2), corners, (np.array([[2, 2]]),) * 2)
    >>> halves.elements(1), halves.owners()[:, 0].tolist()
    (4, [0, 0, 1, 1])
    """

    shape: tuple[int, ...]
    starts: tuple[Integers, ...]
    lengths: tuple[Integers, ...]

    @property
    def ranks(self) -> int:
        """Return the number of processes."""
        return len(self.starts)

    @property
    def runs(self) -> int:
        """Return the number of runs of neighbouring elements of all processes."""
        return sum(runs_of(shape, self.shape) for lengths in self.lengths for shape in lengths)

    def elements(self, rank: int) -> int:
        """Returns the number of elements of a process."""
        return int(np.prod(self.lengths[rank], axis=1).sum())

    def owners(self) -> NDArray[np.int32]:
        """Return the process that holds each element, -1 where there is none."""
        owners = np.full(self.shape, -1, np.int32)
        for rank in range(self.ranks):
            for corner, shape in zip(self.starts[rank], self.lengths[rank], strict=True):
                box = (slice(at, at + n) for at, n in zip(corner, shape, strict=True))
                owners[tuple(box)] = rank
        return owners

    def boxes(self, rank: int) -> tuple[Integers, Integers]:
        """Return corner and shape of each box of a process."""
        return self.starts[rank].astype(np.int64), self.lengths[rank].astype(np.int64)


def runs_of(box: Integers, shape: tuple[int, ...]) -> int:
    """Returns the number of contiguous runs of a box in an array of `shape`.

    >>> runs_of(np.array([2, 3, 4]), (9, 9, 4)), runs_of(np.array([2, 3, 3]), (9, 9, 4))
    (2, 6)
    """
    cut = [axis for axis, length in enumerate(shape) if box[axis] < length]
    return int(np.prod(box[: cut[-1]])) if cut else 1


def elements_of(starts: Integers, lengths: Integers) -> Integers:
    """Returns every element of the given runs.

    >>> elements_of(np.array([4, 0]), np.array([2, 1])).tolist()
    [4, 5, 0]
    """
    ends = np.cumsum(lengths)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return np.asarray(np.repeat(starts, lengths) + within, np.int64)


def merged(starts: Integers, lengths: Integers, row: int) -> tuple[Integers, Integers]:
    """Returns runs sorted, merged where they touch, and cut where a row of `row` elements ends.

    >>> merged(np.array([3, 0, 6]), np.array([3, 3, 1]), 4)
    (array([0, 4]), array([4, 3]))
    """
    elements = np.sort(elements_of(starts, lengths))
    if len(elements) == 0:
        return elements, elements
    breaks = (np.diff(elements) != 1) | (elements[1:] % row == 0)
    first = np.flatnonzero(np.concatenate([[True], breaks]))
    return elements[first], np.diff(np.append(first, len(elements)))


def redistribute(whole: Decomposition, ranks: int) -> Decomposition:
    """Returns the decomposition for another number of processes.

    Each new process takes the elements of neighbouring old ones; if the numbers do not divide, the
    first ones take one more. Processes beyond the original number have no elements.
    """
    share, more = divmod(whole.ranks, ranks)
    starts, lengths, at = [], [], 0
    for rank in range(ranks):
        group = slice(at, at + share + (rank < more))
        at = group.stop
        both = [np.concatenate([*part[group], [0]])[:-1] for part in (whole.starts, whole.lengths)]
        some = merged(*(one.astype(np.int64) for one in both), whole.shape[-1])
        starts.append(some[0])
        lengths.append(some[1])
    return Decomposition(whole.shape, tuple(starts), tuple(lengths))


def enlarge(small: Decomposition, times: int, axis: int) -> Decomposition:
    """Returns the decomposition repeated `times` along `axis`, with more runs of the same lengths.

    >>> small = Decomposition((2, 2), (np.array([1, 2]),), (np.array([1, 1]),))
    >>> enlarge(small, 2, axis=1).starts[0].tolist()
    [1, 3, 4, 6]
    """
    shape = list(small.shape)
    shape[axis] *= times
    starts, lengths = [], []
    for rank in range(small.ranks):
        at = np.stack(np.unravel_index(small.starts[rank], small.shape))
        copies = []
        for copy in range(times):
            moved = at.copy()
            moved[axis] += copy * small.shape[axis]
            copies.append(np.ravel_multi_index(tuple(moved), tuple(shape)))
        all_starts = np.concatenate(copies)
        order = np.argsort(all_starts)
        starts.append(all_starts[order].astype(np.int64))
        lengths.append(np.tile(small.lengths[rank], times)[order])
    return Decomposition(tuple(shape), tuple(starts), tuple(lengths))


def read_map(path: Path) -> list[Decomposition]:
    """Returns D1, D2, ... of a map file, without the runs of fill values.

    Raises
    ------
    ValueError
        The file is not a map, or its numbers contradict each other.
    """
    with opened(path) as (attributes, variables):
        found = []
        for number in range(1, DECOMPOSITIONS_MAX):
            name = f"D{number}."
            if name + "offsets" not in variables:
                break
            shape = tuple(int(n) for n in np.atleast_1d(attributes[name + "dims"]))
            found.append(decomposition_of(path, name, shape, variables))
    if not found:
        raise ValueError(f"{path} is no map of decompositions: it has no variable D1.offsets")
    return found


def decomposition_of(
    path: Path, name: str, shape: tuple[int, ...], variables: dict[str, Integers]
) -> Decomposition:
    """Return one decomposition of a map, checked."""
    counts = variables[name + "nreqs"]
    # From this index on, a process's runs are fill values, which no process writes.
    written = variables.get(name + "fill_starts", counts)
    offsets, lengths = variables[name + "offsets"], variables[name + "lengths"]
    size = int(np.prod(shape))
    is_sound = (
        len(offsets) == len(lengths) == counts.sum() <= RUNS_MAX
        and np.all((written >= 0) & (written <= counts))
        and np.all((offsets >= 0) & (lengths > 0) & (offsets + lengths <= size))
    )
    if not is_sound:
        raise ValueError(f"{path}: the numbers of {name[:-1]} contradict each other")
    firsts = np.cumsum(counts) - counts
    parts = [slice(int(at), int(at + n)) for at, n in zip(firsts, written, strict=True)]
    return Decomposition(
        shape, tuple(offsets[part] for part in parts), tuple(lengths[part] for part in parts)
    )


@contextmanager
def opened(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Integers]]]:
    """Yields the attributes and variables of a map file of either format."""
    wanted = ("nreqs", "fill_starts", "offsets", "lengths")
    with dataset_of(path) as file:
        is_hdf5 = path.suffix == ".h5"
        variables = file if is_hdf5 else file.variables
        names = list(file.attrs) if is_hdf5 else file.ncattrs()
        yield (
            {name: file.attrs[name] if is_hdf5 else file.getncattr(name) for name in names},
            {
                name: np.asarray(variable[...], np.int64).reshape(-1)
                for name, variable in variables.items()
                if name.rpartition(".")[2] in wanted
            },
        )


def dataset_of(path: Path) -> Any:
    """Return the open file, by the library of its format."""
    if path.suffix == ".h5":
        import h5py

        return h5py.File(path)
    import netCDF4

    file = netCDF4.Dataset(path)
    file.set_auto_mask(False)
    return file


def write_map(path: Path, decompositions: list[Decomposition]) -> None:
    """Write a map file that E3SM-IO reads: netCDF with 64-bit data, or HDF5 by the name."""
    numbers = {f"D{n}": one for n, one in enumerate(decompositions, 1)}
    sizes = {"num_decomp": len(numbers), "decomp_nprocs": decompositions[0].ranks}
    attributes: dict[str, Any] = {}
    variables: dict[str, tuple[str, Integers]] = {}
    for name, one in numbers.items():
        counts = np.array([len(starts) for starts in one.starts])
        sizes[f"{name}.total_nreqs"] = one.runs
        attributes[f"{name}.ndims"] = np.int32(len(one.shape))
        attributes[f"{name}.dims"] = np.array(one.shape, np.int32)
        attributes[f"{name}.max_nreqs"] = np.int32(counts.max())
        attributes[f"{name}.min_nreqs"] = np.int32(counts.min())
        for key, values in (("nreqs", counts), ("fill_starts", counts)):
            variables[f"{name}.{key}"] = ("decomp_nprocs", values)
        for key, parts in (("offsets", one.starts), ("lengths", one.lengths)):
            variables[f"{name}.{key}"] = (f"{name}.total_nreqs", np.concatenate(parts))
    if path.suffix == ".h5":
        write_hdf5(path, sizes, attributes, variables)
    else:
        write_netcdf(path, sizes, attributes, variables)


def write_hdf5(
    path: Path,
    sizes: dict[str, int],
    attributes: dict[str, Any],
    variables: dict[str, tuple[str, Integers]],
) -> None:
    """Write the parts of a map as HDF5; lengths of dimensions are attributes of the file."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, size in sizes.items():
            file.attrs[f"-DIM_{name}"] = np.uint64(size)
        for name, value in attributes.items():
            file.attrs[name] = np.atleast_1d(value)
        for name, (_, values) in variables.items():
            file.create_dataset(name, data=values.astype(np.int32))


def write_netcdf(
    path: Path,
    sizes: dict[str, int],
    attributes: dict[str, Any],
    variables: dict[str, tuple[str, Integers]],
) -> None:
    """Write the parts of a map as classic netCDF."""
    import netCDF4

    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
        for name, size in sizes.items():
            file.createDimension(name, size)
        for name, value in attributes.items():
            file.setncattr(name, value)
        made = [
            (file.createVariable(name, "i4", (dimension,)), values)
            for name, (dimension, values) in variables.items()
        ]
        for variable, values in made:
            variable[:] = values.astype(np.int32)
