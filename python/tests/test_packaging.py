"""The package as others build it: a source distribution, and wheels made of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from typing import TYPE_CHECKING

import pytest
from native import BIN, ROOT, needed

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "bedform/libbedform_preload.so"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of the checkout."""
    place = tmp_path_factory.mktemp("source")
    maturin = needed(BIN / "maturin", "pip install maturin")
    words = [maturin, "sdist", "--out", str(place)]
    subprocess.run(words, cwd=ROOT / "python", check=True, capture_output=True)
    (found,) = place.glob("*.tar.gz")
    return found


def test_a_source_distribution_has_the_sources_of_every_library_and_no_library(
    source: Path,
) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    libraries = {"crates/bedform-preload/src/lib.rs", "crates/bedform-capi/src/hdf5.rs"}
    assert {"python/build.rs", "vol/connector.c", "vol/build.rs", *libraries} <= names
    assert [name for name in names if name.endswith("_run.py")] == ["bedform/_run.py"]
    assert not [name for name in names if name.endswith(".so")]


# It compiles all crates once more, without optimization.
@pytest.mark.night
@pytest.mark.timeout(3600)
def test_a_wheel_of_a_source_distribution_runs_programs_with_its_library(
    source: Path, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory() as target:
        environment = {**os.environ, "CARGO_TARGET_DIR": target}
        environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
        profile = "--config-settings=build-args=--profile dev"
        words = [sys.executable, "-m", "pip", "wheel", *options, profile, str(source)]
        subprocess.run(words, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    package = tmp_path / "package"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(package)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    assert (package / LIBRARY).exists()
    data = tmp_path / "data"
    data.write_bytes(bytes(100_000))
    reader = [sys.executable, "-c", "import sys; open(sys.argv[1], 'rb').read()", str(data)]
    words = [sys.executable, "-m", "bedform", "run", "--report", "-", "--", *reader]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run(words, env=environment, check=True, capture_output=True, cwd=tmp_path)
    [read] = [one for one in json.loads(done.stderr)["files"] if one["path"] == str(data)]
    assert read["bytes"] == 100_000
