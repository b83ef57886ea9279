"""Replicas, and sources that change in every way: reads return the source's values.

A case makes a source and replicas of it, changes one of them, and reads. Files are compared with
h5py, Zarr arrays of other programs with zarr-python, stores of Bedform with a model in NumPy.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from support import Case, cases

import bedform as bf

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

SHAPE = (100, 40, 50)
#: An hour ago.
OLD = time.time() - 3600


def values_of(chance: random.Random, shape: tuple[int, ...] = SHAPE) -> Any:
    """Returns numbers, half of them the fill value, since lost data must not look like data."""
    values = np.random.default_rng(chance.getrandbits(32)).integers(1, 9999, shape).astype("<i4")
    values[:, : shape[1] // 2] = 0
    return values


def set_times(path: Path, times: dict[Path, os.stat_result]) -> None:
    """Restores the times of files, as rsync, tar and touch do."""
    for file, found in times.items():
        if file.exists():
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert path.exists()


def times_below(path: Path) -> dict[Path, os.stat_result]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {file: file.stat() for file in files}


def copied_with_times(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copy2(source, target)
    else:
        shutil.copytree(source, target, copy_function=shutil.copy2)


def removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Source:
    """A source with one array, ``t``, with its changes and another reader."""

    #: The axis of the series, as ``optimize`` names it.
    dimension = "time"

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory, self.chance = directory, chance
        self.path = directory / "source"
        self.make(values_of(chance))

    @property
    def where(self) -> Any:
        return self.path

    def make(self, values: Any) -> None:
        """Makes the source again at the same path."""
        raise NotImplementedError

    def truth(self) -> Any:
        """Returns the present values by another library."""
        raise NotImplementedError

    def overwrite(self) -> None:
        """Writes other values of the same size in place."""
        raise NotImplementedError

    def files(self) -> list[Path]:
        return sorted(times_below(self.path))

    def parts(self) -> list[Path]:
        """Returns the copied and replaced files and directories, without sidecars."""
        return [self.path]

    def optimize(self) -> bf.Optimization:
        region = self.chance.choice([None, {self.dimension: (0, 80)}])
        return bf.optimize(self.where, "900%", reads={self.dimension: 1}, region=region)

    # Changes.

    def overwritten(self) -> None:
        self.overwrite()

    def overwritten_in_secret(self) -> None:
        """Overwrites like a tool that restores the times."""
        times = times_below(self.path)
        self.overwrite()
        set_times(self.path, times)

    def replaced_alike(self) -> None:
        """Replaces the source by one of the same size and times."""
        times = times_below(self.path)
        other = self.directory / "other"
        copied_with_times(self.path, other)
        self.path, own = other, self.path
        self.overwrite()
        parts = self.parts()
        self.path = own
        for part in parts:
            target = own / part.relative_to(other)
            removed(target)
            part.rename(target)
        removed(other)
        set_times(own, times)

    def copied(self) -> None:
        for part in self.parts():
            copied_with_times(part, self.directory / "copy")
            removed(part)
            (self.directory / "copy").rename(part)

    def moved(self) -> None:
        elsewhere = self.directory / "elsewhere"
        self.path.rename(elsewhere)
        elsewhere.rename(self.path)

    def touched(self) -> None:
        for file in self.files():
            os.utime(file)

    def with_other_modes(self) -> None:
        for file in self.files():
            file.chmod(0o600)

    def changes(self) -> list[Callable[[], None]]:
        return [
            self.overwritten,
            self.overwritten_in_secret,
            self.replaced_alike,
            self.copied,
            self.moved,
            self.touched,
            self.with_other_modes,
        ]


class Hdf5File(Source):
    def make(self, values: Any) -> None:
        data_set = xr.Dataset({"t": (("time", "y", "x"), values)})
        stored = {"chunksizes": (1, *SHAPE[1:]), "_FillValue": None}
        data_set.to_netcdf(self.path, engine="h5netcdf", encoding={"t": stored})

    def truth(self) -> Any:
        with h5py.File(self.path) as file:
            return file["t"][:]

    def overwrite(self) -> None:
        with h5py.File(self.path, "r+") as file:
            first = self.chance.randrange(SHAPE[0] - 4)
            file["t"][first : first + 4] += 1 + self.chance.randrange(9)


class Archive(Source):
    """Daily files of the same size, in one directory."""

    @property
    def where(self) -> Any:
        return str(self.path / "*.nc")

    def make(self, values: Any) -> None:
        self.path.mkdir(exist_ok=True)
        for number, part in enumerate(np.split(values, 5)):
            data_set = xr.Dataset({"t": (("time", "y", "x"), part)})
            stored = {"chunksizes": (1, *SHAPE[1:]), "_FillValue": None}
            path = self.path / f"{number}.nc"
            data_set.to_netcdf(
                path, engine="h5netcdf", encoding={"t": stored}, unlimited_dims=["time"]
            )

    def truth(self) -> Any:
        parts = []
        for path in self.files():
            with h5py.File(path) as file:
                parts.append(file["t"][:])
        return np.concatenate(parts)

    def files(self) -> list[Path]:
        return sorted(self.path.glob("*.nc"))

    def parts(self) -> list[Path]:
        return self.files()

    def overwrite(self) -> None:
        with h5py.File(self.chance.choice(self.files()), "r+") as file:
            file["t"][2:4] += 1 + self.chance.randrange(9)


class ZarrV2(Source):
    """An array of another library, whose metadata a user corrects."""

    zarr_format: Any = 2

    def make(self, values: Any) -> None:
        group: Any = zarr.open_group(self.path, mode="w", zarr_format=self.zarr_format)
        named: Any = {} if self.zarr_format == 2 else {"dimension_names": ["time", "y", "x"]}
        array = group.create_array(
            "t", shape=SHAPE, chunks=(1, *SHAPE[1:]), dtype="<i4", compressors=None, **named
        )
        array[...] = values
        if self.zarr_format == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]

    def truth(self) -> Any:
        array: Any = zarr.open_group(self.path, mode="r")["t"]
        return array[...]

    def overwrite(self) -> None:
        array: Any = zarr.open_group(self.path, mode="r+")["t"]
        first = self.chance.randrange(SHAPE[0] - 4)
        array[first : first + 4] = array[first : first + 4] % 5000 + 1 + self.chance.randrange(9)

    def corrected(self) -> None:
        document = self.path / "t" / ".zarray"
        metadata = json.loads(document.read_text())
        scale = {"id": "fixedscaleoffset", "scale": 2, "offset": 5, "dtype": "<i4"}
        metadata |= self.chance.choice(
            [
                {"dtype": ">i4"},
                {"order": "F"},
                {"dtype": "<u4"},
                {"fill_value": 7},
                {"filters": [{**scale, "astype": "<i4"}]},
                {"filters": [{"id": "delta", "dtype": "<i4"}]},
            ]
        )
        document.write_text(json.dumps(metadata))
        (self.path / ".zmetadata").unlink(missing_ok=True)

    def with_a_chunk_less(self) -> None:
        self.chance.choice([one for one in self.files() if not one.name.startswith(".")]).unlink()

    def with_chunks_swapped(self) -> None:
        times = times_below(self.path)
        two = self.chance.sample([one for one in self.files() if one.name[0].isdigit()], 2)
        bytes_of_both = [one.read_bytes() for one in two]
        for one, bytes_of_other in zip(two, reversed(bytes_of_both), strict=True):
            one.write_bytes(bytes_of_other)
        set_times(self.path, times)

    def changes(self) -> list[Callable[[], None]]:
        of_metadata = [self.corrected] * 4
        return [*super().changes(), *of_metadata, self.with_chunks_swapped, self.with_a_chunk_less]


class ZarrV3(ZarrV2):
    zarr_format: Any = 3

    def corrected(self) -> None:
        document = self.path / "t" / "zarr.json"
        metadata = json.loads(document.read_text())
        big = [{"name": "bytes", "configuration": {"endian": "big"}}]
        order = {"name": "transpose", "configuration": {"order": [0, 2, 1]}}
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        metadata |= self.chance.choice(
            [{"codecs": big}, {"codecs": [order, little]}, {"data_type": "uint32"}]
        )
        document.write_text(json.dumps(metadata))

    def with_a_chunk_less(self) -> None:
        self.chance.choice([one for one in self.files() if one.suffix != ".json"]).unlink()

    def with_chunks_swapped(self) -> None:
        self.with_a_chunk_less()


class Kerchunk(Source):
    """References to a plain file, which a user corrects."""

    def make(self, values: Any) -> None:
        (self.directory / "a.bin").write_bytes(values.tobytes())
        shape = list(SHAPE)
        array = {"zarr_format": 2, "shape": shape, "chunks": [1, *shape[1:]], "dtype": "<i4"}
        array |= {"order": "C", "fill_value": 0, "filters": None, "compressor": None}
        self.document = {".zgroup": '{"zarr_format": 2}', "t/.zarray": json.dumps(array)}
        self.document["t/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["time", "y", "x"]}'
        size = values[0].nbytes
        places = {f"t/{at}.0.0": ["a.bin", at * size, size] for at in range(shape[0])}
        self.path = self.directory / "source.json"
        self.write({**self.document, **places})

    def write(self, references: dict[str, Any]) -> None:
        self.references = references
        self.path.write_text(json.dumps({"version": 1, "refs": references}))

    def truth(self) -> Any:
        array = json.loads(self.references["t/.zarray"])
        whole = (self.directory / "a.bin").read_bytes()
        result = np.full(SHAPE, array["fill_value"], array["dtype"])
        for at in range(SHAPE[0]):
            _, start, size = self.references[f"t/{at}.0.0"]
            chunk = np.frombuffer(whole[start : start + size], array["dtype"])
            result[at] = chunk.reshape(SHAPE[1:], order=array["order"])
        return result

    def files(self) -> list[Path]:
        return [self.path, self.directory / "a.bin"]

    def overwrite(self) -> None:
        with (self.directory / "a.bin").open("r+b") as file:
            file.seek(self.chance.randrange(SHAPE[0]) * 4 * SHAPE[1] * SHAPE[2])
            file.write(values_of(self.chance, (1, *SHAPE[1:])).tobytes())

    def overwritten_in_secret(self) -> None:
        file = self.directory / "a.bin"
        found = file.stat()
        self.overwrite()
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))

    def corrected(self) -> None:
        array = json.loads(self.references["t/.zarray"])
        array |= self.chance.choice([{"dtype": ">i4"}, {"order": "F"}, {"dtype": "<u4"}])
        self.write({**self.references, "t/.zarray": json.dumps(array)})

    def with_other_order(self) -> None:
        one, other = (f"t/{at}.0.0" for at in self.chance.sample(range(SHAPE[0]), 2))
        swapped = {one: self.references[other], other: self.references[one]}
        self.write({**self.references, **swapped})

    def changes(self) -> list[Callable[[], None]]:
        return [
            self.overwritten,
            self.overwritten_in_secret,
            self.touched,
            self.with_other_modes,
            *[self.corrected] * 3,
            self.with_other_order,
        ]


class OwnStore(Source):
    """A store of Bedform: commits, settles, direct writes, and restored backups."""

    def make(self, values: Any) -> None:
        self.model = values.copy()
        with bf.create(self.path) as store:
            layout = bf.Regular((1, *SHAPE[1:]), (4, *SHAPE[1:]))
            array = store.create_array(
                "t", shape=SHAPE, dtype="i4", dims=("time", "y", "x"), layout=layout
            )
            array[...] = values

    @property
    def log(self) -> Path:
        return Path(f"{self.path}.bedform-log")

    def truth(self) -> Any:
        return self.model

    def commit(self, *, is_settled: bool) -> None:
        first = self.chance.randrange(SHAPE[0] - 8)
        values = values_of(self.chance, (8, *SHAPE[1:]))
        settle = "end" if is_settled else "later"
        with bf.open(self.path, "r+").session(settle=settle) as session:
            session.write("t", values, start=(first, 0, 0))
            session.commit()
        self.model[first : first + 8] = values

    def overwrite(self) -> None:
        first = self.chance.randrange(SHAPE[0] - 4)
        with bf.open(self.path, "r+") as store:
            store["t"][first : first + 4] = self.model[first : first + 4] + 1
        self.model[first : first + 4] += 1

    def committed(self) -> None:
        self.commit(is_settled=False)

    def committed_and_settled(self) -> None:
        self.commit(is_settled=True)

    def settled(self) -> None:
        self.commit(is_settled=False)
        bf.open(self.path, "r+").settle()

    def grown(self) -> None:
        more = values_of(self.chance, (4, *SHAPE[1:]))
        with bf.open(self.path, "r+") as store:
            store["t"].append(more)
        self.model = np.concatenate([self.model, more])

    def rolled_back(self) -> None:
        """Commits, makes replicas, and restores an earlier backup."""
        backups = [self.directory / "backup", self.directory / "backup-log"]
        for own, backup in zip((self.path, self.log), backups, strict=True):
            removed(backup)  # of an earlier time
            if own.exists():
                copied_with_times(own, backup)
        model = self.model.copy()
        self.commit(is_settled=self.chance.random() < 0.3)
        self.optimize()
        self.check_read()
        for own, backup in zip((self.path, self.log), backups, strict=True):
            if own == self.path and self.chance.random() < 0.5 and self.log.exists():
                # Of the store only the documents, which name the log.
                for document in backup.rglob("zarr.json"):
                    shutil.copy2(document, own / document.relative_to(backup))
            else:
                removed(own)
                if backup.exists():
                    copied_with_times(backup, own)
        self.model = model

    def check_read(self) -> None:
        with bf.open(self.path) as store:
            np.testing.assert_array_equal(store["t"][...], self.model)

    def replaced_alike(self) -> None:
        model = self.model.copy()
        super().replaced_alike()
        assert not np.array_equal(model, self.model)

    def changes(self) -> list[Callable[[], None]]:
        return [
            *super().changes(),
            self.committed,
            self.committed_and_settled,
            self.settled,
            self.grown,
            *[self.rolled_back] * 3,
        ]


KINDS: list[type[Source]] = [Hdf5File, Archive, ZarrV2, ZarrV3, Kerchunk, OwnStore]


def sidecar_of(source: Source) -> Path:
    found = [one for one in source.directory.rglob("replicas") if one.parent.suffix == ".bedform"]
    (only,) = found
    return only


def harmed_replica(source: Source) -> None:
    """Removes or changes replica files, like a purge, an interrupted copy or a mistake."""
    files = [one for one in sidecar_of(source).rglob("c.*") if one.is_file()]
    for file in source.chance.sample(files, min(len(files), source.chance.choice([1, 1, 9]))):
        match source.chance.randrange(4):
            case 0 | 1:
                file.unlink()
            case 2:
                found = file.stat()
                other = source.chance.choice(files)
                if other.exists():
                    file.write_bytes(other.read_bytes())
                os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
            case _:
                os.utime(file)


def selection(chance: random.Random, length: int) -> Any:
    axes: list[Any] = [slice(None)] if chance.random() < 0.7 else []
    for size in (length, *SHAPE[1:])[len(axes) :]:
        low, high = sorted(chance.sample(range(size + 1), 2))
        axes.append(chance.choice([chance.randrange(size), slice(low, high)]))
    return tuple(axes)


class Counts:
    def __init__(self) -> None:
        self.reads = self.served = self.rested = 0


def check_reads(source: Source, store: Any, counts: Counts, reads: int) -> None:
    """Checks that reads by a handle with freshness checks equal another library's."""
    truth = source.truth()
    for _ in range(reads):
        key = selection(source.chance, len(truth))
        np.testing.assert_array_equal(store["t"][key], truth[key], err_msg=f"{key}")
        counts.reads += 1


def reads_of(store: Any) -> int:
    return sum(one["reads"] for one in store.stats()["replicas"])


def run_case(case: Case, directory: Path, counts: Counts) -> None:
    chance = case.chance
    source = KINDS[case.kind(len(KINDS))](directory, chance)
    if chance.random() < 0.5:
        for file in source.files():
            os.utime(file, (OLD, OLD))
    source.optimize()
    with bf.open(source.where) as held:
        check_reads(source, held, counts, 8)
        counts.served += reads_of(held)
    for _ in range(chance.choice([1, 1, 2])):
        harms: list[Callable[[], None]] = [partial(harmed_replica, source)] * 3
        change = chance.choice([*source.changes(), *harms])
        with bf.open(source.where, freshness="read") as held:
            if chance.random() < 0.5:
                check_reads(source, held, counts, 1)
        change()
        with bf.open(source.where) as store:
            check_reads(source, store, counts, 25)
    if chance.random() < 0.3:
        source.optimize()
        with bf.open(source.where) as store:
            check_reads(source, store, counts, 4)
            counts.served += reads_of(store)


@pytest.mark.reliability
def test_whatever_becomes_of_a_source_its_own_values_are_read(tmp_path: Path) -> None:
    counts = Counts()
    for case in cases(0.75, least=len(KINDS) * 4):
        with case:
            directory = tmp_path / str(case.number)
            directory.mkdir()
            run_case(case, directory, counts)
            shutil.rmtree(directory)
    assert counts.served > counts.reads / 40, "replicas serve some of the reads"
    sys.stdout.write(f"\nCOUNT replica_reads {counts.reads}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_one_case_of_each_kind(tmp_path: Path, kind: type[Source]) -> None:
    counts = Counts()
    case = Case(KINDS.index(kind), 7)
    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        source = kind(directory, Case(case.number, number).chance)
        source.optimize()
        with bf.open(source.where) as store:
            check_reads(source, store, counts, 8)
            assert reads_of(store) > 0
        source.chance.choice(source.changes())()
        with bf.open(source.where) as store:
            check_reads(source, store, counts, 8)


ALIKE = ["copied", "moved", "with_other_modes"]


@pytest.mark.parametrize("how", ALIKE)
@pytest.mark.parametrize("kind", [Hdf5File, Archive, ZarrV2, OwnStore])
def test_a_replica_of_a_source_that_was_copied_rests_until_it_was_compared(
    tmp_path: Path, kind: type[Source], how: str
) -> None:
    source, counts = kind(tmp_path, Case(0, 1).chance), Counts()
    done = bf.optimize(source.where, "900%", reads={"time": 1})
    getattr(source, how)()
    if how == "moved":
        # Moving a directory does not change its files.
        for file in source.files():
            file.rename(file.with_name("away"))
            file.with_name("away").rename(file)
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) == 0
        states = store.info()["replicas"]
    assert {one["state"] for one in states} == {"resting"}
    assert all("bedform optimize" in one["reason"] for one in states)
    again = bf.optimize(source.where, "900%", reads={"time": 1})
    assert again.done is not None
    assert sorted(again.done["woken"]) == sorted(one["id"] for one in done.made)
    assert not again.made
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) > 0
        assert {one["state"] for one in store.info()["replicas"]} == {"current"}


@pytest.mark.parametrize("kind", [Hdf5File, Archive, ZarrV2, OwnStore])
def test_resting_replicas_are_compared_without_learnt_reads(
    tmp_path: Path, kind: type[Source]
) -> None:
    source, counts = kind(tmp_path, Case(0, 1).chance), Counts()
    done = bf.optimize(source.where, "900%", reads={"time": 1})
    source.copied()
    again = bf.optimize(source.where, "1%")
    assert again.done is not None
    assert sorted(again.done["woken"]) == sorted(one["id"] for one in done.made)
    assert again.done["compared"] == again.done["woken"]
    assert sorted(again.plan["keep"]) == sorted(again.done["woken"])
    assert any("no reads were learnt" in note for note in again.plan["notes"])
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) > 0
    with pytest.raises(bf.NotFoundError, match="no reads were learnt"):
        bf.optimize(source.where)


def test_replicas_that_differ_from_the_source_are_compared_without_learnt_reads(
    tmp_path: Path,
) -> None:
    source, counts = Hdf5File(tmp_path, Case(0, 2).chance), Counts()
    bf.optimize(source.where, "900%", reads={"time": 1})
    source.replaced_alike()
    again = bf.optimize(source.where).done
    assert again is not None
    assert (len(again["compared"]), again["woken"], again["made"]) == (1, [], [])
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) == 0


@pytest.mark.parametrize("kind", [Hdf5File, Archive, ZarrV2, OwnStore])
def test_a_replica_of_a_source_that_only_looks_the_same_is_made_anew(
    tmp_path: Path, kind: type[Source]
) -> None:
    source, counts = kind(tmp_path, Case(0, 2).chance), Counts()
    bf.optimize(source.where, "900%", reads={"time": 1})
    source.replaced_alike()
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) == 0
    bf.optimize(source.where, "900%", reads={"time": 1})
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) > 0


def test_a_replica_that_was_copied_itself_rests_and_one_that_lacks_a_file_is_made_anew(
    tmp_path: Path,
) -> None:
    source, counts = Hdf5File(tmp_path, Case(0, 3).chance), Counts()
    (made,) = (one["id"] for one in bf.optimize(source.where, "900%", reads={"time": 1}).made)
    directory = sidecar_of(source)
    copied_with_times(directory, tmp_path / "kept")
    removed(directory)
    (tmp_path / "kept").rename(directory)
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) == 0
        assert [one["state"] for one in store.info()["replicas"]] == ["resting"]
    again = bf.optimize(source.where, "900%", reads={"time": 1}).done
    assert again is not None
    assert (again["woken"], again["made"]) == ([made], [])
    next(directory.rglob("c.*")).unlink()
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 9)
        assert [one["state"] for one in store.info()["replicas"]] == ["broken"]
    again = bf.optimize(source.where, "900%", reads={"time": 1}).done
    assert again is not None
    assert len(again["made"]) == 1
    with bf.open(source.where) as store:
        check_reads(source, store, counts, 5)
        assert reads_of(store) > 0


@pytest.mark.parametrize("freshness", ["read", "open", "never"])
@pytest.mark.parametrize("settle", ["end", "later"])
def test_a_read_is_of_one_moment_whatever_of_it_a_replica_has(
    tmp_path: Path, freshness: Any, settle: Any
) -> None:
    source = OwnStore(tmp_path, Case(0, 4).chance)
    bf.optimize(source.path, "900%", reads={"time": 1}, region={"time": (0, 80)})
    held = bf.open(source.path, freshness=freshness)
    held["t"][0:80, 3, 4]
    old = source.model.copy()
    new = np.full(SHAPE, 2, "i4")
    with bf.open(source.path, "r+").session(settle=settle) as session:
        session.write("t", new)
        session.commit()
    for key in [np.s_[0:80, 7, 6], np.s_[0:88, 8, 6], np.s_[:, 9, 8], np.s_[0:80, 9, 8]]:
        try:
            found = held["t"][key]
        except bf.SnapshotMovedError:
            assert freshness != "read"
            continue
        if freshness == "read":
            np.testing.assert_array_equal(found, new[key])
        else:
            is_of_one = np.array_equal(found, old[key]) or np.array_equal(found, new[key])
            assert is_of_one, f"{key}: {found}"


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_a_handle_that_does_not_look_takes_no_replica_of_a_later_commit(
    tmp_path: Path, freshness: Any
) -> None:
    source = OwnStore(tmp_path, Case(0, 5).chance)
    held = bf.open(source.path, freshness=freshness)
    np.testing.assert_array_equal(held["t"][90:, 3, 4], source.model[90:, 3, 4])
    with bf.open(source.path, "r+").session(settle="end") as session:
        session.write("t", np.full(SHAPE, 2, "i4"))
        session.commit()
    bf.optimize(source.path, "900%", reads={"time": 1}, region={"time": (0, 80)})
    for key in [np.s_[0:80, 7, 6], np.s_[90:, 8, 6], np.s_[:, 9, 8]]:
        try:
            found = held["t"][key]
        except bf.SnapshotMovedError:
            continue
        np.testing.assert_array_equal(found, source.model[key])


@pytest.mark.parametrize("freshness", ["open", "never"])
def test_a_handle_that_does_not_look_reads_several_arrays_at_one_moment(
    tmp_path: Path, freshness: Any
) -> None:
    names, chance = ("a", "b", "c"), Case(0, 8).chance
    layout = bf.Regular((1, *SHAPE[1:]), (4, *SHAPE[1:]))

    def commit(number: int, settle: Any) -> None:
        with bf.open(tmp_path / "s.zarr", "r+").session(settle=settle) as session:
            for name in names:
                session.write(name, np.full(SHAPE, number, "i4"))
            session.commit()

    with bf.create(tmp_path / "s.zarr") as store:
        for name in names:
            store.create_array(name, SHAPE, "i4", dims=("time", "y", "x"), layout=layout)
    moved = seen = 0
    for number in range(1, 8):
        commit(number, "end")
        if number % 3 == 1:
            bf.optimize(tmp_path / "s.zarr", "900%", reads={"time": 1}, region={"time": (0, 80)})
        held, found = bf.open(tmp_path / "s.zarr", freshness=freshness), set()
        for step in range(9):
            if step == 3:
                commit(100 + number, chance.choice(["end", "later"]))
            key = chance.choice([np.s_[:80, 3, 4], np.s_[:, 5, 6], np.s_[10:90, 1, 2], np.s_[7]])
            try:
                found |= set(np.unique(held[chance.choice(names)][key]).tolist())
                seen += 1
            except bf.SnapshotMovedError:
                moved += 1
        assert found in ({number}, {100 + number}), "one moment"
    assert seen > moved


def test_no_replica_is_made_of_commits_that_a_backup_may_take_back(tmp_path: Path) -> None:
    source, counts = OwnStore(tmp_path, Case(0, 6).chance), Counts()
    source.commit(is_settled=False)
    for _ in range(4):
        source.rolled_back()
        with bf.open(source.path) as store:
            check_reads(source, store, counts, 10)
        for name in ("backup", "backup-log"):
            removed(tmp_path / name)


def test_a_conversion_begins_again_with_a_file_of_the_same_size_and_time(tmp_path: Path) -> None:
    source = Hdf5File(tmp_path, Case(0, 7).chance)
    target = tmp_path / "target.zarr"
    layout = bf.Regular((1, *SHAPE[1:]), (4, *SHAPE[1:]))

    class Stop(Exception):  # noqa: N818 - ends a conversion
        pass

    def stop(done: int, _: int) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        bf.convert(source.path, target, layout=layout, memory="1 MiB", progress=stop)
    source.replaced_alike()
    bf.convert(source.path, target, layout=layout, memory="1 MiB")
    with bf.open(target) as store:
        np.testing.assert_array_equal(store["t"][...], source.truth())
