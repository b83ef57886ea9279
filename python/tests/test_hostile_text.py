"""H13: control, bidirectional and invisible characters, wherever text can occur.

No command prints them unescaped, to people or programs, and no text is so long that it hides the
rest. Output for programs (``--json``) decodes to the stored text.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import re
import threading
import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from support import cases

import bedform as bf
from bedform import _shown
from bedform.cli import app, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG = "x" * 10_000_000
TEXTS = [
    "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x07", "a\x08\x08b", "a\rb", "a\nb", "\x7f", "\x9b31m",
    "\x90", "\x85", "\u202etxt.exe", "\u2066a\u2069", "t\u200bt", "t\u200dt", "t\u2060t", "\u2028",
    "\ufeffa", "so\u00adft", "\u061c", "\U000e0041\U000e0042", "[red]a[/red]", LONG,
]  # fmt: skip
#: Most characters of a line of output for people, and of all output.
LINE_MAX, OUTPUT_MAX = 3000, 60_000


def is_hidden(character: str) -> bool:
    """The naive rule by the Unicode database; prepended number signs are visible."""
    kind = unicodedata.category(character)
    signs = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    return kind in {"Cc", "Zl", "Zp", "Cs"} or (
        kind == "Cf" and character not in signs and not "\U00013430" <= character <= "\U0001343f"
    )


def commands(path: str, array: str) -> list[list[str]]:
    """Returns every command that reads existing data."""
    return [
        ["info", path],
        ["info", path, array],
        ["advise", path],
        ["advise", path, array, "--reads", f"{array}=1"],
        ["explain", path, array, "..."],
        ["simulate", path, array, "..."],
        ["convert", path, f"{path}-{'x' * 8}.zarr", "--dry-run"],
        ["verify", path],
        ["settle", path],
        ["settle", path, "--to", f"{path}.out.nc"],
        ["recover", path],
        ["gc", path, "--dry-run"],
        ["report", path, "-o", f"{path}.html"],
    ]


def said_by(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def check(arguments: list[str], forms: tuple[list[str], ...] = ([], ["--json"])) -> int:
    """Runs a command in both forms; returns the number of runs."""
    for form in forms:
        code, out, err = said_by([*arguments, *form])
        short = [text[:80] for text in arguments]
        assert "Traceback" not in err, short
        assert "fault of Bedform" not in err, (short, err[:400])
        hidden = {one for one in out + err if is_hidden(one) and one != "\n"}
        if hidden:
            raise AssertionError(f"{short} {form} lets {hidden!r} through")
        shown = err if form and code in (0, 1) else out + err
        if len(shown) > OUTPUT_MAX or any(len(line) > LINE_MAX for line in shown.splitlines()):
            raise AssertionError(f"{short} {form} says {len(shown)} characters")
        if form and out:
            json.loads(out)
    return len(forms)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes"}], "attributes": {}, **changes,
    }  # fmt: skip


def stores(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields documents of arrays with a text in one place each."""
    yield "attribute", document(attributes={text: text, "list": [text, {text: [text]}]})
    yield "dimension", document(dimension_names=[text])
    yield "dtype", document(data_type=text)
    yield "dtype object", document(data_type={"name": text, "configuration": {text: text}})
    yield "codec", document(codecs=[{"name": "bytes"}, {"name": text, "configuration": {}}])
    yield "fill", document(fill_value=text)
    yield "key", {**document(), text: {"must_understand": True}}
    yield "ignored key", {**document(), text: {"must_understand": False}}
    yield (
        "separator",
        document(chunk_key_encoding={"name": "default", "configuration": {"separator": text}}),
    )
    yield "kind", document(node_type=text)
    yield "order", document(bedform={"version": 1, "must_understand": False, "order": text})


def make_store(path: Path, name: str, array: dict[str, Any], attributes: dict[str, Any]) -> None:
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    (path / name).mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps(group))
    (path / name / "zarr.json").write_text(json.dumps(array))


def tried(units: list[Callable[[], int]], share: float) -> None:
    """Runs units in an order by seed while there is time; counts their commands."""
    count = 0
    for case in cases(share, least=len(units) // 6, most=len(units)):
        with case:
            count += units[case.kind(len(units))]()
    print(f"\nCOUNT hostile_text_commands {count}")  # noqa: T201 - the stage reads it


@pytest.mark.reliability
def test_no_text_of_a_store_reaches_people_as_it_is(tmp_path: Path) -> None:
    def in_a_place(number: int, turn: int, place: str) -> int:
        text, path = TEXTS[number], tmp_path / f"{number}-{place}.zarr"
        array = dict(stores(text))[place]
        make_store(path, "t", array, {text: text})
        # Programs read the stored text. Long ones exceed the limit of attributes.
        if place == "attribute" and text != LONG:
            _, out, _ = said_by(["info", str(path), "t", "--json"])
            assert json.loads(out)["attributes"] == array["attributes"]
        # Every command gets every text, and some of the places.
        every = commands(str(path), "t")
        given = [["info", str(path)], ["info", str(path), "t"], every[(turn + number) % len(every)]]
        return sum(check(arguments, ([],)) for arguments in given)

    def in_names(number: int) -> int:
        # As far as file names allow it.
        text = TEXTS[number]
        name = text.replace("/", "_").replace("\0", "_")[:60]
        path = tmp_path / f"{number}{name}.zarr"
        make_store(path, name, document(dimension_names=[text]), {})
        return sum(map(check, commands(str(path), name)))

    places = [place for place, _ in stores("")]
    numbers = range(len(TEXTS))
    units: list[Callable[[], int]] = [
        partial(in_a_place, number, turn, place)
        for number in numbers
        for turn, place in enumerate(places)
    ]
    tried(units + [partial(in_names, number) for number in numbers], 0.5)


@pytest.mark.reliability
def test_no_text_of_a_file_reaches_people_as_it_is(tmp_path: Path) -> None:
    def in_a_file(number: int) -> int:
        text, path = TEXTS[number], tmp_path / f"{number}.h5"
        name = text[:200].replace("\0", "_")
        with h5py.File(path, "w") as file:
            data = file.create_dataset(name, data=np.arange(4.0))
            # An attribute takes 64 KiB at most.
            data.attrs[name] = text[:60_000]
            data.attrs["units"] = np.array([text[:30_000].encode()] * 2, dtype="S")
            file.attrs[name] = text[:60_000]
            scale = file.create_dataset(f"dim{name}", data=np.arange(4))
            scale.make_scale(f"dim{name}")
            data.dims[0].attach_scale(scale)
            file.create_group(f"g{name}").create_dataset("t", data=[1, 2])
            file[f"link{name}"] = h5py.ExternalLink(name, name)
            compound = np.dtype([(name, "i4"), ("b", "f8")])
            file.create_dataset("compound", data=np.zeros(2, compound))
        count = sum(map(check, commands(str(path), name)))
        with bf.open(path) as opened, pytest.warns(bf.NativeReadWarning) as caught:
            _ = opened["compound"][:]
        assert not any(map(is_hidden, str(caught[0].message)))
        return count

    tried([partial(in_a_file, number) for number in range(len(TEXTS))], 0.25)


class _Server(http.server.BaseHTTPRequestHandler):
    """Answers everything with an error that has a text in its body and reason."""

    text = ""

    def do_GET(self) -> None:
        body = f"<Error><Code>{self.text}</Code><Message>{self.text}</Message></Error>".encode()
        self.send_response_only(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the module looks for


@pytest.mark.reliability
def test_no_text_of_a_server_reaches_people_as_it_is() -> None:
    count = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for text in TEXTS:
            _Server.text = text
            count += check(["info", f"http://127.0.0.1:{server.server_port}/a.zarr"])
        server.shutdown()
    print(f"\nCOUNT hostile_text_commands {count}")  # noqa: T201 - the stage reads it


#: Arguments that each command refuses, with the text in place of a path or value.
REFUSED = {
    "advise": [["{}"], ["--shape", "{}"], ["--shape", "4", "--dtype", "{}"]],
    "calibrate": [["none/{}"]],
    "check": [["none/{}"], ["a", "{}"]],
    "convert": [["none/{}", "b"], ["a", "{}", "--memory", "{}"]],
    "demo": [["--input", "none/{}"], ["--size", "{}"]],
    "explain": [["none/{}", "{}", "{}"]],
    "gc": [["none/{}"], ["a", "--grace", "{}"]],
    "hdf5-env": [["none/{}"], ["--{}"]],
    "index": [["none/{}"], ["a", "--array", "{}"], ["a", "--compat", "{}"]],
    "info": [["none/{}"], ["{}", "{}"]],
    "learn": [["none/{}"], ["--darshan", "none/{}"]],
    "optimize": [["none/{}"], ["a", "--budget", "{}"], ["a", "--reads", "{}"]],
    "query": [["none/{}", "t > 1"], ["a", "{}"], ["a", "t > 1", "--return", "{}"]],
    "recover": [["none/{}"], ["a", "--leftover", "{}"]],
    "references": [["none/{}", "--to", "a.json"], ["a", "--to", "{}"]],
    "render": [["none/{}", "{}"], ["a", "{}", "-o", "none/{}.png"], ["a", "b", "--cmap", "{}"]],
    "report": [["none/{}"], ["{}", "-o", "none/{}"], ["a", "--budget", "{}"]],
    "run": [["none/{}"], ["--min", "{}", "--", "none/{}"], ["--hdf5", "none/{}"]],
    "settle": [["none/{}"], ["a", "--memory", "{}"], ["a", "--grace", "{}"]],
    "simulate": [["none/{}", "{}", "{}"], ["--machine", "{}"], ["--pattern", "{}"]],
    "trust": [["none/{}"], ["--{}", "a"]],
    "verify": [["none/{}"], ["--{}"], ["a", "b", "{}"]],
    "watch": [["none/{}"], ["none/{}", "--off"]],
}


def test_every_command_is_given_what_it_refuses() -> None:
    assert set(REFUSED) == {command.name for command in app.registered_commands}


@pytest.mark.reliability
def test_no_text_of_an_argument_reaches_people_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def alone(text: str) -> int:
        return check([text[:200]], ([],)) + check([f"--{text[:200]}"], ([],))

    def to_a_command(text: str, name: str) -> int:
        every = [[a.replace("{}", text[:100_000]) for a in given] for given in REFUSED[name]]
        return sum(check([name, *given], ([],)) for given in every)

    units = [partial(to_a_command, text, name) for text in TEXTS for name in REFUSED]
    tried(units + [partial(alone, text) for text in TEXTS], 0.25)


def test_errors_are_fit_to_be_shown_whoever_raises_them(tmp_path: Path) -> None:
    for text in TEXTS:
        shown = str(bf.NotFoundError(f"begin {text} end"))
        assert not any(map(is_hidden, shown))
        assert shown.startswith("begin ")
        assert shown.endswith(" end")
        assert len(shown) <= 2000
    store = bf.create(tmp_path / "store.zarr")
    for text in TEXTS:
        with pytest.raises(bf.BedformError) as caught:
            store[f"no {text[:100]}"]
        assert not any(map(is_hidden, str(caught.value)))


def test_the_characters_that_are_escaped_are_those_that_cannot_be_seen() -> None:
    for code in range(0x110000):
        character = chr(code)
        if is_hidden(character):
            assert _shown.printable(character) != character, hex(code)
        elif (
            unicodedata.category(character)[0] in "LNPS"
            and _shown.printable(character) != character
        ):
            # Fillers and the blank of braille are empty.
            assert re.search("FILLER|BLANK", unicodedata.name(character)), hex(code)


def test_json_for_programs_has_the_values_and_hides_nothing() -> None:
    value = {text: [text, text] for text in [*TEXTS[:-1], "\ud800", "d\u00e9bit", "\U0001f30a"]}
    written = _shown.as_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert not any(map(is_hidden, written))
    assert "d\u00e9bit" in written
    assert "\U0001f30a" in written
