"""Open stores, with sessions, snapshots, settling and checks."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from bedform import _fork, _internal, _json, _settle
from bedform._advise import Profile, kept_profile
from bedform._ahead import ReadaheadMixin
from bedform._array import Array
from bedform._catalogue import conditions_of
from bedform._comm import MpiMessages, declining
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
from bedform._mesh_writing import create_mesh
from bedform._references import References
from bedform._remote import storage_options_among, without_query
from bedform._session import Session

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from bedform._index import Bins, IndexReport
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
    """Returns the directory of a burst tier in the form that the engine takes."""
    if burst is None or burst is False or burst == "":
        return burst
    try:
        return str(Path(burst).absolute())
    except TypeError:
        raise InvalidArgumentError(
            f"burst must be a directory, or False for none, not {burst!r}"
        ) from None


class Store(ReadaheadMixin, Group):
    """An open store, which is also its root group.

    It is a context manager. It pickles as path and options, and a snapshot also as its moment.
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
        # For a snapshot: the compressed description from which another process opens it.
        self._moment = moment
        super().__init__(self, "")

    @property
    def _inner(self) -> _internal.Store:
        """The engine's handle; a forked child process opens a handle of its own."""
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
        """Close the store: later calls on it, its arrays and its groups raise an error.

        Closing twice is allowed. There is nothing to flush, since every write is durable on return.
        A session of the store stays open and must be ended separately.
        """
        self._is_closed = True
        if self._process is _fork.current:
            self._opened.drop_prefetched()

    def flush(self) -> None:
        """Do nothing: every write is durable when it returns."""
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
        """``"r"``, or ``"r+"`` if the store is writable."""
        return "r+" if self._is_writable else "r"

    @property
    def _is_writable(self) -> bool:
        return bool(self._options.get("writable")) and not self.is_snapshot

    @property
    def store_path(self) -> str:
        """Path or URL of the store."""
        return self._path_of_store

    @property
    def is_snapshot(self) -> bool:
        """Whether the store is a read-only snapshot: see :meth:`snapshot`."""
        return self._moment is not None

    def snapshot(self) -> Store:
        """Returns the store as of now, read-only: all arrays, groups and attributes of one moment.

        Other programs may commit, settle, create, write and delete meanwhile. A read returns the
        data of the moment, or raises :class:`SnapshotMovedError`. Commits never invalidate a
        snapshot. A snapshot retains no data: settling, direct writes, shrinking and deleting may
        replace elements that it needs.

        Direct writes (``array[...] = values``) and those of other programs have no commit. A
        snapshot detects them by file times, which takes a few milliseconds. A server's times have a
        resolution of seconds and another machine's clock, so such changes may go unnoticed there.

        A snapshot pickles: the loaded copy has the same moment in every process.

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
        """Returns the name of the array or group at ``path`` for messages."""
        return f"{self._path_of_store}/{path}" if path else self._path_of_store

    def _call(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wraps a call of the engine so that its errors name this store."""
        return engine_call(function, self._path_of_store)

    def _profile(self) -> Profile | None:
        """Returns the profile given when the store was opened, else the kept one of its storage."""
        facts = self._options.get("profile")
        if facts is not None:
            return Profile(facts)
        place = without_query(self._path_of_store)
        return kept_profile(place, storage_options_among(self._options))

    def array(self, path: str) -> Array:
        """Returns the array at ``path``."""
        return Array(self, self._call(self._inner.array)(check_name(path)))

    _array_at = array

    def _attributes_of(self, path: str) -> dict[str, Any]:
        """Returns the attributes of a node as reads of this handle see them."""
        if self._call(self._inner.kind)(path) == "array":
            return self.array(path)._load_attributes()
        text = self._call(self._inner.group_attributes)(path)
        loaded: dict[str, Any] = _json.load(text)
        return loaded

    def _change_attributes_of(
        self, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Applies ``change`` to the stored attributes of a node, and writes the result."""
        if not self._is_writable:
            what = "a snapshot is only read" if self.is_snapshot else "it was opened to read"
            where = f"{self._path_of_store}/{path}".rstrip("/")
            raise ReadOnlyError(
                f"cannot change attributes of {where}: {what}; use bf.open(..., 'r+')"
            )
        # A handle without freshness checks has stale attributes: it would undo others' changes.
        is_fresh = self._options.get("freshness") == "read"
        newest = self if is_fresh else _reopen(self._path_of_store, self._options)
        self.set_attributes(change(newest._attributes_of(path)), path)

    def set_attributes(self, attributes: Mapping[str, Any], path: str = "") -> None:
        """Replace the attributes of an array or group. Atomic, durable on return."""
        self._call(self._inner.set_attributes)(check_name(path), _json.dump_attributes(attributes))

    def append(self, values: Mapping[str, Any], dim: str) -> int:
        """Append to several arrays along one dimension; returns the index of the first new element.

        Readers see all of the appended elements or none. Durable on return.

        Parameters
        ----------
        values
            New elements of each array, by path.
        dim
            The growing dimension. Every array must have it, and all must end at the same length.

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

    def create_mesh(
        self,
        path: str = "",
        *,
        components: Sequence[str],
        shape: Sequence[int],
        ratios: Sequence[int | Sequence[int]] = (),
        lower: Sequence[float],
        upper: Sequence[float],
        time: float = 0.0,
        step: int = 0,
        dtype: Any = "float64",
        order: Literal["auto", "hilbert", "z", "clusters", "given"] = "auto",
        sub_box: Sequence[int] | None = None,
        codecs: Literal["auto"] | Sequence[str | Mapping[str, Any]] = "auto",
    ) -> None:
        """Create a refined mesh without boxes. Atomic, durable on return.

        :meth:`Session.write_boxes` writes its boxes, and :func:`bedform.open` reads it.

        Parameters
        ----------
        path
            The group of the mesh; the default is the root of a store without arrays.
        components
            The names of the components.
        shape
            The cells of the domain along x, y, z, on level 0.
        ratios
            For each further level, how many cells a cell of the level before has: a number, or one
            along each axis.
        lower, upper
            The corners of the domain, in the units of the simulation.
        time, step
            The time of the simulation, and the number of the time step.
        dtype
            ``"float64"`` or ``"float32"``.
        order
            The order of the sub-boxes; ``"auto"`` is the Hilbert curve.
        sub_box
            The most cells along each axis of the parts into which boxes are cut.
        codecs
            As in :meth:`create_array`.

        Raises
        ------
        ExistsError
            The path is taken.

        Examples
        --------
        >>> import bedform as bf, numpy as np, tempfile
        >>> place = tempfile.mkdtemp() + "/run.zarr"
        >>> store = bf.create(place)
        >>> store.create_mesh(components=["rho"], shape=(8, 8), lower=(0, 0), upper=(1, 1))
        >>> with store.session() as session:
        ...     session.write_boxes("rho", [np.ones((8, 4))], [[0, 0]], [[8, 4]], level=0)
        >>> bf.open(place)["rho"].read(np.s_[0, 2:6], level=0)
        array([ 1.,  1., nan, nan])
        """
        create_mesh(
            self,
            path,
            components=components,
            shape=shape,
            ratios=ratios,
            lower=lower,
            upper=upper,
            time=time,
            step=step,
            dtype=dtype,
            order=order,
            sub_box=sub_box,
            codecs=codecs,
        )

    def session(
        self,
        *,
        comm: Any = None,
        settle: Literal["end", "later", "background"] = "end",
        settle_bytes: int | str | None = None,
        settle_commits: int | None = None,
        settle_memory: int | str = "512 MiB",
        buffer: int | str = "64 MiB",
        durability: Literal["disk", "node"] = "disk",
        burst: str | os.PathLike[str] | Literal[False] | None = None,
        burst_capacity: int | str | None = None,
    ) -> Session:
        """Start a writing session: many writes that become visible at once.

        Parameters
        ----------
        comm
            The processes that write together, as an mpi4py communicator (``MPI.COMM_WORLD``); each
            of them makes this call. Without it, only this process writes.
        settle
            When commits become shards. ``"end"``: when the session ends as a context manager.
            ``"later"``: in a call of :meth:`settle`. ``"background"``: while the session runs, and
            the rest at its end.
        settle_bytes, settle_commits
            With ``"background"``, the most bytes and commits that may be unsettled. The defaults
            come from ``bedform.toml``, else 1 GiB and 10,000 commits. At the limit a commit waits.
        settle_memory
            The memory budget in bytes for settling at the end. The processes of a node divide it
            among them.
        buffer
            Bytes that may wait in memory to be written; a write beyond them blocks.
        durability
            The storage on which a commit waits to be durable. ``"disk"``: the one that all nodes
            read. ``"node"``: the burst tier of this node. A ``"node"`` commit becomes visible once
            it is drained: with a later commit, by :meth:`Session.drain`, or at the end.
        burst
            The directory of a burst tier, which takes the writes first. Without it
            ``BEDFORM_BURST`` or ``bedform.toml`` names the tier; ``False`` means no tier.
        burst_capacity
            Bytes that this process may hold in the burst tier; beyond them writing waits for
            draining.

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
        # From here on the other processes of the communicator wait for this one.
        members = None if comm is None else MpiMessages(comm)
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
                "settle_memory_bytes": byte_count(settle_memory, "settle_memory"),
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
        """Make promised commits of dead writers visible, and report their uncommitted writes.

        Committed data need no recovery: readers see them. Commits promised with
        ``durability="node"`` are copied from the burst tier and become visible. Uncommitted writes
        are reported, and stay in the log until ``leftover`` decides about them.

        Parameters
        ----------
        leftover
            The treatment of uncommitted writes. ``"keep"`` leaves them. ``"commit"`` makes a commit
            of each session that left some, on top of later commits. ``"discard"`` deletes them, and
            also gives up promises that cannot be kept or whose tier has not been drained. Appended
            elements can only be discarded if other sessions have appended since: ``"commit"``
            commits the rest and then raises :class:`ConflictError`.
        burst
            The directory of the burst tier; the configured one by default.

        Returns
        -------
        dict
            ``drained_bytes`` copied from the burst tier; promised commits that were ``completed``;
            segments of ``live`` writers; ``found`` writes by session and rank; ``committed``, the
            commits made of them; promised commits that were ``given_up``; ``tiers``, the undrained
            burst tiers (with their nodes) through which dead writers may have promised more; and
            ``damaged``, a line for each session with damaged promises, which names the commit and
            the place. Commits before the damaged one are visible. It and the later ones wait, and
            no session and no direct write can begin. ``"discard"`` gives them up; or put the
            damaged data back and call this again.
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
        """Turn the commits of sessions into shards; returns counts.

        Readers and writers may continue meanwhile. Settling can be interrupted, by Ctrl-C or a
        crash, and repeated: finished shards stay. Value indexes that the arrays have are renewed,
        except with ``comm``.

        Parameters
        ----------
        memory
            Bytes for chunks and for data read from the log: in this process, in each worker of
            Dask, or, with ``comm``, in all processes of a node together. The limit excludes a base
            use of 64 MiB and about 40 KiB per array in each process.
        arrays
            Paths of the arrays to settle. Commits stay in the log until all arrays are settled.
        comm
            An mpi4py communicator whose processes settle a share each. All of them make this call.
        dask
            A :class:`distributed.Client` or the address of a Dask scheduler, whose workers settle a
            share each; they must reach the store by the same path or URL. Or a number of shares,
            which run on the active Dask client, or on processes or threads as ``dask.config`` says.
        grace
            Seconds, or a text such as ``"1h"``. Log data that open readers may need stay in the log
            so long, and :meth:`collect_log` removes them later. Without it such readers start
            again.
        progress
            Called with the bytes done and the total bytes.

        Returns
        -------
        dict
            ``commits`` now in shards; ``objects`` and ``bytes`` written; ``read_bytes`` of the log;
            ``rounds``; and objects ``rewritten`` by another program, on top of which the commits
            now lie. With ``comm`` or ``dask`` every process gets the counts of all together.

        Raises
        ------
        NotFoundError
            The store has no such array.
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
                # Checked also if nothing is pending: an array with a mistyped name would never be
                # settled.
                if self._call(self._inner.kind)(name) != "array":
                    known = ", ".join(self.arrays()) or "none"
                    raise NotFoundError(f"no array {name!r} in {self.store_path}: it has {known}")
            if members is not None and dask is not None:
                raise InvalidArgumentError(_settle.TWO_WAYS)
        if members is not None:
            return _settle.settle_with_members(self, chosen, members, progress)
        if dask is not None:
            settled = _settle.settle_with_dask(self, chosen, dask, progress)
        else:
            settled = _settle.settle(self, chosen, progress)
        if settled["objects"]:
            from bedform._index import renew_indexes

            renew_indexes(self)
        return settled

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        memory: int | str = _settle.MEMORY,
        arrays: Sequence[str] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write the committed data, settled or not, as a NetCDF-4 (``.nc``) or HDF5 (``.h5``) file.

        The file appears once it is complete and durable. The store does not change.

        Parameters
        ----------
        target
            A path that does not exist yet; its suffix selects the format.
        memory
            Bytes of values in memory, at most.
        arrays
            Paths of the arrays to write; all by default.
        progress
            Called with the bytes done and the total bytes.

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
        """Remove segments and roots of the log that no commit needs, and an empty log itself.

        Parameters
        ----------
        grace
            Seconds, or a text such as ``"1h"``. Data that readers younger than this may need stay.
        dry_run
            Only count; remove nothing.

        Returns
        -------
        dict
            Removed ``segments`` and their ``bytes``; ``segments_kept``; removed ``roots``; and
            ``is_gone``, 1 if the log itself was removed.
        """
        return dict(self._call(self._inner.collect_log)(_settle.seconds_of(grace), dry_run))

    def index(
        self,
        arrays: str | Sequence[str] | None = None,
        bins: Bins = None,
        *,
        anew: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> IndexReport:
        """Build or renew the value indexes of arrays of the store: see :func:`bedform.index`.

        Shards with unsettled commits over them are left out: settle first.
        """
        from bedform._index import index_opened

        return index_opened(self, arrays, bins, anew=anew, progress=progress)

    def info(self) -> dict[str, Any]:
        """Returns the contents of the store as plain values.

        ``log`` counts unsettled ``commits``, the ``segments`` with their data, and the ``bytes`` of
        those. ``segments_open`` counts segments of running or dead writers (:meth:`recover` finds
        the latter); it is None if segments cannot be listed. ``tiers`` are the burst tiers, with
        their nodes, through which such writers may have promised commits that are not visible.
        ``refused`` maps unreadable arrays to reasons. Each of the ``replicas`` has a ``state`` and
        its ``reason``: ``"current"``, ``"outdated"``, ``"broken"``, or ``"resting"``. A resting
        replica was copied or moved with its files and waits for :func:`optimize` to compare it.
        ``indexes`` are the arrays with a value index, each with its ``blocks`` and ``bytes``.
        """
        from bedform._index import conditions_of_indexes

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
            "indexes": conditions_of_indexes(self._inner),
        }

    def verify(self, progress: Callable[[int, int], object] | None = None) -> list[str]:
        """Read all stored data, and return one line for each damaged object.

        The line of an array that this version cannot read begins with ``cannot be checked:``.

        It reads every shard and chunk, and all log data of unsettled commits. It includes commits
        that are in shards already but still named by the log, since earlier readers may use them.
        ``progress`` is called with the number of finished steps (arrays and parts of the log) and
        their total.
        """
        return self._verify(progress)[0]

    def _verify(
        self, progress: Callable[[int, int], object] | None = None
    ) -> tuple[list[str], list[tuple[str, int, int, int]]]:
        """As `verify`, with the missing objects: array, how many, of how many, in the log."""
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
