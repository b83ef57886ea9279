"""Stores: groups of arrays in one place."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np

from bedform import _fork, _internal, _json, _settle
from bedform._advise import Profile, chosen_profile, numbered_reads
from bedform._array import Array
from bedform._comm import Messages, declining
from bedform._elements import type_of
from bedform._errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    check_name,
    check_text,
    engine_call,
)
from bedform._integers import byte_count, integer, integers
from bedform._layout import Regular, check_layout
from bedform._session import Session

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from bedform._session import Settled

P = ParamSpec("P")
T = TypeVar("T")
Durability = Literal["disk", "process"]

# Zarr's names for what NumPy calls otherwise.
_ZARR_NAMES = {"bool": "bool", "object": "string", "str": "string"}


def _check_durability(durability: object, known: tuple[str, str]) -> None:
    if durability not in known:
        raise InvalidArgumentError(
            f"durability must be {known[0]!r} or {known[1]!r}, not {durability!r}"
        )


def _tier(burst: Any) -> Any:
    """The directory of a burst tier as the engine takes it."""
    if burst is None or burst is False or burst == "":
        return burst
    try:
        return str(Path(burst).absolute())
    except TypeError:
        raise InvalidArgumentError(
            f"burst must be a directory, or False for none, not {burst!r}"
        ) from None


#: What :meth:`Group.create_array` takes where nothing is given.
_NEW_ARRAY: dict[str, Any] = {
    "dims": None,
    "layout": "auto",
    "reads": None,
    "codecs": ("zstd",),
    "fill_value": None,
    "attributes": None,
    "append_length": None,
    "profile": None,
    "checksum": True,
}


class Group:
    """A group of a store: arrays and groups below one path."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    @property
    def path(self) -> str:
        """The path in the store; empty for the root."""
        return self._path

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, as storage has them now. A copy: assign to change them."""
        if self._is_array():
            return {}
        text = self._store._call(self._store._inner.group_attributes)(self._path)
        loaded: dict[str, Any] = _json.load(text)
        return loaded

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        self._store.set_attributes(attributes, self._path)

    def _below(self) -> Iterator[tuple[str, str, str]]:
        prefix = f"{self._path}/" if self._path else ""
        for path, kind in self._store._call(self._store._inner.nodes)():
            if path.startswith(prefix):
                yield path, path.removeprefix(prefix), kind

    def _join(self, name: str) -> str:
        check_name(name)
        return f"{self._path}/{name}" if self._path else name

    def _is_array(self) -> bool:
        """True for a store whose root is a single array, not a group."""
        return not self._path and self._store._call(self._store._inner.kind)("") == "array"

    def arrays(self) -> dict[str, Array]:
        """Every array below the group, by its path from here.

        A store that is a single array has it under the empty name.
        """
        if self._is_array():
            return {"": self._store.array("")}
        return {
            name: self._store.array(path) for path, name, kind in self._below() if kind == "array"
        }

    def groups(self) -> dict[str, Group]:
        """Every group below the group, by its path from here."""
        return {
            name: Group(self._store, path) for path, name, kind in self._below() if kind == "group"
        }

    def __iter__(self) -> Iterator[str]:
        return (name for _, name, _ in self._below() if "/" not in name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self._store._call(self._store._inner.kind)(self._join(name)) is not None

    def __getitem__(self, name: str) -> Any:
        path = self._join(check_name(name).strip("/"))
        kind = self._store._call(self._store._inner.kind)(path)
        if kind == "array":
            return self._store.array(path)
        if kind == "group" and path:
            return Group(self._store, path)
        raise NotFoundError(f"no array or group {name!r} in {self._where()}{self._known()}")

    def _known(self) -> str:
        """What the group has, for messages; nothing where nobody names that."""
        try:
            return f": it has {', '.join(sorted(self)) or 'nothing'}"
        except PermissionDeniedError:
            return ""

    def __delitem__(self, name: str) -> None:
        self._store._call(self._store._inner.delete)(self._join(name))

    def create_group(self, name: str, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group with its missing parents. Atomic, durable on return."""
        path = self._join(name)
        self._store._call(self._store._inner.create_group)(path, _json.dump_attributes(attributes))
        return Group(self._store, path)

    def create_array(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        dims: Sequence[str | None] | None = None,
        *,
        layout: Literal["auto"] | Regular = "auto",
        reads: Mapping[tuple[str, ...], float] | None = None,
        codecs: Sequence[str | Mapping[str, Any]] = ("zstd",),
        fill_value: Any = None,
        attributes: Mapping[str, Any] | None = None,
        append_length: int | None = None,
        profile: Any = None,
        checksum: bool = True,
    ) -> Array:
        """Create an array. Atomic, durable on return.

        Parameters
        ----------
        name
            Its name, or path from this group.
        shape
            Elements along each axis; 0 along an axis that will be appended to.
        dtype
            A fixed-size number, bool or complex type, ``str``, or bytes of fixed length (``S``).
        dims
            Names of the axes.
        layout
            ``"auto"`` takes what :func:`bedform.advise` says, or a :class:`bedform.Regular`.
        reads
            For ``"auto"``: the axes that a typical read spans, with weights.
        codecs
            By name or as Zarr metadata have them, from bytes to bytes. ``"pcodec"``, which takes
            numbers of 16, 32 and 64 bits, may come first. CRC-32C is put behind them.
        fill_value
            What elements are that were never written; zero, false or the empty text without it.
        append_length
            For ``"auto"``: elements that one append brings along the axis of length 0.
        profile
            For ``"auto"``: as in :func:`bedform.advise`; without it that of the store.
        checksum
            ``False`` leaves the chunks without a CRC-32C: changed bits are then not noticed.

        Raises
        ------
        ExistsError
            The name is taken.
        InvalidArgumentError
            The arguments do not fit each other.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> store.create_array("t", (0, 90, 180), "float32", ("time", "lat", "lon")).shape
        (0, 90, 180)
        """
        with _about(name):
            description = self._describe(
                shape,
                dtype,
                dims,
                layout,
                reads,
                codecs,
                fill_value,
                attributes,
                append_length,
                profile,
            )
        description["checksum"] = checksum
        return self._create(name, description, draft=False)

    def create_arrays(self, arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Create many arrays at once: readers see all of them or none. Durable on return.

        Much faster than one by one, for the output of a simulation with hundreds of variables.

        Parameters
        ----------
        arrays
            By name or path from this group, the arguments of :meth:`create_array`.

        Raises
        ------
        ExistsError
            A name is taken; nothing has been created.

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
        """Paths and descriptions of new arrays, as the engine takes them."""
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
            given = {**_NEW_ARRAY, **arguments}
            checksum = given.pop("checksum")
            unknown = set(given) - set(_NEW_ARRAY) - {"shape", "dtype"}
            if unknown or not {"shape", "dtype"} <= set(given):
                what = f"no argument {min(unknown)!r}" if unknown else "shape or dtype missing"
                raise InvalidArgumentError(f"array {name!r}: {what}")
            with _about(name):
                text = _json.dump({**self._describe(**given), "checksum": checksum})
            texts.append((self._join(name), text))
        return texts

    def _create(self, name: str, description: dict[str, Any], *, draft: bool) -> Array:
        with _about(name):
            text = _json.dump(description)
        inner = self._store._call(self._store._inner.create_array)(self._join(name), text, draft)
        return Array(self._store, inner)

    def _describe(
        self,
        shape: Sequence[int],
        dtype: Any,
        dims: Sequence[str | None] | None,
        layout: Any,
        reads: Any,
        codecs: Any,
        fill_value: Any,
        attributes: Any,
        append_length: int | None,
        profile: Any,
    ) -> dict[str, Any]:
        """What the engine makes an array of; the layout that it leaves open is the engine's."""
        lengths = list(integers(shape, "the shape"))
        _check_described(layout, dims, reads, codecs, append_length)
        if dims is not None and len(dims) != len(lengths):
            raise InvalidArgumentError(f"{len(dims)} names for {len(lengths)} axes")
        kind = type_of(dtype)
        described = {
            "shape": lengths,
            "dtype": _zarr_name(kind),
            "codecs": _json._plain(list(codecs)),
            "fill_value": _fill(fill_value, kind),
            "dims": None if dims is None else list(dims),
            "attributes": json.loads(_json.dump_attributes(attributes)),
        }
        if layout != "auto":
            return {**described, **_described_layout(layout)}
        names = [name or f"dim_{axis}" for axis, name in enumerate(dims or [None] * len(lengths))]
        return {
            **described,
            "reads": numbered_reads(reads, names) or None,
            "append_length": append_length,
            "profile": None if profile is None else chosen_profile(profile).to_dict(),
        }

    def _where(self) -> str:
        root = self._store.store_path
        return f"{root}/{self._path}" if self._path else root

    def __repr__(self) -> str:
        return f"<bedform.Group {self._path!r} of {self._store.store_path}>"


class Store(Group):
    """A store, opened; also its root group.

    A context manager; pickles as path and options, a snapshot with its moment.
    """

    def __init__(
        self,
        inner: _internal.Store,
        path: str,
        options: dict[str, Any],
        moment: bytes | None = None,
    ) -> None:
        self._opened, self._process = inner, _fork.current
        self._path_of_store, self._options = path, options
        # Of a snapshot: what it is opened by elsewhere, compressed.
        self._moment = moment
        super().__init__(self, "")

    @property
    def _inner(self) -> _internal.Store:
        """The engine's handle; in a child process one of its own."""
        if self._process is not _fork.current:
            _fork.leave_behind(self._opened)
            self._opened = _open(self._path_of_store, self._options, self._moment)
            self._process = _fork.current
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._path_of_store, self._options, self._moment))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open between calls; here for symmetry with files."""

    @property
    def store_path(self) -> str:
        """Where the store is."""
        return self._path_of_store

    @property
    def is_snapshot(self) -> bool:
        """True for what :meth:`snapshot` gives."""
        return self._moment is not None

    def snapshot(self) -> Store:
        """The store as of now, read-only: every array, group and attribute of one moment.

        Others may commit, settle, create, write and delete meanwhile: a read gives what there was
        at the moment, or raises :class:`SnapshotMovedError`. Nothing is kept for a snapshot: what
        was settled, written directly, shrunk or deleted since is no longer there. What a commit
        adds changes nothing for it.

        Of changes that have no commit (``array[...] = values``, and all of other programs) it knows
        by the times of files, and takes a few milliseconds for that. On a server, whose times are
        another machine's and in seconds, they may go unnoticed.

        A snapshot pickles: who loads it, in whatever process, has the same moment.

        Examples
        --------
        >>> import bedform as bf, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/s.zarr")
        >>> a = store.create_array("a", (0,), "int64", ("time",))
        >>> b = store.create_array("b", (0,), "int64", ("time",))
        >>> with store.session(settle="later") as session:
        ...     _ = session.append("a", [1]), session.append("b", [1])
        ...     _ = session.commit()
        ...     with store.snapshot() as then:
        ...         _ = session.append("a", [2]), session.append("b", [2])
        ...         _ = session.commit()
        ...         print(then["a"][:], then["b"][:], store["a"][:])
        [1] [1] [1 2]
        """
        inner, moment = self._call(self._inner.snapshot)()
        return Store(inner, self._path_of_store, self._options, zlib.compress(moment.encode()))

    def _call(self, function: Callable[P, T]) -> Callable[P, T]:
        """A call of the engine whose errors name this store."""
        return engine_call(function, self._path_of_store)

    def _profile(self) -> Profile | None:
        """The profile that the store was opened with."""
        facts = self._options.get("profile")
        return None if facts is None else Profile(facts)

    def array(self, path: str) -> Array:
        """The array at ``path``."""
        return Array(self, self._call(self._inner.array)(check_name(path)))

    def set_attributes(self, attributes: Mapping[str, Any], path: str = "") -> None:
        """Replace the attributes of an array or group. Atomic, durable on return."""
        self._call(self._inner.set_attributes)(check_name(path), _json.dump_attributes(attributes))

    def append(self, values: Mapping[str, Any], dim: str) -> int:
        """Append to several arrays along one dimension; give where the new elements start.

        Readers see all of it or nothing. Durable on return.

        Parameters
        ----------
        values
            For each array, by path, its new elements.
        dim
            The dimension that grows. Every array must have it, and end at the same length.

        Raises
        ------
        InvalidArgumentError
            An array lacks the dimension, or the lengths would differ afterwards.
        """
        parts = []
        ends = {}
        for name, new in values.items():
            array = self.array(name)
            if dim not in array.dims:
                raise InvalidArgumentError(f"{name} has the dimensions {array.dims}, not {dim!r}")
            axis = array.dims.index(dim)
            data = array._converted(new)
            if data.ndim != array.ndim:
                raise InvalidArgumentError(
                    f"{name} has {array.ndim} axes, the new elements have {data.ndim}"
                )
            ends[name] = array.shape[axis] + data.shape[axis]
            parts.append((array._inner, axis, list(data.shape), array._elements(data)))
        if len(set(ends.values())) > 1:
            lengths = ", ".join(f"{name} {end}" for name, end in ends.items())
            raise InvalidArgumentError(f"the arrays would end at different lengths: {lengths}")
        starts = self._call(self._inner.append)(parts)
        return starts[0] if starts else 0

    def session(
        self,
        *,
        comm: Any = None,
        settle: Literal["end", "later", "background"] = "end",
        settle_bytes: int | str | None = None,
        settle_commits: int | None = None,
        buffer: int | str = "64 MiB",
        durability: Literal["disk", "node"] = "disk",
        burst: str | os.PathLike[str] | Literal[False] | None = None,
        burst_capacity: int | str | None = None,
    ) -> Session:
        """Start a writing session: many writes that become visible at once.

        Parameters
        ----------
        comm
            The processes that write together, as a communicator of mpi4py (``MPI.COMM_WORLD``); all
            of them make this call. Without it this process alone.
        settle
            ``"end"`` turns the commits into shards when the session ends as a context manager;
            ``"later"`` leaves that to :meth:`settle`; ``"background"`` does it while the session
            goes on, and settles the rest at its end.
        settle_bytes, settle_commits
            With ``"background"``, what may wait to be settled: by default what ``bedform.toml``
            says, or 1 GiB and 10,000 commits. A commit waits where settling cannot keep up.
        buffer
            What may wait in memory to be written; a write that brings more waits.
        durability
            What a commit waits for: ``"disk"``, until it is durable where all nodes read it, or
            ``"node"``, until it is durable in this node's burst tier. The weaker one becomes
            visible when it is drained: with a later commit, :meth:`Session.drain`, or the end.
        burst
            The directory of a burst tier, which takes the writes first. Without it the one that
            ``BEDFORM_BURST`` or ``bedform.toml`` names; ``False`` for none.
        burst_capacity
            What this process may have there; beyond it, writing waits for draining.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/run.zarr")
        >>> t = store.create_array("t", shape=(4, 6), dtype="int32", dims=("time", "x"))
        >>> with store.session() as session:
        ...     session.write("t", np.ones((1, 3), "int32"), start=(2, 3))
        ...     session.commit()
        1
        >>> t[2].tolist()
        [0, 0, 0, 1, 1, 1]
        """
        # The other processes wait from here on.
        members = None if comm is None else Messages(comm)
        with declining(members):
            if settle not in ("end", "later", "background"):
                raise InvalidArgumentError(
                    f"settle must be 'end', 'later' or 'background', not {settle!r}"
                )
            _check_durability(durability, ("disk", "node"))
            if settle_bytes is not None:
                settle_bytes = byte_count(settle_bytes, "settle_bytes")
            if settle_commits is not None:
                settle_commits = integer(settle_commits, "settle_commits", least=1)
            if burst_capacity is not None:
                burst_capacity = byte_count(burst_capacity, "burst_capacity")
            options = {
                "buffer_bytes": byte_count(buffer, "buffer"),
                "durability": durability,
                "settle": settle,
                "settle_bytes": settle_bytes,
                "settle_commits": settle_commits,
                "burst": _tier(burst),
                "burst_capacity_bytes": burst_capacity,
            }
            text = _json.dump(options)
        inner = self._call(self._inner.session)(text, members)
        return Session(self, inner, members)

    def recover(
        self,
        *,
        leftover: Literal["keep", "commit", "discard"] = "keep",
        burst: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """Find what writers that died have left, and keep what they had promised.

        What was committed needs none of this: readers see it. What a commit with
        ``durability="node"`` promised is brought from the burst tier and becomes visible. Writes
        that no commit has are found, and stay until this is told what to do with them.

        Parameters
        ----------
        leftover
            What becomes of writes that no commit has: they stay, become a commit for each session
            that left some, over whatever was committed since, or are given up. ``"discard"`` also
            gives up promises that cannot be kept, or that have not come from their tiers. What was
            appended where others have appended since can only be discarded; the rest is committed,
            and then that is a :class:`ConflictError`.
        burst
            The directory of the burst tier; without it the configured one.

        Returns
        -------
        dict
            ``drained_bytes`` from the burst tier, promised commits that were ``completed``,
            segments of ``live`` writers, ``found`` writes by session and rank, commits that were
            made of them, ``committed``, promised commits that were ``given_up``, the ``tiers``,
            with their nodes, through which writers that died may have promised more, and from which
            it has not come, and what is ``damaged`` of what was promised: a line for each session,
            which names the commit and the place. The commits before that are visible; it and the
            later ones wait, and no session and no direct write begins, until ``"discard"`` gives
            them up, or what is damaged is back in its place and this is called again.
        """
        where = _tier(burst)
        check_text(leftover, "leftover")
        found: dict[str, Any] = json.loads(self._call(self._inner.recover)(leftover, where))
        return found

    def settle(
        self,
        *,
        memory: int | str = _settle.MEMORY,
        arrays: Sequence[str] | None = None,
        comm: Any = None,
        dask: int | None = None,
        grace: float | str = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> Settled:
        """Turn the commits of sessions into shards; give what was done.

        Readers and writers may go on meanwhile. It can be stopped, by Ctrl-C or a crash, and called
        again: what is settled stays.

        Parameters
        ----------
        memory
            The limit, in each process, for chunks and for what is read of the log; what the process
            takes beside those, 64 MiB and some 40 KiB an array, is not counted.
        arrays
            Only these; the commits stay in the log until all arrays are settled.
        comm
            The processes of an mpi4py communicator settle a share each. All make this call.
        dask
            So many shares are settled as Dask tasks, by whatever runs those: a cluster whose client
            is active, or processes or threads as ``dask.config`` says.
        grace
            Seconds, or a text such as ``"1h"``: what readers may still need stays in the log so
            long, for :meth:`collect_log` to remove. Without it readers that need it start again.
        progress
            Called with the bytes done and the bytes in all.

        Returns
        -------
        dict
            ``commits`` that are in shards now, ``objects`` and ``bytes`` written, ``read_bytes`` of
            the log, ``rounds``, and objects ``rewritten`` by another program, over whose elements
            commits lie now; with ``comm`` or ``dask``, of all processes together, to each.

        Raises
        ------
        NotFoundError
            There is no such array.
        CorruptError
            A record of the log is damaged.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> store = bf.create(tempfile.mkdtemp() + "/run.zarr")
        >>> _ = store.create_array("t", shape=(4, 6), dtype="int32", dims=("time", "x"))
        >>> with store.session(settle="later") as session:
        ...     session.write("t", np.ones((4, 6), "int32"))
        >>> store.info()["log"]["commits"]
        1
        >>> store.settle(memory="1 GiB")["commits"]
        1
        """
        members = _settle.members_of(comm, dask)
        with declining(members):
            chosen = _settle.Settling.of(memory, arrays, grace)
            for name in chosen.arrays or ():
                # Also where nothing is pending: a name with a typing error is settled never.
                if self._call(self._inner.kind)(name) != "array":
                    known = ", ".join(self.arrays()) or "none"
                    raise NotFoundError(f"no array {name!r} in {self.store_path}: it has {known}")
            if members is not None and dask is not None:
                raise InvalidArgumentError(_settle.TWO_WAYS)
        if members is not None:
            return _settle.settle_with_members(self, chosen, members, progress)
        if dask is not None:
            return _settle.settle_with_dask(self, chosen, dask, progress)
        return _settle.settle(self, chosen, progress)

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        memory: int | str = _settle.MEMORY,
        arrays: Sequence[str] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write what is committed, settled or not, as a NetCDF-4 (``.nc``) or HDF5 (``.h5``) file.

        The file appears when it is whole and durable; the store stays as it is.

        Parameters
        ----------
        target
            A path that does not exist yet; its suffix says which format.
        memory
            The limit for values in memory.
        arrays
            Only these.
        progress
            Called with the bytes done and the bytes in all.

        Raises
        ------
        ExistsError
            The target exists.
        UnsupportedError
            The format has no such type, attribute or dimensions.
        """
        from bedform._export import export

        export(self, target, memory=memory, arrays=arrays, progress=progress)

    def collect_log(self, *, grace: float | str = 0, dry_run: bool = False) -> dict[str, int]:
        """Remove from the log what no commit needs any more, and the log if nothing is left of it.

        Parameters
        ----------
        grace
            Seconds, or a text such as ``"1h"``: what readers who began so long ago may need stays.
        dry_run
            Only say what would go.

        Returns
        -------
        dict
            ``segments`` that went, their ``bytes``, ``segments_kept``, ``roots`` that went, and
            ``is_gone``: 1 if nothing is left of the log.
        """
        return dict(self._call(self._inner.collect_log)(_settle.seconds_of(grace), dry_run))

    def info(self) -> dict[str, Any]:
        """What the store holds, as plain values.

        ``log`` counts ``commits`` that are not settled, the ``segments`` that they lie in, and the
        ``bytes`` of those; ``segments_open`` are segments whose writers are at work, or have died:
        :meth:`recover` finds what those have left. It is None where nobody may list them. ``tiers``
        are the burst tiers, with their nodes, through which such writers may have promised commits
        that are not visible.
        """
        return {
            "path": self._path_of_store,
            "format": f"zarr v{self._call(self._inner.zarr_format)()}",
            "attributes": self.attributes,
            "groups": sorted(self.groups()),
            "log": json.loads(self._call(self._inner.log_summary)()),
            "arrays": {name: array.info() for name, array in self.arrays().items()},
        }

    def verify(self, progress: Callable[[int, int], object] | None = None) -> list[str]:
        """Read everything that is stored, and give one line for everything that is damaged.

        That is every shard and chunk; and all that the log has of commits which are not settled,
        those included that shards have taken over and that the log still names, since a read that
        began before goes by them. ``progress`` is called with the number of steps done and how many
        there are: arrays, and parts of the log.
        """
        return self._verify(progress)[0]

    def _verify(
        self, progress: Callable[[int, int], object] | None = None
    ) -> tuple[list[str], list[tuple[str, int, int, int]]]:
        """As `verify`; and of objects that are not there: array, how many, of how many, in log."""
        return self._call(self._inner.verify)(progress)

    def __repr__(self) -> str:
        return f"<bedform.Store {self._path_of_store!r}>"


def _described_layout(layout: Regular) -> dict[str, Any]:
    shards = layout.shards
    return {
        "chunks": list(integers(layout.chunks, "the chunks of the layout")),
        "shards": None if shards is None else list(integers(shards, "the shards of the layout")),
        "order": layout.order,
    }


def _check_described(layout: Any, dims: Any, reads: Any, codecs: Any, append_length: Any) -> None:
    """Fail for arguments of a new array that are of no type that they may have."""

    def refuse(what: str, expected: str, value: object) -> InvalidArgumentError:
        return InvalidArgumentError(f"{what} must be {expected}, not {value!r}")

    check_layout(layout)
    if dims is not None and not isinstance(dims, Collection):
        raise refuse("dims", "a list of names", dims)
    if reads is not None and not isinstance(reads, Mapping):
        raise refuse("reads", "a mapping of axes to weights", reads)
    if isinstance(codecs, str) or not isinstance(codecs, Iterable):
        raise refuse("codecs", "a list of names or of what Zarr metadata have", codecs)
    if append_length is not None:
        integer(append_length, "append_length")


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Let errors say which array's description they are about."""
    try:
        yield
    except InvalidArgumentError as error:
        raise type(error)(f"array {name!r}: {error}") from None


def _open(path: str, options: dict[str, Any], moment: bytes | None) -> _internal.Store:
    if moment is None:
        return engine_call(_internal.Store.open, path)(path, _json.dump(options))
    opening = engine_call(_internal.Store.open_snapshot, path)
    return opening(path, _json.dump(options), zlib.decompress(moment).decode())


def _reopen(path: str, options: dict[str, Any], moment: bytes | None = None) -> Store:
    return Store(_open(path, options, moment), path, options, moment)


def _zarr_name(kind: np.dtype[Any]) -> Any:
    if kind.kind in "OUT":
        return "string"
    if kind.kind == "S" and kind.itemsize:
        configuration = {"length_bytes": kind.itemsize}
        return {"name": "null_terminated_bytes", "configuration": configuration}
    if kind.kind in "biufc":
        return _ZARR_NAMES.get(kind.name, kind.name)
    raise InvalidArgumentError(
        f"arrays of {kind} are not supported; use a number, bool, complex, str or S"
    )


def _fill(value: Any, kind: np.dtype[Any]) -> Any:
    """The fill value as Zarr metadata have it, every bit of a NaN included."""
    if value is None:
        return None
    if kind.kind in "OUT":
        return str(value)
    if kind.kind == "S":
        if not isinstance(value, (bytes, bytearray, np.bytes_)):
            raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}")
        return base64.standard_b64encode(bytes(value)).decode()
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}: {error}") from None
    fits = given.ndim == 0 and given.dtype.kind in ("biufc" if kind.kind == "c" else "biuf")
    plain: Any = given.item() if fits else None
    if fits and kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if low <= plain <= high and plain == int(plain):
            return bool(plain) if kind.kind == "b" else int(plain)
        fits = False
    if not fits:
        raise InvalidArgumentError(f"the fill value {value!r} is none of {kind}")
    with np.errstate(all="ignore"):
        element = given.astype(kind)
    if kind.kind == "c":
        return [_fill_word(element.real), _fill_word(element.imag)]
    return _fill_word(element)


def _fill_word(element: np.ndarray[Any, Any]) -> Any:
    if np.isnan(element):
        bits = element.view(f"u{element.dtype.itemsize}").item()
        return f"0x{bits:0{element.dtype.itemsize * 2}x}"
    return _json._plain(element.item())
