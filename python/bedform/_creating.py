"""Creation of arrays and groups in a group, copies, and renaming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bedform import _json
from bedform._array import Array
from bedform._copying import copy_elements, copy_group, description_of
from bedform._errors import (
    ExistsError,
    InvalidArgumentError,
    WrongTypeError,
    check_name,
)
from bedform._members import GroupMembers
from bedform._new_array import about, sampled
from bedform._peer_words import CODEC_WORDS, NewArrayRequest, wanted
from bedform._reads import BasicReads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedform._group import Group
    from bedform._index import Bins
    from bedform._layout import Readers, Regular
    from bedform._store import Store


class Creating(GroupMembers):
    """Base class of writable groups: creates members. A subclass has a store and joins paths."""

    _store: Store

    def _join(self, name: str) -> str:
        raise NotImplementedError

    def _kind(self, name: str) -> str | None:
        raise NotImplementedError

    # Groups ---------------------------------------------------------------------------------------

    def create_group(self, name: str, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group with its missing parents. Atomic, durable on return."""
        _check_named(name, "create_group", self._where())
        path = self._join(name)
        self._store._call(self._store._inner.create_group)(path, _json.dump_attributes(attributes))
        created: Group = self[name]
        return created

    def require_group(self, name: str) -> Group:
        """Return the group ``name``; create it if it does not exist.

        Raises
        ------
        WrongTypeError
            The name belongs to an array.
        """
        kind = self._kind(name)
        if kind == "array":
            raise WrongTypeError(f"{name!r} in {self._where()} is an array, not a group")
        found: Group = self.create_group(name) if kind is None else self[name]
        return found

    # Arrays ---------------------------------------------------------------------------------------

    def create_array(
        self,
        name: str,
        shape: Sequence[int] | int | None = None,
        dtype: Any = None,
        dims: Sequence[str | None] | None = None,
        *,
        data: Any = None,
        chunks: Sequence[int] | int | None = None,
        shards: Sequence[int] | int | None = None,
        layout: Literal["auto"] | Regular | None = None,
        reads: Mapping[tuple[str, ...], float] | None = None,
        codecs: Literal["auto"] | Sequence[str | Mapping[str, Any]] | None = None,
        codecs_beyond_zarr: bool | None = None,
        fill_value: Any = None,
        attributes: Mapping[str, Any] | None = None,
        append_length: int | None = None,
        profile: Any = None,
        readers: Readers | None = None,
        checksum: bool | None = None,
        index: bool | Bins = False,
        overwrite: bool = False,
        **words: Any,
    ) -> Array:
        """Create an array. Atomic, durable on return, together with any data.

        Parameters
        ----------
        name
            Name, or path from this group.
        shape
            Elements along each axis; 0 along an axis that will be appended to. The default is the
            shape of the data.
        dtype
            A fixed-size number, bool or complex type, ``str``, or bytes of fixed length (``S``).
            The default is the type of the data.
        dims
            Names of the axes.
        data
            The elements. Arrays of a store, a file or Dask are copied one shard at a time. Arrays
            of xarray bring their dimensions and attributes.
        chunks, shards
            Elements of a chunk and of a shard along each axis; one number for all axes. Short for
            ``layout=bf.Regular(chunks, shards)``.
        layout
            A :class:`bedform.Regular`, or ``"auto"`` for the advice of :func:`bedform.advise`. The
            default is ``"auto"``, or the layout of ``data`` if that is an array of a store.
        reads
            For ``"auto"``: the axes that a typical read spans, with weights.
        codecs
            ``"auto"``, the default, encodes a few blocks with several lossless codecs and chooses
            those with the fastest reads, at most 2 % larger than ``"zstd"``. An array without data
            gets them at its first write. Else a list of bytes-to-bytes codecs, by name or as in
            Zarr metadata. ``"pcodec"`` for numbers of 16, 32 and 64 bits may come first. CRC-32C is
            added at the end.
        codecs_beyond_zarr
            ``True`` lets ``"auto"`` choose codecs beyond Zarr's core (pcodec), which other programs
            may not read.
        fill_value
            Value of elements that were never written; by default zero, false or the empty text.
        attributes
            Attributes of the array.
        append_length
            For ``"auto"``: elements that one append brings along the axis of length 0.
        profile
            For ``"auto"``: as in :func:`bedform.advise`; the default is that of the store.
        readers
            For ``"auto"``: as in :func:`bedform.advise`; ``"any"`` by default.
        checksum
            ``False`` omits the CRC-32C of the chunks: changed bits are then not detected.
        index
            True builds the value index of the array; bins as in :func:`bedform.index` build its
            second level, too. Settling renews it. A failure leaves the array without an index.
        overwrite
            Delete an array or group of this name first. For a moment readers find neither.
        **words
            Arguments in h5py's and zarr-python's words, such as ``dimension_names`` or
            ``compressors``: see :meth:`create_dataset`.

        Raises
        ------
        ExistsError
            The name is taken.
        InvalidArgumentError
            The arguments contradict each other.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> store.create_array("t", (0, 90, 180), "float32", ("time", "lat", "lon")).shape
        (0, 90, 180)
        >>> store.create_array("lat", data=np.linspace(-90, 90, 90), dims=("lat",))[:2]
        array([-90.        , -87.97752809])
        """
        given = {
            "shape": shape,
            "dtype": dtype,
            "dims": dims,
            "data": data,
            "chunks": chunks,
            "shards": shards,
            "layout": layout,
            "reads": reads,
            "codecs": codecs,
            "codecs_beyond_zarr": codecs_beyond_zarr,
            "fill_value": fill_value,
            "attributes": attributes,
            "append_length": append_length,
            "profile": profile,
            "readers": readers,
            "checksum": checksum,
            "overwrite": overwrite,
        }
        from bedform._index import check_index

        is_indexed = check_index(index)
        array = self._create_wanted(name, {**given, **words})
        if is_indexed:
            array.index(bins=None if index is True else index)
        return array

    def create_dataset(
        self,
        name: str,
        shape: Sequence[int] | int | None = None,
        dtype: Any = None,
        data: Any = None,
        **words: Any,
    ) -> Array:
        """Create an array as h5py does: :meth:`create_array` with h5py's and zarr's arguments.

        ``compression="gzip"`` with ``compression_opts``, ``shuffle``, ``maxshape``, ``fillvalue``
        and ``chunks=True`` have h5py's meaning. Without ``compression`` codecs are chosen by the
        elements (``codecs="auto"``). Every chunk has a CRC-32C, also without ``fletcher32``.
        Arguments without a counterpart are refused. Without data ``dtype`` is ``float32``, as in
        h5py.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> f = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> t = f.create_dataset(
        ...     "t", (0, 90), maxshape=(None, 90), compression="gzip", shuffle=True, fillvalue=-1
        ... )
        >>> t.resize(2, axis=0)
        >>> t[1, 3]
        np.float32(-1.0)
        """
        given = {"shape": shape, "dtype": dtype, "data": data}
        return self._create_wanted(name, {**given, **words}, "float32")

    def _create_wanted(self, name: str, given: Mapping[str, Any], dtype: Any = None) -> Array:
        _check_named(name, "create_array", self._where())
        data = given.get("data")
        if isinstance(data, BasicReads) and not isinstance(data, Array):
            raise InvalidArgumentError(
                f"array {name!r}: {data!r} is of a file: bf.convert copies files with their "
                "attributes; data=array[...] takes the elements alone"
            )
        if isinstance(data, Array):
            given = _instead(description_of(data), given)
        with about(name):
            new = wanted(given, dtype)
        if new.overwrite and self._kind(name) is not None:
            del self[name]  # type: ignore[attr-defined]
        if new.data is None:
            return self._create(name, new.description, draft=False)
        return self._create_filled(name, new)

    def _create_filled(self, name: str, new: NewArrayRequest) -> Array:
        """Creates an array that appears together with its elements."""
        draft = self._create(name, new.description, draft=True, values=new.data)
        path = draft.path
        try:
            with about(name):
                copy_elements(new.data, draft)
            self._store._call(self._store._inner.commit_drafts)([path])
        except BaseException:
            self._store._call(self._store._inner.discard_drafts)([path])
            raise
        return self._store.array(path)

    def _create(
        self, name: str, description: dict[str, Any], *, draft: bool, values: Any = None
    ) -> Array:
        with about(name):
            text = _json.dump(description)
        create = self._store._call(self._store._inner.create_array)
        inner = create(self._join(name), text, draft, sampled(values, description))
        return Array(self._store, inner)

    def create_arrays(self, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Create many arrays in one step: readers see all of them or none. Durable on return.

        Much faster than single calls, for the output of a simulation with hundreds of variables.

        Parameters
        ----------
        arrays
            The arguments of :meth:`create_array`, by name or path from this group.

        Raises
        ------
        ExistsError
            A name is taken; no array is created.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> store.create_arrays({
        ...     name: {"shape": (0, 90, 180), "dtype": "float32", "dims": ("time", "lat", "lon")}
        ...     for name in ("u", "v", "w")
        ... })
        >>> sorted(store)
        ['u', 'v', 'w']
        """
        self._store._call(self._store._inner.create_arrays)(self._described(arrays))

    def _described(self, arrays: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Returns paths and descriptions of new arrays for the engine."""
        if not isinstance(arrays, Mapping):
            raise InvalidArgumentError(
                f"arrays must map names to the arguments of create_array, not {arrays!r}"
            )
        texts = []
        for name, arguments in arrays.items():
            check_name(name)
            if not isinstance(arguments, Mapping):
                raise InvalidArgumentError(
                    f"array {name!r}: its arguments must be a mapping, not {arguments!r}"
                )
            with about(name):
                new = wanted(arguments)
                if new.data is not None or new.overwrite:
                    raise InvalidArgumentError(
                        "data and overwrite are for create_array: many arrays are created empty"
                    )
                text = _json.dump(new.description)
            texts.append((self._join(name), text))
        return texts

    def require_array(
        self, name: str, shape: Any = None, dtype: Any = None, exact: bool = False, **words: Any
    ) -> Array:
        """Return the array ``name``; create it with :meth:`create_array` if it does not exist.

        Parameters
        ----------
        exact
            Whether its type must be ``dtype``; else a type that holds all values of ``dtype`` will
            do.

        Raises
        ------
        WrongTypeError
            The name belongs to a group, or to an array of another shape or type.
        """
        return self._require(
            name, shape, dtype, exact, lambda: self.create_array(name, shape, dtype, **words)
        )

    def require_dataset(
        self, name: str, shape: Any = None, dtype: Any = None, exact: bool = False, **words: Any
    ) -> Array:
        """As :meth:`require_array`, with :meth:`create_dataset`."""
        return self._require(
            name, shape, dtype, exact, lambda: self.create_dataset(name, shape, dtype, **words)
        )

    def _require(self, name: str, shape: Any, dtype: Any, exact: bool, create: Any) -> Array:
        kind = self._kind(name)
        if kind is None:
            created: Array = create()
            return created
        if kind == "group":
            raise WrongTypeError(f"{name!r} in {self._where()} is a group, not an array")
        found: Array = self[name]
        lengths = None if shape is None else (shape,) if np.ndim(shape) == 0 else tuple(shape)
        if lengths is not None and lengths != found.shape:
            raise WrongTypeError(f"{name!r} has shape {found.shape}, not {lengths}")
        asked = found.dtype if dtype is None else np.dtype(dtype)
        is_text = found.dtype.hasobject and asked.kind in "OUT"
        fits = asked == found.dtype if exact else np.can_cast(asked, found.dtype)
        if not fits and not is_text:
            raise WrongTypeError(f"{name!r} has elements of {found.dtype}, not {asked}")
        return found

    # Filled arrays --------------------------------------------------------------------------------

    def full(
        self, name: str, shape: Any, fill_value: Any, dtype: Any = None, **words: Any
    ) -> Array:
        """Create an array of one value, stored as the fill value: no elements are written."""
        kind = np.asarray(fill_value).dtype if dtype is None else dtype
        return self.create_array(name, shape, kind, fill_value=fill_value, **words)

    def zeros(self, name: str, shape: Any, dtype: Any = "float64", **words: Any) -> Array:
        """Create an array of zeros."""
        return self.create_array(name, shape, dtype, **words)

    def ones(self, name: str, shape: Any, dtype: Any = "float64", **words: Any) -> Array:
        """Create an array of ones."""
        return self.full(name, shape, 1, dtype, **words)

    def empty(self, name: str, shape: Any, dtype: Any = "float64", **words: Any) -> Array:
        """Create an array to be written later; until then its elements are zero."""
        return self.create_array(name, shape, dtype, **words)

    def full_like(self, name: str, data: Any, fill_value: Any, **words: Any) -> Array:
        """Create an array of one value with the shape and type of ``data``.

        If ``data`` is an array of a store, its dimensions, layout and codecs are used, too.
        """
        return self.create_array(
            name, **_instead(_alike(data), {**words, "fill_value": fill_value})
        )

    def zeros_like(self, name: str, data: Any, **words: Any) -> Array:
        """Create an array of zeros with the shape and type of ``data``."""
        return self.create_array(name, **_instead(_alike(data), words))

    def ones_like(self, name: str, data: Any, **words: Any) -> Array:
        """Create an array of ones with the shape and type of ``data``."""
        return self.full_like(name, data, 1, **words)

    def empty_like(self, name: str, data: Any, **words: Any) -> Array:
        """Create an array, to be written later, with the shape and type of ``data``."""
        return self.zeros_like(name, data, **words)

    # Copies ---------------------------------------------------------------------------------------

    def copy(self, source: Any, dest: Any, name: str | None = None) -> None:
        """Copy an array or group, with attributes and layouts, into this or another store.

        The copy appears as a whole. It may include commits that a session makes meanwhile.

        Parameters
        ----------
        source
            A name in this group, or an array or group of any store.
        dest
            The new name, or a group, perhaps of another store.
        name
            With a group as ``dest``: the name there; by default that of the source.
        """
        found = self[source] if isinstance(source, str) else source
        target: Any = self if isinstance(dest, str) else dest
        if not isinstance(target, Creating):
            raise WrongTypeError(f"the target of a copy is a name or a group, not {dest!r}")
        new_name = dest if isinstance(dest, str) else name or found.name
        if target._kind(new_name) is not None:
            raise ExistsError(f"{new_name!r} in {target._where()} exists: delete it first")
        if isinstance(found, Array):
            target.create_array(new_name, data=found)
        elif hasattr(found, "dtype"):
            raise InvalidArgumentError(
                f"{found!r} is of a file: bf.convert copies files with their attributes; "
                "store[name] = array[...] takes the elements alone"
            )
        else:
            copy_group(found, target, new_name)

    def move(self, source: str, dest: str) -> None:
        """Rename or move an array or group.

        Copies the elements, then deletes the old name: readers see the old, for a moment both, then
        the new. An interrupted call leaves both. No session may write to it meanwhile.
        """
        old, new = (check_name(name).strip("/") for name in (source, dest))
        if f"{new}/".startswith(f"{old}/"):
            raise InvalidArgumentError(f"{source!r} cannot move to {dest!r}, which lies in it")
        self.copy(source, dest)
        del self[source]  # type: ignore[attr-defined]


def _instead(described: dict[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a description in which the caller's arguments replace parts."""
    # For compressors None is a choice: elements are stored unencoded.
    given = {k: v for k, v in words.items() if v is not None or k.startswith("compressor")}
    if set(given) & {"chunks", "shards", "layout", "shape"}:
        described = {**described, "layout": "auto"}
    if set(given) & {*CODEC_WORDS, "codecs"}:
        described = {k: v for k, v in described.items() if k not in ("codecs", "transpose")}
    return {**described, **given}


def _alike(data: Any) -> dict[str, Any]:
    if isinstance(data, Array):
        alike = description_of(data)
        return {key: alike[key] for key in alike if key not in ("fill_value", "attributes")}
    found = data if hasattr(data, "shape") and hasattr(data, "dtype") else np.asarray(data)
    return {"shape": tuple(found.shape), "dtype": found.dtype}


def _check_named(name: str, call: str, where: str) -> None:
    """Fails for the name of the group itself."""
    if not check_name(name).strip("/"):
        what = call.removeprefix("create_")
        raise InvalidArgumentError(
            f"{call}({name!r}): {where} is the group itself, and a new {what} in it needs a name, "
            f"such as {call}('t')"
        )
