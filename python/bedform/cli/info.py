"""``bedform info``: the contents of a store or file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from .._errors import BedformError
from .._mesh import RefinedMesh
from .._mesh_opening import mesh_in, plotfile_at
from .._remote import is_url
from .._text import format_bytes, format_shape
from .._traces import watch_state
from ._output import (
    CompatOption,
    ConcatOption,
    JsonOption,
    cell,
    emit,
    help_of,
    open_array,
    open_source,
    paragraph,
)
from .watch import said_of

if TYPE_CHECKING:
    from .._mesh_component import MeshComponent

_RULE = (
    "taken: fastest to read, of those at most 2 % larger than zstd; encoded: bytes for raw bytes"
)
# Number of an archive's files that are named.
_FILES_SHOWN = 12
# Number of steps of meshes in a table.
_STEPS_SHOWN = 20
_MESH_FORMATS = {"amrex-plotfile": "AMReX plotfile", "chombo-hdf5": "Chombo HDF5"}
_ARRAY_COLUMNS = ("shape", "dtype", "dims", "chunks", "shards", "order", "codecs", "bytes")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("info", help=help_of(info))(info)


def info(
    path: Annotated[
        str,
        typer.Argument(
            help="A store, file or plotfile, or a step of meshes: run.zarr/plt00010; or files as "
            'one: "era5_*.nc".'
        ),
    ],
    array: Annotated[str | None, typer.Argument(help="Tell about this array only.")] = None,
    concat_dim: ConcatOption = None,
    compat: CompatOption = "equals",
    as_json: JsonOption = False,
) -> None:
    """Tell what a store or file holds: arrays, shapes, layouts, attributes.

    Example: [bold]bedform info era5.nc[/bold], then [bold]bedform info era5.nc t2m[/bold]
    """
    plotfile = plotfile_at(path)
    if plotfile is not None:
        _emit_mesh(plotfile, array, as_json=as_json)
        return
    with open_source(path, concat_dim, compat) as store:
        mesh = mesh_in(store)
        if isinstance(mesh, RefinedMesh) and (array is None or array in mesh):
            _emit_mesh(mesh, array, as_json=as_json)
        elif array is None:
            facts = {**store.info(), **_watched(path)}
            arrays = dict(sorted(facts["arrays"].items()))
            emit({**facts, "arrays": arrays}, _render_store(path, facts, arrays), as_json)
        else:
            found = open_array(store, array, path)
            facts = {**found.info(), "attributes": dict(found.attributes)}
            emit(facts, _render_array(array, facts), as_json)


def _watched(path: str) -> dict[str, Any]:
    """Returns the state of recording and optimizing; empty if both are off."""
    try:
        state = watch_state(path)
    except BedformError:
        return {}
    return {"watch": state} if state["is_watched"] or state["settings"] else {}


def _render_store(path: str, facts: dict[str, Any], arrays: dict[str, dict[str, Any]]) -> Group:
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    columns = [name for name in _ARRAY_COLUMNS if any(name in entry for entry in arrays.values())]
    table.add_column("array")
    for column in columns:
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for name, entry in arrays.items():
        table.add_row(cell(name), *(cell(_show(column, entry.get(column))) for column in columns))
    others = {key: value for key, value in facts.items() if key not in ("arrays", "attributes")}
    if "order" in others:
        others["order"] = _show_order(others["order"])
    if "watch" in others:
        others["watch"] = f"reads {said_of(others['watch'])}"
    replicas = others.pop("replicas", [])
    if replicas:
        size = format_bytes(sum(replica["stored_bytes"] for replica in replicas))
        others["replicas"] = f"{len(replicas)}, {size}"
    indexes = others.pop("indexes", [])
    if indexes:
        size = format_bytes(sum(index["bytes"] for index in indexes))
        count = "1 array" if len(indexes) == 1 else f"{len(indexes)} arrays"
        others["index"] = f"of {count}, {size}"
    parts: list[Any] = [_render_facts(path, others), Text(""), table]
    unread = [replica for replica in replicas if replica["state"] != "current"]
    parts += [Text("")] if unread else []
    parts += [paragraph(_said_of_replica(replica)) for replica in unread]
    if facts.get("attributes"):
        parts += [Text(""), _render_facts("attributes", facts["attributes"])]
    return Group(*parts)


def _emit_mesh(mesh: RefinedMesh, array: str | None, *, as_json: bool) -> None:
    component = None if array is None else mesh[array]
    known = {**mesh.info(), **_watched(mesh.path)}
    emit(known, _render_mesh(mesh, component, known), as_json)


def _render_mesh(
    mesh: RefinedMesh, component: MeshComponent | None, known: dict[str, Any]
) -> Group:
    """Renders a refined mesh: its levels, its steps, and the components or one of them."""
    lower, upper = mesh.bounds
    reach = (
        f"{name} {low:g} to {high:g}"
        for name, low, high in zip(mesh.dims, lower, upper, strict=True)
    )
    facts = {
        "format": _MESH_FORMATS.get(known["format"], known["format"]),
        **({} if len(mesh.steps) == 1 else {"steps": len(mesh.steps)}),
        "time": mesh.time,
        "domain": ", ".join(reach),
        "dtype": str(mesh.dtype),
        **_stored(mesh, known),
        **_served(known),
        **({} if component is None else {"component": component.name}),
    }
    components = f"components: {', '.join(mesh)}" if component is None else ""
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for column in ("level", "cells", "boxes", "cell size", "ratio to the next"):
        table.add_column(column, justify="right")
    for number, level in enumerate(known["levels"]):
        size = " x ".join(f"{length:g}" for length in level["spacing"])
        ratio = " x ".join(map(str, level["ratio"])) or "-"
        table.add_row(str(number), format_shape(level["shape"]), str(level["boxes"]), size, ratio)
    steps = _render_steps(known) if len(mesh.steps) > 1 and component is None else []
    refused = [paragraph(f"{name}: {reason}") for name, reason in known["refused"].items()]
    named = [Text(""), paragraph(components)] if components else []
    unread = [one for one in known["replicas"] if one["state"] != "current"]
    said = [paragraph(_said_of_replica(one)) for one in unread]
    parts = [Text(""), table, *steps, *named, *refused, *said]
    return Group(_render_facts(mesh.path, facts), *parts)


def _stored(mesh: RefinedMesh, known: dict[str, Any]) -> dict[str, str]:
    """Returns the line about the bytes of all steps; at a URL there is none."""
    if known["stored_bytes"] is None:
        return {} if is_url(mesh.path) else {"stored": f"not counted: {known['not_counted']}"}
    total, log = format_bytes(known["stored_bytes"]), known["log_bytes"]
    return {"stored": f"{total}, {format_bytes(log)} of them in the log" if log else total}


def _served(known: dict[str, Any]) -> dict[str, str]:
    """Returns the lines about recorded reads and replicas; none without them."""
    lines = {}
    if replicas := known.get("replicas"):
        size = format_bytes(sum(replica["stored_bytes"] for replica in replicas))
        lines["replicas"] = f"{len(replicas)}, {size}"
    if "watch" in known:
        lines["watch"] = f"reads {said_of(known['watch'])}"
    return lines


def _render_steps(known: dict[str, Any]) -> list[Any]:
    """Renders the first steps of a store: names, times and bytes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step")
    table.add_column("time", justify="right")
    sizes = known.get("step_bytes", {})
    if sizes:
        table.add_column("stored", justify="right")
    for name, time in list(known["steps"].items())[:_STEPS_SHOWN]:
        size = [format_bytes(sizes[name])] if sizes else []
        table.add_row(cell(name), f"{time:.10g}", *size)
    left = len(known["steps"]) - _STEPS_SHOWN
    return [Text(""), table, *([paragraph(f"and {left} more")] if left > 0 else [])]


def _show_order(paths: list[str]) -> str:
    """Returns the names of joined files in order; of many the first ones and the last."""
    names = [Path(path).name for path in paths]
    if len(names) > _FILES_SHOWN:
        names = [*names[: _FILES_SHOWN - 2], "...", names[-1]]
    return ", ".join(names)


def _said_of_replica(replica: dict[str, Any]) -> str:
    """Returns why a replica is not read, or not completely."""
    words = {"resting": "rests", "outdated": "is outdated", "broken": "is broken"}
    said = words.get(replica["state"], replica["state"])
    return f"replica {replica['id']} of {replica['array']} {said}: {replica['reason']}"


def _render_array(name: str, facts: dict[str, Any]) -> Group:
    """Renders an array and the codecs that were compared for it."""
    choice = facts.get("codec_choice")
    # `numpy` repeats the type for programs.
    shown = {key: value for key, value in facts.items() if key != "numpy"}
    if not choice or choice.get("open") or not choice["compared"]:
        return _render_facts(name, shown)
    return Group(_render_facts(name, shown), Text(""), _render_choice(choice))


def _render_choice(choice: dict[str, Any]) -> Group:
    """Renders the codecs that were compared; the chosen one comes first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("codec compared")
    for column in ("encoded", "decodes, one core"):
        table.add_column(column, justify="right")
    table.add_column("")
    most = next((one["size"] for one in choice["compared"] if one["name"] == "zstd"), 1) * 1.02
    for number, one in enumerate(choice["compared"]):
        rate = f"{format_bytes(int(one['decode_bytes_per_second']))}/s"
        verdict = "taken" if not number else "too large" if one["size"] > most else ""
        table.add_row(cell(one["name"]), f"{one['size']:.1%}", rate, verdict)
    return Group(table, paragraph(_RULE))


def _render_facts(title: str, facts: dict[str, Any]) -> Group:
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in facts.items():
        if isinstance(value, list) and not value:
            continue
        if isinstance(value, dict) and key != "codec_choice":
            for inner, entry in value.items():
                if key == "log" and isinstance(entry, list) and not entry:
                    continue
                table.add_row(cell(f"{key}: {inner}"), cell(_show(str(inner), entry)))
        else:
            table.add_row(cell(key), cell(_show(str(key), value)))
    return Group(cell(title, style="bold"), table)


def _show(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in ("shape", "chunks", "shards") and isinstance(value, (list, tuple)):
        return format_shape(value)
    if key == "codecs" and isinstance(value, list):
        # The codec `bytes` is omitted, since every array has it; --json has the configurations.
        names = [codec["name"] for codec in value if codec["name"] != "bytes"]
        return ", ".join(names) or "none"
    if key == "codec_choice":
        return _show_choice(value)
    if key.endswith("bytes") and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(str(entry) for entry in value)
    return str(value)


def _show_choice(choice: dict[str, Any]) -> str:
    """Describes the chosen codec and the basis of the choice."""
    if choice.get("open"):
        return "open: the first write chooses"
    compared = choice["compared"]
    if not compared:
        return "nothing was compared"
    storage = f"{format_bytes(int(choice['read_bytes_per_second']))}/s"
    sample = format_bytes(choice["sampled_bytes"])
    said = f"{compared[0]['name']}: fastest from storage of {storage}, by {sample} of the data"
    stored = choice.get("stored_size")
    sizes = f"predicted {compared[0]['size']:.1%} of its bytes"
    return f"{said}; {sizes}" + (f", stored {stored:.1%}" if stored is not None else "")
