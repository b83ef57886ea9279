"""Profiles of storage systems, and advice of layouts for expected reads."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bedform import _internal, _json, _selection, _shown
from bedform._elements import type_of
from bedform._errors import (
    BedformError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ReadOnlyError,
    WrongTypeError,
    check_mapping,
    check_text,
    engine_call,
    spanned_axes,
)
from bedform._integers import integers
from bedform._layout import Order, Readers, Regular, described_readers
from bedform._location import location
from bedform._remote import is_url, storage_options_of
from bedform._text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Reads = Mapping[tuple[str, ...], float]
# The range of the weight of one kind of reads.
WEIGHT_MIN, WEIGHT_MAX = 1e-6, 1e18

_COLDNESS = {
    "emptied": "emptied: the device was measured",
    "bypassed": "bypassed: the device was measured",
    "unverified": "unknown: perhaps memory was measured",
    "warm": "full: memory was measured, not the device",
    "assumed": "nothing was measured",
}


# Refinements of profiles by reads are saved now and then, and at the end of the process.
atexit.register(_internal.keep_experience)


class Profile:
    """The calibrated parameters of a storage system.

    :func:`calibrate` measures and keeps a profile; :meth:`for_path` finds it again. Its parameters
    are attributes, such as ``profile.read_bytes_per_second_one``.

    Examples
    --------
    >>> Profile.default().requests_in_flight
    16
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        if not isinstance(facts, Mapping):
            raise WrongTypeError(
                f"a profile is made of a mapping, as to_dict gives it, not of {facts!r}; "
                "Profile.for_path finds the one of a path"
            )
        self._facts = dict(facts)

    @classmethod
    def for_path(
        cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> Profile | None:
        """Returns the kept profile of the storage that holds ``path``, or ``None``.

        Parameters
        ----------
        path
            A path, or the URL of a place in an object store; its server and bucket select the
            profile.
        storage_options
            As in :func:`bedform.open`.
        """
        where = location(path)
        text = engine_call(_internal.profile_for)(where, _reached(where, storage_options))
        return None if text is None else cls(json.loads(text))

    @classmethod
    def default(cls, where: str = "") -> Profile:
        """Returns the assumed profile: a local disk, or an object store for a URL ``where``."""
        return cls(json.loads(_internal.default_profile(is_url(where))))

    def keep(
        self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> str:
        """Keep the profile for the storage that holds ``path``; returns the path of the file.

        Parameters
        ----------
        path, storage_options
            As in :meth:`for_path`. The file has no secrets, only scheme, server and bucket.
        """
        where = location(path)
        document, reached = _json.dump(self._facts), _reached(where, storage_options)
        return os.fspath(engine_call(_internal.keep_profile)(document, where, reached))

    def without_refinement(self) -> Profile:
        """Returns the profile as measured, without the refinement that later reads brought.

        Keep it in place of the refined one to start the refinement again::

            bf.Profile.for_path("/data").without_refinement().keep("/data")
        """
        return Profile({**self._facts, "profile": {**self._facts["profile"], "refinement": {}}})

    def to_dict(self) -> dict[str, Any]:
        """Returns the kept document; ``"profile"`` has bytes per second, seconds and bytes."""
        return dict(self._facts)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_facts"]["profile"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _origin(self, where: str) -> str:
        """Returns one line on the origin of the prices; it may advise to calibrate ``where``."""
        if self.measured_at:
            return f"prices from the profile of {self.name}, calibrated {self.measured_at[:10]}"
        if self._facts == Profile.default(where)._facts:
            assumed = "object store" if is_url(where) else "local disk"
            command = f"bedform calibrate {_shown.shell_path(where)}"
            return f"prices from an assumed {assumed}: run {command}"
        return f"prices from the profile of {self.name}, not measured"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Profile, (self._facts,))

    def __str__(self) -> str:
        rows = [
            ("read, one stream", f"{self.read_bytes_per_second_one / 1e6:.0f} MB/s"),
            ("read, many streams", f"{self.read_bytes_per_second_many / 1e6:.0f} MB/s"),
            ("write, synced", f"{self.write_bytes_per_second / 1e6:.0f} MB/s"),
            ("one request alone", f"{self.request_seconds_one * 1e6:.0f} us"),
            (
                f"a request of {self.requests_in_flight} in flight",
                f"{self.request_seconds_many * 1e6:.0f} us",
            ),
            ("processor time of a request", f"{self.request_cpu_seconds * 1e6:.1f} us"),
            ("gap that is cheaper read than skipped", f"{self.merge_gap_bytes / 1024:.0f} KiB"),
            ("page cache while measuring", _COLDNESS.get(self.coldness, self.coldness)),
        ]
        rows += _cold_rows(self.cold_requests) + _processor_rows(self.processor)
        rows += _refinement_rows(self.refinement)
        rows += [("note", note) for note in self.notes]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)

    def __repr__(self) -> str:
        return f"Profile({self._facts!r})"


def _cold_rows(requests: Sequence[Mapping[str, float]]) -> list[tuple[str, str]]:
    """Returns rows on cold requests of each size: microseconds alone and of many."""
    rows = []
    for request in requests:
        alone, many = (request[key] * 1e6 for key in ("seconds_one", "seconds_many"))
        label = f"a cold request of {format_bytes(request['bytes'])}"
        rows.append((label, f"{alone:.0f} us alone, {many:.0f} us of many"))
    return rows


def _processor_rows(processor: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns rows on the processor: name, copying, seconds per chunk, decoding."""
    rows = [
        ("processor", f"{processor['name'] or 'assumed'}, {processor['cores']} cores"),
        ("all cores do", f"{processor['gain']:.2f} times the work of one"),
        ("copying", f"{processor['copy_bytes_per_second'] / 1e9:.1f} GB/s"),
        ("a chunk, beside decoding", f"{processor['chunk_seconds'] * 1e6:.1f} us"),
    ]
    for name, times in sorted(processor["codecs"].items()):
        # Assumes data that codecs halve: two decoded bytes for each encoded one.
        byte = times["encoded_byte_seconds"] / 2 + times["decoded_byte_seconds"]
        rate = f"{1e-9 / byte:.1f} GB/s" if byte > 0 else "no time"
        rows.append((f"decoding {_codec(name)}, one core", rate))
    return rows


def _codec(name: str) -> str:
    """Returns a codec's name as in ``info`` and the pages: blosc-lz4-shuffle for -byte."""
    if not name.startswith("blosc-"):
        return name
    return name.replace("-byte", "-shuffle").replace("-bit", "-bitshuffle")


READS = {
    "cold": "cold reads",
    "waiting": "cold reads that mostly wait,",
    "cached": "cached reads",
    "shared": "cached reads by threads,",
}


def _refinement_rows(refinement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns rows on the ratio of measured to predicted seconds of reads."""
    return [
        (
            f"{READS[state]} of {_codec(codec)} took",
            f"{factor['ratio']:.2f} times the prediction, by the last {factor['reads']}",
        )
        for codec, refined in sorted(refinement.items())
        for state, factor in sorted(refined.items())
        if factor["reads"]
    ]


def _reached(where: str, storage_options: Mapping[str, Any] | None) -> str | None:
    """Returns the storage options of the URL ``where`` for the engine; None for a path."""
    if is_url(where):
        return _json.dump(storage_options_of(storage_options))
    if storage_options:
        raise InvalidArgumentError(f"{where}: storage_options are for the URLs of object stores")
    return None


class Advice:
    """The layout with the smallest predicted cost for given reads, and its competitors."""

    def __init__(self, facts: dict[str, Any], text: str) -> None:
        self._facts, self._text = facts, text

    @property
    def chunks(self) -> tuple[int, ...]:
        """Elements of a chunk along each axis."""
        return tuple(self._facts["chunk_shape"])

    @property
    def shards(self) -> tuple[int, ...]:
        """Elements of a shard along each axis."""
        return tuple(self._facts["shard_shape"])

    @property
    def order(self) -> Order:
        """Order of the chunks in a shard."""
        return cast("Order", self._facts["order"])

    @property
    def layout(self) -> Regular:
        """The advice as a layout for :meth:`bedform.Store.create_array`."""
        return Regular(self.chunks, self.shards, self.order)

    def to_dict(self) -> dict[str, Any]:
        """Returns the layout, the priced reads, and every candidate with its costs."""
        return {"chunks": self.chunks, "shards": self.shards, **self._facts}

    def __str__(self) -> str:
        return _shown.lines(self._text)

    def __repr__(self) -> str:
        return f"<Advice chunks={self.chunks} shards={self.shards} order={self.order!r}>"


def calibrate(
    path: str | os.PathLike[str],
    *,
    bytes: int | None = None,  # noqa: A002 - the unit is the name
    seconds: float | None = None,
    name: str | None = None,
    keep: bool = True,
    progress: Callable[[str, float], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Profile:
    """Measure the storage that holds ``path``, in seconds, and keep the profile.

    Parameters
    ----------
    path
        A writable directory on the storage. Temporary files are written there and removed; the next
        calibration removes files that a killed process left. Or the URL of a place in an object
        store. There objects of 1 MiB or more are read; without such objects some are written, and
        always deleted again.
    bytes, seconds
        Bytes to write (at most 64 MiB of them to an object store), and a bound on the time.
    name
        Name of the storage in messages.
    keep
        ``False`` measures only. Failing to keep the profile is a warning, not an error.
    progress
        Called with the stage and its finished part, 0 to 1. An exception of it ends the
        measurement.
    storage_options
        For an object store, as in :func:`bedform.open`.

    Raises
    ------
    NotFoundError, InvalidArgumentError, ReadOnlyError, PermissionDeniedError
        ``path`` is not a writable directory.
    NoSpaceError
        The test file would take more than half of the free space.
    IoError
        The object store cannot be reached, or has no objects to read and accepts none.

    Examples
    --------
    >>> import bedform as bf, tempfile
    >>> profile = bf.calibrate(tempfile.mkdtemp(), bytes=8 << 20, seconds=0.5, keep=False)
    >>> profile.request_seconds_one < 1
    True
    """
    where = location(path)
    reached = _reached(where, storage_options)
    if name is not None:
        check_text(name, "name")
    if reached is None:
        _check_measurable(where)
    text = engine_call(_internal.calibrate)(
        where, bytes=bytes, seconds=seconds, name=name, remote=reached, progress=progress
    )
    profile = Profile(json.loads(text))
    if keep:
        try:
            profile.keep(where, storage_options=storage_options)
        except BedformError as error:
            # The measurement took seconds: return it even if it cannot be kept.
            warnings.warn(not_kept(error), stacklevel=2)
    return profile


def not_kept(error: BedformError) -> str:
    """Returns one line that says why a profile was not kept."""
    return (
        f"the profile was not kept: {error.reason}: "
        "set BEDFORM_PROFILES to a directory that can be written"
    )


def _check_measurable(where: str) -> None:
    """Fails for an unsuitable directory before anything is written to it."""
    if not os.path.lexists(where):
        raise NotFoundError(f"{where or repr(where)}: no such directory; check the path")
    if not Path(where).is_dir():
        raise InvalidArgumentError(f"{where} is a file: give a directory")
    system = os.statvfs(where)
    if system.f_flag & os.ST_RDONLY:
        raise ReadOnlyError(f"{where}: the file system is read-only; choose another directory")
    if not system.f_blocks:
        raise InvalidArgumentError(
            f"{where}: the file system stores no data; choose a directory on a disk"
        )
    if not os.access(where, os.W_OK | os.X_OK):
        raise PermissionDeniedError(
            f"{where}: no permission to write; choose another directory or ask its owner"
        )


def advise(
    shape: Sequence[int],
    dtype: Any,
    *,
    dims: Sequence[str | None] | None = None,
    reads: Reads | None = None,
    selections: Iterable[Any] | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    append_length: int | None = None,
    compression_ratio: float = 1.0,
    cores: int | None = None,
    readers: Readers = "any",
    cached: bool = False,
) -> Advice:
    """Returns the layout with the smallest predicted cost for the expected reads.

    Parameters
    ----------
    shape
        Elements along each axis; 0 along the first axis means that it grows.
    dtype
        The type of the elements.
    dims
        Names of the axes.
    reads
        The axes that a typical read spans, with weights: ``{("lat", "lon"): 0.7, ("time",): 0.3}``.
        Without reads and selections, planes, series and boxes weigh the same.
    selections
        Selections of actual reads, as inside NumPy's brackets, each with the same weight.
    profile
        A profile, or a path or URL whose kept profile is used; by default that of the current
        directory. Without a kept profile a local disk is assumed, or an object store for a URL. The
        advice names the profile.
    append_length
        Elements along the growing axis in one append.
    compression_ratio
        Raw bytes over stored bytes, as an estimate.
    cores
        Cores that decode; all cores of this machine by default.
    readers
        The programs that read the array; the layout costs least for Bedform. ``"any"`` also limits
        it to 1.6 times the time that zarr-python takes for a store with its own default layout.
        That holds for the given reads and the whole array; without reads also for an index and a
        line along each axis and a box. ``"bedform"`` drops that limit. A list names the programs:
        ``["bedform", "zarr-python"]``. With ``"zarr-python"`` alone the layout costs least for it.
    cached
        ``True`` prices reads of cached data, ``False`` reads from storage.

    Raises
    ------
    InvalidArgumentError
        A read names an unknown axis, or its weight is not positive; ``readers`` has an unknown
        name.

    Examples
    --------
    >>> import bedform as bf
    >>> bf.advise((512, 512, 512), "float64", reads={("dim_1", "dim_2"): 1.0}).chunks[0]
    1
    """
    lengths = list(integers(shape, "shape"))
    kind = type_of(dtype)
    size = 16 if kind.hasobject else kind.itemsize
    question = _question(lengths, size, dims, reads, append_length, readers)
    if selections is not None:
        question["selections"] = [
            [1.0, [_priced(axis) for axis in _selection.basic(key, tuple(lengths)).engine[1]]]
            for key in selections
        ]
    question["compression_ratio"] = compression_ratio
    question["cores"] = cores or os.cpu_count() or 1
    question["cached"] = bool(cached)
    return _ask(question, profile, os.curdir)


def _priced(axis: Any) -> list[int]:
    start, step, count = axis
    return [start, step or 1, count]


def _question(
    lengths: list[int],
    item_size: int,
    dims: Sequence[str | None] | None,
    reads: Reads | None,
    append_length: int | None,
    readers: Readers,
) -> dict[str, Any]:
    names = [name or f"dim_{axis}" for axis, name in enumerate(dims or [None] * len(lengths))]
    if len(names) != len(lengths):
        raise InvalidArgumentError(f"{len(names)} names for {len(lengths)} axes")
    question: dict[str, Any] = {"shape": lengths, "item_size": item_size, "dims": names}
    question["reads"] = numbered_reads(reads, names)
    question["append_length"] = append_length
    question["readers"] = described_readers(readers)
    return question


def _weight(weight: Any, wanted: tuple[str, ...]) -> float:
    """Returns the weight of a kind of reads as a number; fails outside the allowed range."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if WEIGHT_MIN <= float(weight) <= WEIGHT_MAX:
            return float(weight)
    shown = repr(weight) if isinstance(weight, (int, float)) else type(weight).__name__
    raise InvalidArgumentError(
        f"the weight of the reads {wanted} is {shown[:40]}: it must be a positive number, "
        f"from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
    )


def checked_reads(reads: Reads, names: Sequence[str]) -> dict[tuple[str, ...], float]:
    """Returns the mix of reads with tuples of axis names; fails for unknown axes."""
    checked = {}
    for axes, weight in check_mapping(reads, "reads", '{"time": 1}').items():
        wanted = spanned_axes(axes)
        for name in wanted:
            if name not in names:
                raise InvalidArgumentError(f"no axis {name!r}: the axes are {', '.join(names)}")
        checked[wanted] = _weight(weight, wanted)
    return checked


def numbered_reads(reads: Reads | None, names: Sequence[str]) -> list[tuple[list[int], float]]:
    """Returns the mix of reads for the engine: axis numbers and weights."""
    spanned = checked_reads(reads or {}, names)
    return [([names.index(name) for name in axes], weight) for axes, weight in spanned.items()]


def kept_profile(
    where: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Profile | None:
    """Returns the kept profile of the storage that holds ``where``; None if it cannot be read.

    An unreadable profile must not stop a write of data.
    """
    with contextlib.suppress(BedformError):
        return Profile.for_path(where, storage_options=storage_options)
    return None


def profile_at(where: str | os.PathLike[str]) -> Profile:
    """Returns the kept profile of the storage that holds ``where``, else that of a local disk."""
    return kept_profile(where) or Profile.default(os.fspath(where))


def chosen_profile(profile: Any) -> Profile:
    """Returns the profile that a caller gave, as an object or by a path or URL.

    Raises
    ------
    InvalidArgumentError
        ``profile`` is neither of these.
    """
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"profile must be a bedform.Profile, or a path that has a kept one, not {profile!r}"
        )
    where = location(profile, "profile")
    return Profile.for_path(where) or Profile.default(where)


def _ask(question: dict[str, Any], profile: Any, where: str) -> Advice:
    """Asks the engine; without ``profile`` the kept one of the storage ``where`` is used."""
    if isinstance(profile, (str, os.PathLike)):
        where = os.fspath(profile)
    chosen = profile_at(where) if profile is None else chosen_profile(profile)
    facts, text = engine_call(_internal.advise)(_json.dump(question), _json.dump(chosen.to_dict()))
    named = {key: getattr(chosen, key) for key in ("name", "path", "measured_at", "coldness")}
    origin = chosen._origin(where)
    return Advice({**json.loads(facts), "profile": named}, f"{text.rstrip()}\n\n{origin}")


def layout_for(
    shape: list[int],
    item_size: int,
    dims: Sequence[str | None] | None,
    reads: Reads | None,
    append_length: int | None,
    profile: Any,
    where: str,
    readers: Readers,
) -> Regular:
    """Returns the layout of a new array in ``where`` with ``layout="auto"``."""
    question = _question(shape, item_size, dims, reads, append_length, readers)
    question["compare_alone"] = False
    return _ask(question, profile, where).layout
