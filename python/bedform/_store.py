"""Stores: groups of arrays in one place."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from bedform import _fork, _internal, _json, _settle
from bedform._advise import Profile, kept_profile
from bedform._ahead import ReadsAhead
from bedform._array import Array
from bedform._catalogue import conditions_of
from bedform._comm import Messages, declining
from bedform._errors import (
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    check_name,
    check_text,
    engine_call,
)
from bedform._group import Group
from bedform._integers import byte_count, integer
from bedform._references import References
from bedform._remote import storage_options_among, without_query
from bedform._session import Session

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from bedform._session import Settled

P = ParamSpec("P")
T = TypeVar("T")
Durability = Literal["disk", "process"]


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


class Store(ReadsAhead, Group):
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
        self._is_closed = False
        # Of a snapshot: what it is opened by elsewhere, compressed.
        self._moment = moment
        super().__init__(self, "")

    @property
    def _inner(self) -> _internal.Store:
        """The engine's handle; in a child process one of its own."""
        self._check_open()
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
        """Let further calls, of its arrays and groups, too, be errors. May be called twice.

        Nothing waits for it: every write is durable when it returns. A session of the store goes
        on, and has an end of its own.
        """
        self._is_closed = True
        if self._process is _fork.current:
            self._opened.drop_prefetched()

    def flush(self) -> None:
        """Nothing waits to be written: every write is durable when it returns."""
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidArgumentError(
                f"{self._path_of_store} is closed: open it again, or use it inside its with block"
            )

    def __bool__(self) -> bool:
        """True until the store is closed, as in h5py."""
        return not self._is_closed

    @property
    def mode(self) -> str:
        """``"r"``, or ``"r+"`` where it can be written."""
        return "r+" if self._is_writable else "r"

    @property
    def _is_writable(self) -> bool:
        return bool(self._options.get("writable")) and not self.is_snapshot

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

    def _place_of(self, path: str) -> str:
        """What messages call the array or group at ``path``."""
        return f"{self._path_of_store}/{path}" if path else self._path_of_store

    def _call(self, function: Callable[P, T]) -> Callable[P, T]:
        """A call of the engine whose errors name this store."""
        return engine_call(function, self._path_of_store)

    def _profile(self) -> Profile | None:
        """The profile that the store was opened with, else the kept one of its place."""
        facts = self._options.get("profile")
        if facts is not None:
            return Profile(facts)
        place = without_query(self._path_of_store)
        return kept_profile(place, storage_options_among(self._options))

    def array(self, path: str) -> Array:
        """The array at ``path``."""
        return Array(self, self._call(self._inner.array)(check_name(path)))

    _array_at = array

    def _attributes_of(self, path: str) -> dict[str, Any]:
        """The attributes of a node, as reads of this handle see them."""
        if self._call(self._inner.kind)(path) == "array":
            return self.array(path)._load_attributes()
        text = self._call(self._inner.group_attributes)(path)
        loaded: dict[str, Any] = _json.load(text)
        return loaded

    def _change_attributes_of(
        self, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Write what ``change`` makes of the attributes that a node has in storage now."""
        if not self._is_writable:
            what = "a snapshot is only read" if self.is_snapshot else "it was opened to read"
            where = f"{self._path_of_store}/{path}".rstrip("/")
            raise ReadOnlyError(
                f"cannot change attributes of {where}: {what}; use bf.open(..., 'r+')"
            )
        # A handle that does not look for changes would undo those of others.
        is_fresh = self._options.get("freshness") == "read"
        newest = self if is_fresh else _reopen(self._path_of_store, self._options)
        self.set_attributes(change(newest._attributes_of(path)), path)

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
        dask: Any = None,
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
            A :class:`distributed.Client`, or the address of a Dask scheduler: its workers, which
            must reach the store by the same path or URL, settle a share each. Or a number of
            shares, for whatever runs Dask's tasks: a cluster whose client is active, or processes
            or threads as ``dask.config`` says.
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
        that are not visible. ``refused`` are arrays that cannot be read, and why. ``replicas`` have
        a ``state`` each: ``"current"``; ``"resting"`` until :func:`optimize` has compared it,
        because files were copied or moved; ``"outdated"``; ``"broken"``; and the ``reason``.
        """
        arrays, refused = self._opened_arrays()
        return {
            "path": self._path_of_store,
            "format": f"zarr v{self._call(self._inner.zarr_format)()}",
            "attributes": self._load_attributes(),
            "groups": sorted(self.groups()),
            "log": json.loads(self._call(self._inner.log_summary)()),
            "arrays": {name: array.info() for name, array in arrays.items()},
            "refused": refused,
            "replicas": conditions_of(self._path_of_store, store=self._inner),
        }

    def verify(self, progress: Callable[[int, int], object] | None = None) -> list[str]:
        """Read everything that is stored, and give one line for everything that is damaged.

        The line of an array that this version cannot read begins with ``cannot be checked:``.

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


def _open(path: str, options: dict[str, Any], moment: bytes | None) -> _internal.Store:
    if isinstance(path, References):
        return path.open(options)
    if moment is None:
        return engine_call(_internal.Store.open, path)(path, _json.dump(options))
    opening = engine_call(_internal.Store.open_snapshot, path)
    return opening(path, _json.dump(options), zlib.decompress(moment).decode())


def _reopen(path: str, options: dict[str, Any], moment: bytes | None = None) -> Store:
    return Store(_open(path, options, moment), path, options, moment)
