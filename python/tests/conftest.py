"""Fixtures that several modules share."""

from __future__ import annotations

import contextlib
import io
import subprocess
from typing import TYPE_CHECKING

import pytest
from support import ENVIRONMENT

from bedform.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of the tests that are borrowed from xarray."""
    for marker in ("flaky", "network", "asyncio", "skip_if_param", "skip_with_dask_array"):
        config.addinivalue_line("markers", f"{marker}: of xarray's tests")


@pytest.fixture
def bedform_command(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``bedform`` with arguments in this process, as a terminal without colours would."""

    def run_here(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in {**ENVIRONMENT, **environment}.items():
            monkeypatch.setenv(name, value)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    return run_here
