"""Compare the output of the HDF5 parser with h5py's, file by file.

``compare_hdf5.py [--maps] DUMP PLACE..``: DUMP is the built example ``hdf5_dump``, a place is a
file or a directory. With ``--maps`` it compares chunk maps with those that the package (on
PYTHONPATH) makes with h5py. Otherwise it compares objects, shapes, types, fill values, filters,
layouts, every chunk, and attributes with their values. For each place it prints the number of
files that are equal, unknown to the parser, refused by both, or different, and the differences.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
from hdf5_by_h5py import describe, describe_map

if TYPE_CHECKING:
    from collections.abc import Callable

Json = Any
ENDINGS = {".h5", ".hdf5", ".nc", ".nc4", ".he5", ".h5ad", ".nxs", ".hdf", ".mat", ".cdf", ".jld2"}


def misplaced(path: Path, name: str, chunks: Json) -> list[str]:
    """List chunks of the dump whose bytes differ from HDF5's at the same coordinates."""
    with h5py.File(path, "r") as file, path.open("rb") as raw:
        dataset = file[name]
        found = []
        for position, offset, size, mask in chunks:
            corner = tuple(i * n for i, n in zip(position, dataset.chunks, strict=True))
            raw.seek(offset)
            if dataset.id.read_direct_chunk(corner) != (mask, raw.read(size)):
                found.append(f"{name}: another chunk at {position}")
        return found


def differences(ours: Json, theirs: Json) -> list[str]:
    """List differences between the dump of a file and h5py's; `unknown: ..` is not a difference."""
    mine = {item["path"]: item for item in ours["objects"]}
    found = [
        f"{path}: only in {'the dump' if path in mine else 'h5py'}"
        for path in mine.keys() ^ theirs.keys()
    ]
    for path in mine.keys() & theirs.keys():
        one, other = mine[path], theirs[path]
        if "failure" in one:
            same = "refused" in other
            kind = one["failure"]["error"]
            if not same:
                note = "unknown" if kind == "unknown" else "failure"
                found.append(f"{note}: {path}: {one['failure']['message']}")
            continue
        if "refused" in other:
            found.append(f"{path}: h5py refuses it: {other['refused']}")
            continue
        for key, expected in other.items():
            got = one.get(key)
            if not same_part(key, got, expected):
                found.append(f"{path}: {key}: {str(got)[:300]} and not {str(expected)[:300]}")
    return found


def matches(got: Json, expected: Json) -> bool:
    """Return True if both values are equal, or if h5py does not give the expected one."""
    if expected == "?":
        return True
    if isinstance(got, list) and isinstance(expected, list):
        return len(got) == len(expected) and all(map(matches, got, expected))
    return bool(got == expected)


def same_part(key: str, got: Json, expected: Json) -> bool:
    """Return True if a part of an object is equal on both sides."""
    if key == "fill":
        return expected == got or (expected == "value" and got not in {"undefined", "default"})
    if key == "attributes":
        if not isinstance(got, list) or len(got) != len(expected):
            return False
        return all(map(same_attribute, got, expected))
    if key == "layout":
        return same_layout(got, expected)
    return matches(got, expected)


def same_attribute(got: Json, expected: Json) -> bool:
    """Return True if an attribute is equal, as far as h5py reads it."""
    if not matches(got[:3], expected[:3]):
        return False
    if isinstance(expected[3], str):
        return True
    return bool(got[3] == expected[3]) or same_texts(got[3], expected[3])


def same_texts(got: Json, expected: Json) -> bool:
    """Return True if texts are equal without NULs at the end, which NumPy drops."""
    if isinstance(got, list) and len(got) == 2 and got[0] == "t":
        return bytes.fromhex(got[1]).rstrip(b"\0") == bytes.fromhex(expected[1]).rstrip(b"\0")
    if isinstance(got, list):
        return len(got) == len(expected) and all(map(same_texts, got, expected))
    return bool(got == expected)


def same_layout(got: Json, expected: Json) -> bool:
    """Return True if a layout is equal, with every chunk."""
    if got[0] != expected[0]:
        return False
    if got[0] == "contiguous":
        # Old files do not store the length, and unwritten data have none.
        # HDF5 adds the user block to the undefined offset of unwritten data.
        offset_same = got[1] == expected[1] or (got[1] is None and expected[2] == 0)
        return offset_same and (got[2] is None or got[1] is None or got[2] == expected[2])
    if got[0] == "chunked":
        if got[1] != expected[1]:
            return False
        return isinstance(expected[2], str) or bool(sorted(got[4]) == expected[2])
    return True


def files_of(place: Path) -> list[Path]:
    """List the files of a place that may be HDF5."""
    if place.is_file():
        return [place]
    return sorted(p for p in place.rglob("*") if p.suffix in ENDINGS and p.is_file())


def is_hdf5(path: Path) -> bool:
    """Return True if a file has an HDF5 signature at an offset that the format allows."""
    data = path.read_bytes()[: 1 << 20]
    offsets = itertools.chain([0], (512 << i for i in range(11)))
    return any(data[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in offsets)


def apart(describe: Callable[[Path], Json], path: Path) -> tuple[Json, str]:
    """Run `describe` in a new process, since HDF5 may crash or hang; return result and error."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send((describe(path), ""))
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            sender.send((None, str(error).splitlines()[0]))

    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        found = receiver.recv() if receiver.poll(20) else (None, "HDF5 does not end")
    except EOFError:
        found = (None, "HDF5 crashes")
    process.kill()
    process.join()
    return found


def compare_maps(dump: Path, path: Path) -> tuple[str, list[str]]:
    """Return the verdict on the chunk map of a file, with the reasons."""
    done = subprocess.run([dump, "--map", path], capture_output=True, text=True, check=True)  # noqa: S603
    ours = json.loads(done.stdout)["found"]
    theirs, refusal = apart(describe_map, path)
    if theirs is None:
        return ("refused", []) if "error" in ours else ("read by us only", [refusal])
    if "error" in ours:
        kind = "unknown" if ours["error"] == "unknown" else "different"
        return kind, [ours["message"]]
    found = map_differences(ours, theirs)
    return ("different" if found else "equal"), found


def map_differences(ours: Json, theirs: Json) -> list[str]:
    """List the differences between two chunk maps."""
    found = []
    one, other = ours["description"], theirs["description"]
    if one["format"] != other["format"]:
        found.append(f"format {one['format']} and not {other['format']}")
    for kind in ("groups", "arrays"):
        if [item["path"] for item in one[kind]] != [item["path"] for item in other[kind]]:
            paths = [[item["path"] for item in side[kind]] for side in (one, other)]
            found.append(f"{kind}: {paths[0]} and not {paths[1]}")
            continue
        for mine, its in zip(one[kind], other[kind], strict=True):
            mine.get("encoding", {}).pop("classic", None)
            found += [
                f"{mine['path']}: {key}: {str(mine[key])[:400]} and not {str(its[key])[:400]}"
                for key in its
                if mine[key] != its[key] and not is_better(key, its)
            ]
    found += [
        f"{name}: table {str(mine)[:200]} and not {str(its)[:200]}"
        for name, (mine, its) in tables_of(ours, theirs).items()
        if mine != its
    ]
    return found


def tables_of(ours: Json, theirs: Json) -> dict[str, tuple[Json, Json]]:
    """Return both chunk tables by variable, except where h5py iterates with wrong coordinates."""
    both = []
    for chunk_map in (ours, theirs):
        arrays = [a for a in chunk_map["description"]["arrays"] if "chunked" in a["storage"]]
        paths = [array["path"] for array in arrays]
        both.append(dict(zip(paths, chunk_map["tables"], strict=True)))
        wrong = {array["path"] for array in arrays if is_placed_wrong(array)}
    return {
        path: (both[0][path], both[1][path]) for path in both[0].keys() & both[1].keys() - wrong
    }


#: Reasons for which the package leaves variables to h5py that the parser reads: one-byte numbers
#: with a byte order; edge chunks, for which h5py does not say if they are filtered; unwritten data
#: in a file with a user block; chunks along a growing axis after others, which h5py places wrongly.
KNOWN_BETTER = (
    "numbers in a form that NumPy does not have",
    "its chunks at the edge may be",
    "its storage has another size",
    "HDF5 does not say where its chunks lie",
)


def is_better(key: str, its: Json) -> bool:
    """Return True if a storage differs because h5py gives too little information."""
    if key != "storage" or "native" not in its[key]:
        return False
    return bool(its[key]["native"]["reason"].startswith(KNOWN_BETTER))


def is_placed_wrong(array: Json) -> bool:
    """Return True if h5py iterates over chunks with wrong coordinates: see `grows_behind`."""
    return array["unlimited"].count(True) == 1 and not array["unlimited"][0]


def compare(dump: Path, path: Path) -> tuple[str, list[str]]:
    """Return the verdict on a file, with the reasons."""
    try:
        done = subprocess.run([dump, path], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return "different", [f"the dump failed: {error} {error.stderr}"]
    ours = json.loads(done.stdout)["found"]
    theirs, refusal = apart(describe, path)
    if theirs is None:
        return ("refused", []) if "error" in ours else ("read by us only", [refusal])
    if "error" in ours:
        kind = "unknown" if ours["error"] == "unknown" else "different"
        return kind, [ours["message"]]
    found = differences(ours, theirs)
    for item in ours["objects"]:
        if theirs.get(item["path"], {}).get("layout", [])[2:] == ["by coordinates"]:
            found += misplaced(path, item["path"], item["layout"][4])
    if not found:
        return "equal", []
    is_unknown = all(reason.startswith("unknown: ") for reason in found)
    return ("unknown" if is_unknown else "different"), found


def main() -> int:
    """Compare the files and directories of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--maps", action="store_true", help="compare chunk maps")
    parser.add_argument("-v", action="store_true", help="every difference, not three of a file")
    options = parser.parse_args()
    failed = False
    for place in options.places:
        counts: collections.Counter[str] = collections.Counter()
        for path in files_of(place):
            if not is_hdf5(path):
                continue
            verdict, reasons = (compare_maps if options.maps else compare)(options.dump, path)
            counts[verdict] += 1
            failed |= verdict == "different"
            if verdict not in {"equal", "refused"}:
                shown = reasons if options.v else reasons[:3]
                print(f"{verdict}: {path}", *shown, sep="\n    ")  # noqa: T201
        print(f"{place}: {dict(counts)}")  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
