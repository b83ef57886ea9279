"""Readahead of stores and files: the option ``prefetch``, lists of coming reads, counts."""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

from bedform._errors import BedformError, InvalidArgumentError
from bedform._integers import byte_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedform import _internal

_VARIABLE = "BEDFORM_PREFETCH"
_TAKES = 'prefetch takes pairs of the path of an array and a selection, such as [("t", np.s_[3])]'
#: Words that ``BEDFORM_PREFETCH`` may hold besides a size.
_WORDS = frozenset({"", "auto", "true", "off", "false"})


#: Value of ``prefetch=`` for reads that no user asked for: not followed, read ahead or recorded.
UNFOLLOWED = object()


def prefetch_option(prefetch: Any) -> Any:
    """Returns ``"auto"``, ``False`` or a number of bytes for the engine.

    Raises
    ------
    InvalidArgumentError
        ``prefetch`` is none of these.
    """
    if prefetch is UNFOLLOWED:
        return False
    if prefetch is None or isinstance(prefetch, bool):
        prefetch = "auto" if prefetch is not False else False
    if prefetch is False or (isinstance(prefetch, str) and prefetch in ("auto", "off")):
        if prefetch == "auto":
            _warn_of_variable()
        return prefetch
    try:
        return byte_count(prefetch, "prefetch")
    except InvalidArgumentError:
        if not isinstance(prefetch, str):
            raise
        raise InvalidArgumentError(
            f'prefetch: "{prefetch}" is not "auto", "off" or a size such as "64 MiB"'
        ) from None


def _warn_of_variable() -> None:
    """Warns that an invalid ``BEDFORM_PREFETCH`` is ignored; it must not stop a read."""
    said = os.environ.get(_VARIABLE, "").strip()
    if said in _WORDS:
        return
    try:
        byte_count(said, _VARIABLE)
    except InvalidArgumentError:
        warnings.warn(
            f'{_VARIABLE}: "{said}" is ignored: it is not "auto", "off" or a size such as "64 MiB"',
            stacklevel=4,
        )


class ReadaheadMixin:
    """Mixin of stores and foreign files: readahead by lists, and counts of reads."""

    #: Paths of the arrays with selections in the last list.
    _listed: frozenset[str] = frozenset()

    if TYPE_CHECKING:

        @property
        def _inner(self) -> _internal.Store | _internal.ForeignFile: ...

        def _array_at(self, path: str) -> Any: ...

        def __contains__(self, path: object) -> bool: ...

    def prefetch(self, selections: Mapping[str, Sequence[Any]] | Iterable[tuple[str, Any]]) -> None:
        """Read the listed selections ahead, in this order, as the program consumes them.

        For a program that knows its reads, such as a training loop over shuffled samples. Returns
        at once. A background thread reads the next few selections, up to the limit ``prefetch`` of
        :func:`bedform.open`, and more as each is used. Reads that are not in the list work as
        usual. Another call replaces the rest of the list.

        All threads can use the listed reads, also with ``prefetch="auto"``, which otherwise follows
        only the main thread. With ``prefetch=False`` nothing is read ahead.

        Parameters
        ----------
        selections
            Pairs of an array's path and a selection, as inside the brackets; or a mapping of paths
            to lists of selections.

        Raises
        ------
        NotFoundError
            An array of the list does not exist.
        OutOfBoundsError
            A selection leaves its array.
        InvalidArgumentError
            The value is neither a list of pairs nor lists of selections by path.

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
        # If one is refused, the earlier arrays keep their lists; the next call replaces those.
        self._listed = frozenset(by_path)
        for path, chosen in by_path.items():
            if chosen or path in self:
                self._foresee_at(path, chosen)
        self._listed = frozenset(path for path, chosen in by_path.items() if chosen)

    def _foresee_at(self, path: str, chosen: list[Any]) -> None:
        array = self._array_at(path)
        try:
            array._foresee(chosen)
        except BedformError as error:
            # The list may be long: the message names the array.
            raise type(error)(f"prefetch of {path}: {error}") from None

    def stats(self) -> dict[str, Any]:
        """Returns counts of this handle's reads: ``"prefetch"`` for readahead, ``"replicas"``.

        Returns
        -------
        dict
            For readahead: ``reads`` and ``read_bytes`` that were followed; how many were
            ``foreseen``; ``used`` and ``used_bytes`` that came from readahead; how many ``waited``
            for a readahead that was under way; ``prefetched_bytes`` that were read ahead and are
            used or dropped by now, and ``wasted_bytes``, the dropped ones; how many reads are
            ``ahead`` now, and ``ready``; and the ratios ``used_of_prefetched`` and
            ``prefetched_of_read``. For each replica: its ``id`` and ``array``, the ``reads`` that
            used it and their ``bytes``, and ``is_broken`` if some of it could not be read.

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
        return {"prefetch": counts, "replicas": json.loads(self._inner.replica_statistics())}


def added_stats(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the sums of the counts of several handles."""
    if len(counts) == 1:
        return counts[0]
    ratios = ("used_of_prefetched", "prefetched_of_read")
    names = [name for name in counts[0]["prefetch"] if name not in ratios]
    added: dict[str, Any] = {name: sum(one["prefetch"][name] for one in counts) for name in names}
    used = added["used_bytes"]
    added["used_of_prefetched"] = _share(used, added["prefetched_bytes"])
    added["prefetched_of_read"] = _share(used, added["read_bytes"])
    return {"prefetch": added, "replicas": [r for one in counts for r in one["replicas"]]}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pairs(selections: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(selections, "items"):
        return [(path, one) for path, chosen in selections.items() for one in _each(path, chosen)]
    if isinstance(selections, (str, bytes)) or not hasattr(selections, "__iter__"):
        raise InvalidArgumentError(f"{_TAKES}, not {selections!r}")
    pairs = list(selections)
    for pair in pairs:
        # JSON turns a pair into a list of two.
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidArgumentError(f"{_TAKES}, not {pair!r}")
    return [(path, selection) for path, selection in pairs]


def _each(path: str, chosen: Any) -> Iterable[Any]:
    """Returns the selections of a path; a single one, even a tuple of slices, is refused."""
    if isinstance(chosen, (str, bytes, tuple)) or not hasattr(chosen, "__iter__"):
        raise InvalidArgumentError(
            f"prefetch takes a list of selections for each path, not {chosen!r} for {path!r}"
        )
    iterable: Iterable[Any] = chosen
    return iterable
