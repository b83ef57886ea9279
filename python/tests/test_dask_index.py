"""Indexes that the workers of a Dask cluster build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

distributed = pytest.importorskip("distributed")

from typer.testing import CliRunner  # noqa: E402

import bedform as bf  # noqa: E402
from bedform.cli import app  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path) -> Any:
    """Returns the values of the variables of a new file."""
    chance = np.random.default_rng(0)
    values = {name: chance.normal(280, 20, (6, 40, 50)) for name in "tuv"}
    data = xr.Dataset({name: (("time", "lat", "lon"), one) for name, one in values.items()})
    data["label"] = ("time", list("abcdef"))
    data.to_netcdf(path, encoding={name: {"chunksizes": (1, 40, 50)} for name in values})
    return values


def test_each_array_gets_the_index_that_one_process_makes(tmp_path: Path, client: Any) -> None:
    values = written(tmp_path / "a.nc")
    told: list[tuple[int, int]] = []
    report = bf.index(
        tmp_path / "a.nc", bins=[310], dask=client, progress=lambda *of: told.append(of)
    )
    assert [one["array"] for one in report.arrays] == ["t", "u", "v"]
    assert [one["bins"] for one in report.arrays] == [2, 2, 2]
    assert told[-1] == (3 * 96_000, 3 * 96_000) and len(told) == 3
    again = bf.index(tmp_path / "a.nc")
    assert sum(one["blocks_read"] for one in again.arrays) == 0
    query = bf.open(tmp_path / "a.nc").query("t >= 310 and u < 310")
    assert query.count() == ((values["t"] >= 310) & (values["u"] < 310)).sum()
    assert query.explain().to_dict()["blocks_read"] == 0


def test_the_command_takes_the_address_of_a_scheduler(tmp_path: Path, client: Any) -> None:
    written(tmp_path / "a.nc")
    arguments = ["index", str(tmp_path / "a.nc"), "--array", "u", "--dask"]
    result = CliRunner().invoke(app, [*arguments, client.scheduler.address])
    assert result.exit_code == 0, result.output
    assert bf.open(tmp_path / "a.nc")["u"].index().arrays[0]["blocks_read"] == 0
    wrong = CliRunner().invoke(app, [*arguments, "nowhere://1"])
    assert wrong.exit_code != 0


def test_errors_of_workers_name_the_array(tmp_path: Path, client: Any) -> None:
    written(tmp_path / "a.nc")
    with pytest.raises(bf.UnsupportedError, match="label"):
        bf.index(tmp_path / "a.nc", ["t", "label"], dask=client)
    with pytest.raises(bf.NotFoundError, match="nothing"):
        bf.index(tmp_path / "a.nc", "nothing", dask=client)
    with pytest.raises(bf.WrongTypeError, match="path"):
        bf.index(bf.open(tmp_path / "a.nc"), dask=client)
