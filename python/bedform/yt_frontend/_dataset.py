"""The data set, the fields and the reads of the frontend for yt."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from yt.data_objects.static_output import Dataset
from yt.funcs import setdefaultattr
from yt.utilities.io_handler import BaseIOHandler

import bedform as bf
from bedform.yt_frontend._fields import MeshFieldInfo
from bedform.yt_frontend._index import MeshIndex
from bedform.yt_frontend._refinement import refinement

if TYPE_CHECKING:
    from collections.abc import Iterable


class MeshIO(BaseIOHandler):
    """Reads the smallest boxes that hold the selected cells, many in one call."""

    _dataset_type = "bedform"

    def _read_fluid_selection(
        self, chunks: Iterable[Any], selector: Any, fields: list[tuple[str, str]], size: int
    ) -> dict[tuple[str, str], Any]:
        found = {field: np.empty(size) for field in fields}
        at = 0
        for one in (one for chunk in chunks for one in chunk.objs):
            selected = one.selected(selector)
            counts = selected.counts()
            if not counts:
                continue
            dim = len(self.ds.mesh.dims)
            starts, stops = selected.boxes[:, 0, :dim], selected.boxes[:, 1, :dim]
            for field in fields:
                component = self.ds.mesh[field[1]]
                parts = component.parts(one.mesh_level, selected.grids, starts, stops)
                place = at
                for part, mask, count in zip(parts, selected.masks, counts, strict=True):
                    values = part.reshape(-1)
                    found[field][place : place + count] = values if mask is None else values[mask]
                    place += count
            at += sum(counts)
        return found


class BedformDataset(Dataset):
    """A refined mesh as a data set of yt: a store's, or a plotfile of AMReX.

    ``yt.load`` finds it for stores. Plotfiles stay with the frontend that yt ships, unless they
    are asked for: ``BedformDataset("plt00100")``, or
    ``yt.load("plt*", hint="bedform", plotfiles=True)`` for a series.

    Parameters
    ----------
    filename
        The path of a store or plotfile.
    step
        The name of a step of the store; the default is the one that ``bf.open`` opens.
    plotfiles
        Whether ``yt.load`` considers this frontend for plotfiles.

    Raises
    ------
    UnsupportedError
        Ratios that yt cannot have, or coordinates that are not Cartesian.
    """

    _index_class = MeshIndex
    _field_info_class = MeshFieldInfo

    def __init__(
        self,
        filename: str,
        dataset_type: str = "bedform",
        storage_filename: str | None = None,
        units_override: dict[str, str] | None = None,
        unit_system: str = "cgs",
        default_species_fields: Any = None,
        *,
        step: str | None = None,
        plotfiles: bool = False,  # noqa: ARG002 - yt.load gives it to _is_valid
    ) -> None:
        self.fluid_types += ("bedform",)
        self.storage_filename = storage_filename
        self._step = step
        super().__init__(
            filename,
            dataset_type,
            units_override=units_override,
            unit_system=unit_system,
            default_species_fields=default_species_fields,
        )

    @cached_property
    def unique_identifier(self) -> str:
        """A text of the path, the step and its time."""
        text = f"{self.filename} {self._step} {self.mesh.time!r}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def derived_field_list(self) -> Any:
        """The names of all fields; the first look sets up the derived ones."""
        _ = self.index
        self.field_info.complete()
        return self.__dict__["derived_field_list"]

    @derived_field_list.setter
    def derived_field_list(self, names: Any) -> None:
        self.__dict__["derived_field_list"] = names

    @classmethod
    def _is_valid(cls, filename: str, *_: object, plotfiles: bool = False, **__: object) -> bool:
        path = Path(filename)
        if (path / "Header").is_file():
            return plotfiles
        if not (path / "zarr.json").is_file():
            return False
        try:
            return getattr(bf.open(filename), "kind", None) == "amr"
        except (bf.BedformError, OSError):
            return False

    def _parse_parameter_file(self) -> None:
        self.mesh = self._open()
        _check_coordinates(self.mesh)
        dim = len(self.mesh.dims)
        self.dimensionality = dim
        self.refine_by, self.level_numbers = refinement(self.mesh)
        lower, upper = self.mesh.bounds
        self.domain_left_edge = np.array([*lower, 0.0, 0.0][:3])
        self.domain_right_edge = np.array([*upper, 1.0, 1.0][:3])
        shape = self.mesh.domain(0)[1].tolist()
        self.domain_dimensions = np.array([*shape, 1, 1][:3])
        self._periodicity = (False, False, False)
        self.current_time = self.mesh.time
        self.cosmological_simulation = 0
        self.current_redshift = self.omega_lambda = self.omega_matter = 0.0
        self.hubble_constant = 0.0

    def _open(self) -> Any:
        mesh = bf.open(self._input_filename)
        if getattr(mesh, "kind", None) != "amr":
            raise bf.UnsupportedError(f"{self._input_filename}: no refined mesh")
        if self._step is None:
            return mesh
        steps = list(getattr(mesh, "steps", []))
        if self._step not in steps:
            raise bf.NotFoundError(
                f"{self._input_filename}: no step {self._step!r}; it has {steps}"
            )
        return mesh.step(self._step)

    def _set_code_unit_attributes(self) -> None:
        for name, unit in (("length", "cm"), ("mass", "g"), ("time", "s"), ("velocity", "cm/s")):
            setdefaultattr(self, f"{name}_unit", self.quan(1.0, unit))


def _check_coordinates(mesh: Any) -> None:
    """Raises an error for coordinates that are not Cartesian."""
    if mesh.coordinates != "cartesian":
        raise bf.UnsupportedError(
            f"{mesh.path}: {mesh.coordinates} coordinates; the frontend has Cartesian ones alone"
        )
