"""Waits for a server that accepts requests and never answers."""

from __future__ import annotations

import os
import signal
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from faulty_proxy import FaultyProxy
from support import wait_until

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LAYOUT = bf.Regular(chunks=(16, 64), shards=(64, 64))
VALUES = np.arange(256 * 256, dtype="f4").reshape(256, 256)


class StoppedError(Exception):
    """Raised by the signal handler."""


@contextmanager
def signal_in(is_waited_for: Callable[[], bool]) -> Iterator[None]:
    """Raises an error during a wait, as Ctrl-C would; checks that it ends the wait."""
    heard_in_wait: list[bool] = []

    def stop(*_: object) -> None:
        heard_in_wait.append(is_waited_for())
        raise StoppedError

    def send() -> None:
        wait_until(lambda: is_waited_for() or ended.is_set(), "a request waits")
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGALRM)

    ended = threading.Event()
    before = signal.signal(signal.SIGALRM, stop)
    sender = threading.Thread(target=send)
    try:
        with pytest.raises(StoppedError):
            sender.start()
            yield
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGALRM, before)
    # Otherwise the wait would have timed out, with the signal handled afterwards.
    assert heard_in_wait == [True]


@pytest.fixture
def proxy(upload: Callable[[Path, str], str], endpoint: str) -> Iterator[FaultyProxy]:
    """A proxy of the server, which this process may write to."""
    assert upload
    with FaultyProxy(int(endpoint.rpartition(":")[2]), seed=1, each=0) as proxy:
        yield proxy


def store_of_values(url: str) -> bf.Store:
    store = bf.create(url)
    store.create_array("t", shape=VALUES.shape, dtype="f4", layout=LAYOUT)[:] = VALUES
    return store


def write_and_commit(store: bf.Store, url: str) -> None:
    del url
    with store.session() as session:
        session.write("t", VALUES * 2)
        session.commit()


WAITS: dict[str, Callable[[bf.Store, str], Any]] = {
    "open": lambda store, url: bf.open(url),
    "create": lambda store, url: bf.create(f"{url}.new"),
    "an array": lambda store, url: store["other"],
    "shape": lambda store, url: store["t"].shape,
    "read": lambda store, url: store["t"][:],
    "attributes": lambda store, url: store.attributes.update(title="new"),
    "a new array": lambda store, url: store.create_array("new", shape=(4,), dtype="i4"),
    "write": lambda store, url: store["t"].__setitem__(slice(None), VALUES),
    "a small write": lambda store, url: store["t"].__setitem__((1, 1), 5),
    "append": lambda store, url: store["t"].append(VALUES),
    "session": write_and_commit,
    "settle": lambda store, url: store.settle(),
    "verify": lambda store, url: store.verify(),
    "delete": lambda store, url: store.__delitem__("t"),
    "calibrate": lambda store, url: bf.calibrate(url),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_ends_every_wait_for_a_server_that_is_silent(
    wait: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    url = f"s3://bucket/silent/{wait.replace(' ', '-')}.zarr"
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    store = store_of_values(url)
    store.create_array("other", shape=(4,), dtype="f4")
    with store.session(settle="later") as session:
        session.write("t", VALUES * 2)
    proxy.silence()
    with signal_in(proxy.is_waited_for):
        WAITS[wait](store, url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    # Earlier data still exist, and can be overwritten at once.
    again = bf.open(url, "r+")
    np.testing.assert_array_equal(again["t"][:], VALUES * 2)
    again["t"][:] = VALUES
    np.testing.assert_array_equal(again["t"][:], VALUES)


@pytest.mark.parametrize("after", [3, 11, 30, 60])
def test_a_signal_ends_what_a_server_that_falls_silent_has_half_of(
    after: int, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    url = f"s3://bucket/silent/{after}.zarr"
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    store = store_of_values(url)
    proxy.silence(after)
    with signal_in(proxy.is_waited_for):
        while True:
            store["t"][:] = VALUES
            write_and_commit(store, url)
            store.create_array("new", shape=(4,), dtype="i4")
            store.settle()
            del store["new"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    again = bf.open(url, "r+")
    assert again.verify() == []
    found = again["t"][:]
    assert ((found == VALUES) | (found == VALUES * 2)).all()


@pytest.mark.parametrize("after", [6, 10, 14])
def test_a_signal_ends_a_read_over_the_log_and_a_conversion(
    after: int, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://bucket/silent/log-{after}.zarr"
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    store = store_of_values(url)
    with store.session(settle="later") as session:
        for row in range(0, 256, 32):
            session.write("t", VALUES[row : row + 32] * 2, start=(row, 0))
            session.commit()
    proxy.silence(after)
    with signal_in(proxy.is_waited_for):
        while True:
            np.testing.assert_array_equal(bf.open(url)["t"][:], VALUES * 2)
    proxy.speak()
    proxy.silence(2 * after)
    with signal_in(proxy.is_waited_for):
        bf.convert(url, f"{url}.copy")


def test_a_signal_ends_one_wait_and_not_the_next(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    url = "s3://bucket/silent/once.zarr"
    bf.create(url)
    proxy.silence()
    with signal_in(proxy.is_waited_for):
        bf.open(url)
    proxy.speak()
    assert list(bf.open(url)) == []


class SlowBody(socketserver.StreamRequestHandler):
    """Server that announces a whole object, and sends bits of it ten times per second."""

    #: Number of clients that receive data.
    served = 0

    def handle(self) -> None:
        """Answers until the client disconnects."""
        while self.rfile.readline().strip():
            pass
        with suppress(OSError):
            self.wfile.write(
                b"HTTP/1.1 206 part\r\nContent-Length: 65536\r\n"
                b"Content-Range: bytes 0-65535/65536\r\n\r\n"
            )
            SlowBody.served += 1
            try:
                for _ in range(600):
                    self.wfile.write(b" " * 100)
                    time.sleep(0.05)
            finally:
                SlowBody.served -= 1


def test_a_signal_ends_the_wait_for_a_body_that_comes_slowly() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SlowBody) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a.zarr"
        with signal_in(lambda: SlowBody.served > 0):
            bf.open(url)
        # Without a signal the limits of the options end it.
        with pytest.raises(bf.IoError, match=r"too slow|was tried for"):
            bf.open(
                url,
                storage_options={
                    "deadline_seconds": 1,
                    "stall_seconds": 0.3,
                    "bytes_per_second_min": "1 MiB",
                },
            )
        server.shutdown()
