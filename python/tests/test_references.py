"""References into other files: read as the store that they form, or refused in one line."""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from range_server import serving
from support import PATIENCE

import bedform as bf
from bedform.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable

RANDOM = np.random.default_rng(7)
T = RANDOM.integers(1, 1000, (10, 20, 30)).astype("<f4")
Z = np.arange(1, 21, dtype="<i8") * 3
GROUP = json.dumps({"zarr_format": 2})


def document(array: h5py.Dataset) -> str:
    """Returns the Zarr v2 document of an HDF5 dataset."""
    filters = [{"id": "shuffle", "elementsize": array.dtype.itemsize}] if array.shuffle else None
    return json.dumps(
        {
            "zarr_format": 2,
            "shape": array.shape,
            "chunks": array.chunks or array.shape,
            "dtype": array.dtype.str,
            "order": "C",
            "fill_value": 0,
            "filters": filters,
            "compressor": {"id": "zlib", "level": 4} if array.compression else None,
        }
    )


def references(path: Path, dims: dict[str, list[str]], target: str | None = None) -> dict[str, Any]:
    """Returns kerchunk's references to the chunks of an HDF5 file, from HDF5's own index."""
    target = str(path) if target is None else target
    refs: dict[str, Any] = {".zgroup": GROUP, ".zattrs": json.dumps({"title": "by hand"})}
    with h5py.File(path) as file:
        for name, names in dims.items():
            array = file[name]
            refs[f"{name}/.zarray"] = document(array)
            refs[f"{name}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": names})
            if array.chunks is None:
                refs[f"{name}/0"] = [target, array.id.get_offset(), array.nbytes]
                continue
            for number in range(array.id.get_num_chunks()):
                chunk = array.id.get_chunk_info(number)
                where = (
                    at // length
                    for at, length in zip(chunk.chunk_offset, array.chunks, strict=True)
                )
                key = f"{name}/{'.'.join(map(str, where))}"
                refs[key] = [target, chunk.byte_offset, chunk.size]
    return refs


DIMS = {"t": ["time", "y", "x"], "z": ["y"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file, and references to it."""
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data/a.nc", "w") as file:
        file.create_dataset("t", data=T, chunks=(3, 20, 11), compression=4, shuffle=True)
        file["z"] = Z
    (tmp_path / "elsewhere").mkdir()
    refs = references(tmp_path / "data/a.nc", DIMS, "data/a.nc")
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refs_of(place: Path) -> dict[str, Any]:
    refs: dict[str, Any] = json.loads((place / "refs.json").read_text())["refs"]
    return refs


def is_read(opened: Any) -> bool:
    """Whether everything has the values of the file."""
    t, z = opened["t"], opened["z"]
    np.testing.assert_array_equal(t[...], T)
    np.testing.assert_array_equal(t[2:9:3, 5, ::7], T[2:9:3, 5, ::7])
    np.testing.assert_array_equal(t.vindex[[9, 0], [3, 19], [29, 1]], T[[9, 0], [3, 19], [29, 1]])
    np.testing.assert_array_equal(z[...], Z)
    return True


def again(handle: Any) -> Any:
    """Returns a handle as another process would unpickle it."""
    return pickle.loads(pickle.dumps(handle))  # noqa: S301 - our own


def said(error: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_references_are_the_store_that_they_name(place: Path) -> None:
    with bf.open("refs.json") as store:
        assert is_read(store)
        assert store["t"].dims == ("time", "y", "x")
        assert dict(store.attrs) == {"title": "by hand"}
        assert store.info()["format"] == "zarr v2"
        assert sorted(store.arrays()) == ["t", "z"]


@pytest.mark.parametrize("form", ["version 0", "templates", "absolute", "file URL", "dictionary"])
def test_all_forms_of_a_set_are_read_alike(place: Path, form: str) -> None:
    refs = refs_of(place)
    targets = {
        "templates": "{{ where }}/{{u}}.nc",
        "absolute": str(place / "data/a.nc"),
        "file URL": (place / "data/a.nc").as_uri(),
    }
    target = targets.get(form, "data/a.nc")
    refs = {
        key: [target, *value[1:]] if isinstance(value, list) else value
        for key, value in refs.items()
    }
    whole: dict[str, Any] = {"version": 1, "templates": {"u": "a", "where": "data"}, "refs": refs}
    if form == "dictionary":
        assert is_read(bf.open(whole)) and is_read(bf.open(refs))
        return
    Path("other.json").write_text(json.dumps(refs if form == "version 0" else whole))
    assert is_read(bf.open("other.json"))


def test_values_may_be_inline_as_text_and_as_base64_and_documents_as_objects(place: Path) -> None:
    refs = refs_of(place)
    refs["z/0"] = "base64:" + base64.b64encode(Z.tobytes()).decode()
    refs["z/.zarray"] = json.loads(refs["z/.zarray"])
    Path("refs.json").write_text(json.dumps(refs))
    assert is_read(bf.open("refs.json"))
    # Bytes are allowed in a dictionary of references.
    assert is_read(bf.open({**refs, "z/0": Z.tobytes()}))


def test_a_whole_file_is_a_chunk_and_a_key_that_is_not_there_is_the_fill_value(place: Path) -> None:
    refs = refs_of(place)
    Path("data/z.bin").write_bytes(Z.tobytes())
    refs["z/0"] = ["data/z.bin"]
    del refs["t/0.0.0"]
    store = bf.open(refs)
    expected = T.copy()
    expected[:3, :, :11] = 0
    np.testing.assert_array_equal(store["t"][...], expected)
    np.testing.assert_array_equal(store["z"][...], Z)


def test_variables_of_a_classic_netcdf_file_are_ranges_of_it(place: Path) -> None:
    with netCDF4.Dataset("data/c.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 50)
        file.createVariable("v", "f8", ("x",))[:] = np.arange(50.0)
    size = Path("data/c.nc").stat().st_size
    array = {"zarr_format": 2, "shape": [50], "chunks": [50], "dtype": ">f8", "order": "C"}
    array |= {"fill_value": None, "filters": None, "compressor": None}
    refs = {".zgroup": GROUP, "v/.zarray": json.dumps(array), "v/0": ["data/c.nc", size - 400, 400]}
    store = bf.open(refs)
    assert store["v"][...].tolist() == list(range(50))
    assert store["v"][7:40:3].tolist() == list(range(7, 40, 3))


def test_bytes_of_keys_are_those_that_fsspec_reads(place: Path) -> None:
    refs = refs_of(place)
    system = fsspec.filesystem(
        "reference", fo=refs, remote_protocol="file", skip_instance_cache=True
    )
    filled = np.zeros(T.shape, T.dtype)
    for key in (key for key in refs if key.startswith("t/0.")):
        assert system.cat(key)
    store = bf.open("refs.json")
    filled[...] = store["t"][...]
    np.testing.assert_array_equal(filled, T)


def test_xarray_reads_what_it_reads_of_the_file(place: Path) -> None:
    opened = xr.open_dataset("refs.json", engine="bedform")
    np.testing.assert_array_equal(opened["t"].values, T)
    assert opened["t"].dims == ("time", "y", "x") and opened.attrs == {"title": "by hand"}
    series = opened["t"].isel(y=3, x=[1, 29])
    np.testing.assert_array_equal(series.values, T[:, 3, [1, 29]])
    again = xr.open_dataset(refs_of(place), engine="bedform")
    xr.testing.assert_identical(again, opened)


# Which files may be read --------------------------------------------------------------------------


@pytest.fixture
def outside(place: Path) -> str:
    """A file that lies outside of the directory of the references."""
    elsewhere = place / "elsewhere"
    (elsewhere / "sets").mkdir()
    os.link(place / "data/a.nc", elsewhere / "a.nc")
    return str(elsewhere / "a.nc")


def set_in(directory: Path, target: str, refs: dict[str, Any]) -> str:
    """Makes references that name ``target`` for all chunks, in their own directory."""
    moved = {
        key: [target, *value[1:]] if isinstance(value, list) else value
        for key, value in refs.items()
    }
    path = directory / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": moved}))
    return str(path)


def test_files_outside_of_the_directory_are_refused_unless_a_root_is_given(
    place: Path, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = place / "elsewhere/sets"
    (inside / "link.nc").symlink_to(outside)
    (inside / "steps").symlink_to("..")
    for target in (outside, "../a.nc", f"file://{outside}", "link.nc", "steps/a.nc"):
        name = set_in(inside, target, refs_of(place))
        store = bf.open(name)
        message = said(PermissionError, lambda store=store: store["t"][...])
        assert target in message and "allow_external=[" in message
        for roots in (place / "elsewhere", [str(place / "elsewhere")], [outside], True):
            assert is_read(bf.open(name, allow_external=roots)), (target, roots)
        said(PermissionError, lambda n=name: bf.open(n, allow_external=["/usr"])["z"][...])
    monkeypatch.setenv("BEDFORM_ALLOW_EXTERNAL", f"/usr;{place}/elsewhere")
    assert is_read(bf.open(name))


def test_what_lies_elsewhere_is_not_told(place: Path) -> None:
    inside = place / "elsewhere"
    refs = refs_of(place)
    messages = [
        said(PermissionError, lambda t=target: bf.open(set_in(inside, t, refs))["t"][...])
        for target in ("/etc/passwd", "/etc/no-such-file")
    ]
    assert messages[0].replace("passwd", "no-such-file") == messages[1]


@pytest.mark.parametrize(
    "target",
    [
        "s3://bucket/a.nc",
        "https://127.0.0.1:1/a.nc",
        "ftp://host/a.nc",
        "reference://a",
        "memory://a",
        "https://user:password@host/a.nc",
    ],
)
def test_servers_are_not_asked_unless_they_are_allowed(place: Path, target: str) -> None:
    name = set_in(place, target, refs_of(place))
    said(PermissionError, lambda: bf.open(name)["t"][...])
    said(PermissionError, lambda: bf.open(name, allow_external="s3://bucket/b")["t"][...])


def test_roots_are_checked_and_are_for_references(place: Path) -> None:
    for roots in (7, [None], b"x", {"a": 1}):
        said(ValueError, lambda roots=roots: bf.open("refs.json", allow_external=roots))
    said(ValueError, lambda: bf.open("refs.json", allow_external=["ftp://host"]))
    said(ValueError, lambda: bf.open("data/a.nc", allow_external=["/usr"]))


# Files that are not what the references say -------------------------------------------------------


def test_a_file_that_is_gone_or_shorter_is_an_error_that_names_it_and_no_fill_value(
    place: Path,
) -> None:
    bytes_of_file = Path("data/a.nc").read_bytes()
    Path("data/a.nc").rename("data/b.nc")
    message = said(bf.CorruptError, lambda: bf.open("refs.json")["t"][...])
    assert "data/a.nc" in message and "it does not exist" in message
    Path("data/a.nc").write_bytes(bytes_of_file[:4000])
    message = said(bf.CorruptError, lambda: bf.open("refs.json")["t"][...])
    assert "data/a.nc" in message and "it has 4000 bytes" in message
    Path("data/a.nc").unlink()
    Path("data/a.nc").mkdir()
    assert "data/a.nc" in said(bf.CorruptError, lambda: bf.open("refs.json")["t"][...])


def test_a_file_that_changes_under_an_opened_set_is_an_error_that_names_it(place: Path) -> None:
    store = bf.open("refs.json", cache=0)
    assert is_read(store)
    changed = bytearray(Path("data/a.nc").read_bytes())
    changed[-400:] = bytes(400)
    Path("data/other.nc").write_bytes(changed)
    Path("data/other.nc").rename("data/a.nc")
    message = said(bf.CorruptError, lambda: store["t"][...])
    assert "data/a.nc" in message and "has changed" in message
    # A new handle takes the file as it is.
    assert bf.open("refs.json")["z"].shape == (20,)


def test_the_cache_does_not_serve_what_a_changed_file_had(place: Path) -> None:
    store = bf.open("refs.json")
    assert is_read(store)
    os.utime("data/a.nc", (1, 1))
    said(bf.CorruptError, lambda: store["t"][...])


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 1, "refs": {"t/0": ["a.nc", -1, 10]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 1.5, 10]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 1e3, 10]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 18446744073709551615, 10]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 9223372036854775807, 9223372036854775807]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 0]}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 0, 1, 2]}}',
        '{"version": 1, "refs": {"t/0": []}}',
        '{"version": 1, "refs": {"t/0": [null]}}',
        '{"version": 1, "refs": {"t/0": ["a\\u0000.nc"]}}',
        '{"version": 1, "refs": {"t/0": null}}',
        '{"version": 1, "refs": {"t/0": 7}}',
        '{"version": 1, "refs": {"t/0": "base64:!!!"}}',
        '{"version": 1, "refs": {"../t/0": "x"}}',
        '{"version": 1, "refs": {"/t/0": "x"}}',
        '{"version": 1, "refs": {"": "x"}}',
        '{"version": 1, "refs": {"t\\u001b[2J": "x"}}',
        '{"version": 1, "refs": {"a": "x", "a": "y"}}',
        '{"version": 1, "refs": {}, "refs": {"a": "x"}}',
        '{"version": 2, "refs": {}}',
        '{"version": 1, "refs": {"t/0": ["{{u}}", 0, 1]}}',
        '{"version": 1, "templates": {"u": "{{c}}"}, "refs": {"t/0": ["{{u}}", 0, 1]}}',
        '{"version": 1, "templates": {"u": "x"}, "refs": {"t/0": ["{{u(c=1)}}", 0, 1]}}',
        '{"version": 1, "templates": {"u": "x"}, "refs": {"t/0": ["{% raw %}", 0, 1]}}',
        '{"version": 1, "templates": {"u": 1}, "refs": {}}',
        '{"version": 1, "gen": [{"key": "a", "url": "b"}], "refs": {}}',
        '{"version": 1, "refs": {"t/0": ["a.nc", 0, 1]',
        '{"version": 1, "refs": {}} trailing',
        '{"version": 1}',
    ],
)
def test_damaged_references_are_refused_in_a_line_that_names_them(place: Path, text: str) -> None:
    Path("bad.json").write_text(text)
    message = said(bf.BedformError, lambda: bf.open("bad.json"))
    assert "bad.json" in message and "\x1b" not in message


def test_other_documents_are_no_references(place: Path) -> None:
    Path("x.json").write_text('{"type": "FeatureCollection"}')
    assert "a JSON document" in said(NotImplementedError, lambda: bf.open("x.json"))
    said(NotImplementedError, lambda: bf.open(["refs.json"]))
    said(bf.BedformError, lambda: bf.open({"a": object()}))
    said(PermissionError, lambda: bf.open("refs.json", "r+"))


def test_a_set_that_names_itself_is_data_as_any_file(place: Path) -> None:
    refs = refs_of(place)
    refs["z/0"] = ["refs.json", 0, Z.nbytes]
    Path("refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    front = Path("refs.json").read_bytes()[: Z.nbytes]
    assert bf.open("refs.json")["z"][...].tobytes() == front


# Doors --------------------------------------------------------------------------------------------


def test_handles_pickle_with_their_roots_and_those_in_memory_bring_the_references(
    place: Path, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = set_in(place / "elsewhere/sets", outside, refs_of(place))
    opened = [bf.open("refs.json"), bf.open(refs_of(place)), bf.open(name, allow_external=True)]
    opened.append(bf.open("elsewhere/sets/refs.json", allow_external="elsewhere"))
    for store in opened:
        assert is_read(again(store))
        np.testing.assert_array_equal(again(store["z"])[...], Z)
    text = pickle.dumps(opened[1])
    monkeypatch.chdir("/")
    assert is_read(pickle.loads(text))  # noqa: S301 - our own


def test_the_command_line_reads_and_converts_references(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["info", "refs.json", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["format"] == "zarr v2" and set(facts["arrays"]) == {"t", "z"}
    assert run(["explain", "refs.json", "t", "[:, 3, 4]"]) == 0
    assert run(["convert", "refs.json", "out.zarr", "--verify"]) == 0
    assert is_read(bf.open("out.zarr"))


def test_replicas_of_references_are_read_until_the_file_changes(place: Path) -> None:
    values = RANDOM.integers(1, 1000, (150, 40, 50)).astype("<f4")
    with h5py.File("data/large.nc", "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 40, 50), compression=1)
    refs = references(place / "data/large.nc", {"t": ["time", "y", "x"]}, "data/large.nc")
    Path("large.json").write_text(json.dumps(refs))
    assert bf.optimize("large.json", reads={("time",): 1.0}, budget="400%").made

    def replica_reads() -> int:
        store = bf.open("large.json", cache=0)
        np.testing.assert_array_equal(store["t"][:, 3, 4], values[:, 3, 4])
        return sum(replica["reads"] for replica in store.stats()["replicas"])

    assert replica_reads() > 0
    values[:, 3, 4] = 7
    with h5py.File("data/large.nc", "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 40, 50), compression=1)
    made = references(place / "data/large.nc", {"t": ["time", "y", "x"]}, "data/large.nc")
    Path("large.json").write_text(json.dumps(made))
    assert replica_reads() == 0


def test_reads_of_references_are_recorded_and_learnt(place: Path) -> None:
    bf.watch("refs.json")
    store = bf.open("refs.json", cache=0)
    for y in range(12):
        store["t"][:, y, 4]
    del store
    assert bf.learn("refs.json")["knowledge"]["arrays"]["t"]["read"]["reads"] == 12


MANY = """
import json, resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import bedform as bf
values = bf.open("sets/many.json", cache=0, allow_external=True)["v"]
for _ in range(2):
    assert values[...].tolist() == list(range(300))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("pattern", ["{}.bin", "{}/v.bin"])
def test_an_archive_of_more_files_or_directories_than_may_be_open_is_read(
    place: Path, pattern: str
) -> None:
    Path("sets").mkdir()
    array = {"zarr_format": 2, "shape": [300], "chunks": [1], "dtype": "<i4", "order": "C"}
    array |= {"fill_value": None, "filters": None, "compressor": None}
    refs: dict[str, Any] = {".zgroup": GROUP, "v/.zarray": json.dumps(array)}
    for number in range(300):
        file = Path("far", pattern.format(number))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(np.int32(number).tobytes())
        refs[f"v/{number}"] = [f"../{file}", 0, 4]
    Path("sets/many.json").write_text(json.dumps(refs))
    subprocess.run([sys.executable, "-c", MANY], check=True, timeout=PATIENCE)


COUNT = 200_000
LARGE = f"""
import resource, sys
import numpy as np
import bedform as bf
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
values = bf.open("large.json")["v"]
assert values[[0, 12345, {COUNT} - 1]].tolist() == [0, 12345, {COUNT} - 1]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_many_references_take_little_memory(place: Path) -> None:
    np.arange(COUNT, dtype="<i4").tofile("data/v.bin")
    array = {"zarr_format": 2, "shape": [COUNT], "chunks": [1], "dtype": "<i4", "order": "C"}
    array |= {"fill_value": None, "filters": None, "compressor": None}
    refs: dict[str, Any] = {".zgroup": GROUP, "v/.zarray": json.dumps(array)}
    refs |= {f"v/{number}": ["data/v.bin", 4 * number, 4] for number in range(COUNT)}
    Path("large.json").write_text(json.dumps(refs))
    done = subprocess.run(
        [sys.executable, "-c", LARGE], check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    # The document, plus some tens of bytes per key.
    most = Path("large.json").stat().st_size + 150 * COUNT
    assert int(done.stdout) * 1024 < most
    assert resource.RUSAGE_SELF == 0


# Servers ------------------------------------------------------------------------------------------


def test_references_at_a_url_name_files_beside_them(place: Path) -> None:
    with serving(place) as server:
        url = server.url("refs.json")
        assert is_read(bf.open(url))
        opened = xr.open_dataset(url, engine="bedform")
        np.testing.assert_array_equal(opened["t"].values, T)
        assert is_read(again(bf.open(url)))
        (place / "data/a.nc").rename(place / "data/b.nc")
        message = said(bf.CorruptError, lambda: bf.open(url)["t"][...])
        assert "data/a.nc" in message and "does not exist" in message


@pytest.mark.parametrize("name", ["refs.json", "refs", "refs.zarr"])
def test_a_set_at_a_url_is_told_by_its_bytes_and_fetched_once(place: Path, name: str) -> None:
    if name != "refs.json":
        Path("refs.json").rename(name)
    with serving(place) as server:
        store = bf.open(server.url(name))
        fetched = [entry for entry in server.asked if entry[0] == "GET" and entry[1] == f"/{name}"]
        assert len(fetched) == 1
        assert is_read(store)


@pytest.mark.parametrize("has_tags", [True, False])
def test_files_on_a_server_are_read_where_their_root_is_given(place: Path, has_tags: bool) -> None:
    with serving(place) as server:
        server.has_tags = has_tags
        root = server.url("data")
        name = set_in(place / "elsewhere", f"{root}/a.nc", refs_of(place))
        asked = len(server.asked)
        message = said(PermissionError, lambda: bf.open(name)["t"][...])
        assert root in message and len(server.asked) == asked
        said(PermissionError, lambda: bf.open(name, allow_external=[root[:-1]])["t"][...])
        store = bf.open(name, allow_external=[root], cache=0)
        assert is_read(store)
        if has_tags:
            asked = len(server.asked)
            np.testing.assert_array_equal(store["t"][0], T[0])
            assert len(server.asked) - asked <= 3, "a file is opened once"
        changed = bytearray(Path("data/a.nc").read_bytes())
        Path("data/new.nc").write_bytes(changed + b"more")
        Path("data/new.nc").rename("data/a.nc")
        with pytest.raises(bf.BedformError, match=r"a\.nc"):
            store["t"][...]


def test_a_file_that_is_replaced_on_a_server_is_told_of_at_once(place: Path) -> None:
    with serving(place) as server:
        root = server.url("data")
        name = set_in(place / "elsewhere", f"{root}/a.nc", refs_of(place))
        store = bf.open(name, allow_external=[root], cache=0)
        assert is_read(store)
        Path("data/new.nc").write_bytes(Path("data/a.nc").read_bytes() + b"more")
        Path("data/new.nc").rename("data/a.nc")
        asked = len(server.asked)
        message = said(bf.CorruptError, lambda: store["t"][...])
        assert f"{root}/a.nc" in message and "has changed" in message
        # One request per chunk: no request is repeated.
        chunks = sum(key.startswith("t/") and key[2].isdecimal() for key in refs_of(place))
        assert len(server.asked) - asked <= chunks


# Parquet ------------------------------------------------------------------------------------------


@pytest.fixture(params=["pyarrow", "fastparquet"])
def parquet(place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The references in Parquet, four to a file, and one library that reads them."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    pytest.importorskip(request.param)
    refs, size = refs_of(place), 4
    refs["z/0"] = "base64:" + base64.b64encode(Z.tobytes()).decode()
    top = place / "refs.parq"
    top.mkdir()
    documents = {
        key: json.loads(value) for key, value in refs.items() if "/.z" in key or key[0] == "."
    }
    (top / ".zmetadata").write_text(json.dumps({"metadata": documents, "record_size": size}))
    for name, grid in (("t", (4, 1, 3)), ("z", (1,))):
        (top / name).mkdir()
        keys = [f"{name}/{'.'.join(map(str, at))}" for at in np.ndindex(*grid)]
        for first in range(0, len(keys), size):
            values = [refs.get(key) for key in keys[first : first + size]]
            values += [None] * (size - len(values))
            lists = [value if isinstance(value, list) else [None, 0, 0] for value in values]
            raw = [base64.b64decode(v[7:]) if isinstance(v, str) else None for v in values]
            table = pyarrow.table(
                {
                    "path": pyarrow.array([entry[0] for entry in lists], pyarrow.string()),
                    "offset": pyarrow.array([entry[1] for entry in lists], pyarrow.int64()),
                    "size": pyarrow.array([entry[2] for entry in lists], pyarrow.int64()),
                    "raw": pyarrow.array(raw, pyarrow.binary()),
                }
            )
            files.write_table(table, top / name / f"refs.{first // size}.parq")
    if request.param == "fastparquet":
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    return top


def test_references_in_parquet_are_read(parquet: Path) -> None:
    store = bf.open(parquet)
    assert is_read(store) and is_read(again(store))
    opened = xr.open_dataset(parquet, engine="bedform")
    np.testing.assert_array_equal(opened["t"].values, T)


def test_references_in_parquet_are_converted_watched_and_optimized(parquet: Path) -> None:
    assert bf.convert(parquet, "out.zarr", verify=True).verified
    assert is_read(bf.open("out.zarr"))
    bf.watch(parquet)
    bf.open(parquet, cache=0)["t"][:, 3, 4]
    assert bf.learn(parquet)["knowledge"]["arrays"]["t"]["read"]["reads"] == 1
    assert bf.optimize(parquet, reads={("time",): 1.0}, dry_run=True).plan["reads"]


def test_damaged_references_in_parquet_are_refused(parquet: Path) -> None:
    (parquet / "t/refs.1.parq").write_bytes(b"PAR1 nothing PAR1")
    message = said(bf.CorruptError, lambda: bf.open(parquet))
    assert "refs.1.parq" in message
    index = json.loads((parquet / ".zmetadata").read_text())
    for change in ({"record_size": 0}, {"record_size": "x"}, {"metadata": []}):
        (parquet / ".zmetadata").write_text(json.dumps({**index, **change}))
        said(bf.CorruptError, lambda: bf.open(parquet))
    index["metadata"]["t/.zarray"]["shape"] = [2**40, 20, 30]
    (parquet / ".zmetadata").write_text(json.dumps(index))
    said(bf.LimitExceededError, lambda: bf.open(parquet))


def test_metadata_of_zarr_are_no_references_whatever_their_attributes_are(place: Path) -> None:
    array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i4", "order": "C"}
    array |= {"fill_value": 7, "filters": None, "compressor": None}
    documents = {".zgroup": {"zarr_format": 2}, "v/.zarray": array}
    documents |= {"v/.zattrs": {"record_size": 4, "note": "x" * 9000}}
    for name, document in documents.items():
        Path("run.zarr", name).parent.mkdir(parents=True, exist_ok=True)
        Path("run.zarr", name).write_text(json.dumps(document))
    for said_last in ({"zarr_consolidated_format": 1}, {}, {"record_sizes": 4}):
        metadata = json.dumps({"metadata": documents, **said_last})
        for text in (metadata, metadata + " " * 9000):
            Path("run.zarr/.zmetadata").write_text(text)
            assert bf.open("run.zarr")["v"][...].tolist() == [7, 7]


@pytest.mark.parametrize("has_format", [False, True])
def test_an_index_of_parquet_is_one_wherever_it_says_so(parquet: Path, has_format: bool) -> None:
    index = json.loads((parquet / ".zmetadata").read_text())
    attributes = {"note": "x" * 9000, "zarr_consolidated_format": 1}
    index["metadata"][".zattrs"] = attributes if has_format else {"note": attributes["note"]}
    first = {"record_size": index.pop("record_size"), **index}
    last = {**index, "record_size": first["record_size"]}
    for document in (first, last, {**last, "more": "x" * 9000}):
        (parquet / ".zmetadata").write_text(json.dumps(document))
        assert is_read(bf.open(parquet))


def test_references_in_parquet_are_held_to_a_limit(
    parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedform._references._DOCUMENT_BYTES_MAX", 1000)
    message = said(bf.LimitExceededError, lambda: bf.open(parquet))
    assert "refs.parq" in message and "1000 bytes" in message


def test_references_in_parquet_without_a_library_say_what_to_install(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("refs.parq").mkdir()
    Path("refs.parq/.zmetadata").write_text('{"metadata": {}, "record_size": 4}')
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    assert "pip install pyarrow" in said(NotImplementedError, lambda: bf.open("refs.parq"))


# VirtualiZarr -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_virtual_data_set_is_opened_by_its_references(place: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    registry = pytest.importorskip("obspec_utils.registry")
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    dataset = xr.Dataset({"t": (("time", "y", "x"), T), "z": (("y",), Z)})
    encoding = {"t": {"chunksizes": (3, 20, 11), "zlib": True, "shuffle": True}}
    dataset.to_netcdf("data/v.nc", engine="h5netcdf", encoding=encoding)
    virtual = virtualizarr.open_virtual_dataset(
        url=f"file://{place}/data/v.nc",
        registry=registry.ObjectStoreRegistry({"file://": LocalStore()}),
        parser=HDFParser(),
    )
    assert is_read(bf.open(virtual))
    assert is_read(again(bf.open(virtual)))
    opened = xr.open_dataset(virtual, engine="bedform")
    np.testing.assert_array_equal(opened["t"].values, T)
    virtual.virtualize.to_kerchunk("virtual.json", format="json")
    assert is_read(bf.open("virtual.json"))
    pytest.importorskip("fastparquet")
    virtual.virtualize.to_kerchunk("virtual.parq", format="parquet")
    assert is_read(bf.open("virtual.parq"))
