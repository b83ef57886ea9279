"""Stores at URLs, read from servers that the tests start."""

from __future__ import annotations

import functools
import http.server
import json
import os
import pickle
import subprocess
import threading
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import xarray as xr
import zarr
from faulty_proxy import DenyingProxy
from object_store_server import SECRET, client_of
from support import PATIENCE, command_line

import bedform as bf
from bedform import xarray_backend
from bedform.xarray_backend import BedformBackendEntrypoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def made(path: Path) -> np.ndarray[Any, Any]:
    """A store with one array of several shards, and its values."""
    values = np.random.default_rng(7).normal(size=(30, 60, 80)).astype("f4")
    layout = bf.Regular(chunks=(5, 20, 20), shards=(10, 40, 40))
    store = bf.create(path, attributes={"title": "a store"})
    array = store.create_array(
        "g/t", shape=values.shape, dtype="f4", layout=layout, dims=tuple("tyx")
    )
    array[:] = values
    return values


def test_xarray_selects_the_engine_for_stores_in_s3_that_bedform_made(
    tmp_path: Path, upload: Callable[[Path, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xarray_backend, "_GUESS_SECONDS", PATIENCE)
    values = made(tmp_path / "ours.zarr")
    opened = xr.open_dataset(upload(tmp_path / "ours.zarr", "guess/ours.zarr"), group="g")
    np.testing.assert_array_equal(opened["t"].isel(t=3).values, values[3])
    zarr.create_group(tmp_path / "theirs.zarr").create_array("t", shape=(2,), dtype="f4")
    engine = BedformBackendEntrypoint()
    assert not engine.guess_can_open(upload(tmp_path / "theirs.zarr", "guess/theirs.zarr"))
    assert not engine.guess_can_open("s3://bucket/guess/nothing.zarr")


def cli(*arguments: str) -> str:
    """Returns the output of a command in this process's environment."""
    done = subprocess.run(
        [*command_line(), *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


SELECTIONS = [np.s_[:], np.s_[:, 30, 40], np.s_[17], np.s_[3:21:4, 5:50, 7], np.s_[-1, -1, -1]]


def test_a_store_in_s3_is_read_as_in_a_directory(
    tmp_path: Path, upload: Callable[[Path, str], str]
) -> None:
    values = made(tmp_path / "a.zarr")
    store = bf.open(upload(tmp_path / "a.zarr", "deep/prefix/a.zarr"))
    assert sorted(store.arrays()) == ["g/t"]
    assert store.attributes == {"title": "a store"}
    for selection in SELECTIONS:
        np.testing.assert_array_equal(store["g/t"][selection], values[selection])
    assert store.verify() == []


def test_what_is_not_settled_is_read_from_s3_too(
    tmp_path: Path, upload: Callable[[Path, str], str]
) -> None:
    values = made(tmp_path / "a.zarr")
    with bf.open(tmp_path / "a.zarr", "r+").session(settle="later") as session:
        session.write("g/t", np.full((2, 60, 80), 7, "f4"), start=(9, 0, 0))
        session.commit()
    values[9:11] = 7
    upload(tmp_path / "a.zarr.bedform-log", "pending/a.zarr.bedform-log")
    store = bf.open(upload(tmp_path / "a.zarr", "pending/a.zarr"))
    for selection in SELECTIONS:
        np.testing.assert_array_equal(store["g/t"][selection], values[selection])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_stores_of_others_in_s3_are_read(
    tmp_path: Path, upload: Callable[[Path, str], str], zarr_format: Any
) -> None:
    values = np.arange(24.0).reshape(4, 6)
    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=zarr_format)
    group.create_array("below/a", data=values, chunks=(3, 4))
    store = bf.open(upload(tmp_path / "z", f"others/{zarr_format}"))
    assert list(store.arrays()) == ["below/a"]
    np.testing.assert_array_equal(store["below/a"][1:, 2:], values[1:, 2:])


def test_data_sets_at_urls_are_opened_by_xarray(
    tmp_path: Path, upload: Callable[[Path, str], str]
) -> None:
    data = xr.Dataset({"t": (("y", "x"), np.arange(12.0).reshape(3, 4))}, {"x": [1, 2, 3, 4]})
    bf.write_dataset(data, tmp_path / "d.zarr")
    url = upload(tmp_path / "d.zarr", "d.zarr")
    opened = xr.open_dataset(url, engine="bedform")
    xr.testing.assert_identical(opened.load(), data)
    with pytest.raises(bf.PermissionDeniedError, match="these credentials give no access"):
        xr.open_dataset(url, engine="bedform", storage_options={"anonymous": True})


def test_pickles_and_messages_have_no_secrets(
    tmp_path: Path, upload: Callable[[Path, str], str]
) -> None:
    values = made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "pickled.zarr")
    pickled = pickle.dumps(bf.open(url, storage_options={"region": "us-east-1"}))
    assert SECRET.encode() not in pickled
    array = pickle.loads(pickled)["g/t"]  # noqa: S301 - made above
    np.testing.assert_array_equal(array[3], values[3])
    for secret in (f"s3://key:{SECRET}@bucket/x", f"gs://bucket/x?sig={SECRET}"):
        with pytest.raises(bf.InvalidArgumentError, match="in the environment") as refused:
            bf.open(secret)
        assert SECRET not in str(refused.value)
        assert SECRET not in cli("info", secret)
    # A file's URL may have a query, which no message contains.
    of_file = f"http://127.0.0.1:1/x?sig={SECRET}"
    with pytest.raises(bf.IoError, match=r"127\.0\.0\.1:1/x") as unreachable:
        bf.open(of_file)
    assert SECRET not in str(unreachable.value)
    assert SECRET not in cli("info", of_file)


@pytest.mark.parametrize(("cache", "freshness"), [(0, "open"), ("256 MiB", "read")])
def test_what_is_replaced_between_two_reads_is_read_anew(
    tmp_path: Path, upload: Callable[[Path, str], str], cache: Any, freshness: Any
) -> None:
    values = made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "replaced.zarr")
    array = bf.open(url, cache=cache, freshness=freshness)["g/t"]
    np.testing.assert_array_equal(array[:], values)
    bf.open(tmp_path / "a.zarr", "r+")["g/t"][:10] = 5
    upload(tmp_path / "a.zarr", "replaced.zarr")
    values[:10] = 5
    np.testing.assert_array_equal(array[:], values)


def test_errors_say_what_is_missing(upload: Callable[[Path, str], str], tmp_path: Path) -> None:
    with pytest.raises(bf.IoError, match="there is no such bucket"):
        bf.open("s3://nobody-has-this/a.zarr")
    with pytest.raises(bf.NotFoundError, match="is not a Zarr store"):
        bf.open("s3://bucket/nothing-here")
    made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "read-only.zarr")
    with pytest.raises(bf.InvalidArgumentError, match="HTTP servers are only read"):
        bf.open("http://127.0.0.1:9/a.zarr", "r+")
    with pytest.raises(bf.InvalidArgumentError, match="there is no storage option 'key'"):
        bf.open(url, storage_options={"key": SECRET})
    with pytest.raises(bf.InvalidArgumentError, match="'anonymous' must be a bool"):
        bf.open(url, storage_options={"anonymous": "yes"})
    for name in ("deadline_seconds", "stall_seconds", "bytes_per_second_min"):
        for value in (True, None, [1]):
            with pytest.raises(bf.InvalidArgumentError, match=f"'{name}' must be a int or "):
                bf.open(url, storage_options={name: value})
    with pytest.raises(bf.InvalidArgumentError, match="deadline_seconds must be a number of"):
        bf.open(url, storage_options={"deadline_seconds": 0})
    with pytest.raises(bf.InvalidArgumentError, match="bytes_per_second_min"):
        bf.open(url, storage_options={"bytes_per_second_min": "1K"})
    patient = {"deadline_seconds": 90, "stall_seconds": 2.5, "bytes_per_second_min": "2 KiB"}
    bf.open(url, storage_options=patient)
    with pytest.raises(bf.InvalidArgumentError, match="must be a dictionary"):
        bf.open(url, storage_options=["anonymous"])  # type: ignore[arg-type]
    with pytest.raises(bf.InvalidArgumentError, match="no name between two of its slashes"):
        bf.open(url.replace("bucket/", "bucket//"))
    bf.open(url.replace("s3:", "S3:"))
    with pytest.raises(bf.InvalidArgumentError, match="for the URLs"):
        bf.open(tmp_path / "a.zarr", storage_options={"anonymous": True})
    with pytest.raises(bf.InvalidArgumentError, match="s3://, gs://"):
        bf.open("ftp://host/a.zarr")
    for endpoint in ("", "localhost", "localhost:9000"):
        with pytest.raises(bf.InvalidArgumentError, match="the endpoint is no URL of a server"):
            bf.open(url, storage_options={"endpoint": endpoint})
    for url in ("s3://bucket/a/../b", "s3://bucket/./a"):
        with pytest.raises(bf.InvalidArgumentError, match="object stores have no"):
            bf.open(url)


def test_credentials_are_those_of_the_vendors_tools(
    tmp_path: Path, upload: Callable[[Path, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "profile.zarr")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(bf.InvalidArgumentError, match="there are no credentials: set AWS_ACC"):
        bf.open(url)
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = other\n[lab]\naws_access_key_id = key\n"
        f"aws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / "config").write_text("[profile lab]\nregion = us-east-1\n")
    with pytest.raises(bf.InvalidArgumentError, match="there are no credentials"):
        bf.open(url)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    np.testing.assert_array_equal(bf.open(url)["g/t"][17], values[17])


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of their own for the profiles of a test."""
    place = tmp_path / "profiles"
    monkeypatch.setenv("BEDFORM_PROFILES", str(place))
    return place


def keys_below(endpoint: str, prefix: str) -> list[str]:
    """The names of objects."""
    listed = client_of(endpoint).list_objects_v2(Bucket="bucket", Prefix=prefix)
    return [found["Key"] for found in listed.get("Contents", [])]


def test_a_calibrated_store_is_read_and_advised_by_its_profile(
    tmp_path: Path, upload: Callable[[Path, str], str], endpoint: str, profiles: Path
) -> None:
    made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "calibrated/a.zarr")
    advised = ("advise", url, "g/t", "--reads", "y,x=1")
    assert f"prices from an assumed object store: run bedform calibrate {url}" in cli(*advised)
    said = []
    profile = bf.calibrate(
        "s3://bucket/calibrated",
        bytes=8 << 20,
        seconds=0.5,
        progress=lambda *at: said.append(at[0]),
    )
    assert "writing objects to read" in said
    assert keys_below(endpoint, "calibrated/.bedform") == []
    kept = [file.name for file in profiles.iterdir()]
    assert kept == [f"s3_{endpoint.removeprefix('http://').replace(':', '%3A')}_bucket.json"]
    assert bf.Profile.for_path(url).to_dict() == profile.to_dict()
    options = {"endpoint": endpoint.replace("127.0.0.1", "localhost")}
    assert bf.Profile.for_path(url, storage_options=options) is None
    explained = bf.open(url)["g/t"].explain(np.s_[3])
    assert explained.to_dict()["profile"] == "s3://bucket/calibrated"
    by_profile = "prices from the profile of s3://bucket/calibrated"
    assert by_profile in cli(*advised)
    shape = ("advise", "--shape", "400,90,180", "--profile")
    assert by_profile in cli(*shape, "s3://bucket/any/other")
    assert "an assumed object store" in cli(*shape, "s3://another-bucket/x")


def test_a_calibration_that_is_stopped_leaves_no_object(
    upload: Callable[[Path, str], str],
    endpoint: str,
    profiles: Path,
) -> None:
    class StoppedError(Exception):
        pass

    def stop(stage: str, _: float) -> None:
        if stage.startswith("asking for one"):
            assert keys_below(endpoint, "calibrated/")
            raise StoppedError

    with pytest.raises(StoppedError):
        bf.calibrate("s3://bucket/calibrated", bytes=8 << 20, seconds=0.5, progress=stop)
    assert keys_below(endpoint, "calibrated/") == []
    assert not profiles.exists()


def test_the_command_line_takes_urls(tmp_path: Path, upload: Callable[[Path, str], str]) -> None:
    made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "shown.zarr")
    assert "g/t" in cli("info", url)
    assert cli("verify", url).startswith("0\n")
    assert "requests" in cli("explain", url, "g/t", ":,30,40")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files without range support."""

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def test_a_plain_server_of_files_will_do(tmp_path: Path) -> None:
    values = made(tmp_path / "a b.zarr")
    with served(tmp_path) as server:
        store = bf.open(f"{server}/a%20b.zarr")
        for selection in SELECTIONS:
            np.testing.assert_array_equal(store["g/t"][selection], values[selection])


class Ranges(Quiet):
    """A server of files with ranges and versions, which records requests."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer with a part."""
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            return self.answer(404)
        body, tag = file.read_bytes(), f'"{zlib.crc32(file.read_bytes())}"'
        self.asked.append(self.path)
        if self.headers.get("If-Match", tag) != tag:
            return self.answer(412)
        start, end = 0, len(body)
        if wanted := self.headers.get("Range", "").removeprefix("bytes="):
            first, _, last = wanted.partition("-")
            start = int(first) if first else max(end - int(last), 0)
            end = min(int(last) + 1, end) if first and last else end
        headers = {"ETag": tag, "Last-Modified": "Mon, 23 Nov 2026 00:00:00 GMT"}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        return self.answer(206 if wanted else 200, headers, body[start:end])

    do_HEAD = do_GET  # noqa: N815 - the name that is called

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Send status, headers and body."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def served(place: Path, kind: type[Quiet] = Quiet) -> Iterator[str]:
    """Serves a directory, without ETags, and with times in seconds."""
    handler = functools.partial(kind, directory=str(place))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("freshness", ["open", "read"])
def test_objects_of_one_size_and_time_are_not_taken_for_each_other(
    tmp_path: Path, freshness: str
) -> None:
    values = np.arange(64 * 64, dtype="int32").reshape(64, 64)
    layout = bf.Regular(chunks=(8, 8), shards=(16, 16))
    array = bf.create(tmp_path / "a.zarr").create_array(
        "t", shape=values.shape, dtype="int32", layout=layout, codecs=["crc32c"]
    )
    array[...] = values
    for file in (tmp_path / "a.zarr").rglob("*"):
        os.utime(file, (1e9, 1e9))
    with served(tmp_path) as server:
        opened = bf.open(f"{server}/a.zarr", freshness=freshness)["t"]
        for _ in range(2):
            assert np.array_equal(opened[...], values)
            for at in range(0, 64, 16):
                part = (slice(at, at + 16), slice(16, 32))
                assert np.array_equal(opened[part], values[part])


class InPieces(Quiet):
    """A server that never states the length of a file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a piece of a file, and the end."""
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command != "HEAD":
            body = file.read_bytes()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    do_HEAD = do_GET  # noqa: N815 - the name that is called


def test_a_server_that_tells_no_lengths_is_said_to_lack_them(tmp_path: Path) -> None:
    made(tmp_path / "a.zarr")
    with served(tmp_path, InPieces) as server, pytest.raises(bf.IoError) as told:
        bf.open(f"{server}/a.zarr")
    assert "let it send Content-Length, files as they are" in str(told.value)
    assert "\n" not in str(told.value)


def port_of(url: str) -> int:
    """The port in the URL of a server."""
    return int(url.rpartition(":")[2])


def test_who_may_not_list_is_told_what_a_store_holds_and_that_it_is_whole(
    tmp_path: Path, upload: Callable[[Path, str], str], endpoint: str
) -> None:
    made(tmp_path / "a.zarr")
    url = upload(tmp_path / "a.zarr", "unlisted/a.zarr")
    with DenyingProxy(port_of(endpoint), "list") as server:
        store = bf.open(url, storage_options={"endpoint": server.url})
        info = store.info()
        assert list(info["arrays"]) == ["g/t"]
        assert info["log"] == {
            "commits": 0,
            "segments": 0,
            "bytes": 0,
            "segments_open": None,
            "tiers": [],
        }
        assert store["g/t"].stored_objects() == (12, 12)
        assert store.verify() == []
        shard = "unlisted/a.zarr/g/t/c/0/1/0"
        client_of(endpoint).put_object(Bucket="bucket", Key=shard, Body=b"no shard")
        assert shard in store.verify()[0]
        # The server does not tell whether it is missing or denied.
        client_of(endpoint).delete_object(Bucket="bucket", Key=shard)
        for call in (store.verify, store["g/t"].stored_objects):
            with pytest.raises(bf.PermissionDeniedError, match=r"may not list it.*s3:ListBucket"):
                call()
        # A handle with the shard's index requests chunks; another one opens the shard.
        again = bf.open(url, storage_options={"endpoint": server.url})
        with pytest.raises(bf.PermissionDeniedError, match=r"not there and they may not list"):
            again["g/t"][:]


def test_a_plain_server_of_files_is_verified(tmp_path: Path) -> None:
    made(tmp_path / "a.zarr")
    with served(tmp_path) as server:
        store = bf.open(f"{server}/a.zarr")
        assert store.verify() == []
        (tmp_path / "a.zarr/g/t/c/0/1/0").unlink()
        assert store["g/t"].stored_objects() == (11, 12)
        assert store.verify() == []
        (tmp_path / "a.zarr/g/t/c/1/1/1").write_bytes(b"no shard")
        assert "g/t/c/1/1/1" in "".join(store.verify())


def test_who_may_only_read_calibrates_by_an_object_that_is_named(
    upload: Callable[[Path, str], str], endpoint: str, profiles: Path
) -> None:
    assert upload
    assert profiles
    body = os.urandom(2 << 20)
    client_of(endpoint).put_object(Bucket="bucket", Key="unlisted/object", Body=body)
    with DenyingProxy(port_of(endpoint), "list", "write") as server:
        options = {"endpoint": server.url}
        for url in ("s3://bucket", "s3://bucket/unlisted"):
            told = rf"{url}.*may not list.*s3:ListBucket.*the URL of an object of 1 MiB or more"
            with pytest.raises(bf.PermissionDeniedError, match=told):
                bf.calibrate(url, seconds=0.2, storage_options=options)
        bf.calibrate("s3://bucket/unlisted/object", seconds=0.2, storage_options=options)


def foreign_group(path: Path, zarr_format: Any, *, is_consolidated: bool) -> np.ndarray[Any, Any]:
    """Two arrays of another program, one of them in a group, and the values of both."""
    values = np.arange(600, dtype="int32").reshape(20, 30)
    group = zarr.create_group(path, zarr_format=zarr_format)
    for array in (
        group.create_array("t", shape=values.shape, dtype="int32", chunks=(10, 10)),
        group.create_group("g").create_array("u", shape=values.shape, dtype="int32"),
    ):
        array[:] = values
        array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    if is_consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(str(path))
    return values


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("is_consolidated", [True, False])
def test_stores_of_others_that_nobody_may_list_are_read(
    tmp_path: Path, is_consolidated: bool, zarr_format: Any
) -> None:
    values = foreign_group(tmp_path / "a.zarr", zarr_format, is_consolidated=is_consolidated)
    with served(tmp_path) as server:
        opened = bf.open(f"{server}/a.zarr")
        for name in ("t", "g/u"):
            assert np.array_equal(opened[name][...], values)
        if is_consolidated:
            assert sorted(opened) == ["g", "t"]
            assert list(opened["g"]) == ["u"]


def test_consolidated_metadata_of_v2_are_read_for_their_names_alone(tmp_path: Path) -> None:
    values = foreign_group(tmp_path / "a.zarr", 2, is_consolidated=True)
    consolidated = tmp_path / "a.zarr" / ".zmetadata"
    document = json.loads(consolidated.read_text())
    documents = dict.fromkeys(document["metadata"], "no document")
    document["metadata"] = {**documents, ".zattrs": {"many": [1] * 1_000_000}}
    consolidated.write_text(json.dumps(document))
    with served(tmp_path) as server:
        opened = bf.open(f"{server}/a.zarr")
        assert sorted(opened) == ["g", "t"]
        assert np.array_equal(opened["g/u"][...], values)
    consolidated.write_text(json.dumps(document)[:-1])
    with served(tmp_path) as server, pytest.raises(bf.CorruptError, match="zmetadata"):
        list(bf.open(f"{server}/a.zarr"))


def test_data_sets_of_v2_that_nobody_may_list_are_opened_by_xarray(tmp_path: Path) -> None:
    foreign_group(tmp_path / "a.zarr", 2, is_consolidated=True)
    with served(tmp_path) as server:
        for group in (None, "g"):
            expected = xr.open_dataset(
                tmp_path / "a.zarr", engine="zarr", group=group, consolidated=True
            )
            opened = xr.open_dataset(f"{server}/a.zarr", engine="bedform", group=group)
            xr.testing.assert_identical(opened.load(), expected.load())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_who_may_not_list_is_told_how_to_name_arrays(tmp_path: Path, zarr_format: Any) -> None:
    foreign_group(tmp_path / "a.zarr", zarr_format, is_consolidated=False)
    with served(tmp_path) as server:
        url = f"{server}/a.zarr"
        told = f"{url}: .*no consolidated metadata.*by their paths, or consolidate the metadata"
        with pytest.raises(bf.PermissionDeniedError, match=told):
            list(bf.open(url))
        with pytest.raises(bf.PermissionDeniedError, match=told):
            xr.open_dataset(url, engine="bedform")
        with pytest.raises(bf.NotFoundError, match="no array or group 'none'"):
            bf.open(url)["none"]


def test_what_large_chunks_take_is_told_by_streams_and_room(tmp_path: Path) -> None:
    chunk = 32 << 20
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("t", shape=(12, chunk), chunks=(1, chunk), dtype="u1", compressors=None)
    for row in range(12):
        part = tmp_path / f"a.zarr/t/c/{row}/0"
        part.parent.mkdir(parents=True)
        with part.open("wb") as file:
            file.truncate(chunk)
    facts = bf.Profile.default("s3://").to_dict()
    facts["profile"]["read_bytes_per_second_many"] = 2e9
    profile = bf.Profile(facts)
    alone = chunk / profile.to_dict()["profile"]["read_bytes_per_second_one"]
    with served(tmp_path) as server:
        array = bf.open(f"{server}/a.zarr", profile=profile, threads=2)["t"]

        def seconds(rows: Any) -> float:
            told: float = array.explain(rows).to_dict()["predicted_cold_seconds"]
            return told

        assert alone < seconds(np.s_[:1]) <= seconds(np.s_[:4]) < 1.5 * alone
        # At most 256 MiB of answers are awaited at a time.
        assert seconds(np.s_[:]) > 1.5 * alone


@pytest.fixture
def ranges(tmp_path: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """Starts a server of the test's directory; yields its URL, and a counter of shard requests."""
    handler = functools.partial(Ranges, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def count() -> int:
        asked = [path for path in Ranges.asked if "/c/" in path]
        Ranges.asked.clear()
        return len(asked)

    count()
    yield f"http://127.0.0.1:{server.server_port}", count
    server.shutdown()
    server.server_close()


Served = tuple[str, "Callable[[], int]"]


def noise(path: Path, shape: tuple[int, ...], layout: bf.Regular) -> np.ndarray[Any, Any]:
    """A store of one array that does not compress, and its values."""
    values = np.random.default_rng(1).integers(0, 256, shape, "u1")
    bf.create(path).create_array("t", shape, "u1", layout=layout)[:] = values
    return values


def test_a_shard_that_is_wanted_whole_and_soon_there_is_one_request(
    tmp_path: Path, ranges: Served
) -> None:
    url, count = ranges
    values = noise(tmp_path / "a.zarr", (48, 1 << 17), bf.Regular((1, 1 << 17), (24, 1 << 17)))
    array = bf.open(f"{url}/a.zarr", cache=0)["t"]
    # A single row is faster alone; for most of the rows one request beats two waits.
    for selection, asked, whole in [(np.s_[:], 2, 2), (np.s_[:20], 1, 1), (np.s_[3], 2, 0)]:
        plan = array.explain(selection).to_dict()
        count()
        np.testing.assert_array_equal(array[selection], values[selection])
        assert (count(), plan["requests"], plan["objects_in_one_request"]) == (asked, asked, whole)
    # With a near server the transferred bytes dominate.
    near = bf.Profile.default("s3://").to_dict()
    near["profile"] |= {"request_seconds_one": 1e-5, "request_seconds_many": 1e-6}
    array = bf.open(f"{url}/a.zarr", cache=0, profile=bf.Profile(near))["t"]
    plan = array.explain(np.s_[:]).to_dict()
    assert plan["objects_in_one_request"] == 0
    count()
    np.testing.assert_array_equal(array[:], values)
    assert count() == plan["requests"] > 2


def test_a_shard_whose_index_is_known_is_not_opened_again(tmp_path: Path, ranges: Served) -> None:
    url, count = ranges
    values = noise(tmp_path / "a.zarr", (64, 1 << 17), bf.Regular((1, 1 << 17), (64, 1 << 17)))
    array = bf.open(f"{url}/a.zarr")["t"]
    np.testing.assert_array_equal(array[3], values[3])
    assert count() == 2
    assert array.explain(np.s_[5]).to_dict()["requests"] == 1
    for row, asked in [(5, 1), (3, 0), (6, 1)]:
        np.testing.assert_array_equal(array[row], values[row])
        assert count() == asked
    # The next request notices a replaced shard, and the read is planned again.
    bf.open(tmp_path / "a.zarr", "r+")["t"][:] = values[::-1]
    np.testing.assert_array_equal(array[9], values[::-1][9])
    assert count() == 1 + 2
    np.testing.assert_array_equal(array[3], values[::-1][3])


def test_who_looks_for_changes_before_every_read_finds_them(tmp_path: Path, ranges: Served) -> None:
    url, _ = ranges
    values = noise(tmp_path / "a.zarr", (64, 1 << 17), bf.Regular((1, 1 << 17), (64, 1 << 17)))
    array = bf.open(f"{url}/a.zarr", freshness="read")["t"]
    np.testing.assert_array_equal(array[3], values[3])
    bf.open(tmp_path / "a.zarr", "r+")["t"][:] = values[::-1]
    np.testing.assert_array_equal(array[3], values[::-1][3])


def test_texts_of_an_object_that_was_replaced_are_read_anew(tmp_path: Path, ranges: Served) -> None:
    url, _ = ranges
    array = bf.create(tmp_path / "a.zarr").create_array("t", (4,), str)
    array[:] = ["a", "b", "c", "d"]
    there = bf.open(f"{url}/a.zarr", cache=1 << 20)["t"]
    assert list(there[:]) == ["a", "b", "c", "d"]
    array[:] = ["e", "f", "g", "h"]
    assert list(there[:2]) == ["e", "f"]


def test_shards_that_come_whole_are_requests_of_a_workload(
    upload: Callable[[Path, str], str], tmp_path: Path
) -> None:
    layout = bf.Regular(chunks=(4, 4), shards=(8, 8))
    array = bf.create(tmp_path / "whole.zarr").create_array("t", (32, 16), "f4", layout=layout)
    array[:] = np.random.default_rng(1).normal(size=(32, 16))
    url = upload(tmp_path / "whole.zarr", "bucket")
    # Each handle has its own store, since one would use the objects that the other has opened.
    planned = bf.open(url)["t"].explain(np.s_[:, 3]).to_dict()
    (client,) = bf.open(url)["t"].workload(np.s_[:, 3])["clients"]
    reads = [one for one in client["operations"] if "read" in one]
    assert planned["objects_in_one_request"] == len(reads) == 4
