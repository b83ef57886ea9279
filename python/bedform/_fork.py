"""Engine handles after a fork.

A fork copies the locks that the parent's threads hold, but not the threads: waiting for such a lock
never ends. So a child process never uses a handle of its parent, but opens its own.
"""

from __future__ import annotations

import os

# An identity of this process: a fork replaces the object.
current = object()

# The parent's handles, which only the parent may close.
_left_behind: list[object] = []


def leave_behind(handle: object) -> None:
    """Keeps a handle of the parent untouched until this process ends."""
    _left_behind.append(handle)


def _enter_child() -> None:
    global current
    current = object()


os.register_at_fork(after_in_child=_enter_child)
