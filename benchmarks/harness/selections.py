"""The measured reads, as index tuples that every engine accepts."""

from __future__ import annotations

from math import prod

Part = int | slice
Selection = tuple[Part, ...]


def named_selections(size: int) -> dict[str, Selection]:
    """Returns the reads of a cube of `size`, by name.

    The planes lie in the middle, the box is the middle half of each axis, the series run along one
    axis through an asymmetric point.

    >>> named_selections(8)["centre box"]
    (slice(2, 6, None), slice(2, 6, None), slice(2, 6, None))
    """
    middle, low, high = size // 2, size // 4, size - size // 4
    near, far = (size * 3) // 10, (size * 7) // 10
    whole = slice(0, size)
    return {
        "plane i": (middle, whole, whole),
        "plane j": (whole, middle, whole),
        "plane k": (whole, whole, middle),
        "centre box": (slice(low, high), slice(low, high), slice(low, high)),
        "series i": (whole, near, far),
        "series j": (near, whole, far),
        "series k": (near, far, whole),
        "full": (whole, whole, whole),
    }


def result_shape(selection: Selection) -> tuple[int, ...]:
    """Return the shape that NumPy gives the result: integers drop their axis.

    >>> result_shape((3, slice(0, 4), slice(2, 8)))
    (4, 6)
    """
    return tuple(part.stop - part.start for part in selection if isinstance(part, slice))


def result_bytes(selection: Selection, item_bytes: int = 8) -> int:
    """Return the bytes of the result."""
    return prod(result_shape(selection)) * item_bytes


def bounds(selection: Selection) -> list[tuple[int, int]]:
    """Return the half-open box that encloses the selection, one pair per axis.

    >>> bounds((3, slice(0, 4)))
    [(3, 4), (0, 4)]
    """
    return [
        (part.start, part.stop) if isinstance(part, slice) else (part, part + 1)
        for part in selection
    ]
