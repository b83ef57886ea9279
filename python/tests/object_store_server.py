"""An S3 server, shared by all tests of a process."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "a-secret-of-many-letters"  # noqa: S105 - of a server of this test


def client_of(endpoint: str) -> Any:
    """Returns a client that writes to the server."""
    # Imported here: few tests need these slow modules.
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
        config=Config(connect_timeout=60, read_timeout=60, retries={"max_attempts": 0}),
    )


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts an S3 server; returns its URL."""
    said = tmp_path_factory.mktemp("moto") / "said"
    # The server chooses a free port, and prints it once it listens there.
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", "0"],
            stdout=log,
            stderr=log,
        )

    def listens() -> re.Match[str] | None:
        assert process.poll() is None, said.read_text()
        return re.search(r"Running on (http://127\.0\.0\.1:\d+)", said.read_text())

    try:
        wait_until(listens, "the server listens")
        listening = listens()
        assert listening is not None
        url = listening[1]
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def endpoint(object_store: str) -> str:
    """The server, with an empty bucket: tests of one process find no objects of each other."""
    connection = HTTPConnection(object_store.removeprefix("http://"))
    with contextlib.closing(connection):
        connection.request("POST", "/moto-api/reset")
        assert connection.getresponse().status == HTTPStatus.OK
    client_of(object_store).create_bucket(Bucket="bucket")
    return object_store


@pytest.fixture
def upload(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], str]:
    """Returns a function that copies a directory to the bucket and returns its URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    client = client_of(endpoint)

    def copy(source: Path, name: str) -> str:
        for file in filter(Path.is_file, source.rglob("*")):
            key = f"{name}/{file.relative_to(source)}"
            client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        return f"s3://bucket/{name}"

    return copy
