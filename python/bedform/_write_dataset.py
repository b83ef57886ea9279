"""Writing xarray data sets into stores, like ``to_zarr``, in layouts that fit the reads.

How
---
- The engine builds a new store in a hidden directory beside the target and publishes it as a
  whole. To replace a store or group, both change places in one step. Readers see the complete old
  one or the complete new one, also after a crash.
- In an existing store, new arrays are drafts: readers see them only after the commit names them.
- An append writes beyond the end of the arrays, which readers ignore, and commits all new shapes
  at once. Coordinates that it repeats are written only where they differ from the stored ones.
- Values of Dask arrays are written chunk by chunk, in parallel. The chunks are first cut at shard
  borders, so that every shard is encoded once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from bedform import _internal, _json, _new_array
from bedform._advise import checked_reads, layout_for
from bedform._array import Array
from bedform._chunked_values import (
    ChunkTarget,
    align,
    box,
    fitted,
    is_chunked,
    store_chunks,
    values_of,
)
from bedform._dask_cluster import scheduling
from bedform._dataset_encoding import (
    Encoded,
    check_fits,
    check_names,
    check_type,
    check_units,
    encode,
    existing_encodings,
    plain_attributes,
    split,
)
from bedform._dataset_part import SMALL_ARRAY_BYTES, VariableWrite, appended, growths, is_stored
from bedform._dataset_region import check_coordinate, resolve
from bedform._errors import (
    BedformError,
    ExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    WrongTypeError,
    check_name,
    engine_call,
)
from bedform._group import Group
from bedform._layout import Readers, Regular, described_readers
from bedform._location import check_new_store, location
from bedform._opening import _check_local, _refuse_storage_options, _stage, create
from bedform._opening import open_place as open_store
from bedform._overflow import check_on_overflow
from bedform._remote import is_url
from bedform._zarr_encoding import codecs_from, layout_from

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from xarray import Dataset, Variable

    from bedform._advise import Reads
    from bedform._overflow import OnOverflow
    from bedform._store import Durability, Store

Mode = Literal["w", "w-", "a", "a-", "r+"]
Layout = Literal["auto"] | Regular
Codecs = Literal["auto"] | Sequence[str | Mapping[str, Any]]

# The fewest elements of a chunk of a short series, since a series may grow.
SERIES_CHUNK = 1 << 10
SERIES_SHARD = 1 << 16


@dataclass
class _NewArrayOptions:
    """The caller's options for new arrays."""

    encoding: Mapping[Hashable, Mapping[str, Any]]
    layout: Layout | Mapping[str, Layout] | None
    reads: Reads | None
    codecs: Codecs | None
    codecs_beyond_zarr: bool
    profile: Any
    readers: Readers


@dataclass
class _WriteOptions:
    """The caller's options for writing values."""

    append_dim: str | None
    region: Mapping[str, slice]
    compute: bool
    safe_chunks: bool
    #: The cluster that computes and writes; None lets Dask choose.
    cluster: Any
    #: Whether the caller allowed overwriting variables of the store.
    overwrites: bool = False
    #: Whether values that do not fit their encoding are an error.
    on_overflow: OnOverflow = "warn"


def write_dataset(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    mode: Mode | None = None,
    group: str | None = None,
    encoding: Mapping[Hashable, Mapping[str, Any]] | None = None,
    append_dim: str | None = None,
    region: Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None = None,
    layout: Layout | Mapping[str, Layout] | None = None,
    reads: Reads | None = None,
    codecs: Codecs | None = None,
    codecs_beyond_zarr: bool = False,
    profile: Any = None,
    readers: Readers = "any",
    compute: bool = True,
    safe_chunks: bool = True,
    on_overflow: OnOverflow = "warn",
    dask: Any = None,
    durability: Durability = "disk",
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Write an xarray data set, encoded as ``Dataset.to_zarr`` encodes it. Durable on return.

    A new data set appears as a whole, and so does an append. Region writes and replaced values are
    atomic per shard.

    Parameters
    ----------
    dataset
        The data set. Dask chunks are computed and written in parallel, in bounded memory.
    path
        The directory of the store, existing or new, or a URL as in :func:`bedform.create`.
    mode
        ``"w-"`` creates a store and fails if one exists; ``"w"`` replaces it. ``"a"`` adds
        variables and overwrites those of the same name. ``"a-"`` with ``append_dim`` overwrites
        only growing variables. ``"r+"`` changes values only. The default is ``"w-"``, with
        ``region`` ``"r+"``, and with ``append_dim`` ``"a"``, which then warns of changing index
        coordinates.
    group
        The group; ``"/"`` or None for the root.
    encoding
        For each variable, settings that replace its own encoding, as in ``to_zarr``: ``chunks``,
        ``shards``, ``compressors``, ``dtype``, ``scale_factor``, ``units`` and so on.
    append_dim
        The dimension that grows. The data set must have every stored variable with this dimension.
    region
        The region to write: a slice or ``"auto"`` for each dimension, or ``"auto"`` for all. With
        ``"auto"`` the store's index coordinates give the slice. Index coordinates in the region are
        compared with those in the store, and not written.
    layout
        Layouts of data variables. ``"auto"`` asks :func:`bedform.advise`; a
        :class:`bedform.Regular` applies to variables of its rank; a dictionary has one for each
        name. The default is the chunks of an inherited encoding, or else ``"auto"``. Arrays under 1
        MiB are one chunk.
    reads, profile, readers
        For ``"auto"``, as in :func:`bedform.advise`; the default profile is the one of the storage.
        For each variable, reads with dimensions that it lacks are ignored.
    codecs
        As in :meth:`bedform.Store.create_array`: ``"auto"`` chooses for each variable by its
        values. The default is the codecs of an inherited encoding, or else ``"auto"``.
    codecs_beyond_zarr
        As in :meth:`bedform.Store.create_array`.
    compute
        ``False`` omits the values of Dask arrays and returns a ``dask.delayed`` object that writes
        them. The arrays exist at once, filled with the fill value.
    safe_chunks
        ``False`` writes Dask chunks without cutting them at shard borders. A shard of
        several chunks is then encoded several times.
    on_overflow
        Values may exceed the range of their encoding's type: 271 does with int16 and a
        ``scale_factor`` of 0.004. ``"warn"`` warns (:class:`bedform.ConversionWarning`), and the
        cast stores other values; ``"error"`` raises before anything is stored, or, for Dask arrays,
        when the values are computed.
    dask
        A :class:`distributed.Client`, or the address of a Dask scheduler, whose workers compute and
        write the values of Dask arrays. They must reach the store by the same path or URL as this
        process. The default is an active client, or the scheduler of ``dask.config``.
    durability
        The failure that a finished write survives: a power cut (``"disk"``) or the end of this
        process (``"process"``).
    storage_options
        As in :func:`bedform.open`.

    Returns
    -------
    None or dask.delayed.Delayed
        With ``compute=False``, the object that writes the remaining values.

    Raises
    ------
    ExistsError
        Mode ``"w-"``, and ``path`` exists.
    NotFoundError
        Mode ``"r+"``, and the store does not exist.
    InvalidArgumentError
        The arguments contradict each other or the store; with ``on_overflow="error"``, values do
        not fit their encoding.

    Examples
    --------
    >>> import bedform as bf, tempfile, xarray as xr
    >>> where = tempfile.mkdtemp() + "/s.zarr"
    >>> ds = xr.Dataset({"t": ("time", [1.0, 2.0])})
    >>> bf.write_dataset(ds, where)
    >>> bf.write_dataset(ds, where, append_dim="time")
    >>> xr.open_dataset(where, engine="zarr")["t"].values
    array([1., 2., 1., 2.])
    """
    _check_dataset(dataset)
    chosen = _choose_mode(mode, append_dim, region)
    where, inner = location(path), check_name(group or "").strip("/")
    described_readers(readers)
    # A misspelt dimension would match no variable and be ignored for all: fail instead.
    reads = checked_reads(reads, [str(dim) for dim in dataset.dims]) if reads else None
    wishes = _NewArrayOptions(
        encoding or {}, layout, reads, codecs, codecs_beyond_zarr, profile, readers
    )
    options = _WriteOptions(
        append_dim,
        {},
        compute,
        safe_chunks,
        dask,
        overwrites=mode is not None,
        on_overflow=check_on_overflow(on_overflow),
    )
    target = Path(where).absolute()
    if is_url(where):
        store = _open_at_url(where, chosen, append_dim, storage_options)
        if not inner and chosen in ("w", "w-") and not _is_empty(store):
            raise ExistsError(
                f"{where} exists already, and nothing in an object store is replaced as a whole; "
                "choose another name, or mode='a'"
            )
    else:
        _refuse_storage_options(where, storage_options)
        _check_local(where)
        if not _is_store(target):
            check_new_store(where, "write_dataset")
            return _write_new(dataset, target, inner, chosen, wishes, options, durability)
        if not inner and chosen == "w-":
            raise ExistsError(f"{where} exists already; choose another name, or mode='w' or 'a'")
        if not inner and chosen == "w":
            return _write_new(dataset, target, inner, chosen, wishes, options, durability)
        store = open_store(where, "r+", durability=durability)
    there = Group(store, inner)
    has_group = not inner or store._inner.kind(inner) == "group"
    if chosen == "w-" and inner and inner in store:
        raise ExistsError(f"{inner} exists already in {where}; choose another name, or mode='w'")
    if chosen == "r+" and not has_group:
        raise NotFoundError(f"no group {inner!r} in {where}; mode='a' creates it")
    if region is not None:
        options.region, dataset = resolve(dataset, region, there)
        if append_dim in options.region:
            raise InvalidArgumentError(
                f"cannot list the same dimension in both append_dim and region: {append_dim!r}"
            )
    work = _DatasetWrite(there, chosen, wishes, options)
    if chosen == "w" and has_group and not (is_url(where) and _is_empty(store)):
        if is_url(where):
            raise UnsupportedError(
                f"{where}: no group in an object store is replaced as a whole; delete "
                f"{inner!r} before, or choose mode='a'"
            )
        work.staging = store._call(_internal.StagedGroup)(store._inner, inner)
    try:
        return work.run(dataset)
    finally:
        if work.staging:
            work.staging.discard()


def _open_at_url(
    url: str, mode: Mode, append_dim: str | None, storage_options: Mapping[str, Any] | None
) -> Store:
    """Opens the store at a URL, or creates it unless the mode requires one."""
    try:
        return cast("Store", open_store(url, "r+", storage_options=storage_options))
    except NotFoundError:
        if mode == "r+" or append_dim is not None:
            raise
    # Until the commit the store is empty, so another call may continue after a failure.
    return create(url, storage_options=storage_options)


def _is_empty(store: Store) -> bool:
    return not store.arrays() and not store._load_attributes()


def _check_dataset(dataset: Any) -> None:
    from xarray import Dataset

    if not isinstance(dataset, Dataset):
        raise WrongTypeError(f"write_dataset takes an xarray.Dataset, not {type(dataset).__name__}")
    check_names(dataset)


def _choose_mode(mode: Mode | None, append_dim: str | None, region: Any) -> Mode:
    if mode is None:
        return "a" if append_dim is not None else "r+" if region is not None else "w-"
    if mode not in ("w", "w-", "a", "a-", "r+"):
        raise InvalidArgumentError(f"mode must be 'w', 'w-', 'a', 'a-' or 'r+', not {mode!r}")
    if append_dim is not None and mode not in ("a", "a-"):
        raise InvalidArgumentError(
            f"cannot set append_dim unless mode='a' or mode=None, not {mode!r}"
        )
    if region is not None and mode not in ("a", "a-", "r+"):
        raise InvalidArgumentError(
            f"cannot set region unless mode='a', mode='a-', mode='r+' or mode=None, not {mode!r}"
        )
    return mode


def _is_store(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def _write_new(
    dataset: Dataset,
    target: Path,
    inner: str,
    mode: Mode,
    wishes: _NewArrayOptions,
    options: _WriteOptions,
    durability: Durability,
) -> Any:
    """Builds a store beside its final path, and publishes it when it is complete."""
    if mode == "r+" or options.append_dim is not None:
        raise NotFoundError(f"{target}: no such store; leave out mode, append_dim and region")
    staging, store = _stage(target, replaces=mode == "w", durability=durability)
    try:
        work = _DatasetWrite(Group(store, inner), "w-", wishes, options)
        work.run(dataset, delay=False)
        engine_call(staging.publish)()
    except BedformError as error:
        # Messages name the target: the hidden directory is removed below.
        error.args = (str(error).replace(store.store_path, str(target)),)
        raise
    finally:
        staging.discard()
    if options.compute:
        return None
    return work.delayed(open_store(target, "r+", durability=durability))


@dataclass
class _DatasetWrite:
    """One call of :func:`write_dataset` on an open store."""

    group: Group
    mode: Mode
    wishes: _NewArrayOptions
    options: _WriteOptions
    #: The new group that replaces another one at the commit.
    staging: _internal.StagedGroup | None = None
    drafts: list[str] = field(default_factory=list)
    #: Values for a later computation: values, path of the array, start of the region.
    pending: list[tuple[Any, str, list[int]]] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.group._store

    def run(self, dataset: Dataset, *, delay: bool = True) -> Any:
        """Writes everything and commits it."""
        variables, attributes = split(dataset, self.wishes.encoding)
        plain = plain_attributes(attributes, "the data set")
        parts = self._parts(variables)
        try:
            self._write(parts)
            self._commit(plain)
        except BaseException:
            self._clean()
            raise
        if self.options.compute or not delay:
            return None
        return self.delayed(self.store)

    # Parts --------------------------------------------------------------------------------------

    def _parts(self, variables: dict[str, Variable]) -> list[VariableWrite]:
        arrays = {} if self.staging else self.group.arrays()
        arrays = {name: array for name, array in arrays.items() if "/" not in name}
        there = [name for name in variables if name in arrays]
        new = [name for name in variables if name not in arrays]
        self._check(variables, arrays, new)
        existing = existing_encodings(self.group, there) if there else {}
        parts = []
        for name, variable in variables.items():
            if name in new:
                demanded = name in self.wishes.encoding
                encoded = self._encode(name, variable, demanded=demanded)
                parts.append(VariableWrite(encoded, None, None))
                continue
            grows = self.options.append_dim in arrays[name].dims
            if self.mode == "a-" and self.options.append_dim is not None and not grows:
                continue
            check_type(name, existing[name], variable)
            variable = variable.copy(deep=False)
            variable.encoding = existing[name].encoding
            encoded = self._encode(name, variable, demanded=False)
            check_units(name, existing[name], encoded)
            encoded.variable = check_fits(
                name,
                existing[name],
                encoded.variable,
                self.options.region,
                self.options.append_dim,
            )
            if self.options.append_dim is not None and not (grows or self.options.overwrites):
                check_coordinate(name, arrays[name], encoded.variable)
            axis = arrays[name].dims.index(str(self.options.append_dim)) if grows else None
            parts.append(VariableWrite(encoded, arrays[name], axis))
        return parts

    def _encode(self, name: str, variable: Variable, *, demanded: bool) -> Encoded:
        overflow = self.options.on_overflow
        return encode(name, variable, demanded=demanded, on_overflow=overflow)

    def _check(
        self, variables: dict[str, Variable], arrays: dict[str, Array], new: list[str]
    ) -> None:
        """Fails for variables that would contradict others of the store."""
        if new and (self.mode == "r+" or self.options.region):
            raise InvalidArgumentError(
                f"dataset contains non-pre-existing variables {new!r}; mode='r+' and region= only "
                "change what is in the store"
            )
        given = [str(name) for name in self.wishes.encoding if name in arrays]
        if given:
            raise InvalidArgumentError(
                f"variable {given[0]!r} already exists, but encoding was provided; leave it out"
            )
        dim = self.options.append_dim
        if dim is None:
            return
        growing = [name for name, array in arrays.items() if dim in array.dims]
        if not growing:
            dims = sorted({name for array in arrays.values() for name in array.dims})
            raise InvalidArgumentError(
                f"append_dim={dim!r} does not match any existing dataset dimensions: {dims}"
            )
        missing = [name for name in growing if name not in variables]
        if missing:
            raise InvalidArgumentError(
                f"{', '.join(missing)}: in the store, with the dimension {dim!r}, but not in the "
                "data set; they would be too short afterwards"
            )
        short = [name for name in new if dim in variables[name].dims]
        if short:
            raise InvalidArgumentError(
                f"{', '.join(short)}: not in the store, but with the dimension {dim!r}; they would "
                "be too short afterwards"
            )

    # New arrays -----------------------------------------------------------------------------------

    def _draft(self, encoded: Encoded) -> Array:
        variable = encoded.variable
        codecs = self._codecs(encoded)
        reads = self.wishes.reads
        layout = self._layout(encoded)
        if reads is not None:
            there = {
                axes: weight for axes, weight in reads.items() if set(axes) <= set(variable.dims)
            }
            reads = there or None
        if layout == "auto" and is_chunked(variable._data):
            layout = fitted(self._advised(variable, reads), variable._data)
        description = _new_array.describe(
            variable.shape,
            variable.dtype,
            [str(dim) for dim in variable.dims],
            layout,
            reads,
            codecs["codecs"],
            encoded.fill_value,
            encoded.attributes,
            None,
            self.wishes.profile,
            codecs["codecs"] == "auto" and self.wishes.codecs_beyond_zarr,
            self.wishes.readers,
        )
        if "transpose" in codecs:
            description["transpose"] = codecs["transpose"]
        if self.staging:
            text = _json.dump(description)
            values = _new_array.sampled(variable._data, description)
            draft = self.store._call(self.staging.draft_array)(encoded.name, text, values)
            return Array(self.store, draft)
        self.drafts.append(self.group._join(encoded.name))
        data: Any = variable._data
        return self.group._create(encoded.name, description, draft=True, values=data)

    def _advised(self, variable: Variable, reads: Reads | None) -> Regular:
        dims = [str(dim) for dim in variable.dims]
        profile = self.store._profile() if self.wishes.profile is None else self.wishes.profile
        size, where = _item_bytes(variable), self.store.store_path
        readers = self.wishes.readers
        return layout_for(list(variable.shape), size, dims, reads, None, profile, where, readers)

    def _codecs(self, encoded: Encoded) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        if encoded.demanded or self.wishes.codecs is None:
            asked = codecs_from(encoded.encoding, demanded=encoded.demanded) or {}
        codecs = "auto" if self.wishes.codecs is None else self.wishes.codecs
        return {"codecs": codecs, **asked}

    def _layout(self, encoded: Encoded) -> Layout:
        variable, name = encoded.variable, encoded.name
        in_encoding = layout_from(encoded.encoding, variable.shape, name)
        if encoded.demanded and in_encoding is not None:
            return in_encoding
        wished = self.wishes.layout
        if isinstance(wished, Mapping):
            wished = wished.get(name)
            if wished is not None:
                return wished
        if _is_small(variable):
            return (
                in_encoding if in_encoding is not None and wished is None else _one_chunk(variable)
            )
        if isinstance(wished, Regular) and len(wished.chunks) == variable.ndim:
            return wished
        if in_encoding is not None and wished is None and self.wishes.reads is None:
            return in_encoding
        return "auto"

    # Writing --------------------------------------------------------------------------------------

    def _write(self, parts: list[VariableWrite]) -> None:
        growing = [part for part in parts if part.axis is not None]
        others = [part for part in parts if part.axis is None]
        if {part.length for part in growing} <= {0}:
            self._fill(others, {})
        elif all(part.encoded.variable._in_memory for part in growing):
            self._fill(others, {})
            self.store._call(self.store._inner.append)(appended(growing))
        else:
            self._append_in_pieces(parts, growing)

    def _append_in_pieces(self, parts: list[VariableWrite], growing: list[VariableWrite]) -> None:
        """Appends values that Dask computes, or that exceed memory."""

        def fill(shapes: list[list[int]]) -> None:
            names = (part.name for part in growing)
            self._fill(parts, dict(zip(names, shapes, strict=True)))

        self.store._call(self.store._inner.append_with)(growths(growing), fill)

    def _fill(self, parts: Iterable[VariableWrite], shapes: dict[str, list[int]]) -> None:
        """Writes values: arrays in memory one after the other, the others in one computation."""
        computed: list[tuple[Any, ChunkTarget, list[int]]] = []
        for part in parts:
            if part.array is None:
                array = self._draft(part.encoded)
                target = ChunkTarget(array, "draft")
            elif part.name in shapes:
                inner = self.store._inner.grown(part.array.path, shapes[part.name])
                array = Array(self.store, inner)
                target = ChunkTarget(array, tuple(shapes[part.name]))
            else:
                array, target = part.array, ChunkTarget(part.array, "array")
            starts = self._starts(part, array.shape)
            data = values_of(part.encoded.variable, array)
            if not is_chunked(data):
                if part.array is None or part.axis is not None or not is_stored(array, data):
                    target[box(starts, data.shape)] = data
                continue
            if self.options.safe_chunks:
                data = align(data, starts, array.shards or array.chunks)
            if self.options.compute:
                computed.append((data, target, starts))
            else:
                self.pending.append((data, self.group._join(part.name), starts))
        if computed:
            with scheduling(self.options.cluster) as told:
                store_chunks(computed, compute=True, **told)

    def _starts(self, part: VariableWrite, shape: tuple[int, ...]) -> list[int]:
        variable = part.encoded.variable
        starts = [
            self.options.region.get(str(dim), slice(None)).indices(size)[0]
            for dim, size in zip(variable.dims, shape, strict=True)
        ]
        if part.axis is not None:
            starts[part.axis] = shape[part.axis] - variable.shape[part.axis]
        return starts

    def delayed(self, store: Store) -> Any:
        """Returns the delayed writes of the omitted values."""
        chunks = [(d, ChunkTarget(store.array(path), "array"), at) for d, path, at in self.pending]
        return store_chunks(chunks, compute=False)

    # Commit ---------------------------------------------------------------------------------------

    def _commit(self, attributes: dict[str, Any]) -> None:
        if self.staging:
            self.store._call(self.staging.publish)(_json.dump_attributes(attributes))
            return
        groups: list[tuple[str, str]] = []
        if self.mode != "r+":
            kind = "group" if not self.group.path else self.store._inner.kind(self.group.path)
            if kind != "group" or self.group._load_attributes() != attributes:
                groups = [(self.group.path, _json.dump_attributes(attributes))]
        if self.drafts or groups:
            self.store._call(self.store._inner.commit_drafts)(self.drafts, groups)

    def _clean(self) -> None:
        """Removes drafts, which no reader sees."""
        # A draft that cannot be removed is replaced when its name is used again.
        with contextlib.suppress(BedformError):
            self.store._call(self.store._inner.discard_drafts)(self.drafts)


def _item_bytes(variable: Variable) -> int:
    # NumPy's size of a reference to text; the text itself is not counted.
    return 16 if variable.dtype.kind in "OT" else variable.dtype.itemsize


def _is_small(variable: Variable) -> bool:
    return (
        math.prod(variable.shape) * _item_bytes(variable) <= SMALL_ARRAY_BYTES
        and 0 not in variable.shape
    )


def _one_chunk(variable: Variable) -> Regular:
    """Returns a layout of one chunk; a series gets a larger chunk, since its axis may grow."""
    if variable.ndim != 1:
        return Regular(tuple(max(1, length) for length in variable.shape))
    chunk = max(SERIES_CHUNK, variable.shape[0])
    return Regular((chunk,), (chunk * max(1, SERIES_SHARD // chunk),))
