"""A proxy before a server: each request takes a time of its own, each stream has a bandwidth.

`python -m benchmarks.harness.slow_proxy PORT SERVER_PORT SECONDS BYTES_PER_SECOND` prints a line
once it listens. What is uploaded comes as slowly as answers do, and the time of the request passes
after it. It counts requests and bytes of both; `GET /-/counts` tells them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass

PIECE_BYTES = 256 << 10
HEAD_BYTES_MAX = 64 << 10
UPLOAD_BUFFER_BYTES = 512 << 10
COUNTS = b"GET /-/counts "
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Pace:
    """A stream from its first byte on."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.begun, self.moved = asyncio.get_running_loop().time(), 0

    async def keep(self, moved: int) -> None:
        """Wait until so many bytes more may have come."""
        self.moved += moved
        now = asyncio.get_running_loop().time()
        early = self.begun + self.moved / self.bytes_per_second - now
        if early > 0:
            await asyncio.sleep(early)


@dataclass
class Proxy:
    """Where requests go, and what they take."""

    server_port: int
    seconds: float
    bytes_per_second: float
    requests: int = 0
    answered: int = 0
    received: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the requests of one connection, one after the other."""
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(COUNTS):
                    await self.tell(writer)
                    continue
                self.requests += 1
                if server is None:
                    server = await asyncio.open_connection(
                        "127.0.0.1", self.server_port, limit=HEAD_BYTES_MAX
                    )
                server[1].write(head)
                if awaits_leave(head):
                    writer.write(CONTINUE)
                await self.upload(reader, server[1], upload_length(head))
                # The server answers while the time of the request passes.
                waited = asyncio.create_task(asyncio.sleep(self.seconds))
                await self.answer(head.startswith(b"HEAD "), server[0], writer, waited)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for one in (writer, *(server[1:] if server else ())):
                one.close()
                with contextlib.suppress(ConnectionError):
                    await one.wait_closed()

    async def upload(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, left: int
    ) -> None:
        """Pass on what comes with a request, no faster than it may come."""
        pace = Pace(self.bytes_per_second)
        while left:
            piece = await reader.readexactly(min(left, PIECE_BYTES))
            server.write(piece)
            await server.drain()
            left -= len(piece)
            self.received += len(piece)
            await pace.keep(len(piece))
        await server.drain()

    async def answer(
        self,
        is_head: bool,
        server: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waited: asyncio.Task[None],
    ) -> None:
        """Pass on an answer, no faster than it may come."""
        head = await server.readuntil(b"\r\n\r\n")
        while head.split(b" ", 2)[1] == b"100":
            head = await server.readuntil(b"\r\n\r\n")
        await waited
        writer.write(head)
        left = 0 if is_head or no_body(head) else length_of(head)
        if left is None:
            raise ConnectionError("the server does not say how long its answer is")
        self.answered += left
        pace = Pace(self.bytes_per_second)
        while left:
            piece = await server.readexactly(min(left, PIECE_BYTES))
            writer.write(piece)
            await writer.drain()
            left -= len(piece)
            await pace.keep(len(piece))
        await writer.drain()

    async def tell(self, writer: asyncio.StreamWriter) -> None:
        """Answer with the counts."""
        counts = {"requests": self.requests, "bytes": self.answered, "received": self.received}
        body = json.dumps(counts).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


def field_of(head: bytes, wanted: bytes) -> bytes | None:
    """Return a field of a head, named in small letters; nothing if it is not there."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == wanted:
            return value.strip().lower()
    return None


def length_of(head: bytes) -> int | None:
    r"""Return the bytes behind a head; nothing if it does not say.

    >>> length_of(b"GET / HTTP/1.1\r\nContent-Length: 12\r\n\r\n")
    12
    """
    length = field_of(head, b"content-length")
    return None if length is None else int(length)


def upload_length(head: bytes) -> int:
    """Return the bytes that come with a request."""
    if field_of(head, b"transfer-encoding") is not None:
        raise ConnectionError("the client does not say how long its request is")
    return length_of(head) or 0


def awaits_leave(head: bytes) -> bool:
    """Tell whether a client wants to be told to send what it has."""
    return field_of(head, b"expect") == b"100-continue"


def no_body(head: bytes) -> bool:
    """Tell whether an answer has no body whatever it says."""
    return head.split(b" ", 2)[1] in (b"204", b"304")


async def main() -> None:
    """Listen until the process is ended."""
    port, server_port, seconds, bandwidth = sys.argv[1:]
    proxy = Proxy(int(server_port), float(seconds), float(bandwidth))
    server = await asyncio.start_server(
        proxy.serve, "127.0.0.1", int(port), limit=UPLOAD_BUFFER_BYTES, backlog=256
    )
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
