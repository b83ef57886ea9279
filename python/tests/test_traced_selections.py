"""Lists and points that were read: recorded, learnt, and served by replicas without being named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import PATIENCE
from typer.testing import CliRunner

import bedform as bf
from bedform.cli import app

COUNT = 2_000_000
SHAPE = (400, 30, 20)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)


def particles(path: Path, seed: int = 0, count: int = COUNT) -> dict[str, Any]:
    """A file of particles, and of a cube in maps."""
    random = np.random.default_rng(seed)
    values = {
        "energy": random.exponential(size=count).astype("f4"),
        "x": random.random(count),
        "cube": random.integers(0, 1000, SHAPE).astype("f4"),
    }
    with h5py.File(path, "w") as target:
        target["energy"], target["x"] = values["energy"], values["x"]
        target.create_dataset("cube", data=values["cube"], chunks=(1, 30, 20), compression="gzip")
    return values


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "particles.h5"
    particles(path)
    return path


def run(script: str, path: Path, **environment: str) -> str:
    code = "import bedform as bf, h5py, json, numpy as np\n"
    code += f"path = {str(path)!r}\n" + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ANALYSIS = """
with h5py.File(path) as source:
    energy, x, cube = source["energy"][:], source["x"][:], source["cube"][:]
rows = np.r_[3:9, 40:47, 100:103, 333, 380:399]
hot = energy > 6
with bf.open(path) as store:
    for _ in range(3):
        assert (store["x"].vindex[hot] == x[hot]).all()
        assert (store["energy"].oindex[np.flatnonzero(hot)] == energy[hot]).all()
        assert (store["cube"].oindex[rows] == cube[rows]).all()
        assert (store["cube"].vindex[cube > 998] == cube[cube > 998]).all()
    served = {one["array"]: one["reads"] for one in store.stats()["replicas"] if one["reads"]}
    print(json.dumps(served))
"""


def learned(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = bf.learn(path)["knowledge"]["arrays"]
    return arrays


def kept(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.bedform/learned-selections").glob("*"))


def recorded(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.bedform/recorded-selections").glob("*"))


def test_masks_and_rows_that_a_script_reads_come_from_replicas_the_next_time(file: Path) -> None:
    bf.watch(file)
    assert run(ANALYSIS, file).strip() == "{}"
    known = learned(file)
    assert [one["reads"] for one in known["x"]["selections"]] == [3]
    assert [one["reads"] for one in known["cube"]["selections"]] == [3, 3]
    assert all(one["is_kept"] for array in known.values() for one in array["selections"])
    plan = bf.optimize(file, "60%", dry_run=True).plan
    assert not plan["notes"]
    made = bf.optimize(file, "60%").made
    assert {replica["array"] for replica in made} == {"x", "energy", "cube"}
    served = json.loads(run(ANALYSIS, file))
    assert served["x"] == 3
    assert served["energy"] == 3
    assert served["cube"] >= 3
    uses = bf.learn(file)["knowledge"]["replicas"]
    ids = {replica["id"]: replica for replica in made}
    assert sum(uses[one]["reads"] for one in ids if ids[one]["array"] == "x") == 3
    assert all(use["seconds"] > 0 and use["last_ns"] > 0 for use in uses.values())


def test_a_list_is_recorded_once_whichever_arrays_and_processes_read_it(file: Path) -> None:
    bf.watch(file)
    script = """
    with bf.open(path) as store:
        hot = np.arange(0, 2_000_000, 1001)
        for _ in range(20):
            store["x"].oindex[hot], store["energy"].oindex[hot]
    """
    run(script, file)
    (first,) = recorded(file)
    assert first.stat().st_size < 100
    bf.learn(file)
    assert len(kept(file)) == 1
    run(script, file)
    assert recorded(file) == [first], "what is kept is not recorded again"
    known = learned(file)
    assert [one["reads"] for one in known["x"]["selections"]] == [40]
    assert [one["reads"] for one in known["energy"]["selections"]] == [40]


def test_lists_in_another_order_and_nearly_the_same_count_as_one(file: Path) -> None:
    bf.watch(file)
    random = np.random.default_rng(5)
    hot = np.sort(random.choice(COUNT, 3000, replace=False))
    other = np.sort(random.choice(COUNT, 3000, replace=False))
    with bf.open(file) as store:
        for some in (hot, hot[::-1], random.permutation(hot), hot[50:], other):
            store["x"].oindex[some]
        store["x"].vindex[hot]
    known = learned(file)["x"]["selections"]
    assert sorted(one["reads"] for one in known) == [1, 5]
    assert len(kept(file)) == 2
    with bf.open(file) as store:
        store["x"].oindex[hot[50:]]
    assert sorted(one["reads"] for one in learned(file)["x"]["selections"]) == [1, 6]


def test_what_a_replica_has_of_another_list_is_read_of_it(file: Path) -> None:
    """A moving threshold: the list above it is a part of the kept list."""
    with h5py.File(file) as source:
        energy = source["energy"][:]
    hot, hotter = np.flatnonzero(energy > 7), np.flatnonzero(energy > 7.3)
    bf.watch(file)
    with bf.open(file) as store:
        store["energy"].oindex[hot]
    bf.learn(file)
    assert bf.optimize(file, "20%").made
    with bf.open(file) as store:
        for _ in range(3):
            np.testing.assert_array_equal(store["energy"].oindex[hotter], energy[hotter])
        assert store.stats()["replicas"][0]["reads"] == 3
    bf.learn(file)
    again = bf.optimize(file, "20%")
    assert (again.plan["make"], len(again.plan["keep"])) == ([], 1)


def test_a_list_of_other_elements_in_the_same_stretch_gets_a_replica_of_its_own(file: Path) -> None:
    random = np.random.default_rng(6)
    one, other = (np.sort(random.choice(COUNT, size, replace=False)) for size in (3000, 2000))
    bf.watch(file)
    with bf.open(file) as store:
        store["x"].oindex[one]
    bf.learn(file)
    assert len(bf.optimize(file, "20%").made) == 1
    with bf.open(file) as store:
        for _ in range(5):
            store["x"].oindex[other]
    bf.learn(file)
    assert bf.optimize(file, "20%").made
    with bf.open(file) as store, h5py.File(file) as source:
        np.testing.assert_array_equal(store["x"].oindex[other], source["x"][:][other])
        assert [one["reads"] for one in store.stats()["replicas"] if one["reads"]] == [1]


def test_what_was_learnt_of_another_file_of_the_form_counts_and_what_cannot_is_said(
    file: Path, tmp_path: Path
) -> None:
    bf.watch(file)
    run(ANALYSIS, file)
    bf.learn(file)
    same, longer = tmp_path / "same.h5", tmp_path / "longer.h5"
    values = particles(same, seed=3)
    done = bf.optimize(same, "60%", like=file)
    assert {"x", "energy"} <= {replica["array"] for replica in done.made}
    with h5py.File(file) as source:
        hot = source["energy"][:] > 6
    with bf.open(same) as store:
        np.testing.assert_array_equal(store["x"].vindex[hot], values["x"][hot])
        assert any(one["reads"] for one in store.stats()["replicas"] if one["array"] == "x")
    particles(longer, seed=4, count=COUNT + 1)
    plan = bf.optimize(longer, "60%", like=file, dry_run=True).plan
    notes = [note for note in plan["notes"] if "positions do not mean the same" in note]
    assert [note.split(":")[0] for note in notes] == ["energy", "x"]
    assert {read["array"] for read in plan["reads"]} == {"cube"}


def test_rows_of_an_array_with_other_columns_are_the_same_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, columns in zip(paths, (3000, 4000), strict=True):
        with h5py.File(path, "w") as target:
            target["t"] = random.random((500, columns))
    rows = np.r_[0:5, 70:80, 300:303]
    bf.watch(paths[0])
    with bf.open(paths[0]) as store:
        store["t"].oindex[rows]
        store["t"].oindex[rows, 5:9]
    bf.learn(paths[0])
    plan = bf.optimize(paths[1], "60%", like=paths[0], dry_run=True).plan
    assert [read["shape"] for read in plan["reads"]] == [[18, 4000]]
    assert sum("1 reads of lists" in note for note in plan["notes"]) == 1


def test_the_command_says_which_lists_were_read_and_of_which_the_box_alone_is_known(
    file: Path,
) -> None:
    bf.watch(file)
    with bf.open(file) as store:
        store["x"].oindex[np.arange(10, 90, 7)]
    runner = CliRunner()
    shown = runner.invoke(app, ["learn", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "[10:88]" in shown.output
    assert "box alone" not in shown.output
    for path in kept(file):
        path.unlink()
    for path in recorded(file):
        path.unlink()
    with bf.open(file) as store:
        store["x"].oindex[np.arange(10, 90, 6)]
    bf._internal.keep_traces()
    for path in recorded(file):
        path.unlink()
    shown = runner.invoke(app, ["learn", str(file)])
    assert "2 reads of lists or points the box alone" in " ".join(shown.output.split())
    plan = bf.optimize(file, "60%", dry_run=True).plan
    assert any("--selections" in note for note in plan["notes"])


@pytest.mark.parametrize("harm", ["cut", "flip", "swap", "link", "huge", "empty", "directory"])
def test_harmed_selections_are_not_believed_and_nothing_fails(
    file: Path, tmp_path: Path, harm: str
) -> None:
    bf.watch(file)
    random = np.random.default_rng(9)
    lists = [np.sort(random.choice(COUNT, 2000, replace=False)) for _ in range(2)]
    with bf.open(file) as store:
        for some in lists:
            store["x"].oindex[some]
    bf.learn(file)
    one, other = kept(file)
    content = one.read_bytes()
    one.unlink()
    match harm:
        case "cut":
            one.write_bytes(content[:-9])
        case "flip":
            one.write_bytes(content[:40] + bytes([content[40] ^ 4]) + content[41:])
        case "swap":
            one.write_bytes(other.read_bytes())
        case "link":
            (tmp_path / "elsewhere").write_bytes(content)
            one.symlink_to(tmp_path / "elsewhere")
        case "huge":
            with one.open("wb") as target:
                target.truncate(1 << 40)
        case "empty":
            one.write_bytes(b"")
        case "directory":
            one.mkdir()
    plan = bf.optimize(file, "60%", dry_run=True).plan
    assert len(plan["reads"]) == 1
    with bf.open(file) as store, h5py.File(file) as source:
        np.testing.assert_array_equal(store["x"].oindex[lists[0]], source["x"][:][lists[0]])
    bf.learn(file)
    assert bf.optimize(file, "60%").made


def test_damaged_records_of_selections_end_what_is_believed_of_a_file(file: Path) -> None:
    bf.watch(file)
    with bf.open(file) as store:
        for step in (900, 901, 902):
            store["x"].oindex[np.arange(step, COUNT, step)]
    bf._internal.keep_traces()
    (path,) = recorded(file)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\xff" + content[len(content) // 2 + 1 :])
    known = learned(file)["x"]["selections"]
    assert len(known) == 3
    assert sum(one["is_kept"] for one in known) == 1


def test_names_in_knowledge_that_lead_elsewhere_are_no_selections(file: Path) -> None:
    bf.watch(file)
    with bf.open(file) as store:
        store["x"].oindex[np.arange(0, COUNT, 999)]
    bf.learn(file)
    (newest,) = sorted(Path(f"{file}.bedform/knowledge").glob("*"))[-1:]
    document = json.loads(newest.read_text())
    one = document["arrays"]["x"]["selections"][0]
    for hash_ in ("../knowledge/00000001", "", "0" * 16, "g" * 16, one["hash"] * 2):
        one["hash"] = hash_
        newest.write_text(json.dumps(document))
        assert bf.optimize(file, "60%", dry_run=True).plan["reads"] == []
    one["shape"] = [5]
    newest.write_text(json.dumps(document))
    bf.optimize(file, "60%", dry_run=True)


def test_lists_that_dask_reads_block_by_block_are_recorded(file: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    bf.watch(file)
    rows = np.r_[3:9, 40:47, 100:103]
    with xr.open_dataset(file, engine="bedform", chunks=None) as data_set:
        dims = data_set["cube"].dims
        found = data_set["cube"].isel({dims[0]: rows}).to_numpy()
    with h5py.File(file) as source:
        np.testing.assert_array_equal(found, source["cube"][:][rows])
    assert [one["reads"] for one in learned(file)["cube"]["selections"]] == [1]


def test_at_a_full_budget_the_replica_goes_that_recorded_reads_did_not_use(file: Path) -> None:
    random = np.random.default_rng(10)
    one, other, third = (np.sort(random.choice(COUNT, 20_000, replace=False)) for _ in range(3))
    made = [bf.optimize(file, "20%", selections={"x": [some]}).made[0] for some in (one, other)]
    bf.watch(file)
    with bf.open(file) as store, h5py.File(file) as source:
        np.testing.assert_array_equal(store["x"].oindex[one], source["x"][:][one])
    uses = bf.learn(file)["knowledge"]["replicas"]
    assert list(uses) == [made[0]["id"]]
    room = int(1.3 * (made[0]["stored_bytes"] + made[1]["stored_bytes"]))
    done = bf.optimize(file, room, selections={"x": [third]})
    assert done.made
    assert done.plan["keep"] == [made[0]["id"]]
    assert done.plan["drop"] == [made[1]["id"]]
