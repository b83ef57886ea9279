"""Simulated machines: predicted times of requests on storage systems elsewhere."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedform import _internal, _json
from bedform._errors import (
    BedformError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    PermissionDeniedError,
    check_text,
    engine_call,
)
from bedform._location import location
from bedform._shown import printable
from bedform._text import format_bytes, format_seconds

if TYPE_CHECKING:
    import os

MACHINES = Path(__file__).parent / "machines"
# A limit far above the size of any description.
_DESCRIPTION_BYTES_MAX = 1 << 20
_PARTS = ("moving", "seeking", "request", "handover")
_WIDTH = 64


def machines() -> dict[str, str]:
    """Returns the machines that come with Bedform: names, and a line about each.

    Examples
    --------
    >>> machines()["laptop"]
    'a solid-state disk, as is assumed where nothing was measured'
    """
    return {path.stem: machine(path)["about"] for path in sorted(MACHINES.glob("*.toml"))}


def machine(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns a machine's description with all defaults, by a shipped name or from a TOML file.

    Rates are in bytes per second, times in seconds; ``docs/simulation.md`` defines each field.

    Raises
    ------
    InvalidArgumentError
        The description is invalid; the message names the field and its allowed values.
    NotFoundError
        The file does not exist.

    Examples
    --------
    >>> machine("spider")["targets"]["count"]
    336
    """
    path = Path(location(name, "machine"))
    if len(path.parts) == 1 and not path.suffix:
        path = MACHINES / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(one.stem for one in MACHINES.glob("*.toml")))
            raise InvalidArgumentError(
                f"no machine {str(name)!r}: choose one of {known}, or name a .toml file"
            )
    try:
        with path.open("rb") as file:
            text = file.read(_DESCRIPTION_BYTES_MAX + 1)
    except OSError as error:
        raise _cannot_read(path, error) from None
    if len(text) > _DESCRIPTION_BYTES_MAX:
        raise InvalidArgumentError(f"{str(path)!r} is too large for a machine description")
    try:
        found = tomllib.loads(text.decode())
    except ValueError as error:
        raise InvalidArgumentError(f"{str(path)!r} is not TOML: {error}") from None
    return _checked(found, str(path))


def _checked(description: Mapping[str, Any], origin: str) -> dict[str, Any]:
    try:
        text = _json.dump(description)
        checked: dict[str, Any] = json.loads(engine_call(_internal.check_machine)(text))
    except (InvalidArgumentError, TypeError) as error:
        raise InvalidArgumentError(f"{origin!r}: {error}") from None
    return checked


def simulate(
    on: str | os.PathLike[str] | Mapping[str, Any],
    workload: Mapping[str, Any] | str | None = None,
    *,
    pattern: Mapping[str, Any] | None = None,
) -> Simulation:
    """Simulate a workload, or a pattern, on a described machine.

    Parameters
    ----------
    on
        The name of a shipped machine, a TOML file, or a description of :func:`machine`.
    workload
        ``{"files": [...], "clients": [{"operations": [...]}, ...]}``, as a mapping or as JSON;
        :meth:`Array.workload` returns one.
    pattern
        Instead of a workload: ``shape`` (``"contiguous"``, ``"strided"``, ``"file-per-client"``),
        ``clients``, ``client_bytes``, ``request_bytes``; ``is_write``, ``requests_in_flight``,
        ``stripes``.

    Raises
    ------
    InvalidArgumentError
        The machine or workload is invalid, or exceeds the limits of the simulation.

    Examples
    --------
    >>> reads = [{"read": [0, at << 24, 1 << 20]} for at in range(3)]
    >>> found = simulate("spider", {"files": [{"count": 1}], "clients": [{"operations": reads}]})
    >>> round(found.seconds, 4)
    0.0423
    """
    if (workload is None) == (pattern is None):
        raise InvalidArgumentError("give a workload or a pattern")
    checked = _checked(on, "the machine given") if isinstance(on, Mapping) else machine(on)
    if isinstance(workload, str):
        question = f'{{"workload":{check_text(workload, "the workload")}}}'
    elif workload is not None:
        question = _json.dump({"workload": workload})
    else:
        question = _json.dump({"pattern": pattern})
    found, took = engine_call(_internal.simulate)(_json.dump(checked), question)
    return Simulation(checked, json.loads(found), took)


def _cannot_read(path: Path, error: OSError) -> BedformError:
    """Returns the error for a description that cannot be read."""
    said = f"{str(path)!r}: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"{said}; bedform.machines() has the names of those that come along")
    if isinstance(error, PermissionError):
        return PermissionDeniedError(f"{said}; ask its owner")
    if isinstance(error, IsADirectoryError):
        return InvalidArgumentError(f"{said}; name a .toml file")
    return IoError(said)


class Simulation:
    """Result of a simulation; ``str`` of it is a table and a picture of the load.

    Examples
    --------
    >>> pattern = {"shape": "strided", "clients": 8}
    >>> pattern |= {"client_bytes": 1 << 24, "request_bytes": 1 << 20}
    >>> simulate("laptop", pattern=pattern).to_dict()["requests"]
    128
    """

    def __init__(self, on: Mapping[str, Any], facts: dict[str, Any], took: float) -> None:
        self._machine, self._facts, self._took = on, facts, took

    @property
    def seconds(self) -> float:
        """Seconds until the last client has finished."""
        return float(self._facts["seconds"])

    @property
    def limit(self) -> str:
        """The resource with the largest bound: ``target``, ``link``, ``client``, ``latency``..."""
        return str(self._facts["bounds"][0]["what"])

    def to_dict(self) -> dict[str, Any]:
        """Returns all results: seconds, bytes, requests, bounds, and the load of each target."""
        return {"machine": self._machine["name"], **self._facts, "calculation_seconds": self._took}

    def busy_seconds(self) -> list[float]:
        """Returns the busy seconds of each target."""
        return [_busy(load) for load in self._facts["targets"]]

    def __str__(self) -> str:
        facts, loads = self._facts, self._facts["targets"]
        moved = facts["read_bytes"] + facts["written_bytes"]
        rate = moved / self.seconds if self.seconds else 0.0
        used = [load for load in loads if load["requests"]]
        rows = [
            ("machine", printable(f"{self._machine['name']}: {self._machine['about']}")),
            ("time", format_seconds(self.seconds)),
            ("bytes read", format_bytes(facts["read_bytes"])),
            ("bytes written", format_bytes(facts["written_bytes"])),
            ("rate", f"{format_bytes(rate)}/s"),
            ("requests", f"{facts['requests']:,}"),
            ("clients", f"{len(facts['clients']):,}"),
            ("creates, opens, syncs", f"{facts['metadata_operations']:,}"),
            ("targets used", f"{len(used):,} of {len(loads):,}"),
            ("seeks", f"{sum(load['seeks'] for load in loads):,}"),
            ("locks handed over", f"{sum(load['handovers'] for load in loads):,}"),
            ("longest queue", f"{max((load['queue_max'] for load in loads), default=0):,}"),
        ]
        width = max(len(label) for label, _ in rows)
        lines = [f"{label:<{width}}  {shown}" for label, shown in rows]
        return "\n".join([*lines, "", *self._bounds(), "", *self._picture()])

    def _bounds(self) -> list[str]:
        lines = ["the time is at least that for which the busiest is busy:"]
        for bound in self._facts["bounds"]:
            if bound["seconds"] > 0:
                share = bound["seconds"] / self.seconds
                lines.append(
                    f"  {bound['what']:<9} {format_seconds(bound['seconds']):>9} {share:7.1%}"
                )
        return lines

    def _picture(self) -> list[str]:
        """The load of the targets: a bar for each, or for as many neighbours as fit."""
        bars, group = _grouped(self.busy_seconds())
        most = max(bars, default=0.0)
        title = "busy time of each target" if group == 1 else f"mean busy time of {group} targets"
        lines = [f"{title}, from 0 to {format_seconds(most)}:"]
        height = 6
        for level in range(height, 0, -1):
            marks = "".join(
                "#" if most and bar / most > (level - 0.5) / height else " " for bar in bars
            )
            lines.append(f"  |{marks.rstrip()}")
        return [*lines, f"  +{'-' * len(bars)}"]

    def svg(self) -> str:
        """Returns a picture of the load: a bar for each target, divided by kinds of work."""
        return _svg(self._machine["name"], self.seconds, self._facts["targets"])


def _busy(load: Mapping[str, Any]) -> float:
    return float(sum(load[f"{part}_seconds"] for part in _PARTS))


def _grouped(values: list[float]) -> tuple[list[float], int]:
    """Returns means of neighbouring values, in groups that fit the picture's width."""
    group = -(-len(values) // _WIDTH) or 1
    groups = [values[at : at + group] for at in range(0, len(values), group)]
    return [sum(one) / len(one) for one in groups], group


_COLOURS = {
    "moving": ("#2a6f97", "moving bytes"),
    "seeking": ("#e09f3e", "seeking"),
    "request": ("#8d99ae", "beginning requests"),
    "handover": ("#9e2a2b", "handing over locks"),
}


def _svg(name: str, seconds: float, loads: list[dict[str, Any]]) -> str:
    wide, high, left, top = 840.0, 240.0, 70.0, 50.0
    most = max((_busy(load) for load in loads), default=0.0) or 1.0
    step = wide / max(len(loads), 1)
    shapes = []
    for number, load in enumerate(loads):
        below = top + high
        for part, (colour, _) in _COLOURS.items():
            tall = load[f"{part}_seconds"] / most * high
            below -= tall
            if tall > 0:
                shapes.append(
                    f'<rect x="{left + number * step:.2f}" y="{below:.2f}" '
                    f'width="{max(step * 0.9, 0.5):.2f}" height="{tall:.2f}" fill="{colour}"/>'
                )
    legend = []
    for place, (colour, text) in enumerate(_COLOURS.values()):
        x = left + place * 170
        legend.append(
            f'<rect x="{x}" y="30" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 15}" y="39">{text}</text>'
        )
    title = f"{name}: busy time of {len(loads)} targets; all took {format_seconds(seconds)}"
    axis = (
        f'<path d="M{left} {top} V{top + high} H{left + wide}" fill="none" stroke="#444"/>'
        f'<text x="{left - 6}" y="{top + 8}" text-anchor="end">{format_seconds(most)}</text>'
        f'<text x="{left - 6}" y="{top + high}" text-anchor="end">0</text>'
        f'<text x="{left}" y="{top + high + 18}">target 0</text>'
        f'<text x="{left + wide}" y="{top + high + 18}" text-anchor="end">{len(loads) - 1}</text>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 325" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="930" height="325" fill="white"/><text x="{left}" y="20" font-size="14">'
        f"{_escaped(title)}</text>{''.join(legend)}{axis}{''.join(shapes)}</svg>\n"
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
