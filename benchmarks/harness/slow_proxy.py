"""A proxy before a server: each request takes a time of its own, each answer has a bandwidth.

`python -m benchmarks.harness.slow_proxy PORT SERVER_PORT SECONDS BYTES_PER_SECOND` prints a line
once it listens. It counts requests and bytes of answers; `GET /-/counts` tells them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass

PIECE_BYTES = 256 << 10
HEAD_BYTES_MAX = 64 << 10
COUNTS = b"GET /-/counts "


@dataclass
class Proxy:
    """Where requests go, and what they take."""

    server_port: int
    seconds: float
    bytes_per_second: float
    requests: int = 0
    answered: int = 0

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
                body = await reader.readexactly(length_of(head) or 0)
                # The server answers while the time of the request passes.
                waited = asyncio.create_task(asyncio.sleep(self.seconds))
                if server is None:
                    server = await asyncio.open_connection(
                        "127.0.0.1", self.server_port, limit=HEAD_BYTES_MAX
                    )
                server[1].write(head + body)
                await server[1].drain()
                await self.answer(head.startswith(b"HEAD "), server[0], writer, waited)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for one in (writer, *(server[1:] if server else ())):
                one.close()
                with contextlib.suppress(ConnectionError):
                    await one.wait_closed()

    async def answer(
        self,
        is_head: bool,
        server: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waited: asyncio.Task[None],
    ) -> None:
        """Pass on an answer, no faster than it may come."""
        head = await server.readuntil(b"\r\n\r\n")
        await waited
        writer.write(head)
        left = 0 if is_head or no_body(head) else length_of(head)
        if left is None:
            raise ConnectionError("the server does not say how long its answer is")
        self.answered += left
        clock = asyncio.get_running_loop().time
        begun, sent = clock(), 0
        while left:
            piece = await server.readexactly(min(left, PIECE_BYTES))
            writer.write(piece)
            await writer.drain()
            left, sent = left - len(piece), sent + len(piece)
            early = begun + sent / self.bytes_per_second - clock()
            if early > 0:
                await asyncio.sleep(early)
        await writer.drain()

    async def tell(self, writer: asyncio.StreamWriter) -> None:
        """Answer with the counts."""
        body = json.dumps({"requests": self.requests, "bytes": self.answered}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


def length_of(head: bytes) -> int | None:
    r"""Return the bytes behind a head; nothing if it does not say.

    >>> length_of(b"GET / HTTP/1.1\r\nContent-Length: 12\r\n\r\n")
    12
    """
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return None


def no_body(head: bytes) -> bool:
    """Tell whether an answer has no body whatever it says."""
    return head.split(b" ", 2)[1] in (b"204", b"304")


async def main() -> None:
    """Listen until the process is ended."""
    port, server_port, seconds, bandwidth = sys.argv[1:]
    proxy = Proxy(int(server_port), float(seconds), float(bandwidth))
    server = await asyncio.start_server(
        proxy.serve, "127.0.0.1", int(port), limit=HEAD_BYTES_MAX, backlog=256
    )
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
