"""Simulated machines: descriptions that come with the package, workloads, the command."""

from __future__ import annotations

import json
import time
import tomllib
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bedform as bf
from bedform._simulate import MACHINES

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

ONE_DISK = {
    "name": "one disk",
    "targets": {"count": 1, "read_bytes_per_second": 100, "write_bytes_per_second": 50},
    "clients": {"link_bytes_per_second": 1e9},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "s.zarr"
    found = bf.create(where)
    layout = bf.Regular(chunks=(4, 8, 8), shards=(8, 16, 16))
    t = found.create_array("t", (16, 32, 32), "f4", dims=("z", "y", "x"), layout=layout)
    t[...] = np.arange(16 * 32 * 32).reshape(16, 32, 32)
    return where


def test_every_machine_of_ours_is_read_and_says_where_its_figures_are_from() -> None:
    assert set(bf.machines()) == {"cori", "edison", "laptop", "s3", "spider", "summit"}
    for path in sorted(MACHINES.glob("*.toml")):
        lines = path.read_text().splitlines()
        assert tomllib.loads("\n".join(lines))["name"] == path.stem
        assert bf.machine(path.stem) == bf.machine(path)


def test_the_figures_of_smart_io_give_its_chunk_size() -> None:
    spider = bf.machine("spider")
    asking = spider["clients"]["request_seconds"] + spider["targets"]["seek_seconds"]
    size = round(spider["targets"]["read_bytes_per_second"] * asking)
    assert size == 2_475_000
    # Requesting a chunk of that size takes as long as moving it.
    reads = [{"read": [0, at * size * 2, size]} for at in range(5)]
    files = [{"count": 1, "bytes": 1 << 30}]
    found = bf.simulate("spider", {"files": files, "clients": [{"operations": reads}]})
    assert found.seconds == pytest.approx(5 * 2 * asking)


def test_a_read_is_simulated_as_it_is_planned(path: Path) -> None:
    # Files that changed within the resolution of the file system's clock are not cached.
    time.sleep(0.05)
    t = bf.open(path)["t"]
    plan = t.explain(np.s_[:, 3, :]).to_dict()
    # The indexes are cached by now.
    work = t.workload(np.s_[:, 3, :], clients=3)
    found = bf.simulate("spider", work).to_dict()
    assert found["requests"] == plan["requests"] - plan["objects"]
    assert found["read_bytes"] == plan["bytes"] - plan["index_bytes"]
    fresh = bf.open(path, cache=0)["t"].workload(np.s_[:, 3, :])
    found = bf.simulate("spider", fresh).to_dict()
    assert (found["requests"], found["read_bytes"]) == (plan["requests"], plan["bytes"])
    assert len(work["files"]) == plan["objects"]
    nothing = t.workload(np.s_[:0], clients=2)
    assert bf.simulate("spider", nothing).seconds == 0


def test_committed_data_that_are_not_settled_are_read_from_segments(path: Path) -> None:
    with bf.open(path, mode="r+").session(settle="later") as session:
        session.write("t", np.zeros((16, 4, 32), "f4"), start=(0, 0, 0))
        session.commit()
    t = bf.open(path)["t"]
    plan = t.explain(np.s_[:, 3, :]).to_dict()
    found = bf.simulate("laptop", t.workload(np.s_[:, 3, :], clients=2)).to_dict()
    assert plan["log_bytes"] > 0
    assert found["read_bytes"] == plan["bytes"] - plan["index_bytes"]


def test_the_same_question_has_the_same_answer() -> None:
    pattern = {"shape": "strided", "clients": 40, "client_bytes": 1 << 22, "request_bytes": 4096}
    first, second = (bf.simulate("cori", pattern=pattern).to_dict() for _ in range(2))
    del first["calculation_seconds"], second["calculation_seconds"]
    assert first == second


@pytest.mark.parametrize(
    ("machine", "workload", "wanted"),
    [
        ("nowhere", {}, "no machine 'nowhere': choose one of cori, edison"),
        (ONE_DISK | {"speed": 3}, {}, "unknown field `speed`"),
        (ONE_DISK, {}, "missing field `files`"),
        (ONE_DISK, {"files": [], "clients": [{"operations": ["stop"]}]}, "unknown variant `stop`"),
        (ONE_DISK, {"files": [], "clients": [{"operations": [{"open": 0}]}]}, "there is no file 0"),
    ],
)
def test_what_cannot_be_simulated_is_an_error_of_one_line(
    machine: Any, workload: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(bf.BedformError) as error:
        bf.simulate(machine, workload)
    assert wanted in str(error.value)
    assert "\n" not in str(error.value)


def test_a_description_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(bf.NotFoundError, match=r"missing\.toml.*bedform\.machines\(\)"):
        bf.machine(tmp_path / "missing.toml")
    with pytest.raises(bf.InvalidArgumentError, match=r"Is a directory; name a \.toml file"):
        bf.machine(tmp_path)


def test_a_description_that_is_no_toml_or_out_of_range_is_named(tmp_path: Path) -> None:
    for text, wanted in [
        ("name = ", "is not TOML"),
        ("name = 3", "machine description"),
        ("[targets]\nwhen = 2026-01-01", "JSON"),
        ("\x00", "is not TOML"),
    ]:
        path = tmp_path / "my.toml"
        path.write_text(text)
        with pytest.raises(bf.BedformError, match=wanted) as error:
            bf.machine(path)
        assert "my.toml" in str(error.value)


def test_the_command_simulates_a_read_and_draws_the_load(
    path: Path, tmp_path: Path, bedform_command: Bedform
) -> None:
    picture = tmp_path / "load.svg"
    question = [str(path), "t", ":,3,:", "--machine", "spider", "--clients", "4"]
    shown = bedform_command("simulate", *question, "--svg", str(picture))
    assert shown.returncode == 0, shown.stderr
    assert "targets used" in shown.stdout
    root = ET.fromstring(picture.read_text())  # noqa: S314 - our own
    assert root.tag.endswith("svg")
    bars = [one for one in root.iter() if one.get("fill") == "#e09f3e"]
    found = json.loads(bedform_command("simulate", *question, "--json").stdout)
    # One of them belongs to the legend.
    assert len(bars) - 1 == sum(load["seeks"] > 0 for load in found["targets"])
    assert found["machine"] == "spider"


def test_the_command_simulates_patterns_and_workloads(
    tmp_path: Path, bedform_command: Bedform
) -> None:
    given = ["--pattern", "contiguous", "--clients", "3", "--size", "4MiB", "--write", "--json"]
    shown = bedform_command("simulate", *given, "--in-flight", "2", "--stripe-size", "64KiB")
    found = json.loads(shown.stdout)
    assert (found["written_bytes"], found["requests"]) == (12 << 20, 12)
    work = tmp_path / "work.json"
    work.write_text(json.dumps({"files": [{}], "clients": [{"operations": [{"read": [0, 0, 9]}]}]}))
    shown = bedform_command("simulate", "--workload", str(work), "--in-flight", "2", "--json")
    assert json.loads(shown.stdout)["read_bytes"] == 9
    listed = json.loads(bedform_command("simulate", "--machines", "--json").stdout)
    assert listed == bf.machines()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "give a store or file"),
        (["--pattern", "round"], "unknown variant `round`"),
        (["--pattern", "strided", "--request", "0B"], "requests have no bytes"),
        (["--pattern", "strided", "--clients", "4000000"], "at most 1048576"),
        (["--pattern", "strided", "--machine", "moon"], "no machine 'moon'"),
        (["--workload", "{tmp}/list.json"], "is no workload"),
        (["--workload", "{tmp}/none.json"], "none.json"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(
    arguments: list[str], wanted: str, tmp_path: Path, bedform_command: Bedform
) -> None:
    (tmp_path / "list.json").write_text("[]")
    shown = bedform_command("simulate", *(one.format(tmp=tmp_path) for one in arguments))
    assert shown.returncode == 2
    assert wanted in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_latency_bounds_what_a_connection_to_an_object_store_asks_for_one_by_one() -> None:
    pattern = {"shape": "contiguous", "clients": 1, "client_bytes": 1 << 24}
    found = bf.simulate("s3", pattern={**pattern, "request_bytes": 1 << 16})
    assert found.limit == "latency"
    assert "latency" in str(found)
