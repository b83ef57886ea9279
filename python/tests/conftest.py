"""Fixtures shared by several test modules."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import hypothesis
import pytest
from object_store_server import endpoint, object_store, upload
from support import ENVIRONMENT

from bedform.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import distributed

# Shared fixtures: each process that runs tests starts one server.
__all__ = ["endpoint", "object_store", "upload"]

# Effort of property tests: BEDFORM_TESTS is "default", "ci" or "nightly", for the Rust tests, too.
# A shared machine pauses, so no example has a deadline.
for _name, _examples in (("default", 150), ("ci", 500), ("nightly", 5000)):
    hypothesis.settings.register_profile(
        _name,
        deadline=None,
        max_examples=_examples,
        derandomize=_name != "nightly",
        database=None,
        phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.function_scoped_fixture,
        ],
    )
hypothesis.settings.load_profile(os.environ.get("BEDFORM_TESTS", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of the tests that are borrowed from xarray."""
    for marker in ("flaky", "network", "asyncio", "skip_if_param", "skip_with_dask_array"):
        config.addinivalue_line("markers", f"{marker}: of xarray's tests")


@pytest.fixture(autouse=True, scope="session")
def _interrupts_are_heard() -> None:
    """Restores Ctrl-C: parallel test runners ignore it, and so would the processes started here."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _no_trace_in_the_home_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps profiles and chunk maps of the tests in a temporary directory."""
    kept = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(kept / "cache"))
        patch.setenv("XDG_DATA_HOME", str(kept / "data"))
        patch.setenv("BEDFORM_TRUST", ENVIRONMENT["BEDFORM_TRUST"])
        # HDF5 takes long on a busy machine.
        patch.setenv("BEDFORM_MAP_TIME", ENVIRONMENT["BEDFORM_MAP_TIME"])
        patch.delenv("BEDFORM_PROFILES", raising=False)
        yield


@pytest.fixture(scope="session")
def client() -> Iterator[distributed.Client]:
    """A client of a Dask cluster of two workers, which no test kills."""
    from dask_clusters import cluster

    with cluster() as client:
        yield client


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


# Fixtures that xarray's own tests of its backends require.


@pytest.fixture
def default_zarr_format() -> int:
    """The Zarr format of the stores that the tests write."""
    return 3


@pytest.fixture(params=[False, True], ids=["numpy", "dask"])
def use_dask(request: pytest.FixtureRequest) -> bool:
    """Whether data sets are chunked."""
    return bool(request.param)


@pytest.fixture(params=["s", "ms", "us", "ns"])
def time_unit(request: pytest.FixtureRequest) -> str:
    """The resolution of times."""
    return str(request.param)
