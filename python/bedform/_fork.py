"""Handles in a child process.

A fork copies locks that threads of the parent hold, and not the threads: whoever waits for such a
lock waits for ever. So a child uses no handle of the engine that its parent has opened, but opens
its own.
"""

from __future__ import annotations

import os

# Another object in every process.
current = object()

# The parent's handles. To close them is the parent's affair.
_left_behind: list[object] = []


def leave_behind(handle: object) -> None:
    """Keep a handle of the parent until this process ends, untouched."""
    _left_behind.append(handle)


def _enter_child() -> None:
    global current
    current = object()


os.register_at_fork(after_in_child=_enter_child)
