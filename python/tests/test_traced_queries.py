"""Recorded queries: the knowledge of them, and the indexes that `optimize` makes for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from typer.testing import CliRunner

import bedform as bf
from bedform import _internal, _report
from bedform.cli import app

SHAPE = (64, 96, 128)
#: A value that few maps of the field exceed.
RARE = 61.0


def field() -> Any:
    """Returns a field that grows from map to map, so that most of its blocks exclude a bound."""
    maps = np.arange(SHAPE[0], dtype="f8")[:, None, None]
    return maps + np.random.default_rng(0).random(SHAPE)


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A file with the field `t` and the mask `g/land`, whose reads and queries are recorded."""
    path = tmp_path / "field.nc"
    dims = ("time", "y", "x")
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(dims, SHAPE, strict=True):
            file.createDimension(name, length)
        stored = {"chunksizes": (1, *SHAPE[1:]), "fill_value": False}
        file.createVariable("t", "f8", dims, **stored)[:] = field()
        land = np.random.default_rng(1).random(SHAPE, dtype="f4")
        file.createGroup("g").createVariable("land", "f4", dims, **stored)[:] = land
    bf.watch(path)
    return path


def query(path: Path, text: str = f"t > {RARE}", times: int = 1, **how: Any) -> int:
    """Counts the matches of a condition several times."""
    with bf.open(path) as store:
        return sum(int(store.query(text, **how).count()) for _ in range(times))


def learnt(path: Path, array: str = "t") -> dict[str, Any]:
    found: dict[str, Any] = bf.learn(path)["knowledge"]["arrays"][array]["queries"]
    return found


def index_bytes(path: Path) -> int:
    with bf.open(path) as store:
        return sum(one["bytes"] for one in json.loads(_internal.index_conditions(store._inner)))


def indexed(path: Path) -> list[str]:
    with bf.open(path) as store:
        found: list[str] = store.query(f"t > {RARE}").explain().to_dict()["indexed"]
    return found


def test_a_query_is_learnt_with_its_condition_region_bytes_and_matches(watched: Path) -> None:
    matches = query(watched, region={"time": slice(32, 64)})
    known = learnt(watched)
    assert (known["queries"], len(known["conditions"])) == (1, 1)
    only = known["conditions"][0]
    assert (only["condition"], only["is_stored"]) == (f"t > {RARE}", False)
    assert (only["shape"], only["start"]) == ([32, 96, 128], [32, 0, 0])
    assert (only["matched"], only["blocks"], only["blocks_left_out"]) == (matches, 32, 0)
    assert only["bytes"] == known["bytes"] == field()[32:].nbytes
    assert only["results"] == {"count": 1}
    assert 0 < only["seconds"] < 1000


def test_equal_queries_are_one_entry_of_a_small_trace(watched: Path) -> None:
    query(watched, times=100)
    known = learnt(watched)
    assert (known["queries"], len(known["conditions"])) == (100, 1)
    traces = Path(f"{watched}.bedform/traces").iterdir()
    assert sum(trace.stat().st_size for trace in traces) < 400


def test_each_kind_of_result_is_recorded_and_batches_are_one_query(watched: Path) -> None:
    pytest.importorskip("pyarrow")
    with bf.open(watched) as store:
        asked = store.query(f"t > {RARE}")
        asked.count()
        asked.any()
        asked.points(limit=3)
        asked.values("t")
        asked.mask()
        asked.max("t")
        asked.histogram("t", bins=[60, 62, 64])
        assert len(list(asked.batches("t", memory="64 KiB"))) > 1
    known = learnt(watched)
    kinds = ["any", "batches", "count", "histogram", "mask", "points", "statistics", "values"]
    assert known["queries"] == len(kinds)
    assert known["conditions"][0]["results"] == dict.fromkeys(kinds, 1)


def test_a_condition_on_several_arrays_is_recorded_for_each_by_its_path(watched: Path) -> None:
    query(watched, f"t > {RARE} and `g/land` > 0.5", decode=False)
    text = f"t > {RARE} and `g/land` > 0.5"
    for array in ("t", "g/land"):
        known = learnt(watched, array)
        assert [one["condition"] for one in known["conditions"]] == [text]
        assert known["conditions"][0]["is_stored"]
    with bf.open(watched) as store:
        store["g"].query("land > 0.5").count()
    conditions = {one["condition"] for one in learnt(watched, "g/land")["conditions"]}
    assert conditions == {text, "`g/land` > 0.5"}


def test_a_condition_that_is_too_long_counts_without_its_text(watched: Path) -> None:
    query(watched, " or ".join(f"t > {at}" for at in range(200)))
    known = learnt(watched)
    assert [(one["condition"], one["queries"]) for one in known["conditions"]] == [("", 1)]
    with pytest.raises(bf.InvalidArgumentError):
        query(watched, "t >")
    assert learnt(watched)["queries"] == 1


def test_queries_of_a_store_are_recorded_where_it_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    bf.create(path).create_array("t", data=field(), chunks=(1, 96, 128), dims=("z", "y", "x"))
    query(path)
    bf.watch(path)
    query(path, times=50)
    assert learnt(path)["queries"] == 50
    # Each query makes a snapshot; all of them write to the trace of the store.
    traces = Path(f"{path}.bedform/traces").iterdir()
    assert sum(trace.stat().st_size for trace in traces) < 400


def test_optimize_makes_an_index_for_queries_which_they_use(watched: Path) -> None:
    matches = query(watched, times=5)
    bf.learn(watched)
    planned = bf.optimize(watched, dry_run=True)
    assert [one["array"] for one in planned.plan["indexes"]["make"]] == ["t"]
    assert indexed(watched) == []
    done = bf.optimize(watched)
    assert [one["array"] for one in done.indexed] == ["t"]
    (asked,) = done.plan["queries"]
    assert (asked["condition"], asked["queries"]) == (f"t > {RARE}", 5)
    assert asked["seconds_then"] < asked["seconds_now"] / 2
    assert asked["seconds_now"] == asked["seconds_of_source"]
    assert done.done is not None
    assert 0 < done.done["bytes"] == index_bytes(watched) <= done.plan["budget_bytes"]
    assert indexed(watched) == ["t"]
    assert query(watched) * 5 == matches
    assert "an index of t" in str(planned)
    assert "1 indexes to make" in repr(planned)

    again = bf.optimize(watched)
    assert (again.indexed, again.plan["indexes"]["keep"]) == ([], ["t"])
    assert again.plan["queries"][0]["seconds_now"] < again.plan["queries"][0]["seconds_of_source"]


def test_no_index_is_made_where_no_block_could_be_left_out(watched: Path) -> None:
    query(watched, "`g/land` > 0.5", times=5)
    bf.learn(watched)
    plan = bf.optimize(watched, dry_run=True).plan
    assert len(plan["queries"]) == 1
    assert all(one["has_bins"] for one in plan["indexes"]["make"])


def test_the_budget_holds_indexes_and_a_smaller_one_drops_them(watched: Path) -> None:
    query(watched, times=5)
    bf.learn(watched)
    none = bf.optimize(watched, "1 KiB")
    assert none.indexed == []
    assert "no replica or index fits the budget" in " ".join(none.plan["notes"])
    assert bf.optimize(watched).indexed
    dropped = bf.optimize(watched, "0")
    assert dropped.done is not None
    assert dropped.done["indexes"]["dropped"] == ["t"]
    assert (dropped.done["bytes"], indexed(watched)) == (0, [])


def test_an_index_that_a_user_built_is_left_alone(watched: Path) -> None:
    bf.index(watched, arrays=["t"])
    size = index_bytes(watched)
    query(watched, times=5)
    bf.learn(watched)
    done = bf.optimize(watched, "0")
    assert done.plan["indexes"] == {"make": [], "keep": [], "drop": []}
    assert (indexed(watched), index_bytes(watched)) == (["t"], size)


def test_a_user_takes_over_an_index_by_building_it(watched: Path) -> None:
    query(watched, times=5)
    bf.learn(watched)
    assert bf.optimize(watched).indexed
    assert bf.index(watched, arrays=["t"]).arrays[0]["blocks_read"] == 0
    done = bf.optimize(watched, "0")
    assert done.plan["indexes"] == {"make": [], "keep": [], "drop": []}
    assert indexed(watched) == ["t"]


def test_an_index_of_a_changed_file_is_made_anew_within_the_budget_or_dropped(
    watched: Path,
) -> None:
    query(watched, times=5)
    bf.learn(watched)
    assert bf.optimize(watched).indexed
    with h5py.File(watched, "r+") as file:
        file["t"][0, 0, 0] = 1000.0
    assert [one["array"] for one in bf.optimize(watched).indexed] == ["t"]
    with h5py.File(watched, "r+") as file:
        file["t"][0, 0, 1] = 1000.0
    done = bf.optimize(watched, "0")
    assert done.done is not None
    assert done.done["indexes"]["dropped"] == ["t"]
    assert index_bytes(watched) == 0


def test_expected_reads_plan_no_indexes(watched: Path) -> None:
    query(watched, times=5)
    bf.learn(watched)
    plan = bf.optimize(watched, reads={"time": 1}, dry_run=True).plan
    assert (plan["queries"], plan["indexes"]["make"]) == ([], [])


def test_the_report_lists_queries_and_what_an_index_saves(watched: Path) -> None:
    query(watched, times=5)
    facts = _report.gather_facts(watched)
    (only,) = facts["queries"]
    assert (only["condition"], only["queries"], only["arrays"]) == (f"t > {RARE}", 5, ["t"])
    assert only["bytes"] == 5 * field().nbytes
    assert only["predicted"]["seconds_then"] < only["predicted"]["seconds_now"]
    assert facts["next"]["text"].startswith("Make replicas and indexes")
    page = bf.report(watched)
    assert "Queries by value" in page
    assert f"t &gt; {RARE}" in page
    assert "would make an index of t" in page


def test_the_report_leaves_out_queries_whose_numbers_are_none() -> None:
    good = {"condition": "t > 3", "queries": 2, "bytes": 8, "matched": 1, "blocks": 4}
    good |= {"blocks_left_out": 1, "seconds": 0.5}
    bad = [{}, 7, {**good, "queries": -1}, {**good, "seconds": "x"}, {**good, "condition": 3}]
    arrays: Any = {"t": {"queries": {"conditions": [*bad, good]}}, "u": {"queries": 3}, "v": 4}
    found = _report.queries_of(arrays)
    assert [(one["condition"], one["arrays"]) for one in found] == [("t > 3", ["t"])]
    assert _report.queries_of({"a": arrays["t"], "b": arrays["t"]})[0]["bytes"] == 16
    assert _report.queries_of(None) == []


def test_the_command_line_shows_queries_learnt_and_planned(watched: Path) -> None:
    query(watched, times=5)
    learned = CliRunner().invoke(app, ["learn", str(watched)])
    assert learned.exit_code == 0
    assert f"t > {RARE}" in learned.output
    planned = CliRunner().invoke(app, ["optimize", str(watched), "--dry-run"])
    assert planned.exit_code == 0
    assert "to make: an index of t" in planned.output
    made = CliRunner().invoke(app, ["optimize", str(watched)])
    assert "indexes: 1 made, 0 kept, 0 dropped" in made.output


def test_a_policy_makes_indexes_after_enough_queries(watched: Path) -> None:
    bf.watch(watched, optimize_after=10**6)
    query(watched, times=5)
    outcome = json.loads(_internal.run_policy(str(watched)))
    assert outcome["error"] == ""
    assert outcome["made"] == ["index of t"]
    assert "1 indexes made" in outcome["verdict"]
