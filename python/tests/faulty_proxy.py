"""A proxy before an object server, with the faults of networks and busy servers.

It answers 503 and 429, resets connections before and after a request is done, truncates bodies, and
delays, in an order that follows from a seed. Or it falls silent.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from typing import Self

PIECE_BYTES = 1 << 16
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
RESET = struct.pack("ii", 1, 0)
FAULTS = ("unavailable", "too many", "reset", "lost answer", "cut answer", "slow")


class FaultyProxy:
    """Proxy to a local port; each fault hits `each` percent of the requests."""

    def __init__(self, server_port: int, seed: int, each: float) -> None:
        self.server_port, self.each = server_port, each
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.spoken = threading.Event()
        self.left: int | None = None
        #: Connections with unanswered requests.
        self.silenced: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.speak()
        self.listener.close()

    def silence(self, after: int = 0) -> None:
        """After `after` more requests, accepts requests without passing them on or answering."""
        with self.lock:
            self.spoken, self.left = threading.Event(), after

    def speak(self) -> None:
        """Answers again, and closes connections whose clients still wait."""
        with self.lock:
            self.left = None
            self.silenced.clear()
            self.spoken.set()

    def is_waited_for(self) -> bool:
        """Whether a client still waits for the answer to a silenced request."""
        with self.lock:
            return any(is_open(client) for client in self.silenced)

    def silenced_until(self, client: socket.socket) -> threading.Event | None:
        """Returns the event that ends the silence for a client; None if it is answered."""
        with self.lock:
            if self.left is None:
                return None
            self.left -= 1
            if self.left >= 0:
                return None
            self.silenced.append(client)
            return self.spoken

    def listen(self) -> None:
        """Serve each connection in a thread, until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def fault(self) -> str | None:
        """Returns the fault of the next request, if any."""
        with self.lock:
            place = self.random.uniform(0, 100) / self.each if self.each else len(FAULTS)
            fault = FAULTS[int(place)] if place < len(FAULTS) else None
            if fault is not None:
                self.faults[fault] += 1
            return fault

    def serve(self, client: socket.socket) -> None:
        """Serve the one request of a connection."""
        with client, contextlib.suppress(OSError, ValueError):
            request = message(client)
            if spoken := self.silenced_until(client):
                spoken.wait()
                return
            fault = self.fault()
            if fault == "reset":
                reset(client)
                return
            if fault in ("unavailable", "too many"):
                status = b"503 Slow Down" if fault == "unavailable" else b"429 Too Many Requests"
                client.sendall(
                    b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                    % (status, len(BUSY), BUSY)
                )
                return
            if fault == "slow":
                time.sleep(0.1)
            answer = self.ask(request)
            if fault == "lost answer":
                reset(client)
                return
            client.sendall(answer[: len(answer) // 2] if fault == "cut answer" else answer)

    def ask(self, request: bytes) -> bytes:
        """Returns the server's answer."""
        head, _, body = request.partition(b"\r\n\r\n")
        fields = [line for line in head.split(b"\r\n") if not is_field(line, b"connection")]
        with socket.create_connection(("127.0.0.1", self.server_port)) as server:
            server.sendall(b"\r\n".join([*fields, b"Connection: close"]) + b"\r\n\r\n" + body)
            answer = bytearray()
            while piece := server.recv(PIECE_BYTES):
                answer += piece
        return bytes(answer)


DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Denied</Message></Error>"


class DenyingProxy(FaultyProxy):
    """Proxy that denies some of "list", "delete" and "write".

    Without the right to list, missing objects are reported as denied, as by Amazon.
    """

    def __init__(self, server_port: int, *denied: str) -> None:
        super().__init__(server_port, seed=0, each=0)
        self.denied = set(denied)

    def ask(self, request: bytes) -> bytes:
        """Returns the server's answer, or a denial."""
        method, target, _ = request.split(b" ", 2)
        if action_of(method, target) in self.denied:
            return denial(method)
        answer = super().ask(request)
        is_missing = answer.split(b" ", 2)[1:2] == [b"404"]
        return denial(method) if is_missing and "list" in self.denied else answer


def action_of(method: bytes, target: bytes) -> str:
    """Returns the action of a request."""
    if method == b"DELETE" or (method == b"POST" and target.endswith(b"?delete")):
        return "delete"
    if method in (b"PUT", b"POST"):
        return "write"
    return "list" if b"list-type=" in target else "read"


def denial(method: bytes) -> bytes:
    """Returns the answer of a denial; answers to HEAD have no body."""
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(
        DENIED
    )
    return head if method == b"HEAD" else head + DENIED


def is_field(line: bytes, name: bytes) -> bool:
    """Tell whether a line of a head is that of a field, named in small letters."""
    return line.partition(b":")[0].strip().lower() == name


def message(client: socket.socket) -> bytes:
    """Return one request, with its body."""
    found = bytearray()
    while b"\r\n\r\n" not in found:
        piece = client.recv(PIECE_BYTES)
        if not piece:
            raise ValueError("no request")
        found += piece
    head, _, body = bytes(found).partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if is_field(line, b"content-length")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    if any(is_field(line, b"expect") for line in head.split(b"\r\n")):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while len(body) < length:
        piece = client.recv(PIECE_BYTES)
        if not piece:
            raise ValueError("half a request")
        body += piece
    return head + b"\r\n\r\n" + body


def is_open(client: socket.socket) -> bool:
    """Whether a client that has sent its whole request is still connected."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def reset(client: socket.socket) -> None:
    """Resets a connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
