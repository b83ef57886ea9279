"""The main job on real input: lay a field out for its reads, and race three readers over it.

Promises
--------
- The layout is the one that fits reads of which most are maps, for any reader.
- The input is a real field, grown in time and written as its producer writes it, or a file of the
  user's own; the growth is said, and it compresses within 10 % of the source.
- Every answer of every reader is compared with the one of the file; a difference is an error.
- Reads are cold where the system lets us make them so, and it is said when it does not.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

import bedform as bf

from .._text import format_bytes, format_seconds, format_shape
from .field import PREFIX, Field, build_field, facts_of, open_input
from .picture import draw
from .race import Result, measure, typical_reads

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Demonstration", "render", "run"]

ROUNDS = 3
# What the demo writes has names of its own, so that it never replaces data of the user.


@dataclass(frozen=True)
class Demonstration:
    """What the demo built and measured."""

    field: Field
    store: str
    store_bytes: int
    layout: str
    build_seconds: float
    convert_seconds: float
    readers: tuple[str, ...]
    results: tuple[Result, ...]
    cold: str
    picture: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return asdict(self)


def _ignore(*_: object) -> None:
    """What is said when nobody listens."""


def run(
    *,
    input_file: Path | None = None,
    variable: str | None = None,
    size: int = 1 << 30,
    directory: Path | None = None,
    keep: bool = True,
    say: Callable[[str], None] = _ignore,
    progress: Callable[[int, int], None] = _ignore,
) -> Demonstration:
    """Build or open the input, convert it, race the readers, draw the picture.

    Raises
    ------
    ModuleNotFoundError
        The package with the built-in field is not installed.
    OSError
        The input cannot be read, or the directory has no room.
    AssertionError
        A reader returned something else than the file holds.
    """
    directory = directory or default_directory()
    started = time.monotonic()
    was_there: set[Path] = set()
    if input_file is not None:
        field = open_input(input_file, variable)
        directory.mkdir(parents=True, exist_ok=True)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        _check_room(directory, size)
        was_there = set(directory.iterdir())
        field = build_field(directory, size, say, progress)
    build_seconds = time.monotonic() - started
    say(
        f"input: {field.path}, {field.variable} {format_shape(field.shape)}, "
        f"{format_bytes(field.byte_count)}"
    )
    own = directory / (PREFIX + Path(field.path).stem.removeprefix(PREFIX))
    store = _named(own, ".zarr")
    convert_seconds = _convert(field, store, progress)
    say(f"converted to {store} in {format_seconds(convert_seconds)}; now reading")
    readers, results, cold, notes = measure(field, store, ROUNDS, progress)
    picture = _named(own, ".svg")
    picture.write_text(draw(field, readers, results, cold))
    demonstration = Demonstration(
        field=field,
        store=str(store),
        store_bytes=_bytes_below(store),
        layout=_layout_of(store, field.variable),
        build_seconds=build_seconds,
        convert_seconds=convert_seconds,
        readers=readers,
        results=results,
        cold=cold,
        picture=str(picture),
        notes=(*notes, _where(own, store, field, input_file)) if keep else notes,
    )
    if keep:
        _named(own, ".json").write_text(json.dumps(demonstration.to_dict(), indent=2))
        return demonstration
    shutil.rmtree(store)
    if input_file is None:
        for path in (Path(field.path), facts_of(Path(field.path))):
            if path not in was_there:
                path.unlink()
    return demonstration


def _named(own: Path, ending: str) -> Path:
    return own.with_name(own.name + ending)


def _where(own: Path, store: Path, field: Field, input_file: Path | None) -> str:
    """Say what is kept and how to be rid of it."""
    size = _bytes_below(store) + (field.stored_bytes if input_file is None else 0)
    delete = f"rm -r {shlex.quote(str(own))}.*"
    return f"kept in {own.parent}: {format_bytes(size)}; delete it with: {delete}"


def _layout_of(store: Path, variable: str) -> str:
    with bf.open(store) as opened:
        array = opened[variable]
        shards = "none" if array.shards is None else format_shape(array.shards)
        return f"chunks {format_shape(array.chunks)}, shards {shards}, order {array.order or '-'}"


def default_directory() -> Path:
    """Where the data go: the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bedform" / "demo"


def _check_room(directory: Path, size: int) -> None:
    # The field and its store, both compressed to about a half, and room to work.
    free = shutil.disk_usage(directory).free
    if free < size * 3 // 2:
        raise OSError(
            f"{str(directory)!r} has {format_bytes(free)} free and the demo needs "
            f"{format_bytes(size * 3 // 2)}: choose another place with --dir or less with --size"
        )


def _convert(field: Field, store: Path, progress: Callable[[int, int], None]) -> float:
    """Convert anew each time: it is the main job."""
    from .._convert import convert, partial_directory

    # The name says that it is of a demo, so it is no store of anybody else's.
    if store.is_symlink():
        raise FileExistsError(f"{str(store)!r} is a link: remove it, or choose another --dir")
    if store.exists():
        shutil.rmtree(store)
    started = time.monotonic()
    with bf.open(field.path) as opened:
        reads = typical_reads(opened[field.variable].dims)
    try:
        convert(field.path, store, reads=reads, restart=True, progress=progress)
    except BaseException:
        # The next demo begins anew: nothing here is worth keeping.
        shutil.rmtree(partial_directory(store), ignore_errors=True)
        raise
    return time.monotonic() - started


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def spell_gain(gain: float) -> str:
    """How two times compare, in words.

    >>> spell_gain(547.9), spell_gain(0.125), spell_gain(1.32), spell_gain(0.99)
    ('548 times faster', '8 times slower', '1.3 times faster', 'the same')
    """
    ratio = max(gain, 1 / gain)
    if ratio < 1.05:
        return "the same"
    shown = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}".removesuffix(".0")
    return f"{shown} times {'faster' if gain > 1 else 'slower'}"


def render(demonstration: Demonstration) -> Group:
    """Draw the one table."""
    field = demonstration.field
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("read")
    table.add_column("places")
    table.add_column("answer", justify="right")
    for reader in demonstration.readers:
        table.add_column(reader, justify="right")
    table.add_column("Bedform against h5py", justify="right")
    for result in demonstration.results:
        times = [result.seconds[reader] for reader in demonstration.readers]
        gain = result.seconds[demonstration.readers[0]] / times[-1]
        table.add_row(
            result.name,
            Text(f"{result.places}, such as {result.selection}"),
            format_bytes(result.answer_bytes),
            *(format_seconds(seconds) for seconds in times),
            spell_gain(gain),
        )
    sizes = (
        f"file {format_bytes(field.stored_bytes)}, "
        f"store {format_bytes(demonstration.store_bytes)}, "
        f"converted in {format_seconds(demonstration.convert_seconds)}"
    )
    how = (
        "h5py reads the file, the others the store; "
        f"median over {ROUNDS} places, every answer equal"
    )
    layout = f"layout: {demonstration.layout}"
    picture = f"picture: {demonstration.picture}"
    lines = [layout, field.origin, sizes, how, demonstration.cold, *demonstration.notes, picture]
    # Not broken into lines of the terminal: one of them is a command that removes files.
    texts = (Text(line, no_wrap=True, overflow="ignore") for line in lines)
    return Group(table, Text(""), *texts)
