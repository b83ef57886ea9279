"""Advice on the chunks of a producer's own file, as a command or encoding of the producer's tools.

The engine advises; this module writes it down for nccopy, h5repack and xarray.
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from bedform import _json, _selection
from bedform._advise import Profile, _priced, _question, chosen_profile, profile_at
from bedform._errors import (
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    engine_call,
    spanned_axes,
)
from bedform._remote import is_url
from bedform._shown import printable
from bedform._text import format_bytes, format_seconds, format_shape

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from bedform._advise import Reads

Tool = Literal["nccopy", "h5repack", "xarray"]
TOOLS: Final[tuple[Tool, ...]] = ("nccopy", "h5repack", "xarray")

#: Smaller arrays stay as they are.
_BYTES_MIN: Final = 1 << 20
#: Chunks change where the predicted time of the reads falls to this share.
_WORTH: Final = 0.9
#: Memory for chunks while nccopy cuts a file anew. With its defaults it reads chunks many times.
_NCCOPY_MEMORY: Final = "-m 256M -h 1G -e 10007"
#: The beginning of the formats of classic NetCDF.
_CLASSIC: Final = "netcdf-classic"
#: Encodings of xarray that say what stored values mean.
_MEANINGS: Final = (
    "dtype",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
)


@dataclass(frozen=True)
class RepackedArray:
    """The advice for one array of a file."""

    array: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    advice: dict[str, Any]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Elements of an advised chunk along each axis."""
        return tuple(self.advice["chunks"])

    def seconds(self, when: Literal["now", "then"], state: Literal["cold", "cached"]) -> float:
        """Returns the predicted seconds of a read, in the weighted mean."""
        reads = self.advice["reads"]
        return float(sum(read["weight"] * read[f"{state}_{when}"] for read in reads))

    @property
    def is_better(self) -> bool:
        """Whether the reads become faster enough for a new file."""
        return any(
            self.seconds("then", state) < _WORTH * self.seconds("now", state)
            for state in ("cold", "cached")
        )


class Repacking:
    """Advice for the arrays of a file: ``str`` of it has a command or an encoding, and a table."""

    def __init__(
        self, tool: Tool, path: str, target: str, arrays: list[RepackedArray], *, facts: Any
    ) -> None:
        self.tool, self.path, self.target, self.arrays = tool, path, target, arrays
        self._facts = facts

    @property
    def changed(self) -> list[RepackedArray]:
        """The arrays that get other chunks."""
        return [array for array in self.arrays if array.is_better]

    @property
    def command(self) -> str | None:
        """The command of nccopy or h5repack; ``None`` for xarray, and where nothing changes."""
        parts = self._parts()
        return " ".join(shlex.join(part) for part in parts) if parts else None

    def _parts(self) -> list[list[str]]:
        """Returns the command: the program, its options with their values, the files."""
        if not self.changed or self.tool == "xarray":
            return []
        if self.tool == "h5repack":
            options = [["h5repack"], *_h5repack(self.changed)]
        else:
            is_classic = str(self._facts["format"]).startswith(_CLASSIC)
            options = [["nccopy"], *_nccopy(self.changed, is_classic=is_classic)]
        return [*options, [self.path, self.target]]

    @property
    def encoding(self) -> dict[str, dict[str, Any]]:
        """The encoding of each changed array for xarray's ``to_netcdf``, by its whole path."""
        meanings = self._facts["meanings"]
        return {
            array.array: {**_storage_of(array), **meanings.get(array.array, {})}
            for array in self.changed
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the command or encoding, and for each array its chunks and predicted times."""
        arrays = [
            {
                "array": array.array,
                "dims": array.dims,
                "shape": array.shape,
                "changes": array.is_better,
                **array.advice,
            }
            for array in self.arrays
        ]
        found: dict[str, Any] = {"as": self.tool, "command": self.command, "arrays": arrays}
        if self.tool == "xarray":
            found["encoding"] = {name: _plain(one) for name, one in self.encoding.items()}
        return found

    def __str__(self) -> str:
        rows = [("array", "chunks now", "chunks", "deflate", "bytes now", "bytes")]
        reads = [["array", "read", "weight", "cold now", "cold", "cached now", "cached"]]
        for array in self.arrays:
            advice, name = array.advice, printable(array.array)
            if not array.is_better:
                kept = ("as they are", "", format_bytes(advice["bytes_now"]), "")
                rows.append((name, format_shape(advice["chunks_now"]), *kept))
                continue
            rows.append(
                (
                    name,
                    format_shape(advice["chunks_now"]),
                    format_shape(advice["chunks"]),
                    str(advice["level"] or "none"),
                    format_bytes(advice["bytes_now"]),
                    format_bytes(advice["bytes_then"]),
                )
            )
            for read in advice["reads"]:
                times = ("cold_now", "cold_then", "cached_now", "cached_then")
                shown = [format_seconds(read[time]) for time in times]
                reads.append([name, printable(read["name"]), f"{read['weight']:.2f}", *shown])
        parts = [self._advised(), _table(rows, texts=3)]
        if self.changed:
            parts.append(_table(reads, texts=2))
        parts.append(f"predicted for reads by Bedform: {self._facts['origin']}")
        return "\n\n".join(parts)

    def _advised(self) -> str:
        if not self.changed:
            return f"{self.path}: its chunks fit these reads: nothing to change"
        if self.tool == "xarray":
            return "\n".join(_code(self.encoding, self.target))
        return " \\\n    ".join(shlex.join(part) for part in self._parts())


def repacking(
    store: Any,
    path: str,
    tool: Tool,
    *,
    array: str | None = None,
    reads: Reads | None = None,
    selections: Iterable[Any] | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    target: str | None = None,
) -> Repacking:
    """Returns the advice for the arrays of an opened file.

    Parameters
    ----------
    store, path
        The file, opened, and its path as the user gave it.
    tool
        The tool that will write the new file.
    array
        One array; without it all of 1 MiB and more that have the dimensions of the reads.
    reads, selections, profile
        As in :func:`bedform.advise`.
    target
        The new file in the command; by default the name with ``-advised``.

    Raises
    ------
    UnsupportedError
        The tool does not read such a file.
    NotFoundError
        No array is large enough and has the dimensions of the reads.
    """
    where = _checked(store, path, tool)
    names = [array] if array is not None else _fitting(store, reads)
    if not names:
        asked = "dimensions of the reads" if reads else "1 MiB and more"
        raise NotFoundError(f"{path}: no array has {asked}: name one, or other reads")
    chosen = _profile_of(profile, where)
    document = _json.dump(chosen.to_dict())
    found = []
    for name in names:
        one = store[name]
        dims = tuple(str(dim) for dim in one.dims)
        question = _question(list(one.shape), one.dtype.itemsize, dims, reads, None, "bedform")
        if selections is not None:
            question["selections"] = [
                [1.0, [_priced(axis) for axis in _selection.basic(key, one.shape).engine[1]]]
                for key in selections
            ]
        advise = getattr(one._inner, "advise_repack", None)
        if advise is None:
            raise UnsupportedError(f"{path}: {name!r} is read by the library of its format")
        advice: dict[str, Any] = json.loads(engine_call(advise)(_json.dump(question), document))
        found.append(RepackedArray(name, dims, tuple(one.shape), advice))
    facts = {
        "format": _format_of(store),
        "origin": chosen._origin(where),
        "meanings": _meanings(path, names) if tool == "xarray" else {},
    }
    return Repacking(tool, path, target or _target_of(path), found, facts=facts)


def _checked(store: Any, path: str, tool: Tool) -> str:
    """Returns the directory of the file, whose profile counts; fails for an unsuitable tool."""
    kind = _format_of(store)
    if tool not in TOOLS:
        raise InvalidArgumentError(f"--as {tool}: one of {', '.join(TOOLS)}")
    if getattr(store, "_paths", None) is not None:
        raise InvalidArgumentError(
            f"{path} is many files: ask for one of them, and use its advice for the others"
        )
    if tool == "xarray":
        return path if is_url(path) else str(Path(path).parent)
    if is_url(path):
        raise UnsupportedError(f"{path}: {tool} reads files: copy it to this machine")
    if kind is None:
        raise UnsupportedError(
            f"{path} is a Zarr store: {tool} reads NetCDF and HDF5 files; bedform optimize "
            "--reorganize lays out stores anew"
        )
    if tool == "h5repack" and kind.startswith(_CLASSIC):
        raise UnsupportedError(f"{path} is a classic NetCDF file, which is not HDF5: --as nccopy")
    return str(Path(path).parent)


def _format_of(store: Any) -> str | None:
    """Returns the format of a foreign file; ``None`` for a store."""
    found = getattr(store, "format", None)
    return None if found is None else str(found).lower()


def _fitting(store: Any, reads: Reads | None) -> list[str]:
    """Returns the large arrays that have the dimensions of every read."""
    wanted = {name for axes in reads or {} for name in spanned_axes(axes)}
    names = []
    for name, array in sorted(store.arrays().items()):
        dims = {str(dim) for dim in array.dims}
        large = math.prod(array.shape) * array.dtype.itemsize >= _BYTES_MIN
        if large and array.ndim and wanted <= dims and not array.dtype.hasobject:
            names.append(name)
    return names


def _profile_of(profile: Any, where: str) -> Profile:
    return profile_at(where) if profile is None else chosen_profile(profile)


def _target_of(path: str) -> str:
    """Returns the name of the new file, in the working directory for a URL.

    >>> _target_of("data/era5.nc"), _target_of("https://host/a.h5?x=1")
    ('data/era5-advised.nc', 'a-advised.h5')
    """
    plain = path.split("?")[0].rsplit("/", 1)[-1] if is_url(path) else path
    where = Path(plain)
    suffix = ".nc" if where.suffix == ".zarr" else where.suffix
    return str(where.with_name(f"{where.stem}-advised{suffix}"))


# Tools --------------------------------------------------------------------------------------------


def _nccopy(arrays: Sequence[RepackedArray], *, is_classic: bool) -> list[list[str]]:
    """Returns the options of nccopy."""
    # Classic files become NetCDF-4 files of the classic model, for the same programs.
    options = [["-k", "nc7"]] if is_classic else []
    options.append(_NCCOPY_MEMORY.split())
    level = max(array.advice["level"] for array in arrays)
    if level:
        options.append(["-d", str(level), "-s"])
    chunks = (f"{array.array}:{','.join(map(str, array.chunks))}" for array in arrays)
    return [*options, *(["-c", one] for one in chunks)]


def _h5repack(arrays: Sequence[RepackedArray]) -> list[list[str]]:
    """Returns the options of h5repack."""
    options = []
    for array in arrays:
        name, level = f"/{array.array}", array.advice["level"]
        option = ["-l", f"{name}:CHUNK={'x'.join(map(str, array.chunks))}"]
        # Several filters of an array are options in the order in which they are applied.
        filters = ["SHUF", f"GZIP={level}"] if level else ["NONE"]
        for one in filters:
            option += ["-f", f"{name}:{one}"]
        options.append(option)
    return options


def _storage_of(array: RepackedArray) -> dict[str, Any]:
    """Returns the keys of an encoding that say how an array is stored."""
    level = array.advice["level"]
    chunks = {"chunksizes": array.chunks}
    if not level:
        return {**chunks, "zlib": False}
    return {**chunks, "zlib": True, "complevel": level, "shuffle": True}


def _meanings(path: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the keys of encodings that say what stored values mean.

    ``to_netcdf(encoding=...)`` replaces the encoding of a variable: without these keys packed
    values would be written unpacked.
    """
    import xarray as xr

    groups: dict[str, list[str]] = {}
    for name in names:
        group, _, own = name.rpartition("/")
        groups.setdefault(group, []).append(own)
    found = {}
    for group, own_names in groups.items():
        with xr.open_dataset(path, engine="bedform", group=group or None) as dataset:
            for own in own_names:
                encoding = dataset[own].encoding if own in dataset else {}
                kept = {key: encoding[key] for key in _MEANINGS if key in encoding}
                found[f"{group}/{own}" if group else own] = kept
    return found


# Text ---------------------------------------------------------------------------------------------


def _code(encoding: Mapping[str, Mapping[str, Any]], target: str) -> Iterable[str]:
    """Iterates over lines of Python that write a data set, one for each group, with an encoding."""
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path, one in encoding.items():
        group, _, name = path.rpartition("/")
        groups.setdefault(group, {})[name] = one
    for group, named in groups.items():
        yield "encoding = {"
        for name, one in named.items():
            entries = ", ".join(f"{key!r}: {_literal(value)}" for key, value in one.items())
            yield f"    {name!r}: {{{entries}}},"
        yield "}"
        place = f", group={group!r}, mode='a'" if group else ""
        yield f"dataset.to_netcdf({target!r}{place}, encoding=encoding)"


def _literal(value: Any) -> str:
    if isinstance(value, np.dtype):
        return repr(value.str)
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return f"float({str(plain)!r})"
    return repr(plain)


def _plain(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an encoding as values of JSON; numbers that are not finite become text."""
    found: dict[str, Any] = {}
    for key, value in encoding.items():
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, np.dtype):
            plain = plain.str
        is_finite = not isinstance(plain, float) or math.isfinite(plain)
        found[key] = plain if is_finite and not isinstance(plain, bytes) else str(plain)
    return found


def _table(rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """Returns a table, whose first columns are texts."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < texts else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
