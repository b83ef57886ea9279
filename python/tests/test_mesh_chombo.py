"""HDF5 files of Chombo are read as meshes, as a naive reader reads them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
from plotfiles import Mesh, any_mesh, uniform
from test_mesh import any_region

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path


def compound(prefixes: tuple[str, ...], rank: int, padding: int = 0) -> np.dtype[Any]:
    """Returns the type of compounds of integers, with bytes behind them that mean nothing."""
    names = [f"{prefix}{axis}" for prefix in prefixes for axis in "ijk"[:rank]]
    offsets = [4 * number for number in range(len(names))]
    return np.dtype(
        {
            "names": names,
            "formats": ["<i4"] * len(names),
            "offsets": offsets,
            "itemsize": 4 * len(names) + padding,
        }
    )


def write_chombo(mesh: Mesh, path: Path, seed: int = 0) -> Path:
    """Writes a mesh as Chombo does; some data sets in chunks, which boxes cross."""
    chance, rank = random.Random(seed), len(mesh.corner)
    box = compound(("lo_", "hi_"), rank, chance.choice([0, 12]))
    corner = np.array(mesh.corner)
    with h5py.File(path, "w") as file:
        file.create_group("Chombo_global").attrs["SpaceDim"] = np.int32(rank)
        for number, name in enumerate(mesh.names):
            file.attrs[f"component_{number}"] = np.bytes_(name.encode())
        for name, number in (("num_levels", len(mesh.levels)), ("num_components", len(mesh.names))):
            file.attrs[name] = np.int32(number)
        file.attrs["time"] = 0.25
        for number, level in enumerate(mesh.levels):
            group = file.create_group(f"level_{number}")
            last = tuple(corner + level.shape - 1)
            group.attrs.create("prob_domain", np.array((*corner, *last), box))
            group.attrs["dx"] = 0.5 / 2**number
            if level.ratio:
                group.attrs["ref_ratio"] = np.int32(level.ratio[0])
            bounds = [(*(start + corner), *(stop + corner - 1)) for start, stop in as_arrays(level)]
            group["boxes"] = np.array(bounds, box)
            around = [(0, 0), *((ghosts, ghosts) for ghosts in mesh.ghosts)]
            rows = [
                b"".join(one.tobytes("F") for one in np.pad(values, around, constant_values=-1e30))
                for values in level.values
            ]
            elements = np.frombuffer(b"".join(rows), mesh.dtype)
            lengths = [len(row) // elements.itemsize for row in rows]
            group["data:offsets=0"] = np.cumsum([0, *lengths])
            most = min(len(elements), 40)
            chunks = None if chance.random() < 0.5 else (chance.randint(1, most),)
            options = {"compression": "gzip"} if chunks and chance.random() < 0.5 else {}
            group.create_dataset("data:datatype=0", data=elements, chunks=chunks, **options)
            facts = group.create_group("data_attributes")
            facts.attrs["comps"] = np.int32(len(mesh.names))
            ghosts = np.array(tuple(mesh.ghosts), compound(("intvect",), rank))
            facts.attrs.create("outputGhost", ghosts)
            corner = corner * (level.ratio or [1] * rank)
    return path


def as_arrays(level: Any) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Returns the boxes of a level as arrays."""
    return [(np.array(start), np.array(stop)) for start, stop in level.boxes]


def any_chombo(seed: int) -> Mesh:
    """Returns a random mesh with one ratio a level, as the format has."""
    for number in range(seed * 100, seed * 100 + 100):
        mesh = any_mesh(number)
        if all(len(set(level.ratio)) <= 1 for level in mesh.levels):
            return mesh
    raise AssertionError("no such mesh")


@pytest.mark.parametrize("seed", range(20))
def test_regions_of_any_mesh_have_the_finest_elements(seed: int, tmp_path: Path) -> None:
    mesh, chance = any_chombo(seed), random.Random(seed)
    opened = bf.open(write_chombo(mesh, tmp_path / "plot.hdf5", seed))
    assert (opened.kind, opened.levels, opened.time) == ("amr", len(mesh.levels), 0.25)
    assert list(opened) == mesh.names
    assert opened.spacing(0) == (0.5,) * len(mesh.corner)
    for level, kept in enumerate(mesh.levels):
        assert opened.boxes(level).tolist() == [[start, stop] for start, stop in kept.boxes]
        for number, name in enumerate(mesh.names):
            expected = uniform(mesh, number, level, -1)
            found = opened[name].read(level=level, fill=-1)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            for _ in range(4):
                region = any_region(chance, kept.shape)
                part = opened[name].read(region, level=level, fill=-1)
                np.testing.assert_array_equal(part, expected[region])


def test_a_mesh_becomes_a_step_of_a_store(tmp_path: Path) -> None:
    mesh = any_chombo(3)
    path = write_chombo(mesh, tmp_path / "plot.hdf5")
    bf.convert(path, tmp_path / "run.zarr", verify=True)
    assert list(bf.open(tmp_path / "run.zarr").steps) == ["plot.hdf5"]


def test_xarray_opens_the_file_as_a_tree(tmp_path: Path) -> None:
    mesh = any_chombo(1)
    path = write_chombo(mesh, tmp_path / "plot.hdf5")
    tree = xr.open_datatree(path, engine="bedform")
    xr.testing.assert_identical(tree, bf.open(path).to_datatree())
    with pytest.raises(bf.UnsupportedError, match="has a node for each level"):
        xr.open_dataset(path, engine="bedform")
    arrays = xr.open_dataset(path, engine="bedform", group="level_0", drop_variables="boxes")
    assert "data:datatype=0" in arrays


def test_the_file_is_a_file_for_the_calls_on_files(tmp_path: Path) -> None:
    path = write_chombo(any_chombo(1), tmp_path / "plot.hdf5")
    bf.watch(str(path))
    bf.open(path)[any_chombo(1).names[0]].read(level=0)
    assert (tmp_path / "plot.hdf5.bedform").exists()


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda file: file.attrs.__setitem__("num_levels", 900), "count of 900"),
        (lambda file: file.attrs.__setitem__("num_levels", 0), "count of 0"),
        (lambda file: file.attrs.__delitem__("component_0"), "component_0"),
        (lambda file: file["level_0"].attrs.__delitem__("dx"), "dx"),
        (lambda file: file["level_0"].attrs.__setitem__("dx", -1.0), "lower bound"),
        (lambda file: file["level_0"].__delitem__("boxes"), "boxes"),
        (lambda file: file["level_0/data:offsets=0"].__setitem__(1, 1 << 40), "offsets"),
        (lambda file: file["level_0/data:offsets=0"].__setitem__(0, 1), "offsets"),
        (lambda file: file["level_0/data_attributes"].attrs.clear(), "offsets"),
    ],
)
def test_damage_is_a_clear_error(harm: Any, text: str, tmp_path: Path) -> None:
    mesh = next(any_chombo(seed) for seed in range(20) if any(any_chombo(seed).ghosts))
    path = write_chombo(mesh, tmp_path / "plot.hdf5")
    with h5py.File(path, "r+") as file:
        harm(file)
    with pytest.raises(bf.BedformError, match=text):
        bf.open(path)


def test_boxes_behind_the_elements_are_an_error(tmp_path: Path) -> None:
    path = write_chombo(any_chombo(0), tmp_path / "plot.hdf5")
    with h5py.File(path, "r+") as file:
        elements = file["level_0/data:datatype=0"][:-1]
        del file["level_0/data:datatype=0"]
        file["level_0/data:datatype=0"] = elements
    with pytest.raises(bf.CorruptError, match="behind"):
        bf.open(path)
