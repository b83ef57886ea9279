"""Execution in forked children, whose memory has no decoded data yet."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs `work` in a forked child without decoded data in memory; returns its result.

    Decoded values stay in the memory of a process, also after the store is closed. Dropping the
    page cache does not remove them: a second loop in the same process would not read. The parent
    imports the modules that the child needs, so that imports do not count in the child's time.
    """
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads, such as those of NumPy's library, which the loops do not
        # use.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            with os.fdopen(sending, "w") as pipe:
                json.dump(work(*arguments), pipe)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent says that it failed
            traceback.print_exc()
            os._exit(1)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        answer = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("a loop failed")
    return json.loads(answer)
