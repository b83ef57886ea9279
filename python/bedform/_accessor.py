"""The accessor ``bedform`` of xarray's data sets and arrays: plans, read counts, writing.

xarray registers accessors on its ``Dataset`` and ``DataArray`` classes. This module registers them
as soon as both xarray and Bedform are imported, in either order. Importing Bedform does not import
xarray.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from bedform._errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from bedform._lazy_explanation import LazyExplanation


class _Accessor:
    """The plan and the read counts of a data set or an array of xarray."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    @property
    def _dataset(self) -> Any:
        """The data set, or the array as one, whose close method xarray keeps at the array."""
        as_dataset = getattr(self._shown, "_to_temp_dataset", None)
        return self._shown if as_dataset is None else as_dataset()

    def explain(self, *, optimize: bool = True) -> LazyExplanation:
        """Returns what loading or computing this would read, and its price. Reads no values.

        It works after selections and arithmetic, and with Dask: the graph is optimized as for the
        computation. For each array: the bytes of the elements that are needed, the bytes and
        requests of each file, and the predicted seconds. Values in memory need no reads. A chunk
        that several tasks take counts once where the cache keeps it.

        Parameters
        ----------
        optimize
            Whether to plan replicas, too, to say what ``bedform optimize`` would save in such
            reads. That reads a few blocks of each array, to measure their compression.

        Returns
        -------
        LazyExplanation
            ``print`` shows it. ``to_dict()`` has ``needed_bytes``, ``bytes``, ``requests``,
            ``predicted_cold_seconds`` and ``predicted_cached_seconds``; the same for each of
            ``arrays``, with its ``files``; ``chunks``, better ones for ``open_dataset``, else
            ``None``; and ``optimize``, with the command and the seconds now and then.

        Raises
        ------
        UnsupportedError
            A Dask graph reads the data by a task of an unknown form.

        Examples
        --------
        >>> import bedform, numpy, tempfile, xarray
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> bedform.write_dataset(xarray.Dataset({"t": (("y", "x"), numpy.eye(100))}), place)
        >>> with xarray.open_dataset(place, engine="bedform", chunks={}) as dataset:
        ...     (dataset["t"].isel(x=3) ** 2).mean().bedform.explain().to_dict()["needed_bytes"]
        800
        """
        from bedform._lazy_explanation import explain

        return explain(self._dataset, optimize=optimize)

    def points(
        self,
        expression: str,
        *,
        variables: str | Iterable[str] | None = None,
        limit: int | None = None,
        memory: int | str = "1 GiB",
    ) -> Any:
        """Returns the elements at which a condition on values holds, as a data set of points.

        The variables of the condition are read block by block, in the selected part alone, and stay
        lazy. Dask arrays, and variables that are no plain part of a stored array, are evaluated by
        xarray.

        Parameters
        ----------
        expression
            A condition such as ``"t2m > 310 and lat > 40"``: see :meth:`bedform.Store.query`. An
            array of xarray has its own name in it, and its coordinates.
        variables
            The variable, or variables, of the result; by default those of the condition.
        limit
            At most so many points, the first in C order.
        memory
            Bytes that the positions may take.

        Returns
        -------
        xarray.Dataset
            The variables along the dimension ``points``, lazy, with the dtypes that they have here;
            dimensions that the condition lacks stay. The coordinates are the labels of each point
            and, for each dimension of the condition, the positions ``<dim>_index`` (int64) in this
            data set, for ``isel``.

        Raises
        ------
        NotFoundError
            A variable of the condition, or of ``variables``, is not there.
        UnsupportedError
            The condition compares texts, times or durations.
        InvalidArgumentError
            The condition cannot be understood, or a variable has the name of positions.

        Examples
        --------
        >>> import bedform, numpy, tempfile, xarray
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> data = xarray.Dataset({"t": (("y", "x"), numpy.eye(3))}, {"x": [10, 20, 30]})
        >>> data.bedform.write(place)
        >>> with xarray.open_dataset(place, engine="bedform") as dataset:
        ...     found = dataset.isel(y=slice(1, 3)).bedform.points("t > 0")
        >>> found.x.values.tolist(), found.x_index.values.tolist(), found.y_index.values.tolist()
        ([20, 30], [1, 2], [0, 1])
        """
        from bedform._query_xarray import points

        return points(
            self._named_dataset(), expression, variables=variables, limit=limit, memory=memory
        )

    def _named_dataset(self) -> Any:
        """The data set, or the array as one, under its own name."""
        if not hasattr(self._shown, "to_dataset"):
            return self._shown
        if self._shown.name is None:
            raise InvalidArgumentError(
                "the array has no name, by which a condition could call it: array.rename('t')"
            )
        return self._shown.to_dataset()

    def stats(self) -> dict[str, Any]:
        """Returns the counts of the reads of the file or store, as :meth:`bedform.Store.stats`.

        The counts are those of the opened data set: they include reads through all selections and
        computations that were derived from it, in this process. Data sets that were opened
        separately and then combined have the sums.

        Raises
        ------
        UnsupportedError
            Nothing in it comes from ``open_dataset(engine="bedform")``, or all of it was loaded
            after a selection.

        Examples
        --------
        >>> import bedform, tempfile, xarray
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> xarray.Dataset({"t": ("x", [1, 2])}).bedform.write(place)
        >>> with xarray.open_dataset(place, engine="bedform") as dataset:
        ...     dataset.sel(x=slice(1)).bedform.stats()["prefetch"]["used"]
        0
        """
        from bedform._ahead import added_stats

        opened = _opened(self._shown, self._dataset)
        if not opened:
            raise UnsupportedError(
                "this has no counts of reads, because all of it is in memory: ask the data set "
                'that xarray.open_dataset(..., engine="bedform") gave'
            )
        return added_stats([store.stats() for store in opened])


class DataArrayAccessor(_Accessor):
    """The accessor ``array.bedform`` of an :class:`xarray.DataArray`."""


class DatasetAccessor(_Accessor):
    """The accessor ``dataset.bedform`` of an :class:`xarray.Dataset`."""

    def write(self, path: str | os.PathLike[str], **options: Any) -> Any:
        """Write the data set to a store: :func:`bedform.write_dataset`, which has the options.

        Examples
        --------
        >>> import bedform, tempfile, xarray
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> xarray.Dataset({"t": ("x", [1, 2])}).bedform.write(place)
        >>> bedform.open(place)["t"][...].tolist()
        [1, 2]
        """
        from bedform._write_dataset import write_dataset

        return write_dataset(self._dataset, path, **options)


def _opened(shown: Any, dataset: Any) -> list[Any]:
    """Returns the opened stores and files behind an object of xarray.

    xarray keeps the close method of the backend's store, whose owner is that store, at the data set
    that was opened and at its selections. Variables, lists of them and results of arithmetic lack
    it; below their lazy values are still the arrays of the store.
    """
    from bedform._lazy_reads import arrays_of
    from bedform.xarray_backend import BedformDataStore

    owner = getattr(getattr(shown, "_close", None), "__self__", None)
    if isinstance(owner, BedformDataStore):
        return [owner]
    stores = {id(found._array._store): found._array._store for found in arrays_of(dataset)}
    return list(stores.values())


def register() -> None:
    """Registers the accessors now if xarray is imported, else when it is."""
    if "xarray" in sys.modules:
        _register(sys.modules["xarray"])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(xarray: ModuleType) -> None:
    # A partly imported xarray lacks these names; its Bedform backend then registers the accessors.
    for kind, accessor in (("Dataset", DatasetAccessor), ("DataArray", DataArrayAccessor)):
        decorate = getattr(xarray, f"register_{kind.lower()}_accessor", None)
        if decorate is not None and not hasattr(getattr(xarray, kind), "bedform"):
            decorate("bedform")(accessor)


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that waits for xarray and delegates the import itself."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != "xarray":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader)
        return found


class _Loader(importlib.abc.Loader):
    """Import loader that delegates to another one and then registers the accessor."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _register(module)
