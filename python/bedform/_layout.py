"""Layouts: the division of an array into chunks and shards."""

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
    """A regular layout: chunks of one shape, in shards of one shape, in an order.

    Parameters
    ----------
    chunks
        Elements of a chunk along each axis; a chunk is decoded as a whole.
    shards
        Elements of a shard along each axis, a multiple of the chunk's; a shard is written as a
        whole object. By default a shard holds chunks of about 64 MiB together.
    order
        The order of the chunks in a shard.

    Examples
    --------
    >>> Regular(chunks=(1, 90, 180), shards=(24, 90, 180)).order
    'row-major'
    """

    chunks: Sequence[int]
    shards: Sequence[int] | None = None
    order: Order = "row-major"


#: Bytes of a shard if only its chunks are given.
SHARD_BYTES = 64 << 20


def check_layout(layout: Any) -> None:
    """Fails for values that are no layout.

    Raises
    ------
    InvalidArgumentError
        The value is neither ``"auto"`` nor a :class:`Regular`.
    """
    if not isinstance(layout, Regular) and layout != "auto":
        raise InvalidArgumentError(f"layout must be 'auto' or a bedform.Regular, not {layout!r}")


def described_readers(readers: Any) -> str | list[str]:
    """Returns the readers that a layout must suit in the engine's form; it checks the names.

    Raises
    ------
    InvalidArgumentError
        The value contains no names.
    """
    names = [readers] if isinstance(readers, str) else readers
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"readers must be 'any', a name of a reader or a list of names, not {readers!r}"
        )
    return readers if isinstance(readers, str) else list(names)
