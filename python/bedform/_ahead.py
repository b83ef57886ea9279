"""Reads before they are asked for: what a user says of them, and what became of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bedform._errors import InvalidArgumentError
from bedform._integers import byte_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedform import _internal


def prefetch_option(prefetch: Any) -> Any:
    """``"auto"``, ``False`` or bytes, as the engine takes them.

    Raises
    ------
    InvalidArgumentError
        It is none of these.
    """
    if prefetch is None or isinstance(prefetch, bool):
        return "auto" if prefetch is not False else False
    if prefetch in ("auto", "off"):
        return prefetch
    return byte_count(prefetch, "prefetch")


class ReadsAhead:
    """What a store or file knows of reads ahead."""

    #: The arrays that the last list has reads of.
    _listed: frozenset[str] = frozenset()

    if TYPE_CHECKING:

        @property
        def _inner(self) -> _internal.Store | _internal.ForeignFile: ...

        def _array_at(self, path: str) -> Any: ...

        def __contains__(self, path: object) -> bool: ...

    def prefetch(self, selections: Mapping[str, Sequence[Any]] | Iterable[tuple[str, Any]]) -> None:
        """Read ahead what is said to come, in this order, as it is used.

        For a program that knows what it will read, such as a training loop over shuffled samples.
        Returns at once: a thread in the background reads the next few, as many as the limit
        ``prefetch`` of :func:`bedform.open` holds, and more as each is asked for. Reads that are
        not in the list are made as ever. Another call takes the place of what was left.

        Parameters
        ----------
        selections
            Pairs of the path of an array and a selection, as inside the brackets; or for each path
            a list of selections.

        Raises
        ------
        OutOfBoundsError
            A selection leaves its array.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("t", data=np.arange(80.0).reshape(8, 10))
        >>> order = [5, 2, 7]
        >>> store.prefetch([("t", np.s_[row]) for row in order])
        >>> [float(store["t"][row].sum()) for row in order]
        [545.0, 245.0, 745.0]
        """
        by_path: dict[str, list[Any]] = {path: [] for path in self._listed}
        for path, chosen in _pairs(selections):
            by_path.setdefault(path, []).append(chosen)
        for path, chosen in by_path.items():
            if chosen or path in self:
                self._array_at(path)._foresee(chosen)
        self._listed = frozenset(path for path, chosen in by_path.items() if chosen)

    def stats(self) -> dict[str, Any]:
        """What the reads of this handle did, in ``"prefetch"`` what was read ahead.

        Returns
        -------
        dict
            ``reads`` and ``read_bytes`` that were followed; how many were ``foreseen``; ``used``,
            and ``used_bytes``, that came from a read ahead; how many ``waited`` for one that was
            under way; ``prefetched_bytes``, read ahead in all, and ``wasted_bytes``, not used; how
            many reads are ``ahead`` now, and ``ready``; and as shares ``used_of_prefetched`` and
            ``prefetched_of_read``.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("t", data=np.eye(4))[0]
        >>> store.stats()["prefetch"]["reads"]
        1
        """
        counts: dict[str, Any] = json.loads(self._inner.prefetch_statistics())
        used = counts["used_bytes"]
        counts["used_of_prefetched"] = _share(used, counts["prefetched_bytes"])
        counts["prefetched_of_read"] = _share(used, counts["read_bytes"])
        return {"prefetch": counts}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pairs(selections: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(selections, "items"):
        return [(path, one) for path, chosen in selections.items() for one in chosen]
    pairs = list(selections)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidArgumentError(
                f"prefetch takes pairs of the path of an array and a selection, not {pair!r}"
            )
    return pairs
