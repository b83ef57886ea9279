"""Conversion of refined meshes into stores, a step at a time."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from bedform import _internal, _json
from bedform._errors import (
    ConflictError,
    CorruptError,
    ExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    engine_call,
)
from bedform._location import location
from bedform._mesh_boxes import cell_count, chosen_components, ordered_parts, stored_parts
from bedform._mesh_jobs import mesh_for_jobs
from bedform._mesh_opening import STEPS_ATTRIBUTE, is_plotfile, mesh_of, open_mesh
from bedform._paths import paths_of
from bedform._remote import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bedform._mesh import RefinedMesh
    from bedform._store import Store

#: Errors of a plotfile that cannot be read, perhaps not yet.
_UNREADABLE: Final = (CorruptError, ConflictError, NotFoundError, UnsupportedError)
Order = Literal["auto", "hilbert", "z", "clusters", "given"]
#: Bytes of elements that a comparison has in memory, of each side.
_COMPARED_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class MeshConversion:
    """Result of :func:`bedform.convert` for refined meshes, or its plan after a dry run."""

    source: str
    target: str
    steps: tuple[str, ...]
    """The steps that this call stored, or would store."""
    kept: tuple[str, ...]
    """The steps that the target had already."""
    byte_count: int
    """The bytes of the elements of ``steps``."""
    complete: bool = False
    verified: bool = False
    """Whether all elements of ``steps`` and of ``kept`` were compared."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """The reason for each plotfile of a list or pattern that could not be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "bytes": self.byte_count}


def meshes_of(
    shown: str, paths: Sequence[str] | None
) -> dict[str, Callable[[], RefinedMesh]] | None:
    """Returns functions that open the meshes of a source by name; None for another source.

    ``paths`` are the places of a list or a pattern; without them ``shown`` is the place.

    Raises
    ------
    InvalidArgumentError
        Two plotfiles have the same name.
    """
    places = [shown] if paths is None else list(paths)
    plotfiles = list(filter(is_plotfile, places))
    if plotfiles:
        # Pictures, reports and sidecars of plotfiles lie beside them.
        own = tuple(f"{place}." for place in plotfiles)
        places = [place for place in places if not place.startswith(own)]
        names = [Path(place).name for place in places]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(f"two plotfiles have the name {twice!r}")
        return dict(zip(names, (partial(_plotfile, place) for place in places), strict=True))
    if paths is None and (opened := mesh_for_jobs(shown)) is not None:
        return {step or Path(shown).name: partial(opened.step, step) for step in opened.steps}
    return None


def _plotfile(place: str) -> RefinedMesh:
    """Opens a plotfile, without replicas: a comparison reads the plotfile itself.

    Raises
    ------
    UnsupportedError
        It is a file.
    """
    if Path(place).is_file():
        raise UnsupportedError(f"{place} is a file, and a plotfile is a directory")
    return open_mesh(place, {"replicas": False, "records": False})


def are_meshes(source: str) -> bool:
    """Whether a source is refined meshes."""
    return meshes_of(location(source, "source"), paths_of(source, "source")) is not None


def refuse_for_meshes(options: Mapping[str, Any]) -> None:
    """Fails for a given option of conversions of arrays."""
    for name in (name for name, given in options.items() if given):
        raise InvalidArgumentError(f"{name} is for arrays, and the source is a refined mesh")


def refuse_for_arrays(options: Mapping[str, Any]) -> None:
    """Fails for a given option of conversions of meshes."""
    for name in (name for name, given in options.items() if given is not None):
        raise InvalidArgumentError(f"{name} is for refined meshes, and the source is none")


def convert_meshes(
    shown: str,
    meshes: dict[str, Callable[[], RefinedMesh]],
    target: str,
    *,
    order: Order | None,
    sub_box: Sequence[int] | None,
    reads: Mapping[Any, float],
    components: str | Sequence[str] | None,
    codecs: Mapping[str, Any],
    verify: bool,
    dry_run: bool,
    progress: Callable[[int, int], object] | None,
) -> MeshConversion:
    """Stores meshes, each under its name, in a new store of meshes or one that is there.

    A step appears when all of it is durable. Steps that the store has are left as they are. Of
    several plotfiles those that cannot be read, as a simulation may still write them, are skipped.

    Raises
    ------
    ExistsError
        The target is no store of meshes, or has another mesh of that name.
    TargetBusyError
        Another process converts into this target.
    VerificationError
        A step differs from its source.
    """
    with _only_converter(target):
        opened, skipped = _opened(meshes)
        store = _store_of_meshes(target)
        there = {} if store is None else dict(engine_call(_internal.EngineMesh.steps)(store._inner))
        kept = {name: mesh for name, mesh in opened.items() if name in there}
        new = {name: mesh for name, mesh in opened.items() if name not in there}
        if store is not None:
            for name, mesh in kept.items():
                _check_same(mesh, _stored(store, name), components, target)
        total = sum(byte_count_of(mesh, components) for mesh in new.values())
        if dry_run:
            planned = (shown, target, tuple(new), tuple(kept), total)
            return MeshConversion(*planned, skipped=skipped)
        given = (order, None if sub_box is None else list(sub_box))
        chosen, cut = _layout(next(iter(new.values()), None), given, reads)
        done, stored = 0, []
        for name, mesh in new.items():

            def tell(bytes_done: int, _: int, before: int = done) -> None:
                if progress is not None:
                    progress(before + bytes_done, total)

            how = (chosen, cut, _numbers(mesh, components), _json.dump(codecs), tell)
            try:
                if store is None:
                    store = _with_first_step(target, name, mesh, how)
                else:
                    engine_call(mesh._inner.store_in, mesh.path)(store._inner, name, *how)
            except _UNREADABLE as error:
                if len(meshes) == 1:
                    raise
                skipped[name] = str(error)
                continue
            stored.append(name)
            done += byte_count_of(mesh, components)
        if store is not None:
            if verify:
                for name in (*stored, *kept):
                    check_equal(opened[name], _stored(store, name))
            store.close()
    total = sum(byte_count_of(new[name], components) for name in stored)
    return MeshConversion(shown, target, tuple(stored), tuple(kept), total, True, verify, skipped)


def _layout(
    mesh: RefinedMesh | None,
    given: tuple[Order | None, list[int] | None],
    reads: Mapping[Any, float],
) -> tuple[str, list[int] | None]:
    """Returns the order and the sub-boxes of new steps: the given ones, or those for the reads.

    Raises
    ------
    InvalidArgumentError
        Reads that no component can have.
    """
    order, sub_box = given
    if mesh is None or not reads:
        return order or "auto", sub_box
    from bedform._optimize import expected_reads

    text = engine_call(_internal.mesh_layout, mesh.path)(mesh._inner, expected_reads(reads, {}))
    found = json.loads(text)
    return order or found["order"], sub_box or found["sub_box"]


def _opened(
    meshes: dict[str, Callable[[], RefinedMesh]],
) -> tuple[dict[str, RefinedMesh], dict[str, str]]:
    """Opens meshes, and returns them, and the reason for each of several that cannot be read."""
    opened, skipped = {}, {}
    for name, make in meshes.items():
        try:
            opened[name] = make()
        except _UNREADABLE as error:
            if len(meshes) == 1:
                raise
            skipped[name] = str(error)
    if not opened:
        raise NotFoundError(
            f"none of {len(meshes)} plotfiles can be read: {next(iter(skipped.values()))}"
        )
    return opened, skipped


@contextlib.contextmanager
def _only_converter(target: str) -> Iterator[None]:
    """Holds the lock of conversions into a local target."""
    if is_url(target):
        yield
        return
    import fcntl

    from bedform._convert import TargetBusyError, partial_directory

    place = partial_directory(Path(target))
    try:
        place.mkdir(exist_ok=True)
        descriptor = os.open(place / ".bedform-lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        # The writes say why.
        yield
        return
    try:
        if not _is_locked(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise TargetBusyError(
                f"another conversion to {target} is running: wait for it or stop it"
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (place / ".bedform-lock").unlink()
                place.rmdir()
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int, how: int) -> bool:
    """Takes the lock of a file; True also where the file system has no locks."""
    import fcntl

    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def byte_count_of(mesh: RefinedMesh, components: str | Iterable[str] | None = None) -> int:
    """Returns the bytes of all elements of a mesh, or of some components."""
    count = len(chosen_components(mesh, components))
    return cell_count(mesh) * mesh.dtype.itemsize * count


def _numbers(mesh: RefinedMesh, components: str | Iterable[str] | None) -> list[int]:
    """Returns the numbers of components, as `chosen_components` chooses them."""
    names = list(mesh)
    return [names.index(name) for name in chosen_components(mesh, components)]


def _store_of_meshes(target: str) -> Store | None:
    """Opens the store of meshes at the target; None if nothing is there."""
    import bedform

    try:
        opened = bedform.open(target, "r+", prefetch=False)
    except NotFoundError:
        return None
    if isinstance(opened, bedform.Store) and STEPS_ATTRIBUTE in opened._attributes_of(""):
        return opened
    raise ExistsError(f"{target} exists, and is no store of meshes: choose another name")


def _with_first_step(target: str, name: str, mesh: RefinedMesh, given: tuple[Any, ...]) -> Store:
    """Creates the store with its first step, which appear together, and returns it opened."""
    import bedform
    from bedform._opening import _stage

    marks = {STEPS_ATTRIBUTE: 1}
    if is_url(target):
        store = bedform.create(target, attributes=marks)
        engine_call(mesh._inner.store_in, mesh.path)(store._inner, name, *given)
        return store
    staged, store = _stage(Path(target), replaces=False, durability="disk")
    try:
        store.set_attributes(marks)
        engine_call(mesh._inner.store_in, mesh.path)(store._inner, name, *given)
        store.close()
        engine_call(staged.publish, target)()
    finally:
        staged.discard()
    opened: Store = bedform.open(target, "r+", prefetch=False)
    return opened


def _stored(store: Store, name: str) -> RefinedMesh:
    found = mesh_of(store, name)
    if found is None:
        raise NotFoundError(f"{store.store_path} is no store of meshes any more")
    return found


def _check_same(
    mesh: RefinedMesh, stored: RefinedMesh, components: str | Sequence[str] | None, target: str
) -> None:
    """Fails unless a stored step has the boxes, facts and components of a mesh."""
    names = list(chosen_components(mesh, components))
    step = os.path.basename(mesh.path)  # noqa: PTH119
    if stored._facts == {**mesh._facts, "components": names}:
        levels = range(mesh.levels)
        if all(np.array_equal(mesh.boxes(level), stored.boxes(level)) for level in levels):
            return
    if stored._facts == {**mesh._facts, "components": list(stored)}:
        raise ExistsError(
            f"{target} has step {step!r} with the components {', '.join(stored)}, not "
            f"{', '.join(names)}: choose another target, or remove the step"
        )
    raise ExistsError(f"{target} has another mesh as step {step!r}: choose another target")


def check_equal(mesh: RefinedMesh, stored: RefinedMesh) -> None:
    """Compares all elements of a stored mesh with those of a mesh with the same boxes.

    Raises
    ------
    VerificationError
        They differ.
    """
    from bedform._convert import VerificationError

    cells = _COMPARED_BYTES // mesh.dtype.itemsize
    for name in stored:
        for level in range(mesh.levels):
            for bounds in ordered_parts(mesh.boxes(level), cells):
                ours, theirs = (stored_parts(one[name], level, bounds) for one in (mesh, stored))
                for (start, stop), one, other in zip(bounds.tolist(), ours, theirs, strict=True):
                    if one.tobytes() != other.tobytes():
                        raise VerificationError(
                            f"{stored.path}: {name} differs from {mesh.path} on level {level}, in "
                            f"the cells {start} to {stop}"
                        )
