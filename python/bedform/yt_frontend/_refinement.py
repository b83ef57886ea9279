"""Ratios of refinement for yt, which has one for all levels and axes."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from bedform._errors import UnsupportedError

if TYPE_CHECKING:
    from bedform._mesh import RefinedMesh


def refinement(mesh: RefinedMesh) -> tuple[int, list[int]]:
    """Return the ratio for yt, and the number that each level has there.

    Where ratios differ and are powers of one number, it is the ratio, and numbers of levels are
    left out: levels of the ratios 4 and 2 are 0, 2 and 3.

    Raises
    ------
    UnsupportedError
        Ratios differ by axis, or are no powers of one number.
    """
    ratios = [mesh.ratio(level) for level in range(mesh.levels - 1)]
    if not ratios:
        return 2, [0]
    for level, ratio in enumerate(ratios):
        if len(set(ratio)) > 1 or ratio[0] < 2:
            raise UnsupportedError(
                f"{mesh.path}: level {level} is refined by {' x '.join(map(str, ratio))}; yt needs "
                "the same ratio, 2 or more, along all axes"
            )
    each = [ratio[0] for ratio in ratios]
    bases = [each[0]] if len(set(each)) == 1 else range(2, min(each) + 1)
    for base in bases:
        powers = [_power(ratio, base) for ratio in each]
        if all(powers):
            return base, [0, *accumulate(powers)]
    raise UnsupportedError(
        f"{mesh.path}: levels are refined by {', '.join(map(str, each))}; yt needs powers of one "
        "number"
    )


def _power(number: int, base: int) -> int:
    """Returns the exponent of a power of a base; 0 for other numbers."""
    power = 1
    while base**power < number:
        power += 1
    return power if base**power == number else 0
