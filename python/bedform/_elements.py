"""What users give as elements, as the engine takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bedform._errors import InvalidArgumentError, check_text

AnyArray = npt.NDArray[Any]


def type_of(dtype: Any) -> np.dtype[Any]:
    """The type that a user means.

    Raises
    ------
    InvalidArgumentError
        NumPy knows none.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"there is no type {dtype!r}") from None
    return found


def numpy_type(described: Any) -> np.dtype[Any]:
    """The type that the engine describes: by NumPy's name, or by a list of fields."""
    if isinstance(described, str):
        return np.dtype(described)
    return np.dtype([_field(field) for field in described])


def _field(field: list[Any]) -> tuple[Any, ...]:
    name, kind, *shape = field
    shapes = (tuple(part) if isinstance(part, list) else part for part in shape)
    return (name, kind if isinstance(kind, str) else [_field(inner) for inner in kind], *shapes)


class Elements:
    """Conversions to the elements of an array at ``path``, with this type."""

    def __init__(self, path: str, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        self._is_text = dtype.hasobject

    def converted(self, value: Any) -> AnyArray:
        """``value`` as elements of the array; only conversions that NumPy's assignment makes.

        Raises
        ------
        InvalidArgumentError
            There are masked elements, of which nobody knows what to store; or the type is one that
            the array cannot hold. Times (``datetime64``) are no numbers: what they count, and from
            when, would be lost.
        """
        # Before anything is made of the value: NumPy takes what is masked in a list for NaN.
        masked = _masked(value)
        try:
            # Some hand over masked arrays as their elements.
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
        # Plain objects whose type NumPy only guesses are converted below, or refused by it.
        plain = not hasattr(value, "dtype")
        refused = ("SUmM" if plain else "OSUTmM").replace(self._dtype.kind, "")
        if data.size and refused and data.dtype.kind in refused:
            raise InvalidArgumentError(f"{self._path} holds {self._dtype}, not {data.dtype}")
        if data.dtype.kind == "c" and self._dtype.kind != "c":
            raise InvalidArgumentError(
                f"{self._path} holds {self._dtype}: the imaginary part is lost"
            )
        try:
            # From the value itself: a list of large integers is one of floats to NumPy.
            return np.asarray(value if plain else data, dtype=self._dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{self._path} holds {self._dtype}: {error}") from None

    def _array_of(self, value: Any) -> AnyArray:
        # Of plain texts NumPy's own type of text would lose the NULs at their ends.
        if self._is_text and not hasattr(value, "dtype"):
            return np.array(value, dtype=object)
        return np.asanyarray(value)

    def flat(self, data: AnyArray) -> Any:
        """Converted elements in C order: bytes, or a list of texts."""
        if self._is_text:
            return [self._text_of(element) for element in data.reshape(-1)]
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def _text_of(self, element: Any) -> str:
        # Anything else would be stored as what it prints, which nobody can read back.
        if isinstance(element, str):
            return check_text(element, f"{self._path}: the text")
        raise InvalidArgumentError(
            f"{self._path} holds text, not {type(element).__name__}: convert the values first"
        )


def _masked(value: Any) -> int:
    """How many elements are masked, also of masked arrays in lists."""
    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(value).sum())
    if isinstance(value, (list, tuple)):
        nested = (list, tuple, np.ma.MaskedArray)
        return sum(_masked(entry) for entry in value if isinstance(entry, nested))
    return 0
