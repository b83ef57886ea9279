"""The demo: a field like its source, every answer checked, one table, one picture."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

from bedform import demo
from bedform.cli._output import emit
from bedform.demo import race
from bedform.demo.field import LIKENESS, build_field

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

SMALL = 12 << 20


def ignore(*_: object) -> None:
    return None


def test_the_demo_ends_with_a_table_a_picture_and_numbers(
    tmp_path: Path, bedform_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = bedform_command("demo", "--size", "12MiB", "--dir", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert {result["name"] for result in facts["results"]} == {
        "map",
        "series",
        "plane: time, x",
        "plane: time, y",
        "box",
    }
    assert facts["readers"][0] == "h5py"
    assert facts["readers"][-1] == "Bedform"
    assert all(seconds > 0 for result in facts["results"] for seconds in result["seconds"].values())
    assert "cold" in facts["cold"]
    picture = ET.fromstring(next(tmp_path.glob("*.svg")).read_text())  # noqa: S314 - our own
    dots = [item for item in picture.iter() if item.tag.endswith("circle")]
    assert len(dots) == len(facts["readers"]) * (1 + len(facts["results"]))
    again = bedform_command("demo", "--size", "12MiB", "--dir", str(tmp_path))
    assert "growing" not in again.stderr
    assert "every answer equal" in again.stdout


def test_a_demo_that_is_stopped_leaves_no_half_store(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if any(tmp_path.glob(".*.bedform-partial")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.run(size=SMALL, directory=tmp_path, progress=stop)
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
        done = demo.run(input_file=path, variable=variable, directory=tmp_path / variable)
        assert done.field.variable == variable
        assert len(done.results) >= 3
    assert path.read_bytes() == before


def test_a_wrong_answer_stops_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=np.arange(6000.0).reshape(10, 20, 30))
    real = race._readers

    def spoiled(*arguments: object) -> object:
        readers, notes = real(*arguments)  # type: ignore[arg-type]
        read = readers["Bedform"]
        readers["Bedform"] = lambda selection: read(selection) + 1
        return readers, notes

    monkeypatch.setattr(race, "_readers", spoiled)
    with pytest.raises(ValueError, match=r"Bedform answered the map .* with other values"):
        demo.run(input_file=path, directory=tmp_path / "out")


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
        demo.run(input_file=path, directory=tmp_path)


def test_a_place_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="--size"):
        demo.run(size=1 << 60, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(demo).failed == 0
    assert doctest.testmod(race).failed == 0


def test_the_demo_deletes_only_what_it_made(tmp_path: Path) -> None:
    path = tmp_path / "mine.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=np.arange(6000.0).reshape(10, 20, 30))
    own = tmp_path / "mine.zarr"
    own.mkdir()
    (own / "precious").write_text("data")
    kept = demo.run(input_file=path, directory=tmp_path)
    assert "chunks" in kept.layout
    (delete,) = (note for note in kept.notes if "delete it with" in note)
    long = replace(kept, notes=(delete.replace("rm -r ", "rm -r " + "long name/" * 30),))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        emit(None, demo.render(long), as_json=False)
    assert long.notes[0] in shown.getvalue(), "a command that is cut in two removes something else"
    demo.run(input_file=path, directory=tmp_path)
    assert (own / "precious").read_text() == "data"
    other = tmp_path / "other"
    demo.run(input_file=path, directory=other, keep=False)
    assert [file.name for file in other.iterdir()] == ["bedform-demo-mine.svg"]
    assert path.exists()


def test_an_interrupted_field_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.run(size=SMALL, directory=tmp_path, progress=interrupt)
    assert list(tmp_path.iterdir()) == []
