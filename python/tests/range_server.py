"""A web server of files with range requests, which records the requests."""

from __future__ import annotations

import http.server
import threading
import time
import urllib.parse
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FileServer(http.server.ThreadingHTTPServer):
    """Serves the files of a directory."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        #: Whether answers have an ETag; otherwise they have the modification time.
        self.has_tags = True
        #: Status of answers to HEAD, if HEAD is refused.
        self.head_status: int | None = None
        #: Whether the server supports suffix ranges, and ranges at all.
        self.has_suffixes = True
        self.has_parts = True
        #: Query without which every file is missing.
        self.query: str | None = None
        #: Whether the query is the name of the file.
        self.names_by_query = False
        #: Whether the server checks If-Match.
        self.checks_tags = True
        #: Seconds of each answer, and the number of concurrent answers.
        self.seconds = 0.0
        self.at_once = 0
        self.most_at_once = 0
        self.counting = threading.Lock()
        #: Method, path and range of each request.
        self.asked: list[tuple[str, str, str | None]] = []

    def url(self, name: str) -> str:
        """Returns the URL of a file."""
        return f"http://127.0.0.1:{self.server_address[1]}/{urllib.parse.quote(name)}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, *, has_body: bool) -> None:
        server = self.server
        with server.counting:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        time.sleep(server.seconds)
        with server.counting:
            server.at_once -= 1
        self._answer_now(has_body=has_body)

    def _answer_now(self, *, has_body: bool) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.command, self.path, wanted))
        path, _, query = self.path.partition("?")
        if self.server.query is not None and query != self.server.query:
            self._refuse(403)
            return
        if not has_body and self.server.head_status is not None:
            self._refuse(self.server.head_status)
            return
        name = query if self.server.names_by_query else urllib.parse.unquote(path).lstrip("/")
        file = self.server.root / name
        if not file.is_file():
            self._refuse(404)
            return
        if wanted is not None and wanted.startswith("bytes=-") and not self.server.has_suffixes:
            self._refuse(400)
            return
        if not self.server.has_parts:
            wanted = None
        content, status = file.read_bytes(), file.stat()
        start, end = 0, len(content)
        if wanted is not None:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, end - int(last))
            end = min(end, int(last) + 1) if first and last else end
        tag = f'"{status.st_mtime_ns:x}-{status.st_ino:x}"'
        if self.server.checks_tags and self.headers.get("If-Match", tag) != tag:
            self._refuse(412)
            return
        if start >= len(content) and wanted is not None:
            self._refuse(416)
            return
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - start))
        if self.server.has_tags:
            self.send_header("ETag", tag)
        self.send_header("Last-Modified", self.date_time_string(status.st_mtime))
        self.end_headers()
        if has_body:
            self.wfile.write(content[start:end])

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextmanager
def serving(root: Path) -> Iterator[FileServer]:
    """Serve the files of a directory."""
    with FileServer(root) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
