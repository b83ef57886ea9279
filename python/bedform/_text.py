"""Parsers for typed text (selections, sizes, times, mixes of reads), and formatters.

No text is evaluated as code. Every error names the wrong part and the right form.
"""

from __future__ import annotations

import re
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from bedform import _internal
from bedform._errors import InvalidArgumentError, engine_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedform._elements import AnyArray

Index = int | slice | EllipsisType

# As many digits as a line of a terminal has: larger numbers than any axis are out of bounds.
_INTEGER = re.compile(r"[+-]?\d{1,100}")
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|min|h|d)?")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def parse_selection(text: str, shape: Sequence[int] | None = None) -> tuple[Index, ...]:
    """Read a selection written as inside NumPy's brackets.

    Parameters
    ----------
    text
        One entry per dimension, separated by commas: an integer, ``start:stop``,
        ``start:stop:step`` or ``:``. One ``...`` stands for all missing ``:``; ``()``, NumPy's key
        of a scalar, does the same.
    shape
        If given, the selection is checked against it.

    Raises
    ------
    InvalidArgumentError
        The text is not a selection, or does not fit the shape.

    Examples
    --------
    >>> parse_selection("10,:,200:300")
    (10, slice(None, None, None), slice(200, 300, None))
    >>> parse_selection("..., -1", shape=(4, 5))
    (Ellipsis, -1)
    """
    body = text.strip()
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1].strip()
    if body == "()":
        return ()
    if not body:
        if shape is not None and len(shape) > 0:
            raise InvalidArgumentError(
                f"selection {text!r} is empty: write one entry per dimension, or ..."
            )
        return ()
    parts = body.removesuffix(",").split(",")
    selection = tuple(_parse_index(part.strip(), text) for part in parts)
    if sum(entry is Ellipsis for entry in selection) > 1:
        raise InvalidArgumentError(f"selection {text!r} has more than one '...': keep one")
    if shape is not None:
        _check_fits(selection, shape, text)
    return selection


def _parse_index(part: str, text: str) -> Index:
    if part == "...":
        return Ellipsis
    if _INTEGER.fullmatch(part):
        return int(part)
    bounds = [bound.strip() for bound in part.split(":")]
    if len(bounds) in (2, 3) and all(not bound or _INTEGER.fullmatch(bound) for bound in bounds):
        values = [int(bound) if bound else None for bound in bounds]
        if len(values) == 3 and values[2] == 0:
            raise InvalidArgumentError(
                f"selection {text!r}: the step of {part!r} is 0: a step is not zero"
            )
        return slice(*values)
    raise InvalidArgumentError(
        f"selection {text!r}: {part!r} is not an index: write an integer, start:stop, "
        "start:stop:step, : or ..."
    )


def _check_fits(selection: tuple[Index, ...], shape: Sequence[int], text: str) -> None:
    entries = [entry for entry in selection if entry is not Ellipsis]
    if len(entries) > len(shape):
        raise InvalidArgumentError(
            f"selection {text!r} has {len(entries)} entries, the array has {len(shape)} "
            f"dimensions: its shape is {format_shape(shape)}"
        )
    split = next((at for at, e in enumerate(selection) if e is Ellipsis), len(selection))
    dimensions = [*range(split), *range(len(shape) - (len(entries) - split), len(shape))]
    for entry, dimension in zip(entries, dimensions, strict=True):
        length = shape[dimension]
        if isinstance(entry, int) and not -length <= entry < length:
            raise InvalidArgumentError(
                f"selection {text!r}: index {entry} is out of bounds for dimension {dimension}, "
                f"whose length is {length}"
            )


def parse_bytes(text: str) -> int:
    """Read a size such as ``256 MiB``, ``1.5 GiB``, ``10GB`` or ``4096``: as the engine does.

    Raises
    ------
    InvalidArgumentError
        The text is not a size.

    Examples
    --------
    >>> parse_bytes("1.5 GiB")
    1610612736
    >>> parse_bytes("10kB")
    10000
    """
    return engine_call(_internal.parse_size)(text)


def parse_seconds(text: str) -> float:
    """Read a time such as ``90``, ``90s``, ``15 min``, ``1h`` or ``2d``, in seconds.

    Raises
    ------
    InvalidArgumentError
        The text is not a time.

    Examples
    --------
    >>> parse_seconds("1.5h")
    5400.0
    """
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise InvalidArgumentError(
            f"{text!r} is not a time: write a number and a unit, such as 1h or 30 min"
        )
    return float(found[1]) * _SECONDS[found[2] or "s"]


def parse_shape(text: str) -> tuple[int, ...]:
    """Read a shape such as ``365,721,1440`` or ``365x721x1440``.

    Raises
    ------
    InvalidArgumentError
        An entry is not a whole number.

    Examples
    --------
    >>> parse_shape("365x721x1440")
    (365, 721, 1440)
    """
    lengths = text.strip().strip("()").removesuffix(",")
    parts = [part.strip() for part in lengths.split("," if "," in lengths else "x")]
    for part in parts:
        if not re.fullmatch(r"\d{1,18}", part):
            raise InvalidArgumentError(
                f"shape {text!r}: {part!r} is not a length: write 365,721,1440"
            )
    return tuple(int(part) for part in parts)


def parse_reads(
    entries: Iterable[str], dims: Sequence[str] | None = None
) -> dict[tuple[str, ...], float]:
    """Read the mix of reads, one entry per kind: the spanned axes, and the weight.

    Raises
    ------
    InvalidArgumentError
        An entry is malformed, or names a dimension that is not in ``dims``.

    Examples
    --------
    >>> parse_reads(["lat,lon=0.7", "time=0.3"])
    {('lat', 'lon'): 0.7, ('time',): 0.3}
    >>> parse_reads(["time"])
    {('time',): 1.0}
    """
    reads: dict[tuple[str, ...], float] = {}
    for entry in entries:
        axes_text, _, weight_text = entry.partition("=")
        axes = tuple(axis.strip() for axis in axes_text.split(",") if axis.strip())
        try:
            weight = float(weight_text) if weight_text else 1.0
        except ValueError:
            axes = ()
        if not axes:
            raise InvalidArgumentError(
                f"reads {entry!r}: write the dimensions that a read spans and its weight, "
                "such as lat,lon=0.7"
            )
        if not 0 < weight < float("inf"):
            raise InvalidArgumentError(
                f"reads {entry!r}: the weight must be a positive number, such as lat,lon=0.7"
            )
        for axis in axes:
            if dims is not None and axis not in dims:
                raise InvalidArgumentError(
                    f"reads {entry!r}: there is no dimension {axis!r}: the dimensions are "
                    f"{', '.join(dims) or 'none'}"
                )
        if axes in reads:
            raise InvalidArgumentError(
                f"reads {entry!r}: {','.join(axes)} is given twice: add the weights"
            )
        reads[axes] = weight
    return reads


def format_bytes(count: float) -> str:
    """Write a size as people read it.

    Examples
    --------
    >>> format_bytes(1536), format_bytes(12)
    ('1.5 KiB', '12 B')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Write a duration with three digits and the unit that fits.

    Examples
    --------
    >>> format_seconds(0.0123), format_seconds(12.3456), format_seconds(1100)
    ('12.3 ms', '12.3 s', '18.3 min')
    """
    for scale, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        # Below two of them the smaller unit says more.
        if seconds >= 2 * scale:
            count = seconds / scale
            return f"{count:,.0f} {unit}" if count >= 100 else f"{count:.3g} {unit}"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def format_shape(shape: Sequence[int]) -> str:
    """Write a shape as its lengths between crosses.

    Examples
    --------
    >>> format_shape((3, 4)), format_shape(())
    ('3 x 4', 'scalar')
    """
    return " x ".join(str(length) for length in shape) or "scalar"


def format_elements(values: AnyArray) -> list[str]:
    """Format the elements of an array; times have the form of ISO 8601, to the second if they fit.

    >>> format_elements(np.array(["2020-01-01T12", "NaT"], "M8[ns]"))
    ['2020-01-01T12:00:00', 'NaT']
    >>> format_elements(np.array([0.1, np.nan], "f4"))
    ['0.1', 'nan']
    """
    if values.dtype.kind == "M":
        seconds = values.astype("M8[s]")
        is_whole = bool((np.isnat(values) | (seconds == values)).all())
        return [str(text) for text in np.datetime_as_string(seconds if is_whole else values)]
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    texts: list[str] = values.astype(str).tolist()
    return texts
