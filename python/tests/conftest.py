"""Fixtures that several modules share."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from support import ENVIRONMENT, command_line

if TYPE_CHECKING:
    from collections.abc import Callable

Run = subprocess.CompletedProcess


@pytest.fixture(scope="session")
def bedform_command() -> Callable[..., Run[str]]:
    """Run ``bedform`` with arguments in a process of its own; text in and out."""

    def run(*arguments: str, **more: object) -> Run[str]:
        environment = {**ENVIRONMENT, **more.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.run(
            [*command_line(), *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment,
            check=False,
            **more,  # type: ignore[call-overload]
        )

    return run
