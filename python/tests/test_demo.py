"""The demo: a field like its source, all answers compared, one table, one picture."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import bedform as bf
from bedform import demo
from bedform.cli._output import emit
from bedform.demo import conversion, race, replication
from bedform.demo.field import LIKENESS, build_field

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = 12 << 20


def ignore(*_: object) -> None:
    return None


KINDS = {"map", "series", "plane: time, x", "plane: time, y", "box"}


def tree_of(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def small_file(path: Path) -> Path:
    """A file whose maps are chunks, large enough for replicas to be worth it."""
    values = np.random.default_rng(5).integers(0, 999, (300, 48, 64)).astype("<f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 48, 64), compression="gzip")
    return path


def test_the_demo_ends_with_tables_a_picture_and_numbers(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = bedform_command("demo", "--size", "12MiB", "--dir", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    whole, hot = facts["trials"]
    assert (whole["budget"], hot["budget"]) == ("100%", "20%")
    assert {result["name"] for result in whole["results"]} == KINDS
    outside = {"outside: map", "outside: series"}
    assert {result["name"] for result in hot["results"]} == KINDS | outside
    assert facts["readers"] == ["h5py on the file", "Bedform before", "Bedform after"]
    results = [*whole["results"], *hot["results"]]
    assert all(seconds > 0 for result in results for seconds in result["seconds"].values())
    assert "cold" in facts["cold"]
    assert 0 < hot["share"] <= 0.2
    assert hot["share"] < whole["share"] <= 1
    picture = ET.fromstring(next(tmp_path.glob("*.svg")).read_text())  # noqa: S314 - our own
    dots = [item for item in picture.iter() if item.tag.endswith("circle")]
    assert len(dots) == len(facts["readers"]) * (1 + len(results))
    again = bedform_command("demo", "--size", "12MiB", "--dir", str(tmp_path))
    assert "growing" not in again.stderr
    assert "every answer equal" in again.stdout
    assert "the file stayed as it was" in again.stdout


def test_the_old_race_over_a_new_store_is_still_there(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    wanted = ("demo", "--convert", "--size", "12MiB", "--dir", str(tmp_path))
    done = bedform_command(*wanted, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert {result["name"] for result in facts["results"]} == KINDS
    assert facts["readers"][0] == "h5py"
    assert facts["readers"][-1] == "Bedform"
    assert next(tmp_path.glob("*.zarr")).is_dir()
    assert "every answer equal" in bedform_command(*wanted).stdout


def test_what_was_watched_is_copied_and_read_from_the_copies(tmp_path: Path) -> None:
    done = demo.replicate(
        demo.DemoOptions(input_file=small_file(tmp_path / "mine.nc"), directory=tmp_path)
    )
    whole, hot = done.trials
    assert whole.watched_reads == hot.watched_reads == len(KINDS) * len(race.PLACES)
    assert whole.replicas
    assert "300 x 16 x 24" in hot.replicas[0]
    assert hot.sidecar_bytes <= 0.2 * done.field.stored_bytes


def test_a_sidecar_that_the_file_has_is_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_file(tmp_path / "mine.nc")
    bf.watch(path)
    with bf.open(path) as opened:
        for at in range(20):
            opened["t"][:, 3, at]
    bf.learn(path)
    assert bf.optimize(path, "100%").made
    before, content = tree_of(tmp_path / "mine.nc.bedform"), path.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("BEDFORM_TRACE", "1")
    monkeypatch.setenv("BEDFORM_REPLICAS", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere))
    done = demo.replicate(demo.DemoOptions(input_file=path, directory=tmp_path / "out"))
    assert done.trials[0].watched_reads == len(KINDS) * len(race.PLACES)
    assert done.trials[0].replicas
    assert tree_of(tmp_path / "mine.nc.bedform") == before
    assert path.read_bytes() == content
    assert not elsewhere.exists()
    assert (os.environ["BEDFORM_TRACE"], os.environ["BEDFORM_REPLICAS"]) == ("1", "off")
    assert "BEDFORM_SIDECAR" not in os.environ


def test_replicas_of_a_site_change_nothing_of_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, sidecars = tmp_path / "archive", tmp_path / "sidecars"
    for directory in (archive, sidecars):
        directory.mkdir()
    path, config = small_file(archive / "mine.nc"), tmp_path / "site.toml"
    config.write_text(
        f'[[sidecars]]\nroot = "{archive}"\nsidecars = "{sidecars}"\nowners = [{os.geteuid()}]\n'
    )
    config.chmod(0o644)
    monkeypatch.setenv("BEDFORM_CONFIG", str(config))
    monkeypatch.delenv("BEDFORM_SIDECAR", raising=False)
    assert bf.optimize(path, "400%", reads={("phony_dim_0",): 1}).made
    before = tree_of(sidecars)
    done = demo.replicate(demo.DemoOptions(input_file=path, directory=tmp_path / "out"))
    assert all(trial.replicas for trial in done.trials)
    assert not [note for trial in done.trials for note in trial.notes if "site" in note]
    assert tree_of(sidecars) == before
    assert os.environ["BEDFORM_CONFIG"] == str(config)


def test_a_demo_replaces_what_an_earlier_one_left(tmp_path: Path) -> None:
    path = small_file(tmp_path / "mine.nc")
    out = tmp_path / "out"
    demo.convert(demo.DemoOptions(input_file=path, directory=out))
    assert (out / "bedform-demo-mine.zarr").exists()
    for _ in range(2):
        done = demo.replicate(demo.DemoOptions(input_file=path, directory=out))
        assert done.trials[0].watched_reads == len(KINDS) * len(race.PLACES)
        assert not (out / "bedform-demo-mine.zarr").exists()
    demo.convert(demo.DemoOptions(input_file=path, directory=out))
    assert not list(out.glob("*.replicas-*"))


def test_a_link_at_a_name_of_the_demo_is_not_followed(tmp_path: Path) -> None:
    path = small_file(tmp_path / "mine.nc")
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "bedform-demo-mine.replicas-20").symlink_to(precious)
    with pytest.raises(FileExistsError, match="is a link"):
        demo.replicate(demo.DemoOptions(input_file=path, directory=tmp_path))
    assert precious.is_dir()


@pytest.mark.parametrize("stage", ["watching", "making", "reading"])
def test_a_demo_that_is_stopped_leaves_no_half_replica(stage: str, tmp_path: Path) -> None:
    path = small_file(tmp_path / "mine.nc")
    out = tmp_path / "out"
    said = []

    def stop(done: int, total: int) -> None:
        if stage in said[-1]:
            raise KeyboardInterrupt

    request = demo.DemoOptions(input_file=path, directory=out, say=said.append, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        demo.replicate(request)
    assert list(out.iterdir()) == []
    assert "BEDFORM_SIDECAR" not in os.environ


def test_a_conversion_that_is_stopped_leaves_no_half_store(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if any(tmp_path.glob(".*.bedform-partial")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.convert(demo.DemoOptions(size=SMALL, directory=tmp_path, progress=stop))
    assert not list(tmp_path.glob(".*.bedform-partial"))
    assert not list(tmp_path.glob("*.zarr"))


def test_the_grown_field_is_as_its_producer_would_write_it(tmp_path: Path) -> None:
    field = build_field(tmp_path, SMALL, ignore, ignore)
    with h5py.File(field.path) as file:
        tos = file["tos"]
        assert tos.chunks == (1, 330, 360)
        assert (tos.compression, tos.compression_opts) == ("gzip", 9)
        stored = sum(tos.id.get_chunk_info(at).size for at in range(tos.id.get_num_chunks()))
        assert abs(tos.size * 4 / stored / 2.079 - 1) < LIKENESS
        first, second = tos[0], tos[1]
    ocean = first < 1e19
    assert 0.5 < ocean.mean() < 0.6
    assert first[ocean].min() > -5
    assert first[ocean].max() < 40
    assert 0 < np.abs(first - second)[ocean].max() < 1


def test_a_user_brings_a_file_of_any_rank(tmp_path: Path) -> None:
    path = tmp_path / "mine.nc"
    generator = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file.create_dataset("flat", data=generator.normal(size=(40, 50)))
        file.create_dataset("deep", data=generator.normal(size=(6, 7, 8, 9)).astype("float32"))
    before = path.read_bytes()
    for variable in ("flat", "deep"):
        for run in (demo.replicate, demo.convert):
            out = tmp_path / variable
            done = run(demo.DemoOptions(input_file=path, variable=variable, directory=out))
            assert done.field.variable == variable
    assert path.read_bytes() == before


@pytest.mark.parametrize("run", [demo.replicate, demo.convert])
def test_a_wrong_answer_stops_the_demo(
    run: Callable[[demo.DemoOptions], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_file(tmp_path / "mine.nc")
    real = race.measure

    def spoiled(readers: dict[str, race.DemoReader], *others: Any) -> object:
        name, ours = list(readers.items())[-1]
        spoilt = race.DemoReader(lambda selection: ours.read(selection) + 1, ours.objects)
        return real({**readers, name: spoilt}, *others)

    for module in (replication, conversion):
        monkeypatch.setattr(module, "measure", spoiled)
    with pytest.raises(ValueError, match=r"Bedform.* answered the map .* with other values"):
        run(demo.DemoOptions(input_file=path, directory=tmp_path / "out"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"CDF\x01not", "not a NetCDF-4"), (b"", "not a NetCDF-4"), (None, "does not exist")],
)
def test_an_input_that_cannot_be_compared_is_refused(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.nc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, OSError), match=complaint):
        demo.replicate(demo.DemoOptions(input_file=path, directory=tmp_path))


def test_a_place_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="--size"):
        demo.replicate(demo.DemoOptions(size=1 << 60, directory=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(race).failed == 0


@pytest.mark.parametrize("run", [demo.replicate, demo.convert])
def test_the_demo_deletes_only_what_it_made(run: Callable[..., Any], tmp_path: Path) -> None:
    path = small_file(tmp_path / "mine.nc")
    for ending in ("zarr", "replicas-100"):
        own = tmp_path / f"mine.{ending}"
        own.mkdir()
        (own / "precious").write_text("data")
    kept = run(demo.DemoOptions(input_file=path, directory=tmp_path))
    (delete,) = (note for note in kept.notes if "delete it with" in note)
    long = replace(kept, notes=(delete.replace("rm -r ", "rm -r " + "long name/" * 30),))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        emit(None, long.render(), as_json=False)
    assert long.notes[0] in shown.getvalue(), "a command that is cut in two removes something else"
    run(demo.DemoOptions(input_file=path, directory=tmp_path))
    for ending in ("zarr", "replicas-100"):
        assert (tmp_path / f"mine.{ending}" / "precious").read_text() == "data"
    other = tmp_path / "other"
    run(demo.DemoOptions(input_file=path, directory=other, keep=False))
    assert [file.name for file in other.iterdir()] == ["bedform-demo-mine.svg"]
    assert path.exists()


def test_what_is_kept_is_deleted_by_the_line_that_says_so(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = small_file(tmp_path / "mine.nc")
    out = tmp_path / "the out"
    done = bedform_command("demo", "--input", str(path), "--dir", str(out))
    (line,) = (line for line in done.stdout.splitlines() if "delete it with" in line)
    subprocess.run(["sh", "-c", line.partition("with: ")[2]], check=True)  # noqa: S607
    assert list(out.iterdir()) == []
    assert path.exists()


def test_without_keeping_only_the_picture_stays(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = bedform_command("demo", "--no-keep", "--size", "8MiB", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "delete" not in done.stdout
    assert [file.suffix for file in tmp_path.iterdir()] == [".svg"]


def test_an_interrupted_field_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.replicate(demo.DemoOptions(size=SMALL, directory=tmp_path, progress=interrupt))
    assert list(tmp_path.iterdir()) == []
