"""The report: its facts match the reads, and the page is well-formed and harmless."""

from __future__ import annotations

import html
import html.parser
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import xarray as xr
from range_server import serving
from support import PATIENCE

import bedform as bf
from bedform import _report, _report_page, _report_reads, _report_style, _sidecar
from bedform._report_figures import levels

if TYPE_CHECKING:
    from collections.abc import Callable

    Bedform = Callable[..., subprocess.CompletedProcess[str]]

SHAPE = (240, 100, 130)
HOSTILE = "<script>alert('x')</script>&\"'\u202e\x1b[2J"
#: Elements of HTML and SVG without end tags.
VOID = {"br", "meta", "wbr"}


class Page(html.parser.HTMLParser):
    """Parser of well-formed HTML that refers to nothing outside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""
        assert text.startswith("<!DOCTYPE html>")
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert set(self.references) <= set(self.ids)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.see(tag, dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.see(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            assert "url(" not in data
            assert "@import" not in data
        else:
            self.text += data

    def see(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tags.append(tag)
        assert tag not in {
            "script",
            "link",
            "iframe",
            "img",
            "object",
            "embed",
            "base",
            "form",
            "a",
        }
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in {"src", "href", "xlink:href", "action", "data", "style"}, (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("aria-") and name.endswith("by"):
                self.references += (value or "").split()
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-labelledby"]


def page_of(path: Path, **options: Any) -> Page:
    return Page(bf.report(path, **options))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose reads are recorded: series of a hot region, one far from it, and some maps."""
    path = tmp_path_factory.mktemp("template") / "era5.nc"
    values = np.random.default_rng(1).integers(0, 10_000, SHAPE).astype("f4")
    dims = ("time", "lat", "lon")
    data_set = xr.Dataset({"t": (dims, values), "maps": (dims, values[:, ::-1])})
    chunks = {"chunksizes": (1, 100, 130), "compression": "gzip", "compression_opts": 1}
    data_set.to_netcdf(path, engine="h5netcdf", encoding={"maps": chunks})
    bf.watch(path)
    with bf.open(path, prefetch=False) as store:
        for row in range(20, 40):
            for column in range(60, 75):
                store["t"][:, row, column]
        store["t"][:, 90, 3]
        for hour in range(10):
            store["t"][hour]
    bf.learn(path)
    return path


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    """Returns the file without any knowledge."""
    return shutil.copy(template, tmp_path / "era5.nc")


@pytest.fixture
def watched(template: Path, file: Path) -> Path:
    """Returns the file with its recorded reads."""
    shutil.copytree(f"{template}.bedform", f"{file}.bedform")
    bf.trust(file)
    bf.watch(file)
    return file


def make_replicas(path: Path, budget: str = "20%") -> list[dict[str, Any]]:
    bf.learn(path)
    made = bf.optimize(path, budget).made
    assert made
    return made


def array_of(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return next(array for array in facts["reads"] if array["array"] == name)


def test_the_facts_are_those_of_the_reads_that_were_made(watched: Path) -> None:
    facts = _report.gather_facts(watched)
    assert facts["recorded"]["reads"] == 311
    assert facts["recorded"]["bytes"] == 4 * (301 * 240 + 10 * 100 * 130)
    assert facts["recording"]
    array = array_of(facts, "t")
    assert array["dims"] == ["time", "lat", "lon"]
    kinds = {tuple(kind["counts"]): kind for kind in array["kinds"]}
    series, maps = kinds[240, 1, 1], kinds[1, 100, 130]
    assert (series["reads"], maps["reads"]) == (301, 10)
    # The hot box has the borders of the 64 stretches of an axis.
    for axis, first, end in ((1, 20, 40), (2, 60, 75)):
        bounds = _report_reads.cell_bounds(SHAPE[axis])
        low = max(bound for bound in bounds if bound <= first)
        high = min(bound for bound in bounds if bound >= end)
        assert series["hot_start"][axis] == max(low, series["start"][axis])
        assert series["hot_end"][axis] == min(high, series["end"][axis])
    assert (series["start"], series["end"]) == ([0, 20, 3], [240, 91, 75])
    assert (maps["hot_start"], maps["hot_end"]) == ([0, 0, 0], [10, 100, 130])
    assert series["measured_seconds"] == pytest.approx(series["seconds"] / 301)
    planned = bf.optimize(watched, "20%", dry_run=True).plan["reads"]
    expected = next(read for read in planned if read["shape"] == [240, 1, 1])
    assert series["predicted"]["seconds_then"] == expected["seconds_then"]
    strided = array["patterns"][0]
    assert strided["kind"] == "strided"
    assert strided["share_of_reads"] == strided["reads"] / 311


def test_sizes_are_as_stored(file: Path) -> None:
    facts = _report.gather_facts(file)
    assert facts["stored_bytes"] == file.stat().st_size
    sizes = {array["array"]: array["stored_bytes"] for array in facts["arrays"]}
    with h5py.File(file) as source:
        for name in ("t", "maps"):
            # Including the small gaps between chunks that a read fetches.
            assert 1 <= sizes[name] / source[name].id.get_storage_size() < 1.01


def test_cells_are_counted_as_a_list_of_all_reads_counts_them() -> None:
    random = np.random.default_rng(3)
    for shape in ((640, 7), (65, 64), (3, 1000)):
        reads = [(int(random.integers(0, shape[0])), shape[1]) for _ in range(50)]
        bins = [np.zeros(64, int), np.full(64, 50)]
        if shape[1] < 64:
            bins[1] = np.isin(np.arange(64), range((shape[1] - 1) * 64 // shape[1] + 1)) * 50
        expected = np.zeros([min(length, 64) for length in shape])
        bounds = _report_reads.cell_bounds(shape[0])
        for row, _ in reads:
            bins[0][row * 64 // shape[0]] += 1
            expected[np.searchsorted(bounds, row, side="right") - 1] += 1
        kind = {"reads": 50, "bins": [side.tolist() for side in bins]}
        cells, of_all, is_counted = _report_reads.joint_reads([kind], shape, 0, 1)
        np.testing.assert_allclose(cells, expected)
        assert (of_all, is_counted) == (0, True)


def test_cells_of_reads_that_move_along_both_axes_are_called_an_estimate(watched: Path) -> None:
    array = array_of(_report.gather_facts(watched), "t")
    series = [kind for kind in array["kinds"] if kind["counts"] == [240, 1, 1]]
    cells, _, is_counted = _report_reads.joint_reads(series, SHAPE, 1, 2)
    assert not is_counted
    assert np.sum(cells) == pytest.approx(301)
    hottest = np.unravel_index(np.argmax(cells), (64, 64))
    rows, columns = (_report_reads.cell_bounds(SHAPE[axis]) for axis in (1, 2))
    assert 19 <= rows[hottest[0]] < 40
    assert 58 <= columns[hottest[1]] < 75
    # Maps take all of both axes, and must not hide other reads.
    _, of_all, _ = _report_reads.joint_reads(array["kinds"], SHAPE, 1, 2)
    assert of_all == 10
    assert "estimated from the counts along each axis; 10 more reads" in page_of(watched).text


def test_a_file_whose_reads_nobody_recorded_says_how_to_record_them(file: Path) -> None:
    facts = _report.gather_facts(file)
    assert not facts["recording"]
    assert facts["next"]["command"] == f"bedform watch {file}"
    assert (facts["reads"], facts["budgets"], facts["plan"], facts["notes"]) == ([], [], None, [])
    page = page_of(file)
    assert "No reads are known yet" in page.text
    assert "svg" not in page.tags
    bf.watch(file)
    facts = _report.gather_facts(file)
    assert facts["recording"]
    assert "there are none yet" in facts["next"]["text"]
    assert facts["next"]["command"] == f"bedform report {file}"


def test_what_to_do_next_goes_from_reads_to_replicas_and_ends(watched: Path) -> None:
    facts = _report.gather_facts(watched)
    command = facts["next"]["command"].split()
    assert command[:3] == ["bedform", "optimize", str(watched)]
    assert not Path(f"{watched}.bedform/replicas").exists(), "a report makes none"
    budget = command[-1]
    at = next(one for one in facts["budgets"] if f"{one['percent']}%" == budget)
    most = min(one["seconds_then"] for one in facts["budgets"] if one["percent"] <= 20)
    now = facts["plan"]["seconds_now"]
    assert now - at["seconds_then"] >= 0.9 * (now - most)
    assert [one["percent"] for one in facts["budgets"]] == list(_report.BUDGETS)
    made = make_replicas(watched, budget)
    facts = _report.gather_facts(watched, budget)
    assert {one["id"] for one in facts["replicas"]} == {one["id"] for one in made}
    assert facts["replicas"][0]["held"] == made[0]["held"]
    assert facts["next"]["text"].startswith("Nothing to do: the replicas")
    page = page_of(watched)
    for part in ("R1", "reads of 240 x 1 x 1", "Replicas that there are"):
        assert part in page.text


def test_replicas_of_a_file_that_has_changed_are_called_unused(watched: Path) -> None:
    make_replicas(watched)
    with h5py.File(watched, "r+") as target:
        target["t"][0, 0, 0] = 5
    facts = _report.gather_facts(watched)
    assert facts["replicas"]
    assert not facts["replicas_are_current"]
    page = page_of(watched)
    assert "None of them is used" in page.text
    assert '"pill held-pill"' not in bf.report(watched)


def test_a_store_is_planned_for_as_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "my store.zarr"
    store = bf.create(path)
    store.create_array("g/t", data=np.zeros((40, 30, 20), "f4"), dims=("time", "y", "x"))
    bf.watch(path)
    with bf.open(path, prefetch=False) as opened:
        for row in range(30):
            opened["g/t"][:, row, 3]
    facts = _report.gather_facts(path)
    assert facts["plan"]["reads"][0]["shape"] == [40, 1, 1]
    assert "Nothing to do" in facts["next"]["text"]
    stored = sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    assert facts["stored_bytes"] == stored
    page = page_of(path)
    assert page.tags.count("svg") > 0


def test_the_query_of_a_url_which_may_be_a_secret_is_not_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    with h5py.File(tmp_path / "x.h5", "w") as target:
        target["t"] = np.zeros((40, 30, 20), "f4")
    with serving(tmp_path) as server:
        url = f"{server.url('x.h5')}?token=secret"
        bf.watch(url)
        with bf.open(url, prefetch=False) as store:
            for row in range(10):
                store["t"][row]
        facts = _report.gather_facts(url)
        text = bf.report(url)
    assert facts["recorded"]["reads"] == 10
    assert facts["stored_bytes"] == (tmp_path / "x.h5").stat().st_size
    assert "x.h5" in Page(text).text
    assert "secret" not in text + json.dumps(facts)


def test_the_page_is_whole_harmless_and_needs_nothing_from_elsewhere(watched: Path) -> None:
    make_replicas(watched)
    text = bf.report(watched)
    page = Page(text)
    assert text.isascii()
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", text).replace("http-equiv", "")
    assert [tag for tag in page.tags if tag in {"h1", "h2", "h3"}][:3] == ["h1", "h2", "h2"]
    assert page.tags.count("caption") == page.tags.count("table") > 3
    assert page.tags.count("title") > page.tags.count("svg")
    assert page.tags.count("desc") == page.tags.count("svg") > 5
    for part in ("era5.nc", "What to do next", "A: lat ", "reads:", "strided: equal steps", "20%"):
        assert part in page.text, part


def test_names_of_files_are_escaped_and_shortened(tmp_path: Path) -> None:
    # File names have no control characters here, but paths inside the file may.
    name = HOSTILE.replace("/", "_").replace("\x1b", "") + "n" * 200
    path = tmp_path / (HOSTILE.replace("/", "_") + ".h5")
    with h5py.File(path, "w") as target:
        data = target.create_dataset(name, data=np.zeros((50, 60), "f4"))
        scale = target.create_dataset("s" + name, data=np.arange(50))
        scale.make_scale("s" + name)
        data.dims[0].attach_scale(scale)
    bf.watch(path)
    with bf.open(path, prefetch=False) as store:
        for row in range(40):
            store[name][row, 3:9]
    page = page_of(path)
    assert HOSTILE.partition("\u202e")[0].replace("/", "_") in page.text
    assert not {"\u202e", "\x1b"} & set(page.text)
    assert "n" * 200 in page.text
    assert len(page.text) < 20_000


def knowledge_of(path: Path) -> Path:
    return max(Path(f"{path}.bedform/knowledge").iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"bins": [[1] * 64]}, {"bins": [[1] * 63] * 3}, {"bins": [[0] * 64] * 3},
        {"counts": [240, 1]}, {"counts": [0, 1, 1]}, {"counts": [2**63, 2**63, 1]},
        {"steps": [2**63, 1, 1]}, {"start": [0, 99, 3]}, {"end": [240, 91, 2**63]}, {"reads": 0},
    ],
    ids=str,
)  # fmt: skip
def test_knowledge_that_does_not_fit_its_array_is_left_out(
    watched: Path, changes: dict[str, Any]
) -> None:
    bf.learn(watched)
    document = json.loads(knowledge_of(watched).read_text())
    kinds = document["arrays"]["t"]["kinds"]
    series = next(kind for kind in kinds if kind["counts"] == [240, 1, 1])
    series.update(changes)
    knowledge_of(watched).write_text(json.dumps(document))
    kinds = _report_reads.read_array("t", document["arrays"]["t"])
    assert kinds is not None
    assert [kind["counts"] for kind in kinds["kinds"]] == [[1, 100, 130]]


@pytest.mark.parametrize(
    "content",
    [
        "", "{}", "[" * 100_000, '{"version": 1, "replicas": 3}', "replicas",
        {"id": "../../etc"}, {"array_shape": [240, 100, 13]},
        {"held": {"runs": [[[5, 2**64 - 1]]]}},
        {"held": {"points": {"count": 9, "first": 1, "last": 3}}}, {"stored_bytes": -1},
        {"made": 1e400}, {"held": {}}, {"array": None}, {"expected": 7},
    ],
    ids=lambda content: str(content)[:40],
)  # fmt: skip
def test_a_catalogue_that_cannot_be_believed_has_no_replicas(watched: Path, content: Any) -> None:
    make_replicas(watched)
    catalogue = max(Path(f"{watched}.bedform/catalogue").iterdir())
    document = json.loads(catalogue.read_text())
    for other in catalogue.parent.iterdir():
        other.unlink()
    if isinstance(content, dict):
        document["replicas"][0].update(content)
        content = json.dumps(document)
    if content == "replicas":
        catalogue.symlink_to(watched)
    else:
        catalogue.write_text(content)
    assert _report.gather_facts(watched)["replicas"] == []
    page_of(watched)


def test_odd_facts_of_replicas_are_shown_or_left_out(watched: Path) -> None:
    make_replicas(watched)
    catalogue = max(Path(f"{watched}.bedform/catalogue").iterdir())
    document = json.loads(catalogue.read_text())
    replica = document["replicas"][0]
    points = {"held": {"points": {"count": 7, "first": 3, "last": 90}}, "id": "points"}
    late = {"made": 2**63, "document": HOSTILE, "expected": [{"shape": "x"}], "id": "late"}
    pieces = {"held": {"runs": [[[0, 3], [9, 2]], [[0, 100]], [[0, 130]]]}, "id": "pieces"}
    document["replicas"] = [{**replica, **changes} for changes in (points, late, pieces)]
    catalogue.write_text(json.dumps(document))
    page = page_of(watched)
    assert "7 single elements" in page.text
    assert "time 0:11 in 2 pieces" in page.text


def test_the_directory_of_the_sidecar_is_the_one_of_the_engine(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(bf.watch(file)).parent == _sidecar.directory_of(str(file))
    shutil.rmtree(f"{file}.bedform")
    link = tmp_path / "link.nc"
    link.symlink_to(file)
    monkeypatch.setenv("BEDFORM_SIDECAR", str(tmp_path / "sidecars"))
    assert Path(bf.watch(link)).parent == _sidecar.directory_of(str(link))
    url = "http://127.0.0.1:9/a.nc"
    assert Path(bf.watch(url)).parent == _sidecar.directory_of(url)
    monkeypatch.delenv("BEDFORM_SIDECAR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert Path(bf.watch(url)).parent == _sidecar.directory_of(url)
    # With a file in its place it lies in the cache.
    Path(f"{file}.bedform").write_text("")
    assert Path(bf.watch(file)).parent == _sidecar.directory_of(str(file))


def test_the_command_writes_a_page_and_replaces_no_other_file(
    file: Path, tmp_path: Path, bedform_command: Bedform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = bedform_command("report", str(file))
    assert done.returncode == 0, done.stderr
    written = tmp_path / "era5.nc.report.html"
    assert "bedform watch" in done.stdout
    Page(written.read_text())
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(written.stat().st_mode) == 0o666 & ~umask
    assert bedform_command("report", str(file)).returncode == 0, "a report may be made again"
    written.write_text("a thesis")
    refused = bedform_command("report", str(file))
    assert refused.returncode == 2
    assert "is no report: choose another name, or --force" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert written.read_text() == "a thesis"
    link = tmp_path / "link.html"
    link.symlink_to(written)
    assert bedform_command("report", str(file), "-o", str(link), "--force").returncode == 0
    assert link.is_symlink()
    Page(written.read_text())
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"


def test_the_page_of_a_pattern_has_the_name_of_the_directory(
    file: Path, tmp_path: Path, bedform_command: Bedform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "months").mkdir()
    for name in ("a.nc", "b.nc"):
        shutil.copy(file, tmp_path / "months" / name)
    joined = ("months/*.nc", "--concat-dim", "time", "--compat", "override")
    done = bedform_command("report", *joined)
    assert "months.report.html" in done.stdout, done.stderr
    bf.watch("months/*.nc")
    done = bedform_command("report", *joined)
    assert 'report "months/*.nc" --concat-dim time --compat override' in done.stdout
    assert [one.name for one in tmp_path.glob("*.html")] == ["months.report.html"]
    done = bedform_command("advise", *joined[:1], "t", *joined[1:], "--reads", "time=1")
    assert "chunks" in done.stdout, done.stderr


def test_the_plan_without_a_budget_is_that_of_optimize_without_one(
    watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bf.optimize(watched, "400%", reads={"time": 1})
    bf.learn(watched)
    expected = bf.optimize(watched, dry_run=True).plan
    assert expected["budget_bytes"] > 0.2 * expected["source_bytes"]
    budgets = []
    optimize = _report.optimize

    def counted(path: Any, budget: Any = None, **options: Any) -> Any:
        budgets.append(budget)
        return optimize(path, budget, **options)

    monkeypatch.setattr(_report, "optimize", counted)
    plan = _report.gather_facts(watched)["plan"]
    assert budgets == [None, *(f"{percent}%" for percent in _report.BUDGETS)]
    assert plan["budget"] == f"{-(-expected['budget_bytes'] // 1024)} KiB"
    for key in ("make", "keep", "drop", "budget_bytes"):
        assert plan[key] == expected[key]


def test_the_command_prints_the_page_or_the_facts(watched: Path, bedform_command: Bedform) -> None:
    Page(bedform_command("report", str(watched), "-o", "-").stdout)
    facts = json.loads(bedform_command("report", str(watched), "--json", "--budget", "5%").stdout)
    assert facts["recorded"]["reads"] == 311
    assert facts["plan"]["budget"] == "5%"
    assert set(facts) == set(_report.gather_facts(watched))


def test_a_device_takes_the_page_and_stays(watched: Path, bedform_command: Bedform) -> None:
    assert bedform_command("report", str(watched), "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["none.nc"], "none.nc"),
        (["{file}", "--budget", "lots"], "lots"),
        (["{file}", "-o", "."], "is a directory"),
        (["{file}", "-o", "none/x.html"], "no such directory"),
        (["{file}", "-o", "-", "--json"], "leave one of them out"),
    ],
    ids=str,
)
def test_errors_are_one_line(
    file: Path, bedform_command: Bedform, arguments: list[str], part: str
) -> None:
    done = bedform_command("report", *(text.format(file=file) for text in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert part in done.stderr


def test_a_sidecar_that_cannot_be_written_shows_what_was_learnt_before(
    watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bf.learn(watched)

    def fails(*_: Any) -> Any:
        raise bf.IoError("what was learnt cannot be kept in the sidecar")

    monkeypatch.setattr(_report, "learn", fails)
    facts = _report.gather_facts(watched)
    assert facts["recorded"]["reads"] == 311
    assert any("could not be learnt" in note for note in facts["notes"])


def test_the_levels_of_a_ramp_are_few_and_have_all_counts() -> None:
    for most in (0, 0.3, 1, 2, 7, 60, 100, 5_000, 10**6, 10**12, 10**18):
        starts = levels(most)
        assert 1 <= len(starts) <= 7
        assert starts == sorted(set(starts))
        assert starts[0] == 0
        assert len(starts) == 1 or starts[-1] <= most


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [_report_style._LIGHT_COLOURS, _report_style._DARK_COLOURS])
def test_colours_are_told_apart_by_their_lightness_and_text_can_be_read(colours: str) -> None:
    named = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", colours))
    for text in ("text", "soft", "held"):
        for behind in ("page", "card", "next"):
            assert contrast(named[text], named[behind]) >= 4.5, (text, behind)
    ramp = [luminance(named[name]) for name in ("empty", *(f"h{level}" for level in range(7)))]
    steps = np.diff(ramp)
    assert (steps < 0).all() or (steps > 0).all()


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
#: Finds layout faults of the page: parts wider than the window, overlapping texts.
MEASURES = """<script>addEventListener("load", () => {
const wrong = [];
const wide = document.documentElement.clientWidth;
for (const one of document.body.querySelectorAll("*")) {
  const box = one.getBoundingClientRect();
  const hidden = getComputedStyle(one.closest("thead") || one).position === "absolute";
  if (!hidden && box.width && (box.right > wide + 1 || box.left < -1))
    wrong.push("beyond the window: " + one.outerHTML.slice(0, 80));
}
for (const svg of document.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
  texts.forEach(([text, box], at) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      wrong.push("cut: " + text.textContent);
    for (const [other, beside] of texts.slice(at + 1))
      if (box.left < beside.right - 1 && beside.left < box.right - 1
          && box.top < beside.bottom - 3 && beside.top < box.bottom - 3)
        wrong.push("over each other: " + text.textContent + ", " + other.textContent);
  });
}
parent.document.body.textContent = "MEASURED " + wide + " " + JSON.stringify(wrong) + " END";
});</script></head>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_cut_or_covered_in_a_browser(watched: Path, tmp_path: Path, width: int) -> None:
    make_replicas(watched)
    with bf.open(watched, prefetch=False) as store:
        for row in range(0, 100, 9):
            store["t"][3:200, row, 5:9]
            store["maps"][:, row]
    text = bf.report(watched).replace("</head>", MEASURES)
    page = tmp_path / "page.html"
    # In a frame, since no browser window is as narrow as a telephone.
    framed = html.escape(re.sub(r"<meta http-equiv=[^>]*>", "", text))
    style = f"width:{width}px;height:4000px;border:0"
    page.write_text(f'<!DOCTYPE html><body><iframe style="{style}" srcdoc="{framed}"></iframe>')
    done = subprocess.run(
        [
            str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'browser'}", "--window-size=1500,4100", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    found = re.search(r"MEASURED (\d+) (.*) END", done.stdout)
    assert found is not None, done.stderr[-2000:]
    assert int(found[1]) == width
    assert json.loads(html.unescape(found[2])) == []


def test_a_report_says_that_it_is_one_near_its_beginning(file: Path) -> None:
    assert _report_page.GENERATOR in bf.report(file)[:400]


def test_replicas_of_a_store_are_shown_as_used(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    values = np.random.default_rng(2).integers(0, 10_000, SHAPE).astype("f4")
    with bf.create(path) as store:
        dims = ("time", "lat", "lon")
        store.create_array("t", data=values, dims=dims, chunks=(1, 100, 130), shards=(10, 100, 130))
    bf.watch(path)
    with bf.open(path, prefetch=False) as store:
        for row in range(40):
            store["t"][:, row, 3]
    make_replicas(path, "200%")
    facts = _report.gather_facts(path, "200%")
    assert facts["replicas_are_current"]
    assert "None of them is used" not in page_of(path).text


@pytest.mark.parametrize("place", ["file.nc", "store.zarr"])
def test_the_page_shows_coordinates_where_an_axis_has_them(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    hours = np.datetime64("2001-01-01", "ns") + np.arange(96) * np.timedelta64(1, "h")
    names = np.array([f"station {at}" for at in range(70)], object)
    data = xr.Dataset(
        {"t": (("time", "lat", "station", "level"), np.zeros((96, 80, 70, 2), "f4"))},
        {"time": hours, "lat": np.linspace(89.5, -68.5, 80), "station": names},
    )
    if path.suffix == ".nc":
        data.to_netcdf(path, engine="h5netcdf")
    else:
        bf.write_dataset(data, path)
    bf.watch(path)
    with bf.open(path, prefetch=False) as store:
        for hour in range(24, 48):
            store["t"][hour, 10:20, 35:40]
    facts = _report.gather_facts(path)
    assert [one["array"] for one in facts["reads"]] == ["t"]
    time, lat, station, level = facts["reads"][0]["coordinates"]
    assert (time["0"], time["95"], time["24"]) == ("2001-01-01", "2001-01-04 23:00", "2001-01-02")
    assert (lat["0"], lat["79"]) == ("89.5", "-68.5")
    assert station["0"] == "station 0"
    assert level == {}
    text = Page(_report_page.page_of(facts)).text
    for said in ("time 24:48 (2001-01-02 to 2001-01-02 23:00)", "89.5", "station 0", "-68.5"):
        assert said in text, said
    # The coordinates that the report reads are no reads of a user.
    again = _report.gather_facts(path)
    assert [one["array"] for one in again["reads"]] == ["t"]
    assert again["recorded"] == facts["recorded"]


def test_coordinates_that_nobody_can_decode_are_positions(tmp_path: Path) -> None:
    path = tmp_path / "odd.nc"
    with h5py.File(path, "w") as file:
        file["t"] = np.zeros((50, 40), "f4")
        file["time"], file["lat"] = np.arange(50.0), np.full(40, np.nan)
        file["time"].attrs["units"] = "days since the flood"
        for axis, name in enumerate(("time", "lat")):
            file[name].make_scale(name)
            file["t"].dims[axis].attach_scale(file[name])
    bf.watch(path)
    with bf.open(path) as store:
        store["t"][3:9, 4:8]
    facts = _report.gather_facts(path)
    assert facts["reads"][0]["coordinates"] == [{}, {}]
    assert "time 3:9, lat 4:8" in Page(_report_page.page_of(facts)).text


def test_the_next_step_for_a_list_of_files_is_a_call(tmp_path: Path) -> None:
    paths = [tmp_path / f"{year}.nc" for year in (2001, 2002)]
    for number, path in enumerate(paths):
        data = xr.Dataset({"t": ("time", [1.0, 2.0])}, {"time": [2 * number, 2 * number + 1]})
        data.to_netcdf(path, engine="h5netcdf")
    assert "bf.watch(paths)" in page_of(paths).text
    bf.watch(paths)
    assert "bf.report(paths, concat_dim='time')" in page_of(paths, concat_dim="time").text
