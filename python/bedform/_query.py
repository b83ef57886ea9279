"""Queries by value: the elements at which a condition on the values of arrays holds."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _internal
from bedform._errors import (
    InvalidArgumentError,
    SnapshotMovedError,
    UnsupportedError,
    WrongTypeError,
    engine_call,
)
from bedform._explanation import Explanation
from bedform._integers import byte_count, integer
from bedform._query_region import index_ranges, label_ranges
from bedform._query_times import decoded, refuse_statistics_of_times, refuse_times, time_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bedform._elements import AnyArray

#: Attempts of a query whose data are settled meanwhile.
_ATTEMPTS = 5
#: The bytes of results without ``memory=``.
MEMORY = "1 GiB"


class Query:
    """The elements of arrays at which a condition holds, as :meth:`Store.query` returns it.

    Each call reads what it needs, all arrays as of one moment. Results are those of
    ``xarray.Dataset.eval`` over the whole arrays: values are decoded, and compared by NumPy's
    rules. Positions are absolute indexes in the arrays, in the order of :attr:`dims`.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile
    >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
    >>> _ = store.create_array("t", data=np.arange(12.0).reshape(3, 4), dims=("time", "x"))
    >>> _ = store.create_array("x", data=np.array([0, 10, 20, 30]), dims=("x",))
    >>> hot = store.query("t > 3 and x < 25")
    >>> hot.count()
    6
    >>> hot.points().tolist()[:2]
    [[1, 0], [1, 1]]
    >>> hot.mean("t"), hot.count(over="x").tolist()
    (7.0, [0, 3, 3])
    """

    def __init__(
        self,
        group: Any,
        expression: str,
        *,
        region: Any = None,
        sel: Mapping[str, Any] | None = None,
        decode: bool = True,
        memory: int | str = MEMORY,
    ) -> None:
        if not isinstance(expression, str):
            raise WrongTypeError(
                f'a query takes an expression as text, such as "t2m > 310", not {expression!r}'
            )
        self._group, self._text = group, expression
        self._memory = byte_count(memory, "memory")
        self._decode = bool(decode)
        self._region: dict[str, tuple[int, int]] = {}
        self._names: list[str] = engine_call(_internal.Query.names)(expression)
        if self._decode:
            for name in self._names:
                refuse_times(group, name)
        dims, start, shape = self._once(self._group, lambda inner, _: inner.frame())
        sizes = {dim: (a, a + n) for dim, a, n in zip(dims, start, shape, strict=True)}
        given = index_ranges(region, tuple(dims), {dim: b for dim, (_, b) in sizes.items()})
        labelled = label_ranges(sel, self._group, tuple(dims))
        self._region = {
            dim: _both(given.get(dim), labelled.get(dim)) for dim in {*given, *labelled}
        }
        self._dims = tuple(dims)

    @property
    def expression(self) -> str:
        """The condition."""
        return self._text

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions that the arrays span together, in the order of positions."""
        return self._dims

    @property
    def region(self) -> tuple[slice, ...]:
        """The region, as indexes along each dimension."""
        _, start, shape = self._once(self._group, lambda inner, _: inner.frame())
        return tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))

    def __repr__(self) -> str:
        return f"<bedform.Query {self._text!r} of {self._group._where()} over {self._dims}>"

    # Results ------------------------------------------------------------------------------------

    def count(self, over: str | Sequence[str] | None = None) -> Any:
        """Return the number of matching elements.

        Parameters
        ----------
        over
            Dimensions to count over: the result is an array of the other dimensions, in their
            order, of dtype int64. Without it, all elements are counted into an int.
        """
        return self._counted(over, only_any=False)

    def any(self, over: str | Sequence[str] | None = None) -> Any:
        """Return whether an element matches; ``over`` as in :meth:`count`, of dtype bool."""
        found = self._counted(over, only_any=True)
        return found > 0

    def _counted(self, over: str | Sequence[str] | None, *, only_any: bool) -> Any:
        names = _dims_of(over)
        shape, raw = self._run(lambda inner, _: inner.count(names, only_any))
        counts = np.frombuffer(raw, np.uint64).astype(np.int64).reshape(shape)
        return int(counts[()]) if names is None else counts

    def points(self, limit: int | None = None) -> AnyArray:
        """Return the positions of the matching elements in C order, as ``np.argwhere`` does.

        Parameters
        ----------
        limit
            At most so many, the first in C order.

        Returns
        -------
        numpy.ndarray
            int64, of shape (elements, dimensions).

        Raises
        ------
        LimitExceededError
            The positions take more than the ``memory`` of the query.
        """
        positions, _ = self._rows([], limit)
        return positions

    def values(self, name: str, limit: int | None = None) -> AnyArray:
        """Return the values of an array at the matching elements, in the order of :meth:`points`.

        An array with further dimensions extends the query by these.

        Parameters
        ----------
        name
            An array of numbers or of times, bounds of times too.
        limit
            At most so many, the first ones.

        Returns
        -------
        numpy.ndarray
            As xarray decodes the array, of shape (elements,): numbers with scale, offset and
            missing values; times as datetime64, and dates of other calendars as objects of cftime.
            With ``decode=False`` the stored numbers, in their dtype.

        Raises
        ------
        NotFoundError
            The group lacks the array.
        UnsupportedError
            It holds texts, or times of units that xarray does not know.
        LimitExceededError
            The values take more than the ``memory`` of the query.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("t", data=np.arange(4.0), dims=("x",))
        >>> seen = store.create_array("seen", data=np.arange(4), dims=("x",))
        >>> seen.attributes["units"] = "days since 2020-01-30"
        >>> store.query("t > 1").values("seen").astype("M8[D]").tolist()
        [datetime.date(2020, 2, 1), datetime.date(2020, 2, 2)]
        """
        limit = _limit(limit)

        def take(inner: _internal.Query, group: Any) -> AnyArray:
            [(dtype, raw)] = inner.values([self._elements(group, name)], limit)
            return self._decoded(group, name, np.frombuffer(raw, dtype))

        taken: AnyArray = self._run(take)
        return taken

    def _rows(self, names: list[str], limit: int | None) -> tuple[AnyArray, list[AnyArray]]:
        limit = _limit(limit)

        def take(inner: _internal.Query, group: Any) -> tuple[list[bytes], list[AnyArray]]:
            positions, found = inner.points([self._elements(group, name) for name in names], limit)
            return positions, [
                self._decoded(group, name, np.frombuffer(raw, dtype))
                for name, (dtype, raw) in zip(names, found, strict=True)
            ]

        positions, values = self._run(take)
        columns = [np.frombuffer(axis, np.int64) for axis in positions]
        count = len(columns[0]) if columns else self._scalar_count()
        table = np.stack(columns, axis=1) if columns else np.empty((count, 0), np.int64)
        return table, values

    def _scalar_count(self) -> int:
        return int(self.count())

    def mask(self) -> AnyArray:
        """Return a boolean array of the region's shape, true where an element matches."""

        def fill(inner: _internal.Query, _: Any) -> AnyArray:
            _, _, shape = inner.frame()
            mask = np.empty(shape, bool)
            inner.mask(mask.reshape(-1))
            return mask

        filled: AnyArray = self._run(fill)
        return filled

    # Statistics -----------------------------------------------------------------------------------

    def min(self, name: str, over: str | Sequence[str] | None = None) -> Any:
        """Return the least value of an array at the matching elements; NaN if there are none.

        Missing values do not count. ``over`` as in :meth:`count`; the result is float64 then.

        Raises
        ------
        UnsupportedError
            The array holds texts or times: reduce its :meth:`values`.
        """
        return self._statistic(name, over, "min")

    def max(self, name: str, over: str | Sequence[str] | None = None) -> Any:
        """Return the greatest value: see :meth:`min`."""
        return self._statistic(name, over, "max")

    def sum(self, name: str, over: str | Sequence[str] | None = None) -> Any:
        """Return the sum of the values: see :meth:`min`; 0 if there are none.

        Sums of reals are made in 64 bits, whatever the type, and come out the same each time.
        """
        return self._statistic(name, over, "sum")

    def mean(self, name: str, over: str | Sequence[str] | None = None) -> Any:
        """Return the mean of the values: see :meth:`min`."""
        return self._statistic(name, over, "mean")

    def _statistic(self, name: str, over: str | Sequence[str] | None, what: str) -> Any:
        names = _dims_of(over)
        shape, _, *columns, exact = self._run(
            lambda inner, group: inner.statistics(self._numbers(group, name), names)
        )
        named = dict(zip(("sum", "mean", "min", "max"), columns, strict=True))
        column = np.frombuffer(named[what], np.float64).reshape(shape)
        if names is not None:
            return column.copy()
        if exact is not None:
            precise = dict(zip(("sum", "min", "max"), exact, strict=True)).get(what)
            if precise is not None:
                return precise
        return float(column[()])

    def histogram(
        self,
        name: str,
        bins: int | Sequence[float] = 10,
        range: tuple[float, float] | None = None,  # noqa: A002
    ) -> tuple[AnyArray, AnyArray]:
        """Return the numbers of matching values in classes, and the edges of these.

        As ``numpy.histogram``: ``bins`` is a number of equal classes between the least and the
        greatest value, or within ``range``; or a list of edges. Missing values do not count.
        """
        if isinstance(bins, (int, np.integer)):
            count = integer(bins, "bins", least=1)
            edges = self._equal_edges(name, count, range)
        else:
            edges = np.asarray(bins, np.float64)
        raw = self._run(
            lambda inner, group: inner.histogram(self._numbers(group, name), edges.tolist())
        )
        return np.frombuffer(raw, np.uint64).astype(np.int64), edges

    def _equal_edges(self, name: str, count: int, given: tuple[float, float] | None) -> AnyArray:
        least, greatest = given or (float(self.min(name)), float(self.max(name)))
        if not np.isfinite([least, greatest]).all():
            # No value, or infinite ones: numpy.histogram has 0 to 1 for no values.
            if given or np.isinf([least, greatest]).any():
                raise InvalidArgumentError(
                    f"the values of {name} are not finite: give range=(least, greatest)"
                )
            least, greatest = 0.0, 1.0
        # As numpy's, the edges of float32 are float32.
        dtype = self.values(name, 0).dtype
        ends = np.array([least, greatest], dtype if dtype.kind == "f" else np.float64)
        return np.histogram_bin_edges(ends, count, given)

    # Batches --------------------------------------------------------------------------------------

    def batches(
        self, values: str | Iterable[str] | None = None, *, memory: int | str = "256 MiB"
    ) -> Iterator[Any]:
        """Yield the matching elements as Arrow record batches (``pyarrow.RecordBatch``).

        A batch has a column of positions for each dimension (int64, ``<dim>_index``), the
        coordinates of dimensions that have an array of their name, and the values asked for.
        Coordinates and values are decoded as in :meth:`values`, and times are timestamps; dates of
        other calendars are text in the form of ISO 8601. With ``decode=False`` all are stored
        numbers. ``bedform query --output x.csv`` and ``x.parquet`` have the same columns.

        Parameters
        ----------
        values
            The array, or arrays, whose values are wanted; by default those of the expression.
        memory
            Bytes that a batch may take at most.

        Raises
        ------
        UnsupportedError
            pyarrow is not installed, or an array holds texts.
        InvalidArgumentError
            An array has the name of a column of positions.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("t", data=np.arange(4.0), dims=("x",))
        >>> _ = store.create_array("x", data=np.arange(0, 40, 10), dims=("x",))
        >>> batches = store.query("t > 1").batches()
        >>> [batch.to_pydict() for batch in batches]  # doctest: +SKIP
        [{'x_index': [2, 3], 'x': [20, 30], 't': [2.0, 3.0]}]
        """
        from bedform._query_arrow import record_batches

        return record_batches(self, values, byte_count(memory, "memory"))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the batches to DuckDB, polars, pyarrow and others, by Arrow's C interface."""
        from bedform._query_arrow import reader

        return reader(self).__arrow_c_stream__(requested_schema)

    # Explanation ----------------------------------------------------------------------------------

    def explain(self) -> Explanation:
        """Return the plan: blocks left out and by what, bytes and price, against a scan.

        Reads coordinates and the value index, no elements.
        """
        return Explanation(json.loads(self._run(lambda inner, _: inner.explain())))

    # Execution ------------------------------------------------------------------------------------

    def _run(self, act: Callable[[Any, Any], Any]) -> Any:
        """Calls ``act`` with the engine's query and the group, both of one moment."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SnapshotMovedError):
                return self._once(moment_of(self._group), act)
        return self._once(moment_of(self._group), act)

    def _once(self, group: Any, act: Callable[[Any, Any], Any]) -> Any:
        arrays: list[_internal.NamedArray] = [
            (name, engine_array(group, name)) for name in self._names
        ]
        region = [(dim, start, stop) for dim, (start, stop) in self._region.items()]
        # The store of a group of a file has no calls of its own.
        call = getattr(getattr(group, "_store", None), "_call", engine_call)
        make = call(_internal.Query)
        inner = make(self._text, arrays, region, self._decode, self._memory)
        return call(act)(inner, group)

    def _numbers(self, group: Any, name: str) -> _internal.NamedArray:
        """Returns an array for the engine to reduce."""
        if self._decode:
            refuse_statistics_of_times(group, name)
        return name, engine_array(group, name)

    def _elements(self, group: Any, name: str) -> _internal.NamedArray:
        """Returns an array for the engine to take elements of: times as they are stored."""
        array = engine_array(group, name)
        if not self._decode or time_units(group, name) is None:
            return name, array
        shape, dims = list(group[name].shape), list(group[name].dims)
        return name, array, ([0] * len(shape), shape), dims, False

    def _decoded(self, group: Any, name: str, elements: AnyArray) -> AnyArray:
        """Returns elements as the engine gave them, those that are times decoded."""
        is_times = self._decode and time_units(group, name) is not None
        return decoded(group, name, elements) if is_times else elements

    def _within(self, ranges: dict[str, tuple[int, int]], group: Any) -> Query:
        """Returns the query of a part of its region, of the arrays of ``group``."""
        part = object.__new__(Query)
        part.__dict__.update(self.__dict__)
        part._group, part._region = group, self._region | ranges
        return part


class Queried:
    """The method ``query`` of stores, files and their groups."""

    def query(
        self,
        expression: str,
        *,
        region: Any = None,
        sel: Mapping[str, Any] | None = None,
        decode: bool = True,
        memory: int | str = MEMORY,
    ) -> Query:
        """Return the elements at which a condition on values holds, to be counted, read or reduced.

        Parameters
        ----------
        expression
            A condition over arrays of this group, in Python's form: ``"t2m > 310 and lat > 40"``.
            It has comparisons (also chained), ``and or not`` or ``& | ~`` with Python's precedence,
            ``+ - * /``, ``abs sqrt minimum maximum``, numbers and names. A name that is no
            identifier stands in backquotes. Arrays of fewer dimensions, such as coordinates, repeat
            along the others.
        region
            Indexes: a slice or an integer for each dimension, as ``np.s_[100:200]``, or a mapping
            of dimensions to slices. Everything by default.
        sel
            Labels: a mapping of dimensions to slices (both ends included, as in xarray) or single
            labels, by the coordinate with the dimension's name. Times are text or datetimes.
        decode
            Whether values are compared as xarray decodes them (scale, offset, missing values), or
            as they are stored.
        memory
            Bytes that the matching elements of one call may take.

        Raises
        ------
        InvalidArgumentError
            The expression cannot be understood; the message has the column. Dimensions of the
            arrays do not fit.
        NotFoundError
            The group lacks an array of the expression.
        UnsupportedError
            An array of the expression holds texts or times. ``sel`` selects by times, and
            :meth:`Query.values` gives them.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> _ = store.create_array("t", data=np.arange(12.0).reshape(3, 4), dims=("time", "x"))
        >>> store.query("2 < t <= 8", region={"time": slice(1, 3)}).count()
        5
        """
        return Query(self, expression, region=region, sel=sel, decode=decode, memory=memory)


def moment_of(group: Any) -> Any:
    """Returns the group as of one moment; files and snapshots are that already."""
    store = getattr(group, "_store", group)
    if not hasattr(store, "snapshot") or store.is_snapshot:
        return group
    then = store.snapshot()
    path = getattr(group, "path", "")
    return then[path] if path else then


def engine_array(group: Any, name: str) -> _internal.Array:
    """Returns the engine's handle of an array.

    Raises
    ------
    NotFoundError
        The group has no such array; the message lists the near ones.
    UnsupportedError
        Elements of this array have no type of fixed size.
    """
    found = group[name]
    inner = getattr(found, "_inner", None)
    if not isinstance(inner, _internal.Array):
        if hasattr(found, "dtype"):
            raise UnsupportedError(f"{name} holds {found.dtype} elements: queries compare numbers")
        raise InvalidArgumentError(f"{name} is a group, no array")
    return inner


def _limit(limit: int | None) -> int | None:
    return None if limit is None else integer(limit, "limit", least=0)


def _dims_of(over: str | Sequence[str] | None) -> list[str] | None:
    if over is None:
        return None
    return [over] if isinstance(over, str) else [str(dim) for dim in over]


def _both(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the common part of two ranges of indexes."""
    ranges = [one for one in (first, second) if one is not None]
    start = max(start for start, _ in ranges)
    return start, max(start, min(stop for _, stop in ranges))
