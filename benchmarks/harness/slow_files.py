"""A web server of files with a delay per request: `python -m benchmarks.harness.slow_files`.

Its arguments are a directory and the bytes per second of a stream. It prints its port, and ends
with its standard input.
"""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS, BYTES_PER_SECOND = 0.030, 80e6
PIECE_BYTES = 1 << 18


class Handler(http.server.BaseHTTPRequestHandler):
    """Files and parts of them."""

    protocol_version = "HTTP/1.1"
    root = Path()
    bytes_per_second = BYTES_PER_SECOND

    def answer(self, has_body: bool) -> None:
        """Waits, then sends the requested bytes, no faster than a stream."""
        time.sleep(SECONDS)
        file = self.root / self.path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        size, wanted = file.stat().st_size, self.headers.get("Range")
        start, end = 0, size
        if wanted is not None:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{file.stat().st_mtime_ns:x}"')
        self.end_headers()
        if has_body:
            self.send_part(file, start, end)

    def send_part(self, path: Path, start: int, end: int) -> None:
        """Sends bytes at the rate of a stream."""
        began, sent = time.perf_counter(), 0
        with path.open("rb") as file:
            file.seek(start)
            while sent < end - start:
                self.wfile.write(piece := file.read(min(PIECE_BYTES, end - start - sent)))
                sent += len(piece)
                time.sleep(max(0, began + sent / self.bytes_per_second - time.perf_counter()))

    def do_GET(self) -> None:
        """Send a file."""
        self.answer(has_body=True)

    def do_HEAD(self) -> None:
        """Sends the headers of a file."""
        self.answer(has_body=False)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def slow_files(root: Path, bytes_per_second: float = BYTES_PER_SECOND) -> Iterator[str]:
    """Serves a directory from a separate process; yields its URL."""
    arguments = [str(root), str(bytes_per_second)]
    command = [sys.executable, "-m", "benchmarks.harness.slow_files", *arguments]
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("the server has no pipes")
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()


def main() -> None:
    """Serve until the standard input ends."""
    Handler.root, Handler.bytes_per_second = Path(sys.argv[1]), float(sys.argv[2])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
