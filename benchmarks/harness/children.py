"""Work in forked children, whose memory has none of the data yet."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` in a forked child, which has nothing in memory yet; return what it returns.

    Values that were decoded stay in the memory of a process, also beyond the store that was opened.
    The page cache is dropped, but a second loop in the same process would not read at all.
    The parent imports what the child needs: a child that imports would take its time for it.
    """
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads, such as those of NumPy's library, which loops do not need.
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
