"""Describe an HDF5 file with h5py, in the output format of the example ``hdf5_dump``."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe", "describe_map"]

Json = Any
ORDERS = {h5py.h5t.ORDER_LE: "Little", h5py.h5t.ORDER_BE: "Big", h5py.h5t.ORDER_VAX: "Vax"}
PADDINGS = {0: "ZeroTerminated", 1: "Zeros", 2: "Spaces"}
LAYOUTS = {0: "compact", 1: "contiguous", 2: "chunked", 3: "virtual"}
#: By bytes and bits: position of the sign; position, length and bias of the exponent.
IEEE = {(2, 16): (15, 10, 5, 15), (4, 32): (31, 23, 8, 127), (8, 64): (63, 52, 11, 1023)}
CHUNKS_MAX = 200_000
#: Exceptions of h5py for values that it does not read.
UNREADABLE = (TypeError, ValueError, OSError, KeyError, RuntimeError, NotImplementedError)


def text(name: bytes) -> str:
    """Return a name in the form of the dump."""
    return name.decode("utf-8", "backslashreplace")


def type_of(datatype: h5py.h5t.TypeID) -> Json:
    """Return a type in the form of the dump."""
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
        # h5py does not give the position of the bits.
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
            # HDF5 gives offsets in memory, where such members are pointers.
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
    """Return True if elements of a type of the dump are pointers in memory."""
    match kind:
        case ["variable-text" | "sequence", *_] | ["compound" | "reference", "?", *_]:
            return True
        case ["array", _, base]:
            return is_in_heap(base)
    return False


class Skip(Exception):  # noqa: N818
    """The element has no value in h5py."""


def value(kind: Json, element: Any, owner: Any) -> Json:
    """Return an element in the form of the dump, by its type there."""

    def inner(kind: Json, elements: Any) -> list[Json]:
        return [value(kind, item, owner) for item in elements]

    match kind:
        case ["integer" | "enumeration", *_]:
            return str(int(element))
        case ["float", size, _, offset, precision, [sign, epos, esize], [mpos, msize], bias]:
            expected = IEEE.get((size, precision))
            if (sign, epos, esize, bias) != expected or offset or mpos or msize != epos:
                raise Skip
            return ["f", struct.pack(">d", float(element)).hex()]
        case ["text" | "variable-text", *_]:
            if isinstance(element, str):
                element = element.encode("utf-8", "surrogateescape")
            return ["t", bytes(element).hex()]
        case ["reference", _, "Object"]:
            return ["r", address_of(element, owner)]
        case ["sequence", base]:
            if "Big" in base:
                # h5py returns bytes in the file's order as if they were in the machine's.
                raise Skip
            return ["l", inner(base, element)]
        case ["array", _, base]:
            return ["l", inner(base, np.asarray(element).ravel())]
        case ["compound", _, members]:
            if not isinstance(element, (np.void, tuple)):
                element = (element.real, element.imag)
            pairs = zip(members, element, strict=True)
            return ["c", [value(member[2], item, owner) for member, item in pairs]]
    raise Skip


def address_of(reference: Any, owner: Any) -> int | None:
    """Return the address of the object to which a reference of `owner` refers."""
    if not reference:
        return None
    target = h5py.h5r.dereference(reference, owner.id)
    return int(h5py.h5o.get_info(target).addr)


def attributes_of(stored: Any) -> Json:
    """Return the attributes of an object."""
    found = []
    for name in stored.attrs:
        encoded = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        attribute = h5py.h5a.open(stored.id, encoded)
        space = attribute.get_space()
        is_null = space.get_simple_extent_type() == h5py.h5s.NULL
        shape = None if is_null else list(space.get_simple_extent_dims())
        kind = type_of(attribute.get_type())
        try:
            values = [] if is_null else read_attribute(attribute, kind, stored)
        except Skip:
            values = "skipped"
        except UNREADABLE as error:
            values = f"skipped: {error}"
        found.append([text(encoded), shape, kind, values])
    return found


def read_attribute(attribute: h5py.h5a.AttrID, kind: Json, owner: Any) -> Json:
    """Return the elements of an attribute."""
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
        return [["l", [value(kind[2], item, owner) for item in row]] for row in rows]
    return [value(kind, item, owner) for item in array.ravel()]


def grows_behind(dataset: h5py.Dataset) -> bool:
    """Return True if exactly one axis is unlimited, and it is not the first.

    HDF5 (up to 2.2) then iterates over an extensible array with wrong coordinates.
    """
    unlimited = [size is None for size in dataset.maxshape]
    return unlimited.count(True) == 1 and not unlimited[0]


def layout_of(dataset: h5py.Dataset, kind: str) -> Json:
    """Return the layout of a dataset, with the extents of its elements."""
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
            [
                [offset // size for offset, size in zip(chunk.chunk_offset, shape, strict=True)],
                chunk.byte_offset,
                chunk.size,
                chunk.filter_mask,
            ]
            for chunk in chunks
        ]
        return [kind, list(shape), sorted(found)]
    return [kind]


def describe_dataset(dataset: h5py.Dataset) -> Json:
    """Describe a dataset."""
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
    """Describe all objects of a file, each under its first name."""
    with h5py.File(path, "r") as file:
        walk = _Walk()
        walk.visit("/", file["/"].id)
        return walk.objects


class _Walk:
    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.met: set[int] = set()

    def visit(self, name: str, identifier: Any) -> None:
        """Visit an object, and the members of a group, unless it was visited before."""
        address = h5py.h5o.get_info(identifier).addr
        if address in self.met:
            return
        self.met.add(address)
        if isinstance(identifier, h5py.h5g.GroupID):
            self.group(name, h5py.Group(identifier))
        elif isinstance(identifier, h5py.h5d.DatasetID):
            dataset = h5py.Dataset(identifier)
            attributes = {"attributes": attributes_of(dataset)}
            self.objects[name] = describe_dataset(dataset) | attributes
        else:
            attributes = {"attributes": attributes_of(h5py.Datatype(identifier))}
            self.objects[name] = {"kind": "type", "dtype": type_of(identifier)} | attributes

    def group(self, name: str, group: h5py.Group) -> None:
        names = list(group.id)
        self.objects[name] = {
            "kind": "group",
            "links": [text(member) for member in names],
            "attributes": attributes_of(group),
        }
        for member in names:
            if group.id.links.get_info(member).type != h5py.h5l.TYPE_HARD:
                continue
            child = f"{'' if name == '/' else name}/{text(member)}"
            try:
                opened = h5py.h5o.open(group.id, member)
            except (KeyError, OSError, RuntimeError) as error:
                self.objects[child] = {"refused": str(error)}
                continue
            self.visit(child, opened)


def describe_map(path: Path) -> Json:
    """Return the chunk map that the package makes with h5py."""
    from bedform._foreign import chunk_map

    parts = chunk_map(path)
    tables = [[column.tolist() for column in table] for table in parts.tables]
    return {"description": json.loads(parts.description), "tables": tables}
