"""Conversion of a field to a store for its reads, compared among three readers.

The layout suits any reader, for reads that are mostly maps.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group

import bedform as bf

from .._text import format_bytes, format_seconds, format_shape
from .files import STORE, DemoOptions, bytes_below, files_below, prepare
from .picture import Panel, draw
from .race import (
    PLACES,
    QUICK_REPEATS,
    DemoReader,
    DemoReadTimes,
    bedform_reader,
    h5py_reader,
    how_cold,
    how_loaded,
    lines_in,
    measure,
    typical_reads,
    whole,
)
from .table import rows_of, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .field import Field
    from .race import Selection


@dataclass(frozen=True)
class DemoConversion:
    """The converted store and the measured times."""

    field: Field
    store: str
    store_bytes: int
    layout: str
    build_seconds: float
    convert_seconds: float
    readers: tuple[str, ...]
    results: tuple[DemoReadTimes, ...]
    cold: str
    load: str
    picture: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def render(self) -> Group:
        """Return the table and its notes."""
        sizes = (
            f"file {format_bytes(self.field.stored_bytes)}, "
            f"store {format_bytes(self.store_bytes)}, "
            f"converted in {format_seconds(self.convert_seconds)}"
        )
        how = (
            "h5py reads the file, the others the store; "
            f"median over {len(PLACES)} places, quick reads {QUICK_REPEATS} times at each, "
            "every answer equal"
        )
        lines = [
            f"layout: {self.layout}",
            self.field.origin,
            sizes,
            how,
            self.cold,
            self.load,
            *self.notes,
            f"picture: {self.picture}",
        ]
        return Group(rows_of(self.readers, self.results), *texts(["", *lines]))


def convert(request: DemoOptions) -> DemoConversion:
    """Build or open the input, convert it, measure the readers, draw the picture.

    Raises
    ------
    ModuleNotFoundError
        The package with the built-in field is not installed.
    OSError
        The input cannot be read, or the directory has no room.
    ValueError
        A reader returned other values than the file's.
    """
    subject = prepare(request)
    field, store = subject.field, subject.named(STORE)
    try:
        subject.clear()
        convert_seconds = _convert(field, store, request.progress)
        request.say(f"converted to {store} in {format_seconds(convert_seconds)}; now reading")
        readers, notes = _readers(field, store)
        cold = how_cold({path for reader in readers.values() for path in reader.objects})
        lines = lines_in(whole(field.shape), field.shape)
        results = measure(readers, lines, request.progress)
        load = how_loaded()
        picture = subject.named(".svg")
        panels = [Panel("cold reads: open, read, close", results)]
        picture.write_text(draw(field, tuple(readers), panels, f"{cold}; {load}"))
        done = DemoConversion(
            field=field,
            store=str(store),
            store_bytes=bytes_below(store),
            layout=_layout_of(store, field.variable),
            build_seconds=subject.build_seconds,
            convert_seconds=convert_seconds,
            readers=tuple(readers),
            results=results,
            cold=cold,
            load=load,
            picture=str(picture),
            notes=(*notes, subject.where(request, store)) if request.keep else notes,
        )
        if request.keep:
            subject.named(".json").write_text(json.dumps(done.to_dict(), indent=2))
    finally:
        if not request.keep:
            shutil.rmtree(store, ignore_errors=True)
            subject.forget()
    return done


def _layout_of(store: Path, variable: str) -> str:
    with bf.open(store) as opened:
        array = opened[variable]
        shards = "none" if array.shards is None else format_shape(array.shards)
        return f"chunks {format_shape(array.chunks)}, shards {shards}, order {array.order or '-'}"


def _convert(field: Field, store: Path, progress: Callable[[int, int], None]) -> float:
    """Converts from the start each time, since the conversion is part of the demo."""
    from .._convert import convert as convert_path
    from .._convert import partial_directory

    started = time.monotonic()
    with bf.open(field.path) as opened:
        reads = typical_reads(opened[field.variable].dims)
    try:
        convert_path(field.path, store, reads=reads, restart=True, progress=progress)
    except BaseException:
        # The next demo starts over: keep no partial result.
        shutil.rmtree(partial_directory(store), ignore_errors=True)
        raise
    return time.monotonic() - started


def _readers(field: Field, store: Path) -> tuple[dict[str, DemoReader], tuple[str, ...]]:
    """Returns the readers by name: h5py first, Bedform last."""
    objects = tuple(files_below(store))
    readers = {"h5py": h5py_reader(field)}
    notes: tuple[str, ...] = ()
    try:
        import zarr
    except ModuleNotFoundError:
        notes = ("zarr-python is not installed, so it is not compared: pip install zarr",)
    else:

        def read_zarr(selection: Selection) -> np.ndarray[Any, Any]:
            array = zarr.open_array(str(store), path=field.variable, mode="r")
            return np.asarray(array[selection])

        readers["zarr-python"] = DemoReader(read_zarr, objects)
    readers["Bedform"] = bedform_reader(store, field.variable, objects)
    return readers, notes
