"""An HDF5 file that h5py writes, with failures of the device and interrupts in Python's terms."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from bedform._errors import BedformError, write_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType


class HDF5Destination(io.FileIO):
    """The file that HDF5 writes to, with deferred errors.

    HDF5 never sees that a write failed: otherwise it could not close the file, would print long
    messages, and would crash at the end of the process.
    """

    #: The first failure of a write: a system error, or an exception of a signal handler.
    failure: BaseException | None = None

    def write(self, data: Any, /) -> int:
        """Writes all of ``data``, or records the failure."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.failure is None and done < len(view):
                done += super().write(view[done:])
        # HDF5 would print the exception and drop it.
        except BaseException as error:  # noqa: BLE001
            self.failure = error
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the file's length, or records the failure."""
        try:
            return super().truncate(size) if self.failure is None else size or 0
        except BaseException as error:  # noqa: BLE001
            self.failure = error
            return size or 0

    def check(self) -> None:
        """Raises the recorded failure."""
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def noted_interrupts() -> Iterator[Callable[[], None]]:
    """Defers Ctrl-C: the yielded function raises it, or else the end of the context.

    Python raises it at once otherwise, often in a callback of HDF5, which prints and drops it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield lambda: None
        return
    noted: list[tuple[int, FrameType | None]] = []

    def raise_noted() -> None:
        if noted:
            handler(*noted.pop())

    signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
    try:
        yield raise_noted
    finally:
        signal.signal(signal.SIGINT, handler)
    raise_noted()


@contextlib.contextmanager
def hdf5_output(path: os.PathLike[str], target: Path) -> Iterator[tuple[Any, HDF5Destination]]:
    """Creates a file, which is durable when the context ends without an error."""
    import h5py

    destination: HDF5Destination | None = None
    try:
        destination = HDF5Destination(path, "x+")
        with h5py.File(destination, "w", libver=("earliest", "v110"), track_order=True) as file:
            yield file, destination
        destination.check()
        os.fsync(destination.fileno())
    except BedformError:
        raise
    except (OSError, RuntimeError) as error:
        failure = destination.failure if destination is not None else None
        if failure is not None and not isinstance(failure, (OSError, RuntimeError)):
            raise failure from error
        raise write_failure(target, failure or error) from error
    finally:
        if destination is not None:
            destination.close()
