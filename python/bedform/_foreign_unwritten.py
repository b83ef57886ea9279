"""Elements of variable length whose chunks were never written.

HDF5 makes the fill value of such a chunk in the file, even for a read, unless the fill value is
empty: a file that is open for reading only gives an error ("no write intent"). Here the chunks that
exist are read, and the others are the fill value, as the NetCDF library reads them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["fill_element", "read_elements"]

#: The message of HDF5 for a fill value that it cannot make.
_NO_WRITE_INTENT: Final = "no write intent"


def fill_element(dataset: h5py.Dataset) -> Any:
    """Returns the element in places that were never written: text as `str`."""
    fill = dataset.fillvalue
    text = h5py.check_string_dtype(dataset.dtype)
    if text is None or text.length is not None:
        return fill
    return fill.decode("utf-8", "surrogateescape") if isinstance(fill, bytes) else ""


def read_elements(dataset: h5py.Dataset, source: Any, selection: Any) -> npt.NDArray[Any]:
    """Reads a selection of a dataset; chunks that were never written are the fill value.

    Parameters
    ----------
    dataset
        The dataset.
    source
        The dataset, or its view as text.
    selection
        Integers and slices with positive steps, as in NumPy's basic indexing.

    Raises
    ------
    OSError
        HDF5 cannot read the selection.
    """
    try:
        return np.asarray(source[selection])
    except OSError as error:
        if _NO_WRITE_INTENT not in str(error) or dataset.chunks is None:
            raise
    slices = selection if isinstance(selection, tuple) else (selection,)
    if not all(isinstance(part, slice) for part in slices) or len(slices) != dataset.ndim:
        whole = _read_chunks(dataset, source, (slice(None),) * dataset.ndim)
        return np.asarray(whole[selection])
    return _read_chunks(dataset, source, slices)


def _read_chunks(dataset: h5py.Dataset, source: Any, slices: tuple[slice, ...]) -> npt.NDArray[Any]:
    """Reads the chunks that exist one by one."""
    positions = [range(size)[part] for part, size in zip(slices, dataset.shape, strict=True)]
    values = np.full([len(axis) for axis in positions], fill_element(dataset), dataset.dtype)
    parts = [list(_parts(*axis)) for axis in zip(positions, dataset.chunks, strict=True)]
    for cell in itertools.product(*parts):
        corner = tuple(start for start, _, _ in cell)
        if dataset.id.get_chunk_info_by_coord(corner).byte_offset is not None:
            read, target = (tuple(part[at] for part in cell) for at in (1, 2))
            values[target] = source[read]
    return values


def _parts(positions: range, length: int) -> Iterator[tuple[int, slice, slice]]:
    """Iterates over the chunks that positions of an axis touch.

    Each is the first position of the chunk, the slice of the dataset, and that of the result.
    """
    at = 0
    while at < len(positions):
        first = positions[at]
        start = first - first % length
        count = min(len(range(first, start + length, positions.step)), len(positions) - at)
        end = first + positions.step * (count - 1) + 1
        yield start, slice(first, end, positions.step), slice(at, at + count)
        at += count
