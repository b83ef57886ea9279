"""A real S3 server on this machine, and a slow proxy before it, for as long as a benchmark runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.data import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "bench"
KEY, SECRET, REGION = "bench-key", "bench-secret", "us-east-1"
SECONDS, BYTES_PER_SECOND = 0.030, 80e6
#: Collect garbage rarely: it would take half of the server's processor time on shared cores.
COLLECTS_AT = "1000"
CHECKOUT = Path(__file__).resolve().parents[2]
#: The server's directory, which keeps the objects; it is recreated when the benchmark begins.
PLACE = ROOT / "s3"
#: A directory in memory, if there is such a file system: disk times are not part of a request's 30
#: ms, and vary most.
IN_MEMORY = Path("/dev/shm/bedform-bench-s3")  # noqa: S108 - remade, and only by benchmarks


class NoServerError(RuntimeError):
    """No server program is installed."""


def server_command(port: int, place: Path) -> list[str]:
    """Returns the command of versitygw, a server over plain files with the full S3 interface."""
    known = [shutil.which("versitygw"), str(Path.home() / "go" / "bin" / "versitygw")]
    program = next((name for name in known if name and Path(name).exists()), None)
    if program is None:
        raise NoServerError(
            "versitygw is missing: go install github.com/versity/versitygw/cmd/versitygw@latest"
        )
    files = place / "files"
    shutil.rmtree(place, ignore_errors=True)
    files.mkdir(parents=True)
    options = [
        "--access",
        KEY,
        "--secret",
        SECRET,
        "--region",
        REGION,
        "--port",
        f"127.0.0.1:{port}",
    ]
    # Metadata of objects lie beside them, for file systems without extended attributes.
    return [program, *options, "--quiet", "posix", "--sidecar", str(place / "about"), str(files)]


def proxy_command(port: int, server_port: int) -> list[str]:
    """Returns the command of the proxy, which cargo builds first if it has changed."""
    command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "bedform-remote"]
    arguments = [port, server_port, SECONDS, BYTES_PER_SECOND]
    return [*command, "--example", "slow_proxy", "--", *map(str, arguments)]


def free_port() -> int:
    """Returns an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class SlowS3:
    """The server: receives stores, and serves them through the proxy."""

    def __init__(self, server: str, proxy: str, place: Path) -> None:
        self.server, self.proxy, self.place = server, proxy, place

    def client(self) -> Any:
        """Returns a client that bypasses the proxy."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.server,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def put(self, path: Path, name: str) -> None:
        """Copy a store to the server."""
        client = self.client()
        for file in filter(Path.is_file, path.rglob("*")):
            client.upload_file(str(file), BUCKET, f"{name}/{file.relative_to(path)}")

    def files(self, name: str) -> Path:
        """Returns the path of a store's objects, which are plain files."""
        return self.place / "files" / BUCKET / name

    def remove(self, name: str) -> None:
        """Removes a store, and the metadata of its objects."""
        for part in ("files", "about"):
            shutil.rmtree(self.place / part / BUCKET / name, ignore_errors=True)

    def counts(self) -> dict[str, int]:
        """Returns the requests, the answered bytes and the uploaded bytes so far."""
        url = f"{self.proxy}/-/counts"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own proxy
            counts: dict[str, int] = json.load(answer)
            return counts


@contextmanager
def slow_s3(in_memory: bool = False) -> Iterator[SlowS3]:
    """Starts the server and the proxy; both end with the block, and data in memory are removed."""
    ports = free_port(), free_port()
    place = IN_MEMORY if in_memory and IN_MEMORY.parent.is_dir() else PLACE
    command = server_command(ports[0], place)
    (place / "about").mkdir()
    with (place / "said").open("w") as said:
        server = subprocess.Popen(  # noqa: S603
            command, stdout=said, stderr=said, env=os.environ | {"GOGC": COLLECTS_AT}
        )
        proxy = subprocess.Popen(  # noqa: S603
            proxy_command(ports[1], ports[0]), cwd=CHECKOUT, stdout=subprocess.PIPE
        )
        try:
            server_url, proxy_url = (f"http://127.0.0.1:{port}" for port in ports)
            slow = SlowS3(server_url, proxy_url, place)
            if not (proxy.stdout and proxy.stdout.readline()):
                raise NoServerError("the proxy does not listen")
            wait_for(slow)
            yield slow
        finally:
            for process in (proxy, server):
                process.terminate()
                process.wait()
            if place == IN_MEMORY:
                shutil.rmtree(place, ignore_errors=True)


def wait_for(slow: SlowS3) -> None:
    """Waits until the server has created the bucket."""
    from botocore.exceptions import BotoCoreError

    for _ in range(100):
        try:
            slow.client().create_bucket(Bucket=BUCKET)
        except BotoCoreError:
            time.sleep(0.1)
        else:
            return
    said = (slow.place / "said").read_text()
    raise NoServerError(f"the server does not answer: {said}")


def set_environment() -> None:
    """Sets the credentials for all clients of this process."""
    os.environ.update(
        AWS_ACCESS_KEY_ID=KEY,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_REGION=REGION,
        AWS_DEFAULT_REGION=REGION,
    )
