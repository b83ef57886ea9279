"""A server that speaks S3, for all tests of a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "a-secret-of-many-letters"  # noqa: S105 - of a server of this test


def client_of(endpoint: str) -> Any:
    """What writes to the server."""
    # Here alone: few tests need them, and they are slow to import.
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
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks S3."""
    said = tmp_path_factory.mktemp("moto") / "said"
    # It chooses a port that is free, and says which when it listens there.
    with said.open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", "0"],
            stdout=log,
            stderr=log,
        )

    def listens() -> re.Match[str] | None:
        assert server.poll() is None, said.read_text()
        return re.search(r"Running on (http://127\.0\.0\.1:\d+)", said.read_text())

    try:
        wait_until(listens, "the server listens")
        listening = listens()
        assert listening is not None
        url = listening[1]
        client_of(url).create_bucket(Bucket="bucket")
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def upload(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], str]:
    """What copies a directory to the bucket, and gives its URL there."""
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
