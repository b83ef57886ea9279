"""The xarray backend ``bedform``: lazy access to stores and foreign files.

The engine returns raw values; xarray decodes them by the CF conventions. Attributes and encodings
equal those of xarray's own backends for the same data: ``zarr`` for Zarr stores, ``netcdf4`` or
``h5netcdf`` for foreign files.
"""

from __future__ import annotations

import asyncio
import operator
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from xarray import Variable
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing
from xarray.core.utils import FrozenDict

import bedform as bf
from bedform import _accessor, _selection
from bedform._array import Array
from bedform._dataset_encoding import signed_fill
from bedform._errors import BedformError, NotFoundError, UnsupportedError, WrongTypeError
from bedform._group import Group
from bedform._hints import mesh_is_a_tree, name_of_place
from bedform._hot_blocks import hot_blocks, hot_replicas
from bedform._left_out import LeftOutWarning as LeftOutWarning
from bedform._left_out import reasons_of, said_by_caller, warn_once
from bedform._mesh import RefinedMesh
from bedform._opening import CACHE, open_place, without_mesh
from bedform._store import Store
from bedform._zarr_encoding import ZarrView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from xarray import Dataset, DataTree

    from bedform._elements import AnyArray

_accessor.register()

# A mark near the beginning of metadata that Bedform wrote.
_OURS = re.compile(rb'"consolidated_metadata"\s*:\s*\{\s*"bedform"\s*:')
_START_BYTES = 4096
# URL schemes of object stores that may hold such a store, and the seconds to wait for one.
_SCHEMES = ("s3://", "gs://", "az://")
_GUESS_SECONDS = 5
# Number of groups named in a message.
_GROUPS_SHOWN = 12


class BedformArray(BackendArray):
    """An array for xarray's lazy indexing, with its shape at the time of opening.

    It pickles. Many threads may use it, since reads share no mutable state.
    """

    __slots__ = ("_array", "dtype", "shape")

    def __init__(self, array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        # Not `array`: code that uses NumPy inspects attributes of that name.
        self._array = array
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return self._converted(self._array._get(self.selection(key), scalar=False))

    def selection(self, key: indexing.ExplicitIndexer) -> _selection.EngineSelection:
        """Returns the engine's selection for a key of xarray."""
        if isinstance(key, indexing.VectorizedIndexer):
            select = _selection.points
        elif isinstance(key, indexing.OuterIndexer):
            select = _selection.orthogonal
        else:
            select = _selection.basic
        # The engine takes every key of xarray, so the key need not be split between storage and
        # NumPy. Keys refer to the shape at opening: the array may have grown.
        return select(key.tuple, self.shape)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Reads in a separate thread; reads release the GIL."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _converted(self, values: AnyArray) -> AnyArray:
        return values if values.dtype == self.dtype else values.astype(self.dtype)


class BedformDataStore(AbstractDataStore):
    """xarray data store over a group of an opened store, with its arrays as raw variables."""

    def __init__(
        self,
        group: Group | Array,
        *,
        use_fill_value_as_mask: bool | None = None,
        drop_variables: str | Iterable[str] | None = None,
    ) -> None:
        # Also the objects that represent groups of foreign files.
        self._group: Any = group
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables
        self._dropped = frozenset(dropped or ())
        self._use_fill_value_as_mask = use_fill_value_as_mask
        self._has_warned_of_text = False
        self._hot: dict[str, dict[str, Any]] | None = None

    def close(self, **_: Any) -> None:
        """Does nothing: the store holds nothing open."""

    def stats(self) -> dict[str, Any]:
        """Returns counts of the reads of the store or file, for ``dataset.bedform.stats()``."""
        opened: Any = getattr(self._group, "_store", self._group)
        counts: dict[str, Any] = opened.stats()
        return counts

    def get_variables(self) -> Mapping[str, Variable]:
        """Returns the readable arrays of the group itself."""
        return FrozenDict({name: self.open_variable(a) for name, a in self._arrays().items()})

    def _arrays(self) -> dict[str, Array]:
        """Opens the arrays, except dropped and nested ones, which may have unknown types."""
        if isinstance(self._group, Array):
            return {self._group.name or name_of_place(self._group._store.store_path): self._group}
        if isinstance(self._group, Group):
            arrays, refused = self._group._opened_arrays(self._dropped, nested=False)
        else:
            arrays, refused = self._foreign_arrays()
        if refused:
            warn_once(self._group._where(), _left_out(refused), stacklevel=2)
        return arrays

    def _foreign_arrays(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the variables of a foreign file, and reasons why others cannot be read.

        xarray reads an element of each variable with NumPy's object type; a failure of that would
        stop it from opening the file.
        """
        arrays: dict[str, Any] = {}
        left_out = self._group._left_out()
        refused = {name: why for name, why in left_out.items() if name not in self._dropped}
        for name, array in self._group.arrays().items():
            if "/" in name or name in self._dropped:
                continue
            try:
                if array.dtype.hasobject and array.size:
                    array[(0,) * array.ndim]
            except BedformError as error:
                refused[name] = str(error)
            else:
                arrays[name] = array
        return arrays, refused

    def open_variable(self, array: Array) -> Variable:
        """Returns one array as a variable, neither decoded nor read."""
        foreign = getattr(array, "encoding", None)
        if foreign is not None:
            data = BedformArray(array, array.shape, array.dtype)
            lazy = indexing.LazilyIndexedArray(data)
            attributes = self._printable(array._load_attributes())
            return Variable(array.dims, lazy, attributes, foreign | self._hot_blocks(array))
        return self._zarr_variable(array)

    def _hot_blocks(self, array: Any) -> dict[str, Any]:
        """Returns Dask blocks for arrays with a replica of their most frequent reads."""
        if self._hot is None:
            opened: Any = getattr(self._group, "_store", self._group)
            where = str(getattr(opened, "store_path", ""))
            self._hot = hot_replicas(where) if where and Path(where).exists() else {}
        replica = self._hot.get(array.path) if self._hot else None
        if replica is None:
            return {}
        blocks = hot_blocks(replica, array.dims, tuple(array.shape), array.dtype.itemsize)
        return {} if blocks is None else {"preferred_chunks": blocks}

    def _zarr_variable(self, array: Array) -> Variable:
        view = ZarrView(array)
        attributes = view.attributes
        encoding = view.encoding() | self._hot_blocks(array)
        as_mask = self._use_fill_value_as_mask
        if as_mask is None:
            # In v2 the fill value marks missing data; in v3 only an attribute does.
            as_mask = view.zarr_format == 2
        if view.zarr_format == 2:
            attributes = _without_netcdf(attributes)
        if as_mask:
            # xarray cannot compare structures and raw bytes with a fill value.
            if view.fill_value is not None and view.dtype.kind != "V":
                attributes["_FillValue"] = view.fill_value
        else:
            if view.zarr_format == 3:
                encoding["fill_value"] = view.fill_value
            if "_FillValue" in attributes:
                fill = _decode_fill(attributes["_FillValue"], view.dtype)
                attributes["_FillValue"] = signed_fill(fill, view.dtype, attributes)
        data = BedformArray(array, view.shape, view.dtype)
        return Variable(array.dims, indexing.LazilyIndexedArray(data), attributes, encoding)

    def get_attrs(self) -> Mapping[str, Any]:
        """The attributes of the group."""
        attributes = {} if isinstance(self._group, Array) else self._group._load_attributes()
        return FrozenDict(_without_netcdf(self._printable(attributes)))

    def _printable(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Returns printable attributes, like xarray's own backends; warns once of changes."""
        shown = {name: _printable_text(value) for name, value in attributes.items()}
        changed = [name for name in shown if shown[name] is not attributes[name]]
        if changed and not self._has_warned_of_text:
            self._has_warned_of_text = True
            where = self._group._where()
            said = f"{where}: attributes that are not UTF-8 have U+FFFD in their place: {changed}"
            said += "; bf.open gives their bytes, in the marks of surrogateescape"
            warn_once(where, said, stacklevel=2)
        return shown

    def get_dimensions(self) -> Mapping[str, int]:
        """The dimensions of all variables."""
        sizes: dict[str, int] = {}
        for variable in self.get_variables().values():
            sizes.update({str(dim): size for dim, size in variable.sizes.items()})
        return FrozenDict(sizes)

    def get_encoding(self) -> dict[str, Any]:
        """The unlimited dimensions of foreign files."""
        unlimited = getattr(self._group, "unlimited_dims", None)
        return {} if unlimited is None else {"unlimited_dims": set(unlimited)}


def _printable_text(value: Any) -> Any:
    """Returns the value with U+FFFD for surrogates, which cannot be printed."""
    if isinstance(value, list):
        shown = [_printable_text(entry) for entry in value]
        return value if all(map(operator.is_, shown, value)) else shown
    if not isinstance(value, str) or value.isascii():
        return value
    printable = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value if printable == value else printable


def _left_out(refused: Mapping[str, str]) -> str:
    """Returns the warning of a data set that lacks arrays, in one line."""
    names = ", ".join(repr(name) for name in refused)
    reasons = reasons_of(refused)
    return f"left out of the data set: {reasons}; drop_variables=[{names}] opens it without them"


def _without_netcdf(attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns attributes without those that NCZarr and the NetCDF library reserve."""
    return {name: value for name, value in attributes.items() if name[:3].lower() != "_nc"}


def _decode_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """Decodes the attribute ``_FillValue`` as xarray stores it in Zarr v3."""
    from xarray.backends.zarr import FillValueCoder

    if dtype.kind == "f" and not isinstance(value, (str, bytes)):
        # The writer did not encode it.
        return value
    texts = {"T": "string", "U": "string", "S": "bytes"}
    return FillValueCoder.decode(value, texts.get(dtype.kind, dtype))


class BedformBackendEntrypoint(BackendEntrypoint):
    """xarray backend for Zarr stores, NetCDF and HDF5 files."""

    description = "Open Zarr stores, NetCDF and HDF5 files with Bedform"
    supports_groups = True
    open_dataset_parameters: ClassVar[tuple[str, ...]] = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "use_zarr_fill_value_as_mask",
        "chunk_cache",
        "prefetch",
        "replicas",
        "freshness",
        "snapshot",
        "threads",
        "allow_external",
        "storage_options",
        "concat_dim",
        "compat",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether Bedform made the store; for all others the user must name the backend."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        if "://" in str(filename_or_obj):
            url = str(filename_or_obj)
            return url.startswith(_SCHEMES) and _is_ours_at(url)
        try:
            with Path(filename_or_obj, "zarr.json").open("rb") as document:
                return _OURS.search(document.read(_START_BYTES)) is not None
        except OSError:
            return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        chunk_cache: int | str = CACHE,
        prefetch: Any = "auto",
        replicas: bool = True,
        freshness: Any = None,
        snapshot: bool = False,
        threads: int | None = None,
        allow_external: Any = False,
        storage_options: Any = None,
        concat_dim: str | None = None,
        compat: Literal["equals", "override"] = "equals",
    ) -> Dataset:
        """Opens one group as a data set. Reads only the chunks of index coordinates."""
        how = {
            "concat_dim": concat_dim,
            "compat": compat,
            "freshness": freshness,
            "threads": threads,
            "prefetch": prefetch,
            "replicas": replicas,
            "allow_external": allow_external,
            "storage_options": storage_options,
        }
        inner = _group_path(group)
        place = _opened_at(filename_or_obj, cache=chunk_cache, **how)
        if group is None and isinstance(place, RefinedMesh):
            raise UnsupportedError(mesh_is_a_tree(place.path))
        opened = _group_of(place, filename_or_obj, inner, snapshot)
        return _decoded(
            BedformDataStore(
                opened,
                use_fill_value_as_mask=use_zarr_fill_value_as_mask,
                drop_variables=drop_variables,
            ),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        chunk_cache: int | str = CACHE,
        prefetch: Any = "auto",
        replicas: bool = True,
        freshness: Any = None,
        snapshot: bool = False,
        threads: int | None = None,
        allow_external: Any = False,
        storage_options: Any = None,
        concat_dim: str | None = None,
        compat: Literal["equals", "override"] = "equals",
        **decoding: Any,
    ) -> dict[str, Dataset]:
        """Opens every group as a data set, by its absolute path below ``group``.

        Of a refined mesh the groups are its levels. With ``group``, which may be ``"/"``, they are
        those of the store or file in which the mesh lies.
        """
        how = {
            "concat_dim": concat_dim,
            "compat": compat,
            "freshness": freshness,
            "threads": threads,
            "prefetch": prefetch,
            "replicas": replicas,
            "allow_external": allow_external,
            "storage_options": storage_options,
        }
        path = _group_path(group)
        place = _opened_at(filename_or_obj, cache=chunk_cache, **how)
        if group is None and isinstance(place, RefinedMesh):
            if snapshot:
                raise UnsupportedError(f"{place.path} is a refined mesh: leave out snapshot=True")
            return _levels_of(place, decoding.get("drop_variables"))
        parent = _group_of(place, filename_or_obj, path, snapshot)
        inner = {} if isinstance(parent, Array) else parent.groups()
        groups = {"/": parent, **{f"/{path}": below for path, below in inner.items()}}
        return {
            path: _decoded(
                BedformDataStore(
                    below,
                    use_fill_value_as_mask=use_zarr_fill_value_as_mask,
                    drop_variables=decoding.get("drop_variables"),
                ),
                **decoding,
            )
            for path, below in groups.items()
        }

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Opens every group, or every level of a refined mesh, as a node of a tree."""
        from xarray import DataTree

        groups = self.open_groups_as_dict(filename_or_obj, **options)
        # xarray's helper would also close the files of the groups, but there are none.
        return DataTree.from_dict(dict(groups))


def _is_ours_at(url: str) -> bool:
    """Whether an object store holds a store whose first array Bedform made."""
    try:
        store = open_place(url, storage_options={"deadline_seconds": _GUESS_SECONDS})
        if not isinstance(store, Store):
            return False
        first = next(
            (path for path, kind in store._call(store._inner.nodes)() if kind == "array"), None
        )
        return first is not None and bool(store.array(first)._facts["bedform"])
    except BedformError:
        return False


def _group_path(group: Any) -> str:
    """Returns the argument ``group`` as a path without slashes at its ends; empty for the root."""
    if group is not None and not isinstance(group, str):
        raise WrongTypeError(
            f"group must be the path of one group as text, such as 'forecast/surface', not "
            f"{group!r:.100}; xr.open_datatree opens all groups"
        )
    return "/".join(filter(None, (group or "").split("/")))


def _opened_at(place: Any, **options: Any) -> Any:
    """Opens the store, file or mesh at ``place``."""
    with said_by_caller():
        return bf.open(place, **options)


def _levels_of(mesh: RefinedMesh, dropped: str | Iterable[str] | None) -> dict[str, Dataset]:
    """Returns a data set for each level of a mesh, without the variables that are dropped."""
    from bedform._mesh_tree import level_datasets

    names = [dropped] if isinstance(dropped, str) else list(dropped or ())
    levels = level_datasets(mesh, mesh)
    return {path: level.drop_vars(names, errors="ignore") for path, level in levels.items()}


def _group_of(place: Any, given: Any, inner: str, snapshot: bool) -> Group | Array:
    """Returns the group at the path ``inner`` of an opened store, or of its snapshot.

    If the place is a single array, returns that array.

    Raises
    ------
    UnsupportedError
        The place is a refined mesh without groups.
    """
    if isinstance(place, RefinedMesh) and place._store is None:
        raise UnsupportedError(mesh_is_a_tree(place.path))
    opened: Any = without_mesh(place)
    if snapshot:
        opened = _held(opened)
    if not inner:
        return cast("Group | Array", opened)
    if isinstance(opened, Array):
        raise NotFoundError(f"{given} is an array, and has no group {inner!r}")
    groups: dict[str, Group] = opened.groups()
    if inner not in groups:
        kind = "is an array, not a group" if inner in opened else "does not exist"
        known = ", ".join(sorted(groups)[:_GROUPS_SHOWN])
        more = f" and {len(groups) - _GROUPS_SHOWN} more" if len(groups) > _GROUPS_SHOWN else ""
        has = f"it has {known}{more}" if groups else "it has none below the root"
        raise NotFoundError(f"group {inner!r} of {opened.store_path} {kind}: {has}")
    return groups[inner]


def _held(opened: Any) -> Any:
    """Returns a snapshot of a store, or of an array that is a whole store."""
    if isinstance(opened, Array):
        return opened._store.snapshot().array(opened.path)
    return opened.snapshot() if isinstance(opened, Store) else opened


def _decoded(store: BedformDataStore, **decoding: Any) -> Dataset:
    return StoreBackendEntrypoint().open_dataset(store, **decoding)
