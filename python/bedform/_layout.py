"""Layouts: how the elements of an array become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bedform._errors import InvalidArgumentError

Order = Literal["row-major", "column-major", "z", "hilbert"]
#: ``"any"``, the name of a reader, or a list of them: "bedform", "zarr-python".
Readers = str | Sequence[str]


@dataclass(frozen=True)
class Regular:
    """Chunks of one shape, in shards of one shape, in an order.

    Parameters
    ----------
    chunks
        Elements of a chunk along each axis: what is decoded as a whole.
    shards
        Elements of a shard along each axis, a multiple of the chunk's: the object that is written
        as a whole. Without it a shard holds as many chunks as make about 64 MiB.
    order
        How the chunks of a shard follow each other.

    Examples
    --------
    >>> Regular(chunks=(1, 90, 180), shards=(24, 90, 180)).order
    'row-major'
    """

    chunks: Sequence[int]
    shards: Sequence[int] | None = None
    order: Order = "row-major"


#: Bytes of a shard whose chunks alone were chosen.
SHARD_BYTES = 64 << 20


def check_layout(layout: Any) -> None:
    """Fail for what is no layout.

    Raises
    ------
    InvalidArgumentError
        It is neither ``"auto"`` nor a :class:`Regular`.
    """
    if not isinstance(layout, Regular) and layout != "auto":
        raise InvalidArgumentError(f"layout must be 'auto' or a bedform.Regular, not {layout!r}")


def described_readers(readers: Any) -> str | list[str]:
    """Which readers a layout has to suit, as the engine takes it, which knows their names.

    Raises
    ------
    InvalidArgumentError
        They are no names.
    """
    names = [readers] if isinstance(readers, str) else readers
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"readers must be 'any', a name of a reader or a list of names, not {readers!r}"
        )
    return readers if isinstance(readers, str) else list(names)
