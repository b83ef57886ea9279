"""What a store or file is, how it was read, and what replicas do for it: the facts of a report.

`report` makes the page of them, ``bedform report`` writes it. No elements are read.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedform import _catalogue, _sidecar
from bedform._errors import BedformError, InvalidArgumentError, NotFoundError
from bedform._location import location
from bedform._opening import open_place
from bedform._optimize import optimize
from bedform._remote import is_url, without_query
from bedform._report_reads import read_array
from bedform._text import format_bytes
from bedform._traces import learn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["gather_facts", "report"]

#: Budgets that the curve shows, in percent of the source.
BUDGETS: Final = (1, 5, 10, 20, 50, 100, 200)
#: The share of the largest saving that a recommended budget has to reach.
_ENOUGH: Final = 0.9
#: How many times as fast reads must become for replicas to be recommended.
_WORTH_IT: Final = 1.1
#: And how many times as fast with the largest budget for that one to be named, too.
_WORTH_MORE: Final = 1.5
_KNOWLEDGE_BYTES_MAX: Final = 16 << 20
#: Chunks of a variable, and files of a store, up to which stored bytes are added up.
_CHUNKS_MAX: Final = 200_000
_FILES_MAX: Final = 200_000
_ARRAYS_MAX: Final = 10_000


def report(path: str | os.PathLike[str], budget: str | int = "20%") -> str:
    """A page about a store or file: where it is read, how fast, and what replicas do for it.

    The page is one HTML document without scripts, which needs nothing from elsewhere. It shows
    where the recorded reads fall (:func:`watch`), their measured and predicted times, layouts and
    replicas, and what more replicas would bring (:func:`optimize`). What was recorded is learnt
    first (:func:`learn`); no elements are read, and no replicas made.

    Parameters
    ----------
    path
        A store, or a NetCDF or HDF5 file; or a URL.
    budget
        The budget of the replicas that the page plans: a share of the file, or a size.

    Returns
    -------
    str
        The page.

    Raises
    ------
    NotFoundError
        There is nothing at the path.
    InvalidArgumentError
        The budget is none.

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

    return page_of(gather_facts(path, budget))


def gather_facts(
    path: str | os.PathLike[str],
    budget: str | int = "20%",
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """All that the page shows, as values that JSON has.

    Parameters
    ----------
    path, budget
        As of `report`.
    progress
        Called with how many steps of how many are done.
    """
    where = location(path)
    steps = _Steps(progress, 3 + len(BUDGETS))
    notes: list[str] = []
    # The query of a URL may be a secret, and pages are passed on.
    facts: dict[str, Any] = {"path": without_query(where), "made": int(time.time())}
    facts.update(_source_facts(where, notes))
    steps.done()
    known = _learnt(where, notes)
    facts["recording"] = _is_watched(where)
    facts["recorded"] = _totals(known)
    facts["reads"] = known
    steps.done()
    replicas, is_current = _catalogue.replicas_of(where)
    facts["replicas"] = [{"label": f"R{at}", **one} for at, one in enumerate(replicas, start=1)]
    # Where no replicas can be made nothing has to be said of that one by one.
    about_plan = notes if facts["is_file"] else []
    facts["plan"] = _planned(where, budget, known, about_plan)
    if is_url(where) and facts["plan"] is not None:
        facts["stored_bytes"] = facts["plan"]["source_bytes"]
    facts["replicas_are_current"] = not replicas or _are_current(where, notes, is_current)
    steps.done()
    facts["budgets"] = _budgets(where, facts["plan"], steps)
    _join_predictions(facts)
    _note_changes(facts, notes)
    facts["next"] = _next_step(facts)
    facts["notes"] = notes
    return facts


def _are_current(where: str, notes: list[str], is_current: bool) -> bool:
    """Whether all replicas are read; adds why some are not to the notes."""
    found = _catalogue.conditions_of(where)
    notes.extend(
        f"replica {one['id']} of {one['array']}: {one['reason']}"
        for one in found
        if one["state"] not in ("current", "outdated")
    )
    return all(one["state"] == "current" for one in found) if found else is_current


class _Steps:
    """Counts what is done of a report."""

    def __init__(self, tell: Callable[[int, int], object] | None, total: int) -> None:
        self.tell, self.total, self.count = tell, total, 0

    def done(self) -> None:
        self.count += 1
        if self.tell is not None:
            self.tell(self.count, self.total)


def _source_facts(where: str, notes: list[str]) -> dict[str, Any]:
    """What it is, without its attributes."""
    # As it is itself, and without a trace of being looked at.
    with open_place(where, prefetch=False, replicas=False) as store:
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
            else:
                array["stored_bytes"] = _bytes_under(f"{where}/{array['array']}")
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
    """Bytes that a variable takes in its file: what a read of all of it fetches, small gaps too."""
    lengths = zip(array["shape"], array["chunks"] or (), strict=False)
    if math.prod(-(-length // max(chunk, 1)) for length, chunk in lengths) > _CHUNKS_MAX:
        return None
    try:
        stored = store[array["array"]].explain(...).to_dict().get("bytes")
    except (BedformError, AttributeError):
        # One that only the library of its format reads.
        return None
    return stored if isinstance(stored, int) else None


def _bytes_under(where: str) -> int | None:
    """Bytes of the files below a directory; nothing where they are too many, or not here."""
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


def _is_watched(where: str) -> bool:
    directory = _sidecar.directory_of(where)
    return directory is not None and (directory / "watch").is_file()


def _learnt(where: str, notes: list[str]) -> list[dict[str, Any]]:
    """What is known of the reads of each array, those that took most time first."""
    try:
        learned = learn(where)
        knowledge: Any = learned["knowledge"]
        if learned["left_out"]:
            notes.append(f"{learned['left_out']} traces are damaged, or somebody else's")
        if learned["ignored"]:
            notes.append(f"{learned['ignored']} reads are of another store that lay here before")
    except NotFoundError:
        return []
    except BedformError as error:
        # What was learnt before can be shown where nothing can be added.
        knowledge = _sidecar.newest_of(
            _sidecar.directory_of(where), "knowledge", _KNOWLEDGE_BYTES_MAX
        )
        notes.append(f"what was recorded since the last time could not be learnt: {error}")
    arrays = knowledge.get("arrays") if isinstance(knowledge, dict) else None
    found = [read_array(*item) for item in (arrays if isinstance(arrays, dict) else {}).items()]
    known = [array for array in found if array is not None and array["reads"]]
    if len(known) < len(found):
        notes.append(f"what was learnt of {len(found) - len(known)} arrays does not fit them")
    return sorted(known, key=lambda array: (-array["seconds"], array["array"]))


def _totals(known: list[dict[str, Any]]) -> dict[str, Any]:
    last = max((kind["last_ns"] for array in known for kind in array["kinds"]), default=0)
    totals = {key: sum(array[key] for array in known) for key in ("reads", "bytes", "seconds")}
    return {**totals, "arrays": len(known), "last": last // 1_000_000_000 or None}


def _planned(
    where: str, budget: str | int, known: list[dict[str, Any]], notes: list[str]
) -> dict[str, Any] | None:
    """What `optimize` would choose for the budget; nothing where it cannot."""
    try:
        plan = optimize(where, budget, dry_run=True).plan
    except InvalidArgumentError:
        raise
    except BedformError as error:
        # Without reads the page says already what to do.
        if known or not isinstance(error, NotFoundError):
            notes.append(f"no replicas are planned: {error.reason}")
        return None
    notes += plan["notes"]
    # The source is the path as it was given, with its query.
    kept = {key: value for key, value in plan.items() if key != "source"}
    return {"budget": str(budget), **kept, **_seconds_of(plan)}


def _seconds_of(plan: dict[str, Any]) -> dict[str, float]:
    """Predicted seconds of all reads together."""
    return {
        key: sum(read["reads"] * read[key] for read in plan["reads"])
        for key in ("seconds_of_source", "seconds_now", "seconds_then")
    }


def _budgets(where: str, plan: dict[str, Any] | None, steps: _Steps) -> list[dict[str, Any]]:
    """What other budgets would bring."""
    found = []
    for percent in BUDGETS if plan is not None and plan["reads"] else ():
        try:
            other = optimize(where, f"{percent}%", dry_run=True).plan
        except BedformError:
            # Somebody changes the file or its replicas meanwhile.
            continue
        found.append(
            {
                "percent": percent,
                "budget_bytes": other["budget_bytes"],
                "bytes": other["bytes"],
                "replicas": len(other["make"]) + len(other["keep"]),
                **_seconds_of(other),
            }
        )
        steps.done()
    return found


def _join_predictions(facts: dict[str, Any]) -> None:
    """Each kind of read gets what the plan predicts of it, and the names of its axes."""
    dims = {array["array"]: array["dims"] for array in facts["arrays"]}
    plan = facts["plan"]
    # A plan knows no steps: kinds that differ in these alone are told apart by how many they are.
    predicted = {
        (read["array"], *map(tuple, (read["shape"], read["start"], read["end"])), read["reads"]): {
            key: read[key] for key in ("seconds_of_source", "seconds_now", "seconds_then")
        }
        for read in (plan["reads"] if plan is not None else ())
    }
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


def _next_step(facts: dict[str, Any]) -> dict[str, str | None]:
    """What to do next, in a sentence or two, and the command."""
    path = _quoted(facts["path"])
    if not facts["recorded"]["reads"]:
        if facts["recording"]:
            text = (
                "Reads are recorded, and there are none yet. Run your programs, which have to open "
                "it by Bedform; they write what they read every ten seconds and at their end. Then "
                "make the report again."
            )
            return {"text": text, "command": f"bedform report {path}"}
        text = "Nothing is recorded yet. Have reads recorded, run your programs, and report again."
        return {"text": text, "command": f"bedform watch {path}"}
    if facts["plan"] is None:
        return _next_without_plan(facts, path)
    best = _recommended(facts["budgets"], facts["plan"]["budget_bytes"])
    if best is not None:
        budget = f"{best['percent']}%"
        text = (
            f"Make replicas: with a budget of {budget} the recorded reads are predicted to be "
            f"{_faster(best)} times as fast as now. All replicas together would take "
            f"{format_bytes(best['bytes'])}."
        )
        most = min(facts["budgets"], key=lambda one: one["seconds_then"])
        if most["seconds_then"] * _WORTH_MORE < best["seconds_then"]:
            text += (
                f" A budget of {most['percent']}% would make them {_faster(most)} times as fast."
            )
        return {"text": text, "command": f"bedform optimize {path} --budget {budget}"}
    if facts["replicas"] and facts["replicas_are_current"]:
        text = (
            "Nothing to do: the replicas that are there serve the recorded reads, and no budget "
            "makes them much faster. When your reads change, make the report again."
        )
        return {"text": text, "command": f"bedform report {path}"}
    text = (
        "Nothing to do: no replica makes the recorded reads much faster. The file's own layout "
        "fits them, or they are too few."
    )
    return {"text": text, "command": None}


def _next_without_plan(facts: dict[str, Any], path: str) -> dict[str, str | None]:
    """For a store, which has no replicas: a layout that fits."""
    hottest = next((array for array in facts["reads"] if array["kinds"]), None)
    options = "" if hottest is None else _reads_options(hottest)
    if facts["is_file"] or not options:
        text = "Learn what was recorded, and see which patterns the reads have."
        return {"text": text, "command": f"bedform learn {path}"}
    name = _quoted(hottest["array"]) if hottest is not None and hottest["array"] else ""
    text = (
        "See which layout fits the reads that took most time. bedform convert makes a store in "
        "that layout, with the same --reads."
    )
    return {"text": text, "command": " ".join(f"bedform advise {path} {name} {options}".split())}


def _reads_options(array: dict[str, Any]) -> str:
    """The kinds of reads of an array as ``--reads`` takes them: the axes that they span."""
    weights: dict[str, int] = {}
    for kind in array["kinds"]:
        axes = zip(array["dims"], kind["counts"], array["shape"], strict=True)
        spanned = [dim for dim, count, length in axes if count > 1 and 2 * count > length]
        if spanned and not any(set(dim) & set(",=") for dim in spanned):
            key = ",".join(spanned)
            weights[key] = weights.get(key, 0) + kind["reads"]
    return " ".join(f"--reads {_quoted(f'{key}={weight}')}" for key, weight in weights.items())


def _recommended(budgets: list[dict[str, Any]], most_bytes: int) -> dict[str, Any] | None:
    """The smallest budget that saves nearly what any up to ``most_bytes`` does; if none, any."""
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


def _quoted(text: str) -> str:
    """As a shell takes it; a name that begins like an option is one in this directory."""
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
