"""Conversion of users' values to elements for the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bedform._errors import InvalidArgumentError, check_text

AnyArray = npt.NDArray[Any]


def type_of(dtype: Any) -> np.dtype[Any]:
    """Returns NumPy's type for a type argument.

    Raises
    ------
    InvalidArgumentError
        NumPy has no such type.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"there is no type {dtype!r}") from None
    return found


def numpy_type(described: Any) -> np.dtype[Any]:
    """Returns the engine's type, given as NumPy's name or a list of fields."""
    if isinstance(described, str):
        return np.dtype(described)
    return np.dtype([_field(field) for field in described])


def _field(field: list[Any]) -> tuple[Any, ...]:
    name, kind, *shape = field
    shapes = (tuple(part) if isinstance(part, list) else part for part in shape)
    return (name, kind if isinstance(kind, str) else [_field(inner) for inner in kind], *shapes)


class ElementConverter:
    """Converter of values to elements of one type, for the array at ``path``."""

    def __init__(self, path: str, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        self._is_text = dtype.hasobject

    def converted(self, value: Any) -> AnyArray:
        """Converts ``value`` to elements, as NumPy's assignment does, but never out of range.

        A float becomes an integer without its fraction, and loses digits in a smaller float.

        Raises
        ------
        InvalidArgumentError
            The values have masked elements, whose stored value is undefined. Or the array cannot
            hold their type: times (``datetime64``), for example, would lose unit and epoch. Or it
            holds integers, and a value is out of their range, or not finite.
        """
        # Checked first, since NumPy turns masked elements of a list into NaN.
        masked = _masked(value)
        try:
            # Some objects return masked arrays when they are converted.
            data = self._array_of(value) if not masked else np.empty(())
            masked = masked or _masked(data)
            data = np.asarray(data)
        except ValueError as error:
            raise InvalidArgumentError(f"{self._path} holds {self._dtype}: {error}") from None
        if masked:
            elements = "1 masked element" if masked == 1 else f"{masked} masked elements"
            pronoun = "it" if masked == 1 else "them"
            raise InvalidArgumentError(
                f"the values for {self._path} have {elements}; fill {pronoun} first: "
                "values.filled(...)"
            )
        if self._is_text:
            return data.astype(object)
        # NumPy only guesses the type of plain objects: the conversion below decides.
        plain = not hasattr(value, "dtype")
        refused = ("SUmM" if plain else "OSUTmM").replace(self._dtype.kind, "")
        if data.size and refused and data.dtype.kind in refused:
            raise InvalidArgumentError(f"{self._path} holds {self._dtype}, not {data.dtype}")
        if data.dtype.kind == "c" and self._dtype.kind != "c":
            raise InvalidArgumentError(
                f"{self._path} holds {self._dtype}: the imaginary part is lost"
            )
        is_checked = self._is_checked(data)
        try:
            # From the original value, since NumPy makes floats of a list of large integers.
            with np.errstate(all="ignore" if is_checked else None):
                converted = np.asarray(value if plain else data, dtype=self._dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{self._path} holds {self._dtype}: {error}") from None
        if is_checked:
            self._check_kept(data, converted)
        return converted

    def _is_checked(self, data: AnyArray) -> bool:
        """Whether numbers of ``data`` could be out of the range of the elements."""
        source, target = data.dtype.kind, self._dtype.kind
        if (source in "iuf" and target in "iu") or (source in "iu" and target == "f"):
            return not np.can_cast(data.dtype, self._dtype, "safe")
        return False

    def _check_kept(self, data: AnyArray, converted: AnyArray) -> None:
        """Fails unless all numbers of ``data`` are in range."""
        if self._dtype.kind == "f":
            # Rounded, but not to infinity.
            kept = np.isfinite(converted)
        elif data.dtype.kind == "f":
            kept = _is_within_range(data, self._dtype)
        else:
            kept = converted == data
        if not kept.all():
            lost = np.broadcast_to(data, kept.shape)[~kept].flat[0]
            raise InvalidArgumentError(
                f"{self._path} holds {self._dtype}, which has no {lost}: convert the values first"
            )

    def _array_of(self, value: Any) -> AnyArray:
        # NumPy's own text type would strip NULs at the ends of plain texts.
        if self._is_text and not hasattr(value, "dtype"):
            return np.array(value, dtype=object)
        return np.asanyarray(value)

    def flat(self, data: AnyArray) -> Any:
        """Returns converted elements in C order: bytes, or a list of texts."""
        if self._is_text:
            return [self._text_of(element) for element in data.reshape(-1)]
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def _text_of(self, element: Any) -> str:
        # Other objects would be stored in their printed form, which cannot be read back.
        if isinstance(element, str):
            return check_text(element, f"{self._path}: the text")
        raise InvalidArgumentError(
            f"{self._path} holds text, not {type(element).__name__}: convert the values first"
        )


def _is_within_range(data: AnyArray, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Returns where floats without their fractions lie in the range of integers."""
    limits = np.iinfo(dtype)
    # Of 64 bits, since small floats do not represent the ends.
    least, end = np.float64(limits.min), np.float64(2) ** (limits.bits - (dtype.kind == "i"))
    whole = np.trunc(data)
    return (whole >= least) & (whole < end)


def _masked(value: Any) -> int:
    """Returns the number of masked elements, including masked arrays in lists."""
    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(value).sum())
    if isinstance(value, (list, tuple)):
        nested = (list, tuple, np.ma.MaskedArray)
        return sum(_masked(entry) for entry in value if isinstance(entry, nested))
    return 0
