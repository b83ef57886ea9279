"""The reads that loading a lazy data set of xarray would make, found without reading.

Without Dask a variable is a key over an array of the backend, below xarray's lazy decoders. With
Dask the graph is optimized as a computation would do it: unneeded tasks are dropped, slices are
fused into the tasks that read. Each remaining task that reads has such a key.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from xarray.backends import BackendArray
from xarray.coding.strings import StackedBytesArray
from xarray.core import indexing

from bedform._chunked_values import is_chunked
from bedform._errors import LimitExceededError, UnsupportedError
from bedform.xarray_backend import BedformArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xarray import Dataset

    from bedform._selection import EngineSelection

#: The most single elements of a read that is explained element by element.
_POINTS_MAX: Final = 1 << 26


@dataclass
class LazyReads:
    """The reads of a data set, and the variables without any."""

    #: The array and the selection of each read.
    reads: list[tuple[BedformArray, EngineSelection]] = field(default_factory=list)
    #: Tasks that run at a time; 0 without Dask.
    tasks_at_once: int = 0
    #: Names of variables whose values are in memory.
    loaded: list[str] = field(default_factory=list)
    #: Names of variables that another backend of xarray reads.
    foreign: list[str] = field(default_factory=list)


def lazy_reads(dataset: Dataset) -> LazyReads:
    """Returns the reads that loading all variables would make.

    Raises
    ------
    UnsupportedError
        A Dask graph reads an array of Bedform by a task of an unknown form.
    """
    found = LazyReads()
    lazy: dict[str, Any] = {}
    for key, variable in dataset.variables.items():
        data = variable._data
        # An array of xarray as a data set has a key of its own.
        name = key if isinstance(key, str) else "the values"
        if is_chunked(data):
            lazy[name] = data
            continue
        below = backend_below(data)
        if below is None:
            found.loaded.append(name)
        elif not isinstance(below, BedformArray):
            found.foreign.append(name)
        else:
            found.reads.append(read_of(data))
    if lazy:
        found.tasks_at_once = _tasks_at_once()
        _add_tasks(found, lazy)
    return found


def arrays_of(dataset: Dataset) -> Iterator[BedformArray]:
    """Iterates over the arrays of Bedform below the variables, each perhaps several times."""
    for variable in dataset.variables.values():
        data = variable._data
        if not is_chunked(data):
            below = backend_below(data)
            if isinstance(below, BedformArray):
                yield below
            continue
        chunked: Any = data
        for node in _nodes_of(chunked.__dask_graph__()):
            below = backend_below(node)
            if isinstance(below, BedformArray):
                yield below


def backend_below(data: Any) -> BackendArray | None:
    """Returns the array of a backend below lazy wrappers; ``None`` for values in memory."""
    while isinstance(
        data, (indexing.ExplicitlyIndexed, indexing.ImplicitToExplicitIndexingAdapter)
    ):
        if isinstance(data, BackendArray):
            return data
        data = getattr(data, "array", None)
    return data if isinstance(data, BackendArray) else None


def read_of(data: Any) -> tuple[BedformArray, EngineSelection]:
    """Returns the read of lazily indexed data of Bedform."""
    while True:
        if isinstance(data, BedformArray):
            return data, data.selection(indexing.BasicIndexer((slice(None),) * data.ndim))
        if isinstance(data, (indexing.LazilyIndexedArray, indexing.LazilyVectorizedIndexedArray)):
            if isinstance(data.array, BedformArray):
                return data.array, _selection_of(data.array, data.key)
            data = _indexed(data.array, data.key)
        else:
            data = data.array


def _indexed(data: Any, key: Any) -> Any:
    """Applies a key to a lazy wrapper, without reading."""
    if isinstance(data, StackedBytesArray):
        # Characters become texts along the last axis, all of which is read.
        key = type(key)((*key.tuple, slice(None)))
        data = data.array
    if isinstance(key, indexing.VectorizedIndexer):
        return data.vindex[key]
    return data.oindex[key] if isinstance(key, indexing.OuterIndexer) else data[key]


def _selection_of(array: BedformArray, key: Any) -> EngineSelection:
    """Returns the elements of a read in the engine's form, in any order."""
    if not isinstance(key, indexing.VectorizedIndexer):
        return array.selection(key)
    axes = _crossed(key.tuple)
    if axes is not None:
        return array.selection(indexing.OuterIndexer(axes))
    lengths = [entry.shape for entry in key.tuple if isinstance(entry, np.ndarray)]
    points = int(np.prod(np.broadcast_shapes(*lengths), dtype=np.float64))
    if points > _POINTS_MAX:
        raise LimitExceededError(
            f"{array._array.path}: {points:,} single elements in one read; at most "
            f"{_POINTS_MAX:,} are explained: explain a part of them"
        )
    return array.selection(key)


def _crossed(entries: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Returns a list for each axis if point indexers are all combinations of such lists.

    xarray transposes lazy data in this form.
    """
    axes: list[Any] = []
    taken: set[int] = set()
    for entry in entries:
        if not isinstance(entry, np.ndarray):
            return None
        long = [axis for axis, length in enumerate(entry.shape) if length > 1]
        if len(long) > 1 or taken.intersection(long):
            return None
        taken.update(long)
        axes.append(np.ravel(entry))
    return tuple(axes)


# Dask ---------------------------------------------------------------------------------------------


def _add_tasks(found: LazyReads, lazy: Mapping[str, Any]) -> None:
    """Adds the reads of the tasks of Dask arrays, which are computed together."""
    from dask._task_spec import convert_legacy_graph
    from dask.order import order

    optimized = _dask().optimize(*lazy.values())
    graph: dict[Any, Any] = {}
    for data in optimized:
        graph.update(data.__dask_graph__())
    graph = convert_legacy_graph(graph)
    walk = _TaskWalk(graph)
    # In the order in which the scheduler starts the tasks.
    places = order(graph)
    for key in sorted(graph, key=places.__getitem__):
        walk.visit(graph[key], walk.value_of)
    found.reads += walk.reads
    explained = {id(array) for array, _ in walk.reads}
    below = (backend_below(node) for node in _nodes_of(graph))
    for array in below:
        if array is None:
            continue
        if not isinstance(array, BedformArray):
            found.foreign.append("an array of another backend")
        elif id(array) not in explained:
            raise UnsupportedError(
                f"{array._array.path}: the Dask graph reads it by a task of a form that this "
                "version of Bedform does not know"
            )


def _dask() -> Any:
    """Returns the package, which has types for a part of its functions."""
    import dask

    return dask


def _tasks_at_once() -> int:
    """Returns the number of tasks that the chosen scheduler of Dask runs at a time."""
    from dask.local import get_sync
    from dask.system import CPU_COUNT

    dask = _dask()
    get = dask.base.get_scheduler()
    if get is get_sync:
        return 1
    threads = getattr(getattr(get, "__self__", None), "nthreads", None)
    if threads is not None:
        # A client of distributed. Its workers are processes, which share no cache.
        return max(1, int(sum(threads().values())))
    pool = dask.config.get("pool", None)
    workers = getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None)
    return int(workers or CPU_COUNT)


def _nodes_of(graph: Mapping[Any, Any]) -> Iterator[Any]:
    """Iterates over the values that a graph holds as they are."""
    for node in graph.values():
        yield getattr(node, "value", node)


@functools.cache
def _getters() -> tuple[Any, ...]:
    import operator

    from dask.array.chunk import getitem
    from dask.array.core import getter, getter_inline, getter_nofancy

    return (getter, getter_nofancy, getter_inline, getitem, operator.getitem)


class _TaskWalk:
    """A walk over the tasks of an optimized graph that collects the reads."""

    def __init__(self, graph: Mapping[Any, Any]) -> None:
        self._graph = graph
        self.reads: list[tuple[BedformArray, EngineSelection]] = []

    def value_of(self, reference: Any) -> Any:
        """Returns the value that a reference in the graph stands for; itself if a task makes it."""
        from dask._task_spec import Alias, DataNode, Task, TaskRef

        target, steps = reference, 0
        while isinstance(target, (TaskRef, Alias)) and steps <= len(self._graph):
            key = target.target if isinstance(target, Alias) else target.key
            if key not in self._graph:
                return target
            target, steps = self._graph[key], steps + 1
        if isinstance(target, DataNode):
            return target.value
        # A task of the graph is visited at its own place.
        return reference if isinstance(target, Task) and target is not reference else target

    def visit(self, node: Any, value_of: Any) -> None:
        """Collects the reads of a task and of the tasks fused into it."""
        from dask._task_spec import Alias, DataNode, Task, TaskRef, _execute_subgraph

        if isinstance(node, (Alias, DataNode, TaskRef)):
            return
        if not isinstance(node, Task):
            for part in _parts_of(node):
                self.visit(part, value_of)
            return
        arguments = [value_of(argument) for argument in node.args]
        if node.func is _execute_subgraph:
            inner, _, names, *given = arguments
            if not isinstance(inner, Mapping):
                return
            self._visit_fused(inner, dict(zip(names, given, strict=False)), value_of)
        elif node.func in _getters() and isinstance(backend_below(arguments[0]), BedformArray):
            self.reads.append(read_of(_taken(arguments[0], _plain(arguments[1]))))
        else:
            for argument in [*arguments, *map(value_of, node.kwargs.values())]:
                if isinstance(backend_below(argument), BedformArray):
                    # A function that takes the array as it is may read all of it.
                    self.reads.append(read_of(argument))
                else:
                    self.visit(argument, value_of)

    def _visit_fused(self, inner: Mapping[Any, Any], given: dict[Any, Any], outside: Any) -> None:
        names = _TaskWalk({**inner, **{name: _named(value) for name, value in given.items()}})

        def inside(reference: Any) -> Any:
            return outside(names.value_of(reference))

        for node in inner.values():
            self.visit(node, inside)


def _named(value: Any) -> Any:
    """Returns a value as a node of a graph."""
    from dask._task_spec import DataNode, GraphNode, TaskRef

    return value if isinstance(value, (GraphNode, TaskRef)) else DataNode(None, value)


def _parts_of(node: Any) -> Iterable[Any]:
    if isinstance(node, Mapping):
        return node.values()
    return node if isinstance(node, (list, tuple, set)) else ()


def _plain(index: Any) -> Any:
    """Returns the index of a task that reads, as a value."""
    from dask._task_spec import GraphNode

    return index({}) if isinstance(index, GraphNode) else index


def _taken(data: Any, index: Any) -> Any:
    """Applies the index of a task to the array of xarray that the task reads."""
    xarray_indexing: Any = indexing
    key = xarray_indexing.expanded_indexer(index, data.ndim)
    if isinstance(data, indexing.ImplicitToExplicitIndexingAdapter):
        return _indexed(data.array, data.indexer_cls(key))
    return _indexed(data, indexing.OuterIndexer(key))
