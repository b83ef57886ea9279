"""Facts of a report on a store or file: layouts, recorded reads, and effects of replicas.

`report` renders them as a page, which ``bedform report`` writes. Of the elements only coordinates
are read, at the positions that the page names.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from bedform import _catalogue, _sidecar
from bedform._errors import BedformError, InvalidArgumentError, NotFoundError
from bedform._location import location
from bedform._mesh_jobs import (
    fitted_replicas,
    mesh_for_jobs,
    mesh_replicas_of,
    source_facts,
)
from bedform._opening import open_place
from bedform._optimize import optimize
from bedform._paths import join_of, paths_of, shown_paths
from bedform._remote import is_url, without_query
from bedform._report_coordinates import add_centres, add_coordinates
from bedform._report_reads import queries_of, read_array
from bedform._shown import shell_path
from bedform._text import format_bytes
from bedform._traces import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bedform._mesh import RefinedMesh

__all__ = ["gather_facts", "report"]

#: The default budget of a plan, and its share of the source's bytes.
_BUDGET: Final = "20%"
_BUDGET_SHARE: Final = 0.2
#: Budgets of the curve, in percent of the source's bytes.
BUDGETS: Final = (1, 5, 10, 20, 50, 100, 200)
#: Share of the largest saving that a recommended budget must reach.
_ENOUGH: Final = 0.9
#: Speedup of the reads from which replicas are recommended.
_WORTH_IT: Final = 1.1
#: Speedup of the largest budget over the recommended one from which the report names it, too.
_WORTH_MORE: Final = 1.5
_KNOWLEDGE_BYTES_MAX: Final = 16 << 20
#: Largest numbers of a variable's chunks and a store's files for which stored bytes are summed.
_CHUNKS_MAX: Final = 200_000
_FILES_MAX: Final = 200_000
_ARRAYS_MAX: Final = 10_000


def report(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
) -> str:
    """Render a page about a store or file: its reads, their times, and the effect of replicas.

    The page is one self-contained HTML document without scripts. It shows the recorded reads
    (:func:`watch`), their measured and predicted times, the layouts and replicas, and the effect of
    more replicas (:func:`optimize`), and coordinates where an axis has them. It first learns from
    new records (:func:`learn`). It makes no replicas.

    Parameters
    ----------
    path
        A store, a NetCDF or HDF5 file, the URL of one, a plotfile of AMReX, or a list or pattern of
        files that are opened as one.
    budget
        The budget of the planned replicas: a share of the file, or a size. The default is 20 %, or
        the bytes of the existing replicas if these are more.
    concat_dim, compat
        As in :func:`bedform.open`.

    Returns
    -------
    str
        The HTML document.

    Raises
    ------
    NotFoundError
        The path does not exist.
    InvalidArgumentError
        The budget is invalid.

    Examples
    --------
    >>> import bedform as bf, numpy as np, tempfile
    >>> path = tempfile.mkdtemp() + "/s.zarr"
    >>> _ = bf.create(path).create_array("t", data=np.zeros((20, 64, 64), "f4"))
    >>> page = bf.report(path)
    >>> page[:15], "bedform watch" in page
    ('<!DOCTYPE html>', True)
    """
    from bedform._report_page import page_of

    return page_of(gather_facts(path, budget, concat_dim=concat_dim, compat=compat))


def gather_facts(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    budget: str | int | None = None,
    progress: Callable[[int, int], object] | None = None,
    *,
    concat_dim: str | None = None,
    compat: Literal["equals", "override"] = "equals",
) -> dict[str, Any]:
    """Returns all facts of the page as JSON values.

    Parameters
    ----------
    path, budget, concat_dim, compat
        As in `report`.
    progress
        Called with the number of finished steps and their total.
    """
    paths = paths_of(path)
    where = location(path) if paths is None else shown_paths(path, paths)
    if paths is None and concat_dim is not None:
        # One file that is opened as a list of files.
        paths = [where]
    source = where if paths is None else paths
    join: _Join = {"concat_dim": concat_dim, "compat": compat}
    steps = _Steps(progress, 3 + len(BUDGETS))
    notes: list[str] = []
    # Pages are passed on, and the query of a URL may be a secret.
    facts: dict[str, Any] = {"path": without_query(where), "made": int(time.time())}
    mesh = mesh_for_jobs(source)
    facts.update(_source_facts(source, join, notes) if mesh is None else _mesh_facts(mesh, where))
    steps.done()
    known, facts["queries"] = _learnt(source, notes)
    facts["recording"] = _sidecar.is_watched(source)
    facts["recorded"] = _totals(known)
    facts["reads"] = known
    steps.done()
    if mesh is None:
        replicas = _catalogue.named_replicas_of(source)
    else:
        replicas = fitted_replicas(mesh_replicas_of(where), facts["arrays"])
    facts["replicas"] = [{"label": f"R{at}", **one} for at, one in enumerate(replicas, start=1)]
    # Without possible replicas, no notes are needed on each plan.
    about_plan = notes if facts["is_file"] else []
    uses = [*known, *facts["queries"]]
    facts["plan"] = _planned(source, join, budget, uses, about_plan)
    if is_url(where) and facts["plan"] is not None:
        facts["stored_bytes"] = facts["plan"]["source_bytes"]
    if mesh is None:
        facts["replicas_are_current"] = _are_current(source, join, replicas, notes)
    else:
        # A plan drops those that no read can use.
        dropped = set() if facts["plan"] is None else set(facts["plan"]["drop"])
        facts["replicas_are_current"] = not any(one["id"] in dropped for one in replicas)
    steps.done()
    facts["budgets"] = _budgets(source, join, facts["plan"], steps)
    _join_predictions(facts)
    if mesh is None:
        add_coordinates(source, join, facts["reads"], facts["replicas"])
    else:
        add_centres(mesh, facts["reads"], facts["replicas"])
    _note_changes(facts, notes)
    facts["next"] = _next_step(facts, _Commands(path, facts["path"], join))
    facts["notes"] = notes
    return facts


def _mesh_facts(mesh: RefinedMesh, where: str) -> dict[str, Any]:
    stored = Path(where).stat().st_size if Path(where).is_file() else _bytes_under(where)
    return source_facts(mesh, stored)


class _Join(TypedDict):
    """How many files are joined, as keyword arguments of `open` and `optimize`."""

    concat_dim: str | None
    compat: Literal["equals", "override"]


def _are_current(
    source: str | list[str], join: _Join, replicas: list[dict[str, Any]], notes: list[str]
) -> bool:
    """Whether reads use all replicas; adds the reasons of the others to the notes."""
    if not replicas:
        return True
    found = _catalogue.conditions_of(source, join_of(source, **join))
    notes.extend(
        f"replica {one['id']} of {one['array']}: {one['reason']}"
        for one in found
        if one["state"] not in ("current", "outdated")
    )
    if found:
        return all(one["state"] == "current" for one in found)
    return isinstance(source, str) and _catalogue.replicas_of(source)[1]


class _Steps:
    """Counter of the finished steps of a report."""

    def __init__(self, tell: Callable[[int, int], object] | None, total: int) -> None:
        self.tell, self.total, self.count = tell, total, 0

    def done(self) -> None:
        self.count += 1
        if self.tell is not None:
            self.tell(self.count, self.total)


def _source_facts(source: str | list[str], join: _Join, notes: list[str]) -> dict[str, Any]:
    """Returns format, sizes and arrays of the source, without attributes."""
    where = source if isinstance(source, str) else ""
    # Opened without replicas, to see the source's own layout, and without readahead.
    with open_place(source, **join, prefetch=False, replicas=False) as store:
        info = store.info()
        listed = dict(sorted(info["arrays"].items()))
        if len(listed) > _ARRAYS_MAX:
            notes.append(f"{len(listed) - _ARRAYS_MAX} arrays are left out")
            listed = dict(list(listed.items())[:_ARRAYS_MAX])
        is_file = not str(info["format"]).startswith("zarr")
        is_here = is_file and not is_url(where) and Path(where).is_file()
        arrays = [_array_facts(name, entry) for name, entry in listed.items()]
        for array in arrays:
            if is_here:
                array["stored_bytes"] = _size_in_file(store, array)
            elif where:
                array["stored_bytes"] = _bytes_under(f"{where}/{array['array']}")
            else:
                array["stored_bytes"] = None
    if isinstance(source, list):
        stored: int | None = sum(Path(path).stat().st_size for path in source)
    else:
        stored = Path(where).stat().st_size if is_here else _bytes_under(where)
    return {
        "format": str(info["format"]),
        "is_file": is_file,
        "stored_bytes": stored,
        "bytes": sum(array["bytes"] or 0 for array in arrays),
        "arrays": arrays,
    }


def _array_facts(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    shape = list(entry.get("shape") or ())
    dims = list(entry.get("dims") or ())
    if len(dims) != len(shape):
        dims = [None] * len(shape)
    codecs = [str(codec.get("name")) for codec in entry.get("codecs") or ()]
    return {
        "array": name,
        "dims": [f"dim_{axis}" if dim is None else str(dim) for axis, dim in enumerate(dims)],
        "shape": shape,
        "dtype": str(entry.get("dtype")),
        "bytes": entry.get("bytes") if isinstance(entry.get("bytes"), int) else None,
        "storage": entry.get("storage"),
        "chunks": entry.get("chunks"),
        "shards": entry.get("shards"),
        "order": entry.get("order"),
        "codecs": [codec for codec in codecs if codec != "bytes"],
    }


def _size_in_file(store: Any, array: dict[str, Any]) -> int | None:
    """Returns the bytes that a complete read of a variable fetches, including small gaps."""
    lengths = zip(array["shape"], array["chunks"] or (), strict=False)
    if math.prod(-(-length // max(chunk, 1)) for length, chunk in lengths) > _CHUNKS_MAX:
        return None
    try:
        stored = store[array["array"]].explain(...).to_dict().get("bytes")
    except (BedformError, AttributeError):
        # Only the library of the format reads this variable.
        return None
    return stored if isinstance(stored, int) else None


def _bytes_under(where: str) -> int | None:
    """Returns the bytes of all files below a directory; None for URLs and too many files."""
    if is_url(where):
        return None
    total, left, waiting = 0, _FILES_MAX, [where]
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        total += entry.stat(follow_symlinks=False).st_size
            if left < 0:
                return None
    except OSError:
        return None
    return total


def _learnt(
    source: str | list[str], notes: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the knowledge of each array's reads, and of queries, the longest first."""
    try:
        learned = learn(source)
        knowledge: Any = learned["knowledge"]
        if learned["left_out"]:
            notes.append(f"{learned['left_out']} traces are damaged, or somebody else's")
        if learned["ignored"]:
            notes.append(f"{learned['ignored']} reads are of another store that lay here before")
    except NotFoundError:
        return [], []
    except BedformError as error:
        # Learning failed: show the earlier knowledge.
        knowledge = _sidecar.newest_of(source, "knowledge", _KNOWLEDGE_BYTES_MAX)
        notes.append(f"what was recorded since the last time could not be learnt: {error}")
    arrays = knowledge.get("arrays") if isinstance(knowledge, dict) else None
    found = [read_array(*item) for item in (arrays if isinstance(arrays, dict) else {}).items()]
    known = [array for array in found if array is not None and array["reads"]]
    if unfit := found.count(None):
        notes.append(f"what was learnt of {unfit} arrays does not fit them")
    known.sort(key=lambda array: (-array["seconds"], array["array"]))
    return known, queries_of(arrays)


def _totals(known: list[dict[str, Any]]) -> dict[str, Any]:
    last = max((kind["last_ns"] for array in known for kind in array["kinds"]), default=0)
    totals = {key: sum(array[key] for array in known) for key in ("reads", "bytes", "seconds")}
    return {**totals, "arrays": len(known), "last": last // 1_000_000_000 or None}


def _planned(
    source: str | list[str],
    join: _Join,
    budget: str | int | None,
    known: list[dict[str, Any]],
    notes: list[str],
) -> dict[str, Any] | None:
    """Returns the plan of `optimize` for the budget, or None if it cannot make one."""
    try:
        plan = optimize(source, budget, **join, dry_run=True).plan
    except InvalidArgumentError:
        raise
    except BedformError as error:
        # Without recorded reads the page already names the next step.
        if known or not isinstance(error, NotFoundError):
            notes.append(f"no replicas are planned: {error.reason}")
        return None
    notes += plan["notes"]
    # The plan's source is the given path, with its query.
    kept = {key: value for key, value in plan.items() if key != "source"}
    said = _default_budget(plan) if budget is None else str(budget)
    return {"budget": said, **kept, **_seconds_of(plan)}


def _default_budget(plan: dict[str, Any]) -> str:
    """Returns the default budget of a plan: existing replicas may take more than the share."""
    most: int = plan["budget_bytes"]
    is_share = most <= _BUDGET_SHARE * plan["source_bytes"]
    return _BUDGET if is_share else f"{-(-most // 1024)} KiB"


def _seconds_of(plan: dict[str, Any]) -> dict[str, float]:
    """Returns the predicted seconds of all reads and queries together."""
    uses = [(read["reads"], read) for read in plan["reads"]]
    uses += [(query["queries"], query) for query in plan["queries"]]
    return {
        key: sum(count * use[key] for count, use in uses)
        for key in ("seconds_of_source", "seconds_now", "seconds_then")
    }


def _budgets(
    source: str | list[str], join: _Join, plan: dict[str, Any] | None, steps: _Steps
) -> list[dict[str, Any]]:
    """Returns the predicted effect of each budget of `BUDGETS`."""
    found = []
    for percent in BUDGETS if plan is not None and (plan["reads"] or plan["queries"]) else ():
        try:
            other = optimize(source, f"{percent}%", **join, dry_run=True).plan
        except BedformError:
            # Another process is changing the file or its replicas.
            continue
        found.append(
            {
                "percent": percent,
                "budget_bytes": other["budget_bytes"],
                "bytes": other["bytes"],
                "replicas": len(other["make"]) + len(other["keep"]),
                "indexes": len(other["indexes"]["make"]) + len(other["indexes"]["keep"]),
                **_seconds_of(other),
            }
        )
        steps.done()
    return found


def _join_predictions(facts: dict[str, Any]) -> None:
    """Adds the plan's predictions and the names of axes to each kind of read."""
    dims = {array["array"]: array["dims"] for array in facts["arrays"]}
    plan = facts["plan"]
    # Plans ignore steps: kinds that differ only in steps are matched by their number of reads.
    predicted = {
        (read["array"], *map(tuple, (read["shape"], read["start"], read["end"])), read["reads"]): {
            key: read[key] for key in ("seconds_of_source", "seconds_now", "seconds_then")
        }
        for read in (plan["reads"] if plan is not None else ())
    }
    seconds = {
        (query["condition"], query["is_stored"]): {
            key: query[key] for key in ("seconds_of_source", "seconds_now", "seconds_then")
        }
        for query in (plan["queries"] if plan is not None else ())
    }
    for query in facts["queries"]:
        query["predicted"] = seconds.get((query["condition"], query["is_stored"]))
    for array in facts["reads"]:
        own = dims.get(array["array"], ())
        fits = len(own) == len(array["shape"])
        array["dims"] = list(own) if fits else [f"dim_{a}" for a in range(len(array["shape"]))]
        for kind in array["kinds"]:
            place = (tuple(kind[key]) for key in ("counts", "start", "end"))
            kind["predicted"] = predicted.get((array["array"], *place, float(kind["reads"])))


def _note_changes(facts: dict[str, Any], notes: list[str]) -> None:
    shapes = {array["array"]: array["shape"] for array in facts["arrays"]}
    for array in facts["reads"]:
        name = array["array"] or "/"
        if array["array"] not in shapes:
            notes.append(f"{name}: was read, and is there no more")
        elif shapes[array["array"]] != array["shape"]:
            said = f"{name}: its shape has changed since its reads were learnt"
            if said not in notes:
                notes.append(said)
    if not facts["replicas_are_current"]:
        notes.append("the file has changed since its replicas were made: none of them is used")


def _next_step(facts: dict[str, Any], commands: _Commands) -> dict[str, str | None]:
    """Returns the advised next step: one or two sentences, and a command."""
    if not facts["recorded"]["reads"] and not facts["queries"]:
        if facts["recording"]:
            text = (
                "Reads are recorded, and there are none yet. Run your programs, which have to open "
                "it by Bedform; they write what they read every ten seconds and at their end. Then "
                "make the report again."
            )
            return {"text": text, "command": commands.joined("report")}
        text = "Nothing is recorded yet. Have reads recorded, run your programs, and report again."
        return {"text": text, "command": commands.plain("watch")}
    if facts["plan"] is None:
        return _next_without_plan(facts, commands)
    best = _recommended(facts["budgets"], facts["plan"]["budget_bytes"])
    if best is not None:
        budget = f"{best['percent']}%"
        what = "replicas and indexes" if best["indexes"] else "replicas"
        uses = "reads and queries" if facts["queries"] else "reads"
        text = (
            f"Make {what}: with a budget of {budget} the recorded {uses} are predicted to be "
            f"{_faster(best)} times as fast as now. All {what} together would take "
            f"{format_bytes(best['bytes'])}."
        )
        most = min(facts["budgets"], key=lambda one: one["seconds_then"])
        if most["seconds_then"] * _WORTH_MORE < best["seconds_then"]:
            text += (
                f" A budget of {most['percent']}% would make them {_faster(most)} times as fast."
            )
        return {"text": text, "command": commands.joined("optimize", budget=budget)}
    if facts["replicas"] and facts["replicas_are_current"]:
        text = (
            "Nothing to do: the replicas that are there serve the recorded reads, and no budget "
            "makes them much faster. When your reads change, make the report again."
        )
        return {"text": text, "command": commands.joined("report")}
    text = (
        "Nothing to do: no replica makes the recorded reads much faster. The file's own layout "
        "fits them, or they are too few."
    )
    return {"text": text, "command": None}


class _Commands:
    """Commands on the source of a report, as a user can paste them.

    They are those of the command line, which takes a path or a pattern; for a list of files, they
    are calls of Python.
    """

    def __init__(self, given: Any, where: str, join: _Join) -> None:
        self.is_list = isinstance(given, (list, tuple))
        self.path = shell_path(where)
        defaults = {"concat_dim": None, "compat": "equals"}
        self.join = {name: value for name, value in join.items() if value != defaults[name]}

    def plain(self, name: str) -> str:
        """Returns a command that does not join the files."""
        return f"bf.{name}(paths)" if self.is_list else f"bedform {name} {self.path}"

    def joined(self, name: str, **options: str) -> str:
        """Returns a command that joins the files as the report did."""
        given = {**self.join, **options}
        if self.is_list:
            words = "".join(f", {option}={value!r}" for option, value in given.items())
            return f"bf.{name}(paths{words})"
        flags = (f" --{key.replace('_', '-')} {shell_path(given[key])}" for key in given)
        return f"{self.plain(name)}{''.join(flags)}"


def _next_without_plan(facts: dict[str, Any], commands: _Commands) -> dict[str, str | None]:
    """Returns the next step for a store, which has no replicas: a layout that fits."""
    hottest = next((array for array in facts["reads"] if array["kinds"]), None)
    options = "" if hottest is None else _reads_options(hottest)
    if facts["is_file"] or not options:
        text = "Learn what was recorded, and see which patterns the reads have."
        return {"text": text, "command": commands.plain("learn")}
    name = shell_path(hottest["array"]) if hottest is not None and hottest["array"] else ""
    text = (
        "See which layout fits the reads that took most time. bedform convert makes a store in "
        "that layout, with the same --reads."
    )
    command = f"{commands.joined('advise')} {name} {options}"
    return {"text": text, "command": " ".join(command.split())}


def _reads_options(array: dict[str, Any]) -> str:
    """Returns the kinds of reads of an array as ``--reads`` options: the axes that they span."""
    weights: dict[str, int] = {}
    for kind in array["kinds"]:
        axes = zip(array["dims"], kind["counts"], array["shape"], strict=True)
        spanned = [dim for dim, count, length in axes if count > 1 and 2 * count > length]
        if spanned and not any(set(dim) & set(",=") for dim in spanned):
            key = ",".join(spanned)
            weights[key] = weights.get(key, 0) + kind["reads"]
    return " ".join(f"--reads {shell_path(f'{key}={weight}')}" for key, weight in weights.items())


def _recommended(budgets: list[dict[str, Any]], most_bytes: int) -> dict[str, Any] | None:
    """Returns the smallest budget, up to ``most_bytes`` if possible, that saves nearly the most."""
    for most in (most_bytes, math.inf):
        fitting = [one for one in budgets if one["budget_bytes"] <= most]
        saved = [one["seconds_now"] - one["seconds_then"] for one in fitting]
        best = max(saved, default=0.0)
        for one, seconds in zip(fitting, saved, strict=True):
            is_worth_it = one["seconds_now"] >= _WORTH_IT * one["seconds_then"]
            if best > 0 and seconds >= _ENOUGH * best and is_worth_it:
                return one
    return None


def _faster(budget: dict[str, Any]) -> str:
    ratio = budget["seconds_now"] / max(budget["seconds_then"], 1e-12)
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
