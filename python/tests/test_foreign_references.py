"""H7: references of a foreign file to other files are followed only if the caller allows it.

The referenced file holds a secret. Every route through Bedform is tried with every kind of
reference. The kernel reports (inotify) whether the secret was opened, and no output may contain it.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import warnings
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import bedform as bf
from bedform.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.reliability

SECRET = 1234567
_IN_ACCESS, _IN_OPEN = 0x1, 0x20


class Watch:
    """Reports whether files were opened or read, by inotify."""

    def __init__(self, *paths: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        for path in paths:
            mask = _IN_ACCESS | _IN_OPEN
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
            assert watch >= 0, path

    def was_touched(self) -> bool:
        try:
            return bool(os.read(self._descriptor, 65536))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)


def external_link(name: str) -> Callable[[h5py.File, Path], None]:
    def make(file: h5py.File, secret: Path) -> None:
        named = name.format(secret=secret, up=os.path.relpath(secret, "/"), name=secret.name)
        file["t"] = h5py.ExternalLink(named, "/secret")

    return make


def linked_group(file: h5py.File, secret: Path) -> None:
    file["g"] = h5py.ExternalLink(str(secret), "/")
    file["t"] = h5py.SoftLink("/g/secret")


def chain_of_links(file: h5py.File, secret: Path) -> None:
    file["outside"] = h5py.ExternalLink(str(secret), "/secret")
    for number in range(5):
        before = f"/link{number - 1}" if number else "/outside"
        file[f"link{number}"] = h5py.SoftLink(before)
    file["t"] = h5py.SoftLink("/link4")


def deep_link(file: h5py.File, secret: Path) -> None:
    group = file.create_group("a/b/c")
    group["secret"] = h5py.ExternalLink(str(secret), "secret")
    file["t"] = h5py.SoftLink("a/b/c/secret")


def external_storage(
    *parts: tuple[str, int, int], chosen: tuple[int, ...] = (100,)
) -> Callable[[h5py.File, Path], None]:
    def make(file: h5py.File, secret: Path) -> None:
        where = [(name.format(secret=secret), offset, size) for name, offset, size in parts]
        file.create_dataset("t", shape=chosen, dtype="i4", external=where)

    return make


def virtual(name: str) -> Callable[[h5py.File, Path], None]:
    def make(file: h5py.File, secret: Path) -> None:
        layout = h5py.VirtualLayout(shape=(100,), dtype="i4")
        named = name.format(secret=secret)
        layout[:] = h5py.VirtualSource(named, "secret", shape=(100,))
        file.create_virtual_dataset("t", layout)

    return make


def scale_behind_a_link(file: h5py.File, secret: Path) -> None:
    file.create_dataset("t", data=np.arange(3))
    file["t"].dims[0].label = str(secret)
    file["x"] = h5py.ExternalLink(str(secret), "secret")


REFERENCES: dict[str, Callable[[h5py.File, Path], None]] = {
    "an external link by its full path": external_link("{secret}"),
    "an external link by a relative path": external_link("../outside/{name}"),
    "a link to a group outside": linked_group,
    "a chain of soft links that ends outside": chain_of_links,
    "a link in a group of a group": deep_link,
    "external storage": external_storage(("{secret}", 0, 400)),
    "external storage in parts": external_storage(("{secret}", 0, 200), ("{secret}", 512, 200)),
    "external storage of unlimited size": external_storage(("{secret}", 2048, h5py.h5f.UNLIMITED)),
    "a virtual dataset": virtual("{secret}"),
    "a virtual dataset by a relative path": virtual("../outside/secret.h5"),
    "a scale behind a link": scale_behind_a_link,
}


def read_all(path: Path) -> str:
    store = bf.open(path)
    said = [repr(store.refused()), repr(store.info())]
    for name in ["t", "x", "g/secret", "a/b/c/secret", "outside"]:
        try:
            said.append(repr(store[name][...]))
        except bf.BedformError as error:
            said.append(str(error))
    return "\n".join(said)


def command(*words: str) -> Callable[[Path], str]:
    def go(path: Path) -> str:
        arguments = [word.format(path=path, target=path.with_suffix(".zarr")) for word in words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run(arguments)
        assert "Traceback" not in err.getvalue()
        return out.getvalue() + err.getvalue()

    return go


ROUTES: dict[str, Callable[[Path], str]] = {
    "open and read": read_all,
    "info": command("info", "{path}"),
    "verify": command("verify", "{path}"),
    "convert": command("convert", "{path}", "{target}"),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "outside" / "secret.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["secret"] = np.full(2000, SECRET, "i4")
    yield path


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("reference", REFERENCES)
def test_a_reference_to_another_file_is_refused(
    reference: str, route: str, secret: Path, tmp_path: Path
) -> None:
    path = tmp_path / "data" / "file.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file.create_dataset("good", data=np.arange(10))
        REFERENCES[reference](file, secret)
    watch = Watch(secret)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = ROUTES[route](path)
        assert not watch.was_touched()
    finally:
        watch.close()
    assert str(SECRET) not in said
    target = path.with_suffix(".zarr")
    if target.exists():
        for name, kind in bf.open(target)._inner.nodes():
            if kind == "array":
                assert SECRET not in bf.open(target)[name][...]
    print("\nCOUNT reference_cases 1")  # noqa: T201 - the stage reads it


def test_the_watch_sees_what_is_opened(secret: Path) -> None:
    watch = Watch(secret)
    assert not watch.was_touched()
    secret.read_bytes()
    assert watch.was_touched()
    watch.close()


def test_what_is_allowed_is_read(secret: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["t"] = h5py.ExternalLink(str(secret), "/secret")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = bf.open(path, allow_external=True)["t"][...]
    assert (values == SECRET).all()


def test_a_file_that_is_not_there_spoils_no_file_that_links_to_it(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["t"] = [1.0, 2.0]
        file["gone"] = h5py.ExternalLink("gone.h5", "/t")
        file["wrong"] = h5py.ExternalLink("file.h5", "/nowhere")
    with bf.open(path, allow_external=True) as store:
        assert store["t"][...].tolist() == [1.0, 2.0]
        assert set(store.refused()) == {"gone", "wrong"}
        assert "no such array can be opened" in store.refused()["gone"]


def test_no_plugin_beside_the_data_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((10,))
        properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((10,))
        h5py.h5d.create(file.id, b"t", h5py.h5t.NATIVE_INT32, space, properties)
    plugin = tmp_path / "libh5plugin.so"
    plugin.write_bytes(b"\x7fELF not a library")
    watch = Watch(plugin)
    with warnings.catch_warnings(), contextlib.suppress(bf.BedformError):
        warnings.simplefilter("ignore")
        bf.open(path)["t"][...]
    assert not watch.was_touched()
    watch.close()
    print("\nCOUNT reference_cases 1")  # noqa: T201 - the stage reads it


def test_no_module_beside_the_data_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without precautions Python searches the working directory for modules first."""
    directory = tmp_path / "data"
    directory.mkdir()
    with h5py.File(directory / "other.h5", "w") as file:
        file["t"] = [1.0]
    with h5py.File(directory / "file.h5", "w") as file:
        file["names"] = ["a", "b"]
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/t")
    for name in ("base64", "json", "h5py", "hdf5plugin", "netCDF4", "bedform"):
        (directory / f"{name}.py").write_text("open('was run', 'w').close()\nraise ImportError\n")
    monkeypatch.chdir(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for allow_external in (False, True):
            with bf.open("file.h5", allow_external=allow_external) as store:
                assert store["names"][...].tolist() == ["a", "b"]
    assert not (directory / "was run").exists()
    print("\nCOUNT reference_cases 1")  # noqa: T201 - the stage reads it
