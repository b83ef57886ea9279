"""H1 for the command line: any arguments or files give one line and no traceback.

Every command runs in this process, so that hundreds of lines take seconds; a panic of the engine
would end the process and fail the stage.
"""

from __future__ import annotations

import contextlib
import io
import random
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

from bedform.cli import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.reliability

TEXTS = [
    "", " ", "..", "../../etc/passwd", "/", "/dev/null", "\x00", "a\nb", "-1", "--", "--json",
    "--reads", "lat,lon=", "=", "1e999", "9" * 300, "x" * 5000, "\ud83d\ude00", "\u202e",
    "[[[[", "nan", "::::", "0:1:0", "...", "1,2,3", "file:///etc/passwd", "s3://", "http://[",
    "--memory", "--to", "--grace",
    "{}", "%s%n", "$(id)", "`id`", "__import__('os')", "18446744073709551616", "0", ",,,", "time=1",
]  # fmt: skip
COMMANDS = ["info", "advise", "convert", "explain", "settle", "recover", "gc", "verify"]


def run_quietly(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def check(arguments: list[str]) -> None:
    code, _, err = run_quietly(arguments)
    faults = [
        code not in (0, 1, 2),
        "Traceback" in err,
        "this is a fault of Bedform" in err,
        len(err.splitlines()) > 1,
        code == 2 and not err.startswith("bedform: "),
    ]
    # Raised by hand, since pytest would print these arguments as source text.
    if any(faults):
        raise AssertionError(f"{arguments!r:.300} ended with {code} and said {err!r:.600}")


def test_no_line_that_can_be_typed_gets_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("good.nc", "w") as file:
        file.create_dataset("t", data=np.zeros((4, 5, 6)))
    chooser = random.Random(20260101)
    count = 0
    for command in COMMANDS:
        for text in TEXTS:
            check([command, text])
            check([command, "good.nc", text])
            count += 2
        for _ in range(40):
            check([command, "good.nc", *chooser.choices(TEXTS, k=chooser.randint(1, 4))])
            count += 1
    print(f"\nCOUNT command_lines {count}")  # noqa: T201 - the stage reads it


@pytest.mark.parametrize("selections", [b"5,:,:\n\xff\xfe\n", b"0" * (1 << 21)])
def test_a_file_of_selections_that_is_none_is_named_with_its_line(
    tmp_path: Path, selections: bytes
) -> None:
    path = tmp_path / "selections.txt"
    path.write_bytes(selections)
    arguments = ["advise", "--shape", "10,20,30", "--selections", str(path)]
    code, _, err = run_quietly(arguments)
    line = 1 + selections.count(b"\n", 0, -1)
    assert code == 2 and err.startswith(f"bedform: {str(path)!r} line {line}: ")
    assert len(err.splitlines()) == 1 and len(err) < 2200


def test_no_file_gets_a_traceback(tmp_path: Path) -> None:
    chooser = random.Random(20260102)
    good = tmp_path / "good.h5"
    with h5py.File(good, "w") as file:
        file.create_dataset("t", data=np.arange(4000.0).reshape(40, 100), chunks=(10, 10))
    whole = good.read_bytes()
    count = 0
    for trial in range(60):
        bad = bytearray(whole[: chooser.randrange(len(whole))] if trial % 2 else whole)
        for _ in range(chooser.randint(0, 30) if bad else 0):
            bad[chooser.randrange(len(bad))] = chooser.randrange(256)
        path = tmp_path / f"bad{trial}.{chooser.choice(['nc', 'h5', 'zarr'])}"
        path.write_bytes(bad)
        check(["info", str(path)])
        check(["verify", str(path)])
        count += 2
    print(f"\nCOUNT command_lines {count}")  # noqa: T201 - the stage reads it
