"""Fields of a refined mesh for yt, of which derived ones are set up when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from yt.fields.field_info_container import FieldInfoContainer

if TYPE_CHECKING:
    from collections.abc import Iterator

_DENSITY = "code_mass / code_length**3"
_MOMENTUM = "code_mass / (code_time * code_length**2)"
_ENERGY = "code_mass / (code_time**2 * code_length)"


class MeshFieldInfo(FieldInfoContainer):
    """Fields of a component's name, and well-known ones by yt's names: those of yt's own AMReX.

    yt sets up some 200 derived fields when it opens a data set, which takes longer than a plane of
    a large mesh. Here a look-up of a field that is not there yet, or of all fields, sets them up.
    """

    known_other_fields = (
        ("density", (_DENSITY, ["density"], None)),
        ("eden", (_ENERGY, ["total_energy_density"], None)),
        ("xmom", (_MOMENTUM, ["momentum_density_x"], None)),
        ("ymom", (_MOMENTUM, ["momentum_density_y"], None)),
        ("zmom", (_MOMENTUM, ["momentum_density_z"], None)),
        ("temperature", ("K", ["temperature"], None)),
        ("Temp", ("K", ["temperature"], None)),
        ("x_velocity", ("cm/s", ["velocity_x"], None)),
        ("y_velocity", ("cm/s", ["velocity_y"], None)),
        ("z_velocity", ("cm/s", ["velocity_z"], None)),
        ("xvel", ("cm/s", ["velocity_x"], None)),
        ("yvel", ("cm/s", ["velocity_y"], None)),
        ("zvel", ("cm/s", ["velocity_z"], None)),
    )
    known_particle_fields = ()

    #: The kind whose derived fields are not set up yet.
    _pending: str | None = None

    def load_all_plugins(self, ftype: str | None = "gas") -> None:
        """Set up derived fields of a kind; those of a new data set wait for a look-up."""
        if self.ds.fields_detected:
            super().load_all_plugins(ftype)
        else:
            self._pending = ftype

    def complete(self) -> None:
        """Set up the derived fields, unless they are."""
        if self._pending is None or not self.ds.fields_detected:
            return
        kind, self._pending = self._pending, None
        with np.errstate(all="ignore"):
            super().load_all_plugins(kind)
            dependencies, _ = self.check_derived_fields()
        self.ds.field_dependencies.update(dependencies)

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        self.complete()
        return bool(super().__contains__(key))

    def __missing__(self, key: Any) -> Any:
        if self._pending is not None and key in self:
            return self[key]
        return super().__missing__(key)

    def __iter__(self) -> Iterator[Any]:
        self.complete()
        return iter(super().__iter__())

    def __len__(self) -> int:
        self.complete()
        return len(self.data)

    def add_field(self, *arguments: Any, **named: Any) -> None:
        """Add a derived field, after those of yt."""
        self.complete()
        super().add_field(*arguments, **named)
