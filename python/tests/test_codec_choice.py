"""Codecs chosen by the data: `codecs="auto"`, in every interface."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import ENVIRONMENT, command_line

import bedform as bf


def smooth(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """A field like those of models: waves, and noise in the last digits."""
    axes = np.meshgrid(*(np.linspace(0, 3, length) for length in shape), indexing="ij")
    noise = np.random.default_rng(seed).normal(0, 1e-3, shape)
    return (280 + 20 * sum(np.sin(axis * 2) for axis in axes) + noise).astype("float32")


def command(*arguments: str) -> str:
    """Returns the output of the command line."""
    done = subprocess.run(
        [*command_line(), *arguments], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout


def names(array: bf.Array) -> list[str]:
    """The names of the codecs that compress."""
    return [codec["name"] for codec in array.compressors]


def compared(array: bf.Array) -> list[str]:
    return [one["name"] for one in array.info()["codec_choice"]["compared"]]


def read_by_zarr(path: Path, name: str) -> np.ndarray:
    return np.asarray(zarr.open_group(path, mode="r")[name][...])


def test_data_choose_a_codec_that_zarr_reads_and_info_says_what_was_compared(tmp_path: Path):
    field = smooth((40, 60, 80))
    t = bf.create(tmp_path / "s.zarr").create_array("t", data=field, dims=("time", "y", "x"))
    assert names(t) == ["blosc"]
    assert compared(t)[0].startswith("blosc-")
    assert "zstd" in compared(t)
    assert "pcodec" not in compared(t)
    choice = t.info()["codec_choice"]
    assert 0 < choice["sampled_bytes"] <= field.nbytes
    sizes = {one["name"]: one["size"] for one in choice["compared"]}
    assert sizes[compared(t)[0]] <= 1.02 * sizes["zstd"]
    np.testing.assert_array_equal(read_by_zarr(tmp_path / "s.zarr", "t"), field)


def test_an_array_without_data_chooses_with_its_first_write(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", (0, 100, 200), "float32", ("time", "y", "x"))
    other = bf.open(tmp_path / "s.zarr", mode="r+")["t"]
    assert t.info()["codec_choice"] == {"open": True, "beyond_zarr": False}
    assert read_by_zarr(tmp_path / "s.zarr", "t").shape == (0, 100, 200)
    frames = smooth((6, 100, 200))
    t.append(frames)
    assert names(t) == ["blosc"]
    # Noise alone would choose other codecs; the earlier choice stays.
    noise = np.random.default_rng(1).integers(0, 2**31, frames.shape, "int32").view("float32")
    other.append(noise)
    assert names(other) == ["blosc"]
    both = np.concatenate([frames, noise])
    np.testing.assert_array_equal(t[...].view("int32"), both.view("int32"))
    np.testing.assert_array_equal(
        read_by_zarr(tmp_path / "s.zarr", "t").view("int32"), both.view("int32")
    )


def test_shards_that_another_program_wrote_first_keep_zstd(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array(
        "t", (4, 100, 200), "float32", chunks=(1, 100, 200), shards=(1, 100, 200)
    )
    field = smooth((4, 100, 200))
    zarr.open_group(tmp_path / "s.zarr", mode="r+")["t"][0] = field[0]
    np.testing.assert_array_equal(t[0], field[0])
    t[1:] = field[1:]
    assert names(t) == ["zstd"]
    assert compared(t) == []
    np.testing.assert_array_equal(t[...], field)
    np.testing.assert_array_equal(read_by_zarr(tmp_path / "s.zarr", "t"), field)


def test_fill_values_replace_what_another_program_wrote_to_an_open_array(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array(
        "t", (4, 100, 200), "float32", chunks=(1, 100, 200), shards=(1, 100, 200)
    )
    zarr.open_group(tmp_path / "s.zarr", mode="r+")["t"][0] = smooth((100, 200))
    t[0] = 0
    assert not np.any(read_by_zarr(tmp_path / "s.zarr", "t"))
    assert not np.any(t[...])


def test_land_before_the_sea_does_not_choose(tmp_path: Path):
    sea = smooth((4, 100, 200))
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", (8, 100, 200), "float32", chunks=(1, 100, 200), fill_value=np.nan)
    t[:4] = np.nan
    assert t.info()["codec_choice"] == {"open": True, "beyond_zarr": False}
    t[4:] = sea
    assert names(t) == ["blosc"]
    whole = np.concatenate([np.full_like(sea, np.nan), sea])
    np.testing.assert_array_equal(t[...], whole)
    np.testing.assert_array_equal(read_by_zarr(tmp_path / "s.zarr", "t"), whole)


def test_a_program_that_puts_back_an_open_document_opens_nothing(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", (4, 100, 200), "float32", chunks=(1, 100, 200))
    theirs = zarr.open_group(tmp_path / "s.zarr", mode="r+")["t"]
    field = smooth((4, 100, 200))
    t[:2] = field[:2]
    theirs.attrs["units"] = "K"
    document = json.loads((tmp_path / "s.zarr/t/zarr.json").read_bytes())
    assert document["bedform"]["choice"]["open"], "zarr-python wrote what it had read"
    again = bf.open(tmp_path / "s.zarr", mode="r+")["t"]
    np.testing.assert_array_equal(again[:2], field[:2])
    again[2:] = field[2:]
    assert again.attributes["units"] == "K"
    np.testing.assert_array_equal(bf.open(tmp_path / "s.zarr")["t"][...], field)


def test_a_session_leaves_the_choice_to_the_first_settling(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", (6, 100, 200), "float32", ("time", "y", "x"))
    field = smooth((6, 100, 200))
    with store.session(settle="later") as session:
        session.write("t", field[:3], start=(0, 0, 0))
        session.commit()
    assert t.info()["codec_choice"]["open"]
    np.testing.assert_array_equal(t[:3], field[:3])
    store.settle()
    assert names(t) == ["blosc"]
    with store.session() as session:
        session.create_arrays({"u": {"shape": (6, 100, 200), "dtype": "float32"}})
        session.write("u", field, start=(0, 0, 0))
        session.write("t", field[3:], start=(3, 0, 0))
    assert names(store["u"]) == ["blosc"]
    for name in "tu":
        np.testing.assert_array_equal(store[name][...], field)
        np.testing.assert_array_equal(read_by_zarr(tmp_path / "s.zarr", name), field)


def test_a_snapshot_of_an_open_array_stays_or_says_that_it_has_moved(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", (4, 100, 200), "float32", chunks=(1, 100, 200))
    field = smooth((4, 100, 200))
    with store.session(settle="later") as session:
        session.write("t", field, start=(0, 0, 0))
        session.commit()
    with store.snapshot() as then:
        store["t"][0] = 5
        store.settle()
        try:
            found = then["t"][...]
        except bf.SnapshotMovedError:
            return
        np.testing.assert_array_equal(found, field)


def write_row(where: str, row: int) -> None:
    """Writes one row, waves or noise, of an array that may be unwritten."""
    t = bf.open(where, mode="r+")["t"]
    t[row] = row_of(row)


def row_of(row: int) -> np.ndarray:
    if row % 2:
        return np.random.default_rng(row).random((100, 200), "float32")
    return smooth((100, 200), row)


def test_processes_that_race_to_write_first_use_one_codec(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        for number in range(3):
            where = str(tmp_path / f"{number}.zarr")
            bf.create(where).create_array(
                "t", (4, 100, 200), "float32", chunks=(1, 100, 200), shards=(1, 100, 200)
            )
            list(pool.map(write_row, [where] * 4, range(4)))
            for found in (bf.open(where)["t"][...], read_by_zarr(Path(where), "t")):
                for row in range(4):
                    np.testing.assert_array_equal(found[row], row_of(row))


def test_named_codecs_stay_what_they_are(tmp_path: Path):
    store, field = bf.create(tmp_path / "s.zarr"), smooth((10, 50, 60))
    for name, words, expected in [
        ("a", {"codecs": ["zstd"]}, ["zstd"]),
        ("b", {"codecs": ()}, []),
        ("c", {"compressors": None}, []),
        ("d", {"codecs": [{"name": "gzip", "configuration": {"level": 1}}]}, ["gzip"]),
    ]:
        array = store.create_array(name, data=field, **words)
        assert names(array) == expected
        assert array.info()["codec_choice"] is None
    with pytest.raises(bf.InvalidArgumentError, match="'auto' or a list"):
        store.create_array("e", data=field, codecs="zstd")
    with pytest.raises(bf.InvalidArgumentError, match="codecs_beyond_zarr comes with"):
        store.create_array("e", data=field, codecs=["zstd"], codecs_beyond_zarr=True)


def test_codecs_beyond_zarr_are_compared_where_they_are_allowed(tmp_path: Path):
    store, field = bf.create(tmp_path / "s.zarr"), smooth((10, 50, 60))
    t = store.create_array("t", data=field, codecs_beyond_zarr=True)
    assert "pcodec" in compared(t)
    np.testing.assert_array_equal(t[...], field)


def test_text_and_a_few_numbers_get_zstd(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    text = store.create_array("text", data=np.array(["a", "b"], dtype=object))
    few = store.create_array("few", data=np.arange(10.0))
    assert names(text) == names(few) == ["zstd"]
    assert text.info()["codec_choice"] is None
    assert compared(few) == []


def test_every_small_array_is_measured_whatever_was_written_before_it(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    dims = ("y", "x")
    noise = np.random.default_rng(0).random((200, 200), "float32")
    store.create_array("noise", data=noise, dims=dims)
    after = store.create_array("after", data=smooth((200, 200)), dims=dims)
    alone = bf.create(tmp_path / "alone.zarr").create_array("a", data=smooth((200, 200)), dims=dims)
    assert after.info()["codec_choice"] == alone.info()["codec_choice"]


def test_a_small_array_of_noise_does_not_choose_for_the_next_ones(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    noise = np.random.default_rng(0).integers(0, 2**32, (500, 500), "uint32").view("float32")
    a = store.create_array("a", data=noise, dims=("y", "x"))
    b = store.create_array("b", data=np.ones((500, 500), "float32"), dims=("y", "x"))
    sizes = [array.info()["codec_choice"]["compared"][0]["size"] for array in (a, b)]
    assert sizes[0] > 0.9 and sizes[1] < 0.1


def test_steps_that_come_one_by_one_choose_as_all_of_them_at_once(tmp_path: Path):
    bits = np.random.default_rng(5).integers(0, 1 << 32, 24 * 90 * 120, dtype="u4")
    noise = bits.view("f4").reshape(24, 90, 120)
    with bf.create(tmp_path / "a.zarr") as store:
        whole, steps = (
            store.create_array(name, noise.shape, "f4", chunks=(12, 90, 120), shards=noise.shape)
            for name in ("whole", "steps")
        )
        whole[...] = noise
        for number, step in enumerate(noise):
            steps[number] = step
        assert compared(steps)[0] == compared(whole)[0] == "none"
        sizes = [array.info()["codec_choice"]["compared"][0]["size"] for array in (whole, steps)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)
    assert np.array_equal(bf.open(tmp_path / "a.zarr")["steps"][:].view("u4"), noise.view("u4"))


def test_data_sets_choose_for_each_variable_in_memory_and_by_dask(tmp_path: Path):
    field = smooth((40, 60, 80))
    noise = np.random.default_rng(0).integers(0, 256, field.shape, "uint8")
    ds = xr.Dataset({"t": (("time", "y", "x"), field), "n": (("time", "y", "x"), noise)})
    ds["kept"] = ds["t"].copy()
    encoding = {"kept": {"compressors": [zarr.codecs.GzipCodec(level=1)]}}
    for name, data in [("m", ds), ("d", ds.chunk(time=10))]:
        where = tmp_path / f"{name}.zarr"
        bf.write_dataset(data, where, encoding=encoding)
        store = bf.open(where)
        assert names(store["t"]) == ["blosc"]
        # The chosen codecs store noise without overhead.
        assert store["n"].info()["codec_choice"]["compared"][0]["size"] < 1.001
        assert names(store["kept"]) == ["gzip"]
        xr.testing.assert_identical(xr.open_zarr(where, consolidated=False).load(), ds)
    again = xr.open_dataset(tmp_path / "m.zarr", engine="bedform")
    bf.write_dataset(again, tmp_path / "again.zarr")
    assert names(bf.open(tmp_path / "again.zarr")["t"]) == ["blosc"]


def test_an_open_array_is_copied_as_an_open_one(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", (4, 100, 200), "float32")
    assert store.empty_like("u", store["t"]).info()["codec_choice"]["open"]


@pytest.mark.parametrize("rows", [4, 200])
def test_conversions_choose_by_the_data_or_take_what_is_named(tmp_path: Path, rows: int):
    field = smooth((rows, 100, 200))
    bf.create(tmp_path / "s.zarr").create_array(
        "t", data=field, dims=("time", "y", "x"), codecs=["zstd"]
    )
    source = str(tmp_path / "s.zarr")
    bf.convert(source, tmp_path / "auto.zarr", verify=True)
    bf.convert(source, tmp_path / "beyond.zarr", codecs_beyond_zarr=True)
    bf.convert(source, tmp_path / "zstd.zarr", codecs=["zstd"])
    command("convert", source, str(tmp_path / "named.zarr"), "--codec", "gzip")
    found = {
        name: bf.open(tmp_path / f"{name}.zarr")["t"]
        for name in ("auto", "beyond", "zstd", "named")
    }
    assert names(found["auto"]) == ["blosc"]
    assert "pcodec" in compared(found["beyond"])
    assert (names(found["zstd"]), names(found["named"])) == (["zstd"], ["gzip"])
    for array in found.values():
        np.testing.assert_array_equal(array[...], field)


def test_info_shows_the_choice(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    store.create_array("t", data=smooth((10, 100, 200)))
    store.create_array("u", (10, 100, 200), "float32")
    assert "blosc-" in command("info", str(tmp_path / "s.zarr"), "t")
    assert "the first write chooses" in command("info", str(tmp_path / "s.zarr"), "u")


def test_a_sample_that_was_not_like_the_rest_warns_once(tmp_path: Path):
    store = bf.create(tmp_path / "s.zarr")
    t = store.create_array("t", (0, 500, 1000), "float32", chunks=(1, 500, 1000))
    t.append(np.ones((1, 500, 1000), "float32"))
    noise = np.random.default_rng(0).integers(0, 2**31, (6, 500, 1000), "int32").view("float32")
    with pytest.warns(
        UserWarning, match=r"t: the blocks that chose the codecs .* convert the store"
    ):
        t.append(noise)
    t.append(noise)
    np.testing.assert_array_equal(t[1:7].view("int32"), noise.view("int32"))


SHAPES = [(25, 60, 70), (37, 31, 43), (101, 7, 13, 19), (99_999,), (3, 501, 133), (23, 23, 23, 11)]
KINDS = ["f4", "f8", "i2", "i4", "i8", "u1", "u2", "i1", "?", "f2", "c8", "u4", "u8", "c16"]


def odd_field(number: int) -> np.ndarray:
    """One of many fields: smooth, counts, walks and mostly zeros, of odd shapes and all types."""
    rng, shape = np.random.default_rng(number), SHAPES[number % len(SHAPES)]
    if number % 4 == 0:
        values = smooth(shape, number) + rng.normal(0, 10.0 ** -(number % 5), shape)
    elif number % 4 == 1:
        values = rng.poisson(3 + number, shape)
    elif number % 4 == 2:
        values = np.cumsum(rng.integers(-2, 3, shape), axis=-1)
    else:
        values = np.where(rng.random(shape) < 0.9, 0, rng.integers(0, 100, shape))
    kind = KINDS[number * 5 % len(KINDS)]
    return values > np.median(values) if kind == "?" else values.astype("i8").astype(kind)


def bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_stored_sizes_are_those_of_the_comparison(tmp_path: Path):
    store, off = bf.create(tmp_path / "s.zarr"), []
    for number in range(40):
        field = odd_field(number)
        chosen = store.create_array(f"a{number}", data=field)
        zstd = store.create_array(
            f"z{number}", data=field, chunks=chosen.chunks, shards=chosen.shards, codecs=["zstd"]
        )
        choice = chosen.info()["codec_choice"]
        predicted = choice["compared"][0]["size"]
        stored, alone = (bytes_below(tmp_path / f"s.zarr/{name}{number}/c") for name in "az")
        assert stored <= 1.03 * alone, (number, choice)
        assert choice["stored_size"] == pytest.approx(predicted, rel=0.1, abs=0.005)
        if abs(stored / field.nbytes / predicted - 1) > 0.1:
            off.append(number)
        assert zstd.info()["codec_choice"] is None
    assert len(off) <= 2, off


def test_bits_of_a_chunk_of_an_odd_number_of_elements_are_put_side_by_side(tmp_path: Path):
    counts = np.random.default_rng(0).poisson(3, (50, 60, 70)).astype("i4")
    t = bf.create(tmp_path / "s.zarr").create_array("t", data=counts, chunks=(25, 30, 70))
    assert t.compressors[0]["configuration"]["shuffle"] == "bitshuffle"
    assert t.info()["codec_choice"]["stored_size"] < 0.13
    np.testing.assert_array_equal(read_by_zarr(tmp_path / "s.zarr", "t"), counts)


bits = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**52 - 1).map(lambda payload: 0x7FF0 << 48 | payload),
    st.integers(0, 2**52 - 1),
    st.sampled_from([1 << 63, 0x8000_0000, 0x7FC0_0001, 0xFFFF_FFFF]),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    dtype=st.sampled_from(["f2", "f4", "f8", "i1", "u2", "i4", "u8", "c8", "c16"]),
    pattern=hnp.arrays("uint64", st.integers(1, 64), elements=bits),
    is_beyond=st.booleans(),
    number=st.integers(0, 10**9),
)
def test_every_bit_comes_back_through_whatever_was_chosen(
    tmp_path: Path, dtype: str, pattern: np.ndarray, is_beyond: bool, number: int
):
    values = np.resize(pattern, 4096).view(dtype)
    store = bf.create(tmp_path / f"{number}-{len(list(tmp_path.iterdir()))}.zarr")
    t = store.create_array("t", data=values, codecs_beyond_zarr=is_beyond)
    assert t[...].tobytes() == values.tobytes()


def test_c_programs_get_the_same_default(tmp_path: Path):
    """The C interface passes its description through the same function."""
    store = bf.create(tmp_path / "s.zarr")
    described = {"shape": [4], "dtype": "int32", "chunks": [4], "shards": [4], "codecs": "auto"}
    inner = store._inner.create_array("t", json.dumps(described), False)
    assert json.loads(inner.describe())["codec_choice"] == {"open": True, "beyond_zarr": False}
