"""Reads before they are asked for: what a user says of them, and what became of them."""

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
#: What the variable may say besides a size.
_WORDS = frozenset({"", "auto", "true", "off", "false"})


def prefetch_option(prefetch: Any) -> Any:
    """``"auto"``, ``False`` or bytes, as the engine takes them.

    Raises
    ------
    InvalidArgumentError
        It is none of these.
    """
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
    """Say that the variable is ignored: what is wrong in it keeps no data from being read."""
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

        Whichever thread reads what the list says gets it, also of a store that was opened with
        ``prefetch="auto"``, which else follows the main thread alone; with ``False`` nothing is
        read ahead.

        Parameters
        ----------
        selections
            Pairs of the path of an array and a selection, as inside the brackets; or for each path
            a list of selections.

        Raises
        ------
        NotFoundError
            There is no such array.
        OutOfBoundsError
            A selection leaves its array.
        InvalidArgumentError
            It is no list of pairs, and no list of selections for each path.

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
        # If one is refused, those before it have their lists: the next call takes their place.
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
            # Of a list of many reads the message has to say which array it is about.
            raise type(error)(f"prefetch of {path}: {error}") from None

    def stats(self) -> dict[str, Any]:
        """What the reads of this handle did: in ``"prefetch"`` ahead, in ``"replicas"`` of these.

        Returns
        -------
        dict
            ``reads`` and ``read_bytes`` that were followed; how many were ``foreseen``; ``used``,
            and ``used_bytes``, that came from a read ahead; how many ``waited`` for one that was
            under way; ``prefetched_bytes``, read ahead and by now used or dropped, and of these
            ``wasted_bytes``, dropped; how many reads are ``ahead`` now, and ``ready``; and as
            shares ``used_of_prefetched`` and ``prefetched_of_read``. For each replica that was
            looked for, its ``id`` and ``array``, ``reads`` that took something of it, and their
            ``bytes``; whether it ``is_broken``: something of it could not be read.

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


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pairs(selections: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(selections, "items"):
        return [(path, one) for path, chosen in selections.items() for one in _each(path, chosen)]
    if isinstance(selections, (str, bytes)) or not hasattr(selections, "__iter__"):
        raise InvalidArgumentError(f"{_TAKES}, not {selections!r}")
    pairs = list(selections)
    for pair in pairs:
        # A list of two is what JSON makes of a pair.
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidArgumentError(f"{_TAKES}, not {pair!r}")
    return [(path, selection) for path, selection in pairs]


def _each(path: str, chosen: Any) -> Iterable[Any]:
    """The selections of a path; a single one, even a tuple of slices, is no list."""
    if isinstance(chosen, (str, bytes, tuple)) or not hasattr(chosen, "__iter__"):
        raise InvalidArgumentError(
            f"prefetch takes a list of selections for each path, not {chosen!r} for {path!r}"
        )
    iterable: Iterable[Any] = chosen
    return iterable
