"""Web servers that answer reads by other statuses than 200 and 404."""

from __future__ import annotations

import functools
import http.server
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bedform as bf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATUSES = (204, 304, 400, 401, 403, 405, 409, 410, 412, 416, 500)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory; reads of shards get a chosen status."""

    status: int | None = None
    location: str | None = None

    def answered(self) -> bool:
        """Answers a request for a shard with the status."""
        if self.status is None or not self.path.startswith("/s.zarr/t/c/"):
            return False
        self.send_response(self.status)
        if self.location is not None:
            self.send_header("Location", self.location + self.path.removeprefix("/s.zarr"))
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_GET(self) -> None:
        if not self.answered():
            super().do_GET()

    def do_HEAD(self) -> None:
        if not self.answered():
            super().do_HEAD()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", shape=(4,), dtype="int32")[...] = [1, 2, 3, 4]
    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/s.zarr"
        server.shutdown()
        thread.join()


def test_a_status_that_says_neither_there_nor_absent_is_an_error_and_no_fill_value(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.testing.assert_array_equal(bf.open(address)["t"][...], [1, 2, 3, 4])
    for status in STATUSES:
        # Of these statuses, only 500 is retried.
        options = {"deadline_seconds": 2} if status == 500 else {}
        array = bf.open(address, storage_options=options)["t"]
        monkeypatch.setattr(Handler, "status", status)
        with pytest.raises(bf.BedformError):
            array[...]
        monkeypatch.setattr(Handler, "status", None)
    monkeypatch.setattr(Handler, "status", 404)
    np.testing.assert_array_equal(bf.open(address)["t"][...], [0, 0, 0, 0])


def test_what_is_missing_behind_a_redirect_is_absent_only_if_it_was_the_same_object(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "status", 302)
    monkeypatch.setattr(Handler, "location", "/elsewhere/s.zarr-not-there")
    np.testing.assert_array_equal(bf.open(address)["t"][...], [0, 0, 0, 0])
    for location in ("/log-in?from=", "/log-in#"):
        monkeypatch.setattr(Handler, "location", location)
        with pytest.raises(bf.BedformError, match="redirect"):
            bf.open(address)["t"][...]


PAGE = b"<!DOCTYPE html>\n<html><head><title>Earthdata\n Login</title></head></html>"


@pytest.mark.parametrize("name", ["page.nc", "page.zarr", "page", "page.json", "page.nc?token=x"])
def test_a_login_page_in_the_place_of_data_is_named_by_its_title(
    tmp_path: Path, address: str, name: str
) -> None:
    """Servers without a session answer every request with their page, and status 200."""
    place = tmp_path / name.partition("?")[0]
    if place.suffix in ("", ".zarr"):
        place.mkdir()
        place /= "zarr.json"
    place.write_bytes(PAGE)
    with pytest.raises(bf.UnsupportedError) as caught:
        bf.open(f"{address.removesuffix('s.zarr')}{name}")
    said = str(caught.value)
    assert name.partition("?")[0] in said
    assert 'a web page, "Earthdata Login", as servers send for a login' in said
    assert "\n" not in said
    with pytest.raises(bf.UnsupportedError, match='a web page, "Earthdata Login"'):
        bf.open(tmp_path / name.partition("?")[0])
