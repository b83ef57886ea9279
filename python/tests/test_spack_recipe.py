"""The dependencies of the Spack recipe match Cargo.toml and pyproject.toml."""

from __future__ import annotations

import re
import tomllib

from native import ROOT

RECIPE = ROOT / "tools/spack/spack_repo/bedform/packages/bedform/package.py"


def test_the_recipe_for_spack_has_the_dependencies_of_the_project() -> None:
    source = RECIPE.read_text()
    compile(source, str(RECIPE), "exec")
    asked = dict(re.findall(r'depends_on\("([\w-]+)@([\d.]+):', source))
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    versions = {
        "rust": cargo["rust-version"],
        "python": project["requires-python"].removeprefix(">="),
    }
    optional = [line for line in project["optional-dependencies"]["test"] if "mpi4py" in line]
    for line in project["dependencies"] + optional:
        name, least = line.split(">=")
        versions[f"py-{name}"] = least.removesuffix(".0")
    builder = asked.pop("py-maturin")
    assert asked == versions
    assert f'"maturin>={builder},<2"' in (ROOT / "python/pyproject.toml").read_text()
