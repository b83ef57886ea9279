"""The accessor ``dataset.bedform``: writing and read counts for data sets of xarray.

xarray registers accessors on its ``Dataset`` class. This module registers one as soon as both
xarray and Bedform are imported, in either order. Importing Bedform does not import xarray.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from bedform._errors import UnsupportedError

if TYPE_CHECKING:
    import os
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class DatasetAccessor:
    """The accessor ``dataset.bedform`` of an :class:`xarray.Dataset`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

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

    def stats(self) -> dict[str, Any]:
        """Returns the counts of the data set's reads, as :meth:`bedform.Store.stats` names them.

        The counts include reads through selections and computations that were derived from it.

        Raises
        ------
        UnsupportedError
            The data set is not the one that ``open_dataset(engine="bedform")`` returned, or it is
            closed.

        Examples
        --------
        >>> import bedform, tempfile, xarray
        >>> place = tempfile.mkdtemp() + "/s.zarr"
        >>> xarray.Dataset({"t": ("x", [1, 2])}).bedform.write(place)
        >>> with xarray.open_dataset(place, engine="bedform") as dataset:
        ...     dataset.bedform.stats()["prefetch"]["used"]
        0
        """
        from bedform.xarray_backend import BedformDataStore

        # xarray keeps the close method of the backend's store; its owner is that store.
        opened = getattr(getattr(self._dataset, "_close", None), "__self__", None)
        if not isinstance(opened, BedformDataStore):
            raise UnsupportedError(
                "this data set has no counts of reads: ask the one that "
                'xarray.open_dataset(..., engine="bedform") gave, while it is open'
            )
        return opened.stats()


def register() -> None:
    """Registers the accessor now if xarray is imported, else when it is."""
    if "xarray" in sys.modules:
        _register(sys.modules["xarray"])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(xarray: ModuleType) -> None:
    # A partly imported xarray lacks this name; its Bedform backend then registers the accessor.
    decorate = getattr(xarray, "register_dataset_accessor", None)
    if decorate is not None and not hasattr(xarray.Dataset, "bedform"):
        decorate("bedform")(DatasetAccessor)


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
