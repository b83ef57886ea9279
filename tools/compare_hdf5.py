"""Hold what the HDF5 parser finds in files against what h5py says.

``compare_hdf5.py [--maps] DUMP PLACE..``: DUMP is the built example ``hdf5_dump``, a place is a file
or a directory. With ``--maps`` its chunk maps are compared with those of the package (on PYTHONPATH)
made with h5py. Else compared are objects, shapes, types, fill values, filters, layouts, every chunk, and
attributes with their values. For each place prints how many files are equal, unknown to the parser,
refused by both, or different, and what differs.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import multiprocessing
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Json = Any
ORDERS = {h5py.h5t.ORDER_LE: "Little", h5py.h5t.ORDER_BE: "Big", h5py.h5t.ORDER_VAX: "Vax"}
PADDINGS = {0: "ZeroTerminated", 1: "Zeros", 2: "Spaces"}
LAYOUTS = {0: "compact", 1: "contiguous", 2: "chunked", 3: "virtual"}
ENDINGS = {".h5", ".hdf5", ".nc", ".nc4", ".he5", ".h5ad", ".nxs", ".hdf", ".mat", ".cdf", ".jld2"}
CHUNKS_MAX = 200_000


def text(name: bytes) -> str:
    """A name as the dump shows it."""
    return name.decode("utf-8", "backslashreplace")


def type_of(datatype: h5py.h5t.TypeID) -> Json:
    """A type in the dump's words."""
    size, kind = datatype.get_size(), datatype.get_class()
    t = h5py.h5t
    if kind == t.INTEGER:
        bits = [ORDERS[datatype.get_order()], datatype.get_offset(), datatype.get_precision()]
        return ["integer", size, *bits, datatype.get_sign() == t.SGN_2]
    if kind == t.FLOAT:
        sign, epos, esize, mpos, msize = datatype.get_fields()
        bits = [ORDERS[datatype.get_order()], datatype.get_offset(), datatype.get_precision()]
        return ["float", size, *bits, [sign, epos, esize], [mpos, msize], datatype.get_ebias()]
    if kind == t.STRING:
        utf8 = datatype.get_cset() == t.CSET_UTF8
        padding = PADDINGS[datatype.get_strpad()]
        if datatype.is_variable_str():
            return ["variable-text", padding, utf8]
        return ["text", size, padding, utf8]
    if kind == t.BITFIELD:
        # h5py does not tell which bits.
        return ["bits", size, ORDERS[datatype.get_order()], "?", "?"]
    if kind == t.OPAQUE:
        return ["opaque", size, text(datatype.get_tag())]
    if kind == t.COMPOUND:
        members = [
            [
                text(datatype.get_member_name(i)),
                datatype.get_member_offset(i),
                type_of(datatype.get_member_type(i)),
            ]
            for i in range(datatype.get_nmembers())
        ]
        if any(map(is_in_heap, (member[2] for member in members))):
            # HDF5 tells offsets in memory, where such members are pointers.
            members = [[name, "?", member] for name, _, member in members]
            return ["compound", "?", members]
        return ["compound", size, members]
    if kind == t.REFERENCE:
        name = {8: "Object", 12: "Region"}.get(size, "Revised")
        return ["reference", "?" if name == "Revised" else size, name]
    if kind == t.ENUM:
        base = datatype.get_super()
        native = np.dtype(
            ("<" if base.get_order() == t.ORDER_LE else ">")
            + ("i" if base.get_sign() == t.SGN_2 else "u")
            + str(size)
        )
        members = [
            [
                text(datatype.get_member_name(i)),
                np.array(datatype.get_member_value(i)).astype(native).tobytes().hex(),
            ]
            for i in range(datatype.get_nmembers())
        ]
        return ["enumeration", type_of(base), members]
    if kind == t.VLEN:
        return ["sequence", type_of(datatype.get_super())]
    if kind == t.ARRAY:
        return ["array", list(datatype.get_array_dims()), type_of(datatype.get_super())]
    if kind == t.TIME:
        return ["time", size]
    if kind == getattr(t, "COMPLEX", 11):
        return ["complex", type_of(datatype.get_super())]
    return ["?"]


def is_in_heap(kind: Json) -> bool:
    """Whether elements of a type of the dump are pointers in memory."""
    match kind:
        case ["variable-text" | "sequence", *_] | ["compound" | "reference", "?", *_]:
            return True
        case ["array", _, base]:
            return is_in_heap(base)
    return False


class Skip(Exception):
    """h5py has no value for it."""


def value(kind: Json, element: Any) -> Json:
    """An element in the dump's words, by its type there."""
    match kind:
        case ["integer" | "enumeration", *_]:
            return str(int(element))
        case ["float", size, _, offset, precision, [sign, epos, esize], [mpos, msize], bias]:
            ieee = {(2, 16): (15, 10, 5, 15), (4, 32): (31, 23, 8, 127), (8, 64): (63, 52, 11, 1023)}
            expected = ieee.get((size, precision))
            if (sign, epos, esize, bias) != expected or offset or mpos or msize != epos:
                raise Skip
            return ["f", struct.pack(">d", float(element)).hex()]
        case ["text" | "variable-text", *_]:
            if isinstance(element, str):
                element = element.encode("utf-8", "surrogateescape")
            return ["t", bytes(element).hex()]
        case ["reference", _, "Object"]:
            return ["r", REFERENCE_OF(element)]
        case ["sequence", base]:
            if "Big" in base:
                # h5py gives the bytes in the file's order as if they were in the machine's.
                raise Skip
            return ["l", [value(base, item) for item in element]]
        case ["array", _, base]:
            return ["l", [value(base, item) for item in np.asarray(element).ravel()]]
        case ["compound", _, members]:
            if not isinstance(element, (np.void, tuple)):
                pair = [element.real, element.imag] if len(members) == 2 else []
                return ["c", [value(m[2], e) for m, e in zip(members, pair, strict=True)]]
            pairs = zip(members, element, strict=True)
            return ["c", [value(member[2], item) for member, item in pairs]]
        case ["complex", base]:
            return ["c", [value(base, element.real), value(base, element.imag)]]
    raise Skip


def REFERENCE_OF(element: Any) -> Json:  # noqa: N802
    """The address in an object reference."""
    if not element:
        return None
    return ADDRESS_OF(element)


def ADDRESS_OF(element: h5py.Reference) -> int:  # noqa: N802
    return h5py.h5o.get_info(h5py.h5r.dereference(element, FILE.id)).addr


FILE: h5py.File


def attributes_of(stored: Any) -> Json:
    """The attributes of an object."""
    found = []
    for name in stored.attrs:
        encoded = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        attribute = h5py.h5a.open(stored.id, encoded)
        space = attribute.get_space()
        is_null = space.get_simple_extent_type() == h5py.h5s.NULL
        shape = None if is_null else list(space.get_simple_extent_dims())
        kind = type_of(attribute.get_type())
        try:
            values = [] if is_null else read_attribute(attribute, kind)
        except Skip:
            values = "skipped"
        except (TypeError, ValueError, OSError, KeyError, RuntimeError, NotImplementedError) as error:
            values = f"skipped: {error}"
        found.append([text(encoded), shape, kind, values])
    return found


def read_attribute(attribute: h5py.h5a.AttrID, kind: Json) -> Json:
    dtype = attribute.dtype
    shape = attribute.shape
    if dtype.subdtype is not None:
        subdtype, subshape = dtype.subdtype
        shape, dtype = attribute.shape + subshape, subdtype
    array = np.zeros(shape, dtype)
    attribute.read(array, mtype=h5py.h5t.py_create(dtype) if kind[0] == "array" else None)
    if kind[0] == "array":
        array = array.reshape(attribute.shape + subshape)
        count = int(np.prod(attribute.shape, dtype=np.int64))
        rows = array.reshape((count, -1))
        return [["l", [value(kind[2], item) for item in row]] for row in rows]
    return [value(kind, item) for item in array.ravel()]


def grows_behind(dataset: h5py.Dataset) -> bool:
    """Whether one axis is unlimited, and not the first.

    HDF5 (up to 2.2) then iterates over an extensible array with wrong coordinates.
    """
    unlimited = [size is None for size in dataset.maxshape]
    return unlimited.count(True) == 1 and not unlimited[0]


def misplaced(path: Path, name: str, chunks: Json) -> list[str]:
    """Chunks of the dump whose bytes are not those that HDF5 reads at their coordinates."""
    with h5py.File(path, "r") as file, path.open("rb") as raw:
        dataset = file[name]
        found = []
        for position, offset, size, mask in chunks:
            corner = tuple(i * n for i, n in zip(position, dataset.chunks, strict=True))
            raw.seek(offset)
            if dataset.id.read_direct_chunk(corner) != (mask, raw.read(size)):
                found.append(f"{name}: another chunk at {position}")
        return found


def layout_of(dataset: h5py.Dataset, kind: str) -> Json:
    """Where the elements of a dataset are."""
    if kind == "contiguous":
        size = dataset.id.get_storage_size()
        return [kind, dataset.id.get_offset(), size]
    if kind == "chunked":
        plist = dataset.id.get_create_plist()
        if dataset.id.get_num_chunks() > CHUNKS_MAX:
            return [kind, list(plist.get_chunk()), "too many"]
        shape = plist.get_chunk()
        if grows_behind(dataset):
            return [kind, list(shape), "by coordinates"]
        chunks: list[Any] = []
        dataset.id.chunk_iter(chunks.append)
        found = [
            [[o // s for o, s in zip(c.chunk_offset, shape, strict=True)], c.byte_offset, c.size, c.filter_mask]
            for c in chunks
        ]
        return [kind, list(shape), sorted(found)]
    return [kind]


def describe_dataset(dataset: h5py.Dataset) -> Json:
    """What h5py says of a dataset."""
    plist = dataset.id.get_create_plist()
    kind = LAYOUTS[plist.get_layout()]
    kind = "external" if plist.get_external_count() else kind
    shape, maximum = None, None
    if dataset.id.get_space().get_simple_extent_type() != h5py.h5s.NULL:
        shape = list(dataset.id.get_space().get_simple_extent_dims())
        maximum = [
            None if size == h5py.h5s.UNLIMITED else size
            for size in dataset.id.get_space().get_simple_extent_dims(True)
        ]
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    fill = {0: "undefined", 1: "default"}.get(plist.fill_value_defined(), "value")
    return {
        "kind": "dataset",
        # The shape of a virtual dataset would open its sources.
        "shape": "?" if kind == "virtual" else shape,
        "max_shape": maximum,
        "dtype": type_of(dataset.id.get_type()),
        "fill": fill,
        "filters": [[code, flags & 1, list(values)] for code, flags, values, _ in filters],
        "layout": layout_of(dataset, kind),
    }


def describe(path: Path) -> Json:
    """All objects of a file, each under its first name."""
    global FILE  # noqa: PLW0603
    objects: dict[str, Json] = {}
    met: set[int] = set()

    def visit(name: str, identifier: Any) -> None:
        address = h5py.h5o.get_info(identifier).addr
        if address in met:
            return
        met.add(address)
        if isinstance(identifier, h5py.h5g.GroupID):
            group = h5py.Group(identifier)
            names = list(group.id)
            objects[name] = {
                "kind": "group",
                "links": [text(n) for n in names],
                "attributes": attributes_of(group),
            }
            for n in names:
                if group.id.links.get_info(n).type == h5py.h5l.TYPE_HARD:
                    child = f"{'' if name == '/' else name}/{text(n)}"
                    try:
                        opened = h5py.h5o.open(group.id, n)
                    except (KeyError, OSError, RuntimeError) as error:
                        objects[child] = {"refused": str(error)}
                        continue
                    visit(child, opened)
        elif isinstance(identifier, h5py.h5d.DatasetID):
            dataset = h5py.Dataset(identifier)
            objects[name] = describe_dataset(dataset) | {"attributes": attributes_of(dataset)}
        else:
            named = h5py.Datatype(identifier)
            objects[name] = {
                "kind": "type",
                "dtype": type_of(identifier),
                "attributes": attributes_of(named),
            }

    with h5py.File(path, "r") as FILE:
        visit("/", FILE["/"].id)
    return objects


def differences(ours: Json, theirs: Json) -> list[str]:
    """What differs between the dump of a file and h5py's words; `unknown: ..` is no difference."""
    found: list[str] = []
    mine = {item["path"]: item for item in ours["objects"]}
    for path in mine.keys() ^ theirs.keys():
        found.append(f"{path}: only in {'the dump' if path in mine else 'h5py'}")
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
    """Equality, where h5py tells it."""
    if expected == "?":
        return True
    if isinstance(got, list) and isinstance(expected, list):
        return len(got) == len(expected) and all(map(matches, got, expected))
    return bool(got == expected)


def same_part(key: str, got: Json, expected: Json) -> bool:
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
    if not matches(got[:3], expected[:3]):
        return False
    if isinstance(expected[3], str):
        return True
    return bool(got[3] == expected[3]) or same_texts(got[3], expected[3])


def same_texts(got: Json, expected: Json) -> bool:
    """NumPy loses the zeros at the end of text."""
    if isinstance(got, list) and len(got) == 2 and got[0] == "t":
        return bytes.fromhex(got[1]).rstrip(b"\0") == bytes.fromhex(expected[1]).rstrip(b"\0")
    if isinstance(got, list):
        return len(got) == len(expected) and all(map(same_texts, got, expected))
    return bool(got == expected)


def same_layout(got: Json, expected: Json) -> bool:
    if got[0] != expected[0]:
        return False
    if got[0] == "contiguous":
        # An old file does not say how long it is; nothing stored has no size.
        # HDF5 adds the user block to the offset of what was never written.
        offset_same = got[1] == expected[1] or (got[1] is None and expected[2] == 0)
        return offset_same and (got[2] is None or got[1] is None or got[2] == expected[2])
    if got[0] == "chunked":
        if got[1] != expected[1]:
            return False
        return isinstance(expected[2], str) or bool(sorted(got[4]) == expected[2])
    return True


def files_of(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(p for p in place.rglob("*") if p.suffix in ENDINGS and p.is_file())


def is_hdf5(path: Path) -> bool:
    data = path.read_bytes()[: 1 << 20]
    offsets = itertools.chain([0], (512 << i for i in range(11)))
    return any(data[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in offsets)


def main() -> int:
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


def apart(describe: Callable[[Path], Json], path: Path) -> tuple[Json, str]:
    """What `describe` gives, or why not; in a process of its own, as HDF5 may crash or hang."""
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


def map_of(path: Path) -> Json:
    """The chunk map that the package makes with h5py."""
    from bedform._foreign import chunk_map

    parts = chunk_map(path)
    tables = [[column.tolist() for column in table] for table in parts.tables]
    return {"description": json.loads(parts.description), "tables": tables}


def compare_maps(dump: Path, path: Path) -> tuple[str, list[str]]:
    """The verdict on the chunk map of a file, and why."""
    done = subprocess.run([dump, "--map", path], capture_output=True, text=True, check=True)  # noqa: S603
    ours = json.loads(done.stdout)["found"]
    theirs, refusal = apart(map_of, path)
    if theirs is None:
        return ("refused", []) if "error" in ours else ("read by us only", [refusal])
    if "error" in ours:
        kind = "unknown" if ours["error"] == "unknown" else "different"
        return kind, [ours["message"]]
    found = map_differences(ours, theirs)
    return ("different" if found else "equal"), found


def map_differences(ours: Json, theirs: Json) -> list[str]:
    found = []
    one, other = ours["description"], theirs["description"]
    if one["format"] != other["format"]:
        found.append(f"format {one['format']} and not {other['format']}")
    for kind in ("groups", "arrays"):
        if [item["path"] for item in one[kind]] != [item["path"] for item in other[kind]]:
            found.append(f"{kind}: {[i['path'] for i in one[kind]]} and not {[i['path'] for i in other[kind]]}")
            continue
        for mine, its in zip(one[kind], other[kind], strict=True):
            mine.get("encoding", {}).pop("classic", None)
            found += [
                f"{mine['path']}: {key}: {str(mine[key])[:400]} and not {str(its[key])[:400]}"
                for key in its
                if mine[key] != its[key] and not is_better(key, mine, its)
            ]
    found += [
        f"{name}: table {str(mine)[:200]} and not {str(its)[:200]}"
        for name, (mine, its) in tables_of(ours, theirs).items()
        if mine != its
    ]
    return found


def tables_of(ours: Json, theirs: Json) -> dict[str, tuple[Json, Json]]:
    """The chunk tables of both maps by variable, but for those that h5py iterates over wrongly."""
    both = []
    for chunk_map in (ours, theirs):
        arrays = [a for a in chunk_map["description"]["arrays"] if "chunked" in a["storage"]]
        paths = [array["path"] for array in arrays]
        both.append(dict(zip(paths, chunk_map["tables"], strict=True)))
        wrong = {array["path"] for array in arrays if is_placed_wrong(array)}
    return {
        path: (both[0][path], both[1][path])
        for path in both[0].keys() & both[1].keys() - wrong
    }


#: Why h5py reads what the parser knows to be simple: numbers of one byte that have an order, chunks
#: at the edge, of which h5py does not tell whether they are filtered, and what was never written in a
#: file with a user block.
KNOWN_BETTER = (
    "numbers in a form that NumPy does not have",
    "its chunks at the edge may be",
    "its storage has another size",
)


def is_better(key: str, mine: Json, its: Json) -> bool:
    if key != "storage" or "native" not in its[key]:
        return False
    return bool(its[key]["native"]["reason"].startswith(KNOWN_BETTER))


def is_placed_wrong(array: Json) -> bool:
    """Whether h5py iterates over the chunks with wrong coordinates: see `grows_behind`."""
    return array["unlimited"].count(True) == 1 and not array["unlimited"][0]


def compare(dump: Path, path: Path) -> tuple[str, list[str]]:
    """The verdict on a file, and why."""
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


if __name__ == "__main__":
    sys.exit(main())
